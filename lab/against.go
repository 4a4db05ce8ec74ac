package main

// What is claimed is repeated: the page of a second run, with another seed, is held against the first one's.

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// claim says what a cell of the summary claims beyond figures: that something bad happened, that something never did, or neither.
func claim(cell string) string {
	switch {
	case strings.HasPrefix(cell, "✗"):
		return "✗"
	case strings.Contains(cell, "never"):
		return "never"
	}
	return "neither"
}

// summaryOf reads the cells of a page's summary that have a result: by the row's title and the link to the experiment, in the order of
// the page.
func summaryOf(page string) (keys [][2]string, cells map[[2]string]string) {
	_, text, _ := strings.Cut(page, "\n## Summary\n")
	text, _, _ = strings.Cut(text, "\n## ")
	cells = map[[2]string]string{}
	var links []string
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(line), "| "), " |")
		if found := regexp.MustCompile(`\[[^]]*\]\(#[^)]*\)`).FindAllString(line, -1); strings.HasPrefix(line, "| [") && len(found) > 0 {
			links = found
			continue
		}
		row := strings.Split(line, " | ")
		if len(row) != len(links)+1 {
			continue
		}
		for i, link := range links {
			if cell := strings.TrimSpace(row[i+1]); regexp.MustCompile(`n=\d`).MatchString(cell) {
				key := [2]string{row[0], link}
				keys, cells[key] = append(keys, key), cell
			}
		}
	}
	return keys, cells
}

// against says how far the claims of two pages agree.
func against(before, now string) (string, error) {
	seed := regexp.MustCompile(`, seed (\d+), `)
	was, is := seed.FindString(before), seed.FindString(now)
	if was == "" || was == is {
		return "", errors.New("-against wants the page of a run with another -seed")
	}
	_, old := summaryOf(before)
	keys, cells := summaryOf(now)
	claims, same := 0, 0
	var differ []string
	for _, key := range keys {
		first, found := old[key]
		if !found || claim(first) == "neither" && claim(cells[key]) == "neither" {
			continue
		}
		claims++
		if claim(first) == claim(cells[key]) {
			same++
			continue
		}
		differ = append(differ, fmt.Sprintf("* %s, %s: %s before, and now %s.", key[0], key[1], first, cells[key]))
	}
	if len(old) == 0 || !slices.ContainsFunc(keys, func(key [2]string) bool { return old[key] != "" }) {
		return "", errors.New("-against: the two pages have no cell in common")
	}
	said := fmt.Sprintf("A run with another seed came before this one. Of %d cells that have a ✗ or a \"never\" in one of the two, %d have it in both.", claims, same)
	if len(differ) > 0 {
		said += " The others:\n\n" + strings.Join(differ, "\n")
	}
	return said + "\n", nil
}
