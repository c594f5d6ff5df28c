/* SPDX-License-Identifier: MIT */
/*
 * Copy to and from a peer's memory that is mapped by a grant.
 *
 * The thread that starts or reaps an operation copies in chunks, and holds the import for one chunk
 * at a time.  So between two chunks the owner can revoke the memory, and the operation can be
 * cancelled.
 */
#include "base/err.h"
#include "base/log.h"
#include "peer/ctx.h"

#define CHUNK MIB(1)

/* ----------------------------------------------------------------- imports */

struct import *peer_import_new(struct pst_peer *p, uint64_t share)
{
	struct import *i = calloc(1, sizeof(*i));

	if (!i)
		return NULL;
	i->peer = p;
	i->share = share;
	i->users = 1;
	list_init(&i->link);
	(void)pthread_mutex_init(&i->stream_lock, NULL);
	return i;
}

void import_list(struct pst_peer *p, struct import *i)
{
	list_add_tail(&p->imports, &i->link);
	i->listed = true;
}

static int import_answer(struct pst_peer *p, uint64_t share)
{
	struct item *it = peer_item_new(PEER_REVOKED, 0);

	if (!it || p->nr_revoked == PEER_SHARES_MAX) {
		peer_item_free(it);
		return it ? -EPROTO : -ENOMEM;
	}
	it->m.share = share;
	peer_items_push(&p->out, it);
	p->nr_revoked++;
	peer_kick(p);
	return 0;
}

/* Return true if the owner waits for no other import of the share.  The lock is held. */
static bool import_is_last(const struct import *i)
{
	struct list *e;

	list_for_each (e, &i->peer->imports) {
		const struct import *o = list_entry(e, struct import, link);

		if (o != i && o->share == i->share && o->answer)
			return false;
	}
	return true;
}

/* Tell the owner once no import of the share is in use.  The lock is held. */
static void answer_last(struct import *i)
{
	if (!i->answer)
		return;
	i->answer = false;
	/*
	 * If no answer can be allocated, none is sent: the owner then waits until the connection
	 * ends.
	 */
	if (import_is_last(i) && import_answer(i->peer, i->share) < 0)
		log_warn("a peer is not told that its memory is not used any more");
}

/* Release the memory of a revoked import without users.  The lock is held, and dropped during the
 * release. */
static void import_let_go(struct import *i)
{
	struct pst_peer *p = i->peer;
	struct mem_alloc *a = TAKE_PTR(i->alloc);
	struct mem_stream *st = TAKE_PTR(i->stream);

	if (a) {
		i->users++;
		(void)pthread_mutex_unlock(&p->lock);
		mem_stream_free(st);
		mem_free(a);
		(void)pthread_mutex_lock(&p->lock);
		i->users--;
	}
	answer_last(i);
	(void)pthread_cond_broadcast(&p->more);
}

int import_use(struct import *i)
{
	int r;

	(void)pthread_mutex_lock(&i->peer->lock);
	if (i->peer->err || i->peer->closing)
		r = -EPIPE;
	else
		r = i->revoked ? -ESTALE : 0;
	i->users += r == 0;
	(void)pthread_mutex_unlock(&i->peer->lock);
	return r;
}

void import_unuse(struct import *i)
{
	(void)pthread_mutex_lock(&i->peer->lock);
	if (--i->users == 0 && i->revoked)
		import_let_go(i);
	(void)pthread_mutex_unlock(&i->peer->lock);
}

/* Find an import of the share that is not revoked yet. */
static struct import *import_find(struct pst_peer *p, uint64_t share)
{
	struct list *e;

	list_for_each (e, &p->imports) {
		struct import *i = list_entry(e, struct import, link);

		if (i->share == share && !i->revoked)
			return i;
	}
	return NULL;
}

int imports_revoke(struct pst_peer *p, uint64_t share)
{
	struct import *i = import_find(p, share);

	if (!i)
		return import_answer(p, share);
	/* Mark all imports first, so that the last one to end answers. */
	for (struct list *e = p->imports.next; e != &p->imports; e = e->next) {
		i = list_entry(e, struct import, link);
		if (i->share == share && !i->revoked)
			i->answer = true;
	}
	while ((i = import_find(p, share))) {
		i->revoked = true;
		if (!i->users)
			import_let_go(i);
	}
	return 0;
}

