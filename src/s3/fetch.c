/* SPDX-License-Identifier: MIT */
/* Fetch keys from services, by separate exchanges on the caller's thread. */
#include <string.h>
#include <sys/auxv.h>

#include "base/err.h"
#include "s3/http.h"

struct fetched {
	char *text;
	size_t len, max;
};

static size_t on_fetched(char *data, size_t size, size_t nr, void *arg)
{
	struct fetched *f = arg;
	size_t len = size * nr;
	char *more = f->len + len > f->max ? NULL : realloc(f->text, f->len + len + 1);

	if (!more)
		return 0;
	memcpy(more + f->len, data, len);
	f->text = more;
	f->len += len;
	more[f->len] = '\0';
	return len;
}

int http_fetch(const char *url, const char *method, const char *body, const char *header,
	       long timeout_ms, size_t max, char **ret)
{
	struct fetched f = { .text = calloc(1, 1), .max = max };
	CURL *e = curl_easy_init();
	struct curl_slist *headers = header ? curl_slist_append(NULL, header) : NULL;
	bool ok = e && f.text && (!header || headers);
	CURLcode code = CURLE_OUT_OF_MEMORY;
	long status = 0;

	if (ok) {
		(void)curl_easy_setopt(e, CURLOPT_URL, url);
		(void)curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
		(void)curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
		/* Use no proxy: such tokens must not leave this machine. */
		if (strncmp(url, "http://", 7) == 0 || getauxval(AT_SECURE))
			(void)curl_easy_setopt(e, CURLOPT_NOPROXY, "*");
		(void)curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, timeout_ms);
		(void)curl_easy_setopt(e, CURLOPT_HTTPHEADER, headers);
		(void)curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_fetched);
		(void)curl_easy_setopt(e, CURLOPT_WRITEDATA, &f);
		if (body)
			(void)curl_easy_setopt(e, CURLOPT_POSTFIELDS, body);
		(void)curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, method);
		code = curl_easy_perform(e);
		(void)curl_easy_getinfo(e, CURLINFO_RESPONSE_CODE, &status);
	}
	curl_slist_free_all(headers);
	curl_easy_cleanup(e);
	if (code == CURLE_OK && answer_is_good(status)) {
		*ret = f.text;
		return 0;
	}
	free(f.text);
	if (code != CURLE_OK)
		return err_set(EIO, "%s", curl_easy_strerror(code));
	return err_set(EACCES, "it answers with HTTP %ld", status);
}
