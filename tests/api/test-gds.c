/* SPDX-License-Identifier: MIT */
/*
 * Requests by cuFile: where it is direct they take it and say so, and where it is not, lies or
 * fails, the same bytes come by the library's own way, with the reason.
 */
#include <stdatomic.h>

#include "gds.h"

/* ------------------------------------------------------------------ direct */

/* Until it is known that there is a direct way, the own one is taken; then cuFile's. */
static void takes(const char *mode)
{
	char text[40];
	struct pst_done d;
	struct pst_stats st;

	(void)snprintf(text, sizeof(text), "mode=%s", mode);
	begin(text);
	d = cold_read(0, 0, LEN, 0, 0);
	T_EQ(d.res, (int64_t)LEN);
	T_CHECK(!(d.paths & GDS) && (d.paths & STAGED));
	T_EQ(d.why, PST_WHY_NONE);
	T_EQ(verdict().why, PST_WHY_NONE);
	T_EQ(verdict().state, PST_STATE_POSSIBLE);

	d = cold_read(0, 0, LEN, 0, 0);
	T_EQ(d.res, (int64_t)LEN);
	T_CHECK(is_right(0, 0, LEN));
	T_CHECK((d.paths & GDS) && (d.flags & PST_DONE_PROOF));
	T_EQ(d.why, PST_WHY_NONE);
	T_EQ(verdict().state, PST_STATE_PROVEN);
	T_EQ(check(PST_OP_WRITE).state, PST_STATE_POSSIBLE);
	st = rig_stats(rig_q);
	/* All but the edge, and what was left in the last registration or chunk. */
	T_CHECK(st.bytes[PST_PATH_GDS] >= RIG_MIB(20));
	T_EQ(st.bytes[PST_PATH_GDS] % 4096, 0);
	T_EQ(st.bytes[PST_PATH_GDS] + st.bytes[PST_PATH_STAGED], 2 * LEN);

	d = cold_read(0, 0, LEN, 0, 0);
	T_CHECK(is_right(0, 0, LEN));
	T_CHECK((d.paths & GDS) && !(d.flags & PST_DONE_PROOF));

	d = pattern_write(5, 0, RIG_MIB(18));
	T_CHECK((d.paths & GDS) && (d.flags & PST_DONE_PROOF));
	T_EQ(check(PST_OP_WRITE).state, PST_STATE_PROVEN);
	d = pattern_write(6, 0, RIG_MIB(18));
	T_EQ(d.paths, GDS);
	T_EQ(rig_sync(file).res, 0);
	T_EQ(rig_stats(rig_q).fallbacks, 0);
}

static void p2pdma(void)
{
	takes("p2pdma");
	end();
}

static void nvfs(void)
{
	takes("nvfs");
	end();
}

static void c2c(void)
{
	takes("c2c");
	end();
}

/* Its own or nobody's driver: told to refuse what is not direct, and counting. */
static void exclusive(void)
{
	(void)setenv("PST_GDS", "exclusive", 1);
	takes("nvfs");
	T_CHECK(state().strict);
	end();
}

/* Edges, short pieces and odd addresses go by slots, in the same request. */
static void odd_pieces(void)
{
	static const struct {
		uint64_t file_off, mem_off, len;
		bool gds, odd;
	} v[] = {
		{ 0, 0, 1 << 20, true, false },
		{ 100, 100, 3 << 20, true, false },
		{ 100, 4096 + 100, 3 << 20, true, false },
		{ 4096, 0, 1 << 20, true, false },
		{ 0, 100, 1 << 20, false, true },
		{ 0, 512, 1 << 20, false, true },
		{ 4095, 0, 1 << 20, false, true },
		{ 0, 512, 65535, false, false },
		{ 4095, 0, 65536, false, false },
		{ 0, 0, 65536, true, false },
		{ 0, 0, 65535, false, false },
		{ 4096, 4096, 4096, false, false },
		{ 1 << 20, (16 << 20) - 4096, 8 << 20, true, false },
		{ 0, (16 << 20) - 4096, 65536, false, false },
		{ RIG_MIB(19), 0, LEN - RIG_MIB(19), true, false },
	};
	struct pst_done d;

	begin_good("mode=p2pdma");
	for (unsigned i = 0; i < RIG_NR(v); i++) {
		printf("# %u\n", i);
		d = cold_read(v[i].file_off, v[i].mem_off, v[i].len, 0, 0);
		T_EQ(d.res, (int64_t)v[i].len);
		T_EQ(d.why, v[i].odd ? PST_WHY_UNALIGNED : PST_WHY_NONE);
		T_EQ(d.detail, v[i].odd ? 4096 : 0);
		T_EQ((d.paths & GDS) != 0, v[i].gds);
		T_CHECK(is_right(v[i].file_off, v[i].mem_off, v[i].len));
		T_EQ(rig_mem_differs(mem, v[i].mem_off + v[i].len, 4096, 77, 0) == 4096, false);
	}
	end();
}

