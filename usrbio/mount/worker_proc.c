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
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "base/base.h"
#include "usrbio/proto/id.h"

#define PROGRAM "penstock-worker"
#define ANSWER_MS 3000
#define DEVICE_MS 30000 /* a vendor's library may be loaded, and a context made */
#define END_MS 3000
#define ENV_MAX 64u

/* The child becomes the worker with these, all of them made before fork(). */
struct start {
	char path[PATH_MAX];
	char sock_text[2][16];
	const char *argv[4 + USRBIO_PRIORITIES];
	const char *env[ENV_MAX + 1];
	uid_t uid;
	gid_t gid;
	gid_t *groups;
	size_t nr_groups;
	int socks[2];     /* to answer and to tell by */
	int null;         /* /dev/null */
	bool is_terminal; /* standard error */
};

/* The worker lies beside the broker. */
static int find_program(char ret[PATH_MAX])
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

/* Of the broker's environment, what is about the library, its loader, and sanitizers. */
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

/* In the child: only calls that are safe after fork() of a process with threads. */
static void become(const struct start *s)
{
	union {
		const char *const *from;
		char *const *to; /* what exec asks for and does not change */
	} argv = { s->argv }, env = { s->env };
	sigset_t none;

	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	/* The raw calls: glibc's want the other threads to follow. */
	if (geteuid() == 0 && (syscall(SYS_setgroups, s->nr_groups, s->groups) < 0 ||
			       syscall(SYS_setresgid, s->gid, s->gid, s->gid) < 0 ||
			       syscall(SYS_setresuid, s->uid, s->uid, s->uid) < 0))
		_exit(126);
	(void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	/* Nothing of a terminal: whoever can trace the worker could read there. */
	(void)setsid();
	(void)dup2(s->null, STDIN_FILENO);
	(void)dup2(s->null, STDOUT_FILENO);
	if (s->is_terminal)
		(void)dup2(s->null, STDERR_FILENO);
	for (unsigned i = 0; i < ARRAY_SIZE(s->socks); i++)
		(void)fcntl(s->socks[i], F_SETFD, 0);
	(void)execve(s->path, argv.to, env.to);
	_exit(127);
}

static int name_sems(struct worker *w)
{
	for (unsigned p = 0; p < USRBIO_PRIORITIES; p++) {
		uint8_t id[USRBIO_ID_LEN];
		char text[USRBIO_ID_TEXT];
		int err = usrbio_id_new(id);

		if (err < 0)
			return err;
		usrbio_id_format(id, text);
		(void)snprintf(w->sem[p], sizeof(w->sem[p]), "hf3fs-submit-ios.%s", text);
	}
	return 0;
}

static int prepare(struct start *s, const struct worker *w, const struct caller *c)
{
	int err = find_program(s->path);

	if (err < 0)
		return err;
	s->uid = c->uid;
	s->gid = c->gid;
	s->argv[0] = PROGRAM;
	for (unsigned i = 0; i < ARRAY_SIZE(s->socks); i++) {
		(void)snprintf(s->sock_text[i], sizeof(s->sock_text[i]), "%d", s->socks[i]);
		s->argv[1 + i] = s->sock_text[i];
	}
	for (unsigned p = 0; p < USRBIO_PRIORITIES; p++)
		s->argv[3 + p] = w->sem[p];
	pick_env(s->env);
	s->is_terminal = isatty(STDERR_FILENO);
	s->null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (s->null < 0)
		return -errno;
	return caller_groups(c->pid, &s->groups, &s->nr_groups);
}

/* 0, -EREMOTEIO: the worker is gone, or takes too long. */
static int receive(struct worker *w, int ms, struct link_msg *ret)
{
	struct pollfd pfd = { .fd = w->sock, .events = POLLIN };
	int n;

	do
		n = poll(&pfd, 1, ms);
	while (n < 0 && errno == EINTR);
	return n > 0 && link_recv(w->sock, ret, NULL) > 0 ? 0 : -EREMOTEIO;
}

/* A worker that takes nothing must not keep us. */
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

static int start(struct worker *w, const struct caller *c)
{
	struct start s = { .socks = { -1, -1 }, .null = -1 };
	struct link_msg hello;
	int err = pair(&w->sock, &s.socks[0]);

	if (err == 0)
		err = pair(&w->heard, &s.socks[1]);
	if (err == 0)
		err = prepare(&s, w, c);
	if (err == 0) {
		w->pid = fork();
		if (w->pid == 0)
			become(&s);
		err = w->pid < 0 ? -errno : 0;
	}
	closep(&s.socks[0]);
	closep(&s.socks[1]);
	closep(&s.null);
	free(s.groups);
	if (err < 0)
		return err;
	w->pidfd = (int)syscall(SYS_pidfd_open, w->pid, 0);
	err = w->pidfd < 0 ? -errno : receive(w, ANSWER_MS, &hello);
	return err < 0 ? err : hello.result;
}

/* Its process has ended or is going to. */
static void reap(struct worker *w)
{
	struct pollfd pfd = { .fd = w->pidfd, .events = POLLIN };
	uint64_t now = now_ns();
	int ms = END_MS;

	if (w->pid <= 0)
		return;
	if (w->until)
		ms = w->until > now ? (int)((w->until - now) / NSEC_PER_MSEC) : 0;
	if (w->pidfd < 0 || poll(&pfd, 1, ms) <= 0)
		(void)kill(w->pid, SIGKILL);
	while (waitpid(w->pid, NULL, 0) < 0 && errno == EINTR)
		;
}

static void destroy(struct worker *w)
{
	char path[USRBIO_SHM_NAME_MAX + 8];

	closep(&w->sock); /* for the worker the end */
	reap(w);
	if (w->listens) {
		(void)shutdown(w->heard, SHUT_RDWR);
		(void)pthread_join(w->listener, NULL);
	}
	closep(&w->heard);
	closep(&w->pidfd);
	/* One that was killed has left them. */
	for (unsigned p = 0; p < USRBIO_PRIORITIES; p++) {
		(void)snprintf(path, sizeof(path), "/sem.%s", w->sem[p]);
		(void)shm_unlink(path);
	}
	(void)pthread_mutex_destroy(&w->lock);
	free(w);
}

int worker_start(const struct caller *c, struct worker **ret)
{
	struct worker *w = calloc(1, sizeof(*w));
	int err;

	if (!w)
		return -ENOMEM;
	*w = (struct worker){ .refs = 1, .uid = c->uid, .pidfd = -1, .sock = -1, .heard = -1 };
	(void)pthread_mutex_init(&w->lock, NULL);
	err = name_sems(w);
	if (err == 0)
		err = start(w, c);
	if (err < 0)
		destroy(w);
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
		err = link_send(w->sock, msg, fd);
		if (err == 0)
			err = receive(w, msg->op == LINK_DEVICE_ADD ? DEVICE_MS : ANSWER_MS,
				      &answer);
		if (err < 0) {
			atomic_store(&w->dead, true);
			(void)kill(w->pid, SIGKILL);
			err = -EREMOTEIO;
		}
	}
	(void)pthread_mutex_unlock(&w->lock);
	return err < 0 ? err : MIN(answer.result, 0);
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

void worker_unref(struct worker *w)
{
	if (w && atomic_fetch_sub(&w->refs, 1) == 1)
		destroy(w);
}
