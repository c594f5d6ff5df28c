/* SPDX-License-Identifier: MIT */
/*
 * Workers, servers and clients of a mount end while others use it: penstock-mount, by
 * PST_TEST_MOUNT.
 */
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>

#include "api_rig.h"

#define NOBODY 65534u
#define SOON_NS UINT64_C(5000000000) /* for 200 ms, where the machine is busy */

static struct mount_rig rig;
static struct hf3fs_iov iov;
static struct hf3fs_ior ior;
static int fd;

static void begin(void)
{
	if (!getenv("PST_TEST_MOUNT"))
		T_SKIP("PST_TEST_MOUNT, which names penstock-mount");
	if (mount_rig_start(&rig, API_DAEMON, NULL) < 0)
		T_SKIP("%s", rig.why);
	mnt = rig.mnt;
	T_EQ(chmod(rig.back, 0777), 0);
}

static void begin_ring(void)
{
	begin();
	iov = api_iov(65536);
	ior = api_ior(4, true);
	fd = api_open("data", 65536);
}

static void end_ring(void)
{
	hf3fs_iordestroy(&ior);
	hf3fs_iovdestroy(&iov);
	hf3fs_dereg_fd(fd);
	(void)close(fd);
}

static void end(void)
{
	T_EQ(api_shm(), 0);
	T_EQ(mount_rig_stop(&rig), 0);
}

/* The children of the server, at most max. */
static unsigned workers(pid_t *ret, unsigned max)
{
	char path[64], *line = NULL, *next;
	unsigned nr = 0;
	size_t size = 0;
	DIR *d;
	struct dirent *e;

	(void)snprintf(path, sizeof(path), "/proc/%d/task", (int)rig.pid);
	d = opendir(path);
	while (d && (e = readdir(d))) {
		char of[400];
		FILE *f;

		(void)snprintf(of, sizeof(of), "%s/%s/children", path, e->d_name);
		f = fopen(of, "re");
		if (f && getline(&line, &size, f) > 0)
			for (char *p = line; nr < max; p = next) {
				long pid = strtol(p, &next, 10);

				if (next == p)
					break;
				ret[nr++] = (pid_t)pid;
			}
		if (f)
			(void)fclose(f);
	}
	if (d)
		(void)closedir(d);
	free(line);
	return nr;
}

static pid_t the_worker(void)
{
	pid_t pid = 0;

	T_EQ(workers(&pid, 1), 1);
	return pid;
}

static void stop(pid_t pid)
{
	uint64_t end_at = t_hang();
	char path[64], text[400], state = 0;

	T_EQ(kill(pid, SIGSTOP), 0);
	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	/* The signal is sent, not obeyed, when kill() returns. */
	while (state != 'T' && t_now() < end_at) {
		FILE *f = fopen(path, "re");
		size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;

		if (f)
			(void)fclose(f);
		text[n] = '\0';
		state = strrchr(text, ')') ? strrchr(text, ')')[2] : 0;
	}
	T_EQ(state, 'T');
}

/* Requests that nobody executes yet. */
static void prepare(unsigned nr)
{
	for (unsigned i = 0; i < nr; i++)
		T_CHECK(hf3fs_prep_io(&ior, &iov, true, iov.base + i * 4096, fd, 0, 4096,
				      (void *)(uintptr_t)(i + 1)) >= 0);
	T_EQ(hf3fs_submit_ios(&ior), 0);
}

/* Each of them ends once, soon. */
static void all_end(unsigned nr)
{
	uint64_t from = t_now();
	unsigned seen = 0, got = 0;
	struct hf3fs_cqe c[4];

	while (got < nr) {
		int n = hf3fs_wait_for_ios(&ior, c, 4, 1, NULL);

		T_CHECK(n > 0);
		for (int i = 0; i < n; i++) {
			T_EQ(c[i].result, -EREMOTEIO);
			seen |= 1u << (uintptr_t)c[i].userdata;
		}
		got += (unsigned)n;
	}
	T_EQ(got, nr);
	T_EQ(seen, (1u << (nr + 1)) - 2);
	T_CHECK(t_now() - from < SOON_NS);
}

static void works(void)
{
	memset(iov.base, 0, 65536);
	T_EQ(api_io(&ior, &iov, 4096, fd, 8192, 4096), 4096);
	T_EQ(t_differs(iov.base + 4096, API_SEED, 8192, 4096), 4096);
}

