/* SPDX-License-Identifier: MIT */
/*
 * Files and GPU memory without a stop in between: NVIDIA's cuFile, where it is real.
 *
 *	lib.c	the library: loaded, its driver opened and closed
 *	find.c	where it lies, and where it may lie
 *	err.c	the five ways in which it reports errors
 *	file.c	files that are registered with it
 *	buf.c	device memory that is registered with it
 *	io.c	one transfer
 *	stats.c	which way transfers really went
 *	probe.c	the same question, asked of another process
 *
 * The library falls back to copies through host memory without a word, and slower than ours.
 * So nothing here is worth using before cufile_probe() said that the file and the device
 * have a direct way, and even then the bytes of the first transfers are to be compared.
 *
 * Hangs.  Any call into the library may never return: its driver waits for kernel modules,
 * these wait for hardware.  Functions marked [hangs] make such calls.  They are for threads
 * of our own that may be given up, and the thread must go on to exist after that: the
 * library may still write to its stack.  A call holds the file and the memory that it uses
 * until it returns, so a caller that gave the thread up may put and free as always.
 * No lock is held during such a call: while one hangs, everything else here answers, and
 * calls that would have to wait for it give -EAGAIN or -EBUSY instead.  Functions without the
 * mark never call the library and never wait.
 *
 * Contexts.  Functions marked [context] want the context of the device memory current in the
 * calling thread: call them inside mem_within().
 *
 * Others in the process may use the library too.  While they do, no parameter is set; their
 * driver is not closed; their registrations stay as they are.  PST_GDS=exclusive in the
 * environment promises that there are none: only then is the library told to refuse transfers
 * without a direct way (strict), and are its counters switched on when somebody asks for them.
 *
 * In a forked child all that would call the library gives -EOWNERDEAD, or does nothing.
 * Failures are -errno with a sentence.
 */
#ifndef PST_GDS_CUFILE_H
#define PST_GDS_CUFILE_H

#include <limits.h>

#include "base/base.h"
#include "file/local.h"

#define CUFILE_ALIGN 4096u      /* alignment of file offsets, lengths and device addresses */
#define CUFILE_SLICE MIB(16)    /* most device memory of one registration */
#define CUFILE_GRAIN KIB(64)    /* where slices begin and end: pages of the GPU */
#define CUFILE_VERSION_MIN 1070 /* as cufile_info.version */
#define CUFILE_OPEN_MS 10000u   /* milliseconds after which opening the driver counts as hung */

/* ------------------------------------------------------------------- library */

/*
 * [hangs] Is the library here and known well enough to be used?  Loads it at the first call,
 * and never unloads it.  0; -ENODEV when there is none; -ENOSYS when it is too old; -EBUSY
 * while another thread is loading it.
 */
int cufile_check(void);

/*
 * [hangs] Open the library's driver, once; some 0.4 s.  It writes a log file, cufile.log, into
 * the current directory, unless CUFILE_LOGFILE_PATH names one: so this is done on a thread
 * with a directory of its own, and the file is removed.  CUDA is there before: the library
 * complains on the program's output when it finds none.
 *
 * 0, also when it is open already.
 * -ENODEV	no library
 * -ENOSYS	it is too old, or too old to be strict
 * -EOPNOTSUPP	there is no direct way at all (strict)
 * -EBUSY	another thread is opening or closing it
 * -EUSERS	PST_GDS=exclusive is not true
 * -ETIMEDOUT	another thread has been opening it for CUFILE_OPEN_MS: given up, unless it
 *		returns after all
 * -EPERM	the thread got no directory of its own
 * and errors of the driver.  A failure is remembered and given again.
 */
int cufile_open(void);

/*
 * [hangs] Close the driver again.  -EBUSY when files or memory are still registered;
 * and when somebody else may depend on it being open, which cannot always be told: a user who
 * registers a file while it is open is not counted by the library.  It then stays open.
 */
int cufile_close(void);

/*
 * Where the library lies that cufile_check() would load; nothing is loaded.  0; -ENODEV when it
 * is nowhere, with a sentence.
 */
int cufile_find(char ret[PATH_MAX]);

struct cufile_info {
	int version; /* version: 1150 for 1.15; set for a version that is too old, too */
	bool open;
	bool strict;         /* never falls back: PST_GDS=exclusive */
	bool shared;         /* the driver was already open */
	unsigned nvfs_major; /* version of nvidia-fs; 0.0 when it is not loaded */
	unsigned nvfs_minor;
	bool c2c;       /* GPUs and CPU are linked by something other than PCI */
	char file[256]; /* file of the loaded library */
};

/* Return what is known of the library; all zero before cufile_check() has loaded it. */
void cufile_info(struct cufile_info *ret);

/* --------------------------------------------------------------------- files */

/* A registered file.  It has its own descriptor, so the file may be freed first. */
struct cufile_file;

/*
 * [hangs] The registration of a file, made at the first call and shared by later ones.  Each
 * get has a put.  The driver is open.
 *
 * -EOPNOTSUPP	cuFile does not take the file: no O_DIRECT, odd flags, no direct way, no
 *		udev database
 * -EMEDIUMTYPE	it would copy the file, because of its attributes
 * -EBUSY	another thread is registering it
 */
int cufile_file_get(struct local_file *f, struct cufile_file **ret);

/* [hangs] The last put ends the registration, or the last transfer that still uses it. */
void cufile_file_put(struct cufile_file *cf);

