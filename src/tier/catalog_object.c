/* SPDX-License-Identifier: MIT */
#include "tier/catalog_object.h"

#include <stdio.h>

#include "base/err.h"
#include "tier/catalog_private.h"

static void bind_text(sqlite3_stmt *s, int at, const char *text)
{
	(void)sqlite3_bind_text(s, at, text, -1, SQLITE_STATIC);
}

static void column_copy(sqlite3_stmt *s, int at, char *ret, size_t len)
{
	const char *text = (const char *)sqlite3_column_text(s, at);

	(void)snprintf(ret, len, "%s", text ? text : "");
}

/* Run a query for one number.  Return 0 with *s at the row; -ENOENT without a sentence. */
static int query(struct catalog *c, const char *sql, int64_t number, sqlite3_stmt **s)
{
	int r = catalog_prepare(c, sql, s);

	if (r < 0)
		return r;
	(void)sqlite3_bind_int64(*s, 1, number);
	r = sqlite3_step(*s);
	if (r == SQLITE_DONE)
		return -ENOENT;
	return r == SQLITE_ROW ? 0 : catalog_fail(c, "look an object up");
}

int catalog_set_whole(struct catalog *c)
{
	_cleanup_(finalizep) sqlite3_stmt *s = NULL;
	int r = catalog_prepare(c, "PRAGMA user_version=1", &s);

	return r < 0 ? r : catalog_run(c, s, "write the catalogue");
}

int catalog_is_whole(struct catalog *c)
{
	_cleanup_(finalizep) sqlite3_stmt *s = NULL;
	int r = catalog_prepare(c, "PRAGMA user_version", &s);

	if (r < 0)
		return r;
	if (sqlite3_step(s) != SQLITE_ROW)
		return catalog_fail(c, "use the catalogue");
	if (sqlite3_column_int(s, 0))
		return 0;
	return err_set(EUCLEAN,
		       "%s is not the catalogue that had the set's objects: find them with "
		       "'penstock tier scrub --rebuild'",
		       c->path);
}

static int get_object(struct catalog *c, const char *sql, int64_t number, struct tier_object *ret)
{
	_cleanup_(finalizep) sqlite3_stmt *s = NULL;
	int r = query(c, sql, number, &s);

	if (r < 0)
		return r;
	column_copy(s, 0, ret->key, sizeof(ret->key));
	column_copy(s, 1, ret->etag, sizeof(ret->etag));
	column_copy(s, 2, ret->meta, sizeof(ret->meta));
	return 0;
}

static int put_object(struct catalog *c, const char *sql, int64_t number,
		      const struct tier_object *o)
{
	_cleanup_(finalizep) sqlite3_stmt *s = NULL;
	int r = catalog_prepare(c, sql, &s);

	if (r < 0)
		return r;
	(void)sqlite3_bind_int64(s, 1, number);
	bind_text(s, 2, o->key);
	bind_text(s, 3, o->etag);
	bind_text(s, 4, o->meta);
	return catalog_run(c, s, "note an object");
}

int catalog_object(struct catalog *c, int64_t file, struct tier_object *ret)
{
	return get_object(c, "SELECT key, etag, meta FROM object WHERE file=?", file, ret);
}

int catalog_object_put(struct catalog *c, int64_t file, const struct tier_object *o)
{
	return put_object(c, "INSERT OR REPLACE INTO object VALUES(?, ?, ?, ?)", file, o);
}

int catalog_object_release(struct catalog *c, const struct tier_file *file, int64_t due)
{
	struct tier_object o;
	int r = catalog_object(c, file->id, &o);

	if (r == -ENOENT)
		return 0;
	if (r == 0)
		r = catalog_garbage_put(c, o.key, file->stamp.size, due);
	if (r < 0)
		return r;
	return catalog_run_number(c, "DELETE FROM object WHERE file=?", file->id,
				  "forget an object");
}

