/* SPDX-License-Identifier: MIT */
/* Build the verdict of three lines: the working paths, their limits, the next step. */
#include "cli/doctor/doctor.h"

#include <stdarg.h>

/* The last two of the three lines, while they are built. */
struct lines {
	char limits[600], next[600];
};

static bool is_accelerator(const struct device_report *dr)
{
	return dr->dev.kind == PST_KIND_CUDA;
}

/* Return the device that a user cares about most: an accelerator, else the software device. */
static const struct device_report *main_device(const struct report *rep)
{
	const struct device_report *best = NULL;

	for (unsigned i = 0; i < rep->nr_devs; i++) {
		if (is_accelerator(&rep->devs[i]))
			return &rep->devs[i];
		if (!best || rep->devs[i].dev.kind == PST_KIND_SOFT)
			best = &rep->devs[i];
	}
	return best;
}

/* Append a clause to a line, separated by "; ". */
_printf_(3, 4) static void clause(char *buf, size_t len, const char *fmt, ...)
{
	size_t n = strlen(buf);
	va_list ap;

	if (n && n + 3 < len) {
		(void)strcpy(buf + n, "; ");
		n += 2;
	}
	va_start(ap, fmt);
	(void)vsnprintf(buf + n, len - n, fmt, ap);
	va_end(ap);
}

#define LIMIT(l, ...) clause((l)->limits, sizeof((l)->limits), __VA_ARGS__)
#define NEXT(l, ...) clause((l)->next, sizeof((l)->next), __VA_ARGS__)

/* Return why the simplest requests fail on a device; "" if they work. */
static const char *broken(const struct device_report *dr)
{
	const struct trial *rd = &dr->t.auto_read, *wr = &dr->t.auto_write;

	if (*dr->error)
		return dr->error;
	if (rd->state != PST_STATE_PROVEN)
		return rd->error;
	return wr->state != PST_STATE_PROVEN ? wr->error : "";
}

static void judge_main(struct report *rep, const struct device_report *dr, struct lines *l)
{
	const struct trial *rd, *wr;
	size_t len = sizeof(rep->verdict[0]);
	char *line = rep->verdict[0];

	if (!dr) {
		(void)snprintf(line, len, "BAD: no memory is to be had, not even the host's");
		return;
	}
	rd = &dr->t.auto_read;
	wr = &dr->t.auto_write;
	if (*rep->dir_error) {
		(void)snprintf(line, len, "BAD: no file to try with: %s", rep->dir_error);
		NEXT(l, "name a directory that you may write to: penstock doctor --dir DIR");
		return;
	}
	if (*broken(dr)) {
		(void)snprintf(line, len, "BAD: files do not reach %s: %s", dr->dev.name,
			       broken(dr));
		NEXT(l, "PST_LOG=debug penstock doctor shows each step");
		return;
	}
	rep->ok = true;
	(void)snprintf(line, len, "OK: files reach %s by %s and leave it by %s%s", dr->dev.name,
		       paths_text(rd->paths).s, paths_text(wr->paths).s,
		       dr->dev.kind == PST_KIND_SOFT
			       ? " (an emulator in host memory: no accelerator is served here)"
			       : "");
	if (rd->why)
		LIMIT(l, "%s", why_text(rd->why, rd->detail).s);
	if (wr->why && wr->why != rd->why)
		LIMIT(l, "writes: %s", why_text(wr->why, wr->detail).s);
}

/* Report GPUs without a working driver, and accelerators other than first that cannot reach
 * files. */
static void judge_gpus(const struct report *rep, const struct device_report *first, struct lines *l)
{
	const struct gpus *g = &rep->nvidia;

	if (*rep->no_cuda && g->nr) {
		LIMIT(l, "%s at PCI %s%s not served: %s",
		      g->nr == 1 ? "the NVIDIA GPU" : "NVIDIA GPUs", g->first,
		      g->nr == 1 ? " is" : " and others are", rep->no_cuda);
		NEXT(l, "give this process the GPU's driver: libcuda.so.1 and /dev/nvidia*, as "
			"docker run --gpus all does");
	}
	for (unsigned i = 0; i < rep->nr_devs && !*rep->dir_error; i++) {
		const struct device_report *dr = &rep->devs[i];

		if (is_accelerator(dr) && dr != first && *broken(dr))
			LIMIT(l, "files do not reach %s: %s", dr->dev.name, broken(dr));
	}
}

static void judge_stores(const struct report *rep, struct lines *l)
{
	if (*rep->uring) {
		LIMIT(l, "%s%s", rep->uring, *rep->threads ? "" : "; threads are used");
		if (rep->l.uring_disabled > 0)
			NEXT(l, "sysctl -w kernel.io_uring_disabled=0 allows io_uring");
		else if (*rep->l.container)
			NEXT(l, "start the container with a seccomp profile that allows io_uring");
	}
	if (*rep->threads)
		LIMIT(l, "%s", rep->threads);
}

static void judge_limits(const struct limits *lim, struct lines *l)
{
	/* The limit does not bind root. */
	if (lim->memlock < MIB(64) && geteuid() != 0) {
		LIMIT(l, "only %s of memory may be locked", size_text(lim->memlock).s);
		NEXT(l, "raise the memlock limit (ulimit -l, or LimitMEMLOCK= of a service)");
	}
	if (lim->as < GIB(16))
		LIMIT(l, "the address space is limited to %s", size_text(lim->as).s);
	if (lim->nofile < 1024)
		LIMIT(l, "only %llu descriptors may be open", (unsigned long long)lim->nofile);
}

void doctor_judge(struct report *rep)
{
	const struct device_report *dr = main_device(rep);
	struct lines l = { "", "" };

	judge_main(rep, dr, &l);
	judge_gpus(rep, dr, &l);
	judge_stores(rep, &l);
	judge_limits(&rep->l, &l);
	(void)snprintf(rep->verdict[1], sizeof(rep->verdict[1]), "LIMITS: %s",
		       *l.limits ? l.limits : "none found");
	if (!*l.next)
		NEXT(&l, "penstock demo");
	(void)snprintf(rep->verdict[2], sizeof(rep->verdict[2]), "NEXT: %s", l.next);
}
