/* SPDX-License-Identifier: MIT */
/*
 * Blocking calls with many ranges and with options: how they split the ranges, in which order
 * errors are reported, and what is busy or kept afterwards.
 */
#include <sys/mman.h>

#include "fusefs.h"
#include "rig.h"

#define SEED 23
#define LEN RIG_MIB(4)
#define MANY 80000u
#define SMALL 40u
#define HANDLES 1000u

static struct pst_file *data(void)
{
	rig_make(rig_path("data"), SEED, LEN);
	return rig_open(rig_path("data"), RIG_R);
}

static struct pst_mem *mem_new(const char *device, uint64_t len)
{
	struct pst_mem *m = NULL;

	T_OK(pst_mem_alloc(device, len, NULL, &m));
	return m;
}

/* Small ranges all over the heap, from the highest address to the lowest. */
static void many_addresses(void)
{
	struct pst_vec *v = calloc(MANY, sizeof(*v));
	struct pst_file *f = data();
	uint64_t before = rig_stats(NULL).requests, bad = 0;
	char *heap = malloc((size_t)MANY * 2 * SMALL);
	struct pst_done d;

	T_CHECK(v && heap);
	for (unsigned i = 0; i < MANY; i++)
		v[i] = (struct pst_vec){ .mem_off = (uintptr_t)heap +
						    (uint64_t)(MANY - 1 - i) * 2 * SMALL,
					 .file_off = (uint64_t)i * SMALL,
					 .len = SMALL };
	memset(heap, 0x77, (size_t)MANY * 2 * SMALL);
	T_EQ(pst_readv(f, v, MANY, NULL, &d), (int64_t)MANY * SMALL);
	T_EQ(rig_stats(NULL).requests - before, 1);
	for (unsigned i = 0; i < MANY; i++) {
		const char *at = (const char *)(uintptr_t)v[i].mem_off;

		bad += t_differs(at, SEED, v[i].file_off, SMALL) != SMALL;
		for (unsigned k = SMALL; k < 2 * SMALL; k++)
			bad += at[k] != 0x77; /* nothing between the ranges changes */
	}
	T_EQ(bad, 0);
	free(heap);
	free(v);
	pst_file_close(f);
}

