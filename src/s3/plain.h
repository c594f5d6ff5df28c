/* SPDX-License-Identifier: MIT */
/* Exchanges of plain http:// whose bodies go from the socket into the memory of the request. */
#ifndef PST_S3_PLAIN_H
#define PST_S3_PLAIN_H

#include "s3/http.h"

/* Return true if a call may be made so. */
bool plain_wants(const struct call *c);
/* Send the request of c->url and c->headers.  Return false if there is no memory.
 * http_finished() or http_resend() follows, never from within. */
bool plain_start(struct call *c, CURLM *multi);
/* End an exchange, and close its connection. */
void plain_cancel(struct call *c);
/* Close all connections; none is in use. */
void plain_end(CURLM *multi);

/* Take a handle of libcurl that has connected, or has failed to.  Return false if it is another's.
 */
bool plain_connected(CURL *easy, CURLcode code, CURLM *multi);
/* Fill in what to wait for.  Return how many there are. */
unsigned plain_fds(struct curl_waitfd fds[CALLS_MAX], CURLM *multi);
/* When plain_take() is due if nothing happens; UINT64_MAX: never. */
uint64_t plain_due_ns(void);
/* Send and receive after a wait. */
void plain_take(const struct curl_waitfd *fds, unsigned nr);

#endif
