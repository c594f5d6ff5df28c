/* SPDX-License-Identifier: MIT */
/* Names of blocks, and files that a store lends to clients of its server. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#include "kv/block.h"
#include "kv/lend.h"
#include "kv/name.h"
#include "kv/store.h"

#include "kv_case.h"

#define CLIENTS 4
#define ROUNDS 60
#define LEN 60000u

static char *lent_name(const char *key, uint64_t len, char to[])
{
	char *space = name_of_space("m", "", "");

	(void)name_of_block(to, space, key, strlen(key), len);
	free(space);
	return to;
}

static int lent_new_of(struct pst_kv *kv, const char *who, const char *key, uint64_t len,
		       struct lend **ret)
{
	const struct lend_client client = { .who = who };
	char name[NAME_MAX_LEN + 1];
	uint64_t unused;
	int fd;

	return lend_open(kv, lent_name(key, len, name), &client, 0, true, ret, &fd, &unused);
}

static int lent_new(struct pst_kv *kv, const char *key, uint64_t len, struct lend **ret)
{
	return lent_new_of(kv, "one", key, len, ret);
}

static int lent_read(struct pst_kv *kv, const char *key, struct lend **ret, int *ret_fd,
		     uint64_t *ret_len)
{
	const struct lend_client client = { .who = "one" };
	char name[NAME_MAX_LEN + 1];

	return lend_open(kv, lent_name(key, 0, name), &client, 0, false, ret, ret_fd, ret_len);
}

/* Set a block of LEN bytes as a client does, from any thread. */
static int lent_set(struct pst_kv *kv, const char *key)
{
	char *file = malloc(LEN + TAIL_MAX);
	struct block_id id = { .key = key, .key_len = (uint32_t)strlen(key) };
	struct lend *l;
	size_t n = LEN;
	int r = lent_new(kv, key, LEN, &l);

	if (r == 0) {
		t_fill(file, k_seed(key), 0, LEN);
		n += block_tail(file + LEN, &id, LEN, 0);
		r = lend_write(l, file, n / 2, 0);
		if (r == 0)
			r = lend_write(l, file + n / 2, n - n / 2, n / 2);
		if (r == 0)
			r = lend_publish(l);
		if (r == 0 && lend_write(l, file, 1, 0) != -ESTALE)
			r = -1000;
		lend_close(l);
	}
	free(file);
	return r;
}

static void names(void)
{
	char name[NAME_MAX_LEN + 1], *space, text[PST_KV_TEXT_MAX + 1];
	uint8_t key[PST_KV_KEY_MAX];
	struct block_name *n = malloc(sizeof(*n));

	for (unsigned len = 1; len <= sizeof(key); len += len < 9 ? 1 : 203) {
		t_fill(key, len, 0, sizeof(key));
		memset(text, 'x', sizeof(text));
		text[len < PST_KV_TEXT_MAX ? len : PST_KV_TEXT_MAX] = '\0';
		space = name_of_space(text, "", text);
		T_EQ(name_of_block(name, space, key, len, len % 2 ? PST_KV_BLOCK_MAX : 0), 0);
		T_EQ(name_read(name, n), 0);
		T_EQ(strcmp(n->identity, text), 0);
		T_EQ(strcmp(n->tenant, ""), 0);
		T_EQ(strcmp(n->salt, text), 0);
		T_EQ(n->key_len, len);
		T_EQ(memcmp(n->key, key, len), 0);
		T_EQ(n->len, len % 2 ? PST_KV_BLOCK_MAX : 0);
		/* Each shorter name, and each name with a changed byte, is a different name or
		 * invalid. */
		for (size_t cut = strlen(name); cut-- > 0;) {
			char old = name[cut];

			name[cut] = (char)(old ^ 0x80);
			T_EQ(name_read(name, n), -ENOENT);
			name[cut] = '\0';
			(void)name_read(name, n);
			name[cut] = old;
		}
		free(space);
	}
	free(n);
}

