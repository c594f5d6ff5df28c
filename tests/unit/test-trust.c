/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/err.h"
#include "base/trust.h"

#define T_ERROR_TEXT() err_text()
#include "t.h"

static char dir[PATH_MAX];

/* Names are relative to the case's folder, which is below the sticky /tmp. */
static void make_dir(const char *name, mode_t mode)
{
	char path[PATH_MAX + 64];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	T_EQ(mkdir(path, 0700), 0);
	T_EQ(chmod(path, mode), 0);
}

static void make_file(const char *name, mode_t mode)
{
	char path[PATH_MAX + 64];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	T_CHECK(fd >= 0);
	T_EQ(fchmod(fd, mode), 0);
	(void)close(fd);
}

static void make_link(const char *name, const char *target)
{
	char path[PATH_MAX + 64], to[PATH_MAX + 64];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	/* "=x" means an absolute path of x in the folder. */
	(void)snprintf(to, sizeof(to), "%s/%s", dir, target + 1);
	T_EQ(symlink(target[0] == '=' ? to : target, path), 0);
}

static void give_away(const char *name)
{
	char path[PATH_MAX + 64];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	T_EQ(lchown(path, 12345, 12345), 0);
}

static void make_tree(void)
{
	(void)snprintf(dir, sizeof(dir), "/tmp/trust-XXXXXX");
	T_CHECK(mkdtemp(dir));
	make_dir("good", 0755);
	make_file("good/lib", 0644);
	make_dir("open", 0777);
	make_file("open/lib", 0644);
	make_dir("open/in", 0755);
	make_file("open/in/lib", 0644);
	make_dir("group", 0775);
	make_file("group/lib", 0644);
	make_dir("sticky", 01777);
	make_file("sticky/lib", 0644);
	make_dir("sticky/in", 0755);
	make_file("sticky/in/lib", 0644);
	make_file("good/by-all", 0666);
	make_file("good/by-group", 0664);
}

static void remove_tree(void)
{
	char cmd[PATH_MAX + 16];

	(void)snprintf(cmd, sizeof(cmd), "rm -r '%s'", dir);
	T_EQ(system(cmd), 0);
}

static int ask(const char *name, char *ret)
{
	char path[PATH_MAX + 64];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	return trust_path(path, ret);
}

/* Check that name resolves to want, both in the folder. */
static void is(const char *name, const char *want)
{
	char got[PATH_MAX], path[PATH_MAX + 64];

	T_OK(ask(name, got));
	(void)snprintf(path, sizeof(path), "%s/%s", dir, want);
	if (strcmp(got, path) != 0)
		T_FAIL("%s is %s, not %s", name, got, path);
}

static void is_not(const char *name, int err)
{
	char got[PATH_MAX];
	int r = ask(name, got);

	if (r != -err)
		T_FAIL("%s gave %d, not %d", name, r, -err);
}

static void who_may_write(void)
{
	make_tree();
	is("good/lib", "good/lib");
	is(".//good/./../good//lib", "good/lib");
	is_not("open/lib", EPERM);
	is_not("open/in/lib", EPERM);
	is_not("group/lib", EPERM);
	T_CHECK(strstr(err_text(), "group") && strstr(err_text(), "0775"));
	is_not("good/by-all", EPERM);
	is_not("good/by-group", EPERM);
	/* In a sticky directory others can add files, but not replace ours. */
	is_not("sticky/lib", EPERM);
	is("sticky/in/lib", "sticky/in/lib");
	is_not("sticky/in/../lib", EPERM);
	/* Folders that the path only passes through count, too. */
	is_not("open/../good/lib", EPERM);
	remove_tree();
}

static void links(void)
{
	make_tree();
	make_link("good/rel", "lib");
	make_link("good/abs", "=good/lib");
	make_link("good/dir", "../sticky/in");
	make_link("good/out", "../open/lib");
	make_link("good/chain", "rel");
	make_link("good/loop", "loop");
	make_link("good/none", "nowhere");
	make_link("open/link", "=good/lib");
	make_link("sticky/link", "=good/lib");
	make_link("sticky/dir", "=good");
	is("good/rel", "good/lib");
	is("good/abs", "good/lib");
	is("good/chain", "good/lib");
	is("good/dir/lib", "sticky/in/lib");
	is_not("good/out", EPERM);
	is_not("good/loop", ELOOP);
	is_not("good/none", ENOENT);
	is_not("open/link", EPERM);
	is_not("sticky/link", EPERM);
	is_not("sticky/dir/lib", EPERM);
	remove_tree();
}

