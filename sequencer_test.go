package zklock

// These tests attack a sequencer's text and what is concluded from the answers to its check.

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/wire"
)

const anID = "0b1c2d3e-4f50-4162-8374-95a6b7c8d9e0"

// aSequencer returns one of each kind.
func aSequencer(mode string) Sequencer {
	q := Sequencer{Path: "/locks/orders", Root: 26, Shared: mode != modeExclusive, Token: 43}
	switch mode {
	case modePermits:
		q.Permits, q.Node = 3, q.Path+"/leases/_c_"+anID+"-lease-0000000009"
	case modeShared:
		q.Node = q.Path + "/_c_" + anID + "-__READ__0000000007"
	default:
		q.Node = q.Path + "/_c_" + anID + "-lock-0000000007"
	}
	return q
}

// The text and what it is taken for: the form is part of the contract, because it travels between versions.
func TestSequencer_Text(t *testing.T) {
	for mode, want := range map[string]string{
		modeExclusive: "zklock:/locks/orders?root=26&mode=exclusive&token=43&node=_c_" + anID + "-lock-0000000007",
		modeShared:    "zklock:/locks/orders?root=26&mode=shared&token=43&node=_c_" + anID + "-__READ__0000000007",
		modePermits:   "zklock:/locks/orders?root=26&mode=permits&permits=3&token=43&node=_c_" + anID + "-lease-0000000009",
	} {
		require.Equal(t, want, aSequencer(mode).String())
		got, err := ParseSequencer(want)
		require.NoError(t, err)
		require.Equal(t, aSequencer(mode), got)
	}
}

// Whatever path a lock may have, the text is a line of printable ASCII without spaces, and says the same when it is parsed.
func TestSequencer_AnyPath(t *testing.T) {
	for _, path := range []string{"/a", "/locks/with space", "/schlösser/größe", "/锁/订单", "/a?b=c&d", "/100%", "/%2f", "/a#b", "/a;b:c,d+e", "/*", "/\"'\\", "/🔒", "/ "} {
		q := aSequencer(modeExclusive)
		q.Path = path
		q.Node = path + q.Node[strings.LastIndexByte(q.Node, '/'):]
		if checkPath(path) != nil { // 🔒 is none that ZooKeeper takes
			_, err := ParseSequencer(q.String())
			require.ErrorIs(t, err, ErrBadSequencer, path)
			continue
		}
		text := q.String()
		for _, c := range []byte(text) {
			require.True(t, c > ' ' && c < 0x7f, "%q has %q", text, c)
		}
		got, err := ParseSequencer(text)
		require.NoError(t, err, text)
		require.Equal(t, q, got)
	}
}

