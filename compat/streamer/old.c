/* SPDX-License-Identifier: MIT */
/*
 * The calls of versions 0.15 and 0.16: one request at a time, whose files are concatenated in one
 * buffer.
 */
#include <string.h>

#include "base/log.h"
#include "base/uaccess.h"

#include "args.h"
#include "list.h"
#include "streamer_int.h"

int runai_start(void **ret_streamer)
{
	return runai_file_streamer_start(ret_streamer);
}

void runai_end(void *streamer)
{
	runai_file_streamer_end(streamer);
}

const char *runai_response_str(int code)
{
	return code_text(code);
}

/* Ranges of a request, in the form of the newer call. */
struct ranges {
	size_t *offs, *sizes;
	void **dsts;
	uint64_t nr;
};

static void old_ranges_done(struct ranges *r)
{
	free(r->offs);
	free(r->sizes);
	free(r->dsts);
}

/* Add the parts of one file.  The run may be longer than its parts; the next file comes after the
 * run. */
static int add_parts(struct ranges *r, uint64_t off, uint64_t size, uint64_t dst,
		     const size_t *parts, uint32_t nr)
{
	uint64_t at = 0;

	if (nr && uaccess_read(r->sizes + r->nr, parts, nr * sizeof(*parts)) < 0)
		return RUNAI_INVALID;
	for (uint32_t i = 0; i < nr; i++, r->nr++) {
		if (r->sizes[r->nr] > size - at)
			return RUNAI_INVALID;
		r->offs[r->nr] = off + at;
		r->dsts[r->nr] = (void *)(uintptr_t)(dst + at);
		at += r->sizes[r->nr];
	}
	return RUNAI_SUCCESS;
}

/* Arguments of a request, copied. */
struct files_of {
	size_t *offs, *sizes;
	const size_t **parts;
	uint32_t *nr_parts;
	void **dst; /* a single destination */
};

static void files_of_done(struct files_of *f)
{
	free(f->offs);
	free(f->sizes);
	free(f->parts);
	free(f->nr_parts);
	free(f->dst);
}

static int make_ranges(struct ranges *r, uint32_t nr_files, const struct files_of *f)
{
	uint64_t dst = (uintptr_t)f->dst[0], total = 0, end;
	int code = RUNAI_SUCCESS;

	for (uint32_t i = 0; i < nr_files; i++)
		total += f->nr_parts[i];
	if (!total)
		return RUNAI_EMPTY;
	if (total > RANGES_MAX)
		return RUNAI_INVALID;
	r->offs = calloc(total, sizeof(*r->offs));
	r->sizes = calloc(total, sizeof(*r->sizes));
	r->dsts = calloc(total, sizeof(*r->dsts));
	if (!r->offs || !r->sizes || !r->dsts)
		return RUNAI_UNKNOWN;
	for (uint32_t i = 0; !code && i < nr_files; i++) {
		if (__builtin_add_overflow(f->offs[i], f->sizes[i], &end) ||
		    __builtin_add_overflow(dst, f->sizes[i], &end))
			return RUNAI_INVALID;
		code = add_parts(r, f->offs[i], f->sizes[i], dst, f->parts[i], f->nr_parts[i]);
		dst += f->sizes[i];
	}
	return code;
}

static int streamer_old_request(struct streamer *st, const struct request *req)
{
	struct submission *sub;
	int code = submission_new(req, &sub);

	return code ? code : stream_submit(st, sub, true, NULL);
}

int runai_request(void *streamer, uint32_t nr_files, const char *const *paths, const size_t *offs,
		  const size_t *sizes, void *const *dsts, const uint32_t *nr_parts,
		  const size_t *const *parts, const char *key, const char *secret,
		  const char *token, const char *region, const char *endpoint)
{
	_cleanup_(files_of_done) struct files_of f = { 0 };
	_cleanup_(old_ranges_done) struct ranges r = { 0 };
	struct request req = { .nr_files = nr_files, .paths = paths };
	struct streamer *st;
	int code = streamer_enter(streamer, &st);

	(void)key;
	(void)secret;
	(void)token;
	(void)region;
	(void)endpoint;
	if (code)
		return code;
	if (!nr_files)
		code = RUNAI_EMPTY;
	else if (nr_files > FILES_MAX)
		code = RUNAI_INVALID;
	if (!code)
		code = copy_array(offs, nr_files, sizeof(*offs), &f.offs);
	if (!code)
		code = copy_array(sizes, nr_files, sizeof(*sizes), &f.sizes);
	if (!code)
		code = copy_array(parts, nr_files, sizeof(*parts), &f.parts);
	if (!code)
		code = copy_array(nr_parts, nr_files, sizeof(*nr_parts), &f.nr_parts);
	if (!code)
		code = copy_array(dsts, 1, sizeof(*dsts), &f.dst);
	if (!code)
		code = make_ranges(&r, nr_files, &f);
	req.nr_ranges = f.nr_parts;
	req.offs = r.offs;
	req.sizes = r.sizes;
	req.dsts = r.dsts;
	if (!code)
		code = streamer_old_request(st, &req);
	if (code)
		log_error("request: %s", code_text(code));
	streamer_leave(st);
	return code;
}

int runai_response(void *streamer, uint32_t *ret_file, uint32_t *ret_part)
{
	struct answer a = { 0 };
	struct streamer *st;
	int code = streamer_enter(streamer, &st);

	if (code)
		return code;
	if (!ret_file || !ret_part)
		code = RUNAI_INVALID;
	else
		code = stream_answer(st, 0, true, &a);
	if (ret_file && ret_part && code != RUNAI_FINISHED) {
		*ret_file = a.file;
		*ret_part = a.range;
	}
	streamer_leave(st);
	return code;
}

int runai_list_files(const char *prefix, int recursive, const char *const *allow, unsigned nr_allow,
		     const char *const *ignore, unsigned nr_ignore, runai_list_fn fn,
		     void *user_data, const char *const *keys, const char *const *values,
		     unsigned nr)
{
	const struct listing l = {
		.allow = allow,
		.nr_allow = nr_allow,
		.ignore = ignore,
		.nr_ignore = nr_ignore,
		.recursive = recursive,
		.fn = fn,
		.user_data = user_data,
	};

	(void)keys;
	(void)values;
	(void)nr;
	return list_files(&l, prefix);
}
