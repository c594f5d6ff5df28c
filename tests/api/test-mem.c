/* SPDX-License-Identifier: MIT */
/*
 * Memory: its description, wraps of freed memory, and device addresses, which the CPU must not
 * be able to access.
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "fusefs.h"
#include "rig.h"

#define SEED 41
#define LEN RIG_MIB(2)

static struct fusefs fuse;

static struct pst_mem_info info_of(const struct pst_mem *m)
{
	struct pst_mem_info info = { .sz = sizeof(info) };

	T_OK(pst_mem_info(m, &info));
	return info;
}

static struct pst_mem *wrap(uint64_t addr, uint64_t len, uint32_t flags, uint32_t kind)
{
	struct pst_mem_opts o = { .sz = sizeof(o), .flags = flags, .kind = kind };
	struct pst_mem *m = NULL;

	T_OK(pst_mem_wrap(addr, len, &o, &m));
	return m;
}

/*
 * Map memory whose place stays empty after munmap(). The kernel puts new mappings into the
 * highest gap that is large enough (mm/mmap.c, vm_unmapped_area()), and a larger gap is above
 * this memory.
 */
static char *map(size_t len)
{
	const size_t apart = (size_t)64 << 30;
	char *top = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *p = mmap(top - apart, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);

	T_CHECK(top != MAP_FAILED && p != MAP_FAILED);
	T_EQ(munmap(top, len), 0);
	T_CHECK(p + len <= top);
	return p;
}

static struct pst_file *data_file(uint64_t len, bool cold)
{
	rig_make(rig_path("data"), SEED, len);
	if (cold)
		rig_cold(rig_path("data"));
	return rig_open(rig_path("data"), RIG_RW);
}

/* ----------------------------------------------------------------- devices */

static void devices(void)
{
	struct pst_device devs[8], one = { .sz = sizeof(one) };
	int n = pst_device_list(NULL, 0);
	char uuid[48] = "";

	T_CHECK(n >= 2);
	for (unsigned i = 0; i < 8; i++)
		devs[i] = (struct pst_device){ .sz = sizeof(devs[0]) };
	T_EQ(pst_device_list(devs, 1), n);
	T_EQ(devs[1].kind, 0);
	T_EQ(pst_device_list(devs, 8), n);
	T_EQ(devs[0].kind, PST_KIND_HOST);
	T_CHECK(strcmp(devs[0].name, "host") == 0);
	for (int i = 0; i < n && i < 8; i++) {
		T_EQ(devs[i].sz, sizeof(devs[0]));
		T_CHECK(devs[i].name[0] && devs[i].model[0]);
		T_OK(pst_device_find(devs[i].name, &one));
		T_EQ(one.kind, devs[i].kind);
		T_EQ(one.index, devs[i].index);
		T_EQ(memcmp(one.uuid, devs[i].uuid, sizeof(one.uuid)), 0);
	}
	devs[1].sz = 8;
	T_EQ(pst_device_list(devs, 2), -EINVAL);

	T_OK(pst_device_find("soft", &one));
	T_EQ(one.kind, PST_KIND_SOFT);
	T_EQ(one.index, 0);
	T_CHECK(one.total > 0);
	for (unsigned i = 0; i < 16; i++)
		(void)snprintf(uuid + 2 * i, 3, "%02x", one.uuid[i]);
	one = (struct pst_device){ .sz = sizeof(one) };
	T_OK(pst_device_find(uuid, &one));
	T_CHECK(strcmp(one.name, "soft:0") == 0);

	T_EQ(pst_device_find("soft:7", &one), -ENODEV);
	T_EQ(pst_device_find("gaudi:0", &one), -ENODEV);
	T_EQ(pst_device_find("ffff:ff:1f.7", &one), -ENODEV);
	T_EQ(pst_device_find("00000000000000000000000000000000", &one), -ENODEV);
	T_EQ(pst_device_find("", &one), -EINVAL);
	T_EQ(pst_device_find("soft:", &one), -EINVAL);
	T_EQ(pst_device_find("soft:-1", &one), -EINVAL);
	T_EQ(pst_device_find("soft:0 ", &one), -EINVAL);
	T_EQ(pst_device_find("tape", &one), -EINVAL);
	T_EQ(pst_device_find(NULL, &one), -EINVAL);
	T_CHECK(strlen(pst_error_text()) > 0);
	T_CHECK(strcmp(one.name, "soft:0") == 0);
}

