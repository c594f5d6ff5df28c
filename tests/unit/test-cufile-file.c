/* SPDX-License-Identifier: MIT */
/* Files registered with cuFile: which files it takes, and for how long. */
#include <linux/fs.h>
#include <stdarg.h>
#include <sys/ioctl.h>

#include "cufile_rig.h"

static long attributes; /* inode attributes of every file; 0: the real ones */

int __real_ioctl(int fd, unsigned long nr, ...);
int __wrap_ioctl(int fd, unsigned long nr, ...);
int __wrap_ioctl(int fd, unsigned long nr, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, nr);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (nr != FS_IOC_GETFLAGS || !attributes)
		return __real_ioctl(fd, nr, arg);
	/* The kernel writes an int, whatever the ioctl's number says. */
	*(int *)arg = (int)attributes;
	return 0;
}

static void one_registration_for_all(void)
{
	struct cufile_file *a, *b;

	use_library("");
	T_EQ(cufile_file_get(local_of(file), &a), -ENODEV);
	T_OK(cufile_open());
	T_OK(cufile_file_get(local_of(file), &a));
	T_OK(cufile_file_get(local_of(file), &b));
	T_CHECK(a == b);
	if (x.set)
		T_EQ(state().files, 1);
	cufile_file_put(a);
	if (x.set)
		T_EQ(state().files, 1);
	cufile_file_put(b);
	T_EQ(state().files, 0);
	/* Register again. */
	T_OK(cufile_file_get(local_of(file), &a));
	cufile_file_put(a);
	nothing_is_left();
}

/* Another user registers the same file.  cuFile finds registrations by descriptor number, so
 * ours must use another one. */
static void others_may_register_the_same(void)
{
	struct cuf_descr d = { .type = CUF_FD };
	struct cufile_file *cf;
	cuf_handle theirs;

	use_library("");
	T_OK(cufile_open());
	d.u.fd = local_of(file)->fd_direct;
	T_EQ(x.reg(&theirs, &d).err, 0);
	T_OK(cufile_file_get(local_of(file), &cf));
	cufile_file_put(cf);
	x.unreg(theirs);
	T_OK(cufile_file_get(local_of(file), &cf));
	T_EQ(x.reg(&theirs, &d).err, 0);
	x.unreg(theirs);
	cufile_file_put(cf);
	nothing_is_left();
}

/* cuFile would copy such files through host memory without saying so. */
static void odd_attributes_are_refused(void)
{
	static const long odd[] = { FS_COMPR_FL,      FS_ENCRYPT_FL, FS_APPEND_FL,
				    FS_IMMUTABLE_FL,  FS_VERITY_FL,  FS_JOURNAL_DATA_FL,
				    FS_INLINE_DATA_FL };
	struct cufile_file *cf;

	use_library("");
	T_OK(cufile_open());
	for (unsigned i = 0; i < ARRAY_SIZE(odd); i++) {
		attributes = odd[i] | FS_EXTENT_FL;
		T_EQ(cufile_file_get(local_of(file), &cf), -EMEDIUMTYPE);
		T_CHECK(strstr(err_text(), "lsattr"));
	}
	attributes = FS_EXTENT_FL | FS_NOATIME_FL;
	T_OK(cufile_file_get(local_of(file), &cf));
	cufile_file_put(cf);
	nothing_is_left();
}

/* Another owner of the descriptor may clear O_DIRECT. */
static void o_direct_may_be_lost(void)
{
	struct cufile_file *cf;
	int flags;

	use_library("");
	T_OK(cufile_open());
	flags = fcntl(local_of(file)->fd_direct, F_GETFL);
	T_EQ(fcntl(local_of(file)->fd_direct, F_SETFL, flags & ~O_DIRECT), 0);
	T_EQ(cufile_file_get(local_of(file), &cf), -EOPNOTSUPP);
	T_CHECK(strstr(err_text(), "O_DIRECT"));
	T_EQ(fcntl(local_of(file)->fd_direct, F_SETFL, flags), 0);
	T_OK(cufile_file_get(local_of(file), &cf));
	cufile_file_put(cf);
	nothing_is_left();
}

