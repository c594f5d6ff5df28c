/* SPDX-License-Identifier: MIT */
/*
 * guard [--shared] COMMAND [ARGUMENT...]: run a test, then remove all that it started, mounted
 * or left behind, no matter how it ended.
 *
 * The command gets a scratch directory (TMPDIR, PST_TEST_DIR, and its cache below it) and, if
 * permitted, private mounts and a private /dev/shm and /run/penstock; with --shared it gets no
 * private mounts.  PST_TEST_ID is a word that no other test has, for names in shared places.
 *
 * There are three processes.  The first waits and passes signals on.  Its child, the keeper, has
 * its own session, so that it survives a SIGKILL to the caller's process group; it is the parent
 * of every orphan below it.  The third becomes the command.
 *
 * The exit status is the command's, or 128 plus the signal's number.  Processes and mounts left
 * behind are printed on stderr and turn status 0 into 1.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <linux/mount.h>

#define GRACE_MS 10000 /* ms for processes to end by themselves */
#define END_MS 60000   /* ms for killed processes to end */
#define SHM "/dev/shm"
#define PLACE "/run/penstock"

static char scratch[PATH_MAX];
static const char *id; /* last component of scratch */

/* Names in a shared /dev/shm before the test. */
static char **shm_before;
static size_t nr_shm_before;

static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *fmt, ...)
{
	char line[PATH_MAX + 200];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	(void)fprintf(stderr, "guard: %s\n", line);
}

static uint64_t now_ms(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* Run a program and wait for it; return true if its status was 0. */
static bool run(const char *const argv[])
{
	pid_t pid = fork();
	int status = -1;

	if (pid == 0) {
		(void)execvp(argv[0], (char **)(uintptr_t)argv);
		_exit(127);
	}
	if (pid > 0)
		(void)waitpid(pid, &status, 0);
	return status == 0;
}

static void remove_tree(const char *path)
{
	/* A test may leave read-only directories.  Files are not made writable: they may have
	 * links elsewhere. */
	(void)run((const char *const[]){
		"sh", "-c",
		"find \"$0\" -xdev -type d ! -perm -700 -exec chmod u+rwx {} \\; 2>/dev/null; "
		"exec rm -rf --one-file-system \"$0\"",
		path, NULL });
}

/* ------------------------------------------------------------------ mounts */

/*
 * Make a private mount namespace.  In a chroot "/" is no mount point, and its propagation cannot
 * be changed there: setns() enters the namespace's real root, where it can.  Then make the
 * chroot's root a mount point, because tests remount "/" private after unshare().
 */
static bool unshare_mounts(void)
{
	int ns, root, cwd, tree = -1;
	bool good;

	if (unshare(CLONE_NEWNS) < 0)
		return false;
	ns = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	root = open("/", O_PATH | O_CLOEXEC);
	cwd = open(".", O_PATH | O_CLOEXEC);
	good = ns >= 0 && root >= 0 && cwd >= 0 && setns(ns, CLONE_NEWNS) == 0 &&
	       mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 && fchdir(root) == 0 &&
	       chroot(".") == 0;
	if (good && mount(NULL, "/", NULL, MS_PRIVATE, NULL) < 0) {
		char was[PATH_MAX];

		good = fchdir(cwd) == 0 && getcwd(was, sizeof(was));
		tree = (int)syscall(SYS_open_tree, AT_FDCWD, "/",
				    OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
		good = good && tree >= 0 &&
		       syscall(SYS_move_mount, tree, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH) ==
			       0 &&
		       fchdir(tree) == 0 && chroot(".") == 0 && chdir(was) == 0;
	} else {
		good = good && fchdir(cwd) == 0;
	}
	if (!good) {
		say("no mounts of its own: %s", strerror(errno));
		exit(125);
	}
	(void)close(tree);
	(void)close(ns);
	(void)close(root);
	(void)close(cwd);
	return true;
}

/* Decode the octal escapes of mountinfo, like \040 for a space. */
static void unescape(char *s)
{
	char *to = s;

	for (; *s; s++) {
		if (s[0] == '\\' && isdigit(s[1]) && isdigit(s[2]) && isdigit(s[3])) {
			*to++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 3;
		} else {
			*to++ = *s;
		}
	}
	*to = '\0';
}

/* Find the last mount below the scratch directory; return false if there is none. */
static bool last_mount(char ret[PATH_MAX])
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	size_t room = 0, len = strlen(scratch);
	char *line = NULL, *at, *end;
	bool found = false;

	while (f && getline(&line, &room, f) > 0) {
		at = line;
		for (int i = 0; at && i < 4; i++)
			at = strchr(at + 1, ' ');
		end = at ? strchr(++at, ' ') : NULL;
		if (!end)
			continue;
		*end = '\0';
		unescape(at);
		if (strncmp(at, scratch, len) != 0 || at[len] != '/' || strlen(at) >= PATH_MAX)
			continue;
		(void)strcpy(ret, at);
		found = true;
	}
	free(line);
	if (f)
		(void)fclose(f);
	return found;
}

/* Unmount all mounts below the scratch directory and return their number.  MNT_FORCE aborts
 * requests that wait for a FUSE server, even a stopped one. */
static unsigned unmount_all(bool aloud)
{
	char path[PATH_MAX];
	unsigned nr = 0;

	for (; nr < 1000 && last_mount(path); nr++) {
		if (aloud)
			say("left behind: the mount %s", path);
		(void)umount2(path, MNT_FORCE | UMOUNT_NOFOLLOW);
		if (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) < 0 && errno == EPERM &&
		    !run((const char *const[]){ "fusermount3", "-u", "-z", "-q", path, NULL }))
			return nr + 1;
	}
	return nr;
}

