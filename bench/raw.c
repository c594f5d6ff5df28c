/* SPDX-License-Identifier: MIT */
/*
 * What a program gets that moves bytes between a file and NVIDIA memory by its own few
 * lines: the baselines that Penstock is compared with.  It stands alone; neither a header
 * of NVIDIA's nor libpenstock is needed:	cc -O2 -D_GNU_SOURCE -pthread raw.c -o raw
 *
 *	plain		pread into ordinary memory, cuMemcpyHtoD
 *	pinned		two registered buffers a thread, cuMemcpyHtoDAsync from one while the
 *			other is filled
 *	odirect		O_DIRECT between the disk and host memory: the disk's own rate
 *	gpu-write	the way of pinned backwards
 *	cufile		cuFileRead or cuFileWrite on registered buffers
 *
 * Threads take the next piece from a common counter.  After each pass every thread
 * compares the last pieces that it moved, device memory against file, outside the time.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 256
#define PASSES_MAX 100
#define SLOTS 2
#define PAGE 4096
#define NONE UINT64_MAX
#define HIST_STEPS 16 /* in each power of two */
#define HIST_MAX (64 * HIST_STEPS)
#define REFUSED 3 /* exit status: what was asked for is not to be had on this machine */

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define _cleanup_(f) __attribute__((cleanup(f)))

/* ----------------------------------------------------------------- vendors */

typedef unsigned long long cu_ptr;

/* The driver API, as far as it is used here. */
static struct {
	int (*cuInit)(unsigned flags);
	int (*cuDeviceGet)(int *ret, int ordinal);
	int (*cuDeviceGetName)(char *ret, int len, int dev);
	int (*cuDevicePrimaryCtxRetain)(void **ret, int dev);
	int (*cuCtxPushCurrent_v2)(void *ctx);
	int (*cuMemAlloc_v2)(cu_ptr *ret, size_t len);
	int (*cuMemHostRegister_v2)(void *host, size_t len, unsigned flags);
	int (*cuStreamCreate)(void **ret, unsigned flags);
	int (*cuStreamSynchronize)(void *st);
	int (*cuMemcpyHtoD_v2)(cu_ptr dst, const void *src, size_t len);
	int (*cuMemcpyHtoDAsync_v2)(cu_ptr dst, const void *src, size_t len, void *st);
	int (*cuMemcpyDtoHAsync_v2)(void *dst, cu_ptr src, size_t len, void *st);
	int (*cuGetErrorName)(int err, const char **ret);
} cu;

#define CU_NON_BLOCKING 1
#define CU_REGISTER_PORTABLE 1

/* cuFile returns this by value. */
struct cf_error {
	int err;
	int cu_err;
};

struct cf_descr {
	int type; /* 1: a file descriptor */
	union {
		int fd;
		void *handle;
	} handle;
	const void *fs_ops;
};

static struct {
	struct cf_error (*cuFileDriverOpen)(void);
	struct cf_error (*cuFileHandleRegister)(void **ret, struct cf_descr *descr);
	struct cf_error (*cuFileBufRegister)(const void *buf, size_t len, int flags);
	ssize_t (*cuFileRead)(void *fh, void *buf, size_t len, off_t file_off, off_t buf_off);
	ssize_t (*cuFileWrite)(void *fh, const void *buf, size_t len, off_t file_off,
			       off_t buf_off);
} cf;

/* --------------------------------------------------------------- settings */

enum mode { PLAIN, PINNED, ODIRECT, GPU_WRITE, CUFILE };

static const char *const mode_names[] = { "plain", "pinned", "odirect", "gpu-write", "cufile" };

static const char usage[] =
	"Usage: raw MODE FILE [OPTION...]\n"
	"\n"
	"Moves FILE to or from GPU memory in the way that MODE names: plain, pinned, odirect\n"
	"(host memory only), gpu-write or cufile.\n"
	"\n"
	"  --size SIZE     bytes of a piece (default 4m)\n"
	"  --threads N     (default 1)\n"
	"  --offsets O     seq or random (default seq)\n"
	"  --cold          drop the file from the page cache before each pass\n"
	"  --warm          have it there (default)\n"
	"  --io I          buffered or direct (default: direct with odirect and gpu-write)\n"
	"  --passes N      times through the file (default 1)\n"
	"  --seconds SEC   one pass, round and round for so long; reading only\n"
	"  --bytes SIZE    at most so much of the file\n"
	"  --write         odirect and cufile: write\n"
	"  --overwrite     needed to write: destroys what FILE holds\n"
	"  --gpu N         (default 0)\n"
	"  --libcufile L   library to load (default libcufile.so.0)\n"
	"  --json          one JSON object instead of text\n"
	"\n"
	"us/op is the time of a thread from one piece to the next.  Writes are synced in the\n"
	"time.  Status 3: this machine has not what MODE needs.\n";

