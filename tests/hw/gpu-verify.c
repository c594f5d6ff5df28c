/* SPDX-License-Identifier: MIT */
/*
 * Reads and writes between pattern files and device memory, in many sizes and layouts.  All
 * bytes that should have moved, and their neighbors, are compared.
 *
 *	gpu-verify [-m DEVICE] [DIR]	cases, in TAP; files go to DIR
 *	gpu-verify --make FILE BYTES [SEED]	only make a pattern file
 */
#include "hw_verify.h"

/* ------------------------------------------------------------------- reads */

static void whole_file_cold_and_warm(void)
{
	struct pst_mem *m = rig_alloc(device, BIG + 64);
	struct pst_file *f = pattern("whole", 11, BIG, RIG_R);
	struct pst_done d;

	queue();
	for (unsigned i = 0; i < 2; i++) {
		rig_mem_fill(m, 0, BIG + 64, 99, 0);
		if (i == 0)
			rig_cold(rig_path("whole"));
		else
			rig_warm(rig_path("whole"));
		d = rig_read(f, m, 0, 13, BIG);
		rig_show(&d);
		expect(d, BIG);
		check(m, 13, BIG, 11, 0);
		check(m, 0, 13, 99, 0);
		check(m, 13 + BIG, 51, 99, 13 + BIG);
	}
	end_queue();
	pst_file_close(f);
	pst_mem_free(m);
}

static void odd_lengths_and_offsets(void)
{
	static const uint64_t lens[] = {
		1,    2,    3,     7,     8,     15,     63,      511,     512,     513,     4095,
		4096, 4097, 10001, 65535, 65536, 131073, 1048575, 1048577, 4194303, 33554437
	};
	static const uint64_t offs[] = { 0, 1, 511, 4096, 4097, 1048575, 4194301 };
	uint64_t room = RIG_MIB(40);
	struct pst_mem *m = rig_alloc(device, room);
	struct pst_file *f = pattern("odd", 12, room, RIG_R);

	queue();
	rig_mem_fill(m, 0, room, 98, 0);
	for (unsigned i = 0; i < RIG_NR(lens); i++)
		for (unsigned k = 0; k < RIG_NR(offs); k++) {
			uint64_t to = offs[(i + k) % RIG_NR(offs)] + 16, len = lens[i];

			expect(rig_read(f, m, offs[k], to, len), len);
			check(m, to, len, 12, offs[k]);
			check(m, to - 16, 16, 98, to - 16);
			check(m, to + len, 16, 98, to + len);
			rig_mem_fill(m, to, len, 98, to);
		}
	end_queue();
	pst_file_close(f);
	pst_mem_free(m);
}

/* Make segments of 4 KiB from random places of the file to random places in memory, with gaps. */
static struct pst_seg *scatter(uint64_t file_len, uint64_t step, unsigned odd)
{
	struct pst_seg *segs = calloc(PIECES, sizeof(*segs));
	uint32_t *order = malloc(PIECES * sizeof(*order));

	T_CHECK(segs && order);
	for (uint32_t i = 0; i < PIECES; i++)
		order[i] = i;
	for (uint32_t i = PIECES - 1; i > 0; i--) {
		uint32_t k = (uint32_t)rig_below(i + 1), t = order[i];

		order[i] = order[k];
		order[k] = t;
	}
	for (uint32_t i = 0; i < PIECES; i++)
		segs[i] = (struct pst_seg){ .file_off = rig_below(file_len - PIECE),
					    .mem_off = order[i] * step + (odd ? i % odd : 0),
					    .len = PIECE };
	free(order);
	return segs;
}

static void check_scatter(struct pst_mem *m, const struct pst_seg *segs, uint64_t len,
			  uint64_t seed, uint64_t around)
{
	char *got = malloc(len), *want = malloc(len);

	T_CHECK(got && want);
	t_fill(want, around, 0, len);
	for (unsigned i = 0; i < PIECES; i++)
		t_fill(want + segs[i].mem_off, seed, segs[i].file_off, PIECE);
	T_OK(pst_mem_copy_out(m, 0, got, len));
	for (uint64_t i = 0; i < len; i++)
		if (got[i] != want[i])
			T_FAIL("device byte %" PRIu64 " is wrong", i);
	free(got);
	free(want);
}

