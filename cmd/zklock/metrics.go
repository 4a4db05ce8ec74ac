package main

// The --metrics-file of a run, for node_exporter's textfile collector: when it is written, and how.

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	metricsSuffix = ".prom"         // the collector reads no other
	metricsWithin = 5 * time.Second // a file system that takes longer hangs
)

// metricsFile is the file of a run. Without a name it does nothing. It is written beside the work: a file system that hangs holds up no
// lock and no signal, and one that fails changes no exit code.
type metricsFile struct {
	name   string
	stderr io.Writer
	within time.Duration // a run that ends waits no longer for the file

	writes  sync.WaitGroup
	writing sync.Mutex // held while the file is written; writes alone wait for it

	mu struct {
		sync.Mutex // never held while the file is written
		report     runReport
		failed     bool // and said so
	}
}

// newMetricsFile begins a report. It refuses a file that it will not be able to write, as far as that can be seen now.
func newMetricsFile(name, path string, stderr io.Writer) (*metricsFile, error) {
	m := &metricsFile{name: name, stderr: stderr, within: metricsWithin}
	if name == "" {
		return m, nil
	}
	if !strings.HasSuffix(name, metricsSuffix) {
		return nil, exitf(exitUsage, "--metrics-file %s: the textfile collector reads files that end in %s: give such a name", name, metricsSuffix)
	}
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return nil, exitf(exitUsage, "--metrics-file %s is there, and no file: give another name", name)
	}
	f, err := besides(name)
	if err != nil {
		return nil, exitf(exitUsage, "--metrics-file %s: no file can be made in its directory: %w", name, bare(err))
	}
	_, _ = f.Close(), os.Remove(f.Name())
	now := time.Now()
	m.mu.report = runReport{path: path, file: filepath.Base(name), began: now, waits: now}
	return m, nil
}

// now changes the report, and has it written.
func (m *metricsFile) now(change func(r *runReport, now time.Time)) {
	if m.name == "" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.report.ended {
		return
	}
	change(&m.mu.report, time.Now())
	m.writes.Go(m.write)
}

func (m *metricsFile) wait()  { m.now((*runReport).wait) }
func (m *metricsFile) grant() { m.now((*runReport).grant) }
func (m *metricsFile) release(lost bool) {
	m.now(func(r *runReport, now time.Time) { r.release(now, lost) })
}

// end says how the run ended, and returns when the file says so. What comes after changes nothing.
func (m *metricsFile) end(code int) {
	m.now(func(r *runReport, now time.Time) { r.end(now, code) })
	written := make(chan struct{})
	go func() { m.writes.Wait(); close(written) }()
	select {
	case <-written:
	case <-time.After(m.within):
		m.fail(fmt.Errorf("the file system did not answer within %v", m.within))
	}
}

// write writes what the report says by the time that the writes before have ended.
func (m *metricsFile) write() {
	m.writing.Lock()
	defer m.writing.Unlock()
	m.mu.Lock()
	r := m.mu.report
	m.mu.Unlock()
	if old, err := os.ReadFile(m.name); err == nil && r.succeeded.IsZero() {
		r.succeeded = successIn(string(old), r.labels())
	}
	if err := replaceFile(m.name, r.String()); err != nil {
		m.fail(err)
	}
}

// fail says it once.
func (m *metricsFile) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.mu.failed {
		m.mu.failed = true
		fmt.Fprintf(m.stderr, "zklock: %s: --metrics-file %s cannot be written: %v\n", m.mu.report.path, m.name, bare(err))
	}
}

// besides makes a file for what is about to replace another. The collector does not read files of its name.
func besides(name string) (*os.File, error) {
	return os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
}

// replaceFile writes a file that others may read. They see the old one or the new one, and no part. It leaves no other file.
func replaceFile(name, text string) error {
	f, err := besides(name)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// bare returns the reason alone: the names in the error are those of a file that nobody knows.
func bare(err error) error {
	var p *fs.PathError
	var l *os.LinkError
	switch {
	case errors.As(err, &p):
		return p.Err
	case errors.As(err, &l):
		return l.Err
	}
	return err
}
