/* SPDX-License-Identifier: MIT */
/*
 * Compare random reads through usrbio rings with pread(2), and with io_uring using a registered
 * file and registered buffers.  Uses only <hf3fs_usrbio.h>, so it runs on a plain directory and on
 * a mount of 3FS.
 *
 * Each thread has its own ring, buffer and io_uring, and reads in batches: start all reads of a
 * batch, then wait for all of them.  The time of a batch is from its first call to its last byte.
 * The three ways take turns, so that other load affects all equally; the rate is the median of the
 * turns.  After each turn the last batch is compared with the file.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <liburing.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <hf3fs_usrbio.h>
#include <penstock.h>

#include "base/base.h"
#include "die.h"
#include "machine.h"
#include "tools/common/spread.h"

#define BATCH_MAX 64u
#define THREADS_MAX 64u
#define TURNS_MAX 101u
#define SAMPLES (1u << 21) /* times of batches, per thread and row */

static const char usage[] =
	"Usage: usrbio [OPTION...] DIR\n"
	"\n"
	"Random reads out of the page cache, from a file that is made in DIR: a plain\n"
	"directory (penstock mount --plain DIR), or one of a mount of 3FS.\n"
	"\n"
	"  -s BYTES    of a read (default 4096)\n"
	"  -f MIB      of the file (default 256)\n"
	"  -t THREADS  (default 1)\n"
	"  -n TURNS    of each way (default 9)\n"
	"  -m MS       of a turn (default 300)\n";

static struct {
	const char *dir;
	uint64_t size, file;
	unsigned threads, turns, ms;
} set = { .size = 4096, .file = 256u << 20, .threads = 1, .turns = 9, .ms = 300 };

struct lane {
	pthread_t thread;
	struct hf3fs_iov iov;
	struct hf3fs_ior ior;
	struct io_uring uring;
	uint64_t random;
	uint64_t off[BATCH_MAX];
	uint32_t *ns; /* ns per batch */
	size_t nr_ns;
	uint64_t reads;  /* reads in this turn */
	const char *why; /* first failure; NULL: none */
};

static struct lane lanes[THREADS_MAX];
static char path[4096], mount[256];
static int fd = -1;

/* Current work of the threads. */
static unsigned batch;
static bool (*way)(struct lane *l);
static uint64_t turn_end;

/* ------------------------------------------------------------------- ways */

static char *usrbio_place(const struct lane *l, unsigned i)
{
	return (char *)l->iov.base + i * set.size;
}

static bool usrbio_by_pread(struct lane *l)
{
	for (unsigned i = 0; i < batch; i++)
		if (pread(fd, usrbio_place(l, i), set.size, (off_t)l->off[i]) != (ssize_t)set.size)
			return false;
	return true;
}

static bool by_uring(struct lane *l)
{
	struct io_uring_cqe *cqe;
	unsigned head, n = 0;
	bool good = true;

	for (unsigned i = 0; i < batch; i++) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(&l->uring);

		io_uring_prep_read_fixed(sqe, 0, usrbio_place(l, i), (unsigned)set.size, l->off[i],
					 0);
		sqe->flags |= IOSQE_FIXED_FILE;
	}
	if (io_uring_submit_and_wait(&l->uring, batch) != (int)batch)
		return false;
	io_uring_for_each_cqe(&l->uring, head, cqe)
	{
		good &= cqe->res == (int)set.size;
		n++;
	}
	io_uring_cq_advance(&l->uring, n);
	return good && n == batch;
}

static bool usrbio_by_ring(struct lane *l)
{
	struct hf3fs_cqe cqes[BATCH_MAX];

	for (unsigned i = 0; i < batch; i++)
		if (hf3fs_prep_io(&l->ior, &l->iov, true, usrbio_place(l, i), fd, l->off[i],
				  set.size, NULL) < 0)
			return false;
	if (hf3fs_submit_ios(&l->ior) < 0 ||
	    hf3fs_wait_for_ios(&l->ior, cqes, (int)batch, (int)batch, NULL) != (int)batch)
		return false;
	for (unsigned i = 0; i < batch; i++)
		if (cqes[i].result != (int64_t)set.size)
			return false;
	return true;
}

static const struct {
	const char *name;
	bool (*fn)(struct lane *l);
} ways[] = { { "pread", usrbio_by_pread }, { "io_uring", by_uring }, { "ring", usrbio_by_ring } };

static const unsigned batches[] = { 1, 16, 64 };

/* ------------------------------------------------------------------ turns */

struct row {
	double rate[TURNS_MAX]; /* reads per second, per turn */
	double median;
	struct latency latency;
	uint32_t paths;
};

static struct row rows[ARRAY_SIZE(batches)][ARRAY_SIZE(ways)];

static void usrbio_choose(struct lane *l)
{
	for (unsigned i = 0; i < batch; i++) {
		l->random ^= l->random << 13;
		l->random ^= l->random >> 7;
		l->random ^= l->random << 17;
		l->off[i] = l->random % (set.file / set.size) * set.size;
	}
}