static void what_is_no_file(void)
{
	char got[PATH_MAX], *path = calloc(1, 2 * PATH_MAX);

	T_CHECK(path);
	make_tree();
	is_not("good", EISDIR);
	is_not("good/lib/", EINVAL);
	is_not("good/lib/x", EINVAL);
	is_not("good/gone", ENOENT);
	T_EQ(trust_path("good/lib", got), -EINVAL);
	T_CHECK(strstr(err_text(), "no absolute path"));
	T_EQ(trust_path("", got), -EINVAL);
	T_EQ(trust_path("/", got), -EISDIR);
	T_EQ(trust_path("/dev/null", got), -EINVAL);
	memset(path, 'x', 2 * PATH_MAX - 1);
	path[0] = '/';
	T_EQ(trust_path(path, got), -ENAMETOOLONG);
	path[NAME_MAX + 2] = '\0';
	T_EQ(trust_path(path, got), -ENAMETOOLONG);
	free(path);
	remove_tree();
}

static void what_belongs_to_others(void)
{
	if (geteuid() != 0)
		T_SKIP("needs root, to give files away");
	make_tree();
	make_link("good/link", "lib");
	give_away("good/link");
	is_not("good/link", EPERM);
	give_away("good/lib");
	is_not("good/lib", EPERM);
	make_link("to", "sticky/in");
	give_away("to");
	is_not("to/lib", EPERM);
	give_away("sticky/in");
	is_not("sticky/in/lib", EPERM);
	/* A caller trusts the caller's own files and root's files; nobody else trusts the caller's
	 * files. */
	T_EQ(chmod(dir, 0755), 0);
	make_dir("theirs", 0755);
	make_file("theirs/lib", 0644);
	make_link("theirs/root", "../theirs/lib");
	give_away("theirs");
	give_away("theirs/lib");
	T_EQ(seteuid(12345), 0);
	is("theirs/lib", "theirs/lib");
	is("theirs/root", "theirs/lib");
	T_EQ(seteuid(0), 0);
	is_not("theirs/lib", EPERM);
	remove_tree();
}

/* Serve a FUSE file system with a single file, its root, which claims to belong to root. */
static void serve(int fd)
{
	static union {
		struct fuse_in_header in;
		char buf[1 << 17];
	} u;

	while (read(fd, &u, sizeof(u)) > 0) {
		struct {
			struct fuse_out_header head;
			union {
				struct fuse_init_out init;
				struct fuse_attr_out attr;
			};
		} out = { .head = { .unique = u.in.unique } };

		out.head.len = sizeof(out.head);
		if (u.in.opcode == FUSE_INIT) {
			out.init.major = FUSE_KERNEL_VERSION;
			out.init.minor = 31;
			out.init.max_write = 4096;
			out.head.len += sizeof(out.init);
		} else if (u.in.opcode == FUSE_GETATTR) {
			out.attr.attr.ino = 1;
			out.attr.attr.nlink = 1;
			out.attr.attr.mode = S_IFREG | 0644;
			out.head.len += sizeof(out.attr);
		} else if (u.in.opcode == FUSE_FORGET || u.in.opcode == FUSE_INTERRUPT) {
			continue;
		} else {
			out.head.error = -ENOSYS;
		}
		(void)!write(fd, &out, out.head.len);
	}
	_exit(0);
}

static void a_server_of_one_file(void)
{
	char file[PATH_MAX + 64], real[PATH_MAX], options[128];
	_cleanup_(closep) int fd = geteuid() == 0 ? open("/dev/fuse", O_RDWR | O_CLOEXEC) : -1;
	pid_t pid;

	(void)snprintf(options, sizeof(options),
		       "fd=%d,rootmode=100000,user_id=0,group_id=0,allow_other", fd);
	if (fd < 0)
		T_SKIP("no right to mount");
	make_tree();
	(void)snprintf(file, sizeof(file), "%s/good/lib", dir);
	T_OK(trust_path(file, real));
	if (mount("test", file, "fuse", MS_NOSUID | MS_NODEV, options) < 0) {
		closep(&fd);
		remove_tree();
		T_SKIP("no right to mount");
	}
	pid = fork();
	T_CHECK(pid >= 0);
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		serve(fd);
	}
	closep(&fd);
	fd = -1;
	T_EQ(trust_path(file, real), -EPERM);
	T_CHECK(strstr(err_text(), "mount"));
	T_EQ(umount2(file, MNT_DETACH), 0);
	(void)kill(pid, SIGKILL);
	T_EQ(waitpid(pid, NULL, 0), pid);
	T_OK(trust_path(file, real));
	remove_tree();
}

int main(void)
{
	T_RUN(who_may_write);
	T_RUN(links);
	T_RUN(what_is_no_file);
	T_RUN(what_belongs_to_others);
	T_RUN(a_server_of_one_file);
	return t_done();
}
