/* SPDX-License-Identifier: MIT */
/*
 * Local files, opened by path or wrapped.  If the file system supports O_DIRECT, the file is open
 * twice, with and without: O_DIRECT belongs to the open file description, and toggling it would
 * affect requests in flight.  The second descriptor is opened through /proc/self/fd, which names
 * the same file even after a rename or an unlink.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/vfs.h>

#include "base/dio.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"
#include "file/disk.h"
#include "file/index.h"
#include "file/local.h"

/* Alignment, in bytes, if the kernel reports none: a whole page suits all file systems below. */
#define ALIGN_UNTOLD 4096

static uint64_t bits[IO_NR_FILES / 64];
static struct index_table index_table = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.nr = IO_NR_FILES,
	.bits = bits,
};

#define FS_MEMORY (1u << 0) /* all bytes are resident */
/* O_DIRECT works on this file system, even if statx(2) does not report it. */
#define FS_DIRECT (1u << 1)
#define FS_LAYER (1u << 2)  /* the file system passes O_DIRECT on to another one, or refuses it */
#define FS_STALE (1u << 3)  /* the page cache may lack what another machine wrote */
#define FS_REMOTE (1u << 4) /* the bytes are on servers, which may stop answering */

/* Magic numbers, from linux/magic.h or from the sources of file systems outside the kernel. */
static const struct fs {
	uint32_t magic;
	unsigned flags;
	char name[16];
} known_fs[] = {
	{ 0x0000ef53, FS_DIRECT, "ext4" }, /* ext2 and ext3, too: all three share number and
					    * driver */
	{ 0x58465342, FS_DIRECT, "xfs" },
	{ 0x9123683e, FS_DIRECT, "btrfs" },
	{ 0xf2f52010, FS_DIRECT, "f2fs" },
	{ 0xca451a4e, FS_DIRECT, "bcachefs" },
	{ 0x00006969, FS_DIRECT | FS_REMOTE | FS_STALE, "nfs" },
	{ 0x0bd00bd0, FS_DIRECT | FS_REMOTE, "lustre" },
	{ 0x47504653, FS_DIRECT | FS_REMOTE, "gpfs" },
	{ 0x19830326, FS_DIRECT | FS_REMOTE | FS_STALE, "beegfs" },
	{ 0x00c36400, FS_DIRECT | FS_REMOTE, "ceph" },
	{ 0x7461636f, FS_DIRECT, "ocfs2" },
	{ 0x01161970, FS_DIRECT, "gfs2" },
	{ 0x794c7630, FS_LAYER, "overlay" },
	{ 0x01021994, FS_MEMORY, "tmpfs" },
	{ 0x858458f6, FS_MEMORY, "ramfs" },
	{ 0x958458f6, FS_MEMORY, "hugetlbfs" },
	{ 0x65735546, 0, "fuse" },
	{ 0x01021997, FS_STALE, "9p" },
	{ 0xff534d42, FS_STALE, "cifs" },
	{ 0xfe534d42, FS_STALE, "smb2" },
	{ 0x2fc12fc1, 0, "zfs" },
	{ 0x73717368, 0, "squashfs" },
	{ 0xe0f5e1e2, 0, "erofs" },
	{ 0x00009660, 0, "iso9660" },
	{ 0x00004d44, 0, "vfat" },
	{ 0x2011bab0, 0, "exfat" },
	{ 0x00009fa0, 0, "proc" },
	{ 0x62656572, 0, "sysfs" },
};

static const struct fs *local_find_fs(uint32_t magic)
{
	for (size_t i = 0; i < ARRAY_SIZE(known_fs); i++)
		if (known_fs[i].magic == magic)
			return &known_fs[i];
	return NULL;
}

static void local_freep(struct local_file **f)
{
	if (*f)
		file_free(&(*f)->file);
}

static struct local_file *new_file(uint32_t flags)
{
	struct local_file *f = malloc(sizeof(*f));

	if (!f) {
		(void)err_set(ENOMEM, "no memory for the description of a file");
		return NULL;
	}
	*f = (struct local_file){
		.file = { .ops = &local_file_ops, .flags = flags },
		.fd = -1,
		.fd_direct = -1,
		.idx = IO_NO_IDX,
	};
	return f;
}