/* What it could not have moved in any case, or is in the page cache, is no fallback. */
static void odd_and_warm(void)
{
	struct pst_done d;

	begin_good("mode=p2pdma");
	rig_warm(rig_path("data"));
	d = rig_read(file, mem, 0, 512, RIG_MIB(1));
	T_EQ(d.why, PST_WHY_NONE);
	d = rig_write(file, mem, 0, 512, RIG_MIB(1));
	T_EQ(d.why, PST_WHY_UNALIGNED);
	d = cold_read(0, 512, RIG_MIB(1), PST_POLICY1(PST_PATH_STAGED), PST_IO_STRICT);
	T_EQ(d.res, (int64_t)RIG_MIB(1));
	end();
}

/* Short pieces first: the long ones behind them are seen, but not behind many. */
static void short_first(void)
{
	static struct pst_seg segs[80];
	struct pst_io io;
	struct pst_done d;

	begin_good("mode=p2pdma");
	for (unsigned nr = 2; nr <= RIG_NR(segs); nr += RIG_NR(segs) - 2) {
		for (unsigned i = 0; i + 1 < nr; i++)
			segs[i] = (struct pst_seg){ i * 8192u, i * 8192u, 4096, 0, 0, 0 };
		segs[nr - 1] = (struct pst_seg){ RIG_MIB(2), RIG_MIB(2), RIG_MIB(4), 0, 0, 0 };
		rig_cold(rig_path("data"));
		io = rig_io(PST_OP_READ, file, mem, 0, 0, 0);
		io.segs = segs;
		io.nr_segs = nr;
		d = rig_do(rig_q, &io);
		rig_show(&d);
		T_EQ(d.res, (int64_t)(RIG_MIB(4) + (nr - 1) * 4096));
		T_EQ(d.why, PST_WHY_NONE);
		T_EQ((d.paths & GDS) != 0, nr == 2);
		T_CHECK(is_right(0, 0, 4096) && is_right(RIG_MIB(2), RIG_MIB(2), RIG_MIB(4)));
	}
	end();
}

/* A read that meets the end of the file, one behind it, and a file that grows by writing. */
static void ends_of_files(void)
{
	struct pst_done d;

	begin_good("mode=p2pdma");
	for (unsigned i = 0; i < 2; i++) {
		d = cold_read(RIG_MIB(19), 0, RIG_MIB(8), 0, 0);
		T_EQ(d.res, (int64_t)(LEN - RIG_MIB(19)));
		T_EQ(d.why, PST_WHY_NONE);
		T_CHECK(d.paths & GDS);
		T_CHECK(is_right(RIG_MIB(19), 0, LEN - RIG_MIB(19)));
	}
	d = cold_read(RIG_MIB(30), 0, RIG_MIB(1), 0, 0);
	T_EQ(d.res, 0);
	T_EQ(d.why, PST_WHY_NONE);
	d = pattern_write(8, RIG_MIB(19), RIG_MIB(10));
	T_CHECK(d.paths & GDS);
	/* Not a part of a write that goes through the page cache elsewhere. */
	d = pattern_write(9, RIG_MIB(19), RIG_MIB(10) + 300);
	T_CHECK(!(d.paths & GDS));
	T_EQ(d.why, PST_WHY_UNALIGNED);
	T_EQ(rig_file_info(file).size, RIG_MIB(29) + 300);
	end();
}

