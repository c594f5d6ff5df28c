/* SPDX-License-Identifier: MIT */
/* What clients leave of themselves in the server of a mount and in its worker. */
#ifndef PST_TESTS_MOUNT_TRACES_H
#define PST_TESTS_MOUNT_TRACES_H

#include "api_rig.h"

static struct mount_rig rig;

/* The children of the server, at most max. */
static inline unsigned workers(pid_t *ret, unsigned max)
{
	char path[64], *line = NULL, *next;
	unsigned nr = 0;
	size_t size = 0;
	DIR *d;
	struct dirent *e;

	(void)snprintf(path, sizeof(path), "/proc/%d/task", (int)rig.pid);
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

static inline pid_t the_worker(void)
{
	pid_t pid = 0;

	T_EQ(workers(&pid, 1), 1);
	return pid;
}

static inline unsigned entries(const char *fmt, pid_t pid)
{
	char path[64];
	struct dirent *e;
	unsigned nr = 0;
	DIR *d;

	(void)snprintf(path, sizeof(path), fmt, (int)pid);
	d = opendir(path);
	while (d && (e = readdir(d)))
		nr += e->d_name[0] != '.';
	if (d)
		(void)closedir(d);
	return nr;
}

static inline unsigned maps(pid_t pid)
{
	char path[64], *line = NULL;
	unsigned nr = 0;
	size_t size = 0;
	FILE *f;

	(void)snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	f = fopen(path, "re");
	while (f && getline(&line, &size, f) > 0)
		nr += strstr(line, "/dev/shm/hf3fs-iov-") != NULL;
	if (f)
		(void)fclose(f);
	free(line);
	return nr;
}

/* Traces of clients: in the virtual directory, in the server and in the worker. */
struct counts {
	unsigned links, server_fds, worker_fds, maps;
};

static inline struct counts counts_of(pid_t worker)
{
	return (struct counts){
		.links = api_links(""),
		.server_fds = entries("/proc/%d/fd", rig.pid),
		.worker_fds = entries("/proc/%d/fd", worker),
		.maps = maps(worker),
	};
}

static inline bool is_no_more(const struct counts *a, const struct counts *b)
{
	return a->links <= b->links && a->server_fds <= b->server_fds &&
	       a->worker_fds <= b->worker_fds && a->maps <= b->maps;
}

static inline void until_no_more(pid_t worker, const struct counts *than)
{
	uint64_t until = t_hang();
	struct counts now = counts_of(worker);

	for (; !is_no_more(&now, than) && t_now() < until; now = counts_of(worker))
		(void)usleep(1000);
	if (!is_no_more(&now, than))
		T_FAIL("links %u, were %u; descriptors %u, were %u, and %u, were %u; maps %u, "
		       "were %u",
		       now.links, than->links, now.server_fds, than->server_fds, now.worker_fds,
		       than->worker_fds, now.maps, than->maps);
}

#endif
