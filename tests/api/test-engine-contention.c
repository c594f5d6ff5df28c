/* SPDX-License-Identifier: MIT */
/*
 * While other programs compete for the CPUs of an engine's workers, fewer bytes of reads wait in
 * slots for the device.
 *
 * The limit applies only to reads of cached bytes by a queue that has used its share.  A read past
 * the end of a file takes a slot and needs no device: while the device is slow, such a read meets
 * its deadline only if it may have a slot.
 */
#include <sched.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "rig.h"

#include "engine.h"
#include "fusefs.h"
#include "symbol.h"

#define WORKERS_USUAL 12 /* the most workers of an engine that take requests of all kinds */
#define QUARTER (RIG_MIB(1) / 4)
#define MUCH RIG_MIB(64)
#define MORE RIG_MIB(16) /* more bytes than may wait under contention, with eight CPUs */
#define SMALL 4096u
#define NR_SMALL 128u   /* more reads than there are slots for all bytes that may wait */
#define NR_MAPPED 48u   /* the most copies of pinned file pages that are in flight at a time */
#define SLOW_US 900000u /* us; duration of each copy: longer than SETTLE_US and SOON_MS together */
#define SETTLE_US 150000u
#define SOON_MS 550u
#define TRIES 4u /* on a busy machine, a copy may end before the workers have settled */

static const uint32_t of_memory = PST_POLICY3(PST_PATH_CACHED, PST_PATH_BUFFERED, PST_PATH_STAGED);
static const uint32_t of_any = PST_POLICY2(PST_PATH_BUFFERED, PST_PATH_STAGED);

static struct fusefs fs;

/* While true, getrusage() below reports many involuntary switches of each thread, as if other
 * programs wanted its CPU. */
static atomic_bool contention;

/* Replaces libc's function for the library. */
__attribute__((visibility("default"))) int getrusage(__rusage_who_t who, struct rusage *ret)
{
	static _Thread_local long nr;
	int (*real)(__rusage_who_t, struct rusage *);
	int r;

	symbol(RTLD_NEXT, &real, "getrusage");
	r = real(who, ret);
	nr += atomic_load(&contention) ? 1000000 : 0;
	ret->ru_nivcsw = nr;
	return r;
}

static void add(struct pst_queue *q, struct pst_file *f, struct pst_mem *m, uint64_t off,
		uint64_t len, uint32_t policy)
{
	struct pst_io io = rig_io(PST_OP_READ, f, m, off, 0, len);

	io.policy = policy;
	io.deadline_ns = PST_NO_DEADLINE;
	T_OK(pst_queue_prep(q, &io));
}

static void read_much(struct pst_file *f, struct pst_mem *m)
{
	add(rig_q, f, m, 0, MUCH, of_memory);
	T_EQ(pst_queue_submit(rig_q), 1);
}

/* Submit enough reads that every worker checks for contention, whichever worker takes their
 * jobs. */
static void have_workers_look(struct pst_file *f, struct pst_mem *m, bool is_contended_now)
{
	atomic_store(&contention, is_contended_now);
	(void)usleep(150000); /* wait until an earlier contention has no effect on the workers */
	for (unsigned i = 0; i < 5; i++) {
		read_much(f, m);
		T_EQ(rig_reap1(rig_q).res, (int64_t)MUCH);
	}
}

/* ------------------------------------------------------------------- bound */

