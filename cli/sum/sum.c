/* SPDX-License-Identifier: MIT */
/* Write checksum files for safetensors files, and check files against them. */
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "cli/commands.h"
#include "tools/common/temp.h"
#include "tools/common/shown.h"
#include "tools/common/sums.h"
#include "tools/common/util.h"

#define SLOTS 4u                      /* ranges in flight */
#define TEMP_TRIES 100u               /* maximum names to try for a temporary file */
#define LOOK_NS (200 * NSEC_PER_MSEC) /* ns between checks for signals */

const char sum_usage[] =
	"Usage: penstock sum [--check] FILE...\n"
	"\n"
	"Writes checksums beside safetensors files, into FILE.crc32c: the CRC-32C of\n"
	"the header and of each tensor, those of large tensors in parts of 16 MiB.\n"
	"load_file(verify=True) of the Python package compares tensors with them where\n"
	"they have arrived, in the memory of a device by the device.\n"
	"\n"
	"  --check          read the files and compare them with their checksums\n";

/* An open model. */
struct model {
	const char *name;
	char *beside; /* path of the checksum file */
	int fd;
	struct stat st;
};

static void model_done(struct model *m)
{
	closep(&m->fd);
	free(m->beside);
}

static int model_open(struct model *m, const char *name)
{
	int r = check_path(name);

	*m = (struct model){ .name = name, .fd = -1 };
	if (r < 0)
		return r;
	if (asprintf(&m->beside, "%s" SUMS_SUFFIX, name) < 0) {
		m->beside = NULL;
		return fail(ENOMEM, "out of memory");
	}
	m->fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (m->fd < 0)
		return fail_open(name);
	if (fstat(m->fd, &m->st) < 0)
		return fail(errno, "%s: %s", name, strerror(errno));
	if (!S_ISREG(m->st.st_mode))
		return fail(EINVAL, "%s: it is no regular file", name);
	return 0;
}

static int model_is_unchanged(const struct model *m)
{
	struct stat now;

	if (fstat(m->fd, &now) < 0)
		return fail(errno, "%s: %s", m->name, strerror(errno));
	if (now.st_size != m->st.st_size || now.st_mtim.tv_sec != m->st.st_mtim.tv_sec ||
	    now.st_mtim.tv_nsec != m->st.st_mtim.tv_nsec)
		return fail(EBUSY, "%s changed while it was read; try again when it is complete",
			    m->name);
	return 0;
}

/* ------------------------------------------------------------------- read */

/* Wait for a completion, checking for signals. */
static int reap(struct pst_queue *q, struct pst_done *ret)
{
	int r = 0;

	while (r == 0) {
		if (stop_signal)
			return fail(EINTR, "interrupted");
		r = pst_queue_reap(q, ret, 1, 1, now_ns() + LOOK_NS);
	}
	return r < 0 ? fail_pst(r, "waiting for a read") : 0;
}

/* Prepare the read of a range into a slot of the memory. */
static int prep_range(struct pst_queue *q, struct pst_file *file, struct pst_mem *mem,
		      const struct sums *s, size_t idx, unsigned slot)
{
	struct pst_io io = {
		.op = PST_OP_READ,
		.flags = PST_IO_CRC32C,
		.file = file,
		.mem = mem,
		.file_off = s->v[idx].off,
		.mem_off = (uint64_t)slot * SUMS_RANGE_MAX,
		.len = s->v[idx].len,
		.user_data = idx * SLOTS + slot,
	};

	return pst_queue_prep(q, &io);
}

static int read_failed(const struct model *m, const struct pst_done *d)
{
	if (d->res < 0)
		return fail((int)d->res, "%s: reading failed: %s", m->name, strerror((int)-d->res));
	return fail(EIO, "%s became shorter while it was read", m->name);
}

