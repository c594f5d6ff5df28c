/* SPDX-License-Identifier: MIT */
/*
 * Host memory that devices reach by themselves.
 *
 * The driver locks pages and keeps other users of the device waiting for as long as that
 * takes, so it is done in pieces.  A copy must not reach over the end of a piece, hence
 * the table.  Registrations are portable, that is good for every context, and counted:
 * the same range may be pinned for several devices.
 */
#include <inttypes.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "mem/cuda/cuda.h"

#define PIECE MIB(8)
#define PAUSE_NS 200000 /* after a piece */

struct pin {
	uint64_t host, len;
	cu_ptr dev;     /* 0: kernels cannot reach it */
	unsigned flags; /* CU_REGISTER_* */
	unsigned refs;
	struct cuda_dev *d; /* in whose context it was registered; held */
	cu_ctx ctx;
};

/* Lock order: ctl, table. */
static pthread_mutex_t ctl = PTHREAD_MUTEX_INITIALIZER; /* one registers at a time */
static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
static struct pin *pins; /* sorted by host, disjoint */
static size_t nr_pins, room_pins;

/* The first that ends behind an address; a lock is held. */
static size_t pin_at(uint64_t host)
{
	size_t lo = 0, hi = nr_pins;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (pins[mid].host + pins[mid].len <= host)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

void cuda_pins_hold(void)
{
	(void)pthread_rwlock_rdlock(&table);
}

void cuda_pins_drop(void)
{
	(void)pthread_rwlock_unlock(&table);
}

uint64_t cuda_pin_find_held(const void *host, uint64_t len, enum mem_dir dir, cu_ptr *ret_dev,
			    uint64_t *ret_len)
{
	uint64_t at = (uintptr_t)host, n = 0;
	const struct pin *p;
	size_t i;

	*ret_len = len;
	*ret_dev = 0;
	i = pin_at(at);
	p = i < nr_pins ? &pins[i] : NULL;
	if (p && p->host <= at) {
		n = *ret_len = MIN(len, p->host + p->len - at);
		/* A kernel that wrote to a read-only registration would fault. */
		if (p->dev && (dir == MEM_TO_DEVICE || !(p->flags & CU_REGISTER_READ_ONLY)))
			*ret_dev = p->dev + (at - p->host);
	} else if (p) {
		*ret_len = MIN(len, p->host - at);
	}
	return n;
}

uint64_t cuda_pin_find(const void *host, uint64_t len, enum mem_dir dir, cu_ptr *ret_dev,
		       uint64_t *ret_len)
{
	uint64_t n;

	cuda_pins_hold();
	n = cuda_pin_find_held(host, len, dir, ret_dev, ret_len);
	cuda_pins_drop();
	return n;
}

/* ctl is held: room for one more. */
static int table_room(void)
{
	struct pin *room;

	if (nr_pins < room_pins)
		return 0;
	(void)pthread_rwlock_wrlock(&table);
	room = reallocarray(pins, room_pins ? 2 * room_pins : 16, sizeof(*pins));
	if (room) {
		pins = room;
		room_pins = room_pins ? 2 * room_pins : 16;
	}
	(void)pthread_rwlock_unlock(&table);
	return room ? 0 : err_set(ENOMEM, "no memory to describe pinned memory");
}

/* ctl is held, and there is room. */
static void table_add(const struct pin *p)
{
	size_t i;

	(void)pthread_rwlock_wrlock(&table);
	i = pin_at(p->host);
	memmove(&pins[i + 1], &pins[i], (nr_pins - i) * sizeof(*pins));
	pins[i] = *p;
	nr_pins++;
	(void)pthread_rwlock_unlock(&table);
}

/* ctl is held. */
static void table_del(size_t i)
{
	(void)pthread_rwlock_wrlock(&table);
	nr_pins--;
	memmove(&pins[i], &pins[i + 1], (nr_pins - i) * sizeof(*pins));
	if (!nr_pins) {
		free(pins);
		pins = NULL;
		room_pins = 0;
	}
	(void)pthread_rwlock_unlock(&table);
}

/* ctl is held. */
static void piece_unpin(uint64_t host)
{
	size_t i = pin_at(host);
	CUDA_SCOPE(scope);
	struct pin p;

	if (i == nr_pins || pins[i].host != host || --pins[i].refs)
		return;
	p = pins[i];
	table_del(i);
	cuda_enter_anyway(&scope, p.ctx);
	cuda_ignore(p.d, cu.cuMemHostUnregister((void *)(uintptr_t)host), "unregister host memory");
	cuda_leave(&scope);
	cuda_drop(p.d);
}

/* ctl is held. */
static int piece_pin(struct cuda_dev *d, uint64_t host, uint64_t len, unsigned flags)
{
	struct pin p = { .host = host, .len = len, .flags = flags, .refs = 1, .d = d };
	void *at = (void *)(uintptr_t)host;
	size_t i = pin_at(host);
	CUDA_SCOPE(scope);
	cu_result e;
	int r;

	if (i < nr_pins && pins[i].host == host && pins[i].len == len && pins[i].flags == flags) {
		pins[i].refs++;
		return 0;
	}
	r = table_room();
	if (r == 0)
		r = cuda_hold(d, &p.ctx);
	if (r < 0)
		return r;
	r = cuda_enter(&scope, d, p.ctx);
	if (r == 0) {
		e = cu.cuMemHostRegister_v2(at, len, flags);
		if (e == CU_HOST_ALREADY_REGISTERED)
			r = err_set(EBUSY, "host memory is registered with CUDA already, in part");
		else if (e != CU_OK)
			r = cuda_err(d, e, "register %" PRIu64 " bytes of host memory", len);
	}
	if (r == 0) {
		if (cu.cuMemHostGetDevicePointer_v2(&p.dev, at, 0) != CU_OK)
			p.dev = 0;
		table_add(&p);
	}
	cuda_leave(&scope);
	if (r < 0)
		cuda_drop(d);
	return r;
}

/* Other threads that wait for the driver's lock get it only if we stay away for a moment. */
static void let_others(void)
{
	const struct timespec pause = { .tv_nsec = PAUSE_NS };

	(void)nanosleep(&pause, NULL);
}

static void unpin_pieces(uint64_t host, uint64_t len)
{
	for (uint64_t done = 0; done < len; done += PIECE) {
		piece_unpin(host + done);
		if (len >= PIECE)
			let_others();
	}
}

static int pin(unsigned device, void *host, uint64_t len, unsigned flags, uint64_t *ret_len)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)host, done = 0;
	uint64_t whole = align_up(len, page);
	int r = 0;

	*ret_len = 0;
	if (!len || at & (page - 1))
		return err_set(EINVAL, "memory to pin must be whole pages");
	(void)pthread_mutex_lock(&ctl);
	while (r == 0 && done < whole) {
		uint64_t n = MIN(whole - done, PIECE);

		r = piece_pin(cuda_device(device), at + done, n, flags);
		if (len >= PIECE)
			let_others();
		done += r == 0 ? n : 0;
	}
	(void)pthread_mutex_unlock(&ctl);
	*ret_len = MIN(done, len);
	return r;
}

int cuda_pin(unsigned device, void *host, uint64_t len, uint64_t *ret_len)
{
	return pin(device, host, len, CU_REGISTER_PORTABLE | CU_REGISTER_DEVICEMAP, ret_len);
}

/* A mapping of a file that cannot be written is only taken with the flag that promises that
 * devices will not write either, which not every device can keep. */
int cuda_pin_file(unsigned device, void *host, uint64_t len, uint64_t *ret_len)
{
	struct cuda_dev *d = cuda_device(device);

	*ret_len = 0;
	if (!d->read_only_register)
		return err_set(EOPNOTSUPP, "%s cannot register memory read-only", d->info.name);
	return pin(device, host, len,
		   CU_REGISTER_PORTABLE | CU_REGISTER_DEVICEMAP | CU_REGISTER_READ_ONLY, ret_len);
}

void cuda_unpin(unsigned device, void *host, uint64_t len)
{
	(void)device; /* each piece knows its own */
	(void)pthread_mutex_lock(&ctl);
	unpin_pieces((uintptr_t)host, len);
	(void)pthread_mutex_unlock(&ctl);
}
