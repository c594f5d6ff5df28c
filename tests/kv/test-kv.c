/* SPDX-License-Identifier: MIT */
/* A store through the public API: blocks, spaces, recovery, and damage on the disk. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "kv_case.h"

#define BIG (64u << 20)

static void gives_back_what_was_set(void)
{
	static const uint64_t lens[] = { 1, 100, 4095, 4096, 4097, 65536, 100001, 3u << 20 };
	struct pst_kv *kv;
	uint32_t space;
	char key[32];

	k_new_root();
	for (uint32_t flags = 0; flags <= PST_KV_BOUNCE; flags += PST_KV_BOUNCE) {
		kv = k_open(BIG, flags | PST_KV_SYNC);
		space = k_space(kv, "model bf16", NULL);
		for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
			(void)snprintf(key, sizeof(key), "key %zu %u", i, flags);
			T_EQ(k_get(kv, space, key, 8u << 20), -ENOENT);
			T_EQ(k_exists(kv, space, key), -ENOENT);
			T_EQ(k_set(kv, space, key, lens[i]), 0);
			T_EQ(k_exists(kv, space, key), lens[i]);
			T_EQ(k_get(kv, space, key, 8u << 20), lens[i]);
			T_EQ(k_get(kv, space, key, lens[i]), lens[i]);
			if (lens[i] > 1)
				T_EQ(k_get(kv, space, key, lens[i] - 1), -EMSGSIZE);
		}
		T_EQ(k_do(kv, PST_KV_DELETE, space, key, NULL, 0), 0);
		T_EQ(k_do(kv, PST_KV_DELETE, space, key, NULL, 0), -ENOENT);
		T_EQ(k_get(kv, space, key, 8u << 20), -ENOENT);
		T_EQ(k_stat(kv).used, k_disk());
		pst_kv_close(kv);
	}
	k_remove_root();
}

static void a_set_replaces(void)
{
	struct pst_kv *kv;
	uint32_t space;
	char buf[10000];

	k_new_root();
	kv = k_open(BIG, 0);
	space = k_space(kv, "m", NULL);
	for (unsigned i = 1; i < 5; i++) {
		memset(buf, (int)i, sizeof(buf));
		T_EQ(k_do(kv, PST_KV_SET, space, "k", buf, 2000 * i), 0);
		memset(buf, 0, sizeof(buf));
		T_EQ(k_do(kv, PST_KV_GET, space, "k", buf, sizeof(buf)), 2000 * i);
		T_EQ(buf[0], i);
		T_EQ(buf[2000 * i - 1], i);
		T_EQ(k_stat(kv).used, k_disk());
		T_EQ(k_stat(kv).blocks, 1);
	}
	pst_kv_close(kv);
	k_remove_root();
}

/* Use pieces that are apart in memory, and a block that ends within a piece. */
static void takes_pieces(void)
{
	struct pst_seg segs[2] = {
		{ .mem_off = 0, .len = 1000, .mem_stride = 3000, .count = 10 },
		{ .mem_off = 50000, .len = 500 },
	};
	char *buf = malloc(100000);
	struct pst_kv_item item = { .key = "k", .key_len = 1, .segs = segs, .nr_segs = 2 };
	int64_t result;
	struct pst_kv_batch b = { .sz = sizeof(b), .items = &item, .nr = 1, .results = &result };
	struct pst_mem *mem;
	struct pst_kv *kv;

	k_new_root();
	for (int i = 0; i < 4; i++) {
		kv = k_open(BIG, i & 1 ? PST_KV_BOUNCE : 0);
		b.space = k_space(kv, "m", NULL);
		b.op = PST_KV_SET;
		item.mem = NULL;
		item.mem_off = (uintptr_t)buf;
		item.len = 10500;
		T_EQ(pst_mem_wrap((uintptr_t)buf, 100000, NULL, &mem), 0);
		if (i & 2) {
			item.mem = mem;
			item.mem_off = 16;
		}
		t_fill(buf, 7, 0, 100000);
		T_OK(pst_kv_run(kv, &b, NULL));
		T_EQ(result, 0);
		memset(buf, 0, 100000);
		b.op = PST_KV_GET;
		T_OK(pst_kv_run(kv, &b, NULL));
		T_EQ(result, 10500);
		for (size_t k = 0; k < 10; k++) {
			size_t at = k * 3000 + (i & 2 ? 16 : 0);

			T_EQ(t_differs(buf + at, 7, at, 1000), 1000);
			T_EQ(buf[at + 1000], 0);
		}
		/* A block of 2500 bytes ends in the third piece. */
		T_EQ(k_set(kv, b.space, "k", 2500), 0);
		memset(buf, 0, 100000);
		T_OK(pst_kv_run(kv, &b, NULL));
		T_EQ(result, 2500);
		T_EQ(t_differs(buf + (i & 2 ? 16 : 0) + 6000, k_seed("k"), 2000, 500), 500);
		T_EQ(buf[6000 + 516], 0);
		pst_mem_free(mem);
		pst_kv_close(kv);
	}
	free(buf);
	k_remove_root();
}

