/* SPDX-License-Identifier: MIT */
/* Prepare, submit and wait for requests, without locks or allocations. */
#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "iov.h"
#include "keep.h"
#include "log.h"
#include "mount.h"
#include "usrbio/proto/sem.h"
#include "reg.h"
#include "ring.h"
#include "usrbio/server/server.h"

#define JITTER_MS_MAX 60000
#define ASK_NS (100 * NSEC_PER_MSEC) /* ns without a completion after which the daemon is checked */
#define WATCH_NS 50000u              /* ns; longest poll while another thread moves bytes */
/* Longest poll for a daemon's completion: SPIN_NS, plus about twice the time of copying.  All in
 * ns. */
#define SPIN_NS 20000u
#define SPIN_ENTRY_NS 2000u
#define SPIN_BYTES_PER_NS 4u
#define SPIN_MAX_NS 500000u

static uint64_t jitter_ns = NSEC_PER_MSEC; /* longest sleep between two checks, ns */

static void read_environment(void)
{
	const char *text = secure_getenv("HF3FS_USRBIO_WAIT_JITTER_MS");
	char *end;
	long ms;

	if (!text || !*text)
		return;
	errno = 0;
	ms = strtol(text, &end, 10);
	if (errno || *end || ms < 1 || ms > JITTER_MS_MAX)
		log_line(LOG_WARN,
			 "HF3FS_USRBIO_WAIT_JITTER_MS is '%s', which is not 1 to %d; 1 is taken",
			 text, JITTER_MS_MAX);
	else
		jitter_ns = (uint64_t)ms * NSEC_PER_MSEC;
}

/* ------------------------------------------------------------------ prepare */

/* Return true if the memory lies in the iov and the file range within the largest file. */
static bool in_range(const struct hf3fs_iov *iov, const void *ptr, size_t off, uint64_t len)
{
	uintptr_t base = (uintptr_t)iov->base, at = (uintptr_t)ptr;

	return len && at >= base && at - base <= iov->size && len <= iov->size - (at - base) &&
	       len <= INT64_MAX && off <= INT64_MAX - len;
}

/* Find a free slot; the caller has checked that one exists. */
static uint32_t find_slot(struct ring *r)
{
	uint32_t i = r->next;

	while (atomic_load_explicit(&r->slots[i].reg, memory_order_acquire))
		i = i + 1 == r->entries ? 0 : i + 1;
	r->next = i + 1 == r->entries ? 0 : i + 1;
	return i;
}

/*
 * Log why a request is refused.  One cause often refuses thousands of requests, so only the first
 * after each wait is logged as a warning.
 */
#define refuse(r, err, ...) \
	(log_line(atomic_exchange(&(r)->refused, true) ? LOG_DEBUG : LOG_WARN, __VA_ARGS__), -(err))

/* Get the registration of a descriptor if requests of this ring may use it.  Takes a reference. */
static int find_file(struct ring *r, int fd, struct reg **ret)
{
	struct reg *reg = reg_get(fd);
	int err = 0;

	if (!reg)
		return refuse(r, EBADF, "descriptor %d is not registered", fd);
	/* A daemon and the server in this process number files differently. */
	if (reg->plain != !!r->server)
		err = refuse(r, EBADF, "descriptor %d is registered on another kind of mount", fd);
	else if (r->for_read ? !reg->reads : !reg->writes)
		err = refuse(r, EACCES, "descriptor %d was not opened for %s", fd,
			     r->for_read ? "reading" : "writing");
	if (err < 0)
		reg_put(reg);
	else
		*ret = reg;
	return err;
}

static void io_push(struct ring *r, uint32_t slot, const struct usrbio_args *args)
{
	r->at.args[slot] = *args;
	r->at.sqes[r->sq_head] = (struct usrbio_sqe){ .index = (int32_t)slot,
						      .user_data = args->user_data };
	r->sq_head = usrbio_ring_next(&r->at, r->sq_head);
	/* A release store is enough: submitting executes a full fence before its loads. */
	__atomic_store_n(r->at.sq_head, (int32_t)r->sq_head, __ATOMIC_RELEASE);
}

/* Return the number of requests in flight.  Each of the two counters has one writer and wraps
 * around. */