static void scattered_pieces(void)
{
	uint64_t step = PIECE + 77, len = PIECES * step + 64;
	struct pst_mem *m = rig_alloc(device, len);
	struct pst_file *f = pattern("scatter", 13, RIG_MIB(128), RIG_R);
	struct pst_seg *segs = scatter(RIG_MIB(128), step, 16);
	struct pst_io io = {
		.op = PST_OP_READ, .file = f, .mem = m, .segs = segs, .nr_segs = PIECES
	};
	struct pst_done d;

	queue();
	for (unsigned i = 0; i < 2; i++) {
		rig_mem_fill(m, 0, len, 97, 0);
		if (i == 0)
			rig_cold(rig_path("scatter"));
		else
			rig_warm(rig_path("scatter"));
		d = rig_do(rig_q, &io);
		rig_show(&d);
		expect(d, (uint64_t)PIECES * PIECE);
		check_scatter(m, segs, len, 13, 97);
	}
	end_queue();
	free(segs);
	pst_file_close(f);
	pst_mem_free(m);
}

/* Strided segments and single segments of odd lengths in one request. */
static void strides_and_odd_segments(void)
{
	enum { NR = 600 };
	static struct pst_seg segs[NR];
	struct pst_mem *m = rig_alloc(device, RIG_MIB(64));
	struct pst_file *f = pattern("strides", 14, RIG_MIB(64), RIG_R);
	struct pst_io io = { .op = PST_OP_READ, .file = f, .mem = m, .segs = segs, .nr_segs = NR };
	uint64_t at = 0, total = 0;

	for (unsigned i = 0; i < NR; i++) {
		uint64_t len = 1 + rig_below(3000), gap = rig_below(50), count = 1 + rig_below(40);

		segs[i] = (struct pst_seg){ .file_off = rig_below(RIG_MIB(60)),
					    .mem_off = at,
					    .len = len,
					    .file_stride = len + rig_below(2000),
					    .mem_stride = len + gap,
					    .count = count };
		at += count * (len + gap);
		total += count * len;
	}
	T_CHECK(at < RIG_MIB(64));
	queue();
	expect(rig_do(rig_q, &io), total);
	for (unsigned i = 0; i < NR; i++)
		for (uint64_t k = 0; k < segs[i].count; k++)
			if (i % 7 == 0 || k == segs[i].count - 1)
				check(m, segs[i].mem_off + k * segs[i].mem_stride, segs[i].len, 14,
				      segs[i].file_off + k * segs[i].file_stride);
	end_queue();
	pst_file_close(f);
	pst_mem_free(m);
}

static void end_of_the_file(void)
{
	struct pst_mem *m = rig_alloc(device, RIG_MIB(4));
	struct pst_file *f = pattern("short", 15, 1000003, RIG_R);

	queue();
	T_EQ(rig_read(f, m, 5, 3, RIG_MIB(2)).res, 1000003 - 5);
	check(m, 3, 1000003 - 5, 15, 5);
	T_EQ(rig_read(f, m, 1000003, 0, 10).res, 0);
	end_queue();
	pst_file_close(f);
	pst_mem_free(m);
}

/* ------------------------------------------------------------------- wraps */

/* Reads into wrapped parts of one allocation, at odd addresses. */
static void wrapped_parts(void)
{
	uint64_t room = RIG_MIB(48), at = 0;
	struct pst_mem *all, *m;
	struct pst_file *f;
	cu_ptr ptr = 0;

	need_driver();
	HW_CU(cuMemAlloc_v2(&ptr, room));
	all = hw_wrap(ptr, room);
	f = pattern("parts", 16, RIG_MIB(32), RIG_R);
	queue();
	rig_mem_fill(all, 0, room, 96, 0);
	for (unsigned i = 0; i < 60; i++) {
		uint64_t len = i % 3 ? 1 + rig_below(100000) : RIG_MIB(1) + rig_below(1000000);
		uint64_t off = rig_below(RIG_MIB(30)), gap = 1 + rig_below(300);

		if (at + gap + len + 300 > room)
			break;
		m = hw_wrap(ptr + at + gap, len);
		expect(rig_read(f, m, off, 0, len), len);
		pst_mem_free(m);
		check(all, at + gap, len, 16, off);
		check(all, at, gap, 96, at);
		at += gap + len;
	}
	check(all, at, room - at, 96, at);
	end_queue();
	pst_mem_free(all);
	HW_CU(cuMemFree_v2(ptr));
	pst_file_close(f);
}

