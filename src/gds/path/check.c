/* SPDX-License-Identifier: MIT */
/*
 * Check the needs of a direct path.  libcufile is searched but not loaded: it would open devices,
 * start threads and perhaps hang.  The trial's process reports the library's version.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/scheme.h"
#include "gds/path/check.h"
#include "gds/cufile/cufile.h"
#include "gds/facts/facts.h"
#include "mem/mem.h"

#define GDS_CHECKS_MAX (GDS_FACTS_MAX + 2u)
#define TRIAL_NS (25 * NSEC_PER_SEC) /* leaves the other process time to end */

_Static_assert(GDS_CHECKS_MAX <= TOPIC_CHECKS_MAX, "all checks have a place");
/* A gds_fact is copied into a pst_check. */
_Static_assert(sizeof(((struct pst_check *)0)->text) == sizeof(((struct gds_fact *)0)->text),
	       "no text of a check is cut");

#define LIBRARY_CURE                                                                              \
	"install it: on Debian and Ubuntu libcufile-13-0 of NVIDIA's repository, or the package " \
	"cuda-toolkit; for Python pip install nvidia-cufile, and name its libcufile.so.0 by "     \
	"PST_LIBCUFILE"

/* Result of the trial. */
struct tried {
	bool was;
	int err; /* -errno: no verdict; the member why has the cause */
	char why[300];
	struct cufile_verdict v;
};

static struct gds_fact *check_add(struct gds_fact *all, int *nr, const char *name)
{
	struct gds_fact *f = &all[(*nr)++];

	*f = (struct gds_fact){ .err = 0 };
	(void)snprintf(f->name, sizeof(f->name), "%s", name);
	return f;
}

/* ----------------------------------------------------------------- library */

static void check_library(struct gds_fact *f, const struct tried *t)
{
	int version = t->v.version, r;
	char file[PATH_MAX];

	r = cufile_find(file);
	if (r < 0 && !version) {
		/* Replace the cure in the library's sentence by a more complete one. */
		gds_say(f, PST_CHECK_MISSING, -r, "%.*s; " LIBRARY_CURE,
			(int)strcspn(err_text(), ";"), err_text());
	} else if (!version) {
		gds_say(f, t->was ? PST_CHECK_UNKNOWN : PST_CHECK_OK, 0, "%.300s%s", file,
			t->was ? ", of which the trial did not learn the version" : "");
	} else {
		const char *where = r < 0 ? "where this process does not see it" : file;
		bool old = version < CUFILE_VERSION_MIN;

		gds_say(f, old ? PST_CHECK_MISSING : PST_CHECK_OK, old ? ENOSYS : 0,
			"cuFile %d.%d, %.300s%s", version / 1000, version % 1000 / 10, where,
			old ? "; it is too old: install that of CUDA 12.2 or newer" : "");
	}
}

/* ------------------------------------------------------------------- trial */

/* Return a cure for errors whose sentence has none. */
static const char *check_cure_of(int err)
{
	switch (-err) {
	case EILSEQ:
		return "keep it off with PST_GDS=off, and update the GPU's driver, cuFile and "
		       "nvidia-fs";
	case ETIMEDOUT:
		return "keep it off with PST_GDS=off, and look for nvidia-fs, nvme and NVRM in the "
		       "kernel's log";
	case EIO:
		return "update cuFile to the version of the GPU's driver, and look for NVRM and "
		       "nvidia-fs in the kernel's log";
	case ENOMEM:
		return "free memory of the GPU, or give this user more";
	case EACCES:
	case EPERM:
		return "give this user or container /dev/nvidia-fs* and /dev/nvidia*";
	case EOPNOTSUPP:
	case ENODEV:
		return "the checks above say what is missing";
	default:
		return "PST_LOG=debug and cuFile's own log, which CUFILE_LOGFILE_PATH names, show "
		       "more";
	}
}

static void check_bad(struct gds_fact *f, int state, int err, const char *text)
{
	bool has_cure = strstr(text, "; ") != NULL;

	gds_say(f, state, -err, "%.250s%s%s", text, has_cure ? "" : "; ",
		has_cure ? "" : check_cure_of(err));
}

/* Distinguish errors caused by the machine from trials that could not run. */
static int check_state_of(int err)
{
	return err == -ETIMEDOUT || err == -EIO ? PST_CHECK_MISSING : PST_CHECK_UNKNOWN;
}

static void check_trial(struct gds_fact *f, const struct tried *t)
{
	const struct cufile_verdict *v = &t->v;

	if (t->err < 0)
		check_bad(f, check_state_of(t->err), t->err, t->why);
	else if (v->err < 0)
		check_bad(f, PST_CHECK_MISSING, v->err, v->text);
	else if (v->mode == CUFILE_MODE_COMPAT)
		check_bad(f, PST_CHECK_MISSING, -EOPNOTSUPP, v->text);
	else if (v->mode == CUFILE_MODE_UNKNOWN)
		check_bad(f, PST_CHECK_UNKNOWN, 0, v->text);
	else if (v->mode == CUFILE_MODE_NVFS)
		gds_say(f, PST_CHECK_OK, 0,
			"%llu bytes came directly, by nvidia-fs %u.%u, and were right",
			(unsigned long long)v->bytes, v->nvfs_major, v->nvfs_minor);
	else
		gds_say(f, PST_CHECK_OK, 0, "%llu bytes came directly, by %s, and were right",
			(unsigned long long)v->bytes, cufile_mode_name(v->mode));
}

