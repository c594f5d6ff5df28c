/* SPDX-License-Identifier: MIT */
/*
 * Files of a storage service through the public API.  PENSTOCK is the path of the command.  With
 * PST_TEST_TLS all cases use TLS.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "again.h"

#define SEED 7
#define LEN (RIG_MIB(5) + 4321)
#define TCP PST_PATH_BIT(PST_PATH_TCP)

static struct {
	pid_t pid;
	int port;
} server;
static bool tls;

/* Make the keys' file of server and client. */
static const char *keys_file(void)
{
	static char path[600];
	FILE *f;

	if (*path)
		return path;
	(void)snprintf(path, sizeof(path), "%s", rig_path("keys"));
	f = fopen(path, "w");
	T_CHECK(f);
	T_EQ(fchmod(fileno(f), 0600), 0);
	T_CHECK(fputs("other:00112233445566778899aabbccddeeff\n"
		      "test:0123456789abcdef0123456789ABCDEF\n",
		      f) >= 0);
	T_EQ(fclose(f), 0);
	T_EQ(setenv("PST_KEYS", path, 1), 0);
	return path;
}

/* Return a port that is free now. */
static int free_port(void)
{
	struct sockaddr_in in = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(in);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	T_CHECK(fd >= 0);
	T_CHECK(bind(fd, (struct sockaddr *)&in, sizeof(in)) == 0);
	T_CHECK(getsockname(fd, (struct sockaddr *)&in, &len) == 0);
	(void)close(fd);
	return ntohs(in.sin_port);
}

/* Start the server; return when it listens. */
static void server_start(const char *more)
{
	char listen[64], sock[600], buf[512] = "";
	int out[2];
	const char *args[] = { "penstock", "serve", "--root", rig_path("."), "--listen", listen,
			       "--listen", sock,    NULL,     NULL,          NULL,       NULL };
	unsigned nr = 8;
	size_t got = 0;

	if (more)
		args[nr++] = more;
	if (tls) {
		args[nr++] = "--keys";
		args[nr++] = keys_file();
	}
	/* End the server of a failed case, which may be stopped. */
	if (server.pid > 0) {
		(void)kill(server.pid, SIGKILL);
		(void)waitpid(server.pid, NULL, 0);
	}
	if (!server.port)
		server.port = free_port();
	(void)snprintf(listen, sizeof(listen), "127.0.0.1:%d", server.port);
	(void)snprintf(sock, sizeof(sock), "unix:%s", rig_path("sock"));
	T_CHECK(pipe2(out, O_CLOEXEC) == 0);
	server.pid = fork();
	T_CHECK(server.pid >= 0);
	if (server.pid == 0) {
		(void)dup2(out[1], 2);
		(void)execv(getenv("PENSTOCK"), (char **)args);
		_exit(127);
	}
	(void)close(out[1]);
	while (!strstr(buf, "listening on unix:")) {
		ssize_t n = read(out[0], buf + got, sizeof(buf) - 1 - got);

		T_CHECK(n > 0);
		got += (size_t)n;
	}
	(void)close(out[0]);
}

static void server_end(int sig)
{
	int status;

	T_CHECK(kill(server.pid, sig) == 0);
	T_EQ(waitpid(server.pid, &status, 0), server.pid);
	if (sig == SIGTERM)
		T_EQ(status, 0);
	server.pid = 0;
}

static const char *url(const char *name)
{
	static char text[800];

	(void)snprintf(text, sizeof(text), "%s127.0.0.1:%d/%s", tls ? "psts://test@" : "pst://",
		       server.port, name);
	return text;
}

/* ----------------------------------------------------------------------- cases */

