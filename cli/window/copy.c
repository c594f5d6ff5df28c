/* SPDX-License-Identifier: MIT */
/* Timed copies, and test bytes that prove that they took place. */
#include "tools/common/pattern.h"
#include "cli/window/window.h"

static int copy_failed(int r, const struct win_copy *c)
{
	return fail_pst(r, c->win->dev.name);
}

static int window_stores(const struct win_copy *c, uint32_t ops)
{
	for (uint32_t i = 0; i < ops; i++) {
		int r = pst_window_store(c->win->w, c->off, c->host, c->len);

		if (r < 0)
			return copy_failed(r, c);
	}
	return 0;
}

static int window_loads(const struct win_copy *c, uint32_t ops)
{
	for (uint32_t i = 0; i < ops; i++) {
		int r = pst_window_load(c->win->w, c->off, c->host, c->len);

		if (r < 0)
			return copy_failed(r, c);
	}
	return 0;
}

int win_copies(void *copy, uint32_t ops)
{
	const struct win_copy *c = copy;
	int r = 0;

	if (!c->mem)
		return c->load ? window_loads(c, ops) : window_stores(c, ops);
	for (uint32_t i = 0; i < ops && r == 0; i++)
		r = c->load ? pst_mem_copy_out(c->mem, 0, c->host, c->len)
			    : pst_mem_copy_in(c->mem, 0, c->host, c->len);
	return r < 0 ? copy_failed(r, c) : 0;
}

/* The device itself copies the test bytes, without the window. */
int win_copy_begin(struct win_copy *c, uint64_t seed)
{
	_cleanup_(freep) char *other = malloc(c->len);
	int r;

	if (!other)
		return fail(ENOMEM, "out of memory");
	pattern_fill(c->host, c->load ? ~seed : seed, 0, c->len);
	pattern_fill(other, c->load ? seed : ~seed, 0, c->len);
	r = pst_mem_copy_in(c->win->mem, c->win->off + c->off, other, c->len);
	return r < 0 ? copy_failed(r, c) : 0;
}

int win_copy_check(const struct win_copy *c, uint64_t seed)
{
	_cleanup_(freep) char *seen = malloc(c->len);
	uint64_t at;
	int r;

	if (!seen)
		return fail(ENOMEM, "out of memory");
	r = pst_mem_copy_out(c->win->mem, c->win->off + c->off, seen, c->len);
	if (r < 0)
		return copy_failed(r, c);
	at = pattern_differs(c->load ? c->host : seen, seed, 0, c->len);
	if (at < c->len)
		return fail(EIO, "a %s of %s gave wrong data: byte %llu differs",
			    c->load ? "load" : "store", size_text(c->len).s,
			    (unsigned long long)at);
	return 0;
}
