/* SPDX-License-Identifier: MIT */
/*
 * mount [-n PAIRS] [-m MS] [-f MIB] MOUNT SOURCE
 *
 * Measure rings and files of a mount.  MOUNT is a mount of penstock-mount; SOURCE is its source,
 * also prepared as a plain directory (penstock mount --plain).  A file of SOURCE is read from the
 * page cache in these ways:
 *
 *	through a ring of MOUNT, through a ring of SOURCE that this process serves itself, and by
 *	pread(2) on MOUNT: 4 KiB at random, several in flight; 1 MiB at random
 *	by read(2) of MOUNT and of SOURCE, in file order
 *
 * The ways take turns, in rotating order, so that other load affects all equally.  Adjacent turns
 * form pairs: the ratio is the median of the pairs' ratios, shown with the lowest and the highest.
 * After each turn the last bytes are compared with the file.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hf3fs_usrbio.h>

#include "base/base.h"
#include "die.h"
#include "machine.h"
#include "tools/common/spread.h"

#define DEPTH_MAX 64u
#define PAIRS_MAX 101u
#define SAMPLES (1u << 20)
#define BLOCK MIB(1) /* bytes of a read in file order */

static struct {
	const char *dir[2];
	uint64_t file;
	unsigned pairs, ms;
} set = { .file = MIB(256), .pairs = 9, .ms = 200 };

enum side { OF_MOUNT, OF_SOURCE };

/* Descriptor, buffer and ring of one side. */
struct lane {
	int fd;
	struct hf3fs_iov iov;
	struct hf3fs_ior ior;
};

static struct lane lanes[2];
static char paths[2][4096];

/* Work of the current row. */
static size_t size;
static unsigned depth;
static uint64_t offs[DEPTH_MAX], next_off, dice = 88172645463325252u;
static uint32_t ns_of[SAMPLES];

/* ------------------------------------------------------------------- ways */

static char *mount_place(const struct lane *l, unsigned i)
{
	return (char *)l->iov.base + i * size;
}

static bool mount_by_ring(struct lane *l)
{
	struct hf3fs_cqe cqes[DEPTH_MAX];

	for (unsigned i = 0; i < depth; i++)
		if (hf3fs_prep_io(&l->ior, &l->iov, true, mount_place(l, i), l->fd, offs[i], size,
				  NULL) < 0)
			return false;
	if (hf3fs_submit_ios(&l->ior) < 0 ||
	    hf3fs_wait_for_ios(&l->ior, cqes, (int)depth, (int)depth, NULL) != (int)depth)
		return false;
	for (unsigned i = 0; i < depth; i++)
		if (cqes[i].result != (int64_t)size)
			return false;
	return true;
}

static bool by_pread(struct lane *l)
{
	for (unsigned i = 0; i < depth; i++)
		if (pread(l->fd, mount_place(l, i), size, (off_t)offs[i]) != (ssize_t)size)
			return false;
	return true;
}

static const struct way {
	const char *name;
	bool (*fn)(struct lane *l);
	enum side side;
} ring_of_mount = { "ring of the mount", mount_by_ring, OF_MOUNT },
  ring_of_source = { "ring in the process", mount_by_ring, OF_SOURCE },
  pread_of_mount = { "pread on the mount", by_pread, OF_MOUNT },
  pread_of_source = { "read of the source", by_pread, OF_SOURCE };

/* Each row's other ways are compared with its first way. */
static const struct row {
	const char *name;
	size_t size;
	unsigned depth;
	bool in_order;
	const struct way *ways[3];
} rows[] = {
	{ "4 KiB", KIB(4), 1, false, { &ring_of_mount, &ring_of_source, &pread_of_mount } },
	{ "4 KiB", KIB(4), 16, false, { &ring_of_mount, &ring_of_source, &pread_of_mount } },
	{ "4 KiB", KIB(4), 64, false, { &ring_of_mount, &ring_of_source, &pread_of_mount } },
	{ "1 MiB", MIB(1), 1, false, { &ring_of_mount, &ring_of_source, &pread_of_mount } },
	{ "1 MiB", MIB(1), 4, false, { &ring_of_mount, &ring_of_source, &pread_of_mount } },
	{ "1 MiB, in order", BLOCK, 1, true, { &pread_of_mount, &pread_of_source, NULL } },
};

