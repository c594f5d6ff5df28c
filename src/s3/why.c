/* SPDX-License-Identifier: MIT */
/* Translate an answer's status, or a failure of libcurl, into an errno and a sentence. */
#include <stdio.h>
#include <string.h>

#include "s3/http.h"

/* Keep only characters that occur in error codes and request ids. */
static void keep_plain(char *text)
{
	char *to = text;

	for (const char *c = text; *c; c++)
		if ((*c >= '0' && *c <= '9') || (*c >= 'A' && *c <= 'Z') ||
		    (*c >= 'a' && *c <= 'z') || *c == '-' || *c == '_')
			*to++ = *c;
	*to = '\0';
}

static bool http_code_of(const struct call *c, char *ret, size_t len)
{
	if (!c->text || !xml_find(c->text, "Code", ret, len)) {
		ret[0] = '\0';
		return false;
	}
	keep_plain(ret);
	return *ret;
}

bool why_code_is(const struct call *c, const char *code)
{
	char is[64];

	return http_code_of(c, is, sizeof(is)) && strcmp(is, code) == 0;
}

struct meaning {
	long status;      /* HTTP status; 0: any */
	const char *code; /* S3 error code; NULL: any */
	int err;
	const char *says;
};

static const struct meaning meanings[] = {
	{ 0, "SignatureDoesNotMatch", EACCES,
	  "the server does not accept the signature; check the secret key, and the region" },
	{ 0, "InvalidAccessKeyId", EACCES,
	  "the server does not know the key id; check AWS_ACCESS_KEY_ID or the profile" },
	{ 0, "RequestTimeTooSkewed", EACCES,
	  "the clock of this machine and the server's differ by more than 15 minutes; set the "
	  "clock" },
	{ 0, "ExpiredToken", EACCES, "the keys have expired; fetch new ones" },
	{ 0, "NoSuchBucket", ENOENT, "there is no such bucket; check its name and the endpoint" },
	{ 0, "NoSuchKey", ENOENT, "the bucket has no object of that key" },
	{ 0, "NoSuchUpload", EIO,
	  "the server no longer knows the upload; the object may or may not be there, list it" },
	{ 0, "EntityTooLarge", EFBIG, "the object is larger than the server takes" },
	{ 0, "AuthorizationHeaderMalformed", EACCES,
	  "the server wants another region; set AWS_REGION" },
	{ 401, NULL, EACCES, "the server wants keys that this request does not have" },
	{ 403, NULL, EACCES,
	  "access is denied; the keys, or the URL, have no right to this object, or it is not "
	  "there and they may not list the bucket" },
	{ 404, NULL, ENOENT, "there is nothing of that name" },
	{ 409, NULL, EBUSY, "another writer is at the object; try again" },
	{ 412, NULL, ESTALE, "the object was replaced while it was in use; open it again" },
	{ 413, NULL, EFBIG, "the object is larger than the server takes" },
	{ 416, NULL, ERANGE, "the object ends before the range" },
	{ 429, NULL, EBUSY, "the server wants fewer requests; try again later" },
	{ 503, NULL, EBUSY, "the server is too busy; try again later" },
	{ 500, NULL, EIO, "the server failed; try again, or ask who runs it" },
	{ 0, NULL, EPROTO, "the server gave an answer that this request cannot have" },
};

void why_status(struct call *c)
{
	const struct meaning *m = meanings;
	char code[64];
	long status = c->answer.status;

	(void)http_code_of(c, code, sizeof(code));
	for (; m < &meanings[ARRAY_SIZE(meanings) - 1]; m++) {
		bool family = m->status == 500 && status > 500;

		if (m->code ? strcmp(m->code, code) == 0 : m->status == status || family)
			break;
	}
	keep_plain(c->answer.id);
	c->err = -m->err;
	if (status == 412 && c->if_none)
		c->err = -EEXIST;
	(void)snprintf(c->why, sizeof(c->why), "%.200s: %s (HTTP %ld%s%s%s%s)", c->where->shown,
		       c->err == -EEXIST ? "there is an object of that key already" : m->says,
		       status, *code ? " " : "", code, *c->answer.id ? ", request " : "",
		       c->answer.id);
}

static const struct {
	CURLcode code;
	int err;
	bool again;
	const char *says;
} failures[] = {
	{ CURLE_COULDNT_RESOLVE_HOST, EHOSTUNREACH, true,
	  "the name of the host cannot be resolved; check it, and DNS" },
	{ CURLE_COULDNT_RESOLVE_PROXY, EHOSTUNREACH, true,
	  "the name of the proxy cannot be resolved; check https_proxy" },
	{ CURLE_COULDNT_CONNECT, ECONNREFUSED, true,
	  "nothing accepts connections there; check the endpoint and its port" },
	{ CURLE_OPERATION_TIMEDOUT, ETIMEDOUT, true, "the server is silent" },
	{ CURLE_PARTIAL_FILE, EIO, true, "the server cut the connection" },
	{ CURLE_GOT_NOTHING, EIO, true, "the server closed the connection without an answer" },
	{ CURLE_RECV_ERROR, EIO, true, "the connection broke" },
	{ CURLE_SEND_ERROR, EIO, true, "the connection broke" },
	{ CURLE_SEND_FAIL_REWIND, EIO, true, "the connection broke" },
	{ CURLE_SSL_CONNECT_ERROR, EPROTO, true, "TLS cannot be set up with the server" },
	{ CURLE_PEER_FAILED_VERIFICATION, EPROTO, false,
	  "the server's certificate is not trusted; AWS_CA_BUNDLE names more authorities" },
	{ CURLE_SSL_CACERT_BADFILE, EINVAL, false, "AWS_CA_BUNDLE cannot be read" },
	{ CURLE_OUT_OF_MEMORY, ENOMEM, false, "out of memory" },
	{ CURLE_OK, EPROTO, false, "the server does not speak HTTP as it should" },
};

/* Return true if a retry may help. */
bool why_curl(struct call *c, CURLcode code)
{
	size_t i = 0;

	while (failures[i].code != code && failures[i].code != CURLE_OK)
		i++;
	c->err = -failures[i].err;
	(void)snprintf(c->why, sizeof(c->why), "%.200s: %s (%s)", c->where->shown, failures[i].says,
		       curl_easy_strerror(code));
	return failures[i].again;
}