/* Reads into memory mapped in chunks, as frameworks with growing segments map it. */
static void wrapped_chunks(void)
{
	enum { NR = 6 };
	const uint64_t chunk = RIG_MIB(2);
	struct cu_prop prop = { .type = CU_ALLOC_PINNED, .location = { CU_LOC_DEVICE, 0 } };
	struct cu_access access = { { CU_LOC_DEVICE, 0 }, CU_PROT_READ_WRITE };
	cu_handle handles[NR];
	struct pst_mem *all, *m;
	struct pst_file *f;
	cu_ptr va = 0;

	need_driver();
	prop.location.id = access.location.id = hw_ordinal(device);
	HW_CU(cuMemAddressReserve(&va, NR * chunk, 0, 0, 0));
	for (unsigned i = 0; i < NR; i++) {
		HW_CU(cuMemCreate(&handles[i], chunk, &prop, 0));
		HW_CU(cuMemMap(va + i * chunk, chunk, 0, handles[i], 0));
	}
	HW_CU(cuMemSetAccess(va, NR * chunk, &access, 1));
	all = hw_wrap(va, NR * chunk);
	f = pattern("chunks", 17, NR * chunk, RIG_R);
	queue();
	rig_mem_fill(all, 0, NR * chunk, 95, 0);
	m = hw_wrap(va + 777777, 4 * chunk + 5);
	expect(rig_read(f, m, 31, 1, 4 * chunk + 4), 4 * chunk + 4);
	pst_mem_free(m);
	check(all, 777778, 4 * chunk + 4, 17, 31);
	check(all, 0, 777778, 95, 0);
	check(all, 777778 + 4 * chunk + 4, chunk, 95, 777778 + 4 * chunk + 4);
	end_queue();
	pst_mem_free(all);
	HW_CU(cuMemUnmap(va, NR * chunk));
	for (unsigned i = 0; i < NR; i++)
		HW_CU(cuMemRelease(handles[i]));
	HW_CU(cuMemAddressFree(va, NR * chunk));
	pst_file_close(f);
}

/* ------------------------------------------------------------------- paths */

static void each_path(void)
{
	static const uint32_t paths[] = { PST_PATH_STAGED, PST_PATH_WINDOW, PST_PATH_PAGECACHE,
					  PST_PATH_GATHER };
	static const uint32_t hops[] = { 0, PST_PATH_DIRECT, PST_PATH_CACHED, PST_PATH_BUFFERED };
	uint64_t len = RIG_MIB(9) + 333;
	struct pst_mem *m = rig_alloc(device, len + 100);
	struct pst_file *f = pattern("paths", 18, len, RIG_R | PST_FILE_STABLE);
	char seen[1000] = "", name[100];
	unsigned ran = 0;

	queue();
	for (unsigned i = 0; i < RIG_NR(paths); i++)
		for (unsigned k = 0; k < RIG_NR(hops); k++) {
			struct pst_io io = rig_io(PST_OP_READ, f, m, 3, 50, len - 3);
			struct pst_done d;

			io.policy = PST_POLICY2(paths[i], hops[k]);
			rig_mem_fill(m, 0, len + 100, 94, 0);
			if (hops[k] == PST_PATH_CACHED)
				rig_warm(rig_path("paths"));
			if (pst_queue_prep(rig_q, &io) < 0)
				continue;
			T_EQ(pst_queue_submit(rig_q), 1);
			d = rig_reap1(rig_q);
			if (d.res == -EOPNOTSUPP || d.res == -EAGAIN)
				continue;
			expect(d, len - 3);
			check(m, 50, len - 3, 18, 3);
			check(m, 0, 50, 94, 0);
			check(m, 50 + len - 3, 50, 94, 50 + len - 3);
			ran++;
			(void)strncat(seen, " ", sizeof(seen) - strlen(seen) - 1);
			(void)strncat(seen, hw_paths(d.paths, name, sizeof(name)),
				      sizeof(seen) - strlen(seen) - 1);
		}
	printf("# ran:%s\n", seen);
	T_CHECK(ran > 0);
	end_queue();
	pst_file_close(f);
	pst_mem_free(m);
}

