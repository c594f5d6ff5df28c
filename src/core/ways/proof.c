/* SPDX-License-Identifier: MIT */
/*
 * Proofs: which paths were found to move the right bytes, and which were not.
 *
 * A path is trusted once its bytes were compared with a plain read and were equal.  The first
 * requests by O_DIRECT on a mount are compared before they complete, up to PROOF_MAX bytes of each.
 * Reads and writes are proven separately.  A write is proven with the program's own first write and
 * not with a scratch file, so that the file that matters is tested and no file is left in the
 * user's directory.
 *
 * A request whose bytes differ is moved again through the page cache.  Trials (trial.h) decide
 * whether the path caused the difference.  After PROOF_FAILURES_MAX requests whose trials all
 * differed, the process does not use the path any more.  A network file system is not judged if its
 * page cache may lack bytes that other machines wrote.
 *
 * Verdicts are about a mount or a device, and live in memory.  A private file, the cache, keeps the
 * good verdicts about devices and about mounts of block devices, so that the next process need not
 * compare again.  The cache is $XDG_CACHE_HOME/penstock/proofs, else ~/.cache/penstock/proofs, with
 * one line per verdict.  A line's key contains everything that could make the verdict false: boot,
 * kernel, library version, device and mount.  Bad verdicts are not kept: the next process finds
 * them again if they still hold.
 *
 * A spawned thread reads and writes the cache, because a home directory may hang.  Requests do not
 * wait for the thread: they are compared until the cache was read.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>

#include "base/crc32c.h"
#include "base/log.h"
#include "base/user.h"
#include "base/work.h"
#include "core/ways/path.h"
#include "core/ways/proof.h"

/* Bytes of the longest line of the cache, with the key's description of the system. */
#define PROOF_LINE_MAX 208u
#define PROOF_CACHE_MAX KIB(64) /* a longer cache file is replaced by a new one */

/*
 * Entries are never freed: files point to them, and their number is limited by the number of mounts
 * and devices.  No file is accessed under the lock, because requests take the lock.
 */
static struct {
	pthread_mutex_t lock;
	struct proof *list;
	struct work work; /* reads and writes the cache file */
	bool working;     /* the work was started and has not finished */
	bool loaded;      /* the work has loaded the cache */
	char *cache;      /* contents of the cache file: good keys, one per line */
	char system[96];  /* the part of each key that names this boot and this library */
} proofs = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ------------------------------------------------------------------ cache */

/*
 * Open a directory if it belongs to the effective user and is no link.  Create it only if the
 * parent belongs to that user: root with another user's environment must create nothing there.
 */
static int dir_open(int parent, const char *name)
{
	_cleanup_(closep) int fd = -1;
	struct stat st;

	if (fstat(parent, &st) < 0)
		return -1;
	if (user_is_own(st.st_uid))
		(void)mkdirat(parent, name, 0700);
	else if (st.st_uid != 0)
		return -1;
	fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -1;
	if (!user_is_own(st.st_uid)) {
		log_info("%s belongs to another user: proofs are not kept there", name);
		return -1;
	}
	return TAKE_FD(fd);
}

/* Split a path before its last component.  Return false if it has no such component. */
static bool proof_split(char *path, const char **ret_dir, const char **ret_name)
{
	char *slash;

	for (size_t n = strlen(path); n > 1 && path[n - 1] == '/';)
		path[--n] = '\0';
	slash = strrchr(path, '/');
	if (!slash || !slash[1])
		return false;
	*slash = '\0';
	*ret_dir = *path ? path : "/";
	*ret_name = slash + 1;
	return true;
}

/* Open the user's directory for caches.  Return -1 if no directory can be trusted. */
static int base_dir_open(void)
{
	const char *xdg = secure_getenv("XDG_CACHE_HOME"), *home = secure_getenv("HOME");
	_cleanup_(closep) int parent = -1;
	const char *dir, *name;
	char path[512];

	if (xdg && xdg[0] == '/') {
		if ((size_t)snprintf(path, sizeof(path), "%s", xdg) >= sizeof(path) ||
		    !proof_split(path, &dir, &name))
			return -1;
	} else if (home && home[0] == '/') {
		dir = home;
		name = ".cache";
	} else {
		return -1;
	}
	parent = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return parent < 0 ? -1 : dir_open(parent, name);
}

static int cache_open(int flags)
{
	_cleanup_(closep) int base = base_dir_open();
	_cleanup_(closep) int dir = base < 0 ? -1 : dir_open(base, "penstock");
	_cleanup_(closep) int fd = -1;
	struct stat st;

	if (dir < 0 || fstat(dir, &st) < 0)
		return -1;
	if (st.st_mode & 077) {
		log_info("the directory for proofs is not private, not used");
		return -1;
	}
	fd = openat(dir, "proofs", flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || !user_is_own(st.st_uid))
		return -1;
	return TAKE_FD(fd);
}

/* Read the whole cache file as a string.  Return NULL if that is impossible. */
static char *cache_read(void)
{
	_cleanup_(closep) int fd = cache_open(O_RDONLY);
	char *buf = fd < 0 ? NULL : calloc(1, PROOF_CACHE_MAX + 1);
	ssize_t n = buf ? pread(fd, buf, PROOF_CACHE_MAX, 0) : 0;

	if (buf)
		buf[n > 0 ? n : 0] = '\0';
	return buf;
}

static void cache_key(const char *key, char buf[static PROOF_LINE_MAX])
{
	(void)snprintf(buf, PROOF_LINE_MAX, "%s %s\n", proofs.system, key);
}