/* Memory beyond the end of a handle is not written. */
static void a_handle_has_an_end(void)
{
	struct pst_kv *kv;
	char *buf;
	struct pst_kv_item item = { .key = "k", .key_len = 1, .len = 10000 };
	int64_t result = -1000;
	struct pst_kv_batch b = {
		.sz = sizeof(b),
		.op = PST_KV_GET,
		.items = &item,
		.nr = 1,
		.results = &result,
	};

	k_new_root();
	kv = k_open(1u << 20, 0);
	b.space = k_space(kv, "m", NULL);
	T_EQ(k_set(kv, b.space, "k", 10000), 0);
	buf = malloc(20000);
	for (unsigned i = 0; i < 3; i++) {
		T_OK(pst_mem_wrap((uintptr_t)buf, i == 2 ? 10000 : 9999, NULL, &item.mem));
		item.mem_off = i ? 1 : 0;
		memset(buf, 0x44, 20000);
		T_OK(pst_kv_run(kv, &b, NULL));
		T_CHECK(result < 0 && result != -ENOENT && result != -EBADMSG);
		for (unsigned k = 9999; k < 20000; k++)
			T_EQ(buf[k], 0x44);
		pst_mem_free(item.mem);
	}
	T_EQ(k_exists(kv, b.space, "k"), 10000);
	free(buf);
	pst_kv_close(kv);
	k_remove_root();
}

/* Move blocks into and out of device memory. */
static void takes_device_memory(void)
{
	struct pst_kv_item item = { .key = "k", .key_len = 1, .len = 300000 };
	int64_t result;
	struct pst_kv_batch b = { .sz = sizeof(b), .items = &item, .nr = 1, .results = &result };
	char *buf = malloc(300000);
	struct pst_kv *kv;

	k_new_root();
	T_EQ(pst_mem_alloc("soft:0", 1u << 20, NULL, &item.mem), 0);
	for (uint32_t flags = 0; flags <= PST_KV_BOUNCE; flags += PST_KV_BOUNCE) {
		kv = k_open(BIG, flags);
		b.space = k_space(kv, "m", NULL);
		t_fill(buf, 3, 0, 300000);
		T_EQ(pst_mem_copy_in(item.mem, 0, buf, 300000), 0);
		b.op = PST_KV_SET;
		T_OK(pst_kv_run(kv, &b, NULL));
		T_EQ(result, 0);
		memset(buf, 0, 300000);
		T_EQ(pst_mem_copy_in(item.mem, 0, buf, 300000), 0);
		b.op = PST_KV_GET;
		T_OK(pst_kv_run(kv, &b, NULL));
		T_EQ(result, 300000);
		T_EQ(pst_mem_copy_out(item.mem, 0, buf, 300000), 0);
		T_EQ(t_differs(buf, 3, 0, 300000), 300000);
		pst_kv_close(kv);
	}
	pst_mem_free(item.mem);
	free(buf);
	k_remove_root();
}

