/* SPDX-License-Identifier: MIT */
/* Checks of a move, and what it preserves and refuses. */
#include "calls.h"
#include "move_rig.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/err.h"
#include "tier/copy.h"
#include "tier/scrub.h"

static unsigned calls, nr_writes;

static int count_writes(const char *call)
{
	/* All room is reserved before the first write. */
	if (!strcmp(call, "fallocate64"))
		T_EQ(nr_writes, 0);
	calls += !strcmp(call, "fallocate64");
	nr_writes += !strcmp(call, "pwrite64");
	return 0;
}

#define PACED KIB(64)
#define PACED_MS 20u

static uint64_t paced_since;
static unsigned paced_nr;

/* The first chunk takes a hundred seconds and more by the clock. */
static int stall(void *arg)
{
	(void)arg;
	paced_nr++;
	jump_ns = paced_nr == 1 ? 100 * NSEC_PER_SEC : 0;
	if (paced_nr == 3)
		paced_since = now_ns();
	return 0;
}

/* A copy that was delayed does not catch up by a burst. */
void copies_are_even(void)
{
	struct copy_job job = {
		.size = 10 * PACED, .chunk = PACED, .rate = PACED * 1000 / PACED_MS, .go_on = stall
	};
	char from[512], to[512], buf[4096] = "a";

	set_up();
	(void)snprintf(from, sizeof(from), "%s/from", base);
	(void)snprintf(to, sizeof(to), "%s/to", base);
	job.src = open(from, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	job.dst = open(to, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	T_CHECK(job.src >= 0 && job.dst >= 0);
	for (uint64_t off = 0; off < job.size; off += sizeof(buf))
		T_EQ(pwrite(job.src, buf, sizeof(buf), (off_t)off), sizeof(buf));
	paced_nr = 0;
	paced_since = 0;
	T_OK(copy_data(&job));
	jump_ns = 0;
	T_CHECK(paced_since);
	/* At least six more chunks at the rate. */
	T_CHECK(now_ns() - paced_since >= 6 * PACED_MS * NSEC_PER_MSEC);
	(void)close(job.src);
	(void)close(job.dst);
	tear_down();
}

/* The mover notices when the disk loses bytes of a copy. */
void copy_is_read_back(void)
{
	struct recover_counts counts;
	struct tier_set *set;
	struct move_done done;

	set_up();
	set = open_set(&counts);
	calls_corrupt = true;
	T_EQ(move_file(set, NAME, 0, &done), -EIO);
	calls_corrupt = false;
	/* The useless copy is removed at once, not by the next recovery. */
	T_EQ(files_in(path_of(TIER_NVME, TIER_TMP)), 0);
	T_CHECK(!set_close(set));
	wrote = false;
	check_set(-1);
	tear_down();
}

void room_is_reserved_first(void)
{
	struct recover_counts counts;
	struct tier_set *set;
	struct move_done done;

	set_up();
	set = open_set(&counts);
	calls = nr_writes = 0;
	calls_hook = count_writes;
	T_OK(move_file(set, NAME, 0, &done));
	calls_hook = NULL;
	T_EQ(calls, 1);
	T_EQ(nr_writes, 1);
	T_CHECK(!set_close(set));
	wrote = false;
	check_set(0);
	tear_down();
}

/* A root whose marker does not match the set is not used. */
void roots_are_checked(void)
{
	char marker[512], kept[512], other[512];
	struct tier_set *set;
	FILE *f;

	set_up();
	(void)snprintf(marker, sizeof(marker), "%s", path_of(TIER_NVME, TIER_DIR "/id"));
	(void)snprintf(kept, sizeof(kept), "%s.kept", marker);
	(void)snprintf(other, sizeof(other), "%s", path_of(TIER_SSD, TIER_DIR "/id"));
	T_EQ(rename(marker, kept), 0);
	T_OK(set_open("m", &set));
	T_EQ(set_whole(set), -ENODEV);
	T_CHECK(strstr(err_text(), "mounted"));
	T_CHECK(!set_close(set));
	/* Two disks are swapped. */
	T_EQ(link(other, marker), 0);
	T_OK(set_open("m", &set));
	T_EQ(set_whole(set), -ENODEV);
	T_CHECK(strstr(err_text(), "another root"));
	T_CHECK(!set_close(set));
	T_EQ(unlink(marker), 0);
	f = fopen(marker, "we");
	T_CHECK(f);
	(void)fputs("penstock tier 1\nset 0123\nroot 4567\n", f);
	(void)fclose(f);
	T_OK(set_open("m", &set));
	T_EQ(set_whole(set), -ENODEV);
	T_CHECK(strstr(err_text(), "another set"));
	T_CHECK(!set_close(set));
	T_EQ(rename(kept, marker), 0);
	/* Without the setting same-filesystem, roots on one file system are refused. */
	(void)snprintf(other, sizeof(other), "sed -i /same-filesystem/d '%s/state/m/set.conf'",
		       base);
	T_EQ(system(other), 0);
	T_OK(set_open("m", &set));
	T_EQ(set_whole(set), -ENODEV);
	T_CHECK(strstr(err_text(), "one file system"));
	T_CHECK(!set_close(set));
	tear_down();
}

void keeps_attributes(void)
{
	const struct timespec times[2] = { { 1000, 5 }, { 2000, 7 } };
	struct recover_counts counts;
	struct tier_set *set;
	struct move_done done;
	struct stat st, dir;
	char value[8] = "";
	bool xattr;

	set_up();
	T_EQ(truncate(path_of(TIER_HDD, NAME), 50u << 20), 0);
	xattr = setxattr(path_of(TIER_HDD, NAME), "user.kind", "model", 5, 0) == 0;
	T_EQ(utimensat(AT_FDCWD, path_of(TIER_HDD, NAME), times, 0), 0);
	if (geteuid() == 0) {
		T_EQ(chown(path_of(TIER_HDD, NAME), 1234, 4321), 0);
		T_EQ(chmod(path_of(TIER_HDD, NAME), 0640), 0);
	}
	set = open_set(&counts);
	T_OK(move_file(set, NAME, 0, &done));
	T_EQ(stat(path_of(TIER_NVME, NAME), &st), 0);
	if (geteuid() == 0)
		T_CHECK(st.st_uid == 1234 && st.st_gid == 4321);
	T_EQ(st.st_size, 50u << 20);
	/* A hole stays a hole. */
	T_CHECK(st.st_blocks * 512 < 1 << 20);
	T_EQ(st.st_mode & 07777, 0640);
	T_EQ(st.st_mtim.tv_sec, 2000);
	T_EQ(st.st_mtim.tv_nsec, 7);
	T_EQ(stat(path_of(TIER_NVME, "d"), &dir), 0);
	T_EQ(dir.st_mode & 07777, 0750);
	if (xattr) {
		T_EQ(getxattr(path_of(TIER_NVME, NAME), "user.kind", value, sizeof(value)), 5);
		T_CHECK(!strcmp(value, "model"));
	}
	T_CHECK(!set_close(set));
	tear_down();
}

void refuses(void)
{
	struct recover_counts counts;
	struct move_done done;
	struct tier_set *set;
	char other[512];
	int fd;

	set_up();
	set = open_set(&counts);
	calls_hook = count_writes;
	nr_writes = 0;
	T_EQ(move_file(set, "none", 0, &done), -ENOENT);
	T_EQ(move_file(set, "../x", 0, &done), -EINVAL);
	/* These names must be invalid, not system files: a mover with a planted fault would move
	 * them. */
	T_EQ(move_file(set, "/nonexistent/file", 0, &done), -EINVAL);
	T_EQ(move_file(set, "", 0, &done), -EINVAL);
	T_EQ(move_file(set, "d//file", 0, &done), -EINVAL);
	T_EQ(move_file(set, ".tier/id", 0, &done), -EINVAL);
	T_OK(catalog_pin(set->catalog, NAME, true));
	T_EQ(move_file(set, NAME, 0, &done), -EPERM);
	T_OK(catalog_pin(set->catalog, NAME, false));
	(void)snprintf(other, sizeof(other), "%s", path_of(TIER_HDD, "link"));
	T_EQ(link(path_of(TIER_HDD, NAME), other), 0);
	T_EQ(move_file(set, NAME, 0, &done), -EMLINK);
	T_EQ(unlink(other), 0);
	fd = open(path_of(TIER_HDD, NAME), O_WRONLY | O_CLOEXEC);
	T_EQ(move_file(set, NAME, 0, &done), -EBUSY);
	(void)close(fd);
	T_EQ(mkdir(path_of(TIER_NVME, "d"), 0755), 0);
	put(path_of(TIER_NVME, NAME), 10);
	T_EQ(move_file(set, NAME, 0, &done), -EEXIST);
	T_EQ(unlink(path_of(TIER_NVME, NAME)), 0);
	set->limits[TIER_NVME].quota = SIZE / 2;
	T_EQ(move_file(set, NAME, 0, &done), -ENOSPC);
	set->limits[TIER_NVME].quota = 0;
	set->roots[0].read_only = true;
	T_EQ(move_file(set, NAME, 0, &done), -EROFS);
	set->roots[0].read_only = false;
	/* A file that changed just now is not moved without a lease: another change could go
	 * unnoticed. */
	no_lease = young = true;
	T_EQ(chmod(path_of(TIER_HDD, NAME), 0600), 0);
	T_EQ(move_file(set, NAME, 0, &done), -EAGAIN);
	no_lease = young = false;
	/* None of these attempts copied a byte. */
	T_EQ(nr_writes, 0);
	calls_hook = NULL;
	T_CHECK(!set_close(set));
	wrote = false;
	check_set(-1);
	tear_down();
}

/* A directory replaced by a link must not lead out of the root. */
void stays_beneath(void)
{
	struct recover_counts counts;
	struct move_done done;
	struct tier_set *set;
	char out[300], d[512];

	set_up();
	set = open_set(&counts);
	(void)snprintf(out, sizeof(out), "%s/out", base);
	(void)snprintf(d, sizeof(d), "%s", path_of(TIER_HDD, "d"));
	T_EQ(rename(d, out), 0);
	T_EQ(symlink(out, d), 0);
	T_EQ(move_file(set, NAME, 0, &done), -ELOOP);
	T_EQ(unlink(d), 0);
	T_EQ(rename(out, d), 0);
	T_EQ(symlink(base, path_of(TIER_NVME, "d")), 0);
	T_CHECK(move_file(set, NAME, 0, &done) < 0);
	T_EQ(unlink(path_of(TIER_NVME, "d")), 0);
	T_CHECK(!set_close(set));
	wrote = false;
	check_set(-1);
	tear_down();
}

static unsigned nr_bad;

static void bad(const char *name, const char *why, void *arg)
{
	(void)arg;
	nr_bad++;
	T_CHECK(!strcmp(name, NAME));
	T_CHECK(strstr(why, "checksum"));
}

/*
 * Bytes that change without a write: scrub reports them, and the mover makes no second wrong copy.
 */
void wrong_bytes(void)
{
	struct recover_counts counts;
	struct scrub_counts scrubbed;
	struct move_done done;
	struct tier_set *set;
	struct tier_file f;

	set_up();
	set = open_set(&counts);
	T_OK(scrub_set(set, bad, NULL, &scrubbed));
	T_EQ(scrubbed.added, 1);
	T_OK(scrub_set(set, bad, NULL, &scrubbed));
	T_EQ(scrubbed.checked, 1);
	T_EQ(nr_bad, 0);
	/*
	 * Change the stored checksum: bytes of a file cannot be changed without changing its times.
	 */
	T_OK(catalog_find(set->catalog, NAME, &f));
	f.crc ^= 1;
	T_OK(catalog_put(set->catalog, &f));
	T_OK(scrub_set(set, bad, NULL, &scrubbed));
	T_EQ(scrubbed.bad, 1);
	T_EQ(nr_bad, 1);
	T_EQ(move_file(set, NAME, 0, &done), -EBADMSG);
	T_CHECK(!set_close(set));
	wrote = false;
	check_set(-1);
	tear_down();
}
