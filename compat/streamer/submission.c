/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "base/log.h"

#include "args.h"
#include "submission.h"

void submission_free(struct submission *sub)
{
	if (!sub)
		return;
	for (uint32_t i = 0; sub->jobs && i < sub->nr_jobs; i++)
		free(sub->jobs[i].path);
	free(sub->jobs);
	free(sub->ranges);
	free(sub);
}

static void submission_freep(struct submission **sub)
{
	submission_free(*sub);
}

static int submission_invalid(const char *what)
{
	log_error("request: %s", what);
	return RUNAI_INVALID;
}

static int submission_no_memory(void)
{
	log_error("request: out of memory");
	return RUNAI_UNKNOWN;
}

/* Require that all paths are of object storage, or none. */
static int check_paths(const struct strings *paths)
{
	for (uint64_t i = 0; i < paths->nr; i++)
		if (code_of_path(paths->at[i]) != code_of_path(paths->at[0]) ||
		    path_is_object(paths->at[i]) != path_is_object(paths->at[0])) {
			log_error("request: %s and %s are of different kinds of storage",
				  paths->at[0], paths->at[i]);
			return RUNAI_MIXED;
		}
	return RUNAI_SUCCESS;
}

static int submission_check_range(const struct range *r)
{
	uint64_t end;

	if (__builtin_add_overflow(r->off, r->size, &end) || end > INT64_MAX)
		return submission_invalid("a range ends beyond what a file can have");
	if (__builtin_add_overflow(r->dst, r->size, &end))
		return submission_invalid("memory of a range reaches past the end of addresses");
	if (r->size && !r->dst)
		return submission_invalid("the address of a range is NULL");
	return RUNAI_SUCCESS;
}

static int fill_ranges(struct submission *sub, const size_t *offs, const size_t *sizes,
		       void *const *dsts)
{
	struct job *job = sub->jobs;
	uint64_t n = 0;

	for (uint64_t i = 0; i < sub->nr; i++, n++) {
		struct range *r = &sub->ranges[i];
		int code;

		while (n == job->nr) {
			n = 0;
			job++;
		}
		*r = (struct range){
			.off = offs[i],
			.size = sizes[i],
			.dst = (uintptr_t)dsts[i],
			.left = sizes[i],
			.job = job,
		};
		code = submission_check_range(r);
		if (code)
			return code;
	}
	return RUNAI_SUCCESS;
}

static void fill_jobs(struct submission *sub, struct strings *paths, const uint32_t *nr_ranges)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < sub->nr_jobs; i++) {
		struct job *job = &sub->jobs[i];

		job->sub = sub;
		job->ranges = sub->ranges + at;
		job->nr = nr_ranges[i];
		at += job->nr;
		job->path = TAKE_PTR(paths->at[i]);
	}
}

static int check_device(struct runai_device dev)
{
	int code = RUNAI_SUCCESS;

	if (dev.type != RUNAI_DEVICE_CPU && dev.type != RUNAI_DEVICE_CUDA)
		code = RUNAI_DEVICE_TYPE;
	else if (dev.type == RUNAI_DEVICE_CUDA && dev.id < 0)
		code = RUNAI_NO_DEVICE;
	if (code)
		log_error("request: device %d:%d: %s", dev.type, dev.id, code_text(code));
	return code;
}

static int submission_fill(struct submission *sub, const struct request *req)
{
	_cleanup_(strings_done) struct strings paths = { 0 };
	_cleanup_(freep) uint32_t *nr_ranges = NULL;
	_cleanup_(freep) size_t *sizes = NULL;
	_cleanup_(freep) size_t *offs = NULL;
	_cleanup_(freep) void **dsts = NULL;
	int code;

	code = copy_strings(req->paths, req->nr_files, &paths);
	if (!code)
		code = copy_array(req->nr_ranges, req->nr_files, sizeof(*nr_ranges), &nr_ranges);
	if (!code)
		code = check_paths(&paths);
	if (code)
		return code;
	for (uint32_t i = 0; i < req->nr_files; i++)
		sub->nr += nr_ranges[i];
	if (sub->nr > RANGES_MAX)
		return submission_invalid("more than 16 Mi ranges");
	code = copy_array(req->offs, sub->nr, sizeof(*offs), &offs);
	if (!code)
		code = copy_array(req->sizes, sub->nr, sizeof(*sizes), &sizes);
	if (!code)
		code = copy_array(req->dsts, sub->nr, sizeof(*dsts), &dsts);
	if (code)
		return code;
	sub->nr_jobs = sub->jobs_left = req->nr_files;
	sub->unanswered = sub->nr;
	sub->jobs = calloc(sub->nr_jobs + 1, sizeof(*sub->jobs));
	sub->ranges = calloc(sub->nr + 1, sizeof(*sub->ranges));
	if (!sub->jobs || !sub->ranges)
		return submission_no_memory();
	fill_jobs(sub, &paths, nr_ranges);
	return fill_ranges(sub, offs, sizes, dsts);
}

int submission_new(const struct request *req, struct submission **ret)
{
	_cleanup_(submission_freep) struct submission *sub = NULL;
	int code = check_device(req->device);

	if (!code && req->nr_files > FILES_MAX)
		code = submission_invalid("more than 1 Mi files");
	if (code)
		return code;
	sub = calloc(1, sizeof(*sub));
	if (!sub)
		return submission_no_memory();
	sub->device = req->device;
	code = submission_fill(sub, req);
	if (!code)
		*ret = TAKE_PTR(sub);
	return code;
}
