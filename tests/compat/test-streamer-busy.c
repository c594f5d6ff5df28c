/* SPDX-License-Identifier: MIT */
/*
 * Reads that end while their memory may still be written to, as on a hanging file system: their
 * ranges must give RUNAI_UNKNOWN, and the streamer's end must wait for them.  Also test refused
 * threads.  The library's objects are linked in, with some calls of libpenstock wrapped by this
 * file.
 */
#include <stdatomic.h>

#include "base/log.h"

#include "streamer_rig.h"

static atomic_uint busy;   /* number of next completions to make busy */
static atomic_uint drains; /* drains with a deadline; for_ever: drains without */
static atomic_uint for_ever;
static atomic_bool no_threads;

int __real_pst_queue_reap(struct pst_queue *queue, struct pst_done *ret_done, unsigned min,
			  unsigned max, uint64_t deadline_ns);
int __wrap_pst_queue_reap(struct pst_queue *queue, struct pst_done *ret_done, unsigned min,
			  unsigned max, uint64_t deadline_ns);
int __wrap_pst_mem_drain(struct pst_mem *mem, uint64_t deadline_ns);
int __real_pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*fn)(void *),
			  void *arg);
/* Visible, because the linker resolves calls of shared libraries with it, too. */
__attribute__((visibility("default"))) int __wrap_pthread_create(pthread_t *ret,
								 const pthread_attr_t *attr,
								 void *(*fn)(void *), void *arg);

int __wrap_pst_queue_reap(struct pst_queue *queue, struct pst_done *ret_done, unsigned min,
			  unsigned max, uint64_t deadline_ns)
{
	int n = __real_pst_queue_reap(queue, ret_done, min, max, deadline_ns);

	for (int i = 0; i < n && busy; i++, busy--) {
		ret_done[i].res = -ETIMEDOUT;
		ret_done[i].prefix = 0;
		ret_done[i].flags |= PST_DONE_BUSY;
	}
	return n;
}

int __wrap_pst_mem_drain(struct pst_mem *mem, uint64_t deadline_ns)
{
	(void)mem;
	if (deadline_ns == PST_NO_DEADLINE) {
		for_ever++;
		return 0;
	}
	drains++;
	return -EBUSY;
}

int __wrap_pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*fn)(void *),
			  void *arg)
{
	return no_threads ? EAGAIN : __real_pthread_create(ret, attr, fn, arg);
}

#define LEN (9u << 20)

static char *memory;

static void a_hanging_read(void)
{
	const size_t offs[] = { 0, 100, 0 }, sizes[] = { 100, LEN - 100, 0 };
	void *dsts[] = { memory, memory + 100, NULL };
	const char *path = rig_file("hangs", LEN);
	void *s = rig_start();
	uint64_t id;

	busy = 1;
	drains = for_ever = 0;
	T_EQ(rig_request(s, path, 3, offs, sizes, dsts, &id), 0);
	for (int i = 0; i < 3; i++) {
		struct response r = rig_response(s);

		/* Any piece may be the busy one, and the first piece holds two ranges. */
		T_EQ(r.done, i == 2);
		T_CHECK(r.code == RUNAI_UNKNOWN || (r.code == 0 && r.range != 1));
		T_CHECK(r.range != 1 || r.code == RUNAI_UNKNOWN);
	}
	T_EQ(busy, 0);
	/* Further reads must work without waiting for the busy one. */
	T_EQ(rig_only(s, path, 0, 5000, memory), 0);
	T_EQ(drains, 0);
	runai_file_streamer_end(s);
	T_EQ(drains, 1);
	T_EQ(for_ever, 1);
}

/* The streamer ends before its responses are taken. */
static void an_end_without_answers(void)
{
	void *s = rig_start();

	busy = 2;
	drains = for_ever = 0;
	T_EQ(rig_read(s, in_dir("hangs"), 0, LEN, memory), 0);
	T_EQ(rig_read(s, in_dir("hangs"), 0, LEN, memory), 0);
	while (busy)
		(void)usleep(1000);
	runai_file_streamer_end(s);
	T_CHECK(for_ever >= 1 && for_ever <= 2);
	T_EQ(drains, for_ever);
}

static void note_line(void *ret, int level, const char *line)
{
	(void)level;
	(void)snprintf(ret, 256, "%s", line);
}

/* Threads cannot be created: the request must fail and log the limits that may cause it.  A
 * later request must work. */
static void threads_that_are_refused(void)
{
	const char *path = rig_file("thread", 100);
	void *s = rig_start();
	char line[256] = "";

	log_set(note_line, line, PST_LOG_ERROR);
	no_threads = true;
	T_EQ(rig_read(s, path, 0, 100, memory), RUNAI_UNKNOWN);
	no_threads = false;
	log_set(NULL, NULL, 0);
	T_CHECK(strstr(line, "RLIMIT_NPROC") && strstr(line, "pids limit"));
	T_EQ(rig_only(s, path, 0, 100, memory), 0);
	runai_file_streamer_end(s);
}

int main(void)
{
	memory = malloc(LEN);
	if (!memory || scratch_new(NULL, dir, sizeof(dir)) < 0)
		return 1;
	T_RUN(a_hanging_read);
	T_RUN(an_end_without_answers);
	T_RUN(threads_that_are_refused);
	(void)scratch_remove(dir);
	free(memory);
	return t_done();
}
