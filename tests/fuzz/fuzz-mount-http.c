/* SPDX-License-Identifier: MIT */
/*
 * Arbitrary bytes as an HTTP request for a mount's statistics.  The parser must return a known
 * status, and the same one for the shortest complete prefix of the request.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "net/http.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* Abort unless @ok, also in release builds. */
static void must(int ok)
{
	if (!ok)
		abort();
}

static int parse(const uint8_t *data, size_t len, bool *ret_head)
{
	/* An exact allocation, so that a sanitizer sees reads past its end. */
	char *buf = malloc(len ? len : 1);
	int status;

	must(buf != NULL);
	memcpy(buf, data, len);
	status = http_parse(buf, len, ret_head);
	free(buf);
	return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	bool head, again;
	int status, first;

	if (len > HTTP_MAX)
		len = HTTP_MAX;
	status = parse(data, len, &head);
	must(status == HTTP_MORE || strcmp(http_reason(status), "Internal Server Error") != 0);
	must(len < HTTP_MAX || status != HTTP_MORE);
	if (status == HTTP_OK)
		must(len >= 15 && (!memcmp(data, "GET ", 4) || !memcmp(data, "HEAD ", 5)));
	/* Bytes after a complete request must not change its status. */
	for (size_t n = 0; n < len; n++) {
		first = parse(data, n, &again);
		if (first == HTTP_MORE)
			continue;
		must(first == status && head == again);
		break;
	}
	return 0;
}
