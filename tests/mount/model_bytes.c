/* SPDX-License-Identifier: MIT */
/* Operations on bytes of files, usually through files that stay open for several operations. */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bytes.h"
#include "model.h"

#define PAGE 4096u
#define SECTOR 4096u /* an alignment that O_DIRECT accepts on each file system */

static uint8_t buf[TREE_FILE + PAGE] __attribute__((aligned(SECTOR)));

struct range some_range(const struct node *node)
{
	size_t room = one_in(10)                ? TREE_FILE
		      : node->size && one_in(2) ? node->size
						: node->size + 2 * PAGE;
	struct range r;

	if (room > TREE_FILE)
		room = TREE_FILE;
	r.off = one_in(6) ? node->size : below(room);
	if (one_in(4))
		r.off &= ~(size_t)(PAGE - 1);
	r.len = 1 + below(one_in(8) ? 65536 : one_in(2) ? 3 * PAGE : 100);
	if (one_in(4))
		r.len = (r.len + PAGE - 1) & ~(size_t)(PAGE - 1);
	if (r.off >= TREE_FILE)
		r.off = TREE_FILE - 1;
	if (r.len > TREE_FILE - r.off)
		r.len = TREE_FILE - r.off;
	return r;
}

static size_t some_size(const struct node *node)
{
	return one_in(3) ? 0 : one_in(3) ? below(TREE_FILE / 4) : below(node->size + PAGE);
}

/* ---------------------------------------------------------------- handles */

struct handle *handle_add(int fd, int flags, struct node *node)
{
	struct handle *h = &model.handles[below(MODEL_HANDLES)];

	if (h->fd >= 0)
		handle_close(h);
	*h = (struct handle){ .fd = fd, .flags = flags, .node = node };
	node->handles++;
	return h;
}

/* Close a file.  Unmap it first: some file systems write mapped bytes when the file is closed. */
void handle_close(struct handle *h)
{
	if (h->map)
		(void)munmap(h->map, TREE_FILE);
	if (close(h->fd) < 0)
		differs("close gave errno %d", errno);
	h->fd = -1;
	h->map = NULL;
	node_put_handle(h->node);
}

void handles_close(void)
{
	for (unsigned i = 0; i < MODEL_HANDLES; i++)
		if (model.handles[i].fd >= 0)
			handle_close(&model.handles[i]);
}

struct handle *some_handle(void)
{
	unsigned first = below(MODEL_HANDLES);
	char path[TREE_PATH];
	struct place at;
	int fd;

	for (unsigned i = 0; i < MODEL_HANDLES && !one_in(5); i++) {
		struct handle *h = &model.handles[(first + i) % MODEL_HANDLES];

		if (h->fd >= 0)
			return h;
	}
	if (!some_file(path))
		return NULL;
	deed_is("open %s to read and write", path);
	if (tree_walk(path, false, &at))
		abort();
	fd = open(full(model.view, path), O_RDWR | O_CLOEXEC);
	if (!ended(fd, 0))
		return NULL;
	return handle_add(fd, O_RDWR, at.node);
}

bool handle_reads(const struct handle *h)
{
	return (h->flags & O_ACCMODE) != O_WRONLY;
}

bool handle_writes(const struct handle *h)
{
	return (h->flags & O_ACCMODE) != O_RDONLY;
}

/* Return a file's path for the report. */
static const char *name_of(const struct node *node)
{
	static char path[TREE_PATH];

	for (unsigned i = 0; i < tree_nr; i++)
		for (unsigned k = 0; tree_all[i]->kind == NODE_DIR && k < TREE_NAMES; k++)
			if (tree_all[i]->slot[k] == node) {
				tree_path(tree_all[i], k, path);
				return path;
			}
	return "(a file without a name)";
}

void deed_on(const char *verb, const struct handle *h, struct range r)
{
	deed_is("%s %zu bytes at %zu of %s (%zu bytes, opened with flags 0%o%s)", verb, r.len,
		r.off, name_of(h->node), h->node->size, (unsigned)h->flags,
		h->map ? ", mapped" : "");
}

/* Open a file again, sometimes with O_TRUNC or O_APPEND; without these, any open file will do. */
void deed_reopen(void)
{
	int flags = O_RDWR | (one_in(3) ? O_TRUNC : 0) | (one_in(3) ? O_APPEND : 0), fd;
	struct timespec before;
	char path[TREE_PATH];
	struct place at;

	if (!some_file(path))
		return;
	deed_is("open %s flags 0%o", path, (unsigned)flags);
	if (tree_walk(path, false, &at))
		abort();
	before = time_before();
	fd = open(full(model.view, path), flags | O_CLOEXEC);
	if (!ended(fd, 0))
		return;
	if (flags & O_TRUNC) {
		if (at.node->size)
			time_since(at.node, before);
		else
			at.node->time = TIME_ANY;
		memset(at.node->data, 0, at.node->size);
		at.node->size = 0;
	}
	(void)handle_add(fd, flags, at.node);
}

