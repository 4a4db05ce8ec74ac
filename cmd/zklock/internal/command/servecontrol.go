package command

// The control port of serve lets tests in other languages do to a server what a test in Go does to
// zktest's. Like toxiproxy's, it is HTTP.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/zklock/zklock/zktest"
)

const controlHelp = `GET    /faults                all faults, and how often each has fired
POST   /faults                a fault as Go writes it: After(create).Path("/locks/*").Once().DropReply().Close()
POST   /faults/ID/release     release the requests that its Hold() holds
DELETE /faults/ID             end it
DELETE /faults                end all
GET    /sessions
POST   /sessions/ID/drop      cut its connection
DELETE /sessions/ID           expire it
POST   /freeze, /thaw         no replies, until /thaw
GET    /members
POST   /members/N/stop        its nodes and sessions stay, until
POST   /members/N/start
POST   /members/N/isolate     cut it off from the other members
POST   /members/N/freeze      stop it as a debugger would, until /thaw
POST   /members/N/lag?for=2s  let it show changes late
POST   /heal                  end all isolation and partitions
POST   /partition             cut groups of members off from each other: [[1, 2], [3]]
POST   /elect                 make the leader step down
GET    /dump                  nodes, sessions and watches, as text
GET    /history               the changes that the server made, with their sessions and times
POST   /reset                 end all sessions, delete all nodes, clear the history; faults stay
POST   /load                  create nodes, or set their data: {"/config": "a=1"}
GET    /snapshot              the nodes, as JSON
PUT    /snapshot              make the nodes what such a JSON has
`

type control struct {
	srv zkServer

	mu struct {
		sync.Mutex // never held across a call that waits
		faults     map[int]*zktest.Injection
		last       int
	}
}

// serveControl serves the port until stop is called, which returns after the last request.
func serveControl(addr string, srv zkServer) (url string, stop func(), err error) {
	c := &control{srv: srv}
	c.mu.faults = make(map[int]*zktest.Injection)
	return serveHTTP(addr, c.handler())
}

func (c *control) handler() http.Handler {
	mux := http.NewServeMux()
	on := func(pattern string, do func(*http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Origin") != "" { // a page in a browser
				http.Error(w, "not for browsers", http.StatusForbidden)
				return
			}
			what, err := do(r)
			text, isText := what.(string)
			switch {
			case err != nil:
				http.Error(w, err.Error(), http.StatusBadRequest)
			case what == nil:
				w.WriteHeader(http.StatusNoContent)
			case isText:
				_, _ = io.WriteString(w, text)
			default:
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(what)
			}
		})
	}
	on("GET /{$}", func(*http.Request) (any, error) { return controlHelp, nil })
	on("GET /dump", func(*http.Request) (any, error) { return c.srv.Dump(), nil })
	on("POST /freeze", func(*http.Request) (any, error) { c.srv.Freeze(); return nil, nil })
	on("POST /thaw", func(*http.Request) (any, error) { c.srv.Thaw(); return nil, nil })
	on("GET /faults", c.faults)
	on("POST /faults", c.inject)
	on("POST /faults/{id}/release", c.withFault(false, (*zktest.Injection).Release))
	on("DELETE /faults/{id}", c.withFault(true, (*zktest.Injection).Remove))
	on("DELETE /faults", c.removeAll)
	on("GET /sessions", c.sessions)
	on("POST /sessions/{id}/drop", c.withSession(c.srv.DropConnection))
	on("DELETE /sessions/{id}", c.withSession(c.srv.ExpireSession))
	on("GET /members", c.members)
	on("POST /members/{id}/{act}", c.member)
	on("POST /heal", c.heal)
	on("POST /elect", func(*http.Request) (any, error) { return nil, c.together((*zktest.Ensemble).Elect) })
	on("POST /partition", withBody(func(groups [][]int) error { return c.together(func(e *zktest.Ensemble) { e.Partition(groups...) }) }))
	on("GET /history", c.history)
	on("POST /reset", func(*http.Request) (any, error) { c.srv.Reset(); return nil, nil })
	on("POST /load", withBody(func(nodes map[string]string) error { return c.srv.Load(nodes) }))
	on("GET /snapshot", func(*http.Request) (any, error) { return c.srv.Snapshot(), nil })
	on("PUT /snapshot", withBody(func(nodes zktest.Snapshot) error { c.srv.Restore(nodes); return nil }))
	return mux
}

// withBody passes the JSON of a request to do.
func withBody[T any](do func(T) error) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		var body T
		err := json.NewDecoder(io.LimitReader(r.Body, dataLimit)).Decode(&body)
		if err == nil {
			err = do(body)
		}
		if err != nil {
			return nil, trim(err)
		}
		return nil, nil
	}
}

// faultInfo is a fault as the port reports it.
type faultInfo struct {
	ID    int    `json:"id"`
	Fault string `json:"fault"`
	Fired int    `json:"fired"`
}

func (c *control) faults(*http.Request) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := []faultInfo{}
	for _, id := range slices.Sorted(maps.Keys(c.mu.faults)) {
		i := c.mu.faults[id]
		all = append(all, faultInfo{id, i.String(), i.Fired()})
	}
	return all, nil
}

