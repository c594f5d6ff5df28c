/* SPDX-License-Identifier: MIT */
/*
 * The C side of the plug-in for NIXL, without NIXL: random transfers of many threads against a
 * model, descriptors that NIXL would refuse itself, lost requests, and failures of every
 * allocation.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plug_int.h"

#include "t.h"

#include "scratch.h"

#define THREADS 4
#define ROUNDS 60
#define FILES 2
#define SIZE (3u << 20)   /* of memory and of each file */
#define STEP 13000u       /* most descriptors lie in steps of this size */
#define BIG (SIZE / STEP) /* descriptors of the largest transfer */

static char dir[PATH_MAX - 64];
static char library[PATH_MAX]; /* the NIXL library that seems to be loaded */
static char said[1024];        /* the last line of the log */
static atomic_uint busy;       /* number of next completions to make busy */
static atomic_bool holding;    /* their memory is not quiet yet */
static _Atomic(struct pst_mem *) held;
static atomic_int fail_at; /* the allocation that fails, counted down; 0: none */
static atomic_bool no_threads;
static atomic_bool stuck;       /* requests do not complete before a cancel */
static atomic_uint preps;       /* calls of pst_queue_prep() */
static atomic_uint syncs;       /* those of them with PST_OP_SYNC */
static atomic_uint cancels;     /* calls of pst_queue_cancel() */
static atomic_bool late;        /* the next completion is kept back until it is cleared */
static atomic_bool opening;     /* files are not opened before it is cleared */
static atomic_bool no_patience; /* waits of plug_req_free() and plug_region_free() end at once */

int __real_pst_queue_prep(struct pst_queue *queue, const struct pst_io *io);
int __wrap_pst_queue_prep(struct pst_queue *queue, const struct pst_io *io);
int __real_pst_queue_cancel(struct pst_queue *queue, uint64_t user_data);
int __wrap_pst_queue_cancel(struct pst_queue *queue, uint64_t user_data);
int __real_pst_queue_reap(struct pst_queue *queue, struct pst_done *ret_done, unsigned min,
			  unsigned max, uint64_t deadline_ns);
int __wrap_pst_queue_reap(struct pst_queue *queue, struct pst_done *ret_done, unsigned min,
			  unsigned max, uint64_t deadline_ns);
int __real_pst_file_wrap(int fd, uint32_t flags, const struct pst_file_opts *opts,
			 struct pst_file **ret_file);
int __wrap_pst_file_wrap(int fd, uint32_t flags, const struct pst_file_opts *opts,
			 struct pst_file **ret_file);
int __real_pst_mem_drain(struct pst_mem *mem, uint64_t deadline_ns);
int __wrap_pst_mem_drain(struct pst_mem *mem, uint64_t deadline_ns);
int __real_pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*fn)(void *),
			  void *arg);
/* Two are visible, because the linker resolves calls of shared libraries with them, too. */
__attribute__((visibility("default"))) int __wrap_pthread_create(pthread_t *ret,
								 const pthread_attr_t *attr,
								 void *(*fn)(void *), void *arg);
void *__real_calloc(size_t nr, size_t size);
__attribute__((visibility("default"))) void *__wrap_calloc(size_t nr, size_t size);
typedef int visit(struct dl_phdr_info *info, size_t size, void *arg);
__attribute__((visibility("default"))) int __wrap_dl_iterate_phdr(visit *fn, void *arg);
int __real_dl_iterate_phdr(visit *fn, void *arg);
struct timespec __real_plug_after(unsigned seconds);
struct timespec __wrap_plug_after(unsigned seconds);
void __wrap_plug_log(const char *format, ...);

int __wrap_pst_queue_prep(struct pst_queue *queue, const struct pst_io *io)
{
	preps++;
	syncs += io->op == PST_OP_SYNC;
	return __real_pst_queue_prep(queue, io);
}

int __wrap_pst_queue_cancel(struct pst_queue *queue, uint64_t user_data)
{
	cancels++;
	return __real_pst_queue_cancel(queue, user_data);
}

/* While late is set, keep the first completion, and return it to its queue later. */
static int keep_back(const struct pst_queue *queue, struct pst_done *dones, int nr)
{
	static const struct pst_queue *from;
	static struct pst_done kept;

	if (late && nr == 1 && !from) {
		kept = dones[0];
		from = queue;
		return 0;
	}
	if (!late && nr == 0 && from == queue) {
		dones[0] = kept;
		from = NULL;
		return 1;
	}
	return nr;
}

int __wrap_pst_queue_reap(struct pst_queue *queue, struct pst_done *ret_done, unsigned min,
			  unsigned max, uint64_t deadline_ns)
{
	int n = stuck && !cancels ? 0
				  : __real_pst_queue_reap(queue, ret_done, min, max, deadline_ns);

	n = keep_back(queue, ret_done, n);
	for (int i = 0; i < n && busy; i++, busy--) {
		ret_done[i].res = -ETIMEDOUT;
		ret_done[i].prefix = 0;
		ret_done[i].flags |= PST_DONE_BUSY;
		held = NULL;
		holding = true;
	}
	return n;
}

