/* SPDX-License-Identifier: MIT */
/* Signature Version 4 for the service s3, as described in Amazon's "Signing AWS requests". */
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>

#include "base/err.h"
#include "s3/s3.h"

#define SHA_LEN 32u

static bool is_unreserved(unsigned char c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
	       c == '-' || c == '.' || c == '_' || c == '~';
}

char *encode_uri(const char *text, bool slash)
{
	static const char digits[] = "0123456789ABCDEF";
	char *ret = malloc(strlen(text) * 3 + 1), *at = ret;

	if (!ret)
		return NULL;
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (is_unreserved(c) || (slash && c == '/')) {
			*at++ = (char)c;
			continue;
		}
		*at++ = '%';
		*at++ = digits[c >> 4];
		*at++ = digits[c & 15];
	}
	*at = '\0';
	return ret;
}

/* ------------------------------------------------------------------- query */

struct encoded {
	char *name, *value;
};

static int by_name_and_value(const void *a, const void *b)
{
	const struct encoded *x = a, *y = b;
	int r = strcmp(x->name, y->name);

	return r ? r : strcmp(x->value, y->value);
}

static char *join_query(const struct encoded *e, size_t nr)
{
	size_t len = 1;
	char *ret, *at;

	for (size_t i = 0; i < nr; i++)
		len += strlen(e[i].name) + strlen(e[i].value) + 2;
	ret = malloc(len);
	if (!ret)
		return NULL;
	*ret = '\0';
	at = ret;
	for (size_t i = 0; i < nr; i++)
		at += snprintf(at, len - (size_t)(at - ret), "%s%s=%s", i ? "&" : "", e[i].name,
			       e[i].value);
	return ret;
}

char *encode_query(const struct pair *pairs, size_t nr)
{
	struct encoded *e = calloc(nr + 1, sizeof(*e));
	bool ok = e;
	char *ret;

	for (size_t i = 0; ok && i < nr; i++) {
		e[i].name = encode_uri(pairs[i].name, false);
		e[i].value = encode_uri(pairs[i].value, false);
		ok = e[i].name && e[i].value;
	}
	if (ok)
		qsort(e, nr, sizeof(*e), by_name_and_value);
	ret = ok ? join_query(e, nr) : NULL;
	for (size_t i = 0; e && i < nr; i++) {
		free(e[i].name);
		free(e[i].value);
	}
	free(e);
	return ret;
}

/* ----------------------------------------------------------------- digests */

static void sign_hex(const uint8_t *digest, char ret[SHA_HEX_LEN])
{
	for (unsigned i = 0; i < SHA_LEN; i++)
		(void)snprintf(ret + (size_t)2 * i, 3, "%02x", digest[i]);
}

void sha256_hex(const void *data, size_t len, char ret[SHA_HEX_LEN])
{
	uint8_t digest[EVP_MAX_MD_SIZE] = { 0 };

	(void)EVP_Digest(data, len, digest, NULL, EVP_sha256(), NULL);
	sign_hex(digest, ret);
}

static bool hmac(const void *key, size_t key_len, const char *text, uint8_t ret[SHA_LEN])
{
	uint8_t digest[EVP_MAX_MD_SIZE];

	if (!HMAC(EVP_sha256(), key, (int)key_len, (const uint8_t *)text, strlen(text), digest,
		  NULL))
		return false;
	memcpy(ret, digest, SHA_LEN);
	return true;
}

bool sign_date(int64_t skew_s, char ret[SIGN_DATE_LEN])
{
	time_t now = time(NULL) + (time_t)skew_s;
	struct tm tm;

	return gmtime_r(&now, &tm) &&
	       strftime(ret, SIGN_DATE_LEN, "%Y%m%dT%H%M%SZ", &tm) == SIGN_DATE_LEN - 1;
}

/* ----------------------------------------------------------------- headers */

struct line {
	char name[64];
	const char *value;
	size_t idx; /* keeps the order of headers with equal names */
};

static int sign_by_name(const void *a, const void *b)
{
	const struct line *x = a, *y = b;
	int r = strcmp(x->name, y->name);

	return r ? r : (x->idx > y->idx) - (x->idx < y->idx);
}

