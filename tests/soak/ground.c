/* SPDX-License-Identifier: MIT */
/*
 * The contents of the files.
 *
 * A byte of a file is a pattern byte of its offset plus a multiple of its generation, the number
 * of writes to it.  For each byte the oldest and newest possible generation are kept.  A write's
 * start increments the newest, and its end sets the oldest to the newest.  So a reader can check
 * that each byte was in the file at some time during the read, no matter who wrote.  Generation
 * 0 is a hole, which reads as 0.
 */
#include <sched.h>
#include <sys/mman.h>

#include "soak.h"

#define GENERATION 83u    /* added to a byte by each generation */
#define UNGENERATION 219u /* 83 * 219 = 1 modulo 256 */
#define CLAIMS 512
#define PAGE_LEN 4096u
#define FOREIGN_MAX (128u << 10) /* maximum bytes of one read or write by the neighbour */

struct claim {
	uint64_t off, len;
};

struct ground_state {
	pthread_mutex_t lock;
	uint64_t end_oldest, end_newest; /* oldest and newest possible file length, bytes */
	struct claim claims[CLAIMS];
	uint16_t oldest[GROUND_LEN], newest[GROUND_LEN];
};

static void lock(struct ground *g)
{
	(void)pthread_mutex_lock(&g->st->lock);
}

static void unlock(struct ground *g)
{
	(void)pthread_mutex_unlock(&g->st->lock);
}

static uint8_t byte_of(const struct ground *g, uint64_t off, uint16_t generation)
{
	return generation ? (uint8_t)(g->base[off] + GENERATION * generation) : 0;
}

/* Write all of the file with generation 1, at the start and after a cut. */
static void make_whole(struct ground *g)
{
	uint8_t *buf = malloc(GROUND_LEN);

	for (uint64_t i = 0; i < GROUND_LEN; i++)
		buf[i] = byte_of(g, i, 1);
	if (pwrite(g->fd, buf, GROUND_LEN, 0) != GROUND_LEN)
		soak_fail("%s cannot be written: %s", g->path, strerror(errno));
	free(buf);
}

