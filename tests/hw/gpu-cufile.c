/* SPDX-License-Identifier: MIT */
/*
 * Reads into GPU memory with the real libcufile: the probe finds it, the library refuses it if
 * it is not direct and uses it if it is, and other users of cuFile notice nothing.
 *
 *	gpu-cufile [-m DEVICE] [DIR]	cases, in TAP; files go to DIR
 *
 * PST_LIBCUFILE names the library; without it the usual places are searched.  GPU_CUFILE_UDEV
 * names the expected udev record of the disk for cuFile's compat mode: "none" or "made"; without
 * it the result is only printed.  Each case has its own process, because the library keeps a
 * verdict as long as the process lives.
 */
#include "hw_cufile.h"

/* ------------------------------------------------------------------- probe */

/* The probe program's answer about the file and the device. */
struct said {
	int err, version;
	char mode[16], text[300];
};

static void probe_program(char *ret, size_t len)
{
	const char *env = getenv("PST_GDS_PROBE");
	void *fn = dlsym(RTLD_DEFAULT, "pst_version");
	Dl_info info;
	int n;

	(void)snprintf(ret, len, "%s", env ? env : "");
	if (env && *env)
		return;
	T_CHECK(fn && dladdr(fn, &info) && strrchr(info.dli_fname, '/'));
	n = (int)(strrchr(info.dli_fname, '/') - info.dli_fname);
	(void)snprintf(ret, len, "%.*s/../libexec/penstock/penstock-gds-probe", n, info.dli_fname);
	if (access(ret, X_OK) < 0)
		(void)snprintf(ret, len, "%.*s/penstock-gds-probe", n, info.dli_fname);
	if (access(ret, X_OK) < 0)
		T_SKIP("penstock-gds-probe beside %.300s", info.dli_fname);
}

static struct said probe(void)
{
	char program[PATH_MAX], cmd[2 * PATH_MAX], line[800];
	struct said s = { .err = -1 };
	bool told = false;
	FILE *from;

	probe_program(program, sizeof(program));
	(void)snprintf(cmd, sizeof(cmd), "exec '%s' '%s' '%s' 2>&1", program, rig_path("data"),
		       device);
	from = popen(cmd, "re");
	T_CHECK(from);
	while (fgets(line, sizeof(line), from))
		if (!strncmp(line, "gds-probe 1 ", 12))
			told = sscanf(line,
				      "gds-probe 1 err=%d mode=%15s version=%d nvfs=%*s bytes=%*u "
				      "text=%299[^\n]",
				      &s.err, s.mode, &s.version, s.text) >= 3;
	(void)pclose(from);
	if (!told)
		T_FAIL("%.300s says nothing", program);
	printf("# probe: cuFile %d.%d, mode %s, errno %d%s%s\n", s.version / 1000,
	       s.version % 1000 / 10, s.mode, s.err, *s.text ? ": " : "", s.text);
	return s;
}

static bool is_direct(const struct said *s)
{
	return !s->err && strcmp(s->mode, "compat") != 0 && strcmp(s->mode, "unknown") != 0;
}

/* Skip unless the machine has a direct path (@wanted) or has none (!@wanted). */
static void need_direct(bool wanted)
{
	struct said s;

	load_cufile();
	s = probe();
	if (wanted && !is_direct(&s))
		T_SKIP("a direct way between this disk and GPU: %s", s.text);
	if (!wanted && is_direct(&s))
		T_SKIP("a machine without a direct way");
}

/* The probe must load libcufile, and report its version and a reason for each error. */
static void the_probe_loads_the_library(void)
{
	struct said s;

	open_library();
	load_cufile();
	s = probe();
	T_CHECK(s.version >= 1070);
	T_CHECK(s.err == 0 || *s.text);
	leaves_no_file();
}

static void the_probe_finds_the_library(void)
{
	struct said s;

	open_library();
	(void)unsetenv("PST_LIBCUFILE");
	s = probe();
	if (!s.version && s.err == ENODEV)
		T_SKIP("libcufile.so.0 where it is looked for: %s", s.text);
	T_CHECK(s.version >= 1070);
	leaves_no_file();
}

/* ------------------------------------------------------------------- ours */

static struct pst_mem *mem;
static struct pst_file *file;

static void start(void)
{
	rig_q = rig_queue(PST_BACKEND_AUTO, 0);
	mem = rig_alloc(device, LEN);
	file = rig_open(rig_path("data"), RIG_RW);
}

