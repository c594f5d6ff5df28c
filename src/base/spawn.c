/* SPDX-License-Identifier: MIT */
/*
 * Run helper programs and read their output.
 *
 * After an execve(2) a child always sends SIGCHLD to its parent when it ends, which the calling
 * program does not expect.  So there are two children: a warden, which calls no execve(2) and sends
 * no signal, and the warden's child, which becomes the helper program.  Both children are created
 * as by vfork(), because copying large page tables takes long: they run in the memory of this
 * process, and the calling thread waits until the warden has ended.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/err.h"
#include "base/spawn.h"

#define STACK KIB(64) /* bytes of each child's stack */
#define END_NS (50 * NSEC_PER_MSEC)
#define FDS_MAX 65536u

/* In functions that do not return, sanitizers look for the end of the stack, but they do not know
 * this stack. */
#define OWN_STACK __attribute__((no_sanitize("address")))

/*
 * The thread sanitizer treats clone() as fork(), and would see two processes in this memory.  The
 * sanitizer also tracks descriptors by their numbers, which refer to other files in a child.
 */
#ifdef __SANITIZE_THREAD__
int __clone(int (*fn)(void *), void *stack, int flags, void *arg, ...);
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
#define clone __clone
#define UNSEEN_BEGIN()                                         \
	do {                                                   \
		AnnotateIgnoreReadsBegin(__FILE__, __LINE__);  \
		AnnotateIgnoreWritesBegin(__FILE__, __LINE__); \
	} while (0)
#define UNSEEN_END()                                         \
	do {                                                 \
		AnnotateIgnoreWritesEnd(__FILE__, __LINE__); \
		AnnotateIgnoreReadsEnd(__FILE__, __LINE__);  \
	} while (0)
#else
#define UNSEEN_BEGIN() ((void)0)
#define UNSEEN_END() ((void)0)
#endif

/*
 * A sanitizer would take descriptors and exit of warden and program for those of this process.  So
 * both make direct system calls where a sanitizer would record the call.  gcov would also write its
 * counts before an execv(), and stop counting.
 */
static int move_up(int fd)
{
	return fd < 0 ? -1 : (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 10);
}

static int spawn_become(int fd, int number)
{
	return (int)syscall(SYS_dup3, fd, number, 0);
}

static void close_one(int fd)
{
	(void)syscall(SYS_close, fd);
}

static void spawn_leave(int status)
{
	(void)syscall(SYS_exit_group, status);
}

struct asked {
	const struct spawn *s;
	uint64_t deadline_ns;
	char *text;
	size_t len;
	char *stack; /* stack of the helper program until its execve(2) */
	int err;

	/* Descriptors of warden and program.  The two have their own descriptor tables. */
	int fd;      /* passed to the program; -1: none */
	int ends[2]; /* ends of the pipe, moved above 9 so that dup3() does not overwrite them */
};

/* ------------------------------------------------------------- the program */

static void close_from(unsigned first)
{
	struct rlimit rl = { .rlim_cur = FDS_MAX };

	if (syscall(SYS_close_range, first, ~0u, 0) == 0)
		return;
	(void)getrlimit(RLIMIT_NOFILE, &rl);
	for (unsigned fd = first; fd < MIN(rl.rlim_cur, FDS_MAX); fd++)
		close_one((int)fd);
}

static void default_signals(void)
{
	const struct sigaction dfl = { .sa_handler = SIG_DFL };
	sigset_t none;

	for (int sig = 1; sig < NSIG; sig++)
		(void)sigaction(sig, &dfl, NULL); /* fails for signals that cannot be set */
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}

OWN_STACK static int program_main(void *arg)
{
	struct asked *a = arg;
	int null = move_up((int)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR));

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* A new session: ^C and ^Z on the terminal are for the calling program only. */
	(void)syscall(SYS_setsid);
	if (null >= 0 && spawn_become(null, 0) == 0 && spawn_become(null, 2) == 2 &&
	    spawn_become(a->ends[1], 1) == 1 && (a->fd < 0 || spawn_become(a->fd, 3) == 3)) {
		close_from(a->fd < 0 ? 3 : 4);
		default_signals();
		(void)syscall(SYS_execve, a->s->file, a->s->argv, environ);
	}
	a->err = errno;
	spawn_leave(127);
	return 0;
}

