/* SPDX-License-Identifier: MIT */
/*
 * The checks of pst_check() for a direct path, on the stub libraries of tests/stub.  Each case
 * runs in a process of its own (again.h), because it changes the environment.
 */
#include <dlfcn.h>
#include <limits.h>
#include <sys/inotify.h>
#include <sys/wait.h>

#include "again.h"

#define MAX 32

static struct pst_check checks[MAX];
static int nr;

/* Use the stub libraries, configured by text, and make a file. */
static void use_libraries(const char *text)
{
	if (!getenv("PST_LIBCUFILE") || !getenv("PST_LIBCUDA"))
		T_SKIP("needs the libraries of tests/stub");
	(void)setenv("STUB_CUFILE", text, 1);
	rig_make(rig_path("data"), 3, RIG_MIB(2));
}

static int gds_checks(const char *device, const char *path, uint32_t flags, struct pst_check *ret,
		      unsigned max)
{
	const struct pst_check_opts o = {
		.sz = sizeof(o), .device = device, .path = path, .flags = flags
	};

	return pst_check("gds", &o, ret, max);
}

static int ask(const char *device, const char *path, uint32_t flags)
{
	memset(checks, 0x55, sizeof(checks));
	for (unsigned i = 0; i < MAX; i++)
		checks[i].sz = sizeof(checks[i]);
	nr = gds_checks(device, path, flags, checks, MAX);
	for (int i = 0; i < nr; i++)
		printf("# %s %u %d %s\n", checks[i].name, checks[i].state, checks[i].err,
		       checks[i].text);
	return nr;
}

static int place_of(const char *name)
{
	for (int i = 0; i < nr; i++)
		if (!strcmp(checks[i].name, name))
			return i;
	return -1;
}

static const struct pst_check *check(const char *name)
{
	static const struct pst_check none = { .state = ~0u };
	int i = place_of(name);

	return i < 0 ? &none : &checks[i];
}

static void is(const char *name, uint32_t state, int err, const char *says)
{
	const struct pst_check *c = check(name);

	T_EQ(c->state, state);
	T_EQ(c->err, err);
	if (!strstr(c->text, says))
		T_FAIL("\"%s\" has no \"%s\"", c->text, says);
}

/* Run the checks with a trial.  Check that it leaves neither cuFile nor a child in this process. */
static void tried(const char *text)
{
	char line[600];
	FILE *maps;

	use_libraries(text);
	T_CHECK(ask("cuda:0", rig_path("data"), PST_CHECK_TRIAL) > 0);
	T_CHECK(waitpid(-1, NULL, WNOHANG | __WALL) == -1 && errno == ECHILD);
	maps = fopen("/proc/self/maps", "re");
	T_CHECK(maps);
	while (fgets(line, sizeof(line), maps))
		T_CHECK(!strstr(line, "libcufile"));
	(void)fclose(maps);
}

/* -------------------------------------------------------------------- ways */

static void p2pdma(void)
{
	tried("mode=p2pdma");
	is("library", PST_CHECK_OK, 0, "cuFile 1.15, /");
	is("trial", PST_CHECK_OK, 0, "1048576 bytes came directly, by p2pdma, and were right");
}

static void nvfs(void)
{
	tried("mode=nvfs,version=1190");
	is("library", PST_CHECK_OK, 0, "cuFile 1.19, ");
	is("trial", PST_CHECK_OK, 0, "by nvidia-fs 2.");
}

static void refused(void)
{
	tried("mode=compat");
	is("library", PST_CHECK_OK, 0, "cuFile 1.15");
	is("trial", PST_CHECK_MISSING, EOPNOTSUPP, "DRIVER_NOT_INITIALIZED (5001); ");
}

static void no_udev(void)
{
	tried("udev=0");
	is("trial", PST_CHECK_MISSING, EOPNOTSUPP, "; it finds nothing about the disk");
}

static void wrong_bytes(void)
{
	tried("mode=nvfs,lie=wrong");
	is("trial", PST_CHECK_MISSING, EILSEQ, "wrong bytes");
	is("trial", PST_CHECK_MISSING, EILSEQ, "; keep it off with PST_GDS=off");
}