static void clients_that_hold_files(void)
{
	struct lend *held[8];
	struct pst_kv *kv;
	uint64_t len;
	char key[16];
	int fd[8];

	k_new_root();
	kv = k_open(MIB(1), 0);
	for (unsigned i = 0; i < 40; i++) {
		(void)snprintf(key, sizeof(key), "%u", i);
		T_EQ(lent_set(kv, key), 0);
		if (i < 8)
			T_EQ(lent_read(kv, key, &held[i], &fd[i], &len), 0);
		T_CHECK(k_stat(kv).used <= MIB(1));
	}
	for (unsigned i = 0; i < 8; i++) {
		struct stat st;

		(void)snprintf(key, sizeof(key), "%u", i);
		T_EQ(fstat(fd[i], &st), 0);
		T_EQ(st.st_size, st.st_nlink ? (off_t)len : 0);
		lend_close(held[i]);
	}
	T_EQ(k_stat(kv).used, k_disk());
	/* pst_kv_drop() truncates lent files, too. */
	T_EQ(lent_set(kv, "dropped"), 0);
	T_EQ(lent_read(kv, "dropped", &held[0], &fd[0], &len), 0);
	T_EQ(pst_kv_drop(kv, "m", NULL), 1);
	T_EQ(lseek(fd[0], 0, SEEK_END), 0);
	lend_close(held[0]);
	T_EQ(k_stat(kv).used, 0);
	pst_kv_close(kv);
	k_remove_root();
}

static void blocks_that_are_never_written(void)
{
	struct pst_kv_opts o = { .sz = sizeof(o), .budget = MIB(1), .timeout_ms = 1 };
	struct lend *l[4];
	struct pst_kv *kv;

	k_new_root();
	T_OK(k_open_with(&o, &kv));
	T_EQ(lent_new(kv, "a", KIB(200), &l[0]), 0);
	T_EQ(lend_write(l[0], "x", 1, 0), 0);
	(void)usleep(2000);
	/* The first loan has expired, but nobody needs its room. */
	T_EQ(lent_new(kv, "b", KIB(20), &l[1]), 0);
	T_EQ(k_stat(kv).used, KIB(204) + KIB(24));
	T_EQ(lend_write(l[0], "x", 1, 0), 0);
	(void)usleep(2000);
	T_EQ(lent_new(kv, "c", KIB(200), &l[2]), 0);
	T_EQ(k_stat(kv).used, KIB(204));
	for (unsigned i = 0; i < 2; i++) {
		T_EQ(lend_write(l[i], "x", 1, 0), -ESTALE);
		T_EQ(lend_publish(l[i]), -ESTALE);
	}
	for (unsigned i = 0; i < 3; i++)
		lend_close(l[i]);
	T_EQ(k_stat(kv).used, 0);
	T_EQ(k_disk(), 0);
	pst_kv_close(kv);
	k_remove_root();
}

/* Each client may use half of what the others leave of half of the budget. */
static void clients_that_take_all_they_can(void)
{
	const char *const who[] = { "one", "two", "three" };
	struct lend *l[8];
	struct pst_kv *kv;
	unsigned n = 0;

	k_new_root();
	kv = k_open(MIB(8), 0);
	T_EQ(lent_new_of(kv, "one", "k", MIB(2), &l[0]), -ENOSPC);
	for (unsigned i = 0; i < 3; i++) {
		for (uint64_t left = MIB(2) >> i; left; left -= MIB(1) / 2)
			T_EQ(lent_new_of(kv, who[i], "k", MIB(1) / 2 - 4096, &l[n++]), 0);
		T_EQ(lent_new_of(kv, who[i], "k", 1, &l[7]), -ENOSPC);
	}
	T_EQ(n, 7);
	/* Room that one client returns is available to all. */
	for (unsigned i = 0; i < 4; i++)
		lend_close(l[i]);
	T_EQ(lent_new_of(kv, "three", "k", MIB(1) - 4096, &l[0]), 0);
	T_EQ(lent_new_of(kv, "three", "k", 1, &l[1]), -ENOSPC);
	lend_close(l[0]);
	for (unsigned i = 4; i < 7; i++)
		lend_close(l[i]);
	T_CHECK(list_empty(&kv->shares));
	T_EQ(k_stat(kv).used, 0);
	pst_kv_close(kv);
	k_remove_root();
}