/* A stable file is read staged first, then from its pinned pages, with the same bytes. */
static void stable_file(void)
{
	struct pst_mem *m = rig_alloc(device, BIG);
	struct pst_file *f = pattern("stable", 19, BIG, RIG_R | PST_FILE_STABLE);
	struct pst_path_info info = { .sz = sizeof(info) };
	uint64_t step = PIECE + 77, pinned, end;
	struct pst_seg *segs = scatter(RIG_MIB(128), step, 16);
	struct pst_io io = {
		.op = PST_OP_READ, .file = f, .mem = m, .segs = segs, .nr_segs = PIECES
	};
	struct pst_done d;

	T_OK(pst_path_check(f, m, PST_OP_READ, PST_PATH_PAGECACHE, &info));
	if (info.state == PST_STATE_IMPOSSIBLE)
		T_SKIP("the page cache path: %s", pst_why_name(info.why));
	queue();
	pinned = hw_pin(rig_q, f, m, BIG, BIG);
	printf("# %" PRIu64 " of %" PRIu64 " MiB pinned in %.1f ms\n", pinned >> 20,
	       (uint64_t)BIG >> 20, (double)rig_stats(NULL).pages_ns / 1e6);
	T_CHECK(pinned > 0);
	check(m, 0, BIG, 19, 0);

	rig_mem_fill(m, 0, BIG, 93, 0);
	d = rig_read(f, m, 1, 2, BIG - 5);
	rig_show(&d);
	expect(d, BIG - 5);
	T_CHECK(d.paths & PST_PATH_BIT(PST_PATH_PAGECACHE));
	check(m, 2, BIG - 5, 19, 1);

	rig_mem_fill(m, 0, PIECES * step + 64, 93, 0);
	d = rig_do(rig_q, &io);
	rig_show(&d);
	expect(d, (uint64_t)PIECES * PIECE);
	check_scatter(m, segs, PIECES * step + 64, 19, 93);
	end_queue();
	pst_file_close(f);
	/* Pages are unpinned in the background. */
	end = t_now() + T_HANG_NS;
	while (rig_stats(NULL).pages_bytes && t_now() < end)
		(void)usleep(1000);
	T_EQ(rig_stats(NULL).pages_bytes, 0);
	pst_mem_free(m);
	free(segs);
}

/* ------------------------------------------------------------------ writes */

static void writes_back(void)
{
	struct pst_mem *m = rig_alloc(device, BIG + 20);
	struct pst_file *f = rig_open(rig_path("out"), RIG_NEW);
	struct pst_done d;

	queue();
	rig_mem_fill(m, 0, BIG + 20, 20, 0);
	d = rig_write(f, m, 0, 0, BIG);
	rig_show(&d);
	expect(d, BIG);
	T_EQ(rig_sync(f).res, 0);
	T_EQ(rig_file_info(f).size, BIG);
	check_file(rig_path("out"), 20, 0, BIG, 0);
	/* Also write from an odd memory offset to an odd file offset. */
	expect(rig_write(f, m, 4099, 7, RIG_MIB(33) + 1), RIG_MIB(33) + 1);
	T_EQ(rig_sync(f).res, 0);
	check_file(rig_path("out"), 20, 0, 4099, 0);
	check_file(rig_path("out"), 20, 4099, RIG_MIB(33) + 1, 7);
	check_file(rig_path("out"), 20, RIG_MIB(34), BIG - RIG_MIB(34), RIG_MIB(34));
	end_queue();
	pst_file_close(f);
	pst_mem_free(m);
}

/* Write odd pieces into the middle of a file; the bytes between them must not change. */
static void writes_pieces(void)
{
	enum { NR = 3000 };
	static struct pst_seg segs[NR];
	uint64_t len = RIG_MIB(64), at = 0, total = 0;
	struct pst_mem *m = rig_alloc(device, len);
	struct pst_file *f = pattern("into", 21, len, RIG_RW);
	struct pst_io io = { .op = PST_OP_WRITE, .file = f, .mem = m, .segs = segs, .nr_segs = NR };
	char *got, *want;

	rig_mem_fill(m, 0, len, 22, 0);
	want = malloc(len);
	got = malloc(len);
	T_CHECK(want && got);
	t_fill(want, 21, 0, len);
	for (unsigned i = 0; i < NR; i++) {
		uint64_t n = 1 + rig_below(15000), from = rig_below(len - n);

		at += rig_below(6000);
		segs[i] = (struct pst_seg){ .file_off = at, .mem_off = from, .len = n };
		t_fill(want + at, 22, from, n);
		at += n;
		total += n;
		T_CHECK(at < len);
	}
	queue();
	expect(rig_do(rig_q, &io), total);
	T_EQ(rig_sync(f).res, 0);
	T_EQ(rig_slurp(rig_path("into"), 0, got, len), len);
	for (uint64_t i = 0; i < len; i++)
		if (got[i] != want[i])
			T_FAIL("byte %" PRIu64 " of the file is wrong", i);
	end_queue();
	free(got);
	free(want);
	pst_file_close(f);
	pst_mem_free(m);
}

