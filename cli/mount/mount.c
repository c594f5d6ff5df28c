/* SPDX-License-Identifier: MIT */
/* Create and remove mounts, and prepare plain directories for programs that use usrbio. */
#include "cli/mount/mount.h"

#include <getopt.h>
#include <inttypes.h>
#include <sys/stat.h>

#include "cli/commands.h"
#include "cli/mount/daemon.h"
#include "cli/mount/options.h"
#include "tools/common/shown.h"
#include "usrbio/proto/place.h"
#include "usrbio/proto/plain.h"

/* Attempts, and microseconds between them, while other processes prepare or undo the same
 * directory. */
#define TRIES 100
#define TRY_AGAIN_US 1000

const char mount_usage[] =
	"Usage: penstock mount DIR --source SOURCE [OPTION...]\n"
	"       penstock mount --plain DIR\n"
	"\n"
	"Makes SOURCE, a directory on any file system, appear at DIR, for programs that\n"
	"read and write files, and for those that use 3FS's usrbio there.  Everybody\n"
	"has the rights at DIR that he has at SOURCE, and a process of his own that\n"
	"executes his rings.  See penstock-mount(8).\n"
	"\n"
	"  --source SOURCE    the directory that is served; tier:SET, a set of tiers; or\n"
	"                     pst://HOST:PORT/, psts://, pst+unix://, a storage service\n"
	"  -o LIST            options as fstab has them: ro, noatime, noexec, and those\n"
	"                     below without their dashes\n"
	"  --allow-other      serve all users, as every mount of root's does\n"
	"  --foreground       do not go into the background\n"
	"  --kernel-cache     read and write files through the kernel's cache of the\n"
	"                     mount, also where the kernel could pass bytes on by\n"
	"                     itself (Linux 6.9, root)\n"
	"  --timeout SECONDS  how long the kernel trusts names and attributes (1)\n"
	"  --links N          most buffers and rings that a user may publish (16384)\n"
	"  --rings N          most rings that a user may publish (1024)\n"
	"  --users N          most users, but for root, that use rings at once (512)\n"
	"  --memory SIZE      most shared memory that a user may publish (any)\n"
	"  --uid N            the owner of the files of a storage service (who mounts it)\n"
	"  --gid N            their group\n"
	"  --metrics PATH     the socket for numbers of the mount, which 'penstock top'\n"
	"                     reads, in place of one in /run/penstock; 127.0.0.1:PORT:\n"
	"                     a port of the loopback, for everybody on this machine;\n"
	"                     'none': no socket\n"
	"\n"
	"With --plain, DIR is prepared for programs that use usrbio, without a daemon:\n"
	"they publish their rings in DIR/3fs-virt and do the work with threads of their\n"
	"own.  DIR then serves the user who prepared it.  Start the programs with\n"
	"'penstock run'.  Leftovers of programs that have ended are removed.\n"
	"'penstock umount DIR' undoes either.\n";

const char umount_usage[] =
	"Usage: penstock umount DIR\n"
	"\n"
	"Undoes 'penstock mount'.  Fails while a program uses DIR, and where there is\n"
	"nothing to undo.\n";

static void say_ready(const char *dir, bool was_ready, int removed)
{
	shown_printf(2, "%s %s ready: programs that use usrbio publish their rings in it.", dir,
		     was_ready ? "was already" : "is");
	shown_printf(2,
		     "Start them with 'penstock run -- PROGRAM'.  Their buffers come from "
		     "/dev/shm%s.",
		     mount_shm_text().s);
	if (removed > 0)
		shown_printf(2, "%d name%s that ended programs had left %s removed.", removed,
			     removed == 1 ? "" : "s", removed == 1 ? "was" : "were");
	shown_printf(2, "'penstock umount %s' undoes it.", dir);
}

/* Prepare the directory.  Return the number of stale names removed; -ENOENT without a sentence if
 * another process undoes it at the same time. */
static int prepare_once(const char *dir, bool *ret_was_ready)
{
	_cleanup_(closep) int iovs = usrbio_plain_open(dir);
	bool was_ready = iovs >= 0;
	int r = 0;

	if (!was_ready) {
		r = usrbio_plain_make(dir);
		iovs = r < 0 ? r : usrbio_plain_open(dir);
	}
	if (iovs < 0)
		return iovs == -ENOENT ? iovs : mount_fail(iovs, dir);
	r = mount_check_links(iovs, dir);
	if (r < 0) {
		if (!was_ready && r != -ENOENT)
			(void)usrbio_plain_remove(dir);
		return r;
	}
	r = usrbio_plain_sweep(iovs);
	if (r < 0)
		return r == -ENOENT ? r : mount_fail(r, dir);
	*ret_was_ready = was_ready;
	return r;
}

