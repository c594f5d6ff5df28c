/* SPDX-License-Identifier: MIT */
/* Files: without a name, with several names, of each type; and ways to open them. */
#include <signal.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

#include "mount_case.h"
#include "bytes.h"

#define BLOCK 4096u
#define APPENDS 500u

/* ------------------------------------------------------- names and files */

static int unnamed(int flags)
{
	int fd = open(case_here, O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0640);

	if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {
		fd = open(case_there, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
		if (fd < 0)
			T_SKIP("O_TMPFILE on the source's file system");
		case_close(fd);
		T_FAIL("there is no O_TMPFILE, and the source has it");
	}
	return CASE_OK(fd);
}

static int name_it(int fd, const char *name)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return linkat(AT_FDCWD, path, AT_FDCWD, at(name), AT_SYMLINK_FOLLOW);
}

static void a_file_without_a_name(void)
{
	int fd = unnamed(0);
	struct stat st;

	T_EQ(case_fstat(fd).st_nlink, 0);
	T_EQ(pwrite(fd, "text", 4, 0), 4);
	T_EQ(name_it(fd, "named"), 0);
	st = case_stat(at("named"));
	T_EQ(st.st_nlink, 1);
	T_EQ(st.st_mode & 07777, 0640);
	T_EQ(st.st_ino, case_fstat(fd).st_ino);
	case_holds(at("named"), "text");
	case_holds(at_source("named"), "text");
	T_EQ(pwrite(fd, "more", 4, 4), 4);
	case_holds(at("named"), "textmore");
	case_close(fd);
}

static void a_file_that_never_gets_a_name(void)
{
	int fd = unnamed(O_EXCL);

	CASE_GIVES(name_it(fd, "named"), ENOENT);
	T_EQ(pwrite(fd, "text", 4, 0), 4);
	case_close(fd);
}

static void renamed_while_open(void)
{
	int fd = case_file("old", 0644, "text");
	struct stat before = case_fstat(fd);

	T_EQ(mkdir(at("dir"), 0755), 0);
	T_EQ(rename(at("old"), at("dir/new")), 0);
	T_EQ(pwrite(fd, "more", 4, 4), 4);
	case_holds(at("dir/new"), "textmore");
	T_EQ(case_stat(at("dir/new")).st_ino, before.st_ino);
	T_EQ(rename(at("dir"), at("elsewhere")), 0);
	T_EQ(ftruncate(fd, 4), 0);
	case_holds(at("elsewhere/new"), "text");
	T_EQ(case_fstat(fd).st_size, 4);
	case_close(fd);
}

static void unlinked_while_open(void)
{
	int fd = case_file("name", 0644, "text"), again;
	char path[64], buf[9] = "";

	T_EQ(unlink(at("name")), 0);
	CASE_GIVES(access(at("name"), F_OK), ENOENT);
	T_EQ(case_fstat(fd).st_nlink, 0);
	T_EQ(pwrite(fd, "more", 4, 4), 4);
	T_EQ(pread(fd, buf, 8, 0), 8);
	T_EQ(strcmp(buf, "textmore"), 0);
	T_EQ(fchmod(fd, 0600), 0);
	T_EQ(ftruncate(fd, 4), 0);
	T_EQ(case_fstat(fd).st_size, 4);
	/* A new file of the same name is different. */
	case_make("name", 0644, "another");
	T_EQ(pread(fd, buf, 8, 0), 4);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = CASE_OK(open(path, O_RDONLY | O_CLOEXEC));
	T_EQ(pread(again, buf, 8, 0), 4);
	case_close(again);
	case_close(fd);
	/* No hidden name of the file is left. */
	T_EQ(unlink(at("name")), 0);
	T_EQ(rmdir(case_here), 0);
	T_EQ(mkdir(case_here, 0777), 0);
}

static void replaced_while_open(void)
{
	int fd = case_file("name", 0644, "old");
	char buf[4] = "";

	case_make("new", 0644, "new");
	T_EQ(rename(at("new"), at("name")), 0);
	T_EQ(pread(fd, buf, 3, 0), 3);
	T_EQ(strcmp(buf, "old"), 0);
	T_EQ(case_fstat(fd).st_nlink, 0);
	case_holds(at("name"), "new");
	case_close(fd);
}

