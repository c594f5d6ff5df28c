/* SPDX-License-Identifier: MIT */
/*
 * cuFile hangs: deadlines hold, memory that cuFile may still touch is kept, other requests
 * complete, and the program can end.
 */
#include "fusefs.h"
#include "gds.h"

#define SHORT_MS 1000
#define BEGUN_MS 3000 /* the hanging call has begun by then, even on a busy machine */

static struct pst_io io_at(uint64_t off, uint64_t len, uint64_t ms, uint64_t user_data)
{
	struct pst_io io = rig_io(PST_OP_READ, file, mem, off, off, len);

	io.policy = PST_POLICY2(PST_PATH_GDS, PST_PATH_STAGED);
	io.deadline_ns = t_in_ms(ms);
	io.user_data = user_data;
	return io;
}

static void start(const struct pst_io *io)
{
	T_OK(pst_queue_prep(rig_q, io));
	T_EQ(pst_queue_submit(rig_q), 1);
}

static void wait_hung(unsigned nr)
{
	uint64_t until = t_hang();

	/* Sleep between polls: state() takes the stub's lock, which the hanging calls need. */
	while (state().hung < nr) {
		T_CHECK(t_now() < until);
		(void)usleep(1000);
	}
}

/* Wait until nothing uses the memory.  Check that no request is busy. */
static void drained(void)
{
	T_OK(pst_mem_drain(mem, t_hang()));
	T_EQ(rig_stats(rig_q).busy, 0);
}

static void late(const struct pst_done *d, int err)
{
	rig_show(d);
	T_EQ(d->res, -err);
	T_CHECK(d->flags & PST_DONE_BUSY);
	T_EQ(pst_mem_drain(mem, 0), -EBUSY);
}

/* The call hangs: the request ends at its deadline, and is no longer busy once the call returns. */
static void hangs_in(const char *what)
{
	char text[60];
	struct pst_done d;
	struct pst_io io;
	uint64_t t;

	open_direct("mode=p2pdma");
	(void)snprintf(text, sizeof(text), "hang=%s:1", what);
	x.set(text);
	io = io_at(0, RIG_MIB(1), BEGUN_MS, 1);
	t = t_now();
	start(&io);
	wait_hung(1);
	d = rig_reap1(rig_q);
	T_CHECK(t_now() - t < T_HANG_NS);
	late(&d, ETIMEDOUT);
	/* Other requests complete during the hang. */
	for (unsigned i = 0; i < 3; i++) {
		io = io_at(RIG_MIB(16), RIG_MIB(2), 20000, 2);
		d = rig_do(rig_q, &io);
		rig_show(&d);
		T_EQ(d.res, (int64_t)RIG_MIB(2));
		T_CHECK(is_right(RIG_MIB(16), RIG_MIB(16), RIG_MIB(2)));
	}
	T_EQ(pst_mem_drain(mem, 0), -EBUSY);
	x.release();
	drained();
	d = rig_read(file, mem, 0, 0, RIG_MIB(2));
	T_EQ(d.res, (int64_t)RIG_MIB(2));
	close_all();
}

static void in_read(void)
{
	hangs_in("read");
}

static void in_file(void)
{
	hangs_in("cuFileHandleRegister");
}

static void in_memory(void)
{
	hangs_in("cuFileBufRegister");
}

static void in_write(void)
{
	struct pst_done d;
	struct pst_io io;

	open_direct("mode=nvfs");
	x.set("hang=write:1");
	io = io_at(0, RIG_MIB(1), BEGUN_MS, 1);
	io.op = PST_OP_WRITE;
	start(&io);
	wait_hung(1);
	d = rig_reap1(rig_q);
	late(&d, ETIMEDOUT);
	x.release();
	drained();
	close_all();
}

/* Opening the driver hangs: the result of the search never comes, and reads take the library's
 * own path. */
static void in_open(void)
{
	struct pst_done d;

	open_with("mode=p2pdma");
	x.set("hang=cuFileDriverOpen:1");
	d = cold_read(0, 0, RIG_MIB(1), 0, 0);
	T_EQ(d.res, (int64_t)RIG_MIB(1));
	wait_hung(1);
	d = cold_read(0, 0, RIG_MIB(1), 0, 0);
	T_EQ(d.res, (int64_t)RIG_MIB(1));
	T_EQ(d.why, PST_WHY_NONE);
	T_CHECK(is_right(0, 0, RIG_MIB(1)) && !(d.paths & GDS));
	T_EQ(check(PST_OP_READ).detail, EAGAIN);
	x.release();
	T_EQ(verdict().why, PST_WHY_NONE);
	close_all();
}

static void cancelled(void)
{
	struct pst_done d;
	struct pst_io io;
	uint64_t t;

	open_direct("mode=p2pdma");
	x.set("hang=read:1");
	io = io_at(0, RIG_MIB(1), 60000, 7);
	start(&io);
	wait_hung(1);
	t = t_now();
	T_EQ(pst_queue_cancel(rig_q, 7), 1);
	d = rig_reap1(rig_q);
	T_CHECK(t_now() - t < T_HANG_NS);
	late(&d, ECANCELED);
	x.release();
	drained();
	close_all();
}

