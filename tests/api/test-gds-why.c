/* SPDX-License-Identifier: MIT */
/*
 * Reasons not to use cuFile, for a file, in a container, with other libraries in the process: each
 * reason must be true, and must disappear with its cause.
 */
#include <linux/capability.h>
#include <sys/syscall.h>

#include "gds.h"

#include "forbid.h"

/* The kernel forbids sync_file_range() with EPERM: the read succeeds by another path, and EPERM is
 * its detail. */
static void forbidden(void)
{
	struct pst_done d;

	forbid(__NR_sync_file_range);
	open_direct("mode=p2pdma");
	d = cold_read(0, 0, LEN, 0, 0);
	T_EQ(d.res, (int64_t)LEN);
	T_EQ(d.why, PST_WHY_NO_GDS);
	T_EQ(d.detail, EPERM);
	T_CHECK(is_right(0, 0, LEN) && !(d.paths & GDS));
	T_EQ(verdict().state, PST_STATE_IMPOSSIBLE);
	T_EQ(verdict().detail, EPERM);
	close_all();
}

/* ------------------------------------------------------- what can be asked */

static void reopen(const char *name, uint32_t flags)
{
	pst_file_close(file);
	file = rig_open(rig_path(name), flags);
}

/* An empty file cannot be tried with cuFile; it is tried once it has bytes. */
static void empty_file(void)
{
	struct pst_path_info info;
	struct pst_done d;

	open_with("mode=p2pdma");
	reopen("new", RIG_NEW);
	for (unsigned i = 0; i < 3; i++) {
		info = check(PST_OP_WRITE);
		T_EQ(info.state, PST_STATE_IMPOSSIBLE);
		T_EQ(info.why, PST_WHY_NO_GDS);
		T_EQ(info.detail, ENODATA);
		says(&info, "no bytes yet");
	}
	rig_mem_fill(mem, 0, RIG_MIB(1), 3, 0);
	d = rig_write(file, mem, 0, 0, RIG_MIB(1));
	T_EQ(d.res, (int64_t)RIG_MIB(1));
	T_EQ(d.why, PST_WHY_NONE);
	T_EQ(verdict().why, PST_WHY_NONE);
	/* The result holds for another file that is still empty. */
	reopen("other", RIG_NEW);
	T_EQ(check(PST_OP_WRITE).state, PST_STATE_POSSIBLE);
	T_CHECK(rig_write(file, mem, 0, 0, RIG_MIB(1)).paths & GDS);
	close_all();
}

/* A write-only file whose writes by O_DIRECT are proven: writes by cuFile become proven, too. */
static void written_only(void)
{
	struct pst_done d;

	open_with("mode=p2pdma");
	d = rig_write(file, mem, 0, 0, RIG_MIB(1));
	T_CHECK(d.paths & PST_PATH_BIT(PST_PATH_DIRECT));
	reopen("data", PST_FILE_WRITE);
	T_EQ(verdict().why, PST_WHY_NONE);
	T_EQ(check(PST_OP_WRITE).state, PST_STATE_POSSIBLE);
	d = pattern_write(5, 0, RIG_MIB(2));
	T_CHECK((d.paths & GDS) && (d.flags & PST_DONE_PROOF));
	T_EQ(check(PST_OP_WRITE).state, PST_STATE_PROVEN);
	close_all();
}

/*
 * A file that the user may not read: the reason says so, until writes of another file are
 * proven.
 */
static void unreadable(void)
{
	struct pst_path_info info;

	struct __user_cap_header_struct cap = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct none[2] = { { 0, 0, 0 }, { 0, 0, 0 } };

	open_with("mode=p2pdma");
	rig_make(rig_path("sink"), 1, RIG_MIB(2));
	T_EQ(chmod(rig_path("sink"), 0200), 0);
	T_EQ(syscall(SYS_capset, &cap, none), 0); /* otherwise root could read it */
	for (unsigned i = 0; i < 2; i++) {
		reopen("sink", PST_FILE_WRITE);
		info = check(PST_OP_WRITE);
		T_EQ(info.why, PST_WHY_NO_GDS);
		T_EQ(info.detail, EBADF);
		says(&info, "for reading");
		reopen("data", RIG_RW);
		T_EQ(verdict().why, PST_WHY_NONE);
	}
	T_CHECK(pattern_write(5, 0, RIG_MIB(2)).paths & GDS);
	reopen("sink", PST_FILE_WRITE);
	T_EQ(check(PST_OP_WRITE).state, PST_STATE_PROVEN);
	T_CHECK(rig_write(file, mem, 0, 0, RIG_MIB(2)).paths & GDS);
	close_all();
}

/* Before cuFile 1.19, P2PDMA cannot read holes, and cuFile would copy: such files are refused. */
static void holes(const char *text, int detail)
{
	struct pst_path_info info;
	struct pst_done d;

	open_direct(text);
	T_EQ(truncate(rig_path("data"), LEN + RIG_MIB(1)), 0);
	info = check(PST_OP_READ);
	T_EQ(info.detail, detail);
	if (detail)
		says(&info, "holes");
	T_EQ(check(PST_OP_WRITE).why, PST_WHY_NONE);
	d = cold_read(0, 0, RIG_MIB(2), 0, 0);
	T_EQ(d.why, detail ? PST_WHY_NO_GDS : PST_WHY_NONE);
	T_EQ((d.paths & GDS) != 0, !detail);
	T_CHECK(is_right(0, 0, RIG_MIB(2)));
	T_CHECK(pattern_write(SEED, 0, RIG_MIB(2)).paths & GDS);
	close_all();
}

