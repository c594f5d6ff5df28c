/* SPDX-License-Identifier: MIT */
/* Peers through the public API: two processes, over AF_UNIX with and without grants, TCP and
 * TLS. */
#include <sys/mman.h>

#include "agent.h"

#define RW (PST_RIGHT_READ | PST_RIGHT_WRITE)
#define TCP PST_PATH_BIT(PST_PATH_TCP)
#define PEER PST_PATH_BIT(PST_PATH_PEER)

/* The transport of the cases, and the agent's memory. */
static struct {
	const char *name;
	bool tcp, tls;
	uint32_t flags; /* flags of shares */
	const char *device;
} how;

static const char *keys_file(void)
{
	static char path[600];
	FILE *f;

	(void)snprintf(path, sizeof(path), "%s", rig_path("keys"));
	f = fopen(path, "w");
	T_CHECK(f);
	T_EQ(fchmod(fileno(f), 0600), 0);
	T_CHECK(fputs("test:0123456789abcdef0123456789ABCDEF\n", f) >= 0);
	T_EQ(fclose(f), 0);
	return path;
}

static void start(void)
{
	char addr[600];

	(void)snprintf(addr, sizeof(addr), "unix:%s", rig_path("sock"));
	agent_start(how.tcp ? "127.0.0.1:0" : addr, how.device, how.tls ? keys_file() : NULL);
}

static void quit(void)
{
	T_EQ(agent_ask((struct agent_ask){ .what = AGENT_QUIT }).res, 0);
	agent_end(0);
}

/* Return true if bytes took the expected path, with the expected device hop.  Between a device's
 * own memory and a peer's, the device copies without a hop. */
static bool moved_well(const struct pst_done *d)
{
	uint32_t device = PST_PATH_BIT(PST_PATH_STAGED) | PST_PATH_BIT(PST_PATH_WINDOW);

	if (how.flags && !strcmp(how.device, "soft") && strcmp(rig_dev, "host") != 0)
		return d->paths == PEER && d->why == PST_WHY_NONE;
	return (d->paths & ~device) == (how.flags ? PEER : TCP) &&
	       !(d->paths & device) == !strcmp(rig_dev, "host") && d->why == PST_WHY_NONE;
}

/* ------------------------------------------------------------------- cases */

/* Random puts, gets and messages against a model of the agent's memory. */
static void model(void)
{
	uint8_t *want = calloc(1, AGENT_LEN), *buf = malloc(AGENT_LEN);
	struct pst_mem *m = rig_alloc(rig_dev, AGENT_LEN);
	unsigned nr = getenv("PST_SOAK") ? 2000 : 24;
	struct agent_answer a;
	struct pst_file *f;

	T_CHECK(want && buf);
	start();
	a = agent_shares_it(0, 0, AGENT_LEN, RW, how.flags);
	f = agent_open(&a, RIG_RW);
	T_EQ(rig_file_info(f).size, AGENT_LEN);
	/* Initialise: new device memory has undefined bytes. */
	T_OK(pst_mem_copy_in(m, 0, want, AGENT_LEN));
	T_EQ(pst_write(f, 0, m, 0, AGENT_LEN, NULL), AGENT_LEN);
	for (unsigned i = 0; i < nr; i++) {
		bool small = rig_below(2);
		uint64_t len = 1 + rig_below(small ? 9000 : RIG_MIB(1));
		uint64_t off = rig_below(AGENT_LEN - len), at = rig_below(AGENT_LEN - len);
		struct agent_ask q = { .off = off, .len = len, .flags = how.flags };
		struct pst_done d;

		switch (rig_below(4)) {
		case 0: /* put */
			t_fill(want + off, rig_random(), 0, len);
			T_OK(pst_mem_copy_in(m, at, want + off, len));
			T_EQ(pst_write(f, off, m, at, len, &d), len);
			T_CHECK(moved_well(&d));
			break;
		case 1: /* get */
			T_EQ(pst_read(f, off, m, at, len, &d), len);
			T_CHECK(moved_well(&d));
			T_OK(pst_mem_copy_out(m, at, buf, len));
			T_CHECK(!memcmp(buf, want + off, len));
			break;
		case 2: /* send */
			t_fill(want + off, rig_random(), 0, len);
			T_OK(pst_mem_copy_in(m, at, want + off, len));
			q.what = AGENT_RECEIVE;
			agent_tell(&q);
			T_OK(pst_peer_send(agent.peer, m, at, len, how.flags, t_hang()));
			T_EQ(agent_hear().res, len);
			break;
		default: /* receive */
			q.what = AGENT_DUMP;
			T_EQ(agent_ask(q).res, 0);
			T_EQ(pst_peer_recv(agent.peer, m, at, AGENT_LEN - at, t_hang()), len);
			T_OK(pst_mem_copy_out(m, at, buf, len));
			T_CHECK(!memcmp(buf, want + off, len));
		}
	}
	T_EQ(pst_read(f, 0, m, 0, AGENT_LEN, NULL), AGENT_LEN);
	T_OK(pst_mem_copy_out(m, 0, buf, AGENT_LEN));
	T_CHECK(!memcmp(buf, want, AGENT_LEN));
	(void)pst_file_close(f);
	quit();
	(void)pst_mem_free(m);
	free(want);
	free(buf);
}

