/* SPDX-License-Identifier: MIT */
/*
 * The server of a mount, which 'penstock mount' starts.  When DIR is mounted, it prints a line;
 * unless it runs in the foreground, the starting process then exits.
 */
#include <dirent.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "net/notify.h"
#include "usrbio/mount/broker.h"
#include "usrbio/mount/caller.h"
#include "usrbio/mount/fds.h"
#include "usrbio/mount/leftover.h"
#include "usrbio/mount/log.h"
#include "usrbio/mount/scrape.h"
#include "usrbio/mount/session.h"
#include "usrbio/mount/source.h"
#include "usrbio/proto/place.h"

#define TRIES 300 /* tries to bind the socket's name, and the interval between them */
#define TRY_AGAIN_US 10000

static const char usage[] =
	"Usage: penstock-mount [--foreground] [--kernel-cache] [--timeout SECONDS]\n"
	"                      [--read-only] [--no-atime] [--no-exec]\n"
	"                      [--inodes N] [--links N] [--rings N] [--memory BYTES]\n"
	"                      [--users N] [--uid N] [--gid N]\n"
	"                      [--metrics PATH|ADDRESS:PORT|none]\n"
	"                      --source SOURCE DIR\n";

/* Parse the value of an option that 'penstock mount' has checked. */
static uint64_t mount_number(uint64_t max)
{
	unsigned long long n;
	char *end;

	errno = 0;
	n = strtoull(optarg, &end, 10);
	if (errno || end == optarg || *end || *optarg == '-' || n > max) {
		(void)fprintf(stderr, "penstock: '%s' is no number for that option\n", optarg);
		exit(2);
	}
	return n;
}

static int main_fail(int err, const char *what)
{
	(void)fprintf(stderr, "%spenstock: %s: %s\n", log_is_journal() ? "<3>" : "", what,
		      strerror(-err));
	return 1;
}

/* Raise the limit of descriptors as far as possible, because each inode that the kernel knows is
 * an open descriptor. */
static unsigned raise_files(void)
{
	static const rlim_t wanted = 1u << 20; /* the usual fs.nr_open */
	struct rlimit l = { wanted, wanted };

	if (setrlimit(RLIMIT_NOFILE, &l) < 0 && getrlimit(RLIMIT_NOFILE, &l) == 0) {
		l.rlim_cur = l.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &l);
	}
	return (unsigned)MIN(l.rlim_cur, wanted);
}

/* Drop CAP_SYS_RESOURCE: the server must not use reserved blocks or exceed quotas for its users. */
static void drop_resource(void)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[2];

	if (syscall(SYS_capget, &h, caps) < 0)
		return;
	caps[0].effective &= ~(1u << CAP_SYS_RESOURCE);
	caps[0].permitted &= ~(1u << CAP_SYS_RESOURCE);
	(void)syscall(SYS_capset, &h, caps);
}

/* Make sure that descriptors 0 to 2 are open. */
static void open_stdio(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd < 3);
	closep(&fd);
}

/* Set close-on-exec on inherited descriptors, so that workers do not get them. */
static void close_in_workers(void)
{
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (atoi(e->d_name) > STDERR_FILENO)
			(void)fcntl(atoi(e->d_name), F_SETFD, FD_CLOEXEC);
	if (d)
		(void)closedir(d);
}

/* Notify the service manager if NOTIFY_SOCKET is set. */
static void tell_service(const char *state)
{
	int err = notify_service(state);

	if (err < 0)
		log_warn("who started the server cannot be told, as NOTIFY_SOCKET asks",
			 "state=%s error=%s", state, log_errno(err));
}

/* Start serving metrics.  A failure is fatal only if the user chose the address explicitly. */
static int start_scrape(struct fs *fs, struct scrape **ret)
{
	const char *path = fs->opts->metrics;
	int err = -EADDRINUSE;

	if (path && !*path)
		return 0;
	/* A previous server of this mount may be about to end: try again. */
	for (int i = 0; err == -EADDRINUSE && i < TRIES; i++) {
		if (i)
			(void)usleep(TRY_AGAIN_US);
		err = scrape_start(fs, path, ret);
	}
	if (err < 0 && path)
		return main_fail(err, path);
	if (err < 0)
		log_warn("there are no numbers of this mount: its socket cannot be made",
			 "error=%s cure=%s", log_errno(err),
			 log_text("give --metrics PATH, or --metrics none").s);
	else
		log_info("numbers are told", "socket=%s", log_text(scrape_path(*ret)).s);
	return 0;
}

