/* SPDX-License-Identifier: MIT */
#include "tier/set.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/statvfs.h>

#include "base/err.h"
#include "base/size.h"
#include "tier/catalog_object.h"
#include "tier/epoch.h"
#include "tier/progress.h"

#define CONF "set.conf"
#define CONF_NEW "set.conf.new"
#define CONF_MAX 1000000u /* bytes; 64 roots with the longest paths take 270,000 */
#define MARKER TIER_DIR "/id"
#define MARKER_NEW TIER_DIR "/id.new"
#define FIRST_LINE "penstock tier 1"

static const char *const class_names[TIER_CLASSES] = { "nvme", "ssd", "hdd", "object" };

const char *tier_class_name(enum tier_class class)
{
	return class_names[class];
}

int object_root(const struct tier_set *set)
{
	for (unsigned i = 0; i < set->nr_roots; i++)
		if (root_is_object(&set->roots[i]))
			return (int)i;
	return -1;
}

int tier_class_find(const char *name, enum tier_class *ret)
{
	for (unsigned i = 0; i < TIER_CLASSES; i++)
		if (!strcmp(name, class_names[i])) {
			*ret = (enum tier_class)i;
			return 0;
		}
	return err_set(EINVAL, "there is no class '%s': it is nvme, ssd, hdd or object", name);
}

/* ------------------------------------------------------------- text files */

static int random_id(char ret[TIER_ID_SIZE])
{
	unsigned char bytes[(TIER_ID_SIZE - 1) / 2];

	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
		return err_set(EIO, "the kernel gives no random numbers");
	for (size_t i = 0; i < sizeof(bytes); i++)
		(void)snprintf(ret + 2 * i, 3, "%02x", bytes[i]);
	return 0;
}

