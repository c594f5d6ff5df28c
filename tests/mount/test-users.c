/* SPDX-License-Identifier: MIT */
/* A user cannot block other users, whatever the server must wait for. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "fusefs.h"
#include "mount_case.h"

#define GREEDY 1000u
#define VICTIM 1001u
#define CALLS 600u /* more than the server has threads for one user */

/* State that the processes of a case share. */
static struct shared {
	atomic_uint begun, returned, failed;
	atomic_int tid[CALLS];
} * shared;
static struct gate ready, go;
static char path[PATH_MAX];

static void begin(void)
{
	need_root();
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	T_CHECK(shared != MAP_FAILED);
	ready = gate_new();
	go = gate_new();
	(void)chmod(case_there, 0777);
}

static void end(void)
{
	gate_done(ready);
	gate_done(go);
	T_EQ(munmap(shared, sizeof(*shared)), 0);
}

/* Return the state of a thread of this process in /proc: 'S' and 'D' wait. */
static char state_of(int tid)
{
	char name[64], text[400] = "", *end_of_name;
	int fd;

	(void)snprintf(name, sizeof(name), "/proc/self/task/%d/stat", tid);
	fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
		text[0] = '\0';
	if (fd >= 0)
		(void)close(fd);
	end_of_name = strrchr(text, ')');
	return end_of_name ? end_of_name[2] : 0;
}

static bool waits(char state)
{
	return state == 'S' || state == 'D';
}

/* Start threads that make a call, and wait until each blocks in it. */
static void start_calls(void *(*call)(void *), pthread_t threads[CALLS])
{
	uint64_t until = t_hang();
	pthread_attr_t attr;

	T_EQ(pthread_attr_init(&attr), 0);
	T_EQ(pthread_attr_setstacksize(&attr, 65536), 0);
	for (uintptr_t i = 0; i < CALLS; i++)
		T_EQ(pthread_create(&threads[i], &attr, call, (void *)i), 0);
	for (unsigned i = 0; i < CALLS; i++) {
		int tid;

		while (!(tid = atomic_load(&shared->tid[i])) || !waits(state_of(tid))) {
			T_CHECK(t_now() < until);
			(void)usleep(100);
		}
	}
}

static void join_calls(pthread_t threads[CALLS])
{
	for (unsigned i = 0; i < CALLS; i++)
		T_EQ(pthread_join(threads[i], NULL), 0);
	T_EQ(atomic_load(&shared->returned), CALLS);
	T_EQ(atomic_load(&shared->failed), 0);
}

static void begun(uintptr_t i)
{
	atomic_store(&shared->tid[i], gettid());
}

static void returned(bool well)
{
	(void)atomic_fetch_add(&shared->returned, 1);
	if (!well)
		(void)atomic_fetch_add(&shared->failed, 1);
}

/* Do what each user must be able to do at any time, with new files in the case's directory. */
static void lives(void)
{
	struct stat st;
	void *page;
	int fd;

	become(VICTIM, VICTIM, 0);
	T_EQ(posix_memalign(&page, 4096, 4096), 0);
	for (unsigned i = 0; i < 100; i++) {
		case_make("mine", 0600, "text");
		case_holds(at("mine"), "text");
		fd = CASE_OK(open(at("mine"), O_RDWR | O_DIRECT | O_CLOEXEC));
		T_EQ(pread(fd, page, 4096, 0), 4);
		T_EQ(ftruncate(fd, 100), 0);
		T_EQ(fsync(fd), 0);
		case_close(fd);
		T_EQ(mkdir(at("dir"), 0700), 0);
		T_EQ(rename(at("mine"), at("dir/mine")), 0);
		T_EQ(stat(at("dir/mine"), &st), 0);
		T_EQ(unlink(at("dir/mine")), 0);
		T_EQ(rmdir(at("dir")), 0);
	}
	free(page);
}

