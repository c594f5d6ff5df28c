/* SPDX-License-Identifier: MIT */
/*
 * Check that a window shows the device's bytes.
 *
 * Before each copy, the device itself overwrites the buffer, without the window.  After the copy,
 * the device reads the whole buffer back, so that both wrong bytes in the target and changed bytes
 * next to it are found.  Loads go into the middle of a host buffer, which is compared as a whole,
 * too.
 */
#include "tools/common/pattern.h"
#include "cli/window/window.h"

#define FILL 0xa5
#define ROOM 8192u /* bytes of host buffers beyond the window's size, for offsets */
#define NEAR 64u   /* bytes on either side of a random copy that are also checked */

static const unsigned extra[] = { 1, 2, 3, 4, 5, 6, 7, 11, 129, 1023 };

static const struct {
	const char *text;
	bool pointer;      /* store through the pointer, not by pst_window_store() */
	bool device, load; /* how to read back: by the device, by loads, or both */
	bool on_map, on_host;
	unsigned unit; /* bytes; extra offsets are multiples of this */
} checks[WIN_CHECKS] = {
	{ "stored through the pointer, read back by the device's copy", true, true, false, false,
	  false, 0 },
	{ "pst_window_store(), read back by the device's copy", false, true, false, false, false,
	  0 },
	{ "pst_window_store(), pst_window_load()", false, false, true, false, false, 0 },
	{ "the same and the device's copy, at +1..1023 dwords of the window", false, true, true,
	  true, false, 4 },
	{ "the same at +1..1023 bytes of the window", false, true, true, true, false, 1 },
	{ "the same at +1..1023 dwords of the host buffer", false, true, true, false, true, 4 },
	{ "the same at +1..1023 bytes of the host buffer", false, true, true, false, true, 1 },
	{ "the same at +1..1023 dwords of both", false, true, true, true, true, 4 },
	{ "the same at +1..1023 bytes of both", false, true, true, true, true, 1 },
};

const char *win_check_text(unsigned nr)
{
	return checks[nr - 1].text;
}

void win_walking_bit(void *buf, uint64_t len)
{
	uint32_t *w = buf;

	for (uint64_t i = 0; i < len / 4; i++)
		w[i] = UINT32_C(0x3f4c5e6a) ^ UINT32_C(1) << i % 32;
}

int win_checker_init(struct win_checker *k, struct win *win)
{
	uint64_t room = win->len + ROOM;

	*k = (struct win_checker){ .win = win, .size = win->len };
	k->src = malloc(room);
	k->dst = malloc(room);
	k->want = malloc(room);
	k->seen = malloc(room);
	if (!k->src || !k->dst || !k->want || !k->seen) {
		win_checker_done(k);
		return fail(ENOMEM, "out of memory");
	}
	return 0;
}

void win_checker_done(struct win_checker *k)
{
	free(k->src);
	free(k->dst);
	free(k->want);
	free(k->seen);
	*k = (struct win_checker){ 0 };
}

static int pst_failed(const struct win_checker *k, int r)
{
	return fail_pst(r, k->win->dev.name);
}

/* Compare; record only the first difference. */
static void check_compare(struct win_checker *k, const char *is, const char *should, uint64_t from,
			  uint64_t len, const char *where, struct win_diff *d)
{
	k->bytes += len;
	if (memcmp(is, should, len) == 0)
		return;
	for (uint64_t i = 0; i < len; i++) {
		if (is[i] == should[i])
			continue;
		if (!d->nr++) {
			d->at = from + i;
			d->is = (uint8_t)is[i];
			d->should = (uint8_t)should[i];
			(void)snprintf(d->where, sizeof(d->where), "%s", where);
		}
	}
}

/* Store through the pointer, like a program's own instructions. */
static void store_by_pointer(struct win_checker *k)
{
	volatile uint32_t *to = (volatile uint32_t *)(void *)k->win->ptr;
	const uint32_t *from = (const uint32_t *)(void *)k->src;

	for (uint64_t i = 0; i < k->size / 4; i++)
		to[i] = from[i];
	pst_window_fence();
}

/* Copy len bytes from the host buffer to the window and back. */
static int check_one_copy(struct win_checker *k, unsigned nr, uint64_t on_map, uint64_t on_host,
			  struct win_diff *d)
{
	uint64_t len = k->size - MAX(on_map, on_host);
	char where[96];
	int r;