int __wrap_pst_file_wrap(int fd, uint32_t flags, const struct pst_file_opts *opts,
			 struct pst_file **ret_file)
{
	while (opening)
		(void)usleep(1000);
	return __real_pst_file_wrap(fd, flags, opts, ret_file);
}

int __wrap_pst_mem_drain(struct pst_mem *mem, uint64_t deadline_ns)
{
	if (holding && !held)
		held = mem;
	return holding && held == mem ? -EBUSY : __real_pst_mem_drain(mem, deadline_ns);
}

int __wrap_pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*fn)(void *),
			  void *arg)
{
	return no_threads ? EAGAIN : __real_pthread_create(ret, attr, fn, arg);
}

void *__wrap_calloc(size_t nr, size_t size)
{
	if (fail_at && atomic_fetch_sub(&fail_at, 1) == 1)
		return NULL;
	return __real_calloc(nr, size);
}

int __wrap_dl_iterate_phdr(visit *fn, void *arg)
{
	struct dl_phdr_info info = { .dlpi_name = library };

	return library[0] ? fn(&info, sizeof(info), arg) : __real_dl_iterate_phdr(fn, arg);
}

struct timespec __wrap_plug_after(unsigned seconds)
{
	return __real_plug_after(no_patience ? 0 : seconds);
}

void __wrap_plug_log(const char *format, ...)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	va_list args;

	pthread_mutex_lock(&lock);
	va_start(args, format);
	(void)vsnprintf(said, sizeof(said), format, args);
	va_end(args);
	pthread_mutex_unlock(&lock);
}

static struct plug_engine *engine_of(const char *name, const char *value)
{
	struct plug_param param = { name, value };
	struct plug_engine *e = NULL;

	T_OK(plug_engine_new(&param, name ? 1 : 0, &e));
	return e;
}

static int open_file(const char *name, size_t len)
{
	char path[PATH_MAX];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	T_CHECK(fd >= 0);
	T_EQ(ftruncate(fd, (off_t)len), 0);
	return fd;
}

static struct plug_region *file_region(struct plug_engine *e, int fd, uint64_t len)
{
	struct plug_region *r = NULL;

	T_OK(plug_region_new(e, PLUG_FILE, 0, len, (uint64_t)fd, NULL, 0, &r));
	return r;
}

static struct plug_region *mem_region(struct plug_engine *e, const void *at, uint64_t len)
{
	struct plug_region *r = NULL;

	T_OK(plug_region_new(e, PLUG_HOST, (uintptr_t)at, len, 0, NULL, 0, &r));
	return r;
}

static int wait_for(const struct plug_req *req)
{
	int result;

	while ((result = plug_req_check(req)) == 1)
		(void)usleep(100);
	return result;
}

/* ---------------------------------------------------------- transfers */

struct load {
	pthread_t thread;
	struct plug_engine *e;
	unsigned seed;
	unsigned char *mem, *mem_model, *model[FILES];
	int fd[FILES];
	struct plug_region *mem_r, *file_r[FILES];
	const char *error;
};

static unsigned next(struct load *l, unsigned below)
{
	l->seed = l->seed * 1103515245u + 12345u;
	return (l->seed >> 8) % below;
}

/* Fill in a transfer of nr descriptors whose ranges do not overlap. */
static void descriptors(struct load *l, unsigned nr, struct plug_range *mem,
			struct plug_range *file, bool write)
{
	unsigned shift = next(l, BIG), i;
	/* Neighbours in memory and file, which become one piece. */
	bool whole = next(l, 4) == 0;

	for (i = 0; i < nr; i++) {
		unsigned slot = (i * 7 + shift) % BIG;
		unsigned len = whole ? STEP : next(l, STEP + 1), off;

		if (whole)
			slot = (i + shift) % BIG;
		off = whole ? 0 : next(l, STEP - len + 1);
		mem[i] = (struct plug_range){ (uintptr_t)l->mem + slot * STEP + off, len,
					      l->mem_r };
		file[i] = (struct plug_range){ slot * STEP + (whole ? 0 : STEP - len - off), len,
					       l->file_r[next(l, FILES) * !whole] };
	}
	/* One large descriptor, which is cut. */
	if (nr == 1 && next(l, 2)) {
		unsigned len = SIZE - next(l, 5000), off = next(l, SIZE - len + 1);

		mem[0].addr = (uintptr_t)l->mem + off;
		file[0].addr = next(l, SIZE - len + 1);
		mem[0].len = file[0].len = len;
	}
	for (i = 0; i < nr; i++) {
		unsigned char *model = l->model[file[i].region == l->file_r[1]] + file[i].addr;
		unsigned char *memory = l->mem_model + (mem[i].addr - (uintptr_t)l->mem);

		if (write)
			memcpy(model, memory, mem[i].len);
		else
			memcpy(memory, model, mem[i].len);
	}
}