static void reads(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	char unix_url[800];
	struct pst_file *f;
	struct pst_done d;

	rig_make(rig_path("data"), SEED, LEN);
	server_start(NULL);
	f = rig_open(url("data"), RIG_R);
	T_EQ(rig_file_info(f).size, LEN);
	d = rig_read(f, m, 0, 0, LEN);
	T_EQ(d.res, LEN);
	T_EQ(d.why, PST_WHY_NONE);
	T_EQ(d.paths, TCP | (!strcmp(rig_dev, "host") ? 0 : PST_PATH_BIT(PST_PATH_STAGED)));
	T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
	/* Read at and beyond the end of the file. */
	T_EQ(rig_read(f, m, LEN - 100, 0, 4096).res, 100);
	T_EQ(rig_mem_differs(m, 0, 100, SEED, LEN - 100), 100);
	T_EQ(rig_read(f, m, LEN, 0, 4096).res, 0);
	T_EQ(rig_read(f, m, LEN + 5, 0, RIG_MIB(3)).res, 0);
	/* A file that is only open for reading. */
	T_EQ(rig_read(f, m, 1, 0, RIG_MIB(2)).res, RIG_MIB(2));
	pst_file_close(f);
	(void)snprintf(unix_url, sizeof(unix_url), "pst+unix://%s:/data", rig_path("sock"));
	f = rig_open(unix_url, RIG_R);
	T_EQ(rig_read(f, m, 3, 0, RIG_MIB(2)).res, RIG_MIB(2));
	T_EQ(rig_mem_differs(m, 0, RIG_MIB(2), SEED, 3), RIG_MIB(2));
	pst_file_close(f);
	pst_mem_free(m);
	server_end(SIGTERM);
}

static void writes(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	struct pst_file *f;
	char *got = malloc(LEN);
	struct stat st;

	T_CHECK(got);
	(void)unlink(rig_path("new"));
	server_start("--write");
	f = rig_open(url("new"), RIG_NEW);
	rig_mem_fill(m, 0, LEN, SEED, 0);
	T_EQ(rig_write(f, m, 0, 0, LEN).res, LEN);
	T_EQ(rig_sync(f).res, 0);
	T_EQ(rig_slurp(rig_path("new"), 0, got, LEN), LEN);
	T_EQ(t_differs(got, SEED, 0, LEN), LEN);
	T_CHECK(stat(rig_path("new"), &st) == 0 && st.st_size == (off_t)LEN);
	pst_file_close(f);
	f = rig_open(url("new"), RIG_NEW);
	T_EQ(rig_file_info(f).size, 0);
	pst_file_close(f);
	free(got);
	pst_mem_free(m);
	server_end(SIGTERM);
	/* Without the option the server is read-only. */
	server_start(NULL);
	T_EQ(pst_file_open(url("new"), RIG_RW, NULL, &f), -EROFS);
	server_end(SIGTERM);
}

/* Return a hash of the sockets that this process has open. */
static uint64_t sockets(void)
{
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;
	uint64_t sum = 0;

	T_CHECK(d);
	while ((e = readdir(d))) {
		char to[64] = "";

		if (readlinkat(dirfd(d), e->d_name, to, sizeof(to) - 1) > 0 &&
		    !strncmp(to, "socket:[", 8))
			sum += strtoull(to + 8, NULL, 10);
	}
	(void)closedir(d);
	return sum;
}

static void many_at_once(void)
{
	enum { NR = 512 };
	struct pst_mem *m = rig_alloc(rig_dev, NR * 4096);
	struct pst_file *f;
	unsigned ended = 0;
	uint64_t before;

	rig_make(rig_path("data"), SEED, LEN);
	server_start(NULL);
	f = rig_open(url("data"), RIG_R);
	T_EQ(rig_read(f, m, 0, 0, 4096).res, 4096);
	before = sockets();
	for (unsigned i = 0; i < NR;) {
		struct pst_io io = rig_io(PST_OP_READ, f, m, i * 8192 + i, i * 4096, 4096);
		int r = pst_queue_prep(rig_q, &io);

		if (r == 0) {
			i++;
			continue;
		}
		T_EQ(r, -EAGAIN);
		T_CHECK(pst_queue_submit(rig_q) >= 0);
		T_EQ(rig_reap1(rig_q).res, 4096);
		ended++;
	}
	T_CHECK(pst_queue_submit(rig_q) >= 0);
	for (; ended < NR; ended++)
		T_EQ(rig_reap1(rig_q).res, 4096);
	for (unsigned i = 0; i < NR; i++)
		T_EQ(rig_mem_differs(m, i * 4096, 4096, SEED, i * 8192 + i), 4096);
	/* The connection is the same, so no request was repeated. */
	T_EQ(sockets(), before);
	pst_file_close(f);
	pst_mem_free(m);
	server_end(SIGTERM);
}

