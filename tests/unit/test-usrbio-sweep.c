/* SPDX-License-Identifier: MIT */
/*
 * Sweep a plain directory: remove what ended processes have left, as a user who is allowed to.
 * Uses real processes, killed at random times.
 */
#include "usrbio_rig.h"

#include <linux/magic.h>
#include <pthread.h>
#include <sys/vfs.h>

#define OLD 1000000000 /* seconds since 1970: before the boot of any machine that runs this */

static char dir[PATH_MAX];
static int iovs = -1;
static struct usrbio_owner self, dead;

/* ---------------------------------------------------------- calls taken over */

/* The type of file system that fstatfs64() reports. */
static uint32_t fs_type;

int __wrap_fstatfs64(int fd, struct statfs *st);
int __wrap_fstatfs64(int fd, struct statfs *st)
{
	(void)fd;
	*st = (struct statfs){ .f_type = fs_type };
	return 0;
}

/* Called right before a name is renamed. */
static void (*before_rename)(const char *name);

int __real_renameat(int from, const char *name, int to, const char *new_name);
int __wrap_renameat(int from, const char *name, int to, const char *new_name);
int __wrap_renameat(int from, const char *name, int to, const char *new_name)
{
	void (*fn)(const char *) = before_rename;

	before_rename = NULL;
	if (fn)
		fn(name);
	return __real_renameat(from, name, to, new_name);
}

/* Called right before the target of a link is read. */
static void (*before_readlink)(const char *name);

ssize_t __real_readlinkat(int at, const char *name, char *buf, size_t len);
ssize_t __wrap_readlinkat(int at, const char *name, char *buf, size_t len);
ssize_t __wrap_readlinkat(int at, const char *name, char *buf, size_t len)
{
	void (*fn)(const char *) = before_readlink;

	before_readlink = NULL;
	if (fn)
		fn(name);
	return __real_readlinkat(at, name, buf, len);
}

/* -------------------------------------------------------------------- the rig */

static void open_dir(void)
{
	rig_dir(dir);
	T_OK(usrbio_plain_make(dir));
	iovs = usrbio_plain_open(dir);
	T_CHECK(iovs >= 0);
	fs_type = EXT4_SUPER_MAGIC;
}

static void close_dir(void)
{
	(void)close(iovs);
	rig_remove(dir);
}

static unsigned nr_published(void)
{
	char path[PATH_MAX];

	rig_path(path, dir, USRBIO_IOVS);
	return rig_count(path);
}

/* Make a link like another program's.  If old, the times of link and target are before the boot. */
static void foreign(const char *name, const char *target, bool old)
{
	const struct timespec times[2] = { { OLD, 0 }, { OLD, 0 } };

	T_EQ(symlinkat(target, iovs, name), 0);
	if (old)
		T_EQ(utimensat(iovs, name, times, AT_SYMLINK_NOFOLLOW), 0);
}

static void withdraw(struct rig_pub *p)
{
	T_EQ(unlinkat(iovs, p->name, 0), 0);
	T_EQ(unlink(p->path), 0);
}

/* ------------------------------------------------------------------ the dead */

static void P11_the_dead_go_and_the_living_stay(void)
{
	struct rig_pub mine, theirs[3];

	open_dir();
	rig_pub_make(&mine, iovs, &self);
	for (int i = 0; i < 3; i++)
		rig_pub_make(&theirs[i], iovs, &dead);
	/* Once a ring is published, its memory has no name. */
	T_EQ(unlink(theirs[1].path), 0);
	/* The name of the link does not matter. */
	T_EQ(renameat(iovs, theirs[2].name, iovs, "no UUID"), 0);
	T_EQ(usrbio_plain_sweep(iovs), 3);
	T_EQ(nr_published(), 1);
	T_CHECK(rig_has(iovs, mine.name) && access(mine.path, F_OK) == 0);
	T_EQ(rig_shm_of(dead.pid, false), 0);
	T_EQ(usrbio_plain_sweep(iovs), 0);
	withdraw(&mine);
	close_dir();
}

/* Memory without a link: its process was killed before it published the name, or after it
 * removed it. */
