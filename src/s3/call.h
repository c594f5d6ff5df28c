/* SPDX-License-Identifier: MIT */
/* The parts of an exchange, for the thread pst-http alone.  http.c runs them. */
#ifndef PST_S3_CALL_H
#define PST_S3_CALL_H

#include "s3/http.h"

/* request.c: write URL, headers and signature of a call, and set all options of its handle.
 * Return false if there is no memory, or with c->err and c->why. */
bool request_make(struct call *c);

/* answer.c: libcurl's callbacks for a header and for bytes. */
size_t answer_header(char *line, size_t size, size_t nr, void *arg);
size_t answer_data(char *data, size_t size, size_t nr, void *arg);
/* Check the headers once, before any byte is used.  Return false with c->err. */
bool answer_look(struct call *c);
bool answer_is_good(long status);

/* why.c: set c->err and c->why. */
void why_status(struct call *c);
/* Return true if the failure is worth another try. */
bool why_curl(struct call *c, CURLcode code);
/* Return true if the text of the answer has that error code. */
bool why_code_is(const struct call *c, const char *code);

#endif