/* All bytes of a read arrive without reaping, and a write reaches the server.  Both are larger
 * than the sockets' buffers. */
static void bytes_come_while_the_program_computes(void)
{
	enum { BIG = RIG_MIB(24) };
	struct pst_queue *q = rig_queue(rig_backend, 8);
	struct pst_mem *m = rig_alloc("host", BIG), *w = rig_alloc(rig_dev, BIG);
	uint8_t *bytes = pst_mem_ptr(m), end[4096];
	struct iovec to_end = { end, sizeof(end) };
	struct iovec from_end = { bytes + BIG - sizeof(end), sizeof(end) };
	uint64_t hang = t_hang();
	struct stat st;
	struct pst_file *f, *to;
	struct pst_io io;

	server_start("--write");
	rig_make(rig_path("data"), SEED, BIG);
	f = rig_open(url("data"), RIG_R);
	to = rig_open(url("copy"), RIG_NEW);
	io = rig_io(PST_OP_READ, f, m, 0, 0, BIG);
	T_OK(pst_queue_prep(q, &io));
	T_EQ(pst_queue_submit(q), 1);
	do {
		(void)usleep(1000);
		/* Read through the kernel: the memory belongs to the request until its
		 * completion. */
		T_EQ(process_vm_readv(getpid(), &to_end, 1, &from_end, 1, 0), sizeof(end));
	} while (t_differs(end, SEED, BIG - sizeof(end), sizeof(end)) != sizeof(end) &&
		 t_now() < hang);
	T_EQ(t_differs(end, SEED, BIG - sizeof(end), sizeof(end)), sizeof(end));
	T_EQ(rig_reap1(q).res, BIG);
	T_EQ(t_differs(bytes, SEED, 0, BIG), BIG);
	T_OK(pst_mem_copy_in(w, 0, bytes, BIG));
	io = rig_io(PST_OP_WRITE, to, w, 0, 0, BIG);
	T_OK(pst_queue_prep(q, &io));
	T_EQ(pst_queue_submit(q), 1);
	while ((stat(rig_path("copy"), &st) < 0 || st.st_size < BIG) && t_now() < hang)
		(void)usleep(1000);
	T_EQ(st.st_size, BIG);
	T_EQ(rig_reap1(q).res, BIG);
	(void)pst_file_close(f);
	(void)pst_file_close(to);
	server_end(SIGTERM);
	(void)pst_mem_free(m);
	(void)pst_mem_free(w);
	pst_queue_free(q);
}

/* A read continues by itself when the server runs again. */
static void a_restart_is_survived(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	struct pst_file *f;
	struct pst_io io;

	rig_make(rig_path("data"), SEED, LEN);
	server_start(NULL);
	f = rig_open(url("data"), RIG_R);
	T_EQ(rig_read(f, m, 0, 0, 4096).res, 4096);
	server_end(SIGKILL);
	io = rig_io(PST_OP_READ, f, m, 0, 0, LEN);
	T_OK(pst_queue_prep(rig_q, &io));
	T_EQ(pst_queue_submit(rig_q), 1);
	server_start(NULL);
	T_EQ(rig_reap1(rig_q).res, LEN);
	T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
	pst_file_close(f);
	pst_mem_free(m);
	server_end(SIGTERM);
}

