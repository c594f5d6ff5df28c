/* SPDX-License-Identifier: MIT */
/*
 * Memory that another driver exports as a dma-buf: import a descriptor, fill the buffer and read
 * it back, in this process and in another.  Descriptors that are no dma-buf are refused.
 */
#include <sys/socket.h>
#include <sys/wait.h>

#include "rig.h"

#include "core/queue/object.h"
#include "dmabuf.h"
#include "mem/dmabuf.h"
#include "mem/mem.h"

#define LEN RIG_MIB(4)
#define SEED 7
#define RW (PST_RIGHT_READ | PST_RIGHT_WRITE)

static const struct dmabuf_exporter *exporter; /* exporter of the running case */

static struct pst_grant grant_of(int fd, uint64_t len)
{
	return (struct pst_grant){
		.sz = sizeof(struct pst_grant),
		.kind = PST_KIND_DMABUF,
		.rights = RW,
		.size = len,
		.len = len,
		.fd = fd,
	};
}

/* Import a new buffer, and close its descriptor as a program may. */
static struct pst_mem *mem_new(uint64_t len)
{
	struct pst_mem *m = NULL;
	struct pst_grant g = grant_of(exporter->make(len), len);

	T_OK(pst_mem_import(&g, &m));
	pst_grant_done(&g);
	dmabufs.starts = dmabufs.ends = 0;
	dmabufs.flags = 0;
	dmabufs.misused = dmabufs.mixed = false;
	return m;
}

/* Check that the exporter was told of the beginning and the end of each use by the CPU. */
static void told(uint64_t flags)
{
	T_CHECK(!dmabufs.misused);
	T_CHECK(dmabufs.starts > 0);
	T_EQ(dmabufs.starts, dmabufs.ends);
	T_EQ(dmabufs.flags, flags);
	dmabufs.flags = 0;
}

static void copies(void)
{
	struct pst_mem_info info = { .sz = sizeof(info) };
	struct pst_mem *m = mem_new(LEN);
	char buf[8];

	T_OK(pst_mem_info(m, &info));
	T_EQ(info.kind, PST_KIND_DMABUF);
	T_EQ(info.size, LEN);
	T_CHECK(!pst_mem_ptr(m));
	rig_mem_fill(m, 12345, LEN - 23456, SEED, 12345);
	told(DMA_BUF_SYNC_WRITE);
	T_EQ(rig_mem_differs(m, 12345, LEN - 23456, SEED, 12345), LEN - 23456);
	told(DMA_BUF_SYNC_READ);
	T_EQ(pst_mem_copy_in(m, LEN - 4, buf, 8), -ERANGE);
	T_EQ(pst_mem_copy_in(m, 0, (void *)8, 8), -EFAULT); /* an invalid pointer of the program */
	dmabufs.sync_err = EIO;
	T_EQ(pst_mem_copy_out(m, 0, buf, 8), -EIO);
	T_CHECK(strstr(pst_error_text(), "exporter"));
	dmabufs.sync_err = 0;
	pst_mem_free(m);
}

static void reads(void)
{
	static const uint64_t lens[] = { 1, 4096, 65536, LEN - 12288 };
	struct pst_mem *m = mem_new(LEN);
	struct pst_file *f;
	struct pst_done d;

	rig_make(rig_path("data"), SEED, LEN);
	f = rig_open(rig_path("data"), RIG_R);
	for (unsigned i = 0; i < 2 * RIG_NR(lens); i++) {
		uint64_t len = lens[i / 2], at = i & 4 ? 4096 : 4099;

		if (i & 1)
			rig_cold(rig_path("data"));
		d = rig_read(f, m, at, 8192 - 5, len);
		T_EQ(d.res, len);
		T_CHECK(d.paths & PST_PATH_BIT(PST_PATH_WINDOW));
		T_CHECK(!(d.paths & PST_PATH_BIT(PST_PATH_STAGED)));
		told(DMA_BUF_SYNC_WRITE);
		T_EQ(rig_mem_differs(m, 8192 - 5, len, SEED, at), len);
		told(DMA_BUF_SYNC_READ);
	}
	pst_file_close(f);
	pst_mem_free(m);
}

