/* SPDX-License-Identifier: MIT */
/*
 * libpenstock-kv - keep blocks of KV cache (keys and values of inference engines) on disks.
 *
 * A store holds immutable blocks by key, within a byte budget.  A store answers each batch by
 * its deadline and never returns wrong bytes.  docs/KV.md explains the format.
 *
 * The rules of <penstock.h> hold here too.  In addition:
 *
 *   - Any thread may make any call at any time, except pst_kv_close().
 *   - Threads of the store do all I/O that may wait for a disk.  pst_kv_submit() never waits for
 *     one, and pst_kv_run() reads blocks that are in memory on the calling thread.
 *   - Every submitted batch completes exactly once, within 200 ms after its deadline.  Each block
 *     of a batch has its own result.
 *   - The store is a cache: any block may disappear, and a block that cannot be read is a miss.
 *     A get returns the bytes that were set with that key in that space, or none.
 *
 * A block is a file: the bytes, followed by a trailer with key, space, length, the CRC-32C of the
 * bytes and the CRC-32C of the trailer.  A set writes to a temporary name and renames the file.
 * Without PST_KV_SYNC nothing is synced: a block that a power loss truncated fails its check and
 * is a miss.
 *
 * Special cases:
 *
 *   A block is evicted, deleted or set again while it is read
 *	The read continues with the file that it opened, and returns the whole old block.  The
 *	bytes of that file count against the budget until the read ends.
 *   Two sets of one process use the same key at once
 *	Each writes its own file, and the file that is renamed last stays.  The budget counts both
 *	files while both exist.
 *   Two processes set the same key
 *	Only one process at a time may write to a root: the owner, which holds a lock on the root.
 *	Other processes open the root with PST_KV_READER, which allows gets only.  The owner
 *	renames files, so a reader sees the old block or the new one.
 *   Writes in flight and the budget
 *	A set reserves its bytes, rounded up to 4 KiB, before it creates the file.  Evicted blocks
 *	are unlinked first.  The set fails with -ENOSPC if all other blocks are being read or
 *	written.
 *   The owner dies
 *	The kernel releases the lock, and the next process that opens the root becomes the owner
 *	and removes temporary files.  Renamed blocks stay.  A block whose eviction was interrupted
 *	stays until it is evicted again.
 *   The power fails
 *	A file name may exist without its bytes: such a block fails its check.  An index that is
 *	found is valid, because the index of a clean close is removed, and the removal synced,
 *	before the first set.
 *   A disk hangs
 *	Batches end with -ETIMEDOUT.  A thread that hangs in the kernel while it looks up a path
 *	does not use the caller's memory yet.  PST_KV_BUSY and PST_KV_BOUNCE explain what
 *	happens later.
 *
 * A remote root: several hosts share one store if they open a server's name instead of directories.
 * The server is `penstock serve --kv DIR`, which owns the store.  All calls work as above, except:
 *
 *   Budget, reserve, policy and quotas
 *	The server sets them: a client gives 0 or NULL.  pst_kv_drop() and PST_KV_SYNC work only
 *	on the server.
 *   Lookups
 *	The client has no index, so each lookup asks the server.
 *   The server ends or hangs, or the network fails
 *	Gets and lookups find no block: the result is -ECONNREFUSED or another -errno of the
 *	connection, or -ETIMEDOUT at the deadline.  Once the server is back, the next batch
 *	connects again, and blocks that were set before are found again.
 *   A block is evicted or set again while a client reads it
 *	The get is a miss: the server truncates the file, so that its bytes are free at once.
 *   Checks
 *	The client computes the CRC-32C that is stored with a block, and checks the bytes of a get
 *	before it copies them to the caller's memory, as with PST_KV_BOUNCE.
 *   Tenants
 *	A server with keys (psts://) gives each key its own tenant, which is the key's name: tenant
 *	must be "" or that name.  Otherwise the client names tenant and salt, and without both a
 *	client finds no block.
 */
#ifndef PENSTOCK_KV_H
#define PENSTOCK_KV_H

#include <penstock.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pst_kv; /* an open store; any thread */

