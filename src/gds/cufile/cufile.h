/* SPDX-License-Identifier: MIT */
/*
 * NVIDIA's cuFile: transfers between files and GPU memory without host memory, where that works.
 *
 *	lib.c	load the library, open and close its driver
 *	find.c	find the library's file
 *	err.c	translate its five forms of errors
 *	file.c	register files
 *	buf.c	register device memory
 *	io.c	do one transfer
 *	stats.c	read its counters, which tell how bytes moved
 *	probe.c	ask another process whether a file has a direct path
 *
 * Where it has no direct path, libcufile silently copies through host memory, slower than
 * Penstock's own staging.  Use this API only after cufile_probe() has found a direct path for file
 * and device, and compare the bytes of the first transfers even then.
 *
 * Hangs.  Any call into the library may never return: its driver waits for kernel modules, which
 * wait for hardware.  Functions marked [hangs] make such calls.  Call them on spawned threads that
 * may be abandoned; an abandoned thread must keep existing, because the library may still write to
 * its stack.  A call holds the file and the memory that it uses until it returns, so a caller that
 * abandoned the thread may put and free them as usual.  No lock is held during such a call.  While
 * one hangs, all other functions here still answer; those that would have to wait for it return
 * -EAGAIN or -EBUSY.  Functions without the mark never call the library and never wait.
 *
 * Contexts.  Functions marked [context] need the context of the device memory to be current in the
 * calling thread: call them inside mem_within().
 *
 * Other code in the process may use the library too.  While it does, no parameter is set, the
 * driver is not closed and foreign registrations stay.  PST_GDS=exclusive in the environment
 * promises that there is no such code.  Only then is the library told to refuse transfers without a
 * direct path (strict), and only then are its counters switched on at the first reading.
 *
 * In a forked child, functions that would call the library return -EOWNERDEAD or do nothing.
 * Failures are -errno with a sentence.
 */
#ifndef PST_GDS_CUFILE_H
#define PST_GDS_CUFILE_H

#include <limits.h>

#include "base/base.h"
#include "file/local.h"

#define CUFILE_ALIGN 4096u      /* bytes; alignment of file offsets, lengths and addresses */
#define CUFILE_SLICE MIB(16)    /* maximum bytes of device memory in one registration */
#define CUFILE_GRAIN KIB(64)    /* bytes of a GPU page; slices begin and end at multiples */
#define CUFILE_VERSION_MIN 1070 /* 1.7, coded as cufile_info.version */
#define CUFILE_OPEN_MS 10000u   /* milliseconds until opening the driver counts as hung */

/* ------------------------------------------------------------------- library */

/*
 * [hangs] Load the library at the first call; it is never unloaded.  Return 0 if it is usable,
 * -ENODEV if there is none, -ENOSYS if it is too old, -EBUSY while another thread loads it.
 */
int cufile_check(void);

/*
 * [hangs] Open the library's driver, once; this takes about 0.4 s.  The library writes cufile.log
 * into the current directory unless CUFILE_LOGFILE_PATH names a file.  So a thread with a current
 * directory of its own opens the driver, and removes the log.  CUDA must be initialised before:
 * otherwise the library complains on the program's output.
 *
 * Return 0, also if the driver is already open;
 * -ENODEV	no library
 * -ENOSYS	too old, or may fall back to copies (strict)
 * -EOPNOTSUPP	there is no direct path at all (strict)
 * -EBUSY	another thread is opening or closing the driver
 * -EUSERS	PST_GDS=exclusive is set, but other code has opened the driver
 * -ETIMEDOUT	another thread has been opening the driver for more than CUFILE_OPEN_MS
 * -EPERM	the thread cannot have a current directory of its own
 * or an error of the driver.  Final failures are remembered and returned again.
 */
int cufile_open(void);

/*
 * [hangs] Close the driver.  Return -EBUSY while files or memory are registered, or if other code
 * may depend on the open driver: the library does not count users who register a file while the
 * driver is open.  The driver then stays open.
 */
int cufile_close(void);

/*
 * Find the file that cufile_check() would load, without loading it.  Return 0, or -ENODEV with a
 * sentence.
 */
int cufile_find(char ret[PATH_MAX]);

struct cufile_info {
	int version; /* version: 1150 for 1.15; also set if the version is too old */
	bool open;
	bool strict;         /* the library never falls back: PST_GDS=exclusive */
	bool shared;         /* other code had opened the driver before */
	unsigned nvfs_major; /* version of nvidia-fs; 0.0 if not loaded */
	unsigned nvfs_minor;
	bool c2c;       /* GPUs and CPU are linked by something other than PCI */
	char file[256]; /* path of the loaded library */
};

/* Return the facts about the library; all zero before cufile_check() has loaded it. */
void cufile_info(struct cufile_info *ret);

/* --------------------------------------------------------------------- files */

/* A registered file.  The object has a duplicated descriptor, so the file may be freed first. */
struct cufile_file;

/*
 * [hangs] Register a file, or share its existing registration.  Each get needs a put.  The driver
 * must be open.
 *
 * -EOPNOTSUPP	cuFile refuses the file: no O_DIRECT, odd flags, no direct path, no
 *		udev database
 * -EMEDIUMTYPE	cuFile would copy the file because of its attributes
 * -EBUSY	another thread is registering the file
 */
int cufile_file_get(struct local_file *f, struct cufile_file **ret);

/* [hangs] Drop a reference.  The registration ends with its last reference and last transfer. */
void cufile_file_put(struct cufile_file *cf);