/* ------------------------------------------------------------------ turns */

struct turn {
	double rate; /* reads per second */
	double p50_us, p99_us;
};

static uint64_t mount_choose(bool in_order)
{
	const uint64_t blocks = set.file / size;

	if (in_order)
		return next_off++ % blocks * size;
	dice ^= dice << 13;
	dice ^= dice >> 7;
	dice ^= dice << 17;
	return dice % blocks * size;
}

/* Check the bytes: each eight bytes of the file contain their own offset. */
static bool mount_is_right(const struct lane *l)
{
	for (unsigned i = 0; i < depth; i++)
		for (uint64_t at = 0; at + 8 <= size; at += 8)
			if (*(const uint64_t *)(mount_place(l, i) + at) != offs[i] + at)
				return false;
	return true;
}

static struct turn mount_take_turn(const struct way *w, bool in_order)
{
	struct lane *l = &lanes[w->side];
	uint64_t start = now_ns(), from, end;
	uint64_t reads = 0, nr = 0;
	struct latency took;

	next_off = 0;
	do {
		for (unsigned i = 0; i < depth; i++)
			offs[i] = mount_choose(in_order);
		from = now_ns();
		if (!w->fn(l))
			die("a read failed: %s", w->name);
		end = now_ns();
		reads += depth;
		if (nr < SAMPLES)
			ns_of[nr++] = latency_sample(end - from);
	} while (end - start < set.ms * NSEC_PER_MSEC);
	if (!mount_is_right(l))
		die("a read gave other bytes than the file has: %s", w->name);
	took = latency_of(ns_of, nr);
	return (struct turn){
		.rate = (double)reads * 1e9 / (double)(end - start),
		.p50_us = took.p50_us,
		.p99_us = took.p99_us,
	};
}

/* ----------------------------------------------------------------- report */

static void mount_report(const struct row *r, struct turn t[3][PAIRS_MAX])
{
	for (unsigned k = 0; k < 3 && r->ways[k]; k++) {
		double rate[PAIRS_MAX], p50[PAIRS_MAX], p99[PAIRS_MAX], ratio[PAIRS_MAX];
		struct spread s;

		for (unsigned i = 0; i < set.pairs; i++) {
			rate[i] = t[k][i].rate;
			p50[i] = t[k][i].p50_us;
			p99[i] = t[k][i].p99_us;
			ratio[i] = t[0][i].rate / t[k][i].rate;
		}
		(void)printf("%-16s %5u  %-20s %10.0f", r->name, r->depth, r->ways[k]->name,
			     median_of(rate, set.pairs));
		s = spread_of(p50, set.pairs);
		(void)printf(" %9.2f %9.2f %9.2f", s.median, s.lowest, s.highest);
		(void)printf(" %9.1f", median_of(p99, set.pairs));
		s = spread_of(ratio, set.pairs);
		if (k)
			(void)printf(" %7.3f %7.3f %7.3f", s.median, s.lowest, s.highest);
		(void)putchar('\n');
		(void)fflush(stdout);
	}
}

static void mount_run(const struct row *r)
{
	static struct turn t[3][PAIRS_MAX];
	unsigned nr = r->ways[2] ? 3 : 2;

	size = r->size;
	depth = r->depth;
	for (unsigned i = 0; i < set.pairs; i++)
		for (unsigned k = 0; k < nr; k++) {
			unsigned way = (i + k) % nr;

			t[way][i] = mount_take_turn(r->ways[way], r->in_order);
		}
	mount_report(r, t);
}