/* Limits: each is the largest number that the store accepts. */
#define PST_KV_DIRS_MAX 64u            /* directories of a store */
#define PST_KV_KEY_MAX 1024u           /* bytes of a key */
#define PST_KV_TEXT_MAX 512u           /* bytes of an identity, and of a tenant */
#define PST_KV_BLOCK_MAX (1ull << 30)  /* bytes of a block */
#define PST_KV_BATCH_MAX 65536u        /* blocks of a batch */
#define PST_KV_SPACES_MAX 4096u        /* spaces of a store */
#define PST_KV_THREADS_MAX 64u         /* threads that do I/O */
#define PST_KV_BLOCKS_MAX (1ull << 30) /* blocks of a store */
#define PST_KV_BLOCKS_MIN 16u          /* smallest max_blocks of a store */
/* Bytes of the index for each of max_blocks, if spaces have quotas. */
#define PST_KV_INDEX_BYTES 160u

/**
 * pst_kv_error_text() - return the sentence for the calling thread's last failure of a pst_kv call
 *
 * Return: cause and cure, valid until the thread's next call; "" before the first failure.
 */
PST_API const char *pst_kv_error_text(void);

/* ------------------------------------------------------------- the store */

/* Only get blocks, of a root that another process owns.  A reader has no index: each lookup asks
 * the file system. */
#define PST_KV_READER (1u << 0)
/* Call fdatasync(2) on each block before the rename.  Without this flag, blocks that were set in
 * the last seconds before a power loss become misses; none is wrong. */
#define PST_KV_SYNC (1u << 1)
/* Read into memory of the store, check the bytes, and copy them.  The caller's memory then never
 * holds bytes of a failed get, and no I/O uses it after a completion.  This costs a copy. */
#define PST_KV_BOUNCE (1u << 2)

struct pst_kv_opts {
	size_t sz;           /* sizeof(struct pst_kv_opts) */
	uint64_t budget;     /* bytes of all files of the store, at least 1 MiB; 0 for a reader and
			      * for a remote root */
	uint64_t reserve;    /* bytes to leave free on each directory's file system */
	const char *policy;  /* eviction policy: "lru", "arc" or "s3fifo"; NULL: "arc" */
	uint32_t flags;      /* PST_KV_READER, PST_KV_SYNC, PST_KV_BOUNCE */
	uint32_t threads;    /* threads that do I/O, 1 to PST_KV_THREADS_MAX; 0: 4 */
	uint32_t timeout_ms; /* time limit of batches without a deadline, ms; 0: 30,000 */
	uint32_t touch_s;    /* A get updates the time of a block's file if that time is older
			      * than this, in seconds. The order of eviction after a crash
			      * follows from these times. 0: 60. */
	/* Maximum blocks of the store, those in flight included: PST_KV_BLOCKS_MIN to
	 * PST_KV_BLOCKS_MAX.  Bounds the memory and the inodes that the store uses.  If the store
	 * has that many blocks, a set evicts one.  The index takes at most 80 bytes of memory for
	 * each, or PST_KV_INDEX_BYTES if spaces have quotas.  0: one for each 64 KiB of budget, at
	 * least 65,536.  0 for a reader and for a remote root. */
	uint64_t max_blocks;
};

/**
 * pst_kv_open() - open or create a store
 * @dirs:   the root: existing directories, on one or more disks, always the same ones in the same
 *          order.  The hash of a block's key decides its directory.  Or a remote root, by one
 *          name: pst://HOST:PORT, psts://[KEY@]HOST:PORT or pst+unix://SOCKET:
 * @nr:     number of directories, 1 to PST_KV_DIRS_MAX; 1 for a remote root
 * @opts:   the options; budget must be set, unless the root is remote
 * @ret_kv: the store, to be closed with pst_kv_close()
 *
 * Reads the index that pst_kv_close() wrote.  Without an index the owner reads the directories,
 * which takes as long as the disks need, and removes temporary files.  Evicts blocks above the
 * budget.  For a remote root, connects once to check that the server answers.
 *
 * Return: 0; -EINVAL for options out of range, or directories that do not belong to the store;
 * -EBUSY if another process owns the root; -ENOTEMPTY for a directory with foreign files; -EPROTO
 * for a format that this version does not know; -ENOENT, -ENOTDIR, -EACCES, -ENOSPC or another
 * -errno of the file system or of the connection; -ENOMEM, -EMFILE, -EAGAIN.
 */
