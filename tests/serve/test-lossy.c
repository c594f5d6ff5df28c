/* SPDX-License-Identifier: MIT */
/*
 * Random reads, writes and syncs against a model, through a bad network and restarts of the server
 * that lose unsynced bytes.  SERVER is dropping-server, PROXY is proxy.py.
 *
 * Each page contains a number that grows with each write.  The model has the numbers that a page
 * may have now and after a power loss.  PST_SOAK makes 100,000 requests.
 */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "rig.h"

#define PAGE 4096u
#define PAGES 64u
#define AT_ONCE 4u /* concurrent requests, each on its own part of the pages */
#define PART (PAGES / AT_ONCE)
#define SIZE ((size_t)PAGE * PAGES)

static struct {
	uint64_t now;    /* lowest number that a read may find */
	uint64_t synced; /* lowest number after a power loss */
	uint64_t high;   /* highest possible number */
} page[PAGES];

static struct {
	uint64_t reads, writes, syncs, failed_syncs, kills;
} nr;

static pid_t server, proxy;
static int port, proxy_port;
static const char *keys;
/* unsynced: a completed write is not synced; lost: a restart followed it; may_be_lost: a restart
 * may have followed it. */
static bool unsynced, lost, may_be_lost;

/* ------------------------------------------------------------------ processes */

/* Start a program.  Return the first line that it prints. */
static pid_t start(const char *const args[], int out, char *line, size_t size)
{
	size_t got = 0;
	int p[2];
	pid_t pid;

	T_CHECK(pipe2(p, O_CLOEXEC) == 0);
	pid = fork();
	T_CHECK(pid >= 0);
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)dup2(p[1], out);
		(void)execvp(args[0], (char **)args);
		_exit(127);
	}
	(void)close(p[1]);
	while (!memchr(line, '\n', got) && got < size - 1) {
		ssize_t n = read(p[0], line + got, size - 1 - got);

		T_CHECK(n > 0);
		got += (size_t)n;
	}
	line[got] = '\0';
	(void)close(p[0]);
	return pid;
}

static void server_start(void)
{
	char text[16], line[256];
	const char *args[] = {
		getenv("SERVER"), rig_path("root"), text, rig_path("copy"), keys, NULL
	};

	(void)snprintf(text, sizeof(text), "%d", port);
	server = start(args, 2, line, sizeof(line));
	T_CHECK(strstr(line, "listening on "));
	if (!port)
		port = atoi(strrchr(line, ':') + 1);
}

static void proxy_start(void)
{
	char text[16], seed[32], line[64];
	const char *args[] = {
		"python3", getenv("PROXY"), text, seed, keys ? "wrong" : NULL, NULL
	};

	(void)snprintf(text, sizeof(text), "%d", port);
	(void)snprintf(seed, sizeof(seed), "%u", (unsigned)rig_below(1 << 30));
	proxy = start(args, 1, line, sizeof(line));
	proxy_port = atoi(line);
	T_CHECK(proxy_port > 0);
}

static void end(pid_t pid)
{
	T_EQ(kill(pid, SIGKILL), 0);
	T_EQ(waitpid(pid, NULL, 0), pid);
}

/* Simulate a power loss: unsynced pages get old bytes. */
static void lose_power(void)
{
	static char bytes[SIZE];
	int fd;

	end(server);
	T_EQ(rig_slurp(rig_path("copy"), 0, bytes, SIZE), SIZE);
	fd = open(rig_path("root/data"), O_WRONLY | O_CLOEXEC);
	T_CHECK(fd >= 0);
	T_EQ(pwrite(fd, bytes, SIZE, 0), (ssize_t)SIZE);
	(void)close(fd);
	for (unsigned i = 0; i < PAGES; i++)
		page[i].now = page[i].synced;
	lost = lost || unsynced;
	may_be_lost = true;
	nr.kills++;
	server_start();
}

/* ---------------------------------------------------------------------- pages */

static uint64_t last_number;

static void fill(struct pst_mem *m, uint64_t off, unsigned first, unsigned count, uint64_t number)
{
	uint64_t words[PAGE / 8];

	for (unsigned i = 0; i < count; i++) {
		for (unsigned w = 0; w < PAGE / 8; w++)
			words[w] = (uint64_t)(first + i) << 40 | number;
		T_OK(pst_mem_copy_in(m, off + (uint64_t)i * PAGE, words, PAGE));
	}
}

/* Return the number of the page; check that the model allows it. */
static uint64_t check(struct pst_mem *m, uint64_t off, unsigned idx)
{
	uint64_t words[PAGE / 8], number;

	T_OK(pst_mem_copy_out(m, off, words, PAGE));
	for (unsigned w = 1; w < PAGE / 8; w++)
		T_EQ(words[w], words[0]);
	T_EQ(words[0] >> 40, idx);
	number = words[0] & ((UINT64_C(1) << 40) - 1);
	if (number < page[idx].now || number > page[idx].high)
		T_FAIL("page %u has the number %llu, and may have %llu to %llu", idx,
		       (unsigned long long)number, (unsigned long long)page[idx].now,
		       (unsigned long long)page[idx].high);
	return number;
}

/* ----------------------------------------------------------------------- steps */

/* Open the file.  Retry: an open sends one request, and the network may end its connection. */
static struct pst_file *open_again(void)
{
	struct pst_file *f = NULL;
	char url[64];
	int r;