void imports_end(struct pst_peer *p)
{
	struct list *e;

	list_for_each (e, &p->imports)
		list_entry(e, struct import, link)->revoked = true;
	for (;;) {
		unsigned users = 0;

		list_for_each (e, &p->imports)
			users += list_entry(e, struct import, link)->users;
		if (!users)
			return;
		(void)pthread_cond_wait(&p->more, &p->lock);
	}
}

void import_free(struct import *i)
{
	if (!i)
		return;
	(void)pthread_mutex_lock(&i->peer->lock);
	if (i->listed) {
		while (i->users)
			(void)pthread_cond_wait(&i->peer->more, &i->peer->lock);
		list_del(&i->link);
		answer_last(i);
		(void)pthread_cond_broadcast(&i->peer->more);
	}
	(void)pthread_mutex_unlock(&i->peer->lock);
	mem_stream_free(i->stream);
	mem_free(i->alloc);
	(void)pthread_mutex_destroy(&i->stream_lock);
	free(i);
}

int import_open(struct import *i, const struct peer_key *k, const uint8_t *grant, int fd)
{
	struct mem_alloc *a = NULL;
	struct pst_grant g;
	int r = grant_get(grant, fd, &g);

	if (r == 0 && (g.len != k->len || (k->rights & ~g.rights))) {
		r = err_set(EBADMSG, "the peer's grant is not that of the key");
		grant_wipe(&g);
	}
	if (r == 0) {
		r = mem_import(&g, &a);
		i->off = g.off;
		grant_wipe(&g);
	}
	if (r == 0 && !a->host && !mem_copies(a->ops)) {
		r = err_set(EOPNOTSUPP, "nothing here copies memory of kind %s", a->ops->name);
		mem_free(TAKE_PTR(a));
	}
	(void)pthread_mutex_lock(&i->peer->lock);
	i->alloc = a;
	if (--i->users == 0 && i->revoked)
		import_let_go(i);
	(void)pthread_mutex_unlock(&i->peer->lock);
	return r;
}

/* ------------------------------------------------------------------ copies */

static int copy_device(struct import *i, enum mem_dir dir, uint64_t off, void *buf, uint64_t len,
		       bool ours)
{
	int r = 0;

	(void)pthread_mutex_lock(&i->stream_lock);
	if (!i->stream)
		r = mem_stream_new(i->alloc->ops, i->alloc->device, &i->stream);
	if (r == 0)
		r = (ours ? mem_copy_wait : mem_copy_wait_program)(i->stream, i->alloc, dir, off,
								   buf, len);
	(void)pthread_mutex_unlock(&i->stream_lock);
	return r;
}

/* Copy a chunk.  Return 0 or -errno. */
static int import_copy(struct import *i, const struct io_op *op, uint64_t len)
{
	enum mem_dir dir = op->kind == IO_WRITE ? MEM_TO_DEVICE : MEM_FROM_DEVICE;
	uint64_t off = i->off + io_op_off(op);
	char *buf = io_op_buf(op), *at;
	int r = import_use(i);

	if (r < 0)
		return r;
	at = (char *)i->alloc->host + off;
	if (!i->alloc->host)
		r = copy_device(i, dir, off, buf, len, op->reg);
	else if (dir == MEM_TO_DEVICE)
		r = io_op_load(op, at, buf, len);
	else
		r = io_op_store(op, buf, at, len);
	import_unuse(i);
	return r;
}

bool memory_go_on(struct peer_file *f, struct io_op *op, uint64_t *budget)
{
	uint64_t end = op->off < f->len ? MIN(op->len, f->len - op->off) : 0;

	while (op->moved < end && *budget) {
		uint64_t most = MIN(*budget, CHUNK), len = MIN(end - op->moved, most);
		int r = import_copy(f->import, op, len);

		if (r < 0) {
			op->res = r;
			return true;
		}
		op->moved += len;
		*budget -= len;
	}
	if (op->moved < end)
		return false;
	op->res = (int64_t)op->moved;
	return true;
}
