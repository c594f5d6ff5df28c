/* SPDX-License-Identifier: MIT */
/*
 * Shared by the tests of grants.
 */
#ifndef PST_TEST_GRANT_H
#define PST_TEST_GRANT_H
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "rig.h"

#define LEN RIG_MIB(2)
#define RW (PST_RIGHT_READ | PST_RIGHT_WRITE)

static inline struct pst_mem *shared(void)
{
	struct pst_mem_opts o = { .sz = sizeof(o), .flags = PST_MEM_SHARED };
	struct pst_mem *m = NULL;

	T_OK(pst_mem_alloc(rig_dev, LEN, &o, &m));
	return m;
}

static inline struct pst_grant grant_of(struct pst_mem *m, uint64_t off, uint64_t len,
					uint32_t rights)
{
	struct pst_grant g = { .sz = sizeof(g), .fd = -1 };

	T_OK(pst_mem_export(m, off, len, rights, &g));
	T_CHECK(g.fd >= 0);
	T_EQ(g.rights, rights);
	T_EQ(g.len, len);
	T_EQ(g.kind, rig_soft() ? PST_KIND_SOFT : PST_KIND_HOST);
	return g;
}

#endif
