/* SPDX-License-Identifier: MIT */
/*
 * Registrations of files with libcufile.
 *
 * libcufile identifies a file by its descriptor number, and a number can be registered only once.
 * So each registration here duplicates the descriptor: nobody else registers the duplicate's
 * number, and the duplicate stays open for as long as libcufile may use it, even if the file is
 * closed.
 *
 * libcufile does not count transfers in flight, and a transfer on an ended registration corrupts
 * its driver's use count.  So transfers are counted here.
 */
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/err.h"
#include "base/fork.h"
#include "gds/cufile/internal.h"

struct cufile_file {
	struct local_file *owner; /* the file with a pointer to this object; NULL: it was freed */
	unsigned gets, moving;    /* gets: uses; moving: transfers in flight; if both are 0, the
				   * registration ends */
	bool ready;
	int fd;
	int access; /* O_ACCMODE of fd */
	cuf_handle handle;
};

/* Covers all members above except fd, access and handle; also covers local_file.cufile. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Refuse flags that libcufile would refuse without a sentence, and flags that are senseless
 * here. */
static int check_flags(int flags)
{
	const int odd = O_APPEND | O_NONBLOCK | O_NOFOLLOW | O_DIRECTORY; /* part of O_TMPFILE */

	if (flags & odd)
		return err_set(EOPNOTSUPP,
			       "cuFile takes no file opened with O_APPEND, O_NONBLOCK, O_NOFOLLOW "
			       "or O_TMPFILE; open it without");
	/* The program may share the open file description and clear O_DIRECT there. */
	if (!(flags & O_DIRECT))
		return err_set(EOPNOTSUPP, "somebody took O_DIRECT off the file's descriptor, and "
					   "cuFile needs it");
	return 0;
}

/* Refuse files that a non-strict library would silently copy. */
static int check_attributes(int fd)
{
	const unsigned odd = FS_COMPR_FL | FS_ENCRYPT_FL | FS_APPEND_FL | FS_IMMUTABLE_FL |
			     FS_VERITY_FL | FS_JOURNAL_DATA_FL | FS_INLINE_DATA_FL;
	unsigned long v =
		0; /* the kernel writes an int, although the ioctl's number encodes a long */
	unsigned has;

	if (ioctl(fd, FS_IOC_GETFLAGS, &v) < 0)
		return 0; /* the file system has no such attributes */
	memcpy(&has, &v, sizeof(has));
	if (has & odd)
		return err_set(EMEDIUMTYPE,
			       "the file has attributes (%#x, see lsattr) with which cuFile has no "
			       "direct way: it is compressed, encrypted, append-only, immutable, "
			       "under fs-verity, journals data or holds them in its inode",
			       has & odd);
	return 0;
}

static int open_own(const struct local_file *f, int *ret_fd, int *ret_access)
{
	_cleanup_(closep) int fd = -1;
	int flags, r;

	if (f->fd_direct < 0)
		return err_set(EOPNOTSUPP, "cuFile needs O_DIRECT, which %s files have not here",
			       f->file.name);
	fd = fcntl(f->fd_direct, F_DUPFD_CLOEXEC, 3);
	flags = fd < 0 ? -1 : fcntl(fd, F_GETFL);
	if (flags < 0)
		return err_set(errno, "no descriptor for cuFile: %s", err_name(errno));
	r = check_flags(flags);
	if (r == 0)
		r = check_attributes(fd);
	if (r < 0)
		return r;
	*ret_fd = TAKE_FD(fd);
	*ret_access = flags & O_ACCMODE;
	return 0;
}

/* Create the object without registering the file. */
static int reg_new(const struct local_file *f, struct cufile_file **ret)
{
	struct cufile_file *cf = calloc(1, sizeof(*cf));
	int r = cf ? cufile_hold() : err_set(ENOMEM, "out of memory");

	if (r == 0) {
		r = open_own(f, &cf->fd, &cf->access);
		if (r < 0)
			cufile_drop();
	}
	if (r < 0) {
		free(cf);
		return r;
	}
	cf->gets = 1;
	*ret = cf;
	return 0;
}

static void reg_free(struct cufile_file *cf)
{
	if (cf->ready)
		cuf.cuFileHandleDeregister(cf->handle);
	(void)close(cf->fd);
	cufile_drop();
	free(cf);
}

/* Clear the file's pointer to this registration.  The lock is held. */
static void unlink_owner(struct cufile_file *cf)
{
	if (cf->owner)
		cf->owner->cufile = NULL;
	cf->owner = NULL;
}

static int file_register(struct cufile_file *cf)
{
	struct cuf_descr descr = { .type = CUF_FD, .u.fd = cf->fd };
	struct cuf_error e = cuf.cuFileHandleRegister(&cf->handle, &descr);
	int r = e.err ? cufile_err(e, "register a file") : 0;

	(void)pthread_mutex_lock(&lock);
	cf->ready = r == 0;
	if (r < 0)
		unlink_owner(cf);
	(void)pthread_mutex_unlock(&lock);
	return r;
}

/* Detach the registration from a file that is being freed. */
static void file_forget(struct local_file *f)
{
	(void)pthread_mutex_lock(&lock);
	if (f->cufile)
		unlink_owner(f->cufile);
	(void)pthread_mutex_unlock(&lock);
}

/* Return 0 with the existing object, or 1 with a new one that the caller must register.  The lock
 * is held. */
static int find_or_make(struct local_file *f, struct cufile_file **ret)
{
	int r;

	if (f->cufile && !f->cufile->ready)
		return err_set(EBUSY, "another thread is registering the file with cuFile");
	if (f->cufile) {
		f->cufile->gets++;
		*ret = f->cufile;
		return 0;
	}
	r = reg_new(f, ret);
	if (r < 0)
		return r;
	(*ret)->owner = f;
	f->cufile = *ret;
	f->forget = file_forget;
	return 1;
}

int cufile_file_get(struct local_file *f, struct cufile_file **ret)
{
	struct cufile_file *cf = NULL;
	int r = fork_guard();

	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&lock);
	r = find_or_make(f, &cf);
	(void)pthread_mutex_unlock(&lock);
	if (r > 0) {
		r = file_register(cf);
		if (r < 0)
			reg_free(cf);
	}
	if (r == 0)
		*ret = cf;
	return r;
}

void cufile_file_put(struct cufile_file *cf)
{
	bool last;

	if (fork_guard() < 0)
		return;
	(void)pthread_mutex_lock(&lock);
	if (!--cf->gets)
		unlink_owner(cf);
	last = !cf->gets && !cf->moving;
	(void)pthread_mutex_unlock(&lock);
	if (last)
		reg_free(cf);
}

int cufile_file_take(struct cufile_file *cf, bool write, cuf_handle *ret)
{
	if (cf->access == (write ? O_RDONLY : O_WRONLY))
		return err_set(EBADF, "the file is not open for %s", write ? "writing" : "reading");
	(void)pthread_mutex_lock(&lock);
	cf->moving++;
	(void)pthread_mutex_unlock(&lock);
	*ret = cf->handle;
	return 0;
}

void cufile_file_untake(struct cufile_file *cf)
{
	bool last;

	(void)pthread_mutex_lock(&lock);
	cf->moving--;
	last = !cf->gets && !cf->moving;
	(void)pthread_mutex_unlock(&lock);
	if (last)
		reg_free(cf);
}
