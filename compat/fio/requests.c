/* SPDX-License-Identifier: MIT */
/* Run requests through the library: one queue per job, which submits what fio commits. */
#include "engine.h"

#define DEPTH_MAX 4096 /* maximum requests of a queue */

struct requests {
	struct pst_queue *queue;
	struct pst_done *done;
	uint64_t policy;
	uint32_t flags; /* flags of requests, PST_IO_* */
	bool broken;    /* a request that has ended may still use the memory */
};

/* Parse "staged+direct" or "auto". A plus joins paths, because fio's command line gives commas a
 * meaning. */
static int parse_path(struct engine_job *job, const char *text, uint64_t *ret)
{
	uint64_t policy = 0;
	unsigned int nr = 0;

	if (!strcmp(text, "auto")) {
		*ret = PST_POLICY_AUTO;
		return 0;
	}
	for (const char *p = text;; p++) {
		size_t len = strcspn(p, ",+");
		uint32_t path;

		for (path = 1; path < PST_PATH_MAX; path++) {
			const char *name = pst_path_name(path);

			if (strlen(name) == len && !strncmp(name, p, len) &&
			    strcmp(name, "unknown") != 0)
				break;
		}
		if (path == PST_PATH_MAX)
			return engine_fail(job, -EINVAL,
					   "path=%s: no path is called '%.*s'; known are auto, "
					   "direct, cached, buffered, staged and what penstock "
					   "doctor lists",
					   text, (int)len, p);
		if (nr == 8)
			return engine_fail(job, -EINVAL, "path=%s: at most 8 paths", text);
		policy |= (uint64_t)path << (4 * nr++);
		p += len;
		if (!*p)
			break;
	}
	*ret = policy;
	return 0;
}

/* Return a policy without the page cache: fio's direct=1 is a promise about all requests. */
static uint64_t direct_policy(const char *device)
{
	struct pst_device d = { .sz = sizeof(d) };

	/* Report a missing device later, when memory is allocated. */
	if (pst_device_find(device, &d) < 0 || d.kind == PST_KIND_HOST)
		return PST_POLICY1(PST_PATH_DIRECT);
	if (d.kind == PST_KIND_CUDA)
		return PST_POLICY3(PST_PATH_GDS, PST_PATH_STAGED, PST_PATH_DIRECT);
	return PST_POLICY2(PST_PATH_STAGED, PST_PATH_DIRECT);
}

/* Return true if the policy lists O_DIRECT and no path through the page cache. */
static int requests_is_direct(uint64_t policy)
{
	int direct = 0;

	for (; policy; policy >>= 4) {
		uint32_t path = policy & 15;

		if (path == PST_PATH_CACHED || path == PST_PATH_BUFFERED ||
		    path == PST_PATH_PAGECACHE)
			return 0;
		direct |= path == PST_PATH_DIRECT;
	}
	return direct;
}

static int choose_policy(struct engine_job *job, uint64_t *ret)
{
	const struct engine_opts *o = job->opts;
	int r = o->path ? parse_path(job, o->path, ret) : 0;

	if (r || !job->td->o.odirect)
		return r;
	if (*ret == PST_POLICY_AUTO)
		*ret = direct_policy(o->device);
	else if (!requests_is_direct(*ret))
		return engine_fail(
			job, -EINVAL,
			"path=%s does not go with direct=1, of which nothing but O_DIRECT "
			"is taken: list direct, and neither cached, buffered nor pagecache",
			o->path);
	return 0;
}

static int requests_init(struct engine_job *job)
{
	const struct thread_data *td = job->td;
	const struct engine_opts *o = job->opts;
	struct pst_queue_opts opts = {
		.sz = sizeof(opts),
		.depth = td->o.iodepth,
		.timeout_ms = o->deadline,
	};
	struct requests *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	job->state = s;
	s->flags = o->strict ? PST_IO_STRICT : 0;
	if (td->o.iodepth > DEPTH_MAX)
		return engine_fail(job, -EINVAL, "iodepth=%u: a queue has at most %d requests",
				   td->o.iodepth, DEPTH_MAX);
	r = choose_policy(job, &s->policy);
	if (r)
		return r;
	s->done = calloc(td->o.iodepth, sizeof(*s->done));
	if (!s->done)
		return -ENOMEM;
	r = pst_queue_new(&opts, &s->queue);
	if (r == -EOWNERDEAD)
		return engine_fail(job, r,
				   "fio ran a job as a thread and forked this one: give thread=1 "
				   "to all jobs, or to none");
	return r < 0 ? engine_fail(job, r, "%s", pst_error_text()) : 0;
}

static void requests_done(struct engine_job *job)
{
	struct requests *s = job->state;

	if (!s)
		return;
	(void)pst_queue_free(s->queue);
	free(s->done);
	free(s);
}

