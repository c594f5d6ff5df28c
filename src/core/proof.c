// SPDX-License-Identifier: MIT
/*
 * What was proven with data, and what failed.
 *
 * A path is trusted once bytes that went through it were found equal to what a plain read
 * gives.  Verdicts hold for a mount or a device, live in memory, and good ones are kept in
 * a private cache, so that the next process need not pay again:
 * $XDG_CACHE_HOME/penstock/proofs, else ~/.cache/penstock/proofs, one line each.  The key has
 * everything that could make a verdict false: boot, kernel, library version, device and
 * mount.  A wrong answer is never cached: it is found again where it is still true.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>

#include "base/crc32c.h"
#include "base/log.h"
#include "base/user.h"
#include "core/core.h"

#define PROOF_KEY_MAX 160u
#define PROOF_FAILURES_MAX 3u   /* then the path is not used any more in this process */
#define PROOF_CACHE_MAX KIB(64) /* a longer file is begun anew */

struct proof {
	struct proof *next;
	bool keep; /* its key says for certain what was proven */
	atomic_bool good;
	atomic_uint failures;
	char key[PROOF_KEY_MAX];
};

/* Entries are never freed: files point to them, and there are as many as mounts. */
static struct {
	pthread_mutex_t lock;
	struct proof *list;
	bool loaded;
	char system[96]; /* the part of every key that this boot and this library share */
	char *cache;     /* good keys of earlier processes, one a line */
} proofs = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ------------------------------------------------------------------ cache */

/* The directory, made if need be, ours and private; -1 when there is none to trust. */
static int cache_dir_open(void)
{
	const char *xdg = secure_getenv("XDG_CACHE_HOME"), *home = secure_getenv("HOME");
	char path[512];
	struct stat st;
	int fd;

	if (xdg && xdg[0] == '/')
		(void)snprintf(path, sizeof(path), "%s", xdg);
	else if (home && home[0] == '/')
		(void)snprintf(path, sizeof(path), "%s/.cache", home);
	else
		return -1;
	if (strlen(path) + sizeof("/penstock") > sizeof(path))
		return -1;
	(void)mkdir(path, 0700);
	(void)strcat(path, "/penstock");
	(void)mkdir(path, 0700);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -1;
	if (fstat(fd, &st) < 0 || !user_is_own(st.st_uid) || (st.st_mode & 077)) {
		log_info("%s is not a private directory of this user, not used", path);
		(void)close(fd);
		return -1;
	}
	return fd;
}

static int cache_open(int flags)
{
	_cleanup_(closep) int dir = cache_dir_open();
	struct stat st;
	int fd;

	if (dir < 0)
		return -1;
	fd = openat(dir, "proofs", flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
	if (fd < 0)
		return -1;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || !user_is_own(st.st_uid)) {
		(void)close(fd);
		return -1;
	}
	return fd;
}

static void cache_load(void)
{
	_cleanup_(closep) int fd = cache_open(O_RDONLY);
	ssize_t n;

	if (fd < 0)
		return;
	proofs.cache = calloc(1, PROOF_CACHE_MAX + 1);
	if (!proofs.cache)
		return;
	n = pread(fd, proofs.cache, PROOF_CACHE_MAX, 0);
	proofs.cache[n > 0 ? n : 0] = '\0';
}

static void cache_add(const char *key)
{
	_cleanup_(closep) int fd = cache_open(O_WRONLY | O_APPEND | O_CREAT);
	char line[PROOF_KEY_MAX + 1];
	struct stat st;
	int n = snprintf(line, sizeof(line), "%s\n", key);

	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
		return;
	if (fstat(fd, &st) == 0 && (uint64_t)st.st_size + (uint64_t)n > PROOF_CACHE_MAX)
		(void)ftruncate(fd, 0);
	if (write(fd, line, (size_t)n) != n)
		log_debug("the proof cache could not be written: %m, ignoring");
}

