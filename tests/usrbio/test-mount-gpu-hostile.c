/* SPDX-License-Identifier: MIT */
/*
 * Device memory on a mount under attacks and deaths: other users and processes, forged links,
 * owners and workers that end at any time.  On the software device.
 */
#include <grp.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/xattr.h>

#include "mount_gpu_rig.h"

#define LEN RIG_MIB(4)
#define SOON_NS UINT64_C(5000000000)

/* ------------------------------------------------------------- other users */

static void be_nobody(void)
{
	if (setgroups(0, NULL) < 0 || setresgid(MG_NOBODY, MG_NOBODY, MG_NOBODY) < 0 ||
	    setresuid(MG_NOBODY, MG_NOBODY, MG_NOBODY) < 0)
		_exit(100);
}

/* Return 0 if each call gives EPERM; otherwise the number of the first that does not. */
static int all_refused(const char *path)
{
	char text[USRBIO_GDR_MAX], other[440];
	struct stat st;
	int nr = 0;

	(void)snprintf(other, sizeof(other), "%s.r0.t0", path);
#define REFUSED(call)                                                                            \
	do {                                                                                     \
		nr++;                                                                            \
		errno = 0;                                                                       \
		if ((call) != -1 || errno != EPERM) {                                            \
			(void)fprintf(stderr, "# %s of %s: %s\n", #call, path, strerror(errno)); \
			return nr;                                                               \
		}                                                                                \
	} while (0)
	REFUSED(lstat(path, &st));
	REFUSED(stat(path, &st));
	REFUSED(access(path, F_OK));
	REFUSED(readlink(path, text, sizeof(text)));
	REFUSED(unlink(path));
	REFUSED(rmdir(path) < 0 && errno == ENOTDIR ? (errno = EPERM, -1) : rmdir(path));
	REFUSED(rename(path, other));
	REFUSED(link(path, other));
	REFUSED(open(path, O_RDONLY));
	REFUSED(open(path, O_PATH | O_NOFOLLOW));
	REFUSED(truncate(path, 0));
	REFUSED(chmod(path, 0777));
	REFUSED(lchown(path, MG_NOBODY, MG_NOBODY));
	REFUSED(utimensat(AT_FDCWD, path, NULL, AT_SYMLINK_NOFOLLOW));
	REFUSED((int)lgetxattr(path, "user.a", text, sizeof(text)));
	REFUSED(lsetxattr(path, "user.a", "b", 1, 0));
#undef REFUSED
	return 0;
}

/* Count the names in iovs that this process can see. */
static unsigned listed(void)
{
	return procs_links(&mg);
}

/* Run as user nobody: try to access what belongs to the owner. */
static int intrudes(const char *path, const char *ring, const char *text, const uint8_t id[16])
{
	struct usrbio_name name = { .kind = USRBIO_DEVICE };
	char mine[400], uuid[USRBIO_NAME_MAX];
	struct hf3fs_iov iov = { 0 };
	struct mg_ring r;
	struct usrbio_ring at;
	struct hf3fs_cqe c;
	int index;

	be_nobody();
	if (all_refused(path) || all_refused(ring))
		return 1;
	if (listed() != 0)
		return 2;
	/* Publish the owner's handle, in case this user got it, under another name. */
	memset(name.id, 7, sizeof(name.id));
	usrbio_name_format(&name, uuid);
	(void)snprintf(mine, sizeof(mine), "%s/3fs-virt/iovs/%s", gpu_plain, uuid);
	if (symlink(text, mine) == 0 || errno != EPERM)
		return 3;
	/* Name the owner's memory in this user's own ring. */
	if (hf3fs_iovcreate(&iov, gpu_plain, 4096, 0, -1) != 0)
		return 4;
	r = mg_ring(gpu_file("data"), 4, true);
	index = hf3fs_prep_io(&r.ior, &iov, true, iov.base, r.fd, 0, 4096, NULL);
	if (index < 0 || usrbio_ring_at(r.ior.iov.base, r.ior.iov.size, &at) < 0)
		return 5;
	memcpy(at.args[index].buf_id, id, 16);
	if (hf3fs_submit_ios(&r.ior) != 0 || hf3fs_wait_for_ios(&r.ior, &c, 1, 1, NULL) != 1 ||
	    c.result != -EINVAL)
		return 6;
	mg_ring_end(&r);
	hf3fs_iovdestroy(&iov);
	return 0;
}

/* Return a child's exit status. */
static int status_of(pid_t pid)
{
	int status = -1;

	T_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + status;
}

/* Find the ring's link: the only one that is not a device's. */
static void ring_path(char ret[400])
{
	char dir[200];
	struct dirent *e;
	DIR *d;

	(void)snprintf(dir, sizeof(dir), "%s/3fs-virt/iovs", gpu_plain);
	d = opendir(dir);
	T_CHECK(d);
	while ((e = readdir(d)) != NULL)
		if (strstr(e->d_name, ".r"))
			(void)snprintf(ret, 400, "%s/%.190s", dir, e->d_name);
	(void)closedir(d);
}

static void another_user(void)
{
	char path[400], ring[400] = "", text[USRBIO_GDR_MAX];
	struct hf3fs_iov iov;
	struct mg_ring r;
	pid_t pid;

	mg_begin();
	rig_make(gpu_file("data"), 3, 65536);
	T_EQ(chmod(gpu_file("data"), 0644), 0);
	iov = mg_create(65536);
	r = mg_ring(gpu_file("data"), 4, true);
	gpu_path_of(&iov, 0, path);
	ring_path(ring);
	mg_target(&iov, 0, text);
	gpu_fill(iov.base, 65536, 5, 0);
	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		/* The library belongs to the parent process, so exec this program again. */
		(void)execl(gpu_self, gpu_self, "intrude", path, ring, text, gpu_plain,
			    (char *)NULL);
		_exit(127);
	}
	T_EQ(status_of(pid), 0);
	T_EQ(gpu_differs(iov.base, 65536, 5, 0), 65536);
	T_EQ(mg_io(&r, &iov, 0, 0, 4096), 4096);
	mg_ring_end(&r);
	hf3fs_iovdestroy(&iov);
	mg_end();
}

