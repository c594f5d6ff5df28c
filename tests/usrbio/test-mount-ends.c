/* SPDX-License-Identifier: MIT */
/*
 * Workers, servers and clients of a mount end while others use it.  The mount is PST_TEST_MOUNT's
 * penstock-mount.
 */
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#include "api_rig.h"
#include "mount_procs.h"
#include "usrbio/proto/owner.h"

#define NOBODY 65534u
#define SOON_NS UINT64_C(5000000000) /* limit for events that take 200 ms on an idle machine */

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

static pid_t the_worker(void)
{
	return procs_worker(&rig);
}

/* Prepare requests without submitting them. */
static void prepare(unsigned nr)
{
	for (unsigned i = 0; i < nr; i++)
		T_CHECK(hf3fs_prep_io(&ior, &iov, true, iov.base + i * 4096, fd, 0, 4096,
				      (void *)(uintptr_t)(i + 1)) >= 0);
	T_EQ(hf3fs_submit_ios(&ior), 0);
}

/* Check that each request ends once and soon, executed if that is possible. */
static void all_end(unsigned nr, bool executed)
{
	uint64_t from = t_now();
	unsigned seen = 0, got = 0;
	struct hf3fs_cqe c[4];

	while (got < nr) {
		int n = hf3fs_wait_for_ios(&ior, c, 4, 1, NULL);

		T_CHECK(n > 0);
		for (int i = 0; i < n; i++) {
			if (!executed || c[i].result != 4096)
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
	procs_stop(worker);
	prepare(3);
	T_EQ(kill(worker, SIGKILL), 0);
	all_end(3, false);
	end_ring();
	T_EQ(api_links(""), 0);
	/* Another worker serves new objects. */
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
	procs_stop(worker);
	prepare(3);
	T_EQ(kill(rig.pid, SIGKILL), 0);
	(void)mount_rig_wait(&rig);
	all_end(3, true); /* the worker continues when the server dies */
	/* The worker notices and ends, although it was stopped. */
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

/* Run as another user: publish, and report that the user's worker runs.  After an answer, publish
 * again, which must not take long. */
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

/* A user that stops its own worker is delayed; other users are not. */
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
	procs_stop(worker);
	T_EQ(write(told[1], &c, 1), 1);
	T_EQ(waitpid(child, &status, 0), child);
	T_EQ(status, 0);
	T_EQ(close(says[0]) + close(told[0]) + close(told[1]), 0);
	T_EQ(hf3fs_iovcreate(&other, mnt, 4096, 0, -1), -EREMOTEIO);
	prepare(1);
	all_end(1, false);
	end_ring();
	end();
}

/* ------------------------------------------------------------------ clients */

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

/* Start a client and kill it after @us microseconds. */
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

static unsigned rounds(void)
{
	return getenv("PST_SOAK") ? 1000 : 50;
}

static void clients_killed(void)
{
	struct procs_counts ours = {
		.links = 2, .server_fds = 1000, .worker_fds = 1000, .maps = 2
	};
	unsigned nr = rounds();
	pid_t worker;

	begin_ring();
	works();
	worker = the_worker();
	/* Executing threads start with the first rings: warm up. */
	lives_for(200000);
	procs_until_no_more(&rig, worker, &ours);
	ours = procs_counts_of(&rig, worker);
	for (unsigned i = 0; i < nr; i++)
		lives_for(i * 37 % 97 * 100);
	procs_until_no_more(&rig, worker, &ours);
	T_EQ(the_worker(), worker);
	works();
	end_ring();
	procs_remove_shm();
	end();
}

/* A client with published memory, and memory that it has not published yet. */
static void publishes_half(int say)
{
	char name[USRBIO_SHM_NAME_MAX], path[USRBIO_SHM_NAME_MAX + 1];
	struct hf3fs_iov mine = { 0 };
	uint8_t id[USRBIO_ID_LEN];
	struct usrbio_owner self;

	if (hf3fs_iovcreate(&mine, mnt, 4096, 0, -1) != 0 || usrbio_owner_self(&self) < 0 ||
	    usrbio_id_new(id) < 0)
		_exit(1);
	usrbio_owner_shm(&self, id, name);
	(void)snprintf(path, sizeof(path), "/%s", name);
	if (shm_open(path, O_RDWR | O_CREAT | O_EXCL, 0600) < 0 ||
	    write(say, path, sizeof(path)) != sizeof(path))
		_exit(2);
	for (;;)
		(void)pause();
}

static bool shm_is_there(const char *path)
{
	int shm = shm_open(path, O_RDONLY | O_CLOEXEC, 0);

	if (shm >= 0)
		(void)close(shm);
	return shm >= 0;
}

/* Run in a private /dev/shm, which no other program sweeps. */
static int unpublished_memory(void)
{
	char path[USRBIO_SHM_NAME_MAX + 1];
	int says[2];
	pid_t child;

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("none", "/dev/shm", "tmpfs", 0, NULL) < 0 ||
	    mount_rig_start(&rig, API_DAEMON, NULL) < 0)
		return 77;
	mnt = rig.mnt;
	T_EQ(pipe2(says, O_CLOEXEC), 0);
	child = fork();
	if (child == 0)
		publishes_half(says[1]);
	T_EQ(close(says[1]), 0);
	T_EQ(read(says[0], path, sizeof(path)), sizeof(path));
	T_EQ(close(says[0]), 0);
	T_CHECK(shm_is_there(path));
	T_EQ(kill(child, SIGKILL), 0);
	T_EQ(waitpid(child, NULL, 0), child);
	for (uint64_t until = t_hang(); shm_is_there(path) && t_now() < until;)
		(void)usleep(1000);
	T_CHECK(!shm_is_there(path));
	end();
	return 0;
}

/* Memory is also removed if its client was killed before publishing it. */
static void unpublished_memory_goes(void)
{
	int r;

	if (!getenv("PST_TEST_MOUNT"))
		T_SKIP("PST_TEST_MOUNT, which names penstock-mount");
	r = api_child(unpublished_memory);
	if (r == 77)
		T_SKIP("the right to make a mount namespace");
	T_EQ(r, 0);
}

static pid_t client(void)
{
	pid_t child = fork();

	if (child == 0) {
		uses_everything();
		_exit(0);
	}
	return child;
}

static void end_client(pid_t child)
{
	T_EQ(kill(child, SIGKILL), 0);
	T_EQ(waitpid(child, NULL, 0), child);
}

/* Kill workers at any point: their resources are freed, and the next worker serves. */
static void workers_killed(void)
{
	unsigned nr = rounds(), fds;
	pid_t worker = 0, killed = 0;

	begin();
	(void)close(api_file("data", 65536));
	lives_for(100000);
	T_EQ(procs_workers(&rig, &worker, 1), 1);
	fds = procs_fds(&rig, rig.pid);
	for (unsigned i = 0; i < nr; i++) {
		pid_t child = client();

		(void)usleep(i * 61 % 97 * 100);
		if (procs_workers(&rig, &worker, 1)) {
			(void)kill(worker, SIGKILL);
			killed = worker;
		}
		end_client(child);
	}
	/* The server has reaped the last worker, so it knows that it needs another. */
	for (uint64_t until = t_hang(); t_now() < until; (void)usleep(1000))
		if (!api_links("") && procs_fds(&rig, rig.pid) <= fds && kill(killed, 0) < 0)
			break;
	T_EQ(api_links(""), 0);
	T_CHECK(procs_fds(&rig, rig.pid) <= fds);
	T_CHECK(killed && kill(killed, 0) < 0);
	T_CHECK(procs_workers(&rig, &worker, 1) <= 1);
	iov = api_iov(65536);
	ior = api_ior(4, true);
	fd = api_open("data", 65536);
	works();
	end_ring();
	procs_remove_shm();
	end();
}

static unsigned sems(void)
{
	return api_count("/dev/shm", "sem.hf3fs-submit-ios.", "");
}

/* Kill the server at any point: its workers end, and their semaphores are removed. */
static void servers_killed(void)
{
	unsigned nr = rounds();

	for (unsigned i = 0; i < nr; i++) {
		pid_t child, worker[4];
		unsigned n;

		begin();
		(void)close(api_file("data", 65536));
		child = client();
		(void)usleep(i * 53 % 97 * 200);
		n = procs_workers(&rig, worker, 4);
		T_EQ(kill(rig.pid, SIGKILL), 0);
		(void)mount_rig_wait(&rig);
		end_client(child);
		for (uint64_t until = t_hang(); n && t_now() < until; (void)usleep(1000))
			n -= kill(worker[n - 1], 0) < 0;
		T_EQ(n, 0);
		/* Wait for a worker that was still starting when the server was killed. */
		for (uint64_t until = t_hang(); sems() && t_now() < until;)
			(void)usleep(1000);
		T_EQ(sems(), 0);
		procs_remove_shm();
		(void)mount_rig_stop(&rig);
	}
}

/* Find the path of the memory of an iov or ring. */
static void shm_of(const struct hf3fs_iov *of, char ret[PATH_MAX])
{
	char dir[PATH_MAX], id[USRBIO_ID_TEXT];
	struct dirent *e;
	ssize_t n = -1;
	DIR *d;

	usrbio_id_format((const uint8_t *)of->id, id);
	(void)snprintf(dir, sizeof(dir), "%s/" USRBIO_IOVS, mnt);
	d = opendir(dir);
	/* The name of a ring's link continues after the UUID. */
	while (d && n < 0 && (e = readdir(d)))
		if (!strncmp(e->d_name, id, strlen(id)))
			n = readlinkat(dirfd(d), e->d_name, ret, PATH_MAX - 1);
	if (d)
		(void)closedir(d);
	T_CHECK(n > 0);
	ret[n] = '\0';
}

/* Open a ring's memory through /proc: it has no name any more. */
static int open_map(const struct hf3fs_iov *of)
{
	uintptr_t at = (uintptr_t)of->base, end = (at + of->size + 4095) & ~(uintptr_t)4095;
	char path[100];
	int map;

	(void)snprintf(path, sizeof(path), "/proc/self/map_files/%lx-%lx", (unsigned long)at,
		       (unsigned long)end);
	map = open(path, O_RDWR | O_CLOEXEC);
	if (map < 0)
		T_FAIL("%s: %s", path, strerror(errno));
	return map;
}

static unsigned cut_how;

/* Truncate a ring's memory while it has entries, and wake the worker. */
static int cut_ring(void)
{
	struct hf3fs_iov mine = api_iov(65536);
	struct hf3fs_ior ring = api_ior(4, true);
	int cut, file = open(api_path("data"), O_RDONLY | O_CLOEXEC);

	T_CHECK(file >= 0 && hf3fs_reg_fd(file, 0) <= 0);
	for (unsigned i = 0; i < 4; i++)
		T_CHECK(hf3fs_prep_io(&ring, &mine, true, mine.base, file, 0, 65536, NULL) >= 0);
	cut = open_map(cut_how & 1 ? &ring.iov : &mine);
	if (cut_how & 2)
		(void)hf3fs_submit_ios(&ring);
	T_EQ(ftruncate(cut, cut_how & 4 ? 4096 : 0), 0);
	(void)hf3fs_submit_ios(&ring);
	(void)usleep(cut_how * 29 % 50 * 20);
	_exit(0);
}

/* A client may truncate shared memory at any time; no other client is harmed. */
static void memory_cut(void)
{
	unsigned nr = rounds();
	pid_t worker;

#if T_TSAN
	T_SKIP("a sanitizer's runtime that outlives SIGBUS in its atomics");
#endif
	begin_ring();
	worker = the_worker();
	for (cut_how = 0; cut_how < nr; cut_how++) {
		T_EQ(api_child(cut_ring), 0);
		works();
	}
	T_EQ(the_worker(), worker);
	end_ring();
	procs_remove_shm();
	end();
}

/* The client truncates an iov: its requests fail, and the worker continues. */
static void memory_shrunk(void)
{
	struct hf3fs_iov cut;
	struct hf3fs_ior ring;
	struct timespec soon = api_in_ms(300);
	struct hf3fs_cqe c;
	char name[PATH_MAX];

	begin_ring();
	cut = api_iov(65536);
	shm_of(&cut, name);
	T_EQ(truncate(name, 0), 0);
	T_EQ(api_io(&ior, &cut, 0, fd, 0, 4096), -EFAULT);
	works();
	hf3fs_iovdestroy(&cut);
	/* A ring whose memory is gone never answers; other rings work. */
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
	T_RUN(unpublished_memory_goes);
	T_RUN(workers_killed);
	T_RUN(servers_killed);
	T_RUN(memory_cut);
	T_RUN(memory_shrunk);
	return api_done();
}
