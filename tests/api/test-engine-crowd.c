/* SPDX-License-Identifier: MIT */
/*
 * Others want the CPUs of an engine's workers: how much then waits for the device.
 */
#include <sched.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "rig.h"

#include "engine.h"
#include "symbol.h"

#define WORKERS_USUAL 12 /* of an engine that take requests of all kinds, at most */
#define QUARTER (RIG_MIB(1) / 4)

/* Others want the CPUs of all threads: each is interrupted many times between two looks. */
static atomic_bool crowd;

/* Seen by the library, which else would have libc's. */
__attribute__((visibility("default"))) int getrusage(__rusage_who_t who, struct rusage *ret)
{
	static _Thread_local long nr;
	int (*real)(__rusage_who_t, struct rusage *);
	int r;

	symbol(RTLD_NEXT, &real, "getrusage");
	r = real(who, ret);
	nr += atomic_load(&crowd) ? 1000000 : 0;
	ret->ru_nivcsw = nr;
	return r;
}

#define MUCH RIG_MIB(64)

static void read_much(struct pst_file *f, struct pst_mem *m)
{
	struct pst_io io = rig_io(PST_OP_READ, f, m, 0, 0, MUCH);

	io.policy = PST_POLICY3(PST_PATH_CACHED, PST_PATH_BUFFERED, PST_PATH_STAGED);
	T_OK(pst_queue_prep(rig_q, &io));
	T_EQ(pst_queue_submit(rig_q), 1);
}

/* So many reads that a worker looks around, whoever takes their jobs. */
static void have_workers_look(struct pst_file *f, struct pst_mem *m, bool is_crowd)
{
	atomic_store(&crowd, is_crowd);
	(void)usleep(150000); /* a crowd is forgotten by then */
	for (unsigned i = 0; i < 5; i++) {
		read_much(f, m);
		T_EQ(rig_reap1(rig_q).res, (int64_t)MUCH);
	}
}

/* Bytes that workers read for a device that has ended nothing yet. */
static uint64_t read_ahead(struct pst_file *f, struct pst_mem *m)
{
	uint64_t end = t_hang(), first, last, now;
	struct engine_bytes_read seen;

	first = now = engine_bytes_read(&seen);
	delay_us(900000);
	read_much(f, m);
	do {
		last = now;
		T_CHECK(t_now() < end);
		(void)usleep(100000);
		now = engine_bytes_read(&seen);
	} while (now != last || now - first < QUARTER);
	delay_us(0);
	T_EQ(rig_reap1(rig_q).res, (int64_t)MUCH);
	T_EQ(rig_mem_differs(m, 0, MUCH, ENGINE_SEED, 0), MUCH);
	return now - first;
}

/* Half of a CPU's own cache. */
static uint64_t slot_size(void)
{
	long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
	uint64_t size = RIG_MIB(1);

	while (cache > 0 && size > QUARTER && 2 * size > (uint64_t)cache)
		size /= 2;
	return size;
}

/* Slots in turn stay in CPUs' caches. */
static void in_a_crowd_fewer_bytes_wait_for_the_device(void)
{
	uint64_t alone, crowded, few;
	struct pst_file *f;
	struct pst_mem *m;
	unsigned usual;
	cpu_set_t set;

	engine_needs_stub();
	T_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
	usual = (unsigned)CPU_COUNT(&set) * 3 / 4;
	usual = usual < 1 ? 1 : usual > WORKERS_USUAL ? WORKERS_USUAL : usual;
	if (access("/proc/self/io", R_OK) < 0)
		T_SKIP("a kernel that counts each thread's bytes");
	f = engine_warm_file(0, MUCH);
	m = rig_alloc(rig_dev, MUCH);
	have_workers_look(f, m, true);
	crowded = read_ahead(f, m);
	have_workers_look(f, m, false);
	alone = read_ahead(f, m);
	few = RIG_MIB(usual < 4 ? 4 : usual) + (usual + 1) * slot_size();
	T_CHECK(crowded <= few && alone > few);
	pst_file_close(f);
	pst_mem_free(m);
}

int main(void)
{
	struct pst_mem *keep = NULL;

	rig_init();
	/* A real driver has threads of its own while there is a context. */
	if (pst_mem_alloc("cuda:0", 1, NULL, &keep) == 0)
		(void)pst_mem_copy_in(keep, 0, "", 1);
	(void)engine_stub();
	rig_tasks = rig_count_tasks();
	ENGINE_RUN("cuda:0", in_a_crowd_fewer_bytes_wait_for_the_device);
	pst_mem_free(keep);
	return rig_done();
}
