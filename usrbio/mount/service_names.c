/* SPDX-License-Identifier: MIT */
/* Names and attributes of a storage service: source_service. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/scheme.h"
#include "usrbio/mount/service.h"

#define PAGE KIB(64)      /* bytes of entries per request */
#define LIST_MAX 1000000u /* maximum entries of a directory */
#define NUMBER_MASK (UINT64_MAX >> 8)

static bool service_owns(const char *name)
{
	static const char *const schemes[] = { "pst://", "psts://", "pst+unix://" };

	for (size_t i = 0; i < ARRAY_SIZE(schemes); i++)
		if (!strncmp(name, schemes[i], strlen(schemes[i])))
			return true;
	return false;
}

/* ------------------------------------------------------------------- nodes */

int service_path(struct node *n, char ret[WIRE_NAME_MAX + 1])
{
	int err = -ESTALE;

	(void)pthread_mutex_lock(&n->lock);
	if (n->path) {
		(void)snprintf(ret, WIRE_NAME_MAX + 1, "%s", n->path);
		err = 0;
	}
	(void)pthread_mutex_unlock(&n->lock);
	return err;
}

int service_path_in(struct node *dir, const char *name, char ret[WIRE_NAME_MAX + 1])
{
	int err = service_path(dir, ret);
	size_t len = err < 0 ? 0 : strlen(ret);

	if (err < 0)
		return err;
	if (len + strlen(name) + 1 > WIRE_NAME_MAX)
		return -ENAMETOOLONG;
	(void)snprintf(ret + len, WIRE_NAME_MAX + 1 - len, "%s%s", len ? "/" : "", name);
	return 0;
}

static struct timespec time_of(uint64_t ns)
{
	return (struct timespec){ .tv_sec = (time_t)(ns / NSEC_PER_SEC),
				  .tv_nsec = (long)(ns % NSEC_PER_SEC) };
}

static mode_t type_of(uint32_t kind)
{
	switch (kind) {
	case WIRE_KIND_FILE:
		return S_IFREG;
	case WIRE_KIND_DIR:
		return S_IFDIR;
	default:
		/* S_IFSOCK, because the kernel opens no socket */
		return S_IFSOCK;
	}
}

struct stat service_attr(struct fs *fs, const struct wire_attr *a)
{
	return (struct stat){
		.st_dev = (dev_t)a->dev,
		.st_ino = (ino_t)a->ino,
		.st_mode = type_of(a->kind) | (a->mode & 0777),
		.st_nlink = a->kind == WIRE_KIND_DIR ? 2 : 1,
		.st_uid = fs->service->uid,
		.st_gid = fs->service->gid,
		.st_size = a->kind == WIRE_KIND_FILE ? (off_t)a->size : 0,
		.st_blksize = WIRE_DATA_MAX,
		.st_blocks = a->kind == WIRE_KIND_FILE
				     ? (blkcnt_t)(a->size / 512) + !!(a->size % 512)
				     : 0,
		.st_atim = time_of(a->mtime_ns),
		.st_mtim = time_of(a->mtime_ns),
		.st_ctim = time_of(a->ctime_ns),
	};
}

/* Set a node's path and attributes; the inode number may now be another file's. */
static int set_node(struct node *n, const char *path, const struct wire_attr *a)
{
	int err = 0;

	(void)pthread_mutex_lock(&n->lock);
	if (!n->remote)
		n->remote = calloc(1, sizeof(*n->remote));
	if (!n->path || strcmp(n->path, path) != 0) {
		free(n->path);
		n->path = strdup(path);
	}
	if (n->remote && n->remote->btime_ns != a->btime_ns)
		*n->remote = (struct service_node){ .btime_ns = a->btime_ns };
	if (!n->remote || !n->path)
		err = -ENOMEM;
	(void)pthread_mutex_unlock(&n->lock);
	return err;
}

int service_entry(struct fs *fs, const char *path, const struct wire_attr *a,
		  struct fuse_entry_param *ret)
{
	struct stat st = service_attr(fs, a);
	struct node *n;
	int err = node_get(&fs->nodes, -1, fs->nodes.root.mnt, &st, &n);