static void spaces_never_meet(void)
{
	struct pst_kv_space_opts o = { .sz = sizeof(o), .identity = "m" };
	struct pst_kv *kv;
	uint32_t s[5];
	char text[8];

	k_new_root();
	kv = k_open(BIG, 0);
	T_OK(pst_kv_space(kv, &o, &s[0]));
	o.tenant = "a";
	T_OK(pst_kv_space(kv, &o, &s[1]));
	o.salt = "secret";
	T_OK(pst_kv_space(kv, &o, &s[2]));
	o.identity = "ma"; /* the bytes of "m" and "a", concatenated */
	o.tenant = o.salt = NULL;
	T_OK(pst_kv_space(kv, &o, &s[3]));
	o.identity = "n";
	T_OK(pst_kv_space(kv, &o, &s[4]));
	for (int i = 0; i < 5; i++) {
		for (int k = i; k < 5; k++)
			T_EQ(k_exists(kv, s[k], "k"), -ENOENT);
		(void)snprintf(text, sizeof(text), "%d", i);
		T_EQ(k_do(kv, PST_KV_SET, s[i], "k", text, 2), 0);
	}
	for (int i = 0; i < 5; i++) {
		T_EQ(k_do(kv, PST_KV_GET, s[i], "k", text, 2), 2);
		T_EQ(text[0], '0' + i);
	}
	/* Dropping a tenant drops its spaces with every salt, and no other tenant's. */
	T_EQ(pst_kv_drop(kv, NULL, "a"), 2);
	for (int i = 0; i < 5; i++)
		T_EQ(k_exists(kv, s[i], "k"), i == 1 || i == 2 ? -ENOENT : 2);
	T_EQ(k_stat(kv).used, k_disk());
	T_EQ(k_files, 3);
	T_EQ(k_set(kv, s[1], "k", 5), 0);
	T_EQ(k_get(kv, s[1], "k", 5), 5);
	T_EQ(pst_kv_drop(kv, NULL, NULL), -EINVAL);
	pst_kv_close(kv);
	k_remove_root();
}

/* A space beyond the limit is refused before anything is written. */
static void a_store_is_full_of_spaces(void)
{
	struct pst_kv_space_opts o = { .sz = sizeof(o), .identity = "m" };
	struct pst_kv *kv;
	uint32_t space = 0;
	char tenant[16];

	k_new_root();
	kv = k_open(BIG, 0);
	o.tenant = tenant;
	for (unsigned i = 0; i < PST_KV_SPACES_MAX; i++) {
		(void)snprintf(tenant, sizeof(tenant), "%u", i);
		o.quota = i == 6 ? 1u << 20 : 0;
		T_OK(pst_kv_space(kv, &o, &space));
		if (i == 5 || i == 7)
			T_EQ(k_set(kv, space, "k", 5000), 0);
	}
	(void)snprintf(tenant, sizeof(tenant), "x");
	o.quota = 0;
	T_EQ(pst_kv_space(kv, &o, &space), -ENOSPC);
	T_EQ(pst_kv_drop(kv, NULL, "7"), 1);
	pst_kv_close(kv);
	/* Empty spaces have made room for others. */
	kv = k_open(BIG, 0);
	T_EQ(k_stat(kv).scanned, 0);
	T_EQ(k_stat(kv).loaded, 1);
	T_OK(pst_kv_space(kv, &o, &space));
	space = k_space(kv, "m", "5");
	T_EQ(k_get(kv, space, "k", 5000), 5000);
	/* A store that was opened again accepts another quota for a space, and enforces it. */
	(void)snprintf(tenant, sizeof(tenant), "6");
	o.quota = 2u << 20;
	T_OK(pst_kv_space(kv, &o, &space));
	T_EQ(k_set(kv, space, "k", 3u << 20), -ENOSPC);
	T_EQ(k_set(kv, space, "k", 5000), 0);
	pst_kv_close(kv);
	kv = k_open(BIG, 0);
	T_EQ(k_stat(kv).loaded, 2);
	T_EQ(pst_kv_drop(kv, NULL, "5"), 1);
	T_EQ(pst_kv_drop(kv, NULL, "x"), 0);
	pst_kv_close(kv);
	k_remove_root();
}

/* ------------------------------------------------------------- opening */

static void index_and_scan_agree(void)
{
	struct pst_kv_stat st;
	struct pst_kv *kv;
	char path[PATH_MAX + 16], key[16];
	uint32_t space;

	k_new_root();
	kv = k_open(BIG, 0);
	space = k_space(kv, "m", "t");
	for (unsigned i = 0; i < 50; i++) {
		(void)snprintf(key, sizeof(key), "%u", i);
		T_EQ(k_set(kv, space, key, 100 + i * 999), 0);
	}
	pst_kv_close(kv);
	(void)snprintf(path, sizeof(path), "%s/index", k_root);
	for (int scan = 0; scan < 3; scan++) {
		FILE *f;

		T_EQ(access(path, F_OK), 0);
		if (scan == 1) {
			T_EQ(unlink(path), 0);
		} else if (scan == 2) {
			/* A damaged index is not used. */
			f = fopen(path, "r+e");
			T_CHECK(f);
			T_EQ(fseek(f, 300, SEEK_SET), 0);
			T_EQ(fputc(0x5b, f), 0x5b);
			T_EQ(fclose(f), 0);
		}
		kv = k_open(BIG, 0);
		T_CHECK(access(path, F_OK) < 0);
		st = k_stat(kv);
		T_EQ(st.blocks, 50);
		T_EQ(st.loaded, scan ? 0 : 50);
		T_EQ(st.scanned, scan ? 50 : 0);
		T_EQ(st.used, k_disk());
		space = k_space(kv, "m", "t");
		for (unsigned i = 0; i < 50; i++) {
			(void)snprintf(key, sizeof(key), "%u", i);
			T_EQ(k_exists(kv, space, key), 100 + i * 999);
			T_EQ(k_get(kv, space, key, 100000), 100 + i * 999);
		}
		pst_kv_close(kv);
	}
	k_remove_root();
}

