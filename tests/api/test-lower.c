/* SPDX-License-Identifier: MIT */
/*
 * A provider that forwards each request to one of two lower files, and may switch at any time.
 *
 * pair://A;B is the file A until choose() selects B.
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "rig.h"

#include "base/err.h"
#include "core/queue/object.h"
#include "file/file.h"
#include "provider.h"

#define LEN RIG_MIB(4)
#define BLOCK 65536
#define SWITCHES 10000
#define SEED_A 4
#define SEED_B 5
#define LATER 30000 /* ms; a deadline that no case reaches */

/* The library's own function.  The linker redirects pst_file_open() to the test provider. */
int __real_pst_file_open(const char *path, uint32_t flags, const struct pst_file_opts *opts,
			 struct pst_file **ret_file);

static struct pst_file *open_real(const char *path, uint32_t flags)
{
	struct pst_file *f = NULL;

	T_OK(__real_pst_file_open(path, flags, NULL, &f));
	return f;
}

struct pair {
	struct file file; /* must be the first member */
	struct pst_file *of[2];
	atomic_uint now;
	atomic_int refuses;  /* -errno for writes and syncs, or 0 */
	atomic_uint asked;   /* calls of lower() that were refused */
	atomic_int holds[2]; /* requests on each lower file */
};

static struct pair *pair_of(struct pst_file *f)
{
	return container_of(f->file, struct pair, file);
}

static int pair_lower(struct file *f, uint32_t op, struct pst_file **ret)
{
	struct pair *p = container_of(f, struct pair, file);
	int r = op == PST_OP_READ ? 0 : atomic_load(&p->refuses);
	unsigned now = atomic_load(&p->now);

	if (r) {
		atomic_fetch_add(&p->asked, 1);
		return r == -EAGAIN ? r : err_set(-r, "the pair refuses");
	}
	atomic_fetch_add(&p->holds[now], 1);
	*ret = p->of[now];
	return 0;
}

static void pair_lower_put(struct file *f, uint32_t op, struct pst_file *beneath)
{
	struct pair *p = container_of(f, struct pair, file);

	(void)op;
	T_CHECK(beneath == p->of[0] || beneath == p->of[1]);
	atomic_fetch_sub(&p->holds[beneath == p->of[1]], 1);
}

static int pair_open(const char *name, uint32_t flags, uint32_t mode, struct file **ret)
{
	struct pair *p = calloc(1, sizeof(*p));
	char a[1200], *b;

	(void)mode;
	T_CHECK(p);
	(void)snprintf(a, sizeof(a), "%s", strchr(name, '/') + 2);
	b = strchr(a, ';');
	T_CHECK(b);
	*b++ = '\0';
	p->of[0] = open_real(a, flags);
	p->of[1] = open_real(b, flags);
	p->file.flags = flags;
	(void)snprintf(p->file.name, sizeof(p->file.name), "pair");
	*ret = &p->file;
	return 0;
}

static void pair_free(struct file *f)
{
	struct pair *p = container_of(f, struct pair, file);

	for (unsigned i = 0; i < 2; i++) {
		T_EQ(atomic_load(&p->holds[i]), 0);
		pst_file_close(p->of[i]);
	}
	free(p);
}

static int pair_size(const struct file *f, uint64_t *ret)
{
	const struct pair *p = container_of(f, const struct pair, file);
	struct pst_file_info info = { .sz = sizeof(info) };
	int r = pst_file_info(p->of[atomic_load(&p->now)], &info);

	*ret = info.size;
	return r;
}

static struct file_ops pair_file_ops = {
	.scheme = "pair",
	.lower = pair_lower,
	.lower_put = pair_lower_put,
	.open = pair_open,
	.free = pair_free,
	.size = pair_size,
};

static int pair_open_with_ops(const char *name, uint32_t flags, uint32_t mode, struct file **ret)
{
	int r = pair_open(name, flags, mode, ret);

	if (r == 0)
		(*ret)->ops = &pair_file_ops;
	return r;
}

/* Open a pair of files of LEN bytes: SEED_A, and a second with this seed. */
static struct pst_file *open_pair(uint64_t seed_b, uint32_t flags)
{
	char name[1200];

