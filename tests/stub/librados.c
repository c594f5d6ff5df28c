/* SPDX-License-Identifier: MIT */
/*
 * A stub of Ceph's librados over objects in memory, with the functions that Penstock calls.
 * Two threads execute operations and call back in any order.  Tests find the functions
 * stub_rados_* by ctypes.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "stub/fail.h"

#define SYM(result, name, args) result name args;
#include "rados/rados_syms.h"

/* Functions for tests, called by ctypes. */
void stub_rados_freeze(int frozen);
void stub_rados_full(int full);
int stub_rados_fail(const char *spec);
void stub_rados_put(const char *pool, const char *name, const char *data, size_t len);
void stub_rados_set(const char *pool, const char *name, const char *attr, const char *value);
long stub_rados_get(const char *pool, const char *name, char *ret, size_t len);
unsigned long stub_rados_queued(void);
unsigned stub_rados_opening(void);

#define THREADS 2
#define ACTIONS_MAX 8
#define ATTRS_MAX 8
#define NAME_LEN 2100
#define OBJECT_MAX (128ul << 20)
#define FULL_TRY 64

struct attr {
	char name[64], value[64];
	size_t len;
};

struct object {
	struct object *next;
	char name[NAME_LEN];
	char *data;
	size_t len;
	uint64_t version;
	time_t mtime;
	struct attr attrs[ATTRS_MAX];
	unsigned nr_attrs;
};

struct pool {
	char name[64];
	struct object *objects;
};

struct ioctx {
	struct pool *pool;
};

/* Kinds from CREATE on write. */
enum kind { ASSERT, STAT, ATTRS, READ, CREATE, DEMAND, WRITE, SET, COMPARE, TRUNCATE, REMOVE };

struct action {
	enum kind kind;
	uint64_t off, *ret_size;
	size_t len, *ret_got;
	char *buf; /* the caller's buffer; for a write a copy of it */
	char name[64];
	time_t *ret_mtime;
	void **ret_iter;
	int *ret_result, flag;
};

struct op {
	struct action actions[ACTIONS_MAX];
	unsigned nr;
};

struct completion {
	struct completion *next;
	void (*done)(void *, void *);
	void *arg;
	int result;
	uint64_t version;
	unsigned refs;
	/* The queued operation. */
	struct op op;
	struct pool *pool;
	char object[NAME_LEN];
	int flags;
	bool canceled;
};

struct iter {
	struct attr attrs[ATTRS_MAX];
	unsigned nr, at;
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct pool pools[4];
	struct completion *queue;
	uint64_t version;
	unsigned nr_queued, opening;
	bool full, started;
	int frozen; /* operations held up; see stub_rados_freeze() */
	struct stub_fail fail;
} self = { .lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER };

/* ----------------------------------------------------------------- objects */

static struct object **find(struct pool *p, const char *name)
{
	struct object **at = &p->objects;

	while (*at && strcmp((*at)->name, name) != 0)
		at = &(*at)->next;
	return at;
}

static struct attr *attr_of(struct object *o, const char *name)
{
	for (unsigned i = 0; i < o->nr_attrs; i++)
		if (strcmp(o->attrs[i].name, name) == 0)
			return &o->attrs[i];
	return NULL;
}

static void resize(struct object *o, size_t len)
{
	char *more = realloc(o->data, len ? len : 1);

	if (!more)
		abort();
	if (len > o->len)
		memset(more + o->len, 0, len - o->len);
	o->data = more;
	o->len = len;
}

static void set_attr(struct object *o, const char *name, const char *value, size_t len)
{
	struct attr *a = attr_of(o, name);

	if (!a && o->nr_attrs < ATTRS_MAX)
		a = &o->attrs[o->nr_attrs++];
	if (!a || len > sizeof(a->value))
		abort();
	(void)snprintf(a->name, sizeof(a->name), "%s", name);
	memcpy(a->value, value, len);
	a->len = len;
}

static int demand(uint64_t is, uint64_t version)
{
	return version < is ? -ERANGE : version > is ? -EOVERFLOW : 0;
}