/* Register a wrapped descriptor.  One with O_DIRECT is used itself, without a second open. */
static int wrap(const char *path, int flags, struct cufile_file **ret)
{
	struct file *f;
	int fd = open(path, flags, 0600), r; /* the mode is for O_TMPFILE */

	T_CHECK(fd >= 0);
	T_OK(local_file_wrap(fd, 0, &f));
	r = cufile_file_get(local_of(f), ret);
	if (r == 0)
		cufile_file_put(*ret);
	file_free(f);
	(void)close(fd);
	return r;
}

static void odd_flags_are_refused(void)
{
	char path[PATH_MAX + 8];
	struct cufile_file *cf;
	uint64_t calls;

	use_library("");
	T_OK(cufile_open());
	(void)snprintf(path, sizeof(path), "%s/file", dir);
	T_EQ(wrap(path, O_RDWR | O_DIRECT, &cf), 0);
	T_EQ(wrap(path, O_RDONLY | O_DIRECT | O_NOATIME, &cf), 0);
	T_EQ(wrap(path, O_WRONLY | O_DIRECT | O_SYNC, &cf), 0);
	T_EQ(wrap(path, O_RDWR | O_NOFOLLOW, &cf), 0); /* the library opens without that flag */
	calls = state().calls;
	T_EQ(wrap(path, O_RDWR | O_DIRECT | O_NONBLOCK, &cf), -EOPNOTSUPP);
	T_CHECK(strstr(err_text(), "O_NONBLOCK"));
	T_EQ(wrap(path, O_RDWR | O_DIRECT | O_NOFOLLOW, &cf), -EOPNOTSUPP);
	T_EQ(wrap(dir, O_RDWR | O_DIRECT | O_TMPFILE, &cf), -EOPNOTSUPP);
	T_EQ(state().calls, calls); /* cuFile was not called */
	nothing_is_left();
}

static void no_o_direct(void)
{
	struct file *f;
	struct cufile_file *cf;
	char path[PATH_MAX + 8];

	use_library("");
	T_OK(cufile_open());
	(void)snprintf(path, sizeof(path), "%s/file", dir);
	T_OK(file_open(path, PST_FILE_READ | PST_FILE_PLAIN, 0, &f));
	T_EQ(cufile_file_get(local_of(f), &cf), -EOPNOTSUPP);
	T_CHECK(strstr(err_text(), "O_DIRECT"));
	file_free(f);
	nothing_is_left();
}

static void no_udev(void)
{
	struct cufile_file *cf;

	use_library("udev=0");
	NEED_STUB();
	T_OK(cufile_open());
	T_EQ(cufile_file_get(local_of(file), &cf), -EOPNOTSUPP);
	T_CHECK(strstr(err_text(), "/run/udev"));
	x.set("udev=1");
	T_OK(cufile_file_get(local_of(file), &cf));
	cufile_file_put(cf);
	nothing_is_left();
}

static void unlinked_files_are_refused(void)
{
	struct cufile_file *cf;
	char path[PATH_MAX + 8];

	use_library("");
	T_OK(cufile_open());
	(void)snprintf(path, sizeof(path), "%s/file", dir);
	T_EQ(unlink(path), 0);
	T_EQ(cufile_file_get(local_of(file), &cf), -EOPNOTSUPP);
	T_CHECK(strstr(err_text(), "by its name"));
	nothing_is_left();
}

/* ------------------------------------------------------------------- hangs */

static struct cufile_file *hung_file;
static struct cufile_mem *hung_mem;

static void *get_thread(void *arg)
{
	(void)arg;
	return (void *)(intptr_t)cufile_file_get(local_of(file), &hung_file);
}

static void *put_thread(void *arg)
{
	cufile_file_put(arg);
	return NULL;
}

static void *io_thread(void *arg)
{
	(void)arg;
	return (void *)(intptr_t)io(hung_file, hung_mem, 0, 0, 65536, 0);
}

