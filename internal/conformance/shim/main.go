// Command shim replaces the ZooKeeper that other projects' test suites start: it is called
// zkServer.sh for one suite and java for another. It runs no server itself. It asks the test that
// owns the servers for the server in its zoo.cfg. That server listens as long as the shim lives,
// and stops when the shim is killed. So a suite may kill a server and start it again, and finds its
// nodes and sessions, as it would in a data directory.
//
// A process that is killed cannot wait until its server has stopped, and a suite that has killed
// one continues at once. So a child of it, the keeper, does everything. The keeper has the same
// standard error: os/exec, which go-zookeeper's suite uses to kill, waits until no process has it
// open.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

const envKeeper = "ZKLOCK_SHIM_KEEPER"

func main() {
	run := start
	if os.Getenv(envKeeper) != "" {
		run = keep
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "shim:", err)
		os.Exit(1)
	}
}

// start runs the keeper, whose standard input ends with this process.
func start() error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	keeper := exec.Command(self, os.Args[1:]...)
	keeper.Env = append(os.Environ(), envKeeper+"=1")
	keeper.Stdout, keeper.Stderr = os.Stdout, os.Stderr
	life, err := keeper.StdinPipe()
	if err != nil {
		return err
	}
	go func() {
		<-stop
		life.Close()
	}()
	return keeper.Run()
}

// keep has the server run until its standard input ends, and returns when the server has stopped.
func keep() error {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT) // a terminal sends them to both
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
		io.Copy(io.Discard, os.Stdin)
		conn.(*net.UnixConn).CloseWrite() // the server stops, and then its reply ends
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
