package conformance

// These tests compare the four-letter words: zktest sends the same bytes as a real server, except
// for values that cannot be equal.

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/rawzk"
	"github.com/zklock/zklock/internal/wire"
	"github.com/zklock/zklock/zktest"
)

const wordsSaid = "testdata/words-3.8.0.txt"

// words are asked after the requests of askWords. Words with counts are first: a long reply counts
// as several packets.
var words = []string{"ruok", "isro", "conf", "cons", "dump", "srvr", "stat", "wchs", "wchc", "wchp", "dirs", "gtmk", "nope", "RUOK",
	"mntr", "envi", "hash", "crst", "cons"}

// notEqual lists values that differ between any two servers: build, addresses, ids, times and
// latencies, the location of the data, and the environment. The form of each is compared.
var notEqual = []struct {
	what *regexp.Regexp
	as   string
}{
	{regexp.MustCompile(`3\.\d\.\d+-[^,\n]+, built on \d{4}-\d\d-\d\d \d\d:\d\d UTC`), "VERSION"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "ADDRESS"},
	{regexp.MustCompile(`0x1[0-9a-f]{14}`), "SESSION"},
	{regexp.MustCompile(`[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d [A-Z]+ \d{4}`), "DATE"},
	{regexp.MustCompile(`(?m)^0 expire at DATE:\n`), ""}, // a set that a sign of life has just emptied
	{regexp.MustCompile(`Sets \(\d+\)/`), "Sets (N)/"},
	{regexp.MustCompile(`\b(est|lresp|[a-z]*lat|clientPort|data(Log|Dir)Size)=\d+`), "$1=N"},
	{regexp.MustCompile(`max: \d+/\d+\.\d+/\d+`), "max: N/N.N/N"},
	{regexp.MustCompile(`(?m)^(data|log)dir_size: \d+`), "${1}dir_size: N"},
	{regexp.MustCompile(`(?m)^(zk_(?:(?:avg|min|max|sum|p\d+)_[a-z]*latency|[a-z_]*uptime|(?:open|max)_file_descriptor_count))\t[0-9.]+$`), "$1\tN"},
	{regexp.MustCompile(`(?m)^(data(?:Log)?Dir|host\.name|java\.[a-z.]+|os\.[a-z]+|user\.[a-z]+)=.*`), "$1=…"},
	{regexp.MustCompile(`(?m)^(os\.memory\.[a-z]+)=\d+MB`), "$1=NMB"},
	{regexp.MustCompile(`\[[01]\](\(.*sid=)`), "[N]$1"}, // a server may still be about to read on
}

// gauges are the keys of mntr that are compared: those that Telegraf, OpenTelemetry, Datadog,
// Elastic's beat, collectd or a Prometheus exporter uses by name, and further ones of the request
// path.
var gauges = strings.Fields(`zk_version zk_server_state zk_ephemerals_count zk_num_alive_connections zk_avg_latency
	zk_outstanding_requests zk_znode_count zk_global_sessions zk_non_mtls_remote_conn_count zk_last_client_response_size
	zk_packets_sent zk_packets_received zk_max_client_response_size zk_connection_drop_probability zk_watch_count
	zk_auth_failed_count zk_min_latency zk_max_file_descriptor_count zk_approximate_data_size zk_open_file_descriptor_count
	zk_local_sessions zk_uptime zk_max_latency zk_outstanding_tls_handshake zk_min_client_response_size zk_non_mtls_local_conn_count
	zk_bytes_received_count zk_connection_request_count zk_response_bytes
	zk_avg_updatelatency zk_min_updatelatency zk_max_updatelatency zk_cnt_updatelatency zk_sum_updatelatency zk_p50_updatelatency
	zk_p95_updatelatency zk_p99_updatelatency zk_p999_updatelatency zk_avg_readlatency zk_min_readlatency zk_max_readlatency
	zk_cnt_readlatency zk_sum_readlatency zk_p50_readlatency zk_p95_readlatency zk_p99_readlatency zk_p999_readlatency`)

// askWords makes some requests on a fresh server, asks it for all words, and returns the replies.
func askWords(t *testing.T, addr string) string {
	t.Helper()
	open := []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "world", ID: "anyone"}}}
	_, err := rawzk.Word(addr, "srst") // the check whether it serves may have counted
	require.NoError(t, err)
	c, err := rawzk.Dial(addr)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.Connect(wire.ConnectRequest{Timeout: 30_000}))
	for _, r := range []request{
		{op: wire.OpCreate, body: wire.CreateRequest{Path: "/e", Data: []byte("x"), ACL: open, Flags: wire.FlagEphemeral}},
		{op: wire.OpGetChildren, body: wire.PathWatchRequest{Path: "/", Watch: true}},
		{op: wire.OpExists, body: wire.PathWatchRequest{Path: "/zzz", Watch: true}},
		{op: wire.OpGetData, body: wire.PathWatchRequest{Path: "/e", Watch: true}},
		{op: wire.OpSetData, body: wire.SetDataRequest{Path: "/e", Data: []byte("xy"), Version: -1}}, // and an event
		{op: wire.OpDelete, body: wire.PathVersionRequest{Path: "/none", Version: -1}},
		{op: wire.OpPing},
		{op: wire.OpGetData, body: wire.PathWatchRequest{Path: "/e", Watch: true}},
	} {
		_, _, err := c.Call(r.op, r.body)
		require.NoError(t, err)
	}
	var said strings.Builder
	for _, word := range words {
		answer, err := rawzk.Word(addr, word)
		if err != nil {
			answer = "" // closed with a reset or without
		}
		for _, n := range notEqual {
			answer = n.what.ReplaceAllString(answer, n.as)
		}
		lines := strings.SplitAfter(answer, "\n")
		if word == "mntr" {
			lines = slices.DeleteFunc(lines, func(line string) bool { return !slices.Contains(gauges, strings.Split(line, "\t")[0]) })
			slices.Sort(lines)
		}
		at := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, " /") })
		for end := at; at >= 0 && end <= len(lines); end++ { // connections have no order
			if end == len(lines) || !strings.HasPrefix(lines[end], " /") {
				slices.Sort(lines[at:end])
				break
			}
		}
		said.WriteString("== " + word + "\n" + strings.Join(lines, "") + "\n")
	}
	return said.String()
}

// TestWords compares our server with the recorded replies of a real one, and with the installed
// one. The file is recorded like the transcripts (see TestDifferential_Transcript).
func TestWords(t *testing.T) {
	ours := askWords(t, zktest.Start(t, zktest.WithConfig("4lw.commands.whitelist=*", "maxClientCnxns=0")).Addr())
	if !*recordFlag {
		said, err := os.ReadFile(wordsSaid)
		require.NoError(t, err)
		require.Equal(t, strings.ReplaceAll(string(said), "\r\n", "\n"), ours)
	}
	real := askWords(t, startReal(t))
	if *recordFlag {
		require.NoError(t, os.WriteFile(wordsSaid, []byte(real), 0o644))
	}
	require.Equal(t, real, ours)
}