/* ------------------------------------------------------------- sentences */

static int err_files(const char *what)
{
	struct rlimit rl = { 0 };

	(void)getrlimit(RLIMIT_NOFILE, &rl);
	return err_set(EMFILE,
		       "%s: this process has no free descriptor; raise RLIMIT_NOFILE "
		       "(ulimit -n), now %llu",
		       what, (unsigned long long)rl.rlim_cur);
}

static const char *wants(uint32_t flags)
{
	switch (flags & (PST_FILE_READ | PST_FILE_WRITE)) {
	case PST_FILE_READ:
		return "reading";
	case PST_FILE_WRITE:
		return "writing";
	default:
		return "reading and writing";
	}
}

/* Set the error for a missing path or a dangling symbolic link. */
static int err_none(const char *path, bool create)
{
	char to[PATH_MAX];
	ssize_t n = readlink(path, to, sizeof(to));

	if (n > 0)
		return err_set(ENOENT,
			       create ? "%s cannot be created: it is a symbolic link to %.*s, "
					"whose directory does not exist"
				      : "%s is a symbolic link to %.*s, where no file is; restore "
					"that file or download it again",
			       path, (int)n, to);
	if (create)
		return err_set(ENOENT, "%s cannot be created: its directory does not exist", path);
	return err_set(ENOENT, "%s does not exist", path);
}

static int err_open(const char *path, uint32_t flags, int err)
{
	switch (err) {
	case ENOENT:
		return err_none(path, flags & PST_FILE_CREATE);
	case EEXIST:
		return err_set(err, "%s exists already, and PST_FILE_EXCL asks for a new file",
			       path);
	case EACCES:
	case EPERM:
		return err_set(err,
			       "%s: no permission for %s (uid %u); check the mode of the file "
			       "and of the directories above it",
			       path, wants(flags), (unsigned)geteuid());
	case EROFS:
		return err_set(err, "%s lies on a file system that is mounted read-only", path);
	case ETXTBSY:
		return err_set(err, "%s is a program that runs now: it cannot be written", path);
	case ENOTDIR:
		return err_set(err, "%s: a part of the path is not a directory", path);
	case ELOOP:
		return err_set(err, "%s: too many symbolic links", path);
	case ENAMETOOLONG:
		return err_set(err, "the path is too long: %.64s...", path);
	case ENOSPC:
	case EDQUOT:
		return err_set(err, "%s cannot be created: no space or no inode is left", path);
	case EMFILE:
		return err_files(path);
	case ENFILE:
		return err_set(err,
			       "%s: the system's table of open files is full; raise the sysctl "
			       "fs.file-max",
			       path);
	case EISDIR:
		return err_set(err, "%s is a directory, not a file", path);
	case ENXIO:
		return err_set(err,
			       "%s has nobody behind it: a FIFO, a socket or a device that is "
			       "not there",
			       path);
	default:
		return err_set(err, "%s cannot be opened for %s: %s", path, wants(flags),
			       err_name(err));
	}
}

/* Refuse everything except regular files and block devices: nothing else has offsets. */
static int check_type(const char *what, mode_t mode)
{
	const char *is;

	switch (mode & S_IFMT) {
	case S_IFREG:
	case S_IFBLK:
		return 0;
	case S_IFDIR:
		return err_set(EISDIR, "%s is a directory, not a file", what);
	case S_IFIFO:
		is = "FIFO or pipe";
		break;
	case S_IFSOCK:
		is = "socket";
		break;
	case S_IFCHR:
		is = "character device";
		break;
	default:
		is = "thing without a type (an eventfd, an epoll or the like)";
		break;
	}
	return err_set(ENXIO, "%s is a %s: only regular files and block devices have offsets", what,
		       is);
}

/* --------------------------------------------------------------- O_DIRECT */

static bool kernel_before(unsigned major, unsigned minor)
{
	struct utsname u;
	unsigned a, b;

	if (uname(&u) < 0 || sscanf(u.release, "%u.%u", &a, &b) != 2)
		return false;
	return a < major || (a == major && b < minor);
}

/*
 * Return 0 with the alignments in bytes; -EOPNOTSUPP if the file has no usable O_DIRECT; -ERANGE if
 * its alignments are not supported.
 */
