/* SPDX-License-Identifier: MIT */
#include "tier/object.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/xattr.h>

#include "base/err.h"
#include "base/shown.h"

#define MARKER TIER_DIR "/id"
#define ID_DIGITS 32u
#define XATTR_NAMES_MAX 65536u /* bytes; the kernel's XATTR_LIST_MAX */

/* -------------------------------------------------------------------- keys */

void object_url(const struct tier_root *root, const char *key, char ret[OBJECT_URL_SIZE])
{
	(void)snprintf(ret, OBJECT_URL_SIZE, "%s/%s", root->path, key);
}

/* Return the bytes of a root's prefix in its bucket. */
static size_t prefix_len(const struct tier_root *root)
{
	const char *slash = strchr(root->path + strlen("s3://"), '/');

	return slash ? strlen(slash + 1) + 1 : 0;
}

bool object_id_valid(const char *text)
{
	return strlen(text) == ID_DIGITS && strspn(text, "0123456789abcdef") == ID_DIGITS;
}

int object_key(const struct tier_root *root, const char *name, char ret[OBJECT_KEY_SIZE])
{
	unsigned char bytes[ID_DIGITS / 2];
	size_t len = strlen(name);

	if (prefix_len(root) + len + 1 + ID_DIGITS >= OBJECT_KEY_SIZE)
		return err_set(ENAMETOOLONG,
			       "%s: the name is too long for the key of an object; the file stays "
			       "on a disk",
			       name);
	/* Stores refuse or change other keys. */
	if (!shown_is_utf8(name))
		return err_set(EILSEQ,
			       "%s: the name is not UTF-8, as keys of objects must be; the file "
			       "stays on a disk",
			       name);
	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
		return err_set(EIO, "the kernel gives no random numbers");
	len = (size_t)snprintf(ret, OBJECT_KEY_SIZE, "%s~", name);
	for (size_t i = 0; i < sizeof(bytes); i++)
		(void)snprintf(ret + len + 2 * i, 3, "%02x", bytes[i]);
	return 0;
}

/* -------------------------------------------------------------- attributes */

struct meta_text {
	char *text;
	size_t len; /* OBJECT_META_SIZE: the text does not fit */
};

static void meta_add(struct meta_text *m, const char *fmt, ...) _printf_(2, 3);

static void meta_add(struct meta_text *m, const char *fmt, ...)
{
	va_list ap;
	int n;

	if (m->len >= OBJECT_META_SIZE)
		return;
	va_start(ap, fmt);
	n = vsnprintf(m->text + m->len, OBJECT_META_SIZE - m->len, fmt, ap);
	va_end(ap);
	m->len = n < 0 ? OBJECT_META_SIZE : MIN(m->len + (size_t)n, (size_t)OBJECT_META_SIZE);
}

static void meta_hex(struct meta_text *m, const void *data, size_t len)
{
	const unsigned char *bytes = data;

	for (size_t i = 0; i < len && m->len < OBJECT_META_SIZE; i++)
		meta_add(m, "%02x", bytes[i]);
}

/* Add "NAME:VALUE," for each extended attribute, in hexadecimal digits. */
static int meta_xattrs(struct meta_text *m, int fd)
{
	_cleanup_(freep) char *names = malloc(XATTR_NAMES_MAX);
	char value[OBJECT_META_SIZE];
	ssize_t len;

	if (!names)
		return err_set(ENOMEM, "out of memory");
	len = flistxattr(fd, names, XATTR_NAMES_MAX);
	if (len < 0 && errno == EOPNOTSUPP)
		return 0;
	if (len < 0)
		return err_set(errno, "cannot list the file's attributes: %s", strerror(errno));
	for (char *at = names; at < names + len; at += strlen(at) + 1) {
		ssize_t n = fgetxattr(fd, at, value, sizeof(value));

		if (n < 0 && errno == ENODATA)
			continue;
		if (n < 0 && errno == ERANGE)
			m->len = OBJECT_META_SIZE;
		else if (n < 0)
			return err_set(errno, "cannot read the file's attribute %s: %s", at,
				       strerror(errno));
		meta_hex(m, at, strlen(at));
		meta_add(m, ":");
		meta_hex(m, value, (size_t)MAX(n, 0));
		meta_add(m, ",");
	}
	return 0;
}

