/* SPDX-License-Identifier: MIT */
/*
 * A file server answers nothing, not even a request for the size of a file: submit and reap must
 * return, and the request must end at its deadline.
 */
#include <sys/mount.h>

#include "rig.h"

#include "fusefs.h"

#define LEN 4096u
#define TAIL (FUSEFS_SIZE - 1024u) /* a read here makes the kernel ask for the file's size */

static struct fusefs fs;
static char over[512]; /* mount point of the overlay, or "" */
static pid_t watch;

static void unmount(void)
{
	if (fs.pid)
		(void)kill(fs.pid, SIGCONT); /* otherwise processes with open files cannot exit */
	if (watch > 0) {
		(void)kill(watch, SIGKILL);
		(void)waitpid(watch, NULL, 0);
		watch = 0;
	}
	if (over[0])
		(void)umount2(over, MNT_DETACH);
	over[0] = '\0';
	fusefs_stop(&fs);
}

static const char *mount_fuse(void)
{
	static char path[200];

	unmount(); /* a failed case may have left the overlay mounted */
	if (fusefs_start(&fs, rig_dir) < 0)
		T_SKIP("%s", fs.why);
	(void)snprintf(path, sizeof(path), "%s/normal", fs.dir);
	return path;
}

/* Mount an overlay whose lower layer is FUSE. Return the path of a file in it. */
static const char *mount_overlay(void)
{
	static char path[600];
	char options[1200];

	(void)mount_fuse();
	T_CHECK(mkdir(rig_path("over"), 0700) == 0 || errno == EEXIST);
	T_CHECK(mkdir(rig_path("empty"), 0700) == 0 || errno == EEXIST);
	(void)snprintf(options, sizeof(options), "lowerdir=%s:%s", rig_path("empty"), fs.dir);
	if (mount("overlay", rig_path("over"), "overlay", MS_RDONLY, options) < 0)
		T_SKIP("an overlay");
	(void)snprintf(over, sizeof(over), "%s", rig_path("over"));
	(void)snprintf(path, sizeof(path), "%s/normal", over);
	return path;
}

/* Stop the server.  A child continues it after a minute, so that a call that waits for it ends. */
static void server_stop(void)
{
	(void)fflush(stdout);
	watch = fork();
	T_CHECK(watch >= 0);
	if (!watch) {
		(void)sleep((unsigned)(T_HANG_NS / 1000000000u));
		(void)kill(fs.pid, SIGCONT);
		_exit(0);
	}
	T_EQ(kill(fs.pid, SIGSTOP), 0);
	T_EQ(waitpid(fs.pid, NULL, WUNTRACED), fs.pid);
}

/* Check that nothing has continued the server, then continue it. */
static void server_go_on(void)
{
	bool still = waitpid(fs.pid, NULL, WCONTINUED | WNOHANG) == 0;

	(void)kill(fs.pid, SIGCONT);
	if (!still)
		T_FAIL("a call waited for the server");
}

/* Start the device's engine by a first request: starting may take longer than a deadline. */
static void start_engine(struct pst_mem *m)
{
	struct pst_file *f;

	rig_make(rig_path("data"), 1, LEN);
	f = rig_open(rig_path("data"), PST_FILE_READ);
	T_EQ(rig_read(f, m, 0, 0, LEN).res, LEN);
	pst_file_close(f);
}

static void read_ends(const char *path, uint32_t flags, uint64_t off, uint64_t len, uint64_t policy)
{
	struct pst_file *f = rig_open(path, PST_FILE_READ | flags);
	struct pst_mem *m = rig_alloc(rig_dev, len);
	struct pst_io io = rig_io(PST_OP_READ, f, m, off, 0, len);
	struct pst_done d;

	start_engine(m);
	/* Wait until the kernel no longer uses the server's last answer. */
	(void)usleep(50000);
	server_stop();
	io.policy = policy;
	io.deadline_ns = t_in_ms(100);
	T_OK(pst_queue_prep(rig_q, &io));
	T_EQ(pst_queue_submit(rig_q), 1);
	d = rig_reap1(rig_q);
	server_go_on();
	pst_file_close(f);
	T_EQ(d.res, policy == PST_PATH_CACHED ? -EOPNOTSUPP : -ETIMEDOUT);
	T_OK(pst_mem_drain(m, t_hang()));
	pst_mem_free(m);
	rig_q = pst_queue_free(rig_q);
	unmount();
}

static void tail_below_an_overlay(void)
{
	read_ends(mount_overlay(), 0, TAIL, LEN, 0);
}

static void cached_tail_below_an_overlay(void)
{
	read_ends(mount_overlay(), 0, TAIL, LEN, PST_PATH_CACHED);
}

static void stable_file_of_a_device(void)
{
	struct pst_device dev = { .sz = sizeof(dev) };

	rig_dev = "cuda:0";
	if (pst_device_find(rig_dev, &dev) < 0)
		T_SKIP("a CUDA device");
	read_ends(mount_fuse(), PST_FILE_STABLE, 0, RIG_MIB(1), 0);
}

int main(void)
{
	rig_init();
	(void)atexit(unmount);
	RIG_RUN(tail_below_an_overlay);
	RIG_RUN(cached_tail_below_an_overlay);
	RIG_RUN_BACKENDS(stable_file_of_a_device);
	return rig_done();
}
