/* SPDX-License-Identifier: MIT */
/*
 * Imported dma-bufs as memory of requests to a storage service by RDMA.  The exporter is a stub,
 * whose name decides whether network cards may store into the buffer.
 */
#include "rdma_rig.h"

#include "dmabuf.h"

#define RW (PST_RIGHT_READ | PST_RIGHT_WRITE)
#define WINDOW PST_PATH_BIT(PST_PATH_WINDOW)

static const char *exporter = "udmabuf"; /* name of the driver that exports the buffers */

/* Replace what the kernel tells about the descriptor of a buffer. */
DMABUF_SEEN FILE *fopen(const char *path, const char *mode)
{
	static char text[64];
	void *fn = dmabuf_libc("fopen64");
	FILE *(*real)(const char *, const char *);
	int fd;

	memcpy(&real, &fn, sizeof(fn));
	if (sscanf(path, "/proc/self/fdinfo/%d", &fd) != 1 || dmabuf_index(fd) < 0)
		return real(path, mode);
	(void)snprintf(text, sizeof(text), "size:\t%u\nexp_name:\t%s\n", (unsigned)LEN, exporter);
	return fmemopen(text, strlen(text), "r");
}

/* Import a buffer of LEN bytes.  *ret_idx is its index in dmabufs. */
static struct pst_mem *import(unsigned *ret_idx)
{
	struct pst_mem *m = NULL;
	struct pst_grant g = {
		.sz = sizeof(g),
		.kind = PST_KIND_DMABUF,
		.rights = RW,
		.size = LEN,
		.len = LEN,
		.fd = dmabuf_stub(LEN),
	};

	needs_stub();
	*ret_idx = (unsigned)dmabuf_index(g.fd);
	T_OK(pst_mem_import(&g, &m));
	pst_grant_done(&g);
	return m;
}

static struct pst_file *begin(void)
{
	rig_make(rig_path("data"), SEED, LEN);
	server_start("--rdma", NULL);
	return rig_open(url("data"), RIG_RW);
}

static void end(struct pst_file *f, struct pst_mem *m)
{
	T_CHECK(stub_now().mrs <= 1); /* only the registration of the reply buffers is left */
	(void)pst_file_close(f);
	(void)pst_mem_free(m);
	server_end(SIGTERM);
	T_CHECK(!dmabufs.misused);
}

/* Read and write len bytes at off of the file and of the memory, and compare them.  The completion
 * of both has these paths and this reason. */
static void both_ways(struct pst_file *f, struct pst_mem *m, uint64_t off, uint64_t len,
		      uint32_t paths, uint32_t why)
{
	char *got = malloc(len);
	struct pst_done d;

	T_CHECK(got);
	rig_mem_fill(m, 0, LEN, 1, 0);
	d = rig_read(f, m, off, off, len);
	T_EQ(d.res, len);
	T_EQ(d.paths, paths);
	T_EQ(d.why, why);
	T_EQ(rig_mem_differs(m, off, len, SEED, off), len);
	/* Memory outside of the request is unchanged. */
	T_EQ(rig_mem_differs(m, 0, off, 1, 0), off);
	T_EQ(rig_mem_differs(m, off + len, LEN - off - len, 1, off + len), LEN - off - len);
	rig_mem_fill(m, off, len, 50, off);
	d = rig_write(f, m, off, off, len);
	T_EQ(d.res, len);
	T_EQ(d.paths, paths);
	T_EQ(d.why, why);
	T_EQ(rig_slurp(rig_path("data"), off, got, len), len);
	T_EQ(t_differs(got, 50, off, len), len);
	free(got);
	rig_make(rig_path("data"), SEED, LEN);
}

/* The card moves the bytes of ordinary memory, and no CPU uses the buffer. */
static void the_card_moves(void)
{
	static const struct {
		uint64_t off, len;
	} of[] = { { 0, 65536 }, { 4097, PIECE + 1 }, { 0, LEN }, { 123457, PART } };
	uint64_t registered;
	struct pst_file *f;
	struct pst_done d;
	unsigned i, ops;
	struct pst_mem *m = import(&i);

	f = begin();
	for (i = 0; i < RIG_NR(of); i++) {
		registered = stub_now().dmabufs;
		ops = (unsigned)((of[i].len + PART - 1) / PART);
		both_ways(f, m, of[i].off, of[i].len, RDMA, PST_WHY_NONE);
		T_EQ(stub_now().dmabufs - registered, 2 * ops);
	}
	dmabufs.starts = 0;
	T_EQ(rig_read(f, m, 0, 0, LEN).paths, RDMA);
	T_EQ(rig_write(f, m, 0, 0, LEN).paths, RDMA);
	T_EQ(strictly(f, m, false, LEN, PST_PATH_RDMA, &d), LEN);
	T_EQ(strictly(f, m, true, LEN, PST_PATH_RDMA, &d), LEN);
	T_EQ(d.paths, RDMA);
	T_EQ(dmabufs.starts, 0);
	/* The CPU moves small pieces, and those of requests that list its path. */
	d = rig_read(f, m, 0, 0, 4096);
	T_EQ(d.res, 4096);
	T_EQ(d.paths, WINDOW | TCP);
	T_EQ(d.why, PST_WHY_NONE);
	T_CHECK(dmabufs.starts > 0);
	T_EQ(strictly(f, m, false, LEN, PST_PATH_WINDOW | PST_PATH_TCP << 4, &d), LEN);
	T_EQ(d.paths, WINDOW | TCP);
	end(f, m);
}

