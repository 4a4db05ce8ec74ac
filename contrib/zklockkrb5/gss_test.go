package zklockkrb5

// These tests attack our trust in servers and KDCs, and our file parsers: forged tokens, half a
// keytab, no secret in any text.

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jcmturner/gokrb5/v8/gssapi"
	"github.com/jcmturner/gokrb5/v8/iana"
	"github.com/jcmturner/gokrb5/v8/iana/etypeID"
	"github.com/jcmturner/gokrb5/v8/iana/keyusage"
	"github.com/jcmturner/gokrb5/v8/iana/msgtype"
	"github.com/jcmturner/gokrb5/v8/iana/nametype"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/sasl"
)

func newKey() types.EncryptionKey {
	k := types.EncryptionKey{KeyType: etypeID.AES256_CTS_HMAC_SHA1_96, KeyValue: make([]byte, 32)}
	_, _ = rand.Read(k.KeyValue)
	return k
}

// offerOf returns the offer of a server with a key.
func offerOf(t *testing.T, key types.EncryptionKey, layers ...byte) []byte {
	t.Helper()
	token := gssapi.WrapToken{Flags: 1, EC: 12, Payload: layers}
	require.NoError(t, token.SetCheckSum(key, keyusage.GSSAPI_ACCEPTOR_SEAL))
	b, err := token.Marshal()
	require.NoError(t, err)
	return b
}

// A server without the key of its principal is not trusted; a reply without proof of a key is no
// rejection.
func TestReadLayers(t *testing.T) {
	key := newKey()
	good := offerOf(t, key, 7, 0, 0xff, 0xff)
	require.NoError(t, readLayers(good, key))
	reflected, err := signed([]byte{1, 0, 0, 0}, key, 0)
	require.NoError(t, err)
	changed := append([]byte{}, good...)
	changed[16] ^= 1
	for says, tc := range map[string]struct {
		token   []byte
		refused bool
	}{
		"did not prove":          {offerOf(t, newKey(), 1, 0, 0, 0), true},
		"key of its principal":   {changed, true},
		"no token of GSSAPI":     {reflected, false}, // our own, sent back
		"wants a security layer": {offerOf(t, key, 6, 0, 0xff, 0xff), false},
		"layer (0100)":           {offerOf(t, key, 1, 0), false},
		"no answer to a ticket":  {nil, false},
		"with 9 bytes":           {[]byte(`realm="zk`), false},
	} {
		err := readLayers(tc.token, key)
		require.ErrorContains(t, err, says)
		if tc.refused {
			require.ErrorIs(t, err, zklock.ErrAuthFailed, says)
		} else {
			require.NotErrorIs(t, err, zklock.ErrAuthFailed, says)
		}
	}
	for i := range good { // whatever is cut off, it is no proof
		require.Error(t, readLayers(good[:i], key))
	}
}

const conf = "[libdefaults]\ndefault_realm = ZKLOCK.TEST\ndns_canonicalize_hostname = fallback\n[realms]\nZKLOCK.TEST = {\nkdc = 127.0.0.1:1\n}\n"

// A subkey is as long as a key of its type, because a server may reject other lengths.
func TestBegin_Subkey(t *testing.T) {
	for etype, size := range map[int32]int{etypeID.AES128_CTS_HMAC_SHA1_96: 16, etypeID.AES256_CTS_HMAC_SHA1_96: 32,
		etypeID.AES128_CTS_HMAC_SHA256_128: 16, etypeID.AES256_CTS_HMAC_SHA384_192: 32} {
		key := types.EncryptionKey{KeyType: etype, KeyValue: make([]byte, size)}
		name := types.NewPrincipalName(nametype.KRB_NT_SRV_HST, "zookeeper/localhost")
		_, token, err := begin(ticket{Ticket: messages.Ticket{TktVNO: iana.PVNO, Realm: "ZKLOCK.TEST", SName: name}, client: name, realm: "ZKLOCK.TEST", key: key})
		require.NoError(t, err)
		_, b, _ := bytes.Cut(token, []byte{1, 2, 2, 1, 0}) // the end of the mechanism's OID, and AP-REQ
		var request messages.APReq
		require.NoError(t, request.Unmarshal(b))
		require.NoError(t, request.DecryptAuthenticator(key))
		require.Len(t, request.Authenticator.SubKey.KeyValue, size)
	}
}

