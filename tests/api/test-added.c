/* SPDX-License-Identifier: MIT */
/*
 * A provider in a separate file adds files with a new hop, memory that can be exported but that no
 * engine can copy, and a device path that moves bytes by means of the export.
 */
#include <pthread.h>
#include <sys/mman.h>

#include "rig.h"

#include "base/err.h"
#include "core/carry/transfer.h"
#include "core/queue/object.h"
#include "core/queue/req.h"
#include "core/ways/part.h"
#include "core/ways/path.h"
#include "core/ways/way.h"
#include "file/local.h"
#include "mem/mem.h"
#include "mem/memfd.h"
#include "provider.h"

#define SHELF 15u    /* number of the file hop */
#define EXPORTER 13u /* number of the device path */
#define KIND 9u      /* number of the kind of memory */
#define LEN RIG_MIB(4)
#define PART RIG_MIB(1) /* bytes of one transfer */
#define SEED 4

/* ------------------------------------------------------------- files with a hop */

static struct file_ops shelf_file_ops; /* test_file_ops with the hop SHELF */

static enum pst_why shelf_why(const struct pst_file *f, const struct pst_mem *m, uint32_t op,
			      int *ret_detail)
{
	(void)m;
	(void)op;
	(void)ret_detail;
	return f->file->ops->hop == SHELF ? PST_WHY_NONE : PST_WHY_NO_PROVIDER;
}

static enum pst_why shelf_fit(struct part *p, int *ret_detail)
{
	(void)p;
	(void)ret_detail;
	return PST_WHY_NONE;
}

static const struct path_ops shelf = {
	.path = SHELF,
	.name = "shelf",
	.quiet = true, /* do not offer this hop for files of other providers */
	.why = shelf_why,
	.fit = shelf_fit,
};

static int shelf_open(const char *name, uint32_t flags, uint32_t mode, struct file **ret)
{
	int r = test_file_ops.open(name, flags, mode, ret);

	if (r == 0)
		(*ret)->ops = &shelf_file_ops;
	return r;
}

/* ---------------------------------------------------- memory that is exported only */

struct exported {
	struct mem_alloc a; /* must be the first member */
	int fd;
};

static unsigned exported_devices(void)
{
	return 1;
}

static void exported_info(unsigned i, struct pst_device *d)
{
	d->kind = KIND;
	d->numa_node = -1;
	d->total = UINT64_C(1) << 32;
	memset(d->uuid, 0x70, sizeof(d->uuid));
	(void)snprintf(d->name, sizeof(d->name), "exported:%u", i);
	(void)snprintf(d->model, sizeof(d->model), "memory without a copy engine");
}

static bool exported_owns(uint64_t addr, uint64_t len)
{
	(void)addr;
	(void)len;
	return false;
}

static void exported_free(struct mem_alloc *a)
{
	struct exported *x = container_of(a, struct exported, a);

	(void)munmap((void *)(uintptr_t)a->base.va, a->size);
	(void)close(x->fd);
	free(x);
}

static int exported_alloc(unsigned device, uint64_t len, uint32_t flags, struct mem_alloc **ret)
{
	struct exported *x = calloc(1, sizeof(*x));
	void *va;

	T_CHECK(x);
	len = (len + 4095) & ~UINT64_C(4095);
	x->fd = memfd_new("exported", len);
	/* Reserve addresses that the CPU cannot access. */
	va = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	T_CHECK(x->fd >= 0 && va != MAP_FAILED);
	x->a = (struct mem_alloc){
		.ops = mem_provider(KIND),
		.device = device,
		.size = len,
		.buffer_id = mem_buffer_id(),
		.flags = flags,
		.rights = PST_RIGHT_READ | PST_RIGHT_WRITE,
		.owned = true,
		.base.va = (uintptr_t)va,
	};
	*ret = &x->a;
	return 0;
}

static int exported_dmabuf(const struct mem_alloc *a, uint64_t off, uint64_t len,
			   struct mem_dmabuf *ret)
{
	const struct exported *x = container_of(a, struct exported, a);

	(void)len;
	*ret = (struct mem_dmabuf){
		.fd = dup(x->fd), .off = off, .size = a->size, .caching = PST_CACHING_CACHED
	};
	return ret->fd < 0 ? -errno : 0;
}

static const struct mem_ops exported_ops = {
	.name = "exported",
	.kind = KIND,
	.devices = exported_devices,
	.device_info = exported_info,
	.owns = exported_owns,
	.alloc = exported_alloc,
	.export_dmabuf = exported_dmabuf,
	.free = exported_free,
};

/* ----------------------------------------------------- the path, by that export */

/* What the path keeps in by_path[EXPORTER] of an allocation, like a memory region of a network
 * card. */
struct mapping {
	char *at;
	uint64_t len;
};

struct move {
	struct transfer t; /* must be the first member */
	char *at;
	pthread_t thread;
};

