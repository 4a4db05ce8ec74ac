package main

// These tests attack fence.Table on SQLite.

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/zklock/zklock/fence"
	"github.com/zklock/zklock/internal/fencesql"
)

func TestFence_SQL(t *testing.T) {
	file := filepath.Join(t.TempDir(), "fence.db")
	open := func(wait string) *sql.DB {
		// With its write-ahead log a transaction that reads does not block writers: it continues to
		// read the old data.
		db, err := sql.Open("sqlite", file+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout("+wait+")")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		return db
	}
	fencesql.Database{DB: open("60000"), Dialect: fence.SQLite, Impatient: open("300")}.Test(t)
}
