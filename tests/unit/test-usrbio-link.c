/* SPDX-License-Identifier: MIT */
/* Targets of published names. */
#include "t.h"

#include <errno.h>

#include "usrbio/proto/link.h"

#define ROWS(a) (sizeof(a) / sizeof(*(a)))

#define TEN "0123456789"
#define FIFTY TEN TEN TEN TEN TEN
#define LONGEST FIFTY FIFTY FIFTY FIFTY FIFTY "01234" /* 255 bytes, which is NAME_MAX */
#define LONGEST_SEM FIFTY FIFTY FIFTY FIFTY FIFTY "0" /* 255 bytes with "sem." */

static void P2_shared_memory(void)
{
	static const struct {
		const char *target, *name;
	} good[] = {
		{ "/dev/shm/hf3fs-iov-00112233-4455-6677-8899-aabbccddeeff",
		  "hf3fs-iov-00112233-4455-6677-8899-aabbccddeeff" },
		{ "/dev/shm/psm_1a2b3c4d", "psm_1a2b3c4d" },
		{ "/dev/shm/nixl_hf3fs.00112233-4455-6677-8899-aabbccddeeff",
		  "nixl_hf3fs.00112233-4455-6677-8899-aabbccddeeff" },
		{ "/dev/shm/a", "a" },
		{ "/dev/shm/...", "..." },
		{ "/dev/shm/.a", ".a" },
		{ "/dev/shm/..a", "..a" },
		{ "/dev/shm/ ", " " },
		{ "/dev/shm/" LONGEST, LONGEST },
	};

	for (size_t i = 0; i < ROWS(good); i++) {
		char name[USRBIO_SHM_NAME_MAX];

		if (usrbio_link_shm(good[i].target, name) != 0 || strcmp(name, good[i].name) != 0)
			T_FAIL("'%s' was not taken", good[i].target);
	}
}

static void P2_what_is_no_shared_memory(void)
{
	static const char *const bad[] = {
		"",
		"/",
		"a",
		"dev/shm/a",
		"./dev/shm/a",
		"/dev/shm",
		"/dev/shm/",
		"/dev/shm/.",
		"/dev/shm/..",
		"/dev/shm//",
		"/dev/shm//a",
		"/dev/shm/a/",
		"/dev/shm/a/b",
		"/dev/shm/../etc/passwd",
		"/dev/shm/./a",
		"/dev/shm/a/../b",
		"/dev/shmX/a",
		"/dev/shmX",
		"/dev//shm/a",
		"//dev/shm/a",
		"/DEV/SHM/a",
		" /dev/shm/a",
		"/run/shm/a",
		"/etc/passwd",
		"gdr://v2/device/0",
		"/dev/shm/" LONGEST "x",
	};

	for (size_t i = 0; i < ROWS(bad); i++) {
		char name[USRBIO_SHM_NAME_MAX] = "as it was";

		if (usrbio_link_shm(bad[i], name) != -EINVAL || strcmp(name, "as it was") != 0)
			T_FAIL("'%s' was taken", bad[i]);
	}
}

static void P2_semaphores(void)
{
	char name[USRBIO_SHM_NAME_MAX];

	T_OK(usrbio_link_sem("/dev/shm/sem.hf3fs-submit-ios.00112233-4455-6677-8899-aabbccddeeff",
			     name));
	T_CHECK(!strcmp(name, "/hf3fs-submit-ios.00112233-4455-6677-8899-aabbccddeeff"));
	T_OK(usrbio_link_sem("/dev/shm/sem.a", name));
	T_CHECK(!strcmp(name, "/a"));
	T_OK(usrbio_link_sem("/dev/shm/sem." LONGEST_SEM, name));
	T_CHECK(!strcmp(name, "/" LONGEST_SEM));
}

static void P2_what_is_no_semaphore(void)
{
	static const char *const bad[] = {
		"",
		"/dev/shm/",
		"/dev/shm/a",
		"/dev/shm/sem",
		"/dev/shm/sem.",
		"/dev/shm/SEM.a",
		"/dev/shm/xsem.a",
		"/dev/shm/sem./a",
		"/dev/shm/sem.a/b",
		"/dev/shm/sem.a/../b",
		"/tmp/sem.a",
		"sem.a",
		"/dev/shm/sem." LONGEST_SEM "x",
	};

	for (size_t i = 0; i < ROWS(bad); i++) {
		char name[USRBIO_SHM_NAME_MAX] = "as it was";

		if (usrbio_link_sem(bad[i], name) != -EINVAL || strcmp(name, "as it was") != 0)
			T_FAIL("'%s' was taken", bad[i]);
	}
}

