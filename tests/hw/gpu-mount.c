/* SPDX-License-Identifier: MIT */
/*
 * GPU memory in rings of a mount.  The mount's worker, another process, gets the memory by its
 * IPC handle.  The driver's copies check the bytes, the worker's mappings are checked, and
 * requests are timed.
 *
 *	gpu-mount [-m DEVICE] [-t MS] [DIR]	cases, in TAP
 *
 * DEVICE is cuda:N, or soft:N on a machine without a GPU.  Each rate is measured for MS ms.  The
 * mount serves a folder in DIR, $PST_TEST_DIR or /tmp.  PST_TEST_MOUNT names the penstock-mount
 * to use; default: the one next to this program.  Needs root.
 */
#include <getopt.h>
#include <grp.h>
#include <sys/mman.h>

#include "hw_mount.h"

#define DEVICE_SIZE RIG_MIB(64)
#define SMALL 4096u
#define MIDDLE 65536u
#define LARGE RIG_MIB(4)

static const char *device = "cuda:0";
static unsigned time_ms = 1500;
static const char *why_none; /* why there is no GPU; NULL: there is one */
static char log_path[200];

/* ------------------------------------------------------------------ the mount */

/* Find the penstock-mount of this build or bundle. */
static void find_server(void)
{
	static const char *const places[] = { "../../libexec/penstock/penstock-mount",
					      "../../usrbio/mount/penstock-mount" };
	char path[600], *slash;
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 64);

	if (getenv("PST_TEST_MOUNT") || n <= 0)
		return;
	path[n] = '\0';
	slash = strrchr(path, '/');
	for (unsigned i = 0; slash && i < RIG_NR(places); i++) {
		(void)strcpy(slash + 1, places[i]);
		if (access(path, X_OK) == 0)
			(void)setenv("PST_TEST_MOUNT", path, 0);
	}
}

static void needs_mount(void)
{
	if (!mg.pid)
		T_SKIP("the mount");
}

/* Print the warnings and errors of the mount server and its worker. */
static void print_log(void)
{
	FILE *f = fopen(log_path, "re");
	char *line = NULL;
	size_t size = 0;
	unsigned nr = 0;

	while (f && getline(&line, &size, f) > 0 && nr++ < 60)
		printf("# log: %s", line);
	if (f)
		(void)fclose(f);
	free(line);
}

static void a_mount_is_made(void)
{
	if (!getenv("PST_TEST_MOUNT"))
		T_FAIL("no penstock-mount belongs to this program; was it built without libfuse3?");
	if (access(getenv("PST_TEST_MOUNT"), X_OK) < 0)
		T_FAIL("%s cannot be run: %s", getenv("PST_TEST_MOUNT"), strerror(errno));
	if (access("/dev/fuse", R_OK | W_OK) < 0)
		T_SKIP("/dev/fuse");
	if (geteuid() != 0)
		T_SKIP("root, to have a /dev/shm of its own");
	(void)setenv("PST_TEST_MOUNT_LOG", log_path, 1);
	(void)setenv("PST_LOG", "debug", 1);
	if (mount_rig_start(&mg, "penstock-mount", NULL) < 0) {
		print_log();
		/* A container may forbid mounts: skip there.  On a GPU machine the mount must
		 * succeed. */
		if (soft || getenv("PST_LIBCUDA"))
			T_SKIP("a FUSE that can be mounted: %s", mg.why);
		T_FAIL("penstock-mount makes no mount: %s", mg.why);
	}
	(void)unsetenv("PST_LOG");
	(void)unsetenv("PST_TEST_MOUNT_LOG");
	(void)snprintf(gpu_plain, sizeof(gpu_plain), "%s", mg.mnt);
	T_EQ(chmod(mg.back, 0777), 0);
	rig_make(gpu_file("data"), 1, FILE_SIZE);
	rig_warm(gpu_file("data"));
}

static void the_mount_ends(void)
{
	pid_t worker;

	needs_mount();
	worker = procs_worker(&mg);
	T_EQ(gpu_links(gpu_plain, NULL), USRBIO_PRIORITIES);
	T_EQ(mount_rig_stop(&mg), 0);
	T_CHECK(kill(worker, 0) < 0 && errno == ESRCH);
	same_context();
}

