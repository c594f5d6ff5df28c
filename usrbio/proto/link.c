/* SPDX-License-Identifier: MIT */
#include "usrbio/proto/link.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "usrbio/proto/number.h"

#define SEM_PREFIX "sem."
#define GDR_PREFIX "gdr://"

/* Skip a text if the input continues with it; otherwise return false. */
static bool link_skip(const char **p, const char *text)
{
	size_t len = strlen(text);

	if (strncmp(*p, text, len) != 0)
		return false;
	*p += len;
	return true;
}

int usrbio_link_shm(const char *target, char ret_name[USRBIO_SHM_NAME_MAX])
{
	const char *p = target;
	size_t len;

	if (!link_skip(&p, USRBIO_SHM_DIR) || strchr(p, '/'))
		return -EINVAL;
	len = strlen(p);
	if (!len || len >= USRBIO_SHM_NAME_MAX || !strcmp(p, ".") || !strcmp(p, ".."))
		return -EINVAL;
	memcpy(ret_name, p, len + 1);
	return 0;
}

int usrbio_link_sem(const char *target, char ret_name[USRBIO_SHM_NAME_MAX])
{
	char file[USRBIO_SHM_NAME_MAX];
	const char *p = file;
	int r = usrbio_link_shm(target, file);

	if (r < 0)
		return r;
	if (!link_skip(&p, SEM_PREFIX) || !*p)
		return -EINVAL;
	/* The name fits, because names of shared memory are shorter than NAME_MAX. */
	(void)snprintf(ret_name, USRBIO_SHM_NAME_MAX, "/%s", p);
	return 0;
}

bool usrbio_link_is_gdr(const char *target)
{
	return link_skip(&target, GDR_PREFIX);
}

/* Return true for a gdr:// target of another version. */
static bool is_other_version(const char *p)
{
	uint64_t version;

	if (link_skip(&p, "device/"))
		return true;
	return link_skip(&p, "v") && usrbio_number(&p, 10, UINT32_MAX, &version) == 0 &&
	       *p == '/' && version != 2;
}

static int link_hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* Parse hexadecimal digits of either case up to the end of the text. */
static int parse_ipc(const char *p, uint8_t ret[USRBIO_IPC_LEN])
{
	if (strlen(p) != (size_t)2 * USRBIO_IPC_LEN)
		return -EINVAL;
	for (unsigned i = 0; i < USRBIO_IPC_LEN; i++) {
		int hi = link_hex_digit(p[(size_t)2 * i]),
		    lo = link_hex_digit(p[(size_t)2 * i + 1]);

		if (hi < 0 || lo < 0)
			return -EINVAL;
		ret[i] = (uint8_t)(hi << 4 | lo);
	}
	return 0;
}

/* Parse "NAME/NUMBER/". */
static int parse_part(const char **p, const char *name, uint64_t max, uint64_t *ret)
{
	if (!link_skip(p, name) || !link_skip(p, "/") || usrbio_number(p, 10, max, ret) < 0 ||
	    !link_skip(p, "/"))
		return -EINVAL;
	return 0;
}

int usrbio_gdr_parse(const char *target, struct usrbio_gdr *ret)
{
	struct usrbio_gdr g;
	const char *p = target;
	uint64_t device;

	if (strnlen(target, USRBIO_GDR_MAX) == USRBIO_GDR_MAX || !link_skip(&p, GDR_PREFIX))
		return -EINVAL;
	if (is_other_version(p))
		return -EPROTONOSUPPORT;
	if (!link_skip(&p, "v2/") || parse_part(&p, "device", INT32_MAX, &device) < 0 ||
	    parse_part(&p, "allocation", SIZE_MAX, &g.allocation) < 0 ||
	    parse_part(&p, "offset", SIZE_MAX, &g.off) < 0 ||
	    parse_part(&p, "size", SIZE_MAX, &g.size) < 0 || !link_skip(&p, "ipc/") ||
	    parse_ipc(p, g.ipc) < 0)
		return -EINVAL;
	if (!g.allocation || !g.size || g.off > g.allocation || g.size > g.allocation - g.off)
		return -EINVAL;
	g.device = (int32_t)device;
	*ret = g;
	return 0;
}

void usrbio_gdr_format(const struct usrbio_gdr *gdr, char ret_target[USRBIO_GDR_MAX])
{
	int n = snprintf(ret_target, USRBIO_GDR_MAX,
			 GDR_PREFIX "v2/device/%" PRId32 "/allocation/%" PRIu64 "/offset/%" PRIu64
				    "/size/%" PRIu64 "/ipc/",
			 gdr->device, gdr->allocation, gdr->off, gdr->size);

	for (unsigned i = 0; i < USRBIO_IPC_LEN; i++)
		n += snprintf(ret_target + n, USRBIO_GDR_MAX - (size_t)n, "%02x", gdr->ipc[i]);
}