/* Detach loop devices of files in the scratch directory; they outlive their mounts. */
static void detach_loops(void)
{
	(void)run(
		(const char *const[]){ "sh", "-c",
				       "for f in /sys/block/loop*/loop/backing_file; do "
				       "case $(cat \"$f\" 2>/dev/null) in \"$0\"/*) "
				       "f=${f#/sys/block/}; losetup -d /dev/${f%%/*} ;; esac; done",
				       scratch, NULL });
}

/* --------------------------------------------------------------- processes */

/* Return the next number in /proc; 0: none. */
static pid_t next_pid(DIR *d)
{
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (isdigit(e->d_name[0]))
			return (pid_t)atoi(e->d_name);
	return 0;
}

static pid_t parent_of(pid_t pid, char ret_comm[32])
{
	char path[64], buf[512], *end = NULL, *begin;
	pid_t ppid = 0;
	FILE *f;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "re");
	if (!f)
		return 0;
	if (fgets(buf, sizeof(buf), f))
		end = strrchr(buf, ')');
	(void)fclose(f);
	begin = strchr(buf, '(');
	if (!end || !begin || sscanf(end + 1, " %*c %d", &ppid) != 1)
		return 0;
	*end = '\0';
	(void)snprintf(ret_comm, 32, "%s", begin + 1);
	return ppid;
}

static void kill_children(bool aloud)
{
	DIR *d = opendir("/proc");
	char comm[32];
	pid_t pid;

	while ((pid = next_pid(d))) {
		if (parent_of(pid, comm) != getpid())
			continue;
		if (aloud)
			say("left behind: process %d (%s)", pid, comm);
		(void)kill(pid, SIGKILL);
	}
	if (d)
		(void)closedir(d);
}

/* Reap ended children; return true if there are others. */
static bool have_children(void)
{
	pid_t pid;

	while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
		;
	return pid == 0;
}

static void wait_children(uint64_t ms)
{
	static const struct timespec tick = { .tv_nsec = 5000000 };
	uint64_t end = now_ms() + ms;

	while (have_children() && now_ms() < end)
		(void)nanosleep(&tick, NULL);
}

/*
 * Kill all children.  Children of a killed process become ours, so repeat until there are none.
 * A process that hangs in a mount ends after the mount was aborted.
 */
static void kill_all(bool aloud)
{
	uint64_t end = now_ms() + END_MS;

	for (bool first = true; have_children(); first = false) {
		kill_children(aloud && first);
		wait_children(first ? 100 : 500);
		if (!first)
			(void)unmount_all(aloud);
		if (now_ms() >= end) {
			say("there are processes that cannot be ended");
			return;
		}
	}
}

/* ------------------------------------------------------------ shared memory */

static void shm_list(void)
{
	DIR *d = opendir(SHM);
	struct dirent *e;

	while (d && (e = readdir(d))) {
		char **more = realloc(shm_before, (nr_shm_before + 1) * sizeof(*more));

		if (!more || !(more[nr_shm_before] = strdup(e->d_name)))
			exit(125);
		shm_before = more;
		nr_shm_before++;
	}
	if (d)
		(void)closedir(d);
}

