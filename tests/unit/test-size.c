/* SPDX-License-Identifier: MIT */
#include "base/err.h"
#include "base/size.h"

#define T_ERROR_TEXT() err_text()
#include "t.h"

static void numbers(void)
{
	static const struct {
		const char *text;
		uint64_t want;
	} good[] = {
		{ "0", 0 },
		{ "1", 1 },
		{ "4096", 4096 },
		{ "0001", 1 },
		{ "0K", 0 },
		{ "1K", 1024 },
		{ "1k", 1024 },
		{ "256M", UINT64_C(256) << 20 },
		{ "3m", UINT64_C(3) << 20 },
		{ "64G", UINT64_C(64) << 30 },
		{ "2g", UINT64_C(2) << 30 },
		{ "1T", UINT64_C(1) << 40 },
		{ "1t", UINT64_C(1) << 40 },
		{ "18446744073709551615", UINT64_MAX },
		{ "16777215T", UINT64_C(16777215) << 40 },
		{ "18014398509481983K", UINT64_C(18014398509481983) << 10 },
	};

	for (unsigned i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		uint64_t v = 77;

		if (size_parse(good[i].text, &v) != 0 || v != good[i].want)
			T_FAIL("%s is %" PRIu64 ": %s", good[i].text, v, err_text());
	}
}

static void nonsense(void)
{
	static const char *const bad[] = {
		"",    " ",    "64 G", " 64",  "64G ",      "G",     "64GB", "64GiB",
		"-1",  "+1",   "1.5G", "1,",   "0x",        "0x10",  "1e9",  "1KK",
		"1P",  "1E",   "\n",   "12\n", "\xff",      "9\xff", "M1",   "--",
		"inf", "6 4G", "%s%n", "\t8",  "unlimited",
	};
	static const char *const large[] = {
		"18446744073709551616",
		"99999999999999999999",
		"16777216T",
		"18014398509481984K",
		"340282366920938463463374607431768211456",
		"18446744073709551616K",
	};
	uint64_t v = 77;

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		if (size_parse(bad[i], &v) != -EINVAL)
			T_FAIL("\"%s\" was taken", bad[i]);
		T_CHECK(strstr(err_text(), "bytes"));
	}
	for (unsigned i = 0; i < sizeof(large) / sizeof(large[0]); i++)
		if (size_parse(large[i], &v) != -ERANGE)
			T_FAIL("%s was taken", large[i]);
	T_EQ(v, 77);
}

int main(void)
{
	T_RUN(numbers);
	T_RUN(nonsense);
	return t_done();
}
