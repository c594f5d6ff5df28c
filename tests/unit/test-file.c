/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/err.h"
#define T_ERROR_TEXT() err_text()
#include "scratch.h"
#include "t.h"

#include "base/fault.h"
#include "file/local.h"

#define RW (PST_FILE_READ | PST_FILE_WRITE)

static char dir[64], path[128];

static const char *in_dir(const char *name)
{
	static char buf[192];

	(void)snprintf(buf, sizeof(buf), "%s/%s", dir, name);
	return buf;
}

/* Check that the open fails with err, and that the error text names the path. */
static void refused(const char *p, uint32_t flags, int err)
{
	struct file *f = NULL;
	int r = file_open(p, flags, 0600, &f);

	if (r != err)
		T_FAIL("opening %s gave %d, not %d: %s", p, r, err, err_text());
	T_CHECK(!f);
	if (!strstr(err_text(), p))
		T_FAIL("the sentence does not name %s: %s", p, err_text());
}

static void missing_files(void)
{
	refused(in_dir("missing"), PST_FILE_READ, -ENOENT);
	T_CHECK(strstr(err_text(), "does not exist"));
	T_EQ(symlink("blobs/abc", in_dir("dead")), 0);
	refused(in_dir("dead"), PST_FILE_READ, -ENOENT);
	T_CHECK(strstr(err_text(), "a symbolic link to blobs/abc, where no file is"));
	refused(in_dir("dead"), RW | PST_FILE_CREATE, -ENOENT);
	T_CHECK(strstr(err_text(), "to blobs/abc, whose directory does not exist"));
	refused(in_dir("missing/file"), RW | PST_FILE_CREATE, -ENOENT);
	T_CHECK(strstr(err_text(), "directory"));
	refused(in_dir("file/below"), PST_FILE_READ, -ENOTDIR);
	refused("", PST_FILE_READ, -ENOENT);
}

static void what_is_no_file(void)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	refused(dir, PST_FILE_READ, -EISDIR);
	refused(dir, RW, -EISDIR);
	refused("/dev/null", RW, -ENXIO);
	T_CHECK(strstr(err_text(), "character device"));

	T_EQ(mkfifo(in_dir("fifo"), 0600), 0);
	refused(in_dir("fifo"), PST_FILE_READ, -ENXIO); /* the open does not wait for a writer */
	T_CHECK(strstr(err_text(), "FIFO"));
	refused(in_dir("fifo"), PST_FILE_WRITE, -ENXIO);
	T_EQ(unlink(in_dir("fifo")), 0);

	T_CHECK(s >= 0);
	T_CHECK(strlen(in_dir("socket")) < sizeof(sa.sun_path));
	strcpy(sa.sun_path, in_dir("socket"));
	T_EQ(bind(s, (struct sockaddr *)&sa, sizeof(sa)), 0);
	refused(in_dir("socket"), PST_FILE_READ, -ENXIO);
	T_EQ(unlink(in_dir("socket")), 0);
	(void)close(s);
}

static void without_permission(void)
{
	T_EQ(chmod(path, 0400), 0);
	if (geteuid() == 0) {
		T_EQ(chmod(path, 0600), 0);
		T_SKIP("an ordinary user");
	}
	refused(path, RW, -EACCES);
	T_CHECK(strstr(err_text(), "permission"));
	T_EQ(chmod(path, 0), 0);
	refused(path, PST_FILE_READ, -EACCES);
	T_EQ(chmod(path, 0600), 0);
}