static inline uint32_t slots_used(const struct ring *r)
{
	return atomic_load_explicit(&r->nr_sent, memory_order_relaxed) -
	       atomic_load_explicit(&r->nr_ended, memory_order_acquire);
}

/* Return true if no request fits.  The server takes entries in order, so its queue may be full
 * while slots are free. */
static bool io_is_full(const struct ring *r)
{
	return slots_used(r) == r->entries ||
	       (int32_t)usrbio_ring_next(&r->at, r->sq_head) == usrbio_marker(r->at.sq_tail);
}

int hf3fs_prep_io(const struct hf3fs_ior *ior, const struct hf3fs_iov *iov, bool read, void *ptr,
		  int fd, size_t off, uint64_t len, const void *userdata)
{
	struct ring *r = ring_get(ior);
	struct usrbio_args args;
	struct reg *reg = NULL;
	uint32_t slot;
	int err;

	if (!r)
		return -EINVAL;
	if (!iov || !iov->iovh || !iov->base)
		return refuse(r, EINVAL,
			      "a request for memory that is none: did creating it fail, or was it "
			      "destroyed?");
	if (read != r->for_read || !in_range(iov, ptr, off, len))
		return refuse(r, EINVAL,
			      "no request of a ring that %s: %s %" PRIu64
			      " bytes at %zu of the file, "
			      "%p in memory of %zu bytes at %p",
			      r->for_read ? "reads" : "writes", read ? "read" : "write", len, off,
			      ptr, iov->size, (void *)iov->base);
	if (ring_is_foreign(r))
		return -EOWNERDEAD;
	if (ring_is_dead(r))
		return -ENOTCONN;
	err = find_file(r, fd, &reg);
	if (err < 0)
		return err;
	if (io_is_full(r)) {
		reg_put(reg);
		return -EAGAIN;
	}
	args = (struct usrbio_args){
		.buf_off = (uintptr_t)ptr - (uintptr_t)iov->base,
		.file = reg->number,
		.file_off = off,
		.len = len,
		.user_data = (uintptr_t)userdata,
	};
	memcpy(args.buf_id, iov->id, sizeof(args.buf_id));
	slot = find_slot(r);
	r->slots[slot].user_data = userdata;
	r->slots[slot].len = len;
	atomic_store_explicit(&r->slots[slot].reg, reg, memory_order_release);
	atomic_store_explicit(&r->bytes_sent, r->bytes_sent + len, memory_order_relaxed);
	atomic_store_explicit(&r->nr_sent, r->nr_sent + 1, memory_order_release);
	io_push(r, slot, &args);
	return (int)slot;
}

/* Tell the server about new requests.  Return false if the daemon truncated the semaphore's
 * memory. */
static bool io_post(struct ring *r)
{
	if (r->server) {
		/* Order the stores of prepared requests before the loads in server_ring_kick(). */
		atomic_thread_fence(memory_order_seq_cst);
		server_ring_kick(r->server);
		return true;
	}
	if (usrbio_sem_post_by_kernel(r->submit) == 0)
		return true;
	if (!atomic_exchange(&r->broken, true))
		log_line(LOG_ERROR,
			 "the daemon of %s took its semaphore away: requests in flight end with "
			 "EREMOTEIO; make the ring again",
			 r->iov->mount->path);
	return false;
}

int hf3fs_submit_ios(const struct hf3fs_ior *ior)
{
	KEEP_ERRNO;
	struct ring *r = ring_get(ior);

	if (!r)
		return -EINVAL;
	if (ring_is_foreign(r))
		return -EOWNERDEAD;
	return io_post(r) ? 0 : -ENOTCONN;
}

/* --------------------------------------------------------------------- take */

/* Make the caller's completion from the ring's.  Return false if its slot has no request. */
static bool io_settle(struct ring *r, struct hf3fs_cqe *cqe)
{
	struct slot *slot = (uint32_t)cqe->index < r->entries ? &r->slots[cqe->index] : NULL;
	struct reg *reg = slot ? atomic_load_explicit(&slot->reg, memory_order_acquire) : NULL;

	if (!reg)
		return false;
	cqe->reserved = 0;
	cqe->userdata = slot->user_data;
	if (cqe->result > 0 && (uint64_t)cqe->result > slot->len)
		cqe->result = -EIO;
	atomic_store_explicit(&r->bytes_ended, r->bytes_ended + slot->len, memory_order_relaxed);
	atomic_store_explicit(&slot->reg, NULL, memory_order_release);
	atomic_store_explicit(&r->nr_ended, r->nr_ended + 1, memory_order_release);
	reg_put(reg);
	return true;
}