/* Neither the search nor what is compared puts bytes there that the next read would take. */
static void stays_cold(void)
{
	struct pst_done d;

	begin("mode=p2pdma");
	rig_cold(rig_path("data"));
	T_EQ(verdict().why, PST_WHY_NONE);
	for (unsigned i = 0; i < 3; i++) {
		d = rig_read(file, mem, 0, 0, RIG_MIB(8));
		rig_show(&d);
		T_EQ(d.paths, GDS);
		T_EQ((d.flags & PST_DONE_PROOF) != 0, !i);
		T_CHECK(is_right(0, 0, RIG_MIB(8)));
	}
	end();
}

/* Bytes that the page cache holds come from there, and newer ones are not missed. */
static void page_cache(void)
{
	struct pst_io io;
	struct pst_done d;
	char *buf = malloc(RIG_MIB(2));
	int fd;

	begin_good("mode=p2pdma");
	rig_warm(rig_path("data"));
	d = rig_read(file, mem, 0, 0, RIG_MIB(2));
	T_CHECK(!(d.paths & GDS) && (d.paths & PST_PATH_BIT(PST_PATH_CACHED)));
	T_EQ(d.why, PST_WHY_NONE);

	fd = open(rig_path("data"), O_WRONLY | O_CLOEXEC);
	rig_fill(buf, 50, 0, RIG_MIB(2));
	T_EQ(pwrite(fd, buf, RIG_MIB(2), 0), (ssize_t)RIG_MIB(2));
	(void)close(fd);
	free(buf);
	io = rig_io(PST_OP_READ, file, mem, 0, 0, RIG_MIB(2));
	io.policy = PST_POLICY1(PST_PATH_GDS);
	d = rig_do(rig_q, &io);
	T_EQ(d.paths, GDS);
	T_EQ(rig_mem_differs(mem, 0, RIG_MIB(2), 50, 0), RIG_MIB(2));
	end();
}

/* What cannot be done without the CPU goes the other way, and is no fallback. */
static void checksums(void)
{
	struct pst_done d;

	begin_good("mode=p2pdma");
	d = cold_read(0, 0, RIG_MIB(1), 0, PST_IO_CRC32C);
	T_CHECK(!(d.paths & GDS) && (d.flags & PST_DONE_CRC32C));
	T_EQ(d.why, PST_WHY_NONE);
	d = cold_read(0, 0, RIG_MIB(1), PST_POLICY1(PST_PATH_GDS), PST_IO_CRC32C);
	T_EQ(d.res, -EOPNOTSUPP);
	T_EQ(d.why, PST_WHY_NO_PROVIDER);
	says(&(struct pst_path_info){ .why = d.why, .detail = d.detail }, "PST_IO_CRC32C");
	says(&(struct pst_path_info){ .why = d.why, .detail = PST_IO_STREAM_WAIT }, "stream");
	says(&(struct pst_path_info){ .why = d.why }, "kind of memory");
	end();
}

/* Many requests and pieces at once, on two kinds of registrations. */
static void many(void)
{
	enum { NR = 64 };
	static struct pst_seg segs[NR];
	struct pst_done d[8];
	struct pst_io io;

	begin_good("mode=nvfs");
	for (unsigned i = 0; i < NR; i++)
		segs[i] = (struct pst_seg){ .file_off = i * 200000u,
					    .mem_off = (NR - 1 - i) * 204800u + i * 200000u % 4096,
					    .len = 200000 };
	rig_mem_fill(mem, 0, RIG_MIB(20), 98, 0);
	rig_cold(rig_path("data"));
	io = rig_io(PST_OP_READ, file, mem, 0, 0, 0);
	io.segs = segs;
	io.nr_segs = NR;
	d[0] = rig_do(rig_q, &io);
	rig_show(&d[0]);
	T_EQ(d[0].res, NR * 200000);
	T_CHECK(d[0].paths & GDS);
	T_EQ(d[0].why, PST_WHY_NONE);
	for (unsigned i = 0; i < NR; i++)
		T_CHECK(is_right(segs[i].file_off, segs[i].mem_off, 200000));

	rig_mem_fill(mem, 0, RIG_MIB(16), 98, 0);
	rig_cold(rig_path("data"));
	for (unsigned i = 0; i < 8; i++) {
		io = rig_io(PST_OP_READ, file, mem, i * RIG_MIB(2), i * RIG_MIB(2), RIG_MIB(2));
		T_OK(pst_queue_prep(rig_q, &io));
	}
	T_EQ(pst_queue_submit(rig_q), 8);
	T_EQ(pst_queue_reap(rig_q, d, 8, 8, t_in_ms(RIG_WAIT_MS)), 8);
	for (unsigned i = 0; i < 8; i++)
		T_EQ(d[i].res, (int64_t)RIG_MIB(2));
	T_CHECK(is_right(0, 0, RIG_MIB(16)));
	end();
}