static void stop(void)
{
	mem = pst_mem_free(mem);
	file = pst_file_close(file);
	rig_q = pst_queue_free(rig_q);
}

/* Wait for the verdict about the path. */
static struct pst_path_info verdict(uint32_t op)
{
	struct pst_path_info info = { .sz = sizeof(info) };
	uint64_t until = t_in_ms(40000);
	char text[300];

	do {
		T_OK(pst_path_check(file, mem, op, PST_PATH_GDS, &info));
		(void)usleep(10000);
	} while (info.why == PST_WHY_NO_GDS && info.detail == EAGAIN && t_now() < until);
	printf("# gds: state %u, %s %d: %s\n", info.state, pst_why_name(info.why), info.detail,
	       pst_why_text(info.why, info.detail, text, sizeof(text)));
	return info;
}

static struct pst_io cold_io(uint64_t policy, uint32_t flags)
{
	struct pst_io io = rig_io(PST_OP_READ, file, mem, 0, 0, LEN);

	rig_mem_fill(mem, 0, LEN, 99, 0);
	rig_cold(rig_path("data"));
	io.policy = policy;
	io.flags = flags;
	return io;
}

static struct pst_done read_right(uint64_t policy)
{
	struct pst_io io = cold_io(policy, 0);
	struct pst_done d = rig_do(rig_q, &io);

	rig_show(&d);
	T_EQ(d.res, (int64_t)LEN);
	T_EQ(rig_mem_differs(mem, 0, LEN, SEED, 0), LEN);
	return d;
}

static void is_refused(struct pst_path_info info)
{
	char text[300];

	T_EQ(info.state, PST_STATE_IMPOSSIBLE);
	T_EQ(info.why, PST_WHY_NO_GDS);
	T_CHECK(info.detail > 0 && info.detail != EAGAIN);
	T_CHECK(strstr(pst_why_text(info.why, info.detail, text, sizeof(text)), "cuFile"));
}

/* If the kernel does not support cuFile, the path is refused at once, without a probe process. */
static void the_kernel_is_looked_at(void)
{
	struct pst_path_info info = { .sz = sizeof(info) };

	open_library();
	(void)unsetenv("PST_LIBCUFILE");
	start();
	T_OK(pst_path_check(file, mem, PST_OP_READ, PST_PATH_GDS, &info));
	if (info.detail != ENODEV)
		T_SKIP("a kernel that has nothing for cuFile");
	is_refused(info);
	T_CHECK(!(read_right(0).paths & GDS));
	stop();
	leaves_no_file();
}

static void refusal_is_told(void)
{
	open_library();
	need_direct(false);
	start();
	is_refused(verdict(PST_OP_READ));
	is_refused(verdict(PST_OP_WRITE));
	stop();
	leaves_no_file();
}

static void default_policy_goes_on(void)
{
	open_library();
	need_direct(false);
	start();
	/* Read before the verdict and after it. */
	for (unsigned i = 0; i < 2; i++) {
		struct pst_done d = read_right(0);

		T_CHECK(!(d.paths & GDS));
		/* Without io_uring that is the first reason of a slower path. */
		T_CHECK(d.why == PST_WHY_NONE || d.why == PST_WHY_NO_URING);
		is_refused(verdict(PST_OP_READ));
	}
	T_CHECK(!(read_right(PST_POLICY2(PST_PATH_GDS, PST_PATH_STAGED)).paths & GDS));
	T_CHECK(rig_stats(rig_q).why[PST_WHY_NO_GDS] > 0);
	stop();
	leaves_no_file();
}

static void strict_is_refused(void)
{
	struct pst_io io;
	struct pst_done d;
	char text[300];
	int r;

	open_library();
	need_direct(false);
	start();
	is_refused(verdict(PST_OP_READ));
	io = cold_io(PST_POLICY1(PST_PATH_GDS), PST_IO_STRICT);
	r = pst_queue_prep(rig_q, &io);
	if (r < 0) {
		T_EQ(r, -EOPNOTSUPP);
		printf("# %s\n", pst_error_text());
		T_CHECK(strstr(pst_error_text(), "gds") && strstr(pst_error_text(), "cuFile"));
	} else {
		T_EQ(pst_queue_submit(rig_q), 1);
		d = rig_reap1(rig_q);
		rig_show(&d);
		T_EQ(d.res, -EOPNOTSUPP);
		T_EQ(d.why, PST_WHY_NO_GDS);
		T_CHECK(strstr(pst_why_text(d.why, d.detail, text, sizeof(text)), "cuFile"));
	}
	T_EQ(rig_mem_differs(mem, 0, LEN, 99, 0), LEN);
	stop();
	leaves_no_file();
}

