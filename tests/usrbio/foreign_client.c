/* SPDX-License-Identifier: MIT */
/*
 * usrbio-foreign-client MOUNTPOINT FILE
 *
 * Test properties of rings that a client of 3FS relies on, against any daemon, without the library.
 * Prints TAP.  FILE.more is made and removed too.
 */
#include <sys/ioctl.h>

#include "foreign_client.h"

static char more[330];

/* -------------------------------------------------------------- plain I/O */

static void ring_up(struct peer_ring *r, struct peer_ring_opts opts)
{
	T_EQ(peer_ring_init(r, mnt, &opts), 0);
}

/* Expect published numbers as literals, because client and daemon here use one header. */
static void rings_are_laid_out_as_published(void)
{
	struct wire_ring r;
	uint8_t *base = buf.base;

	T_EQ(wire_ring_size(1024), 102544);
	T_EQ(wire_ring_size(1), 16 + 32 + 96 * 2 + 4096);
	T_CHECK(wire_ring_at(base, 102544, &r));
	T_EQ(r.n, 1025);
	T_EQ((uint8_t *)&r.marks->sqe_tail - base, 4);
	T_EQ((uint8_t *)&r.marks->cqe_head - base, 8);
	T_EQ((uint8_t *)&r.marks->cqe_tail - base, 12);
	T_EQ((uint8_t *)r.args - base, 16);
	T_EQ((uint8_t *)r.cqes - base, 16 + 56 * 1025);
	T_EQ((uint8_t *)r.sqes - base, 16 + 80 * 1025);
	T_EQ((uint8_t *)r.done - base, 16 + 96 * 1025);
	/* Bytes that are too few for another slot stay unused. */
	T_CHECK(wire_ring_at(base, 102544 + 95, &r));
	T_EQ(r.n, 1025);
	T_CHECK(!wire_ring_at(base, 16 + 32 + 96 * 2 + 4095, &r));
}

static void one_at_a_time(void)
{
	struct peer_ring w, r;

	ring_up(&w, (struct peer_ring_opts){ .entries = 1 });
	ring_up(&r, (struct peer_ring_opts){ .entries = 1, .for_read = true });
	T_EQ(ftruncate(file.fd, 0), 0);
	t_fill(buf.base, SEED, 0, 64 * KIB);
	for (uint64_t off = 0; off < 64 * KIB; off += 4 * KIB)
		T_EQ(run(&w, io_at(off, off, 4 * KIB)), 4 * KIB);
	memset(buf.base, 0, BUF_SIZE);
	for (uint64_t off = 0; off < 64 * KIB; off += 8 * KIB)
		T_EQ(run(&r, io_at(128 * KIB + off, off, 8 * KIB)), 8 * KIB);
	expect_pattern(128 * KIB, 0, 64 * KIB);
	T_CHECK(is_all(buf.base, 0, 128 * KIB));
	peer_ring_done(&w);
	peer_ring_done(&r);
}

/* Fill a ring, submit once, take all completions; check results and the client's own
 * bookkeeping. */
static void fill_ring(bool for_read)
{
	const int entries = 64;
	struct wire_cqe c[64];
	struct peer_ring r;

	ring_up(&r, (struct peer_ring_opts){ .entries = entries, .for_read = for_read });
	for (int round = 0; round < 3; round++) {
		struct peer_io io;

		for (int i = 0; i < entries; i++) {
			io = io_at((uint64_t)i * 1000, (uint64_t)i * 1000, 1000);
			T_CHECK(peer_prep(&r, &io) >= 0);
		}
		T_EQ(peer_prep(&r, &io), -EAGAIN);
		peer_submit(&r);
		T_EQ(peer_reap(&r, c, entries, entries, WAIT_MS), entries);
		for (int i = 0; i < entries; i++)
			T_EQ(c[i].result, 1000);
		T_EQ(peer_reap(&r, c, entries, 0, 0), 0);
		T_EQ(atomic_load(&r.wire.marks->sqe_tail), atomic_load(&r.wire.marks->sqe_head));
	}
	peer_ring_done(&r);
}

static void full_rings(void)
{
	T_EQ(ftruncate(file.fd, 0), 0);
	t_fill(buf.base, SEED, 0, 64000);
	fill_ring(false);
	memset(buf.base, 0, BUF_SIZE);
	fill_ring(true);
	expect_pattern(0, 0, 64000);
}