/* ------------------------------------------------------------------ policy */

static void listed(void)
{
	const uint64_t only = PST_POLICY1(PST_PATH_GDS);
	const uint64_t both = PST_POLICY2(PST_PATH_GDS, PST_PATH_STAGED);
	struct pst_done d;

	begin_good("mode=p2pdma");
	d = cold_read(8192, 4096, 4096 * 3, only, PST_IO_STRICT);
	T_EQ(d.res, 4096 * 3);
	T_EQ(d.paths, GDS);
	T_EQ(d.why, PST_WHY_NONE);
	d = cold_read(100, 0, RIG_MIB(1), only, 0);
	T_EQ(d.res, -EOPNOTSUPP);
	T_EQ(d.why, PST_WHY_UNALIGNED);
	T_EQ(d.detail, 4096);
	d = cold_read(100, 100, RIG_MIB(1), both, 0);
	T_EQ(d.res, (int64_t)RIG_MIB(1));
	T_EQ(d.paths & (GDS | STAGED), GDS | STAGED);
	T_EQ(d.why, PST_WHY_UNALIGNED);
	d = cold_read(100, 100, RIG_MIB(1), both, PST_IO_STRICT);
	T_EQ(d.res, -EOPNOTSUPP);
	d = cold_read(0, 0, RIG_MIB(1), PST_POLICY1(PST_PATH_STAGED), 0);
	T_CHECK(!(d.paths & GDS));
	d = cold_read(0, 0, RIG_MIB(1), PST_POLICY2(PST_PATH_STAGED, PST_PATH_GDS), 0);
	T_CHECK(!(d.paths & GDS));
	end();
}

/* Where there is no direct way: our own, without a word, unless cuFile was listed. */
static void refused(int detail)
{
	const uint64_t only = PST_POLICY1(PST_PATH_GDS);
	const uint64_t both = PST_POLICY2(PST_PATH_GDS, PST_PATH_STAGED);
	struct pst_path_info info = verdict();
	struct pst_done d;
	char text[400];

	T_EQ(info.state, PST_STATE_IMPOSSIBLE);
	T_EQ(info.why, PST_WHY_NO_GDS);
	T_EQ(info.detail, detail);
	d = cold_read(0, 0, RIG_MIB(3), 0, PST_IO_STRICT);
	T_EQ(d.res, (int64_t)RIG_MIB(3));
	T_EQ(d.why, PST_WHY_NONE);
	T_CHECK(is_right(0, 0, RIG_MIB(3)) && !(d.paths & GDS));
	d = cold_read(0, 0, RIG_MIB(3), both, 0);
	T_EQ(d.res, (int64_t)RIG_MIB(3));
	T_EQ(d.why, PST_WHY_NO_GDS);
	T_EQ(d.detail, detail);
	T_CHECK(is_right(0, 0, RIG_MIB(3)) && !(d.paths & GDS));
	T_CHECK(strstr(pst_done_text(&d, text, sizeof(text)), "cuFile"));
	T_EQ(rig_stats(rig_q).why[PST_WHY_NO_GDS], 1);
	d = cold_read(0, 0, RIG_MIB(3), both, PST_IO_STRICT);
	T_EQ(d.res, -EOPNOTSUPP);
	T_EQ(d.why, PST_WHY_NO_GDS);
	d = cold_read(0, 0, RIG_MIB(3), only, 0);
	T_EQ(d.res, -EOPNOTSUPP);
	T_EQ(d.detail, detail);
	T_EQ(state().opens, 0);
	end();
}

static void compat(void)
{
	begin("mode=compat");
	refused(EOPNOTSUPP);
}

static void no_udev(void)
{
	begin("mode=nvfs,udev=0");
	refused(EOPNOTSUPP);
}

static void probe_sees_lies(void)
{
	begin("mode=nvfs,lie=wrong");
	refused(EILSEQ);
}

