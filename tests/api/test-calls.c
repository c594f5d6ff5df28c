/* SPDX-License-Identifier: MIT */
/*
 * Results of system calls, and the results that the caller gets for them.  The library continues
 * after short counts, EINTR and EAGAIN, and reports errors and the end of the file.  All bytes that
 * a result counts must be there.
 */
#include <pthread.h>

#include "calls.h"
#include "rig.h"

#define SEED 9
#define FILE_LEN RIG_MIB(1)
#define OFF 8192u
#define LEN 65536u

#define BUFFERED PST_POLICY1(PST_PATH_BUFFERED)
#define DIRECT PST_POLICY2(PST_PATH_DIRECT, PST_PATH_BUFFERED)
#define CACHED PST_POLICY2(PST_PATH_CACHED, PST_PATH_BUFFERED)

#define ALL INT32_MAX /* all bytes that the call asks for */

/* Scripted results of successive calls on the file; calls after the script move all bytes. */
static struct {
	ino_t ino;        /* inode of the file; 0: no script */
	int32_t gives[4]; /* the most bytes that the call moves, or -errno */
	unsigned nr;      /* number of calls made so far */
	unsigned direct;  /* number of calls with O_DIRECT */
	struct call seen[8];
} script;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static ssize_t play(const struct call *c)
{
	int32_t give = ALL;
	struct stat st;
	ssize_t n;

	if (fstat(c->fd, &st) < 0 || st.st_ino != script.ino)
		return call_real(c, c->len);
	pthread_mutex_lock(&lock);
	if (script.nr < RIG_NR(script.gives))
		give = script.gives[script.nr];
	if (script.nr < RIG_NR(script.seen))
		script.seen[script.nr] = *c;
	script.nr++;
	script.direct += call_is_direct(c);
	pthread_mutex_unlock(&lock);
	if (give < 0) {
		errno = -give;
		return -1;
	}
	if (!give)
		return 0;
	/* O_DIRECT cannot move an odd length: move all and return less. */
	n = call_real(c, call_is_direct(c) || c->len < (size_t)give ? c->len : (size_t)give);
	return n < give ? n : give;
}

/* One request, the script of its calls, and the expected result. */
static const struct row {
	const char *name;
	uint32_t op;
	uint64_t policy;
	int32_t gives[4];
	int64_t res;
	uint64_t prefix; /* largest allowed prefix of a failed request, in bytes */
	unsigned calls;
	unsigned direct; /* number of calls by O_DIRECT, if the file supports it */
} rows[] = {
	{ "whole read", PST_OP_READ, BUFFERED, { ALL, ALL, ALL, ALL }, LEN, 0, 1, 0 },
	{ "short read", PST_OP_READ, BUFFERED, { 60, ALL, ALL, ALL }, LEN, 0, 2, 0 },
	{ "two short reads", PST_OP_READ, BUFFERED, { 60, 9, ALL, ALL }, LEN, 0, 3, 0 },
	{ "end of file", PST_OP_READ, BUFFERED, { 0, ALL, ALL, ALL }, 0, 0, 1, 0 },
	{ "end after some", PST_OP_READ, BUFFERED, { 60, 0, ALL, ALL }, 60, 0, 2, 0 },
	{ "error", PST_OP_READ, BUFFERED, { -EIO, ALL, ALL, ALL }, -EIO, 0, 1, 0 },
	{ "error after some", PST_OP_READ, BUFFERED, { 60, -EIO, ALL, ALL }, -EIO, 60, 2, 0 },
	{ "EINTR", PST_OP_READ, BUFFERED, { 60, -EINTR, -EINTR, ALL }, LEN, 0, 4, 0 },
	{ "EAGAIN", PST_OP_READ, BUFFERED, { 60, -EAGAIN, -EAGAIN, ALL }, LEN, 0, 4, 0 },
	{ "EOPNOTSUPP",
	  PST_OP_READ,
	  BUFFERED,
	  { -EOPNOTSUPP, ALL, ALL, ALL },
	  -EOPNOTSUPP,
	  0,
	  1,
	  0 },
	{ "whole write", PST_OP_WRITE, BUFFERED, { ALL, ALL, ALL, ALL }, LEN, 0, 1, 0 },
	{ "short write", PST_OP_WRITE, BUFFERED, { 60, ALL, ALL, ALL }, LEN, 0, 2, 0 },
	{ "write of nothing", PST_OP_WRITE, BUFFERED, { 60, 0, ALL, ALL }, -EIO, 60, 2, 0 },
	{ "full after some", PST_OP_WRITE, BUFFERED, { 60, -ENOSPC, ALL, ALL }, -ENOSPC, 60, 2, 0 },
	{ "write EINTR", PST_OP_WRITE, BUFFERED, { -EINTR, -EAGAIN, 60, ALL }, LEN, 0, 4, 0 },
	{ "sync", PST_OP_SYNC, 0, { ALL, ALL, ALL, ALL }, 0, 0, 1, 0 },
	{ "sync EINTR", PST_OP_SYNC, 0, { -EINTR, -EINTR, ALL, ALL }, 0, 0, 3, 0 },
	{ "sync fails", PST_OP_SYNC, 0, { -EIO, ALL, ALL, ALL }, -EIO, 0, 1, 0 },
	{ "direct", PST_OP_READ, DIRECT, { ALL, ALL, ALL, ALL }, LEN, 0, 1, 1 },
	{ "direct, a few blocks", PST_OP_READ, DIRECT, { 8192, ALL, ALL, ALL }, LEN, 0, 2, 2 },
	/* A read by O_DIRECT that ends inside a block may be the end of the file, so the library
	 * reads again to check. */
	{ "direct, half a block", PST_OP_READ, DIRECT, { 5000, ALL, ALL, ALL }, LEN, 0, 2, 1 },
	{ "direct write", PST_OP_WRITE, DIRECT, { 8192, -EINTR, ALL, ALL }, LEN, 0, 3, 3 },
	{ "direct write, half a block",
	  PST_OP_WRITE,
	  DIRECT,
	  { 5000, ALL, ALL, ALL },
	  LEN,
	  0,
	  2,
	  1 },
	{ "direct is refused", PST_OP_READ, DIRECT, { -EINVAL, ALL, ALL, ALL }, LEN, 0, 2, 1 },
};