// write creates a file for the test.
func write(t *testing.T, content string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	return file
}

// aKeytab returns a keytab with a key of ann for AES, and one of bob for RC4.
func aKeytab(t *testing.T) []byte {
	t.Helper()
	tab := keytab.New()
	require.NoError(t, tab.AddEntry("ann", "ZKLOCK.TEST", "geheim", time.Now(), 1, etypeID.AES256_CTS_HMAC_SHA1_96))
	require.NoError(t, tab.AddEntry("bob", "ZKLOCK.TEST", "geheim", time.Now(), 1, etypeID.RC4_HMAC))
	b, err := tab.Marshal()
	require.NoError(t, err)
	return b
}

// Invalid input is rejected at once, with the remedy.
func TestFiles_BadInput(t *testing.T) {
	t.Setenv("KRB5CCNAME", "KEYRING:persistent:0")
	t.Setenv("KRB5_CONFIG", "")
	tab, krb5 := write(t, string(aKeytab(t))), WithConfig(write(t, conf))
	_, err := Keytab("ann", tab, krb5)
	require.NoError(t, err)
	_, err = Keytab("ann@ZKLOCK.TEST", "FILE:"+tab, krb5)
	require.NoError(t, err)
	for says, try := range map[string]func() (sasl.Mechanism, error){
		"has no key of bob@ZKLOCK.TEST for AES": func() (sasl.Mechanism, error) { return Keytab("bob", tab, krb5) },
		"has no key of ann@OTHER for AES":       func() (sasl.Mechanism, error) { return Keytab("ann@OTHER", tab, krb5) },
		`the principal "": give one such as`:    func() (sasl.Mechanism, error) { return Keytab("", tab, krb5) },
		"Keytab: open /none":                    func() (sasl.Mechanism, error) { return Keytab("ann", "/none", krb5) },
		"is no keytab":                          func() (sasl.Mechanism, error) { return Keytab("ann", write(t, "ab"), krb5) },
		"open /no.conf":                         func() (sasl.Mechanism, error) { return Keytab("ann", tab, WithConfig("/no.conf")) },
		"cannot be understood": func() (sasl.Mechanism, error) {
			return Keytab("ann", tab, WithConfig(write(t, "[libdefaults]\nx")))
		},
		"malformed": func() (sasl.Mechanism, error) {
			return Keytab("ann", tab, WithConfig(write(t, "[realms]\nA = {\nb = {\n}\n}\n")))
		},
		"the settings of names: rdns = \"perhaps\": give true or false": func() (sasl.Mechanism, error) {
			return Keytab("ann", tab, WithConfig(write(t, "[libdefaults]\nrdns = perhaps\n")))
		},
		"has no AES": func() (sasl.Mechanism, error) {
			return Keytab("ann", tab, WithConfig(write(t, "[libdefaults]\ndefault_tkt_enctypes = rc4-hmac")))
		},
		`"zookeeper" has not the form`: func() (sasl.Mechanism, error) {
			return Keytab("ann", tab, krb5, WithServerPrincipal("zookeeper"))
		},
		"KEYRING:persistent:0 is no file: give":   func() (sasl.Mechanism, error) { return TicketCache("", krb5) },
		"TicketCache: the ticket cache: open /no": func() (sasl.Mechanism, error) { return TicketCache("/no", krb5) },
		"is no ticket cache":                      func() (sasl.Mechanism, error) { return TicketCache(write(t, ""), krb5) },
		"/etc/krb5.conf":                          func() (sasl.Mechanism, error) { return Keytab("ann", tab, WithConfig("/etc/krb5.conf.none")) },
	} {
		_, err := try()
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, "zklockkrb5: ")
	}
}

