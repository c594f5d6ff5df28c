/* SPDX-License-Identifier: MIT */
/*
 * The functions of fio's engine.  Jobs share nothing: fio runs each in a forked process or in a
 * thread.  The library is not used before init(), because a forked child cannot continue to use it.
 */
#include "engine.h"

#include <fcntl.h>
#include <stdarg.h>

static struct fio_option options[] = {
	{
		.name = "device",
		.lname = "Device",
		.type = FIO_OPT_STR_STORE,
		.off1 = offsetof(struct engine_opts, device),
		.help = "Memory that bytes move to and from: host, soft:0, cuda:0",
		.def = "host",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{
		.name = "path",
		.lname = "Paths",
		.type = FIO_OPT_STR_STORE,
		.off1 = offsetof(struct engine_opts, path),
		.help = "auto, or the only paths that may be taken, as staged+direct",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{
		.name = "strict",
		.lname = "Strict",
		.type = FIO_OPT_BOOL,
		.off1 = offsetof(struct engine_opts, strict),
		.help = "A request for which a better path exists fails",
		.def = "0",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{
		.name = "stable",
		.lname = "Stable files",
		.type = FIO_OPT_BOOL,
		.off1 = offsetof(struct engine_opts, stable),
		.help = "Nobody changes the files meanwhile (PST_FILE_STABLE)",
		.def = "0",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{
		.name = "deadline",
		.lname = "Deadline",
		.type = FIO_OPT_INT,
		.off1 = offsetof(struct engine_opts, deadline),
		.help = "Milliseconds after which a request fails; 0 is the library's 300000",
		.def = "0",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{
		.name = "rings",
		.lname = "Rings",
		.type = FIO_OPT_STR_STORE,
		.off1 = offsetof(struct engine_opts, rings),
		.help = "Mount of 3FS or of Penstock, or plain directory, whose rings are used",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{
		.name = "ior_depth",
		.lname = "Ring's batch",
		.type = FIO_OPT_INT,
		.off1 = offsetof(struct engine_opts, ior_depth),
		.help = "io_depth of the rings",
		.def = "0",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{
		.name = "ior_timeout",
		.lname = "Ring's time-out",
		.type = FIO_OPT_INT,
		.off1 = offsetof(struct engine_opts, ior_timeout),
		.help = "of the rings, in milliseconds",
		.def = "1",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{ .name = NULL },
};

int engine_fail(struct engine_job *job, int r, const char *format, ...)
{
	char text[sizeof(job->said)];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (strcmp(text, job->said) != 0)
		log_err("penstock: %s: %s\n", job->td->o.name ? job->td->o.name : "job", text);
	(void)snprintf(job->said, sizeof(job->said), "%s", text);
	return r;
}

enum fio_q_status engine_refuse(struct engine_job *job, struct io_u *io_u, int r, const char *why)
{
	io_u->error = (unsigned int)-engine_fail(job, r, "%s", why);
	return FIO_Q_COMPLETED;
}

/* Read the clock once per batch, as fio's io_uring engine does. */
void engine_issued(struct engine_job *job, unsigned int nr)
{
	struct thread_data *td = job->td;
	struct timespec now;

	if (nr && fio_fill_issue_time(td)) {
		fio_gettime(&now, NULL);
		for (unsigned int i = 0; i < nr; i++) {
			job->waiting[i]->issue_time = now;
			io_u_queued(td, job->waiting[i]);
		}
		if (td->o.read_iolog_file)
			td->last_issue = now;
	}
	job->nr_waiting -= nr;
	memmove(job->waiting, job->waiting + nr, job->nr_waiting * sizeof(*job->waiting));
}

static int engine_init(struct thread_data *td)
{
	struct engine_job *job = calloc(1, sizeof(*job));
	int r;

	if (!job)
		return ENOMEM;
	td->io_ops_data = job;
	job->td = td;
	job->opts = td->eo;
	job->way = job->opts->rings ? &engine_rings : &engine_requests;
	job->waiting = calloc(td->o.iodepth, sizeof(struct io_u *));
	if (!job->waiting)
		return ENOMEM;
	r = job->way->init(job);
	return -r;
}

/* Fail here if there is no memory: fio ignores earlier failures. */
static int engine_post_init(struct thread_data *td)
{
	struct engine_job *job = td->io_ops_data;
	int r;

	if (!(td_read(td) || td_write(td)))
		return 0;
	if (!job->memory.host)
		return td->error ? td->error : ENOMEM;
	r = memory_fill(job);
	if (r)
		td_verror(td, -r, "penstock memory");
	return -r;
}

static void engine_cleanup(struct thread_data *td)
{
	struct engine_job *job = td->io_ops_data;

	if (!job)
		return;
	report_print(job);
	job->way->done(job);
	memory_free(&job->memory);
	free(job->waiting);
	free(job);
	td->io_ops_data = NULL;
}

static int engine_iomem_alloc(struct thread_data *td, size_t len)
{
	struct engine_job *job = td->io_ops_data;
	int r = memory_alloc(job, len);

	if (!r)
		r = job->way->memory(job);
	if (r) {
		memory_free(&job->memory);
		td_verror(td, -r, "penstock memory");
		return 1;
	}
	td->orig_buffer = job->memory.host;
	return 0;
}

/* Do nothing: cleanup() frees the memory, after the requests. */
static void engine_iomem_free(struct thread_data *td)
{
	struct engine_job *job = td->io_ops_data;

	if (job)
		job->way->memory_free(job);
	td->orig_buffer = NULL;
}

/* fio opens block devices before forking, to get their size.  In this case only create a
 * descriptor. */
static int engine_open_file(struct thread_data *td, struct fio_file *f)
{
	struct engine_job *job = td->io_ops_data;
	int r = generic_open_file(td, f);

	if (r || !job)
		return r;
	r = job->way->file_open(job, f);
	if (r) {
		td_verror(td, -r, "penstock file");
		/* Keep the first error. */
		r = generic_close_file(td, f);
		return r ? r : 1;
	}
	return 0;
}

static int engine_close_file(struct thread_data *td, struct fio_file *f)
{
	struct engine_job *job = td->io_ops_data;

	if (job)
		job->way->file_close(job, f);
	return generic_close_file(td, f);
}

/* For files, punch a hole: fio's own function can only discard blocks of devices. */
static enum fio_q_status engine_trim(struct thread_data *td, struct io_u *io_u)
{
	if (io_u->file->filetype != FIO_TYPE_FILE)
		(void)do_io_u_trim(td, io_u);
	else if (fallocate(io_u->file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			   (off_t)io_u->offset, (off_t)io_u->xfer_buflen) < 0)
		io_u->error = (unsigned int)errno;
	io_u_mark_submit(td, 1);
	io_u_mark_complete(td, 1);
	return FIO_Q_COMPLETED;
}

static enum fio_q_status engine_queue(struct thread_data *td, struct io_u *io_u)
{
	struct engine_job *job = td->io_ops_data;
	int r;

	fio_ro_check(td, io_u);
	if (job->nr_waiting == td->o.iodepth)
		return FIO_Q_BUSY;
	if (io_u->ddir == DDIR_TRIM)
		return job->nr_waiting ? FIO_Q_BUSY : engine_trim(td, io_u);
	if (io_u->ddir == DDIR_SYNC_FILE_RANGE) {
		if (job->nr_waiting)
			return FIO_Q_BUSY;
		if (fio_fill_issue_time(td))
			fio_gettime(&io_u->issue_time, NULL);
		(void)do_io_u_sync(td, io_u);
		return FIO_Q_COMPLETED;
	}
	if (ddir_rw(io_u->ddir)) {
		r = memory_before(job, io_u);
		if (r < 0)
			return engine_refuse(job, io_u, r, pst_error_text());
	}
	return job->way->queue(job, io_u);
}

static int engine_commit(struct thread_data *td)
{
	struct engine_job *job = td->io_ops_data;

	return job->nr_waiting ? job->way->commit(job) : 0;
}

static int engine_getevents(struct thread_data *td, unsigned int min, unsigned int max,
			    const struct timespec *t)
{
	struct engine_job *job = td->io_ops_data;

	return job->way->getevents(job, min, max, t);
}

/* Copy here and not in getevents(): fio has read the clock already, so copying is not part of the
 * latency. */
static struct io_u *engine_event(struct thread_data *td, int event)
{
	struct engine_job *job = td->io_ops_data;
	struct io_u *io_u;
	int64_t res = job->way->result(job, (unsigned int)event, &io_u);
	int r;

	io_u->error = res < 0 ? (unsigned int)-res : 0;
	io_u->resid = 0;
	if (!ddir_rw(io_u->ddir)) {
		/* Report errors of syncs here, because fio ignores them. */
		if (io_u->error) {
			td_verror(td, io_u->error, "sync");
			fio_mark_td_terminate(td);
		}
		return io_u;
	}
	io_u->resid = io_u->xfer_buflen - (res < 0 ? 0 : (uint64_t)res);
	/* fio would count an empty read as progress of 0 bytes, and never end. */
	if (res == 0 && io_u->ddir == DDIR_READ)
		(void)engine_refuse(job, io_u, -ENODATA, "a file ends before what is to be read");
	if (res > 0 && io_u->ddir == DDIR_READ) {
		r = memory_after(job, io_u, (uint64_t)res);
		if (r < 0)
			(void)engine_refuse(job, io_u, r, pst_error_text());
	}
	return io_u;
}

__attribute__((visibility("default"))) struct ioengine_ops ioengine = {
	.name = "penstock",
	.version = FIO_IOOPS_VERSION,
	.flags = FIO_ASYNCIO_SETS_ISSUE_TIME | FIO_ASYNCIO_SYNC_TRIM | FIO_NO_OFFLOAD,
	.init = engine_init,
	.post_init = engine_post_init,
	.cleanup = engine_cleanup,
	.queue = engine_queue,
	.commit = engine_commit,
	.getevents = engine_getevents,
	.event = engine_event,
	.open_file = engine_open_file,
	.close_file = engine_close_file,
	.get_file_size = generic_get_file_size,
	.iomem_alloc = engine_iomem_alloc,
	.iomem_free = engine_iomem_free,
	.options = options,
	.option_struct_size = sizeof(struct engine_opts),
};
