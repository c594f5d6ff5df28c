/* SPDX-License-Identifier: MIT */
/*
 * A program and a library of different releases.
 *
 * The test is compiled against the first release's headers, and against headers in which every
 * structure and enumeration is larger.  Each program runs with today's library and with one
 * built with the larger headers.  The cases call every function that takes a structure with sz.
 */
#include <errno.h>
#include <fcntl.h>
#include <penstock.h>
#include <stdlib.h>
#include <sys/socket.h>

#define T_ERROR_TEXT() pst_error_text()
#include "t.h"

#define NR(a) (sizeof(a) / sizeof((a)[0]))
#define CANARY 0xa5

/* A structure of the program's size, followed by bytes that the library must not touch. */
#define FRAMED(type, name)                \
	struct {                          \
		struct type v;            \
		unsigned char behind[64]; \
	} name;                           \
	memset(&name, 0, sizeof(name));   \
	name.v.sz = sizeof(name.v);       \
	memset(name.behind, CANARY, sizeof(name.behind))

static bool is_intact(const unsigned char *behind)
{
	for (unsigned i = 0; i < 64; i++)
		if (behind[i] != CANARY)
			return false;
	return true;
}

#define INTACT(name)                                 \
	do {                                         \
		T_CHECK(is_intact((name).behind));   \
		T_EQ((name).v.sz, sizeof((name).v)); \
		TAIL_IS_ZERO((name).v);              \
	} while (0)

#ifdef GROWN
/* Fields that an older library does not know: it must zero them on return, and refuse them if
 * they are set. */
#define TAIL_IS_ZERO(s) T_CHECK(!(s).grown[0] && !(s).grown[1])
#define UNKNOWN_IS_REFUSED(opts, call)        \
	do {                                  \
		(opts).grown[1] = 1;          \
		T_EQ(call, -E2BIG);           \
		T_CHECK(pst_error_text()[0]); \
		(opts).grown[1] = 0;          \
	} while (0)
#else
#define TAIL_IS_ZERO(s) (void)(s)
#define UNKNOWN_IS_REFUSED(opts, call) (void)(opts)
#endif

static char path[] = "/tmp/pst-abi-XXXXXX";

static void devices(void)
{
	struct pst_device devs[4];
	int nr;

	FRAMED(pst_device, one);
	for (unsigned i = 0; i < NR(devs); i++) {
		memset(&devs[i], 0, sizeof(devs[i]));
		devs[i].sz = sizeof(devs[i]);
	}
	nr = pst_device_list(NULL, 0);
	T_CHECK(nr >= 2);
	T_EQ(pst_device_list(devs, NR(devs)), nr);
	for (int i = 0; i < nr && i < (int)NR(devs); i++) {
		T_EQ(devs[i].sz, sizeof(devs[i]));
		T_EQ(pst_device_find(devs[i].name, &one.v), 0);
		INTACT(one);
		T_EQ(memcmp(&one.v, &devs[i], sizeof(one.v)), 0);
	}
	T_EQ(strcmp(devs[0].name, "host"), 0);
	T_EQ(devs[0].kind, PST_KIND_HOST);
	/* An array whose elements differ in sz has no defined stride. */
	devs[1].sz -= 8;
	T_EQ(pst_device_list(devs, 2), -EINVAL);
}

static void memory(void)
{
	static char buf[8192];
	struct pst_mem *m = NULL, *w = NULL;

	FRAMED(pst_mem_opts, o);
	FRAMED(pst_mem_info, info);
	UNKNOWN_IS_REFUSED(o.v, pst_mem_alloc("soft:0", 8192, &o.v, &m));
	o.v.flags = PST_MEM_SHARED;
	T_EQ(pst_mem_alloc("soft:0", 8192, &o.v, &m), 0);
	T_EQ(pst_mem_info(m, &info.v), 0);
	INTACT(info);
	T_EQ(info.v.kind, PST_KIND_SOFT);
	T_EQ(info.v.len, 8192);
	T_EQ(strcmp(info.v.device, "soft:0"), 0);
	o.v.flags = PST_MEM_PINNED;
	o.v.kind = PST_KIND_HOST;
	UNKNOWN_IS_REFUSED(o.v, pst_mem_wrap((uintptr_t)buf, sizeof(buf), &o.v, &w));
	T_EQ(pst_mem_wrap((uintptr_t)buf, sizeof(buf), &o.v, &w), 0);
	T_EQ(pst_mem_info(w, &info.v), 0);
	T_EQ(info.v.addr, (uintptr_t)buf);
	INTACT(o);
	info.v.sz = 4;
	T_EQ(pst_mem_info(w, &info.v), -EINVAL);
	pst_mem_free(m);
	pst_mem_free(w);
}

