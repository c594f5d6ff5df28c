/* SPDX-License-Identifier: MIT */
/*
 * libpenstock-kv - keep blocks of keys and values of inference engines on disks: a store of
 * immutable blocks by key that keeps a byte budget, answers by a deadline and never gives wrong
 * bytes.  docs/KV.md has the ideas, the format and what was measured.
 *
 * The conventions of <penstock.h> hold here too.  Besides:
 *
 *   - Every call may be made by any thread at any time, pst_kv_close() apart.
 *   - The store does all I/O on threads of its own.  A submission never waits for a disk.
 *   - Every batch that was submitted completes exactly once, at the latest 200 ms after its
 *     deadline.  Each block of a batch has a result of its own.
 *   - The store is a cache: any block may vanish, and a block that cannot be had for whatever
 *     reason is a miss.  A get gives the bytes of the set with that key in that space, or none.
 *
 * A block is a file: its bytes, and behind them a trailer with the key, the space, the length, the
 * CRC-32C of the bytes and that of the trailer.  A set writes to a temporary name and renames.
 * Nothing is synced (see PST_KV_SYNC): a block that a power loss cut fails its check and is a miss.
 *
 * The hard cases, and what happens:
 *
 *   A block is evicted, deleted or set again while it is read
 *	The read goes on with the file that it opened and gives the old block, whole.  The bytes of
 *	that file count against the budget until the read ends.
 *   A key is set that another set of this process writes just now
 *	Both write files of their own.  The one that is renamed last stays; the budget counts both
 *	while both exist.
 *   Two processes set the same key
 *	One process at a time may write to a root: the owner, which holds a lock on the root.
 *	Another one opens the root with PST_KV_READER, and gets blocks, but sets and deletes none.
 *	The owner renames, so a reader sees the old block or the new one.
 *   The budget, with writes in flight
 *	A set reserves its bytes, rounded up to 4 KiB as its file will be, before it creates the
 *	file.  Blocks that make room are unlinked first.  If all others are being read or written,
 *	the set fails with -ENOSPC.
 *   The owner dies
 *	The kernel drops its lock, and the next process that opens the root becomes the owner.  It
 *	finds temporary files and removes them; published blocks stay.  Death before the rename
 *	leaves a temporary file, after it a whole block, and within an eviction a block that lives
 *	on until the next one.
 *   The power fails
 *	File names may be there without their bytes: such blocks fail their check.  The index that
 *	a clean close leaves is removed, and the removal synced, before the first set: an index that
 *	is found is right.
 *   A disk hangs
 *	Batches end with -ETIMEDOUT.  A thread that waits in the kernel for a path stays there, and
 *	has not been given the caller's memory yet.  See PST_KV_BUSY and PST_KV_BOUNCE for the rest.
 */
#ifndef PENSTOCK_KV_H
#define PENSTOCK_KV_H

#include <penstock.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pst_kv; /* an open store; any thread */

#define PST_KV_DIRS_MAX 64u           /* directories of a store */
#define PST_KV_KEY_MAX 1024u          /* bytes of a key */
#define PST_KV_TEXT_MAX 512u          /* bytes of an identity and of a tenant, each */
#define PST_KV_BLOCK_MAX (1ull << 30) /* bytes of a block */
#define PST_KV_BATCH_MAX 65536u       /* blocks of a batch */
#define PST_KV_SPACES_MAX 4096u       /* spaces of a store */
#define PST_KV_THREADS_MAX 64u        /* threads that do I/O */

/**
 * pst_kv_error_text() - the sentence for the calling thread's last failure of a call below
 *
 * Return: the cause and its cure, "" before the first failure.  Valid until the thread's next call.
 */
PST_API const char *pst_kv_error_text(void);

/* ------------------------------------------------------------- the store */

/* Do not write: get blocks of a root that another process owns.  There is no index; each look-up
 * asks the file system. */
#define PST_KV_READER (1u << 0)
/* fdatasync(2) each block before it gets its name. Without it, blocks that were set within the last
 * seconds before a power loss become misses; none is wrong. */
#define PST_KV_SYNC (1u << 1)
/* Read into memory of the store's own and copy from there what was checked: the caller's memory
 * never holds bytes of a failed get, and no I/O is under way on it after a completion.  Costs a
 * copy. */