void deed_close(void)
{
	struct handle *h = some_handle();

	if (!h)
		return;
	deed_is("close %s", name_of(h->node));
	handle_close(h);
}

/* ------------------------------------------------------ read and write */

void compare(const struct node *node, size_t off, const uint8_t *got, size_t len)
{
	if (memcmp(got, node->data + off, len) == 0)
		return;
	for (size_t i = 0; i < len; i++)
		if (got[i] != node->data[off + i])
			differs("byte %zu is 0x%02x and should be 0x%02x", off + i, got[i],
				node->data[off + i]);
}

size_t range_have(const struct node *node, struct range r)
{
	return r.off >= node->size ? 0 : node->size - r.off < r.len ? node->size - r.off : r.len;
}

/* Read and compare; fill the buffer with other bytes first. */
static void read_and_compare(int fd, const struct node *node, struct range r)
{
	ssize_t n;

	memset(buf, 0xa5, r.len);
	n = pread(fd, buf, r.len, (off_t)r.off);
	if (n < 0)
		differs("reading gave errno %d: %s", errno, strerror(errno));
	if ((size_t)n != range_have(node, r))
		differs("%zd bytes were read and not %zu", n, range_have(node, r));
	compare(node, r.off, buf, (size_t)n);
}

void check_bytes(int fd, const struct node *node)
{
	read_and_compare(fd, node, (struct range){ 0, node->size + 1 });
}

void deed_pread(void)
{
	struct handle *h = some_handle();
	struct range r;

	if (!h)
		return;
	r = some_range(h->node);
	deed_on("read", h, r);
	if (handle_reads(h))
		read_and_compare(h->fd, h->node, r);
	else
		(void)ended(pread(h->fd, buf, r.len, (off_t)r.off), EBADF);
}

void written(struct node *node, struct range r, const uint8_t *bytes, struct timespec before)
{
	memcpy(node->data + r.off, bytes, r.len);
	if (node->size < r.off + r.len)
		node->size = r.off + r.len;
	time_since(node, before);
}

static void write_range(struct handle *h, struct range r)
{
	struct timespec before = time_before();
	ssize_t n;

	t_fill(buf, dice(), 0, r.len);
	n = pwrite(h->fd, buf, r.len, (off_t)r.off);
	if (!ended(n, handle_writes(h) ? 0 : EBADF))
		return;
	if ((size_t)n != r.len)
		differs("%zd bytes were written and not %zu", n, r.len);
	/* Linux appends even with pwrite(2). */
	if (h->flags & O_APPEND)
		r.off = h->node->size;
	written(h->node, r, buf, before);
}

void deed_pwrite(void)
{
	struct handle *h = some_handle();
	struct range r;

	if (!h)
		return;
	r = some_range(h->node);
	if (h->flags & O_APPEND && r.len > TREE_FILE - h->node->size)
		return;
	deed_on("write", h, r);
	write_range(h, r);
}

/* Append by write(2) to a file that was opened with O_APPEND. */
void deed_append(void)
{
	struct timespec before;
	char path[TREE_PATH];
	struct place at;
	struct range r;
	ssize_t n;
	int fd;

	if (!some_file(path) || tree_walk(path, false, &at))
		return;
	r = (struct range){ at.node->size, 1 + below(one_in(4) ? 20000 : 200) };
	if (r.len > TREE_FILE - r.off)
		return;
	deed_is("append %zu bytes to %s (%zu bytes)", r.len, path, r.off);
	before = time_before();
	fd = open(full(model.view, path), O_WRONLY | O_APPEND | O_CLOEXEC);
	if (!ended(fd, 0))
		return;
	t_fill(buf, dice(), 0, r.len);
	n = write(fd, buf, r.len);
	if (close(fd) < 0 || n != (ssize_t)r.len)
		differs("%zd bytes were written and not %zu", n, r.len);
	written(at.node, r, buf, before);
}

/* ------------------------------------------------------------- lengths */

static void cut(struct node *node, size_t size, struct timespec before)
{
	if (size == node->size)
		node->time = TIME_ANY;
	else
		time_since(node, before);
	if (size < node->size)
		memset(node->data + size, 0, node->size - size);
	node->size = size;
}

void deed_ftruncate(void)
{
	struct handle *h = some_handle();
	struct timespec before;
	size_t size;

	if (!h)
		return;
	size = some_size(h->node);
	if (size > TREE_FILE)
		return;
	deed_on("ftruncate", h, (struct range){ size, 0 });
	before = time_before();
	if (ended(ftruncate(h->fd, (off_t)size), handle_writes(h) ? 0 : EINVAL))
		cut(h->node, size, before);
}