PST_API int pst_kv_open(const char *const *dirs, unsigned nr, const struct pst_kv_opts *opts,
			struct pst_kv **ret_kv);

/**
 * pst_kv_close() - close a store
 * @kv: the store; no other call on it may run or follow
 *
 * Cancels blocks that have not begun (-ECANCELED), waits for the others until their deadline, drops
 * completions and, as the owner, writes the index.  If a thread hangs in the kernel, its memory
 * stays allocated until the thread returns, no index is written, and this process still owns the
 * root.
 *
 * Return: NULL.
 */
PST_API struct pst_kv *pst_kv_close(struct pst_kv *kv);

/* --------------------------------------------------------------- spaces */

/*
 * A space: a set of keys.  A get in one space never returns a block of another.  The three strings
 * together are the name of the space.
 */
struct pst_kv_space_opts {
	size_t sz; /* sizeof(struct pst_kv_space_opts) */
	/* Everything that must agree before an engine can use a block: weights and their revision,
	 * layout, dtype, block size, parallel rank.  At least one byte. */
	const char *identity;
	/* The owner of the blocks.  NULL: "". */
	const char *tenant;
	/* A secret of the tenant, without which no key of the space is found.  Only its hash is
	 * stored.  NULL: "". */
	const char *salt;
	/* Maximum bytes of this space; the smallest is 1 MiB; 0: the store's budget.  A space with
	 * a quota evicts its own blocks. */
	uint64_t quota;
};

/**
 * pst_kv_space() - open or create a space
 * @kv:        the store
 * @opts:      the name of the space
 * @ret_space: number of the space, valid until pst_kv_close()
 *
 * May wait for the disk, once for each space.
 *
 * Return: 0; -EINVAL for strings that are too long, or a quota that is too small, differs from that
 * of the space, or is given for a remote root; -ENAMETOOLONG for a salt that is too long for a
 * remote root; -ENOSPC for more than PST_KV_SPACES_MAX spaces (reopen the store to remove spaces
 * without blocks); -errno of the file system; -ENOMEM.
 */
PST_API int pst_kv_space(struct pst_kv *kv, const struct pst_kv_space_opts *opts,
			 uint32_t *ret_space);

/**
 * pst_kv_drop() - remove all blocks of a tenant, or of an identity
 * @kv:       the store, not a reader
 * @identity: the identity, or NULL for every identity; not both may be NULL
 * @tenant:   the tenant, or NULL for every tenant
 *
 * After the call no process finds any of the blocks.  A set during the call may survive.
 *
 * Return: number of spaces that were emptied; -EROFS for a reader or a remote root; -EINVAL; -errno
 * of the file system.
 */
PST_API int pst_kv_drop(struct pst_kv *kv, const char *identity, const char *tenant);

/* -------------------------------------------------------------- batches */

enum pst_kv_op {
	PST_KV_GET = 1,    /* read a block into memory; the result is its length */
	PST_KV_SET = 2,    /* write a block from memory; the result is 0 */
	PST_KV_EXISTS = 3, /* look the block up in the index; the result is its length */
	PST_KV_DELETE = 4, /* delete the block; the result is 0 */
};

/*
 * One block of a batch.  Fixed size; zero unused members.
 *
 * The block's bytes are len bytes of memory from mem_off on.  With segs, the bytes are the pieces
 * of segs in their order, whose file_off and file_stride are ignored.
 */
