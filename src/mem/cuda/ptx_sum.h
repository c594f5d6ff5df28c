/* SPDX-License-Identifier: MIT */
/*
 * The kernel that computes checksums of device memory, as text that the driver compiles.
 *
 * A CRC is a polynomial over GF(2) modulo that of CRC-32C, in words whose bit 31 is the coefficient
 * of x^0 (base/crc32c.c).  The remainder of a tile of n words w of 32 bits is the sum of
 * w[i] * x^(32 (n - i)).  A warp takes a tile.  In each turn it reads 512 bytes, and each lane
 * reads four words of them.  Lane l has a sum for word 0, 1, 2 and 3 each, and multiplies it by
 * x^4096 before it adds the next word.  At the end the sum of word j is multiplied by
 * x^(32 (128 - 4 l - j)), and the warp adds all sums.
 *
 * The multiplication by x^4096 takes eight tables of 16 words, one for each nibble.  Every lane has
 * its own copy, in a bank of shared memory that no other lane uses, so lanes never wait for each
 * other.
 *
 * Zeros in front of a message change nothing while the CRC begins with 0.  So a tile is read as if
 * zeros filled up its first 512 bytes.  Zeros also fill up its last 16 bytes; the host removes
 * their effect (crc32c_drop_zeros()).  No byte outside a tile is read.
 */
#ifndef PST_CUDA_PTX_SUM_H
#define PST_CUDA_PTX_SUM_H

#include "base/base.h"

#define CUDA_SUM_NAME "pst_sum"
#define CUDA_SUM_THREADS 256u
#define CUDA_SUM_WARPS (CUDA_SUM_THREADS / 32)

/* One tile.  The kernel's parameters: the array of tiles, their number, and the array of
 * remainders, one word per tile. */
struct cuda_sum_tile {
	uint64_t at;  /* device address */
	uint64_t len; /* bytes, at least 1 */
};

/* The text consists of pieces.  The formatter is off because it would rearrange them. */
/* clang-format off */

/* d = a * b; a, b and %m change. */
#define CUDA_SUM_MUL(label, d, a, b) \
	"	mov.u32 " d ", 0;\n" \
	"$" label ":\n" \
	"	shr.s32 %m, " a ", 31;\n" \
	"	and.b32 %m, %m, " b ";\n" \
	"	xor.b32 " d ", " d ", %m;\n" \
	"	and.b32 %m, " b ", 1;\n" \
	"	neg.s32 %m, %m;\n" \
	"	and.b32 %m, %m, 0x82f63b78;\n" \
	"	shr.u32 " b ", " b ", 1;\n" \
	"	xor.b32 " b ", " b ", %m;\n" \
	"	shl.b32 " a ", " a ", 1;\n" \
	"	setp.ne.u32 %p, " a ", 0;\n" \
	"	@%p bra $" label ";\n"

/* Handle one bit of a thread's exponent %e: if the bit is set, %c *= power. */
#define CUDA_SUM_POWER(label, bit, power) \
	"	and.b32 %w, %e, " bit ";\n" \
	"	setp.eq.u32 %p, %w, 0;\n" \
	"	@%p bra $no" label ";\n" \
	"	mov.u32 %b, " power ";\n" \
	CUDA_SUM_MUL(label, "%w", "%c", "%b") \
	"	mov.u32 %c, %w;\n" \
	"$no" label ":\n"

/* Add the word of one nibble's table to %w.  shift moves the nibble to where it selects a row. */
#define CUDA_SUM_LOOK(shift, table) \
	"	" shift "\n" \
	"	and.b32 %m, %m, 0x780;\n" \
	"	add.u32 %m, %m, %lane4;\n" \
	"	ld.shared.u32 %b, [%m+" table "];\n" \
	"	xor.b32 %w, %w, %b;\n"

/* sum = sum * x^4096 + word */
#define CUDA_SUM_TURN(sum, word) \
	"	mov.u32 %w, " word ";\n" \
	CUDA_SUM_LOOK("shl.b32 %m, " sum ", 7;", "0") \
	CUDA_SUM_LOOK("shl.b32 %m, " sum ", 3;", "2048") \
	CUDA_SUM_LOOK("shr.u32 %m, " sum ", 1;", "4096") \
	CUDA_SUM_LOOK("shr.u32 %m, " sum ", 5;", "6144") \
	CUDA_SUM_LOOK("shr.u32 %m, " sum ", 9;", "8192") \
	CUDA_SUM_LOOK("shr.u32 %m, " sum ", 13;", "10240") \
	CUDA_SUM_LOOK("shr.u32 %m, " sum ", 17;", "12288") \
	CUDA_SUM_LOOK("shr.u32 %m, " sum ", 21;", "14336") \
	"	mov.u32 " sum ", %w;\n"