static void device_texts(void)
{
	char text[PST_DEVICE_TEXT_MAX], page[40];
	int n = pst_device_text("host", text, sizeof(text));

	T_CHECK(n > 0 && text[n - 1] == '\n');
	T_EQ(strlen(text), n);
	(void)snprintf(page, sizeof(page), "page size: %ld bytes\n", sysconf(_SC_PAGESIZE));
	T_CHECK(strstr(text, page));
	T_CHECK(strstr(text, "NUMA nodes: ") && strstr(text, "transparent huge pages: "));

	errno = 4711;
	T_EQ(pst_device_text("host", text, (size_t)n), -ENOSPC);
	T_EQ(errno, 4711);
	T_CHECK(strstr(pst_error_text(), "PST_DEVICE_TEXT_MAX"));
	T_EQ(pst_device_text("host", text, 0), -ENOSPC);
	T_EQ(pst_device_text("host", text, (size_t)n + 1), n);

	/* The software device has no further text. */
	T_EQ(pst_device_text("soft", text, 1), 0);
	T_EQ(text[0], 0);
	T_EQ(pst_device_text("soft:7", text, sizeof(text)), -ENODEV);
	T_EQ(pst_device_text("soft:", text, sizeof(text)), -EINVAL);
	T_EQ(pst_device_text(NULL, text, sizeof(text)), -EINVAL);
	T_EQ(pst_device_text("host", NULL, sizeof(text)), -EINVAL);
}

/* ------------------------------------------------------------- allocations */

static void facts(void)
{
	struct pst_mem *a = rig_alloc(rig_dev, 10000), *b = rig_alloc(rig_dev, 1);
	struct pst_mem_info i = info_of(a), k = info_of(b);

	T_EQ(i.sz, sizeof(i));
	T_EQ(i.kind, rig_soft() ? PST_KIND_SOFT : PST_KIND_HOST);
	T_EQ(i.flags, 0);
	T_EQ(i.len, 10000);
	T_EQ(i.addr, i.base);
	T_CHECK(i.size >= 10000);
	T_EQ(i.addr % 4096, 0);
	T_CHECK(i.buffer_id && k.buffer_id && i.buffer_id != k.buffer_id);
	T_CHECK(strcmp(i.device, rig_dev) == 0);
	if (rig_soft())
		T_CHECK(!pst_mem_ptr(a));
	else
		T_EQ((uintptr_t)pst_mem_ptr(a), i.addr);
	pst_mem_free(b);

	/* An id is never used again, even for the same address. */
	for (unsigned n = 0; n < 20; n++) {
		b = rig_alloc(rig_dev, 1);
		T_CHECK(info_of(b).buffer_id > k.buffer_id);
		k = info_of(b);
		pst_mem_free(b);
	}
	pst_mem_free(a);
	T_CHECK(!pst_mem_free(NULL));
}

