package command

// Data of other clients is printed for people: it must not move the cursor, nor change the
// direction of their text.

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
)

func escaped(text string) string {
	var b strings.Builder
	_, _ = printable{&b}.Write([]byte(text))
	return b.String()
}

// printable writes characters that strconv.IsPrint allows, line ends and tabs, and the rest as JSON
// escapes it: \u202e. Each Write has whole lines, or whole JSON.
type printable struct{ w io.Writer }

func (p printable) Write(text []byte) (int, error) {
	var b []byte
	for _, r := range string(text) { // invalid UTF-8 becomes U+FFFD
		if strconv.IsPrint(r) || r == '\n' || r == '\t' {
			b = append(b, string(r)...)
			continue
		}
		for _, u := range utf16.AppendRune(nil, r) {
			b = fmt.Appendf(b, `\u%04x`, u)
		}
	}
	if _, err := p.w.Write(b); err != nil {
		return 0, err
	}
	return len(text), nil
}
