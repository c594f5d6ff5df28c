/* SPDX-License-Identifier: MIT */
/* Helpers for all commands. */
#ifndef CLI_UTIL_H
#define CLI_UTIL_H

#include <stdio.h>
#include <string.h>

#include <penstock.h>

#include "base/base.h"
#include "tools/common/device.h"
#include "tools/common/fail.h"
#include "tools/common/files.h"
#include "tools/common/machine.h"
#include "tools/common/names.h"
#include "tools/common/numbers.h"

static inline void pst_memp(struct pst_mem **mem)
{
	(void)pst_mem_free(*mem);
}

static inline void pst_filep(struct pst_file **file)
{
	(void)pst_file_close(*file);
}

static inline void pst_queuep(struct pst_queue **queue)
{
	(void)pst_queue_free(*queue);
}

/* xorshift64*; *state must not be 0. */
static inline uint64_t random_next(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * UINT64_C(0x2545f4914f6cdd1d);
}

#endif