static void indices_wrap_many_times(void)
{
	enum { ENTRIES = 6, IOS = 3000, LEN = 512 };
	struct wire_cqe c[ENTRIES];
	struct peer_ring r;
	int put = 0, got = 0;

	fill_file(64 * KIB);
	ring_up(&r, (struct peer_ring_opts){ .entries = ENTRIES, .for_read = true });
	while (got < IOS) {
		/* Add 1 to 6 requests each time, so that every position occurs with every
		 * distance. */
		for (int i = 0; i <= got % ENTRIES && put < IOS; i++) {
			uint64_t at = (uint64_t)(put % 128) * LEN;
			struct peer_io io = io_at(at, at, LEN);

			if (peer_prep(&r, &io) < 0)
				break;
			put++;
		}
		peer_submit(&r);
		int n = peer_reap(&r, c, ENTRIES, 1, WAIT_MS);

		T_CHECK(n > 0);
		for (int i = 0; i < n; i++)
			T_EQ(c[i].result, LEN);
		got += n;
	}
	T_EQ(put, got);
	expect_pattern(0, 0, 64 * KIB);
	peer_ring_done(&r);
}

/* A ring and system calls see the same file, at any offset and length. */
static void mount_and_ring_agree(void)
{
	static const struct {
		uint64_t buf_off, file_off, len;
	} ios[] = { { 1, 0, 1 }, { 3, 4095, 2 }, { 100, 12345, 54321 }, { 0, 1, 262143 } };
	uint8_t *seen = malloc(BUF_SIZE);
	struct peer_ring w, r;
	struct peer_file again;

	T_CHECK(seen);
	ring_up(&w, (struct peer_ring_opts){ .entries = 4 });
	ring_up(&r, (struct peer_ring_opts){ .entries = 4, .for_read = true });
	for (size_t i = 0; i < sizeof(ios) / sizeof(ios[0]); i++) {
		fill_file(256 * KIB);
		T_EQ(run(&r, io_at(ios[i].buf_off, ios[i].file_off, ios[i].len)), ios[i].len);
		expect_pattern(ios[i].buf_off, ios[i].file_off, ios[i].len);
		T_CHECK(is_all(buf.base, 0xaa, ios[i].buf_off));
		T_EQ(buf.base[ios[i].buf_off + ios[i].len], 0xaa);

		t_fill(buf.base + ios[i].buf_off, SEED + 1, ios[i].file_off, ios[i].len);
		T_EQ(run(&w, io_at(ios[i].buf_off, ios[i].file_off, ios[i].len)), ios[i].len);
		T_EQ(peer_fsync(&file), 0);
		T_EQ(peer_open(&again, path, O_RDONLY), 0);
		T_EQ(again.ino, file.ino);
		T_EQ(pread(again.fd, seen, BUF_SIZE, 0), 256 * KIB);
		peer_close(&again);
		T_EQ(t_differs(seen, SEED, 0, ios[i].file_off), ios[i].file_off);
		T_EQ(t_differs(seen + ios[i].file_off, SEED + 1, ios[i].file_off, ios[i].len),
		     ios[i].len);
	}
	peer_ring_done(&w);
	peer_ring_done(&r);
	free(seen);
}

static void fsync_shows_the_size(void)
{
	struct peer_ring w;
	struct stat st;

	ring_up(&w, (struct peer_ring_opts){ .entries = 2 });
	T_EQ(ftruncate(file.fd, 0), 0);
	T_EQ(fstat(file.fd, &st), 0);
	T_EQ(st.st_size, 0);
	T_EQ(run(&w, io_at(0, 700000, 12345)), 12345);
	T_EQ(peer_fsync(&file), 0);
	T_EQ(fstat(file.fd, &st), 0);
	T_EQ(st.st_size, 712345);
	peer_ring_done(&w);
}

