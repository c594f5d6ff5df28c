/* SPDX-License-Identifier: MIT */
/* Tests of vfs.h, with an owner that only records calls. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "scratch.h"
#include "t.h"
#include "vfs.h"

#define OUTER_INO ((uint64_t)1 << 60)
#define INNER_INO (OUTER_INO + 1)
#define LINK_INO (OUTER_INO + 2)
#define NOBODY 65534

static char base[64], back[80], mnt[80];
static struct vfs *vfs;
static pthread_t server;
static int served = 1; /* result of vfs_serve() */

/* The owner's state: one link, if any, and the recorded calls. */
static struct notes {
	char name[64], target[64]; /* empty: no link */
	struct vfs_caller who;     /* the last caller */
	uint64_t opened_id, listed_id, released_id;
	unsigned nr_released;
	pid_t releaser;
} owner;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---------------------------------------------------------------- the owner */

static int fill(struct vfs_link *l)
{
	*l = (struct vfs_link){ .ino = LINK_INO, .mode = 0400, .size = strlen(owner.target) };
	return *owner.name ? 0 : -ENOENT;
}

static int on_lookup(void *arg, const struct vfs_caller *who, const char *name, struct vfs_link *l)
{
	int r;

	(void)arg;
	(void)pthread_mutex_lock(&lock);
	owner.who = *who;
	r = strcmp(name, owner.name) == 0 ? fill(l) : -ENOENT;
	(void)pthread_mutex_unlock(&lock);
	return r;
}

static int on_getattr(void *arg, const struct vfs_caller *who, uint64_t ino, struct vfs_link *l)
{
	int r;

	(void)arg;
	(void)who;
	(void)pthread_mutex_lock(&lock);
	r = ino == LINK_INO ? fill(l) : -ENOENT;
	(void)pthread_mutex_unlock(&lock);
	return r;
}

static int on_readlink(void *arg, const struct vfs_caller *who, uint64_t ino, char *buf,
		       size_t size)
{
	(void)arg;
	(void)who;
	(void)pthread_mutex_lock(&lock);
	(void)snprintf(buf, size, "%s", owner.target);
	(void)pthread_mutex_unlock(&lock);
	return ino == LINK_INO ? 0 : -ENOENT;
}

static int on_symlink(void *arg, const struct vfs_caller *who, const char *target, const char *name,
		      struct vfs_link *l)
{
	int r;

	(void)arg;
	(void)pthread_mutex_lock(&lock);
	owner.who = *who;
	(void)snprintf(owner.name, sizeof(owner.name), "%s", name);
	(void)snprintf(owner.target, sizeof(owner.target), "%s", target);
	r = fill(l);
	(void)pthread_mutex_unlock(&lock);
	return r;
}

static int on_unlink(void *arg, const struct vfs_caller *who, const char *name)
{
	(void)arg;
	(void)who;
	if (strcmp(name, "fixed") == 0)
		return -EACCES;
	(void)pthread_mutex_lock(&lock);
	*owner.name = '\0';
	(void)pthread_mutex_unlock(&lock);
	return 0;
}

static void on_opendir(void *arg, const struct vfs_caller *who, uint64_t id)
{
	(void)arg;
	(void)pthread_mutex_lock(&lock);
	owner.who = *who;
	owner.opened_id = id;
	(void)pthread_mutex_unlock(&lock);
}

static int on_list(void *arg, const struct vfs_caller *who, uint64_t id, struct vfs_list *list)
{
	int r = 0;

	(void)arg;
	(void)who;
	(void)pthread_mutex_lock(&lock);
	owner.listed_id = id;
	/* More entries than fit into one answer. */
	for (int i = 0; r == 0 && i < 1000; i++) {
		char name[32];

		(void)snprintf(name, sizeof(name), "name-%d", i);
		r = vfs_list_add(list, name, LINK_INO + 1 + (uint64_t)i, S_IFLNK);
	}
	(void)pthread_mutex_unlock(&lock);
	return r;
}