	if (err < 0)
		return err;
	err = set_node(n, path, a);
	if (err < 0) {
		node_put(&fs->nodes, n, 1);
		return err;
	}
	*ret = (struct fuse_entry_param){
		.ino = fs_ino(fs, n),
		.attr = st,
		.attr_timeout = fs_attr_timeout(fs, n),
		.entry_timeout = fs->timeout,
	};
	ret->attr.st_ino = n->number;
	return 0;
}

static int service_lookup(struct fs *fs, struct node *dir, const char *name,
			  struct fuse_entry_param *ret)
{
	char path[WIRE_NAME_MAX + 1];
	struct wire_attr a;
	int err = service_path_in(dir, name, path);

	if (err == 0)
		err = service_stat(fs->service, fs_caller(), path, &a, NULL);
	/* The name is a link that leads out of the served directory. */
	if (err == -EXDEV)
		err = -ENOENT;
	return err < 0 ? err : service_entry(fs, path, &a, ret);
}

static bool is_node(struct node *n, const struct wire_attr *a)
{
	bool same;

	(void)pthread_mutex_lock(&n->lock);
	same = n->dev == (dev_t)a->dev && n->ino == (ino_t)a->ino && n->remote &&
	       n->remote->btime_ns == a->btime_ns;
	(void)pthread_mutex_unlock(&n->lock);
	return same;
}

/* Attributes of a file whose name was removed, by an open handle. */
struct handle_stat {
	unsigned line;
	uint64_t epoch;
	uint32_t handle;
	struct wire_attr attr;
};

static int stat_handle(struct service *s, struct service_line *l, void *arg)
{
	struct wire_request q = { .op = WIRE_STAT };
	struct handle_stat *h = arg;
	uint8_t payload[WIRE_ATTR_LEN];
	struct wire_reply rep;
	int err;

	(void)s;
	if (l->epoch != h->epoch)
		return -ESTALE;
	q.handle = h->handle;
	err = remote_talk_ask(l->talk, &q, "", 0, &rep, payload, sizeof(payload));
	return err < 0 ? err : remote_get_attr(payload, &rep, &h->attr);
}

static bool find_handle(struct service *s, struct node *n, struct handle_stat *ret)
{
	struct list *e;
	bool found = false;

	(void)pthread_mutex_lock(&s->lock);
	list_for_each (e, &s->files) {
		struct service_file *f = list_entry(e, struct service_file, link);

		if ((dev_t)f->attr.dev != n->dev || (ino_t)f->attr.ino != n->ino)
			continue;
		for (unsigned i = 0; i < SERVICE_LINES && !found; i++) {
			ret->line = i;
			ret->epoch = atomic_load(&f->on[i].epoch);
			ret->handle = f->on[i].handle;
			found = ret->epoch;
		}
	}
	(void)pthread_mutex_unlock(&s->lock);
	return found;
}

static int service_node_stat(struct fs *fs, struct node *n, struct stat *ret)
{
	char path[WIRE_NAME_MAX + 1];
	struct handle_stat h;
	struct wire_attr a;
	int err = service_path(n, path);

	if (err == 0)
		err = service_stat(fs->service, fs_caller(), path, &a, NULL);
	if (err == 0 && !is_node(n, &a))
		err = -ESTALE;
	if ((err == -ENOENT || err == -ESTALE) && find_handle(fs->service, n, &h)) {
		err = service_run(fs->service, fs_caller(), h.line, false, stat_handle, &h);
		a = h.attr;
	}
	if (err < 0)
		return err;
	*ret = service_attr(fs, &a);
	ret->st_ino = n->number;
	return 0;
}

/* ------------------------------------------------------------------ change */

static int service_remove(struct fs *fs, struct node *dir, const char *name, int flags)
{
	char path[WIRE_NAME_MAX + 1];
	struct service_ask a = { .q = { .op = WIRE_UNLINK }, .bytes = path };
	int err = service_path_in(dir, name, path);

	if (err < 0)
		return err;
	if (fs->service->read_only)
		return -EROFS;
	/* The protocol cannot make or remove directories. */
	if (flags & AT_REMOVEDIR)
		return -EPERM;
	a.len = strlen(path);
	return service_ask(fs->service, fs_caller(), true, &a);
}

