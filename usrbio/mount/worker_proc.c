/* SPDX-License-Identifier: MIT */
#include "usrbio/mount/worker_proc.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "base/base.h"
#include "base/probe.h"
#include "usrbio/mount/counts.h"
#include "usrbio/mount/log.h"
#include "usrbio/proto/id.h"
#include "usrbio/proto/owner.h"

#define PROGRAM "penstock-worker"
#define ANSWER_MS 3000
#define DEVICE_MS 30000 /* time for loading a vendor's library and creating a context, ms */
#define END_MS 3000
#define STOPPED_MS 5 /* interval for checking whether a worker is stopped, ms */
#define ENV_MAX 64u

#define ERRNO_MAX 4095
#define SAYS_MAX 512u
#define END_TEXT_MS 1000 /* longest time from the socket's end to the process' end, ms */

/* Steps of starting a worker; the log has their names. */
enum step { STEP_PREPARE, STEP_FORK, STEP_GROUPS, STEP_EXEC, STEP_HELLO };

/* The message of a child that could not become a worker. */
struct failure {
	int32_t step, err;
};

/* Everything that the child needs, prepared before fork(). */
struct start {
	char path[PATH_MAX];
	char uid_text[16], sock_text[2][16], tally_text[16];
	const char *argv[6 + USRBIO_PRIORITIES];
	const char *env[ENV_MAX + 1];
	gid_t gid;
	gid_t *groups;
	size_t nr_groups;
	int socks[2]; /* worker's ends: for answers, and for reports */
	int tally;
	int null;             /* descriptor of /dev/null */
	int says[2], fail[2]; /* pipes: standard error; a struct failure */
	struct failure why;
};

