/* SPDX-License-Identifier: MIT */
/*
 * Prepare a directory for programs that use usrbio, and undo it.  There is no daemon yet: a
 * plain directory is served by the programs themselves.
 */
#include "cli/mount/mount.h"

#include <getopt.h>
#include <sys/stat.h>

#include "cli/commands.h"
#include "usrbio/proto/plain.h"

/* Others may make and undo the same directory meanwhile: begin again, so often, after so long. */
#define TRIES 100
#define TRY_AGAIN_US 1000

const char mount_usage[] =
	"Usage: penstock mount --plain DIR\n"
	"\n"
	"Prepares DIR, on any file system, for programs that use 3FS's usrbio: they publish\n"
	"their rings in DIR/3fs-virt and do the work with threads of their own, without a daemon.\n"
	"DIR then serves the user who prepared it.  Start the programs with 'penstock run'.  What\n"
	"programs that have ended left there is removed.  A directory that is prepared stays so.\n"
	"\n"
	"  --plain  without a daemon; there is no other way yet\n";

const char umount_usage[] =
	"Usage: penstock umount DIR\n"
	"\n"
	"Undoes 'penstock mount --plain DIR'.  Fails while a program uses it, and names it.\n";

static void say_ready(const char *dir, bool was_ready, int removed)
{
	(void)printf("%s %s ready: programs that use usrbio publish their rings in it.\n", dir,
		     was_ready ? "was already" : "is");
	(void)printf("Start them with 'penstock run -- PROGRAM'.  Their buffers come from "
		     "/dev/shm%s.\n",
		     mount_shm_text().s);
	if (removed > 0)
		(void)printf("%d name%s that ended programs had left %s removed.\n", removed,
			     removed == 1 ? "" : "s", removed == 1 ? "was" : "were");
	(void)printf("'penstock umount %s' undoes it.\n", dir);
}

/* How many names were removed.  -ENOENT without a sentence when somebody undoes it meanwhile. */
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

/* 0; 1 when there was nothing to undo; -errno, -ENOENT when somebody else undoes it meanwhile. */
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
	if (r > 0) {
		(void)printf("%s is not prepared: there is nothing to undo.\n", dir);
		return 0;
	}
	if (r == -EBUSY)
		return mount_busy(dir);
	if (r < 0)
		return mount_fail(r, dir);
	(void)printf("%s serves no programs that use usrbio any more.\n", dir);
	return 0;
}

int cmd_mount(int argc, char *argv[])
{
	enum { PLAIN = 256 };
	static const struct option longs[] = {
		{ "plain", no_argument, NULL, PLAIN },
		{ 0 },
	};
	bool plain = false;
	int opt;

	while ((opt = getopt_long(argc, argv, ":", longs, NULL)) != -1) {
		if (opt != PLAIN)
			return option_error(argv, opt);
		plain = true;
	}
	if (!plain)
		return usage_error("only plain directories are served by this version: "
				   "penstock mount --plain DIR");
	if (argc - optind != 1)
		return usage_error("give one directory");
	return exit_status(mount_plain(argv[optind]));
}

int cmd_umount(int argc, char *argv[])
{
	static const struct option longs[] = { { 0 } };
	int opt = getopt_long(argc, argv, ":", longs, NULL);

	if (opt != -1)
		return option_error(argv, opt);
	if (argc - optind != 1)
		return usage_error("give one directory");
	return exit_status(umount_plain(argv[optind]));
}
