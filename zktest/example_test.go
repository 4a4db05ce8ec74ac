package zktest_test

import (
	"fmt"
	"log"
	"os"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/zktest"
)

// silent keeps the client's log out of the examples' output.
func silent(c *zk.Conn) { c.SetLogger(quiet{}) }

func ExampleNewServer() {
	srv, err := zktest.NewServer()
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()

	conn, _, err := zk.Connect([]string{srv.Addr()}, 10*time.Second, silent)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	path, err := conn.Create("/jobs", []byte("none yet"), 0, zk.WorldACL(zk.PermAll))
	if err != nil {
		log.Fatal(err)
	}
	data, _ := srv.Get(path)
	fmt.Printf("%s holds %q\n", path, data)
	// Output: /jobs holds "none yet"
}

func ExampleWithVersion() {
	for _, version := range []string{"3.8.0", "3.9.6"} {
		srv, err := zktest.NewServer(zktest.WithVersion(version))
		if err != nil {
			log.Fatal(err)
		}
		conn, _, err := zk.Connect([]string{srv.Addr()}, 10*time.Second, silent)
		if err != nil {
			log.Fatal(err)
		}
		if _, err := conn.Create("/secret", nil, 0, zk.WorldACL(zk.PermAll&^zk.PermRead)); err != nil {
			log.Fatal(err)
		}
		_, _, err = conn.Exists("/secret")
		fmt.Println(version, err)
		conn.Close()
		srv.Close()
	}
	// Output:
	// 3.8.0 <nil>
	// 3.9.6 zk: not authenticated
}

func ExampleStart() {
	// In a test: func TestService(t *testing.T) {
	t := &exampleTB{}
	defer t.end()
	srv := zktest.Start(t)
	fmt.Println(srv.Children("/"))
	// Output: [zookeeper]
}

func ExampleAfter() {
	f := zktest.After(zktest.Create).Path("/locks/*").Nth(2).DropReply().Close()
	fmt.Println(f)
	// Output: After(create).Path("/locks/*").Nth(2).DropReply().Close()
}

func ExampleBefore() {
	srv, err := zktest.NewServer()
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	srv.Inject(zktest.Before(zktest.Delete).Fail(zktest.NoAuth))
	conn, _, err := zk.Connect([]string{srv.Addr()}, 10*time.Second, silent)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	fmt.Println(conn.Delete("/jobs", -1))
	// Output: zk: not authenticated
}

func ExampleOnEvent() {
	fmt.Println(zktest.OnEvent(zktest.NodeDeleted).Once().Drop())
	// Output: OnEvent(NodeDeleted).Once().Drop()
}

func ExampleRefuseConnections() {
	fmt.Println(zktest.RefuseConnections().Times(3))
	// Output: RefuseConnections().Times(3)
}

func ExampleNewNetwork() {
	network := zktest.NewNetwork()
	srv, err := zktest.NewServer(zktest.WithNetwork(network))
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	conn, _, err := zk.Connect([]string{srv.Addr()}, 10*time.Second, zk.WithDialer(network.Dial), silent)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	_, stat, err := conn.Exists("/")
	fmt.Println(srv.Addr(), stat.NumChildren, err)
	// Output: 192.0.2.1:2181 1 <nil>
}

func ExampleNewProxy() {
	srv, err := zktest.NewServer() // or any server's address
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	proxy, err := zktest.NewProxy(srv.Addr())
	if err != nil {
		log.Fatal(err)
	}
	defer proxy.Close()
	lost := proxy.Inject(zktest.After(zktest.Create).Once().DropReply().Close())

	conn, _, err := zk.Connect([]string{proxy.Addr()}, 10*time.Second, silent)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	_, err = conn.Create("/jobs", nil, 0, zk.WorldACL(zk.PermAll))
	fmt.Println(err, lost.Fired(), srv.Children("/"))
	// Output: zk: connection closed 1 [jobs zookeeper]
}

func ExampleExpireSession() {
	srv, err := zktest.NewServer() // or any server's address
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	conn, _, err := zk.Connect([]string{srv.Addr()}, 10*time.Second, silent)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	path, err := conn.Create("/alive", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	if err != nil {
		log.Fatal(err)
	}
	err = zktest.ExpireSession(srv.Addr(), conn.SessionID())
	_, alive := srv.Get(path)
	fmt.Println(err, alive)
	// Output: <nil> false
}

func ExampleDigest() {
	fmt.Println(zktest.Digest("root:secret"))
	// Output: root:J1scEM42CKaLPP5+ElgpgGsuONg=
}

// exampleTB replaces the *testing.T of a test.
type exampleTB struct{ cleanups []func() }

func (t *exampleTB) Helper()               {}
func (t *exampleTB) Cleanup(fn func())     { t.cleanups = append(t.cleanups, fn) }
func (t *exampleTB) Errorf(string, ...any) {}
func (t *exampleTB) Fatalf(string, ...any) {}
func (t *exampleTB) Logf(string, ...any)   {}
func (t *exampleTB) Name() string          { return "Example" }

func (t *exampleTB) end() {
	for _, fn := range t.cleanups {
		fn()
	}
}

func ExampleNewEnsemble() {
	network := zktest.NewNetwork()
	ensemble, err := zktest.NewEnsemble(3, zktest.WithNetwork(network))
	if err != nil {
		log.Fatal(err)
	}
	defer ensemble.Close()
	conn, _, err := zk.Connect(ensemble.Addrs(), 10*time.Second, zk.WithDialer(network.Dial), silent)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	_, err = conn.Create("/jobs", nil, 0, zk.WorldACL(zk.PermAll))
	fmt.Println(ensemble.Leader().ID(), err, ensemble.Member(1).Children("/"))
	// Output: 3 <nil> [jobs zookeeper]
}

func ExampleStartEnsemble() {
	// In a test: func TestService(t *testing.T) {
	t := &exampleTB{}
	defer t.end()
	ensemble := zktest.StartEnsemble(t, 3)
	ensemble.Leader().Isolate()
	fmt.Println(ensemble.Leader())
	ensemble.Heal()
	fmt.Println(ensemble.Leader().ID())
	// Output:
	// <nil>
	// 3
}

func ExampleStartProxy() {
	// In a test: func TestService(t *testing.T) {
	t := &exampleTB{}
	defer t.end()
	srv := zktest.Start(t) // or any server's address
	proxy := zktest.StartProxy(t, srv.Addr())
	fault := proxy.Inject(zktest.After(zktest.Create).DropReply().Close().Optional())
	fmt.Println(fault, fault.Fired())
	// Output: After(create).DropReply().Close().Optional() 0
}

func ExampleReadSnapshot() {
	f, err := os.Open("testdata/snapshot.e") // of a real server: dataDir/version-2/snapshot.ZXID
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	nodes, err := zktest.ReadSnapshot(f)
	if err != nil {
		log.Fatal(err)
	}
	srv, err := zktest.NewServer(zktest.WithSnapshot(nodes))
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	fmt.Println(srv.Children("/app"))
	// Output: [empty null private queue-0000000004 queue-0000000005]
}
