/* SPDX-License-Identifier: MIT */
#include <dirent.h>
#include <endian.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/crc32c.h"
#include "base/err.h"

#include "kv/root.h"

#define VERSION 1u
#define CONFIG "penstock-kv"
#define LOCK_TEXT 72u /* room for the text of the file "lock": three numbers */

static const char magic[8] = "PSTKVR\r\n";

/* The contents of the file penstock-kv. */
struct config {
	char magic[8];
	uint32_t version;
	uint32_t nr, idx; /* number of directories; index of this one */
	uint32_t reserved;
	uint8_t id[16];
	uint64_t key[2];
	uint32_t pad;
	uint32_t crc;
};

int root_write_file(int dir, const char *name, const void *buf, size_t len)
{
	_cleanup_(closep) int fd = -1;
	char temp[64];
	ssize_t n;
	int r;

	(void)snprintf(temp, sizeof(temp), "%s.new", name);
	fd = openat(dir, temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
	if (fd < 0)
		return err_set(errno, "cannot make the file %s: %s", temp, strerror(errno));
	n = write(fd, buf, len);
	if (n != (ssize_t)len || fsync(fd) < 0 || renameat(dir, temp, dir, name) < 0) {
		r = n >= 0 && n != (ssize_t)len ? ENOSPC : errno;
		(void)unlinkat(dir, temp, 0);
		return err_set(r, "cannot write the file %s: %s", name, strerror(r));
	}
	if (fsync(dir) < 0)
		return err_set(errno, "cannot sync a directory of the store: %s", strerror(errno));
	return 0;
}

static int root_make_dir(int dir, const char *name)
{
	if (mkdirat(dir, name, 0777) < 0 && errno != EEXIST)
		return err_set(errno, "cannot make the directory %s: %s", name, strerror(errno));
	return 0;
}

int root_make_place(const struct root *r, uint64_t space, uint64_t hash)
{
	int dir = r->dir[root_dir_of(r, hash)], res;
	char path[BLOCK_PATH_LEN];

	block_path(path, space, hash);
	path[2 + 16] = '\0';
	res = root_make_dir(dir, path);
	path[2 + 16] = '/';
	path[2 + 16 + 3] = '\0';
	return res < 0 ? res : root_make_dir(dir, path);
}

/* Check that a directory is empty, except for files that mkfs creates. */
static int check_empty(int dir, const char *path)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!d) {
		r = errno;
		if (fd >= 0)
			(void)close(fd);
		return err_set(r, "cannot read the directory %s: %s", path, strerror(r));
	}
	while (r == 0 && (e = readdir(d)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
		    strcmp(e->d_name, "lost+found") != 0 && strcmp(e->d_name, "lock") != 0 &&
		    strcmp(e->d_name, CONFIG ".new") != 0)
			r = err_set(ENOTEMPTY,
				    "%s holds %s and is no store; give an empty directory", path,
				    e->d_name);
	(void)closedir(d);
	return r;
}

static uint32_t config_crc(const struct config *c)
{
	return crc32c(0, c, offsetof(struct config, crc));
}

/* Read the file penstock-kv.  Return 1; 0 if there is none; or -errno. */
static int read_config(int dir, const char *path, struct config *ret)
{
	_cleanup_(closep) int fd = openat(dir, CONFIG, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t n;

	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0)
		return err_set(errno, "cannot open %s/" CONFIG ": %s", path, strerror(errno));
	n = read(fd, ret, sizeof(*ret));
	if (n < 0)
		return err_set(errno, "cannot read %s/" CONFIG ": %s", path, strerror(errno));
	if (n != (ssize_t)sizeof(*ret) || memcmp(ret->magic, magic, sizeof(magic)) != 0 ||
	    le32toh(ret->crc) != config_crc(ret))
		return err_set(EPROTO,
			       "%s/" CONFIG " is damaged or of another program; empty the "
			       "directory to begin anew",
			       path);
	if (le32toh(ret->version) != VERSION)
		return err_set(EPROTO,
			       "%s is a store of version %" PRIu32 ", and this library knows %u",
			       path, le32toh(ret->version), VERSION);
	return 1;
}

