package zklock_test

// The database that the fencing example writes to.

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"
)

// reportsTable is a database with one table of one row, (name 'nightly', body, token), and one statement: saveReport's
// conditional update, done as one step as every SQL database does it.
type reportsTable struct {
	mu    sync.Mutex
	body  string
	token int64
}

func (r *reportsTable) Connect(context.Context) (driver.Conn, error) { return reportsConn{r}, nil }

func (r *reportsTable) Driver() driver.Driver { return nil }

type reportsConn struct{ *reportsTable }

var errOneStatement = errors.New("this database knows one statement")

func (reportsConn) Prepare(string) (driver.Stmt, error) { return nil, errOneStatement }

func (reportsConn) Begin() (driver.Tx, error) { return nil, errOneStatement }

func (reportsConn) Close() error { return nil }

func (r reportsConn) ExecContext(_ context.Context, _ string, args []driver.NamedValue) (driver.Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	body, token := args[0].Value.(string), args[1].Value.(int64)
	if r.token > token { // WHERE token <= $2
		return driver.RowsAffected(0), nil
	}
	r.body, r.token = body, token
	return driver.RowsAffected(1), nil
}

// openReports returns the database, and what its row says.
func openReports() (db *sql.DB, body func() string) {
	r := &reportsTable{}
	return sql.OpenDB(r), func() string {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.body
	}
}
