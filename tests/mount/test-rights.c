/* SPDX-License-Identifier: MIT */
/* Rights: each caller has its own rights, whatever other users have looked up before. */
#include "mount_case.h"

#define OTHER 12346 /* a user without files or groups */

/* Open and close a file; return open()'s result. */
static int tries_open(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0666);

	if (fd >= 0)
		(void)close(fd);
	return fd;
}

/* ------------------------------------------------------------------- owners */

static void makes_of_each_kind(void)
{
	become(CASE_NOBODY, CASE_GROUP, 0);
	case_make("file", 0644, "text");
	T_EQ(mkdir(at("dir"), 0755), 0);
	T_EQ(symlink("file", at("link")), 0);
	T_EQ(mkfifo(at("fifo"), 0644), 0);
	T_EQ(mknod(at("made"), S_IFREG | 0644, 0), 0);
}

static void makers_own_what_they_make(void)
{
	static const char *const names[] = { "file", "dir", "link", "fifo", "made" };

	need_root();
	child_run(makes_of_each_kind);
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		struct stat st = case_stat(at(names[i])), there = case_stat(at_source(names[i]));

		T_EQ(st.st_uid, CASE_NOBODY);
		T_EQ(st.st_gid, CASE_GROUP);
		T_EQ(there.st_uid, CASE_NOBODY);
		T_EQ(there.st_gid, CASE_GROUP);
	}
	case_make("roots", 0644, "text");
	T_EQ(case_stat(at("roots")).st_uid, 0);
	T_EQ(case_stat(at("roots")).st_gid, getegid());
}

/* In a set-group-ID directory, new files get its group, new directories also the bit. */
static void setgid_directories(void)
{
	struct stat st;

	need_root();
	T_EQ(mkdir(at("shared"), 0777), 0);
	T_EQ(chown(at("shared"), 0, 54321), 0);
	T_EQ(chmod(at("shared"), 02777), 0);
	(void)snprintf(case_here + strlen(case_here), 10, "/shared");
	child_run(makes_of_each_kind);
	T_EQ(case_stat(at("file")).st_gid, 54321);
	T_EQ(case_stat(at("file")).st_uid, CASE_NOBODY);
	st = case_stat(at("dir"));
	T_EQ(st.st_gid, 54321);
	T_EQ(st.st_mode & 07777, 02755);
	T_EQ(case_stat(at("fifo")).st_gid, 54321);
	*strrchr(case_here, '/') = '\0';
}

/* -------------------------------------------------------------------- modes */

static void nobody_is_refused(void)
{
	become_nobody();
	CASE_GIVES(tries_open(at("private"), O_RDONLY), EACCES);
	CASE_GIVES(tries_open(at("readable"), O_RDONLY), 0);
	CASE_GIVES(tries_open(at("readable"), O_RDWR), EACCES);
	CASE_GIVES(tries_open(at("readable"), O_WRONLY | O_TRUNC), EACCES);
	CASE_GIVES(truncate(at("readable"), 0), EACCES);
	CASE_GIVES(tries_open(at("writable"), O_WRONLY), 0);
	CASE_GIVES(tries_open(at("writable"), O_RDONLY), EACCES);
	CASE_GIVES(tries_open(at("closed/file"), O_RDONLY), EACCES);
	CASE_GIVES(access(at("closed/file"), F_OK), EACCES);
	CASE_GIVES(rename(at("closed/file"), at("mine")), EACCES);
	CASE_GIVES(tries_open(at("fixed/file"), O_RDONLY), 0);
	CASE_GIVES(tries_open(at("fixed/new"), O_WRONLY | O_CREAT), EACCES);
	CASE_GIVES(unlink(at("fixed/file")), EACCES);
	CASE_GIVES(mkdir(at("fixed/dir"), 0755), EACCES);
	CASE_GIVES(symlink("x", at("fixed/link")), EACCES);
	CASE_GIVES(link(at("shared"), at("fixed/hard")), EACCES);
	/* The directory can be passed through but not listed. */
	CASE_GIVES(tries_open(at("dark/file"), O_RDONLY), 0);
	CASE_GIVES(tries_open(at("dark"), O_RDONLY | O_DIRECTORY), EACCES);
	/* The directory can be listed but not passed through. */
	CASE_GIVES(tries_open(at("seen"), O_RDONLY | O_DIRECTORY), 0);
	CASE_GIVES(tries_open(at("seen/file"), O_RDONLY), EACCES);
}

