/* SPDX-License-Identifier: MIT */
/* Compare copy kernels with a model of every byte, in memory between inaccessible pages. */
#include <penstock.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
#include "window/copy.h"

#define T_ERROR_TEXT() err_text()
#include "t.h"

#define SIDE_LEN (128u << 10)
/* bytes checked on each side of a copy; all bytes are checked at the end of the case */
#define BESIDE 128u

/* Memory between PROT_NONE pages, and its expected bytes. */
struct side {
	uint8_t *p, *model;
};

static struct side map, host;
static const struct copy_kernel *kernel;
static uint64_t rng_state = 88172645463325252u;

static uint64_t rng(void)
{
	rng_state ^= rng_state << 13;
	rng_state ^= rng_state >> 7;
	rng_state ^= rng_state << 17;
	return rng_state;
}

static void fill(struct side *s, size_t at, size_t len)
{
	uint64_t v;

	for (size_t i = 0; i < len; i += sizeof(v)) {
		v = rng();
		memcpy(s->model + at + i, &v, MIN(len - i, sizeof(v)));
	}
	memcpy(s->p + at, s->model + at, len);
}

static void side_new(struct side *s)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *p = mmap(NULL, SIDE_LEN + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED || mprotect(p + page, SIDE_LEN, PROT_READ | PROT_WRITE) != 0)
		abort();
	s->p = p + page;
	s->model = malloc(SIDE_LEN);
	if (!s->model)
		abort();
	fill(s, 0, SIDE_LEN);
}

static void check(const struct side *s, size_t from, size_t to)
{
	for (size_t i = from; memcmp(s->p + i, s->model + i, to - i) != 0; i++)
		if (s->p[i] != s->model[i])
			T_FAIL("%s: byte %zu of %s is 0x%02x, not 0x%02x", kernel->name, i,
			       s == &map ? "the mapping" : "host memory", s->p[i], s->model[i]);
}

static void copy_checked(bool store, size_t map_at, size_t host_at, size_t len)
{
	struct side *from = store ? &host : &map, *to = store ? &map : &host;
	size_t from_at = store ? host_at : map_at, to_at = store ? map_at : host_at;

	fill(from, from_at, len);
	memcpy(to->model + to_at, from->model + from_at, len);
	if (store)
		kernel->store(map.p + map_at, host.p + host_at, len);
	else
		kernel->load(host.p + host_at, map.p + map_at, len);
	copy_fence_stores();
	check(to, to_at - MIN(to_at, BESIDE), MIN(to_at + len + BESIDE, SIDE_LEN));
	check(from, from_at, from_at + len);
}

static void both_ways(size_t map_at, size_t host_at, size_t len)
{
	if (kernel->store)
		copy_checked(true, map_at, host_at, len);
	if (kernel->load)
		copy_checked(false, map_at, host_at, len);
}

static void need_kernel(void)
{
	if (!copy_supported(kernel))
		T_SKIP("the CPU has no %s", kernel->needs);
	fill(&map, 0, SIDE_LEN);
	fill(&host, 0, SIDE_LEN);
}

/* Copy to the front and to the back of a page, so that bytes outside would fault. */
static void every_short_copy(void)
{
	need_kernel();
	for (size_t len = 0; len <= 300; len++) {
		for (size_t gap = 0; gap < 64; gap++) {
			size_t host_gap = rng() % 64;

			both_ways(gap, host_gap, len);
			both_ways(SIDE_LEN - len - gap, SIDE_LEN - len - host_gap, len);
		}
	}
	check(&map, 0, SIDE_LEN);
	check(&host, 0, SIDE_LEN);
}

/* Choose a random offset, every fourth time at one of the ends. */
static size_t random_place(size_t len)
{
	size_t room = SIDE_LEN - len;

	switch (rng() % 8) {
	case 0:
		return 0;
	case 1:
		return room;
	default:
		return rng() % (room + 1);
	}
}

static void random_copies(void)
{
	need_kernel();
	for (unsigned i = 0; i < 10000; i++) {
		size_t len = rng() % (UINT64_C(2) << rng() % 13);

		both_ways(random_place(len), random_place(len), len);
	}
	both_ways(0, 0, SIDE_LEN);
	check(&map, 0, SIDE_LEN);
	check(&host, 0, SIDE_LEN);
}

static bool usable(const struct copy_choice *c)
{
	return copy_supported(c->store_small) && c->store_small->store &&
	       copy_supported(c->store_large) && c->store_large->store &&
	       copy_supported(c->load_small) && c->load_small->load &&
	       copy_supported(c->load_large) && c->load_large->load;
}