static void P11_memory_without_a_link_goes(void)
{
	struct rig_pub mine, theirs;

	open_dir();
	rig_pub_make(&mine, iovs, &self);
	rig_pub_make(&theirs, iovs, &dead);
	T_EQ(unlinkat(iovs, theirs.name, 0), 0);
	T_EQ(unlinkat(iovs, mine.name, 0), 0);
	T_EQ(usrbio_plain_sweep(iovs), 0);
	T_CHECK(access(theirs.path, F_OK) < 0 && access(mine.path, F_OK) == 0);
	T_EQ(unlink(mine.path), 0);
	close_dir();
}

static int publish_forever(void *arg)
{
	struct usrbio_owner me;
	struct rig_pub p;

	(void)arg;
	RIG_MUST(usrbio_owner_self(&me) == 0);
	for (;;) {
		rig_pub_make(&p, iovs, &me);
		RIG_MUST(unlink(p.path) == 0);
		RIG_MUST(unlinkat(iovs, p.name, 0) == 0);
		rig_pub_make(&p, iovs, &me);
		RIG_MUST(unlinkat(iovs, p.name, 0) == 0);
		RIG_MUST(unlink(p.path) == 0);
	}
}

static void P11_killed_while_publishing(void)
{
	struct rig_pub mine;
	unsigned left = 0;

	open_dir();
	rig_pub_make(&mine, iovs, &self);
	for (unsigned i = 0; i < 60; i++) {
		pid_t pid = rig_fork(publish_forever, NULL);

		(void)usleep(1000 + 53 * i);
		T_EQ(kill(pid, SIGKILL), 0);
		/* Sweep after every second process before its parent has waited for it. */
		if (i % 2)
			rig_until(pid, 'Z');
		else
			T_EQ(rig_wait(pid), 128 + SIGKILL);
		left += nr_published() - 1 + rig_shm_of(pid, false);
		T_CHECK(usrbio_plain_sweep(iovs) >= 0);
		T_EQ(nr_published(), 1);
		T_EQ(rig_shm_of(pid, false), 0);
		if (i % 2)
			T_EQ(rig_wait(pid), 128 + SIGKILL);
	}
	/* Some process must have been killed while it had a link or memory. */
	T_CHECK(left > 0);
	T_CHECK(rig_has(iovs, mine.name));
	withdraw(&mine);
	close_dir();
}

/* ------------------------------------------------------------------ the living */

static void *publish_one(void *arg)
{
	struct usrbio_owner me;
	struct rig_pub p;

	RIG_MUST(usrbio_owner_self(&me) == 0);
	rig_pub_make(&p, iovs, &me);
	return arg;
}

static int ready[2];

static void *publish_and_stay(void *arg)
{
	rig_until(getpid(), 'Z'); /* the first thread has ended */
	(void)publish_one(arg);
	RIG_MUST(write(ready[1], "", 1) == 1);
	for (;;)
		(void)pause();
}

/* Three threads publish: one ends, one stays, and the first thread ends, too. */
static int threads_publish(void *arg)
{
	pthread_t ends, stays;

	RIG_MUST(pthread_create(&ends, NULL, publish_one, NULL) == 0);
	RIG_MUST(pthread_join(ends, NULL) == 0);
	(void)publish_one(NULL);
	RIG_MUST(pthread_create(&stays, NULL, publish_and_stay, arg) == 0);
	pthread_exit(NULL);
}

static void P11_creators_of_many_threads(void)
{
	pid_t pid;
	char byte;

	open_dir();
	T_EQ(pipe2(ready, O_CLOEXEC), 0);
	pid = rig_fork(threads_publish, NULL);
	(void)close(ready[1]);
	T_EQ(read(ready[0], &byte, 1), 1);
	T_EQ(nr_published(), 3);
	T_EQ(usrbio_plain_sweep(iovs), 0);
	T_EQ(nr_published(), 3);
	T_EQ(rig_shm_of(pid, false), 3);
	rig_kill(pid);
	T_EQ(usrbio_plain_sweep(iovs), 3);
	T_EQ(nr_published(), 0);
	T_EQ(rig_shm_of(pid, false), 0);
	(void)close(ready[0]);
	close_dir();
}

