/* SPDX-License-Identifier: MIT */
/* How the foreign daemon ends, and its options for failures. */
#include <dirent.h>

#include "foreign_client.h"
#include "mount_rig.h"

#define DAEMON "usrbio-foreign-daemon"

static struct mount_rig rig;
static char sem_path[256]; /* semaphore of normal priority */

static void start(const char *option, const char *value)
{
	const char *options[] = { option, value, NULL };
	char name[200];
	ssize_t n;

	if (mount_rig_start(&rig, DAEMON, options) < 0)
		T_SKIP("%s", rig.why);
	(void)snprintf(name, sizeof(name), "%s/file", rig.mnt);
	T_CHECK(set_up(rig.mnt, name));
	n = readlink(peer_path(mnt, "submit-ios").text, sem_path, sizeof(sem_path) - 1);
	T_CHECK(n > 0);
	sem_path[n] = '\0';
	T_EQ(access(sem_path, F_OK), 0);
}

static void ring_up(struct peer_ring *r, int entries, bool for_read)
{
	const struct peer_ring_opts opts = { .entries = entries, .for_read = for_read };

	T_EQ(peer_ring_init(r, mnt, &opts), 0);
}

static void a_signal_ends_it_cleanly(void)
{
	struct peer_ring r;
	struct stat st;
	dev_t dev;

	start(NULL, NULL);
	T_EQ(stat(rig.mnt, &st), 0);
	dev = st.st_dev;
	/* Use links, a ring and a file; the file keeps the file system alive. */
	ring_up(&r, 2, true);
	fill_file(4 * KIB);
	T_EQ(run(&r, io_at(0, 0, 100)), 100);
	T_EQ(kill(rig.pid, SIGTERM), 0);
	T_EQ(mount_rig_wait(&rig), 0);
	T_EQ(stat(rig.mnt, &st), 0);
	T_CHECK(st.st_dev != dev);
	T_CHECK(access(sem_path, F_OK) < 0 && errno == ENOENT);
	peer_ring_done(&r);
	tear_down();
	(void)mount_rig_stop(&rig);
}

static void clients_can_notice_its_death(void)
{
	struct peer_io io;
	struct wire_cqe c;
	struct peer_ring r;
	struct stat st;

	start("--die-after", "3");
	ring_up(&r, 2, true);
	fill_file(4 * KIB);
	for (int i = 0; i < 3; i++)
		T_EQ(run(&r, io_at(0, 0, 100)), 100);
	io = io_at(0, 0, 100);
	T_CHECK(peer_prep(&r, &io) >= 0);
	peer_submit(&r);
	T_EQ(mount_rig_wait(&rig), 0);
	T_EQ(peer_reap(&r, &c, 1, 1, 50), 0);
	T_CHECK(lstat(peer_path(mnt, "submit-ios").text, &st) < 0 && errno == ENOTCONN);
	T_CHECK(fstat(file.fd, &st) < 0 && errno == ENOTCONN);
	T_CHECK(access(sem_path, F_OK) < 0);
	peer_ring_done(&r);
	tear_down();
	(void)mount_rig_stop(&rig);
}

static void a_slow_one_takes_its_time(void)
{
	struct peer_ring r;
	struct wire_cqe c;
	struct peer_io io;
	uint64_t begin;

	start("--slow", "100");
	ring_up(&r, 2, true);
	fill_file(4 * KIB);
	begin = t_now();
	io = io_at(0, 0, 100);
	T_CHECK(peer_prep(&r, &io) >= 0);
	peer_submit(&r);
	T_EQ(peer_reap(&r, &c, 1, 1, 20), 0);
	T_EQ(peer_reap(&r, &c, 1, 1, WAIT_MS), 1);
	T_EQ(c.result, 100);
	T_CHECK(t_now() - begin >= 100 * 1000000ull);
	peer_ring_done(&r);
	tear_down();
	T_EQ(mount_rig_stop(&rig), 0);
}

static void a_readonly_one_writes_nothing(void)
{
	struct peer_ring r, w;

	start("--readonly", "1");
	ring_up(&r, 2, true);
	ring_up(&w, 2, false);
	fill_file(4 * KIB);
	T_EQ(run(&w, io_at(0, 0, 100)), -EROFS);
	T_EQ(run(&r, io_at(0, 0, 4 * KIB)), 4 * KIB);
	expect_pattern(0, 0, 4 * KIB);
	peer_ring_done(&r);
	peer_ring_done(&w);
	tear_down();
	T_EQ(mount_rig_stop(&rig), 0);
}

static void a_full_table_refuses(void)
{
	struct peer_iov iov[3];

	start("--max-iovs", "3"); /* submit-ios takes one of the links */
	for (int i = 0; i < 3; i++) {
		T_EQ(peer_memory(&iov[i], mnt, 4 * KIB), 0);
		T_EQ(peer_publish(&iov[i], ""), i < 2 ? 0 : -EMFILE);
	}
	peer_iov_done(&iov[0]);
	T_EQ(peer_publish(&iov[2], ""), 0);
	peer_iov_done(&iov[1]);
	peer_iov_done(&iov[2]);
	tear_down();
	T_EQ(mount_rig_stop(&rig), 0);
}

/* After the table doubled, its last slot is empty and must stay within the table. */
static void many_links(void)
{
	struct peer_iov iov[100];
	struct stat st;

	start(NULL, NULL);
	for (int i = 0; i < 100; i++) {
		T_EQ(peer_memory(&iov[i], mnt, 4 * KIB), 0);
		T_EQ(peer_publish(&iov[i], ""), 0);
	}
	for (int i = 0; i < 100; i++) {
		T_EQ(lstat(peer_path(mnt, iov[i].name).text, &st), 0);
		peer_iov_done(&iov[i]);
	}
	tear_down();
	T_EQ(mount_rig_stop(&rig), 0);
}

/* Reads of one batch with overlapping destinations fail together, as in 3FS's storage client. */
static void overlapping_reads_fail(void)
{
	struct peer_ring r;
	struct wire_cqe c[3];

	start(NULL, NULL);
	ring_up(&r, 4, true);
	fill_file(4 * KIB);
	for (uint64_t i = 0; i < 3; i++) {
		struct peer_io io = io_at(i * 99, 0, 100);

		T_CHECK(peer_prep(&r, &io) >= 0);
	}
	peer_submit(&r);
	T_EQ(peer_reap(&r, c, 3, 3, WAIT_MS), 3);
	for (int i = 0; i < 3; i++)
		T_EQ(c[i].result, -EIO);
	peer_ring_done(&r);
	tear_down();
	T_EQ(mount_rig_stop(&rig), 0);
}

int main(void)
{
	T_RUN(a_signal_ends_it_cleanly);
	T_RUN(clients_can_notice_its_death);
	T_RUN(a_slow_one_takes_its_time);
	T_RUN(a_readonly_one_writes_nothing);
	T_RUN(a_full_table_refuses);
	T_RUN(many_links);
	T_RUN(overlapping_reads_fail);
	return t_done();
}
