/* SPDX-License-Identifier: MIT */
/*
 * Write bytes from device memory to a file by the shortest path.
 *
 *	write_direct [-s] DEVICE FILE OFFSET LENGTH [OFFSET LENGTH]...
 *
 * Stores a pattern that depends on the file offset in device memory and writes it; then reads the
 * file, compares, and prints the CRC-32C.  A missing file is created.  An existing file keeps its
 * other bytes, and is never shortened.  With -s, the bytes are on the disk when the program ends.
 */
#define ME "write_direct"
#include "direct.h"

static void pattern(uint64_t offset, uint8_t *buf, size_t len)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = (uint8_t)((offset + i) * UINT64_C(0x9e3779b97f4a7c15) >> 56);
}

/*
 * Write the bytes at place(d, offset) in memory.  If a kernel produces them, set io.stream to its
 * stream, or call pst_mem_sync() before.
 */
static int64_t write_direct(const struct direct *d, uint64_t offset, uint64_t length)
{
	struct pst_io io = {
		.op = PST_OP_WRITE,
		.file = d->file,
		.mem = d->mem,
		.file_off = offset,
		.mem_off = place(d, offset),
		.len = length,
	};

	return direct_do(d, &io);
}

/* Sync: after it has returned 0, all earlier writes are on the disk. */
static int64_t make_durable(const struct direct *d)
{
	struct pst_io io = { .op = PST_OP_SYNC, .file = d->file };

	return direct_do(d, &io);
}

static int fill(const struct direct *d, uint64_t offset, uint64_t length)
{
	uint8_t buf[PAGE];

	for (uint64_t at = 0, n; at < length; at += n) {
		n = length - at < PAGE ? length - at : PAGE;
		pattern(offset + at, buf, n);
		if (pst_mem_copy_in(d->mem, place(d, offset) + at, buf, n) < 0)
			return complain("store", pst_error_text());
	}
	return 0;
}

static int verify(int fd, uint64_t offset, uint64_t length)
{
	uint8_t got[PAGE], want[PAGE];
	uint32_t crc = 0;

	for (uint64_t at = 0, n; at < length; at += n) {
		n = length - at < PAGE ? length - at : PAGE;
		pattern(offset + at, want, n);
		if (pread(fd, got, n, (off_t)(offset + at)) != (ssize_t)n ||
		    memcmp(got, want, n) != 0)
			return complain("verify", "a plain read gives other bytes");
		crc = crc32c(crc, got, n);
	}
	return printf("crc32c %08x\n", crc);
}

static int run(const struct direct *d, const char *path, char *const pairs[], bool sync)
{
	uint64_t offset, length;
	int fd = open(path, O_RDONLY | O_CLOEXEC), r = 0;

	if (fd < 0)
		return complain(path, strerror(errno));
	for (; r >= 0 && pairs[0]; pairs += 2) {
		r = number(pairs[0], &offset) < 0 ? -1 : number(pairs[1], &length);
		if (r == 0)
			r = fill(d, offset, length);
		if (r == 0)
			r = write_direct(d, offset, length) < 0 ? -1 : verify(fd, offset, length);
	}
	if (r >= 0 && sync)
		r = make_durable(d) < 0 ? -1 : 0;
	(void)close(fd);
	return r;
}

int main(int argc, char *argv[])
{
	/* Open for reading as well: the first O_DIRECT and cuFile writes are read back and
	 * compared. */
	const uint32_t flags = PST_FILE_READ | PST_FILE_WRITE | PST_FILE_CREATE;
	struct direct d = { .op = PST_OP_WRITE };
	bool sync = argc > 1 && strcmp(argv[1], "-s") == 0;
	char **arg = argv + 1 + sync;
	int nr = argc - 1 - sync, r;

	if (nr < 4 || nr % 2) {
		(void)fprintf(stderr, "usage: " ME " [-s] DEVICE FILE OFFSET LENGTH "
				      "[OFFSET LENGTH]...\n");
		return 2;
	}
	r = direct_open(&d, arg[0], arg[1], flags, arg + 2);
	if (r == 0)
		r = run(&d, arg[1], arg + 2, sync);
	direct_close(&d);
	return r < 0;
}
