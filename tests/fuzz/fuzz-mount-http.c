/* SPDX-License-Identifier: MIT */
/*
 * Any bytes as a request for a mount's numbers.  What is answered is one of the statuses, and the
 * same however the bytes come in pieces: what was no whole request stays none until more comes.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "net/http.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* An assertion that release builds keep. */
static void must(int ok)
{
	if (!ok)
		abort();
}

static int parse(const uint8_t *data, size_t len, bool *ret_head)
{
	/* Its end is the allocation's. */
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
	/* A request that is whole is answered the same, whatever comes behind it. */
	for (size_t n = 0; n < len; n++) {
		first = parse(data, n, &again);
		if (first == HTTP_MORE)
			continue;
		must(first == status && head == again);
		break;
	}
	return 0;
}
