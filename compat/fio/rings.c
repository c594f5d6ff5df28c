/* SPDX-License-Identifier: MIT */
/*
 * Run requests through usrbio rings, as 3FS's own engine does: collect fio's requests; a commit
 * prepares and submits them, and waits for all of them.
 */
#include "engine.h"

#include <sys/random.h>

#include <hf3fs_usrbio.h>

struct way {
	struct hf3fs_ior ior;
	struct io_u **waiting;
	unsigned int nr_waiting;
};

struct rings {
	struct hf3fs_iov iov;
	bool has_iov;
	struct way read, write;
	struct hf3fs_cqe *cqes;
	struct ended {
		struct io_u *io_u;
		int64_t res;
	} * done;
	unsigned int nr_done;
};

static int ring_init(struct engine_job *job, struct way *w, bool reads)
{
	const struct engine_opts *o = job->opts;
	int r;

	w->waiting = calloc(job->td->o.iodepth, sizeof(struct io_u *));
	if (!w->waiting)
		return -ENOMEM;
	r = hf3fs_iorcreate3(&w->ior, o->rings, (int)job->td->o.iodepth, reads, o->ior_depth, 0,
			     (int)o->ior_timeout, -1);
	return r ? engine_fail(job, r,
			       "no ring on %s: %s; a plain directory wants penstock mount "
			       "--plain first",
			       o->rings, strerror(-r))
		 : 0;
}

static int rings_init(struct engine_job *job)
{
	const struct engine_opts *o = job->opts;
	struct rings *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	job->state = s;
	if (o->path || o->strict || o->stable || o->deadline)
		return engine_fail(job, -EINVAL,
				   "path=, strict=, stable= and deadline= do not go with rings=: "
				   "who serves the rings chooses");
	s->cqes = calloc(job->td->o.iodepth, sizeof(*s->cqes));
	s->done = calloc((size_t)job->td->o.iodepth * 2, sizeof(*s->done));
	if (!s->cqes || !s->done)
		return -ENOMEM;
	r = ring_init(job, &s->read, true);
	return r ? r : ring_init(job, &s->write, false);
}

static void ring_done(struct way *w)
{
	if (w->ior.iorh)
		hf3fs_iordestroy(&w->ior);
	free(w->waiting);
}

static void rings_memory_free(struct engine_job *job)
{
	struct rings *s = job->state;

	if (s->has_iov)
		hf3fs_iovdestroy(&s->iov);
	s->has_iov = false;
	if (!job->memory.is_device)
		job->memory.host = NULL;
}

static void rings_done(struct engine_job *job)
{
	struct rings *s = job->state;

	if (!s)
		return;
	ring_done(&s->read);
	ring_done(&s->write);
	rings_memory_free(job);
	free(s->cqes);
	free(s->done);
	free(s);
}

/* Parse the device's number; its kind must be the one that rings serve (PST_USRBIO_DEVICE). */
static int rings_device_number(struct engine_job *job, int *ret)
{
	const char *kind = secure_getenv("PST_USRBIO_DEVICE");
	const char *device = job->opts->device;
	size_t len;

	if (!kind || !*kind)
		kind = "cuda";
	len = strlen(kind);
	if (strncmp(device, kind, len) != 0 || (device[len] != ':' && device[len]))
		return engine_fail(job, -EINVAL,
				   "device=%s: rings serve %s:N; PST_USRBIO_DEVICE in fio's "
				   "environment names the kind, cuda or soft",
				   device, kind);
	*ret = device[len] ? atoi(device + len + 1) : 0;
	return 0;
}

static int device_memory(struct engine_job *job, struct rings *s, int number)
{
	const struct engine_memory *m = &job->memory;
	uint8_t id[16];

	if (getrandom(id, sizeof(id), 0) != sizeof(id))
		return -EIO;
	/* Set the version bits of a random UUID. */
	id[6] = (uint8_t)((id[6] & 0x0f) | 0x40);
	id[8] = (uint8_t)((id[8] & 0x3f) | 0x80);
	/* The pointer only carries a number and is never dereferenced. */
	return hf3fs_iovwrap_device(&s->iov, (void *)(uintptr_t)m->addr, id, job->opts->rings,
				    m->len, 0, number);
}

static int rings_memory(struct engine_job *job)
{
	struct engine_memory *m = &job->memory;
	struct rings *s = job->state;
	int number = 0, r;

	r = m->is_device ? rings_device_number(job, &number) : 0;
	if (r)
		return r;
	if (m->is_device)
		r = device_memory(job, s, number);
	else
		r = hf3fs_iovcreate(&s->iov, job->opts->rings, m->len, 0, -1);
	if (r)
		return engine_fail(job, r, "no memory of %s on %s: %s", job->opts->device,
				   job->opts->rings, strerror(-r));
	s->has_iov = true;
	if (!m->is_device)
		m->host = (char *)s->iov.base;
	return 0;
}