static struct hf3fs_iov wrap(const struct memory *m, uint64_t at, size_t len)
{
	struct hf3fs_iov iov = { 0 };
	int r = hf3fs_iovwrap_device(&iov, m->base + at, gpu_id(), gpu_plain, len, 0, number);

	if (r != 0) {
		print_log();
		T_FAIL("the mount does not take the memory: %s; see the log above", strerror(-r));
	}
	return iov;
}

static void time_it(const char *what, const struct hf3fs_iov *iov, size_t piece, unsigned depth)
{
	struct mg_ring r = mg_ring(gpu_file("data"), (int)depth, true);
	struct figure f;

	(void)io(&r, iov, 0, 0, piece);
	f = run(&r, iov, piece, depth, time_ms);
	say(what, piece, depth, &f);
	mg_ring_end(&r);
}

/* ------------------------------------------------------------------- by windows */

/* Return the number of mappings of the vendor's libraries in a process. */
static unsigned vendor_maps(pid_t pid)
{
	return procs_maps(pid, "libcuda") + procs_maps(pid, "libnvidia");
}

static void small_pieces_without_the_vendors_library(void)
{
	struct hf3fs_iov iov;
	struct memory m;
	struct mg_ring r;

	needs_mount();
	if (!soft && access("/dev/nvidiactl", F_OK) < 0)
		T_SKIP("/dev/nvidiactl, which windows go through");
	m = alloc(RIG_MIB(4));
	iov = wrap(&m, 0, RIG_MIB(4));
	T_EQ(procs_maps(mg.pid, "libcuda"), 0);
	if (vendor_maps(procs_worker(&mg)) && hf3fs_gdr_device_count() > 1)
		T_SKIP("a machine with one GPU; with several, CUDA says whose memory it is");
	if (vendor_maps(procs_worker(&mg))) {
		print_log();
		T_FAIL("the worker has loaded libcuda when the memory was published: it could open "
		       "no window; the log above says why");
	}
	put(m.base, 9, 0, RIG_MIB(4));
	r = mg_ring(gpu_file("data"), 64, true);
	for (size_t at = 0; at < RIG_MIB(4); at += SMALL)
		T_EQ(io(&r, &iov, at, at + 123, SMALL), SMALL);
	T_EQ(differs(m.base, 1, 123, RIG_MIB(4)), RIG_MIB(4));
	for (size_t at = 0; at < RIG_MIB(4); at += MIDDLE)
		T_EQ(io(&r, &iov, at, at + 321, MIDDLE), MIDDLE);
	T_EQ(differs(m.base, 1, 321, RIG_MIB(4)), RIG_MIB(4));
	T_EQ(vendor_maps(procs_worker(&mg)), 0);
	printf("# the worker has %u mappings of /dev/nvidia*, and none of libcuda\n",
	       procs_maps(procs_worker(&mg), "/dev/nvidia"));
	mg_ring_end(&r);
	time_it("window", &iov, SMALL, 1);
	time_it("window", &iov, SMALL, 16);
	time_it("window", &iov, SMALL, 64);
	time_it("window", &iov, SMALL, 256);
	time_it("window", &iov, MIDDLE, 1);
	time_it("window", &iov, MIDDLE, 16);
	T_EQ(vendor_maps(procs_worker(&mg)), 0);
	/* Data must still be right after the timed requests. */
	r = mg_ring(gpu_file("data"), 4, true);
	T_EQ(io(&r, &iov, 100, 777, SMALL), SMALL);
	T_EQ(differs(m.base + 100, 1, 777, SMALL), SMALL);
	mg_ring_end(&r);
	hf3fs_iovdestroy(&iov);
	drop(&m);
	same_context();
}

/* ----------------------------------------------------------------- by the device */

