/* SPDX-License-Identifier: MIT */
/*
 * For sign.py: sign requests from standard input.  Fields are lines of hex digits, so they may
 * contain any bytes: id, secret, token, method, path, payload, date, region, number of query pairs,
 * the pairs, number of headers, the pairs.  The answer has three lines: the encoded path, the query
 * and the Authorization header.
 */
#include <stdio.h>

#include "base/err.h"
#include "s3/s3.h"

#define PAIRS_MAX 64

static char *field(void)
{
	char *line = NULL, *to;
	size_t room = 0;
	unsigned byte;

	if (getline(&line, &room, stdin) < 0) {
		free(line);
		return NULL;
	}
	to = line;
	for (char *at = line; sscanf(at, "%2x", &byte) == 1; at += 2)
		*to++ = (char)byte;
	*to = '\0';
	return line;
}

static size_t pairs(struct pair *ret)
{
	char *number = field();
	size_t nr = MIN(number ? strtoul(number, NULL, 10) : 0, (unsigned long)PAIRS_MAX);

	free(number);
	for (size_t i = 0; i < nr; i++) {
		ret[i].name = field();
		ret[i].value = field();
	}
	return nr;
}

static void drop(struct pair *p, size_t nr)
{
	for (size_t i = 0; i < nr; i++) {
		free((char *)(uintptr_t)p[i].name);
		free((char *)(uintptr_t)p[i].value);
	}
}

int main(void)
{
	struct pair query[PAIRS_MAX], headers[PAIRS_MAX];
	char *id;

	while ((id = field())) {
		char *secret = field(), *method = field(), *path = field(), *payload = field();
		char *date = field(), *region = field(), *encoded = encode_uri(path, true);
		size_t nr_query = pairs(query), nr_headers = pairs(headers);
		char *q = encode_query(query, nr_query), *authorization;
		struct keys k = { 0 };

		(void)snprintf(k.id, sizeof(k.id), "%s", id);
		(void)snprintf(k.secret, sizeof(k.secret), "%s", secret);
		authorization = sign(&k, &(struct to_sign){ .method = method,
							    .path = encoded,
							    .query = q,
							    .headers = headers,
							    .nr_headers = nr_headers,
							    .payload = payload,
							    .date = date,
							    .region = region,
							    .service = "s3" });
		(void)printf("%s\n%s\n%s\n", encoded, q,
			     authorization ? authorization : err_text());
		(void)fflush(stdout);
		drop(query, nr_query);
		drop(headers, nr_headers);
		free(authorization);
		free(q);
		free(encoded);
		free(region);
		free(date);
		free(payload);
		free(path);
		free(method);
		free(secret);
		free(id);
	}
	return 0;
}
