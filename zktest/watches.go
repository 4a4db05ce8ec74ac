package zktest

// Who is told of what. A server has two of these tables, for data and for children.

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/zklock/zklock/internal/wire"
)

// watchMode says how long a watch lives and how far it sees.
type watchMode int

const (
	oneShot    watchMode = iota // goes when it fires
	persisting                  // stays
	recursing                   // stays, and sees all nodes below, but never a type 4 event
)

// watchTable holds at most one watch for a path and connection. Setting it again changes the mode: a read
// with a watch turns a persistent watch into a one-shot one, as ZooKeeper 3.8 does.
type watchTable struct {
	byPath    map[string]map[*conn]watchMode
	byConn    map[*conn]map[string]struct{}
	recursive int // watches with mode recursing; with none, parents need not be looked at
}

func newWatchTable() *watchTable {
	return &watchTable{
		byPath: make(map[string]map[*conn]watchMode),
		byConn: make(map[*conn]map[string]struct{}),
	}
}

func (w *watchTable) add(path string, c *conn, mode watchMode) {
	if c.gone || c.deafened {
		return // a fault has just cut it
	}
	w.remove(path, c)
	if w.byPath[path] == nil {
		w.byPath[path] = make(map[*conn]watchMode)
	}
	w.byPath[path][c] = mode
	if w.byConn[c] == nil {
		w.byConn[c] = make(map[string]struct{})
	}
	w.byConn[c][path] = struct{}{}
	if mode == recursing {
		w.recursive++
	}
}

func (w *watchTable) remove(path string, c *conn) bool {
	mode, ok := w.byPath[path][c]
	if !ok {
		return false
	}
	if mode == recursing {
		w.recursive--
	}
	delete(w.byPath[path], c)
	if len(w.byPath[path]) == 0 {
		delete(w.byPath, path)
	}
	delete(w.byConn[c], path)
	if len(w.byConn[c]) == 0 {
		delete(w.byConn, c)
	}
	return true
}

func (w *watchTable) removeConn(c *conn) {
	for path := range maps.Clone(w.byConn[c]) {
		w.remove(path, c)
	}
}

// contains is checkWatches. In 3.8.0 a watch of any connection on the path will do. The server cuts a path at its last
// slash before it looks, and fails on a path without one. Once there are recursive watches it walks up the whole path, and
// then fails on any path that does not begin with a slash.
func (w *watchTable) contains(path string) (bool, error) {
	found := len(w.byPath[path]) > 0
	switch {
	case path == "" || path[0] == '/':
	case !strings.Contains(path, "/"), w.recursive > 0 && !found:
		return false, wire.MarshallingError
	}
	return found, nil
}

func (w *watchTable) size() int {
	n := 0
	for _, paths := range w.byConn {
		n += len(paths)
	}
	return n
}

// fire takes the one-shot watches of the path off the table. It returns the connections that get the event, in the order in
// which they connected.
func (w *watchTable) fire(path string, event EventType) []*conn {
	told := make(map[*conn]bool)
	for c, mode := range w.byPath[path] {
		switch {
		case mode == recursing && event == NodeChildrenChanged:
			continue
		case mode == oneShot:
			w.remove(path, c)
		}
		told[c] = true
	}
	for up := path; w.recursive > 0 && up != "/" && event != NodeChildrenChanged; {
		up = up[:max(strings.LastIndexByte(up, '/'), 0)]
		if up == "" {
			up = "/"
		}
		for c, mode := range w.byPath[up] {
			if mode == recursing {
				told[c] = true
			}
		}
	}
	if len(told) == 0 {
		return nil
	}
	return slices.SortedFunc(maps.Keys(told), func(a, b *conn) int { return cmp.Compare(a.id, b.id) })
}
