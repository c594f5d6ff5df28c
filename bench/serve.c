/* SPDX-License-Identifier: MIT */
/*
 * Compare reads from a local storage service with a plain loop: its server receives requests of 16
 * bytes, calls pread(2) and sends; its client keeps equally many requests in flight, in equal
 * batches.  Both read one warm file by TCP over the loopback, in turns.  With -t, a service with
 * TLS takes part as well.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <penstock.h>

#include "base/base.h"
#include "die.h"
#include "machine.h"
#include "tools/common/spread.h"

#define DEPTH_MAX 256u
#define TURNS_MAX 101u
#define QUEUES_MAX 64u

static const char usage[] =
	"Usage: serve [OPTION...] DIR\n"
	"\n"
	"Reads of a warm file that is made in DIR, from 'penstock serve' and by a loop by\n"
	"hand.  PENSTOCK names the command.\n"
	"\n"
	"  -s BYTES   of a read (default 1048576)\n"
	"  -d DEPTH   reads under way (default 8)\n"
	"  -f MIB     of the file (default 128)\n"
	"  -n TURNS   of each way (default 9)\n"
	"  -m MS      of a turn (default 500)\n"
	"  -k KIND    memory of the reads from the service, host or soft:0 (default host)\n"
	"  -q QUEUES  queues that read from the service, each with a thread, a connection and\n"
	"             DEPTH reads in flight (default 1)\n"
	"  -t         read by psts:// as well, from a service with --keys\n";

static struct {
	const char *dir, *kind;
	uint64_t size, file;
	unsigned depth, turns, ms, queues;
	bool tls;
} set = { .kind = "host",
	  .size = 1 << 20,
	  .file = 128u << 20,
	  .depth = 8,
	  .turns = 9,
	  .ms = 500,
	  .queues = 1 };

struct ask {
	uint64_t off, len;
};

struct sample {
	double gb_s, cpu_us; /* GB/s; CPU microseconds per operation on both sides */
	uint64_t ops;
};

/* A queue that reads, and its turn. */
struct client {
	struct pst_queue *queue;
	struct pst_mem *mem; /* depth * size bytes */
	const struct service *of;
	pthread_t thread;
	uint64_t end_ns, ops;
};

/* A server, and what reads from it. */
struct service {
	pid_t pid;
	struct pst_file *file;
	struct client clients[QUEUES_MAX];
};

static char file_path[4096], key_path[4100];
static char *buf; /* depth * size bytes */
static pid_t hand_pid;
static int hand_fd = -1;
static struct service plain, tls;

static uint64_t next_off(void)
{
	static _Atomic uint64_t threads;
	static _Thread_local uint64_t x;

	/* Seed each thread differently: the high bits of odd multiples differ. */
	if (!x)
		x = UINT64_C(88172645463325252) ^ (++threads * UINT64_C(0x9e3779b97f4a7c15));
	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return x % (set.file / set.size) * set.size;
}

static void get_all(int fd, char *to, size_t len)
{
	while (len) {
		ssize_t n = recv(fd, to, len, MSG_WAITALL);

		if (n <= 0)
			die("the loop by hand ended: %s", n ? strerror(errno) : "closed");
		to += n;
		len -= (size_t)n;
	}
}

static void serve_put_all(int fd, const char *from, size_t len)
{
	while (len) {
		ssize_t n = send(fd, from, len, MSG_NOSIGNAL);

		if (n < 0)
			_exit(1);
		from += n;
		len -= (size_t)n;
	}
}

/* ------------------------------------------------------------- the loop by hand */

static void hand_serve(int listener)
{
	int fd = accept(listener, NULL, NULL), on = 1, in = open(file_path, O_RDONLY | O_CLOEXEC);
	struct ask asks[DEPTH_MAX];
	char *out = malloc(set.depth * set.size);
	size_t have = 0;

	if (fd < 0 || in < 0 || !out)
		_exit(1);
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	for (;;) {
		ssize_t n = recv(fd, (char *)asks + have, sizeof(asks) - have, 0);
		size_t nr, fill = 0;

		if (n <= 0)
			_exit(0);
		have += (size_t)n;
		nr = have / sizeof(*asks);
		/* Send at 256 KiB: small answers together, long ones while still in CPU caches. */
		for (size_t i = 0; i < nr; i++) {
			if (pread(in, out + fill, asks[i].len, (off_t)asks[i].off) !=
			    (ssize_t)asks[i].len)
				_exit(1);
			fill += asks[i].len;
			if (fill >= KIB(256) || i + 1 == nr) {
				serve_put_all(fd, out, fill);
				fill = 0;
			}
		}
		have -= nr * sizeof(*asks);
		memmove(asks, asks + nr, have);
	}
}