static void writes(void)
{
	static const uint64_t lens[] = { 5, 4096, 65536, 65537, LEN };
	struct pst_mem *m = mem_new(LEN);
	struct pst_file *f = rig_open(rig_path("out"), RIG_NEW);
	char *buf = malloc(LEN);
	struct pst_done d;

	T_CHECK(buf);
	rig_mem_fill(m, 0, LEN, SEED, 0);
	told(DMA_BUF_SYNC_WRITE);
	for (unsigned i = 0; i < RIG_NR(lens); i++) {
		d = rig_write(f, m, i * LEN, 0, lens[i]);
		T_EQ(d.res, lens[i]);
		T_CHECK(d.paths & PST_PATH_BIT(PST_PATH_WINDOW));
		told(DMA_BUF_SYNC_READ);
		T_EQ(rig_slurp(rig_path("out"), i * LEN, buf, lens[i]), lens[i]);
		T_EQ(t_differs(buf, SEED, 0, lens[i]), lens[i]);
	}
	free(buf);
	pst_file_close(f);
	pst_mem_free(m);
}

static void many(void)
{
	struct pst_mem *m = mem_new(LEN);
	struct pst_file *f, *out = rig_open(rig_path("out"), RIG_NEW);
	struct pst_done d[32];
	unsigned nr = 0;

	rig_make(rig_path("data"), SEED, LEN);
	rig_cold(rig_path("data"));
	f = rig_open(rig_path("data"), RIG_R);
	rig_mem_fill(m, LEN / 2, LEN / 2, SEED, LEN / 2);
	told(DMA_BUF_SYNC_WRITE);
	for (unsigned i = 0; i < 16; i++) {
		uint64_t at = i * (LEN / 32);
		struct pst_io r = rig_io(PST_OP_READ, f, m, at, at, LEN / 32);
		struct pst_io w = rig_io(PST_OP_WRITE, out, m, at, LEN / 2 + at, LEN / 32);

		T_OK(pst_queue_prep(rig_q, &r));
		T_OK(pst_queue_prep(rig_q, &w));
	}
	T_EQ(pst_queue_submit(rig_q), 32);
	while (nr < 32) {
		int n = pst_queue_reap(rig_q, d + nr, 1, 32 - nr, t_in_ms(RIG_WAIT_MS));

		T_CHECK(n > 0);
		for (int i = 0; i < n; i++)
			T_EQ(d[nr + (unsigned)i].res, LEN / 32);
		nr += (unsigned)n;
	}
	told(DMA_BUF_SYNC_RW);
	T_CHECK(dmabuf_excludes != ~0u || !dmabufs.mixed);
	T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
	pst_file_close(f);
	pst_file_close(out);
	T_CHECK(dmabuf_excludes != ~0u || !dmabufs.mixed);
	pst_mem_free(m);
}

/* Reads and writes of one buffer at the same time: each tells the exporter of its own use. */
static void many_at_once(void)
{
	many();
}

/*
 * Pretend that devices do not see the CPU's caches: reads wait for writes and writes for reads,
 * even within one queue.
 */
static void many_exclude(void)
{
	uint32_t before = dmabuf_excludes;

	dmabuf_excludes = ~0u;
	many();
	dmabuf_excludes = before;
}

/* A device uses the buffer: requests wait without blocking a thread, and end at their deadline. */
static void busy_device(void)
{
	int fd = exporter->make(LEN);
	struct pst_grant g = grant_of(fd, LEN);
	unsigned i = (unsigned)dmabuf_index(fd);
	struct pst_mem *m = NULL;
	struct pst_file *f, *out = rig_open(rig_path("out"), RIG_NEW);
	struct pst_io io;

	T_OK(pst_mem_import(&g, &m));
	rig_make(rig_path("data"), SEED, LEN);
	f = rig_open(rig_path("data"), RIG_R);
	dmabufs.of[i].busy = 100;
	T_EQ(rig_read(f, m, 0, 0, LEN).res, LEN);
	T_EQ(dmabufs.of[i].busy, 0);
	T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
	dmabufs.of[i].busy = 100;
	T_EQ(rig_write(out, m, 0, 0, 4096).res, 4096);
	T_EQ(dmabufs.of[i].busy, 0);
	dmabufs.of[i].busy = UINT32_MAX;
	io = rig_io(PST_OP_READ, f, m, 0, 0, LEN);
	io.deadline_ns = t_in_ms(20);
	T_EQ(rig_do(rig_q, &io).res, -ETIMEDOUT);
	dmabufs.of[i].busy = 0;
	pst_grant_done(&g);
	pst_file_close(f);
	pst_file_close(out);
	pst_mem_free(m);
}

