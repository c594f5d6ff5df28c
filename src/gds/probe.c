/* SPDX-License-Identifier: MIT */
/*
 * penstock-gds-probe FILE DEVICE [OFFSET [LIBRARY]]
 *
 * Find out whether this libcufile has a direct path between a file and GPU memory.  Read up to 1
 * MiB through cuFile, told to refuse reads without a direct path, compare with a plain read, and
 * print one line:
 *
 *	gds-probe 1 err=0 mode=p2pdma version=1150 nvfs=0.0 bytes=1048576 text=
 *
 * err is an errno, 0 for none.  mode is unknown, compat, nvfs, p2pdma or c2c, the last three only
 * if the bytes were right.  text is a sentence up to the end of the line.  libpenstock runs this
 * program (gds/cufile/probe.c) because libcufile may hang or crash.  Nothing is written to the
 * file.
 */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "mem/mem.h"
#include "gds/cufile/cufile.h"

#define BYTES MIB(1)
#define SECONDS 120                    /* seconds until alarm() ends the program */
#define TRIES 20                       /* attempts while somebody changes the file */
#define PAUSE_NS (100 * NSEC_PER_MSEC) /* time between two attempts */

struct probe {
	struct file *file;
	const struct mem_ops *ops;
	unsigned device;
	struct mem_alloc *mem;
	struct pst_device info;
	uint64_t off;                  /* file offset of the transfer: whole pages */
	uint64_t there;                /* bytes of the file in the range */
	uint8_t *plain, *back, *later; /* bytes of a plain read before, of cuFile, and of a plain
				        * read after */
	struct cufile_io io;
	struct cufile_verdict v;
};

/* ------------------------------------------------------------------- steps */

/* Return the bytes of the range that the file has now. */
static int look_there(const struct probe *p, uint64_t *ret)
{
	uint64_t size = 0;
	int r = file_size(p->file, &size);

	if (r < 0)
		return r;
	if (p->off >= size)
		return err_set(EINVAL, "the file has no bytes at %llu", (unsigned long long)p->off);
	*ret = MIN(BYTES, size - p->off);
	return 0;
}

/* After wrong bytes: return -EAGAIN if the file has changed, else err. */
static int unless_changed(const struct probe *p, int err)
{
	uint64_t now = 0;

	if (look_there(p, &now) < 0 || now != p->there)
		return err_set(EAGAIN, "the file changes while it is read; try another one");
	return err;
}

static int probe_open_file(struct probe *p, const char *path)
{
	int r = file_open(path, PST_FILE_READ, 0, &p->file);

	p->off = align_down(p->off, CUFILE_ALIGN);
	if (r == 0)
		r = look_there(p, &p->there);
	if (r < 0)
		return r;
	p->plain = malloc(BYTES);
	p->back = malloc(BYTES);
	p->later = malloc(BYTES);
	if (!p->plain || !p->back || !p->later)
		return err_set(ENOMEM, "out of memory");
	return 0;
}

static int read_plain(const struct probe *p, uint8_t *buf)
{
	int64_t n = file_peek(p->file, buf, p->off, p->there);

	return n == (int64_t)p->there
		       ? 0
		       : unless_changed(p, err_set(EIO, "a plain read of the file failed"));
}

/* Return the offset of the first GPU page in the memory. */
static uint64_t mem_off(const struct probe *p)
{
	return align_up(p->mem->base.va, CUFILE_GRAIN) - p->mem->base.va;
}

static int make_memory(struct probe *p, const char *device)
{
	int r = mem_find(device, &p->ops, &p->device);

	if (r < 0)
		return r;
	if (p->ops->kind != PST_KIND_CUDA)
		return err_set(EINVAL, "cuFile knows NVIDIA GPUs only");
	p->info.sz = sizeof(p->info);
	p->ops->device_info(p->device, &p->info);
	return mem_alloc(p->ops, p->device, 2 * BYTES, 0, &p->mem);
}

/* Fill the memory with the complement of the file's bytes, so that no byte is right by chance. */
static int fill_memory(struct probe *p)
{
	for (uint64_t i = 0; i < p->there; i++)
		p->back[i] = (uint8_t)~p->plain[i];
	return mem_copy_sync(p->mem, MEM_TO_DEVICE, mem_off(p), p->back, p->there);
}

/* Deduce the mode when there are no counters: strict mode allows only two. */
static enum cufile_mode by_exclusion(void)
{
	struct cufile_info info;

	cufile_info(&info);
	return info.nvfs_major || info.nvfs_minor ? CUFILE_MODE_NVFS : CUFILE_MODE_P2PDMA;
}

static int probe_transfer(struct probe *p)
{
	struct cufile_counts before, after;
	bool counted = cufile_counts(p->info.uuid, false, &before) == 0;
	int64_t n = cufile_io(&p->io);

	if (n < 0)
		return (int)n;
	if (counted && cufile_counts(p->info.uuid, false, &after) == 0)
		p->v.mode = cufile_mode(&before, &after);
	else
		p->v.mode = by_exclusion();
	if ((uint64_t)n != p->there)
		return unless_changed(p,
				      err_set(EIO, "cuFile read %lld bytes where the file has %llu",
					      (long long)n, (unsigned long long)p->there));
	return 0;
}

