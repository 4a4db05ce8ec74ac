package main

// The rows that SELECT … FOR UPDATE locks in addition to its own, and the rows that it does not
// lock.

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"
)

func init() {
	forUpdate := map[string]sessionSQL{"postgres-for-update": postgresForUpdate, "mariadb-for-update": mariadbForUpdate}
	skip := func(s *System) string {
		if _, ok := forUpdate[s.Name]; !ok {
			return "it does not select rows for update"
		}
		return ""
	}
	open := func(t *trial) (*sql.DB, sessionSQL) {
		s := forUpdate[t.sys.Name]
		db, err := s.open(t.cluster.Addrs()[0])
		t.must(err)
		return db, s
	}
	experiment(Experiment{
		Name: "missing-row", Title: "The row to lock is missing", Skip: skip,
		Says: "The lock's row is not there yet. A and B each begin a transaction, select the row for update, find none, and insert it, as a recipe does that makes its rows when they are wanted. Are both let in, and what comes of the inserts?",
		Steps: func(t *trial) {
			db, s := open(t)
			defer db.Close()
			in, errs, err := missingRow(t.ctx, db, s, t.lock)
			t.must(err)
			t.was("both", in == 2)
			for _, err := range errs {
				t.was("deadlock", isDeadlock(err))
				t.was("error", true)
			}
		},
		Columns: []column{{"both", "the select lets both in", inCases}, {"deadlock", "one ends by a deadlock", inCases}, {"error", "one ends by an error", inCases}},
		Cell: func(r *Result) string {
			switch {
			case r.in("both") == 0:
				return "one waits"
			case r.in("deadlock") > 0:
				return fmt.Sprintf("both are let in, deadlock in %d", r.in("deadlock"))
			}
			return fmt.Sprintf("both are let in, error in %d", r.in("error"))
		},
		Bad: func(r *Result) bool { return r.in("both") > 0 },
	})
	experiment(Experiment{
		Name: "no-index", Title: "The row is selected by a column without an index", Skip: skip, Own: true,
		Says: "A selects one row for update, and B another, which nobody has. Does B have to wait if the column has an index, and if it has none?",
		Steps: func(t *trial) {
			db, _ := open(t)
			defer db.Close()
			for figure, column := range map[string]string{"with": "name", "without": "unindexed"} {
				waits, err := otherRow(t.ctx, db, column)
				t.must(err)
				t.was(figure, waits)
			}
		},
		Columns: []column{{"with", "B waits with an index", inCases}, {"without", "B waits without", inCases}},
		Cell: func(r *Result) string {
			if n := r.in("without"); n > 0 {
				return fmt.Sprintf("others wait in %d", n)
			}
			return "no other waits"
		},
		Bad: func(r *Result) bool { return r.in("without")+r.in("with") > 0 },
	})
}

// transaction is a connection on which a transaction has begun. discard ends it.
func transaction(ctx context.Context, db *sql.DB) (*sql.Conn, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.ExecContext(ctx, "BEGIN"); err != nil {
		discard(conn)
		return nil, err
	}
	return conn, nil
}

// missingRow has two transactions select a missing row for update, insert it and commit. It returns
// how many selects succeeded, and the errors of the inserts that failed.
func missingRow(ctx context.Context, db *sql.DB, s sessionSQL, name string) (in int, failed []error, err error) {
	var both []*sql.Conn
	for range 2 {
		conn, err := transaction(ctx, db)
		if err != nil {
			return in, nil, err
		}
		defer discard(conn)
		var one int
		if err := conn.QueryRowContext(ctx, s.take, name).Scan(&one); !errors.Is(err, sql.ErrNoRows) {
			return in, nil, fmt.Errorf("a select of a row that is missing: %w", err)
		}
		in++
		both = append(both, conn)
	}
	inserted := make(chan error)
	for _, conn := range both {
		go func() {
			_, err := conn.ExecContext(ctx, fmt.Sprintf("INSERT INTO lock_select VALUES ('%s', '%[1]s')", name))
			if err == nil {
				_, err = conn.ExecContext(ctx, "COMMIT")
			}
			inserted <- err
		}()
	}
	for range both {
		if err := <-inserted; err != nil {
			failed = append(failed, err)
		}
	}
	return in, failed, nil
}

// isDeadlock reports whether MariaDB has ended a transaction because two wait for each other.
func isDeadlock(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && e.Number == 1213
}

// otherRow has one transaction select a row for update, by a column, and reports whether another
// transaction has to wait for another row.
func otherRow(ctx context.Context, db *sql.DB, column string) (waits bool, err error) {
	for _, name := range []string{"one", "two"} {
		if _, err := db.ExecContext(ctx, fmt.Sprintf("DELETE FROM lock_select WHERE name = '%s'", name)); err != nil {
			return false, err
		}
		if _, err := db.ExecContext(ctx, fmt.Sprintf("INSERT INTO lock_select VALUES ('%s', '%[1]s')", name)); err != nil {
			return false, err
		}
	}
	for _, ask := range []string{"= 'one' FOR UPDATE", "= 'two' FOR UPDATE NOWAIT"} {
		conn, err := transaction(ctx, db)
		if err != nil {
			return false, err
		}
		defer discard(conn)
		var yes int
		err = conn.QueryRowContext(ctx, "SELECT 1 FROM lock_select WHERE "+column+" "+ask).Scan(&yes)
		if waits = wouldWait(err); err != nil && !waits {
			return false, err
		}
	}
	return waits, nil
}

// wouldWait reports whether NOWAIT found the row locked.
func wouldWait(err error) bool {
	var e interface{ SQLState() string } // PostgreSQL's
	return lockWaitTimeout(err) || errors.As(err, &e) && e.SQLState() == "55P03"
}