/* Overlapping uses by one import, and by two imports of the same buffer. */
static void overlapping(void)
{
	struct pst_grant g = grant_of(exporter->make(LEN), LEN);
	struct pst_mem *m = NULL, *n = NULL;
	uint32_t before = dmabuf_excludes;
	const struct mem_alloc *a, *b;

	T_OK(pst_mem_import(&g, &m));
	T_OK(pst_mem_import(&g, &n));
	pst_grant_done(&g);
	a = m->region->alloc;
	b = n->region->alloc;
	dmabufs.starts = dmabufs.ends = 0;
	dmabufs.misused = dmabufs.mixed = false;
	T_OK(mem_cpu_begin(a, PST_RIGHT_READ, true));
	T_OK(mem_cpu_begin(b, PST_RIGHT_READ, true));
	T_EQ(dmabufs.starts, 2); /* a second start makes later stores of the device visible */
	mem_cpu_end(a, PST_RIGHT_READ);
	mem_cpu_end(b, PST_RIGHT_READ);
	dmabuf_excludes = ~0u;
	T_OK(mem_cpu_begin(a, PST_RIGHT_WRITE, true));
	T_OK(mem_cpu_begin(b, PST_RIGHT_WRITE, true));
	mem_cpu_end(a, PST_RIGHT_WRITE);
	T_EQ(dmabufs.ends, 3); /* the first write is written back before the second ends */
	T_EQ(mem_cpu_begin(a, PST_RIGHT_READ, true), -EAGAIN);
	mem_cpu_end(b, PST_RIGHT_WRITE);
	T_OK(mem_cpu_begin(a, PST_RIGHT_READ, true));
	T_EQ(mem_cpu_begin(b, PST_RIGHT_WRITE, false), -EAGAIN);
	mem_cpu_end(a, PST_RIGHT_READ);
	T_EQ(dmabufs.starts, dmabufs.ends);
	dmabuf_excludes = before;
	T_CHECK(!dmabufs.misused);
	pst_mem_free(m);
	pst_mem_free(n);
}

static void windows(void)
{
	struct pst_window_info info = { .sz = sizeof(info) };
	struct pst_window_opts o = { .sz = sizeof(o), .flags = PST_WINDOW_UNFENCED };
	struct pst_mem *m = mem_new(LEN);
	struct pst_window *w = NULL;
	char buf[100];

	T_OK(pst_window_open(m, 4000, 10000, &o, &w));
	T_OK(pst_window_info(w, &info));
	T_CHECK(!strcmp(info.backend, "dmabuf"));
	T_EQ(info.state, PST_STATE_POSSIBLE); /* no driver can copy the bytes for a comparison */
	t_fill(buf, SEED, 0, sizeof(buf));
	T_OK(pst_window_store(w, 9900, buf, sizeof(buf)));
	told(DMA_BUF_SYNC_WRITE);
	memset(buf, 0, sizeof(buf));
	T_OK(pst_window_load(w, 9900, buf, sizeof(buf)));
	told(DMA_BUF_SYNC_READ);
	T_EQ(t_differs(buf, SEED, 0, sizeof(buf)), sizeof(buf));
	T_EQ(rig_mem_differs(m, 13900, 100, SEED, 0), 100);
	pst_mem_free(m);
	T_EQ(pst_window_load(w, 0, buf, 1), 0); /* the window keeps the memory alive */
	pst_window_close(w);
}

/* ------------------------------------------------------------ other processes */

