/* SPDX-License-Identifier: MIT */
/* Shared by read_direct.c and write_direct.c; ME is the name of the program. */
#ifndef DIRECT_H
#define DIRECT_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <penstock.h>

#define PAGE 4096u

/* Objects that are created once and kept: registrations last until the objects are freed. */
struct direct {
	struct pst_queue *queue;
	struct pst_file *file;
	struct pst_mem *mem;
	uint64_t addr; /* device address of the memory */
	uint32_t op;   /* PST_OP_READ or PST_OP_WRITE */
};

static inline int complain(const char *what, const char *why)
{
	(void)fprintf(stderr, ME ": %s: %s\n", what, why);
	return -1;
}

/* Parse a decimal number of bytes. */
static inline int number(const char *text, uint64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || *ret > INT64_MAX)
		return complain(text, "this is no number of bytes");
	return 0;
}

/*
 * Return where the file's bytes go in the memory: at the same offset within a page as in the file.
 * Then all whole pages can move directly, and only the edges are copied.
 */
static inline uint64_t place(const struct direct *d, uint64_t offset)
{
	return (offset - d->addr) % PAGE;
}

/* Allocate memory for all pairs OFFSET LENGTH, then create the queue and open the file. */
static inline int direct_open(struct direct *d, const char *device, const char *path,
			      uint32_t flags, char *const pairs[])
{
	struct pst_mem_info info = { .sz = sizeof(info) };
	uint64_t offset, length, room = 0;

	for (; pairs[0]; pairs += 2) {
		if (number(pairs[0], &offset) < 0 || number(pairs[1], &length) < 0)
			return -1;
		if (length + PAGE > room)
			room = length + PAGE;
	}
	if (pst_file_open(path, flags, NULL, &d->file) < 0)
		return complain(path, pst_error_text());
	if (pst_mem_alloc(device, room, NULL, &d->mem) < 0)
		return complain(device, pst_error_text());
	if (pst_mem_info(d->mem, &info) < 0 || pst_queue_new(NULL, &d->queue) < 0)
		return complain("queue", pst_error_text());
	d->addr = info.addr;
	return 0;
}

static inline void direct_close(struct direct *d)
{
	/* Free the queue first: requests in flight may still use the other objects. */
	(void)pst_queue_free(d->queue);
	(void)pst_file_close(d->file);
	(void)pst_mem_free(d->mem);
}

/*
 * Ask whether cuFile has a direct path here.  The first call starts the search, which may take
 * seconds; requests take other paths until then.  This example waits for the answer only to show
 * it.  With an empty file the search cannot read anything and gives ENODATA.
 */
static inline void direct_gds(const struct direct *d, struct pst_path_info *ret)
{
	*ret = (struct pst_path_info){ .sz = sizeof(*ret) };
	for (int i = 0; i < 3000; i++, (void)usleep(10000))
		if (pst_path_check(d->file, d->mem, d->op, PST_PATH_GDS, ret) < 0 ||
		    ret->why != PST_WHY_NO_GDS || ret->detail != EAGAIN)
			break;
}

/* Run one request and print its paths.  Return the bytes moved, or -1. */
static inline int64_t direct_do(const struct direct *d, const struct pst_io *io)
{
	static const char *const states[] = { "no", "possible", "proven" };
	struct pst_path_info gds;
	struct pst_done done;
	char text[500];

	direct_gds(d, &gds);
	if (pst_queue_prep(d->queue, io) < 0 || pst_queue_submit(d->queue) < 0 ||
	    pst_queue_reap(d->queue, &done, 1, 1, PST_NO_DEADLINE) < 1)
		return complain("request", pst_error_text());
	if (done.res < 0)
		return complain("request", pst_done_text(&done, text, sizeof(text)));
	(void)puts(pst_done_text(&done, text, sizeof(text)));
	if (io->op == PST_OP_SYNC)
		return 0;
	direct_gds(d, &gds);
	(void)printf("gds %s", states[gds.state]);
	if (gds.why)
		(void)printf(": %s", pst_why_text(gds.why, gds.detail, text, sizeof(text)));
	(void)putchar('\n');
	return done.res;
}

/* Extend a CRC-32C bit by bit: slow, but independent of the library.  Begin with 0. */
static inline uint32_t crc32c(uint32_t crc, const uint8_t *p, size_t len)
{
	crc = ~crc;
	while (len--) {
		crc ^= *p++;
		for (int k = 0; k < 8; k++)
			crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
	}
	return ~crc;
}

#endif
