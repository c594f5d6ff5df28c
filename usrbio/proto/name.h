/* SPDX-License-Identifier: MIT */
/*
 * Names in 3fs-virt/iovs have the kind of a published object and its attributes.
 *
 * name := uuid attr*
 * attr := ".b" DEC			block size; shared memory for data
 *       | ".r" INT | ".w" INT		ring that reads or writes; INT is its io_depth
 *       | ".p" ("h"|"l"|"n"|"")		ring: priority
 *       | ".t" DEC			ring: timeout in milliseconds
 *       | ".f" BIN			ring: flags, in base 2
 *       | ".gdr" ".d" DEC			device memory and its number; no other attribute
 *
 * Names are written in the order b, r or w, p, t, f, and parsed in any order, each attribute at
 * most once.  Attributes p, t and f of a ring are optional.
 */
#ifndef PST_USRBIO_NAME_H
#define PST_USRBIO_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "usrbio/proto/id.h"

/*
 * Bytes of the longest name, with its terminating 0.  A ring with all attributes has
 * 36 + 13 (.r-2147483647) + 3 (.ph) + 12 (.t2147483647) + 66 (.f and 64 bits).
 */
#define USRBIO_NAME_MAX 144

/* Names of the submit semaphores, indexed by enum usrbio_priority. */
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
	uint64_t block_size;           /* buffer: bytes that no request may cross; 0: no limit */
	bool for_read;                 /* ring: .r if true, else .w */
	int32_t io_depth;              /* ring: above INT32_MIN, so that it can be negated */
	enum usrbio_priority priority; /* ring */
	int32_t timeout_ms;            /* ring: 0 or more */
	uint64_t flags;                /* ring */
	int32_t device;                /* device memory: its number, 0 or more */
};

/*
 * Parse exactly this grammar: no sign except io_depth's "-", no space, no number out of range, no
 * block size of 0, no duplicate attribute, no attribute of another kind.  Return 0 or -EINVAL.
 */
int usrbio_name_parse(const char *text, struct usrbio_name *ret);

/* Write a name as clients do: a ring always has .t, has .p unless it is normal, and has .f
 * unless it is 0. */
void usrbio_name_format(const struct usrbio_name *name, char ret_text[USRBIO_NAME_MAX]);

#endif
