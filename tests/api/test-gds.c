/* SPDX-License-Identifier: MIT */
/*
 * Requests use cuFile where it is direct, and say so.  Where it is not direct, lies or fails,
 * the same bytes come by the library's own path, with the reason.
 */
#include "gds.h"
#include "stub/cuda_stub.h"

/* ------------------------------------------------------------------ direct */

/* Until the search for a direct path has ended, reads take the library's own path; then they use
 * cuFile. */
static void takes(const char *mode)
{
	char text[40];
	struct pst_done d;
	struct pst_stats st;

	(void)snprintf(text, sizeof(text), "mode=%s", mode);
	open_with(text);
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
	/* At least 20 MiB: all but the unaligned edge and the rest of the last registration or
	 * chunk. */
	T_CHECK(st.bytes[PST_PATH_GDS] >= RIG_MIB(20));
	T_EQ(st.bytes[PST_PATH_GDS] % 4096, 0);
	/* Bytes may count as GATHER: one kernel copies several small slots. */
	T_EQ(st.bytes[PST_PATH_GDS] + st.bytes[PST_PATH_STAGED] + st.bytes[PST_PATH_GATHER],
	     2 * LEN);

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
	close_all();
}

static void nvfs(void)
{
	takes("nvfs");
	close_all();
}

static void c2c(void)
{
	takes("c2c");
	close_all();
}

/* PST_GDS=exclusive: the library tells the driver to refuse indirect transfers and to count
 * them. */
static void exclusive(void)
{
	(void)setenv("PST_GDS", "exclusive", 1);
	takes("nvfs");
	T_CHECK(state().strict);
	close_all();
}

/* Edges, short pieces and unaligned addresses of a request are staged. */
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

	open_direct("mode=p2pdma");
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
	close_all();
}

/* Unaligned reads from the page cache, or staged on request, give no reason.  Unaligned writes
 * do. */
static void odd_and_warm(void)
{
	struct pst_done d;

	open_direct("mode=p2pdma");
	rig_warm(rig_path("data"));
	d = rig_read(file, mem, 0, 512, RIG_MIB(1));
	T_EQ(d.why, PST_WHY_NONE);
	d = rig_write(file, mem, 0, 512, RIG_MIB(1));
	T_EQ(d.why, PST_WHY_UNALIGNED);
	d = cold_read(0, 512, RIG_MIB(1), PST_POLICY1(PST_PATH_STAGED), PST_IO_STRICT);
	T_EQ(d.res, (int64_t)RIG_MIB(1));
	close_all();
}

/* A long piece after one short piece uses cuFile; after 79 short pieces it does not. */
static void short_first(void)
{
	static struct pst_seg segs[80];
	struct pst_io io;
	struct pst_done d;

	open_direct("mode=p2pdma");
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
	close_all();
}

/* Read across the end of the file, then past it; let the file grow by writes. */
static void ends_of_files(void)
{
	struct pst_done d;

	open_direct("mode=p2pdma");
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
	/* An unaligned end goes through the page cache, so no part of the write uses cuFile. */
	d = pattern_write(9, RIG_MIB(19), RIG_MIB(10) + 300);
	T_CHECK(!(d.paths & GDS));
	T_EQ(d.why, PST_WHY_UNALIGNED);
	T_EQ(rig_file_info(file).size, RIG_MIB(29) + 300);
	close_all();
}

/* Neither the trial nor a comparison may leave bytes in the page cache for the next read. */
static void stays_cold(void)
{
	struct pst_done d;

	open_with("mode=p2pdma");
	rig_cold(rig_path("data"));
	T_EQ(verdict().why, PST_WHY_NONE);
	for (unsigned i = 0; i < 3; i++) {
		d = rig_read(file, mem, 0, 0, RIG_MIB(8));
		rig_show(&d);
		T_EQ(d.paths, GDS);
		T_EQ((d.flags & PST_DONE_PROOF) != 0, !i);
		T_CHECK(is_right(0, 0, RIG_MIB(8)));
	}
	close_all();
}