/* New host memory is zero.  Bytes that were copied in can be copied out, at any offset. */
static void store_and_load(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, LEN + 1);
	char *buf = malloc(LEN + 1);

	if (!rig_soft()) {
		T_OK(pst_mem_copy_out(m, 0, buf, LEN + 1));
		T_EQ(buf[0], 0);
		T_EQ(memcmp(buf, buf + 1, LEN), 0);
	}
	t_fill(buf, SEED, 0, LEN + 1);
	T_OK(pst_mem_copy_in(m, 0, buf, LEN + 1));
	for (unsigned i = 0; i < 50; i++) {
		uint64_t off = rig_below(LEN), len = rig_below(LEN - off + 2);

		T_OK(pst_mem_copy_out(m, off, buf, len));
		T_EQ(t_differs(buf, SEED, off, len), len);
	}
	T_OK(pst_mem_copy_out(m, LEN + 1, buf, 0));
	T_OK(pst_mem_sync(m));
	T_EQ(pst_mem_copy_out(m, LEN + 1, buf, 1), -ERANGE);
	T_EQ(pst_mem_copy_in(m, LEN, buf, 2), -ERANGE);
	T_EQ(pst_mem_copy_in(m, UINT64_MAX, buf, 2), -ERANGE);
	T_EQ(rig_mem_differs(m, LEN, 1, SEED, LEN), 1);
	pst_mem_free(m);
	free(buf);
}

/* -------------------------------------------------------------- soft wraps */

/* A wrap of a part of an allocation shares its bytes. */
static void soft_wraps_share(void)
{
	struct pst_mem *m = rig_alloc("soft:0", LEN), *w[3];
	struct pst_file *f = data_file(LEN, true);
	struct pst_mem_info i = info_of(m), k;

	w[0] = wrap(i.addr, LEN, 0, 0);
	w[1] = wrap(i.addr + 4096, 8192, 0, PST_KIND_SOFT);
	w[2] = wrap(i.addr + 12345, LEN - 12345, 0, 0);
	for (unsigned n = 0; n < 3; n++) {
		k = info_of(w[n]);
		T_EQ(k.kind, PST_KIND_SOFT);
		T_EQ(k.buffer_id, i.buffer_id);
		T_EQ(k.base, i.base);
		T_EQ(k.size, i.size);
		T_CHECK(!pst_mem_ptr(w[n]));
	}
	T_EQ(info_of(w[1]).addr, i.addr + 4096);
	T_EQ(info_of(w[1]).len, 8192);
	rig_mem_fill(m, 0, LEN, 1, 0);
	T_EQ(rig_mem_differs(w[2], 0, LEN - 12345, 1, 12345), LEN - 12345);
	T_EQ(rig_read(f, w[1], 0, 0, 8192).res, 8192);
	T_EQ(rig_mem_differs(m, 4096, 8192, SEED, 0), 8192);
	T_EQ(rig_mem_differs(m, 0, 4096, 1, 0), 4096);
	T_EQ(rig_mem_differs(m, 12288, LEN - 12288, 1, 12288), LEN - 12288);

	/* A copy is limited to the range of the wrap. */
	T_EQ(pst_mem_copy_out(w[1], 8192, &(char){ 0 }, 1), -ERANGE);
	{
		struct pst_io io = rig_io(PST_OP_READ, f, w[1], 0, 1, 8192);

		T_EQ(pst_queue_prep(rig_q, &io), -ERANGE);
	}
	for (unsigned n = 0; n < 3; n++)
		pst_mem_free(w[n]);
	pst_mem_free(m);
	pst_file_close(f);
}

