/* SPDX-License-Identifier: MIT */
/*
 * An engine for fio; docs/FIO.md describes how to build and use it.
 *
 * tools/fio-engine compiles the engine with the headers of one version of fio.  The engine includes
 * only Penstock's public headers.
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
	void *pad; /* fio treats an option at offset 0 as its own */
	char *device;
	char *path;
	unsigned int strict;
	unsigned int stable;
	unsigned int deadline; /* milliseconds per request */
	char *rings;
	int ior_depth;
	unsigned int ior_timeout; /* milliseconds */
};

struct engine_job;

/* A way to run requests: through a queue of the library, or through usrbio rings. */
struct engine_way {
	int (*init)(struct engine_job *job); /* return 0, or -errno after printing a message */
	void (*done)(struct engine_job *job);
	int (*file_open)(struct engine_job *job, struct fio_file *f);
	void (*file_close)(struct engine_job *job, struct fio_file *f);
	/* Called after the memory was allocated. */
	int (*memory)(struct engine_job *job);
	enum fio_q_status (*queue)(struct engine_job *job, struct io_u *io_u);
	int (*commit)(struct engine_job *job);
	int (*getevents)(struct engine_job *job, unsigned int min, unsigned int max,
			 const struct timespec *t);
	/* Return the result of the event-th completion: bytes or -errno. */
	int64_t (*result)(struct engine_job *job, unsigned int event, struct io_u **ret);
	void (*memory_free)(struct engine_job *job);
};

extern const struct engine_way engine_requests, engine_rings;

/*
 * Memory of all requests. fio fills and checks host memory.  If the job's device is not the host,
 * requests use a second buffer on the device, and bytes are copied when fio needs them.
 */
struct engine_memory {
	struct pst_mem *mem; /* NULL: host memory of the rings */
	char *host;          /* host memory: td->orig_buffer */
	uint64_t addr;       /* address of the device memory */
	uint64_t len;
	bool is_device;
	bool copies_in; /* copy the bytes to the device before each write */
	bool verifies;  /* overwrite before each read; copy from the device afterwards */
	uint64_t scrub; /* state of the random generator that overwrites buffers */
};

#define REPORT_ROWS 64

/* Counts of completed requests by path and reason. */
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
	void *state; /* private state of the engine_way */
	struct engine_memory memory;
	struct engine_report report;
	struct io_u **waiting; /* units queued but not started */
	unsigned int nr_waiting;
	char said[512]; /* the last error, which is printed only once */
};

/* Print a message, unless the previous one was the same; return @r. */
int engine_fail(struct engine_job *job, int r, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Print a message for one request, and end the request with error @r. */
enum fio_q_status engine_refuse(struct engine_job *job, struct io_u *io_u, int r, const char *why);

/* Record that the first @nr waiting units have started. */
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
