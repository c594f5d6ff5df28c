/* SPDX-License-Identifier: MIT */
/* Reads: long ranges, many small ones, files that fail or change, device memory, and processes. */
#include "streamer_rig.h"

#define BIG (37u << 20)

static char *big; /* page-aligned memory */

static void long_ranges(void)
{
	/* Ranges across pieces, unaligned in file and memory, and adjacent. */
	static const size_t offs[] = { 12345, 4 << 20, (9 << 20) + 1, 30 << 20 };
	static const size_t sizes[] = { (4 << 20) - 12345, 5 << 20, 20 << 20, 7 << 20 };
	const char *path = rig_file("long", BIG);
	void *s = rig_start();
	void *dsts[4];
	uint64_t id;

	for (int i = 0; i < 4; i++)
		dsts[i] = big + offs[i];
	dsts[2] = big + offs[2] + 7;
	memset(big, 0, BIG + 4096);
	for (int round = 0; round < 3; round++) {
		T_EQ(rig_request(s, path, 4, offs, sizes, dsts, &id), 0);
		for (int i = 0; i < 4; i++) {
			struct response r = rig_response(s);

			T_EQ(r.code, 0);
			T_EQ(t_differs(dsts[r.range], SEED, offs[r.range], sizes[r.range]),
			     sizes[r.range]);
			T_EQ(r.done, i == 3);
		}
	}
	runai_file_streamer_end(s);
}

#define MANY 20000

static void many_small_ranges(void)
{
	size_t *offs = calloc(MANY, sizeof(*offs)), *sizes = calloc(MANY, sizeof(*sizes));
	void **dsts = calloc(MANY, sizeof(*dsts));
	char *seen = calloc(MANY, 1);
	const char *path = rig_file("small", MANY * 16);
	void *s = rig_start();
	uint64_t id;

	T_CHECK(offs && sizes && dsts && seen);
	/* In each run of 100, ranges are adjacent in file and memory; every tenth range is
	 * empty. */
	for (size_t i = 0; i < MANY; i++) {
		size_t run = i / 100;

		offs[i] = (run * 7 % 200) * 1600 + i % 100 * 16;
		sizes[i] = i % 10 == 3 ? 0 : 16;
		dsts[i] = big + i * 16;
	}
	memset(big, 0, MANY * 16);
	T_EQ(rig_request(s, path, MANY, offs, sizes, dsts, &id), 0);
	for (size_t i = 0; i < MANY; i++) {
		struct response r = rig_response(s);

		T_EQ(r.code, 0);
		T_CHECK(r.range < MANY && !seen[r.range]);
		seen[r.range] = 1;
		T_EQ(t_differs(dsts[r.range], SEED, offs[r.range], sizes[r.range]), sizes[r.range]);
		T_EQ(r.done, i == MANY - 1);
	}
	rig_quiet(s);
	runai_file_streamer_end(s);
	free(offs);
	free(sizes);
	free(dsts);
	free(seen);
}

