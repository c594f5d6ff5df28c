/* SPDX-License-Identifier: MIT */
#include "usrbio/mount/caller.h"

#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/base.h"

#define NOBODY 65534u
#define GROUPS_MAX 65536u /* the kernel's NGROUPS_MAX */
#define GROUPS_NS NSEC_PER_SEC
#define KNOWN 16u /* threads whose groups each server thread caches */
/* Longest list of groups that is cached; longer lists are read each time. */
#define KNOWN_GROUPS 64u

static bool is_root;

/* A cached list of groups. */
struct known {
	struct caller caller;
	uint64_t until;
	size_t nr;
	gid_t groups[KNOWN_GROUPS];
};

/* State of this thread. */
static __thread struct {
	bool apart;   /* the thread's umask is separate from the process' */
	mode_t umask; /* valid if apart */
	uid_t uid;    /* user whose rights the thread has */
	gid_t gid;
	struct caller groups; /* the caller whose groups this thread has */
	uint64_t until;       /* time at which to read the groups again, ns */
	struct known known[KNOWN];
} self;

void caller_init(void)
{
	is_root = geteuid() == 0;
}

/* Use the system call: glibc's function changes all threads. */
static int set_groups(size_t nr, const gid_t *groups)
{
	return syscall(SYS_setgroups, nr, groups) == 0 ? 0 : -errno;
}

/* Parse the numbers of a line "Groups:\t4 24 27 \n". */
static int parse_groups(const char *line, gid_t **ret, size_t *ret_nr)
{
	size_t nr = 0, room = 0;
	gid_t *groups = NULL;

	for (char *end;; line = end) {
		unsigned long n = strtoul(line, &end, 10);

		if (end == line)
			break;
		if (nr == room) {
			gid_t *more = nr < GROUPS_MAX ? realloc(groups, (room + 64) * sizeof(*more))
						      : NULL;

			if (!more) {
				free(groups);
				return -ENOMEM;
			}
			groups = more;
			room += 64;
		}
		groups[nr++] = (gid_t)n;
	}
	*ret = groups;
	*ret_nr = nr;
	return 0;
}

/* Return the line of /proc/PID/status that begins with key; NULL with the error in *ret_err. */
static char *status_line(pid_t pid, const char *key, int *ret_err)
{
	char *line = NULL, path[64];
	size_t size = 0;
	FILE *f;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", pid);
	f = fopen(path, "re");
	if (!f) {
		*ret_err = -errno;
		return NULL;
	}
	while (getline(&line, &size, f) > 0)
		if (strncmp(line, key, strlen(key)) == 0) {
			(void)fclose(f);
			return line;
		}
	(void)fclose(f);
	free(line);
	*ret_err = -ESRCH;
	return NULL;
}

int caller_groups(pid_t pid, gid_t **ret, size_t *ret_nr)
{
	static const char key[] = "Groups:";
	int err = 0;
	_cleanup_(freep) char *line = pid ? status_line(pid, key, &err) : NULL;

	*ret = NULL;
	*ret_nr = 0;
	if (line)
		return parse_groups(line + sizeof(key) - 1, ret, ret_nr);
	return err == -ENOMEM || err == -EMFILE || err == -ENFILE ? err : 0;
}

pid_t caller_process(pid_t pid)
{
	static const char key[] = "Tgid:";
	int err = -ESRCH;
	_cleanup_(freep) char *line = pid ? status_line(pid, key, &err) : NULL;

	return line ? atoi(line + sizeof(key) - 1) : err;
}

/* Return true if a line such as "NSpid:\t4711\t12\n" contains the number. */
static bool line_has(pid_t process, const char *key, unsigned long number)
{
	int err = 0;
	_cleanup_(freep) char *line = status_line(process, key, &err);
	const char *p = line ? line + strlen(key) : "";

	for (char *end;; p = end) {
		unsigned long n = strtoul(p, &end, 10);

		if (end == p)
			return false;
		if (n == number)
			return true;
	}
}