/* Bytes outside of a share, or with rights that were not given, cannot be reached. */
static void bounds_and_rights(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, 8192);
	struct agent_answer a, b;
	struct pst_file *f;

	start();
	a = agent_shares_it(0, 1000, 5000, PST_RIGHT_READ, how.flags);
	T_EQ(pst_peer_open(agent.peer, a.key, a.key_len, RIG_RW, t_hang(), &f), -EACCES);
	f = agent_open(&a, RIG_R);
	T_EQ(pst_read(f, 4000, m, 0, 4096, NULL), 1000);
	T_EQ(pst_read(f, 5000, m, 0, 1, NULL), 0);
	T_CHECK(pst_write(f, 0, m, 0, 1, NULL) < 0);
	(void)pst_file_close(f);
	b = agent_shares_it(1, 1000, 5000, RW, how.flags);
	f = agent_open(&b, PST_FILE_WRITE);
	T_EQ(pst_write(f, 4000, m, 0, 1000, NULL), 1000);
	T_EQ(pst_write(f, 4000, m, 0, 1001, NULL), -ERANGE);
	(void)pst_file_close(f);
	quit();
	(void)pst_mem_free(m);
}

/* An old key and an open file must not reach a new share in the old one's place. */
static void closed_share(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, 8192);
	struct agent_answer a, b;
	struct pst_file *f, *g;

	start();
	a = agent_shares_it(0, 0, 8192, RW, how.flags);
	f = agent_open(&a, RIG_RW);
	T_EQ(pst_read(f, 0, m, 0, 8192, NULL), 8192);
	T_EQ(agent_ask((struct agent_ask){ .what = AGENT_CLOSE }).res, 0);
	T_EQ(pst_read(f, 0, m, 0, 8192, NULL), -ESTALE);
	b = agent_shares_it(0, 8192, 8192, RW, how.flags);
	g = agent_open(&b, RIG_RW);
	T_EQ(pst_read(g, 0, m, 0, 8192, NULL), 8192);
	T_EQ(pst_read(f, 0, m, 0, 8192, NULL), -ESTALE);
	T_EQ(pst_write(f, 0, m, 0, 8192, NULL), -ESTALE);
	(void)pst_file_close(f);
	T_EQ(pst_peer_open(agent.peer, a.key, a.key_len, RIG_R, t_hang(), &f), -ESTALE);
	(void)pst_file_close(g);
	quit();
	(void)pst_mem_free(m);
}

/* Each flipped bit of a key is detected. */
static void changed_key(void)
{
	struct agent_answer a;
	struct pst_file *f;

	start();
	a = agent_shares_it(0, 0, 4096, RW, how.flags);
	for (unsigned i = 0; i < a.key_len * 8; i += 3) {
		uint8_t key[PST_KEY_MAX];

		memcpy(key, a.key, a.key_len);
		key[i / 8] ^= (uint8_t)(1u << i % 8);
		T_EQ(pst_peer_open(agent.peer, key, a.key_len, RIG_R, t_hang(), &f), -EBADMSG);
	}
	for (unsigned len = 0; len < a.key_len; len++)
		T_EQ(pst_peer_open(agent.peer, a.key, len, RIG_R, t_hang(), &f), -EBADMSG);
	quit();
}