/* ----------------------------------------------------- threads, processes */

#define THREADS 6
#define PART RIG_MIB(24)

struct part {
	pthread_t thread;
	struct pst_file *f;
	struct pst_mem *m;
	unsigned idx;
	char text[300]; /* failure; "": none */
};

/* Submit requests of many sizes on this thread's queue, 16 at a time. */
static void *part_main(void *arg)
{
	struct part *p = arg;
	struct pst_queue *q = NULL;
	uint64_t off = 0, random = p->idx + 1;
	unsigned inflight = 0;
	struct pst_done d;

	if (pst_queue_new(NULL, &q) < 0) {
		(void)snprintf(p->text, sizeof(p->text), "%s", pst_error_text());
		return NULL;
	}
	while (off < PART || inflight) {
		for (; off < PART && inflight < 16; inflight++) {
			uint64_t n = 1 + (random = random * 6364136223846793005u + 1) %
						 (inflight % 3 ? 50000 : 3000000);
			struct pst_io io;

			n = n < PART - off ? n : PART - off;
			io = rig_io(PST_OP_READ, p->f, p->m, off + p->idx * 4099,
				    p->idx * PART + off, n);
			io.user_data = n;
			if (pst_queue_prep(q, &io) < 0)
				(void)snprintf(p->text, sizeof(p->text), "%s", pst_error_text());
			off += n;
		}
		(void)pst_queue_submit(q);
		if (p->text[0] || pst_queue_reap(q, &d, 1, 1, t_in_ms(RIG_WAIT_MS)) != 1) {
			if (!p->text[0])
				(void)snprintf(p->text, sizeof(p->text), "a request did not end");
			break;
		}
		if (d.res != (int64_t)d.user_data)
			(void)pst_done_text(&d, p->text, sizeof(p->text));
		inflight--;
	}
	pst_queue_free(q);
	return NULL;
}

