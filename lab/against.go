package main

// What is claimed is repeated: a second run, with another seed, is held against the first.

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// strong says what a cell claims beyond figures: that something bad happened, that something never did, or neither.
func (e *Experiment) strong(r *Result) string {
	if r == nil || r.n() == 0 {
		return ""
	}
	text := e.cell(r)
	switch {
	case strings.HasPrefix(text, "✗"):
		return "✗"
	case strings.Contains(text, "never"):
		return "never"
	}
	return "neither"
}

// against compares with the figures of another run, and returns what the page says of it.
func (l *lab) against(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	var others []*Result
	if err := json.Unmarshal(text, &others); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	experiment := map[string]*Experiment{}
	for _, e := range l.Experiments {
		experiment[e.Name] = e
	}
	same, claims := 0, 0
	var differ []string
	for _, o := range others {
		e := experiment[o.Experiment]
		if e == nil {
			continue
		}
		mine := l.results[fmt.Sprintf("%s %d %s", o.System, o.Size, o.Experiment)]
		was, is := e.strong(o), e.strong(mine)
		if was == "" || is == "" || was == "neither" && is == "neither" {
			continue
		}
		claims++
		if was == is {
			same++
			continue
		}
		differ = append(differ, fmt.Sprintf("* %s, %d servers, [%s](#%s): %s before, and now %s.", o.System, o.Size, e.Title, anchor(e.Title), e.cell(o), e.cell(mine)))
	}
	said := fmt.Sprintf("A run with another seed came before this one. Of %d cells that have a ✗ or a \"never\" in one of the two, %d have it in both.", claims, same)
	if len(differ) > 0 {
		said += " The others:\n\n" + strings.Join(differ, "\n")
	}
	return said + "\n", nil
}