/* Clients share the number of blocks in the same way: empty reservations take no room of others. */
static void clients_that_take_all_numbers(void)
{
	struct pst_kv_opts o = { .sz = sizeof(o), .budget = MIB(64), .max_blocks = 64 };
	struct lend *l[33];
	struct pst_kv *kv;
	unsigned n = 0;
	char key[16];

	k_new_root();
	T_OK(k_open_with(&o, &kv));
	/* The first client gets half of the blocks, the second half of the rest. */
	for (; n < 16; n++)
		T_EQ(lent_new_of(kv, "one", "k", 1, &l[n]), 0);
	T_EQ(lent_new_of(kv, "one", "k", 1, &l[n]), -ENOSPC);
	for (; n < 24; n++)
		T_EQ(lent_new_of(kv, "two", "k", 1, &l[n]), 0);
	T_EQ(lent_new_of(kv, "two", "k", 1, &l[n]), -ENOSPC);
	/* Existing blocks are evicted for new ones. */
	for (unsigned i = 0; i < 100; i++) {
		(void)snprintf(key, sizeof(key), "%u", i);
		T_EQ(k_set(kv, k_space(kv, "m", NULL), key, LEN), 0);
		T_CHECK(k_stat(kv).blocks <= 64 - n);
	}
	(void)k_disk();
	T_EQ(k_files, 64);
	while (n)
		lend_close(l[--n]);
	T_EQ(k_stat(kv).used, k_disk());
	T_EQ(kv->files, k_files);
	T_EQ(kv->files, 40);
	T_EQ(kv->lent_files, 0);
	pst_kv_close(kv);
	k_remove_root();
}

/* The owner gets events of what clients do. */
static void clients_make_events(void)
{
	struct pst_kv_events_opts o = { .sz = sizeof(o), .space = PST_KV_ANY_SPACE };
	struct pst_kv_events *events;
	struct pst_kv_event e[4];
	char name[NAME_MAX_LEN + 1];
	struct pst_kv *kv;
	struct lend *l;

	k_new_root();
	kv = k_open(MIB(8), 0);
	T_OK(pst_kv_events_new(kv, &o, &events));
	T_EQ(lent_set(kv, "key"), 0);
	/* A block that is not published is no event. */
	T_EQ(lent_new(kv, "other", 5, &l), 0);
	lend_close(l);
	T_EQ(lend_delete(kv, lent_name("key", 0, name), NULL), 0);
	T_EQ(pst_kv_events_take(events, e, 4, 0, NULL), 2);
	T_EQ(e[0].type, PST_KV_STORED);
	T_EQ(e[0].len, LEN);
	T_EQ(e[0].space, k_space(kv, "m", NULL));
	T_EQ(e[1].type, PST_KV_REMOVED);
	for (unsigned i = 0; i < 2; i++)
		T_CHECK(e[i].key_len == 3 && !memcmp(e[i].key, "key", 3));
	T_EQ(k_stat(kv).removed, 1);
	pst_kv_events_free(events);
	pst_kv_close(kv);
	k_remove_root();
}

static struct pst_kv *shared;
static atomic_int late_tid, late_result;

static void *late_reader(void *arg)
{
	struct lend *l;
	uint64_t len;
	int fd, r;

	late_tid = (int)syscall(SYS_gettid);
	r = lent_read(shared, arg, &l, &fd, &len);
	if (r == 0) {
		r = lseek(fd, 0, SEEK_END) == (off_t)len ? 0 : -1000;
		lend_close(l);
	}
	late_result = r;
	return NULL;
}

/* Return true if a thread of this process sleeps. */
static bool sleeps(int tid)
{
	char path[64], text[512] = "", *end;
	FILE *f;

	(void)snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	f = fopen(path, "r");
	if (!f)
		return false;
	(void)!fread(text, 1, sizeof(text) - 1, f);
	(void)fclose(f);
	end = strrchr(text, ')');
	return end && !strncmp(end, ") S", 3);
}

/* A reader that waits during a publication opens the new file, and must not truncate it. */
static void a_reader_that_waits_for_a_publication(void)
{
	uint64_t hash, space;
	pthread_t thread;
	uint32_t nr;

	k_new_root();
	shared = k_open(MIB(1), 0);
	T_EQ(lent_set(shared, "k"), 0);
	nr = k_space(shared, "m", "");
	space = shared->spaces[nr]->hash;
	hash = kv_key_hash(shared, shared->spaces[nr], "k", 1);
	cache_lock_file(shared, nr, hash);
	T_EQ(pthread_create(&thread, NULL, late_reader, (void *)(uintptr_t) "k"), 0);
	while (k_stat(shared).gets < 1 || !sleeps(late_tid))
		(void)usleep(100);
	/* Do what cache_publish() does next after the rename. */
	lend_revoke(shared, space, &hash);
	cache_unlock_file(shared, nr, hash);
	T_EQ(pthread_join(thread, NULL), 0);
	T_EQ(late_result, 0);
	T_CHECK(k_disk() > LEN);
	pst_kv_close(shared);
	k_remove_root();
}

static struct pst_kv *cut_in;
static unsigned cuts, cuts_early;