static void choice_by_caching(void)
{
	struct copy_choice c;

	copy_choose(&c, PST_CACHING_CACHED);
	T_CHECK(c.store_small == &copy_memcpy && c.store_large == &copy_memcpy);
	T_CHECK(c.load_small == &copy_memcpy && c.load_large == &copy_memcpy);
	copy_choose(&c, PST_CACHING_DEVICE);
	T_CHECK(c.store_small == &copy_strict && c.store_large == &copy_strict);
	T_CHECK(c.load_small == &copy_strict && c.load_large == &copy_strict);
	copy_choose(&c, PST_CACHING_WC);
	T_CHECK(usable(&c));
#if defined(__x86_64__) || defined(__AARCH64EL__)
	T_CHECK(c.store_small->streams && c.store_large->streams);
#endif
}

/* Measuring takes little time, and stays in the 64 KiB that it is given. */
static void choice_by_measurement(void)
{
	uint64_t best = UINT64_MAX, began;
	struct copy_choice c;

	for (unsigned i = 0; i < 5; i++) {
		began = t_cpu();
		copy_measure(&c, PST_CACHING_WC, map.p);
		best = MIN(best, t_cpu() - began);
		copy_measure(&c, PST_CACHING_WC, map.p + SIDE_LEN - (64 << 10));
		T_CHECK(usable(&c));
	}
	if (best > 5000000)
		T_FAIL("measuring took %" PRIu64 " us", best / 1000);
	copy_measure(&c, PST_CACHING_CACHED, map.p);
	T_CHECK(c.store_large == &copy_memcpy && c.load_large == &copy_memcpy);
	copy_measure(&c, PST_CACHING_DEVICE, map.p);
	T_CHECK(c.store_large == &copy_strict && c.load_large == &copy_strict);
}

static void forced(void)
{
	const struct copy_kernel *const *all, *found = NULL;
	struct copy_choice c, plain;
	unsigned nr;

	T_EQ(copy_find("none", &found), -EOPNOTSUPP);
	T_CHECK(strstr(err_text(), "none; there are ") && strstr(err_text(), "memcpy") && !found);
	copy_choose(&plain, PST_CACHING_WC);
	all = copy_kernels(&nr);
	for (unsigned i = 0; i < nr; i++) {
		if (!copy_supported(all[i])) {
			T_EQ(copy_find(all[i]->name, &found), -EOPNOTSUPP);
			T_CHECK(strstr(err_text(), all[i]->needs) && strstr(err_text(), "memcpy"));
			continue;
		}
		T_OK(copy_find(all[i]->name, &found));
		T_CHECK(found == all[i]);
		c = plain;
		T_OK(copy_force(&c, PST_CACHING_WC, found));
		T_CHECK(c.store_small == (found->store ? found : plain.store_small));
		T_CHECK(c.store_large == (found->store ? found : plain.store_large));
		T_CHECK(c.load_small == (found->load ? found : plain.load_small));
		T_CHECK(c.load_large == (found->load ? found : plain.load_large));
		T_EQ(copy_force(&c, PST_CACHING_DEVICE, found),
		     found == &copy_strict ? 0 : -EOPNOTSUPP);
	}
}

/* Set the flag AC, so that the CPU raises SIGBUS for an unaligned access. */
static void strict_is_aligned(void)
{
#if defined(__x86_64__)
	const uint64_t ac = 1u << 18;

	for (size_t at = 0; at < 16; at++) {
		for (size_t len = 0; len < 40; len++) {
			__builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() | ac);
			copy_strict_store(map.p + at, host.p + at, len);
			copy_strict_load(host.p + 64 + at, map.p + at, len);
			__builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() & ~ac);
			T_CHECK(memcmp(host.p + 64 + at, host.p + at, len) == 0);
		}
	}
#else
	T_SKIP("only x86-64 can forbid unaligned accesses");
#endif
}

int main(void)
{
	const struct copy_kernel *const *all;
	char name[64];
	unsigned nr;

	side_new(&map);
	side_new(&host);
	all = copy_kernels(&nr);
	for (unsigned i = 0; i < nr; i++) {
		kernel = all[i];
		(void)snprintf(name, sizeof(name), "%s_every_short_copy", kernel->name);
		t_run(name, every_short_copy);
		(void)snprintf(name, sizeof(name), "%s_random_copies", kernel->name);
		t_run(name, random_copies);
	}
	T_RUN(choice_by_caching);
	T_RUN(choice_by_measurement);
	T_RUN(forced);
	T_RUN(strict_is_aligned);
	return t_done();
}