int object_meta(const struct tier_set *set, int fd, const struct stat *st, uint32_t crc,
		char ret[OBJECT_META_SIZE])
{
	struct meta_text m = { .text = ret };
	struct timespec now;
	int r;

	if (clock_gettime(CLOCK_REALTIME, &now) < 0)
		return err_set(errno, "cannot ask for the time: %s", strerror(errno));
	meta_add(&m,
		 "1 set=%s crc=%08x mode=%o uid=%u gid=%u atime=%lld.%09ld mtime=%lld.%09ld "
		 "made=%lld.%09ld x=",
		 set->id, crc, (unsigned)st->st_mode & 07777, (unsigned)st->st_uid,
		 (unsigned)st->st_gid, (long long)st->st_atim.tv_sec, st->st_atim.tv_nsec,
		 (long long)st->st_mtim.tv_sec, st->st_mtim.tv_nsec, (long long)now.tv_sec,
		 now.tv_nsec);
	r = meta_xattrs(&m, fd);
	if (r < 0)
		return r;
	if (m.len >= OBJECT_META_SIZE)
		return err_set(E2BIG,
			       "the file's extended attributes do not fit into the metadata of an "
			       "object; the file stays on a disk");
	return 0;
}

int object_attrs(const struct tier_set *set, char *meta, struct object_attrs *ret)
{
	struct object_attrs a = { 0 };
	char id[TIER_ID_SIZE] = "";
	long long atime, mtime, made;
	long made_ns;
	unsigned mode, uid, gid;
	int end = 0;

	if (sscanf(meta,
		   "1 set=%32s crc=%" SCNx32 " mode=%o uid=%u gid=%u atime=%lld.%ld mtime=%lld.%ld "
		   "made=%lld.%ld x=%n",
		   id, &a.crc, &mode, &uid, &gid, &atime, &a.atime.tv_nsec, &mtime,
		   &a.mtime.tv_nsec, &made, &made_ns, &end) != 11 ||
	    !end || strcmp(id, set->id) != 0)
		return err_set(EBADMSG, "the object has no metadata of this set");
	a.mode = mode & 07777;
	a.uid = uid;
	a.gid = gid;
	a.atime.tv_sec = (time_t)atime;
	a.mtime.tv_sec = (time_t)mtime;
	a.made_ns = (int64_t)made * (int64_t)NSEC_PER_SEC + made_ns;
	a.xattr = meta + end;
	*ret = a;
	return 0;
}

static int object_hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Parse hexadecimal digits up to a character.  Return the bytes, or -1. */
static ssize_t parse_hex(const char **text, char end, char *ret, size_t room)
{
	const char *at = *text;
	size_t n = 0;

	for (; *at != end; at += 2) {
		int high = object_hex_digit(at[0]), low = high < 0 ? -1 : object_hex_digit(at[1]);

		if (low < 0 || n == room)
			return -1;
		ret[n++] = (char)(high << 4 | low);
	}
	*text = at + 1;
	return (ssize_t)n;
}

static int apply_xattrs(int fd, const char *text)
{
	char name[OBJECT_META_SIZE], value[OBJECT_META_SIZE];

	while (*text) {
		ssize_t n = parse_hex(&text, ':', name, sizeof(name) - 1), m = -1;

		if (n > 0)
			m = parse_hex(&text, ',', value, sizeof(value));
		if (m < 0)
			return err_set(EBADMSG, "the object's metadata are damaged");
		name[n] = '\0';
		if (fsetxattr(fd, name, value, (size_t)m, 0) < 0)
			return err_set(errno,
				       "the tier's file system does not take the attribute %s: %s",
				       name, strerror(errno));
	}
	return 0;
}

int object_attrs_apply(int fd, const struct object_attrs *a)
{
	const struct timespec times[2] = { a->atime, a->mtime };
	int r;

	if (fchown(fd, a->uid, a->gid) < 0)
		return err_set(errno, "cannot give the copy the file's owner: %s", strerror(errno));
	if (fchmod(fd, a->mode) < 0)
		return err_set(errno, "cannot give the copy the file's mode: %s", strerror(errno));
	r = apply_xattrs(fd, a->xattr);
	if (r < 0)
		return r;
	if (futimens(fd, times) < 0)
		return err_set(errno, "cannot give the copy the file's times: %s", strerror(errno));
	return 0;
}

/* ----------------------------------------------------------------- objects */

int object_same(const struct tier_root *root, const struct tier_object *o, uint64_t size,
		struct object_facts *ret)
{
	int r = object_head(root, o->key, ret);

	if (r == -ENOENT)
		return err_set(ESTALE,
			       "%s/%s is gone: another program removed it; only the set may "
			       "change what is below %s",
			       root->path, o->key, root->path);
	if (r < 0)
		return r;
	if (ret->size != size || strcmp(ret->etag, o->etag) != 0 || strcmp(ret->meta, o->meta) != 0)
		return err_set(ESTALE,
			       "%s/%s was replaced by another program; only the set may change "
			       "what is below %s",
			       root->path, o->key, root->path);
	return 0;
}

