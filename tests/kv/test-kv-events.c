/* SPDX-License-Identifier: MIT */
/* Events of a store: what its readers are told of stored and removed blocks. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "kv_case.h"

#define BIG (64u << 20)
#define KEYS 40

static struct pst_kv_events *events_of(struct pst_kv *kv, uint32_t space, uint64_t bytes)
{
	struct pst_kv_events_opts o = { .sz = sizeof(o), .bytes = bytes, .space = space };
	struct pst_kv_events *events;

	T_OK(pst_kv_events_new(kv, &o, &events));
	return events;
}

/* Take one event and compare it. key: NULL for an event without a key. */
static void e_is(struct pst_kv_events *events, uint32_t type, uint32_t space, const char *key,
		 uint64_t len)
{
	struct pst_kv_event e = { .type = 0 };

	T_EQ(pst_kv_events_take(events, &e, 1, 0, NULL), 1);
	T_EQ(e.type, type);
	T_EQ(e.space, space);
	T_EQ(e.len, len);
	T_EQ(e.key_len, key ? strlen(key) : 0);
	if (key)
		T_CHECK(!memcmp(e.key, key, strlen(key)));
}

static void e_none(struct pst_kv_events *events)
{
	struct pst_kv_event e;
	uint64_t lost = 1;

	T_EQ(pst_kv_events_take(events, &e, 1, 0, &lost), 0);
	T_EQ(lost, 0);
}

static void spoil_last(void)
{
	int fd;

	(void)k_disk();
	fd = open(k_last, O_WRONLY | O_CLOEXEC);
	T_CHECK(fd >= 0);
	T_EQ(pwrite(fd, "spoiled", 7, 0), 7);
	(void)close(fd);
}

static void each_change_is_an_event(void)
{
	struct pst_kv_events *all, *two;
	struct pst_kv *kv;
	uint32_t a, b;

	k_new_root();
	kv = k_open(BIG, 0);
	a = k_space(kv, "a", NULL);
	b = k_space(kv, "b", NULL);
	T_EQ(k_set(kv, a, "before", 10), 0);
	all = events_of(kv, PST_KV_ANY_SPACE, 0);
	two = events_of(kv, b, PST_KV_EVENTS_BYTES_MIN);
	e_none(all);
	T_EQ(k_set(kv, a, "k", 1000), 0);
	T_EQ(k_set(kv, a, "k", 2000), 0);
	T_EQ(k_set(kv, b, "k", 3000), 0);
	T_EQ(k_get(kv, a, "k", BIG), 2000);
	T_EQ(k_get(kv, a, "none", BIG), -ENOENT);
	T_EQ(k_do(kv, PST_KV_DELETE, a, "before", NULL, 0), 0);
	T_EQ(k_do(kv, PST_KV_DELETE, a, "before", NULL, 0), -ENOENT);
	e_is(all, PST_KV_STORED, a, "k", 1000);
	e_is(all, PST_KV_STORED, a, "k", 2000);
	e_is(all, PST_KV_STORED, b, "k", 3000);
	e_is(all, PST_KV_REMOVED, a, "before", 0);
	/* Get a damaged block and a block whose file is missing: both are reported as removed. */
	T_EQ(pst_kv_drop(kv, "a", NULL), 1);
	e_is(all, PST_KV_DROPPED, a, NULL, 0);
	spoil_last();
	T_EQ(k_get(kv, b, "k", BIG), -EBADMSG);
	e_is(all, PST_KV_REMOVED, b, "k", 0);
	T_EQ(k_set(kv, b, "gone", 5), 0);
	(void)k_disk();
	T_EQ(unlink(k_last), 0);
	T_EQ(k_get(kv, b, "gone", BIG), -ENOENT);
	e_is(all, PST_KV_STORED, b, "gone", 5);
	e_is(all, PST_KV_REMOVED, b, "gone", 0);
	e_none(all);
	e_is(two, PST_KV_STORED, b, "k", 3000);
	e_is(two, PST_KV_REMOVED, b, "k", 0);
	e_is(two, PST_KV_STORED, b, "gone", 5);
	e_is(two, PST_KV_REMOVED, b, "gone", 0);
	e_none(two);
	T_CHECK(!pst_kv_events_free(all));
	T_EQ(k_set(kv, b, "more", 1), 0);
	e_is(two, PST_KV_STORED, b, "more", 1);
	T_CHECK(!pst_kv_events_free(two));
	T_CHECK(!pst_kv_events_free(NULL));
	pst_kv_close(kv);
	k_remove_root();
}

