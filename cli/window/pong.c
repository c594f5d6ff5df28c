/* SPDX-License-Identifier: MIT */
/*
 * Round trips between two processes through device memory.
 *
 * This process has the memory and a window on it.  The other process was forked before the library
 * was used; it receives a grant through a socket and opens a window with nothing else, because it
 * has no context on the device.  One process stores a number; the other process sees the number and
 * stores it in the other flag.  So a round trip is twice the time until one CPU sees, through a
 * window, what another CPU has stored through a window.  No code runs on the device.
 */
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "tools/common/json.h"
#include "tools/common/shown.h"
#include "tools/common/table.h"
#include "cli/window/window.h"

#define COUNT 10000u /* default number of round trips */
#define BUCKET_OPS 100u
#define LEN KIB(64)
#define PING 0u /* byte offsets of the flags, each in its own cache line */
#define PONG 256u
#define THE_END UINT64_MAX
#define SPINS 4096u /* polls before yielding the CPU */
#define WAIT_NS (10 * NSEC_PER_SEC)

struct pong {
	const struct win_set *set;
	struct win win;
	struct machine m;
	pid_t child;
	int sock;
	cpu_set_t allowed;
	int cpu[2]; /* CPUs on which the two processes poll */
	uint64_t turn;
	struct bucket_sum window, copies, socket;
};

/* The other process's first message: whether it has opened its window. */
struct hello {
	int err;
	struct pst_window_info info;
	char text[400];
};

/* ------------------------------------------------------------------- flags */

static volatile uint64_t *flag(char *ptr, unsigned off)
{
	return (volatile uint64_t *)(void *)(ptr + off);
}

static void flag_store(volatile uint64_t *f, uint64_t v)
{
	*f = v;
	pst_window_fence();
}

/* Wait until the value differs from old, and return it.  Return old if the command must end or the
 * other process does not answer. */
static uint64_t flag_wait(const volatile uint64_t *f, uint64_t old)
{
	uint64_t end = now_ns() + WAIT_NS;

	do {
		for (unsigned i = 0; i < SPINS; i++) {
			uint64_t v = *f;

			if (v != old)
				return v;
		}
		/* Yield, in case the other process needs this CPU. */
		(void)sched_yield();
	} while (!stop_signal && now_ns() < end);
	return old;
}

/* -------------------------------------------------------------- processors */

/*
 * Choose different CPUs: on one CPU, each process would wait for the other's time slice.  Take the
 * first and the last allowed CPU, so that taskset(1) can choose.
 */
static void choose_cpus(struct pong *p)
{
	if (sched_getaffinity(0, sizeof(p->allowed), &p->allowed) < 0)
		CPU_ZERO(&p->allowed);
	p->cpu[0] = p->cpu[1] = -1;
	for (int i = 0; i < CPU_SETSIZE; i++) {
		if (!CPU_ISSET(i, &p->allowed))
			continue;
		if (p->cpu[0] < 0)
			p->cpu[0] = i;
		p->cpu[1] = i;
	}
}

static void pong_run_on(int cpu)
{
	cpu_set_t one;

	if (cpu < 0)
		return;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	(void)sched_setaffinity(0, sizeof(one), &one);
}

/* ------------------------------------------------------- the other process */

static int open_by_grant(const struct win_set *set, int sock, struct pst_window **ret)
{
	struct pst_window_opts o = win_opts(set);
	struct pst_grant g = { .sz = sizeof(g), .fd = -1 };
	int r;

	r = pst_grant_recv(sock, &g, now_ns() + WAIT_NS);
	if (r == 0)
		r = pst_window_open_grant(&g, &o, ret);
	pst_grant_done(&g);
	return r < 0 ? fail_pst(r, NULL) : 0;
}

static void answer_flags(char *ptr)
{
	volatile uint64_t *ping = flag(ptr, PING), *pong = flag(ptr, PONG);
	uint64_t seen = 0, v;

	do {
		v = flag_wait(ping, seen);
		if (v == seen)
			return;
		flag_store(pong, v);
		seen = v;
	} while (v != THE_END);
}