/* Ranges of host memory before and after one of device memory. */
static void memory_in_between(void)
{
	char *low = mmap(NULL, 3 * LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct pst_mem *soft = mem_new("soft:0", 65536);
	struct pst_mem_info info = { .sz = sizeof(info) };
	struct pst_file *f = data();
	struct pst_done d;
	char *high;

	T_CHECK(low != MAP_FAILED);
	high = low + 2 * LEN;
	T_CHECK(munmap(low + LEN, LEN) == 0);
	T_OK(pst_mem_info(soft, &info));
	{
		const struct pst_vec v[] = {
			{ .mem_off = (uintptr_t)high, .file_off = 1000, .len = 5000 },
			{ .mem_off = info.addr + 10, .file_off = 9000, .len = 7000 },
			{ .mem_off = (uintptr_t)low + 1, .file_off = 0, .len = LEN - 1 },
			{ .mem_off = info.addr + 30000, .file_off = 20000, .len = 35536 },
		};
		uint64_t before = rig_stats(NULL).requests;

		T_EQ(pst_readv(f, v, RIG_NR(v), NULL, &d), 5000 + 7000 + LEN - 1 + 35536);
		T_EQ(rig_stats(NULL).requests - before, 2);
	}
	T_EQ(t_differs(high, SEED, 1000, 5000), 5000);
	T_EQ(t_differs(low + 1, SEED, 0, LEN - 1), LEN - 1);
	T_EQ(rig_mem_differs(soft, 10, 7000, SEED, 9000), 7000);
	T_EQ(rig_mem_differs(soft, 30000, 35536, SEED, 20000), 35536);
	pst_mem_free(soft);
	pst_file_close(f);
	(void)munmap(low, LEN);
	(void)munmap(high, LEN);
}

/* One wrong range: nothing is started, and the error names the first wrong range. */
static void bad_ranges(void)
{
	struct pst_mem *a = mem_new("host", 8192), *b = mem_new("soft:0", 8192);
	struct pst_vec v[] = {
		{ .mem = a, .len = 4096 },
		{ .mem = b, .len = 4096 },
		{ .mem = a, .mem_off = 4096, .len = 4096 },
	};
	uint64_t before = rig_stats(NULL).requests;
	struct pst_file *f = data();
	struct pst_done d;

	v[1].mem_off = 4097;
	T_EQ(pst_readv(f, v, RIG_NR(v), NULL, &d), -ERANGE);
	T_EQ(d.res, -ERANGE);
	T_CHECK(strstr(pst_error_text(), "range 1 has 4096 bytes at 4097"));
	v[1].mem_off = UINT64_MAX;
	T_EQ(pst_readv(f, v, RIG_NR(v), NULL, &d), -ERANGE);
	v[1].mem_off = 0;
	v[1].file_off = INT64_MAX - 10;
	T_EQ(pst_readv(f, v, RIG_NR(v), NULL, &d), -EOVERFLOW);
	T_CHECK(strstr(pst_error_text(), "range 1"));
	v[1] = (struct pst_vec){ .mem_off = UINT64_MAX - 10, .len = 4096 };
	T_EQ(pst_readv(f, v, RIG_NR(v), NULL, &d), -EINVAL);
	T_CHECK(strstr(pst_error_text(), "range 1"));
	T_EQ(d.prefix, 0);
	T_EQ(rig_stats(NULL).requests, before);
	pst_mem_free(a);
	pst_mem_free(b);
	pst_file_close(f);
}

/* A missing right is noticed before any byte moves. */
static void no_right(void)
{
	struct pst_mem *shared = NULL, *other = mem_new("soft:0", 4096), *m = NULL;
	const struct pst_mem_opts o = { .sz = sizeof(o), .flags = PST_MEM_SHARED };
	struct pst_grant g = { .sz = sizeof(g), .fd = -1 };
	struct pst_file *f = data(), *shut;
	struct pst_done d;

	T_OK(pst_mem_alloc("host", 4096, &o, &shared));
	T_OK(pst_mem_export(shared, 0, 4096, PST_RIGHT_READ, &g));
	T_OK(pst_mem_import(&g, &m)); /* a read may not store here */
	for (unsigned i = 0; i < 2; i++) {
		const struct pst_vec v[] = {
			{ .mem = i ? other : m, .len = 4096 },
			{ .mem = i ? m : other, .len = 4096 },
		};

		T_EQ(pst_readv(f, v, RIG_NR(v), NULL, &d), -EACCES);
		T_EQ(d.res, -EACCES);
		T_EQ(d.prefix, 0);
		T_CHECK(strstr(pst_error_text(), i ? "range 1: the grant" : "range 0: the grant"));
	}
	shut = rig_open(rig_path("data"), PST_FILE_WRITE);
	T_EQ(pst_read(shut, 0, other, 0, 4096, &d), -EBADF);
	T_EQ(d.prefix, 0);
	pst_file_close(shut);
	pst_grant_done(&g);
	pst_mem_free(m);
	pst_mem_free(other);
	pst_mem_free(shared);
	pst_file_close(f);
}

/* Each range is in another memory: the error names the one that failed or was short. */
static void which_range(void)
{
	struct pst_mem *m = mem_new("host", 3 * 65536), *n = mem_new("soft:0", 65536);
	char *gap = mmap(NULL, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const struct pst_mem_opts later = { .sz = sizeof(later),
					    .flags = PST_MEM_LATER,
					    .kind = PST_KIND_HOST };
	struct pst_mem *none = NULL;
	struct pst_vec v[] = {
		{ .mem = m, .len = 65536 },
		{ .mem = n, .len = 65536 },
		{ .mem = m, .mem_off = 65536, .file_off = LEN - 10, .len = 65536 },
		{ .mem = m, .mem_off = 2 * 65536, .len = 65536 },
	};
	struct pst_file *f = data();
	struct pst_done d;

	T_CHECK(gap != MAP_FAILED);
	T_EQ(pst_readv(f, v, 2, NULL, &d), 2 * 65536);
	T_EQ(d.user_data, 2);
	T_EQ(pst_readv(f, v, RIG_NR(v), NULL, &d), 2 * 65536 + 10);
	T_EQ(d.user_data, 2);
	T_OK(pst_mem_wrap((uintptr_t)gap, 65536, &later, &none));
	v[3] = (struct pst_vec){ .mem = none, .len = 65536 };
	T_EQ(pst_readv(f, v, RIG_NR(v), NULL, &d), -EFAULT);
	T_EQ(d.user_data, 3);
	T_EQ(d.prefix, 2 * 65536 + 10);
	T_CHECK(strstr(pst_error_text(), "from range 3 on: read failed"));
	v[0].len = 0;
	T_EQ(pst_readv(f, v, RIG_NR(v), NULL, &d), -EINVAL);
	T_EQ(d.user_data, RIG_NR(v));
	T_EQ(pst_mem_drain(NULL, 0), -EINVAL);
	T_EQ(pst_file_drain(NULL, 0), -EINVAL);
	pst_mem_free(none);
	pst_mem_free(m);
	pst_mem_free(n);
	pst_file_close(f);
	(void)munmap(gap, 65536);
}

/* Use more handles than a queue's table has at first, and free them in another order. */
static void many_handles(void)
{
	static struct pst_mem *m[HANDLES];
	static struct pst_vec v[HANDLES];
	struct pst_mem *all = mem_new("host", HANDLES * SMALL);
	char *base = pst_mem_ptr(all);
	struct pst_file *f = data();

	for (unsigned i = 0; i < HANDLES; i++) {
		T_OK(pst_mem_wrap((uintptr_t)base + i * SMALL, SMALL, NULL, &m[i]));
		v[i] = (struct pst_vec){ .mem = m[i], .file_off = i * SMALL, .len = SMALL };
	}
	T_EQ(pst_readv(f, v, HANDLES, NULL, NULL), HANDLES * SMALL);
	T_EQ(t_differs(base, SEED, 0, HANDLES * SMALL), HANDLES * SMALL);
	for (unsigned i = 0; i < HANDLES; i++)
		pst_mem_free(m[i * 7 % HANDLES]);
	T_EQ(pst_read(f, 0, all, 0, HANDLES * SMALL, NULL), HANDLES * SMALL);
	pst_mem_free(all);
	pst_file_close(f);
}

static void options(void)
{
	struct pst_call_opts o = { .sz = sizeof(o) };
	struct pst_mem *m = mem_new("soft:0", LEN);
	struct pst_vec v = { .mem = m, .len = LEN };
	struct pst_file *f = data(), *to = rig_open(rig_path("to"), RIG_NEW);
	struct pst_done d;

	o.policy = PST_POLICY2(PST_PATH_STAGED, PST_PATH_BUFFERED);
	T_EQ(pst_readv(f, &v, 1, &o, &d), LEN);
	T_EQ(d.paths, PST_PATH_BIT(PST_PATH_STAGED) | PST_PATH_BIT(PST_PATH_BUFFERED));
	T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
	T_EQ(pst_writev(to, &v, 1, &o, &d), LEN);
	T_EQ(d.paths, PST_PATH_BIT(PST_PATH_STAGED) | PST_PATH_BIT(PST_PATH_BUFFERED));

	/* List a path that this memory does not have: the completion's why is set, and STRICT makes
	 * it an error. */
	o.policy = PST_POLICY2(PST_PATH_GDS, PST_PATH_STAGED);
	T_EQ(pst_readv(f, &v, 1, &o, &d), LEN);
	T_CHECK(d.why != PST_WHY_NONE);
	o.flags = PST_IO_STRICT;
	T_EQ(pst_readv(f, &v, 1, &o, &d), -EOPNOTSUPP);
	T_CHECK(d.why != PST_WHY_NONE);

	o = (struct pst_call_opts){ .sz = sizeof(o), .deadline_ns = 1 };
	T_EQ(pst_readv(f, &v, 1, &o, &d), -ETIMEDOUT);
	T_EQ(d.res, -ETIMEDOUT);
	o.deadline_ns = 0;
	o.flags = PST_IO_CRC32C;
	T_EQ(pst_readv(f, &v, 1, &o, &d), -EINVAL);
	o.flags = 0;
	o.reserved = 1;
	T_EQ(pst_readv(f, &v, 1, &o, &d), -EINVAL);
	o.reserved = 0;
	o.sz = 4;
	T_EQ(pst_readv(f, &v, 1, &o, &d), -EINVAL);
	o.sz = 2 * sizeof(o);
	{
		struct {
			struct pst_call_opts o;
			char more[sizeof(struct pst_call_opts)];
		} later = { .o = o };

		T_EQ(pst_readv(f, &v, 1, &later.o, &d), LEN);
		later.more[3] = 1;
		T_EQ(pst_readv(f, &v, 1, &later.o, &d), -E2BIG);
	}
	v.reserved = 1;
	T_EQ(pst_readv(f, &v, 1, NULL, &d), -EINVAL);
	T_CHECK(strstr(pst_error_text(), "range 0"));
	pst_file_close(to);
	pst_file_close(f);
	pst_mem_free(m);
}

static int bound(uint64_t bytes)
{
	const struct pst_limits l = { .sz = sizeof(l), .pool_bytes = bytes };

	return pst_limits_set(&l);
}

/* The queue that a call keeps for the next one gives up its staging memory when another queue
 * needs it. */
static void what_is_idle_gives_way(void)
{
	struct pst_mem *m = mem_new("soft:0", LEN), *n = mem_new("soft:1", LEN);
	struct pst_queue *q = NULL;
	struct pst_file *f = data();
	struct pst_io io = rig_io(PST_OP_READ, f, n, 0, 0, LEN);

	T_EQ(pst_read(f, 0, m, 0, LEN, NULL), LEN);
	T_OK(bound(1));
	T_EQ(pst_read(f, 0, m, 0, LEN, NULL), -EBUSY);
	T_CHECK(strstr(pst_error_text(), "pst_limits_set"));

	/*
	 * The limit has room for one queue of the largest slots: the kept queue of the other
	 * device is freed, whichever call needs the room.
	 */
	T_OK(bound(RIG_MIB(8)));
	T_EQ(pst_read(f, 0, m, 0, LEN, NULL), LEN);
	T_EQ(pst_read(f, 0, n, 0, LEN, NULL), LEN);
	T_EQ(rig_mem_differs(n, 0, LEN, SEED, 0), LEN);
	T_EQ(pst_read(f, 0, m, 0, LEN, NULL), LEN);
	T_OK(pst_queue_new(NULL, &q));
	T_OK(pst_queue_prep(q, &io));
	T_EQ(pst_queue_submit(q), 1);
	T_EQ(rig_reap1(q).res, LEN);

	/* The program's own queue keeps its slots. */
	T_EQ(bound(1), -EBUSY);
	q = pst_queue_free(q);
	T_OK(bound(0));
	T_EQ(pst_read(f, 0, m, 0, LEN, NULL), LEN);
	pst_mem_free(m);
	pst_mem_free(n);
	pst_file_close(f);
}

/* A staged write is cancelled by its deadline: its memory is quiet, but the file is busy until
 * the file system answers. */
static void busy_file(void)
{
	struct pst_call_opts o = { .sz = sizeof(o) };
	struct pst_mem *m = mem_new("soft:0", 65536);
	struct pst_vec v = { .mem = m, .len = 65536 };
	uint64_t end = t_hang();
	struct pst_file *f = NULL;
	struct fusefs fs = { 0 };
	struct pst_done d;
	char path[200];

	if (fusefs_start(&fs, rig_dir) < 0)
		T_SKIP("%s", fs.why);
	(void)snprintf(path, sizeof(path), "%s/hang", fs.dir);
	T_OK(pst_file_open(path, PST_FILE_WRITE, NULL, &f));
	T_EQ(pst_file_drain(f, 0), 0);
	o.deadline_ns = t_in_ms(1000);
	T_EQ(pst_writev(f, &v, 1, &o, &d), -ETIMEDOUT);
	T_CHECK(d.flags & PST_DONE_BUSY);
	T_EQ(pst_file_drain(f, 0), -EBUSY);
	T_EQ(pst_file_drain(f, t_in_ms(20)), -EBUSY);
	T_CHECK(strstr(pst_error_text(), "file"));
	do
		fusefs_release(&fs);
	while (pst_file_drain(f, t_in_ms(10)) < 0 && t_now() < end);
	T_OK(pst_file_drain(f, 0));
	T_OK(pst_mem_drain(m, 0));
	pst_file_close(f);
	pst_mem_free(m);
	fusefs_stop(&fs);
}

int main(void)
{
	(void)setenv("PST_SOFT_DEVICES", "2", 1);
	rig_init();
	RIG_RUN1(many_addresses);
	RIG_RUN1(memory_in_between);
	RIG_RUN1(bad_ranges);
	RIG_RUN1(no_right);
	RIG_RUN1(which_range);
	RIG_RUN1(many_handles);
	RIG_RUN1(options);
	RIG_RUN1(what_is_idle_gives_way);
	RIG_RUN1(busy_file);
	return rig_done();
}