static void large_pieces_by_the_device(void)
{
	struct hf3fs_iov iov;
	struct memory m;
	struct mg_ring r;
	uint64_t begin;

	needs_mount();
	m = alloc(DEVICE_SIZE);
	iov = wrap(&m, 0, DEVICE_SIZE);
	put(m.base, 9, 0, DEVICE_SIZE);
	r = mg_ring(gpu_file("data"), 16, true);
	begin = t_now();
	T_EQ(io(&r, &iov, 0, 5, LARGE), (int64_t)LARGE);
	printf("# the first of %zu bytes, with libcuda and a context: %.1f ms\n", (size_t)LARGE,
	       (double)(t_now() - begin) / 1e6);
	for (size_t at = 0; at < DEVICE_SIZE; at += LARGE)
		T_EQ(io(&r, &iov, at, at + 55, LARGE), (int64_t)LARGE);
	T_EQ(differs(m.base, 1, 55, DEVICE_SIZE), DEVICE_SIZE);
	if (!soft)
		T_CHECK(vendor_maps(procs_worker(&mg)) > 0);
	T_EQ(vendor_maps(mg.pid), 0);
	mg_ring_end(&r);
	time_it("imported", &iov, LARGE, 1);
	time_it("imported", &iov, LARGE, 4);
	time_it("imported", &iov, LARGE, 16);
	time_it("imported", &iov, RIG_MIB(1), 16);
	time_it("imported", &iov, MIDDLE, 16);
	time_it("imported", &iov, SMALL, 1);
	time_it("imported", &iov, SMALL, 64);
	hf3fs_iovdestroy(&iov);
	drop(&m);
	same_context();
}

static void host_memory_beside_it(void)
{
	struct hf3fs_iov iov;

	needs_mount();
	T_OK(hf3fs_iovcreate(&iov, gpu_plain, DEVICE_SIZE, 0, -1));
	time_it("host memory, same mount", &iov, SMALL, 1);
	time_it("host memory, same mount", &iov, SMALL, 64);
	time_it("host memory, same mount", &iov, MIDDLE, 16);
	time_it("host memory, same mount", &iov, LARGE, 4);
	hf3fs_iovdestroy(&iov);
}

/* -------------------------------------------------------------------- bytes */

static void sizes_read_and_written(void)
{
	struct memory m, n;
	struct hf3fs_iov a, b;

	needs_mount();
	m = alloc(RIG_MIB(17));
	n = alloc(RIG_MIB(17));
	a = wrap(&m, 512, RIG_MIB(16) + 1024);
	b = wrap(&n, 512, RIG_MIB(16) + 1024);
	for (uint64_t len = 1; len <= RIG_MIB(16); len *= 4) {
		for (uint64_t odd = 0; odd < 2; odd++) {
			uint64_t at = odd * 77, off = odd * 99;

			put(m.base, 3, 0, len + 2048);
			T_EQ(gpu_read(&a, at, gpu_file("data"), off, len), (int64_t)len);
			T_OK(hf3fs_iovsync(&a, 1));
			T_EQ(differs(m.base + 512 + at, 1, off, len), len);
			T_EQ(differs(m.base, 3, 0, 512 + at), 512 + at);
			T_EQ(differs(m.base + 512 + at + len, 3, 512 + at + len, 1000), 1000);
			T_OK(hf3fs_iovsync(&a, 0));
			T_EQ(gpu_write(&a, at, gpu_file("back"), off, len), (int64_t)len);
			T_EQ(gpu_read(&b, 1, gpu_file("back"), off, len), (int64_t)len);
			T_EQ(differs(n.base + 513, 1, off, len), len);
			T_EQ(unlink(gpu_file("back")), 0);
		}
	}
	hf3fs_iovdestroy(&a);
	hf3fs_iovdestroy(&b);
	drop(&m);
	drop(&n);
	same_context();
}

