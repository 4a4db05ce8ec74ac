package zktest

// Quotas, as setquota in ZooKeeper's shell creates them. Below /zookeeper/quota, the node
// zookeeper_limits of a path holds the limits, and zookeeper_stats the current numbers.
//
//   - Only the nearest limits above a node apply to it, and only their stats count it.
//   - The stats are set when their node is created, and change with every write, without a version,
//     zxid or event of their own.
//   - Only hard limits reject a write, and only with enforceQuota=true ([WithConfig]). A multi is
//     compared with the stats before it.

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/zklock/zklock/internal/wire"
)

const (
	quotaRoot   = "/zookeeper/quota"
	quotaLimits = "/zookeeper_limits"
	quotaStats  = "/zookeeper_stats"
)

// quota is the content of limits or stats. A value that is missing there is -1.
type quota map[string]int64

func parseQuota(data []byte) quota {
	q := quota{"count": -1, "bytes": -1}
	for _, field := range strings.FieldsFunc(string(data), func(r rune) bool { return r == ',' || r == ';' }) {
		parts := strings.Split(field, "=")
		if n, err := strconv.ParseInt(parts[min(1, len(parts)-1)], 10, 64); err == nil {
			q[parts[0]] = n
		}
	}
	return q
}

// bytes returns the content in ZooKeeper's format, which servers up to 3.4 can read, too.
func (q quota) bytes() []byte {
	s := fmt.Sprintf("count=%d,bytes=%d", q["count"], q["bytes"])
	between := "=;"
	for _, key := range slices.Sorted(maps.Keys(q)) {
		if key != "count" && key != "bytes" {
			s += fmt.Sprintf("%s%s=%d", between, key, q[key])
			between = ";"
		}
	}
	return []byte(s)
}

// limited returns the nearest path that has limits: this path or one above it.
func (t *tree) limited(path string) (string, bool) {
	if len(t.nodes[quotaRoot].children) == 0 {
		return "", false
	}
	for path != "" && path != "/" {
		if t.nodes[quotaRoot+path+quotaLimits] != nil {
			return path, true
		}
		path, _ = splitPath(path)
	}
	return "", false
}

// account updates the stats after a change of this many nodes and bytes at the path.
func (t *tree) account(path string, count, bytes int64) (undo func()) {
	undo = func() {}
	top, ok := t.limited(path)
	if stats := t.nodes[quotaRoot+top+quotaStats]; ok && stats != nil {
		before := stats.data
		q := parseQuota(before)
		q["count"] += count
		q["bytes"] += bytes
		stats.data = q.bytes()
		undo = func() { stats.data = before }
	}
	return undo
}

func (t *tree) startStats(path string) {
	if top, ok := strings.CutPrefix(path, quotaRoot); ok && strings.HasSuffix(path, quotaStats) {
		q := quota{}
		t.measure(strings.TrimSuffix(top, quotaStats), q)
		t.nodes[path].data = q.bytes()
	}
}

// measure adds the nodes and bytes at and below the path to q.
func (t *tree) measure(path string, q quota) {
	n := t.nodes[path]
	if n == nil {
		return
	}
	q["count"]++
	q["bytes"] += int64(len(n.data))
	for name := range n.children {
		t.measure(path+"/"+name, q)
	}
}

func (t *tree) allStats() map[string][]byte {
	all := make(map[string][]byte)
	for path, n := range t.nodes {
		if strings.HasPrefix(path, quotaRoot) && strings.HasSuffix(path, quotaStats) {
			all[path] = n.data
		}
	}
	return all
}

// quota returns an error if hard limits forbid a change of this many nodes and bytes at the path.
func (r rules) quota(path string, count, bytes int64) error {
	top, ok := r.tree.limited(path)
	if !ok || !r.quotas {
		return nil
	}
	var stats []byte
	if r.stats != nil {
		stats = r.stats[quotaRoot+top+quotaStats]
	} else if n := r.tree.nodes[quotaRoot+top+quotaStats]; n != nil {
		stats = n.data
	}
	if stats == nil {
		return nil
	}
	limits, now := parseQuota(r.tree.nodes[quotaRoot+top+quotaLimits].data), parseQuota(stats)
	for _, what := range []struct {
		hard, key string
		change    int64
	}{{"countHardLimit", "count", count}, {"byteHardLimit", "bytes", bytes}} {
		limit, limited := limits[what.hard]
		if limited && limit > -1 && what.change != 0 && now[what.key]+what.change > limit {
			return wire.QuotaExceeded
		}
	}
	return nil
}
