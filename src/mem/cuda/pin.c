/* SPDX-License-Identifier: MIT */
/*
 * Host memory that devices reach by themselves.
 *
 * While the driver locks pages, other users of the device wait.  So memory is registered in pieces.
 * A copy must not cross the end of a piece, so a table records the pieces.  Registrations are
 * portable, which means valid in every context, and are counted: the same range may be pinned for
 * several devices.
 *
 * No lock is held while the driver registers or unregisters a piece.  The list of moves has the
 * pieces that the driver is working on; only a thread that needs one of the same bytes waits for
 * them.
 */
#include <inttypes.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "mem/cuda/cuda.h"

#define PIECE MIB(8)
#define PAUSE_NS 200000 /* ns to sleep after a piece */

struct pin {
	uint64_t host, len;
	cu_ptr dev;     /* device address of the piece; 0: kernels cannot reach it */
	unsigned flags; /* CU_REGISTER_* */
	unsigned refs;
	struct cuda_dev *d; /* device in whose primary context the piece is registered */
	cu_ctx ctx;
	uint64_t life; /* life of the context */
	bool doubtful; /* a reset during the registration may have ended the piece */
};

/* A piece that the driver is registering or unregistering.  Such a piece is not in the table. */
struct move {
	struct list link;
	uint64_t host, len;
	bool of_file;
};

/* Lock order: ctl, table.  The driver is called without both. */
static pthread_mutex_t ctl = PTHREAD_MUTEX_INITIALIZER; /* covers moves, and changes of the table */
static pthread_cond_t move_over = PTHREAD_COND_INITIALIZER;
static struct list moves = LIST_INIT(moves);
static size_t nr_moves, nr_file_moves;
static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
static struct pin *pins; /* the table: sorted by host, disjoint */
static size_t nr_pins, room_pins;

/* Return the index of the first piece that ends after an address; under one of the locks. */
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
		/* A kernel that writes to a read-only registration would fault. */
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

