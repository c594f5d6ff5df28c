/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

#include "submission.h"

static void job_fail(struct range *r, int code)
{
	if (!r->code)
		r->code = code;
}

static void fail_all(struct job *job, int code)
{
	for (uint64_t i = 0; i < job->nr; i++)
		job_fail(&job->ranges[i], code);
}

/* ------------------------------------------------------------------ memory */

static bool job_holds(const struct target *t, uint64_t addr, uint64_t len)
{
	return addr >= t->addr && addr - t->addr <= t->len && len <= t->len - (addr - t->addr);
}

static struct target *target_new(struct job *job, uint64_t addr, uint64_t len, uint32_t kind)
{
	struct pst_mem_opts opts = {
		.sz = sizeof(opts),
		.kind = kind,
		.flags = kind == PST_KIND_HOST ? PST_MEM_LATER : 0,
	};
	struct target *t = calloc(1, sizeof(*t));
	int r = t ? pst_mem_wrap(addr, len, &opts, &t->mem) : -ENOMEM;

	if (r < 0) {
		if (!atomic_exchange(&job->told, true))
			log_error("memory at %#" PRIx64 ", %" PRIu64 " bytes: %s", addr, len,
				  t ? pst_error_text() : "out of memory");
		free(t);
		return NULL;
	}
	t->addr = addr;
	t->len = len;
	t->next = job->targets;
	job->targets = t;
	return t;
}

/* Wrap all host ranges as one span.  Host memory is checked at use, so gaps do not matter. */
static void target_host(struct job *job)
{
	uint64_t low = UINT64_MAX, high = 0;
	struct target *t;

	for (uint64_t i = 0; i < job->nr; i++) {
		const struct range *r = &job->ranges[i];

		if (r->size) {
			low = MIN(low, r->dst);
			high = MAX(high, r->dst + r->size);
		}
	}
	if (low > high)
		return; /* no range has bytes */
	t = target_new(job, low, high - low, PST_KIND_HOST);
	for (uint64_t i = 0; i < job->nr; i++) {
		struct range *r = &job->ranges[i];

		if (!r->size)
			continue;
		/* If the span is invalid because of some addresses, wrap each range separately. */
		r->target = t ? t : target_new(job, r->dst, r->size, PST_KIND_HOST);
		if (!r->target)
			job_fail(r, RUNAI_INVALID);
	}
}

/* Return the target of a device range: its whole allocation. */
static struct target *target_of(struct job *job, const struct range *r, const char *device)
{
	struct pst_mem_info info = { .sz = sizeof(info) };
	struct target *t;

	for (t = job->targets; t; t = t->next)
		if (job_holds(t, r->dst, r->size))
			return t;
	t = target_new(job, r->dst, r->size, PST_KIND_CUDA);
	if (!t)
		return NULL;
	if (pst_mem_info(t->mem, &info) == 0 && !strcmp(info.device, device))
		return info.size > r->size ? target_new(job, info.base, info.size, PST_KIND_CUDA)
					   : t;
	if (!atomic_exchange(&job->told, true))
		log_error("memory at %#" PRIx64 " is on %s and not on %s", r->dst, info.device,
			  device);
	/* Remove the target, so that later ranges do not find it. */
	job->targets = t->next;
	pst_mem_free(t->mem);
	free(t);
	return NULL;
}

static int find_device(int id, char *name, size_t len)
{
	struct pst_device dev = { .sz = sizeof(dev) };
	int code = RUNAI_SUCCESS;

	(void)snprintf(name, len, "cuda:%d", id);
	if (pst_device_find(name, &dev) == 0)
		return RUNAI_SUCCESS;
	code = pst_device_find("cuda:0", &dev) == 0 ? RUNAI_NO_DEVICE : RUNAI_NO_DEVICES;
	log_error("%s: %s: %s", name, code_text(code), pst_error_text());
	return code;
}

