package zktest

// The four-letter word mntr: all gauges of a real server, and the counters and latencies that this
// server has. It omits metrics of the disk, the commit processor, the virtual machine and other
// parts that no request passes through here.
//
// Telegraf, Datadog, OpenTelemetry and the Prometheus exporters forward every line, with known
// names for most gauges.

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf16"
)

// monitored collects the lines of mntr.
type monitored struct{ strings.Builder }

func (m *monitored) put(key string, value any) { fmt.Fprintf(m, "zk_%s\t%v\n", key, value) }

func (c *cluster) wordMntr(ep *endpoint) string {
	var m monitored
	s := &ep.stats
	all := s.requests()
	_, _, least, most := all.sum()
	m.put("version", c.cfg.fullVersion())
	m.put("server_state", ep.mode())
	if ep.replica != nil {
		c.putMember(&m, ep)
	}
	m.put("ephemerals_count", ep.tree.ephemeralCount())
	m.put("num_alive_connections", len(ep.clients()))
	m.put("avg_latency", all.average())
	m.put("outstanding_requests", 0)
	m.put("znode_count", len(ep.tree.nodes))
	m.put("global_sessions", len(c.sessions))
	m.put("non_mtls_remote_conn_count", 0)
	m.put("last_client_response_size", s.lastSize)
	m.put("packets_sent", s.sent)
	m.put("packets_received", s.received)
	m.put("max_client_response_size", s.mostSize)
	m.put("connection_drop_probability", "0.0")
	m.put("watch_count", ep.data.size()+ep.child.size())
	m.put("auth_failed_count", 0)
	m.put("min_latency", least)
	m.put("max_file_descriptor_count", 1<<20)
	m.put("approximate_data_size", ep.tree.dataSize())
	m.put("open_file_descriptor_count", 1+len(ep.conns))
	m.put("local_sessions", 0)
	m.put("uptime", time.Since(s.started).Milliseconds())
	m.put("max_latency", most)
	m.put("outstanding_tls_handshake", 0)
	m.put("min_client_response_size", s.leastSize)
	m.put("non_mtls_local_conn_count", 0)
	m.put("bytes_received_count", s.bytesReceived)
	m.put("connection_request_count", s.connects)
	m.put("response_bytes", s.bytesSent)
	m.putLatency("updatelatency", s.updates)
	m.putLatency("readlatency", s.reads)
	return m.String()
}

// putMember adds the lines that only a member of an ensemble has.
func (c *cluster) putMember(m *monitored, ep *endpoint) {
	m.put("quorum_size", len(c.endpoints))
	if !ep.leads() {
		m.put("peer_state", "following - broadcast")
		return
	}
	followers := len(c.quorum.inTouchWith(ep)) - 1
	m.put("peer_state", "leading - broadcast")
	m.put("learners", followers)
	m.put("synced_followers", followers)
	m.put("synced_non_voting_followers", 0)
	m.put("synced_observers", 0)
	m.put("pending_syncs", 0)
	m.put("leader_uptime", time.Since(ep.replica.since).Milliseconds())
	m.put("last_proposal_size", -1)
	m.put("min_proposal_size", -1)
	m.put("max_proposal_size", -1)
}

func (m *monitored) putLatency(name string, l latency) {
	count, total, least, most := l.sum()
	m.put("avg_"+name, l.average())
	m.put("min_"+name, least)
	m.put("max_"+name, most)
	m.put("cnt_"+name, count)
	m.put("sum_"+name, total)
	m.put("p50_"+name, l.percentile(0.5))
	m.put("p95_"+name, l.percentile(0.95))
	m.put("p99_"+name, l.percentile(0.99))
	m.put("p999_"+name, l.percentile(0.999))
}

func (t *tree) ephemeralCount() (n int) {
	for _, paths := range t.ephemerals {
		n += len(paths)
	}
	return n
}

// dataSize returns the length of all paths, in UTF-16 as Java counts it, plus the length of all
// data.
func (t *tree) dataSize() (n int) {
	for path, node := range t.nodes {
		if path == "" { // the root has two entries
			continue
		}
		for _, r := range path {
			n += utf16.RuneLen(r)
		}
		n += len(node.data)
	}
	return n
}