/* Messages of all lengths stay in order; one that is too long for the buffer stays queued. */
static void messages(void)
{
	static const uint64_t lens[] = { 0, 1, 4096, 16384, 16385, 100000, RIG_MIB(3) };
	struct pst_mem *m = rig_alloc(rig_dev, AGENT_LEN);
	struct pst_peer_info info = { .sz = sizeof(info) };
	char c;

	start();
	T_OK(pst_peer_info(agent.peer, &info));
	T_EQ(info.flags, (how.tcp ? 0 : PST_PEER_LOCAL) | (how.tls ? PST_PEER_TLS : 0));
	T_EQ(info.pid, how.tcp ? 0 : (uint32_t)agent.pid);
	T_EQ(pst_peer_next(agent.peer, 0), -ETIMEDOUT);
	for (unsigned i = 0; i < RIG_NR(lens); i++) {
		struct agent_ask q = { .what = AGENT_RECEIVE, .len = lens[i], .flags = how.flags };

		rig_mem_fill(m, 0, RIG_MIB(3), i, 0);
		agent_tell(&q);
		T_OK(pst_peer_send(agent.peer, m, 0, lens[i], how.flags, t_hang()));
		T_EQ(agent_hear().res, lens[i]);
		q.what = AGENT_DUMP;
		T_EQ(agent_ask(q).res, 0);
		if (lens[i] > 1) {
			T_EQ(pst_peer_next(agent.peer, t_hang()), lens[i]);
			T_EQ(pst_peer_recv(agent.peer, NULL, (uintptr_t)&c, 1, t_hang()),
			     -EMSGSIZE);
		}
		T_EQ(pst_peer_recv(agent.peer, m, 100, RIG_MIB(4), t_hang()), lens[i]);
		T_EQ(rig_mem_differs(m, 100, lens[i], i, 0), lens[i]);
	}
	quit();
	(void)pst_mem_free(m);
}

/* With a stopped peer, calls end at their deadline, and the memory is free again. */
static void stopped_peer(void)
{
	struct pst_call_opts o = { .sz = sizeof(o) };
	struct pst_mem *m = rig_alloc(rig_dev, AGENT_LEN);
	struct pst_vec v = { .mem = m, .len = AGENT_LEN };
	struct pst_done d;
	struct agent_answer a;
	struct pst_file *f;
	int r = 0;

	start();
	a = agent_shares_it(0, 0, AGENT_LEN, RW, 0);
	f = agent_open(&a, RIG_RW);
	T_EQ(kill(agent.pid, SIGSTOP), 0);
	T_EQ(waitpid(agent.pid, NULL, WUNTRACED), agent.pid);
	o.deadline_ns = t_in_ms(50);
	T_EQ(pst_writev(f, &v, 1, &o, &d), -ETIMEDOUT);
	o.deadline_ns = t_in_ms(50);
	T_EQ(pst_readv(f, &v, 1, &o, &d), -ETIMEDOUT);
	T_OK(pst_mem_drain(m, t_hang()));
	/* The peer queues 64 messages; the next one is not sent. */
	for (unsigned i = 0; i < 65 && r == 0; i++)
		r = pst_peer_send(agent.peer, m, 0, 16384, 0, i < 64 ? t_hang() : t_in_ms(50));
	T_EQ(r, -ETIMEDOUT);
	T_EQ(pst_peer_send(agent.peer, m, 0, RIG_MIB(1), 0, t_in_ms(50)), -ETIMEDOUT);
	T_EQ(kill(agent.pid, SIGKILL), 0);
	(void)pst_file_close(f);
	agent_end(SIGKILL);
	(void)pst_mem_free(m);
}

/* A peer is killed while bytes move: each request ends, and nothing is left. */
static void killed_peer(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, AGENT_LEN);
	struct pst_queue *q = rig_queue(rig_backend, 64);
	struct agent_answer a;
	struct pst_file *f;
	unsigned failed = 0;

	start();
	a = agent_shares_it(0, 0, AGENT_LEN, RW, how.flags);
	f = agent_open(&a, RIG_RW);
	for (unsigned i = 0; i < 32; i++) {
		struct pst_io io = rig_io(i % 2 ? PST_OP_READ : PST_OP_WRITE, f, m, 0,
					  i * (uint64_t)131072, 131072);

		T_OK(pst_queue_prep(q, &io));
	}
	T_EQ(pst_queue_submit(q), 32);
	T_EQ(kill(agent.pid, SIGKILL), 0);
	for (unsigned i = 0; i < 32; i++)
		failed += rig_reap1(q).res < 0;
	T_CHECK(failed <= 32);
	/* The connection's end may be noticed after the requests' ends. */
	while (pst_read(f, 0, m, 0, 4096, NULL) != -EPIPE)
		;
	T_EQ(pst_peer_recv(agent.peer, m, 0, 1, t_hang()), -EPIPE);
	T_EQ(pst_peer_send(agent.peer, m, 0, 1, 0, t_hang()), -EPIPE);
	T_EQ(pst_peer_open(agent.peer, a.key, a.key_len, RIG_R, t_hang(),
			   &(struct pst_file *){ 0 }),
	     -EPIPE);
	(void)pst_file_close(f);
	agent_end(SIGKILL);
	pst_queue_free(q);
	(void)pst_mem_free(m);
}

