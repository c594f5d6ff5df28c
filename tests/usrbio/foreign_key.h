/* SPDX-License-Identifier: MIT */
/*
 * Names of links in 3fs-virt/iovs:
 *
 * UUID[.bBLOCK]					a buffer
 * UUID.(r|w)DEPTH[.pPRIO][.tMS][.fBITS]		a ring; BITS in base 2
 */
#ifndef PST_TESTS_FOREIGN_KEY_H
#define PST_TESTS_FOREIGN_KEY_H

#include <stdbool.h>
#include <stdint.h>

#define KEY_UUID_LEN 36

enum prio { PRIO_HIGH, PRIO_NORMAL, PRIO_LOW, NR_PRIOS };

struct key {
	uint8_t id[16];
	uint64_t block_size; /* bytes; 0: one block */
	bool is_ring, for_read;
	int depth;
	enum prio prio;
	int timeout_ms;
	uint64_t flags;
};

/* Parse a name.  Return 0 or -EINVAL. */
int key_parse(const char *name, struct key *ret_key);

void key_new_uuid(uint8_t id[16]);
void key_uuid_text(const uint8_t id[16], char text[KEY_UUID_LEN + 1]);

#endif
