/* SPDX-License-Identifier: MIT */
/*
 * gdrcopy's sanity test, with its names, options and summary.
 *
 * Each test runs in its own process and process group, and only that process uses the library.
 * Where gdrcopy expects that an address cannot be mapped, this program expects that it can.  Tests
 * of calls, allocators or drivers that cannot be reached from here are waived.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "compat/gdrapi/tools/gdrtools.h"

#define TEST_SECONDS 120u
#define RANDOM_COPIES 1000u
#define SMALL_NR 16u
#define SMALL_SIZE 1000u
#define WORD UINT64_C(0x5ca1ab1e0ddba115)

static char device[PST_DEVICE_NAME_MAX] = "cuda:0";
static bool verbose;

_printf_(1, 2) static void note(const char *fmt, ...)
{
	va_list ap;

	if (!verbose)
		return;
	va_start(ap, fmt);
	(void)vfprintf(stderr, fmt, ap);
	va_end(ap);
}

/* Fail the test unless a condition holds. */
#define MUST(cond)                                                                             \
	do {                                                                                   \
		if (!(cond)) {                                                                 \
			note("%s does not hold at %s:%d; %s; %s\n", #cond, __FILE__, __LINE__, \
			     fail_text(), pst_error_text());                                   \
			_exit(EXIT_FAILURE);                                                   \
		}                                                                              \
	} while (0)

/* ------------------------------------------------------- parts of the tests */

static void open_win(struct win *win, uint64_t size)
{
	struct gdr_opts o = { .size = size };

	(void)snprintf(o.device, sizeof(o.device), "%s", device);
	MUST(gdr_open(&o, align_up(size, GDR_PAGE), win) == 0);
}

static void store_word(const struct win *win, uint64_t v)
{
	MUST(pst_window_store(win->w, 0, &v, sizeof(v)) == 0);
}

static volatile const uint64_t *gdrsanity_word_of(const struct win *win)
{
	return (volatile const uint64_t *)(void *)win->ptr;
}

static uint64_t word_on_device(const struct win *win)
{
	uint64_t v = 0;

	MUST(pst_mem_copy_out(win->mem, win->off, &v, sizeof(v)) == 0);
	return v;
}

static sigjmp_buf fault;

static void on_fault(int sig)
{
	siglongjmp(fault, sig);
}

static bool faults(volatile const uint64_t *at)
{
	struct sigaction sa = { .sa_handler = on_fault };

	(void)sigemptyset(&sa.sa_mask);
	(void)sigaction(SIGSEGV, &sa, NULL);
	(void)sigaction(SIGBUS, &sa, NULL);
	if (sigsetjmp(fault, 1))
		return true;
	note("the address still has %#llx\n", (unsigned long long)*at);
	return false;
}

/* Fork a process, with a socket by which each process tells the other to continue. */
static pid_t fork_with(int *ret_sock)
{
	int fds[2];
	pid_t pid;

	MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
	pid = fork();
	MUST(pid >= 0);
	(void)close(fds[pid == 0]);
	*ret_sock = fds[pid != 0];
	return pid;
}

static void say_go(int sock)
{
	MUST(write(sock, "", 1) == 1);
}

static void wait_go(int sock)
{
	char c;

	MUST(read(sock, &c, 1) == 1);
}

