/* SPDX-License-Identifier: MIT */
/* Names in 3fs-virt/iovs: what each means, how each is written, and invalid ones. */
#include "t.h"

#include <errno.h>

#include "usrbio/proto/name.h"

#define ID "00112233-4455-6677-8899-aabbccddeeff"
#define ID_BYTES                                                                              \
	{                                                                                     \
		0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, \
			0xdd, 0xee, 0xff                                                      \
	}

#define FIFTY_ZEROS "00000000000000000000000000000000000000000000000000"

#define BUFFER(...)                                                                           \
	{                                                                                     \
		.kind = USRBIO_BUFFER, .id = ID_BYTES, .priority = USRBIO_NORMAL, __VA_ARGS__ \
	}
#define RING(...)                                                \
	{                                                        \
		.kind = USRBIO_RING, .id = ID_BYTES, __VA_ARGS__ \
	}
#define DEVICE(n)                                                                             \
	{                                                                                     \
		.kind = USRBIO_DEVICE, .id = ID_BYTES, .priority = USRBIO_NORMAL, .device = n \
	}

struct row {
	const char *text;
	struct usrbio_name name;
};

/* Clients write exactly these names, and parsing gives back the same values. */
static const struct row golden[] = {
	{ ID, BUFFER() },
	{ ID ".b1", BUFFER(.block_size = 1) },
	{ ID ".b1048576", BUFFER(.block_size = 1048576) },
	{ ID ".b18446744073709551615", BUFFER(.block_size = UINT64_MAX) },
	{ ID ".r0.t0", RING(.for_read = true, .priority = USRBIO_NORMAL) },
	{ ID ".w0.t0", RING(.priority = USRBIO_NORMAL) },
	{ ID ".r-16.t1",
	  RING(.for_read = true, .io_depth = -16, .priority = USRBIO_NORMAL, .timeout_ms = 1) },
	{ ID ".w1024.t0", RING(.io_depth = 1024, .priority = USRBIO_NORMAL) },
	{ ID ".r0.ph.t1", RING(.for_read = true, .priority = USRBIO_HIGH, .timeout_ms = 1) },
	{ ID ".w0.pl.t0", RING(.priority = USRBIO_LOW) },
	{ ID ".r0.t1.f10",
	  RING(.for_read = true, .priority = USRBIO_NORMAL, .timeout_ms = 1, .flags = 2) },
	{ ID ".r0.t0.f1", RING(.for_read = true, .priority = USRBIO_NORMAL, .flags = 1) },
	{ ID ".r0.t0.f11", RING(.for_read = true, .priority = USRBIO_NORMAL, .flags = 3) },
	{ ID ".r-2147483647.ph.t2147483647"
	     ".f1111111111111111111111111111111111111111111111111111111111111111",
	  RING(.for_read = true, .io_depth = -INT32_MAX, .priority = USRBIO_HIGH,
	       .timeout_ms = INT32_MAX, .flags = UINT64_MAX) },
	{ ID ".gdr.d0", DEVICE(0) },
	{ ID ".gdr.d2147483647", DEVICE(INT32_MAX) },
};

/* Names that are accepted, although no client writes them. */
static const struct row lax[] = {
	{ ID ".r0", RING(.for_read = true, .priority = USRBIO_NORMAL) },
	{ ID ".w-0", RING(.priority = USRBIO_NORMAL) },
	{ ID ".w0.t0.pn", RING(.priority = USRBIO_NORMAL) },
	{ ID ".w0.p.t0", RING(.priority = USRBIO_NORMAL) },
	{ ID ".w0.t0.p", RING(.priority = USRBIO_NORMAL) },
	{ ID ".t5.w0", RING(.priority = USRBIO_NORMAL, .timeout_ms = 5) },
	{ ID ".f101.t5.pl.r7", RING(.for_read = true, .io_depth = 7, .priority = USRBIO_LOW,
				    .timeout_ms = 5, .flags = 5) },
	{ ID ".r0.t0.f0", RING(.for_read = true, .priority = USRBIO_NORMAL) },
	{ ID ".b0004096", BUFFER(.block_size = 4096) },
};