/* Move a node's path; the kernel does not tell which node was renamed. */
static void move_path(struct fs *fs, const char *path)
{
	struct wire_attr a;
	struct node *n;

	if (service_stat(fs->service, fs_caller(), path, &a, NULL) < 0)
		return;
	n = node_by_number(&fs->nodes, node_number(&fs->nodes, (dev_t)a.dev, (ino_t)a.ino));
	if (!n)
		return;
	(void)set_node(n, path, &a);
	node_put(&fs->nodes, n, 1);
}

static int service_rename(struct fs *fs, struct node *dir, const char *name, struct node *to,
			  const char *to_name, unsigned flags)
{
	char paths[2 * WIRE_NAME_MAX + 1], to_path[WIRE_NAME_MAX + 1];
	struct service_ask a = { .q = { .op = WIRE_RENAME }, .bytes = paths };
	int err = service_path_in(dir, name, paths);

	if (err == 0)
		err = service_path_in(to, to_name, to_path);
	if (err == 0 && flags)
		err = -EINVAL;
	if (err == 0 && fs->service->read_only)
		err = -EROFS;
	if (err < 0)
		return err;
	a.q.count = (uint32_t)strlen(paths);
	(void)strcpy(paths + a.q.count, to_path);
	a.len = strlen(paths);
	err = service_ask(fs->service, fs_caller(), true, &a);
	if (err == 0)
		move_path(fs, to_path);
	return err;
}

/* -------------------------------------------------------------------- list */

struct service_listing {
	struct fs *fs;
	struct node *dir;
	const char *path;
	struct source_entry *at;
	size_t nr, room;
};

static int listing_add(struct service_listing *l, const char *name, size_t len, uint64_t number,
		       mode_t type)
{
	struct source_entry *e;

	if (l->nr == l->room) {
		size_t room = l->room ? 2 * l->room : 64;
		struct source_entry *more = reallocarray(l->at, room, sizeof(*more));

		if (!more || room > LIST_MAX * 2) {
			if (more)
				l->at = more;
			return -ENOMEM;
		}
		l->at = more;
		l->room = room;
	}
	e = &l->at[l->nr++];
	*e = (struct source_entry){ .number = number, .type = type };
	memcpy(e->name, name, len);
	return 0;
}

/* Make an inode number by hashing directory and name: the protocol's entries have none, but the
 * number must not change. */
static uint64_t entry_number(const struct service_listing *l, const char *name, size_t len)
{
	uint64_t h = l->dir->number;

	for (size_t i = 0; i < len; i++)
		h = (h ^ (uint8_t)name[i]) * UINT64_C(0x100000001b3);
	return node_number(&l->fs->nodes, l->dir->dev, (ino_t)((h & NUMBER_MASK) | 1));
}

static int listing_page(struct service_listing *l, const uint8_t *page,
			const struct wire_reply *rep, uint64_t *cursor)
{
	uint32_t at = 0;
	struct wire_entry e;
	int r;

	while ((r = wire_get_entry(page, rep->count, &at, &e)) > 0) {
		*cursor = e.next;
		if (e.name_len > NAME_MAX || !e.name_len ||
		    (e.name_len <= 2 && !memcmp(e.name, "..", e.name_len)))
			continue;
		r = listing_add(l, e.name, e.name_len, entry_number(l, e.name, e.name_len),
				e.kind == WIRE_KIND_OTHER ? 0 : type_of(e.kind));
		if (r < 0)
			return r;
	}
	return r < 0 || (rep->value && !at) ? -EIO : (int)rep->value;
}