static int mount_plain(const char *given)
{
	char dir[PATH_MAX];
	bool was_ready = false;
	int r = mount_dir(given, dir);

	if (r == 0)
		r = mount_check_shm();
	if (r < 0)
		return r;
	r = prepare_once(dir, &was_ready);
	for (unsigned i = 1; i < TRIES && r == -ENOENT; i++) {
		(void)usleep(TRY_AGAIN_US);
		r = prepare_once(dir, &was_ready);
	}
	if (r < 0)
		return r == -ENOENT ? mount_fail(r, dir) : r;
	say_ready(dir, was_ready, r);
	return 0;
}

/* Undo the preparation.  Return 0; 1 if there was nothing to undo; or -errno: -ENOENT if another
 * process undoes it at the same time. */
static int undo_once(const char *dir)
{
	char virt[PATH_MAX + sizeof(USRBIO_VIRT) + 1];
	struct stat st;

	(void)snprintf(virt, sizeof(virt), "%s/" USRBIO_VIRT, dir);
	if (lstat(virt, &st) < 0 && errno == ENOENT)
		return 1;
	return usrbio_plain_remove(dir);
}

static int umount_plain(const char *given)
{
	char dir[PATH_MAX];
	int r = mount_dir(given, dir);

	if (r < 0)
		return r;
	r = undo_once(dir);
	for (unsigned i = 1; i < TRIES && r == -ENOENT; i++) {
		(void)usleep(TRY_AGAIN_US);
		r = undo_once(dir);
	}
	if (r > 0)
		return fail(EINVAL, "%s is no mount of Penstock: there is nothing to undo", dir);
	if (r == -EBUSY)
		return mount_busy(dir);
	if (r < 0)
		return mount_fail(r, dir);
	shown_printf(2, "%s serves no programs that use usrbio any more.", dir);
	return 0;
}

enum {
	PLAIN = 256,
	SOURCE,
	FOREGROUND,
	ALLOW_OTHER,
	KERNEL_CACHE,
	TIMEOUT,
	LINKS,
	RINGS,
	USERS,
	MEMORY,
	METRICS,
	UID,
	GID
};

static const struct {
	int opt;
	const char *name;
	uint64_t min, max;
	size_t to; /* offset in struct daemon_opts */
} numbers[] = {
	{ TIMEOUT, "timeout", 0, 86400, offsetof(struct daemon_opts, timeout_s) },
	{ LINKS, "links", 1, 1000000, offsetof(struct daemon_opts, links) },
	{ RINGS, "rings", 1, 1000000, offsetof(struct daemon_opts, rings) },
	{ USERS, "users", 1, 1000000, offsetof(struct daemon_opts, users) },
	{ UID, "uid", 0, UINT32_MAX - 1, offsetof(struct daemon_opts, uid) },
	{ GID, "gid", 0, UINT32_MAX - 1, offsetof(struct daemon_opts, gid) },
};

static int take_number(int opt, struct daemon_opts *o)
{
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
		if (numbers[i].opt != opt)
			continue;
		if (parse_number(optarg, numbers[i].min, numbers[i].max,
				 (uint64_t *)(void *)((char *)o + numbers[i].to)) == 0)
			return 0;
		return usage_error("--%s takes a number from %" PRIu64 " to %" PRIu64,
				   numbers[i].name, numbers[i].min, numbers[i].max);
	}
	return 0;
}

/* Return 0 or an exit status. */
static int check_metrics(const char *text)
{
	struct sockaddr_storage a;

	if (!*text)
		return usage_error("--metrics takes a path, 127.0.0.1:PORT, or 'none'");
	switch (usrbio_place_tcp(text, &a)) {
	case -EPERM:
		return usage_error("--metrics %s: others could read the numbers; give a port of "
				   "the loopback, 127.0.0.1:PORT or [::1]:PORT",
				   text);
	case -EINVAL:
		return usage_error("--metrics %s is no address and port; give 127.0.0.1:PORT or "
				   "[::1]:PORT, or for a path one with a slash",
				   text);
	default:
		return 0;
	}
}

