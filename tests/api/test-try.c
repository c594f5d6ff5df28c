/* SPDX-License-Identifier: MIT */
/*
 * pst_queue_try(): cached bytes are copied within the call, and any other request is refused
 * without a trace.
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "rig.h"

#define SEED 5
#define FILE_LEN RIG_MIB(4)
#define PIECE 4096u
#define WARM 64u /* reads until the library knows that the file is cached */

static struct pst_file *file;
static struct pst_mem *mem;

static int try(uint64_t file_off, uint64_t mem_off, uint64_t len, struct pst_done *ret)
{
	struct pst_io io = rig_io(PST_OP_READ, file, mem, file_off, mem_off, len);

	io.user_data = 77;
	return pst_queue_try(rig_q, &io, 1, ret);
}

/* Return scattered offsets: reads in order would say nothing of the rest of the file. */
static uint64_t scattered(unsigned i)
{
	return i * 37 % (FILE_LEN / PIECE) * PIECE;
}

static void begin(void)
{
	rig_make(rig_path("data"), SEED, FILE_LEN);
	rig_warm(rig_path("data"));
	file = rig_open(rig_path("data"), RIG_RW);
	mem = rig_alloc("host", RIG_MIB(4));
	rig_q = rig_queue(rig_best_backend(), 16);
	for (unsigned i = 0; i < WARM; i++)
		T_EQ(rig_read(file, mem, scattered(i), 0, PIECE).res, PIECE);
}

static void end(void)
{
	pst_mem_free(mem);
	pst_file_close(file);
}

/* Skip if the file system cannot read cached bytes only (RWF_NOWAIT). */
static void needs_try(void)
{
	struct pst_done d;

	if (!try(0, 0, PIECE, &d))
		T_SKIP("a file system with RWF_NOWAIT");
}

static void bytes_and_completion(void)
{
	struct pst_stats before, after;
	struct pst_done d;

	begin();
	needs_try();
	before = rig_stats(rig_q);
	for (uint64_t len = 1; len <= RIG_MIB(1); len = len * 3 + 1) {
		uint64_t off = rig_below(FILE_LEN - len), at = rig_below(RIG_MIB(4) - len);

		memset(&d, 0xff, sizeof(d));
		T_EQ(try(off, at, len, &d), 1);
		T_EQ(d.res, len);
		T_EQ(d.prefix, len);
		T_EQ(d.user_data, 77);
		T_EQ(d.op, PST_OP_READ);
		T_EQ(d.paths, PST_PATH_BIT(PST_PATH_CACHED));
		T_EQ(d.flags, 0);
		T_EQ(rig_mem_differs(mem, at, len, SEED, off), len);
		before.requests++;
		before.bytes[PST_PATH_CACHED] += len;
	}
	after = rig_stats(rig_q);
	T_EQ(after.requests, before.requests);
	T_EQ(after.bytes[PST_PATH_CACHED], before.bytes[PST_PATH_CACHED]);
	T_EQ(after.inflight, 0);
	end();
}

/* Try many requests at once, some of which must be refused. */
static void many(void)
{
	static struct pst_io io[200];
	static struct pst_done d[200];
	unsigned good = 0;
	int moved;

	begin();
	needs_try();
	for (unsigned nr = 1; nr <= 200; nr += 1 + nr / 3) {
		memset(pst_mem_ptr(mem), 0xee, 200 * PIECE);
		for (unsigned i = 0; i < nr; i++) {
			io[i] = rig_io(PST_OP_READ, file, mem, rig_below(FILE_LEN - PIECE),
				       i * PIECE, PIECE);
			io[i].user_data = 1000 + i;
			if (i % 7 == 3)
				io[i].op = PST_OP_WRITE;
			if (i % 11 == 5)
				io[i].file_off = FILE_LEN - 1;
		}
		memset(d, 0xff, sizeof(d));
		moved = pst_queue_try(rig_q, io, nr, d);
		good = 0;
		for (unsigned i = 0; i < nr; i++) {
			bool is = i % 7 != 3 && i % 11 != 5;

			T_EQ(d[i].user_data, 1000 + i);
			T_EQ(d[i].res, is ? (int)PIECE : -EAGAIN);
			T_EQ(d[i].op, io[i].op);
			if (is)
				T_EQ(rig_mem_differs(mem, i * PIECE, PIECE, SEED, io[i].file_off),
				     PIECE);
			good += is;
		}
		T_EQ(moved, good);
		T_EQ(rig_stats(rig_q).inflight, 0);
	}
	end();
}

