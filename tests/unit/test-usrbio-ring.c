/* SPDX-License-Identifier: MIT */
/* The ring's layout byte by byte, and the arithmetic of its positions. */
#include "t.h"

#include <errno.h>

#include "usrbio/proto/ring.h"

/*
 * The first 336 bytes of a ring with two entries and three slots, after the steps of
 * write_ring().
 */
static const char golden[] =
	/* the four markers */
	"02000000 01000000 02000000 01000000"
	/* requests: UUID, offset in the buffer, file, offset in the file, length, user data */
	"00112233445566778899aabbccddeeff 0807060504030201 1817161514131211"
	"2827262524232221 3837363534333231 4847464544434241"
	"f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff ffffffffffffffff 0100000000000000"
	"0000000000000080 0010000000000000 efbeaddefecaadde"
	"00000000000000000000000000000000 0000000000000000 0000000000000000"
	"0000000000000000 0000000000000000 0000000000000000"
	/* completions: slot, reserved, result, user data */
	"00000000 00000000 0010000000000000 4847464544434241"
	"01000000 00000000 fbffffffffffffff efbeaddefecaadde"
	"00000000 00000000 0000000000000000 0000000000000000"
	/* entries: slot, reserved, user data */
	"00000000 00000000 4847464544434241"
	"01000000 00000000 efbeaddefecaadde"
	"00000000 00000000 0000000000000000"
	/* the semaphore and the spare room, which nobody has written */
	"a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5";

#define GOLDEN_LEN (16 + 96 * 3 + 32)
#define SIZE (GOLDEN_LEN + 4096)

static void write_ring(struct usrbio_ring *r)
{
	usrbio_marker_set(r->sq_head, 2);
	usrbio_marker_set(r->sq_tail, 1);
	usrbio_marker_set(r->cq_head, 2);
	usrbio_marker_set(r->cq_tail, 1);
	r->args[0] = (struct usrbio_args){
		.buf_id = { 0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb,
			    0xcc, 0xdd, 0xee, 0xff },
		.buf_off = 0x0102030405060708,
		.file = 0x1112131415161718,
		.file_off = 0x2122232425262728,
		.len = 0x3132333435363738,
		.user_data = 0x4142434445464748,
	};
	r->args[1] = (struct usrbio_args){
		.buf_id = { 0xf0, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9, 0xfa, 0xfb,
			    0xfc, 0xfd, 0xfe, 0xff },
		.buf_off = UINT64_MAX,
		.file = 1,
		.file_off = UINT64_C(1) << 63,
		.len = 4096,
		.user_data = 0xdeadcafedeadbeef,
	};
	r->cqes[0] = (struct usrbio_cqe){ 0, 0, 4096, 0x4142434445464748 };
	r->cqes[1] = (struct usrbio_cqe){ 1, 0, -EIO, 0xdeadcafedeadbeef };
	r->sqes[0] = (struct usrbio_sqe){ 0, 0, 0x4142434445464748 };
	r->sqes[1] = (struct usrbio_sqe){ 1, 0, 0xdeadcafedeadbeef };
	memset(r->sem, 0xa5, sizeof(*r->sem));
}

static void P1_layout_is_golden(void)
{
	unsigned char *mem = aligned_alloc(4096, 8192);
	struct usrbio_ring r;
	size_t at = 0;

	T_CHECK(mem);
	memset(mem, 0, 8192);
	T_EQ(usrbio_ring_size(2), SIZE);
	T_OK(usrbio_ring_at(mem, SIZE, &r));
	T_EQ(r.slots, 3);
	write_ring(&r);
	for (const char *p = golden; *p; p += 2) {
		unsigned byte;

		p += *p == ' ';
		T_EQ(sscanf(p, "%2x", &byte), 1);
		if (mem[at] != byte)
			T_FAIL("byte %zu is %02x, not %02x", at, mem[at], byte);
		at++;
	}
	T_EQ(at, GOLDEN_LEN);
	for (; at < 8192; at++)
		T_EQ(mem[at], 0);
	free(mem);
}