static int read_one(struct object *o, struct action *a)
{
	struct iter *it;

	if (a->kind == ASSERT)
		return demand(o->version, a->off);
	if (a->kind == STAT) {
		*a->ret_size = o->len;
		*a->ret_mtime = o->mtime;
	} else if (a->kind == ATTRS) {
		it = calloc(1, sizeof(*it));
		if (!it)
			abort();
		memcpy(it->attrs, o->attrs, sizeof(it->attrs));
		it->nr = o->nr_attrs;
		*a->ret_iter = it;
	} else {
		*a->ret_got = a->off >= o->len           ? 0
			      : o->len - a->off < a->len ? o->len - a->off
							 : a->len;
		memcpy(a->buf, o->data ? o->data + a->off : "", *a->ret_got);
	}
	if (a->ret_result)
		*a->ret_result = 0;
	return 0;
}

static int check_write(struct object *o, const struct action *a)
{
	const struct attr *is;

	if (a->kind == CREATE)
		return o && a->flag ? -EEXIST : 0;
	if (a->kind == DEMAND)
		return demand(o ? o->version : 0, a->off);
	if (a->kind == REMOVE)
		return o ? 0 : -ENOENT;
	if (a->kind == WRITE && a->off + a->len > OBJECT_MAX)
		return -EFBIG;
	if (a->kind != COMPARE)
		return 0;
	is = o ? attr_of(o, a->name) : NULL;
	return is && is->len == a->len && memcmp(is->value, a->buf, a->len) == 0 ? 0 : -ECANCELED;
}

static void write_one(struct object *o, const struct action *a)
{
	if (a->kind == WRITE) {
		if (a->off + a->len > o->len)
			resize(o, a->off + a->len);
		memcpy(o->data + a->off, a->buf, a->len);
	} else if (a->kind == TRUNCATE) {
		resize(o, a->off);
	} else if (a->kind == SET) {
		set_attr(o, a->name, a->buf, a->len);
	}
}

static struct object *make(struct completion *c, struct object **at)
{
	struct object *o = calloc(1, sizeof(*o));

	if (!o)
		abort();
	(void)snprintf(o->name, sizeof(o->name), "%s", c->object);
	*at = o;
	return o;
}

/* Execute all of an operation or none of it.  Call it with the lock held. */
static int execute(struct completion *c)
{
	struct object **at = find(c->pool, c->object), *o = *at;
	bool write = false, makes = false;
	int r;

	if (c->canceled)
		return -ECANCELED;
	for (unsigned i = 0; i < c->op.nr; i++) {
		struct action *a = &c->op.actions[i];

		write |= a->kind >= CREATE;
		makes |= a->kind == CREATE || a->kind == WRITE || a->kind == SET;
		if (a->kind >= CREATE && (r = check_write(o, a)) < 0)
			return r;
		if (a->kind < CREATE && !o)
			return -ENOENT;
		if (a->kind < CREATE && (r = read_one(o, a)) < 0)
			return r;
		if (a->kind == REMOVE) {
			*at = o->next;
			free(o->data);
			free(o);
			return 0;
		}
	}
	if (write && self.full && makes)
		return c->flags & FULL_TRY ? -ENOSPC : -EAGAIN;
	if (write && !o && !makes)
		return 0; /* a truncate of a missing object */
	if (write && !o)
		o = make(c, at);
	for (unsigned i = 0; i < c->op.nr; i++)
		write_one(o, &c->op.actions[i]);
	if (write) {
		o->version = ++self.version;
		o->mtime = time(NULL);
	}
	c->version = o->version;
	return 0;
}

/* -------------------------------------------------------------- completions */

static void put(struct completion *c)
{
	bool last;

	(void)pthread_mutex_lock(&self.lock);
	last = --c->refs == 0;
	(void)pthread_mutex_unlock(&self.lock);
	if (last)
		free(c);
}

static bool hangs(const struct completion *c)
{
	enum kind first = c->op.actions[0].kind;

	return self.frozen == 1 || (self.frozen == 2 && first == ASSERT) ||
	       (self.frozen == 3 && first >= CREATE);
}

/* Take the next operation that may run: any canceled one, or one that stub_rados_freeze() does
 * not hold. */
static struct completion *take(void)
{
	static unsigned turn;
	struct completion **at = &self.queue, *c;
	unsigned skip = self.nr_queued > 1 ? ++turn % 2 : 0;

	for (; *at; at = &(*at)->next) {
		if (!(*at)->canceled && (hangs(*at) || skip-- > 0))
			continue;
		c = *at;
		*at = c->next;
		self.nr_queued--;
		return c;
	}
	return NULL;
}

