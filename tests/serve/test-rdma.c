/* SPDX-License-Identifier: MIT */
/*
 * Files of a storage service by RDMA, through the public API.  PENSTOCK is the path of the command,
 * which serves.  The stub of libibverbs connects the two processes; without PST_LIBIBVERBS the
 * tests use the device that PST_TEST_RDMA names, in loopback.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "stub/ibverbs_stub.h"

#include "rig.h"

#define SEED 7
#define LEN (RIG_MIB(5) + 4321)
#define CHUNK 262144u    /* bytes of one RDMA operation of the server */
#define PIECE RIG_MIB(1) /* bytes of a request on the wire */
#define PART RIG_MIB(4)  /* bytes of an operation of the client */
#define TCP PST_PATH_BIT(PST_PATH_TCP)
#define RDMA PST_PATH_BIT(PST_PATH_RDMA)
#define DEVICE_HOPS                                                      \
	(PST_PATH_BIT(PST_PATH_STAGED) | PST_PATH_BIT(PST_PATH_GATHER) | \
	 PST_PATH_BIT(PST_PATH_WINDOW))

static struct {
	__typeof__(stub_ibverbs_state) *state;
	__typeof__(stub_ibverbs_fail) *fail;
	__typeof__(stub_ibverbs_die) *die;
	__typeof__(stub_ibverbs_peermem) *peermem;
} stub;

static const char *device; /* device name, for both processes */

static void stub_find(void)
{
	const char *file = getenv("PST_LIBIBVERBS");
	void *lib = file ? dlopen(file, RTLD_NOW) : NULL;
	void *at[] = { lib ? dlsym(lib, "stub_ibverbs_state") : NULL,
		       lib ? dlsym(lib, "stub_ibverbs_fail") : NULL,
		       lib ? dlsym(lib, "stub_ibverbs_die") : NULL,
		       lib ? dlsym(lib, "stub_ibverbs_peermem") : NULL };

	memcpy(&stub.state, &at[0], sizeof(void *));
	memcpy(&stub.fail, &at[1], sizeof(void *));
	memcpy(&stub.die, &at[2], sizeof(void *));
	memcpy(&stub.peermem, &at[3], sizeof(void *));
	device = stub.state ? "stub0" : getenv("PST_TEST_RDMA");
	T_CHECK(device);
}

static void needs_stub(void)
{
	if (!stub.state)
		T_SKIP("faults on demand, which the double of libibverbs has");
}

/* Allocate memory that the network card reaches; for device memory only with the stub. */
static struct pst_mem *alloc_reached(uint64_t len)
{
	if (rig_soft())
		needs_stub();
	return rig_alloc(rig_dev, len);
}

/* Allocate memory for a case that needs the stub. */
static struct pst_mem *alloc_by_stub(void)
{
	needs_stub();
	return rig_alloc(rig_dev, LEN);
}

/* Return the stub's counters; zeros with a real library. */
static struct stub_ibverbs_state stub_now(void)
{
	struct stub_ibverbs_state st = { 0 };

	if (!stub.state)
		return st;
	stub.state(&st);
	if (*st.broken)
		T_FAIL("a rule of verbs was broken: %s", st.broken);
	return st;
}

/* Check that this process has no registration and no queue pair left. */
static void nothing_is_reached(void)
{
	struct stub_ibverbs_state st = stub_now();

	T_EQ(st.mrs, 0);
	T_EQ(st.qps, 0);
}

/* Let the network card reach memory of the software device, as nvidia-peermem does for GPUs. */
static void *reach_begin(struct pst_mem *m, uint64_t len)
{
	struct pst_mem_info info = { .sz = sizeof(info) };
	struct pst_grant g = { .sz = sizeof(g) };
	void *at;

	T_OK(pst_mem_info(m, &info));
	T_OK(pst_mem_export(m, 0, len, PST_RIGHT_READ | PST_RIGHT_WRITE, &g));
	at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, g.fd, (off_t)g.off);
	T_CHECK(at != MAP_FAILED);
	pst_grant_done(&g);
	stub.peermem(info.addr, len, at);
	return at;
}

static void reach_end(void *at, uint64_t len)
{
	stub.peermem(0, 0, NULL);
	T_EQ(munmap(at, len), 0);
}

/* ------------------------------------------------------------------- server */

static pid_t server;

static bool by_network;   /* the server's address is not known to be one of this machine */
static unsigned tcp_port; /* if by_network */

/* Start the server; return when it listens. more: up to two further options. */
static void server_start(const char *more, const char *and_more)
{
	char listen[600], metrics[600], buf[1024] = "";
	const char *at;
	const char *args[] = { "penstock", "serve",     "--root", rig_path("."), "--listen", listen,
			       "--write",  "--metrics", metrics,  more,          and_more,   NULL };
	size_t got = 0;
	int out[2];

	if (stub.state) {
		stub.fail(NULL);
		stub.die(false, false);
	}
	if (server > 0) { /* a failed case may have left a server */
		(void)kill(server, SIGKILL);
		(void)waitpid(server, NULL, 0);
	}
	if (by_network)
		(void)snprintf(listen, sizeof(listen), "127.0.0.1:0");
	else
		(void)snprintf(listen, sizeof(listen), "unix:%s", rig_path("sock"));
	(void)snprintf(metrics, sizeof(metrics), "unix:%s", rig_path("metrics"));
	T_CHECK(pipe2(out, O_CLOEXEC) == 0);
	server = fork();
	T_CHECK(server >= 0);
	if (server == 0) {
		(void)dup2(out[1], 2);
		(void)execv(getenv("PENSTOCK"), (char **)args);
		_exit(127);
	}
	(void)close(out[1]);
	while (!strstr(buf, "numbers are at")) {
		ssize_t n = read(out[0], buf + got, sizeof(buf) - 1 - got);

		T_CHECK(n > 0);
		got += (size_t)n;
	}
	(void)close(out[0]);
	at = strstr(buf, "127.0.0.1:");
	tcp_port = at ? (unsigned)atoi(at + strlen("127.0.0.1:")) : 0;
	T_EQ(tcp_port > 0, by_network);
}

static void server_end(int sig)
{
	int status;

	T_CHECK(kill(server, sig) == 0);
	T_EQ(waitpid(server, &status, 0), server);
	if (sig == SIGTERM)
		T_EQ(status, 0);
	server = 0;
}

