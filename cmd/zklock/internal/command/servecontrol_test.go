//go:build linux || darwin

package command

// Attacks the control port of serve, as a test in another language uses it, and the flags that make
// the server another.

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/rawzk"
	"github.com/zklock/zklock/zktest"
)

// controlled starts a server with a control port, and returns its addresses and what makes requests
// of the port.
func controlled(t *testing.T, args ...string) (addrs []string, ask func(method, path, body string) (int, string)) {
	t.Helper()
	p, addrs := serve(t, append(args, "--control", "127.0.0.1:0")...)
	p.prints("for development only") // the line after the one with the port
	url := regexp.MustCompile(`control at (http://\S+)`).FindStringSubmatch(p.stderr.String())
	require.NotNil(t, url)
	return addrs, func(method, path, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, url[1]+path, strings.NewReader(body))
		require.NoError(t, err)
		return do(t, r)
	}
}

func do(t *testing.T, r *http.Request) (int, string) {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := c.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, strings.TrimSpace(string(text))
}

func TestServe_Control_FaultsAndSessions(t *testing.T) {
	addrs, ask := controlled(t, "--listen", "127.0.0.1:0")
	conn := client(t, 10*time.Second, addrs...)
	_, err := conn.Create("/e", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)

	code, said := ask("POST", "/faults", `Before(delete).Path("/e").Once().Fail(-102)`)
	require.Equal(t, 200, code)
	require.JSONEq(t, `{"id":1,"fault":"Before(delete).Path(\"/e\").Once().Fail(no auth (-102))","fired":0}`, said)
	require.ErrorIs(t, conn.Delete("/e", -1), zk.ErrNoAuth)
	_, said = ask("GET", "/faults", "")
	require.JSONEq(t, `[{"id":1,"fault":"Before(delete).Path(\"/e\").Once().Fail(no auth (-102))","fired":1}]`, said)
	for body, say := range map[string]string{"nonsense": "name(argument)", "Before(create).DropReply()": "only After"} {
		code, said := ask("POST", "/faults", body)
		require.Equal(t, 400, code)
		require.Contains(t, said, say)
		require.NotContains(t, said, "zktest:")
	}

	ask("POST", "/faults", `Before(exists).Once().Hold()`)
	answered := make(chan error, 1)
	go func() { _, _, err := conn.Exists("/e"); answered <- err }()
	eventually(t, "the fault holds a request", func() bool { _, said := ask("GET", "/faults", ""); return strings.Count(said, `"fired":1`) == 2 })
	code, _ = ask("POST", "/faults/2/release", "")
	require.Equal(t, 204, code)
	require.NoError(t, <-answered)
	code, _ = ask("DELETE", "/faults/2", "")
	require.Equal(t, 204, code)
	code, _ = ask("DELETE", "/faults/2", "")
	require.Equal(t, 400, code)
	ask("DELETE", "/faults", "")
	_, said = ask("GET", "/faults", "")
	require.Equal(t, "[]", said)

	_, said = ask("GET", "/sessions", "")
	require.Contains(t, said, `"connected":true`)
	require.Contains(t, said, `"ephemerals":["/e"]`)
	id := regexp.MustCompile(`0x[0-9a-f]+`).FindString(said)
	code, _ = ask("DELETE", "/sessions/"+id, "")
	require.Equal(t, 204, code)
	_, said = ask("GET", "/dump", "")
	require.NotContains(t, said, "/e ")
	code, _ = ask("DELETE", "/sessions/"+id, "")
	require.Equal(t, 400, code)
}