static void hard_links_are_one_file(void)
{
	int fd = case_file("one", 0644, "text");
	struct stat st;

	T_EQ(mkdir(at("dir"), 0755), 0);
	T_EQ(link(at("one"), at("dir/two")), 0);
	st = case_stat(at("dir/two"));
	T_EQ(st.st_ino, case_stat(at("one")).st_ino);
	T_EQ(st.st_nlink, 2);
	T_EQ(case_fstat(fd).st_nlink, 2);
	T_EQ(pwrite(fd, "more", 4, 4), 4);
	case_holds(at("dir/two"), "textmore");
	T_EQ(chmod(at("dir/two"), 0600), 0);
	T_EQ(case_mode(at("one")), 0600);
	T_EQ(truncate(at("dir/two"), 1), 0);
	T_EQ(case_fstat(fd).st_size, 1);
	T_EQ(unlink(at("one")), 0);
	T_EQ(case_stat(at("dir/two")).st_nlink, 1);
	case_holds(at("dir/two"), "t");
	CASE_GIVES(link(at("dir"), at("three")), EPERM);
	case_close(fd);
}

/* ----------------------------------------------------------------- opening */

static void made_and_not_made(void)
{
	case_make("file", 0644, "text");
	CASE_GIVES(open(at("file"), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644), EEXIST);
	CASE_GIVES(open(at("none"), O_RDWR | O_CLOEXEC), ENOENT);
	CASE_GIVES(open(at("file/none"), O_RDWR | O_CLOEXEC), ENOTDIR);
	CASE_GIVES(open(at("file"), O_RDONLY | O_DIRECTORY | O_CLOEXEC), ENOTDIR);
	CASE_GIVES(open(case_here, O_RDWR | O_CLOEXEC), EISDIR);
	/* The kernel knows from above that this name is missing: create the file through a link. */
	T_EQ(symlink("none", at("link")), 0);
	case_close(CASE_OK(open(at("link"), O_RDWR | O_CREAT | O_CLOEXEC, 0644)));
	T_EQ(access(at("none"), F_OK), 0);
}

static void not_followed(void)
{
	char path[64], to[16];
	int fd;

	case_make("file", 0644, "text");
	T_EQ(symlink("file", at("link")), 0);
	CASE_GIVES(open(at("link"), O_RDONLY | O_NOFOLLOW | O_CLOEXEC), ELOOP);
	case_close(CASE_OK(open(at("file"), O_RDONLY | O_NOFOLLOW | O_CLOEXEC)));
	fd = CASE_OK(open(at("link"), O_PATH | O_NOFOLLOW | O_CLOEXEC));
	T_EQ(case_fstat(fd).st_mode & S_IFMT, S_IFLNK);
	T_EQ(readlinkat(fd, "", to, sizeof(to)), 4);
	case_close(fd);
	fd = CASE_OK(open(at("file"), O_PATH | O_CLOEXEC));
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	case_holds(path, "text");
	case_close(fd);
}

static void loops_of_links(void)
{
	char name[16], to[16];

	T_EQ(symlink("itself", at("itself")), 0);
	CASE_GIVES(open(at("itself"), O_RDONLY | O_CLOEXEC), ELOOP);
	T_EQ(symlink("tock", at("tick")), 0);
	T_EQ(symlink("tick", at("tock")), 0);
	CASE_GIVES(access(at("tick/file"), F_OK), ELOOP);
	case_make("0", 0644, "text");
	for (int i = 1; i <= 41; i++) {
		(void)snprintf(to, sizeof(to), "%d", i - 1);
		(void)snprintf(name, sizeof(name), "%d", i);
		T_EQ(symlink(to, at(name)), 0);
	}
	case_holds(at("40"), "text");
	CASE_GIVES(access(at("41"), F_OK), ELOOP);
}

