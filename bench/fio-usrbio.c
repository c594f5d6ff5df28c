/* SPDX-License-Identifier: MIT */
/*
 * An engine for fio that reads and writes through rings of usrbio, as 3FS's own does: it collects
 * fio's requests, and a commit prepares them, submits them and waits for all of them.
 * bench/fio-rings builds it against fio's source and runs it.
 *
 *	fio --ioengine=external:fio-usrbio.so --mountpoint=DIR --ior_depth=0 ...
 */
#include <fio.h>
#include <optgroup.h>

#include <hf3fs_usrbio.h>

struct usrbio_opts {
	void *pad; /* fio takes an option at offset 0 for one of its own */
	char *mountpoint;
	int ior_depth;
	unsigned int ior_timeout;
};

static struct fio_option options[] = {
	{
		.name = "mountpoint",
		.lname = "Mount point",
		.type = FIO_OPT_STR_STORE,
		.off1 = offsetof(struct usrbio_opts, mountpoint),
		.help = "A plain directory (penstock mount --plain), or a mount of 3FS",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{
		.name = "ior_depth",
		.lname = "Ring's batch",
		.type = FIO_OPT_INT,
		.off1 = offsetof(struct usrbio_opts, ior_depth),
		.help = "io_depth of the rings",
		.def = "0",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{
		.name = "ior_timeout",
		.lname = "Ring's time-out",
		.type = FIO_OPT_INT,
		.off1 = offsetof(struct usrbio_opts, ior_timeout),
		.help = "of the rings, in milliseconds",
		.def = "1",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{ .name = NULL },
};

struct way {
	struct hf3fs_ior ior;
	struct io_u **waiting; /* collected, and not prepared */
	unsigned int nr_waiting;
};

struct state {
	struct hf3fs_iov iov;
	struct way read, write;
	struct hf3fs_cqe *cqes;
	struct io_u **done;
	unsigned int nr_done;
};

static int ring_init(struct thread_data *td, struct way *w, bool reads)
{
	const struct usrbio_opts *o = td->eo;

	w->waiting = calloc(td->o.iodepth, sizeof(struct io_u *));
	if (!w->waiting)
		return -ENOMEM;
	return hf3fs_iorcreate3(&w->ior, o->mountpoint, (int)td->o.iodepth, reads, o->ior_depth, 0,
				(int)o->ior_timeout, -1);
}

static int usrbio_init(struct thread_data *td)
{
	const struct usrbio_opts *o = td->eo;
	struct state *s = calloc(1, sizeof(*s));
	int err;

	if (!s)
		return ENOMEM;
	td->io_ops_data = s;
	if (!o->mountpoint) {
		log_err("usrbio: mountpoint= is missing\n");
		return EINVAL;
	}
	s->cqes = calloc(td->o.iodepth, sizeof(*s->cqes));
	s->done = calloc((size_t)td->o.iodepth * 2, sizeof(struct io_u *));
	if (!s->cqes || !s->done)
		return ENOMEM;
	err = ring_init(td, &s->read, true);
	if (!err)
		err = ring_init(td, &s->write, false);
	if (err)
		log_err("usrbio: no ring on %s: %s\n", o->mountpoint, strerror(-err));
	return -err;
}

static void ring_cleanup(struct way *w)
{
	if (w->ior.iorh)
		hf3fs_iordestroy(&w->ior);
	free(w->waiting);
}

static void usrbio_cleanup(struct thread_data *td)
{
	struct state *s = td->io_ops_data;

	if (!s)
		return;
	ring_cleanup(&s->read);
	ring_cleanup(&s->write);
	free(s->cqes);
	free(s->done);
	free(s);
	td->io_ops_data = NULL;
}

static int usrbio_iomem_alloc(struct thread_data *td, size_t total)
{
	const struct usrbio_opts *o = td->eo;
	struct state *s = td->io_ops_data;
	int err = hf3fs_iovcreate(&s->iov, o->mountpoint, total, 0, -1);

	if (err) {
		log_err("usrbio: no memory on %s: %s\n", o->mountpoint, strerror(-err));
		return 1;
	}
	td->orig_buffer = (char *)s->iov.base;
	return 0;
}

static void usrbio_iomem_free(struct thread_data *td)
{
	struct state *s = td->io_ops_data;

	hf3fs_iovdestroy(&s->iov);
	td->orig_buffer = NULL;
}

static int usrbio_open_file(struct thread_data *td, struct fio_file *f)
{
	int err = generic_open_file(td, f);

	if (err)
		return err;
	err = hf3fs_reg_fd(f->fd, 0);
	if (err > 0) {
		log_err("usrbio: %s: %s\n", f->file_name, strerror(err));
		return err;
	}
	return 0;
}

static int usrbio_close_file(struct thread_data *td, struct fio_file *f)
{
	hf3fs_dereg_fd(f->fd);
	return generic_close_file(td, f);
}

static enum fio_q_status usrbio_queue(struct thread_data *td, struct io_u *io_u)
{
	struct state *s = td->io_ops_data;
	struct way *w = io_u->ddir == DDIR_READ ? &s->read : &s->write;

	if (!ddir_rw(io_u->ddir)) {
		io_u->error = ddir_sync(io_u->ddir) && fsync(io_u->file->fd) < 0 ? errno : 0;
		return FIO_Q_COMPLETED;
	}
	w->waiting[w->nr_waiting++] = io_u;
	return FIO_Q_QUEUED;
}

/* One look at the clock for all of a batch, as fio's engine for io_uring has it. */
static void issued(struct thread_data *td, struct way *w)
{
	struct timespec now;

	if (!fio_fill_issue_time(td))
		return;
	fio_gettime(&now, NULL);
	for (unsigned int i = 0; i < w->nr_waiting; i++) {
		w->waiting[i]->issue_time = now;
		io_u_queued(td, w->waiting[i]);
	}
}

/* All that waits goes, and is waited for. */
static int run(struct thread_data *td, struct state *s, struct way *w)
{
	int nr = (int)w->nr_waiting, n, err;

	if (!nr)
		return 0;
	issued(td, w);
	w->nr_waiting = 0;
	for (int i = 0; i < nr; i++) {
		struct io_u *io_u = w->waiting[i];

		err = hf3fs_prep_io(&w->ior, &s->iov, io_u->ddir == DDIR_READ, io_u->xfer_buf,
				    io_u->file->fd, io_u->offset, io_u->xfer_buflen, io_u);
		if (err < 0)
			return err;
	}
	err = hf3fs_submit_ios(&w->ior);
	if (err < 0)
		return err;
	n = hf3fs_wait_for_ios(&w->ior, s->cqes, nr, nr, NULL);
	if (n < 0)
		return n;
	for (int i = 0; i < n; i++) {
		struct io_u *io_u = (struct io_u *)s->cqes[i].userdata;
		int64_t moved = s->cqes[i].result;

		io_u->error = moved < 0 ? (unsigned int)-moved : 0;
		io_u->resid = io_u->xfer_buflen - (moved < 0 ? 0 : (uint64_t)moved);
		s->done[s->nr_done++] = io_u;
	}
	return n == nr ? 0 : -EIO;
}

static int usrbio_commit(struct thread_data *td)
{
	struct state *s = td->io_ops_data;
	int err;

	io_u_mark_submit(td, s->read.nr_waiting + s->write.nr_waiting);
	err = run(td, s, &s->read);
	return err ? err : run(td, s, &s->write);
}

static int usrbio_getevents(struct thread_data *td, unsigned int min, unsigned int max,
			    const struct timespec *t)
{
	struct state *s = td->io_ops_data;
	unsigned int n = s->nr_done < max ? s->nr_done : max;

	(void)min;
	(void)t;
	s->nr_done -= n;
	return (int)n;
}

/* getevents() took them from the end. */
static struct io_u *usrbio_event(struct thread_data *td, int event)
{
	struct state *s = td->io_ops_data;

	return s->done[s->nr_done + (unsigned int)event];
}

struct ioengine_ops ioengine = {
	.name = "usrbio",
	.version = FIO_IOOPS_VERSION,
	.flags = FIO_ASYNCIO_SETS_ISSUE_TIME,
	.init = usrbio_init,
	.cleanup = usrbio_cleanup,
	.queue = usrbio_queue,
	.commit = usrbio_commit,
	.getevents = usrbio_getevents,
	.event = usrbio_event,
	.open_file = usrbio_open_file,
	.close_file = usrbio_close_file,
	.get_file_size = generic_get_file_size,
	.iomem_alloc = usrbio_iomem_alloc,
	.iomem_free = usrbio_iomem_free,
	.options = options,
	.option_struct_size = sizeof(struct usrbio_opts),
};
