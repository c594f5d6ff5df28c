/* SPDX-License-Identifier: MIT */
/* Find keys in the variables, files and services that Amazon's own tools use. */
#include <ctype.h>
#include <curl/curl.h>
#include <pthread.h>
#include <stdio.h>
#include <strings.h>

#include "base/err.h"
#include "base/scheme.h"
#include "s3/http.h"
#include "s3/s3.h"

#define RENEW_S 300 /* renew keys this many seconds before they expire */
#define ANSWER_MAX KIB(64)
#define SERVICE_MS 5000L
#define MACHINE_MS 1000L /* milliseconds, for the metadata service, which most machines lack */
#define LINE_LEN 4096

/* Cached keys that expire, from the last source that returned any. */
static struct {
	pthread_mutex_t lock;
	struct keys keys;
	time_t renew_at; /* time to renew them; 0: no keys are cached */
} kept = { .lock = PTHREAD_MUTEX_INITIALIZER };

void keys_wipe(struct keys *k)
{
	if (k->token)
		explicit_bzero(k->token, strlen(k->token));
	free(k->token);
	explicit_bzero(k, sizeof(*k));
}

static int keys_set(struct keys *ret, const char *id, const char *secret, const char *token,
		    const char *from)
{
	if (strlen(id) >= sizeof(ret->id) || strlen(secret) >= sizeof(ret->secret))
		return err_set(EINVAL, "a key from %s is longer than keys are", from);
	for (const char *c = id; *c; c++)
		if (*c <= ' ' || *c == 127)
			return err_set(EINVAL,
				       "the key id from %s has a blank or a control "
				       "character",
				       from);
	for (const char *c = token ? token : ""; *c; c++)
		if (*c <= ' ' || *c == 127)
			return err_set(EINVAL,
				       "the token from %s has a blank or a control "
				       "character",
				       from);
	*ret = (struct keys){ 0 };
	(void)strcpy(ret->id, id);
	(void)strcpy(ret->secret, secret);
	if (token && *token) {
		ret->token = strdup(token);
		if (!ret->token)
			return err_set(ENOMEM, "out of memory");
	}
	return 0;
}

/* ------------------------------------------------------------------- files */

static char *creds_trim(char *s)
{
	size_t len;

	while (isspace((unsigned char)*s))
		s++;
	len = strlen(s);
	while (len && isspace((unsigned char)s[len - 1]))
		s[--len] = '\0';
	return s;
}

static bool is_section(char *line, const char *profile)
{
	char *name;

	line[strcspn(line, "]")] = '\0';
	name = creds_trim(line + 1);
	if (strncmp(name, "profile", 7) == 0 && isspace((unsigned char)name[7]))
		name = creds_trim(name + 8);
	return strcmp(name, profile) == 0;
}

/* Find a value in the profile's section. */
static bool ini_find(const char *path, const char *profile, const char *key, char *ret, size_t len)
{
	FILE *f = fopen(path, "re");
	char line[LINE_LEN];
	bool in = false, found = false;

	while (f && !found && fgets(line, sizeof(line), f)) {
		bool nested = line[0] == ' ' || line[0] == '\t'; /* the line belongs to a table
								  * such as "s3 =" */
		char *at = creds_trim(line), *eq;

		if (*at == '[') {
			in = is_section(at, profile);
			continue;
		}
		eq = strchr(at, '=');
		if (!in || nested || *at == '#' || *at == ';' || !eq)
			continue;
		*eq = '\0';
		found = strcasecmp(creds_trim(at), key) == 0;
		if (found)
			(void)snprintf(ret, len, "%s", creds_trim(eq + 1));
	}
	explicit_bzero(line, sizeof(line));
	if (f)
		(void)fclose(f);
	return found;
}

static void profile_path(const char *given, const char *name, char ret[LINE_LEN])
{
	const char *home = env("HOME");

	ret[0] = '\0';
	if (given)
		(void)snprintf(ret, LINE_LEN, "%s", given);
	else if (home)
		(void)snprintf(ret, LINE_LEN, "%s/.aws/%s", home, name);
}

static bool profile_find(const char *key, char *ret, size_t len)
{
	const char *profile = env("AWS_PROFILE");
	char path[LINE_LEN];

	if (!profile)
		profile = "default";
	profile_path(env("AWS_SHARED_CREDENTIALS_FILE"), "credentials", path);
	if (ini_find(path, profile, key, ret, len))
		return true;
	profile_path(env("AWS_CONFIG_FILE"), "config", path);
	return ini_find(path, profile, key, ret, len);
}

void profile_value(const char *name, char *ret, size_t len)
{
	if (!profile_find(name, ret, len))
		ret[0] = '\0';
}

/* ---------------------------------------------------------------- services */

/* Return the string value of a name in a flat JSON object. */
static bool json_find(const char *text, const char *name, char *ret, size_t len)
{
	char quoted[64];
	size_t n = 0;

	(void)snprintf(quoted, sizeof(quoted), "\"%s\"", name);
	text = strstr(text, quoted);
	if (!text)
		return false;
	text += strlen(quoted);
	text += strspn(text, " \t\r\n:");
	if (*text++ != '"')
		return false;
	for (; *text && *text != '"' && n + 1 < len; text++) {
		if (*text == '\\' && text[1])
			text++;
		ret[n++] = *text;
	}
	ret[n] = '\0';
	return *text == '"';
}

