package main

// PostgreSQL and MariaDB servers, with their default settings except for the number of connections.

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
)

var (
	postgresServers = &ServerKind{Name: "postgresql", Start: func(ctx context.Context, p Plan) (Cluster, error) { return startPostgres(ctx, p) }}
	mariadbServers  = &ServerKind{Name: "mariadb", Start: func(ctx context.Context, p Plan) (Cluster, error) { return startMariaDB(ctx, p) }}

	// The tables of the locks, created at a server's first start.
	postgresTables, mariadbTables []string
)

type dbCluster struct {
	processes
	name    string // for example PostgreSQL
	version string
	open    func(addr string) (*sql.DB, error)
}

func openPostgres(addr string) (*sql.DB, error) {
	return sql.Open("pgx", "postgres://lab@"+addr+"/postgres?sslmode=disable")
}

func openMariaDB(addr string) (*sql.DB, error) { return sql.Open("mysql", "root@tcp("+addr+")/lab") }

func startPostgres(ctx context.Context, p Plan) (Cluster, error) {
	const versions = "/usr/lib/postgresql/*/bin" // Debian keeps them out of the path
	bin, err := program("postgres", "postgresql", versions)
	if err != nil {
		return nil, err
	}
	initdb, err := program("initdb", "postgresql", filepath.Dir(real(bin)), versions)
	if err != nil {
		return nil, err
	}
	d := &dbCluster{name: "PostgreSQL", open: openPostgres}
	c := &postgresCluster{d}
	d.ready, d.last = d.ping, syscall.SIGINT // it ends sessions instead of waiting for them
	if err := d.prepare(p, bin, "postgres", func(data, port string) []string {
		return []string{"-D", data, "-h", "127.0.0.1", "-p", port, "-k", "", "-c", "max_connections=1000"}
	}); err != nil {
		return nil, err
	}
	for _, proc := range d.procs {
		if err := run(ctx, proc, initdb, "-D", dataOf(proc), "-U", "lab", "-A", "trust", "-N", "--no-locale", "-E", "UTF8"); err != nil {
			return nil, err
		}
	}
	return c, d.startWith(ctx, postgresTables)
}

func startMariaDB(ctx context.Context, p Plan) (Cluster, error) {
	bin, err := program("mariadbd", "mariadb-server-core", "/usr/sbin")
	if err != nil {
		return nil, err
	}
	install, err := program("mariadb-install-db", "mariadb-server-core")
	if err != nil {
		return nil, err
	}
	if _, err := program("my_print_defaults", "mariadb-client-core"); err != nil { // mariadb-install-db calls it
		return nil, err
	}
	c := &dbCluster{name: "MariaDB", open: openMariaDB}
	c.ready = c.ping
	if err := c.prepare(p, bin, "mysql", func(data, port string) []string {
		return []string{"--no-defaults", "--datadir=" + data, "--bind-address=127.0.0.1", "--port=" + port, "--skip-name-resolve", "--tmpdir=" + filepath.Dir(data),
			"--socket=" + filepath.Join(data, "s"), "--pid-file=" + filepath.Join(data, "pid"), "--max-connections=1000"}
	}); err != nil {
		return nil, err
	}
	for _, proc := range c.procs {
		if err := run(ctx, proc, install, "--no-defaults", "--datadir="+dataOf(proc), "--auth-root-authentication-method=normal",
			"--skip-test-db", "--skip-name-resolve"); err != nil {
			return nil, err
		}
		// The server runs the statements of this file before it serves; they create the database
		// that its clients use.
		first := filepath.Join(proc.Dir, "first.sql")
		if err := os.WriteFile(first, []byte("CREATE DATABASE IF NOT EXISTS lab;\n"), 0o644); err != nil {
			return nil, err
		}
		proc.Args = append(proc.Args, "--init-file="+first)
	}
	return c, c.startWith(ctx, mariadbTables)
}

// prepare creates a process for each server of the plan. If we are root, the program runs as
// another user, because both databases refuse to run as root.
func (c *dbCluster) prepare(p Plan, bin, owner string, args func(data, port string) []string) error {
	cred, err := servant(owner)
	if err != nil {
		return err
	}
	for i := range p.Size {
		addr, err := serverPorts.addr()
		if err != nil {
			return err
		}
		_, port, _ := net.SplitHostPort(addr)
		dir := filepath.Join(p.Dir, "db"+strconv.Itoa(i))
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		if err := handOver(dir, cred); err != nil {
			return err
		}
		proc := &process{Path: bin, Dir: dir, Log: filepath.Join(dir, "log"), Cred: cred}
		proc.Args = args(dataOf(proc), port)
		if p.Env != nil {
			proc.Env = p.Env(i)
		}
		c.procs, c.addrs = append(c.procs, proc), append(c.addrs, addr)
	}
	return nil
}

func dataOf(p *process) string { return filepath.Join(p.Dir, "data") }

