package sasl

// These tests attack the size of a server's tokens: it is checked before a token is parsed, parsing
// takes linear time, and errors quote a part only.

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// R107: the parser does not copy the rest of the token for each directive.
func TestParse_ManyDirectives_IsLinear(t *testing.T) {
	for _, directive := range []string{"a=b,", `a="b",`, "a=b ,", `a="\b",`} {
		token := []byte(strings.Repeat(directive, 128<<10/len(directive)))
		var d directives
		var err error
		cost := allocated(func() { d, err = parse(token) })
		require.NoError(t, err)
		require.Len(t, d["a"], len(token)/len(directive))
		require.Less(t, cost, uint64(64*len(token)), "%q", directive)
	}
}

// R107: tokens that are longer than RFC 2831 allows are rejected before they are parsed. A
// challenge that is too long is no rejection of our credentials. A proof that is too long proves
// nothing.
func TestDigest_LongToken_IsRejected(t *testing.T) {
	challenge := rfcChallenge + strings.Repeat(" ", 3000)
	_, err := rfcProof().respond([]byte(challenge[:2048]))
	require.NoError(t, err)
	_, err = rfcProof().respond([]byte(challenge[:2048+1]))
	require.EqualError(t, err, "the server's challenge has 2049 bytes, and DIGEST-MD5 has no more than 2048")
	require.NotErrorIs(t, err, ErrFailed)

	p := rfcProof()
	_, err = p.respond([]byte(rfcChallenge))
	require.NoError(t, err)
	proof := rfcAuth + strings.Repeat(" ", 5000)
	require.NoError(t, p.verify([]byte(proof[:4096])))
	require.ErrorIs(t, p.verify([]byte(proof[:4096+1])), ErrFailed)
}

// R107: the error of each attempt is logged, so it quotes a part of a long value only.
func TestDigest_LongValue_IsQuotedInPart(t *testing.T) {
	long := strings.Repeat("x", 1500)
	for _, challenge := range []string{`nonce="a",algorithm=` + long, `nonce="a",algorithm=md5-sess,qop="` + long + `"`} {
		_, err := rfcProof().respond([]byte(challenge))
		require.ErrorContains(t, err, strings.Repeat("x", 64))
		require.Less(t, len(err.Error()), 200)
	}
}