/* --------------------------------------------------------- other processes */

static int publish(const struct usrbio_gdr *gdr, int device)
{
	struct usrbio_name name = { .kind = USRBIO_DEVICE, .device = device };
	char uuid[USRBIO_NAME_MAX], path[400], text[USRBIO_GDR_MAX];
	int err;

	memcpy(name.id, gpu_id(), sizeof(name.id));
	usrbio_name_format(&name, uuid);
	(void)snprintf(path, sizeof(path), "%s/3fs-virt/iovs/%s", gpu_plain, uuid);
	usrbio_gdr_format(gdr, text);
	if (symlink(text, path) < 0)
		return -errno;
	err = unlink(path) < 0 ? -errno : 0;
	T_EQ(err, 0);
	return 0;
}

/* Publish, in another process of the user, a handle that its owner has or has not published. */
static void a_handle_of_another_process(void)
{
	struct usrbio_gdr g;
	struct hf3fs_iov iov;
	pid_t pid;

	mg_begin();
	iov = mg_create(65536);
	g = gpu_published(&iov, 0);
	for (int published = 1; published >= 0; published--) {
		(void)fflush(stdout);
		pid = fork();
		if (pid == 0)
			_exit(publish(&g, 0) == -EPERM ? 0 : 1);
		T_EQ(status_of(pid), 0);
		hf3fs_iovunlink(&iov);
	}
	/* The owner may publish the handle again. */
	T_EQ(publish(&g, 0), 0);
	hf3fs_iovdestroy(&iov);
	mg_end();
}

/* The owner's PID belongs to no process. */
static void a_handle_of_nobody(void)
{
	struct usrbio_gdr g = { .allocation = 4096, .size = 4096 };
	struct usrbio_soft s = { .fd = 3, .size = 4096, .ino = 1 };
	pid_t pid;

	mg_begin();
	pid = fork();
	if (pid == 0)
		_exit(0);
	T_EQ(status_of(pid), 0);
	s.pid = pid;
	usrbio_soft_format(&s, g.ipc);
	T_EQ(publish(&g, 0), -EPERM);
	mg_end();
}

