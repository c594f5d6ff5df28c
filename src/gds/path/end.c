/* SPDX-License-Identifier: MIT */
/*
 * End registrations with cuFile before their memory or file is freed.
 *
 * A spawned thread ends each registration, because that may hang.  The freeing or closing call
 * waits up to GDS_END_NS for the thread, because the program may free wrapped memory, or unmount,
 * right after.  If the thread takes longer, memory that Penstock allocated stays allocated until
 * cuFile has released it.
 */
#include "base/err.h"
#include "base/log.h"
#include "gds/path/gds.h"
#include "core/queue/object.h"
#include "core/ways/region.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* held while a gds_mem is created */

/* ------------------------------------------------------------------ memory */

static struct gds_mem *mem_of_new(const struct mem_alloc *a)
{
	struct gds_mem *gm = calloc(1, sizeof(*gm));

	if (gm && cufile_mem_new(a->device, a->base.va, a->size, &gm->cm) < 0)
		free(TAKE_PTR(gm));
	return gm;
}

struct gds_mem *gds_mem_of(struct region *r)
{
	struct gds_mem *gm = gds_mem_get(r);

	if (likely(gm))
		return gm;
	pthread_mutex_lock(&lock);
	gm = gds_mem_get(r);
	if (!gm) {
		gm = mem_of_new(r->alloc);
		atomic_store(&r->by_path[PST_PATH_GDS], gm);
	}
	pthread_mutex_unlock(&lock);
	return gm;
}

struct mem_end {
	struct region *region;
	int res; /* result of cufile_mem_free(); 1 if it was not called */
};

static int unregister(void *arg)
{
	struct mem_end *end = arg;

	end->res = cufile_mem_free(gds_mem_get(end->region)->cm);
	return 0;
}

static void mem_end_run(void *arg)
{
	struct mem_end *end = arg;
	struct timespec pause = { .tv_nsec = (long)NSEC_PER_MSEC };

	for (;;) {
		end->res = 1;
		(void)mem_within(end->region->alloc, unregister, end);
		/* If the program destroyed the context, the memory is gone as well. */
		if (end->res > 0)
			(void)unregister(end);
		/* -EBUSY: another thread is unregistering one of these slices to make room. */
		if (end->res != -EBUSY)
			break;
		(void)nanosleep(&pause, NULL);
	}
	free(gds_mem_get(end->region));
	region_put(end->region);
	free(end);
}

void gds_region_end(struct region *r)
{
	struct mem_end *end = calloc(1, sizeof(*end));
	int err = -EAGAIN;

	(void)region_again(r);
	if (end) {
		*end = (struct mem_end){ .region = r };
		err = work_call(mem_end_run, end, GDS_THREAD, GDS_END_NS);
	}
	if (err == -ETIMEDOUT)
		log_warn("cuFile has not let go of device memory yet; it is freed when it has");
	if (err == -EAGAIN) {
		free(end);
		log_warn("device memory stays allocated, cuFile may use it: %s", err_text());
	}
}

/* ------------------------------------------------------------------- files */

/* Return true if the error concerns only this file and is permanent. */
static bool is_final(int err)
{
	return err != -EAGAIN && err != -ENOMEM && err != -EMFILE && err != -ENFILE;
}

/* Return the gds part of the file, creating it if needed; NULL if out of memory. */
static struct gds_file *file_kept(struct pst_file *f)
{
	struct gds_file *gf = atomic_load(&f->by_path[PST_PATH_GDS]);

	return gf ? gf : path_keep(&f->by_path[PST_PATH_GDS], calloc(1, sizeof(*gf)));
}

int gds_file_err(const struct pst_file *f)
{
	const struct gds_file *gf = atomic_load(&f->by_path[PST_PATH_GDS]);

	return gf ? gf->err : 0;
}

void gds_file_failed(struct pst_file *f, int err)
{
	struct gds_file *gf = file_kept(f);

	if (gf && is_final(err) && !atomic_exchange(&gf->err, -err))
		log_info("%s", err_text());
}

int gds_file_of(struct pst_file *f, struct cufile_file **ret, bool *ret_fresh)
{
	struct gds_file *gf = file_kept(f);
	struct cufile_file *cf = gf ? atomic_load(&gf->cf) : NULL, *none = NULL;
	int r;

	if (!gf)
		return err_set(ENOMEM, "out of memory");
	if (!cf) {
		r = cufile_file_get(local_of(f->file), &cf);
		if (r == -EBUSY)
			return -EAGAIN;
		if (r < 0) {
			gds_file_failed(f, r);
			return r;
		}
		*ret_fresh = true;
		if (!atomic_compare_exchange_strong(&gf->cf, &none, cf)) {
			cufile_file_put(cf);
			cf = none;
		}
	}
	*ret = cf;
	return 0;
}

static void file_put(void *arg)
{
	cufile_file_put(arg);
}

void gds_file_end(struct pst_file *f)
{
	struct gds_file *gf = atomic_load(&f->by_path[PST_PATH_GDS]);
	struct cufile_file *cf = gf->cf;
	int r;

	free(gf);
	if (!cf)
		return;
	r = work_call(file_put, cf, GDS_THREAD, GDS_END_NS);
	if (r < 0)
		log_warn("cuFile has not let go of a file yet: its descriptor stays open");
}
