/* SPDX-License-Identifier: MIT */
#include "usrbio/server/stage.h"

#include "usrbio/server/import.h"

#define SLOTS 64u

struct stage {
	struct pst_mem *mem;
	char *ptr;
	uint64_t taken; /* one bit per slot */
	bool ends;      /* the owner has freed it; the last slot frees the memory */
};

static void stage_destroy(struct stage *s)
{
	/* If a request in flight may still touch the memory, libpenstock frees it when that has
	 * ended. */
	(void)pst_mem_free(s->mem);
	free(s);
}

static int stage_new(struct stage **ret)
{
	struct stage *s = calloc(1, sizeof(*s));
	int err = s ? pst_mem_alloc("host", SLOTS * IMPORT_PIECE, NULL, &s->mem) : -ENOMEM;

	if (err < 0) {
		free(s);
		return -ENOMEM;
	}
	s->ptr = pst_mem_ptr(s->mem);
	*ret = s;
	return 0;
}

int stage_take(struct stage **stage, struct slot *ret)
{
	struct stage *s;
	int err = *stage ? 0 : stage_new(stage);

	if (err < 0)
		return err;
	s = *stage;
	if (!~s->taken)
		return -EAGAIN;
	/* Use the lowest slot, which is most likely in the CPU's cache. */
	*ret = (struct slot){ s, (unsigned)__builtin_ctzll(~s->taken) };
	s->taken |= UINT64_C(1) << ret->idx;
	return 0;
}

void stage_put(struct stage **stage, struct slot *slot, bool busy)
{
	struct stage *s = TAKE_PTR(slot->stage);

	s->taken &= ~(UINT64_C(1) << slot->idx);
	if (busy && *stage == s) {
		s->ends = true;
		*stage = NULL;
	}
	if (s->ends && !s->taken)
		stage_destroy(s);
}

struct pst_mem *slot_mem(const struct slot *slot)
{
	return slot->stage->mem;
}

uint64_t slot_off(const struct slot *slot)
{
	return slot->idx * IMPORT_PIECE;
}

char *slot_ptr(const struct slot *slot)
{
	return slot->stage->ptr + slot_off(slot);
}

struct stage *stage_free(struct stage *stage)
{
	if (!stage)
		return NULL;
	stage->ends = true;
	if (!stage->taken)
		stage_destroy(stage);
	return NULL;
}
