/* SPDX-License-Identifier: MIT */
/*
 * Gaudi memory through the public calls: files into and out of it, grants to another process,
 * and RDMA. In own mode only devices reach the memory.  In SynapseAI mode requests are staged.
 */
#include <sys/socket.h>
#include <sys/wait.h>

#include "rig.h"

#include "core/queue/object.h"
#include "core/ways/registration.h"
#include "dmabuf.h"
#include "gaudi_rig.h"
#include "mem/mem.h"
#include "net/verbs/endpoint.h"

#define LEN RIG_MIB(4)
#define SEED 11
#define RW (PST_RIGHT_READ | PST_RIGHT_WRITE)
#define SAYS(want)                                                             \
	do {                                                                   \
		if (!strstr(pst_error_text(), want))                           \
			T_FAIL("\"%s\" lacks \"%s\"", pst_error_text(), want); \
	} while (0)

static const char *self;

static void mode(const char *name)
{
	T_EQ(setenv("PST_GAUDI_MODE", name, 1), 0);
}

static struct pst_mem *gaudi(const char *name, uint64_t len)
{
	struct pst_mem *m = NULL;

	mode(name);
	T_OK(pst_mem_alloc("gaudi:0", len, NULL, &m));
	return m;
}

static void quiet(void)
{
	struct stub_gaudi_state s = gaudi_state();

	T_EQ(s.contexts + s.handles + s.mappings + s.exports, 0);
	T_EQ(s.leaked, 0);
}

/* ------------------------------------------------------------------ files */

static void nobody_copies_own_memory(void)
{
	struct pst_mem *m = gaudi("own", LEN);
	struct pst_window *w = NULL;
	struct pst_mem_info info = { .sz = sizeof(info) };
	struct pst_file *f;
	char buf[16] = "";

	rig_make(rig_path("data"), SEED, LEN);
	f = rig_open(rig_path("data"), RIG_R);
	T_OK(pst_mem_info(m, &info));
	T_EQ(info.kind, PST_KIND_GAUDI);
	T_CHECK(!strcmp(info.device, "gaudi:0"));
	T_EQ(rig_read(f, m, 0, 0, LEN).res, -EOPNOTSUPP);
	T_EQ(pst_read(f, 0, m, 0, 4096, NULL), -EOPNOTSUPP);
	SAYS("RDMA");
	T_EQ(pst_mem_copy_in(m, 0, buf, sizeof(buf)), -EOPNOTSUPP);
	SAYS("RDMA");
	SAYS("PST_GAUDI_MODE=synapse");
	T_EQ(pst_window_open(m, 0, 4096, NULL, &w), -EOPNOTSUPP);
	SAYS("RDMA");
	T_EQ(gaudi_state().exported, 0); /* no dma-buf for the CPU: it may not map it */
	pst_file_close(f);
	pst_mem_free(m);
	quiet();
}

static void synapse_stages(void)
{
	struct pst_mem *m = gaudi("synapse", LEN);
	struct pst_file *f, *out = rig_open(rig_path("out"), RIG_NEW);
	struct pst_done d;

	rig_make(rig_path("data"), SEED, LEN);
	f = rig_open(rig_path("data"), RIG_R);
	d = rig_read(f, m, 0, 0, LEN);
	T_EQ(d.res, LEN);
	T_CHECK(d.paths & PST_PATH_BIT(PST_PATH_STAGED));
	T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
	d = rig_read(f, m, 777, 5, 100001);
	T_EQ(d.res, 100001);
	T_EQ(rig_mem_differs(m, 5, 100001, SEED, 777), 100001);
	rig_mem_fill(m, 0, LEN, SEED + 1, 0);
	d = rig_write(out, m, 0, 0, LEN);
	T_EQ(d.res, LEN);
	T_CHECK(d.paths & PST_PATH_BIT(PST_PATH_STAGED));
	rig_mem_fill(m, 0, LEN, SEED, 0);
	T_EQ(rig_read(out, m, 0, 0, LEN).res, LEN);
	T_EQ(rig_mem_differs(m, 0, LEN, SEED + 1, 0), LEN);
	pst_file_close(f);
	pst_file_close(out);
	pst_mem_free(m);
}

