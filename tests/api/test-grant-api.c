/* SPDX-License-Identifier: MIT */
/*
 * Memory that goes to another process: the bytes are the same on both sides, the rights
 * hold, and nothing that a grant says is believed.
 */
#include <signal.h>
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
	T_OK(pst_mem_copy_out(ro, 0, buf, sizeof(buf)));
	T_EQ(pst_mem_copy_in(ro, 0, buf, sizeof(buf)), -EACCES);
	io = rig_io(PST_OP_READ, f, ro, 0, 0, 4096);
	T_EQ(pst_queue_prep(rig_q, &io), -EACCES);
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
	if (pst_mem_alloc(rig_dev, LEN, &o, &m) < 0 || pst_mem_copy_in(m, 0, buf, LEN) < 0 ||
	    pst_mem_export(m, 4096, LEN - 4096, PST_RIGHT_READ | PST_RIGHT_WRITE, &g) < 0 ||
	    pst_grant_send(sock, &g, t_hang()) < 0)
		return 1;
	pst_grant_done(&g);
	if (read(sock, &c, 1) != 1 || pst_mem_copy_out(m, 0, buf, LEN) < 0)
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
	T_OK(pst_grant_recv(s[0], &g, t_hang()));
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
	T_EQ(pst_grant_recv(s[0], &(struct pst_grant){ .sz = sizeof(g) }, t_hang()), -EPIPE);
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
	T_CHECK(t_now() - t0 < T_HANG_NS);
	T_OK(pst_grant_send(s[0], &g, 0));
	T_OK(pst_grant_recv(s[1], &in, t_hang()));
	T_EQ(in.len, LEN);
	T_EQ(in.rights, PST_RIGHT_READ);
	pst_grant_done(&in);
	in.sz = sizeof(in);
	memset(junk, 'j', sizeof(junk));
	T_EQ(write(s[0], junk, sizeof(junk)), sizeof(junk));
	T_EQ(pst_grant_recv(s[1], &in, t_hang()), -EBADMSG);
	(void)close(s[0]);
	T_EQ(pst_grant_send(s[1], &g, 0), -EPIPE); /* and no SIGPIPE */
	(void)close(s[1]);
	pst_grant_done(&g);
	pst_mem_free(m);
}

/* ------------------------------------------- another process, with a queue */

#define OFF 70001u
#define PART 1000003u
#define RW (PST_RIGHT_READ | PST_RIGHT_WRITE)

/* In the importer there is no case to leave: the line says where, the status that. */
#define C_CHECK(cond)                                                                      \
	do {                                                                               \
		if (!(cond)) {                                                             \
			fprintf(stderr, "# importer, line %d: %s (%s)\n", __LINE__, #cond, \
				pst_error_text());                                         \
			exit(1);                                                           \
		}                                                                          \
	} while (0)

static int64_t c_do(struct pst_queue *q, uint32_t op, struct pst_file *f, struct pst_mem *m,
		    uint64_t off, uint64_t len)
{
	struct pst_io io = rig_io(op, f, m, off, off, len);
	struct pst_done d = { 0 };

	C_CHECK(pst_queue_prep(q, &io) == 0);
	C_CHECK(pst_queue_submit(q) == 1);
	C_CHECK(pst_queue_reap(q, &d, 1, 1, t_in_ms(RIG_WAIT_MS)) == 1);
	return d.res;
}

struct importer {
	int sock;
	struct pst_queue *q;
	struct pst_mem *m;
	struct pst_file *in, *out;
};

static void import_both(struct importer *i)
{
	C_CHECK(c_do(i->q, PST_OP_WRITE, i->out, i->m, 0, PART) == PART);
	C_CHECK(c_do(i->q, PST_OP_READ, i->in, i->m, 0, PART) == PART);
}