static void bad_wraps(void)
{
	struct pst_mem_opts o = { .sz = sizeof(o) };
	struct pst_mem *m = rig_alloc("soft:0", 10000), *w = NULL;
	uint64_t addr = info_of(m).addr;
	static char own[4096];

	T_EQ(pst_mem_wrap(addr, 10001, NULL, &w), -ERANGE);
	T_EQ(pst_mem_wrap(addr + 9999, 2, NULL, &w), -ERANGE);
	T_EQ(pst_mem_wrap(addr + 10000, 1, NULL, &w), -ERANGE);
	T_EQ(pst_mem_wrap(addr - 1, 10, NULL, &w), -ERANGE);
	T_EQ(pst_mem_wrap(0, 10, NULL, &w), -EINVAL);
	T_EQ(pst_mem_wrap(addr, 0, NULL, &w), -EINVAL);
	T_EQ(pst_mem_wrap(UINT64_MAX - 5, 10, NULL, &w), -EINVAL);
	o.kind = PST_KIND_SOFT;
	T_EQ(pst_mem_wrap((uintptr_t)own, sizeof(own), &o, &w), -EFAULT);
	o.kind = PST_KIND_HOST;
	T_EQ(pst_mem_wrap(addr, 10, &o, &w), -EFAULT);
	o.kind = 99;
	T_EQ(pst_mem_wrap((uintptr_t)own, sizeof(own), &o, &w), -ENODEV);
	o = (struct pst_mem_opts){ .sz = sizeof(o), .flags = PST_MEM_SHARED };
	T_EQ(pst_mem_wrap((uintptr_t)own, sizeof(own), &o, &w), -EINVAL);
	T_CHECK(!w);

	/* Freed memory is unknown to every device. */
	pst_mem_free(m);
	o = (struct pst_mem_opts){ .sz = sizeof(o), .kind = PST_KIND_SOFT };
	T_EQ(pst_mem_wrap(addr, 10, &o, &w), -EFAULT);
}

/* Use a wrap of memory that its owner has freed: no other memory may change. */
static void wrapped_and_freed(void)
{
	struct pst_mem *m = rig_alloc("soft:0", LEN), *w, *other;
	struct pst_file *f = data_file(LEN, true);
	uint64_t id = info_of(m).buffer_id;

	w = wrap(info_of(m).addr + 4096, 65536, 0, 0);
	m = pst_mem_free(m);
	other = rig_alloc("soft:0", LEN);
	rig_mem_fill(other, 0, LEN, 2, 0);
	T_EQ(info_of(w).buffer_id, id);
	T_EQ(rig_read(f, w, 0, 0, 65536).res, 65536);
	T_EQ(rig_mem_differs(w, 0, 65536, SEED, 0), 65536);
	T_EQ(rig_write(f, w, 65536, 0, 65536).res, 65536);
	T_EQ(rig_mem_differs(other, 0, LEN, 2, 0), LEN);
	pst_mem_free(w);
	pst_mem_free(other);
	pst_file_close(f);
}

/* Use the address as a pointer, as a program might by mistake. */
static void touch(uint64_t addr, bool write)
{
	volatile char *p = (volatile char *)(uintptr_t)addr;

	(void)signal(SIGSEGV, SIG_DFL); /* die by the signal, without a sanitizer's report */
	(void)signal(SIGBUS, SIG_DFL);
	if (write)
		*p = 1;
	else
		(void)*p;
	_exit(0);
}

static void the_cpu_crashes(void)
{
	struct pst_mem *m = rig_alloc("soft:0", 10000);
	uint64_t addr = info_of(m).addr;

	(void)fflush(stdout);
	for (unsigned i = 0; i < 4; i++) {
		int status = 0;
		pid_t pid = fork();

		if (pid == 0) {
			struct rlimit none = { 0, 0 };

			(void)setrlimit(RLIMIT_CORE, &none);
			touch(addr + (i & 2 ? 9999 : 0), i & 1);
		}
		T_EQ(waitpid(pid, &status, 0), pid);
		T_CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	}
	pst_mem_free(m);
}

/* -------------------------------------------------------------- host wraps */

/* Read from the disk again and again.  Return true once the memory is registered. */
static bool becomes_pinned(struct pst_file *f, struct pst_mem *m)
{
	uint64_t until = t_in_ms(RIG_WAIT_MS);
	struct pst_done d;

	do {
		rig_cold(rig_path("data"));
		d = rig_read(f, m, 0, 0, LEN);
		T_EQ(d.res, LEN);
	} while (!(d.flags & PST_DONE_PINNED) && t_now() < until);
	return d.flags & PST_DONE_PINNED;
}

