/* SPDX-License-Identifier: MIT */
/*
 * The catalogue of files that are objects (object.h): key, ETag and metadata of each, keys in the
 * journal, and keys of objects that are to be deleted.  Errors as in catalog.h.
 */
#ifndef PST_TIER_CATALOG_OBJECT_H
#define PST_TIER_CATALOG_OBJECT_H

#include "base/objects.h"
#include "tier/catalog.h"

#define OBJECT_KEY_SIZE 1025u /* bytes with NUL; S3's own limit */
#define OBJECT_URL_SIZE (OBJECT_KEY_SIZE + 80u)

struct tier_object {
	char key[OBJECT_KEY_SIZE]; /* relative to the root's prefix */
	char etag[OBJECT_ETAG_SIZE];
	/* The metadata that the set wrote with the object, such as mode and owner.  An object with
	 * other metadata is refused: the ETag covers only the bytes, and another program could set
	 * a file's mode and owner. */
	char meta[OBJECT_META_SIZE];
};

/*
 * Record that the catalogue has all objects of the set.  catalog_is_whole() fails with the cure
 * before that: the catalogue is not the one that had them, or making it again did not end.
 */
int catalog_set_whole(struct catalog *c);
int catalog_is_whole(struct catalog *c);

/* Return the object of a file; -ENOENT without a sentence. */
int catalog_object(struct catalog *c, int64_t file, struct tier_object *ret);
int catalog_object_put(struct catalog *c, int64_t file, const struct tier_object *object);
/* Forget the object of a file, and note it for deletion at due, in seconds since 1970.  Within a
 * transaction. */
int catalog_object_release(struct catalog *c, const struct tier_file *file, int64_t due);

/* Make an object the file, as catalog_move_commit() does. */
int catalog_move_commit_object(struct catalog *c, const struct tier_move *move,
			       struct tier_file *file, const struct tier_object *object);

/* Make a file on a disk the file, in place of an object.  Within a transaction. */
int catalog_move_commit_file(struct catalog *c, const struct tier_move *move,
			     const struct tier_file *object, struct tier_file *file, int64_t due);

/* Journal the key of the object that a move writes. */
int catalog_sent_put(struct catalog *c, const struct tier_move *move,
		     const struct tier_object *object);
/* Return what the journal knows; -ENOENT without a sentence. */
int catalog_sent(struct catalog *c, const struct tier_move *move, struct tier_object *ret);
int catalog_sent_end(struct catalog *c, const struct tier_move *move);

/* Note an object for deletion. */
int catalog_garbage_put(struct catalog *c, const char *key, uint64_t bytes, int64_t due);
/* Return a key that is due; -ENOENT without a sentence. */
int catalog_garbage_first(struct catalog *c, int64_t now_s, char ret[OBJECT_KEY_SIZE]);
int catalog_garbage_end(struct catalog *c, const char *key);
/* Return the objects that are noted for deletion, and their bytes. */
int catalog_garbage_count(struct catalog *c, uint64_t *ret_nr, uint64_t *ret_bytes);
/* Return 1 if a key belongs to a file, to a move or to the objects noted for deletion; else 0. */
int catalog_object_known(struct catalog *c, const char *key);

#endif