static unsigned count_threads(void)
{
	DIR *d = opendir("/proc/self/task");
	unsigned n = 0;

	T_CHECK(d);
	while (readdir(d))
		n++;
	(void)closedir(d);
	return n;
}

static void once(void)
{
	start();
	(void)verdict(PST_OP_READ);
	(void)read_right(0);
	stop();
	rig_quiet();
}

/* After the first use, no further descriptors or threads remain; the driver and a direct cuFile
 * keep some. */
static void nothing_is_left(void)
{
	unsigned fds, threads;

	open_library();
	load_cufile();
	once();
	once();
	fds = t_count_fds();
	threads = count_threads();
	printf("# %u descriptors, %u threads\n", fds, threads);
	once();
	once();
	T_CHECK(t_fds_left(fds) <= fds);
	T_EQ(count_threads(), threads);
	leaves_no_file();
}

/* ------------------------------------------------------------ registration */

static int register_file(bool strict, cuf_handle *ret, const char **ret_call)
{
	struct cuf_descr d = { .type = CUF_FD };
	struct cuf_error e = { 0, 0 };

	(void)setenv("CUFILE_LOGFILE_PATH", "/dev/null", 1);
	if (strict && cf.cuFileSetParameterBool)
		e = cf.cuFileSetParameterBool(CUF_PARAM_ALLOW_COMPAT, false);
	*ret_call = "cuFileDriverOpen";
	if (!e.err)
		e = cf.cuFileDriverOpen();
	if (e.err)
		return e.err;
	d.u.fd = open(rig_path("data"), O_RDONLY | O_DIRECT | O_CLOEXEC);
	if (d.u.fd < 0)
		T_SKIP("O_DIRECT on this file system");
	*ret_call = "cuFileHandleRegister";
	return cf.cuFileHandleRegister(ret, &d).err;
}

static void need_driver(void)
{
	const char *why = hw_cuda(hw_ordinal(device));

	if (why)
		T_SKIP("%s", why);
	load_cufile();
}

/* The program itself registers a file in the compat mode, to see if this needs a udev record. */
static void compat_mode_by_itself(void)
{
	cuf_handle handle = NULL;
	const char *call;
	int version = 0, code;

	open_library();
	need_driver();
	T_EQ(cf.cuFileGetVersion(&version).err, 0);
	code = register_file(false, &handle, &call);
	printf("# cuFile %d.%d, compat mode allowed: %s gave %d\n", version / 1000,
	       version % 1000 / 10, call, code);
	/* Later versions may accept a file without a udev record. */
	if (udev_is("none") && version < 1160)
		T_EQ(code, CUF_HANDLE_NOT_REGISTERED);
	if (udev_is("made"))
		T_EQ(code, CUF_OK);
	if (!udev_is("none") && !udev_is("made"))
		T_SKIP("a udev database that is known; the code is %d", code);
	leaves_no_file();
}

static void compat_mode_forbidden(void)
{
	cuf_handle handle = NULL;
	const char *call;
	int code;

	open_library();
	need_driver();
	need_direct(false);
	(void)setenv("CUFILE_ALLOW_COMPAT_MODE", "false", 1);
	code = register_file(true, &handle, &call);
	printf("# compat mode forbidden: %s gave %d\n", call, code);
	T_CHECK(code > CUF_BASE);
	leaves_no_file();
}

/* ------------------------------------------------------------- other users */

struct other {
	cuf_handle handle;
	cu_ptr ptr;
	struct cuf_props props;
	long uses;
};

static void other_reads(const struct other *o)
{
	static char buf[RIG_MIB(1)], zero[RIG_MIB(1)];
	cu_stream st = NULL;

	HW_CU(cuStreamCreate(&st, CU_NON_BLOCKING));
	HW_CU(cuMemcpyHtoDAsync_v2(o->ptr, zero, RIG_MIB(1), st));
	HW_CU(cuStreamSynchronize(st));
	T_EQ(cf.cuFileRead(o->handle, (void *)(uintptr_t)o->ptr, RIG_MIB(1), 4096, 0), RIG_MIB(1));
	HW_CU(cuMemcpyDtoHAsync_v2(buf, o->ptr, RIG_MIB(1), st));
	HW_CU(cuStreamSynchronize(st));
	HW_CU(cuStreamDestroy_v2(st));
	T_EQ(t_differs(buf, SEED, 4096, RIG_MIB(1)), RIG_MIB(1));
}