#define PST_KV_BOUNCE (1u << 2)

struct pst_kv_opts {
	size_t sz;           /* sizeof(struct pst_kv_opts) */
	uint64_t budget;     /* bytes of all files of the store; at least 1 MiB.  Readers: 0 */
	uint64_t reserve;    /* bytes to leave free on each directory's file system */
	const char *policy;  /* who is evicted: "lru", "arc" or "s3fifo"; NULL: "arc" */
	uint32_t flags;      /* PST_KV_* */
	uint32_t threads;    /* that do I/O, 1 to PST_KV_THREADS_MAX; 0: 4 */
	uint32_t timeout_ms; /* deadline of batches that name none; 0: 30,000 */
	uint32_t touch_s;    /* write the time of a block's last get to its file if that there is
			      * older; recency is as exact as this after a crash; 0: 60 */
};

/**
 * pst_kv_open() - open a store, or make one
 * @dirs:   the root: directories that exist, on one or more disks.  A block is in the one that its
 *          key's hash says.  The same ones in the same order each time.
 * @nr:     1 to PST_KV_DIRS_MAX
 * @opts:   must be given, because of its budget
 * @ret_kv: the store, to be closed with pst_kv_close()
 *
 * Reads the index that pst_kv_close() left.  Where there is none the owner reads the directories,
 * which takes as long as the disks need, and removes temporary files.  Blocks above the budget are
 * evicted.
 *
 * Return: 0; -EINVAL for options out of range and for directories that are not those of the store;
 * -EBUSY when another process owns the root; -ENOTEMPTY for a directory with files that are no
 * store's; -EPROTO for a store of a format that this version does not know; -ENOENT, -ENOTDIR,
 * -EACCES, -ENOSPC and what the file system says else; -ENOMEM, -EMFILE, -EAGAIN.
 */
PST_API int pst_kv_open(const char *const *dirs, unsigned nr, const struct pst_kv_opts *opts,
			struct pst_kv **ret_kv);

/**
 * pst_kv_close() - close a store
 * @kv: the store; no other call on it may be running or follow
 *
 * Batches under way complete with -ECANCELED where they have not begun; the rest ends, at its
 * deadline at the latest. Completions that were not reaped are dropped. The owner writes the index.
 * Where a thread hangs in the kernel, what it needs stays allocated until it returns, no index is
 * written, and this process goes on to own the root.
 *
 * Return: NULL.
 */
PST_API struct pst_kv *pst_kv_close(struct pst_kv *kv);

/* --------------------------------------------------------------- spaces */

/*
 * A name space.  Blocks of two spaces never meet: a get in one never gives a block of the other.
 * The three strings together are the name.
 */
struct pst_kv_space_opts {
	size_t sz; /* sizeof(struct pst_kv_space_opts) */
	/* What makes blocks fit an engine, at least one byte: weights and their revision, layout,
	 * dtype, block size, parallel rank. */
	const char *identity;
	const char *tenant; /* whose blocks; NULL: "" */
	const char *salt;   /* a secret of the tenant: without it no key of the space is found.
			       * Not stored in words.  NULL: "" */
	uint64_t quota;     /* most bytes of this space, at least 1 MiB; 0: the store's budget.
			       * With a quota a space has an eviction policy of its own */
};

/**
 * pst_kv_space() - name a space, and make it if need be
 * @kv:        the store
 * @opts:      its name
 * @ret_space: number of the space, valid until pst_kv_close()
 *
 * May wait for the disk, once for each space.
 *
 * Return: 0; -EINVAL for strings that are too long or a quota that is too small or differs from
 * that which the space has; -ENOSPC for more than PST_KV_SPACES_MAX, and the next open of the store
 * forgets spaces without blocks; what the file system says; -ENOMEM.
 */
PST_API int pst_kv_space(struct pst_kv *kv, const struct pst_kv_space_opts *opts,
			 uint32_t *ret_space);

/**
 * pst_kv_drop() - remove all blocks of a tenant, or of an identity
 * @kv:       the store, not a reader
 * @identity: NULL: of each
 * @tenant:   NULL: of each.  One of the two is given
 *
 * When the call returns none of the blocks is found any more, by any process. Blocks that are being
 * set meanwhile may be found again.
 *
 * Return: how many spaces were emptied; -EROFS for a reader; -EINVAL; what the file system says.
 */
