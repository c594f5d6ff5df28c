/* SPDX-License-Identifier: MIT */
/*
 * Count the user-space instructions of a 4 KiB read of a cached file into host memory, from
 * pst_queue_prep() to pst_queue_reap(), by single steps of a debugger.  docs/PERFORMANCE.md has
 * the count of callgrind for a release build.
 */
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "rig.h"

#define SEED 1
#define FILE_LEN RIG_MIB(1)
#define PIECE 4096u
#define DEPTH 32u
#define FEW 1u /* rounds of DEPTH reads; MANY - FEW cancels one-time costs */
#define MANY 2u
#define MOST 1460u /* 10 % above the 1,327 of November 2026 */
#define TRIES 5u   /* a page fault or one more look at the clock adds instructions */

enum { NO_URING = 2, NO_PTRACE = 3 }; /* exit status of the child */

static const char *why; /* why counting is impossible here, or NULL */

static void round_of_reads(struct pst_queue *q, struct pst_file *f, struct pst_mem *m)
{
	struct pst_done d[DEPTH];

	for (unsigned i = 0; i < DEPTH; i++) {
		struct pst_io io = rig_io(PST_OP_READ, f, m, (i * 37 % 256) * PIECE, i * PIECE,
					  PIECE);

		if (pst_queue_prep(q, &io) < 0)
			_exit(1);
	}
	if (pst_queue_submit(q) != DEPTH ||
	    pst_queue_reap(q, d, DEPTH, DEPTH, PST_NO_DEADLINE) != DEPTH)
		_exit(1);
	for (unsigned i = 0; i < DEPTH; i++)
		if (d[i].res != PIECE)
			_exit(1);
}

/* Read this many rounds between two SIGSTOPs: the parent counts between them. */
static void child(unsigned rounds)
{
	struct pst_queue_opts o = { .sz = sizeof(o), .backend = PST_BACKEND_URING, .depth = DEPTH };
	struct pst_queue *q = NULL;
	struct pst_file *f = NULL;
	struct pst_mem *m = NULL;

	if (rig_backend_check(PST_BACKEND_URING) < 0)
		_exit(NO_URING);
	if (pst_queue_new(&o, &q) < 0 || pst_mem_alloc("host", DEPTH * PIECE, NULL, &m) < 0 ||
	    pst_file_open(rig_path("data"), PST_FILE_READ, NULL, &f) < 0)
		_exit(1);
	/* warm up: the memory gets registered, and the library learns that the file is cached */
	for (unsigned i = 0; i < 100; i++)
		round_of_reads(q, f, m);
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
		_exit(NO_PTRACE);
	(void)raise(SIGSTOP);
	for (unsigned i = 0; i < rounds; i++)
		round_of_reads(q, f, m);
	(void)raise(SIGSTOP);
	_exit(0);
}

/* Return the number of instructions between the child's stops.  Return 0 and set why if it
 * cannot be traced. */
static uint64_t count(unsigned rounds)
{
	uint64_t steps = 0;
	int status = 0;
	pid_t pid;

	(void)fflush(stdout);
	pid = fork();
	if (pid == 0)
		child(rounds);
	T_CHECK(pid > 0);
	T_EQ(waitpid(pid, &status, 0), pid);
	if (!WIFSTOPPED(status)) {
		why = WEXITSTATUS(status) == NO_URING    ? "io_uring"
		      : WEXITSTATUS(status) == NO_PTRACE ? "ptrace(2) is refused"
							 : NULL;
		if (!why)
			T_FAIL("the child ended with status %d", status);
		return 0;
	}
	do {
		steps++;
		if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) < 0 ||
		    waitpid(pid, &status, 0) != pid)
			break;
	} while (WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
	T_CHECK(WIFSTOPPED(status));
	(void)kill(pid, SIGKILL);
	T_EQ(waitpid(pid, &status, 0), pid);
	return steps;
}

/* Linked in only if ./dev coverage counts branches. */
__attribute__((weak)) void __gcov_init(void *info);

static void warm_read(void)
{
	uint64_t few, many, each = UINT64_MAX;

	if (__gcov_init)
		T_SKIP("a build whose instructions are the library's own");
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
	T_SKIP("a build whose instructions are the library's own");
#endif
	rig_make(rig_path("data"), SEED, FILE_LEN);
	rig_warm(rig_path("data"));
	for (unsigned i = 0; i < TRIES && each > MOST; i++) {
		few = count(FEW);
		many = few ? count(MANY) : 0;
		if (why)
			T_SKIP("%s", why);
		T_CHECK(many > few);
		each = (many - few) / ((MANY - FEW) * DEPTH);
		printf("# %" PRIu64 " instructions per operation\n", each);
	}
	T_CHECK(each <= MOST);
	T_CHECK(each > MOST / 4); /* fewer instructions mean that something else was counted */
}

int main(void)
{
	rig_init();
	/* Run this case first: its children use the library, so this process must not have used it
	 * before. */
	t_run("warm_read", warm_read);
	return rig_done();
}