/* Recently used blocks stay, after a close and after a kill. */
static void recency_is_kept(void)
{
	struct pst_kv_opts o = { .sz = sizeof(o), .budget = BIG, .policy = "lru", .touch_s = 1 };
	char first[PATH_MAX], path[2 * PATH_MAX + 99], key[16];
	struct pst_kv *kv;
	uint32_t space;

	for (int died = 0; died < 2; died++) {
		k_new_root();
		T_OK(k_open_with(&o, &kv));
		space = k_space(kv, "m", NULL);
		for (unsigned i = 0; i < 10; i++) {
			(void)snprintf(key, sizeof(key), "%u", i);
			T_EQ(k_set(kv, space, key, 100000), 0);
			if (i == 0) {
				(void)k_disk();
				(void)snprintf(first, sizeof(first), "%s", k_last);
			}
		}
		/* Give all blocks an old time, and the first block the oldest.  Then read the
		 * first block, which makes it the newest. */
		(void)snprintf(path, sizeof(path),
			       "find %s/b -type f -exec touch -d @2000 {} + && touch -d @1000 %s",
			       k_root, first);
		T_EQ(system(path), 0);
		T_EQ(k_get(kv, space, "0", 100000), 100000);
		pst_kv_close(kv);
		(void)snprintf(path, sizeof(path), "%s/index", k_root);
		if (died)
			T_EQ(unlink(path), 0);
		o.budget = 1u << 20;
		T_OK(k_open_with(&o, &kv));
		space = k_space(kv, "m", NULL);
		for (unsigned i = 0; i < 9; i++) {
			(void)snprintf(key, sizeof(key), "new %u", i);
			T_EQ(k_set(kv, space, key, 100000), 0);
		}
		T_EQ(k_exists(kv, space, "0"), 100000);
		pst_kv_close(kv);
		o.budget = BIG;
		k_remove_root();
	}
}

static void one_process_owns(void)
{
	struct pst_kv_opts o = { .sz = sizeof(o), .budget = BIG };
	struct pst_kv *kv, *other = NULL;
	uint32_t space, there;

	k_new_root();
	o.flags = PST_KV_READER;
	o.budget = 0;
	T_EQ(k_open_with(&o, &other), -ENOENT);
	kv = k_open(BIG, 0);
	space = k_space(kv, "m", NULL);
	T_EQ(k_set(kv, space, "k", 5000), 0);
	o.flags = 0;
	o.budget = BIG;
	T_EQ(k_open_with(&o, &other), -EBUSY);
	T_CHECK(strstr(pst_kv_error_text(), "owns the store"));
	o.flags = PST_KV_READER;
	T_EQ(k_open_with(&o, &other), -EINVAL);
	o.budget = 0;
	T_OK(k_open_with(&o, &other));
	there = k_space(other, "m", NULL);
	T_EQ(k_get(other, there, "k", 5000), 5000);
	T_EQ(k_exists(other, there, "k"), 5000);
	T_EQ(k_exists(other, there, "l"), -ENOENT);
	T_EQ(k_get(other, there, "l", 5000), -ENOENT);
	T_EQ(k_set(other, there, "l", 5000), -EROFS);
	T_EQ(k_do(other, PST_KV_DELETE, there, "k", NULL, 0), -EROFS);
	T_EQ(pst_kv_drop(other, "m", NULL), -EROFS);
	/* A reader sees a new block and a deleted one at once. */
	T_EQ(k_set(kv, space, "l", 700), 0);
	T_EQ(k_get(other, there, "l", 5000), 700);
	T_EQ(k_do(kv, PST_KV_DELETE, space, "k", NULL, 0), 0);
	T_EQ(k_get(other, there, "k", 5000), -ENOENT);
	pst_kv_close(other);
	pst_kv_close(kv);
	/* After the close, another owner can open the root. */
	kv = k_open(BIG, 0);
	pst_kv_close(kv);
	k_remove_root();
}

