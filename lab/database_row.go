package main

// A row with a unique key in PostgreSQL: inserting it acquires, deleting it releases. Without an
// expiry, the row of a crashed holder remains. With an expiry, the row of a slow holder is deleted.

import (
	"context"
	"database/sql"
	"time"
)

func init() {
	postgresTables = append(postgresTables,
		`CREATE TABLE lock_row (name text PRIMARY KEY, owner text NOT NULL)`,
		`CREATE TABLE lock_row_expiry (name text PRIMARY KEY, owner text NOT NULL, expires timestamptz NOT NULL)`)
}

// rowSQL is a recipe: $1 is the name, $2 the owner, $3 the lock's time in seconds. One affected row
// means success.
type rowSQL struct{ take, free, left string }

var (
	rowForEver = rowSQL{
		take: `INSERT INTO lock_row VALUES ($1, $2) ON CONFLICT DO NOTHING`,
		free: `DELETE FROM lock_row WHERE name = $1 AND owner = $2`,
		left: `SELECT count(*) FROM lock_row WHERE name = $1`,
	}
	rowWithExpiry = rowSQL{ // by the server's clock
		take: `INSERT INTO lock_row_expiry AS l VALUES ($1, $2, clock_timestamp() + make_interval(secs => $3))
			ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, expires = excluded.expires WHERE l.expires < clock_timestamp()`,
		free: `DELETE FROM lock_row_expiry WHERE name = $1 AND owner = $2`,
		left: `SELECT count(*) FROM lock_row_expiry WHERE name = $1`,
	}
)

type rowLock struct {
	db    *sql.DB
	sql   rowSQL
	name  string
	owner string // the client's name: the row shows the holder
	args  []any  // of take, after name and owner
}

func (l *rowLock) Acquire(ctx context.Context) (Hold, error) {
	err := poll(ctx, func(ctx context.Context) (bool, error) {
		return touched(l.db.ExecContext(ctx, l.sql.take, append([]any{l.name, l.owner}, l.args...)...))
	})
	if err != nil {
		return nil, err
	}
	return rowHold{l}, nil
}

func touched(r sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n == 1, err
}

func (l *rowLock) Close() error { return l.db.Close() }

type rowHold struct{ *rowLock }

func (rowHold) Token() (int64, bool)  { return 0, false }
func (rowHold) Lost() <-chan struct{} { return nil }

func (h rowHold) Release(ctx context.Context) error {
	ok, err := touched(h.db.ExecContext(ctx, h.sql.free, h.name, h.owner))
	if err == nil && !ok {
		return errNotOurs
	}
	return err
}

func init() {
	row := func(name, title, promises string, s rowSQL, expires bool) {
		open := func(_ context.Context, addrs []string, lock string, o Options) (Lock, error) {
			db, err := openPostgres(addrs[0])
			l := &rowLock{db: db, sql: s, name: lock, owner: o.Client}
			if expires {
				l.args = []any{o.TTL.Seconds()}
			}
			return l, err
		}
		register(System{
			Name: name, Title: title, Client: "written here, on " + library("github.com/jackc/pgx/v5"), Promises: promises,
			Server: postgresServers, Sizes: []int{1}, Expires: expires, Open: open,
			Left: countRows(openPostgres, s.left),
			Break: func(ctx context.Context, addrs []string, lock string) (bool, error) {
				l, err := open(ctx, addrs, lock, Options{Client: "a stranger", TTL: time.Second})
				if err != nil {
					return false, err
				}
				defer l.Close()
				err = rowHold{l.(*rowLock)}.Release(ctx)
				return err == nil, ignore(err, errNotOurs)
			},
		})
	}
	row("postgres-row", "PostgreSQL, a row with a unique key", "One holder, for as long as it takes. Who crashes holds for ever.", rowForEver, false)
	row("postgres-row-expiry", "PostgreSQL, a row with an expiry", "One holder while its time lasts. The holder must be done by then: nobody tells it.", rowWithExpiry, true)
}

// countRows returns a Left that runs one query for the lock's name.
func countRows(open func(addr string) (*sql.DB, error), question string) func(context.Context, []string, string) (int, error) {
	return func(ctx context.Context, addrs []string, lock string) (n int, err error) {
		db, err := open(addrs[0])
		if err != nil {
			return 0, err
		}
		defer db.Close()
		err = db.QueryRowContext(ctx, question, lock).Scan(&n)
		return n, err
	}
}