static void target_cuda(struct job *job)
{
	char name[PST_DEVICE_NAME_MAX];
	int code = find_device(job->sub->device.id, name, sizeof(name));

	if (code) {
		fail_all(job, code);
		return;
	}
	for (uint64_t i = 0; i < job->nr; i++) {
		struct range *r = &job->ranges[i];

		if (!r->size)
			continue;
		r->target = target_of(job, r, name);
		if (!r->target)
			job_fail(r, RUNAI_INVALID);
	}
}

/* -------------------------------------------------------------------- file */

static void check_ends(struct job *job)
{
	struct pst_file_info info = { .sz = sizeof(info) };

	if (pst_file_info(job->file->file, &info) < 0) {
		log_error("%s: %s", job->path, pst_error_text());
		fail_all(job, RUNAI_FILE_ACCESS);
		return;
	}
	/* Files in /proc and /sys report 0 bytes, but may have more. */
	if (!info.size && (!strcmp(info.fs, "proc") || !strcmp(info.fs, "sysfs")))
		return;
	for (uint64_t i = 0; i < job->nr; i++) {
		struct range *r = &job->ranges[i];

		if (!r->size || r->off + r->size <= info.size)
			continue;
		if (!atomic_exchange(&job->told, true))
			log_error("%s has %" PRIu64 " bytes: %" PRIu64 " from %" PRIu64
				  " on are not in it",
				  job->path, info.size, r->size, r->off);
		job_fail(r, RUNAI_EOF);
	}
}

void job_open(struct job *job, struct files *files)
{
	int code = code_of_path(job->path);
	char text[512];
	int r;

	if (code) {
		log_error("%s: %s", job->path, code_text(code));
		fail_all(job, code);
		return;
	}
	r = files_get(files, job->path, &job->file, text, sizeof(text));
	if (r < 0) {
		job->file = NULL;
		log_error("%s: %s", job->path, text);
		code = code_of(r);
		/* A folder or a pipe is a file access error, not an invalid argument. */
		fail_all(job, code == RUNAI_INVALID ? RUNAI_FILE_ACCESS : code);
		return;
	}
	check_ends(job);
	if (job->sub->device.type == RUNAI_DEVICE_CUDA)
		target_cuda(job);
	else
		target_host(job);
}

void job_close(struct job *job, struct files *files)
{
	while (job->targets) {
		struct target *t = job->targets;

		job->targets = t->next;
		if (job->busy && pst_mem_drain(t->mem, now_ns() + 10 * NSEC_PER_SEC) < 0) {
			log_warn("%s: a read hangs in the kernel; its memory may be written to "
				 "until it ends, and so long this waits",
				 job->path);
			(void)pst_mem_drain(t->mem, PST_NO_DEADLINE);
		}
		pst_mem_free(t->mem);
		free(t);
	}
	if (job->file)
		files_put(files, job->file);
	job->file = NULL;
}

/* ------------------------------------------------------------------ pieces */

/* Return the next bytes to read.  For a range that needs no reading, return a piece without target,
 * which the caller settles. */
bool job_piece(struct job *job, struct piece *ret)
{
	const struct range *r = job->at_range < job->nr ? &job->ranges[job->at_range] : NULL;
	uint64_t most, i = job->at_range;

	if (!r)
		return false;
	*ret = (struct piece){
		.job = job,
		.range = i,
		.byte = job->at_byte,
		.off = r->off + job->at_byte,
		.target = r->target,
	};
	if (r->code || !r->size) {
		ret->target = NULL;
		ret->len = r->size - job->at_byte;
		job->at_range++;
		job->at_byte = 0;
		return true;
	}
	ret->mem_off = r->dst + job->at_byte - r->target->addr;
	most = PIECE - ret->off % PIECE;
	while (ret->len < most) {
		uint64_t n = MIN(r->size - job->at_byte, most - ret->len);
		const struct range *next = r + 1;

		ret->len += n;
		job->at_byte += n;
		if (job->at_byte < r->size)
			break;
		job->at_range = ++i;
		job->at_byte = 0;
		if (i == job->nr || next->code || !next->size || next->target != r->target ||
		    next->off != r->off + r->size || next->dst != r->dst + r->size)
			break;
		r = next;
	}
	return true;
}
