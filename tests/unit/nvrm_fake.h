/* SPDX-License-Identifier: MIT */
/*
 * Memory for tests of the nvrm back end below the proofs: a provider whose parts are memfds,
 * which the stub of the driver takes for device memory.
 */
#ifndef PST_NVRM_FAKE_H
#define PST_NVRM_FAKE_H

#include <fcntl.h>
#include <sys/mman.h>

#include "base/err.h"
#include "stub/nvrm_stub.h"
#include "window/nvrm/nvrm.h"
#include "window/window.h"

#define T_ERROR_TEXT() err_text()
#include "t.h"

#define PAGE 4096u
#define RW (PST_RIGHT_READ | PST_RIGHT_WRITE)
#define PARTS_MAX 512

/* ------------------------------------------------------------ fake memory */

/* An allocation of parts.  Each part is a memfd that holds the pattern of its bytes. */
static struct fake {
	struct mem_alloc a;
	unsigned nr;
	uint64_t lead; /* bytes of the IPC object before the part */
	bool ipc, imported;
	uint32_t pid;
	struct {
		uint64_t off, len;
		int fd;
	} part[PARTS_MAX];
} mem;

static inline void fake_info(unsigned idx, struct pst_device *ret)
{
	(void)snprintf(ret->name, sizeof(ret->name), "cuda:%u", idx);
	stub_nvrm_device(idx, ret->pci, ret->uuid);
}

static inline void ipc_of(int fd, uint64_t size, uint64_t off, uint32_t pid, uint8_t ret[64])
{
	uint32_t w[NVRM_IPC_WORDS] = { 0 };

	w[NVRM_IPC_PID] = pid;
	memcpy(&w[NVRM_IPC_SIZE], &size, 8);
	w[NVRM_IPC_OFFSET] = (uint32_t)off;
	w[NVRM_IPC_CLIENT] = NVRM_CLIENT_BASE | ((uint32_t)getpid() & ~NVRM_CLIENT_MASK);
	w[NVRM_IPC_OBJECT] = STUB_OBJECT | (uint32_t)fd;
	memcpy(ret, w, 64);
}

static inline int fake_part(const struct mem_alloc *a, uint64_t off, struct mem_part *ret)
{
	(void)a;
	for (unsigned i = 0; i < mem.nr; i++) {
		if (off < mem.part[i].off || off - mem.part[i].off >= mem.part[i].len)
			continue;
		ret->off = mem.part[i].off;
		ret->len = mem.part[i].len;
		ret->imported = mem.imported;
		if (mem.ipc) {
			ipc_of(mem.part[i].fd, mem.part[i].len, mem.lead, mem.pid, ret->ipc);
			return 0;
		}
		ret->fd = fcntl(mem.part[i].fd, F_DUPFD_CLOEXEC, 0);
		return ret->fd < 0 ? err_set(errno, "no descriptor") : 0;
	}
	return err_set(EFAULT, "no part at %" PRIu64, off);
}

static const struct mem_ops fake_ops = {
	.name = "cuda",
	.kind = PST_KIND_CUDA,
	.device_info = fake_info,
	.export_part = fake_part,
};

static inline void pattern(int fd, uint64_t at, uint64_t from, uint64_t len)
{
	char *buf = malloc(len);

	T_CHECK(buf);
	t_fill(buf, 1, from, len);
	T_EQ(pwrite(fd, buf, len, (off_t)at), (ssize_t)len);
	free(buf);
}

static inline void add(const char *kind, unsigned device, uint64_t len, uint64_t lead)
{
	uint64_t off = mem.a.size;
	char name[64];
	int fd;

	(void)snprintf(name, sizeof(name), "stub-cuda-%s-%u-%u", kind, device,
		       !strcmp(kind, "vmm"));
	fd = memfd_create(name, MFD_CLOEXEC);
	T_CHECK(fd >= 0 && ftruncate(fd, (off_t)align_up(lead + len, PAGE)) == 0);
	pattern(fd, lead, off, len);
	mem.part[mem.nr].off = off;
	mem.part[mem.nr].len = len;
	mem.part[mem.nr++].fd = fd;
	mem.a.size += len;
}

static inline void forget(void)
{
	for (unsigned i = 0; i < mem.nr; i++)
		(void)close(mem.part[i].fd);
	mem = (struct fake){ .a = { .ops = &fake_ops, .rights = RW }, .pid = (uint32_t)getpid() };
}

/* Make an allocation of nr parts of len bytes, exported by descriptor. */
static inline void by_fd(unsigned nr, uint64_t len)
{
	forget();
	for (unsigned i = 0; i < nr; i++)
		add("vmm", 0, len, 0);
}

static inline void by_ipc(uint64_t len, uint64_t lead)
{
	forget();
	mem.ipc = true;
	mem.lead = lead;
	add("plain", 0, len, lead);
}

static inline struct window_src src_of(uint64_t off, uint64_t len, uint32_t rights)
{
	return (struct window_src){ .alloc = &mem.a, .off = off, .len = len, .rights = rights };
}

static inline struct window *open_at(uint64_t off, uint64_t len)
{
	struct window_src src = src_of(off, len, RW);
	struct window *w = NULL;

	T_OK(window_nvrm_ops.open(&src, &w));
	return w;
}

static inline int refused(uint64_t off, uint64_t len, uint32_t rights)
{
	struct window_src src = src_of(off, len, rights);
	struct window *w = NULL;
	int r = window_nvrm_ops.open(&src, &w);

	if (r == 0)
		window_nvrm_ops.close(w);
	T_EQ(stub_nvrm_left(), 0);
	return r;
}

static inline bool says(const char *what)
{
	if (strstr(err_text(), what))
		return true;
	printf("# the sentence is: %s\n", err_text());
	return false;
}

/* Check that the window reads the right bytes, and that its last byte is written to the right
 * part. */
static inline void check_window(struct window *w, uint64_t off)
{
	unsigned char was, back = 0;
	const volatile unsigned char *p = (void *)w->ptr;

	for (uint64_t i = 0; i < w->len; i = i < 64 || w->len - i <= 64 ? i + 1 : i + 61)
		if (p[i] != t_byte(1, off + i))
			T_FAIL("byte %" PRIu64 " of the window is wrong", i);
	was = *(unsigned char *)(w->ptr + w->len - 1);
	*(unsigned char *)(w->ptr + w->len - 1) ^= 0xff;
	for (unsigned i = 0; i < mem.nr; i++) {
		uint64_t at = off + w->len - 1 - mem.part[i].off;

		if (off + w->len - 1 < mem.part[i].off || at >= mem.part[i].len)
			continue;
		T_EQ(pread(mem.part[i].fd, &back, 1, (off_t)(mem.lead + at)), 1);
	}
	T_EQ(back, was ^ 0xff);
	*(unsigned char *)(w->ptr + w->len - 1) = was;
}

#endif