/* Handles that name other descriptors of this process, or have invalid numbers. */
static void forged_handles(void)
{
	const char *path;
	struct usrbio_gdr good, g;
	struct usrbio_soft s, f;
	struct hf3fs_iov iov;
	struct stat st;
	int fd;

	mg_begin();
	path = gpu_file("data");
	rig_make(path, 3, 65536);
	iov = mg_create(65536);
	g = good = gpu_published(&iov, 0);
	T_OK(usrbio_soft_parse(good.ipc, &s));
#define FORGED(change, result)                 \
	do {                                   \
		f = s;                         \
		g = good;                      \
		change;                        \
		usrbio_soft_format(&f, g.ipc); \
		T_EQ(publish(&g, 0), result);  \
	} while (0)
	FORGED((void)f, 0);
	FORGED(f.pid = 0, -EINVAL);
	FORGED(f.pid = 1 << 23, -EINVAL);
	FORGED(f.pid = 1, -EPERM);
	FORGED(f.pid = mg.pid, -EPERM);
	FORGED(f.fd = 1 << 20, -EINVAL);
	FORGED(f.fd = -1, -EINVAL);
	FORGED(f.ino++, -EINVAL);
	FORGED(f.dev++, -EINVAL);
	FORGED(f.size *= 2, -EINVAL);
	FORGED((f.size *= 2, g.allocation *= 2), -EINVAL);
	FORGED((f.size /= 2, g.allocation /= 2, g.size = g.allocation), -EINVAL);
	FORGED(memset(f.uuid, 9, sizeof(f.uuid)), -ENODEV);
	/* A file without seals, a pipe and a device. */
	fd = open(path, O_RDWR | O_CLOEXEC);
	T_CHECK(fd >= 0 && fstat(fd, &st) == 0);
	FORGED((f.fd = fd, f.ino = st.st_ino, f.dev = st.st_dev, f.size = g.allocation = 65536,
		g.size = 4096),
	       -EINVAL);
	T_EQ(close(fd), 0);
	fd = memfd_create("unsealed", MFD_CLOEXEC);
	T_CHECK(fd >= 0 && ftruncate(fd, 65536) == 0 && fstat(fd, &st) == 0);
	FORGED((f.fd = fd, f.ino = st.st_ino, f.dev = st.st_dev, f.size = g.allocation = 65536,
		g.size = 4096),
	       -EINVAL);
	T_EQ(close(fd), 0);
	fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	T_CHECK(fd >= 0 && fstat(fd, &st) == 0);
	FORGED((f.fd = fd, f.ino = st.st_ino, f.dev = st.st_dev), -EINVAL);
	T_EQ(close(fd), 0);
#undef FORGED
	/* Bytes that look like CUDA's: they contain this PID, but no driver made them. */
	g = good;
	t_fill(g.ipc, 5, 0, sizeof(g.ipc));
	g.ipc[8] = (uint8_t)getpid();
	g.ipc[9] = (uint8_t)(getpid() >> 8);
	g.ipc[10] = (uint8_t)(getpid() >> 16);
	g.ipc[11] = 0;
	T_CHECK(publish(&g, 0) < 0);
	T_EQ(gpu_read(&iov, 0, gpu_file("data"), 0, 4096), 4096);
	hf3fs_iovdestroy(&iov);
	mg_end();
}

/* -------------------------------------------------------------------- links */