static void switched_off(void)
{
	(void)setenv("PST_GDS", "off", 1);
	begin("mode=nvfs");
	refused(ECANCELED);
}

static void odd_setting(void)
{
	(void)setenv("PST_GDS", "yes", 1);
	begin("mode=nvfs");
	refused(ECANCELED);
}

/* A kernel that has nothing for it: known at once, and nothing is loaded or started. */
static void no_kernel(void)
{
	begin("mode=nvfs");
	if (access("/proc/driver/nvidia-fs", F_OK) == 0 || access("/proc/driver/nvidia", F_OK) == 0)
		T_SKIP("needs a machine without NVIDIA's driver");
	(void)unsetenv("PST_LIBCUFILE");
	T_EQ(check(PST_OP_READ).detail, ENODEV);
	T_EQ(state().calls, 0);
	refused(ENODEV);
}

static void no_library(void)
{
	begin("mode=nvfs");
	(void)setenv("PST_LIBCUFILE", "/nowhere/libcufile.so.0", 1);
	refused(ENODEV);
}

static void old_library(void)
{
	begin("mode=nvfs,version=1060");
	refused(ENOSYS);
}

static void no_probe(void)
{
	begin("mode=nvfs");
	(void)setenv("PST_GDS_PROBE", "/nowhere/probe", 1);
	refused(ENOENT);
}

/* ------------------------------------------------------------------- lies */

/* Told the truth to the probe, and lies to us: found out with the first bytes. */
static void lies(const char *lie, int detail)
{
	struct pst_done d;

	begin_good("mode=p2pdma");
	x.set(lie);
	d = cold_read(0, 0, RIG_MIB(6), 0, 0);
	T_EQ(d.res, (int64_t)RIG_MIB(6));
	T_EQ(d.why, PST_WHY_NO_GDS);
	T_EQ(d.detail, detail);
	T_CHECK(is_right(0, 0, RIG_MIB(6)));
	T_CHECK(!(d.paths & GDS));
	T_EQ(rig_stats(rig_q).fallbacks, 1);
	/* For good, and not worth a word any more. */
	T_EQ(verdict().state, PST_STATE_IMPOSSIBLE);
	T_EQ(verdict().detail, detail);
	x.set("lie=none");
	d = cold_read(0, 0, RIG_MIB(6), 0, 0);
	T_EQ(d.why, PST_WHY_NONE);
	T_CHECK(is_right(0, 0, RIG_MIB(6)) && !(d.paths & GDS));
	end();
}

static void lie_nodata(void)
{
	lies("lie=nodata", EILSEQ);
}

static void lie_wrong(void)
{
	lies("lie=wrong", EILSEQ);
}

/* What differs once may be what somebody else wrote meanwhile: not believed, and no lie. */
static void other_bytes_once(void)
{
	struct pst_done d;

	begin_good("mode=p2pdma");
	x.set("lie=once");
	d = cold_read(0, 0, RIG_MIB(1), 0, 0);
	T_EQ(d.res, (int64_t)RIG_MIB(1));
	T_EQ(d.why, PST_WHY_NOT_PROVEN);
	T_CHECK(is_right(0, 0, RIG_MIB(1)));
	T_CHECK(verdict().state != PST_STATE_IMPOSSIBLE);
	d = cold_read(0, 0, RIG_MIB(1), 0, 0);
	T_EQ(d.why, PST_WHY_NONE);
	T_CHECK(d.paths & GDS);
	T_CHECK(d.flags & PST_DONE_PROOF);
	end();
}

static void lie_short(void)
{
	lies("lie=short", EIO);
}

static void lie_more(void)
{
	lies("lie=more", EIO);
}

/* Its counters give it away, where they are on. */
static void lie_compat(void)
{
	struct pst_done d;

	(void)setenv("PST_GDS", "exclusive", 1);
	begin_good("mode=nvfs,version=1160");
	x.set("mode=compat");
	d = cold_read(0, 0, RIG_MIB(6), 0, 0);
	T_EQ(d.res, (int64_t)RIG_MIB(6));
	T_EQ(d.why, PST_WHY_NO_GDS);
	T_EQ(d.detail, EOPNOTSUPP);
	T_CHECK(is_right(0, 0, RIG_MIB(6)) && !(d.paths & GDS));
	T_EQ(verdict().state, PST_STATE_IMPOSSIBLE);
	end();
}

