/* SPDX-License-Identifier: MIT */
/*
 * The kernel that moves many small pieces, as text that the driver compiles.
 *
 * A tile is {dst, src, len, reserved}, 32 bytes.  Block (l, b) moves tile b of list l, if the list
 * has that many tiles.  So blocks that run at the same time read from all lists.  The bytes of each
 * list are in the cache of the CPU that filled its slot, and one CPU's cache is slower than the
 * bus.
 *
 * A list that is marked as fed is written after the launch: when the kernel runs, it reads the
 * list's address and length from a struct cuda_fed.  The kernel uses plain loads for that: after a
 * load that is volatile or of system scope, the device reads host memory at 1 GB/s (H200).
 *
 * If source and target are equal modulo 16, the block first moves single bytes up to the target's
 * next multiple of 16. Then its threads move 16 bytes each, with four loads before their stores, so
 * that many reads are on the bus at once.  The rest is moved as single bytes.  If source and target
 * are equal only modulo 4, words of 4 bytes are moved in the same way; otherwise bytes.  Plain
 * loads see the host's writes from before the launch.  Volatile loads (.cv) would not be combined
 * into wide reads of the bus.
 */
#ifndef PST_CUDA_PTX_H
#define PST_CUDA_PTX_H

#include "mem/cuda/cuda.h"

#define CUDA_GATHER_NAME "pst_gather"
#define CUDA_GATHER_THREADS 256u

/* The kernel's parameter.  The text states its size. */
struct cuda_gather_lists {
	struct {
		uint64_t tiles; /* device address of the tiles, or of a struct cuda_fed */
		uint32_t nr;    /* number of tiles; if fed, the most that are possible */
		uint32_t fed;   /* 1: the kernel looks for the list when the kernel runs */
	} v[MEM_SGLS];
};

_Static_assert(sizeof(struct cuda_gather_lists) == 256 && sizeof(struct cuda_fed) == 16, "ABI");

