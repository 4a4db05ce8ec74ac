package zktest

// The counters that the four-letter words report: by connection for cons; for the other words by
// server, since its start or srst.

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zklock/zklock/internal/wire"
)

// latency counts replies by their duration in milliseconds.
type latency map[int64]int64

func (l latency) sum() (count, total, least, most int64) {
	for ms, n := range l {
		if count == 0 || ms < least {
			least = ms
		}
		count, total, most = count+n, total+ms*n, max(most, ms)
	}
	return count, total, least, most
}

// average returns the average in the words' format: at most four decimals, and at least one.
func (l latency) average() string {
	count, total, _, _ := l.sum()
	s := strconv.FormatFloat(math.Round(float64(total)/float64(max(count, 1))*1e4)/1e4, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// percentile returns the duration that the share p of the replies did not exceed.
func (l latency) percentile(p float64) int64 {
	count, _, _, most := l.sum()
	above := int64((1 - p) * float64(count)) // the number of replies that may have taken longer
	for _, ms := range slices.Backward(slices.Sorted(maps.Keys(l))) {
		if above -= l[ms]; above < 0 {
			return ms
		}
	}
	return most
}

// connStats holds the values that cons reports for a connection.
type connStats struct {
	received, sent int64
	opened         time.Time
	lastOp         string
	lastXid        int32
	lastZxid       int64
	lastReply      int64 // milliseconds since the server was made
	lastLatency    int64
	latency        latency
	reset          bool // by crst; until then, a real server reports 0 as the shortest latency
}

// serverStats holds the values that srvr, stat and mntr report for a server.
type serverStats struct {
	started                       time.Time
	received, sent                int64
	bytesReceived, bytesSent      int64
	connects                      int64
	lastSize, leastSize, mostSize int64 // of replies and events; -1 before the first
	reads, updates                latency
}

func newServerStats(started time.Time) serverStats {
	return serverStats{started: started, lastSize: -1, leastSize: -1, mostSize: -1, reads: latency{}, updates: latency{}}
}

// requests returns the latency of reads and updates together.
func (s *serverStats) requests() latency {
	all := maps.Clone(s.reads)
	for ms, n := range s.updates {
		all[ms] += n
	}
	return all
}

// got counts a frame or a word that has arrived.
func (cn *conn) got(bytes int) {
	cn.stats.received++
	cn.ep.stats.received++
	cn.ep.stats.bytesReceived += int64(bytes)
}

// gave counts an outgoing packet. size is the size of a reply or an event.
func (cn *conn) gave(size int64) {
	cn.stats.sent++
	s := &cn.ep.stats
	s.sent++
	if size > 0 {
		if s.leastSize < 0 || size < s.leastSize {
			s.leastSize = size
		}
		s.lastSize, s.mostSize = size, max(s.mostSize, size)
	}
}

// replied counts the reply to a request. Replies to auth and sasl do not count.
func (cn *conn) replied(req *request, h wire.ReplyHeader) {
	if req.op == wire.OpAuth || req.op == wire.OpSASL {
		return
	}
	now, s := time.Now(), &cn.stats
	s.lastOp, s.lastZxid, s.lastReply = lop(req.op, h.Err), h.Zxid, now.Sub(cn.ep.c.epoch).Milliseconds()
	if h.Xid >= 0 { // a negative xid belongs to no request that the client numbered
		s.lastXid = h.Xid
	}
	s.lastLatency = now.Sub(req.at).Milliseconds()
	s.latency[s.lastLatency]++
	if isWrite(req.op) || req.op == wire.OpConnect {
		cn.ep.stats.updates[s.lastLatency]++
	} else {
		cn.ep.stats.reads[s.lastLatency]++
	}
}