/* Take completions in order, and advance the tail. */
static int copy_out(struct ring *r, struct hf3fs_cqe *cqes, int room)
{
	uint32_t head = (uint32_t)usrbio_marker(r->at.cq_head);
	int n = 0;

	if (head >= r->at.slots) {
		if (!atomic_exchange(&r->broken, true))
			log_line(LOG_ERROR, "the server of a ring wrote nonsense into it; it is "
					    "not used any more");
		return 0;
	}
	while (n < room && r->cq_tail != head) {
		memcpy(&cqes[n++], &r->at.cqes[r->cq_tail], sizeof(cqes[0]));
		r->cq_tail = usrbio_ring_next(&r->at, r->cq_tail);
	}
	if (n)
		usrbio_marker_set(r->at.cq_tail, r->cq_tail);
	return n;
}

_Static_assert(sizeof(struct hf3fs_cqe) == sizeof(struct usrbio_cqe), "one form");
_Static_assert(offsetof(struct hf3fs_cqe, result) == offsetof(struct usrbio_cqe, result), "");

/* Take completions, then free their slots.  The tail moves first: otherwise more requests could be
 * prepared than the ring has completions. */
static int harvest(struct ring *r, struct hf3fs_cqe *cqes, int room)
{
	int n = copy_out(r, cqes, room), good = 0;

	for (int i = 0; i < n; i++) {
		cqes[good] = cqes[i];
		if (io_settle(r, &cqes[good]))
			good++;
		else
			log_line(LOG_WARN,
				 "a completion names slot %d, which has no request, "
				 "ignoring",
				 cqes[good].index);
	}
	/* Clear the unused entries: they have bytes of the server, and the caller must not take
	 * these for completions. */
	if (unlikely(good < n))
		memset(&cqes[good], 0, (size_t)(n - good) * sizeof(cqes[0]));
	return good;
}

static bool in_flight(const struct ring *r)
{
	return slots_used(r);
}

/* End all requests of a dead ring with -EREMOTEIO. */
static int io_end_all(struct ring *r, struct hf3fs_cqe *cqes, int room)
{
	int n = 0;

	for (uint32_t i = 0; i < r->entries && n < room; i++) {
		cqes[n] = (struct hf3fs_cqe){ .index = (int32_t)i, .result = -EREMOTEIO };
		if (io_settle(r, &cqes[n]))
			n++;
	}
	return n;
}

static int library_io_take(struct ring *r, struct hf3fs_cqe *cqes, int room)
{
	int n;

	/* Reset the semaphore before checking for completions, so that no later post is lost. */
	usrbio_sem_reset(r->at.sem);
	n = harvest(r, cqes, room);
	if (ring_is_dead(r))
		n += io_end_all(r, cqes + n, room - n);
	return n;
}

/* --------------------------------------------------------------------- wait */

/* Convert to nanoseconds; saturate instead of overflowing. */
static int64_t to_ns(const struct timespec *ts)
{
	__int128 ns = (__int128)ts->tv_sec * (int64_t)NSEC_PER_SEC + ts->tv_nsec;

	if (ns > INT64_MAX)
		return INT64_MAX;
	return ns < INT64_MIN ? INT64_MIN : (int64_t)ns;
}

/* Return the nanoseconds until that time; 0 if it has passed. */
static uint64_t left(const struct timespec *until)
{
	struct timespec now;
	int64_t then, at;

	if (!until)
		return UINT64_MAX;
	(void)clock_gettime(CLOCK_REALTIME, &now);
	then = to_ns(until);
	at = to_ns(&now);
	return then > at ? (uint64_t)then - (uint64_t)at : 0;
}