// rubbish is made of a good text, with one thing wrong in it.
func rubbish() (all []string) {
	good := aSequencer(modeExclusive).String()
	for _, swap := range [][2]string{
		{"zklock:", ""}, {"zklock:", "ZKLOCK:"}, {"zklock:", "http:"}, {"zklock:/", "zklock:"}, {"zklock:/", "zklock://"}, {"zklock:/", "zklock:/../"},
		{"/orders", "/"}, {"/orders", "/%00"}, {"/orders", "%2Forders"}, {"/orders", "/%6Frders"}, {"/orders", "/%zz"}, {"/orders", "/\xff"}, {"?", "??"}, {"?", ""}, {"?", "#"},
		{"root=26", "root="}, {"root=26", "root=0"}, {"root=26", "root=-26"}, {"root=26", "root=+26"}, {"root=26", "root=026"}, {"root=26", "root=0x1a"},
		{"root=26", "root=99999999999999999999"}, {"root=26&", ""}, {"root=26", "root=26&root=26"}, {"root=26", "Root=26"},
		{"token=43", "token="}, {"token=43", "token=0"}, {"token=43", "token=-43"}, {"token=43", "token=4 3"}, {"token=43", "token=9223372036854775808"}, {"&token=43", ""},
		{"exclusive", ""}, {"exclusive", "shared"}, {"exclusive", "permits"}, {"exclusive", "permits&permits=1"}, {"exclusive", "exclusive&permits=1"}, {"exclusive", "exclusive&permits=0"}, {"exclusive", "Exclusive"},
		{"node=", "node=x"}, {"node=", "node=x%2F"}, {"node=", "node=../"}, {"-lock-", "-lock--"}, {"-lock-", "-lock"}, {"-lock-", "-lock-lock-"}, {"-lock-", "-__READ__"}, {"-lock-", "-lease-"}, {"-lock-", "lock-"},
		{anID, anID[:35]}, {anID, anID[:35] + "x"}, {anID, "x" + anID}, {anID, strings.ToUpper(anID)[:35] + "/"}, {"_c_", ""}, {"0000000007", "000000007"}, {"0000000007", "00000000007"}, {"0000000007", "2147483647"}, {"0000000007", "9999999999"},
		{"0000000007", "0000000007&x=1"}, {"0000000007", "0000000007\n"}, {"0000000007", "0000000007 "}, {"0000000007", ""}, {"root=26&mode=exclusive", "mode=exclusive&root=26"},
	} {
		all = append(all, strings.Replace(good, swap[0], swap[1], 1))
	}
	permits := aSequencer(modePermits).String()
	for _, n := range []string{"", "0", "-1", "03", "2147483648", "99999999999999999999"} {
		all = append(all, strings.Replace(permits, "permits=3", "permits="+n, 1))
	}
	for i := range len(good) - 1 {
		all = append(all, good[:i])
	}
	return append(all, strings.Replace(permits, "&permits=3", "", 1), strings.Repeat("x", 1<<20), good+good, " "+good, "null", "{}")
}

// Nothing else is taken for a sequencer, and the error says what to give.
func TestParseSequencer_Rubbish(t *testing.T) {
	good := aSequencer(modeExclusive).String()
	for _, text := range rubbish() {
		require.NotEqual(t, good, text, "no rubbish")
		q, err := ParseSequencer(text)
		require.ErrorIs(t, err, ErrBadSequencer, "%.200q was taken for %v", text, q)
		require.True(t, IsFinal(err))
		require.Less(t, len(err.Error()), 1500)
		require.Zero(t, q)
	}
}

// Whatever is taken for a sequencer has one spelling of its words, and a node of its lock.
func FuzzParseSequencer(f *testing.F) {
	for _, mode := range []string{modeExclusive, modeShared, modePermits} {
		f.Add(aSequencer(mode).String())
	}
	for _, text := range rubbish() {
		if len(text) < 1000 {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := ParseSequencer(text)
		if err != nil {
			require.ErrorIs(t, err, ErrBadSequencer)
			return
		}
		require.NoError(t, checkPath(q.Path))
		require.True(t, strings.HasPrefix(q.Node, q.Path+"/"), q.Node)
		require.NoError(t, checkPath(q.Node))
		again, err := ParseSequencer(q.String())
		require.NoError(t, err)
		require.Equal(t, q, again)
		require.True(t, strings.HasSuffix(text, q.String()[strings.IndexByte(q.String(), '?'):]), text)
	})
}

// A text is parsed before a gate can refuse it, so what it claims costs nothing.
func TestParseSequencer_ManyPermits_CostNoMore(t *testing.T) {
	cost := func(permits int) float64 {
		q := aSequencer(modePermits)
		q.Permits = permits
		text := q.String()
		return testing.AllocsPerRun(100, func() {
			_, err := ParseSequencer(text)
			require.NoError(t, err)
		})
	}
	require.Less(t, cost(10000), 2*cost(1)) // the race detector makes the numbers differ a little; a path for each permit is 70,000
}

