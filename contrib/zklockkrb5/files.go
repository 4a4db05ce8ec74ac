package zklockkrb5

// The files of Kerberos. Errors of their parsers are hidden, because a keytab contains keys.

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/iana/etypeID"
	"github.com/jcmturner/gokrb5/v8/iana/nametype"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/jcmturner/gokrb5/v8/types"
)

// configFile returns the file that the environment names, the first if it names several.
func configFile() string {
	for _, file := range filepath.SplitList(os.Getenv("KRB5_CONFIG")) {
		if file != "" {
			return file
		}
	}
	return "/etc/krb5.conf"
}

// unread matches settings that gokrb5's parser rejects or does not fully support. namingOf reads
// them, or they are not needed.
var unread = regexp.MustCompile(`(?m)^\s*((dns_canonicalize_hostname|rdns|preferred_preauth_types)\s*=.*|auth_to_local_names\s*=\s*\{[^}]*\}.*)$`)

// defaults are the defaults of MIT and Java, which differ from gokrb5's.
const defaults = "[libdefaults]\ndns_lookup_kdc = true\n"

// readConfig reads krb5.conf. Of the encryption types it keeps only AES.
func readConfig(file string) (*config.Config, naming, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, naming{}, err
	}
	n, err := namingOf(string(b))
	if err != nil {
		return nil, n, fmt.Errorf("%s: the settings of names: %w", file, err)
	}
	var conf *config.Config
	err = parsed(func() (err error) {
		conf, err = config.NewFromString(defaults + unread.ReplaceAllString(string(b), ""))
		return err
	})
	if conf == nil {
		return nil, n, fmt.Errorf("%s cannot be understood: %w", file, err)
	}
	conf.LibDefaults.NoAddresses, conf.LibDefaults.RenewLifetime = true, 0
	conf.LibDefaults.Canonicalize = true // KDCs then point to another realm
	for _, ids := range []*[]int32{&conf.LibDefaults.DefaultTktEnctypeIDs, &conf.LibDefaults.DefaultTGSEnctypeIDs} {
		if *ids = slices.DeleteFunc(*ids, isNotAES); len(*ids) == 0 {
			return nil, n, fmt.Errorf("%s: default_tkt_enctypes or default_tgs_enctypes has no AES: leave them out", file)
		}
	}
	return conf, n, nil
}

func isNotAES(id int32) bool {
	return !slices.Contains([]int32{etypeID.AES128_CTS_HMAC_SHA1_96, etypeID.AES256_CTS_HMAC_SHA1_96,
		etypeID.AES128_CTS_HMAC_SHA256_128, etypeID.AES256_CTS_HMAC_SHA384_192}, id)
}

func splitPrincipal(s string) (name, realm string) {
	if i := strings.LastIndexByte(s, '@'); i >= 0 {
		return s[:i], s[i+1:]
	}
	return s, ""
}

// keys is a keytab, and the principal whose keys count.
type keys struct {
	tab       *keytab.Keytab
	principal types.PrincipalName
	realm     string
	etypes    []int32 // that are in both the keytab and krb5.conf
}

func readKeytab(file, principal string, conf *config.Config) (keys, error) {
	name, realm := splitPrincipal(principal)
	realm = cmp.Or(realm, conf.LibDefaults.DefaultRealm)
	if name == "" || realm == "" {
		return keys{}, fmt.Errorf("the principal %q: give one such as locker@EXAMPLE.COM", principal)
	}
	k := keys{tab: keytab.New(), principal: types.NewPrincipalName(nametype.KRB_NT_PRINCIPAL, name), realm: realm}
	b, err := os.ReadFile(file)
	if err != nil {
		return keys{}, err
	}
	if parsed(func() error { return k.tab.Unmarshal(b) }) != nil {
		return keys{}, fmt.Errorf("%s is no keytab, or is not whole", file)
	}
	for _, id := range conf.LibDefaults.DefaultTktEnctypeIDs {
		if _, _, err := k.tab.GetEncryptionKey(k.principal, realm, 0, id); err == nil {
			k.etypes = append(k.etypes, id)
		}
	}
	if len(k.etypes) == 0 {
		return keys{}, fmt.Errorf("the keytab %s has no key of %s@%s for AES", file, name, realm)
	}
	return k, nil
}