static void threads_with_queues(void)
{
	static struct part parts[THREADS];
	struct pst_mem *m = rig_alloc(device, THREADS * PART);
	struct pst_file *f = pattern("threads", 23, PART + RIG_MIB(1), RIG_R);

	for (unsigned i = 0; i < THREADS; i++) {
		parts[i] = (struct part){ .f = f, .m = m, .idx = i };
		T_EQ(pthread_create(&parts[i].thread, NULL, part_main, &parts[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		T_EQ(pthread_join(parts[i].thread, NULL), 0);
	for (unsigned i = 0; i < THREADS; i++) {
		if (parts[i].text[0])
			T_FAIL("%s", parts[i].text);
		check(m, i * PART, PART, 23, i * 4099);
	}
	pst_file_close(f);
	pst_mem_free(m);
}

/* The other process: receive a grant and read the file into its memory from byte 3 on. */
static int importer(int sock, const char *path)
{
	struct pst_grant g = { .sz = sizeof(g) };
	struct pst_queue *q = NULL;
	struct pst_mem *m = NULL;
	struct pst_file *f = NULL;
	struct pst_done d = { .res = -1 };
	struct pst_io io;
	uint64_t len;

	if (pst_grant_recv(sock, &g, t_in_ms(RIG_WAIT_MS)) < 0 || pst_mem_import(&g, &m) < 0 ||
	    pst_file_open(path, RIG_R, NULL, &f) < 0 || pst_queue_new(NULL, &q) < 0)
		HW_DIE("importer: %s", pst_error_text());
	len = g.len;
	pst_grant_done(&g);
	io = rig_io(PST_OP_READ, f, m, 3, 0, len);
	if (pst_queue_prep(q, &io) < 0 || pst_queue_submit(q) != 1 ||
	    pst_queue_reap(q, &d, 1, 1, t_in_ms(RIG_WAIT_MS)) != 1)
		HW_DIE("importer: %s", pst_error_text());
	pst_queue_free(q);
	pst_file_close(f);
	pst_mem_free(m);
	return d.res == (int64_t)len ? 0 : 1;
}

/* Grant [off, off + len) of m to a new process, and check the bytes that it reads into it. */
static void grant_to_process(struct pst_mem *m, uint64_t off, uint64_t len, const char *path)
{
	struct pst_grant g = { .sz = sizeof(g) };
	int sp[2], status = -1;
	char fd[16];
	pid_t pid;

	T_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sp), 0);
	(void)snprintf(fd, sizeof(fd), "%d", sp[1]);
	pid = fork();
	if (pid == 0) {
		(void)execl(self, self, "--import", fd, path, (char *)NULL);
		_exit(127);
	}
	(void)close(sp[1]);
	T_OK(pst_mem_export(m, off, len, PST_RIGHT_READ | PST_RIGHT_WRITE, &g));
	T_OK(pst_grant_send(sp[0], &g, t_in_ms(RIG_WAIT_MS)));
	pst_grant_done(&g);
	T_EQ(waitpid(pid, &status, 0), pid);
	(void)close(sp[0]);
	T_EQ(status, 0);
	check(m, off, len, 24, 3);
}

static void grant_to_another_process(void)
{
	uint64_t room = RIG_MIB(40);
	struct pst_mem_opts opts = { .sz = sizeof(opts), .flags = PST_MEM_SHARED };
	struct pst_mem *m = NULL;

	rig_make(rig_path("grant"), 24, room);
	T_OK(pst_mem_alloc(device, room, &opts, &m));
	rig_mem_fill(m, 0, room, 92, 0);
	grant_to_process(m, 1234567, RIG_MIB(17) + 9, rig_path("grant"));
	check(m, 0, 1234567, 92, 0);
	check(m, 1234567 + RIG_MIB(17) + 9, RIG_MIB(20), 92, 1234567 + RIG_MIB(17) + 9);
	pst_mem_free(m);
}

static void grant_of_a_wrapped_part(void)
{
	uint64_t room = RIG_MIB(40);
	struct pst_mem *m;
	cu_ptr ptr = 0;

	need_driver();
	rig_make(rig_path("grant"), 24, room);
	HW_CU(cuMemAlloc_v2(&ptr, room));
	m = hw_wrap(ptr + 100001, RIG_MIB(30));
	grant_to_process(m, 77, RIG_MIB(20) + 1, rig_path("grant"));
	pst_mem_free(m);
	HW_CU(cuMemFree_v2(ptr));
}

/* -------------------------------------------------------------------- main */

static int make(const char *path, uint64_t len, uint64_t seed)
{
	int how = setjmp(t_jump);

	if (how)
		HW_DIE("%s", t_why);
	rig_make(path, seed, len);
	return 0;
}

static void no_device(void)
{
	T_SKIP("%s", pst_error_text());
}

int main(int argc, char **argv)
{
	static const struct option longs[] = { { "make", no_argument, NULL, 'M' },
					       { "import", no_argument, NULL, 'I' },
					       { 0 } };
	struct pst_device d = { .sz = sizeof(d) };
	int opt, ordinal;

	self = argv[0];
	while ((opt = getopt_long(argc, argv, "m:", longs, NULL)) != -1) {
		switch (opt) {
		case 'm':
			device = optarg;
			break;
		case 'M':
			if (argc - optind < 2)
				HW_DIE("--make FILE BYTES [SEED]");
			return make(argv[optind], strtoull(argv[optind + 1], NULL, 10),
				    argc - optind > 2 ? strtoull(argv[optind + 2], NULL, 10) : 1);
		case 'I':
			return argc - optind < 2 ? 1
						 : importer(atoi(argv[optind]), argv[optind + 1]);
		default:
			return 2;
		}
	}
	if (optind < argc)
		(void)setenv("PST_TEST_DIR", argv[optind], 1);
	rig_init();
	if (pst_device_find(device, &d) < 0) {
		T_RUN(no_device);
		return hw_done();
	}
	printf("# %s, %s\n", d.name, d.model);
	ordinal = hw_ordinal(device);
	no_driver = ordinal < 0 ? "this device has no CUDA driver" : hw_cuda(ordinal);

	T_RUN(whole_file_cold_and_warm);
	T_RUN(odd_lengths_and_offsets);
	T_RUN(scattered_pieces);
	T_RUN(strides_and_odd_segments);
	T_RUN(end_of_the_file);
	T_RUN(wrapped_parts);
	T_RUN(wrapped_chunks);
	T_RUN(each_path);
	T_RUN(stable_file);
	T_RUN(writes_back);
	T_RUN(writes_pieces);
	T_RUN(threads_with_queues);
	T_RUN(grant_to_another_process);
	T_RUN(grant_of_a_wrapped_part);
	return hw_done();
}
