package main

// The advisory locks of PostgreSQL and MariaDB: names that the server locks for a connection.

var (
	postgresAdvisory = sessionSQL{
		open: openPostgres, client: "github.com/jackc/pgx/v5",
		take: `SELECT 1 FROM pg_advisory_lock(hashtextextended($1, 0))`, free: `SELECT pg_advisory_unlock(hashtextextended($1, 0))::int`,
		left: `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted
			AND (classid::bigint << 32) | objid::bigint = hashtextextended($1, 0)`,
	}
	postgresShared = sessionSQL{
		open: openPostgres, client: "github.com/jackc/pgx/v5",
		take: postgresAdvisory.take, free: postgresAdvisory.free,
		share:   `SELECT 1 FROM pg_advisory_lock_shared(hashtextextended($1, 0))`,
		unshare: `SELECT pg_advisory_unlock_shared(hashtextextended($1, 0))::int`,
	}
	mariadbGetLock = sessionSQL{
		open: openMariaDB, client: "github.com/go-sql-driver/mysql",
		take: `SELECT GET_LOCK(?, 3600)`, free: `SELECT RELEASE_LOCK(?)`, // no infinite wait: an hour
		left: `SELECT IS_USED_LOCK(?) IS NOT NULL`,
	}
)

func init() {
	const promises = "One holder while its connection lasts."
	registerSession("postgres-advisory", "PostgreSQL, an advisory lock", promises, postgresServers, postgresAdvisory)
	registerSession("postgres-advisory-readers", "PostgreSQL, a shared advisory lock", "Readers together, or a writer alone, while their connections last.", postgresServers, postgresShared)
	registerSession("mariadb-get-lock", "MariaDB, GET_LOCK", promises, mariadbServers, mariadbGetLock)
}