/* A file with a hole of 100000 bytes and one of 1000: both must read as zeros. */
static void holes_become_zeros(void)
{
	static char buf[RIG_MIB(1)];
	struct hf3fs_iov iov;
	struct memory m;
	struct pst_mem *view;

	needs_mount();
	m = alloc(RIG_MIB(1));
	iov = wrap(&m, 0, RIG_MIB(1));
	rig_make(gpu_file("sparse"), 4, 50000);
	T_EQ(truncate(gpu_file("sparse"), 200000), 0);
	for (unsigned large = 0; large < 2; large++) {
		uint64_t off = large ? 0 : 49000, len = large ? 150000 : 2000;

		put(m.base, 9, 0, RIG_MIB(1));
		T_EQ(gpu_read(&iov, 8, gpu_file("sparse"), off, len), (int64_t)len);
		view = gpu_view(m.base, RIG_MIB(1));
		T_OK(pst_mem_copy_out(view, 0, buf, RIG_MIB(1)));
		(void)pst_mem_free(view);
		T_EQ(t_differs(buf + 8, 4, off, 50000 - off), 50000 - off);
		for (uint64_t i = 50000 - off; i < len; i++)
			T_EQ(buf[8 + i], 0);
		T_EQ(t_differs(buf + 8 + len, 9, 8 + len, 1000), 1000);
	}
	T_EQ(gpu_read(&iov, 0, gpu_file("sparse"), 200000, 100), 0);
	hf3fs_iovdestroy(&iov);
	drop(&m);
}

/* ------------------------------------------------------------- other processes */

static int status_of(pid_t pid)
{
	int status = -1;

	T_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + status;
}

static void others_see_and_publish_nothing(void)
{
	char path[400], text[USRBIO_GDR_MAX], mine[500];
	struct hf3fs_iov iov;
	struct memory m;
	pid_t pid;

	needs_mount();
	m = alloc(RIG_MIB(2));
	iov = wrap(&m, 0, RIG_MIB(2));
	gpu_path_of(&iov, number, path);
	mg_target(&iov, number, text);
	(void)snprintf(mine, sizeof(mine),
		       "%s/3fs-virt/iovs/01234567-89ab-4def-8123-456789abcdef.gdr.d%d", gpu_plain,
		       number);
	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		char seen[USRBIO_GDR_MAX];

		if (setgroups(0, NULL) < 0 || setresgid(65534, 65534, 65534) < 0 ||
		    setresuid(65534, 65534, 65534) < 0)
			_exit(100);
		if (readlink(path, seen, sizeof(seen)) >= 0 || errno != EPERM)
			_exit(1);
		if (unlink(path) == 0 || errno != EPERM)
			_exit(2);
		if (symlink(text, mine) == 0 || errno != EPERM)
			_exit(3);
		_exit(0);
	}
	T_EQ(status_of(pid), 0);
	hf3fs_iovdestroy(&iov);
	/*
	 * The memory is no longer published: another process of the same user must not publish
	 * it again.
	 */
	pid = fork();
	if (pid == 0)
		_exit(symlink(text, mine) < 0 && errno == EPERM ? 0 : 1);
	explicit_bzero(text, sizeof(text));
	T_EQ(status_of(pid), 0);
	drop(&m);
}

static int child_imports(void)
{
	hf3fs_gpu_ipc_handle_t h;
	struct hf3fs_iov iov;

	GPU_CHILD(read(0, &h, sizeof(h)) == sizeof(h));
	GPU_CHILD(hf3fs_iov_import_gpu(&iov, &h, gpu_plain) == 0);
	GPU_CHILD(differs(iov.base, 31, 0, iov.size) == iov.size);
	GPU_CHILD(gpu_read(&iov, 0, gpu_file("data"), 32, SMALL) == SMALL);
	GPU_CHILD(gpu_read(&iov, 0, gpu_file("data"), 32, iov.size) == (int64_t)iov.size);
	hf3fs_iovdestroy_gpu(&iov);
	return 0;
}

static void R2b_import_by_another_process(void)
{
	const size_t len = RIG_MIB(5) + 3;
	hf3fs_gpu_ipc_handle_t h;
	struct hf3fs_iov iov;
	struct memory m;

	needs_mount();
	m = alloc(RIG_MIB(8));
	put(m.base, 8, 0, RIG_MIB(8));
	iov = wrap(&m, 1234, len);
	put(iov.base, 31, 0, len);
	T_OK(hf3fs_iov_export_gpu(&iov, &h));
	T_EQ(gpu_other("import", &iov, &h, sizeof(h)), 0);
	T_EQ(differs(iov.base, 1, 32, len), len);
	T_EQ(differs(m.base, 8, 0, 1234), 1234);
	T_EQ(differs(m.base + 1234 + len, 8, 1234 + len, 4096), 4096);
	hf3fs_iovdestroy_gpu(&iov);
	drop(&m);
	same_context();
}