static bool shm_was_there(const char *name)
{
	for (size_t i = 0; i < nr_shm_before; i++)
		if (strcmp(shm_before[i], name) == 0)
			return true;
	return false;
}

static bool has_open(pid_t pid, const char *path)
{
	char name[64 + NAME_MAX], to[PATH_MAX];
	struct dirent *e;
	bool found = false;
	ssize_t n;
	DIR *d;

	(void)snprintf(name, sizeof(name), "/proc/%d/fd", pid);
	d = opendir(name);
	while (!found && d && (e = readdir(d))) {
		(void)snprintf(name, sizeof(name), "/proc/%d/fd/%s", pid, e->d_name);
		n = readlink(name, to, sizeof(to) - 1);
		to[n > 0 ? n : 0] = '\0';
		found = strcmp(to, path) == 0;
	}
	if (d)
		(void)closedir(d);
	return found;
}

static bool has_mapped(pid_t pid, const char *path)
{
	char name[64], *line = NULL;
	bool found = false;
	size_t room = 0;
	FILE *f;

	(void)snprintf(name, sizeof(name), "/proc/%d/maps", pid);
	f = fopen(name, "re");
	while (!found && f && getline(&line, &room, f) > 0) {
		line[strcspn(line, "\n")] = '\0';
		found = strlen(line) > strlen(path) &&
			strcmp(line + strlen(line) - strlen(path), path) == 0;
	}
	free(line);
	if (f)
		(void)fclose(f);
	return found;
}

static bool in_use(const char *path)
{
	DIR *d = opendir("/proc");
	bool found = !d;
	pid_t pid;

	while (!found && (pid = next_pid(d)))
		found = has_open(pid, path) || has_mapped(pid, path);
	if (d)
		(void)closedir(d);
	return found;
}

/*
 * If /dev/shm is shared with the machine, remove this test's names, and the library's names that
 * appeared during the test and that no process uses.
 */
static void shm_clean(void)
{
	static const char *const ours[] = { "hf3fs-", "sem.", "pst-" };
	DIR *d = opendir(SHM);
	struct dirent *e;
	struct stat st;

	while (d && (e = readdir(d))) {
		char path[sizeof(SHM) + NAME_MAX + 1];
		bool maybe = false;

		(void)snprintf(path, sizeof(path), SHM "/%s", e->d_name);
		if (shm_was_there(e->d_name) || lstat(path, &st) < 0 || st.st_uid != geteuid())
			continue;
		if (strncmp(e->d_name, id, strlen(id)) == 0) {
			remove_tree(path);
			continue;
		}
		for (size_t i = 0; i < sizeof(ours) / sizeof(*ours); i++)
			maybe |= strncmp(e->d_name, ours[i], strlen(ours[i])) == 0;
		if (maybe && !in_use(path))
			(void)(S_ISDIR(st.st_mode) ? rmdir(path) : unlink(path));
	}
	if (d)
		(void)closedir(d);
}

/* ---------------------------------------------------------------- the keeper */

static void command(char **argv)
{
	sigset_t none;

	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)setsid();
#ifdef NO_RANDOMIZE
	/*
	 * gcc 12's thread sanitizer supports only the usual address space layout, and newer
	 * kernels randomize more bits.  A container may forbid this call; then try with
	 * randomization.
	 */
	(void)personality(ADDR_NO_RANDOMIZE);
#endif
	(void)execvp(argv[0], argv);
	say("%s: %s", argv[0], strerror(errno));
	_exit(127);
}

static void make_scratch(void)
{
	const char *parent = getenv("PST_TEST_DIR"), *tmp = getenv("TMPDIR");
	char real[PATH_MAX], cache[PATH_MAX + 8];

	/* Resolve the path: mountinfo shows it so, and it is valid in every directory. */
	parent = parent ? parent : tmp ? tmp : "/var/tmp";
	if (!realpath(parent, real) ||
	    (size_t)snprintf(scratch, sizeof(scratch), "%s/pst-XXXXXX", real) >= sizeof(scratch) ||
	    !mkdtemp(scratch)) {
		say("no directory in %s: %s", parent, strerror(errno));
		exit(125);
	}
	id = strrchr(scratch, '/') + 1;
	/* Tests run as other users, too. */
	(void)chmod(scratch, 0711);
	(void)snprintf(cache, sizeof(cache), "%s/cache", scratch);
	(void)mkdir(cache, 0700);
	(void)setenv("TMPDIR", scratch, 1);
	(void)setenv("PST_TEST_DIR", scratch, 1);
	(void)setenv("PST_TEST_ID", id, 1);
	(void)setenv("XDG_CACHE_HOME", cache, 1);
	/* Keep Python from writing compiled modules into the checkout. */
	(void)setenv("PYTHONDONTWRITEBYTECODE", "1", 1);
}

