/* SPDX-License-Identifier: MIT */
/* Every function of <gdrapi.h> and every error of each, on the software device. */
#include "gdr_rig.h"

#define LEN (1u << 20)

/* Sizes and values that are part of the ABI. */
#define SAME(a, b) _Static_assert((long)(a) == (long)(b), #a)
SAME(sizeof(gdr_mh_t), 8);
SAME(sizeof(gdr_t), 8);
SAME(sizeof(gdr_info_v1_t), 40);
SAME(sizeof(gdr_info_v2_t), 48);
SAME(sizeof(gdr_info_t), 48);
SAME(offsetof(gdr_info_v1_t, va), 0);
SAME(offsetof(gdr_info_v1_t, mapped_size), 8);
SAME(offsetof(gdr_info_v1_t, page_size), 16);
SAME(offsetof(gdr_info_v1_t, tm_cycles), 24);
SAME(offsetof(gdr_info_v1_t, cycles_per_ms), 32);
SAME(offsetof(gdr_info_v2_t, va), 0);
SAME(offsetof(gdr_info_v2_t, mapped_size), 8);
SAME(offsetof(gdr_info_v2_t, page_size), 16);
SAME(offsetof(gdr_info_v2_t, tm_cycles), 24);
SAME(offsetof(gdr_info_v2_t, cycles_per_ms), 32);
SAME(offsetof(gdr_info_v2_t, mapping_type), 40);
SAME(sizeof(gdr_mapping_type_t), 4);
SAME(GDR_API_VERSION, 2 << 16 | 6);
SAME(MINIMUM_GDRDRV_VERSION, 2 << 16);
SAME(GPU_PAGE_SHIFT, 16);
SAME(GPU_PAGE_SIZE, 65536);
SAME(GPU_PAGE_OFFSET, 65535);
SAME(GPU_PAGE_MASK, ~65535l);
SAME(GDR_PIN_FLAG_DEFAULT, 0);
SAME(GDR_PIN_FLAG_FORCE_PCIE, 1);
SAME(GDR_MAP_FLAG_DEFAULT, 0);
SAME(GDR_MAP_FLAG_REQ_WC_MAPPING, 1);
SAME(GDR_MAP_FLAG_REQ_CACHE_MAPPING, 2);
SAME(GDR_MAP_FLAG_REQ_DEVICE_MAPPING, 3);
SAME(GDR_MAPPING_TYPE_NONE, 0);
SAME(GDR_MAPPING_TYPE_WC, 1);
SAME(GDR_MAPPING_TYPE_CACHING, 2);
SAME(GDR_MAPPING_TYPE_DEVICE, 3);
SAME(GDR_MAPPING_TYPE_MAX, 4);
SAME(GDR_ATTR_USE_PERSISTENT_MAPPING, 1);
SAME(GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE, 2);
SAME(GDR_ATTR_USING_DMA_BUF_MMAP, 3);
SAME(GDR_ATTR_MAX, 4);

static struct pst_mem *mem;
static unsigned long addr;

/* The calls must not change errno. */
#define ERRNO 77
#define GIVES(call, want)           \
	do {                        \
		errno = ERRNO;      \
		T_EQ(call, want);   \
		T_EQ(errno, ERRNO); \
	} while (0)

static void versions(void)
{
	int major = 0, minor = 0;

	gdr_runtime_get_version(&major, &minor);
	T_EQ(major, 2);
	T_EQ(minor, 6);
	gdr_runtime_get_version(NULL, NULL);
	major = minor = 0;
	GIVES(gdr_driver_get_version(g, &major, &minor), 0);
	T_EQ(major, 2);
	T_EQ(minor, 6);
	GIVES(gdr_driver_get_version(NULL, &major, &minor), EINVAL);
	GIVES(gdr_driver_get_version(g, NULL, &minor), EINVAL);
	GIVES(gdr_driver_get_version(g, &major, NULL), EINVAL);
}

static void attributes(void)
{
	int v = -1;

	GIVES(gdr_get_attribute(g, GDR_ATTR_USE_PERSISTENT_MAPPING, &v), 0);
	T_EQ(v, 1);
	GIVES(gdr_get_attribute(g, GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE, &v), 0);
	T_EQ(v, 0);
	v = -1;
	GIVES(gdr_get_attribute(g, GDR_ATTR_USING_DMA_BUF_MMAP, &v), 0);
	T_EQ(v, 0);
	v = -1;
	GIVES(gdr_get_attribute(g, GDR_ATTR_MAX, &v), EINVAL);
	GIVES(gdr_get_attribute(g, (gdr_attr_t)0, &v), EINVAL);
	GIVES(gdr_get_attribute(g, GDR_ATTR_USE_PERSISTENT_MAPPING, NULL), EINVAL);
	GIVES(gdr_get_attribute(NULL, GDR_ATTR_USE_PERSISTENT_MAPPING, &v), EINVAL);
	T_EQ(v, -1);
}