static void long_names(void)
{
	char name[257];

	memset(name, 'n', sizeof(name) - 1);
	name[256] = '\0';
	CASE_GIVES(mkdir(at(name), 0755), ENAMETOOLONG);
	CASE_GIVES(access(at(name), F_OK), ENAMETOOLONG);
	CASE_GIVES(symlink("x", at(name)), ENAMETOOLONG);
	name[255] = '\0';
	case_make(name, 0644, "text");
	case_holds(at_source(name), "text");
	T_EQ(rename(at(name), at("short")), 0);
	T_EQ(link(at("short"), at(name)), 0);
	T_EQ(unlink(at(name)), 0);
}

static void long_targets(void)
{
	char target[PATH_MAX], is[PATH_MAX];

	for (size_t len = 1000; len < sizeof(target); len += 3095) {
		memset(target, 't', len);
		target[len] = '\0';
		if (symlink(target, at_source("link")) < 0)
			T_SKIP("links to paths of %zu bytes in the source", len);
		T_EQ(unlink(at_source("link")), 0);
		T_EQ(symlink(target, at("long link")), 0);
		T_EQ(readlink(at("long link"), is, sizeof(is)), len);
		T_EQ(memcmp(is, target, len), 0);
		T_EQ(case_stat(at("long link")).st_size, len);
		T_EQ(unlink(at("long link")), 0);
	}
}

static void odd_names(void)
{
	static const char *const names[] = { "a b",      " ",
					     "\n",       "\033[31m",
					     "\377\376", "\001",
					     "-rf",      "...",
					     "\\",       "'\"$(x)`",
					     "*?[a",     "%s%n%x",
					     "\303\244", "a\303\314\210",
					     "#",        ".fuse_hidden0000000100000001" };

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		case_make(names[i], 0644, names[i]);
		case_holds(at(names[i]), names[i]);
		case_holds(at_source(names[i]), names[i]);
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		T_EQ(unlink(at(names[i])), 0);
}

static void programs_run(void)
{
	char command[PATH_MAX + 40];

	case_make("script", 0755, "#!/bin/sh\nexit 42\n");
	if (access(at_source("script"), X_OK) < 0)
		T_SKIP("the right to execute in the source");
	(void)snprintf(command, sizeof(command), "exec '%s'", at("script"));
	T_EQ(WEXITSTATUS(system(command)), 42);
	T_EQ(chmod(at("script"), 0644), 0);
	(void)snprintf(command, sizeof(command), "exec '%s' 2>/dev/null", at("script"));
	T_EQ(WEXITSTATUS(system(command)), 126);
}

/* ------------------------------------------------------------------- bytes */

static void direct(void)
{
	static uint8_t buf[16 * BLOCK] __attribute__((aligned(BLOCK)));
	int fd = open(at_source("probe"), O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0644), other;

	if (fd < 0)
		T_SKIP("O_DIRECT on the source's file system");
	case_close(fd);
	fd = CASE_OK(open(at("file"), O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0644));
	other = CASE_OK(open(at("file"), O_RDWR | O_CLOEXEC));
	t_fill(buf, 1, 0, sizeof(buf));
	T_EQ(pwrite(fd, buf, sizeof(buf), 0), sizeof(buf));
	memset(buf, 0, sizeof(buf));
	T_EQ(pread(fd, buf, sizeof(buf), 0), sizeof(buf));
	T_EQ(t_differs(buf, 1, 0, sizeof(buf)), sizeof(buf));
	/* The page cache and O_DIRECT see each other's writes. */
	memset(buf, 0, sizeof(buf));
	T_EQ(pread(other, buf, sizeof(buf), 0), sizeof(buf));
	T_EQ(t_differs(buf, 1, 0, sizeof(buf)), sizeof(buf));
	t_fill(buf, 2, 0, BLOCK);
	T_EQ(pwrite(fd, buf, BLOCK, 3 * BLOCK), BLOCK);
	memset(buf, 0, BLOCK);
	T_EQ(pread(other, buf, BLOCK, 3 * BLOCK), BLOCK);
	T_EQ(t_differs(buf, 2, 0, BLOCK), BLOCK);
	t_fill(buf, 3, 0, 100);
	T_EQ(pwrite(other, buf, 100, 5 * BLOCK + 10), 100);
	T_EQ(pread(fd, buf, BLOCK, 5 * BLOCK), BLOCK);
	T_EQ(t_differs(buf + 10, 3, 0, 100), 100);
	T_EQ(buf[9], t_byte(1, 5 * BLOCK + 9));
	/* Read at and past the end of the file. */
	T_EQ(ftruncate(other, BLOCK + 1000), 0);
	T_EQ(pread(fd, buf, 4 * BLOCK, BLOCK), 1000);
	T_EQ(pread(fd, buf, BLOCK, 2 * BLOCK), 0);
	case_close(other);
	case_close(fd);
}