static int alignment(const struct local_file *f, uint32_t *ret_mem, uint32_t *ret_off)
{
	const struct fs *fs = local_find_fs(f->fs_magic);
	int r, size;

	if (f->block_device) {
		if (ioctl(f->fd, BLKSSZGET, &size) < 0 || size <= 0)
			return -EOPNOTSUPP;
		*ret_mem = *ret_off = (uint32_t)size;
		return dio_check((uint32_t)size, (uint32_t)size);
	}
	r = dio_align(f->fd, ret_mem, ret_off);
	if (r != -ENODATA)
		return r;
	if (!fs)
		return -EOPNOTSUPP;
	/* Since 6.1 overlayfs passes on the lower file system's report, so no report means no
	 * O_DIRECT. */
	if (fs->flags & FS_DIRECT || (fs->flags & FS_LAYER && kernel_before(6, 1))) {
		*ret_mem = *ret_off = ALIGN_UNTOLD;
		return 0;
	}
	return -EOPNOTSUPP;
}

/* Write the path by which the same file can be opened again. */
static void proc_path(int fd, char buf[static 32])
{
	(void)snprintf(buf, 32, "/proc/self/fd/%d", fd);
}

/* Open fd's file a second time.  @path: its path, for systems without /proc; NULL if unknown. */
static int open_twin(int fd, const char *path, int oflags)
{
	_cleanup_(closep) int twin = -1;
	struct stat a, b;
	char proc[32];

	proc_path(fd, proc);
	twin = open(proc, oflags | O_CLOEXEC | O_NOCTTY);
	if (twin < 0 && errno == ENOENT && path)
		twin = open(path, oflags | O_CLOEXEC | O_NOCTTY);
	if (twin < 0)
		return -errno;
	if (fstat(fd, &a) < 0 || fstat(twin, &b) < 0)
		return -errno;
	/* The path names another file by now. */
	if (a.st_dev != b.st_dev || a.st_ino != b.st_ino)
		return -ESTALE;
	return TAKE_FD(twin);
}

static int no_direct(struct local_file *f, int err)
{
	f->file.why = PST_WHY_NO_DIRECT;
	f->file.detail = err;
	return 0;
}

/*
 * Set fd_direct, or the reason why there is none.  Fail only for lack of a descriptor.
 * @direct: an existing descriptor with O_DIRECT, which is taken over, or -1
 * @oflags: flags with which the plain descriptor was opened
 */
static int add_direct(struct local_file *f, int direct, const char *path, int oflags)
{
	_cleanup_(closep) int twin = direct;
	uint32_t mem, off;
	int err;

	if (f->file.flags & PST_FILE_PLAIN)
		return 0;
	err = fault_hit(FAULT_FILE_DIRECT);
	if (err)
		return no_direct(f, err);
	err = alignment(f, &mem, &off);
	if (err < 0)
		return no_direct(f, err == -ERANGE ? ERANGE : 0);
	if (twin < 0) {
		twin = open_twin(f->fd, path, oflags | O_DIRECT);
		if (twin == -EMFILE)
			return err_files("opening a file a second time for O_DIRECT");
		if (twin < 0) {
			log_debug("no O_DIRECT on %s: %s", f->file.name, err_name(twin));
			return no_direct(f, -twin);
		}
	}
	f->fd_direct = TAKE_FD(twin);
	f->file.caps |= FILE_DIRECT;
	f->file.mem_align = mem;
	f->file.off_align = off;
	return 0;
}

/* ------------------------------------------------------------------ opening */

/*
 * Return true if calls on the file system's files may wait for a server that does not answer.  Also
 * return true for unknown and stacked file systems, whose bytes may be on servers.
 */
static bool may_hang(const struct fs *fs)
{
	return !fs || !(fs->flags & (FS_DIRECT | FS_MEMORY)) || fs->flags & FS_REMOTE;
}

