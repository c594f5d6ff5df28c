/* SPDX-License-Identifier: MIT */
/* Parse names of objects, and find endpoint, region and address style in the environment. */
#include <ctype.h>
#include <stdio.h>
#include <strings.h>

#include "base/err.h"
#include "base/scheme.h"
#include "s3/s3.h"

const char *env(const char *name)
{
	const char *v = secure_getenv(name);

	return v && *v ? v : NULL;
}

static bool env_is(const char *name, const char *value)
{
	const char *v = env(name);

	return v && strcasecmp(v, value) == 0;
}

void where_free(struct where *w)
{
	if (!w)
		return;
	keys_wipe(&w->keys);
	free(w->shown);
	free(w->bucket);
	free(w->origin);
	free(w->path);
	free(w->query);
	free(w->moved);
	free(w);
}

/* ------------------------------------------------------------------- hosts */

static bool is_loopback(const char *host, size_t len)
{
	static const char *const names[] = { "localhost", "[::1]" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strlen(names[i]) == len && strncasecmp(names[i], host, len) == 0)
			return true;
	/* Accept 127.1.2.3, but no host name that begins like it. */
	return len > 4 && strncmp(host, "127.", 4) == 0 && strspn(host, "0123456789.") >= len;
}

bool is_loopback_url(const char *url)
{
	const char *host = url + 7;

	return strncasecmp(url, "http://", 7) == 0 &&
	       is_loopback(host, *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":/?"));
}

int check_plain(const char *url, const char *shown)
{
	if (strncasecmp(url, "http://", 7) != 0 || is_loopback_url(url) ||
	    env_is("PST_HTTP_PLAIN", "1"))
		return 0;
	return err_set(EPERM,
		       "%s would go over the network in clear text; use https://, or allow it with "
		       "PST_HTTP_PLAIN=1",
		       shown);
}

/* Check HOST[:PORT]: printable characters, no user name or password. */
static int check_authority(const char *host, size_t len, const char *shown)
{
	if (!len)
		return err_set(EINVAL, "%s names no host", shown);
	if (memchr(host, '@', len))
		return err_set(EINVAL, "the name of a file may hold no user and password; remove "
				       "what stands before the @");
	for (size_t i = 0; i < len; i++)
		if (!isalnum((unsigned char)host[i]) && !strchr(".-_:[]", host[i]))
			return err_set(EINVAL,
				       "%s names no host: character %zu of it is not one "
				       "of a host's name",
				       shown, i + 1);
	return 0;
}

/* --------------------------------------------------------------- https:// */

static int from_url(struct where *w, const char *name)
{
	const char *host = name + scheme_len(name) + 3;
	size_t len = strcspn(host, "/?#");
	const char *path = host + len, *query = strchr(path, '?');
	int r;

	r = check_authority(host, len, w->shown);
	if (r < 0)
		return r;
	if (*path != '/' || strchr(path, '#'))
		return err_set(EINVAL, "%s is not https://HOST/PATH", w->shown);
	for (const char *c = path; *c; c++)
		if (*c <= ' ' || *c == 127)
			return err_set(EINVAL,
				       "%s has a blank or a control character; write it as %%20 "
				       "and the like",
				       w->shown);
	w->origin = strndup(name, (size_t)(path - name));
	w->path = query ? strndup(path, (size_t)(query - path)) : strdup(path);
	if (query)
		w->query = strdup(query + 1);
	if (!w->origin || !w->path || (query && !w->query))
		return err_set(ENOMEM, "out of memory");
	return check_plain(w->origin, w->shown);
}

/* ------------------------------------------------------------------ s3:// */

static int check_bucket(const char *bucket, size_t len, const char *shown)
{
	bool ok = len >= 3 && len <= 63;

	for (size_t i = 0; ok && i < len; i++)
		ok = isalnum((unsigned char)bucket[i]) || strchr(".-_", bucket[i]);
	return ok ? 0
		  : err_set(EINVAL,
			    "%s does not begin with the name of a bucket: 3 to 63 letters, "
			    "digits, dots and dashes",
			    shown);
}

/* Return the configured endpoint, or "". */
static void find_endpoint(char *ret, size_t len)
{
	const char *e = env("AWS_ENDPOINT_URL_S3");

	ret[0] = '\0';
	if (env_is("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true"))
		return;
	if (!e)
		e = env("AWS_ENDPOINT_URL");
	if (e)
		(void)snprintf(ret, len, "%s", e);
	else
		profile_value("endpoint_url", ret, len);
}

static int find_region(struct where *w)
{
	const char *r = env("AWS_REGION");

	if (!r)
		r = env("AWS_DEFAULT_REGION");
	if (r)
		(void)snprintf(w->region, sizeof(w->region), "%s", r);
	else
		profile_value("region", w->region, sizeof(w->region));
	if (!*w->region && !w->custom)
		return err_set(EINVAL,
			       "%s: the region of the bucket is not known; set AWS_REGION, or "
			       "AWS_ENDPOINT_URL for a store of your own",
			       w->shown);
	if (!*w->region)
		(void)snprintf(w->region, sizeof(w->region), "us-east-1");
	for (const char *c = w->region; *c; c++)
		if (!isalnum((unsigned char)*c) && *c != '-')
			return err_set(EINVAL,
				       "the region %.32s has a character that regions have "
				       "not; see AWS_REGION",
				       w->region);
	return 0;
}

