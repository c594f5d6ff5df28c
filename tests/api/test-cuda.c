/* SPDX-License-Identifier: MIT */
/*
 * CUDA memory as programs see it: requests through queues, grants between processes, several
 * devices.  Runs on the stub that PST_LIBCUDA names or on the machine's driver.
 */
#include <sys/socket.h>
#include <sys/wait.h>

#include "fusefs.h"
#include "rig.h"

#define PIECES 200u /* pieces in one slot: too many to be copied one by one */
#define FILE_LEN (RIG_MIB(9) + 77)

static const char *self;

static void found(void)
{
	struct pst_device d = { .sz = sizeof(d) };
	struct pst_device all[16];
	char text[PST_DEVICE_TEXT_MAX];
	int nr, cuda = 0;

	for (unsigned i = 0; i < RIG_NR(all); i++)
		all[i].sz = sizeof(all[i]);
	nr = pst_device_list(all, RIG_NR(all));
	T_CHECK(nr > 1 && nr <= (int)RIG_NR(all));
	for (int i = 0; i < nr; i++)
		cuda += all[i].kind == PST_KIND_CUDA;
	T_CHECK(cuda > 0);
	T_EQ(all[0].kind, PST_KIND_HOST);
	T_OK(pst_device_find("cuda", &d));
	T_CHECK(!strcmp(d.name, "cuda:0"));
	T_EQ(pst_device_find("cuda:77", &d), -ENODEV);
	T_CHECK(pst_device_text("cuda:0", text, sizeof(text)) > 0);
	T_CHECK(strstr(text, "driver: ") && strstr(text, "kernel module: "));
	T_EQ(pst_device_text("cuda:77", text, sizeof(text)), -ENODEV);
}

/* Write a file from device memory, read it back to another allocation, compare. */
static void there_and_back(void)
{
	struct pst_mem *a = rig_alloc(rig_dev, FILE_LEN), *b = rig_alloc(rig_dev, FILE_LEN + 100);
	struct pst_file *f = rig_open(rig_path("data"), RIG_NEW);
	struct pst_mem_info info = { .sz = sizeof(info) };
	struct pst_done d;

	T_OK(pst_mem_info(a, &info));
	T_EQ(info.kind, PST_KIND_CUDA);
	T_CHECK(!strcmp(info.device, rig_dev) && !pst_mem_ptr(a));
	T_OK(pst_mem_sync(a));
	rig_mem_fill(a, 0, FILE_LEN, 5, 0);
	rig_mem_fill(b, 0, FILE_LEN + 100, 6, 0);

	d = rig_write(f, a, 0, 0, FILE_LEN);
	rig_show(&d);
	T_EQ(d.res, (int64_t)FILE_LEN);
	T_CHECK(d.paths & PST_PATH_BIT(PST_PATH_STAGED));
	T_EQ(rig_sync(f).res, 0);
	d = rig_read(f, b, 0, 50, FILE_LEN);
	rig_show(&d);
	T_EQ(d.res, (int64_t)FILE_LEN);
	T_EQ(rig_mem_differs(b, 50, FILE_LEN, 5, 0), FILE_LEN);
	T_EQ(rig_mem_differs(b, 0, 50, 6, 0), 50);
	T_EQ(rig_mem_differs(b, 50 + FILE_LEN, 50, 6, 50 + FILE_LEN), 50);
	pst_file_close(f);
	pst_mem_free(a);
	pst_mem_free(b);
}

/* Read 1,500 pieces, which are in reverse order in memory, by one request with a checksum. */
static void block_table(void)
{
	enum { NR = 1500, LEN = 4000 };
	static struct pst_seg segs[NR];
	struct pst_mem *m = rig_alloc(rig_dev, (uint64_t)NR * 5000);
	struct pst_file *f;
	struct pst_io io = {
		.op = PST_OP_READ, .flags = PST_IO_CRC32C, .mem = m, .segs = segs, .nr_segs = NR
	};
	static uint8_t want[NR * LEN];
	struct pst_done d;

	rig_make(rig_path("table"), 9, (uint64_t)NR * LEN);
	io.file = f = rig_open(rig_path("table"), RIG_R);
	for (unsigned i = 0; i < NR; i++)
		segs[i] = (struct pst_seg){ .file_off = (uint64_t)i * LEN,
					    .mem_off = (uint64_t)(NR - 1 - i) * 5000 + i % 16,
					    .len = LEN };
	d = rig_do(rig_q, &io);
	rig_show(&d);
	T_EQ(d.res, NR * LEN);
	t_fill(want, 9, 0, sizeof(want));
	T_EQ(d.crc32c, rig_crc32c(0, want, sizeof(want)));
	for (unsigned i = 0; i < NR; i += 37)
		T_EQ(rig_mem_differs(m, segs[i].mem_off, LEN, 9, segs[i].file_off), LEN);
	pst_file_close(f);
	pst_mem_free(m);
}

