/* SPDX-License-Identifier: MIT */
/*
 * Shared by the tests of the server: a server with one buffer, canaries around the buffer, and
 * files with a pattern.
 */
#ifndef PST_SERVER_RIG_H
#define PST_SERVER_RIG_H

#include "ring_rig.h"

#include "fusefs.h"

#define BUF_LEN RIG_MIB(4)
#define FENCE 4096u /* bytes before and after the buffer that must not change */
#define CANARY 0xc5
#define FILES_MAX 8u
#define FILE_LEN RIG_MIB(8)
#define PIECE 4096u

/* Requests of a case; a million with PST_SOAK. */
#define MANY (RIG_TSAN ? 60000u : getenv("PST_SOAK") ? 1000000u : 200000u)

static const struct server_opts one_thread = { .threads = 1 };

static struct {
	struct server *w;
	struct pst_mem *mem;
	char *host; /* the buffer, or NULL for device memory */
	char *map;
	uint8_t id[USRBIO_ID_LEN];
	struct server_buffer *buffer;
	struct server_file *files[FILES_MAX];
	unsigned nr_files;
} my;

static bool env_help = true;         /* clients help before they sleep */
static const char *env_dev = "host"; /* kind of the buffer's memory */

static inline void env_buffer_host(void)
{
	struct pst_mem_opts o = { .sz = sizeof(o), .flags = PST_MEM_PINNED };

	my.map = mmap(NULL, BUF_LEN + 2 * FENCE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	T_CHECK(my.map != MAP_FAILED);
	memset(my.map, CANARY, BUF_LEN + 2 * FENCE);
	my.host = my.map + FENCE;
	T_OK(pst_mem_wrap((uintptr_t)my.host, BUF_LEN, &o, &my.mem));
}

static inline void env_buffer_device(void)
{
	char *fill = malloc(BUF_LEN + FENCE);

	T_CHECK(fill);
	memset(fill, CANARY, BUF_LEN + FENCE);
	my.map = my.host = NULL;
	my.mem = rig_alloc(env_dev, BUF_LEN + FENCE);
	T_OK(pst_mem_copy_in(my.mem, 0, fill, BUF_LEN + FENCE));
	free(fill);
}

static inline void env_begin(const struct server_opts *o)
{
	memset(&my, 0, sizeof(my));
	T_OK(server_new(o, &my.w));
	if (strcmp(env_dev, "host") == 0)
		env_buffer_host();
	else
		env_buffer_device();
	T_EQ(usrbio_id_new(my.id), 0);
	T_OK(server_buffer_add(my.w, my.id, my.mem, BUF_LEN, 0, &my.buffer));
}

static inline void env_fences(void)
{
	uint8_t fence[FENCE];

	if (!my.host) {
		T_OK(pst_mem_copy_out(my.mem, BUF_LEN, fence, FENCE));
		for (unsigned i = 0; i < FENCE; i++)
			T_EQ(fence[i], CANARY);
		return;
	}
	for (unsigned i = 0; i < FENCE; i++) {
		T_EQ((uint8_t)my.map[i], CANARY);
		T_EQ((uint8_t)my.map[FENCE + BUF_LEN + i], CANARY);
	}
}

static inline void env_end(void)
{
	server_buffer_remove(my.w, my.buffer);
	T_OK(pst_mem_drain(my.mem, t_in_ms(RIG_WAIT_MS)));
	env_fences();
	for (unsigned i = 0; i < my.nr_files; i++)
		server_file_remove(my.w, my.files[i]);
	my.w = server_free(my.w);
	my.mem = pst_mem_free(my.mem);
	if (my.map)
		(void)munmap(my.map, BUF_LEN + 2 * FENCE);
}

/* Add an open file to the server under a number. */
static inline void env_number(uint64_t number, int fd)
{
	T_CHECK(fd >= 0 && my.nr_files < FILES_MAX);
	T_OK(server_file_add(my.w, number, fd, &my.files[my.nr_files++]));
}

static inline void env_open(uint64_t number, const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC);

	if (fd < 0)
		T_FAIL("%.200s: %s", path, strerror(errno));
	env_number(number, fd);
	(void)close(fd);
}

/* Make a file whose pattern has its number as seed. */
static inline void env_file(uint64_t number, uint64_t len, int flags)
{
	char name[32];

	(void)snprintf(name, sizeof(name), "file%d", (int)number);
	rig_make(rig_path(name), number, len);
	env_open(number, rig_path(name), flags);
}

static inline struct usrbio_args env_args(uint64_t number, uint64_t file_off, uint64_t buf_off,
					  uint64_t len)
{
	struct usrbio_args a = {
		.file = number,
		.file_off = file_off,
		.buf_off = buf_off,
		.len = len,
		.user_data = file_off ^ len << 40,
	};

	memcpy(a.buf_id, my.id, sizeof(a.buf_id));
	return a;
}

