/* SPDX-License-Identifier: MIT */
#include "tools/common/numbers.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

int parse_size(const char *text, uint64_t *ret)
{
	static const char units[] = "kmgt";
	const char *u;
	double v;
	char *end;
	unsigned shift = 0;

	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	v = strtod(text, &end);
	u = *end ? strchr(units, tolower((unsigned char)*end)) : NULL;
	if (u) {
		shift = 10 * (unsigned)(u - units + 1);
		end++;
		if (tolower((unsigned char)end[0]) == 'i' && tolower((unsigned char)end[1]) == 'b')
			end += 2;
		else if (tolower((unsigned char)end[0]) == 'b')
			end++;
	}
	v *= (double)(UINT64_C(1) << shift);
	if (*end || !(v >= 0) || v >= 9.2e18)
		return -EINVAL;
	*ret = (uint64_t)v;
	return 0;
}

int parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *ret)
{
	unsigned long long v;
	char *end;

	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	errno = 0;
	v = strtoull(text, &end, 10);
	if (errno || *end || v < min || v > max)
		return -EINVAL;
	*ret = v;
	return 0;
}

int parse_seconds(const char *text, double *ret)
{
	double v;
	char *end;

	if (!isdigit((unsigned char)*text) && *text != '.')
		return -EINVAL;
	v = strtod(text, &end);
	if (*end == 's')
		end++;
	if (*end || !(v > 0) || v > 86400)
		return -EINVAL;
	*ret = v;
	return 0;
}

double gb_per_s(uint64_t bytes, uint64_t ns)
{
	return ns ? (double)bytes / (double)ns : 0;
}

struct text size_text(uint64_t bytes)
{
	static const char *const units[] = { "bytes", "KiB", "MiB", "GiB", "TiB" };
	double v = (double)bytes;
	struct text t;
	size_t u = 0;

	while (v >= 1024 && u + 1 < ARRAY_SIZE(units)) {
		v /= 1024;
		u++;
	}
	if (v == floor(v) || v >= 100)
		(void)snprintf(t.s, sizeof(t.s), "%.0f %s", v, units[u]);
	else
		(void)snprintf(t.s, sizeof(t.s), "%.1f %s", v, units[u]);
	return t;
}

struct text time_text(uint64_t ns)
{
	struct text t;

	if (ns < 1000000)
		(void)snprintf(t.s, sizeof(t.s), "%.*f us", ns < 100000, (double)ns / 1e3);
	else if (ns < NSEC_PER_SEC)
		(void)snprintf(t.s, sizeof(t.s), "%.*f ms", ns < 100000000, (double)ns / 1e6);
	else
		(void)snprintf(t.s, sizeof(t.s), "%.2f s", (double)ns / 1e9);
	return t;
}

struct text gb_text(double v)
{
	struct text t;

	(void)snprintf(t.s, sizeof(t.s), "%.*f", v < 0.1 ? 4 : 2, v);
	return t;
}

struct text rate_text(uint64_t bytes, uint64_t ns)
{
	return gb_text(gb_per_s(bytes, ns));
}

uint64_t gcd(uint64_t a, uint64_t b)
{
	while (b) {
		uint64_t t = a % b;

		a = b;
		b = t;
	}
	return a;
}
