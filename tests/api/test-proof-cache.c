/* SPDX-License-Identifier: MIT */
/*
 * A private cache keeps proofs for later processes.  A cache that another user may have written
 * is ignored.
 */
#include "proof.h"

/* ------------------------------------------------------------------- cache */

static bool cache_is_empty(void)
{
	struct stat st;

	return stat(cache_path("penstock/proofs"), &st) < 0 || st.st_size == 0;
}

/* Make a cache with all proofs, by an honest process. */
static void cache_full(void)
{
	cache_new();
	in_child(honest_child);
	T_CHECK(!cache_is_empty());
}

/* Check that a process works, ignores the cache and leaves it unchanged. */
static void untrusted(void)
{
	char before[4096], after[4096];
	int fd = open(cache_path("penstock/proofs"), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t had = fd >= 0 ? pread(fd, before, sizeof(before), 0) : -1, has;

	if (fd >= 0)
		(void)close(fd);
	in_child(honest_child);
	fd = open(cache_path("penstock/proofs"), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	has = fd >= 0 ? pread(fd, after, sizeof(after), 0) : -1;
	if (fd >= 0)
		(void)close(fd);
	T_EQ(has, had);
	T_CHECK(has <= 0 || memcmp(before, after, (size_t)has) == 0);
}

static void a_public_directory(void)
{
	static const mode_t modes[] = { 0777, 0770, 0707, 0711, 0701 };

	cache_full();
	for (unsigned i = 0; i < RIG_NR(modes); i++) {
		T_EQ(chmod(cache_path("penstock"), modes[i]), 0);
		untrusted();
	}
	T_EQ(chmod(cache_path("penstock"), 0700), 0);
	in_child(knows_child);
}

static void a_linked_directory(void)
{
	cache_full();
	T_EQ(rename(cache_path("penstock"), cache_path("elsewhere")), 0);
	T_EQ(symlink(cache_path("elsewhere"), cache_path("penstock")), 0);
	untrusted();
}

static void a_linked_file(void)
{
	cache_full();
	T_EQ(rename(cache_path("penstock/proofs"), cache_path("elsewhere")), 0);
	T_EQ(symlink(cache_path("elsewhere"), cache_path("penstock/proofs")), 0);
	untrusted();
	/* If the link points nowhere, no file is made there. */
	T_EQ(unlink(cache_path("elsewhere")), 0);
	untrusted();
	T_EQ(access(cache_path("elsewhere"), F_OK), -1);
}

static void a_strangers_directory(void)
{
	if (geteuid())
		T_SKIP("root, to give a directory away");
	cache_full();
	T_EQ(chown(cache_path("penstock"), 12345, 12345), 0);
	untrusted();
	T_EQ(chown(cache_path("penstock"), 0, 0), 0);
	T_EQ(chown(cache_path("penstock/proofs"), 12345, 12345), 0);
	untrusted();
}

static void is_empty(const char *path)
{
	struct dirent *e;
	DIR *d = opendir(path);

	T_CHECK(d);
	while ((e = readdir(d)) && e->d_name[0] == '.' &&
	       strspn(e->d_name, ".") == strlen(e->d_name))
		;
	if (e)
		T_FAIL("there is %.100s in %.200s", e->d_name, path);
	(void)closedir(d);
}

/* sudo keeps HOME: root must create nothing below a user's home. */
static void a_strangers_home(void)
{
	static const char *const subs[] = { "", "/", "/cache", "/cache//" };
	char xdg[PATH_MAX + 64];
	const char *home;

	if (geteuid())
		T_SKIP("root, to give a directory away");
	cache_new();
	home = strdup(cache_path("home"));
	T_EQ(mkdir(home, 0755), 0);
	T_EQ(chown(home, 12345, 12345), 0);
	for (unsigned i = 0; i < RIG_NR(subs); i++) {
		(void)snprintf(xdg, sizeof(xdg), "%s%s", home, subs[i]);
		(void)setenv("XDG_CACHE_HOME", xdg, 1);
		in_child(honest_child);
		is_empty(home);
	}
	(void)unsetenv("XDG_CACHE_HOME");
	(void)setenv("HOME", home, 1);
	in_child(honest_child);
	is_empty(home);
	/* The same path works once root owns it. */
	T_EQ(chown(home, 0, 0), 0);
	in_child(honest_child);
	in_child(knows_child);
	(void)snprintf(xdg, sizeof(xdg), "%s/.cache/penstock/proofs", home);
	check_mode(xdg, S_IFREG, 0600);
	free((char *)(uintptr_t)home);
}

/* The cache's file system hangs: no open, request or exit may wait for it. */
static void a_home_that_hangs(void)
{
	struct fusefs fs;

	if (fusefs_start(&fs, "/tmp") < 0)
		T_SKIP("%s", fs.why);
	(void)setenv("XDG_CACHE_HOME", fs.dir, 1);
	(void)kill(fs.pid, SIGSTOP);
	hung = &fs;
	in_child(honest_child);
	hung = NULL;
}

static void no_file(void)
{
	cache_full();
	T_EQ(unlink(cache_path("penstock/proofs")), 0);
	T_EQ(mkfifo(cache_path("penstock/proofs"), 0600), 0);
	in_child(honest_child); /* no request waits for a writer of the FIFO */
	T_EQ(unlink(cache_path("penstock/proofs")), 0);
	T_EQ(mkdir(cache_path("penstock/proofs"), 0700), 0);
	in_child(honest_child);
	cache_new();
	(void)close(open(cache_path("penstock"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	in_child(honest_child);
	(void)setenv("XDG_CACHE_HOME", "relative", 1);
	(void)setenv("HOME", "", 1);
	in_child(honest_child);
	T_EQ(access("relative", F_OK), -1);
}

/* Random bytes in the cache are no proof, and are replaced in the end. */
static void rubbish(void)
{
	char *buf = malloc(1 << 20);
	int fd;

	cache_new();
	T_EQ(mkdir(cache_path("penstock"), 0700), 0);
	for (unsigned i = 0; i < 4; i++) {
		size_t len = i == 3 ? 1 << 20 : 5000;

		fd = open(cache_path("penstock/proofs"), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
			  0600);
		T_CHECK(fd >= 0);
		t_fill(buf, i, 0, len);
		if (i == 1)
			memset(buf, '\n', len);
		if (i == 2)
			memset(buf, 'a', len);
		T_EQ(write(fd, buf, len), (ssize_t)len);
		(void)close(fd);
		in_child(honest_child);
	}
	/* The last cache was too long, so a new one was written. */
	in_child(knows_child);
	free(buf);
}

/* A truncated key, or one with a prefix or suffix, must not match. */
static void other_keys(void)
{
	char buf[8192], line[8300];
	ssize_t n;
	int fd;

	cache_full();
	fd = open(cache_path("penstock/proofs"), O_RDWR | O_CLOEXEC);
	T_CHECK(fd >= 0);
	n = read(fd, buf, sizeof(buf) - 1);
	T_CHECK(n > 0);
	buf[n] = '\0';
	T_EQ(ftruncate(fd, 0), 0);
	for (char *s = strtok(buf, "\n"); s; s = strtok(NULL, "\n")) {
		int len = snprintf(line, sizeof(line), "x%s\n%sx\n %s\n%s \n%.*s\n", s, s, s, s,
				   (int)strlen(s) - 1, s);

		T_EQ(pwrite(fd, line, (size_t)len, lseek(fd, 0, SEEK_END)), len);
	}
	(void)close(fd);
	in_child(honest_child);
}

int main(void)
{
	rig_init();
	call_hook = lying_call;
	rig_dev = "host";
	T_RUN(a_public_directory);
	T_RUN(a_linked_directory);
	T_RUN(a_linked_file);
	T_RUN(a_strangers_directory);
	T_RUN(a_strangers_home);
	BOTH(a_home_that_hangs);
	rig_dev = "host";
	T_RUN(no_file);
	T_RUN(rubbish);
	T_RUN(other_keys);
	return rig_done();
}
