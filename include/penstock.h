/* SPDX-License-Identifier: MIT */
/*
 * libpenstock - move bytes between files and host or accelerator memory by the
 * shortest path that the machine allows, and report which path was taken.
 *
 * The manual pages explain each call in full; libpenstock(3) lists them.
 * These rules hold for every call:
 *
 *   - int results are >= 0 on success and -errno on failure; errno itself does not
 *     change.  After a failure pst_error_text() returns a sentence with cause and cure.
 *   - ret_* arguments are written on success only, except ret_done of pst_read(), pst_write(),
 *     pst_readv() and pst_writev().
 *   - *_free() and *_close() accept NULL and return NULL.
 *   - Threads may use different objects at once.  One object may be used by one thread at a
 *     time, unless a comment says "any thread".  Requests of any number of queues may name the
 *     same pst_mem and pst_file at once.
 *   - Lengths and offsets are bytes in uint64_t; the sum of an offset and a length
 *     must fit int64_t.  Deadlines are absolute CLOCK_MONOTONIC nanoseconds.
 *   - Structures that begin with sz may grow at their end: set sz to sizeof() and zero the rest.
 *     The library fills the members that caller and library both know, and zeroes members that only
 *     the caller knows.  If the caller sets a member that the library does not know, the call
 *     returns -E2BIG.  In an array, all elements have the same sz, which is the distance between
 *     them.
 *   - Every enumeration may get new numbers: treat a number that you do not know as "other".
 *   - No call is a cancellation point: a cancelled thread ends after the call returns.
 *   - After fork() the child gets -EOWNERDEAD from every call on an object of its
 *     parent and from every call that would create an object; exec() is allowed.
 *   - The library prints nothing, installs no signal handler and leaves the caller's
 *     signal mask, environment and accelerator context unchanged.
 */
#ifndef PENSTOCK_H
#define PENSTOCK_H

#include <penstock/check.h>
#include <penstock/device.h>
#include <penstock/file.h>
#include <penstock/grant.h>
#include <penstock/io.h>
#include <penstock/mem.h>
#include <penstock/name.h>
#include <penstock/peer.h>
#include <penstock/queue.h>
#include <penstock/stats.h>
#include <penstock/types.h>
#include <penstock/window.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PST_VERSION_MAJOR 0
#define PST_VERSION_MINOR 2
#define PST_VERSION_PATCH 0

/**
 * pst_version() - return the version of the library that is loaded
 *
 * Return: "major.minor.patch", a constant string.
 */
PST_API const char *pst_version(void);

/**
 * pst_error_text() - return the sentence for the calling thread's last failure
 *
 * The library owns the text, which stays valid until the thread's next failing call.
 *
 * Return: cause and cure in one sentence; "" before the first failure.
 */
PST_API const char *pst_error_text(void);

enum pst_log_level { PST_LOG_ERROR = 1, PST_LOG_WARN = 2, PST_LOG_INFO = 3, PST_LOG_DEBUG = 4 };

typedef void (*pst_log_fn)(void *arg, int level, const char *line);

/**
 * pst_log_set() - receive the library's log lines
 * @fn:    called with each line, without its newline, from any thread; it must not
 *         call the library.  NULL restores the setting of PST_LOG.
 * @arg:   passed to @fn
 * @level: the most detailed level to receive, PST_LOG_ERROR to PST_LOG_DEBUG
 *
 * Without a callback the environment variable PST_LOG (error, warn, info, debug)
 * sends lines to standard error; set-uid programs ignore PST_LOG.  Any thread.
 */
PST_API void pst_log_set(pst_log_fn fn, void *arg, int level);

#ifdef __cplusplus
}
#endif
#endif