static const char cuda_gather_ptx[] =
	".version 6.0\n"
	".target sm_50\n"
	".address_size 64\n"
	"\n"
	".visible .entry " CUDA_GATHER_NAME "(.param .align 8 .b8 lists[256])\n"
	"{\n"
	"	.reg .pred %p;\n"
	"	.reg .b32 %t, %nt, %b, %w, %shift, %x0, %x1, %x2, %x3, %y0, %y1, %y2, %y3;\n"
	"	.reg .b32 %z0, %z1, %z2, %z3, %v0, %v1, %v2, %v3;\n"
	"	.reg .b64 %tile, %dst, %src, %len, %step, %at, %head, %units, %i, %n, %end;\n"
	"	.reg .b64 %d, %s, %diff, %unit, %jump, %jump4, %three, %tail;\n"
	"\n"
	"	mov.u32 %t, %tid.x;\n"
	"	mov.u32 %nt, %ntid.x;\n"
	"	mov.u32 %b, %ctaid.y;\n"
	"	mov.u32 %w, %ctaid.x;\n"
	"	mul.wide.u32 %at, %w, 16;\n"
	"	mov.u64 %i, lists;\n"
	"	add.u64 %i, %i, %at;\n"
	"	ld.param.u64 %tile, [%i];\n"
	"	ld.param.u32 %w, [%i+8];\n"
	"	ld.param.u32 %x0, [%i+12];\n"
	"	setp.eq.u32 %p, %x0, 0;\n"
	"	@%p bra $listed;\n"
	"	cvta.to.global.u64 %tile, %tile;\n"
	"	ld.global.u32 %w, [%tile+8];\n"
	"	ld.global.u64 %tile, [%tile];\n"
	"$listed:\n"
	"	setp.ge.u32 %p, %b, %w;\n"
	"	@%p bra $end;\n"
	"	cvta.to.global.u64 %tile, %tile;\n"
	"	mul.wide.u32 %at, %b, 32;\n"
	"	add.u64 %tile, %tile, %at;\n"
	"	ld.global.u64 %dst, [%tile];\n"
	"	ld.global.u64 %src, [%tile+8];\n"
	"	ld.global.u64 %len, [%tile+16];\n"
	"	cvta.to.global.u64 %dst, %dst;\n"
	"	cvta.to.global.u64 %src, %src;\n"
	"	cvt.u64.u32 %at, %t;\n"
	"	cvt.u64.u32 %step, %nt;\n"
	"\n"
	/* unit: the largest of 16, 4 and 1 modulo which both addresses are equal. */
	"	xor.b64 %diff, %dst, %src;\n"
	"	mov.u64 %unit, 16;\n"
	"	mov.u32 %shift, 4;\n"
	"	and.b64 %n, %diff, 15;\n"
	"	setp.eq.u64 %p, %n, 0;\n"
	"	@%p bra $head;\n"
	"	mov.u64 %unit, 4;\n"
	"	mov.u32 %shift, 2;\n"
	"	and.b64 %n, %diff, 3;\n"
	"	setp.eq.u64 %p, %n, 0;\n"
	"	@%p bra $head;\n"
	"	mov.u64 %unit, 1;\n"
	"	mov.u32 %shift, 0;\n"
	"\n"
	/* head = min(-dst & (unit - 1), len) bytes, then units, then the tail. */
	"$head:\n"
	"	sub.u64 %n, %unit, 1;\n"
	"	neg.s64 %head, %dst;\n"
	"	and.b64 %head, %head, %n;\n"
	"	min.u64 %head, %head, %len;\n"
	"	sub.u64 %n, %len, %head;\n"
	"	shr.u64 %units, %n, %shift;\n"
	"	shl.b64 %tail, %units, %shift;\n"
	"	add.u64 %tail, %tail, %head;\n"
	"	mov.u64 %i, %at;\n"
	"$head_loop:\n"
	"	setp.ge.u64 %p, %i, %head;\n"
	"	@%p bra $body;\n"
	"	add.u64 %s, %src, %i;\n"
	"	add.u64 %d, %dst, %i;\n"
	"	ld.global.u8 %w, [%s];\n"
	"	st.global.u8 [%d], %w;\n"
	"	add.u64 %i, %i, %step;\n"
	"	bra $head_loop;\n"
	"\n"
	"$body:\n"
	"	shl.b64 %i, %at, %shift;\n"
	"	add.u64 %s, %src, %head;\n"
	"	add.u64 %s, %s, %i;\n"
	"	add.u64 %d, %dst, %head;\n"
	"	add.u64 %d, %d, %i;\n"
	"	shl.b64 %jump, %step, %shift;\n"
	"	mul.lo.u64 %three, %step, 3;\n"
	"	shl.b64 %jump4, %jump, 2;\n"
	"	mov.u64 %i, %at;\n"
	"	setp.eq.u64 %p, %unit, 4;\n"
	"	@%p bra $words;\n"
	"	setp.eq.u64 %p, %unit, 1;\n"
	"	@%p bra $bytes;\n"
	"\n"
	"$quads4:\n"
	"	add.u64 %end, %i, %three;\n"
	"	setp.ge.u64 %p, %end, %units;\n"
	"	@%p bra $quads;\n"
	"	ld.global.v4.u32 {%x0, %x1, %x2, %x3}, [%s];\n"
	"	add.u64 %n, %s, %jump;\n"
	"	ld.global.v4.u32 {%y0, %y1, %y2, %y3}, [%n];\n"
	"	add.u64 %n, %n, %jump;\n"
	"	ld.global.v4.u32 {%z0, %z1, %z2, %z3}, [%n];\n"
	"	add.u64 %n, %n, %jump;\n"
	"	ld.global.v4.u32 {%v0, %v1, %v2, %v3}, [%n];\n"
	"	st.global.v4.u32 [%d], {%x0, %x1, %x2, %x3};\n"
	"	add.u64 %n, %d, %jump;\n"
	"	st.global.v4.u32 [%n], {%y0, %y1, %y2, %y3};\n"
	"	add.u64 %n, %n, %jump;\n"
	"	st.global.v4.u32 [%n], {%z0, %z1, %z2, %z3};\n"
	"	add.u64 %n, %n, %jump;\n"
	"	st.global.v4.u32 [%n], {%v0, %v1, %v2, %v3};\n"
	"	add.u64 %s, %s, %jump4;\n"
	"	add.u64 %d, %d, %jump4;\n"
	"	add.u64 %i, %end, %step;\n"
	"	bra $quads4;\n"
	"$quads:\n"
	"	setp.ge.u64 %p, %i, %units;\n"
	"	@%p bra $tail;\n"
	"	ld.global.v4.u32 {%x0, %x1, %x2, %x3}, [%s];\n"
	"	st.global.v4.u32 [%d], {%x0, %x1, %x2, %x3};\n"
	"	add.u64 %s, %s, %jump;\n"
	"	add.u64 %d, %d, %jump;\n"
	"	add.u64 %i, %i, %step;\n"
	"	bra $quads;\n"
	"\n"
	"$words:\n"
	"	setp.ge.u64 %p, %i, %units;\n"
	"	@%p bra $tail;\n"
	"	ld.global.u32 %w, [%s];\n"
	"	st.global.u32 [%d], %w;\n"
	"	add.u64 %s, %s, %jump;\n"
	"	add.u64 %d, %d, %jump;\n"
	"	add.u64 %i, %i, %step;\n"
	"	bra $words;\n"
	"\n"
	"$bytes:\n"
	"	setp.ge.u64 %p, %i, %units;\n"
	"	@%p bra $tail;\n"
	"	ld.global.u8 %w, [%s];\n"
	"	st.global.u8 [%d], %w;\n"
	"	add.u64 %s, %s, %jump;\n"
	"	add.u64 %d, %d, %jump;\n"
	"	add.u64 %i, %i, %step;\n"
	"	bra $bytes;\n"
	"\n"
	"$tail:\n"
	"	add.u64 %i, %tail, %at;\n"
	"$tail_loop:\n"
	"	setp.ge.u64 %p, %i, %len;\n"
	"	@%p bra $end;\n"
	"	add.u64 %s, %src, %i;\n"
	"	add.u64 %d, %dst, %i;\n"
	"	ld.global.u8 %w, [%s];\n"
	"	st.global.u8 [%d], %w;\n"
	"	add.u64 %i, %i, %step;\n"
	"	bra $tail_loop;\n"
	"$end:\n"
	"	ret;\n"
	"}\n";

#endif