static int publish_and_list(void *arg)
{
	struct usrbio_owner me;
	struct rig_pub p;
	char path[PATH_MAX];
	struct dirent *e;
	DIR *d;

	(void)arg;
	RIG_MUST(usrbio_owner_self(&me) == 0);
	rig_pub_make(&p, iovs, &me);
	/* Regression: a daemon listed the links in the thread that had published, and took them
	 * for dead. */
	(void)snprintf(path, sizeof(path), "%s/" USRBIO_IOVS, dir);
	d = opendir(path);
	RIG_MUST(d);
	while ((e = readdir(d)))
		;
	(void)closedir(d);
	return 0;
}

static int only_list(void *arg)
{
	struct usrbio_users users;
	int fd;

	(void)arg;
	fd = usrbio_plain_open(dir);
	RIG_MUST(fd >= 0);
	RIG_MUST(usrbio_plain_users(fd, &users) == 0 && users.nr_pids == 1);
	return close(fd);
}

static void P11_listing_removes_nothing(void)
{
	pid_t pid;

	open_dir();
	pid = rig_child(publish_and_list, NULL);
	T_EQ(rig_wait(rig_fork(only_list, NULL)), 0);
	T_EQ(nr_published(), 1);
	T_EQ(usrbio_plain_sweep(iovs), 0);
	T_EQ(nr_published(), 1);
	rig_kill(pid);
	T_EQ(usrbio_plain_sweep(iovs), 1);
	close_dir();
}

/* ------------------------------------------------------ what cannot be judged */

static void P11_what_cannot_be_seen_stays(void)
{
	struct usrbio_owner elsewhere = dead;
	struct rig_pub p;

	open_dir();
	elsewhere.place++;
	rig_pub_make(&p, iovs, &elsewhere);
	T_EQ(usrbio_plain_sweep(iovs), 0);
	T_CHECK(rig_has(iovs, p.name) && access(p.path, F_OK) == 0);
	/* A ring's memory has no name. */
	T_EQ(unlink(p.path), 0);
	T_EQ(usrbio_plain_sweep(iovs), 0);
	T_CHECK(rig_has(iovs, p.name));
	T_EQ(unlinkat(iovs, p.name, 0), 0);
	close_dir();
}

static void P11_links_of_other_programs_stay(void)
{
	char path[PATH_MAX], memory[] = "/dev/shm/penstock-test-XXXXXX";
	int fd = mkstemp(memory);

	T_CHECK(fd >= 0);
	(void)close(fd);
	open_dir();
	foreign("there", memory, false);
	foreign("there-old", memory, true);
	/* Python removes the name of its memory right after it is published. */
	foreign("gone", "/dev/shm/psm_no_such_memory", false);
	foreign("nonsense", "no/such/file", false);
	/* A sweep keeps files and folders, which are no links. */
	rig_path(path, dir, USRBIO_IOVS "/file");
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	T_CHECK(fd >= 0);
	(void)close(fd);
	T_EQ(mkdirat(iovs, "folder", 0700), 0);
	T_EQ(usrbio_plain_sweep(iovs), 0);
	T_EQ(nr_published(), 6);
	T_EQ(unlink(memory), 0);
	close_dir();
}

static void P11_what_is_older_than_the_boot_goes(void)
{
	char memory[] = "/dev/shm/penstock-test-XXXXXX", target[512];
	struct usrbio_owner elsewhere = dead;
	int fd = mkstemp(memory);
	struct rig_pub p;

	T_CHECK(fd >= 0);
	(void)close(fd);
	open_dir();
	foreign("there-old", memory, true);
	foreign("gone-old", "/dev/shm/psm_no_such_memory", true);
	foreign("nonsense-old", "no/such/file", true);
	foreign("loop-old", "loop-old", true);
	elsewhere.place++;
	rig_pub_init(&p, &elsewhere);
	(void)snprintf(target, sizeof(target), "%s", p.path);
	foreign("elsewhere-old", target, true);
	/* A living process' link stays, whatever its time. */
	rig_pub_init(&p, &self);
	foreign("living-old", p.path, true);

	/* Other machines may see these file systems, and were booted at another time. */
	for (int i = 0; i < 3; i++) {
		static const uint32_t shared[] = { NFS_SUPER_MAGIC, 0x65735546 /* FUSE */, 0 };

		fs_type = shared[i];
		T_EQ(usrbio_plain_sweep(iovs), 0);
	}
	T_EQ(nr_published(), 6);
	fs_type = XFS_SUPER_MAGIC;
	T_EQ(usrbio_plain_sweep(iovs), 3);
	T_CHECK(rig_has(iovs, "there-old") && rig_has(iovs, "living-old"));
	T_EQ(unlink(memory), 0);
	T_EQ(usrbio_plain_sweep(iovs), 1);
	T_CHECK(rig_has(iovs, "loop-old") && rig_has(iovs, "living-old"));
	T_EQ(nr_published(), 2);
	close_dir();
}