/* Read all ranges and compute their checksums. */
static int read_ranges(const struct model *m, const struct sums *s, uint32_t *ret_crcs)
{
	struct pst_queue_opts o = { .sz = sizeof(o), .depth = SLOTS };
	_cleanup_(pst_filep) struct pst_file *file = NULL;
	_cleanup_(pst_memp) struct pst_mem *mem = NULL;
	_cleanup_(pst_queuep) struct pst_queue *q = NULL;
	unsigned idle[SLOTS], nr_idle = SLOTS;
	size_t next = 0, ended = 0;
	struct pst_done d;
	int r;

	for (unsigned i = 0; i < SLOTS; i++)
		idle[i] = i;
	r = pst_file_wrap(m->fd, 0, NULL, &file);
	if (r == 0)
		r = pst_mem_alloc("host", (uint64_t)SLOTS * SUMS_RANGE_MAX, NULL, &mem);
	if (r == 0)
		r = pst_queue_new(&o, &q);
	if (r < 0)
		return fail_pst(r, m->name);
	while (ended < s->nr) {
		for (; next < s->nr && nr_idle; next++) {
			r = prep_range(q, file, mem, s, next, idle[--nr_idle]);
			if (r < 0)
				return fail_pst(r, m->name);
		}
		(void)pst_queue_submit(q);
		r = reap(q, &d);
		if (r < 0)
			return r;
		if (d.res != s->v[d.user_data / SLOTS].len || !(d.flags & PST_DONE_CRC32C))
			return read_failed(m, &d);
		ret_crcs[d.user_data / SLOTS] = d.crc32c;
		idle[nr_idle++] = (unsigned)(d.user_data % SLOTS);
		ended++;
	}
	return model_is_unchanged(m);
}

/* ------------------------------------------------------------------ write */

/*
 * Create and lock a file that is later renamed to base.  Other commands remove files without a
 * lock, as left by killed commands, so one may remove ours before it is locked: then try again.
 */
static int create_temp(int dir, const char *base, const char *path, char **ret_name)
{
	for (unsigned tries = 0; tries < TEMP_TRIES; tries++) {
		_cleanup_(freep) char *name = NULL;
		int fd, r = temp_name(base, &name);

		if (r < 0)
			return r;
		fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (fd < 0 && errno != EEXIST)
			return fail(errno, "cannot create %s: %s", path, strerror(errno));
		if (fd >= 0 && temp_lock(dir, name, fd)) {
			*ret_name = TAKE_PTR(name);
			return fd;
		}
		closep(&fd);
	}
	return fail(EEXIST, "cannot create %s: there is no free name for its temporary file", path);
}

/* Write a file under a temporary name, and rename it when it is on the disk. */
static int write_as(int dir, const char *base, const char *path, const char *text, size_t len,
		    mode_t mode)
{
	_cleanup_(freep) char *temp = NULL;
	_cleanup_(closep) int fd = create_temp(dir, base, path, &temp);
	int r;

	if (fd < 0)
		return fd;
	r = write_all(fd, text, len, path);
	if (r == 0 && (fchmod(fd, mode) < 0 || fsync(fd) < 0 ||
		       renameat(dir, temp, dir, base) < 0 || fsync(dir) < 0))
		r = fail(errno, "cannot write %s: %s", path, strerror(errno));
	if (r < 0)
		(void)unlinkat(dir, temp, 0);
	return r;
}

/*
 * Replace a file atomically.  A symbolic link stays and its target is replaced, if the kernel
 * allows this user to follow the link (fs.protected_symlinks); realpath() would not check that.
 */
static int sum_replace(const char *name, const char *text, size_t len, mode_t mode)
{
	_cleanup_(freep) char *real = realpath(name, NULL), *copy = NULL;
	const char *path = real ? real : name, *base = strrchr(path, '/');
	_cleanup_(closep) int dir = -1, at = open(name, O_PATH | O_CLOEXEC);

	if (at < 0 && errno != ENOENT)
		return fail(errno, "cannot open %s: %s", name, strerror(errno));
	base = base ? base + 1 : path;
	copy = strdup(path);
	if (!copy)
		return fail(ENOMEM, "out of memory");
	dir = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return fail(errno, "cannot create %s: %s", name, strerror(errno));
	temp_clear(dir, base);
	return write_as(dir, base, name, text, len, mode);
}

