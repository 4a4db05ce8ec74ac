package command

// The HTTP ports that operators' probes use: the commands of ZooKeeper's AdminServer, and the page
// of its PrometheusMetricsProvider. Both are made from the four-letter words, which contain the
// same values.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/zklock/zklock/zktest"
)

type adminMember struct {
	zktestMember
	sessions func() []zktest.Session // of all servers
	secure   bool                    // its clients connect over TLS
}

type zktestMember interface {
	Word(word string) string
	Zxid() int64
}

func adminMembers(srv zkServer, secure bool) (all []adminMember) {
	if e, ok := srv.(*zktest.Ensemble); ok {
		for _, m := range e.Members() {
			all = append(all, adminMember{m, srv.Sessions, secure})
		}
		return all
	}
	return []adminMember{{srv.(single), srv.Sessions, secure}}
}

// serveHTTP serves an address until stop is called, which returns after the last request.
func serveHTTP(addr string, handler http.Handler) (url string, stop func(), err error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return "", nil, err
	}
	s := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(ln) })
	return "http://" + ln.Addr().String(), func() { _ = s.Close(); serving.Wait() }, nil
}

// fields is a JSON object whose fields keep their order.
type fields []field

type field struct {
	name  string
	value any
}

// MarshalJSON returns the object.
func (f fields) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	for i, one := range f {
		name, _ := json.Marshal(one.name)
		value, err := json.Marshal(one.value)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%c%s:%s", "{,"[min(i, 1)], name, value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// adminCommands are the commands by name. The reply has the first name.
var adminCommands = []struct {
	names []string
	do    func(adminMember) fields
}{
	{[]string{"configuration", "conf", "config"}, adminMember.configuration},
	{[]string{"dump"}, adminMember.dump},
	{[]string{"is_read_only", "isro"}, func(adminMember) fields { return fields{{"read_only", false}} }},
	{[]string{"monitor", "mntr"}, func(m adminMember) fields { return m.monitored() }},
	{[]string{"ruok"}, func(adminMember) fields { return nil }},
	{[]string{"server_stats", "srvr"}, adminMember.serverStats},
	{[]string{"stats", "stat"}, adminMember.stats},
}

// whileUp closes the connection without a reply if the server is stopped or frozen: a probe has to
// fail then.
func (m adminMember) whileUp(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if m.Word("ruok") == "" {
			panic(http.ErrAbortHandler)
		}
		handler.ServeHTTP(w, r)
	})
}

// adminHandler replies as the AdminServer does: the status is 200 for an error, too.
func adminHandler(m adminMember) http.Handler {
	mux := http.NewServeMux()
	list := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		for _, c := range adminCommands {
			fmt.Fprintf(w, "<a href=\"/commands/%s\">%[1]s</a>\n<br/>\n", c.names[0])
		}
	}
	mux.HandleFunc("GET /commands", list)
	mux.HandleFunc("GET /commands/{$}", list)
	mux.HandleFunc("GET /commands/{command}", func(w http.ResponseWriter, r *http.Request) {
		answer := m.command(r.PathValue("command"))
		text, err := json.MarshalIndent(answer, "", "  ")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(jsonName.ReplaceAll(text, []byte("$1 : ")))
	})
	return m.whileUp(mux)
}

// jsonName is a field's name. ZooKeeper writes a space after it, which probes that use grep expect.
var jsonName = regexp.MustCompile(`(?m)^( *"(?:[^"\\]|\\.)*"): `)

func (m adminMember) command(name string) fields {
	for _, c := range adminCommands {
		switch {
		case !slices.Contains(c.names, name):
			continue
		case m.Word("isro") != "rw":
			return fields{{"command", name}, {"error", "This ZooKeeper instance is not currently serving requests"}}
		}
		return append(c.do(m), field{"command", c.names[0]}, field{"error", nil})
	}
	return fields{{"command", name}, {"error", "Unknown command: " + name}}
}

func asValue(s string) any {
	if _, err := strconv.ParseFloat(s, 64); err == nil && json.Valid([]byte(s)) {
		return json.Number(s)
	}
	return s
}

func (m adminMember) monitored() (all fields) {
	for line := range strings.Lines(m.Word("mntr")) {
		if name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); ok {
			all = append(all, field{strings.TrimPrefix(name, "zk_"), asValue(value)})
		}
	}
	return all
}

func (f fields) get(name string) any {
	if i := slices.IndexFunc(f, func(f field) bool { return f.name == name }); i >= 0 {
		return f[i].value
	}
	return nil
}

func (m adminMember) configuration() (all fields) {
	conf := map[string]string{}
	for line := range strings.Lines(m.Word("conf")) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		conf[key] = value
	}
	for _, key := range []string{
		"clientPort", "dataDir", "dataLogDir", "tickTime", "maxClientCnxns", "minSessionTimeout", "maxSessionTimeout", "serverId", "clientPortListenBacklog",
	} {
		name := regexp.MustCompile(`[A-Z]`).ReplaceAllStringFunc(key, func(s string) string { return "_" + strings.ToLower(s) })
		all = append(all, field{name, asValue(conf[key])})
	}
	return all
}