static void a_sync_after_a_restart_fails(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	struct pst_file *f, *other, *third;

	rig_make(rig_path("data"), SEED, LEN);
	server_start("--write");
	f = rig_open(url("data"), RIG_RW);
	other = rig_open(url("data"), RIG_RW);
	third = rig_open(url("data"), RIG_RW);
	T_EQ(rig_write(f, m, 0, 0, 4096).res, 4096);
	T_EQ(rig_sync(f).res, 0);
	T_EQ(rig_write(f, m, 0, 0, 4096).res, 4096);
	T_EQ(rig_write(other, m, 8192, 0, 4096).res, 4096);
	T_EQ(rig_sync(other).res, 0);
	T_EQ(rig_write(third, m, 12288, 0, 4096).res, 4096);
	server_end(SIGKILL);
	server_start("--write");
	T_EQ(rig_sync(third).res, -EIO);
	/* Later writes do not make the lost one durable. */
	T_EQ(rig_write(f, m, 4096, 0, 4096).res, 4096);
	T_EQ(rig_sync(f).res, -EIO);
	T_EQ(rig_sync(f).res, -EIO);
	/* The other file was synced before the restart. */
	T_EQ(rig_sync(other).res, 0);
	T_EQ(rig_write(other, m, 8192, 0, 4096).res, 4096);
	T_EQ(rig_sync(other).res, 0);
	pst_file_close(f);
	pst_file_close(other);
	pst_file_close(third);
	pst_mem_free(m);
	server_end(SIGTERM);
}

static void another_file_of_that_name_is_noticed(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, 4096);
	struct pst_file *f;

	rig_make(rig_path("data"), SEED, 8192);
	server_start(NULL);
	f = rig_open(url("data"), RIG_R);
	T_EQ(rig_read(f, m, 0, 0, 4096).res, 4096);
	server_end(SIGKILL);
	rig_make(rig_path("data2"), SEED + 1, 8192);
	T_CHECK(rename(rig_path("data2"), rig_path("data")) == 0);
	server_start(NULL);
	T_EQ(rig_read(f, m, 0, 0, 4096).res, -ESTALE);
	pst_file_close(f);
	pst_mem_free(m);
	server_end(SIGTERM);
}