static void names_of_mappings(void)
{
	static const char *const names[] = { "None", "Write Combining", "Caching", "Device" };
	const char *s = NULL;

	for (int i = 0; i < GDR_MAPPING_TYPE_MAX; i++) {
		GIVES(gdr_get_mapping_type_string((gdr_mapping_type_t)i, &s), 0);
		T_CHECK(!strcmp(s, names[i]));
	}
	GIVES(gdr_get_mapping_type_string(GDR_MAPPING_TYPE_MAX, &s), EINVAL);
	GIVES(gdr_get_mapping_type_string((gdr_mapping_type_t)-1, &s), EINVAL);
	GIVES(gdr_get_mapping_type_string(GDR_MAPPING_TYPE_WC, NULL), EINVAL);
}

static void open_and_close(void)
{
	gdr_t a, b;
	int v;

	errno = ERRNO;
	a = gdr_open();
	b = gdr_open();
	T_EQ(errno, ERRNO);
	T_CHECK(a && b && a != b && a != g);
	GIVES(gdr_close(a), 0);
	GIVES(gdr_close(a), EINVAL);
	GIVES(gdr_get_attribute(a, GDR_ATTR_USE_PERSISTENT_MAPPING, &v), EINVAL);
	/* The handle of a closed session is not given to a new session. */
	T_CHECK(gdr_open() != a);
	GIVES(gdr_close(b), 0);
	GIVES(gdr_close(NULL), EINVAL);
	GIVES(gdr_close((gdr_t)(uintptr_t)0xdeadbeefcafef00d), EINVAL);
}

static void as_many_sessions_as_there_are(void)
{
	enum { MOST = 1024 };
	static gdr_t all[MOST + 1];
	unsigned n = 0;

	while (n <= MOST && (all[n] = gdr_open()) != NULL)
		n++;
	T_CHECK(n > 1000 && n < MOST);
	while (n--)
		T_EQ(gdr_close(all[n]), 0);
	all[0] = gdr_open();
	T_CHECK(all[0]);
	T_EQ(gdr_close(all[0]), 0);
}

static void pins(void)
{
	gdr_mh_t mh = { 5 }, none = { 0 };
	int flag = -1;

	GIVES(gdr_pin_buffer(g, addr, 0, 0, 0, &mh), EINVAL);
	GIVES(gdr_pin_buffer(g, 0, 4096, 0, 0, &mh), EINVAL);
	GIVES(gdr_pin_buffer(g, addr, 4096, 1, 0, &mh), EINVAL);
	GIVES(gdr_pin_buffer(g, addr, 4096, 0, 1, &mh), EINVAL);
	GIVES(gdr_pin_buffer(g, addr, 4096, 0, 0, NULL), EINVAL);
	GIVES(gdr_pin_buffer(NULL, addr, 4096, 0, 0, &mh), EINVAL);
	GIVES(gdr_pin_buffer_v2(g, addr, 4096, GDR_PIN_FLAG_FORCE_PCIE, &mh), EINVAL);
	GIVES(gdr_pin_buffer_v2(g, addr, 4096, 2, &mh), EINVAL);
	GIVES(gdr_pin_buffer(g, addr, SIZE_MAX, 0, 0, &mh), EINVAL);
	GIVES(gdr_pin_buffer(g, ULONG_MAX - 10, 20, 0, 0, &mh), EINVAL);
	GIVES(gdr_pin_buffer(g, addr, LEN + 2 * PAGE, 0, 0, &mh), EINVAL);
	/* Host memory: the stack, and unmapped addresses. */
	GIVES(gdr_pin_buffer(g, (unsigned long)(uintptr_t)&mh, sizeof(mh), 0, 0, &mh), EINVAL);
	GIVES(gdr_pin_buffer(g, PAGE, PAGE, 0, 0, &mh), EINVAL);
	GIVES(gdr_pin_buffer(g, PAGE, 10 * PAGE, 0, 0, &mh), EINVAL);
	T_EQ(mh.h, 5);

	GIVES(gdr_pin_buffer_v2(g, addr, 4096, GDR_PIN_FLAG_DEFAULT, &mh), 0);
	T_CHECK(mh.h && mh.h != 5);
	GIVES(gdr_get_callback_flag(g, mh, &flag), 0);
	T_EQ(flag, 0);
	GIVES(gdr_get_callback_flag(g, mh, NULL), EINVAL);
	GIVES(gdr_get_callback_flag(g, none, &flag), EINVAL);
	GIVES(gdr_unpin_buffer(NULL, mh), EINVAL);
	GIVES(gdr_unpin_buffer(g, none), EINVAL);
	GIVES(gdr_unpin_buffer(g, mh), 0);
	GIVES(gdr_unpin_buffer(g, mh), EINVAL);
	GIVES(gdr_get_callback_flag(g, mh, &flag), EINVAL);
}