/* -------------------------------------------------------------- the warden */

/* Read the program's output.  Return 0 or ETIMEDOUT. */
static int take_text(struct asked *a)
{
	size_t got = 0;
	ssize_t n = 1;

	while (n > 0 && got < a->len - 1 && !a->s->enough(a->text)) {
		struct pollfd p = { .fd = a->ends[0], .events = POLLIN };
		uint64_t now = now_ns(), left;

		if (now >= a->deadline_ns)
			return ETIMEDOUT;
		left = (a->deadline_ns - now) / NSEC_PER_MSEC + 1;
		if (poll(&p, 1, (int)MIN(left, UINT64_C(1000))) <= 0)
			continue;
		n = read(a->ends[0], a->text + got, a->len - 1 - got);
		got += n > 0 ? (size_t)n : 0;
		a->text[got] = '\0';
	}
	return 0;
}

/* Kill the program.  If it hangs in the kernel, init adopts it. */
static void end_program(pid_t pid)
{
	const struct timespec pause = { .tv_nsec = 500000 };
	uint64_t until = now_ns() + END_NS;

	(void)kill(pid, SIGKILL);
	while (waitpid(pid, NULL, __WALL | WNOHANG) == 0 && now_ns() < until)
		(void)nanosleep(&pause, NULL);
}

static int start_program(struct asked *a, pid_t *ret_pid)
{
	int ends[2];

	if (syscall(SYS_pipe2, ends, O_CLOEXEC) < 0)
		return errno;
	a->ends[0] = move_up(ends[0]);
	a->ends[1] = move_up(ends[1]);
	a->fd = move_up(a->s->fd);
	if (a->ends[0] < 0 || a->ends[1] < 0 || (a->s->fd >= 0 && a->fd < 0))
		return errno;
	*ret_pid = clone(program_main, a->stack + STACK, CLONE_VM | CLONE_VFORK, a);
	if (*ret_pid < 0)
		return errno;
	/* Close the copies of descriptors in the warden's own table.  Otherwise the pipe would stay
	 * open, and so would files that other threads close. */
	if (spawn_become(a->ends[0], 0) < 0)
		return errno;
	a->ends[0] = 0;
	close_from(1);
	return a->err;
}

OWN_STACK static int warden_main(void *arg)
{
	struct asked *a = arg;
	pid_t pid = -1;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	a->err = start_program(a, &pid);
	if (!a->err)
		a->err = take_text(a);
	if (pid > 0)
		end_program(pid);
	spawn_leave(0);
	return 0;
}

/* ---------------------------------------------------------------------- us */

static int run_warden(struct asked *a)
{
	char *stacks = mmap(NULL, 2 * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);
	sigset_t all, old;
	pid_t pid;

	if (stacks == MAP_FAILED)
		return errno;
	a->stack = stacks + STACK;
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	UNSEEN_BEGIN();
	pid = clone(warden_main, stacks + STACK, CLONE_VM | CLONE_VFORK, a);
	if (pid < 0)
		a->err = errno;
	else
		(void)waitpid(pid, NULL, __WALL);
	UNSEEN_END();
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	(void)munmap(stacks, 2 * STACK);
	return a->err;
}

int spawn_ask(const struct spawn *s, uint64_t deadline_ns, char *ret, size_t len)
{
	struct asked a = { .s = s, .deadline_ns = deadline_ns, .text = ret, .len = len };
	int err;

	ret[0] = '\0';
	err = run_warden(&a);
	if (err == ETIMEDOUT)
		return err_set(err, "%s did not answer in time", s->file);
	return err ? err_set(err, "%s could not be started: %s", s->file, err_name(err)) : 0;
}
