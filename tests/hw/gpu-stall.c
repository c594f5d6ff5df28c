/* SPDX-License-Identifier: MIT */
/*
 * How long does the library block other users of the driver?
 *
 *	gpu-stall [-m DEVICE] stall FILE	longest duration of a cheap driver call in
 *						another thread, during a queue's start and
 *						while a file is pinned
 *	gpu-stall [-m DEVICE] large BOUND SIZE FILE	the same, with both bounds of pinned
 *						memory set, and a new file of SIZE
 *	gpu-stall [-m DEVICE] pool N FILE	staging memory of N processes that read at once
 *
 * Sizes are in bytes.  Each command prints one JSON object.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "hw.h"

#define CHILDREN_MAX 64
#define LOAD_NS UINT64_C(1500000000)

static const char *device = "cuda:0";

/* ------------------------------------------------------------------- stall */

enum phase { IDLE, START, LOADING, PINNING, CLOSING, PHASES };

static const char *const phase_names[] = { "idle", "start", "load", "pin", "close" };

static _Atomic int phase;
static _Atomic bool stop;
static _Atomic uint64_t longest[PHASES], calls[PHASES];
static uint64_t lasted[PHASES];
static char prober_text[200];

/* Allocate and free 1 MiB again and again: a framework allocator's smallest work under the
 * driver's locks. */
static void *prober(void *arg)
{
	cu_ptr p = 0;

	(void)arg;
	if (hw_cu.cuCtxPushCurrent_v2(hw_ctx) != CU_OK) {
		(void)snprintf(prober_text, sizeof(prober_text), "no context in the thread");
		return NULL;
	}
	while (!stop) {
		int at = phase, end;
		uint64_t begun = t_now(), ns;
		cu_result e = hw_cu.cuMemAlloc_v2(&p, RIG_MIB(1));

		if (e == CU_OK)
			e = hw_cu.cuMemFree_v2(p);
		ns = t_now() - begun;
		if (e != CU_OK) {
			(void)snprintf(prober_text, sizeof(prober_text), "the driver gave %u", e);
			return NULL;
		}
		/* Count a call that spans two phases in both. */
		end = phase;
		for (int i = at; i <= end; i++) {
			calls[i]++;
			if (ns > longest[i])
				longest[i] = ns;
		}
		(void)usleep(100);
	}
	return NULL;
}

/* Wait until a call begun in the previous phase has ended, so that its time counts there. */
static void settle(void)
{
	uint64_t seen = calls[phase], end = t_in_ms(2000);

	while (calls[phase] < seen + 2 && t_now() < end && !prober_text[0])
		(void)usleep(100);
}

static void enter(enum phase next)
{
	static uint64_t since;
	uint64_t now;

	if (next > START)
		settle();
	now = t_now();
	if (next > IDLE)
		lasted[next - 1] = now - since;
	since = now;
	phase = next == PHASES ? CLOSING : next;
}

static void load_all(struct pst_queue *q, struct pst_file *f, struct pst_mem *m, uint64_t len)
{
	for (uint64_t off = 0; off < len; off += RIG_MIB(256)) {
		uint64_t n = len - off < RIG_MIB(256) ? len - off : RIG_MIB(256);
		struct pst_io io = rig_io(PST_OP_READ, f, m, off, 0, n);

		T_EQ(rig_do(q, &io).res, (int64_t)n);
	}
}