/* An evicted block's key comes from its file; if that is damaged, the event is lost. */
static void evictions_are_events(void)
{
	struct pst_kv_opts o = {
		.sz = sizeof(o),
		.budget = 2u << 20,
		.policy = "lru",
		.max_blocks = 16,
	};
	struct pst_kv_events *events;
	struct pst_kv_event e[64];
	struct pst_kv *kv;
	uint64_t lost;
	uint32_t space;
	char key[16];

	k_new_root();
	T_OK(k_open_with(&o, &kv));
	space = k_space(kv, "m", NULL);
	T_EQ(k_set(kv, space, "damaged", 100), 0);
	(void)k_disk();
	T_EQ(truncate(k_last, 50), 0);
	events = events_of(kv, PST_KV_ANY_SPACE, 0);
	for (unsigned i = 0; i < 16; i++) {
		(void)snprintf(key, sizeof(key), "%u", i);
		T_EQ(k_set(kv, space, key, 100), 0);
	}
	/* The damaged block was evicted first.  The events of its eviction, and of the set that
	 * caused that, are lost. */
	T_EQ(pst_kv_events_take(events, e, 64, PST_NO_DEADLINE, &lost), 15);
	T_EQ(lost, 0);
	T_EQ(e[14].nr, 15);
	T_EQ(pst_kv_events_take(events, e, 64, PST_NO_DEADLINE, &lost), 0);
	T_EQ(lost, 2);
	for (unsigned i = 16; i < 24; i++) {
		(void)snprintf(key, sizeof(key), "%u", i);
		T_EQ(k_set(kv, space, key, 100), 0);
	}
	T_EQ(pst_kv_events_take(events, e, 64, 0, &lost), 16);
	T_EQ(lost, 2);
	for (unsigned i = 0; i < 16; i++) {
		(void)snprintf(key, sizeof(key), "%u", i % 2 ? 16 + i / 2 : i / 2);
		T_EQ(e[i].type, i % 2 ? PST_KV_STORED : PST_KV_REMOVED);
		T_EQ(e[i].nr, 18 + i);
		T_EQ(e[i].key_len, strlen(key));
		T_CHECK(!memcmp(e[i].key, key, strlen(key)));
	}
	T_EQ(k_stat(kv).events_lost, 2);
	pst_kv_events_free(events);
	pst_kv_close(kv);
	k_remove_root();
}

/* If nothing comes before the lost events, the same call tells of them. */
static void a_loss_in_an_empty_queue(void)
{
	struct pst_kv_opts o = {
		.sz = sizeof(o), .budget = 2u << 20, .policy = "lru", .max_blocks = 16
	};
	struct pst_kv_events *events = NULL;
	struct pst_kv_event e[4];
	struct pst_kv *kv;
	uint64_t lost = 0;
	uint32_t space;
	char key[16];

	k_new_root();
	T_OK(k_open_with(&o, &kv));
	space = k_space(kv, "m", NULL);
	T_EQ(k_set(kv, space, "damaged", 100), 0);
	(void)k_disk();
	T_EQ(truncate(k_last, 50), 0);
	for (unsigned i = 0; i < 16; i++) {
		(void)snprintf(key, sizeof(key), "%u", i);
		if (i == 15)
			events = events_of(kv, PST_KV_ANY_SPACE, 0);
		T_EQ(k_set(kv, space, key, 100), 0);
	}
	T_EQ(pst_kv_events_take(events, e, 4, PST_NO_DEADLINE, &lost), 0);
	T_EQ(lost, 2);
	T_EQ(k_set(kv, space, "next", 100), 0);
	T_EQ(pst_kv_events_take(events, e, 4, 0, &lost), 2);
	T_EQ(lost, 2);
	T_EQ(e[0].nr, 3);
	pst_kv_events_free(events);
	pst_kv_close(kv);
	k_remove_root();
}

