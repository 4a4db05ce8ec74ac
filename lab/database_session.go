package main

// The common part of locks that end with the connection. Their recipes are in database_advisory.go
// and database_for_update.go. The server admits waiters by itself, and no timeout ends them: a
// holder that is cut off holds as long as its connection looks alive to the server.

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/go-sql-driver/mysql"
)

// sessionSQL is a recipe. A lock that is a transaction has look, row, begin, take and commit; any
// other lock has take and free. All but begin and commit get the lock's name. look, take and free
// return 1 for success.
type sessionSQL struct {
	open           func(addr string) (*sql.DB, error)
	look, row      string // run once, before the first take: look checks for the row that take selects, and row creates it
	begin          string
	take           string
	free, commit   string
	share, unshare string // take and free of a reader; "" if there are no readers
	left           string // for System.Left
	client         string // the module
}

type sessionLock struct {
	db   *sql.DB
	sql  sessionSQL
	name string
	made bool      // the row exists
	held *sql.Conn // of the last hold
}

func (l *sessionLock) Acquire(ctx context.Context) (Hold, error) {
	return l.acquire(ctx, l.sql.take, l.sql.free)
}

func (l *sessionLock) AcquireShared(ctx context.Context) (Hold, error) {
	return l.acquire(ctx, l.sql.share, l.sql.unshare)
}

// acquire uses a separate connection for the hold. If ctx ends while it waits, it closes the
// connection, which ends the wait.
func (l *sessionLock) acquire(ctx context.Context, take, free string) (Hold, error) {
	if err := l.makeRow(ctx); err != nil {
		return nil, err
	}
	conn, err := l.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if err := l.take(ctx, conn, take); err != nil {
		discard(conn)
		return nil, err
	}
	l.held = conn
	return &sessionHold{sessionLock: l, conn: conn, free: free}, nil
}

// makeRow looks first: in MariaDB an INSERT of an existing row waits for the transaction that has
// locked it.
func (l *sessionLock) makeRow(ctx context.Context) error {
	if l.made || l.sql.row == "" {
		return nil
	}
	if err := l.db.QueryRowContext(ctx, l.sql.look, l.name).Scan(&l.made); err != nil || l.made {
		return err
	}
	_, err := l.db.ExecContext(ctx, l.sql.row, l.name)
	if err != nil && ctx.Err() != nil {
		return errBusy // another client was faster, and holds
	}
	l.made = err == nil
	return err
}

func (l *sessionLock) take(ctx context.Context, conn *sql.Conn, take string) error {
	if l.sql.begin != "" {
		if _, err := conn.ExecContext(ctx, l.sql.begin); err != nil {
			return err
		}
	} else if err := conn.PingContext(ctx); err != nil {
		return err
	}
	for {
		var yes int
		err := conn.QueryRowContext(ctx, take, l.name).Scan(&yes)
		switch {
		case err == nil && yes == 1:
			return nil
		case err == nil:
			return errors.New("the server says no")
		case ctx.Err() != nil:
			return errBusy // it responded just now, and then had us wait
		case !lockWaitTimeout(err):
			return err
		}
	}
}

// lockWaitTimeout reports whether MariaDB has ended the wait after 50 s. The transaction continues.
func lockWaitTimeout(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && e.Number == 1205
}

// discard closes a connection, so that it does not return to the pool with its locks.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = conn.Close()
}

// Close also closes the connection of a hold, which ends the hold.
func (l *sessionLock) Close() error {
	if l.held != nil {
		discard(l.held)
	}
	return l.db.Close()
}

type sessionHold struct {
	*sessionLock
	conn   *sql.Conn
	free   string
	shares bool // a reader's hold continues on conn
}

func (*sessionHold) Token() (int64, bool)  { return 0, false }
func (*sessionHold) Lost() <-chan struct{} { return nil } // a closed connection is noticed at the next statement

func (h *sessionHold) Share(ctx context.Context) (Hold, error) {
	if err := h.take(ctx, h.conn, h.sql.share); err != nil {
		return nil, err
	}
	h.shares = true
	return &sessionHold{sessionLock: h.sessionLock, conn: h.conn, free: h.sql.unshare}, nil
}

func (h *sessionHold) Release(ctx context.Context) error {
	if h.sql.commit != "" {
		if _, err := h.conn.ExecContext(ctx, h.sql.commit); err != nil {
			discard(h.conn)
			return err
		}
		return h.conn.Close()
	}
	var yes sql.NullInt64
	if err := h.conn.QueryRowContext(ctx, h.free, h.name).Scan(&yes); err != nil {
		discard(h.conn)
		return err
	}
	if h.shares {
		return nil
	}
	if yes.Int64 != 1 {
		return errors.Join(errNotOurs, h.conn.Close())
	}
	return h.conn.Close()
}

func registerSession(name, title, promises string, kind *ServerKind, s sessionSQL) {
	sys := System{
		Name: name, Title: title, Client: "written here, on " + library(s.client), Promises: promises,
		Server: kind, Sizes: []int{1}, Downgrades: s.share != "",
		Open: func(_ context.Context, addrs []string, lock string, _ Options) (Lock, error) {
			db, err := s.open(addrs[0])
			return &sessionLock{db: db, sql: s, name: lock}, err
		},
	}
	if s.left != "" {
		sys.Left = countRows(s.open, s.left)
	}
	if s.share != "" {
		sys.Kind = readers
	} else if s.free != "" {
		sys.Break = func(ctx context.Context, addrs []string, lock string) (bool, error) {
			db, err := s.open(addrs[0])
			if err != nil {
				return false, err
			}
			defer db.Close()
			var yes sql.NullInt64
			err = db.QueryRowContext(ctx, s.free, lock).Scan(&yes)
			return yes.Int64 == 1, err
		}
	}
	register(sys)
}
