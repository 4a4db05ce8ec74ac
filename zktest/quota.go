package zktest

// Quotas, as setquota in ZooKeeper's shell makes them: below /zookeeper/quota, the node zookeeper_limits of a path says how much
// may be there, and zookeeper_stats how much is.
//
//   - The nearest limits above a node apply to it, and only their stats count it.
//   - The stats are set when their node is created, and change with every write, without a version, zxid or event of their own.
//   - Only hard limits refuse a write, and only with [WithEnforcedQuotas]. A multi is held against the stats before it.

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

// quota is the content of limits or stats. What it does not name is -1.
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

// bytes is the content in ZooKeeper's form, which servers up to 3.4 can read too.
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

// limited returns the nearest path, from this one up, that has limits.
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

// account brings the stats up to date after a change of so many nodes and bytes at the path.
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

// startStats fills stats that have just been created.
func (t *tree) startStats(path string) {
	if top, ok := strings.CutPrefix(path, quotaRoot); ok && strings.HasSuffix(path, quotaStats) {
		q := quota{}
		t.measure(strings.TrimSuffix(top, quotaStats), q)
		t.nodes[path].data = q.bytes()
	}
}

// measure adds up what is at the path and below.
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

// allStats is the content of all stats now.
func (t *tree) allStats() map[string][]byte {
	all := make(map[string][]byte)
	for path, n := range t.nodes {
		if strings.HasPrefix(path, quotaRoot) && strings.HasSuffix(path, quotaStats) {
			all[path] = n.data
		}
	}
	return all
}

// quota refuses a change of so many nodes and bytes at the path if hard limits do.
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
