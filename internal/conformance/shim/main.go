// Command shim stands where other projects' test suites start a ZooKeeper: it is called zkServer.sh for one and
// java for another. It runs no server itself. It asks the test that holds the servers for the one in its zoo.cfg,
// and as long as it lives, that server listens; when it is killed, that server stops. So a suite may kill a
// server and start it again, and finds its nodes and sessions as it would in a data directory.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "shim:", err)
		os.Exit(1)
	}
}

func run() error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	config, err := filepath.Abs(os.Args[len(os.Args)-1])
	if err != nil {
		return err
	}
	conn, err := net.Dial("unix", os.Getenv("ZKLOCK_SHIM_SOCKET"))
	if err != nil {
		return err
	}
	ask := struct {
		Config     string
		Properties map[string]string
	}{config, properties(append(os.Args[1:], strings.Fields(os.Getenv("SERVER_JVMFLAGS"))...))}
	if err := json.NewEncoder(conn).Encode(ask); err != nil {
		return err
	}
	go func() {
		<-stop
		conn.(*net.UnixConn).CloseWrite() // the server stops, and then the answer ends
	}()
	answer, err := io.ReadAll(conn)
	if err == nil && len(answer) > 0 {
		err = fmt.Errorf("%s", answer)
	}
	return err
}

// properties finds the system properties among java's arguments.
func properties(args []string) map[string]string {
	found := make(map[string]string)
	for _, arg := range args {
		if kv, ok := strings.CutPrefix(arg, "-D"); ok {
			key, value, _ := strings.Cut(kv, "=")
			found[key] = value
		}
	}
	return found
}