	rig_make(rig_path("a"), SEED_A, LEN);
	rig_make(rig_path("b"), seed_b, LEN);
	(void)snprintf(name, sizeof(name), "pair://%s;%s", rig_path("a"), rig_path("b"));
	return rig_open(name, flags);
}

static void choose(struct pst_file *f, unsigned which)
{
	atomic_store(&pair_of(f)->now, which);
}

/* ----------------------------------------------------------------------- cases */

static void each_request_is_on_the_file_beneath(void)
{
	struct pst_file *f = open_pair(SEED_B, RIG_RW), *plain = open_real(rig_path("a"), RIG_RW);
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	unsigned tries;
	struct pst_done d;
	struct pst_io io;

	for (unsigned i = 0; i < 4; i++) {
		uint64_t seed = i % 2 ? SEED_B : SEED_A;

		choose(f, i % 2);
		d = rig_read(f, m, 0, 0, LEN);
		T_EQ(d.res, LEN);
		T_EQ(rig_mem_differs(m, 0, LEN, seed, 0), LEN);
		/* Small requests take a shorter path in the library. */
		T_EQ(rig_read(f, m, 8192, 0, 4096).res, 4096);
		T_EQ(rig_mem_differs(m, 0, 4096, seed, 8192), 4096);
		/*
		 * Read the same without a request, as soon as the library knows that the file is
		 * cached.
		 */
		io = rig_io(PST_OP_READ, f, m, 4096, 0, 4096);
		for (tries = 0; pst_queue_try(rig_q, &io, 1, &d) != 1; tries++) {
			T_CHECK(tries < 100);
			T_EQ(rig_do(rig_q, &io).res, 4096);
		}
		T_EQ(d.res, 4096);
		T_EQ(rig_mem_differs(m, 0, 4096, seed, 4096), 4096);
	}
	choose(f, 0);
	rig_mem_fill(m, 0, BLOCK, SEED_B, 0);
	T_EQ(rig_write(f, m, 0, 0, BLOCK).res, BLOCK);
	T_EQ(rig_sync(f).res, 0);
	T_EQ(rig_read(plain, m, 0, 0, BLOCK).res, BLOCK);
	T_EQ(rig_mem_differs(m, 0, BLOCK, SEED_B, 0), BLOCK);
	pst_file_close(plain);
	pst_file_close(f);
	pst_mem_free(m);
}

/* The second file is in memory and cannot use O_DIRECT. The pair must report that, even if the
 * first file can. */
static void facts_are_those_of_the_file_beneath(void)
{
	char shm[] = "/dev/shm/pst-lower-XXXXXX", name[1200];
	struct pst_path_info info = { .sz = sizeof(info) };
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	int fd = mkstemp(shm);
	struct pst_file *f;
	struct pst_io io;

	T_CHECK(fd >= 0);
	(void)close(fd);
	rig_make(shm, SEED_B, LEN);
	rig_make(rig_path("a"), SEED_A, LEN);
	(void)snprintf(name, sizeof(name), "pair://%s;%s", rig_path("a"), shm);
	f = rig_open(name, RIG_R);
	(void)unlink(shm);
	if (!rig_file_info(f).direct) {
		pst_file_close(f);
		pst_mem_free(m);
		T_SKIP("O_DIRECT in the scratch directory");
	}
	io = rig_io(PST_OP_READ, f, m, 0, 0, LEN);
	io.policy = rig_soft() ? PST_POLICY2(PST_PATH_STAGED, PST_PATH_DIRECT) : PST_PATH_DIRECT;
	io.flags = PST_IO_STRICT;
	T_EQ(rig_do(rig_q, &io).res, LEN);
	T_OK(pst_path_check(f, m, PST_OP_READ, PST_PATH_DIRECT, &info));
	T_EQ(info.why, PST_WHY_NONE);
	choose(f, 1);
	T_CHECK(!rig_file_info(f).direct);
	T_EQ(rig_do(rig_q, &io).res, -EOPNOTSUPP);
	T_OK(pst_path_check(f, m, PST_OP_READ, PST_PATH_DIRECT, &info));
	T_CHECK(info.why != PST_WHY_NONE);
	io.policy = 0;
	io.flags = 0;
	T_EQ(rig_do(rig_q, &io).res, LEN);
	T_EQ(rig_mem_differs(m, 0, LEN, SEED_B, 0), LEN);
	pst_file_close(f);
	pst_mem_free(m);
}

