/* SPDX-License-Identifier: MIT */
/* Load CUDA and cuFile, if present. */
#include <dlfcn.h>

#include "cufile.h"

/* -------------------------------------------------------------------- CUDA */

int cuda_check(cu_result e, const char *call)
{
	const char *name = NULL;

	if (e == CU_OK)
		return 0;
	(void)cu.cuGetErrorName(e, &name);
	return fail(EIO, "%.*s gave %u (%s)", (int)strcspn(call, "("), call, e,
		    name ? name : "unknown");
}

int cuda_open(cu_ctx *ret)
{
	char why[256];
	cu_device dev;
	int r = vendor_cuda(why, sizeof(why));

	if (r < 0)
		return fail(r, "%s", why);
	if (cu.cuInit(0) || cu.cuDeviceGet(&dev, (int)set.gpu))
		return fail(ENODEV, "there is no NVIDIA GPU %u", set.gpu);
	r = CU(cuDevicePrimaryCtxRetain(ret, dev));
	return r < 0 ? r : CU(cuCtxPushCurrent_v2(*ret));
}

/* ------------------------------------------------------------------ cuFile */

static const char *code_name(int code)
{
	static const struct {
		int code;
		const char *name;
	} names[] = {
#define NAME(n) { CUF_##n, #n }
		NAME(DRIVER_NOT_INITIALIZED),
		NAME(DRIVER_INVALID_PROPS),
		NAME(DRIVER_VERSION_MISMATCH),
		NAME(PLATFORM_NOT_SUPPORTED),
		NAME(IO_NOT_SUPPORTED),
		NAME(DEVICE_NOT_SUPPORTED),
		NAME(NVFS_DRIVER_ERROR),
		NAME(CUDA_DRIVER_ERROR),
		NAME(CUDA_MEMORY_TYPE_INVALID),
		NAME(INVALID_FILE_TYPE),
		NAME(INVALID_FILE_OPEN_FLAG),
		NAME(DIO_NOT_SET),
		NAME(INVALID_VALUE),
		NAME(PERMISSION_DENIED),
		NAME(HANDLE_NOT_REGISTERED),
		NAME(INTERNAL_ERROR),
		NAME(GETNEWFD_FAILED),
		NAME(NVFS_SETUP_ERROR),
		NAME(IO_DISABLED),
		NAME(BATCH_SUBMIT_FAILED),
		NAME(GPU_MEMORY_PINNING_FAILED),
		NAME(INTERNAL_BATCH_SETUP_ERROR),
		NAME(INTERNAL_BATCH_SUBMIT_ERROR),
		NAME(INTERNAL_BATCH_GETSTATUS_ERROR),
		NAME(IO_ERROR),
		NAME(BATCH_NOCOMPAT_ERROR),
#undef NAME
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (names[i].code == code)
			return names[i].name;
	return "no name here";
}

int bench_cufile_check(struct cuf_error e, const char *call)
{
	const char *cure = "";

	if (!e.err)
		return 0;
	if (e.err == CUF_HANDLE_NOT_REGISTERED)
		cure = ": it finds nothing about the disk; it needs a udev database";
	if (e.err == CUF_CUDA_DRIVER_ERROR)
		return fail(EOPNOTSUPP, "%s gave %d (%s), with CUDA's %d", call, e.err,
			    code_name(e.err), e.cu_err);
	return fail(EOPNOTSUPP, "%s gave %d (%s)%s", call, e.err, code_name(e.err), cure);
}

int cufile_read_failed(ssize_t n, int err, uint64_t off)
{
	int code = n == -1 ? err : (int)-n;

	if (n >= 0)
		return fail(EIO, "cuFileRead at %llu gave %zd bytes", (unsigned long long)off, n);
	return fail(EIO, "cuFileRead at %llu gave %zd: %d (%s)", (unsigned long long)off, n, code,
		    code > CUF_BASE ? code_name(code) : strerror(code));
}

int cufile_load(void)
{
	static const char *const places[] = {
		"libcufile.so.0",
		"/usr/local/cuda/lib64/libcufile.so.0",
		"/usr/local/cuda/targets/x86_64-linux/lib/libcufile.so.0",
	};
	const char *named = set.libcufile;
	char why[256];
	int r = -ENODEV;

	/* Without this setting, cuFile writes its log into the current directory. */
	(void)setenv("CUFILE_LOGFILE_PATH", "/dev/null", 0);
	if (named)
		r = vendor_cufile(named, why, sizeof(why));
	for (size_t i = 0; !named && r == -ENODEV && i < ARRAY_SIZE(places); i++)
		r = vendor_cufile(places[i], why, sizeof(why));
	if (!named && r == -ENODEV)
		return fail(ENODEV, "there is no libcufile.so.0; --libcufile names one");
	return r < 0 ? fail(r, "%s", why) : 0;
}

int bench_cufile_open(int fd, cuf_handle *ret)
{
	struct cuf_descr d = { .type = CUF_FD, .u = { .fd = fd } };
	int r = bench_cufile_check(cuf.cuFileDriverOpen(), "cuFileDriverOpen");

	return r < 0 ? r
		     : bench_cufile_check(cuf.cuFileHandleRegister(ret, &d),
					  "cuFileHandleRegister");
}

/* ------------------------------------------------------------------- facts */

struct counts {
	uint64_t posix, nvfs, p2p;
};

/* Read cuFile's counters for all GPUs: nothing else in this process uses cuFile. */
static int counters(int version, struct counts *ret)
{
	_cleanup_(freep) char *buf = calloc(1, CUF_STATS_ROOM);
	size_t at = version < 1190 ? CUF_STATS_AT_1150 : CUF_STATS_AT_1190;
	struct cuf_gpu_stats g;
	uint32_t nr;

	if (!buf || cuf.cuFileGetStatsL3(buf).err)
		return fail(EIO, "it does not tell its counters");
	memcpy(&nr, buf + at, sizeof(nr));
	if (nr > CUF_GPUS)
		return fail(EOPNOTSUPP, "its counters have a form that is not known here");
	*ret = (struct counts){ 0 };
	for (uint32_t i = 0; i < nr; i++) {
		memcpy(&g, buf + at + 8 + i * sizeof(g), sizeof(g));
		ret->posix += g.posix_reads;
		ret->nvfs += g.nvfs_reads;
		ret->p2p += g.p2p_reads;
	}
	return 0;
}

static int read_one(cuf_handle handle)
{
	uint64_t len = MIN(set.size, MIB(1)) & ~UINT64_C(4095);
	cu_ptr dev = 0;
	ssize_t n;
	int r = CU(cuMemAlloc_v2(&dev, MIB(2)));

	if (r == 0)
		r = bench_cufile_check(cuf.cuFileBufRegister((void *)(uintptr_t)dev, MIB(2), 0),
				       "cuFileBufRegister");
	if (r < 0)
		return r;
	n = cuf.cuFileRead(handle, (void *)(uintptr_t)dev, len, 0, 0);
	return n == (ssize_t)len ? 0 : cufile_read_failed(n, errno, 0);
}

/* Read a little, and find out from the counters how the bytes moved. */
static int find_mode(int version, cuf_handle handle, char *ret, size_t len)
{
	struct cuf_props props = { 0 };
	struct counts c = { 0 };
	const char *mode;
	int r = bench_cufile_check(cuf.cuFileDriverGetProperties(&props),
				   "cuFileDriverGetProperties");

	if (r < 0)
		return r;
	(void)snprintf(ret, len, "not told; nvidia-fs %u.%u", props.nvfs.major, props.nvfs.minor);
	if (version < 1150 || version >= 1210 || !cuf.cuFileGetStatsL3 ||
	    !cuf.cuFileSetStatsLevel || !cuf.cuFileStatsStart || !cuf.cuFileStatsStop)
		return read_one(handle);
	r = bench_cufile_check(cuf.cuFileSetStatsLevel(CUF_STATS_LEVEL), "cuFileSetStatsLevel");
	if (r == 0)
		r = bench_cufile_check(cuf.cuFileStatsStart(), "cuFileStatsStart");
	if (r == 0)
		r = read_one(handle);
	if (r == 0)
		r = counters(version, &c);
	/* Before 1.16, a process that counts cannot exit safely. */
	(void)cuf.cuFileStatsStop();
	if (r < 0)
		return r;
	mode = c.posix ? "compat" : c.nvfs ? "nvfs" : c.p2p ? "p2p" : "unknown";
	(void)snprintf(ret, len,
		       "%s, nvidia-fs %u.%u (its counters: %llu compat, %llu nvfs, %llu p2p)", mode,
		       props.nvfs.major, props.nvfs.minor, (unsigned long long)c.posix,
		       (unsigned long long)c.nvfs, (unsigned long long)c.p2p);
	return 0;
}

static int find_cufile(struct facts *f)
{
	cuf_handle handle = NULL;
	Dl_info info;
	void *fn;
	int r = cufile_load();

	if (r < 0)
		return r;
	memcpy(&fn, &cuf.cuFileDriverOpen, sizeof(fn));
	if (dladdr(fn, &info) && info.dli_fname)
		(void)snprintf(f->file, sizeof(f->file), "%s", info.dli_fname);
	r = bench_cufile_check(cuf.cuFileGetVersion(&f->cufile), "cuFileGetVersion");
	if (r == 0)
		r = bench_cufile_open(work.fd_direct >= 0 ? work.fd_direct : work.fd, &handle);
	return r < 0 ? r : find_mode(f->cufile, handle, f->mode, sizeof(f->mode));
}

static void lib_find_fs(char *ret, size_t len)
{
	struct pst_file_info info = { .sz = sizeof(info) };
	struct pst_file *f = NULL;

	if (pst_file_open(set.path, PST_FILE_READ, NULL, &f) == 0 && pst_file_info(f, &info) == 0)
		(void)snprintf(ret, len, "%s", info.fs);
	(void)pst_file_close(f);
}

void facts_gpu(struct facts *f)
{
	cu_device dev;

	(void)cu.cuDriverGetVersion(&f->cuda);
	if (cu.cuDeviceGet(&dev, (int)set.gpu) == CU_OK)
		(void)cu.cuDeviceGetName(f->gpu, sizeof(f->gpu), dev);
	if (read_line("/sys/module/nvidia/version", f->driver, sizeof(f->driver)) < 0)
		(void)snprintf(f->driver, sizeof(f->driver), "unknown");
	lib_find_fs(f->fs, sizeof(f->fs));
}

void facts_cufile(struct answer *ret)
{
	int r = find_cufile(&ret->facts);

	if (r < 0) {
		ret->status = REFUSED;
		(void)snprintf(ret->text, sizeof(ret->text), "%s", fail_text());
	}
}
