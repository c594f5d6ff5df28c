/* SPDX-License-Identifier: MIT */
/*
 * Checks of a direct way.  The library is looked for and not loaded: it opens devices, starts
 * threads and may hang.  The process of the trial tells its version.
 */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "gds/path/check.h"
#include "gds/cufile/cufile.h"

#define LIBRARY_CURE                                                                              \
	"install it: on Debian and Ubuntu libcufile-13-0 of NVIDIA's repository, or the package " \
	"cuda-toolkit; for Python pip install nvidia-cufile, and name its libcufile.so.0 by "     \
	"PST_LIBCUFILE"

/* What the trial came to. */
struct tried {
	bool was;
	int err; /* -errno: there is no verdict, and why says why not */
	char why[300];
	struct cufile_verdict v;
};

static struct gds_fact *add(struct gds_fact *all, int *nr, const char *name)
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
		/* Its own cure is shorter and says less. */
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

/* What to do where the sentence itself does not say it. */
static const char *cure_of(int err)
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

static void bad(struct gds_fact *f, int state, int err, const char *text)
{
	bool has_cure = strstr(text, "; ") != NULL;

	gds_say(f, state, -err, "%.250s%s%s", text, has_cure ? "" : "; ",
		has_cure ? "" : cure_of(err));
}

/* Did it fail because of the machine, or could it not be made? */
static int state_of(int err)
{
	return err == -ETIMEDOUT || err == -EIO ? PST_CHECK_MISSING : PST_CHECK_UNKNOWN;
}

static void check_trial(struct gds_fact *f, const struct tried *t)
{
	const struct cufile_verdict *v = &t->v;

	if (t->err < 0)
		bad(f, state_of(t->err), t->err, t->why);
	else if (v->err < 0)
		bad(f, PST_CHECK_MISSING, v->err, v->text);
	else if (v->mode == CUFILE_MODE_COMPAT)
		bad(f, PST_CHECK_MISSING, -EOPNOTSUPP, v->text);
	else if (v->mode == CUFILE_MODE_UNKNOWN)
		bad(f, PST_CHECK_UNKNOWN, 0, v->text);
	else if (v->mode == CUFILE_MODE_NVFS)
		gds_say(f, PST_CHECK_OK, 0,
			"%llu bytes came directly, by nvidia-fs %u.%u, and were right",
			(unsigned long long)v->bytes, v->nvfs_major, v->nvfs_minor);
	else
		gds_say(f, PST_CHECK_OK, 0, "%llu bytes came directly, by %s, and were right",
			(unsigned long long)v->bytes, cufile_mode_name(v->mode));
}

static void local_file_freep(struct local_file **f)
{
	local_file_free(*f);
}

static int try_it(int fd, const struct pst_device *dev, uint64_t deadline_ns, struct tried *t)
{
	_cleanup_(local_file_freep) struct local_file *lf = NULL;
	uint64_t size = 0;
	int r;

	if (!dev)
		return err_set(EINVAL, "a trial wants a device");
	r = local_file_wrap(fd, 0, &lf);
	if (r == 0)
		r = local_file_size(lf, &size);
	if (r < 0)
		return r == -EISDIR ? err_set(EINVAL, "a trial wants a file, not a directory") : r;
	if (!size)
		return err_set(EINVAL, "a trial wants a file that has bytes; this one is empty");
	t->was = true;
	t->err = cufile_probe(lf, 0, dev->uuid, deadline_ns, &t->v);
	if (t->err < 0) {
		t->v = (struct cufile_verdict){ .err = 0 };
		(void)snprintf(t->why, sizeof(t->why), "%s", err_text());
	}
	return 0;
}

/* --------------------------------------------------------------------- all */

int gds_check(int fd, const struct pst_device *dev, uint64_t trial_deadline_ns,
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
	/* The library stands behind the GPU, and before what the kernel has for it. */
	if (n && !strcmp(facts[0].name, "gpu"))
		ret[nr++] = facts[at++];
	check_library(add(ret, &nr, "library"), &t);
	while (at < n)
		ret[nr++] = facts[at++];
	if (t.was)
		check_trial(add(ret, &nr, "trial"), &t);
	return nr;
}