func TestServe_Control_MembersKeepTheirState(t *testing.T) {
	t.Parallel()
	addrs, ask := controlled(t, "--listen", "127.0.0.1:0")
	conn := client(t, 10*time.Second, addrs...)
	_, err := conn.Create("/e", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	id := conn.SessionID()
	code, _ := ask("POST", "/members/1/stop", "")
	require.Equal(t, 204, code)
	_, err = rawzk.Word(addrs[0], "srvr")
	require.Error(t, err)
	code, _ = ask("POST", "/members/1/start", "")
	require.Equal(t, 204, code)
	eventually(t, "the client is back", func() bool { there, _, err := conn.Exists("/e"); return err == nil && there })
	require.Equal(t, id, conn.SessionID())
	for _, path := range []string{"/members/2/stop", "/members/1/isolate", "/members/1/burn"} {
		code, _ = ask("POST", path, "")
		require.Equal(t, 400, code, path)
	}

	addrs, ask = controlled(t, "--listen", "127.0.0.1:0", "--members", "3", "--tick", "100ms")
	_, said := ask("GET", "/members", "")
	require.Equal(t, 1, strings.Count(said, `"role":"leader"`))
	code, _ = ask("POST", "/members/3/isolate", "")
	require.Equal(t, 204, code)
	eventually(t, "another leads", func() bool { _, said := ask("GET", "/members", ""); return strings.Contains(said, `"role":"looking"`) })
	ask("POST", "/heal", "")
	eventually(t, "all serve", func() bool { _, said := ask("GET", "/members", ""); return !strings.Contains(said, `"role":"looking"`) })
	code, _ = ask("POST", "/members/2/freeze", "")
	require.Equal(t, 204, code)
	_, err = rawzk.WordWithin(addrs[1], "srvr", 100*time.Millisecond)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	code, _ = ask("POST", "/members/2/thaw", "")
	require.Equal(t, 204, code)
	_, err = rawzk.Word(addrs[1], "srvr")
	require.NoError(t, err)
	eventually(t, "all serve", func() bool { _, said := ask("GET", "/members", ""); return !strings.Contains(said, `"role":"looking"`) })
	code, _ = ask("POST", "/members/1/lag?for=1s", "")
	require.Equal(t, 204, code)
	code, _ = ask("POST", "/members/1/lag", "")
	require.Equal(t, 400, code)
}

// A suite in another language prepares the server for a test, looks at it, and empties it for the
// next test.
func TestServe_Control_BetweenTests(t *testing.T) {
	t.Parallel()
	addrs, ask := controlled(t, "--listen", "127.0.0.1:0")
	conn := client(t, 10*time.Second, addrs...)
	code, said := ask("POST", "/load", `{"/app/config": "a=1"}`)
	require.Equal(t, 204, code, said)
	data, _, err := conn.Get("/app/config")
	require.NoError(t, err)
	require.Equal(t, "a=1", string(data))
	_, snapshot := ask("GET", "/snapshot", "")
	require.Contains(t, snapshot, `"path":"/app/config","data":"YT0x"`)
	_, err = conn.Create("/e", []byte("x"), zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	before := conn.SessionID()
	_, said = ask("GET", "/history", "")
	require.Regexp(t, fmt.Sprintf(`\{"kind":"created","path":"/e","session":"%#[1]x","owner":"%#[1]x","zxid":"0x[0-9a-f]+","time":"[^"]+","data":"eA=="\}`, before), said)
	_, said = ask("GET", "/sessions", "")
	require.Contains(t, said, `"member":1`)

	code, _ = ask("POST", "/reset", "")
	require.Equal(t, 204, code)
	_, said = ask("GET", "/dump", "")
	require.NotContains(t, said, "/app")
	require.NotContains(t, said, fmt.Sprintf("%#x", before))
	_, said = ask("GET", "/history", "")
	require.NotContains(t, said, "/app")
	eventually(t, "the client has a new session", func() bool { there, _, err := conn.Exists("/app"); return err == nil && !there })
	code, _ = ask("PUT", "/snapshot", snapshot)
	require.Equal(t, 204, code)
	data, _, err = conn.Get("/app/config")
	require.NoError(t, err)
	require.Equal(t, "a=1", string(data))
	for path, body := range map[string]string{"/load": `{"a": ""}`, "/snapshot": `[{"path": "a"}]`, "/elect": "", "/partition": "[[1]]"} {
		method := "POST"
		if path == "/snapshot" {
			method = "PUT"
		}
		code, said := ask(method, path, body)
		require.Equal(t, 400, code, path)
		require.NotRegexp(t, "^zktest:", said)
	}

	_, ask = controlled(t, "--listen", "127.0.0.1:0", "--members", "3", "--tick", "100ms")
	code, _ = ask("POST", "/elect", "")
	require.Equal(t, 204, code)
	eventually(t, "all serve", func() bool { _, said := ask("GET", "/members", ""); return !strings.Contains(said, `"role":"looking"`) })
	code, _ = ask("POST", "/partition", "[[1, 2], [3]]")
	require.Equal(t, 204, code)
	leads := regexp.MustCompile(`"id":[12],"address":"[^"]*","role":"leader"`)
	eventually(t, "one of the two leads, and the third looks", func() bool {
		_, said := ask("GET", "/members", "")
		return leads.MatchString(said) && strings.Contains(said, `"role":"looking"`)
	})
	code, _ = ask("POST", "/heal", "")
	require.Equal(t, 204, code)
	eventually(t, "all serve", func() bool { _, said := ask("GET", "/members", ""); return !strings.Contains(said, `"role":"looking"`) })
}

func TestServe_Control_RefusesBrowsers(t *testing.T) {
	_, ask := controlled(t, "--listen", "127.0.0.1:0")
	_, help := ask("GET", "/", "")
	require.Equal(t, strings.TrimSpace(controlHelp), help)
	p, _ := serve(t, "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0")
	p.prints("for development only")
	url := regexp.MustCompile(`http://\S+`).FindString(p.stderr.String())
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/freeze", nil)
	require.NoError(t, err)
	r.Header.Set("Origin", "http://example.org")
	code, _ := do(t, r)
	require.Equal(t, http.StatusForbidden, code)
}

func TestServe_IsTheServerThatTheFlagsSay(t *testing.T) {
	_, addrs := serve(t, "--listen", "127.0.0.1:0", "--zookeeper-version", "3.9.3", "--super-digest", zktest.Digest("root:secret"),
		"--ttl-nodes", "--enforce-quotas", "--container-check", "100ms", "--whitelist", "ruok, mntr")
	answer, err := rawzk.Word(addrs[0], "ruok")
	require.NoError(t, err)
	require.Equal(t, "imok", answer)
	answer, err = rawzk.Word(addrs[0], "mntr")
	require.NoError(t, err)
	require.Contains(t, answer, "zk_server_state\tstandalone\n")
	answer, err = rawzk.Word(addrs[0], "srvr")
	require.NoError(t, err)
	require.Contains(t, answer, "Zookeeper version: 3.9.3-")
	answer, err = rawzk.Word(addrs[0], "cons")
	require.NoError(t, err)
	require.Contains(t, answer, "not in the whitelist")

	conn := client(t, 10*time.Second, addrs...)
	_, err = conn.Create("/locked", nil, 0, []zk.ACL{})
	require.Error(t, err)
	_, err = conn.Create("/locked", nil, 0, zk.DigestACL(zk.PermAll, "u", "p"))
	require.NoError(t, err)
	_, err = conn.Set("/locked", nil, -1)
	require.ErrorIs(t, err, zk.ErrNoAuth)
	require.NoError(t, conn.AddAuth("digest", []byte("root:secret")))
	_, err = conn.Set("/locked", nil, -1)
	require.NoError(t, err)
	_, err = conn.CreateTTL("/ttl", nil, zk.FlagTTL, zk.WorldACL(zk.PermAll), time.Millisecond)
	require.NoError(t, err)
	eventually(t, "the TTL node goes", func() bool { there, _, err := conn.Exists("/ttl"); return err == nil && !there })
	for path, data := range map[string]string{"/q": "", "/zookeeper/quota/q": ""} {
		_, err = conn.Create(path, []byte(data), 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	for path, data := range map[string]string{"/zookeeper_limits": "count=-1,bytes=-1=;byteHardLimit=3", "/zookeeper_stats": "count=0,bytes=0"} {
		_, err = conn.Create("/zookeeper/quota/q"+path, []byte(data), 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	_, err = conn.Set("/q", []byte("four"), -1)
	require.ErrorContains(t, err, "-125")
}
