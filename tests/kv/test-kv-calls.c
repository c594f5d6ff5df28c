/* SPDX-License-Identifier: MIT */
/* A store whose calls fail one at a time or hang, and reads of a block during that. */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stddef.h>

#include "base/crc32c.h"

#include "kv/block.h"
#include "kv/hash.h"

#include "calls.h"
#include "kv_case.h"

#define BUDGET (1u << 20)
#define KEYS 6

/* ------------------------------------------------------- the n-th fails */

static atomic_uint calls_made, calls_fail_at;
static atomic_int calls_err;
static char calls_failed[32];

static int fail_nth(const char *call)
{
	if (++calls_made != calls_fail_at)
		return 0;
	(void)snprintf(calls_failed, sizeof(calls_failed), "%s", call);
	return strstr(call, "alloc") ? ENOMEM : calls_err;
}

/* Make every call of a store; no step may give wrong bytes or exceed the budget. */
static void use_all(void)
{
	struct pst_kv_opts o = { .sz = sizeof(o), .budget = BUDGET, .threads = 1, .reserve = 1 };
	struct pst_kv_space_opts so = { .sz = sizeof(so), .identity = "m", .tenant = "t" };
	struct pst_kv *kv;
	uint32_t space;
	char key[8];

	if (k_open_with(&o, &kv) < 0)
		return;
	if (pst_kv_space(kv, &so, &space) == 0) {
		for (unsigned i = 0; i < KEYS; i++) {
			(void)snprintf(key, sizeof(key), "%u", i % 4);
			(void)k_set(kv, space, key, 200000 + i % 4);
			T_CHECK(k_stat(kv).used <= BUDGET);
			T_CHECK(k_get(kv, space, key, 300000) != -1000);
		}
		(void)k_do(kv, PST_KV_DELETE, space, "1", NULL, 0);
		(void)pst_kv_drop(kv, NULL, "nobody");
		(void)k_set(kv, space, "4", 300000);
		T_CHECK(k_disk() <= BUDGET);
	}
	pst_kv_close(kv);
}

static void check_after(void)
{
	struct pst_kv *kv = k_open(BUDGET, 0);
	uint32_t space = k_space(kv, "m", "t");
	uint64_t used = k_stat(kv).used;
	char key[8];

	T_EQ(used, k_disk());
	T_CHECK(used <= BUDGET);
	for (unsigned i = 0; i < KEYS; i++) {
		int64_t r;

		(void)snprintf(key, sizeof(key), "%u", i);
		r = k_get(kv, space, key, 300000);
		T_CHECK(r == -ENOENT || r == (i == 4 ? 300000 : 200000 + (int64_t)i));
	}
	T_EQ(k_stat(kv).corrupt, 0);
	pst_kv_close(kv);
}

static void any_call_may_fail(void)
{
	static const int errs[] = { EIO, ENOSPC, EIO };
	unsigned n;

	/* In the third round, gets find blocks in memory. */
	for (size_t e = 0; e < 3; e++) {
		calls_warm = e == 2 ? UINT64_MAX : 0;
		for (n = 1;; n++) {
			k_new_root();
			calls_made = 0;
			calls_fail_at = n;
			calls_err = errs[e];
			calls_failed[0] = '\0';
			calls_hook = fail_nth;
			use_all();
			calls_hook = NULL;
			check_after();
			k_remove_root();
			if (calls_made < n)
				break;
			/* The first round fails each call, the others every third call. */
			n += e ? 2 : 0;
		}
		T_CHECK(n > 100);
	}
	calls_warm = 0;
}

/* ------------------------------------------- no room for one more file */

static atomic_uint full_for;
static const char *full_call;

static int refuse_files(const char *call)
{
	if (strcmp(call, full_call) != 0 || !full_for)
		return 0;
	full_for--;
	return ENOSPC;
}

