/* SPDX-License-Identifier: MIT */
/*
 * Files that report odd O_DIRECT alignments, as some file systems and drivers do.  Every request
 * ends with the right bytes, and says why it did not use O_DIRECT.
 */
#include <sys/syscall.h>

#include "rig.h"

#define SEED 5
#define LEN RIG_MIB(5)
#define DIOALIGN 0x2000u /* STATX_DIOALIGN; its two numbers are at DIOALIGN_AT */
#define DIOALIGN_AT 0x98

static bool told; /* statx() below reports these alignments, not the kernel's */
static uint32_t told_mem, told_off;

/* Replaces libc's function for the library. */
__attribute__((visibility("default"))) int statx(int dir, const char *path, int flags,
						 unsigned mask, struct statx *stx)
{
	const uint32_t v[2] = { told_mem, told_off };
	int r = (int)syscall(SYS_statx, dir, path, flags, mask, stx);

	if (r == 0 && told && (mask & DIOALIGN)) {
		stx->stx_mask |= DIOALIGN;
		memcpy((char *)stx + DIOALIGN_AT, v, sizeof(v));
	}
	return r;
}

static const struct {
	uint32_t mem, off;
	bool served;
} aligns[] = {
	{ 512, 512, true },       { 4096, 65536, true },  { 4, 131072, false },
	{ 4, 1u << 20, false },   { 4, 4u << 20, false }, { 4, 1u << 31, false },
	{ 4, UINT32_MAX, false }, { 4, 0, false },        { 0, 512, false },
	{ 4, 513, false },        { 3, 512, false },      { 8192, 4096, false },
	{ 1u << 31, 512, false },
};

static struct pst_file *open_told(unsigned i, uint32_t flags)
{
	struct pst_file *f;

	told = true;
	told_mem = aligns[i].mem;
	told_off = aligns[i].off;
	f = rig_open(rig_path("file"), flags);
	told = false;
	return f;
}

static void check(unsigned i, const struct pst_done *d, uint64_t len)
{
	T_EQ(d->res, (int64_t)len);
	if (aligns[i].served)
		return;
	T_EQ(d->paths & PST_PATH_BIT(PST_PATH_DIRECT), 0);
	T_EQ(d->why, PST_WHY_NO_DIRECT);
	T_EQ(d->detail, ERANGE);
}

static void requests_end(void)
{
	static const struct {
		uint64_t off, len;
	} pieces[] = { { 0, RIG_MIB(4) }, { 4096, 4096 }, { 100, 100000 }, { 65536, 131072 } };
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	uint8_t *buf = malloc(LEN);
	struct pst_file *f;
	struct pst_done d;

	T_CHECK(buf);
	rig_make(rig_path("file"), SEED, LEN);
	f = rig_open(rig_path("file"), PST_FILE_READ);
	if (!rig_file_info(f).direct) {
		pst_file_close(f);
		pst_mem_free(m);
		free(buf);
		T_SKIP("O_DIRECT on the file system of the test");
	}
	pst_file_close(f);
	for (unsigned i = 0; i < RIG_NR(aligns); i++)
		for (unsigned k = 0; k < RIG_NR(pieces); k++) {
			uint64_t off = pieces[k].off, len = pieces[k].len;

			rig_cold(rig_path("file"));
			f = open_told(i, RIG_RW);
			T_EQ(rig_file_info(f).direct, aligns[i].served);
			d = rig_read(f, m, off, off, len);
			check(i, &d, len);
			T_EQ(rig_mem_differs(m, off, len, SEED, off), len);
			rig_mem_fill(m, off, len, SEED + i, off);
			d = rig_write(f, m, off, off, len);
			check(i, &d, len);
			T_EQ(rig_sync(f).res, 0);
			T_EQ(rig_slurp(rig_path("file"), off, buf, len), len);
			T_EQ(t_differs(buf, SEED + i, off, len), len);
			rig_mem_fill(m, off, len, SEED, off);
			T_EQ(rig_write(f, m, off, off, len).res, (int64_t)len);
			pst_file_close(f);
		}
	pst_mem_free(m);
	free(buf);
}

/* An unusable alignment turns O_DIRECT off, and the text says that the alignment is wrong. */
static void in_words(void)
{
	struct pst_file_info info;
	struct pst_file *f;
	char text[300];

	rig_make(rig_path("file"), SEED, 4096);
	f = open_told(3, PST_FILE_READ);
	info = rig_file_info(f);
	if (info.why == PST_WHY_NO_DIRECT && info.detail == ERANGE) {
		T_EQ(info.direct, 0);
		T_EQ(info.off_align, 0);
		T_CHECK(strstr(pst_why_text(info.why, info.detail, text, sizeof(text)), "aligned"));
	} else {
		/* The library asks no file system in memory for its alignment. */
		T_EQ(info.direct, 0);
	}
	pst_file_close(f);
}

/* Submit more unaligned reads than the queue has parts for their edges.  Completions and counters
 * must still name every path, and the counters must include every byte. */
static void edges_without_room(void)
{
	enum { NR = 64, AT = 256, PIECE = 65536 - AT }; /* each read ends on a block boundary */
	struct pst_queue *q = rig_queue(rig_backend, NR);
	struct pst_mem *m = rig_alloc("host", NR * 65536u);
	struct pst_stats st;
	struct pst_file *f;
	struct pst_done d;

	rig_make(rig_path("edges"), SEED, NR * 65536u);
	f = rig_open(rig_path("edges"), PST_FILE_READ);
	if (!rig_file_info(f).direct)
		T_SKIP("O_DIRECT on the file system of the test");
	for (unsigned i = 0; i < NR; i++) {
		struct pst_io io = rig_io(PST_OP_READ, f, m, i * 65536u + AT, i * 65536u + AT,
					  PIECE);

		io.policy = PST_PATH_DIRECT | PST_PATH_BUFFERED << 4;
		T_OK(pst_queue_prep(q, &io));
	}
	T_EQ(pst_queue_submit(q), NR);
	for (unsigned i = 0; i < NR; i++) {
		d = rig_reap1(q);
		T_EQ(d.res, PIECE);
		T_EQ(d.paths, PST_PATH_BIT(PST_PATH_DIRECT) | PST_PATH_BIT(PST_PATH_BUFFERED));
		T_EQ(d.why, PST_WHY_UNALIGNED);
	}
	st = rig_stats(q);
	T_EQ(st.bytes[PST_PATH_DIRECT] + st.bytes[PST_PATH_BUFFERED], (uint64_t)NR * PIECE);
	for (unsigned i = 0; i < NR; i++)
		T_EQ(rig_mem_differs(m, i * 65536u + AT, PIECE, SEED, i * 65536u + AT), PIECE);
	pst_file_close(f);
	pst_mem_free(m);
	(void)pst_queue_free(q);
}

int main(void)
{
	rig_init();
	RIG_RUN(requests_end);
	RIG_RUN1(in_words);
	RIG_RUN_BACKENDS(edges_without_room);
	return rig_done();
}
