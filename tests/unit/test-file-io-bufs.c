/* SPDX-License-Identifier: MIT */
/* Memory that io_uring registers when that pays. */
#include "file_io_rig.h"

#include "child.h"

/* Repeat the operation until its memory is registered or the reason against it is known.  With
 * threads, once. */
static void run_registered(struct io_op *op)
{
	uint64_t end = t_hang();

	do {
		op->pinned = false;
		op->pin_err = 0;
		run(op);
		T_EQ(op->res, op->len);
		T_EQ(t_differs(op->buf, SEED, op->off, op->len), op->len);
		T_CHECK(t_now() < end);
	} while (ops == &uring_backend && !op->pinned && !op->pin_err);
	T_EQ(op->pinned, ops == &uring_backend && !op->pin_err);
}

static void registered_buffers(void)
{
	struct io_buf *b;
	struct io_op op;

	set_up(8);
	T_OK(io_buf_new(mem, SIZE, &b));
	T_CHECK(b->nr);
	op = op_rw(IO_READ, mem + 4096, 12345, 100000);
	op.reg = b;
	run(&op);
	T_CHECK(!op.pinned && !op.pin_err); /* a single use is not worth registering */
	run_registered(&op);
	for (int i = 0; i < 3; i++) {
		memset(mem, 0, SIZE);
		run(&op);
		T_EQ(t_differs(mem + 4096, SEED, 12345, 100000), 100000);
		T_CHECK(op.pinned == (ops == &uring_backend) || op.pin_err);
	}
	op = op_rw(IO_WRITE, mem, 0, 4096);
	op.reg = b;
	t_fill(mem, SEED, 0, 4096);
	run(&op);
	T_EQ(op.res, 4096);
	io_buf_free(b);

	/* Other memory reuses the buffer's index: the old memory must not change. */
	memset(mem, 0x55, SIZE);
	T_OK(io_buf_new(mem + MIB(1), MIB(1), &b));
	op = op_rw(IO_READ, mem + MIB(1), 777, 5000);
	op.reg = b;
	run_registered(&op);
	for (size_t i = 0; i < MIB(1); i++)
		if (mem[i] != 0x55)
			T_FAIL("byte %zu of the old buffer was written", i);
	io_buf_free(b);
	tear_down();
}

/* An operation can use only one registered piece of a buffer. */
static void registered_buffers_beyond_a_piece(void)
{
	size_t len = IO_BUF_MAX + 65536;
	struct io_buf *b;
	struct io_op op;
	uint8_t *big;

	set_up(8);
	big = map(len);
	T_OK(io_buf_new(big, len, &b));
	T_EQ(b->nr, 2);

	/* Across the border between two pieces: no registration is used, and none is made. */
	op = op_rw(IO_READ, big + IO_BUF_MAX - 4096, 100, 8192);
	op.reg = b;
	for (int i = 0; i < 5; i++) {
		run(&op);
		T_EQ(op.res, 8192);
		T_CHECK(!op.pinned && !op.pin_err);
		T_EQ(t_differs(op.buf, SEED, 100, 8192), 8192);
	}

	/* Read into the second, small piece. */
	op = op_rw(IO_READ, big + IO_BUF_MAX + 4096, 100, 8192);
	op.reg = b;
	run_registered(&op);
	io_buf_free(b);
	(void)munmap(big, len);
	tear_down();
}

/* Return the process' bytes that the kernel pins for io_uring. */
static uint64_t pinned_bytes(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	unsigned long long kib = UINT64_MAX;
	char line[200];

	T_CHECK(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "VmPin: %llu", &kib) == 1)
			break;
	(void)fclose(f);
	T_CHECK(kib != UINT64_MAX);
	return kib << 10;
}

static size_t pages_there(void *at, size_t len)
{
	unsigned char *there = malloc(len / 4096);
	size_t nr = 0;

	T_CHECK(there);
	T_EQ(mincore(at, len, there), 0);
	for (size_t i = 0; i < len / 4096; i++)
		nr += there[i] & 1;
	free(there);
	return nr;
}

