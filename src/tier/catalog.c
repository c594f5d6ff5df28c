/* SPDX-License-Identifier: MIT */
#include "tier/catalog.h"

#include <stdio.h>

#include "base/err.h"
#include "tier/catalog_private.h"

#define BUSY_MS 30000 /* milliseconds; longer than any transaction of another process */
#define HURRY_MS 20   /* milliseconds; longer than most transactions */

static const char schema[] =
	"CREATE TABLE IF NOT EXISTS file("
	" id INTEGER PRIMARY KEY AUTOINCREMENT, name BLOB NOT NULL UNIQUE, root INTEGER NOT NULL,"
	" gen INTEGER NOT NULL, bytes INTEGER NOT NULL, size INTEGER NOT NULL,"
	" mtime INTEGER NOT NULL, ctime INTEGER NOT NULL, ino INTEGER NOT NULL, crc INTEGER,"
	" pinned INTEGER NOT NULL DEFAULT 0, accesses INTEGER NOT NULL DEFAULT 0,"
	" last INTEGER NOT NULL DEFAULT 0);"
	"CREATE TABLE IF NOT EXISTS move("
	" id INTEGER PRIMARY KEY AUTOINCREMENT, name BLOB NOT NULL UNIQUE,"
	" src INTEGER NOT NULL, dst INTEGER NOT NULL, committed INTEGER NOT NULL);"
	"CREATE TABLE IF NOT EXISTS copied("
	" move INTEGER PRIMARY KEY, size INTEGER NOT NULL, crc INTEGER NOT NULL);"
	"CREATE TABLE IF NOT EXISTS access(now INTEGER PRIMARY KEY, file INTEGER NOT NULL);"
	"CREATE TABLE IF NOT EXISTS measured("
	" root INTEGER PRIMARY KEY, read_bytes INTEGER NOT NULL, read_ns INTEGER NOT NULL,"
	" write_bytes INTEGER NOT NULL, write_ns INTEGER NOT NULL);"
	/* Files that are objects, see catalog_object.h. */
	"CREATE TABLE IF NOT EXISTS object("
	" file INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, etag TEXT NOT NULL,"
	" meta TEXT NOT NULL);"
	"CREATE TABLE IF NOT EXISTS sent("
	" move INTEGER PRIMARY KEY, key TEXT NOT NULL, etag TEXT NOT NULL, meta TEXT NOT NULL);"
	"CREATE TABLE IF NOT EXISTS garbage("
	" key TEXT PRIMARY KEY, bytes INTEGER NOT NULL, due INTEGER NOT NULL);";

#define FILE_COLUMNS \
	"id, name, root, gen, bytes, size, mtime, ctime, ino, crc, pinned, accesses, last"

/* ---------------------------------------------------------------- SQLite */

static int err_damaged(const struct catalog *c)
{
	return err_set(EUCLEAN,
		       "the catalogue %s is damaged (%s): make it again with "
		       "'penstock tier scrub --rebuild'",
		       c->path, sqlite3_errmsg(c->db));
}

int catalog_fail(struct catalog *c, const char *what)
{
	int code = c->db ? sqlite3_errcode(c->db) : SQLITE_NOMEM;
	const char *text = c->db ? sqlite3_errmsg(c->db) : "out of memory";

	switch (code) {
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return err_damaged(c);
	case SQLITE_FULL:
		return err_set(ENOSPC, "cannot %s: no room for %s", what, c->path);
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		if (c->hurry)
			return -EWOULDBLOCK;
		return err_set(EBUSY, "cannot %s: another process holds %s", what, c->path);
	case SQLITE_NOMEM:
		return err_set(ENOMEM, "cannot %s: out of memory", what);
	case SQLITE_READONLY:
	case SQLITE_PERM:
		return err_set(EROFS, "cannot %s: %s cannot be written", what, c->path);
	case SQLITE_CANTOPEN:
		return err_set(ENOENT, "cannot %s: %s cannot be opened", what, c->path);
	default:
		return err_set(EIO, "cannot %s: %s: %s", what, c->path, text);
	}
}