static void on_releasedir(void *arg, const struct vfs_caller *opener, uint64_t id)
{
	(void)arg;
	(void)pthread_mutex_lock(&lock);
	owner.released_id = id;
	owner.nr_released++;
	owner.releaser = opener->tid;
	(void)pthread_mutex_unlock(&lock);
}

/* Adds one to its argument; 0 invalidates the file instead. */
#define ADD_ONE _IOWR('t', 1, uint64_t)

static int on_ioctl(void *arg, const struct vfs_caller *who, const struct vfs_file *f, unsigned cmd,
		    const void *in, size_t in_len, void *out, size_t out_len)
{
	uint64_t n;

	(void)arg;
	(void)who;
	if (cmd != ADD_ONE)
		return -ENOTTY;
	if (in_len != sizeof(n) || out_len != sizeof(n))
		return -EINVAL;
	memcpy(&n, in, sizeof(n));
	if (!n)
		return vfs_invalidate(vfs, f->ino, 0, 0);
	n += f->fd < 0 ? 2 : 1;
	memcpy(out, &n, sizeof(n));
	return 0;
}

static const struct vfs_ops ops = {
	.lookup = on_lookup,
	.getattr = on_getattr,
	.readlink = on_readlink,
	.symlink = on_symlink,
	.unlink = on_unlink,
	.opendir = on_opendir,
	.list = on_list,
	.releasedir = on_releasedir,
	.ioctl = on_ioctl,
};

/* -------------------------------------------------------------------- tools */

static void *serve(void *arg)
{
	*(int *)arg = vfs_serve(vfs);
	return NULL;
}

/* Return a copy of the owner's state. */
static struct notes notes(void)
{
	struct notes n;

	(void)pthread_mutex_lock(&lock);
	n = owner;
	(void)pthread_mutex_unlock(&lock);
	return n;
}

static const char *at(const char *dir, const char *name)
{
	static char text[4][200];
	static unsigned next;
	char *p = text[next++ % 4];

	(void)snprintf(p, sizeof(text[0]), "%s/%s", dir, name);
	return p;
}

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	T_CHECK(fd >= 0);
	T_EQ(write(fd, text, strlen(text)), strlen(text));
	T_EQ(close(fd), 0);
}

static void expect_text(const char *path, const char *want)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char got[100];
	ssize_t n;

	T_CHECK(fd >= 0);
	n = read(fd, got, sizeof(got));
	T_EQ(n, strlen(want));
	T_CHECK(memcmp(got, want, (size_t)n) == 0);
	(void)close(fd);
}

static int count_entries(const char *path)
{
	DIR *d = opendir(path);
	int n = 0;

	T_CHECK(d);
	while (readdir(d))
		n++;
	rewinddir(d);
	while (readdir(d))
		n--;
	T_EQ(n, 0);
	rewinddir(d);
	while (readdir(d))
		n++;
	(void)closedir(d);
	return n;
}

/* -------------------------------------------------------------------- cases */

static void files_pass_through(void)
{
	struct stat st, seen;
	int fd;

	put(at(mnt, "a"), "hello");
	expect_text(at(back, "a"), "hello");
	expect_text(at(mnt, "a"), "hello");
	T_EQ(stat(at(back, "a"), &st), 0);
	T_EQ(stat(at(mnt, "a"), &seen), 0);
	T_EQ(seen.st_ino, st.st_ino);
	T_EQ(seen.st_size, 5);
	fd = open(at(mnt, "a"), O_RDWR | O_APPEND | O_CLOEXEC);
	T_CHECK(fd >= 0);
	T_EQ(write(fd, " you", 4), 4);
	T_EQ(ftruncate(fd, 7), 0);
	T_EQ(fsync(fd), 0);
	T_EQ(fdatasync(fd), 0);
	(void)close(fd);
	expect_text(at(back, "a"), "hello y");
	T_EQ(truncate(at(mnt, "a"), 2), 0);
	T_EQ(chmod(at(mnt, "a"), 0600), 0);
	T_EQ(utimensat(AT_FDCWD, at(mnt, "a"),
		       (struct timespec[2]){ { .tv_sec = 5 }, { .tv_sec = 6 } }, 0),
	     0);
	T_EQ(stat(at(back, "a"), &st), 0);
	T_EQ(st.st_size, 2);
	T_EQ(st.st_mode & 0777, 0600);
	T_EQ(st.st_atime, 5);
	T_EQ(st.st_mtime, 6);
	T_EQ(unlink(at(mnt, "a")), 0);
	T_CHECK(access(at(back, "a"), F_OK) < 0 && errno == ENOENT);
}

