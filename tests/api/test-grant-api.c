/* SPDX-License-Identifier: MIT */
/*
 * Memory that goes to another process: the bytes are the same on both sides, the rights
 * hold, and nothing that a grant says is believed.
 */
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "rig.h"

#define LEN RIG_MIB(2)

static struct pst_mem *shared(void)
{
	struct pst_mem_opts o = { .sz = sizeof(o), .flags = PST_MEM_SHARED };
	struct pst_mem *m = NULL;

	T_OK(pst_mem_alloc(rig_dev, LEN, &o, &m));
	return m;
}

static struct pst_grant grant_of(struct pst_mem *m, uint64_t off, uint64_t len, uint32_t rights)
{
	struct pst_grant g = { .sz = sizeof(g), .fd = -1 };

	T_OK(pst_mem_export(m, off, len, rights, &g));
	T_CHECK(g.fd >= 0);
	T_EQ(g.rights, rights);
	T_EQ(g.len, len);
	T_EQ(g.kind, rig_soft() ? PST_KIND_SOFT : PST_KIND_HOST);
	return g;
}

/* ------------------------------------------------------- the same process */

static void here(void)
{
	struct pst_mem *m = shared(), *again = NULL;
	struct pst_grant g = grant_of(m, 5000, 100000, PST_RIGHT_READ | PST_RIGHT_WRITE);
	struct pst_mem_info a = { .sz = sizeof(a) }, b = { .sz = sizeof(b) };
	struct pst_file *f;

	T_OK(pst_mem_import(&g, &again));
	pst_grant_done(&g);
	T_EQ(g.fd, -1);
	T_EQ(g.len, 0);
	T_OK(pst_mem_info(m, &a));
	T_OK(pst_mem_info(again, &b));
	T_EQ(b.len, 100000);
	T_CHECK(a.buffer_id != b.buffer_id && a.addr != b.addr - 5000);
	rig_mem_fill(m, 5000, 100000, 3, 0);
	T_EQ(rig_mem_differs(again, 0, 100000, 3, 0), 100000);
	rig_make(rig_path("file"), 8, LEN);
	f = rig_open(rig_path("file"), RIG_RW);
	T_EQ(rig_read(f, again, 100, 7, 99000).res, 99000);
	T_EQ(rig_mem_differs(m, 5007, 99000, 8, 100), 99000);
	m = pst_mem_free(m); /* the other one lives on */
	T_EQ(rig_write(f, again, 0, 0, 100000).res, 100000);
	/* What was imported may be handed on, but with no more rights. */
	g = grant_of(again, 1, 10, PST_RIGHT_READ);
	T_OK(pst_mem_import(&g, &m));
	pst_grant_done(&g);
	g = (struct pst_grant){ .sz = sizeof(g), .fd = -1 };
	T_EQ(pst_mem_export(m, 0, 10, PST_RIGHT_READ | PST_RIGHT_WRITE, &g), -EACCES);
	T_EQ(g.fd, -1);
	pst_mem_free(m);
	pst_mem_free(again);
	pst_file_close(f);
}

static void exports_refused(void)
{
	struct pst_grant g = { .sz = sizeof(g), .fd = -77 }, old = g;
	struct pst_mem *m = shared(), *plain = rig_alloc("host", 4096);

	T_EQ(pst_mem_export(m, 0, LEN, 0, &g), -EINVAL);
	T_EQ(pst_mem_export(m, 0, LEN, 4, &g), -EINVAL);
	T_EQ(pst_mem_export(m, 0, LEN + 1, PST_RIGHT_READ, &g), -ERANGE);
	T_EQ(pst_mem_export(m, LEN, 1, PST_RIGHT_READ, &g), -ERANGE);
	T_EQ(pst_mem_export(m, UINT64_MAX, 2, PST_RIGHT_READ, &g), -ERANGE);
	T_EQ(pst_mem_export(plain, 0, 1, PST_RIGHT_READ, &g), -EOPNOTSUPP);
	T_CHECK(strstr(pst_error_text(), "PST_MEM_SHARED"));
	T_EQ(memcmp(&g, &old, sizeof(g)), 0);
	g.sz = sizeof(g) - 8;
	T_EQ(pst_mem_export(m, 0, 1, PST_RIGHT_READ, &g), -EINVAL);
	pst_mem_free(m);
	pst_mem_free(plain);
}