static void answer_socket(int sock)
{
	uint64_t v;

	while (read(sock, &v, sizeof(v)) == sizeof(v))
		if (write(sock, &v, sizeof(v)) != sizeof(v))
			return;
}

static void child_run(const struct win_set *set, int sock)
{
	struct hello hello = { .info = { .sz = sizeof(hello.info) } };
	struct pst_window *w = NULL;

	hello.err = open_by_grant(set, sock, &w);
	if (hello.err < 0)
		(void)snprintf(hello.text, sizeof(hello.text), "%.390s", fail_text());
	else
		(void)pst_window_info(w, &hello.info);
	if (write(sock, &hello, sizeof(hello)) != sizeof(hello) || hello.err < 0)
		return;
	answer_flags(pst_window_ptr(w));
	answer_socket(sock);
	(void)pst_window_close(w);
}

/* Fork before the library is used, because a child could not use it afterwards. */
static int child_start(struct pong *p)
{
	pid_t parent = getpid();
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
		return fail(errno, "cannot make a pair of sockets: %s", strerror(errno));
	p->child = fork();
	if (p->child == 0) {
		/* The child polls, so it must die with this process. */
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		(void)close(fds[0]);
		pong_run_on(p->cpu[1]);
		child_run(p->set, fds[1]);
		_exit(0);
	}
	(void)close(fds[1]);
	p->sock = fds[0];
	return p->child < 0 ? fail(errno, "cannot start a process: %s", strerror(errno)) : 0;
}

static int child_greet(struct pong *p)
{
	struct pst_grant g = { .sz = sizeof(g), .fd = -1 };
	struct hello hello;
	int r;

	r = pst_mem_export(p->win.mem, p->win.off, LEN, PST_RIGHT_READ | PST_RIGHT_WRITE, &g);
	if (r == 0)
		r = pst_grant_send(p->sock, &g, now_ns() + WAIT_NS);
	pst_grant_done(&g);
	if (r < 0)
		return fail_pst(r, p->win.dev.name);
	if (recv(p->sock, &hello, sizeof(hello), MSG_WAITALL) != sizeof(hello))
		return fail(ECONNRESET, "the other process ended before it opened its window");
	if (hello.err < 0)
		return fail(hello.err, "no window by a grant in the other process: %s", hello.text);
	return 0;
}

/* ------------------------------------------------------------ measurements */

/* Make one round trip with a new number. */
static int pong_trip(struct pong *p, uint64_t number)
{
	volatile uint64_t *pong = flag(p->win.ptr, PONG);
	uint64_t seen;

	flag_store(flag(p->win.ptr, PING), number);
	seen = flag_wait(pong, p->turn);
	p->turn = number;
	if (seen == number)
		return 0;
	return stop_signal
		       ? fail(EINTR, "interrupted")
		       : fail(EIO, "the other process does not answer, or answers another number");
}

static int by_window(void *arg, uint32_t ops)
{
	struct pong *p = arg;
	int r = 0;

	for (uint32_t i = 0; i < ops && r == 0; i++)
		r = pong_trip(p, p->turn + 1);
	return r;
}

static int by_copies(void *arg, uint32_t ops)
{
	struct pong *p = arg;
	uint64_t v;

	for (uint32_t i = 0; i < ops; i++) {
		int r = pst_mem_copy_in(p->win.mem, p->win.off + PING, &p->turn, sizeof(p->turn));

		if (r == 0)
			r = pst_mem_copy_out(p->win.mem, p->win.off + PONG, &v, sizeof(v));
		if (r < 0)
			return fail_pst(r, p->win.dev.name);
	}
	return 0;
}

static int by_socket(void *arg, uint32_t ops)
{
	struct pong *p = arg;
	uint64_t v;

	for (uint32_t i = 0; i < ops; i++)
		if (write(p->sock, &p->turn, sizeof(p->turn)) != sizeof(p->turn) ||
		    recv(p->sock, &v, sizeof(v), MSG_WAITALL) != sizeof(v))
			return fail(ECONNRESET, "the other process ended");
	return 0;
}