/* Wait for a child's end, which must come. */
static void ends(struct child *c)
{
	uint64_t until = t_hang();
	int status;

	while (waitpid(c->pid, &status, WNOHANG) != c->pid) {
		if (t_now() > until) {
			(void)kill(c->pid, SIGKILL);
			T_FAIL("a process of another user hangs");
		}
		(void)usleep(1000);
	}
	child_ended(c, status);
}

/* Check that another user can work while none of the calls returns. */
static void victim_lives(void)
{
	struct child c;

	gate_pass(ready);
	T_EQ(atomic_load(&shared->returned), 0);
	c = child_start(lives);
	ends(&c);
	T_EQ(atomic_load(&shared->returned), 0);
}

/* ------------------------------------------------------------------ leases */

static void *open_leased(void *i)
{
	int fd;

	begun((uintptr_t)i);
	fd = open(path, (uintptr_t)i % 2 ? O_RDONLY | O_CLOEXEC : O_RDWR | O_CLOEXEC);
	returned(fd >= 0 && !(fcntl(fd, F_GETFL) & O_NONBLOCK));
	if (fd >= 0)
		(void)close(fd);
	return NULL;
}

static int lease(const char *name)
{
	int fd = CASE_OK(open(at_source(name), O_RDWR | O_CREAT | O_CLOEXEC, 0600));

	T_CHECK(signal(SIGIO, SIG_IGN) != SIG_ERR);
	T_EQ(fcntl(fd, F_SETLEASE, F_WRLCK), 0);
	return fd;
}

static void opens_a_leased_file(void)
{
	static pthread_t threads[CALLS];
	int fd;

	become(GREEDY, GREEDY, 0);
	fd = lease("leased");
	start_calls(open_leased, threads);
	gate_open(ready);
	gate_pass(go);
	T_EQ(fcntl(fd, F_SETLEASE, F_UNLCK), 0);
	join_calls(threads);
	case_close(fd);
}

static void leases_stop_nobody_else(void)
{
	struct child c;

	begin();
	(void)snprintf(path, sizeof(path), "%s", at("leased"));
	c = child_start(opens_a_leased_file);
	victim_lives();
	gate_open(go);
	ends(&c);
	end();
}

static void opens_and_dies(void)
{
	atomic_store(&shared->tid[0], gettid());
	(void)open(path, O_RDWR | O_CLOEXEC);
	returned(true);
}

static void truncates(void)
{
	returned(truncate(path, 10) == 0);
}

static void waits_for(pid_t pid)
{
	uint64_t until = t_hang();
	char name[64], text[400] = "";

	(void)snprintf(name, sizeof(name), "/proc/%d/syscall", (int)pid);
	/* "257 0x..." means in a system call; "running" and "-1" do not. */
	while (text[0] < '1' || text[0] > '9') {
		int fd = open(name, O_RDONLY | O_CLOEXEC);
		ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

		text[n > 0 ? n : 0] = '\0';
		if (fd >= 0)
			(void)close(fd);
		T_CHECK(t_now() < until);
		(void)usleep(100);
	}
}

/* A caller that waits for a lease can be killed or use O_NONBLOCK; otherwise it finally gets the
 * file. */
static void leases_are_waited_for(void)
{
	struct child dies, cuts;
	int fd, status;

	begin();
	fd = lease("leased");
	(void)snprintf(path, sizeof(path), "%s", at("leased"));
	CASE_GIVES(open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK), EWOULDBLOCK);
	dies = child_start(opens_and_dies);
	waits_for(dies.pid);
	T_EQ(kill(dies.pid, SIGKILL), 0);
	for (uint64_t until = t_hang(); waitpid(dies.pid, &status, WNOHANG) != dies.pid;) {
		T_CHECK(t_now() < until);
		(void)usleep(1000);
	}
	T_EQ(WTERMSIG(status), SIGKILL);
	case_close(dies.from);
	cuts = child_start(truncates);
	waits_for(cuts.pid);
	T_EQ(atomic_load(&shared->returned), 0);
	T_EQ(fcntl(fd, F_SETLEASE, F_UNLCK), 0);
	ends(&cuts);
	T_EQ(atomic_load(&shared->returned), 1);
	T_EQ(atomic_load(&shared->failed), 0);
	T_EQ(case_stat(path).st_size, 10);
	case_close(fd);
	end();
}