static void malformed_links(void)
{
	static const char id[] = "01234567-89ab-4def-8123-456789abcdef";
	static const char good[] = "gdr://v2/device/0/allocation/4096/offset/0/size/4096/ipc/";
	static const struct {
		const char *name, *target;
		int err;
	} bad[] = {
		/* %s in a name is the UUID; in a target, the handle. */
		{ "%s.gdr", "gdr://v2/device/0/allocation/4096/offset/0/size/4096/ipc/%s", EINVAL },
		{ "%s.gdr.d", "gdr://v2/device/0/allocation/4096/offset/0/size/4096/ipc/%s",
		  EINVAL },
		{ "%s.d0", "gdr://v2/device/0/allocation/4096/offset/0/size/4096/ipc/%s", EINVAL },
		{ "%s.gdr.d-1", "gdr://v2/device/0/allocation/4096/offset/0/size/4096/ipc/%s",
		  EINVAL },
		{ "%s.gdr.d2147483648",
		  "gdr://v2/device/0/allocation/4096/offset/0/size/4096/ipc/%s", EINVAL },
		{ "%s.gdr.d0.gdr.d0", "gdr://v2/device/0/allocation/4096/offset/0/size/4096/ipc/%s",
		  EINVAL },
		{ "%s.gdr.d0.b4096", "gdr://v2/device/0/allocation/4096/offset/0/size/4096/ipc/%s",
		  EINVAL },
		{ "%s.r4.gdr.d0", "gdr://v2/device/0/allocation/4096/offset/0/size/4096/ipc/%s",
		  EINVAL },
		{ "%s.gdr.d0x", "gdr://v2/device/0/allocation/4096/offset/0/size/4096/ipc/%s",
		  EINVAL },
		{ "%s.gdr.d1", "gdr://v2/device/0/allocation/4096/offset/0/size/4096/ipc/%s",
		  EINVAL },
		{ "%s", "gdr://v2/device/0/allocation/4096/offset/0/size/4096/ipc/%s", EINVAL },
		{ "%s.gdr.d0", "/dev/shm/nothing", EINVAL },
		{ "%s.gdr.d0", "gdr://", EINVAL },
		{ "%s.gdr.d0", "gdr://device/0/ptr/4096/size/4096", EPROTONOSUPPORT },
		{ "%s.gdr.d0", "gdr://v1/device/0/size/4096/ipc/%s", EPROTONOSUPPORT },
		{ "%s.gdr.d0", "gdr://v3/device/0/allocation/4096/offset/0/size/4096/ipc/%s",
		  EPROTONOSUPPORT },
		{ "%s.gdr.d0", "GDR://v2/device/0/allocation/4096/offset/0/size/4096/ipc/%s",
		  EINVAL },
		{ "%s.gdr.d0", "gdr://v2/device/0/allocation/0/offset/0/size/4096/ipc/%s", EINVAL },
		{ "%s.gdr.d0", "gdr://v2/device/0/allocation/4096/offset/0/size/0/ipc/%s", EINVAL },
		{ "%s.gdr.d0", "gdr://v2/device/0/allocation/4096/offset/1/size/4096/ipc/%s",
		  EINVAL },
		{ "%s.gdr.d0", "gdr://v2/device/0/allocation/4096/offset/4097/size/1/ipc/%s",
		  EINVAL },
		{ "%s.gdr.d0",
		  "gdr://v2/device/0/allocation/18446744073709551615/offset/"
		  "18446744073709551615/size/1/ipc/%s",
		  EINVAL },
		{ "%s.gdr.d0",
		  "gdr://v2/device/0/allocation/18446744073709551616/offset/0/size/1/ipc/%s",
		  EINVAL },
		{ "%s.gdr.d0", "gdr://v2/device/-0/allocation/4096/offset/0/size/4096/ipc/%s",
		  EINVAL },
		{ "%s.gdr.d0", "gdr://v2/device/0/allocation/0x1000/offset/0/size/4096/ipc/%s",
		  EINVAL },
		{ "%s.gdr.d0", "gdr://v2/allocation/4096/device/0/offset/0/size/4096/ipc/%s",
		  EINVAL },
		{ "%s.gdr.d0", "gdr://v2/device/0/allocation/4096/offset/0/size/4096/ipc/%sx",
		  EINVAL },
		{ "%s.gdr.d0", "gdr://v2/device/0/allocation/4096/offset/0/size/4096/ipc/00",
		  EINVAL },
		{ "%s.gdr.d0", "gdr://v2/device/0/allocation/4096/offset/0/size/4096/ipc/",
		  EINVAL },
		{ "%s.gdr.d0", "gdr://v2/device/0/allocation/4096/offset/0/size/4096/ipc/%s/..",
		  EINVAL },
	};
	char zeros[2 * USRBIO_IPC_LEN + 1], path[500], name[200], target[1000];

	mg_begin();
	memset(zeros, '0', sizeof(zeros) - 1);
	zeros[sizeof(zeros) - 1] = '\0';
	for (unsigned i = 0; i < RIG_NR(bad); i++) {
		int err;

		/* The format strings come only from this table. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		(void)snprintf(name, sizeof(name), bad[i].name, id);
		(void)snprintf(target, sizeof(target), bad[i].target, zeros);
#pragma GCC diagnostic pop
		(void)snprintf(path, sizeof(path), "%s/3fs-virt/iovs/%s", gpu_plain, name);
		err = symlink(target, path) < 0 ? errno : 0;
		if (err != bad[i].err)
			T_FAIL("%s -> %s gives %s", name, bad[i].target, strerror(err));
	}
	/* Too long, not terminated, and a handle of no process. */
	(void)snprintf(path, sizeof(path), "%s/3fs-virt/iovs/%s.gdr.d0", gpu_plain, id);
	memset(target, 'a', sizeof(target));
	memcpy(target, good, sizeof(good) - 1);
	target[sizeof(target) - 1] = '\0';
	T_CHECK(symlink(target, path) < 0 && errno == EINVAL);
	target[USRBIO_GDR_MAX] = '\0';
	T_CHECK(symlink(target, path) < 0 && errno == EINVAL);
	(void)snprintf(target, sizeof(target), "%s%s", good, zeros);
	T_CHECK(symlink(target, path) < 0 && errno == EINVAL);
	mg_end();
}

static void names_that_are_taken(void)
{
	char path[400], text[USRBIO_GDR_MAX], other[440];
	struct hf3fs_iov iov, host, no;

	mg_begin();
	iov = mg_create(8192);
	T_OK(hf3fs_iovcreate(&host, gpu_plain, 4096, 0, -1));
	gpu_path_of(&iov, 0, path);
	mg_target(&iov, 0, text);
	T_CHECK(symlink(text, path) < 0 && errno == EEXIST);
	/* The same UUID for another device, or for a buffer. */
	(void)snprintf(other, sizeof(other), "%s", path);
	*strstr(other, ".gdr") = '\0';
	T_CHECK(symlink("/dev/shm/x", other) < 0 && errno == EINVAL);
	T_EQ(hf3fs_iovwrap_device(&no, iov.base, (uint8_t *)iov.id, gpu_plain, 4096, 0, 0),
	     -EEXIST);
	T_EQ(hf3fs_iovwrap_device(&no, iov.base, (uint8_t *)host.id, gpu_plain, 4096, 0, 0),
	     -EEXIST);
	T_EQ(listed(), 2);
	hf3fs_iovdestroy(&host);
	hf3fs_iovdestroy(&iov);
	mg_end();
}

/* ------------------------------------------------------------------ secrets */

/* Neither log lines of server and worker nor their environment contain a part of the handle. */
static void handles_are_not_told(void)
{
	static const char *const places[] = { "cmdline", "environ", "comm", "status", "mountinfo" };
	char log[160], text[USRBIO_GDR_MAX], path[64], *buf = malloc(RIG_MIB(1));
	const char *hex;
	struct hf3fs_iov iov;
	pid_t of[2];
	size_t n;
	FILE *f;

	T_CHECK(buf);
	(void)snprintf(log, sizeof(log), "%s/log", rig_dir);
	T_EQ(setenv("PST_TEST_MOUNT_LOG", log, 1) + setenv("PST_LOG", "debug", 1), 0);
	mg_begin();
	T_EQ(unsetenv("PST_TEST_MOUNT_LOG") + unsetenv("PST_LOG"), 0);
	rig_make(gpu_file("data"), 3, RIG_MIB(1));
	iov = mg_create(RIG_MIB(1));
	mg_target(&iov, 0, text);
	hex = strstr(text, "/ipc/") + 5;
	T_EQ(gpu_read(&iov, 0, gpu_file("data"), 0, 4096), 4096);
	T_EQ(gpu_read(&iov, 0, gpu_file("data"), 0, RIG_MIB(1)), RIG_MIB(1));
	{
		struct usrbio_gdr g = gpu_published(&iov, 0);

		g.ipc[20] ^= 1;
		T_CHECK(publish(&g, 0) < 0);
	}
	of[0] = mg.pid;
	of[1] = procs_worker(&mg);
	for (unsigned i = 0; i < 2 * RIG_NR(places) + 1; i++) {
		const char *from = log;

		(void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)of[i % 2],
			       places[i / 2 % 5]);
		if (i < 2 * RIG_NR(places))
			from = path;
		f = fopen(from, "re");
		T_CHECK(f);
		n = fread(buf, 1, RIG_MIB(1) - 1, f);
		(void)fclose(f);
		for (size_t at = 0; at < n; at++)
			if (!buf[at])
				buf[at] = ' ';
		buf[n] = '\0';
		for (unsigned at = 0; at + 16 <= 2 * USRBIO_IPC_LEN; at += 8) {
			char part[17];

			/* The device's UUID is not secret. */
			if (at >= 80 && at < 112)
				continue;
			memcpy(part, hex + at, 16);
			part[16] = '\0';
			if (strspn(part, "0") < 16 && strstr(buf, part))
				T_FAIL("%s tells %s of the handle", from, part);
		}
	}
	/* The debug log is not empty. */
	T_CHECK(n > 0);
	free(buf);
	hf3fs_iovdestroy(&iov);
	mg_end();
}

