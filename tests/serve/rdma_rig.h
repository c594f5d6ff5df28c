/* SPDX-License-Identifier: MIT */
/*
 * Shared by tests of a storage service by RDMA, through the public API.  PENSTOCK is the path of
 * the command, which serves.  The stub of libibverbs connects the two processes; without
 * PST_LIBIBVERBS the tests use the device that PST_TEST_RDMA names, in loopback.
 */
#ifndef PST_RDMA_RIG_H
#define PST_RDMA_RIG_H

#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>

#include "stub/ibverbs_stub.h"

#include "rig.h"
#include "service.h"

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

static inline void stub_find(void)
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

static inline void needs_stub(void)
{
	if (!stub.state)
		T_SKIP("faults on demand, which the double of libibverbs has");
}

/* Allocate memory that the network card reaches; for device memory only with the stub. */
static inline struct pst_mem *alloc_reached(uint64_t len)
{
	if (rig_soft())
		needs_stub();
	return rig_alloc(rig_dev, len);
}

/* Allocate memory for a case that needs the stub. */
static inline struct pst_mem *alloc_by_stub(void)
{
	needs_stub();
	return rig_alloc(rig_dev, LEN);
}

/* Return the stub's counters; zeros with a real library. */
static inline struct stub_ibverbs_state stub_now(void)
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
static inline void nothing_is_reached(void)
{
	struct stub_ibverbs_state st = stub_now();

	T_EQ(st.mrs, 0);
	T_EQ(st.qps, 0);
}

/* Let the network card reach memory of the software device, as nvidia-peermem does for GPUs. */
static inline void *reach_begin(struct pst_mem *m, uint64_t len)
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

static inline void reach_end(void *at, uint64_t len)
{
	stub.peermem(0, 0, NULL);
	T_EQ(munmap(at, len), 0);
}

/* ------------------------------------------------------------------- server */

static pid_t server;

static bool by_network;   /* the server's address is not known to be one of this machine */
static unsigned tcp_port; /* if by_network */

/* Start the server; return when it listens. more: up to two further options. */
static inline void server_start(const char *more, const char *and_more)
{
	char listen[600], metrics[600], buf[1024];
	const char *at;
	const char *args[] = { "penstock", "serve",     "--root", rig_path("."), "--listen", listen,
			       "--write",  "--metrics", metrics,  more,          and_more,   NULL };

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
	server = service_start(args, buf, sizeof(buf));
	at = strstr(buf, "127.0.0.1:");
	tcp_port = at ? (unsigned)atoi(at + strlen("127.0.0.1:")) : 0;
	T_EQ(tcp_port > 0, by_network);
}

static inline void server_end(int sig)
{
	service_end(server, sig);
	server = 0;
}

/* Read one of the server's metrics. */
static inline int64_t number(const char *name)
{
	return service_number(rig_path("metrics"), name);
}

#define WRITES "penstock_serve_rdma_operations_total{op=\"write\"}"
#define READS "penstock_serve_rdma_operations_total{op=\"read\"}"
#define SENDS "penstock_serve_rdma_operations_total{op=\"send\"}"
#define REQUESTS(op) "penstock_serve_requests_total{op=\"" op "\"}"
#define CONNECTIONS "penstock_serve_rdma_connections"

static unsigned other_server;

/* Give the server another name: the library remembers failures by name. */
static inline void server_rename(void)
{
	char name[32];

	(void)snprintf(name, sizeof(name), "sock-%u", ++other_server);
	T_EQ(symlink("sock", rig_path(name)), 0);
}

static inline const char *url(const char *name)
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
static inline uint32_t paths_of(const struct pst_done *d)
{
	return d->paths & ~DEVICE_HOPS;
}

static inline int64_t strictly(struct pst_file *f, struct pst_mem *m, bool write, uint64_t len,
			       uint64_t policy, struct pst_done *d)
{
	struct pst_io io = rig_io(write ? PST_OP_WRITE : PST_OP_READ, f, m, 0, 0, len);

	io.policy = policy;
	io.flags = PST_IO_STRICT;
	*d = rig_do(rig_q, &io);
	return d->res;
}

/* Begin a test: find the stub, and name the device for both processes. */
static inline void rdma_begin(void)
{
	rig_init();
	stub_find();
	(void)setenv("STUB_IBVERBS_FABRIC", rig_path("fabric"), 1);
	(void)setenv("PST_RDMA", device, 1);
}

static inline void rdma_run(const char *name, void (*fn)(void), const char *dev)
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

#define RUN(fn, dev) rdma_run(#fn, fn, dev)

#endif