/* Wrap the program's own memory by address. The program may free it afterwards. */
static void wraps(void)
{
	struct pst_mem *a = rig_alloc(rig_dev, 100000), *w = NULL;
	struct pst_mem_info info = { .sz = sizeof(info) }, own = { .sz = sizeof(own) };

	T_OK(pst_mem_info(a, &own));
	T_OK(pst_mem_wrap(own.addr + 1000, 500, NULL, &w));
	T_OK(pst_mem_info(w, &info));
	T_EQ(info.kind, PST_KIND_CUDA);
	T_EQ(info.base, own.base);
	T_EQ(info.buffer_id, own.buffer_id);
	rig_mem_fill(w, 0, 500, 3, 0);
	T_EQ(rig_mem_differs(a, 1000, 500, 3, 0), 500);
	pst_mem_free(w);
	pst_mem_free(a);
}

/* In the other process, read a file into the parent's memory. */
static int child(int sock, const char *path)
{
	struct pst_grant g = { .sz = sizeof(g) };
	struct pst_queue *q = NULL;
	struct pst_mem *m = NULL;
	struct pst_file *f = NULL;
	struct pst_done d = { .res = -1 };
	struct pst_io io = { .op = PST_OP_READ, .len = 100000 };
	char ok;

	if (pst_grant_recv(sock, &g, t_hang()) == 0 && pst_mem_import(&g, &m) == 0 &&
	    pst_file_open(path, PST_FILE_READ, NULL, &f) == 0 && pst_queue_new(NULL, &q) == 0) {
		io.mem = m;
		io.file = f;
		if (pst_queue_prep(q, &io) == 0 && pst_queue_submit(q) == 1)
			(void)pst_queue_reap(q, &d, 1, 1, t_hang());
	}
	pst_grant_done(&g);
	ok = d.res == 100000;
	if (!ok)
		(void)fprintf(stderr, "# child: %s\n", pst_error_text());
	pst_queue_free(q);
	pst_file_close(f);
	pst_mem_free(m);
	return write(sock, &ok, 1) != 1;
}

static void grants(void)
{
	struct pst_mem_opts o = { .sz = sizeof(o), .flags = PST_MEM_SHARED };
	struct pst_grant g = { .sz = sizeof(g) };
	struct pst_mem *m = NULL;
	char arg[16], ok = 0;
	int sv[2], status;
	pid_t pid;

	rig_make(rig_path("shared"), 4, 100000);
	T_OK(pst_mem_alloc(rig_dev, 150000, &o, &m));
	rig_mem_fill(m, 0, 150000, 6, 0);
	T_OK(pst_mem_export(m, 20000, 110000, PST_RIGHT_READ | PST_RIGHT_WRITE, &g));
	T_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
	(void)snprintf(arg, sizeof(arg), "%d", sv[1]);
	pid = fork();
	if (!pid) {
		(void)execl(self, self, arg, rig_path("shared"), (char *)NULL);
		_exit(127);
	}
	(void)close(sv[1]);
	T_OK(pst_grant_send(sv[0], &g, t_hang()));
	pst_grant_done(&g);
	T_EQ(read(sv[0], &ok, 1), 1);
	(void)close(sv[0]);
	T_CHECK(waitpid(pid, &status, 0) == pid);
	T_CHECK(ok);
	T_EQ(rig_mem_differs(m, 20000, 100000, 4, 0), 100000);
	T_EQ(rig_mem_differs(m, 0, 20000, 6, 0), 20000);
	T_EQ(rig_mem_differs(m, 120000, 30000, 6, 120000), 30000);
	pst_mem_free(m);
}

