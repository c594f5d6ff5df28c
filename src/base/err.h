/* SPDX-License-Identifier: MIT */
#ifndef PST_ERR_H
#define PST_ERR_H

#include "base/base.h"

/*
 * Set the calling thread's sentence for pst_error_text().  The sentence names the cause, and the
 * cure if there is one.  The sentence has no newline, and no full stop at its end.
 * @err: errno, positive or negative
 *
 * Return: -|err|, so that a failure is one line: return err_set(ENODEV, "...").
 */
int err_set(int err, const char *fmt, ...) _printf_(2, 3);

/* Return the calling thread's sentence, "" before the first one. */
const char *err_text(void);

#define ERR_TEXT_MAX 512

struct err_kept {
	char text[ERR_TEXT_MAX];
};

/* Save and restore the thread's sentence around a call whose failure is ignored. */
void err_keep(struct err_kept *ret);
void err_put_back(const struct err_kept *kept);

/* Return text such as "ENOENT (No such file or directory)" in a buffer of the thread; err as in
 * err_set(). */
const char *err_name(int err);

#endif
