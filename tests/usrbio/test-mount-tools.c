/* SPDX-License-Identifier: MIT */
/*
 * A mount for 3FS's tools: remove and move by ioctl(2), and settings.  Also: a worker is protected
 * from other processes of its user.  The mount is PST_TEST_MOUNT's penstock-mount.
 */
#include <grp.h>
#include <linux/securebits.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

#include "api_rig.h"
#include "child.h"
#include "mount_procs.h"
#include "usrbio/proto/ioctl.h"

#define NOBODY 65534u
#define MANY 24

static struct mount_rig rig;

static void begin(void)
{
	if (!getenv("PST_TEST_MOUNT"))
		T_SKIP("PST_TEST_MOUNT, which names penstock-mount");
	if (mount_rig_start(&rig, API_DAEMON, NULL) < 0)
		T_SKIP("%s", rig.why);
	mnt = rig.mnt;
}

static void end(void)
{
	T_EQ(mount_rig_stop(&rig), 0);
}

/* Return a path on the mount; valid until four more calls. */
static const char *at(const char *name)
{
	static char ring[4][300];
	static unsigned i;
	char *p = ring[i++ % 4];

	(void)snprintf(p, sizeof(ring[0]), "%s/%s", rig.mnt, name);
	return p;
}

static void make_dir(const char *name, mode_t mode)
{
	T_EQ(mkdir(at(name), 0777), 0);
	T_EQ(chmod(at(name), mode), 0);
}