/* Once it is proven, a short transfer is still seen; only bytes are believed. */
static void short_later(void)
{
	struct pst_done d;

	begin_good("mode=p2pdma");
	T_CHECK(cold_read(0, 0, RIG_MIB(6), 0, 0).paths & GDS);
	x.set("lie=short");
	d = cold_read(0, 0, RIG_MIB(16), 0, 0);
	T_EQ(d.res, (int64_t)RIG_MIB(16));
	T_EQ(d.why, PST_WHY_NO_GDS);
	T_CHECK(is_right(0, 0, RIG_MIB(16)));
	end();
}

/* ---------------------------------------------------------------- failures */

/* Every call fails once, in turn: all bytes arrive, and what failed is said. */
static void fails_in_turn(void)
{
	char text[60];
	struct pst_done d;
	bool met = true;
	unsigned nr = 0;

	begin_good("mode=p2pdma");
	for (unsigned n = 1; met; n++) {
		/* A new file and new memory, so that all is registered anew. */
		file = pst_file_close(file);
		mem = pst_mem_free(mem);
		mem = rig_alloc(rig_dev, RIG_MIB(40));
		file = rig_open(rig_path("data"), RIG_RW);
		(void)snprintf(text, sizeof(text), "fail=*:%u:%d", n, n % 2 ? 12 : 5008);
		x.set(text);
		d = cold_read(0, 0, RIG_MIB(8) + 100, 0, 0);
		met = x.met();
		T_EQ(d.res, (int64_t)RIG_MIB(8) + 100);
		T_CHECK(is_right(0, 0, RIG_MIB(8) + 100));
		nr += d.why == PST_WHY_NO_GDS;
		x.set("fail=*:1000000:5");
		d = pattern_write(SEED, 0, RIG_MIB(3));
		T_CHECK(d.res == (int64_t)RIG_MIB(3));
	}
	T_CHECK(nr >= 2);
	T_EQ(verdict().state, PST_STATE_PROVEN);
	end();
}

/* What is full or busy says nothing of the next time; what fails again and again does. */
static void fails_again(void)
{
	struct pst_done d;

	begin_good("mode=p2pdma");
	x.set("fail=cuFileRead:0:12"); /* ENOMEM */
	for (unsigned i = 0; i < 5; i++) {
		d = cold_read(0, 0, RIG_MIB(2), 0, 0);
		T_EQ(d.res, (int64_t)RIG_MIB(2));
		T_EQ(d.why, PST_WHY_NO_GDS);
		T_EQ(d.detail, ENOMEM);
		T_CHECK(is_right(0, 0, RIG_MIB(2)));
	}
	T_EQ(verdict().state, PST_STATE_POSSIBLE);
	x.set("fail=cuFileRead:0:5"); /* EIO */
	for (unsigned i = 0; i < 3; i++) {
		d = cold_read(0, 0, RIG_MIB(1), 0, 0);
		T_EQ(d.res, (int64_t)RIG_MIB(1));
		T_EQ(d.detail, EIO);
		T_CHECK(is_right(0, 0, RIG_MIB(1)));
	}
	T_EQ(verdict().state, PST_STATE_IMPOSSIBLE);
	end();
}

/* A file that it does not take, among others that it does. */
static void one_file(void)
{
	struct pst_file *other;
	struct pst_done d;

	begin_good("mode=p2pdma");
	x.set("fail=cuFileHandleRegister:1:5008");
	for (unsigned i = 0; i < 2; i++) {
		d = cold_read(0, 0, RIG_MIB(2), 0, 0);
		T_EQ(d.res, (int64_t)RIG_MIB(2));
		T_EQ(d.why, PST_WHY_NO_GDS);
		T_EQ(d.detail, EOPNOTSUPP);
		T_CHECK(is_right(0, 0, RIG_MIB(2)));
	}
	T_EQ(verdict().state, PST_STATE_IMPOSSIBLE);
	rig_make(rig_path("other"), 7, RIG_MIB(2));
	other = file;
	file = rig_open(rig_path("other"), RIG_RW);
	rig_cold(rig_path("other"));
	d = rig_read(file, mem, 0, 0, RIG_MIB(2));
	T_CHECK(d.paths & GDS);
	T_EQ(rig_mem_differs(mem, 0, RIG_MIB(2), 7, 0), RIG_MIB(2));
	pst_file_close(other);
	end();
}