/* Map small pages, so that only touched pages are present. */
static uint8_t *map_small(size_t len)
{
	uint8_t *p = map(len);

	(void)madvise(p, len, MADV_NOHUGEPAGE);
	return p;
}

/* Pages that nobody touched are neither registered nor brought in. */
static void registers_what_is_there(void)
{
	const size_t len = GIB(2), far = MIB(7);
	uint64_t before = pinned_bytes();
	struct io_op op;
	struct io_buf *b;
	uint8_t *big;

	if (sysconf(_SC_PAGESIZE) != 4096)
		T_SKIP("pages of 4096 bytes");
	set_up(8);
	big = map_small(len);
	T_OK(io_buf_new(big, len, &b));
	for (unsigned i = 0; i < 8192; i++) {
		op = op_rw(IO_READ, big + (i & 1 ? far : 0), 4096, 4096);
		op.reg = b;
		run(&op);
		T_EQ(op.res, 4096);
		T_CHECK(!op.pinned && !op.pin_err);
	}
	T_EQ(pages_there(big, len), 2);
	T_EQ(pinned_bytes(), before);

	/*
	 * Once the pages between the two ranges exist, the buffer can be registered, up to those
	 * ranges.
	 */
	memset(big + 4096, 1, far - 4096);
	for (unsigned i = 0; i < 8192 && !op.pinned && !op.pin_err; i++)
		run(&op);
	if (ops == &uring_backend && !op.pin_err) {
		T_CHECK(op.pinned);
		T_EQ(pinned_bytes(), before + far + 4096);
	}
	T_EQ(pages_there(big, len), far / 4096 + 1);

	/* The registration grows with later operations. */
	op = op_rw(IO_READ, big + far + 4096, 4096, 4096);
	op.reg = b;
	for (unsigned i = 0; i < 8192 && !op.pinned && !op.pin_err; i++)
		run(&op);
	if (op.pinned)
		T_EQ(pinned_bytes(), before + far + 8192);
	io_buf_free(b);
	T_EQ(pinned_bytes(), before);
	(void)munmap(big, len);
	tear_down();
}

/* Each byte moves once: registering would cost more than it saves. */
static void registers_nothing_that_is_read_once(void)
{
	uint64_t before = pinned_bytes();
	struct io_buf *b;
	struct io_op op;

	set_up(8);
	memset(mem, 1, SIZE);
	T_OK(io_buf_new(mem, SIZE, &b));
	for (uint64_t at = 0; at < SIZE; at += 65536) {
		op = op_rw(IO_READ, mem + at, at, 65536);
		op.reg = b;
		run(&op);
		T_CHECK(!op.pinned && !op.pin_err);
	}
	T_EQ(pinned_bytes(), before);
	io_buf_free(b);
	tear_down();
}

#define LIMIT KIB(256) /* newer kernels count the ring, too */
#define FIRST KIB(128)
#define SECOND KIB(192)

/* Other programs of the user also lock memory, so its amount may change: skip then. */
static void others_lock(void)
{
	T_SKIP("this user has locked memory in other processes");
}