/* Read one of the server's metrics. */
static int64_t number(const char *name)
{
	static const char ask[] = "GET /metrics HTTP/1.0\r\n\r\n";
	static char text[65536];
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const char *at;
	size_t got = 0;
	ssize_t n = 1;

	(void)snprintf(un.sun_path, sizeof(un.sun_path), "%.100s", rig_path("metrics"));
	T_CHECK(fd >= 0);
	T_CHECK(connect(fd, (struct sockaddr *)&un, sizeof(un)) == 0);
	T_EQ(write(fd, ask, sizeof(ask) - 1), sizeof(ask) - 1);
	for (; n > 0 && got < sizeof(text) - 1; got += (size_t)n) {
		n = read(fd, text + got, sizeof(text) - 1 - got);
		T_CHECK(n >= 0);
	}
	text[got] = '\0';
	(void)close(fd);
	for (at = text; (at = strstr(at, name)); at++)
		if (at[-1] == '\n' && at[strlen(name)] == ' ')
			return atoll(at + strlen(name));
	T_FAIL("the server has no number %s", name);
	return -1;
}

#define WRITES "penstock_serve_rdma_operations_total{op=\"write\"}"
#define READS "penstock_serve_rdma_operations_total{op=\"read\"}"
#define SENDS "penstock_serve_rdma_operations_total{op=\"send\"}"
#define REQUESTS(op) "penstock_serve_requests_total{op=\"" op "\"}"
#define CONNECTIONS "penstock_serve_rdma_connections"

static unsigned other_server;

/* Give the server another name: the library remembers failures by name. */
static void server_rename(void)
{
	char name[32];

	(void)snprintf(name, sizeof(name), "sock-%u", ++other_server);
	T_EQ(symlink("sock", rig_path(name)), 0);
}

static const char *url(const char *name)
{
	static char text[800];
	char sock[32] = "sock";

	if (by_network) {
		/* The kernel takes this address for one of this machine, the library for a remote
		 * one. */
		(void)snprintf(text, sizeof(text), "pst://0.0.0.0:%u/%s", tcp_port, name);
		return text;
	}
	if (other_server)
		(void)snprintf(sock, sizeof(sock), "sock-%u", other_server);
	(void)snprintf(text, sizeof(text), "pst+unix://%s:/%s", rig_path(sock), name);
	return text;
}

/* Return the paths without the hop from host memory to a device. */
static uint32_t paths_of(const struct pst_done *d)
{
	return d->paths & ~DEVICE_HOPS;
}

static int64_t strictly(struct pst_file *f, struct pst_mem *m, bool write, uint64_t len,
			uint64_t policy, struct pst_done *d)
{
	struct pst_io io = rig_io(write ? PST_OP_WRITE : PST_OP_READ, f, m, 0, 0, len);

	io.policy = policy;
	io.flags = PST_IO_STRICT;
	*d = rig_do(rig_q, &io);
	return d->res;
}

/* -------------------------------------------------------------------- cases */

/* The server moves ceil(len / chunk) pieces per request, and answers with one message. */
static void moves(void)
{
	static const uint64_t lens[] = { 1, 100, CHUNK, CHUNK + 1, PIECE, PIECE + 1, PART, LEN };
	struct pst_mem *m = alloc_reached(LEN);
	void *reached = rig_soft() ? reach_begin(m, LEN) : NULL;
	struct pst_file *f, *g;
	struct pst_done d;

	rig_make(rig_path("data"), SEED, LEN);
	(void)unlink(rig_path("new"));
	server_start("--rdma", NULL);
	f = rig_open(url("data"), RIG_R);
	g = rig_open(url("new"), RIG_NEW);
	for (unsigned i = 0; i < RIG_NR(lens); i++) {
		uint64_t len = lens[i], chunks = 0, requests = 0;
		int64_t writes = number(WRITES), reads = number(READS), sends = number(SENDS);
		bool direct = !rig_soft() || len >= 65536; /* smaller ones are staged */
		char *got = malloc(len);

		T_CHECK(got);
		for (uint64_t at = 0; at < len; at += PIECE, requests++)
			chunks += ((len - at < PIECE ? len - at : PIECE) + CHUNK - 1) / CHUNK;
		rig_mem_fill(m, 0, LEN, 1, 0);
		d = rig_read(f, m, LEN - len, 0, len);
		T_EQ(d.res, len);
		T_EQ(direct ? d.paths : paths_of(&d), RDMA);
		T_EQ(d.why, PST_WHY_NONE);
		T_EQ(rig_mem_differs(m, 0, len, SEED, LEN - len), len);
		/* Memory outside of the request is unchanged. */
		if (len < LEN)
			T_EQ(rig_mem_differs(m, len, LEN - len, 1, len), LEN - len);
		if (direct)
			T_EQ(number(WRITES) - writes, chunks);
		if (direct)
			T_EQ(number(SENDS) - sends, requests);
		T_EQ(number(READS), reads);
		sends = number(SENDS);
		writes = number(WRITES);
		rig_mem_fill(m, 0, len, i + 50, 0);
		d = rig_write(g, m, 0, 0, len);
		T_EQ(d.res, len);
		T_EQ(direct ? d.paths : paths_of(&d), RDMA);
		T_EQ(d.why, PST_WHY_NONE);
		T_EQ(rig_slurp(rig_path("new"), 0, got, len), len);
		T_EQ(t_differs(got, i + 50, 0, len), len);
		if (direct)
			T_EQ(number(READS) - reads, chunks);
		if (direct)
			T_EQ(number(SENDS) - sends, requests);
		T_EQ(number(WRITES), writes);
		free(got);
	}
	T_EQ(rig_sync(g).res, 0);
	/* Read at and beyond the end of the file. */
	d = rig_read(f, m, LEN - 100, 0, 4096);
	T_EQ(d.res, 100);
	T_EQ(rig_mem_differs(m, 0, 100, SEED, LEN - 100), 100);
	T_EQ(rig_read(f, m, LEN + 5, 0, PIECE).res, 0);
	T_EQ(number(REQUESTS("read")), 0);
	T_EQ(number(REQUESTS("write")), 0);
	T_CHECK(stub_now().mrs <=
		(rig_soft() ? 2 : 1)); /* those of reply buffers; all others have ended */
	(void)pst_file_close(f);
	(void)pst_file_close(g);
	if (reached)
		reach_end(reached, LEN);
	(void)pst_mem_free(m);
	server_end(SIGTERM);
}