static void no_bytes(void)
{
	tried("lie=nodata");
	is("trial", PST_CHECK_MISSING, EILSEQ, "wrong bytes");
}

static void claims(void)
{
	tried("mode=compat,lie=claims");
	T_CHECK(check("trial")->state != PST_CHECK_OK);
}

/* The text of each failure must name a cure. */
static void fails(void)
{
	static const int codes[] = { 5, 12, 13, 5001, 5009, 5011, 5030, 5036, 5099 };
	char text[64];

	for (unsigned i = 0; i < RIG_NR(codes); i++) {
		(void)snprintf(text, sizeof(text), "fail=cuFileRead:1:%d", codes[i]);
		tried(text);
		T_EQ(check("trial")->state, PST_CHECK_MISSING);
		T_CHECK(check("trial")->err > 0);
		T_CHECK(strstr(check("trial")->text, "; "));
	}
}

/* The trial hangs and is given up; PST_FAULT shortens its time to one second. */
static void hangs(void)
{
	uint64_t began = t_now();

	tried("hang=cuFileDriverOpen:1");
	T_CHECK(t_now() - began < T_HANG_NS);
	is("library", PST_CHECK_UNKNOWN, 0, "libcufile");
	is("trial", PST_CHECK_MISSING, ETIMEDOUT, "hangs; keep it off");
}

static void crashes(void)
{
	(void)setenv("PST_GDS_PROBE", "/bin/false", 1);
	tried("mode=p2pdma");
	is("library", PST_CHECK_UNKNOWN, 0, "did not learn the version");
	is("trial", PST_CHECK_MISSING, EIO, "crashed; update cuFile");
}

static void no_program(void)
{
	(void)setenv("PST_GDS_PROBE", "/nowhere/penstock-gds-probe", 1);
	tried("mode=p2pdma");
	is("trial", PST_CHECK_UNKNOWN, ENOENT, "/nowhere/penstock-gds-probe is not there; install");
}

/* ----------------------------------------------------------------- library */

static void no_library(void)
{
	(void)setenv("PST_LIBCUFILE", "/nowhere/libcufile.so.0", 1);
	tried("");
	is("library", PST_CHECK_MISSING, ENODEV, "/nowhere/libcufile.so.0");
	is("library", PST_CHECK_MISSING, ENODEV, "; install it: ");
	is("library", PST_CHECK_MISSING, ENODEV, "nvidia-cufile");
	is("trial", PST_CHECK_MISSING, ENODEV, "no cuFile here");
	/* Check again, without a trial. */
	T_CHECK(ask("cuda:0", rig_path("data"), 0) > 0);
	is("library", PST_CHECK_MISSING, ENODEV, "/nowhere/libcufile.so.0");
}

static void old_library(void)
{
	tried("version=1060");
	is("library", PST_CHECK_MISSING, ENOSYS, "cuFile 1.6, /");
	is("library", PST_CHECK_MISSING, ENOSYS, "; it is too old: install");
	is("trial", PST_CHECK_MISSING, ENOSYS, "1.6 is too old");
}

/* This process has loaded libraries of Python's packages: the trial's process must find them. */
static void python_library(void)
{
	const char *cuda = getenv("PST_LIBCUDA"), *cufile = getenv("PST_LIBCUFILE");
	const char *driver = rig_path("libcuda.so.1");
	char cmd[8 * PATH_MAX];
	char dir[PATH_MAX / 2];

	use_libraries("mode=p2pdma");
	(void)snprintf(dir, sizeof(dir), "%s", rig_path("site-packages/nvidia"));
	(void)snprintf(cmd, sizeof(cmd),
		       "mkdir -p '%s/cuda_runtime/lib' '%s/cufile/lib' && cp '%s' '%s' && "
		       "cp '%s' '%s/cuda_runtime/lib/libcudart.so.13' && "
		       "cp '%s' '%s/cufile/lib/libcufile.so.0'",
		       dir, dir, cuda, driver, cuda, dir, cufile, dir);
	T_EQ(system(cmd), 0);
	/* Use a copy of the driver's stub. */
	(void)setenv("PST_LIBCUDA", driver, 1);
	(void)unsetenv("PST_LIBCUFILE");
	T_CHECK(ask("cuda:0", rig_path("data"), 0) > 0);
	if (check("library")->state == PST_CHECK_OK)
		T_SKIP("a machine without a libcufile of its own");
	(void)snprintf(cmd, sizeof(cmd), "%s/cuda_runtime/lib/libcudart.so.13", dir);
	T_CHECK(dlopen(cmd, RTLD_NOW));
	T_CHECK(ask("cuda:0", rig_path("data"), PST_CHECK_TRIAL) > 0);
	is("library", PST_CHECK_OK, 0, "/nvidia/cufile/lib/libcufile.so.0");
	is("trial", PST_CHECK_OK, 0, "by p2pdma");
}