	(void)snprintf(url, sizeof(url), "%s127.0.0.1:%d/data", keys ? "psts://" : "pst://",
		       proxy_port);
	do
		r = pst_file_open(url, RIG_RW, NULL, &f);
	while (r < 0 && r != -ENOENT);
	T_OK(r);
	return f;
}

static void some_requests(struct pst_file *f, struct pst_mem *m, bool kill_it)
{
	struct {
		bool write;
		unsigned first, count;
		uint64_t number;
	} req[AT_ONCE];

	for (unsigned i = 0; i < AT_ONCE; i++) {
		unsigned at = (unsigned)rig_below(PART);
		struct pst_io io;

		req[i].write = rig_below(2);
		req[i].first = i * PART + at;
		req[i].count = 1 + (unsigned)rig_below(PART - at);
		req[i].number = ++last_number;
		if (req[i].write)
			fill(m, (uint64_t)i * PART * PAGE, req[i].first, req[i].count,
			     req[i].number);
		io = rig_io(req[i].write ? PST_OP_WRITE : PST_OP_READ, f, m,
			    (uint64_t)req[i].first * PAGE, (uint64_t)i * PART * PAGE,
			    (uint64_t)req[i].count * PAGE);
		io.user_data = i;
		T_OK(pst_queue_prep(rig_q, &io));
		for (unsigned p = 0; req[i].write && p < req[i].count; p++)
			page[req[i].first + p].high = req[i].number;
	}
	T_EQ(pst_queue_submit(rig_q), AT_ONCE);
	if (kill_it)
		lose_power();
	for (unsigned n = 0; n < AT_ONCE; n++) {
		struct pst_done d = rig_reap1(rig_q);
		uint64_t i = d.user_data;

		T_EQ(d.res, (int64_t)req[i].count * PAGE);
		nr.reads += !req[i].write;
		nr.writes += req[i].write;
		unsynced = unsynced || req[i].write;
		for (unsigned p = 0; p < req[i].count; p++) {
			unsigned idx = req[i].first + p;

			if (!req[i].write)
				(void)check(m, (i * PART + p) * PAGE, idx);
			else if (!kill_it) /* after a kill, the write may have been lost after
					    * its reply */
				page[idx].now = req[i].number;
		}
	}
}

/* Read all pages: each must keep its current number from here on. */
static void look_at_all(struct pst_file *f, struct pst_mem *m)
{
	T_EQ(rig_read(f, m, 0, 0, SIZE).res, (int64_t)SIZE);
	for (unsigned i = 0; i < PAGES; i++)
		page[i].now = page[i].high = check(m, (uint64_t)i * PAGE, i);
}

static struct pst_file *sync_it(struct pst_file *f, struct pst_mem *m)
{
	int64_t r = rig_sync(f).res;

	nr.syncs++;
	if (r == 0) {
		/* After a lost write, success would be wrong. */
		T_CHECK(!lost);
		for (unsigned i = 0; i < PAGES; i++)
			page[i].now = page[i].synced = page[i].high;
		unsynced = may_be_lost = false;
		return f;
	}
	T_EQ(r, -EIO);
	T_CHECK(may_be_lost);
	nr.failed_syncs++;
	pst_file_close(f);
	f = open_again();
	look_at_all(f, m);
	unsynced = lost = may_be_lost = false;
	return f;
}

static void model_holds(void)
{
	uint64_t count = getenv("PST_SOAK") ? 100000 : 600;
	struct pst_mem *m = rig_alloc(rig_dev, SIZE);
	struct pst_file *f;

	rig_q = rig_queue(PST_BACKEND_AUTO, 0);
	T_CHECK(mkdir(rig_path("root"), 0700) == 0);
	fill(m, 0, 0, PAGES, 0);
	f = rig_open(rig_path("root/data"), RIG_NEW);
	T_EQ(rig_write(f, m, 0, 0, SIZE).res, (int64_t)SIZE);
	pst_file_close(f);
	f = rig_open(rig_path("copy"), RIG_NEW);
	T_EQ(rig_write(f, m, 0, 0, SIZE).res, (int64_t)SIZE);
	pst_file_close(f);
	if (getenv("PST_TEST_TLS")) {
		static char path[600];
		FILE *file;

		(void)snprintf(path, sizeof(path), "%s", rig_path("keys"));
		file = fopen(path, "w");
		T_CHECK(file && fchmod(fileno(file), 0600) == 0);
		T_CHECK(fputs("test:0123456789abcdef0123456789ABCDEF\n", file) >= 0);
		T_EQ(fclose(file), 0);
		T_EQ(setenv("PST_KEYS", path, 1), 0);
		keys = path;
	}
	server_start();
	proxy_start();
	f = open_again();
	while (nr.reads + nr.writes < count) {
		some_requests(f, m, rig_below(12) == 0);
		if (rig_below(6) == 0)
			f = sync_it(f, m);
	}
	f = sync_it(f, m);
	lose_power();
	look_at_all(f, m);
	pst_file_close(f);
	pst_mem_free(m);
	end(proxy);
	end(server);
	printf("# %llu reads, %llu writes, %llu syncs of which %llu failed, %llu losses of power\n",
	       (unsigned long long)nr.reads, (unsigned long long)nr.writes,
	       (unsigned long long)nr.syncs, (unsigned long long)nr.failed_syncs,
	       (unsigned long long)nr.kills);
	T_CHECK(nr.failed_syncs > 0 && nr.syncs > nr.failed_syncs);
}

int main(void)
{
	rig_init();
	RIG_RUN1(model_holds);
	return rig_done();
}