/* ---------------------------------------------------------- device memory */

#define HEX                                                                \
	"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f" \
	"202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f"
#define HEX_CAPITALS                                                       \
	"000102030405060708090A0B0C0D0E0F101112131415161718191A1B1C1D1E1F" \
	"202122232425262728292A2B2C2D2E2F303132333435363738393A3B3C3D3E3F"
#define V2(d, a, o, s) "gdr://v2/device/" d "/allocation/" a "/offset/" o "/size/" s "/ipc/" HEX
#define ZEROS "00000000000000000000000000000000000000000000000000"
#define MAX "18446744073709551615"

static void must_be_gdr(const char *target, struct usrbio_gdr want, bool as_written)
{
	char text[USRBIO_GDR_MAX];
	struct usrbio_gdr g;

	for (unsigned i = 0; i < USRBIO_IPC_LEN; i++)
		want.ipc[i] = (uint8_t)i;
	if (usrbio_gdr_parse(target, &g) != 0)
		T_FAIL("'%s' was not taken", target);
	T_CHECK(usrbio_link_is_gdr(target));
	T_EQ(g.device, want.device);
	T_EQ(g.allocation, want.allocation);
	T_EQ(g.off, want.off);
	T_EQ(g.size, want.size);
	T_CHECK(!memcmp(g.ipc, want.ipc, sizeof(g.ipc)));
	if (as_written) {
		usrbio_gdr_format(&want, text);
		if (strcmp(text, target) != 0)
			T_FAIL("'%s' was written, not '%s'", text, target);
	}
}

static void P2_device_memory(void)
{
	must_be_gdr(V2("0", "4096", "0", "4096"),
		    (struct usrbio_gdr){ .allocation = 4096, .size = 4096 }, true);
	must_be_gdr(V2("7", "2097152", "512", "1048576"),
		    (struct usrbio_gdr){
			    .device = 7, .allocation = 2097152, .off = 512, .size = 1048576 },
		    true);
	must_be_gdr(V2("2147483647", MAX, "0", MAX),
		    (struct usrbio_gdr){ INT32_MAX, UINT64_MAX, 0, UINT64_MAX, { 0 } }, true);
	must_be_gdr(V2("0", MAX, "18446744073709551614", "1"),
		    (struct usrbio_gdr){ 0, UINT64_MAX, UINT64_MAX - 1, 1, { 0 } }, true);
	must_be_gdr(V2("00", "01", "00", "01"), (struct usrbio_gdr){ .allocation = 1, .size = 1 },
		    false);
	must_be_gdr("gdr://v2/device/0/allocation/1/offset/0/size/1/ipc/" HEX_CAPITALS,
		    (struct usrbio_gdr){ .allocation = 1, .size = 1 }, false);
}

/* Versions that no other process can use. */
static void P2_other_versions(void)
{
	static const char *const other[] = {
		"gdr://device/0/ptr/140737488355328/size/4096",
		"gdr://device/",
		"gdr://v0/",
		"gdr://v1/device/0/size/4096/ipc/" HEX,
		"gdr://v1/",
		"gdr://v3/device/0/allocation/1/offset/0/size/1/ipc/" HEX,
		"gdr://v22/device/0/allocation/1/offset/0/size/1/ipc/" HEX,
	};

	for (size_t i = 0; i < ROWS(other); i++) {
		struct usrbio_gdr g = { .device = -5 };

		T_CHECK(usrbio_link_is_gdr(other[i]));
		if (usrbio_gdr_parse(other[i], &g) != -EPROTONOSUPPORT || g.device != -5)
			T_FAIL("'%s' gave another error", other[i]);
	}
}