/* Some requests have unmapped memory and fail; all others get their bytes. */
static void memory_that_is_gone(void)
{
	enum { NR = 64, PAGE = 4096, GONE = 5 };
	struct pst_mem_opts o = { .sz = sizeof(o) };
	char *p = mmap(NULL, NR * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct pst_mem *m = NULL;
	struct pst_file *f;
	uint64_t before;

	T_CHECK(p != MAP_FAILED);
	rig_make(rig_path("data"), SEED, LEN);
	server_start(NULL);
	f = rig_open(url("data"), RIG_R);
	T_OK(pst_mem_wrap((uint64_t)(uintptr_t)p, NR * PAGE, &o, &m));
	T_EQ(rig_read(f, m, 0, 0, PAGE).res, PAGE);
	before = sockets();
	for (unsigned i = GONE; i < NR; i += GONE)
		T_EQ(munmap(p + i * PAGE, PAGE), 0);
	for (unsigned i = 0; i < NR; i++) {
		struct pst_io io = rig_io(PST_OP_READ, f, m, i * PAGE, i * PAGE, PAGE);

		io.user_data = i;
		T_OK(pst_queue_prep(rig_q, &io));
	}
	T_EQ(pst_queue_submit(rig_q), NR);
	for (unsigned n = 0; n < NR; n++) {
		struct pst_done d = rig_reap1(rig_q);
		uint64_t i = d.user_data;

		T_EQ(d.res, i && i % GONE == 0 ? -EFAULT : PAGE);
		if (d.res == PAGE)
			T_EQ(t_differs(p + i * PAGE, SEED, i * PAGE, PAGE), PAGE);
	}
	T_EQ(sockets(), before);
	pst_file_close(f);
	pst_mem_free(m);
	(void)munmap(p, NR * PAGE);
	server_end(SIGTERM);
}

/* Check that the deadline ends a request, and that it then uses neither memory nor file. */
static void gives_up(uint32_t op, struct pst_file *f, struct pst_mem *m, unsigned ms)
{
	struct pst_io io = rig_io(op, f, m, 0, 0, LEN);

	io.deadline_ns = t_in_ms(ms);
	T_EQ(rig_do(rig_q, &io).res, -ETIMEDOUT);
	T_OK(pst_mem_drain(m, t_in_ms(RIG_WAIT_MS)));
	T_OK(pst_file_drain(f, t_in_ms(RIG_WAIT_MS)));
}

/* With a stopped server, deadlines hold, and neither memory nor file stays in use. */
static void a_stopped_server_keeps_nothing(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	struct pst_file *f;
	uint64_t before;

	rig_make(rig_path("data"), SEED, LEN);
	server_start("--write");
	f = rig_open(url("data"), RIG_RW);
	T_EQ(rig_read(f, m, 0, 0, 4096).res, 4096);
	T_CHECK(kill(server.pid, SIGSTOP) == 0);
	before = sockets();
	gives_up(PST_OP_READ, f, m, 100);
	T_EQ(sockets(), before);
	/* A write that is given up ends its connection: the server must not run it after a write of
	 * the next connection.  On a busy machine the write may be given up before it was sent, so
	 * retry. */
	for (unsigned ms = 100; sockets() == before; ms *= 2) {
		T_CHECK(ms < RIG_WAIT_MS);
		gives_up(PST_OP_WRITE, f, m, ms);
	}
	T_CHECK(kill(server.pid, SIGCONT) == 0);
	/* The write that was given up does not arrive later: this write is the last. */
	rig_mem_fill(m, 0, LEN, SEED, 0);
	T_EQ(rig_write(f, m, 0, 0, LEN).res, LEN);
	T_EQ(rig_read(f, m, 0, 0, LEN).res, LEN);
	T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
	pst_file_close(f);
	pst_mem_free(m);
	server_end(SIGTERM);
}

/* Count the server's open descriptors of a file. */
static unsigned server_files(const char *name)
{
	char path[64], to[PATH_MAX], want[PATH_MAX];
	struct dirent *e;
	unsigned nr = 0;
	ssize_t n;
	DIR *d;

	(void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)server.pid);
	(void)snprintf(want, sizeof(want), "%s", rig_path(name));
	d = opendir(path);
	T_CHECK(d);
	while ((e = readdir(d))) {
		n = readlinkat(dirfd(d), e->d_name, to, sizeof(to) - 1);
		if (n > 0 && (size_t)n == strlen(want) && !memcmp(to, want, (size_t)n))
			nr++;
	}
	(void)closedir(d);
	return nr;
}

/* Open a file through another name of the socket, which is another server to the library. */
static struct pst_file *open_by_link(unsigned nr, const char *name)
{
	char link[PATH_MAX], text[2 * PATH_MAX];

	(void)snprintf(link, sizeof(link), "%s%u", rig_path("sock"), nr);
	T_CHECK(symlink(rig_path("sock"), link) == 0 || errno == EEXIST);
	(void)snprintf(text, sizeof(text), "pst+unix://%s:/%s", link, name);
	return rig_open(text, PST_FILE_READ);
}

static void read_byte(struct pst_queue *q, struct pst_file *f, struct pst_mem *m)
{
	struct pst_io io = rig_io(PST_OP_READ, f, m, 0, 0, 1);

	T_EQ(rig_do(q, &io).res, 1);
}