static int requests_file_open(struct engine_job *job, struct fio_file *f)
{
	struct pst_file *file;
	int r = pst_file_wrap(f->fd, job->opts->stable ? PST_FILE_STABLE : 0, NULL, &file);

	if (r < 0)
		return engine_fail(job, r, "%s: %s", f->file_name, pst_error_text());
	FILE_SET_ENG_DATA(f, file);
	return 0;
}

static void requests_file_close(struct engine_job *job, struct fio_file *f)
{
	(void)job;
	(void)pst_file_close(FILE_ENG_DATA(f));
	FILE_SET_ENG_DATA(f, NULL);
}

static int requests_memory(struct engine_job *job)
{
	(void)job;
	return 0;
}

static void requests_memory_free(struct engine_job *job)
{
	(void)job;
}

static enum fio_q_status requests_queue(struct engine_job *job, struct io_u *io_u)
{
	struct requests *s = job->state;
	struct pst_io io = {
		.file = FILE_ENG_DATA(io_u->file),
		.user_data = (uint64_t)(uintptr_t)io_u,
	};
	int r;

	if (ddir_rw(io_u->ddir)) {
		io.op = io_u->ddir == DDIR_READ ? PST_OP_READ : PST_OP_WRITE;
		io.flags = s->flags;
		io.policy = s->policy;
		io.mem = job->memory.mem;
		io.mem_off = memory_off(&job->memory, io_u);
		io.file_off = io_u->offset;
		io.len = io_u->xfer_buflen;
	} else {
		io.op = PST_OP_SYNC;
		io.flags = io_u->ddir == DDIR_DATASYNC ? PST_IO_DATASYNC : 0;
	}
	if (s->broken)
		return engine_refuse(job, io_u, -EBUSY,
				     "a request that ended may still use its memory");
	r = pst_queue_prep(s->queue, &io);
	if (r == -EAGAIN)
		return FIO_Q_BUSY;
	if (r < 0)
		return engine_refuse(job, io_u, r, pst_error_text());
	job->waiting[job->nr_waiting++] = io_u;
	return FIO_Q_QUEUED;
}

/* Submit waiting requests. Requests that find no room wait for the next call. */
static int requests_commit(struct engine_job *job)
{
	struct requests *s = job->state;
	int n = pst_queue_submit(s->queue);

	if (n < 0)
		return engine_fail(job, n, "%s", pst_error_text());
	if (n) {
		io_u_mark_submit(job->td, (unsigned int)n);
		engine_issued(job, (unsigned int)n);
	}
	return 0;
}

static int requests_getevents(struct engine_job *job, unsigned int min, unsigned int max,
			      const struct timespec *t)
{
	struct requests *s = job->state;
	unsigned int got = 0;
	int n, r;

	/* fio passes a timeout of 0 with a minimum of 0, and otherwise no timeout: ignore it. */
	(void)t;
	if (max > job->td->o.iodepth)
		max = job->td->o.iodepth;
	if (min > max)
		min = max;
	while (max) {
		/* Wait only for units that were started: the others never complete. */
		unsigned int want = job->nr_waiting ? min > got : min - (min < got ? min : got);

		n = pst_queue_reap(s->queue, s->done + got, want, max - got,
				   want ? PST_NO_DEADLINE : 0);
		if (n < 0) {
			r = engine_fail(job, n, "%s", pst_error_text());
			td_verror(job->td, -r, "pst_queue_reap");
			return r;
		}
		got += (unsigned int)n;
		if (got >= min)
			break;
		r = job->nr_waiting ? requests_commit(job) : 0;
		if (!r && !n)
			r = engine_fail(job, -EIO, "nothing is under way that fio waits for");
		if (r) {
			td_verror(job->td, -r, "penstock");
			return r;
		}
	}
	return (int)got;
}

static int64_t requests_result(struct engine_job *job, unsigned int event, struct io_u **ret)
{
	struct requests *s = job->state;
	const struct pst_done *d = &s->done[event];
	struct io_u *io_u = (struct io_u *)(uintptr_t)d->user_data;
	char text[400];

	*ret = io_u;
	report_add(&job->report, d);
	if (d->flags & PST_DONE_BUSY)
		s->broken = true;
	if (d->res < 0)
		(void)engine_fail(job, 0, "%s: %s", io_u->file->file_name,
				  pst_done_text(d, text, sizeof(text)));
	return d->res;
}

const struct engine_way engine_requests = {
	.init = requests_init,
	.done = requests_done,
	.file_open = requests_file_open,
	.file_close = requests_file_close,
	.memory = requests_memory,
	.memory_free = requests_memory_free,
	.queue = requests_queue,
	.commit = requests_commit,
	.getevents = requests_getevents,
	.result = requests_result,
};