struct pst_kv_item {
	const void *key;     /* copied by pst_kv_submit() */
	uint64_t key_len;    /* 1 to PST_KV_KEY_MAX */
	struct pst_mem *mem; /* for GET and SET, of any kind; NULL: mem_off is an address */
	/* First byte in mem, or an address as pst_mem_wrap() takes it.  Host memory must stay
	 * mapped and readable until the completion: the store computes the CRC-32C there.  For
	 * memory of a device, the device computes it there, if it can. */
	uint64_t mem_off;
	uint64_t len;               /* SET: bytes of the block. GET: room; -EMSGSIZE if too small */
	const struct pst_seg *segs; /* pieces whose sum is len, valid until completion; or NULL */
	uint64_t nr_segs;           /* number of segs; 0 if segs is NULL */
	uint64_t reserved;          /* 0 */
};

struct pst_kv_batch {
	size_t sz;                       /* sizeof(struct pst_kv_batch) */
	uint32_t op;                     /* enum pst_kv_op */
	uint32_t space;                  /* as pst_kv_space() returned it */
	const struct pst_kv_item *items; /* copied by pst_kv_submit() */
	uint64_t nr;                     /* number of items, 1 to PST_KV_BATCH_MAX */
	int64_t *results;                /* one for each item, written before the completion; must
					  * stay valid until then */
	uint64_t deadline_ns;            /* 0: the store's default; PST_NO_DEADLINE: none */
	uint64_t user_data;              /* returned in the completion */
};

/* The kernel may still read (SET) or write (GET) memory of the batch.  Wait for the kernel with
 * pst_mem_drain() on the pst_mem, or with pst_kv_drain() if the item gave an address.  Gets with
 * PST_KV_BOUNCE never have this flag. */
#define PST_KV_BUSY (1u << 0)

/* The completion of a batch. */
struct pst_kv_done {
	uint64_t user_data; /* user_data of the batch */
	uint64_t bytes;     /* bytes of blocks with a result >= 0 */
	uint32_t good;      /* number of results >= 0 */
	uint32_t flags;     /* PST_KV_BUSY */
	uint32_t op;        /* enum pst_kv_op */
	int32_t err;        /* the first result < 0 that is not a miss, or 0 */
};

/**
 * pst_kv_submit() - start a batch
 * @kv:    the store
 * @batch: the batch
 *
 * Each block has a result: that of enum pst_kv_op, or -ENOENT (no such block, a miss), -EBADMSG
 * (the file failed its check and was removed, a miss), -EMSGSIZE (the block is longer than the
 * memory), -ENOSPC (no room within budget, quota or reserve), -ETIMEDOUT, -ECANCELED (by
 * pst_kv_close()), -EROFS (a set or delete of a reader), or an -errno of the file system, of
 * pst_mem_wrap() or of pst_queue_prep().
 *
 * Return: 0, and the batch completes later; after an error it does not complete: -EINVAL for an
 * unknown op or space, no items or too many, or a bad key or length; -E2BIG; -ENOMEM.
 */
PST_API int pst_kv_submit(struct pst_kv *kv, const struct pst_kv_batch *batch);

/**
 * pst_kv_reap() - take completions
 * @kv:          the store
 * @ret:         room for @max completions
 * @max:         at least 1
 * @deadline_ns: when to stop waiting for the first one; 0 does not wait, PST_NO_DEADLINE waits
 *               without limit
 *
 * Return: number of completions, 0 to @max; -EINVAL.
 */
PST_API int pst_kv_reap(struct pst_kv *kv, struct pst_kv_done *ret, unsigned max,
			uint64_t deadline_ns);

/**
 * pst_kv_fd() - return a descriptor for an event loop
 * @kv: the store
 *
 * Return: an eventfd, readable (poll, epoll) while there are completions to reap.  Never read or
 * close it.
 */
PST_API int pst_kv_fd(const struct pst_kv *kv);

/**
 * pst_kv_run() - submit a batch and wait for it
 * @kv:    the store
 * @batch: as for pst_kv_submit()
 * @ret:   its completion, which pst_kv_reap() does not return; may be NULL
 *
 * Return: 0 or -errno as pst_kv_submit(); batch->results has the result of each block.
 */
PST_API int pst_kv_run(struct pst_kv *kv, const struct pst_kv_batch *batch,
		       struct pst_kv_done *ret);