/* Programs unlink Python's shared memory as soon as the link exists. */
static void memory_without_a_name(void)
{
	struct peer_iov iov;
	struct peer_ring r;
	struct peer_io io;

	fill_file(8 * KIB);
	T_EQ(peer_memory(&iov, mnt, 8 * KIB), 0);
	T_EQ(peer_publish(&iov, ""), 0);
	peer_shm_unlink(&iov);
	ring_up(&r, (struct peer_ring_opts){ .entries = 1, .for_read = true });
	io = io_at(0, 0, 8 * KIB);
	io.buf_id = iov.id;
	T_EQ(run(&r, io), 8 * KIB);
	T_EQ(t_differs(iov.base, SEED, 0, 8 * KIB), 8 * KIB);
	peer_ring_done(&r);
	peer_iov_done(&iov);
}

/* The duplicate descriptor keeps an inode alive that has no name and whose first descriptor is
 * closed. */
static void a_file_without_a_name(void)
{
	struct peer_ring w, r;
	struct peer_file f;
	struct peer_io io;

	ring_up(&w, (struct peer_ring_opts){ .entries = 1 });
	ring_up(&r, (struct peer_ring_opts){ .entries = 1, .for_read = true });
	T_EQ(peer_open(&f, more, O_RDWR | O_CREAT | O_TRUNC), 0);
	(void)close(f.fd);
	T_EQ(unlink(more), 0);
	t_fill(buf.base, SEED, 0, 4 * KIB);
	io = io_at(0, 0, 4 * KIB);
	io.file_ino = f.ino;
	T_EQ(run(&w, io), 4 * KIB);
	memset(buf.base, 0, 4 * KIB);
	T_EQ(run(&r, io), 4 * KIB);
	expect_pattern(0, 0, 4 * KIB);
	(void)close(f.dupfd);
	peer_ring_done(&w);
	peer_ring_done(&r);
}

/* ---------------------------------------------------- batches, priorities */

static void prep_reads(struct peer_ring *r, int from, int n)
{
	for (int i = from; i < from + n; i++) {
		struct peer_io io = io_at((uint64_t)i * 100, (uint64_t)i * 100, 100);

		T_CHECK(peer_prep(r, &io) >= 0);
	}
	peer_submit(r);
}

static void expect_in_order(const struct wire_cqe *c, int n)
{
	for (int i = 0; i < n; i++) {
		T_EQ(c[i].result, 100);
		T_EQ(c[i].userdata, c[0].userdata + (uint64_t)i);
	}
}

static void batches_of_four_are_complete(void)
{
	struct wire_cqe c[16];
	struct peer_ring r;

	fill_file(4 * KIB);
	ring_up(&r, (struct peer_ring_opts){ .entries = 8, .for_read = true, .depth = 4 });
	prep_reads(&r, 0, 3);
	T_EQ(peer_reap(&r, c, 8, 1, 100), 0);
	prep_reads(&r, 3, 3);
	T_EQ(peer_reap(&r, c, 8, 4, WAIT_MS), 4);
	expect_in_order(c, 4);
	T_EQ(peer_reap(&r, c, 8, 1, 100), 0);
	prep_reads(&r, 6, 2);
	T_EQ(peer_reap(&r, c, 8, 4, WAIT_MS), 4);
	expect_in_order(c, 4);
	expect_pattern(0, 0, 800);
	peer_ring_done(&r);
}

static void batches_of_up_to_four_wait_no_longer_than_said(void)
{
	struct wire_cqe c[16];
	struct peer_ring r;
	uint64_t start;

	fill_file(4 * KIB);
	ring_up(&r, (struct peer_ring_opts){
			    .entries = 8, .for_read = true, .depth = -4, .timeout_ms = 200 });
	start = t_now();
	prep_reads(&r, 0, 3);
	/* Post only once: the daemon must start the rest by its clock. */
	T_EQ(peer_reap(&r, c, 8, 3, WAIT_MS), 3);
	T_CHECK(t_now() - start >= 150 * 1000000ull);
	expect_in_order(c, 3);
	peer_ring_done(&r);

	ring_up(&r, (struct peer_ring_opts){
			    .entries = 8, .for_read = true, .depth = -4, .timeout_ms = 60000 });
	prep_reads(&r, 3, 4);
	T_EQ(peer_reap(&r, c, 8, 4, WAIT_MS), 4);
	peer_ring_done(&r);

	ring_up(&r, (struct peer_ring_opts){ .entries = 8, .for_read = true, .depth = -4 });
	prep_reads(&r, 7, 1);
	T_EQ(peer_reap(&r, c, 8, 1, WAIT_MS), 1);
	peer_ring_done(&r);
	expect_pattern(0, 0, 800);
}

