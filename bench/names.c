/* SPDX-License-Identifier: MIT */
/*
 * names [-n TURNS] [-m MS] [-t THREADS] [-o OPERATION] NAME=DIR...
 *
 * Measure operations on names in directories that show the same files in different ways.  The first
 * directory is the source, and the others are mounts of it.  NAME:PID=DIR gives the mount's server,
 * whose CPU time is then measured as well.
 *
 * The directories take turns, in rotating order, so that other load affects all equally.  Each
 * thread works in its own folder.  The time of an operation is the median of the turns' medians;
 * the p99 is the median of the turns' p99.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "die.h"
#include "machine.h"
#include "tools/common/spread.h"

#define SIDES_MAX 8u
#define TURNS_MAX 101u
#define THREADS_MAX 64u
#define SAMPLES (1u << 16) /* samples of one thread in one turn */
#define ENTRIES 1000u      /* entries of the folder that readdir reads */
#define BATCH 64u          /* files created before they are removed */
#define BYTES 512u         /* bytes of a small write */

struct side {
	const char *name, *dir;
	pid_t server; /* server of the mount; 0: none */
};

static struct side sides[SIDES_MAX];
static unsigned nr_sides;

static struct {
	unsigned turns, ms, threads;
	const char *only; /* the only operation; NULL: all operations */
} set = { .turns = 9, .ms = 100, .threads = 1 };

/* A thread during one turn. */
struct job {
	pthread_t thread;
	const struct op *op;
	int dir; /* descriptor of the thread's folder, on this turn's side */
	unsigned nr;
	uint64_t end;
	uint32_t ns[SAMPLES];
};

static struct job *jobs;
static pthread_barrier_t start_line;

/* ------------------------------------------------------------- operations */

static void names_fail(const char *what)
{
	die("%s: %s", what, strerror(errno));
}

static void sample(struct job *j, uint64_t from)
{
	j->end = now_ns();
	if (j->nr < SAMPLES)
		j->ns[j->nr++] = (uint32_t)MIN(j->end - from, UINT32_MAX);
}

/* Stat a name; the kernel may answer from its cache. */
static void op_stat(struct job *j)
{
	uint64_t from = now_ns();
	struct stat st;

	if (fstatat(j->dir, "file", &st, 0) < 0)
		names_fail("stat");
	sample(j, from);
}

/* Stat a name so that the kernel must ask the server for the attributes. */
static void op_stat_sync(struct job *j)
{
	uint64_t from = now_ns();
	struct statx st;

	if (statx(j->dir, "file", AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &st) < 0)
		names_fail("statx");
	sample(j, from);
}

static void op_open(struct job *j)
{
	uint64_t from = now_ns();
	int fd = openat(j->dir, "file", O_RDONLY | O_CLOEXEC);

	if (fd < 0 || close(fd) < 0)
		names_fail("open");
	sample(j, from);
}

static void names_new_name(char name[32], unsigned i)
{
	(void)snprintf(name, 32, "new.%u", i);
}

