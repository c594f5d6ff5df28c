/* SPDX-License-Identifier: MIT */
#include "usrbio/proto/ring.h"

#include <errno.h>

size_t usrbio_ring_size(int entries)
{
	if (entries < 1 || entries > USRBIO_RING_ENTRIES_MAX)
		return 0;
	return USRBIO_RING_FIXED + (size_t)USRBIO_RING_PER_SLOT * ((size_t)entries + 1);
}

int usrbio_ring_entries(size_t size)
{
	size_t slots;

	if (size < usrbio_ring_size(1) ||
	    size >= usrbio_ring_size(USRBIO_RING_ENTRIES_MAX) + USRBIO_RING_PER_SLOT)
		return 0;
	slots = (size - USRBIO_RING_FIXED) / USRBIO_RING_PER_SLOT;
	return (int)slots - 1;
}

int usrbio_ring_at(void *base, size_t size, struct usrbio_ring *ret)
{
	int entries = usrbio_ring_entries(size);
	char *p = base;
	size_t n;

	if (!entries || (uintptr_t)base % 8)
		return -EINVAL;
	n = (size_t)entries + 1;
	*ret = (struct usrbio_ring){
		.sq_head = (void *)p,
		.sq_tail = (void *)(p + 4),
		.cq_head = (void *)(p + 8),
		.cq_tail = (void *)(p + 12),
		.args = (void *)(p + 16),
		.cqes = (void *)(p + 16 + sizeof(struct usrbio_args) * n),
		.sqes = (void *)(p + 16 +
				 (sizeof(struct usrbio_args) + sizeof(struct usrbio_cqe)) * n),
		.sem = (void *)(p + 16 + (size_t)USRBIO_RING_PER_SLOT * n),
		.slots = (uint32_t)n,
	};
	return 0;
}