/* The memory of an accelerator may not be ordered: the CPU moves the bytes, with the reason. */
static void an_accelerators_memory(void)
{
	unsigned i;
	struct pst_mem *m;
	uint64_t registered;
	struct pst_file *f;
	struct pst_done d;
	char text[400];

	exporter = "amdgpu";
	m = import(&i);
	f = begin();
	registered = stub_now().dmabufs;
	both_ways(f, m, 4097, LEN / 2, WINDOW | TCP, PST_WHY_NO_RDMA);
	d = rig_read(f, m, 0, 0, LEN);
	T_EQ(d.detail, EOPNOTSUPP);
	T_CHECK(strstr(pst_why_text(d.why, d.detail, text, sizeof(text)), "dma-buf"));
	T_EQ(strictly(f, m, false, LEN, PST_PATH_RDMA, &d), -EOPNOTSUPP);
	T_EQ(d.why, PST_WHY_NO_RDMA);
	T_EQ(strictly(f, m, false, LEN, PST_PATH_RDMA | PST_PATH_TCP << 4, &d), -EOPNOTSUPP);
	T_EQ(strictly(f, m, false, 4096, PST_PATH_RDMA, &d), -EOPNOTSUPP); /* too short */
	T_EQ(d.why, PST_WHY_NO_PROVIDER);
	T_EQ(strictly(f, m, false, LEN, PST_PATH_TCP, &d), LEN);
	T_EQ(stub_now().dmabufs, registered);
	end(f, m);
	exporter = "udmabuf";
}

static void an_accelerators_memory_summed(void)
{
	by_network = true; /* the CPU sums each payload */
	an_accelerators_memory();
}

/* A device still uses the buffer.  The CPU waits for the device, but a network card would not, so
 * the CPU moves the bytes. */
static void a_buffer_in_use(void)
{
	unsigned i;
	struct pst_mem *m = import(&i);
	struct pst_file *f = begin();
	struct pst_done d;

	dmabufs.of[i].busy = 20;
	d = rig_read(f, m, 0, 0, LEN);
	T_EQ(d.res, LEN);
	T_EQ(d.paths, WINDOW | TCP);
	T_EQ(d.why, PST_WHY_NO_RDMA);
	T_EQ(dmabufs.of[i].busy, 0);
	T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
	both_ways(f, m, 0, LEN, RDMA, PST_WHY_NONE);
	end(f, m);
}

/* A card that registers no dma-bufs: the CPU moves the bytes.  The offset in the buffer is never
 * taken for an address of host memory. */
static void a_card_without_dmabufs(void)
{
	enum { AT = 0x200000 };
	void *host = mmap((void *)AT, PIECE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	unsigned i;
	struct pst_mem *m = import(&i);
	uint64_t registered;
	struct pst_file *f;
	struct pst_done d;

	T_CHECK(host == (void *)AT);
	t_fill(host, 3, 0, PIECE);
	T_EQ(setenv("STUB_IBVERBS_DMABUF", "95", 1), 0);
	f = begin();
	d = rig_read(f, m, AT, AT, PIECE);
	T_EQ(d.res, PIECE);
	T_EQ(d.paths, WINDOW | TCP);
	T_EQ(d.why, PST_WHY_NO_RDMA);
	T_EQ(d.detail, EOPNOTSUPP);
	T_EQ(rig_mem_differs(m, AT, PIECE, SEED, AT), PIECE);
	registered = stub_now().registered;
	both_ways(f, m, AT, PIECE, WINDOW | TCP, PST_WHY_NO_RDMA);
	both_ways(f, m, 0, LEN, WINDOW | TCP, PST_WHY_NO_RDMA);
	T_EQ(strictly(f, m, true, LEN, PST_PATH_RDMA, &d), -EOPNOTSUPP);
	T_EQ(stub_now().registered, registered);
	T_EQ(t_differs(host, 3, 0, PIECE), PIECE);
	T_EQ(unsetenv("STUB_IBVERBS_DMABUF"), 0);
	T_EQ(munmap(host, PIECE), 0);
	end(f, m);
}

/* The card refuses a registration in the middle of a request. */
static void a_refused_registration(void)
{
	unsigned i;

	for (unsigned n = 0; n < 4; n++) {
		struct pst_mem *m = import(&i);
		struct pst_file *f = begin();
		struct pst_done d;
		char *got = malloc(LEN);

		T_CHECK(got);
		/* Open the device, whose test registers a dma-buf. */
		T_EQ(rig_read(f, m, 0, 0, 65536).paths, RDMA);
		rig_mem_fill(m, 0, LEN, 60, 0);
		stub.fail(n / 2 ? "ibv_reg_dmabuf_mr:2:22" : "ibv_reg_dmabuf_mr:1:22");
		d = n % 2 ? rig_write(f, m, 0, 0, LEN) : rig_read(f, m, 0, 0, LEN);
		T_EQ(d.res, LEN);
		T_EQ(d.paths, WINDOW | TCP);
		T_EQ(d.why, PST_WHY_NO_RDMA);
		T_EQ(rig_slurp(rig_path("data"), 0, got, LEN), LEN);
		T_EQ(t_differs(got, n % 2 ? 60 : SEED, 0, LEN), LEN);
		T_EQ(rig_mem_differs(m, 0, LEN, n % 2 ? 60 : SEED, 0), LEN);
		free(got);
		end(f, m);
	}
}

int main(void)
{
	rdma_begin();
	RUN(the_card_moves, "host");
	RUN(an_accelerators_memory, "host");
	RUN(an_accelerators_memory_summed, "host");
	RUN(a_buffer_in_use, "host");
	RUN(a_card_without_dmabufs, "host");
	RUN(a_refused_registration, "host");
	return rig_done();
}