/* Nor memory; and a read that it does not take is not the memory's fault. */
static void one_memory(void)
{
	struct pst_mem *other;
	struct pst_done d;

	begin_good("mode=p2pdma");
	x.set("fail=cuFileBufRegister:1:5013"); /* CUDA_MEMORY_TYPE_INVALID */
	for (unsigned i = 0; i < 4; i++) {
		d = cold_read(0, 0, RIG_MIB(2), 0, 0);
		T_EQ(d.res, (int64_t)RIG_MIB(2));
		T_EQ(d.why, PST_WHY_NO_GDS);
		T_EQ(d.detail, EOPNOTSUPP);
		T_CHECK(is_right(0, 0, RIG_MIB(2)));
	}
	T_EQ(verdict().state, PST_STATE_IMPOSSIBLE);
	other = mem;
	mem = rig_alloc(rig_dev, RIG_MIB(40));
	x.set("fail=cuFileRead:1:5027"); /* HANDLE_NOT_REGISTERED */
	d = cold_read(0, 0, RIG_MIB(2), 0, 0);
	T_EQ(d.res, (int64_t)RIG_MIB(2));
	T_EQ(d.detail, EOPNOTSUPP);
	T_CHECK(is_right(0, 0, RIG_MIB(2)));
	d = cold_read(0, 0, RIG_MIB(2), 0, 0);
	T_CHECK(d.paths & GDS);
	T_EQ(d.why, PST_WHY_NONE);
	pst_mem_free(other);
	end();
}

/*
 * That a write back failed is told once to each open file description.  Whoever wrote the file
 * must hear of it, so what a read does for itself goes by another.
 */
static _Atomic int wrapped = -1, sync_errno;
static atomic_uint nr_synced, nr_shared;

/* Seen by the library, which else would have libc's. */
__attribute__((visibility("default"))) int sync_file_range(int fd, off_t off, off_t len,
							   unsigned flags)
{
	(void)off, (void)len, (void)flags;
	nr_synced++;
	nr_shared += lseek(fd, 0, SEEK_CUR) == lseek(wrapped, 0, SEEK_CUR);
	errno = sync_errno;
	return sync_errno ? -1 : 0;
}

static void write_back_fails(void)
{
	struct pst_done d;

	begin_good("mode=p2pdma");
	wrapped = open(rig_path("data"), O_RDWR | O_CLOEXEC);
	T_CHECK(wrapped >= 0);
	T_EQ(lseek(wrapped, 12345, SEEK_SET), 12345);
	pst_file_close(file);
	file = NULL;
	T_OK(pst_file_wrap(wrapped, 0, &file));
	T_EQ(verdict().state, PST_STATE_POSSIBLE);
	d = cold_read(0, 0, RIG_MIB(2), 0, 0);
	T_CHECK((d.paths & GDS) && is_right(0, 0, RIG_MIB(2)));
	T_CHECK(nr_synced && !nr_shared);
	/* That file goes another way from now on, and others as before. */
	sync_errno = EIO;
	for (unsigned i = 0; i < 4; i++) {
		d = cold_read(0, 0, RIG_MIB(2), 0, 0);
		T_EQ(d.res, (int64_t)RIG_MIB(2));
		T_EQ(d.why, PST_WHY_NO_GDS);
		T_EQ(d.detail, EIO);
		T_CHECK(is_right(0, 0, RIG_MIB(2)));
	}
	T_EQ(verdict().state, PST_STATE_IMPOSSIBLE);
	sync_errno = 0;
	pst_file_close(file);
	file = rig_open(rig_path("data"), RIG_RW);
	T_EQ(verdict().state, PST_STATE_PROVEN);
	T_CHECK(cold_read(0, 0, RIG_MIB(2), 0, 0).paths & GDS);
	(void)close(wrapped);
	end();
}

static atomic_bool grown;
static atomic_uint_fast64_t size_now;