static void creating(void)
{
	mode_t old = umask(0);
	struct file *f;
	struct stat st;
	uint64_t size;

	T_OK(file_open(in_dir("new"), RW | PST_FILE_CREATE | PST_FILE_EXCL, 0640, &f));
	T_EQ(fstat(local_of(f)->fd, &st), 0);
	T_EQ(st.st_mode & 07777, 0640);
	T_EQ(pwrite(local_of(f)->fd, "abc", 3, 0), 3);
	T_OK(file_size(f, &size));
	T_EQ(size, 3);
	file_free(f);
	refused(in_dir("new"), RW | PST_FILE_CREATE | PST_FILE_EXCL, -EEXIST);
	T_OK(file_open(in_dir("new"), RW | PST_FILE_TRUNC, 0, &f));
	T_OK(file_size(f, &size));
	T_EQ(size, 0);
	file_free(f);
	T_EQ(unlink(in_dir("new")), 0);
	(void)umask(old);
}

/* Check what must hold for every open file. */
static void check_facts(const struct file *f)
{
	int fl = fcntl(local_of(f)->fd, F_GETFL);

	T_CHECK(fl >= 0 && !(fl & (O_DIRECT | O_NONBLOCK)));
	T_CHECK(fcntl(local_of(f)->fd, F_GETFD) & FD_CLOEXEC);
	T_CHECK(local_of(f)->idx < IO_NR_FILES && local_of(f)->gen);
	T_CHECK(f->name[0]);
	if (local_of(f)->fd_direct < 0) {
		T_EQ(f->mem_align, 0);
		T_EQ(f->off_align, 0);
		T_EQ(f->why, f->flags & PST_FILE_PLAIN ? PST_WHY_NONE : PST_WHY_NO_DIRECT);
		return;
	}
	fl = fcntl(local_of(f)->fd_direct, F_GETFL);
	T_CHECK(fl & O_DIRECT && !(fl & O_NONBLOCK));
	T_CHECK(fcntl(local_of(f)->fd_direct, F_GETFD) & FD_CLOEXEC);
	T_EQ(f->why, PST_WHY_NONE);
	T_CHECK(is_pow2(f->mem_align) && is_pow2(f->off_align));
	T_CHECK(f->off_align >= 512 && f->off_align <= 65536);
}

static void facts(void)
{
	struct file *f;
	struct statfs sfs;
	struct stat st;

	T_OK(file_open(path, RW, 0, &f));
	check_facts(f);
	T_EQ(f->flags, RW);
	T_EQ(statfs(path, &sfs), 0);
	T_EQ(stat(path, &st), 0);
	T_EQ(local_of(f)->fs_magic, (uint32_t)sfs.f_type);
	T_CHECK(local_of(f)->dev == st.st_dev && local_of(f)->ino == st.st_ino &&
		!(f->caps & FILE_SHARED));
	if (sfs.f_type == 0xef53) {
		T_EQ(strcmp(f->name, "ext4"), 0);
		T_CHECK(local_of(f)->fd_direct >= 0 && !(f->caps & FILE_RESIDENT));
	}
	file_free(f);
}

