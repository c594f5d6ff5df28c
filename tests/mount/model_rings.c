/* SPDX-License-Identifier: MIT */
/* Operations on bytes of files by rings, if the directory has them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <hf3fs_usrbio.h>

#include "bytes.h"
#include "model.h"

#define PAGE 4096u
#define BATCH 4u
#define WAIT_S 60

static struct {
	bool there;
	struct hf3fs_iov iov; /* TREE_FILE bytes per request of a batch */
	struct hf3fs_ior ior[2];
} rings;

enum { READS, WRITES };

bool rings_begin(const char *dir)
{
	char mount[256];
	int r;

	if (hf3fs_extract_mount_point(mount, sizeof(mount), dir) < 0)
		return false;
	deed_is("make rings at %s", mount);
	r = hf3fs_iovcreate(&rings.iov, mount, BATCH * TREE_FILE, 0, -1);
	if (r == 0)
		r = hf3fs_iorcreate4(&rings.ior[READS], mount, BATCH, true, 0, 0, -1, 0);
	if (r == 0)
		r = hf3fs_iorcreate4(&rings.ior[WRITES], mount, BATCH, false, 0, 0, -1, 0);
	if (r < 0)
		differs("it gave %d", r);
	rings.there = true;
	return true;
}

void rings_end(void)
{
	if (!rings.there)
		return;
	rings.there = false;
	hf3fs_iordestroy(&rings.ior[READS]);
	hf3fs_iordestroy(&rings.ior[WRITES]);
	hf3fs_iovdestroy(&rings.iov);
}

static uint8_t *place(unsigned i)
{
	return rings.iov.base + (size_t)i * TREE_FILE;
}

/* Requests of a batch, and their results. */
struct requests {
	unsigned nr;
	struct range r[BATCH];
	int64_t result[BATCH];
};

static void some_requests(struct requests *b, const struct node *node)
{
	b->nr = one_in(3) ? 1 + below(BATCH) : 1;
	for (unsigned i = 0; i < b->nr; i++)
		b->r[i] = some_range(node);
}

/* Submit a batch.  Return false if the first request is refused because of the descriptor's
 * mode. */
static bool submit(struct requests *b, unsigned way, int fd)
{
	struct timespec until = { .tv_sec = time(NULL) + WAIT_S };
	struct hf3fs_cqe c[BATCH];
	int r;

	for (unsigned i = 0; i < b->nr; i++) {
		r = hf3fs_prep_io(&rings.ior[way], &rings.iov, way == READS, place(i), fd,
				  b->r[i].off, b->r[i].len, (void *)(uintptr_t)i);
		if (r == -EACCES && i == 0)
			return false;
		if (r < 0)
			differs("request %u was refused by %d", i, r);
	}
	r = hf3fs_submit_ios(&rings.ior[way]);
	if (r < 0)
		differs("submitting gave %d", r);
	r = hf3fs_wait_for_ios(&rings.ior[way], c, (int)BATCH, (int)b->nr, &until);
	if (r != (int)b->nr)
		differs("%d of %u requests were completed", r, b->nr);
	for (unsigned i = 0; i < b->nr; i++)
		b->result[(uintptr_t)c[i].userdata] = c[i].result;
	return true;
}

static bool with_file(struct requests *b, unsigned way, const struct handle *h)
{
	int r = hf3fs_reg_fd(h->fd, 0);
	bool done;

	if (r > 0)
		differs("registering gave %d", r);
	done = submit(b, way, h->fd);
	hf3fs_dereg_fd(h->fd);
	if (done == (way == READS ? handle_reads(h) : handle_writes(h)))
		return done;
	differs(done ? "requests were taken that the descriptor is not open for"
		     : "a request was refused");
}

void deed_ring_read(void)
{
	struct handle *h = some_handle();
	struct requests b;

	if (!h)
		return;
	some_requests(&b, h->node);
	if (!rings.there || model.view != VIEW_MOUNT)
		return;
	deed_on("read by a ring", h, b.r[0]);
	for (unsigned i = 0; i < b.nr; i++)
		memset(place(i), 0xa5, b.r[i].len);
	if (!with_file(&b, READS, h))
		return;
	for (unsigned i = 0; i < b.nr; i++) {
		size_t want = range_have(h->node, b.r[i]);

		if (b.result[i] != (int64_t)want)
			differs("request %u of %u, %zu bytes at %zu, gave %lld and not %zu", i,
				b.nr, b.r[i].len, b.r[i].off, (long long)b.result[i], want);
		compare(h->node, b.r[i].off, place(i), want);
	}
}

/* Write at given offsets, which O_APPEND does not change; overlapping writes in order. */
void deed_ring_write(void)
{
	struct handle *h = some_handle();
	struct timespec before;
	struct requests b;
	struct stat st;

	if (!h)
		return;
	some_requests(&b, h->node);
	for (unsigned i = 0; i < b.nr; i++)
		t_fill(place(i), dice(), 0, b.r[i].len);
	if (!rings.there || model.view != VIEW_MOUNT)
		return;
	deed_on("write by a ring", h, b.r[0]);
	before = time_before();
	if (!with_file(&b, WRITES, h))
		return;
	for (unsigned i = 0; i < b.nr; i++) {
		if (b.result[i] != (int64_t)b.r[i].len)
			differs("request %u of %u, %zu bytes at %zu, gave %lld", i, b.nr,
				b.r[i].len, b.r[i].off, (long long)b.result[i]);
		written(h->node, b.r[i], place(i), before);
	}
	/* If the kernel caches bytes, stat() and mappings know the new size from here on. */
	if (fstat(h->fd, &st) < 0 || (size_t)st.st_size != h->node->size)
		differs("the size is %lld and should be %zu", (long long)st.st_size, h->node->size);
}