/* Text of the marker, which is also its metadata. */
static void marker_text(const struct tier_set *set, const struct tier_root *root,
			char ret[OBJECT_META_SIZE])
{
	(void)snprintf(ret, OBJECT_META_SIZE, "1 set=%s root=%s", set->id, root->id);
}

int object_marker(const struct tier_set *set, struct tier_root *root)
{
	char want[OBJECT_META_SIZE];
	struct object_facts f;
	int r;

	if (root->marked)
		return 0;
	r = object_head(root, MARKER, &f);
	if (r == -ENOENT)
		return err_set(ENODEV, "%s has no " MARKER ": is AWS_ENDPOINT_URL that of the set?",
			       root->path);
	if (r < 0)
		return r;
	marker_text(set, root, want);
	if (strcmp(f.meta, want) != 0)
		return err_set(ENODEV, "%s belongs to another set, says its " MARKER, root->path);
	root->marked = true;
	return 0;
}

static int marker_read(void *arg, void *buf, size_t len, uint64_t off)
{
	memcpy(buf, (const char *)arg + off, len);
	return 0;
}

static int err_overlaps(const struct tier_root *root, const char *other)
{
	return err_set(
		EEXIST,
		"%s and the root %.400s of another set overlap: scrub would report the objects "
		"of one as strays of the other; use another prefix",
		root->path, other);
}

/* Find the marker of a root below this one. */
static int find_marker(void *arg, const char *key, uint64_t size)
{
	const size_t len = sizeof("/" MARKER) - 1, key_len = strlen(key);
	char *ret = arg;

	(void)size;
	if (key_len <= len || strcmp(key + key_len - len, "/" MARKER) != 0)
		return 0;
	(void)snprintf(ret, OBJECT_KEY_SIZE, "%.*s", (int)(key_len - len), key);
	return 1;
}

/* Return -EEXIST if a root of another set is above or below this one.  Keys that may use only this
 * prefix cannot tell. */
static int marker_check_overlap(const struct tier_root *root)
{
	_cleanup_(freep) struct tier_root *above = malloc(sizeof(*above));
	char below[OBJECT_KEY_SIZE], url[OBJECT_URL_SIZE];
	const char *bucket_end = strchr(root->path + strlen("s3://"), '/');
	struct object_facts f;
	char *slash;
	int r;

	if (!above)
		return err_set(ENOMEM, "out of memory");
	*above = *root;
	while (bucket_end &&
	       (slash = strrchr(above->path, '/')) - above->path > bucket_end - root->path) {
		*slash = '\0';
		r = object_head(above, MARKER, &f);
		if (r == 0)
			return err_overlaps(root, above->path);
		if (r != -ENOENT && r != -EACCES)
			return r;
	}
	r = object_list(root, find_marker, below);
	if (r == 1) {
		object_url(root, below, url);
		return err_overlaps(root, url);
	}
	return r == -EACCES ? 0 : r;
}

int object_marker_make(const struct tier_set *set, const struct tier_root *root)
{
	char text[OBJECT_META_SIZE];
	const struct object_source src = { .size = 0, .read = marker_read, .arg = text };
	struct object_source s = src;
	struct object_facts f;
	int r = object_head(root, MARKER, &f);

	if (r == 0)
		return err_set(EEXIST,
			       "%s is a root of a set already; if that set is gone, remove "
			       "%s/" MARKER,
			       root->path, root->path);
	if (r != -ENOENT)
		return r;
	r = marker_check_overlap(root);
	if (r < 0)
		return r;
	marker_text(set, root, text);
	s.size = strlen(text);
	r = object_put(root, MARKER, &s, text);
	if (r == 0)
		r = object_head(root, MARKER, &f);
	if (r == 0 && strcmp(f.meta, text) != 0)
		r = err_set(EOPNOTSUPP,
			    "the server of %s does not keep the metadata of objects; use another "
			    "one",
			    root->path);
	return r;
}

int64_t object_due(void)
{
	return (int64_t)time(NULL) + OBJECT_GRACE_S;
}

int object_collect(struct tier_set *set, int64_t now_s, unsigned *ret_nr)
{
	int root = object_root(set), r;
	char key[OBJECT_KEY_SIZE];

	*ret_nr = 0;
	if (root < 0)
		return 0;
	while ((r = catalog_garbage_first(set->catalog, now_s, key)) == 0) {
		r = object_marker(set, &set->roots[root]);
		if (r == 0)
			r = object_remove(&set->roots[root], key);
		if (r == 0)
			r = catalog_garbage_end(set->catalog, key);
		if (r < 0)
			return r;
		(*ret_nr)++;
	}
	return r == -ENOENT ? 0 : r;
}