static void import_read_only(struct importer *i)
{
	struct pst_io io = rig_io(PST_OP_READ, i->in, i->m, 0, 0, 4096);
	char c = 0;

	C_CHECK(pst_queue_prep(i->q, &io) == -EACCES);
	C_CHECK(pst_mem_copy_in(i->m, 0, &c, 1) == -EACCES);
	C_CHECK(pst_mem_copy_out(i->m, PART - 1, &c, 1) == 0);
	C_CHECK(pst_mem_copy_out(i->m, PART, &c, 1) == -ERANGE);
	C_CHECK(c_do(i->q, PST_OP_WRITE, i->out, i->m, 0, PART) == PART);
}

static void import_write_only(struct importer *i)
{
	struct pst_io io = rig_io(PST_OP_WRITE, i->out, i->m, 0, 0, 4096);
	char c = 0;

	C_CHECK(pst_queue_prep(i->q, &io) == -EACCES);
	C_CHECK(pst_mem_copy_out(i->m, 0, &c, 1) == -EACCES);
	C_CHECK(c_do(i->q, PST_OP_READ, i->in, i->m, 0, PART) == PART);
}

static void import_owner_frees(struct importer *i)
{
	char c;

	C_CHECK(c_do(i->q, PST_OP_READ, i->in, i->m, 0, PART) == PART);
	C_CHECK(write(i->sock, "x", 1) == 1);
	C_CHECK(read(i->sock, &c, 1) == 1); /* now it is freed */
	C_CHECK(c_do(i->q, PST_OP_WRITE, i->out, i->m, 0, PART) == PART);
	C_CHECK(c_do(i->q, PST_OP_READ, i->in, i->m, 0, PART) == PART);
}

static void import_together(struct importer *i)
{
	for (unsigned k = 0; k < 20; k++)
		C_CHECK(c_do(i->q, PST_OP_READ, i->in, i->m, k * 50000, 50000) == 50000);
}

static void import_killed(struct importer *i)
{
	for (unsigned k = 0; k < 100; k++) {
		struct pst_io io = rig_io(PST_OP_READ, i->in, i->m, 0, k * 10000, 10000);

		C_CHECK(pst_queue_prep(i->q, &io) == 0);
	}
	C_CHECK(pst_queue_submit(i->q) == 100);
	(void)kill(getpid(), SIGKILL);
}

static const struct {
	const char *name;
	void (*fn)(struct importer *i);
} importers[] = {
	{ "both", import_both },
	{ "read-only", import_read_only },
	{ "write-only", import_write_only },
	{ "owner-frees", import_owner_frees },
	{ "together", import_together },
	{ "killed", import_killed },
};

/* importer HOW SOCKET STORE IN OUT */
static int importer(char **argv)
{
	struct pst_queue_opts o = { .sz = sizeof(o), .backend = (uint32_t)atoi(argv[3]) };
	struct pst_mem_info info = { .sz = sizeof(info) };
	struct importer i = { .sock = atoi(argv[2]) };
	struct pst_grant g = { .sz = sizeof(g) };

	C_CHECK(pst_grant_recv(i.sock, &g, t_in_ms(RIG_WAIT_MS)) == 0);
	C_CHECK(pst_mem_import(&g, &i.m) == 0);
	pst_grant_done(&g);
	C_CHECK(pst_mem_info(i.m, &info) == 0);
	C_CHECK(info.len == PART && info.size == LEN && info.addr == info.base + OFF);
	C_CHECK(pst_queue_new(&o, &i.q) == 0);
	C_CHECK(pst_file_open(argv[4], PST_FILE_READ, NULL, &i.in) == 0);
	C_CHECK(pst_file_open(argv[5], RIG_NEW, NULL, &i.out) == 0);
	for (unsigned k = 0; k < RIG_NR(importers); k++)
		if (strcmp(importers[k].name, argv[1]) == 0)
			importers[k].fn(&i);
	pst_file_close(i.in);
	pst_file_close(i.out);
	pst_mem_free(i.m);
	pst_queue_free(i.q);
	return 0;
}