/* Fill in a file from its descriptor. */
static int local_fill(struct local_file *f, const struct stat *st)
{
	const struct fs *fs;
	struct statfs sfs;

	f->block_device = S_ISBLK(st->st_mode);
	f->dev = f->block_device ? st->st_rdev : st->st_dev;
	f->ino = st->st_ino;
	f->file.caps = FILE_CACHE | FILE_NOWAIT;
	if (f->block_device) {
		/* Set the name here: statfs(2) would describe the file system that holds the device
		 * node. */
		(void)snprintf(f->file.name, sizeof(f->file.name), "block");
		/* No FILE_AHEAD: another machine may write to a raw disk, and pages that were read
		 * ahead would hide its writes for ever. */
		f->file.caps |= FILE_SHARED;
		return 0;
	}
	if (fstatfs(f->fd, &sfs) < 0)
		return err_set(errno, "statfs of an open file failed: %s", err_name(errno));
	f->fs_magic = (uint32_t)sfs.f_type;
	memcpy(&f->fs_id, &sfs.f_fsid, sizeof(f->fs_id));
	fs = local_find_fs(f->fs_magic);
	if (fs)
		(void)snprintf(f->file.name, sizeof(f->file.name), "%s", fs->name);
	else
		(void)snprintf(f->file.name, sizeof(f->file.name), "0x%x", f->fs_magic);
	f->file.caps |= FILE_AHEAD;
	if (f->fs_magic == OVERLAYFS_SUPER_MAGIC)
		f->file.caps &= ~FILE_NOWAIT;
	if (fs && fs->flags & FS_MEMORY)
		f->file.caps |= FILE_RESIDENT;
	if (may_hang(fs))
		f->file.caps |= FILE_MAY_HANG;
	if (fs && fs->flags & FS_STALE)
		f->file.caps |= FILE_STALE;
	return 0;
}

static int access_flags(uint32_t flags)
{
	switch (flags & (PST_FILE_READ | PST_FILE_WRITE)) {
	case PST_FILE_READ | PST_FILE_WRITE:
		return O_RDWR;
	case PST_FILE_WRITE:
		return O_WRONLY;
	default:
		return O_RDONLY;
	}
}

/*
 * Open without side effects on things other than files: open(2) of a FIFO would wait, and some
 * character devices (a watchdog, a tape) act when opened.
 */
static int open_plain(const char *path, uint32_t flags, uint32_t mode, struct stat *ret_st)
{
	int oflags = access_flags(flags) | O_CLOEXEC | O_NOCTTY;
	_cleanup_(closep) int fd = -1;
	int r;

	if (stat(path, ret_st) == 0) {
		r = check_type(path, ret_st->st_mode);
		if (r < 0)
			return r;
	}
	if (flags & PST_FILE_CREATE)
		oflags |= O_CREAT;
	if (flags & PST_FILE_EXCL)
		oflags |= O_EXCL;
	if (flags & PST_FILE_TRUNC)
		oflags |= O_TRUNC;
	fd = open(path, oflags | O_NONBLOCK, mode);
	/* Another process holds a lease on the file: wait until the kernel has broken the lease. */
	if (fd < 0 && errno == EWOULDBLOCK)
		fd = open(path, oflags, mode);
	if (fd < 0)
		return err_open(path, flags, errno);
	if (fstat(fd, ret_st) < 0)
		return err_set(errno, "%s: fstat failed: %s", path, err_name(errno));
	r = check_type(path, ret_st->st_mode);
	if (r < 0)
		return r;
	/* With O_NONBLOCK, io_uring would return -EAGAIN instead of waiting. */
	r = fcntl(fd, F_GETFL);
	if (r < 0 || fcntl(fd, F_SETFL, r & ~O_NONBLOCK) < 0)
		return err_set(errno, "%s: fcntl failed: %s", path, err_name(errno));
	return TAKE_FD(fd);
}

/* Complete a file that has its plain descriptor.  @direct, @path, @oflags: as in add_direct() */
static int local_complete(struct local_file *f, const struct stat *st, int direct, const char *path,
			  int oflags)
{
	_cleanup_(closep) int twin = direct;
	int r = local_fill(f, st);

	if (r == 0)
		r = add_direct(f, TAKE_FD(twin), path, oflags);
	/* A block device may have several nodes with different inode numbers, so use 0 as the
	 * number. */
	if (r == 0)
		r = writers_get(f->dev, f->block_device ? 0 : f->ino, &f->file.writers);
	if (r == 0)
		f->idx = index_get(&index_table, 1, &f->gen);
	if (!(f->file.caps & FILE_MAY_HANG))
		f->file.disk = (uint8_t)disk_of(f->dev);
	return r;
}