/* Cached bytes are read from the page cache, and newer ones are not missed. */
static void page_cache(void)
{
	struct pst_io io;
	struct pst_done d;
	char *buf = malloc(RIG_MIB(2));
	int fd;

	open_direct("mode=p2pdma");
	rig_warm(rig_path("data"));
	d = rig_read(file, mem, 0, 0, RIG_MIB(2));
	T_CHECK(!(d.paths & GDS) && (d.paths & PST_PATH_BIT(PST_PATH_CACHED)));
	T_EQ(d.why, PST_WHY_NONE);

	fd = open(rig_path("data"), O_WRONLY | O_CLOEXEC);
	t_fill(buf, 50, 0, RIG_MIB(2));
	T_EQ(pwrite(fd, buf, RIG_MIB(2), 0), (ssize_t)RIG_MIB(2));
	(void)close(fd);
	free(buf);
	io = rig_io(PST_OP_READ, file, mem, 0, 0, RIG_MIB(2));
	io.policy = PST_POLICY1(PST_PATH_GDS);
	d = rig_do(rig_q, &io);
	T_EQ(d.paths, GDS);
	T_EQ(rig_mem_differs(mem, 0, RIG_MIB(2), 50, 0), RIG_MIB(2));
	close_all();
}

/* The device computes the checksum of bytes that the CPU never sees. */
static void checksums(void)
{
	struct pst_path_info none = { .why = PST_WHY_NO_PROVIDER };
	struct pst_done d;
	uint32_t crc;

	open_direct("mode=p2pdma");
	d = cold_read(0, 0, RIG_MIB(1), 0, PST_IO_CRC32C);
	T_CHECK((d.paths & GDS) && (d.flags & PST_DONE_CRC32C));
	crc = d.crc32c;
	d = cold_read(0, 0, RIG_MIB(1), PST_POLICY1(PST_PATH_STAGED), PST_IO_CRC32C);
	T_CHECK(!(d.paths & GDS) && (d.flags & PST_DONE_CRC32C));
	T_EQ(d.crc32c, crc);
	none.detail = PST_IO_CRC32C;
	says(&none, "PST_IO_CRC32C");
	none.detail = PST_IO_STREAM_WAIT;
	says(&none, "stream");
	none.detail = 0;
	says(&none, "kind of memory");
	close_all();
}

static void (*lose)(unsigned to, unsigned from);
static void (*hold_sums)(bool hold);
static void (*cuda_state)(struct stub_cuda_state *ret);

static void find_cuda_stub(void)
{
	void *lib = dlopen(getenv("PST_LIBCUDA"), RTLD_NOW);

	T_CHECK(lib);
	symbol(lib, &lose, "stub_cuda_lose");
	symbol(lib, &hold_sums, "stub_cuda_hold_sums");
	symbol(lib, &cuda_state, "stub_cuda_state");
	T_CHECK(lose && hold_sums && cuda_state);
}

/* Make a write whose long piece cuFile moves, between two pieces that are too short for cuFile and
 * are staged. */
static struct pst_io write_with_edges(void)
{
	static const struct pst_seg segs[] = {
		{ 0, 0, 4096, 0, 0, 0 },
		{ RIG_MIB(1), RIG_MIB(1), RIG_MIB(2), 0, 0, 0 },
		{ RIG_MIB(4), RIG_MIB(4), 8192, 0, 0, 0 },
	};
	struct pst_io io = rig_io(PST_OP_WRITE, file, mem, 0, 0, 0);

	io.segs = segs;
	io.nr_segs = RIG_NR(segs);
	io.flags = PST_IO_CRC32C | PST_IO_CRC32C_MEM;
	return io;
}

/* A copy to staging memory that is wrong is found, although cuFile moves most of the write. */
static void staged_pieces_are_compared(void)
{
	char *buf = malloc(RIG_MIB(5));
	struct pst_io io;
	struct pst_done d;
	uint32_t crc;

	open_direct("mode=p2pdma");
	find_cuda_stub();
	T_CHECK(buf);
	(void)pattern_write(5, 0, RIG_MIB(5));
	io = write_with_edges();
	rig_mem_fill(mem, 0, RIG_MIB(5), 6, 0);
	t_fill(buf, 6, 0, RIG_MIB(5));
	crc = rig_crc32c(0, buf, 4096);
	crc = rig_crc32c(crc, buf + RIG_MIB(1), RIG_MIB(2));
	crc = rig_crc32c(crc, buf + RIG_MIB(4), 8192);
	d = rig_do(rig_q, &io);
	rig_show(&d);
	T_EQ(d.res, (int64_t)RIG_MIB(2) + 4096 + 8192);
	T_CHECK((d.paths & GDS) && (d.paths & ~GDS));
	T_CHECK(d.flags & PST_DONE_CRC32C);
	T_EQ(d.crc32c, crc);
	for (unsigned i = 0; i < 3; i++) {
		/* The middle piece is alone, and no byte of it is staged. */
		io.nr_segs = i == 2 ? 1 : 3;
		io.segs += i == 2;
		rig_mem_fill(mem, 0, RIG_MIB(5), 7 + i, 0);
		lose(0, 300);
		d = rig_do(rig_q, &io);
		lose(0, 0);
		rig_show(&d);
		T_EQ(d.res, i == 2 ? (int64_t)RIG_MIB(2) : -EBADMSG);
	}
	free(buf);
	close_all();
}

