/* SPDX-License-Identifier: MIT */
/*
 * A cell is a block size and a number of threads, with a cold or warm file.  In each cell the ways
 * to read take turns, with rotating order, so that other load affects all equally.  A way that does
 * not answer in time is reported as hung and its process is killed; the others continue.
 */
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "cufile.h"

#define COLD_MOST 0.01 /* largest part of the file that may be in the page cache */
#define COLD_TRIES 40u
#define COLD_WAIT_US 50000
#define HANGS_MAX 3u /* number of consecutive hangs after which a way is skipped */

struct worker {
	pid_t pid; /* process of the way; 0: none */
	int sock;
	unsigned hangs;
	enum status status; /* if not DONE, skip this way from now on */
	char text[400];
};

static struct worker workers[WAYS];

/* ----------------------------------------------------------------- workers */

/* Kill a worker without waiting for its end: a process that hangs in a driver does not die. */
static void worker_kill(struct worker *w)
{
	struct timespec ms = { .tv_nsec = 1000000 };

	if (!w->pid)
		return;
	(void)close(w->sock);
	(void)kill(w->pid, SIGKILL);
	for (unsigned i = 0; i < 1000 && waitpid(w->pid, NULL, WNOHANG) == 0; i++)
		(void)nanosleep(&ms, NULL);
	w->pid = 0;
}

static void worker_fork(struct worker *w, enum way way)
{
	int s[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s) < 0)
		return;
	(void)fflush(NULL);
	w->pid = fork();
	if (w->pid == 0) {
		(void)close(s[0]);
		cufile_worker_main(way, s[1]);
	}
	(void)close(s[1]);
	w->sock = s[0];
	if (w->pid > 0)
		return;
	(void)close(s[0]);
	w->pid = 0;
}

/* Receive the worker's next answer. If no answer comes, the status is HANGS or DIED. */
static void worker_hear(struct worker *w, uint64_t ns, struct answer *ret)
{
	uint64_t end = now_ns() + ns + (uint64_t)(set.patience * 1e9), now;
	ssize_t n = 0;

	memset(ret, 0, sizeof(*ret));
	for (size_t at = 0; at < sizeof(*ret) && !stop_signal; at += (size_t)n) {
		struct pollfd p = { .fd = w->sock, .events = POLLIN };

		now = now_ns();
		n = 0;
		if (now >= end) {
			ret->status = HANGS;
			(void)snprintf(ret->text, sizeof(ret->text), "no answer within %.1f s",
				       (double)ns / 1e9 + set.patience);
			return;
		}
		if (poll(&p, 1, (int)((end - now) / 1000000) + 1) <= 0)
			continue;
		n = read(w->sock, (char *)ret + at, sizeof(*ret) - at);
		if (n <= 0) {
			ret->status = DIED;
			(void)snprintf(ret->text, sizeof(ret->text), "its process died");
			return;
		}
	}
}

static void cells_worker_ask(struct worker *w, const struct order *o, struct answer *ret)
{
	(void)send(w->sock, o, sizeof(*o), MSG_NOSIGNAL);
	worker_hear(w, o->what == ORDER_TURN ? o->ns : 0, ret);
	if (ret->status == HANGS || ret->status == DIED) {
		worker_kill(w);
		w->hangs++;
	}
}

/* Start a process for the way. On failure return false; hello has the reason. */
static bool cells_worker_start(struct worker *w, enum way way, struct answer *hello)
{
	if (w->status != DONE || w->pid)
		return w->status == DONE;
	worker_fork(w, way);
	if (w->pid)
		worker_hear(w, 0, hello);
	else
		*hello = (struct answer){ .status = FAILED, .text = "no process could be made" };
	if (hello->status == DONE)
		return true;
	w->status = hello->status;
	(void)snprintf(w->text, sizeof(w->text), "%s", hello->text);
	worker_kill(w);
	return false;
}

/* ------------------------------------------------------------------- cells */

double result_median(const struct result *r)
{
	if (!r->nr || r->status != DONE)
		return 0;
	return r->spread.median;
}

static void cells_keep(struct result *r, const struct answer *a)
{
	if (a->status != DONE) {
		r->status = a->status;
		(void)snprintf(r->text, sizeof(r->text), "%s", a->text);
	} else if (a->bytes) {
		r->rate[r->nr++] = gb_per_s(a->bytes, a->ns);
		r->bytes += a->bytes;
		r->ops += a->ops;
		r->paths |= a->paths;
		whys_merge(&r->whys, &a->whys);
		hist_merge(&r->hist, &a->hist);
	}
}

static void cell_begin(struct cell *c, struct answer *a)
{
	struct order o = { .what = ORDER_CELL, .threads = c->threads, .block = c->block };

	for (unsigned i = 0; i < WAYS && !stop_signal; i++) {
		struct worker *w = &workers[i];
		struct result *r = &c->v[i];

		if (way_is_batch((enum way)i) && c->block > BATCH_SIZE_MAX)
			continue;
		r->asked = true;
		if (cells_worker_start(w, (enum way)i, a)) {
			cells_worker_ask(w, &o, a);
			if (a->status != DONE)
				cells_keep(r, a);
		} else {
			r->status = w->status;
			(void)snprintf(r->text, sizeof(r->text), "%s", w->text);
		}
	}
}