static void names_make(struct job *j, const char *name, size_t bytes)
{
	static const char buf[BYTES];
	int fd = openat(j->dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	if (fd < 0 || (bytes && write(fd, buf, bytes) != (ssize_t)bytes) || close(fd) < 0)
		names_fail("create");
}

static void names_drop(struct job *j, const char *name)
{
	if (unlinkat(j->dir, name, 0) < 0)
		names_fail("unlink");
}

static void op_create(struct job *j)
{
	uint64_t from = now_ns();

	names_make(j, "new", 0);
	sample(j, from);
	names_drop(j, "new");
}

static void op_write(struct job *j)
{
	uint64_t from = now_ns();

	names_make(j, "new", BYTES);
	sample(j, from);
	names_drop(j, "new");
}

static void op_rename(struct job *j)
{
	static const char *const names[] = { "file", "moved" };

	for (unsigned i = 0; i < 2; i++) {
		uint64_t from = now_ns();

		if (renameat(j->dir, names[i], j->dir, names[!i]) < 0)
			names_fail("rename");
		sample(j, from);
	}
}

static void op_unlink(struct job *j)
{
	char name[32];

	for (unsigned i = 0; i < BATCH; i++) {
		names_new_name(name, i);
		names_make(j, name, 0);
	}
	for (unsigned i = 0; i < BATCH; i++) {
		uint64_t from = now_ns();

		names_new_name(name, i);
		names_drop(j, name);
		sample(j, from);
	}
}

static void op_readdir(struct job *j)
{
	uint64_t from = now_ns();
	int fd = openat(j->dir, "many", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	unsigned nr = 0;

	if (!d)
		names_fail("opendir");
	while (readdir(d))
		nr++;
	if (nr != ENTRIES + 2)
		die("readdir found %u entries, not %u", nr, ENTRIES + 2);
	if (closedir(d) < 0)
		names_fail("closedir");
	sample(j, from);
}

static const struct op {
	const char *name;
	void (*fn)(struct job *j);
} ops[] = {
	{ "stat", op_stat },
	{ "stat, synced", op_stat_sync },
	{ "open, close", op_open },
	{ "create, close", op_create },
	{ "create, write, close", op_write },
	{ "rename", op_rename },
	{ "unlink", op_unlink },
	{ "readdir", op_readdir },
};

/* ------------------------------------------------------------------ turns */

struct turn {
	double p50_us, p99_us;
	double cpu_us; /* CPU time per operation, of this process and the server */
};

static uint64_t cpu_ns(pid_t pid)
{
	int64_t ns = cpu_ns_of(pid);

	if (ns < 0)
		die("the CPU time of process %d cannot be read", (int)pid);
	return (uint64_t)ns;
}

static uint64_t names_cpu_of(const struct side *s)
{
	return cpu_ns(0) + (s->server ? cpu_ns(s->server) : 0);
}

static void *names_work(void *arg)
{
	struct job *j = arg;
	uint64_t until;

	(void)pthread_barrier_wait(&start_line);
	until = now_ns() + set.ms * NSEC_PER_MSEC;
	do
		j->op->fn(j);
	while (j->end < until);
	return NULL;
}

/* Use new folder names in each run: mounts may cache names of an earlier run. */
static int open_folder(const struct side *s, unsigned thread)
{
	char path[4096];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/thread.%d.%u", s->dir, (int)getpid(), thread);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		die("%s: %s", path, strerror(errno));
	return fd;
}

static struct turn names_take_turn(const struct op *op, const struct side *s)
{
	static uint32_t all[THREADS_MAX * SAMPLES];
	struct latency took;
	uint64_t cpu;
	size_t nr = 0;

	for (unsigned i = 0; i < set.threads; i++) {
		jobs[i].op = op;
		jobs[i].nr = 0;
		jobs[i].dir = open_folder(s, i);
	}
	cpu = names_cpu_of(s);
	for (unsigned i = 0; i < set.threads; i++)
		if (pthread_create(&jobs[i].thread, NULL, names_work, &jobs[i]) != 0)
			die("a thread cannot be started");
	for (unsigned i = 0; i < set.threads; i++)
		(void)pthread_join(jobs[i].thread, NULL);
	cpu = names_cpu_of(s) - cpu;
	for (unsigned i = 0; i < set.threads; i++) {
		(void)close(jobs[i].dir);
		memcpy(all + nr, jobs[i].ns, jobs[i].nr * sizeof(*all));
		nr += jobs[i].nr;
	}
	took = latency_of(all, nr);
	return (struct turn){
		.p50_us = took.p50_us,
		.p99_us = took.p99_us,
		.cpu_us = (double)cpu / 1000.0 / (double)nr,
	};
}

/* ----------------------------------------------------------------- report */

static double names_median(const double *of)
{
	double v[TURNS_MAX];

	memcpy(v, of, set.turns * sizeof(*v));
	return median_of(v, set.turns);
}

struct column {
	double p50[TURNS_MAX], p99[TURNS_MAX], cpu[TURNS_MAX];
};

/* Return the median of the ratios of adjacent turns. */
static double names_ratio(const struct column *a, const struct column *b)
{
	double v[TURNS_MAX];

	for (unsigned i = 0; i < set.turns; i++)
		v[i] = a->p50[i] / b->p50[i];
	return names_median(v);
}

static void names_report(const struct op *op, const struct column *c)
{
	for (unsigned s = 0; s < nr_sides; s++) {
		(void)printf("%-20s %7u  %-16s %9.2f %9.2f %9.2f", op->name, set.threads,
			     sides[s].name, names_median(c[s].p50), names_median(c[s].p99),
			     names_median(c[s].cpu));
		(void)printf(" %9.2f", names_ratio(&c[s], &c[0]));
		/* Also run the side that the others are compared with. */
		if (nr_sides > 1)
			(void)printf(" %9.2f", names_ratio(&c[1], &c[s]));
		(void)putchar('\n');
	}
	(void)fflush(stdout);
}

static void names_run(const struct op *op)
{
	static struct column c[SIDES_MAX];

	for (unsigned i = 0; i < set.turns; i++)
		for (unsigned k = 0; k < nr_sides; k++) {
			unsigned s = (i + k) % nr_sides;
			struct turn t = names_take_turn(op, &sides[s]);

			c[s].p50[i] = t.p50_us;
			c[s].p99[i] = t.p99_us;
			c[s].cpu[i] = t.cpu_us;
		}
	names_report(op, c);
}

/* ------------------------------------------------------------------ set up */

static void make_files(void)
{
	for (unsigned i = 0; i < set.threads; i++) {
		struct job j = { 0 };
		char path[4096];

		(void)snprintf(path, sizeof(path), "%s/thread.%d.%u", sides[0].dir, (int)getpid(),
			       i);
		if (mkdir(path, 0755) < 0)
			die("%s: %s", path, strerror(errno));
		j.dir = open_folder(&sides[0], i);
		names_make(&j, "file", BYTES);
		if (mkdirat(j.dir, "many", 0755) < 0)
			names_fail("mkdir");
		(void)close(j.dir);
		(void)strcat(path, "/many");
		j.dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		for (unsigned k = 0; k < ENTRIES; k++) {
			char name[32];

			names_new_name(name, k);
			names_make(&j, name, 0);
		}
		(void)close(j.dir);
	}
}

static void drop_files(void)
{
	for (unsigned i = 0; i < set.threads; i++) {
		struct job j = { .dir = open_folder(&sides[0], i) };
		char name[64];

		for (unsigned k = 0; k < ENTRIES; k++) {
			(void)snprintf(name, sizeof(name), "many/new.%u", k);
			names_drop(&j, name);
		}
		names_drop(&j, "file");
		if (unlinkat(j.dir, "many", AT_REMOVEDIR) < 0)
			names_fail("rmdir");
		(void)close(j.dir);
		(void)snprintf(name, sizeof(name), "thread.%d.%u", (int)getpid(), i);
		j.dir = open(sides[0].dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (unlinkat(j.dir, name, AT_REMOVEDIR) < 0)
			names_fail("rmdir");
		(void)close(j.dir);
	}
}

static void names_print_head(void)
{
	bench_print_machine();
	(void)printf("user     %u\n", (unsigned)getuid());
	(void)printf("turns    %u of %u ms of each directory\n\n", set.turns, set.ms);
	(void)printf("%-20s %7s  %-16s %9s %9s %9s %9s", "operation", "threads", "directory",
		     "p50 us", "p99 us", "CPU us", "to source");
	if (nr_sides > 1)
		(void)printf(" %s to it", sides[1].name);
	(void)putchar('\n');
}

/* Parse NAME=DIR or NAME:PID=DIR. */
static struct side side_of(char *arg)
{
	char *dir = strchr(arg, '='), *pid;
	struct side s = { .name = arg };

	if (!dir)
		die("%s is not NAME=DIR", arg);
	*dir++ = '\0';
	s.dir = dir;
	pid = strchr(arg, ':');
	if (pid) {
		*pid++ = '\0';
		s.server = (pid_t)number(pid, 1, INT32_MAX);
	}
	return s;
}

int main(int argc, char **argv)
{
	int c;

	while ((c = getopt(argc, argv, "n:m:t:o:")) != -1) {
		if (c == 'n')
			set.turns = number(optarg, 1, TURNS_MAX);
		else if (c == 'm')
			set.ms = number(optarg, 1, 60000);
		else if (c == 't')
			set.threads = number(optarg, 1, THREADS_MAX);
		else if (c == 'o')
			set.only = optarg;
		else
			return 2;
	}
	if (optind == argc || argc - optind > (int)SIDES_MAX) {
		(void)fputs("Usage: names [-n TURNS] [-m MS] [-t THREADS] [-o OPERATION] "
			    "NAME[:PID]=DIR...\n",
			    stderr);
		return 2;
	}
	while (optind < argc)
		sides[nr_sides++] = side_of(argv[optind++]);
	jobs = calloc(set.threads, sizeof(*jobs));
	if (!jobs || pthread_barrier_init(&start_line, NULL, set.threads) != 0)
		die("out of memory");
	make_files();
	names_print_head();
	for (unsigned i = 0; i < ARRAY_SIZE(ops); i++)
		if (!set.only || !strcmp(set.only, ops[i].name))
			names_run(&ops[i]);
	drop_files();
	bench_print_load();
	free(jobs);
	return 0;
}
