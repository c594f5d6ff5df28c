/* SPDX-License-Identifier: MIT */
/*
 * Read bytes of a file into device memory by the shortest path.
 *
 *	read_direct DEVICE FILE OFFSET LENGTH [OFFSET LENGTH]...
 *
 * For each pair, prints the path, compares the memory with a plain read, and prints its CRC-32C.
 * Any offset and length is allowed; at the end of the file, fewer bytes are read.
 */
#define ME "read_direct"
#include "direct.h"

/* Return the number of bytes read, which begin at place(d, offset).  Up to a page after them may be
 * overwritten. */
static int64_t read_direct(const struct direct *d, uint64_t offset, uint64_t length)
{
	struct pst_io io = {
		.op = PST_OP_READ,
		.file = d->file,
		.mem = d->mem,
		.file_off = offset,
		.mem_off = place(d, offset),
		.len = length,
	};

	return direct_do(d, &io);
}

/* Compare the memory with a plain read. */
static int verify(const struct direct *d, int fd, uint64_t offset, uint64_t length)
{
	uint8_t got[PAGE], want[PAGE];
	uint32_t crc = 0;

	for (uint64_t at = 0, n; at < length; at += n) {
		n = length - at < PAGE ? length - at : PAGE;
		if (pst_mem_copy_out(d->mem, place(d, offset) + at, got, n) < 0)
			return complain("load", pst_error_text());
		if (pread(fd, want, n, (off_t)(offset + at)) != (ssize_t)n ||
		    memcmp(got, want, n) != 0)
			return complain("verify", "a plain read gives other bytes");
		crc = crc32c(crc, got, n);
	}
	return printf("crc32c %08x\n", crc);
}

static int run(struct direct *d, const char *path, char *const pairs[])
{
	uint64_t offset, length;
	int fd = open(path, O_RDONLY | O_CLOEXEC), r = 0;

	if (fd < 0)
		return complain(path, strerror(errno));
	for (; r >= 0 && pairs[0]; pairs += 2) {
		int64_t n = -1;

		r = number(pairs[0], &offset) < 0 ? -1 : number(pairs[1], &length);
		if (r >= 0)
			n = read_direct(d, offset, length);
		r = n < 0 ? -1 : verify(d, fd, offset, (uint64_t)n);
	}
	(void)close(fd);
	return r;
}

int main(int argc, char *argv[])
{
	struct direct d = { .op = PST_OP_READ };
	int r;

	if (argc < 5 || argc % 2 == 0) {
		(void)fprintf(stderr, "usage: " ME " DEVICE FILE OFFSET LENGTH "
				      "[OFFSET LENGTH]...\n");
		return 2;
	}
	r = direct_open(&d, argv[1], argv[2], PST_FILE_READ, argv + 3);
	if (r == 0)
		r = run(&d, argv[2], argv + 3);
	direct_close(&d);
	return r < 0;
}