static void a_registration_hangs(void)
{
	struct cufile_file *cf;
	struct file *other;
	char path[PATH_MAX + 8];
	struct hung h;

	use_library("hang=cuFileHandleRegister:1");
	NEED_STUB();
	T_OK(cufile_open());
	h = hang(get_thread, NULL);
	T_EQ(cufile_file_get(local_of(file), &cf), -EBUSY);
	T_EQ(cufile_close(), -EBUSY);

	/* Another file can be registered during the hang. */
	(void)snprintf(path, sizeof(path), "%s/file", dir);
	T_OK(file_open(path, PST_FILE_READ, 0, &other));
	T_OK(cufile_file_get(local_of(other), &cf));
	cufile_file_put(cf);
	file_free(other);

	/* The file is closed.  The late registration can still be released. */
	file_free(file);
	file = NULL;
	T_EQ((intptr_t)unhang(h), 0);
	T_EQ(state().files, 1);
	cufile_file_put(hung_file);
	T_EQ(state().files, 0);
	nothing_is_left();
}

static void a_registration_fails_after_a_hang(void)
{
	struct cufile_file *cf;
	struct hung h;

	use_library("hang=cuFileHandleRegister:1,fail=cuFileHandleRegister:1:5008");
	NEED_STUB();
	T_OK(cufile_open());
	h = hang(get_thread, NULL);
	T_EQ(cufile_file_get(local_of(file), &cf), -EBUSY);
	T_EQ((intptr_t)unhang(h), -EOPNOTSUPP);
	T_OK(cufile_file_get(local_of(file), &cf));
	cufile_file_put(cf);
	nothing_is_left();
}

static void an_end_hangs(void)
{
	struct cufile_file *cf, *again;
	struct hung h;

	use_library("hang=cuFileHandleDeregister:1");
	NEED_STUB();
	T_OK(cufile_open());
	T_OK(cufile_file_get(local_of(file), &cf));
	h = hang(put_thread, cf);
	/* A new registration is made during the hang. */
	T_OK(cufile_file_get(local_of(file), &again));
	T_EQ(state().files, 2);
	cufile_file_put(again);
	file_free(file);
	file = NULL;
	(void)unhang(h);
	nothing_is_left();
}

/* Put the file and close it during a transfer: only the memory is busy. */
static void a_transfer_hangs(void)
{
	struct cufile_file *again;
	struct hung h;

	use_library("hang=read:1");
	NEED_STUB();
	T_OK(cufile_open());
	T_OK(cufile_file_get(local_of(file), &hung_file));
	hung_mem = mem_new();
	h = hang(io_thread, NULL);

	/* The same file with another slice works; the same slice is busy. */
	T_EQ(io(hung_file, hung_mem, CUFILE_SLICE, 0, 65536, 0), 65536);
	T_EQ(io(hung_file, hung_mem, 0, 0, 65536, 0), -EAGAIN);
	cufile_file_put(hung_file);
	T_EQ(state().files, 1);
	T_OK(cufile_file_get(local_of(file), &again));
	T_EQ(state().files, 2);
	T_EQ(io(again, hung_mem, CUFILE_SLICE, 65536, 65536, CUFILE_IO_WRITE), 65536);
	cufile_file_put(again);
	file_free(file);
	file = NULL;
	T_EQ(within(do_mem_free, hung_mem), -EBUSY);
	T_EQ(cufile_close(), -EBUSY);

	T_EQ((intptr_t)unhang(h), 65536);
	T_EQ(state().files, 0);
	T_CHECK(mem_is(0, 0, 65536));
	T_EQ(within(do_mem_free, hung_mem), 0);
	nothing_is_left();
}

int main(void)
{
	APART(one_registration_for_all);
	APART(others_may_register_the_same);
	APART(odd_flags_are_refused);
	APART(odd_attributes_are_refused);
	APART(o_direct_may_be_lost);
	APART(no_o_direct);
	APART(no_udev);
	APART(unlinked_files_are_refused);
	APART(a_registration_hangs);
	APART(a_registration_fails_after_a_hang);
	APART(an_end_hangs);
	APART(a_transfer_hangs);
	return t_done();
}