static void a_file_system_without_inodes(void)
{
	static const char *const names[] = { "openat64", "mkdirat", "renameat" };
	struct pst_kv *kv;
	uint64_t before;
	uint32_t space, first, second;
	char key[8];

	k_new_root();
	kv = k_open(BUDGET, 0);
	space = k_space(kv, "m", "t");
	for (unsigned i = 0; i < 3; i++) {
		first = k_space(kv, "first", names[i]);
		second = k_space(kv, "second", names[i]);
		full_call = names[i];
		calls_hook = refuse_files;
		for (unsigned n = 0; n < 40; n++) {
			(void)snprintf(key, sizeof(key), "%u", n);
			T_EQ(k_set(kv, space, key, 5000), 0);
		}
		before = k_stat(kv).evicted;
		full_for = 2;
		/* The first block of a space makes directories. */
		T_EQ(k_set(kv, first, "new", 5000), 0);
		T_EQ(k_stat(kv).evicted, before + 8);
		T_EQ(full_for, 0);
		/* Emptying the store would not help, so a set does not try it. */
		before = k_stat(kv).evicted;
		full_for = UINT_MAX;
		T_EQ(k_set(kv, second, "new", 5000), -ENOSPC);
		T_EQ(k_stat(kv).evicted, before + 8);
		full_for = 0;
		calls_hook = NULL;
		T_EQ(k_stat(kv).used, k_disk());
	}
	pst_kv_close(kv);
	k_remove_root();
}

/* ----------------------------------------- devices without checksums */

static unsigned preps;

/* Refuse the checksum flag, like a device whose memory computes none: without the flag the
 * request is accepted. */
static int refuse_odd_preps(const char *call)
{
	return strstr(call, "pst_queue_prep") && ++preps % 2 ? EOPNOTSUPP : 0;
}

static int refuse_preps(const char *call)
{
	return strstr(call, "pst_queue_prep") ? EOPNOTSUPP : 0;
}

static void memory_without_checksums(void)
{
	struct pst_kv *kv;
	uint32_t space;

	k_new_root();
	kv = k_open(BUDGET, 0);
	space = k_space(kv, "m", "t");
	calls_hook = refuse_odd_preps;
	T_EQ(k_set(kv, space, "k", 200000), 0);
	T_EQ(preps, 2);
	T_EQ(k_get(kv, space, "k", 200000), 200000);
	T_EQ(preps, 4);
	calls_hook = refuse_preps;
	T_EQ(k_set(kv, space, "k", 200000), -EOPNOTSUPP);
	T_EQ(k_get(kv, space, "k", 200000), -EOPNOTSUPP);
	calls_hook = NULL;
	pst_kv_close(kv);
	k_remove_root();
}

/* ------------------------------------------------------------- hanging */

static struct {
	const char *call; /* call that hangs at the skip-th time */
	atomic_int skip;
	atomic_bool armed;
	sem_t there, go;
} hang;

static int hang_in(const char *call)
{
	if (!hang.armed || !strstr(call, hang.call) || hang.skip-- > 0)
		return 0;
	hang.armed = false;
	(void)sem_post(&hang.there);
	(void)sem_wait(&hang.go);
	return 0;
}

static void hang_at(const char *call, int skip)
{
	(void)sem_init(&hang.there, 0, 0);
	(void)sem_init(&hang.go, 0, 0);
	hang.call = call;
	hang.skip = skip;
	hang.armed = true;
	calls_hook = hang_in;
}

/* Return true if the call is reached within that time. */
static bool hung_within(uint64_t ms)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec += (time_t)(ms / 1000);
	ts.tv_nsec += (long)(ms % 1000) * 1000000;
	if (ts.tv_nsec >= 1000000000) {
		ts.tv_nsec -= 1000000000;
		ts.tv_sec++;
	}
	return sem_timedwait(&hang.there, &ts) == 0;
}

struct one {
	struct pst_kv *kv;
	uint32_t space;
	struct pst_kv_item item;
	int64_t result;
	char buf[100000];
};

static void submit(struct pst_kv *kv, uint32_t op, uint32_t space, struct one *one,
		   uint64_t deadline)
{
	struct pst_kv_batch b = {
		.sz = sizeof(b),
		.op = op,
		.space = space,
		.items = &one->item,
		.nr = 1,
		.results = &one->result,
		.deadline_ns = deadline,
	};

	one->item = (struct pst_kv_item){
		.key = "k",
		.key_len = 1,
		.mem_off = (uintptr_t)one->buf,
		.len = sizeof(one->buf),
	};
	one->result = -1000;
	T_OK(pst_kv_submit(kv, &b));
}

/* Wherever a disk hangs, the batch ends at its deadline, and the caller's memory is not touched
 * after that. */
