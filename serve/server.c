/* SPDX-License-Identifier: MIT */
/* The event loop of the server. */
#include <fcntl.h>
#include <malloc.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>

#include "base/err.h"
#include "net/notify.h"
#include "serve/server.h"

#define EVENTS 64
#define BACKLOG 1024

void server_new_boot(struct server *s)
{
	uint64_t boot = 0;

	while (!boot)
		if (getrandom(&boot, sizeof(boot), 0) != sizeof(boot))
			boot = 0;
	if (s->boot)
		atomic_fetch_add(&s->nr_boots, 1);
	s->boot = boot;
}

/* -------------------------------------------------------------- listeners */

static int add_fd(struct server *s, int *fd)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = fd };

	if (*fd < 0 || epoll_ctl(s->epfd, EPOLL_CTL_ADD, *fd, &ev) < 0)
		return err_set(errno, "no descriptors for the server: %s", err_name(errno));
	return 0;
}

/* Remove the socket that a killed server left behind, if nobody listens there. */
static void remove_dead_socket(const struct net_addr *a)
{
	const struct sockaddr_un *un = (const struct sockaddr_un *)&a->sa;
	_cleanup_(closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct stat st;

	if (fd < 0 || lstat(un->sun_path, &st) < 0 || !S_ISSOCK(st.st_mode))
		return;
	if (connect(fd, (const struct sockaddr *)&a->sa, a->len) < 0 && errno == ECONNREFUSED)
		(void)unlink(un->sun_path);
}

/* Listen at an address.  @what: its name in the log.  *ret_fd is set once this server owns the
 * address: only then may the socket file be removed at the end. */
static int listen_at(struct server *s, const struct net_addr *a, const char *what, int *ret_fd)
{
	struct net_addr bound = { .len = sizeof(bound.sa) };
	char text[NET_ADDR_TEXT_MAX], line[NET_ADDR_TEXT_MAX + 32];
	int on = 1, fd, err;

	net_addr_text(a, text, sizeof(text));
	fd = net_socket(a);
	if (fd < 0)
		return err_set(fd, "no socket for %s: %s", text, err_name(fd));
	if (a->sa.ss_family == AF_UNIX)
		remove_dead_socket(a);
	else
		(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	/* The permissions of the metrics socket decide who may read the metrics. */
	if (a == &s->o.metrics && a->sa.ss_family == AF_UNIX)
		(void)fchmod(fd, 0600);
	if (bind(fd, (const struct sockaddr *)&a->sa, a->len) < 0) {
		err = errno;
		(void)close(fd);
		return err_set(err, "cannot listen at %s: %s", text, err_name(err));
	}
	*ret_fd = fd;
	if (listen(fd, BACKLOG) < 0)
		return err_set(errno, "cannot listen at %s: %s", text, err_name(errno));
	if (a->sa.ss_family != AF_UNIX &&
	    getsockname(fd, (struct sockaddr *)&bound.sa, &bound.len) == 0)
		net_addr_text(&bound, text, sizeof(text));
	(void)snprintf(line, sizeof(line), "%s %s", what, text);
	s->o.say(line);
	return 0;
}

/* Drop the oldest connection that sent no hello within a second.  Return false if there is none. */
static bool drop_oldest_stranger(struct server *s)
{
	uint64_t before = about_now_ns() - NSEC_PER_SEC;
	struct conn *oldest = NULL;
	struct list *e;

	list_for_each (e, &s->conns) {
		struct conn *c = list_entry(e, struct conn, link);

		if (!c->greeted && c->born_ns < before && (!oldest || c->born_ns < oldest->born_ns))
			oldest = c;
	}
	if (oldest)
		conn_kill(oldest, "all places were taken, and it had not said who it is");
	return oldest;
}

static void poll_listeners(struct server *s, bool on)
{
	for (unsigned i = 0; i < s->nr_listeners; i++) {
		struct epoll_event ev = { .events = EPOLLIN, .data.ptr = &s->listeners[i] };

		(void)epoll_ctl(s->epfd, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, s->listeners[i], &ev);
	}
	if (s->metrics_fd >= 0) {
		struct epoll_event ev = { .events = EPOLLIN, .data.ptr = &s->metrics_fd };

		(void)epoll_ctl(s->epfd, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, s->metrics_fd, &ev);
	}
	s->accepts = on;
}

void server_accept_failed(struct server *s)
{
	if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
		poll_listeners(s, false);
}

static int listen_at_all(struct server *s)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < s->o.nr_listen; i++) {
		s->listeners[i] = -1;
		s->nr_listeners++;
		r = listen_at(s, &s->o.listen[i], "listening on", &s->listeners[i]);
	}
	if (r == 0 && s->o.metrics.len)
		r = listen_at(s, &s->o.metrics, "numbers are at", &s->metrics_fd);
	return r;
}