/* Check the last batch: each eight bytes of the file contain their own offset. */
static bool usrbio_verify(const struct lane *l)
{
	for (unsigned i = 0; i < batch; i++)
		for (uint64_t at = 0; at + 8 <= set.size; at += 8)
			if (*(const uint64_t *)(usrbio_place(l, i) + at) != l->off[i] + at)
				return false;
	return true;
}

static void *run_lane(void *arg)
{
	struct lane *l = arg;
	uint64_t start, end;

	l->reads = 0;
	do {
		usrbio_choose(l);
		start = now_ns();
		if (!way(l)) {
			l->why = "a read failed";
			return NULL;
		}
		end = now_ns();
		l->reads += batch;
		if (l->nr_ns < SAMPLES)
			l->ns[l->nr_ns++] = (uint32_t)(end - start);
	} while (end < turn_end);
	if (!usrbio_verify(l))
		l->why = "a read gave other bytes than the file has";
	return NULL;
}

static uint32_t paths_taken(struct pst_stats *before)
{
	struct pst_stats now = { .sz = sizeof(now) };
	uint32_t set_of = 0;

	(void)pst_stats(NULL, &now);
	for (unsigned i = 0; i <= PST_PATH_MAX; i++)
		if (now.bytes[i] > before->bytes[i])
			set_of |= PST_PATH_BIT(i);
	*before = now;
	return set_of;
}

/* Run one turn of one way; append its times to ns. */
static void usrbio_turn(struct row *row, unsigned nr)
{
	static struct pst_stats st = { .sz = sizeof(st) };
	uint64_t start = now_ns(), reads = 0;

	turn_end = start + set.ms * UINT64_C(1000000);
	for (unsigned i = 0; i < set.threads; i++)
		if (pthread_create(&lanes[i].thread, NULL, run_lane, &lanes[i]))
			die("no thread");
	for (unsigned i = 0; i < set.threads; i++) {
		(void)pthread_join(lanes[i].thread, NULL);
		reads += lanes[i].reads;
	}
	for (unsigned i = 0; i < set.threads; i++)
		if (lanes[i].why)
			die("%s", lanes[i].why);
	row->rate[nr] = (double)reads * 1e9 / (double)(now_ns() - start);
	row->paths |= paths_taken(&st);
}

/* Summarize the samples of all threads and turns of a row. */
static void sum_up(struct row *row, uint32_t *all, size_t nr)
{
	row->median = median_of(row->rate, set.turns);
	row->latency = latency_of(all, nr);
}

/* Run all ways with one batch size, in turns. */
static void usrbio_run_batch(unsigned b)
{
	/* Samples of each way over all turns: the lanes only keep those of one turn. */
	uint32_t *all[ARRAY_SIZE(ways)];
	size_t nr[ARRAY_SIZE(ways)] = { 0 };
	const size_t room = (size_t)SAMPLES * set.threads;

	for (unsigned k = 0; k < ARRAY_SIZE(ways); k++) {
		all[k] = malloc(room * sizeof(uint32_t));
		if (!all[k])
			die("no memory");
	}
	batch = batches[b];
	for (unsigned t = 0; t < set.turns; t++) {
		for (unsigned k = 0; k < ARRAY_SIZE(ways); k++) {
			way = ways[k].fn;
			usrbio_turn(&rows[b][k], t);
			for (unsigned i = 0; i < set.threads; i++) {
				size_t n = lanes[i].nr_ns;

				n = n < room - nr[k] ? n : room - nr[k];
				memcpy(all[k] + nr[k], lanes[i].ns, n * sizeof(uint32_t));
				nr[k] += n;
				lanes[i].nr_ns = 0;
			}
		}
	}
	for (unsigned k = 0; k < ARRAY_SIZE(ways); k++) {
		sum_up(&rows[b][k], all[k], nr[k]);
		free(all[k]);
	}
}

/* ---------------------------------------------------------------- set up */

static void usrbio_drop_file(void)
{
	(void)unlink(path);
}

static void usrbio_make_file(void)
{
	const size_t step = 1u << 20;
	uint64_t *buf = malloc(step);

	(void)snprintf(path, sizeof(path), "%s/usrbio-bench.%d", set.dir, (int)getpid());
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || !buf)
		die("%s: %s", path, strerror(errno));
	(void)atexit(usrbio_drop_file);
	for (uint64_t off = 0; off < set.file; off += step) {
		for (size_t i = 0; i < step / 8; i++)
			buf[i] = off + i * 8;
		if (pwrite(fd, buf, step, (off_t)off) != (ssize_t)step)
			die("%s cannot be written: %s", path, strerror(errno));
	}
	if (fsync(fd) < 0)
		die("%s: %s", path, strerror(errno));
	for (uint64_t off = 0; off < set.file; off += step)
		if (pread(fd, buf, step, (off_t)off) != (ssize_t)step)
			die("%s cannot be read: %s", path, strerror(errno));
	free(buf);
}

static void usrbio_check(const char *what, int r)
{
	if (r < 0)
		die("%s: %s", what, strerror(-r));
}