static void a_hang_is_a_miss(void)
{
	static const struct {
		uint32_t op;
		const char *call;
	} where[] = {
		{ PST_KV_GET, "openat64" },      { PST_KV_GET, "fstat64" },
		{ PST_KV_GET, "pread64" },       { PST_KV_GET, "pst_file_wrap" },
		{ PST_KV_SET, "fstatvfs64" },    { PST_KV_SET, "openat64" },
		{ PST_KV_SET, "pst_file_wrap" }, { PST_KV_SET, "pwrite64" },
		{ PST_KV_SET, "renameat" },      { PST_KV_DELETE, "unlinkat" },
	};
	struct pst_kv_opts o = { .sz = sizeof(o), .budget = BUDGET, .threads = 1, .reserve = 1 };
	struct one *one = calloc(1, sizeof(*one));
	struct pst_kv_done done;
	struct pst_kv *kv;
	uint32_t space;

	for (size_t i = 0; i < sizeof(where) / sizeof(where[0]); i++) {
		k_new_root();
		T_OK(k_open_with(&o, &kv));
		space = k_space(kv, "m", NULL);
		T_EQ(k_set(kv, space, "k", 5000), 0);
		hang_at(where[i].call, 0);
		memset(one->buf, 0x33, sizeof(one->buf));
		/* On a busy machine, the deadline may pass before the call is reached: retry
		 * with a longer one. */
		for (uint64_t ms = 50;; ms *= 2) {
			T_CHECK(ms < 120000);
			submit(kv, where[i].op, space, one, t_in_ms(ms));
			if (hung_within(ms))
				break;
			T_EQ(pst_kv_reap(kv, &done, 1, t_hang()), 1);
		}
		T_EQ(pst_kv_reap(kv, &done, 1, t_hang()), 1);
		T_EQ(one->result, -ETIMEDOUT);
		T_EQ(done.err, -ETIMEDOUT);
		T_EQ(done.flags, 0);
		/* Other batches wait for the hanging thread, and end at their deadlines, too. */
		submit(kv, PST_KV_SET, space, one, t_in_ms(50));
		T_EQ(pst_kv_reap(kv, &done, 1, t_hang()), 1);
		T_EQ(one->result, -ETIMEDOUT);
		(void)sem_post(&hang.go);
		/* The thread works again, and has not touched the caller's memory after the
		 * deadline. */
		T_EQ(k_set(kv, space, "l", 70), 0);
		for (size_t k = 0; k < sizeof(one->buf); k++)
			T_EQ(one->buf[k], 0x33);
		T_EQ(pst_kv_reap(kv, &done, 1, 0), 0);
		T_EQ(k_stat(kv).used, k_disk());
		pst_kv_close(kv);
		calls_hook = NULL;
		k_remove_root();
	}
	free(one);
}

/* A get that hangs after its last access to the caller's memory ends at its deadline. */
static void a_hang_after_the_read_ends(void)
{
	struct pst_kv_opts o = { .sz = sizeof(o), .budget = BUDGET, .threads = 1 };
	struct one *one = calloc(1, sizeof(*one));
	struct pst_kv_done done;
	struct pst_kv *kv;
	uint32_t space;

	for (unsigned i = 0; i < 2; i++) {
		k_new_root();
		o.flags = i ? PST_KV_BOUNCE : 0;
		T_OK(k_open_with(&o, &kv));
		space = k_space(kv, "m", NULL);
		T_EQ(k_set(kv, space, "k", 5000), 0);
		hang_at("pst_file_close", 0);
		for (uint64_t ms = 50;; ms *= 2) {
			T_CHECK(ms < 120000);
			submit(kv, PST_KV_GET, space, one, t_in_ms(ms));
			if (hung_within(ms))
				break;
			T_EQ(pst_kv_reap(kv, &done, 1, t_hang()), 1);
		}
		T_EQ(pst_kv_reap(kv, &done, 1, t_hang()), 1);
		T_EQ(one->result, -ETIMEDOUT);
		(void)sem_post(&hang.go);
		T_EQ(k_set(kv, space, "l", 70), 0);
		pst_kv_close(kv);
		calls_hook = NULL;
		k_remove_root();
	}
	free(one);
}

/* The request ends after the deadline, and the next call hangs. */
static int late_in(const char *call)
{
	(void)hang_in(call);
	return strstr(call, "pst_queue_prep") ? ETIMEDOUT : 0;
}