static void file_freep(struct file **f)
{
	file_free(*f);
}

static int try_it(int fd, const struct pst_device *dev, uint64_t deadline_ns, struct tried *t)
{
	_cleanup_(file_freep) struct file *file = NULL;
	uint64_t size = 0;
	int r;

	if (!dev)
		return err_set(EINVAL, "a trial wants a device");
	r = local_file_wrap(fd, 0, &file);
	if (r == 0)
		r = file_size(file, &size);
	if (r < 0)
		return r == -EISDIR ? err_set(EINVAL, "a trial wants a file, not a directory") : r;
	if (!size)
		return err_set(EINVAL, "a trial wants a file that has bytes; this one is empty");
	t->was = true;
	t->err = cufile_probe(local_of(file), 0, dev->uuid, deadline_ns, &t->v);
	if (t->err < 0) {
		t->v = (struct cufile_verdict){ .err = 0 };
		(void)snprintf(t->why, sizeof(t->why), "%s", err_text());
	}
	return 0;
}

/* --------------------------------------------------------------------- all */

/*
 * Add all checks.  fd: a file; or a directory, if there is no trial.  dev: an NVIDIA GPU, or NULL
 * to check only the file's side.  trial_deadline_ns: when to give up the trial; 0: no trial.
 *
 * Return the number of checks; -EINVAL for a trial of something without bytes, or without a device;
 * -errno if fd cannot be examined.
 */
static int check_add_one(int fd, const struct pst_device *dev, uint64_t trial_deadline_ns,
			 struct gds_fact ret[GDS_CHECKS_MAX])
{
	struct gds_fact facts[GDS_FACTS_MAX];
	struct tried t = { .was = false };
	int nr = 0, n, r = 0, at = 0;

	if (trial_deadline_ns)
		r = try_it(fd, dev, trial_deadline_ns, &t);
	n = r < 0 ? r : gds_facts("", fd, dev ? dev->pci : NULL, facts);
	if (n < 0)
		return n;
	/* Put the library after the GPU and before the facts of the kernel. */
	if (n && !strcmp(facts[0].name, "gpu"))
		ret[nr++] = facts[at++];
	check_library(check_add(ret, &nr, "library"), &t);
	while (at < n)
		ret[nr++] = facts[at++];
	if (t.was)
		check_trial(check_add(ret, &nr, "trial"), &t);
	return nr;
}

/* ------------------------------------------------------------------- topic */

/* Find the GPU by name; NULL means none. */
static int check_find_gpu(const char *name, struct pst_device *ret)
{
	const struct mem_ops *ops;
	unsigned idx;
	int r = mem_find(name, &ops, &idx);

	if (r < 0)
		return r;
	if (ops->kind != PST_KIND_CUDA)
		return err_set(EINVAL, "%s is no NVIDIA GPU, and cuFile knows no others", name);
	ops->device_info(idx, ret);
	return 0;
}

static bool check_may_open(const struct stat *st)
{
	return S_ISREG(st->st_mode) || S_ISBLK(st->st_mode) || S_ISDIR(st->st_mode);
}

static int check_refuse(const char *path)
{
	return err_set(ENXIO, "%s is neither a regular file, a block device nor a directory", path);
}

/* Call stat() before opening: opening a FIFO or a device has side effects. */
static int open_path(const char *path)
{
	_cleanup_(closep) int fd = -1;
	struct stat st;

	if (scheme_len(path))
		return err_set(ENXIO,
			       "%s has no descriptor, which cuFile wants; a path that is called so "
			       "is given as ./%.64s",
			       path, path);
	if (stat(path, &st) < 0)
		return err_set(errno, "%s cannot be looked at: %s", path, err_name(errno));
	if (!check_may_open(&st))
		return check_refuse(path);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_set(errno, "%s cannot be opened for reading: %s", path, err_name(errno));
	/* The name may refer to another file by now. */
	return check_may_open(&st) ? TAKE_FD(fd) : check_refuse(path);
}

static int check_topic(const struct pst_check_opts *o, struct pst_check *ret)
{
	struct pst_device dev = { .sz = sizeof(dev) };
	struct gds_fact facts[GDS_CHECKS_MAX];
	_cleanup_(closep) int fd = -1;
	int r;

	if (!o->path)
		return err_set(EINVAL, "no path is given");
	r = o->device ? check_find_gpu(o->device, &dev) : 0;
	if (r < 0)
		return r;
	fd = open_path(o->path);
	if (fd < 0)
		return fd;
	r = check_add_one(fd, o->device ? &dev : NULL,
			  o->flags & PST_CHECK_TRIAL ? now_ns() + TRIAL_NS : 0, facts);
	for (int i = 0; i < r; i++) {
		ret[i] = (struct pst_check){ .sz = sizeof(ret[i]),
					     .state = (uint32_t)facts[i].state,
					     .err = facts[i].err };
		memcpy(ret[i].name, facts[i].name, sizeof(ret[i].name));
		memcpy(ret[i].text, facts[i].text, sizeof(ret[i].text));
	}
	return r;
}

const struct topic gds_topic = { "gds", check_topic, PST_CHECK_TRIAL };