/* ------------------------------------------------------------- device memory */

/*
 * One allocation of device memory, registered in slices when transfers need them.  Create only one
 * object per allocation: two would try to register the same memory.
 */
struct cufile_mem;

/* Create an object for an allocation without registering anything.  device is any number below
 * CUFILE_DEVICES; the bound on registered bytes holds for each device. */
#define CUFILE_DEVICES 64u
int cufile_mem_new(unsigned device, uint64_t base, uint64_t size, struct cufile_mem **ret);

/*
 * [hangs] [context] End all registrations and free m.  Call this before freeing the memory, and
 * free the memory only after it returned 0. Return -EBUSY while a transfer uses m or another thread
 * ends one of its registrations; m stays valid then.
 */
int cufile_mem_free(struct cufile_mem *m);

/*
 * Return the bytes that one transfer can move from offset off of the allocation: up to the end of
 * the slice.  Return 0 in a GPU page that the allocation does not fill, and at unaligned addresses.
 */
uint64_t cufile_mem_room(const struct cufile_mem *m, uint64_t off);

/*
 * Bound the registered bytes of each device.  0, the default, means half of the library's own
 * bound.  At the bound, the oldest slices without transfers are unregistered.  If a device can pin
 * less, the first failure lowers the bound of this device.
 */
void cufile_mem_limit(uint64_t bytes);

/* Return true if the library has refused a part of the memory. */
bool cufile_mem_refused(const struct cufile_mem *m);

/* Return the bytes that are registered on a device. */
uint64_t cufile_mem_registered(unsigned device);

/* ----------------------------------------------------------------- transfers */

#define CUFILE_IO_WRITE (1u << 0) /* write from memory to the file; else read */
/*
 * Let other transfers use the same slice at the same time.  P2PDMA and C2C allow this; nvidia-fs
 * takes one transfer per registration.
 */
#define CUFILE_IO_SHARE (1u << 1)

/* file_off, len and the address of mem_off are multiples of CUFILE_ALIGN; 0 < len <=
 * cufile_mem_room(). */
struct cufile_io {
	struct cufile_file *file;
	struct cufile_mem *mem;
	uint64_t mem_off;
	uint64_t file_off;
	uint64_t len;
	uint32_t flags; /* CUFILE_IO_* */
};

/*
 * [hangs] [context] Do one transfer.  Does not wait for work on CUDA streams, and flushes nothing
 * to the disk.
 *
 * Return the bytes moved: fewer than asked at the end of the file, or elsewhere (compare with the
 * file's size);
 * -EINVAL	an argument breaks the rules of struct cufile_io
 * -EAGAIN	another transfer uses the slice, or a thread is registering it; do not block on
 *		it, because it may hang
 * -ENOBUFS	the bound is reached, and transfers use all registered slices
 * -ENOMEM	the device cannot pin more
 * -EBUSY	other code has registered this memory with the library
 * -EBADF	the file is not open for this direction
 * -EIO		also: the library claims to have moved more than was asked
 * or another error of the library.  After a failure, any part may have been moved.
 */
int64_t cufile_io(const struct cufile_io *io);

/* ---------------------------------------------------------- which way it went */

enum cufile_mode {
	CUFILE_MODE_UNKNOWN,
	CUFILE_MODE_COMPAT, /* copies through host memory; not worth using */
	CUFILE_MODE_NVFS,   /* moved by the nvidia-fs module */
	CUFILE_MODE_P2PDMA, /* moved by the kernel's P2PDMA */
	CUFILE_MODE_C2C,    /* over the CPU-GPU link of one package */
};

const char *cufile_mode_name(enum cufile_mode mode);

/* Reads or writes of a device, counted per mode, in the whole process. */
struct cufile_counts {
	uint64_t p2p, nvfs, posix;
	uint64_t unaligned, failed;
};

/*
 * [hangs] Read the counters of the device with this uuid.  All are zero before its first transfer.
 * Return -EOPNOTSUPP if the library has no counters, has them in an unknown layout, or has them
 * switched off (see PST_GDS above).
 */
int cufile_counts(const uint8_t uuid[16], bool write, struct cufile_counts *ret);

/* Return the mode that explains the difference of two readings; UNKNOWN if no mode or more than one
 * does. */
enum cufile_mode cufile_mode(const struct cufile_counts *before, const struct cufile_counts *after);

/* --------------------------------------------------------------------- probe */

struct cufile_verdict {
	enum cufile_mode mode; /* NVFS, P2PDMA or C2C only if the bytes were right */
	int err;               /* 0, or -errno of the library's failure */
	int version;           /* version of the library, as cufile_info.version */
	unsigned nvfs_major, nvfs_minor;
	uint64_t bytes; /* bytes that were compared */
	char text[200]; /* a sentence if err or mode is bad; else "" */
};

/*
 * Find out whether a direct path leads from this offset of the file to a device.  Another process,
 * penstock-gds-probe, reads up to 1 MiB and compares; it writes nothing.  A separate process may
 * be strict without regard to other code, and may hang or crash.  Wait until it ends or the
 * deadline (CLOCK_MONOTONIC) passes; it needs some seconds.
 *
 * Return 0 if there is a verdict, good or bad; -ETIMEDOUT; -ENOENT if the program is not installed;
 * -EIO if it died without an answer; -errno if it cannot be started.
 */
int cufile_probe(const struct local_file *f, uint64_t off, const uint8_t uuid[16],
		 uint64_t deadline_ns, struct cufile_verdict *ret);

#endif