static void hand_start(void)
{
	struct sockaddr_in in = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
	socklen_t len = sizeof(in);

	if (listener < 0 || bind(listener, (struct sockaddr *)&in, sizeof(in)) < 0 ||
	    listen(listener, 1) < 0 || getsockname(listener, (struct sockaddr *)&in, &len) < 0)
		die("no socket: %s", strerror(errno));
	hand_pid = fork();
	if (hand_pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		hand_serve(listener);
	}
	hand_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (hand_pid < 0 || connect(hand_fd, (struct sockaddr *)&in, sizeof(in)) < 0)
		die("no connection: %s", strerror(errno));
	(void)setsockopt(hand_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	(void)close(listener);
}

static uint64_t hand_turn(struct service *s, uint64_t end)
{
	struct ask asks[DEPTH_MAX];
	uint64_t ops = 0, half = MAX(set.depth / 2, 1u);

	(void)s;
	for (unsigned i = 0; i < set.depth; i++)
		asks[i] = (struct ask){ next_off(), set.size };
	serve_put_all(hand_fd, (char *)asks, set.depth * sizeof(*asks));
	while (now_ns() < end) {
		/* Handle half of the requests at a time, so that the server always has the other
		 * half. */
		get_all(hand_fd, buf, half * set.size);
		ops += half;
		for (unsigned i = 0; i < half; i++)
			asks[i] = (struct ask){ next_off(), set.size };
		serve_put_all(hand_fd, (char *)asks, half * sizeof(*asks));
	}
	get_all(hand_fd, buf, set.depth * set.size);
	return ops + set.depth;
}

/* -------------------------------------------------------------------- the service */

static void must(int r, const char *what)
{
	if (r < 0)
		die("%s: %s", what, pst_error_text());
}

/* Make a key file that both sides read. */
static void serve_make_key(void)
{
	uint8_t key[32];
	FILE *f;

	(void)snprintf(key_path, sizeof(key_path), "%s.key", file_path);
	f = fopen(key_path, "wxe");
	if (!f || fchmod(fileno(f), 0600) < 0 || getrandom(key, sizeof(key), 0) != sizeof(key))
		die("%s: %s", key_path, strerror(errno));
	(void)fputs("bench:", f);
	for (size_t i = 0; i < sizeof(key); i++)
		(void)fprintf(f, "%02x", key[i]);
	if (fputs("\n", f) < 0 || fclose(f) != 0 || setenv("PST_KEYS", key_path, 1) < 0)
		die("%s: %s", key_path, strerror(errno));
}

static void serve_service_start(struct service *s, bool keys)
{
	const char *penstock = getenv("PENSTOCK");
	struct pst_queue_opts qo = { .sz = sizeof(qo), .depth = set.depth };
	char line[256], url[300], *at;
	int out[2];
	ssize_t n;

	if (!penstock || pipe2(out, O_CLOEXEC) < 0)
		die("set PENSTOCK to the command");
	s->pid = fork();
	if (s->pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)dup2(out[1], 2);
		(void)execl(penstock, "penstock", "serve", "--root", set.dir, "--listen",
			    "127.0.0.1:0", keys ? "--keys" : (char *)NULL, key_path, (char *)NULL);
		_exit(127);
	}
	(void)close(out[1]);
	n = read(out[0], line, sizeof(line) - 1);
	line[MAX(n, 0)] = '\0';
	at = strstr(line, "127.0.0.1:");
	if (!at)
		die("%s serve does not start: %s", penstock, line);
	at[strcspn(at, "\n")] = '\0';
	(void)snprintf(url, sizeof(url), "%s://%s/%s", keys ? "psts" : "pst", at,
		       strrchr(file_path, '/') + 1);
	must(pst_file_open(url, PST_FILE_READ, NULL, &s->file), url);
	for (unsigned i = 0; i < set.queues; i++) {
		struct client *c = &s->clients[i];

		c->of = s;
		must(pst_queue_new(&qo, &c->queue), "queue");
		must(pst_mem_alloc(set.kind, set.depth * set.size, NULL, &c->mem), set.kind);
	}
}

