/* SPDX-License-Identifier: MIT */
/* Properties of every kind of memory: names, checks, round trips. */
#include <pthread.h>

#include "base/err.h"
#include "base/fault.h"
#include "mem/mem.h"

#define T_ERROR_TEXT() err_text()
#include "t.h"

static const uint32_t kinds[] = { PST_KIND_HOST, PST_KIND_SOFT };
#define NR_KINDS (sizeof(kinds) / sizeof(*kinds))

static const struct mem_ops *ops_of(unsigned i)
{
	const struct mem_ops *ops = mem_provider(kinds[i]);

	T_CHECK(ops);
	return ops;
}

static void devices_are_listed(void)
{
	struct pst_device d[16];
	int n = mem_list(NULL, 0);

	T_EQ(n, 2);
	memset(d, 0xff, sizeof(d));
	T_EQ(mem_list(d, 1), 2);
	T_EQ(d[1].sz, SIZE_MAX); /* this element is not written */
	T_EQ(mem_list(d, 16), 2);
	T_CHECK(!strcmp(d[0].name, "host"));
	T_EQ(d[0].kind, PST_KIND_HOST);
	T_EQ(d[0].sz, sizeof(d[0]));
	T_EQ(d[0].numa_node, -1);
	for (int i = 0; i < 16; i++)
		T_EQ(d[0].uuid[i], 0);
	T_CHECK(d[0].total > 1 << 20);
	T_CHECK(!strcmp(d[1].name, "soft:0"));
	T_EQ(d[1].kind, PST_KIND_SOFT);
	T_EQ(d[1].uuid[6] >> 4, 8);
	T_EQ(d[1].uuid[8] >> 6, 2);
}

