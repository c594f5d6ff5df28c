/* SPDX-License-Identifier: MIT */
/* Directories: large ones, positions, and moves. */
#include "mount_case.h"

#define MANY (getenv("PST_SOAK") ? 100000u : 10000u)
#define SOME 5000u

/* Make files whose names are numbers, through mount or source. */
static void make_files(const char *dir, unsigned nr)
{
	char name[16];
	int d = CASE_OK(open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC));

	for (unsigned i = 0; i < nr; i++) {
		(void)snprintf(name, sizeof(name), "%u", i);
		T_EQ(mknodat(d, name, S_IFREG | 0644, 0), 0);
	}
	case_close(d);
}

static void remove_files(const char *dir, unsigned from, unsigned to)
{
	char name[16];
	int d = CASE_OK(open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC));

	for (unsigned i = from; i < to; i++) {
		(void)snprintf(name, sizeof(name), "%u", i);
		T_EQ(unlinkat(d, name, 0), 0);
	}
	case_close(d);
}

static DIR *open_dir(const char *dir)
{
	DIR *d = opendir(dir);

	if (!d)
		T_FAIL("opendir gave %s", strerrorname_np(errno));
	return d;
}

/* Return the number of a name; -1 for "." and "..". */
static long number_of(const struct dirent *e)
{
	char *end;
	long n;

	if (e->d_name[0] == '.')
		return -1;
	n = strtol(e->d_name, &end, 10);
	T_CHECK(!*end);
	return n;
}

/* Read further entries and mark each as seen; none may be seen twice. */
static unsigned list(DIR *d, uint8_t *seen, unsigned nr, unsigned at_most)
{
	struct dirent *e;
	unsigned got = 0;

	while (got < at_most && (errno = 0, e = readdir(d)) != NULL) {
		long n = number_of(e);

		if (n < 0)
			continue;
		T_CHECK(n < (long)nr);
		if (seen[n])
			T_FAIL("%ld is listed twice", n);
		seen[n] = 1;
		got++;
	}
	T_EQ(errno, 0);
	return got;
}

static void many_entries(void)
{
	uint8_t *seen = calloc(1, MANY);
	DIR *d;

	T_CHECK(seen);
	/* Make the files in the source: this case tests reading. */
	make_files(case_there, MANY);
	d = open_dir(case_here);
	T_EQ(list(d, seen, MANY, MANY + 1), MANY);
	/* Read again from the beginning. */
	rewinddir(d);
	memset(seen, 0, MANY);
	T_EQ(list(d, seen, MANY, MANY + 1), MANY);
	(void)closedir(d);
	free(seen);
	remove_files(case_there, 0, MANY);
}

static void entries_are_seen_when_made(void)
{
	static uint8_t seen[SOME];
	DIR *d;

	make_files(case_here, SOME);
	d = open_dir(case_here);
	T_EQ(list(d, seen, SOME, SOME + 1), SOME);
	/* After rewinddir(), removed names must not be listed. */
	remove_files(case_here, 10, 20);
	rewinddir(d);
	memset(seen, 0, sizeof(seen));
	T_EQ(list(d, seen, SOME, SOME + 1), SOME - 10);
	T_EQ(mknod(at("15"), S_IFREG | 0644, 0), 0);
	rewinddir(d);
	memset(seen, 0, sizeof(seen));
	T_EQ(list(d, seen, SOME, SOME + 1), SOME - 9);
	T_CHECK(seen[15]);
	(void)closedir(d);
}

/* Seek to positions in random order: the same names must follow. */
static void places(void)
{
	static char names[SOME + 2][16];
	static long tell[SOME + 2];
	unsigned nr = 0;
	struct dirent *e;
	DIR *d;

	make_files(case_here, SOME);
	d = open_dir(case_here);
	for (;; nr++) {
		T_CHECK(nr <= SOME + 2);
		tell[nr % (SOME + 2)] = telldir(d);
		e = readdir(d);
		if (!e)
			break;
		(void)snprintf(names[nr], sizeof(names[0]), "%s", e->d_name);
	}
	T_EQ(nr, SOME + 2);
	for (unsigned i = 0; i < 500; i++) {
		unsigned to = i * 7919u % nr;

		seekdir(d, tell[to % (SOME + 2)]);
		for (unsigned k = to; k < nr && k < to + 5 && to; k++) {
			e = readdir(d);
			T_CHECK(e);
			T_EQ(strcmp(e->d_name, names[k]), 0);
		}
	}
	(void)closedir(d);
}

