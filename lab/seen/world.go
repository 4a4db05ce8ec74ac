package main

// The ensemble, the replicas with their connections to it, and the Prometheus that scrapes them.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zklock/zklock/internal/zkserver"
	"github.com/zklock/zklock/zktest"
)

// world is the system into which a fault is injected.
type world struct {
	dir               string
	ensemble          *zkserver.Cluster
	replicas          []*process
	prometheus        *exec.Cmd
	api               string // Prometheus's
	zookeeper         string // ZooKeeper's version
	prometheusVersion string
}

type process struct {
	instance string // the address of its metrics
	spans    string // the file of its spans
	ways     []*zktest.Proxy
	cmd      *exec.Cmd
}

func newWorld() (w *world, err error) {
	w = &world{}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if w.dir, err = os.MkdirTemp("", "zklock-seen"); err != nil {
		return w, err
	}
	if w.ensemble, err = zkserver.StartEnsemble(3, zkserver.NewConfig(zkserver.TickTime(time.Second), zkserver.SessionTimeouts(2*time.Second, time.Minute))); err != nil {
		return w, err
	}
	w.zookeeper, _ = w.ensemble.Servers()[0].Version()
	var targets []string
	for i := range 3 {
		port, err := zkserver.FreePort()
		if err != nil {
			return w, err
		}
		p := &process{instance: fmt.Sprintf("127.0.0.1:%d", port), spans: filepath.Join(w.dir, fmt.Sprintf("spans%d", i))}
		for _, addr := range w.ensemble.Addrs() {
			way, err := zktest.NewProxy(addr)
			if err != nil {
				return w, err
			}
			p.ways = append(p.ways, way)
		}
		w.replicas = append(w.replicas, p)
		targets = append(targets, p.instance)
		if err := p.start(); err != nil {
			return w, err
		}
	}
	return w, w.startPrometheus(targets)
}

func (p *process) start() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var servers []string
	for _, way := range p.ways {
		servers = append(servers, way.Addr())
	}
	p.cmd = exec.Command(self, "replica", strings.Join(servers, ","), p.instance, p.spans)
	p.cmd.Stderr = os.Stderr
	return p.cmd.Start()
}

func (w *world) startPrometheus(targets []string) error {
	version, err := exec.Command("prometheus", "--version").CombinedOutput()
	if err != nil {
		return fmt.Errorf("prometheus: %w", err)
	}
	w.prometheusVersion = strings.Fields(string(version))[2]
	rules, err := filepath.Abs("../../contrib/zklockprom/rules.yml")
	if err != nil {
		return err
	}
	port, err := zkserver.FreePort()
	if err != nil {
		return err
	}
	config := fmt.Sprintf("global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\nrule_files: [%q]\nscrape_configs:\n- job_name: service\n  static_configs: [{targets: [%s]}]\n",
		rules, `"`+strings.Join(targets, `","`)+`"`)
	file := filepath.Join(w.dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		return err
	}
	w.api = fmt.Sprintf("http://127.0.0.1:%d/api/v1/", port)
	w.prometheus = exec.Command("prometheus", "--config.file="+file, "--storage.tsdb.path="+filepath.Join(w.dir, "data"), fmt.Sprintf("--web.listen-address=127.0.0.1:%d", port), "--log.level=error")
	w.prometheus.Stderr = os.Stderr
	return w.prometheus.Start()
}

func (w *world) close() {
	stop := func(c *exec.Cmd) {
		if c != nil && c.Process != nil {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}
	stop(w.prometheus)
	for _, p := range w.replicas {
		stop(p.cmd)
		for _, way := range p.ways {
			way.Close()
		}
	}
	if w.ensemble != nil {
		_ = w.ensemble.Close()
	}
	_ = os.RemoveAll(w.dir)
}

// sample is one series of a query's result.
type sample struct {
	labels map[string]string
	value  float64
}

// query queries Prometheus. It returns nothing if Prometheus does not respond yet.
func (w *world) query(expr string) (samples []sample) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.api+"query?query="+url.QueryEscape(expr), nil)
	if err != nil {
		panic(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	var got struct {
		Error string
		Data  struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		return nil
	}
	if got.Error != "" {
		panic(expr + ": " + got.Error)
	}
	for _, r := range got.Data.Result {
		text, _ := r.Value[1].(string)
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			panic(err)
		}
		samples = append(samples, sample{r.Metric, v})
	}
	return samples
}

// leader waits until everything is healthy, and returns the replica that leads.
func (w *world) leader() (*process, error) {
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if len(w.query("up == 1")) < 3 || len(w.query("zklock_sessions_attached == 1")) < 3 {
			continue
		}
		leads := w.query(`zklock_is_leader{lock="leader"} == 1`)
		if len(leads) != 1 {
			continue
		}
		for _, p := range w.replicas {
			if p.instance == leads[0].labels["instance"] {
				return p, nil
			}
		}
	}
	return nil, errors.New("the service is not well after two minutes")
}

type span struct {
	Name               string
	StartTime, EndTime time.Time
	Events             []struct{ Name string }
	from               *process
}

func (s span) has(event string) bool {
	return slices.ContainsFunc(s.Events, func(e struct{ Name string }) bool { return e.Name == event })
}

func (w *world) endedSince(t time.Time) (spans []span) {
	for _, p := range w.replicas {
		text, _ := os.ReadFile(p.spans)
		for line := range bytes.Lines(text) {
			var s span
			if json.Unmarshal(line, &s) == nil && s.EndTime.After(t) { // the last may be half written
				s.from = p
				spans = append(spans, s)
			}
		}
	}
	return spans
}