/* All threads of a device hang: another request waits a moment, then it is staged. */
static void all_threads(void)
{
	struct pst_done d[5];
	struct pst_io io;
	uint64_t t;

	open_direct("mode=p2pdma");
	x.set("hang=read:0");
	for (unsigned i = 0; i < 4; i++) {
		io = io_at(i * RIG_MIB(1), RIG_MIB(1), 6000, i);
		start(&io);
	}
	wait_hung(4);
	t = t_now();
	io = io_at(RIG_MIB(8), RIG_MIB(2), 60000, 9);
	start(&io);
	d[0] = rig_reap1(rig_q);
	rig_show(&d[0]);
	T_EQ(d[0].user_data, 9);
	T_EQ(d[0].res, (int64_t)RIG_MIB(2));
	T_EQ(d[0].why, PST_WHY_NO_GDS);
	T_EQ(d[0].detail, ETIMEDOUT);
	T_CHECK(t_now() - t < T_HANG_NS);
	T_CHECK(is_right(RIG_MIB(8), RIG_MIB(8), RIG_MIB(2)));
	T_EQ(pst_queue_reap(rig_q, d, 4, 4, t_in_ms(RIG_WAIT_MS)), 4);
	for (unsigned i = 0; i < 4; i++)
		T_EQ(d[i].res, -ETIMEDOUT);
	x.release();
	drained();
	close_all();
}

/* The library replaces threads that hang, but only a limited number of times. */
static void replaced(void)
{
	struct pst_done d[8];
	struct pst_io io;

	open_direct("mode=p2pdma");
	x.set("hang=read:0");
	for (unsigned i = 0; i < 8; i++) {
		io = io_at(i * RIG_MIB(1), RIG_MIB(1), 60000, i / 4);
		start(&io);
		wait_hung(i + 1);
		if (i % 4 < 3)
			continue;
		T_EQ(pst_queue_cancel(rig_q, i / 4), 4);
		T_EQ(pst_queue_reap(rig_q, d, 4, 4, t_in_ms(RIG_WAIT_MS)), 4);
		for (unsigned k = 0; k < 4; k++)
			late(&d[k], ECANCELED);
		(void)usleep(1200000); /* until the library gives their threads up (GDS_LOST_NS) */
	}
	io = io_at(RIG_MIB(16), RIG_MIB(1), 60000, 9);
	d[0] = rig_do(rig_q, &io);
	T_EQ(d[0].res, (int64_t)RIG_MIB(1));
	T_EQ(d[0].detail, ETIMEDOUT);
	T_CHECK(is_right(RIG_MIB(16), RIG_MIB(16), RIG_MIB(1)));
	T_EQ(verdict().state, PST_STATE_IMPOSSIBLE);
	T_EQ(verdict().detail, ETIMEDOUT);
	x.release();
	drained();
	close_all();
}

/* Free a queue, its memory and its file during a hanging call: they live until the call returns. */
static void queue_freed(void)
{
	struct pst_stats st;
	struct pst_io io;
	uint64_t t;

	open_direct("mode=p2pdma");
	x.set("hang=read:1");
	io = io_at(0, RIG_MIB(1), 60000, 1);
	start(&io);
	wait_hung(1);
	t = t_now();
	rig_q = pst_queue_free(rig_q);
	mem = pst_mem_free(mem);
	file = pst_file_close(file);
	T_CHECK(t_now() - t < T_HANG_NS);
	T_EQ(rig_stats(NULL).busy, 1);
	T_EQ(state().bufs, 1);
	T_EQ(state().files, 1);
	x.release();
	t = t_hang();
	do
		st = rig_stats(NULL);
	while (st.busy && t_now() < t);
	T_EQ(st.busy, 0);
	close_all();
}

/* Deregistering memory and file hangs: the program waits a moment and continues. */
static void at_the_end(void)
{
	struct pst_done d;
	uint64_t t;

	open_direct("mode=p2pdma");
	d = cold_read(0, 0, RIG_MIB(1), 0, 0);
	T_CHECK(d.paths & GDS);
	x.set("hang=cuFileBufDeregister:1");
	t = t_now();
	mem = pst_mem_free(mem);
	T_CHECK(t_now() - t < T_HANG_NS);
	T_EQ(state().hung, 1);
	x.release();
	x.set("hang=cuFileHandleDeregister:1");
	rig_q = pst_queue_free(rig_q);
	file = pst_file_close(file);
	x.release();
	t = t_hang();
	while ((state().files || state().bufs) && t_now() < t)
		;
	close_all();
}