static void host_wraps(void)
{
	struct pst_file *f = data_file(LEN, false);
	char *p = map(LEN), *odd = malloc(100001);

	for (unsigned pinned = 0; pinned < 2; pinned++) {
		struct pst_mem *m = wrap((uintptr_t)p, LEN, pinned ? PST_MEM_PINNED : 0,
					 pinned ? 0 : PST_KIND_HOST);
		struct pst_mem_info i = info_of(m);
		struct pst_done d;

		T_EQ(i.kind, PST_KIND_HOST);
		T_EQ(i.flags, pinned ? PST_MEM_PINNED : 0);
		T_EQ(i.addr, (uintptr_t)p);
		T_EQ(i.base, (uintptr_t)p);
		T_EQ(i.len, LEN);
		T_CHECK(pst_mem_ptr(m) == p);
		for (unsigned cold = 0; cold < 2; cold++) {
			memset(p, 0, LEN);
			if (cold)
				rig_cold(rig_path("data"));
			d = rig_read(f, m, 0, 0, LEN);
			T_EQ(d.res, LEN);
			T_EQ(t_differs(p, SEED, 0, LEN), LEN);
			/* Only memory that the caller declared pinned may be registered. */
			if (!pinned)
				T_EQ(d.flags & PST_DONE_PINNED, 0);
		}
		if (pinned && rig_backend == PST_BACKEND_URING && !d.why)
			T_CHECK(becomes_pinned(f, m));
		T_EQ(rig_write(f, m, 0, 0, LEN).res, LEN);
		pst_mem_free(m);
	}
	{
		/* Wrap unaligned memory of malloc(3). */
		struct pst_mem *m = wrap((uintptr_t)odd + 1, 100000, 0, 0);

		T_EQ(rig_read(f, m, 77, 0, 100000).res, 100000);
		T_EQ(t_differs(odd + 1, SEED, 77, 100000), 100000);
		pst_mem_free(m);
	}
	T_EQ(munmap(p, LEN), 0);
	free(odd);
	pst_file_close(f);
}

/* Unmap wrapped memory too early: requests fail on every path, and never use other memory's
 * bytes. */
static void host_wrap_unmapped(void)
{
	static const uint64_t policies[] = { 0, PST_PATH_BUFFERED, PST_PATH_DIRECT,
					     PST_PATH_CACHED };
	struct pst_file *f = data_file(LEN, false);
	bool direct = rig_file_info(f).direct;

	for (unsigned i = 0; i < 8; i++) {
		uint32_t op = i & 1 ? PST_OP_WRITE : PST_OP_READ;
		uint64_t policy = policies[i / 2];
		char *p = map(LEN);
		struct pst_mem *m = wrap((uintptr_t)p, LEN, 0, 0);
		struct pst_io io = rig_io(op, f, m, 0, 0, LEN);
		struct pst_done d;

		if ((policy == PST_PATH_DIRECT && !direct) ||
		    (policy == PST_PATH_CACHED && op == PST_OP_WRITE)) {
			pst_mem_free(m);
			T_EQ(munmap(p, LEN), 0);
			continue;
		}
		/*
		 * Use the memory once while it is mapped, so that the library caches what it
		 * can.
		 */
		memset(p, 0, LEN);
		if (policy != PST_PATH_CACHED)
			T_EQ(rig_read(f, m, 0, 0, LEN).res, LEN);
		else
			rig_warm(rig_path("data"));
		io.policy = policy;
		io.flags = PST_IO_CRC32C;
		T_EQ(munmap(p, LEN), 0);
		d = rig_do(rig_q, &io);
		if (d.res != -EFAULT)
			rig_show(&d);
		T_EQ(d.res, -EFAULT);
		T_EQ(d.prefix, 0);
		T_EQ(d.flags & (PST_DONE_PINNED | PST_DONE_BUSY), 0);
		pst_mem_free(m);
	}
	pst_file_close(f);

	/* Nothing was written to the file. */
	f = rig_open(rig_path("data"), RIG_R);
	{
		struct pst_mem *m = rig_alloc("host", LEN);

		T_EQ(rig_read(f, m, 0, 0, LEN).res, LEN);
		T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
		pst_mem_free(m);
	}
	pst_file_close(f);
}