static int mount_open_source(struct fs *fs)
{
	struct stat root;
	int fd = -1, r = fs->source->open(fs, &fd, &root);

	if (r < 0)
		return r;
	fs->proc = open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fs->proc < 0) {
		int err = -errno;

		closep(&fd);
		return err;
	}
	r = nodes_init(&fs->nodes, fd, &root, fs->opts->inodes);
	if (r == 0 && fs->source->begin)
		fs->source->begin(fs);
	return r;
}

/* Return true if standard error may stay open for the log: it is the journal or a file.  Close a
 * terminal, so that it can be used again, and a pipe, because its reader may wait for the end of
 * file. */
static bool keeps_stderr(void)
{
	struct stat st;

	return log_is_journal() || (fstat(STDERR_FILENO, &st) == 0 && S_ISREG(st.st_mode));
}

/* Report that the mount is ready.  In the background, release the terminal. */
static void mount_ready(const struct fs_opts *o, int ready_fd)
{
	int null;

	(void)printf("%s serves %s\n", o->dir, o->source);
	(void)fflush(stdout);
	tell_service("READY=1");
	if (ready_fd < 0)
		return;
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null >= 0)
		for (int fd = 0; fd < (keeps_stderr() ? 2 : 3); fd++)
			(void)dup2(null, fd);
	closep(&null);
	(void)!write(ready_fd, "", 1);
	(void)close(ready_fd);
}

static int mount_serve(const struct fs_opts *o, int ready_fd)
{
	struct fs fs = {
		.opts = o,
		.source = source_of(o->source),
		.proc = -1,
		.timeout = o->timeout_s,
		.since = now_ns(),
	};
	struct scrape *scrape = NULL;
	unsigned removed;
	int err, status;

	(void)pthread_mutex_init(&fs.lock, NULL);
	list_init(&fs.files);
	list_init(&fs.dirs);
	err = mount_open_source(&fs);
	if (err < 0)
		return main_fail(err,
				 err == -ENOSYS ? "-o ro and noatime take Linux 5.12" : o->source);
	err = broker_new(&o->quota, session_forget, &fs, &fs.broker);
	if (err == 0)
		err = session_open(&fs);
	if (err < 0)
		return main_fail(err, o->dir);
	status = start_scrape(&fs, &scrape);
	if (status == 0) {
		mount_ready(o, ready_fd);
		log_info("serves", "dir=%s", log_text(o->dir).s);
		removed = leftover_sweep(LEFTOVER_ALL);
		if (removed)
			log_info("removed what dead processes left in /dev/shm", "files=%u",
				 removed);
		err = session_run(&fs);
		log_info("ends", "dir=%s", log_text(o->dir).s);
		tell_service("STOPPING=1");
	}
	scrape_stop(scrape);
	session_close(&fs);
	fs.source->close_files(&fs);
	dirs_done(&fs);
	broker_free(fs.broker);
	nodes_done(&fs.nodes);
	if (fs.source->close)
		fs.source->close(&fs);
	(void)close(fs.proc);
	return err < 0 ? main_fail(err, o->dir) : status;
}