/* A write that is cancelled before the comparison is never compared. */
static void cancelled_before_the_comparison(void)
{
	uint64_t until = t_hang();
	struct stub_cuda_state st;
	struct pst_io io;

	open_direct("mode=p2pdma");
	find_cuda_stub();
	(void)pattern_write(5, 0, RIG_MIB(5));
	io = write_with_edges();
	io.user_data = 3;
	hold_sums(true);
	T_OK(pst_queue_prep(rig_q, &io));
	T_EQ(pst_queue_submit(rig_q), 1);
	do {
		T_CHECK(t_now() < until);
		(void)usleep(100);
		cuda_state(&st);
	} while (!st.held_sums);
	T_CHECK(pst_queue_cancel(rig_q, 3) > 0);
	hold_sums(false);
	T_EQ(rig_reap1(rig_q).res, -ECANCELED);
	T_OK(pst_mem_drain(mem, until));
	close_all();
}

/* Many requests and pieces at once, on two kinds of registrations. */
static void many(void)
{
	enum { NR = 64 };
	static struct pst_seg segs[NR];
	struct pst_done d[8];
	struct pst_io io;

	open_direct("mode=nvfs");
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
	close_all();
}

/* ------------------------------------------------------------------ policy */

static void listed(void)
{
	const uint64_t only = PST_POLICY1(PST_PATH_GDS);
	const uint64_t both = PST_POLICY2(PST_PATH_GDS, PST_PATH_STAGED);
	struct pst_done d;

	open_direct("mode=p2pdma");
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
	close_all();
}

/* Without a direct path, requests take the library's own path and give no reason, unless the policy
 * lists cuFile. */
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
	close_all();
}

static void compat(void)
{
	open_with("mode=compat");
	refused(EOPNOTSUPP);
}

static void no_udev(void)
{
	open_with("mode=nvfs,udev=0");
	refused(EOPNOTSUPP);
}

static void probe_sees_lies(void)
{
	open_with("mode=nvfs,lie=wrong");
	refused(EILSEQ);
}

static void switched_off(void)
{
	(void)setenv("PST_GDS", "off", 1);
	open_with("mode=nvfs");
	refused(ECANCELED);
}

static void odd_setting(void)
{
	(void)setenv("PST_GDS", "yes", 1);
	open_with("mode=nvfs");
	refused(ECANCELED);
}

/* Without NVIDIA's kernel driver the answer comes at once, and cuFile is neither loaded nor
 * started. */
static void no_kernel(void)
{
	open_with("mode=nvfs");
	if (access("/proc/driver/nvidia-fs", F_OK) == 0 || access("/proc/driver/nvidia", F_OK) == 0)
		T_SKIP("needs a machine without NVIDIA's driver");
	(void)unsetenv("PST_LIBCUFILE");
	T_EQ(check(PST_OP_READ).detail, ENODEV);
	T_EQ(state().calls, 0);
	refused(ENODEV);
}

static void no_library(void)
{
	open_with("mode=nvfs");
	(void)setenv("PST_LIBCUFILE", "/nowhere/libcufile.so.0", 1);
	refused(ENODEV);
}

static void old_library(void)
{
	open_with("mode=nvfs,version=1060");
	refused(ENOSYS);
}

static void no_probe(void)
{
	open_with("mode=nvfs");
	(void)setenv("PST_GDS_PROBE", "/nowhere/probe", 1);
	refused(ENOENT);
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
	{ "staged_pieces_are_compared", staged_pieces_are_compared, AGAIN_ONCE, "" },
	{ "cancelled_before_the_comparison", cancelled_before_the_comparison, AGAIN_ONCE, "" },
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
};

int main(int argc, char **argv)
{
	rig_init();
	if (argc > 1)
		return again_child(cases, RIG_NR(cases), argv[1]);
	again_all(cases, RIG_NR(cases));
	return rig_done();
}