static void P1_offsets(void)
{
	static const int entries[] = { 1, 2, 3, 16, 255, 1024, 65536 };

	for (size_t i = 0; i < sizeof(entries) / sizeof(*entries); i++) {
		size_t n = (size_t)entries[i] + 1, size = 16 + 96 * n + 32 + 4096;
		char *mem = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
		struct usrbio_ring r;

		T_CHECK(mem);
		T_EQ(usrbio_ring_size(entries[i]), size);
		T_EQ(usrbio_ring_entries(size), entries[i]);
		T_OK(usrbio_ring_at(mem, size, &r));
		T_EQ(r.slots, n);
		T_EQ((char *)r.sq_head - mem, 0);
		T_EQ((char *)r.sq_tail - mem, 4);
		T_EQ((char *)r.cq_head - mem, 8);
		T_EQ((char *)r.cq_tail - mem, 12);
		T_EQ((char *)r.args - mem, 16);
		T_EQ((char *)r.cqes - mem, 16 + 56 * n);
		T_EQ((char *)r.sqes - mem, 16 + 80 * n);
		T_EQ((char *)r.sem - mem, 16 + 96 * n);
		free(mem);
	}
	T_EQ(usrbio_ring_size(1024), 102544);
	T_EQ(offsetof(struct usrbio_args, buf_off), 16);
	T_EQ(offsetof(struct usrbio_args, file), 24);
	T_EQ(offsetof(struct usrbio_args, file_off), 32);
	T_EQ(offsetof(struct usrbio_args, len), 40);
	T_EQ(offsetof(struct usrbio_args, user_data), 48);
	T_EQ(offsetof(struct usrbio_cqe, result), 8);
	T_EQ(offsetof(struct usrbio_cqe, user_data), 16);
	T_EQ(offsetof(struct usrbio_sqe, user_data), 8);
}

/* Both sides round down, so a ring can fill whole pages. */
static void P1_entries_of_any_size(void)
{
	size_t one = usrbio_ring_size(1), top = usrbio_ring_size(USRBIO_RING_ENTRIES_MAX);

	for (size_t size = 0; size < one; size++)
		if (usrbio_ring_entries(size) != 0)
			T_FAIL("%zu bytes are a ring", size);
	for (size_t size = one; size < one + 3 * 96; size++)
		T_EQ(usrbio_ring_entries(size), 1 + (size - one) / 96);
	T_EQ(usrbio_ring_entries(102544 + 95), 1024);
	T_EQ(usrbio_ring_entries(102544 + 96), 1025);
	T_EQ(usrbio_ring_entries(102544 - 1), 1023);
	T_EQ(usrbio_ring_entries(top), USRBIO_RING_ENTRIES_MAX);
	T_EQ(usrbio_ring_entries(top + 95), USRBIO_RING_ENTRIES_MAX);
	T_EQ(usrbio_ring_entries(top + 96), 0);
	T_EQ(usrbio_ring_entries(SIZE_MAX), 0);
	T_EQ(usrbio_ring_entries(SIZE_MAX / 2), 0);
	T_CHECK(top <= INT32_MAX);
}

static void P1_sizes_that_are_none(void)
{
	static const int bad[] = { 0, -1, INT32_MIN, INT32_MAX, USRBIO_RING_ENTRIES_MAX + 1 };

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		T_EQ(usrbio_ring_size(bad[i]), 0);
}

static void P1_memory_that_is_no_ring(void)
{
	char *mem = aligned_alloc(4096, 8192);
	struct usrbio_ring r = { .slots = 77 };
	size_t size = usrbio_ring_size(4);

	T_CHECK(mem);
	for (size_t off = 1; off < 8; off++)
		T_EQ(usrbio_ring_at(mem + off, size, &r), -EINVAL);
	T_EQ(usrbio_ring_at(mem, 0, &r), -EINVAL);
	T_EQ(usrbio_ring_at(mem, usrbio_ring_size(1) - 1, &r), -EINVAL);
	T_EQ(usrbio_ring_at(mem, SIZE_MAX, &r), -EINVAL);
	T_EQ(r.slots, 77);
	T_OK(usrbio_ring_at(mem + 8, size, &r));
	T_EQ(r.slots, 5);
	free(mem);
}

static void P1_positions_go_round(void)
{
	struct usrbio_ring r = { .slots = 3 };
	uint32_t pos = 0;

	for (uint32_t i = 0; i < 30; i++) {
		T_EQ(pos, i % 3);
		pos = usrbio_ring_next(&r, pos);
	}
	for (uint32_t tail = 0; tail < 3; tail++)
		for (uint32_t held = 0; held < 3; held++)
			T_EQ(usrbio_ring_held(&r, (tail + held) % 3, tail), held);
	r.slots = USRBIO_RING_ENTRIES_MAX + 1;
	T_EQ(usrbio_ring_held(&r, 0, r.slots - 1), 1);
	T_EQ(usrbio_ring_held(&r, r.slots - 2, r.slots - 1), r.slots - 1);
	T_EQ(usrbio_ring_next(&r, r.slots - 1), 0);
}

int main(void)
{
	T_RUN(P1_layout_is_golden);
	T_RUN(P1_offsets);
	T_RUN(P1_entries_of_any_size);
	T_RUN(P1_sizes_that_are_none);
	T_RUN(P1_memory_that_is_no_ring);
	T_RUN(P1_positions_go_round);
	return t_done();
}
