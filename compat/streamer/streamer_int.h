/* SPDX-License-Identifier: MIT */
#ifndef STREAMER_INT_H
#define STREAMER_INT_H

#include "stream.h"

/* The streamer of a number, which then lives until it is left; a code. */
int streamer_enter(void *streamer, struct streamer **ret);
void streamer_leave(struct streamer *st);

/* An error line in a process whose log is silent, if PST_LOG asks for lines. */
void streamer_say(const char *what);

#endif