/* Device memory that no card reaches is staged, with the reason; the card reaches the slots. */
static void memory_without_a_way(void)
{
	struct pst_mem *m;
	struct pst_file *f;
	struct pst_done d;

	if (access("/dev/udmabuf", W_OK) == 0)
		T_SKIP("a machine without /dev/udmabuf, by which the card reaches the memory");
	m = rig_alloc(rig_dev, LEN);
	rig_make(rig_path("data"), SEED, LEN);
	server_start("--rdma", NULL);
	f = rig_open(url("data"), RIG_RW);
	for (unsigned i = 0; i < 2; i++) {
		d = rig_read(f, m, 0, 0, LEN);
		T_EQ(d.res, LEN);
		T_EQ(paths_of(&d), RDMA);
		T_CHECK(d.paths & PST_PATH_BIT(PST_PATH_STAGED));
		T_EQ(d.why, PST_WHY_NO_RDMA);
		T_EQ(d.detail, EFAULT);
		T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
		d = rig_write(f, m, 0, 0, LEN);
		T_EQ(d.res, LEN);
		T_EQ(paths_of(&d), RDMA);
	}
	/* A policy with only the RDMA hop accepts staging. */
	T_EQ(strictly(f, m, false, LEN, PST_PATH_RDMA, &d), LEN);
	T_EQ(d.why, PST_WHY_NONE);
	/* A policy that lists staging gets it. */
	d.res = strictly(f, m, false, LEN, PST_PATH_RDMA | PST_PATH_STAGED << 4, &d);
	T_EQ(d.res, LEN);
	(void)pst_file_close(f);
	(void)pst_mem_free(m);
	server_end(SIGTERM);
}

/* Concurrent random reads and writes against a model. */
static void a_model_holds(void)
{
	enum { SIZE = RIG_MIB(3), AT_ONCE = 8, MOST = 400000 };
	unsigned nr = getenv("PST_SOAK") ? 10000 : 1000;
	struct pst_mem *m = alloc_reached(AT_ONCE * (uint64_t)MOST);
	void *reached = rig_soft() ? reach_begin(m, AT_ONCE * (uint64_t)MOST) : NULL;
	char *model = malloc(SIZE), *buf = malloc(SIZE);
	struct pst_file *f;

	T_CHECK(model && buf);
	t_fill(model, SEED, 0, SIZE);
	rig_make(rig_path("data"), SEED, SIZE);
	server_start("--rdma", NULL);
	f = rig_open(url("data"), RIG_RW);
	for (unsigned i = 0; i < nr; i += AT_ONCE) {
		struct pst_io io[AT_ONCE];
		bool write = rig_below(2);

		/* Concurrent writes have disjoint ranges. */
		for (unsigned j = 0; j < AT_ONCE; j++) {
			uint64_t len = 1 + rig_below(rig_below(4) ? 9000 : SIZE / AT_ONCE - 1);
			uint64_t off = j * (SIZE / AT_ONCE) + rig_below(SIZE / AT_ONCE - len);

			io[j] = rig_io(write ? PST_OP_WRITE : PST_OP_READ, f, m, off, j * MOST,
				       len);
			io[j].user_data = j;
			if (write) {
				t_fill(model + off, rig_random(), 0, len);
				T_OK(pst_mem_copy_in(m, j * MOST, model + off, len));
			}
			T_OK(pst_queue_prep(rig_q, &io[j]));
		}
		T_EQ(pst_queue_submit(rig_q), AT_ONCE);
		for (unsigned n = 0; n < AT_ONCE; n++) {
			struct pst_done d = rig_reap1(rig_q);
			const struct pst_io *of = &io[d.user_data];

			T_EQ(d.res, of->len);
			T_EQ(paths_of(&d), RDMA);
			if (write)
				continue;
			T_OK(pst_mem_copy_out(m, of->mem_off, buf, of->len));
			T_CHECK(!memcmp(buf, model + of->file_off, of->len));
		}
	}
	(void)pst_file_close(f);
	T_EQ(rig_slurp(rig_path("data"), 0, buf, SIZE), SIZE);
	T_CHECK(!memcmp(buf, model, SIZE));
	free(model);
	free(buf);
	if (reached)
		reach_end(reached, AT_ONCE * (uint64_t)MOST);
	(void)pst_mem_free(m);
	server_end(SIGTERM);
}

/* Without RDMA, requests use TCP; a policy with only RDMA fails with the reason. */
static void serves_without(const char *more, const char *env, int detail)
{
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	struct pst_file *f;
	struct pst_done d;
	char text[300];

	rig_make(rig_path("data"), SEED, LEN);
	server_start(more, NULL);
	if (env)
		T_EQ(setenv("PST_RDMA", env, 1), 0);
	else
		T_EQ(unsetenv("PST_RDMA"), 0);
	f = rig_open(url("data"), RIG_R);
	d = rig_read(f, m, 0, 0, LEN);
	T_EQ(d.res, LEN);
	T_EQ(paths_of(&d), TCP);
	T_EQ(d.why, PST_WHY_NONE);
	T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
	T_EQ(strictly(f, m, false, 4096, PST_PATH_RDMA, &d), -EOPNOTSUPP);
	T_EQ(d.why, PST_WHY_NO_RDMA);
	T_EQ(d.detail, detail);
	T_CHECK(strlen(pst_why_text(d.why, d.detail, text, sizeof(text))) > 20);
	T_EQ(setenv("PST_RDMA", device, 1), 0);
	(void)pst_file_close(f);
	(void)pst_mem_free(m);
	server_end(SIGTERM);
	nothing_is_reached();
}

static void without_rdma(void)
{
	serves_without("--rdma", "off", ECANCELED);
	serves_without("--rdma", NULL, EPERM); /* the server runs on this machine */
	serves_without("--rdma=no", device, EPROTONOSUPPORT);
}

/* Run this case last: the library caches a missing device for some seconds. */
static void without_a_device(void)
{
	serves_without("--rdma", "nix0", ENODEV);
}