static int pong_run_all(struct pong *p)
{
	uint64_t count = p->set->count ? p->set->count : COUNT;
	struct bucket_plan plan = { .ops = (uint32_t)MIN(count, BUCKET_OPS) };
	int r;

	plan.buckets = (unsigned)(count / plan.ops);
	pong_run_on(p->cpu[0]);
	r = buckets_run(&plan, by_window, p, &p->window);
	if (r == 0)
		r = pong_trip(p, THE_END);
	if (r == 0)
		r = buckets_run(&plan, by_socket, p, &p->socket);
	(void)sched_setaffinity(0, sizeof(p->allowed), &p->allowed);
	if (r == 0)
		r = buckets_run(&plan, by_copies, p, &p->copies);
	return r == 0 && stop_signal ? fail(EINTR, "interrupted") : r;
}

/* -------------------------------------------------------------------- output */

static const char what[] =
	"window to window: one process stores 8 bytes by the CPU, another process sees them by "
	"polling, stores them elsewhere and the first polls for that; no code runs on the device";
static const char what_copies[] =
	"the device's own copies: pst_mem_copy_in() and _out() of 8 bytes in this process, "
	"nobody answers; a stream is made for each";
static const char what_socket[] =
	"socket: the same two processes, 8 bytes there and back through a UNIX socket";

static void pong_add_sum(struct table *t, const char *name, const struct bucket_sum *s)
{
	table_add(t, "%s", name);
	table_add(t, "%s", win_us_text(s->median).s);
	table_add(t, "%s", win_us_text(s->min).s);
	table_add(t, "%s", win_us_text(s->p99).s);
	table_add(t, "%u x %u", s->nr, s->ops);
}

static int pong_print_table(const struct pong *p)
{
	static const char *const heads[] = { "<round trip", "median us", "min", "p99", "trips" };
	_cleanup_(table_freep) struct table *t = table_new(heads, ARRAY_SIZE(heads));

	if (!t)
		return fail(ENOMEM, "out of memory");
	pong_add_sum(t, "window to window", &p->window);
	pong_add_sum(t, "device's own copies", &p->copies);
	pong_add_sum(t, "socket", &p->socket);
	win_print_head(&p->win, &p->m);
	if (p->cpu[0] >= 0)
		(void)printf("cpus     %d and %d\n", p->cpu[0], p->cpu[1]);
	(void)puts("");
	table_print(t, stdout, shown_width(stdout));
	shown_printf(2, "%s", what);
	shown_printf(2, "%s", what_copies);
	shown_printf(2, "%s", what_socket);
	return 0;
}

static void pong_print_json(const struct pong *p)
{
	_cleanup_(json_putp) struct json_object *root = json_object_new_object();

	win_json_head(root, &p->win, &p->m);
	json_int(root, "cpu", p->cpu[0]);
	json_int(root, "other_cpu", p->cpu[1]);
	json_text(root, "window_is", what);
	json_text(root, "copies_are", what_copies);
	json_text(root, "socket_is", what_socket);
	win_json_sum(root, "window", &p->window);
	win_json_sum(root, "copies", &p->copies);
	win_json_sum(root, "socket", &p->socket);
	json_print(root);
}

static void pong_done(struct pong *p)
{
	closep(&p->sock);
	if (p->child > 0) {
		(void)kill(p->child, SIGKILL);
		(void)waitpid(p->child, NULL, 0);
	}
	win_close(&p->win);
}

int win_pingpong(const struct win_set *set)
{
	_cleanup_(pong_done) struct pong p = { .set = set, .sock = -1 };
	static const char zero[LEN];
	int r;

	machine_facts(&p.m);
	choose_cpus(&p);
	r = child_start(&p);
	if (r == 0)
		r = win_open(&p.win, set, LEN, 1);
	if (r < 0)
		return r;
	r = pst_mem_copy_in(p.win.mem, p.win.off, zero, LEN);
	if (r < 0)
		return fail_pst(r, p.win.dev.name);
	r = child_greet(&p);
	if (r == 0)
		r = pong_run_all(&p);
	if (r < 0)
		return r;
	if (!set->json)
		return pong_print_table(&p);
	pong_print_json(&p);
	return 0;
}