/* A child of the owner inherits its descriptors, but not its lock. */
static void a_forked_child_keeps_no_lock(void)
{
	struct pst_kv *kv;
	pid_t child;

	k_new_root();
	kv = k_open(BIG, 0);
	child = fork();
	T_CHECK(child >= 0);
	if (!child) {
		(void)pause();
		_exit(0);
	}
	pst_kv_close(kv);
	kv = k_open(BIG, 0);
	T_EQ(kill(child, SIGKILL), 0);
	T_EQ(waitpid(child, NULL, 0), child);
	pst_kv_close(kv);
	k_remove_root();
}

static int remove_in(const char *dir, const char *name)
{
	char path[PATH_MAX + 32];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	return remove(path);
}

static void several_directories(void)
{
	static const char *const made[] = { "b", "tmp", "gone" };
	static const char *const first[] = { "penstock-kv", "index", "spaces" };
	char dirs[3][PATH_MAX + 8], key[16];
	const char *in[3] = { dirs[0], dirs[1], dirs[2] }, *out[3] = { dirs[0], dirs[2], dirs[1] };
	struct pst_kv_opts o = { .sz = sizeof(o), .budget = BIG };
	unsigned filled = 0;
	struct pst_kv *kv;
	uint32_t space;

	k_new_root();
	for (int i = 0; i < 3; i++) {
		(void)snprintf(dirs[i], sizeof(dirs[i]), "%s/%d", k_root, i);
		T_EQ(mkdir(dirs[i], 0755), 0);
	}
	T_OK(pst_kv_open(in, 3, &o, &kv));
	pst_kv_close(kv);
	/* The state of a creation that was interrupted before the first directory. */
	for (int i = 0; i < 3; i++)
		for (size_t k = 0; k < sizeof(made) / sizeof(made[0]); k++)
			T_EQ(remove_in(dirs[i], made[k]), 0);
	for (size_t k = 0; k < sizeof(first) / sizeof(first[0]); k++)
		T_EQ(remove_in(dirs[0], first[k]), 0);
	T_OK(pst_kv_open(in, 3, &o, &kv));
	space = k_space(kv, "m", NULL);
	for (unsigned i = 0; i < 60; i++) {
		(void)snprintf(key, sizeof(key), "%u", i);
		T_EQ(k_set(kv, space, key, 10), 0);
	}
	pst_kv_close(kv);
	for (int i = 0; i < 3; i++) {
		char b[PATH_MAX + 16];
		struct stat st;

		(void)snprintf(b, sizeof(b), "%s/b", dirs[i]);
		T_EQ(stat(b, &st), 0);
		filled += st.st_nlink > 2;
	}
	T_EQ(filled, 3);
	T_EQ(pst_kv_open(out, 3, &o, &kv), -EINVAL);
	T_EQ(pst_kv_open(in, 2, &o, &kv), -EINVAL);
	T_OK(pst_kv_open(in, 3, &o, &kv));
	T_EQ(k_stat(kv).blocks, 60);
	pst_kv_close(kv);
	k_remove_root();
}

static void foreign_directories_are_refused(void)
{
	struct pst_kv_opts o = { .sz = sizeof(o), .budget = BIG };
	char path[PATH_MAX + 16];
	struct pst_kv *kv;
	int fd;

	k_new_root();
	(void)snprintf(path, sizeof(path), "%s/letter", k_root);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	(void)close(fd);
	T_EQ(k_open_with(&o, &kv), -ENOTEMPTY);
	T_EQ(access(path, F_OK), 0);
	T_EQ(unlink(path), 0);
	T_OK(k_open_with(&o, &kv));
	pst_kv_close(kv);
	(void)snprintf(path, sizeof(path), "%s/penstock-kv", k_root);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	T_EQ(pwrite(fd, "?", 1, 20), 1);
	(void)close(fd);
	T_EQ(k_open_with(&o, &kv), -EPROTO);
	o.budget = 5;
	T_EQ(k_open_with(&o, &kv), -EINVAL);
	o.budget = BIG;
	o.policy = "literal";
	T_EQ(k_open_with(&o, &kv), -EINVAL);
	o.policy = NULL;
	o.threads = 1000;
	T_EQ(k_open_with(&o, &kv), -EINVAL);
	k_remove_root();
}

