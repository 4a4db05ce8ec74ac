package zklockkrb5

// The exchange with a server: RFC 4752 over RFC 4121.
//
//	client                                              server
//	  ├── AP-REQ: ticket, authenticator with a subkey ───▶│ opens the ticket with its key, and so has the subkey
//	  │◀──── the layers that it offers, signed with subkey┤
//	  ├── no layer, signed with the subkey ──────────────▶│
//	  │◀──────────────────────────────────────── (empty) ─┤
//
// Like Java's clients, it does not request an AP-REP, which would cost a round trip and prove
// nothing more: the subkey is new, and the server cannot sign with it without the key of its
// principal.

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

// exchange is the exchange with one server. Its fields are functions, so that no printer finds a
// key in it.
type exchange struct {
	challenge func(challenge []byte) (done bool, next []byte, err error)
	rejected  func() (wasKept bool)
}

// Challenge implements sasl.Exchange.
func (x exchange) Challenge(challenge []byte) (bool, []byte, error) { return x.challenge(challenge) }

// Rejected discards the ticket, because the server has rejected it: its key may have changed. It
// reports whether the ticket was kept from an earlier connection.
func (x exchange) Rejected() bool { return x.rejected() }

// begin starts an exchange with a ticket. The first token is the AP-REQ.
func begin(t ticket) (challenge func([]byte) (bool, []byte, error), first []byte, err error) {
	auth, err := types.NewAuthenticator(t.realm, t.client)
	if err != nil {
		return nil, nil, err
	}
	if err := auth.GenerateSeqNumberAndSubKey(t.key.KeyType, len(t.key.KeyValue)); err != nil { // gokrb5 uses another length for AES with SHA-384
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

// noLayer is "no security layer". The three bytes after it are the size that we could unwrap. No
// name follows them, so we act as the client of the ticket.
const noLayer = 1

// readLayers checks that the server has proved its identity, and that it accepts connections
// without a security layer.
func readLayers(challenge []byte, key types.EncryptionKey) error {
	var offer gssapi.WrapToken
	switch err := offer.Unmarshal(challenge, true); {
	case len(challenge) == 0:
		return errors.New("the server has no answer to a ticket: is Kerberos configured there?")
	case err != nil:
		return fmt.Errorf("the server has no Kerberos: it answered a ticket with %d bytes that are no token of GSSAPI", len(challenge))
	}
	if ok, err := offer.Verify(key, keyusage.GSSAPI_ACCEPTOR_SEAL); !ok || err != nil { // err contains the token
		return fmt.Errorf("%w: %w", zklock.ErrAuthFailed, errNoServerKey)
	}
	if len(offer.Payload) != 4 || offer.Payload[0]&noLayer == 0 {
		return fmt.Errorf("the server wants a security layer (%.8x), which ZooKeeper's protocol has not", offer.Payload)
	}
	return nil
}

// signed wraps a payload without encrypting it.
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
