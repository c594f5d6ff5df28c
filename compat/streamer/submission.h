/* SPDX-License-Identifier: MIT */
/*
 * Requests of a program: ranges of files and their destinations.
 *
 * A job has the ranges of one file.  Readers take pieces of a job.  A piece is contiguous in file
 * and memory, may cover several ranges, and ends at the next multiple of PIECE in the file.
 */
#ifndef STREAMER_SUBMISSION_H
#define STREAMER_SUBMISSION_H

#include <stdatomic.h>

#include <penstock.h>

#include "base/base.h"

#include "code.h"
#include "files.h"

#define RANGES_MAX (1u << 24) /* maximum unanswered ranges of a streamer */
#define FILES_MAX (1u << 20)  /* maximum files of a request */
#define PIECE MIB(4)

struct streamer;

/* Destination memory: an allocation of a device, or the span of a job's host ranges. */
struct target {
	struct target *next;
	struct pst_mem *mem;
	uint64_t addr, len;
};

struct range {
	uint64_t off, size, dst;
	uint64_t left;      /* bytes not settled yet */
	struct range *next; /* next in the list of waiting responses */
	struct job *job;
	struct target *target;
	int code;
};

enum job_state { JOB_NEW, JOB_OPENING, JOB_OPEN };

struct job {
	struct job *next; /* next in the streamer's jobs, or in its busy jobs at the end */
	struct submission *sub;
	char *path;
	struct range *ranges;
	uint64_t nr;
	enum job_state state;
	struct open_file *file;
	struct target *targets;
	/* Start of the next piece. */
	uint64_t at_range, at_byte;
	uint32_t in_flight; /* pieces in flight */
	bool done;          /* all pieces were taken */
	bool busy;          /* the kernel may still write to the job's memory */
	atomic_bool told;   /* an error of this job was logged */
};

struct submission {
	uint64_t id;
	struct runai_device device;
	struct range *ranges;
	uint64_t nr;
	uint64_t unanswered; /* ranges without a taken response */
	uint32_t nr_jobs;
	uint32_t jobs_left; /* jobs that have not ended */
	struct job *jobs;
};

/* A read.  range and byte: the first range in the piece, and the offset of the piece in it. */
struct piece {
	struct job *job;
	uint64_t range, byte;
	uint64_t off, len;
	struct target *target;
	uint64_t mem_off;
};

/* Arguments of runai_file_streamer_request(). */
struct request {
	uint32_t nr_files;
	const char *const *paths;
	const uint32_t *nr_ranges;
	const size_t *offs;
	const size_t *sizes;
	void *const *dsts;
	struct runai_device device;
};

/* Copy and check a request.  Return a code. */
int submission_new(const struct request *req, struct submission **ret);
void submission_free(struct submission *sub);

/* Open a job's file and wrap its memory.  Ranges for which that fails get a code.  May block. */
void job_open(struct job *job, struct files *files);
/* Release file and memory, after waiting for memory that may be busy. */
void job_close(struct job *job, struct files *files);

/* Get the next bytes of a job that are in no piece yet.  The caller settles them if their range has
 * failed.  Return false at the end of the job. */
bool job_piece(struct job *job, struct piece *ret);

#endif