static void rights(void)
{
	struct pst_mem *m = shared(), *ro = NULL;
	struct pst_grant g = grant_of(m, 0, LEN, PST_RIGHT_READ);
	struct pst_file *f;
	struct pst_io io;
	char buf[16] = "";

	T_EQ(fcntl(g.fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	T_OK(pst_mem_import(&g, &ro));
	rig_make(rig_path("file"), 8, LEN);
	f = rig_open(rig_path("file"), RIG_RW);
	rig_mem_fill(m, 0, LEN, 4, 0);
	T_OK(pst_mem_load(ro, 0, buf, sizeof(buf)));
	T_EQ(pst_mem_store(ro, 0, buf, sizeof(buf)), -EACCES);
	io = rig_io(PST_OP_READ, f, ro, 0, 0, 4096);
	T_EQ(pst_prep(rig_q, &io), -EACCES);
	T_CHECK(pst_error_text()[0]);
	T_EQ(rig_write(f, ro, 0, 0, LEN).res, LEN);
	T_EQ(rig_mem_differs(m, 0, LEN, 4, 0), LEN);
	pst_mem_free(ro);
	ro = NULL;
	g.rights |= PST_RIGHT_WRITE; /* a claim that the descriptor does not back */
	T_EQ(pst_mem_import(&g, &ro), -EACCES);
	T_CHECK(!ro);
	pst_grant_done(&g);
	pst_mem_free(m);
	pst_file_close(f);
}

/* ------------------------------------------------------- another process */

static int serve(int sock)
{
	struct pst_mem_opts o = { .sz = sizeof(o), .flags = PST_MEM_SHARED };
	struct pst_grant g = { .sz = sizeof(g), .fd = -1 };
	struct pst_mem *m = NULL;
	uint8_t *buf = malloc(LEN);
	char c;

	/* Its own grant goes out, and what the other side wrote comes back. */
	rig_fill(buf, 21, 0, LEN);
	if (pst_mem_alloc(rig_dev, LEN, &o, &m) < 0 || pst_mem_store(m, 0, buf, LEN) < 0 ||
	    pst_mem_export(m, 4096, LEN - 4096, PST_RIGHT_READ | PST_RIGHT_WRITE, &g) < 0 ||
	    pst_grant_send(sock, &g, t_in_ms(10000)) < 0)
		return 1;
	pst_grant_done(&g);
	if (read(sock, &c, 1) != 1 || pst_mem_load(m, 0, buf, LEN) < 0)
		return 2;
	if (rig_differs(buf, 21, 0, 4096) != 4096 ||
	    rig_differs(buf + 4096, 8, 100, 500000) != 500000 ||
	    rig_differs(buf + 504096, 21, 504096, LEN - 504096) != LEN - 504096)
		return 3;
	free(buf);
	pst_mem_free(m);
	return write(sock, "x", 1) == 1 ? 0 : 4;
}

static int sock_child;

/* The owner of the memory is a new process, for which exec() is the clean way. */
static void between_processes(void)
{
	struct pst_grant g = { .sz = sizeof(g), .fd = -1 };
	struct pst_mem *m = NULL;
	struct pst_file *f;
	int s[2], status;
	char num[16], c;
	pid_t pid;

	T_EQ(socketpair(AF_UNIX, sock_child ? SOCK_SEQPACKET : SOCK_STREAM, 0, s), 0);
	(void)snprintf(num, sizeof(num), "%d", s[1]);
	pid = fork();
	if (pid == 0) {
		(void)close(s[0]);
		(void)execl("/proc/self/exe", "test-grant-api", num, rig_dev, (char *)NULL);
		_exit(99);
	}
	(void)close(s[1]);
	T_OK(pst_grant_recv(s[0], &g, t_in_ms(10000)));
	T_EQ(g.len, LEN - 4096);
	T_OK(pst_mem_import(&g, &m));
	T_EQ(rig_mem_differs(m, 0, LEN - 4096, 21, 4096), LEN - 4096);
	rig_make(rig_path("file"), 8, LEN);
	f = rig_open(rig_path("file"), RIG_RW);
	T_EQ(rig_read(f, m, 100, 0, 500000).res, 500000);
	T_EQ(write(s[0], "x", 1), 1);
	T_EQ(read(s[0], &c, 1), 1);
	/* It is gone by now; what it granted is not. */
	T_EQ(waitpid(pid, &status, 0), pid);
	T_EQ(status, 0);
	T_EQ(rig_write(f, m, 0, 0, LEN - 4096).res, LEN - 4096);
	T_EQ(pst_grant_recv(s[0], &(struct pst_grant){ .sz = sizeof(g) }, t_in_ms(1000)), -EPIPE);
	pst_grant_done(&g);
	pst_mem_free(m);
	pst_file_close(f);
	(void)close(s[0]);
}

static void over_a_stream(void)
{
	sock_child = 0;
	between_processes();
}

static void over_packets(void)
{
	sock_child = 1;
	between_processes();
}

/* ------------------------------------------------------------- hostile ones */

static void refused(const struct pst_grant *g)
{
	struct pst_mem *m = NULL;
	unsigned fds = t_count_fds();
	int r = pst_mem_import(g, &m);

	if (r >= 0 || m)
		T_FAIL("a bad grant was taken");
	T_CHECK(pst_error_text()[0]);
	T_EQ(t_count_fds(), fds);
}

static void hostile(void)
{
	struct pst_mem *m = shared(), *ok = NULL;
	struct pst_grant good = grant_of(m, 0, LEN, PST_RIGHT_READ | PST_RIGHT_WRITE), g;
	int fd, p[2];

	refused(NULL);
	for (unsigned i = 0; i < 200; i++) {
		uint8_t *bytes = (uint8_t *)&g;
		unsigned at = (unsigned)(sizeof(g.sz) + rig_below(sizeof(g) - sizeof(g.sz)));

		g = good;
		bytes[at] ^= (uint8_t)(1 + rig_below(255));
		if (at >= offsetof(struct pst_grant, fd) && at < offsetof(struct pst_grant, ipc))
			continue; /* a number of a descriptor may by chance be one that fits */
		if (pst_mem_import(&g, &ok) == 0) {
			/* Only a smaller range or fewer rights may pass. */
			struct pst_mem_info info = { .sz = sizeof(info) };

			T_CHECK(g.off + g.len <= good.size && g.size == good.size);
			T_CHECK(!(g.rights & ~good.rights));
			T_OK(pst_mem_info(ok, &info));
			T_EQ(info.len, g.len);
			ok = pst_mem_free(ok);
		}
	}
	g = good, g.sz = 8;
	refused(&g);
	g = good, g.sz = SIZE_MAX;
	refused(&g);
	g = good, g.kind = 0;
	refused(&g);
	g = good, g.kind = PST_KIND_CUDA;
	refused(&g);
	g = good, g.rights = 0;
	refused(&g);
	g = good, g.rights = 7;
	refused(&g);
	g = good, g.reserved = 1;
	refused(&g);
	g = good, g.ipc[0] = 1;
	refused(&g);
	g = good, g.len = 0;
	refused(&g);
	g = good, g.len = UINT64_MAX;
	refused(&g);
	g = good, g.off = UINT64_MAX;
	refused(&g);
	g = good, g.off = LEN, g.len = 1, g.size = LEN;
	refused(&g);
	g = good, g.size *= 2, g.len *= 2;
	refused(&g);
	g = good, g.size = 1, g.len = 1;
	refused(&g);
	g = good, g.fd = -1;
	refused(&g);
	g = good, g.fd = 1000000;
	refused(&g);
	T_EQ(pipe2(p, O_CLOEXEC), 0);
	g = good, g.fd = p[0];
	refused(&g);
	(void)close(p[0]);
	(void)close(p[1]);
	/* A file whose end may move would be a SIGBUS later. */
	fd = memfd_create("loose", MFD_CLOEXEC);
	T_EQ(ftruncate(fd, (off_t)good.size), 0);
	g = good, g.fd = fd;
	refused(&g);
	(void)close(fd);
	fd = memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	T_EQ(ftruncate(fd, (off_t)good.size), 0);
	g = good, g.fd = fd;
	refused(&g);
	T_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	T_EQ(ftruncate(fd, 0), -1);
	g = good, g.fd = fd, g.size += 4096, g.len = 1;
	refused(&g);
	(void)close(fd);
	rig_make(rig_path("file"), 1, LEN);
	fd = open(rig_path("file"), O_RDWR | O_CLOEXEC);
	g = good, g.fd = fd;
	refused(&g);
	(void)close(fd);
	fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
	g = good, g.fd = fd;
	refused(&g);
	(void)close(fd);
	T_OK(pst_mem_import(&good, &ok)); /* and it was the grant, not we */
	pst_mem_free(ok);
	pst_grant_done(&good);
	pst_mem_free(m);
}

static void sockets(void)
{
	struct pst_mem *m = shared();
	struct pst_grant g = grant_of(m, 0, LEN, PST_RIGHT_READ), in = { .sz = sizeof(in) };
	uint64_t t0 = t_now();
	char junk[200];
	int s[2], fd;

	T_EQ(pst_grant_send(-1, &g, 0), -EPROTOTYPE);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0) {
		T_EQ(pst_grant_send(fd, &g, 0), -EPROTOTYPE);
		T_EQ(pst_grant_recv(fd, &in, 0), -EPROTOTYPE);
		(void)close(fd);
	}
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	T_EQ(pst_grant_send(fd, &g, 0), -EPROTOTYPE);
	(void)close(fd);
	T_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s), 0);
	T_EQ(pst_grant_recv(s[1], &in, 0), -ETIMEDOUT);
	T_EQ(pst_grant_recv(s[1], &in, t_in_ms(60)), -ETIMEDOUT);
	T_CHECK(t_now() - t0 < 2000 * 1000000u);
	T_OK(pst_grant_send(s[0], &g, 0));
	T_OK(pst_grant_recv(s[1], &in, t_in_ms(1000)));
	T_EQ(in.len, LEN);
	T_EQ(in.rights, PST_RIGHT_READ);
	pst_grant_done(&in);
	in.sz = sizeof(in);
	memset(junk, 'j', sizeof(junk));
	T_EQ(write(s[0], junk, sizeof(junk)), sizeof(junk));
	T_EQ(pst_grant_recv(s[1], &in, t_in_ms(1000)), -EBADMSG);
	(void)close(s[0]);
	T_EQ(pst_grant_send(s[1], &g, 0), -EPIPE); /* and no SIGPIPE */
	(void)close(s[1]);
	pst_grant_done(&g);
	pst_mem_free(m);
}

int main(int argc, char **argv)
{
	if (argc == 3) {
		rig_dev = argv[2];
		return serve(atoi(argv[1]));
	}
	rig_init();
	RIG_RUN(here);
	RIG_RUN(exports_refused);
	RIG_RUN(rights);
	RIG_RUN(over_a_stream);
	RIG_RUN(over_packets);
	RIG_RUN(hostile);
	RIG_RUN(sockets);
	return rig_done();
}