/* Half of the memory is unmapped: the request fails, and its count ends at or before the hole. */
static void host_wrap_with_a_hole(void)
{
	struct pst_file *f = data_file(LEN, false);
	char *p = map(LEN);
	struct pst_mem *m = wrap((uintptr_t)p, LEN, 0, 0);
	struct pst_done d;

	for (unsigned cold = 0; cold < 2; cold++) {
		memset(p, 0, LEN / 2);
		T_EQ(munmap(p + LEN / 2, LEN / 2), 0);
		if (cold)
			rig_cold(rig_path("data"));
		d = rig_read(f, m, 0, 0, LEN);
		if (d.res != -EFAULT)
			rig_show(&d);
		T_EQ(d.res, -EFAULT);
		T_CHECK(d.prefix <= LEN / 2);
		T_EQ(t_differs(p, SEED, 0, d.prefix), d.prefix);
		T_EQ(rig_read(f, m, 0, 0, LEN / 2).res, LEN / 2);
		T_EQ(t_differs(p, SEED, 0, LEN / 2), LEN / 2);
	}
	pst_mem_free(m);
	T_EQ(munmap(p, LEN / 2), 0);
	pst_file_close(f);
}

/* ------------------------------------------------------------------- drain */

static void drain(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	struct pst_file *f = data_file(LEN, true);
	struct pst_io io = rig_io(PST_OP_READ, f, m, 0, 0, LEN);
	uint64_t start = t_now();

	T_OK(pst_mem_drain(m, 0));
	T_OK(pst_mem_drain(m, PST_NO_DEADLINE));

	/* A prepared request counts as a use of the memory. */
	T_OK(pst_queue_prep(rig_q, &io));
	T_EQ(pst_mem_drain(m, 0), -EBUSY);
	T_EQ(pst_mem_drain(m, t_in_ms(60)), -EBUSY);
	T_CHECK(t_now() - start >= UINT64_C(60000000));
	T_EQ(pst_queue_submit(rig_q), 1);

	/* Draining waits for a request in flight, but not for its reaping. */
	T_OK(pst_mem_drain(m, t_in_ms(RIG_WAIT_MS)));
	T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
	T_EQ(rig_reap1(rig_q).res, LEN);
	T_OK(pst_mem_drain(m, 0));
	pst_mem_free(m);
	pst_file_close(f);
}

/* A hung read ends at its deadline: the completion says BUSY if the kernel may still write to
 * the memory. */
static void drain_of_what_hangs(void)
{
	struct pst_mem *m, *other;
	struct pst_file *f;
	struct pst_io io;
	struct pst_done d;
	uint64_t end = t_in_ms(RIG_WAIT_MS);
	unsigned char resident[16];
	char path[200];

	if (!fuse.pid) {
		rig_q = pst_queue_free(rig_q);
		T_SKIP("%s", fuse.why);
	}
	(void)snprintf(path, sizeof(path), "%s/hang", fuse.dir);
	f = rig_open(path, RIG_R);
	m = rig_alloc(rig_dev, 65536);
	other = rig_alloc(rig_dev, 65536);
	io = rig_io(PST_OP_READ, f, m, 0, 0, 65536);
	rig_mem_fill(m, 0, 65536, 1, 0);
	io.deadline_ns = t_in_ms(100);
	d = rig_do(rig_q, &io);
	T_EQ(d.res, -ETIMEDOUT);
	T_OK(pst_mem_drain(other, 0));
	if (rig_soft()) {
		/* The kernel writes to a staging slot, which is never copied to the device. */
		T_EQ(d.flags & PST_DONE_BUSY, 0);
		T_OK(pst_mem_drain(m, 0));
		/* On a very slow machine the worker may not have started the read. */
		T_CHECK(rig_stats(rig_q).busy <= 1);
	} else if (d.flags & PST_DONE_BUSY) {
		T_EQ(pst_mem_drain(m, 0), -EBUSY);
		T_EQ(pst_mem_drain(m, t_in_ms(50)), -EBUSY);
		T_EQ(rig_stats(rig_q).busy, 1);
	}
	/* Freed while busy: the memory stays until it is quiet. */
	if (d.flags & PST_DONE_BUSY) {
		char *p = pst_mem_ptr(m);

		m = pst_mem_free(m);
		T_EQ(mincore(p, 65536, resident), 0); /* the memory is still mapped */
	}
	while (rig_stats(rig_q).busy && t_now() < end) {
		fusefs_release(&fuse);
		(void)usleep(2000);
		(void)pst_queue_reap(rig_q, &d, 0, 1, 0);
	}
	T_EQ(rig_stats(rig_q).busy, 0);
	if (m) {
		if (rig_soft())
			T_EQ(rig_mem_differs(m, 0, 65536, 1, 0), 65536);
		T_OK(pst_mem_drain(m, 0));
		pst_mem_free(m);
	}
	pst_mem_free(other);
	pst_file_close(f);
}