static void P2_what_is_no_device_memory(void)
{
	static const char *const bad[] = {
		"",
		"gdr:",
		"gdr://",
		"gdr://v2",
		"gdr://v2/",
		"gdr://v2x/",
		"gdr://v/device/0",
		"gdr://2/device/0",
		"gdr://V2/device/0/allocation/1/offset/0/size/1/ipc/" HEX,
		"GDR://v2/device/0/allocation/1/offset/0/size/1/ipc/" HEX,
		"gdr:/v2/device/0/allocation/1/offset/0/size/1/ipc/" HEX,
		" gdr://v2/device/0/allocation/1/offset/0/size/1/ipc/" HEX,
		"/dev/shm/gdr:",
		/* wrong ranges */
		V2("0", "0", "0", "0"),
		V2("0", "0", "0", "1"),
		V2("0", "4096", "0", "0"),
		V2("0", "4096", "0", "4097"),
		V2("0", "4096", "1", "4096"),
		V2("0", "4096", "4096", "1"),
		V2("0", "4096", "4097", "1"),
		V2("0", "4096", MAX, "2"),
		V2("0", "4096", "18446744073709547521", "4096"),
		V2("0", "4096", "1", MAX),
		/* wrong numbers */
		V2("", "1", "0", "1"),
		V2("-1", "1", "0", "1"),
		V2("+0", "1", "0", "1"),
		V2(" 0", "1", "0", "1"),
		V2("0x0", "1", "0", "1"),
		V2("2147483648", "1", "0", "1"),
		V2("0", "18446744073709551616", "0", "1"),
		V2("0", "1", "18446744073709551616", "1"),
		V2("0", "1", "0", "18446744073709551617"),
		V2("0", "1 ", "0", "1"),
		V2("0", "1", "", "1"),
		/* parts missing, twice, in another order, or with other names */
		"gdr://v2/allocation/1/device/0/offset/0/size/1/ipc/" HEX,
		"gdr://v2/device/0/allocation/1/size/1/offset/0/ipc/" HEX,
		"gdr://v2/device/0/allocation/1/size/1/ipc/" HEX,
		"gdr://v2/device/0/device/0/allocation/1/offset/0/size/1/ipc/" HEX,
		"gdr://v2/device/0/alloc/1/offset/0/size/1/ipc/" HEX,
		"gdr://v2/Device/0/allocation/1/offset/0/size/1/ipc/" HEX,
		"gdr://v2/device/0/allocation/1/offset/0/size/1/" HEX,
		"gdr://v2//device/0/allocation/1/offset/0/size/1/ipc/" HEX,
		/* wrong handles */
		"gdr://v2/device/0/allocation/1/offset/0/size/1/ipc/",
		"gdr://v2/device/0/allocation/1/offset/0/size/1/ipc",
		"gdr://v2/device/0/allocation/1/offset/0/size/1",
		V2("0", "1", "0", "1") "0",
		V2("0", "1", "0", "1") "/",
		V2("0", "1", "0", "1") "\n",
		/* too long */
		V2("0", ZEROS ZEROS ZEROS ZEROS ZEROS "1", "0", "1"),
	};

	for (size_t i = 0; i < ROWS(bad); i++) {
		struct usrbio_gdr g = { .device = -5 };

		if (usrbio_gdr_parse(bad[i], &g) != -EINVAL || g.device != -5)
			T_FAIL("'%s' was taken", bad[i]);
	}
	T_CHECK(!usrbio_link_is_gdr("/dev/shm/a"));
	T_CHECK(!usrbio_link_is_gdr("gdr:/"));
	T_CHECK(!usrbio_link_is_gdr("GDR://v2/"));
}

static void P2_each_digit_of_the_handle_counts(void)
{
	static const char whole[] = V2("0", "1", "0", "1");
	struct usrbio_gdr g;

	for (size_t i = sizeof(whole) - 1 - 128; i < sizeof(whole) - 1; i++) {
		static const char wrong[] = "gG/:@`-. ";
		char text[sizeof(whole)];

		for (const char *c = wrong; *c; c++) {
			memcpy(text, whole, sizeof(text));
			text[i] = *c;
			T_EQ(usrbio_gdr_parse(text, &g), -EINVAL);
		}
	}
}

static void P2_targets_that_are_cut(void)
{
	static const char whole[] = V2("0", "4096", "0", "4096");

	for (size_t len = 0; len < sizeof(whole) - 1; len++) {
		char *text = strndup(whole, len); /* ASan notices reads past the end */
		struct usrbio_gdr g;
		int r = usrbio_gdr_parse(text, &g);

		free(text);
		T_EQ(r, -EINVAL);
	}
}

int main(void)
{
	T_RUN(P2_shared_memory);
	T_RUN(P2_what_is_no_shared_memory);
	T_RUN(P2_semaphores);
	T_RUN(P2_what_is_no_semaphore);
	T_RUN(P2_device_memory);
	T_RUN(P2_other_versions);
	T_RUN(P2_what_is_no_device_memory);
	T_RUN(P2_each_digit_of_the_handle_counts);
	T_RUN(P2_targets_that_are_cut);
	return t_done();
}
