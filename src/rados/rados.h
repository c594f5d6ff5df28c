/* SPDX-License-Identifier: MIT */
/*
 * Objects of Ceph as files: rados://POOL/OBJECT.  A module, libpenstock-rados.so, which loads
 * librados at run time.
 *
 * An operation is split into pieces at the borders of objects, and up to PIECES_MAX of them are in
 * flight.  flush() starts them by rados_aio_*_op_operate(), and threads of librados call
 * rados_done() in io.c, which starts more or ends the operation through the inbox of its I/O
 * context.  There is no thread of ours.
 *
 * Memory of a request.  librados receives into memory of its own, and copies into the request's
 * memory before it calls rados_done().  A request that is canceled, as it is at its deadline, ends
 * only when each of its pieces has called rados_done(): rados_aio_cancel() takes a piece out of
 * librados' table of operations, so that a late answer of an OSD is dropped, and then calls it with
 * -ECANCELED.  That needs no answer of an OSD, so deadlines hold while OSDs hang.  A canceled write
 * may have been, or may yet be, carried out.  librados cannot survive memory that the program has
 * unmapped, so the kernel is asked before the start whether the memory is there.
 *
 * No torn reads.  One operation of RADOS is atomic, and gives the version of its object.  The open
 * remembers the version of the only object, or of the first one of a striped file; reads of that
 * object demand it.  An operation that took bytes from other objects demands it once more after
 * they have come (head.c), which finds all that a writer changes who opened after: who writes a
 * striped file changes its first object before others.  libradosstriper does so by its lock, and we
 * do by writing an attribute of it at open, sync, truncate and unlink.  What a writer that was open
 * already changes inside the size, in other objects than the first, changes that version only at
 * its next sync.  So a reader also notes the version of each object that it reads, and finds that
 * one is written between two of its reads, or two pieces of one (seen.h).  An object that it reads
 * for the first time may be newer than those that it has read.  Files that are open for writing
 * are not guarded.
 *
 * Bounds, for a process: BUDGET_BYTES of pieces in flight, and BUDGET_PIECES.
 */
#ifndef PST_RADOS_H
#define PST_RADOS_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"
#include "base/err.h"
#include "file/io.h"
#include "rados/layout.h"
#include "rados/seen.h"

#define PIECES_MAX 16u
#define PIECE_READ MIB(1)    /* larger pieces read slower: the copies of several overlap */
#define PIECE_WRITE MIB(4)   /* each write has a cost of its own at the OSDs */
#define BUDGET_BYTES MIB(64) /* librados holds as many in its own memory */
#define BUDGET_PIECES 1024u
#define LIB_CONNECT_S 30           /* seconds, for the monitors */
#define LIB_LIST_S 60              /* seconds, for one operation of a listing */
#define ASK_NS (60 * NSEC_PER_SEC) /* for an operation of open, stat and the like */
#define HEAD_TRIES_MAX 100u        /* to set a size that other writers set, too */
#define ASK_TRIES_MAX 100u         /* to cut a file that other writers change */

struct task;

/* What the first object tells of a file. */
struct facts {
	struct layout layout; /* all zero: one object */
	uint64_t size, version;
	time_t mtime;
	/* striper.size and striper.layout.object_size as they are written there. */
	char size_text[24], object_size_text[24];
};

struct rados_file;

/* The first object of a striped file: requests wait here for it to be checked, or for the size that
 * they made to be written (head.c). */
struct head {
	pthread_mutex_t lock; /* covers all members */
	pthread_cond_t idle;
	bool busy;                      /* an operation is in flight */
	struct task *waiting, *covered; /* for the next operation; by the one in flight */
	bool closing;
	uint64_t want;  /* size that the covered tasks have made */
	uint64_t made;  /* size that the operation writes */
	uint64_t there; /* size that the attribute has, as far as is known */
	char text[24];  /* the same, as it is written there */
	unsigned tries;
	/* Of the operation. */
	void *completion, *read, *write, *iter;
	int result;
	uint64_t size;
	time_t mtime;
};