/* -------------------------------------------------------------- memory of others */

static void P11_memory_of_another_user_stays(void)
{
	struct rig_pub p;

	if (geteuid() != 0)
		T_SKIP("root, to give a file to another user");
	open_dir();
	rig_pub_make(&p, iovs, &dead);
	T_EQ(chown(p.path, NOBODY, NOBODY), 0);
	T_EQ(usrbio_plain_sweep(iovs), 1);
	T_CHECK(!rig_has(iovs, p.name) && access(p.path, F_OK) == 0);
	T_EQ(unlink(p.path), 0);
	close_dir();
}

static void P11_links_in_place_of_memory_are_not_followed(void)
{
	struct rig_pub p;
	char file[PATH_MAX];
	int fd;

	open_dir();
	rig_path(file, dir, "file");
	fd = open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	T_CHECK(fd >= 0);
	(void)close(fd);
	rig_pub_init(&p, &dead);
	T_EQ(symlink(file, p.path), 0);
	T_EQ(symlinkat(p.path, iovs, p.name), 0);
	T_EQ(usrbio_plain_sweep(iovs), 1);
	T_EQ(access(file, F_OK), 0);
	T_EQ(unlink(p.path), 0);
	close_dir();
}

/* ------------------------------------------------------------------ at once */

static struct rig_pub newer;

static void replace(const char *name)
{
	RIG_MUST(unlinkat(iovs, name, 0) == 0);
	rig_pub_init(&newer, &self);
	RIG_MUST(symlinkat(newer.path, iovs, name) == 0);
}

static void withdraw_it(const char *name)
{
	RIG_MUST(unlinkat(iovs, name, 0) == 0);
}

static void P11_a_name_that_is_used_again_meanwhile(void)
{
	struct rig_pub p;
	char target[512];
	ssize_t n;

	open_dir();
	rig_pub_make(&p, iovs, &dead);
	before_rename = replace;
	T_EQ(usrbio_plain_sweep(iovs), 0);
	T_CHECK(!before_rename);
	n = readlinkat(iovs, p.name, target, sizeof(target));
	T_EQ(n, strlen(newer.path));
	T_CHECK(!memcmp(target, newer.path, (size_t)n));
	T_EQ(nr_published(), 1);
	T_EQ(unlinkat(iovs, p.name, 0), 0);

	rig_pub_make(&p, iovs, &dead);
	before_rename = withdraw_it;
	T_EQ(usrbio_plain_sweep(iovs), 0);
	T_CHECK(!before_rename);
	T_EQ(nr_published(), 0);
	T_EQ(rig_shm_of(dead.pid, false), 0);
	close_dir();
}

static int sweep_here(void *arg)
{
	int n;

	(void)arg;
	n = usrbio_plain_sweep(iovs);
	RIG_MUST(n >= 0);
	return n;
}

static void P11_sweepers_at_once(void)
{
	struct rig_pub mine, p;
	int sum = 0;
	pid_t pids[4];

	open_dir();
	rig_pub_make(&mine, iovs, &self);
	for (int i = 0; i < 60; i++)
		rig_pub_make(&p, iovs, &dead);
	for (int i = 0; i < 4; i++)
		pids[i] = rig_fork(sweep_here, NULL);
	for (int i = 0; i < 4; i++)
		sum += rig_wait(pids[i]);
	/* Each name counts once, whichever daemon removed it. */
	T_EQ(sum, 60);
	T_EQ(nr_published(), 1);
	T_EQ(rig_shm_of(dead.pid, false), 0);
	withdraw(&mine);
	close_dir();
}

