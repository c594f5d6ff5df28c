/* SPDX-License-Identifier: MIT */
/* Transfers by cuFile: their bytes, their results, and the path that they took. */
#include "cufile_rig.h"

static struct cufile_file *cf;
static struct cufile_mem *m;

static void ready(const char *text)
{
	use_library(text);
	T_OK(cufile_open());
	T_OK(cufile_file_get(local_of(file), &cf));
	m = mem_new();
}

static void over(void)
{
	T_EQ(within(do_mem_free, m), 0);
	cufile_file_put(cf);
	nothing_is_left();
}

/* ------------------------------------------------------------------- bytes */

static void reads(void)
{
	ready("");
	T_EQ(io(cf, m, 0, 0, MIB(2), 0), MIB(2));
	T_CHECK(mem_is(0, 0, MIB(2)));
	/* Transfer at an offset in the slice. */
	T_EQ(io(cf, m, MIB(5) + 8192, 4096, 65536, 0), 65536);
	T_CHECK(mem_is(MIB(5) + 8192, 4096, 65536));
	T_EQ(io(cf, m, MIB(32) - 4096, 8192, 4096, 0), 4096);
	T_CHECK(mem_is(MIB(32) - 4096, 8192, 4096));
	/* Read across the end of the file, and past it. */
	T_EQ(io(cf, m, 0, FILE_LEN - 4096, MIB(1), 0), 4096);
	T_EQ(io(cf, m, 0, FILE_LEN, MIB(1), 0), 0);
	T_EQ(io(cf, m, 0, FILE_LEN + MIB(9), MIB(1), 0), 0);
	over();
}

static void writes(void)
{
	uint8_t buf[8192];

	ready("");
	t_fill(buf, SEED + 1, 0, sizeof(buf));
	T_OK(mem_copy_sync(mem, MEM_TO_DEVICE, 65536, buf, sizeof(buf)));
	T_EQ(io(cf, m, 65536, 4096, 8192, CUFILE_IO_WRITE), 8192);
	memset(buf, 0, sizeof(buf));
	T_EQ(pread(local_of(file)->fd, buf, 8192, 4096), 8192);
	T_EQ(t_differs(buf, SEED + 1, 0, 8192), 8192);
	T_EQ(pread(local_of(file)->fd, buf, 4096, 0), 4096);
	T_EQ(t_differs(buf, SEED, 0, 4096), 4096);
	/* The file grows. */
	T_EQ(io(cf, m, 65536, FILE_LEN, 4096, CUFILE_IO_WRITE), 4096);
	over();
}

static void arguments_are_checked(void)
{
	uint64_t calls;

	ready("");
	calls = state().calls;
	T_EQ(io(cf, m, 0, 0, 0, 0), -EINVAL);
	T_EQ(io(cf, m, 0, 0, 4095, 0), -EINVAL);
	T_EQ(io(cf, m, 0, 100, 4096, 0), -EINVAL);
	T_EQ(io(cf, m, 100, 0, 4096, 0), -EINVAL);
	T_EQ(io(cf, m, 0, UINT64_C(1) << 63, 4096, 0), -EINVAL);
	T_EQ(io(cf, m, 0, 0, MIB(16) + 4096, 0), -EINVAL);
	T_EQ(io(cf, m, MIB(16) - 4096, 0, 8192, 0), -EINVAL);
	T_EQ(io(cf, m, MEM_LEN, 0, 4096, 0), -EINVAL);
	T_EQ(io(cf, m, 0, 0, 4096, 1u << 7), -EINVAL);
	T_EQ(state().calls, calls);
	over();
}

static void directions_are_checked(void)
{
	struct file *f;
	struct cufile_file *one;
	char path[PATH_MAX + 8];

	ready("");
	(void)snprintf(path, sizeof(path), "%s/file", dir);
	T_OK(file_open(path, PST_FILE_READ, 0, &f));
	T_OK(cufile_file_get(local_of(f), &one));
	T_EQ(io(one, m, 0, 0, 4096, CUFILE_IO_WRITE), -EBADF);
	T_EQ(io(one, m, 0, 0, 4096, 0), 4096);
	cufile_file_put(one);
	file_free(f);
	T_OK(file_open(path, PST_FILE_WRITE, 0, &f));
	T_OK(cufile_file_get(local_of(f), &one));
	T_EQ(io(one, m, 0, 0, 4096, 0), -EBADF);
	T_EQ(io(one, m, 0, 0, 4096, CUFILE_IO_WRITE), 4096);
	cufile_file_put(one);
	file_free(f);
	over();
}