static int write_config(const struct root *r, unsigned idx)
{
	struct config c = {
		.version = htole32(VERSION),
		.nr = htole32(r->nr),
		.idx = htole32(idx),
		.key = { htole64(r->key.k[0]), htole64(r->key.k[1]) },
	};

	memcpy(c.magic, magic, sizeof(magic));
	memcpy(c.id, r->id, sizeof(c.id));
	c.crc = htole32(config_crc(&c));
	return root_write_file(r->dir[idx], CONFIG, &c, sizeof(c));
}

static int same_config(const struct root *r, unsigned idx, const struct config *c)
{
	if (le32toh(c->nr) != r->nr || le32toh(c->idx) != idx)
		return err_set(
			EINVAL,
			"%s is directory %" PRIu32 " of %" PRIu32
			" of its store, and was given as %u of %u; give the same ones in the "
			"same order",
			r->path[idx], le32toh(c->idx) + 1, le32toh(c->nr), idx + 1, r->nr);
	if (memcmp(c->id, r->id, sizeof(r->id)) != 0)
		return err_set(EINVAL, "%s is of another store than %s", r->path[idx], r->path[0]);
	return 0;
}

/*
 * Return true if the directory has no blocks because the creation of its store was interrupted.
 * The caller has found that the first directory has no configuration file.
 */
static bool is_begun(const struct root *r, unsigned idx, const struct config *c)
{
	return le32toh(c->nr) == r->nr && le32toh(c->idx) == idx &&
	       faccessat(r->dir[idx], "b", F_OK, 0) < 0 && errno == ENOENT;
}

/* Check that the directories belong to one store, or create a store in them. */
static int identify(struct root *r, enum root_use use)
{
	struct config c = { 0 };
	int res = read_config(r->dir[0], r->path[0], &c), at;

	if (res == 0 && use == ROOT_READ)
		return err_set(ENOENT, "%s is no store yet: its owner makes it", r->path[0]);
	if (res < 0)
		return res;
	if (res == 1) {
		memcpy(r->id, c.id, sizeof(r->id));
		r->key = (struct hash_key){ { le64toh(c.key[0]), le64toh(c.key[1]) } };
	} else {
		struct {
			uint8_t id[16];
			uint64_t key[2];
		} fresh;

		if (getrandom(&fresh, sizeof(fresh), 0) != (ssize_t)sizeof(fresh))
			return err_set(EIO, "there are no random numbers for a new store");
		memcpy(r->id, fresh.id, sizeof(r->id));
		memcpy(r->key.k, fresh.key, sizeof(fresh.key));
	}
	/* Write the first directory's file last: if the creation is interrupted, the next open
	 * repeats it. */
	for (unsigned i = r->nr; i-- > 0;) {
		at = read_config(r->dir[i], r->path[i], &c);
		if (at < 0)
			return at;
		if (at == 1 && res == 1) {
			at = same_config(r, i, &c);
			if (at < 0)
				return at;
			continue;
		}
		if ((at == 1 && !is_begun(r, i, &c)) || res == 1)
			return err_set(
				EINVAL, "%s is %s store of %s; give directories of one store",
				r->path[i], at == 1 ? "of another" : "no part of the", r->path[0]);
		at = at == 1 ? 0 : check_empty(r->dir[i], r->path[i]);
		if (at == 0 && use == ROOT_OWN)
			at = write_config(r, i);
		if (at < 0)
			return at;
	}
	return 0;
}