/* A close reaches the server, even if the send buffer is full at that moment. */
static void a_close_waits_for_room(void)
{
	enum { LINKS = 8, EACH = 200, NR = LINKS * EACH };
	struct pst_queue_opts opts = { .sz = sizeof(opts), .depth = NR };
	struct pst_mem *m = rig_alloc("host", NR);
	struct pst_file *f[LINKS], *other;
	struct pst_queue *q;
	struct pst_done d;

	rig_make(rig_path("data"), SEED, LEN);
	rig_make(rig_path("other"), SEED, LEN);
	server_start(NULL);
	T_EQ(pst_queue_new(&opts, &q), 0);
	for (unsigned i = 0; i < LINKS; i++) {
		f[i] = open_by_link(i, "data");
		read_byte(q, f[i], m);
	}
	other = open_by_link(0, "other");
	read_byte(q, other, m);
	T_EQ(server_files("other"), 1);
	T_CHECK(kill(server.pid, SIGSTOP) == 0);
	for (unsigned i = 0; i < NR; i++) {
		struct pst_io io = rig_io(PST_OP_READ, f[i % LINKS], m, i, i, 1);

		T_EQ(pst_queue_prep(q, &io), 0);
	}
	T_EQ(pst_queue_submit(q), NR);
	pst_file_close(other);
	/* Reaping handles closed files. */
	T_EQ(pst_queue_reap(q, &d, 0, 1, 0), 0);
	T_CHECK(kill(server.pid, SIGCONT) == 0);
	for (unsigned i = 0; i < NR; i++)
		T_EQ(rig_reap1(q).res, 1);
	for (unsigned ms = 0; server_files("other"); ms += 10) {
		T_CHECK(ms < RIG_WAIT_MS);
		read_byte(q, f[0], m);
		(void)usleep(10000);
	}
	for (unsigned i = 0; i < LINKS; i++)
		pst_file_close(f[i]);
	pst_queue_free(q);
	pst_mem_free(m);
	server_end(SIGTERM);
}

/* Random reads and writes against a model, while the server is killed and restarted. */
static void a_model_holds_through_restarts(void)
{
	enum { SIZE = 1 << 20, STEPS = 400, KILLS = 8 };
	struct pst_mem *m = rig_alloc(rig_dev, SIZE);
	char *model = calloc(1, SIZE), *buf = malloc(SIZE);
	struct pst_file *f;

	T_CHECK(model && buf);
	rig_make(rig_path("data"), SEED, SIZE);
	T_EQ(rig_slurp(rig_path("data"), 0, model, SIZE), SIZE);
	server_start("--write");
	f = rig_open(url("data"), RIG_RW);
	for (unsigned i = 0; i < STEPS; i++) {
		uint64_t off = rig_below(SIZE), len = 1 + rig_below(SIZE - off);
		struct pst_io io = rig_io(rig_below(2) ? PST_OP_READ : PST_OP_WRITE, f, m, off, 0,
					  len);

		if (io.op == PST_OP_WRITE) {
			t_fill(model + off, rig_random(), 0, len);
			T_OK(pst_mem_copy_in(m, 0, model + off, len));
		}
		T_OK(pst_queue_prep(rig_q, &io));
		T_EQ(pst_queue_submit(rig_q), 1);
		if (i % (STEPS / KILLS) == STEPS / KILLS - 1) {
			server_end(SIGKILL);
			server_start("--write");
		}
		T_EQ(rig_reap1(rig_q).res, len);
		if (io.op == PST_OP_READ) {
			T_OK(pst_mem_copy_out(m, 0, buf, len));
			T_CHECK(!memcmp(buf, model + off, len));
		}
	}
	pst_file_close(f);
	T_EQ(rig_slurp(rig_path("data"), 0, buf, SIZE), SIZE);
	T_CHECK(!memcmp(buf, model, SIZE));
	free(model);
	free(buf);
	pst_mem_free(m);
	server_end(SIGTERM);
}

/*
 * The eighth and ninth copy from device to staging memory are wrong; earlier copies fill the memory
 * and verify the device.  The service accepts the bytes as sent; only the device's checksum
 * differs.
 */