/* Reset the device during reads: each completes once, with an error. */
static void a_reset_ends_requests(void)
{
	struct pst_mem *m = gaudi("synapse", LEN);
	struct pst_file *f;
	struct pst_io io;
	struct pst_done d;

	rig_make(rig_path("data"), SEED, LEN);
	f = rig_open(rig_path("data"), RIG_R);
	T_EQ(rig_read(f, m, 0, 0, 4096).res, 4096); /* starts the engine */
	gs.hold(true);
	io = rig_io(PST_OP_READ, f, m, 0, 0, LEN);
	T_OK(pst_queue_prep(rig_q, &io));
	T_EQ(pst_queue_submit(rig_q), 1);
	gs.reset(0, true);
	d = rig_reap1(rig_q);
	T_CHECK(d.res < 0);
	gs.hold(false);
	gs.reset(0, false);
	io = rig_io(PST_OP_READ, f, m, 0, 0, LEN);
	T_EQ(pst_queue_prep(rig_q, &io), -ENODEV);
	SAYS("was reset");
	pst_mem_free(m);
	m = gaudi("synapse", LEN); /* the queue still has streams from before the reset */
	T_EQ(rig_read(f, m, 0, 0, LEN).res, LEN);
	T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
	pst_file_close(f);
	pst_mem_free(m);
}

/* ------------------------------------------------------------------ grants */

/* The other process, which opens no device. */
static int receives(int sock)
{
	struct pst_grant g = { .sz = sizeof(g), .fd = -1 };
	struct pst_mem *m = NULL;
	struct mem_dmabuf d;
	char buf[6] = "";
	int r;

	r = pst_grant_recv(sock, &g, t_hang());
	if (r < 0)
		return 1;
	(void)dmabuf_add(g.fd, true);
	r = pst_mem_import(&g, &m);
	pst_grant_done(&g);
	if (r < 0) {
		(void)fprintf(stderr, "# %s\n", pst_error_text());
		return 2;
	}
	if (pst_mem_copy_out(m, 0, buf, 5) != -EOPNOTSUPP)
		return 3;
	if (mem_export_dmabuf(m->region->alloc, m->off, 5, &d) < 0)
		return 4;
	gaudi_dmabuf_io(d.fd, d.off, buf, 5, false);
	if (strcmp(buf, "hello") != 0)
		return 5;
	gaudi_dmabuf_io(d.fd, d.off, (char[]){ "there" }, 5, true);
	(void)close(d.fd);
	g = (struct pst_grant){ .sz = sizeof(g), .fd = -1 };
	if (pst_mem_export(m, 0, 5, PST_RIGHT_READ, &g) < 0)
		return 7;
	pst_grant_done(&g);
	pst_mem_free(m);
	/* Tell the first process to free its memory, and wait until that is done. */
	if (write(sock, "x", 1) != 1 || read(sock, buf, 1) != 1)
		return 8;
	return gaudi_state().calls != 0;
}

static void another_process_attaches(void)
{
	static const char *const modes[] = { "own", "synapse" };

	for (unsigned i = 0; i < RIG_NR(modes); i++) {
		struct pst_mem *m = gaudi(modes[i], LEN);
		struct pst_grant g = { .sz = sizeof(g), .fd = -1 };
		struct pst_mem_info info = { .sz = sizeof(info) };
		char arg[16], buf[6] = "";
		int socks[2], status;
		pid_t pid;

		T_OK(pst_mem_info(m, &info));
		T_CHECK(gs.poke(info.addr + 12345, "hello", 5));
		T_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, socks), 0);
		T_OK(pst_mem_export(m, 12345, 5, RW, &g));
		pid = fork();
		if (!pid) {
			(void)snprintf(arg, sizeof(arg), "%d", socks[1]);
			(void)execl(self, self, arg, (char *)NULL);
			_exit(127);
		}
		(void)close(socks[1]);
		T_OK(pst_grant_send(socks[0], &g, t_hang()));
		pst_grant_done(&g);
		if (read(socks[0], buf, 1) != 1) {
			T_CHECK(waitpid(pid, &status, 0) == pid);
			T_FAIL("the other process ended with %d", WEXITSTATUS(status));
		}
		T_CHECK(gs.peek(info.addr + 12345, buf, 5));
		T_CHECK(!strcmp(buf, "there"));
		pst_mem_free(m);
		T_EQ(write(socks[0], "x", 1), 1);
		(void)close(socks[0]);
		T_CHECK(waitpid(pid, &status, 0) == pid);
		T_EQ(status, 0);
		quiet();
	}
}