static struct {
	enum mode mode;
	const char *path, *libcufile;
	uint64_t size, bytes;
	unsigned threads, passes;
	int gpu;
	double seconds;
	bool random, cold, direct, write, json;
} set = { .size = 4u << 20, .threads = 1, .passes = 1, .libcufile = "libcufile.so.0" };

struct result {
	uint64_t bytes, ops, ns, p50, p99;
	double cpu;
	double resident; /* before the pass; negative: unknown */
};

/* One thread. */
struct lane {
	pthread_t thread;
	unsigned idx;
	char *host[SLOTS];
	char *check;
	cu_ptr dev[SLOTS];
	void *stream[SLOTS];
	uint64_t moved[SLOTS]; /* the offset that a slot moved last */
	uint64_t begun, ended, ops, bytes, verified;
	uint32_t hist[HIST_MAX];
	int status; /* 0, or an exit status with a text */
	char text[400];
};

static struct lane *lanes;
static pthread_barrier_t gate;
static bool stop;     /* written between barriers */
static unsigned turn; /* pass, from 0 */
static _Atomic uint64_t next_piece;
static uint64_t nr_pieces, walk_stride, walk_start;
static int fd = -1, fd_direct = -1; /* buffered; O_DIRECT or -1 */
static void *ctx, *cf_handle;
static char gpu_name[128];

static void freep(void *p)
{
	free(*(void **)p);
}

__attribute__((noreturn, format(printf, 2, 3))) static void die(int status, const char *fmt, ...)
{
	va_list ap;

	(void)fputs("raw: ", stderr);
	va_start(ap, fmt);
	(void)vfprintf(stderr, fmt, ap);
	va_end(ap);
	(void)fputc('\n', stderr);
	exit(status);
}

/* Keep a lane's first failure; false, so that it can be returned. */
__attribute__((format(printf, 3, 4))) static bool bad(struct lane *l, int status, const char *fmt,
						      ...)
{
	va_list ap;

	if (l->status)
		return false;
	l->status = status;
	va_start(ap, fmt);
	(void)vsnprintf(l->text, sizeof(l->text), fmt, ap);
	va_end(ap);
	return false;
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static double cpu_seconds(void)
{
	struct rusage ru;

	if (getrusage(RUSAGE_SELF, &ru) < 0)
		return 0;
	return (double)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) +
	       (double)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1e6;
}

static bool on_gpu(void)
{
	return set.mode != ODIRECT;
}

/* -------------------------------------------------------------- libraries */

struct sym {
	const char *name;
	void *to; /* a pointer to a function */
};

static void load(const char *lib, const struct sym *syms, size_t nr)
{
	void *h = dlopen(lib, RTLD_NOW | RTLD_GLOBAL);

	if (!h)
		die(REFUSED, "%s", dlerror());
	for (size_t i = 0; i < nr; i++) {
		void *fn = dlsym(h, syms[i].name);

		if (!fn)
			die(REFUSED, "%s has no %s", lib, syms[i].name);
		memcpy(syms[i].to, &fn, sizeof(fn));
	}
}

static const char *cu_text(int err)
{
	const char *name = NULL;

	return cu.cuGetErrorName && cu.cuGetErrorName(err, &name) == 0 && name ? name : "unknown";
}