static void directories_pass_through(void)
{
	struct stat st;

	T_EQ(stat(mnt, &st), 0);
	T_EQ(st.st_ino, 1);
	T_EQ(mkdir(at(mnt, "d"), 0751), 0);
	T_EQ(stat(at(back, "d"), &st), 0);
	T_EQ(st.st_mode, S_IFDIR | (0751 & ~022));
	put(at(mnt, "d/x"), "x");
	T_EQ(rename(at(mnt, "d/x"), at(mnt, "y")), 0);
	expect_text(at(back, "y"), "x");
	T_EQ(count_entries(at(mnt, "d")), 2);
	T_EQ(count_entries(mnt), 4); /* the virtual directory is not listed */
	T_CHECK(unlink(at(mnt, "d")) < 0);
	T_EQ(rmdir(at(mnt, "d")), 0);
	T_CHECK(access(at(back, "d"), F_OK) < 0);
	T_CHECK(rmdir(at(mnt, "y")) < 0 && errno == ENOTDIR);
	T_EQ(unlink(at(mnt, "y")), 0);
	T_CHECK(open(at(mnt, "none"), O_RDONLY) < 0 && errno == ENOENT);
}

static void new_files_belong_to_who_made_them(void)
{
	struct stat st;
	int status;
	pid_t pid;

	if (geteuid() != 0)
		T_SKIP("root, to become another user");
	T_EQ(chmod(mnt, 0777), 0);
	pid = fork();
	if (pid == 0) {
		if (setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0)
			_exit(1);
		(void)umask(077);
		_exit(open(at(mnt, "theirs"), O_WRONLY | O_CREAT, 0666) < 0 ||
		      mkdir(at(mnt, "dir"), 0777) < 0);
	}
	T_EQ(waitpid(pid, &status, 0), pid);
	T_EQ(status, 0);
	T_EQ(stat(at(back, "theirs"), &st), 0);
	T_EQ(st.st_uid, NOBODY);
	T_EQ(st.st_gid, NOBODY);
	T_EQ(st.st_mode & 0777, 0600);
	T_EQ(stat(at(back, "dir"), &st), 0);
	T_EQ(st.st_uid, NOBODY);
	T_EQ(st.st_mode & 0777, 0700);
	T_EQ(unlink(at(mnt, "theirs")), 0);
	T_EQ(rmdir(at(mnt, "dir")), 0);
}