/* --------------------------------------------------------------------- users */

static int publish_two(void *arg)
{
	(void)publish_one(arg);
	(void)publish_one(arg);
	return 0;
}

static void P11_users_are_told(void)
{
	struct usrbio_owner elsewhere = dead;
	struct usrbio_users users;
	struct rig_pub p;
	pid_t pid;

	open_dir();
	T_OK(usrbio_plain_users(iovs, &users));
	T_EQ(users.nr_pids + users.hidden + users.others, 0);
	pid = rig_child(publish_two, NULL);
	rig_pub_make(&p, iovs, &dead);
	elsewhere.place++;
	rig_pub_init(&p, &elsewhere);
	foreign("hidden", p.path, false);
	foreign("of another program", "/dev/shm/psm_no_such_memory", false);
	T_OK(usrbio_plain_users(iovs, &users));
	T_EQ(users.nr_pids, 1);
	T_EQ(users.pids[0], pid);
	T_EQ(users.hidden, 1);
	T_EQ(users.others, 1);
	T_CHECK(!strcmp(users.other[0], "of another program"));
	rig_kill(pid);
	T_OK(usrbio_plain_users(iovs, &users));
	T_EQ(users.nr_pids, 0);
	T_EQ(usrbio_plain_sweep(iovs), 3);
	close_dir();
}

/* A process ends while the sweep checks it.  Its memory must not be taken for memory without an
 * owner. */
static void P11_a_user_that_ends_meanwhile(void)
{
	struct usrbio_users users;
	struct rig_pub p;

	open_dir();
	rig_pub_make(&p, iovs, &self);
	before_readlink = withdraw_it;
	T_OK(usrbio_plain_users(iovs, &users));
	T_CHECK(!before_readlink);
	T_EQ(users.nr_pids + users.hidden + users.others, 0);
	T_EQ(unlink(p.path), 0);
	close_dir();
}

static void P11_more_users_than_are_told(void)
{
	struct usrbio_users users;
	pid_t pids[USRBIO_USERS + 2];

	open_dir();
	for (int i = 0; i < USRBIO_USERS + 2; i++)
		pids[i] = rig_child(publish_two, NULL);
	T_OK(usrbio_plain_users(iovs, &users));
	T_EQ(users.nr_pids, USRBIO_USERS);
	for (int i = 0; i < USRBIO_USERS + 2; i++)
		rig_kill(pids[i]);
	T_EQ(usrbio_plain_sweep(iovs), 2 * (USRBIO_USERS + 2));
	close_dir();
}

static void P11_no_directory_at_all(void)
{
	struct usrbio_users users;

	T_EQ(usrbio_plain_sweep(-1), -EBADF);
	T_EQ(usrbio_plain_users(-1, &users), -EBADF);
}

int main(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		for (;;)
			(void)pause();
	}
	/* The identity of this process, except for the number of a dead one. */
	if (pid < 0 || usrbio_owner_self(&self) < 0)
		return 1;
	dead = self;
	dead.pid = pid;
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);

	T_RUN(P11_the_dead_go_and_the_living_stay);
	T_RUN(P11_memory_without_a_link_goes);
	T_RUN(P11_killed_while_publishing);
	T_RUN(P11_creators_of_many_threads);
	T_RUN(P11_listing_removes_nothing);
	T_RUN(P11_what_cannot_be_seen_stays);
	T_RUN(P11_links_of_other_programs_stay);
	T_RUN(P11_what_is_older_than_the_boot_goes);
	T_RUN(P11_memory_of_another_user_stays);
	T_RUN(P11_links_in_place_of_memory_are_not_followed);
	T_RUN(P11_a_name_that_is_used_again_meanwhile);
	T_RUN(P11_sweepers_at_once);
	T_RUN(P11_users_are_told);
	T_RUN(P11_a_user_that_ends_meanwhile);
	T_RUN(P11_more_users_than_are_told);
	T_RUN(P11_no_directory_at_all);
	return t_done();
}