/* Add the sum, multiplied by its power, to %r. */
#define CUDA_SUM_LAST(label, sum, power) \
	"	ld.shared.u32 %b, [%lane16+" power "];\n" \
	CUDA_SUM_MUL(label, "%w", sum, "%b") \
	"	xor.b32 %r, %r, %w;\n"

#define CUDA_SUM_ADD_LANES(distance) \
	"	shfl.sync.bfly.b32 %w, %r, " distance ", 31, 0xffffffff;\n" \
	"	xor.b32 %r, %r, %w;\n"

static const char cuda_sum_ptx[] =
	".version 6.0\n"
	".target sm_50\n"
	".address_size 64\n"
	"\n"
	".visible .entry " CUDA_SUM_NAME "(.param .u64 tiles, .param .u32 nr, .param .u64 sums)\n"
	"{\n"
	"	.reg .pred %p, %q, %whole;\n"
	"	.reg .b32 %t, %i, %nr, %jump, %lane4, %lane16, %tables, %ends;\n"
	"	.reg .b32 %a, %b, %c, %e, %m, %r, %w, %v0, %v1, %v2, %v3, %s0, %s1, %s2, %s3;\n"
	"	.reg .b64 %tile, %sums, %at, %end, %start16, %end16, %ptr, %x, %y;\n"
	"	.shared .align 16 .b8 table[16384];\n"
	"	.shared .align 16 .b8 last[512];\n"
	"\n"
	"	mov.u32 %t, %tid.x;\n"
	"	mov.u32 %tables, table;\n"
	"	mov.u32 %ends, last;\n"
	"	setp.ge.u32 %p, %t, 128;\n"
	"	@%p bra $ready;\n"
	/* last[t] = x^(32 (128 - t)) */
	"	mov.u32 %e, 128;\n"
	"	sub.u32 %e, %e, %t;\n"
	"	mov.u32 %c, 0x80000000;\n"
	CUDA_SUM_POWER("p0", "1", "0x82f63b78")
	CUDA_SUM_POWER("p1", "2", "0x6ea2d55c")
	CUDA_SUM_POWER("p2", "4", "0x18b8ea18")
	CUDA_SUM_POWER("p3", "8", "0x510ac59a")
	CUDA_SUM_POWER("p4", "16", "0xb82be955")
	CUDA_SUM_POWER("p5", "32", "0xb8fdb1e7")
	CUDA_SUM_POWER("p6", "64", "0x88e56f72")
	CUDA_SUM_POWER("p7", "128", "0x74c360a4")
	"	shl.b32 %m, %t, 2;\n"
	"	add.u32 %m, %m, %ends;\n"
	"	st.shared.u32 [%m], %c;\n"
	/* table[t / 16][t % 16] = (t % 16 << 4 (t / 16)) * x^4096, 32 times */
	"	shr.u32 %w, %t, 4;\n"
	"	shl.b32 %w, %w, 2;\n"
	"	and.b32 %a, %t, 15;\n"
	"	shl.b32 %a, %a, %w;\n"
	"	mov.u32 %b, 0x74c360a4;\n"
	CUDA_SUM_MUL("entry", "%c", "%a", "%b")
	"	shl.b32 %e, %t, 7;\n"
	"	add.u32 %e, %e, %tables;\n"
	"	mov.u32 %i, 0;\n"
	"$copies:\n"
	"	add.u32 %m, %t, %i;\n"
	/* each thread writes to another bank */
	"	and.b32 %m, %m, 31;\n"
	"	shl.b32 %m, %m, 2;\n"
	"	add.u32 %m, %m, %e;\n"
	"	st.shared.u32 [%m], %c;\n"
	"	add.u32 %i, %i, 1;\n"
	"	setp.lt.u32 %p, %i, 32;\n"
	"	@%p bra $copies;\n"
	"$ready:\n"
	"	bar.sync 0;\n"
	"\n"
	"	ld.param.u64 %tile, [tiles];\n"
	"	cvta.to.global.u64 %tile, %tile;\n"
	"	ld.param.u32 %nr, [nr];\n"
	"	ld.param.u64 %sums, [sums];\n"
	"	cvta.to.global.u64 %sums, %sums;\n"
	"	and.b32 %m, %t, 31;\n"
	"	shl.b32 %lane4, %m, 2;\n"
	"	shl.b32 %lane16, %m, 4;\n"
	"	add.u32 %lane16, %lane16, %ends;\n"
	"	add.u32 %lane4, %lane4, %tables;\n"
	"	mov.u32 %i, %ctaid.x;\n"
	"	shl.b32 %i, %i, 3;\n"
	"	shr.u32 %m, %t, 5;\n"
	"	add.u32 %i, %i, %m;\n"
	"	mov.u32 %jump, %nctaid.x;\n"
	"	shl.b32 %jump, %jump, 3;\n"
	"\n"
	"$tile:\n"
	"	setp.ge.u32 %p, %i, %nr;\n"
	"	@%p bra $end;\n"
	"	mul.wide.u32 %x, %i, 16;\n"
	"	add.u64 %x, %x, %tile;\n"
	"	ld.global.v2.u64 {%at, %end}, [%x];\n"
	"	cvta.to.global.u64 %at, %at;\n"
	"	add.u64 %end, %end, %at;\n"
	"	and.b64 %start16, %at, -16;\n"
	"	add.u64 %end16, %end, 15;\n"
	"	and.b64 %end16, %end16, -16;\n"
	/* The 512 bytes of the first turn begin at or before the start. */
	"	sub.u64 %x, %end16, %start16;\n"
	"	add.u64 %x, %x, 511;\n"
	"	and.b64 %x, %x, -512;\n"
	"	sub.u64 %ptr, %end16, %x;\n"
	"	and.b32 %m, %t, 31;\n"
	"	mul.wide.u32 %x, %m, 16;\n"
	"	add.u64 %ptr, %ptr, %x;\n"
	"	mov.u32 %s0, 0;\n"
	"	mov.u32 %s1, 0;\n"
	"	mov.u32 %s2, 0;\n"
	"	mov.u32 %s3, 0;\n"
	"\n"
	"$turn:\n"
	"	setp.ge.u64 %p, %ptr, %end16;\n"
	"	@%p bra $last;\n"
	"	mov.u32 %v0, 0;\n"
	"	mov.u32 %v1, 0;\n"
	"	mov.u32 %v2, 0;\n"
	"	mov.u32 %v3, 0;\n"
	"	add.u64 %x, %ptr, 16;\n"
	"	setp.ge.u64 %whole, %ptr, %at;\n"
	"	setp.le.and.u64 %whole, %x, %end, %whole;\n"
	"	@%whole ld.global.v4.u32 {%v0, %v1, %v2, %v3}, [%ptr];\n"
	"	@%whole bra $add;\n"
	"	setp.gt.u64 %q, %x, %at;\n"
	"	@!%q bra $add;\n"
	/* From the last byte to the first: each time the words move up by a byte. */
	"	mov.u32 %e, 16;\n"
	"$bytes:\n"
	"	sub.u64 %x, %x, 1;\n"
	"	mov.u32 %w, 0;\n"
	"	setp.ge.u64 %q, %x, %at;\n"
	"	setp.lt.and.u64 %q, %x, %end, %q;\n"
	"	@%q ld.global.u8 %w, [%x];\n"
	"	shf.l.clamp.b32 %v3, %v2, %v3, 8;\n"
	"	shf.l.clamp.b32 %v2, %v1, %v2, 8;\n"
	"	shf.l.clamp.b32 %v1, %v0, %v1, 8;\n"
	"	shl.b32 %v0, %v0, 8;\n"
	"	or.b32 %v0, %v0, %w;\n"
	"	sub.u32 %e, %e, 1;\n"
	"	setp.ne.u32 %q, %e, 0;\n"
	"	@%q bra $bytes;\n"
	"$add:\n"
	CUDA_SUM_TURN("%s0", "%v0")
	CUDA_SUM_TURN("%s1", "%v1")
	CUDA_SUM_TURN("%s2", "%v2")
	CUDA_SUM_TURN("%s3", "%v3")
	"	add.u64 %ptr, %ptr, 512;\n"
	"	bra $turn;\n"
	"\n"
	"$last:\n"
	"	mov.u32 %r, 0;\n"
	CUDA_SUM_LAST("l0", "%s0", "0")
	CUDA_SUM_LAST("l1", "%s1", "4")
	CUDA_SUM_LAST("l2", "%s2", "8")
	CUDA_SUM_LAST("l3", "%s3", "12")
	"	bar.warp.sync 0xffffffff;\n"
	CUDA_SUM_ADD_LANES("16")
	CUDA_SUM_ADD_LANES("8")
	CUDA_SUM_ADD_LANES("4")
	CUDA_SUM_ADD_LANES("2")
	CUDA_SUM_ADD_LANES("1")
	"	mul.wide.u32 %x, %i, 4;\n"
	"	add.u64 %x, %x, %sums;\n"
	"	and.b32 %m, %t, 31;\n"
	"	setp.eq.u32 %q, %m, 0;\n"
	"	@%q st.global.u32 [%x], %r;\n"
	"	add.u32 %i, %i, %jump;\n"
	"	bra $tile;\n"
	"$end:\n"
	"	ret;\n"
	"}\n";

/* clang-format on */

#endif