// Every file that MIT's library reads is read, with its defaults. gokrb5's parser does not support
// blocks within a realm's.
func TestFiles_Config(t *testing.T) {
	c, n, err := readConfig(write(t, "[libdefaults]\ndefault_realm = A\nrdns = false\n[realms]\nA = {\nauth_to_local_names = {\nann = bob\n}\nkdc = [::1]\nkdc = [::1]:89\nkdc = ::1\nkdc = kdc\n}\n"))
	require.NoError(t, err)
	kdcs, err := kdcsOf(t.Context(), c, "A")
	require.NoError(t, err)
	require.Equal(t, []string{"[::1]:88", "[::1]:89", "[::1]:88", "kdc:88"}, kdcs)
	require.True(t, c.LibDefaults.DNSLookupKDC)
	require.Equal(t, naming{noReverse: true}, n)
	c, _, err = readConfig(write(t, "[libdefaults]\ndns_lookup_kdc = no\n"))
	require.NoError(t, err)
	_, err = kdcsOf(t.Context(), c, "A")
	require.ErrorContains(t, err, "krb5.conf has no KDC of A")
}

// A file that is truncated anywhere causes an error, which contains no key.
func TestFiles_CutOff_NoSecretInErrors(t *testing.T) {
	whole := aKeytab(t)
	krb5 := WithConfig(write(t, conf))
	dir := t.TempDir()
	file := filepath.Join(dir, "cut")
	failed := 0
	for i := range whole {
		require.NoError(t, os.WriteFile(file, whole[:i], 0o600))
		if _, err := Keytab("ann", file, krb5); err != nil {
			failed++
			require.Less(t, len(err.Error()), 150+len(file))
			require.NotContains(t, err.Error(), "ZKLOCK.TEST\x00")
		}
	}
	require.Greater(t, failed, 50)
	require.NoError(t, os.WriteFile(file, whole, 0o600))
	m, err := Keytab("ann", file, krb5)
	require.NoError(t, err)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x"} {
		require.Less(t, len(strings.TrimSpace(fmt.Sprintf(verb, m))), 80)
	}
}

// answering is a KDC with a fixed reply.
func answering(t *testing.T, answer []byte) Option {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 4096))
			_, _ = c.Write(answer)
			_ = c.Close()
		}
	}()
	return WithConfig(write(t, strings.Replace(conf, "127.0.0.1:1", l.Addr().String(), 1)))
}

// A malformed reply of a KDC is no rejection. A reply with too few encrypted bytes would make
// gokrb5 panic.
func TestAuthenticate_KDCTalksNonsense(t *testing.T) {
	name := types.NewPrincipalName(nametype.KRB_NT_PRINCIPAL, "ann")
	short := types.EncryptedData{EType: etypeID.AES256_CTS_HMAC_SHA1_96, Cipher: []byte{1, 2, 3}}
	forged := messages.ASRep{KDCRepFields: messages.KDCRepFields{
		PVNO: iana.PVNO, MsgType: msgtype.KRB_AS_REP, CRealm: "ZKLOCK.TEST", CName: name, EncPart: short,
		Ticket: messages.Ticket{TktVNO: iana.PVNO, Realm: "ZKLOCK.TEST", SName: name, EncPart: short},
	}}
	b, err := forged.Marshal()
	require.NoError(t, err)
	long := messages.NewKRBError(name, "ZKLOCK.TEST", 60, "\x1b[2J"+strings.Repeat("x", 1e5))
	said, err := long.Marshal()
	require.NoError(t, err)
	tab := write(t, string(aKeytab(t)))
	for says, answer := range map[string]string{
		"an answer of 4294967295 bytes": "\xff\xff\xff\xff",
		"unexpected EOF":                "\x00\x00\x00\x04abc",
		"EOF":                           "",
		"the answer to ann@ZKLOCK.TEST": "\x00\x00\x00\x03abc",
		`- "\x1b[2Jxx`:                  string(binary.BigEndian.AppendUint32(nil, uint32(len(said)))) + string(said),
		"is malformed":                  string(binary.BigEndian.AppendUint32(nil, uint32(len(b)))) + string(b),
	} {
		m, err := Keytab("ann", tab, answering(t, []byte(answer)))
		require.NoError(t, err)
		_, _, err = m.Authenticate(t.Context(), "localhost:2181")
		require.ErrorContains(t, err, says)
		require.Less(t, len(err.Error()), 400)
		require.NotErrorIs(t, err, zklock.ErrAuthFailed)
	}
}