/* ------------------------------------------------------------------- deaths */

/* A client that reads into its memory for ever, with small and large requests. */
static int reads_for_ever(void)
{
	struct hf3fs_iov iov;
	struct mg_ring r;

	if (hf3fs_iovcreate_device(&iov, gpu_plain, LEN, 0, 0) != 0)
		return 1;
	r = mg_ring(gpu_file("data"), 8, true);
	for (unsigned i = 0;; i++) {
		(void)hf3fs_prep_io(&r.ior, &iov, true, iov.base, r.fd, 0, i % 3 ? 4096 : LEN,
				    NULL);
		(void)hf3fs_submit_ios(&r.ior);
		(void)hf3fs_wait_for_ios(&r.ior, &(struct hf3fs_cqe){ 0 }, 1, i % 2, NULL);
	}
}

static void lives_for(unsigned us)
{
	pid_t pid = fork();

	if (pid == 0) {
		(void)execl(gpu_self, gpu_self, "read", gpu_plain, (char *)NULL);
		_exit(127);
	}
	(void)usleep(us);
	T_EQ(kill(pid, SIGKILL), 0);
	T_EQ(waitpid(pid, NULL, 0), pid);
}

static void owners_die_in_the_middle(void)
{
	struct procs_counts ours = {
		.links = 2, .server_fds = 1000, .worker_fds = 1000, .maps = 3
	};
	unsigned nr = getenv("PST_SOAK") ? 500 : 20;
	struct hf3fs_iov iov;
	struct mg_ring r;
	pid_t worker;

	mg_begin();
	rig_make(gpu_file("data"), 3, LEN);
	iov = mg_create(65536);
	r = mg_ring(gpu_file("data"), 4, true);
	T_EQ(mg_io(&r, &iov, 0, 0, 4096), 4096);
	worker = procs_worker(&mg);
	/* Executing threads start with the first rings: warm up. */
	lives_for(300000);
	procs_until_no_more(&mg, worker, &ours);
	ours = procs_counts_of(&mg, worker);
	for (unsigned i = 0; i < nr; i++)
		lives_for(20000 + i * 37 % 97 * 500);
	procs_until_no_more(&mg, worker, &ours);
	T_EQ(procs_worker(&mg), worker);
	T_EQ(mg_io(&r, &iov, 0, 0, 65536), 65536);
	T_EQ(gpu_differs(iov.base, 65536, 3, 0), 65536);
	mg_ring_end(&r);
	hf3fs_iovdestroy(&iov);
	procs_remove_shm();
	mg_end();
}