/* ------------------------------------------------------------------ a network card */

static struct {
	struct nic *nic;
	struct nic_domain *domain;
	struct mem_reg *local;
	unsigned char *buf;
} rdma;

static void rdma_begin(void)
{
	T_OK(nic_open(NULL, NULL, &rdma.nic));
	T_OK(nic_domain_new(rdma.nic, &rdma.domain));
	rdma.buf = aligned_alloc(4096, 65536);
	T_CHECK(rdma.buf);
	T_OK(mr_reg_host(rdma.domain, rdma.buf, 65536, 0, &rdma.local));
}

static void rdma_end(void)
{
	mr_dereg(rdma.domain, rdma.local);
	free(rdma.buf);
	T_OK(registrations_forget(&rdma.domain->reg));
	T_OK(nic_domain_free(rdma.domain));
	nic_close(rdma.nic);
}

/* Make a connection, and move len bytes between rdma.buf and the memory of a key. */
static int rdma_do(enum endpoint_op op, uint64_t addr, uint32_t rkey, uint32_t len)
{
	struct endpoint_opts o = { .send_slots = 4, .recv_slots = 4 };
	struct endpoint_io io = { .op = op,
				  .len = len,
				  .local = rdma.local->addr,
				  .lkey = rdma.local->lkey,
				  .remote = addr,
				  .rkey = rkey };
	uint8_t blob[2][ENDPOINT_BLOB];
	struct endpoint_done d = { 0 };
	struct endpoint *a, *b;

	T_OK(endpoint_new(rdma.domain, &o, &a));
	T_OK(endpoint_new(rdma.domain, &o, &b));
	endpoint_blob(a, blob[0]);
	endpoint_blob(b, blob[1]);
	T_OK(endpoint_connect(a, blob[1], ENDPOINT_BLOB));
	T_OK(endpoint_connect(b, blob[0], ENDPOINT_BLOB));
	T_EQ(endpoint_post(a, &io, 1), 1);
	for (int n = 0; n < 1;) {
		n = endpoint_poll(a, &d, 1);
		T_CHECK(n >= 0);
	}
	endpoint_free(a);
	endpoint_free(b);
	return d.res;
}

/* Write memory at va by its key, and read it back. */
static void rdma_moves(uint64_t va, uint64_t at, uint32_t rkey)
{
	char buf[8] = "";

	memcpy(rdma.buf, "by rdma", 7);
	T_EQ(rdma_do(ENDPOINT_WRITE, at, rkey, 7), 7);
	T_CHECK(gs.peek(va, buf, 7));
	T_CHECK(!strcmp(buf, "by rdma"));
	T_CHECK(gs.poke(va, "back", 4));
	T_EQ(rdma_do(ENDPOINT_READ, at, rkey, 7), 7);
	T_CHECK(!memcmp(rdma.buf, "backdma", 7));
}

static void a_network_card_reaches_it(void)
{
	static const char *const modes[] = { "own", "synapse" };
	const uint64_t off = 12345;

	for (unsigned i = 0; i < RIG_NR(modes); i++) {
		uint32_t rights = MEM_REG_REMOTE_READ | MEM_REG_REMOTE_WRITE;
		struct pst_mem *m = gaudi(modes[i], LEN);
		struct pst_mem_info info = { .sz = sizeof(info) };
		struct reg_user u = { 0 };
		uint64_t at;

		rdma_begin();
		T_OK(pst_mem_info(m, &info));
		T_OK(registration_get(m->region, &rdma.domain->reg, off, 5000, rights, &u));
		T_EQ(u.reg->how, MEM_REG_DMABUF);
		at = u.reg->addr + (off - u.reg->off);
		/* The stub of libibverbs cannot reach memory of /dev/udmabuf. */
		if (access("/dev/udmabuf", R_OK | W_OK) != 0)
			rdma_moves(info.addr + off, at, u.reg->rkey);
		/* The key covers the pages of the range, not the device memory after them. */
		T_EQ(rdma_do(ENDPOINT_READ, at + 8192, u.reg->rkey, 7), -EACCES);
		/* Freeing the memory must end the registration first. */
		registration_put(&u);
		pst_mem_free(m);
		quiet();
		rdma_end();
	}
}