/* Requests in flight complete during the tries, but are not reported by them. */
static void many_beside_requests(void)
{
	static struct pst_io io[64];
	static struct pst_done d[64];
	unsigned left = 0;

	begin();
	needs_try();
	for (unsigned round = 0; round < 200; round++) {
		for (unsigned i = 0; i < 8; i++) {
			struct pst_io r = rig_io(PST_OP_READ, file, mem, rig_below(FILE_LEN / 2),
						 RIG_MIB(2) + i * PIECE, PIECE);

			r.policy = i % 2 ? PST_POLICY1(PST_PATH_BUFFERED) : 0;
			T_OK(pst_queue_prep(rig_q, &r));
			left++;
		}
		T_EQ(pst_queue_submit(rig_q), 8);
		/* Make the automatic plan the queue's last one. */
		for (unsigned i = 0; i < 64; i++)
			io[i] = rig_io(PST_OP_READ, file, mem, rig_below(FILE_LEN - PIECE),
				       i * PIECE, PIECE);
		(void)pst_queue_try(rig_q, io, 64, d);
		for (unsigned i = 0; i < 64; i++)
			if (d[i].res != -EAGAIN)
				T_EQ(rig_mem_differs(mem, i * PIECE, PIECE, SEED, io[i].file_off),
				     PIECE);
		while (left) {
			T_EQ(rig_reap1(rig_q).res, PIECE);
			left--;
		}
	}
	end();
}

/*
 * Pieces of a request complete during the tries.  Pieces that had no room before must then start
 * without another call on the queue, whose descriptor wakes the sleeping program.
 */
static void next_pieces_go(void)
{
	struct pst_queue_opts o = { .sz = sizeof(o), .depth = 16, .flags = PST_QUEUE_FD_ONCE };
	struct pst_seg seg = { .mem_off = RIG_MIB(1),
			       .len = PIECE / 2,
			       .file_stride = PIECE,
			       .mem_stride = PIECE / 2,
			       .count = 700 };
	struct pollfd pfd = { .events = POLLIN };
	struct pst_io io[8];
	struct pst_done d[8];

	begin();
	needs_try();
	pst_queue_free(rig_q);
	T_OK(pst_queue_new(&o, &rig_q));
	for (unsigned round = 0; round < 20; round++) {
		struct pst_io pieces = rig_io(PST_OP_READ, file, mem, 0, 0, 0);
		struct pst_io hot = rig_io(PST_OP_READ, file, mem, 0, 0, PIECE);

		pieces.segs = &seg;
		pieces.nr_segs = 1;
		pieces.policy = PST_POLICY1(PST_PATH_BUFFERED);
		T_OK(pst_queue_prep(rig_q, &pieces));
		T_OK(pst_queue_prep(rig_q, &hot)); /* the tries' plan becomes the last one */
		T_EQ(pst_queue_submit(rig_q), 2);
		T_EQ(rig_reap1(rig_q).res, PIECE);
		for (unsigned i = 0; i < RIG_NR(io); i++)
			io[i] = rig_io(PST_OP_READ, file, mem, i * 2 * PIECE, i * PIECE, PIECE);
		T_CHECK(pst_queue_try(rig_q, io, RIG_NR(io), d) > 0);
		pfd.fd = pst_queue_fd(rig_q);
		T_EQ(poll(&pfd, 1, 5000), 1);
		T_EQ(rig_reap1(rig_q).res, seg.count * seg.len);
		T_EQ(rig_mem_differs(mem, RIG_MIB(1) + seg.len, seg.len, SEED, PIECE), seg.len);
	}
	end();
}