/* -------------------------------------------------------- wrong on disk */

static void spoil(const char *path, off_t at, off_t cut)
{
	struct stat st;
	char c;
	int fd = open(path, O_RDWR | O_CLOEXEC);

	T_CHECK(fd >= 0);
	T_EQ(fstat(fd, &st), 0);
	if (cut) {
		T_EQ(ftruncate(fd, st.st_size - cut), 0);
	} else {
		at = at < 0 ? st.st_size + at : at;
		T_EQ(pread(fd, &c, 1, at), 1);
		c ^= 0x10;
		T_EQ(pwrite(fd, &c, 1, at), 1);
	}
	(void)close(fd);
}

static void wrong_blocks_are_misses(void)
{
	static const struct {
		off_t at, cut;
	} faults[] = {
		{ 0, 0 },    { 4999, 0 }, /* damaged bytes */
		{ 5000, 0 },              /* damaged key */
		{ -96, 0 },  { -88, 0 },   { -80, 0 },  { -72, 0 },  { -64, 0 },
		{ -60, 0 },  { -56, 0 },   { -20, 0 },  { -13, 0 },  { -4, 0 }, /* damaged foot */
		{ 0, 1 },    { 0, 97 },    { 0, 5000 }, { 0, 5098 },            /* short file */
		{ 0, -1 },   { 0, -4096 },                                      /* long file */
	};
	struct pst_kv *kv;
	uint32_t space;
	char *buf = malloc(5000);

	k_new_root();
	for (uint32_t flags = 0; flags <= PST_KV_BOUNCE; flags += PST_KV_BOUNCE) {
		kv = k_open(BIG, flags);
		space = k_space(kv, "m", NULL);
		for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
			uint64_t corrupt = k_stat(kv).corrupt;

			T_EQ(k_set(kv, space, "key", 5000), 0);
			(void)k_disk();
			spoil(k_last, faults[i].at, faults[i].cut);
			memset(buf, 0x77, 5000);
			T_EQ(k_do(kv, PST_KV_GET, space, "key", buf, 5000), -EBADMSG);
			T_EQ(k_stat(kv).corrupt, corrupt + 1);
			/* Unchecked bytes never reach the caller's memory. */
			if (flags)
				for (size_t k = 0; k < 5000; k++)
					T_EQ(buf[k], 0x77);
			T_EQ(k_exists(kv, space, "key"), -ENOENT);
			T_EQ(k_disk(), 0);
			T_EQ(k_stat(kv).used, 0);
		}
		pst_kv_close(kv);
	}
	free(buf);
	k_remove_root();
}

/* A valid block under the name of another key or space. */
static void swapped_blocks_are_misses(void)
{
	char one[PATH_MAX], other[PATH_MAX];
	struct pst_kv *kv;
	uint32_t space, apart;

	k_new_root();
	kv = k_open(BIG, 0);
	space = k_space(kv, "m", NULL);
	apart = k_space(kv, "n", NULL);
	for (int i = 0; i < 2; i++) {
		T_EQ(k_set(kv, space, "a", 5000), 0);
		(void)k_disk();
		(void)snprintf(one, sizeof(one), "%s", k_last);
		T_EQ(k_do(kv, PST_KV_DELETE, space, "a", NULL, 0), 0);
		T_EQ(k_set(kv, i ? apart : space, i ? "a" : "b", 5000), 0);
		(void)k_disk();
		(void)snprintf(other, sizeof(other), "%s", k_last);
		T_EQ(k_set(kv, space, "a", 5000), 0);
		T_EQ(rename(other, one), 0);
		T_EQ(k_get(kv, space, "a", 5000), -EBADMSG);
		T_EQ(k_get(kv, i ? apart : space, i ? "a" : "b", 5000), -ENOENT);
		T_EQ(k_stat(kv).used, 0);
		T_EQ(k_disk(), 0);
	}
	pst_kv_close(kv);
	k_remove_root();
}