static const char *one(struct load *l)
{
	struct plug_range mem[BIG], file[BIG];
	const unsigned counts[] = { 1, 1, 3, 30, BIG };
	unsigned nr = counts[next(l, 5)];
	bool write = next(l, 2);
	struct plug_req *req = NULL;
	int result;

	descriptors(l, nr, mem, file, write);
	if (plug_req_new(l->e, write, mem, file, nr, &req))
		return "plug_req_new()";
	/* Posted twice: the same bytes move again. */
	for (int i = 0; i < 2; i++) {
		result = plug_req_post(l->e, req);
		if (result == 1)
			result = wait_for(req);
		if (result)
			return "a transfer";
	}
	if (plug_req_free(l->e, req))
		return "plug_req_free()";
	return memcmp(l->mem, l->mem_model, SIZE) ? "memory" : NULL;
}

static void *load_main(void *arg)
{
	struct load *l = arg;

	for (int i = 0; i < ROUNDS && !l->error; i++)
		l->error = one(l);
	return NULL;
}

static void load_init(struct load *l, struct plug_engine *e, unsigned seed)
{
	char name[32];
	unsigned i, k;

	*l = (struct load){ .e = e, .seed = seed };
	T_CHECK((l->mem = malloc(SIZE)) && (l->mem_model = malloc(SIZE)));
	for (i = 0; i < SIZE; i++)
		l->mem[i] = (unsigned char)next(l, 256);
	memcpy(l->mem_model, l->mem, SIZE);
	l->mem_r = mem_region(e, l->mem, SIZE);
	for (i = 0; i < FILES; i++) {
		(void)snprintf(name, sizeof(name), "load-%u-%u", seed, i);
		l->fd[i] = open_file(name, SIZE);
		T_CHECK((l->model[i] = malloc(SIZE)));
		for (k = 0; k < SIZE; k++)
			l->model[i][k] = (unsigned char)next(l, 256);
		T_EQ(pwrite(l->fd[i], l->model[i], SIZE, 0), SIZE);
		l->file_r[i] = file_region(e, l->fd[i], SIZE);
	}
}

static void load_done(struct load *l)
{
	for (int i = 0; i < FILES; i++) {
		T_EQ(pread(l->fd[i], l->mem, SIZE, 0), SIZE);
		T_EQ(memcmp(l->mem, l->model[i], SIZE), 0);
		T_OK(plug_region_free(l->e, l->file_r[i]));
		(void)close(l->fd[i]);
		free(l->model[i]);
	}
	T_OK(plug_region_free(l->e, l->mem_r));
	free(l->mem);
	free(l->mem_model);
}

static void loads(const char *name, const char *value)
{
	struct plug_engine *e = engine_of(name, value);
	struct load load[THREADS];

	for (unsigned i = 0; i < THREADS; i++)
		load_init(&load[i], e, i);
	for (unsigned i = 0; i < THREADS; i++)
		T_EQ(pthread_create(&load[i].thread, NULL, load_main, &load[i]), 0);
	for (unsigned i = 0; i < THREADS; i++)
		T_EQ(pthread_join(load[i].thread, NULL), 0);
	for (unsigned i = 0; i < THREADS; i++) {
		if (load[i].error)
			T_FAIL("thread %u: %s; %s", i, load[i].error, said);
		load_done(&load[i]);
	}
	plug_engine_free(e);
}

static void random_transfers(void)
{
	loads(NULL, NULL);
}

static void random_transfers_of_a_short_queue(void)
{
	loads("depth", "1");
}

static void random_transfers_with_syncs(void)
{
	loads("sync", "true");
}

/* A write syncs each of its files once, and a read none. */
static void syncs_of_files(void)
{
	for (int sync = 0; sync < 2; sync++) {
		struct plug_engine *e = engine_of("sync", sync ? "true" : "false");
		int fds[] = { open_file("a", 4096), open_file("b", 4096) };
		char mem[4096] = "";
		struct plug_region *m = mem_region(e, mem, sizeof(mem));
		struct plug_region *f[] = { file_region(e, fds[0], 4096),
					    file_region(e, fds[1], 4096) };
		const uint64_t at = (uintptr_t)mem;
		struct plug_range mr[] = { { at, 99, m }, { at, 99, m }, { at + 200, 99, m } };
		struct plug_range fr[] = { { 0, 99, f[0] }, { 7, 99, f[1] }, { 900, 99, f[0] } };

		for (int write = 0; write < 2; write++) {
			struct plug_req *req = NULL;

			syncs = 0;
			T_OK(plug_req_new(e, write, mr, fr, 3, &req));
			T_EQ(plug_req_post(e, req), 1);
			T_EQ(wait_for(req), 0);
			T_EQ(syncs, write && sync ? 2 : 0);
			T_OK(plug_req_free(e, req));
		}
		T_OK(plug_region_free(e, m));
		for (int i = 0; i < 2; i++) {
			T_OK(plug_region_free(e, f[i]));
			(void)close(fds[i]);
		}
		plug_engine_free(e);
	}
}