#define CU(l, call)                                                                 \
	({                                                                          \
		int _e = (call);                                                    \
		_e ? bad((l), 1, "%s gave %d (%s)", #call, _e, cu_text(_e)) : true; \
	})

static void load_cuda(void)
{
	static const struct sym syms[] = {
		{ "cuGetErrorName", &cu.cuGetErrorName },
		{ "cuInit", &cu.cuInit },
		{ "cuDeviceGet", &cu.cuDeviceGet },
		{ "cuDeviceGetName", &cu.cuDeviceGetName },
		{ "cuDevicePrimaryCtxRetain", &cu.cuDevicePrimaryCtxRetain },
		{ "cuCtxPushCurrent_v2", &cu.cuCtxPushCurrent_v2 },
		{ "cuMemAlloc_v2", &cu.cuMemAlloc_v2 },
		{ "cuMemHostRegister_v2", &cu.cuMemHostRegister_v2 },
		{ "cuStreamCreate", &cu.cuStreamCreate },
		{ "cuStreamSynchronize", &cu.cuStreamSynchronize },
		{ "cuMemcpyHtoDAsync_v2", &cu.cuMemcpyHtoDAsync_v2 },
		{ "cuMemcpyDtoHAsync_v2", &cu.cuMemcpyDtoHAsync_v2 },
		{ "cuMemcpyHtoD_v2", &cu.cuMemcpyHtoD_v2 },
	};
	const char *lib = getenv("PST_LIBCUDA");
	size_t nr = set.mode == PLAIN ? ARRAY_SIZE(syms) : ARRAY_SIZE(syms) - 1;
	int dev, e;

	load(lib && *lib ? lib : "libcuda.so.1", syms, nr);
	e = cu.cuInit(0);
	if (!e)
		e = cu.cuDeviceGet(&dev, set.gpu);
	if (e)
		die(REFUSED, "there is no GPU %d: %d (%s)", set.gpu, e, cu_text(e));
	(void)cu.cuDeviceGetName(gpu_name, sizeof(gpu_name), dev);
	e = cu.cuDevicePrimaryCtxRetain(&ctx, dev);
	if (!e)
		e = cu.cuCtxPushCurrent_v2(ctx);
	if (e)
		die(1, "no context on GPU %d: %d (%s)", set.gpu, e, cu_text(e));
}

static void refuse_cufile(const char *call, struct cf_error e)
{
	if (set.json)
		(void)printf("{\"tool\": \"raw\", \"mode\": \"cufile\", \"refused\": \"%s\", "
			     "\"code\": %d, \"cuda_code\": %d}\n",
			     call, e.err, e.cu_err);
	(void)fflush(stdout);
	die(REFUSED, "cuFile refuses: %s gave %d, with CUDA's %d", call, e.err, e.cu_err);
}

static void load_cufile(void)
{
	static const struct sym syms[] = {
		{ "cuFileDriverOpen", &cf.cuFileDriverOpen },
		{ "cuFileHandleRegister", &cf.cuFileHandleRegister },
		{ "cuFileBufRegister", &cf.cuFileBufRegister },
		{ "cuFileRead", &cf.cuFileRead },
		{ "cuFileWrite", &cf.cuFileWrite },
	};
	struct cf_descr d;
	struct cf_error e;

	/* Else it leaves its log in the working directory. */
	(void)setenv("CUFILE_LOGFILE_PATH", "/dev/null", 0);
	load(set.libcufile, syms, ARRAY_SIZE(syms));
	e = cf.cuFileDriverOpen();
	if (e.err)
		refuse_cufile("cuFileDriverOpen", e);
	memset(&d, 0, sizeof(d));
	d.type = 1;
	d.handle.fd = set.direct ? fd_direct : fd;
	e = cf.cuFileHandleRegister(&cf_handle, &d);
	if (e.err)
		refuse_cufile("cuFileHandleRegister", e);
}

/* ------------------------------------------------------------------- file */

static bool full_io(struct lane *l, bool write, int on, char *buf, uint64_t off)
{
	for (uint64_t got = 0; got < set.size;) {
		off_t at = (off_t)(off + got);
		ssize_t n = write ? pwrite(on, buf + got, set.size - got, at)
				  : pread(on, buf + got, set.size - got, at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return bad(l, 1, "%s %s at %" PRIu64 ": %s", write ? "writing" : "reading",
				   set.path, off + got, n ? strerror(errno) : "it ends there");
		got += (uint64_t)n;
	}
	return true;
}

/* The part of the first gigabyte that the page cache holds. */
static double resident_part(void)
{
	_cleanup_(freep) unsigned char *vec = NULL;
	uint64_t pages, there = 0;
	struct stat st;
	void *p;
	int r;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size < PAGE)
		return -1;
	pages = (uint64_t)st.st_size / PAGE;
	if (pages > 1u << 18)
		pages = 1u << 18;
	vec = malloc(pages);
	p = mmap(NULL, pages * PAGE, PROT_NONE, MAP_SHARED, fd, 0);
	if (!vec || p == MAP_FAILED)
		return -1;
	r = mincore(p, pages * PAGE, vec);
	(void)munmap(p, pages * PAGE);
	for (uint64_t i = 0; r == 0 && i < pages; i++)
		there += vec[i] & 1;
	return r < 0 ? -1 : (double)there / (double)pages;
}

static void make_cold(void)
{
	(void)fdatasync(fd);
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

static void make_warm(void)
{
	static char buf[1 << 20];
	off_t off = 0;
	ssize_t n;

	while ((n = pread(fd, buf, sizeof(buf), off)) > 0)
		off += n;
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
	while (b) {
		uint64_t t = a % b;

		a = b;
		b = t;
	}
	return a;
}

/* Random offsets: every piece once, by steps that share no factor with their number. */
static void plan_walk(uint64_t len)
{
	if (set.bytes && set.bytes < len)
		len = set.bytes;
	nr_pieces = len / set.size;
	if (!nr_pieces)
		die(1, "%s is smaller than a piece", set.path);
	walk_stride = 1;
	if (!set.random || nr_pieces < 3)
		return;
	walk_stride = (uint64_t)((double)nr_pieces * 0.618) | 1;
	while (gcd(walk_stride, nr_pieces) != 1)
		walk_stride++;
	walk_start = nr_pieces / 3;
}

static void open_file(void)
{
	int mode = set.write ? O_RDWR : O_RDONLY;
	struct stat st;

	fd = open(set.path, mode | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		die(1, "%s: %s", set.path, strerror(errno));
	if (set.direct) {
		fd_direct = open(set.path, mode | O_DIRECT | O_CLOEXEC);
		if (fd_direct < 0)
			die(REFUSED, "%s takes no O_DIRECT: %s", set.path, strerror(errno));
		if (set.size % PAGE)
			die(2, "O_DIRECT wants pieces of whole pages");
	}
	plan_walk((uint64_t)st.st_size);
}

/* ------------------------------------------------------------------ lanes */

static unsigned hist_at(uint64_t ns)
{
	unsigned log;

	if (ns < HIST_STEPS)
		return (unsigned)ns;
	log = 63u - (unsigned)__builtin_clzll(ns);
	return (log - 3) * HIST_STEPS + (unsigned)(ns >> (log - 4)) % HIST_STEPS;
}

static uint64_t hist_value(unsigned at)
{
	unsigned log = at / HIST_STEPS + 3;

	if (at < HIST_STEPS)
		return at;
	return (uint64_t)(HIST_STEPS + at % HIST_STEPS) << (log - 4);
}

/* Each slot's bytes differ from those of other slots, lanes and passes. */
static void fill(char *buf, uint64_t seed)
{
	uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;

	for (uint64_t i = 0; i + 8 <= set.size; i += 8) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		memcpy(buf + i, &x, 8);
	}
}

static bool lane_buffers(struct lane *l)
{
	bool pinned = set.mode == PINNED || set.mode == GPU_WRITE;

	for (unsigned i = 0; i < SLOTS; i++) {
		l->host[i] = mmap(NULL, set.size, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		if (l->host[i] == MAP_FAILED)
			return bad(l, 1, "no memory for buffers");
		if (!on_gpu())
			continue;
		if (pinned &&
		    !CU(l, cu.cuMemHostRegister_v2(l->host[i], set.size, CU_REGISTER_PORTABLE)))
			return false;
		if (!CU(l, cu.cuMemAlloc_v2(&l->dev[i], set.size)) ||
		    !CU(l, cu.cuStreamCreate(&l->stream[i], CU_NON_BLOCKING)))
			return false;
	}
	l->check = malloc(set.size);
	return l->check || bad(l, 1, "no memory for buffers");
}

static bool lane_init(struct lane *l)
{
	if (on_gpu() && !CU(l, cu.cuCtxPushCurrent_v2(ctx)))
		return false;
	if (!lane_buffers(l))
		return false;
	for (unsigned i = 0; set.mode == CUFILE && i < SLOTS; i++) {
		struct cf_error e = cf.cuFileBufRegister((void *)(uintptr_t)l->dev[i], set.size, 0);

		if (e.err)
			return bad(l, REFUSED, "cuFileBufRegister gave %d, with CUDA's %d", e.err,
				   e.cu_err);
	}
	return true;
}

/* Before a pass that writes: new bytes where they come from. */
static bool lane_refill(struct lane *l)
{
	for (unsigned i = 0; i < SLOTS; i++) {
		l->moved[i] = NONE;
		if (!set.write)
			continue;
		fill(l->host[i], ((uint64_t)turn * THREADS_MAX + l->idx) * SLOTS + i + 1);
		if (on_gpu() && (!CU(l, cu.cuMemcpyHtoDAsync_v2(l->dev[i], l->host[i], set.size,
								l->stream[i])) ||
				 !CU(l, cu.cuStreamSynchronize(l->stream[i]))))
			return false;
	}
	return true;
}

static bool take(const struct lane *l, uint64_t now, uint64_t *ret_off)
{
	uint64_t i = atomic_fetch_add_explicit(&next_piece, 1, memory_order_relaxed);

	if (set.seconds > 0) {
		if (now - l->begun >= (uint64_t)(set.seconds * 1e9))
			return false;
		i %= nr_pieces;
	} else if (i >= nr_pieces) {
		return false;
	}
	*ret_off = (walk_start + i * walk_stride) % nr_pieces * set.size;
	return true;
}

static bool move_cufile(struct lane *l, unsigned slot, uint64_t off)
{
	void *buf = (void *)(uintptr_t)l->dev[slot];
	ssize_t n = set.write ? cf.cuFileWrite(cf_handle, buf, set.size, (off_t)off, 0)
			      : cf.cuFileRead(cf_handle, buf, set.size, (off_t)off, 0);

	if (n == (ssize_t)set.size)
		return true;
	return bad(l, 1, "%s at %" PRIu64 " gave %zd, errno %d",
		   set.write ? "cuFileWrite" : "cuFileRead", off, n, n == -1 ? errno : 0);
}

/* One piece of a mode that has no second in flight, or starts its copy and goes on. */
static bool move(struct lane *l, unsigned slot, uint64_t off)
{
	int on = set.direct ? fd_direct : fd;

	switch (set.mode) {
	case PLAIN:
		return full_io(l, false, on, l->host[slot], off) &&
		       CU(l, cu.cuMemcpyHtoD_v2(l->dev[slot], l->host[slot], set.size));
	case PINNED:
		/* The copy that last used this buffer. */
		return CU(l, cu.cuStreamSynchronize(l->stream[slot])) &&
		       full_io(l, false, on, l->host[slot], off) &&
		       CU(l, cu.cuMemcpyHtoDAsync_v2(l->dev[slot], l->host[slot], set.size,
						     l->stream[slot]));
	case CUFILE:
		return move_cufile(l, slot, off);
	default:
		return full_io(l, set.write, on, l->host[slot], off);
	}
}

static void count_op(struct lane *l, unsigned slot, uint64_t off, uint64_t *now)
{
	uint64_t t = now_ns();

	l->hist[hist_at(t - *now)]++;
	*now = t;
	l->moved[slot] = off;
	l->ops++;
	l->bytes += set.size;
}

static bool pass_forward(struct lane *l)
{
	uint64_t now = l->begun, off;

	for (unsigned slot = 0; take(l, now, &off); slot = (slot + 1) % SLOTS) {
		if (!move(l, slot, off))
			return false;
		count_op(l, slot, off, &now);
	}
	for (unsigned i = 0; set.mode == PINNED && i < SLOTS; i++)
		if (!CU(l, cu.cuStreamSynchronize(l->stream[i])))
			return false;
	return true;
}

/* While a piece is written the next one comes from the device. */
static bool pass_gpu_write(struct lane *l)
{
	uint64_t now = l->begun, off, ahead = 0;
	int on = set.direct ? fd_direct : fd;
	bool more = take(l, now, &off);

	if (more && !CU(l, cu.cuMemcpyDtoHAsync_v2(l->host[0], l->dev[0], set.size, l->stream[0])))
		return false;
	for (unsigned slot = 0; more; slot = (slot + 1) % SLOTS, off = ahead) {
		unsigned other = (slot + 1) % SLOTS;

		more = take(l, now, &ahead);
		if (more && !CU(l, cu.cuMemcpyDtoHAsync_v2(l->host[other], l->dev[other], set.size,
							   l->stream[other])))
			return false;
		if (!CU(l, cu.cuStreamSynchronize(l->stream[slot])) ||
		    !full_io(l, true, on, l->host[slot], off))
			return false;
		count_op(l, slot, off, &now);
	}
	return true;
}

static bool lane_pass(struct lane *l)
{
	memset(l->hist, 0, sizeof(l->hist));
	l->ops = l->bytes = 0;
	l->begun = now_ns();
	if (!(set.mode == GPU_WRITE ? pass_gpu_write(l) : pass_forward(l)))
		return false;
	if (set.write && fdatasync(fd) < 0)
		return bad(l, 1, "syncing %s: %s", set.path, strerror(errno));
	return true;
}

/* What a slot moved last is in the device's memory and in the file. */
static bool lane_verify(struct lane *l)
{
	for (unsigned i = 0; i < SLOTS; i++) {
		if (l->moved[i] == NONE)
			continue;
		if (on_gpu() && (!CU(l, cu.cuMemcpyDtoHAsync_v2(l->host[i], l->dev[i], set.size,
								l->stream[i])) ||
				 !CU(l, cu.cuStreamSynchronize(l->stream[i]))))
			return false;
		if (!full_io(l, false, fd, l->check, l->moved[i]))
			return false;
		if (memcmp(l->check, l->host[i], set.size) != 0)
			return bad(l, 1, "wrong bytes at %" PRIu64 " of %s", l->moved[i], set.path);
		l->verified += set.size;
	}
	return true;
}

static void gate_wait(void)
{
	(void)pthread_barrier_wait(&gate);
}

/* In step with run_pass(): a lane that failed still comes to every gate. */
static void *lane_main(void *arg)
{
	struct lane *l = arg;
	bool good = lane_init(l);

	for (;;) {
		gate_wait(); /* the pass is announced, or the end */
		if (stop)
			return NULL;
		good = good && lane_refill(l);
		gate_wait(); /* all are ready */
		l->begun = l->ended = now_ns();
		good = good && lane_pass(l);
		l->ended = now_ns();
		gate_wait(); /* all are through */
		good = good && lane_verify(l);
		gate_wait();
	}
}

/* ------------------------------------------------------------------ passes */

static uint64_t quantile(double q)
{
	uint64_t all = 0, seen = 0;

	for (unsigned i = 0; i < set.threads; i++)
		all += lanes[i].ops;
	for (unsigned at = 0; at < HIST_MAX; at++) {
		for (unsigned i = 0; i < set.threads; i++)
			seen += lanes[i].hist[at];
		if (seen && (double)seen >= q * (double)all)
			return hist_value(at);
	}
	return 0;
}

static void run_pass(struct result *ret)
{
	uint64_t begun = UINT64_MAX, ended = 0;
	double cpu;

	if (set.cold)
		make_cold();
	ret->resident = resident_part();
	atomic_store(&next_piece, 0);
	gate_wait();
	cpu = cpu_seconds();
	gate_wait();
	gate_wait();
	ret->cpu = cpu_seconds() - cpu;
	gate_wait();
	for (unsigned i = 0; i < set.threads; i++) {
		const struct lane *l = &lanes[i];

		if (l->status)
			die(l->status, "%s", l->text);
		ret->bytes += l->bytes;
		ret->ops += l->ops;
		begun = l->begun < begun ? l->begun : begun;
		ended = l->ended > ended ? l->ended : ended;
	}
	ret->ns = ended - begun;
	ret->p50 = quantile(0.5);
	ret->p99 = quantile(0.99);
}

static double gb_per_s(const struct result *r)
{
	return r->ns ? (double)r->bytes / (double)r->ns : 0;
}

static double cpu_per_10gb(const struct result *r)
{
	return r->bytes ? r->cpu * 1e10 / (double)r->bytes : 0;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(const struct result *v, double (*of)(const struct result *))
{
	double x[PASSES_MAX];

	for (unsigned i = 0; i < set.passes; i++)
		x[i] = of(&v[i]);
	qsort(x, set.passes, sizeof(x[0]), by_value);
	return set.passes % 2 ? x[set.passes / 2] : (x[set.passes / 2 - 1] + x[set.passes / 2]) / 2;
}

static double p50_us(const struct result *r)
{
	return (double)r->p50 / 1e3;
}

static double p99_us(const struct result *r)
{
	return (double)r->p99 / 1e3;
}

static void print_text(const struct result *v, uint64_t verified)
{
	(void)printf("%s%s %s, pieces of %" PRIu64 " KiB, %u threads, %s offsets, %s, %s\n",
		     mode_names[set.mode], set.write ? " (writing)" : "", set.path, set.size >> 10,
		     set.threads, set.random ? "random" : "sequential",
		     set.direct ? "O_DIRECT" : "buffered", on_gpu() ? gpu_name : "host memory");
	(void)printf("pass    GB/s  us/op p50     p99  CPU s/10 GB  resident\n");
	for (unsigned i = 0; i < set.passes; i++)
		(void)printf("%4u  %6.2f  %9.1f %7.1f  %11.2f  %8.2f\n", i + 1, gb_per_s(&v[i]),
			     p50_us(&v[i]), p99_us(&v[i]), cpu_per_10gb(&v[i]), v[i].resident);
	(void)printf("%4s  %6.2f  %9.1f %7.1f  %11.2f\n", "med.", median(v, gb_per_s),
		     median(v, p50_us), median(v, p99_us), median(v, cpu_per_10gb));
	(void)printf("%" PRIu64 " MiB of it compared\n", verified >> 20);
}

static void print_json(const struct result *v, uint64_t verified)
{
	(void)printf("{\"tool\": \"raw\", \"mode\": \"%s\", \"write\": %s, \"size\": %" PRIu64
		     ", \"threads\": %u, \"offsets\": \"%s\", \"io\": \"%s\", \"state\": \"%s\", "
		     "\"device\": \"%s\", \"gb_per_s\": %.4f, \"p50_us\": %.2f, \"p99_us\": %.2f, "
		     "\"cpu_s_per_10gb\": %.4f, \"verified_bytes\": %" PRIu64 ", \"passes\": [",
		     mode_names[set.mode], set.write ? "true" : "false", set.size, set.threads,
		     set.random ? "random" : "seq", set.direct ? "direct" : "buffered",
		     set.cold ? "cold" : "warm", on_gpu() ? gpu_name : "host", median(v, gb_per_s),
		     median(v, p50_us), median(v, p99_us), median(v, cpu_per_10gb), verified);
	for (unsigned i = 0; i < set.passes; i++)
		(void)printf("%s{\"bytes\": %" PRIu64 ", \"seconds\": %.6f, \"gb_per_s\": %.4f, "
			     "\"p50_us\": %.2f, \"p99_us\": %.2f, \"cpu_s_per_10gb\": %.4f, "
			     "\"resident\": %.3f}",
			     i ? ", " : "", v[i].bytes, (double)v[i].ns / 1e9, gb_per_s(&v[i]),
			     p50_us(&v[i]), p99_us(&v[i]), cpu_per_10gb(&v[i]), v[i].resident);
	(void)printf("]}\n");
}

static void run(void)
{
	_cleanup_(freep) struct result *results = calloc(set.passes, sizeof(*results));
	uint64_t verified = 0;

	lanes = calloc(set.threads, sizeof(*lanes));
	if (!lanes || !results)
		die(1, "out of memory");
	if (pthread_barrier_init(&gate, NULL, set.threads + 1) != 0)
		die(1, "cannot make a barrier");
	for (unsigned i = 0; i < set.threads; i++) {
		lanes[i].idx = i;
		if (pthread_create(&lanes[i].thread, NULL, lane_main, &lanes[i]) != 0)
			die(1, "cannot start %u threads", set.threads);
	}
	if (!set.cold && !set.write)
		make_warm();
	for (turn = 0; turn < set.passes; turn++)
		run_pass(&results[turn]);
	stop = true;
	gate_wait();
	for (unsigned i = 0; i < set.threads; i++) {
		(void)pthread_join(lanes[i].thread, NULL);
		verified += lanes[i].verified;
	}
	if (set.json)
		print_json(results, verified);
	else
		print_text(results, verified);
	for (unsigned i = 0; i < set.threads; i++)
		free(lanes[i].check);
	free(lanes);
}

/* ----------------------------------------------------------------- options */

static uint64_t parse_size(const char *text)
{
	char *end;
	unsigned long long v = strtoull(text, &end, 10);

	switch (*end) {
	case 'g':
		v <<= 10;
		/* fall through */
	case 'm':
		v <<= 10;
		/* fall through */
	case 'k':
		v <<= 10;
		end++;
	}
	if (*end || !v)
		die(2, "'%s' is not a size such as 4m", text);
	return v;
}

static unsigned parse_number(const char *text, unsigned max)
{
	char *end;
	unsigned long v = strtoul(text, &end, 10);

	if (*end || end == text || v > max)
		die(2, "'%s' is not a number up to %u", text, max);
	return (unsigned)v;
}

static void parse_mode(const char *text)
{
	for (unsigned i = 0; i < ARRAY_SIZE(mode_names); i++)
		if (!strcmp(text, mode_names[i])) {
			set.mode = (enum mode)i;
			return;
		}
	die(2, "there is no mode '%s'; see raw --help", text);
}

static void check_settings(const char *io, bool overwrite)
{
	if (set.mode == GPU_WRITE)
		set.write = true;
	set.direct = io ? !strcmp(io, "direct") : set.mode == ODIRECT || set.mode == GPU_WRITE;
	if (io && !set.direct && strcmp(io, "buffered") != 0)
		die(2, "--io takes buffered or direct");
	if (set.mode == ODIRECT && !set.direct)
		die(2, "odirect is direct");
	if (set.write && (set.mode == PLAIN || set.mode == PINNED))
		die(2, "%s only reads; gpu-write writes", mode_names[set.mode]);
	if (set.write && !overwrite)
		die(2, "this destroys what %s holds; say --overwrite if you mean it", set.path);
	if (set.seconds > 0 && (set.write || set.passes > 1))
		die(2, "--seconds is for one pass of reading");
	if (!set.threads || !set.passes)
		die(2, "there is nothing to do");
}

static void parse(int argc, char *argv[])
{
	enum { SIZE = 256, THREADS, OFFSETS, IO, PASSES, SECONDS, BYTES, OVERWRITE, GPU, LIB };
	static int cold, write, json;
	static const struct option longs[] = {
		{ "size", required_argument, NULL, SIZE },
		{ "threads", required_argument, NULL, THREADS },
		{ "offsets", required_argument, NULL, OFFSETS },
		{ "cold", no_argument, &cold, 1 },
		{ "warm", no_argument, &cold, 0 },
		{ "io", required_argument, NULL, IO },
		{ "passes", required_argument, NULL, PASSES },
		{ "seconds", required_argument, NULL, SECONDS },
		{ "bytes", required_argument, NULL, BYTES },
		{ "write", no_argument, &write, 1 },
		{ "overwrite", no_argument, NULL, OVERWRITE },
		{ "gpu", required_argument, NULL, GPU },
		{ "libcufile", required_argument, NULL, LIB },
		{ "json", no_argument, &json, 1 },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	const char *io = NULL;
	bool overwrite = false;
	int opt;

	while ((opt = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		switch (opt) {
		case 0:
			break;
		case SIZE:
			set.size = parse_size(optarg);
			break;
		case THREADS:
			set.threads = parse_number(optarg, THREADS_MAX);
			break;
		case OFFSETS:
			set.random = !strcmp(optarg, "random");
			if (!set.random && strcmp(optarg, "seq") != 0)
				die(2, "--offsets takes seq or random");
			break;
		case IO:
			io = optarg;
			break;
		case PASSES:
			set.passes = parse_number(optarg, PASSES_MAX);
			break;
		case SECONDS:
			set.seconds = strtod(optarg, NULL);
			break;
		case BYTES:
			set.bytes = parse_size(optarg);
			break;
		case OVERWRITE:
			overwrite = true;
			break;
		case GPU:
			set.gpu = (int)parse_number(optarg, 64);
			break;
		case LIB:
			set.libcufile = optarg;
			break;
		case 'h':
			(void)fputs(usage, stdout);
			exit(0);
		default:
			die(2, "see raw --help");
		}
	}
	if (argc - optind != 2)
		die(2, "a mode and a file are wanted; see raw --help");
	parse_mode(argv[optind]);
	set.path = argv[optind + 1];
	set.cold = cold;
	set.write = write;
	set.json = json;
	check_settings(io, overwrite);
}

int main(int argc, char *argv[])
{
	parse(argc, argv);
	open_file();
	if (on_gpu())
		load_cuda();
	if (set.mode == CUFILE)
		load_cufile();
	run();
	return 0;
}
