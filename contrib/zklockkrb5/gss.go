package zklockkrb5

// What is said to a server: RFC 4752 over RFC 4121.
//
//	client                                              server
//	  ├── AP-REQ: ticket, authenticator with a subkey ───▶│ opens the ticket with its key, and so has the subkey
//	  │◀──────── the layers that it has, signed with that ┤
//	  ├── no layer, signed with that ────────────────────▶│
//	  │◀──────────────────────────────────────── (empty) ─┤
//
// No AP-REP is asked for, as of Java's clients: it would be a round trip more, and show nothing more. The subkey is new, and the server
// cannot sign with it unless it has the key of its principal.

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/jcmturner/gofork/encoding/asn1"
	"github.com/jcmturner/gokrb5/v8/asn1tools"
	"github.com/jcmturner/gokrb5/v8/crypto"
	"github.com/jcmturner/gokrb5/v8/gssapi"
	"github.com/jcmturner/gokrb5/v8/iana/chksumtype"
	"github.com/jcmturner/gokrb5/v8/iana/keyusage"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"

	"github.com/zklock/zklock"
)

// exchange is one with one server. It has functions so that no printer finds a key in it.
type exchange struct {
	challenge func(challenge []byte) (done bool, next []byte, err error)
	rejected  func() (wasKept bool)
}

// Challenge implements sasl.Exchange.
func (x exchange) Challenge(challenge []byte) (bool, []byte, error) { return x.challenge(challenge) }

// Rejected discards the ticket, because the server rejects it: its key may be another now. It
// reports whether the ticket was kept from an earlier connection.
func (x exchange) Rejected() bool { return x.rejected() }

// begin shows a ticket. The first token is the AP-REQ.
func begin(t ticket) (challenge func([]byte) (bool, []byte, error), first []byte, err error) {
	auth, err := types.NewAuthenticator(t.realm, t.client)
	if err != nil {
		return nil, nil, err
	}
	if err := auth.GenerateSeqNumberAndSubKey(t.key.KeyType, len(t.key.KeyValue)); err != nil { // gokrb5 has another length for AES with SHA-384
		return nil, nil, err
	}
	sum := make([]byte, 24) // the length of channel bindings, no bindings, flags: RFC 4121, section 4.1.1
	binary.LittleEndian.PutUint32(sum, 16)
	binary.LittleEndian.PutUint32(sum[20:], gssapi.ContextFlagInteg)
	auth.Cksum = types.Checksum{CksumType: chksumtype.GSSAPI, Checksum: sum}
	request, err := messages.NewAPReq(t.Ticket, t.key, auth)
	if err != nil {
		return nil, nil, err
	}
	b, err := request.Marshal()
	if err != nil {
		return nil, nil, err
	}
	oid, err := asn1.Marshal(gssapi.OIDKRB5.OID())
	if err != nil {
		return nil, nil, err
	}
	token := asn1tools.AddASNAppTag(append(append(oid, 1, 0), b...), 0)
	return func(challenge []byte) (bool, []byte, error) {
		if err := readLayers(challenge, auth.SubKey); err != nil {
			return false, nil, err
		}
		last, err := signed([]byte{noLayer, 0, 0, 0}, auth.SubKey, uint64(auth.SeqNumber))
		return true, last, err
	}, token, nil
}

// noLayer is "no security layer"; the three bytes after it are the size of what we could unwrap, and no name after them says that we want to be
// the client of the ticket.
const noLayer = 1

// readLayers looks whether the server has proved who it is, and takes connections without a security layer.
func readLayers(challenge []byte, key types.EncryptionKey) error {
	var offer gssapi.WrapToken
	switch err := offer.Unmarshal(challenge, true); {
	case len(challenge) == 0:
		return errors.New("the server has no answer to a ticket: is Kerberos configured there?")
	case err != nil:
		return fmt.Errorf("the server has no Kerberos: it answered a ticket with %d bytes that are no token of GSSAPI", len(challenge))
	}
	if ok, err := offer.Verify(key, keyusage.GSSAPI_ACCEPTOR_SEAL); !ok || err != nil { // err has what is in the token
		return fmt.Errorf("%w: %w", zklock.ErrAuthFailed, errNoServerKey)
	}
	if len(offer.Payload) != 4 || offer.Payload[0]&noLayer == 0 {
		return fmt.Errorf("the server wants a security layer (%.8x), which ZooKeeper's protocol has not", offer.Payload)
	}
	return nil
}

// signed wraps a payload without encryption.
func signed(payload []byte, key types.EncryptionKey, seq uint64) ([]byte, error) {
	e, err := crypto.GetEtype(key.KeyType)
	if err != nil {
		return nil, err
	}
	token := gssapi.WrapToken{EC: uint16(e.GetHMACBitLength() / 8), SndSeqNum: seq, Payload: payload}
	if err := token.SetCheckSum(key, keyusage.GSSAPI_INITIATOR_SEAL); err != nil {
		return nil, err
	}
	return token.Marshal()
}