/* A reader that is slow loses events, knows how many, and has the others in order. */
static void a_full_queue_loses_events(void)
{
	struct pst_kv_events *events;
	struct pst_kv_event e[17];
	struct pst_kv *kv;
	uint64_t lost;
	uint32_t space;
	char key[600];

	k_new_root();
	kv = k_open(BIG, 0);
	space = k_space(kv, "m", NULL);
	events = events_of(kv, space, PST_KV_EVENTS_BYTES_MIN);
	memset(key, 'k', sizeof(key));
	key[599] = '\0';
	for (unsigned i = 0; i < 100; i++) {
		key[0] = (char)('0' + i % 10);
		T_EQ(k_set(kv, space, key, 10), 0);
	}
	/* Half of the memory, for events of 32 bytes and a key. */
	for (unsigned i = 0; i < 51; i += 17) {
		T_EQ(pst_kv_events_take(events, e, 17, 0, &lost), 17);
		T_EQ(lost, 0);
		T_EQ(e[16].nr, i + 17);
		if (!i)
			T_EQ(k_set(kv, space, "after", 10), 0);
	}
	/* The reader learns of lost events at the place where they are missing. */
	T_EQ(pst_kv_events_take(events, e, 17, PST_NO_DEADLINE, &lost), 1);
	T_EQ(lost, 49);
	T_EQ(e[0].nr, 101);
	T_EQ(pst_kv_events_take(events, e, 17, 0, &lost), 0);
	T_EQ(lost, 49);
	pst_kv_events_free(events);
	pst_kv_close(kv);
	k_remove_root();
}

static void queues_have_bounds(void)
{
	struct pst_kv_events_opts o = { .sz = sizeof(o), .space = PST_KV_ANY_SPACE };
	struct pst_kv_events *events[PST_KV_EVENTS_MAX], *one;
	struct pst_kv_event e;
	struct pst_kv *kv;

	k_new_root();
	kv = k_open(BIG, 0);
	for (unsigned i = 0; i < PST_KV_EVENTS_MAX; i++)
		events[i] = events_of(kv, PST_KV_ANY_SPACE, PST_KV_EVENTS_BYTES_MIN);
	T_EQ(pst_kv_events_new(kv, &o, &one), -ENOSPC);
	for (unsigned i = 1; i < PST_KV_EVENTS_MAX; i++)
		pst_kv_events_free(events[i]);
	o.bytes = PST_KV_EVENTS_BYTES_MIN - 1;
	T_EQ(pst_kv_events_new(kv, &o, &one), -EINVAL);
	o.bytes = PST_KV_EVENTS_BYTES_MAX + 1;
	T_EQ(pst_kv_events_new(kv, &o, &one), -EINVAL);
	o.bytes = 0;
	o.space = 0;
	T_EQ(pst_kv_events_new(kv, &o, &one), -EINVAL);
	T_EQ(pst_kv_events_take(events[0], &e, 0, 0, NULL), -EINVAL);
	T_EQ(pst_kv_events_take(events[0], NULL, 1, 0, NULL), -EINVAL);
	pst_kv_events_free(events[0]);
	pst_kv_close(kv);
	k_remove_root();
}

/* In a separate process: exit with 0 if a reader of the root sees the block and is refused a queue;
 * then damage the root's last file. */
static int another_process(void)
{
	struct pst_kv_events_opts o = { .sz = sizeof(o), .space = PST_KV_ANY_SPACE };
	struct pst_kv_opts how = { .sz = sizeof(how), .flags = PST_KV_READER };
	struct pst_kv_events *events;
	struct pst_kv *kv;

	if (k_open_with(&how, &kv) < 0)
		return 1;
	if (k_get(kv, k_space(kv, "m", NULL), "k", BIG) != 1000)
		return 2;
	if (pst_kv_events_new(kv, &o, &events) != -EOPNOTSUPP)
		return 3;
	pst_kv_close(kv);
	(void)k_disk();
	return unlink(k_last) == 0 ? 0 : 4;
}

