/* SPDX-License-Identifier: MIT */
/*
 * lazyfs DIR LOG: mount an empty file system in memory on DIR, print "ready", and serve until it is
 * unmounted or gets SIGTERM.  Each change and each sync is logged in order, so that crash.py can
 * build the states that a power loss may leave.  A write to the file /mark is logged as a MARK,
 * which puts the test's acknowledgements into the same order.
 *
 * A record: type (1 byte); two inode numbers, an offset and the length of the rest (8 bytes each,
 * little endian); the rest.
 */
#define FUSE_USE_VERSION 312

#include <errno.h>
#include <fuse_lowlevel.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/base.h"

enum record {
	CREATE = 1, /* directory, inode, mode; name */
	MKDIR,      /* as CREATE */
	WRITE,      /* inode, 0, offset; bytes */
	TRUNCATE,   /* inode, 0, size */
	RENAME,     /* directories; both names, each with a NUL */
	UNLINK,     /* directory, inode; name */
	RMDIR,      /* as UNLINK */
	LINK,       /* directory, inode; name */
	FSYNC,      /* inode */
	FSYNCDIR,   /* inode */
	ATTR,       /* inode, mode, mtime in ns */
	MARK,       /* 0, 0, 0; text */
};

#define MARK_INO 2

struct node {
	struct node *next;
	struct stat st;
	char *data;
	size_t room;
	/* An entry of a directory. */
	struct entry {
		char *name;
		struct node *node;
	} * entries;
	size_t nr, entries_room;
};

static struct node *nodes;
static uint64_t last_ino = MARK_INO;
static FILE *log_file;

static void record(enum record type, uint64_t a, uint64_t b, uint64_t off, const void *data,
		   size_t len)
{
	const uint64_t head[4] = { a, b, off, len };
	const char t = (char)type;

	(void)fwrite(&t, 1, 1, log_file);
	(void)fwrite(head, sizeof(head), 1, log_file);
	(void)fwrite(data, 1, len, log_file);
	(void)fflush(log_file);
}

static struct node *find(fuse_ino_t ino)
{
	struct node *n = nodes;

	while (n && n->st.st_ino != ino)
		n = n->next;
	return n;
}

static void touch(struct node *n, bool content)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	n->st.st_ctim = now;
	if (content)
		n->st.st_mtim = now;
}

static struct node *node_new(fuse_req_t req, mode_t mode, uint64_t ino)
{
	struct node *n = calloc(1, sizeof(*n));

	if (!n)
		abort();
	n->st.st_ino = ino;
	n->st.st_mode = mode;
	n->st.st_nlink = S_ISDIR(mode) ? 2 : 1;
	n->st.st_uid = req ? fuse_req_ctx(req)->uid : getuid();
	n->st.st_gid = req ? fuse_req_ctx(req)->gid : getgid();
	n->st.st_blksize = 4096;
	touch(n, true);
	n->st.st_atim = n->st.st_mtim;
	n->next = nodes;
	nodes = n;
	return n;
}

static struct entry *entry_find(struct node *dir, const char *name)
{
	for (size_t i = 0; i < dir->nr; i++)
		if (!strcmp(dir->entries[i].name, name))
			return &dir->entries[i];
	return NULL;
}

static void entry_add(struct node *dir, const char *name, struct node *node)
{
	if (dir->nr == dir->entries_room) {
		dir->entries_room = dir->entries_room ? 2 * dir->entries_room : 16;
		dir->entries = reallocarray(dir->entries, dir->entries_room, sizeof(*dir->entries));
		if (!dir->entries)
			abort();
	}
	dir->entries[dir->nr++] = (struct entry){ strdup(name), node };
	touch(dir, true);
}

static void entry_del(struct node *dir, struct entry *e)
{
	free(e->name);
	memmove(e, e + 1, (size_t)(dir->entries + dir->nr - (e + 1)) * sizeof(*e));
	dir->nr--;
	touch(dir, true);
}

/* Reply with a node.  Nodes are never freed: tests are short, and open files need them. */
static void reply_entry(fuse_req_t req, struct node *n)
{
	struct fuse_entry_param e = { .ino = n->st.st_ino, .attr = n->st };

	(void)fuse_reply_entry(req, &e);
}

static void fs_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct entry *e = entry_find(find(parent), name);

	if (e)
		reply_entry(req, e->node);
	else
		(void)fuse_reply_err(req, ENOENT);
}

static void fs_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)fi;
	(void)fuse_reply_attr(req, &find(ino)->st, 0);
}