/* Make room in the table for all moves and one more piece; ctl is held. */
static int table_room(void)
{
	struct pin *room;

	if (nr_pins + nr_moves < room_pins)
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

/* Add a piece to the table, which has room; ctl is held. */
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

/* Remove piece i from the table; ctl is held. */
static void table_del(size_t i)
{
	(void)pthread_rwlock_wrlock(&table);
	nr_pins--;
	memmove(&pins[i], &pins[i + 1], (nr_pins - i) * sizeof(*pins));
	(void)pthread_rwlock_unlock(&table);
}

/* Free the table if it is empty and no move needs room in it; ctl is held. */
static void table_trim(void)
{
	if (nr_pins || nr_moves)
		return;
	(void)pthread_rwlock_wrlock(&table);
	free(pins);
	pins = NULL;
	room_pins = 0;
	(void)pthread_rwlock_unlock(&table);
}

/* ------------------------------------------------------------------- moves */

/* Add a piece to the moves; ctl is held. */
static void move_begin(struct move *m, const struct pin *p)
{
	*m = (struct move){ .host = p->host,
			    .len = p->len,
			    .of_file = p->flags & CU_REGISTER_READ_ONLY };
	list_add_tail(&moves, &m->link);
	nr_moves++;
	nr_file_moves += m->of_file;
}

/* Remove a piece from the moves, and wake waiting threads; ctl is held. */
static void move_end(struct move *m)
{
	list_del(&m->link);
	nr_moves--;
	nr_file_moves -= m->of_file;
	table_trim();
	(void)pthread_cond_broadcast(&move_over);
}

/* Return true if a piece of the moves has some of these bytes; ctl is held. */
static bool is_moving(uint64_t host, uint64_t len)
{
	struct list *e;

	list_for_each (e, &moves) {
		const struct move *m = list_entry(e, struct move, link);

		if (host < m->host + m->len && m->host < host + len)
			return true;
	}
	return false;
}

/* ------------------------------------------------------------------ pieces */

static void piece_unpin(uint64_t host)
{
	CUDA_SCOPE(scope);
	struct move m;
	struct pin p;
	size_t i;

	(void)pthread_mutex_lock(&ctl);
	i = pin_at(host);
	if (i == nr_pins || pins[i].host != host || --pins[i].refs) {
		(void)pthread_mutex_unlock(&ctl);
		return;
	}
	p = pins[i];
	table_del(i);
	move_begin(&m, &p);
	(void)pthread_mutex_unlock(&ctl);
	if (cuda_lives(p.d, p.life) && (!p.doubtful || cuda_has_context(p.d))) {
		cuda_enter_anyway(&scope, p.ctx);
		cuda_ignore(p.d, cu.cuMemHostUnregister((void *)(uintptr_t)host),
			    "unregister host memory");
		cuda_leave(&scope);
	}
	(void)pthread_mutex_lock(&ctl);
	move_end(&m);
	(void)pthread_mutex_unlock(&ctl);
	cuda_drop(p.d);
}

static int piece_register(struct pin *p)
{
	void *at = (void *)(uintptr_t)p->host;
	CUDA_SCOPE(scope);
	cu_result e;
	int r;

	r = cuda_enter(&scope, p->d, p->ctx);
	if (r < 0)
		return r;
	e = cu.cuMemHostRegister_v2(at, p->len, p->flags);
	if (e == CU_HOST_ALREADY_REGISTERED)
		return err_set(EBUSY, "host memory is registered with CUDA already, in part");
	if (e != CU_OK)
		return cuda_err(p->d, e, "register %" PRIu64 " bytes of host memory", p->len);
	if (cu.cuMemHostGetDevicePointer_v2(&p->dev, at, 0) != CU_OK)
		p->dev = 0;
	return 0;
}

/*
 * Begin to pin a piece; ctl is held.  Return 1 if the piece was pinned already, and now has one
 * more user; 0 if the caller must register it; -EAGAIN if @now is set and the driver is working on
 * pages of a file; another -errno.
 */
static int piece_begin(const struct pin *p, struct move *m, bool now)
{
	size_t i;
	int r;

	if (now && nr_file_moves)
		return err_set(EAGAIN, "the driver is pinning pages of a file, or unpinning them");
	while (is_moving(p->host, p->len))
		(void)pthread_cond_wait(&move_over, &ctl);
	i = pin_at(p->host);
	if (i < nr_pins && pins[i].host == p->host && pins[i].len == p->len &&
	    pins[i].flags == p->flags) {
		pins[i].refs++;
		return 1;
	}
	r = table_room();
	if (r == 0)
		move_begin(m, p);
	return r;
}

/* Pin a piece.  If *ret_pinned is set, the caller must unpin it, even after a failure. */
static int piece_pin(struct cuda_dev *d, uint64_t life, uint64_t host, uint64_t len, unsigned flags,
		     bool now, bool *ret_pinned)
{
	struct pin p = {
		.host = host, .len = len, .flags = flags, .refs = 1, .d = d, .life = life
	};
	struct move m;
	int r;

	*ret_pinned = false;
	(void)pthread_mutex_lock(&ctl);
	r = piece_begin(&p, &m, now);
	(void)pthread_mutex_unlock(&ctl);
	*ret_pinned = r > 0;
	if (r)
		return MIN(r, 0);
	r = cuda_hold_life(d, life, &p.ctx);
	if (r == 0) {
		r = piece_register(&p);
		if (r < 0)
			cuda_drop(d);
	}
	*ret_pinned = r == 0;
	/* Check for a reset during the registration.  The reset may have ended the piece, or the
	 * piece was registered in the context that the program created afterwards. */
	if (r == 0)
		(void)cuda_lives(d, life);
	(void)pthread_mutex_lock(&ctl);
	if (*ret_pinned) {
		r = cuda_check_life(d, life);
		p.life = atomic_load(&d->life);
		p.doubtful = r < 0;
		table_add(&p); /* the next reset finds the piece in the table */
	}
	move_end(&m);
	(void)pthread_mutex_unlock(&ctl);
	return r;
}

unsigned cuda_pins_forget(struct cuda_dev *d)
{
	size_t kept = 0, nr;

	(void)pthread_mutex_lock(&ctl);
	(void)pthread_rwlock_wrlock(&table);
	nr = nr_pins;
	for (size_t i = 0; i < nr; i++)
		if (pins[i].d != d)
			pins[kept++] = pins[i];
	nr_pins = kept;
	(void)pthread_rwlock_unlock(&table);
	table_trim();
	(void)pthread_mutex_unlock(&ctl);
	return (unsigned)(nr - kept);
}

/* Sleep for a moment: otherwise other threads that wait for the driver's lock would not get it. */
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

static int pin(unsigned device, uint64_t life, void *host, uint64_t len, unsigned flags, bool now,
	       uint64_t *ret_len)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)host, done = 0;
	uint64_t whole = align_up(len, page);
	bool pinned;
	int r = 0;

	*ret_len = 0;
	if (!len || at & (page - 1))
		return err_set(EINVAL, "memory to pin must be whole pages");
	while (r == 0 && done < whole) {
		uint64_t n = MIN(whole - done, PIECE);

		r = piece_pin(cuda_device(device), life, at + done, n, flags, now, &pinned);
		if (len >= PIECE)
			let_others();
		done += pinned ? n : 0;
	}
	*ret_len = MIN(done, len);
	return r;
}

int cuda_pin(unsigned device, uint64_t life, void *host, uint64_t len, uint64_t *ret_len)
{
	return pin(device, life, host, len, CU_REGISTER_PORTABLE | CU_REGISTER_DEVICEMAP, false,
		   ret_len);
}

int cuda_pin_now(unsigned device, uint64_t life, void *host, uint64_t len, uint64_t *ret_len)
{
	return pin(device, life, host, len, CU_REGISTER_PORTABLE | CU_REGISTER_DEVICEMAP, true,
		   ret_len);
}

/* The driver registers a read-only mapping of a file only with a flag that promises that devices
 * will not write either.  Not every device supports that flag. */
int cuda_pin_file(unsigned device, uint64_t life, void *host, uint64_t len, uint64_t *ret_len)
{
	struct cuda_dev *d = cuda_device(device);

	*ret_len = 0;
	if (!d->read_only_register)
		return err_set(EOPNOTSUPP, "%s cannot register memory read-only", d->info.name);
	return pin(device, life, host, len,
		   CU_REGISTER_PORTABLE | CU_REGISTER_DEVICEMAP | CU_REGISTER_READ_ONLY, false,
		   ret_len);
}

void cuda_unpin(unsigned device, void *host, uint64_t len)
{
	(void)device; /* each piece knows its device */
	unpin_pieces((uintptr_t)host, len);
}