/* Sleep by CLOCK_MONOTONIC, because the real-time clock may be set during the sleep. */
static void sleep_for(struct ring *r, uint64_t ns)
{
	pthread_testcancel();
	usrbio_sem_wait(r->at.sem, now_ns() + MIN(ns, jitter_ns));
}

static bool came(const void *arg)
{
	const struct ring *r = arg;

	return (uint32_t)usrbio_marker(r->at.cq_head) != r->cq_tail;
}

/* Poll while another thread moves bytes for the ring.  Return true if a completion came. */
static bool io_watch(const struct ring *r)
{
	uint64_t until = now_ns() + WATCH_NS;

	do
		if (came(r))
			return true;
	while (now_ns() < until);
	return false;
}

/*
 * Poll for as long as a daemon may need to copy the bytes in flight.  Return true if a completion
 * came.  The number of bytes is a hint, because another thread may prepare more requests.
 */
static bool io_spin(struct ring *r, uint64_t ns)
{
	uint32_t nr = slots_used(r);
	uint64_t bytes = atomic_load_explicit(&r->bytes_sent, memory_order_relaxed) -
			 atomic_load_explicit(&r->bytes_ended, memory_order_relaxed);
	uint64_t most = SPIN_NS + (uint64_t)nr * SPIN_ENTRY_NS + bytes / SPIN_BYTES_PER_NS;

	if (r->server || !nr)
		return false;
	most = MIN(most, SPIN_MAX_NS);
	return spin_until(&r->spin, MIN(ns, most), came, r);
}

/* Called after a wait without completions.  A daemon that completes nothing for ASK_NS may have
 * ended. */
static void note_idle(struct ring *r)
{
	uint64_t now;

	if (r->server || !in_flight(r)) {
		r->idle_since = 0;
		return;
	}
	now = about_now_ns();
	if (!r->idle_since) {
		r->idle_since = now;
	} else if (now - r->idle_since >= ASK_NS) {
		r->idle_since = now;
		mount_ask(r->iov->mount);
	}
}

/* Do a share of the server's work.  Cancelling the thread during that would leave the executor
 * locked. */
static enum server_help io_help(struct ring *r)
{
	enum server_help did;
	int before;

	(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	did = server_ring_help(r->server);
	(void)pthread_setcancelstate(before, NULL);
	return did;
}

/* Take available completions; on a plain directory, first do a share of the work. */
static int io_look(struct ring *r, struct hf3fs_cqe *cqes, int room, int min,
		   enum server_help *ret_did)
{
	int n = library_io_take(r, cqes, room);

	*ret_did = SERVER_RESTS;
	if (n < MAX(min, 1) && r->server) {
		*ret_did = io_help(r);
		if (*ret_did)
			n += library_io_take(r, cqes + n, room - n);
	}
	if (n)
		r->idle_since = 0;
	else
		note_idle(r);
	return n;
}

int hf3fs_wait_for_ios(const struct hf3fs_ior *ior, struct hf3fs_cqe *cqes, int cqec,
		       int min_results, const struct timespec *abs_timeout)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	KEEP_ERRNO;
	struct ring *r = ring_get(ior);
	int min = MIN(min_results, cqec), n = 0;
	enum server_help did;
	bool dead;
	uint64_t ns;

	if (!r || !cqes || cqec <= 0)
		return -EINVAL;
	if (ring_is_foreign(r))
		return -EOWNERDEAD;
	(void)pthread_once(&once, read_environment);
	for (;;) {
		/* Check for a dead ring before taking completions: io_look() then finds the last
		 * ones. */
		dead = ring_is_dead(r);
		n += io_look(r, cqes + n, cqec - n, min - n, &did);
		if (n >= min || dead)
			break;
		ns = left(abs_timeout);
		/* A refused request never completes: do not wait for it. */
		if (!ns || (!abs_timeout && atomic_load(&r->refused) && !in_flight(r)))
			break;
		if (did == SERVER_RESTS ? !io_spin(r, ns) : did == SERVER_MOVING && !io_watch(r))
			sleep_for(r, ns);
	}
	atomic_store(&r->refused, false);
	/* The completion queue has room again, so wake the server. */
	if (n && r->submit && in_flight(r) && !ring_is_dead(r))
		(void)io_post(r);
	return n;
}