static void only_links_are_made_in_the_virtual_tree(void)
{
	struct stat st;

	T_EQ(stat(at(mnt, "v"), &st), 0);
	T_EQ(st.st_ino, OUTER_INO);
	T_EQ(st.st_mode, S_IFDIR | 0755);
	T_EQ(stat(at(mnt, "v/links"), &st), 0);
	T_EQ(st.st_ino, INNER_INO);
	T_EQ(st.st_mode, S_IFDIR | 0770);
	T_EQ(count_entries(at(mnt, "v")), 3);
	T_CHECK(stat(at(mnt, "v/none"), &st) < 0 && errno == ENOENT);
	T_CHECK(open(at(mnt, "v/links/f"), O_WRONLY | O_CREAT, 0644) < 0 && errno == EPERM);
	T_CHECK(mkdir(at(mnt, "v/links/d"), 0755) < 0 && errno == EPERM);
	T_CHECK(mkdir(at(mnt, "v/d"), 0755) < 0 && errno == EPERM);
	T_CHECK(symlink("t", at(mnt, "v/s")) < 0 && errno == EPERM);
	T_CHECK(rmdir(at(mnt, "v/links")) < 0 && errno == EPERM);
	T_CHECK(rmdir(at(mnt, "v")) < 0 && errno == EPERM);
	T_CHECK(chmod(at(mnt, "v"), 0700) < 0 && errno == EPERM);
	put(at(mnt, "f"), "f");
	T_CHECK(rename(at(mnt, "f"), at(mnt, "v/links/f")) < 0 && errno == EPERM);
	T_EQ(unlink(at(mnt, "f")), 0);
}

static void links_are_the_owners(void)
{
	char target[64];
	struct stat st;

	T_CHECK(lstat(at(mnt, "v/links/one"), &st) < 0 && errno == ENOENT);
	T_EQ(symlink("some-target", at(mnt, "v/links/one")), 0);
	T_EQ(notes().who.uid, getuid());
	T_EQ(notes().who.gid, getgid());
	T_EQ(notes().who.tid, syscall(SYS_gettid));
	T_EQ(lstat(at(mnt, "v/links/one"), &st), 0);
	T_EQ(st.st_ino, LINK_INO);
	T_EQ(st.st_mode, S_IFLNK | 0400);
	T_EQ(readlink(at(mnt, "v/links/one"), target, sizeof(target)), 11);
	T_CHECK(memcmp(target, "some-target", 11) == 0);
	T_EQ(unlink(at(mnt, "v/links/one")), 0);
	T_CHECK(lstat(at(mnt, "v/links/one"), &st) < 0 && errno == ENOENT);
	T_EQ(symlink("some-target", at(mnt, "v/links/fixed")), 0);
	T_CHECK(unlink(at(mnt, "v/links/fixed")) < 0 && errno == EACCES);
}

static void wait_released(uint64_t id)
{
	uint64_t until = t_hang();

	while (notes().released_id != id && t_now() < until)
		(void)usleep(1000);
	T_EQ(notes().released_id, id);
}

