package main

// What the locks on databases do when their holder is gone or slow, and what InnoDB locks beside what was asked for.

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
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

// session is a connection with a transaction begun.
func session(t *testing.T, db *sql.DB) *sql.Conn {
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { discard(conn) })
	_, err = conn.ExecContext(t.Context(), "BEGIN")
	require.NoError(t, err)
	return conn
}

func database(t *testing.T, kind *ServerKind, open func(string) (*sql.DB, error)) *sql.DB {
	db, err := open(serve(t, kind, Plan{Size: 1}).Addrs()[0])
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// Both select a row that is missing: both are let in, as each has locked the same gap, and neither can insert while the other has it.
func TestMariaDB_ForUpdateOfAMissingRow_BothAreLetIn_AndDeadlock(t *testing.T) {
	db := database(t, mariadbServers, openMariaDB)
	a, b := session(t, db), session(t, db)
	for _, conn := range []*sql.Conn{a, b} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var one int
		require.ErrorIs(t, conn.QueryRowContext(ctx, mariadbForUpdate.take, "missing").Scan(&one), sql.ErrNoRows)
	}
	inserted := make(chan error, 2)
	insert := func(conn *sql.Conn) {
		_, err := conn.ExecContext(t.Context(), "INSERT INTO lock_select VALUES ('missing', 'missing')")
		if err == nil {
			_, err = conn.ExecContext(t.Context(), "COMMIT")
		}
		inserted <- err
	}
	go insert(a)
	require.Eventually(t, func() bool {
		var waiting int
		err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'").Scan(&waiting)
		return err == nil && waiting == 1
	}, 20*time.Second, 20*time.Millisecond)
	go insert(b)
	first, second := <-inserted, <-inserted
	if first == nil {
		first, second = second, first
	}
	var deadlock *mysql.MySQLError
	require.True(t, errors.As(first, &deadlock), "%v", first)
	require.EqualValues(t, 1213, deadlock.Number)
	require.NoError(t, second)
}

// PostgreSQL locks no gap: who selects a missing row has locked nothing, and one of the inserts finds the other's.
func TestPostgreSQL_ForUpdateOfAMissingRow_BothAreLetIn_NoDeadlock(t *testing.T) {
	db := database(t, postgresServers, openPostgres)
	a, b := session(t, db), session(t, db)
	for _, conn := range []*sql.Conn{a, b} {
		var one int
		require.ErrorIs(t, conn.QueryRowContext(t.Context(), postgresForUpdate.take, "missing").Scan(&one), sql.ErrNoRows)
	}
	_, err := a.ExecContext(t.Context(), "INSERT INTO lock_select VALUES ('missing', 'missing')")
	require.NoError(t, err)
	_, err = a.ExecContext(t.Context(), "COMMIT")
	require.NoError(t, err)
	_, err = b.ExecContext(t.Context(), "INSERT INTO lock_select VALUES ('missing', 'missing')")
	require.ErrorContains(t, err, "duplicate key")
}

// Without an index InnoDB locks every row that it looks at. PostgreSQL locks those that it returns.
func TestDatabase_ForUpdateWithoutAnIndex(t *testing.T) {
	for _, c := range []struct {
		name   string
		kind   *ServerKind
		open   func(string) (*sql.DB, error)
		column string
		blocks bool
	}{
		{"mariadb with", mariadbServers, openMariaDB, "name", false},
		{"mariadb without", mariadbServers, openMariaDB, "unindexed", true},
		{"postgresql with", postgresServers, openPostgres, "name", false},
		{"postgresql without", postgresServers, openPostgres, "unindexed", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := database(t, c.kind, c.open)
			_, err := db.ExecContext(t.Context(), "INSERT INTO lock_select VALUES ('one', 'one'), ('two', 'two')")
			require.NoError(t, err)
			a, b := session(t, db), session(t, db)
			var yes int
			require.NoError(t, a.QueryRowContext(t.Context(), "SELECT 1 FROM lock_select WHERE "+c.column+" = 'one' FOR UPDATE").Scan(&yes))
			err = b.QueryRowContext(t.Context(), "SELECT 1 FROM lock_select WHERE "+c.column+" = 'two' FOR UPDATE NOWAIT").Scan(&yes)
			if c.blocks {
				require.True(t, lockWaitTimeout(err), "%v", err)
			} else {
				require.NoError(t, err)
			}
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