/**
 * pst_kv_lookup() - look blocks up in the index
 * @kv:    the store
 * @space: as pst_kv_space() returned it
 * @items: the blocks; only key and key_len are read
 * @nr:    number of items, at least 1
 * @ret:   for each item the block's length, or -ENOENT
 *
 * Does not wait for a disk, unless the store is a reader's or its root is remote.  Does not count
 * as a use of the blocks.
 *
 * Return: number of blocks that exist; -EINVAL.
 */
PST_API int64_t pst_kv_lookup(struct pst_kv *kv, uint32_t space, const struct pst_kv_item *items,
			      uint64_t nr, int64_t *ret);

/**
 * pst_kv_drain() - wait until the kernel uses no memory of completed batches
 * @kv:          the store
 * @deadline_ns: when to stop waiting; 0 does not wait
 *
 * Return: 0; -EBUSY if memory is still in use at the deadline.
 */
PST_API int pst_kv_drain(struct pst_kv *kv, uint64_t deadline_ns);

/* --------------------------------------------------------------- events */

struct pst_kv_events; /* a queue of events; one thread at a time */

#define PST_KV_EVENTS_MAX 16u               /* queues of a store */
#define PST_KV_EVENTS_BYTES_MIN (64u << 10) /* least bytes of memory of a queue */
#define PST_KV_EVENTS_BYTES_MAX (1ull << 30)
#define PST_KV_ANY_SPACE UINT32_MAX /* events of all spaces */

struct pst_kv_events_opts {
	size_t sz;         /* sizeof(struct pst_kv_events_opts) */
	uint64_t bytes;    /* memory for events, 64 KiB to 1 GiB; 0: 1 MiB */
	uint32_t space;    /* as pst_kv_space() returned it, or PST_KV_ANY_SPACE */
	uint32_t reserved; /* 0 */
};

enum pst_kv_event_type {
	PST_KV_STORED = 1, /* the block was stored, for the first time or again */
	PST_KV_REMOVED =
		2, /* the block was evicted or deleted, or its file is damaged or missing */
	PST_KV_DROPPED = 3, /* all blocks of the space were removed by pst_kv_drop(); has no key */
};

/* An event.  Fixed size. */
struct pst_kv_event {
	/* Number of the event in its queue, from 1.  Lost events have numbers, too. */
	uint64_t nr;
	const void *key;  /* valid until the next call with that queue */
	uint64_t key_len; /* bytes of the key; 0 for PST_KV_DROPPED */
	uint64_t len;     /* PST_KV_STORED: bytes of the block */
	uint32_t space;   /* as pst_kv_space() returns it */
	uint32_t type;    /* enum pst_kv_event_type */
};

/**
 * pst_kv_events_new() - queue the changes of a store from now on
 * @kv:   the store, of which this process is the owner
 * @opts: memory of the queue, and which space
 * @ret:  the queue, to be freed with pst_kv_events_free() before the store is closed
 *
 * Events of one block are in the order of its changes.  If the queue is full, or if the key of an
 * evicted block cannot be read from its file, that event is lost, and so are all later ones until
 * the reader has taken the events before them.
 *
 * All changes of a store are changes of its owner, so the queue has the changes of every process,
 * including the clients of a served store, which is owned by its server.  Files that another
 * program changes or removes are found by the next get, and are events then.  A reader and a client
 * have no events.
 *
 * While there is a queue, each eviction reads the block's key from its file.
 *
 * Return: 0; -EOPNOTSUPP for a reader or a remote root; -EINVAL; -ENOSPC for more than
 * PST_KV_EVENTS_MAX queues; -ENOMEM.
 */
PST_API int pst_kv_events_new(struct pst_kv *kv, const struct pst_kv_events_opts *opts,
			      struct pst_kv_events **ret);

/**
 * pst_kv_events_free() - free a queue of events
 * @events: the queue, or NULL
 *
 * Return: NULL.
 */
PST_API struct pst_kv_events *pst_kv_events_free(struct pst_kv_events *events);