/* Without a context nothing can be registered. */
static void a_context_is_needed(void)
{
	struct cufile_io v = { .len = 4096 };

	ready("mode=p2pdma");
	v.file = cf;
	v.mem = m;
	T_EQ(cufile_io(&v), -EIO);
	T_CHECK(strstr(err_text(), "CUDA gave it error 201"));
	T_EQ(within(do_io, &v), 4096);
	over();
}

/* ----------------------------------------------------------------- results */

static int64_t result(int64_t ret, int err, const char *says)
{
	int64_t r = cufile_result(ret, err, 65536, false);

	if (says)
		T_CHECK(strstr(err_text(), says));
	return r;
}

static void results_are_folded(void)
{
	T_EQ(result(0, 0, NULL), 0);
	T_EQ(result(65536, 5, NULL), 65536);
	T_EQ(result(100, 0, NULL), 100);
	/* cuFile claims more bytes than requested. */
	T_EQ(result(65537, 0, "65537 bytes of 65536"), -EIO);
	T_EQ(result(INT64_MAX, 0, "nothing of it holds"), -EIO);
	/* cuFile failed with an errno of the system. */
	T_EQ(result(-1, ENOSPC, "could not read: ENOSPC"), -ENOSPC);
	T_EQ(result(-1, EINVAL, "EINVAL"), -EINVAL);
	/* With EPERM or 0 as errno, -1 is cuFile's own result, and errno means nothing. */
	T_EQ(result(-1, EPERM, "no reason"), -EIO);
	T_EQ(result(-1, 0, "no reason"), -EIO);
	/* cuFile failed with one of its codes in errno. */
	T_EQ(result(-1, 5022, "INVALID_VALUE (5022)"), -EINVAL);
	T_EQ(result(-1, 5017, "INVALID_MAPPING_RANGE"), -EINVAL);
	T_EQ(result(-1, 5027, "/run/udev"), -EOPNOTSUPP);
	/* cuFile returned one of its negated codes. */
	T_EQ(result(-5030, 0, "INTERNAL_ERROR (5030)"), -EIO);
	T_EQ(result(-5036, 0, "BAR1"), -ENOMEM);
	T_EQ(result(-5008, 0, "no direct way"), -EOPNOTSUPP);
	T_EQ(result(-5063, 0, "its error 5063"), -EIO);
	T_EQ(result(-6001, 0, "its error 6001"), -EIO);
	/* cuFile returned a negated errno. */
	T_EQ(result(-ENODATA, 0, "ENODATA"), -ENODATA);
	T_EQ(result(-4999, 0, "no reason"), -EIO);
	T_EQ(result(INT64_MIN, 0, "its error"), -EIO);
}

static int folded(int err, int cu_err, const char *says)
{
	int r = cufile_err((struct cuf_error){ err, cu_err }, "do %d things", 3);

	T_CHECK(strstr(err_text(), "cuFile could not do 3 things: "));
	T_CHECK(strstr(err_text(), says));
	return r;
}

static void errors_are_folded(void)
{
	T_EQ(folded(5001, 0, "nvidia-fs"), -EOPNOTSUPP);
	T_EQ(folded(5011, 2, "CUDA gave it error 2"), -ENOMEM);
	T_EQ(folded(5011, 700, "CUDA gave it error 700"), -EIO);
	T_EQ(folded(5011, 0, "CUDA_DRIVER_ERROR (5011)"), -EIO);
	T_EQ(folded(5023, 0, "another user"), -EBUSY);
	T_EQ(folded(5025, 0, "/dev/nvidia-fs"), -EACCES);
	T_EQ(folded(5043, 0, "NOMEM_ERROR (5043)"), -ENOMEM);
	T_EQ(folded(5021, 0, "its error 5021"), -EIO);
	T_EQ(folded(-7, 0, "its error -7"), -EIO);
	/* Each code has an errno, and all but two have a text. */
	for (int code = 5001; code < CUF_LAST; code++)
		T_CHECK(cufile_err((struct cuf_error){ code, 0 }, "x") < 0 &&
			(code == 5021 || code == 5032 || !strstr(err_text(), "its error")));
}

/* --------------------------------------------------------------------- lies */

static void lies(void)
{
	ready("mode=p2pdma");
	NEED_STUB();
	x.set("lie=more");
	T_EQ(io(cf, m, 0, 0, 65536, 0), -EIO);
	T_CHECK(strstr(err_text(), "nothing of it holds"));
	x.set("lie=short");
	T_EQ(io(cf, m, 0, 0, 65536, 0), 32768);
	/* Only comparing bytes reveals these lies. */
	x.set("lie=wrong");
	T_EQ(io(cf, m, 0, 0, 65536, 0), 65536);
	T_CHECK(!mem_is(0, 0, 65536));
	over();
}

/* ----------------------------------------------------------------- counters */

static enum cufile_mode moved(bool write)
{
	struct cufile_counts before, after;
	struct pst_device info = { .sz = sizeof(info) };