/* ------------------------------------------------------------------- order */

/* The checks must come in this order: GPU, library, kernel, file, and the trial last. */
static void order(void)
{
	static const char *const names[] = { "gpu",        "library", "nvidia-fs", "p2pdma",
					     "filesystem", "disk",    "udev",      "direct-io",
					     "iommu",      "acs",     "distance",  "trial" };
	int last = -1;

	tried("mode=p2pdma");
	T_EQ(nr, (int)RIG_NR(names));
	for (unsigned i = 0; i < RIG_NR(names); i++) {
		T_CHECK(place_of(names[i]) > last);
		last = place_of(names[i]);
		T_CHECK(checks[i].sz == sizeof(checks[i]) && checks[i].state <= PST_CHECK_UNNEEDED);
		T_CHECK(checks[i].text[0]);
	}
	/* Checks of the file need no device. */
	T_CHECK(ask(NULL, rig_path("data"), 0) > 0);
	T_EQ(place_of("library"), 0);
	T_CHECK(place_of("gpu") < 0 && place_of("trial") < 0 && place_of("filesystem") > 0);
	/* A directory is checked like a file in it. */
	T_CHECK(ask("cuda:0", rig_path("."), 0) > 0);
	T_CHECK(place_of("filesystem") > 0 && place_of("trial") < 0);
}

/* --------------------------------------------------------------- arguments */

static void says(int r, int err, const char *text)
{
	T_EQ(r, err);
	if (!strstr(pst_error_text(), text))
		T_FAIL("\"%s\" has no \"%s\"", pst_error_text(), text);
}

static void wrong_arguments(void)
{
	const char *data;

	use_libraries("mode=p2pdma");
	data = rig_path("data");
	says(ask("cuda:9", data, 0), -ENODEV, "cuda:9");
	says(ask("0000:ff:1f.7", data, 0), -ENODEV, "0000:ff:1f.7");
	says(ask("nonsense", data, 0), -EINVAL, "nonsense");
	says(ask("host", data, 0), -EINVAL, "no NVIDIA GPU");
	says(ask("soft:0", data, PST_CHECK_TRIAL), -EINVAL, "no NVIDIA GPU");
	says(ask("cuda:0", NULL, 0), -EINVAL, "no path");
	says(ask("cuda:0", data, 2), -EINVAL, "0x2");
	says(ask(NULL, data, PST_CHECK_TRIAL), -EINVAL, "a device");
	says(ask("cuda:0", rig_path("."), PST_CHECK_TRIAL), -EINVAL, "not a directory");
	rig_make(rig_path("empty"), 0, 0);
	says(ask("cuda:0", rig_path("empty"), PST_CHECK_TRIAL), -EINVAL, "is empty");
	T_CHECK(ask("cuda:0", rig_path("empty"), 0) > 0);
}