struct rados_file {
	struct file file; /* first */
	char *shown;      /* for sentences */
	const char *object;
	void *io;
	struct layout layout;
	bool guard;       /* reads demand the version */
	uint64_t version; /* of the first object, at the open */
	struct seen seen; /* of the others; unused without guard, or of one object */
	_Atomic uint64_t size;
	_Atomic bool wrote; /* since the last sync */
	/* The end of what was written since then inside the size, which may have been cut. */
	_Atomic uint64_t inside;
	struct head head;
};

static inline struct rados_file *rados_file_of(const struct file *f)
{
	return container_of((struct file *)(uintptr_t)f, struct rados_file, file);
}

extern const struct io_backend rados_backend;
extern const struct file_ops rados_file_ops;
extern const struct names_ops rados_names_ops;

/* ------------------------------------------------------------------ io.c */

/* An operation of an I/O context. */
struct piece {
	struct task *task;
	void *completion, *op; /* NULL: never used */
	bool running;
	bool first;      /* in the first object */
	uint64_t object; /* the number of its object */
	char *buf;
	uint64_t len;
	size_t got;
	int result;
};

enum task_stage {
	TASK_PIECES,
	TASK_HEAD, /* in a list of the file's head */
	TASK_ENDED,
};

struct task {
	_Atomic unsigned refs;
	pthread_mutex_t lock; /* covers what follows, but for next */
	struct io_op *op;     /* the task's until TASK_ENDED */
	uint8_t kind;         /* enum io_op_kind */
	struct rados_ctx *ctx;
	struct rados_file *file;
	enum task_stage stage;
	uint64_t at, end; /* the next piece begins at at */
	uint64_t reach;   /* the size that its head makes, at least */
	unsigned nr_running;
	int err;
	bool elsewhere; /* bytes came from other objects than the first */
	struct piece pieces[PIECES_MAX];
	struct task *next; /* of a list of the head, under its lock */
	/* Under the lock of the budget. */
	struct task *next_waiting;
	bool waits;
	uint64_t need;
};

/* head.c: the task is over; err is 0 or -errno.  No lock is held. */
void task_head_done(struct task *t, int err);

/* ---------------------------------------------------------------- head.c */

void head_init(struct rados_file *f, const struct facts *facts);
/* Wait until nothing is in flight. */
void head_done(struct rados_file *f);
/* Check the version, or write the size, for a task; task_head_done() follows. */
void head_add(struct rados_file *f, struct task *t);
/* Take a task out.  Return false if task_head_done() is called, or was. */
bool head_remove(struct rados_file *f, struct task *t);

/* ----------------------------------------------------------------- ask.c */

/* One operation that the caller waits for. */
struct ask {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool ended;
	uint64_t until; /* its deadline */
	void *io, *completion;
	void *read, *write; /* operations of librados; free one with the ask */
	int result;         /* of reads: of their parts */
	void *iter;
};

/* Prepare: fill in read or write of it next.  0 or -ENOMEM with a sentence. */
int rados_ask_begin(struct ask *a, void *io, bool write);
/* Start it, with rados_ask_wait() to follow. */
void rados_ask_start(struct ask *a, const char *object);
/* Wait for its end, until ASK_NS after its start.  0 or the -errno of librados, without a
 * sentence. */
int rados_ask_wait(struct ask *a);
/* Both. */
int rados_ask_run(struct ask *a, const char *object);

/* Get facts about a file: of its first object if it is striped, else of its only one.  0; -ENOENT;
 * -errno with a sentence. */
int rados_ask_facts(void *io, const char *object, const char *shown, struct facts *ret);
/* Parse the attributes of a first object.  False: it is not one. */
bool facts_parse(void *iter, struct facts *ret);

/*
 * All three get the facts anew, and try again, if another writer has changed what they rest on.
 * -EBUSY: it happens all the time.  0 or -errno with a sentence.
 */

/* Change the version of a file, and nothing else. */
int rados_ask_touch(void *io, const char *object, const char *shown, struct facts *facts);
/* Set the size of a file. */
int rados_ask_truncate(void *io, const char *object, const char *shown, struct facts *facts,
		       uint64_t size);
/* Remove a file. */
int rados_ask_remove(void *io, const char *object, const char *shown, struct facts *facts);

/* --------------------------------------------------------------- names.c */

/* Split rados://POOL/OBJECT.  *ret_object is part of name; "": the pool itself. */
int name_split(const char *name, char pool[256], const char **ret_object);

#endif