/* Freeing memory must end its registrations first: the driver cannot unmap registered memory. */
static void registrations_end_before_the_memory(void)
{
	struct pst_mem *m = gaudi("own", LEN);
	uint64_t held = gaudi_state().held;
	struct reg_user u = { 0 };

	rdma_begin();
	T_OK(registration_get(m->region, &rdma.domain->reg, 0, LEN, 0, &u));
	registration_put(&u); /* the registration stays with the region */
	T_EQ(gaudi_state().exports, 1);
	pst_mem_free(m);
	T_EQ(gaudi_state().held, held);
	quiet();
	rdma_end();
}

static void without_dmabufs_it_is_said(void)
{
	struct reg_user u = { 0 };
	struct pst_mem *m;

	rdma_begin();
	T_EQ(setenv("PST_DMABUF", "no", 1), 0);
	m = gaudi("own", LEN);
	T_CHECK(registration_get(m->region, &rdma.domain->reg, 0, LEN, 0, &u) < 0);
	SAYS("PST_DMABUF=no");
	pst_mem_free(m);
	T_EQ(setenv("PST_DMABUF", "yes", 1), 0);
	m = gaudi("own", LEN);
	pst_mem_free(m);
	(void)gs.fail("hlthunk_device_mapped_memory_export_dmabuf_fd:1:22");
	T_EQ(pst_mem_alloc("gaudi:0", LEN, NULL, &m), -EOPNOTSUPP);
	SAYS("has to become a dma-buf, and cannot: gaudi:0 exports no");
	T_CHECK(gs.fail(NULL));
	T_EQ(unsetenv("PST_DMABUF"), 0);
	quiet();
	rdma_end();
}

/* ------------------------------------------------------------------ checks */

static void the_doctor_tells(void)
{
	const struct pst_check_opts o = { .sz = sizeof(o), .device = "gaudi:0" };
	struct pst_check c = { .sz = sizeof(c) };
	uint64_t held = gaudi_state().held;
	struct pst_mem *m;

	mode("own");
	T_EQ(pst_check("accel", &o, &c, 1), 1);
	T_EQ(c.state, PST_CHECK_OK);
	T_EQ(gaudi_state().held, held); /* the dma-buf was closed before the memory was freed */
	T_CHECK(strstr(c.text, "4096 bytes") || strstr(c.text, "65536 bytes"));
	(void)gs.fail("hlthunk_open:1:16");
	T_EQ(pst_check("accel", &o, &c, 1), 1);
	T_EQ(c.state, PST_CHECK_UNKNOWN);
	T_EQ(c.err, EBUSY);
	T_CHECK(strstr(c.text, "fuser"));
	T_CHECK(gs.fail(NULL));
	(void)gs.fail("hlthunk_device_mapped_memory_export_dmabuf_fd:1:22");
	T_EQ(pst_check("accel", &o, &c, 1), 1);
	T_EQ(c.state, PST_CHECK_MISSING);
	T_CHECK(strstr(c.text, "large BAR"));
	T_CHECK(gs.fail(NULL));
	m = gaudi("own", LEN);
	T_EQ(pst_check("accel", &o, &c, 1), 1); /* also works while this process has memory */
	T_EQ(c.state, PST_CHECK_OK);
	pst_mem_free(m);
	quiet();
}

int main(int argc, char **argv)
{
	self = argv[0];
	gaudi_stub_find();
	if (argc == 2)
		return receives(atoi(argv[1]));
	rig_init();
	gaudi_sys_new("GAUDI2\n");
	(void)gaudi_synapse_find();
	RIG_RUN_BACKENDS(nobody_copies_own_memory);
	RIG_RUN1(another_process_attaches);
	RIG_RUN1(a_network_card_reaches_it);
	RIG_RUN1(registrations_end_before_the_memory);
	RIG_RUN1(without_dmabufs_it_is_said);
	RIG_RUN1(the_doctor_tells);
	RIG_RUN_BACKENDS(synapse_stages);
	RIG_RUN_BACKENDS(a_reset_ends_requests);
	gaudi_sys_done();
	return rig_done();
}