static void holes_before(void)
{
	holes("mode=p2pdma,version=1180", EMEDIUMTYPE);
}

static void holes_since(void)
{
	holes("mode=p2pdma,version=1190", 0);
}

static void holes_nvfs(void)
{
	holes("mode=nvfs", 0);
}

/* PST_GDS=exclusive, but the program opens the driver itself: the path is refused, with EUSERS. */
static void not_exclusive(void)
{
	struct pst_path_info info;
	uint64_t (*open)(void);
	struct pst_done d;

	(void)setenv("PST_GDS", "exclusive", 1);
	open_with("mode=p2pdma");
	symbol(dlopen(getenv("PST_LIBCUFILE"), RTLD_NOW), &open, "cuFileDriverOpen");
	T_EQ(open(), 0); /* the result is a struct of two int */
	info = verdict();
	T_EQ(info.state, PST_STATE_IMPOSSIBLE);
	T_EQ(info.why, PST_WHY_NO_GDS);
	T_EQ(info.detail, EUSERS);
	says(&info, "PST_GDS=exclusive");
	d = cold_read(0, 0, RIG_MIB(1), 0, PST_IO_STRICT);
	T_EQ(d.res, (int64_t)RIG_MIB(1));
	close_all();
}

/*
 * In a container, no thread may have a working directory of its own: the library then needs
 * CUFILE_LOGFILE_PATH.
 */
static void no_unshare(void)
{
	struct pst_path_info info = { .sz = sizeof(info) };
	uint64_t until = t_hang();
	struct pst_mem *other;

	(void)unsetenv("CUFILE_LOGFILE_PATH");
	forbid(__NR_unshare);
	open_with("mode=p2pdma");
	info = verdict();
	T_EQ(info.why, PST_WHY_NO_GDS);
	T_EQ(info.detail, EPERM);
	says(&info, "set CUFILE_LOGFILE_PATH");
	T_EQ(state().opens, 0);
	(void)setenv("CUFILE_LOGFILE_PATH", "/dev/null", 1);
	other = rig_alloc("cuda:1", RIG_MIB(1));
	do
		T_OK(pst_path_check(file, other, PST_OP_READ, PST_PATH_GDS, &info));
	while (info.why && t_now() < until);
	T_EQ(info.why, PST_WHY_NONE);
	pst_mem_free(other);
	close_all();
}

/* The text of each reason must name its cause. */
static void reasons(void)
{
	static const struct {
		int detail;
		const char *says;
	} v[] = {
		{ EAGAIN, "ask again" },
		{ ECANCELED, "PST_GDS=off" },
		{ ENODEV, "not here" },
		{ EOPNOTSUPP, "no direct way" },
		{ EILSEQ, "wrong bytes" },
		{ ETIMEDOUT, "hangs" },
		{ ENOMEM, "BAR1" },
		{ ENOBUFS, "BAR1" },
		{ EBUSY, "registered" },
		{ ENOENT, "penstock-gds-probe" },
		{ ENODATA, "no bytes yet" },
		{ EBADF, "for reading" },
		{ EUSERS, "exclusive" },
		{ EPERM, "CUFILE_LOGFILE_PATH" },
		{ EACCES, "/dev/nvidia-fs*" },
		{ EINVAL, "cufile.json" },
		{ EMEDIUMTYPE, "holes" },
		{ ENOSYS, "too old" },
		{ EIO, "EIO" },
	};

	for (unsigned i = 0; i < RIG_NR(v); i++)
		says(&(struct pst_path_info){ .why = PST_WHY_NO_GDS, .detail = v[i].detail },
		     v[i].says);
}

/* Ask about two devices at once: each gets its result, and neither waits for long. */
static void two_devices(void)
{
	struct pst_path_info info = { .sz = sizeof(info) };
	uint64_t until = t_hang();
	struct pst_mem *other;

	open_with("mode=p2pdma");
	other = rig_alloc("cuda:1", RIG_MIB(1));
	(void)check(PST_OP_READ);
	do
		T_OK(pst_path_check(file, other, PST_OP_READ, PST_PATH_GDS, &info));
	while (info.why && t_now() < until);
	T_EQ(info.why, PST_WHY_NONE);
	T_EQ(verdict().why, PST_WHY_NONE);
	T_CHECK(t_now() < until);
	pst_mem_free(other);
	close_all();
}

static const struct again cases[] = {
	{ "forbidden", forbidden, AGAIN_ONCE, "" },
	{ "empty_file", empty_file, AGAIN_ONCE, "" },
	{ "written_only", written_only, AGAIN_ONCE, "" },
	{ "unreadable", unreadable, AGAIN_ONCE, "" },
	{ "holes_before", holes_before, AGAIN_ONCE, "" },
	{ "holes_since", holes_since, AGAIN_ONCE, "" },
	{ "holes_nvfs", holes_nvfs, AGAIN_ONCE, "" },
	{ "not_exclusive", not_exclusive, AGAIN_ONCE, "" },
	{ "no_unshare", no_unshare, AGAIN_ONCE, "" },
	{ "reasons", reasons, AGAIN_ONCE, "" },
	{ "two_devices", two_devices, AGAIN_ONCE, "gds.probe:0:1ms" },
};

int main(int argc, char **argv)
{
	rig_init();
	if (argc > 1)
		return again_child(cases, RIG_NR(cases), argv[1]);
	again_all(cases, RIG_NR(cases));
	return rig_done();
}