/* Write the file "lock": this process, and the bounds.  The file always has a whole first line. */
static void write_lock(int fd, uint64_t budget, uint64_t max_blocks)
{
	char text[LOCK_TEXT];
	int n = snprintf(text, sizeof(text), "%ld\n", (long)getpid());

	if (max_blocks)
		n += snprintf(text + n, sizeof(text) - (size_t)n, "%" PRIu64 " %" PRIu64 "\n",
			      budget, max_blocks);
	(void)!pwrite(fd, text, (size_t)n, 0);
	(void)!ftruncate(fd, n);
}

static void read_lock(int fd, uint64_t *ret_budget, uint64_t *ret_max_blocks)
{
	char text[LOCK_TEXT] = "";
	uint64_t budget, max_blocks;

	*ret_budget = *ret_max_blocks = 0;
	if (fd < 0 || pread(fd, text, sizeof(text) - 1, 0) < 0)
		return;
	if (sscanf(text, "%*[0-9]\n%" SCNu64 " %" SCNu64, &budget, &max_blocks) == 2) {
		*ret_budget = budget;
		*ret_max_blocks = max_blocks;
	}
}

void root_put_bounds(const struct root *r, uint64_t budget, uint64_t max_blocks)
{
	write_lock(r->lock, budget, max_blocks);
}