// cacheFile returns the file for the name of a ticket cache.
func cacheFile(name string) (string, error) {
	name = cmp.Or(name, os.Getenv("KRB5CCNAME"), fmt.Sprintf("/tmp/krb5cc_%d", os.Getuid()))
	kind, file, ok := strings.Cut(name, ":")
	switch {
	case !ok || filepath.IsAbs(name):
		return name, nil
	case kind == "FILE":
		return file, nil
	}
	return "", fmt.Errorf("the ticket cache %s is no file: give one that kinit -c FILE has made", name)
}

// readCache returns the ticket-granting ticket of a ticket cache, valid or not.
func readCache(file string) (ticket, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return ticket{}, fmt.Errorf("the ticket cache: %w: run kinit", err)
	}
	var t ticket
	if parsed(func() (err error) { t, err = parseCache(b); return err }) != nil { // kinit may be writing it
		return ticket{}, fmt.Errorf("%s is no ticket cache, or is not whole", file)
	}
	if t.key.KeyValue == nil {
		return ticket{}, fmt.Errorf("the ticket cache %s has no ticket of krbtgt/%s: run kinit", file, t.realm)
	}
	return t, nil
}

// parseCache returns the client of a ticket cache, and its ticket-granting ticket, if it has one.
// gokrb5's own parser allocates memory for as many addresses as the file claims, so a damaged file
// may exhaust the memory.
func parseCache(b []byte) (t ticket, err error) {
	r := cacheReader(slices.Clip(b))
	version := r.uint16()
	switch version {
	case 0x0504:
		r.take(r.uint16()) // the header
	case 0x0503: // Java's kinit
	default:
		return t, errMalformed
	}
	t.client, t.realm = r.principal()
	for len(r) > 0 {
		r.principal() // the client
		server, realm := r.principal()
		if version == 0x0503 {
			r.uint16() // the type of the key, twice
		}
		key := types.EncryptionKey{KeyType: int32(r.uint16()), KeyValue: r.data()}
		r.take(4 + 4) // the times of the login and of the beginning of validity
		end := time.Unix(int64(r.uint32()), 0)
		r.take(4 + 1 + 4) // the end of renewability, and flags
		for range 2 {     // addresses, and authorization data
			for range r.uint32() {
				r.uint16()
				r.data()
			}
		}
		tgt := r.data()
		r.data() // a second ticket
		if t.key.KeyValue == nil && server.Equal(types.PrincipalName{NameString: []string{"krbtgt", t.realm}}) && realm == t.realm {
			t.key, t.end = key, end
			if err = t.Ticket.Unmarshal(tgt); err == nil && !t.SName.Equal(server) {
				err = errMalformed
			}
		}
	}
	return t, err
}

// cacheReader is the unread part of a ticket cache. It panics if the cache is truncated.
type cacheReader []byte

func (r *cacheReader) take(n uint32) []byte {
	b := (*r)[:n:n]
	*r = (*r)[n:]
	return b
}

func (r *cacheReader) uint16() uint32 { return uint32(binary.BigEndian.Uint16(r.take(2))) }
func (r *cacheReader) uint32() uint32 { return binary.BigEndian.Uint32(r.take(4)) }
func (r *cacheReader) data() []byte   { return r.take(r.uint32()) }

func (r *cacheReader) principal() (name types.PrincipalName, realm string) {
	name.NameType = int32(r.uint32())
	parts := r.uint32()
	realm = string(r.data())
	for range parts {
		name.NameString = append(name.NameString, string(r.data()))
	}
	return name, realm
}

// parsed calls a parser and recovers its panic: some parsers panic if their input is truncated or
// forged.
func parsed(parse func() error) (err error) {
	defer func() {
		if recover() != nil {
			err = errMalformed
		}
	}()
	return parse()
}

var errMalformed = errors.New("what was read is malformed")
