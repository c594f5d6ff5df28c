/* SPDX-License-Identifier: MIT */
/* Text from outside, such as file names, made safe for logs, terminals and JSON. */
#ifndef PST_SHOWN_H
#define PST_SHOWN_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Copy a text without characters that control a terminal or begin a line.  Control characters (C0,
 * DEL and C1), marks that change the direction of writing, and bytes that are not UTF-8 become
 * \ooo, in octal.  The result is cut at len bytes.  Copying a result again does not change it.
 */
void shown(char *ret, size_t len, const char *text);

/* Return true if all bytes of a text are UTF-8. */
bool shown_is_utf8(const char *text);

#endif