static int child_reads(void)
{
	struct hf3fs_iov iov = { 0 };
	struct mg_ring r;

	GPU_CHILD(hf3fs_iovcreate_device(&iov, gpu_plain, DEVICE_SIZE, 0, number) == 0);
	r = mg_ring(gpu_file("data"), 16, true);
	GPU_CHILD(io(&r, &iov, 0, 0, LARGE) == (int64_t)LARGE);
	GPU_CHILD(write(1, "go\n", 3) == 3);
	for (unsigned i = 0;; i++) {
		(void)hf3fs_prep_io(&r.ior, &iov, true, iov.base, r.fd, 0, i % 2 ? SMALL : LARGE,
				    NULL);
		(void)hf3fs_submit_ios(&r.ior);
		(void)hf3fs_wait_for_ios(&r.ior, &(struct hf3fs_cqe){ 0 }, 1, i % 2, NULL);
	}
}

/* Remove the shared memory that a killed process left in /dev/shm. */
static void remove_shm(pid_t pid)
{
	DIR *d = opendir("/dev/shm");
	struct dirent *e;
	char of[32];

	(void)snprintf(of, sizeof(of), ".p%d.", (int)pid);
	while (d && (e = readdir(d)))
		if (!strncmp(e->d_name, "hf3fs-iov-", 10) && strstr(e->d_name, of))
			(void)shm_unlink(e->d_name);
	if (d)
		(void)closedir(d);
}

/* The owner of the memory is killed during reads: its links must vanish, and the worker keeps
 * serving. */
static void an_owner_that_is_killed(void)
{
	struct procs_counts before = { 0 };
	struct hf3fs_iov iov;
	struct memory m;
	pid_t worker, pid;
	char go[3];
	int p[2];

	needs_mount();
	m = alloc(RIG_MIB(4));
	iov = wrap(&m, 0, RIG_MIB(4));
	T_EQ(gpu_read(&iov, 0, gpu_file("data"), 0, RIG_MIB(4)), RIG_MIB(4));
	worker = procs_worker(&mg);
	for (unsigned i = 0; i < 4; i++) {
		T_EQ(pipe(p), 0);
		(void)fflush(stdout);
		pid = fork();
		if (pid == 0) {
			(void)dup2(p[1], 1);
			(void)execl(gpu_self, gpu_self, "read", gpu_plain, gpu_daemon, "-",
				    (char *)NULL);
			_exit(127);
		}
		(void)close(p[1]);
		T_EQ(read(p[0], go, sizeof(go)), (ssize_t)sizeof(go));
		(void)usleep(30000 + i * 10000);
		T_EQ(kill(pid, SIGKILL), 0);
		T_EQ(waitpid(pid, NULL, 0), pid);
		remove_shm(pid);
		(void)close(p[0]);
		for (uint64_t until = t_hang(); procs_links(&mg) > 1 && t_now() < until;)
			(void)usleep(1000);
		T_EQ(procs_links(&mg), 1);
		if (i != 1)
			continue;
		before = procs_counts_of(&mg, worker);
		before.worker_fds += soft ? 0 : 16; /* the driver may open descriptors */
	}
	T_EQ(procs_worker(&mg), worker);
	procs_until_no_more(&mg, worker, &before);
	T_EQ(gpu_read(&iov, 0, gpu_file("data"), 3, SMALL), SMALL);
	T_EQ(differs(m.base, 1, 3, SMALL), SMALL);
	hf3fs_iovdestroy(&iov);
	drop(&m);
	same_context();
}

