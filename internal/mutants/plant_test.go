package mutants

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The code of a mutant is found by its tokens: not by a part of one, and regardless of layout and
// comments.
func TestPlaces_WordsCount(t *testing.T) {
	const text = "if late { // the list is old\n\treturn  again\n}\nif lately { return again }"
	for old, want := range map[string][]string{
		"if late { return again }": {"if late { // the list is old\n\treturn  again\n}"},
		"return again":             {"return  again", "return again"},
		"late":                     {"late"},
		"again late":               nil,
	} {
		var found []string
		for _, at := range places(text, old) {
			found = append(found, text[at.from:at.to])
		}
		require.Equal(t, want, found, old)
	}
}