int __real_ftruncate64(int fd, off_t len);
__attribute__((visibility("default"))) int __wrap_ftruncate64(int fd, off_t len);
int __wrap_ftruncate64(int fd, off_t len)
{
	if (cut_in) {
		(void)pthread_mutex_lock(&cut_in->lock);
		cuts++;
		cuts_early += !list_empty(&cut_in->lent);
		(void)pthread_mutex_unlock(&cut_in->lock);
	}
	return __real_ftruncate64(fd, len);
}

/* A file that is lent to two readers is truncated only after both were told; otherwise a reader
 * would report the file as damaged. */
static void a_file_that_is_lent_twice(void)
{
	char name[NAME_MAX_LEN + 1];
	struct lend *l[3];
	struct pst_kv *kv;
	uint64_t len;
	int fd;

	k_new_root();
	kv = k_open(MIB(1), 0);
	T_EQ(lent_set(kv, "k"), 0);
	for (unsigned i = 0; i < 3; i++)
		T_EQ(lent_read(kv, "k", &l[i], &fd, &len), 0);
	cut_in = kv;
	T_EQ(lend_delete(kv, lent_name("k", 0, name), NULL), 0);
	cut_in = NULL;
	T_EQ(cuts, 3);
	T_EQ(cuts_early, 0);
	for (unsigned i = 0; i < 3; i++)
		lend_close(l[i]);
	T_EQ(k_stat(kv).used, 0);
	pst_kv_close(kv);
	k_remove_root();
}

static struct pst_kv *watched;
static struct pst_kv_events *begun;

/* Begin a queue of events when a block's file is still there, and the index has forgotten it. */
static void begin_queue(void)
{
	struct pst_kv_events_opts o = { .sz = sizeof(o), .space = PST_KV_ANY_SPACE };

	if (watched && !begun)
		T_OK(pst_kv_events_new(watched, &o, &begun));
}

int __real_unlinkat(int dir, const char *path, int flags);
__attribute__((visibility("default"))) int __wrap_unlinkat(int dir, const char *path, int flags);
int __wrap_unlinkat(int dir, const char *path, int flags)
{
	if (path[0] == 'b')
		begin_queue();
	return __real_unlinkat(dir, path, flags);
}

static pthread_t late_set;
static bool set_late;
static atomic_bool late_set_ended;

static void *late_setter(void *arg)
{
	late_tid = (int)syscall(SYS_gettid);
	late_result = lent_set(shared, arg);
	late_set_ended = true;
	return NULL;
}

/* Begin a set, and wait until it has ended or waits for a lock. */
static void begin_set(void)
{
	set_late = false;
	late_tid = 0;
	late_set_ended = false;
	T_EQ(pthread_create(&late_set, NULL, late_setter, (void *)(uintptr_t) "k"), 0);
	for (unsigned slept = 0; slept < 20 && !late_set_ended; (void)usleep(100))
		slept = late_tid && sleeps(late_tid) ? slept + 1 : 0;
}

int __real_renameat(int dir, const char *path, int new_dir, const char *to);
__attribute__((visibility("default"))) int __wrap_renameat(int dir, const char *path, int new_dir,
							   const char *to);
int __wrap_renameat(int dir, const char *path, int new_dir, const char *to)
{
	bool drops = strncmp(to, "gone/", 5) == 0;
	int r;

	if (drops)
		begin_queue();
	r = __real_renameat(dir, path, new_dir, to);
	if (drops && set_late)
		begin_set();
	return r;
}

/* A reader that opens a queue of events and then looks at the files gets an event for each file
 * that is removed later. */
static void queues_that_begin_during_a_removal(void)
{
	struct pst_kv_opts o = {
		.sz = sizeof(o), .budget = MIB(1), .policy = "lru", .max_blocks = 16
	};
	struct pst_kv_event e[4];
	uint64_t lost;
	uint32_t nr;
	char key[16];

	k_new_root();
	T_OK(k_open_with(&o, &watched));
	nr = k_space(watched, "m", NULL);
	T_EQ(k_set(watched, nr, "k", 10), 0);
	T_EQ(k_do(watched, PST_KV_DELETE, nr, "k", NULL, 0), 0);
	T_EQ(pst_kv_events_take(begun, e, 4, 0, &lost), 1);
	T_EQ(lost, 0);
	T_EQ(e[0].type, PST_KV_REMOVED);
	T_EQ(e[0].key_len, 1);
	begun = pst_kv_events_free(begun);

	for (unsigned i = 0; i < 17; i++) {
		(void)snprintf(key, sizeof(key), "%u", i);
		T_EQ(k_set(watched, nr, key, 10), 0);
	}
	/* The key of the evicted block was not read, so its event counts as lost. */
	T_EQ(pst_kv_events_take(begun, e, 4, 0, &lost), 0);
	T_EQ(lost, 2);
	begun = pst_kv_events_free(begun);

	T_EQ(pst_kv_drop(watched, "m", NULL), 1);
	T_EQ(pst_kv_events_take(begun, e, 4, 0, &lost), 1);
	T_EQ(lost, 0);
	T_EQ(e[0].type, PST_KV_DROPPED);
	begun = pst_kv_events_free(begun);
	pst_kv_close(watched);
	watched = NULL;
	k_remove_root();
}

