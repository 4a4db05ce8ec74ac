package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// dying is the session timeout of a holder that is killed: two ticks.
const dying = 4 * time.Second

// takeOver kills a process that holds the lock, and returns how long after the end of its session timeout the next has it. A server
// ends a session at one of its ticks.
func takeOver(open func(string) (session, error), addr, path string) (r result, err error) {
	path += "-0"
	s, err := open(addr)
	if err != nil {
		return r, err
	}
	defer s.close()
	rival := "zklock"
	if _, ok := s.(goZookeeper); ok {
		rival = "zk.Lock"
	}
	holder := exec.Command(os.Args[0], "hold", rival, addr, path)
	holder.Stderr = os.Stderr
	out, err := holder.StdoutPipe()
	if err != nil {
		return r, err
	}
	if err := holder.Start(); err != nil {
		return r, err
	}
	if !bufio.NewScanner(out).Scan() {
		return r, errors.Join(errors.New("the holder ended"), holder.Wait())
	}
	got := make(chan error, 1)
	l := s.lock(path)
	go func() { got <- l.acquire() }()
	for queued(path) < 2 {
		time.Sleep(time.Millisecond)
	}
	start := time.Now()
	if err := holder.Process.Kill(); err != nil {
		return r, err
	}
	_ = holder.Wait() // it was killed
	if err := <-got; err != nil {
		return r, err
	}
	took := time.Since(start)
	return result{Ops: 1, Took: took, P50: took - dying}, l.release()
}

// holdOn takes a lock and keeps it until the process ends.
func holdOn(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("hold RIVAL ADDRESS PATH, not %q", args)
	}
	timeout = dying
	open := openOurs
	if args[0] == "zk.Lock" {
		open = openGoZookeeper
	}
	s, err := open(args[1])
	if err != nil {
		return err
	}
	if err := s.lock(args[2]).acquire(); err != nil {
		return err
	}
	fmt.Println("held")
	select {}
}
