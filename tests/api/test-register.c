/* SPDX-License-Identifier: MIT */
/*
 * Host memory is registered with the kernel when it pays: not by one request, nothing that
 * nobody touched, and no more than RLIMIT_MEMLOCK has room for.
 */
#include <sys/mman.h>

#include "rig.h"

#define SEED 21
#define LEN RIG_MIB(2048)
#define FILE_LEN RIG_MIB(4)
#define SMALL UINT64_C(4096)
#define HUGE RIG_MIB(2) /* one touch may bring so much */

/* A line of /proc/self/status, in bytes. */
static uint64_t status(const char *name)
{
	FILE *f = fopen("/proc/self/status", "re");
	unsigned long long kib = 0;
	char line[200];
	bool found = false;

	T_CHECK(f);
	while (!found && fgets(line, sizeof(line), f))
		found = !strncmp(line, name, strlen(name)) &&
			sscanf(line + strlen(name), ": %llu", &kib) == 1;
	(void)fclose(f);
	T_CHECK(found);
	return kib << 10;
}

static uint64_t bytes_there(struct pst_mem *m)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), nr = 0;
	unsigned char *there = malloc(LEN / page);

	T_CHECK(there);
	T_EQ(mincore(pst_mem_ptr(m), LEN, there), 0);
	for (uint64_t i = 0; i < LEN / page; i++)
		nr += there[i] & 1;
	free(there);
	return nr * page;
}

/* A queue's ring goes in the background. */
static struct pst_file *data(void)
{
	uint64_t until = t_in_ms(RIG_WAIT_MS);

	while (status("VmPin") && t_now() < until)
		(void)usleep(1000);
	T_EQ(status("VmPin"), 0);
	rig_make(rig_path("data"), SEED, FILE_LEN);
	rig_cold(rig_path("data"));
	return rig_open(rig_path("data"), PST_FILE_READ);
}

static struct pst_done read_at(struct pst_file *f, struct pst_mem *m, uint64_t at)
{
	struct pst_io io = rig_io(PST_OP_READ, f, m, 0, at, SMALL);
	struct pst_done d;

	io.policy = rig_file_info(f).direct ? PST_POLICY1(PST_PATH_DIRECT)
					    : PST_POLICY1(PST_PATH_BUFFERED);
	d = rig_do(rig_q, &io);
	T_EQ(d.res, (int64_t)SMALL);
	return d;
}

/* Reads all over a large buffer bring the pages that they name, and register none of it. */
static void a_large_buffer_is_left_alone(void)
{
	struct pst_mem *m = rig_alloc("host", LEN);
	struct pst_file *f = data();
	uint64_t rss = status("VmRSS");
	unsigned nr = 0;

	for (uint64_t at = 0; at < LEN; at += LEN / 16, nr++)
		T_EQ(read_at(f, m, at).flags & PST_DONE_PINNED, 0);
	T_CHECK(bytes_there(m) <= nr * HUGE);
	T_CHECK(status("VmRSS") <= rss + nr * HUGE + RIG_MIB(4));
	T_EQ(status("VmPin"), 0);
	T_EQ(t_differs((char *)pst_mem_ptr(m) + LEN / 16, SEED, 0, SMALL), SMALL);
	pst_mem_free(m);
	pst_file_close(f);
}

/* What is used again and again is registered, that and no more. */
static void what_is_used_is_registered(void)
{
	struct pst_mem *m = rig_alloc("host", LEN);
	uint64_t rss = status("VmRSS"), until = t_in_ms(RIG_WAIT_MS);
	struct pst_file *f = data();
	struct pst_done d;

	do
		d = read_at(f, m, LEN / 2);
	while (!(d.flags & PST_DONE_PINNED) && d.why == PST_WHY_NONE && t_now() < until &&
	       rig_backend == PST_BACKEND_URING);
	if (rig_backend == PST_BACKEND_URING && d.why == PST_WHY_NONE)
		T_CHECK(d.flags & PST_DONE_PINNED);
	/* Of a huge page the kernel counts all. */
	T_CHECK(status("VmPin") <= HUGE);
	T_EQ(!!status("VmPin"), !!(d.flags & PST_DONE_PINNED));
	T_CHECK(bytes_there(m) <= HUGE);
	T_CHECK(status("VmRSS") <= rss + HUGE + RIG_MIB(4));
	pst_mem_free(m);
	pst_file_close(f);
	T_EQ(status("VmPin"), 0);
}

int main(void)
{
	rig_init();
	RIG_RUN_BACKENDS(a_large_buffer_is_left_alone);
	RIG_RUN_BACKENDS(what_is_used_is_registered);
	return rig_done();
}