static void cache_add(const char *key)
{
	_cleanup_(closep) int fd = cache_open(O_WRONLY | O_APPEND | O_CREAT);
	char line[PROOF_LINE_MAX];
	struct stat st;
	size_t n;

	cache_key(key, line);
	n = strlen(line);
	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
		return;
	if (fstat(fd, &st) == 0 && (uint64_t)st.st_size + n > PROOF_CACHE_MAX)
		(void)!ftruncate(fd, 0);
	if (write(fd, line, n) != (ssize_t)n)
		log_debug("the proof cache could not be written: %m, ignoring");
}

/* Return true if the cache has a line for that key. */
static bool cache_has(const char *key)
{
	char line[PROOF_LINE_MAX];
	const char *at = proofs.cache;

	cache_key(key, line);
	while (at && (at = strstr(at, line)) != NULL) {
		if (at == proofs.cache || at[-1] == '\n')
			return true;
		at += strlen(line);
	}
	return false;
}

static void system_key(char *buf, size_t len)
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
		buf, len, "%s %08x %s", boot,
		crc32c(crc32c(0, u.release, strlen(u.release)), u.version, strlen(u.version)),
		pst_version());
}

static bool is_suspect(const struct proof *p)
{
	return atomic_load(&p->failures) || atomic_load(&p->doubted);
}

static void cache_load(void)
{
	char system[sizeof(proofs.system)], *cache;

	system_key(system, sizeof(system));
	cache = cache_read();
	pthread_mutex_lock(&proofs.lock);
	memcpy(proofs.system, system, sizeof(system));
	proofs.cache = cache;
	proofs.loaded = true;
	for (struct proof *p = proofs.list; p; p = p->next)
		if (p->keep && !is_suspect(p) && cache_has(p->key))
			atomic_store(&p->good, true);
	pthread_mutex_unlock(&proofs.lock);
}

/* Return the next proof that must be written to the cache, or NULL; under the lock. */
static struct proof *cache_next(void)
{
	struct proof *p = proofs.list;

	while (p && !p->unsaved)
		p = p->next;
	return p;
}

static void cache_run(struct work *w)
{
	struct proof *p;

	(void)w;
	if (!proofs.loaded) /* only the one running cache thread writes this */
		cache_load();
	pthread_mutex_lock(&proofs.lock);
	while ((p = cache_next())) {
		p->unsaved = false;
		pthread_mutex_unlock(&proofs.lock);
		cache_add(p->key);
		pthread_mutex_lock(&proofs.lock);
	}
	proofs.working = false;
	pthread_mutex_unlock(&proofs.lock);
}

/*
 * Start a thread that reads or writes the cache, whose file system may hang; under the lock.
 * Requests do not wait for the thread: they are compared until the cache was read.
 */
static void cache_work(void)
{
	if (proofs.working)
		return;
	work_init(&proofs.work, cache_run);
	proofs.working = work_spawn(&proofs.work, "pst-proofs", false) == 0;
}

/* ---------------------------------------------------------------- entries */

static struct proof *proof_get(const char *key, bool keep)
{
	int saved = errno;
	struct proof *p;

	pthread_mutex_lock(&proofs.lock);
	if (keep && !proofs.loaded)
		cache_work();
	for (p = proofs.list; p; p = p->next)
		if (strcmp(p->key, key) == 0)
			break;
	if (!p) {
		p = calloc(1, sizeof(*p));
		if (p) {
			(void)snprintf(p->key, sizeof(p->key), "%s", key);
			p->keep = keep;
			p->good = keep && proofs.loaded && cache_has(key);
			p->next = proofs.list;
			proofs.list = p;
		}
	}
	pthread_mutex_unlock(&proofs.lock);
	errno = saved;
	return p;
}

struct proof *proof_direct(const struct file *file, enum proof_dir dir)
{
	char what[16 + FILE_PLACE_MAX], place[FILE_PLACE_MAX];
	bool keep = file_place(file, place, sizeof(place));

	(void)snprintf(what, sizeof(what), "direct-%s %s", dir == PROOF_READ ? "read" : "write",
		       place);
	return proof_get(what, keep);
}

struct proof *proof_p2p(const struct file *file, const char *pci, enum proof_dir dir)
{
	char what[PROOF_KEY_MAX], place[FILE_PLACE_MAX];
	bool keep = file_place(file, place, sizeof(place));

	(void)snprintf(what, sizeof(what), "p2p-%s %.23s %s", dir == PROOF_READ ? "read" : "write",
		       pci, place);
	return proof_get(what, keep);
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
	return proof_is_good(p) ? PST_STATE_PROVEN : PST_STATE_POSSIBLE;
}

void proof_doubt(struct proof *p)
{
	atomic_store(&p->doubted, true);
	atomic_store(&p->good, false);
}

void proof_good(struct proof *p)
{
	/* A path that moved wrong bytes before may move right ones by chance.  The path stays
	 * unproven, and every request is compared. */
	if (is_suspect(p) || atomic_exchange(&p->good, true))
		return;
	if (is_suspect(p)) {
		atomic_store(&p->good, false); /* another thread has found wrong bytes */
		return;
	}
	log_debug("proven: %s", p->key);
	if (!p->keep)
		return;
	pthread_mutex_lock(&proofs.lock);
	p->unsaved = true;
	cache_work();
	pthread_mutex_unlock(&proofs.lock);
}

void proof_failed(struct proof *p)
{
	unsigned n = atomic_fetch_add(&p->failures, 1) + 1;

	atomic_store(&p->good, false);
	log_warn("a plain read differs from what O_DIRECT moved, going on without it (%s)", p->key);
	if (n == PROOF_FAILURES_MAX) {
		path_changed();
		log_warn("this path is not used any more in this process (%s)", p->key);
	}
}