/* A share is closed while bytes move: a request moves all bytes or gives -ESTALE. */
static void closed_in_transfer(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, AGENT_LEN);
	struct pst_queue *q = rig_queue(rig_backend, 64);
	struct agent_answer a;
	struct pst_file *f;
	struct agent_ask ask = { .what = AGENT_CLOSE };

	start();
	a = agent_shares_it(0, 0, AGENT_LEN, RW, how.flags);
	f = agent_open(&a, RIG_RW);
	agent_tell(&ask);
	for (unsigned i = 0; i < 32; i++) {
		struct pst_io io = rig_io(PST_OP_READ, f, m, 0, i * (uint64_t)131072, 131072);

		T_OK(pst_queue_prep(q, &io));
	}
	T_EQ(pst_queue_submit(q), 32);
	for (unsigned i = 0; i < 32; i++) {
		struct pst_done d = rig_reap1(q);

		T_CHECK(d.res == 131072 || d.res == -ESTALE);
	}
	T_EQ(agent_hear().res, 0);
	T_EQ(pst_read(f, 0, m, 0, 1, NULL), -ESTALE);
	(void)pst_file_close(f);
	quit();
	pst_queue_free(q);
	(void)pst_mem_free(m);
}

/* Copies are slow here: once a share is closed, even copies in flight must not write to its
 * memory. */
static void closed_in_copy(void)
{
	uint8_t *one = malloc(AGENT_LEN), *two = malloc(AGENT_LEN);
	struct pst_mem *m = rig_alloc(rig_dev, AGENT_LEN), *got = rig_alloc("host", AGENT_LEN);
	struct pst_queue *q = rig_queue(rig_backend, 64);
	struct agent_ask dump = { .what = AGENT_DUMP, .len = AGENT_LEN };
	struct agent_answer a;
	struct pst_file *f;

	T_CHECK(one && two);
	start();
	a = agent_shares_it(0, 0, AGENT_LEN, RW, how.flags);
	f = agent_open(&a, RIG_RW);
	t_fill(one, 1, 0, AGENT_LEN);
	T_OK(pst_mem_copy_in(m, 0, one, AGENT_LEN));
	for (unsigned i = 0; i < 16; i++) {
		struct pst_io io = rig_io(PST_OP_WRITE, f, m, 0, i * (uint64_t)131072, 131072);

		T_OK(pst_queue_prep(q, &io));
	}
	T_EQ(pst_queue_submit(q), 16);
	T_EQ(rig_reap1(q).res, 131072);
	T_EQ(agent_ask((struct agent_ask){ .what = AGENT_CLOSE }).res, 0);
	T_EQ(agent_ask(dump).res, 0);
	T_EQ(pst_peer_recv(agent.peer, got, 0, AGENT_LEN, t_hang()), AGENT_LEN);
	T_OK(pst_mem_copy_out(got, 0, one, AGENT_LEN));
	for (unsigned i = 1; i < 16; i++) {
		int64_t res = rig_reap1(q).res;

		T_CHECK(res == 131072 || res == -ESTALE);
	}
	T_EQ(agent_ask(dump).res, 0);
	T_EQ(pst_peer_recv(agent.peer, got, 0, AGENT_LEN, t_hang()), AGENT_LEN);
	T_OK(pst_mem_copy_out(got, 0, two, AGENT_LEN));
	T_CHECK(!memcmp(one, two, AGENT_LEN));
	(void)pst_file_close(f);
	quit();
	pst_queue_free(q);
	(void)pst_mem_free(m);
	(void)pst_mem_free(got);
	free(one);
	free(two);
}

/* Without a free descriptor for a grant, bytes take the socket. */
static void no_descriptor(void)
{
	struct pst_mem *m = rig_alloc("host", 8192);
	struct rlimit old, none;
	struct agent_answer a;
	struct pst_file *f;
	struct pst_done d;
	int next;

	start();
	a = agent_shares_it(0, 0, 8192, RW, PST_SHARE_GRANT);
	next = dup(0);
	T_CHECK(next >= 0);
	T_EQ(close(next), 0);
	T_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
	none = (struct rlimit){ .rlim_cur = (rlim_t)next, .rlim_max = old.rlim_max };
	T_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
	f = agent_open(&a, RIG_RW);
	T_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
	T_EQ(pst_read(f, 0, m, 0, 8192, &d), 8192);
	T_CHECK(d.paths & TCP);
	(void)pst_file_close(f);
	f = agent_open(&a, RIG_RW);
	T_EQ(pst_read(f, 0, m, 0, 8192, &d), 8192);
	T_CHECK(d.paths & PEER);
	(void)pst_file_close(f);
	quit();
	(void)pst_mem_free(m);
}

