//go:build linux || darwin

package command

// Attacks serve's ports for probes: the fields of a real AdminServer's answers, and metrics that
// Prometheus reads.

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// probed starts a server with both ports, and returns its addresses and what gets a page: of the
// port "commands" or "metrics".
func probed(t *testing.T, args ...string) (addrs []string, get func(port, path string) (int, string)) {
	t.Helper()
	p, addrs := serve(t, append(args, "--admin", "127.0.0.1:0", "--metrics", "127.0.0.1:0")...)
	p.prints("for development only")
	return addrs, func(port, path string) (int, string) {
		t.Helper()
		url := regexp.MustCompile(port + ` at (http://[^/]+)`).FindStringSubmatch(p.stderr.String())
		require.NotNil(t, url)
		r, err := http.NewRequestWithContext(t.Context(), "GET", url[1]+path, nil)
		require.NoError(t, err)
		return do(t, r)
	}
}

// shape has a JSON value's fields, and of what type they are; of a list, those of its first
// element.
func shape(v any) any {
	switch v := v.(type) {
	case map[string]any:
		all := map[string]any{}
		for name, value := range v {
			if regexp.MustCompile(`^\d+$`).MatchString(name) {
				name = "number"
			}
			all[name] = shape(value)
		}
		return all
	case []any:
		if len(v) == 0 {
			return "empty"
		}
		return []any{shape(v[0])}
	case float64:
		return "number"
	case bool, nil:
		return v
	}
	return "text"
}

func TestServe_Admin_AnswersHaveTheFieldsOfARealOne(t *testing.T) {
	t.Parallel()
	addrs, get := probed(t, "--listen", "127.0.0.1:0")
	conn := client(t, 10*time.Second, addrs...)
	_, err := conn.Create("/e", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	text, err := os.ReadFile("testdata/adminserver-3.8.0.json")
	require.NoError(t, err)
	var zookeeper map[string]map[string]any
	require.NoError(t, json.Unmarshal(text, &zookeeper))
	answers := map[string]map[string]any{}
	for command, want := range zookeeper {
		code, body := get("commands", "/commands/"+command)
		require.Equal(t, 200, code)
		var answer map[string]any
		require.NoError(t, json.Unmarshal([]byte(body), &answer), body)
		require.Equal(t, shape(want), shape(answer), command)
		require.Equal(t, want["command"], answer["command"])
		answers[command] = answer
	}
	require.Equal(t, "standalone", answers["mntr"]["server_state"])
	require.EqualValues(t, 6, answers["stat"]["node_count"])
	require.EqualValues(t, 2000, answers["conf"]["tick_time"])
	require.Equal(t, []any{"/e"}, slices.Collect(maps.Values(answers["dump"]["session_id_to_ephemeral_paths"].(map[string]any)))[0])

	_, body := get("commands", "/commands/ruok")
	require.Equal(t, "{\n  \"command\" : \"ruok\",\n  \"error\" : null\n}", body, "as probes with grep expect it")
	_, body = get("commands", "/commands")
	require.Contains(t, body, `<a href="/commands/server_stats">server_stats</a>`)
}

func TestServe_Metrics_AreInThePrometheusFormat(t *testing.T) {
	t.Parallel()
	addrs, get := probed(t, "--listen", "127.0.0.1:0")
	conn := client(t, 10*time.Second, addrs...)
	_, _, _, err := conn.ExistsW("/e")
	require.NoError(t, err)
	code, body := get("metrics", "/metrics")
	require.Equal(t, 200, code)
	for _, want := range []string{
		"# HELP znode_count znode_count\n# TYPE znode_count gauge\nznode_count 5\n", "\nnum_alive_connections 1\n", "\nwatch_count 1\n",
		"# TYPE connection_request_count counter\n", "# TYPE readlatency summary\nreadlatency{quantile=\"0.5\"} ", "\nreadlatency_count 1\n", "\nglobal_sessions 1\n",
		"\navg_latency ",
	} {
		require.Contains(t, body, want)
	}
	types, sample := map[string]bool{}, regexp.MustCompile(`^([a-z0-9_]+)(\{quantile="0\.\d+"\})? (\d+(\.\d+)?|-1)$`)
	for line := range strings.Lines(body + "\n") {
		if line = strings.TrimSuffix(line, "\n"); strings.HasPrefix(line, "# TYPE ") {
			name := strings.Fields(line)[2]
			require.False(t, types[name], "twice: %s", name)
			types[name] = true
		} else if !strings.HasPrefix(line, "# HELP ") {
			m := sample.FindStringSubmatch(line)
			require.NotNil(t, m, line)
			name := strings.TrimSuffix(m[1], "_count")
			require.True(t, types[m[1]] || types[strings.TrimSuffix(name, "_sum")], line)
		}
	}
	code, _ = get("metrics", "/other")
	require.Equal(t, 404, code)
}

func TestServe_Probes_OfAnEnsemble_HaveAPortForEachMember(t *testing.T) {
	t.Parallel()
	p, _ := serve(t, "--listen", "127.0.0.1:0", "--members", "3", "--admin", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--control", "127.0.0.1:0")
	p.prints("for development only")
	get := func(method, url string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
		require.NoError(t, err)
		return do(t, r)
	}
	urls := func(what string) []string {
		m := regexp.MustCompile(what + ` at (\S+)`).FindStringSubmatch(p.stderr.String())
		require.NotNil(t, m)
		return strings.Split(m[1], ",")
	}
	admin, metrics := urls("commands"), urls("metrics")
	require.Len(t, admin, 3)
	for i, state := range []string{"follower", "follower", "leader"} {
		_, body := get("GET", admin[i]+"/srvr")
		require.Contains(t, body, `"server_state" : "`+state+`"`)
		require.Equal(t, state == "leader", strings.Contains(body, `"proposal_stats"`))
		_, body = get("GET", metrics[i])
		require.Contains(t, body, "\nquorum_size 3\n")
		require.Equal(t, state == "leader", strings.Contains(body, "\nsynced_followers 2\n"))
	}
	control := urls("control")[0]
	// answers reports for each member whether its two ports answer.
	answers := func() (all []bool) {
		for i := range admin {
			both := 0
			for _, url := range []string{admin[i] + "/ruok", metrics[i]} {
				r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
				require.NoError(t, err)
				r.Close = true
				if answer, err := http.DefaultClient.Do(r); err == nil {
					_ = answer.Body.Close()
					require.Equal(t, 200, answer.StatusCode)
					both++
				} else {
					require.ErrorIs(t, err, io.EOF, "no answer")
				}
			}
			require.NotEqual(t, 1, both, "the ports agree")
			all = append(all, both == 2)
		}
		return all
	}
	for step, want := range [][]bool{{false, true, true}, {false, false, false}, {true, true, true}} {
		for _, path := range [][]string{{"/members/1/stop"}, {"/freeze"}, {"/thaw", "/members/1/start"}}[step] {
			code, _ := get("POST", control+path)
			require.Equal(t, 204, code)
		}
		require.Equal(t, want, answers())
	}
	for _, id := range []string{"2", "3"} {
		code, _ := get("POST", control+"/members/"+id+"/stop")
		require.Equal(t, 204, code)
	}
	eventually(t, "a member without a majority does not serve", func() bool {
		_, body := get("GET", admin[0]+"/srvr")
		return strings.Contains(body, `"error" : "This ZooKeeper instance is not currently serving requests"`)
	})
}
