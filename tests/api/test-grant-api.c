/* SPDX-License-Identifier: MIT */
/*
 * Grant memory to another process: both sides see the same bytes, the rights hold, and no field
 * of a received grant is trusted.
 */
#include "grant.h"

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
	m = pst_mem_free(m); /* the imported memory stays */
	T_EQ(rig_write(f, again, 0, 0, 100000).res, 100000);
	/* Imported memory can be granted again, with at most the same rights. */
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

/* Make descriptor 0 an end of a pipe of the test. */
static void own_zero(int ret_saved[2])
{
	int p[2];

	ret_saved[0] = fcntl(0, F_DUPFD_CLOEXEC, 3); /* -1 if there is no descriptor 0 */
	T_EQ(pipe2(p, O_CLOEXEC), 0);
	if (p[0] != 0) {
		T_EQ(dup3(p[0], 0, O_CLOEXEC), 0);
		(void)close(p[0]);
	}
	ret_saved[1] = p[1];
}

static bool zero_is_open(void)
{
	return fcntl(0, F_GETFD) == FD_CLOEXEC;
}

static void give_back_zero(const int saved[2])
{
	(void)close(0);
	(void)close(saved[1]);
	if (saved[0] >= 0) {
		T_EQ(dup2(saved[0], 0), 0);
		(void)close(saved[0]);
	}
}

/* A grant that no call has filled holds no descriptor: pst_grant_done() must not close
 * descriptor 0. */
static void what_holds_nothing_closes_nothing(void)
{
	struct pst_grant fresh = { .sz = sizeof(fresh) }, g = fresh;
	struct pst_mem *m = shared(), *plain = rig_alloc("host", 4096);
	int saved[2], s[2];

	own_zero(saved);
	pst_grant_done(&g);
	T_CHECK(zero_is_open());
	T_EQ(g.fd, -1);

	/* A grant that a failed export left is empty. */
	g = fresh;
	T_EQ(pst_mem_export(m, LEN, 1, PST_RIGHT_READ, &g), -ERANGE);
	pst_grant_done(&g);
	T_CHECK(zero_is_open());
	g = fresh;
	T_EQ(pst_mem_export(plain, 0, 1, PST_RIGHT_READ, &g), -EOPNOTSUPP);
	pst_grant_done(&g);
	T_CHECK(zero_is_open());

	/* A grant that never arrived is empty, too, and so is a grant from a message that is no
	 * grant. */
	T_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s), 0);
	g = fresh;
	T_EQ(pst_grant_recv(s[0], &g, 0), -ETIMEDOUT);
	pst_grant_done(&g);
	T_CHECK(zero_is_open());
	T_EQ(write(s[1], "no grant", 8), 8);
	g = fresh;
	T_EQ(pst_grant_recv(s[0], &g, t_hang()), -EBADMSG);
	pst_grant_done(&g);
	T_CHECK(zero_is_open());
	(void)close(s[0]);
	(void)close(s[1]);

	/* A grant that holds a descriptor closes it exactly once. */
	g = grant_of(m, 0, LEN, PST_RIGHT_READ);
	s[0] = g.fd;
	pst_grant_done(&g);
	T_CHECK(fcntl(s[0], F_GETFD) < 0 && errno == EBADF);
	pst_grant_done(&g);
	T_CHECK(zero_is_open());

	/* A grant may hold descriptor 0. */
	g = grant_of(m, 0, LEN, PST_RIGHT_READ);
	T_EQ(dup3(g.fd, 0, O_CLOEXEC), 0);
	(void)close(g.fd);
	g.fd = 0;
	pst_grant_done(&g);
	T_CHECK(!zero_is_open());
	give_back_zero(saved);
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
	g.rights |= PST_RIGHT_WRITE; /* a right that the descriptor does not have */
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

	/* Send a grant, then check what the other side has written. */
	t_fill(buf, 21, 0, LEN);
	if (pst_mem_alloc(rig_dev, LEN, &o, &m) < 0 || pst_mem_copy_in(m, 0, buf, LEN) < 0 ||
	    pst_mem_export(m, 4096, LEN - 4096, PST_RIGHT_READ | PST_RIGHT_WRITE, &g) < 0 ||
	    pst_grant_send(sock, &g, t_hang()) < 0)
		return 1;
	pst_grant_done(&g);
	if (read(sock, &c, 1) != 1 || pst_mem_copy_out(m, 0, buf, LEN) < 0)
		return 2;
	if (t_differs(buf, 21, 0, 4096) != 4096 ||
	    t_differs(buf + 4096, 8, 100, 500000) != 500000 ||
	    t_differs(buf + 504096, 21, 504096, LEN - 504096) != LEN - 504096)
		return 3;
	free(buf);
	pst_mem_free(m);
	return write(sock, "x", 1) == 1 ? 0 : 4;
}