static void names_are_found(void)
{
	static const struct {
		const char *name;
		int r;
		uint32_t kind;
	} cases[] = {
		{ "host", 0, PST_KIND_HOST },
		{ "host:0", 0, PST_KIND_HOST },
		{ "soft", 0, PST_KIND_SOFT },
		{ "soft:0", 0, PST_KIND_SOFT },
		{ "soft:1", -ENODEV, 0 },
		{ "host:1", -ENODEV, 0 },
		{ "soft:999999", -ENODEV, 0 },
		{ "cuda", -ENODEV, 0 },
		{ "cuda:0", -ENODEV, 0 },
		{ "gaudi:3", -ENODEV, 0 },
		{ "dmabuf", 0, PST_KIND_DMABUF },
		{ "0000:17:00.0", -ENODEV, 0 },
		{ "00000000:17:00.0", -ENODEV, 0 },
		{ "10000:aB:1f.7", -ENODEV, 0 },
		{ "00112233445566778899aabbccddeeff", -ENODEV, 0 },
		{ "00112233-4455-6677-8899-AABBCCDDEEFF", -ENODEV, 0 },
		/* a UUID of zeros must not mean the host */
		{ "00000000000000000000000000000000", -ENODEV, 0 },
		{ NULL, -EINVAL, 0 },
		{ "", -EINVAL, 0 },
		{ ":", -EINVAL, 0 },
		{ "hos", -EINVAL, 0 },
		{ "hosts", -EINVAL, 0 },
		{ "Host", -EINVAL, 0 },
		{ "soft:", -EINVAL, 0 },
		{ "soft:x", -EINVAL, 0 },
		{ "soft:0x0", -EINVAL, 0 },
		{ "soft:-1", -EINVAL, 0 },
		{ "soft:+0", -EINVAL, 0 },
		{ "soft: 0", -EINVAL, 0 },
		{ "soft:0 ", -EINVAL, 0 },
		{ "soft:0:0", -EINVAL, 0 },
		{ "soft:18446744073709551616", -EINVAL, 0 },
		{ "gpu", -EINVAL, 0 },
		{ "17:00.0", -EINVAL, 0 },
		{ "0000:17:00", -EINVAL, 0 },
		{ "0000:17:00.", -EINVAL, 0 },
		{ "0000:17:00.00", -EINVAL, 0 },
		{ "0000:1:000.0", -EINVAL, 0 },
		{ "0000:+1:00.0", -EINVAL, 0 },
		{ "0000:17: 0.0", -EINVAL, 0 },
		{ "0000:0x:00.0", -EINVAL, 0 },
		{ "00112233445566778899aabbccddeef", -EINVAL, 0 },
		{ "00112233445566778899aabbccddeeff0", -EINVAL, 0 },
		{ "00112233445566778899aabbccddeefg", -EINVAL, 0 },
		{ "-", -EINVAL, 0 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const struct mem_ops *ops = NULL;
		unsigned idx = 77;
		int r = mem_find(cases[i].name, &ops, &idx);

		if (r != cases[i].r)
			T_FAIL("\"%s\" gave %d (%s)", cases[i].name, r, err_text());
		if (!r) {
			T_EQ(ops->kind, cases[i].kind);
			T_EQ(idx, 0);
		} else {
			T_CHECK(!ops && idx == 77);
		}
	}
	(void)mem_find("cuda:0", &(const struct mem_ops *){ NULL }, &(unsigned){ 0 });
	T_CHECK(strstr(err_text(), "no NVIDIA driver here: /nonexistent"));
}

static void uuids_are_found(void)
{
	const struct mem_ops *ops;
	struct pst_device d[2];
	char name[64] = "";
	unsigned idx;

	T_EQ(mem_list(d, 2), 2);
	for (int i = 0; i < 16; i++)
		(void)snprintf(name + strlen(name), sizeof(name) - strlen(name), "%02X%s",
			       d[1].uuid[i], i == 3 || i == 5 || i == 7 || i == 9 ? "-" : "");
	T_OK(mem_find(name, &ops, &idx));
	T_CHECK(ops == &mem_soft_ops);
	T_EQ(idx, 0);
}

static void providers(void)
{
	T_CHECK(mem_provider(PST_KIND_HOST) == &mem_host_ops);
	T_CHECK(mem_provider(PST_KIND_SOFT) == &mem_soft_ops);
	T_CHECK(!mem_provider(PST_KIND_CUDA));
	T_CHECK(!mem_provider(0));
	T_CHECK(!mem_provider(UINT32_MAX));
}

static void allocations_are_checked(void)
{
	struct mem_alloc *a = NULL;

	for (unsigned i = 0; i < NR_KINDS; i++) {
		T_EQ(mem_alloc(ops_of(i), 0, 0, 0, &a), -EINVAL);
		T_EQ(mem_alloc(ops_of(i), 0, 1, PST_MEM_PINNED, &a), -EINVAL);
		T_EQ(mem_alloc(ops_of(i), 0, 1, 1u << 31, &a), -EINVAL);
		T_EQ(mem_alloc(ops_of(i), 1, 1, 0, &a), -ENODEV);
		T_EQ(mem_alloc(ops_of(i), 0, UINT64_MAX, 0, &a), -ENOMEM);
		T_EQ(mem_alloc(ops_of(i), 0, INT64_MAX, 0, &a), -ENOMEM);
		T_EQ(mem_alloc(ops_of(i), 0, UINT64_C(1) << 60, 0, &a), -ENOMEM);
		T_EQ(mem_alloc(ops_of(i), 0, UINT64_C(1) << 60, PST_MEM_SHARED, &a), -ENOMEM);
	}
	T_CHECK(!a);
	mem_free(NULL);
}

static void wraps_are_checked(void)
{
	struct mem_alloc *a = NULL, *soft;
	char buf[64];
	uint64_t at = (uintptr_t)buf;

	T_EQ(mem_wrap(0, 1, 0, 0, &a), -EINVAL);
	T_EQ(mem_wrap(at, 0, 0, 0, &a), -EINVAL);
	T_EQ(mem_wrap(at, UINT64_MAX, 0, 0, &a), -EINVAL);
	T_EQ(mem_wrap(UINT64_MAX, 2, 0, 0, &a), -EINVAL);
	T_EQ(mem_wrap(at, 1, 0, PST_MEM_SHARED, &a), -EINVAL);
	T_EQ(mem_wrap(at, 1, PST_KIND_CUDA, 0, &a), -ENODEV);
	T_EQ(mem_wrap(at, 1, 99, 0, &a), -ENODEV);
	T_EQ(mem_wrap(at, 1, PST_KIND_SOFT, 0, &a), -EFAULT);
	/* Device memory is never taken for memory of the CPU. */
	T_OK(mem_alloc(ops_of(1), 0, 100, 0, &soft));
	T_EQ(mem_wrap(soft->base.va, 1, PST_KIND_HOST, 0, &a), -EFAULT);
	T_EQ(mem_wrap(soft->base.va, 101, 0, 0, &a), -ERANGE);
	T_EQ(mem_wrap(soft->base.va + 100, 1, 0, 0, &a), -ERANGE);
	T_EQ(mem_wrap(soft->base.va - 1, 2, 0, 0, &a), -ERANGE);
	mem_free(soft);
	T_CHECK(!a);
}

static void exports_are_checked(void)
{
	struct pst_grant g = { .sz = sizeof(g), .fd = 77 };

	for (unsigned i = 0; i < NR_KINDS; i++) {
		struct mem_alloc *a;

		T_OK(mem_alloc(ops_of(i), 0, 100, PST_MEM_SHARED, &a));
		T_EQ(mem_export(a, 0, &g), -EINVAL);
		T_EQ(mem_export(a, 4, &g), -EINVAL);
		T_EQ(g.fd, 77);
		mem_free(a);
	}
}

static void imports_are_checked(void)
{
	for (unsigned i = 0; i < NR_KINDS; i++) {
		struct mem_alloc *a, *b = NULL;
		struct pst_grant good, g;

		T_OK(mem_alloc(ops_of(i), 0, 10000, PST_MEM_SHARED, &a));
		T_OK(mem_export(a, PST_RIGHT_READ | PST_RIGHT_WRITE, &good));
		T_EQ(good.sz, sizeof(good));
		T_EQ(good.kind, kinds[i]);
		T_EQ(good.size, 10000);
		T_EQ(good.off, 0);
		T_EQ(good.len, 10000);
#define REFUSED(err, ...)                      \
	do {                                   \
		g = good;                      \
		__VA_ARGS__;                   \
		T_EQ(mem_import(&g, &b), err); \
	} while (0)
		T_EQ(mem_import(NULL, &b), -EINVAL);
		REFUSED(-EINVAL, g.sz = 0);
		REFUSED(-EINVAL, g.sz = 24);
		REFUSED(-EINVAL, g.kind = 0);
		REFUSED(-EINVAL, g.kind = 6);
		REFUSED(-ENODEV, g.kind = PST_KIND_CUDA);
		REFUSED(-EINVAL, g.rights = 0);
		REFUSED(-EINVAL, g.rights = 7);
		REFUSED(-EINVAL, g.len = 0);
		REFUSED(-EINVAL, g.len = 10001);
		REFUSED(-EINVAL, g.off = 1);
		REFUSED(-EINVAL, g.off = UINT64_MAX; g.len = 2);
		REFUSED(-EINVAL, g.off = 10001; g.len = 1);
		REFUSED(-EINVAL, g.size = UINT64_MAX);
		REFUSED(-EINVAL, g.size = 9999; g.len = 1);
		REFUSED(-EINVAL, g.size = 10001);
		REFUSED(-EINVAL, g.size = 12288);
		REFUSED(-EINVAL, g.reserved = 1);
		REFUSED(-EINVAL, g.fd = -1);
		REFUSED(-EINVAL, g.fd = 1000000);
		REFUSED(-EINVAL, g.ipc[63] = 1);
		if (kinds[i] != PST_KIND_HOST)
			REFUSED(-ENODEV, g.uuid[3] ^= 1);
		T_CHECK(!b);
		T_OK(mem_import(&good, &b));
		T_EQ(b->size, 10000);
		mem_free(b);
		(void)close(good.fd);
		mem_free(a);
	}
}

/* Copy at odd offsets and lengths in memory of all sizes.  No byte outside may change. */
static void copies_round_trip(void)
{
	static const uint64_t lens[] = { 1, 4095, 4096, 4097, 100003, MIB(2), MIB(2) + 5 };
	static uint8_t out[MIB(2) + 5], in[MIB(2) + 5];

	for (unsigned i = 0; i < NR_KINDS * 2; i++) {
		for (unsigned l = 0; l < sizeof(lens) / sizeof(*lens); l++) {
			uint64_t len = lens[l], at = len / 3, part = len - at - len / 5;
			struct mem_alloc *a;

			T_OK(mem_alloc(ops_of(i / 2), 0, len, i & 1 ? PST_MEM_SHARED : 0, &a));
			T_EQ(a->size, len);
			T_EQ(a->base.va % 4096, 0);
			t_fill(out, l, 0, len);
			T_OK(mem_copy_sync(a, MEM_TO_DEVICE, 0, out, len));
			t_fill(out + at, l + 100, at, part);
			T_OK(mem_copy_sync(a, MEM_TO_DEVICE, at, out + at, part));
			memset(in, 0, len);
			T_OK(mem_copy_sync(a, MEM_FROM_DEVICE, 0, in, len));
			T_CHECK(!memcmp(in, out, len));
			memset(in, 0, len);
			T_OK(mem_copy_sync(a, MEM_FROM_DEVICE, at, in, part));
			T_CHECK(!memcmp(in, out + at, part));
			mem_free(a);
		}
	}
}

static void copies_stay_inside(void)
{
	char buf[8] = "";

	for (unsigned i = 0; i < NR_KINDS; i++) {
		struct mem_alloc *a;

		T_OK(mem_alloc(ops_of(i), 0, 100, 0, &a));
		T_EQ(mem_copy_sync(a, MEM_TO_DEVICE, 97, buf, 4), -ERANGE);
		T_EQ(mem_copy_sync(a, MEM_FROM_DEVICE, 101, buf, 1), -ERANGE);
		T_EQ(mem_copy_sync(a, MEM_FROM_DEVICE, UINT64_MAX, buf, 2), -ERANGE);
		T_EQ(mem_copy_sync(a, MEM_FROM_DEVICE, 1, buf, UINT64_MAX), -ERANGE);
		T_EQ(mem_copy_sync(a, MEM_FROM_DEVICE, 101, buf, 0), -ERANGE);
		T_OK(mem_copy_sync(a, MEM_FROM_DEVICE, 100, buf, 0));
		T_OK(mem_copy_sync(a, MEM_FROM_DEVICE, 99, buf, 1));
		mem_free(a);
	}
}

static void wraps_share_the_bytes(void)
{
	uint8_t out[5000], in[5000];

	for (unsigned i = 0; i < NR_KINDS; i++) {
		struct mem_alloc *a, *w;
		uint64_t off;

		T_OK(mem_alloc(ops_of(i), 0, 9001, 0, &a));
		T_OK(mem_wrap(a->base.va + 4001, 5000, 0, 0, &w));
		T_CHECK(w->ops == a->ops);
		T_CHECK(!w->owned);
		off = a->base.va + 4001 - w->base.va;
		T_CHECK(off + 5000 <= w->size);
		T_EQ(w->buffer_id == a->buffer_id, kinds[i] == PST_KIND_SOFT);
		t_fill(out, 5, 0, 5000);
		T_OK(mem_copy_sync(w, MEM_TO_DEVICE, off, out, 5000));
		T_OK(mem_copy_sync(a, MEM_FROM_DEVICE, 4001, in, 5000));
		T_CHECK(!memcmp(in, out, 5000));
		mem_free(w);
		T_OK(mem_copy_sync(a, MEM_FROM_DEVICE, 4001, in, 5000));
		mem_free(a);
	}
}

static void imports_share_the_bytes_as_far_as_rights_go(void)
{
	uint8_t out[3000], in[3000];

	for (unsigned i = 0; i < NR_KINDS; i++) {
		for (uint32_t rights = 1; rights < 4; rights++) {
			struct mem_alloc *a, *b, *c = NULL;
			struct pst_grant g;
			int r;

			T_OK(mem_alloc(ops_of(i), 0, 3000, PST_MEM_SHARED, &a));
			t_fill(out, 8, 0, 3000);
			T_OK(mem_copy_sync(a, MEM_TO_DEVICE, 0, out, 3000));
			T_OK(mem_export(a, rights, &g));
			T_OK(mem_import(&g, &b));
			T_CHECK(b->buffer_id != a->buffer_id);
			T_EQ(b->rights, rights);

			r = mem_copy_sync(b, MEM_FROM_DEVICE, 0, in, 3000);
			T_EQ(r, rights & PST_RIGHT_READ ? 0 : -EACCES);
			if (!r)
				T_CHECK(!memcmp(in, out, 3000));
			t_fill(out, 9, 0, 3000);
			r = mem_copy_sync(b, MEM_TO_DEVICE, 0, out, 3000);
			T_EQ(r, rights & PST_RIGHT_WRITE ? 0 : -EACCES);
			if (!r) {
				T_OK(mem_copy_sync(a, MEM_FROM_DEVICE, 0, in, 3000));
				T_CHECK(!memcmp(in, out, 3000));
			}
			(void)close(g.fd);
			/* An imported grant can be passed on with at most its own rights. */
			T_EQ(mem_export(b, PST_RIGHT_READ | PST_RIGHT_WRITE, &g),
			     rights == 3 ? 0 : -EACCES);
			if (rights == 3)
				(void)close(g.fd);
			T_OK(mem_export(b, rights, &g));
			T_OK(mem_import(&g, &c));
			/* A grant with more rights than its descriptor has. */
			if (rights == PST_RIGHT_READ) {
				mem_free(c);
				g.rights = 3;
				T_EQ(mem_import(&g, &c), -EACCES);
				c = NULL;
			}
			mem_free(c);
			(void)close(g.fd);
			mem_free(b);
			mem_free(a);
		}
	}
}

static void the_nth_allocation_fails(void)
{
	for (unsigned i = 0; i < NR_KINDS; i++) {
		struct mem_alloc *a = NULL;

		T_OK(fault_set("mem.alloc:2:ENOMEM"));
		T_OK(mem_alloc(ops_of(i), 0, 1, 0, &a));
		mem_free(a);
		a = NULL;
		T_EQ(mem_alloc(ops_of(i), 0, 1, 0, &a), -ENOMEM);
		T_CHECK(!a);
		T_OK(mem_alloc(ops_of(i), 0, 1, 0, &a));
		mem_free(a);
	}
	T_OK(fault_set(NULL));
}

static void what_a_provider_cannot(void)
{
	struct mem_stream *st = NULL;

	T_EQ(mem_stream_new(ops_of(0), 0, &st), -EOPNOTSUPP);
	T_EQ(mem_stream_new(ops_of(1), 1, &st), -ENODEV);
	T_OK(fault_set("mem.stream:1:EMFILE"));
	T_EQ(mem_stream_new(ops_of(1), 0, &st), -EMFILE);
	T_OK(fault_set(NULL));
	T_CHECK(!st);
	mem_stream_free(NULL);
}

#define IDS 1000

static void *take_ids(void *arg)
{
	uint64_t *id = arg;

	for (int i = 0; i < IDS; i++)
		id[i] = mem_buffer_id();
	return NULL;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void buffer_ids_are_unique(void)
{
	static uint64_t ids[4 * IDS];
	pthread_t t[4];

	for (int i = 0; i < 4; i++)
		T_EQ(pthread_create(&t[i], NULL, take_ids, &ids[i * IDS]), 0);
	for (int i = 0; i < 4; i++)
		T_EQ(pthread_join(t[i], NULL), 0);
	qsort(ids, 4 * IDS, sizeof(*ids), by_value);
	T_CHECK(ids[0] != 0);
	for (int i = 1; i < 4 * IDS; i++)
		T_CHECK(ids[i] != ids[i - 1]);
}

int main(void)
{
	(void)unsetenv("PST_SOFT_DEVICES");
	(void)setenv("PST_LIBCUDA", "/nonexistent", 1);
	T_RUN(devices_are_listed);
	T_RUN(names_are_found);
	T_RUN(uuids_are_found);
	T_RUN(providers);
	T_RUN(allocations_are_checked);
	T_RUN(wraps_are_checked);
	T_RUN(exports_are_checked);
	T_RUN(imports_are_checked);
	T_RUN(copies_round_trip);
	T_RUN(copies_stay_inside);
	T_RUN(wraps_share_the_bytes);
	T_RUN(imports_share_the_bytes_as_far_as_rights_go);
	T_RUN(the_nth_allocation_fails);
	T_RUN(what_a_provider_cannot);
	T_RUN(buffer_ids_are_unique);
	return t_done();
}
