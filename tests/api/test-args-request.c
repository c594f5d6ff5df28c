/* SPDX-License-Identifier: MIT */
/*
 * Wrong arguments of queues and requests: each call fails with an error and a text, and has no
 * effect.
 */
#include "args.h"

/* ----------------------------------------------------------------- queues */

static int try_queue(uint32_t depth, uint32_t backend, uint32_t flags)
{
	struct pst_queue_opts o = {
		.sz = sizeof(o), .depth = depth, .backend = backend, .flags = flags
	};
	struct pst_queue *n = NULL;
	int r = pst_queue_new(&o, &n);

	pst_queue_free(n);
	return r;
}

static void queues(void)
{
	struct pst_done d[4];

	make_valid();
	FAILS(try_queue(4097, 0, 0), EINVAL, "4097");
	FAILS(try_queue(UINT32_MAX, 0, 0), EINVAL, "depth");
	FAILS(try_queue(0, 3, 0), EINVAL, "back end 3");
	FAILS(try_queue(0, 0, 2), EINVAL, "flags");
	WORKS(try_queue(0, 0, PST_QUEUE_FD_ONCE));
	WORKS(try_queue(4096, 0, 0));
	WORKS(try_queue(1, 0, 0));
	FAILS(pst_queue_reap(q, d, 0, 0, 0), EINVAL, "max");
	FAILS(pst_queue_reap(q, d, 2, 1, 0), EINVAL, "max");
	FAILS(pst_queue_reap(q, d, 0, UINT32_MAX, 0), EINVAL, "max");
	errno = MARK;
	T_EQ(pst_queue_reap(q, d, 0, 1, 0), 0);
	T_EQ(pst_queue_reap(q, d, 1, 4, PST_NO_DEADLINE), 0); /* nothing is in flight */
	T_EQ(pst_queue_submit(q), 0);
	T_EQ(errno, MARK);
	FAILS(pst_queue_cancel(q, 1), ENOENT, "1");
	T_CHECK(!pst_queue_free(NULL) && !pst_mem_free(NULL) && !pst_file_close(NULL));
	pst_grant_done(NULL);
	free_valid();
}

static void full_queue(void)
{
	struct pst_io io;
	struct pst_done d[4];

	make_valid();
	io = rig_io(PST_OP_READ, rd, mem, 0, 0, 100);
	for (unsigned i = 0; i < 4; i++)
		WORKS(pst_queue_prep(q, &io));
	FAILS(pst_queue_prep(q, &io), EAGAIN, "4");
	errno = MARK;
	T_EQ(pst_queue_submit(q), 4);
	T_EQ(errno, MARK);
	FAILS(pst_queue_prep(q, &io), EAGAIN, "4");
	T_EQ(pst_queue_reap(q, d, 1, 1, t_in_ms(RIG_WAIT_MS)), 1);
	T_EQ(errno, MARK);
	WORKS(pst_queue_prep(q, &io));
	T_EQ(pst_queue_submit(q), 1);
	T_EQ(pst_queue_reap(q, d, 4, 4, t_in_ms(RIG_WAIT_MS)), 4);
	free_valid();
}

/* --------------------------------------------------------------- requests */

static int prep(uint32_t op, struct pst_file *f, uint64_t file_off, uint64_t mem_off, uint64_t len)
{
	struct pst_io io = rig_io(op, f, mem, file_off, mem_off, len);

	return pst_queue_prep(q, &io);
}

static int prep_seg(struct pst_seg seg)
{
	struct pst_io io = {
		.op = PST_OP_READ, .file = rd, .mem = mem, .segs = &seg, .nr_segs = 1
	};

	return pst_queue_prep(q, &io);
}

