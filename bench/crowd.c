/* SPDX-License-Identifier: MIT */
/*
 * Measure one client's reads, alone and next to a crowd of other clients of the same server.  Idle
 * clients have only sent their hello; busy clients read at a fixed rate.  Turns alone and with the
 * crowd alternate; the crowd pauses during turns alone.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <penstock.h>

#include "die.h"
#include "machine.h"
#include "net/wire.h"
#include "tools/common/spread.h"

#define TURNS_MAX 101u
#define READS_MAX 1000000u
#define FILE_SIZE MIB(16)
#define BUSY_MAX 1024u
#define READ_MAX KIB(64)

static const char usage[] =
	"Usage: crowd [OPTION...] DIR\n"
	"\n"
	"Times of reads of a warm file that is made in DIR, from 'penstock serve', alone and\n"
	"beside other clients.  PENSTOCK names the command.\n"
	"\n"
	"  -s BYTES   of a read, at most 65536 (default 4096)\n"
	"  -i IDLE    clients that do nothing (default 1000)\n"
	"  -b BUSY    clients that read (default 50)\n"
	"  -r RATE    reads a second of each of those (default 20)\n"
	"  -n TURNS   alone, and as many beside the crowd (default 9)\n"
	"  -m MS      of a turn (default 500)\n";

static struct {
	const char *dir;
	uint64_t size;
	unsigned idle, busy, rate, turns, ms;
} set = { .size = 4096, .idle = 1000, .busy = 50, .rate = 20, .turns = 9, .ms = 500 };

/* Shared memory of both processes. */
static struct {
	_Atomic bool on;       /* the crowd reads */
	_Atomic uint64_t done; /* number of the crowd's reads */
} * shared;

static char file_path[4096];
static uint32_t times[READS_MAX];
static pid_t server, crowd;
static struct sockaddr_in address;

static uint64_t crowd_next_off(void)
{
	static uint64_t x = 88172645463325252u;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return x % (FILE_SIZE / set.size) * set.size;
}

/* ------------------------------------------------------------------------ the crowd */

struct member {
	int fd;
	uint32_t handle;
	size_t left; /* bytes of the current reply that are still missing */
	uint64_t next_ns;
};

static void crowd_get_all(int fd, void *to, size_t len)
{
	if (recv(fd, to, len, MSG_WAITALL) != (ssize_t)len)
		die("the server closed the connection of a client of the crowd");
}

static void crowd_put_request(int fd, struct wire_request q, const void *payload)
{
	uint8_t msg[WIRE_HEAD + 128];

	q.len = WIRE_HEAD + q.len;
	wire_put_request(&q, msg);
	memcpy(msg + WIRE_HEAD, payload, q.len - WIRE_HEAD);
	if (send(fd, msg, q.len, MSG_NOSIGNAL) != (ssize_t)q.len)
		die("the server takes no request of the crowd: %s", strerror(errno));
}

static struct wire_reply crowd_get_reply(int fd)
{
	uint8_t head[WIRE_HEAD], payload[4096];
	struct wire_reply r;

	crowd_get_all(fd, head, sizeof(head));
	if (wire_get_reply(head, &r) < 0 || r.err || wire_payload(r.len) > sizeof(payload))
		die("the server refuses a client of the crowd");
	crowd_get_all(fd, payload, wire_payload(r.len));
	return r;
}

static int crowd_join(void)
{
	struct wire_hello h = { .version = WIRE_VERSION, .oldest = 1 };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
	uint8_t hello[WIRE_HELLO_LEN];

	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		die("no connection for a client of the crowd: %s", strerror(errno));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	wire_put_hello(&h, hello);
	crowd_put_request(fd, (struct wire_request){ .len = sizeof(hello), .op = WIRE_HELLO },
			  hello);
	(void)crowd_get_reply(fd);
	return fd;
}

static void crowd_read(struct member *m)
{
	struct wire_request q = { .op = WIRE_READ,
				  .handle = m->handle,
				  .off = crowd_next_off(),
				  .count = (uint32_t)set.size };

	crowd_put_request(m->fd, q, "");
	m->left = WIRE_HEAD + set.size;
}

/* Begin the reads that are due.  Return when the next one is due. */
static uint64_t crowd_turn(struct member *m, bool on)
{
	uint64_t now = now_ns(), next = now + 10 * NSEC_PER_MSEC;

	for (unsigned i = 0; on && i < set.busy; i++) {
		if (m[i].left)
			continue;
		if (m[i].next_ns <= now) {
			m[i].next_ns = MAX(m[i].next_ns + NSEC_PER_SEC / set.rate, now);
			crowd_read(&m[i]);
		}
		next = MIN(next, m[i].next_ns);
	}
	return next;
}