/* A cached plan must not outlive the lower file, whose address may be reused. */
static void plans_end_with_the_file_beneath(void)
{
	char shm[] = "/dev/shm/pst-lower-XXXXXX";
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	struct pst_file *f = open_pair(SEED_A, RIG_R);
	bool direct = rig_file_info(f).direct;
	int fd = mkstemp(shm);
	struct pst_io io;

	T_CHECK(fd >= 0);
	(void)close(fd);
	rig_make(shm, SEED_B, LEN);
	io = rig_io(PST_OP_READ, f, m, 0, 0, LEN);
	io.policy = rig_soft() ? PST_POLICY2(PST_PATH_STAGED, PST_PATH_DIRECT) : PST_PATH_DIRECT;
	io.flags = PST_IO_STRICT;
	for (unsigned i = 0; direct && i < 20; i++) {
		struct pair *p = pair_of(f);

		T_EQ(rig_do(rig_q, &io).res, LEN);
		/* The next file that is opened reuses the memory of the closed one. */
		pst_file_close(p->of[0]);
		p->of[0] = open_real(shm, RIG_R);
		T_EQ(rig_do(rig_q, &io).res, -EOPNOTSUPP);
		pst_file_close(p->of[0]);
		p->of[0] = open_real(rig_path("a"), RIG_R);
	}
	(void)unlink(shm);
	pst_file_close(f);
	pst_mem_free(m);
	if (!direct)
		T_SKIP("O_DIRECT in the scratch directory");
}

struct switcher {
	struct pst_file *f;
	atomic_bool stop;
	atomic_uint done;
};

static void *switches(void *arg)
{
	struct switcher *s = arg;

	while (!atomic_load(&s->stop)) {
		choose(s->f, (atomic_fetch_add(&s->done, 1) + 1) % 2);
		(void)sched_yield();
	}
	return NULL;
}

static void switches_under_reads_lose_nothing(void)
{
	struct switcher s = { .f = open_pair(SEED_A, RIG_R) };
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	unsigned nr = LEN / BLOCK, rounds = 0;
	struct pst_done d[LEN / BLOCK];
	pthread_t thread;

	T_EQ(pthread_create(&thread, NULL, switches, &s), 0);
	while (rounds++ < 20 || atomic_load(&s.done) < SWITCHES) {
		for (unsigned i = 0; i < nr; i++) {
			struct pst_io io = rig_io(PST_OP_READ, s.f, m, i * BLOCK, i * BLOCK, BLOCK);

			T_OK(pst_queue_prep(rig_q, &io));
		}
		T_EQ(pst_queue_submit(rig_q), nr);
		T_EQ(pst_queue_reap(rig_q, d, nr, nr, t_in_ms(RIG_WAIT_MS)), nr);
		for (unsigned i = 0; i < nr; i++)
			T_EQ(d[i].res, BLOCK);
		if (rounds % 8 == 1) {
			T_EQ(rig_mem_differs(m, 0, LEN, SEED_A, 0), LEN);
			rig_mem_fill(m, 0, LEN, SEED_B, 0);
		}
	}
	atomic_store(&s.stop, true);
	T_EQ(pthread_join(thread, NULL), 0);
	T_OK(pst_file_drain(s.f, t_in_ms(RIG_WAIT_MS)));
	pst_file_close(s.f);
	pst_mem_free(m);
}

/* Submit a write or sync that the pair refuses at first. */
static void put_off(uint32_t op, struct pst_file *f, struct pst_mem *m, uint64_t deadline)
{
	struct pst_io io = rig_io(op, f, m, 0, 0, BLOCK);

	if (op == PST_OP_SYNC)
		io = (struct pst_io){ .op = op, .file = f };
	io.user_data = 7;
	io.deadline_ns = deadline;
	T_OK(pst_queue_prep(rig_q, &io));
	T_EQ(pst_queue_submit(rig_q), 1);
}

