/* SPDX-License-Identifier: MIT */
/*
 * Shared by the tests of paths.
 */
#ifndef PST_TEST_POLICY_H
#define PST_TEST_POLICY_H
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "rig.h"

#include "forbid.h"
#include "fusefs.h"

#define SEED 11
#define LEN RIG_MIB(2)

#define BIT(name) PST_PATH_BIT(PST_PATH_##name)
#define FILE_HOPS (BIT(DIRECT) | BIT(CACHED) | BIT(BUFFERED))

static struct pst_file *file;
static struct pst_mem *mem;

static inline void open_file(uint32_t flags)
{
	if (rig_soft() && rig_backend == PST_BACKEND_URING)
		rig_needs_memlock();    /* the staging pool pins memory */
	(void)unlink(rig_path("file")); /* an earlier file may belong to another user */
	rig_make(rig_path("file"), SEED, LEN);
	rig_cold(rig_path("file"));
	file = rig_open(rig_path("file"), flags);
	mem = rig_alloc(rig_dev, LEN + 4096);
}

static inline void close_file(void)
{
	file = pst_file_close(file);
	mem = pst_mem_free(mem);
}

static inline void needs_direct(void)
{
	struct pst_file_info info = rig_file_info(file);

	if (info.direct)
		return;
	close_file();
	T_SKIP("O_DIRECT on %s", info.fs);
}

static inline struct pst_done ask(uint32_t op, uint64_t policy, uint32_t flags, uint64_t off,
				  uint64_t len)
{
	struct pst_io io = rig_io(op, file, mem, off, off % 4096, len);

	io.policy = policy;
	io.flags = flags;
	return rig_do(rig_q, &io);
}

/* Check that the request succeeded by exactly these file hops, and that its why is reason. */
#define TOOK(d, hops, reason)                                                                \
	do {                                                                                 \
		if ((d).res < 0 || ((d).paths & FILE_HOPS) != (hops) || (d).why != (reason)) \
			rig_show(&(d));                                                      \
		T_CHECK((d).res > 0);                                                        \
		T_EQ((d).paths &FILE_HOPS, hops);                                            \
		T_EQ(!!((d).paths & BIT(STAGED)), rig_soft());                               \
		T_EQ((d).why, reason);                                                       \
	} while (0)

#define REFUSED(d, reason)                                         \
	do {                                                       \
		if ((d).res != -EOPNOTSUPP || (d).why != (reason)) \
			rig_show(&(d));                            \
		T_EQ((d).res, -EOPNOTSUPP);                        \
		T_EQ((d).why, reason);                             \
	} while (0)

#endif