static _Noreturn void crowd_run(int ready)
{
	static struct member m[BUSY_MAX];
	const char *name = strrchr(file_path, '/') + 1;
	struct epoll_event ev[64];
	char buf[READ_MAX + WIRE_HEAD];
	int ep = epoll_create1(EPOLL_CLOEXEC);

	for (unsigned i = 0; i < set.idle; i++)
		(void)crowd_join();
	for (unsigned i = 0; i < set.busy; i++) {
		struct epoll_event want = { .events = EPOLLIN, .data.ptr = &m[i] };

		m[i].fd = crowd_join();
		crowd_put_request(m[i].fd,
				  (struct wire_request){ .len = (uint32_t)strlen(name),
							 .op = WIRE_OPEN,
							 .how = WIRE_O_READ },
				  name);
		m[i].handle = crowd_get_reply(m[i].fd).count;
		m[i].next_ns = now_ns() + i * NSEC_PER_SEC / set.rate / set.busy;
		if (epoll_ctl(ep, EPOLL_CTL_ADD, m[i].fd, &want) < 0)
			die("epoll: %s", strerror(errno));
	}
	if (write(ready, "", 1) != 1)
		_exit(1);
	for (;;) {
		uint64_t next = crowd_turn(m, shared->on), now = now_ns();
		struct timespec wait = { .tv_nsec = next > now ? (long)(next - now) : 0 };
		int n = epoll_pwait2(ep, ev, 64, &wait, NULL);

		for (int i = 0; i < n; i++) {
			struct member *one = ev[i].data.ptr;
			ssize_t got = recv(one->fd, buf, one->left, MSG_DONTWAIT);

			if (got == 0 || (got < 0 && errno != EAGAIN))
				die("the server closed the connection of a busy client");
			one->left -= got > 0 ? (size_t)got : 0;
			shared->done += !one->left;
		}
	}
}

/* ----------------------------------------------------------------------- processes */

static void crowd_must(int r, const char *what)
{
	if (r < 0)
		die("%s: %s", what, pst_error_text());
}

static void crowd_server_start(char *url, size_t size)
{
	const char *penstock = getenv("PENSTOCK");
	char line[256], clients[16], *at;
	int out[2];
	ssize_t n;

	if (!penstock || pipe2(out, O_CLOEXEC) < 0)
		die("set PENSTOCK to the command");
	(void)snprintf(clients, sizeof(clients), "%u", set.idle + set.busy + 8);
	server = fork();
	if (server == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)dup2(out[1], 2);
		(void)execl(penstock, "penstock", "serve", "--root", set.dir, "--listen",
			    "127.0.0.1:0", "--clients", clients, (char *)NULL);
		_exit(127);
	}
	(void)close(out[1]);
	n = read(out[0], line, sizeof(line) - 1);
	line[MAX(n, 0)] = '\0';
	at = strstr(line, "127.0.0.1:");
	if (!at)
		die("%s serve does not start: %s", penstock, line);
	address = (struct sockaddr_in){ .sin_family = AF_INET,
					.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
					.sin_port = htons((uint16_t)atoi(at + 10)) };
	(void)snprintf(url, size, "pst://127.0.0.1:%u/%s", ntohs(address.sin_port),
		       strrchr(file_path, '/') + 1);
}

static void crowd_start(void)
{
	int ready[2];
	char c;

	if (pipe2(ready, O_CLOEXEC) < 0)
		die("no pipe: %s", strerror(errno));
	crowd = fork();
	if (crowd == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)close(ready[0]);
		crowd_run(ready[1]);
	}
	(void)close(ready[1]);
	if (read(ready[0], &c, 1) != 1)
		die("the crowd did not start");
	(void)close(ready[0]);
}

