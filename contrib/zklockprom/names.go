package zklockprom

import (
	"cmp"
	"strings"

	"github.com/zklock/zklock"
)

// others is the label of all locks beyond the limit.
const others = "_others"

// names assigns labels to locks: the first ones have a label of their own.
type names struct {
	limit int
	known map[string]struct{}
}

func (n *names) label(a zklock.AcquireInfo) string {
	name := cmp.Or(a.Name, a.Path)
	if _, found := n.known[name]; found {
		return name
	}
	name = strings.ToValidUTF8(name, "\uFFFD") // Prometheus accepts only UTF-8
	if _, found := n.known[name]; !found {
		if len(n.known) >= n.limit {
			return others
		}
		n.known[strings.Clone(name)] = struct{}{}
	}
	return name
}
