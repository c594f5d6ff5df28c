/* SPDX-License-Identifier: MIT */
/* Read the files of a store that this process does not own. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/crc32c.h"
#include "base/err.h"
#include "base/fork.h"

#include "kv/store.h"

#define CHUNK MIB(1)

struct walk {
	struct root root;
	unsigned dir;
	bool check;
	int (*fn)(void *arg, const struct pst_kv_block *block);
	void *arg;
	char *buf;
	uint64_t space; /* space whose words identity and tenant are */
	char *identity, *tenant;
};

static void take_words(struct walk *w, uint64_t space)
{
	uint64_t quota;
	char name[20];

	if (w->space == space)
		return;
	free(w->identity);
	free(w->tenant);
	w->identity = w->tenant = NULL;
	w->space = space;
	(void)snprintf(name, sizeof(name), "%016llx", (unsigned long long)space);
	if (space_words(w->root.dir[0], name, &w->identity, &w->tenant, &quota) < 0)
		w->identity = w->tenant = NULL;
}

static int check_bytes(const struct walk *w, int fd, uint64_t len, uint32_t want)
{
	uint32_t crc = 0;

	for (uint64_t at = 0; at < len;) {
		ssize_t n = pread(fd, w->buf, MIN(len - at, CHUNK), (off_t)at);

		if (n < 0)
			return -errno;
		if (n == 0)
			return -EBADMSG;
		crc = crc32c(crc, w->buf, (size_t)n);
		at += (uint64_t)n;
	}
	return crc == want ? 0 : -EBADMSG;
}

static int walk_look(const struct walk *w, const char *path, const struct block_id *id,
		     struct pst_kv_block *b, char tail[TAIL_MAX])
{
	_cleanup_(closep) int fd = openat(w->root.dir[w->dir], path,
					  O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;
	uint64_t want;
	uint32_t crc, key_len;
	ssize_t n;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	want = MIN((uint64_t)st.st_size, (uint64_t)TAIL_MAX);
	n = pread(fd, tail, want, st.st_size - (off_t)want);
	if (n < 0)
		return -errno;
	if (n != (ssize_t)want)
		return -EBADMSG;
	r = block_check(tail, want, (uint64_t)st.st_size, id, &b->len, &crc, &b->key, &key_len);
	if (r < 0)
		return r;
	b->key_len = key_len;
	return w->check ? check_bytes(w, fd, b->len, crc) : 0;
}

static int walk_visit(void *arg, uint64_t space, uint64_t hash, const struct stat *st)
{
	struct walk *w = arg;
	struct block_id id = { .space = space, .hash = hash };
	struct pst_kv_block b = { .sz = sizeof(b), .used_s = (uint64_t)st->st_mtim.tv_sec };
	char path[BLOCK_PATH_LEN], *full, tail[TAIL_MAX];
	int r;

	take_words(w, space);
	block_path(path, space, hash);
	b.identity = w->identity;
	b.tenant = w->tenant;
	b.err = walk_look(w, path, &id, &b, tail);
	/* The owner has removed the file. */
	if (b.err == -ENOENT)
		return 0;
	if (asprintf(&full, "%s/%s", w->root.path[w->dir], path) < 0)
		return err_set(ENOMEM, "out of memory");
	b.path = full;
	r = w->fn(w->arg, &b);
	free(full);
	return r;
}

PST_API int pst_kv_walk(const char *const *dirs, unsigned nr, int check,
			int (*fn)(void *arg, const struct pst_kv_block *block), void *arg)
{
	struct walk w = { .check = check, .fn = fn, .arg = arg };
	int r = fork_guard();

	if (r < 0)
		return r;
	if (!dirs || !nr || nr > PST_KV_DIRS_MAX || !fn)
		return err_set(EINVAL, "a store has 1 to %u directories", PST_KV_DIRS_MAX);
	w.buf = malloc(CHUNK);
	if (!w.buf)
		return err_set(ENOMEM, "out of memory");
	r = root_open(&w.root, dirs, nr, ROOT_READ);
	for (w.dir = 0; r == 0 && w.dir < nr; w.dir++)
		r = root_scan(&w.root, w.dir, walk_visit, &w);
	root_close(&w.root);
	free(w.identity);
	free(w.tenant);
	free(w.buf);
	return r;
}
