/* SPDX-License-Identifier: MIT */
/*
 * The root of class object: a prefix of a bucket, s3://BUCKET/PREFIX, with an object for each file.
 *
 * The key of an object is PREFIX/NAME~ID.  ID is a random number of the move that wrote the object,
 * so no key is ever written twice: a late request of a killed mover cannot change the object of a
 * later move, and a late DELETE cannot remove it.  An object that is not needed any more is deleted
 * by object_collect() after OBJECT_GRACE_S, so that requests in flight can end.
 *
 * The catalogue knows key and ETag of each such file.  The object's metadata has checksum, mode,
 * owner, times and extended attributes, so 'scrub --rebuild' finds all of them again.
 *
 * PREFIX/.tier/id names set and root.
 */
#ifndef PST_TIER_OBJECT_H
#define PST_TIER_OBJECT_H

#include "base/objects.h"
#include "tier/catalog_object.h"
#include "tier/set.h"

#define OBJECT_PIECE MIB(8) /* bytes of one read from the store */
#define OBJECT_GRACE_S 300  /* seconds; longer than requests of readers take */

/* Attributes of a file that its object's metadata has. */
struct object_attrs {
	uint32_t crc;
	mode_t mode;
	uid_t uid;
	gid_t gid;
	struct timespec atime, mtime;
	int64_t made_ns;   /* time of the move, which orders objects of one name */
	const char *xattr; /* hexadecimal text of extended attributes */
};

/* Use this table in place of the module's.  For tests. */
void objects_use(const struct objects_table *table);

/* Make the key of a new object.  Return 0; -ENAMETOOLONG, or -EILSEQ for a name that is not UTF-8,
 * with a sentence. */
int object_key(const struct tier_root *root, const char *name, char ret[OBJECT_KEY_SIZE]);
/* Return true if the text is the ID at the end of a key. */
bool object_id_valid(const char *text);
/* Write the name s3://BUCKET/PREFIX/KEY. */
void object_url(const struct tier_root *root, const char *key, char ret[OBJECT_URL_SIZE]);

/* Make the metadata of a file's object.  Return 0; -E2BIG with a sentence if they do not fit. */
int object_meta(const struct tier_set *set, int fd, const struct stat *st, uint32_t crc,
		char ret[OBJECT_META_SIZE]);
/* Parse metadata, in place.  Return 0; -EBADMSG with a sentence if they are not this set's. */
int object_attrs(const struct tier_set *set, char *meta, struct object_attrs *ret);
/* Give a file the attributes of object_attrs(). */
int object_attrs_apply(int fd, const struct object_attrs *attrs);

/* Calls of base/objects.h on a key of the root, with sentences. */
int object_head(const struct tier_root *root, const char *key, struct object_facts *ret);
int object_put(const struct tier_root *root, const char *key, const struct object_source *src,
	       const char *meta);
int object_get(const struct tier_root *root, const char *key, const struct object_facts *of,
	       void *buf, size_t len, uint64_t off);
int object_remove(const struct tier_root *root, const char *key);
int object_list(const struct tier_root *root, object_list_fn fn, void *arg);

/* Return 0 if the object has that ETag and size; -ESTALE, or another error, with a sentence. */
int object_same(const struct tier_root *root, const struct tier_object *object, uint64_t size,
		struct object_facts *ret);

/*
 * Check that PREFIX/.tier/id names this set and root.  Return 0; -ENODEV with a sentence.  Asks the
 * server once for each open set.
 */
int object_marker(const struct tier_set *set, struct tier_root *root);

/*
 * Delete objects that are not needed since before now_s (seconds since 1970).  Return 0 or -errno
 * with a sentence; what is left is deleted by a later call.
 */
int object_collect(struct tier_set *set, int64_t now_s, unsigned *ret_nr);
/* Return the time for catalog_object_release(): now plus OBJECT_GRACE_S. */
int64_t object_due(void);

#endif