/* Start one, with a grant for a part of the memory: its pid, and our end of the socket. */
static pid_t start(const char *how, struct pst_mem *m, uint32_t rights_given, int *ret_sock)
{
	struct pst_grant g = grant_of(m, OFF, PART, rights_given);
	char in[PATH_MAX + 64], out[PATH_MAX + 64], fd[16], store[16];
	int s[2];
	pid_t pid;

	rig_make(rig_path("in"), 8, PART);
	rig_cold(rig_path("in"));
	(void)snprintf(in, sizeof(in), "%s", rig_path("in"));
	(void)snprintf(out, sizeof(out), "%s", rig_path("out"));
	(void)snprintf(store, sizeof(store), "%u", rig_backend);
	T_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s), 0);
	(void)snprintf(fd, sizeof(fd), "%d", s[1]);
	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		(void)fcntl(s[1], F_SETFD, 0);
		(void)execl("/proc/self/exe", "importer", how, fd, store, in, out, (char *)NULL);
		_exit(127);
	}
	(void)close(s[1]);
	T_CHECK(pid > 0);
	T_OK(pst_grant_send(s[0], &g, t_in_ms(RIG_WAIT_MS)));
	pst_grant_done(&g);
	*ret_sock = s[0];
	return pid;
}

/* Wait for it. */
static void ended(pid_t pid, int sock, int want)
{
	int status = -1;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	(void)close(sock);
	T_EQ(status, want);
}

/* What the importer wrote of what it found in the memory. */
static void check_out(uint64_t seed, uint64_t at)
{
	char *buf = malloc(PART);

	T_EQ(rig_slurp(rig_path("out"), 0, buf, PART), PART);
	T_EQ(rig_differs(buf, seed, at, PART), PART);
	free(buf);
}

/* Around the part that was granted nothing changes. */
static void check_rest(struct pst_mem *m)
{
	T_EQ(rig_mem_differs(m, 0, OFF, 1, 0), OFF);
	T_EQ(rig_mem_differs(m, OFF + PART, LEN - OFF - PART, 1, OFF + PART), LEN - OFF - PART);
}

static void importer_works(void)
{
	struct pst_mem *m = shared();
	pid_t pid;
	int sock;

	rig_mem_fill(m, 0, LEN, 1, 0);
	pid = start("both", m, RW, &sock);
	ended(pid, sock, 0);
	check_out(1, OFF);
	T_EQ(rig_mem_differs(m, OFF, PART, 8, 0), PART);
	check_rest(m);
	pst_mem_free(m);
}

static void importer_has_rights(void)
{
	struct pst_mem *m = shared();
	pid_t pid;
	int sock;

	rig_mem_fill(m, 0, LEN, 1, 0);
	pid = start("read-only", m, PST_RIGHT_READ, &sock);
	ended(pid, sock, 0);
	check_out(1, OFF);
	T_EQ(rig_mem_differs(m, 0, LEN, 1, 0), LEN);
	pid = start("write-only", m, PST_RIGHT_WRITE, &sock);
	ended(pid, sock, 0);
	T_EQ(rig_mem_differs(m, OFF, PART, 8, 0), PART);
	check_rest(m);
	pst_mem_free(m);
}

static void owner_frees_first(void)
{
	struct pst_mem *m = shared();
	pid_t pid;
	int sock;
	char c;

	pid = start("owner-frees", m, RW, &sock);
	T_EQ(read(sock, &c, 1), 1);
	T_EQ(rig_mem_differs(m, OFF, PART, 8, 0), PART);
	m = pst_mem_free(m);
	T_EQ(write(sock, "x", 1), 1);
	ended(pid, sock, 0);
	check_out(8, 0);
}

/* An importer that dies with requests in flight leaves the owner its memory. */
static void importer_is_killed(void)
{
	struct pst_mem *m = shared();
	pid_t pid;
	int sock;

	rig_mem_fill(m, 0, LEN, 1, 0);
	pid = start("killed", m, RW, &sock);
	ended(pid, sock, SIGKILL);
	check_rest(m);
	rig_mem_fill(m, 0, LEN, 2, 0);
	T_EQ(rig_mem_differs(m, 0, LEN, 2, 0), LEN);
	T_OK(pst_mem_drain(m, 0));
	pst_mem_free(m);
}

