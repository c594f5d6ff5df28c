/* SPDX-License-Identifier: MIT */
/* Sentences for errors, and signals that end a command cleanly. */
#ifndef CLI_FAIL_H
#define CLI_FAIL_H

#include <getopt.h>
#include <signal.h>
#include <stdatomic.h>

#include "base/base.h"

/*
 * Keep the sentence of a failure for the calling thread.  Return: -|err|, for one-line failures:
 * return fail(ENOENT, "...").
 */
int fail(int err, const char *fmt, ...) _printf_(2, 3);

/* Keep the library's sentence for a failure, preceded by @what: the failed action or its object.
 * Return -|err|. */
int fail_pst(int err, const char *what);

const char *fail_text(void);

/*
 * Print the library's sentence, for a command that continues with its other arguments.  Return: 1,
 * the command's exit status in that case.
 */
int say_failure(int err, const char *what);

/* Name of the running command: messages begin with "penstock: NAME: ". */
extern const char *cmd_name;

/* Print a message, preceded by the command's name, to standard error. */
void say(const char *fmt, ...) _printf_(1, 2);

/* Print a message about the command line, and a hint.  Return exit status 2. */
int usage_error(const char *fmt, ...) _printf_(1, 2);

/*
 * Print a message for an option that getopt_long() with a leading ':' rejected, and a hint.  c: its
 * result; longs: the options that it knows.  Return exit status 2.
 */
int option_error(char *const argv[], const struct option longs[], int c);

/* Print the sentence of a failure, unless a signal ended the command.  Return the exit status. */
int exit_status(int r);

/* ---------------------------------------------------------------- signals */

/* The signal that asked the command to end, or 0.  Written by a handler, read by any thread. */
extern atomic_int stop_signal;

/* Let SIGINT, SIGTERM and SIGHUP set stop_signal. */
void signals_catch(void);

#endif
