/* SPDX-License-Identifier: MIT */
/*
 * Objects of Ceph as files: rados://POOL/OBJECT. A module, libpenstock-rados.so, which loads
 * librados at run time.
 *
 * An operation is split into pieces at object borders, and up to PIECES_MAX pieces are in flight.
 * flush() starts them with rados_aio_*_op_operate(); threads of librados call rados_done() in io.c,
 * which starts more pieces, or completes the operation through the inbox of its I/O context.  This
 * module has no threads of its own.
 *
 * Memory of a request.  librados receives into its own memory, and copies into the request's memory
 * before it calls rados_done(). A canceled request (also one past its deadline) ends only when
 * rados_done() was called for each of its pieces.  rados_aio_cancel() removes a piece from
 * librados' table of operations, so that a late answer is dropped, and then calls rados_done() with
 * -ECANCELED. No answer of an OSD is needed, so deadlines hold while OSDs hang.  A canceled write
 * may still be carried out.  librados would crash if the program had unmapped the memory, so the
 * kernel is asked before the start whether the memory is mapped.
 *
 * No torn reads.  One operation of RADOS is atomic, and returns the version of its object.  The
 * open remembers the version of the only object, or of the first object of a striped file, and
 * reads of that object demand this version.  An operation that took bytes from other objects
 * demands the version once more after the bytes have arrived (head.c). This detects every writer
 * that opened the file later, because a writer of a striped file changes the first object before
 * others: libradosstriper by its lock, and this module by writing an attribute at open, sync,
 * truncate and unlink.  A writer that had the file open before may change other objects inside the
 * file's size, and then changes the version of the first object only at its next sync.  So a reader
 * also records the version of each object that it reads, and detects that an object was written
 * between two of its reads, or between two pieces of one read (seen.h). An object that is read for
 * the first time may be newer than those read before.  Files that are open for writing are not
 * guarded.
 *
 * Limits per process: BUDGET_BYTES and BUDGET_PIECES in flight.
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
#define PIECE_READ MIB(1)    /* bytes; larger pieces read slower, because copies overlap less */
#define PIECE_WRITE MIB(4)   /* bytes; each write has a fixed cost at the OSDs */
#define BUDGET_BYTES MIB(64) /* bytes; librados buffers all bytes in flight */
#define BUDGET_PIECES 1024u
#define LIB_CONNECT_S 30           /* seconds, for the monitors */
#define LIB_LIST_S 60              /* seconds, for one operation of a listing */
#define ASK_NS (60 * NSEC_PER_SEC) /* time limit of one operation of open, stat and the like */
#define HEAD_TRIES_MAX 100u        /* attempts to set a size that other writers also set */
#define ASK_TRIES_MAX 100u         /* attempts to cut a file that other writers change */

struct task;

/* Facts about a file, from its first object. */
struct facts {
	struct layout layout; /* all zero: one object */
	uint64_t size, version;
	time_t mtime;
	/* Text of the attributes striper.size and striper.layout.object_size. */
	char size_text[24], object_size_text[24];
};

struct rados_file;

/* The first object of a striped file.  Requests wait here for its check, or for their new size to
 * be written (head.c). */
struct head {
	pthread_mutex_t lock; /* covers all members */
	pthread_cond_t idle;
	bool busy;                      /* an operation is in flight */
	struct task *waiting, *covered; /* waiting: tasks for the next operation; covered: tasks
					 * of the one in flight */
	bool closing;
	uint64_t want;  /* bytes: size that the covered tasks reach */
	uint64_t made;  /* bytes: size that the operation writes */
	uint64_t there; /* bytes: last known value of striper.size */
	char text[24];  /* the value of there as text */
	unsigned tries;
	/* Objects of the operation in flight. */
	void *completion, *read, *write, *iter;
	int result;
	uint64_t size;
	time_t mtime;
};