static void policy_decides(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	struct pst_file *f;
	struct pst_done d;

	rig_make(rig_path("data"), SEED, LEN);
	server_start("--rdma=try", NULL);
	f = rig_open(url("data"), RIG_RW);
	T_EQ(strictly(f, m, false, LEN, PST_PATH_RDMA, &d), LEN);
	T_EQ(paths_of(&d), RDMA);
	T_EQ(strictly(f, m, false, LEN, PST_PATH_TCP, &d), LEN);
	T_EQ(paths_of(&d), TCP);
	T_EQ(strictly(f, m, true, LEN, PST_PATH_RDMA, &d), LEN);
	T_EQ(strictly(f, m, true, LEN, PST_PATH_TCP, &d), LEN);
	T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
	T_EQ(number(REQUESTS("rdma")), 1);
	(void)pst_file_close(f);
	(void)pst_mem_free(m);
	server_end(SIGTERM);
}

/* After a request is given up, nothing may reach its memory, whatever the server does later. */
static void late_bytes_do_not_arrive(void)
{
	struct pst_mem *m = alloc_reached(PIECE);
	void *reached = rig_soft() ? reach_begin(m, PIECE) : NULL;
	struct pst_file *f;
	struct pst_io io;

	for (unsigned i = 0; i < 4; i++) {
		bool cancel = i % 2, write = i / 2;

		rig_make(rig_path("data"), SEED, PIECE);
		server_start("--rdma", NULL);
		f = rig_open(url("data"), RIG_RW);
		T_EQ(rig_read(f, m, 0, 0, PIECE).res, PIECE);
		T_CHECK(kill(server, SIGSTOP) == 0);
		io = rig_io(write ? PST_OP_WRITE : PST_OP_READ, f, m, 0, 0, PIECE);
		io.user_data = 77;
		io.deadline_ns = cancel ? 0 : t_in_ms(30);
		rig_mem_fill(m, 0, PIECE, 1, 0);
		T_OK(pst_queue_prep(rig_q, &io));
		T_EQ(pst_queue_submit(rig_q), 1);
		if (cancel)
			T_EQ(pst_queue_cancel(rig_q, 77), 1);
		T_EQ(rig_reap1(rig_q).res, cancel ? -ECANCELED : -ETIMEDOUT);
		T_OK(pst_mem_drain(m, t_hang()));
		nothing_is_reached();
		/* Reuse the memory. */
		rig_mem_fill(m, 0, PIECE, 2, 0);
		T_CHECK(kill(server, SIGCONT) == 0);
		/* Wait for a new connection, whose hello is answered after all requests of the
		 * old one. */
		T_EQ(rig_read(f, m, 0, 0, 65536).res, 65536);
		T_EQ(rig_mem_differs(m, 65536, PIECE - 65536, 2, 65536), PIECE - 65536);
		if (write) { /* either old bytes or the write's bytes */
			char byte = 0;

			T_EQ(rig_slurp(rig_path("data"), 4096, &byte, 1), 1);
			T_CHECK(t_differs(&byte, SEED, 4096, 1) || t_differs(&byte, 1, 4096, 1));
		}
		(void)pst_file_close(f);
		server_end(SIGTERM);
	}
	if (reached)
		reach_end(reached, PIECE);
	(void)pst_mem_free(m);
}