/* Requests that need pst_queue_prep() are refused: nothing happens, and nothing is counted. */
static void refused(void)
{
	struct pst_seg seg = { .len = PIECE, .count = 1 };
	struct pst_stats before, after;
	struct pst_done d;
	struct pst_io io;

	begin();
	before = rig_stats(rig_q);
#define REFUSED(change)                                           \
	do {                                                      \
		io = rig_io(PST_OP_READ, file, mem, 0, 0, PIECE); \
		change;                                           \
		T_EQ(pst_queue_try(rig_q, &io, 1, &d), 0);        \
	} while (0)
	REFUSED(io.op = PST_OP_WRITE);
	REFUSED(io.op = PST_OP_SYNC);
	REFUSED(io.op = 99);
	REFUSED(io.len = 0);
	REFUSED(io.len = RIG_MIB(1) + 1);
	REFUSED(io.flags = PST_IO_CRC32C);
	REFUSED(io.flags = PST_IO_STRICT);
	REFUSED((io.segs = &seg, io.nr_segs = 1));
	REFUSED(io.deadline_ns = PST_NO_DEADLINE);
	REFUSED(io.reserved[2] = 1);
	REFUSED(io.file = NULL);
	REFUSED(io.mem = NULL);
	REFUSED(io.mem_off = RIG_MIB(4) - PIECE + 1);
	REFUSED(io.mem_off = UINT64_MAX);
	REFUSED(io.file_off = FILE_LEN - 1); /* fewer bytes than asked for */
	REFUSED(io.file_off = FILE_LEN);
	REFUSED(io.file_off = INT64_MAX);
	REFUSED(io.policy = PST_POLICY1(PST_PATH_DIRECT));
	after = rig_stats(rig_q);
	T_EQ(after.requests, before.requests);
	T_EQ(memcmp(after.bytes, before.bytes, sizeof(after.bytes)), 0);
	end();
}

/* Bytes that are not cached are refused, and so are files and memory that the queue has not used
 * before. */
static void not_in_memory(void)
{
	uint64_t until = t_hang();
	struct pst_done d;
	struct pst_file *other;
	bool there;

	begin();
	needs_try();
	/* Drop again: pages that another CPU has just added stay for a moment. */
	do
		rig_cold(rig_path("data"));
	while ((there = try(RIG_MIB(2), 0, PIECE, &d)) && t_now() < until);
	if (there) {
		end();
		T_SKIP("a file system whose files leave memory");
	}
	T_EQ(rig_read(file, mem, RIG_MIB(2), 0, PIECE).res, PIECE);
	T_EQ(rig_mem_differs(mem, 0, PIECE, SEED, RIG_MIB(2)), PIECE);
	rig_warm(rig_path("data"));
	other = rig_open(rig_path("data"), RIG_R);
	{
		struct pst_io io = rig_io(PST_OP_READ, other, mem, 0, 0, PIECE);

		T_EQ(pst_queue_try(rig_q, &io, 1, &d), 0);
	}
	pst_file_close(other);
	end();
}