/* Neighbours become one piece, and limits of a part still hold. */
static void many_neighbours(void)
{
	enum { SMALL = 20000, LARGE = 20 };
	const size_t small = 101, large = 700001, len = SMALL * small + LARGE * large;
	struct plug_engine *e = engine_of(NULL, NULL);
	int fd = open_file("neighbours", len);
	unsigned char *mem = malloc(len), *copy = malloc(len);
	struct plug_range *mr = calloc(SMALL + LARGE, sizeof(*mr));
	struct plug_range *fr = calloc(SMALL + LARGE, sizeof(*fr));
	struct plug_region *m = mem_region(e, mem, len), *f = file_region(e, fd, len);
	struct plug_req *req = NULL;
	uint64_t at = 0;

	for (unsigned i = 0; i < SMALL + LARGE; i++) {
		/* A large one after each thousand of small ones. */
		size_t one = i % 1001 == 1000 ? large : small;

		if (at + one > len)
			one = len - at;
		mr[i] = (struct plug_range){ (uintptr_t)mem + at, one, m };
		fr[i] = (struct plug_range){ at, one, f };
		at += one;
	}
	for (size_t i = 0; i < len; i++)
		mem[i] = (unsigned char)(i * 31 >> 5);
	T_OK(plug_req_new(e, true, mr, fr, SMALL + LARGE, &req));
	T_CHECK(req->nr_parts > 1);
	for (unsigned i = 0; i < req->nr_parts; i++)
		T_EQ(req->parts[i].nr_segs, 1);
	T_EQ(plug_req_post(e, req), 1);
	T_EQ(wait_for(req), 0);
	T_OK(plug_req_free(e, req));
	T_EQ(pread(fd, copy, at, 0), at);
	T_EQ(memcmp(mem, copy, at), 0);
	T_OK(plug_region_free(e, m));
	T_OK(plug_region_free(e, f));
	plug_engine_free(e);
	(void)close(fd);
	free(mem);
	free(copy);
	free(mr);
	free(fr);
}

/* ------------------------------------------------------------ refused */

static void hostile_descriptors(void)
{
	struct plug_engine *e = engine_of(NULL, NULL);
	int fd = open_file("hostile", 4096);
	char *mem = malloc(4096);
	struct plug_region *m = mem_region(e, mem, 4096);
	struct plug_region *f = file_region(e, fd, UINT64_MAX);
	const uint64_t at = (uintptr_t)mem, top = UINT64_MAX;
	const struct {
		struct plug_range mem, file;
		int err;
	} bad[] = {
		{ { at, 1, NULL }, { 0, 1, f }, -EINVAL },
		{ { at, 1, m }, { 0, 1, NULL }, -EINVAL },
		{ { at, 1, f }, { 0, 1, f }, -EINVAL },
		{ { at, 1, m }, { 0, 1, m }, -EINVAL },
		{ { at, 1, m }, { 0, 2, f }, -EINVAL },
		{ { at, 4097, m }, { 0, 4097, f }, -ERANGE },
		{ { at + 4096, 1, m }, { 0, 1, f }, -ERANGE },
		{ { at - 1, 1, m }, { 0, 1, f }, -ERANGE },
		{ { at + 1, top, m }, { 0, top, f }, -ERANGE },
		{ { 0, top, m }, { 0, top, f }, -ERANGE },
		{ { at, 16, m }, { top - 8, 16, f }, -ERANGE },
		{ { at, 16, m }, { top - 16, 16, f }, -EOVERFLOW },
		{ { at, 16, m }, { INT64_MAX - 15, 16, f }, -EOVERFLOW },
	};
	struct plug_req *req = NULL;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		said[0] = 0;
		T_EQ(plug_req_new(e, false, &bad[i].mem, &bad[i].file, 1, &req), bad[i].err);
		T_CHECK(!req && said[0]);
	}
	/* The end of memory, and the last byte that a file can have. */
	T_OK(plug_req_new(e, false, &(struct plug_range){ at + 4095, 1, m },
			  &(struct plug_range){ INT64_MAX - 1, 1, f }, 1, &req));
	T_EQ(plug_req_check(req), -ENOTCONN);
	T_EQ(plug_req_post(e, req), 1);
	T_EQ(wait_for(req), -ENODATA);
	T_OK(plug_req_free(e, req));
	/* No descriptors. */
	T_OK(plug_req_new(e, true, NULL, NULL, 0, &req));
	T_EQ(plug_req_post(e, req), 0);
	T_EQ(plug_req_check(req), 0);
	T_OK(plug_req_free(e, req));
	T_OK(plug_region_free(e, m));
	T_OK(plug_region_free(e, f));
	plug_engine_free(e);
	(void)close(fd);
	free(mem);
}

