package main

// What the locks on databases do when their holder is gone or slow, and what InnoDB locks beside what was asked for.

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDatabase_HolderCrashes(t *testing.T) {
	for _, c := range []struct {
		system  string
		forEver bool // else it goes with the connection, or with the time
	}{
		{"postgres-row", true}, {"postgres-row-expiry", false}, {"postgres-version", false},
		{"postgres-for-update", false}, {"postgres-advisory", false}, {"mariadb-for-update", false}, {"mariadb-get-lock", false},
	} {
		t.Run(c.system, func(t *testing.T) {
			s, err := find(c.system)
			require.NoError(t, err)
			addrs := serve(t, s.Server, Plan{Size: 1}).Addrs()
			o := Options{Client: "first", TTL: 200 * time.Millisecond}
			first := client(t, c.system, addrs, o)
			acquire(t, first)
			require.NoError(t, first.Close())
			if !c.forEver {
				o.Client = "second"
				acquire(t, client(t, c.system, addrs, o))
				return
			}
			for _, o.Client = range []string{"second", "first"} { // the same client, started again, waits for itself
				excluded(t, client(t, c.system, addrs, o))
			}
		})
	}
}

// A hold whose time is over is told by its release, and does no harm to the next.
func TestDatabase_LateRelease_SparesTheNext(t *testing.T) {
	c := serve(t, postgresServers, Plan{Size: 1})
	for _, name := range []string{"postgres-row-expiry", "postgres-version"} {
		t.Run(name, func(t *testing.T) {
			h := acquire(t, client(t, name, c.Addrs(), Options{Client: "first", TTL: 100 * time.Millisecond}))
			next := acquire(t, client(t, name, c.Addrs(), Options{Client: "second", TTL: time.Minute}))
			require.ErrorIs(t, h.Release(t.Context()), errNotOurs)
			excluded(t, client(t, name, c.Addrs(), Options{Client: "third", TTL: time.Minute}))
			old, has := h.Token()
			if token, _ := next.Token(); has {
				require.Greater(t, token, old)
			}
		})
	}
}

// The owner in the row is the client's name. A client that is started again within its time cannot be told from itself.
func TestDatabase_SameNameTwice_TheLateReleaseFreesTheNext(t *testing.T) {
	c := serve(t, postgresServers, Plan{Size: 1})
	h := acquire(t, client(t, "postgres-row-expiry", c.Addrs(), Options{Client: "same", TTL: 100 * time.Millisecond}))
	acquire(t, client(t, "postgres-row-expiry", c.Addrs(), Options{Client: "same", TTL: time.Minute}))
	require.NoError(t, h.Release(t.Context()))
	acquire(t, client(t, "postgres-row-expiry", c.Addrs(), Options{Client: "third", TTL: time.Minute}))
}

func database(t *testing.T, kind *ServerKind, open func(string) (*sql.DB, error)) *sql.DB {
	db, err := open(serve(t, kind, Plan{Size: 1}).Addrs()[0])
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// Both select a row that is missing, and both are let in. In MariaDB each has then locked the gap, and neither can insert while the
// other has it. PostgreSQL has locked nothing, and one insert finds the other's.
func TestDatabase_ForUpdateOfAMissingRow_BothAreLetIn(t *testing.T) {
	for _, c := range []struct {
		kind *ServerKind
		sql  sessionSQL
		ends string
	}{
		{mariadbServers, mariadbForUpdate, "Deadlock"},
		{postgresServers, postgresForUpdate, "duplicate key"},
	} {
		t.Run(c.kind.Name, func(t *testing.T) {
			in, failed, err := missingRow(t.Context(), database(t, c.kind, c.sql.open), c.sql, "missing")
			require.NoError(t, err)
			require.Equal(t, 2, in)
			require.Len(t, failed, 1)
			require.ErrorContains(t, failed[0], c.ends)
			require.Equal(t, c.kind == mariadbServers, isDeadlock(failed[0]))
		})
	}
}

// Without an index InnoDB locks every row that it looks at. PostgreSQL locks those that it returns.
func TestDatabase_ForUpdateWithoutAnIndex(t *testing.T) {
	for _, c := range []struct {
		kind    *ServerKind
		sql     sessionSQL
		without bool
	}{
		{mariadbServers, mariadbForUpdate, true},
		{postgresServers, postgresForUpdate, false},
	} {
		t.Run(c.kind.Name, func(t *testing.T) {
			db := database(t, c.kind, c.sql.open)
			waits, err := otherRow(t.Context(), db, "name")
			require.NoError(t, err)
			require.False(t, waits)
			waits, err = otherRow(t.Context(), db, "unindexed")
			require.NoError(t, err)
			require.Equal(t, c.without, waits)
		})
	}
}

// The server that is killed and starts again knows the rows, and no session.
func TestDatabase_ServerKilled(t *testing.T) {
	c := serve(t, postgresServers, Plan{Size: 1})
	o := Options{Client: "first", TTL: time.Minute}
	row, advisory := client(t, "postgres-row", c.Addrs(), o), client(t, "postgres-advisory", c.Addrs(), o)
	acquire(t, row)
	h := acquire(t, advisory)
	require.NoError(t, c.Kill(0))
	require.NoError(t, c.Restart(0))
	o.Client = "second"
	excluded(t, client(t, "postgres-row", c.Addrs(), o))
	acquire(t, client(t, "postgres-advisory", c.Addrs(), o))
	require.Error(t, h.Release(t.Context()))
}