static void facts(void)
{
	gdr_mh_t mh = rig_pin(addr, 100000);
	gdr_info_v2_t info;
	void *va;

	memset(&info, 0xff, sizeof(info));
	GIVES(gdr_get_info_v2(g, mh, &info), 0);
	T_EQ(info.va, addr);
	T_EQ(info.mapped_size, 2 * PAGE);
	T_EQ(info.page_size, PAGE);
	T_CHECK(!info.tm_cycles && !info.cycles_per_ms);
	T_CHECK(!info.mapped && !info.wc_mapping);
	T_EQ(info.mapping_type, GDR_MAPPING_TYPE_NONE);

	T_EQ(gdr_map(g, mh, &va, 100000), 0);
	GIVES(gdr_get_info(g, mh, &info), 0);
	T_CHECK(info.mapped && !info.wc_mapping);
	T_EQ(info.mapping_type, GDR_MAPPING_TYPE_CACHING);
	T_EQ(gdr_unmap(g, mh, va, 100000), 0);
	T_EQ(gdr_get_info(g, mh, &info), 0);
	T_CHECK(!info.mapped && info.mapping_type == GDR_MAPPING_TYPE_NONE);
	GIVES(gdr_get_info_v2(g, mh, NULL), EINVAL);
	GIVES(gdr_get_info_v2(NULL, mh, &info), EINVAL);
	T_EQ(gdr_unpin_buffer(g, mh), 0);
	GIVES(gdr_get_info_v2(g, mh, &info), EINVAL);
}

/* Both bits are in the word at byte 36. */
static void places_of_bits(void)
{
	union {
		gdr_info_v2_t v2;
		gdr_info_v1_t v1;
		uint32_t words[12];
	} x;

	memset(&x, 0, sizeof(x));
	x.v2.mapped = 1;
	T_EQ(x.words[9], 1);
	x.v2.wc_mapping = 1;
	T_EQ(x.words[9], 3);
	T_CHECK(x.v1.mapped && x.v1.wc_mapping);
}

/* The function of programs built before 2.4 must fill exactly 40 bytes. */
static void facts_of_old(void)
{
#undef gdr_get_info
	extern int gdr_get_info(gdr_t, gdr_mh_t, gdr_info_v1_t *);
	struct {
		gdr_info_v1_t info;
		char behind[64];
	} x;
	gdr_mh_t mh = rig_pin(addr, 10);

	memset(&x, 0xee, sizeof(x));
	GIVES(gdr_get_info(g, mh, &x.info), 0);
	T_EQ(x.info.va, addr);
	T_EQ(x.info.mapped_size, PAGE);
	T_EQ(x.info.page_size, PAGE);
	T_CHECK(!x.info.mapped);
	for (unsigned i = 0; i < sizeof(x.behind); i++)
		T_EQ((unsigned char)x.behind[i], 0xee);
	GIVES(gdr_get_info(g, mh, NULL), EINVAL);
	T_EQ(gdr_unpin_buffer(g, mh), 0);
	GIVES(gdr_get_info(g, mh, &x.info), EINVAL);
#define gdr_get_info gdr_get_info_v2
}