static struct pst_file *file;
static struct pst_mem *mem;
static ino_t ino;

/* Open a file whose paths are proven, so that no calls for proofs are counted. */
static void open_proven(void)
{
	struct stat st;
	struct pst_io io;

	rig_make(rig_path("data"), SEED, FILE_LEN);
	T_EQ(stat(rig_path("data"), &st), 0);
	file = rig_open(rig_path("data"), RIG_RW);
	mem = rig_alloc(rig_dev, LEN);
	rig_q = rig_queue(PST_BACKEND_THREADS, 0);
	io = rig_io(PST_OP_READ, file, mem, 0, 0, LEN);
	io.policy = DIRECT;
	T_EQ(rig_do(rig_q, &io).res, LEN);
	rig_mem_fill(mem, 0, LEN, SEED, 0);
	io.op = PST_OP_WRITE;
	T_EQ(rig_do(rig_q, &io).res, LEN);
	ino = st.st_ino;
}

static void close_proven(void)
{
	rig_q = pst_queue_free(rig_q);
	file = pst_file_close(file);
	mem = pst_mem_free(mem);
}

static void end_script(void)
{
	pthread_mutex_lock(&lock);
	script.ino = 0;
	pthread_mutex_unlock(&lock);
}

static void start_script(const int32_t *gives)
{
	pthread_mutex_lock(&lock);
	memcpy(script.gives, gives, sizeof(script.gives));
	script.nr = script.direct = 0;
	script.ino = ino;
	pthread_mutex_unlock(&lock);
}