/* Check that the buffer holds len bytes of the file's pattern. */
static inline void env_check(uint64_t number, uint64_t file_off, uint64_t buf_off, uint64_t len)
{
	T_EQ(rig_mem_differs(my.mem, buf_off, len, number, file_off), len);
}

static inline void env_ring(struct client *c, int entries, bool for_read, int depth, int timeout_ms)
{
	client_new(c, my.w, entries, for_read, depth, timeout_ms);
	c->never_help = !env_help;
}

/* Execute one request and return its result. */
static inline int64_t env_do(struct client *c, const struct usrbio_args *a)
{
	struct usrbio_cqe q;
	int slot = client_prep(c, a);

	T_CHECK(slot >= 0);
	if (c->ring)
		server_ring_kick(c->ring);
	T_EQ(client_wait(c, &q, 1, 1, RIG_WAIT_MS), 1);
	T_EQ(q.index, slot);
	T_EQ(q.reserved, 0);
	T_EQ(q.user_data, a->user_data);
	return q.result;
}

/* Prepare nr entries of PIECE bytes each, in order, without a kick. */
static inline void prep(struct client *c, unsigned nr)
{
	for (unsigned i = 0; i < nr; i++) {
		uint64_t k = c->sent % (FILE_LEN / PIECE);
		struct usrbio_args a = env_args(1, k * PIECE, c->sent % 64 * PIECE, PIECE);

		a.user_data = c->sent;
		T_CHECK(client_prep(c, &a) >= 0);
	}
}

/* Wait until the server has taken all entries.  Entries that it finds together may form one
 * batch. */
static inline void taken(struct client *c)
{
	uint64_t end = t_hang();

	while ((uint32_t)usrbio_marker(c->at.sq_tail) != c->sq_head && t_now() < end)
		(void)usleep(100);
	T_EQ((uint32_t)usrbio_marker(c->at.sq_tail), c->sq_head);
}

/* Check that each of nr completions arrived once.  Batches may overtake each other. */
static inline void each_once(const struct usrbio_cqe *q, unsigned nr, uint64_t first)
{
	bool seen[256] = { false };

	for (unsigned i = 0; i < nr; i++) {
		uint64_t at = q[i].user_data - first;

		T_CHECK(at < nr && !seen[at]);
		seen[at] = true;
	}
}

/*
 * Check that this many completions arrive, and no more for a while, which is longer than the
 * timeouts of these rings: some milliseconds.
 */
static inline void expect(struct client *c, unsigned nr, bool and_no_more)
{
	struct usrbio_cqe q[256];
	uint64_t first = c->got;

	T_EQ(client_wait(c, q, nr, RIG_NR(q), RIG_WAIT_MS), nr);
	for (unsigned i = 0; i < nr; i++)
		T_EQ(q[i].result, PIECE);
	each_once(q, nr, first);
	if (and_no_more)
		T_EQ(client_wait(c, q, 1, 1, 60), 0);
}

/*
 * Wait until a kicked ring has had its turn: kick another ring of the same thread later, without
 * helping, and wait for its answer.
 */
static inline void turned(struct client *c, struct client *other, struct server_ring_stats *ret)
{
	bool never = other->never_help;

	other->never_help = true;
	prep(other, 1);
	server_ring_kick(other->ring);
	expect(other, 1, false);
	other->never_help = never;
	server_ring_stats(c->ring, ret);
}

static inline unsigned cq_held(const struct client *c)
{
	return usrbio_ring_held(&c->at, (uint32_t)usrbio_marker(c->at.cq_head), c->cq_tail);
}

/* ------------------------------------------------------------------- FUSE */

static struct fusefs fs;

static inline void stop_fuse(void)
{
	fusefs_stop(&fs);
}

static inline void fuse_file(uint64_t number, const char *name)
{
	char path[200];

	(void)snprintf(path, sizeof(path), "%s/%s", fs.dir, name);
	env_open(number, path, O_RDWR);
}

static inline void need_fuse(void)
{
	fusefs_stop(&fs);
	if (fusefs_start(&fs, rig_dir) < 0)
		T_SKIP("%s", fs.why);
}

/* Answer hanging requests until this many completions have arrived. */
static inline unsigned release_until(struct client *c, struct usrbio_cqe *q, unsigned nr)
{
	uint64_t end = t_in_ms(RIG_WAIT_MS);
	unsigned n = 0;

	while (n < nr && t_now() < end) {
		fusefs_release(&fs);
		n += client_wait(c, q + n, 1, nr - n, 20);
	}
	return n;
}

/* ------------------------------------------------------------------ cases */

/* Run the case with clients that sleep, then with clients that help first. */
static inline void both(const char *name, void (*fn)(void))
{
	char full[100];

	for (unsigned i = 0; i < 2; i++) {
		env_help = i;
		(void)snprintf(full, sizeof(full), "%s %s", name, i ? "helped" : "alone");
		rig_run1(full, fn);
	}
}

#define BOTH(fn) both(#fn, fn)

#endif