static void mount_print_head(void)
{
	bench_print_machine();
	(void)printf("file     %u MiB of %s, in the page cache; one thread, host memory\n",
		     (unsigned)(set.file >> 20), set.dir[OF_SOURCE]);
	(void)printf("turns    %u of %u ms of each way\n\n", set.pairs, set.ms);
	(void)printf("%-16s %5s  %-20s %10s %9s %9s %9s %9s %7s %7s %7s\n", "reads", "depth", "way",
		     "reads/s", "p50 us", "lowest", "highest", "p99 us", "ratio", "lowest",
		     "highest");
}

/* ------------------------------------------------------------------ set up */

static void mount_drop_file(void)
{
	(void)unlink(paths[OF_SOURCE]);
}

static void mount_make_file(void)
{
	uint64_t *buf = malloc(BLOCK);
	int fd;

	for (unsigned s = 0; s < 2; s++)
		(void)snprintf(paths[s], sizeof(paths[s]), "%s/mount-bench.%d", set.dir[s],
			       (int)getpid());
	fd = open(paths[OF_SOURCE], O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || !buf)
		die("%s: %s", paths[OF_SOURCE], strerror(errno));
	(void)atexit(mount_drop_file);
	for (uint64_t off = 0; off < set.file; off += BLOCK) {
		for (size_t i = 0; i < BLOCK / 8; i++)
			buf[i] = off + i * 8;
		if (pwrite(fd, buf, BLOCK, (off_t)off) != (ssize_t)BLOCK)
			die("%s cannot be written: %s", paths[OF_SOURCE], strerror(errno));
	}
	if (fsync(fd) < 0 || close(fd) < 0)
		die("%s: %s", paths[OF_SOURCE], strerror(errno));
	free(buf);
}

static void mount_open_lane(struct lane *l, enum side s)
{
	const size_t bytes = MAX(DEPTH_MAX * KIB(4), 4 * MIB(1));
	int r;

	l->fd = open(paths[s], O_RDONLY | O_CLOEXEC);
	if (l->fd < 0)
		die("%s: %s", paths[s], strerror(errno));
	r = hf3fs_reg_fd(l->fd, 0);
	if (r > 0)
		die("%s is on no mount and in no plain directory: %s", paths[s], strerror(r));
	r = hf3fs_iovcreate(&l->iov, set.dir[s], bytes, 0, -1);
	if (r == 0)
		r = hf3fs_iorcreate(&l->ior, set.dir[s], (int)DEPTH_MAX, true, 0, -1);
	if (r < 0)
		die("%s has no rings: %s", set.dir[s], strerror(-r));
}

static void close_lane(struct lane *l)
{
	hf3fs_iordestroy(&l->ior);
	hf3fs_iovdestroy(&l->iov);
	hf3fs_dereg_fd(l->fd);
	(void)close(l->fd);
}

int main(int argc, char **argv)
{
	int c;

	while ((c = getopt(argc, argv, "n:m:f:")) != -1) {
		if (c == 'n')
			set.pairs = number(optarg, 1, PAIRS_MAX);
		else if (c == 'm')
			set.ms = number(optarg, 1, 60000);
		else if (c == 'f')
			set.file = MIB(number(optarg, 8, 1u << 20));
		else
			return 2;
	}
	if (optind + 2 != argc) {
		(void)fputs("Usage: mount [-n PAIRS] [-m MS] [-f MIB] MOUNT SOURCE\n", stderr);
		return 2;
	}
	set.dir[OF_MOUNT] = argv[optind];
	set.dir[OF_SOURCE] = argv[optind + 1];
	mount_make_file();
	for (unsigned s = 0; s < 2; s++)
		mount_open_lane(&lanes[s], (enum side)s);
	mount_print_head();
	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++)
		mount_run(&rows[i]);
	bench_print_load();
	for (unsigned s = 0; s < 2; s++)
		close_lane(&lanes[s]);
	return 0;
}