static void metadata(void)
{
	static const char *const bad[] = { "ro,:/x", "rw,create:", "rw,,create:/x",
					   "ro,Create:/x" };
	struct plug_engine *e = engine_of(NULL, NULL);
	int fd = open_file("metadata", 4096);
	struct plug_region *r;
	char text[PATH_MAX];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		T_EQ(plug_region_new(e, PLUG_FILE, 0, 1, (uint64_t)fd, bad[i], strlen(bad[i]), &r),
		     -EINVAL);
	/* Other text does not name a path, and is not needed. */
	T_OK(plug_region_new(e, PLUG_FILE, 0, 1, (uint64_t)fd, "row:/x", 6, &r));
	T_CHECK(!r->path);
	T_OK(plug_region_free(e, r));
	(void)snprintf(text, sizeof(text), "rw,sync,create:%s/a:b", dir);
	T_OK(plug_region_new(e, PLUG_FILE, 0, 1, 1u << 20, text, strlen(text), &r));
	T_CHECK(r->sync && !strcmp(strrchr(r->path, '/'), "/a:b"));
	T_OK(plug_region_free(e, r));
	plug_engine_free(e);
	(void)close(fd);
}

/* A number that another descriptor has got since must not name two files. */
static void a_number_of_two_files(void)
{
	struct plug_engine *e = engine_of(NULL, NULL);
	int fd = open_file("first", 4096), other = open_file("second", 4096);
	struct plug_region *first = file_region(e, fd, 4096), *again, *second = NULL;

	/* The same file may be registered again. */
	again = file_region(e, fd, 4096);
	T_EQ(dup2(other, fd), fd);
	T_EQ(plug_region_new(e, PLUG_FILE, 0, 4096, (uint64_t)fd, NULL, 0, &second), -EEXIST);
	T_CHECK(!second && strstr(said, "already names another file"));
	T_OK(plug_region_free(e, again));
	T_OK(plug_region_free(e, first));
	second = file_region(e, fd, 4096);
	T_OK(plug_region_free(e, second));
	plug_engine_free(e);
	(void)close(fd);
	(void)close(other);
}

/* --------------------------------------------------------------- lost */

/* A transfer must not end while something may still touch its memory, but another one of the same
 * memory must. */
static void a_lost_request(void)
{
	struct plug_engine *e = engine_of("threads", "1");
	int fd = open_file("lost", 4096);
	char *mem = malloc(4096);
	struct plug_region *m = mem_region(e, mem, 4096), *f = file_region(e, fd, 4096);
	struct plug_range mr = { (uintptr_t)mem, 4096, m }, fr = { 0, 4096, f };
	struct plug_req *req = NULL, *other = NULL;

	T_OK(plug_req_new(e, false, &mr, &fr, 1, &req));
	T_OK(plug_req_new(e, false, &mr, &fr, 1, &other));
	busy = 1;
	T_EQ(plug_req_post(e, req), 1);
	while (!holding)
		(void)usleep(1000);
	T_EQ(plug_req_post(e, other), 1);
	T_EQ(wait_for(other), 0);
	T_EQ(plug_req_check(req), 1);
	no_patience = true;
	T_EQ(plug_req_free(e, req), -EBUSY);
	no_patience = false;
	T_EQ(plug_req_check(req), 1);
	T_EQ(plug_req_post(e, req), -EALREADY);
	holding = false;
	T_EQ(wait_for(req), -ETIMEDOUT);
	T_OK(plug_req_free(e, req));
	T_OK(plug_req_free(e, other));
	T_OK(plug_region_free(e, m));
	T_OK(plug_region_free(e, f));
	plug_engine_free(e);
	(void)close(fd);
	free(mem);
}

/* The opening that a lost request holds is freed after it, and its region is not. */
static void a_lost_request_of_an_ended_engine(void)
{
	struct plug_engine *e = engine_of("threads", "1");
	int fd = open_file("lost", 4096);
	char *mem = malloc(4096);
	struct plug_region *m = mem_region(e, mem, 4096), *f = file_region(e, fd, 4096);
	struct plug_range mr = { (uintptr_t)mem, 4096, m }, fr = { 0, 4096, f };
	struct plug_req *req = NULL;

	T_OK(plug_req_new(e, true, &mr, &fr, 1, &req));
	busy = 1;
	T_EQ(plug_req_post(e, req), 1);
	while (!holding)
		(void)usleep(1000);
	no_patience = true;
	T_EQ(plug_region_free(e, m), -EBUSY);
	T_CHECK(strstr(said, "do not free or reuse it"));
	no_patience = false;
	T_EQ(plug_region_begin(m), NULL);
	holding = false;
	T_EQ(wait_for(req), -ETIMEDOUT);
	T_OK(plug_req_free(e, req));
	T_OK(plug_region_free(e, m));
	T_OK(plug_region_free(e, f));
	plug_engine_free(e);
	(void)close(fd);
	free(mem);
}

static struct plug_handle *current_of(struct plug_region *r)
{
	struct plug_handle *h;

	pthread_mutex_lock(&r->lock);
	h = r->current;
	pthread_mutex_unlock(&r->lock);
	return h;
}

