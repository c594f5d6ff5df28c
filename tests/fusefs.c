/* SPDX-License-Identifier: MIT */
/*
 * fusefs DIR [NAME]: mount the file system that fusefs.h describes on DIR, print "ready" and
 * serve until it is unmounted or SIGTERM arrives.  The file system's type is fuse, or fuse.NAME.
 *
 * It uses libfuse's low-level interface, in which a waiting request needs no thread.
 */
#define FUSE_USE_VERSION 312

#include <errno.h>
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/base.h"
#include "fusefs.h"
#include "t.h"

#define ROOM (1u << 20) /* offset at which eio, shrink and full end, bytes */
#define READ_MAX (1u << 20)

/* In the order of their inode numbers, which begin at 2. */
enum file {
	NORMAL,
	HANG,
	EIO_AT,
	SHORT,
	SLOW,
	SHRINK,
	STALE,
	ABORTS,
	FULL,
	QUOTA,
	HOLD,
	RELEASE,
	NR_FILES
};

static const struct {
	const char *name;
	size_t size;
	mode_t mode;
} files[NR_FILES] = {
	[NORMAL] = { "normal", FUSEFS_SIZE, 0444 },
	[HANG] = { "hang", FUSEFS_SIZE, 0666 },
	[EIO_AT] = { "eio", FUSEFS_SIZE, 0444 },
	[SHORT] = { "short", FUSEFS_SIZE, 0444 },
	[SLOW] = { "slow", FUSEFS_SIZE, 0666 },
	[SHRINK] = { "shrink", 4u << 20, 0444 },
	[STALE] = { "stale", FUSEFS_SIZE, 0666 },
	[ABORTS] = { "aborts", FUSEFS_SIZE, 0666 },
	[FULL] = { "full", 0, 0666 },
	[QUOTA] = { "quota", FUSEFS_SIZE, 0666 },
	[HOLD] = { "hold", 0, 0666 },
	[RELEASE] = { "release", 0, 0666 },
};

#define INO(file) ((fuse_ino_t)(file) + 2) /* inode 1 is the root */

/* A request to answer at the next release. */
struct waiting {
	struct waiting *next;
	fuse_req_t req;
	enum { READS, WRITES, ASKS } what;
	uint64_t off;
	size_t len;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct waiting *waiting;
static uint8_t full_data[ROOM];
static size_t full_size;
static unsigned nr_short;
static bool fresh; /* `stale' works: a release has happened */
static bool held;  /* requests for the root's attributes wait */

static void fill_stat(fuse_ino_t ino, struct stat *st)
{
	*st = (struct stat){ .st_ino = ino, .st_nlink = 1 };
	st->st_uid = getuid();
	st->st_gid = getgid();
	if (ino == FUSE_ROOT_ID) {
		st->st_mode = S_IFDIR | 0755;
		st->st_nlink = 2;
		return;
	}
	st->st_mode = S_IFREG | files[ino - 2].mode;
	st->st_size = (off_t)files[ino - 2].size;
	if (ino == INO(FULL)) {
		(void)pthread_mutex_lock(&lock);
		st->st_size = (off_t)full_size;
		(void)pthread_mutex_unlock(&lock);
	}
}

/* Let many requests of `hang' wait at the same time; the kernel's default is 12. */
static void fs_init(void *user, struct fuse_conn_info *conn)
{
	(void)user;
	conn->max_background = 8192;
	conn->congestion_threshold = 8192;
}

static void fs_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e = { .attr_timeout = 0, .entry_timeout = 60 };

	if (parent == FUSE_ROOT_ID) {
		for (int i = 0; i < NR_FILES; i++) {
			if (strcmp(name, files[i].name) != 0)
				continue;
			e.ino = INO(i);
			fill_stat(e.ino, &e.attr);
			(void)fuse_reply_entry(req, &e);
			return;
		}
	}
	(void)fuse_reply_err(req, ENOENT);
}

static void hang(fuse_req_t req, int what, uint64_t off, size_t len)
{
	struct waiting *w = malloc(sizeof(*w));

	if (!w) {
		(void)fuse_reply_err(req, ENOMEM);
		return;
	}
	*w = (struct waiting){ .req = req, .what = what, .off = off, .len = len };
	(void)pthread_mutex_lock(&lock);
	w->next = waiting;
	waiting = w;
	(void)pthread_mutex_unlock(&lock);
}

