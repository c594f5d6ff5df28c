/* SPDX-License-Identifier: MIT */
/*
 * A mount whose source runs full, denies more space, or is unmounted.  The mount is
 * PST_TEST_MOUNT's penstock-mount.
 */
#include <grp.h>

#include "api_rig.h"
#include "mount_procs.h"

#include "fusefs.h"

#define NOBODY 65534u
#define PIECE 65536u
#define IMAGE_MIB 16u

static struct mount_rig rig;
static struct hf3fs_iov iov;
static struct hf3fs_ior reads, writes;
static int fd;

static int run(const char *fmt, const char *a, const char *b)
{
	char cmd[600];

	(void)snprintf(cmd, sizeof(cmd), fmt, a, b);
	return system(cmd);
}

/* Mount a separate file system at the source's path. */
static int make_source(const struct mount_rig *m)
{
	char image[200];

	(void)snprintf(image, sizeof(image), "%s/image", m->dir);
	if (run("truncate -s 16M '%s' && mkfs.ext4 -q -F -m 0 '%s'", image, image) != 0)
		return -1;
	return run("mount -o loop '%s' '%s'", image, m->back);
}

static void drop_source(const struct mount_rig *m)
{
	(void)umount2(m->back, MNT_DETACH);
}

static void begin(void)
{
	if (!getenv("PST_TEST_MOUNT"))
		T_SKIP("PST_TEST_MOUNT, which names penstock-mount");
	mount_rig_prepare = make_source;
	mount_rig_undo = drop_source;
	if (mount_rig_start(&rig, API_DAEMON, NULL) < 0)
		T_SKIP("%s", rig.why);
	mnt = rig.mnt;
	T_EQ(chmod(rig.back, 0777), 0);
	iov = api_iov(PIECE);
	reads = api_ior(8, true);
	writes = api_ior(8, false);
	fd = api_open("data", PIECE);
	t_fill(iov.base, 3, 0, PIECE);
}

static void end_rings(void)
{
	hf3fs_iordestroy(&reads);
	hf3fs_iordestroy(&writes);
	hf3fs_iovdestroy(&iov);
	hf3fs_dereg_fd(fd);
	(void)close(fd);
	T_EQ(api_shm(), 0);
}

static void end(void)
{
	end_rings();
	T_EQ(mount_rig_stop(&rig), 0);
}

/* Write pieces through a ring until one fails; return its result. */
static int64_t fill(const struct hf3fs_ior *by, const struct hf3fs_iov *from, int to)
{
	for (unsigned i = 0; i < 4 * IMAGE_MIB * 16; i++) {
		int64_t n = api_io(by, from, 0, to, (size_t)i * PIECE, PIECE);

		if (n != PIECE)
			return n;
	}
	return 0;
}

static void reads_well(void)
{
	memset(iov.base, 0, PIECE);
	T_EQ(api_io(&reads, &iov, 0, fd, 0, PIECE), PIECE);
	T_EQ(t_differs(iov.base, API_SEED, 0, PIECE), PIECE);
}

static int another_reads(void)
{
	struct hf3fs_iov mine;
	struct hf3fs_ior ring;
	int file;

	T_CHECK(setgroups(0, NULL) == 0 && setresgid(NOBODY, NOBODY, NOBODY) == 0 &&
		setresuid(NOBODY, NOBODY, NOBODY) == 0);
	mine = api_iov(PIECE);
	ring = api_ior(4, true);
	file = open(api_path("data"), O_RDONLY | O_CLOEXEC);
	T_CHECK(file >= 0 && hf3fs_reg_fd(file, 0) <= 0);
	T_EQ(api_io(&ring, &mine, 0, file, 0, PIECE), PIECE);
	T_EQ(t_differs(mine.base, API_SEED, 0, PIECE), PIECE);
	hf3fs_iordestroy(&ring);
	hf3fs_iovdestroy(&mine);
	return 0;
}

/* Writes fail with ENOSPC, other calls work, and freed space can be written. */
static void disk_full(void)
{
	struct procs_counts before;
	pid_t worker;
	int file;

	begin();
	worker = procs_worker(&rig);
	reads_well();
	file = api_open("big", 0);
	t_fill(iov.base, 3, 0, PIECE);
	T_EQ(api_io(&writes, &iov, 0, file, 0, PIECE), PIECE);
	T_EQ(api_child(another_reads), 0);
	before = procs_counts_of(&rig, worker);
	for (unsigned i = 0; i < 3; i++) {
		t_fill(iov.base, 3, 0, PIECE);
		T_EQ(fill(&writes, &iov, file), -ENOSPC);
		reads_well();
		T_EQ(api_child(another_reads), 0);
		/* Bytes written before are intact. */
		T_EQ(api_io(&reads, &iov, 0, file, PIECE, PIECE), PIECE);
		T_EQ(t_differs(iov.base, 3, 0, PIECE), PIECE);
		T_EQ(ftruncate(file, 0), 0);
	}
	T_EQ(api_io(&writes, &iov, 0, file, 0, PIECE), PIECE);
	procs_until_no_more(&rig, worker, &before);
	api_close(file);
	end();
}

/* ------------------------------------------------------------------- quota */

/* A FUSE file system below the source gives EDQUOT, because few test kernels have quotas. */
static void quota_exceeded(void)
{
	struct fusefs fs;
	char path[PATH_MAX];
	int file;

	begin();
	if (fusefs_start(&fs, rig.back) < 0) {
		end();
		T_SKIP("%s", fs.why);
	}
	(void)snprintf(path, sizeof(path), "%s%s/quota", mnt, fs.dir + strlen(rig.back));
	file = open(path, O_RDWR | O_CLOEXEC);
	T_CHECK(file >= 0 && hf3fs_reg_fd(file, 0) <= 0);
	for (unsigned i = 0; i < 20; i++) {
		T_EQ(api_io(&writes, &iov, 0, file, i * PIECE, PIECE), -EDQUOT);
		T_EQ(api_io(&reads, &iov, 0, file, i * PIECE, PIECE), PIECE);
		T_EQ(t_differs(iov.base, FUSEFS_SEED, i * PIECE, PIECE), PIECE);
		reads_well();
		T_EQ(api_io(&writes, &iov, 0, fd, PIECE, PIECE), PIECE);
	}
	hf3fs_dereg_fd(file);
	T_EQ(close(file), 0);
	end_rings();
	T_EQ(mount_rig_end(&rig), 0);
	fusefs_stop(&fs);
	mount_rig_remove(&rig);
}

/* -------------------------------------------------------------- taken away */

/* A process can continue to use an open file; the last close releases the source. */
static void source_unmounted_lazily(void)
{
	int file;

	begin();
	T_EQ(umount2(rig.back, MNT_DETACH), 0);
	reads_well();
	T_EQ(api_child(another_reads), 0);
	/* The mount still sees the source, even for new names. */
	file = api_open("new", PIECE);
	T_EQ(api_io(&reads, &iov, 0, file, 0, PIECE), PIECE);
	T_EQ(t_differs(iov.base, API_SEED, 0, PIECE), PIECE);
	t_fill(iov.base, 3, 0, PIECE);
	T_EQ(api_io(&writes, &iov, 0, file, PIECE, PIECE), PIECE);
	api_close(file);
	end();
}

int main(void)
{
	api_init();
	T_RUN(disk_full);
	T_RUN(quota_exceeded);
	T_RUN(source_unmounted_lazily);
	return api_done();
}