/* After a lost write, a file whose server hangs must not stop the transfers of others. */
static void a_file_that_does_not_open_again(void)
{
	struct plug_engine *e = engine_of("threads", "1");
	int fds[] = { open_file("hangs", 4096), open_file("other", 4096) };
	char mem[4096] = "";
	struct plug_region *m = mem_region(e, mem, 4096);
	struct plug_region *f[] = { file_region(e, fds[0], 4096), file_region(e, fds[1], 4096) };
	struct plug_range mr = { (uintptr_t)mem, 4096, m };
	struct plug_range fr[] = { { 0, 4096, f[0] }, { 0, 4096, f[1] } };
	const struct plug_handle *before = current_of(f[0]);
	struct plug_req *req = NULL, *other = NULL;
	unsigned ms;

	T_OK(plug_req_new(e, true, &mr, &fr[0], 1, &req));
	T_OK(plug_req_new(e, true, &mr, &fr[1], 1, &other));
	opening = true;
	busy = 1;
	T_EQ(plug_req_post(e, req), 1);
	while (!holding)
		(void)usleep(1000);
	T_EQ(plug_req_post(e, other), 1);
	for (ms = 0; plug_req_check(other) == 1 && ms < 5000; ms++)
		(void)usleep(1000);
	T_EQ(plug_req_check(other), 0);
	T_CHECK(current_of(f[0]) == before);
	opening = false;
	while (current_of(f[0]) == before)
		(void)usleep(1000);
	holding = false;
	T_EQ(wait_for(req), -ETIMEDOUT);
	T_OK(plug_req_free(e, req));
	T_OK(plug_req_free(e, other));
	T_OK(plug_region_free(e, m));
	for (int i = 0; i < 2; i++) {
		T_OK(plug_region_free(e, f[i]));
		(void)close(fds[i]);
	}
	plug_engine_free(e);
}

/* After a lost write, later writes must go to the file that was registered. */
static void a_file_that_moved(void)
{
	struct plug_engine *e = engine_of("threads", "1");
	char path[PATH_MAX], moved[PATH_MAX], meta[PATH_MAX + 16], mem[4096], byte = 0;
	struct plug_region *m = mem_region(e, mem, 4096), *f = NULL;
	struct plug_req *req = NULL, *later = NULL;
	int fd;

	(void)snprintf(path, sizeof(path), "%s/path", dir);
	(void)snprintf(moved, sizeof(moved), "%s/moved", dir);
	(void)snprintf(meta, sizeof(meta), "rw,create:%s", path);
	T_OK(plug_region_new(e, PLUG_FILE, 0, 4096, 5000, meta, strlen(meta), &f));
	T_OK(plug_req_new(e, true, &(struct plug_range){ (uintptr_t)mem, 4096, m },
			  &(struct plug_range){ 0, 4096, f }, 1, &req));
	T_OK(plug_req_new(e, true, &(struct plug_range){ (uintptr_t)mem, 4096, m },
			  &(struct plug_range){ 0, 4096, f }, 1, &later));
	T_EQ(rename(path, moved), 0);
	memset(mem, '1', sizeof(mem));
	busy = 1;
	T_EQ(plug_req_post(e, req), 1);
	while (!holding)
		(void)usleep(1000);
	/* Time for a thread to open the path again. */
	(void)usleep(50000);
	memset(mem, '2', sizeof(mem));
	T_EQ(plug_req_post(e, later), 1);
	T_EQ(wait_for(later), 0);
	T_CHECK(access(path, F_OK) < 0);
	fd = open(moved, O_RDONLY | O_CLOEXEC);
	T_EQ(pread(fd, &byte, 1, 0), 1);
	T_EQ(byte, '2');
	(void)close(fd);
	holding = false;
	T_EQ(wait_for(req), -ETIMEDOUT);
	T_OK(plug_req_free(e, req));
	T_OK(plug_req_free(e, later));
	T_OK(plug_region_free(e, m));
	T_OK(plug_region_free(e, f));
	plug_engine_free(e);
}

/* Memory must not change after a transfer was released in flight. */
static void releases(void)
{
	const size_t len = 16u << 20;
	struct plug_engine *e = engine_of("depth", "2");
	int fd = open_file("releases", len);
	char *mem = malloc(len);
	struct plug_region *m = mem_region(e, mem, len), *f = file_region(e, fd, len);
	struct plug_range mr = { (uintptr_t)mem, len, m }, fr = { 0, len, f };

	for (unsigned i = 0; i < 40; i++) {
		struct plug_req *req = NULL, *after = NULL;

		T_OK(plug_req_new(e, false, &mr, &fr, 1, &req));
		T_OK(plug_req_new(e, false, &mr, &fr, 1, &after));
		T_EQ(plug_req_post(e, req), 1);
		T_EQ(plug_req_post(e, after), 1);
		(void)usleep(i * 100);
		/* In the inbox, and in the queues. */
		T_OK(plug_req_free(e, after));
		T_OK(plug_req_free(e, req));
		memset(mem, 'm', len);
		(void)usleep(2000);
		for (size_t k = 0; k < len; k += 512)
			T_EQ(mem[k], 'm');
	}
	T_OK(plug_region_free(e, m));
	T_OK(plug_region_free(e, f));
	plug_engine_free(e);
	(void)close(fd);
	free(mem);
}