static void fs_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st;
	bool waits;

	(void)fi;
	(void)pthread_mutex_lock(&lock);
	waits = held && ino == FUSE_ROOT_ID;
	(void)pthread_mutex_unlock(&lock);
	if (waits) {
		hang(req, ASKS, 0, 0);
		return;
	}
	fill_stat(ino, &st);
	(void)fuse_reply_attr(req, &st, 0);
}

static void fs_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		       struct fuse_file_info *fi)
{
	if (to_set & FUSE_SET_ATTR_SIZE && ino == INO(FULL)) {
		(void)pthread_mutex_lock(&lock);
		full_size = MIN((size_t)attr->st_size, (size_t)ROOM);
		(void)pthread_mutex_unlock(&lock);
	}
	fs_getattr(req, ino, fi);
}

static void fs_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		       struct fuse_file_info *fi)
{
	char buf[4096];
	size_t used = 0;

	(void)fi;
	size = MIN(size, sizeof(buf));
	for (off_t i = off; ino == FUSE_ROOT_ID && i < NR_FILES; i++) {
		struct stat st;
		size_t n;

		fill_stat(INO(i), &st);
		n = fuse_add_direntry(req, buf + used, size - used, files[i].name, &st, i + 1);
		if (n > size - used)
			break;
		used += n;
	}
	(void)fuse_reply_buf(req, buf, used);
}

static void fs_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	/* The page cache would hide the results of single reads. */
	fi->direct_io = ino != INO(NORMAL);
	(void)fuse_reply_open(req, fi);
}

static void reply_pattern(fuse_req_t req, uint64_t off, size_t len)
{
	void *buf = malloc(len ? len : 1);

	if (!buf) {
		(void)fuse_reply_err(req, ENOMEM);
		return;
	}
	t_fill(buf, FUSEFS_SEED, off, len);
	(void)fuse_reply_buf(req, buf, len);
	free(buf);
}

static void reply_full(fuse_req_t req, uint64_t off, size_t len)
{
	(void)pthread_mutex_lock(&lock);
	len = off < full_size ? MIN(len, full_size - off) : 0;
	(void)fuse_reply_buf(req, (const char *)full_data + (len ? off : 0), len);
	(void)pthread_mutex_unlock(&lock);
}

/* Reply the number of waiting requests, as text. */
static void reply_waiting(fuse_req_t req)
{
	char text[16];
	unsigned nr = 0;

	(void)pthread_mutex_lock(&lock);
	for (const struct waiting *w = waiting; w; w = w->next)
		nr++;
	(void)pthread_mutex_unlock(&lock);
	(void)fuse_reply_buf(req, text, (size_t)snprintf(text, sizeof(text), "%u", nr));
}

static void release_all(void)
{
	struct waiting *w, *next;

	(void)pthread_mutex_lock(&lock);
	w = waiting;
	waiting = NULL;
	fresh = true;
	held = false;
	(void)pthread_mutex_unlock(&lock);
	for (; w; w = next) {
		next = w->next;
		if (w->what == WRITES)
			(void)fuse_reply_write(w->req, w->len);
		else if (w->what == READS)
			reply_pattern(w->req, w->off, w->len);
		else
			fs_getattr(w->req, FUSE_ROOT_ID, NULL);
		free(w);
	}
}

/* Reply the file's error, if it has one; return true if a reply was sent. */
static bool fails(fuse_req_t req, fuse_ino_t ino)
{
	int err = ino == INO(ABORTS) ? ECANCELED : 0;

	(void)pthread_mutex_lock(&lock);
	if (ino == INO(STALE) && !fresh)
		err = ESTALE;
	(void)pthread_mutex_unlock(&lock);
	if (err)
		(void)fuse_reply_err(req, err);
	return err;
}

static void be_slow(void)
{
	static const struct timespec ts = { .tv_nsec = 20 * 1000 * 1000 };

	(void)nanosleep(&ts, NULL);
}

/* Return an odd length that differs at each call, at most len. */
static size_t shorten(size_t len)
{
	size_t n;

	(void)pthread_mutex_lock(&lock);
	n = 7001 + (nr_short++ * 1002) % 50000;
	(void)pthread_mutex_unlock(&lock);
	return MIN(len, n);
}

