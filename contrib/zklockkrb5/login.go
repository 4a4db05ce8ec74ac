package zklockkrb5

// Tickets: keeping them, and requesting them from KDCs.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/credentials"
	"github.com/jcmturner/gokrb5/v8/crypto"
	"github.com/jcmturner/gokrb5/v8/iana/errorcode"
	"github.com/jcmturner/gokrb5/v8/iana/flags"
	"github.com/jcmturner/gokrb5/v8/iana/keyusage"
	"github.com/jcmturner/gokrb5/v8/iana/nametype"
	"github.com/jcmturner/gokrb5/v8/iana/patype"
	"github.com/jcmturner/gokrb5/v8/krberror"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"

	"github.com/zklock/zklock"
)

type login struct {
	config  string // the file
	server  string // principal
	asGiven bool   // no canonical names

	// obtain gets a ticket-granting ticket. rereads means that obtain costs nothing and is called
	// each time.
	obtain  func(context.Context, *config.Config) (ticket, error)
	rereads bool

	// asking is held by the connection that asks a KDC, and guards the two fields below. One
	// connection at a time asks, even if there are many or a KDC does not respond.
	asking   chan struct{}
	tgt      ticket
	answered map[string]string // by realm, the KDC that answered last

	mu struct {
		sync.Mutex
		tickets map[string]ticket // by the server's address
	}
}

// ticket is a ticket with its key, so that we can use it.
type ticket struct {
	messages.Ticket
	client types.PrincipalName
	realm  string // the client's
	key    types.EncryptionKey
	end    time.Time
}

// isValid reports whether there is enough time left to use it.
func (t ticket) isValid() bool { return time.Until(t.end) > time.Second }

func (l *login) kept(addr string) (t ticket, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t = l.mu.tickets[addr]
	return t, t.isValid()
}

// discard removes a ticket that the server at an address has rejected, unless it has been replaced.
func (l *login) discard(addr string, t ticket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if bytes.Equal(l.mu.tickets[addr].EncPart.Cipher, t.EncPart.Cipher) {
		delete(l.mu.tickets, addr)
	}
}