/* Names removed during a listing may be listed or not; each other name is listed once. */
static void removed_while_listed(void)
{
	static uint8_t seen[SOME], gone[SOME];
	char name[16];
	unsigned got = 0;
	DIR *d;

	make_files(case_here, SOME);
	d = open_dir(case_here);
	while (got < SOME) {
		unsigned now = list(d, seen, SOME, 50), nr_old = 0, nr_new = 0;

		if (!now)
			break;
		got += now;
		/* Remove some names that were listed, and some that were not. */
		for (unsigned i = 0; i < SOME && (nr_old < 20 || nr_new < 5); i++) {
			if (gone[i] || (seen[i] ? nr_old >= 20 : nr_new >= 5))
				continue;
			nr_old += seen[i];
			nr_new += !seen[i];
			gone[i] = 1;
			(void)snprintf(name, sizeof(name), "%u", i);
			T_EQ(unlink(at(name)), 0);
		}
	}
	(void)closedir(d);
	for (unsigned i = 0; i < SOME; i++)
		if (!seen[i] && !gone[i])
			T_FAIL("%u is not listed", i);
}

/* Remove entries while listing, like rm -r: none must be left. */
static void removed_as_it_is_listed(void)
{
	struct dirent *e;
	DIR *d;

	T_EQ(mkdir(at("dir"), 0755), 0);
	make_files(at("dir"), SOME);
	d = open_dir(at("dir"));
	while ((e = readdir(d)) != NULL)
		if (number_of(e) >= 0)
			T_EQ(unlinkat(dirfd(d), e->d_name, 0), 0);
	(void)closedir(d);
	T_EQ(rmdir(at("dir")), 0);
}

/* Inode numbers and types of entries, as find -inum and getcwd() need them. */
static void numbers_and_types(void)
{
	unsigned nr = 0;
	struct dirent *e;
	struct stat st;
	DIR *d;

	T_EQ(mkdir(at("dir"), 0755), 0);
	T_EQ(mkdir(at("dir/dir"), 0755), 0);
	case_make("dir/file", 0644, "text");
	T_EQ(link(at("dir/file"), at("dir/hard link")), 0);
	T_EQ(symlink("file", at("dir/link")), 0);
	T_EQ(mkfifo(at("dir/fifo"), 0644), 0);
	d = open_dir(at("dir"));
	while ((e = readdir(d)) != NULL) {
		T_EQ(fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW), 0);
		if (e->d_ino != st.st_ino)
			T_FAIL("%s is listed as number %llu, and stat() says %llu", e->d_name,
			       (unsigned long long)e->d_ino, (unsigned long long)st.st_ino);
		T_CHECK(e->d_type == DT_UNKNOWN || e->d_type == IFTODT(st.st_mode));
		nr++;
	}
	(void)closedir(d);
	T_EQ(nr, 7);
}

static void links_of_directories(void)
{
	T_EQ(mkdir(at("dir"), 0755), 0);
	T_EQ(mkdir(at("dir/one"), 0755), 0);
	T_EQ(mkdir(at("dir/two"), 0755), 0);
	T_EQ(case_stat(at("dir")).st_nlink, case_stat(at_source("dir")).st_nlink);
	T_EQ(rmdir(at("dir/one")), 0);
	T_EQ(case_stat(at("dir")).st_nlink, case_stat(at_source("dir")).st_nlink);
	T_EQ(rename(at("dir/two"), at("two")), 0);
	T_EQ(case_stat(at("dir")).st_nlink, case_stat(at_source("dir")).st_nlink);
}