/* Return the bytes that workers read ahead while the device completes nothing. */
static uint64_t read_ahead(struct pst_file *f, struct pst_mem *m)
{
	uint64_t end = t_hang(), first, last, now;
	struct engine_bytes_read seen;

	first = now = engine_bytes_read(&seen);
	delay_us(SLOW_US);
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

/* Return the slot size in bytes: at most half of a CPU's L2 cache, within 256 KiB and 1 MiB. */
static uint64_t slot_size(void)
{
	long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
	uint64_t size = RIG_MIB(1);

	while (cache > 0 && size > QUARTER && 2 * size > (uint64_t)cache)
		size /= 2;
	return size;
}

/* Under contention fewer bytes may wait: a few slots, used in turn, stay in CPU caches. */
static void under_contention_fewer_bytes_wait_for_the_device(void)
{
	uint64_t alone, contended, few;
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
	contended = read_ahead(f, m);
	have_workers_look(f, m, false);
	alone = read_ahead(f, m);
	few = RIG_MIB(usual < 4 ? 4 : usual) + (usual + 1) * slot_size();
	T_CHECK(contended <= few && alone > few);
	pst_file_close(f);
	pst_mem_free(m);
}

/* ------------------------------------------------------------------ others */

/* The queue, file and device memory that a case reads with. */
struct scene {
	struct pst_queue *q;
	struct pst_file *f;
	struct pst_mem *m;
};

static struct scene scene_new(unsigned depth)
{
	struct scene s = { .f = engine_warm_file(0, MUCH), .m = rig_alloc(rig_dev, MUCH) };

	s.q = rig_queue(rig_backend, depth);
	return s;
}

static void scene_free(struct scene *s)
{
	pst_queue_free(s->q);
	pst_file_close(s->f);
	pst_mem_free(s->m);
}

/* Submit nr reads, and wait until all that may go to the device are there. */
static void submit_to_slow(struct pst_queue *q, unsigned nr)
{
	delay_us(SLOW_US);
	T_EQ(pst_queue_submit(q), nr);
	(void)usleep(SETTLE_US);
}

/* Return true if a read of cached bytes, past the end of the file, gets a slot while the device
 * copies. */
static bool may_read(const struct scene *s)
{
	struct pst_io io = rig_io(PST_OP_READ, s->f, s->m, MUCH, 0, SMALL);
	struct pst_done d;

	io.policy = of_memory;
	io.user_data = MUCH;
	io.deadline_ns = t_in_ms(SOON_MS);
	T_OK(pst_queue_prep(s->q, &io));
	T_EQ(pst_queue_submit(s->q), 1);
	do
		d = rig_reap1(s->q);
	while (d.user_data != MUCH);
	delay_us(0);
	T_CHECK(d.res == 0 || d.res == -ETIMEDOUT);
	return d.res == 0;
}

static void reap_rest(struct pst_queue *q)
{
	while (rig_stats(q).inflight)
		T_CHECK(rig_reap1(q).res > 0);
}

/* Submit two reads of a file that hangs.  They keep the slots that the queue is guaranteed. */
static void hang_two(struct pst_queue *q, struct pst_file *hang, struct pst_mem *m)
{
	uint64_t end = t_hang();

	for (unsigned i = 0; i < 2; i++) {
		add(q, hang, m, i * SMALL, SMALL, of_any);
		T_EQ(pst_queue_submit(q), 1);
		while (fusefs_waiting(&fs) <= i) {
			T_CHECK(t_now() < end);
			(void)usleep(1000);
		}
	}
}

/* Another queue has all the bytes that may wait for the device; this queue, which has none, still
 * gets a slot. */
static void a_queue_with_less_than_its_part_goes_on(void)
{
	struct pst_file *hang;
	struct scene s;
	bool may = false;
	char path[200];

	engine_needs_stub();
	if (fusefs_start(&fs, rig_dir) < 0)
		T_SKIP("%s", fs.why);
	(void)snprintf(path, sizeof(path), "%s/hang", fs.dir);
	hang = rig_open(path, RIG_R);
	s = scene_new(0);
	hang_two(s.q, hang, s.m);
	for (unsigned i = 0; i < TRIES && !may; i++) {
		have_workers_look(s.f, s.m, true);
		add(rig_q, s.f, s.m, 0, MUCH, of_memory);
		submit_to_slow(rig_q, 1);
		may = may_read(&s);
		reap_rest(rig_q);
	}
	T_CHECK(may);
	fusefs_stop(&fs);
	(void)rig_reap1(s.q);
	(void)rig_reap1(s.q);
	pst_file_close(hang);
	scene_free(&s);
}

/* Small reads count by their bytes, not by their slots. */
static void small_reads_are_not_whole_slots(void)
{
	struct scene s;
	bool may = false;

	engine_needs_stub();
	s = scene_new(2 * NR_SMALL);
	for (unsigned i = 0; i < TRIES && !may; i++) {
		have_workers_look(s.f, s.m, true);
		for (unsigned k = 0; k < NR_SMALL; k++)
			add(s.q, s.f, s.m, k * SMALL, SMALL, of_memory);
		submit_to_slow(s.q, NR_SMALL);
		may = may_read(&s);
		reap_rest(s.q);
	}
	T_CHECK(may);
	scene_free(&s);
}

/* Wait until the library has pinned the file's pages, which it does in the background after a
 * read. */
static void wait_pinned(struct pst_file *f, struct pst_mem *m)
{
	uint64_t end = t_hang();
	unsigned nr = 0;

	while (nr < NR_MAPPED) {
		struct pst_done d = rig_read(f, m, nr * PIECE, 0, PIECE);

		T_CHECK(t_now() < end);
		T_EQ(d.res, (int64_t)PIECE);
		nr += d.paths & PST_PATH_BIT(PST_PATH_PAGECACHE) ? 1 : 0;
	}
}

static void copies_that_need_no_slot_are_none(void)
{
	struct pst_file *stable;
	struct scene s;
	bool may = false;

	engine_needs_stub();
	s = scene_new(2 * NR_MAPPED);
	stable = rig_open(rig_path("data"), PST_FILE_READ | PST_FILE_STABLE);
	wait_pinned(stable, s.m);
	for (unsigned i = 0; i < TRIES && !may; i++) {
		have_workers_look(s.f, s.m, true);
		for (unsigned k = 0; k < NR_MAPPED; k++)
			add(s.q, stable, s.m, k * PIECE, PIECE, 0);
		submit_to_slow(s.q, NR_MAPPED);
		may = may_read(&s);
		reap_rest(s.q);
	}
	T_CHECK(may);
	pst_file_close(stable);
	scene_free(&s);
}

/* Reads that may go to the disk do not count.  The limit does not hold for them, and counting them
 * would delay the queue's reads of cached bytes until they end. */
static void bytes_of_reads_of_other_kinds_do_not_count(void)
{
	struct scene s;
	bool may = false;

	engine_needs_stub();
	s = scene_new(0);
	for (unsigned i = 0; i < TRIES && !may; i++) {
		have_workers_look(s.f, s.m, true);
		add(s.q, s.f, s.m, 0, MORE, of_any);
		submit_to_slow(s.q, 1);
		may = may_read(&s);
		reap_rest(s.q);
	}
	T_CHECK(may);
	scene_free(&s);
}

int main(void)
{
	struct pst_mem *keep = NULL;

	rig_init();
	/* Create a context before counting threads: a real driver has threads as long as one
	 * exists. */
	if (pst_mem_alloc("cuda:0", 1, NULL, &keep) == 0)
		(void)pst_mem_copy_in(keep, 0, "", 1);
	(void)engine_stub();
	rig_tasks = rig_count_tasks();
	ENGINE_RUN("cuda:0", under_contention_fewer_bytes_wait_for_the_device);
	ENGINE_RUN("cuda:0", a_queue_with_less_than_its_part_goes_on);
	fusefs_stop(&fs);
	ENGINE_RUN("cuda:0", small_reads_are_not_whole_slots);
	ENGINE_RUN("cuda:0", copies_that_need_no_slot_are_none);
	ENGINE_RUN("cuda:0", bytes_of_reads_of_other_kinds_do_not_count);
	pst_mem_free(keep);
	return rig_done();
}