/* The program exits while cuFile hangs. */
static void process_exits(void)
{
	struct pst_io io;

	open_direct("mode=p2pdma");
	x.set("hang=read:0");
	for (unsigned i = 0; i < 2; i++) {
		io = io_at(i * RIG_MIB(1), RIG_MIB(1), 60000, i);
		start(&io);
	}
	wait_hung(2);
	printf("ok %d process_exits\n1..%d\n", t_cases + 1, t_cases + 1);
	(void)fflush(stdout);
	exit(0);
}

/* Fork while cuFile hangs: the child is refused, and the parent's read completes. */
static void forked(void)
{
	struct pst_path_info info = { .sz = sizeof(info) };
	struct pst_done d;
	struct pst_io io;
	int status = -1;
	pid_t pid;

	open_direct("mode=p2pdma");
	d = cold_read(0, 0, RIG_MIB(1), 0, 0);
	T_CHECK(d.paths & GDS);
	x.set("hang=read:1");
	io = io_at(0, RIG_MIB(1), 60000, 1);
	start(&io);
	wait_hung(1);
	pid = fork();
	if (!pid) {
		if (pst_path_check(file, mem, PST_OP_READ, PST_PATH_GDS, &info) != -EOWNERDEAD ||
		    pst_queue_free(rig_q) || pst_mem_free(mem) || pst_file_close(file))
			_exit(1);
		_exit(0);
	}
	T_EQ(waitpid(pid, &status, 0), pid);
	T_EQ(status, 0);
	x.release();
	d = rig_reap1(rig_q);
	T_EQ(d.res, (int64_t)RIG_MIB(1));
	T_CHECK(d.paths & GDS);
	close_all();
}

static struct fusefs fs;

static void stop_fuse(void)
{
	fusefs_stop(&fs);
}

#define NR 8u /* number of hanging reads: more than the pool has slots */

/* Reads of a hanging file hold all slots of the pool: requests that need no slot still complete. */
static void all_slots(void)
{
	uint64_t until = t_hang();
	struct pst_file *hang;
	unsigned waiting;
	char path[200];
	struct pst_done d;

	(void)setenv("PST_POOL", "4M", 1);
	open_direct("mode=p2pdma");
	T_CHECK(cold_read(0, 0, RIG_MIB(1), PST_POLICY2(PST_PATH_GDS, PST_PATH_STAGED), 0).paths &
		GDS);
	if (fusefs_start(&fs, rig_dir) < 0)
		T_SKIP("%s", fs.why);
	(void)snprintf(path, sizeof(path), "%s/hang", fs.dir);
	hang = rig_open(path, RIG_R);
	for (unsigned i = 0; i < NR; i++) {
		struct pst_io io = rig_io(PST_OP_READ, hang, mem, RIG_MIB(i % 8), RIG_MIB(20 + i),
					  RIG_MIB(1));

		io.deadline_ns = PST_NO_DEADLINE;
		io.user_data = 1;
		start(&io);
	}
	/* Wait until no further request gets a slot. */
	do {
		waiting = fusefs_waiting(&fs);
		(void)usleep(200000);
	} while ((!waiting || fusefs_waiting(&fs) != waiting) && t_now() < until);
	T_CHECK(waiting);
	d = cold_read(0, 0, RIG_MIB(1), PST_POLICY2(PST_PATH_GDS, PST_PATH_STAGED), 0);
	T_EQ(d.res, (int64_t)RIG_MIB(1));
	T_CHECK(d.paths & GDS);
	for (unsigned nr = 0; nr < NR;) {
		fusefs_release(&fs);
		while (pst_queue_reap(rig_q, &d, 0, 1, 0) == 1) {
			T_EQ(d.res, (int64_t)RIG_MIB(1));
			nr++;
		}
		(void)usleep(1000);
	}
	hang = pst_file_close(hang);
	fusefs_stop(&fs);
	close_all();
}

static const struct again cases[] = {
	{ "in_read", in_read, AGAIN_ONCE, "" },
	{ "in_file", in_file, AGAIN_ONCE, "" },
	{ "in_memory", in_memory, AGAIN_ONCE, "" },
	{ "in_write", in_write, AGAIN_ONCE, "" },
	{ "in_open", in_open, AGAIN_ONCE, "" },
	{ "cancelled", cancelled, AGAIN_ONCE, "" },
	{ "all_threads", all_threads, AGAIN_ONCE, "" },
	{ "all_slots", all_slots, AGAIN_ONCE, "" },
	{ "replaced", replaced, AGAIN_ONCE, "" },
	{ "queue_freed", queue_freed, AGAIN_ONCE, "" },
	{ "at_the_end", at_the_end, AGAIN_ONCE, "" },
	{ "process_exits", process_exits, AGAIN_ONCE, "" },
	{ "forked", forked, AGAIN_ONCE, "" },
};

int main(int argc, char **argv)
{
	rig_init();
	(void)atexit(stop_fuse);
	if (argc > 1)
		return again_child(cases, RIG_NR(cases), argv[1]);
	again_all(cases, RIG_NR(cases));
	return rig_done();
}
