/* SPDX-License-Identifier: MIT */
/* Parse names of files, and name this process to servers. */
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/random.h>

#include "base/err.h"
#include "base/scheme.h"
#include "remote/talk.h"

#define UNIX "pst+unix://"
#define TLS "psts://"
#define KEYS "/etc/penstock/keys" /* default; PST_KEYS overrides it */

static const char *skip_slashes(const char *path)
{
	while (*path == '/')
		path++;
	return path;
}

/* Cut KEY@ off the rest of a name. */
static const char *take_key(const char *rest, const char *end, char key[NET_KEY_NAME_MAX + 1])
{
	const char *at = memrchr(rest, '@', (size_t)(end - rest));

	key[0] = '\0';
	if (!at)
		return rest;
	if (at == rest || at - rest > (ptrdiff_t)NET_KEY_NAME_MAX)
		return end;
	memcpy(key, rest, (size_t)(at - rest));
	key[at - rest] = '\0';
	return at + 1;
}

/* Return the syntax of the scheme's names. */
static const char *form_of(const char *name)
{
	if (!strncmp(name, UNIX, sizeof(UNIX) - 1))
		return "pst+unix://SOCKET:/PATH";
	return !strncmp(name, TLS, sizeof(TLS) - 1) ? "psts://[KEY@]HOST:PORT/PATH"
						    : "pst://HOST:PORT/PATH";
}

/* Split a name: HOST:PORT or unix:PATH into addr, and the KEY of psts://KEY@HOST:PORT, or "", into
 * key.  Return the path, or NULL with a sentence. */
static const char *split_name(const char *name, bool may_be_root, char addr[PATH_MAX],
			      char key[NET_KEY_NAME_MAX + 1])
{
	const char *rest = name + scheme_len(name) + 3;
	bool local = !strncmp(name, UNIX, sizeof(UNIX) - 1);
	const char *end = local ? strstr(rest, ":/") : strchr(rest, '/');
	const char *path = end ? skip_slashes(end + local) : "";

	key[0] = '\0';
	if (end && !strncmp(name, TLS, sizeof(TLS) - 1))
		rest = take_key(rest, end, key);
	if (!end || end == rest || (!*path && !may_be_root)) {
		(void)err_set(EINVAL, "%s is no name of a file; give %s", name, form_of(name));
		return NULL;
	}
	if (end - rest >= PATH_MAX - 6 || strlen(path) > WIRE_NAME_MAX) {
		(void)err_set(EINVAL, "the name is too long: %.64s...", name);
		return NULL;
	}
	(void)snprintf(addr, PATH_MAX, "%s%.*s", local ? "unix:" : "", (int)(end - rest), rest);
	return path;
}

/* ------------------------------------------------------------------ clients */

static struct {
	pthread_once_t once;
	uint8_t client[16];
	_Atomic uint64_t channel;
} self = { .once = PTHREAD_ONCE_INIT };

static void name_self(void)
{
	/* The id must be unique: a server would take two processes with one id for one. */
	if (getrandom(self.client, sizeof(self.client), 0) != sizeof(self.client)) {
		uint64_t now = now_ns();
		pid_t pid = getpid();

		memcpy(self.client, &now, sizeof(now));
		memcpy(self.client + 8, &pid, sizeof(pid));
	}
}

void remote_hello(struct wire_hello *ret, uint64_t channel, uint64_t epoch)
{
	(void)pthread_once(&self.once, name_self);
	*ret = (struct wire_hello){
		.version = WIRE_VERSION,
		.oldest = WIRE_VERSION,
		.features = WIRE_FEATURE_RDMA,
		.channel = channel,
		.epoch = epoch,
	};
	memcpy(ret->client, self.client, sizeof(ret->client));
}

uint64_t remote_channel(void)
{
	return atomic_fetch_add(&self.channel, 1) + 1;
}

/* -------------------------------------------------------------------- keys */

/*
 * Find the key of a name in the file PST_KEYS, and load the TLS module.  The name "" means the
 * file's only key.
 */
static int find_key(const char *name, struct remote_server *ret)
{
	const char *env = secure_getenv("PST_KEYS"), *path = env && *env ? env : KEYS;
	const struct net_key *k;
	struct net_keys keys;
	int r = net_keys_read(path, &keys);

	if (r == -ENOENT)
		return err_set(
			ENOENT,
			"psts:// needs a key, and there is no file %s; name the file of keys "
			"by PST_KEYS",
			path);
	if (r < 0)
		return r;
	k = *name ? net_keys_find(&keys, name, strlen(name)) : &keys.keys[0];
	if (!k)
		r = err_set(ENOKEY, "%s has no key %s; add its line from the server's keys", path,
			    name);
	else if (!*name && keys.nr > 1)
		r = err_set(ENOKEY, "%s has %u keys; choose one by psts://KEY@HOST:PORT/PATH", path,
			    keys.nr);
	else
		r = net_tls_load(remote_tls_near(), &ret->tls);
	if (r == 0)
		ret->key = *k;
	net_keys_free(&keys);
	return r;
}

/* ------------------------------------------------------------------ servers */

int remote_name(const char *name, bool may_be_root, struct remote_server *ret,
		const char **ret_path)
{
	char addr[PATH_MAX], key[NET_KEY_NAME_MAX + 1];
	int r;

	*ret_path = split_name(name, may_be_root, addr, key);
	if (!*ret_path)
		return -EINVAL;
	r = net_addr_find(addr, false, &ret->addr);
	if (r == 0 && !strncmp(name, TLS, sizeof(TLS) - 1))
		r = find_key(key, ret);
	return r < 0 ? err_set(r, "%s: %s", name, err_text()) : 0;
}
