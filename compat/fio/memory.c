/* SPDX-License-Identifier: MIT */
#include "engine.h"

#include <sys/mman.h>
#include <verify.h>

static int is_host(const char *device)
{
	return !strcmp(device, "host");
}

int memory_alloc(struct engine_job *job, uint64_t len)
{
	struct engine_memory *m = &job->memory;
	const struct thread_data *td = job->td;
	const char *device = job->opts->device;
	struct pst_mem_opts opts = { .sz = sizeof(opts) };
	struct pst_mem_info info = { .sz = sizeof(info) };
	int r;

	m->len = len;
	m->is_device = !is_host(device);
	m->copies_in = m->is_device &&
		       (td->o.verify != VERIFY_NONE || (td->flags & TD_F_REFILL_BUFFERS));
	m->verifies = td->o.verify != VERIFY_NONE;
	/* Rings use shared memory on the host, which rings.c allocates. */
	if (job->opts->rings && !m->is_device)
		return 0;
	opts.flags = job->opts->rings ? PST_MEM_SHARED : 0;
	r = pst_mem_alloc(device, len, &opts, &m->mem);
	if (r < 0)
		return engine_fail(job, r, "%s", pst_error_text());
	r = pst_mem_info(m->mem, &info);
	if (r < 0)
		return engine_fail(job, r, "%s", pst_error_text());
	m->addr = info.addr;
	if (!m->is_device) {
		m->host = pst_mem_ptr(m->mem);
		return 0;
	}
	m->host = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (m->host == MAP_FAILED) {
		m->host = NULL;
		return engine_fail(job, -ENOMEM, "no host memory beside that of %s", device);
	}
	return 0;
}

void memory_free(struct engine_memory *m)
{
	if (m->is_device && m->host)
		(void)munmap(m->host, m->len);
	(void)pst_mem_free(m->mem);
	*m = (struct engine_memory){ NULL };
}

/* Copy fio's initial buffer contents to the device. */
int memory_fill(struct engine_job *job)
{
	const struct engine_memory *m = &job->memory;
	int r;

	if (!m->is_device || !td_write(job->td))
		return 0;
	r = pst_mem_copy_in(m->mem, 0, m->host, m->len);
	return r < 0 ? engine_fail(job, r, "%s", pst_error_text()) : 0;
}

/* Fill with bytes that no fio pattern contains, by the generator SplitMix64. */
static void scrub(struct engine_memory *m, char *buf, uint64_t len)
{
	for (uint64_t at = 0; at < len; at += sizeof(m->scrub)) {
		uint64_t left = len - at, z = m->scrub += UINT64_C(0x9e3779b97f4a7c15);

		z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
		z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
		z ^= z >> 31;
		memcpy(buf + at, &z, left < sizeof(z) ? left : sizeof(z));
	}
}

/*
 * Before a write, copy its bytes to the device.  Before a read that is verified, overwrite its
 * buffer, so that bytes of an earlier operation cannot pass the verification.
 */
int memory_before(struct engine_job *job, const struct io_u *io_u)
{
	struct engine_memory *m = &job->memory;

	if (io_u->ddir == DDIR_WRITE ? !m->copies_in : !m->verifies)
		return 0;
	if (io_u->ddir == DDIR_READ)
		scrub(m, io_u->xfer_buf, io_u->xfer_buflen);
	if (!m->is_device)
		return 0;
	return pst_mem_copy_in(m->mem, memory_off(m, io_u), io_u->xfer_buf, io_u->xfer_buflen);
}

int memory_after(struct engine_job *job, const struct io_u *io_u, uint64_t moved)
{
	const struct engine_memory *m = &job->memory;

	if (!m->verifies || !m->is_device)
		return 0;
	return pst_mem_copy_out(m->mem, memory_off(m, io_u), io_u->xfer_buf, moved);
}