/* The other process, which runs this program again. */
static int receives(int sock, bool stub)
{
	struct pst_grant g = { .sz = sizeof(g), .fd = -1 };
	struct pst_mem *m = NULL;
	char *buf = malloc(LEN);

	if (!buf || pst_grant_recv(sock, &g, t_in_ms(RIG_WAIT_MS)) < 0)
		return 1;
	(void)dmabuf_add(g.fd, stub);
	if (g.kind != PST_KIND_DMABUF || pst_mem_import(&g, &m) < 0)
		return 2;
	pst_grant_done(&g);
	if (pst_mem_copy_out(m, 0, buf, LEN / 2) < 0 ||
	    t_differs(buf, SEED, LEN / 2, LEN / 2) != LEN / 2)
		return 3;
	t_fill(buf, SEED + 1, 0, LEN / 2);
	if (pst_mem_copy_in(m, 0, buf, LEN / 2) < 0)
		return 4;
	pst_mem_free(m);
	free(buf);
	return 0;
}

static pid_t receiver_start(int sock)
{
	pid_t pid = fork();
	char num[16];

	if (pid == 0) {
		(void)snprintf(num, sizeof(num), "%d", sock);
		(void)execl("/proc/self/exe", "test-dmabuf", num, exporter->name, (char *)NULL);
		_exit(99);
	}
	return pid;
}

static void a_grant_goes_on(void)
{
	struct pst_grant g = { .sz = sizeof(g), .fd = -1 }, less = g;
	struct pst_mem *m = mem_new(LEN), *back = NULL;
	int sock[2], status;
	pid_t pid;

	T_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sock), 0);
	rig_mem_fill(m, 0, LEN, SEED, 0);
	T_OK(pst_mem_export(m, LEN / 2, LEN / 2, RW, &g));
	T_EQ(g.size, LEN);
	T_OK(pst_mem_import(&g, &back));
	T_EQ(rig_mem_differs(back, 0, LEN / 2, SEED, LEN / 2), LEN / 2);
	/* A right that a grant leaves out cannot be regained. */
	T_OK(pst_mem_export(back, 0, 4096, PST_RIGHT_READ, &less));
	back = pst_mem_free(back);
	T_OK(pst_mem_import(&less, &back));
	T_EQ(pst_mem_copy_in(back, 0, "x", 1), -EACCES);
	pst_grant_done(&less);
	less.sz = sizeof(less);
	T_EQ(pst_mem_export(back, 0, 4096, RW, &less), -EACCES);
	back = pst_mem_free(back);
	T_OK(pst_grant_send(sock[0], &g, t_in_ms(RIG_WAIT_MS)));
	pst_grant_done(&g);
	pid = receiver_start(sock[1]);
	T_EQ(waitpid(pid, &status, 0), pid);
	T_EQ(status, 0);
	T_EQ(rig_mem_differs(m, LEN / 2, LEN / 2, SEED + 1, 0), LEN / 2);
	(void)close(sock[0]);
	(void)close(sock[1]);
	pst_mem_free(m);
}

/* ----------------------------------------------------------------- bad input */

static void refused(struct pst_grant g, int err, const char *says)
{
	unsigned fds = t_count_fds();
	struct pst_mem *m = NULL;

	T_EQ(pst_mem_import(&g, &m), err);
	if (!strstr(pst_error_text(), says))
		T_FAIL("\"%s\" says nothing of %s", pst_error_text(), says);
	T_CHECK(!m);
	T_EQ(t_count_fds(), fds);
}

