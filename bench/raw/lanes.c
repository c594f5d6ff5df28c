/* SPDX-License-Identifier: MIT */
#include "raw.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

struct lane *lanes;
pthread_barrier_t gate;
bool stop;
unsigned turn;
_Atomic uint64_t next_piece;

/* Record a lane's first failure.  Return false. */
__attribute__((format(printf, 3, 4))) static bool bad(struct lane *l, int status, const char *fmt,
						      ...)
{
	va_list ap;

	if (l->status)
		return false;
	l->status = status;
	va_start(ap, fmt);
	(void)vsnprintf(l->text, sizeof(l->text), fmt, ap);
	va_end(ap);
	return false;
}

#define CU(l, call)                                                                 \
	({                                                                          \
		cu_result _e = (call);                                              \
		_e ? bad((l), 1, "%s gave %u (%s)", #call, _e, cu_text(_e)) : true; \
	})

static bool block_io(struct lane *l, bool write, int on, char *buf, uint64_t off)
{
	for (uint64_t got = 0; got < set.block;) {
		off_t at = (off_t)(off + got);
		ssize_t n = write ? pwrite(on, buf + got, set.block - got, at)
				  : pread(on, buf + got, set.block - got, at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return bad(l, 1, "%s %s at %" PRIu64 ": %s", write ? "writing" : "reading",
				   set.path, off + got, n ? strerror(errno) : "it ends there");
		got += (uint64_t)n;
	}
	return true;
}

/* Read or write a whole piece. */
static bool full_io(struct lane *l, bool write, int on, char *buf, uint64_t idx)
{
	for (uint64_t i = 0; i < set.size / set.block; i++)
		if (!block_io(l, write, on, buf + i * set.block, raw_file_place(idx, i)))
			return false;
	return true;
}

/* Fill a buffer with bytes that differ from those of other slots, lanes and passes. */
static void raw_fill(char *buf, uint64_t seed)
{
	uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;

	for (uint64_t i = 0; i + 8 <= set.size; i += 8) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		memcpy(buf + i, &x, 8);
	}
}

static bool lane_buffers(struct lane *l)
{
	bool pinned = set.mode == PINNED || set.mode == GPU_WRITE;

	for (unsigned i = 0; i < SLOTS; i++) {
		l->host[i] = mmap(NULL, set.size, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		if (l->host[i] == MAP_FAILED)
			return bad(l, 1, "no memory for buffers");
		if (!on_gpu())
			continue;
		if (pinned &&
		    !CU(l, cu.cuMemHostRegister_v2(l->host[i], set.size, CU_REGISTER_PORTABLE)))
			return false;
		if (!CU(l, cu.cuMemAlloc_v2(&l->dev[i], set.size)) ||
		    !CU(l, cu.cuStreamCreate(&l->stream[i], CU_NON_BLOCKING)))
			return false;
	}
	l->check = malloc(set.size);
	return l->check || bad(l, 1, "no memory for buffers");
}

static bool raw_lane_init(struct lane *l)
{
	l->fd = raw_file_again(false);
	l->fd_direct = set.direct ? raw_file_again(true) : -1;
	if (l->fd < 0 || (set.direct && l->fd_direct < 0))
		return bad(l, 1, "%s: %s", set.path, strerror(errno));
	if (on_gpu() && !CU(l, cu.cuCtxPushCurrent_v2(ctx)))
		return false;
	if (!lane_buffers(l))
		return false;
	for (unsigned i = 0; set.mode == CUFILE && i < SLOTS; i++) {
		struct cuf_error e = cuf.cuFileBufRegister((void *)(uintptr_t)l->dev[i], set.size,
							   0);

		if (e.err)
			return bad(l, REFUSED, "cuFileBufRegister gave %d, with CUDA's %d", e.err,
				   e.cu_err);
	}
	return true;
}

/* Before a pass that writes, put new bytes into the source. */
static bool lane_refill(struct lane *l)
{
	for (unsigned i = 0; i < SLOTS; i++) {
		l->moved[i] = NONE;
		if (!set.write)
			continue;
		raw_fill(l->host[i], ((uint64_t)turn * THREADS_MAX + l->idx) * SLOTS + i + 1);
		if (on_gpu() && (!CU(l, cu.cuMemcpyHtoDAsync_v2(l->dev[i], l->host[i], set.size,
								l->stream[i])) ||
				 !CU(l, cu.cuStreamSynchronize(l->stream[i]))))
			return false;
	}
	return true;
}

static bool raw_take(const struct lane *l, uint64_t now, uint64_t *ret_idx)
{
	if (set.seconds > 0 && now - l->begun >= (uint64_t)(set.seconds * 1e9))
		return false;
	*ret_idx = atomic_fetch_add_explicit(&next_piece, 1, memory_order_relaxed);
	return file_has(*ret_idx);
}

static bool move_cufile(struct lane *l, unsigned slot, uint64_t idx)
{
	uint64_t off = raw_file_place(idx, 0);
	void *buf = (void *)(uintptr_t)l->dev[slot];
	ssize_t n = set.write ? cuf.cuFileWrite(cf_handle, buf, set.size, (off_t)off, 0)
			      : cuf.cuFileRead(cf_handle, buf, set.size, (off_t)off, 0);

	if (n == (ssize_t)set.size)
		return true;
	return bad(l, 1, "%s at %" PRIu64 " gave %zd, errno %d",
		   set.write ? "cuFileWrite" : "cuFileRead", off, n, n == -1 ? errno : 0);
}

/* Move one piece; modes with several slots only start its copy. */
static bool raw_move(struct lane *l, unsigned slot, uint64_t idx)
{
	int on = set.direct ? l->fd_direct : l->fd;

	switch (set.mode) {
	case PLAIN:
		return full_io(l, false, on, l->host[slot], idx) &&
		       CU(l, memcpy_htod(l->dev[slot], l->host[slot], set.size));
	case PINNED:
		/* Wait for the copy that used this buffer before. */
		return CU(l, cu.cuStreamSynchronize(l->stream[slot])) &&
		       full_io(l, false, on, l->host[slot], idx) &&
		       CU(l, cu.cuMemcpyHtoDAsync_v2(l->dev[slot], l->host[slot], set.size,
						     l->stream[slot]));
	case CUFILE:
		return move_cufile(l, slot, idx);
	default:
		return full_io(l, set.write, on, l->host[slot], idx);
	}
}

static void count_op(struct lane *l, unsigned slot, uint64_t idx, uint64_t *now)
{
	uint64_t t = now_ns();

	hist_add(&l->hist, t - *now);
	*now = t;
	l->moved[slot] = idx;
	l->ops++;
	l->bytes += set.size;
}

static bool pass_forward(struct lane *l)
{
	uint64_t now = l->begun, idx;

	for (unsigned slot = 0; raw_take(l, now, &idx); slot = (slot + 1) % SLOTS) {
		if (!raw_move(l, slot, idx))
			return false;
		count_op(l, slot, idx, &now);
	}
	for (unsigned i = 0; set.mode == PINNED && i < SLOTS; i++)
		if (!CU(l, cu.cuStreamSynchronize(l->stream[i])))
			return false;
	return true;
}

/* Write a piece while the next one is copied from the device. */
static bool pass_gpu_write(struct lane *l)
{
	uint64_t now = l->begun, idx, ahead = 0;
	int on = set.direct ? l->fd_direct : l->fd;
	bool more = raw_take(l, now, &idx);

	if (more && !CU(l, cu.cuMemcpyDtoHAsync_v2(l->host[0], l->dev[0], set.size, l->stream[0])))
		return false;
	for (unsigned slot = 0; more; slot = (slot + 1) % SLOTS, idx = ahead) {
		unsigned other = (slot + 1) % SLOTS;

		more = raw_take(l, now, &ahead);
		if (more && !CU(l, cu.cuMemcpyDtoHAsync_v2(l->host[other], l->dev[other], set.size,
							   l->stream[other])))
			return false;
		if (!CU(l, cu.cuStreamSynchronize(l->stream[slot])) ||
		    !full_io(l, true, on, l->host[slot], idx))
			return false;
		count_op(l, slot, idx, &now);
	}
	return true;
}

static bool lane_pass(struct lane *l)
{
	memset(&l->hist, 0, sizeof(l->hist));
	l->ops = l->bytes = 0;
	l->begun = now_ns();
	if (!(set.mode == GPU_WRITE ? pass_gpu_write(l) : pass_forward(l)))
		return false;
	if (set.write && fdatasync(l->fd) < 0)
		return bad(l, 1, "syncing %s: %s", set.path, strerror(errno));
	return true;
}

/* Check that the slot's last piece is equal in device memory and file. */
static bool raw_lane_verify(struct lane *l)
{
	for (unsigned i = 0; i < SLOTS; i++) {
		if (l->moved[i] == NONE)
			continue;
		if (on_gpu() && (!CU(l, cu.cuMemcpyDtoHAsync_v2(l->host[i], l->dev[i], set.size,
								l->stream[i])) ||
				 !CU(l, cu.cuStreamSynchronize(l->stream[i]))))
			return false;
		if (!full_io(l, false, l->fd, l->check, l->moved[i]))
			return false;
		if (memcmp(l->check, l->host[i], set.size) != 0)
			return bad(l, 1, "wrong bytes in the piece at %" PRIu64 " of %s",
				   raw_file_place(l->moved[i], 0), set.path);
		l->verified += set.size;
	}
	return true;
}

void gate_wait(void)
{
	(void)pthread_barrier_wait(&gate);
}

/* Pass the same gates as run_pass(), even after the lane failed: the other threads wait there. */
void *lane_main(void *arg)
{
	struct lane *l = arg;
	bool good = raw_lane_init(l);

	for (;;) {
		gate_wait(); /* wait until a pass or the end is announced */
		if (stop)
			return NULL;
		good = good && lane_refill(l);
		gate_wait(); /* wait until all are ready */
		l->begun = l->ended = now_ns();
		good = good && lane_pass(l);
		l->ended = now_ns();
		gate_wait(); /* wait until all have finished */
		good = good && raw_lane_verify(l);
		gate_wait();
	}
}
