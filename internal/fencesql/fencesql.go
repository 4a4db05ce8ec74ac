// Package fencesql has the tests of fence.Table for any module that has a database: the servers of
// lab/ and the SQLite of examples/fencing are in modules of their own.
package fencesql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/zklock/zklock/fence"
)

// Database is a database to test on. It keeps the tests' tables, which each test first removes.
type Database struct {
	DB       *sql.DB
	Dialect  fence.Dialect
	Snapshot sql.IsolationLevel // a level whose transactions continue to read the data from their beginning

	// Impatient is DB with calls that soon end if they wait for a lock. It is nil if the calls of
	// DB end with their context.
	Impatient *sql.DB
}

// Test runs all tests.
func (d Database) Test(t *testing.T) {
	t.Run("LateOneIsRefused", d.late)
	t.Run("SameTokenAgain_FoundAndNotChanged", d.again)
	t.Run("NoRow_NoToken", d.missing)
	t.Run("LaterHolderWaitsForTheTransaction", d.waits)
	t.Run("OldSnapshot_IsNoWayAround", d.snapshot)
	t.Run("Crowd_WorkIsInTheOrderOfTokens", d.crowd)
}

func (d Database) table() fence.Table {
	return fence.Table{Dialect: d.Dialect, Name: "fence_reports", Key: "name", Token: "token"}
}

func (d Database) exec(t *testing.T, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := d.DB.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// reset creates the tables: a report with token 0, and one with none.
func (d Database) reset(t *testing.T) {
	t.Helper()
	d.exec(t, `DROP TABLE IF EXISTS fence_reports`, `DROP TABLE IF EXISTS fence_done`,
		`CREATE TABLE fence_reports (name varchar(64) PRIMARY KEY, body varchar(64), token bigint DEFAULT 0)`,
		`INSERT INTO fence_reports (name) VALUES ('nightly')`, `INSERT INTO fence_reports (name, token) VALUES ('broken', NULL)`,
		`CREATE TABLE fence_done (place bigint PRIMARY KEY, token bigint NOT NULL)`)
}

// save writes a report under a token.
func (d Database) save(ctx context.Context, body string, token int64) error {
	return d.inTx(ctx, func(tx *sql.Tx) error {
		if err := d.table().Raise(ctx, tx, "nightly", token); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `UPDATE fence_reports SET body = '`+body+`' WHERE name = 'nightly'`)
		return err
	})
}