static void a_hang_after_a_late_request_ends(void)
{
	struct pst_kv_opts o = { .sz = sizeof(o), .budget = BUDGET, .threads = 1 };
	struct one *one = calloc(1, sizeof(*one));
	struct pst_kv_done done;
	uint64_t deadline;
	struct pst_kv *kv;
	uint32_t space;

	k_new_root();
	T_OK(k_open_with(&o, &kv));
	space = k_space(kv, "m", NULL);
	hang_at("pst_queue_prep", 0);
	calls_hook = late_in;
	for (uint64_t ms = 50;; ms *= 2) {
		T_CHECK(ms < 120000);
		deadline = t_in_ms(ms);
		submit(kv, PST_KV_SET, space, one, deadline);
		if (hung_within(ms))
			break;
		T_EQ(pst_kv_reap(kv, &done, 1, t_hang()), 1);
	}
	/* The owner thread finds the request late, but must not complete it: the hung request still
	 * uses the memory. */
	while (t_now() < deadline + 100000000)
		(void)usleep(10000);
	T_EQ(pst_kv_reap(kv, &done, 1, 0), 0);
	hang.call = "unlinkat";
	hang.armed = true;
	(void)sem_post(&hang.go);
	T_CHECK(hung_within(60000));
	T_EQ(pst_kv_reap(kv, &done, 1, t_hang()), 1);
	T_EQ(one->result, -ETIMEDOUT);
	(void)sem_post(&hang.go);
	calls_hook = NULL;
	T_EQ(k_set(kv, space, "l", 70), 0);
	pst_kv_close(kv);
	free(one);
	k_remove_root();
}

static void a_close_ends_beside_a_hang(void)
{
	struct one *one = calloc(1, sizeof(*one));
	struct pst_kv_opts o = { .sz = sizeof(o), .budget = BUDGET };
	struct pst_kv *kv, *again;
	uint32_t space;
	uint64_t end;

	k_new_root();
	kv = k_open(BUDGET, 0);
	space = k_space(kv, "m", NULL);
	T_EQ(k_set(kv, space, "k", 5000), 0);
	hang_at("pread64", 0);
	submit(kv, PST_KV_GET, space, one, t_in_ms(50));
	T_CHECK(hung_within(60000));
	pst_kv_close(kv);
	T_EQ(one->result, -ETIMEDOUT);
	/* The bytes may still change, so no other store may open the root. */
	T_EQ(k_open_with(&o, &again), -EBUSY);
	(void)sem_post(&hang.go);
	for (end = t_hang(); k_open_with(&o, &again) < 0; (void)usleep(1000))
		T_CHECK(t_now() < end);
	T_EQ(k_stat(again).scanned, 1);
	pst_kv_close(again);
	calls_hook = NULL;
	free(one);
	k_remove_root();
}

/* Two threads name one new space, while the first thread is about to rename the file that records
 * the space's names. */
struct naming {
	struct pst_kv *kv;
	pthread_t thread;
	atomic_bool done;
	int r;
	uint32_t space;
};

static void *name_it(void *arg)
{
	struct pst_kv_space_opts o = { .sz = sizeof(o), .identity = "m" };
	struct naming *n = arg;

	n->r = pst_kv_space(n->kv, &o, &n->space);
	n->done = true;
	return NULL;
}

static void two_threads_name_one_space(void)
{
	struct naming n[2] = { 0 };

	k_new_root();
	n[0].kv = n[1].kv = k_open(BUDGET, 0);
	hang_at("renameat", 0);
	T_EQ(pthread_create(&n[0].thread, NULL, name_it, &n[0]), 0);
	T_CHECK(hung_within(60000));
	T_EQ(pthread_create(&n[1].thread, NULL, name_it, &n[1]), 0);
	/* Let the second thread run; it waits for the first one. */
	for (unsigned i = 0; i < 50 && !n[1].done; i++)
		(void)usleep(2000);
	(void)sem_post(&hang.go);
	for (int i = 0; i < 2; i++) {
		T_EQ(pthread_join(n[i].thread, NULL), 0);
		T_EQ(n[i].r, 0);
		T_EQ(n[i].space, 0);
	}
	calls_hook = NULL;
	pst_kv_close(n[0].kv);
	k_remove_root();
}

/* ------------------------------------------------------- the index file */

static unsigned syncs, names;

