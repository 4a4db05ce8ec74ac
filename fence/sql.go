package fence

// SQL: the token in a row, compared and recorded in the transaction that does the work.

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Dialect is how a database spells what [Table.Raise] sends.
type Dialect int

// The dialects.
const (
	PostgreSQL Dialect = iota + 1 // of PostgreSQL
	MySQL                         // of MySQL and MariaDB, with InnoDB; tested on MariaDB
	SQLite                        // of SQLite
)

// Table is where a database keeps tokens: one row for each resource, with a token that is not NULL, 0 at first. It may be the table
// that is written, or one for tokens alone. The names stand in the statements as they are given: they must be constants of the
// program.
type Table struct {
	Dialect Dialect
	Name    string // the table
	Key     string // the column that says which row
	Token   string // the column with the token: bigint
}

// Raise writes the token into the row of the key, unless a larger one is there: then it returns a [StaleError]. It locks the row until
// the transaction ends. So what else the transaction writes is written before a later holder raises its token, or not at all. Call it
// first; after an error, roll back.
//
// A row that is missing is a sql.ErrNoRows. Other errors are the database's; under an isolation stricter than READ COMMITTED
// they include that another transaction was faster. The token was not accepted then.
//
// MySQL and MariaDB count the rows that a statement changed, unless the connection has CLIENT_FOUND_ROWS: they count none
// where the token is there already, as where it is stale. Raise looks again then.
func (t Table) Raise(ctx context.Context, tx *sql.Tx, key any, token int64) error {
	arg, lock := "?", " FOR UPDATE"
	switch t.Dialect {
	case PostgreSQL:
		arg = "$"
	case MySQL:
	case SQLite: // has one writer at a time, which we are since the UPDATE, and no FOR UPDATE
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
	// Stale, or not changed, or not there. A plain SELECT may show what the row was when the transaction began, and the UPDATE saw
	// what it is. FOR UPDATE sees what it is, too.
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
	case seen.Int64 < token: // it was inserted since, or a trigger keeps it
		return fmt.Errorf("fence: %s: its %s is %d and did not change: try again", claim.Resource, t.Token, seen.Int64)
	}
	return nil
}