static void bad_descriptors(void)
{
	int fd = exporter->make(LEN), other;
	struct pst_grant g = grant_of(fd, LEN), bad;
	struct pst_device dev = { .sz = sizeof(dev) };
	struct pst_mem *m = NULL;
	char name[64];

	bad = g, bad.size = 2 * LEN, bad.len = 2 * LEN;
	refused(bad, -EINVAL, "its dma-buf has 4194304");
	bad = g, bad.off = LEN, bad.len = 1;
	refused(bad, -EINVAL, "not inside");
	bad = g, bad.off = UINT64_MAX, bad.len = 2;
	refused(bad, -EINVAL, "not inside");
	bad = g, bad.fd = -1;
	refused(bad, -EINVAL, "no descriptor");
	bad = g, bad.ipc[3] = 1;
	refused(bad, -EINVAL, "vendor's handle");
	/* Close the descriptor, then open another file with the same number. */
	other = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	(void)close(other);
	bad = g, bad.fd = other;
	refused(bad, -EBADF, "not open");
	rig_make(rig_path("data"), SEED, 4096);
	T_EQ(open(rig_path("data"), O_RDWR | O_CLOEXEC), other);
	refused(bad, -EINVAL, "data");
	(void)close(other);
	bad.fd = dmabuf_memfd(LEN);
	refused(bad, -EINVAL, "no dma-buf");
	(void)close(bad.fd);
	bad.fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
	refused(bad, -EINVAL, "no dma-buf but /dev/zero");
	(void)close(bad.fd);
	/* This kind of memory cannot be allocated, and is not in the list of devices. */
	T_EQ(pst_mem_alloc("dmabuf:0", 4096, NULL, &m), -EOPNOTSUPP);
	T_OK(pst_device_find("dmabuf", &dev));
	for (int i = 0, nr = pst_device_list(NULL, 0); i < nr; i++) {
		struct pst_device all[16];

		for (unsigned k = 0; k < RIG_NR(all); k++)
			all[k].sz = sizeof(all[k]);
		T_CHECK(nr <= (int)RIG_NR(all));
		T_EQ(pst_device_list(all, RIG_NR(all)), nr);
		T_CHECK(all[i].kind != PST_KIND_DMABUF);
	}
	/* The unchanged grant is accepted. */
	T_OK(pst_mem_import(&g, &m));
	pst_mem_free(m);
	(void)snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	pst_grant_done(&g);
	T_EQ(access(name, F_OK), -1);
}

/* Memory that the CPU cannot map can be imported and granted, but not used by the CPU. */
static void no_cpu_reaches_it(void)
{
	struct pst_grant g = grant_of(dmabuf_stub(LEN), LEN), out = { .sz = sizeof(out), .fd = -1 };
	struct pst_path_info info = { .sz = sizeof(info) };
	struct pst_window *w = NULL;
	struct pst_mem *m = NULL;
	struct pst_file *f;
	struct pst_io io;
	char buf[16];

	dmabufs.of[dmabuf_index(g.fd)].no_mmap = true;
	T_OK(pst_mem_import(&g, &m));
	pst_grant_done(&g);
	T_EQ(pst_window_open(m, 0, LEN, NULL, &w), -EOPNOTSUPP);
	T_CHECK(strstr(pst_error_text(), "does not let the CPU map"));
	T_EQ(pst_mem_copy_in(m, 0, buf, sizeof(buf)), -EOPNOTSUPP);
	T_CHECK(strstr(pst_error_text(), "does not let the CPU map"));
	rig_make(rig_path("data"), SEED, LEN);
	f = rig_open(rig_path("data"), RIG_R);
	io = rig_io(PST_OP_READ, f, m, 0, 0, LEN);
	T_EQ(rig_do(rig_q, &io).res, -EOPNOTSUPP);
	T_OK(pst_path_check(f, m, PST_OP_READ, PST_PATH_WINDOW, &info));
	T_EQ(info.why, PST_WHY_NO_WINDOW);
	T_EQ(info.detail, EOPNOTSUPP);
	T_OK(pst_mem_export(m, 0, LEN, RW, &out));
	pst_grant_done(&out);
	pst_file_close(f);
	pst_mem_free(m);
}

/* Import a buffer whose descriptor is read-only. */
static void read_only(void)
{
	char name[64];
	int fd = exporter->make(LEN), ro;
	struct pst_mem *m = NULL;
	struct pst_grant g;
	char buf[16];

	(void)snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	ro = open(name, O_RDONLY | O_CLOEXEC);
	T_CHECK(ro >= 0); /* works with the stub only: a real dma-buf cannot be opened again */
	g = grant_of(ro, LEN);
	refused(g, -EACCES, "read-only");
	g.rights = PST_RIGHT_READ;
	T_OK(pst_mem_import(&g, &m));
	T_OK(pst_mem_copy_out(m, 0, buf, sizeof(buf)));
	T_EQ(pst_mem_copy_in(m, 0, buf, sizeof(buf)), -EACCES);
	pst_mem_free(m);
	(void)close(ro);
	(void)close(fd);
}

