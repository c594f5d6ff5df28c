/* SPDX-License-Identifier: MIT */
#include "tier/bring.h"

#include "base/err.h"
#include "tier/lookup.h"
#include "tier/move.h"
#include "tier/object.h"
#include "tier/place.h"

#define WAIT_NS (10 * NSEC_PER_SEC) /* longer than most moves of other files */
#define PAUSE_MS 20u

int bring_up(struct tier_set *set, const char *name)
{
	struct move_done done = { 0 };
	struct tier_file f;
	int r = catalog_find(set->catalog, name, &f), root, fd;

	if (r == -ENOENT || (r == 0 && !file_is_object(set, &f)))
		return 0;
	if (r < 0)
		return r;
	if (f.stamp.size > BRING_MAX) {
		/* This sets the sentence with the cure, unless the file was replaced just now. */
		fd = lookup_open(set, name, O_PATH, &f);
		if (fd >= 0)
			(void)close(fd);
		return MIN(fd, 0);
	}
	root = place_root(set, f.stamp.size);
	return root < 0 ? root : move_file(set, name, (unsigned)root, &done);
}

int bring_up_locked(const char *set_name, const char *name)
{
	const struct timespec pause = { .tv_nsec = PAUSE_MS * (long)NSEC_PER_MSEC };
	_cleanup_(set_closep) struct tier_set *set = NULL;
	uint64_t until = now_ns() + WAIT_NS;
	struct recover_counts recovered;
	int r = set_open(set_name, &set);

	if (r < 0)
		return r;
	while ((r = set_try_lock(set)) == -EWOULDBLOCK && now_ns() < until)
		(void)nanosleep(&pause, NULL);
	if (r == -EWOULDBLOCK)
		return err_set(
			EBUSY,
			"%s is an object, and another command moves files of the set %s; try "
			"again later",
			name, set_name);
	/* A killed mover may have left a move of this file. */
	if (r == 0)
		r = recover_set(set, &recovered);
	return r < 0 ? r : bring_up(set, name);
}
