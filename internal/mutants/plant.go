// Package mutants plants mistakes in the code for the tests of the tests: a suite earns its place by finding them. The
// compiler sees a mistake through an overlay, so there is no trace of it in what is built otherwise.
package mutants

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Swap is one change to a file. Old stands there exactly once.
type Swap struct{ Old, New string }

// Mutate returns the text of the file with the changes in it. It fails the test if one does not fit any more.
func Mutate(t testing.TB, file string, swaps ...Swap) string {
	t.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(source)
	for _, s := range swaps {
		if n := strings.Count(text, s.Old); n != 1 {
			t.Fatalf("%s has this %d times and not once; change the mutant with the code:\n%s", filepath.Base(file), n, s.Old)
		}
		text = strings.Replace(text, s.Old, s.New, 1)
	}
	return text
}

// Overlay writes what the go command's flag -overlay wants to read, in a directory of its own, and returns its path.
func Overlay(t testing.TB, file, text string) string {
	t.Helper()
	dir := t.TempDir()
	file, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	mutated := filepath.Join(dir, filepath.Base(file))
	list, err := json.Marshal(map[string]map[string]string{"Replace": {file: mutated}})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	for name, data := range map[string][]byte{mutated: []byte(text), overlay: list} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return overlay
}