static enum pst_why exporter_why(const struct pst_file *f, const struct pst_mem *m, uint32_t op,
				 int *ret_detail)
{
	(void)op;
	(void)ret_detail;
	return !mem_on_host(m) && mem_ops_of(m)->kind == KIND && file_local(f->file)
		       ? PST_WHY_NONE
		       : PST_WHY_NO_PROVIDER;
}

static struct mapping *map_export(struct region *r)
{
	struct mapping *g = atomic_load(&r->by_path[EXPORTER]);
	struct mem_dmabuf d;

	if (g)
		return g;
	if (mem_export_dmabuf(r->alloc, 0, r->alloc->size, &d) < 0)
		return NULL;
	g = calloc(1, sizeof(*g));
	T_CHECK(g);
	g->len = d.size;
	g->at = mmap(NULL, d.size, PROT_READ | PROT_WRITE, MAP_SHARED, d.fd, 0);
	T_CHECK(g->at != MAP_FAILED);
	(void)close(d.fd);
	return path_keep(&r->by_path[EXPORTER], g);
}

static void *move_bytes(void *arg)
{
	struct move *v = arg;
	const struct pst_io *io = &v->t.req->io;
	int fd = local_of(req_file(v->t.req))->fd;
	ssize_t n;

	n = io->op == PST_OP_READ ? pread(fd, v->at, v->t.pc.len, (off_t)v->t.pc.file_off)
				  : pwrite(fd, v->at, v->t.pc.len, (off_t)v->t.pc.file_off);
	if (n < 0) {
		v->t.why = PST_WHY_NOT_PROVEN;
		v->t.detail = errno;
	}
	v->t.got = n < 0 ? 0 : (uint64_t)n;
	(void)pthread_detach(pthread_self());
	transfer_done(&v->t);
	return NULL;
}

static uint64_t exporter_fit(const struct req *r, const struct piece *pc, uint64_t *ret_skip)
{
	(void)r;
	*ret_skip = 0;
	return pc->len;
}

static int exporter_start(struct req *r, const struct piece *pc, uint64_t len,
			  struct transfer **ret)
{
	const struct mapping *g = map_export(req_mem(r)->region);
	struct move *v = calloc(1, sizeof(*v));

	T_CHECK(g && v);
	v->t.req = r;
	v->t.pc = *pc;
	v->t.pc.len = len > PART ? PART : len;
	v->at = g->at + req_mem(r)->off + pc->mem_off;
	if (pthread_create(&v->thread, NULL, move_bytes, v) != 0) {
		free(v);
		return -EAGAIN;
	}
	*ret = &v->t;
	return 1;
}

static void exporter_stopped(const struct req *r)
{
	(void)r;
}

static void exporter_free(struct transfer *t)
{
	free(t); /* t is the first member of struct move */
}

static const struct path_pieces exporter_pieces = {
	.path = EXPORTER,
	.why = PST_WHY_NO_PROVIDER,
	.fit = exporter_fit,
	.start = exporter_start,
	.stopped = exporter_stopped,
	.free = exporter_free,
};

static int exporter_choose(struct req *r)
{
	if (req_plan(r)->dev == EXPORTER)
		req_plan(r)->pieces = &exporter_pieces;
	return 0;
}

static void exporter_region_end(struct region *r)
{
	struct mapping *g = r->by_path[EXPORTER];

	(void)munmap(g->at, g->len);
	free(g);
}

static const struct path_ops exporter = {
	.path = EXPORTER,
	.name = "exporter",
	.by = &req_by_engine,
	.why = exporter_why,
	.choose = exporter_choose,
	.region_end = exporter_region_end,
};

/* ----------------------------------------------------------------------- cases */

/* Wrap a descriptor: a file opened by path would belong to the test provider. */
static struct pst_file *open_local(void)
{
	int fd = open(rig_path("data"), O_RDWR | O_CLOEXEC);
	struct pst_file *f = NULL;

	T_CHECK(fd >= 0);
	T_OK(pst_file_wrap(fd, 0, NULL, &f));
	(void)close(fd);
	return f;
}