/* Write a small file atomically: after a crash it is complete or missing. */
static int write_text(int dir_fd, const char *name, const char *new_name, const char *text)
{
	_cleanup_(closep) int fd = openat(
		dir_fd, new_name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
	_cleanup_(closep) int parent = -1;
	char path[PATH_MAX];
	size_t len = strlen(text);

	if (fd < 0)
		return -errno;
	if (write(fd, text, len) != (ssize_t)len)
		return errno ? -errno : -ENOSPC;
	if (fsync(fd) < 0 || renameat(dir_fd, new_name, dir_fd, name) < 0)
		return -errno;
	(void)snprintf(path, sizeof(path), "%s", name);
	if (strchr(path, '/'))
		*strrchr(path, '/') = '\0';
	else
		(void)snprintf(path, sizeof(path), ".");
	parent = openat(dir_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return parent < 0 || fsync(parent) < 0 ? -errno : 0;
}

static int read_text(int dir_fd, const char *name, char **ret)
{
	_cleanup_(closep) int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_(freep) char *buf = NULL;
	size_t have = 0;
	ssize_t n;

	if (fd < 0)
		return -errno;
	buf = malloc(CONF_MAX + 1);
	if (!buf)
		return -ENOMEM;
	while ((n = read(fd, buf + have, CONF_MAX - have)) > 0)
		have += (size_t)n;
	if (n < 0)
		return -errno;
	if (have == CONF_MAX)
		return -EFBIG;
	buf[have] = '\0';
	/* A NUL would hide the text after it. */
	if (strlen(buf) != have)
		return -EBADMSG;
	*ret = TAKE_PTR(buf);
	return 0;
}

/* --------------------------------------------------------------- set.conf */

static int put_conf(const struct tier_set *set, int dir_fd)
{
	_cleanup_(freep) char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);
	int r;

	if (!f)
		return err_set(ENOMEM, "out of memory");
	(void)fprintf(f, FIRST_LINE "\nset %s\npolicy %s\n", set->id, set->policy->name);
	if (set->same_fs)
		(void)fprintf(f, "same-filesystem\n");
	/* Earlier releases do not know the class object. */
	for (unsigned i = 0; i < (object_root(set) < 0 ? TIER_DISK_CLASSES : TIER_CLASSES); i++)
		(void)fprintf(f, "limits %s quota %llu low %u high %u rate %llu\n", class_names[i],
			      (unsigned long long)set->limits[i].quota, set->limits[i].low,
			      set->limits[i].high, (unsigned long long)set->limits[i].rate);
	for (unsigned i = 0; i < set->nr_roots; i++)
		(void)fprintf(f, "root %s %s %s\n", class_names[set->roots[i].class],
			      set->roots[i].id, set->roots[i].path);
	if (fclose(f) != 0)
		return err_set(ENOMEM, "out of memory");
	r = write_text(dir_fd, CONF, CONF_NEW, text);
	return r < 0 ? err_set(r, "cannot write %s/" CONF ": %s", set->state, strerror(-r)) : 0;
}

static bool is_id(const char *text)
{
	return strlen(text) == TIER_ID_SIZE - 1 &&
	       strspn(text, "0123456789abcdef") == TIER_ID_SIZE - 1;
}

static int limits_line(struct tier_set *set, const char *line)
{
	char class[8], quota[32], rate[32];
	struct tier_limits l;
	enum tier_class c = TIER_NVME;
	int end = 0;

	if (sscanf(line, "limits %7s quota %31s low %u high %u rate %31s%n", class, quota, &l.low,
		   &l.high, rate, &end) != 5 ||
	    line[end] || tier_class_find(class, &c) < 0 || size_parse(quota, &l.quota) < 0 ||
	    size_parse(rate, &l.rate) < 0 || l.low >= l.high || l.high > 100)
		return -EINVAL;
	set->limits[c] = l;
	return 0;
}

static int root_line(struct tier_set *set, const char *line)
{
	struct tier_root *root = &set->roots[set->nr_roots];
	char class[8], id[TIER_ID_SIZE];
	int at = 0;

	if (set->nr_roots == TIER_ROOTS_MAX ||
	    sscanf(line, "root %7s %32s %n", class, id, &at) != 2 || !at ||
	    strlen(line + at) >= sizeof(root->path) || !is_id(id) ||
	    tier_class_find(class, &root->class) < 0)
		return -EINVAL;
	if (root_is_object(root) ? strncmp(line + at, "s3://", 5) != 0 || object_root(set) >= 0
				 : line[at] != '/')
		return -EINVAL;
	(void)snprintf(root->path, sizeof(root->path), "%s", line + at);
	memcpy(root->id, id, sizeof(id));
	root->fd = -1;
	set->nr_roots++;
	return 0;
}

static int conf_line(struct tier_set *set, const char *line)
{
	char word[64];

	if (!strncmp(line, "limits ", 7))
		return limits_line(set, line);
	if (!strncmp(line, "root ", 5))
		return root_line(set, line);
	if (!strcmp(line, "same-filesystem")) {
		set->same_fs = true;
		return 0;
	}
	if (sscanf(line, "set %63s", word) == 1 && is_id(word)) {
		memcpy(set->id, word, TIER_ID_SIZE);
		return 0;
	}
	if (sscanf(line, "policy %63s", word) == 1) {
		set->policy = tier_policy_find(word);
		return set->policy ? 0 : -EINVAL;
	}
	return -EINVAL;
}

static int get_conf(struct tier_set *set, int dir_fd)
{
	_cleanup_(freep) char *text = NULL;
	char *line, *rest;
	unsigned nr = 0;
	int r = read_text(dir_fd, CONF, &text);

	if (r < 0)
		return err_set(r, "cannot read %s/" CONF ": %s", set->state, strerror(-r));
	rest = text;
	while ((line = strsep(&rest, "\n"))) {
		nr++;
		r = nr == 1                 ? (strcmp(line, FIRST_LINE) ? -EINVAL : 0)
		    : *line && *line != '#' ? conf_line(set, line)
					    : 0;
		if (r < 0)
			return err_set(EINVAL, "%s/" CONF ", line %u is wrong: '%s'", set->state,
				       nr, line);
	}
	if (!set->policy || !set->id[0] || !set->nr_roots)
		return err_set(EINVAL, "%s/" CONF " lacks the set's id, its policy or its roots",
			       set->state);
	if (object_root(set) >= 0 && !set->limits[TIER_OBJECT].quota)
		return err_set(EINVAL,
			       "%s/" CONF " has a root of class object and no quota of it: a store "
			       "does not tell its size",
			       set->state);
	return 0;
}

/* ------------------------------------------------------------------ state */

int set_state_dir(const char *name, char ret[PATH_MAX])
{
	const char *base = secure_getenv("PST_TIER_DIR"), *xdg = secure_getenv("XDG_STATE_HOME");
	const char *home = secure_getenv("HOME");
	int n;

	if (!*name || strlen(name) > 64 || name[0] == '.' ||
	    name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")])
		return err_set(EINVAL,
			       "'%s' is no name of a set: use up to 64 letters, digits, "
			       ". _ and -",
			       name);
	if (base && *base)
		n = snprintf(ret, PATH_MAX, "%s/%s", base, name);
	else if (geteuid() == 0)
		n = snprintf(ret, PATH_MAX, "/var/lib/penstock/tier/%s", name);
	else if (xdg && *xdg)
		n = snprintf(ret, PATH_MAX, "%s/penstock/tier/%s", xdg, name);
	else if (home && *home)
		n = snprintf(ret, PATH_MAX, "%s/.local/state/penstock/tier/%s", home, name);
	else
		return err_set(ENOENT, "there is no place for sets: set PST_TIER_DIR");
	/* Leave room for file names in the directory. */
	if (n >= PATH_MAX - NAME_MAX || *ret != '/')
		return err_set(EINVAL,
			       "PST_TIER_DIR must be an absolute path that is not too long");
	return 0;
}

static int sync_dir(const char *path)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

/* Make a directory and its parents, each durable before the next. */
static int make_dirs(const char *path)
{
	char part[PATH_MAX], parent[PATH_MAX];

	for (const char *at = path + 1;; at++) {
		at += strcspn(at, "/");
		(void)snprintf(part, sizeof(part), "%.*s", (int)(at - path), path);
		if (mkdir(part, 0755) == 0) {
			int r;

			(void)snprintf(parent, sizeof(parent), "%s", part);
			*strrchr(parent, '/') = '\0';
			r = sync_dir(*parent ? parent : "/");
			if (r < 0)
				return err_set(r, "cannot sync %s: %s", parent, strerror(-r));
		} else if (errno != EEXIST) {
			return err_set(errno, "cannot make the directory %s: %s", part,
				       strerror(errno));
		}
		if (!*at)
			return 0;
	}
}

/* ------------------------------------------------------------------ roots */

static void root_fails(struct tier_root *root, const char *fmt, ...) _printf_(2, 3);

static void root_fails(struct tier_root *root, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(root->why, sizeof(root->why), fmt, ap);
	va_end(ap);
	closep(&root->fd);
	root->fd = -1;
}

static int root_dir(struct tier_root *root)
{
	struct statvfs vfs;
	struct stat st;

	root->fd = open(root->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (root->fd < 0 || fstat(root->fd, &st) < 0 || fstatvfs(root->fd, &vfs) < 0) {
		root_fails(root, "%s cannot be opened: %s", root->path, strerror(errno));
		return -1;
	}
	root->dev = st.st_dev;
	root->read_only = vfs.f_flag & ST_RDONLY || faccessat(root->fd, ".", W_OK, AT_EACCESS) < 0;
	return 0;
}

static void set_root_open(const struct tier_set *set, struct tier_root *root)
{
	_cleanup_(freep) char *text = NULL;
	char want[256], set_id[TIER_ID_SIZE];
	int r;

	if (root_is_object(root) || root_dir(root) < 0)
		return;
	r = read_text(root->fd, MARKER, &text);
	if (r == -ENOENT) {
		root_fails(root, "%s has no %s: is its disk mounted there?", root->path, MARKER);
		return;
	}
	if (r < 0) {
		root_fails(root, "%s/%s cannot be read: %s", root->path, MARKER, strerror(-r));
		return;
	}
	(void)snprintf(want, sizeof(want), FIRST_LINE "\nset %s\nroot %s\n", set->id, root->id);
	if (!strcmp(text, want))
		return;
	if (sscanf(text, FIRST_LINE "\nset %32s\n", set_id) == 1 && !strcmp(set_id, set->id))
		root_fails(root,
			   "%s is another root of this set: are two disks mounted in each "
			   "other's place?",
			   root->path);
	else
		root_fails(root, "%s belongs to another set, says its %s", root->path, MARKER);
}

/* Refuse two roots on one file system: they share its room, and one disk's failure takes both. */
static void check_apart(struct tier_set *set)
{
	for (unsigned i = 0; i < set->nr_roots && !set->same_fs; i++)
		for (unsigned k = 0; k < i; k++)
			if (set->roots[i].fd >= 0 && set->roots[k].fd >= 0 &&
			    set->roots[i].dev == set->roots[k].dev)
				root_fails(
					&set->roots[i],
					"%.100s and %.100s are on one file system: is a disk not "
					"mounted? --same-filesystem allows it",
					set->roots[k].path, set->roots[i].path);
}

/* Objects that wait to be deleted still take room. */
static int object_space(const struct tier_set *set, const struct tier_root *root,
			struct tier_space *ret)
{
	uint64_t nr, garbage;
	int r = catalog_root_bytes(set->catalog, (unsigned)(root - set->roots), &ret->used);

	if (r == 0)
		r = catalog_garbage_count(set->catalog, &nr, &garbage);
	if (r < 0)
		return r;
	ret->used += garbage;
	ret->size = set->limits[TIER_OBJECT].quota;
	ret->avail = ret->size > ret->used ? ret->size - ret->used : 0;
	return 0;
}

int root_space(const struct tier_set *set, const struct tier_root *root, struct tier_space *ret)
{
	struct statvfs vfs;

	if (root_is_object(root))
		return object_space(set, root, ret);
	if (root->fd < 0)
		return err_set(ENODEV, "%s", root->why);
	if (fstatvfs(root->fd, &vfs) < 0)
		return err_set(errno, "cannot ask for the room of %s: %s", root->path,
			       strerror(errno));
	ret->size = (uint64_t)vfs.f_blocks * vfs.f_frsize;
	ret->avail = (uint64_t)vfs.f_bavail * vfs.f_frsize;
	ret->used = 0;
	return 0;
}

int class_space(struct tier_set *set, enum tier_class class, struct tier_space *ret)
{
	uint64_t quota = set->limits[class].quota;
	struct tier_space sum = { 0 }, one;
	int r = 0;

	for (unsigned i = 0; i < set->nr_roots && r == 0; i++) {
		if (set->roots[i].class != class || !root_usable(&set->roots[i]))
			continue;
		r = root_space(set, &set->roots[i], &one);
		if (r == 0 && !root_is_object(&set->roots[i]))
			r = catalog_root_bytes(set->catalog, i, &one.used);
		/* Bytes that others use on the file system are not available to the set. */
		sum.size += MIN(one.size, one.used + one.avail);
		sum.used += one.used;
		sum.avail += one.avail;
	}
	if (quota) {
		sum.size = MIN(sum.size, quota);
		sum.avail = MIN(sum.avail, quota > sum.used ? quota - sum.used : 0);
	}
	*ret = sum;
	return r;
}

/* ------------------------------------------------------------------- init */

static int init_check_object(const struct tier_set *set, struct tier_root *root)
{
	size_t len = strlen(root->path);

	if (strncmp(root->path, "s3://", 5) != 0 || strpbrk(root->path, "\n"))
		return err_set(EINVAL, "%s is not s3://BUCKET/PREFIX", root->path);
	while (len && root->path[len - 1] == '/')
		root->path[--len] = '\0';
	if (!strchr(root->path + 5, '/') || len > OBJECT_KEY_SIZE / 2)
		return err_set(EINVAL,
			       "%s is not s3://BUCKET/PREFIX: the set needs a prefix of its own, "
			       "of at most %u bytes",
			       root->path, OBJECT_KEY_SIZE / 2);
	if (root != &set->roots[object_root(set)])
		return err_set(EINVAL, "a set has one root of class object at most");
	if (!set->limits[TIER_OBJECT].quota)
		return err_set(EINVAL,
			       "the class object needs a quota, because a store does not tell its "
			       "size: --quota object:BYTES");
	return 0;
}

static int init_check(struct tier_set *set)
{
	unsigned nr_dirs = 0;

	for (unsigned i = 0; i < set->nr_roots; i++) {
		struct tier_root *root = &set->roots[i];
		char real[PATH_MAX];

		if (root_is_object(root)) {
			int r = init_check_object(set, root);

			if (r < 0)
				return r;
			continue;
		}
		nr_dirs++;
		if (strpbrk(root->path, "\n"))
			return err_set(EINVAL, "the path of a root has a newline in it");
		if (!realpath(root->path, real))
			return err_set(errno, "%s cannot be opened: %s", root->path,
				       strerror(errno));
		(void)snprintf(root->path, sizeof(root->path), "%s", real);
		for (unsigned k = 0; k < i; k++) {
			const char *a = set->roots[k].path;
			size_t len = MIN(strlen(a), strlen(real));

			/* Nested roots would show files twice. */
			if (!strncmp(a, real, len) && (!a[len] || a[len] == '/') &&
			    (!real[len] || real[len] == '/'))
				return err_set(EINVAL, "%s and %s overlap: roots are apart", a,
					       real);
		}
		if (root_dir(root) < 0)
			return err_set(ENODEV, "%s", root->why);
		if (root->read_only)
			return err_set(EROFS, "%s cannot be written", root->path);
		if (faccessat(root->fd, MARKER, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			return err_set(EEXIST,
				       "%s is a root of a set already; if that set is gone, "
				       "remove %s/" MARKER,
				       root->path, root->path);
	}
	if (!nr_dirs)
		return err_set(EINVAL, "a set needs a directory: new files are made there");
	check_apart(set);
	return set_whole(set);
}

static int init_root(const struct tier_set *set, struct tier_root *root)
{
	char text[256];
	int r = 0;

	if (root_is_object(root))
		return object_marker_make(set, root);
	if ((mkdirat(root->fd, TIER_DIR, 0700) < 0 && errno != EEXIST) ||
	    (mkdirat(root->fd, TIER_TMP, 0700) < 0 && errno != EEXIST) || fsync(root->fd) < 0)
		r = -errno;
	(void)snprintf(text, sizeof(text), FIRST_LINE "\nset %s\nroot %s\n", set->id, root->id);
	/* Syncing the root also makes TIER_TMP durable. */
	if (r == 0)
		r = write_text(root->fd, MARKER, MARKER_NEW, text);
	return r < 0 ? err_set(r, "cannot write %s/" MARKER ": %s", root->path, strerror(-r)) : 0;
}

int set_init(struct tier_set *set)
{
	_cleanup_(closep) int dir = -1;
	int r = set_state_dir(set->name, set->state), object = object_root(set);

	if (r == 0)
		r = make_dirs(set->state);
	if (r < 0)
		return r;
	dir = open(set->state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_set(errno, "cannot open %s: %s", set->state, strerror(errno));
	if (faccessat(dir, CONF, F_OK, 0) == 0)
		return err_set(EEXIST, "there is a set %s already: %s/" CONF, set->name,
			       set->state);
	r = init_check(set);
	if (r == 0)
		r = random_id(set->id);
	for (unsigned i = 0; i < set->nr_roots && r == 0; i++)
		r = random_id(set->roots[i].id);
	/* SQLite does not sync its database into the directory; put_conf() does. */
	if (r == 0)
		r = catalog_open(set->state, &set->catalog);
	if (r == 0)
		r = catalog_set_whole(set->catalog);
	set->catalog = catalog_close(set->catalog);
	/* The store first: if it fails, nothing is left on the disks. */
	if (r == 0 && object >= 0)
		r = init_root(set, &set->roots[object]);
	for (unsigned i = 0; i < set->nr_roots && r == 0; i++)
		if (!root_is_object(&set->roots[i]))
			r = init_root(set, &set->roots[i]);
	return r < 0 ? r : put_conf(set, dir);
}

/* ------------------------------------------------------------------- open */

int set_open_roots(const char *name, struct tier_set **ret)
{
	_cleanup_(set_closep) struct tier_set *set = calloc(1, sizeof(*set));
	_cleanup_(closep) int dir = -1;
	int r;

	if (!set)
		return err_set(ENOMEM, "out of memory");
	set->lock_fd = -1;
	(void)snprintf(set->name, sizeof(set->name), "%s", name);
	r = set_state_dir(name, set->state);
	if (r < 0)
		return r;
	dir = open(set->state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0 || faccessat(dir, CONF, F_OK, 0) < 0)
		return err_set(errno, "there is no set %s (%s): make it with 'penstock tier init'",
			       name, set->state);
	r = get_conf(set, dir);
	if (r < 0)
		return r;
	set->lock_fd = openat(dir, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (set->lock_fd < 0)
		return err_set(errno, "cannot open %s/lock: %s", set->state, strerror(errno));
	for (unsigned i = 0; i < set->nr_roots; i++)
		set_root_open(set, &set->roots[i]);
	check_apart(set);
	*ret = TAKE_PTR(set);
	return 0;
}

int set_open(const char *name, struct tier_set **ret)
{
	_cleanup_(set_closep) struct tier_set *set = NULL;
	int r = set_open_roots(name, &set);

	if (r == 0)
		r = catalog_open(set->state, &set->catalog);
	/* Directories tell their files again, but only the catalogue tells the objects. */
	if (r == 0 && object_root(set) >= 0)
		r = catalog_is_whole(set->catalog);
	if (r == 0)
		r = epochs_open(set->state, &set->epochs);
	if (r == 0)
		r = progress_open(set->state, &set->progress);
	if (r == 0)
		*ret = TAKE_PTR(set);
	return r;
}

struct tier_set *set_close(struct tier_set *set)
{
	if (!set)
		return NULL;
	(void)catalog_close(set->catalog);
	(void)epochs_close(set->epochs);
	(void)progress_close(set->progress);
	for (unsigned i = 0; i < set->nr_roots; i++)
		closep(&set->roots[i].fd);
	closep(&set->lock_fd);
	free(set);
	return NULL;
}

int set_whole(const struct tier_set *set)
{
	for (unsigned i = 0; i < set->nr_roots; i++)
		if (!root_usable(&set->roots[i]))
			return err_set(ENODEV, "%s", set->roots[i].why);
	return 0;
}

void set_moved(const struct tier_set *set, const char *name)
{
	if (set->epochs)
		(void)atomic_fetch_add(epochs_of(set->epochs, name), 1);
}

int set_lock(struct tier_set *set)
{
	while (flock(set->lock_fd, LOCK_EX) < 0)
		if (errno != EINTR)
			return err_set(errno, "cannot lock %s/lock: %s", set->state,
				       strerror(errno));
	return 0;
}

int set_try_lock(struct tier_set *set)
{
	if (flock(set->lock_fd, LOCK_EX | LOCK_NB) == 0)
		return 0;
	if (errno == EWOULDBLOCK)
		return -EWOULDBLOCK;
	return err_set(errno, "cannot lock %s/lock: %s", set->state, strerror(errno));
}

void set_unlock(struct tier_set *set)
{
	(void)flock(set->lock_fd, LOCK_UN);
}