/* Compare the bytes.  Return -EAGAIN if somebody changes the file. */
static int probe_compare(struct probe *p)
{
	uint64_t i = 0;
	int r = mem_copy_sync(p->mem, MEM_FROM_DEVICE, mem_off(p), p->back, p->there);

	while (r == 0 && i < p->there && p->back[i] == p->plain[i])
		i++;
	if (r == 0 && i == p->there)
		p->v.bytes = p->there;
	if (r < 0 || i == p->there)
		return r;
	r = read_plain(p, p->later);
	if (r == 0 && memcmp(p->later, p->plain, p->there) != 0)
		return err_set(EAGAIN, "the file changes while it is read; try another one");
	return r < 0 ? r
		     : err_set(EILSEQ,
			       "cuFile read wrong bytes, the first at %llu of %llu: this way must "
			       "not be used",
			       (unsigned long long)i, (unsigned long long)p->there);
}

static int try_once(struct probe *p)
{
	int r = look_there(p, &p->there);

	if (r < 0)
		return r;
	p->io.len = align_up(p->there, CUFILE_ALIGN);
	r = read_plain(p, p->plain);
	if (r == 0)
		r = fill_memory(p);
	if (r == 0)
		r = probe_transfer(p);
	return r < 0 ? r : probe_compare(p);
}

static int read_direct(void *arg)
{
	const struct timespec pause = { .tv_nsec = (long)PAUSE_NS };
	struct probe *p = arg;
	int r = cufile_open();

	if (r == 0)
		r = cufile_file_get(local_of(p->file), &p->io.file);
	if (r == 0)
		r = cufile_mem_new(p->device, p->mem->base.va, p->mem->size, &p->io.mem);
	if (r < 0)
		return r;
	p->io.file_off = p->off;
	p->io.mem_off = mem_off(p);
	r = try_once(p);
	for (unsigned i = 1; i < TRIES && r == -EAGAIN; i++) {
		(void)nanosleep(&pause, NULL);
		r = try_once(p);
	}
	return r;
}

static int probe_path(struct probe *p, const char *path, const char *device)
{
	int r = probe_open_file(p, path);

	if (r == 0)
		r = make_memory(p, device);
	return r < 0 ? r : mem_within(p->mem, read_direct, p);
}

/* ------------------------------------------------------------------ answer */

static void probe_answer(const struct cufile_verdict *v)
{
	char line[600];
	int n;

	/* Begin with a newline: the library may have left an unfinished line. */
	n = snprintf(line, sizeof(line),
		     "\ngds-probe 1 err=%d mode=%s version=%d nvfs=%u.%u bytes=%llu text=%.200s\n",
		     -v->err, cufile_mode_name(v->mode), v->version, v->nvfs_major, v->nvfs_minor,
		     (unsigned long long)v->bytes, v->text);
	(void)fflush(stdout);
	(void)!write(STDOUT_FILENO, line, (size_t)n);
}

static const char *sentence(const struct cufile_verdict *v)
{
	if (v->err < 0)
		return err_text();
	if (v->mode == CUFILE_MODE_COMPAT)
		return "cuFile copied through host memory";
	if (v->mode == CUFILE_MODE_UNKNOWN)
		return "cuFile's counters do not say which way the bytes went";
	return "";
}

int main(int argc, char **argv)
{
	struct probe p = { .file = NULL };
	struct cufile_info info;

	if (argc < 3 || argc > 5) {
		(void)fputs("Usage: penstock-gds-probe FILE DEVICE [OFFSET [LIBRARY]]\n", stderr);
		return 2;
	}
	(void)alarm(SECONDS);
	/* Promise that no other code of this process uses the library. */
	(void)setenv("PST_GDS", "exclusive", 1);
	if (argc > 4)
		(void)setenv("PST_LIBCUFILE", argv[4], 1);
	(void)setenv("CUFILE_ALLOW_COMPAT_MODE", "false", 1);
	(void)setenv("CUFILE_LOGFILE_PATH", "/dev/null", 0);
	p.off = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
	p.v.err = probe_path(&p, argv[1], argv[2]);
	/* Report the mode only if the bytes were right. */
	if (p.v.err < 0)
		p.v.mode = CUFILE_MODE_UNKNOWN;
	(void)snprintf(p.v.text, sizeof(p.v.text), "%s", sentence(&p.v));
	cufile_info(&info);
	p.v.version = info.version;
	p.v.nvfs_major = info.nvfs_major;
	p.v.nvfs_minor = info.nvfs_minor;
	probe_answer(&p.v);
	/* Do not close the driver: that takes long and may hang. */
	_exit(0);
}