static void requests(void)
{
	const uint64_t top = INT64_MAX;
	struct pst_io good, io;

	make_valid();
	good = io = rig_io(PST_OP_READ, rd, mem, 0, 0, 100);
	for (uint32_t op = 0; op < 20; op++) {
		io.op = op;
		if (op < PST_OP_READ || op > PST_OP_SYNC)
			FAILS(pst_queue_prep(q, &io), EINVAL, "operation");
	}
	io = good;
	for (uint32_t bit = 2; bit < 32; bit++) {
		io.flags = 1u << bit;
		FAILS(pst_queue_prep(q, &io), EINVAL,
		      io.flags == PST_IO_VERIFY ? "crc32cs" : "flags");
	}
	io = good;
	io.op = PST_OP_SYNC;
	io.flags = PST_IO_STRICT;
	FAILS(pst_queue_prep(q, &io), EINVAL, "flags");
	for (unsigned i = 0; i < 2; i++) {
		io = good;
		io.reserved[i] = 1;
		FAILS(pst_queue_prep(q, &io), EINVAL, "reserved");
	}
	io = good;
	io.file = NULL;
	FAILS(pst_queue_prep(q, &io), EINVAL, "file");
	io.op = PST_OP_SYNC;
	FAILS(pst_queue_prep(q, &io), EINVAL, "file");
	io = good;
	io.mem = NULL;
	FAILS(pst_queue_prep(q, &io), EINVAL, "memory");
	io = good;
	io.stream = &io;
	FAILS(pst_queue_prep(q, &io), EOPNOTSUPP, "stream");
	io = good;
	io.nr_segs = 1;
	FAILS(pst_queue_prep(q, &io), EINVAL, "segs");

	FAILS(prep(PST_OP_READ, rd, 0, 0, 0), EINVAL, "zero");
	FAILS(prep(PST_OP_READ, rd, 0, 0, 10001), ERANGE, "10000");
	FAILS(prep(PST_OP_READ, rd, 0, 10000, 1), ERANGE, "10000");
	FAILS(prep(PST_OP_READ, rd, 0, 9999, 2), ERANGE, "10000");
	FAILS(prep(PST_OP_READ, rd, 0, top, 1), EOVERFLOW, "memory");
	FAILS(prep(PST_OP_READ, rd, 0, UINT64_MAX, 1), EOVERFLOW, "memory");
	FAILS(prep(PST_OP_READ, rd, 0, 0, UINT64_MAX), EOVERFLOW, "");
	FAILS(prep(PST_OP_READ, rd, top, 0, 1), EOVERFLOW, "file");
	FAILS(prep(PST_OP_READ, rd, top - 98, 0, 100), EOVERFLOW, "file");
	FAILS(prep(PST_OP_READ, rd, UINT64_MAX, 0, 1), EOVERFLOW, "file");
	FAILS(prep(PST_OP_READ, wr, 0, 0, 1), EBADF, "reading");
	FAILS(prep(PST_OP_WRITE, rd, 0, 0, 1), EBADF, "writing");
	WORKS(prep(PST_OP_READ, rd, top - 100, 0, 100));
	WORKS(prep(PST_OP_READ, rd, 0, 9999, 1));
	free_valid();
}

static void segments(void)
{
	const uint64_t big = UINT64_C(1) << 62;
	struct pst_seg two[2] = { { 0, 0, 1, 0, 0, 1 }, { 0, 0, 0, 0, 0, 1 } };
	struct pst_io io;

	make_valid();
	io = (struct pst_io){ .op = PST_OP_READ, .file = rd, .mem = mem, .segs = two };
	FAILS(pst_queue_prep(q, &io), EINVAL, "nr_segs");
	io.nr_segs = PST_SEGS_MAX + 1;
	FAILS(pst_queue_prep(q, &io), EINVAL, "nr_segs");
	io.nr_segs = UINT64_MAX;
	FAILS(pst_queue_prep(q, &io), EINVAL, "nr_segs");
	io.nr_segs = 2;
	FAILS(pst_queue_prep(q, &io), EINVAL, "segment 1");
	two[1].len = 10001;
	FAILS(pst_queue_prep(q, &io), ERANGE, "segment 1");
	FAILS(prep_seg((struct pst_seg){ 0, 0, 1, 1, 1, 10001 }), ERANGE, "segment 0");
	FAILS(prep_seg((struct pst_seg){ 0, 0, 1, 1, 5000, 3 }), ERANGE, "segment 0");
	FAILS(prep_seg((struct pst_seg){ 0, 0, 1, 1, UINT64_MAX, 2 }), EOVERFLOW, "memory");
	FAILS(prep_seg((struct pst_seg){ 0, 0, 1, 1, big, 5 }), EOVERFLOW, "memory");
	FAILS(prep_seg((struct pst_seg){ 0, 0, 1, big, 0, 3 }), EOVERFLOW, "file");
	FAILS(prep_seg((struct pst_seg){ 0, 0, 1, UINT64_MAX, 0, 2 }), EOVERFLOW, "file");
	FAILS(prep_seg((struct pst_seg){ 0, 0, 1, UINT64_MAX, 0, UINT64_MAX }), EOVERFLOW, "file");
	/* Every piece is in range, but there are too many. */
	FAILS(prep_seg((struct pst_seg){ 0, 0, 10000, 0, 0, UINT64_MAX }), EINVAL, "pieces");
	FAILS(prep_seg((struct pst_seg){ 0, 0, 1, 0, 0, (1u << 24) + 1 }), EINVAL, "pieces");
	two[0] = two[1] = (struct pst_seg){ 0, 0, 1, 0, 0, 1u << 24 };
	FAILS(pst_queue_prep(q, &io), EINVAL, "pieces");
	WORKS(prep_seg((struct pst_seg){ 0, 0, 1, UINT64_MAX, UINT64_MAX, 1 }));
	WORKS(prep_seg((struct pst_seg){ 0, 0, 1, UINT64_MAX, UINT64_MAX, 0 }));
	WORKS(prep_seg((struct pst_seg){ 0, 0, 1, 1, 1, 10000 }));
	free_valid();
}

