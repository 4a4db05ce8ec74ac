package main

// A version column in PostgreSQL, the optimistic way: read the row, and write it if its version is
// still the same. The version is a token: a resource elsewhere that checks it rejects a late
// holder.

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

func init() {
	postgresTables = append(postgresTables,
		`CREATE TABLE lock_version (name text PRIMARY KEY, version bigint NOT NULL, owner text, expires timestamptz)`)
}

const (
	versionRow  = `INSERT INTO lock_version VALUES ($1, 0) ON CONFLICT DO NOTHING`
	versionRead = `SELECT version, owner IS NULL OR expires < clock_timestamp() FROM lock_version WHERE name = $1`
	versionTake = `UPDATE lock_version SET version = version + 1, owner = $3, expires = clock_timestamp() + make_interval(secs => $4)
		WHERE name = $1 AND version = $2`
	versionFree = `UPDATE lock_version SET owner = NULL WHERE name = $1 AND version = $2 AND owner IS NOT NULL`
	versionLeft = `SELECT count(*) FROM lock_version WHERE name = $1 AND owner IS NOT NULL`
)

type versionLock struct {
	db          *sql.DB
	name, owner string
	ttl         time.Duration
}

func (l *versionLock) Acquire(ctx context.Context) (Hold, error) {
	var version int64
	err := poll(ctx, func(ctx context.Context) (bool, error) {
		var free bool
		err := l.db.QueryRowContext(ctx, versionRead, l.name).Scan(&version, &free)
		if errors.Is(err, sql.ErrNoRows) {
			free = true
			_, err = l.db.ExecContext(ctx, versionRow, l.name) // version is 0 then; if it has changed, the write fails
		}
		if err != nil || !free {
			return false, err
		}
		return touched(l.db.ExecContext(ctx, versionTake, l.name, version, l.owner, l.ttl.Seconds()))
	})
	if err != nil {
		return nil, err
	}
	return versionHold{l, version + 1}, nil
}

func (l *versionLock) Close() error { return l.db.Close() }

type versionHold struct {
	*versionLock
	version int64
}

func (h versionHold) Token() (int64, bool) { return h.version, true }
func (versionHold) Lost() <-chan struct{}  { return nil }

func (h versionHold) Release(ctx context.Context) error {
	ok, err := touched(h.db.ExecContext(ctx, versionFree, h.name, h.version))
	if err == nil && !ok {
		return errNotOurs
	}
	return err
}

func init() {
	open := func(_ context.Context, addrs []string, lock string, o Options) (Lock, error) {
		db, err := openPostgres(addrs[0])
		return &versionLock{db: db, name: lock, owner: o.Client, ttl: o.TTL}, err
	}
	register(System{
		Name: "postgres-version", Title: "PostgreSQL, a version column", Client: "written here, on " + library("github.com/jackc/pgx/v5"),
		Promises: "One holder while its time lasts, with a token that the same database can check in the write itself.",
		Server:   postgresServers, Sizes: []int{1}, Expires: true, Open: open,
		Left: countRows(openPostgres, versionLeft), // no Break: a release names the version of a hold
	})
}
