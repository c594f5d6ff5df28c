/* SPDX-License-Identifier: MIT */
#include "usrbio/proto/id.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

int usrbio_id_new(uint8_t ret_id[USRBIO_ID_LEN])
{
	uint8_t id[USRBIO_ID_LEN];
	ssize_t n;

	/* getrandom(2) returns 16 bytes whole or not at all. */
	do
		n = getrandom(id, sizeof(id), 0);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	id[6] = (uint8_t)((id[6] & 0x0f) | 0x40);
	id[8] = (uint8_t)((id[8] & 0x3f) | 0x80);
	memcpy(ret_id, id, sizeof(id));
	return 0;
}

void usrbio_id_format(const uint8_t id[USRBIO_ID_LEN], char ret_text[USRBIO_ID_TEXT])
{
	(void)snprintf(ret_text, USRBIO_ID_TEXT,
		       "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
		       id[0], id[1], id[2], id[3], id[4], id[5], id[6], id[7], id[8], id[9], id[10],
		       id[11], id[12], id[13], id[14], id[15]);
}

static int id_hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

int usrbio_id_parse(const char *text, uint8_t ret_id[USRBIO_ID_LEN])
{
	uint8_t id[USRBIO_ID_LEN];
	const char *p = text;

	for (unsigned i = 0; i < sizeof(id); i++) {
		int hi, lo;

		if ((i == 4 || i == 6 || i == 8 || i == 10) && *p++ != '-')
			return -EINVAL;
		hi = id_hex_digit(p[0]);
		if (hi < 0)
			return -EINVAL;
		lo = id_hex_digit(p[1]);
		if (lo < 0)
			return -EINVAL;
		id[i] = (uint8_t)(hi << 4 | lo);
		p += 2;
	}
	memcpy(ret_id, id, sizeof(id));
	return 0;
}
