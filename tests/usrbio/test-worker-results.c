/* SPDX-License-Identifier: MIT */
/*
 * Results of entries: bytes, errors, holes, blocks.
 */
#include "worker_rig.h"

#include "again.h"

/* ----------------------------------------------------------------- results */

static void P6_results(void)
{
	struct usrbio_args a, good;
	struct client r, w;

	env_begin(NULL);
	env_file(1, FILE_LEN, O_RDWR);
	env_file(2, FILE_LEN, O_RDONLY);
	env_file(3, FILE_LEN, O_WRONLY);
	env_ring(&r, 8, true, 0, 0);
	env_ring(&w, 8, false, 0, 0);
	good = env_args(1, 8192, 100, 5000);
	T_EQ(env_do(&r, &good), 5000);
	env_check(1, 8192, 100, 5000);

#define TRY(ring, field, value, want)                   \
	do {                                            \
		a = good;                               \
		a.field = (value);                      \
		T_EQ(env_do(&(ring), &a), (want));      \
		T_EQ(env_do(&(ring), &good), good.len); \
	} while (0)
	TRY(r, file, 4, -EBADF);
	TRY(r, file, UINT64_MAX, -EBADF);
	TRY(r, file, 2, 5000);
	TRY(r, file, 3, -EACCES);
	TRY(w, file, 2, -EACCES);
	TRY(w, file, 3, 5000);
	TRY(r, buf_id[7], good.buf_id[7] ^ 1, -EINVAL);
	TRY(r, len, 0, -EINVAL);
	TRY(r, len, BUF_LEN - 100, BUF_LEN - 100);
	TRY(r, len, BUF_LEN - 99, -EINVAL);
	TRY(r, len, UINT64_MAX, -EINVAL);
	TRY(r, len, UINT64_MAX - 99, -EINVAL);
	TRY(r, len, INT64_MAX, -EINVAL);
	TRY(r, buf_off, BUF_LEN - 5000, 5000);
	TRY(r, buf_off, BUF_LEN - 4999, -EINVAL);
	TRY(r, buf_off, BUF_LEN, -EINVAL);
	TRY(r, buf_off, UINT64_MAX, -EINVAL);
	TRY(r, buf_off, UINT64_MAX - 4999, -EINVAL);
	TRY(r, file_off, FILE_LEN - 10, 10);
	TRY(r, file_off, FILE_LEN, 0);
	TRY(r, file_off, FILE_LEN + 123456, 0);
	TRY(r, file_off, INT64_MAX - 4999, -EINVAL);
	TRY(r, file_off, UINT64_MAX, -EINVAL);
	/* The server accepts the largest offset, and the file system refuses it. */
	a = good;
	a.file_off = INT64_MAX - 5000;
	T_EQ(env_do(&w, &a), -EFBIG);
	client_free(&r);
	client_free(&w);
	env_end();
}

/* The statistics have the counts and the path. */
static void P6_statistics(void)
{
	struct server_ring_stats st;
	struct usrbio_args a;
	struct client c;

	env_begin(NULL);
	env_file(1, FILE_LEN, O_RDONLY);
	rig_warm(rig_path("file1"));
	env_ring(&c, 8, true, 0, 0);
	a = env_args(1, 0, 0, 4096);
	for (unsigned i = 0; i < 10; i++)
		T_EQ(env_do(&c, &a), 4096);
	a.file = 9;
	T_EQ(env_do(&c, &a), -EBADF);
	server_ring_stats(c.ring, &st);
	T_EQ(st.requests, 11);
	T_EQ(st.errors, 1);
	T_EQ(st.bytes, 40960);
	T_CHECK(st.paths & (PST_PATH_BIT(PST_PATH_CACHED) | PST_PATH_BIT(PST_PATH_BUFFERED)));
	T_CHECK(!st.broken);
	client_free(&c);
	env_end();
}

/* An invalid slot index is returned unchanged, with an error. */
static void P6_slots_that_are_none(void)
{
	static const int32_t bad[] = { -1, INT32_MIN, INT32_MAX, 9, 10 };
	struct usrbio_cqe q;
	struct client c;

	env_begin(NULL);
	env_file(1, FILE_LEN, O_RDONLY);
	env_ring(&c, 8, true, 0, 0);
	for (unsigned i = 0; i < RIG_NR(bad); i++) {
		struct usrbio_sqe *sqe = &c.at.sqes[c.sq_head];

		*sqe = (struct usrbio_sqe){ .index = bad[i], .user_data = 1000 + i };
		c.sq_head = usrbio_ring_next(&c.at, c.sq_head);
		c.sent++;
		usrbio_marker_set(c.at.sq_head, c.sq_head);
		server_ring_kick(c.ring);
		T_EQ(client_wait(&c, &q, 1, 1, RIG_WAIT_MS), 1);
		T_EQ(q.index, bad[i]);
		T_EQ(q.user_data, 1000 + i);
		T_EQ(q.result, -EINVAL);
	}
	client_free(&c);
	env_end();
}

