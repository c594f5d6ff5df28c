/* SPDX-License-Identifier: MIT */
/*
 * Trials: after a proof found a difference, the range is moved and compared again.
 *
 * Somebody else may be writing to the file, or to the memory of the request.  So a trial moves
 * the same range by O_DIRECT, between the file and a buffer of ours, and reads it plainly.  Only
 * bytes that differ in every trial, in a file that is not seen to change, speak against O_DIRECT.
 */
#ifndef PST_TRIAL_H
#define PST_TRIAL_H

#include "core/queue/req.h"

#define TRIALS 3u

enum trial_end {
	TRIAL_ON,   /* one more operation is to be done */
	TRIAL_OPEN, /* the bytes are the same now, or nobody can tell */
	TRIAL_LIE,
};

/*
 * Of off..off+len of the request's file; data are the bytes that O_DIRECT moved, seen those of a
 * plain read, which stay until the end.  Does data stay, too?  If not, it may be unmapped
 * meanwhile.  NULL: nobody can tell.
 */
struct trial *trial_new(const struct req *r, uint64_t off, uint64_t len, const void *data,
			bool stays, const void *seen);
/* The next operation. */
void trial_op(const struct trial *t, struct io_op *op);
/* It came back with that. */
enum trial_end trial_step(struct trial *t, int64_t res);
void trial_free(struct trial *t);

#endif
