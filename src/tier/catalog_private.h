/* SPDX-License-Identifier: MIT */
/* The database of the catalogue, for the files that have statements. */
#ifndef PST_TIER_CATALOG_PRIVATE_H
#define PST_TIER_CATALOG_PRIVATE_H

#include <limits.h>
#include <sqlite3.h>

#include "base/base.h"

struct catalog {
	sqlite3 *db;
	/* Statements that a scan runs for each file; each is compiled once. */
	sqlite3_stmt *find, *put, *seen;
	bool hurry;
	char path[PATH_MAX];
};

/* Set the error text "cannot WHAT: cause" from the database's last error.  @what is a verb with its
 * object.  Return -errno. */
int catalog_fail(struct catalog *c, const char *what);
/* Compile a statement.  Return 0, or -errno with a sentence. */
int catalog_prepare(struct catalog *c, const char *sql, sqlite3_stmt **ret);
/* Run a statement that returns no rows. */
int catalog_run(struct catalog *c, sqlite3_stmt *s, const char *what);
/* Run a statement with one number as its parameter. */
int catalog_run_number(struct catalog *c, const char *sql, int64_t number, const char *what);

static inline void finalizep(sqlite3_stmt **stmt)
{
	(void)sqlite3_finalize(*stmt);
}

static inline void bind_u64(sqlite3_stmt *s, int at, uint64_t value)
{
	(void)sqlite3_bind_int64(s, at, (sqlite3_int64)value);
}

static inline void bind_name(sqlite3_stmt *s, int at, const char *name)
{
	(void)sqlite3_bind_blob(s, at, name, (int)strlen(name), SQLITE_STATIC);
}

static inline uint64_t column_u64(sqlite3_stmt *s, int at)
{
	return (uint64_t)sqlite3_column_int64(s, at);
}

#endif
