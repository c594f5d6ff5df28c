/* SPDX-License-Identifier: MIT */
/*
 * Shared by the tests of requests that use cuFile.  They run on the libraries of tests/stub/, which
 * PST_LIBCUDA and PST_LIBCUFILE name.  A process remembers the state of each path until it ends, so
 * each case runs in a process of its own (again.h).
 */
#ifndef PST_TEST_GDS_H
#define PST_TEST_GDS_H

#include <dlfcn.h>
#include <pthread.h>

#include "symbol.h"
#include "again.h"
#include "stub/cufile_stub.h"

#define GDS PST_PATH_BIT(PST_PATH_GDS)
#define STAGED PST_PATH_BIT(PST_PATH_STAGED)
#define LEN (RIG_MIB(20) + 5000)
#define SEED 21

static struct {
	void (*set)(const char *);
	void (*state)(struct stub_cufile_state *);
	void (*release)(void);
	bool (*met)(void);
	void (*reset)(void);
} x;

static struct pst_mem *mem;   /* memory of LEN bytes or more */
static struct pst_file *file; /* file with LEN bytes of the pattern */

static inline struct stub_cufile_state state(void)
{
	struct stub_cufile_state s;

	x.state(&s);
	return s;
}

/* Load the stub libraries, with cuFile configured by text both here and in the process that probes.
 * Open a queue, a file and device memory. */
static inline void open_with(const char *text)
{
	const char *name = getenv("PST_LIBCUFILE");
	void *lib;

	if (!name || !getenv("PST_LIBCUDA"))
		T_SKIP("needs the libraries of tests/stub");
	rig_needs_memlock();
	(void)setenv("STUB_CUFILE", text, 1);
	lib = dlopen(name, RTLD_NOW);
	if (lib)
		symbol(lib, &x.set, "stub_cufile_set");
	if (!x.set)
		T_SKIP("needs the library of tests/stub");
	symbol(lib, &x.state, "stub_cufile_state");
	symbol(lib, &x.release, "stub_cufile_release");
	symbol(lib, &x.met, "stub_cufile_met");
	symbol(lib, &x.reset, "stub_cufile_reset");
	rig_make(rig_path("data"), SEED, LEN);
	file = rig_open(rig_path("data"), RIG_RW);
	if (!rig_file_info(file).direct) {
		pst_file_close(file);
		T_SKIP("no O_DIRECT here");
	}
	rig_dev = "cuda:0";
	rig_q = rig_queue(rig_best_backend(), 0);
	mem = rig_alloc(rig_dev, RIG_MIB(40));
}

static inline struct pst_path_info check(uint32_t op)
{
	struct pst_path_info info = { .sz = sizeof(info) };

	T_OK(pst_path_check(file, mem, op, PST_PATH_GDS, &info));
	return info;
}

/* Wait for the end of the search for a direct path, and return its result. */
static inline struct pst_path_info verdict(void)
{
	uint64_t until = t_hang();
	struct pst_path_info info;

	do {
		info = check(PST_OP_READ);
		(void)usleep(1000);
	} while (info.why == PST_WHY_NO_GDS && info.detail == EAGAIN && t_now() < until);
	return info;
}

/* Open everything and check that the cuFile path is usable. */
static inline void open_direct(const char *text)
{
	struct pst_path_info info;

	open_with(text);
	info = verdict();
	T_EQ(info.why, PST_WHY_NONE);
	T_EQ(info.state, PST_STATE_POSSIBLE);
}

/*
 * Close memory and file.  Check that cuFile has no registration left, and that it moved no byte by
 * copies through host memory.
 */
static inline void close_all(void)
{
	struct stub_cufile_state s;

	mem = pst_mem_free(mem);
	file = pst_file_close(file);
	rig_q = pst_queue_free(rig_q);
	s = state();
	T_EQ(s.files, 0);
	T_EQ(s.bufs, 0);
	T_EQ(s.moving, 0);
	T_EQ(s.bounced, 0);
	T_EQ(s.busy, 0);
	x.reset(); /* clear the stub's log */
}

/* Overwrite the memory, drop the file from the page cache, then read. */
static inline struct pst_done cold_read(uint64_t file_off, uint64_t mem_off, uint64_t len,
					uint64_t policy, uint32_t flags)
{
	struct pst_io io = rig_io(PST_OP_READ, file, mem, file_off, mem_off, len);
	struct pst_done d;

	rig_mem_fill(mem, mem_off, len, 99, 0);
	rig_cold(rig_path("data"));
	io.policy = policy;
	io.flags = flags;
	d = rig_do(rig_q, &io);
	rig_show(&d);
	return d;
}

static inline bool is_right(uint64_t file_off, uint64_t mem_off, uint64_t len)
{
	return rig_mem_differs(mem, mem_off, len, SEED, file_off) == len;
}

/* Write a pattern with this seed, and check that the file holds it. */
static inline struct pst_done pattern_write(uint64_t seed, uint64_t off, uint64_t len)
{
	struct pst_done d;
	char *buf = malloc(len);

	T_CHECK(buf);
	rig_mem_fill(mem, off, len, seed, off);
	d = rig_write(file, mem, off, off, len);
	rig_show(&d);
	T_EQ(d.res, (int64_t)len);
	T_EQ(rig_slurp(rig_path("data"), off, buf, len), len);
	T_EQ(t_differs(buf, seed, off, len), len);
	free(buf);
	return d;
}

/* Check that the text of why and detail contains what. */
static inline void says(const struct pst_path_info *info, const char *what)
{
	char text[400];

	(void)pst_why_text(info->why, info->detail, text, sizeof(text));
	if (!strstr(text, what))
		T_FAIL("\"%s\" has no \"%s\"", text, what);
}

#endif