/* A put from unmapped memory fails. */
static void unmapped_source(void)
{
	char *at = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct agent_answer a;
	struct pst_file *f;
	struct pst_mem *m;

	T_CHECK(at != MAP_FAILED);
	start();
	T_OK(pst_mem_wrap((uintptr_t)at, 8192, NULL, &m));
	a = agent_shares_it(0, 0, 8192, RW, how.flags);
	f = agent_open(&a, RIG_RW);
	T_EQ(pst_write(f, 0, m, 0, 8192, NULL), 8192);
	T_EQ(munmap(at, 8192), 0);
	T_EQ(pst_write(f, 0, m, 0, 8192, NULL), -EFAULT);
	T_EQ(pst_read(f, 0, m, 0, 8192, NULL), -EFAULT);
	(void)pst_file_close(f);
	quit();
	(void)pst_mem_free(m);
}

static void all(void)
{
	model();
	bounds_and_rights();
	closed_share();
	messages();
	killed_peer();
	closed_in_transfer();
}

static void unix_host(void)
{
	how = (__typeof__(how)){ .device = "host" };
	all();
}

static void unix_soft(void)
{
	how = (__typeof__(how)){ .device = "soft" };
	all();
}

static void grant_host(void)
{
	how = (__typeof__(how)){ .device = "host", .flags = PST_SHARE_GRANT };
	all();
}

static void grant_soft(void)
{
	how = (__typeof__(how)){ .device = "soft", .flags = PST_SHARE_GRANT };
	all();
}

static void tcp_host(void)
{
	how = (__typeof__(how)){ .device = "host", .tcp = true };
	all();
}

static void tls_host(void)
{
	how = (__typeof__(how)){ .device = "host", .tcp = true, .tls = true };
	model();
	messages();
	killed_peer();
}

static void keys(void)
{
	how = (__typeof__(how)){ .device = "host" };
	changed_key();
}

static void stopped(void)
{
	how = (__typeof__(how)){ .device = "host" };
	stopped_peer();
	how.tcp = true;
	stopped_peer();
}

static void slow_copies(void)
{
	how = (__typeof__(how)){ .device = "soft", .flags = PST_SHARE_GRANT };
	closed_in_copy();
}

static void descriptors(void)
{
	how = (__typeof__(how)){ .device = "host" };
	no_descriptor();
}

static void unmapped(void)
{
	how = (__typeof__(how)){ .device = "soft", .flags = PST_SHARE_GRANT };
	unmapped_source();
	how.flags = 0;
	unmapped_source();
}

/* Run a case with memory of that device in this process. */
static void run_on(const char *name, void (*fn)(void), const char *device)
{
	char full[80];

	rig_backend = rig_best_backend();
	rig_dev = device;
	rig_last = rig_q;
	rig_q = NULL;
	rig_fn = fn;
	(void)snprintf(full, sizeof(full), "%s %s", name, device);
	t_run(full, rig_case);
}

static void run(const char *name, void (*fn)(void))
{
	run_on(name, fn, "host");
	run_on(name, fn, "soft:0");
}

#define RUN(fn) run(#fn, fn)

int main(int argc, char **argv)
{
	if (argc > 3 && !strcmp(argv[1], "--agent"))
		return agent_main(argc, argv);
	(void)signal(SIGPIPE, SIG_IGN);
	rig_init();
	if (argc > 1 && !strcmp(argv[1], "--slow")) {
		run_on("slow_copies", slow_copies, "soft:0");
		return rig_done();
	}
	RUN(unix_host);
	RUN(grant_host);
	/* Only the other process' memory is on a device. */
	run_on("unix_soft", unix_soft, "host");
	run_on("grant_soft", grant_soft, "soft:0");
	run_on("tcp_host", tcp_host, "soft:0");
	run_on("tls_host", tls_host, "host");
	RIG_RUN1(keys);
	run_on("stopped", stopped, "host");
	RIG_RUN1(descriptors);
	RIG_RUN1(unmapped);
	return rig_done();
}