// ticketFor returns a ticket for the server at an address, and reports whether it was kept from an
// earlier connection.
func (l *login) ticketFor(ctx context.Context, addr string) (t ticket, wasKept bool, err error) {
	if t, ok := l.kept(addr); ok {
		return t, true, nil
	}
	select {
	case l.asking <- struct{}{}:
		defer func() { <-l.asking }()
	case <-ctx.Done():
		return ticket{}, false, fmt.Errorf("no KDC has answered another connection yet: %w", context.Cause(ctx))
	}
	if t, ok := l.kept(addr); ok { // the connection before this one was to the same server
		return t, true, nil
	}
	t, err = l.ask(ctx, addr)
	if no, ok := refusal(err); ok && slices.Contains(refusesUs, no.ErrorCode) {
		err = fmt.Errorf("%w: the KDC rejects %w", zklock.ErrAuthFailed, err)
	}
	if err != nil {
		return ticket{}, false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.tickets[addr] = t
	return t, false, nil
}

// ask gets a ticket for a server. If a KDC no longer accepts a kept ticket-granting ticket, ask
// gets a new one first.
func (l *login) ask(ctx context.Context, addr string) (ticket, error) {
	conf, naming, err := readConfig(l.config)
	if err != nil {
		return ticket{}, err
	}
	names, realm := l.servers(ctx, naming, addr)
	wasKept := l.tgt.isValid() && !l.rereads
	for {
		if !wasKept {
			if l.tgt, err = l.obtain(ctx, conf); err != nil {
				return ticket{}, err
			}
		}
		t, err := l.service(ctx, conf, names, realm)
		if _, refused := refusal(err); err == nil || !wasKept || !refused || isUnknown(err) {
			return t, err
		}
		wasKept = false
	}
}

// service requests a ticket for the first of the names that the KDC has.
func (l *login) service(ctx context.Context, conf *config.Config, names iter.Seq[string], realm string) (t ticket, err error) {
	var tried []string
	for name := range names {
		tried = append(tried, name)
		server := types.NewPrincipalName(nametype.KRB_NT_SRV_HST, name)
		at := realm
		if at == "" {
			at = conf.ResolveRealm(server.NameString[len(server.NameString)-1])
		}
		if t, err = l.follow(ctx, conf, server, at); err == nil || !isUnknown(err) {
			break
		}
	}
	if err != nil {
		err = fmt.Errorf("a ticket for %s: %w", strings.Join(tried, ", "), err)
	}
	return t, err
}

// maxRealms limits the number of realms on the way to the server's realm.
const maxRealms = 5

// follow gets a ticket for a server of a realm, or of the client's realm for "", through the realms
// to which KDCs refer.
func (l *login) follow(ctx context.Context, conf *config.Config, server types.PrincipalName, realm string) (ticket, error) {
	t := l.tgt
	for range maxRealms {
		at := t.SName.NameString[1] // of krbtgt/REALM
		want := server
		if realm != "" && realm != at {
			want = types.PrincipalName{NameType: nametype.KRB_NT_SRV_INST, NameString: []string{"krbtgt", realm}}
		}
		got, err := l.grant(ctx, conf, t, at, want)
		if err != nil {
			return ticket{}, err
		}
		switch isTGT := len(got.SName.NameString) == 2 && got.SName.NameString[0] == "krbtgt"; {
		case want.Equal(server) && !isTGT: // the server may have another name, with ours as an alias
			return got, nil
		case !isTGT:
			return ticket{}, fmt.Errorf("the KDC of %s answered with a ticket for %.64q", at, got.SName.PrincipalNameString())
		case want.Equal(server):
			realm = "" // the KDC's referral decides
		}
		t = got
	}
	return ticket{}, fmt.Errorf("the KDCs point to more than %d realms", maxRealms)
}

// grant requests a ticket from a realm's KDC with a ticket-granting ticket.
func (l *login) grant(ctx context.Context, conf *config.Config, tgt ticket, realm string, server types.PrincipalName) (ticket, error) {
	request, err := tgt.requestFor(conf, realm, server)
	if err != nil {
		return ticket{}, err
	}
	var reply messages.TGSRep
	b, err := request.Marshal()
	if err != nil {
		return ticket{}, err
	}
	answer, err := l.exchange(ctx, conf, realm, b)
	if err != nil {
		return ticket{}, err
	}
	err = parsed(func() error {
		err := reply.Unmarshal(answer)
		if err == nil {
			err = reply.DecryptEncPart(tgt.key)
		}
		if err == nil {
			_, err = reply.Verify(conf, request)
		}
		return err
	})
	if err == nil && !isNamed(reply.Ticket, reply.DecryptedEncPart.SName) {
		err = errMalformed
	}
	if err != nil {
		return ticket{}, fmt.Errorf("the answer of a KDC of %s: %w", realm, err)
	}
	return ticket{reply.Ticket, tgt.client, tgt.realm, reply.DecryptedEncPart.Key, reply.DecryptedEncPart.EndTime}, nil
}

// requestFor is gokrb5's request for a ticket, with another authenticator. gokrb5 assumes that the
// client is of the realm that issued the ticket-granting ticket. On the way through a third realm
// it is not.
func (t ticket) requestFor(conf *config.Config, realm string, server types.PrincipalName) (messages.TGSReq, error) {
	request, err := messages.NewTGSReq(t.client, realm, conf, t.Ticket, t.key, server, false)
	if err != nil || t.Ticket.Realm == t.realm {
		return request, err
	}
	body, err := request.ReqBody.Marshal()
	if err != nil {
		return request, err
	}
	e, err := crypto.GetEtype(t.key.KeyType)
	if err != nil {
		return request, err
	}
	auth, err := types.NewAuthenticator(t.realm, t.client)
	if err != nil {
		return request, err
	}
	auth.Cksum.CksumType = e.GetHashID()
	if auth.Cksum.Checksum, err = e.GetChecksumHash(t.key.KeyValue, body, keyusage.TGS_REQ_PA_TGS_REQ_AP_REQ_AUTHENTICATOR_CHKSUM); err != nil {
		return request, err
	}
	shown, err := messages.NewAPReq(t.Ticket, t.key, auth)
	if err != nil {
		return request, err
	}
	request.PAData[0].PADataValue, err = shown.Marshal()
	return request, err
}

// isNamed reports whether a ticket has the name that its KDC signed. The ticket itself is not
// signed for us.
func isNamed(t messages.Ticket, name types.PrincipalName) bool {
	return len(name.NameString) > 0 && t.SName.Equal(name)
}

// logIn gets a ticket-granting ticket with a key.
func (l *login) logIn(ctx context.Context, conf *config.Config, k keys) (ticket, error) {
	request, err := messages.NewASReqForTGT(k.realm, conf, k.principal)
	if err != nil {
		return ticket{}, err
	}
	request.ReqBody.EType = k.etypes
	types.UnsetFlag(&request.ReqBody.KDCOptions, flags.Canonicalize) // use our name unchanged
	answer, err := l.authenticateAt(ctx, conf, request)
	if no, ok := refusal(err); ok && no.ErrorCode == errorcode.KDC_ERR_PREAUTH_REQUIRED {
		var proof types.PAData
		if proof, err = k.proof(no); err != nil {
			return ticket{}, err
		}
		request.PAData = types.PADataSequence{proof}
		answer, err = l.authenticateAt(ctx, conf, request)
	}
	who := k.principal.PrincipalNameString() + "@" + k.realm
	if err != nil {
		return ticket{}, fmt.Errorf("%s: %w", who, err)
	}
	var reply messages.ASRep
	creds := credentials.NewFromPrincipalName(k.principal, k.realm).WithKeytab(k.tab)
	err = parsed(func() error {
		err := reply.Unmarshal(answer)
		if err == nil {
			_, err = reply.Verify(conf, creds, request)
		}
		return err
	})
	if err == nil && !isNamed(reply.Ticket, request.ReqBody.SName) {
		err = errMalformed
	}
	var wrong krberror.Krberror
	switch {
	case errors.As(err, &wrong) && wrong.RootCause == krberror.DecryptingError:
		return ticket{}, fmt.Errorf("%w: the keytab has another key of %s than the KDC", zklock.ErrAuthFailed, who)
	case err != nil:
		return ticket{}, fmt.Errorf("the answer to %s of a KDC: %w", who, err)
	}
	return ticket{reply.Ticket, k.principal, k.realm, reply.DecryptedEncPart.Key, reply.DecryptedEncPart.EndTime}, nil
}

func (l *login) authenticateAt(ctx context.Context, conf *config.Config, request messages.ASReq) ([]byte, error) {
	b, err := request.Marshal()
	if err != nil {
		return nil, err
	}
	return l.exchange(ctx, conf, request.ReqBody.Realm, b)
}

// proof is the time, encrypted with a key of the type that the KDC has asked for.
func (k keys) proof(asked messages.KRBError) (types.PAData, error) {
	etype := k.etypes[0]
	var hints types.PADataSequence
	_ = hints.Unmarshal(asked.EData) // without hints, our own preference applies
	for _, hint := range hints {
		if info, err := hint.GetETypeInfo2(); hint.PADataType == patype.PA_ETYPE_INFO2 && err == nil && len(info) > 0 {
			etype = info[0].EType
		}
	}
	key, kvno, err := k.tab.GetEncryptionKey(k.principal, k.realm, 0, etype)
	if err != nil {
		return types.PAData{}, err
	}
	now, err := types.GetPAEncTSEncAsnMarshalled()
	if err != nil {
		return types.PAData{}, err
	}
	sealed, err := crypto.GetEncryptedData(now, key, keyusage.AS_REQ_PA_ENC_TIMESTAMP, kvno)
	if err != nil {
		return types.PAData{}, err
	}
	b, err := sealed.Marshal()
	return types.PAData{PADataType: patype.PA_ENC_TIMESTAMP, PADataValue: b}, err
}

// refusesUs are the codes by which a KDC rejects our identity. All other errors may be temporary: a
// wrong clock, a busy KDC.
var refusesUs = []int32{
	errorcode.KDC_ERR_NAME_EXP, errorcode.KDC_ERR_C_PRINCIPAL_UNKNOWN, errorcode.KDC_ERR_CLIENT_REVOKED,
	errorcode.KDC_ERR_KEY_EXPIRED, errorcode.KDC_ERR_PREAUTH_FAILED,
}

// refusal returns the error reply of a KDC, if err is one.
func refusal(err error) (no messages.KRBError, ok bool) {
	ok = errors.As(err, &no)
	return no, ok
}

// isUnknown reports whether a KDC does not have the server. That does not reject our identity: it
// may have another server.
func isUnknown(err error) bool {
	no, ok := refusal(err)
	return ok && no.ErrorCode == errorcode.KDC_ERR_S_PRINCIPAL_UNKNOWN
}