void deed_truncate(void)
{
	struct timespec before;
	char path[TREE_PATH];
	struct place at;
	size_t size = below(one_in(2) ? 65536 : 1000);
	int r;

	some_path(true, path);
	deed_is("truncate %s to %zu", path, size);
	r = tree_walk(path, true, &at);
	if (r == TREE_OUTSIDE)
		return;
	if (!r)
		r = !at.node ? ENOENT : at.node->kind == NODE_DIR ? EISDIR : 0;
	before = time_before();
	if (ended(truncate(full(model.view, path), (off_t)size), r))
		cut(at.node, size, before);
}

/* ---------------------------------------------------------------- space */

void deed_fallocate(void)
{
	static const int modes[] = { 0,
				     FALLOC_FL_KEEP_SIZE,
				     FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				     FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				     FALLOC_FL_ZERO_RANGE,
				     FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE };
	int mode = modes[below(6)], should = 0;
	struct handle *h = some_handle();
	struct range r;
	char verb[40];

	if (!h)
		return;
	r = some_range(h->node);
	(void)snprintf(verb, sizeof(verb), "fallocate mode %d of", mode);
	deed_on(verb, h, r);
	if ((mode & FALLOC_FL_ZERO_RANGE && !model.has_zero_range) ||
	    (mode & FALLOC_FL_PUNCH_HOLE && !model.has_punch))
		return;
	if (!handle_writes(h))
		should = EBADF;
	else if (h->flags & O_APPEND && mode & ~FALLOC_FL_KEEP_SIZE)
		should = 0; /* only immutable and append-only files refuse it */
	if (!ended(fallocate(h->fd, mode, (off_t)r.off, (off_t)r.len), should))
		return;
	if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
		memset(h->node->data + r.off, 0, r.len);
	if (!(mode & FALLOC_FL_KEEP_SIZE) && h->node->size < r.off + r.len)
		h->node->size = r.off + r.len;
	h->node->time = TIME_ANY;
}

static void copied(struct node *node, size_t off, const uint8_t *from, size_t len,
		   struct timespec before)
{
	memmove(node->data + off, from, len);
	if (node->size < off + len)
		node->size = off + len;
	time_since(node, before);
}

void deed_copy(void)
{
	struct handle *in = some_handle(), *out = in ? some_handle() : NULL;
	struct timespec before = time_before();
	loff_t from, to;
	struct range r;
	size_t left;
	int should;
	ssize_t n;

	/* Opening the second file may have closed the first. */
	if (!out || in->fd < 0 || !handle_reads(in) || !handle_writes(out) || out->flags & O_APPEND)
		return;
	r = some_range(in->node);
	to = (loff_t)below(out->node->size + PAGE);
	if (to >= (loff_t)TREE_FILE)
		return;
	if (r.len > TREE_FILE - (size_t)to)
		r.len = TREE_FILE - (size_t)to;
	left = range_have(in->node, r);
	deed_on("copy_file_range to another of", in, r);
	deed_is("copy_file_range %zu bytes at %zu of %zu to %zu of %zu%s", r.len, r.off,
		in->node->size, (size_t)to, out->node->size,
		in->node == out->node ? ", the same file" : "");
	should = in->node == out->node && left && (size_t)to + left > r.off &&
				 r.off + left > (size_t)to
			 ? EINVAL
			 : 0;
	from = (loff_t)r.off;
	do {
		size_t at = (size_t)from, wrote = (size_t)to;

		n = copy_file_range(in->fd, &from, out->fd, &to, left ? left : r.len, 0);
		if (!ended(n, should))
			return;
		if ((size_t)n > left || (left && !n) || from != (loff_t)at + n)
			differs("%zd bytes were copied, and %zu were left", n, left);
		if (n)
			copied(out->node, wrote, in->node->data + at, (size_t)n, before);
		left -= (size_t)n;
	} while (left);
}

static bool is_zero(const struct node *node, size_t from, size_t to)
{
	for (; from < to; from++)
		if (node->data[from])
			return false;
	return true;
}

/* Check SEEK_DATA and SEEK_HOLE.  The file system chooses the holes; the model only knows that
 * they read as zeros. */