static void the_alignment_is_true(void)
{
	struct file *f;
	uint8_t *buf;

	T_OK(file_open(path, RW, 0, &f));
	if (local_of(f)->fd_direct < 0) {
		file_free(f);
		T_SKIP("O_DIRECT on the file system of the test");
	}
	buf = mmap(NULL, 131072, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	T_CHECK(buf != MAP_FAILED);
	T_EQ(pread(local_of(f)->fd_direct, buf + f->mem_align, f->off_align, f->off_align),
	     f->off_align);
	T_EQ(t_differs(buf + f->mem_align, 1, f->off_align, f->off_align), f->off_align);
	(void)munmap(buf, 131072);
	file_free(f);
}

static void in_memory(void)
{
	char p[64];
	struct file *f;
	struct statfs sfs;
	int fd;

	(void)snprintf(p, sizeof(p), "/dev/shm/pst-file-XXXXXX");
	if (statfs("/dev/shm", &sfs) < 0 || sfs.f_type != 0x01021994)
		T_SKIP("a tmpfs on /dev/shm");
	fd = mkstemp(p);
	T_CHECK(fd >= 0);
	T_OK(file_open(p, RW, 0, &f));
	check_facts(f);
	T_CHECK(f->caps & FILE_RESIDENT);
	T_EQ(strcmp(f->name, "tmpfs"), 0);
	T_EQ(local_of(f)->fd_direct, -1);
	T_EQ(f->why, PST_WHY_NO_DIRECT);
	file_free(f);
	T_EQ(unlink(p), 0);
	(void)close(fd);
}

static void plain(void)
{
	struct file *f;

	T_OK(file_open(path, PST_FILE_READ | PST_FILE_PLAIN, 0, &f));
	check_facts(f);
	T_EQ(local_of(f)->fd_direct, -1);
	T_EQ(f->why, PST_WHY_NONE);
	file_free(f);
}

static void direct_that_is_refused(void)
{
	struct file *f;

	T_OK(fault_set("file.direct:1:EINVAL"));
	T_OK(file_open(path, RW, 0, &f));
	check_facts(f);
	T_EQ(local_of(f)->fd_direct, -1);
	T_EQ(f->why, PST_WHY_NO_DIRECT);
	T_EQ(f->detail, EINVAL);
	file_free(f);
	T_OK(fault_set("file.open:1:EIO"));
	refused(path, RW, -EIO);
	T_OK(fault_set("file.open:1:EMFILE"));
	T_EQ(local_file_wrap(0, 0, &f), -EMFILE);
	T_OK(fault_set(NULL));
}

static void out_of_descriptors(void)
{
	struct rlimit old, rl;
	struct file *f = NULL;
	int lowest = dup(STDIN_FILENO), r[2];

	T_CHECK(lowest >= 0);
	(void)close(lowest);
	T_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
	/* Allow no descriptor at all, then one, which leaves none for O_DIRECT. */
	for (int i = 0; i < 2; i++) {
		rl = (struct rlimit){ .rlim_cur = (rlim_t)(lowest + i), .rlim_max = old.rlim_max };
		T_EQ(setrlimit(RLIMIT_NOFILE, &rl), 0);
		r[i] = file_open(path, RW, 0, &f);
		T_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
		if (r[i] < 0)
			T_CHECK(strstr(err_text(), "ulimit -n"));
	}
	T_EQ(r[0], -EMFILE);
	if (r[1] == 0) /* this file system has no O_DIRECT */
		file_free(f);
	else
		T_EQ(r[1], -EMFILE);
}

static void wrap_refused(int fd, int err)
{
	struct file *f = NULL;

	T_EQ(local_file_wrap(fd, 0, &f), err);
	T_CHECK(!f && err_text()[0]);
}

static void wrapping_what_is_no_file(void)
{
	int fd, p[2];

	wrap_refused(-1, -EBADF);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	(void)close(fd);
	wrap_refused(fd, -EBADF);
	fd = open(path, O_RDWR | O_APPEND | O_CLOEXEC);
	wrap_refused(fd, -EINVAL);
	T_CHECK(strstr(err_text(), "O_APPEND"));
	(void)close(fd);
	fd = open(path, O_PATH | O_CLOEXEC);
	wrap_refused(fd, -EINVAL);
	T_CHECK(strstr(err_text(), "O_PATH"));
	(void)close(fd);
	fd = open(dir, O_RDONLY | O_CLOEXEC);
	wrap_refused(fd, -EISDIR);
	(void)close(fd);
	fd = eventfd(0, EFD_CLOEXEC);
	wrap_refused(fd, -ENXIO);
	(void)close(fd);
	T_EQ(pipe2(p, O_CLOEXEC), 0);
	wrap_refused(p[0], -ENXIO);
	(void)close(p[0]);
	(void)close(p[1]);
}

static void wrapping(void)
{
	static const struct {
		int oflags;
		uint32_t flags;
	} how[] = {
		{ O_RDONLY, PST_FILE_READ },
		{ O_WRONLY, PST_FILE_WRITE },
		{ O_RDWR, RW },
		{ O_RDWR | O_DSYNC, RW },
	};

	for (size_t i = 0; i < ARRAY_SIZE(how); i++) {
		int fd = open(path, how[i].oflags | O_CLOEXEC);
		struct file *f;
		char c;

		T_CHECK(fd >= 0);
		T_OK(local_file_wrap(fd, PST_FILE_STABLE, &f));
		T_CHECK(local_of(f)->fd != fd);
		/* The library has a descriptor of its own. */
		(void)close(fd);
		check_facts(f);
		T_EQ(f->flags, how[i].flags | PST_FILE_STABLE);
		T_EQ(fcntl(local_of(f)->fd, F_GETFL) & (O_ACCMODE | O_DSYNC), how[i].oflags);
		if (local_of(f)->fd_direct >= 0)
			T_EQ(fcntl(local_of(f)->fd_direct, F_GETFL) & (O_ACCMODE | O_DSYNC),
			     how[i].oflags);
		if (how[i].flags & PST_FILE_READ)
			T_EQ(pread(local_of(f)->fd, &c, 1, 0), 1);
		file_free(f);
	}
}

static void wrapping_a_direct_descriptor(void)
{
	int fd = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
	struct file *f;
	char c;

	if (fd < 0)
		T_SKIP("O_DIRECT on the file system of the test");
	T_OK(local_file_wrap(fd, 0, &f));
	check_facts(f);
	T_CHECK(fcntl(fd, F_GETFL) & O_DIRECT);    /* the caller's flags are unchanged */
	T_EQ(pread(local_of(f)->fd, &c, 1, 1), 1); /* the library's own file allows any offset */
	T_EQ(c, (char)t_byte(1, 1));
	file_free(f);
	T_OK(local_file_wrap(fd, PST_FILE_PLAIN, &f));
	check_facts(f);
	T_EQ(local_of(f)->fd_direct, -1);
	file_free(f);
	(void)close(fd);
}

static void wrapping_a_file_without_a_name(void)
{
	int fd = memfd_create("pst-test", MFD_CLOEXEC);
	struct file *f;
	uint64_t size;

	T_CHECK(fd >= 0);
	T_EQ(ftruncate(fd, 12345), 0);
	T_OK(local_file_wrap(fd, 0, &f));
	T_CHECK(f->caps & FILE_RESIDENT);
	T_OK(file_size(f, &size));
	T_EQ(size, 12345);
	file_free(f);
	(void)close(fd);

	fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0)
		T_SKIP("O_TMPFILE on the file system of the test");
	T_OK(local_file_wrap(fd, 0, &f));
	check_facts(f);
	file_free(f);
	(void)close(fd);
}