static void *run(void *arg)
{
	(void)arg;
	(void)pthread_mutex_lock(&self.lock);
	for (;;) {
		struct completion *c = take();

		if (!c) {
			(void)pthread_cond_wait(&self.more, &self.lock);
			continue;
		}
		c->result = execute(c);
		for (unsigned i = 0; i < c->op.nr; i++)
			if (c->op.actions[i].kind >= CREATE)
				free(c->op.actions[i].buf);
		(void)pthread_mutex_unlock(&self.lock);
		c->done(c, c->arg);
		put(c);
		(void)pthread_mutex_lock(&self.lock);
	}
	return NULL;
}

static int start(struct op *op, struct ioctx *io, struct completion *c, const char *object,
		 int flags, const char *what)
{
	struct completion **at = &self.queue;
	int r;

	(void)pthread_mutex_lock(&self.lock);
	r = stub_fail_hit(&self.fail, what);
	if (r < 0) {
		(void)pthread_mutex_unlock(&self.lock);
		return r;
	}
	c->op = *op;
	op->nr = 0;
	c->pool = io->pool;
	c->flags = flags;
	(void)snprintf(c->object, sizeof(c->object), "%s", object);
	c->refs++;
	while (*at)
		at = &(*at)->next;
	c->next = NULL;
	*at = c;
	self.nr_queued++;
	(void)pthread_cond_broadcast(&self.more);
	(void)pthread_mutex_unlock(&self.lock);
	return 0;
}

int rados_aio_create_completion2(void *arg, void (*done)(void *, void *), void **ret)
{
	struct completion *c;
	int r;

	(void)pthread_mutex_lock(&self.lock);
	r = stub_fail_hit(&self.fail, __func__);
	(void)pthread_mutex_unlock(&self.lock);
	c = r < 0 ? NULL : calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	*c = (struct completion){ .done = done, .arg = arg, .refs = 1 };
	*ret = c;
	return 0;
}

int rados_aio_get_return_value(void *c)
{
	return ((struct completion *)c)->result;
}

uint64_t rados_aio_get_version(void *c)
{
	return ((struct completion *)c)->version;
}

void rados_aio_release(void *c)
{
	put(c);
}

int rados_aio_cancel(void *io, void *completion)
{
	(void)io;
	(void)pthread_mutex_lock(&self.lock);
	((struct completion *)completion)->canceled = true;
	(void)pthread_cond_broadcast(&self.more);
	(void)pthread_mutex_unlock(&self.lock);
	return 0;
}

/* -------------------------------------------------------------- operations */

static struct action *add(void *op, enum kind kind)
{
	struct op *o = op;
	struct action *a = &o->actions[o->nr++];

	if (o->nr > ACTIONS_MAX)
		abort();
	*a = (struct action){ .kind = kind };
	return a;
}

static struct action *add_bytes(void *op, enum kind kind, const char *buf, size_t len)
{
	struct action *a = add(op, kind);

	a->buf = malloc(len ? len : 1);
	if (!a->buf)
		abort();
	memcpy(a->buf, buf, len);
	a->len = len;
	return a;
}

void *rados_create_read_op(void)
{
	return calloc(1, sizeof(struct op));
}

void rados_release_read_op(void *op)
{
	free(op);
}

void rados_read_op_assert_version(void *op, uint64_t version)
{
	add(op, ASSERT)->off = version;
}

void rados_read_op_stat(void *op, uint64_t *size, time_t *mtime, int *result)
{
	struct action *a = add(op, STAT);

	a->ret_size = size;
	a->ret_mtime = mtime;
	a->ret_result = result;
}

void rados_read_op_getxattrs(void *op, void **iter, int *result)
{
	struct action *a = add(op, ATTRS);

	a->ret_iter = iter;
	a->ret_result = result;
}

void rados_read_op_read(void *op, uint64_t off, size_t len, char *buf, size_t *got, int *result)
{
	struct action *a = add(op, READ);

	a->off = off;
	a->len = len;
	a->buf = buf;
	a->ret_got = got;
	a->ret_result = result;
}

int rados_aio_read_op_operate(void *op, void *io, void *c, const char *object, int flags)
{
	return start(op, io, c, object, flags, __func__);
}