static int local_file_open(const char *path, uint32_t flags, uint32_t mode, struct file **ret)
{
	_cleanup_(local_freep) struct local_file *f = NULL;
	struct stat st = { 0 };
	int r;

	r = fault_hit(FAULT_FILE_OPEN);
	if (r)
		return err_set(r, "%s: an injected fault made the open fail (PST_FAULT, file.open)",
			       path);
	f = new_file(flags);
	if (!f)
		return -ENOMEM;
	r = open_plain(path, flags, mode, &st);
	if (r < 0)
		return r;
	f->fd = r;
	r = local_complete(f, &st, -1, path, access_flags(flags));
	if (r == 0)
		*ret = &TAKE_PTR(f)->file;
	return r;
}

/* Return the open flags for reopening the descriptor's file. */
static int again_flags(int oflags)
{
	return oflags & (O_ACCMODE | O_SYNC | O_DSYNC);
}

static int check_wrap(int fd, int *ret_oflags, struct stat *ret_st)
{
	int oflags = fcntl(fd, F_GETFL);
	char what[32];
	int r;

	if (oflags < 0)
		return err_set(errno, "descriptor %d is not open", fd);
	if (oflags & O_PATH)
		return err_set(EINVAL,
			       "descriptor %d was opened with O_PATH: nothing can be read or "
			       "written through it",
			       fd);
	if (fstat(fd, ret_st) < 0)
		return err_set(errno, "fstat of descriptor %d failed: %s", fd, err_name(errno));
	(void)snprintf(what, sizeof(what), "descriptor %d", fd);
	r = check_type(what, ret_st->st_mode);
	if (r < 0)
		return r;
	if (oflags & O_APPEND)
		return err_set(EINVAL,
			       "descriptor %d was opened with O_APPEND: its writes would "
			       "ignore their offsets",
			       fd);
	*ret_oflags = oflags;
	return 0;
}

static uint32_t local_direction(int oflags)
{
	switch (oflags & O_ACCMODE) {
	case O_RDWR:
		return PST_FILE_READ | PST_FILE_WRITE;
	case O_WRONLY:
		return PST_FILE_WRITE;
	default:
		return PST_FILE_READ;
	}
}

/* Return the path of the descriptor's file, for systems where /proc/self/fd cannot be opened. */
static const char *path_of(int fd, char *buf, size_t len)
{
	char proc[32];
	ssize_t n;

	proc_path(fd, proc);
	n = readlink(proc, buf, len - 1);
	if (n <= 0)
		return NULL;
	buf[n] = '\0';
	return buf[0] == '/' ? buf : NULL;
}

int local_file_wrap(int fd, uint32_t flags, struct file **ret)
{
	_cleanup_(local_freep) struct local_file *f = NULL;
	_cleanup_(closep) int dup_fd = -1, direct = -1;
	char path[4096];
	struct stat st = { 0 };
	int r, oflags = 0;

	r = fault_hit(FAULT_FILE_OPEN);
	if (r)
		return err_set(r,
			       "descriptor %d: an injected fault made the wrap fail (PST_FAULT, "
			       "file.open)",
			       fd);
	r = check_wrap(fd, &oflags, &st);
	if (r < 0)
		return r;
	f = new_file(flags | local_direction(oflags));
	if (!f)
		return -ENOMEM;
	dup_fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (dup_fd < 0)
		return errno == EMFILE ? err_files("duplicating a descriptor")
				       : err_set(errno, "descriptor %d cannot be duplicated: %s",
						 fd, err_name(errno));
	if (oflags & O_DIRECT) {
		direct = TAKE_FD(dup_fd);
		r = open_twin(direct, path_of(direct, path, sizeof(path)), again_flags(oflags));
		if (r == -EMFILE)
			return err_files("opening a file a second time without O_DIRECT");
		if (r < 0)
			return err_set(
				r,
				"descriptor %d has O_DIRECT and its file could not be opened "
				"a second time without: %s",
				fd, err_name(r));
		f->fd = r;
	} else {
		f->fd = TAKE_FD(dup_fd);
	}
	r = local_complete(f, &st, TAKE_FD(direct), path_of(f->fd, path, sizeof(path)),
			   again_flags(oflags));
	if (r == 0)
		*ret = &TAKE_PTR(f)->file;
	return r;
}

