package zkserver

// Server: one ZooKeeper, its process, and the operations on it.

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	pollEvery  = 20 * time.Millisecond // how often a condition is checked while waiting for it
	endWithin  = 10 * time.Second      // how long a process may take to end
	startTries = 5                     // another process may take a port between our check and the server's bind
)

// Server is a ZooKeeper server. It is safe for use by several goroutines.
//
//	          Start, Launch                Pause
//	stopped ----------------> running <----------> paused
//	   ^                         |       Resume       |
//	   +----- Stop, Kill --------+--------------------+
type Server struct {
	named   bool   // an external server: no process, dir or configuration of ours
	addr    string // host:port for clients
	connect string // the addresses for clients

	install installation
	cfg     Config
	self    member
	all     []member // the ensemble; nil when alone
	dir     string

	mu struct {
		sync.Mutex
		child  *child // the latest run; nil before the first
		paused bool
		closed bool
	}
}

// Start runs a server with the configuration and returns when it serves. The caller must close it.
// Without a ZooKeeper to run, the error is ErrNotInstalled.
func Start(cfg Config) (*Server, error) {
	c, err := startMembers(1, cfg)
	if err != nil {
		return nil, err
	}
	return c.servers[0], nil
}

// newServer prepares the server's directory; it does not start it.
func newServer(in installation, cfg Config, self member, all []member) (*Server, error) {
	addr := self.addr()
	s := &Server{addr: addr, connect: addr, install: in, cfg: cfg, self: self, all: all, dir: cfg.DataDir}
	if s.dir == "" {
		dir, err := os.MkdirTemp("", "zkserver-")
		if err != nil {
			return nil, err
		}
		s.dir = dir
	} else if len(all) > 0 {
		s.dir = filepath.Join(s.dir, strconv.Itoa(self.id))
	}
	data := filepath.Join(s.dir, "data")
	files := []struct{ path, content string }{
		{filepath.Join(data, "myid"), strconv.Itoa(self.id) + "\n"},
		{filepath.Join(s.confDir(), "zoo.cfg"), cfg.zooCfg(self, all, data)},
		{filepath.Join(s.confDir(), "log4j.properties"), log4jProperties},
		{filepath.Join(s.confDir(), "logback.xml"), logbackXML},
	}
	if len(cfg.SASLUsers) > 0 {
		files = append(files, struct{ path, content string }{s.jaasFile(), cfg.jaas()})
	}
	for _, f := range files {
		err := os.MkdirAll(filepath.Dir(f.path), 0o755)
		if err == nil {
			err = os.WriteFile(f.path, []byte(f.content), 0o644)
		}
		if err != nil {
			return nil, errors.Join(err, s.removeDir())
		}
	}
	return s, nil
}

func (s *Server) confDir() string  { return filepath.Join(s.dir, "conf") }
func (s *Server) jaasFile() string { return filepath.Join(s.confDir(), "jaas.conf") }
func (s *Server) logFile() string  { return filepath.Join(s.dir, "server.log") }

// removeDir deletes a temporary directory.
func (s *Server) removeDir() error {
	if s.cfg.DataDir != "" {
		return nil
	}
	return os.RemoveAll(s.dir)
}

// ID returns the server's number in its ensemble, counted from 1; a single server is 1.
func (s *Server) ID() int { return s.self.id }

// Addr returns the address, host:port, for clients. It remains the same across Stop and Start.
func (s *Server) Addr() string { return s.addr }

// ConnectString returns the addresses for a client: Addr, or all that EnvServers lists.
func (s *Server) ConnectString() string { return s.connect }

// Dir returns the directory with the server's data, configuration and log.
func (s *Server) Dir() string { return s.dir }

// Pid returns the process id, or 0 while the server does not run.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.runningLocked() {
		return 0
	}
	return s.mu.child.cmd.Process.Pid
}

// Running reports whether the process exists, paused or not.
func (s *Server) Running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runningLocked()
}

func (s *Server) runningLocked() bool { return s.mu.child != nil && !s.mu.child.ended() }

// answering reports whether the server can be expected to respond.
func (s *Server) answering() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.named || s.runningLocked() && !s.mu.paused
}

// Start runs the server again, with the same data and ports, and returns when it serves. A member
// of an ensemble serves only while a majority runs: see Launch.
func (s *Server) Start() error {
	if err := s.Launch(); err != nil {
		return err
	}
	return s.Ready()
}

// Launch starts the process without waiting until it serves.
func (s *Server) Launch() error {
	if err := s.ours("start"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.closed:
		return s.errorf("start: closed")
	case s.runningLocked():
		return s.errorf("start: runs already")
	}
	properties := s.cfg.Properties
	if len(s.cfg.SASLUsers) > 0 {
		properties = maps.Clone(properties)
		if properties == nil {
			properties = make(map[string]string)
		}
		properties["java.security.auth.login.config"] = s.jaasFile()
		// By default true, from 3.9.0 on; 3.9.6 then has no DIGEST-MD5.
		properties["zookeeper.fips-mode"] = "false"
	}
	c, err := startChild(s.install.command(s.self.host.Command, s.confDir(), properties), s.logFile())
	if err != nil {
		return s.errorf("start: %w", err)
	}
	s.mu.child, s.mu.paused = c, false
	return nil
}