static void serve_service_end(struct service *s)
{
	for (unsigned i = 0; i < set.queues; i++) {
		(void)pst_queue_free(s->clients[i].queue);
		(void)pst_mem_free(s->clients[i].mem);
	}
	(void)pst_file_close(s->file);
	(void)kill(s->pid, SIGTERM);
	(void)waitpid(s->pid, NULL, 0);
}

static void serve_prep(struct client *c, uint64_t slot)
{
	struct pst_io io = { .op = PST_OP_READ,
			     .file = c->of->file,
			     .mem = c->mem,
			     .file_off = next_off(),
			     .mem_off = slot * set.size,
			     .len = set.size,
			     .user_data = slot };

	must(pst_queue_prep(c->queue, &io), "prep");
}

static void *client_turn(void *arg)
{
	struct client *c = arg;
	struct pst_done d[DEPTH_MAX];
	unsigned in_flight = set.depth;

	c->ops = 0;
	for (unsigned i = 0; i < set.depth; i++)
		serve_prep(c, i);
	while (in_flight) {
		bool more = now_ns() < c->end_ns;
		int n;

		must(pst_queue_submit(c->queue), "submit");
		n = pst_queue_reap(c->queue, d, 1, DEPTH_MAX, PST_NO_DEADLINE);
		must(n, "reap");
		for (int i = 0; i < n; i++) {
			if (d[i].res != (int64_t)set.size)
				die("a read gave %" PRId64, d[i].res);
			if (more)
				serve_prep(c, d[i].user_data);
			else
				in_flight--;
			c->ops++;
		}
	}
	return NULL;
}

static uint64_t service_turn(struct service *s, uint64_t end)
{
	uint64_t ops;

	for (unsigned i = 0; i < set.queues; i++)
		s->clients[i].end_ns = end;
	for (unsigned i = 1; i < set.queues; i++)
		if (pthread_create(&s->clients[i].thread, NULL, client_turn, &s->clients[i]) != 0)
			die("no thread");
	(void)client_turn(&s->clients[0]);
	ops = s->clients[0].ops;
	for (unsigned i = 1; i < set.queues; i++) {
		(void)pthread_join(s->clients[i].thread, NULL);
		ops += s->clients[i].ops;
	}
	return ops;
}

/* ---------------------------------------------------------------------- measuring */

/* Return the CPU time of this process and the server, in ns. */
static double serve_cpu_now(pid_t server)
{
	int64_t ns = cpu_ns_of(server);

	if (ns < 0)
		die("the CPU time of the server cannot be read: %s", strerror((int)-ns));
	return (double)(cpu_ns_of(0) + ns);
}

static struct sample serve_turn(uint64_t (*run)(struct service *s, uint64_t end), struct service *s,
				pid_t server)
{
	double cpu = serve_cpu_now(server);
	uint64_t begin = now_ns(), ops = run(s, begin + set.ms * NSEC_PER_MSEC);
	double ns = (double)(now_ns() - begin);

	return (struct sample){ .gb_s = (double)(ops * set.size) / ns,
				.cpu_us = (serve_cpu_now(server) - cpu) / 1e3 / (double)ops,
				.ops = ops };
}

static void serve_show(const char *name, const struct sample *s)
{
	double cpu = 0, rate[TURNS_MAX];
	struct spread gb_s;
	uint64_t ops = 0;

	for (unsigned i = 0; i < set.turns; i++) {
		rate[i] = s[i].gb_s;
		ops += s[i].ops;
		cpu += s[i].cpu_us * (double)s[i].ops;
	}
	gb_s = spread_of(rate, set.turns);
	(void)printf("%-10s %8.2f %8.2f %8.2f %10.1f %12" PRIu64 "\n", name, gb_s.median,
		     gb_s.lowest, gb_s.highest, cpu / (double)ops, ops);
}