static time_t when(const char *iso)
{
	struct tm tm = { 0 };

	return strptime(iso, "%Y-%m-%dT%H:%M:%S", &tm) ? timegm(&tm) : 0;
}

/* Cache keys until their expiry; the caller gets a copy. */
static int creds_keep(struct keys *k, const char *expires, struct keys *ret)
{
	time_t at = when(expires);

	keys_wipe(&kept.keys);
	kept.keys = *k;
	/* Cache keys without an expiry for a quarter of an hour. */
	kept.renew_at = at ? at - RENEW_S : time(NULL) + 3 * (time_t)RENEW_S;
	*k = (struct keys){ 0 };
	return keys_set(ret, kept.keys.id, kept.keys.secret, kept.keys.token, "the cache");
}

typedef bool (*find_fn)(const char *text, const char *name, char *ret, size_t len);

/* Parse the keys in a service's answer. */
static int keys_of(const char *text, find_fn find, const char *token_name, const char *from,
		   struct keys *ret)
{
	char id[192], secret[192], token[LINE_LEN] = "", expires[64] = "";
	struct keys k;
	int r;

	if (!find(text, "AccessKeyId", id, sizeof(id)) ||
	    !find(text, "SecretAccessKey", secret, sizeof(secret)))
		return err_set(EBADMSG, "%s gave an answer without keys", from);
	(void)find(text, token_name, token, sizeof(token));
	(void)find(text, "Expiration", expires, sizeof(expires));
	r = keys_set(&k, id, secret, token, from);
	if (r == 0)
		r = creds_keep(&k, expires, ret);
	explicit_bzero(secret, sizeof(secret));
	explicit_bzero(token, sizeof(token));
	return r;
}

static int read_token(const char *path, char *ret, size_t len)
{
	FILE *f = fopen(path, "re");
	size_t n;

	if (!f)
		return err_set(errno, "the token in %s cannot be read: %s", path, strerror(errno));
	n = fread(ret, 1, len - 1, f);
	(void)fclose(f);
	ret[n] = '\0';
	(void)creds_trim(ret);
	return 0;
}

static int web_identity(const char *role, const char *path, struct keys *ret)
{
	const char *session = env("AWS_ROLE_SESSION_NAME"), *region = env("AWS_REGION");
	const char *endpoint = env("AWS_ENDPOINT_URL_STS");
	_cleanup_(freep) char *query = NULL;
	_cleanup_(freep) char *url = NULL;
	_cleanup_(freep) char *answer = NULL;
	char token[LINE_LEN * 2];
	struct pair q[] = {
		{ "Action", "AssumeRoleWithWebIdentity" },
		{ "Version", "2011-06-15" },
		{ "RoleArn", role },
		{ "RoleSessionName", session ? session : "penstock" },
		{ "WebIdentityToken", token },
	};
	int r = read_token(path, token, sizeof(token));

	if (r < 0)
		return r;
	query = encode_query(q, ARRAY_SIZE(q));
	explicit_bzero(token, sizeof(token));
	if (!query || (endpoint ? asprintf(&url, "%s/", endpoint)
				: asprintf(&url, "https://sts.%s%samazonaws.com/",
					   region ? region : "", region ? "." : "")) < 0)
		return err_set(ENOMEM, "out of memory");
	r = check_plain(url, "the token of AWS_WEB_IDENTITY_TOKEN_FILE");
	if (r == 0)
		r = http_fetch(url, "POST", query, NULL, SERVICE_MS, ANSWER_MAX, &answer);
	explicit_bzero(query, strlen(query));
	if (r < 0)
		return err_set(r, "no keys for AWS_ROLE_ARN: %s", err_text());
	return keys_of(answer, xml_find, "SessionToken", "the service STS", ret);
}

/* Return true for loopback and for the addresses of ECS and EKS. */
static bool is_container_host(const char *url)
{
	static const char *const hosts[] = { "http://169.254.170.2", "http://169.254.170.23",
					     "http://[fd00:ec2::23]" };

	for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
		size_t n = strlen(hosts[i]);

		if (strncmp(url, hosts[i], n) == 0 && strchr(":/", url[n]))
			return true;
	}
	return check_plain(url, "the container's service") == 0;
}