	mem->ops->device_info(mem->device, &info);
	T_OK(cufile_counts(info.uuid, write, &before));
	T_EQ(io(cf, m, 0, 0, 65536, write ? CUFILE_IO_WRITE : 0), 65536);
	T_OK(cufile_counts(info.uuid, write, &after));
	return cufile_mode(&before, &after);
}

static void mode_is(const char *text, enum cufile_mode want)
{
	(void)setenv("PST_GDS", "exclusive", 1);
	ready(text);
	NEED_STUB();
	T_EQ(moved(false), want);
	T_EQ(moved(true), want);
	T_EQ(moved(false), want);
	over();
}

static void p2pdma(void)
{
	mode_is("mode=p2pdma", CUFILE_MODE_P2PDMA);
}

static void nvfs(void)
{
	mode_is("mode=nvfs", CUFILE_MODE_NVFS);
}

static void nvfs_of_1_19(void)
{
	mode_is("mode=nvfs,version=1190", CUFILE_MODE_NVFS);
}

static void c2c(void)
{
	mode_is("mode=c2c", CUFILE_MODE_C2C);
}

/* cuFile claims that nvidia-fs moved the bytes, although it is not loaded. */
static void claims(void)
{
	mode_is("mode=compat,lie=claims", CUFILE_MODE_UNKNOWN);
}

/* The counters are turned on only when they are asked for. */
static void counts_only_when_asked(void)
{
	struct cufile_counts c;
	struct pst_device info = { .sz = sizeof(info) };

	(void)setenv("PST_GDS", "exclusive", 1);
	ready("mode=nvfs");
	NEED_STUB();
	mem->ops->device_info(mem->device, &info);
	T_EQ(io(cf, m, 0, 0, 65536, 0), 65536);
	T_EQ(state().levels, 0);
	T_OK(cufile_counts(info.uuid, false, &c));
	T_OK(cufile_counts(info.uuid, false, &c));
	T_EQ(state().levels, 1);
	/* Closing the driver turns the counters off; they are turned on again. */
	T_EQ(within(do_mem_free, m), 0);
	cufile_file_put(cf);
	T_OK(cufile_close());
	T_OK(cufile_open());
	T_OK(cufile_file_get(local_of(file), &cf));
	m = mem_new();
	T_OK(cufile_counts(info.uuid, false, &c));
	T_EQ(state().levels, 2);
	over();
}

static void counters_of_others_stay_off(void)
{
	struct cufile_counts c;
	uint8_t uuid[16] = { 0 };

	ready("mode=compat");
	NEED_STUB();
	T_EQ(cufile_counts(uuid, false, &c), -EOPNOTSUPP);
	T_CHECK(strstr(err_text(), "PST_GDS=exclusive"));
	T_EQ(state().levels, 0);
	over();
}

static void unknown_counters(void)
{
	struct cufile_counts c;
	uint8_t uuid[16] = { 0 };

	(void)setenv("PST_GDS", "exclusive", 1);
	ready("mode=p2pdma,version=1210");
	NEED_STUB();
	T_EQ(cufile_counts(uuid, false, &c), -EOPNOTSUPP);
	T_CHECK(strstr(err_text(), "1.21 are not known"));
	over();
}

static void modes_follow_from_counts(void)
{
	struct cufile_counts a = { .p2p = 5, .nvfs = 5, .posix = 5, .unaligned = 5 }, b = a;

	T_EQ(cufile_mode(&a, &b), CUFILE_MODE_UNKNOWN);
	b.p2p++;
	T_EQ(cufile_mode(&a, &b), CUFILE_MODE_P2PDMA);
	b.nvfs++;
	T_EQ(cufile_mode(&a, &b), CUFILE_MODE_UNKNOWN);
	b.posix++;
	T_EQ(cufile_mode(&a, &b), CUFILE_MODE_COMPAT);
	b = a;
	b.p2p++;
	b.unaligned++;
	T_EQ(cufile_mode(&a, &b), CUFILE_MODE_UNKNOWN);
	for (int i = CUFILE_MODE_UNKNOWN; i <= CUFILE_MODE_C2C + 1; i++)
		T_CHECK(cufile_mode_name((enum cufile_mode)i)[0]);
}

int main(void)
{
	APART(reads);
	APART(writes);
	APART(arguments_are_checked);
	APART(directions_are_checked);
	APART(a_context_is_needed);
	APART(results_are_folded);
	APART(errors_are_folded);
	APART(lies);
	APART(p2pdma);
	APART(nvfs);
	APART(nvfs_of_1_19);
	APART(c2c);
	APART(claims);
	APART(counts_only_when_asked);
	APART(counters_of_others_stay_off);
	APART(unknown_counters);
	APART(modes_follow_from_counts);
	return t_done();
}