void deed_seek(void)
{
	struct handle *h = some_handle();
	size_t off, size;
	off_t data, hole;

	if (!h || !h->node->size)
		return;
	size = h->node->size;
	off = below(size);
	deed_on("SEEK_DATA and SEEK_HOLE", h, (struct range){ off, 0 });
	data = lseek(h->fd, (off_t)off, SEEK_DATA);
	if (data < 0 && errno != ENXIO)
		differs("SEEK_DATA gave errno %d", errno);
	if (data >= 0 && ((size_t)data < off || (size_t)data >= size))
		differs("SEEK_DATA gave %lld", (long long)data);
	if (!is_zero(h->node, off, data < 0 ? size : (size_t)data))
		differs("SEEK_DATA gave %lld, and there are data before", (long long)data);
	hole = lseek(h->fd, (off_t)off, SEEK_HOLE);
	if (hole < (off_t)off || (size_t)hole > size)
		differs("SEEK_HOLE gave %lld", (long long)hole);
	(void)ended(lseek(h->fd, (off_t)size, SEEK_DATA), ENXIO);
}

/* ----------------------------------------------------------- mapped files */

/* Map as much as the file may grow to, and touch only bytes within the file. */
void deed_map(void)
{
	struct handle *h = some_handle();
	void *map;

	if (!h || h->map)
		return;
	deed_on("map", h, (struct range){ 0, TREE_FILE });
	map = mmap(NULL, TREE_FILE, PROT_READ | PROT_WRITE, MAP_SHARED, h->fd, 0);
	if (!ended(map == MAP_FAILED ? -1 : 0, (h->flags & O_ACCMODE) == O_RDWR ? 0 : EACCES))
		return;
	h->map = map;
}

static struct handle *some_mapped(void)
{
	unsigned first = below(MODEL_HANDLES);

	for (unsigned i = 0; i < MODEL_HANDLES; i++) {
		struct handle *h = &model.handles[(first + i) % MODEL_HANDLES];

		if (h->fd >= 0 && h->map && h->node->size)
			return h;
	}
	return NULL;
}

static struct range some_part(const struct node *node)
{
	struct range r = { below(node->size), 1 + below(one_in(3) ? 20000 : 50) };

	r.len = range_have(node, r);
	return r;
}

/*
 * Write to a mapping.  pread() sees the bytes at once, other views after writeback.  msync() would
 * also wait for the disk, which takes milliseconds.
 */
void deed_map_write(void)
{
	struct handle *h = some_mapped();
	bool sync = one_in(8);
	struct range r;

	if (!h)
		return;
	r = some_part(h->node);
	deed_on("write by its mapping", h, r);
	t_fill(buf, dice(), 0, r.len);
	memcpy(h->map + r.off, buf, r.len);
	memcpy(h->node->data + r.off, buf, r.len);
	h->node->time = TIME_ANY;
	if (sync)
		(void)ended(msync(h->map, TREE_FILE, MS_SYNC), 0);
	else if (model.has_source || model.tiers)
		(void)ended(sync_file_range(h->fd, 0, 0,
					    SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
						    SYNC_FILE_RANGE_WAIT_AFTER),
			    0);
	read_and_compare(h->fd, h->node, some_part(h->node));
}

/* Compare every mapped byte, and expect zeros from the file's end to the end of its page. */
void deed_map_read(void)
{
	struct handle *h = some_mapped();
	size_t size, end;

	if (!h)
		return;
	size = h->node->size;
	end = (size + PAGE - 1) & ~(size_t)(PAGE - 1);
	deed_on("read by its mapping", h, (struct range){ 0, size });
	memcpy(buf, h->map, end);
	compare(h->node, 0, buf, end);
}

/* ---------------------------------------------------------- other ways in */

void deed_direct(void)
{
	char path[TREE_PATH];
	struct place at;
	struct range r;
	int fd;

	if (!some_file(path) || tree_walk(path, false, &at))
		return;
	r = some_range(at.node);
	r.off &= ~(size_t)(SECTOR - 1);
	r.len = (r.len + SECTOR - 1) & ~(size_t)(SECTOR - 1);
	deed_is("read %zu bytes at %zu of %s (%zu bytes) by O_DIRECT", r.len, r.off, path,
		at.node->size);
	fd = open(full(model.view, path), O_RDONLY | O_DIRECT | O_CLOEXEC);
	if (fd < 0 && errno == EINVAL)
		return; /* the file system lacks O_DIRECT */
	if (!ended(fd, 0))
		return;
	read_and_compare(fd, at.node, r);
	(void)close(fd);
}

/* Check that bytes written through the mount are in the source at once. */
void deed_source_read(void)
{
	char path[TREE_PATH];
	struct place at;
	int fd;

	if (!some_file(path) || tree_walk(path, false, &at))
		return;
	deed_is("read %s (%zu bytes) of the source", path, at.node->size);
	fd = open(full(VIEW_SOURCE, path), O_RDONLY | O_CLOEXEC);
	if (!ended(fd, 0))
		return;
	check_bytes(fd, at.node);
	(void)close(fd);
}