static int exec(struct catalog *c, const char *sql, const char *what)
{
	return sqlite3_exec(c->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : catalog_fail(c, what);
}

int catalog_prepare(struct catalog *c, const char *sql, sqlite3_stmt **ret)
{
	int r = sqlite3_prepare_v2(c->db, sql, -1, ret, NULL);

	if (r == SQLITE_OK)
		return 0;
	/* The statements are right, so the tables are not those of a catalogue. */
	return r == SQLITE_ERROR ? err_damaged(c) : catalog_fail(c, "use the catalogue");
}

/* Get a cached statement, ready for binding; reset_stmtp() ends its use. */
static int prepare_kept(struct catalog *c, const char *sql, sqlite3_stmt **kept, sqlite3_stmt **ret)
{
	int r = *kept ? 0 : catalog_prepare(c, sql, kept);

	if (r == 0)
		*ret = *kept;
	return r;
}

static void reset_stmtp(sqlite3_stmt **stmt)
{
	if (!*stmt)
		return; /* the statement could not be compiled */
	(void)sqlite3_reset(*stmt);
	(void)sqlite3_clear_bindings(*stmt);
}

static void column_name(sqlite3_stmt *s, int at, char ret[TIER_NAME_SIZE])
{
	const void *name = sqlite3_column_blob(s, at);
	size_t len = MIN((size_t)sqlite3_column_bytes(s, at), (size_t)TIER_NAME_SIZE - 1);

	if (len)
		memcpy(ret, name, len);
	ret[len] = '\0';
}

int catalog_run(struct catalog *c, sqlite3_stmt *s, const char *what)
{
	return sqlite3_step(s) == SQLITE_DONE ? 0 : catalog_fail(c, what);
}

/* Run a statement with one name as its parameter. */
static int run_name(struct catalog *c, const char *sql, const char *name, const char *what)
{
	_cleanup_(finalizep) sqlite3_stmt *s = NULL;
	int r = catalog_prepare(c, sql, &s);

	if (r < 0)
		return r;
	bind_name(s, 1, name);
	return catalog_run(c, s, what);
}

int catalog_run_number(struct catalog *c, const char *sql, int64_t number, const char *what)
{
	_cleanup_(finalizep) sqlite3_stmt *s = NULL;
	int r = catalog_prepare(c, sql, &s);

	if (r < 0)
		return r;
	(void)sqlite3_bind_int64(s, 1, number);
	return catalog_run(c, s, what);
}

int catalog_open(const char *dir, struct catalog **ret)
{
	_cleanup_(catalog_closep) struct catalog *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return err_set(ENOMEM, "out of memory");
	(void)snprintf(c->path, sizeof(c->path), "%s/catalog.db", dir);
	if (sqlite3_open_v2(c->path, &c->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL) !=
	    SQLITE_OK)
		return catalog_fail(c, "open the catalogue");
	(void)sqlite3_busy_timeout(c->db, BUSY_MS);
	r = exec(c, "PRAGMA journal_mode=WAL", "open the catalogue");
	if (r == 0)
		r = exec(c, "PRAGMA synchronous=FULL", "open the catalogue");
	if (r == 0)
		r = exec(c, schema, "open the catalogue");
	if (r < 0)
		return r;
	*ret = TAKE_PTR(c);
	return 0;
}

struct catalog *catalog_close(struct catalog *c)
{
	if (c) {
		(void)sqlite3_finalize(c->find);
		(void)sqlite3_finalize(c->put);
		(void)sqlite3_finalize(c->seen);
		(void)sqlite3_close(c->db);
		free(c);
	}
	return NULL;
}

void catalog_hurry(struct catalog *c)
{
	c->hurry = true;
	(void)sqlite3_busy_timeout(c->db, HURRY_MS);
}

int catalog_begin(struct catalog *c)
{
	return exec(c, "BEGIN IMMEDIATE", "begin a change");
}

int catalog_commit(struct catalog *c)
{
	int r = exec(c, "COMMIT", "write the catalogue");

	if (r < 0)
		catalog_rollback(c);
	return r;
}

void catalog_rollback(struct catalog *c)
{
	(void)sqlite3_exec(c->db, "ROLLBACK", NULL, NULL, NULL);
}

/* ----------------------------------------------------------------- files */

static void column_file(sqlite3_stmt *s, struct tier_file *ret)
{
	ret->id = sqlite3_column_int64(s, 0);
	column_name(s, 1, ret->name);
	ret->root = (unsigned)sqlite3_column_int(s, 2);
	ret->gen = column_u64(s, 3);
	ret->bytes = column_u64(s, 4);
	ret->stamp.size = column_u64(s, 5);
	ret->stamp.mtime_ns = sqlite3_column_int64(s, 6);
	ret->stamp.ctime_ns = sqlite3_column_int64(s, 7);
	ret->stamp.ino = column_u64(s, 8);
	ret->has_crc = sqlite3_column_type(s, 9) != SQLITE_NULL;
	ret->crc = (uint32_t)sqlite3_column_int64(s, 9);
	ret->pinned = sqlite3_column_int(s, 10) != 0;
	ret->accesses = column_u64(s, 11);
	ret->last = column_u64(s, 12);
}

int catalog_find(struct catalog *c, const char *name, struct tier_file *ret)
{
	_cleanup_(reset_stmtp) sqlite3_stmt *s = NULL;
	int r = prepare_kept(c, "SELECT " FILE_COLUMNS " FROM file WHERE name=?", &c->find, &s);

	if (r < 0)
		return r;
	bind_name(s, 1, name);
	r = sqlite3_step(s);
	if (r == SQLITE_DONE)
		return -ENOENT;
	if (r != SQLITE_ROW)
		return catalog_fail(c, "look a file up");
	column_file(s, ret);
	return 0;
}

int catalog_put(struct catalog *c, struct tier_file *f)
{
	_cleanup_(reset_stmtp) sqlite3_stmt *s = NULL;
	int r = prepare_kept(
		c,
		"INSERT INTO file(name, root, gen, bytes, size, mtime, ctime, ino, crc)"
		" VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT(name) DO UPDATE SET"
		" root=?2, gen=?3, bytes=?4, size=?5, mtime=?6, ctime=?7, ino=?8, crc=?9"
		" RETURNING id",
		&c->put, &s);

	if (r < 0)
		return r;
	bind_name(s, 1, f->name);
	bind_u64(s, 2, f->root);
	bind_u64(s, 3, f->gen);
	bind_u64(s, 4, f->bytes);
	bind_u64(s, 5, f->stamp.size);
	(void)sqlite3_bind_int64(s, 6, f->stamp.mtime_ns);
	(void)sqlite3_bind_int64(s, 7, f->stamp.ctime_ns);
	bind_u64(s, 8, f->stamp.ino);
	if (f->has_crc)
		bind_u64(s, 9, f->crc);
	if (sqlite3_step(s) != SQLITE_ROW)
		return catalog_fail(c, "write the catalogue");
	f->id = sqlite3_column_int64(s, 0);
	return catalog_run(c, s, "write the catalogue");
}

int catalog_note(struct catalog *c, struct tier_file *f)
{
	_cleanup_(finalizep) sqlite3_stmt *s = NULL;
	int r = catalog_prepare(
		c,
		"INSERT INTO file(name, root, gen, bytes, size, mtime, ctime, ino)"
		" VALUES(?1, ?2, 0, ?3, ?4, ?5, ?6, ?7) ON CONFLICT(name) DO UPDATE SET"
		" root=?2, gen=0, bytes=?3, size=?4, mtime=?5, ctime=?6, ino=?7, crc=NULL"
		" WHERE root<>?2",
		&s);

	if (r < 0)
		return r;
	bind_name(s, 1, f->name);
	bind_u64(s, 2, f->root);
	bind_u64(s, 3, f->bytes);
	bind_u64(s, 4, f->stamp.size);
	(void)sqlite3_bind_int64(s, 5, f->stamp.mtime_ns);
	(void)sqlite3_bind_int64(s, 6, f->stamp.ctime_ns);
	bind_u64(s, 7, f->stamp.ino);
	r = catalog_run(c, s, "write the catalogue");
	return r < 0 ? r : catalog_find(c, f->name, f);
}

int catalog_drop(struct catalog *c, const char *name)
{
	return run_name(c, "DELETE FROM file WHERE name=?", name, "forget a file");
}

int catalog_rename(struct catalog *c, const char *name, const char *to)
{
	_cleanup_(finalizep) sqlite3_stmt *s = NULL;
	int r = catalog_drop(c, to);

	if (r == 0)
		r = catalog_prepare(c, "UPDATE file SET name=? WHERE name=?", &s);
	if (r < 0)
		return r;
	bind_name(s, 1, to);
	bind_name(s, 2, name);
	return catalog_run(c, s, "rename a file");
}

int catalog_pin(struct catalog *c, const char *name, bool pinned)
{
	int r = run_name(c,
			 pinned ? "UPDATE file SET pinned=1 WHERE name=?"
				: "UPDATE file SET pinned=0 WHERE name=?",
			 name, "pin a file");

	return r < 0 ? r : sqlite3_changes(c->db) ? 0 : -ENOENT;
}

int catalog_root_bytes(struct catalog *c, unsigned root, uint64_t *ret)
{
	_cleanup_(finalizep) sqlite3_stmt *s = NULL;
	int r = catalog_prepare(c, "SELECT ifnull(sum(bytes), 0) FROM file WHERE root=?", &s);

	if (r < 0)
		return r;
	bind_u64(s, 1, root);
	if (sqlite3_step(s) != SQLITE_ROW)
		return catalog_fail(c, "sum up files");
	*ret = column_u64(s, 0);
	return 0;
}

/* Call fn for each row of a statement that selects files. */
static int each_file(struct catalog *c, sqlite3_stmt *s,
		     int (*fn)(const struct tier_file *file, void *arg), void *arg)
{
	struct tier_file f;
	int r = 0;

	while (r == 0) {
		int step = sqlite3_step(s);

		if (step == SQLITE_DONE)
			break;
		if (step != SQLITE_ROW)
			return catalog_fail(c, "list files");
		column_file(s, &f);
		r = fn(&f, arg);
	}
	return r;
}

int catalog_each(struct catalog *c, int (*fn)(const struct tier_file *file, void *arg), void *arg)
{
	_cleanup_(finalizep) sqlite3_stmt *s = NULL;
	int r = catalog_prepare(c, "SELECT " FILE_COLUMNS " FROM file ORDER BY name", &s);

	return r < 0 ? r : each_file(c, s, fn, arg);
}

int catalog_each_below(struct catalog *c, const char *dir,
		       int (*fn)(const struct tier_file *file, void *arg), void *arg)
{
	_cleanup_(finalizep) sqlite3_stmt *s = NULL;
	char from[TIER_NAME_SIZE + 1], to[TIER_NAME_SIZE + 1];
	int r = catalog_prepare(
		c, "SELECT " FILE_COLUMNS " FROM file WHERE name > ? AND name < ? ORDER BY name",
		&s);

	if (r < 0)
		return r;
	/* The upper bound is DIR0, because the character 0 follows the slash. */
	(void)snprintf(from, sizeof(from), "%s/", dir);
	(void)snprintf(to, sizeof(to), "%s0", dir);
	bind_name(s, 1, from);
	bind_name(s, 2, to);
	return each_file(c, s, fn, arg);
}

/* -------------------------------------------------------------- accesses */

static int add_accesses(struct catalog *c, int64_t id, uint64_t nr)
{
	_cleanup_(finalizep) sqlite3_stmt *s = NULL;
	/* Virtual time is the number of the last kept access, so it never decreases. */
	int r = catalog_prepare(c,
				"INSERT INTO access(now, file)"
				" VALUES((SELECT ifnull(max(now), 0) + 1 FROM access), ?)",
				&s);

	if (r < 0)
		return r;
	(void)sqlite3_bind_int64(s, 1, id);
	for (uint64_t i = 0; i < MIN(nr, (uint64_t)CATALOG_ACCESSES_MAX) && r == 0; i++) {
		r = catalog_run(c, s, "count an access");
		(void)sqlite3_reset(s);
	}
	return r;
}

static int count_accesses(struct catalog *c, int64_t id, uint64_t nr)
{
	_cleanup_(finalizep) sqlite3_stmt *s = NULL;
	int r = catalog_prepare(
		c,
		"UPDATE file SET accesses=accesses+?2, last=(SELECT max(now) FROM access)"
		" WHERE id=?1",
		&s);

	if (r < 0)
		return r;
	(void)sqlite3_bind_int64(s, 1, id);
	bind_u64(s, 2, nr);
	return catalog_run(c, s, "count an access");
}

int catalog_access(struct catalog *c, const char *name, uint64_t nr)
{
	bool alone = sqlite3_get_autocommit(c->db);
	struct tier_file f;
	int r = alone ? catalog_begin(c) : 0;

	if (r < 0)
		return r;
	r = catalog_find(c, name, &f);
	if (r == 0)
		r = add_accesses(c, f.id, nr);
	if (r == 0)
		r = count_accesses(c, f.id, nr);
	if (r == 0)
		r = catalog_run_number(
			c, "DELETE FROM access WHERE now <= (SELECT max(now) FROM access) - ?",
			CATALOG_ACCESSES_MAX, "forget old accesses");
	if (!alone)
		return r;
	if (r == 0)
		return catalog_commit(c);
	catalog_rollback(c);
	return r;
}

int catalog_each_access(struct catalog *c, int (*fn)(int64_t file, uint64_t now, void *arg),
			void *arg)
{
	_cleanup_(finalizep) sqlite3_stmt *s = NULL;
	int r = catalog_prepare(c, "SELECT file, now FROM access ORDER BY now", &s);

	while (r == 0) {
		int step = sqlite3_step(s);

		if (step == SQLITE_DONE)
			break;
		if (step != SQLITE_ROW)
			return catalog_fail(c, "list accesses");
		r = fn(sqlite3_column_int64(s, 0), column_u64(s, 1), arg);
	}
	return r;
}

/* ----------------------------------------------------------------- scans */

int catalog_scan_begin(struct catalog *c)
{
	int r = exec(c, "CREATE TEMP TABLE IF NOT EXISTS seen(id INTEGER PRIMARY KEY)",
		     "begin a scan");

	return r < 0 ? r : exec(c, "DELETE FROM temp.seen", "begin a scan");
}

int catalog_scan_seen(struct catalog *c, int64_t id)
{
	_cleanup_(reset_stmtp) sqlite3_stmt *s = NULL;
	int r = prepare_kept(c, "INSERT OR IGNORE INTO temp.seen VALUES(?)", &c->seen, &s);

	if (r < 0)
		return r;
	(void)sqlite3_bind_int64(s, 1, id);
	return catalog_run(c, s, "note a file");
}

int catalog_scan_unseen(struct catalog *c, unsigned root, int64_t after, struct tier_file *ret)
{
	_cleanup_(finalizep) sqlite3_stmt *s = NULL;
	int r = catalog_prepare(c,
				"SELECT " FILE_COLUMNS " FROM file WHERE id>? AND root=?"
				" AND id NOT IN (SELECT id FROM temp.seen) ORDER BY id LIMIT 1",
				&s);

	if (r < 0)
		return r;
	(void)sqlite3_bind_int64(s, 1, after);
	bind_u64(s, 2, root);
	r = sqlite3_step(s);
	if (r == SQLITE_DONE)
		return -ENOENT;
	if (r != SQLITE_ROW)
		return catalog_fail(c, "end a scan");
	column_file(s, ret);
	return 0;
}

/* ----------------------------------------------------------------- moves */

int catalog_move_begin(struct catalog *c, struct tier_move *m)
{
	_cleanup_(finalizep) sqlite3_stmt *s = NULL;
	int r = catalog_prepare(c, "INSERT INTO move(name, src, dst, committed) VALUES(?, ?, ?, 0)",
				&s);

	if (r < 0)
		return r;
	bind_name(s, 1, m->name);
	bind_u64(s, 2, m->src);
	bind_u64(s, 3, m->dst);
	if (sqlite3_step(s) == SQLITE_DONE) {
		m->id = sqlite3_last_insert_rowid(c->db);
		m->committed = false;
		return 0;
	}
	if (sqlite3_errcode(c->db) == SQLITE_CONSTRAINT)
		return err_set(EALREADY, "a move of %s has not ended", m->name);
	return catalog_fail(c, "journal a move");
}

int catalog_move_copied(struct catalog *c, struct tier_move *m, uint64_t size, uint32_t crc)
{
	_cleanup_(finalizep) sqlite3_stmt *s = NULL;
	int r = catalog_prepare(c, "INSERT OR REPLACE INTO copied VALUES(?, ?, ?)", &s);

	if (r < 0)
		return r;
	(void)sqlite3_bind_int64(s, 1, m->id);
	bind_u64(s, 2, size);
	bind_u64(s, 3, crc);
	r = catalog_run(c, s, "journal a move");
	if (r < 0)
		return r;
	m->copied = true;
	m->size = size;
	m->crc = crc;
	return 0;
}

static int set_committed(struct catalog *c, const struct tier_move *m, struct tier_file *file,
			 const char *sql)
{
	int r = catalog_begin(c);

	if (r < 0)
		return r;
	r = catalog_run_number(c, sql, m->id, "journal a move");
	if (r == 0)
		r = catalog_put(c, file);
	if (r == 0)
		return catalog_commit(c);
	catalog_rollback(c);
	return r;
}

int catalog_move_commit(struct catalog *c, const struct tier_move *m, struct tier_file *file)
{
	return set_committed(c, m, file, "UPDATE move SET committed=1 WHERE id=?");
}

int catalog_move_uncommit(struct catalog *c, const struct tier_move *m, struct tier_file *file)
{
	return set_committed(c, m, file, "UPDATE move SET committed=0 WHERE id=?");
}

int catalog_move_end(struct catalog *c, const struct tier_move *m)
{
	/* Move numbers are never reused, so a record that a crash leaves here is harmless. */
	int r = catalog_run_number(c, "DELETE FROM move WHERE id=?", m->id, "end a move");

	if (r < 0 || !m->copied)
		return r;
	return catalog_run_number(c, "DELETE FROM copied WHERE move=?", m->id, "end a move");
}

int catalog_move_first(struct catalog *c, int64_t after, struct tier_move *ret)
{
	_cleanup_(finalizep) sqlite3_stmt *s = NULL;
	int r = catalog_prepare(c,
				"SELECT id, name, src, dst, committed, size, crc FROM move"
				" LEFT JOIN copied ON move=id WHERE id>? ORDER BY id LIMIT 1",
				&s);

	if (r < 0)
		return r;
	(void)sqlite3_bind_int64(s, 1, after);
	r = sqlite3_step(s);
	if (r == SQLITE_DONE)
		return -ENOENT;
	if (r != SQLITE_ROW)
		return catalog_fail(c, "read the journal");
	ret->id = sqlite3_column_int64(s, 0);
	column_name(s, 1, ret->name);
	ret->src = (unsigned)sqlite3_column_int(s, 2);
	ret->dst = (unsigned)sqlite3_column_int(s, 3);
	ret->committed = sqlite3_column_int(s, 4) != 0;
	ret->copied = sqlite3_column_type(s, 5) != SQLITE_NULL;
	ret->size = column_u64(s, 5);
	ret->crc = (uint32_t)column_u64(s, 6);
	return 0;
}

/* -------------------------------------------------------------- measured */

int catalog_measured(struct catalog *c, unsigned root, struct tier_measured *ret)
{
	_cleanup_(finalizep) sqlite3_stmt *s = NULL;
	int r = catalog_prepare(c,
				"SELECT read_bytes, read_ns, write_bytes, write_ns FROM measured"
				" WHERE root=?",
				&s);

	*ret = (struct tier_measured){ 0 };
	if (r < 0)
		return r;
	bind_u64(s, 1, root);
	r = sqlite3_step(s);
	if (r == SQLITE_DONE)
		return 0;
	if (r != SQLITE_ROW)
		return catalog_fail(c, "read measurements");
	*ret = (struct tier_measured){ column_u64(s, 0), column_u64(s, 1), column_u64(s, 2),
				       column_u64(s, 3) };
	return 0;
}

int catalog_measured_add(struct catalog *c, unsigned root, const struct tier_measured *m)
{
	_cleanup_(finalizep) sqlite3_stmt *s = NULL;
	int r = catalog_prepare(
		c,
		"INSERT INTO measured VALUES(?1, ?2, ?3, ?4, ?5) ON CONFLICT(root) DO UPDATE"
		" SET read_bytes=read_bytes+?2, read_ns=read_ns+?3,"
		" write_bytes=write_bytes+?4, write_ns=write_ns+?5",
		&s);

	if (r < 0)
		return r;
	bind_u64(s, 1, root);
	bind_u64(s, 2, m->read_bytes);
	bind_u64(s, 3, m->read_ns);
	bind_u64(s, 4, m->write_bytes);
	bind_u64(s, 5, m->write_ns);
	return catalog_run(c, s, "write measurements");
}
