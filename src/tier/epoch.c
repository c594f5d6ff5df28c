/* SPDX-License-Identifier: MIT */
#include "tier/epoch.h"

#include "tier/shared.h"

struct epochs {
	_Atomic uint64_t of[EPOCHS];
};

int epochs_open(const char *state, struct epochs **ret)
{
	return shared_map(state, "epochs", sizeof(struct epochs), (void **)ret);
}

struct epochs *epochs_close(struct epochs *e)
{
	shared_unmap(e, sizeof(*e));
	return NULL;
}

_Atomic uint64_t *epochs_of(struct epochs *e, const char *name)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a hash */

	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
	return &e->of[hash % EPOCHS];
}
