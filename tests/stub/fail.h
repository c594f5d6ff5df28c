/* SPDX-License-Identifier: MIT */
/* Make the n-th call of a function of a stub fail. */
#ifndef PST_STUB_FAIL_H
#define PST_STUB_FAIL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct stub_fail {
	char name[64]; /* "": no function; "*": every function */
	uint64_t n, seen;
	int code;
	bool met;
};

/* Make calls fail: "NAME:N:CODE" makes the N-th call of NAME from now on return CODE, or every
 * call if N is 0.  NAME "*" stands for every function.  NULL ends the failures.  Return true if
 * a call failed by the previous setting. */
static inline bool stub_fail_set(struct stub_fail *f, const char *spec)
{
	unsigned long long n = 0;
	bool met = f->met;

	memset(f, 0, sizeof(*f));
	if (spec && sscanf(spec, "%63[^:]:%llu:%d", f->name, &n, &f->code) != 3)
		f->name[0] = '\0';
	f->n = n;
	return met;
}

/* Return the code that this call has to fail with, or 0. */
static inline int stub_fail_hit(struct stub_fail *f, const char *name)
{
	if (!f->name[0] || (strcmp(f->name, "*") != 0 && strcmp(f->name, name) != 0))
		return 0;
	f->seen++;
	if (f->n && f->seen != f->n)
		return 0;
	f->met = true;
	return f->code;
}

#endif
