package fence

// SQL: the token in a row, compared and recorded in the transaction that does the work.

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Dialect selects the SQL that [Table.Raise] sends.
type Dialect int

const (
	PostgreSQL Dialect = iota + 1 // of PostgreSQL
	MySQL                         // of MySQL and MariaDB, with InnoDB; tested on MariaDB
	SQLite                        // of SQLite
)

// Table is a database table with tokens: one row for each resource, with a token that is not NULL
// and starts at 0. It may be the table that is written, or a table for tokens alone. The names are
// used in the statements unchanged, so they must be constants of the program.
type Table struct {
	Dialect Dialect
	Name    string // the table
	Key     string // the column that identifies the row
	Token   string // the column with the token: bigint
}

// Raise writes the token into the row of the key. If the row has a larger token, Raise returns a
// [StaleError] instead. It locks the row until the transaction ends, so all other writes of the
// transaction are done before a later holder raises its token, or not at all. Call it first; after
// an error, roll back.
//
// A missing row is a sql.ErrNoRows. Other errors come from the database; under an isolation
// stricter than READ COMMITTED they include a conflict with a faster transaction. After any of
// these errors the token was not accepted.
//
// MySQL and MariaDB count the rows that a statement changed, unless the connection has
// CLIENT_FOUND_ROWS. They count none if the row already has the token, as if the token were stale,
// so Raise then reads the row again.
func (t Table) Raise(ctx context.Context, tx *sql.Tx, key any, token int64) error {
	arg, lock := "?", " FOR UPDATE"
	switch t.Dialect {
	case PostgreSQL:
		arg = "$"
	case MySQL:
	case SQLite: // SQLite has one writer at a time, and since the UPDATE we are it; it has no FOR UPDATE
		lock = ""
	default:
		return fmt.Errorf("fence: %s: no such dialect: %d", t.Name, t.Dialect)
	}
	at := func(i int) string {
		if arg == "$" {
			return fmt.Sprint(arg, i)
		}
		return arg
	}
	claim := Claim{Resource: fmt.Sprintf("%s %v", t.Name, key), Token: token}
	if token <= 0 {
		return fmt.Errorf("%w: token %d of %s", ErrInvalid, token, claim.Resource)
	}
	res, err := tx.ExecContext(ctx, "UPDATE "+t.Name+" SET "+t.Token+" = "+at(1)+" WHERE "+t.Key+" = "+at(2)+" AND "+t.Token+" <= "+at(3),
		token, key, token)
	if err != nil {
		return fmt.Errorf("fence: %s: %w", claim.Resource, err)
	}
	if n, err := res.RowsAffected(); err != nil || n > 0 {
		return err
	}
	// The token is stale, or the row has it already, or the row is missing. A plain SELECT may show
	// the row as it was when the transaction began, whereas the UPDATE saw the current row. FOR
	// UPDATE sees the current row, too.
	var seen sql.NullInt64
	err = tx.QueryRowContext(ctx, "SELECT "+t.Token+" FROM "+t.Name+" WHERE "+t.Key+" = "+at(1)+lock, key).Scan(&seen)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("fence: %s: the row must be there, with the token 0 at first: %w", claim.Resource, err)
	case err != nil:
		return fmt.Errorf("fence: %s: %w", claim.Resource, err)
	case !seen.Valid:
		return fmt.Errorf("fence: %s: its %s is NULL, and must be 0 at first", claim.Resource, t.Token)
	case seen.Int64 > token:
		return &StaleError{Claim: claim, Seen: seen.Int64}
	case seen.Int64 < token: // the row was inserted since, or a trigger keeps the token
		return fmt.Errorf("fence: %s: its %s is %d and did not change: try again", claim.Resource, t.Token, seen.Int64)
	}
	return nil
}