/* Read the file into the page cache or drop it from there, as the cell requires.  Return false if
 * that fails. */
static bool cells_prepare(struct cell *c, const char *path, int fd)
{
	double part = resident_part(fd);

	if (c->cold) {
		/* Pages under read-ahead can be dropped only after they have arrived. */
		for (unsigned i = 0; i < COLD_TRIES && part >= 0; i++) {
			if (i)
				(void)usleep(COLD_WAIT_US);
			make_cold(fd);
			part = resident_part(fd);
			if (part >= 0 && part <= COLD_MOST)
				return true;
		}
	} else if (part >= 1 || (make_warm(fd, path) == 0 && (part = resident_part(fd)) >= 1)) {
		return true;
	}
	if (part < 0)
		(void)snprintf(c->text, sizeof(c->text),
			       "the kernel does not say what of the file is in the page cache");
	else
		(void)snprintf(c->text, sizeof(c->text), "%.1f %% of the file %s the page cache",
			       100 * (c->cold ? part : 1 - part),
			       c->cold ? "stayed in" : "is not in");
	return false;
}

static void cell_turns(struct cell *c, const char *path, int fd, struct answer *a)
{
	struct order o = { .what = ORDER_TURN,
			   .threads = c->threads,
			   .block = c->block,
			   .ns = (uint64_t)(set.seconds * 1e9 / set.turns),
			   .cold = c->cold };

	for (unsigned t = 0; t < set.turns; t++)
		for (unsigned k = 0; k < WAYS; k++) {
			unsigned i = (k + t) % WAYS;
			struct result *r = &c->v[i];

			if (!r->asked || r->status != DONE)
				continue;
			if (stop_signal || !cells_prepare(c, path, fd))
				return;
			cells_worker_ask(&workers[i], &o, a);
			cells_keep(r, a);
		}
}

static void cell_end(struct cell *c)
{
	for (unsigned i = 0; i < WAYS; i++) {
		struct worker *w = &workers[i];
		struct result *r = &c->v[i];

		if (r->asked && r->status == DONE)
			w->hangs = 0;
		if (r->nr)
			r->spread = spread_of(r->rate, r->nr);
		if (w->hangs < HANGS_MAX || w->status != DONE)
			continue;
		w->status = r->status;
		(void)snprintf(w->text, sizeof(w->text), "not asked again, after %u times: %.300s",
			       w->hangs, r->text);
	}
}

static int cell_run(struct cell *c, const char *path, int fd, struct answer *a)
{
	if (set.size / c->block < c->threads) {
		(void)snprintf(c->text, sizeof(c->text),
			       "the file has not a block for each thread");
	} else if (cells_prepare(c, path, fd)) {
		cell_begin(c, a);
		cell_turns(c, path, fd, a);
		cell_end(c);
	}
	if (stop_signal)
		return fail(EINTR, "interrupted");
	report_cell(c);
	return 0;
}

static void workers_end(void)
{
	for (unsigned i = 0; i < WAYS; i++)
		worker_kill(&workers[i]);
}

static int all_cells(const char *path, int fd, struct cell *c, struct answer *a)
{
	unsigned each = set.nr_blocks * set.nr_threads;
	int r = 0;

	for (unsigned i = 0; r == 0 && i < 2 * each; i++) {
		bool cold = i < each;

		if (cold ? !set.cold : !set.warm)
			continue;
		/* A library that has read a cold file behaves differently with a warm one, so start
		 * new processes. */
		if (i == each)
			workers_end();
		memset(c, 0, sizeof(*c));
		c->block = set.blocks[i % each / set.nr_threads];
		c->threads = set.threads[i % set.nr_threads];
		c->cold = cold;
		r = cell_run(c, path, fd, a);
	}
	return r;
}

/* Get the facts.  If cuFile hangs, keep the facts that the process sent before. */
static int find_facts(struct answer *a)
{
	const struct order o = { .what = ORDER_CELL };
	struct worker w = { .pid = 0 };
	struct facts gpu;

	if (!cells_worker_start(&w, FACTS, a))
		return fail(ENODEV, "%.400s", a->text);
	gpu = a->facts;
	cells_worker_ask(&w, &o, a);
	worker_kill(&w);
	memcpy(a->facts.gpu, gpu.gpu, sizeof(gpu.gpu));
	memcpy(a->facts.driver, gpu.driver, sizeof(gpu.driver));
	memcpy(a->facts.fs, gpu.fs, sizeof(gpu.fs));
	a->facts.cuda = gpu.cuda;
	return 0;
}

int cells_run(const char *path, int fd)
{
	_cleanup_(freep) struct answer *a = calloc(1, sizeof(*a));
	_cleanup_(freep) struct cell *c = calloc(1, sizeof(*c));
	int r;

	if (!a || !c)
		return fail(ENOMEM, "out of memory");
	r = find_facts(a);
	if (r < 0)
		return r;
	report_begin(path, a);
	r = all_cells(path, fd, c, a);
	workers_end();
	return r;
}