PST_API int pst_kv_drop(struct pst_kv *kv, const char *identity, const char *tenant);

/* -------------------------------------------------------------- batches */

enum pst_kv_op {
	PST_KV_GET = 1,    /* a block into memory.  Result: its bytes */
	PST_KV_SET = 2,    /* a block from memory.  Result: 0 */
	PST_KV_EXISTS = 3, /* Result: its bytes; only the index is asked */
	PST_KV_DELETE = 4, /* Result: 0 */
};

/*
 * One block.  Fixed size; zero what is not used.
 *
 * The block's bytes are in memory from mem_off on, len of them, or where segs says: the pieces in
 * order are the block (file_off and file_stride of pst_seg are not looked at).
 */
struct pst_kv_item {
	const void *key;     /* copied by pst_kv_submit() */
	uint64_t key_len;    /* 1 to PST_KV_KEY_MAX */
	struct pst_mem *mem; /* GET, SET: of any kind; NULL: mem_off is an address */
	uint64_t mem_off;    /* in mem, or an address as pst_mem_wrap() takes it */
	uint64_t len;        /* SET: bytes of the block.  GET: room; a longer block is -EMSGSIZE */
	const struct pst_seg *segs; /* NULL, or pieces, whose sum is len; must stay valid */
	uint64_t nr_segs;
	uint64_t reserved; /* 0 */
};

struct pst_kv_batch {
	size_t sz;                       /* sizeof(struct pst_kv_batch) */
	uint32_t op;                     /* enum pst_kv_op */
	uint32_t space;                  /* of pst_kv_space() */
	const struct pst_kv_item *items; /* copied */
	uint64_t nr;                     /* 1 to PST_KV_BATCH_MAX */
	int64_t *results;                /* one for each item; written before the completion, and
					  * must stay valid until then */
	uint64_t deadline_ns;            /* 0: the store's default; PST_NO_DEADLINE */
	uint64_t user_data;              /* comes back in the completion */
};

/* memory of the batch may still be read (SET) or written (GET) by the kernel: pst_mem_drain() on
 * its pst_mem tells when not, and pst_kv_drain() for memory that was given by its address. Never
 * with PST_KV_BOUNCE and GET. */
#define PST_KV_BUSY (1u << 0)

/* The completion of a batch. */
struct pst_kv_done {
	uint64_t user_data;
	uint64_t bytes; /* of blocks that were moved and are good */
	uint32_t good;  /* results >= 0 */
	uint32_t flags; /* PST_KV_BUSY */
	uint32_t op;    /* enum pst_kv_op */
	int32_t err;    /* the first result < 0 that is no miss, or 0 */
};

/**
 * pst_kv_submit() - start a batch
 * @kv:    the store
 * @batch: what to do
 *
 * Results of blocks, beside those of enum pst_kv_op:
 * -ENOENT there is none (a miss); -EBADMSG the file failed its check, and is removed (a miss);
 * -EMSGSIZE the block is longer than the memory; -ENOSPC no room within budget, quota or reserve;
 * -ETIMEDOUT; -ECANCELED by pst_kv_close(); -EROFS a set or delete of a reader; -EIO and others of
 * the file system; of pst_mem_wrap() and pst_queue_prep().
 *
 * Return: 0, and the batch completes; or, and then it does not: -EINVAL for an unknown op or space,
 * no items or too many, a bad key or length; -E2BIG; -ENOMEM.
 */
PST_API int pst_kv_submit(struct pst_kv *kv, const struct pst_kv_batch *batch);

/**
 * pst_kv_reap() - take completions
 * @kv:          the store
 * @ret:         room for @max
 * @max:         at least 1
 * @deadline_ns: wait for the first one until then; 0 only looks, PST_NO_DEADLINE waits
 *
 * Return: how many, 0 to @max; -EINVAL.
 */
PST_API int pst_kv_reap(struct pst_kv *kv, struct pst_kv_done *ret, unsigned max,
			uint64_t deadline_ns);