func (d Database) inTx(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := d.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// holds compares the report with the expected one.
func (d Database) holds(t *testing.T, body string, token int64) {
	t.Helper()
	var gotBody sql.NullString
	var gotToken int64
	if err := d.DB.QueryRowContext(t.Context(), `SELECT body, token FROM fence_reports WHERE name = 'nightly'`).Scan(&gotBody, &gotToken); err != nil {
		t.Fatal(err)
	}
	if gotBody.String != body || gotToken != token {
		t.Fatalf("the row has %q of token %d, and %q of %d was right", gotBody.String, gotToken, body, token)
	}
}

func wantStale(t *testing.T, err error, token, seen int64) {
	t.Helper()
	var stale *fence.StaleError
	if !errors.As(err, &stale) || !errors.Is(err, fence.ErrStale) || stale.Seen != seen || stale.Claim.Token != token {
		t.Fatalf("the error of token %d after token %d: %v", token, seen, err)
	}
}

func wantNil(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (d Database) late(t *testing.T) {
	d.reset(t)
	wantNil(t, d.save(t.Context(), "of A", 17))
	wantNil(t, d.save(t.Context(), "of B", 23))
	wantStale(t, d.save(t.Context(), "of A, late", 17), 17, 23)
	d.holds(t, "of B", 23)
}

// The row-count trap: in MySQL and MariaDB, an UPDATE that changes nothing counts no row, the same
// as an UPDATE that finds none.
func (d Database) again(t *testing.T) {
	d.reset(t)
	for range 2 {
		wantNil(t, d.save(t.Context(), "the same", 17))
	}
	wantNil(t, d.inTx(t.Context(), func(tx *sql.Tx) error {
		return errors.Join(d.table().Raise(t.Context(), tx, "nightly", 17), d.table().Raise(t.Context(), tx, "nightly", 17))
	}))
	d.holds(t, "the same", 17)
}

func (d Database) missing(t *testing.T) {
	d.reset(t)
	raise := func(key string, token int64) error {
		return d.inTx(t.Context(), func(tx *sql.Tx) error { return d.table().Raise(t.Context(), tx, key, token) })
	}
	if err := raise("nobody", 17); !errors.Is(err, sql.ErrNoRows) {
		t.Error("no row:", err)
	}
	if err := raise("broken", 17); err == nil || errors.Is(err, fence.ErrStale) {
		t.Error("NULL:", err)
	}
	if err := raise("nightly", 0); !errors.Is(err, fence.ErrInvalid) {
		t.Error("no token:", err)
	}
	d.holds(t, "", 0)
}

// A later holder's Raise does not return while an earlier holder's transaction is open. So the work
// of the earlier transaction is done completely before, or not at all.
func (d Database) waits(t *testing.T) {
	d.reset(t)
	impatient := d
	if d.Impatient != nil {
		impatient.DB = d.Impatient
	}
	for _, token := range []int64{17, 17} { // raised, and then found unchanged
		tx, err := d.DB.BeginTx(t.Context(), nil)
		wantNil(t, err)
		wantNil(t, d.table().Raise(t.Context(), tx, "nightly", token))
		short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		if impatient.save(short, "of B, in between", 23) == nil {
			t.Error("a later holder got in between")
		}
		cancel()
		_, err = tx.ExecContext(t.Context(), `UPDATE fence_reports SET body = 'of A' WHERE name = 'nightly'`)
		wantNil(t, err)
		wantNil(t, tx.Commit())
		d.holds(t, "of A", 17)
	}
	wantNil(t, d.save(t.Context(), "of B", 23))
	d.holds(t, "of B", 23)
}

// A transaction that began before the later holder wrote reads its own token. Its Raise fails even
// so.
func (d Database) snapshot(t *testing.T) {
	for _, token := range []int64{17, 19} {
		d.reset(t)
		wantNil(t, d.save(t.Context(), "of A", 17))
		tx, err := d.DB.BeginTx(t.Context(), &sql.TxOptions{Isolation: d.Snapshot})
		wantNil(t, err)
		var seen int64
		read := func() error {
			return tx.QueryRowContext(t.Context(), `SELECT token FROM fence_reports WHERE name = 'nightly'`).Scan(&seen)
		}
		wantNil(t, read())
		wantNil(t, d.save(t.Context(), "of B", 23))
		wantNil(t, read())
		if seen != 17 {
			t.Fatal("this is no snapshot: it has token", seen)
		}
		if d.table().Raise(t.Context(), tx, "nightly", token) == nil {
			t.Error("the late one's token was accepted")
		}
		wantNil(t, tx.Rollback())
		d.holds(t, "of B", 23)
	}
}

// In any order of arrival, no work is done after the work of a later holder.
func (d Database) crowd(t *testing.T) {
	d.reset(t)
	const goroutines, each = 8, 25
	var mu sync.Mutex
	var worked, late int
	var all sync.WaitGroup
	for i := range goroutines {
		rnd := rand.New(rand.NewPCG(1, uint64(i)))
		all.Go(func() {
			for n := range each {
				token := int64(n+1) + rnd.Int64N(8)
				err := d.inTx(t.Context(), func(tx *sql.Tx) error {
					if err := d.table().Raise(t.Context(), tx, "nightly", token); err != nil {
						return err
					}
					_, err := tx.ExecContext(t.Context(), fmt.Sprintf(`INSERT INTO fence_done SELECT count(*), %d FROM fence_done`, token))
					return err
				})
				mu.Lock()
				switch {
				case err == nil:
					worked++
				case errors.Is(err, fence.ErrStale):
					late++
				default:
					t.Errorf("token %d: %v", token, err)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if worked == 0 || late == 0 {
		t.Fatalf("%d worked, and %d were late: this shows nothing", worked, late)
	}
	rows, err := d.DB.QueryContext(t.Context(), `SELECT token FROM fence_done ORDER BY place`)
	wantNil(t, err)
	defer rows.Close()
	var last int64
	n := 0
	for ; rows.Next(); n++ {
		var token int64
		wantNil(t, rows.Scan(&token))
		if token < last {
			t.Errorf("token %d worked after token %d", token, last)
		}
		last = token
	}
	wantNil(t, rows.Err())
	if n != worked {
		t.Errorf("%d worked, and the table has %d", worked, n)
	}
}