static void all_priorities_on_one_buffer(void)
{
	static const char prios[] = { 'h', 0, 'l' };
	struct peer_ring r[3];
	struct wire_cqe c[4];

	fill_file(64 * KIB);
	for (int i = 0; i < 3; i++)
		ring_up(&r[i], (struct peer_ring_opts){
				       .entries = 4, .for_read = true, .prio = prios[i] });
	for (int i = 0; i < 3; i++)
		prep_reads(&r[i], 4 * i, 4);
	for (int i = 2; i >= 0; i--) {
		T_EQ(peer_reap(&r[i], c, 4, 4, WAIT_MS), 4);
		for (int k = 0; k < 4; k++)
			T_EQ(c[k].result, 100);
	}
	expect_pattern(0, 0, 1200);
	for (int i = 0; i < 3; i++)
		peer_ring_done(&r[i]);
}

enum { THREAD_IOS = 3000 };

static void *post_many(void *arg)
{
	struct peer_ring *r = arg;
	int put = 0;

	while (put < THREAD_IOS) {
		uint64_t at = (uint64_t)(put % 64) * 256;
		struct peer_io io = io_at(at, at, 256);

		if (peer_prep(r, &io) >= 0)
			put++;
		else
			(void)usleep(100);
		peer_submit(r);
	}
	return NULL;
}

static void one_thread_posts_another_waits(void)
{
	struct wire_cqe c[16];
	struct peer_ring r;
	pthread_t poster;
	int got = 0, good = 0, n;

	fill_file(16 * KIB);
	ring_up(&r, (struct peer_ring_opts){ .entries = 16, .for_read = true });
	T_EQ(pthread_create(&poster, NULL, post_many, &r), 0);
	while (got < THREAD_IOS && (n = peer_reap(&r, c, 16, 1, WAIT_MS)) > 0) {
		got += n;
		while (n--)
			good += c[n].result == 256;
	}
	if (got < THREAD_IOS) /* the poster would wait for ever */
		abort();
	T_EQ(pthread_join(poster, NULL), 0);
	T_EQ(good, THREAD_IOS);
	expect_pattern(0, 0, 16 * KIB);
	peer_ring_done(&r);
}

/* ---------------------------------------------------------- ends and holes */

static void reads_end_with_the_file(void)
{
	struct peer_ring r;

	fill_file(10000);
	ring_up(&r, (struct peer_ring_opts){ .entries = 2, .for_read = true, .flags = "10" });
	T_EQ(run(&r, io_at(0, 9000, 4096)), 1000);
	expect_pattern(0, 9000, 1000);
	T_EQ(run(&r, io_at(0, 10000, 4096)), 0);
	T_EQ(run(&r, io_at(0, 64 * MIB, 4096)), 0);
	T_EQ(run(&r, io_at(0, 0, 10000)), 10000);
	peer_ring_done(&r);
}

#define FAR (8 * MIB) /* after a hole that is larger than any chunk */

/* Make FILE.more: 64 KiB of pattern at 0, at FAR and, if between is set, in between. */
static void make_holes(struct peer_file *f, bool between)
{
	T_EQ(peer_open(f, more, O_RDWR | O_CREAT | O_TRUNC), 0);
	for (uint64_t off = 0; off <= FAR; off += between ? FAR / 2 : FAR) {
		t_fill(buf.base, SEED, off, 64 * KIB);
		T_EQ(pwrite(f->fd, buf.base, 64 * KIB, (off_t)off), 64 * KIB);
	}
	T_EQ(fsync(f->fd), 0);
}

/* Overwrite the start of iov, then read len bytes of f from off into it. */
static int64_t read_into(struct peer_ring *r, const struct peer_iov *iov, const struct peer_file *f,
			 uint64_t off, uint64_t len)
{
	struct peer_io io = io_at(0, off, len);

	memset(iov->base, 0xaa, iov->size);
	io.buf_id = iov->id;
	io.file_ino = f->ino;
	return run(r, io);
}

