/* SPDX-License-Identifier: MIT */
/*
 * Starting programs.  fork() would copy the page tables of a process that may have mapped
 * terabytes, and posix_spawn() makes children that announce their end with SIGCHLD.  So this is
 * vfork() by hand: clone(2) with no signal for the end.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/err.h"
#include "base/log.h"
#include "base/spawn.h"

#define STACK KIB(64)
#define STRAYS_MAX 16u
#define END_NS (50 * NSEC_PER_MSEC)
#define FDS_MAX 65536u

struct child {
	const struct spawn *s;
	int fd, out; /* both above 9, out of the way of what they become */
	int err;     /* the child's, which shares our memory until it is another program */
};

static void close_from(unsigned first)
{
	struct rlimit rl = { .rlim_cur = FDS_MAX };

	if (syscall(SYS_close_range, first, ~0u, 0) == 0)
		return;
	(void)getrlimit(RLIMIT_NOFILE, &rl);
	for (unsigned fd = first; fd < MIN(rl.rlim_cur, FDS_MAX); fd++)
		(void)close((int)fd);
}

static void default_signals(void)
{
	const struct sigaction dfl = { .sa_handler = SIG_DFL };
	sigset_t none;

	for (int sig = 1; sig < NSIG; sig++)
		(void)sigaction(sig, &dfl, NULL); /* not all can be set */
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* On a stack of its own, in our memory; we wait. */
static int child_main(void *arg)
{
	struct child *c = arg;
	int null = open("/dev/null", O_RDWR);

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (null >= 0 && dup2(null, 0) == 0 && dup2(null, 2) == 2 && dup2(c->out, 1) == 1 &&
	    (c->fd < 0 || dup2(c->fd, 3) == 3)) {
		close_from(c->fd < 0 ? 3 : 4);
		default_signals();
		(void)execv(c->s->file, c->s->argv);
	}
	c->err = errno;
	_exit(127);
}

static int clone_child(struct child *c, pid_t *ret_pid)
{
	void *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	sigset_t all, old;
	pid_t pid;
	int err;

	if (stack == MAP_FAILED)
		return -errno;
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	pid = clone(child_main, (char *)stack + STACK, CLONE_VM | CLONE_VFORK, c);
	err = pid < 0 ? errno : c->err;
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	(void)munmap(stack, STACK);
	if (pid > 0 && err)
		spawn_end(pid);
	*ret_pid = pid;
	return -err;
}

int spawn_start(const struct spawn *s, pid_t *ret_pid)
{
	_cleanup_(closep) int fd = -1, out = fcntl(s->out, F_DUPFD_CLOEXEC, 10);
	struct child c = { .s = s };
	pid_t pid = -1;
	int r;

	if (s->fd >= 0)
		fd = fcntl(s->fd, F_DUPFD_CLOEXEC, 10);
	if (out < 0 || (s->fd >= 0 && fd < 0))
		return err_set(errno, "no descriptor to start %s: %s", s->file, err_name(errno));
	c.fd = fd;
	c.out = out;
	r = clone_child(&c, &pid);
	if (r < 0)
		return err_set(r, "%s could not be started: %s", s->file, err_name(r));
	*ret_pid = pid;
	return 0;
}

/* -------------------------------------------------------------------- ends */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pid_t strays[STRAYS_MAX]; /* killed, and not dead yet; 0 for none */

/* Its end sends no signal, and so is waited for with __WALL. */
static bool is_over(pid_t pid)
{
	return waitpid(pid, NULL, __WALL | WNOHANG) != 0;
}

static void keep(pid_t pid)
{
	unsigned i = 0;

	(void)pthread_mutex_lock(&lock);
	while (i < STRAYS_MAX && strays[i])
		i++;
	if (i < STRAYS_MAX)
		strays[i] = pid;
	(void)pthread_mutex_unlock(&lock);
	log_warn("process %d does not end, ignoring", (int)pid);
}

static void look_at_strays(void)
{
	(void)pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < STRAYS_MAX; i++)
		if (strays[i] && is_over(strays[i]))
			strays[i] = 0;
	(void)pthread_mutex_unlock(&lock);
}

void spawn_end(pid_t pid)
{
	const struct timespec nap = { .tv_nsec = 500000 };
	uint64_t until = now_ns() + END_NS;

	look_at_strays();
	(void)kill(pid, SIGKILL);
	while (!is_over(pid)) {
		if (now_ns() > until) {
			keep(pid);
			return;
		}
		(void)nanosleep(&nap, NULL);
	}
}