static void serve_show_ratio(const char *what, double *ratio)
{
	struct spread s = spread_of(ratio, set.turns);

	(void)printf("\n%s, of pairs: median %.2f, %.2f to %.2f\n", what, s.median, s.lowest,
		     s.highest);
}

static void serve_make_file(void)
{
	int fd;

	(void)snprintf(file_path, sizeof(file_path), "%s/serve-bench.%d", set.dir, (int)getpid());
	fd = open(file_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		die("%s: %s", file_path, strerror(errno));
	for (uint64_t at = 0; at < set.file; at += set.size) {
		memset(buf, (int)(at / set.size), set.size);
		if (pwrite(fd, buf, set.size, (off_t)at) != (ssize_t)set.size)
			die("%s: %s", file_path, strerror(errno));
	}
	(void)close(fd);
}

int main(int argc, char *argv[])
{
	static struct sample hand[TURNS_MAX], service[TURNS_MAX], secret[TURNS_MAX];
	static double ratio[TURNS_MAX], tls_ratio[TURNS_MAX];
	int opt;

	while ((opt = getopt(argc, argv, "s:d:f:n:m:k:q:t")) != -1) {
		uint64_t v = opt == 'k' || opt == 't' || opt == '?' ? 1 : strtoull(optarg, NULL, 0);

		if (!v || opt == '?') {
			(void)fputs(usage, stderr);
			return 2;
		}
		switch (opt) {
		case 's':
			set.size = v;
			break;
		case 'd':
			set.depth = (unsigned)MIN(v, (uint64_t)DEPTH_MAX);
			break;
		case 'f':
			set.file = v << 20;
			break;
		case 'n':
			set.turns = (unsigned)MIN(v, (uint64_t)TURNS_MAX);
			break;
		case 'm':
			set.ms = (unsigned)v;
			break;
		case 'q':
			set.queues = (unsigned)MIN(v, (uint64_t)QUEUES_MAX);
			break;
		case 't':
			set.tls = true;
			break;
		default:
			set.kind = optarg;
		}
	}
	if (argc - optind != 1 || set.size > set.file) {
		(void)fputs(usage, stderr);
		return 2;
	}
	set.dir = argv[optind];
	buf = malloc(set.depth * set.size);
	if (!buf)
		die("out of memory");
	serve_make_file();
	hand_start();
	serve_service_start(&plain, false);
	if (set.tls) {
		serve_make_key();
		serve_service_start(&tls, true);
	}
	bench_print_machine();
	(void)printf("\nreads of %" PRIu64 " bytes, %u under way, by the service in each of %u "
		     "queues; %u turns of %u ms each; memory of the service's: %s\n\n",
		     set.size, set.depth, set.queues, set.turns, set.ms, set.kind);
	(void)printf("%-10s %8s %8s %8s %10s %12s\n", "way", "GB/s", "least", "most", "CPU us/op",
		     "operations");
	for (unsigned i = 0; i < set.turns; i++) {
		hand[i] = serve_turn(hand_turn, NULL, hand_pid);
		service[i] = serve_turn(service_turn, &plain, plain.pid);
		ratio[i] = service[i].gb_s / hand[i].gb_s;
		if (!set.tls)
			continue;
		secret[i] = serve_turn(service_turn, &tls, tls.pid);
		tls_ratio[i] = secret[i].gb_s / service[i].gb_s;
	}
	serve_show("by hand", hand);
	serve_show("service", service);
	if (set.tls)
		serve_show("TLS", secret);
	serve_show_ratio("service to by hand", ratio);
	if (set.tls)
		serve_show_ratio("TLS to service", tls_ratio);
	bench_print_load();
	(void)unlink(file_path);
	serve_service_end(&plain);
	if (set.tls) {
		(void)unlink(key_path);
		serve_service_end(&tls);
	}
	(void)kill(hand_pid, SIGKILL);
	(void)waitpid(hand_pid, NULL, 0);
	return 0;
}
