/* SPDX-License-Identifier: MIT */
/*
 * A program written for gdrcopy 1.x: its handle is a number, it copies without one, and its info
 * has five members.  The four checks are those of gdrcopy's first example.
 */
#define GDRAPI_V1
#include <errno.h>
#include <gdrapi.h>
#include <penstock.h>

#define T_ERROR_TEXT() pst_error_text()
#include "t.h"

#define SIZE 327680u

_Static_assert(sizeof(gdr_info_t) == 40, "the struct of 1.x");
_Static_assert(sizeof(gdr_mh_t) == sizeof(unsigned long), "the handle of 1.x, as wide as now");

static struct pst_mem *mem;
static gdr_t g;
static gdr_mh_t mh;
static gdr_info_t info;
static void *bar;
static uint32_t *p, init[SIZE / 4], back[SIZE / 4];

static void pattern(uint32_t seed)
{
	for (unsigned i = 0; i < SIZE / 4; i++)
		init[i] = (seed ^ 1u << i % 32) + i;
	memset(back, 0x55, sizeof(back));
}

static void direct_access(void)
{
	volatile uint32_t *v = p;

	pattern(1);
	for (unsigned i = 0; i < SIZE / 4; i++)
		v[i] = init[i];
	pst_window_fence();
	T_OK(pst_mem_copy_out(mem, 0, back, SIZE));
	T_CHECK(!memcmp(init, back, SIZE));
}

static void copy_to_bar(void)
{
	pattern(2);
	T_EQ(gdr_copy_to_bar(p, init, SIZE), 0);
	T_OK(pst_mem_copy_out(mem, 0, back, SIZE));
	T_CHECK(!memcmp(init, back, SIZE));
}

static void copy_to_and_from_bar(void)
{
	pattern(3);
	T_EQ(gdr_copy_to_bar(p, init, SIZE), 0);
	T_EQ(gdr_copy_from_bar(back, p, SIZE), 0);
	T_CHECK(!memcmp(init, back, SIZE));
}

static void five_words_on(void)
{
	pattern(4);
	T_EQ(gdr_copy_to_bar(p + 5, init, SIZE - 20), 0);
	T_EQ(gdr_copy_from_bar(back, p + 5, SIZE - 20), 0);
	T_CHECK(!memcmp(init, back, SIZE - 20));
}

static void outside_of_every_mapping(void)
{
	uint32_t x = 0;

	T_EQ(gdr_copy_to_bar(&x, init, 4), EINVAL);
	T_EQ(gdr_copy_from_bar(back, &x, 4), EINVAL);
	T_EQ(gdr_copy_to_bar(p, init, (size_t)info.mapped_size + 1), EINVAL);
	T_EQ(gdr_copy_to_bar(NULL, init, 0), 0);
	T_EQ(gdr_copy_from_bar(back, NULL, 0), 0);
}

static void after_the_end(void)
{
	T_EQ(gdr_unmap(g, mh, bar, SIZE), 0);
	T_EQ(gdr_copy_to_bar(p, init, 4), EINVAL);
	T_EQ(gdr_unpin_buffer(g, mh), 0);
	T_EQ(gdr_close(g), 0);
}

static void pin_memory(void)
{
	struct pst_mem_info m = { .sz = sizeof(m) };

	T_OK(pst_mem_alloc("soft", SIZE, NULL, &mem));
	T_OK(pst_mem_info(mem, &m));
	g = gdr_open();
	T_CHECK(g);
	T_EQ(gdr_pin_buffer(g, m.addr, SIZE, 0, 0, &mh), 0);
	T_EQ(gdr_map(g, mh, &bar, SIZE), 0);
	T_EQ(gdr_get_info(g, mh, &info), 0);
	T_EQ(info.mapped_size, SIZE);
	T_EQ(info.page_size, GPU_PAGE_SIZE);
	p = (uint32_t *)((char *)bar + (m.addr - info.va));
}

int main(void)
{
	T_RUN(pin_memory);
	T_RUN(direct_access);
	T_RUN(copy_to_bar);
	T_RUN(copy_to_and_from_bar);
	T_RUN(five_words_on);
	T_RUN(outside_of_every_mapping);
	T_RUN(after_the_end);
	pst_mem_free(mem);
	return t_done();
}
