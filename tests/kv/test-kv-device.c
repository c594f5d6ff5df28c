/* SPDX-License-Identifier: MIT */
/*
 * Blocks in device memory, whose checksums the device computes.  In some cases staging copies are
 * wrong (PST_FAULT).  The library reads that when it is loaded, so each of these cases runs in a
 * new process.
 */
#include <sys/wait.h>

#include "kv_case.h"

#define LEN 300000u
#define BIG (64u << 20)
#define NR_PIECES 3u

static struct pst_mem *dev;
static struct pst_kv *kv;
static uint32_t space;

/* Pieces of the block, in another order than in memory. */
static const struct pst_seg pieces[NR_PIECES] = {
	{ .mem_off = 200000, .len = 100000 },
	{ .mem_off = 1, .len = 30000, .mem_stride = 40000, .count = 5 },
	{ .mem_off = 400000, .len = 50000 },
};

static void begin(void)
{
	char *buf = malloc(1u << 20);

	k_new_root();
	kv = k_open(BIG, 0);
	space = k_space(kv, "m", NULL);
	T_OK(pst_mem_alloc("soft:0", 1u << 20, NULL, &dev));
	t_fill(buf, 5, 0, 1u << 20);
	/* This is the first copy; the next six verify the device before its first request. */
	T_OK(pst_mem_copy_in(dev, 0, buf, 1u << 20));
	free(buf);
}

static void end(void)
{
	(void)pst_mem_free(dev);
	(void)pst_kv_close(kv);
	k_remove_root();
}

/* Run a batch of one block in device memory.  Return its result. */
static int64_t on_device(uint32_t op, bool in_pieces)
{
	struct pst_kv_item item = {
		.key = "k",
		.key_len = 1,
		.mem = dev,
		.len = LEN,
		.segs = in_pieces ? pieces : NULL,
		.nr_segs = in_pieces ? NR_PIECES : 0,
	};
	int64_t result = -1000;
	struct pst_kv_batch b = {
		.sz = sizeof(b),
		.op = op,
		.space = space,
		.items = &item,
		.nr = 1,
		.results = &result,
	};

	T_OK(pst_kv_run(kv, &b, NULL));
	return result;
}

/* Check that the block failed its check, was counted, and is deleted. */
static void is_gone(uint64_t corrupt)
{
	T_EQ(k_stat(kv).corrupt, corrupt);
	T_EQ(on_device(PST_KV_GET, false), -ENOENT);
	(void)k_disk();
	T_EQ(k_files, 0);
}

/* Flip a bit of the block in its file. */
static void flip(uint64_t bit)
{
	char byte;
	int fd;

	(void)k_disk();
	fd = open(k_last, O_RDWR | O_CLOEXEC);
	T_EQ(pread(fd, &byte, 1, (off_t)(bit / 8)), 1);
	byte ^= (char)(1 << bit % 8);
	T_EQ(pwrite(fd, &byte, 1, (off_t)(bit / 8)), 1);
	T_EQ(close(fd), 0);
}

static void flipped_bits_are_misses(void)
{
	uint64_t x = 12345;

	begin();
	for (unsigned i = 0; i < 60; i++) {
		bool in_pieces = i % 2;

		x = x * 6364136223846793005u + 1442695040888963407u;
		T_EQ(on_device(PST_KV_SET, in_pieces), 0);
		T_EQ(on_device(PST_KV_GET, in_pieces), LEN);
		flip((x >> 20) % (LEN * 8));
		T_EQ(on_device(PST_KV_GET, in_pieces), -EBADMSG);
		is_gone(i + 1);
	}
	end();
}

/* The eighth copy is wrong: the written bytes differ from the device's, so nothing is stored. */
static void a_wrong_copy_of_a_set_is_found(void)
{
	begin();
	T_EQ(on_device(PST_KV_SET, false), -EIO);
	T_EQ(k_stat(kv).errors, 1);
	is_gone(0);
	T_EQ(on_device(PST_KV_SET, false), 0);
	T_EQ(on_device(PST_KV_GET, false), LEN);
	end();
}

static void a_wrong_copy_of_pieces_is_found(void)
{
	begin();
	T_EQ(on_device(PST_KV_SET, true), -EIO);
	is_gone(0);
	end();
}

/* The ninth copy is wrong: the file is right, and the bytes in the device are not. */
static void a_wrong_copy_of_a_get_is_a_miss(void)
{
	begin();
	T_EQ(on_device(PST_KV_SET, false), 0);
	T_EQ(on_device(PST_KV_GET, false), -EBADMSG);
	is_gone(1);
	end();
}

static const struct {
	const char *name;
	void (*fn)(void);
	const char *fault;
} cases[] = {
	{ "flipped_bits_are_misses", flipped_bits_are_misses, NULL },
	{ "a_wrong_copy_of_a_set_is_found", a_wrong_copy_of_a_set_is_found, "mem.copy:8:wrong" },
	{ "a_wrong_copy_of_pieces_is_found", a_wrong_copy_of_pieces_is_found, "mem.copy:8:wrong" },
	{ "a_wrong_copy_of_a_get_is_a_miss", a_wrong_copy_of_a_get_is_a_miss, "mem.copy:9:wrong" },
};

/* Run the case in a new process with its fault; the exit status is the result. */
static unsigned again_idx;

static void again(void)
{
	char idx[4] = { (char)('0' + again_idx) };
	int status = -1;
	pid_t pid;

	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		(void)dup2(STDERR_FILENO, STDOUT_FILENO);
		(void)setenv("PST_FAULT", cases[again_idx].fault, 1);
		(void)execl("/proc/self/exe", "again", idx, (char *)NULL);
		_exit(127);
	}
	T_CHECK(pid > 0);
	T_EQ(waitpid(pid, &status, 0), pid);
	T_EQ(status, 0);
}

int main(int argc, char **argv)
{
	unsigned nr = sizeof(cases) / sizeof(*cases);

	if (argc > 1) {
		unsigned idx = (unsigned)(argv[1][0] - '0') % nr;

		t_run(cases[idx].name, cases[idx].fn);
		return t_done();
	}
	for (again_idx = 0; again_idx < nr; again_idx++)
		t_run(cases[again_idx].name, cases[again_idx].fault ? again : cases[again_idx].fn);
	return t_done();
}