static void places_are_used_again(void)
{
	struct file *a, *b, *c;

	T_OK(file_open(path, RW, 0, &a));
	T_OK(file_open(path, RW, 0, &b));
	T_CHECK(local_of(a)->idx != local_of(b)->idx && local_of(a)->gen != local_of(b)->gen);
	file_free(a);
	T_OK(file_open(path, RW, 0, &c));
	T_CHECK(local_of(c)->idx != local_of(b)->idx && local_of(c)->gen != local_of(b)->gen);
	file_free(b);
	file_free(c);
	file_free(NULL);
}

/* Open any readable block device, without writing to it. */
static void block_devices(void)
{
	static const char *const names[] = { "/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/loop0" };
	struct file *f = NULL;
	uint64_t size;

	for (size_t i = 0; i < ARRAY_SIZE(names) && !f; i++)
		if (file_open(names[i], PST_FILE_READ, 0, &f) < 0)
			f = NULL;
	if (!f)
		T_SKIP("a block device that may be read");
	check_facts(f);
	T_CHECK((f->caps & FILE_SHARED) && !(f->caps & FILE_RESIDENT));
	T_EQ(strcmp(f->name, "block"), 0);
	T_OK(file_size(f, &size));
	T_CHECK(local_of(f)->fd_direct < 0 || f->off_align >= 512);
	file_free(f);
}

