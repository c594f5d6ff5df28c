/* SPDX-License-Identifier: MIT */
/* UUIDs: their text form, and invalid ones. */
#include "t.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "usrbio/proto/id.h"

#define TEXT "00112233-4455-6677-8899-aabbccddeeff"

static const uint8_t bytes[USRBIO_ID_LEN] = { 0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77,
					      0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff };

static void P2_id_is_written_and_read(void)
{
	char text[USRBIO_ID_TEXT];
	uint8_t id[USRBIO_ID_LEN];

	usrbio_id_format(bytes, text);
	T_CHECK(!strcmp(text, TEXT));
	T_OK(usrbio_id_parse(text, id));
	T_CHECK(!memcmp(id, bytes, sizeof(id)));
	/* In names, attributes follow the UUID. */
	T_OK(usrbio_id_parse(TEXT ".b4096", id));
	T_OK(usrbio_id_parse(TEXT "0", id));
}

static void P2_what_is_no_id(void)
{
	static const char *const bad[] = {
		"",
		"-",
		"00112233-4455-6677-8899-aabbccddeef",
		"00112233-4455-6677-8899-aabbccddeeg",
		"00112233-4455-6677-8899-AABBCCDDEEFF",
		"00112233-4455-6677-8899-aabbccddeeF",
		"00112233445566778899aabbccddeeff",
		"00112233-4455-6677-8899aabbccddeeff",
		"00112233-4455-6677-8899-aabb-ccddeeff",
		"0011223-34455-6677-8899-aabbccddeeff",
		"{0112233-4455-6677-8899-aabbccddeeff}",
		" 0112233-4455-6677-8899-aabbccddeeff",
		"0x112233-4455-6677-8899-aabbccddeeff",
	};
	uint8_t id[USRBIO_ID_LEN];

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		memset(id, 0x5a, sizeof(id));
		if (usrbio_id_parse(bad[i], id) != -EINVAL)
			T_FAIL("'%s' was taken", bad[i]);
		for (size_t j = 0; j < sizeof(id); j++)
			T_EQ(id[j], 0x5a);
	}
}

/* Parse every shorter length, right before inaccessible memory. */
static void P2_no_byte_behind_the_end_is_read(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *p = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t id[USRBIO_ID_LEN];

	T_CHECK(p != MAP_FAILED);
	T_EQ(mprotect(p + page, page, PROT_NONE), 0);
	for (size_t len = 0; len <= strlen(TEXT); len++) {
		char *text = p + page - len - 1;

		memcpy(text, TEXT, len);
		text[len] = '\0';
		T_EQ(usrbio_id_parse(text, id), len == strlen(TEXT) ? 0 : -EINVAL);
	}
	T_EQ(munmap(p, 2 * page), 0);
}

static void new_ones_are_random(void)
{
	uint8_t a[USRBIO_ID_LEN], b[USRBIO_ID_LEN], seen[USRBIO_ID_LEN] = { 0 };

	for (int i = 0; i < 1000; i++) {
		T_OK(usrbio_id_new(a));
		T_OK(usrbio_id_new(b));
		T_CHECK(memcmp(a, b, sizeof(a)) != 0);
		T_EQ(a[6] >> 4, 4); /* version */
		T_EQ(a[8] >> 6, 2); /* variant */
		for (size_t j = 0; j < sizeof(a); j++)
			seen[j] |= (uint8_t)(a[j] ^ b[j]);
	}
	/* Each random bit must differ in at least one of 1000 pairs. */
	for (size_t j = 0; j < sizeof(seen); j++)
		T_EQ(seen[j], j == 6 ? 0x0f : j == 8 ? 0x3f : 0xff);
}

int main(void)
{
	T_RUN(P2_id_is_written_and_read);
	T_RUN(P2_what_is_no_id);
	T_RUN(P2_no_byte_behind_the_end_is_read);
	T_RUN(new_ones_are_random);
	return t_done();
}