static void grants(void)
{
	struct pst_mem *m = NULL, *again = NULL;
	struct pst_window *win = NULL;
	char in[16] = "over the socket", out[16];
	int sock[2];

	FRAMED(pst_grant, g);
	FRAMED(pst_grant, got);
	T_EQ(pst_mem_alloc("soft:0", 8192, NULL, &m), 0);
	T_EQ(pst_mem_export(m, 4096, 4096, PST_RIGHT_READ | PST_RIGHT_WRITE, &g.v), 0);
	INTACT(g);
	T_EQ(g.v.len, 4096);
	UNKNOWN_IS_REFUSED(g.v, pst_mem_import(&g.v, &again) == -E2BIG ? -E2BIG : 0);
	T_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock), 0);
	T_EQ(pst_grant_send(sock[0], &g.v, 0), 0);
	T_EQ(pst_grant_recv(sock[1], &got.v, 0), 0);
	INTACT(got);
	T_EQ(pst_mem_import(&got.v, &again), 0);
	T_EQ(pst_mem_copy_in(m, 4096, in, sizeof(in)), 0);
	T_EQ(pst_mem_copy_out(again, 0, out, sizeof(out)), 0);
	T_EQ(memcmp(in, out, sizeof(in)), 0);
	T_EQ(pst_window_open_grant(&got.v, NULL, &win), 0);
	T_EQ(memcmp(pst_window_ptr(win), in, sizeof(in)), 0);
	pst_window_close(win);
	pst_mem_free(again);
	pst_grant_done(&got.v);
	T_CHECK(is_intact(got.behind));
	T_EQ(got.v.fd, -1);
	pst_grant_done(&g.v);
	pst_mem_free(m);
	(void)close(sock[0]);
	(void)close(sock[1]);
}

static void windows(void)
{
	struct pst_window_backend b[8];
	struct pst_window *win = NULL;
	struct pst_mem *m = NULL;
	int nr;

	FRAMED(pst_window_opts, o);
	FRAMED(pst_window_info, info);
	T_EQ(pst_mem_alloc("soft:0", 8192, NULL, &m), 0);
	UNKNOWN_IS_REFUSED(o.v, pst_window_open(m, 0, 8192, &o.v, &win));
	o.v.backend = "soft";
	o.v.kernel = "memcpy";
	T_EQ(pst_window_open(m, 0, 8192, &o.v, &win), 0);
	T_EQ(pst_window_info(win, &info.v), 0);
	INTACT(info);
	T_EQ(strcmp(info.v.backend, "soft"), 0);
	T_EQ(strcmp(info.v.load, "memcpy"), 0);
	pst_window_close(win);
	pst_mem_free(m);
	memset(b, 0, sizeof(b));
	for (unsigned i = 0; i < NR(b); i++)
		b[i].sz = sizeof(b[i]);
	nr = pst_window_backends("soft:0", b, NR(b));
	T_CHECK(nr >= 1);
	T_EQ(strcmp(b[nr - 1].name, "soft"), 0);
	T_EQ(b[nr - 1].state, PST_STATE_PROVEN);
	T_EQ(b[nr - 1].sz, sizeof(b[0]));
}

