/* SPDX-License-Identifier: MIT */
#include "rados/seen.h"

#include <errno.h>
#include <stdlib.h>

int seen_init(struct seen *s, uint64_t objects)
{
	s->nr = objects / SEEN_CHUNK + 1;
	s->chunks = calloc(s->nr, sizeof(*s->chunks));
	return s->chunks ? 0 : -ENOMEM;
}

void seen_done(struct seen *s)
{
	for (uint64_t i = 0; s->chunks && i < s->nr; i++)
		free((void *)atomic_load(&s->chunks[i]));
	free((void *)s->chunks);
	s->chunks = NULL;
}

static _Atomic uint64_t *seen_chunk(struct seen *s, uint64_t nr)
{
	_Atomic uint64_t *is = atomic_load(&s->chunks[nr]), *new;

	if (is)
		return is;
	new = calloc(SEEN_CHUNK, sizeof(*new));
	if (!new || atomic_compare_exchange_strong(&s->chunks[nr], &is, new))
		return new;
	free((void *)new); /* another thread was faster */
	return is;
}

int seen_check(struct seen *s, uint64_t object, uint64_t version)
{
	/* 0: not seen yet */
	uint64_t mark = version == SEEN_HOLE ? SEEN_HOLE : version + 1, was = 0;
	_Atomic uint64_t *chunk;

	if (object / SEEN_CHUNK >= s->nr)
		return -ESTALE; /* the object is beyond the file's size at the open */
	chunk = seen_chunk(s, object / SEEN_CHUNK);
	if (!chunk)
		return -ENOMEM;
	if (atomic_compare_exchange_strong(&chunk[object % SEEN_CHUNK], &was, mark))
		return 0;
	return was == mark ? 0 : -ESTALE;
}
