/* SPDX-License-Identifier: MIT */
/*
 * usrbio-foreign-links MOUNTPOINT FILE
 *
 * Test properties of the virtual tree and of ioctls that a client of 3FS relies on, against any
 * daemon, without the library.  Prints TAP.
 */
#include <dirent.h>
#include <grp.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include "foreign_client.h"

#define NOBODY 65534

static int link_errno(const char *target, const char *name)
{
	if (symlink(target, peer_path(mnt, name).text) < 0)
		return errno;
	(void)unlink(peer_path(mnt, name).text);
	return 0;
}

static bool is_listed(const char *name)
{
	DIR *d = opendir(peer_path(mnt, "").text);
	bool found = false;
	struct dirent *e;

	if (!d)
		return false;
	while ((e = readdir(d)))
		found |= strcmp(e->d_name, name) == 0;
	(void)closedir(d);
	return found;
}

/* Run a case in a child: the daemon takes a process that closes the directory for one that
 * ended. */
static int in_child(int (*fn)(const char *name), const char *name)
{
	int status = 0;
	pid_t pid;

	(void)fflush(stdout);
	pid = fork();
	if (pid == 0)
		_exit(fn(name));
	T_CHECK(pid > 0);
	T_EQ(waitpid(pid, &status, 0), pid);
	T_CHECK(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int child_lists(const char *name)
{
	return is_listed(name);
}

static void the_mount_has_the_type(void)
{
	char line[4096], want[300];
	FILE *f = fopen("/proc/self/mountinfo", "re");
	bool found = false;

	T_CHECK(f);
	(void)snprintf(want, sizeof(want), " %s ", mnt);
	while (fgets(line, sizeof(line), f))
		found |= strstr(line, want) && strstr(line, " - fuse.hf3fs ");
	(void)fclose(f);
	T_CHECK(found);
}

static void ioctls_identify_it(void)
{
	int dir = open(mnt, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int fds[2] = { file.fd, dir };
	uint32_t u;

	T_CHECK(dir >= 0);
	for (int i = 0; i < 2; i++) {
		char name[33];

		memset(name, 'x', sizeof(name));
		T_EQ(ioctl(fds[i], (unsigned long)WIRE_GET_MAGIC, &u), 0);
		T_EQ(u, 0x8f3f5fff);
		T_EQ(ioctl(fds[i], (unsigned long)WIRE_GET_VERSION, &u), 0);
		T_EQ(u, 1);
		T_EQ(ioctl(fds[i], (unsigned long)WIRE_GET_PATH_OFFSET, &u), 0);
		T_EQ(u, strlen(mnt));
		T_EQ(ioctl(fds[i], (unsigned long)WIRE_GET_MOUNT_NAME, name), 0);
		T_CHECK(*name && strlen(name) < 32 && name[32] == 'x');
	}
	(void)close(dir);
}

static void the_virtual_tree(void)
{
	static const char *const sems[] = { "submit-ios", "submit-ios.ph", "submit-ios.pl" };
	char virt[300], target[256];
	struct stat st;

	(void)snprintf(virt, sizeof(virt), "%s/3fs-virt", mnt);
	T_EQ(lstat(virt, &st), 0);
	T_EQ(st.st_mode, S_IFDIR | 0555);
	T_EQ(lstat(peer_path(mnt, "").text, &st), 0);
	T_EQ(st.st_mode, S_IFDIR | 0777);
	T_CHECK(lstat(peer_path(mnt, "no-such-name").text, &st) < 0 && errno == ENOENT);
	T_CHECK(mkdir(peer_path(mnt, "dir").text, 0755) < 0 && errno == EPERM);
	for (int i = 0; i < 3; i++) {
		const struct peer_path sem = peer_path(mnt, sems[i]);
		ssize_t n = readlink(sem.text, target, sizeof(target) - 1);

		T_CHECK(n > 0);
		target[n] = '\0';
		T_CHECK(strncmp(target, "/dev/shm/sem.", 13) == 0);
		T_EQ(stat(target, &st), 0);
		T_CHECK(S_ISREG(st.st_mode) && (st.st_mode & 0600) == 0600);
		T_CHECK(unlink(sem.text) < 0 && errno == EPERM);
		T_EQ(in_child(child_lists, sems[i]), 1);
	}
}

static void links_come_and_go(void)
{
	struct peer_iov iov;
	char target[256], name[128], want[128];
	struct stat st;
	ssize_t n;

	T_EQ(peer_memory(&iov, mnt, 64 * KIB), 0);
	(void)snprintf(want, sizeof(want), "/dev/shm%s", iov.shm);
	T_EQ(peer_publish(&iov, ".b4096"), 0);
	(void)strcpy(name, iov.name);
	T_EQ(lstat(peer_path(mnt, name).text, &st), 0);
	T_EQ(st.st_mode & S_IFMT, S_IFLNK);
	T_EQ(st.st_uid, getuid());
	n = readlink(peer_path(mnt, name).text, target, sizeof(target));
	T_CHECK(n == (ssize_t)strlen(want) && memcmp(target, want, (size_t)n) == 0);
	T_CHECK(symlink(want, peer_path(mnt, name).text) < 0 && errno == EEXIST);
	T_EQ(in_child(child_lists, name), 1);

	peer_iov_done(&iov);
	T_CHECK(lstat(peer_path(mnt, name).text, &st) < 0 && errno == ENOENT);
	T_CHECK(unlink(peer_path(mnt, name).text) < 0 && errno == ENOENT);
	T_EQ(in_child(child_lists, name), 0);
}

/* Publish under a UUID followed by each of these attributes. */
static void names_are_parsed(void)
{
	static const char *const good[] = { "",        ".b1",      ".b65536",   ".r0.t0",
					    ".w0.t0",  ".r-16.t1", ".r0.ph.t1", ".w4.pl.t0",
					    ".r0.pn",  ".r0.p.t5", ".r0",       ".r0.t1.f10",
					    ".r0.f11", ".r600.t0" };
	static const char *const bad[] = { ".b0",    ".b65537", ".b-1",     ".b4k",
					   ".ph",    ".t1",     ".f10",     ".px.r0",
					   ".r0.px", ".r0.t-1", ".r0.f2",   ".q1",
					   ".r",     ".rx",     ".r700.t0", "x" };
	char uuid[KEY_UUID_LEN + 1], name[128], target[128];
	struct peer_iov iov;

	/* large enough for a ring of about 640 entries */
	T_EQ(peer_memory(&iov, mnt, 64 * KIB), 0);
	key_uuid_text(iov.id, uuid);
	(void)snprintf(target, sizeof(target), "/dev/shm%s", iov.shm);
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		(void)snprintf(name, sizeof(name), "%s%s", uuid, good[i]);
		if (link_errno(target, name))
			T_FAIL("'%s' is refused: %s", good[i], strerror(errno));
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		(void)snprintf(name, sizeof(name), "%s%s", uuid, bad[i]);
		if (link_errno(target, name) != EINVAL)
			T_FAIL("'%s' is not refused as invalid", bad[i]);
	}
	T_EQ(link_errno(target, "not-a-uuid"), EINVAL);
	T_EQ(link_errno(target, "00112233445566778899aabbccddeeff"), EINVAL);
	peer_iov_done(&iov);
}

static void targets_are_checked(void)
{
	struct peer_iov empty, tiny;
	char uuid[KEY_UUID_LEN + 1];
	uint8_t id[16];

	key_new_uuid(id);
	key_uuid_text(id, uuid);
	T_EQ(link_errno("/dev/shm/no-such-memory", uuid), EINVAL);
	T_EQ(link_errno("/dev/shm", uuid), EINVAL);
	T_EQ(link_errno("/etc/passwd", uuid), EINVAL);
	T_EQ(peer_memory(&empty, mnt, 0), 0);
	T_EQ(peer_publish(&empty, ""), -EINVAL);
	peer_iov_done(&empty);
	/* Memory that is one byte too small for a ring. */
	T_EQ(peer_memory(&tiny, mnt, wire_ring_size(1) - 1), 0);
	T_EQ(peer_publish(&tiny, ".r0.t0"), -EINVAL);
	T_EQ(peer_publish(&tiny, ""), 0);
	peer_iov_done(&tiny);
}

/* Run as user nobody: return bit 0 if a directory is unreachable, other bits for wrong results. */
static int child_is_nobody(const char *name)
{
	const struct peer_path link = peer_path(mnt, name);
	char target[256];
	struct stat st;
	int r = 0;

	if (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
	    setresuid(NOBODY, NOBODY, NOBODY) < 0 || stat(mnt, &st) < 0)
		return 1;
	if (lstat(link.text, &st) == 0 || errno != EPERM)
		r |= 2;
	if (readlink(link.text, target, sizeof(target)) >= 0 || errno != EPERM)
		r |= 4;
	if (unlink(link.text) == 0 || errno != EPERM)
		r |= 8;
	if (is_listed(name) || !is_listed("submit-ios"))
		r |= 16;
	return r;
}

static void other_users_see_nothing(void)
{
	struct stat st;
	int r;

	if (geteuid() != 0)
		T_SKIP("root, to become another user");
	r = in_child(child_is_nobody, buf.name);
	if (r == 1)
		T_SKIP("a mount point that other users can reach");
	T_EQ(r, 0);
	T_EQ(lstat(peer_path(mnt, buf.name).text, &st), 0);
}

static void hard_links(void)
{
	struct wire_hardlink to = { .parent = 0 };
	char hard[sizeof(path) + 8], dir[sizeof(hard)];
	const char *slash;
	struct stat st;

	(void)snprintf(hard, sizeof(hard), "%s.link", path);
	slash = strrchr(hard, '/');
	T_CHECK(slash);
	(void)snprintf(dir, sizeof(dir), "%.*s", (int)(slash - hard), hard);
	T_EQ(stat(dir, &st), 0);
	to.parent = st.st_ino;
	(void)snprintf(to.name, sizeof(to.name), "%s", slash + 1);
	T_EQ(ioctl(file.fd, (unsigned long)WIRE_HARDLINK, &to), 0);
	T_EQ(stat(hard, &st), 0);
	T_EQ(st.st_ino, file.ino);
	T_CHECK(ioctl(file.fd, (unsigned long)WIRE_HARDLINK, &to) < 0 && errno == EEXIST);
	T_EQ(unlink(hard), 0);
}

/* Publish under a given UUID, open the directory, and end without removing anything. */
static int child_dies(const char *uuid)
{
	char target[128];

	(void)snprintf(target, sizeof(target), "/dev/shm%s", buf.shm);
	if (symlink(target, peer_path(mnt, uuid).text) < 0 ||
	    open(peer_path(mnt, "").text, O_RDONLY | O_DIRECTORY | O_CLOEXEC) < 0)
		return 1;
	return 0;
}

static void the_dead_leave_nothing(void)
{
	uint64_t until = t_in_ms(WAIT_MS);
	char uuid[KEY_UUID_LEN + 1];
	struct peer_path link;
	struct stat st;
	uint8_t id[16];

	key_new_uuid(id);
	key_uuid_text(id, uuid);
	link = peer_path(mnt, uuid);
	T_EQ(in_child(child_dies, uuid), 0);
	while (lstat(link.text, &st) == 0 && t_now() < until)
		(void)usleep(5000);
	T_CHECK(lstat(link.text, &st) < 0 && errno == ENOENT);
	/* Links of other threads stay.  A process that only lists the directory changes nothing. */
	T_EQ(in_child(child_lists, buf.name), 1);
	T_EQ(lstat(peer_path(mnt, buf.name).text, &st), 0);
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		(void)fprintf(stderr, "usage: usrbio-foreign-links MOUNTPOINT FILE\n");
		return 2;
	}
	if (!set_up(argv[1], argv[2])) {
		printf("Bail out! %s, %s: %s\n", argv[1], argv[2], strerror(errno));
		return 1;
	}
	T_RUN(the_mount_has_the_type);
	T_RUN(ioctls_identify_it);
	T_RUN(the_virtual_tree);
	T_RUN(links_come_and_go);
	T_RUN(names_are_parsed);
	T_RUN(targets_are_checked);
	T_RUN(other_users_see_nothing);
	T_RUN(hard_links);
	T_RUN(the_dead_leave_nothing);
	tear_down();
	return t_done();
}