static void stall(const char *path)
{
	struct pst_mem *m, *small;
	struct pst_queue *q;
	struct pst_file *f, *plain;
	struct pst_stats st;
	struct pst_io io;
	const char *why;
	pthread_t thread;
	uint64_t len, pinned = 0, last = UINT64_MAX, since, close_ns;

	why = hw_cuda(hw_ordinal(device));
	if (why)
		T_FAIL("%s", why);
	small = rig_alloc(device, RIG_MIB(1));
	m = rig_alloc(device, RIG_MIB(256));
	f = rig_open(path, RIG_R | PST_FILE_STABLE);
	plain = rig_open(path, RIG_R);
	len = rig_file_info(f).size;
	if (strcmp(rig_file_info(f).fs, "tmpfs") != 0)
		rig_warm(path);

	enter(IDLE);
	T_EQ(pthread_create(&thread, NULL, prober, NULL), 0);
	(void)usleep(1000000); /* the phase that the others are compared with */

	enter(START);
	q = rig_queue(PST_BACKEND_AUTO, 0);
	io = rig_io(PST_OP_READ, f, small, 0, 0, 4096);
	T_EQ(rig_do(q, &io).res, 4096);

	/* First read without pinning, to know the share of reads; then read with pinning. */
	enter(LOADING);
	load_all(q, plain, m, len);
	/* A file is pinned only when it is read a second time. */
	enter(PINNING);
	load_all(q, f, m, len);
	load_all(q, f, m, len);
	for (since = t_now(); t_now() - since < 500 * 1000000u;) {
		pinned = rig_stats(NULL).pages_bytes;
		if (pinned != last)
			since = t_now();
		last = pinned;
		if (pinned >= len)
			break;
		(void)usleep(1000);
	}
	st = rig_stats(NULL);
	enter(CLOSING);
	since = t_now();
	pst_file_close(f);
	close_ns = t_now() - since;
	pst_queue_free(q);
	/* Pages are unpinned in the background. */
	since = t_now();
	while (rig_stats(NULL).pages_bytes && t_now() - since < T_HANG_NS)
		(void)usleep(1000);
	enter(PHASES);
	stop = true;
	T_EQ(pthread_join(thread, NULL), 0);
	if (prober_text[0])
		T_FAIL("%s", prober_text);
	pst_file_close(plain);
	pst_mem_free(m);
	pst_mem_free(small);

	printf("{\"tool\": \"gpu-stall\", \"file_bytes\": %" PRIu64 ", \"pinned_bytes\": %" PRIu64
	       ", \"pin_ns\": %" PRIu64 ", \"close_ns\": %" PRIu64 ", \"pages_limit\": %" PRIu64
	       ", \"pool_bytes\": %" PRIu64 ", \"pool_limit\": %" PRIu64,
	       len, pinned, st.pages_ns, close_ns, st.pages_limit, st.pool_bytes, st.pool_limit);
	for (int i = 0; i < PHASES; i++)
		printf(", \"%s\": {\"longest_ms\": %.3f, \"calls\": %" PRIu64
		       ", \"lasted_ms\": %.1f}",
		       phase_names[i], (double)longest[i] / 1e6, calls[i], (double)lasted[i] / 1e6);
	printf("}\n");
}

static const char *made; /* file to remove at exit */

static void unmake(void)
{
	(void)unlink(made);
}

static uint64_t bytes(const char *text)
{
	char *end;
	uint64_t v = strtoull(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || !v)
		HW_DIE("gpu-stall: %s is no number of bytes", text);
	return v;
}

/* Allocated zeros suffice: only the duration is measured. */
static void large(uint64_t bound, uint64_t len, const char *path)
{
	struct pst_limits l = { .sz = sizeof(l), .pool_bytes = bound, .pages_bytes = bound };
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600), e;

	if (fd < 0)
		HW_DIE("gpu-stall: %s: %s", path, strerror(errno));
	made = path;
	(void)atexit(unmake);
	e = posix_fallocate(fd, 0, (off_t)len);
	(void)close(fd);
	if (e)
		HW_DIE("gpu-stall: %s: %s", path, strerror(e));
	T_OK(pst_limits_set(&l));
	stall(path);
}

/* -------------------------------------------------------------------- pool */

/* Shared by all processes. */
struct shared {
	_Atomic unsigned ready, go, ended;
	struct {
		_Atomic uint64_t pool, most, limit, bytes;
	} of[CHILDREN_MAX];
};

struct sampler {
	struct shared *sh;
	unsigned idx;
	_Atomic bool end;
};

static void *sample(void *arg)
{
	struct sampler *s = arg;

	while (!s->end) {
		struct pst_stats st = rig_stats(NULL);

		s->sh->of[s->idx].pool = st.pool_bytes;
		if (st.pool_bytes > s->sh->of[s->idx].most)
			s->sh->of[s->idx].most = st.pool_bytes;
		if (st.pool_limit > s->sh->of[s->idx].limit)
			s->sh->of[s->idx].limit = st.pool_limit;
		(void)usleep(500);
	}
	s->sh->of[s->idx].pool = 0;
	return NULL;
}

static struct shared *shared_map(int fd)
{
	void *p = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	T_CHECK(p != MAP_FAILED);
	return p;
}