/* Free memory with requests prepared or in flight: the last of them frees it. */
static void freed_in_flight(void)
{
	struct pst_file *f = data_file(LEN, true);
	struct pst_done d[8];

	for (unsigned round = 0; round < 10; round++) {
		struct pst_mem *m = rig_alloc(rig_dev, LEN);

		for (unsigned i = 0; i < 8; i++) {
			struct pst_io io = rig_io(i & 1 ? PST_OP_READ : PST_OP_WRITE, f, m,
						  i * (LEN / 8), i * (LEN / 8), LEN / 8);

			if (!(i & 1))
				rig_mem_fill(m, i * (LEN / 8), LEN / 8, SEED, i * (LEN / 8));
			T_OK(pst_queue_prep(rig_q, &io));
		}
		if (round & 1)
			m = pst_mem_free(m);
		T_EQ(pst_queue_submit(rig_q), 8);
		m = m ? pst_mem_free(m) : NULL;
		T_EQ(pst_queue_reap(rig_q, d, 8, 8, t_in_ms(RIG_WAIT_MS)), 8);
		for (unsigned i = 0; i < 8; i++)
			T_EQ(d[i].res, LEN / 8);
	}
	pst_file_close(f);
}

/* Allocate and free memory while one queue stays: no registration may outlive its memory. */
static void many_come_and_go(void)
{
	struct pst_file *f = data_file(65536, true);

	for (unsigned i = 0; i < 1500; i++) {
		struct pst_mem *m = rig_alloc(rig_dev, 65536);
		uint64_t off = (i % 8) * 4096;

		T_EQ(rig_read(f, m, off, 0, 8192).res, 8192);
		if (i % 50 == 0)
			T_EQ(rig_mem_differs(m, 0, 8192, SEED, off), 8192);
		if (i % 200 == 0)
			rig_cold(rig_path("data"));
		pst_mem_free(m);
	}
	pst_file_close(f);
}

int main(void)
{
	rig_init();
	RIG_RUN1(devices);
	RIG_RUN1(device_texts);
	RIG_RUN(facts);
	RIG_RUN(store_and_load);
	RIG_RUN_BACKENDS(soft_wraps_share);
	RIG_RUN1(bad_wraps);
	RIG_RUN_BACKENDS(wrapped_and_freed);
	RIG_RUN1(the_cpu_crashes);
	RIG_RUN_BACKENDS(host_wraps);
	RIG_RUN_BACKENDS(host_wrap_unmapped);
	RIG_RUN_BACKENDS(host_wrap_with_a_hole);
	RIG_RUN(drain);
	(void)fusefs_start(&fuse, rig_dir);
	RIG_RUN(drain_of_what_hangs);
	fusefs_stop(&fuse);
	RIG_RUN(freed_in_flight);
	RIG_RUN(many_come_and_go);
	return rig_done();
}