static void maps(void)
{
	gdr_mh_t mh = rig_pin(addr, 100000), none = { 0 };
	void *va = NULL, *other = NULL;

	GIVES(gdr_map(g, mh, NULL, 4096), EINVAL);
	GIVES(gdr_map(g, mh, &va, 0), EINVAL);
	GIVES(gdr_map(g, mh, &va, 2 * PAGE + 1), EINVAL);
	GIVES(gdr_map(g, mh, &va, SIZE_MAX), EINVAL);
	GIVES(gdr_map(g, none, &va, 4096), EINVAL);
	GIVES(gdr_map(NULL, mh, &va, 4096), EINVAL);
	GIVES(gdr_map_v2(g, mh, &va, 4096, 4), EINVAL);
	GIVES(gdr_map_v2(g, mh, &va, 4096, -1), EINVAL);
	GIVES(gdr_map_v2(g, mh, &va, 4096, GDR_MAP_FLAG_REQ_WC_MAPPING), EOPNOTSUPP);
	GIVES(gdr_map_v2(g, mh, &va, 4096, GDR_MAP_FLAG_REQ_DEVICE_MAPPING), EOPNOTSUPP);
	GIVES(gdr_unmap(g, mh, (void *)addr, 4096), EINVAL);
	T_CHECK(!va);

	GIVES(gdr_map_v2(g, mh, &va, 2 * PAGE, GDR_MAP_FLAG_REQ_CACHE_MAPPING), 0);
	GIVES(gdr_map(g, mh, &other, 4096), EAGAIN);
	T_CHECK(va && !other);
	rig_bytes(mh, va, mem, 0, 2 * PAGE);
	GIVES(gdr_unmap(g, mh, (char *)va + 4096, 4096), EINVAL);
	GIVES(gdr_unmap(g, mh, va, 0), EINVAL);
	GIVES(gdr_unmap(g, mh, va, 2 * PAGE + 1), EINVAL);
	GIVES(gdr_unmap(g, none, va, 2 * PAGE), EINVAL);
	GIVES(gdr_unmap(NULL, mh, va, 2 * PAGE), EINVAL);
	GIVES(gdr_unmap(g, mh, va, 2 * PAGE), 0);
	GIVES(gdr_unmap(g, mh, va, 2 * PAGE), EINVAL);
	/* Map a part of the buffer again. */
	GIVES(gdr_map(g, mh, &va, 5000), 0);
	rig_bytes(mh, va, mem, 0, 8192);
	GIVES(gdr_copy_to_mapping(mh, (char *)va + 8192, &mh, 1), EINVAL);
	/* Unpinning a buffer ends its mapping. */
	GIVES(gdr_unpin_buffer(g, mh), 0);
	GIVES(gdr_unmap(g, mh, va, 5000), EINVAL);
}

static void copies(void)
{
	static char in[70000], out[70000];
	gdr_mh_t mh, none = { 0 }, made_up = { 0x123456789abcdef };
	void *va;
	char *p = rig_map(addr + 4000, 70000, addr + 4000, &mh, &va);

	for (unsigned i = 0; i < 200; i++) {
		size_t off = i * 37, len = (i * i * i) % 5000;

		t_fill(in, i, 0, len);
		GIVES(gdr_copy_to_mapping(mh, p + off, in, len), 0);
		T_OK(pst_mem_copy_out(mem, 4000 + off, out, len));
		T_EQ(t_differs(out, i, 0, len), len);
		memset(out, 0, len);
		GIVES(gdr_copy_from_mapping(mh, out + i % 9, p + off, len), 0);
		T_EQ(t_differs(out + i % 9, i, 0, len), len);
	}
	/* The last byte, and bytes outside: 70,000 bytes are two GPU pages, and both are mapped. */
	GIVES(gdr_copy_to_mapping(mh, p + 70000 - 1, in, 1), 0);
	GIVES(gdr_copy_to_mapping(mh, p - 1, in, 1), EINVAL);
	GIVES(gdr_copy_to_mapping(mh, p + 2 * PAGE, in, 1), EINVAL);
	GIVES(gdr_copy_from_mapping(mh, out, p + 70000, 2 * PAGE), EINVAL);
	GIVES(gdr_copy_from_mapping(mh, out, p, SIZE_MAX), EINVAL);
	GIVES(gdr_copy_to_mapping(mh, p, NULL, 1), EINVAL);
	GIVES(gdr_copy_from_mapping(mh, NULL, p, 1), EINVAL);
	GIVES(gdr_copy_to_mapping(mh, p, NULL, 0), 0);
	GIVES(gdr_copy_from_mapping(mh, NULL, NULL, 0), 0);
	GIVES(gdr_copy_to_mapping(none, p, in, 1), EINVAL);
	GIVES(gdr_copy_to_mapping(made_up, p, in, 1), EINVAL);
	GIVES(gdr_copy_from_mapping(none, out, p, 1), EINVAL);
	T_EQ(gdr_unmap(g, mh, va, 70000), 0);
	GIVES(gdr_copy_to_mapping(mh, p, in, 1), EINVAL);
	GIVES(gdr_copy_from_mapping(mh, out, p, 1), EINVAL);
	T_EQ(gdr_unpin_buffer(g, mh), 0);
	GIVES(gdr_copy_to_mapping(mh, p, in, 1), EINVAL);
}

