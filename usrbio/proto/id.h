/* SPDX-License-Identifier: MIT */
/*
 * UUIDs of published memory: 16 bytes in memory, 8-4-4-4-12 lower-case hexadecimal digits in names.
 */
#ifndef PST_USRBIO_ID_H
#define PST_USRBIO_ID_H

#include <stdint.h>

#define USRBIO_ID_LEN 16
#define USRBIO_ID_TEXT 37 /* characters of a UUID's text, with its NUL */

/* Create a random UUID, version 4.  Return 0 or -errno of getrandom(2). */
int usrbio_id_new(uint8_t ret_id[USRBIO_ID_LEN]);

void usrbio_id_format(const uint8_t id[USRBIO_ID_LEN], char ret_text[USRBIO_ID_TEXT]);

/*
 * Parse a UUID from the first 36 bytes of a text; what follows is not checked.  Reads no byte after
 * a terminating 0.  Return 0, or -EINVAL for anything but a lower-case UUID.
 */
int usrbio_id_parse(const char *text, uint8_t ret_id[USRBIO_ID_LEN]);

#endif
