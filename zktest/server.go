package zktest

// TB is what [Start] needs of a *testing.T or *testing.B.
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

// Start starts a server for the length of a test. At the end, it closes the server. Faults that never fired fail the test.
// If the test has failed, Start logs the server's state.
func Start(t TB, opts ...Option) *Server {
	t.Helper()
	s, err := NewServer(opts...)
	return started(t, s, err)
}

// NewServer starts a server. The caller closes it.
func NewServer(opts ...Option) (*Server, error) {
	cfg, err := newConfig(opts, 1)
	if err != nil {
		return nil, err
	}
	c := newCluster(cfg)
	ep := newEndpoint(c, 1)
	ep.addr = cfg.addrs[0]
	c.endpoints = []*endpoint{ep}
	go c.run()
	s := &Server{admin: admin{&c.faults, c}, ep: ep}
	if err := s.Start(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Addr returns the address clients connect to. It stays the same over Stop and Start.
func (s *Server) Addr() string { return s.ep.addr }

// Stop closes the listener and all connections, and returns when that is done. Nodes and sessions stay; time
// stands still for them.
func (s *Server) Stop() { s.ep.halt() }

// Start begins to listen again, on the same address. Every session has its full timeout to come back. It fails if
// somebody else has taken the address meanwhile, and on a server that is closed.
func (s *Server) Start() error { return s.ep.start() }

// Close ends the server and returns after the last of its goroutines. Children, Get, History and the like still answer.
func (s *Server) Close() { s.c.close() }
