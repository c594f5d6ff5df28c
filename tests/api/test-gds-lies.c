/* SPDX-License-Identifier: MIT */
/* cuFile lies or fails: wrong bytes must never arrive, and requests take the library's own path. */
#include <stdatomic.h>

#include "gds.h"

/* ------------------------------------------------------------------- lies */

#define PATIENCE_NS UINT64_C(1000000000) /* ns; after a longer call the next pieces are staged */

/* cuFile works in the probe and moves wrong bytes in the library: the first transfer reveals
 * that. */
static void lies(const char *lie, int detail)
{
	struct pst_done d;
	uint64_t start;

	open_direct("mode=p2pdma");
	x.set(lie);
	start = t_now();
	d = cold_read(0, 0, RIG_MIB(6), 0, 0);
	T_EQ(d.res, (int64_t)RIG_MIB(6));
	T_EQ(d.why, PST_WHY_NO_GDS);
	/* On a busy machine the first transfer may take so long that it counts as hanging. */
	if (d.detail != ETIMEDOUT || t_now() - start < PATIENCE_NS)
		T_EQ(d.detail, detail);
	T_CHECK(is_right(0, 0, RIG_MIB(6)));
	T_CHECK(!(d.paths & GDS));
	T_EQ(rig_stats(rig_q).fallbacks, 1);
	/* The path stays off, and later requests give no reason. */
	T_EQ(verdict().state, PST_STATE_IMPOSSIBLE);
	T_EQ(verdict().detail, detail);
	x.set("lie=none");
	d = cold_read(0, 0, RIG_MIB(6), 0, 0);
	T_EQ(d.why, PST_WHY_NONE);
	T_CHECK(is_right(0, 0, RIG_MIB(6)) && !(d.paths & GDS));
	close_all();
}

static void lie_nodata(void)
{
	lies("lie=nodata", EILSEQ);
}

static void lie_wrong(void)
{
	lies("lie=wrong", EILSEQ);
}

/*
 * cuFile moves nothing where the destination holds the right bytes already: the bytes are accepted,
 * but prove nothing.  A transfer that would change bytes reveals the lie.
 */
static void nodata_over_the_same_bytes(uint32_t op)
{
	char *buf = malloc(RIG_MIB(2));
	struct pst_io io;
	struct pst_done d;

	T_CHECK(buf);
	open_direct("mode=p2pdma");
	x.set("lie=nodata");
	for (unsigned i = 0; i < 2; i++) {
		rig_mem_fill(mem, 0, RIG_MIB(2), i ? 99 : SEED, 0);
		rig_cold(rig_path("data"));
		io = rig_io(op, file, mem, 0, 0, RIG_MIB(2));
		d = rig_do(rig_q, &io);
		rig_show(&d);
		T_EQ(d.res, (int64_t)RIG_MIB(2));
		T_EQ((d.paths & GDS) != 0, !i);
		/* The second request proves O_DIRECT, which serves it instead. */
		T_CHECK(i || !(d.flags & PST_DONE_PROOF));
		T_EQ(verdict().state, i ? PST_STATE_IMPOSSIBLE : PST_STATE_POSSIBLE);
	}
	T_EQ(d.why, PST_WHY_NO_GDS);
	T_EQ(rig_slurp(rig_path("data"), 0, buf, RIG_MIB(2)), RIG_MIB(2));
	T_EQ(t_differs(buf, op == PST_OP_WRITE ? 99 : SEED, 0, RIG_MIB(2)), RIG_MIB(2));
	T_EQ(rig_mem_differs(mem, 0, RIG_MIB(2), op == PST_OP_WRITE ? 99 : SEED, 0), RIG_MIB(2));
	free(buf);
	close_all();
}

static void read_of_the_same_bytes(void)
{
	nodata_over_the_same_bytes(PST_OP_READ);
}

static void write_of_the_same_bytes(void)
{
	nodata_over_the_same_bytes(PST_OP_WRITE);
}

/*
 * A single difference may come from another program's write: the bytes are not used, but cuFile
 * does not count as lying.
 */
static void other_bytes_once(void)
{
	struct pst_done d;

	open_direct("mode=p2pdma");
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
	close_all();
}

static void lie_short(void)
{
	lies("lie=short", EIO);
}

static void lie_more(void)
{
	lies("lie=more", EIO);
}

/* cuFile's counters, if enabled, reveal that it copies through host memory. */
static void lie_compat(void)
{
	struct pst_done d;

	(void)setenv("PST_GDS", "exclusive", 1);
	open_direct("mode=nvfs,version=1160");
	x.set("mode=compat");
	d = cold_read(0, 0, RIG_MIB(6), 0, 0);
	T_EQ(d.res, (int64_t)RIG_MIB(6));
	T_EQ(d.why, PST_WHY_NO_GDS);
	T_EQ(d.detail, EOPNOTSUPP);
	T_CHECK(is_right(0, 0, RIG_MIB(6)) && !(d.paths & GDS));
	T_EQ(verdict().state, PST_STATE_IMPOSSIBLE);
	close_all();
}