static void the_owner_sees_who_opens_its_directory(void)
{
	unsigned before = notes().nr_released;
	int fd = open(at(mnt, "v/links"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	uint64_t id = notes().opened_id;
	int other;

	T_CHECK(fd >= 0 && copy >= 0);
	T_EQ(notes().who.tid, syscall(SYS_gettid));
	(void)close(fd);
	/* Open and close the directory once more.  The kernel reports closes in order: if only this
	 * close was reported, fd's was not, because copy still keeps it open. */
	other = open(at(mnt, "v/links"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	T_CHECK(other >= 0);
	(void)close(other);
	wait_released(notes().opened_id);
	T_EQ(notes().nr_released, before + 1);
	(void)close(copy);
	wait_released(id);
	T_EQ(notes().nr_released, before + 2);
	T_EQ(notes().releaser, syscall(SYS_gettid));

	T_EQ(count_entries(at(mnt, "v/links")), 1002);
	T_CHECK(notes().opened_id != id);
	T_EQ(notes().listed_id, notes().opened_id);
}

static void ioctls_reach_the_owner(void)
{
	int fd = open(at(mnt, "f"), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	int dir = open(mnt, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	uint64_t n = 41;

	T_CHECK(fd >= 0 && dir >= 0);
	T_EQ(ioctl(fd, ADD_ONE, &n), 0);
	T_EQ(n, 42);
	T_EQ(ioctl(dir, ADD_ONE, &n), 0);
	T_EQ(n, 44);
	T_CHECK(ioctl(fd, _IO('t', 2)) < 0 && errno == ENOTTY);
	(void)close(fd);
	(void)close(dir);
	T_EQ(unlink(at(mnt, "f")), 0);
}

static void changes_behind_the_kernel_are_shown_when_told(void)
{
	uint64_t zero = 0;
	struct stat st;
	char text[8];
	int fd;

	put(at(mnt, "f"), "old");
	fd = open(at(mnt, "f"), O_RDONLY | O_CLOEXEC);
	T_CHECK(fd >= 0);
	T_EQ(pread(fd, text, sizeof(text), 0), 3);
	T_EQ(fstat(fd, &st), 0); /* reading invalidated the access time */
	put(at(back, "f"), "newer");
	T_EQ(fstat(fd, &st), 0);
	T_EQ(st.st_size, 3);
	T_EQ(ioctl(fd, ADD_ONE, &zero), 0);
	T_EQ(fstat(fd, &st), 0);
	T_EQ(st.st_size, 5);
	T_EQ(pread(fd, text, sizeof(text), 0), 5);
	T_CHECK(memcmp(text, "newer", 5) == 0);
	(void)close(fd);
	T_EQ(unlink(at(mnt, "f")), 0);
	T_EQ(vfs_invalidate(vfs, 987654321, 0, 0), 0);
}

static void opened_files_are_found_by_number(void)
{
	const uid_t me = getuid();
	struct stat st;
	int r, w, fd;

	put(at(mnt, "f"), "bytes");
	T_EQ(stat(at(mnt, "f"), &st), 0);
	r = open(at(mnt, "f"), O_RDONLY | O_CLOEXEC);
	T_CHECK(r >= 0);
	fd = vfs_dup_opened(vfs, st.st_ino, me, O_RDONLY);
	T_CHECK(fd >= 0);
	T_EQ(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	T_EQ(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	(void)close(fd);
	T_EQ(vfs_dup_opened(vfs, st.st_ino, me, O_WRONLY), -EACCES);
	T_EQ(vfs_dup_opened(vfs, st.st_ino, me + 1, O_RDONLY), -EBADF);
	T_EQ(vfs_dup_opened(vfs, st.st_ino + 100000, me, O_RDONLY), -EBADF);

	w = open(at(mnt, "f"), O_RDWR | O_CLOEXEC);
	T_CHECK(w >= 0);
	for (int mode = 0; mode < 3; mode++) {
		fd = vfs_dup_opened(vfs, st.st_ino, me,
				    (int[]){ O_RDONLY, O_WRONLY, O_RDWR }[mode]);
		T_CHECK(fd >= 0);
		(void)close(fd);
	}
	fd = dup(r);
	(void)close(r);
	(void)close(w);
	T_EQ(unlink(at(mnt, "f")), 0);
	/* The file is still open by the duplicate, but not for writing once the kernel reported
	 * the close. */
	for (uint64_t until = t_hang(); t_now() < until; (void)usleep(1000)) {
		w = vfs_dup_opened(vfs, st.st_ino, me, O_WRONLY);
		if (w < 0)
			break;
		(void)close(w);
	}
	T_EQ(w, -EACCES);
	w = vfs_dup_opened(vfs, st.st_ino, me, O_RDONLY);
	T_CHECK(w >= 0);
	(void)close(w);
	(void)close(fd);
}

static void known_inodes_can_be_reopened(void)
{
	struct stat st;
	char text[8];
	int fd, dir;

	put(at(mnt, "f"), "bytes");
	T_EQ(stat(at(mnt, "f"), &st), 0);
	fd = vfs_reopen(vfs, st.st_ino, O_RDONLY);
	T_CHECK(fd >= 0);
	T_EQ(read(fd, text, sizeof(text)), 5);
	(void)close(fd);
	dir = vfs_reopen(vfs, 1, O_PATH | O_DIRECTORY);
	T_CHECK(dir >= 0);
	T_EQ(faccessat(dir, "f", F_OK, 0), 0);
	(void)close(dir);
	T_EQ(vfs_reopen(vfs, st.st_ino, O_RDONLY | O_DIRECTORY), -ENOTDIR);
	T_EQ(vfs_reopen(vfs, 987654321, O_RDONLY), -ENOENT);
	T_EQ(unlink(at(mnt, "f")), 0);
}

static void the_type_is_in_mountinfo(void)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char line[4096], want[100];
	bool found = false;

	T_CHECK(f);
	(void)snprintf(want, sizeof(want), " %s ", mnt);
	while (fgets(line, sizeof(line), f))
		found |= strstr(line, want) && strstr(line, " - fuse.note taker ");
	(void)fclose(f);
	T_CHECK(found);
}

static const char *missing(void)
{
	struct vfs_config config = {
		.backing = back,
		.mountpoint = mnt,
		.fsname = "taker",
		.subtype = "note",
		.outer = "v",
		.inner = "links",
		.outer_ino = OUTER_INO,
		.inner_ino = INNER_INO,
		.outer_mode = 0755,
		.inner_mode = 0770,
		.timeout = 60,
	};

	if (access("/dev/fuse", R_OK | W_OK) < 0)
		return "/dev/fuse";
	if (scratch_new(NULL, base, sizeof(base)) < 0)
		return "a scratch directory";
	/* In a private mount namespace, the mount ends even if the test crashes. */
	if (unshare(CLONE_NEWNS) == 0)
		(void)mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
	(void)snprintf(back, sizeof(back), "%s/back", base);
	(void)snprintf(mnt, sizeof(mnt), "%s/mnt", base);
	(void)mkdir(back, 0755);
	(void)mkdir(mnt, 0755);
	(void)chmod(base, 0755);
	return vfs_mount(&config, &ops, NULL, &vfs) < 0 ? "a FUSE that can be mounted" : NULL;
}

/* Unmount: fusermount3 must unmount what it mounted for an ordinary user. */
static int unmount(void)
{
	int status = -1;
	pid_t pid;

	if (umount2(mnt, MNT_DETACH) == 0)
		return 0;
	pid = fork();
	if (pid == 0) {
		(void)execlp("fusermount3", "fusermount3", "-u", "-z", mnt, (char *)NULL);
		_exit(127);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0 ? 0 : -1;
}

static void it_ends_when_it_is_unmounted(void)
{
	T_EQ(unmount(), 0);
	T_EQ(pthread_join(server, NULL), 0);
	T_EQ(served, 0);
	vfs = vfs_free(vfs);
	T_EQ(rmdir(mnt), 0);
	T_EQ(rmdir(back), 0);
	T_EQ(rmdir(base), 0);
}

int main(void)
{
	const char *why = missing();

	if (why) {
		(void)rmdir(mnt);
		(void)rmdir(back);
		(void)rmdir(base);
		printf("1..0 # SKIP %s\n", why);
		return 0;
	}
	(void)umask(022);
	if (pthread_create(&server, NULL, serve, &served) != 0)
		return 1;
	T_RUN(the_type_is_in_mountinfo);
	T_RUN(files_pass_through);
	T_RUN(directories_pass_through);
	T_RUN(new_files_belong_to_who_made_them);
	T_RUN(only_links_are_made_in_the_virtual_tree);
	T_RUN(links_are_the_owners);
	T_RUN(the_owner_sees_who_opens_its_directory);
	T_RUN(ioctls_reach_the_owner);
	T_RUN(changes_behind_the_kernel_are_shown_when_told);
	T_RUN(opened_files_are_found_by_number);
	T_RUN(known_inodes_can_be_reopened);
	if (t_failed) { /* files left open would keep the file system alive */
		(void)unmount();
		_exit(t_done());
	}
	T_RUN(it_ends_when_it_is_unmounted);
	return t_done();
}