/* Modes refuse a user, even after root has looked everything up. */
static void modes_refuse(void)
{
	static const char *const dirs[] = { "closed", "fixed", "dark", "seen" };
	static const mode_t modes[] = { 0700, 0755, 0711, 0744 };
	char name[40];

	need_root();
	case_make("private", 0600, "text");
	case_make("readable", 0644, "text");
	case_make("writable", 0622, "text");
	case_make("shared", 0666,
		  "text"); /* protected_hardlinks allows links only to such files of others */
	for (size_t i = 0; i < sizeof(dirs) / sizeof(*dirs); i++) {
		T_EQ(mkdir(at(dirs[i]), 0777), 0);
		(void)snprintf(name, sizeof(name), "%s/file", dirs[i]);
		case_make(name, 0644, "text");
		case_holds(at(name), "text");
		T_EQ(chmod(at(dirs[i]), modes[i]), 0);
	}
	child_run(nobody_is_refused);
	/* Root has access. */
	case_holds(at("private"), "text");
	T_EQ(chmod(at("private"), 0), 0);
	CASE_GIVES(tries_open(at("private"), O_RDWR), 0);
}

static void access_as_nobody(void)
{
	become_nobody();
	T_EQ(access(at("file"), R_OK), 0);
	CASE_GIVES(access(at("file"), W_OK), EACCES);
	CASE_GIVES(access(at("file"), X_OK), EACCES);
	CASE_GIVES(access(at("file"), R_OK | W_OK), EACCES);
	T_EQ(access(at("program"), X_OK), 0);
	CASE_GIVES(access(at("none"), F_OK), ENOENT);
}

/* access(2) uses real ids: a set-user-ID program asks for its caller. */
static void access_for_the_caller(void)
{
	T_EQ(setresgid(CASE_NOBODY, 0, 0), 0);
	T_EQ(setresuid(CASE_NOBODY, 0, 0), 0);
	CASE_GIVES(access(at("file"), W_OK), EACCES);
	T_EQ(faccessat(AT_FDCWD, at("file"), W_OK, AT_EACCESS), 0);
}

static void access_says(void)
{
	need_root();
	case_make("file", 0644, "text");
	case_make("program", 0755, "text");
	T_EQ(access(at("file"), R_OK | W_OK), 0);
	CASE_GIVES(access(at("file"), X_OK), EACCES);
	child_run(access_as_nobody);
	child_run(access_for_the_caller);
}

static struct gate ask, answer;