/* A set during a drop of its space takes effect either before or after the whole drop. */
static void a_set_during_a_drop(void)
{
	struct pst_kv_events_opts o = { .sz = sizeof(o), .space = PST_KV_ANY_SPACE };
	struct pst_kv_events *events;
	struct pst_kv_event e[4];
	uint64_t lost;

	k_new_root();
	shared = k_open(MIB(64), 0);
	T_EQ(lent_set(shared, "k"), 0);
	T_OK(pst_kv_events_new(shared, &o, &events));
	set_late = true;
	T_EQ(pst_kv_drop(shared, "m", NULL), 1);
	T_CHECK(!set_late);
	T_EQ(pthread_join(late_set, NULL), 0);
	T_EQ(late_result, 0);
	T_EQ(pst_kv_events_take(events, e, 4, 0, &lost), 2);
	T_EQ(lost, 0);
	T_EQ(e[0].type, PST_KV_DROPPED);
	T_EQ(e[1].type, PST_KV_STORED);
	T_EQ(k_stat(shared).blocks, 1);
	T_EQ(k_stat(shared).used, k_disk());
	pst_kv_events_free(events);
	pst_kv_close(shared);
	k_remove_root();
}

static atomic_uint whole, wrong;

static void *client(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;
	char *buf = malloc(LEN), key[16], name[NAME_MAX_LEN + 1];
	struct pst_kv_stat st = { .sz = sizeof(st) };

	for (unsigned i = 0; i < ROUNDS; i++) {
		struct lend *l;
		uint64_t len;
		ssize_t n;
		int fd, r;

		(void)snprintf(key, sizeof(key), "%u", (i * 7 + seed) % 30);
		r = lent_set(shared, key);
		wrong += r != 0 && r != -ENOSPC;
		(void)snprintf(key, sizeof(key), "%u", (i * 11 + seed) % 30);
		r = lent_read(shared, key, &l, &fd, &len);
		wrong += r != 0 && r != -ENOENT;
		if (r == 0) {
			n = pread(fd, buf, LEN, 0);
			/* A file that is truncated during the read gives fewer bytes. */
			wrong += n < 0;
			if (n == (ssize_t)LEN) {
				wrong += t_differs(buf, k_seed(key), 0, LEN) != LEN;
				whole++;
			}
			lend_close(l);
		}
		if (i % 16 == 0)
			(void)lend_delete(shared, lent_name(key, 0, name), NULL);
		wrong += pst_kv_stat(shared, &st) < 0 || st.used > MIB(1);
	}
	free(buf);
	return NULL;
}

static void clients_at_once(void)
{
	pthread_t threads[CLIENTS];

	k_new_root();
	shared = k_open(MIB(1), 0);
	for (unsigned i = 0; i < CLIENTS; i++)
		T_EQ(pthread_create(&threads[i], NULL, client, (void *)(uintptr_t)i), 0);
	for (unsigned i = 0; i < CLIENTS; i++)
		T_EQ(pthread_join(threads[i], NULL), 0);
	T_EQ(wrong, 0);
	T_CHECK(whole > 0);
	T_EQ(k_stat(shared).corrupt, 0);
	T_EQ(k_stat(shared).used, k_disk());
	pst_kv_close(shared);
	k_remove_root();
}

int main(void)
{
	T_RUN(names);
	T_RUN(clients_that_hold_files);
	T_RUN(blocks_that_are_never_written);
	T_RUN(clients_that_take_all_they_can);
	T_RUN(clients_that_take_all_numbers);
	T_RUN(clients_make_events);
	T_RUN(a_reader_that_waits_for_a_publication);
	T_RUN(a_file_that_is_lent_twice);
	T_RUN(queues_that_begin_during_a_removal);
	T_RUN(a_set_during_a_drop);
	T_RUN(clients_at_once);
	return t_done();
}