static void unlink_socket(const struct net_addr *a)
{
	if (a->sa.ss_family == AF_UNIX)
		(void)unlink(((const struct sockaddr_un *)&a->sa)->sun_path);
}

static void close_listeners(struct server *s)
{
	for (unsigned i = 0; i < s->nr_listeners; i++) {
		if (s->listeners[i] < 0)
			continue;
		(void)close(s->listeners[i]);
		unlink_socket(&s->o.listen[i]);
	}
	s->nr_listeners = 0;
}

static void accept_some(struct server *s, int listener)
{
	for (int i = 0; i < EVENTS; i++) {
		struct net_addr addr = { .len = sizeof(addr.sa) };
		int fd = accept4(listener, (struct sockaddr *)&addr.sa, &addr.len,
				 SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0) {
			server_accept_failed(s);
			return;
		}
		/* nr_conns still includes the dropped connection until this turn ends. */
		if (s->nr_conns >= s->o.clients && !drop_oldest_stranger(s)) {
			s->counts.refused++;
			(void)close(fd);
			continue;
		}
		net_socket_tune(fd, addr.sa.ss_family);
		conn_new(s, fd, &addr);
	}
}

/* -------------------------------------------------------------------- loop */

static void begin_drain(struct server *s)
{
	struct list *e, *n;

	if (s->draining)
		return;
	(void)notify_service("STOPPING=1");
	close_listeners(s);
	s->draining = true;
	s->drain_end_ns = now_ns() + s->o.drain_s * NSEC_PER_SEC;
	list_for_each_safe (e, n, &s->conns)
		conn_turn(list_entry(e, struct conn, link));
}

static void tick(struct server *s)
{
	uint64_t n, now = about_now_ns();
	struct list *e, *next;

	(void)!read(s->timerfd, &n, sizeof(n));
	if (!s->accepts && !s->draining)
		poll_listeners(s, true);
	list_for_each_safe (e, next, &s->conns)
		conn_tick(list_entry(e, struct conn, link), now);
	rate_sweep(s, now);
	for (unsigned i = 0; i < SCRAPES; i++)
		if (s->scrapes[i].fd >= 0)
			scrape_turn(s, &s->scrapes[i]);
}

static void take_done(struct server *s)
{
	struct job *j, *next;
	eventfd_t v;

	(void)eventfd_read(s->efd, &v);
	for (j = exec_pool_take(s); j; j = next) {
		struct conn *c = j->conn;

		next = j->next;
		conn_job_done(j);
		/* Run the connection's turn after its last job, so that its replies are sent
		 * together. */
		if (!next || next->conn != c)
			conn_turn(c);
	}
}

static void take_event(struct server *s, const struct epoll_event *ev)
{
	struct signalfd_siginfo si;
	int *fd = ev->data.ptr;

	if (fd == &s->sigfd) {
		(void)!read(s->sigfd, &si, sizeof(si));
		begin_drain(s);
	} else if (fd == &s->efd) {
		take_done(s);
	} else if (fd == &s->timerfd) {
		tick(s);
	} else if (fd == &s->metrics_fd) {
		scrape_accept(s);
	} else if ((char *)fd >= (char *)s->scrapes &&
		   (char *)fd < (char *)(s->scrapes + SCRAPES)) {
		scrape_turn(s, ev->data.ptr);
	} else if (fd >= s->listeners && fd < s->listeners + SERVE_LISTEN_MAX) {
		if (s->nr_listeners)
			accept_some(s, *fd);
	} else {
		conn_turn(ev->data.ptr);
	}
}

/* Drop clients that do not take their replies. */
static void drop_all(struct server *s)
{
	struct list *e, *n;

	list_for_each_safe (e, n, &s->conns)
		conn_kill(list_entry(e, struct conn, link), "it takes no replies");
}

static void turn_again(struct server *s)
{
	struct list *e, *n;

	list_for_each_safe (e, n, &s->conns) {
		struct conn *c = list_entry(e, struct conn, link);

		if (c->again)
			conn_turn(c);
	}
}

/* Run connections whose rate delayed them. */
static void turn_slowed(struct server *s)
{
	struct list *e, *n;

	s->wake_ns = UINT64_MAX;
	list_for_each_safe (e, n, &s->conns) {
		struct conn *c = list_entry(e, struct conn, link);

		if (c->rate && c->full && c->greeted)
			conn_turn(c);
	}
}

static int server_wait_ms(const struct server *s)
{
	uint64_t now;

	if (s->nr_again)
		return 0;
	if (s->wake_ns == UINT64_MAX)
		return 1000;
	now = about_now_ns();
	return s->wake_ns > now ? (int)MIN((s->wake_ns - now) / NSEC_PER_MSEC + 1, UINT64_C(1000))
				: 0;
}

