package zktest

// Watches: which connections are notified of which events. A server has two of these tables, for
// data and for children.

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/zklock/zklock/internal/wire"
)

// watchMode is a set of modes, which determine when a watch ends and which nodes it covers.
type watchMode uint8

const (
	oneShot    watchMode = 1 << iota // ends with the first event
	persisting                       // remains
	recursing                        // remains, and covers all nodes below, but not NodeChildrenChanged

	anyMode = oneShot | persisting | recursing
)

// watchTable holds the watches by path and connection. Up to ZooKeeper 3.8, a connection has one
// watch on a path. Setting it again replaces its mode, so a read with a watch turns a persistent
// watch into a one-shot one. From 3.9 on, a path and connection can have a watch of each mode
// (WatchStats, ZOOKEEPER-4466), and still get one event.
type watchTable struct {
	manyModes bool // as 3.9
	byPath    map[string]map[*conn]watchMode
	byConn    map[*conn]map[string]struct{} // even if it has no watch left: wchs and wchc count it
	recursive int                           // watches of the mode recursing; if 0, fire ignores parents
}

func newWatchTable(cfg config) *watchTable {
	return &watchTable{
		manyModes: cfg.since("3.9.3"),
		byPath:    make(map[string]map[*conn]watchMode),
		byConn:    make(map[*conn]map[string]struct{}),
	}
}

func (w *watchTable) add(path string, c *conn, mode watchMode) {
	if c.gone || c.deafened {
		return // a fault has just closed it
	}
	if w.manyModes {
		mode |= w.byPath[path][c]
	}
	w.remove(path, c, anyMode)
	if w.byPath[path] == nil {
		w.byPath[path] = make(map[*conn]watchMode)
	}
	w.byPath[path][c] = mode
	if w.byConn[c] == nil {
		w.byConn[c] = make(map[string]struct{})
	}
	w.byConn[c][path] = struct{}{}
	if mode&recursing != 0 {
		w.recursive++
	}
}

// remove removes the watches of these modes, and reports whether there were any.
func (w *watchTable) remove(path string, c *conn, modes watchMode) bool {
	had := w.byPath[path][c]
	if had&modes == 0 {
		return false
	}
	if had&modes&recursing != 0 {
		w.recursive--
	}
	if left := had &^ modes; left != 0 {
		w.byPath[path][c] = left
		return true
	}
	delete(w.byPath[path], c)
	if len(w.byPath[path]) == 0 {
		delete(w.byPath, path)
	}
	delete(w.byConn[c], path)
	return true
}

func (w *watchTable) removeConn(c *conn) {
	for path := range maps.Clone(w.byConn[c]) {
		w.remove(path, c, anyMode)
	}
	delete(w.byConn, c)
}

// contains handles checkWatches of 3.8.0, where a watch of any connection on the path counts. The
// server cuts a path at its last slash before the lookup, and fails on a path without a slash. It
// does not look up the empty path, which has no watch. If there are recursive watches, it walks up
// the whole path, and then fails on any path that does not begin with a slash.
func (w *watchTable) contains(path string) (bool, error) {
	found := path != "" && len(w.byPath[path]) > 0
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

// fire removes the one-shot watches of the path from the table. It returns the connections that get
// the event, in the order in which they connected.
func (w *watchTable) fire(path string, event EventType) []*conn {
	told := make(map[*conn]bool)
	for c, mode := range w.byPath[path] {
		switch {
		case mode == recursing && event == NodeChildrenChanged:
			continue // only up to 3.8: later, the table for children has no recursive watches
		case mode&oneShot != 0:
			w.remove(path, c, oneShot)
		}
		told[c] = true
	}
	for up := path; w.recursive > 0 && up != "/" && event != NodeChildrenChanged; {
		up = up[:max(strings.LastIndexByte(up, '/'), 0)]
		if up == "" {
			up = "/"
		}
		for c, mode := range w.byPath[up] {
			if mode&recursing != 0 {
				told[c] = true
			}
		}
	}
	if len(told) == 0 { // as after most changes; SortedFunc would allocate
		return nil
	}
	return slices.SortedFunc(maps.Keys(told), func(a, b *conn) int { return cmp.Compare(a.id, b.id) })
}
