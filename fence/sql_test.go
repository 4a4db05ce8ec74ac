package fence_test

// These tests check the statements of Table in each dialect, and its results for their outcomes.
// The tests with real databases are in lab/ (PostgreSQL, MariaDB) and in examples/fencing (SQLite).

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/fence"
)

// script is a database that replies as scripted and records the statements.
type script struct {
	changed int64        // rows that the UPDATE counts
	row     driver.Value // the token that the SELECT finds, as int64, nil for NULL
	none    bool         // the SELECT finds no row
	fails   error        // what the UPDATE returns
	blind   error        // what the SELECT returns
	asked   []string
	args    [][]driver.NamedValue
}

func (s *script) Connect(context.Context) (driver.Conn, error) { return s, nil }
func (s *script) Driver() driver.Driver                        { return nil }
func (s *script) Prepare(string) (driver.Stmt, error)          { return nil, errors.New("not here") }
func (s *script) Close() error                                 { return nil }
func (s *script) Begin() (driver.Tx, error)                    { return s, nil }
func (s *script) Commit() error                                { return nil }
func (s *script) Rollback() error                              { return nil }

func (s *script) ExecContext(_ context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	s.asked, s.args = append(s.asked, query), append(s.args, args)
	return driver.RowsAffected(s.changed), s.fails
}

func (s *script) QueryContext(_ context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	s.asked, s.args = append(s.asked, query), append(s.args, args)
	return &rows{s}, s.blind
}

type rows struct{ *script }

func (r *rows) Columns() []string { return []string{"token"} }
func (r *rows) Next(to []driver.Value) error {
	if r.none {
		return io.EOF
	}
	to[0], r.script = r.row, &script{none: true}
	return nil
}

func (s *script) raise(t *testing.T, dialect fence.Dialect, token int64) error {
	t.Helper()
	db := sql.OpenDB(s)
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback()) }()
	return fence.Table{Dialect: dialect, Name: "reports", Key: "name", Token: "token"}.Raise(t.Context(), tx, "nightly", token)
}

func TestTable_Statements(t *testing.T) {
	for dialect, want := range map[fence.Dialect][]string{
		fence.PostgreSQL: {"UPDATE reports SET token = $1 WHERE name = $2 AND token <= $3", "SELECT token FROM reports WHERE name = $1 FOR UPDATE"},
		fence.MySQL:      {"UPDATE reports SET token = ? WHERE name = ? AND token <= ?", "SELECT token FROM reports WHERE name = ? FOR UPDATE"},
		fence.SQLite:     {"UPDATE reports SET token = ? WHERE name = ? AND token <= ?", "SELECT token FROM reports WHERE name = ?"},
	} {
		s := &script{row: int64(23)}
		require.ErrorIs(t, s.raise(t, dialect, 17), fence.ErrStale)
		require.Equal(t, want, s.asked)
		var values [][]any
		for _, args := range s.args {
			values = append(values, nil)
			for _, a := range args {
				values[len(values)-1] = append(values[len(values)-1], a.Value)
			}
		}
		require.Equal(t, [][]any{{int64(17), "nightly", int64(17)}, {"nightly"}}, values)
	}
}

func TestTable_Answers(t *testing.T) {
	down := errors.New("the connection is gone")
	for name, row := range map[string]struct {
		db    script
		is    error // nil for any
		says  string
		asked int
	}{
		"a row changed":                {script{changed: 1}, nil, "", 1},
		"found and not changed":        {script{row: int64(17)}, nil, "", 2},
		"a later one was here":         {script{row: int64(18)}, fence.ErrStale, "fence: stale: token 17 of reports nightly comes after token 18", 2},
		"no row":                       {script{none: true}, sql.ErrNoRows, "the row must be there", 2},
		"no token":                     {script{}, nil, "is NULL", 2},
		"it was inserted since":        {script{row: int64(0)}, nil, "try again", 2},
		"the statement failed":         {script{fails: down}, down, "reports nightly", 1},
		"nobody can say what is there": {script{blind: down}, down, "reports nightly", 2},
	} {
		t.Run(name, func(t *testing.T) {
			err := row.db.raise(t, fence.MySQL, 17)
			if row.says == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, row.says)
				require.Equal(t, row.is == fence.ErrStale, errors.Is(err, fence.ErrStale))
			}
			if row.is != nil {
				require.ErrorIs(t, err, row.is)
			}
			require.Len(t, row.db.asked, row.asked)
		})
	}
}

func TestTable_BadInput_NothingIsAsked(t *testing.T) {
	s := &script{changed: 1}
	require.ErrorContains(t, s.raise(t, 0, 17), "no such dialect")
	require.ErrorIs(t, s.raise(t, fence.MySQL, 0), fence.ErrInvalid)
	require.Empty(t, s.asked)
}