/* Find the worker's program in the broker's directory. */
static int worker_proc_find_program(char ret[PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", ret, PATH_MAX - sizeof(PROGRAM));
	char *slash;

	if (n < 0)
		return -errno;
	ret[n] = '\0';
	slash = strrchr(ret, '/');
	if (!slash)
		return -ENOENT;
	(void)strcpy(slash + 1, PROGRAM);
	return access(ret, X_OK) < 0 ? -errno : 0;
}

/* Pick the environment variables that concern the library, its loader and sanitizers. */
static void pick_env(const char *ret[ENV_MAX + 1])
{
	static const char *const keep[] = { "PST", "LD_", "PATH=", "ASAN_", "TSAN_", "UBSAN_" };
	unsigned nr = 0;

	for (char **e = environ; *e && nr < ENV_MAX; e++)
		for (unsigned i = 0; i < ARRAY_SIZE(keep); i++)
			if (!strncmp(*e, keep[i], strlen(keep[i])))
				ret[nr++] = *e;
	ret[nr] = NULL;
}

/* Report the failed step to the broker and exit.  Runs in the child. */
static _Noreturn void worker_proc_give_up(const struct start *s, enum step step)
{
	struct failure f = { step, errno };

	(void)!write(s->fail[1], &f, sizeof(f));
	_exit(126);
}

/* Become the worker.  Runs in the child, so only async-signal-safe calls. */
static void worker_proc_become(const struct start *s)
{
	union {
		const char *const *from;
		char *const *to; /* execve() lacks const */
	} argv = { s->argv }, env = { s->env };
	static const struct rlimit none_of;
	sigset_t none;

	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	/*
	 * Raw system calls: glibc's functions would change all threads.  The worker itself changes
	 * its user after exec(), so that the user can never trace it.
	 */
	if (geteuid() == 0 && (syscall(SYS_setgroups, s->nr_groups, s->groups) < 0 ||
			       syscall(SYS_setresgid, s->gid, s->gid, s->gid) < 0))
		worker_proc_give_up(s, STEP_GROUPS);
	(void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	/* Detach from the terminal and the log: a process that traces the worker could use them. */
	(void)setsid();
	(void)dup2(s->null, STDIN_FILENO);
	(void)dup2(s->null, STDOUT_FILENO);
	(void)dup2(s->says[1], STDERR_FILENO);
	/* No core file: it would contain other programs' memory. */
	(void)setrlimit(RLIMIT_CORE, &none_of);
	for (unsigned i = 0; i < ARRAY_SIZE(s->socks); i++)
		(void)fcntl(s->socks[i], F_SETFD, 0);
	(void)fcntl(s->tally, F_SETFD, 0);
	(void)execve(s->path, argv.to, env.to);
	worker_proc_give_up(s, STEP_EXEC);
}

static int name_sems(struct worker *w)
{
	struct usrbio_owner self;
	bool known = usrbio_owner_self(&self) == 0;

	for (unsigned p = 0; p < USRBIO_PRIORITIES; p++) {
		uint8_t id[USRBIO_ID_LEN];
		char text[USRBIO_ID_TEXT];
		int err = usrbio_id_new(id);

		if (err < 0)
			return err;
		usrbio_id_format(id, text);
		if (known)
			usrbio_owner_sem(&self, id, w->sem[p]);
		else
			(void)snprintf(w->sem[p], sizeof(w->sem[p]), "hf3fs-submit-ios.%s", text);
	}
	return 0;
}

/* Make the memory for counters, whose size is sealed. */
static int make_tally(struct worker *w, int *ret_fd)
{
	static const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	void *map;

	*ret_fd = memfd_create("penstock-tally", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (*ret_fd < 0 || ftruncate(*ret_fd, sizeof(*w->tally)) < 0 ||
	    fcntl(*ret_fd, F_ADD_SEALS, seals) < 0)
		return -errno;
	map = mmap(NULL, sizeof(*w->tally), PROT_READ, MAP_SHARED, *ret_fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	w->tally = map;
	return 0;
}

static int worker_proc_prepare(struct start *s, struct worker *w, const struct caller *c)
{
	int err = worker_proc_find_program(s->path);

	if (err == 0)
		err = make_tally(w, &s->tally);
	if (err < 0)
		return err;
	s->gid = c->gid;
	s->argv[0] = PROGRAM;
	(void)snprintf(s->uid_text, sizeof(s->uid_text), "%u", c->uid);
	s->argv[4 + USRBIO_PRIORITIES] = s->uid_text;
	for (unsigned i = 0; i < ARRAY_SIZE(s->socks); i++) {
		(void)snprintf(s->sock_text[i], sizeof(s->sock_text[i]), "%d", s->socks[i]);
		s->argv[1 + i] = s->sock_text[i];
	}
	(void)snprintf(s->tally_text, sizeof(s->tally_text), "%d", s->tally);
	s->argv[3] = s->tally_text;
	for (unsigned p = 0; p < USRBIO_PRIORITIES; p++)
		s->argv[4 + p] = w->sem[p];
	pick_env(s->env);
	s->null = open("/dev/null", O_RDWR | O_CLOEXEC);
	/* Non-blocking, so that neither end waits for the other. */
	if (s->null < 0 || pipe2(s->says, O_CLOEXEC | O_NONBLOCK) < 0 ||
	    pipe2(s->fail, O_CLOEXEC | O_NONBLOCK) < 0)
		return -errno;
	w->says = TAKE_FD(s->says[0]);
	return caller_groups(c->pid, &s->groups, &s->nr_groups);
}

/*
 * Wait until a descriptor of the worker is readable, for up to ms.  Kill a worker that a signal has
 * stopped, because it would never answer.  Return 1; 0 after ms; -EREMOTEIO for a stopped worker.
 */
static int wait_readable(const struct worker *w, int fd, int ms)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	uint64_t until = now_ns() + (uint64_t)ms * NSEC_PER_MSEC, now;

	while ((now = now_ns()) < until) {
		int left = (int)((until - now) / NSEC_PER_MSEC) + 1;

		if (poll(&pfd, 1, MIN(left, STOPPED_MS)) > 0)
			return 1;
		if (worker_is_stopped(w)) {
			log_warn("a worker is stopped by a signal: it is ended", "uid=%u pid=%d",
				 w->uid, w->pid);
			(void)kill(w->pid, SIGKILL);
			return -EREMOTEIO;
		}
	}
	return poll(&pfd, 1, 0) > 0;
}

/* Receive an answer.  Return 0; -EREMOTEIO if the worker has ended; -ETIMEDOUT. */
static int worker_proc_receive(struct worker *w, int ms, struct link_msg *ret)
{
	int r = wait_readable(w, w->sock, ms);

	if (r <= 0)
		return r < 0 ? r : -ETIMEDOUT;
	return link_recv(w->sock, ret, NULL) > 0 ? 0 : -EREMOTEIO;
}

/* Return an answer's result as 0 or -errno, even if the worker sent another number. */
static int result_of(const struct link_msg *answer)
{
	if (answer->result > 0)
		return 0;
	return answer->result < -ERRNO_MAX ? -EPROTO : answer->result;
}

bool worker_status(const struct worker *w, char ret[32])
{
	siginfo_t si = { 0 };

	if (w->pidfd < 0 || waitid(P_PIDFD, (id_t)w->pidfd, &si, WEXITED | WNOHANG | WNOWAIT) < 0 ||
	    !si.si_pid)
		return false;
	if (si.si_code == CLD_EXITED)
		(void)snprintf(ret, 32, "exit=%d", si.si_status);
	else
		(void)snprintf(ret, 32, "signal=%s", sigabbrev_np(si.si_status) ?: "unknown");
	return true;
}

bool worker_is_stopped(const struct worker *w)
{
	siginfo_t si = { 0 };

	return waitid(P_PIDFD, (id_t)w->pidfd, &si, WSTOPPED | WNOHANG | WNOWAIT) == 0 && si.si_pid;
}

size_t worker_said(const struct worker *w, char *ret, size_t len)
{
	ssize_t n = w->says < 0 ? -1 : read(w->says, ret, len - 1);

	ret[MAX(n, 0)] = '\0';
	return (size_t)MAX(n, 0);
}

/* Return a cure for a worker that could not be started; "none known" otherwise. */
static const char *cure(const struct failure *f)
{
	if (f->step == STEP_PREPARE && (f->err == ENOENT || f->err == EACCES))
		return "install " PROGRAM " beside penstock-mount";
	if (f->err == EMFILE || f->err == ENFILE)
		return "raise the limit of open files, RLIMIT_NOFILE or fs.file-max";
	if (f->err == EAGAIN)
		return "raise the limit of processes, RLIMIT_NPROC or pids.max";
	if (f->err == EPERM && (f->step == STEP_GROUPS || f->step == STEP_HELLO))
		return "give the server CAP_SETUID and CAP_SETGID";
	if (f->err == EACCES && f->step == STEP_EXEC)
		return "make the program executable";
	if (f->err == EEXIST && f->step == STEP_HELLO)
		return "none is needed, another process has made its semaphores and it gets others";
	return "none known";
}

/* Log why a worker could not be started; its user only sees EREMOTEIO. */
static void say_why(const struct worker *w, const struct start *s, int err)
{
	static const char *const steps[] = { "prepare", "fork", "setgroups", "exec", "hello" };
	struct pollfd end = { .fd = w->pidfd, .events = POLLIN };
	char status[32] = "exit=none", text[SAYS_MAX];
	struct failure f = s->why;
	bool ended = w->pidfd >= 0 && err == -EREMOTEIO && poll(&end, 1, END_TEXT_MS) == 1 &&
		     worker_status(w, status);

	if (s->fail[0] >= 0 && read(s->fail[0], &f, sizeof(f)) == sizeof(f) &&
	    (f.step < STEP_GROUPS || f.step > STEP_EXEC))
		f.step = STEP_EXEC;
	(void)worker_said(w, text, sizeof(text));
	log_error("a worker could not be started",
		  "uid=%u step=%s error=%s %s says=%s program=%s cure=%s", w->uid, steps[f.step],
		  f.err   ? log_errno(f.err)
		  : ended ? "ended"
			  : "ETIMEDOUT",
		  status, log_text(text).s, log_text(s->path).s, log_text(cure(&f)).s);
}

static void close_socks(struct start *s)
{
	for (unsigned i = 0; i < ARRAY_SIZE(s->socks); i++) {
		closep(&s->socks[i]);
		s->socks[i] = -1;
	}
}

static int worker_proc_spawn(struct worker *w, struct start *s)
{
	struct link_msg hello = { 0 };
	int err;

	s->why.step = STEP_FORK;
	w->pid = fork();
	if (w->pid == 0)
		worker_proc_become(s);
	if (w->pid < 0)
		return -errno;
	closep(&s->says[1]);
	s->says[1] = -1;
	close_socks(s);
	s->why.step = STEP_HELLO;
	w->pidfd = (int)syscall(SYS_pidfd_open, w->pid, 0);
	if (w->pidfd < 0)
		return -errno;
	err = worker_proc_receive(w, ANSWER_MS, &hello);
	if (err < 0)
		return -EREMOTEIO;
	return result_of(&hello);
}

/* Make a socket pair.  Sending has a timeout, because a worker may stop reading. */
static int pair(int *ret_ours, int *ret_its)
{
	const struct timeval timeout = { .tv_sec = ANSWER_MS / 1000 };
	int socks[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, socks) < 0)
		return -errno;
	*ret_ours = socks[0];
	*ret_its = socks[1];
	(void)setsockopt(socks[0], SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
	return 0;
}

static int worker_proc_start(struct worker *w, const struct caller *c)
{
	struct start s = {
		.socks = { -1, -1 },
		.tally = -1,
		.null = -1,
		.says = { -1, -1 },
		.fail = { -1, -1 },
	};
	int err = pair(&w->sock, &s.socks[0]);

	if (err == 0)
		err = pair(&w->heard, &s.socks[1]);
	if (err == 0)
		err = worker_proc_prepare(&s, w, c);
	if (err == 0)
		err = worker_proc_spawn(w, &s);
	PROBE3(worker__start, w->uid, w->pid, err);
	if (err < 0) {
		s.why.err = err == -EREMOTEIO ? 0 : -err;
		say_why(w, &s, err);
	}
	close_socks(&s);
	closep(&s.tally);
	closep(&s.null);
	closep(&s.says[0]);
	closep(&s.says[1]);
	closep(&s.fail[0]);
	closep(&s.fail[1]);
	free(s.groups);
	return err;
}

/* Remove the worker's semaphores, which it leaves if it is killed. */
static void worker_proc_unlink_sems(const struct worker *w)
{
	char path[USRBIO_SHM_NAME_MAX + 8];

	for (unsigned p = 0; p < USRBIO_PRIORITIES; p++) {
		(void)snprintf(path, sizeof(path), "/sem.%s", w->sem[p]);
		(void)shm_unlink(path);
	}
}

/* Wait for the end of the worker's process; kill it after a time. */
static void worker_proc_reap(struct worker *w)
{
	uint64_t now = now_ns();
	siginfo_t end;
	int ms = END_MS;

	if (w->pid <= 0)
		return;
	if (w->until)
		ms = w->until > now ? (int)((w->until - now) / NSEC_PER_MSEC) : 0;
	if (w->pidfd < 0 || wait_readable(w, w->pidfd, ms) <= 0)
		(void)kill(w->pid, SIGKILL);
	while (waitid(P_PID, (id_t)w->pid, &end, WEXITED | WNOWAIT) < 0 && errno == EINTR)
		;
	/* Remove the names before reaping: once the process is gone, the user may reuse its
	 * names. */
	worker_proc_unlink_sems(w);
	while (waitpid(w->pid, NULL, 0) < 0 && errno == EINTR)
		;
}

static void worker_proc_destroy(struct worker *w)
{
	closep(&w->sock); /* Close the socket, which makes the worker end. */
	worker_proc_reap(w);
	if (w->listens) {
		(void)shutdown(w->heard, SHUT_RDWR);
		(void)pthread_join(w->listener, NULL);
	}
	closep(&w->heard);
	closep(&w->pidfd);
	closep(&w->says);
	if (w->tally) {
		union {
			const void *from;
			void *to; /* munmap() lacks volatile and const */
		} tally = { w->tally };

		(void)munmap(tally.to, sizeof(*w->tally));
	}
	(void)pthread_mutex_destroy(&w->lock);
	free(w);
}

int worker_start(const struct caller *c, char (*sems)[USRBIO_SHM_NAME_MAX], struct worker **ret)
{
	struct worker *w = calloc(1, sizeof(*w));
	int err;

	if (!w)
		return -ENOMEM;
	*w = (struct worker){
		.refs = 1,
		.uid = c->uid,
		.pidfd = -1,
		.sock = -1,
		.heard = -1,
		.says = -1,
	};
	(void)pthread_mutex_init(&w->lock, NULL);
	err = sems ? 0 : name_sems(w);
	if (sems)
		memcpy(w->sem, sems, sizeof(w->sem));
	if (err == 0)
		err = worker_proc_start(w, c);
	if (err < 0)
		worker_proc_destroy(w);
	else
		*ret = w;
	return err;
}

int worker_ask(struct worker *w, const struct link_msg *msg, int fd)
{
	struct link_msg answer = { 0 };
	int err = -EREMOTEIO;

	(void)pthread_mutex_lock(&w->lock);
	if (!atomic_load(&w->dead)) {
		err = mount_link_send(w->sock, msg, fd);
		if (err == 0)
			err = worker_proc_receive(
				w, msg->op == LINK_DEVICE_ADD ? DEVICE_MS : ANSWER_MS, &answer);
		/* Report only a worker that hangs: not one that ended by itself or by
		 * worker_end(). */
		if (err < 0 && !atomic_exchange(&w->dead, true)) {
			count_add(&counts.unanswered[msg->op], 1);
			if (err == -ETIMEDOUT)
				log_warn("a worker does not answer: it is ended",
					 "uid=%u pid=%d question=%s", w->uid, w->pid,
					 counts_link_name((enum link_op)msg->op));
			(void)kill(w->pid, SIGKILL);
		}
		if (err < 0)
			err = -EREMOTEIO;
		count_add(&counts.asked[msg->op], 1);
		if (err == 0 && answer.result < 0)
			count_add(&counts.failed[msg->op], 1);
	}
	(void)pthread_mutex_unlock(&w->lock);
	return err < 0 ? err : result_of(&answer);
}

int worker_listen(struct worker *w, void *(*thread)(void *), void *arg)
{
	int err = pthread_create(&w->listener, NULL, thread, arg);

	w->listens = !err;
	return -err;
}

void worker_end(struct worker *w, uint64_t until_ns)
{
	atomic_store(&w->dead, true);
	w->until = until_ns;
	(void)shutdown(w->sock, SHUT_RDWR);
}

struct worker *worker_ref(struct worker *w)
{
	(void)atomic_fetch_add(&w->refs, 1);
	return w;
}

bool worker_unref(struct worker *w)
{
	if (!w || atomic_fetch_sub(&w->refs, 1) != 1)
		return false;
	worker_proc_destroy(w);
	return true;
}
