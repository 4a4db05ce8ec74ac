package zklock_test

// This test holds the picture of the rooms in docs/design.md to the list in layers_test.go.

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var updateDesign = flag.Bool("update-design", false, "draw the rooms anew, from the list in layers_test.go")

// The picture of the rooms is the list that TestLayers_NobodyLooksUp goes by.
func TestDesignPage_Rooms(t *testing.T) {
	const width, row = 760, 62
	beneath := map[string][]string{"wire": {"internal/tap", "internal/wire", "internal/lastzxid"}, "bottom": {"internal/clock"}}
	drawn := slices.Clone(layers[:len(layers)-1]) // without the words
	slices.Reverse(drawn)
	var b strings.Builder
	height := 60 + row*len(drawn)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="The rooms: each is for those to its right and above it">
<style>
  .bg { fill: #ffffff } text { fill: #1f2328; font: 13px sans-serif } .t { font-weight: bold } .s { font-size: 12px } .m { font-family: monospace; font-size: 12px }
  .b { fill: #f0f3f6; stroke: #6e7781 } .l { stroke: #6e7781 }
  @media (prefers-color-scheme: dark) { .bg { fill: #0d1117 } text { fill: #e6edf3 } .b { fill: #21262d; stroke: #8d96a0 } .l { stroke: #8d96a0 } }
</style>
<rect class="bg" width="%d" height="%d"/>
<text class="t" x="16" y="24">The rooms: each is for those to its right and above it</text>
`, width, height, width, height)
	for i, l := range drawn {
		y := 44 + row*i
		fmt.Fprintf(&b, "<text class=\"s\" x=\"16\" y=\"%d\">%s</text>\n", y+25, l.name)
		shown := slices.Concat(l.files, beneath[l.name])
		for k, name := range shown {
			w := (width - 160) / len(shown)
			x := 144 + w*k
			fmt.Fprintf(&b, "<rect class=\"b\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"40\" rx=\"4\"/>\n", x, y, w-8)
			fmt.Fprintf(&b, "<text class=\"m\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", x+(w-8)/2, y+25, strings.TrimSuffix(name, ".go"))
		}
		if i > 0 {
			fmt.Fprintf(&b, "<line class=\"l\" x1=\"16\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>\n", y-11, width-24, y-11)
		}
	}
	b.WriteString("</svg>\n")
	const path = "docs/design/rooms.svg"
	if *updateDesign {
		require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o644))
	}
	require.Equal(t, b.String(), readFile(t, path), "the picture is not the list: run go test -run TestDesignPage_Rooms . -update-design")
}
