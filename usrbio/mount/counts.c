/* SPDX-License-Identifier: MIT */
#include "usrbio/mount/counts.h"

#include <linux/fuse.h>

#include "base/base.h"
#include "base/probe.h"

struct counts counts;

/* The request that this thread answers.  libfuse answers a request on the thread that read it. */
static _Thread_local struct {
	uint64_t unique, since;
	uint32_t op;
	bool runs;
} my;

void counts_begin(const struct fuse_in_header *in)
{
	PROBE4(fuse__start, in->unique, in->opcode, in->uid, in->nodeid);
	my.unique = in->unique;
	my.op = in->opcode;
	my.since = now_ns();
	my.runs = true;
}

void counts_end(int err, uint64_t bytes)
{
	uint64_t unique = my.unique, ns;
	uint32_t op = my.op;
	struct counts_op *o = &counts.op[counts_op_name(op) ? op : 0];

	if (!my.runs)
		return;
	my.runs = false;
	ns = now_ns() - my.since;
	/* Load the values into registers: tracers cannot find thread-local variables. */
	__asm__("" : "+r"(unique), "+r"(op));
	PROBE4(fuse__end, unique, op, err, bytes);
	count_add(&o->nr, 1);
	count_add(&o->ns, ns);
	count_add(&o->bucket[latency_bucket(ns)], 1);
	if (bytes)
		count_add(&o->bytes, bytes);
	count_error(o->error, err);
}

uint32_t counts_op(void)
{
	return my.runs ? my.op : 0;
}

void counts_next(void)
{
	if (unlikely(my.runs))
		counts_end(0, 0);
}

void counts_drop(void)
{
	my.runs = false;
}

static const char *const op_names[COUNTS_OPS] = {
	[0] = "other",
	[FUSE_LOOKUP] = "lookup",
	[FUSE_FORGET] = "forget",
	[FUSE_GETATTR] = "getattr",
	[FUSE_SETATTR] = "setattr",
	[FUSE_READLINK] = "readlink",
	[FUSE_SYMLINK] = "symlink",
	[FUSE_MKNOD] = "mknod",
	[FUSE_MKDIR] = "mkdir",
	[FUSE_UNLINK] = "unlink",
	[FUSE_RMDIR] = "rmdir",
	[FUSE_RENAME] = "rename",
	[FUSE_LINK] = "link",
	[FUSE_OPEN] = "open",
	[FUSE_READ] = "read",
	[FUSE_WRITE] = "write",
	[FUSE_STATFS] = "statfs",
	[FUSE_RELEASE] = "release",
	[FUSE_FSYNC] = "fsync",
	[FUSE_SETXATTR] = "setxattr",
	[FUSE_GETXATTR] = "getxattr",
	[FUSE_LISTXATTR] = "listxattr",
	[FUSE_REMOVEXATTR] = "removexattr",
	[FUSE_FLUSH] = "flush",
	[FUSE_INIT] = "init",
	[FUSE_OPENDIR] = "opendir",
	[FUSE_READDIR] = "readdir",
	[FUSE_RELEASEDIR] = "releasedir",
	[FUSE_FSYNCDIR] = "fsyncdir",
	[FUSE_GETLK] = "getlk",
	[FUSE_SETLK] = "setlk",
	[FUSE_SETLKW] = "setlkw",
	[FUSE_ACCESS] = "access",
	[FUSE_CREATE] = "create",
	[FUSE_INTERRUPT] = "interrupt",
	[FUSE_BMAP] = "bmap",
	[FUSE_DESTROY] = "destroy",
	[FUSE_IOCTL] = "ioctl",
	[FUSE_POLL] = "poll",
	[FUSE_BATCH_FORGET] = "batch_forget",
	[FUSE_FALLOCATE] = "fallocate",
	[FUSE_READDIRPLUS] = "readdirplus",
	[FUSE_RENAME2] = "rename2",
	[FUSE_LSEEK] = "lseek",
	[FUSE_COPY_FILE_RANGE] = "copy_file_range",
	[FUSE_SETUPMAPPING] = "setupmapping",
	[FUSE_REMOVEMAPPING] = "removemapping",
	[FUSE_SYNCFS] = "syncfs",
	[FUSE_TMPFILE] = "tmpfile",
};

const char *counts_op_name(unsigned op)
{
	return op < COUNTS_OPS ? op_names[op] : NULL;
}

const char *counts_cause_name(enum counts_cause cause)
{
	static const char *const names[NR_CAUSES] = {
		[CAUSE_OPTION] = "option", [CAUSE_USER] = "user",       [CAUSE_KERNEL] = "kernel",
		[CAUSE_SHARED] = "shared", [CAUSE_REFUSED] = "refused",
	};

	return names[cause];
}

const char *counts_link_name(enum link_op op)
{
	static const char *const names[LINK_OPS] = {
		[LINK_HELLO] = "hello",
		[LINK_FILE_ADD] = "file_add",
		[LINK_BUFFER_ADD] = "buffer_add",
		[LINK_RING_ADD] = "ring_add",
		[LINK_DEVICE_ADD] = "device_add",
		[LINK_FILE_REMOVE] = "file_remove",
		[LINK_BUFFER_REMOVE] = "buffer_remove",
		[LINK_RING_REMOVE] = "ring_remove",
	};

	return names[op];
}