// dump lists sessions by their expiry in milliseconds since 1970, which only a leader has.
// ZooKeeper lists them by a clock of its own.
func (m adminMember) dump() fields {
	expire, ephemerals := map[string][]int64{}, map[string][]string{}
	follows := m.monitored().get("server_state") == "follower"
	for _, s := range m.sessions() {
		if at := strconv.FormatInt(s.Expires.UnixMilli(), 10); !follows {
			expire[at] = append(expire[at], s.ID)
		}
		if len(s.Ephemerals) > 0 {
			ephemerals[strconv.FormatInt(s.ID, 10)] = s.Ephemerals
		}
	}
	return fields{{"expiry_time_to_session_ids", expire}, {"session_id_to_ephemeral_paths", ephemerals}}
}

func (m adminMember) serverStats() fields {
	now := m.monitored()
	sizes := func(what string) (f fields) {
		for _, which := range []string{"last", "min", "max"} {
			f = append(f, field{which + "_buffer_size", now.get(which + "_" + what + "_size")})
		}
		return f
	}
	responses := sizes("client_response")
	all := fields{{"version", now.get("version")}, {"read_only", false}, {"server_stats", fields{
		{"packets_sent", now.get("packets_sent")},
		{"packets_received", now.get("packets_received")},
		{"fsync_threshold_exceed_count", 0},
		{"client_response_stats", responses},
		{"data_dir_size", 0},
		{"log_dir_size", 0},
		{"provider_null", false},
		{"server_state", now.get("server_state")},
		{"last_processed_zxid", m.Zxid()},
		{"outstanding_requests", now.get("outstanding_requests")},
		{"avg_latency", now.get("avg_latency")},
		{"max_latency", now.get("max_latency")},
		{"min_latency", now.get("min_latency")},
		{"num_alive_client_connections", now.get("num_alive_connections")},
		{"uptime", now.get("uptime")},
		{"auth_failed_count", now.get("auth_failed_count")},
		{"non_mtlsremote_conn_count", now.get("non_mtls_remote_conn_count")},
		{"non_mtlslocal_conn_count", now.get("non_mtls_local_conn_count")},
	}}, {"client_response", responses}}
	if now.get("server_state") == "leader" {
		all = append(all, field{"proposal_stats", sizes("proposal")})
	}
	return append(all, field{"node_count", now.get("znode_count")})
}

var statLine = regexp.MustCompile(`(?m)^ /(\S+)\[(\d+)\]\(queued=(\d+),recved=(\d+),sent=(\d+)\)$`)

func (m adminMember) stats() fields {
	plain, secure := []fields{}, []fields{}
	for _, c := range statLine.FindAllStringSubmatch(m.Word("stat"), -1) {
		info := fields{
			{"remote_socket_address", c[1]}, {"interest_ops", asValue(c[2])}, {"outstanding_requests", asValue(c[3])},
			{"packets_received", asValue(c[4])}, {"packets_sent", asValue(c[5])},
		}
		if m.secure {
			secure = append(secure, info)
		} else {
			plain = append(plain, info)
		}
	}
	return append(m.serverStats(), field{"connections", plain}, field{"secure_connections", secure})
}

// metricsHandler serves /metrics, an empty page while a member serves no clients.
func metricsHandler(m adminMember) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write(m.metrics())
	})
	return m.whileUp(mux)
}

// countersOfServer are the values of mntr that only increase.
var countersOfServer = []string{"bytes_received_count", "connection_request_count", "response_bytes"}

// metrics returns mntr in Prometheus's text format, under ZooKeeper's names. The latencies of reads
// and of updates are summaries.
func (m adminMember) metrics() []byte {
	var b bytes.Buffer
	now := m.monitored()
	for _, f := range now {
		value, number := f.value.(json.Number)
		if !number || strings.HasSuffix(f.name, "latency") && now.get("cnt_"+f.name[strings.IndexByte(f.name, '_')+1:]) != nil {
			continue
		}
		kind := "gauge"
		if slices.Contains(countersOfServer, f.name) {
			kind = "counter"
		}
		fmt.Fprintf(&b, "# HELP %[1]s %[1]s\n# TYPE %[1]s %[2]s\n%[1]s %[3]s\n", f.name, kind, value)
	}
	for _, name := range []string{"readlatency", "updatelatency"} {
		if now.get("cnt_"+name) != nil {
			fmt.Fprintf(&b, "# HELP %[1]s %[1]s\n# TYPE %[1]s summary\n%[1]s{quantile=\"0.5\"} %[2]v\n%[1]s{quantile=\"0.99\"} %[3]v\n%[1]s_count %[4]v\n%[1]s_sum %[5]v\n",
				name, now.get("p50_"+name), now.get("p99_"+name), now.get("cnt_"+name), now.get("sum_"+name))
		}
	}
	return b.Bytes()
}