static void *grow(void *arg)
{
	int fd = open(rig_path("data"), O_WRONLY | O_CLOEXEC);
	uint8_t bytes[777];

	(void)arg;
	while (fd >= 0 && !atomic_load(&grown) && atomic_load(&size_now) < RIG_MIB(39)) {
		t_fill(bytes, SEED, atomic_load(&size_now), sizeof(bytes));
		if (pwrite(fd, bytes, sizeof(bytes), (off_t)atomic_load(&size_now)) < 0)
			break;
		atomic_fetch_add(&size_now, sizeof(bytes));
	}
	(void)close(fd);
	return NULL;
}

/* A read that was short because the file was is no failure of cuFile's. */
static void grows_meanwhile(void)
{
	struct pst_done d;
	pthread_t writer;
	uint64_t off;

	begin_good("mode=p2pdma");
	atomic_store(&size_now, LEN);
	T_CHECK(!pthread_create(&writer, NULL, grow, NULL));
	for (unsigned i = 0; i < 60; i++) {
		off = (atomic_load(&size_now) & ~UINT64_C(4095)) - RIG_MIB(1);
		d = rig_read(file, mem, off, 0, RIG_MIB(2));
		T_CHECK(d.res >= (int64_t)RIG_MIB(1));
		T_CHECK(d.why != PST_WHY_NO_GDS || d.detail == EAGAIN);
		T_CHECK(d.res > 0 && is_right(off, 0, (uint64_t)d.res));
	}
	atomic_store(&grown, true);
	(void)pthread_join(writer, NULL);
	T_EQ(verdict().why, PST_WHY_NONE);
	end();
}

static const struct again cases[] = {
	{ "p2pdma", p2pdma, AGAIN_ONCE, "" },
	{ "nvfs", nvfs, AGAIN_ONCE, "" },
	{ "c2c", c2c, AGAIN_ONCE, "" },
	{ "exclusive", exclusive, AGAIN_ONCE, "" },
	{ "odd_pieces", odd_pieces, AGAIN_ONCE, "" },
	{ "odd_and_warm", odd_and_warm, AGAIN_ONCE, "" },
	{ "short_first", short_first, AGAIN_ONCE, "" },
	{ "ends_of_files", ends_of_files, AGAIN_ONCE, "" },
	{ "stays_cold", stays_cold, AGAIN_ONCE, "" },
	{ "page_cache", page_cache, AGAIN_ONCE, "" },
	{ "checksums", checksums, AGAIN_ONCE, "" },
	{ "many", many, AGAIN_ONCE, "" },
	{ "listed", listed, AGAIN_ONCE, "" },
	{ "compat", compat, AGAIN_ONCE, "" },
	{ "no_udev", no_udev, AGAIN_ONCE, "" },
	{ "probe_sees_lies", probe_sees_lies, AGAIN_ONCE, "" },
	{ "switched_off", switched_off, AGAIN_ONCE, "" },
	{ "odd_setting", odd_setting, AGAIN_ONCE, "" },
	{ "no_kernel", no_kernel, AGAIN_ONCE, "" },
	{ "no_library", no_library, AGAIN_ONCE, "" },
	{ "old_library", old_library, AGAIN_ONCE, "" },
	{ "no_probe", no_probe, AGAIN_ONCE, "" },
	{ "lie_nodata", lie_nodata, AGAIN_ONCE, "" },
	{ "lie_wrong", lie_wrong, AGAIN_ONCE, "" },
	{ "other_bytes_once", other_bytes_once, AGAIN_ONCE, "" },
	{ "lie_short", lie_short, AGAIN_ONCE, "" },
	{ "lie_more", lie_more, AGAIN_ONCE, "" },
	{ "lie_compat", lie_compat, AGAIN_ONCE, "" },
	{ "short_later", short_later, AGAIN_ONCE, "" },
	{ "fails_in_turn", fails_in_turn, AGAIN_ONCE, "" },
	{ "fails_again", fails_again, AGAIN_ONCE, "" },
	{ "one_file", one_file, AGAIN_ONCE, "" },
	{ "one_memory", one_memory, AGAIN_ONCE, "" },
	{ "write_back_fails", write_back_fails, AGAIN_ONCE, "" },
	{ "grows_meanwhile", grows_meanwhile, AGAIN_ONCE, "" },
};

int main(int argc, char **argv)
{
	rig_init();
	if (argc > 1)
		return again_child(cases, RIG_NR(cases), argv[1]);
	again_all(cases, RIG_NR(cases));
	return rig_done();
}