	memset(k->want, FILL, k->size);
	r = pst_mem_copy_in(k->win->mem, k->win->off, k->want, k->size);
	if (r < 0)
		return pst_failed(k, r);
	k->copies++;
	if (checks[nr - 1].pointer)
		store_by_pointer(k);
	else
		r = pst_window_store(k->win->w, on_map, k->src + on_host, len);
	if (r < 0)
		return pst_failed(k, r);
	if (checks[nr - 1].device) {
		memcpy(k->want + on_map, k->src + on_host, len);
		r = pst_mem_copy_out(k->win->mem, k->win->off, k->seen, k->size);
		if (r < 0)
			return pst_failed(k, r);
		(void)snprintf(where, sizeof(where), "+%llu of the window, read back by the device",
			       (unsigned long long)on_map);
		check_compare(k, k->seen, k->want, 0, k->size, where, d);
	}
	if (!checks[nr - 1].load)
		return 0;
	memset(k->dst, FILL, k->size);
	memset(k->want, FILL, k->size);
	memcpy(k->want + on_host, k->src + on_host, len);
	r = pst_window_load(k->win->w, on_map, k->dst + on_host, len);
	if (r < 0)
		return pst_failed(k, r);
	(void)snprintf(where, sizeof(where), "+%llu of the host buffer, loaded",
		       (unsigned long long)on_host);
	check_compare(k, k->dst, k->want, 0, k->size, where, d);
	return 0;
}

int win_check(struct win_checker *k, unsigned nr, struct win_diff *ret)
{
	unsigned unit = checks[nr - 1].unit;
	int r = 0;

	*ret = (struct win_diff){ 0 };
	win_walking_bit(k->src, k->size);
	if (!unit)
		return check_one_copy(k, nr, 0, 0, ret);
	for (size_t i = 0; i < ARRAY_SIZE(extra) && r == 0; i++) {
		uint64_t off = (uint64_t)extra[i] * unit;

		if (stop_signal)
			return fail(EINTR, "interrupted");
		r = check_one_copy(k, nr, checks[nr - 1].on_map ? off : 0,
				   checks[nr - 1].on_host ? off : 0, ret);
	}
	return r;
}

/* Return a random length: mostly short, sometimes long. */
static uint64_t random_len(uint64_t *state, uint64_t size)
{
	uint64_t most = random_next(state) % 4 == 0 ? size / 4 : random_next(state) % 2 ? 64 : 4096;

	return 1 + random_next(state) % MIN(most, size);
}

/* Make a random copy.  k->want holds the bytes that the device must have, and is updated. */
static int random_copy(struct win_checker *k, uint64_t *state, struct win_diff *d)
{
	uint64_t len = random_len(state, k->size), off = random_next(state) % (k->size - len + 1);
	uint64_t from = random_next(state) % 128, to = NEAR + random_next(state) % 128;
	uint64_t first = off - MIN(off, NEAR), last = MIN(off + len + NEAR, k->size);
	char where[96];
	int r;

	pattern_fill(k->src + from, random_next(state), 0, len);
	memcpy(k->want + off, k->src + from, len);
	k->copies++;
	r = pst_window_store(k->win->w, off, k->src + from, len);
	if (r == 0)
		r = pst_mem_copy_out(k->win->mem, k->win->off + first, k->seen, last - first);
	if (r < 0)
		return pst_failed(k, r);
	(void)snprintf(where, sizeof(where), "%llu bytes at +%llu, read back by the device",
		       (unsigned long long)len, (unsigned long long)off);
	check_compare(k, k->seen, k->want + first, first, last - first, where, d);

	memset(k->dst + to - NEAR, FILL, len + 2 * (uint64_t)NEAR);
	memset(k->seen, FILL, len + 2 * (uint64_t)NEAR);
	memcpy(k->seen + NEAR, k->src + from, len);
	r = pst_window_load(k->win->w, off, k->dst + to, len);
	if (r < 0)
		return pst_failed(k, r);
	(void)snprintf(where, sizeof(where), "%llu bytes at +%llu, loaded between %u and %u others",
		       (unsigned long long)len, (unsigned long long)off, NEAR, NEAR);
	check_compare(k, k->dst + to - NEAR, k->seen, 0, len + 2 * (uint64_t)NEAR, where, d);
	return 0;
}

int win_check_random(struct win_checker *k, uint64_t nr, uint64_t seed, struct win_diff *ret)
{
	uint64_t state = seed;
	int r;

	*ret = (struct win_diff){ 0 };
	pattern_fill(k->want, seed, 0, k->size);
	r = pst_mem_copy_in(k->win->mem, k->win->off, k->want, k->size);
	if (r < 0)
		return pst_failed(k, r);
	for (uint64_t i = 0; i < nr; i++) {
		if (stop_signal)
			return fail(EINTR, "interrupted");
		r = random_copy(k, &state, ret);
		if (r < 0)
			return r;
	}
	r = pst_mem_copy_out(k->win->mem, k->win->off, k->seen, k->size);
	if (r < 0)
		return pst_failed(k, r);
	check_compare(k, k->seen, k->want, 0, k->size, "all of the buffer at the end", ret);
	return 0;
}