static void meets_the_change(void)
{
	int fd, d;

	become_nobody();
	fd = CASE_OK(open(at("dir/file"), O_RDWR | O_CLOEXEC));
	d = CASE_OK(open(at("dir"), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	gate_open(answer);
	gate_pass(ask);
	CASE_GIVES(tries_open(at("dir/file"), O_RDWR), EACCES);
	/* An open file stays writable after a chmod(). */
	T_EQ(pwrite(fd, "x", 1, 0), 1);
	gate_open(answer);
	gate_pass(ask);
	CASE_GIVES(tries_open(at("dir/file"), O_RDWR), EACCES);
	CASE_GIVES(faccessat(d, "file", F_OK, 0), EACCES);
	gate_open(answer);
	gate_pass(ask);
	CASE_GIVES(tries_open(at("dir/file"), O_RDWR), 0);
	case_close(d);
	case_close(fd);
}

/* Rights that root removes are gone at once. */
static void rights_that_change(void)
{
	struct child c;

	need_root();
	ask = gate_new();
	answer = gate_new();
	T_EQ(mkdir(at("dir"), 0755), 0);
	case_make("dir/file", 0666, "text");
	c = child_start(meets_the_change);
	gate_pass(answer);
	T_EQ(chmod(at("dir/file"), 0600), 0);
	gate_open(ask);
	gate_pass(answer);
	T_EQ(chmod(at("dir/file"), 0666), 0);
	T_EQ(chmod(at("dir"), 0700), 0);
	gate_open(ask);
	gate_pass(answer);
	T_EQ(chmod(at("dir"), 0755), 0);
	gate_open(ask);
	case_wait(&c);
	gate_done(ask);
	gate_done(answer);
}

/* ------------------------------------------------------------------- groups */

static void one_of_the_group(void)
{
	become(CASE_NOBODY, CASE_NOBODY, CASE_GROUP);
	CASE_GIVES(tries_open(at("groups"), O_RDWR), 0);
	CASE_GIVES(tries_open(at("dir/new"), O_WRONLY | O_CREAT), 0);
	/* A member of the group gets only the group's rights, even if others have more. */
	CASE_GIVES(tries_open(at("not the groups"), O_RDONLY), EACCES);
	/* A user may give its file to its own groups only. */
	case_make("mine", 0644, "text");
	T_EQ(chown(at("mine"), (uid_t)-1, CASE_GROUP), 0);
	CASE_GIVES(chown(at("mine"), (uid_t)-1, 54321), EPERM);
}

static void none_of_the_group(void)
{
	become_nobody();
	CASE_GIVES(tries_open(at("groups"), O_RDONLY), EACCES);
	CASE_GIVES(tries_open(at("dir/new"), O_WRONLY), EACCES);
	CASE_GIVES(tries_open(at("not the groups"), O_RDONLY), 0);
}

static void further_groups_count(void)
{
	need_root();
	case_make("groups", 0660, "text");
	T_EQ(chown(at("groups"), 0, CASE_GROUP), 0);
	case_make("not the groups", 0604, "text");
	T_EQ(chown(at("not the groups"), 0, CASE_GROUP), 0);
	T_EQ(mkdir(at("dir"), 0770), 0);
	T_EQ(chown(at("dir"), 0, CASE_GROUP), 0);
	T_EQ(chmod(at("dir"), 0770), 0);
	child_run(one_of_the_group);
	child_run(none_of_the_group);
	T_EQ(case_stat(at("dir/new")).st_uid, CASE_NOBODY);
}

/* ------------------------------------------------------- what only owners may */

static void no_owner(void)
{
	struct timespec past[2] = { { 1, 2 }, { 3, 4 } };

	become_nobody();
	CASE_GIVES(chmod(at("file"), 0777), EPERM);
	CASE_GIVES(chown(at("file"), CASE_NOBODY, CASE_NOBODY), EPERM);
	CASE_GIVES(utimensat(AT_FDCWD, at("file"), past, 0), EPERM);
	/* Write permission allows setting times to now, and no other time. */
	T_EQ(utimensat(AT_FDCWD, at("file"), NULL, 0), 0);
	CASE_GIVES(utimensat(AT_FDCWD, at("read-only"), NULL, 0), EACCES);
	case_make("mine", 0600, "text");
	T_EQ(chmod(at("mine"), 0644), 0);
	T_EQ(utimensat(AT_FDCWD, at("mine"), past, 0), 0);
	CASE_GIVES(chown(at("mine"), 0, (gid_t)-1), EPERM);
	CASE_GIVES(mknod(at("device"), S_IFCHR | 0666, 0x103), EPERM);
}

static void owners_alone(void)
{
	need_root();
	case_make("file", 0666, "text");
	case_make("read-only", 0644, "text");
	child_run(no_owner);
	T_EQ(case_mode(at("file")), 0666);
	T_EQ(case_stat(at("file")).st_uid, 0);
	T_EQ(chown(at("file"), 5, 6), 0);
	T_EQ(case_stat(at("file")).st_uid, 5);
	T_EQ(case_stat(at_source("file")).st_gid, 6);
	T_EQ(symlink("nowhere", at("link")), 0);
	T_EQ(lchown(at("link"), 7, 8), 0);
	T_EQ(case_stat(at("link")).st_uid, 7);
}

static void others_in_a_sticky_directory(void)
{
	become_nobody();
	CASE_GIVES(unlink(at("sticky/roots")), EPERM);
	CASE_GIVES(rename(at("sticky/roots"), at("sticky/else")), EPERM);
	CASE_GIVES(rmdir(at("sticky/dir")), EPERM);
	case_make("sticky/mine", 0644, "text");
	CASE_GIVES(rename(at("sticky/mine"), at("sticky/roots")), EPERM);
	T_EQ(rename(at("sticky/mine"), at("sticky/still mine")), 0);
	T_EQ(unlink(at("sticky/still mine")), 0);
	T_EQ(unlink(at("open/roots")), 0);
}

static void sticky_directories(void)
{
	need_root();
	T_EQ(mkdir(at("sticky"), 0777), 0);
	T_EQ(chmod(at("sticky"), 01777), 0);
	T_EQ(mkdir(at("open"), 0777), 0);
	T_EQ(chmod(at("open"), 0777), 0);
	case_make("sticky/roots", 0666, "text");
	T_EQ(mkdir(at("sticky/dir"), 0777), 0);
	case_make("open/roots", 0600, "text");
	child_run(others_in_a_sticky_directory);
}

/* ----------------------------------------------------------- set-user-ID */

static void writes_it(void)
{
	int fd;

	become_nobody();
	fd = CASE_OK(open(at("program"), O_WRONLY | O_CLOEXEC));
	T_EQ(pwrite(fd, "x", 1, 0), 1);
	case_close(fd);
}

static void cuts_it(void)
{
	become_nobody();
	T_EQ(truncate(at("program"), 1), 0);
}

static void opens_it_empty(void)
{
	become_nobody();
	CASE_GIVES(tries_open(at("program"), O_WRONLY | O_TRUNC), 0);
}

static void gives_it_away(void)
{
	become(CASE_NOBODY, CASE_NOBODY, CASE_GROUP);
	T_EQ(chown(at("program"), (uid_t)-1, CASE_GROUP), 0);
}

/* A write clears the set-user-ID bit: otherwise a user could run code as the file's owner. */
static void is_cleared_by(void (*fn)(void), uid_t owner)
{
	T_EQ(chown(at("program"), owner, owner), 0);
	T_EQ(truncate(at("program"), 10), 0);
	T_EQ(chmod(at("program"), 06777), 0);
	T_EQ(case_mode(at("program")), 06777);
	child_run(fn);
	T_EQ(case_mode(at("program")), 0777);
	T_EQ(case_stat(at_source("program")).st_mode & 07777, 0777);
}

static void setuid_is_cleared(void)
{
	int fd;

	need_root();
	case_make("program", 0777, "text");
	is_cleared_by(writes_it, OTHER);
	is_cleared_by(cuts_it, OTHER);
	is_cleared_by(opens_it_empty, OTHER);
	is_cleared_by(gives_it_away, CASE_NOBODY);
	/* With passthrough, even root's write clears the bits. */
	T_EQ(chmod(at("program"), 06777), 0);
	fd = CASE_OK(open(at("program"), O_WRONLY | O_CLOEXEC));
	T_EQ(pwrite(fd, "x", 1, 0), 1);
	case_close(fd);
	T_CHECK(case_mode(at("program")) == 06777 || case_mode(at("program")) == 0777);
	T_EQ(chmod(at("program"), 06777), 0);
	T_EQ(chown(at("program"), OTHER, OTHER), 0);
	T_EQ(case_mode(at("program")), 0777);
}

static void sets_a_foreign_group(void)
{
	become_nobody();
	T_EQ(chmod(at("mine"), 02755), 0);
}

/* A user must not get programs to run as a group that it is not in. */
#define MEMBERS 40u /* more callers than those whose groups the server caches */
#define TURNS 50u

static unsigned member;

static void opens_the_groups(void)
{
	char name[32];

	become(CASE_NOBODY, CASE_NOBODY, CASE_GROUP + member);
	for (unsigned i = 0; i < TURNS; i++) {
		(void)snprintf(name, sizeof(name), "group.%u", member);
		CASE_GIVES(tries_open(at(name), O_RDONLY), 0);
		(void)snprintf(name, sizeof(name), "group.%u", (member + 1) % MEMBERS);
		CASE_GIVES(tries_open(at(name), O_RDONLY), EACCES);
	}
}

/* Callers of one user, each with another supplementary group. */
static void members_take_turns(void)
{
	struct child c[MEMBERS];
	char name[32];

	need_root();
	for (unsigned i = 0; i < MEMBERS; i++) {
		(void)snprintf(name, sizeof(name), "group.%u", i);
		case_make(name, 0040, "text");
		T_EQ(chown(at(name), 0, CASE_GROUP + i), 0);
	}
	for (member = 0; member < MEMBERS; member++)
		c[member] = child_start(opens_the_groups);
	for (unsigned i = 0; i < MEMBERS; i++)
		case_wait(&c[i]);
}

static void setgid_of_other_groups(void)
{
	need_root();
	case_make("mine", 0755, "text");
	T_EQ(chown(at("mine"), CASE_NOBODY, CASE_GROUP), 0);
	child_run(sets_a_foreign_group);
	T_EQ(case_mode(at("mine")), 0755);
	T_EQ(chmod(at("mine"), 02755), 0);
	T_EQ(case_mode(at("mine")), 02755);
}

int main(int argc, char **argv)
{
	case_init(argc, argv);
	CASE(makers_own_what_they_make);
	CASE(setgid_directories);
	CASE(modes_refuse);
	CASE(access_says);
	CASE(rights_that_change);
	CASE(further_groups_count);
	CASE(members_take_turns);
	CASE(owners_alone);
	CASE(sticky_directories);
	CASE(setuid_is_cleared);
	CASE(setgid_of_other_groups);
	return case_done();
}
