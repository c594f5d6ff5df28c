/* SPDX-License-Identifier: MIT */
/*
 * The cost of ending many requests is proportional to their number.  The test counts the
 * instructions of the thread that ends them by single-stepping it.
 */
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "rig.h"

#include "fusefs.h"

#define FEW 64u
#define PIECE 4096u
#define TRIES 5
#define ENOUGH 3 /* limit: twice as many requests may take this many times the instructions */

static struct fusefs fs;

static void stop_fuse(void)
{
	fusefs_stop(&fs);
}

/* -------------------------------------------------------------- the child */

#define C_CHECK(cond)                                                                 \
	do {                                                                          \
		if (!(cond)) {                                                        \
			(void)fprintf(stderr, "# %s: %s\n", #cond, pst_error_text()); \
			_exit(1);                                                     \
		}                                                                     \
	} while (0)

static void prep(struct pst_queue *q, struct pst_file *f, struct pst_mem *m, unsigned i,
		 uint64_t deadline, uint64_t user_data)
{
	struct pst_io io = rig_io(PST_OP_READ, f, m, i * PIECE, i * PIECE, PIECE);

	io.deadline_ns = deadline;
	io.user_data = user_data;
	C_CHECK(pst_queue_prep(q, &io) == 0);
}

/* Submit hung reads, then end them between two SIGSTOPs; the parent counts the instructions. */
static int child(char **argv)
{
	unsigned nr = (unsigned)atoi(argv[2]);
	bool expire = strcmp(argv[3], "expire") == 0;
	struct pst_queue_opts o = { .sz = sizeof(o),
				    .depth = nr + 1,
				    .backend = (uint32_t)atoi(argv[4]) };
	struct pst_done *d = calloc(nr, sizeof(*d));
	uint64_t deadline = PST_NO_DEADLINE;
	struct pst_queue *q;
	struct pst_mem *m;
	struct pst_file *f;

	C_CHECK(d && pst_queue_new(&o, &q) == 0);
	C_CHECK(pst_mem_alloc(argv[5], (nr + 1) * PIECE, NULL, &m) == 0);
	C_CHECK(pst_file_open(argv[6], PST_FILE_READ | PST_FILE_PLAIN, NULL, &f) == 0);
	/* Call each function once before the count: the first call includes the dynamic linker's
	 * work. */
	prep(q, f, m, nr, PST_NO_DEADLINE, 1);
	C_CHECK(pst_queue_submit(q) == 1 && pst_queue_cancel(q, 1) == 1);
	C_CHECK(pst_queue_reap(q, d, 1, 1, t_in_ms(RIG_WAIT_MS)) == 1);
	if (expire)
		deadline = t_in_ms(1000);
	for (unsigned i = 0; i < nr; i++)
		prep(q, f, m, i, deadline, 2);
	C_CHECK(pst_queue_submit(q) == (int)nr);
	while (expire && t_now() <= deadline)
		(void)usleep(1000);
	C_CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
	(void)raise(SIGSTOP);
	if (expire)
		(void)pst_queue_reap(q, d, 0, nr, 0);
	else
		(void)pst_queue_cancel(q, 2);
	(void)raise(SIGSTOP);
	_exit(0);
}

/* ------------------------------------------------------------- the parent */

static const char *why; /* why counting is impossible here, or NULL */

/* Return the number of instructions that the child's main thread executes between its stops.
 * Return 0 and set why if it cannot be traced. */
static uint64_t count(unsigned nr, const char *how)
{
	char number[16], backend[16], path[200];
	uint64_t steps = 0;
	int status = 0;
	pid_t pid;

	(void)snprintf(number, sizeof(number), "%u", nr);
	(void)snprintf(backend, sizeof(backend), "%u", rig_backend);
	(void)snprintf(path, sizeof(path), "%s/hang", fs.dir);
	pid = fork();
	if (pid == 0) {
		(void)execl("/proc/self/exe", "test-cancel", "child", number, how, backend, rig_dev,
			    path, NULL);
		_exit(127);
	}
	T_CHECK(pid > 0);
	T_EQ(waitpid(pid, &status, 0), pid);
	if (!WIFSTOPPED(status)) {
		why = "ptrace(2) is refused, or the child failed";
		return 0;
	}
	do {
		steps++;
		if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) < 0 ||
		    waitpid(pid, &status, 0) != pid)
			break;
	} while (WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
	if (WIFSTOPPED(status)) {
		(void)kill(pid, SIGKILL);
		/* The killed child exits only after its reads are answered. */
		while (waitpid(pid, &status, WNOHANG) == 0) {
			fusefs_release(&fs);
			(void)usleep(1000);
		}
	}
	return steps;
}

static void ends(const char *how)
{
	uint64_t few = 0, many = 0;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	T_SKIP("a build whose instructions are the library's own");
#endif
	if (fusefs_start(&fs, rig_dir) < 0)
		T_SKIP("%s", fs.why);
	why = NULL;
	/* Other threads of the child may do part of the counted work, so try several times. */
	for (unsigned i = 0; i < TRIES; i++) {
		few = count(FEW, how);
		many = few ? count(2 * FEW, how) : 0;
		if (why || many < ENOUGH * few)
			break;
	}
	fusefs_stop(&fs);
	if (why)
		T_SKIP("%s", why);
	printf("# %s of %u: %" PRIu64 " instructions, of %u: %" PRIu64 "\n", how, FEW, few, 2 * FEW,
	       many);
	T_CHECK(few > FEW);
	T_CHECK(many < ENOUGH * few);
}

static void cancelling(void)
{
	ends("cancel");
}

static void expiring(void)
{
	ends("expire");
}

int main(int argc, char **argv)
{
	if (argc == 7)
		return child(argv);
	rig_init();
	(void)atexit(stop_fuse);
	RIG_RUN(cancelling);
	RIG_RUN(expiring);
	return rig_done();
}
