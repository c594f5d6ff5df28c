/* SPDX-License-Identifier: MIT */
/* Files of a storage service by RDMA: which bytes move, by which path, and how many operations. */
#include "rdma_rig.h"

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
		(rig_soft() ? 2 : 1)); /* only registrations of reply buffers are left */
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

int main(void)
{
	rdma_begin();
	RUN(moves, "host");
	RUN(moves, "soft:0");
	RUN(memory_without_a_way, "soft:0");
	RUN(a_model_holds, "host");
	RUN(a_model_holds, "soft:0");
	RUN(without_rdma, "host");
	RUN(policy_decides, "host");
	RUN(policy_decides, "soft:0");
	RUN(memory_of_the_program, "host");
	RUN(sums_for_the_program, "host");
	RUN(sums_for_the_program, "soft:0");
	RUN(sums_of_each_request, "host");
	RUN(sums_of_each_request, "soft:0");
	RUN(clients_are_counted, "host");
	RUN(without_a_device, "host");
	return rig_done();
}