static void local_file_free(struct file *file)
{
	struct local_file *f = local_of(file);

	if (f->forget)
		f->forget(f);
	if (f->idx != IO_NO_IDX) {
		ctx_tables_forget_file(f->idx);
		index_put(&index_table, f->idx, 1);
	}
	closep(&f->fd);
	closep(&f->fd_direct);
	writers_put(file->writers);
	free(f);
}

/* Return the size of a block device.  Does not block. */
static int device_size(const struct local_file *f, uint64_t *ret_size)
{
	if (ioctl(f->fd, BLKGETSIZE64, ret_size) < 0)
		return err_set(errno, "the block device does not tell its size: %s",
			       err_name(errno));
	return 0;
}

static int local_file_size(const struct file *file, uint64_t *ret_size)
{
	const struct local_file *f = local_of(file);
	struct stat st;

	if (f->block_device)
		return device_size(f, ret_size);
	if (fstat(f->fd, &st) < 0)
		return err_set(errno, "fstat of an open file failed: %s", err_name(errno));
	*ret_size = (uint64_t)st.st_size;
	return 0;
}

int local_file_reopen(const struct local_file *f)
{
	return open_twin(f->fd, NULL, O_RDONLY);
}

static int local_file_again(const struct file *f, struct file **ret)
{
	char path[32];

	proc_path(local_of(f)->fd, path);
	return local_file_open(path, PST_FILE_READ | PST_FILE_PLAIN, 0, ret);
}

/* Stat the file with what this machine knows, without asking a server. */
static int stat_now(const struct local_file *f, unsigned mask, struct statx *ret)
{
	return statx(f->fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, mask, ret) < 0 ? -errno : 0;
}

static int local_file_stamp(const struct file *file, struct file_stamp *ret)
{
	const struct local_file *f = local_of(file);
	struct statx st;
	int r = stat_now(f, STATX_CTIME | STATX_SIZE, &st);

	if (r < 0)
		return r;
	*ret = (struct file_stamp){
		.size = st.stx_size,
		.change = { (uint64_t)st.stx_ctime.tv_sec, st.stx_ctime.tv_nsec },
	};
	return f->block_device ? device_size(f, &ret->size) : 0;
}

bool local_file_has_holes(const struct local_file *f)
{
	struct statx st;

	return !f->block_device && stat_now(f, STATX_BLOCKS | STATX_SIZE, &st) == 0 &&
	       st.stx_blocks * 512 < st.stx_size;
}

/* Return false for major 0 (FUSE, NFS, overlay): the next mount may reuse the device number. */
static bool local_file_place(const struct file *file, char *buf, size_t size)
{
	const struct local_file *f = local_of(file);

	(void)snprintf(buf, size, "%u:%u %s %016" PRIx64, major(f->dev), minor(f->dev), file->name,
		       f->fs_id);
	return major(f->dev) != 0;
}

static int64_t local_file_read_now(const struct file *f, void *buf, uint64_t off, uint64_t len)
{
	const struct iovec v = { buf, len };
	long n;

	/* File systems in memory have all bytes resident, but lack RWF_NOWAIT.  Use raw system
	 * calls: the C library's are cancellation points. */
	if (f->caps & FILE_RESIDENT)
		n = syscall(SYS_pread64, local_of(f)->fd, buf, len, off);
	else
		n = syscall(SYS_preadv2, local_of(f)->fd, &v, 1, off, 0l, RWF_NOWAIT);
	return n < 0 ? -errno : n;
}

const struct file_ops local_file_ops = {
	.open = local_file_open,
	.free = local_file_free,
	.size = local_file_size,
	.again = local_file_again,
	.peek = local_file_peek,
	.read_now = local_file_read_now,
	.resident = local_file_resident,
	.ends_at = local_file_ends_at,
	.stamp = local_file_stamp,
	.place = local_file_place,
};