static struct cuf_props properties(void)
{
	struct cuf_props p;

	memset(&p, 0, sizeof(p));
	T_EQ(cf.cuFileDriverGetProperties(&p).err, 0);
	return p;
}

static void other_begins(struct other *o)
{
	const char *call;
	int code = register_file(false, &o->handle, &call);

	if (code == CUF_HANDLE_NOT_REGISTERED)
		T_SKIP("a udev database: %s gave %d", call, code);
	T_EQ(code, CUF_OK);
	HW_CU(cuMemAlloc_v2(&o->ptr, RIG_MIB(2)));
	T_EQ(cf.cuFileBufRegister((void *)(uintptr_t)o->ptr, RIG_MIB(2), 0).err, 0);
	other_reads(o);
	o->props = properties();
	o->uses = cf.cuFileUseCount();
}

/* Another user has cuFile open: its properties, its use count and its reads must not change. */
static void beside_another_user(void)
{
	struct other o = { .uses = 0 };
	struct pst_path_info info;
	struct cuf_props now;

	open_library();
	need_driver();
	other_begins(&o);
	T_CHECK(o.props.nvfs.control & CUF_CONTROL_ALLOW_COMPAT);
	start();
	info = verdict(PST_OP_READ);
	(void)read_right(0);
	(void)read_right(PST_POLICY2(PST_PATH_GDS, PST_PATH_STAGED));
	stop();

	now = properties();
	T_CHECK(!memcmp(&now, &o.props, sizeof(now)));
	printf("# %ld uses before, %ld after\n", o.uses, cf.cuFileUseCount());
	/* A direct path opens the driver, and the library keeps it open. */
	if (info.state == PST_STATE_IMPOSSIBLE)
		T_EQ(cf.cuFileUseCount(), o.uses);
	else
		T_CHECK(cf.cuFileUseCount() >= o.uses);
	other_reads(&o);
	T_EQ(cf.cuFileBufDeregister((void *)(uintptr_t)o.ptr).err, 0);
	cf.cuFileHandleDeregister(o.handle);
	HW_CU(cuMemFree_v2(o.ptr));
	leaves_no_file();
}

/* ------------------------------------------------------------------ direct */

/* On a machine with a direct path the default policy must use cuFile, and the path becomes
 * proven. */
static void direct_reads(void)
{
	open_library();
	need_direct(true);
	start();
	T_EQ(verdict(PST_OP_READ).state, PST_STATE_POSSIBLE);
	T_CHECK(read_right(0).paths & GDS);
	T_EQ(verdict(PST_OP_READ).state, PST_STATE_PROVEN);
	T_EQ(read_right(PST_POLICY1(PST_PATH_GDS)).paths, GDS);
	stop();
	leaves_no_file();
}

static void direct_writes(void)
{
	struct pst_done d;
	char *buf;

	open_library();
	need_direct(true);
	buf = malloc(LEN);
	T_CHECK(buf);
	start();
	(void)verdict(PST_OP_WRITE);
	for (uint64_t seed = 41; seed < 43; seed++) {
		rig_mem_fill(mem, 0, LEN, seed, 0);
		d = rig_write(file, mem, 0, 0, LEN);
		rig_show(&d);
		T_EQ(d.res, (int64_t)LEN);
		T_CHECK(d.paths & GDS);
		T_EQ(rig_sync(file).res, 0);
		T_EQ(rig_slurp(rig_path("data"), 0, buf, LEN), LEN);
		T_EQ(t_differs(buf, seed, 0, LEN), LEN);
	}
	T_EQ(verdict(PST_OP_WRITE).state, PST_STATE_PROVEN);
	free(buf);
	stop();
	leaves_no_file();
}

/* ------------------------------------------------------------------ checks */

static struct pst_check checks[24];

static const struct pst_check *check_named(const char *name, int nr)
{
	const struct pst_check *found = NULL;

	for (int i = 0; i < nr; i++) {
		if (strcmp(checks[i].name, name) != 0)
			continue;
		T_CHECK(!found);
		found = &checks[i];
	}
	if (!found)
		T_FAIL("there is no check \"%s\"", name);
	return found;
}