static int loop(struct server *s)
{
	struct epoll_event ev[EVENTS];

	while (!s->draining || !list_empty(&s->conns) || !list_empty(&s->dead)) {
		int n = epoll_wait(s->epfd, ev, EVENTS, server_wait_ms(s));

		for (int i = 0; i < n; i++)
			take_event(s, &ev[i]);
		if (s->nr_again)
			turn_again(s);
		if (s->wake_ns <= about_now_ns())
			turn_slowed(s);
		if (s->draining && now_ns() > s->drain_end_ns)
			drop_all(s);
		/* Free dead connections here: a later event of the same turn could still refer to
		 * one. */
		conn_sweep(s);
		/* Allow one more second for jobs that close files. */
		if (s->draining && now_ns() > s->drain_end_ns + NSEC_PER_SEC &&
		    !list_empty(&s->dead))
			return err_set(ETIMEDOUT,
				       "some requests did not end within %u s after the signal; "
				       "they were dropped",
				       s->o.drain_s);
	}
	return 0;
}

/* -------------------------------------------------------------- start, stop */

static void server_end_all(struct server *s)
{
	struct list *e, *n;

	close_listeners(s);
	list_for_each_safe (e, n, &s->conns)
		conn_kill(list_entry(e, struct conn, link), NULL);
	pool_stop(s);
	if (!list_empty(&s->dead)) {
		struct job *j, *next;

		for (j = exec_pool_take(s); j; j = next) {
			next = j->next;
			conn_job_done(j);
		}
		conn_sweep(s);
	}
	for (unsigned i = 0; i < SCRAPES; i++)
		scrape_close(s, &s->scrapes[i]);
	if (s->metrics_fd >= 0)
		unlink_socket(&s->o.metrics);
	closep(&s->metrics_fd);
	rate_sweep(s, UINT64_MAX);
	closep(&s->efd);
	closep(&s->sigfd);
	closep(&s->timerfd);
	closep(&s->epfd);
	free(s->in);
}

static int serve_server_start(struct server *s)
{
	struct itimerspec every = { .it_interval.tv_sec = 1, .it_value.tv_sec = 1 };
	struct rlimit rl;
	sigset_t set;
	int r;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGINT);
	(void)sigaddset(&set, SIGHUP);
	(void)pthread_sigmask(SIG_BLOCK, &set, NULL);
	/* Continue to serve even if the log's reader is gone. */
	(void)signal(SIGPIPE, SIG_IGN);
	/* Raise the limit: each client has a socket and open files. */
	if (getrlimit(RLIMIT_NOFILE, &rl) == 0) {
		rl.rlim_cur = rl.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &rl);
	}
	/* Keep freed payload memory in the process: otherwise each payload would be mapped and
	 * cleared anew. */
	(void)mallopt(M_MMAP_THRESHOLD, 16 << 20);
	(void)mallopt(M_TRIM_THRESHOLD, 64 << 20);
	s->epfd = epoll_create1(EPOLL_CLOEXEC);
	s->efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	s->sigfd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	s->timerfd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	s->in = malloc(3 * IN_MAX);
	if (!s->in)
		return err_set(ENOMEM, "out of memory");
	r = add_fd(s, &s->efd);
	if (r == 0)
		r = add_fd(s, &s->sigfd);
	if (r == 0)
		r = add_fd(s, &s->timerfd);
	if (r == 0 && timerfd_settime(s->timerfd, 0, &every, NULL) < 0)
		r = err_set(errno, "no timer: %s", err_name(errno));
	if (r == 0)
		r = qp_begin(s);
	if (r == 0)
		r = pool_start(s);
	if (r == 0)
		r = listen_at_all(s);
	if (r == 0) {
		qp_say(s);
		poll_listeners(s, true);
		/* Ignore errors: the service manager may be gone. */
		(void)notify_service("READY=1");
	}
	return r;
}

int serve_run(const struct serve_opts *o)
{
	struct server *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return err_set(ENOMEM, "out of memory");
	s->o = *o;
	s->epfd = s->efd = s->sigfd = s->timerfd = s->metrics_fd = -1;
	for (unsigned i = 0; i < SCRAPES; i++)
		s->scrapes[i].fd = -1;
	s->wake_ns = UINT64_MAX;
	s->start_ns = now_ns();
	list_init(&s->rates);
	list_init(&s->conns);
	list_init(&s->dead);
	server_new_boot(s);
	r = serve_server_start(s);
	if (r == 0)
		r = loop(s);
	/* A worker hangs and cannot be joined, so its memory stays until the process exits. */
	if (r == -ETIMEDOUT)
		return r;
	server_end_all(s);
	free(s);
	return r;
}
