/* SPDX-License-Identifier: MIT */
/*
 * Memory and files that are freed in use end with their last request.  Ending may take long, so
 * no lock may be held.
 */
#include "rig.h"

#include "core/queue/clock.h"
#include "core/queue/object.h"
#include "core/queue/queue.h"

#define LEN 8192u
#define SEED 5

static struct pst_file *file;
static struct pst_mem *mem;
static struct pst_queue *looked; /* queue whose lock must be free while an object ends, or NULL */
static void (*release_mem)(struct object *obj), (*release_file)(struct object *obj);
static unsigned released, locked;

static void look(void)
{
	bool held = looked && !lock_try(&looked->lock);

	released++;
	locked += held;
	if (held)
		return;
	if (looked)
		lock_drop(&looked->lock);
	(void)rig_stats(NULL); /* takes the locks of the registry and of each queue */
}

static void on_mem(struct object *obj)
{
	look();
	release_mem(obj);
}

static void on_file(struct object *obj)
{
	look();
	release_file(obj);
}

/* Start a read, then free file and memory: only the queue still holds them. */
static void freed_in_use(struct pst_queue *q)
{
	struct pst_io io;

	rig_make(rig_path("data"), SEED, LEN);
	file = rig_open(rig_path("data"), PST_FILE_READ);
	mem = rig_alloc("host", LEN);
	release_mem = mem->obj.release;
	release_file = file->obj.release;
	mem->obj.release = on_mem;
	file->obj.release = on_file;
	released = locked = 0;
	looked = q;
	io = rig_io(PST_OP_READ, file, mem, 0, 0, LEN);
	T_OK(pst_queue_prep(q, &io));
	T_EQ(pst_queue_submit(q), 1);
	pst_mem_free(mem);
	pst_file_close(file);
	T_EQ(released, 0);
}

static void ends_in_reap(void)
{
	freed_in_use(rig_q);
	T_EQ(rig_reap1(rig_q).res, LEN);
	T_EQ(released, 2);
	T_EQ(locked, 0);
}

/* A thread that drains other memory of the same queue ends the request. */
static void ends_in_drain(void)
{
	struct pst_file *other_file;
	struct pst_mem *other;
	struct pst_done d[2];
	struct pst_io io;

	rig_make(rig_path("other"), SEED, LEN);
	other_file = rig_open(rig_path("other"), PST_FILE_READ);
	other = rig_alloc("host", LEN);
	freed_in_use(rig_q);
	io = rig_io(PST_OP_READ, other_file, other, 0, 0, LEN);
	T_OK(pst_queue_prep(rig_q, &io));
	T_EQ(pst_queue_submit(rig_q), 1);
	while (released < 2 && pst_mem_drain(other, 0) == -EBUSY)
		(void)usleep(1000);
	T_EQ(pst_queue_reap(rig_q, d, 2, 2, t_in_ms(RIG_WAIT_MS)), 2);
	T_EQ(released, 2);
	T_EQ(locked, 0);
	pst_mem_free(other);
	pst_file_close(other_file);
}

static void ends_with_the_queue(void)
{
	struct pst_queue *q = rig_queue(rig_backend, 8);

	freed_in_use(q);
	looked = NULL;
	pst_queue_free(q);
	while (released < 2) {
		(void)rig_stats(NULL); /* lets freed queues make progress */
		(void)usleep(1000);
	}
	T_EQ(released, 2);
}

static atomic_bool may_close, closed;

static void on_slow_file(struct object *obj)
{
	while (!atomic_load(&may_close))
		(void)usleep(1000);
	release_file(obj);
	atomic_store(&closed, true);
}

/* A close hangs, as on a network file system: other threads can reap. */
static void close_hangs(void)
{
	struct pst_done d;

	atomic_store(&may_close, false);
	atomic_store(&closed, false);
	freed_in_use(rig_q);
	file->obj.release = on_slow_file;
	file->obj.hangs = true;
	T_EQ(pst_queue_reap(rig_q, &d, 1, 1, t_hang()), 1);
	T_EQ(d.res, LEN);
	T_CHECK(!atomic_load(&closed));
	atomic_store(&may_close, true);
	for (uint64_t end = t_hang(); !atomic_load(&closed) && t_now() < end;)
		(void)usleep(1000);
	T_CHECK(atomic_load(&closed));
	looked = NULL;
}

int main(void)
{
	rig_init();
	(void)alarm(50); /* end this program if it deadlocks */
	RIG_RUN_BACKENDS(ends_in_reap);
	RIG_RUN_BACKENDS(ends_in_drain);
	RIG_RUN_BACKENDS(ends_with_the_queue);
	RIG_RUN_BACKENDS(close_hangs);
	return rig_done();
}
