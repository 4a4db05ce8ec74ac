// Command fencing saves a report under a lock, in a database that rejects the write of a holder
// that is too late.
//
//	cd examples/fencing && ZKLOCK_SERVERS=127.0.0.1:2181 go run .
package main

import (
	"context"
	"database/sql"
	"errors"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/zklock/zklock"
	_ "modernc.org/sqlite"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	db, err := open(ctx, "reports.db")
	if err != nil {
		log.Fatal(err)
	}
	work := func(context.Context) (string, error) { return "all is well", nil } // your work
	if err := run(ctx, os.Getenv("ZKLOCK_SERVERS"), db, work); err != nil {
		log.Fatal(err)
	}
}

// open opens the database. The row exists from the start, with a token that is smaller than every
// holder's.
func open(ctx context.Context, file string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", file)
	if err != nil {
		return nil, err
	}
	_, err = db.ExecContext(ctx, `
		CREATE TABLE IF NOT EXISTS reports (name text PRIMARY KEY, body text, token bigint NOT NULL DEFAULT 0);
		INSERT OR IGNORE INTO reports (name) VALUES ('nightly')`)
	return db, err
}

// run does the work under the lock, and saves the result.
func run(ctx context.Context, servers string, db *sql.DB, work func(context.Context) (string, error)) error {
	connecting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	s, err := zklock.Connect(connecting, servers)
	if err != nil {
		return err
	}
	defer s.Close() // after Do has released
	m, err := zklock.NewMutex(s, "/locks/report")
	if err != nil {
		return err
	}
	return m.Do(ctx, func(ctx context.Context, hold *zklock.Hold) error {
		body, err := work(ctx)
		if err != nil {
			return err
		}
		// If the process pauses here until the next holder has written, only the token prevents it
		// from overwriting that result.
		return save(ctx, db, body, hold.Token())
	})
}

var errStale = errors.New("a later holder has written")

// save compares and writes in one statement.
func save(ctx context.Context, db *sql.DB, body string, token int64) error {
	res, err := db.ExecContext(ctx, `UPDATE reports SET body = $1, token = $2 WHERE name = 'nightly' AND token <= $2`, body, token)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 1 {
		return err
	}
	return errStale
}