/**
 * pst_kv_events_take() - take the oldest events of a queue
 * @events:      the queue
 * @ret:         room for @max events
 * @max:         at least 1
 * @deadline_ns: when to stop waiting for the first one; 0 does not wait, PST_NO_DEADLINE waits
 *               without limit
 * @ret_lost:    number of events that were lost so far, before those of this call; may be NULL
 *
 * If the number of lost events has grown, first look all blocks up again (pst_kv_lookup(),
 * pst_kv_walk()), then continue with the events of this call.  Each event says what is true after
 * it, so events that are older than the look-up do no harm.  The call does not wait if the number
 * of lost events grows.
 *
 * Return: number of events, 0 to @max; -EINVAL.
 */
PST_API int pst_kv_events_take(struct pst_kv_events *events, struct pst_kv_event *ret, unsigned max,
			       uint64_t deadline_ns, uint64_t *ret_lost);

/* -------------------------------------------------------------- numbers */

struct pst_kv_stat {
	size_t sz;            /* sizeof(struct pst_kv_stat) */
	uint64_t budget;      /* The store's budget in bytes.  For a reader, budget and max_blocks
			       * are those of the process that last opened the store as its
			       * owner. */
	uint64_t used;        /* bytes of files, including those in flight; at most budget */
	uint64_t blocks;      /* blocks in the index */
	uint64_t index_bytes; /* memory of the index, including the history of evicted blocks */
	uint64_t gets;        /* blocks that PST_KV_GET asked for */
	uint64_t hits;        /* blocks that PST_KV_GET returned */
	uint64_t sets;        /* blocks that were stored */
	uint64_t set_bytes;   /* bytes of the blocks that were stored */
	uint64_t written;     /* bytes written to files for stored blocks */
	uint64_t got_bytes;   /* bytes of the blocks that PST_KV_GET returned */
	uint64_t evicted;     /* blocks that were evicted */
	uint64_t corrupt;     /* blocks that failed their check */
	uint64_t timeouts;    /* blocks that ended with -ETIMEDOUT */
	uint64_t errors;      /* blocks that ended with another error */
	uint64_t no_room;     /* sets that ended with -ENOSPC */
	uint64_t scanned;     /* blocks that pst_kv_open() found in the directories */
	uint64_t loaded;      /* blocks that pst_kv_open() read from the index file */
	uint64_t max_blocks;  /* limit of blocks; see pst_kv_opts.max_blocks */
	uint64_t removed;     /* blocks that were deleted or dropped */
	uint64_t events_lost; /* events that did not fit into a queue, or whose key was not known */
};

/**
 * pst_kv_stat() - return counters
 * @kv:  the store
 * @ret: filled in
 *
 * Return: 0 or -EINVAL for a bad sz.
 */
PST_API int pst_kv_stat(struct pst_kv *kv, struct pst_kv_stat *ret);

/* A block that pst_kv_walk() visits.  All pointers are valid only within the callback. */
struct pst_kv_block {
	size_t sz;            /* sizeof(struct pst_kv_block) */
	const char *identity; /* identity of the block's space */
	const char *tenant;   /* tenant of the block's space */
	const char *path;     /* path of the block's file */
	const void *key;      /* the block's key */
	uint64_t key_len;     /* bytes of key */
	uint64_t len;         /* bytes of the block */
	uint64_t used_s;      /* time of the last set or get, seconds since 1970; gets update it
			       * at most every touch_s */
	int32_t err;          /* 0, or why a get would miss: -EBADMSG, -EIO, ... */
	uint32_t reserved;    /* 0 */
};

/**
 * pst_kv_walk() - visit the files of a root
 * @dirs:  as in pst_kv_open(); the root may be open in any process
 * @nr:    number of directories
 * @check: not 0: also read the blocks and check their CRC-32C
 * @fn:    called for each block; a result other than 0 ends the walk and is returned
 * @arg:   passed to @fn
 *
 * Return: 0, what @fn returned, or -errno as pst_kv_open().
 */
PST_API int pst_kv_walk(const char *const *dirs, unsigned nr, int check,
			int (*fn)(void *arg, const struct pst_kv_block *block), void *arg);

#ifdef __cplusplus
}
#endif
#endif
