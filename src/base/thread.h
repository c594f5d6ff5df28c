/* SPDX-License-Identifier: MIT */
#ifndef PST_THREAD_H
#define PST_THREAD_H

#include <pthread.h>

#include "base/base.h"

/*
 * Start a thread of the library's own, with every signal blocked, so that no handler of
 * the program ever runs on it.  0, or -EAGAIN with a sentence.
 */
int thread_start(pthread_t *ret, void *(*fn)(void *), void *arg);

#endif