// aCache is a ticket cache with one ticket.
func aCache(t testing.TB, version byte, ticketOf, ticketFor string) []byte {
	t.Helper()
	u32 := func(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
	data := func(s string) []byte { return append(u32(uint32(len(s))), s...) }
	name := func(parts ...string) []byte {
		b := slices.Concat(u32(1), u32(uint32(len(parts))), data("ZKLOCK.TEST"))
		for _, part := range parts {
			b = append(b, data(part)...)
		}
		return b
	}
	tgt := messages.Ticket{TktVNO: iana.PVNO, Realm: "ZKLOCK.TEST", SName: types.NewPrincipalName(nametype.KRB_NT_SRV_INST, ticketOf),
		EncPart: types.EncryptedData{EType: etypeID.AES256_CTS_HMAC_SHA1_96, Cipher: []byte("sealed")}}
	sealed, err := tgt.Marshal()
	require.NoError(t, err)
	header, keyType := []byte{0, 0}, []byte{0, 18}
	if version == 3 {
		header, keyType = nil, []byte{0, 18, 0, 18}
	}
	b := slices.Concat([]byte{5, version}, header, name("ann"))
	for _, server := range []string{"other", ticketFor} {
		b = slices.Concat(b, name("ann"), name(strings.Split(server, "/")...), keyType, data(strings.Repeat("k", 32)), u32(1), u32(1), u32(4e9), u32(1),
			[]byte{0}, u32(0), u32(1), []byte{0, 2}, data("addr"), u32(1), []byte{0, 1}, data("authdata"), data(string(sealed)), data("second"))
	}
	return b
}

// A ticket cache is read completely or not at all, and a damaged one exhausts neither the memory
// nor crashes the process.
func TestFiles_Cache(t *testing.T) {
	const tgt = "krbtgt/ZKLOCK.TEST"
	for _, version := range []byte{3, 4} {
		whole := aCache(t, version, tgt, tgt)
		got, err := readCache(write(t, string(whole)))
		require.NoError(t, err)
		require.Equal(t, "ann@ZKLOCK.TEST "+tgt, got.client.PrincipalNameString()+"@"+got.realm+" "+got.SName.PrincipalNameString())
		require.Equal(t, strings.Repeat("k", 32), string(got.key.KeyValue))
		require.Equal(t, int64(4e9), got.end.Unix(), "after 2038")
		file := write(t, "")
		failed := 0
		for i := range whole {
			for _, damaged := range [][]byte{whole[:i], slices.Concat(whole[:i], []byte("\x7f\xff\xff\xff"), whole[min(i+4, len(whole)):])} {
				require.NoError(t, os.WriteFile(file, damaged, 0o600))
				if _, err := readCache(file); err != nil {
					failed++
				}
			}
		}
		require.Greater(t, failed, len(whole))
	}
	_, err := readCache(write(t, string(aCache(t, 4, tgt, "krbtgt/OTHER"))))
	require.ErrorContains(t, err, "has no ticket of "+tgt)
	_, err = readCache(write(t, string(aCache(t, 4, "krbtgt", tgt))))
	require.ErrorContains(t, err, "is no ticket cache")
}

// names is a DNS.
type names map[string][]string

func (n names) LookupHost(_ context.Context, host string) ([]string, error) { return n[host], nil }
func (n names) LookupCNAME(_ context.Context, host string) (string, error) {
	if cname := n["cname of "+host]; len(cname) > 0 {
		return cname[0], nil
	}
	return "", &net.DNSError{IsNotFound: true}
}
func (n names) LookupAddr(_ context.Context, addr string) ([]string, error) {
	if len(n[addr]) == 0 {
		return nil, &net.DNSError{IsNotFound: true}
	}
	return n[addr], nil
}

// A name whose addresses are not one server's, or have odd names, is taken as it is: a server
// rejects a ticket for another one, which ends Connect.
func TestCanonical(t *testing.T) {
	dns := names{
		"alias": {"192.0.2.1"}, "192.0.2.1": {"zk1.test."}, "zk1.test.": {"192.0.2.1"},
		"both": {"2001:db8::1", "192.0.2.1"}, // without a name for IPv6
		"all":  {"192.0.2.1", "192.0.2.2"}, "192.0.2.2": {"zk2.test."}, "zk2.test.": {"192.0.2.2"},
		"liar": {"192.0.2.3"}, "192.0.2.3": {"zk1.test."},
		"nameless": {"192.0.2.4"},
	}
	for host, want := range map[string]string{
		"alias": "zk1.test.", "192.0.2.2": "192.0.2.2", "both": "zk1.test.", "all": "all", "liar": "liar", "nameless": "nameless", "unknown": "unknown",
	} {
		require.Equal(t, want, naming{}.canonical(t.Context(), dns, host))
	}
}

// The settings rdns and dns_canonicalize_hostname of krb5.conf count, with MIT's defaults, and the
// option overrides them.
func TestServers_KrbConf(t *testing.T) {
	dns := names{
		"alias": {"192.0.2.1"}, "192.0.2.1": {"reverse.test."}, "reverse.test.": {"192.0.2.1"},
		"cname of alias": {"forward.test."}, "cname of 192.0.2.1": {"odd.test."},
	}
	const reverse, forward, given = "zookeeper/reverse.test", "zookeeper/forward.test", "zookeeper/alias"
	for settings, want := range map[string][]string{
		"": {reverse, given},
		"rdns = true\ndns_canonicalize_hostname = true": {reverse, given},
		"rdns = false":                                          {forward, given},
		"rdns=No\n":                                             {forward, given},
		"\trdns = off # a comment":                              {forward, given},
		"dns_canonicalize_hostname = false":                     {given},
		"dns_canonicalize_hostname = 0\nrdns = true":            {given},
		"dns_canonicalize_hostname = fallback":                  {given, reverse},
		"dns_canonicalize_hostname = Fallback\nrdns = false":    {given, forward},
		"#rdns = false\n; dns_canonicalize_hostname = false":    {reverse, given},
		"rdns = true\nrdns = false":                             {reverse, given},
		"A = {\nrdns = false\n}":                                {reverse, given},
		"[realms]\nrdns = false\n[libdefaults]":                 {reverse, given},
		"[realms]\nA = {\n}\n[libdefaults]\nrdns = false":       {forward, given},
		"dns_canonicalize_hostname = false\n[appdefaults]\nx=y": {given},
	} {
		n, err := namingOf("[libdefaults]\n" + settings + "\n")
		require.NoError(t, err, settings)
		require.Equal(t, want, slices.Collect(n.principals(t.Context(), dns, "zookeeper/_HOST", "alias:2181")), settings)
		asGiven := naming{asGiven: true, noReverse: n.noReverse}
		require.Equal(t, []string{given}, slices.Collect(asGiven.principals(t.Context(), dns, "zookeeper/_HOST", "alias")), settings)
	}
	// A host without a name in DNS is used as given, and so is an address.
	n := naming{noReverse: true}
	for _, host := range []string{"unknown", "192.0.2.1"} {
		require.Equal(t, []string{"zookeeper/" + host}, slices.Collect(n.principals(t.Context(), dns, "zookeeper/_HOST", host+":2181")))
	}
	_, err := namingOf("[libdefaults]\ndns_canonicalize_hostname = maybe\n")
	require.EqualError(t, err, `dns_canonicalize_hostname = "maybe": give true, false or fallback`)
}

// With fallback, DNS is asked only if the KDC does not know the host as given.
func TestServers_Fallback_AsksNoDNSFirst(t *testing.T) {
	n, err := namingOf("[libdefaults]\ndns_canonicalize_hostname = fallback\n")
	require.NoError(t, err)
	for name := range n.principals(t.Context(), nil, "zookeeper/_HOST", "alias:2181") {
		require.Equal(t, "zookeeper/alias", name)
		break
	}
}