/* Run as a user who has to respect RLIMIT_MEMLOCK: above the limit the kernel is not called. */
static void little_memlock_here(void)
{
	struct rlimit rl = { LIMIT, LIMIT };
	struct io_buf *b[2];
	struct io_op op[2];
	bool stranger = getuid() == 0;
	uint64_t before, end;
	int r;

	set_up(8);
	io_ctx_free(ctx);
	(void)munmap(mem, SIZE);
	mem = map_small(SIZE); /* the kernel counts whole huge pages */
	memset(mem, 1, SIZE);
	if (setrlimit(RLIMIT_MEMLOCK, &rl) < 0 || (stranger && setuid(t_stranger()) < 0))
		T_SKIP("another user: %s", strerror(errno));
	r = io_ctx_new(ops, 8, &ctx);
	if (r == -ENOMEM && !stranger)
		others_lock();
	T_OK(r);
	before = pinned_bytes();
	T_OK(fault_set("file.pin:1000000:ENOMEM")); /* only counts the passes */
	for (int i = 0; i < 2; i++) {
		T_OK(io_buf_new(mem + i * MIB(1), MIB(1), &b[i]));
		op[i] = op_rw(IO_READ, mem + i * MIB(1), 4096, i ? SECOND : FIRST);
		op[i].reg = b[i];
	}
	run_registered(&op[0]);
	if (!op[0].pinned) {
		T_EQ(fault_passed(FAULT_FILE_PIN), 1);
		others_lock();
	}
	T_EQ(pinned_bytes(), before + FIRST);
	/* Registering may use only a share of the time, so on a busy machine it takes longer. */
	end = now_ns() + 20 * NSEC_PER_SEC;
	for (int i = 0; i < 200 || (op[1].pin_err != ENOMEM && now_ns() < end); i++) {
		run(&op[1]);
		T_EQ(op[1].res, SECOND);
		T_CHECK(!op[1].pinned);
	}
	T_EQ(op[1].pin_err, ENOMEM);
	T_EQ(fault_passed(FAULT_FILE_PIN), 1); /* the one pass is for the first buffer */
	T_EQ(pinned_bytes(), before + FIRST);

	/* With room under the limit the buffer is registered. */
	io_buf_free(b[0]);
	end = now_ns() + 20 * NSEC_PER_SEC;
	while (!op[1].pinned && now_ns() < end)
		run(&op[1]);
	if (!op[1].pinned && !stranger && fault_passed(FAULT_FILE_PIN) > 1)
		others_lock();
	T_CHECK(op[1].pinned && !op[1].pin_err);
	T_EQ(fault_passed(FAULT_FILE_PIN), 2);
	T_EQ(pinned_bytes(), before + SECOND);

	/* Freeing the context frees the room. */
	T_OK(fault_set(NULL));
	io_ctx_free(ctx);
	T_EQ(pinned_bytes(), before);
	r = io_ctx_new(ops, 8, &ctx);
	if (r == -ENOMEM && !stranger)
		others_lock();
	T_OK(r);
	op[0].reg = b[1];
	op[0].buf = mem + MIB(1);
	run_registered(&op[0]);
	if (!op[0].pinned && !stranger)
		others_lock();
	T_CHECK(op[0].pinned);
	io_buf_free(b[1]);
	tear_down();
}

static void little_memlock(void)
{
	child_run(little_memlock_here);
}

static void registration_that_fails(void)
{
	struct io_buf *b;

	set_up(8);
	T_OK(fault_set("file.pin:0:ENOMEM"));
	T_OK(io_buf_new(mem, SIZE, &b));
	for (int i = 0; i < 100; i++) {
		struct io_op op = op_rw(IO_READ, mem + 65536 * (i & 3), 0, 4096);

		op.reg = b;
		memset(mem, 0, 4 * 65536);
		run(&op);
		T_EQ(op.res, 4096);
		T_CHECK(!op.pinned);
		if (i == 99)
			T_EQ(op.pin_err, ops == &uring_backend ? ENOMEM : 0);
	}
	/* Registering is tried once, not for each operation. */
	T_EQ(fault_passed(FAULT_FILE_PIN), ops == &uring_backend);
	io_buf_free(b);
	tear_down();
}

static void buffers_without_a_place(void)
{
	struct io_buf *b[IO_NR_BUFS + 1];
	struct io_op op;

	set_up(8);
	for (unsigned i = 0; i < ARRAY_SIZE(b); i++)
		T_OK(io_buf_new(mem, 4096, &b[i]));
	T_EQ(b[IO_NR_BUFS]->nr, 0);
	op = op_rw(IO_READ, mem, 0, 4096);
	op.reg = b[IO_NR_BUFS];
	run(&op);
	T_EQ(op.res, 4096);
	T_CHECK(!op.pinned);
	for (unsigned i = 0; i < ARRAY_SIZE(b); i++)
		io_buf_free(b[i]);
	tear_down();
}

static void cases(void)
{
	RUN(registered_buffers);
	RUN(registered_buffers_beyond_a_piece);
	RUN(registers_what_is_there);
	RUN(registers_nothing_that_is_read_once);
	if (ops == &uring_backend)
		RUN(little_memlock);
	RUN(registration_that_fails);
	RUN(buffers_without_a_place);
}

int main(void)
{
	return run_over_backends(cases);
}
