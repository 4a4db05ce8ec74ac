package zklock_test

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
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
	require.Greater(t, cited, 30)
	for _, name := range rooms {
		require.Contains(t, readFile(t, "CONTRIBUTING.md"), strings.TrimSuffix(strings.TrimSuffix(name, "_linux.go"), ".go"), "a file without a sentence")
	}
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