/* A short transfer is noticed even after the proof. */
static void short_later(void)
{
	struct pst_done d;

	open_direct("mode=p2pdma");
	T_CHECK(cold_read(0, 0, RIG_MIB(6), 0, 0).paths & GDS);
	x.set("lie=short");
	d = cold_read(0, 0, RIG_MIB(16), 0, 0);
	T_EQ(d.res, (int64_t)RIG_MIB(16));
	T_EQ(d.why, PST_WHY_NO_GDS);
	T_CHECK(is_right(0, 0, RIG_MIB(16)));
	close_all();
}

/* ---------------------------------------------------------------- failures */

/* Fail each call of cuFile once, in turn: all bytes must arrive, and some reasons name cuFile. */
static void fails_in_turn(void)
{
	char text[60];
	struct pst_done d;
	bool met = true;
	unsigned nr = 0;

	open_direct("mode=p2pdma");
	for (unsigned n = 1; met; n++) {
		/* Open a new file and allocate new memory, so that both are registered again. */
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
	close_all();
}

/* ENOMEM may pass, so cuFile stays possible.  EIO three times turns it off. */
static void fails_again(void)
{
	struct pst_done d;

	open_direct("mode=p2pdma");
	x.set("fail=cuFileRead:0:12"); /* 12 is ENOMEM */
	for (unsigned i = 0; i < 5; i++) {
		d = cold_read(0, 0, RIG_MIB(2), 0, 0);
		T_EQ(d.res, (int64_t)RIG_MIB(2));
		T_EQ(d.why, PST_WHY_NO_GDS);
		T_EQ(d.detail, ENOMEM);
		T_CHECK(is_right(0, 0, RIG_MIB(2)));
	}
	T_EQ(verdict().state, PST_STATE_POSSIBLE);
	x.set("fail=cuFileRead:0:5"); /* 5 is EIO */
	for (unsigned i = 0; i < 3; i++) {
		d = cold_read(0, 0, RIG_MIB(1), 0, 0);
		T_EQ(d.res, (int64_t)RIG_MIB(1));
		T_EQ(d.detail, EIO);
		T_CHECK(is_right(0, 0, RIG_MIB(1)));
	}
	T_EQ(verdict().state, PST_STATE_IMPOSSIBLE);
	close_all();
}

/* cuFile refuses one file: other files still use it. */
static void one_file(void)
{
	struct pst_file *other;
	struct pst_done d;

	open_direct("mode=p2pdma");
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
	close_all();
}

/* cuFile refuses one allocation: other memory still uses it.  A single refused read does not
 * count against the memory. */
static void one_memory(void)
{
	struct pst_mem *other;
	struct pst_done d;

	open_direct("mode=p2pdma");
	x.set("fail=cuFileBufRegister:1:5013"); /* 5013 is CUDA_MEMORY_TYPE_INVALID */
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
	x.set("fail=cuFileRead:1:5027"); /* 5027 is HANDLE_NOT_REGISTERED */
	d = cold_read(0, 0, RIG_MIB(2), 0, 0);
	T_EQ(d.res, (int64_t)RIG_MIB(2));
	T_EQ(d.detail, EOPNOTSUPP);
	T_CHECK(is_right(0, 0, RIG_MIB(2)));
	d = cold_read(0, 0, RIG_MIB(2), 0, 0);
	T_CHECK(d.paths & GDS);
	T_EQ(d.why, PST_WHY_NONE);
	pst_mem_free(other);
	close_all();
}

/*
 * The kernel reports a failed write-back once for each open file description.  The program that
 * wrote the file must get that report, so a read writes back by a description of its own.
 */
static _Atomic int wrapped = -1, sync_errno;
static atomic_uint nr_synced, nr_shared;

/* Replaces libc's function for the library. */
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

	open_direct("mode=p2pdma");
	wrapped = open(rig_path("data"), O_RDWR | O_CLOEXEC);
	T_CHECK(wrapped >= 0);
	T_EQ(lseek(wrapped, 12345, SEEK_SET), 12345);
	pst_file_close(file);
	file = NULL;
	T_OK(pst_file_wrap(wrapped, 0, NULL, &file));
	T_EQ(verdict().state, PST_STATE_POSSIBLE);
	d = cold_read(0, 0, RIG_MIB(2), 0, 0);
	T_CHECK((d.paths & GDS) && is_right(0, 0, RIG_MIB(2)));
	T_CHECK(nr_synced && !nr_shared);
	/* A failed write-back turns cuFile off for this open file; a new open of it uses cuFile. */
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
	close_all();
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

/* A read is short because the file was shorter at that moment: cuFile must not be blamed. */
static void grows_meanwhile(void)
{
	struct pst_done d;
	pthread_t writer;
	uint64_t off;

	open_direct("mode=p2pdma");
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
	close_all();
}

static const struct again cases[] = {
	{ "lie_nodata", lie_nodata, AGAIN_ONCE, "" },
	{ "lie_wrong", lie_wrong, AGAIN_ONCE, "" },
	{ "read_of_the_same_bytes", read_of_the_same_bytes, AGAIN_ONCE, "" },
	{ "write_of_the_same_bytes", write_of_the_same_bytes, AGAIN_ONCE, "" },
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
