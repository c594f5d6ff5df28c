/* SPDX-License-Identifier: MIT */
/*
 * A request of HTTP, as far as whoever asks for numbers needs it: a GET or HEAD without a body.
 * The bytes come from any program that may open the socket, and are hostile.
 */
#ifndef PST_NET_HTTP_H
#define PST_NET_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#define HTTP_MAX 4096u /* bytes of a request */

/* Statuses of HTTP, and one for a request that is not over yet. */
enum {
	HTTP_MORE = 0,
	HTTP_OK = 200,
	HTTP_BAD = 400,
	HTTP_NOT_FOUND = 404,
	HTTP_METHOD = 405,
	HTTP_TIMEOUT = 408,
	HTTP_LARGE = 431,
	HTTP_ERROR = 500,
	HTTP_VERSION = 505,
};

/* What to answer to the len bytes that have come.  *ret_head: without the text itself. */
int http_parse(const char *buf, size_t len, bool *ret_head);

/* "Not Found" */
const char *http_reason(int status);

#endif