static int count_syncs(const char *call)
{
	if (!strcmp(call, "syncfs"))
		syncs++;
	if (!strcmp(call, "renameat")) {
		T_EQ(syncs, 1);
		names++;
	}
	return 0;
}

/* A removed file that reappears after a power loss must not be missing in the index. */
static void the_index_comes_after_a_sync(void)
{
	struct pst_kv *kv;

	k_new_root();
	kv = k_open(BUDGET, 0);
	T_EQ(k_set(kv, k_space(kv, "m", NULL), "k", 5000), 0);
	calls_hook = count_syncs;
	pst_kv_close(kv);
	calls_hook = NULL;
	T_EQ(names, 1);
	k_remove_root();
}

/* Change the first record in the index of a root with one space and two blocks. */
static void forge_record(unsigned how)
{
	struct {
		uint64_t head[8], space;
		struct {
			uint64_t id, size;
			uint32_t user, cache;
		} records[2];
		uint32_t crc;
	} __attribute__((packed)) index;
	char path[PATH_MAX + 8];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/index", k_root);
	fd = open(path, O_RDWR | O_CLOEXEC);
	T_EQ(read(fd, &index, sizeof(index)), sizeof(index));
	T_EQ(index.crc, crc32c(0, &index, offsetof(typeof(index), crc)));
	if (how == 0)
		index.records[0].size &= ~((UINT64_C(1) << 48) - 1);
	else if (how == 1)
		index.records[0].size |= UINT64_C(1) << 47;
	else if (how == 2)
		index.records[0].size -= 8192 - 4000, index.records[0].user |= 4095;
	else if (how == 3)
		index.records[0].id = index.records[1].id;
	else
		index.records[0].id ^= 1;
	if (how < 4)
		index.crc = crc32c(0, &index, offsetof(typeof(index), crc));
	T_EQ(pwrite(fd, &index, sizeof(index), 0), sizeof(index));
	(void)close(fd);
}

static void a_forged_index_is_not_used(void)
{
	struct pst_kv *kv;
	uint32_t space;

	for (unsigned how = 0; how < 5; how++) {
		k_new_root();
		kv = k_open(BUDGET, 0);
		space = k_space(kv, "m", NULL);
		T_EQ(k_set(kv, space, "k", 5000), 0);
		T_EQ(k_set(kv, space, "l", 5000), 0);
		pst_kv_close(kv);
		forge_record(how);
		kv = k_open(BUDGET, 0);
		T_EQ(k_stat(kv).loaded, 0);
		T_EQ(k_stat(kv).scanned, 2);
		T_EQ(k_stat(kv).used, k_disk());
		pst_kv_close(kv);
		k_remove_root();
	}
}

/* ------------------------------------------- while a block is being read */

static void who_reads_keeps_the_block(void)
{
	static const char *const what[] = { "set", "delete", "evict", "drop" };
	struct one *one = calloc(1, sizeof(*one));
	struct pst_kv_done done;
	struct pst_kv *kv;
	uint32_t space;
	char key[8];

	for (int i = 0; i < 4; i++) {
		k_new_root();
		kv = k_open(BUDGET, 0);
		space = k_space(kv, "m", NULL);
		T_EQ(k_set(kv, space, "k", 90000), 0);
		/* The file is open, and its end is read next. */
		hang_at("pread64", 0);
		submit(kv, PST_KV_GET, space, one, PST_NO_DEADLINE);
		T_CHECK(hung_within(60000));
		if (i == 0)
			T_EQ(k_set(kv, space, "k", 50000), 0);
		else if (i == 1)
			T_EQ(k_do(kv, PST_KV_DELETE, space, "k", NULL, 0), 0);
		else if (i == 3)
			T_EQ(pst_kv_drop(kv, "m", NULL), 1);
		for (unsigned n = 0; i == 2 && k_exists(kv, space, "k") >= 0; n++) {
			(void)snprintf(key, sizeof(key), "%u", n);
			T_EQ(k_set(kv, space, key, 100000), 0);
			T_CHECK(n < 1000);
		}
		/* The old file's bytes occupy the disk while it is read. */
		if (i < 3)
			T_EQ(k_stat(kv).used, k_disk() + 90112);
		T_CHECK(k_stat(kv).used <= BUDGET);
		(void)sem_post(&hang.go);
		T_EQ(pst_kv_reap(kv, &done, 1, t_hang()), 1);
		T_EQ(one->result, 90000);
		T_EQ(t_differs(one->buf, k_seed("k"), 0, 90000), 90000);
		T_EQ(k_stat(kv).used, k_disk());
		T_EQ(k_exists(kv, space, "k"), i ? -ENOENT : 50000);
		pst_kv_close(kv);
		calls_hook = NULL;
		k_remove_root();
		(void)what;
	}
	free(one);
}