static const struct option mount_longs[] = {
	{ "plain", no_argument, NULL, PLAIN },
	{ "source", required_argument, NULL, SOURCE },
	{ "foreground", no_argument, NULL, FOREGROUND },
	{ "allow-other", no_argument, NULL, ALLOW_OTHER },
	{ "kernel-cache", no_argument, NULL, KERNEL_CACHE },
	{ "timeout", required_argument, NULL, TIMEOUT },
	{ "links", required_argument, NULL, LINKS },
	{ "rings", required_argument, NULL, RINGS },
	{ "users", required_argument, NULL, USERS },
	{ "memory", required_argument, NULL, MEMORY },
	{ "metrics", required_argument, NULL, METRICS },
	{ "uid", required_argument, NULL, UID },
	{ "gid", required_argument, NULL, GID },
	{ 0 },
};

/* First of the options that may also appear in a list after -o. */
static const struct option *const in_lists = &mount_longs[4];

/* Return 0 or an exit status. */
static int take_option(int opt, struct daemon_opts *o)
{
	switch (opt) {
	case SOURCE:
		o->source = optarg;
		return 0;
	case FOREGROUND:
		o->foreground = true;
		return 0;
	case ALLOW_OTHER:
		o->allow_other = true;
		return 0;
	case KERNEL_CACHE:
		o->kernel_cache = true;
		return 0;
	case METRICS:
		o->metrics = optarg;
		return check_metrics(optarg);
	case MEMORY:
		if (parse_size(optarg, &o->memory) == 0)
			return 0;
		return usage_error("--memory takes a size, like 4g");
	case TIMEOUT:
	case LINKS:
	case RINGS:
	case USERS:
	case UID:
	case GID:
	default:
		return take_number(opt, o);
	}
}

int cmd_mount(int argc, char *argv[])
{
	struct daemon_opts o = DAEMON_DEFAULTS;
	bool plain = false, list = false;
	int opt;

	while ((opt = getopt_long(argc, argv, ":o:", mount_longs, NULL)) != -1) {
		int status = 0;

		if (opt == ':' || opt == '?')
			return option_error(argv, mount_longs, opt);
		plain |= opt == PLAIN;
		list |= opt == 'o';
		if (opt == 'o')
			status = options_take(optarg, false, in_lists, take_option, &o);
		else if (opt != PLAIN)
			status = take_option(opt, &o);
		if (status)
			return status;
	}
	if (plain == (o.source != NULL))
		return usage_error("give either --source SOURCE or --plain");
	if (plain && list)
		return usage_error("-o is for mounts with --source");
	if (argc - optind != 1)
		return usage_error("give one directory");
	return exit_status(plain ? mount_plain(argv[optind]) : daemon_start(argv[optind], &o));
}

/* ------------------------------------------------------------------ mount(8) */

static int as_helper(int argc, char *argv[])
{
	static const struct option none[] = { { 0 } };
	struct daemon_opts o = DAEMON_DEFAULTS;
	bool fake = false, sloppy = false;
	int opt, status;
	char *list = NULL;

	while ((opt = getopt_long(argc, argv, ":sfnvo:t:", none, NULL)) != -1) {
		switch (opt) {
		case 'f':
			fake = true;
			break;
		case 's':
			sloppy = true;
			break;
		case 'o':
			list = optarg;
			break;
		case 'n': /* ignored: there is no mtab */
		case 'v':
		case 't':
			break;
		default:
			return option_error(argv, none, opt);
		}
	}
	if (argc - optind != 2)
		return usage_error("mount(8) calls it with a source and a directory");
	status = list ? options_take(list, sloppy, in_lists, take_option, &o) : 0;
	if (status || fake)
		return status;
	o.source = argv[optind];
	return exit_status(daemon_start(argv[optind + 1], &o));
}

bool mount_helper(int argc, char *argv[], int *ret_status)
{
	const char *name = argc ? strrchr(argv[0], '/') : NULL;

	name = name ? name + 1 : argc ? argv[0] : "";
	if (strcmp(name, "mount.penstock") != 0 && strcmp(name, "mount.fuse.penstock") != 0)
		return false;
	cmd_name = "mount";
	*ret_status = as_helper(argc, argv);
	return true;
}

static int umount_any(const char *given)
{
	char dir[PATH_MAX];
	int r = daemon_find(given, dir);

	if (r <= 0)
		return r < 0 ? r : umount_plain(given);
	r = daemon_stop(dir);
	if (r == 0)
		shown_printf(2, "%s is no mount any more.", dir);
	return r;
}

int cmd_umount(int argc, char *argv[])
{
	static const struct option longs[] = { { 0 } };
	int opt = getopt_long(argc, argv, ":", longs, NULL);

	if (opt != -1)
		return option_error(argv, longs, opt);
	if (argc - optind != 1)
		return usage_error("give one directory");
	return exit_status(umount_any(argv[optind]));
}