/**
 * pst_kv_fd() - a descriptor to sleep on
 * @kv: the store
 *
 * Return: an eventfd, readable (poll, epoll) while there are completions to reap.  Never read or
 * close it.
 */
PST_API int pst_kv_fd(const struct pst_kv *kv);

/**
 * pst_kv_run() - do a batch and wait for it
 * @kv:    the store
 * @batch: as for pst_kv_submit()
 * @ret:   its completion; may be NULL
 *
 * The completion is not among those of pst_kv_reap().
 *
 * Return: 0 or -errno as pst_kv_submit(); the results are the blocks' own.
 */
PST_API int pst_kv_run(struct pst_kv *kv, const struct pst_kv_batch *batch,
		       struct pst_kv_done *ret);

/**
 * pst_kv_lookup() - ask the index, at once
 * @kv:    the store
 * @space: of pst_kv_space()
 * @items: their key and key_len are read
 * @nr:    at least 1
 * @ret:   for each the block's bytes, or -ENOENT
 *
 * Waits for no disk, a reader's call apart.  Does not count as a use of the blocks.
 *
 * Return: how many there are; -EINVAL.
 */
PST_API int64_t pst_kv_lookup(struct pst_kv *kv, uint32_t space, const struct pst_kv_item *items,
			      uint64_t nr, int64_t *ret);

/**
 * pst_kv_drain() - wait until the kernel uses no memory of a completed batch any more
 * @kv:          the store
 * @deadline_ns: when to stop waiting; 0 only looks
 *
 * Return: 0 when quiet, -EBUSY at the deadline.
 */
PST_API int pst_kv_drain(struct pst_kv *kv, uint64_t deadline_ns);

/* -------------------------------------------------------------- numbers */

struct pst_kv_stat {
	size_t sz;            /* sizeof(struct pst_kv_stat) */
	uint64_t budget;      /* bytes */
	uint64_t used;        /* bytes of files, those in flight included; never above budget */
	uint64_t blocks;      /* in the index */
	uint64_t index_bytes; /* memory of the index, what policies remember of evicted blocks
				* included */
	uint64_t gets;        /* blocks asked for */
	uint64_t hits;        /* blocks given */
	uint64_t sets;        /* blocks stored */
	uint64_t set_bytes;   /* bytes of those blocks */
	uint64_t written;     /* bytes written to files for them */
	uint64_t got_bytes;   /* bytes of blocks given */
	uint64_t evicted;     /* blocks */
	uint64_t corrupt;     /* blocks that failed their check */
	uint64_t timeouts;    /* blocks */
	uint64_t errors;      /* blocks: -EIO and such */
	uint64_t no_room;     /* sets: -ENOSPC */
	uint64_t scanned;     /* blocks found by reading directories at open */
	uint64_t loaded;      /* blocks of the index file at open */
};

/**
 * pst_kv_stat() - counters
 * @kv:  the store
 * @ret: filled in
 *
 * Return: 0 or -EINVAL for a bad sz.
 */
PST_API int pst_kv_stat(struct pst_kv *kv, struct pst_kv_stat *ret);

/* What pst_kv_walk() tells of a block. */
struct pst_kv_block {
	size_t sz;            /* sizeof(struct pst_kv_block) */
	const char *identity; /* valid within the call, as all pointers here */
	const char *tenant;
	const char *path; /* of the file */
	const void *key;
	uint64_t key_len;
	uint64_t len;      /* bytes of the block */
	uint64_t used_s;   /* seconds since 1970: last set, or get as touch_s has it */
	int32_t err;       /* 0, or -EBADMSG, -EIO, ...: why it is a miss */
	uint32_t reserved; /* 0 */
};

/**
 * pst_kv_walk() - visit the files of a root
 * @dirs:  as in pst_kv_open(); the root may be open in any process
 * @nr:    how many
 * @check: also read the blocks and check their CRC-32C
 * @fn:    called for each block; another value than 0 ends the walk and is the result
 * @arg:   passed on
 *
 * Return: 0, what @fn returned, or -errno as pst_kv_open().
 */
PST_API int pst_kv_walk(const char *const *dirs, unsigned nr, int check,
			int (*fn)(void *arg, const struct pst_kv_block *block), void *arg);

#ifdef __cplusplus
}
#endif
#endif