/* A release must cancel what is in a queue, and not wait for it. */
static void a_cancel_in_a_queue(void)
{
	struct plug_engine *e = engine_of("threads", "1");
	int fd = open_file("cancel", 4096);
	char mem[4096];
	struct plug_region *m = mem_region(e, mem, 4096), *f = file_region(e, fd, 4096);
	struct plug_range mr = { (uintptr_t)mem, 4096, m }, fr = { 0, 4096, f };
	struct plug_req *req = NULL;

	T_OK(plug_req_new(e, false, &mr, &fr, 1, &req));
	cancels = preps = 0;
	stuck = true;
	T_EQ(plug_req_post(e, req), 1);
	while (!preps)
		(void)usleep(1000);
	(void)usleep(10000);
	T_OK(plug_req_free(e, req));
	stuck = false;
	T_EQ(cancels, 1);
	T_OK(plug_region_free(e, m));
	T_OK(plug_region_free(e, f));
	plug_engine_free(e);
	(void)close(fd);
}

/* A worker whose queue is full must not be woken instead of one that is idle. */
static void a_full_queue(void)
{
	const struct plug_param params[] = { { "threads", "2" }, { "depth", "1" } };
	struct plug_engine *e = NULL;
	int fd = open_file("full", 4096);
	char mem[4096];
	struct plug_region *m, *f;
	struct plug_range mr, fr;
	struct plug_req *slow = NULL, *req = NULL;

	T_OK(plug_engine_new(params, 2, &e));
	m = mem_region(e, mem, 4096);
	f = file_region(e, fd, 4096);
	mr = (struct plug_range){ (uintptr_t)mem, 4096, m };
	fr = (struct plug_range){ 0, 4096, f };
	T_OK(plug_req_new(e, false, &mr, &fr, 1, &slow));
	T_OK(plug_req_new(e, false, &mr, &fr, 1, &req));
	late = true;
	/* The first worker that sleeps is woken. */
	(void)usleep(20000);
	T_EQ(plug_req_post(e, slow), 1);
	for (unsigned i = 0; i < 10; i++) {
		unsigned ms = 0;

		/* Both workers sleep: one is full, the other has nothing to do. */
		(void)usleep(20000);
		T_EQ(plug_req_post(e, req), 1);
		while (plug_req_check(req) == 1 && ms++ < 5000)
			(void)usleep(1000);
		T_EQ(plug_req_check(req), 0);
	}
	T_EQ(plug_req_check(slow), 1);
	late = false;
	T_OK(plug_req_free(e, slow));
	T_OK(plug_req_free(e, req));
	T_OK(plug_region_free(e, m));
	T_OK(plug_region_free(e, f));
	plug_engine_free(e);
	(void)close(fd);
}

/* Transfers that were never released are cancelled, and release works without the engine's
 * workers. */
static void an_end_in_flight(void)
{
	const size_t len = 16u << 20;
	int fd = open_file("end", len);
	char *mem = malloc(len);

	for (unsigned i = 0; i < 20; i++) {
		struct plug_engine *e = engine_of("depth", "1");
		struct plug_region *m = mem_region(e, mem, len), *f = file_region(e, fd, len);
		struct plug_range mr = { (uintptr_t)mem, len, m }, fr = { 0, len, f };
		struct plug_req *req = NULL;

		T_OK(plug_req_new(e, false, &mr, &fr, 1, &req));
		T_EQ(plug_req_post(e, req), 1);
		(void)usleep(i * 50);
		T_OK(plug_region_free(e, m));
		T_OK(plug_region_free(e, f));
		T_OK(plug_req_free(e, req));
		plug_engine_free(e);
	}
	(void)close(fd);
	free(mem);
}

/* A forked child must not wait for workers that it does not have. */
static void a_forked_child(void)
{
	const size_t len = 16u << 20;
	struct plug_engine *e = engine_of("depth", "1");
	int fd = open_file("forked", len), status = -1;
	char *mem = malloc(len);
	struct plug_region *m = mem_region(e, mem, len), *f = file_region(e, fd, len), *r = NULL;
	struct plug_range mr = { (uintptr_t)mem, len, m }, fr = { 0, len, f };
	struct plug_req *req = NULL, *idle = NULL, *other = NULL;
	pid_t pid;

	T_OK(plug_req_new(e, false, &mr, &fr, 1, &req));
	T_OK(plug_req_new(e, false, &mr, &fr, 1, &idle));
	T_EQ(plug_req_post(e, req), 1);
	pid = fork();
	T_CHECK(pid >= 0);
	if (!pid) {
		(void)alarm(5);
		_exit(plug_req_post(e, idle) != -EOWNERDEAD ||
		      plug_req_new(e, false, &mr, &fr, 1, &other) != -EOWNERDEAD ||
		      plug_region_new(e, PLUG_HOST, 1, 1, 0, NULL, 0, &r) != -EOWNERDEAD ||
		      plug_req_free(e, req) || plug_req_free(e, idle) || plug_region_free(e, m) ||
		      plug_region_free(e, f) || plug_engine_free(e));
	}
	T_EQ(waitpid(pid, &status, 0), pid);
	T_EQ(status, 0);
	T_EQ(wait_for(req), 0);
	T_OK(plug_req_free(e, req));
	T_OK(plug_req_free(e, idle));
	T_OK(plug_region_free(e, m));
	T_OK(plug_region_free(e, f));
	plug_engine_free(e);
	(void)close(fd);
	free(mem);
}