/* The importer works in its part, and the owner around it. */
static void both_at_once(void)
{
	struct pst_mem *m = shared();
	struct pst_file *f;
	pid_t pid;
	int sock;

	rig_make(rig_path("mine"), 9, RIG_MIB(1));
	f = rig_open(rig_path("mine"), RIG_RW);
	pid = start("together", m, RW, &sock);
	for (unsigned i = 0; i < 10; i++) {
		T_EQ(rig_read(f, m, 0, 0, OFF).res, OFF);
		T_EQ(rig_read(f, m, 4096, OFF + PART, 500000).res, 500000);
		T_EQ(rig_write(f, m, 4096, OFF + PART, 500000).res, 500000);
	}
	ended(pid, sock, 0);
	T_EQ(rig_mem_differs(m, 0, OFF, 9, 0), OFF);
	T_EQ(rig_mem_differs(m, OFF, 1000000, 8, 0), 1000000);
	T_EQ(rig_mem_differs(m, OFF + PART, 500000, 9, 4096), 500000);
	pst_file_close(f);
	pst_mem_free(m);
}

/* -------------------------------------------------------------- descriptors */

/* Import of a grant whose descriptor is another one than it says; closed here. */
static void refused_fd(struct pst_grant g, int fd)
{
	T_CHECK(fd >= 0);
	g.fd = fd;
	refused(&g);
	(void)close(fd);
}

static int memfd_of(uint64_t len, int seals)
{
	int fd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	T_CHECK(fd >= 0);
	T_EQ(ftruncate(fd, (off_t)len), 0);
	T_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static int reopened(int fd, int flags)
{
	char path[40];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, flags | O_CLOEXEC);
}

static void hostile_descriptors(void)
{
	struct pst_mem *m = shared();
	struct pst_grant g = grant_of(m, 0, LEN, RW), ro = grant_of(m, 0, LEN, PST_RIGHT_READ);

	refused_fd(g, memfd_of(LEN, F_SEAL_GROW));
	refused_fd(g, memfd_of(LEN - 1, F_SEAL_SHRINK));
	refused_fd(g, memfd_of(LEN + 1, F_SEAL_SHRINK));
	refused_fd(g, memfd_of(0, F_SEAL_SHRINK));
	refused_fd(g, memfd_of(LEN, F_SEAL_SHRINK | F_SEAL_WRITE));
	refused_fd(g, open(rig_dir, O_RDONLY | O_CLOEXEC));
	refused_fd(g, socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	refused_fd(g, reopened(g.fd, O_RDONLY));
	refused_fd(g, reopened(g.fd, O_WRONLY));
	refused_fd(g, reopened(g.fd, O_PATH));
	ro.rights = RW;
	refused(&ro);
	pst_grant_done(&g);
	pst_grant_done(&ro);
	pst_mem_free(m);
}

/* Sealed, but its pages are reserved ones: a hole that is made later may find none. */
static void huge_pages(void)
{
	struct pst_mem *m;
	struct pst_grant g;
	int fd = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);

	if (fd < 0 || ftruncate(fd, LEN) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
		T_SKIP("a kernel with hugetlbfs and pages of 2 MiB");
	m = shared();
	g = grant_of(m, 0, LEN, RW);
	refused_fd(g, fd);
	T_CHECK(strstr(pst_error_text(), "huge"));
	pst_grant_done(&g);
	pst_mem_free(m);
}

int main(int argc, char **argv)
{
	if (argc == 6)
		return importer(argv);
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
	RIG_RUN(importer_works);
	RIG_RUN(importer_has_rights);
	RIG_RUN(owner_frees_first);
	RIG_RUN(importer_is_killed);
	RIG_RUN(both_at_once);
	RIG_RUN(hostile_descriptors);
	RIG_RUN(huge_pages);
	return rig_done();
}
