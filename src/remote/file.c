/* SPDX-License-Identifier: MIT */
/* The provider of the storage service's files. */
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/log.h"
#include "remote/remote.h"

_Atomic uint64_t remote_nr_closed;

const void *remote_tls_near(void)
{
	return &remote_nr_closed;
}

static struct remote_file *remote_of(const struct file *f)
{
	return container_of((struct file *)f, struct remote_file, file);
}

/* --------------------------------------------------------------- references */

void remote_ref_put(struct remote_ref *r)
{
	if (atomic_fetch_sub(&r->refs, 1) > 1)
		return;
	(void)pthread_mutex_destroy(&r->lock);
	free(r->path);
	reach_put(r->reach);
	explicit_bzero(&r->server.key, sizeof(r->server.key));
	free(r);
}

void remote_wrote(struct remote_ref *r, uint64_t boot)
{
	(void)pthread_mutex_lock(&r->lock);
	remote_writes_add(&r->writes, boot);
	(void)pthread_mutex_unlock(&r->lock);
}

uint64_t remote_nr_writes(struct remote_ref *r)
{
	uint64_t nr;

	(void)pthread_mutex_lock(&r->lock);
	nr = r->writes.nr;
	(void)pthread_mutex_unlock(&r->lock);
	return nr;
}

int remote_synced(struct remote_ref *r, uint64_t boot, uint64_t nr_writes)
{
	int err;

	(void)pthread_mutex_lock(&r->lock);
	err = remote_writes_sync(&r->writes, boot, nr_writes);
	(void)pthread_mutex_unlock(&r->lock);
	return err;
}

/* --------------------------------------------------------------------- open */

static uint32_t how_of(uint32_t flags)
{
	static const struct {
		uint32_t flag, how;
	} pairs[] = {
		{ PST_FILE_READ, WIRE_O_READ },     { PST_FILE_WRITE, WIRE_O_WRITE },
		{ PST_FILE_CREATE, WIRE_O_CREATE }, { PST_FILE_EXCL, WIRE_O_EXCL },
		{ PST_FILE_TRUNC, WIRE_O_TRUNC },
	};
	uint32_t how = 0;

	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++)
		if (flags & pairs[i].flag)
			how |= pairs[i].how;
	return how;
}

/* Read the umask from /proc: the only call that returns the umask also sets it. */
static uint32_t umask_now(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[256];
	unsigned mask = 022;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Umask: %o", &mask) == 1)
			break;
	if (f)
		(void)fclose(f);
	return mask;
}

static struct remote_ref *ref_new(const char *path)
{
	struct remote_ref *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->refs = 1;
	r->path = strdup(path);
	(void)pthread_mutex_init(&r->lock, NULL);
	if (r->path)
		return r;
	remote_ref_put(r);
	return NULL;
}

static const struct file_ops *remote_by_rdma(const struct file_ops *ops);

static int remote_open_file(const struct file_ops *ops, const char *name, uint32_t flags,
			    uint32_t mode, struct file **ret)
{
	struct wire_request q = { .op = WIRE_OPEN, .how = how_of(flags) };
	struct remote_file *f;
	struct remote_ref *r;
	struct remote_server server = { 0 };
	uint64_t features = 0;
	const char *path;
	int err = remote_name(name, false, &server, &path);

	if (err < 0)
		return err;
	r = ref_new(path);
	f = calloc(1, sizeof(*f));
	if (!r || !f) {
		free(f);
		if (r)
			remote_ref_put(r);
		return err_set(ENOMEM, "out of memory");
	}
	if (flags & PST_FILE_CREATE)
		q.mode = mode & 0777 & ~umask_now();
	r->how = q.how & (WIRE_O_READ | WIRE_O_WRITE);
	r->server = server;
	explicit_bzero(&server.key, sizeof(server.key));
	err = remote_ask(&r->server, &q, r->path, &r->attr, &features);
	if (err < 0) {
		remote_ref_put(r);
		free(f);
		return err_set(err, "%s: %s", name, err_text());
	}
	/* Use checksums unless TLS protects the bytes or they never leave the machine. */
	r->crc = !r->server.tls && !net_addr_is_local(&r->server.addr);
	r->no_reach = -reach_get(&r->server, features, &r->reach);
	if (r->no_reach)
		log_debug("%s is reached without RDMA: %s", name, err_text());
	f->ref = r;
	f->file = (struct file){ .ops = r->reach ? remote_by_rdma(ops) : ops,
				 .flags = flags,
				 .caps = FILE_STALE | (r->reach ? FILE_DEVICE : 0) };
	(void)snprintf(f->file.name, sizeof(f->file.name), "%s", ops->scheme);
	*ret = &f->file;
	return 0;
}