static void crowd_make_file(void)
{
	static char bytes[MIB(1)];
	int fd;

	(void)snprintf(file_path, sizeof(file_path), "%s/crowd-bench.%d", set.dir, (int)getpid());
	fd = open(file_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		die("%s: %s", file_path, strerror(errno));
	for (uint64_t at = 0; at < FILE_SIZE; at += sizeof(bytes))
		if (pwrite(fd, bytes, sizeof(bytes), (off_t)at) != (ssize_t)sizeof(bytes))
			die("%s: %s", file_path, strerror(errno));
	(void)close(fd);
}

/* ----------------------------------------------------------------------- measuring */

struct turn {
	struct latency latency;
	uint64_t reads;
};

static struct turn crowd_measure(struct pst_file *f, struct pst_queue *q, struct pst_mem *mem)
{
	uint64_t begin = now_ns(), end = begin + set.ms * NSEC_PER_MSEC, n = 0;

	while (begin < end && n < READS_MAX) {
		struct pst_io io = { .op = PST_OP_READ,
				     .file = f,
				     .mem = mem,
				     .file_off = crowd_next_off(),
				     .len = set.size };
		struct pst_done d;

		crowd_must(pst_queue_prep(q, &io), "prep");
		crowd_must(pst_queue_submit(q), "submit");
		crowd_must(pst_queue_reap(q, &d, 1, 1, PST_NO_DEADLINE), "reap");
		if (d.res != (int64_t)set.size)
			die("a read gave %" PRId64, d.res);
		times[n++] = latency_sample(now_ns() - begin);
		begin = now_ns();
	}
	return (struct turn){ latency_of(times, n), n };
}

static double crowd_show(const char *name, const struct turn *t)
{
	double p50[TURNS_MAX], p99[TURNS_MAX];
	uint64_t reads = 0;
	struct spread s;

	for (unsigned i = 0; i < set.turns; i++) {
		p50[i] = t[i].latency.p50_us;
		p99[i] = t[i].latency.p99_us;
		reads += t[i].reads;
	}
	s = spread_of(p99, set.turns);
	(void)printf("%-18s %8.1f %8.1f %8.1f %8.1f %10" PRIu64 "\n", name,
		     median_of(p50, set.turns), s.median, s.lowest, s.highest, reads);
	return s.median;
}

static void crowd_turns(const char *url)
{
	static struct turn alone[TURNS_MAX], beside[TURNS_MAX];
	struct pst_queue *q;
	struct pst_file *f;
	struct pst_mem *mem;
	double one, many;

	crowd_must(pst_queue_new(NULL, &q), "queue");
	crowd_must(pst_file_open(url, PST_FILE_READ, NULL, &f), url);
	crowd_must(pst_mem_alloc("host", set.size, NULL, &mem), "host");
	bench_print_machine();
	(void)printf("\nreads of %" PRIu64 " bytes, one at a time, %u turns of %u ms each; %u idle "
		     "clients, and %u with %u reads a second each\n\n",
		     set.size, set.turns, set.ms, set.idle, set.busy, set.rate);
	for (unsigned i = 0; i < set.turns; i++) {
		alone[i] = crowd_measure(f, q, mem);
		shared->on = true;
		beside[i] = crowd_measure(f, q, mem);
		shared->on = false;
	}
	(void)printf("%-18s %8s %8s %8s %8s %10s\n", "us", "p50", "p99", "least", "most", "reads");
	one = crowd_show("alone", alone);
	many = crowd_show("beside the crowd", beside);
	(void)printf("\np99 beside the crowd to alone (at most 2): %.2f; the crowd read %" PRIu64
		     " times\n",
		     many / one, shared->done);
	bench_print_load();
	(void)pst_file_close(f);
	(void)pst_queue_free(q);
	(void)pst_mem_free(mem);
}

int main(int argc, char *argv[])
{
	struct rlimit limit;
	char url[4200];
	int opt;

	while ((opt = getopt(argc, argv, "s:i:b:r:n:m:")) != -1) {
		uint64_t v = opt == '?' ? 0 : strtoull(optarg, NULL, 0);
		unsigned n = (unsigned)MIN(v, UINT64_C(1000000));

		if (opt == '?' || (!v && opt != 'i' && opt != 'b')) {
			(void)fputs(usage, stderr);
			return 2;
		}
		switch (opt) {
		case 's':
			set.size = MIN(v, READ_MAX);
			break;
		case 'i':
			set.idle = n;
			break;
		case 'b':
			set.busy = MIN(n, BUSY_MAX);
			break;
		case 'r':
			set.rate = n;
			break;
		case 'n':
			set.turns = MIN(n, TURNS_MAX);
			break;
		default:
			set.ms = n;
		}
	}
	if (argc - optind != 1) {
		(void)fputs(usage, stderr);
		return 2;
	}
	set.dir = argv[optind];
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		die("out of memory");
	crowd_make_file();
	crowd_server_start(url, sizeof(url));
	crowd_start();
	crowd_turns(url);
	(void)unlink(file_path);
	(void)kill(crowd, SIGKILL);
	(void)kill(server, SIGTERM);
	(void)waitpid(crowd, NULL, 0);
	(void)waitpid(server, NULL, 0);
	return 0;
}