static void make_uring(struct lane *l)
{
	struct iovec buf = { l->iov.base, BATCH_MAX * set.size };
	int r = io_uring_queue_init(BATCH_MAX, &l->uring, IORING_SETUP_COOP_TASKRUN);

	if (r == -EINVAL)
		r = io_uring_queue_init(BATCH_MAX, &l->uring, 0);
	usrbio_check("io_uring", r);
	usrbio_check("io_uring's registration of a file",
		     io_uring_register_files(&l->uring, &fd, 1));
	usrbio_check("io_uring's registration of memory",
		     io_uring_register_buffers(&l->uring, &buf, 1));
}

static void make_lanes(void)
{
	int r = hf3fs_extract_mount_point(mount, sizeof(mount), set.dir);

	if (r < 0 || r > (int)sizeof(mount))
		die("%s is no plain directory and on no mount of 3FS; penstock mount --plain %s "
		    "makes it one",
		    set.dir, set.dir);
	r = hf3fs_reg_fd(fd, 0);
	if (r > 0)
		die("%s cannot be registered: %s", path, strerror(r));
	for (unsigned i = 0; i < set.threads; i++) {
		struct lane *l = &lanes[i];

		l->random = 88172645463325252u + i;
		l->ns = malloc(SAMPLES * sizeof(*l->ns));
		if (!l->ns)
			die("no memory");
		usrbio_check("hf3fs_iovcreate",
			     hf3fs_iovcreate(&l->iov, mount, BATCH_MAX * set.size, 0, -1));
		usrbio_check("hf3fs_iorcreate",
			     hf3fs_iorcreate(&l->ior, mount, (int)BATCH_MAX, true, 0, -1));
		make_uring(l);
	}
}

static void free_lanes(void)
{
	for (unsigned i = 0; i < set.threads; i++) {
		io_uring_queue_exit(&lanes[i].uring);
		hf3fs_iordestroy(&lanes[i].ior);
		hf3fs_iovdestroy(&lanes[i].iov);
		free(lanes[i].ns);
	}
	hf3fs_dereg_fd(fd);
}

/* ----------------------------------------------------------------- report */

static double usrbio_resident(void)
{
	size_t pages = (size_t)(set.file / 4096), in = 0;
	unsigned char *vec = malloc(pages);
	void *p = mmap(NULL, (size_t)set.file, PROT_READ, MAP_SHARED, fd, 0);

	if (vec && p != MAP_FAILED && mincore(p, (size_t)set.file, vec) == 0)
		for (size_t i = 0; i < pages; i++)
			in += vec[i] & 1;
	if (p != MAP_FAILED)
		(void)munmap(p, (size_t)set.file);
	free(vec);
	return 100.0 * (double)in / (double)pages;
}

static void usrbio_print_machine(void)
{
	struct statfs fs = { 0 };

	(void)fstatfs(fd, &fs);
	bench_print_machine();
	(void)printf("file     %" PRIu64 " MiB, file system 0x%lx, %.0f %% in the page cache\n",
		     set.file >> 20, (unsigned long)fs.f_type, usrbio_resident());
	(void)printf("reads    %" PRIu64 " bytes at random, %u thread%s, host memory\n", set.size,
		     set.threads, set.threads == 1 ? "" : "s");
	(void)printf("turns    %u of %u ms of each way, libpenstock %s\n\n", set.turns, set.ms,
		     pst_version());
}

static void print_rows(void)
{
	(void)printf("%-9s %5s %12s %13s %13s  %s\n", "way", "batch", "reads/s", "p50 us/batch",
		     "p99 us/batch", "path");
	for (unsigned b = 0; b < ARRAY_SIZE(batches); b++)
		for (unsigned k = 0; k < ARRAY_SIZE(ways); k++) {
			const struct row *r = &rows[b][k];

			(void)printf("%-9s %5u %12.0f %13.2f %13.2f  ", ways[k].name, batches[b],
				     r->median, r->latency.p50_us, r->latency.p99_us);
			for (uint32_t p = 0; p <= PST_PATH_MAX; p++)
				if (r->paths & PST_PATH_BIT(p))
					(void)printf("%s ", pst_path_name(p));
			(void)putchar('\n');
		}
}

int main(int argc, char **argv)
{
	int c;

	while ((c = getopt(argc, argv, "s:f:t:n:m:")) != -1) {
		switch (c) {
		case 's':
			set.size = number(optarg, 512, 1u << 24);
			break;
		case 'f':
			set.file = (uint64_t)number(optarg, 1, 1u << 20) << 20;
			break;
		case 't':
			set.threads = number(optarg, 1, THREADS_MAX);
			break;
		case 'n':
			set.turns = number(optarg, 1, TURNS_MAX);
			break;
		case 'm':
			set.ms = number(optarg, 1, 60000);
			break;
		default:
			(void)fputs(usage, stderr);
			return 2;
		}
	}
	if (optind + 1 != argc || set.size % 8 || set.file < set.size) {
		(void)fputs(usage, stderr);
		return 2;
	}
	set.dir = argv[optind];
	usrbio_make_file();
	make_lanes();
	usrbio_print_machine();
	for (unsigned b = 0; b < ARRAY_SIZE(batches); b++)
		usrbio_run_batch(b);
	print_rows();
	free_lanes();
	return 0;
}