static void a_removed_file_is_a_miss(void)
{
	struct pst_kv *kv;
	uint32_t space;

	k_new_root();
	kv = k_open(BIG, 0);
	space = k_space(kv, "m", NULL);
	T_EQ(k_set(kv, space, "a", 5000), 0);
	(void)k_disk();
	T_EQ(unlink(k_last), 0);
	T_EQ(k_get(kv, space, "a", 5000), -ENOENT);
	T_EQ(k_exists(kv, space, "a"), -ENOENT);
	T_EQ(k_stat(kv).used, 0);
	pst_kv_close(kv);
	k_remove_root();
}

/* -------------------------------------------------------------- batches */

static void completes_each_batch_once(void)
{
	struct pst_kv_item items[20];
	int64_t results[3][20];
	struct pst_kv_done done[4];
	char keys[20][8], *buf = malloc(20u * 3000u);
	struct pst_kv *kv;
	uint32_t space;
	unsigned seen = 0;
	struct pollfd p = { .events = POLLIN };

	k_new_root();
	kv = k_open(BIG, 0);
	space = k_space(kv, "m", NULL);
	p.fd = pst_kv_fd(kv);
	memset(items, 0, sizeof(items));
	for (unsigned i = 0; i < 20; i++) {
		(void)snprintf(keys[i], sizeof(keys[i]), "%u", i);
		items[i] = (struct pst_kv_item){
			.key = keys[i],
			.key_len = strlen(keys[i]),
			.mem_off = (uintptr_t)(buf + 3000u * i),
			.len = 3000,
		};
		t_fill(buf + 3000u * i, i, 0, 3000);
	}
	T_EQ(pst_kv_reap(kv, done, 4, 0), 0);
	T_EQ(poll(&p, 1, 0), 0);
	for (unsigned op = PST_KV_SET; op <= PST_KV_DELETE; op++) {
		for (unsigned k = 0; k < 3; k++) {
			struct pst_kv_batch b = {
				.sz = sizeof(b),
				.op = op,
				.space = space,
				.items = items,
				.nr = 20,
				.results = results[k],
				.user_data = k,
			};

			T_OK(pst_kv_submit(kv, &b));
		}
		for (seen = 0; seen != 7;) {
			int n;

			T_EQ(poll(&p, 1, 60000), 1);
			n = pst_kv_reap(kv, done, 4, 0);
			T_CHECK(n >= 0);
			for (int i = 0; i < n; i++) {
				T_CHECK(!(seen & 1u << done[i].user_data));
				seen |= 1u << done[i].user_data;
				T_EQ(done[i].op, op);
				if (op != PST_KV_DELETE)
					T_EQ(done[i].good, 20);
			}
		}
		T_EQ(poll(&p, 1, 0), 0);
		if (op == PST_KV_EXISTS)
			for (unsigned i = 0; i < 20; i++)
				T_EQ(results[2][i], 3000);
	}
	T_EQ(k_stat(kv).blocks, 0);
	/* An invalid batch completes nothing. */
	struct pst_kv_batch bad = {
		.sz = sizeof(bad), .op = 9, .items = items, .nr = 1, .results = results[0]
	};

	T_EQ(pst_kv_submit(kv, &bad), -EINVAL);
	bad.op = PST_KV_GET;
	bad.space = 77;
	T_EQ(pst_kv_submit(kv, &bad), -EINVAL);
	bad.space = space;
	bad.nr = 0;
	T_EQ(pst_kv_submit(kv, &bad), -EINVAL);
	bad.nr = 1;
	items[0].key_len = 0;
	T_EQ(pst_kv_submit(kv, &bad), -EINVAL);
	items[0].key_len = 1;
	items[0].len = 0;
	T_EQ(pst_kv_submit(kv, &bad), -EINVAL);
	T_EQ(pst_kv_reap(kv, done, 4, 0), 0);
	T_EQ(pst_kv_drain(kv, 0), 0);
	pst_kv_close(kv);
	free(buf);
	k_remove_root();
}

/* ------------------------------------------------------------- threads */

#define THREADS 6

struct racer {
	pthread_t thread;
	struct pst_kv *kv;
	uint32_t space;
	unsigned nr, rounds;
	unsigned wrong, failed;
};