static void paths(void)
{
	struct pst_path_info info = { .sz = sizeof(info) };

	make_valid();
	FAILS(pst_path_check(rd, mem, 0, PST_PATH_DIRECT, &info), EINVAL, "operation");
	FAILS(pst_path_check(rd, mem, PST_OP_SYNC, PST_PATH_DIRECT, &info), EINVAL, "operation");
	FAILS(pst_path_check(rd, mem, PST_OP_READ, 0, &info), EINVAL, "path");
	FAILS(pst_path_check(rd, mem, PST_OP_READ, 14, &info), EINVAL, "path");
	FAILS(pst_path_check(rd, mem, PST_OP_READ, UINT32_MAX, &info), EINVAL, "path");
	free_valid();
}

static void names(void)
{
	struct pst_done d = { .op = 99, .why = 99, .paths = UINT32_MAX, .res = INT64_MIN };
	char buf[300];

	errno = MARK;
	for (uint32_t i = 0; i < 40; i++) {
		T_CHECK(pst_path_name(i)[0]);
		T_CHECK(pst_why_name(i)[0]);
		for (size_t len = 1; len < 40; len++) {
			memset(buf, 0x5a, sizeof(buf));
			T_CHECK(pst_why_text(i, -7, buf, len) == buf);
			T_CHECK(memchr(buf, 0, len));
			T_EQ(buf[len], 0x5a);
			memset(buf, 0x5a, sizeof(buf));
			d.op = i;
			T_CHECK(pst_done_text(&d, buf, len) == buf);
			T_CHECK(memchr(buf, 0, len));
			T_EQ(buf[len], 0x5a);
		}
	}
	d = (struct pst_done){ .op = PST_OP_READ, .res = -EIO, .why = PST_WHY_DIRECTION };
	T_CHECK(!strstr(pst_done_text(&d, buf, sizeof(buf)), "complete"));
	d.prefix = 4096;
	T_CHECK(strstr(pst_done_text(&d, buf, sizeof(buf)), "the first 4096 bytes are complete"));
	T_EQ(strcmp(pst_path_name(PST_PATH_DIRECT), "direct"), 0);
	T_EQ(strcmp(pst_path_name(1000), "unknown"), 0);
	T_EQ(strcmp(pst_why_name(PST_WHY_UNALIGNED), "unaligned"), 0);
	T_EQ(strcmp(pst_why_name(1000), "unknown"), 0);
	T_CHECK(pst_version()[0]);
	T_EQ(errno, MARK);
}

static void no_failure_yet(void)
{
	T_EQ(strcmp(pst_error_text(), ""), 0);
}

int main(void)
{
	rig_init();
	RIG_RUN1(no_failure_yet);
	RIG_RUN1(queues);
	RIG_RUN1(full_queue);
	RIG_RUN1(requests);
	RIG_RUN1(segments);
	RIG_RUN1(paths);
	RIG_RUN1(names);
	return rig_done();
}
