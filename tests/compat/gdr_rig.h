/* SPDX-License-Identifier: MIT */
/*
 * Shared by the tests of libgdrapi: device memory that the test can also access by other means,
 * and a client's usual calls.
 */
#ifndef PST_GDR_RIG_H
#define PST_GDR_RIG_H

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gdrapi.h>
#include <penstock.h>

#define T_ERROR_TEXT() pst_error_text()
#include "t.h"

#define PAGE GPU_PAGE_SIZE

static gdr_t g;

/* Allocate device memory and return its address. */
static inline struct pst_mem *rig_mem(const char *device, uint64_t len, unsigned long *ret_addr)
{
	struct pst_mem_info info = { .sz = sizeof(info) };
	struct pst_mem *m = NULL;

	T_OK(pst_mem_alloc(device, len, NULL, &m));
	T_OK(pst_mem_info(m, &info));
	*ret_addr = info.addr;
	return m;
}

static inline gdr_mh_t rig_pin(unsigned long addr, size_t size)
{
	gdr_mh_t mh = { 0 };

	T_EQ(gdr_pin_buffer(g, addr, size, 0, 0, &mh), 0);
	T_CHECK(mh.h);
	return mh;
}

/* Pin and map a range; return the mapped byte of address @at, as clients find it. */
static inline char *rig_map(unsigned long addr, size_t size, unsigned long at, gdr_mh_t *ret_mh,
			    void **ret_va)
{
	gdr_info_t info;

	*ret_mh = rig_pin(addr, size);
	T_EQ(gdr_map(g, *ret_mh, ret_va, size), 0);
	T_EQ(gdr_get_info(g, *ret_mh, &info), 0);
	T_CHECK(info.mapped);
	return (char *)*ret_va + (at - info.va);
}

static inline void rig_unmap(gdr_mh_t mh, void *va, size_t size)
{
	T_EQ(gdr_unmap(g, mh, va, size), 0);
	T_EQ(gdr_unpin_buffer(g, mh), 0);
}

/* Copy both ways through a mapping and check each copy from the device's side. */
static inline void rig_bytes(gdr_mh_t mh, char *ptr, struct pst_mem *m, uint64_t off, size_t len)
{
	char *a = malloc(len), *b = malloc(len);

	T_CHECK(a && b);
	t_fill(a, off + 1, 0, len);
	T_EQ(gdr_copy_to_mapping(mh, ptr, a, len), 0);
	T_OK(pst_mem_copy_out(m, off, b, len));
	T_EQ(t_differs(b, off + 1, 0, len), len);
	t_fill(a, off + 2, 0, len);
	T_OK(pst_mem_copy_in(m, off, a, len));
	T_EQ(gdr_copy_from_mapping(mh, b, ptr, len), 0);
	T_EQ(t_differs(b, off + 2, 0, len), len);
	free(a);
	free(b);
}

/* Return the number of the process's mappings, to find leaks. */
static inline unsigned rig_maps(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	unsigned n = 0;
	int c;

	while (f && (c = getc(f)) != EOF)
		n += c == '\n';
	if (f)
		(void)fclose(f);
	return n;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RIG_SLOW 1
#else
#define RIG_SLOW 0
#endif

#endif
