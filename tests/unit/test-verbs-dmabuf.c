/* SPDX-License-Identifier: MIT */
/*
 * Dma-bufs of other drivers as memory of RDMA: those of the kernel, those of a PCI BAR, and a stub.
 * A device is joined to itself, and what it wrote is compared by the CPU.  lab/guest-rdma-dmabuf
 * runs this program on a rdma_rxe that registers dma-bufs.
 */
#include "verbs_rig.h"

#include "core/queue/object.h"
#include "dmabuf.h"

#define LEN (4u << 20)

static const struct dmabuf_exporter *exporter; /* exporter of the running case */

static struct pst_mem *mem_of(uint32_t rights)
{
	struct pst_grant g = {
		.sz = sizeof(g),
		.kind = PST_KIND_DMABUF,
		.rights = rights,
		.size = LEN,
		.len = LEN,
		.fd = exporter->make(LEN),
	};
	struct pst_mem *m = NULL;

	T_OK(pst_mem_import(&g, &m));
	pst_grant_done(&g);
	return m;
}

static struct {
	struct endpoint *a, *b;
	uint8_t *host;
	struct mem_reg *local;
} pair;

static void pair_join(void)
{
	struct endpoint_opts o = { .send_slots = 4, .recv_slots = 4, .deadline_ms = 10000 };

	endpoint_free(pair.a);
	endpoint_free(pair.b);
	T_OK(endpoint_new(rig.domain, &o, &pair.a));
	T_OK(endpoint_new(rig.domain, &o, &pair.b));
	rig_join(pair.a, pair.b);
}

static void begin(void)
{
	int err;

	/* Skip the case if there is no such exporter, before anything is open. */
	(void)close(exporter->make(LEN));
	rig_open();
	err = rig.nic->dmabuf_err;
	if (err)
		rig_close();
	if (err)
		T_SKIP("an RDMA device that registers dma-bufs");
	/* A real device refuses the stub exporter's dma-bufs. */
	if (!rig.is_stub && !strcmp(exporter->name, "stub")) {
		rig_close();
		T_SKIP("faults on demand, which the double of libibverbs has");
	}
	pair.host = aligned_alloc(4096, LEN);
	T_CHECK(pair.host);
	T_OK(mr_reg_host(rig.domain, pair.host, LEN, 0, &pair.local));
	pair_join();
}

static void end(void)
{
	endpoint_free(TAKE_PTR(pair.a));
	endpoint_free(TAKE_PTR(pair.b));
	mr_dereg(rig.domain, pair.local);
	free(pair.host);
	rig_close();
}

/* Move bytes between the host's memory at off and an address of the key. */
static int move(enum endpoint_op op, const struct mem_reg *reg, uint64_t at, uint64_t off,
		uint32_t len)
{
	struct endpoint_io io = {
		.op = op,
		.len = len,
		.local = pair.local->addr + off,
		.lkey = pair.local->lkey,
		.remote = reg->addr + at,
		.rkey = reg->rkey,
	};
	struct endpoint_done d;

	T_EQ(endpoint_post(pair.a, &io, 1), 1);
	rig_wait(pair.a, &d, 1);
	return d.res;
}

static int reg_of(struct pst_mem *m, uint64_t off, uint64_t len, uint32_t rights,
		  struct mem_reg **ret)
{
	return mr_registrar_ops.reg(&rig.domain->reg, m->region->alloc, off, len, rights, ret);
}

static const struct {
	uint64_t off;
	uint32_t len;
} ranges[] = { { 0, LEN }, { 0, 1 }, { 4096, 65536 }, { 12345, 300001 }, { LEN - 777, 777 } };