/* PST_FAULT: EIO, then an error outside of 3FS's list, then ENOSPC. */
static void P6_errors_of_the_disk(void)
{
	struct usrbio_args a;
	struct client c;

	env_begin(NULL);
	env_file(1, FILE_LEN, O_RDWR);
	env_ring(&c, 8, false, 0, 0);
	a = env_args(1, 64, 64, 777);
	T_EQ(env_do(&c, &a), -EIO);
	T_EQ(env_do(&c, &a), -EIO);
	T_EQ(env_do(&c, &a), -ENOSPC);
	T_EQ(env_do(&c, &a), -ETIMEDOUT);
	T_EQ(env_do(&c, &a), 777);
	client_free(&c);
	env_end();
}

/* ------------------------------------------------------------------- holes */

#define HOLE_LEN 262144u

/* Make a file of 1 MiB with data in the first and the third quarter. */
static int make_holes(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	char *buf = malloc(HOLE_LEN);

	T_CHECK(fd >= 0 && buf);
	t_fill(buf, 1, 0, HOLE_LEN);
	T_EQ(pwrite(fd, buf, HOLE_LEN, 0), HOLE_LEN);
	t_fill(buf, 1, 2 * HOLE_LEN, HOLE_LEN);
	T_EQ(pwrite(fd, buf, HOLE_LEN, 2 * HOLE_LEN), HOLE_LEN);
	T_EQ(ftruncate(fd, 4 * HOLE_LEN), 0);
	(void)fsync(fd);
	free(buf);
	if (lseek(fd, 0, SEEK_HOLE) != HOLE_LEN) {
		(void)close(fd);
		T_SKIP("a file system with holes at %s", rig_dir);
	}
	T_EQ(lseek(fd, 4711, SEEK_SET), 4711);
	return fd;
}

static void hole_ring(struct client *c, uint64_t flags)
{
	struct server_ring_opts o;

	client_map(c, 16);
	o = client_opts(c, true);
	o.flags = flags;
	client_add(c, my.w, &o);
	c->never_help = !env_help;
}

static int64_t hole_read(struct client *c, uint64_t off, uint64_t len)
{
	struct usrbio_args a = env_args(1, off, 64, len);

	return env_do(c, &a);
}

static void P7_zeros(void)
{
	struct client c;
	int fd = make_holes(rig_path("holes"));

	env_begin(NULL);
	env_number(1, fd);
	hole_ring(&c, 0);
	T_EQ(hole_read(&c, HOLE_LEN - 100, HOLE_LEN + 200), HOLE_LEN + 200);
	env_check(1, HOLE_LEN - 100, 64, 100);
	for (unsigned i = 0; i < HOLE_LEN; i++)
		T_EQ(my.host[64 + 100 + i], 0);
	env_check(1, 2 * HOLE_LEN, 64 + 100 + HOLE_LEN, 100);
	T_EQ(hole_read(&c, 3 * HOLE_LEN + 5, 2 * HOLE_LEN), HOLE_LEN - 5);
	T_EQ(hole_read(&c, 4 * HOLE_LEN, 5), 0);
	client_free(&c);
	env_end();
	(void)close(fd);
}

static void P7_forbidden(void)
{
	struct client c;
	int fd = make_holes(rig_path("holes"));

	env_begin(NULL);
	env_number(1, fd);
	hole_ring(&c, SERVER_RING_FORBID_HOLES | SERVER_RING_READ_UNCOMMITTED);
	/* Repeat until the library knows that the page cache holds the file. */
	for (unsigned i = 0; i < 64; i++)
		T_EQ(hole_read(&c, i * 37 % 64 * 16, 16), 16);
	for (unsigned i = 0; i < 3; i++) {
		T_EQ(hole_read(&c, 0, HOLE_LEN), HOLE_LEN);
		env_check(1, 0, 64, HOLE_LEN);
		T_EQ(hole_read(&c, 0, 2 * HOLE_LEN + 1), -ENODATA);
		/* The error does not affect later reads. */
		T_EQ(hole_read(&c, 2 * HOLE_LEN + 7, 1000), 1000);
		env_check(1, 2 * HOLE_LEN + 7, 64, 1000);
		T_EQ(hole_read(&c, HOLE_LEN, HOLE_LEN + 1), -ENODATA);
		/* A hole at the end of the range counts as the end of the file. */
		T_EQ(hole_read(&c, 0, 2 * HOLE_LEN), HOLE_LEN);
		T_EQ(hole_read(&c, HOLE_LEN - 10, 1000), 10);
		T_EQ(hole_read(&c, HOLE_LEN, 1000), 0);
		T_EQ(hole_read(&c, 2 * HOLE_LEN, 2 * HOLE_LEN), HOLE_LEN);
		T_EQ(hole_read(&c, 3 * HOLE_LEN - 10, 3 * HOLE_LEN), 10);
		T_EQ(hole_read(&c, 3 * HOLE_LEN, HOLE_LEN), 0);
		T_EQ(hole_read(&c, 4 * HOLE_LEN, 10), 0);
		T_EQ(hole_read(&c, 40 * HOLE_LEN, 10), 0);
	}
	/* The position of the caller's descriptor is unchanged. */
	T_EQ(lseek(fd, 0, SEEK_CUR), 4711);
	client_free(&c);
	env_end();
	(void)close(fd);
}

