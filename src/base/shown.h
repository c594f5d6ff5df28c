/* SPDX-License-Identifier: MIT */
/* Text from elsewhere, such as names of files, for logs, terminals and JSON. */
#ifndef PST_SHOWN_H
#define PST_SHOWN_H

#include <stddef.h>

/*
 * Copy a text without characters that control a terminal or begin a line: control characters
 * (C0, DEL and C1), marks that turn the direction of writing and bytes that are no UTF-8 become
 * \ooo, in octal.  Cut at len.  A text that went through once stays as it is.
 */
void shown(char *ret, size_t len, const char *text);

#endif