static void holes_are_zeros_or_an_error(void)
{
	struct peer_ring zero, forbid;
	struct peer_iov big;
	struct peer_file f;
	int64_t n;

	make_holes(&f, false);
	T_EQ(peer_memory(&big, mnt, FAR + MIB), 0);
	T_EQ(peer_publish(&big, ""), 0);
	ring_up(&zero, (struct peer_ring_opts){ .entries = 4, .for_read = true });
	ring_up(&forbid, (struct peer_ring_opts){ .entries = 4, .for_read = true, .flags = "10" });

	T_EQ(read_into(&zero, &big, &f, 0, FAR + 64 * KIB), FAR + 64 * KIB);
	T_EQ(t_differs(big.base, SEED, 0, 64 * KIB), 64 * KIB);
	T_CHECK(is_all(big.base + 64 * KIB, 0, FAR - 64 * KIB));
	T_EQ(t_differs(big.base + FAR, SEED, FAR, 64 * KIB), 64 * KIB);
	T_EQ(big.base[FAR + 64 * KIB], 0xaa);

	/* A hole in one request must not affect the next one. */
	T_EQ(read_into(&forbid, &big, &f, 0, 64 * KIB), 64 * KIB);
	T_EQ(read_into(&forbid, &big, &f, 0, FAR + 64 * KIB), -ENODATA);
	T_EQ(read_into(&forbid, &big, &f, FAR, 64 * KIB), 64 * KIB);
	T_EQ(t_differs(big.base, SEED, FAR, 64 * KIB), 64 * KIB);

	/* A hole at the end of a request may count as the end of the file or as zeros. */
	n = read_into(&zero, &big, &f, 32 * KIB, 128 * KIB);
	T_CHECK(n >= (int64_t)(32 * KIB) && n <= (int64_t)(128 * KIB));
	T_EQ(t_differs(big.base, SEED, 32 * KIB, 32 * KIB), 32 * KIB);
	T_CHECK(is_all(big.base + 32 * KIB, 0, (uint64_t)n - 32 * KIB));

	peer_ring_done(&zero);
	peer_ring_done(&forbid);
	peer_iov_done(&big);
	peer_close(&f);
}

static void punched_chunks_are_holes(void)
{
	static struct wire_holes holes = { .n = 1 };
	struct peer_ring r;
	struct peer_file f;
	struct peer_io io;

	make_holes(&f, true);
	ring_up(&r, (struct peer_ring_opts){ .entries = 1, .for_read = true });
	io = io_at(0, FAR / 2, 64 * KIB);
	io.file_ino = f.ino;
	T_EQ(run(&r, io), 64 * KIB);

	holes.start[0] = 1;
	holes.end[0] = FAR;
	T_CHECK(ioctl(f.fd, (unsigned long)WIRE_PUNCH_HOLE, &holes) < 0 && errno == EINVAL);
	holes.start[0] = FAR / 2;
	T_EQ(ioctl(f.fd, (unsigned long)WIRE_PUNCH_HOLE, &holes), 0);
	T_EQ(pread(f.fd, buf.base, 64 * KIB, FAR / 2), 64 * KIB);
	T_CHECK(is_all(buf.base, 0, 64 * KIB));
	T_EQ(pread(f.fd, buf.base, 64 * KIB, FAR), 64 * KIB);
	expect_pattern(0, FAR, 64 * KIB);
	peer_ring_done(&r);
	peer_close(&f);
}

/* ------------------------------------------------------------------- errors */

static void ios_stay_within_a_block(void)
{
	struct peer_iov blocks;
	struct peer_ring r;
	struct peer_io io[4];
	struct wire_cqe c[4];
	static const int64_t want[4] = { 4096, -EINVAL, -EINVAL, 1024 };

	fill_file(64 * KIB);
	T_EQ(peer_memory(&blocks, mnt, 16 * KIB), 0);
	T_EQ(peer_publish(&blocks, ".b4096"), 0);
	ring_up(&r, (struct peer_ring_opts){ .entries = 4, .for_read = true });
	io[0] = io_at(0, 0, 4096);
	io[1] = io_at(6 * KIB, 0, 4096);
	io[2] = io_at(4096, 0, 4097);
	io[3] = io_at(15 * KIB, 0, 1024);
	for (int i = 0; i < 4; i++) {
		io[i].buf_id = blocks.id;
		T_CHECK(peer_prep(&r, &io[i]) >= 0);
	}
	peer_submit(&r);
	T_EQ(peer_reap(&r, c, 4, 4, WAIT_MS), 4);
	for (int i = 0; i < 4; i++)
		T_EQ(c[i].result, want[c[i].userdata - io[0].userdata]);
	T_EQ(t_differs(blocks.base, SEED, 0, 4096), 4096);
	peer_ring_done(&r);
	peer_iov_done(&blocks);
}

