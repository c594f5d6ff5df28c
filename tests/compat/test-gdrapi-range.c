/* SPDX-License-Identifier: MIT */
/*
 * Ranges as clients round them, and the bytes that are mapped: on the software device and, if
 * PST_LIBCUDA names the stub of libcuda, on CUDA memory.
 */
#include "gdr_rig.h"

static const char *device;

static unsigned long down(unsigned long x)
{
	return x & GPU_PAGE_MASK;
}

static unsigned long up(unsigned long x)
{
	return down(x + GPU_PAGE_OFFSET);
}

/* Any address and length must be mapped as given. */
static void nothing_rounded(void)
{
	static const unsigned long offs[] = { 0, 1, 255, 4095, PAGE - 1, PAGE, PAGE + 3, 3 * PAGE };
	static const size_t lens[] = { 1, 7, 4096, PAGE - 1, PAGE, 100000 };
	unsigned long addr;
	struct pst_mem *m = rig_mem(device, 8 * PAGE, &addr);

	/* The stub cannot map a dma-buf that begins at a later page. */
	for (unsigned i = 0; i < sizeof(offs) / sizeof(offs[0]); i++)
		for (unsigned k = 0; k < sizeof(lens) / sizeof(lens[0]); k++) {
			gdr_mh_t mh;
			void *va;
			char *p;

			if (offs[i] >= 4096 && strncmp(device, "soft", 4) != 0)
				continue;
			p = rig_map(addr + offs[i], lens[k], addr + offs[i], &mh, &va);
			T_CHECK(p == va);
			rig_bytes(mh, p, m, offs[i], lens[k]);
			rig_unmap(mh, va, lens[k]);
		}
	pst_mem_free(m);
}

/* Do as gdrcopy's copybw does: allocate a page more, round the size up, find the offset by
 * info.va. */
static void recipe_of_copybw(void)
{
	size_t size = 4096, rounded = up(size);
	unsigned long base, addr;
	struct pst_mem *m = rig_mem(device, rounded + PAGE, &base);
	gdr_mh_t mh;
	void *va;
	char *p;

	addr = up(base);
	p = rig_map(addr, rounded, addr, &mh, &va);
	rig_bytes(mh, p, m, addr - base, size);
	rig_bytes(mh, p, m, addr - base, rounded);
	rig_unmap(mh, va, rounded);
	pst_mem_free(m);
}

/* Like NCCL, align the address in a larger allocation and pin whole pages. */
static void recipe_of_nccl(void)
{
	for (size_t size = 8; size < 4 * PAGE; size = size * 3 + 5) {
		size_t map_size = up(size);
		unsigned long base, addr;
		struct pst_mem *m = rig_mem(device, map_size + PAGE - 1, &base);
		gdr_mh_t mh = { 0 };
		gdr_info_t info;
		void *va;

		addr = up(base);
		T_EQ(gdr_pin_buffer(g, addr, map_size, 0, 0, &mh), 0);
		T_EQ(gdr_map(g, mh, &va, map_size), 0);
		T_EQ(gdr_get_info(g, mh, &info), 0);
		T_EQ(info.va, addr);
		T_EQ(info.mapped_size, map_size);
		rig_bytes(mh, va, m, addr - base, map_size);
		rig_unmap(mh, va, map_size);
		pst_mem_free(m);
	}
}

/* Allocate memory whose last GPU page has no other allocation in it. */
static struct pst_mem *alone(uint64_t len, unsigned long *ret_addr)
{
	struct pst_mem *held[32], *m = NULL;
	unsigned n = 0;

	while (n < 32 && !m) {
		gdr_mh_t mh;

		held[n] = rig_mem(device, len, ret_addr);
		if (gdr_pin_buffer(g, *ret_addr, up(len), 0, 0, &mh) == 0) {
			T_EQ(gdr_unpin_buffer(g, mh), 0);
			m = held[n];
		} else {
			n++;
		}
	}
	while (n--)
		pst_mem_free(held[n]);
	T_CHECK(m);
	return m;
}

/* Pin a size that the caller rounded up, so that the range ends beyond the allocation. */
static void end_past_the_allocation(void)
{
	static const size_t sizes[] = { 1, 4096, PAGE - 1, PAGE + 1, 100000, 5 * PAGE - 77 };

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t size = sizes[i], rounded = up(size);
		unsigned long addr;
		struct pst_mem *m = alone(size, &addr);
		gdr_mh_t mh, no;
		gdr_info_t info;
		void *va;
		char c = 0, *p = rig_map(addr, rounded, addr, &mh, &va);

		T_EQ(gdr_get_info(g, mh, &info), 0);
		T_EQ(info.mapped_size, rounded);
		rig_bytes(mh, p, m, 0, size);
		/* Bytes after the allocation belong to others: copies must fail. */
		T_EQ(gdr_copy_to_mapping(mh, p + size, &c, 1), EINVAL);
		T_EQ(gdr_copy_from_mapping(mh, &c, p + size - 1, 2), EINVAL);
		rig_unmap(mh, va, rounded);
		/* A range that ends a page later is more than rounding. */
		T_EQ(gdr_pin_buffer(g, addr, rounded + PAGE, 0, 0, &no), EINVAL);
		T_EQ(gdr_pin_buffer(g, addr, rounded + 1, 0, 0, &no), EINVAL);
		pst_mem_free(m);
	}
}