/* The exporter refuses access during a request: the request fails, and a later one succeeds. */
static void the_exporter_fails(void)
{
	struct pst_mem *m = mem_new(LEN);
	struct pst_file *f;
	struct pst_done d;
	struct pst_io io;

	rig_make(rig_path("data"), SEED, LEN);
	f = rig_open(rig_path("data"), RIG_R);
	dmabufs.sync_err = ENODEV;
	io = rig_io(PST_OP_READ, f, m, 0, 0, LEN);
	io.policy = PST_POLICY2(PST_PATH_WINDOW, PST_PATH_BUFFERED);
	d = rig_do(rig_q, &io);
	T_EQ(d.res, -EOPNOTSUPP);
	T_EQ(d.why, PST_WHY_NO_WINDOW);
	T_EQ(d.detail, ENODEV);
	dmabufs.sync_err = 0;
	d = rig_read(f, m, 0, 0, LEN);
	T_EQ(d.res, LEN);
	T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
	pst_file_close(f);
	pst_mem_free(m);
}

/* Memory or descriptors run out once: a request fails, and the next one gets its window. */
static void a_lack_passes(void)
{
	static const int errs[] = { ENOMEM, EMFILE, ENFILE, EAGAIN };
	struct pst_mem *m;
	struct pst_file *f;

	rig_make(rig_path("data"), SEED, LEN);
	f = rig_open(rig_path("data"), RIG_R);
	for (unsigned i = 0; i < RIG_NR(errs); i++) {
		m = mem_new(LEN);
		dmabufs.mmap_err = errs[i];
		T_CHECK(rig_read(f, m, 0, 0, LEN).res < 0);
		dmabufs.mmap_err = 0;
		T_EQ(rig_read(f, m, 0, 0, LEN).res, LEN);
		T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
		pst_mem_free(m);
	}
	pst_file_close(f);
}

/* O_DIRECT cannot reach a window: completions say so, and strict requests fail. */
static void direct_is_said(void)
{
	struct pst_path_info info = { .sz = sizeof(info) };
	struct pst_file *f, *out = rig_open(rig_path("out"), RIG_NEW);
	struct pst_mem *m = mem_new(LEN), *host = rig_alloc("host", 4096);
	struct pst_done d;
	struct pst_io io;

	rig_make(rig_path("data"), SEED, LEN);
	f = rig_open(rig_path("data"), RIG_R);
	T_OK(pst_path_check(f, host, PST_OP_READ, PST_PATH_DIRECT, &info));
	pst_mem_free(host);
	if (info.why == PST_WHY_NO_DIRECT)
		T_SKIP("O_DIRECT on the file system of the test");
	d = rig_read(f, m, 0, 0, LEN);
	T_EQ(d.res, LEN);
	T_EQ(d.why, PST_WHY_NO_PROVIDER);
	d = rig_write(out, m, 0, 0, LEN);
	T_EQ(d.res, LEN);
	T_EQ(d.why, PST_WHY_NO_PROVIDER);
	io = rig_io(PST_OP_READ, f, m, 0, 0, LEN);
	io.flags = PST_IO_STRICT;
	T_EQ(rig_do(rig_q, &io).res, -EOPNOTSUPP);
	io = rig_io(PST_OP_WRITE, out, m, 0, 0, LEN);
	io.flags = PST_IO_STRICT;
	T_EQ(rig_do(rig_q, &io).res, -EOPNOTSUPP);
	/* A strict request whose policy does not list O_DIRECT succeeds. */
	io = rig_io(PST_OP_READ, f, m, 0, 0, LEN);
	io.flags = PST_IO_STRICT;
	io.policy = PST_POLICY2(PST_PATH_WINDOW, PST_PATH_BUFFERED);
	T_EQ(rig_do(rig_q, &io).res, LEN);
	pst_file_close(f);
	pst_file_close(out);
	pst_mem_free(m);
}

/* ----------------------------------------------------------------------- run */

