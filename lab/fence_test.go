package main

// This test attacks fence.Table on the servers of the lab.

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	fences "github.com/zklock/zklock/fence"
	"github.com/zklock/zklock/internal/fencesql"
)

func TestFence_SQL(t *testing.T) {
	test := func(name string, dialect fences.Dialect, open func() (*sql.DB, error), snapshot sql.IsolationLevel) {
		t.Run(name, func(t *testing.T) {
			db, err := open()
			require.NoError(t, err)
			t.Cleanup(func() { db.Close() })
			fencesql.Database{DB: db, Dialect: dialect, Snapshot: snapshot}.Test(t)
		})
	}
	c := serve(t, postgresServers, Plan{Size: 1})
	addr := c.Addrs()[0]
	test(c.Version(), fences.PostgreSQL, func() (*sql.DB, error) { return openPostgres(addr) }, sql.LevelRepeatableRead)

	c = serve(t, mariadbServers, Plan{Size: 1})
	dsn := "root@tcp(" + c.Addrs()[0] + ")/lab"
	for name, options := range map[string]string{
		", changed rows": "",
		", found rows":   "?clientFoundRows=true",
		", no old rows":  "?innodb_snapshot_isolation=1", // the default from 11.6 on
	} {
		test(c.Version()+name, fences.MySQL, func() (*sql.DB, error) { return sql.Open("mysql", dsn+options) }, sql.LevelRepeatableRead)
	}
}