/* Allocate memory that begins inside a GPU page. */
static struct pst_mem *mid_page(uint64_t len, unsigned long *ret_addr)
{
	struct pst_mem *held[32], *m = NULL;
	unsigned n = 0;

	while (n < 32 && !m) {
		held[n] = rig_mem(device, len, ret_addr);
		if (*ret_addr % PAGE)
			m = held[n];
		else
			n++;
	}
	while (n--)
		pst_mem_free(held[n]);
	if (!m)
		T_SKIP("every allocation of %s begins with a page", device);
	return m;
}

/* Like UCX, round both ends. */
static void both_ends(void)
{
	unsigned long addr, start, end;
	uint64_t len = 4 * PAGE + 100;
	struct pst_mem *m = mid_page(len, &addr);
	gdr_mh_t mh, no;
	gdr_info_t info;
	void *va;
	char c = 0, *p;

	start = down(addr);
	end = up(addr + len);
	p = rig_map(start, end - start, addr, &mh, &va);
	T_EQ(gdr_get_info(g, mh, &info), 0);
	T_EQ(info.va, start);
	T_EQ(info.mapped_size, end - start);
	T_CHECK(p == (char *)va + (addr - start));
	rig_bytes(mh, p, m, 0, len);
	rig_bytes(mh, p + 1000, m, 1000, 2 * PAGE);
	T_EQ(gdr_copy_from_mapping(mh, &c, p - 1, 1), EINVAL);
	T_EQ(gdr_copy_from_mapping(mh, &c, p + len, 1), EINVAL);
	T_EQ(gdr_copy_from_mapping(mh, &c, va, 1), EINVAL);
	rig_unmap(mh, va, end - start);
	/* Map only bytes before the allocation. */
	mh = rig_pin(start, end - start);
	T_EQ(gdr_map(g, mh, &va, 1), (addr - start) >= 4096 ? EINVAL : 0);
	T_EQ(gdr_unpin_buffer(g, mh), 0);
	/* A range that begins a page earlier is more than rounding. */
	T_EQ(gdr_pin_buffer(g, start - PAGE, end - start, 0, 0, &no), EINVAL);
	pst_mem_free(m);
}

/*
 * Find two allocations in one GPU page; return false if there are none.  Keep all allocations
 * until then, as a freed address is used again.
 */
static bool neighbours(struct pst_mem *m[2], unsigned long addr[2])
{
	struct pst_mem *held[64];
	unsigned long at[64];
	unsigned n = 0, other = 0;
	bool found = false;

	while (n < 64 && !found) {
		held[n] = rig_mem(device, 4096, &at[n]);
		for (other = 0; other < n && !found; other += !found)
			found = at[n] % PAGE && at[other] % PAGE && down(at[n]) == down(at[other]);
		n++;
	}
	for (unsigned i = 0; i < n; i++) {
		if (!found || (i != n - 1 && i != other))
			pst_mem_free(held[i]);
	}
	if (found) {
		m[0] = held[other];
		addr[0] = at[other];
		m[1] = held[n - 1];
		addr[1] = at[n - 1];
	}
	return found;
}

/* Two allocations share a page: the page's address is ambiguous and must be refused, the
 * allocations' addresses must work. */
static void shared_pages(void)
{
	unsigned long addr[2];
	struct pst_mem *m[2];
	gdr_mh_t mh;
	void *va;

	if (!neighbours(m, addr))
		T_SKIP("no two allocations of %s share a page", device);
	T_EQ(gdr_pin_buffer(g, down(addr[0]), PAGE, 0, 0, &mh), EINVAL);
	for (unsigned i = 0; i < 2; i++) {
		char *p = rig_map(addr[i], 4096, addr[i], &mh, &va);

		rig_bytes(mh, p, m[i], 0, 4096);
		rig_unmap(mh, va, 4096);
	}
	pst_mem_free(m[0]);
	/* Alone in its page, the second allocation may be found by the page's address. */
	if (gdr_pin_buffer(g, down(addr[1]), PAGE, 0, 0, &mh) == 0) {
		T_EQ(gdr_map(g, mh, &va, PAGE), 0);
		rig_bytes(mh, (char *)va + (addr[1] - down(addr[1])), m[1], 0, 4096);
		rig_unmap(mh, va, PAGE);
	}
	pst_mem_free(m[1]);
}

static void run_all(const char *name)
{
	struct pst_device dev = { .sz = sizeof(dev) };

	device = name;
	printf("# %s\n", device);
	if (pst_device_find(device, &dev) < 0) {
		printf("# is not here: %s\n", pst_error_text());
		return;
	}
	T_RUN(nothing_rounded);
	T_RUN(recipe_of_copybw);
	T_RUN(recipe_of_nccl);
	T_RUN(end_past_the_allocation);
	T_RUN(both_ends);
	T_RUN(shared_pages);
}

int main(void)
{
	struct pst_mem *keep = NULL;

	g = gdr_open();
	if (!g)
		return 1;
	/* Keep a device allocation, so that device state stays alive between the cases. */
	(void)pst_mem_alloc("cuda:0", 1, NULL, &keep);
	run_all("soft:0");
	run_all("cuda:0");
	pst_mem_free(keep);
	if (gdr_close(g))
		return 1;
	return t_done();
}