static void wrong_paths(void)
{
	char event[sizeof(struct inotify_event) + NAME_MAX + 1];
	int opens;

	use_libraries("mode=p2pdma");
	says(ask("cuda:0", rig_path("none"), 0), -ENOENT, "none");
	says(ask("cuda:0", "/dev/null", 0), -ENXIO, "/dev/null");
	T_EQ(mkfifo(rig_path("fifo"), 0600), 0);
	/* Opening the FIFO would release a writer that waits for a reader. */
	opens = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	T_CHECK(inotify_add_watch(opens, rig_path("fifo"), IN_OPEN) >= 0);
	says(ask("cuda:0", rig_path("fifo"), PST_CHECK_TRIAL), -ENXIO, "fifo");
	T_EQ(read(opens, event, sizeof(event)), -1);
	T_EQ(errno, EAGAIN);
	(void)close(open(rig_path("fifo"), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
	T_CHECK(read(opens, event, sizeof(event)) > 0);
	(void)close(opens);
	if (geteuid() != 0) {
		rig_make(rig_path("secret"), 0, 10);
		T_EQ(chmod(rig_path("secret"), 0), 0);
		says(ask("cuda:0", rig_path("secret"), 0), -EACCES, "secret");
	}
}

static void room(void)
{
	struct pst_check few[3];
	int all;

	use_libraries("mode=p2pdma");
	all = ask("cuda:0", rig_path("data"), 0);
	T_CHECK(all > 3);
	T_EQ(gds_checks("cuda:0", rig_path("data"), 0, NULL, 0), all);
	memset(few, 0x55, sizeof(few));
	few[0].sz = few[1].sz = sizeof(few[0]);
	T_EQ(gds_checks("cuda:0", rig_path("data"), 0, few, 2), all);
	T_CHECK(!memcmp(few, checks, 2 * sizeof(few[0])));
	T_EQ(few[2].name[0], 0x55);
	/* Nothing is written if any element is too small. */
	few[1].sz--;
	memset(few[0].name, 0x33, sizeof(few[0].name));
	says(gds_checks("cuda:0", rig_path("data"), 0, few, 2), -EINVAL, "sz of element 1");
	T_EQ(few[0].name[0], 0x33);
	/* errno stays unchanged. */
	errno = ENOTTY;
	T_EQ(gds_checks("cuda:0", rig_path("none"), 0, NULL, 0), -ENOENT);
	T_EQ(errno, ENOTTY);
}

static void after_fork(void)
{
	int status;
	pid_t pid;

	use_libraries("mode=p2pdma");
	T_CHECK(ask(NULL, rig_path("data"), 0) > 0);
	pid = fork();
	if (pid == 0)
		_exit(gds_checks(NULL, rig_path("data"), 0, NULL, 0) == -EOWNERDEAD ? 0 : 1);
	T_CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static const struct again cases[] = {
	{ "p2pdma", p2pdma, AGAIN_ONCE, "" },
	{ "nvfs", nvfs, AGAIN_ONCE, "" },
	{ "refused", refused, AGAIN_ONCE, "" },
	{ "no_udev", no_udev, AGAIN_ONCE, "" },
	{ "wrong_bytes", wrong_bytes, AGAIN_ONCE, "" },
	{ "no_bytes", no_bytes, AGAIN_ONCE, "" },
	{ "claims", claims, AGAIN_ONCE, "" },
	{ "fails", fails, AGAIN_ONCE, "" },
	{ "hangs", hangs, AGAIN_ONCE, "gds.probe:0:short" },
	{ "crashes", crashes, AGAIN_ONCE, "" },
	{ "no_program", no_program, AGAIN_ONCE, "" },
	{ "no_library", no_library, AGAIN_ONCE, "" },
	{ "old_library", old_library, AGAIN_ONCE, "" },
	{ "python_library", python_library, AGAIN_ONCE, "" },
	{ "order", order, AGAIN_ONCE, "" },
	{ "wrong_arguments", wrong_arguments, AGAIN_ONCE, "" },
	{ "wrong_paths", wrong_paths, AGAIN_ONCE, "" },
	{ "room", room, AGAIN_ONCE, "" },
	{ "after_fork", after_fork, AGAIN_ONCE, "" },
};

int main(int argc, char **argv)
{
	rig_init();
	if (argc > 1)
		return again_child(cases, RIG_NR(cases), argv[1]);
	again_all(cases, RIG_NR(cases));
	return rig_done();
}
