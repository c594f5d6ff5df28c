/* SPDX-License-Identifier: MIT */
/*
 * Names in 3fs-virt/iovs tell the kind of a published thing, and its attributes.
 *
 *	name := uuid attr*
 *	attr := ".b" DEC		block size; shared memory for data
 *	      | ".r" INT | ".w" INT	ring that reads or writes; INT is its io_depth
 *	      | ".p" ("h"|"l"|"n"|"")	ring: priority
 *	      | ".t" DEC		ring: timeout in milliseconds
 *	      | ".f" BIN		ring: flags, in base 2
 *	      | ".gdr" ".d" DEC		device memory and its number; no other attribute
 *
 * Written in the order b, r or w, p, t, f; read in any order, each at most once.  A ring may
 * lack p, t and f.
 */
#ifndef PST_USRBIO_NAME_H
#define PST_USRBIO_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "usrbio/proto/id.h"

/*
 * Bytes that every name fits into, with its terminating 0.  The longest is that of a ring with all
 * attributes: 36 + 13 (.r-2147483647) + 3 (.ph) + 12 (.t2147483647) + 66 (.f and 64 bits).
 */
#define USRBIO_NAME_MAX 144

/* The submit semaphores' names, by enum usrbio_priority. */
#define USRBIO_SEM_NAMES                                       \
	{                                                      \
		"submit-ios.ph", "submit-ios", "submit-ios.pl" \
	}

enum usrbio_kind {
	USRBIO_BUFFER = 1, /* shared memory for data */
	USRBIO_RING = 2,
	USRBIO_DEVICE = 3, /* device memory */
};

enum usrbio_priority { USRBIO_HIGH, USRBIO_NORMAL, USRBIO_LOW, USRBIO_PRIORITIES };

struct usrbio_name {
	enum usrbio_kind kind;
	uint8_t id[USRBIO_ID_LEN];
	uint64_t block_size;           /* for a buffer: its block size; 0 for none */
	bool for_read;                 /* for a ring: .r if true, else .w */
	int32_t io_depth;              /* for a ring: above INT32_MIN, so that it can be negated */
	enum usrbio_priority priority; /* ring */
	int32_t timeout_ms;            /* for a ring: 0 or more */
	uint64_t flags;                /* ring */
	int32_t device;                /* for device memory: 0 or more */
};

/*
 * Parse exactly the grammar above: no sign but io_depth's "-", no space, no number that does not
 * fit, no block size of 0, no attribute twice or of another kind.  Return 0 or -EINVAL.
 */
int usrbio_name_parse(const char *text, struct usrbio_name *ret);

/* Write a name as clients do: a ring always has .t, but .p only if it is not normal, and .f only if
 * not 0. */
void usrbio_name_format(const struct usrbio_name *name, char ret_text[USRBIO_NAME_MAX]);

#endif