int rados_getxattrs_next(void *iter, const char **name, const char **value, size_t *len)
{
	struct iter *it = iter;

	*name = *value = NULL;
	*len = 0;
	if (it->at == it->nr)
		return 0;
	*name = it->attrs[it->at].name;
	*value = it->attrs[it->at].value;
	*len = it->attrs[it->at++].len;
	return 0;
}

void rados_getxattrs_end(void *iter)
{
	free(iter);
}

void *rados_create_write_op(void)
{
	return calloc(1, sizeof(struct op));
}

void rados_release_write_op(void *op)
{
	struct op *o = op;

	for (unsigned i = 0; i < o->nr; i++)
		free(o->actions[i].buf);
	free(o);
}

void rados_write_op_assert_version(void *op, uint64_t version)
{
	add(op, DEMAND)->off = version;
}

void rados_write_op_create(void *op, int exclusive, const char *category)
{
	(void)category;
	add(op, CREATE)->flag = exclusive;
}

void rados_write_op_write(void *op, const char *buf, size_t len, uint64_t off)
{
	add_bytes(op, WRITE, buf, len)->off = off;
}

void rados_write_op_setxattr(void *op, const char *name, const char *value, size_t len)
{
	struct action *a = add_bytes(op, SET, value, len);

	(void)snprintf(a->name, sizeof(a->name), "%s", name);
}

void rados_write_op_cmpxattr(void *op, const char *name, uint8_t compare, const char *value,
			     size_t len)
{
	struct action *a = add_bytes(op, COMPARE, value, len);

	(void)compare;
	(void)snprintf(a->name, sizeof(a->name), "%s", name);
}

void rados_write_op_truncate(void *op, uint64_t size)
{
	add(op, TRUNCATE)->off = size;
}

void rados_write_op_remove(void *op)
{
	(void)add(op, REMOVE);
}

int rados_aio_write_op_operate(void *op, void *io, void *c, const char *object, time_t *mtime,
			       int flags)
{
	(void)mtime;
	return start(op, io, c, object, flags, __func__);
}

/* ------------------------------------------------------------------ cluster */

static int hit(const char *what)
{
	int r;

	(void)pthread_mutex_lock(&self.lock);
	r = stub_fail_hit(&self.fail, what);
	(void)pthread_mutex_unlock(&self.lock);
	return r;
}

void rados_version(int *major, int *minor, int *extra)
{
	*major = 3;
	*minor = *extra = 0;
}

int rados_create2(void **ret, const char *name, const char *user, uint64_t flags)
{
	(void)name;
	(void)flags;
	*ret = &self;
	return strncmp(user, "client.", 7) == 0 ? hit(__func__) : -EINVAL;
}

int rados_conf_read_file(void *cluster, const char *path)
{
	(void)cluster;
	(void)path;
	return hit(__func__);
}

int rados_conf_parse_env(void *cluster, const char *variable)
{
	(void)cluster;
	(void)variable;
	return 0;
}

int rados_conf_set(void *cluster, const char *option, const char *value)
{
	(void)cluster;
	(void)option;
	(void)value;
	return hit(__func__);
}

int rados_connect(void *cluster)
{
	pthread_t t;
	int r = hit(__func__);

	(void)cluster;
	if (r < 0 || self.started)
		return r;
	self.started = true;
	for (unsigned i = 0; i < THREADS; i++) {
		(void)pthread_create(&t, NULL, run, NULL);
		(void)pthread_detach(t);
	}
	return 0;
}

void rados_shutdown(void *cluster)
{
	(void)cluster;
}

static struct pool *pool_named(const char *name)
{
	for (unsigned i = 0; i < 4; i++) {
		struct pool *p = &self.pools[i];

		if (!p->name[0])
			(void)snprintf(p->name, sizeof(p->name), "%s", name);
		if (strcmp(p->name, name) == 0)
			return p;
	}
	return NULL;
}

int rados_ioctx_create(void *cluster, const char *pool, void **ret)
{
	struct ioctx *io;
	int r = hit(__func__);

	(void)cluster;
	if (r < 0 || strcmp(pool, "none") == 0)
		return r < 0 ? r : -ENOENT;
	(void)pthread_mutex_lock(&self.lock);
	self.opening++;
	while (self.frozen == 1 && strcmp(pool, "slow") == 0)
		(void)pthread_cond_wait(&self.more, &self.lock);
	self.opening--;
	(void)pthread_mutex_unlock(&self.lock);
	io = calloc(1, sizeof(*io));
	if (!io)
		abort();
	(void)pthread_mutex_lock(&self.lock);
	io->pool = pool_named(pool);
	(void)pthread_mutex_unlock(&self.lock);
	*ret = io;
	return 0;
}