/* Valid and invalid requests in one batch. */
static void P7_side_by_side(void)
{
	static const struct {
		uint64_t off, len;
		int64_t want;
	} reads[] = {
		{ HOLE_LEN, 2 * HOLE_LEN, -ENODATA },
		{ 0, 4096, 4096 },
		{ HOLE_LEN - 8, 4096, 8 },
		{ 2 * HOLE_LEN, 4096, 4096 },
		{ 0, 4 * HOLE_LEN, -ENODATA },
		{ 8192, 4096, 4096 },
		{ HOLE_LEN, 4096, 0 },
		{ 3 * HOLE_LEN - 1, 2, 1 },
	};
	struct usrbio_cqe q[RIG_NR(reads)];
	struct client c;
	int fd = make_holes(rig_path("holes"));

	env_begin(NULL);
	env_number(1, fd);
	hole_ring(&c, SERVER_RING_FORBID_HOLES);
	for (unsigned k = 0; k < 50; k++) {
		for (unsigned i = 0; i < RIG_NR(reads); i++) {
			struct usrbio_args a = env_args(1, reads[i].off, 0, reads[i].len);

			T_CHECK(client_prep(&c, &a) >= 0);
		}
		server_ring_kick(c.ring);
		T_EQ(client_wait(&c, q, RIG_NR(reads), RIG_NR(reads), RIG_WAIT_MS), RIG_NR(reads));
		for (unsigned i = 0; i < RIG_NR(reads); i++)
			T_EQ(q[i].result, reads[i].want);
	}
	client_free(&c);
	env_end();
	(void)close(fd);
}

/* ------------------------------------------------------------------ blocks */

static void P8_blocks(void)
{
	const uint8_t other[USRBIO_ID_LEN] = "another one's";
	struct server_buffer *blocks = NULL, *one = NULL;
	struct usrbio_args a, good;
	struct client c;

	env_begin(NULL);
	env_file(1, FILE_LEN, O_RDONLY);
	T_EQ(server_buffer_add(my.w, my.id, my.mem, BUF_LEN, BUF_LEN + 1, &blocks), -EINVAL);
	T_EQ(server_buffer_add(my.w, my.id, my.mem, 0, 0, &blocks), -EINVAL);
	/* The newest buffer is used for the UUID. */
	T_OK(server_buffer_add(my.w, my.id, my.mem, BUF_LEN - 1000, 10000, &blocks));
	T_CHECK(server_buffer_known(my.w, my.id));
	T_CHECK(!server_buffer_known(my.w, other));
	T_OK(server_buffer_add(my.w, other, my.mem, 1, 0, &one));
	T_CHECK(server_buffer_known(my.w, other));
	server_buffer_remove(my.w, one);
	T_CHECK(!server_buffer_known(my.w, other));
	env_ring(&c, 8, true, 0, 0);
	good = env_args(1, 0, 0, 10000);
	TRY(c, len, 10001, -EINVAL);
	TRY(c, buf_off, 1, -EINVAL);
	TRY(c, buf_off, 5000, -EINVAL);
	TRY(c, buf_off, 9999, -EINVAL);
	TRY(c, buf_off, 10000, 10000);
	a = env_args(1, 0, 9999, 1);
	T_EQ(env_do(&c, &a), 1);
	a = env_args(1, 0, 9999, 2);
	T_EQ(env_do(&c, &a), -EINVAL);
	a = env_args(1, 0, BUF_LEN - 1001, 1);
	T_EQ(env_do(&c, &a), 1);
	a = env_args(1, 0, BUF_LEN - 1000, 1);
	T_EQ(env_do(&c, &a), -EINVAL);
	/* After its removal, the buffer before it is used. */
	server_buffer_remove(my.w, blocks);
	T_CHECK(server_buffer_known(my.w, my.id));
	a = env_args(1, 0, 9999, 2);
	T_EQ(env_do(&c, &a), 2);
	client_free(&c);
	env_end();
}

static const struct again cases[] = {
	{ "P6_errors_of_the_disk", P6_errors_of_the_disk, AGAIN_ONCE,
	  "file.write:1:EIO,file.write:2:EXDEV,file.write:3:ENOSPC,file.write:4:ETIMEDOUT" },
};

int main(int argc, char **argv)
{
	rig_init();
	if (argc > 1)
		return again_child(cases, RIG_NR(cases), argv[1]);
	BOTH(P6_results);
	BOTH(P6_statistics);
	BOTH(P6_slots_that_are_none);
	BOTH(P7_zeros);
	BOTH(P7_forbidden);
	BOTH(P7_side_by_side);
	BOTH(P8_blocks);
	again_all(cases, RIG_NR(cases));
	return rig_done();
}
