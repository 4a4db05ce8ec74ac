package zklockkrb5

// Requests to KDCs, over TCP. gokrb5's own client takes no context. It waits 5 s for each KDC that
// does not respond, in a random order at each request, so with one such KDC of two most dials of 3
// s fail, and its goroutine outlives them. It returns the first rejection without asking another
// KDC. It allocates as much memory as a reply claims to need, and fails if the server's realm is
// reached through another one.

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/iana/errorcode"
	"github.com/jcmturner/gokrb5/v8/messages"
)

// exchange asks the KDCs of a realm in turn, starting with the KDC that answered last. An error
// that is a messages.KRBError is the reply of a KDC. A KDC that rejects us may have a copy of the
// database that is older than our key, so exchange asks the other KDCs as well: a rejection ends
// Connect.
func (l *login) exchange(ctx context.Context, conf *config.Config, realm string, request []byte) ([]byte, error) {
	kdcs, err := kdcsOf(ctx, conf, realm)
	if err != nil {
		return nil, err
	}
	if i := slices.Index(kdcs, l.answered[realm]); i > 0 {
		kdcs = slices.Concat(kdcs[i:i+1], kdcs[:i], kdcs[i+1:])
	}
	var failed, refused error
	for i, kdc := range kdcs {
		answer, err := askOne(ctx, kdc, len(kdcs)-i, request)
		no, ok := refusal(err)
		switch {
		case ok && slices.Contains(refusesUs, no.ErrorCode):
			refused = err
			continue
		case err == nil || ok && no.ErrorCode != errorcode.KDC_ERR_SVC_UNAVAILABLE:
			l.answered[realm] = kdc
			return answer, err
		}
		err = fmt.Errorf("KDC %s: %w", kdc, err)
		if failed != nil {
			err = fmt.Errorf("%w; %w", failed, err)
		}
		failed = err
	}
	if refused != nil {
		return nil, refused
	}
	return nil, failed
}

// kdcsOf returns the addresses of a realm's KDCs, at least one.
func kdcsOf(ctx context.Context, conf *config.Config, realm string) (kdcs []string, err error) {
	for _, r := range conf.Realms {
		if r.Realm == realm {
			for _, kdc := range r.KDC {
				if _, _, err := net.SplitHostPort(kdc); err != nil { // an IPv6 address without a port
					kdc = net.JoinHostPort(strings.Trim(kdc, "[]"), "88")
				}
				kdcs = append(kdcs, kdc)
			}
		}
	}
	if len(kdcs) == 0 && conf.LibDefaults.DNSLookupKDC {
		_, found, err := net.DefaultResolver.LookupSRV(ctx, "kerberos", "tcp", realm)
		if err != nil {
			return nil, fmt.Errorf("the KDCs of %s: %w", realm, err)
		}
		for _, srv := range found {
			kdcs = append(kdcs, net.JoinHostPort(strings.TrimSuffix(srv.Target, "."), strconv.Itoa(int(srv.Port))))
		}
	}
	if len(kdcs) == 0 {
		return nil, fmt.Errorf("krb5.conf has no KDC of %s", realm)
	}
	return kdcs, nil
}

// maxAnswer limits the size of a KDC's reply.
const maxAnswer = 1 << 20

// askOne asks one KDC. It uses an equal share of the remaining time if left KDCs are still to be
// asked.
func askOne(ctx context.Context, kdc string, left int, request []byte) ([]byte, error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(left))
		defer cancel()
	}
	answer, err := talk(ctx, kdc, request)
	if ended := context.Cause(ctx); err != nil && ended != nil {
		return nil, fmt.Errorf("no answer: %w", ended)
	}
	if err != nil {
		return nil, err
	}
	var no messages.KRBError
	if no.Unmarshal(answer) == nil {
		if no.EText != "" { // for a log or a terminal
			no.EText = fmt.Sprintf("%.100q", no.EText)
		}
		return nil, no
	}
	return answer, nil
}

// talk sends a message and reads one, each preceded by its length.
func talk(ctx context.Context, kdc string, request []byte) ([]byte, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", kdc)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(request))), request...)); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxAnswer {
		return nil, fmt.Errorf("an answer of %d bytes", n)
	}
	answer := make([]byte, n)
	_, err = io.ReadFull(conn, answer)
	return answer, err
}