static int run_checks(uint32_t flags)
{
	static const char *const names[] = { "gpu",        "library", "nvidia-fs", "p2pdma",
					     "filesystem", "disk",    "udev",      "direct-io",
					     "iommu",      "acs",     "distance" };
	const struct pst_check_opts o = {
		.sz = sizeof(o), .device = device, .path = rig_path("data"), .flags = flags
	};
	int nr;

	for (unsigned i = 0; i < RIG_NR(checks); i++)
		checks[i].sz = sizeof(checks[i]);
	nr = pst_check("gds", &o, checks, RIG_NR(checks));
	T_CHECK(nr >= (int)RIG_NR(names) && nr <= (int)RIG_NR(checks));
	for (int i = 0; i < nr; i++) {
		printf("# %-10s %u %d %s\n", checks[i].name, checks[i].state, checks[i].err,
		       checks[i].text);
		T_CHECK(checks[i].state <= PST_CHECK_UNNEEDED && *checks[i].text);
	}
	for (unsigned i = 0; i < RIG_NR(names); i++)
		(void)check_named(names[i], nr);
	return nr;
}

static bool has_udev_record(void)
{
	char path[80];
	struct stat st;

	T_EQ(stat(rig_path("data"), &st), 0);
	(void)snprintf(path, sizeof(path), "/run/udev/data/b%u:%u", major(st.st_dev),
		       minor(st.st_dev));
	return access(path, F_OK) == 0;
}

static bool is_mapped(const char *name)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	bool found = false;
	char line[600];

	T_CHECK(maps);
	while (fgets(line, sizeof(line), maps))
		found |= strstr(line, name) != NULL;
	(void)fclose(maps);
	return found;
}

/* Checks without a trial must not load libcufile; the udev check must match the record found. */
static void checks_without_trial(void)
{
	int nr;

	open_library();
	nr = run_checks(0);
	T_CHECK(!is_mapped("libcufile"));
	/* A partition's record may be that of its disk. */
	if (has_udev_record())
		T_CHECK(check_named("udev", nr)->state != PST_CHECK_MISSING);
	else if (access("/run/udev", F_OK) < 0)
		T_CHECK(check_named("udev", nr)->state != PST_CHECK_OK);
	leaves_no_file();
}

static void checks_with_trial(void)
{
	const struct pst_check *trial;
	struct said s;
	uint64_t began;
	int nr;

	open_library();
	s = probe();
	if (!s.version)
		T_SKIP("libcufile.so.0: %s", s.text);
	began = t_now();
	nr = run_checks(PST_CHECK_TRIAL);
	T_CHECK(t_now() - began < UINT64_C(31000000000));
	T_CHECK(!is_mapped("libcufile"));
	trial = check_named("trial", nr);
	T_EQ(trial->state == PST_CHECK_OK, is_direct(&s));
	if (!is_direct(&s))
		T_EQ(trial->state, PST_CHECK_MISSING);
	T_EQ(check_named("library", nr)->state, PST_CHECK_OK);
	leaves_no_file();
}

/* -------------------------------------------------------------------- main */

static const struct again cases[] = {
#define CASE(fn)                        \
	{                               \
#fn, fn, AGAIN_ONCE, "" \
	}
	CASE(the_probe_loads_the_library),
	CASE(the_probe_finds_the_library),
	CASE(the_kernel_is_looked_at),
	CASE(refusal_is_told),
	CASE(default_policy_goes_on),
	CASE(strict_is_refused),
	CASE(nothing_is_left),
	CASE(compat_mode_by_itself),
	CASE(compat_mode_forbidden),
	CASE(beside_another_user),
	CASE(direct_reads),
	CASE(direct_writes),
	CASE(checks_without_trial),
	CASE(checks_with_trial),
#undef CASE
};

static int one_case(const char *name)
{
	device = getenv("GPU_CUFILE_DEVICE");
	for (size_t i = 0; i < RIG_NR(cases); i++)
		if (!strcmp(cases[i].name, name))
			rig_run1(name, cases[i].fn);
	return hw_done();
}

int main(int argc, char **argv)
{
	int opt;

	if (getenv("GPU_CUFILE_DEVICE") && argc == 2) {
		rig_init();
		return one_case(argv[1]);
	}
	while ((opt = getopt(argc, argv, "m:")) != -1) {
		if (opt != 'm')
			return 2;
		device = optarg;
	}
	if (optind < argc)
		(void)setenv("PST_TEST_DIR", argv[optind], 1);
	(void)setenv("GPU_CUFILE_DEVICE", device, 1);
	rig_init();
	(void)find_cufile(); /* sets PST_LIBCUFILE for the cases' processes */
	again_all(cases, RIG_NR(cases));
	return hw_done();
}