void rados_ioctx_destroy(void *io)
{
	free(io);
}

/* A list of object names, in one block. */
struct list {
	size_t nr, at;
	char names[][NAME_LEN];
};

int rados_nobjects_list_open(void *io, void **ret)
{
	struct pool *p = ((struct ioctx *)io)->pool;
	struct list *l;
	size_t nr = 0;
	int r = hit(__func__);

	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&self.lock);
	for (struct object *o = p->objects; o; o = o->next)
		nr++;
	l = malloc(sizeof(*l) + nr * NAME_LEN);
	if (!l)
		abort();
	l->nr = l->at = 0;
	for (struct object *o = p->objects; o; o = o->next)
		memcpy(l->names[l->nr++], o->name, NAME_LEN);
	(void)pthread_mutex_unlock(&self.lock);
	*ret = l;
	return 0;
}

int rados_nobjects_list_next(void *list, const char **object, const char **key, const char **space)
{
	struct list *l = list;
	int r = hit(__func__);

	if (r < 0)
		return r;
	*key = *space = NULL;
	if (l->at == l->nr)
		return -ENOENT;
	*object = l->names[l->at++];
	return 0;
}

void rados_nobjects_list_close(void *list)
{
	free(list);
}

/* -------------------------------------------------------------- for tests */

/* Hold up operations: 1: all, and opens of the pool "slow"; 2: reads that first demand a
 * version; 3: writes; 0: none. */
void stub_rados_freeze(int frozen)
{
	(void)pthread_mutex_lock(&self.lock);
	self.frozen = frozen;
	(void)pthread_cond_broadcast(&self.more);
	(void)pthread_mutex_unlock(&self.lock);
}

void stub_rados_full(int full)
{
	self.full = full;
}

/* See stub_fail_set(). */
int stub_rados_fail(const char *spec)
{
	bool met;

	(void)pthread_mutex_lock(&self.lock);
	met = stub_fail_set(&self.fail, spec);
	(void)pthread_mutex_unlock(&self.lock);
	return met;
}

/* Write an object as another program would. */
void stub_rados_put(const char *pool, const char *name, const char *data, size_t len)
{
	struct completion c = { 0 };
	struct object **at;

	(void)pthread_mutex_lock(&self.lock);
	(void)snprintf(c.object, sizeof(c.object), "%s", name);
	at = find(pool_named(pool), name);
	if (!*at)
		(void)make(&c, at);
	resize(*at, len);
	memcpy((*at)->data, data, len);
	(*at)->version = ++self.version;
	(void)pthread_mutex_unlock(&self.lock);
}

void stub_rados_set(const char *pool, const char *name, const char *attr, const char *value)
{
	struct object *o;

	(void)pthread_mutex_lock(&self.lock);
	o = *find(pool_named(pool), name);
	set_attr(o, attr, value, strlen(value));
	o->version = ++self.version;
	(void)pthread_mutex_unlock(&self.lock);
}

/* Copy up to @len bytes of an object and return the object's length; -1: there is none. */
long stub_rados_get(const char *pool, const char *name, char *ret, size_t len)
{
	struct object *o;
	long is;

	(void)pthread_mutex_lock(&self.lock);
	o = *find(pool_named(pool), name);
	is = o ? (long)o->len : -1;
	if (o && ret && o->len)
		memcpy(ret, o->data, o->len < len ? o->len : len);
	(void)pthread_mutex_unlock(&self.lock);
	return is;
}

/* Return the bytes of all queued operations, plus one for each operation. */
unsigned long stub_rados_queued(void)
{
	unsigned long bytes = 0;

	(void)pthread_mutex_lock(&self.lock);
	for (struct completion *c = self.queue; c; c = c->next) {
		bytes++;
		for (unsigned i = 0; i < c->op.nr; i++)
			bytes += c->op.actions[i].len;
	}
	(void)pthread_mutex_unlock(&self.lock);
	return bytes;
}

/* Return the number of pool opens in progress. */
unsigned stub_rados_opening(void)
{
	unsigned n;

	(void)pthread_mutex_lock(&self.lock);
	n = self.opening;
	(void)pthread_mutex_unlock(&self.lock);
	return n;
}