static void large_requests(void)
{
	size_t len = 9u << 20;
	uint8_t *buf = malloc(len);
	int fd = CASE_OK(open(at("file"), O_RDWR | O_CREAT | O_CLOEXEC, 0644)), other;

	T_CHECK(buf);
	t_fill(buf, 7, 0, len);
	T_EQ(pwrite(fd, buf, len, 123), len);
	memset(buf, 0, len);
	T_EQ(pread(fd, buf, len, 123), len);
	T_EQ(t_differs(buf, 7, 0, len), len);
	other = CASE_OK(open(at_source("file"), O_RDONLY | O_CLOEXEC));
	memset(buf, 0, len);
	T_EQ(pread(other, buf, len, 123), len);
	T_EQ(t_differs(buf, 7, 0, len), len);
	case_close(other);
	case_close(fd);
	free(buf);
}

static struct gate gate;

static void appends(int who)
{
	int fd = CASE_OK(open(at("log"), O_WRONLY | O_APPEND | O_CLOEXEC));
	char line[64];

	for (unsigned i = 0; i < APPENDS; i++) {
		int n = snprintf(line, sizeof(line), "%d %04u %.*s\n", who, i, (int)(i % 30),
				 "------------------------------");

		T_EQ(write(fd, line, (size_t)n), n);
	}
	case_close(fd);
}

static void appends_0(void)
{
	gate_pass(gate);
	appends(0);
}

static void appends_1(void)
{
	gate_pass(gate);
	appends(1);
}

/* Two processes append: each line must be whole, and each process' lines in order. */
static void appended_by_two_processes(void)
{
	unsigned next[2] = { 0, 0 };
	char line[64], rest[40];
	struct child a, b;
	FILE *f;

	case_make("log", 0644, "");
	gate = gate_new();
	a = child_start(appends_0);
	b = child_start(appends_1);
	gate_open(gate);
	gate_open(gate);
	case_wait(&a);
	case_wait(&b);
	gate_done(gate);
	f = fopen(at("log"), "re");
	T_CHECK(f);
	while (fgets(line, sizeof(line), f)) {
		unsigned who, i;

		*rest = '\0';
		T_CHECK(sscanf(line, "%u %u %39s", &who, &i, rest) >= 2 && who < 2);
		T_EQ(i, next[who]);
		T_EQ(strlen(rest), i % 30);
		next[who]++;
	}
	(void)fclose(f);
	T_EQ(next[0], APPENDS);
	T_EQ(next[1], APPENDS);
}

/* ------------------------------------------------------- no regular files */

static void fifo_writer(void)
{
	int fd = CASE_OK(open(at("fifo"), O_WRONLY | O_CLOEXEC));

	T_EQ(write(fd, "text", 4), 4);
	case_close(fd);
}

/* After the last close no descriptor of the server has the file open for reading or writing, even
 * if the server keeps the inode: the kernel grants a write lease on the source. */
static void closed_is_closed(void)
{
	uint64_t until = t_hang();
	int fd;

	case_make("file", 0644, "text");
	fd = CASE_OK(open(at("file"), O_RDWR | O_CLOEXEC));
	case_close(fd);
	T_CHECK(signal(SIGIO, SIG_IGN) != SIG_ERR);
	fd = CASE_OK(open(at_source("file"), O_RDWR | O_CLOEXEC));
	/* The kernel tells the server of the last close(2) after it returned. */
	while (fcntl(fd, F_SETLEASE, F_WRLCK) < 0) {
		T_EQ(errno, EAGAIN);
		T_CHECK(t_now() < until);
		(void)usleep(1000);
	}
	T_EQ(fcntl(fd, F_SETLEASE, F_UNLCK), 0);
	case_close(fd);
}