bool caller_is(const struct caller *c, pid_t process, pid_t pid)
{
	return process > 0 && pid > 0 && line_has(process, "NSpid:", (unsigned long)pid) &&
	       line_has(process, "Uid:", c->uid);
}

/* Return the signals of a line such as "SigPnd:\t0000000000000100\n" as a bit mask. */
static uint64_t signals_of(pid_t pid, const char *key, int *err)
{
	_cleanup_(freep) char *line = status_line(pid, key, err);

	return line ? strtoull(line + strlen(key), NULL, 16) : 0;
}

bool caller_is_signalled(pid_t pid)
{
	int err = pid ? 0 : -ESRCH;
	uint64_t pending = 0, caught = 0;

	if (err == 0)
		pending = signals_of(pid, "SigPnd:", &err) | signals_of(pid, "ShdPnd:", &err);
	if (err == 0)
		caught = signals_of(pid, "SigCgt:", &err) & ~signals_of(pid, "SigBlk:", &err);
	return err < 0 || pending & (caught | UINT64_C(1) << (SIGKILL - 1));
}

static bool is_caller(const struct caller *a, const struct caller *b)
{
	return a->pid == b->pid && a->uid == b->uid && a->gid == b->gid;
}

static void learn(const struct caller *c, uint64_t until, const gid_t *groups, size_t nr)
{
	struct known *k = &self.known[(unsigned)c->pid % KNOWN];

	if (nr > KNOWN_GROUPS)
		return;
	k->caller = *c;
	k->until = until;
	k->nr = nr;
	if (nr)
		memcpy(k->groups, groups, nr * sizeof(*groups));
}

/* Take the caller's groups.  Each thread of a program counts as a separate caller. */
static int take_groups(const struct caller *c)
{
	const struct known *k = &self.known[(unsigned)c->pid % KNOWN];
	_cleanup_(freep) gid_t *groups = NULL;
	uint64_t now = now_ns(), until = now + GROUPS_NS;
	size_t nr;
	int err;

	if (now < self.until && is_caller(&self.groups, c))
		return 0;
	self.until = 0;
	if (now < k->until && is_caller(&k->caller, c)) {
		until = k->until;
		err = set_groups(k->nr, k->groups);
	} else {
		err = caller_groups(c->pid, &groups, &nr);
		if (err == 0)
			err = set_groups(nr, groups);
		if (err == 0)
			learn(c, until, groups, nr);
	}
	if (err < 0)
		return err;
	self.groups = *c;
	self.until = until;
	return 0;
}

/* Take the caller's user and group.  The system calls do not report failures, so check the
 * result. */
static int take_ids(uid_t uid, gid_t gid)
{
	if (self.uid == uid && self.gid == gid)
		return 0;
	self.uid = uid;
	self.gid = gid;
	(void)setfsgid(gid);
	(void)setfsuid(uid);
	if ((uid_t)setfsuid((uid_t)-1) == uid && (gid_t)setfsgid((gid_t)-1) == gid)
		return 0;
	caller_end();
	return -EPERM;
}

int caller_begin(const struct caller *c)
{
	int err = 0;

	if (!self.apart) {
		if (unshare(CLONE_FS) < 0)
			return -errno;
		self.apart = true;
		self.umask = umask(0);
		(void)umask(self.umask);
	}
	if (self.umask != (c->umask & 0777)) {
		self.umask = c->umask & 0777;
		(void)umask(self.umask);
	}
	if (!is_root)
		return 0;
	if (c->uid == (uid_t)-1 || c->gid == (gid_t)-1)
		return -EOVERFLOW;
	if (c->uid)
		err = take_groups(c);
	return err < 0 ? err : take_ids(c->uid, c->gid);
}

int nobody_begin(void)
{
	return is_root ? take_ids(NOBODY, NOBODY) : 0;
}

void caller_end(void)
{
	if (self.uid)
		(void)setfsuid(0);
	if (self.gid)
		(void)setfsgid(0);
	self.uid = 0;
	self.gid = 0;
}
