/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdio.h>

#include "base/crc32c.h"
#include "base/err.h"
#include "base/log.h"
#include "remote/talk.h"

#include "kv/name.h"
#include "kv/remote.h"

/* Return an address in libpenstock: the module for TLS is in the same folder. */
const void *remote_tls_near(void)
{
	return (const void *)(uintptr_t)&pst_error_text;
}

bool remote_is_root(const char *name)
{
	return !strncmp(name, "pst://", 6) || !strncmp(name, "psts://", 7) ||
	       !strncmp(name, "pst+unix://", 11);
}

/* ----------------------------------------------------------------- root */

/* Check that the server answers and has a store. */
static int remote_probe(const struct remote_server *server)
{
	struct wire_request q = { .op = WIRE_STAT };
	struct wire_attr attr;
	int r = remote_ask(server, &q, NAME_ROOT, &attr, NULL);

	if (r == -ENOENT || (r == 0 && attr.kind != WIRE_KIND_DIR))
		return err_set(ENOENT, "the server has files and no store; start it with "
				       "penstock serve --kv DIR");
	return r;
}

int remote_root(struct pst_kv *kv, const char *name)
{
	bool slash = name[strlen(name) - 1] == '/';
	const char *path;
	char *full;
	int r;

	kv->server = calloc(1, sizeof(*kv->server));
	if (!kv->server || asprintf(&full, "%s%s", name, slash ? "" : "/") < 0)
		return err_set(ENOMEM, "out of memory");
	r = remote_name(full, true, kv->server, &path);
	if (r == 0 && *path)
		r = err_set(EINVAL, "%s: a server has one store; give no path behind its address",
			    name);
	free(full);
	if (r < 0)
		return r;
	r = remote_probe(kv->server);
	return r < 0 ? err_set(r, "%s: %s", name, err_text()) : 0;
}

void remote_root_end(struct pst_kv *kv)
{
	if (!kv->server)
		return;
	explicit_bzero(&kv->server->key, sizeof(kv->server->key));
	free(kv->server);
}

void remote_hang_up(struct worker *w)
{
	remote_talk_end(w->talk);
	w->talk = NULL;
}

/* ------------------------------------------------------------- requests */

static int remote_ask_name(struct worker *w, struct wire_request *q, const char *name,
			   struct wire_reply *rep, struct wire_attr *ret)
{
	uint8_t payload[WIRE_ATTR_LEN];
	int r = remote_talk_ask(w->talk, q, name, strlen(name), rep, payload,
				ret ? sizeof(payload) : 0);

	return r < 0 || !ret ? r : remote_get_attr(payload, rep, ret);
}

static int remote_open_block(struct worker *w, const char *name, uint32_t how, uint32_t *ret_handle,
			     uint64_t *ret_size)
{
	struct wire_request q = { .op = WIRE_OPEN, .how = how };
	struct wire_reply rep;
	struct wire_attr attr;
	int r = remote_ask_name(w, &q, name, &rep, &attr);

	if (r < 0)
		return r;
	*ret_handle = rep.count;
	*ret_size = attr.size;
	return 0;
}

/* Send a request that has a handle and no payload. */
static int remote_handle_op(struct worker *w, uint16_t op, uint32_t handle)
{
	struct wire_request q = { .op = op, .handle = handle };
	struct wire_reply rep;

	return remote_talk_ask(w->talk, &q, "", 0, &rep, NULL, 0);
}

static int remote_read(struct worker *w, uint32_t handle, char *to, uint64_t len)
{
	struct wire_request q = { .op = WIRE_READ, .handle = handle };
	struct wire_reply rep;
	int r = 0;

	while (r == 0 && q.off < len) {
		q.count = (uint32_t)MIN(len - q.off, (uint64_t)WIRE_DATA_MAX);
		r = remote_talk_ask(w->talk, &q, "", 0, &rep, to + q.off, q.count);
		/* The server truncated the file, because the block was evicted. */
		if (r == 0 && rep.count != q.count)
			r = -ENOENT;
		q.off += q.count;
	}
	return r;
}

static int remote_write(struct worker *w, uint32_t handle, const char *from, uint64_t len)
{
	struct wire_request q = { .op = WIRE_WRITE, .handle = handle };
	struct wire_reply rep;
	int r = 0;

	while (r == 0 && q.off < len) {
		q.count = (uint32_t)MIN(len - q.off, (uint64_t)WIRE_DATA_MAX);
		r = remote_talk_ask(w->talk, &q, from + q.off, q.count, &rep, NULL, 0);
		if (r == 0 && rep.count != q.count)
			r = err_set(EPROTO, "the server took a part of a write");
		q.off += q.count;
	}
	return r;
}

/* ----------------------------------------------------------------- jobs */

/* Check the file of a block that is in the worker's memory.  Return 0 or -EBADMSG. */
static int remote_check(const struct worker *w, const struct job *job, uint64_t size, uint64_t len)
{
	const char *file = pst_mem_ptr(w->bounce);
	uint32_t crc, key_len;
	const void *key;
	uint64_t has;
	int r = block_check(file + len, size - len, size, NULL, &has, &crc, &key, &key_len);

	if (r < 0)
		return r;
	if (key_len != job->item.key_len || memcmp(key, job->item.key, key_len) != 0)
		return err_set(EBADMSG, "a block is of another key");
	return crc32c(0, file, len) == crc ? 0 : err_set(EBADMSG, "a block fails its check");
}