static void child_must_succeed(pid_t pid)
{
	int status = -1;

	MUST(waitpid(pid, &status, 0) == pid);
	MUST(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* --------------------------------------------------------------- the tests */

static void attributes(void)
{
	struct pst_window_backend b[8];
	bool proven = false;
	int n;

	for (size_t i = 0; i < ARRAY_SIZE(b); i++)
		b[i] = (struct pst_window_backend){ .sz = sizeof(b[i]) };
	n = pst_window_backends(device, b, ARRAY_SIZE(b));
	MUST(n > 0 && n <= (int)ARRAY_SIZE(b));
	for (int i = 0; i < n; i++) {
		note("backend %s: %s\n", b[i].name, b[i].err ? b[i].text : "works");
		MUST(b[i].state <= PST_STATE_PROVEN && (b[i].err == 0) == (b[i].text[0] == '\0'));
		proven |= b[i].state == PST_STATE_PROVEN;
	}
	MUST(proven);
}

static void basic(void)
{
	struct pst_mem_info info = { .sz = sizeof(info) };
	struct pst_mem *mem = NULL, *again = NULL;

	MUST(pst_mem_alloc(device, KIB(256) + 16, NULL, &mem) == 0);
	MUST(pst_mem_info(mem, &info) == 0);
	MUST(pst_mem_wrap(info.addr, info.len, NULL, &again) == 0);
	(void)pst_mem_free(again);
	(void)pst_mem_free(mem);
}

static void *pin_in_thread(void *arg)
{
	struct win *win = arg;
	struct win_set set = { 0 };
	struct pst_window *w = NULL;
	uint64_t v = WORD;

	MUST(win_again(win, &set, 0, sizeof(v), &w) == 0);
	MUST(pst_window_store(w, 0, &v, sizeof(v)) == 0);
	(void)pst_window_close(w);
	return NULL;
}

static void child_thread(void)
{
	pthread_t thread;
	struct win win;

	open_win(&win, sizeof(uint64_t));
	MUST(pthread_create(&thread, NULL, pin_in_thread, &win) == 0);
	MUST(pthread_join(thread, NULL) == 0);
	MUST(word_on_device(&win) == WORD);
	win_close(&win);
}

static void small_buffers(void)
{
	struct pst_window *w[SMALL_NR] = { NULL };
	struct pst_mem *mem[SMALL_NR] = { NULL };
	uint64_t v;

	for (uint64_t i = 0; i < SMALL_NR; i++) {
		MUST(pst_mem_alloc(device, SMALL_SIZE + i * 333, NULL, &mem[i]) == 0);
		MUST(pst_window_open(mem[i], 0, SMALL_SIZE, NULL, &w[i]) == 0);
		v = WORD + i;
		MUST(pst_window_store(w[i], SMALL_SIZE - sizeof(v), &v, sizeof(v)) == 0);
	}
	for (uint64_t i = 0; i < SMALL_NR; i++) {
		MUST(pst_mem_copy_out(mem[i], SMALL_SIZE - sizeof(v), &v, sizeof(v)) == 0);
		MUST(v == WORD + i);
		(void)pst_window_close(w[i]);
		(void)pst_mem_free(mem[i]);
	}
}

static void gdrsanity_unaligned(void)
{
	struct pst_window *w = NULL;
	struct win_set set = { 0 };
	uint64_t v = WORD, back = 0;
	struct win win;

	open_win(&win, 2 * GDR_PAGE);
	for (uint64_t off = GDR_PAGE - 13; off < GDR_PAGE + 13; off += 5) {
		MUST(win_again(&win, &set, off, sizeof(v), &w) == 0);
		MUST(pst_window_store(w, 0, &v, sizeof(v)) == 0);
		MUST(pst_mem_copy_out(win.mem, win.off + off, &back, sizeof(back)) == 0);
		MUST(back == v);
		w = pst_window_close(w);
		v += off;
	}
	win_close(&win);
}

static void data_validation(void)
{
	struct win_checker k;
	struct win_diff d;
	struct win win;

	open_win(&win, KIB(256) + 16);
	MUST(win_checker_init(&k, &win) == 0);
	for (unsigned i = 1; i <= WIN_CHECKS; i++) {
		note("check %u: %s\n", i, win_check_text(i));
		MUST(win_check(&k, i, &d) == 0 && d.nr == 0);
	}
	MUST(win_check_random(&k, RANDOM_COPIES, WORD, &d) == 0 && d.nr == 0);
	win_checker_done(&k);
	win_close(&win);
}

static void access_after_close(void)
{
	volatile const uint64_t *at;
	struct win win;

	open_win(&win, GDR_PAGE);
	at = gdrsanity_word_of(&win);
	MUST(!faults(at));
	win.w = pst_window_close(win.w);
	MUST(faults(at));
	win_close(&win);
}

/* As with gdrdrv's persistent mappings, the window keeps the memory alive. */
static void access_after_free(void)
{
	struct win win;

	open_win(&win, GDR_PAGE);
	store_word(&win, WORD);
	win.mem = pst_mem_free(win.mem);
	MUST(*gdrsanity_word_of(&win) == WORD);
	win_close(&win);
}

static void two_mappings(void)
{
	struct win a, b;

	open_win(&a, GDR_PAGE);
	open_win(&b, GDR_PAGE);
	store_word(&a, WORD);
	store_word(&b, ~WORD);
	MUST(*gdrsanity_word_of(&a) == WORD);
	win_close(&a);
	MUST(*gdrsanity_word_of(&b) == ~WORD && word_on_device(&b) == ~WORD);
	win_close(&b);
}

/* A process that has freed memory must not see another process' stores in that memory. */
static void fork_access_after_free(void)
{
	struct win win;
	pid_t pid;
	int sock;

	pid = fork_with(&sock);
	if (pid == 0) {
		wait_go(sock);
		open_win(&win, GDR_PAGE);
		store_word(&win, ~WORD);
		say_go(sock);
		wait_go(sock);
		_exit(0);
	}
	open_win(&win, GDR_PAGE);
	store_word(&win, WORD);
	win.mem = pst_mem_free(win.mem);
	say_go(sock);
	wait_go(sock);
	MUST(*gdrsanity_word_of(&win) != ~WORD);
	say_go(sock);
	child_must_succeed(pid);
	win_close(&win);
}

static void fork_after_map(void)
{
	struct win win;
	pid_t pid;
	int sock;

	open_win(&win, GDR_PAGE);
	store_word(&win, WORD);
	pid = fork_with(&sock);
	if (pid == 0)
		_exit(!faults(gdrsanity_word_of(&win)));
	child_must_succeed(pid);
	MUST(*gdrsanity_word_of(&win) == WORD);
	win_close(&win);
}

static void fork_child_maps_parents(void)
{
	struct pst_window *w = NULL;
	struct win win;
	pid_t pid;
	int sock;

	open_win(&win, GDR_PAGE);
	pid = fork_with(&sock);
	if (pid == 0)
		_exit(pst_window_open(win.mem, 0, win.len, NULL, &w) != -EOWNERDEAD);
	child_must_succeed(pid);
	win_close(&win);
}

static void fork_map_and_free(void)
{
	struct win win;
	pid_t pid;
	int sock;

	pid = fork_with(&sock);
	open_win(&win, GDR_PAGE);
	store_word(&win, WORD + (pid == 0));
	if (pid == 0) {
		say_go(sock);
		wait_go(sock);
		_exit(word_on_device(&win) != WORD + 1 || *gdrsanity_word_of(&win) != WORD + 1);
	}
	wait_go(sock);
	win_close(&win);
	say_go(sock);
	child_must_succeed(pid);
}

/* Reasons for waiving tests. */
static const char no_vmm[] = "libpenstock allocates by cuMemAlloc and not by cuMemCreate";
static const char no_v2[] = "gdr_pin_buffer_v2() belongs to libgdrapi";
static const char no_force[] = "a window is what the driver gives; PCIe cannot be forced";
static const char no_tokens[] = "P2P tokens are of CUDA 5";
static const char no_mix[] = "memory of a device has mappings of one kind";
static const char no_fd[] = "no process has a descriptor of a driver that it could hand on";
static const char no_leak[] = "there are no pages that the driver pins";

/* The tests in gdrcopy's order, which is alphabetical; the last one runs only with -e. */
static const struct test {
	const char *name;
	void (*run)(void);
	const char *waived; /* why the test is waived; NULL: run it */
} tests[] = {
	{ "attributes_sanity", attributes, NULL },
	{ "basic_child_thread_pins_buffer_cumemalloc", child_thread, NULL },
	{ "basic_child_thread_pins_buffer_vmmalloc", NULL, no_vmm },
	{ "basic_cumemalloc", basic, NULL },
	{ "basic_small_buffers_mapping", small_buffers, NULL },
	{ "basic_unaligned_mapping", gdrsanity_unaligned, NULL },
	{ "basic_v2_cumemalloc", NULL, no_v2 },
	{ "basic_v2_forcepci_cumemalloc", NULL, no_force },
	{ "basic_v2_forcepci_vmmalloc", NULL, no_force },
	{ "basic_v2_vmmalloc", NULL, no_v2 },
	{ "basic_vmmalloc", NULL, no_vmm },
	{ "basic_with_tokens", NULL, no_tokens },
	{ "data_validation_cumemalloc", data_validation, NULL },
	{ "data_validation_mix_mappings_cumemalloc", NULL, no_mix },
	{ "data_validation_v2_cumemalloc", NULL, no_v2 },
	{ "data_validation_v2_forcepci_cumemalloc", NULL, no_force },
	{ "data_validation_vmmalloc", NULL, no_vmm },
	{ "invalidation_access_after_free_cumemalloc", access_after_free, NULL },
	{ "invalidation_access_after_free_vmmalloc", NULL, no_vmm },
	{ "invalidation_access_after_gdr_close_cumemalloc", access_after_close, NULL },
	{ "invalidation_access_after_gdr_close_vmmalloc", NULL, no_vmm },
	{ "invalidation_fork_access_after_free_cumemalloc", fork_access_after_free, NULL },
	{ "invalidation_fork_access_after_free_vmmalloc", NULL, no_vmm },
	{ "invalidation_fork_after_gdr_map_cumemalloc", fork_after_map, NULL },
	{ "invalidation_fork_after_gdr_map_vmmalloc", NULL, no_vmm },
	{ "invalidation_fork_child_gdr_map_parent_cumemalloc", fork_child_maps_parents, NULL },
	{ "invalidation_fork_child_gdr_map_parent_vmmalloc", NULL, no_vmm },
	{ "invalidation_fork_child_gdr_pin_parent_with_tokens", NULL, no_tokens },
	{ "invalidation_fork_map_and_free_cumemalloc", fork_map_and_free, NULL },
	{ "invalidation_fork_map_and_free_vmmalloc", NULL, no_vmm },
	{ "invalidation_two_mappings_cumemalloc", two_mappings, NULL },
	{ "invalidation_two_mappings_vmmalloc", NULL, no_vmm },
	{ "invalidation_unix_sock_shared_fd_gdr_map_cumemalloc", NULL, no_fd },
	{ "invalidation_unix_sock_shared_fd_gdr_map_vmmalloc", NULL, no_fd },
	{ "invalidation_unix_sock_shared_fd_gdr_pin_buffer_cumemalloc", NULL, no_fd },
	{ "invalidation_unix_sock_shared_fd_gdr_pin_buffer_vmmalloc", NULL, no_fd },
	{ "leakage_pin_pages_fork_cumemalloc", NULL, no_leak },
};

#define TESTS ARRAY_SIZE(tests)
#define EXTENDED (TESTS - 1)

/* ------------------------------------------------------------------- runner */

enum outcome { NOT_RUN, PASSED, FAILED, WAIVED, OUTCOMES };

static void gdrsanity_in_child(const struct test *t)
{
	(void)setpgid(0, 0);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)alarm(TEST_SECONDS);
	t->run();
	_exit(EXIT_SUCCESS);
}

static enum outcome run_one(const struct test *t)
{
	enum outcome o = FAILED;
	int status = -1;
	pid_t pid;

	note("&&&& RUNNING %s\n", t->name);
	if (t->waived) {
		note("%s\n&&&& WAIVED %s\n", t->waived, t->name);
		return WAIVED;
	}
	(void)fflush(NULL);
	pid = fork();
	if (pid == 0)
		gdrsanity_in_child(t);
	if (pid > 0) {
		(void)setpgid(pid, pid);
		if (waitpid(pid, &status, 0) == pid && WIFEXITED(status))
			o = WEXITSTATUS(status) == 0 ? PASSED : FAILED;
		(void)killpg(pid, SIGKILL); /* kill the test's remaining children */
	}
	note("&&&& %s %s\n", o == PASSED ? "PASSED" : "FAILED", t->name);
	return o;
}

static void print_list(const enum outcome of[TESTS], enum outcome which, unsigned nr,
		       const char *head)
{
	if (!nr)
		return;
	(void)printf("\nList of %s tests:\n", head);
	for (size_t i = 0; i < TESTS; i++)
		if (of[i] == which)
			(void)printf("    %s\n", tests[i].name);
}

static int gdrsanity_run_all(const bool chosen[TESTS], bool summary)
{
	enum outcome of[TESTS] = { NOT_RUN };
	unsigned nr[OUTCOMES] = { 0 };

	for (size_t i = 0; i < TESTS; i++)
		if (chosen[i]) {
			of[i] = run_one(&tests[i]);
			nr[of[i]]++;
		}
	if (summary) {
		(void)printf("Total: %u, Passed: %u, Failed: %u, Waived: %u\n",
			     nr[PASSED] + nr[FAILED] + nr[WAIVED], nr[PASSED], nr[FAILED],
			     nr[WAIVED]);
		print_list(of, FAILED, nr[FAILED], "failed");
		print_list(of, WAIVED, nr[WAIVED], "waived");
	}
	return nr[FAILED] ? fail(EIO, "Error: Encountered an error or a test failure with status=1")
			  : 0;
}

static int gdrsanity_choose(const char *name, bool chosen[TESTS])
{
	for (size_t i = 0; i < TESTS; i++)
		if (!strcmp(name, tests[i].name)) {
			chosen[i] = true;
			return 0;
		}
	return fail(EINVAL, "Error: Encountered unknown test %s", name);
}

static int list_tests(void)
{
	(void)puts("List of all available tests:");
	for (size_t i = 0; i < TESTS; i++)
		(void)printf("    %s\n", tests[i].name);
	return 0;
}

int gdr_sanity(int argc, char *argv[])
{
	bool chosen[TESTS] = { false }, some = false, extended = false, summary = true;
	int opt, r = 0;

	while (r == 0 && (opt = getopt(argc, argv, ":hvslt:d:e")) != -1) {
		switch (opt) {
		case 'h':
			(void)puts(
				"Usage: gdrcopy_sanity [-h] [-v] [-s] [-l] [-t NAME]... [-d GPU] "
				"[-e]\n\nThe tests of that name in gdrcopy, on windows of "
				"libpenstock; see penstock-window(1).");
			return 0;
		case 'v':
			verbose = true;
			break;
		case 's':
			summary = false;
			break;
		case 'l':
			return list_tests();
		case 't':
			some = true;
			r = gdrsanity_choose(optarg, chosen);
			break;
		case 'd':
			r = gdr_parse_device(optarg, device);
			break;
		case 'e':
			extended = true;
			break;
		case ':':
			r = fail(EINVAL, "option -%c needs a value", optopt);
			break;
		default:
			r = fail(EINVAL, "unknown option -%c", optopt);
		}
	}
	if (r == 0 && optind < argc)
		r = fail(EINVAL, "unexpected argument %s", argv[optind]);
	for (size_t i = 0; !some && i < TESTS; i++)
		chosen[i] = extended || i != EXTENDED;
	return r < 0 ? r : gdrsanity_run_all(chosen, summary);
}
