/* SPDX-License-Identifier: MIT */
/*
 * Parse what a metrics scraper sends: a GET or HEAD request of HTTP without a body.  The bytes come
 * from any program that may open the socket, and are hostile.
 */
#ifndef PST_NET_HTTP_H
#define PST_NET_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#define HTTP_MAX 4096u /* bytes of a request */

/* HTTP statuses, and a value for an incomplete request. */
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

/* Return the status for the len bytes received so far.  *ret_head is true for a HEAD request, whose
 * answer has no body. */
int http_parse(const char *buf, size_t len, bool *ret_head);

/* Return the phrase of a status, such as "Not Found". */
const char *http_reason(int status);

#endif