static void directories_are_moved(void)
{
	struct stat st;
	int d;

	T_EQ(mkdir(at("a"), 0755), 0);
	T_EQ(mkdir(at("a/b"), 0755), 0);
	T_EQ(mkdir(at("a/b/c"), 0755), 0);
	case_make("a/b/c/file", 0644, "text");
	CASE_GIVES(rename(at("a"), at("a/b/d")), EINVAL);
	CASE_GIVES(rename(at("a/b/c"), at("a")), ENOTEMPTY);
	CASE_GIVES(rmdir(at("a/b")), ENOTEMPTY);
	d = CASE_OK(open(at("a/b"), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	T_EQ(rename(at("a/b"), at("b")), 0);
	case_holds(at("b/c/file"), "text");
	CASE_GIVES(access(at("a/b"), F_OK), ENOENT);
	/* The moved directory's parent is the new one. */
	T_EQ(fstatat(d, "..", &st, 0), 0);
	T_EQ(st.st_ino, case_stat(case_here).st_ino);
	T_EQ(fstatat(d, "c/file", &st, 0), 0);
	case_close(d);
	T_EQ(mkdir(at("empty"), 0755), 0);
	T_EQ(rename(at("b"), at("empty")), 0);
	case_holds(at("empty/c/file"), "text");
	case_make("file", 0644, "text");
	CASE_GIVES(rename(at("file"), at("empty")), EISDIR);
	CASE_GIVES(rename(at("empty"), at("file")), ENOTDIR);
	T_EQ(renameat2(AT_FDCWD, at("empty"), AT_FDCWD, at("file"), RENAME_EXCHANGE), 0);
	case_holds(at("file/c/file"), "text");
	case_holds(at("empty"), "text");
	CASE_GIVES(renameat2(AT_FDCWD, at("file"), AT_FDCWD, at("empty"), RENAME_NOREPLACE),
		   EEXIST);
}

static void removed_while_open(void)
{
	struct stat st;
	int d;

	T_EQ(mkdir(at("dir"), 0755), 0);
	d = CASE_OK(open(at("dir"), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	T_EQ(rmdir(at("dir")), 0);
	T_EQ(fstat(d, &st), 0);
	T_EQ(st.st_nlink, 0);
	CASE_GIVES(openat(d, "file", O_RDWR | O_CREAT | O_CLOEXEC, 0644), ENOENT);
	CASE_GIVES(mkdirat(d, "dir", 0755), ENOENT);
	/* A new directory of the same name is different. */
	T_EQ(mkdir(at("dir"), 0755), 0);
	CASE_GIVES(openat(d, "file", O_RDWR | O_CREAT | O_CLOEXEC, 0644), ENOENT);
	case_close(d);
}

static void deep_paths(void)
{
	int d = CASE_OK(open(case_here, O_RDONLY | O_DIRECTORY | O_CLOEXEC)), next;
	char cwd[PATH_MAX * 3];

	int was = CASE_OK(open(".", O_PATH | O_CLOEXEC));

	for (int i = 0; i < 100; i++) {
		T_EQ(mkdirat(d, "directory-with-a-name", 0755), 0);
		next = CASE_OK(
			openat(d, "directory-with-a-name", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
		case_close(d);
		d = next;
	}
	T_EQ(fchdir(d), 0);
	T_CHECK(getcwd(cwd, sizeof(cwd)));
	T_CHECK(strlen(cwd) > 2200);
	T_EQ(fchdir(was), 0);
	case_close(was);
	case_close(d);
}

int main(int argc, char **argv)
{
	case_init(argc, argv);
	CASE(many_entries);
	CASE(entries_are_seen_when_made);
	CASE(places);
	CASE(removed_while_listed);
	CASE(removed_as_it_is_listed);
	CASE(numbers_and_types);
	CASE(links_of_directories);
	CASE(directories_are_moved);
	CASE(removed_while_open);
	CASE(deep_paths);
	return case_done();
}