/* ----------------------------------------------------------- failures */

/* Do everything once.  Return the first error. */
static int everything(int fd, char *mem)
{
	struct plug_region *m = NULL, *f = NULL;
	struct plug_engine *e = NULL;
	struct plug_req *req = NULL;
	int err;

	err = plug_engine_new(NULL, 0, &e);
	if (err)
		return err;
	err = plug_region_new(e, PLUG_HOST, (uintptr_t)mem, 4096, 0, NULL, 0, &m);
	if (!err)
		err = plug_region_new(e, PLUG_FILE, 0, 4096, (uint64_t)fd, NULL, 0, &f);
	if (!err)
		err = plug_req_new(e, true, &(struct plug_range){ (uintptr_t)mem, 4096, m },
				   &(struct plug_range){ 0, 4096, f }, 1, &req);
	if (!err)
		err = plug_req_post(e, req);
	if (err == 1)
		err = wait_for(req);
	if (req)
		T_OK(plug_req_free(e, req));
	if (m)
		T_OK(plug_region_free(e, m));
	if (f)
		T_OK(plug_region_free(e, f));
	plug_engine_free(e);
	return err;
}

static void every_allocation_fails(void)
{
	int fd = open_file("fails", 4096), n, err = -1;
	char *mem = calloc(1, 4096);

	for (n = 1; n < 100 && err; n++) {
		fail_at = n;
		err = everything(fd, mem);
		if (fail_at > 0)
			break;
		T_CHECK(!err || err == -ENOMEM);
	}
	fail_at = 0;
	T_OK(err);
	T_CHECK(n > 5);
	(void)close(fd);
	free(mem);
}

static void threads_that_are_refused(void)
{
	struct plug_engine *e = NULL;

	no_threads = true;
	T_CHECK(plug_engine_new(NULL, 0, &e) < 0);
	no_threads = false;
	T_CHECK(!e);
}

/* The version must be that of the wheel which has the library, not of another wheel. */
static void versions(void)
{
	static const struct {
		const char *cu12, *cu13;
		bool ok;
	} wheels[] = {
		{ "1.5.1", "0.9.0", true },
		{ "0.9.0", "1.5.1", false },
		{ "1.4", "1.6.0", true },
		{ "1.40.0", "1.4.0", false },
	};
	char path[PATH_MAX];

	T_CHECK(plug_version_ok());
	for (size_t i = 0; i < sizeof(wheels) / sizeof(wheels[0]); i++) {
		const char *const numbers[] = { wheels[i].cu12, wheels[i].cu13 };

		for (int cu = 12; cu <= 13; cu++) {
			(void)snprintf(path, sizeof(path), "%s/site-%zu", dir, i);
			(void)mkdir(path, 0777);
			(void)snprintf(path, sizeof(path), "%s/site-%zu/nixl_cu%d-%s.dist-info",
				       dir, i, cu, numbers[cu - 12]);
			T_EQ(mkdir(path, 0777), 0);
		}
		(void)snprintf(library, sizeof(library),
			       "%s/site-%zu/.nixl_cu12.mesonpy.libs/libnixl.so", dir, i);
		T_EQ(plug_version_ok(), wheels[i].ok);
		/* A library outside a wheel has no version. */
		(void)snprintf(library, sizeof(library), "%s/site-%zu/lib/libnixl.so", dir, i);
		T_CHECK(plug_version_ok());
	}
	library[0] = 0;
}

int main(void)
{
	if (scratch_new(NULL, dir, sizeof(dir)) < 0)
		return 1;
	T_RUN(random_transfers);
	T_RUN(random_transfers_of_a_short_queue);
	T_RUN(random_transfers_with_syncs);
	T_RUN(syncs_of_files);
	T_RUN(many_neighbours);
	T_RUN(hostile_descriptors);
	T_RUN(metadata);
	T_RUN(a_number_of_two_files);
	T_RUN(a_lost_request);
	T_RUN(a_lost_request_of_an_ended_engine);
	T_RUN(a_file_that_does_not_open_again);
	T_RUN(a_file_that_moved);
	T_RUN(releases);
	T_RUN(a_cancel_in_a_queue);
	T_RUN(a_full_queue);
	T_RUN(an_end_in_flight);
	T_RUN(a_forked_child);
	T_RUN(every_allocation_fails);
	T_RUN(threads_that_are_refused);
	T_RUN(versions);
	(void)scratch_remove(dir);
	return t_done();
}
