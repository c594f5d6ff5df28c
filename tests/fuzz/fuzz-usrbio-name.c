/* SPDX-License-Identifier: MIT */
/*
 * Arbitrary bytes as a name in 3fs-virt/iovs and as a name of shared memory with an owner.
 * Accepted values must be in range, and the same after they are written and read again.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "usrbio/proto/name.h"
#include "usrbio/proto/owner.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* Abort unless @ok, also in release builds. */
static void must(int ok)
{
	if (!ok)
		abort();
}

static void must_be_sane(const struct usrbio_name *n)
{
	must(n->kind >= USRBIO_BUFFER && n->kind <= USRBIO_DEVICE);
	must(n->timeout_ms >= 0 && n->device >= 0 && n->io_depth > INT32_MIN);
	must(n->priority < USRBIO_PRIORITIES);
	if (n->kind != USRBIO_RING)
		must(n->priority == USRBIO_NORMAL && !n->for_read && !n->io_depth &&
		     !n->timeout_ms && !n->flags);
	if (n->kind != USRBIO_BUFFER)
		must(!n->block_size);
	if (n->kind != USRBIO_DEVICE)
		must(!n->device);
}

static void try_name(const char *text)
{
	struct usrbio_name n, again;
	char written[USRBIO_NAME_MAX];

	memset(&n, 0, sizeof(n));
	memset(&again, 0, sizeof(again));
	if (usrbio_name_parse(text, &n) < 0)
		return;
	must_be_sane(&n);
	usrbio_name_format(&n, written);
	must(strlen(written) < sizeof(written));
	must(usrbio_name_parse(written, &again) == 0);
	must(n.kind == again.kind && !memcmp(n.id, again.id, sizeof(n.id)) &&
	     n.block_size == again.block_size && n.for_read == again.for_read &&
	     n.io_depth == again.io_depth && n.priority == again.priority &&
	     n.timeout_ms == again.timeout_ms && n.flags == again.flags &&
	     n.device == again.device);
}

static void try_owner(const char *text)
{
	static const uint8_t id[USRBIO_ID_LEN];
	struct usrbio_owner o, again;
	char written[USRBIO_SHM_NAME_MAX];

	if (usrbio_owner_parse(text, &o) < 0)
		return;
	must(o.pid > 0);
	usrbio_owner_shm(&o, id, written);
	must(usrbio_owner_parse(written, &again) == 0);
	must(o.pid == again.pid && o.start == again.start && o.place == again.place);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	/* An exact allocation, so that a sanitizer sees reads past its end. */
	char *text = malloc(len + 1);

	must(text != NULL);
	if (len)
		memcpy(text, data, len);
	text[len] = '\0';
	try_name(text);
	try_owner(text);
	free(text);
	return 0;
}