static void two_devices(void)
{
	struct pst_device d = { .sz = sizeof(d) };
	struct pst_mem *m[2];
	struct pst_file *f;
	struct pst_done done[2];

	if (pst_device_find("cuda:1", &d) < 0)
		T_SKIP("%s", pst_error_text());
	rig_make(rig_path("both"), 8, FILE_LEN);
	f = rig_open(rig_path("both"), RIG_R);
	m[0] = rig_alloc("cuda:0", FILE_LEN);
	m[1] = rig_alloc("cuda:1", FILE_LEN);
	for (unsigned i = 0; i < 2; i++) {
		struct pst_io io = rig_io(PST_OP_READ, f, m[i], 0, 0, FILE_LEN);

		T_OK(pst_queue_prep(rig_q, &io));
	}
	T_EQ(pst_queue_submit(rig_q), 2);
	T_EQ(pst_queue_reap(rig_q, done, 2, 2, t_in_ms(RIG_WAIT_MS)), 2);
	for (unsigned i = 0; i < 2; i++) {
		T_EQ(done[i].res, (int64_t)FILE_LEN);
		T_EQ(rig_mem_differs(m[i], 0, FILE_LEN, 8, 0), FILE_LEN);
		pst_mem_free(m[i]);
	}
	pst_file_close(f);
}

static void no_cuda(void)
{
	T_SKIP("%s", pst_error_text());
}

static struct fusefs fs;

static void stop_fuse(void)
{
	fusefs_stop(&fs);
}

/* Cancel reads and free their memory; the file system answers only afterwards. */
static void freed_under_a_read(void)
{
	struct pst_seg segs[PIECES];
	uint64_t until = t_hang();
	struct pst_file *hang;
	char path[200];

	fusefs_stop(&fs);
	if (fusefs_start(&fs, rig_dir) < 0)
		T_SKIP("%s", fs.why);
	(void)snprintf(path, sizeof(path), "%s/hang", fs.dir);
	hang = rig_open(path, RIG_R);
	for (unsigned i = 0; i < PIECES; i++)
		segs[i] = (struct pst_seg){ .file_off = 8192 * i,
					    .mem_off = 4096 * (PIECES - i),
					    .len = 1024,
					    .count = 1 };
	for (unsigned round = 0; round < 3; round++) {
		struct pst_mem *m = rig_alloc(rig_dev, RIG_MIB(1));
		struct pst_io io = rig_io(PST_OP_READ, hang, m, 0, 0, 0);
		struct pst_done d;

		io.segs = segs;
		io.nr_segs = PIECES;
		io.user_data = 1;
		io.deadline_ns = PST_NO_DEADLINE;
		T_OK(pst_queue_prep(rig_q, &io));
		T_EQ(pst_queue_submit(rig_q), 1);
		while (!fusefs_waiting(&fs) && t_now() < until)
			(void)usleep(1000);
		T_EQ(pst_queue_cancel(rig_q, 1), 1);
		d = rig_reap1(rig_q);
		T_EQ(d.res, -ECANCELED);
		T_OK(pst_mem_drain(m, until));
		m = pst_mem_free(m);
		while (rig_stats(rig_q).busy && t_now() < until) {
			fusefs_release(&fs);
			(void)usleep(1000);
		}
		T_EQ(rig_stats(rig_q).busy, 0);
	}
	hang = pst_file_close(hang);
	fusefs_stop(&fs);
}

static void run(const char *name, void (*fn)(void))
{
	static const char *const backends[] = { "", "uring", "threads" };
	char full[100];

	for (rig_backend = PST_BACKEND_URING; rig_backend <= PST_BACKEND_THREADS; rig_backend++) {
		rig_dev = "cuda:0";
		rig_last = rig_q;
		rig_q = NULL;
		rig_fn = fn;
		(void)snprintf(full, sizeof(full), "%s %s", name, backends[rig_backend]);
		t_run(full, rig_case);
	}
}

#define RUN(fn) run(#fn, fn)

int main(int argc, char **argv)
{
	struct pst_device d = { .sz = sizeof(d) };
	struct pst_mem *keep[2] = { NULL, NULL };

	self = argv[0];
	if (argc == 3)
		return child(atoi(argv[1]), argv[2]);
	rig_init();
	(void)atexit(stop_fuse);
	if (pst_device_find("cuda:0", &d) < 0) {
		T_RUN(no_cuda);
		return rig_done();
	}
	/*
	 * Start the threads that exist anyway before counting: those of a real driver with a
	 * context, and those of the thread sanitizer.
	 */
	if (pst_mem_alloc("cuda:0", 1, NULL, &keep[0]) == 0)
		(void)pst_mem_copy_in(keep[0], 0, "", 1);
	(void)pst_mem_alloc("cuda:1", 1, NULL, &keep[1]);
	rig_tasks = rig_count_tasks();

	T_RUN(found);
	RUN(there_and_back);
	RUN(block_table);
	RUN(wraps);
	RUN(grants);
	RUN(two_devices);
	RUN(freed_under_a_read);
	pst_mem_free(keep[0]);
	pst_mem_free(keep[1]);
	return rig_done();
}
