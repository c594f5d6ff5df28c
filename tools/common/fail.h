/* SPDX-License-Identifier: MIT */
/* Sentences for errors, and signals that end a command in good order. */
#ifndef CLI_FAIL_H
#define CLI_FAIL_H

#include <getopt.h>
#include <signal.h>
#include <stdatomic.h>

#include "base/base.h"

/*
 * Keep the sentence for a failure in the calling thread.
 * Return: -|err|, so that a failure is one line: return fail(ENOENT, "...").
 */
int fail(int err, const char *fmt, ...) _printf_(2, 3);

/* The same with the library's sentence, behind the failed action or its object. */
int fail_pst(int err, const char *what);

const char *fail_text(void);

/*
 * Say the library's sentence at once, for a command that goes on with what else it was given.
 * Return: 1, which is the command's exit status then.
 */
int say_failure(int err, const char *what);

/* The command that runs: messages begin with "penstock: NAME: ". */
extern const char *cmd_name;

/* A line on standard error in that form. */
void say(const char *fmt, ...) _printf_(1, 2);

/* A mistake on the command line: the line, a hint, and exit status 2 as the result. */
int usage_error(const char *fmt, ...) _printf_(1, 2);

/*
 * The same for an option that getopt_long() with a leading ':' could not take.  c is what it
 * returned, longs what it knows.
 */
int option_error(char *const argv[], const struct option longs[], int c);

/* Say the sentence of a failure, unless a signal ended the command; the exit status. */
int exit_status(int r);

/* ---------------------------------------------------------------- signals */

/* The signal that asked the command to end, or 0.  A handler writes it, and any thread reads it. */
extern atomic_int stop_signal;

/* From now on SIGINT, SIGTERM and SIGHUP set stop_signal. */
void signals_catch(void);

#endif