void root_get_bounds(const struct root *r, uint64_t *ret_budget, uint64_t *ret_max_blocks)
{
	_cleanup_(closep) int fd = openat(r->dir[0], "lock", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	read_lock(fd, ret_budget, ret_max_blocks);
}

static int take_lock(struct root *r, enum root_use use)
{
	int create = use == ROOT_OWN ? O_CREAT : 0;
	uint64_t budget, max_blocks;
	char text[24] = "";

	r->lock = openat(r->dir[0], "lock", O_RDWR | create | O_CLOEXEC | O_NOFOLLOW, 0666);
	if (r->lock < 0 && errno == ENOENT && !create)
		return 0;
	if (r->lock < 0)
		return err_set(errno, "cannot open %s/lock: %s", r->path[0], strerror(errno));
	if (flock(r->lock, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK)
			return err_set(errno, "cannot lock %s/lock: %s", r->path[0],
				       strerror(errno));
		(void)!pread(r->lock, text, sizeof(text) - 1, 0);
		text[strspn(text, "0123456789")] = '\0';
		return err_set(EBUSY,
			       "process %s owns the store in %s; end it, or open the store with "
			       "PST_KV_READER",
			       *text ? text : "?", r->path[0]);
	}
	if (use == ROOT_CHECK)
		return 0;
	/* The last owner's bounds remain until this one writes its own. */
	read_lock(r->lock, &budget, &max_blocks);
	write_lock(r->lock, budget, max_blocks);
	return 0;
}

int root_remove_tree(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW), r = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!d) {
		r = errno;
		if (fd >= 0)
			(void)close(fd);
		if (r == ENOTDIR || r == ELOOP)
			return unlinkat(dir, name, 0) < 0 ? -errno : 0;
		return r == ENOENT ? 0 : -r;
	}
	while (r == 0 && (e = readdir(d))) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (e->d_type != DT_DIR && unlinkat(fd, e->d_name, 0) == 0)
			continue;
		r = root_remove_tree(fd, e->d_name);
	}
	(void)closedir(d);
	if (r == 0 && unlinkat(dir, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		r = -errno;
	return r;
}

/* Remove files that were being written, and trees that were being removed, when an earlier owner
 * was killed. */
static int root_sweep(const struct root *r, unsigned i)
{
	static const char *const names[] = { "tmp", "gone" };
	int res = root_make_dir(r->dir[i], "b");

	for (unsigned k = 0; res == 0 && k < ARRAY_SIZE(names); k++) {
		res = root_remove_tree(r->dir[i], names[k]);
		if (res < 0)
			return err_set(res, "cannot empty %s/%s: %s", r->path[i], names[k],
				       strerror(-res));
		res = root_make_dir(r->dir[i], names[k]);
	}
	return res;
}

int root_open(struct root *r, const char *const *dirs, unsigned nr, enum root_use use)
{
	int res = 0;

	*r = (struct root){ .nr = nr, .lock = -1 };
	for (unsigned i = 0; i < nr; i++)
		r->dir[i] = -1;
	for (unsigned i = 0; i < nr; i++) {
		if (!dirs[i] || !*dirs[i])
			return err_set(EINVAL, "directory %u of the store has no name", i + 1);
		r->path[i] = strdup(dirs[i]);
		if (!r->path[i])
			return err_set(ENOMEM, "out of memory");
		r->dir[i] = open(dirs[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (r->dir[i] < 0)
			return err_set(errno, "cannot open the directory %s: %s", dirs[i],
				       strerror(errno));
		r->warm[i] = warm_fs_of(r->dir[i]);
	}
	if (use != ROOT_READ)
		res = take_lock(r, use);
	if (res == 0)
		res = identify(r, use);
	for (unsigned i = 0; res == 0 && i < nr; i++) {
		if (use == ROOT_OWN)
			res = root_sweep(r, i);
		else if (use == ROOT_CHECK && faccessat(r->dir[i], ".", W_OK, AT_EACCESS) < 0)
			res = err_set(errno, "%s cannot be written to: %s", r->path[i],
				      strerror(errno));
	}
	if (use == ROOT_OWN && res == 0)
		res = root_make_dir(r->dir[0], "spaces");
	return res;
}

void root_close(struct root *r)
{
	for (unsigned i = 0; i < r->nr; i++) {
		closep(&r->dir[i]);
		free(r->path[i]);
	}
	/* Unlock explicitly: a forked child may have a copy of the descriptor. */
	if (r->lock >= 0)
		(void)flock(r->lock, LOCK_UN);
	closep(&r->lock);
}

bool root_parse_name(const char *name, uint64_t *ret)
{
	char *end;

	if (strlen(name) != 16 || strspn(name, "0123456789abcdef") != 16)
		return false;
	*ret = strtoull(name, &end, 16);
	return true;
}

typedef int (*scan_fn)(void *arg, uint64_t space, uint64_t hash, const struct stat *st);

static DIR *root_open_dir(int at, const char *name)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d && fd >= 0)
		(void)close(fd);
	return d;
}

static int scan_files(int space_fd, const char *name, uint64_t space, scan_fn fn, void *arg)
{
	DIR *d = root_open_dir(space_fd, name);
	struct dirent *e;
	struct stat st;
	uint64_t hash;
	int r = 0;

	if (!d)
		return errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
	while (r == 0 && (e = readdir(d)))
		if (root_parse_name(e->d_name, &hash) &&
		    fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISREG(st.st_mode))
			r = fn(arg, space, hash, &st);
	(void)closedir(d);
	return r;
}

static int scan_space(int b_fd, const char *name, uint64_t space, scan_fn fn, void *arg)
{
	DIR *d = root_open_dir(b_fd, name);
	struct dirent *e;
	int r = 0;

	if (!d)
		return errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
	while (r == 0 && (e = readdir(d)))
		if (strlen(e->d_name) == 2 && strspn(e->d_name, "0123456789abcdef") == 2)
			r = scan_files(dirfd(d), e->d_name, space, fn, arg);
	(void)closedir(d);
	return r;
}

int root_scan(const struct root *r, unsigned dir, scan_fn fn, void *arg)
{
	DIR *d = root_open_dir(r->dir[dir], "b");
	struct dirent *e;
	uint64_t space;
	int res = 0;

	if (!d)
		return err_set(errno, "cannot read %s/b: %s", r->path[dir], strerror(errno));
	while (res == 0 && (e = readdir(d)))
		if (root_parse_name(e->d_name, &space))
			res = scan_space(dirfd(d), e->d_name, space, fn, arg);
	(void)closedir(d);
	return res;
}
