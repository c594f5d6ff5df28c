/* SPDX-License-Identifier: MIT */
/* Data and holes of files. */
#include <linux/falloc.h>
#include <sys/statvfs.h>

#include "mount_case.h"
#include "bytes.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define BLOCK 65536u /* unit of data and holes; at least as large as any file system's block */

static uint8_t buf[4 * BLOCK];

static int new_file(const char *name)
{
	return CASE_OK(open(at(name), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
}

/* Write the pattern's bytes for that offset. */
static void put(int fd, uint64_t off, size_t len)
{
	t_fill(buf, 1, off, len);
	T_EQ(pwrite(fd, buf, len, (off_t)off), len);
}

static void has_pattern(int fd, uint64_t off, size_t len)
{
	memset(buf, 0, len);
	T_EQ(pread(fd, buf, len, (off_t)off), len);
	T_EQ(t_differs(buf, 1, off, len), len);
}

static void has_zeros(int fd, uint64_t off, size_t len)
{
	memset(buf, 0xa5, len);
	T_EQ(pread(fd, buf, len, (off_t)off), len);
	for (size_t i = 0; i < len; i++)
		if (buf[i])
			T_FAIL("byte %" PRIu64 " is 0x%02x and should be 0", off + i, buf[i]);
}

/* Open the same file in the source. */
static int source_of(const char *name)
{
	return CASE_OK(open(at_source(name), O_RDWR | O_CLOEXEC));
}

/* ------------------------------------------------------------------- holes */

static void sparse_files(void)
{
	int fd = new_file("file");

	put(fd, 10 * MIB, BLOCK);
	T_EQ(ftruncate(fd, 20 * MIB), 0);
	T_EQ(fsync(fd), 0);
	T_EQ(case_fstat(fd).st_size, 20 * MIB);
	T_CHECK(case_fstat(fd).st_blocks >= BLOCK / 512);
	T_CHECK((uint64_t)case_fstat(fd).st_blocks * 512 < MIB);
	T_EQ(case_stat(at_source("file")).st_blocks, case_fstat(fd).st_blocks);
	has_zeros(fd, 0, BLOCK);
	has_zeros(fd, 10 * MIB - BLOCK, BLOCK);
	has_pattern(fd, 10 * MIB, BLOCK);
	has_zeros(fd, 20 * MIB - BLOCK, BLOCK);
	case_close(fd);
}

/* Check that lseek(2) gives the same result on mount and source. */
static void same_answer(int fd, int source, uint64_t off, int whence)
{
	off_t a, b;
	int ea, eb;

	a = lseek(fd, (off_t)off, whence);
	ea = a < 0 ? errno : 0;
	b = lseek(source, (off_t)off, whence);
	eb = b < 0 ? errno : 0;
	if (a != b || ea != eb)
		T_FAIL("%s %" PRIu64 " gives %lld (errno %d) and in the source %lld (errno %d)",
		       whence == SEEK_DATA ? "SEEK_DATA" : "SEEK_HOLE", off, (long long)a, ea,
		       (long long)b, eb);
}

static void seeks(void)
{
	static const uint64_t offs[] = { 0,       1,       MIB - 1,     MIB,     MIB + 1,
					 2 * MIB, 3 * MIB, 4 * MIB - 1, 4 * MIB, 8 * MIB - 1,
					 8 * MIB, 9 * MIB, UINT64_MAX };
	int fd = new_file("file"), source = source_of("file");

	put(fd, MIB, BLOCK);
	put(fd, 4 * MIB, 2 * BLOCK);
	T_EQ(ftruncate(fd, 8 * MIB), 0);
	T_EQ(fsync(fd), 0);
	for (size_t i = 0; i < sizeof(offs) / sizeof(*offs); i++) {
		same_answer(fd, source, offs[i], SEEK_DATA);
		same_answer(fd, source, offs[i], SEEK_HOLE);
	}
	T_EQ(lseek(fd, 0, SEEK_HOLE), lseek(source, 0, SEEK_HOLE));
	CASE_GIVES(lseek(fd, 8 * MIB, SEEK_DATA), ENXIO);
	/* Other values of whence still work on the file's position. */
	T_EQ(lseek(fd, 0, SEEK_END), 8 * MIB);
	T_EQ(lseek(fd, -5, SEEK_CUR), 8 * MIB - 5);
	T_EQ(lseek(fd, MIB + 5, SEEK_SET), MIB + 5);
	T_EQ(read(fd, buf, 10), 10);
	T_EQ(t_differs(buf, 1, MIB + 5, 10), 10);
	T_EQ(lseek(fd, 0, SEEK_CUR), MIB + 15);
	case_close(source);
	case_close(fd);
}

/* --------------------------------------------------------------- fallocate */

/* Check that fallocate(2) has the same result as on the source. */
static void fallocated(int fd, int mode, uint64_t off, uint64_t len)
{
	int r = fallocate(fd, mode, (off_t)off, (off_t)len), is = r < 0 ? errno : 0, other;

	if (is == EOPNOTSUPP) {
		other = CASE_OK(open(at_source("other"), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
		T_EQ(ftruncate(other, (off_t)(off + len)), 0);
		r = fallocate(other, mode, (off_t)off, (off_t)len);
		case_close(other);
		if (r < 0) {
			case_close(fd);
			T_SKIP("mode %d of fallocate(2) in the source", mode);
		}
	}
	if (is)
		T_FAIL("mode %d gave %s", mode, strerrorname_np(is));
}

static void room_ahead(void)
{
	int fd = new_file("file");

	put(fd, 0, 100);
	fallocated(fd, 0, 0, 4 * MIB);
	T_EQ(case_fstat(fd).st_size, 4 * MIB);
	T_CHECK((uint64_t)case_fstat(fd).st_blocks * 512 >= 4 * MIB);
	has_pattern(fd, 0, 100);
	has_zeros(fd, 100, BLOCK);
	T_EQ(case_stat(at_source("file")).st_size, 4 * MIB);
	T_EQ(posix_fallocate(fd, 4 * MIB, 10), 0);
	T_EQ(case_fstat(fd).st_size, 4 * MIB + 10);
	case_close(fd);
}

static void room_behind_the_end(void)
{
	int fd = new_file("file");

	put(fd, 0, 100);
	fallocated(fd, FALLOC_FL_KEEP_SIZE, 0, 4 * MIB);
	T_EQ(case_fstat(fd).st_size, 100);
	T_CHECK((uint64_t)case_fstat(fd).st_blocks * 512 >= 4 * MIB);
	T_EQ(pread(fd, buf, BLOCK, 0), 100);
	case_close(fd);
}

static void holes_are_punched(void)
{
	int fd = new_file("file");
	blkcnt_t before;

	for (uint64_t off = 0; off < 4 * MIB; off += sizeof(buf))
		put(fd, off, sizeof(buf));
	T_EQ(fsync(fd), 0);
	before = case_fstat(fd).st_blocks;
	fallocated(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, MIB, 2 * MIB);
	T_EQ(case_fstat(fd).st_size, 4 * MIB);
	T_CHECK(case_fstat(fd).st_blocks <= before - (blkcnt_t)(2 * MIB / 512));
	has_pattern(fd, MIB - BLOCK, BLOCK);
	has_zeros(fd, MIB, BLOCK);
	has_zeros(fd, 3 * MIB - BLOCK, BLOCK);
	has_pattern(fd, 3 * MIB, BLOCK);
	/* Change parts of pages that are in the page cache. */
	fallocated(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 1001, 5000);
	has_pattern(fd, 0, 1001);
	has_zeros(fd, 1001, 5000);
	has_pattern(fd, 6001, 5000);
	/* The size never changes. */
	CASE_GIVES(fallocate(fd, FALLOC_FL_PUNCH_HOLE, 0, 4096), EOPNOTSUPP);
	fallocated(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4 * MIB - 10, MIB);
	T_EQ(case_fstat(fd).st_size, 4 * MIB);
	has_zeros(fd, 4 * MIB - 10, 10);
	case_close(fd);
}

static void ranges_are_zeroed(void)
{
	int fd = new_file("file");

	put(fd, 0, sizeof(buf));
	fallocated(fd, FALLOC_FL_ZERO_RANGE, 5000, 70000);
	has_pattern(fd, 0, 5000);
	has_zeros(fd, 5000, 70000);
	has_pattern(fd, 75000, 1000);
	fallocated(fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, sizeof(buf) - 10, MIB);
	T_EQ(case_fstat(fd).st_size, sizeof(buf));
	fallocated(fd, FALLOC_FL_ZERO_RANGE, sizeof(buf) - 10, 30);
	T_EQ(case_fstat(fd).st_size, sizeof(buf) + 20);
	has_zeros(fd, sizeof(buf) - 10, 30);
	case_close(fd);
}

static void what_fallocate_refuses(void)
{
	int fd = new_file("file");

	CASE_GIVES(fallocate(fd, 0, 0, 0), EINVAL);
	CASE_GIVES(fallocate(fd, 0, -1, 10), EINVAL);
	case_close(fd);
	fd = CASE_OK(open(at("file"), O_RDONLY | O_CLOEXEC));
	CASE_GIVES(fallocate(fd, 0, 0, 10), EBADF);
	case_close(fd);
}

/* ------------------------------------------------------------------ copies */

/* Copy all bytes; the kernel may copy in parts. */
static void copy(int in, uint64_t from, int out, uint64_t to, size_t len)
{
	loff_t a = (loff_t)from, b = (loff_t)to;

	while (len) {
		ssize_t n = CASE_OK(copy_file_range(in, &a, out, &b, len, 0));

		T_CHECK(n > 0 && (size_t)n <= len);
		len -= (size_t)n;
	}
}

static void copies(void)
{
	int in = new_file("in"), out = new_file("out");

	put(in, 0, sizeof(buf));
	copy(in, 1000, out, 1000, 150000);
	T_EQ(case_fstat(out).st_size, 151000);
	has_zeros(out, 0, 1000);
	has_pattern(out, 1000, 150000);
	/* Copy onto cached pages, and up to the end of the source file, not past it. */
	T_EQ(pwrite(out, "xxxxxxxxxx", 10, 200), 10);
	copy(in, 200, out, 200, 5);
	has_pattern(out, 200, 5);
	T_EQ(copy_file_range(in, &(loff_t){ sizeof(buf) }, out, NULL, 100, 0), 0);
	/* Bytes that were just written are copied. */
	T_EQ(pwrite(in, "yyyyyyyyyy", 10, 0), 10);
	copy(in, 0, out, 300000, 10);
	T_EQ(pread(out, buf, 10, 300000), 10);
	T_EQ(memcmp(buf, "yyyyyyyyyy", 10), 0);
	case_close(out);
	case_close(in);
}

static void copies_within_a_file(void)
{
	int fd = new_file("file");
	loff_t a = 0, b = 1000;

	put(fd, 0, 3 * BLOCK);
	CASE_GIVES(copy_file_range(fd, &a, fd, &b, BLOCK, 0), EINVAL);
	copy(fd, 0, fd, 3 * BLOCK, 2 * BLOCK);
	T_EQ(pread(fd, buf, 2 * BLOCK, 3 * BLOCK), 2 * BLOCK);
	T_EQ(t_differs(buf, 1, 0, 2 * BLOCK), 2 * BLOCK);
	case_close(fd);
}

/* Between different file system types the kernel copies nothing, and changes nothing. */
static void copies_from_the_source(void)
{
	int in, out = new_file("out");
	loff_t a = 0, b = 0;

	in = CASE_OK(open(at_source("in"), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
	put(in, 0, BLOCK);
	if (copy_file_range(in, &a, out, &b, BLOCK, 0) < 0) {
		T_EQ(errno, EXDEV);
		T_EQ(case_fstat(out).st_size, 0);
	} else {
		copy(in, (uint64_t)a, out, (uint64_t)b, BLOCK - (size_t)a);
		has_pattern(out, 0, BLOCK);
	}
	case_close(in);
	case_close(out);
}

/* ------------------------------------------------------------------- sizes */

static void cut_and_grown(void)
{
	int fd = new_file("file");

	put(fd, 0, sizeof(buf));
	T_EQ(ftruncate(fd, 1001), 0);
	T_EQ(ftruncate(fd, 100000), 0);
	has_pattern(fd, 0, 1001);
	has_zeros(fd, 1001, 100000 - 1001);
	T_EQ(truncate(at("file"), 50), 0);
	T_EQ(pread(fd, buf, 1000, 0), 50);
	T_EQ(case_fstat(fd).st_size, 50);
	CASE_GIVES(ftruncate(fd, -1), EINVAL);
	case_close(fd);
	fd = CASE_OK(open(at("file"), O_RDONLY | O_CLOEXEC));
	CASE_GIVES(ftruncate(fd, 0), EINVAL);
	case_close(fd);
	fd = CASE_OK(open(at("file"), O_WRONLY | O_TRUNC | O_CLOEXEC));
	T_EQ(case_fstat(fd).st_size, 0);
	case_close(fd);
}

static void more_than_4_gib(void)
{
	int fd = new_file("file"), source = source_of("file");

	if (ftruncate(source, 6 * GIB) < 0) {
		case_close(source);
		case_close(fd);
		T_SKIP("files of 6 GiB in the source");
	}
	T_EQ(ftruncate(source, 0), 0);
	put(fd, 5 * GIB - 100, BLOCK);
	T_EQ(case_fstat(fd).st_size, 5 * GIB - 100 + BLOCK);
	has_pattern(fd, 5 * GIB - 100, BLOCK);
	has_pattern(source, 5 * GIB - 100, BLOCK);
	has_zeros(fd, 4 * GIB - 100, BLOCK);
	put(fd, 4 * GIB - 100, 200);
	has_pattern(source, 4 * GIB - 100, 200);
	has_zeros(source, 0, 200);
	T_CHECK((uint64_t)case_fstat(fd).st_blocks * 512 < MIB);
	T_EQ(ftruncate(fd, 4 * GIB + 1), 0);
	T_EQ(case_stat(at_source("file")).st_size, 4 * GIB + 1);
	case_close(source);
	case_close(fd);
}

int main(int argc, char **argv)
{
	case_init(argc, argv);
	CASE(sparse_files);
	CASE(seeks);
	CASE(room_ahead);
	CASE(room_behind_the_end);
	CASE(holes_are_punched);
	CASE(ranges_are_zeroed);
	CASE(what_fallocate_refuses);
	CASE(copies);
	CASE(copies_within_a_file);
	CASE(copies_from_the_source);
	CASE(cut_and_grown);
	CASE(more_than_4_gib);
	return case_done();
}