/* Run in a child; the parent exits when the child is ready, or with the child's status. */
static int in_background(const struct fs_opts *o)
{
	int fds[2], status;
	char c;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return main_fail(-errno, "pipe");
	(void)fflush(stdout);
	pid = fork();
	if (pid < 0)
		return main_fail(-errno, "fork");
	if (pid == 0) {
		(void)close(fds[0]);
		(void)setsid();
		(void)!chdir("/");
		return mount_serve(o, fds[1]);
	}
	(void)close(fds[1]);
	if (read(fds[0], &c, 1) == 1)
		return 0;
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* Return true for an absolute path, a loopback address, "" or NULL. */
static bool is_place(const char *metrics)
{
	struct sockaddr_storage a;

	return !metrics || !*metrics || *metrics == '/' || usrbio_place_tcp(metrics, &a) > 0;
}

int main(int argc, char *argv[])
{
	static const struct option longs[] = {
		{ "foreground", no_argument, NULL, 'f' },
		{ "kernel-cache", no_argument, NULL, 'k' },
		{ "read-only", no_argument, NULL, 'R' },
		{ "no-atime", no_argument, NULL, 'A' },
		{ "no-exec", no_argument, NULL, 'X' },
		{ "source", required_argument, NULL, 's' },
		{ "timeout", required_argument, NULL, 't' },
		{ "inodes", required_argument, NULL, 'i' },
		{ "links", required_argument, NULL, 'l' },
		{ "rings", required_argument, NULL, 'r' },
		{ "memory", required_argument, NULL, 'm' },
		{ "users", required_argument, NULL, 'u' },
		{ "metrics", required_argument, NULL, 'M' },
		{ "uid", required_argument, NULL, 'U' },
		{ "gid", required_argument, NULL, 'G' },
		{ 0 },
	};
	struct fs_opts o = {
		.timeout_s = 1,
		.uid = geteuid(),
		.gid = getegid(),
		.quota = { .users = 512, .links = 16384, .rings = 1024 },
	};
	char dir[PATH_MAX], source[PATH_MAX];
	const struct source_ops *kind;
	bool foreground = false;
	unsigned files;
	int opt;

	open_stdio();
	close_in_workers();
	log_init();
	(void)signal(SIGPIPE, SIG_IGN); /* the reader of standard output may have exited */
	while ((opt = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (opt) {
		case 'f':
			foreground = true;
			break;
		case 'k':
			o.kernel_cache = true;
			break;
		case 'R':
			o.read_only = true;
			break;
		case 'A':
			o.no_atime = true;
			break;
		case 'X':
			o.no_exec = true;
			break;
		case 's':
			o.source = optarg;
			break;
		case 't':
			o.timeout_s = (unsigned)mount_number(UINT_MAX);
			break;
		case 'i':
			o.inodes = (unsigned)mount_number(UINT_MAX);
			break;
		case 'l':
			o.quota.links = (unsigned)mount_number(UINT_MAX);
			break;
		case 'r':
			o.quota.rings = (unsigned)mount_number(UINT_MAX);
			break;
		case 'm':
			o.quota.bytes = mount_number(UINT64_MAX);
			break;
		case 'u':
			o.quota.users = (unsigned)mount_number(UINT_MAX);
			break;
		case 'U':
			o.uid = (uid_t)mount_number(UINT_MAX - 1);
			break;
		case 'G':
			o.gid = (gid_t)mount_number(UINT_MAX - 1);
			break;
		case 'M':
			o.metrics = strcmp(optarg, "none") != 0 ? optarg : "";
			break;
		default:
			(void)fputs(usage, stderr);
			return 2;
		}
	}
	if (argc - optind != 1 || !o.source || !is_place(o.metrics)) {
		(void)fputs(usage, stderr);
		return 2;
	}
	kind = source_of(o.source);
	if ((o.read_only && !kind->can_be_ro) || (o.no_atime && kind != &source_dir))
		return main_fail(-EOPNOTSUPP, "-o ro or noatime of this kind of source");
	o.kernel_cache |= kind->only_cache;
	if (kind != &source_dir)
		(void)snprintf(source, sizeof(source), "%s", o.source);
	else if (!realpath(o.source, source))
		return main_fail(-errno, o.source);
	if (!realpath(argv[optind], dir))
		return main_fail(-errno, argv[optind]);
	o.source = source;
	o.dir = dir;
	files = raise_files();
	if (!o.inodes)
		o.inodes = files / 2; /* the other half is for open files */
	fds_init(files, o.inodes, geteuid() != 0);
	drop_resource();
	caller_init();
	return foreground ? mount_serve(&o, -1) : in_background(&o);
}