static void the_worker_is_killed(void)
{
	struct hf3fs_iov iov;
	struct memory m;
	struct mg_ring r;
	struct hf3fs_cqe c[8];
	pid_t worker;

	needs_mount();
	m = alloc(RIG_MIB(4));
	iov = wrap(&m, 0, RIG_MIB(4));
	r = mg_ring(gpu_file("data"), 8, true);
	T_EQ(io(&r, &iov, 0, 3, RIG_MIB(4)), RIG_MIB(4));
	worker = procs_worker(&mg);
	procs_stop(worker);
	for (unsigned i = 0; i < 8; i++)
		T_CHECK(hf3fs_prep_io(&r.ior, &iov, true, iov.base, r.fd, 0, LARGE, NULL) >= 0);
	T_OK(hf3fs_submit_ios(&r.ior));
	T_EQ(kill(worker, SIGKILL), 0);
	for (int got = 0; got < 8;) {
		int n = wait_some(&r.ior, c, 8);

		for (int i = 0; i < n; i++)
			T_EQ(c[i].result, -EREMOTEIO);
		got += n;
	}
	T_EQ(differs(m.base, 1, 3, RIG_MIB(4)), RIG_MIB(4));
	mg_ring_end(&r);
	hf3fs_iovdestroy(&iov);
	iov = wrap(&m, 0, RIG_MIB(4));
	T_EQ(gpu_read(&iov, 0, gpu_file("data"), 7, SMALL), SMALL);
	T_EQ(differs(m.base, 1, 7, SMALL), SMALL);
	hf3fs_iovdestroy(&iov);
	drop(&m);
	same_context();
}

/* ------------------------------------------------------------------- begin */

static void no_gpu(void)
{
	T_SKIP("%s", why_none);
}

static int child(char **argv)
{
	(void)snprintf(gpu_plain, sizeof(gpu_plain), "%s", argv[2]);
	if (setjmp(t_jump)) {
		(void)fprintf(stderr, "# child: %s\n", t_why);
		return 1;
	}
	GPU_CHILD(!why_none);
	if (!soft)
		HW_CU(cuStreamCreate(&stream, CU_NON_BLOCKING));
	return strcmp(argv[1], "read") ? child_imports() : child_reads();
}

int main(int argc, char **argv)
{
	bool is_child = argc == 5 && argv[1][0] != '-';
	const char *named = getenv("GPU_MOUNT_DEVICE");
	int opt;

	gpu_self = argv[0];
	while (!is_child && (opt = getopt(argc, argv, "m:t:")) != -1) {
		if (opt != 'm' && opt != 't')
			HW_DIE("usage: gpu-mount [-m DEVICE] [-t MS] [DIR]");
		if (opt == 'm')
			device = optarg;
		else
			time_ms = (unsigned)atoi(optarg);
	}
	if (is_child && named)
		device = named;
	(void)setenv("GPU_MOUNT_DEVICE", device, 1);
	soft = !strncmp(device, "soft", 4);
	number = soft ? (device[4] == ':' ? atoi(device + 5) : 0) : hw_ordinal(device);
	if (soft)
		(void)setenv("PST_USRBIO_DEVICE", "soft", 1);
	else
		why_none = hw_cuda(number);
	if (is_child)
		return child(argv);
	if (why_none) {
		T_RUN(no_gpu);
		return hw_done();
	}
	if (optind < argc)
		(void)setenv("PST_TEST_DIR", argv[optind], 1);
	if (!soft)
		HW_CU(cuStreamCreate(&stream, CU_NON_BLOCKING));
	gpu_rig_init();
	find_server();
	(void)snprintf(log_path, sizeof(log_path), "%s/log", rig_dir);
	T_RUN(a_mount_is_made);
	T_RUN(small_pieces_without_the_vendors_library);
	T_RUN(large_pieces_by_the_device);
	T_RUN(host_memory_beside_it);
	T_RUN(sizes_read_and_written);
	T_RUN(holes_become_zeros);
	T_RUN(others_see_and_publish_nothing);
	T_RUN(R2b_import_by_another_process);
	T_RUN(an_owner_that_is_killed);
	T_RUN(the_worker_is_killed);
	T_RUN(the_mount_ends);
	(void)unlink(log_path);
	return hw_done();
}