static void run_on_all(const char *name, void (*fn)(void), bool queue)
{
	char full[100];

	for (unsigned i = 0; i < RIG_NR(dmabuf_exporters); i++) {
		exporter = &dmabuf_exporters[i];
		(void)snprintf(full, sizeof(full), "%s %s", name, exporter->name);
		if (queue)
			rig_run(full, fn, RIG_HOST);
		else
			rig_run1(full, fn);
	}
}

#define RUN(fn) run_on_all(#fn, fn, true)
#define RUN1(fn) run_on_all(#fn, fn, false)

/* Ask for memory that must become a dma-buf, or must not, by option and by PST_DMABUF. */
static void wanted_or_not(void)
{
	struct pst_mem_opts yes = { .sz = sizeof(yes), .flags = PST_MEM_DMABUF };
	struct pst_mem_opts no = { .sz = sizeof(no), .flags = PST_MEM_NO_DMABUF };
	struct pst_mem_opts both = { .sz = sizeof(both), .flags = yes.flags | no.flags };
	bool can = access("/dev/udmabuf", R_OK | W_OK) == 0;
	struct pst_mem_info info = { .sz = sizeof(info) };
	struct pst_mem *m = NULL;
	struct mem_dmabuf d;
	int r;

	T_EQ(pst_mem_alloc("soft", LEN, &both, &m), -EINVAL);
	T_EQ(pst_mem_alloc("soft", LEN, &yes, &m), can ? 0 : -EOPNOTSUPP);
	T_CHECK(can ||
		strstr(pst_error_text(), "has to become a dma-buf, and cannot: host memory"));
	pst_mem_free(m);
	T_OK(pst_mem_alloc("soft", LEN, &no, &m));
	T_OK(pst_mem_info(m, &info));
	T_CHECK(info.flags & PST_MEM_NO_DMABUF);
	T_EQ(mem_export_dmabuf(m->region->alloc, 0, 1, &d), -EOPNOTSUPP);
	T_CHECK(strstr(pst_error_text(), "PST_MEM_NO_DMABUF"));
	pst_mem_free(m);

	T_EQ(setenv("PST_DMABUF", "yes", 1), 0);
	m = NULL;
	T_EQ(pst_mem_alloc("soft", LEN, NULL, &m), can ? 0 : -EOPNOTSUPP);
	pst_mem_free(m);
	T_OK(pst_mem_alloc("soft", LEN, &no, &m)); /* the option overrides PST_DMABUF=yes */
	pst_mem_free(m);
	T_OK(pst_mem_alloc("host", LEN, NULL, &m));
	pst_mem_free(m);
	T_EQ(setenv("PST_DMABUF", "no", 1), 0);
	T_OK(pst_mem_alloc("soft", LEN, NULL, &m));
	T_EQ(mem_export_dmabuf(m->region->alloc, 0, 1, &d), -EOPNOTSUPP);
	T_CHECK(strstr(pst_error_text(), "PST_DMABUF=no"));
	T_EQ(setenv("PST_DMABUF", "maybe", 1), 0);
	r = mem_export_dmabuf(m->region->alloc, 0, 1, &d);
	T_EQ(r, can ? 0 : -EOPNOTSUPP);
	T_CHECK(can || strstr(pst_error_text(), "/dev/udmabuf"));
	if (r == 0)
		(void)close(d.fd);
	pst_mem_free(m);
	T_EQ(unsetenv("PST_DMABUF"), 0);
}

int main(int argc, char **argv)
{
	if (argc == 3)
		return receives(atoi(argv[1]), !strcmp(argv[2], "stub"));
	rig_init();
	RUN1(a_grant_goes_on);
	RUN1(copies);
	RUN1(windows);
	RUN1(bad_descriptors);
	RUN(reads);
	RUN(writes);
	RUN(many_at_once);
	RUN(many_exclude);
	RUN(busy_device);
	RUN1(overlapping);
	exporter = &dmabuf_exporters[0];
	RIG_RUN_BACKENDS(no_cpu_reaches_it);
	RIG_RUN_BACKENDS(the_exporter_fails);
	RIG_RUN_BACKENDS(a_lack_passes);
	RIG_RUN_BACKENDS(direct_is_said);
	RIG_RUN1(read_only);
	RIG_RUN1(wanted_or_not);
	return rig_done();
}
