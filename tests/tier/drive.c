/* SPDX-License-Identifier: MIT */
/*
 * drive init SET DIR DIR DIR | move SET NAME CLASS | recover SET: calls of src/tier for crash.py,
 * which runs them thousands of times and on builds with planted faults.  recover prints "CLASS
 * NAME" for each file.
 *
 * Environment: DRIVE_DIE_AT=N ends the process before the Nth file call.  DRIVE_WRITE_AT=N with
 * DRIVE_WRITE=PATH appends a byte to that file there.  DRIVE_MOVE_ALONE counts only the move's
 * calls, not those of recovery and scan before it.  DRIVE_MARK=PATH syncs the byte and writes the
 * text DRIVE_MARK_TEXT to PATH.  With DRIVE_STORE=DIR, the set has the class object in that
 * directory (store.c), and recover writes the content of each object to the directory DRIVE_SHOW.
 */
#include <stdio.h>

#include "base/err.h"
#include "tier/move.h"
#include "tier/object.h"
#include "tier/scan.h"

#include "calls.h"
#include "store.h"

static unsigned long die_at, write_at;
static const char *mark, *mark_text;

static void append(const char *path)
{
	int fd = open(path, O_WRONLY | O_APPEND | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return;
	/* The mark records when the writer knew that the byte is durable. */
	if (write(fd, "!", 1) == 1 && mark && fsync(fd) == 0) {
		int log = open(mark, O_WRONLY | O_CLOEXEC);

		(void)!write(log, mark_text, strlen(mark_text));
		(void)close(log);
	}
	(void)close(fd);
}

static int count(const char *call)
{
	(void)call;
	if (die_at && --die_at == 0)
		_exit(9);
	if (write_at && --write_at == 0)
		append(getenv("DRIVE_WRITE"));
	return 0;
}

static int init(const char *name, char *dirs[])
{
	static struct tier_set set;
	int r;

	(void)snprintf(set.name, sizeof(set.name), "%s", name);
	set.policy = tier_policy_find(TIER_POLICY_DEFAULT);
	set.same_fs = true;
	set.nr_roots = TIER_DISK_CLASSES;
	for (unsigned i = 0; i < TIER_DISK_CLASSES; i++) {
		set.limits[i] = (struct tier_limits){ .low = 80, .high = 90 };
		set.roots[i].class = (enum tier_class)i;
		set.roots[i].fd = -1;
		(void)snprintf(set.roots[i].path, PATH_MAX, "%s", dirs[i]);
	}
	if (getenv("DRIVE_STORE")) {
		struct tier_root *root = &set.roots[set.nr_roots++];

		set.limits[TIER_OBJECT] =
			(struct tier_limits){ .low = 80, .high = 90, .quota = GIB(1) };
		root->class = TIER_OBJECT;
		root->fd = -1;
		(void)snprintf(root->path, PATH_MAX, "s3://bucket/cold");
	}
	r = set_init(&set);
	for (unsigned i = 0; i < TIER_DISK_CLASSES; i++)
		closep(&set.roots[i].fd);
	return r;
}

static int open_locked(const char *name, struct tier_set **ret)
{
	_cleanup_(set_closep) struct tier_set *set = NULL;
	struct recover_counts recovered;
	struct scan_counts scanned;
	int r = set_open(name, &set);

	if (r == 0)
		r = set_whole(set);
	if (r == 0)
		r = set_lock(set);
	if (r == 0)
		r = recover_set(set, &recovered);
	if (r == 0)
		r = scan_set(set, &scanned);
	if (r < 0)
		return r;
	if (recovered.waiting)
		return err_set(EIO, "a move waits: %s", recovered.why);
	*ret = TAKE_PTR(set);
	return 0;
}

static int move(const char *name, const char *file, const char *class)
{
	_cleanup_(set_closep) struct tier_set *set = NULL;
	struct move_done done;
	enum tier_class to;
	int r = tier_class_find(class, &to);

	if (r == 0)
		r = open_locked(name, &set);
	if (r < 0)
		return r;
	if (getenv("DRIVE_MOVE_ALONE"))
		calls_hook = count;
	r = move_target(set, to, 0);
	return r < 0 ? r : move_file(set, file, (unsigned)r, &done);
}

/* Write the content of an object to a file, by its name with % in place of slashes. */
static int show(const struct tier_set *set, const struct tier_file *f)
{
	const struct tier_root *root = &set->roots[f->root];
	char name[TIER_NAME_SIZE], path[PATH_MAX + TIER_NAME_SIZE];
	struct object_facts facts;
	struct tier_object o;
	char *buf = malloc(f->stamp.size + 1);
	FILE *to = NULL;
	int r = buf ? catalog_object(set->catalog, f->id, &o) : -ENOMEM;

	if (r == 0)
		r = object_same(root, &o, f->stamp.size, &facts);
	if (r == 0 && facts.size)
		r = object_get(root, o.key, &facts, buf, facts.size, 0);
	(void)snprintf(name, sizeof(name), "%s", f->name);
	for (char *c = name; *c; c++)
		*c = *c == '/' ? '%' : *c;
	(void)snprintf(path, sizeof(path), "%s/%s", getenv("DRIVE_SHOW"), name);
	if (r == 0)
		to = fopen(path, "we");
	if (r == 0 && (!to || fwrite(buf, 1, facts.size, to) != facts.size))
		r = err_set(EIO, "cannot write %s", path);
	if (to)
		(void)fclose(to);
	free(buf);
	return r;
}

static int print(const struct tier_file *f, void *arg)
{
	const struct tier_set *set = arg;

	if (root_is_object(&set->roots[f->root])) {
		int r = show(set, f);

		if (r < 0)
			return r;
	}
	(void)printf("%s %s\n", tier_class_name(set->roots[f->root].class), f->name);
	return 0;
}

static int recover(const char *name)
{
	_cleanup_(set_closep) struct tier_set *set = NULL;
	int r = open_locked(name, &set);

	return r < 0 ? r : catalog_each(set->catalog, print, set);
}

int main(int argc, char *argv[])
{
	const char *die = getenv("DRIVE_DIE_AT"), *write = getenv("DRIVE_WRITE_AT");
	int r = -EINVAL;

	die_at = die ? strtoul(die, NULL, 10) : 0;
	write_at = write ? strtoul(write, NULL, 10) : 0;
	mark = getenv("DRIVE_MARK");
	mark_text = getenv("DRIVE_MARK_TEXT");
	if (getenv("DRIVE_STORE")) {
		store_begin(getenv("DRIVE_STORE"));
		objects_use(&store_table);
	}
	calls_hook = (die_at || write_at) && !getenv("DRIVE_MOVE_ALONE") ? count : NULL;
	if (argc == 6 && !strcmp(argv[1], "init"))
		r = init(argv[2], argv + 3);
	else if (argc == 5 && !strcmp(argv[1], "move"))
		r = move(argv[2], argv[3], argv[4]);
	else if (argc == 3 && !strcmp(argv[1], "recover"))
		r = recover(argv[2]);
	if (r < 0)
		(void)fprintf(stderr, "drive: %s: %s\n", argc > 1 ? argv[1] : "", err_text());
	return r < 0;
}
