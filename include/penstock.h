/* SPDX-License-Identifier: MIT */
/*
 * libpenstock - move bytes between files and host or accelerator memory by the
 * shortest path the machine allows, and say which path was taken.
 *
 * The manual pages have the long form of every comment here: libpenstock(3) is the list.
 * Rules that hold for every call below, so that they are not repeated:
 *
 *   - int results are >= 0 on success and -errno on failure; errno itself is left
 *     as it was.  pst_error_text() then holds a sentence with the cause and the cure.
 *   - ret_* arguments are written on success only, except ret_done of the calls that wait.
 *   - *_free() and *_close() accept NULL and return NULL.
 *   - Different objects may be used from different threads at once; one object
 *     from one thread at a time, unless its comment says otherwise.  pst_mem and
 *     pst_file may be named in requests of any number of queues at once.
 *   - Lengths and offsets are bytes in uint64_t; the sum of an offset and a length
 *     must fit int64_t.  Deadlines are absolute CLOCK_MONOTONIC nanoseconds.
 *   - Structures that begin with sz may grow at their end: set sz to sizeof() and zero
 *     the rest.  The library fills what it and the caller both know and zeroes what the
 *     only the caller knows.  A member that is set and that it does not know is refused
 *     with -E2BIG.  In arrays sz is the distance between elements, the same in each.
 *   - New numbers may come in every enumeration: treat one you do not know as "other".
 *   - No call is a cancellation point: a thread that is cancelled in one ends after it.
 *   - After fork() the child gets -EOWNERDEAD from every call on an object of its
 *     parent and from every call that would make a new one; exec() is fine.
 *   - The library prints nothing, installs no signal handler and leaves the caller's
 *     signal mask, environment and accelerator context as they were.
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
 * pst_version() - version of the library that is running
 *
 * Return: "major.minor.patch", a constant string.
 */
PST_API const char *pst_version(void);

/**
 * pst_error_text() - the sentence for the calling thread's last failure
 *
 * The text belongs to the library and stays valid until the thread's next failing call.
 *
 * Return: cause and cure in one sentence; "" before the first failure.
 */
PST_API const char *pst_error_text(void);

enum pst_log_level { PST_LOG_ERROR = 1, PST_LOG_WARN = 2, PST_LOG_INFO = 3, PST_LOG_DEBUG = 4 };

typedef void (*pst_log_fn)(void *arg, int level, const char *line);

/**
 * pst_log_set() - receive the library's log lines
 * @fn:    called with each line, without its newline, from any thread; it must not
 *         call the library.  NULL goes back to PST_LOG's setting.
 * @arg:   handed to @fn
 * @level: the most detailed level wanted, PST_LOG_ERROR to PST_LOG_DEBUG
 *
 * Without a callback the environment variable PST_LOG (error, warn, info, debug)
 * sends lines to standard error; set-uid programs ignore it.  Any thread.
 */
PST_API void pst_log_set(pst_log_fn fn, void *arg, int level);

#ifdef __cplusplus
}
#endif
#endif
