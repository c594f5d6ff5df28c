/* SPDX-License-Identifier: MIT */
/*
 * kv DIR: measure a store of blocks.  Prints one line per figure of docs/KV.md; with --layout the
 * table by which files were compared with extents; with --open the time that a store of 10 million
 * blocks takes to close and to open.
 *
 * --layout: for each size, one thread writes blocks and reads them back with plain calls, as one
 * file each (create, write, rename; open, read, close) and as extents of one preallocated file
 * (pwrite and pread at an offset), in turns.  Microseconds per block, the median of several rounds.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#include <penstock_kv.h>

#include "base/base.h"
#include "base/crc32c.h"
#include "kv/store.h"
#include "tools/common/spread.h"

#define ROUNDS 7u

static void kv_die(const char *what)
{
	(void)fprintf(stderr, "kv: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double us_since(uint64_t began)
{
	return (double)(now_ns() - began) / 1000;
}

/* ---------------------------------------------------------------- layout */

static void kv_full(ssize_t n, uint64_t len, const char *what)
{
	if (n != (ssize_t)len)
		kv_die(what);
}

static void write_file(int dir, unsigned i, const char *buf, uint64_t len)
{
	char name[32];
	int fd;

	(void)snprintf(name, sizeof(name), "block%u", i);
	fd = openat(dir, "temp", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	kv_full(write(fd, buf, len), len, "write");
	(void)close(fd);
	if (renameat(dir, "temp", dir, name) < 0)
		kv_die("rename");
}

static void read_file(int dir, unsigned i, char *buf, uint64_t len)
{
	char name[32];
	int fd;

	(void)snprintf(name, sizeof(name), "block%u", i);
	fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	kv_full(pread(fd, buf, len, 0), len, "read");
	(void)close(fd);
}

static void kv_unlink_file(int dir, unsigned i)
{
	char name[32];

	(void)snprintf(name, sizeof(name), "block%u", i);
	(void)unlinkat(dir, name, 0);
}

static void layout_of(int dir, uint64_t len)
{
	unsigned nr = (unsigned)MAX(UINT64_C(4), MIB(96) / len);
	double us[4][ROUNDS];
	uint64_t began;
	char *buf = aligned_alloc(4096, len);
	int slab;

	if (!buf)
		kv_die("memory");
	memset(buf, 1, len);
	slab = openat(dir, "slab", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (slab < 0 || posix_fallocate(slab, 0, (off_t)(nr * len)) != 0)
		kv_die("slab");
	for (unsigned r = 0; r < ROUNDS; r++) {
		began = now_ns();
		for (unsigned i = 0; i < nr; i++)
			write_file(dir, i, buf, len);
		us[0][r] = us_since(began) / nr;
		began = now_ns();
		for (unsigned i = 0; i < nr; i++)
			kv_full(pwrite(slab, buf, len, (off_t)(i * len)), len, "pwrite");
		us[1][r] = us_since(began) / nr;
		began = now_ns();
		for (unsigned i = 0; i < nr; i++)
			read_file(dir, i, buf, len);
		us[2][r] = us_since(began) / nr;
		began = now_ns();
		for (unsigned i = 0; i < nr; i++)
			kv_full(pread(slab, buf, len, (off_t)(i * len)), len, "pread");
		us[3][r] = us_since(began) / nr;
	}
	(void)printf("%8" PRIu64
		     " KiB  write: file %9.1f us  extent %9.1f us   read: file %9.1f us  "
		     "extent %9.1f us\n",
		     len / 1024, median_of(us[0], ROUNDS), median_of(us[1], ROUNDS),
		     median_of(us[2], ROUNDS), median_of(us[3], ROUNDS));
	for (unsigned i = 0; i < nr; i++)
		kv_unlink_file(dir, i);
	(void)close(slab);
	(void)unlinkat(dir, "slab", 0);
	free(buf);
}

static void kv_layout(const char *path)
{
	static const uint64_t lens[] = { KIB(64), KIB(1536), MIB(6), MIB(24) };
	int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0)
		kv_die(path);
	for (size_t i = 0; i < ARRAY_SIZE(lens); i++)
		layout_of(dir, lens[i]);
	(void)close(dir);
}

/* --------------------------------------------------------------- figures */

static struct pst_kv *open_store(const char *path, const char *policy, uint64_t budget)
{
	struct pst_kv_opts o = { .sz = sizeof(o), .budget = budget, .policy = policy };
	struct pst_kv *kv;

	if (pst_kv_open(&path, 1, &o, &kv) < 0) {
		(void)fprintf(stderr, "kv: %s\n", pst_kv_error_text());
		exit(1);
	}
	return kv;
}

static uint32_t kv_space_of(struct pst_kv *kv)
{
	struct pst_kv_space_opts o = { .sz = sizeof(o), .identity = "bench" };
	uint32_t space;

	if (pst_kv_space(kv, &o, &space) < 0)
		kv_die("space");
	return space;
}

static void kv_run(struct pst_kv *kv, uint32_t op, uint32_t space, const struct pst_kv_item *items,
		   unsigned nr, int64_t *results)
{
	struct pst_kv_batch b = {
		.sz = sizeof(b),
		.op = op,
		.space = space,
		.items = items,
		.nr = nr,
		.results = results,
	};
	struct pst_kv_done done;

	if (pst_kv_run(kv, &b, &done) < 0 || done.good != nr) {
		(void)fprintf(stderr, "kv: a batch failed: %s\n", strerror(-done.err));
		exit(1);
	}
}

#define LOOKUPS 65536u
#define BATCH 1024u

static void lookups(struct pst_kv *kv, uint32_t space)
{
	struct pst_kv_item *items = calloc(LOOKUPS, sizeof(*items));
	char(*keys)[48] = calloc(LOOKUPS, sizeof(*keys)), byte = 1;
	int64_t *results = calloc(LOOKUPS, sizeof(*results));
	double us[ROUNDS];
	uint64_t began;

	if (!items || !keys || !results)
		kv_die("memory");
	for (unsigned i = 0; i < LOOKUPS; i++) {
		(void)snprintf(keys[i], sizeof(keys[i]), "%032x%08x", i, i * 2654435761u);
		items[i] = (struct pst_kv_item){
			.key = keys[i],
			.key_len = 40,
			.mem_off = (uintptr_t)&byte,
			.len = 1,
		};
	}
	/* Half of the keys exist. */
	kv_run(kv, PST_KV_SET, space, items, LOOKUPS / 2, results);
	for (unsigned r = 0; r < ROUNDS; r++) {
		int64_t found = 0;

		began = now_ns();
		for (unsigned i = 0; i < LOOKUPS; i += BATCH)
			found += pst_kv_lookup(kv, space, items + i, BATCH, results + i);
		us[r] = us_since(began);
		if (found != LOOKUPS / 2)
			kv_die("look-ups");
	}
	(void)printf("look-ups of 40-byte keys, %u a batch: %.2f million a second\n", BATCH,
		     LOOKUPS / median_of(us, ROUNDS));
	free(items);
	free(keys);
	free(results);
}

/* Read a file, computing the CRC-32C of each 256 KiB while it is in the CPU's caches. */
static uint32_t one_pass(int fd, char *buf, uint64_t len)
{
	uint32_t crc = 0;

	for (uint64_t at = 0; at < len; at += KIB(256)) {
		uint64_t n = MIN(len - at, KIB(256));

		kv_full(pread(fd, buf + at, n, (off_t)at), n, "pread");
		crc = crc32c(crc, buf + at, n);
	}
	return crc;
}

enum { BY_PREAD, BY_COPY, BY_ONE_PASS, BY_TWO_PASSES, BY_RUN, BY_SUBMIT, NR_GETS };

struct get_bench {
	struct pst_kv *kv;
	uint32_t space;
	struct pst_kv_item item;
	char *buf, *other;
	int fd;
	uint32_t crc;
};

static void get_by(struct get_bench *g, unsigned how, uint64_t len)
{
	struct pst_kv_batch b = { .sz = sizeof(b), .op = PST_KV_GET, .space = g->space, .nr = 1 };
	struct pst_kv_done done;
	int64_t result;

	switch (how) {
	case BY_PREAD:
	case BY_TWO_PASSES:
		kv_full(pread(g->fd, g->buf, len, 0), len, "pread");
		g->crc ^= how == BY_PREAD ? 0 : crc32c(0, g->buf, len);
		break;
	case BY_COPY:
		memcpy(g->buf, g->other, len);
		break;
	case BY_ONE_PASS:
		g->crc ^= one_pass(g->fd, g->buf, len);
		break;
	case BY_RUN:
		kv_run(g->kv, PST_KV_GET, g->space, &g->item, 1, &result);
		break;
	default:
		b.items = &g->item;
		b.results = &result;
		if (pst_kv_submit(g->kv, &b) < 0 ||
		    pst_kv_reap(g->kv, &done, 1, PST_NO_DEADLINE) != 1 || done.good != 1)
			kv_die("get");
	}
}

/* Open the file of the only block. */
static int open_block(void *arg, const struct pst_kv_block *block)
{
	int *fd = arg;

	*fd = open(block->path, O_RDONLY | O_CLOEXEC);
	return 1;
}

/* Compare a get with pread() of the same open file into the same memory, and with other reads of
 * it. */
static void gets(struct pst_kv *kv, uint32_t space, const char *root, uint64_t len)
{
	static const char *const names[NR_GETS] = { "pread",    "memcpy", "1 pass",
						    "2 passes", "run",    "submit" };
	unsigned nr = (unsigned)MAX(UINT64_C(8), MIB(64) / len);
	struct get_bench g = { .kv = kv, .space = space, .item = { .key = "k", .key_len = 1 } };
	double us[NR_GETS][3 * ROUNDS];
	uint64_t cpu[NR_GETS];
	int64_t result;

	g.buf = aligned_alloc(4096, len);
	g.other = aligned_alloc(4096, len);
	if (!g.buf || !g.other)
		kv_die("memory");
	memset(g.buf, 1, len);
	memset(g.other, 1, len);
	if (pst_mem_wrap((uintptr_t)g.buf, len, NULL, &g.item.mem) < 0)
		kv_die("wrap");
	g.item.len = len;
	kv_run(kv, PST_KV_SET, space, &g.item, 1, &result);
	if (pst_kv_walk(&root, 1, 0, open_block, &g.fd) != 1 || g.fd < 0)
		kv_die("the block's file");
	for (unsigned r = 0; r < 3 * ROUNDS; r++) {
		for (unsigned how = 0; how < NR_GETS; how++) {
			uint64_t began = now_ns();
			uint64_t cpu_began = clock_ns(CLOCK_PROCESS_CPUTIME_ID);

			for (unsigned i = 0; i < nr; i++)
				get_by(&g, how, len);
			us[how][r] = us_since(began) / nr;
			cpu_began = (clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_began) / nr;
			cpu[how] = r ? MIN(cpu[how], cpu_began) : cpu_began;
		}
	}
	(void)printf("%8" PRIu64 " KiB, us:", len / 1024);
	for (unsigned how = 0; how < NR_GETS; how++)
		(void)printf("  %s %.1f", names[how], median_of(us[how], 3 * ROUNDS));
	/* Also print the lowest CPU time: on a busy machine it says more than elapsed time. */
	(void)printf("; CPU:");
	for (unsigned how = 0; how < NR_GETS; how++)
		(void)printf("  %s %.1f", names[how], (double)cpu[how] / 1000);
	(void)printf(" (%08x)\n", g.crc);
	pst_mem_free(g.item.mem);
	(void)close(g.fd);
	free(g.buf);
	free(g.other);
}

static void figures(const char *path)
{
	static const uint64_t lens[] = { KIB(64), KIB(1536), MIB(6), MIB(24) };
	struct pst_kv_stat st = { .sz = sizeof(st) };
	struct pst_kv *kv;
	char root[4096];
	uint32_t space;

	(void)snprintf(root, sizeof(root), "%s/kv-bench", path);
	if (mkdir(root, 0755) < 0)
		kv_die(root);
	kv = open_store(root, NULL, GIB(4));
	space = kv_space_of(kv);
	for (size_t i = 0; i < ARRAY_SIZE(lens); i++)
		gets(kv, space, root, lens[i]);
	(void)pst_kv_stat(kv, &st);
	(void)printf("write amplification of those blocks: %.5f\n",
		     (double)st.written / (double)st.set_bytes);
	lookups(kv, space);
	(void)pst_kv_stat(kv, &st);
	/* The bytes include the part of the hash table that is allocated in advance, up to 40 bytes
	 * per block. */
	(void)printf("index: %" PRIu64 " blocks, %.1f bytes each\n", st.blocks,
		     (double)st.index_bytes / (double)st.blocks);
	pst_kv_close(kv);
	(void)printf("remove %s\n", root);
}

#define MANY 10000000u

static double since_ms(uint64_t began)
{
	return as_ms(now_ns() - began);
}

/* Measure the index alone: only one block's file is created, because an empty space would be
 * dropped. */
static void open_many(const char *path)
{
	char byte = 1;
	struct pst_kv_item item = {
		.key = "k",
		.key_len = 1,
		.mem_off = (uintptr_t)&byte,
		.len = 1,
	};
	int64_t result;
	struct pst_kv_stat st = { .sz = sizeof(st) };
	struct pst_kv *kv;
	uint64_t began, cpu;
	char root[4096];
	uint32_t space;

	(void)snprintf(root, sizeof(root), "%s/kv-bench-open", path);
	if (mkdir(root, 0755) < 0)
		kv_die(root);
	kv = open_store(root, NULL, UINT64_C(1) << 60);
	space = kv_space_of(kv);
	kv_run(kv, PST_KV_SET, space, &item, 1, &result);
	for (uint64_t i = 1; i < MANY; i++)
		if (cache_insert(kv, space, i * UINT64_C(0x9e3779b97f4a7c15) + 1, MIB(1) + 100) < 0)
			kv_die("memory");
	(void)pst_kv_stat(kv, &st);
	(void)printf("%u blocks: %.1f bytes of index each", MANY, (double)st.index_bytes / MANY);
	began = now_ns();
	pst_kv_close(kv);
	(void)printf(", closed in %.0f ms", since_ms(began));
	began = now_ns();
	cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	kv = open_store(root, NULL, UINT64_C(1) << 60);
	(void)printf(", opened in %.0f ms (%.0f ms of CPU)\n", since_ms(began),
		     as_ms(clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu));
	(void)pst_kv_stat(kv, &st);
	if (st.loaded != MANY)
		kv_die("the index");
	pst_kv_close(kv);
	(void)printf("remove %s\n", root);
}

int main(int argc, char *argv[])
{
	bool by_layout = argc > 1 && !strcmp(argv[1], "--layout");
	bool many = argc > 1 && !strcmp(argv[1], "--open");

	if (argc != 2 + (by_layout || many)) {
		(void)fputs("Usage: kv [--layout | --open] DIR\n", stderr);
		return 2;
	}
	if (by_layout)
		kv_layout(argv[2]);
	else if (many)
		open_many(argv[2]);
	else
		figures(argv[1]);
	return 0;
}