static void requests(void)
{
	struct pst_io io = { .op = PST_OP_READ, .len = 4096, .user_data = 7 };
	struct pst_queue *q = NULL;
	struct pst_done d;
	unsigned fds;

	FRAMED(pst_file_opts, opts);
	FRAMED(pst_file_info, fi);
	FRAMED(pst_queue_opts, qo);
	FRAMED(pst_stats, st);
	FRAMED(pst_path_info, pi);
	UNKNOWN_IS_REFUSED(opts.v, pst_file_open(path, PST_FILE_READ, &opts.v, &io.file));
	opts.v.mode = 0600;
	T_EQ(pst_file_open(path, PST_FILE_READ, &opts.v, &io.file), 0);
	T_EQ(pst_file_info(io.file, &fi.v), 0);
	INTACT(fi);
	T_EQ(fi.v.size, 4096);
	T_CHECK(fi.v.fs[0]);
	UNKNOWN_IS_REFUSED(qo.v, pst_queue_new(&qo.v, &q));
	qo.v.depth = 4;
	qo.v.flags = PST_QUEUE_FD_ONCE;
	T_EQ(pst_queue_new(&qo.v, &q), 0);
	T_EQ(pst_mem_alloc("host", 4096, NULL, &io.mem), 0);
	T_EQ(pst_queue_prep(q, &io), 0);
	T_EQ(pst_queue_submit(q), 1);
	T_EQ(pst_queue_reap(q, &d, 1, 1, PST_NO_DEADLINE), 1);
	T_EQ(d.res, 4096);
	T_EQ(d.user_data, 7);
	T_EQ(memcmp(pst_mem_ptr(io.mem), "abi", 3), 0);
	T_EQ(pst_stats(q, &st.v), 0);
	INTACT(st);
	T_EQ(st.v.requests, 1);
	T_EQ(st.v.inflight, 0);
	T_EQ(pst_path_check(io.file, io.mem, PST_OP_READ, PST_PATH_BUFFERED, &pi.v), 0);
	INTACT(pi);
	T_EQ(pi.v.path, PST_PATH_BUFFERED);
	T_CHECK(pi.v.state != PST_STATE_IMPOSSIBLE);
	pst_queue_free(q);
	fds = t_count_fds();
	T_EQ(pst_read(io.file, 0, io.mem, 0, 4096, &d), 4096);
	T_CHECK(t_fds_left(fds) <= fds);
	pst_mem_free(io.mem);
	pst_file_close(io.file);
}

static void bounds(void)
{
	FRAMED(pst_limits, l);
	FRAMED(pst_limits, got);
	l.v.pool_bytes = 64 << 20;
	UNKNOWN_IS_REFUSED(l.v, pst_limits_set(&l.v));
	T_EQ(pst_limits_set(&l.v), 0);
	T_EQ(pst_limits_get(&got.v), 0);
	INTACT(got);
	T_EQ(got.v.pool_bytes, 64 << 20);
	T_EQ(pst_limits_set(NULL), 0);
}

static void checks(void)
{
	struct pst_check c[24];
	int nr;

	FRAMED(pst_check_opts, o);
	memset(c, 0, sizeof(c));
	for (unsigned i = 0; i < NR(c); i++)
		c[i].sz = sizeof(c[i]);
	UNKNOWN_IS_REFUSED(o.v, pst_check("io", &o.v, c, NR(c)));
	T_EQ(pst_check("io", &o.v, c, NR(c)), 2);
	T_EQ(strcmp(c[0].name, "io_uring"), 0);
	T_EQ(strcmp(c[1].name, "threads"), 0);
	T_EQ(c[1].state, PST_CHECK_OK);
	o.v.path = path;
	nr = pst_check("gds", &o.v, c, NR(c));
	T_CHECK(nr > 4);
	for (int i = 0; i < nr && i < (int)NR(c); i++) {
		T_EQ(c[i].sz, sizeof(c[i]));
		T_CHECK(c[i].name[0] && c[i].text[0]);
	}
}

int main(void)
{
	char block[4096] = "abi";
	int fd = mkstemp(path);

	if (fd < 0 || write(fd, block, sizeof(block)) != (ssize_t)sizeof(block) || close(fd) < 0)
		return 1;
	T_RUN(devices);
	T_RUN(memory);
	T_RUN(grants);
	T_RUN(windows);
	T_RUN(requests);
	T_RUN(bounds);
	T_RUN(checks);
	(void)unlink(path);
	return t_done();
}