/* An old handle must stay invalid when a new buffer takes its slot. */
static void old_handles(void)
{
	gdr_mh_t old = rig_pin(addr, 4096), mh;
	gdr_info_t info;
	void *va;
	char *p;

	T_EQ(gdr_unpin_buffer(g, old), 0);
	for (unsigned i = 0; i < 1000; i++) {
		p = rig_map(addr, 4096, addr, &mh, &va);
		T_CHECK(mh.h != old.h);
		GIVES(gdr_copy_to_mapping(old, p, &i, 1), EINVAL);
		GIVES(gdr_get_info(g, old, &info), EINVAL);
		GIVES(gdr_unmap(g, old, va, 4096), EINVAL);
		GIVES(gdr_unpin_buffer(g, old), EINVAL);
		GIVES(gdr_copy_to_mapping(mh, p, &i, 1), 0);
		T_EQ(gdr_unpin_buffer(g, mh), 0);
		old = mh;
	}
}

/* A session must not accept handles of another session. */
static void sessions_are_apart(void)
{
	gdr_t other = gdr_open();
	gdr_mh_t mh = rig_pin(addr, 4096);
	void *va;

	T_CHECK(other);
	GIVES(gdr_map(other, mh, &va, 4096), EINVAL);
	GIVES(gdr_unpin_buffer(other, mh), EINVAL);
	T_EQ(gdr_close(other), 0);
	T_EQ(gdr_unpin_buffer(g, mh), 0);
}

static void two_handles_on_one_range(void)
{
	gdr_mh_t a, b;
	void *va, *vb;
	char *pa = rig_map(addr, LEN, addr + 5000, &a, &va);
	char *pb = rig_map(addr + 4096, 2 * PAGE, addr + 5000, &b, &vb), c = 0;

	T_EQ(gdr_copy_to_mapping(a, pa, "x", 1), 0);
	T_EQ(gdr_copy_from_mapping(b, &c, pb, 1), 0);
	T_EQ(c, 'x');
	/* A handle must not copy through another handle's mapping. */
	T_EQ(gdr_copy_from_mapping(b, &c, pa, 1), EINVAL);
	rig_unmap(a, va, LEN);
	T_EQ(gdr_copy_from_mapping(b, &c, pb, 1), 0);
	*(volatile char *)pb = 'y';
	T_OK(pst_mem_copy_out(mem, 5000, &c, 1));
	T_EQ(c, 'y');
	rig_unmap(b, vb, 2 * PAGE);
}

/* Return true if the address can be read. */
static bool readable(const void *p)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		(void)signal(SIGSEGV, SIG_DFL);
		(void)signal(SIGBUS, SIG_DFL);
		(void)*(const volatile char *)p;
		_exit(0);
	}
	T_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status);
}

static void closing_ends_all(void)
{
	unsigned maps = rig_maps(), fds = t_count_fds();
	gdr_t keep = g;
	gdr_mh_t mh[20];
	void *va[20];
	int v;

	g = gdr_open();
	for (unsigned i = 0; i < 20; i++) {
		mh[i] = rig_pin(addr + i, 4096);
		if (i % 2)
			T_EQ(gdr_map(g, mh[i], &va[i], 4096), 0);
	}
	GIVES(gdr_close(g), 0);
	GIVES(gdr_close(g), EINVAL);
	for (unsigned i = 0; i < 20; i++) {
		GIVES(gdr_unpin_buffer(g, mh[i]), EINVAL);
		GIVES(gdr_unpin_buffer(keep, mh[i]), EINVAL);
		if (i % 2)
			GIVES(gdr_copy_to_mapping(mh[i], va[i], &v, 1), EINVAL);
	}
	g = keep;
	T_CHECK(rig_maps() <= maps + 2);
	T_CHECK(t_fds_left(fds) <= fds);
}