static void *run_get(void *arg)
{
	struct one *one = arg;
	struct pst_kv_batch b = {
		.sz = sizeof(b),
		.op = PST_KV_GET,
		.space = one->space,
		.items = &one->item,
		.nr = 1,
		.results = &one->result,
	};

	one->item = (struct pst_kv_item){
		.key = "k",
		.key_len = 1,
		.mem_off = (uintptr_t)one->buf,
		.len = sizeof(one->buf),
	};
	one->result = -1000;
	return pst_kv_run(one->kv, &b, NULL) < 0 ? one : NULL;
}

/* The old file also occupies the disk while a caller reads it by itself. */
static void a_caller_that_reads_keeps_the_block(void)
{
	struct one *one = calloc(1, sizeof(*one));
	pthread_t thread;
	void *failed;

	k_new_root();
	calls_warm = UINT64_MAX;
	one->kv = k_open(BUDGET, 0);
	one->space = k_space(one->kv, "m", NULL);
	T_EQ(k_set(one->kv, one->space, "k", 90000), 0);
	hang_at("preadv64v2", 1);
	T_EQ(pthread_create(&thread, NULL, run_get, one), 0);
	T_CHECK(hung_within(60000));
	T_EQ(k_set(one->kv, one->space, "k", 50000), 0);
	T_EQ(k_stat(one->kv).used, k_disk() + 90112);
	(void)sem_post(&hang.go);
	T_EQ(pthread_join(thread, &failed), 0);
	T_CHECK(!failed);
	T_EQ(one->result, 90000);
	T_EQ(t_differs(one->buf, k_seed("k"), 0, 90000), 90000);
	T_EQ(k_stat(one->kv).used, k_disk());
	T_EQ(k_stat(one->kv).hits, 1);
	calls_warm = 0;
	calls_hook = NULL;
	pst_kv_close(one->kv);
	free(one);
	k_remove_root();
}

/* A part of a block is in memory, and a request reads the rest, into one range and into pieces. */
static void a_part_in_memory_is_joined(void)
{
	static const unsigned long long warm[] = { 1,      4096,   65537,  262144,
						   262145, 524288, 699999, 700000 };
	struct pst_kv_opts o = { .sz = sizeof(o), .budget = 8 * BUDGET };
	const uint64_t len = 700000;
	char *buf = malloc(len), *room = malloc(2 * len);
	struct pst_seg segs[2] = {
		{ .mem_off = 5, .len = 1000, .mem_stride = 1500, .count = 600 },
		{ .mem_off = 1000000, .len = 100000 },
	};
	struct pst_kv_item item = { .key = "k", .key_len = 1, .mem_off = (uintptr_t)room };
	int64_t result;
	struct pst_kv_batch b = {
		.sz = sizeof(b),
		.op = PST_KV_GET,
		.items = &item,
		.nr = 1,
		.results = &result,
	};

	for (unsigned i = 0; i < 8 * sizeof(warm) / sizeof(warm[0]); i++) {
		struct pst_kv *kv;
		bool pieces = i & 1;

		k_new_root();
		o.flags = i & 2 ? PST_KV_BOUNCE : 0;
		T_OK(k_open_with(&o, &kv));
		b.space = k_space(kv, "m", NULL);
		T_EQ(k_set(kv, b.space, "k", len), 0);
		calls_warm = warm[i / 8];
		calls_most = i & 4 ? 5000 : 0;
		item.len = len;
		item.segs = pieces ? segs : NULL;
		item.nr_segs = pieces ? 2 : 0;
		memset(room, 0x55, 2 * len);
		T_OK(pst_kv_run(kv, &b, NULL));
		T_EQ(result, (int64_t)len);
		t_fill(buf, k_seed("k"), 0, len);
		for (uint64_t k = 0; pieces && k < 600; k++)
			T_EQ(memcmp(room + 5 + k * 1500, buf + k * 1000, 1000), 0);
		if (pieces)
			T_EQ(memcmp(room + 1000000, buf + 600000, 100000), 0);
		else
			T_EQ(memcmp(room, buf, len), 0);
		T_EQ(room[pieces ? 1005 : len], 0x55);
		T_EQ(k_stat(kv).corrupt, 0);
		calls_warm = calls_most = 0;
		pst_kv_close(kv);
		k_remove_root();
	}
	free(buf);
	free(room);
}

