/* SPDX-License-Identifier: MIT */
/*
 * Grant GPU memory to another process, which maps it by the grant alone, without CUDA, or imports
 * it by CUDA and maps that.
 *
 *	gpu-lend [-m DEVICE] [-b BACKEND] [DIRECTORY]
 *	gpu-lend ... --peer grant|import FD	the other process
 *	gpu-lend ... --map FD			receive a grant over FD, map it without CUDA,
 *						add 1 to each byte
 *
 * Prints TAP, and after a failed case the library's log.
 */
#include <getopt.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "hw_window.h"

#define RIGHTS (PST_RIGHT_READ | PST_RIGHT_WRITE)
#define LENT 100003u /* bytes granted */

/* In the other process: fail with a message on standard output. */
#define PEER_OK(call)                                                                          \
	do {                                                                                   \
		if ((call) < 0) {                                                              \
			printf("#   in the other process: %s: %s\n", #call, pst_error_text()); \
			print_log();                                                           \
			return 1;                                                              \
		}                                                                              \
	} while (0)

static bool has_libcuda(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512];
	bool found = false;

	while (f && fgets(line, sizeof(line), f))
		found |= strstr(line, "libcuda.so") != NULL;
	if (f)
		(void)fclose(f);
	return found;
}

/* The other process: load what the owner stored, store other bytes.  "grant" must not load
 * libcuda; "import" imports the memory by CUDA first. */
static int peer(const char *how, int sock)
{
	struct pst_grant g = { .sz = sizeof(g) };
	struct pst_window_opts o = opts(0);
	struct pst_window *w = NULL;
	struct pst_mem *m = NULL;
	bool import = !strcmp(how, "import");
	static char buf[LENT];

	pst_log_set(keep, NULL, PST_LOG_DEBUG);
	PEER_OK(pst_grant_recv(sock, &g, t_in_ms(RIG_WAIT_MS)));
	if (import) {
		PEER_OK(pst_mem_import(&g, &m));
		PEER_OK(pst_window_open(m, 0, g.len, &o, &w));
	} else {
		PEER_OK(pst_window_open_grant(&g, &o, &w));
		if (has_libcuda()) {
			printf("#   the other process has libcuda\n");
			return 1;
		}
	}
	pst_grant_done(&g);
	PEER_OK(pst_window_load(w, 0, buf, LENT));
	if (t_differs(buf, 82, 0, LENT) != LENT) {
		printf("#   the other process loads byte %zu wrong\n", t_differs(buf, 82, 0, LENT));
		return 1;
	}
	t_fill(buf, 83, 0, LENT);
	PEER_OK(pst_window_store(w, 0, buf, LENT));
	pst_window_close(w);
	pst_mem_free(m);
	return 0;
}

static void lend(struct pst_mem *m, uint64_t off, const char *how)
{
	struct pst_grant g = { .sz = sizeof(g) };
	int sock[2], status = -1;
	char fd[16];
	pid_t pid;

	rig_mem_fill(m, off, LENT, 82, 0);
	T_OK(pst_mem_export(m, off, LENT, RIGHTS, &g));
	T_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sock), 0);
	(void)fcntl(sock[0], F_SETFD, FD_CLOEXEC);
	(void)snprintf(fd, sizeof(fd), "%d", sock[1]);
	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		(void)execl("/proc/self/exe", "gpu-window", "-m", device, "-b", backend, "--peer",
			    how, fd, (char *)NULL);
		_exit(127);
	}
	(void)close(sock[1]);
	T_OK(pst_grant_send(sock[0], &g, t_in_ms(RIG_WAIT_MS)));
	T_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	if (status != 0)
		T_FAIL("the other process (%s, %s) ended with status 0x%x", how,
		       g.fd < 0 ? "handle" : "descriptor", (unsigned)status);
	device_has(m, off, LENT, 83, 0);
	pst_grant_done(&g);
	(void)close(sock[0]);
}

static void lent_by_descriptor(void)
{
	struct row row = row_of(1, RIG_MIB(32), CU_HANDLE_POSIX_FD, CU_PROT_READ_WRITE);
	struct pst_mem *m = hw_wrap(row.va, row.len);

	lend(m, 0, "grant");
	lend(m, 7654321, "grant");
	lend(m, 4444444, "import");
	pst_mem_free(m);
	end_row(row);
}

static void lent_by_handle(void)
{
	struct pst_mem *m;
	cu_ptr va[2];

	HW_CU(cuMemAlloc_v2(&va[0], RIG_MIB(32)));
	HW_CU(cuMemAlloc_v2(&va[1], 200001));
	m = hw_wrap(va[0], RIG_MIB(32));
	lend(m, 0, "grant");
	lend(m, 7654321, "grant");
	lend(m, 4444444, "import");
	pst_mem_free(m);
	m = hw_wrap(va[1], 200001);
	lend(m, 99998, "grant");
	lend(m, 3, "import");
	pst_mem_free(m);
	HW_CU(cuMemFree_v2(va[0]));
	HW_CU(cuMemFree_v2(va[1]));
}

/* Add 1 to each byte of a received grant and print one JSON object.  For programs in other
 * languages. */
static int map_only(int sock)
{
	struct pst_grant g = { .sz = sizeof(g) };
	struct pst_window_opts o = opts(0);
	struct pst_window *w = NULL;
	uint64_t len, begun;
	unsigned char *buf;

	PEER_OK(pst_grant_recv(sock, &g, t_in_ms(RIG_WAIT_MS)));
	begun = t_now();
	PEER_OK(pst_window_open_grant(&g, &o, &w));
	begun = t_now() - begun;
	len = g.len;
	pst_grant_done(&g);
	buf = malloc(len);
	if (!buf)
		return 1;
	PEER_OK(pst_window_load(w, 0, buf, len));
	for (uint64_t i = 0; i < len; i++)
		buf[i]++;
	PEER_OK(pst_window_store(w, 0, buf, len));
	pst_window_close(w);
	free(buf);
	printf("{\"tool\": \"gpu-lend\", \"bytes\": %" PRIu64 ", \"open_us\": %.1f}\n", len,
	       (double)begun / 1e3);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct option longs[] = { { "peer", required_argument, NULL, 'P' },
					       { "map", required_argument, NULL, 'M' },
					       { 0 } };
	int opt;

	while ((opt = getopt_long(argc, argv, "m:b:", longs, NULL)) != -1) {
		switch (opt) {
		case 'm':
			device = optarg;
			break;
		case 'b':
			backend = optarg;
			break;
		case 'P':
			return optind < argc ? peer(optarg, atoi(argv[optind])) : 2;
		case 'M':
			return map_only(atoi(optarg));
		default:
			return 2;
		}
	}
	if (optind < argc)
		(void)setenv("PST_TEST_DIR", argv[optind], 1);
	if (!windows_start())
		return hw_done();
	RUN(warms_up);
	RUN(lent_by_descriptor);
	RUN(lent_by_handle);
	RUN(nothing_is_left);
	return hw_done();
}