// Ready returns when the server serves: when it responds to srvr with a mode. It returns an error,
// with the end of the log, if the process ends or the start timeout passes.
func (s *Server) Ready() error {
	limit := s.cfg.withDefaults().StartTimeout
	deadline := time.Now().Add(limit)
	for {
		_, err := s.Mode()
		if err == nil {
			return nil
		}
		if !s.named && !s.Running() {
			return s.errorf("the process ended before it served\n%s", s.LogTail())
		}
		if time.Now().After(deadline) {
			return s.errorf("does not serve after %v: %w\n%s", limit, err, s.LogTail())
		}
		time.Sleep(pollEvery)
	}
}

// Stop ends the process with SIGTERM and waits for its end. On a stopped server it has no effect.
func (s *Server) Stop() error {
	return s.end("stop", func(c *child) error {
		err := terminate(c.cmd.Process)
		if s.mu.paused {
			// A paused process gets the signal when it resumes.
			err = errors.Join(err, resume(c.cmd.Process))
		}
		return err
	})
}

// Kill ends the process with SIGKILL and waits for its end. On a stopped server it has no effect.
func (s *Server) Kill() error {
	return s.end("kill", func(c *child) error { return c.cmd.Process.Kill() })
}

// end calls signalLocked and waits. It kills a process that ignores the signal, and returns an
// error then.
func (s *Server) end(op string, signalLocked func(*child) error) error {
	if err := s.ours(op); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.runningLocked() {
		return nil
	}
	c := s.mu.child
	if err := signalLocked(c); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return s.errorf("%s: %w", op, err)
	}
	s.mu.paused = false
	if c.wait(endWithin) {
		return nil
	}
	err := c.cmd.Process.Kill()
	c.wait(endWithin)
	return errors.Join(s.errorf("%s: process %d was still there after %v and was killed", op, c.cmd.Process.Pid, endWithin), err)
}

// Pause stops the process temporarily (SIGSTOP). Its connections remain open and silent.
func (s *Server) Pause() error {
	return s.setPaused("pause", true, pause)
}

// Resume lets a paused process continue (SIGCONT). It does not wait until the server serves: see
// Ready.
func (s *Server) Resume() error {
	return s.setPaused("resume", false, resume)
}

func (s *Server) setPaused(op string, paused bool, signal func(*os.Process) error) error {
	if err := s.ours(op); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.runningLocked() {
		return s.errorf("%s: does not run", op)
	}
	if err := signal(s.mu.child.cmd.Process); err != nil {
		return s.errorf("%s: %w", op, err)
	}
	s.mu.paused = paused
	return nil
}

// Close kills the process and removes its temporary directory. The server cannot be started again.
func (s *Server) Close() error {
	if s.named {
		return nil
	}
	err := s.Kill()
	s.mu.Lock()
	s.mu.closed = true
	s.mu.Unlock()
	return errors.Join(err, s.removeDir())
}

// WatchCount returns the number of watches that clients of this server have set, of every kind.
// (The word wchs would omit child watches.)
func (s *Server) WatchCount() (int, error) { return s.counter("zk_watch_count") }

// Ephemerals returns the number of ephemeral nodes on the server.
func (s *Server) Ephemerals() (int, error) { return s.counter("zk_ephemerals_count") }

func (s *Server) counter(name string) (int, error) {
	values, err := s.Mntr()
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(values[name])
	if err != nil {
		return 0, s.errorf("mntr %s: %w", name, err)
	}
	return n, nil
}

// checkVersion returns an error if the server's version differs from its jar's name, because
// another jar has added another ZooKeeper to the class path.
func (s *Server) checkVersion() error {
	want := s.install.version()
	if want == "" {
		return nil
	}
	is, err := s.Version()
	if err == nil && is != want {
		err = s.errorf("it is ZooKeeper %s, and %s has %s", is, EnvHome, want)
	}
	return err
}

// Log returns the server's output so far, over all its runs.
func (s *Server) Log() string {
	if s.named {
		return ""
	}
	log, err := os.ReadFile(s.logFile())
	if err != nil {
		return err.Error()
	}
	return string(log)
}

// LogTail returns the end of the log.
func (s *Server) LogTail() string {
	const limit = 16 << 10
	log := s.Log()
	if len(log) <= limit {
		return log
	}
	tail := log[len(log)-limit:]
	_, tail, _ = strings.Cut(tail, "\n")
	return "...\n" + tail
}

// ours returns an error if the server is not our process but an external one.
func (s *Server) ours(op string) error {
	if s.named {
		return s.errorf("%s: not our process: %s names it", op, EnvServers)
	}
	return nil
}

func (s *Server) errorf(format string, args ...any) error {
	return fmt.Errorf("ZooKeeper at %s: "+format, append([]any{s.addr}, args...)...)
}
