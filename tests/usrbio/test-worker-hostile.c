/* SPDX-License-Identifier: MIT */
/*
 * Clients that break every rule of the ring, with any content of its memory, changed at any time,
 * and clients that vanish.  The server and its other rings keep working, and no byte outside of the
 * client's buffers and files is touched.  Writes junk for five seconds; with PST_SOAK=1 for ten
 * minutes, with PST_SOAK=N for N s.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include "worker_rig.h"

#define PAGE 4096u
#define ENTRIES 32
#define BAD_LEN RIG_MIB(1) /* bytes of the bad client's buffer and file */

/* Map a ring between inaccessible pages. */
static void bad_map(struct client *c)
{
	size_t len;
	char *p;

	*c = (struct client){ .size = usrbio_ring_size(ENTRIES) };
	len = (c->size + PAGE - 1) & ~(size_t)(PAGE - 1);
	p = mmap(NULL, len + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	T_CHECK(p != MAP_FAILED);
	c->base = p + PAGE;
	T_CHECK(mmap(c->base, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED,
		     -1, 0) == c->base);
	T_EQ(usrbio_ring_at(c->base, c->size, &c->at), 0);
	c->busy = calloc(c->at.slots, 1);
	T_CHECK(c->busy);
}

static void bad_unmap(struct client *c)
{
	size_t len = (c->size + PAGE - 1) & ~(size_t)(PAGE - 1);

	free(c->busy);
	(void)munmap((char *)c->base - PAGE, len + 2 * PAGE);
}

/* ---------------------------------------------------------------- scribble */

static struct {
	struct client c;
	_Atomic bool stop;
	uint64_t random;
	uint8_t id[USRBIO_ID_LEN];
	struct pst_mem *mem;
	char *map; /* mapping: fence, buffer, fence */
	struct server_buffer *buffer;
	bool plausible;
	struct server_ring_stats sum; /* statistics of all its rings */
	unsigned nr_broken;
} bad;

static uint64_t bad_random(void)
{
	bad.random ^= bad.random << 13;
	bad.random ^= bad.random >> 7;
	bad.random ^= bad.random << 17;
	return bad.random;
}

/* Return a number that is usually at the edge of the valid range. */
static uint64_t bad_number(uint64_t limit)
{
	static const uint64_t edges[] = { 0,         1,          INT32_MAX,         UINT32_MAX,
					  INT64_MAX, UINT64_MAX, UINT64_C(1) << 63, 4095 };

	switch (bad_random() % 8) {
	case 0:
		return edges[bad_random() % RIG_NR(edges)];
	case 1:
		return limit + bad_random() % 3 - 1;
	case 2:
		return bad_random();
	default:
		return bad_random() % limit;
	}
}

static void scribble_args(void)
{
	struct usrbio_args *a = &bad.c.at.args[bad_random() % bad.c.at.slots];

	switch (bad_random() % 8) {
	case 0:
		a->buf_id[bad_random() % USRBIO_ID_LEN] ^= 1;
		break;
	case 1:
		a->buf_off = bad_number(BAD_LEN);
		break;
	case 2:
		a->file = bad_random() % 6;
		break;
	case 3:
		a->file_off = bad_number(BAD_LEN);
		break;
	case 4:
		a->len = bad_number(8192);
		break;
	default:
		*a = (struct usrbio_args){
			.buf_off = bad_random() % BAD_LEN,
			.file = bad_random() % 6,
			.file_off = bad_random() % BAD_LEN,
			.len = 1 + bad_random() % 5000,
			.user_data = bad_random(),
		};
		memcpy(a->buf_id, bad.id, sizeof(bad.id));
	}
}

/* Write values that the server usually takes for a working ring. */
static void scribble_plausibly(void)
{
	const struct usrbio_ring *at = &bad.c.at;

	switch (bad_random() % 8) {
	case 0:
		usrbio_marker_set(at->sq_head, (uint32_t)(bad_random() % at->slots));
		break;
	case 1:
		/* Pretend that all completions were taken. */
		usrbio_marker_set(at->cq_tail, (uint32_t)usrbio_marker(at->cq_head));
		break;
	case 2:
		at->sqes[bad_random() % at->slots].index = (int32_t)bad_number(at->slots);
		break;
	case 3:
		*at->sq_tail = (int32_t)bad_random();
		break;
	case 4:
		if (bad_random() % 512 == 0)
			usrbio_marker_set(at->cq_tail, (uint32_t)bad_number(at->slots));
		else if (bad_random() % 512 == 0)
			usrbio_marker_set(at->sq_head, (uint32_t)bad_number(at->slots));
		break;
	default:
		scribble_args();
	}
}

static void *scribbler(void *arg)
{
	uint64_t *words = bad.c.base;
	size_t nr = bad.c.size / 8;

	(void)arg;
	while (!bad.stop) {
		for (unsigned i = 0; i < 50; i++)
			if (bad.plausible)
				scribble_plausibly();
			else
				words[bad_random() % nr] = bad_random() % 4 ? bad_random() % 40
									    : bad_random();
		/* Sometimes yield, so that the server may see one state twice. */
		if (bad_random() % 4 == 0)
			(void)sched_yield();
	}
	return NULL;
}

/* Serve a ring while another thread scribbles on it. */
static void scribble_round(struct client *good, unsigned round)
{
	struct server_ring_stats st;
	struct server_ring_opts o;
	pthread_t thread;
	uint64_t end;

	memset(bad.c.base, 0, bad.c.size);
	o = client_opts(&bad.c, round & 1);
	o.io_depth = (int)(rig_below(9)) - 4;
	o.timeout_ms = (int)rig_below(3);
	o.priority = (enum usrbio_priority)rig_below(USRBIO_PRIORITIES);
	o.flags = round & 2 ? SERVER_RING_FORBID_HOLES : 0;
	T_OK(server_ring_add(my.w, &o, &bad.c.ring));
	bad.plausible = round % 8 != 0;
	bad.stop = false;
	bad.random = rig_random() | 1;
	T_EQ(pthread_create(&thread, NULL, scribbler, NULL), 0);
	for (end = t_in_ms(20); t_now() < end;) {
		struct usrbio_cqe q[8];

		server_ring_kick(bad.c.ring);
		(void)server_ring_help(bad.c.ring);
		for (unsigned i = 0; i < 8; i++) {
			struct usrbio_args a = env_args(1, rig_below(FILE_LEN - PIECE), i * PIECE,
							PIECE);

			T_CHECK(client_prep(good, &a) >= 0);
		}
		server_ring_kick(good->ring);
		T_EQ(client_wait(good, q, 8, 8, RIG_WAIT_MS), 8);
		for (unsigned i = 0; i < 8; i++)
			T_EQ(q[i].result, PIECE);
		env_check(1, q[7].user_data & ((UINT64_C(1) << 40) - 1), 7 * PIECE, PIECE);
	}
	server_ring_stats(bad.c.ring, &st);
	bad.sum.requests += st.requests;
	bad.sum.errors += st.errors;
	bad.sum.bytes += st.bytes;
	bad.nr_broken += st.broken;
	server_ring_remove(my.w, bad.c.ring);
	bad.stop = true;
	T_EQ(pthread_join(thread, NULL), 0);
}

static void bad_begin(void)
{
	struct pst_mem_opts o = { .sz = sizeof(o), .flags = PST_MEM_PINNED };

	memset(&bad, 0, sizeof(bad));
	bad_map(&bad.c);
	bad.map = malloc(BAD_LEN + 2 * FENCE);
	T_CHECK(bad.map);
	memset(bad.map, CANARY, BAD_LEN + 2 * FENCE);
	T_OK(pst_mem_wrap((uintptr_t)bad.map + FENCE, BAD_LEN, &o, &bad.mem));
	T_EQ(usrbio_id_new(bad.id), 0);
	T_OK(server_buffer_add(my.w, bad.id, bad.mem, BAD_LEN, PAGE * 16, &bad.buffer));
	env_file(2, BAD_LEN, O_RDWR);
	env_file(3, BAD_LEN, O_RDONLY);
}

static void bad_end(void)
{
	char *buf = malloc(BAD_LEN);

	server_buffer_remove(my.w, bad.buffer);
	T_OK(pst_mem_drain(bad.mem, t_in_ms(RIG_WAIT_MS)));
	bad.mem = pst_mem_free(bad.mem);
	for (unsigned i = 0; i < FENCE; i++) {
		T_EQ((uint8_t)bad.map[i], CANARY);
		T_EQ((uint8_t)bad.map[FENCE + BAD_LEN + i], CANARY);
	}
	/* The file that the client cannot write is unchanged. */
	T_CHECK(buf);
	T_EQ(rig_slurp(rig_path("file3"), 0, buf, BAD_LEN), BAD_LEN);
	T_EQ(t_differs(buf, 3, 0, BAD_LEN), BAD_LEN);
	free(buf);
	free(bad.map);
	bad_unmap(&bad.c);
}

static uint64_t seconds(void)
{
	const char *soak = getenv("PST_SOAK");
	uint64_t s = soak ? strtoull(soak, NULL, 10) : 0;

	return s == 0 ? 5 : s == 1 ? 600 : s;
}

static void P10_scribble(void)
{
	uint64_t end = t_in_ms(seconds() * 1000);
	struct server_opts o = { .threads = 2 };
	struct client good;

	env_begin(&o);
	bad_begin();
	env_file(1, FILE_LEN, O_RDONLY);
	env_ring(&good, 16, true, 0, 0);
	for (unsigned round = 0; t_now() < end; round++) {
		/* Alternate between the good ring's executor and another one. */
		good.never_help = round & 4;
		scribble_round(&good, round);
	}
	/* Many requests succeeded: the server also took the ring for a working one. */
	printf("# %" PRIu64 " requests, %" PRIu64 " errors, %" PRIu64 " bytes, %u rings broken\n",
	       bad.sum.requests, bad.sum.errors, bad.sum.bytes, bad.nr_broken);
	T_CHECK(bad.sum.errors > 100 && bad.sum.errors + 100 < bad.sum.requests);
	T_CHECK(bad.sum.bytes && bad.nr_broken);
	client_free(&good);
	bad_end();
	env_end();
}

/* --------------------------------------------------------- single offences */

static void wait_broken(struct client *c, struct server_ring_stats *ret)
{
	uint64_t end = t_hang();

	if (!c->never_help)
		(void)server_ring_help(c->ring);
	for (;;) {
		server_ring_stats(c->ring, ret);
		if (ret->broken || t_now() >= end)
			break;
		(void)usleep(100);
	}
	T_CHECK(ret->broken);
}

/* A ring with forged markers is reported as broken; another ring works. */
static void P10_forged_markers(void)
{
	static const int32_t values[] = { -1, ENTRIES + 1, ENTRIES + 2, INT32_MIN, INT32_MAX };
	struct client c, good;

	env_begin(&one_thread);
	env_file(1, FILE_LEN, O_RDONLY);
	env_ring(&good, 16, true, 0, 0);
	for (unsigned i = 0; i < RIG_NR(values) * 2; i++) {
		struct server_ring_stats st;

		env_ring(&c, ENTRIES, true, 0, 0);
		prep(&c, 5);
		server_ring_kick(c.ring);
		expect(&c, 5, false);
		*(i & 1 ? c.at.sq_head : c.at.cq_tail) = values[i / 2];
		server_ring_kick(c.ring);
		prep(&good, 5);
		server_ring_kick(good.ring);
		expect(&good, 5, false);
		wait_broken(&c, &st);
		T_EQ(st.requests, 5);
		/* Valid markers do not repair the ring. */
		*c.at.sq_head = 6;
		*c.at.cq_tail = 5;
		server_ring_kick(c.ring);
		(void)server_ring_help(c.ring);
		turned(&c, &good, &st);
		T_EQ(usrbio_marker(c.at.cq_head), 5);
		client_free(&c);
	}
	client_free(&good);
	env_end();
}

/* The client moves the tail back: completions present and owed would exceed the room. */
static void P10_tail_moved_back(void)
{
	struct server_ring_stats st;
	struct client c, good;

	need_fuse();
	env_begin(&one_thread);
	env_file(1, FILE_LEN, O_RDONLY);
	env_ring(&good, 16, true, 0, 0);
	env_ring(&c, 8, true, 0, 0);
	prep(&c, 6);
	server_ring_kick(c.ring);
	expect(&c, 6, false);
	/* Eight completions are present: nothing more is taken, and the ring is not broken. */
	*c.at.cq_tail = 7;
	prep(&c, 2);
	server_ring_kick(c.ring);
	(void)server_ring_help(c.ring);
	turned(&c, &good, &st);
	T_CHECK(!st.broken);
	T_EQ(st.requests, 6);
	T_EQ(usrbio_marker(c.at.cq_head), 6);
	client_free(&c);

	/* With completions owed, the ring is broken. */
	fuse_file(2, "hang");
	env_ring(&c, 8, true, 0, 0);
	for (unsigned i = 0; i < 4; i++) {
		struct usrbio_args a = env_args(2, i * 64, i * 64, 64);

		T_CHECK(client_prep(&c, &a) >= 0);
	}
	server_ring_kick(c.ring);
	(void)server_ring_help(c.ring);
	for (uint64_t end = t_hang(); fusefs_waiting(&fs) < 4 && t_now() < end;)
		(void)usleep(1000);
	T_EQ(fusefs_waiting(&fs), 4);
	*c.at.cq_tail = 3; /* six completions seem present, and four are owed */
	server_ring_kick(c.ring);
	wait_broken(&c, &st);
	for (uint64_t end = t_hang(); st.requests < 4 && t_now() < end;) {
		fusefs_release(&fs);
		(void)usleep(5000);
		server_ring_stats(c.ring, &st);
	}
	T_EQ(st.requests, 4);
	T_EQ(usrbio_marker(c.at.cq_head), 0);
	client_free(&c);
	client_free(&good);
	env_end();
	fusefs_stop(&fs);
}

/* ------------------------------------------------------------ lost memory */

static sigjmp_buf elsewhere;
static volatile sig_atomic_t nr_elsewhere;

static void on_bus(int sig, siginfo_t *info, void *ctx)
{
	(void)sig;
	(void)info;
	(void)ctx;
	nr_elsewhere++;
	siglongjmp(elsewhere, 1);
}

/* Map a ring in a file that can be truncated.  The ring's four markers are in the first page, all
 * else is after that page. */
static int shm_map(struct client *c)
{
	int fd = memfd_create("ring", MFD_CLOEXEC);

	*c = (struct client){ .size = usrbio_ring_size(400) };
	T_CHECK(fd >= 0);
	T_EQ(ftruncate(fd, (off_t)c->size), 0);
	c->base = mmap(NULL, c->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	T_CHECK(c->base != MAP_FAILED);
	T_EQ(usrbio_ring_at(c->base, c->size, &c->at), 0);
	c->busy = calloc(c->at.slots, 1);
	T_CHECK(c->busy);
	return fd;
}

/* Return true if reading the byte faults. */
static bool faults(volatile char *p)
{
	if (sigsetjmp(elsewhere, 1))
		return true;
	(void)*p;
	return false;
}

static void P10_memory_goes_away(void)
{
	struct sigaction sa = { .sa_sigaction = on_bus, .sa_flags = SA_SIGINFO }, old, now;
	struct server_opts o = { .threads = 1, .guard = true };
	struct client c, good;
	uint64_t end = t_in_ms(RIG_WAIT_MS);

	T_EQ(sigaction(SIGBUS, &sa, &old), 0);
	env_begin(&o);
	env_file(1, FILE_LEN, O_RDONLY);
	env_ring(&good, 16, true, 0, 0);
	for (unsigned i = 0; i < 200; i++) {
		struct server_ring_stats st;
		struct server_ring_opts ro;
		int fd = shm_map(&c);

		ro = client_opts(&c, true);
		if (i % 20 == 0) {
			T_EQ(ftruncate(fd, 0), 0);
			T_EQ(server_ring_add(my.w, &ro, &c.ring), -EINVAL);
			(void)close(fd);
			client_free(&c);
			continue;
		}
		client_add(&c, my.w, &ro);
		prep(&c, ENTRIES);
		server_ring_kick(c.ring);
		if (i & 1)
			for (uint64_t when = t_now() + rig_below(100000); t_now() < when;)
				;
		/* Truncate to 0, or to the first page. */
		T_EQ(ftruncate(fd, i & 2 ? 0 : PAGE), 0);
		if (!(i & 2))
			usrbio_marker_set(c.at.sq_head, ENTRIES + 1);
		server_ring_kick(c.ring);
		do {
			prep(&good, 10);
			server_ring_kick(good.ring);
			expect(&good, 10, false);
			server_ring_stats(c.ring, &st);
		} while (!st.broken && t_now() < end);
		T_CHECK(st.broken);
		/* A fault outside of the server reaches the previous handler. */
		T_CHECK(faults((char *)c.base + c.size - 1));
		(void)close(fd);
		client_free(&c);
	}
	T_CHECK(nr_elsewhere >= 190);
	client_free(&good);
	env_end();
	T_EQ(sigaction(SIGBUS, &old, &now), 0);
	T_CHECK(now.sa_sigaction == on_bus);
}

/* -------------------------------------------------------------- many things */

#define MANY_FILES 10000u
#define FDS_PER_FILE 3u

/* Return how many files the descriptor limit allows. */
static unsigned files_possible(void)
{
	rlim_t want = FDS_PER_FILE * MANY_FILES + 200;
	struct rlimit rl;

	(void)getrlimit(RLIMIT_NOFILE, &rl);
	if (rl.rlim_max < want) {
		struct rlimit more = { want, want };

		if (setrlimit(RLIMIT_NOFILE, &more) == 0)
			return MANY_FILES;
	}
	rl.rlim_cur = rl.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &rl);
	if (rl.rlim_max >= want)
		return MANY_FILES;
	return (unsigned)(rl.rlim_max - 200) / FDS_PER_FILE;
}

static void P10_ten_thousand_files(void)
{
	unsigned nr = files_possible();
	struct server_file **files = calloc(nr, sizeof(void *));
	struct client c;

	T_CHECK(files);
	if (nr < MANY_FILES)
		printf("# %u files: RLIMIT_NOFILE allows no more\n", nr);
	env_begin(NULL);
	env_file(1, FILE_LEN, O_RDONLY);
	env_ring(&c, 16, true, 0, 0);
	for (unsigned i = 0; i < nr; i++) {
		int fd = open(rig_path("many"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
		char buf[600];

		t_fill(buf, 1000 + i, 0, sizeof(buf));
		T_CHECK(fd >= 0 && write(fd, buf, sizeof(buf)) == sizeof(buf));
		(void)unlink(rig_path("many"));
		T_OK(server_file_add(my.w, 1000 + i, fd, &files[i]));
		(void)close(fd);
	}
	for (unsigned i = 0; i < 20000; i++) {
		uint64_t number = 1000 + (i < nr ? i : rig_below(nr));
		struct usrbio_args a = env_args(number, 0, 0, 600);

		T_EQ(env_do(&c, &a), 600);
		T_EQ(t_differs(my.host, number, 0, 600), 600);
		if (i % 1000 == 0) {
			a.file = 1000 + nr;
			T_EQ(env_do(&c, &a), -EBADF);
		}
	}
	for (unsigned i = 0; i < nr; i++)
		server_file_remove(my.w, files[i]);
	client_free(&c);
	env_end();
	free(files);
}

static void P10_many_rings(void)
{
	enum { NR = 500 };
	static struct client c[NR];
	struct server_opts o = { .threads = 3 };

	env_begin(&o);
	env_file(1, FILE_LEN, O_RDONLY);
	for (unsigned i = 0; i < NR; i++)
		env_ring(&c[i], 4, true, i & 1 ? 0 : -2, 1);
	for (unsigned k = 0; k < 10; k++) {
		for (unsigned i = 0; i < NR; i++) {
			prep(&c[i], 3);
			server_ring_kick(c[i].ring);
		}
		for (unsigned i = 0; i < NR; i++)
			expect(&c[i], 3, false);
	}
	for (unsigned i = 0; i < NR; i++)
		client_free(&c[(i * 7) % NR]);
	env_end();
}

int main(void)
{
	rig_init();
	(void)atexit(stop_fuse);
	rig_run1("P10_scribble", P10_scribble);
	BOTH(P10_forged_markers);
	BOTH(P10_tail_moved_back);
	BOTH(P10_memory_goes_away);
	rig_run1("P10_ten_thousand_files", P10_ten_thousand_files);
	BOTH(P10_many_rings);
	return rig_done();
}