struct rados_file {
	struct file file; /* must be the first member */
	char *shown;      /* name for sentences */
	const char *object;
	void *io;
	struct layout layout;
	bool guard;       /* reads demand the version */
	uint64_t version; /* version of the first object at the open */
	struct seen seen; /* versions of other objects; unused without guard or if single */
	_Atomic uint64_t size;
	_Atomic bool wrote; /* there were writes since the last sync */
	/* End, in bytes, of writes since the last sync that did not grow the file; another program
	 * may have truncated it. */
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

/* A part of an operation, within one object. */
struct piece {
	struct task *task;
	void *completion, *op; /* NULL: never used */
	bool running;
	bool first;      /* the piece is in the first object */
	uint64_t object; /* the number of the piece's object */
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
	pthread_mutex_t lock; /* covers all members below except next */
	struct io_op *op;     /* owned by the task until TASK_ENDED */
	uint8_t kind;         /* enum io_op_kind */
	struct rados_ctx *ctx;
	struct rados_file *file;
	enum task_stage stage;
	uint64_t at, end; /* bytes; at: where the next piece begins; end: end of the operation */
	uint64_t reach;   /* smallest size that the head must write */
	unsigned nr_running;
	int err;
	bool elsewhere; /* some bytes came from other objects than the first */
	struct piece pieces[PIECES_MAX];
	struct task *next; /* in a list of the head, under the head's lock */
	/* Covered by the lock of the budget. */
	struct task *next_waiting;
	bool waits;
	uint64_t need;
};

/* End a task after its stage in head.c; err is 0 or -errno.  No lock is held. */
void task_head_done(struct task *t, int err);

/* ---------------------------------------------------------------- head.c */

void head_init(struct rados_file *f, const struct facts *facts);
/* Wait until nothing is in flight. */
void head_done(struct rados_file *f);
/* Check the version, or write the size, for a task; calls task_head_done() later. */
void head_add(struct rados_file *f, struct task *t);
/* Remove a task.  Return false if task_head_done() is or will be called for it. */
bool head_remove(struct rados_file *f, struct task *t);

/* ----------------------------------------------------------------- ask.c */

/* One blocking operation. */
struct ask {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool ended;
	uint64_t until; /* now_ns() deadline */
	void *io, *completion;
	void *read, *write; /* operations of librados; freed with the ask */
	int result;         /* result of a read's parts */
	void *iter;
};

/* Prepare an operation; then fill in its read or write.  Return 0, or -ENOMEM with a sentence. */
int rados_ask_begin(struct ask *a, void *io, bool write);
/* Start the operation; call rados_ask_wait() afterwards. */
void rados_ask_start(struct ask *a, const char *object);
/* Wait until ASK_NS after the start.  Return 0, or librados' -errno without a sentence. */
int rados_ask_wait(struct ask *a);
/* Start and wait. */
int rados_ask_run(struct ask *a, const char *object);

/* Get the facts of a file, from its first object if it is striped, else from its only one.  Return
 * 0; -ENOENT; -errno with a sentence. */
int rados_ask_facts(void *io, const char *object, const char *shown, struct facts *ret);
/* Parse the attributes of a first object.  Return false if the object is not one. */
bool facts_parse(void *iter, struct facts *ret);

/*
 * The next three functions read the facts again and retry if another writer interferes.  Return 0,
 * or -errno with a sentence; -EBUSY if that happened too often.
 */

/* Change the version of a file, but nothing else. */
int rados_ask_touch(void *io, const char *object, const char *shown, struct facts *facts);
/* Set the size of a file. */
int rados_ask_truncate(void *io, const char *object, const char *shown, struct facts *facts,
		       uint64_t size);
/* Remove a file. */
int rados_ask_remove(void *io, const char *object, const char *shown, struct facts *facts);

/* --------------------------------------------------------------- names.c */

/* Split rados://POOL/OBJECT.  *ret_object points into name; "" means the pool itself. */
int name_split(const char *name, char pool[256], const char **ret_object);

#endif
