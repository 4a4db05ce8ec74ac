package zklock_test

// These tests hold docs/design.md to the code: its names, its picture of the rooms, its pictures' commands.

import (
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// docs/design.md names files and tests that are there.
func TestDesignPage(t *testing.T) {
	page := readFile(t, "docs/design.md")
	var tests strings.Builder
	for _, pattern := range []string{"*_test.go", "internal/*/*_test.go"} {
		names, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, name := range names {
			tests.WriteString(readFile(t, name))
		}
	}
	cited := 0
	for _, m := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(page, -1) {
		cited++
		require.Contains(t, tests.String(), "func "+m[1]+"(", "there is no such test")
	}
	for _, m := range regexp.MustCompile(`\]\(([\w./-]+)\)`).FindAllStringSubmatch(page, -1) {
		cited++
		require.FileExists(t, filepath.Join("docs", m[1]))
	}
	require.Greater(t, cited, 15)
}

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

// Its pictures are readable in light and dark, and no label leaves them.
func TestDesignPage_Pictures(t *testing.T) {
	pictures, err := filepath.Glob("docs/design/*.svg")
	require.NoError(t, err)
	require.NotEmpty(t, pictures)
	page := readFile(t, "docs/design.md")
	for _, name := range pictures {
		require.Contains(t, page, "(design/"+filepath.Base(name)+")", "nobody shows it")
		require.Contains(t, readFile(t, name), "prefers-color-scheme: dark")
		f, err := os.Open(name)
		require.NoError(t, err)
		defer f.Close()
		var width, height float64
		labels := 0
		for d := xml.NewDecoder(f); ; {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err, name)
			start, ok := token.(xml.StartElement)
			if !ok {
				continue
			}
			attr := map[string]string{}
			for _, a := range start.Attr {
				attr[a.Name.Local] = a.Value
			}
			switch start.Name.Local {
			case "svg":
				box := strings.Fields(attr["viewBox"])
				require.Len(t, box, 4)
				width, _ = strconv.ParseFloat(box[2], 64)
				height, _ = strconv.ParseFloat(box[3], 64)
			case "text":
				var label string
				require.NoError(t, d.DecodeElement(&label, &start))
				x, err := strconv.ParseFloat(attr["x"], 64)
				require.NoError(t, err)
				y, err := strconv.ParseFloat(attr["y"], 64)
				require.NoError(t, err)
				per := map[string]float64{"": 7, "t": 7.7, "s": 5.9, "m": 7.3}[attr["class"]] // a character, on average
				wide := per * float64(len([]rune(label)))
				left := map[string]float64{"start": x, "middle": x - wide/2, "end": x - wide}[attr["text-anchor"]]
				require.GreaterOrEqual(t, left, 0.0, "%s: %q leaves the picture", name, label)
				require.LessOrEqual(t, left+wide, width, "%s: %q leaves the picture", name, label)
				require.Less(t, y, height, "%s: %q leaves the picture", name, label)
				labels++
			}
		}
		require.Greater(t, labels, 5)
	}
}
