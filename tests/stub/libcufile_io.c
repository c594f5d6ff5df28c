/* SPDX-License-Identifier: MIT */
/* Transfers. */
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "cufile_stub_int.h"

#define PAGE 4096u

/* ------------------------------------------------------------------- bytes */

static int device_of(uint64_t ptr)
{
	int dev = 0;

	return cuPointerGetAttribute(&dev, CU_PTR_DEVICE_ORDINAL, ptr) == CU_OK ? dev : -1;
}

/* Count a transfer in the statistics.  Call it with the lock held. */
static void count(const struct move *m, int dev, ssize_t moved)
{
	struct counts *c = &cf.counts[dev][m->write];
	bool odd = (m->file_off | m->base_off | (off_t)m->len | (off_t)m->base) & (PAGE - 1);

	c->ops++;
	c->failed += moved < 0;
	c->unaligned += odd;
	if (moved < 0)
		return;
	if (cf.lie == LIE_CLAIMS || (cf.mode == MODE_NVFS && !odd))
		c->nvfs++;
	else if (cf.mode == MODE_COMPAT || odd)
		c->posix++;
	else
		c->p2p++;
}

static bool is_wrong(void)
{
	static atomic_bool done;

	return cf.lie == LIE_WRONG || (cf.lie == LIE_ONCE && !atomic_exchange(&done, true));
}

static ssize_t write_bytes(const struct file *f, const struct move *m, uint64_t at, char *host)
{
	if (!stub_cuda_peek(at, host, m->len))
		return -1;
	if (is_wrong())
		host[m->len / 2] ^= 0x10;
	return cf.lie == LIE_NODATA ? (ssize_t)m->len : pwrite(f->plain, host, m->len, m->file_off);
}

/* Read like the real library: only the compat mode leaves pages in the page cache. */
static ssize_t read_bytes(const struct file *f, const struct move *m, char *host)
{
	ssize_t n = pread(f->plain, host, m->len, m->file_off);

	if (cf.mode != MODE_COMPAT)
		(void)posix_fadvise(f->plain, m->file_off, (off_t)m->len, POSIX_FADV_DONTNEED);
	return n;
}

static ssize_t move_bytes(const struct file *f, const struct move *m)
{
	uint64_t at = m->base + (uint64_t)m->base_off;
	char *host = malloc(m->len);
	ssize_t n = 0;

	if (!host)
		return -ENOMEM;
	if (m->write) {
		n = write_bytes(f, m, at, host);
	} else {
		n = read_bytes(f, m, host);
		if (n > 0 && cf.lie == LIE_SHORT)
			n = n / 2 & ~(ssize_t)(PAGE - 1);
		if (n > 0 && is_wrong())
			host[n / 2] ^= 0x10;
		/* The real library returns EPERM for a wrong address, although permissions are not
		 * the cause. */
		if (n > 0 && cf.lie != LIE_NODATA && !stub_cuda_poke(at, host, (size_t)n))
			n = -EPERM;
	}
	if (n == -1)
		n = -errno;
	free(host);
	return n > 0 && cf.lie == LIE_MORE ? (ssize_t)m->len + PAGE : n;
}

/* Return 0 or the negative code that refuses a transfer.  Call it with the lock held. */
static ssize_t check(const struct move *m, const struct file *f, const struct buf *b)
{
	cu_ctx ctx = NULL;

	if (m->file_off < 0)
		return -CUF_INVALID_VALUE;
	if (m->base_off < 0)
		return -CUF_INTERNAL_ERROR;
	if (!m->write && (f->flags & O_ACCMODE) == O_WRONLY)
		return -CUF_INVALID_FILE_OPEN_FLAG;
	if (m->write && (f->flags & O_ACCMODE) == O_RDONLY)
		return -EIO;
	if (b && (uint64_t)m->base_off + m->len > b->len)
		return -CUF_INVALID_MAPPING_RANGE;
	if (cf.mode != MODE_COMPAT && (cuCtxGetCurrent(&ctx) != CU_OK || !ctx))
		return -CUF_CUDA_CONTEXT_MISMATCH;
	return device_of(m->base) < 0 ? -EPERM : 0;
}

ssize_t stub_move(const struct move *m)
{
	struct file *f;
	struct buf *b;
	ssize_t n;

	(void)pthread_mutex_lock(&cf.lock);
	f = stub_file(m->file);
	if (!f) {
		cf.state.uses--; /* the real library drops a use here, too */
		(void)pthread_mutex_unlock(&cf.lock);
		return -CUF_HANDLE_NOT_REGISTERED;
	}
	b = stub_buf(m->base);
	n = m->len ? check(m, f, b) : 0;
	if (n || !m->len)
		goto out;
	if (!b)
		cf.state.bounced++;
	if (b && b->moving && cf.mode == MODE_NVFS) {
		cf.state.busy++;
		n = -EBUSY;
		goto out;
	}
	if (b)
		b->moving++;
	f->moving++;
	cf.state.moving++;
	(void)pthread_mutex_unlock(&cf.lock);
	n = stub_call(m->write ? "write" : "read"); /* a failure on demand during the transfer */
	n = n ? -n : move_bytes(f, m);
	(void)pthread_mutex_lock(&cf.lock);
	cf.state.moving--;
	f->moving--;
	if (b)
		b->moving--;
	cf.state.reads += !m->write;
	cf.state.writes += m->write;
	count(m, device_of(m->base), n);
out:
	(void)pthread_mutex_unlock(&cf.lock);
	return n;
}

/* Convert to the real library's result: -1 and errno, which may be a library code; only a
 * context mismatch is returned as such. */
static ssize_t result(ssize_t n)
{
	if (n >= 0)
		return n;
	if (n == -CUF_CUDA_CONTEXT_MISMATCH)
		return n;
	errno = (int)-n;
	return -1;
}

ssize_t cuFileRead(cuf_handle file, void *base, size_t len, off_t file_off, off_t base_off)
{
	int code = CALL();

	if (code)
		return result(-code);
	return result(
		stub_move(&(struct move){ file, (uintptr_t)base, file_off, base_off, len, false }));
}

ssize_t cuFileWrite(cuf_handle file, const void *base, size_t len, off_t file_off, off_t base_off)
{
	int code = CALL();

	if (code)
		return result(-code);
	return result(
		stub_move(&(struct move){ file, (uintptr_t)base, file_off, base_off, len, true }));
}