static int service_list(struct fs *fs, struct node *dir, struct source_entry **ret, size_t *ret_nr)
{
	char path[WIRE_NAME_MAX + 1];
	_cleanup_(freep) uint8_t *page = malloc(PAGE);
	struct service_listing l = { .fs = fs, .dir = dir, .path = path };
	uint64_t cursor = 0;
	int err = page ? service_path(dir, path) : -ENOMEM;

	if (err == 0)
		err = listing_add(&l, ".", 1, dir->number, S_IFDIR);
	if (err == 0)
		err = listing_add(&l, "..", 2, dir->number, S_IFDIR);
	for (int more = err == 0; more > 0 && err == 0;) {
		struct service_ask a = {
			.q = { .op = WIRE_LIST, .off = cursor, .count = PAGE },
			.bytes = path,
			.len = strlen(path),
			.payload = page,
			.room = PAGE,
		};

		err = service_ask(fs->service, fs_caller(), false, &a);
		if (err == 0)
			err = more = listing_page(&l, page, &a.rep, &cursor);
		err = MIN(err, 0);
	}
	if (err < 0) {
		free(l.at);
		return err;
	}
	*ret = l.at;
	*ret_nr = l.nr;
	return 0;
}

/* Return sizes of 0: the protocol does not have them. */
static int service_statfs(struct fs *fs, const struct node *n, struct statvfs *ret)
{
	(void)fs;
	(void)n;
	*ret = (struct statvfs){ .f_bsize = 4096, .f_frsize = 4096, .f_namemax = NAME_MAX };
	return 0;
}

/* -------------------------------------------------------------------- life */

static void service_close(struct fs *fs)
{
	struct service *s = TAKE_PTR(fs->service);

	if (!s)
		return;
	service_done(s);
	free(s);
}

/* Split a source into its path on the server and the text before the path. */
static int service_parse(struct service *s, const char *source)
{
	const char *path;
	size_t len;
	int r = remote_name(source, true, &s->server, &path);

	if (r < 0)
		return r;
	len = strlen(path);
	while (len && path[len - 1] == '/')
		len--;
	if ((size_t)(path - source) >= sizeof(s->prefix))
		return err_set(ENAMETOOLONG, "%s is too long for a source", source);
	memcpy(s->prefix, source, (size_t)(path - source));
	memcpy(s->root, path, len);
	return 0;
}

static int service_begin_root(struct fs *fs, struct stat *ret)
{
	struct service *s = fs->service;
	struct wire_attr a;
	int r = service_stat(s, geteuid(), s->root, &a, NULL);

	if (r < 0)
		return err_set(r, "%s: %s", fs->opts->source, err_text());
	if (a.kind != WIRE_KIND_DIR)
		return err_set(ENOTDIR, "%s is not a directory", fs->opts->source);
	*ret = service_attr(fs, &a);
	s->root_btime_ns = a.btime_ns;
	return 0;
}

static int service_open(struct fs *fs, int *ret_root_fd, struct stat *ret_root)
{
	struct service *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	fs->service = s;
	service_init(s);
	s->uid = fs->opts->uid;
	s->gid = fs->opts->gid;
	s->read_only = fs->opts->read_only;
	r = service_parse(s, fs->opts->source);
	if (r == 0)
		r = service_begin_root(fs, ret_root);
	if (r < 0) {
		(void)fprintf(stderr, "penstock: %s\n", err_text());
		service_close(fs);
	}
	*ret_root_fd = -1;
	return r;
}

static void service_begin(struct fs *fs)
{
	const struct wire_attr a = { .btime_ns = fs->service->root_btime_ns };

	(void)set_node(&fs->nodes.root, fs->service->root, &a);
}

static void service_end(struct fs *fs)
{
	service_stop(fs->service);
}

const struct source_ops source_service = {
	.owns = service_owns,
	.can_be_ro = true,
	.only_cache = true,
	.open = service_open,
	.begin = service_begin,
	.stop = service_end,
	.close_files = service_files_done,
	.close = service_close,
	.stat = service_node_stat,
	.lookup = service_lookup,
	.remove = service_remove,
	.rename = service_rename,
	.list = service_list,
	.statfs = service_statfs,
	.announce = service_announce,
	.sync = service_sync,
	.written = service_ring_writes,
	.replace = service_file_ops,
};
