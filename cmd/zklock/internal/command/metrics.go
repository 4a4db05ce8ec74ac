package command

// The --metrics-file of a run, for node_exporter's textfile collector: when and how it is written.

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	metricsSuffix = ".prom"         // the collector reads no other
	metricsWithin = 5 * time.Second // a file system that takes longer hangs

	// How long a run waits for another one that has locked the file: a run that only checks has it
	// for a moment, and the previous holder until its very end.
	sideWithin     = 20 * time.Millisecond
	sideHeldWithin = 2 * time.Second // of a run that has had the lock
	sideAgain      = 5 * time.Millisecond
)

// metricsFile is the file of a run. Without a name it does nothing. A goroutine writes it: a file
// system that hangs delays no lock and no signal, and one that fails changes no exit code.
//
// If several runs on a host name one file, the holder has it from the grant to its end: it locks a
// side file. While that is locked, the other runs leave the file alone. Otherwise they lock it
// while they write, so the last success, which they read and keep, stays true.
type metricsFile struct {
	name   string
	stderr io.Writer
	within time.Duration // how long a run that ends waits for the file

	writes  sync.WaitGroup
	writing sync.Mutex    // held while the file is written; only writes wait for it
	side    *os.File      // the side file while it is locked; guarded by writing
	waited  time.Duration // for the side file; guarded by writing
	isLast  bool          // the end has been written, or given up; guarded by writing
	isHeir  bool          // this process is the guardian, so a later run may have written the file

	mu struct {
		sync.Mutex // never held while the file is written
		report     runReport
		failed     bool // and this was reported
	}
}

// newMetricsFile begins a report. It rejects a file that cannot be written, as far as that can be
// checked now.
func newMetricsFile(name, path string, elect bool, stderr io.Writer) (*metricsFile, error) {
	m := &metricsFile{name: name, stderr: stderr, within: metricsWithin}
	if name == "" {
		return m, nil
	}
	if !strings.HasSuffix(name, metricsSuffix) {
		return nil, exitf(exitUsage, "--metrics-file %s: the textfile collector reads files that end in %s: give such a name", name, metricsSuffix)
	}
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return nil, exitf(exitUsage, "--metrics-file %s exists, and is not a file: give another name", name)
	}
	if err := tryBeside(name); err != nil {
		return nil, exitf(exitUsage, "--metrics-file %s: no file can be created in its directory: %w", name, bare(err))
	}
	var err error
	if m.name, err = filepath.Abs(name); err != nil { // the guardian may have another directory
		return nil, exitf(exitUsage, "--metrics-file %s: %w", name, err)
	}
	now := time.Now()
	m.mu.report = runReport{path: path, file: filepath.Base(name), elect: elect, began: now, waits: now}
	return m, nil
}

// now changes the report and has it written.
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

// noHoldYet has the file report that the latest run holds nothing yet, because a killed run may
// have left another value there. Where runs cannot lock the file, another one may hold.
func (m *metricsFile) noHoldYet() {
	if locksBeside {
		m.now(func(*runReport, time.Time) {})
	}
}

func (m *metricsFile) wait()  { m.now((*runReport).wait) }
func (m *metricsFile) grant() { m.now((*runReport).grant) }
func (m *metricsFile) release(lost, ran bool) {
	m.now(func(r *runReport, now time.Time) { r.release(now, lost, ran) })
}

// end reports how the run ended, and returns when the file has that. Later changes have no effect.
func (m *metricsFile) end(code int) {
	m.now(func(r *runReport, now time.Time) { r.end(now, code) })
	written := make(chan struct{})
	go func() { m.writes.Wait(); close(written) }()
	select {
	case <-written:
	case <-time.After(m.within):
		m.fail(fmt.Errorf("the file system did not respond within %v", m.within))
	}
}

// killedRun is what the guardian needs to report the end of a run whose zklock was killed.
type killedRun struct {
	File, Path     string
	Elect          bool
	Began, Granted time.Time
	Waited         time.Duration
}

// ifKilled returns the holding run for its guardian, nil without a file.
func (m *metricsFile) ifKilled() *killedRun {
	if m.name == "" {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.mu.report
	return &killedRun{m.name, r.path, r.elect, r.began, r.granted, r.waited}
}

// end reports the end of the run, unless it has released the lock, or a later run has the file.
func (k killedRun) end(stderr io.Writer) {
	m := &metricsFile{name: k.File, stderr: stderr, within: metricsWithin, isHeir: true}
	m.mu.report = runReport{path: k.Path, file: filepath.Base(k.File), elect: k.Elect, began: k.Began, granted: k.Granted, waited: k.Waited, acquired: true}
	m.mu.report.release(time.Now(), true, true)
	m.end(exitSignal + int(syscall.SIGKILL))
}

// write writes the report as it is when the earlier writes have ended, unless another run has the
// file.
func (m *metricsFile) write() {
	m.writing.Lock()
	defer m.writing.Unlock()
	if m.isLast { // a write that was begun before it: another run may have the file by now
		return
	}
	r, err := m.take()
	m.isLast = r.ended
	if err != nil {
		m.fail(err)
	}
	if m.side == nil {
		return
	}
	defer func() {
		if !r.acquired || r.ended {
			_ = m.side.Close()
			m.side = nil
		}
	}()
	old, err := os.ReadFile(m.name)
	if err == nil && r.succeeded.IsZero() {
		r.succeeded = successIn(string(old), r.labels())
	}
	if m.isHeir && !r.isUnreleasedIn(string(old)) {
		return
	}
	if err := replaceFile(m.name, r.String()); err != nil {
		m.fail(err)
	}
}

// take locks the side file if we have not locked it, and waits a little for that. It returns the
// report as it is then.
func (m *metricsFile) take() (r runReport, err error) {
	for {
		m.mu.Lock()
		r = m.mu.report
		m.mu.Unlock()
		if m.side != nil {
			return r, nil
		}
		if m.side, err = lockBeside(m.name); err != nil {
			return r, err
		}
		if m.side != nil {
			m.waited = 0
			continue // with the report as it is now
		}
		within := sideWithin
		if r.acquired {
			within = sideHeldWithin
		}
		if m.waited >= within {
			return r, nil
		}
		time.Sleep(sideAgain)
		m.waited += sideAgain
	}
}

func (m *metricsFile) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.mu.failed {
		m.mu.failed = true
		fmt.Fprintf(m.stderr, "zklock: %s: --metrics-file %s cannot be written: %v\n", m.mu.report.path, m.name, bare(err))
	}
}

// besideName returns the name of a file alongside another. The collector does not read files with
// such names.
func besideName(name, what string) string {
	return filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+"."+what)
}

// tryBeside creates the files that will be created alongside a file, unless another run is about
// to.
func tryBeside(name string) error {
	side, err := lockBeside(name)
	if side == nil {
		return err
	}
	defer side.Close()
	f, err := besides(name)
	if err != nil {
		return err
	}
	_, _ = f.Close(), os.Remove(f.Name())
	return nil
}

// replaceFile writes a file that other programs may read. They see the old content or the new one,
// and no part. It leaves no other file.
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

// bare returns the reason alone, because the names in the error belong to an internal file.
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