/* ------------------------------------------------------------- device memory */

/*
 * One allocation.  It is registered in slices, each when a transfer first needs it, and each
 * once: two objects for the same allocation would be in each other's way.
 */
struct cufile_mem;

/* Device: any number below CUFILE_DEVICES; bounds hold for each.  Registers nothing yet. */
#define CUFILE_DEVICES 64u
int cufile_mem_new(unsigned device, uint64_t base, uint64_t size, struct cufile_mem **ret);

/*
 * [hangs] [context] End all registrations and free m.  To be called before the memory itself
 * is freed, and to have returned 0 by then.  -EBUSY while a transfer uses m, or another thread
 * is ending one of its registrations: m stays, and so must the memory.
 */
int cufile_mem_free(struct cufile_mem *m);

/*
 * How many bytes from off on, an offset in the allocation, one transfer can move: up to
 * the end of the slice.  0 at the ends of an allocation that do not fill a page of the GPU, and
 * where the address is not aligned.
 */
uint64_t cufile_mem_room(const struct cufile_mem *m, uint64_t off);

/*
 * Bound registered memory on each device, in bytes.  0, the default: half of the library's own
 * bound.  When it is reached, slices without transfers go, the oldest first.  If a device can pin
 * less than that, the first failure shows it and lowers the bound for this device.
 */
void cufile_mem_limit(uint64_t bytes);

/* Return true if the library has refused a part of the memory. */
bool cufile_mem_refused(const struct cufile_mem *m);

/* Return the bytes that are registered on a device now. */
uint64_t cufile_mem_registered(unsigned device);

/* ----------------------------------------------------------------- transfers */

#define CUFILE_IO_WRITE (1u << 0) /* from memory to file */
/*
 * Others may move bytes through the same slice at the same time.  Good for P2PDMA and C2C;
 * nvidia-fs takes one transfer per registration.
 */
#define CUFILE_IO_SHARE (1u << 1)

/* file_off, len and the address of mem_off are multiples of CUFILE_ALIGN; 0 < len <= room. */
struct cufile_io {
	struct cufile_file *file;
	struct cufile_mem *mem;
	uint64_t mem_off;
	uint64_t file_off;
	uint64_t len;
	uint32_t flags; /* CUFILE_IO_* */
};

/*
 * [hangs] [context] Do one transfer.  It does not wait for work on CUDA streams, and flushes
 * nothing to the disk.
 *
 * Bytes moved, fewer than asked at the end of the file (or elsewhere: compare with its size);
 * -EINVAL	an argument is not as above
 * -EAGAIN	not now: the slice has a transfer, or is being registered.  Do something else,
 *		do not wait for it: it may hang
 * -ENOBUFS	the bound is reached, and everything that is registered is in use
 * -ENOMEM	the device cannot pin more
 * -EBUSY	another user of the library has registered this memory
 * -EBADF	the file is not open for that
 * -EIO		also: the library says it moved more than it was asked for
 * and other errors of the library.  After a failure any part may have been moved.
 */
int64_t cufile_io(const struct cufile_io *io);

/* ---------------------------------------------------------- which way it went */

enum cufile_mode {
	CUFILE_MODE_UNKNOWN,
	CUFILE_MODE_COMPAT, /* copies through host memory, which is not worth using */
	CUFILE_MODE_NVFS,   /* by the module nvidia-fs */
	CUFILE_MODE_P2PDMA, /* by the kernel's P2PDMA */
	CUFILE_MODE_C2C,    /* over the link between CPU and GPU of one package */
};

const char *cufile_mode_name(enum cufile_mode mode);

/* The number of reads or writes of a device by each mode, in the whole process. */
struct cufile_counts {
	uint64_t p2p, nvfs, posix;
	uint64_t unaligned, failed;
};

/*
 * [hangs] Read the counters; uuid is the device's.  All zero before its first transfer.
 * -EOPNOTSUPP where the library has none, has them in a form that is not known, or has them
 * switched off: see PST_GDS above.
 */
int cufile_counts(const uint8_t uuid[16], bool write, struct cufile_counts *ret);

/* Return the mode that explains the difference of two readings; UNKNOWN if there is none, or more
 * than one. */
enum cufile_mode cufile_mode(const struct cufile_counts *before, const struct cufile_counts *after);

/* --------------------------------------------------------------------- probe */

struct cufile_verdict {
	enum cufile_mode mode; /* NVFS, P2PDMA or C2C only if the bytes were right */
	int err;               /* 0, or -errno of the library's failure */
	int version;           /* of the library */
	unsigned nvfs_major, nvfs_minor;
	uint64_t bytes; /* that were compared */
	char text[200]; /* a sentence when err or mode is bad; else "" */
};

/*
 * Is there a direct way between this file, at this offset, and a device?  Another process,
 * penstock-gds-probe, finds out: it may be strict without regard to others, and it may hang or
 * crash.  It reads up to 1 MiB and compares; nothing is written.  Waits until it is done or
 * the deadline (CLOCK_MONOTONIC) has passed; some seconds are needed.
 *
 * 0 when there is a verdict, good or bad; -ETIMEDOUT; -ENOENT when the program is not
 * installed; -EIO when it died without a word; -errno of starting it.
 */
int cufile_probe(const struct local_file *f, uint64_t off, const uint8_t uuid[16],
		 uint64_t deadline_ns, struct cufile_verdict *ret);

#endif