/* -------------------------------------------------------------- slow files */

static int slow_fd[CALLS];

static void *read_slowly(void *i)
{
	void *page = NULL;
	int fd = slow_fd[(uintptr_t)i];

	begun((uintptr_t)i);
	returned(posix_memalign(&page, 4096, 4096) == 0 &&
		 pread(fd, page, 4096, (off_t)((uintptr_t)i * 4096)) == 4096);
	free(page);
	(void)close(fd);
	return NULL;
}

static void reads_a_slow_file(void)
{
	static pthread_t threads[CALLS];

	become(GREEDY, GREEDY, 0);
	/* Open all files first: an open() of the same user could wait behind its reads. */
	for (unsigned i = 0; i < CALLS; i++)
		slow_fd[i] = CASE_OK(open(path, O_RDONLY | O_DIRECT | O_CLOEXEC));
	start_calls(read_slowly, threads);
	gate_open(ready);
	join_calls(threads);
}

/* A user's slow file occupies only some of the server's threads; further requests wait without a
 * thread. */
static void slow_files_stop_nobody_else(void)
{
	struct fusefs fs;
	struct child c;

	begin();
	if (fusefs_start(&fs, case_there) < 0)
		T_SKIP("%s", fs.why);
	(void)snprintf(path, sizeof(path), "%s/hang", at(strrchr(fs.dir, '/') + 1));
	c = child_start(reads_a_slow_file);
	victim_lives();
	for (uint64_t until = t_hang(); atomic_load(&shared->returned) < CALLS;) {
		T_CHECK(t_now() < until);
		fusefs_release(&fs);
		(void)usleep(1000);
	}
	ends(&c);
	fusefs_stop(&fs);
	end();
}

/* -------------------------------------------------- file systems that hang */

static void stats_a_file_system(void)
{
	struct stat st;

	become(GREEDY, GREEDY, 0);
	gate_open(ready);
	returned(lstat(path, &st) == 0 && S_ISDIR(st.st_mode));
}

/* Return true if the child ends soon. */
static bool ends_soon(const struct child *c)
{
	siginfo_t si = { 0 };

	for (uint64_t until = t_hang(); !si.si_pid && t_now() < until; (void)usleep(1000))
		T_EQ(waitid(P_PID, (id_t)c->pid, &si, WEXITED | WNOHANG | WNOWAIT), 0);
	return si.si_pid;
}

/* A lookup of a hanging file system's root delays only its caller. */
static void hanging_file_systems_stop_nobody_else(void)
{
	struct child c, victim;
	struct fusefs fs;
	unsigned returned;
	bool lived;

	begin();
	if (fusefs_start(&fs, case_there) < 0)
		T_SKIP("%s", fs.why);
	(void)snprintf(path, sizeof(path), "%s", at(strrchr(fs.dir, '/') + 1));
	fusefs_hold_root(&fs);
	c = child_start(stats_a_file_system);
	for (uint64_t until = t_hang(); !fusefs_waiting(&fs); (void)usleep(100))
		T_CHECK(t_now() < until);
	gate_pass(ready);
	victim = child_start(lives);
	lived = ends_soon(&victim);
	returned = atomic_load(&shared->returned);
	/* Release it even if the victim hangs: otherwise nobody could remove the directory. */
	fusefs_release(&fs);
	ends(&victim);
	ends(&c);
	T_CHECK(lived);
	T_EQ(returned, 0);
	T_EQ(atomic_load(&shared->returned), 1);
	T_EQ(atomic_load(&shared->failed), 0);
	fusefs_stop(&fs);
	end();
}

int main(int argc, char **argv)
{
	case_init(argc, argv);
	CASE(leases_stop_nobody_else);
	CASE(leases_are_waited_for);
	CASE(slow_files_stop_nobody_else);
	CASE(hanging_file_systems_stop_nobody_else);
	return case_done();
}