void ground_init(struct ground *g, enum ground_kind kind, const char *dir, uint64_t seed)
{
	static const char *const names[] = { "live", "still", "shrinks" };
	pthread_mutexattr_t attr;
	uint8_t *base = malloc(GROUND_LEN);

	if (dir) {
		(void)snprintf(g->path, sizeof(g->path), "%s/%s", dir, names[kind]);
		g->fd = open(g->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	} else {
		g->fd = memfd_create(names[kind], MFD_CLOEXEC);
		(void)snprintf(g->path, sizeof(g->path), "/proc/self/fd/%d", g->fd);
	}
	g->kind = kind;
	g->st = mmap(NULL, sizeof(*g->st), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	if (g->fd < 0 || !base || g->st == MAP_FAILED)
		soak_fail("no file %s: %s", g->path, strerror(errno));
	t_fill(base, seed + kind, 0, GROUND_LEN);
	g->base = base;
	(void)pthread_mutexattr_init(&attr);
	(void)pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	(void)pthread_mutex_init(&g->st->lock, &attr);
	if (kind == GROUND_LIVE)
		return;
	make_whole(g);
	g->st->end_newest = GROUND_LEN;
	g->st->end_oldest = kind == GROUND_STILL ? GROUND_LEN : 0;
	for (uint64_t i = 0; i < GROUND_LEN; i++) {
		g->st->oldest[i] = kind == GROUND_STILL;
		g->st->newest[i] = 1;
	}
}

void ground_done(struct ground *g)
{
	(void)close(g->fd);
	(void)munmap(g->st, sizeof(*g->st));
	free((void *)g->base);
}

int ground_claim(struct ground *g, uint64_t off, uint64_t len)
{
	int free_one = -EBUSY;

	lock(g);
	for (int i = 0; i < CLAIMS; i++) {
		const struct claim *c = &g->st->claims[i];

		if (!c->len) {
			free_one = i;
		} else if (off < c->off + c->len && c->off < off + len) {
			free_one = -EBUSY;
			break;
		}
	}
	if (free_one >= 0)
		g->st->claims[free_one] = (struct claim){ off, len };
	unlock(g);
	return free_one;
}

void ground_release(struct ground *g, int claim)
{
	lock(g);
	g->st->claims[claim].len = 0;
	unlock(g);
}

void ground_begin(struct ground *g, uint64_t off, uint64_t len, uint8_t *ret)
{
	struct ground_state *st = g->st;

	lock(g);
	for (uint64_t i = 0; i < len; i++)
		ret[i] = byte_of(g, off + i, ++st->newest[off + i]);
	if (off + len > st->end_newest)
		st->end_newest = off + len;
	unlock(g);
}

void ground_end(struct ground *g, uint64_t off, uint64_t len)
{
	struct ground_state *st = g->st;

	lock(g);
	memcpy(st->oldest + off, st->newest + off, len * sizeof(*st->oldest));
	if (len && off + len > st->end_oldest)
		st->end_oldest = off + len;
	unlock(g);
}

uint64_t ground_oldest(struct ground *g, uint64_t off, uint64_t len, uint16_t *ret)
{
	uint64_t end;

	if (off > GROUND_LEN)
		off = GROUND_LEN;
	if (len > GROUND_LEN - off)
		len = GROUND_LEN - off;
	lock(g);
	memcpy(ret, g->st->oldest + off, len * sizeof(*ret));
	end = g->st->end_oldest;
	unlock(g);
	return end;
}

static bool may_be(const struct ground *g, uint64_t off, uint8_t byte, uint16_t oldest,
		   uint16_t newest)
{
	uint8_t generation = (uint8_t)((uint8_t)(byte - g->base[off]) * UNGENERATION);

	if (oldest == 0) {
		if (byte == 0)
			return true;
		oldest = 1;
	}
	return newest >= oldest && (uint8_t)(generation - oldest) <= newest - oldest;
}

uint64_t ground_differs(struct ground *g, uint64_t off, uint64_t len, const uint8_t *bytes,
			const uint16_t *oldest)
{
	uint64_t i;

	lock(g);
	for (i = 0; i < len; i++)
		if (off + i >= GROUND_LEN ||
		    !may_be(g, off + i, bytes[i], oldest[i], g->st->newest[off + i]))
			break;
	unlock(g);
	return i;
}

bool ground_may_end(struct ground *g, uint64_t off, uint64_t end, bool within)
{
	bool may;

	lock(g);
	may = end <= off && (!within || off <= g->st->end_newest);
	unlock(g);
	return may;
}

/* -------------------------------------------------------------- neighbour */

static void foreign_read(struct ground *g, struct dice *d)
{
	static uint16_t oldest[FOREIGN_MAX];
	static uint8_t buf[FOREIGN_MAX];
	uint64_t len = any_size(d, 17), off = below(d, GROUND_LEN), end, bad;
	ssize_t n;

	end = ground_oldest(g, off, len, oldest);
	n = pread(g->fd, buf, len, (off_t)off);
	if (n < 0)
		soak_fail("the neighbour cannot read: %s", strerror(errno));
	bad = ground_differs(g, off, (uint64_t)n, buf, oldest);
	if (bad != (uint64_t)n)
		soak_fail("the neighbour read a wrong byte of %s at %" PRIu64, g->path, off + bad);
	if ((uint64_t)n < len && !ground_may_end(g, off + (uint64_t)n, end, n > 0))
		soak_fail("the neighbour's read of %s ended at %" PRIu64, g->path,
			  off + (uint64_t)n);
}

/* Write whole pages only: a buffered write may lose bytes that share a page with another's
 * O_DIRECT write. */
static void foreign_write(struct ground *g, struct dice *d)
{
	static uint8_t buf[FOREIGN_MAX];
	uint64_t len = (any_size(d, 17) + PAGE_LEN - 1) & ~(uint64_t)(PAGE_LEN - 1);
	uint64_t off = below(d, (GROUND_LEN - len) / PAGE_LEN + 1) * PAGE_LEN;
	int claim = ground_claim(g, off, len);

	if (claim < 0)
		return;
	ground_begin(g, off, len, buf);
	if (pwrite(g->fd, buf, len, (off_t)off) != (ssize_t)len)
		soak_fail("the neighbour cannot write: %s", strerror(errno));
	ground_end(g, off, len);
	ground_release(g, claim);
}

static void foreign_cut(struct ground *g, struct dice *d)
{
	if (ftruncate(g->fd, (off_t)below(d, GROUND_LEN)) < 0)
		soak_fail("%s cannot be cut: %s", g->path, strerror(errno));
	(void)usleep((useconds_t)below(d, 3000));
	make_whole(g);
}

void ground_neighbour(struct ground *v, unsigned nr, struct dice d, atomic_bool *stop)
{
	while (!atomic_load(stop)) {
		struct ground *g = &v[below(&d, nr)];

		switch (below(&d, 6)) {
		case 0:
			if (g->kind == GROUND_LIVE)
				foreign_write(g, &d);
			break;
		case 1:
			if (g->kind == GROUND_SHRINKS)
				foreign_cut(g, &d);
			break;
		case 2:
			(void)posix_fadvise(g->fd, 0, 0, POSIX_FADV_DONTNEED);
			break;
		default:
			foreign_read(g, &d);
			break;
		}
		(void)usleep((useconds_t)below(&d, 2000));
	}
}