/* Wait until the command ends or a signal ends the test; return the status. */
static int wait_command(pid_t pid, const sigset_t *signals)
{
	int sig, status;
	pid_t gone;

	for (;;) {
		sig = sigwaitinfo(signals, NULL);
		if (sig < 0)
			continue;
		if (sig != SIGCHLD)
			return 128 + sig;
		while ((gone = waitpid(-1, &status, WNOHANG)) > 0)
			if (gone == pid)
				return WIFEXITED(status) ? WEXITSTATUS(status)
							 : 128 + WTERMSIG(status);
	}
}

static int keeper(char **argv, bool shared, const sigset_t *signals)
{
	char path[PATH_MAX];
	bool aloud, own_mounts, own_shm;
	int status;
	pid_t pid;

	make_scratch();
	/* A mount on /dev/shm would hide a scratch directory in it. */
	own_mounts = !shared && unshare_mounts();
	own_shm = own_mounts && strncmp(scratch, SHM "/", sizeof(SHM)) != 0 &&
		  mount("none", SHM, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777") == 0;
	/* Private, because servers remove leftovers of other tests' ended servers there. */
	if (own_mounts && (mkdir(PLACE, 0700) == 0 || errno == EEXIST))
		(void)mount("none", PLACE, "tmpfs", MS_NOSUID | MS_NODEV, "mode=700");
	if (!own_shm)
		shm_list();
	pid = fork();
	if (pid == 0)
		command(argv);
	status = pid < 0 ? 125 : wait_command(pid, signals);

	/* Do not report leftovers of a test that failed or was killed. */
	aloud = status == 0;
	if (aloud)
		wait_children(GRACE_MS);
	if (have_children() && aloud)
		status = 1;
	kill_all(aloud);
	if (unmount_all(aloud) && aloud)
		status = 1;
	detach_loops();
	if (!own_shm)
		shm_clean();
	/* Leave the scratch directory. */
	if (chdir("/") < 0)
		say("/ cannot be entered: %s", strerror(errno));
	/* Remove nothing below a remaining mount: its files may be others'. */
	if (last_mount(path)) {
		say("%s stays: %s cannot be unmounted", scratch, path);
		return status ? status : 1;
	}
	remove_tree(scratch);
	return status;
}

int main(int argc, char **argv)
{
	static const int ends[] = { SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM };
	bool shared = argc > 1 && strcmp(argv[1], "--shared") == 0;
	pid_t parent = getpid(), pid;
	sigset_t signals;
	int sig, status;

	argv += 1 + shared;
	if (!*argv) {
		(void)fprintf(stderr, "usage: guard [--shared] COMMAND [ARGUMENT...]\n");
		return 125;
	}
	(void)sigemptyset(&signals);
	for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		(void)sigaddset(&signals, ends[i]);
		/* A shell may have started this with signals ignored, which would never arrive. */
		(void)signal(ends[i], SIG_DFL);
	}
	(void)sigprocmask(SIG_BLOCK, &signals, NULL);
	(void)prctl(PR_SET_PDEATHSIG, SIGTERM);

	/* The library needs this call to keep cuFile's log out of the current directory.  Where
	 * it is forbidden, name a log file, so that the library uses cuFile nevertheless. */
	if (unshare(CLONE_FS) < 0)
		(void)setenv("CUFILE_LOGFILE_PATH", "/dev/null", 0);

	pid = fork();
	if (pid < 0) {
		say("no process: %s", strerror(errno));
		return 125;
	}
	if (pid == 0) {
		(void)setsid();
		(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
		(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (getppid() != parent)
			_exit(125);
		exit(keeper(argv, shared, &signals));
	}
	for (;;) {
		sig = sigwaitinfo(&signals, NULL);
		if (sig == SIGCHLD && waitpid(pid, &status, WNOHANG) == pid)
			return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		if (sig > 0 && sig != SIGCHLD)
			(void)kill(pid, sig);
	}
}