/* Read the file repeatedly for 1.5 s, with 32 requests of 4 MiB in flight. */
static void load(const char *path, int fd, unsigned idx)
{
	enum { DEPTH = 32 };
	struct sampler s = { .sh = shared_map(fd), .idx = idx };
	struct pst_mem *m = rig_alloc(device, DEPTH * RIG_MIB(4));
	struct pst_file *f = rig_open(path, RIG_R);
	struct pst_queue *q = rig_queue(PST_BACKEND_AUTO, 0);
	uint64_t len = rig_file_info(f).size / RIG_MIB(4), at = idx * 7, begun;
	unsigned inflight = 0;
	struct pst_done d;
	pthread_t thread;

	T_CHECK(len > 0 && idx < CHILDREN_MAX);
	T_EQ(pthread_create(&thread, NULL, sample, &s), 0);
	s.sh->ready++;
	while (!s.sh->go)
		(void)usleep(200);
	begun = t_now();
	for (unsigned i = 0; i < DEPTH || inflight; i++) {
		struct pst_io io = rig_io(PST_OP_READ, f, m, at++ % len * RIG_MIB(4),
					  i % DEPTH * RIG_MIB(4), RIG_MIB(4));

		if (t_now() - begun < LOAD_NS) {
			T_OK(pst_queue_prep(q, &io));
			T_EQ(pst_queue_submit(q), 1);
			inflight++;
		}
		if (inflight >= DEPTH || t_now() - begun >= LOAD_NS) {
			if (!inflight)
				break;
			T_EQ(pst_queue_reap(q, &d, 1, 1, t_in_ms(RIG_WAIT_MS)), 1);
			T_EQ(d.res, RIG_MIB(4));
			s.sh->of[idx].bytes += RIG_MIB(4);
			inflight--;
		}
	}
	/* Keep the pool until every process is done, so that all pools exist together. */
	s.sh->ended++;
	while (s.sh->ended < s.sh->ready)
		(void)usleep(200);
	s.end = true;
	T_EQ(pthread_join(thread, NULL), 0);
	pst_queue_free(q);
	pst_file_close(f);
	pst_mem_free(m);
}

static void pool(const char *self, unsigned nr, const char *path)
{
	int fd = memfd_create("gpu-stall", 0), status, failed = 0;
	struct shared *sh;
	char args[2][16];
	uint64_t most = 0, limit = 0, one = 0, bytes = 0, deadline = t_in_ms(60000);
	unsigned left = nr;

	T_CHECK(fd >= 0 && nr > 0 && nr <= CHILDREN_MAX);
	T_EQ(ftruncate(fd, sizeof(*sh)), 0);
	sh = shared_map(fd);
	(void)snprintf(args[0], sizeof(args[0]), "%d", fd);
	for (unsigned i = 0; i < nr; i++) {
		pid_t pid = fork();

		(void)snprintf(args[1], sizeof(args[1]), "%u", i);
		if (pid == 0) {
			(void)execl(self, self, "-m", device, "child", args[0], args[1], path,
				    (char *)NULL);
			_exit(127);
		}
		T_CHECK(pid > 0);
	}
	while (left) {
		uint64_t sum = 0;

		if (sh->ready == nr)
			sh->go = 1;
		for (unsigned i = 0; i < nr; i++)
			sum += sh->of[i].pool;
		most = sum > most ? sum : most;
		while (left && waitpid(-1, &status, WNOHANG) > 0) {
			left--;
			failed += status != 0;
			/* Count a failed process as ended, so that the others do not wait for
			 * it. */
			if (status != 0)
				sh->go = 1;
			if (status != 0)
				sh->ended++;
		}
		if (t_now() > deadline)
			T_FAIL("%u processes did not end in a minute", left);
		(void)usleep(200);
	}
	for (unsigned i = 0; i < nr; i++) {
		limit = sh->of[i].limit > limit ? sh->of[i].limit : limit;
		one = sh->of[i].most > one ? sh->of[i].most : one;
		bytes += sh->of[i].bytes;
	}
	if (failed)
		T_FAIL("%d of %u processes failed", failed, nr);
	printf("{\"tool\": \"gpu-stall\", \"processes\": %u, \"sum_most\": %" PRIu64
	       ", \"one_most\": %" PRIu64 ", \"limit_of_one\": %" PRIu64 ", \"bytes\": %" PRIu64
	       ", \"gb_per_s\": %.2f}\n",
	       nr, most, one, limit, bytes, (double)bytes / (double)LOAD_NS);
}

static void command(const char *self, int nr, char **v)
{
	if (nr >= 2 && !strcmp(v[0], "-m")) {
		device = v[1];
		v += 2;
		nr -= 2;
	}
	if (nr == 2 && !strcmp(v[0], "stall"))
		stall(v[1]);
	else if (nr == 4 && !strcmp(v[0], "large"))
		large(bytes(v[1]), bytes(v[2]), v[3]);
	else if (nr == 3 && !strcmp(v[0], "pool"))
		pool(self, (unsigned)atoi(v[1]), v[2]);
	else if (nr == 4 && !strcmp(v[0], "child"))
		load(v[3], atoi(v[1]), (unsigned)atoi(v[2]));
	else
		HW_DIE("usage: gpu-stall [-m DEVICE] "
		       "stall FILE | large BOUND SIZE FILE | pool N FILE");
}

int main(int argc, char **argv)
{
	if (setjmp(t_jump))
		HW_DIE("gpu-stall: %s", t_why);
	command(argv[0], argc - 1, argv + 1);
	return 0;
}