static int remote_open(const char *name, uint32_t flags, uint32_t mode, struct file **ret)
{
	return remote_open_file(&remote_file_ops, name, flags, mode, ret);
}

static int remote_unix_open(const char *name, uint32_t flags, uint32_t mode, struct file **ret)
{
	return remote_open_file(&remote_unix_file_ops, name, flags, mode, ret);
}

static int remote_tls_open(const char *name, uint32_t flags, uint32_t mode, struct file **ret)
{
	return remote_open_file(&remote_tls_file_ops, name, flags, mode, ret);
}

static void remote_free(struct file *file)
{
	struct remote_file *f = remote_of(file);

	atomic_store(&f->ref->closed, true);
	atomic_fetch_add(&remote_nr_closed, 1);
	remote_ref_put(f->ref);
	free(f);
}

static int remote_size(const struct file *file, uint64_t *ret_size)
{
	struct remote_ref *r = remote_of(file)->ref;
	struct wire_request q = { .op = WIRE_STAT };
	struct wire_attr a;
	int err = remote_ask(&r->server, &q, r->path, &a, NULL);

	if (err < 0)
		return err_set(err, "%s: %s", r->path, err_text());
	if (!remote_is_same(&a, &r->attr))
		return err_set(ESTALE, "%s is another file now; open it again", r->path);
	*ret_size = a.size;
	return 0;
}

static int remote_rdma_err(const struct file *file)
{
	const struct remote_ref *r = remote_of(file)->ref;

	return r->reach ? reach_err(r->reach, now_ns()) : r->no_reach;
}

#define OPS(SCHEME, OPEN, HOP, OR_HOP)                                                          \
	{                                                                                       \
		.scheme = SCHEME, .backend = &remote_backend, .hop = (HOP), .or_hop = (OR_HOP), \
		.rdma_err = remote_rdma_err, .open = OPEN, .free = remote_free,                 \
		.size = remote_size, .names = &remote_names_ops                                 \
	}
#define BY_TCP(SCHEME, OPEN) OPS(SCHEME, OPEN, PST_PATH_TCP, 0)
#define BY_RDMA(SCHEME, OPEN) OPS(SCHEME, OPEN, PST_PATH_RDMA, PST_PATH_TCP)

const struct file_ops remote_file_ops = BY_TCP("pst", remote_open);
const struct file_ops remote_unix_file_ops = BY_TCP("pst+unix", remote_unix_open);
const struct file_ops remote_tls_file_ops = BY_TCP("psts", remote_tls_open);

static const struct file_ops by_rdma = BY_RDMA("pst", remote_open);
static const struct file_ops unix_by_rdma = BY_RDMA("pst+unix", remote_unix_open);
static const struct file_ops tls_by_rdma = BY_RDMA("psts", remote_tls_open);

static const struct file_ops *remote_by_rdma(const struct file_ops *ops)
{
	if (ops == &remote_unix_file_ops)
		return &unix_by_rdma;
	return ops == &remote_tls_file_ops ? &tls_by_rdma : &by_rdma;
}