static void worker_killed(void)
{
	pid_t worker, next;

	begin_ring();
	works();
	worker = the_worker();
	stop(worker);
	prepare(3);
	T_EQ(kill(worker, SIGKILL), 0);
	all_end(3);
	end_ring();
	T_EQ(api_links(""), 0);
	/* Another one serves what is made now. */
	iov = api_iov(65536);
	ior = api_ior(4, true);
	fd = api_open("data", 65536);
	works();
	next = the_worker();
	T_CHECK(next != worker);
	end_ring();
	end();
}

static void server_killed(void)
{
	struct mount_rig dead;
	pid_t worker;

	begin_ring();
	works();
	worker = the_worker();
	stop(worker);
	prepare(3);
	T_EQ(kill(rig.pid, SIGKILL), 0);
	(void)mount_rig_wait(&rig);
	all_end(3);
	/* The worker finds out, and goes. */
	T_EQ(kill(worker, SIGCONT), 0);
	for (uint64_t until = t_hang(); kill(worker, 0) == 0 && t_now() < until;)
		(void)usleep(1000);
	T_CHECK(kill(worker, 0) < 0);
	end_ring();
	dead = rig;
	begin_ring();
	works();
	end_ring();
	end();
	(void)mount_rig_stop(&dead);
}

static void publish_once(void)
{
	struct hf3fs_iov mine = { 0 };

	if (hf3fs_iovcreate(&mine, mnt, 4096, 0, -1) != 0)
		_exit(2);
	hf3fs_iovdestroy(&mine);
}

/* Another user, whose worker runs when he says so; told to, he publishes once more, in time. */
static void be_another(int say, int told)
{
	uint64_t from;
	char c = 0;

	if (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
	    setresuid(NOBODY, NOBODY, NOBODY) < 0)
		_exit(1);
	publish_once();
	if (write(say, &c, 1) != 1 || read(told, &c, 1) != 1)
		_exit(4);
	from = t_now();
	publish_once();
	_exit(t_now() - from < SOON_NS / 2 ? 0 : 3);
}

/* Whoever stops his own worker waits for it; others do not. */
static void worker_stopped(void)
{
	struct hf3fs_iov other = { 0 };
	int says[2], told[2], status;
	pid_t worker, child;
	char c = 0;

	begin_ring();
	works();
	worker = the_worker();
	T_CHECK(pipe2(says, O_CLOEXEC) == 0 && pipe2(told, O_CLOEXEC) == 0);
	child = fork();
	if (child == 0)
		be_another(says[1], told[0]);
	T_EQ(close(says[1]), 0);
	T_EQ(read(says[0], &c, 1), 1);
	stop(worker);
	T_EQ(write(told[1], &c, 1), 1);
	T_EQ(waitpid(child, &status, 0), child);
	T_EQ(status, 0);
	T_EQ(close(says[0]) + close(told[0]) + close(told[1]), 0);
	T_EQ(hf3fs_iovcreate(&other, mnt, 4096, 0, -1), -EREMOTEIO);
	prepare(1);
	all_end(1);
	end_ring();
	end();
}

/* ------------------------------------------------------------------ clients */

static unsigned entries(const char *fmt, pid_t pid)
{
	char path[64];
	struct dirent *e;
	unsigned nr = 0;
	DIR *d;

	(void)snprintf(path, sizeof(path), fmt, (int)pid);
	d = opendir(path);
	while (d && (e = readdir(d)))
		nr += e->d_name[0] != '.';
	if (d)
		(void)closedir(d);
	return nr;
}

static unsigned maps(pid_t pid)
{
	char path[64], *line = NULL;
	unsigned nr = 0;
	size_t size = 0;
	FILE *f;

	(void)snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	f = fopen(path, "re");
	while (f && getline(&line, &size, f) > 0)
		nr += strstr(line, "/dev/shm/hf3fs-iov-") != NULL;
	if (f)
		(void)fclose(f);
	free(line);
	return nr;
}

static void uses_everything(void)
{
	struct hf3fs_iov a = { 0 };
	struct hf3fs_ior r = { 0 }, w = { 0 };
	char path[PATH_MAX];
	int f;

	(void)snprintf(path, sizeof(path), "%s/data", mnt);
	f = open(path, O_RDWR | O_CLOEXEC);
	if (f < 0 || hf3fs_reg_fd(f, 0) > 0 || hf3fs_iovcreate(&a, mnt, 65536, 4096, -1) ||
	    hf3fs_iorcreate4(&r, mnt, 8, true, 0, 0, -1, 0) ||
	    hf3fs_iorcreate4(&w, mnt, 8, false, 0, 0, -1, 0))
		_exit(1);
	for (;;) {
		(void)hf3fs_prep_io(&r, &a, true, a.base, f, 0, 4096, NULL);
		(void)hf3fs_prep_io(&w, &a, false, a.base + 8192, f, 40960, 4096, NULL);
		(void)hf3fs_submit_ios(&r);
		(void)hf3fs_submit_ios(&w);
		(void)hf3fs_wait_for_ios(&r, &(struct hf3fs_cqe){ 0 }, 1, 1,
					 &(struct timespec){ 0 });
	}
}