func (c *dbCluster) startWith(ctx context.Context, tables []string) error {
	if err := c.startAll(); err != nil {
		return err
	}
	for _, addr := range c.addrs {
		db, err := c.open(addr)
		if err != nil {
			return errors.Join(err, c.Close())
		}
		for _, t := range tables {
			_, terr := db.ExecContext(ctx, t)
			err = errors.Join(err, terr)
		}
		if err = errors.Join(err, db.Close()); err != nil {
			return errors.Join(err, c.Close())
		}
	}
	return nil
}

func (c *dbCluster) Version() string { return c.version }

// ping returns nil if server i serves, and reads its version.
func (c *dbCluster) ping(ctx context.Context, i int) error {
	db, err := c.open(c.addrs[i])
	if err != nil {
		return err
	}
	defer db.Close()
	ask := "SHOW server_version"
	if c.name == "MariaDB" {
		ask = "SELECT version()"
	}
	var v string
	if err := db.QueryRowContext(ctx, ask).Scan(&v); err != nil {
		return err
	}
	v, _, _ = strings.Cut(v, " ") // the package's version follows
	v, _, _ = strings.Cut(v, "-")
	c.version = c.name + " " + v
	return nil
}

// postgresCluster handles the processes of PostgreSQL: one for each session in addition to the
// first.
type postgresCluster struct{ *dbCluster }

// Pids returns the first processes, then the sessions: their processor time counts as the server's.
func (c *postgresCluster) Pids() []int {
	pids := c.dbCluster.Pids()
	for _, p := range c.procs {
		sessions, err := children(p.pid())
		if err == nil { // otherwise it has just ended
			pids = append(pids, sessions...)
		}
	}
	return pids
}

// Kill ends all processes, as a failing machine does: a server does not start again while one of
// them lives.
func (c *postgresCluster) Kill(i int) error {
	if c.procs[i].pid() == 0 {
		return nil
	}
	if err := c.Stop(i); err != nil {
		return err
	}
	sessions, err := children(c.procs[i].pid())
	if err != nil {
		return err
	}
	if err := c.procs[i].end(syscall.SIGKILL); err != nil {
		return err
	}
	for _, s := range sessions {
		if err := syscall.Kill(s, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
		for deadline := time.Now().Add(10 * time.Second); syscall.Kill(s, 0) == nil && !zombie(s); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				return fmt.Errorf("process %d of the server does not end", s)
			}
		}
	}
	return nil
}

func (c *postgresCluster) Stop(i int) error { return c.all(i, syscall.SIGSTOP) }
func (c *postgresCluster) Cont(i int) error { return c.all(i, syscall.SIGCONT) }

// all signals the first process, which then starts no more, and all processes that it has started.
func (c *postgresCluster) all(i int, s syscall.Signal) error {
	if err := c.procs[i].signal(s); err != nil {
		return err
	}
	sessions, err := children(c.procs[i].pid())
	for _, pid := range sessions {
		if kerr := syscall.Kill(pid, s); !errors.Is(kerr, syscall.ESRCH) {
			err = errors.Join(err, kerr)
		}
	}
	return err
}

// Close continues stopped sessions first.
func (c *postgresCluster) Close() error {
	for i, p := range c.procs {
		if p.pid() != 0 {
			_ = c.Cont(i)
		}
	}
	return c.dbCluster.Close()
}

// children returns the live processes that a process has started, from /proc.
func children(pid int) ([]int, error) {
	if pid == 0 {
		return nil, nil
	}
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	var all []int
	for _, list := range lists {
		text, rerr := os.ReadFile(list)
		err = errors.Join(err, rerr)
		for field := range strings.FieldsSeq(string(text)) {
			child, aerr := strconv.Atoi(field)
			all, err = append(all, child), errors.Join(err, aerr)
		}
	}
	return all, err
}

// zombie reports whether a process has ended and waits for its parent to notice.
func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z")
}

// servant returns the user that runs a server: the current one unless we are root; then the
// server's own user, or nobody.
func servant(name string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return nil, err
		}
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, err
}

// handOver gives a directory to a user, and makes its parents in the directory for temporary files
// accessible to all.
func handOver(dir string, to *syscall.Credential) error {
	if to == nil {
		return nil
	}
	if err := os.Chown(dir, int(to.Uid), int(to.Gid)); err != nil {
		return err
	}
	tmp := filepath.Clean(os.TempDir())
	for up := filepath.Dir(dir); strings.HasPrefix(up, tmp+"/"); up = filepath.Dir(up) {
		info, err := os.Stat(up)
		if err != nil {
			return err
		}
		if err := os.Chmod(up, info.Mode().Perm()|0o011); err != nil {
			return err
		}
	}
	return nil
}

// run runs a program to its end in the server's directory, as the server's user. Its temporary
// files are there too: two MariaDB servers that use one directory at the same time delete each
// other's.
func run(ctx context.Context, p *process, bin string, args ...string) error {
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+p.Dir)
	cmd.Dir, cmd.SysProcAttr = p.Dir, &syscall.SysProcAttr{Credential: p.Cred}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", filepath.Base(bin), err, out)
	}
	return nil
}

// real resolves links: /usr/local/bin/postgres may be one, and the other programs are next to its
// target.
func real(path string) string {
	if p, err := filepath.EvalSymlinks(path); err == nil {
		return p
	}
	return path
}
