package main

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

func database(t *testing.T) *sql.DB {
	db, err := open(t.Context(), filepath.Join(t.TempDir(), "reports.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func saved(t *testing.T, db *sql.DB) (body string) {
	if err := db.QueryRow(`SELECT body FROM reports`).Scan(&body); err != nil {
		t.Fatal(err)
	}
	return body
}

func TestFencing_ReportIsSaved(t *testing.T) {
	srv, db := zktest.Start(t), database(t)
	for _, body := range []string{"Monday's", "Tuesday's"} {
		if err := run(t.Context(), srv.Addr(), db, func(context.Context) (string, error) { return body, nil }); err != nil {
			t.Error(err)
		}
		if got := saved(t, db); got != body {
			t.Error("saved:", got)
		}
	}
}

// A holder pauses before it writes. Meanwhile its session ends, and the next holder has written.
func TestFencing_LateWriteIsRefused(t *testing.T) {
	srv, db := zktest.Start(t), database(t)
	s, err := zklock.Connect(t.Context(), srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	m, err := zklock.NewMutex(s, "/locks/report")
	if err != nil {
		t.Fatal(err)
	}
	late, err := m.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer late.Release(t.Context())
	srv.ExpireSession(s.Stats().SessionID)
	if err := run(t.Context(), srv.Addr(), db, func(context.Context) (string, error) { return "the next one's", nil }); err != nil {
		t.Fatal(err)
	}
	// The holder has not noticed it yet: its context had not ended when it checked.
	if err := save(t.Context(), db, "late", late.Token()); !errors.Is(err, errStale) {
		t.Error("the late write:", err)
	}
	if got := saved(t, db); got != "the next one's" {
		t.Error("saved:", got)
	}
}