/*
 * The pair answers -EAGAIN. The library asks again until the request may start, for a caller that
 * waits and for one that polls.
 */
static void not_now_is_asked_again(void)
{
	static const uint32_t ops[] = { PST_OP_WRITE, PST_OP_SYNC };
	struct pst_file *f = open_pair(SEED_B, RIG_RW);
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	struct pair *p = pair_of(f);
	struct pst_done d;

	for (unsigned i = 0; i < RIG_NR(ops); i++) {
		rig_mem_fill(m, 0, BLOCK, SEED_B, 0);
		atomic_store(&p->refuses, -EAGAIN);
		put_off(ops[i], f, m, t_in_ms(LATER));
		/* A read completes although the write or sync waits. */
		T_EQ(rig_read(f, m, BLOCK, BLOCK, BLOCK).res, BLOCK);
		T_EQ(pst_queue_reap(rig_q, &d, 0, 1, 0), 0);
		T_EQ(pst_queue_reap(rig_q, &d, 1, 1, t_in_ms(20)), 0);
		T_CHECK(atomic_load(&p->asked) > 1);
		T_EQ(pst_file_drain(f, 0), -EBUSY);
		atomic_store(&p->refuses, 0);
		T_EQ(rig_reap1(rig_q).res, ops[i] == PST_OP_WRITE ? BLOCK : 0);
		T_EQ(rig_read(f, m, 0, 0, BLOCK).res, BLOCK);
		T_EQ(rig_mem_differs(m, 0, BLOCK, SEED_B, 0), BLOCK);
	}
	pst_file_close(f);
	pst_mem_free(m);
}

static void *allow_later(void *arg)
{
	struct pair *p = arg;

	while (atomic_load(&p->asked) < 3)
		(void)usleep(1000);
	atomic_store(&p->refuses, 0);
	return NULL;
}

static void not_now_wakes_who_polls(void)
{
	struct pst_file *f = open_pair(SEED_B, RIG_RW);
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	int fd = pst_queue_fd(rig_q);
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	pthread_t thread;
	struct pst_done d;

	T_CHECK(fd >= 0);
	atomic_store(&pair_of(f)->refuses, -EAGAIN);
	put_off(PST_OP_WRITE, f, m, t_in_ms(LATER));
	T_EQ(pthread_create(&thread, NULL, allow_later, pair_of(f)), 0);
	do
		T_EQ(poll(&pfd, 1, RIG_WAIT_MS), 1);
	while (pst_queue_reap(rig_q, &d, 0, 1, 0) == 0);
	T_EQ(d.res, BLOCK);
	T_EQ(pthread_join(thread, NULL), 0);
	pst_file_close(f);
	pst_mem_free(m);
}

static void put_off_requests_end_early(void)
{
	struct pst_file *f = open_pair(SEED_B, RIG_RW);
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	struct pst_done d;

	atomic_store(&pair_of(f)->refuses, -EAGAIN);
	put_off(PST_OP_WRITE, f, m, t_in_ms(20));
	T_EQ(rig_reap1(rig_q).res, -ETIMEDOUT);
	put_off(PST_OP_WRITE, f, m, t_in_ms(LATER));
	T_EQ(pst_queue_cancel(rig_q, 7), 1);
	d = rig_reap1(rig_q);
	T_EQ(d.res, -ECANCELED);
	T_EQ(d.flags & PST_DONE_BUSY, 0);
	/* A sync after a deferred write waits for it, and a cancel ends both. */
	put_off(PST_OP_WRITE, f, m, t_in_ms(LATER));
	put_off(PST_OP_SYNC, f, m, t_in_ms(LATER));
	T_EQ(pst_queue_cancel(rig_q, 7), 2);
	T_EQ(rig_reap1(rig_q).res, -ECANCELED);
	T_EQ(rig_reap1(rig_q).res, -ECANCELED);
	T_OK(pst_file_drain(f, 0));
	atomic_store(&pair_of(f)->refuses, -EIO);
	put_off(PST_OP_WRITE, f, m, t_in_ms(LATER));
	T_EQ(rig_reap1(rig_q).res, -EIO);
	put_off(PST_OP_SYNC, f, m, t_in_ms(LATER));
	T_EQ(rig_reap1(rig_q).res, -EIO);
	T_EQ(rig_read(f, m, 0, 0, BLOCK).res, BLOCK);
	pst_file_close(f);
	pst_mem_free(m);
}