static void the_worker_dies_in_the_middle(void)
{
	struct hf3fs_iov iov;
	struct mg_ring r;
	struct hf3fs_cqe c[8];
	uint64_t from;
	pid_t worker;
	int got = 0;

	mg_begin();
	rig_make(gpu_file("data"), 3, LEN);
	iov = mg_create(LEN);
	r = mg_ring(gpu_file("data"), 8, true);
	T_EQ(mg_io(&r, &iov, 0, 0, LEN), (int64_t)LEN);
	worker = procs_worker(&mg);
	procs_stop(worker);
	for (unsigned i = 0; i < 8; i++)
		T_CHECK(hf3fs_prep_io(&r.ior, &iov, true, iov.base, r.fd, 0, i % 2 ? LEN : 4096,
				      NULL) >= 0);
	T_OK(hf3fs_submit_ios(&r.ior));
	T_EQ(kill(worker, SIGKILL), 0);
	from = t_now();
	while (got < 8) {
		int n = hf3fs_wait_for_ios(&r.ior, c, 8, 1, NULL);

		T_CHECK(n > 0);
		for (int i = 0; i < n; i++)
			T_EQ(c[i].result, -EREMOTEIO);
		got += n;
	}
	T_CHECK(t_now() - from < SOON_NS);
	/* The owner's memory is unchanged. */
	T_EQ(gpu_differs(iov.base, LEN, 3, 0), LEN);
	mg_ring_end(&r);
	hf3fs_iovdestroy(&iov);
	T_EQ(listed(), 0);
	iov = mg_create(LEN);
	r = mg_ring(gpu_file("data"), 8, true);
	T_CHECK(procs_worker(&mg) != worker);
	T_EQ(mg_io(&r, &iov, 0, 1, 4096), 4096);
	T_EQ(gpu_differs(iov.base, 4096, 3, 1), 4096);
	mg_ring_end(&r);
	hf3fs_iovdestroy(&iov);
	mg_end();
}