/* Return how many pages of a range are in the page cache, or -1 if unknown. */
static int resident(const struct file *f, uint64_t off, uint64_t len)
{
	unsigned char v[2048];
	void *p = mmap(NULL, len, PROT_READ, MAP_SHARED, local_of(f)->fd, (off_t)off);
	int nr = 0;

	T_CHECK(p != MAP_FAILED && len / 4096 <= sizeof(v));
	T_EQ(mincore(p, len, v), 0);
	for (uint64_t i = 0; i < len / 4096; i++)
		nr += v[i] & 1;
	(void)munmap(p, len);
	return nr;
}

/* file_peek() must not bring pages into the page cache. */
static void a_look_leaves_no_trace(void)
{
	uint8_t *buf = malloc(MIB(8)), *back = malloc(MIB(8));
	struct file *f;

	T_CHECK(buf && back);
	t_fill(buf, 3, 0, MIB(8));
	T_OK(file_open(in_dir("looked-at"), RW | PST_FILE_CREATE, 0600, &f));
	T_EQ(pwrite(local_of(f)->fd, buf, MIB(8), 0), (ssize_t)MIB(8));
	T_EQ(fsync(local_of(f)->fd), 0);
	T_EQ(posix_fadvise(local_of(f)->fd, 0, 0, POSIX_FADV_DONTNEED), 0);
	if ((f->caps & FILE_RESIDENT) || resident(f, 0, MIB(8))) {
		file_free(f);
		free(buf);
		free(back);
		T_SKIP("a file system that drops pages");
	}
	T_EQ(file_peek(f, back, MIB(2), MIB(1)), (int64_t)MIB(1));
	T_CHECK(!memcmp(back, buf + MIB(2), MIB(1)));
	T_EQ(resident(f, 0, MIB(8)), 0);
	/* Pages that others have cached stay. */
	(void)posix_fadvise(local_of(f)->fd, 0, 0, POSIX_FADV_RANDOM);
	T_EQ(pread(local_of(f)->fd, back, MIB(1), MIB(4)), (ssize_t)MIB(1));
	T_EQ(file_peek(f, back, MIB(4), MIB(1)), (int64_t)MIB(1));
	T_CHECK(!memcmp(back, buf + MIB(4), MIB(1)));
	T_EQ(resident(f, MIB(4), MIB(1)), (int)(MIB(1) / 4096));
	/* To the end of the file, and past it. */
	T_EQ(file_peek(f, back, MIB(8) - 100, MIB(1)), 100);
	T_EQ(file_peek(f, back, MIB(9), MIB(1)), 0);
	file_free(f);
	T_EQ(unlink(in_dir("looked-at")), 0);
	free(buf);
	free(back);
}

int main(void)
{
	uint8_t buf[16384];
	int fd;

	if (scratch_new(NULL, dir, sizeof(dir)) < 0) {
		printf("Bail out! no scratch directory %s\n", dir);
		return 1;
	}
	(void)snprintf(path, sizeof(path), "%s/file", dir);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	t_fill(buf, 1, 0, sizeof(buf));
	if (fd < 0 || write(fd, buf, sizeof(buf)) != sizeof(buf))
		return 1;
	(void)close(fd);
	T_RUN(missing_files);
	T_RUN(what_is_no_file);
	T_RUN(without_permission);
	T_RUN(creating);
	T_RUN(facts);
	T_RUN(the_alignment_is_true);
	T_RUN(in_memory);
	T_RUN(plain);
	T_RUN(direct_that_is_refused);
	T_RUN(out_of_descriptors);
	T_RUN(wrapping_what_is_no_file);
	T_RUN(wrapping);
	T_RUN(wrapping_a_direct_descriptor);
	T_RUN(wrapping_a_file_without_a_name);
	T_RUN(places_are_used_again);
	T_RUN(block_devices);
	T_RUN(a_look_leaves_no_trace);
	(void)unlink(path);
	(void)rmdir(dir);
	return t_done();
}