static bool is_blank(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Write a value with single blanks inside and none at its ends. */
static void put_value(FILE *to, const char *value)
{
	bool gap = false, begun = false;

	for (; *value; value++) {
		if (is_blank(*value)) {
			gap = begun;
			continue;
		}
		if (gap)
			(void)fputc(' ', to);
		(void)fputc(*value, to);
		gap = false;
		begun = true;
	}
}

static void put_headers(FILE *to, const struct line *l, size_t nr)
{
	for (size_t i = 0; i < nr; i++) {
		bool more = i && strcmp(l[i].name, l[i - 1].name) == 0;

		(void)fprintf(to, "%s", more ? "," : i ? "\n" : "");
		if (!more)
			(void)fprintf(to, "%s:", l[i].name);
		put_value(to, l[i].value);
	}
	(void)fputs("\n\n", to);
}

static void put_names(FILE *to, const struct line *l, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		if (!i || strcmp(l[i].name, l[i - 1].name) != 0)
			(void)fprintf(to, "%s%s", i ? ";" : "", l[i].name);
}

static int sort_headers(const struct to_sign *s, struct line *l)
{
	if (s->nr_headers > SIGN_HEADERS_MAX)
		return err_set(E2BIG, "a request has more than %u headers to sign",
			       SIGN_HEADERS_MAX);
	for (size_t i = 0; i < s->nr_headers; i++) {
		const char *from = s->headers[i].name;
		size_t n = strlen(from);

		if (n >= sizeof(l[i].name))
			return err_set(E2BIG, "the name of a header is too long to sign");
		for (size_t j = 0; j <= n; j++)
			l[i].name[j] = (char)(from[j] >= 'A' && from[j] <= 'Z' ? from[j] + 32
									       : from[j]);
		l[i].value = s->headers[i].value;
		l[i].idx = i;
	}
	qsort(l, s->nr_headers, sizeof(*l), sign_by_name);
	return 0;
}

/* --------------------------------------------------------------- signature */

static bool signing_key(const struct keys *k, const struct to_sign *s, uint8_t ret[SHA_LEN])
{
	char first[sizeof(k->secret) + 4], day[9];
	bool ok;

	(void)snprintf(first, sizeof(first), "AWS4%s", k->secret);
	(void)snprintf(day, sizeof(day), "%.8s", s->date);
	ok = hmac(first, strlen(first), day, ret) && hmac(ret, SHA_LEN, s->region, ret) &&
	     hmac(ret, SHA_LEN, s->service, ret) && hmac(ret, SHA_LEN, "aws4_request", ret);
	explicit_bzero(first, sizeof(first));
	return ok;
}

/* Compute the SHA-256 of the canonical request. */
static bool canonical_hash(const struct to_sign *s, const struct line *l, char ret[SHA_HEX_LEN])
{
	char *text = NULL;
	size_t len = 0;
	FILE *to = open_memstream(&text, &len);
	bool ok;

	if (!to)
		return false;
	(void)fprintf(to, "%s\n%s\n%s\n", s->method, s->path, s->query);
	put_headers(to, l, s->nr_headers);
	put_names(to, l, s->nr_headers);
	(void)fprintf(to, "\n%s", s->payload);
	ok = fclose(to) == 0;
	if (ok)
		sha256_hex(text, len, ret);
	free(text);
	return ok;
}

char *sign(const struct keys *k, const struct to_sign *s)
{
	struct line lines[SIGN_HEADERS_MAX];
	char hash[SHA_HEX_LEN], signature[SHA_HEX_LEN], scope[160], text[400], *ret = NULL;
	uint8_t key[SHA_LEN], digest[SHA_LEN];
	size_t len = 0;
	FILE *to;
	bool ok;

	if (sort_headers(s, lines) < 0)
		return NULL;
	(void)snprintf(scope, sizeof(scope), "%.8s/%s/%s/aws4_request", s->date, s->region,
		       s->service);
	ok = canonical_hash(s, lines, hash);
	if (ok)
		(void)snprintf(text, sizeof(text), "AWS4-HMAC-SHA256\n%s\n%s\n%s", s->date, scope,
			       hash);
	ok = ok && signing_key(k, s, key) && hmac(key, sizeof(key), text, digest);
	explicit_bzero(key, sizeof(key));
	if (ok)
		sign_hex(digest, signature);
	to = ok ? open_memstream(&ret, &len) : NULL;
	if (!to) {
		(void)err_set(ENOMEM, "a request cannot be signed: out of memory");
		return NULL;
	}
	(void)fprintf(to, "AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=", k->id, scope);
	put_names(to, lines, s->nr_headers);
	(void)fprintf(to, ", Signature=%s", signature);
	if (fclose(to) == 0)
		return ret;
	free(ret);
	return NULL;
}
