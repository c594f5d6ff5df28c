/* SPDX-License-Identifier: MIT */
/*
 * Arbitrary bytes as the target of a link.  Accepted names must lie directly in /dev/shm;
 * accepted device memory must lie inside its allocation, and be the same after it is written and
 * read again.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "usrbio/proto/ipc.h"
#include "usrbio/proto/link.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* Abort unless @ok, also in release builds. */
static void must(int ok)
{
	if (!ok)
		abort();
}

static void try_shm(const char *text)
{
	char name[USRBIO_SHM_NAME_MAX], sem[USRBIO_SHM_NAME_MAX], whole[2 * USRBIO_SHM_NAME_MAX];

	if (usrbio_link_shm(text, name) < 0) {
		must(usrbio_link_sem(text, sem) == -EINVAL);
		return;
	}
	must(name[0] && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0);
	(void)snprintf(whole, sizeof(whole), "%s%s", USRBIO_SHM_DIR, name);
	must(!strcmp(whole, text));
	if (usrbio_link_sem(text, sem) < 0)
		return;
	must(sem[0] == '/' && sem[1] && !strchr(sem + 1, '/'));
	(void)snprintf(whole, sizeof(whole), "%ssem.%s", USRBIO_SHM_DIR, sem + 1);
	must(!strcmp(whole, text));
}

static void try_ipc(const uint8_t ipc[USRBIO_IPC_LEN])
{
	uint8_t written[USRBIO_IPC_LEN];
	struct usrbio_soft s;

	must(usrbio_ipc_pid(ipc) >= 0);
	if (usrbio_soft_parse(ipc, &s) < 0)
		return;
	must(usrbio_ipc_is_soft(ipc) && s.pid == usrbio_ipc_pid(ipc) && s.fd >= 0 && s.size);
	usrbio_soft_format(&s, written);
	must(!memcmp(written, ipc, sizeof(written)));
}

static void try_gdr(const char *text)
{
	char written[USRBIO_GDR_MAX];
	struct usrbio_gdr g, again;
	int r = usrbio_gdr_parse(text, &g);

	must(r == 0 || r == -EINVAL || r == -EPROTONOSUPPORT);
	must(r == -EINVAL || usrbio_link_is_gdr(text));
	if (r < 0)
		return;
	try_ipc(g.ipc);
	must(g.device >= 0 && g.allocation && g.size && g.off < g.allocation &&
	     g.size <= g.allocation - g.off);
	usrbio_gdr_format(&g, written);
	must(strlen(written) < sizeof(written));
	must(usrbio_gdr_parse(written, &again) == 0);
	must(g.device == again.device && g.allocation == again.allocation && g.off == again.off &&
	     g.size == again.size && !memcmp(g.ipc, again.ipc, sizeof(g.ipc)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	/* An exact allocation, so that a sanitizer sees reads past its end. */
	char *text = malloc(len + 1);

	must(text != NULL);
	if (len)
		memcpy(text, data, len);
	text[len] = '\0';
	try_shm(text);
	try_gdr(text);
	free(text);
	return 0;
}
