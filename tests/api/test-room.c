/* SPDX-License-Identifier: MIT */
/*
 * A process with little address space (RLIMIT_AS): a call fails with -ENOMEM, or with -EAGAIN or
 * -EBUSY if a thread cannot be started, and an error text.  Nothing crashes or leaks.
 */
#include "rig.h"

#include <malloc.h>

#include "child.h"

#define SEED 3
#define LEN RIG_MIB(1)
#define MOST RIG_MIB(512) /* with this much more address space, every call must succeed */

#define STACKS RIG_MIB(64)

static unsigned refused[4]; /* refusals of each call: memory, queue, file, request */

static uint64_t address_space(void)
{
	unsigned long long pages = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	T_CHECK(f && fscanf(f, "%llu", &pages) == 1);
	(void)fclose(f);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Return true if the call was refused with an allowed error. */
static bool refuses(unsigned call, int r)
{
	if (r >= 0)
		return false;
	if (r != -ENOMEM && r != -EAGAIN && r != -EBUSY)
		T_FAIL("call %u gave %d: %s", call, r, pst_error_text());
	T_CHECK(*pst_error_text());
	refused[call]++;
	return true;
}

/* Make a read from the first call to the last.  Return true if all calls worked. */
static bool works(const char *dev)
{
	/* A user's rings depend on what all programs of the user lock, so use them as root only. */
	struct pst_queue_opts opts = { .sz = sizeof(opts),
				       .backend = geteuid() != 0 ? PST_BACKEND_THREADS
								 : PST_BACKEND_AUTO };
	struct pst_file *f = NULL;
	struct pst_queue *q = NULL;
	struct pst_mem *m = NULL;
	bool good = false;
	struct pst_done d;
	struct pst_io io;

	if (refuses(0, pst_mem_alloc(dev, LEN, NULL, &m)) || refuses(1, pst_queue_new(&opts, &q)) ||
	    refuses(2, pst_file_open(rig_path("data"), PST_FILE_READ, NULL, &f)))
		goto out;
	io = rig_io(PST_OP_READ, f, m, 0, 0, LEN);
	if (refuses(3, pst_queue_prep(q, &io)))
		goto out;
	T_EQ(pst_queue_submit(q), 1);
	d = rig_reap1(q);
	if (refuses(3, (int)d.res))
		goto out;
	T_EQ(d.res, LEN);
	good = true;
out:
	T_CHECK(!pst_queue_free(q));
	T_CHECK(!pst_file_close(f));
	T_CHECK(!pst_mem_free(m));
	return good;
}

/* Raise the limit little by little until everything works. */
static void grows(const char *dev)
{
	uint64_t now = address_space(), more = 0;
	struct rlimit rl = { .rlim_max = RLIM_INFINITY };

	T_EQ(getrlimit(RLIMIT_AS, &rl), 0);
	do {
		rl.rlim_cur = now + more;
		T_EQ(setrlimit(RLIMIT_AS, &rl), 0);
		if (works(dev))
			break;
		more += 16384 + more / 8;
	} while (more < MOST);
	if (more >= MOST)
		T_FAIL("%llu MiB more are not enough: %s", (unsigned long long)(more >> 20),
		       pst_error_text());
	/* Threads of earlier tries may still be ending, each with its stack. */
	rl.rlim_cur += STACKS;
	T_EQ(setrlimit(RLIMIT_AS, &rl), 0);
	if (!works(dev))
		T_FAIL("what was done once is refused: %s", pst_error_text());
	printf("# %s: refused were %u allocations, %u queues, %u files, %u requests\n", dev,
	       refused[0], refused[1], refused[2], refused[3]);
	(void)fflush(stdout);
}

static void grow_here(void)
{
	/* One malloc() arena: more would take address space at random. */
	T_EQ(mallopt(M_ARENA_MAX, 1), 1);
	grows(rig_dev);
	T_CHECK(refused[0] + refused[1] + refused[2] + refused[3]);
}

static void little_room(void)
{
#ifdef __SANITIZE_ADDRESS__
	T_SKIP("RLIMIT_AS: a sanitizer's shadow needs the address space");
#endif
	if (RIG_TSAN)
		T_SKIP("RLIMIT_AS: a sanitizer's shadow needs the address space");
	rig_make(rig_path("data"), SEED, LEN);
	child_run(grow_here);
}

/* Ask for more memory than there can be. */
static void too_much_at_once(void)
{
	struct pst_mem *m = NULL;

	T_EQ(pst_mem_alloc(rig_dev, UINT64_C(1) << 46, NULL, &m), -ENOMEM);
	T_CHECK(!m && *pst_error_text());
}

int main(void)
{
	static const char *const devs[] = { "host", "soft:0" };

	rig_init();
	/* Run these cases first: their children use the library, so this process must not have used
	 * it. */
	for (unsigned i = 0; i < RIG_NR(devs); i++) {
		char name[40];

		rig_dev = devs[i];
		(void)snprintf(name, sizeof(name), "little_room %s", rig_dev);
		t_run(name, little_room);
	}
	for (unsigned i = 0; i < RIG_NR(devs); i++) {
		char name[40];

		rig_dev = devs[i];
		(void)snprintf(name, sizeof(name), "too_much_at_once %s", rig_dev);
		t_run(name, too_much_at_once);
	}
	return rig_done();
}
