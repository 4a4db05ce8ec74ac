//go:build linux || darwin

package command

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"größe\t7\n":                "größe\t7\n",
		"\x1b[2J\r\x7f":             `\u001b[2J\u000d\u007f`,
		"\u0085\u009b2J":            `\u0085\u009b2J`,
		"a\u202eb\u2066c\u200fd":    `a\u202eb\u2066c\u200fd`,
		"tag \U000e0041":            `tag \udb40\udc41`,
		"no UTF-8: \x9b2J\xff":      "no UTF-8: \ufffd2J\ufffd",
		"a space of no width\u200b": `a space of no width\u200b`,
	} {
		var b strings.Builder
		n, err := printable{&b}.Write([]byte(text))
		require.NoError(t, err)
		require.Equal(t, len(text), n)
		require.Equal(t, want, b.String())
	}
}

// What another client wrote into its node's data and name does not reach the terminal as control
// characters.
func TestNodeOfAnotherClient_IsPrintedWithoutControlCharacters(t *testing.T) {
	t.Parallel()
	srv, path := server(t), lockPath(t)+"\u202e" // the lock may be theirs, too
	s := session(t, srv)
	_, release := occupy(t, s, path)
	release()
	const data = "db\u009b2J\u202e1\x1b[2J\x9d:4711"
	node, err := s.Conn().Create(path+"/\u202egnol-lock-", []byte(data), zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	for _, args := range [][]string{
		{"ls", path}, {"ls", "-r", path}, {"ls", "--json", path}, {"ls", "--json", "-r", path},
		{"run", "--no-wait", path, "--", "true"}, {"run", "--wait", "1s", path, "--", "true"},
	} {
		p := start(t, nil, append([]string{args[0], "--servers", srv.ConnectString()}, args[1:]...)...)
		p.wait()
		said := p.stdout.String() + p.stderr.String()
		require.True(t, strings.Contains(said, `\u202e`), said)
		require.False(t, strings.ContainsFunc(said, func(r rune) bool { return r != '\n' && !strconv.IsPrint(r) }), "%q", said)
		if args[0] == "ls" && args[1] == "--json" && args[2] == path {
			var entries []entry
			require.NoError(t, json.Unmarshal([]byte(p.stdout.String()), &entries))
			require.Equal(t, node, entries[0].Node, "programs read what is there")
			require.Equal(t, strings.ToValidUTF8(data, "\ufffd"), entries[0].Data)
		}
	}
}
