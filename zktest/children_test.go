package zktest_test

// Attacks the order in which children are listed: it must remain the same until the children
// change, and not depend on their names.

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/wire"
	. "github.com/zklock/zklock/zktest"
)

func TestChildren_Order(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		listed := func(srv *Server, path string) (names []string) {
			_, body, _ := call(t, raw(t, n, srv, 10*time.Second), wire.OpGetChildren, wire.PathWatchRequest{Path: path})
			var r wire.StringsResponse
			r.Decode(wire.NewDecoder(body))
			return r.Strings
		}
		make20 := func(opts ...Option) *Server {
			srv := Start(t, append(opts, WithNetwork(n))...)
			for _, root := range []string{"/a", "/b"} {
				_, err := srv.Create(root, nil, 0)
				require.NoError(t, err)
				for i := range 20 {
					_, err := srv.Create(fmt.Sprintf("%s/n-%010d", root, i), nil, 0)
					require.NoError(t, err)
				}
			}
			return srv
		}
		one, other, shuffled := make20(), make20(), make20(WithShuffledChildren())
		inOrder := listed(one, "/a")
		require.False(t, slices.IsSorted(inOrder))
		require.ElementsMatch(t, one.Children("/a"), inOrder)
		for range 20 {
			require.Equal(t, inOrder, listed(one, "/a"), "nothing has changed")
		}
		require.NotEqual(t, inOrder, listed(one, "/b"), "another node")
		require.NotEqual(t, inOrder, listed(other, "/a"), "another server")
		require.NoError(t, one.Delete("/a/n-0000000007"))
		require.Equal(t, slices.DeleteFunc(slices.Clone(inOrder), func(name string) bool { return name == "n-0000000007" }), listed(one, "/a"))

		orders := map[string]bool{}
		for range 20 {
			orders[fmt.Sprint(listed(shuffled, "/a"))] = true
		}
		require.Greater(t, len(orders), 10)
	})
}