/* All of the budget is being written: a further set fails, and evicts nothing. */
static void writes_in_flight_are_counted(void)
{
	/* On a busy machine, a set may take longer than the default time limit. */
	struct pst_kv_opts o = { .sz = sizeof(o), .budget = BUDGET, .timeout_ms = 60000 };
	struct one *one = calloc(1, sizeof(*one));
	struct pst_kv_done done;
	char *buf = calloc(1, BUDGET);
	struct pst_kv *kv;
	uint32_t space;

	k_new_root();
	T_OK(k_open_with(&o, &kv));
	space = k_space(kv, "m", NULL);
	hang_at("renameat", 0);
	submit(kv, PST_KV_SET, space, one, PST_NO_DEADLINE);
	T_CHECK(hung_within(60000));
	T_EQ(k_stat(kv).used, k_disk());
	T_EQ(k_exists(kv, space, "k"), -ENOENT);
	T_EQ(k_get(kv, space, "k", 100000), -ENOENT);
	T_EQ(k_do(kv, PST_KV_SET, space, "l", buf, BUDGET - 8192), -ENOSPC);
	T_EQ(k_do(kv, PST_KV_SET, space, "m", buf, 100000), 0);
	(void)sem_post(&hang.go);
	T_EQ(pst_kv_reap(kv, &done, 1, t_hang()), 1);
	T_EQ(one->result, 0);
	T_EQ(k_exists(kv, space, "k"), 100000);
	T_EQ(k_stat(kv).used, k_disk());
	pst_kv_close(kv);
	calls_hook = NULL;
	free(one);
	free(buf);
	k_remove_root();
}

/* Two keys with one hash would share a file: the key in the file differs. */
static void a_collision_is_a_miss(void)
{
	struct block_id a = { .space = 1, .hash = 2, .key = "a", .key_len = 1 }, b = a;
	struct hash_part one = { "k\0", 1 }, two = { "k\0", 2 };
	struct hash_key hash_key = { { 1, 2 } };
	char tail[TAIL_MAX];
	size_t n = block_tail(tail, &a, 100, 5);
	uint64_t len;
	uint32_t crc;

	T_EQ(block_check(tail, n, 100 + n, &a, &len, &crc, NULL, NULL), 0);
	T_EQ(len, 100);
	T_EQ(crc, 5);
	b.key = "b";
	T_EQ(block_check(tail, n, 100 + n, &b, &len, &crc, NULL, NULL), -EBADMSG);
	b = a;
	b.space = 9;
	T_EQ(block_check(tail, n, 100 + n, &b, &len, &crc, NULL, NULL), -EBADMSG);
	b = a;
	b.hash = 9;
	T_EQ(block_check(tail, n, 100 + n, &b, &len, &crc, NULL, NULL), -EBADMSG);
	/* Zeros at the end of a key count. */
	T_CHECK(kv_hash(&hash_key, &one, 1) != kv_hash(&hash_key, &two, 1));
	/* The file has one byte too many before the foot. */
	T_EQ(block_check(tail, n, 101 + n, &a, &len, &crc, NULL, NULL), -EBADMSG);
}

int main(void)
{
	T_RUN(a_collision_is_a_miss);
	T_RUN(any_call_may_fail);
	T_RUN(a_file_system_without_inodes);
	T_RUN(memory_without_checksums);
	T_RUN(a_hang_is_a_miss);
	T_RUN(a_hang_after_the_read_ends);
	T_RUN(a_hang_after_a_late_request_ends);
	T_RUN(a_close_ends_beside_a_hang);
	T_RUN(two_threads_name_one_space);
	T_RUN(the_index_comes_after_a_sync);
	T_RUN(a_forged_index_is_not_used);
	T_RUN(who_reads_keeps_the_block);
	T_RUN(a_caller_that_reads_keeps_the_block);
	T_RUN(a_part_in_memory_is_joined);
	T_RUN(writes_in_flight_are_counted);
	return t_done();
}
