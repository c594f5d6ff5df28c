/* SPDX-License-Identifier: MIT */
#include "usrbio/proto/owner.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base.h"
#include "usrbio/proto/number.h"

#define PREFIX "hf3fs-iov-"
#define SEM_PREFIX "hf3fs-submit-ios."
#define SEM_FILE "sem." /* prefix of sem_open(3)'s files */

/* Read a small file of /proc as text, truncated to fit.  Return its length or -errno. */
static int owner_read_text(const char *path, char *buf, size_t len)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, buf, len - 1);
	if (n < 0)
		return -errno;
	buf[n] = '\0';
	return (int)n;
}

/* Facts from /proc/PID/stat. */
struct process {
	int pid; /* the PID as /proc shows it */
	char state;
	long threads;
	uint64_t start;
};

static int read_process(const char *path, struct process *ret)
{
	char buf[1024], *p;
	int r = owner_read_text(path, buf, sizeof(buf));

	if (r < 0)
		return r;
	/* The name, in parentheses, may be anything. */
	p = strrchr(buf, ')');
	if (!p || sscanf(buf, "%d", &ret->pid) != 1 ||
	    sscanf(p + 1,
		   " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld %*d "
		   "%" SCNu64,
		   &ret->state, &ret->threads, &ret->start) != 3)
		return -EIO;
	return 0;
}

static void owner_mix(uint64_t *hash, const void *data, size_t len)
{
	for (size_t i = 0; i < len; i++)
		*hash = (*hash ^ ((const uint8_t *)data)[i]) * UINT64_C(0x100000001b3);
}

/*
 * Return true if this machine lacks the file: old kernels have no time namespaces, some sandboxes
 * no boot_id.  In that case no process of the machine has the file, so all compute the same place.
 * After other errors, this process might compute another place than the others.
 */
static bool is_missing(int r)
{
	return r == -ENOENT || r == -EACCES || r == -EPERM;
}

/* Read a namespace from thread-self, because the first thread may have ended and has none then. */
static int find_namespace(const char *name, ino_t *ret)
{
	char path[64];
	struct stat st;

	(void)snprintf(path, sizeof(path), "/proc/thread-self/ns/%s", name);
	if (stat(path, &st) < 0)
		return -errno;
	*ret = st.st_ino;
	return 0;
}

static int this_place(uint64_t *ret)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);
	ino_t pids = 0, times = 0;
	char boot[64] = "";
	int r;

	r = find_namespace("pid", &pids);
	if (r < 0)
		return r;
	r = find_namespace("time", &times);
	if (r < 0 && !is_missing(r))
		return r;
	r = owner_read_text("/proc/sys/kernel/random/boot_id", boot, sizeof(boot));
	if (r < 0 && !is_missing(r))
		return r;
	owner_mix(&hash, boot, strlen(boot));
	owner_mix(&hash, &pids, sizeof(pids));
	owner_mix(&hash, &times, sizeof(times));
	*ret = hash;
	return 0;
}

int usrbio_owner_self(struct usrbio_owner *ret)
{
	struct usrbio_owner o = { .pid = getpid() };
	struct process self;
	int r = read_process("/proc/self/stat", &self);

	if (r == 0 && self.pid != o.pid)
		r = -EXDEV;
	if (r == 0)
		r = this_place(&o.place);
	if (r < 0)
		return r;
	o.start = self.start;
	*ret = o;
	return 0;
}

static void format(const char *prefix, const struct usrbio_owner *owner,
		   const uint8_t id[USRBIO_ID_LEN], char ret_name[USRBIO_SHM_NAME_MAX])
{
	char uuid[USRBIO_ID_TEXT];

	usrbio_id_format(id, uuid);
	(void)snprintf(ret_name, USRBIO_SHM_NAME_MAX, "%s%s.p%d.s%" PRIu64 ".n%" PRIu64, prefix,
		       uuid, owner->pid, owner->start, owner->place);
}

void usrbio_owner_shm(const struct usrbio_owner *owner, const uint8_t id[USRBIO_ID_LEN],
		      char ret_name[USRBIO_SHM_NAME_MAX])
{
	format(PREFIX, owner, id, ret_name);
}

void usrbio_owner_sem(const struct usrbio_owner *owner, const uint8_t id[USRBIO_ID_LEN],
		      char ret_name[USRBIO_SHM_NAME_MAX])
{
	format(SEM_PREFIX, owner, id, ret_name);
}

/* Skip a text if the input continues with it; otherwise return false. */
static bool owner_skip(const char **p, const char *text)
{
	size_t len = strlen(text);

	if (strncmp(*p, text, len) != 0)
		return false;
	*p += len;
	return true;
}

int usrbio_owner_parse(const char *shm_name, struct usrbio_owner *ret)
{
	uint8_t id[USRBIO_ID_LEN];
	struct usrbio_owner o;
	const char *p = shm_name;
	uint64_t pid;

	if ((!owner_skip(&p, PREFIX) && !owner_skip(&p, SEM_FILE SEM_PREFIX)) ||
	    usrbio_id_parse(p, id) < 0)
		return -EINVAL;
	p += USRBIO_ID_TEXT - 1;
	if (!owner_skip(&p, ".p") || usrbio_number(&p, 10, INT_MAX, &pid) < 0 || !pid ||
	    !owner_skip(&p, ".s") || usrbio_number(&p, 10, UINT64_MAX, &o.start) < 0 ||
	    !owner_skip(&p, ".n") || usrbio_number(&p, 10, UINT64_MAX, &o.place) < 0 || *p)
		return -EINVAL;
	o.pid = (pid_t)pid;
	*ret = o;
	return 0;
}

int usrbio_owner_alive(const struct usrbio_owner *owner)
{
	struct usrbio_owner self;
	struct process p;
	char path[32];
	int r = usrbio_owner_self(&self);

	if (r < 0)
		return r;
	if (owner->place != self.place)
		return -EXDEV;
	(void)snprintf(path, sizeof(path), "/proc/%d/stat", owner->pid);
	r = read_process(path, &p);
	if (r < 0) {
		/* /proc may hide processes, but kill(2) finds them all. */
		return kill(owner->pid, 0) < 0 && errno == ESRCH ? 0 : -EACCES;
	}
	if (p.start != owner->start)
		return 0;
	/* If only the first thread has ended, the process is a zombie with more than one thread. */
	return p.state != 'X' && (p.state != 'Z' || p.threads > 1);
}