/* ------------------------------------------------- links that go meanwhile */

struct reader {
	struct mg_ring r;
	struct hf3fs_iov iov;
	_Atomic unsigned done, bad;
	_Atomic bool stop;
};

static void *reader(void *arg)
{
	struct reader *d = arg;

	for (unsigned i = 0; !d->stop; i++) {
		uint64_t len = i % 2 ? LEN : 4096;
		int64_t n = mg_io(&d->r, &d->iov, 0, 0, len);

		/* A request gets EINVAL after its memory was removed. */
		d->bad += n != (int64_t)len && n != -EINVAL;
		d->done++;
	}
	return NULL;
}

static void a_link_goes_under_requests(void)
{
	static struct reader d; /* used by a thread that may outlive a failure */
	struct procs_counts before = { 0 };
	uint64_t until;
	pthread_t t;

	mg_begin();
	rig_make(gpu_file("data"), 3, LEN);
	d.r = mg_ring(gpu_file("data"), 4, true);
	for (unsigned i = 0; i < 20; i++) {
		d.iov = mg_create(LEN);
		d.stop = false;
		d.done = 0;
		T_EQ(pthread_create(&t, NULL, reader, &d), 0);
		until = t_hang();
		while (d.done < 3 + i && t_now() < until)
			(void)usleep(100);
		hf3fs_iovunlink(&d.iov);
		/* Nothing writes to the memory any more. */
		gpu_fill(d.iov.base, LEN, 77, 0);
		(void)usleep(2000);
		T_EQ(gpu_differs(d.iov.base, LEN, 77, 0), LEN);
		d.stop = true;
		T_EQ(pthread_join(t, NULL), 0);
		T_EQ(d.bad, 0);
		hf3fs_iovdestroy(&d.iov);
		if (i == 5)
			before = procs_counts_of(&mg, procs_worker(&mg));
	}
	procs_until_no_more(&mg, procs_worker(&mg), &before);
	mg_ring_end(&d.r);
	mg_end();
}

/* -------------------------------------------------------------------- begin */

static int child(int argc, char **argv)
{
	uint8_t id[16];

	if (setjmp(t_jump)) {
		(void)fprintf(stderr, "# child: %s\n", t_why);
		return 99;
	}
	if (!strcmp(argv[1], "read")) {
		(void)snprintf(gpu_plain, sizeof(gpu_plain), "%s", argv[2]);
		return reads_for_ever();
	}
	if (argc != 6 || usrbio_id_parse(strrchr(argv[2], '/') + 1, id) < 0)
		return 98;
	(void)snprintf(gpu_plain, sizeof(gpu_plain), "%s", argv[5]);
	(void)snprintf(mg.mnt, sizeof(mg.mnt), "%s", argv[5]);
	return intrudes(argv[2], argv[3], argv[4], id);
}

int main(int argc, char **argv)
{
	(void)setenv("PST_USRBIO_DEVICE", "soft", 1);
	(void)setenv("PST_SOFT_DEVICES", "2", 1);
	gpu_self = argv[0];
	if (argc > 2)
		return child(argc, argv);
	gpu_rig_init();
	T_RUN(another_user);
	T_RUN(a_handle_of_another_process);
	T_RUN(a_handle_of_nobody);
	T_RUN(forged_handles);
	T_RUN(malformed_links);
	T_RUN(names_that_are_taken);
	T_RUN(handles_are_not_told);
	T_RUN(owners_die_in_the_middle);
	T_RUN(the_worker_dies_in_the_middle);
	T_RUN(a_link_goes_under_requests);
	return gpu_rig_done();
}