/* Another process only changes files; the owner notices when a get finds the change. */
static void several_processes(void)
{
	char self[PATH_MAX] = "", *argv[] = { self, k_root, NULL };
	struct pst_kv_events *events;
	struct pst_kv *kv;
	uint32_t space;
	pid_t pid;
	int status;

	k_new_root();
	kv = k_open(BIG, 0);
	space = k_space(kv, "m", NULL);
	events = events_of(kv, space, 0);
	T_EQ(k_set(kv, space, "k", 1000), 0);
	e_is(events, PST_KV_STORED, space, "k", 1000);
	T_CHECK(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	pid = fork();
	if (pid == 0) {
		(void)execv(self, argv);
		_exit(9);
	}
	T_EQ(waitpid(pid, &status, 0), pid);
	T_EQ(status, 0);
	e_none(events);
	T_EQ(k_exists(kv, space, "k"), 1000);
	T_EQ(k_get(kv, space, "k", BIG), -ENOENT);
	e_is(events, PST_KV_REMOVED, space, "k", 0);
	pst_kv_events_free(events);
	pst_kv_close(kv);
	/* The next owner's events begin anew. */
	kv = k_open(BIG, 0);
	space = k_space(kv, "m", NULL);
	events = events_of(kv, space, 0);
	e_none(events);
	pst_kv_events_free(events);
	pst_kv_close(kv);
	k_remove_root();
}

static struct pst_kv *race_kv;
static uint32_t race_space;
static atomic_int race_left;

static void *racer(void *arg)
{
	unsigned x = (unsigned)(uintptr_t)arg;
	char key[16];

	for (unsigned i = 0; i < 300; i++) {
		x = x * 1103515245u + 12345u;
		(void)snprintf(key, sizeof(key), "%u", (x >> 16) % KEYS);
		if (x >> 30)
			(void)k_set(race_kv, race_space, key, 1000 + x % 5000);
		else
			(void)k_do(race_kv, PST_KV_DELETE, race_space, key, NULL, 0);
	}
	race_left--;
	return NULL;
}

static uint64_t soon(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + 50000000u;
}

/* Take events until there are none, and note which blocks exist.  If a block is removed by two at
 * once, one of them may find no key, and count a lost event. */
static void follow(struct pst_kv_events *events, int64_t there[KEYS], uint64_t wait_ns)
{
	static uint64_t known;
	struct pst_kv_event e[16];
	uint64_t lost;
	int n;

	while ((n = pst_kv_events_take(events, e, 16, wait_ns, &lost)) > 0 || lost != known) {
		for (unsigned i = 0; lost != known && i < KEYS; i++) {
			char key[16];

			(void)snprintf(key, sizeof(key), "%u", i);
			there[i] = k_exists(race_kv, race_space, key);
		}
		known = lost;
		for (int i = 0; i < n; i++) {
			char key[16] = "";

			memcpy(key, e[i].key, e[i].key_len);
			there[atoi(key)] = e[i].type == PST_KV_STORED ? (int64_t)e[i].len : -ENOENT;
		}
		wait_ns = 0;
	}
}

/* A reader that follows the events knows in the end which blocks exist, even with concurrent
 * threads. */
static void events_are_in_order(void)
{
	struct pst_kv_opts o = { .sz = sizeof(o), .budget = BIG, .max_blocks = 24 };
	struct pst_kv_events *events;
	int64_t there[KEYS];
	pthread_t t[4];
	char key[16];

	k_new_root();
	T_OK(k_open_with(&o, &race_kv));
	race_space = k_space(race_kv, "m", NULL);
	events = events_of(race_kv, race_space, 8u << 20);
	for (unsigned i = 0; i < KEYS; i++)
		there[i] = -ENOENT;
	race_left = 4;
	for (unsigned i = 0; i < 4; i++)
		T_EQ(pthread_create(&t[i], NULL, racer, (void *)(uintptr_t)(i + 1)), 0);
	while (race_left)
		follow(events, there, soon());
	for (unsigned i = 0; i < 4; i++)
		T_EQ(pthread_join(t[i], NULL), 0);
	follow(events, there, 0);
	for (unsigned i = 0; i < KEYS; i++) {
		(void)snprintf(key, sizeof(key), "%u", i);
		T_EQ(there[i], k_exists(race_kv, race_space, key));
	}
	pst_kv_events_free(events);
	pst_kv_close(race_kv);
	k_remove_root();
}

static void *late_setter(void *arg)
{
	(void)arg;
	T_EQ(k_set(race_kv, race_space, "k", 10), 0);
	return NULL;
}

static void a_reader_waits(void)
{
	struct pst_kv_events *events;
	struct pst_kv_event e;
	pthread_t t;

	k_new_root();
	race_kv = k_open(BIG, 0);
	race_space = k_space(race_kv, "m", NULL);
	events = events_of(race_kv, race_space, 0);
	T_EQ(pst_kv_events_take(events, &e, 1, 1, NULL), 0);
	T_EQ(pthread_create(&t, NULL, late_setter, NULL), 0);
	T_EQ(pst_kv_events_take(events, &e, 1, PST_NO_DEADLINE, NULL), 1);
	T_EQ(e.type, PST_KV_STORED);
	T_EQ(pthread_join(t, NULL), 0);
	pst_kv_events_free(events);
	pst_kv_close(race_kv);
	k_remove_root();
}

int main(int argc, char *argv[])
{
	if (argc == 2) {
		(void)snprintf(k_root, sizeof(k_root), "%s", argv[1]);
		return another_process();
	}
	T_RUN(each_change_is_an_event);
	T_RUN(evictions_are_events);
	T_RUN(a_loss_in_an_empty_queue);
	T_RUN(a_full_queue_loses_events);
	T_RUN(queues_have_bounds);
	T_RUN(several_processes);
	T_RUN(events_are_in_order);
	T_RUN(a_reader_waits);
	return t_done();
}
