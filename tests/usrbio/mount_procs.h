/* SPDX-License-Identifier: MIT */
/* Find the processes of penstock-mount on a rig's mount, and count their resources. */
#ifndef PST_TESTS_MOUNT_PROCS_H
#define PST_TESTS_MOUNT_PROCS_H

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "mount_rig.h"
#include "t.h"

/* List the children of the server, up to max. */
static inline unsigned procs_workers(const struct mount_rig *rig, pid_t *ret, unsigned max)
{
	char path[64], *line = NULL, *next;
	unsigned nr = 0;
	size_t size = 0;
	DIR *d;
	struct dirent *e;

	(void)snprintf(path, sizeof(path), "/proc/%d/task", (int)rig->pid);
	d = opendir(path);
	while (d && (e = readdir(d))) {
		char of[400];
		FILE *f;

		(void)snprintf(of, sizeof(of), "%s/%s/children", path, e->d_name);
		f = fopen(of, "re");
		if (f && getline(&line, &size, f) > 0)
			for (char *p = line; nr < max; p = next) {
				long pid = strtol(p, &next, 10);

				if (next == p)
					break;
				ret[nr++] = (pid_t)pid;
			}
		if (f)
			(void)fclose(f);
	}
	if (d)
		(void)closedir(d);
	free(line);
	return nr;
}

static inline pid_t procs_worker(const struct mount_rig *rig)
{
	pid_t pid = 0;

	T_EQ(procs_workers(rig, &pid, 1), 1);
	return pid;
}

/* Stop a process, and wait until it is stopped. */
static inline void procs_stop(pid_t pid)
{
	uint64_t end_at = t_hang();
	char path[64], text[400], state = 0;

	T_EQ(kill(pid, SIGSTOP), 0);
	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	/* kill() returns before the process stops. */
	while (state != 'T' && t_now() < end_at) {
		FILE *f = fopen(path, "re");
		size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;

		if (f)
			(void)fclose(f);
		text[n] = '\0';
		state = strrchr(text, ')') ? strrchr(text, ')')[2] : 0;
	}
	T_EQ(state, 'T');
}

/*
 * Return true for an O_PATH descriptor within that directory.  A server has such a descriptor for
 * each source file that the kernel knows, and the kernel may forget files at any time.
 */
static inline bool procs_is_node(int fds, const char *name, const char *within)
{
	size_t len = strlen(within);
	char to[PATH_MAX] = "";
	struct stat st;

	/* The mode of the link in /proc is the file's access mode; none with O_PATH. */
	return fstatat(fds, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       !(st.st_mode & (S_IRUSR | S_IWUSR)) &&
	       readlinkat(fds, name, to, sizeof(to) - 1) > 0 && strncmp(to, within, len) == 0 &&
	       to[len] == '/';
}

/* Count a process' descriptors, except those of files that the kernel knows. */
static inline unsigned procs_fds(const struct mount_rig *rig, pid_t pid)
{
	char path[64];
	struct dirent *e;
	unsigned nr = 0;
	DIR *d;

	(void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	d = opendir(path);
	T_CHECK(d); /* a count of 0 would always pass */
	while ((e = readdir(d)))
		nr += e->d_name[0] != '.' && !procs_is_node(dirfd(d), e->d_name, rig->back);
	(void)closedir(d);
	return nr;
}

/* Count lines of /proc/PID/maps that contain a text. */
static inline unsigned procs_maps(pid_t pid, const char *holds)
{
	char path[64], *line = NULL;
	unsigned nr = 0;
	size_t size = 0;
	FILE *f;

	(void)snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	f = fopen(path, "re");
	while (f && getline(&line, &size, f) > 0)
		nr += strstr(line, holds) != NULL;
	if (f)
		(void)fclose(f);
	free(line);
	return nr;
}

/* Resources of clients: links, and descriptors and mappings in server and worker. */
struct procs_counts {
	unsigned links, server_fds, worker_fds, maps;
};

static inline unsigned procs_links(const struct mount_rig *rig)
{
	char path[200];
	struct dirent *e;
	unsigned nr = 0;
	DIR *d;

	(void)snprintf(path, sizeof(path), "%s/3fs-virt/iovs", rig->mnt);
	d = opendir(path);
	while (d && (e = readdir(d)))
		nr += e->d_name[0] != '.' && strncmp(e->d_name, "submit-ios", 10) != 0;
	if (d)
		(void)closedir(d);
	return nr;
}

static inline struct procs_counts procs_counts_of(const struct mount_rig *rig, pid_t worker)
{
	return (struct procs_counts){
		.links = procs_links(rig),
		.server_fds = procs_fds(rig, rig->pid),
		.worker_fds = procs_fds(rig, worker),
		.maps = procs_maps(worker, "/dev/shm/hf3fs-iov-") +
			procs_maps(worker, "memfd:penstock-soft"),
	};
}

static inline bool procs_is_no_more(const struct procs_counts *a, const struct procs_counts *b)
{
	return a->links <= b->links && a->server_fds <= b->server_fds &&
	       a->worker_fds <= b->worker_fds && a->maps <= b->maps;
}

/* Wait until no resource is above the earlier count. */
static inline void procs_until_no_more(const struct mount_rig *rig, pid_t worker,
				       const struct procs_counts *than)
{
	uint64_t until = t_hang();
	struct procs_counts now = procs_counts_of(rig, worker);

	for (; !procs_is_no_more(&now, than) && t_now() < until; now = procs_counts_of(rig, worker))
		(void)usleep(1000);
	if (!procs_is_no_more(&now, than))
		T_FAIL("links %u, were %u; descriptors %u, were %u, and %u, were %u; maps %u, "
		       "were %u",
		       now.links, than->links, now.server_fds, than->server_fds, now.worker_fds,
		       than->worker_fds, now.maps, than->maps);
}

/* Remove the memory of killed clients from /dev/shm. */
static inline void procs_remove_shm(void)
{
	DIR *d = opendir("/dev/shm");
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (!strncmp(e->d_name, "hf3fs-iov-", 10))
			(void)shm_unlink(e->d_name);
	if (d)
		(void)closedir(d);
}

#endif