static void wrong_copies_are_not_written(void)
{
	enum { SIZE = 100000 };
	struct pst_queue *q = rig_queue(rig_best_backend(), 0);
	struct pst_mem *m = rig_alloc("soft:0", SIZE);
	char *model = malloc(SIZE), *buf = malloc(SIZE);
	struct pst_file *f;
	struct pst_done d;
	struct pst_io io;

	(void)unlink(rig_path("data"));
	server_start("--write");
	f = rig_open(url("data"), RIG_NEW);
	t_fill(model, SEED, 0, SIZE);
	T_OK(pst_mem_copy_in(m, 0, model, SIZE)); /* copy 1 */
	io = rig_io(PST_OP_WRITE, f, m, 0, 0, SIZE);
	io.flags = PST_IO_CRC32C | PST_IO_CRC32C_MEM;
	T_EQ(rig_do(q, &io).res, -EBADMSG); /* copy 8 */
	io.flags = PST_IO_CRC32C;
	d = rig_do(q, &io); /* copy 9 */
	T_EQ(d.res, SIZE);
	T_CHECK(d.crc32c != rig_crc32c(0, model, SIZE));
	T_EQ(rig_slurp(rig_path("data"), 0, buf, SIZE), SIZE);
	T_CHECK(memcmp(buf, model, SIZE) != 0);
	io.flags = PST_IO_CRC32C | PST_IO_CRC32C_MEM;
	d = rig_do(q, &io); /* copy 10 */
	T_EQ(d.res, SIZE);
	T_EQ(d.paths & TCP, TCP);
	T_EQ(d.crc32c, rig_crc32c(0, model, SIZE));
	T_EQ(rig_slurp(rig_path("data"), 0, buf, SIZE), SIZE);
	T_CHECK(!memcmp(buf, model, SIZE));
	pst_file_close(f);
	pst_queue_free(q);
	pst_mem_free(m);
	free(model);
	free(buf);
	server_end(SIGTERM);
}

static void names_stay_beneath_the_root(void)
{
	struct pst_file *f;

	(void)unlink(rig_path("out"));
	(void)unlink(rig_path("in"));
	rig_make(rig_path("data"), SEED, 100);
	T_CHECK(symlink("/etc/passwd", rig_path("out")) == 0);
	T_CHECK(symlink("data", rig_path("in")) == 0);
	server_start("--write");
	T_EQ(pst_file_open(url("out"), RIG_R, NULL, &f), -EXDEV);
	T_EQ(pst_file_open(url("../x"), RIG_R, NULL, &f), -EXDEV);
	T_EQ(pst_file_open(url("../x"), RIG_NEW, NULL, &f), -EXDEV);
	T_EQ(pst_file_open(url("."), RIG_R, NULL, &f), -EISDIR);
	T_EQ(pst_file_open(url("nix"), RIG_R, NULL, &f), -ENOENT);
	T_EQ(pst_file_open(url("sock"), RIG_R, NULL, &f), -ENXIO);
	f = rig_open(url("in"), RIG_R);
	T_EQ(rig_file_info(f).size, 100);
	pst_file_close(f);
	server_end(SIGTERM);
}

static const struct again again_cases[] = {
	{ "wrong_copies_are_not_written", wrong_copies_are_not_written, AGAIN_ONCE,
	  "mem.copy:8:wrong,mem.copy:9:wrong" },
};

int main(int argc, char **argv)
{
	rig_init();
	tls = getenv("PST_TEST_TLS");
	if (argc > 1)
		return again_child(again_cases, RIG_NR(again_cases), argv[1]);
	RIG_RUN(reads);
	RIG_RUN(writes);
	RIG_RUN(many_at_once);
	again_all(again_cases, RIG_NR(again_cases));
	RIG_RUN(bytes_come_while_the_program_computes);
	RIG_RUN_BACKENDS(memory_that_is_gone);
	RIG_RUN(a_restart_is_survived);
	RIG_RUN_BACKENDS(a_sync_after_a_restart_fails);
	RIG_RUN_BACKENDS(another_file_of_that_name_is_noticed);
	RIG_RUN(a_stopped_server_keeps_nothing);
	RIG_RUN1(a_close_waits_for_room);
	RIG_RUN(a_model_holds_through_restarts);
	RIG_RUN1(names_stay_beneath_the_root);
	return rig_done();
}
