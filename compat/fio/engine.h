/* SPDX-License-Identifier: MIT */
/*
 * An engine for fio.  docs/FIO.md says how it is built and used.
 *
 * It is compiled against the headers of one version of fio, by tools/fio-engine, and knows of this
 * project the public headers only.
 */
#ifndef PENSTOCK_FIO_ENGINE_H
#define PENSTOCK_FIO_ENGINE_H

#include <fio.h>
#include <optgroup.h>

#include <penstock.h>

#if FIO_IOOPS_VERSION < 31
#error "this engine needs fio 3.33 or newer"
#endif

struct engine_opts {
	void *pad; /* fio takes an option at offset 0 for one of its own */
	char *device;
	char *path;
	unsigned int strict;
	unsigned int stable;
	unsigned int deadline; /* ms */
	char *rings;
	int ior_depth;
	unsigned int ior_timeout; /* ms */
};

struct engine_job;

/* How requests go: through a queue of the library, or through rings. */
struct engine_way {
	int (*init)(struct engine_job *job); /* 0 or -errno, with a sentence said */
	void (*done)(struct engine_job *job);
	int (*file_open)(struct engine_job *job, struct fio_file *f);
	void (*file_close)(struct engine_job *job, struct fio_file *f);
	/* Memory has been allocated. */
	int (*memory)(struct engine_job *job);
	enum fio_q_status (*queue)(struct engine_job *job, struct io_u *io_u);
	int (*commit)(struct engine_job *job);
	int (*getevents)(struct engine_job *job, unsigned int min, unsigned int max,
			 const struct timespec *t);
	/* How the one of this place ended: bytes or -errno. */
	int64_t (*result)(struct engine_job *job, unsigned int event, struct io_u **ret);
	void (*memory_free)(struct engine_job *job);
};

extern const struct engine_way engine_requests, engine_rings;

/*
 * The bytes of all requests.  fio fills and checks host memory; on another device the requests
 * use a twin of it, and bytes are copied where fio cares about them.
 */
struct engine_memory {
	struct pst_mem *mem; /* NULL: rings in host memory */
	char *host;          /* td->orig_buffer */
	uint64_t addr;       /* of the device's */
	uint64_t len;
	bool is_device;
	bool copies_in; /* before each write */
	bool verifies;  /* each read is preceded by other bytes, and copied out of a device */
	uint64_t scrub; /* the state of what makes those bytes */
};

#define REPORT_ROWS 64

/* Counts of requests that ended, by their paths and reasons. */
struct engine_report {
	struct report_row {
		uint32_t op, paths, why;
		int32_t detail;
		int failed;
		uint64_t nr;
	} rows[REPORT_ROWS];
	unsigned int nr_rows;
	uint64_t others;
};

struct engine_job {
	struct thread_data *td;
	const struct engine_opts *opts;
	const struct engine_way *way;
	void *state; /* of the way */
	struct engine_memory memory;
	struct engine_report report;
	struct io_u **waiting; /* units that queue() has taken, and that are not started */
	unsigned int nr_waiting;
	char said[512]; /* the last error, so that it is said once */
};

/* Say why, once; returns @r. */
int engine_fail(struct engine_job *job, int r, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* The same of one request, which ends. */
enum fio_q_status engine_refuse(struct engine_job *job, struct io_u *io_u, int r, const char *why);

/* The first @nr that wait have begun. */
void engine_issued(struct engine_job *job, unsigned int nr);

int memory_alloc(struct engine_job *job, uint64_t len);
void memory_free(struct engine_memory *m);
int memory_fill(struct engine_job *job);
int memory_before(struct engine_job *job, const struct io_u *io_u);
int memory_after(struct engine_job *job, const struct io_u *io_u, uint64_t moved);

static inline uint64_t memory_off(const struct engine_memory *m, const struct io_u *io_u)
{
	return (uint64_t)((const char *)io_u->xfer_buf - m->host);
}

void report_add(struct engine_report *r, const struct pst_done *done);
void report_print(const struct engine_job *job);

#endif