func (c *control) inject(r *http.Request) (any, error) {
	spelled, err := io.ReadAll(io.LimitReader(r.Body, 64<<10))
	if err != nil {
		return nil, err
	}
	f, err := parseFault(string(spelled))
	if err != nil {
		return nil, err
	}
	i := c.srv.Inject(f)
	if i.Err() != nil {
		return nil, trim(i.Err())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.last++
	c.mu.faults[c.mu.last] = i
	return faultInfo{c.mu.last, i.String(), 0}, nil
}

func (c *control) withFault(forget bool, do func(*zktest.Injection)) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		id, _ := strconv.Atoi(r.PathValue("id"))
		c.mu.Lock()
		defer c.mu.Unlock()
		i, ok := c.mu.faults[id]
		if !ok {
			return nil, fmt.Errorf("there is no fault %q", r.PathValue("id"))
		}
		do(i)
		if forget {
			delete(c.mu.faults, id)
		}
		return nil, nil
	}
}

func (c *control) removeAll(*http.Request) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range c.mu.faults {
		i.Remove()
	}
	clear(c.mu.faults)
	return nil, nil
}

func (c *control) sessions(*http.Request) (any, error) {
	type info struct {
		ID         string   `json:"id"`
		Connected  bool     `json:"connected"`
		Member     int      `json:"member,omitempty"`
		Address    string   `json:"address,omitempty"`
		TimeoutMS  int64    `json:"timeout_ms"`
		Ephemerals []string `json:"ephemerals"`
	}
	all := []info{}
	for _, s := range c.srv.Sessions() {
		all = append(all, info{fmt.Sprintf("%#x", s.ID), s.Connected, s.Member, s.RemoteAddr, s.Timeout.Milliseconds(), append([]string{}, s.Ephemerals...)})
	}
	return all, nil
}

func (c *control) withSession(do func(int64) bool) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		id, err := strconv.ParseInt(r.PathValue("id"), 0, 64)
		if err != nil || !do(id) {
			return nil, fmt.Errorf("there is no session %q, or it has no connection", r.PathValue("id"))
		}
		return nil, nil
	}
}

func (c *control) members(*http.Request) (any, error) {
	type info struct {
		ID      int    `json:"id"`
		Address string `json:"address"`
		Role    string `json:"role,omitempty"`
	}
	all := []info{}
	for i, addr := range c.srv.Addrs() {
		m := info{ID: i + 1, Address: addr}
		if e, ok := c.srv.(*zktest.Ensemble); ok {
			m.Role = e.Member(m.ID).Role()
		}
		all = append(all, m)
	}
	return all, nil
}

func (c *control) member(r *http.Request) (any, error) {
	n, err := strconv.Atoi(r.PathValue("id"))
	if err != nil || n < 1 || n > len(c.srv.Addrs()) {
		return nil, fmt.Errorf("there is no member %q", r.PathValue("id"))
	}
	var m interface {
		Start() error
		Stop()
	}
	e, several := c.srv.(*zktest.Ensemble)
	if m, _ = c.srv.(single); several {
		m = e.Member(n)
	}
	switch act := r.PathValue("act"); {
	case act == "stop":
		m.Stop()
	case act == "start":
		return nil, m.Start()
	case act == "isolate" && several:
		e.Member(n).Isolate()
	case act == "freeze" && several:
		e.Member(n).Freeze()
	case act == "thaw" && several:
		e.Member(n).Thaw()
	case act == "lag" && several:
		d, err := time.ParseDuration(r.URL.Query().Get("for"))
		if err != nil || d < 0 {
			return nil, fmt.Errorf("give how long, such as ?for=2s")
		}
		e.Member(n).SetLag(d)
	default:
		return nil, fmt.Errorf("%s: it can stop, start, and in an ensemble isolate, freeze, thaw and lag", act)
	}
	return nil, nil
}

var errAlone = errors.New("one server is no ensemble: give serve --members 3")

// together acts on all members.
func (c *control) together(do func(*zktest.Ensemble)) error {
	e, ok := c.srv.(*zktest.Ensemble)
	if !ok {
		return errAlone
	}
	do(e)
	return nil
}

func (c *control) heal(*http.Request) (any, error) {
	_ = c.together((*zktest.Ensemble).Heal) // a single server has nothing to heal
	return nil, nil
}

func (c *control) history(*http.Request) (any, error) {
	type change struct {
		Kind    string    `json:"kind"`
		Path    string    `json:"path,omitempty"`
		Session string    `json:"session"`
		Owner   string    `json:"owner,omitempty"`
		Zxid    string    `json:"zxid"`
		Time    time.Time `json:"time"`
		Data    []byte    `json:"data,omitempty"`
	}
	all := []change{}
	for _, a := range c.srv.History() {
		ch := change{a.Kind.String(), a.Path, fmt.Sprintf("%#x", a.Session), "", fmt.Sprintf("%#x", a.Zxid), a.Time, a.Data}
		if a.Owner != 0 {
			ch.Owner = fmt.Sprintf("%#x", a.Owner)
		}
		all = append(all, ch)
	}
	return all, nil
}
