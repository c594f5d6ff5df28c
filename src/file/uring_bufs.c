/* SPDX-License-Identifier: MIT */
#include <liburing.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"
#include "file/uring_bufs.h"
#include "file/uring_ring.h"

#define WORTH 2u           /* register once this multiple of lo..hi was moved unregistered */
#define REGISTER_SHARE 16u /* spend at most one part in 16 of the time on registering */

/*
 * Bytes registered with all rings that RLIMIT_MEMLOCK applies to.  The kernel checks each ring
 * separately.
 */
static _Atomic uint64_t locked_bytes;

/* ---------------------------------------------------------------- the limit */

/* Return true if the process has CAP_IPC_LOCK: the kernel checks it when a ring is created. */
static bool may_lock(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = { 0 };

	return syscall(SYS_capget, &head, data) == 0 &&
	       (data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective & CAP_TO_MASK(CAP_IPC_LOCK));
}

/*
 * Count len more bytes as registered if RLIMIT_MEMLOCK has room for them; return 0 or an errno.
 * The kernel may still refuse: it also counts whole huge pages, and the user's other processes,
 * which cannot be queried.
 */
static int uring_bufs_charge(const struct uring_bufs *t, uint64_t len)
{
	uint64_t now = atomic_load(&locked_bytes);
	struct rlimit rl;

	if (t->exempt)
		return 0;
	if (getrlimit(RLIMIT_MEMLOCK, &rl) < 0)
		return errno;
	do
		if (now > rl.rlim_cur || len > rl.rlim_cur - now)
			return ENOMEM;
	while (!atomic_compare_exchange_weak(&locked_bytes, &now, now + len));
	return 0;
}

static void uncharge(const struct uring_bufs *t, uint64_t len)
{
	if (!t->exempt)
		atomic_fetch_sub(&locked_bytes, len);
}

/* ------------------------------------------------------------- registering */

/* Return true if all of these pages are present, so registering faults none in. */
static bool uring_bufs_resident(uintptr_t start, uintptr_t end)
{
	unsigned char there[IO_BUF_MAX / 4096 + 1];
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	size_t nr;

	start = align_down(start, page);
	nr = (size_t)((align_up(end, page) - start) / page);
	if (mincore((void *)start, end - start, there) < 0)
		return false;
	for (size_t i = 0; i < nr; i++)
		if (!(there[i] & 1))
			return false;
	return true;
}

static int update(struct uring_bufs *t, uint32_t slot, uintptr_t start, uint64_t len)
{
	struct iovec iov = { .iov_base = (void *)start, .iov_len = len };
	int r = io_uring_register_buffers_update_tag(t->ring, slot, &iov, NULL, 1);

	return r == 1 ? 0 : r < 0 ? -r : EIO;
}

/* Register the range in the slot; return 0 or an errno.  If the kernel refuses, the slot keeps its
 * old range. */
static int slot_set(struct uring_bufs *t, uint32_t slot, uintptr_t start, uintptr_t end)
{
	struct buf_slot *s = &t->slots[slot];
	int err;

	if (t->err)
		return t->err;
	err = uring_bufs_charge(t, end - start);
	if (err)
		return err;
	err = fault_hit(FAULT_FILE_PIN);
	if (!err)
		err = update(t, slot, start, end - start);
	if (err) {
		log_debug("registering %zu bytes with io_uring failed: %s; pinning them each time",
			  (size_t)(end - start), err_name(err));
		uncharge(t, end - start);
		if (err == ENOMEM)
			t->err = err;
		return err;
	}
	uncharge(t, s->end - s->start);
	s->start = start;
	s->end = end;
	return 0;
}

/* Register the pages of the piece that operations used, unless it is too early. */
static void piece_try(struct uring_bufs *t, const struct io_buf *b, uint32_t piece)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), now = now_ns();
	struct buf_slot *s = &t->slots[b->idx + piece];
	uintptr_t first = (uintptr_t)b->base + piece * IO_BUF_MAX;
	uintptr_t last = first + MIN(b->len - piece * IO_BUF_MAX, IO_BUF_MAX);
	uintptr_t start = MAX(align_down(first + s->lo, page), first);
	uintptr_t end = MIN(align_up(first + s->hi, page), last);

	if (now < t->next)
		return;
	s->moved = 0;
	if (!uring_bufs_resident(start, end))
		return;
	s->err = slot_set(t, b->idx + piece, start, end);
	t->next = now + (now_ns() - now) * REGISTER_SHARE;
}

bool uring_bufs_miss(struct uring_bufs *t, struct io_op *op, uint32_t piece, uintptr_t at,
		     uint64_t len)
{
	const struct io_buf *b = op->reg;
	struct buf_slot *s = &t->slots[b->idx + piece];
	uint64_t lo = at - (uintptr_t)b->base - piece * IO_BUF_MAX, hi = lo + len;

	/* An operation across two pieces stays unregistered. */
	if (!t->on || hi > IO_BUF_MAX)
		return false;
	s->lo = s->hi ? (uint32_t)MIN(s->lo, lo) : (uint32_t)lo;
	s->hi = (uint32_t)MAX(s->hi, hi);
	s->moved += len;
	/* Retry after ENOMEM, because room may appear; the kernel would repeat any other
	 * refusal. */
	if (s->moved >= WORTH * (uint64_t)(s->hi - s->lo) && (!s->err || s->err == ENOMEM))
		piece_try(t, b, piece);
	if (at >= s->start && at + len <= s->end)
		return true;
	op->pin_err = s->err;
	return false;
}

/* -------------------------------------------------------------------- life */

void uring_bufs_init(struct uring_bufs *t, struct io_uring *ring)
{
	t->ring = ring;
	t->exempt = may_lock();
	/* Kernels before 5.19 have no sparse tables: nothing is registered then. */
	t->on = uring_ring_sparse(ring, IORING_REGISTER_BUFFERS2, IO_NR_BUFS) == 0;
}

void uring_bufs_forget(struct uring_bufs *t, uint32_t idx, unsigned nr)
{
	for (uint32_t i = idx; i < idx + nr; i++) {
		struct buf_slot *s = &t->slots[i];

		if (s->end > s->start) {
			(void)update(t, i, 0, 0);
			uncharge(t, s->end - s->start);
		}
		*s = (struct buf_slot){ 0 };
	}
}

void uring_bufs_done(struct uring_bufs *t)
{
	uint64_t sum = 0;

	/* Without a limit, leave the buffers to the kernel, which frees them after the ring is
	 * closed. */
	if (t->exempt || !t->on)
		return;
	for (uint32_t i = 0; i < IO_NR_BUFS; i++)
		sum += t->slots[i].end - t->slots[i].start;
	if (sum)
		(void)io_uring_unregister_buffers(t->ring);
	uncharge(t, sum);
}