static int write_sums(const struct model *m)
{
	_cleanup_(safetensors_freep) struct safetensors *st = NULL;
	_cleanup_(sums_freep) struct sums *s = NULL;
	_cleanup_(freep) uint32_t *crcs = NULL;
	_cleanup_(freep) char *text = NULL;
	size_t len = 0;
	char why[400];
	FILE *to;
	int r = safetensors_read(m->fd, &st, why, sizeof(why));

	if (r < 0)
		return fail(r, "%s: %s", m->name, why);
	s = sums_new(st);
	crcs = s ? calloc(s->nr, sizeof(*crcs)) : NULL;
	if (!crcs)
		return fail(ENOMEM, "out of memory");
	r = read_ranges(m, s, crcs);
	if (r < 0)
		return r;
	for (size_t i = 0; i < s->nr; i++)
		s->v[i].crc = crcs[i];
	to = open_memstream(&text, &len);
	if (!to)
		return fail(ENOMEM, "out of memory");
	sums_print(s, to);
	if (fclose(to) != 0)
		return fail(ENOMEM, "out of memory");
	r = sum_replace(m->beside, text, len, m->st.st_mode & 0777);
	if (r == 0)
		shown_printf(1, "%s", m->beside);
	return r;
}

/* ------------------------------------------------------------------ check */

static int read_sums(const struct model *m, struct sums **ret)
{
	_cleanup_(closep) int fd = open(m->beside, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	_cleanup_(freep) char *text = NULL;
	struct stat st;
	char why[200];
	int r;

	if (fd < 0 && errno == ENOENT)
		return fail(ENOENT, "%s: there are no checksums; penstock sum %s writes them",
			    m->beside, m->name);
	if (fd < 0)
		return fail_open(m->beside);
	if (fstat(fd, &st) < 0)
		return fail(errno, "%s: %s", m->beside, strerror(errno));
	if (!S_ISREG(st.st_mode) || st.st_size > SUMS_TEXT_MAX)
		return fail(EINVAL, "%s: these are no checksums of a file", m->beside);
	text = malloc((size_t)st.st_size + 1);
	if (!text)
		return fail(ENOMEM, "out of memory");
	r = pread_all(fd, text, (size_t)st.st_size, 0, m->beside);
	if (r < 0)
		return r;
	r = sums_parse(text, (size_t)st.st_size, (uint64_t)m->st.st_size, ret, why, sizeof(why));
	return r < 0 ? fail(r, "%s: %s", m->beside, why) : 0;
}

static int check_sums(const struct model *m)
{
	_cleanup_(sums_freep) struct sums *s = NULL;
	_cleanup_(freep) uint32_t *crcs = NULL;
	int r = read_sums(m, &s);

	if (r < 0)
		return r;
	crcs = calloc(s->nr + 1, sizeof(*crcs));
	if (!crcs)
		return fail(ENOMEM, "out of memory");
	r = read_ranges(m, s, crcs);
	if (r < 0)
		return r;
	for (size_t i = 0; i < s->nr; i++)
		if (crcs[i] != s->v[i].crc)
			return fail(EBADMSG,
				    "%s: bytes %" PRIu64 " to %" PRIu64
				    " have the checksum %08" PRIx32 ", and %08" PRIx32
				    " is expected",
				    m->name, s->v[i].off, s->v[i].off + s->v[i].len - 1, crcs[i],
				    s->v[i].crc);
	shown_printf(1, "%s: as its checksums say", m->name);
	return 0;
}

int cmd_sum(int argc, char *argv[])
{
	static const struct option longs[] = {
		{ "check", no_argument, NULL, 'c' },
		{ 0 },
	};
	bool check = false;
	int opt, status = 0;

	while ((opt = getopt_long(argc, argv, ":", longs, NULL)) != -1) {
		if (opt != 'c')
			return option_error(argv, longs, opt);
		check = true;
	}
	if (optind == argc)
		return usage_error("name at least one safetensors file");
	signals_catch();
	for (int i = optind; i < argc && !stop_signal; i++) {
		struct model m;
		int r = model_open(&m, argv[i]);

		if (r == 0)
			r = check ? check_sums(&m) : write_sums(&m);
		model_done(&m);
		if (r < 0)
			status = exit_status(r);
	}
	return stop_signal ? exit_status(-EINTR) : status;
}