static int container(const char *relative, const char *full, struct keys *ret)
{
	const char *path = env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
	const char *given = env("AWS_CONTAINER_AUTHORIZATION_TOKEN");
	char token[LINE_LEN] = "", header[LINE_LEN + 32], url[LINE_LEN];
	_cleanup_(freep) char *answer = NULL;
	int r = 0;

	(void)snprintf(url, sizeof(url), "%s%s", relative ? "http://169.254.170.2" : "",
		       relative ? relative : full);
	if (!is_container_host(url))
		return err_set(EPERM, "AWS_CONTAINER_CREDENTIALS_FULL_URI is neither https:// nor "
				      "on this machine; keys are not fetched over a network in "
				      "clear text");
	if (path)
		r = read_token(path, token, sizeof(token));
	else if (given)
		(void)snprintf(token, sizeof(token), "%s", given);
	if (r < 0)
		return r;
	(void)snprintf(header, sizeof(header), "Authorization: %s", token);
	r = http_fetch(url, "GET", NULL, *token ? header : NULL, SERVICE_MS, ANSWER_MAX, &answer);
	explicit_bzero(token, sizeof(token));
	explicit_bzero(header, sizeof(header));
	if (r < 0)
		return err_set(r, "no keys from the container's service: %s", err_text());
	return keys_of(answer, json_find, "Token", "the container's service", ret);
}

static int machine(struct keys *ret)
{
	static const char roles[] = "/latest/meta-data/iam/security-credentials/";
	const char *endpoint = env("AWS_EC2_METADATA_SERVICE_ENDPOINT");
	_cleanup_(freep) char *token = NULL;
	_cleanup_(freep) char *role = NULL;
	_cleanup_(freep) char *answer = NULL;
	char url[1024], header[1024];
	int r;

	if (!endpoint)
		endpoint = "http://169.254.169.254";
	(void)snprintf(url, sizeof(url), "%.200s/latest/api/token", endpoint);
	r = http_fetch(url, "PUT", "", "X-aws-ec2-metadata-token-ttl-seconds: 21600", MACHINE_MS,
		       ANSWER_MAX, &token);
	if (r < 0)
		return r;
	(void)snprintf(header, sizeof(header), "X-aws-ec2-metadata-token: %.900s",
		       creds_trim(token));
	(void)snprintf(url, sizeof(url), "%.200s%s", endpoint, roles);
	r = http_fetch(url, "GET", NULL, header, MACHINE_MS, ANSWER_MAX, &role);
	if (r < 0)
		return r;
	role[strcspn(role, "\r\n")] = '\0';
	(void)snprintf(url, sizeof(url), "%.200s%s%.400s", endpoint, roles, role);
	r = http_fetch(url, "GET", NULL, header, MACHINE_MS, ANSWER_MAX, &answer);
	return r < 0 ? r : keys_of(answer, json_find, "Token", "the machine's service", ret);
}

/* ------------------------------------------------------------------- chain */

static int from_profile(struct keys *ret)
{
	char id[192], secret[192], token[LINE_LEN];
	int r;

	if (!profile_find("aws_access_key_id", id, sizeof(id)) ||
	    !profile_find("aws_secret_access_key", secret, sizeof(secret)))
		return -ENOENT;
	profile_value("aws_session_token", token, sizeof(token));
	r = keys_set(ret, id, secret, token, "the profile");
	explicit_bzero(secret, sizeof(secret));
	explicit_bzero(token, sizeof(token));
	return r;
}

static int creds_find(struct keys *ret)
{
	const char *role = env("AWS_ROLE_ARN"), *file = env("AWS_WEB_IDENTITY_TOKEN_FILE");
	const char *relative = env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
	const char *full = env("AWS_CONTAINER_CREDENTIALS_FULL_URI");
	const char *off = env("AWS_EC2_METADATA_DISABLED");
	int r;

	if (kept.renew_at && time(NULL) < kept.renew_at)
		return keys_set(ret, kept.keys.id, kept.keys.secret, kept.keys.token, "the cache");
	if (role && file)
		return web_identity(role, file, ret);
	r = from_profile(ret);
	if (r != -ENOENT)
		return r;
	if (relative || full)
		return container(relative, full, ret);
	if (!(off && strcasecmp(off, "true") == 0) && machine(ret) == 0)
		return 0;
	return err_set(ENOKEY,
		       "there are no keys for s3://: not in AWS_ACCESS_KEY_ID and "
		       "AWS_SECRET_ACCESS_KEY, not in the profile %.64s of ~/.aws, not from the "
		       "container or the machine; for public objects set PST_S3_ANONYMOUS=1",
		       env("AWS_PROFILE") ? env("AWS_PROFILE") : "default");
}

int creds_get(struct keys *ret)
{
	const char *id = env("AWS_ACCESS_KEY_ID"), *secret = env("AWS_SECRET_ACCESS_KEY");
	int r;

	if (!id != !secret)
		return err_set(EINVAL, "of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY only one is "
				       "set; set both or neither");
	if (id)
		return keys_set(ret, id, secret, env("AWS_SESSION_TOKEN"), "the environment");
	(void)pthread_mutex_lock(&kept.lock);
	r = creds_find(ret);
	(void)pthread_mutex_unlock(&kept.lock);
	return r;
}

void creds_expire(const struct keys *k)
{
	const char *token = k->token ? k->token : "";

	(void)pthread_mutex_lock(&kept.lock);
	if (strcmp(kept.keys.id, k->id) == 0 &&
	    strcmp(kept.keys.token ? kept.keys.token : "", token) == 0)
		kept.renew_at = 0;
	(void)pthread_mutex_unlock(&kept.lock);
}