// What follows from the answers. Only if the transaction, the read and the list say so, over one connection, the hold stands.
func TestSequencer_Verdict(t *testing.T) {
	const conn = 5
	var (
		ok, node, root = found{conn: conn}, found{conn: conn, czxid: 43}, found{conn: conn, czxid: 26}
		gone           = found{conn: conn, err: zk.ErrNoNode}
		lost           = found{conn: conn, err: zk.ErrConnectionClosed}
		anew           = found{conn: conn, czxid: 99}
		denied         = found{conn: conn, err: zk.ErrNoAuth}
		throttled      = found{conn: conn, err: wire.Throttled}
		moved          = found{conn: conn, err: zk.ErrSessionMoved}
		unreadable     = found{conn: conn, err: wire.ErrMalformed}
	)
	for _, tt := range []struct {
		checked, node, root found
		want                error // of errors.Is; nil if the hold stands
	}{
		{ok, node, root, nil},

		{gone, gone, root, ErrNotHeld},
		{gone, node, root, ErrNotHeld}, // it cannot be there again; but the transaction decides
		{ok, gone, root, ErrNotHeld},   // it went after the transaction

		{gone, gone, anew, ErrNotHeld},
		{gone, gone, gone, ErrNotHeld},
		{ok, gone, anew, ErrNotHeld},
		{ok, gone, gone, ErrNotHeld},
		{ok, node, anew, ErrNotHeld}, // a text that no hold has given

		{ok, anew, root, ErrBadSequencer},
		{ok, found{conn: conn, czxid: 42}, root, ErrBadSequencer},

		{lost, lost, lost, ErrNotConnected},
		{lost, node, root, ErrNotConnected},
		{ok, lost, lost, ErrNotConnected},
		{ok, node, lost, ErrNotConnected},
		{ok, lost, root, ErrNotConnected},
		{gone, gone, lost, ErrNotConnected},
		{throttled, node, root, ErrNotConnected},
		{moved, node, root, ErrNotConnected},
		{unreadable, node, root, ErrNotConnected},
		{ok, unreadable, root, ErrNotConnected},
		{ok, node, found{conn: conn + 1, czxid: 26}, ErrNotConnected}, // of another server, which may be behind
		{ok, found{conn: conn + 1, czxid: 43}, root, ErrNotConnected},
		{gone, found{conn: conn + 1, err: zk.ErrNoNode}, found{conn: conn + 1, czxid: 26}, ErrNotConnected},

		{denied, denied, root, zk.ErrNoAuth},
		{ok, denied, root, zk.ErrNoAuth},
		{ok, node, denied, zk.ErrNoAuth},
		{gone, gone, denied, zk.ErrNoAuth},
	} {
		name := fmt.Sprint(tt.checked, tt.node, tt.root)
		err := aSequencer(modeExclusive).verdict(tt.checked, tt.node, tt.root, seen(modeExclusive))
		for _, e := range []error{ErrNotHeld, ErrBadSequencer, ErrNotConnected, zk.ErrNoAuth} {
			require.Equal(t, e == tt.want, errors.Is(err, e), "%s: %v", name, err)
		}
		require.Equal(t, tt.want == nil, err == nil, "%s: %v", name, err)
	}
	later := found{conn: conn, czxid: 50} // than the writer's node, or than the place in the semaphore's queue
	for _, mode := range []string{modeShared, modePermits} {
		require.NoError(t, aSequencer(mode).verdict(ok, later, root, seen(mode)))
		require.NoError(t, aSequencer(mode).verdict(ok, node, root, seen(mode)))
		require.ErrorIs(t, aSequencer(mode).verdict(ok, found{conn: conn, czxid: 42}, root, seen(mode)), ErrBadSequencer, "a token that nobody has yet")
	}
	for _, mode := range []string{modeExclusive, modeShared, modePermits} {
		require.ErrorIs(t, aSequencer(mode).verdict(ok, node, root, nil), ErrNotHeld, "it went before the list")
	}
	ahead := append(seen(modeExclusive), "_c_"+anID+"-lock-0000000006")
	err := aSequencer(modeExclusive).verdict(ok, node, root, ahead)
	require.ErrorIs(t, err, ErrBadSequencer, "it waits")
	require.False(t, IsFinal(err), "it may hold later")
}

// seen is what the list shows of aSequencer's hold, and nodes behind it.
func seen(mode string) []string {
	q := aSequencer(mode)
	names := []string{"_c_" + anID + "-lock-0000000020", "_c_" + anID + "-lease-0000000020", nameOf(q.Node)}
	for i := 1; i < q.Permits; i++ {
		names = append(names, fmt.Sprintf("_c_%s-lease-%010d", anID, 9+i))
	}
	return names
}