/* A whole line of the cache. */
static bool cache_has(const char *key)
{
	size_t len = strlen(key);
	const char *at = proofs.cache;

	while (at && (at = strstr(at, key)) != NULL) {
		if ((at == proofs.cache || at[-1] == '\n') && at[len] == '\n')
			return true;
		at += len;
	}
	return false;
}

/* ---------------------------------------------------------------- entries */

static void system_key(void)
{
	_cleanup_(closep) int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	char boot[40] = "-";
	struct utsname u;
	ssize_t n = fd >= 0 ? read(fd, boot, sizeof(boot) - 1) : 0;

	boot[n > 0 ? n : 1] = '\0';
	boot[strcspn(boot, "\n")] = '\0';
	if (uname(&u) < 0)
		u.release[0] = u.version[0] = '\0';
	(void)snprintf(
		proofs.system, sizeof(proofs.system), "%s %08x %s", boot,
		crc32c(crc32c(0, u.release, strlen(u.release)), u.version, strlen(u.version)),
		pst_version());
}

static struct proof *proof_get(const char *what, bool keep)
{
	char key[PROOF_KEY_MAX];
	int saved = errno;
	struct proof *p;

	pthread_mutex_lock(&proofs.lock);
	if (!proofs.loaded) {
		proofs.loaded = true;
		system_key();
		cache_load();
	}
	(void)snprintf(key, sizeof(key), "%s %s", proofs.system, what);
	for (p = proofs.list; p; p = p->next)
		if (strcmp(p->key, key) == 0)
			break;
	if (!p) {
		p = calloc(1, sizeof(*p));
		if (p) {
			(void)snprintf(p->key, sizeof(p->key), "%s", key);
			p->keep = keep;
			p->good = keep && cache_has(key);
			p->next = proofs.list;
			proofs.list = p;
		}
	}
	pthread_mutex_unlock(&proofs.lock);
	errno = saved;
	return p;
}

struct proof *proof_direct(const struct store_file *sf, enum proof_dir dir)
{
	char what[64];

	(void)snprintf(what, sizeof(what), "direct-%s %u:%u %s %016" PRIx64,
		       dir == PROOF_READ ? "read" : "write", major(sf->dev), minor(sf->dev), sf->fs,
		       sf->fs_id);
	/* Device numbers with major 0 (FUSE, NFS, overlay) go to the next mount in turn. */
	return proof_get(what, major(sf->dev) != 0);
}

struct proof *proof_copies(const struct pst_device *dev)
{
	char what[64] = "copies ";
	char *at = what + strlen(what);

	for (unsigned i = 0; i < sizeof(dev->uuid); i++)
		at += sprintf(at, "%02x", dev->uuid[i]);
	return proof_get(what, true);
}

enum pst_state proof_state(const struct proof *p)
{
	if (proof_is_bad(p))
		return PST_STATE_IMPOSSIBLE;
	return atomic_load_explicit(&p->good, memory_order_relaxed) ? PST_STATE_PROVEN
								    : PST_STATE_POSSIBLE;
}

bool proof_is_bad(const struct proof *p)
{
	return atomic_load_explicit(&p->failures, memory_order_relaxed) >= PROOF_FAILURES_MAX;
}

void proof_good(struct proof *p)
{
	/* What lied once may be right by luck: it stays unproven, and every request is compared. */
	if (atomic_load(&p->failures) || atomic_exchange(&p->good, true))
		return;
	log_debug("proven: %s", p->key);
	if (!p->keep)
		return;
	pthread_mutex_lock(&proofs.lock);
	cache_add(p->key);
	pthread_mutex_unlock(&proofs.lock);
}

void proof_failed(struct proof *p)
{
	unsigned n = atomic_fetch_add(&p->failures, 1) + 1;

	log_warn("a plain read differs from what O_DIRECT moved, going on without it (%s)", p->key);
	if (n == PROOF_FAILURES_MAX)
		log_warn("this path is not used any more in this process (%s)", p->key);
}
