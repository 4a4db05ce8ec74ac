package main

// A row that a transaction selects FOR UPDATE: the client that selected it holds until the
// transaction ends.

func init() {
	postgresTables = append(postgresTables, `CREATE TABLE lock_select (name text PRIMARY KEY, unindexed text NOT NULL)`)
	mariadbTables = append(mariadbTables, `CREATE TABLE lock_select (name varchar(190) PRIMARY KEY, unindexed varchar(190) NOT NULL) ENGINE=InnoDB`)
}

var (
	postgresForUpdate = sessionSQL{
		open: openPostgres, client: "github.com/jackc/pgx/v5",
		look: `SELECT count(*) FROM lock_select WHERE name = $1`, row: `INSERT INTO lock_select VALUES ($1, $1) ON CONFLICT DO NOTHING`,
		begin: `BEGIN`, take: `SELECT 1 FROM lock_select WHERE name = $1 FOR UPDATE`, commit: `COMMIT`,
		left: `SELECT count(*) - (SELECT count(*) FROM (SELECT 1 FROM lock_select WHERE name = $1 FOR UPDATE SKIP LOCKED) free)
			FROM lock_select WHERE name = $1`,
	}
	mariadbForUpdate = sessionSQL{
		open: openMariaDB, client: "github.com/go-sql-driver/mysql",
		look: `SELECT count(*) FROM lock_select WHERE name = ?`, row: `INSERT IGNORE INTO lock_select (name, unindexed) VALUES (?, name)`,
		begin: `BEGIN`, take: `SELECT 1 FROM lock_select WHERE name = ? FOR UPDATE`, commit: `COMMIT`,
		left: `SELECT 1 - count(*) FROM (SELECT 1 FROM lock_select WHERE name = ? FOR UPDATE SKIP LOCKED) free`,
	}
)

func init() {
	const promises = "One holder while its connection lasts, and what it writes in that transaction is gone if it does not."
	registerSession("postgres-for-update", "PostgreSQL, SELECT … FOR UPDATE", promises, postgresServers, postgresForUpdate)
	registerSession("mariadb-for-update", "MariaDB, SELECT … FOR UPDATE", promises, mariadbServers, mariadbForUpdate)
}