static void fifos(void)
{
	struct child c;
	char buf[8];
	int fd;

	T_EQ(mkfifo(at("fifo"), 0640), 0);
	T_EQ(case_stat(at("fifo")).st_mode, S_IFIFO | 0640);
	CASE_GIVES(open(at("fifo"), O_WRONLY | O_NONBLOCK | O_CLOEXEC), ENXIO);
	c = child_start(fifo_writer);
	fd = CASE_OK(open(at("fifo"), O_RDONLY | O_CLOEXEC));
	T_EQ(read(fd, buf, sizeof(buf)), 4);
	T_EQ(memcmp(buf, "text", 4), 0);
	T_EQ(read(fd, buf, sizeof(buf)), 0);
	case_close(fd);
	case_wait(&c);
}

static void sockets(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int server = CASE_OK(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	int client = CASE_OK(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)), peer, cwd;

	/* sun_path has room for 107 bytes. */
	cwd = CASE_OK(open(".", O_PATH | O_CLOEXEC));
	T_EQ(chdir(case_here), 0);
	(void)strcpy(a.sun_path, "socket");
	CASE_OK(bind(server, (struct sockaddr *)&a, sizeof(a)));
	T_EQ(case_stat(at("socket")).st_mode & S_IFMT, S_IFSOCK);
	CASE_OK(listen(server, 1));
	CASE_OK(connect(client, (struct sockaddr *)&a, sizeof(a)));
	T_EQ(fchdir(cwd), 0);
	peer = CASE_OK(accept4(server, NULL, NULL, SOCK_CLOEXEC));
	CASE_GIVES(open(at("socket"), O_RDWR | O_CLOEXEC), ENXIO);
	case_close(peer);
	case_close(client);
	case_close(server);
	case_close(cwd);
}

static void devices(void)
{
	struct statvfs fs;
	struct stat st;

	need_root();
	T_EQ(statvfs(case_here, &fs), 0);
	if (!(fs.f_flag & ST_NODEV))
		T_SKIP("a mount that is nodev");
	if (mknod(at("null"), S_IFCHR | 0666, makedev(1, 3)) < 0 && errno == EPERM)
		return;
	st = case_stat(at("null"));
	T_EQ(st.st_mode & S_IFMT, S_IFCHR);
	T_EQ(st.st_rdev, makedev(1, 3));
	CASE_GIVES(open(at("null"), O_RDWR | O_CLOEXEC), EACCES);
}

static void statfs_is_the_sources(void)
{
	struct statvfs a, b;

	T_EQ(statvfs(case_here, &a), 0);
	T_EQ(statvfs(case_there, &b), 0);
	T_EQ(a.f_bsize, b.f_bsize);
	T_EQ(a.f_frsize, b.f_frsize);
	T_EQ(a.f_blocks, b.f_blocks);
	T_EQ(a.f_namemax, b.f_namemax);
	/* Other processes may write at the same time. */
	T_CHECK(a.f_bavail <= a.f_blocks);
	T_CHECK((a.f_bavail > b.f_bavail ? a.f_bavail - b.f_bavail : b.f_bavail - a.f_bavail) <=
		b.f_blocks / 20);
}

int main(int argc, char **argv)
{
	case_init(argc, argv);
	CASE(a_file_without_a_name);
	CASE(a_file_that_never_gets_a_name);
	CASE(renamed_while_open);
	CASE(unlinked_while_open);
	CASE(replaced_while_open);
	CASE(hard_links_are_one_file);
	CASE(made_and_not_made);
	CASE(not_followed);
	CASE(loops_of_links);
	CASE(long_names);
	CASE(long_targets);
	CASE(odd_names);
	CASE(programs_run);
	CASE(direct);
	CASE(large_requests);
	CASE(appended_by_two_processes);
	CASE(closed_is_closed);
	CASE(fifos);
	CASE(sockets);
	CASE(devices);
	CASE(statfs_is_the_sources);
	return case_done();
}