static void check_row(const struct row *r)
{
	struct pst_io io = rig_io(r->op, file, mem, OFF, 0, LEN);
	uint64_t seed = r->op == PST_OP_WRITE ? SEED + 1 : SEED, told;
	bool sync = r->op == PST_OP_SYNC;
	struct pst_done d;
	char buf[LEN];

	if (sync)
		io = (struct pst_io){ .op = PST_OP_SYNC, .file = file };
	io.policy = r->policy;
	rig_mem_fill(mem, 0, LEN, SEED + 1, OFF);
	start_script(r->gives);
	d = rig_do(rig_q, &io);
	end_script();
	if (d.res != r->res)
		T_FAIL("%s: res is %lld", r->name, (long long)d.res);
	if (script.nr != r->calls)
		T_FAIL("%s: %u calls", r->name, script.nr);
	if (r->direct && script.direct != r->direct)
		T_FAIL("%s: %u calls by O_DIRECT", r->name, script.direct);
	if (r->op == PST_OP_WRITE && r->direct && r->direct < r->calls &&
	    (d.why != PST_WHY_UNALIGNED || !(d.paths & PST_PATH_BIT(PST_PATH_BUFFERED))))
		T_FAIL("%s: told as paths %" PRIx64 ", why %u", r->name, (uint64_t)d.paths, d.why);
	for (unsigned i = 0; i < r->calls; i++)
		if (!sync && (script.seen[i].off < OFF || script.seen[i].off >= OFF + LEN))
			T_FAIL("%s: call %u is at %lld", r->name, i, (long long)script.seen[i].off);
	if (d.res < 0 && d.prefix > r->prefix)
		T_FAIL("%s: prefix is %llu", r->name, (unsigned long long)d.prefix);
	told = d.res < 0 ? d.prefix : (uint64_t)d.res;
	if (!sync && rig_mem_differs(mem, 0, told, seed, OFF) != told)
		T_FAIL("%s: other bytes in memory", r->name);
	if (!sync && (rig_slurp(rig_path("data"), OFF, buf, told) != told ||
		      t_differs(buf, seed, OFF, told) != told))
		T_FAIL("%s: other bytes in the file", r->name);
}

static void calls_and_results(void)
{
	open_proven();
	for (size_t i = 0; i < RIG_NR(rows); i++) {
		if (rows[i].direct && !rig_file_info(file).direct) {
			printf("# %s: no O_DIRECT here\n", rows[i].name);
			continue;
		}
		rig_make(rig_path("data"), SEED, FILE_LEN);
		check_row(&rows[i]);
		/* Open the file again: after a refusal the library never uses O_DIRECT on it. */
		file = pst_file_close(file);
		file = rig_open(rig_path("data"), RIG_RW);
	}
	close_proven();
}

/* Part of the bytes are in the page cache, or the file system cannot tell. */
static void cached_and_results(void)
{
	static const struct {
		const char *name;
		int32_t gives[4];
		bool buffered;
	} cold[] = {
		{ "all is there", { ALL, ALL, ALL, ALL }, false },
		{ "nothing is there", { -EAGAIN, ALL, ALL, ALL }, true },
		{ "nobody can say", { -EOPNOTSUPP, ALL, ALL, ALL }, true },
		{ "a part is there", { 8192, ALL, ALL, ALL }, true },
		{ "EINTR", { -EINTR, ALL, ALL, ALL }, false },
	};

	open_proven();
	if (strcmp(rig_file_info(file).fs, "tmpfs") == 0) {
		close_proven();
		T_SKIP("a file system with a disk below");
	}
	for (size_t i = 0; i < RIG_NR(cold); i++) {
		struct pst_io io = rig_io(PST_OP_READ, file, mem, OFF, 0, LEN);
		struct pst_done d;

		rig_warm(rig_path("data"));
		io.policy = CACHED;
		rig_mem_fill(mem, 0, LEN, 3, 0);
		start_script(cold[i].gives);
		d = rig_do(rig_q, &io);
		end_script();
		T_EQ(d.res, LEN);
		T_EQ(rig_mem_differs(mem, 0, LEN, SEED, OFF), LEN);
		T_EQ(script.seen[0].kind, CALL_READ_NOWAIT);
		if (!!(d.paths & PST_PATH_BIT(PST_PATH_BUFFERED)) != cold[i].buffered)
			T_FAIL("%s: paths are %" PRIx64, cold[i].name, (uint64_t)d.paths);
	}
	close_proven();
}

static void run_on(const char *name, void (*fn)(void), const char *dev)
{
	char full[100];

	rig_dev = dev;
	rig_backend = 0;
	rig_last = rig_q;
	rig_q = NULL;
	rig_fn = fn;
	(void)snprintf(full, sizeof(full), "%s %s", name, dev);
	t_run(full, rig_case);
}

int main(void)
{
	/* Small staged requests must not use a window here. */
	(void)setenv("PST_WINDOW", "off", 1);
	rig_init();
	call_hook = play;
	run_on("calls_and_results", calls_and_results, "host");
	run_on("calls_and_results", calls_and_results, "soft:0");
	run_on("cached_and_results", cached_and_results, "host");
	run_on("cached_and_results", cached_and_results, "soft:0");
	return rig_done();
}