static int sock_child;

/* The owner of the memory is a new process, started by exec() because a fork of this one may not
 * use the library. */
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
	/* The memory outlives the process that granted it. */
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

/* ------------------------------------------- another process, with a queue */

#define OFF 70001u
#define PART 1000003u
/* The importer runs no test case: print the line, and exit with status 1. */
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
	C_CHECK(read(i->sock, &c, 1) == 1); /* the owner has freed the memory */
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

/* Run the importer.  Arguments: HOW SOCKET BACKEND IN OUT. */
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

/* Start an importer, and send it a grant for a part of the memory.  Return its pid, and this
 * side's socket. */
static pid_t start(const char *how, struct pst_mem *m, uint32_t rights_given, int *ret_sock)
{
	struct pst_grant g = grant_of(m, OFF, PART, rights_given);
	char in[PATH_MAX + 64], out[PATH_MAX + 64], fd[16], backend[16];
	int s[2];
	pid_t pid;

	rig_make(rig_path("in"), 8, PART);
	rig_cold(rig_path("in"));
	(void)snprintf(in, sizeof(in), "%s", rig_path("in"));
	(void)snprintf(out, sizeof(out), "%s", rig_path("out"));
	(void)snprintf(backend, sizeof(backend), "%u", rig_backend);
	T_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s), 0);
	(void)snprintf(fd, sizeof(fd), "%d", s[1]);
	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		(void)fcntl(s[1], F_SETFD, 0);
		(void)execl("/proc/self/exe", "importer", how, fd, backend, in, out, (char *)NULL);
		_exit(127);
	}
	(void)close(s[1]);
	T_CHECK(pid > 0);
	T_OK(pst_grant_send(s[0], &g, t_in_ms(RIG_WAIT_MS)));
	pst_grant_done(&g);
	*ret_sock = s[0];
	return pid;
}

/* Wait for the importer, and check how it ended. */
static void ended(pid_t pid, int sock, int want)
{
	int status = -1;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	(void)close(sock);
	T_EQ(status, want);
}

/* Check the bytes that the importer found in the memory and wrote into a file. */
static void check_out(uint64_t seed, uint64_t at)
{
	char *buf = malloc(PART);

	T_EQ(rig_slurp(rig_path("out"), 0, buf, PART), PART);
	T_EQ(t_differs(buf, seed, at, PART), PART);
	free(buf);
}

/* Check that the memory around the granted part is unchanged. */
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

/* Kill an importer with requests in flight: the owner's memory stays usable. */
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

/* The importer uses its part while the owner uses the memory around it. */
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
	RIG_RUN(what_holds_nothing_closes_nothing);
	RIG_RUN(rights);
	RIG_RUN(over_a_stream);
	RIG_RUN(over_packets);
	RIG_RUN(importer_works);
	RIG_RUN(importer_has_rights);
	RIG_RUN(owner_frees_first);
	RIG_RUN(importer_is_killed);
	RIG_RUN(both_at_once);
	return rig_done();
}
