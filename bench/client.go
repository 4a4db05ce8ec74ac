package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// job is one workload for a rival in Go. It runs in a process of its own, so that the rival's CPU
// and heap are its own, and an old revision of zklock is a rival like all others.
type job struct {
	Rival, Addr, Near, Path string // Near are the servers' addresses without the distance
	Workload                workload
	For                     time.Duration
	Servers                 servers
	Profile                 string
}

// rivalsInGo open a session.
var rivalsInGo = map[string]func(addr string) (session, error){
	"raw":                  openRaw,
	"zk.Lock":              openGoZookeeper,
	"etcd":                 openEtcd,
	"zklock":               func(addr string) (session, error) { return openOurs(addr, false) },
	"zklock, AsyncRelease": func(addr string) (session, error) { return openOurs(addr, true) },
}

// start runs the job with the program bench, which has this revision or an older one of zklock.
func (j job) start(bench string) (r result, err error) {
	in, err := json.Marshal(j)
	if err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bench, "client", string(in))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(out, &r)
}

// client is the job's process. It ends without closing what the job has left open.
func client(in string) error {
	var j job
	if err := json.Unmarshal([]byte(in), &j); err != nil {
		return err
	}
	metered = j.Servers
	open := rivalsInGo[j.Rival]
	if j.Rival == "etcd" {
		s, err := openEtcd(j.Near)
		if err != nil {
			return err
		}
		queued = s.(etcd).queued
	} else if err := openAdmin(j.Near); err != nil {
		return err
	}
	stop, err := startProfile(j.Profile)
	if err != nil {
		return err
	}
	r, err := measure(func() (session, error) { return open(j.Addr) }, j.Workload, j.Path, j.For)
	if err = errors.Join(err, stop()); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// openAdmin opens the client that counts the nodes of a queue.
func openAdmin(addr string) error {
	admin, err := openClient(addr)
	queued = func(path string) int {
		_, stat, err := admin.Exists(path)
		if err != nil || stat == nil {
			return 0
		}
		return int(stat.NumChildren)
	}
	return err
}

// buildBeside builds this program with zklock as of a revision, below dir.
func buildBeside(dir, revision string) (bench string, err error) {
	bench = filepath.Join(dir, "bench-old")
	build := exec.Command("sh", "-ec", `mkdir "$1/old"; git -C .. archive "$2" | tar -x -C "$1/old"
		sed "s,=> \.\./,=> $1/old," go.mod >"$1/old.mod"; cp go.sum "$1/old.sum"; go build -modfile "$1/old.mod" -o "$3" .`, "sh", dir, revision, bench)
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("zklock of %s: %w\n%s", revision, err, out)
	}
	return bench, nil
}