/* Read and check the file of an open block.  Return the block's length in bytes, or -errno. */
static int64_t remote_fetch(struct worker *w, const struct job *job, uint32_t handle, uint64_t size)
{
	uint64_t tail = job->item.key_len + FOOT_LEN, len = size - tail;
	int r;

	if (size <= tail || len > PST_KV_BLOCK_MAX)
		return err_set(EBADMSG, "the file of a block has an impossible length");
	if (len > job->item.len)
		return -EMSGSIZE;
	r = worker_room(w, size);
	if (r == 0)
		r = remote_read(w, handle, pst_mem_ptr(w->bounce), size);
	if (r == 0)
		r = remote_check(w, job, size, len);
	return r < 0 ? r : (int64_t)len;
}

static int64_t remote_get(struct worker *w, struct job *job, const char *name)
{
	uint64_t size = 0;
	uint32_t handle;
	int64_t r = remote_open_block(w, name, WIRE_O_READ, &handle, &size);

	if (r < 0)
		return r;
	r = remote_fetch(w, job, handle, size);
	/* Close the handle: it costs the server a descriptor until the connection ends. */
	if (!remote_talk_is_broken(w->talk) && remote_handle_op(w, WIRE_CLOSE, handle) < 0 &&
	    r >= 0)
		log_debug("kv: %s", err_text());
	return r < 0 ? r : worker_deliver(w, job, (uint64_t)r);
}

static int64_t remote_set(struct worker *w, struct job *job, const char *name)
{
	struct block_id id = { .key = job->item.key, .key_len = (uint32_t)job->item.key_len };
	uint64_t len = job->item.len, size;
	struct pst_kv *kv = w->kv;
	uint32_t handle;
	char *file;
	int r = worker_room(w, len + TAIL_MAX);

	if (r == 0)
		r = worker_gather(w, job);
	if (r < 0)
		return r;
	file = pst_mem_ptr(w->bounce);
	r = remote_open_block(w, name, WIRE_O_WRITE | WIRE_O_CREATE | WIRE_O_EXCL, &handle, &size);
	if (r < 0)
		return r;
	size = len + block_tail(file + len, &id, len, crc32c(0, file, len));
	r = remote_write(w, handle, file, size);
	if (r == 0)
		r = remote_handle_op(w, WIRE_SYNC, handle);
	if (!remote_talk_is_broken(w->talk))
		(void)remote_handle_op(w, WIRE_CLOSE, handle);
	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&kv->lock);
	kv->stat.sets++;
	kv->stat.set_bytes += len;
	kv->stat.written += size;
	(void)pthread_mutex_unlock(&kv->lock);
	return 0;
}

static int64_t remote_find(struct worker *w, const char *name)
{
	struct wire_request q = { .op = WIRE_STAT };
	struct wire_reply rep;
	struct wire_attr attr;
	int r = remote_ask_name(w, &q, name, &rep, &attr);

	if (r < 0)
		return r;
	return attr.size && attr.size <= PST_KV_BLOCK_MAX ? (int64_t)attr.size : -ENOENT;
}

static int64_t remote_delete(struct worker *w, const char *name)
{
	struct wire_request q = { .op = WIRE_UNLINK };
	struct wire_reply rep;

	return remote_ask_name(w, &q, name, &rep, NULL);
}

static int64_t remote_try(struct worker *w, struct job *job, const char *name)
{
	int64_t r = 0;

	if (!w->talk)
		r = remote_talk_begin(w->kv->server, remote_channel(), 1, &w->talk);
	if (r < 0)
		return r;
	remote_talk_limit(w->talk, job->batch->deadline_ns);
	switch (job->batch->op) {
	case PST_KV_GET:
		r = remote_get(w, job, name);
		break;
	case PST_KV_SET:
		r = remote_set(w, job, name);
		break;
	case PST_KV_DELETE:
		r = remote_delete(w, name);
		break;
	default:
		r = remote_find(w, name);
		break;
	}
	if (remote_talk_is_broken(w->talk))
		remote_hang_up(w);
	return r;
}

int64_t remote_step(struct worker *w, struct job *job)
{
	const struct space *sp = w->kv->spaces[job->batch->space];
	uint32_t op = job->batch->op;
	char name[NAME_MAX_LEN + 1];
	bool was_connected = w->talk;
	int64_t r = name_of_block(name, sp->prefix, job->item.key, job->item.key_len,
				  op == PST_KV_SET ? job->item.len : 0);

	if (r < 0)
		return r;
	r = remote_try(w, job, name);
	/* Try once more: the server may have been restarted since the last job. */
	if (r < 0 && r != -ETIMEDOUT && was_connected && !w->talk)
		r = remote_try(w, job, name);
	if (r != -EBADMSG || op != PST_KV_GET)
		return r;
	log_warn("kv: %s, deleting it", err_text());
	(void)pthread_mutex_lock(&w->kv->lock);
	w->kv->stat.corrupt++;
	(void)pthread_mutex_unlock(&w->kv->lock);
	if (w->talk && !w->kv->reader)
		(void)remote_delete(w, name);
	return r;
}