int catalog_move_commit_object(struct catalog *c, const struct tier_move *m, struct tier_file *file,
			       const struct tier_object *object)
{
	int r = catalog_begin(c);

	if (r < 0)
		return r;
	r = catalog_run_number(c, "UPDATE move SET committed=1 WHERE id=?", m->id,
			       "journal a move");
	if (r == 0)
		r = catalog_put(c, file);
	if (r == 0)
		r = catalog_object_put(c, file->id, object);
	if (r == 0)
		return catalog_commit(c);
	catalog_rollback(c);
	return r;
}

int catalog_move_commit_file(struct catalog *c, const struct tier_move *m,
			     const struct tier_file *object, struct tier_file *file, int64_t due)
{
	int r = catalog_object_release(c, object, due);

	if (r == 0)
		r = catalog_put(c, file);
	return r < 0 ? r
		     : catalog_run_number(c, "UPDATE move SET committed=1 WHERE id=?", m->id,
					  "journal a move");
}

int catalog_sent_put(struct catalog *c, const struct tier_move *move, const struct tier_object *o)
{
	return put_object(c, "INSERT OR REPLACE INTO sent VALUES(?, ?, ?, ?)", move->id, o);
}

int catalog_sent(struct catalog *c, const struct tier_move *move, struct tier_object *ret)
{
	return get_object(c, "SELECT key, etag, meta FROM sent WHERE move=?", move->id, ret);
}

int catalog_sent_end(struct catalog *c, const struct tier_move *move)
{
	return catalog_run_number(c, "DELETE FROM sent WHERE move=?", move->id, "end a move");
}

int catalog_garbage_put(struct catalog *c, const char *key, uint64_t bytes, int64_t due)
{
	_cleanup_(finalizep) sqlite3_stmt *s = NULL;
	int r = catalog_prepare(c, "INSERT OR REPLACE INTO garbage VALUES(?, ?, ?)", &s);

	if (r < 0)
		return r;
	bind_text(s, 1, key);
	bind_u64(s, 2, bytes);
	(void)sqlite3_bind_int64(s, 3, due);
	return catalog_run(c, s, "note an object for deletion");
}

int catalog_garbage_first(struct catalog *c, int64_t now_s, char ret[OBJECT_KEY_SIZE])
{
	_cleanup_(finalizep) sqlite3_stmt *s = NULL;
	int r = query(c, "SELECT key FROM garbage WHERE due<=? ORDER BY due LIMIT 1", now_s, &s);

	if (r == 0)
		column_copy(s, 0, ret, OBJECT_KEY_SIZE);
	return r;
}

int catalog_garbage_end(struct catalog *c, const char *key)
{
	_cleanup_(finalizep) sqlite3_stmt *s = NULL;
	int r = catalog_prepare(c, "DELETE FROM garbage WHERE key=?", &s);

	if (r < 0)
		return r;
	bind_text(s, 1, key);
	return catalog_run(c, s, "forget an object");
}

int catalog_garbage_count(struct catalog *c, uint64_t *ret_nr, uint64_t *ret_bytes)
{
	_cleanup_(finalizep) sqlite3_stmt *s = NULL;
	int r = query(c, "SELECT count(*), ifnull(sum(bytes), 0) FROM garbage WHERE ?=0", 0, &s);

	if (r < 0)
		return r;
	*ret_nr = column_u64(s, 0);
	*ret_bytes = column_u64(s, 1);
	return 0;
}

int catalog_object_known(struct catalog *c, const char *key)
{
	_cleanup_(finalizep) sqlite3_stmt *s = NULL;
	int r = catalog_prepare(c,
				"SELECT 1 FROM object WHERE key=?1 UNION SELECT 1 FROM sent"
				" WHERE key=?1 UNION SELECT 1 FROM garbage WHERE key=?1",
				&s);

	if (r < 0)
		return r;
	bind_text(s, 1, key);
	r = sqlite3_step(s);
	if (r != SQLITE_ROW && r != SQLITE_DONE)
		return catalog_fail(c, "look an object up");
	return r == SQLITE_ROW;
}