/* Build the origin of a bucket at Amazon. */
static int amazon_origin(struct where *w)
{
	char *origin = NULL;
	int n;

	n = w->path_style
		    ? asprintf(&origin, "https://s3.%s.amazonaws.com", w->region)
		    : asprintf(&origin, "https://%s.s3.%s.amazonaws.com", w->bucket, w->region);
	if (n < 0)
		return err_set(ENOMEM, "out of memory");
	free(w->origin);
	w->origin = origin;
	return 0;
}

bool where_set_region(struct where *w, const char *region)
{
	if (strlen(region) >= sizeof(w->region) || !*region || strcmp(region, w->region) == 0)
		return false;
	for (const char *c = region; *c; c++)
		if (!isalnum((unsigned char)*c) && *c != '-')
			return false;
	(void)strcpy(w->region, region);
	return w->custom || amazon_origin(w) == 0;
}

/* Use a configured endpoint.  The endpoint's path, without the last slash, goes to ret_base. */
static int custom_origin(struct where *w, const char *endpoint, char **ret_base)
{
	size_t scheme = scheme_len(endpoint), len;
	const char *host, *path;
	int r;

	if (!scheme ||
	    (strncmp(endpoint, "https", scheme) != 0 && strncmp(endpoint, "http", scheme) != 0))
		return err_set(EINVAL, "AWS_ENDPOINT_URL begins neither with https:// nor with "
				       "http://");
	host = endpoint + scheme + 3;
	len = strcspn(host, "/?#");
	r = check_authority(host, len, "AWS_ENDPOINT_URL");
	if (r < 0)
		return r;
	path = host + len;
	if (path[strcspn(path, "?#")])
		return err_set(EINVAL, "AWS_ENDPOINT_URL may have no query");
	w->origin = strndup(endpoint, (size_t)(path - endpoint));
	len = strlen(path);
	while (len && path[len - 1] == '/')
		len--;
	*ret_base = strndup(path, len);
	if (!w->origin || !*ret_base)
		return err_set(ENOMEM, "out of memory");
	return check_plain(w->origin, w->shown);
}

static bool wants_path_style(const struct where *w)
{
	if (w->custom || strchr(w->bucket, '.'))
		return true;
	for (const char *c = w->bucket; *c; c++)
		if (isupper((unsigned char)*c) || *c == '_')
			return true;
	return false;
}

static int from_bucket(struct where *w, const char *bucket)
{
	size_t len = strcspn(bucket, "/");
	const char *key = bucket[len] ? bucket + len + 1 : "";
	_cleanup_(freep) char *encoded = NULL;
	_cleanup_(freep) char *base = NULL;
	char endpoint[1024];
	int r;

	r = check_bucket(bucket, len, w->shown);
	if (r < 0)
		return r;
	if (strlen(key) > KEY_MAX)
		return err_set(ENAMETOOLONG, "the key of %.200s... is longer than %u bytes",
			       w->shown, KEY_MAX);
	w->s3 = true;
	w->bucket = strndup(bucket, len);
	encoded = encode_uri(key, true);
	if (!w->bucket || !encoded)
		return err_set(ENOMEM, "out of memory");
	find_endpoint(endpoint, sizeof(endpoint));
	w->custom = *endpoint;
	w->path_style = wants_path_style(w);
	r = find_region(w);
	if (r == 0)
		r = w->custom ? custom_origin(w, endpoint, &base) : amazon_origin(w);
	if (r < 0)
		return r;
	if (asprintf(&w->path, "%s%s%s/%s", base ? base : "", w->path_style ? "/" : "",
		     w->path_style ? w->bucket : "", encoded) < 0) {
		w->path = NULL;
		return err_set(ENOMEM, "out of memory");
	}
	w->key_at = strlen(w->path) - strlen(encoded);
	if (env_is("PST_S3_ANONYMOUS", "1"))
		return 0;
	w->sign = true;
	return creds_get(&w->keys);
}

int where_new(const char *name, struct where **ret)
{
	struct where *w = calloc(1, sizeof(*w));
	bool s3 = strncmp(name, "s3", 2) == 0;
	int r;

	if (!w)
		return err_set(ENOMEM, "out of memory");
	/* Cut the query off: it contains the secret of a presigned URL. */
	w->shown = s3 ? strdup(name) : strndup(name, strcspn(name, "?#"));
	r = !w->shown ? err_set(ENOMEM, "out of memory")
	    : s3      ? from_bucket(w, name + scheme_len(name) + 3)
		      : from_url(w, name);
	if (r < 0) {
		where_free(w);
		return r;
	}
	*ret = w;
	return 0;
}