/* Fill a block with its key's number and its owner, so that a mixture is detected. */
static void *race(void *arg)
{
	struct racer *r = arg;
	uint32_t x = r->nr * 2654435761u + 1;
	char *buf = malloc(40000), key[8];

	for (unsigned i = 0; i < r->rounds; i++) {
		uint64_t len;
		int64_t res;

		x = x * 1664525 + 1013904223;
		(void)snprintf(key, sizeof(key), "%u", x >> 16 & 15);
		len = 2000 + (x >> 16 & 15) * 2000;
		switch (x >> 28) {
		case 0:
			res = k_do(r->kv, PST_KV_DELETE, r->space, key, NULL, 0);
			break;
		case 1:
		case 2:
		case 3:
		case 4:
		case 5:
			memset(buf, (int)(r->nr << 4 | (x >> 16 & 15)), len);
			res = k_do(r->kv, PST_KV_SET, r->space, key, buf, len);
			break;
		default:
			res = k_do(r->kv, PST_KV_GET, r->space, key, buf, 40000);
			if (res >= 0) {
				r->wrong += (uint64_t)res != len;
				r->wrong += (unsigned char)buf[0] % 16 != (x >> 16 & 15);
				r->wrong += memcmp(buf, buf + 1, (size_t)res - 1) != 0;
			}
			break;
		}
		r->failed += res < 0 && res != -ENOENT && res != -ENOSPC;
		r->wrong += k_stat(r->kv).used > 1u << 20;
	}
	free(buf);
	return NULL;
}

static void threads_race(void)
{
	struct racer racers[THREADS];
	struct pst_kv_opts o = { .sz = sizeof(o), .budget = 1u << 20 };
	struct pst_kv *kv;
	uint64_t used;

	k_new_root();
	T_OK(k_open_with(&o, &kv));
	/* Another tenant fills the budget, so keys are evicted. */
	T_EQ(k_set(kv, k_space(kv, "other", NULL), "big", 900000), 0);
	for (unsigned i = 0; i < THREADS; i++) {
		racers[i] = (struct racer){
			.kv = kv,
			.space = k_space(kv, "m", NULL),
			.nr = i,
			.rounds = T_TSAN ? 100 : 400,
		};
		T_EQ(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		T_EQ(pthread_join(racers[i].thread, NULL), 0);
	for (unsigned i = 0; i < THREADS; i++) {
		T_EQ(racers[i].wrong, 0);
		T_EQ(racers[i].failed, 0);
	}
	used = k_stat(kv).used;
	T_EQ(used, k_disk());
	pst_kv_close(kv);
	T_EQ(k_disk(), used);
	k_remove_root();
}

static int count_block(void *arg, const struct pst_kv_block *b)
{
	unsigned *n = arg;

	n[0]++;
	n[1] += b->err != 0;
	n[2] += b->identity && !strcmp(b->identity, "m") && !strcmp(b->tenant, "t");
	return 0;
}

static void a_walk_sees_all(void)
{
	const char *dirs[] = { k_root };
	unsigned n[3] = { 0 };
	struct pst_kv *kv;
	uint32_t space;

	k_new_root();
	kv = k_open(BIG, 0);
	space = k_space(kv, "m", "t");
	T_EQ(k_set(kv, space, "a", 5000), 0);
	T_EQ(k_set(kv, space, "b", 50), 0);
	(void)k_disk();
	T_OK(pst_kv_walk(dirs, 1, 1, count_block, n));
	T_EQ(n[0], 2);
	T_EQ(n[1], 0);
	T_EQ(n[2], 2);
	spoil(k_last, 3, 0);
	T_OK(pst_kv_walk(dirs, 1, 0, count_block, n));
	T_EQ(n[1], 0);
	T_OK(pst_kv_walk(dirs, 1, 1, count_block, n));
	T_EQ(n[1], 1);
	pst_kv_close(kv);
	k_remove_root();
}

int main(void)
{
	T_RUN(gives_back_what_was_set);
	T_RUN(a_set_replaces);
	T_RUN(takes_pieces);
	T_RUN(a_handle_has_an_end);
	T_RUN(takes_device_memory);
	T_RUN(spaces_never_meet);
	T_RUN(a_store_is_full_of_spaces);
	T_RUN(index_and_scan_agree);
	T_RUN(recency_is_kept);
	T_RUN(one_process_owns);
	T_RUN(a_forked_child_keeps_no_lock);
	T_RUN(several_directories);
	T_RUN(foreign_directories_are_refused);
	T_RUN(wrong_blocks_are_misses);
	T_RUN(swapped_blocks_are_misses);
	T_RUN(a_removed_file_is_a_miss);
	T_RUN(completes_each_batch_once);
	T_RUN(threads_race);
	T_RUN(a_walk_sees_all);
	return t_done();
}