/* A mapping keeps its memory alive, as a persistent mapping of gdrcopy does. */
static void freed_under_a_mapping(void)
{
	unsigned long at;
	struct pst_mem *m = rig_mem("soft", PAGE, &at);
	gdr_mh_t mh, late;
	void *va;
	char *p = rig_map(at, PAGE, at, &mh, &va), b[6] = "";
	int flag = -1;

	T_EQ(gdr_copy_to_mapping(mh, p, "stays", 6), 0);
	pst_mem_free(m);
	T_EQ(gdr_copy_from_mapping(mh, b, p, 6), 0);
	T_CHECK(!strcmp(b, "stays"));
	T_EQ(gdr_get_callback_flag(g, mh, &flag), 0);
	T_EQ(flag, 0);
	rig_unmap(mh, va, PAGE);
	T_EQ(gdr_pin_buffer(g, at, PAGE, 0, 0, &late), EINVAL);
}

static void a_child_has_nothing(void)
{
	gdr_mh_t mh, other;
	void *va, *vb;
	char *p = rig_map(addr, PAGE, addr, &mh, &va);
	gdr_info_t info;
	int status = 0, v;
	pid_t pid;

	T_CHECK(!readable(p));
	pid = fork();
	if (pid == 0) {
		int bad = 0;

		(void)alarm(20);
		bad += gdr_pin_buffer(g, addr, 4096, 0, 0, &other) != EACCES;
		bad += gdr_map(g, mh, &vb, 4096) != EACCES;
		bad += gdr_unmap(g, mh, va, PAGE) != EACCES;
		bad += gdr_unpin_buffer(g, mh) != EACCES;
		bad += gdr_get_info(g, mh, &info) != EACCES;
		bad += gdr_copy_to_mapping(mh, p, &v, 1) != EACCES;
		bad += gdr_copy_from_mapping(mh, &v, p, 1) != EACCES;
		bad += gdr_get_attribute(g, GDR_ATTR_USE_PERSISTENT_MAPPING, &v) != EACCES;
		bad += gdr_close(g) != EACCES;
		bad += gdr_open() != NULL;
		_exit(bad);
	}
	T_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	T_EQ(status, 0);
	rig_bytes(mh, p, mem, 0, PAGE);
	rig_unmap(mh, va, PAGE);
}

/* Pin, copy and unpin many times: no descriptor and no mapping may be left. */
static void many_cycles(void)
{
	unsigned maps, fds, cycles = RIG_SLOW ? 500 : 10000;
	gdr_mh_t keep, mh;
	void *va, *vk;
	char *p;

	/* Keep one mapping, so that device state stays alive between the cycles. */
	(void)rig_map(addr, 4096, addr, &keep, &vk);
	maps = rig_maps();
	fds = t_count_fds();
	for (unsigned i = 0; i < cycles; i++) {
		unsigned long at = addr + i % 9000, back = ~0ul;

		p = rig_map(at, 1000, at, &mh, &va);
		T_EQ(gdr_copy_to_mapping(mh, p + i % 900, &at, sizeof(at)), 0);
		T_EQ(gdr_copy_from_mapping(mh, &back, p + i % 900, sizeof(at)), 0);
		T_EQ(at, back);
		rig_unmap(mh, va, 1000);
	}
	T_CHECK(t_fds_left(fds) <= fds);
	/* malloc() may have made some mappings. */
	T_CHECK(rig_maps() <= maps + 8);
	rig_unmap(keep, vk, 4096);
}

int main(void)
{
	g = gdr_open();
	if (!g || pst_mem_alloc("soft", LEN, NULL, &mem) < 0)
		return 1;
	pst_mem_free(mem);
	mem = rig_mem("soft", LEN, &addr);
	T_RUN(versions);
	T_RUN(attributes);
	T_RUN(names_of_mappings);
	T_RUN(open_and_close);
	T_RUN(as_many_sessions_as_there_are);
	T_RUN(pins);
	T_RUN(facts);
	T_RUN(places_of_bits);
	T_RUN(facts_of_old);
	T_RUN(maps);
	T_RUN(copies);
	T_RUN(old_handles);
	T_RUN(sessions_are_apart);
	T_RUN(two_handles_on_one_range);
	T_RUN(closing_ends_all);
	T_RUN(freed_under_a_mapping);
	T_RUN(a_child_has_nothing);
	T_RUN(many_cycles);
	pst_mem_free(mem);
	T_EQ(gdr_close(g), 0);
	return t_done();
}
