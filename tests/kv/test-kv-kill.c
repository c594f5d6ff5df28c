/* SPDX-License-Identifier: MIT */
/*
 * Kill owners of a root while they set, get and delete.  Each time, the next owner must find no
 * wrong byte, no file that is not counted, and each block whose set was acknowledged.
 *
 * A block contains its key's version.  Acknowledged versions are kept in memory shared with the
 * processes that are killed.  1,000 are killed; with PST_SOAK=1 10,000; with PST_KILLS=N, N.
 */
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "kv_case.h"

#define KEYS 64u
#define LEN 20000u
#define SMALL (1u << 20) /* small enough to evict; keys of 20,000 bytes and more */

struct shared {
	/* Versions of each key: of the last acknowledged set or delete, and of the one in
	 * progress.  Odd versions are deletes. */
	_Atomic uint32_t acked[KEYS], begun[KEYS];
	_Atomic uint32_t ops;
	uint64_t budget;
};

static struct shared *sh;

static uint64_t len_of(unsigned k)
{
	return LEN + k * 111;
}

static uint64_t seed_of(unsigned k, uint32_t version)
{
	return (uint64_t)version << 8 | k;
}

/* Run in a child: set, get and delete until the parent kills this process. */
static void storm(unsigned seed)
{
	struct pst_kv *kv = k_open(sh->budget, 0);
	uint32_t space = k_space(kv, "m", "t"), x = seed * 2654435761u + 1;
	char *buf = malloc(2 * LEN + KEYS * 111), key[8];

	for (;;) {
		unsigned k = (x = x * 1664525 + 1013904223) >> 16 & (KEYS - 1);
		uint32_t version = (sh->begun[k] | 1) + 1;
		int64_t r;

		(void)snprintf(key, sizeof(key), "%u", k);
		if ((x >> 24) % 8 == 0) {
			sh->begun[k] = version + 1;
			r = k_do(kv, PST_KV_DELETE, space, key, NULL, 0);
			if (r == 0 || r == -ENOENT)
				sh->acked[k] = version + 1;
		} else {
			sh->begun[k] = version;
			t_fill(buf, seed_of(k, version), 0, len_of(k));
			if (k_do(kv, PST_KV_SET, space, key, buf, len_of(k)) == 0)
				sh->acked[k] = version;
		}
		sh->ops++;
	}
}

/* Run in a child: open the root as the next owner, and check its blocks.  A failed check ends the
 * child with a status. */
static void judge(void)
{
	struct pst_kv *kv = k_open(sh->budget, 0);
	uint32_t space = k_space(kv, "m", "t");
	struct pst_kv_stat st = k_stat(kv);
	char *buf = malloc(2 * LEN + KEYS * 111), key[8];

	T_EQ(st.used, k_disk());
	T_CHECK(st.used <= sh->budget);
	for (unsigned k = 0; k < KEYS; k++) {
		uint32_t acked = sh->acked[k], begun = sh->begun[k];
		bool old, new;
		int64_t r;

		(void)snprintf(key, sizeof(key), "%u", k);
		r = k_do(kv, PST_KV_GET, space, key, buf, 2 * LEN + KEYS * 111);
		if (r == -ENOENT) {
			/* The key was deleted, evicted or never set. */
			T_CHECK(sh->budget == SMALL || !acked || acked & 1 || begun & 1);
			/* A key found missing must stay missing, even if its delete was killed. */
			sh->acked[k] = 1;
			continue;
		}
		T_EQ(r, len_of(k));
		old = t_differs(buf, seed_of(k, acked), 0, len_of(k)) == len_of(k);
		new = t_differs(buf, seed_of(k, begun), 0, len_of(k)) == len_of(k);
		/* A killed set may have happened or not; a replaced or deleted version must be
		 * gone. */
		T_CHECK((old && !(acked & 1)) || (new && !(begun & 1)));
		sh->acked[k] = new ? begun : acked;
	}
	T_EQ(k_stat(kv).corrupt, 0);
	free(buf);
	/* Half of the owners end without closing. */
	if (sh->ops & 1)
		pst_kv_close(kv);
}

static void run(void (*fn)(void))
{
	pid_t pid = fork();
	int status = -1;

	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (setjmp(t_jump)) {
			printf("# %s\n", t_why);
			(void)fflush(stdout);
			_exit(1);
		}
		fn();
		_exit(0);
	}
	T_CHECK(pid > 0);
	T_EQ(waitpid(pid, &status, 0), pid);
	T_EQ(status, 0);
}

static void storm_and_kill(unsigned seed)
{
	uint32_t ops = sh->ops, want = ops + seed * 7 % 23;
	uint64_t end = t_hang();
	pid_t pid = fork();

	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (setjmp(t_jump))
			_exit(1);
		storm(seed);
	}
	T_CHECK(pid > 0);
	/* Some owners are killed before their first operation is done. */
	while (sh->ops < want && t_now() < end)
		(void)usleep(200);
	(void)usleep(seed * 131 % 1500);
	T_CHECK(sh->ops >= want);
	(void)kill(pid, SIGKILL);
	T_EQ(waitpid(pid, NULL, 0), pid);
}

static void killed_owners(uint64_t budget)
{
	const char *kills = getenv("PST_KILLS");
	unsigned nr = kills ? (unsigned)atoi(kills) : getenv("PST_SOAK") ? 10000 : 1000;

	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	T_CHECK(sh != MAP_FAILED);
	sh->budget = budget;
	k_new_root();
	for (unsigned i = 1; i <= nr / 2; i++) {
		storm_and_kill(i);
		run(judge);
	}
	T_CHECK(sh->ops > nr / 2);
	k_remove_root();
	(void)munmap(sh, sizeof(*sh));
}

static void nothing_acknowledged_is_lost(void)
{
	killed_owners(64u << 20);
}

static void the_budget_survives(void)
{
	killed_owners(SMALL);
}

int main(void)
{
	T_RUN(nothing_acknowledged_is_lost);
	T_RUN(the_budget_survives);
	return t_done();
}
