/* SPDX-License-Identifier: MIT */
/*
 * Trials: move and compare a range again after a proof found a difference.
 *
 * Another process may be writing to the file, or to the memory of the request.  So a trial moves
 * the same range by O_DIRECT between the file and a private buffer, and reads it plainly.  O_DIRECT
 * is blamed only if the bytes differ in every trial, and the file does not seem to change.
 */
#ifndef PST_TRIAL_H
#define PST_TRIAL_H

#include "core/queue/req.h"

#define TRIALS 3u

enum trial_end {
	TRIAL_ON,   /* another operation must run */
	TRIAL_OPEN, /* the bytes are equal now, or a verdict is impossible */
	TRIAL_LIE,
};

/*
 * Create a trial of off..off+len of the request's file.  @data has the bytes that O_DIRECT moved,
 * and @seen those of a plain read; both stay valid until the trial ends.  @stays is false if @data
 * may be unmapped during the trial.  Return NULL if a verdict is impossible.
 */
struct trial *trial_new(const struct req *r, uint64_t off, uint64_t len, const void *data,
			bool stays, const void *seen);
/* Fill in the next operation. */
void trial_op(const struct trial *t, struct io_op *op);
/* Handle the result of the operation. */
enum trial_end trial_step(struct trial *t, int64_t res);
void trial_free(struct trial *t);

#endif