/* Their memory in /dev/shm has names still: nobody but they would unlink it. */
static void remove_shm(void)
{
	DIR *d = opendir("/dev/shm");
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (!strncmp(e->d_name, "hf3fs-iov-", 10))
			(void)shm_unlink(e->d_name);
	if (d)
		(void)closedir(d);
}

/* One that is killed after a while. */
static void lives_for(unsigned us)
{
	pid_t child = fork();

	if (child == 0) {
		uses_everything();
		_exit(0);
	}
	(void)usleep(us);
	T_EQ(kill(child, SIGKILL), 0);
	T_EQ(waitpid(child, NULL, 0), child);
}

/* Traces of clients: in the virtual directory, in the server and in the worker. */
struct counts {
	unsigned links, server_fds, worker_fds, maps;
};

static struct counts counts_of(pid_t worker)
{
	return (struct counts){
		.links = api_links(""),
		.server_fds = entries("/proc/%d/fd", rig.pid),
		.worker_fds = entries("/proc/%d/fd", worker),
		.maps = maps(worker),
	};
}

static bool is_no_more(const struct counts *a, const struct counts *b)
{
	return a->links <= b->links && a->server_fds <= b->server_fds &&
	       a->worker_fds <= b->worker_fds && a->maps <= b->maps;
}

static void until_no_more(pid_t worker, const struct counts *than)
{
	uint64_t until = t_hang();
	struct counts now = counts_of(worker);

	for (; !is_no_more(&now, than) && t_now() < until; now = counts_of(worker))
		(void)usleep(1000);
	if (!is_no_more(&now, than))
		T_FAIL("links %u, were %u; descriptors %u, were %u, and %u, were %u; maps %u, "
		       "were %u",
		       now.links, than->links, now.server_fds, than->server_fds, now.worker_fds,
		       than->worker_fds, now.maps, than->maps);
}

static void clients_killed(void)
{
	struct counts ours = { .links = 2, .server_fds = 1000, .worker_fds = 1000, .maps = 2 };
	unsigned nr = getenv("PST_SOAK") ? 1000 : 50;
	pid_t worker;

	begin_ring();
	works();
	worker = the_worker();
	/* The threads that execute start with the first rings. */
	lives_for(200000);
	until_no_more(worker, &ours);
	ours = counts_of(worker);
	for (unsigned i = 0; i < nr; i++)
		lives_for(i * 37 % 97 * 100);
	until_no_more(worker, &ours);
	T_EQ(the_worker(), worker);
	works();
	end_ring();
	remove_shm();
	end();
}

/* Memory that its owner cut: his requests fail, and the worker goes on. */
static void memory_shrunk(void)
{
	struct hf3fs_iov cut;
	struct hf3fs_ior ring;
	struct timespec soon = api_in_ms(300);
	struct hf3fs_cqe c;
	char path[PATH_MAX], name[PATH_MAX];
	ssize_t n;

	begin_ring();
	cut = api_iov(65536);
	(void)snprintf(path, sizeof(path), "%s/%s", mnt, USRBIO_IOVS);
	{
		char id[USRBIO_ID_TEXT];

		usrbio_id_format((const uint8_t *)cut.id, id);
		(void)snprintf(path, sizeof(path), "%s/" USRBIO_IOVS "/%s", mnt, id);
	}
	n = readlink(path, name, sizeof(name) - 1);
	T_CHECK(n > 0);
	name[n] = '\0';
	T_EQ(truncate(name, 0), 0);
	T_EQ(api_io(&ior, &cut, 0, fd, 0, 4096), -EFAULT);
	works();
	hf3fs_iovdestroy(&cut);
	/* A ring without its memory never answers, and harms no other. */
	ring = api_ior(4, true);
	T_EQ(madvise(ring.iov.base, ring.iov.size, MADV_REMOVE), 0);
	(void)hf3fs_submit_ios(&ring);
	(void)hf3fs_wait_for_ios(&ring, &c, 1, 1, &soon);
	works();
	hf3fs_iordestroy(&ring);
	end_ring();
	end();
}

int main(void)
{
	api_init();
	T_RUN(worker_killed);
	T_RUN(server_killed);
	T_RUN(worker_stopped);
	T_RUN(clients_killed);
	T_RUN(memory_shrunk);
	return api_done();
}
