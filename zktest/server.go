package zktest

// TB has the methods of *testing.T and *testing.B that [Start] needs.
type TB interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
	Name() string
}

// Server is one ZooKeeper server in this process. Its methods may be called from any goroutine.
type Server struct {
	admin
	ep *endpoint
}

// Start starts a server for the duration of a test, and closes it at the end. A fault that never
// fired fails the test. If the test has failed, the server's state is logged.
func Start(t TB, opts ...Option) *Server {
	t.Helper()
	s, err := NewServer(opts...)
	return started(t, s, err)
}

// NewServer starts a server. The caller must close it.
func NewServer(opts ...Option) (*Server, error) {
	cfg, err := newConfig(opts, 1)
	if err != nil {
		return nil, err
	}
	c := newCluster(cfg)
	ep := newEndpoint(c, 1)
	c.endpoints = []*endpoint{ep}
	go c.run()
	s := &Server{admin: admin{&c.faults, c}, ep: ep}
	if err := s.Start(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Addr returns the address for clients. It remains the same across Stop and Start.
func (s *Server) Addr() string { return s.ep.addr }

// Stop closes the listener and all connections, and then returns. Nodes and sessions remain, and no
// session's timeout advances.
func (s *Server) Stop() { s.ep.halt() }

// Start listens again on the same address. Every session has its full timeout to re-attach. Start
// returns an error if another process has taken the address meanwhile, or if the server is closed.
func (s *Server) Start() error { return s.ep.start() }

// Close ends the server and returns after the last of its goroutines has ended. It waits for the
// functions of [Server.Handle] and [Fault.Call], and logs that once, after ten seconds. Children,
// Get, History and similar methods still return the last state.
func (s *Server) Close() { s.c.close() }
