/* SPDX-License-Identifier: MIT */
#ifndef STREAMER_INT_H
#define STREAMER_INT_H

#include "stream.h"

/* Enter the streamer of a handle, which stays valid until it is left.  Return a code. */
int streamer_enter(void *streamer, struct streamer **ret);
void streamer_leave(struct streamer *st);

/* Print an error line in a process whose log is silent, if PST_LOG asks for lines. */
void streamer_say(const char *what);

#endif