static void the_hop_is_named(void)
{
	struct pst_path_info info = { .sz = sizeof(info) };
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	bool host = !strcmp(rig_dev, "host");
	struct pst_file *f, *local;
	struct pst_done d;
	struct pst_io io;
	char name[600];

	rig_make(rig_path("data"), SEED, LEN);
	(void)snprintf(name, sizeof(name), "shelf://%s", rig_path("data"));
	f = rig_open(name, RIG_RW);
	d = rig_read(f, m, 0, 0, LEN);
	T_EQ(d.res, LEN);
	T_EQ(d.why, PST_WHY_NONE);
	T_EQ(d.paths, PST_PATH_BIT(SHELF) | (host ? 0 : PST_PATH_BIT(PST_PATH_STAGED)));
	T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
	T_CHECK(!strcmp(pst_path_name(SHELF), "shelf"));
	T_EQ(rig_stats(rig_q).bytes[SHELF], LEN);
	T_OK(pst_path_check(f, m, PST_OP_READ, PST_PATH_BUFFERED, &info));
	T_EQ(info.why, PST_WHY_NO_PROVIDER);
	/* A strict request works, because the provider's hop is the preferred one. */
	io = rig_io(PST_OP_READ, f, m, 0, 0, LEN);
	io.flags = PST_IO_STRICT;
	T_EQ(rig_do(rig_q, &io).res, LEN);
	/* The hop can be listed by its number. A file of another provider must refuse it. */
	io.flags = 0;
	io.policy = host ? SHELF : PST_POLICY2(PST_PATH_STAGED, SHELF);
	T_EQ(rig_do(rig_q, &io).res, LEN);
	local = open_local();
	io.file = local;
	T_EQ(rig_do(rig_q, &io).res, -EOPNOTSUPP);
	io = rig_io(PST_OP_WRITE, f, m, 4096, 0, 8192);
	d = rig_do(rig_q, &io);
	T_EQ(d.res, 8192);
	T_CHECK(d.paths & PST_PATH_BIT(SHELF));
	T_EQ(rig_read(local, m, 0, 0, LEN).res, LEN);
	T_EQ(rig_mem_differs(m, 4096, 8192, SEED, 0), 8192);
	pst_file_close(local);
	pst_file_close(f);
	pst_mem_free(m);
}

static void exported_memory_is_filled(void)
{
	struct pst_device dev = { .sz = sizeof(dev) };
	struct pst_file *f, *shelved;
	struct pst_mem *m, *host;
	struct pst_done d;
	struct pst_io io;
	char name[600];

	rig_make(rig_path("data"), SEED, LEN);
	f = open_local();
	T_OK(pst_device_find("exported:0", &dev));
	T_EQ(dev.kind, KIND);
	m = rig_alloc("exported:0", LEN);
	d = rig_read(f, m, 0, 0, LEN);
	T_EQ(d.res, LEN);
	T_EQ(d.paths, PST_PATH_BIT(EXPORTER));
	T_EQ(d.why, PST_WHY_NONE);
	T_CHECK(!strcmp(pst_path_name(EXPORTER), "exporter"));
	/* Write to the file after the old bytes, then read those back into host memory. */
	io = rig_io(PST_OP_WRITE, f, m, LEN, 0, LEN);
	T_EQ(rig_do(rig_q, &io).res, LEN);
	host = rig_alloc("host", LEN);
	T_EQ(rig_read(f, host, LEN, 0, LEN).res, LEN);
	T_EQ(rig_mem_differs(host, 0, LEN, SEED, 0), LEN);
	/*
	 * This memory cannot be staged, even if the policy lists staging.  A file that the path
	 * does not serve cannot be read into it.
	 */
	io = rig_io(PST_OP_READ, f, m, 0, 0, LEN);
	io.policy = PST_PATH_STAGED;
	T_EQ(rig_do(rig_q, &io).res, -EOPNOTSUPP);
	(void)snprintf(name, sizeof(name), "shelf://%s", rig_path("data"));
	shelved = rig_open(name, RIG_R);
	io = rig_io(PST_OP_READ, shelved, m, 0, 0, LEN);
	T_EQ(rig_do(rig_q, &io).res, -EOPNOTSUPP);
	T_CHECK(strstr(pst_error_text(), "none of the listed paths") ||
		strstr(pst_error_text(), "no path"));
	pst_file_close(shelved);
	pst_mem_free(host);
	pst_mem_free(m);
	pst_file_close(f);
}

static void names_and_numbers_are_taken_once(void)
{
	struct mem_ops same = exported_ops;

	T_EQ(mem_provider_add(&exported_ops), -EEXIST);
	same.kind++;
	T_EQ(mem_provider_add(&same), -EEXIST);
	T_EQ(path_add(&shelf), -EEXIST);
	T_EQ(file_provider_add(&shelf_file_ops), -EEXIST);
	T_CHECK(!strcmp(pst_path_name(14), "unknown"));
}

int main(void)
{
	rig_init();
	shelf_file_ops = test_file_ops;
	shelf_file_ops.scheme = "shelf";
	shelf_file_ops.open = shelf_open;
	shelf_file_ops.hop = SHELF;
	T_OK(path_add(&shelf));
	T_OK(path_add(&exporter));
	T_OK(mem_provider_add(&exported_ops));
	T_OK(file_provider_add(&shelf_file_ops));
	RIG_RUN(the_hop_is_named);
	RIG_RUN_BACKENDS(exported_memory_is_filled);
	RIG_RUN1(names_and_numbers_are_taken_once);
	return rig_done();
}