static void resize(struct node *n, size_t size)
{
	if (size > n->room) {
		size_t room = MAX(size, 2 * n->room);

		n->data = realloc(n->data, room);
		if (!n->data)
			abort();
		memset(n->data + n->room, 0, room - n->room);
		n->room = room;
	}
	if (size < (size_t)n->st.st_size)
		memset(n->data + size, 0, (size_t)n->st.st_size - size);
	n->st.st_size = (off_t)size;
	n->st.st_blocks = (blkcnt_t)((size + 511) / 512);
}

static void fs_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		       struct fuse_file_info *fi)
{
	struct node *n = find(ino);

	(void)fi;
	touch(n, false);
	if (to_set & FUSE_SET_ATTR_SIZE) {
		resize(n, (size_t)attr->st_size);
		touch(n, true);
		record(TRUNCATE, ino, 0, (uint64_t)attr->st_size, "", 0);
	}
	if (to_set & FUSE_SET_ATTR_MODE)
		n->st.st_mode = (n->st.st_mode & S_IFMT) | (attr->st_mode & 07777);
	if (to_set & FUSE_SET_ATTR_UID)
		n->st.st_uid = attr->st_uid;
	if (to_set & FUSE_SET_ATTR_GID)
		n->st.st_gid = attr->st_gid;
	if (to_set & FUSE_SET_ATTR_ATIME)
		n->st.st_atim = attr->st_atim;
	if (to_set & FUSE_SET_ATTR_MTIME)
		n->st.st_mtim = attr->st_mtim;
	if (to_set & FUSE_SET_ATTR_MTIME_NOW)
		touch(n, true);
	record(ATTR, ino, n->st.st_mode,
	       (uint64_t)n->st.st_mtim.tv_sec * NSEC_PER_SEC + (uint64_t)n->st.st_mtim.tv_nsec, "",
	       0);
	(void)fuse_reply_attr(req, &n->st, 0);
}

static struct node *make(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
			 enum record type)
{
	struct node *dir = find(parent), *n;

	if (entry_find(dir, name)) {
		(void)fuse_reply_err(req, EEXIST);
		return NULL;
	}
	n = node_new(req, mode, ++last_ino);
	entry_add(dir, name, n);
	record(type, parent, n->st.st_ino, mode, name, strlen(name));
	return n;
}

static void fs_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct node *n = make(req, parent, name, S_IFDIR | mode, MKDIR);

	if (n)
		reply_entry(req, n);
}

static void fs_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		      struct fuse_file_info *fi)
{
	struct node *n = make(req, parent, name, S_IFREG | mode, CREATE);
	struct fuse_entry_param e = { 0 };

	if (!n)
		return;
	e.ino = n->st.st_ino;
	e.attr = n->st;
	(void)fuse_reply_create(req, &e, fi);
}

static void fs_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	/* Use direct I/O for /mark: otherwise the kernel would read its pages before it writes
	 * them. */
	fi->direct_io = ino == MARK_INO;
	(void)fuse_reply_open(req, fi);
}

static void fs_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	struct node *n = find(ino);
	size_t have = off < n->st.st_size ? (size_t)(n->st.st_size - off) : 0;

	(void)fi;
	(void)fuse_reply_buf(req, have ? n->data + off : NULL, MIN(size, have));
}

static void fs_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
		     struct fuse_file_info *fi)
{
	struct node *n = find(ino);

	(void)fi;
	if (ino == MARK_INO) {
		record(MARK, 0, 0, 0, buf, size);
		(void)fuse_reply_write(req, size);
		return;
	}
	if ((size_t)off + size > (size_t)n->st.st_size)
		resize(n, (size_t)off + size);
	memcpy(n->data + off, buf, size);
	touch(n, true);
	record(WRITE, ino, 0, (uint64_t)off, buf, size);
	(void)fuse_reply_write(req, size);
}

static void remove_entry(fuse_req_t req, fuse_ino_t parent, const char *name, enum record type)
{
	struct node *dir = find(parent);
	struct entry *e = entry_find(dir, name);
	struct node *n = e ? e->node : NULL;

	if (!e || (type == RMDIR && n->nr)) {
		(void)fuse_reply_err(req, e ? ENOTEMPTY : ENOENT);
		return;
	}
	entry_del(dir, e);
	n->st.st_nlink -= n->st.st_nlink > 0;
	touch(n, false);
	record(type, parent, n->st.st_ino, 0, name, strlen(name));
	(void)fuse_reply_err(req, 0);
}

static void fs_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	remove_entry(req, parent, name, UNLINK);
}

