/* SPDX-License-Identifier: MIT */
/*
 * Peers by RDMA through the public API: two processes, connected by the stub of libibverbs or by a
 * device of the machine.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#include "stub/ibverbs_stub.h"

#include "agent.h"
#include "gaudi_rig.h"

#define RW (PST_RIGHT_READ | PST_RIGHT_WRITE)
#define TCP PST_PATH_BIT(PST_PATH_TCP)
#define RDMA PST_PATH_BIT(PST_PATH_RDMA)

static struct {
	__typeof__(stub_ibverbs_state) *state; /* NULL: a real library */
	__typeof__(stub_ibverbs_fail) *fail;
	__typeof__(stub_ibverbs_late) *late;
	__typeof__(stub_ibverbs_die) *die;
} stub;

static void stub_find(void)
{
	const char *file = getenv("PST_LIBIBVERBS");
	void *lib = file ? dlopen(file, RTLD_NOW) : NULL;
	void *at[] = { lib ? dlsym(lib, "stub_ibverbs_state") : NULL,
		       lib ? dlsym(lib, "stub_ibverbs_fail") : NULL,
		       lib ? dlsym(lib, "stub_ibverbs_late") : NULL,
		       lib ? dlsym(lib, "stub_ibverbs_die") : NULL };

	memcpy(&stub.state, &at[0], sizeof(void *));
	memcpy(&stub.fail, &at[1], sizeof(void *));
	memcpy(&stub.late, &at[2], sizeof(void *));
	memcpy(&stub.die, &at[3], sizeof(void *));
}

static void needs_stub(void)
{
	if (!stub.state)
		T_SKIP("faults on demand, which the double of libibverbs has");
}

/* Return 0; 1 if objects of the device are left; 2 if a rule was broken.  The device closes with
 * the last connection. */
static int left_over(void)
{
	struct stub_ibverbs_state st;

	if (!stub.state)
		return 0;
	stub.state(&st);
	if (*st.broken) {
		(void)fprintf(stderr, "# broken: %s\n", st.broken);
		return 2;
	}
	if (gs.state && (gaudi_state().contexts || gaudi_state().leaked)) {
		(void)fprintf(stderr, "# left: a Gaudi's memory\n");
		return 3;
	}
	if (st.contexts + st.pds + st.mrs + st.cqs + st.channels + st.qps) {
		(void)fprintf(stderr,
			      "# left: contexts %u pds %u mrs %u cqs %u channels %u qps %u\n",
			      st.contexts, st.pds, st.mrs, st.cqs, st.channels, st.qps);
		return 1;
	}
	return 0;
}

/* --------------------------------------------------- the agent's device, from outside */

/* Shared with the agent, one of whose threads works on it without a call of the library. */
static struct watch {
	atomic_bool die;     /* the agent's device shall fail */
	atomic_uint objects; /* live objects of the agent's device */
	atomic_uint round;   /* how often objects was set */
} * watch;

static unsigned objects(void)
{
	struct stub_ibverbs_state st;

	stub.state(&st);
	return st.contexts + st.pds + st.mrs + st.cqs + st.channels + st.qps;
}