/* A path is replaced by another file between two requests: the second must read the new file. */
static void files_that_are_replaced(void)
{
	const char *path = rig_file("changing", 4096);
	void *s = rig_start();
	char other[100];
	int fd;

	T_EQ(rig_only(s, path, 0, 4096, big), 0);
	fd = open(in_dir("new"), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	memset(other, 'x', sizeof(other));
	T_EQ(write(fd, other, sizeof(other)), (ssize_t)sizeof(other));
	T_EQ(close(fd), 0);
	T_EQ(rename(in_dir("new"), path), 0);
	T_EQ(rig_only(s, path, 0, 4096, big), RUNAI_EOF);
	T_EQ(rig_only(s, path, 0, 100, big), 0);
	T_EQ(memcmp(big, other, 100), 0);
	T_EQ(unlink(path), 0);
	T_EQ(rig_only(s, path, 0, 100, big), RUNAI_FILE_ACCESS);
	runai_file_streamer_end(s);
}

/* More files than the library keeps open; t_done() checks that none stays open. */
static void many_files(void)
{
	void *s = rig_start();
	char name[32];

	for (int i = 0; i < 60; i++) {
		(void)snprintf(name, sizeof(name), "many-%d", i);
		rig_file(name, 64);
	}
	for (int i = 0; i < 120; i++) {
		(void)snprintf(name, sizeof(name), "many-%d", i % 60);
		T_EQ(rig_only(s, in_dir(name), 8, 56, big), 0);
		T_EQ(t_differs(big, SEED, 8, 56), 56);
	}
	runai_file_streamer_end(s);
}

/* The streamer ends with work left: it must drop responses and wait for reads in progress. */
static void ends_with_work_left(void)
{
	const char *path = rig_file("left", BIG);

	for (int i = 0; i < 20; i++) {
		void *s = rig_start();

		for (int k = 0; k <= i % 3; k++) {
			T_EQ(rig_read(s, path, 0, BIG, big), 0);
			T_EQ(rig_read(s, in_dir("missing"), 0, 0, big), 0);
		}
		if (i % 2)
			(void)rig_response(s);
		runai_file_streamer_end(s);
		/* No read may write to the memory any more. */
		memset(big, i, BIG);
		for (size_t at = 0; at < BIG; at += 4096)
			T_CHECK(big[at] == (char)i);
	}
}

/* ------------------------------------------------------------------ faults */

static int want;
static size_t fault_size = 9 << 20;

static void with_fault(void)
{
	const char *path = in_dir("long");
	const size_t offs[] = { 0, 16 << 20 };
	const size_t sizes[] = { fault_size, fault_size };
	void *dsts[] = { big, big + (16 << 20) };
	uint64_t id;
	void *s;

	s = rig_start();
	if (rig_request(s, path, 2, offs, sizes, dsts, &id) != 0)
		T_FAIL("the request is refused");
	for (int i = 0; i < 2; i++) {
		struct response r = rig_response(s);

		T_EQ(r.done, i == 1);
		if (r.code != want)
			T_FAIL("range %u got %d and not %d", r.range, r.code, want);
		if (!r.code)
			T_EQ(t_differs(dsts[r.range], SEED, offs[r.range], sizes[r.range]),
			     sizes[r.range]);
	}
	rig_quiet(s);
	runai_file_streamer_end(s);
}

/* Run a function of this program in a new process, as the library reads its variables when
 * loaded. */
static const char *self;

static void in_process(const char *what, const char *variable, const char *value, int code)
{
	char number[16], text[400] = "";
	int status = -1, fd[2];
	pid_t pid;

	(void)snprintf(number, sizeof(number), "%d", code);
	(void)fflush(stdout);
	T_EQ(pipe2(fd, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		(void)setenv(variable, value, 1);
		(void)dup2(fd[1], 2);
		(void)execl(self, self, what, dir, number, (char *)NULL);
		_exit(127);
	}
	(void)close(fd[1]);
	(void)!read(fd[0], text, sizeof(text) - 1);
	T_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	(void)close(fd[0]);
	if (status)
		T_FAIL("%s=%s: status %#x: %s", variable, value, (unsigned)status, text);
}

static void in_child(const char *what, int code)
{
	in_process("with_fault", "PST_FAULT", what, code);
}

static void faults(void)
{
	rig_file("long", BIG);
	in_child("file.read:0:EIO", RUNAI_FILE_ACCESS);
	in_child("file.open:0:EACCES", RUNAI_FILE_ACCESS);
	in_child("file.open:0:EMFILE", RUNAI_FD_LIMIT);
	in_child("file.read:0:short", 0);
	in_child("file.read:2:short", 0);
	in_child("file.uring:0:EPERM", 0);
	in_child("file.direct:0:EINVAL", 0);
	in_child("file.read:3:20ms", 0);
}

/* One read of many fails: one range must fail, the other must be complete. */
static void one_fault(void)
{
	unsigned good = 0, bad = 0;
	const size_t offs[] = { 0, 16 << 20 };
	const size_t sizes[] = { 9 << 20, 9 << 20 };
	void *dsts[] = { big, big + (16 << 20) };
	uint64_t id;
	void *s;

	s = rig_start();
	T_EQ(rig_request(s, in_dir("long"), 2, offs, sizes, dsts, &id), 0);
	for (int i = 0; i < 2; i++) {
		struct response r = rig_response(s);

		good += r.code == 0 && t_differs(dsts[r.range], SEED, offs[r.range],
						 sizes[r.range]) == sizes[r.range];
		bad += r.code == RUNAI_FILE_ACCESS;
	}
	T_EQ(good, 1);
	T_EQ(bad, 1);
	runai_file_streamer_end(s);
}

static void no_context(void)
{
	void *s;

	s = rig_start();
	T_EQ(rig_read(s, in_dir("long"), 0, 10, big), RUNAI_FD_LIMIT);
	rig_quiet(s);
	runai_file_streamer_end(s);
}

static void a_fault_of_one_read(void)
{
	rig_file("long", BIG);
	in_process("one_fault", "PST_FAULT", "file.read:1:EIO", 0);
	in_process("no_context", "PST_FAULT", "file.context:0:EMFILE", 0);
}

/* --------------------------------------------------------------- processes */

static void *parents;

static void in_fork(void)
{
	uint32_t file, range;
	uint64_t id;
	int done;
	void *s;

	T_EQ(rig_read(parents, in_dir("long"), 0, 10, big), RUNAI_UNKNOWN);
	T_EQ(runai_file_streamer_response(parents, &id, &file, &range, &done, 0), RUNAI_UNKNOWN);
	runai_file_streamer_end(parents);
	/* A child of a process that has read can start a streamer, but not read. */
	s = rig_start();
	T_EQ(rig_read(s, in_dir("long"), 0, 10, big), RUNAI_UNKNOWN);
	runai_file_streamer_end(s);
}

static void forks(void)
{
	rig_file("long", BIG);
	parents = rig_start();
	T_EQ(rig_read(parents, in_dir("long"), 0, BIG, big), 0);
	child_run(in_fork);
	/* The child must not affect the parent. */
	T_EQ(rig_response(parents).code, 0);
	T_EQ(t_differs(big, SEED, 0, BIG), BIG);
	runai_file_streamer_end(parents);
}

static void reads_one(void)
{
	T_EQ(rig_only(parents = rig_start(), in_dir("long"), 5, 10, big), 0);
	T_EQ(t_differs(big, SEED, 5, 10), 10);
	runai_file_streamer_end(parents);
}

/* A parent that has only listed files or probed may fork children that read. */
static void a_parent_that_reads_nothing(void)
{
	const char *path = rig_file("long", BIG);
	size_t block = 0;
	void *s = rig_start();

	(void)runai_file_streamer_probe_direct_block_size(s, &path, 1, &block);
	(void)runai_file_streamer_list_files(s, "/nowhere", 1, NULL, 0, NULL, 0, NULL, NULL);
	child_run(reads_one);
	runai_file_streamer_end(s);
}

/* ------------------------------------------------------------------ device */

static int cuda_read(void *s, int dev, const char *path, size_t off, size_t size, uint64_t addr)
{
	const uint32_t one = 1;
	void *dst = (void *)(uintptr_t)addr;
	uint64_t id;
	int code = runai_file_streamer_request(s, &id, 1, &path, &one, &off, &size, &dst,
					       (struct runai_device){ RUNAI_DEVICE_CUDA, dev });
	return code ? code : rig_response(s).code;
}

static void device_memory(void)
{
	struct pst_mem_info info = { .sz = sizeof(info) };
	const char *path = rig_file("device", BIG);
	const size_t sizes[] = { 4096, 4096 };
	const uint32_t two = 2;
	struct pst_mem *mem = NULL;
	void *s = rig_start(), *dsts[2];
	int other;

	if (pst_mem_alloc("cuda:0", BIG, NULL, &mem) < 0) {
		runai_file_streamer_end(s);
		T_SKIP("%s", pst_error_text());
	}
	T_EQ(pst_mem_info(mem, &info), 0);
	T_EQ(cuda_read(s, 0, path, 3, (20 << 20) + 5, info.addr + 11), 0);
	T_EQ(pst_mem_copy_out(mem, 11, big, (20 << 20) + 5), 0);
	T_EQ(t_differs(big, SEED, 3, (20 << 20) + 5), (20 << 20) + 5);
	/* Destinations: beyond the allocation, unmapped, in host memory, and in another device's
	 * memory. */
	T_EQ(cuda_read(s, 0, path, 0, BIG, info.addr + 4096 + BIG), RUNAI_INVALID);
	T_EQ(cuda_read(s, 0, path, 0, 4096, 4096), RUNAI_INVALID);
	T_EQ(cuda_read(s, 0, path, 0, 4096, (uintptr_t)big), RUNAI_INVALID);
	other = cuda_read(s, 1, path, 0, 4096, info.addr);
	T_CHECK(other == (getenv("PST_LIBCUDA") ? RUNAI_INVALID : RUNAI_NO_DEVICE) ||
		other == RUNAI_INVALID);
	/* Each range with an error must be refused, not only the first. */
	dsts[0] = dsts[1] = (void *)(uintptr_t)info.addr;
	other = runai_file_streamer_request(s, NULL, 1, &path, &two, sizes, sizes, dsts,
					    (struct runai_device){ RUNAI_DEVICE_CUDA, 1 });
	T_EQ(other, 0);
	T_CHECK(rig_response(s).code != 0);
	T_CHECK(rig_response(s).code != 0);
	T_EQ(cuda_read(s, 99, path, 0, 4096, info.addr), RUNAI_NO_DEVICE);
	T_EQ(cuda_read(s, 0, path, BIG - 1, 2, info.addr), RUNAI_EOF);
	/* The streamer must still work. */
	T_EQ(cuda_read(s, 0, path, 1 << 20, 1 << 20, info.addr), 0);
	T_EQ(pst_mem_copy_out(mem, 0, big, 1 << 20), 0);
	T_EQ(t_differs(big, SEED, 1 << 20, 1 << 20), 1 << 20);
	runai_file_streamer_end(s);
	pst_mem_free(mem);
}

static void no_cuda(void)
{
	void *s;

	s = rig_start();
	T_EQ(cuda_read(s, 0, in_dir("long"), 0, 4096, 1 << 20), RUNAI_NO_DEVICES);
	T_EQ(cuda_read(s, 0, in_dir("long"), 0, 0, 1 << 20), RUNAI_NO_DEVICES);
	runai_file_streamer_end(s);
}

static void without_devices(void)
{
	if (!getenv("PST_LIBCUDA"))
		T_SKIP("needs the library of tests/stub");
	rig_file("long", BIG);
	in_process("no_cuda", "STUB_CUDA_DEVICES", "0", 0);
}

/* Run the function that in_process() names. */
static int process(const char *what)
{
	static const struct {
		const char *name;
		void (*fn)(void);
	} all[] = {
		{ "with_fault", with_fault },
		{ "one_fault", one_fault },
		{ "no_context", no_context },
		{ "no_cuda", no_cuda },
	};

	if (setjmp(t_jump)) {
		(void)fprintf(stderr, "%s\n", t_why);
		return 1;
	}
	for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (!strcmp(all[i].name, what)) {
			all[i].fn();
			return 0;
		}
	return 2;
}

int main(int argc, char *argv[])
{
	self = argv[0];
	big = mmap(NULL, BIG + 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (big == MAP_FAILED)
		return 1;
	if (argc == 4) {
		(void)snprintf(dir, sizeof(dir), "%s", argv[2]);
		want = atoi(argv[3]);
		return process(argv[1]);
	}
	if (scratch_new(NULL, dir, sizeof(dir)) < 0)
		return 1;
	/* Run first: after a read, children of this process could not read. */
	T_RUN(faults);
	T_RUN(a_fault_of_one_read);
	T_RUN(without_devices);
	T_RUN(a_parent_that_reads_nothing);
	T_RUN(long_ranges);
	T_RUN(many_small_ranges);
	T_RUN(files_that_are_replaced);
	T_RUN(many_files);
	T_RUN(ends_with_work_left);
	T_RUN(forks);
	T_RUN(device_memory);
	(void)scratch_remove(dir);
	return t_done();
}
