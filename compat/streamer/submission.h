/* SPDX-License-Identifier: MIT */
/*
 * Requests of a program: ranges, which files they are of, and where they go.
 *
 * A job is the ranges of one file.  Readers take pieces of it: what is contiguous in file and
 * memory, also across ranges, and ends at a multiple of PIECE in the file.
 */
#ifndef STREAMER_SUBMISSION_H
#define STREAMER_SUBMISSION_H

#include <stdatomic.h>

#include <penstock.h>

#include "base/base.h"

#include "code.h"
#include "files.h"

#define RANGES_MAX (1u << 24) /* of a streamer, under way or not answered */
#define FILES_MAX (1u << 20)  /* of a request */
#define PIECE MIB(4)

struct streamer;

/* Memory that ranges go to: an allocation of a device, or what the ranges of a job span. */
struct target {
	struct target *next;
	struct pst_mem *mem;
	uint64_t addr, len;
};

struct range {
	uint64_t off, size, dst;
	uint64_t left;      /* bytes that are not settled */
	struct range *next; /* responses that wait */
	struct job *job;
	struct target *target;
	int code;
};

enum job_state { JOB_NEW, JOB_OPENING, JOB_OPEN };

struct job {
	struct job *next; /* of the streamer's work, or of what is still busy at the end */
	struct submission *sub;
	char *path;
	struct range *ranges;
	uint64_t nr;
	enum job_state state;
	struct open_file *file;
	struct target *targets;
	/* The next piece begins there. */
	uint64_t at_range, at_byte;
	uint32_t in_flight; /* pieces */
	bool done;          /* nothing is left to take */
	bool busy;          /* its memory may still be written to */
	atomic_bool told;   /* the log has a line about it */
};

struct submission {
	uint64_t id;
	struct runai_device device;
	struct range *ranges;
	uint64_t nr;
	uint64_t unanswered; /* responses not taken */
	uint32_t nr_jobs;
	uint32_t jobs_left; /* that are not over */
	struct job *jobs;
};

/* A read: the first range it has bytes of, and where in that it begins. */
struct piece {
	struct job *job;
	uint64_t range, byte;
	uint64_t off, len;
	struct target *target;
	uint64_t mem_off;
};

/* The arguments of a request, as runai_file_streamer_request() has them. */
struct request {
	uint32_t nr_files;
	const char *const *paths;
	const uint32_t *nr_ranges;
	const size_t *offs;
	const size_t *sizes;
	void *const *dsts;
	struct runai_device device;
};

/* A copy, checked; a code. */
int submission_new(const struct request *req, struct submission **ret);
void submission_free(struct submission *sub);

/* Make a job's ranges fit to be read: opens the file and wraps the memory.  Ranges that cannot be
 * have a code then.  It may wait. */
void job_open(struct job *job, struct files *files);
/* Give back what that took; a target whose memory may be busy is waited for. */
void job_close(struct job *job, struct files *files);

/* Bytes of a job that no piece has yet; settled by the caller where the range has failed.  False
 * at its end. */
bool job_piece(struct job *job, struct piece *ret);

#endif