/* An operation on the lower file hangs: the file must stay held until it ends, even after a
 * cancel. */
static void hung_file_beneath_stays_held(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	struct test_gate gate = { .deaf = true };
	struct pst_file *f;
	struct pst_done d;
	struct pst_io io;
	char name[1200];

	rig_make(rig_path("a"), SEED_A, LEN);
	rig_make(rig_path("b"), SEED_B, LEN);
	(void)snprintf(name, sizeof(name), "pair://test://%s;%s", rig_path("a"), rig_path("b"));
	test_gate_use(&gate);
	f = rig_open(name, RIG_R);
	test_gate_use(NULL);
	io = rig_io(PST_OP_READ, f, m, 0, 0, BLOCK);
	io.user_data = 7;
	T_OK(pst_queue_prep(rig_q, &io));
	T_EQ(pst_queue_submit(rig_q), 1);
	while (!atomic_load(&gate.held[TEST_BAR_READ]))
		T_EQ(pst_queue_reap(rig_q, &d, 1, 1, t_in_ms(1)), 0);
	T_EQ(pst_queue_cancel(rig_q, 7), 1);
	T_EQ(rig_reap1(rig_q).res, -ECANCELED);
	T_EQ(pst_file_drain(f, 0), -EBUSY);
	T_EQ(atomic_load(&pair_of(f)->holds[0]), 1);
	choose(f, 1);
	T_EQ(rig_read(f, m, 0, BLOCK, BLOCK).res, BLOCK);
	T_EQ(rig_mem_differs(m, BLOCK, BLOCK, SEED_B, 0), BLOCK);
	test_gate_set(&gate, TEST_BAR_READ, TEST_DONE);
	T_OK(pst_file_drain(f, t_in_ms(RIG_WAIT_MS)));
	T_EQ(atomic_load(&pair_of(f)->holds[0]), 0);
	pst_file_close(f);
	pst_mem_free(m);
}

static void pair_of_pairs_is_refused(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	struct pst_file *f, *inner = open_pair(SEED_B, RIG_R);
	struct pst_file *plain;

	f = open_pair(SEED_B, RIG_R);
	plain = pair_of(f)->of[0];
	pair_of(f)->of[0] = inner;
	T_EQ(rig_read(f, m, 0, 0, BLOCK).res, -ELOOP);
	pst_file_close(plain);
	pst_file_close(f);
	pst_mem_free(m);
}

static void incomplete_tables_are_refused(void)
{
	struct file_ops ops = pair_file_ops;

	ops.scheme = "half";
	ops.lower_put = NULL;
	T_EQ(file_provider_add(&ops), -EINVAL);
	ops.lower_put = pair_lower_put;
	ops.hop = 9;
	T_EQ(file_provider_add(&ops), -EINVAL);
}

int main(void)
{
	rig_init();
	pair_file_ops.open = pair_open_with_ops;
	T_OK(file_provider_add(&pair_file_ops));
	RIG_RUN(each_request_is_on_the_file_beneath);
	RIG_RUN(facts_are_those_of_the_file_beneath);
	RIG_RUN(plans_end_with_the_file_beneath);
	RIG_RUN(switches_under_reads_lose_nothing);
	RIG_RUN(not_now_is_asked_again);
	RIG_RUN(not_now_wakes_who_polls);
	RIG_RUN(put_off_requests_end_early);
	RIG_RUN(hung_file_beneath_stays_held);
	RIG_RUN(pair_of_pairs_is_refused);
	RIG_RUN1(incomplete_tables_are_refused);
	return rig_done();
}