static void fs_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	remove_entry(req, parent, name, RMDIR);
}

static void fs_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
		      const char *newname, unsigned flags)
{
	struct node *from = find(parent), *to = find(newparent);
	struct entry *e = entry_find(from, name), *old = entry_find(to, newname);
	char names[2 * NAME_MAX + 2];
	struct node *n;
	size_t len;

	if (!e || (old && flags & RENAME_NOREPLACE) || flags & ~(unsigned)RENAME_NOREPLACE) {
		(void)fuse_reply_err(req, !e ? ENOENT : old ? EEXIST : EINVAL);
		return;
	}
	n = e->node;
	if (old) {
		old->node->st.st_nlink--;
		entry_del(to, old);
		e = entry_find(from, name);
	}
	entry_del(from, e);
	entry_add(to, newname, n);
	touch(n, false);
	len = (size_t)snprintf(names, sizeof(names), "%s%c%s", name, '\0', newname);
	record(RENAME, parent, newparent, n->st.st_ino, names, len + 1);
	(void)fuse_reply_err(req, 0);
}

static void fs_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t newparent, const char *newname)
{
	struct node *n = find(ino);

	n->st.st_nlink++;
	touch(n, false);
	entry_add(find(newparent), newname, n);
	record(LINK, newparent, ino, 0, newname, strlen(newname));
	reply_entry(req, n);
}

static void fs_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		       struct fuse_file_info *fi)
{
	struct node *dir = find(ino);
	char *buf = malloc(size);
	size_t used = 0;

	(void)fi;
	for (size_t i = (size_t)off; buf && i < dir->nr; i++) {
		size_t n = fuse_add_direntry(req, buf + used, size - used, dir->entries[i].name,
					     &dir->entries[i].node->st, (off_t)i + 1);

		if (n > size - used)
			break;
		used += n;
	}
	(void)fuse_reply_buf(req, buf, used);
	free(buf);
}

static void fs_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	(void)datasync;
	(void)fi;
	record(FSYNC, ino, 0, 0, "", 0);
	(void)fuse_reply_err(req, 0);
}

static void fs_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	(void)datasync;
	(void)fi;
	record(FSYNCDIR, ino, 0, 0, "", 0);
	(void)fuse_reply_err(req, 0);
}

static void fs_statfs(fuse_req_t req, fuse_ino_t ino)
{
	const struct statvfs vfs = { .f_bsize = 4096,
				     .f_frsize = 4096,
				     .f_blocks = 1 << 20,
				     .f_bfree = 1 << 20,
				     .f_bavail = 1 << 20,
				     .f_namemax = NAME_MAX };

	(void)ino;
	(void)fuse_reply_statfs(req, &vfs);
}

static const struct fuse_lowlevel_ops ops = {
	.lookup = fs_lookup,
	.getattr = fs_getattr,
	.setattr = fs_setattr,
	.mkdir = fs_mkdir,
	.create = fs_create,
	.open = fs_open,
	.read = fs_read,
	.write = fs_write,
	.unlink = fs_unlink,
	.rmdir = fs_rmdir,
	.rename = fs_rename,
	.link = fs_link,
	.readdir = fs_readdir,
	.fsync = fs_fsync,
	.fsyncdir = fs_fsyncdir,
	.statfs = fs_statfs,
};

int main(int argc, char *argv[])
{
	char *args[] = { argv[0], (char *)"-ofsname=lazyfs,default_permissions", NULL };
	struct fuse_args fa = FUSE_ARGS_INIT(2, args);
	struct fuse_session *se;
	struct node *root;
	int r = 1;

	if (argc != 3) {
		(void)fputs("Usage: lazyfs DIR LOG\n", stderr);
		return 2;
	}
	log_file = fopen(argv[2], "we");
	if (!log_file) {
		perror(argv[2]);
		return 1;
	}
	/* End when the test that started this ends. */
	(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
	root = node_new(NULL, S_IFDIR | 0755, FUSE_ROOT_ID);
	entry_add(root, "mark", node_new(NULL, S_IFREG | 0666, MARK_INO));
	se = fuse_session_new(&fa, &ops, sizeof(ops), NULL);
	if (!se)
		return 1;
	if (fuse_set_signal_handlers(se) == 0) {
		if (fuse_session_mount(se, argv[1]) == 0) {
			(void)puts("ready");
			(void)fflush(stdout);
			r = fuse_session_loop(se) < 0;
			fuse_session_unmount(se);
		}
		fuse_remove_signal_handlers(se);
	}
	fuse_session_destroy(se);
	return r;
}