static void fs_read(fuse_req_t req, fuse_ino_t ino, size_t len, off_t at, struct fuse_file_info *fi)
{
	uint64_t off = (uint64_t)at, size = files[ino - 2].size;

	(void)fi;
	if (fails(req, ino))
		return;
	len = MIN(len, (size_t)READ_MAX);
	len = off < size ? MIN(len, size - off) : 0;
	switch (ino - 2) {
	case HANG:
		hang(req, READS, off, len);
		return;
	case RELEASE:
		reply_waiting(req);
		return;
	case EIO_AT:
		if (off >= ROOM) {
			(void)fuse_reply_err(req, EIO);
			return;
		}
		len = MIN(len, ROOM - off);
		break;
	case SHORT:
		len = shorten(len);
		break;
	case SLOW:
		be_slow();
		break;
	case SHRINK:
		len = off < ROOM ? MIN(len, ROOM - off) : 0;
		break;
	case FULL:
		reply_full(req, off, READ_MAX);
		return;
	default:
		break;
	}
	reply_pattern(req, off, len);
}

static void write_full(fuse_req_t req, const char *buf, size_t len, uint64_t off)
{
	if (off >= ROOM) {
		(void)fuse_reply_err(req, ENOSPC);
		return;
	}
	len = MIN(len, ROOM - off);
	(void)pthread_mutex_lock(&lock);
	memcpy(full_data + off, buf, len);
	full_size = MAX(full_size, off + len);
	(void)pthread_mutex_unlock(&lock);
	(void)fuse_reply_write(req, len);
}

static void fs_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t len, off_t off,
		     struct fuse_file_info *fi)
{
	(void)fi;
	if (fails(req, ino))
		return;
	switch (ino - 2) {
	case STALE:
		break;
	case HANG:
		hang(req, WRITES, (uint64_t)off, len);
		return;
	case SLOW:
		be_slow();
		break;
	case FULL:
		write_full(req, buf, len, (uint64_t)off);
		return;
	case QUOTA:
		(void)fuse_reply_err(req, EDQUOT);
		return;
	case HOLD:
		(void)pthread_mutex_lock(&lock);
		held = true;
		(void)pthread_mutex_unlock(&lock);
		break;
	case RELEASE:
		release_all();
		break;
	default:
		(void)fuse_reply_err(req, EROFS);
		return;
	}
	(void)fuse_reply_write(req, len);
}

static void fs_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	(void)datasync;
	(void)fi;
	if (!fails(req, ino))
		(void)fuse_reply_err(req, 0);
}

static const struct fuse_lowlevel_ops ops = {
	.init = fs_init,
	.lookup = fs_lookup,
	.getattr = fs_getattr,
	.setattr = fs_setattr,
	.readdir = fs_readdir,
	.open = fs_open,
	.read = fs_read,
	.write = fs_write,
	.fsync = fs_fsync,
};

static int serve(struct fuse_session *se)
{
	struct fuse_loop_config *config = fuse_loop_cfg_create();
	int r;

	if (!config)
		return 1;
	fuse_loop_cfg_set_idle_threads(config, 16);
	(void)printf("ready\n");
	(void)fflush(stdout);
	r = fuse_session_loop_mt(se, config);
	fuse_loop_cfg_destroy(config);
	return r ? 1 : 0;
}

int main(int argc, char **argv)
{
	char type[64], *options[] = { argv[0], type, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(argc == 3 ? 2 : 1, options);
	struct fuse_session *se;
	int r = 1;

	if (argc != 2 && argc != 3) {
		(void)fprintf(stderr, "usage: fusefs DIR [NAME]\n");
		return 2;
	}
	(void)snprintf(type, sizeof(type), "-osubtype=%s", argc == 3 ? argv[2] : "");
	/* Unmount if the test ends without stopping this server. */
	(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
	se = fuse_session_new(&args, &ops, sizeof(ops), NULL);
	if (!se)
		return 1;
	if (fuse_set_signal_handlers(se) == 0) {
		if (fuse_session_mount(se, argv[1]) == 0) {
			r = serve(se);
			fuse_session_unmount(se);
		}
		fuse_remove_signal_handlers(se);
	}
	fuse_session_destroy(se);
	fuse_opt_free_args(&args);
	return r;
}
