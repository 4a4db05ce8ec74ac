package zklock_test

// These tests attack paths that are made from names: two names with one path, a name that leads
// elsewhere, a path that no server accepts.

import (
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

var names = []string{
	"", " ", "%", "%2F", "%%", "%~", "a", "A", "orders-7_b.c~d", "a/b", "/", "//", "/a", "a/", "../../x", ".", "..", "...", "%2E", "%2E.", "zookeeper", "%7Aookeeper",
	"Zookeeper", "zookeeper2", "a b", "a+b", "*.example.com", "host:2181", "\x00", "a\x00", "\n", "\x7f", "\u0080", "\u009f", "\ud7ff", "\ue000", "\uf8ff",
	"\ufff0", "\uffff", "\U0001f512", "Größe", "Gro\u0308ße", "\xff", "\xc3\x28", "\xed\xa0\x80", "lock-0000000001", "_c_1-lock-0000000001", "locks", "leases",
	strings.Repeat("x", 200), strings.Repeat("x", 201), strings.Repeat("x", 1<<20), strings.Repeat("/", 66), strings.Repeat("/", 67), strings.Repeat("x", 198) + "/",
}

// pathOf returns PathOf, and fails the test unless it is one valid node below the root, from which
// a name that is not long can be read.
func pathOf(t testing.TB, root, name string) string {
	p := zklock.PathOf(root, name)
	last, ok := strings.CutPrefix(p, root+"/")
	require.True(t, ok, "%q", p)
	require.NoError(t, zklock.ValidatePath(p), "%q", name)
	require.NotContains(t, last, "/", "%q", name)
	require.NotEqual(t, "zookeeper", last)
	require.LessOrEqual(t, len(last), 200)
	switch back, err := url.PathUnescape(last); {
	case name == "":
		require.Equal(t, "%", last)
	case strings.Contains(last, "%~"):
		require.Error(t, err, "no short name has such a path")
		require.Greater(t, len(strings.ReplaceAll(url.QueryEscape(name), "+", "%20")), 200)
	default:
		require.NoError(t, err)
		require.Equal(t, name, back)
	}
	return p
}

// Each name has a path of its own, which every server accepts, and plain names are readable in it.
func TestPathOf_EachNameHasAPathOfItsOwn(t *testing.T) {
	srv := zktest.Start(t)
	conn := connect(t, srv.Addr()).Conn()
	of := map[string]string{}
	for _, name := range names {
		p := pathOf(t, "", name)
		other, taken := of[p]
		require.False(t, taken, "%q is the path of %q and of %q", p, name, other)
		of[p] = name
		_, err := conn.Create(p, nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err, p)
	}
	require.Len(t, srv.Children("/"), len(names)+1, "all directly below the root, beside /zookeeper")
	require.Equal(t, "/locks/azAZ09-_.~%2F%3A%40%5B%60%7B", zklock.PathOf("/locks", "azAZ09-_.~/:@[`{"))
	require.Equal(t, zklock.PathOf("", "a/b"), zklock.PathOf("/", "a/b"))
	require.Equal(t, "/locks/a", zklock.PathOf("/locks/", "a"))
	long := zklock.PathOf("/locks", strings.Repeat("x", 201))
	require.Equal(t, "/locks/"+strings.Repeat("x", 134)+"%~", long[:len("/locks/")+136])
	require.Len(t, long, len("/locks/")+200)
	require.Error(t, zklock.ValidatePath(zklock.PathOf("locks", "a")), "the root is looked at where the lock is made")
}

// Two names that differ in one byte, of those that make the most trouble, have two paths.
func TestPathOf_RandomNames_NoTwoHaveOnePath(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	of := map[string]string{}
	for range 20_000 {
		b := make([]byte, r.IntN(6))
		for i := range b {
			b[i] = "a%2FE./~z\x00\xff"[r.IntN(11)]
		}
		p := pathOf(t, "/l", string(b))
		if other, taken := of[p]; taken {
			require.Equal(t, other, string(b))
		}
		of[p] = string(b)
	}
}

func FuzzPathOf(f *testing.F) {
	for i, name := range names {
		if len(name) < 1000 {
			f.Add(name, names[len(names)-1-i][:min(300, len(names[len(names)-1-i]))])
		}
	}
	f.Fuzz(func(t *testing.T, one, two string) {
		p := pathOf(t, "/locks", one)
		require.True(t, utf8.ValidString(p))
		require.Equal(t, one == two, p == pathOf(t, "/locks", two), "%q %q", one, two)
	})
}