/* The second of two pages is not writable: that says nothing about the page cache. */
static void half_of_it(void)
{
	char *p = mmap(NULL, 2 * PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct pst_mem *wrapped;
	struct pst_done d;

	T_CHECK(p != MAP_FAILED);
	T_OK(pst_mem_wrap((uintptr_t)p, 2 * PIECE, NULL, &wrapped));
	T_EQ(mprotect(p + PIECE, PIECE, PROT_NONE), 0);
	for (unsigned i = 0; i < 20; i++) {
		struct pst_io io = rig_io(PST_OP_READ, file, wrapped, 0, 0, 2 * PIECE);

		d = rig_do(rig_q, &io);
		T_EQ(d.res, -EFAULT);
		T_EQ(d.prefix, PIECE);
	}
	T_EQ(rig_read(file, mem, 0, 0, PIECE).paths, PST_PATH_BIT(PST_PATH_CACHED));
	pst_mem_free(wrapped);
	T_EQ(munmap(p, 2 * PIECE), 0);
}

/* Memory that the kernel cannot write to is an error of the request, not a crash. */
static void hostile_memory(void)
{
	char *p = mmap(NULL, PIECE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct pst_mem *wrapped;
	struct pst_done d;

	begin();
	needs_try();
	T_CHECK(p != MAP_FAILED);
	T_OK(pst_mem_wrap((uintptr_t)p, PIECE, NULL, &wrapped));
	for (unsigned i = 0; i < 3; i++) {
		struct pst_io io = rig_io(PST_OP_READ, file, wrapped, 0, 0, PIECE);

		T_EQ(pst_queue_try(rig_q, &io, 1, &d), 0);
		T_EQ(rig_do(rig_q, &io).res, -EFAULT);
	}
	T_EQ(try(0, 0, PIECE, &d), 0); /* the queue's last plan was for the other memory */
	T_EQ(rig_read(file, mem, 0, 0, PIECE).res, PIECE);
	T_EQ(try(0, 0, PIECE, &d), 1);
	pst_mem_free(wrapped);
	T_EQ(munmap(p, PIECE), 0);
	half_of_it();
	end();
}

/* Requests that are prepared or in flight are not changed. */
static void beside_requests(void)
{
	struct pst_done d;
	struct pst_io io;

	begin();
	needs_try();
	io = rig_io(PST_OP_READ, file, mem, 0, PIECE, PIECE);
	T_OK(pst_queue_prep(rig_q, &io));
	T_EQ(try(PIECE, 0, PIECE, &d), 1);
	T_EQ(rig_mem_differs(mem, 0, PIECE, SEED, PIECE), PIECE);
	T_EQ(pst_queue_submit(rig_q), 1);
	T_EQ(try(2 * PIECE, 0, PIECE, &d), 1);
	T_EQ(rig_reap1(rig_q).res, PIECE);
	T_EQ(rig_mem_differs(mem, PIECE, PIECE, SEED, 0), PIECE);
	T_EQ(rig_mem_differs(mem, 0, PIECE, SEED, 2 * PIECE), PIECE);
	end();
}

/* Files in memory do not support RWF_NOWAIT, but all of their bytes are cached. */
static void file_in_memory(void)
{
	int fd = memfd_create("try", MFD_CLOEXEC);
	char page[PIECE];
	struct pst_done d;

	T_CHECK(fd >= 0);
	for (uint64_t off = 0; off < 2 * PIECE; off += PIECE) {
		memset(page, 'a' + (int)(off / PIECE), PIECE);
		T_EQ(pwrite(fd, page, PIECE, (off_t)off), PIECE);
	}
	T_OK(pst_file_wrap(fd, 0, NULL, &file));
	mem = rig_alloc("host", RIG_MIB(4));
	rig_q = rig_queue(rig_best_backend(), 16);
	for (unsigned i = 0; i < WARM; i++)
		T_EQ(rig_read(file, mem, 0, 0, PIECE).res, PIECE);
	T_EQ(try(PIECE - 1, 0, 2, &d), 1);
	T_EQ(d.res, 2);
	T_EQ(d.paths, PST_PATH_BIT(PST_PATH_CACHED));
	T_EQ(memcmp(pst_mem_ptr(mem), "ab", 2), 0);
	T_EQ(try(2 * PIECE - 1, 0, 2, &d), 0); /* past the end of the file */
	T_EQ(close(fd), 0);
	end();
}

/* Blocking calls use the same path, and report it like any other read. */
static void by_calls_that_wait(void)
{
	struct pst_done first, d;

	begin();
	T_EQ(pst_read(file, 0, mem, 0, PIECE, &first), PIECE);
	for (unsigned i = 0; i < WARM; i++) {
		T_EQ(pst_read(file, scattered(i), mem, scattered(i), PIECE, &d), PIECE);
		T_EQ(rig_mem_differs(mem, scattered(i), PIECE, SEED, scattered(i)), PIECE);
		T_EQ(d.user_data, first.user_data);
		T_EQ(d.prefix, PIECE);
		T_EQ(d.paths, PST_PATH_BIT(PST_PATH_CACHED));
	}
	T_EQ(pst_read(file, FILE_LEN - 1, mem, 0, 1, &d), 1);
	T_EQ(pst_read(file, FILE_LEN, mem, 0, 1, &d), 0);
	T_EQ(pst_read(file, 0, mem, RIG_MIB(4), 1, &d), -ERANGE);
	T_EQ(pst_read(NULL, 0, mem, 0, 1, &d), -EINVAL);
	T_EQ(pst_readv(file, NULL, 1, NULL, &d), -EINVAL);
	end();
}

/* Check that two completions report the same. */
static void same_result(const struct pst_done *a, const struct pst_done *b)
{
	T_EQ(a->res, b->res);
	T_EQ(a->prefix, b->prefix);
	T_EQ(a->paths, b->paths);
	T_EQ(a->why, b->why);
	T_EQ(a->detail, b->detail);
	T_EQ(a->flags, b->flags);
}

/* The CPU reaches device memory through a window. */
static void into_a_device(void)
{
	uint32_t paths = PST_PATH_BIT(PST_PATH_CACHED) | PST_PATH_BIT(PST_PATH_WINDOW);
	struct pst_stats before, after;
	struct pst_done d, request;
	struct pst_io io[8];
	struct pst_done ds[8];

	begin();
	needs_try();
	pst_mem_free(mem);
	mem = rig_alloc("soft", FILE_LEN);
	rig_mem_fill(mem, 0, FILE_LEN, 99, 0);
	T_EQ(try(0, 0, PIECE, &d), 0); /* memory that the queue has not used before */
	request = rig_read(file, mem, 0, 0, PIECE);
	T_EQ(request.paths, paths);
	for (unsigned i = 0; i < WARM; i++)
		T_EQ(rig_read(file, mem, scattered(i), 0, PIECE).res, PIECE);
	before = rig_stats(rig_q);
	T_EQ(try(PIECE, 10001, PIECE, &d), 1);
	same_result(&d, &request);
	T_EQ(rig_mem_differs(mem, 10001, PIECE, SEED, PIECE), PIECE);
	T_EQ(rig_mem_differs(mem, 10001 + PIECE, PIECE, 99, 10001 + PIECE), PIECE);
	for (unsigned i = 0; i < RIG_NR(io); i++)
		io[i] = rig_io(PST_OP_READ, file, mem, scattered(i), RIG_MIB(1) + i * PIECE, PIECE);
	T_EQ(pst_queue_try(rig_q, io, RIG_NR(io), ds), RIG_NR(io));
	for (unsigned i = 0; i < RIG_NR(io); i++) {
		same_result(&ds[i], &request);
		T_EQ(rig_mem_differs(mem, RIG_MIB(1) + i * PIECE, PIECE, SEED, scattered(i)),
		     PIECE);
	}
	after = rig_stats(rig_q);
	T_EQ(after.requests, before.requests + 1 + RIG_NR(io));
	T_EQ(after.bytes[PST_PATH_CACHED] - before.bytes[PST_PATH_CACHED], 9 * PIECE);
	T_EQ(after.bytes[PST_PATH_WINDOW] - before.bytes[PST_PATH_WINDOW], 9 * PIECE);
	/* Refuse requests that the engine must move, and invalid ones. */
	T_EQ(try(0, 0, RIG_MIB(1), &d), 0);
	T_EQ(try(FILE_LEN - 1, 0, 2, &d), 0);
	T_EQ(try(0, FILE_LEN - 1, 2, &d), 0);
	io[0].policy = PST_POLICY1(PST_PATH_STAGED);
	T_EQ(pst_queue_try(rig_q, io, 1, &d), 0);
	T_EQ(rig_do(rig_q, &io[0]).res, PIECE);
	/* the queue has kept the last plan, which lists no window */
	T_EQ(pst_queue_try(rig_q, io, 1, &d), 0);
	/* A try between prep and submit of another request works. */
	T_EQ(rig_read(file, mem, 0, 0, PIECE).res, PIECE);
	T_OK(pst_queue_prep(rig_q, &io[1]));
	T_EQ(try(PIECE, 10001, PIECE, &d), 1);
	T_EQ(pst_queue_submit(rig_q), 1);
	T_EQ(rig_reap1(rig_q).res, PIECE);
	end();
}

/* Check that a blocking call reports the same as a request in the same memory. */
static void device_by_calls_that_wait(void)
{
	struct pst_done request, d;

	begin();
	pst_mem_free(mem);
	mem = rig_alloc("soft", FILE_LEN);
	request = rig_read(file, mem, 0, 0, PIECE);
	for (unsigned i = 0; i < WARM; i++) {
		uint64_t off = scattered(i);

		T_EQ(pst_read(file, off, mem, off + 1, PIECE, &d), PIECE);
		same_result(&d, &request);
		T_EQ(rig_mem_differs(mem, off + 1, PIECE, SEED, off), PIECE);
	}
	end();
}

static atomic_bool came_back;

static void *try_cancelled(void *arg)
{
	struct pst_done d;

	(void)arg;
	T_EQ(pthread_cancel(pthread_self()), 0);
	(void)try(0, 0, PIECE, &d);
	atomic_store(&came_back, true);
	pthread_testcancel();
	return NULL;
}

/* Cancel a thread in the call that opens a window and takes its locks: the call must finish
 * before the thread ends. */
static void cancelled_at_the_first_window(void)
{
	struct pst_done d;
	pthread_t t;
	void *how;

	begin();
	needs_try();
	pst_mem_free(mem);
	mem = rig_alloc("soft", FILE_LEN);
	/* Too long for a window, so none is opened. */
	T_EQ(rig_read(file, mem, 0, 0, FILE_LEN).res, FILE_LEN);
	T_EQ(pthread_create(&t, NULL, try_cancelled, NULL), 0);
	T_EQ(pthread_join(t, &how), 0);
	T_CHECK(how == PTHREAD_CANCELED);
	T_CHECK(atomic_load(&came_back));
	T_EQ(try(PIECE, 0, PIECE, &d), 1);
	T_EQ(rig_mem_differs(mem, 0, PIECE, SEED, PIECE), PIECE);
	end();
}

int main(void)
{
	rig_init();
	rig_run1("bytes_and_completion", bytes_and_completion);
	rig_run1("many", many);
	rig_run1("many_beside_requests", many_beside_requests);
	rig_run1("next_pieces_go", next_pieces_go);
	rig_run1("refused", refused);
	rig_run1("not_in_memory", not_in_memory);
	rig_run1("hostile_memory", hostile_memory);
	rig_run1("beside_requests", beside_requests);
	rig_run1("file_in_memory", file_in_memory);
	rig_run1("by_calls_that_wait", by_calls_that_wait);
	rig_run1("into_a_device", into_a_device);
	rig_run1("device_by_calls_that_wait", device_by_calls_that_wait);
	rig_run1("cancelled_at_the_first_window", cancelled_at_the_first_window);
	return rig_done();
}