static void make_file(const char *name)
{
	int fd = open(at(name), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

	T_CHECK(fd >= 0);
	T_EQ(close(fd), 0);
}

static bool is_there(const char *name)
{
	struct stat st;

	return lstat(at(name), &st) == 0;
}

static uint64_t number(const char *name)
{
	struct stat st;

	T_EQ(lstat(at(name), &st), 0);
	return st.st_ino;
}

static void become_nobody(void)
{
	if (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
	    setresuid(NOBODY, NOBODY, NOBODY) < 0)
		T_SKIP("the right to become another user");
}

static void need_root(void)
{
	if (geteuid() != 0) {
		end();
		T_SKIP("root, to become another user");
	}
}

/* Call ioctl(2) on a descriptor of the mount.  Return 0 or -errno. */
static int ask(unsigned cmd, const void *arg, const char *by)
{
	int fd = open(at(by), O_RDONLY | O_CLOEXEC), r;

	T_CHECK(fd >= 0);
	r = ioctl(fd, cmd, arg) < 0 ? -errno : 0;
	T_EQ(close(fd), 0);
	return r;
}

static int take(uint64_t parent, const char *name, uint8_t recursive)
{
	struct usrbio_remove r = { .parent = parent, .recursive = recursive };

	(void)snprintf(r.name, sizeof(r.name), "%s", name);
	return ask(USRBIO_IOC_REMOVE, &r, "");
}

static int move(uint64_t from, const char *name, uint64_t to, const char *to_name, uint8_t trash)
{
	struct usrbio_move m = { .from = from, .to = to, .to_trash = trash };

	(void)snprintf(m.name, sizeof(m.name), "%s", name);
	(void)snprintf(m.to_name, sizeof(m.to_name), "%s", to_name);
	return ask(USRBIO_IOC_MOVE, &m, "");
}

static int take_tree(const char *name)
{
	uint32_t unused = 0;

	return ask(USRBIO_IOC_REMOVE_TREE, &unused, name);
}

/* ------------------------------------------------------------------ removing */

static void one_entry_is_removed(void)
{
	struct usrbio_remove r;
	uint64_t dir;

	begin();
	make_dir("dir", 0777);
	make_dir("dir/empty", 0755);
	make_dir("dir/full", 0755);
	make_file("dir/full/file");
	make_file("dir/file");
	make_file("kept");
	T_EQ(symlink("../kept", at("dir/link")), 0);
	dir = number("dir");
	/* Let the kernel look up these names: it must forget them later. */
	T_CHECK(is_there("dir/file") && is_there("dir/empty") && is_there("dir/full/file"));
	T_EQ(take(dir, "file", 0), 0);
	T_CHECK(!is_there("dir/file"));
	T_EQ(take(dir, "file", 0), -ENOENT);
	T_EQ(take(dir, "empty", 0), 0);
	T_CHECK(!is_there("dir/empty"));
	T_EQ(take(dir, "link", 1), 0);
	T_CHECK(is_there("kept"));
	T_EQ(take(dir, "full", 0), -ENOTEMPTY);
	T_CHECK(is_there("dir/full/file"));
	/* Any byte but 0 means true. */
	T_EQ(take(dir, "full", 0x80), 0);
	T_CHECK(!is_there("dir/full") && !is_there("dir/full/file"));

	T_EQ(take(dir, "", 1), -EINVAL);
	T_EQ(take(dir, ".", 1), -EINVAL);
	T_EQ(take(dir, "..", 1), -EINVAL);
	T_EQ(take(dir, "../kept", 1), -EINVAL);
	T_EQ(take(1234567890123, "file", 1), -ENOENT);
	T_EQ(take((uint64_t)-2, "iovs", 1), -ENOENT);
	T_EQ(take(number("kept"), "file", 1), -ENOTDIR);
	T_EQ(take(number(""), "3fs-virt", 1), -EPERM);
	memset(&r, 'x', sizeof(r));
	r.parent = dir;
	T_EQ(ask(USRBIO_IOC_REMOVE, &r, ""), -EINVAL);
	T_CHECK(is_there("kept") && is_there("3fs-virt/iovs"));
	end();
}

static void a_tree_goes_by_its_descriptor(void)
{
	uint32_t unused = 0;
	int fd;

	begin();
	make_dir("dir", 0755);
	make_dir("dir/a", 0755);
	make_dir("dir/a/b", 0755);
	make_file("dir/a/b/file");
	make_dir("kept", 0755);
	make_file("kept/file");
	T_EQ(symlink("../kept", at("dir/a/link")), 0);
	T_EQ(take_tree("dir"), 0);
	T_CHECK(!is_there("dir") && is_there("kept/file"));
	T_EQ(take_tree(""), -EPERM);
	T_EQ(take_tree("kept/file"), -ENOTDIR);
	T_EQ(take_tree("3fs-virt"), -EPERM);
	T_EQ(take_tree("3fs-virt/rm-rf"), -EPERM);
	T_CHECK(is_there("kept/file"));
	/* The directory is found wherever it was moved; a new one at its old place stays. */
	make_dir("old", 0755);
	make_file("old/file");
	fd = open(at("old"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	T_CHECK(fd >= 0);
	T_EQ(rename(at("old"), at("kept/new")), 0);
	make_dir("old", 0755);
	T_EQ(ioctl(fd, USRBIO_IOC_REMOVE_TREE, &unused), 0);
	T_CHECK(!is_there("kept/new") && is_there("old"));
	T_CHECK(ioctl(fd, USRBIO_IOC_REMOVE_TREE, &unused) < 0 && errno == ENOENT);
	T_EQ(close(fd), 0);
	end();
}

static void entries_are_moved(void)
{
	uint64_t from, to;

	begin();
	make_dir("from", 0777);
	make_dir("to", 0777);
	make_file("from/file");
	make_file("from/other");
	make_dir("from/dir", 0755);
	from = number("from");
	to = number("to");
	T_CHECK(!is_there("to/file"));
	T_EQ(move(from, "file", to, "file", 0), 0);
	T_CHECK(is_there("to/file") && !is_there("from/file"));
	/* As with rename(2), the moved file replaces the one that is there. */
	T_EQ(move(from, "other", to, "file", 0), 0);
	T_CHECK(is_there("to/file") && !is_there("from/other"));
	T_EQ(move(from, "dir", number("from/dir"), "dir", 0), -EINVAL);
	T_EQ(move(from, "missing", to, "x", 0), -ENOENT);
	T_EQ(move(from, "dir", to, "x", 1), -EOPNOTSUPP);
	T_EQ(move(from, "dir", to, "../x", 0), -EINVAL);
	T_EQ(move(from, "", to, "x", 0), -EINVAL);
	T_EQ(move(from, "dir", number(""), "3fs-virt", 0), -EPERM);
	T_EQ(move(number(""), "3fs-virt", to, "x", 0), -EPERM);
	T_EQ(move(from, "dir", 1234567890123, "x", 0), -ENOENT);
	T_CHECK(is_there("from/dir") && !is_there("to/x"));
	end();
}

/* ---------------------------------------------------------- with whose rights */

static uint64_t private_dir, shared_dir, inner_dir;

static void as_nobody(void)
{
	become_nobody();
	T_EQ(take(private_dir, "file", 1), -EACCES);
	T_EQ(take(private_dir, "dir", 1), -EACCES);
	T_EQ(move(private_dir, "file", shared_dir, "file", 0), -EACCES);
	make_file("shared/mine");
	T_EQ(move(shared_dir, "mine", private_dir, "new", 0), -EACCES);
	T_EQ(take_tree("private"), -EACCES);
	/* A directory's number grants no rights to the directories above it. */
	T_EQ(take(inner_dir, "file", 1), -EACCES);
	T_EQ(move(inner_dir, "file", shared_dir, "x", 0), -EACCES);
	/* Sticky bit: the entries are root's. */
	T_EQ(take(shared_dir, "file", 0), -EPERM);
	T_EQ(take(shared_dir, "file", 1), -EPERM);
	T_EQ(move(shared_dir, "file", shared_dir, "x", 0), -EPERM);
	make_dir("shared/his", 0755);
	make_file("shared/his/file");
	T_EQ(take(shared_dir, "his", 1), 0);
	make_dir("shared/his", 0755);
	T_EQ(take_tree("shared/his"), 0);
}

static void rights_are_the_callers(void)
{
	begin();
	need_root();
	make_dir("private", 0755);
	make_dir("private/dir", 0755);
	make_file("private/file");
	make_dir("closed", 0755);
	make_dir("closed/inner", 0777);
	make_file("closed/inner/file");
	make_dir("shared", 01777);
	make_file("shared/file");
	private_dir = number("private");
	shared_dir = number("shared");
	inner_dir = number("closed/inner");
	T_EQ(chmod(at("closed"), 0700), 0);
	child_run(as_nobody);
	T_CHECK(is_there("private/file") && is_there("private/dir"));
	T_CHECK(is_there("closed/inner/file") && is_there("shared/file"));
	T_CHECK(!is_there("shared/his"));
	end();
}

/* Call endlessly in directories where other processes make names; each call must end. */
static void one_of_many(void)
{
	uint64_t dir = number("dir"), until = t_now() + UINT64_C(500000000), hang = t_hang();
	char name[32], to[32];
	unsigned done = 0;

	(void)snprintf(name, sizeof(name), "of-%d", getpid());
	(void)snprintf(to, sizeof(to), "to-%d", getpid());
	while (t_now() < until || (!done && t_now() < hang)) {
		char path[64];
		int r;

		(void)snprintf(path, sizeof(path), "dir/%s", name);
		if (mkdir(at(path), 0755) < 0)
			T_EQ(errno, EEXIST);
		r = move(dir, name, dir, to, 0);
		T_CHECK(r == 0 || r == -EBUSY || r == -ENOENT);
		r = take(dir, to, 1);
		T_CHECK(r == 0 || r == -EBUSY || r == -ENOENT);
		done += r == 0;
	}
	T_CHECK(done > 0);
}

static void many_at_once(void)
{
	struct child c[MANY];
	int status;

	begin();
	make_dir("dir", 0777);
	for (unsigned i = 0; i < MANY; i++)
		c[i] = child_start(one_of_many);
	for (unsigned i = 0; i < MANY; i++) {
		T_EQ(waitpid(c[i].pid, &status, 0), c[i].pid);
		child_ended(&c[i], status);
	}
	/* No place for a remover was lost. */
	for (unsigned i = 0; i < 100; i++)
		T_EQ(take(number("dir"), "missing", 0), -ENOENT);
	end();
}

/* ------------------------------------------------------------------ settings */

static const char *setting(const char *name)
{
	static char value[64];
	char path[100];
	ssize_t n;

	(void)snprintf(path, sizeof(path), "3fs-virt/get-conf/%s", name);
	n = readlink(at(path), value, sizeof(value) - 1);
	if (n < 0)
		return strerrorname_np(errno);
	value[n] = '\0';
	return value;
}

static int set(const char *name, const char *value)
{
	char path[100];

	(void)snprintf(path, sizeof(path), "3fs-virt/set-conf/%s", name);
	return symlink(value, at(path)) < 0 ? -errno : 0;
}

static void settings_are_shown(void)
{
	struct dirent *e;
	unsigned nr = 0;
	struct stat st;
	DIR *d;

	begin();
	T_EQ(strcmp(setting("usr.readonly"), "false"), 0);
	T_EQ(strcmp(setting("usr.enable_read_cache"), "true"), 0);
	T_EQ(strcmp(setting("usr.negative_timeout"), "0"), 0);
	T_CHECK(atof(setting("usr.attr_timeout")) > 0);
	T_EQ(strcmp(setting("usr.sync_on_stat"), "ENOENT"), 0);
	T_EQ(strcmp(setting("sys.max_jobs_per_ioring"), "ENOENT"), 0);
	T_EQ(strcmp(setting("x"), "ENOENT"), 0);
	T_EQ(set("usr.readonly", "false"), 0);
	T_EQ(set("usr.readonly", "true"), -EOPNOTSUPP);
	T_EQ(set("usr.attr_timeout", "1e9"), -EOPNOTSUPP);
	T_EQ(set("usr.sync_on_stat", "true"), -ENOENT);
	T_EQ(set("x", ""), -ENOENT);
	T_EQ(strcmp(setting("usr.readonly"), "false"), 0);
	T_CHECK(!is_there("3fs-virt/set-conf/usr.readonly"));

	T_EQ(lstat(at("3fs-virt/get-conf"), &st), 0);
	T_EQ(st.st_mode, S_IFDIR | 0555);
	T_CHECK(symlink("true", at("3fs-virt/get-conf/usr.readonly")) < 0);
	T_CHECK(symlink("true", at("3fs-virt/get-conf/new")) < 0);
	T_CHECK(unlink(at("3fs-virt/get-conf/usr.readonly")) < 0 && errno == EPERM);
	T_CHECK(rmdir(at("3fs-virt/set-conf")) < 0);
	T_CHECK(mkdir(at("3fs-virt/set-conf/x"), 0755) < 0 && errno == EPERM);
	d = opendir(at("3fs-virt/get-conf"));
	T_CHECK(d != NULL);
	while ((e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		nr++;
		T_EQ(e->d_type, DT_LNK);
		T_CHECK(strcmp(setting(e->d_name), "ENOENT") != 0);
	}
	T_EQ(nr, 7);
	T_EQ(closedir(d), 0);
	end();
}

/* ----------------------------------------------------------- a closed worker */

static pid_t worker;

static int opens(const char *fmt, int flags)
{
	char path[64];
	int fd;

	(void)snprintf(path, sizeof(path), fmt, (int)worker);
	fd = open(path, flags | O_CLOEXEC);
	if (fd >= 0)
		(void)close(fd);
	return fd < 0 ? -errno : 0;
}

static void a_process_of_its_user(void)
{
	int pidfd;

	become_nobody();
	/* The user may still kill the worker. */
	T_EQ(kill(worker, 0), 0);
	T_EQ(opens("/proc/%d/fd", O_RDONLY | O_DIRECTORY), -EACCES);
	T_EQ(opens("/proc/%d/mem", O_RDWR), -EACCES);
	T_EQ(opens("/proc/%d/environ", O_RDONLY), -EACCES);
	T_CHECK(ptrace(PTRACE_SEIZE, worker, NULL, NULL) < 0);
	T_EQ(errno, EPERM);
	pidfd = (int)syscall(SYS_pidfd_open, worker, 0);
	T_CHECK(pidfd >= 0);
	T_CHECK(syscall(SYS_pidfd_getfd, pidfd, 3, 0) < 0);
	T_EQ(errno, EPERM);
	(void)close(pidfd);
}

static int say[2], told[2];

/* Publish, so that the user has a worker, and wait to be ended. */
static void publisher(void)
{
	struct hf3fs_iov i = { 0 };
	char c = 0;

	become_nobody();
	T_EQ(hf3fs_iovcreate(&i, rig.mnt, 4096, 0, -1), 0);
	T_EQ(write(say[1], &c, 1), 1);
	T_EQ(read(told[0], &c, 1), 1);
	hf3fs_iovdestroy(&i);
}

/* Start the server with these securebits(7). */
static void look_into_a_worker(unsigned long securebits)
{
	struct child c;
	char path[64], line[256], byte = 0;
	unsigned uid = 0;
	int status;
	FILE *f;

	if (securebits && prctl(PR_SET_SECUREBITS, securebits) < 0)
		T_SKIP("root, to become another user");
	begin();
	need_root();
	if (securebits)
		T_EQ(prctl(PR_SET_SECUREBITS, 0ul), 0);
	T_EQ(pipe2(say, O_CLOEXEC), 0);
	T_EQ(pipe2(told, O_CLOEXEC), 0);
	c = child_start(publisher);
	T_EQ(close(say[1]), 0);
	T_EQ(read(say[0], &byte, 1), 1);
	worker = procs_worker(&rig);
	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)worker);
	f = fopen(path, "re");
	T_CHECK(f != NULL);
	while (fgets(line, sizeof(line), f)) {
		unsigned ids[4];

		if (sscanf(line, "Uid: %u %u %u %u", ids, ids + 1, ids + 2, ids + 3) == 4) {
			uid = ids[0];
			for (unsigned i = 1; i < 4; i++)
				T_EQ(ids[i], uid);
		}
		/* The worker has none of the capabilities that it started with. */
		if (!strncmp(line, "CapPrm:", 7) || !strncmp(line, "CapEff:", 7))
			T_EQ(strtoull(line + 7, NULL, 16), 0);
	}
	(void)fclose(f);
	T_EQ(uid, NOBODY);
	child_run(a_process_of_its_user);
	T_EQ(write(told[1], &byte, 1), 1);
	T_EQ(waitpid(c.pid, &status, 0), c.pid);
	child_ended(&c, status);
	(void)close(say[0]);
	(void)close(told[0]);
	(void)close(told[1]);
	end();
}

static void nobody_looks_into_a_worker(void)
{
	look_into_a_worker(0);
}

/* securebits(7) may keep capabilities when a process changes its user. */
static void capabilities_go_whatever_securebits_say(void)
{
	look_into_a_worker(SECBIT_NO_SETUID_FIXUP);
}

int main(void)
{
	api_init();
	T_RUN(one_entry_is_removed);
	T_RUN(a_tree_goes_by_its_descriptor);
	T_RUN(entries_are_moved);
	T_RUN(rights_are_the_callers);
	T_RUN(many_at_once);
	T_RUN(settings_are_shown);
	T_RUN(nobody_looks_into_a_worker);
	T_RUN(capabilities_go_whatever_securebits_say);
	return api_done();
}