static struct watch *watch_map(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	struct watch *w;

	T_CHECK(fd >= 0);
	T_EQ(ftruncate(fd, sizeof(*w)), 0);
	w = mmap(NULL, sizeof(*w), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	T_CHECK(w != MAP_FAILED);
	(void)close(fd);
	return w;
}

static void *watch_main(void *arg)
{
	bool died = false;

	(void)arg;
	for (;;) {
		if (watch->die && !died)
			stub.die(true, true);
		died = watch->die;
		watch->objects = objects();
		watch->round++;
		(void)usleep(1000);
	}
	return NULL;
}

/* Start the agent's thread if PST_TEST_WATCH names the memory that the agent shares with the
 * test. */
static void watch_begin(void)
{
	const char *path = getenv("PST_TEST_WATCH");
	pthread_t t;

	if (!path)
		return;
	watch = watch_map(path);
	T_EQ(pthread_create(&t, NULL, watch_main, NULL), 0);
	T_EQ(pthread_detach(t), 0);
}

/* Return the agent's live objects, counted after this call began. */
static unsigned agent_objects(void)
{
	unsigned from = watch->round;
	uint64_t until = t_hang();

	while (watch->round - from < 2 && t_now() < until)
		(void)usleep(1000);
	T_CHECK(watch->round - from >= 2);
	return watch->objects;
}

/* ------------------------------------------------------------------ the rig */

static struct {
	bool tcp;
	const char *device; /* kind of the agent's memory */
} how = { .device = "host" };

static struct pst_mem *mem;
static struct pst_file *file;

static void start(void)
{
	char addr[600];

	if (stub.state) {
		stub.fail(NULL);
		stub.die(false, false);
		stub.late(false);
	}
	(void)snprintf(addr, sizeof(addr), "unix:%s", rig_path("sock"));
	agent_start(how.tcp ? "127.0.0.1:0" : addr, how.device, NULL);
	mem = rig_alloc(rig_dev, AGENT_LEN);
}

/* Open all of the agent's memory as a file. */
static void start_file(void)
{
	struct agent_answer a;

	start();
	a = agent_shares_it(0, 0, AGENT_LEN, RW, 0);
	file = agent_open(&a, RIG_RW);
}

/* End the agent; check that neither side has objects of a device left. */
static void quit(void)
{
	file = pst_file_close(file);
	T_EQ(agent_ask((struct agent_ask){ .what = AGENT_QUIT }).res, 0);
	agent_end(0);
	mem = pst_mem_free(mem);
	T_EQ(left_over(), 0);
}

static int64_t strictly(bool put, uint64_t off, uint64_t len, uint32_t path, uint64_t deadline_ns,
			struct pst_done *d)
{
	struct pst_call_opts o = {
		.sz = sizeof(o), .flags = PST_IO_STRICT, .policy = path, .deadline_ns = deadline_ns
	};
	struct pst_vec v = { .mem = mem, .len = len, .mem_off = off, .file_off = off };

	return put ? pst_writev(file, &v, 1, &o, d) : pst_readv(file, &v, 1, &o, d);
}

static uint32_t file_paths(const struct pst_done *d)
{
	return d->paths & ~(PST_PATH_BIT(PST_PATH_STAGED) | PST_PATH_BIT(PST_PATH_WINDOW));
}

/* Put and get, by any path, and check the bytes.  Return the completion of the get. */
static struct pst_done both_ways(uint64_t len)
{
	struct pst_done d, e;

	rig_mem_fill(mem, 0, len, len, 0);
	T_EQ(pst_write(file, 0, mem, 0, len, &d), len);
	rig_mem_fill(mem, 0, len, 1, 0);
	T_EQ(pst_read(file, 0, mem, 0, len, &e), len);
	T_EQ(rig_mem_differs(mem, 0, len, len, 0), len);
	d.paths |= e.paths;
	return d;
}

/* -------------------------------------------------------------------- cases */

/* Random puts and gets against a model; sometimes the agent sums its bytes. */
static void model(void)
{
	uint8_t *want = calloc(1, AGENT_LEN), *buf = malloc(AGENT_LEN);
	unsigned nr = 10000;

	T_CHECK(want && buf);
	start_file();
	T_OK(pst_mem_copy_in(mem, 0, want, AGENT_LEN));
	T_EQ(pst_write(file, 0, mem, 0, AGENT_LEN, NULL), AGENT_LEN);
	for (unsigned i = 0; i < nr; i++) {
		uint64_t len = 1 + rig_below(i % 100 ? 9000 : RIG_MIB(1));
		uint64_t off = rig_below(AGENT_LEN - len), at = rig_below(AGENT_LEN - len);
		struct pst_done d;

		if (rig_below(2)) {
			t_fill(want + off, rig_random(), 0, len);
			T_OK(pst_mem_copy_in(mem, at, want + off, len));
			T_EQ(pst_write(file, off, mem, at, len, &d), len);
		} else {
			T_EQ(pst_read(file, off, mem, at, len, &d), len);
			T_OK(pst_mem_copy_out(mem, at, buf, len));
			T_CHECK(!memcmp(buf, want + off, len));
		}
		T_EQ(file_paths(&d), RDMA);
		T_EQ(d.why, PST_WHY_NONE);
		if (i % 1000 == 999) {
			uint64_t sum = 1469598103934665603u;

			for (uint64_t j = 0; j < AGENT_LEN; j++)
				sum = (sum ^ want[j]) * 1099511628211u;
			T_EQ(agent_ask((struct agent_ask){ .what = AGENT_SUM, .len = AGENT_LEN })
				     .res,
			     (int64_t)(sum >> 1));
		}
	}
	quit();
	free(want);
	free(buf);
}

/* Messages too long for the connection's buffers also go by RDMA, in both directions. */
static void long_messages(void)
{
	start();
	for (unsigned i = 0; i < 20; i++) {
		uint64_t len = 20000 + rig_below(RIG_MIB(1));

		rig_mem_fill(mem, 0, len, i, 0);
		agent_tell(&(struct agent_ask){ .what = AGENT_RECEIVE, .len = AGENT_LEN });
		T_OK(pst_peer_send(agent.peer, mem, 0, len, 0, t_hang()));
		T_EQ(agent_hear().res, len);
		rig_mem_fill(mem, 0, len, 99, 0);
		T_EQ(agent_ask((struct agent_ask){ .what = AGENT_DUMP, .len = len }).res, 0);
		T_EQ(pst_peer_recv(agent.peer, mem, 0, AGENT_LEN, t_hang()), len);
		T_EQ(rig_mem_differs(mem, 0, len, i, 0), len);
	}
	quit();
}

/* Both sides open their first share at once: they end up with one RDMA connection. */
static void both_ask_at_once(void)
{
	struct agent_answer a;

	for (unsigned i = 0; i < 10; i++) {
		start();
		a = agent_shares_it(0, 0, AGENT_LEN, RW, 0);
		/* The agent opens this process' share while this process opens the agent's. */
		agent_tell(&(struct agent_ask){ .what = AGENT_DUMP, .len = 100000 });
		file = agent_open(&a, RIG_RW);
		T_EQ(agent_hear().res, 0);
		T_EQ(pst_peer_recv(agent.peer, mem, 0, AGENT_LEN, t_hang()), 100000);
		T_EQ(file_paths(&(struct pst_done){ .paths = both_ways(50000).paths }), RDMA);
		quit();
	}
}

static void policy_decides(void)
{
	struct pst_done d;

	start_file();
	T_EQ(strictly(true, 0, 100000, PST_PATH_RDMA, 0, &d), 100000);
	T_EQ(file_paths(&d), RDMA);
	T_EQ(strictly(false, 0, 100000, PST_PATH_TCP, 0, &d), 100000);
	T_EQ(file_paths(&d), TCP);
	T_EQ(strictly(false, 0, 100000, PST_PATH_PEER, 0, &d), -EOPNOTSUPP);
	quit();
}

/* Without RDMA, a strict policy is an error with the cause; otherwise the socket is used
 * silently. */
static void without_rdma(void)
{
	struct pst_done d;
	char text[300];

	(void)setenv("PST_RDMA", "off", 1);
	start_file();
	d = both_ways(100000);
	T_EQ(file_paths(&d), TCP);
	T_EQ(d.why, PST_WHY_NONE);
	T_EQ(strictly(true, 0, 4096, PST_PATH_RDMA, 0, &d), -EOPNOTSUPP);
	T_EQ(d.why, PST_WHY_NO_RDMA);
	T_EQ(d.detail, ECANCELED);
	T_CHECK(strstr(pst_why_text(d.why, d.detail, text, sizeof(text)), "PST_RDMA=off"));
	quit();
	(void)unsetenv("PST_RDMA");
}

/* Memory that the agent's device does not reach: the socket is used, with the reason. */
static void memory_without_a_way(void)
{
	char text[300];
	struct pst_done d;

	if (agent_elsewhere())
		T_SKIP("an agent on this machine, which has other memory");
	how.device = "soft";
	(void)setenv("STUB_IBVERBS_DMABUF", "95", 1);
	start_file();
	(void)unsetenv("STUB_IBVERBS_DMABUF");
	d = both_ways(100000);
	T_EQ(file_paths(&d), TCP);
	T_EQ(d.why, PST_WHY_NO_RDMA);
	T_CHECK(d.detail == EFAULT || d.detail == EOPNOTSUPP);
	T_CHECK(strstr(pst_why_text(d.why, d.detail, text, sizeof(text)), "RDMA"));
	T_EQ(strictly(true, 0, 4096, PST_PATH_RDMA, 0, &d), -EOPNOTSUPP);
	quit();
	how.device = "host";
}

/* ------------------------------------------------------------------ memory that nothing copies */

/* If true, files on tmpfs look like dma-bufs: the stub of libhl-thunk makes its dma-bufs from
 * these. */
static bool are_dmabufs;

__attribute__((visibility("default"))) int fstatfs(int fd, struct statfs *ret)
{
	int r = (int)syscall(SYS_fstatfs, fd, ret);

	if (r == 0 && are_dmabufs && ret->f_type == 0x01021994)
		ret->f_type = 0x444d4142;
	return r;
}

static void gaudi_begin(void)
{
	needs_stub();
	gaudi_sys_new("GAUDI2\n");
	T_EQ(setenv("PST_GAUDI_MODE", "own", 1), 0);
	how.device = "gaudi:0";
}

static void gaudi_end(void)
{
	how.device = "host";
	gaudi_sys_done();
	T_EQ(unsetenv("PST_GAUDI_ROOT"), 0);
}

/* Network cards access a Gaudi's memory, with or without a grant to this process. */
static void a_gaudi_owns_the_memory(void)
{
	struct agent_answer a;
	struct pst_done d;

	gaudi_begin();
	for (unsigned granted = 0; granted < 2; granted++) {
		start();
		are_dmabufs = granted;
		a = agent_shares_it(0, 5000, 1000000, RW, granted ? PST_SHARE_GRANT : 0);
		file = agent_open(&a, RIG_RW);
		are_dmabufs = false;
		d = both_ways(1000000);
		T_EQ(file_paths(&d), RDMA);
		T_EQ(d.why, PST_WHY_NONE);
		d = both_ways(77);
		T_EQ(file_paths(&d), RDMA);
		/* The key covers these bytes only. */
		T_EQ(pst_write(file, 999999, mem, 0, 2, NULL), -ERANGE);
		/* The CPU does not reach these bytes. */
		T_EQ(strictly(false, 0, 4096, PST_PATH_TCP, 0, &d), -EOPNOTSUPP);
		T_EQ(strictly(true, 0, 4096, PST_PATH_TCP, 0, &d), -EOPNOTSUPP);
		quit();
	}
	gaudi_end();
}

/* The share is closed before its memory: the device's registration ends first. */
static void a_gaudis_share_is_closed(void)
{
	struct agent_answer a;

	gaudi_begin();
	start();
	for (unsigned i = 0; i < 3; i++) {
		a = agent_shares_it(0, 0, AGENT_LEN, RW, 0);
		file = agent_open(&a, RIG_RW);
		T_EQ(pst_write(file, 0, mem, 0, 100000, NULL), 100000);
		T_EQ(agent_ask((struct agent_ask){ .what = AGENT_CLOSE }).res, 0);
		T_EQ(pst_write(file, 0, mem, 0, 100000, NULL), -ESTALE);
		file = pst_file_close(file);
	}
	quit();
	gaudi_end();
}

/* Without RDMA, requests fail; without dma-bufs, sharing fails. */
static void a_gaudi_without_a_way(void)
{
	struct agent_ask ask = { .what = AGENT_SHARE, .len = 4096, .rights = RW };
	struct pst_done d;

	gaudi_begin();
	(void)setenv("PST_RDMA", "off", 1);
	start_file();
	(void)unsetenv("PST_RDMA");
	T_EQ(pst_read(file, 0, mem, 0, 4096, &d), -EOPNOTSUPP);
	T_EQ(pst_write(file, 0, mem, 0, 4096, &d), -EOPNOTSUPP);
	quit();
	T_EQ(setenv("PST_DMABUF", "no", 1), 0);
	start();
	T_EQ(agent_ask(ask).res, -EOPNOTSUPP);
	T_EQ(unsetenv("PST_DMABUF"), 0);
	quit();
	gaudi_end();
}

/* After a share is closed, its key has ended, its open file is stale, and other shares work. */
static void closed_share(void)
{
	struct agent_answer a, b;
	struct pst_file *f, *g;

	start();
	a = agent_shares_it(0, 0, 8192, RW, 0);
	b = agent_shares_it(1, 8192, 8192, RW, 0);
	f = agent_open(&a, RIG_RW);
	g = agent_open(&b, RIG_RW);
	T_EQ(pst_read(f, 0, mem, 0, 8192, NULL), 8192);
	T_EQ(agent_ask((struct agent_ask){ .what = AGENT_CLOSE }).res, 0);
	T_EQ(pst_read(f, 0, mem, 0, 8192, NULL), -ESTALE);
	T_EQ(pst_write(f, 0, mem, 0, 8192, NULL), -ESTALE);
	file = g;
	T_EQ(file_paths(&(struct pst_done){ .paths = both_ways(8192).paths }), RDMA);
	T_EQ(pst_write(g, 8000, mem, 0, 193, NULL), -ERANGE);
	T_EQ(pst_read(g, 8000, mem, 0, 4096, NULL), 192);
	(void)pst_file_close(f);
	quit();
}

/* An RDMA key has only the rights of its share: the device itself refuses. */
static void a_key_has_the_rights_of_its_share(void)
{
	struct agent_answer a;

	start();
	a = agent_shares_it(0, 1000, 5000, PST_RIGHT_READ, 0);
	file = agent_open(&a, RIG_R);
	T_EQ(pst_read(file, 0, mem, 0, 8192, NULL), 5000);
	T_EQ(pst_write(file, 0, mem, 0, 1, NULL), -EBADF);
	quit();
}

/* Close a share while requests are in flight: each is right or stale. */
static void *close_it(void *arg)
{
	(void)arg;
	T_EQ(agent_hear().res, 0);
	return NULL;
}

static void closed_under_way(void)
{
	struct agent_answer a;
	struct pst_done d;
	pthread_t t;

	start();
	for (unsigned i = 0; i < 20; i++) {
		int64_t n = AGENT_LEN;

		a = agent_shares_it(0, 0, AGENT_LEN, RW, 0);
		file = agent_open(&a, RIG_RW);
		agent_tell(&(struct agent_ask){ .what = AGENT_CLOSE });
		T_EQ(pthread_create(&t, NULL, close_it, NULL), 0);
		while (n == (int64_t)AGENT_LEN)
			n = pst_write(file, 0, mem, 0, AGENT_LEN, NULL);
		T_EQ(n, -ESTALE);
		T_EQ(pthread_join(t, NULL), 0);
		file = pst_file_close(file);
	}
	/* RDMA still works, unless the device took longer than closing a share waits. */
	a = agent_shares_it(0, 0, AGENT_LEN, RW, 0);
	file = agent_open(&a, RIG_RW);
	d = both_ways(4096);
	if (stub.state || file_paths(&d) != TCP) {
		T_EQ(file_paths(&d), RDMA);
	} else {
		T_EQ(d.why, PST_WHY_NO_RDMA);
		T_EQ(d.detail, EACCES);
	}
	quit();
}

/* The agent closes a share while this process opens it: the open fails, or its requests do. */
static void closed_while_opened(void)
{
	start_file();
	for (unsigned i = 0; i < 300; i++) {
		struct agent_answer a = agent_shares_it(1, 0, 5000, RW, 0);
		struct pst_file *f = NULL;
		int r;

		agent_tell(&(struct agent_ask){ .what = AGENT_CLOSE, .at = 1, .off = i });
		r = pst_peer_open(agent.peer, a.key, a.key_len, RIG_RW, t_hang(), &f);
		T_CHECK(r == 0 || r == -ESTALE);
		T_EQ(agent_hear().res, 0);
		if (r == 0)
			T_EQ(pst_read(f, 0, mem, 0, 5000, NULL), -ESTALE);
		(void)pst_file_close(f);
	}
	T_EQ(file_paths(&(struct pst_done){ .paths = both_ways(5000).paths }), RDMA);
	quit();
}

/* The peer's device refuses a key.  A request with a strict policy fails; any other uses the
 * socket, and its completion has the reason. */
static void a_refused_key(void)
{
	struct pst_done d;

	needs_stub();
	start_file();
	stub.fail("completion:1:10");
	T_EQ(strictly(true, 0, 4096, PST_PATH_RDMA, 0, &d), -EACCES);
	d = both_ways(300000);
	T_EQ(file_paths(&d), TCP);
	T_EQ(d.why, PST_WHY_NO_RDMA);
	T_EQ(d.detail, EACCES);
	quit();
	start_file();
	stub.fail("completion:3:10");
	d = both_ways(AGENT_LEN);
	T_CHECK(d.paths & TCP);
	T_EQ(d.why, PST_WHY_NO_RDMA);
	quit();
}

static void a_device_dies(void)
{
	struct pst_done d;
	int64_t n;

	needs_stub();
	start_file();
	(void)both_ways(100000);
	stub.die(true, true);
	/* The connection's thread may notice before the request begins. */
	n = strictly(false, 0, 100000, PST_PATH_RDMA, t_hang(), &d);
	T_CHECK(n == -EIO || n == -EOPNOTSUPP);
	T_EQ(strictly(false, 0, 100000, PST_PATH_RDMA, t_hang(), &d), -EOPNOTSUPP);
	T_EQ(file_paths(&(struct pst_done){ .paths = both_ways(100000).paths }), TCP);
	quit();
	start_file();
	stub.die(true, true);
	d = both_ways(AGENT_LEN);
	T_EQ(file_paths(&d), TCP);
	T_EQ(d.detail, EIO);
	quit();
}

/* A device fails while both sides are idle: without any call, both sides release their device.
 * Later requests use the socket, and strict ones fail with the reason. */
static void an_idle_device_dies(bool here, bool there)
{
	struct agent_answer a, b;
	char text[300];
	struct pst_done d;
	uint64_t until;

	T_EQ(setenv("PST_TEST_WATCH", rig_path("watch"), 1), 0);
	watch = watch_map(rig_path("watch"));
	watch->die = false;
	start();
	T_EQ(unsetenv("PST_TEST_WATCH"), 0);
	a = agent_shares_it(0, 0, AGENT_LEN, RW, 0);
	b = agent_shares_it(1, 0, 4096, RW, 0);
	file = agent_open(&b, RIG_RW);
	T_EQ(file_paths(&(struct pst_done){ .paths = both_ways(4096).paths }), RDMA);
	file = pst_file_close(file);
	file = agent_open(&a, RIG_RW);
	T_EQ(file_paths(&(struct pst_done){ .paths = both_ways(100000).paths }), RDMA);
	/* The context, the domain, the queues, and at least one registration */
	T_CHECK(objects() >= 6);
	T_CHECK(agent_objects() >= 6);
	until = t_hang();
	if (there)
		watch->die = true;
	if (here)
		stub.die(true, true);
	while ((objects() || agent_objects()) && t_now() < until)
		(void)usleep(1000);
	T_EQ(objects(), 0);
	T_EQ(agent_objects(), 0);
	T_EQ(strictly(true, 0, 100000, PST_PATH_RDMA, t_hang(), &d), -EOPNOTSUPP);
	T_EQ(d.why, PST_WHY_NO_RDMA);
	T_CHECK((here && d.detail == EIO) || (there && d.detail == EREMOTEIO));
	T_CHECK(strstr(pst_why_text(d.why, d.detail, text, sizeof(text)), "RDMA"));
	d = both_ways(300000);
	T_EQ(file_paths(&d), TCP);
	T_EQ(d.why, PST_WHY_NO_RDMA);
	T_EQ(agent_ask((struct agent_ask){ .what = AGENT_CLOSE, .at = 1 }).res, 0);
	T_EQ(agent_ask((struct agent_ask){ .what = AGENT_CLOSE }).res, 0);
	T_EQ(pst_read(file, 0, mem, 0, 4096, NULL), -ESTALE);
	/* A share that is opened later is also reached over the socket. */
	file = pst_file_close(file);
	a = agent_shares_it(0, 0, AGENT_LEN, RW, 0);
	file = agent_open(&a, RIG_RW);
	T_EQ(file_paths(&(struct pst_done){ .paths = both_ways(5000).paths }), TCP);
	T_EQ(objects(), 0);
	T_EQ(agent_objects(), 0);
	quit();
	T_EQ(munmap(watch, sizeof(*watch)), 0);
	/* The next connection uses the device again. */
	start_file();
	T_EQ(file_paths(&(struct pst_done){ .paths = both_ways(5000).paths }), RDMA);
	quit();
}

static void idle_devices_die(void)
{
	needs_stub();
	an_idle_device_dies(true, false);
	an_idle_device_dies(false, true);
	an_idle_device_dies(true, true);
}

/* Connections of this process with itself. */
static struct {
	struct pst_listener *listener;
	struct pst_peer *here, *there;
} own;

static void *own_accept(void *arg)
{
	(void)arg;
	T_OK(pst_listener_accept(own.listener, t_hang(), &own.there));
	return NULL;
}

static void own_join(void)
{
	char addr[600];
	pthread_t t;

	T_CHECK(pst_listener_address(own.listener, addr, sizeof(addr)));
	T_EQ(pthread_create(&t, NULL, own_accept, NULL), 0);
	T_OK(pst_peer_connect(addr, NULL, t_hang(), &own.here));
	T_EQ(pthread_join(t, NULL), 0);
}

/* Share all of mem with one end, and open it at the other. */
static struct pst_share *own_open(void)
{
	struct pst_share *s = NULL;
	uint8_t key[PST_KEY_MAX];
	int len;

	T_OK(pst_peer_share(own.here, mem, 0, AGENT_LEN, RW, 0, &s));
	len = pst_share_pack(s, key, sizeof(key));
	T_CHECK(len > 0);
	T_OK(pst_peer_open(own.there, key, (size_t)len, RIG_RW, t_hang(), &file));
	return s;
}

/* A connection that has ended keeps no device open, even if its share is not closed.  Otherwise a
 * failed device would stay open, and no other connection could use the device when it works
 * again. */
static void an_ended_connection(void)
{
	struct pst_mem *bytes = rig_alloc(rig_dev, 100000);
	struct pst_peer *ended;
	struct pst_share *s, *t;
	struct pst_done d;
	uint64_t until;
	char addr[600];

	needs_stub();
	stub.fail(NULL);
	stub.die(false, false);
	mem = rig_alloc(rig_dev, AGENT_LEN);
	(void)snprintf(addr, sizeof(addr), "unix:%s", rig_path("own"));
	T_OK(pst_listener_open(addr, NULL, &own.listener));
	own_join();
	s = own_open();
	T_EQ(pst_write(file, 0, bytes, 0, 100000, &d), 100000);
	T_EQ(file_paths(&d), RDMA);
	file = pst_file_close(file);
	own.there = pst_peer_close(own.there);
	for (until = t_hang(); objects() && t_now() < until;)
		(void)usleep(1000);
	T_EQ(objects(), 0);
	/* The device fails and comes back: the next connection uses it. */
	stub.die(true, true);
	(void)usleep(10000);
	stub.die(false, false);
	ended = own.here;
	own_join();
	t = own_open();
	T_EQ(pst_write(file, 0, bytes, 0, 100000, &d), 100000);
	T_EQ(file_paths(&d), RDMA);
	T_EQ(pst_share_close(s, t_hang()), 0);
	ended = pst_peer_close(ended);
	file = pst_file_close(file);
	T_EQ(pst_share_close(t, t_hang()), 0);
	own.there = pst_peer_close(own.there);
	own.here = pst_peer_close(own.here);
	own.listener = pst_listener_close(own.listener);
	bytes = pst_mem_free(bytes);
	mem = pst_mem_free(mem);
	T_EQ(left_over(), 0);
}

/* A device that never completes: the deadline ends the request, and the memory is free. */
static void a_silent_device(void)
{
	struct pst_done d;

	needs_stub();
	start_file();
	stub.die(true, false);
	T_EQ(strictly(true, 0, 100000, PST_PATH_RDMA, t_in_ms(50), &d), -ETIMEDOUT);
	T_OK(pst_mem_drain(mem, t_hang()));
	stub.die(false, false);
	T_EQ(strictly(true, 0, 100000, PST_PATH_RDMA, t_hang(), &d), 100000);
	quit();
}

static void *kill_it(void *arg)
{
	struct timespec ts = { .tv_nsec = 3000000 };

	(void)arg;
	(void)nanosleep(&ts, NULL);
	(void)kill(agent.pid, SIGKILL);
	return NULL;
}

/* Kill a peer during transfers, repeatedly. */
static void a_killed_peer(void)
{
	unsigned nr = getenv("PST_SOAK") ? 1000 : 20;

	if (agent_elsewhere())
		T_SKIP("a peer on this machine, to kill");
	for (unsigned i = 0; i < nr; i++) {
		int64_t n = AGENT_LEN;
		struct pst_done d;
		pthread_t t;

		start_file();
		T_EQ(pthread_create(&t, NULL, kill_it, NULL), 0);
		while (n == (int64_t)AGENT_LEN)
			n = strictly(i % 2, 0, AGENT_LEN, PST_PATH_RDMA, t_hang(), &d);
		T_CHECK(n == -EPIPE || n == -ETIMEDOUT || n == -EACCES || n == -EOPNOTSUPP);
		T_EQ(pthread_join(t, NULL), 0);
		file = pst_file_close(file);
		mem = pst_mem_free(mem);
		agent_end(SIGKILL);
		T_EQ(left_over(), 0);
	}
}

/* Bytes move later than they are posted: no slot may be reused too early. */
static void late_requests(void)
{
	needs_stub();
	start_file();
	stub.late(true);
	for (unsigned i = 0; i < 20; i++)
		T_EQ(file_paths(&(struct pst_done){ .paths = both_ways(RIG_MIB(4)).paths }), RDMA);
	quit();
}

/* The nth call of the library fails: the bytes take another path, or RDMA still works. */
static void nth_call_fails(void)
{
	static const char *const calls[] = {
		"ibv_open_device",
		"ibv_query_device",
		"ibv_query_port",
		"ibv_alloc_pd",
		"ibv_reg_mr_iova2",
		"ibv_create_cq",
		"ibv_create_comp_channel",
		"ibv_create_qp",
		"ibv_modify_qp",
		"ibv_post_send",
		"ibv_poll_cq",
		"completion",
		"ibv_req_notify_cq",
		"_ibv_query_gid_table",
	};

	needs_stub();
	for (unsigned c = 0; c < RIG_NR(calls); c++)
		for (unsigned n = 1; n <= 4; n++) {
			char spec[80];
			struct agent_answer a;
			struct pst_done d;

			start();
			a = agent_shares_it(0, 0, AGENT_LEN, RW, 0);
			(void)snprintf(spec, sizeof(spec), "%s:%u:12", calls[c], n);
			stub.fail(spec);
			file = agent_open(&a, RIG_RW);
			d = both_ways(600000);
			T_CHECK(d.paths & (TCP | RDMA));
			stub.fail(NULL);
			quit();
		}
}

/* --------------------------------------------------------------------- main */

static void run(const char *name, void (*fn)(void), const char *device)
{
	char full[80];

	rig_backend = rig_best_backend();
	rig_dev = device;
	rig_last = rig_q;
	rig_q = NULL;
	rig_fn = fn;
	(void)snprintf(full, sizeof(full), "%s %s%s", name, device, how.tcp ? " tcp" : "");
	t_run(full, rig_case);
}

#define RUN(fn, device) run(#fn, fn, device)

int main(int argc, char **argv)
{
	stub_find();
	if (stub.state)
		gaudi_stub_find();
	agent_check = left_over;
	if (argc > 3 && !strcmp(argv[1], "--agent")) {
		watch_begin();
		return agent_main(argc, argv);
	}
	(void)signal(SIGPIPE, SIG_IGN);
	rig_init();
	(void)setenv("STUB_IBVERBS_FABRIC", rig_path("fabric"), 1);
	RUN(policy_decides, "host");
	RUN(model, "host");
	RUN(model, "soft:0");
	RUN(long_messages, "host");
	how.tcp = true;
	RUN(long_messages, "soft:0");
	RUN(both_ask_at_once, "host");
	how.tcp = false;
	RUN(without_rdma, "host");
	RUN(memory_without_a_way, "host");
	RUN(a_gaudi_owns_the_memory, "host");
	RUN(a_gaudi_owns_the_memory, "soft:0");
	RUN(a_gaudis_share_is_closed, "host");
	RUN(a_gaudi_without_a_way, "host");
	RUN(closed_share, "host");
	RUN(a_key_has_the_rights_of_its_share, "host");
	RUN(closed_under_way, "host");
	RUN(closed_while_opened, "host");
	RUN(a_refused_key, "host");
	RUN(a_device_dies, "host");
	RUN(idle_devices_die, "host");
	RUN(an_ended_connection, "host");
	RUN(a_silent_device, "host");
	RUN(a_killed_peer, "host");
	RUN(late_requests, "host");
	RUN(nth_call_fails, "host");
	return rig_done();
}
