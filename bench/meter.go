package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/zklock/zklock/internal/zkserver"
)

// servers are the addresses and process ids of the servers that a meter reads.
type servers struct {
	Addrs []string // of ZooKeeper's, whose packets are counted
	Pids  []int
}

// cost is what the servers and this process have used so far.
type cost struct {
	at             time.Time
	client, server time.Duration
	received, sent int
	mallocs        uint64
	err            error
}

// metered are the servers that this process uses.
var metered servers

// begin reads the meters of the servers and of this process.
func begin() cost {
	c := metered.read()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	c.mallocs, c.client, c.at = m.Mallocs, cpuTime(), time.Now()
	return c
}

// end returns the costs since begin, for each of n acquisitions.
func (c cost) end(n int) (r result, err error) {
	r = result{Ops: n, Took: time.Since(c.at), CPU: cpuTime() - c.client}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	now := metered.read()
	if err := errors.Join(c.err, now.err); err != nil || n == 0 {
		return r, err
	}
	r.CPU /= time.Duration(n)
	r.Mallocs = float64(m.Mallocs-c.mallocs) / float64(n)
	r.charge(c, now)
	return r, nil
}

// charge enters the costs of the servers from one reading to the next.
func (r *result) charge(from, to cost) {
	r.Server = (to.server - from.server) / time.Duration(r.Ops)
	r.Requests = float64(to.received-from.received) / float64(r.Ops)
	r.Events = float64(to.sent-from.sent)/float64(r.Ops) - r.Requests
}

// read reads the servers' part.
func (s servers) read() (c cost) {
	for _, addr := range s.Addrs {
		all, err := zkserver.Mntr(addr)
		if err != nil {
			c.err = err
			return c
		}
		received, err := strconv.Atoi(all["zk_packets_received"])
		sent, failed := strconv.Atoi(all["zk_packets_sent"])
		c.received, c.sent, c.err = c.received+received, c.sent+sent, errors.Join(c.err, err, failed)
	}
	for _, pid := range s.Pids {
		const tick = 10 * time.Millisecond                        // USER_HZ is 100 wherever Go runs on Linux
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // elsewhere than on Linux: none, so 0
		_, fields, _ := strings.Cut(string(stat), ") ")
		if all := strings.Fields(fields); len(all) > 12 {
			user, _ := strconv.Atoi(all[11])
			system, _ := strconv.Atoi(all[12])
			c.server += time.Duration(user+system) * tick
		}
	}
	return c
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