static const char *const bad[] = {
	/* without a UUID */
	"",
	".b4096",
	"submit-ios",
	"submit-ios.ph",
	"00112233-4455-6677-8899-AABBCCDDEEFF",
	"00112233-4455-6677-8899-aabbccddeef",
	"00112233-4455-6677-8899-aabbccddeef.b4096",
	"." ID,
	" " ID,
	/* junk after the UUID */
	ID ".",
	ID "..",
	ID ".b4096.",
	ID "..b4096",
	ID "b4096",
	ID " ",
	ID "\n",
	ID "/",
	ID ".b4096/x",
	ID "0",
	/* unknown or capital letters, or more than one */
	ID ".x",
	ID ".x1",
	ID ".B4096",
	ID ".R0.t0",
	ID ".bb4096",
	ID ".read0",
	/* wrong numbers */
	ID ".b",
	ID ".b0",
	ID ".b00",
	ID ".b-1",
	ID ".b+1",
	ID ".b 1",
	ID ".b1 ",
	ID ".b0x1000",
	ID ".b4k",
	ID ".b1e3",
	ID ".b18446744073709551616",
	ID ".b99999999999999999999999999",
	ID ".r",
	ID ".r.t0",
	ID ".r-",
	ID ".r--1",
	ID ".r+1",
	ID ".r 1",
	ID ".r1x",
	ID ".r2147483648",
	ID ".r-2147483648",
	ID ".r4294967296",
	ID ".r0.t",
	ID ".r0.t-1",
	ID ".r0.t2147483648",
	ID ".r0.f",
	ID ".r0.f2",
	ID ".r0.f-1",
	ID ".r0.f0b1",
	ID ".r0.f10000000000000000000000000000000000000000000000000000000000000000",
	/* wrong priorities */
	ID ".r0.px",
	ID ".r0.phh",
	ID ".r0.pH",
	ID ".r0.p0",
	ID ".r0.ph1",
	/* an attribute twice */
	ID ".b1.b1",
	ID ".r0.r0",
	ID ".r0.w0",
	ID ".r0.ph.ph",
	ID ".r0.p.pl",
	ID ".r0.t0.t0",
	ID ".r0.t0.f1.f1",
	ID ".gdr.d0.gdr.d0",
	/* an attribute of another kind */
	ID ".ph",
	ID ".t0",
	ID ".f1",
	ID ".b4096.t0",
	ID ".b4096.ph",
	ID ".b4096.f1",
	ID ".b4096.r0.t0",
	ID ".r0.t0.b4096",
	/* wrong device memory */
	ID ".gdr",
	ID ".gdr.",
	ID ".gdr.d",
	ID ".gdr0",
	ID ".gdrd0",
	ID ".d0",
	ID ".d0.gdr",
	ID ".GDR.d0",
	ID ".gdr.D0",
	ID ".gdr.d-1",
	ID ".gdr.d+1",
	ID ".gdr.d1x",
	ID ".gdr.d2147483648",
	ID ".gdr.d0.d0",
	ID ".gdr.b4096.d0",
	ID ".gdr.d0.b4096",
	ID ".b4096.gdr.d0",
	ID ".gdr.d0.r0",
	ID ".gdr.d0.w0",
	ID ".gdr.d0.ph",
	ID ".gdr.d0.t0",
	ID ".gdr.d0.f1",
	ID ".gdr.d0.x",
	/* too long */
	ID ".b" FIFTY_ZEROS FIFTY_ZEROS FIFTY_ZEROS "1",
};

#define ROWS(a) (sizeof(a) / sizeof(*(a)))

static void must_read(const struct row *row)
{
	struct usrbio_name n;

	if (usrbio_name_parse(row->text, &n) != 0)
		T_FAIL("'%s' was not taken", row->text);
	if (n.kind != row->name.kind || memcmp(n.id, row->name.id, sizeof(n.id)) != 0 ||
	    n.block_size != row->name.block_size || n.for_read != row->name.for_read ||
	    n.io_depth != row->name.io_depth || n.priority != row->name.priority ||
	    n.timeout_ms != row->name.timeout_ms || n.flags != row->name.flags ||
	    n.device != row->name.device)
		T_FAIL("'%s' was read as something else", row->text);
}

static void P2_names_of_clients(void)
{
	char text[USRBIO_NAME_MAX];

	for (size_t i = 0; i < ROWS(golden); i++) {
		must_read(&golden[i]);
		usrbio_name_format(&golden[i].name, text);
		if (strcmp(text, golden[i].text) != 0)
			T_FAIL("'%s' was written, not '%s'", text, golden[i].text);
	}
}

static void P2_names_in_other_forms(void)
{
	for (size_t i = 0; i < ROWS(lax); i++)
		must_read(&lax[i]);
}

static void P2_what_is_no_name(void)
{
	for (size_t i = 0; i < ROWS(bad); i++) {
		struct usrbio_name n, before;

		memset(&n, 0x5a, sizeof(n));
		before = n;
		if (usrbio_name_parse(bad[i], &n) != -EINVAL)
			T_FAIL("'%s' was taken", bad[i]);
		T_CHECK(!memcmp(&n, &before, sizeof(n)));
	}
}

/* A truncated good name is good only if it ends where a name may end. */
static void P2_names_that_are_cut(void)
{
	static const char whole[] = ID ".r-16.ph.t25.f10";
	static const char *const good[] = {
		ID,
		ID ".r-1",
		ID ".r-16",
		ID ".r-16.p",
		ID ".r-16.ph",
		ID ".r-16.ph.t2",
		ID ".r-16.ph.t25",
		ID ".r-16.ph.t25.f1",
		whole,
	};
	size_t at = 0;

	for (size_t len = 0; len < sizeof(whole); len++) {
		char *text = strndup(whole, len); /* ASan notices reads past the end */
		struct usrbio_name n;
		int r = usrbio_name_parse(text, &n);
		bool is_good = at < ROWS(good) && !strcmp(text, good[at]);

		free(text);
		if (r != (is_good ? 0 : -EINVAL))
			T_FAIL("%zu bytes gave %d", len, r);
		at += is_good;
	}
	T_EQ(at, ROWS(good));
}

static void P2_names_of_semaphores(void)
{
	static const char *const names[] = USRBIO_SEM_NAMES;

	T_EQ(ROWS(names), USRBIO_PRIORITIES);
	T_CHECK(!strcmp(names[USRBIO_HIGH], "submit-ios.ph"));
	T_CHECK(!strcmp(names[USRBIO_NORMAL], "submit-ios"));
	T_CHECK(!strcmp(names[USRBIO_LOW], "submit-ios.pl"));
}

int main(void)
{
	T_RUN(P2_names_of_clients);
	T_RUN(P2_names_in_other_forms);
	T_RUN(P2_what_is_no_name);
	T_RUN(P2_names_that_are_cut);
	T_RUN(P2_names_of_semaphores);
	return t_done();
}