static int rings_file_open(struct engine_job *job, struct fio_file *f)
{
	int r = hf3fs_reg_fd(f->fd, 0);

	return r > 0 ? engine_fail(job, -r, "%s is not on %s: %s", f->file_name, job->opts->rings,
				   strerror(r))
		     : 0;
}

static void rings_file_close(struct engine_job *job, struct fio_file *f)
{
	(void)job;
	hf3fs_dereg_fd(f->fd);
}

static enum fio_q_status rings_queue(struct engine_job *job, struct io_u *io_u)
{
	struct rings *s = job->state;
	struct way *w = io_u->ddir == DDIR_READ ? &s->read : &s->write;

	if (!ddir_rw(io_u->ddir)) {
		/* A sync covers earlier writes: let them run first. */
		if (job->nr_waiting)
			return FIO_Q_BUSY;
		if (fio_fill_issue_time(job->td))
			fio_gettime(&io_u->issue_time, NULL);
		(void)do_io_u_sync(job->td, io_u);
		return FIO_Q_COMPLETED;
	}
	w->waiting[w->nr_waiting++] = io_u;
	job->waiting[job->nr_waiting++] = io_u;
	return FIO_Q_QUEUED;
}

/* Submit everything that waits, and wait for it. */
static int rings_run(struct engine_job *job, struct way *w)
{
	struct rings *s = job->state;
	uint8_t *base = s->iov.base;
	int nr = (int)w->nr_waiting, n, r;

	w->nr_waiting = 0;
	for (int i = 0; i < nr; i++) {
		struct io_u *io_u = w->waiting[i];

		r = hf3fs_prep_io(&w->ior, &s->iov, io_u->ddir == DDIR_READ,
				  base + memory_off(&job->memory, io_u), io_u->file->fd,
				  io_u->offset, io_u->xfer_buflen, io_u);
		if (r < 0)
			return r;
	}
	r = nr ? hf3fs_submit_ios(&w->ior) : 0;
	if (r < 0 || !nr)
		return r;
	n = hf3fs_wait_for_ios(&w->ior, s->cqes, nr, nr, NULL);
	for (int i = 0; i < n; i++)
		s->done[s->nr_done++] = (struct ended){
			.io_u = (struct io_u *)s->cqes[i].userdata,
			.res = s->cqes[i].result,
		};
	return n < 0 ? n : n == nr ? 0 : -EIO;
}

static int rings_commit(struct engine_job *job)
{
	struct rings *s = job->state;
	int r;

	io_u_mark_submit(job->td, job->nr_waiting);
	engine_issued(job, job->nr_waiting);
	r = rings_run(job, &s->read);
	if (!r)
		r = rings_run(job, &s->write);
	return r ? engine_fail(job, r, "rings on %s: %s", job->opts->rings, strerror(-r)) : 0;
}

static int rings_getevents(struct engine_job *job, unsigned int min, unsigned int max,
			   const struct timespec *t)
{
	struct rings *s = job->state;
	unsigned int n = s->nr_done < max ? s->nr_done : max;

	(void)t;
	/* Report the failure of an earlier commit(): no more completions will come. */
	if (n < min) {
		td_verror(job->td, EIO, "rings");
		return -EIO;
	}
	s->nr_done -= n;
	return (int)n;
}

/* Events are numbered from the end of done[], because getevents() took them from there. */
static int64_t rings_result(struct engine_job *job, unsigned int event, struct io_u **ret)
{
	struct rings *s = job->state;
	const struct ended *e = &s->done[s->nr_done + event];
	struct pst_done done = {
		.op = e->io_u->ddir == DDIR_READ ? PST_OP_READ : PST_OP_WRITE,
		.res = e->res,
	};

	*ret = e->io_u;
	if (e->res < 0)
		(void)engine_fail(job, 0, "%s: %s by rings on %s", e->io_u->file->file_name,
				  strerror((int)-e->res), job->opts->rings);
	report_add(&job->report, &done);
	return e->res;
}

const struct engine_way engine_rings = {
	.init = rings_init,
	.done = rings_done,
	.file_open = rings_file_open,
	.file_close = rings_file_close,
	.memory = rings_memory,
	.memory_free = rings_memory_free,
	.queue = rings_queue,
	.commit = rings_commit,
	.getevents = rings_getevents,
	.result = rings_result,
};