static void what_is_unknown_is_refused(void)
{
	static const uint8_t nobodys[16] = { 1, 2, 3 };
	struct peer_ring r, w;
	struct peer_iov gone;
	struct peer_io io;

	fill_file(4 * KIB);
	ring_up(&r, (struct peer_ring_opts){ .entries = 2, .for_read = true });
	ring_up(&w, (struct peer_ring_opts){ .entries = 2 });
	io = io_at(0, 0, 100);
	io.file_ino = 0x7ffffffffffffff;
	T_EQ(run(&r, io), -EBADF);
	T_EQ(run(&w, io), -EBADF);
	io = io_at(0, 0, 100);
	io.buf_id = nobodys;
	T_EQ(run(&r, io), -EINVAL);
	T_EQ(run(&w, io), -EINVAL);
	T_EQ(run(&r, io_at(BUF_SIZE - 50, 0, 100)), -EINVAL);
	T_EQ(run(&r, io_at(BUF_SIZE, 0, 100)), -EINVAL);
	T_EQ(run(&r, io_at(UINT64_MAX - 49, 0, 100)), -EINVAL);
	T_EQ(run(&r, io_at(0, 0, UINT64_MAX)), -EINVAL);

	T_EQ(peer_memory(&gone, mnt, 4 * KIB), 0);
	T_EQ(peer_publish(&gone, ""), 0);
	io.buf_id = gone.id;
	T_EQ(run(&r, io), 100);
	peer_iov_done(&gone);
	T_EQ(run(&r, io), -EINVAL);
	T_EQ(run(&r, io_at(0, 0, 100)), 100);
	T_EQ(run(&w, io_at(0, 0, 100)), 100);
	peer_ring_done(&r);
	peer_ring_done(&w);
}

static void a_ring_that_goes_takes_its_ios_along(void)
{
	struct peer_ring gone, r;

	fill_file(4 * KIB);
	ring_up(&gone, (struct peer_ring_opts){ .entries = 8, .for_read = true, .depth = 8 });
	prep_reads(&gone, 0, 3);
	peer_ring_done(&gone);
	ring_up(&r, (struct peer_ring_opts){ .entries = 8, .for_read = true });
	T_EQ(run(&r, io_at(0, 0, 100)), 100);
	peer_ring_done(&r);
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		(void)fprintf(stderr, "usage: usrbio-foreign-client MOUNTPOINT FILE\n");
		return 2;
	}
	if (!set_up(argv[1], argv[2])) {
		printf("Bail out! %s, %s: %s\n", argv[1], argv[2], strerror(errno));
		return 1;
	}
	(void)snprintf(more, sizeof(more), "%s.more", path);
	T_RUN(rings_are_laid_out_as_published);
	T_RUN(one_at_a_time);
	T_RUN(full_rings);
	T_RUN(indices_wrap_many_times);
	T_RUN(mount_and_ring_agree);
	T_RUN(fsync_shows_the_size);
	T_RUN(memory_without_a_name);
	T_RUN(a_file_without_a_name);
	T_RUN(batches_of_four_are_complete);
	T_RUN(batches_of_up_to_four_wait_no_longer_than_said);
	T_RUN(all_priorities_on_one_buffer);
	T_RUN(one_thread_posts_another_waits);
	T_RUN(reads_end_with_the_file);
	T_RUN(holes_are_zeros_or_an_error);
	T_RUN(punched_chunks_are_holes);
	T_RUN(ios_stay_within_a_block);
	T_RUN(what_is_unknown_is_refused);
	T_RUN(a_ring_that_goes_takes_its_ios_along);
	(void)unlink(more);
	tear_down();
	return t_done();
}