/* The program's own memory, read-only for writes, and memory that is remapped at one address. */
static void memory_of_the_program(void)
{
	struct pst_mem_opts o = { .sz = sizeof(o) }, ro = { .sz = sizeof(ro) };
	struct pst_mem *m = NULL;
	struct pst_file *f;
	char *p, *got = malloc(PIECE);

	T_CHECK(got);
	rig_make(rig_path("data"), SEED, PIECE);
	server_start("--rdma", NULL);
	f = rig_open(url("data"), RIG_RW);
	for (unsigned i = 0; i < 20; i++) {
		p = mmap((void *)0x7ea000000000, PIECE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		T_CHECK(p != MAP_FAILED);
		T_OK(pst_mem_wrap((uint64_t)(uintptr_t)p, PIECE, i % 2 ? &o : &ro, &m));
		if (i % 2) {
			T_EQ(rig_read(f, m, 0, 0, PIECE).res, PIECE);
			T_EQ(t_differs(p, SEED + i - 1, 0, PIECE), PIECE);
		} else {
			struct pst_done d;

			t_fill(p, SEED + i, 0, PIECE);
			T_EQ(mprotect(p, PIECE, PROT_READ), 0);
			d = rig_write(f, m, 0, 0, PIECE);
			T_EQ(d.res, PIECE);
			T_EQ(d.paths, RDMA);
			T_EQ(rig_slurp(rig_path("data"), 0, got, PIECE), PIECE);
			T_EQ(t_differs(got, SEED + i, 0, PIECE), PIECE);
		}
		m = pst_mem_free(m);
		T_EQ(munmap(p, PIECE), 0);
	}
	free(got);
	(void)pst_file_close(f);
	server_end(SIGTERM);
}

/* Only as many clients as configured get a queue pair; the next one uses TCP. */
static void clients_are_counted(void)
{
	struct pst_queue *q = rig_queue(rig_backend, 8);
	struct pst_mem *m = rig_alloc("host", LEN);
	struct pst_file *f;
	struct pst_done d;
	struct pst_io io;

	rig_make(rig_path("data"), SEED, LEN);
	server_start("--rdma", "--rdma-clients=1");
	f = rig_open(url("data"), RIG_R);
	T_EQ(paths_of(&(struct pst_done){ .paths = rig_read(f, m, 0, 0, LEN).paths }), RDMA);
	T_EQ(number(CONNECTIONS), 1);
	io = rig_io(PST_OP_READ, f, m, 0, 0, LEN);
	d = rig_do(q, &io);
	T_EQ(d.res, LEN);
	T_EQ(d.paths, TCP);
	T_EQ(d.why, PST_WHY_NO_RDMA);
	T_EQ(d.detail, EBUSY);
	T_EQ(number("penstock_serve_rdma_refused_total"), 1);
	T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
	/* A client with a queue pair keeps it, and a refused one does not ask again. */
	T_EQ(rig_read(f, m, 0, 0, LEN).paths, RDMA);
	d = rig_do(q, &io);
	T_EQ(d.paths, TCP);
	T_EQ(d.detail, EBUSY);
	T_EQ(number(REQUESTS("rdma")), 2);
	T_EQ(number("penstock_serve_connections_dropped_total"), 0);
	(void)pst_file_close(f);
	pst_queue_free(q);
	(void)pst_mem_free(m);
	server_end(SIGTERM);
}

/* A write over the socket with unmapped memory ends the connection, but no request by RDMA. */
static void memory_that_is_gone(void)
{
	struct pst_mem *m = alloc_reached(LEN), *h = rig_alloc("host", LEN), *gone = NULL;
	struct pst_mem_opts o = { .sz = sizeof(o) };
	void *reached = reach_begin(m, LEN);
	struct pst_file *f;
	struct pst_io io[3];
	char *p;

	p = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	T_CHECK(p != MAP_FAILED);
	T_OK(pst_mem_wrap((uint64_t)(uintptr_t)p, PIECE, &o, &gone));
	rig_make(rig_path("data"), SEED, LEN);
	server_start("--rdma", NULL);
	f = rig_open(url("data"), RIG_RW);
	T_EQ(rig_read(f, m, 0, 0, LEN).paths, RDMA);
	T_EQ(mprotect(p, PIECE, PROT_NONE), 0);
	/* More than the socket's buffer, so that other requests wait. */
	T_CHECK(kill(server, SIGSTOP) == 0);
	io[0] = rig_io(PST_OP_WRITE, f, h, 0, 0, LEN);
	io[1] = rig_io(PST_OP_WRITE, f, m, LEN, 0, PIECE);
	io[2] = rig_io(PST_OP_WRITE, f, gone, LEN + PIECE, 0, PIECE);
	io[0].policy = io[2].policy = PST_PATH_TCP;
	for (unsigned i = 0; i < RIG_NR(io); i++) {
		io[i].user_data = i;
		T_OK(pst_queue_prep(rig_q, &io[i]));
	}
	T_EQ(pst_queue_submit(rig_q), RIG_NR(io));
	T_CHECK(kill(server, SIGCONT) == 0);
	for (unsigned i = 0; i < RIG_NR(io); i++) {
		struct pst_done d = rig_reap1(rig_q);

		T_EQ(d.res, d.user_data == 2 ? -EFAULT : (int64_t)io[d.user_data].len);
		if (d.user_data == 1) {
			T_EQ(d.paths, RDMA);
			T_EQ(d.why, PST_WHY_NONE);
		}
	}
	T_EQ(rig_read(f, m, 0, 0, LEN).paths, RDMA);
	(void)pst_file_close(f);
	reach_end(reached, LEN);
	(void)pst_mem_free(m);
	(void)pst_mem_free(h);
	(void)pst_mem_free(gone);
	T_EQ(munmap(p, PIECE), 0);
	server_end(SIGTERM);
}

/* A refusal for lack of room must not be remembered as a property of the memory. */
static void memory_outlives_a_refusal(void)
{
	/* Do first what may skip the case. */
	struct pst_mem *m = alloc_reached(LEN), *h = rig_alloc("host", LEN);
	struct pst_queue *q = rig_queue(rig_backend, 8), *other = rig_queue(rig_backend, 8);
	void *reached = reach_begin(m, LEN);
	uint64_t end = t_hang();
	struct pst_file *f;
	struct pst_done d;
	struct pst_io io;

	rig_make(rig_path("data"), SEED, LEN);
	server_start("--rdma", "--rdma-clients=1");
	f = rig_open(url("data"), RIG_R);
	io = rig_io(PST_OP_READ, f, h, 0, 0, LEN);
	T_EQ(rig_do(q, &io).paths, RDMA);
	d = rig_read(f, m, 0, 0, LEN);
	T_EQ(d.res, LEN);
	T_EQ(paths_of(&d), TCP);
	T_EQ(d.why, PST_WHY_NO_RDMA);
	T_EQ(d.detail, EBUSY);
	pst_queue_free(q);
	while (number(CONNECTIONS) && t_now() < end)
		(void)usleep(1000);
	io = rig_io(PST_OP_READ, f, m, 0, 0, LEN);
	d = rig_do(other, &io);
	T_EQ(d.res, LEN);
	T_EQ(d.paths, RDMA);
	T_EQ(d.why, PST_WHY_NONE);
	T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
	(void)pst_file_close(f);
	pst_queue_free(other);
	reach_end(reached, LEN);
	(void)pst_mem_free(m);
	(void)pst_mem_free(h);
	server_end(SIGTERM);
}

/* Kill the server repeatedly, at any point. */
static void *kill_it(void *arg)
{
	struct timespec ts = { .tv_nsec = (long)rig_below(4000000) };

	(void)arg;
	(void)nanosleep(&ts, NULL);
	(void)kill(server, SIGKILL);
	return NULL;
}

static void a_killed_server(void)
{
	unsigned nr = getenv("PST_SOAK") ? 1000 : 10;
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	struct pst_file *f;
	struct pst_io io;
	pthread_t t;

	rig_make(rig_path("data"), SEED, LEN);
	server_start("--rdma", NULL);
	f = rig_open(url("data"), RIG_R);
	for (unsigned i = 0; i < nr; i++) {
		int status;

		io = rig_io(PST_OP_READ, f, m, 0, 0, LEN);
		rig_mem_fill(m, 0, LEN, 1, 0);
		T_EQ(pthread_create(&t, NULL, kill_it, NULL), 0);
		T_OK(pst_queue_prep(rig_q, &io));
		T_EQ(pst_queue_submit(rig_q), 1);
		T_EQ(pthread_join(t, NULL), 0);
		T_EQ(waitpid(server, &status, 0), server);
		server = 0;
		server_start("--rdma", NULL);
		T_EQ(rig_reap1(rig_q).res, LEN);
		T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
	}
	(void)pst_file_close(f);
	(void)pst_mem_free(m);
	server_end(SIGTERM);
}

/* Get the kernel's RDMA objects as rdma(8) shows them; "" with the stub, which has none there. */
static void kernel_objects(char *ret, size_t size)
{
	FILE *p = stub.state ? NULL : popen("rdma resource show", "r");
	size_t n = p ? fread(ret, 1, size - 1, p) : 0;

	ret[n] = '\0';
	if (p)
		T_EQ(pclose(p), 0);
}

/* A client process that reads by RDMA until it is killed; it prints a line after the first
 * bytes. */
static int client_main(const char *name)
{
	struct pst_mem *m;
	struct pst_file *f;
	struct pst_done d;

	rig_q = rig_queue(rig_best_backend(), 0);
	m = rig_alloc("host", LEN);
	f = rig_open(name, RIG_R);
	d = rig_read(f, m, 0, 0, LEN);
	if (d.res != (int64_t)LEN || d.paths != RDMA)
		return 1;
	(void)!write(STDOUT_FILENO, "r", 1);
	for (;;)
		(void)rig_read(f, m, 0, 0, LEN);
}

static void client_is_killed(char *name)
{
	char self[] = "/proc/self/exe", client[] = "--client", byte = 0;
	char *const args[] = { self, client, name, NULL };
	int out[2], status;
	pid_t pid;

	T_CHECK(pipe2(out, O_CLOEXEC) == 0);
	pid = fork();
	T_CHECK(pid >= 0);
	if (pid == 0) {
		(void)dup2(out[1], STDOUT_FILENO);
		(void)execv(self, args);
		_exit(127);
	}
	(void)close(out[1]);
	T_EQ(read(out[0], &byte, 1), 1);
	(void)close(out[0]);
	(void)usleep((useconds_t)rig_below(4000));
	T_EQ(kill(pid, SIGKILL), 0);
	T_EQ(waitpid(pid, &status, 0), pid);
}

/* Clients that are killed in the middle leave nothing in the server, and nothing in the kernel. */
static void killed_clients(void)
{
	const char *env = getenv("PST_TEST_KILLS");
	unsigned nr = env ? (unsigned)atoi(env) : 5;
	static char before[4096], after[4096];
	uint64_t end;
	char name[800];

	rig_make(rig_path("data"), SEED, LEN);
	kernel_objects(before, sizeof(before));
	server_start("--rdma", NULL);
	(void)snprintf(name, sizeof(name), "%s", url("data"));
	for (unsigned i = 0; i < nr; i++)
		client_is_killed(name);
	T_EQ(number(REQUESTS("rdma")), nr);
	end = t_hang();
	while (number(CONNECTIONS) && t_now() < end)
		(void)usleep(1000);
	T_EQ(number(CONNECTIONS), 0);
	/* The server still runs, and the kernel ends objects a moment later. */
	do
		kernel_objects(after, sizeof(after));
	while (strcmp(before, after) != 0 && t_now() < end && usleep(10000) == 0);
	T_CHECK(!strcmp(before, after));
	printf("# %u clients were killed; rdma resource show before and after: %s\n", nr,
	       *before ? before : "none");
	server_end(SIGTERM);
}

/* The n-th call of the library fails in the client: the bytes come by RDMA or by TCP. */
static void nth_call_fails(void)
{
	static const char *const calls[] = {
		"ibv_open_device",  "ibv_query_device", "ibv_alloc_pd",
		"ibv_reg_mr_iova2", "ibv_create_cq",    "ibv_create_comp_channel",
		"ibv_create_qp",    "ibv_modify_qp",    "ibv_poll_cq",
		"completion",       "ibv_post_recv",    "ibv_req_notify_cq",
	};
	struct pst_mem *m = alloc_by_stub();
	struct pst_file *f;
	struct pst_done d;

	rig_make(rig_path("data"), SEED, LEN);
	server_start("--rdma", NULL);
	for (unsigned c = 0; c < RIG_NR(calls); c++)
		for (unsigned n = 1; n <= 4; n++) {
			char spec[80];

			rig_q = pst_queue_free(rig_q);
			rig_q = rig_queue(rig_backend, 0);
			(void)snprintf(spec, sizeof(spec), "%s:%u:12", calls[c], n);
			server_rename();
			stub.fail(spec);
			f = rig_open(url("data"), RIG_RW);
			rig_mem_fill(m, 0, LEN, 1, 0);
			d = rig_read(f, m, 0, 0, LEN);
			T_EQ(d.res, LEN);
			T_CHECK(d.paths & (TCP | RDMA));
			T_CHECK(!(d.paths & RDMA) || !(d.paths & TCP) || d.why == PST_WHY_NO_RDMA);
			T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
			d = rig_write(f, m, 0, 0, LEN);
			T_EQ(d.res, LEN);
			stub.fail(NULL);
			(void)pst_file_close(f);
		}
	(void)pst_mem_free(m);
	server_end(SIGTERM);
}

/* The nth call fails in each of the server's processes. */
static void nth_call_fails_there(void)
{
	static const char *const calls[] = {
		"ibv_alloc_pd",  "ibv_reg_mr_iova2", "ibv_create_qp",     "ibv_modify_qp",
		"ibv_post_send", "completion",       "ibv_req_notify_cq", "ibv_create_cq",
	};
	struct pst_mem *m = alloc_by_stub();
	struct pst_file *f;
	struct pst_done d;

	rig_make(rig_path("data"), SEED, LEN);
	for (unsigned c = 0; c < RIG_NR(calls); c++)
		for (unsigned n = 1; n <= 3; n++) {
			char spec[80];

			(void)snprintf(spec, sizeof(spec), "%s:%u:12", calls[c], n);
			T_EQ(setenv("STUB_IBVERBS_FAIL", spec, 1), 0);
			server_start("--rdma", NULL);
			T_EQ(unsetenv("STUB_IBVERBS_FAIL"), 0);
			server_rename();
			f = rig_open(url("data"), RIG_RW);
			d = rig_read(f, m, 0, 0, LEN);
			T_EQ(d.res, LEN);
			T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
			T_EQ(rig_write(f, m, 0, 0, LEN).res, LEN);
			(void)pst_file_close(f);
			server_end(SIGTERM);
		}
	(void)pst_mem_free(m);
}

/* A device fails, with and without an event. */
static void a_device_dies(void)
{
	struct pst_mem *m = alloc_by_stub();
	struct pst_file *f;
	struct pst_done d;

	rig_make(rig_path("data"), SEED, LEN);
	server_start("--rdma", NULL);
	server_rename();
	f = rig_open(url("data"), RIG_R);
	T_EQ(rig_read(f, m, 0, 0, LEN).res, LEN);
	stub.die(true, true);
	d = rig_read(f, m, 0, 0, LEN);
	T_EQ(d.res, LEN);
	T_CHECK(d.paths & TCP);
	T_EQ(d.why, PST_WHY_NO_RDMA);
	T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
	stub.die(false, false);
	(void)pst_file_close(f);
	(void)pst_mem_free(m);
	server_end(SIGTERM);
}

/* After a queue pair by which no transfer succeeds, no queue and no file, not even a new one, asks
 * for another queue pair until the pause is over. */
static void failures_are_not_repeated(void)
{
	struct pst_mem *m = alloc_by_stub();
	unsigned nr_checked = 0;
	struct pst_file *f;
	struct pst_done d;

	rig_make(rig_path("data"), SEED, LEN);
	T_EQ(setenv("STUB_IBVERBS_FAIL", "completion:0:12", 1), 0);
	server_start("--rdma", NULL);
	T_EQ(unsetenv("STUB_IBVERBS_FAIL"), 0);
	while (!nr_checked) {
		uint64_t begin;
		int64_t asked;

		server_rename();
		begin = t_now();
		f = rig_open(url("data"), RIG_RW);
		d = rig_read(f, m, 0, 0, LEN);
		T_EQ(d.res, LEN);
		T_EQ(paths_of(&d), TCP);
		T_EQ(d.why, PST_WHY_NO_RDMA);
		asked = number(REQUESTS("rdma"));
		for (unsigned i = 0; i < 6; i++) {
			if (i % 3 == 1) {
				(void)pst_file_close(f);
				f = rig_open(url("data"), RIG_RW);
			}
			if (i % 3 == 2) {
				rig_q = pst_queue_free(rig_q);
				rig_q = rig_queue(rig_backend, 0);
			}
			d = i % 2 ? rig_write(f, m, 0, 0, LEN) : rig_read(f, m, 0, 0, LEN);
			T_EQ(d.res, LEN);
			/* The machine is so busy that the pause is over: try once more. */
			if (t_now() - begin > 4 * 1000000000ull)
				break;
			T_EQ(paths_of(&d), TCP);
			T_EQ(d.why, PST_WHY_NO_RDMA);
			T_EQ(number(REQUESTS("rdma")), asked);
			nr_checked++;
		}
		(void)pst_file_close(f);
	}
	(void)pst_mem_free(m);
	server_end(SIGTERM);
}

/* An idle client frees a device that has failed, with all of its objects. */
static void an_idle_client_gives_a_dead_device_back(void)
{
	struct pst_mem *m = alloc_by_stub();
	struct stub_ibverbs_state st;
	uint64_t end = t_hang();
	struct pst_file *f;
	struct pst_done d;

	rig_make(rig_path("data"), SEED, LEN);
	server_start("--rdma", NULL);
	server_rename();
	f = rig_open(url("data"), RIG_R);
	T_EQ(rig_read(f, m, 0, 0, LEN).res, LEN);
	T_EQ(stub_now().contexts, 1);
	T_EQ(stub_now().qps, 1);
	stub.die(true, true);
	do
		st = stub_now();
	while (st.contexts + st.qps + st.mrs + st.pds + st.cqs + st.channels && t_now() < end &&
	       usleep(1000) == 0);
	T_EQ(st.contexts + st.qps + st.mrs + st.pds + st.cqs + st.channels, 0);
	stub.die(false, false);
	/* The bytes come over the socket until the pause is over. */
	d = rig_read(f, m, 0, 0, LEN);
	T_EQ(d.res, LEN);
	T_CHECK(paths_of(&d) == TCP ? d.why == PST_WHY_NO_RDMA : paths_of(&d) == RDMA);
	T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
	(void)pst_file_close(f);
	(void)pst_mem_free(m);
	server_end(SIGTERM);
}

/* Check the checksum that a program gets of the bytes read or written. */
static void sums(struct pst_file *f, struct pst_mem *m, bool write, bool damaged)
{
	struct pst_io io = rig_io(write ? PST_OP_WRITE : PST_OP_READ, f, m, 0, 0, LEN);
	char *bytes = malloc(LEN);
	struct pst_done d;

	T_CHECK(bytes);
	io.flags = PST_IO_CRC32C;
	rig_mem_fill(m, 0, LEN, SEED, 0);
	d = rig_do(rig_q, &io);
	T_EQ(d.res, LEN);
	T_EQ(paths_of(&d), RDMA);
	T_CHECK(d.flags & PST_DONE_CRC32C);
	t_fill(bytes, SEED, 0, LEN);
	if (write) {
		/* The checksum is that of the program's bytes, which shows that the file has other
		 * bytes. */
		T_EQ(d.crc32c, rig_crc32c(0, bytes, LEN));
		T_EQ(rig_slurp(rig_path("data"), 0, bytes, LEN), LEN);
		T_EQ(d.crc32c != rig_crc32c(0, bytes, LEN), damaged);
	} else {
		T_EQ(d.crc32c != rig_crc32c(0, bytes, LEN), damaged);
	}
	free(bytes);
}

/* PST_IO_CRC32C finds a byte that arrived wrong, in both directions. */
static void sums_for_the_program(void)
{
	struct pst_mem *m = alloc_by_stub();
	struct pst_file *f;

	for (unsigned i = 0; i < 4; i++) {
		bool write = i % 2, damaged = i / 2;

		rig_make(rig_path("data"), SEED, LEN);
		if (damaged)
			T_EQ(setenv("STUB_IBVERBS_FAIL", "damage:3:1", 1), 0);
		server_start("--rdma", NULL);
		T_EQ(unsetenv("STUB_IBVERBS_FAIL"), 0);
		f = rig_open(url("data"), RIG_RW);
		sums(f, m, write, damaged);
		(void)pst_file_close(f);
		server_end(SIGTERM);
	}
	(void)pst_mem_free(m);
}

/* Over a network each request has a checksum: a wrong byte reaches neither the program nor the
 * file, and makes RDMA with the server pause. */
static void sums_of_each_request(void)
{
	struct pst_mem *m = alloc_by_stub();
	char *got = malloc(LEN);
	struct pst_file *f;
	struct pst_done d;

	T_CHECK(got);
	by_network = true;
	for (unsigned i = 0; i < 6; i++) {
		bool write = i % 2, damaged = i / 2;

		rig_make(rig_path("data"), SEED, LEN);
		/* Damage one byte, or one of each transfer. */
		if (damaged)
			T_EQ(setenv("STUB_IBVERBS_FAIL", i / 2 == 1 ? "damage:3:1" : "damage:0:1",
				    1),
			     0);
		server_start("--rdma", NULL);
		T_EQ(unsetenv("STUB_IBVERBS_FAIL"), 0);
		f = rig_open(url("data"), RIG_RW);
		rig_mem_fill(m, 0, LEN, i + 1, 0);
		d = write ? rig_write(f, m, 0, 0, LEN) : rig_read(f, m, 0, 0, LEN);
		T_EQ(d.res, LEN);
		if (damaged)
			T_CHECK(d.paths & TCP && d.why == PST_WHY_NO_RDMA);
		else
			T_EQ(paths_of(&d), RDMA);
		T_EQ(rig_slurp(rig_path("data"), 0, got, LEN), LEN);
		T_EQ(t_differs(got, write ? i + 1 : SEED, 0, LEN), LEN);
		T_EQ(rig_mem_differs(m, 0, LEN, write ? i + 1 : SEED, 0), LEN);
		(void)pst_file_close(f);
		server_end(SIGTERM);
	}
	free(got);
	(void)pst_mem_free(m);
}

static void make_file(const char *name)
{
	int fd = open(rig_path(name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	T_CHECK(fd >= 0);
	(void)close(fd);
}

/* While the end of a client's queue pair takes long, all other clients are served. */
static void a_slow_end_stops_nobody(void)
{
	struct pst_mem *m = alloc_by_stub();
	struct pst_queue *q = rig_queue(rig_backend, 8), *other = rig_queue(rig_backend, 8);
	uint64_t end = t_hang();
	struct pst_file *f;
	struct pst_done d;
	struct pst_io io;

	rig_make(rig_path("data"), SEED, LEN);
	T_EQ(setenv("STUB_IBVERBS_HOLD", rig_path("hold"), 1), 0);
	server_start("--rdma", NULL);
	T_EQ(unsetenv("STUB_IBVERBS_HOLD"), 0);
	server_rename();
	f = rig_open(url("data"), RIG_RW);
	io = rig_io(PST_OP_READ, f, m, 0, 0, LEN);
	T_EQ(rig_do(q, &io).paths, RDMA);
	make_file("hold");
	pst_queue_free(q);
	while (access(rig_path("hold.held"), F_OK) && t_now() < end)
		(void)usleep(1000);
	T_EQ(access(rig_path("hold.held"), F_OK), 0);
	for (unsigned i = 0; i < 4; i++) {
		d = i % 2 ? rig_write(f, m, 0, 0, LEN) : rig_read(f, m, 0, 0, LEN);
		T_EQ(d.res, LEN);
		T_EQ(d.paths, RDMA);
		T_EQ(number(CONNECTIONS), 2);
	}
	/* A client that comes during this is served, also over the socket. */
	d = rig_do(other, &io);
	T_EQ(d.res, LEN);
	T_EQ(d.paths, RDMA);
	io.policy = PST_PATH_TCP;
	T_EQ(rig_do(other, &io).paths, TCP);
	T_EQ(number(CONNECTIONS), 3);
	T_EQ(unlink(rig_path("hold")), 0);
	while (number(CONNECTIONS) != 2 && t_now() < end)
		(void)usleep(1000);
	T_EQ(number(CONNECTIONS), 2);
	(void)pst_file_close(f);
	pst_queue_free(other);
	(void)pst_mem_free(m);
	server_end(SIGTERM);
}

/* The server's device fails while all clients are idle. */
static void an_idle_server_gives_a_dead_device_back(void)
{
	struct pst_mem *m = alloc_by_stub();
	uint64_t end = t_hang();
	struct pst_file *f;

	rig_make(rig_path("data"), SEED, LEN);
	T_EQ(setenv("STUB_IBVERBS_DEATH", rig_path("death"), 1), 0);
	server_start("--rdma", NULL);
	T_EQ(unsetenv("STUB_IBVERBS_DEATH"), 0);
	server_rename();
	f = rig_open(url("data"), RIG_R);
	T_EQ(rig_read(f, m, 0, 0, LEN).paths, RDMA);
	T_EQ(number(CONNECTIONS), 1);
	make_file("death");
	while (number(CONNECTIONS) && t_now() < end)
		(void)usleep(1000);
	T_EQ(number(CONNECTIONS), 0);
	T_EQ(number("penstock_serve_rdma_failed_total"), 1);
	T_EQ(rig_read(f, m, 0, 0, LEN).res, LEN);
	T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
	(void)pst_file_close(f);
	(void)pst_mem_free(m);
	server_end(SIGTERM);
}

static void run(const char *name, void (*fn)(void), const char *dev)
{
	char full[80];

	rig_backend = rig_best_backend();
	rig_dev = dev;
	rig_last = rig_q;
	rig_q = NULL;
	rig_fn = fn;
	by_network = false;
	(void)snprintf(full, sizeof(full), "%s %s", name, dev);
	t_run(full, rig_case);
	if (!t_failed)
		T_EQ(stub_now().qps + stub_now().mrs + stub_now().cqs, 0);
}

#define RUN(fn, dev) run(#fn, fn, dev)

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "--client"))
		return client_main(argv[2]);
	rig_init();
	stub_find();
	(void)setenv("STUB_IBVERBS_FABRIC", rig_path("fabric"), 1);
	(void)setenv("PST_RDMA", device, 1);
	RUN(moves, "host");
	RUN(moves, "soft:0");
	RUN(memory_without_a_way, "soft:0");
	RUN(a_model_holds, "host");
	RUN(a_model_holds, "soft:0");
	RUN(without_rdma, "host");
	RUN(policy_decides, "host");
	RUN(policy_decides, "soft:0");
	RUN(late_bytes_do_not_arrive, "host");
	RUN(late_bytes_do_not_arrive, "soft:0");
	RUN(memory_of_the_program, "host");
	RUN(sums_for_the_program, "host");
	RUN(sums_for_the_program, "soft:0");
	RUN(sums_of_each_request, "host");
	RUN(sums_of_each_request, "soft:0");
	RUN(clients_are_counted, "host");
	RUN(memory_outlives_a_refusal, "soft:0");
	RUN(memory_that_is_gone, "soft:0");
	RUN(a_killed_server, "host");
	RUN(killed_clients, "host");
	RUN(nth_call_fails, "host");
	RUN(nth_call_fails_there, "host");
	RUN(a_device_dies, "host");
	RUN(failures_are_not_repeated, "host");
	RUN(an_idle_client_gives_a_dead_device_back, "host");
	RUN(an_idle_server_gives_a_dead_device_back, "host");
	RUN(a_slow_end_stops_nobody, "host");
	RUN(without_a_device, "host");
	return rig_done();
}