static void bytes_go_there_and_back(void)
{
	struct pst_mem *m;
	char *seen;

	begin();
	m = mem_of(PST_RIGHT_READ | PST_RIGHT_WRITE);
	seen = malloc(LEN);
	T_CHECK(seen);
	for (unsigned i = 0; i < ARRAY_SIZE(ranges); i++) {
		uint64_t off = ranges[i].off, len = ranges[i].len;
		struct mem_reg *reg;

		t_fill((char *)pair.host, 1, 0, LEN);
		T_OK(pst_mem_copy_in(m, 0, pair.host, LEN));
		T_OK(reg_of(m, off, len, MEM_REG_REMOTE, &reg));
		T_EQ(reg->how, MEM_REG_DMABUF);
		t_fill((char *)pair.host, 10 + i, 0, LEN);
		T_EQ(move(ENDPOINT_WRITE, reg, 0, off, (uint32_t)len), (int)len);
		T_OK(pst_mem_copy_out(m, 0, seen, LEN));
		T_EQ(t_differs(seen + off, 10 + i, off, len), len);
		T_EQ(t_differs(seen, 1, 0, off), off);
		T_EQ(t_differs(seen + off + len, 1, off + len, LEN - off - len), LEN - off - len);
		/* The device reads what the CPU stores. */
		t_fill(seen, 50 + i, 0, LEN);
		T_OK(pst_mem_copy_in(m, 0, seen, LEN));
		memset(pair.host, 0, LEN);
		T_EQ(move(ENDPOINT_READ, reg, 0, off, (uint32_t)len), (int)len);
		T_EQ(t_differs((char *)pair.host + off, 50 + i, off, len), len);
		mr_registrar_ops.dereg(&rig.domain->reg, reg);
	}
	pst_mem_free(m);
	free(seen);
	end();
}

/* A key reaches exactly its bytes, in its direction, and nothing after its end. */
static void a_key_is_kept_to(void)
{
	struct mem_reg *reg, gone;
	struct pst_mem *m;

	begin();
	m = mem_of(PST_RIGHT_READ | PST_RIGHT_WRITE);
	T_OK(reg_of(m, 8192, 5000, MEM_REG_REMOTE_WRITE, &reg));
	T_EQ(move(ENDPOINT_WRITE, reg, 1, 0, 5000), -EACCES);
	pair_join();
	T_EQ(move(ENDPOINT_WRITE, reg, (uint64_t)-1, 0, 1), -EACCES);
	pair_join();
	T_EQ(move(ENDPOINT_READ, reg, 0, 0, 1), -EACCES);
	pair_join();
	T_EQ(move(ENDPOINT_WRITE, reg, 0, 0, 5000), 5000);
	gone = *reg;
	mr_registrar_ops.dereg(&rig.domain->reg, reg);
	T_EQ(move(ENDPOINT_WRITE, &gone, 0, 0, 1), -EACCES);
	pst_mem_free(m);
	m = mem_of(PST_RIGHT_READ);
	T_EQ(reg_of(m, 0, 4096, MEM_REG_REMOTE_WRITE, &reg), -EACCES);
	T_OK(reg_of(m, 0, 4096, MEM_REG_REMOTE_READ, &reg));
	pair_join();
	T_EQ(move(ENDPOINT_READ, reg, 0, 0, 4096), 4096);
	mr_registrar_ops.dereg(&rig.domain->reg, reg);
	pst_mem_free(m);
	end();
}

/* The registration keeps the buffer when its memory's handle and descriptor are gone. */
static void a_registration_outlives_its_descriptor(void)
{
	struct pst_mem *m;
	struct mem_reg *reg;
	int fd;

	begin();
	m = mem_of(PST_RIGHT_READ | PST_RIGHT_WRITE);
	T_OK(reg_of(m, 0, LEN, MEM_REG_REMOTE, &reg));
	/* Another buffer may get the numbers of descriptors that were closed. */
	fd = dmabuf_memfd(LEN);
	t_fill((char *)pair.host, 3, 0, LEN);
	T_EQ(move(ENDPOINT_WRITE, reg, 0, 0, LEN), (int)LEN);
	memset(pair.host, 0, LEN);
	T_EQ(move(ENDPOINT_READ, reg, 0, 0, LEN), (int)LEN);
	T_EQ(t_differs((char *)pair.host, 3, 0, LEN), LEN);
	(void)close(fd);
	mr_registrar_ops.dereg(&rig.domain->reg, reg);
	pst_mem_free(m);
	end();
}

static void run(const char *what, void (*fn)(void))
{
	char name[80];

	(void)snprintf(name, sizeof(name), "%s %s", what, exporter->name);
	t_run(name, fn);
}

int main(void)
{
	for (unsigned i = 0; i < ARRAY_SIZE(dmabuf_exporters); i++) {
		exporter = &dmabuf_exporters[i];
		run("bytes_go_there_and_back", bytes_go_there_and_back);
		run("a_key_is_kept_to", a_key_is_kept_to);
		run("a_registration_outlives_its_descriptor",
		    a_registration_outlives_its_descriptor);
	}
	return t_done();
}
