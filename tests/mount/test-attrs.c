/* SPDX-License-Identifier: MIT */
/* Attributes: modes, times, extended attributes and access control lists. */
#include <endian.h>
#include <linux/limits.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "mount_case.h"

/* -------------------------------------------------------------------- modes */

static void umask_is_honoured(void)
{
	static const mode_t masks[] = { 0, 022, 027, 077, 0777 };
	char name[32];

	for (size_t i = 0; i < sizeof(masks) / sizeof(*masks); i++) {
		(void)umask(masks[i]);
		(void)snprintf(name, sizeof(name), "file%zu", i);
		case_close(CASE_OK(open(at(name), O_WRONLY | O_CREAT | O_CLOEXEC, 0666)));
		T_EQ(case_mode(at(name)), 0666 & ~masks[i]);
		(void)snprintf(name, sizeof(name), "dir%zu", i);
		T_EQ(mkdir(at(name), 0777), 0);
		T_EQ(case_mode(at(name)), 0777 & ~masks[i]);
		T_EQ(chmod(at(name), 0755), 0);
		(void)snprintf(name, sizeof(name), "fifo%zu", i);
		T_EQ(mkfifo(at(name), 0666), 0);
		T_EQ(case_mode(at(name)), 0666 & ~masks[i]);
	}
	(void)umask(022);
}

static void all_bits(void)
{
	struct stat before;
	int fd = case_file("file", 0644, "text");

	for (mode_t mode = 0; mode <= 0777; mode += 0111) {
		T_EQ(chmod(at("file"), mode), 0);
		T_EQ(case_mode(at("file")), mode);
		T_EQ(case_stat(at_source("file")).st_mode & 07777, mode);
	}
	T_EQ(fchmod(fd, 04755), 0);
	T_EQ(case_mode(at("file")), 04755);
	T_EQ(fchmod(fd, 01644), 0);
	T_EQ(case_mode(at("file")), 01644);
	before = case_fstat(fd);
	(void)usleep(20000);
	T_EQ(fchmod(fd, 0600), 0);
	T_EQ(memcmp(&before.st_mtim, &(struct timespec[]){ case_fstat(fd).st_mtim },
		    sizeof(before.st_mtim)),
	     0);
	T_CHECK(memcmp(&before.st_ctim, &(struct timespec[]){ case_fstat(fd).st_ctim },
		       sizeof(before.st_ctim)) != 0);
	case_close(fd);
}

/* The creator of a file with mode 0 can use the open descriptor. */
static void made_without_rights(void)
{
	int fd = CASE_OK(open(at("file"), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0));
	char buf[4];

	T_EQ(write(fd, "text", 4), 4);
	T_EQ(pread(fd, buf, 4, 0), 4);
	T_EQ(case_fstat(fd).st_mode & 07777, 0);
	case_close(fd);
	fd = CASE_OK(open(at("read-only"), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0444));
	T_EQ(write(fd, "text", 4), 4);
	case_close(fd);
}

/* -------------------------------------------------------------------- times */

static void times_are(const char *name, time_t atime, long atime_ns, time_t mtime, long mtime_ns)
{
	struct stat st = case_stat(at(name));

	T_EQ(st.st_atim.tv_sec, atime);
	T_EQ(st.st_atim.tv_nsec, atime_ns);
	T_EQ(st.st_mtim.tv_sec, mtime);
	T_EQ(st.st_mtim.tv_nsec, mtime_ns);
}

static void set_times(const char *name, time_t atime, long atime_ns, time_t mtime, long mtime_ns)
{
	struct timespec t[2] = { { atime, atime_ns }, { mtime, mtime_ns } };

	CASE_OK(utimensat(AT_FDCWD, at(name), t, AT_SYMLINK_NOFOLLOW));
}

static void times(void)
{
	struct timespec before, after;
	struct stat st;

	case_make("file", 0644, "text");
	set_times("file", 1000000000, 123456789, 1100000000, 987654321);
	times_are("file", 1000000000, 123456789, 1100000000, 987654321);
	set_times("file", 5, 6, 0, UTIME_OMIT);
	times_are("file", 5, 6, 1100000000, 987654321);
	set_times("file", 0, UTIME_OMIT, 7, 8);
	times_are("file", 5, 6, 7, 8);
	set_times("file", 0, UTIME_OMIT, 0, UTIME_OMIT);
	times_are("file", 5, 6, 7, 8);
	(void)clock_gettime(CLOCK_REALTIME_COARSE, &before);
	set_times("file", 5, 6, 0, UTIME_NOW);
	(void)clock_gettime(CLOCK_REALTIME, &after);
	st = case_stat(at("file"));
	T_EQ(st.st_atim.tv_sec, 5);
	T_CHECK(st.st_mtim.tv_sec >= before.tv_sec && st.st_mtim.tv_sec <= after.tv_sec + 1);
	CASE_GIVES(utimensat(AT_FDCWD, at("file"), (struct timespec[]){ { 0, -5 }, { 0, 0 } }, 0),
		   EINVAL);
}

static void times_before_1970(void)
{
	struct timespec t[2] = { { -1000000000, 5 }, { -5, 999999999 } };
	struct stat st;

	case_make("file", 0644, "text");
	CASE_OK(utimensat(AT_FDCWD, at_source("file"), t, 0));
	st = case_stat(at_source("file"));
	if (st.st_mtim.tv_sec != -5)
		T_SKIP("times before 1970 in the source");
	set_times("file", -1000000000, 5, -5, 999999999);
	times_are("file", -1000000000, 5, -5, 999999999);
}

static void times_of_links_and_directories(void)
{
	T_EQ(symlink("nowhere", at("link")), 0);
	set_times("link", 1, 2, 3, 4);
	times_are("link", 1, 2, 3, 4);
	T_EQ(mkdir(at("dir"), 0755), 0);
	set_times("dir", 1, 2, 3, 4);
	times_are("dir", 1, 2, 3, 4);
	case_make("dir/file", 0644, "text");
	T_CHECK(case_stat(at("dir")).st_mtim.tv_sec > 1000000000);
}

static void writing_sets_times(void)
{
	int fd = case_file("file", 0644, "text");
	char c;

	set_times("file", 1, 2, 3, 4);
	T_EQ(pread(fd, &c, 1, 0), 1);
	T_EQ(case_fstat(fd).st_mtim.tv_sec, 3);
	T_EQ(pwrite(fd, "x", 1, 0), 1);
	T_CHECK(case_fstat(fd).st_mtim.tv_sec > 1000000000);
	T_CHECK(case_stat(at_source("file")).st_mtim.tv_sec > 1000000000);
	/* Times set while the file is open survive its close. */
	T_EQ(futimens(fd, (struct timespec[]){ { 1, 2 }, { 3, 4 } }), 0);
	case_close(fd);
	times_are("file", 1, 2, 3, 4);
	T_EQ(case_stat(at_source("file")).st_mtim.tv_nsec, 4);
}

static void statx_says_the_same(void)
{
	struct statx x, y;
	struct stat st;

	case_make("file", 0640, "text");
	T_EQ(statx(AT_FDCWD, at("file"), AT_STATX_FORCE_SYNC, STATX_BASIC_STATS | STATX_BTIME, &x),
	     0);
	st = case_stat(at("file"));
	T_EQ(x.stx_mask & STATX_BASIC_STATS, STATX_BASIC_STATS);
	T_EQ(x.stx_mode, st.st_mode);
	T_EQ(x.stx_size, 4);
	T_EQ(x.stx_ino, st.st_ino);
	T_EQ(makedev(x.stx_dev_major, x.stx_dev_minor), st.st_dev);
	T_EQ(statx(AT_FDCWD, at_source("file"), 0, STATX_BTIME, &y), 0);
	/* The birth time may be missing. */
	if (x.stx_mask & y.stx_mask & STATX_BTIME) {
		T_EQ(x.stx_btime.tv_sec, y.stx_btime.tv_sec);
		T_EQ(x.stx_btime.tv_nsec, y.stx_btime.tv_nsec);
	}
}

/* ---------------------------------------------------- extended attributes */

static void need_xattrs(void)
{
	case_make("file", 0644, "text");
	if (setxattr(at_source("file"), "user.probe", "x", 1, 0) < 0)
		T_SKIP("extended attributes in the source");
	T_EQ(removexattr(at_source("file"), "user.probe"), 0);
}

static void xattr_values(void)
{
	char buf[64];
	int fd;

	need_xattrs();
	T_EQ(setxattr(at("file"), "user.a", "one\0two", 7, 0), 0);
	T_EQ(getxattr(at("file"), "user.a", buf, sizeof(buf)), 7);
	T_EQ(memcmp(buf, "one\0two", 7), 0);
	T_EQ(getxattr(at_source("file"), "user.a", buf, sizeof(buf)), 7);
	/* A buffer that is too small, then one that fits. */
	CASE_GIVES(getxattr(at("file"), "user.a", buf, 6), ERANGE);
	T_EQ(getxattr(at("file"), "user.a", NULL, 0), 7);
	T_EQ(setxattr(at("file"), "user.empty", "", 0, 0), 0);
	T_EQ(getxattr(at("file"), "user.empty", buf, sizeof(buf)), 0);
	CASE_GIVES(setxattr(at("file"), "user.a", "x", 1, XATTR_CREATE), EEXIST);
	CASE_GIVES(setxattr(at("file"), "user.b", "x", 1, XATTR_REPLACE), ENODATA);
	CASE_GIVES(getxattr(at("file"), "user.b", buf, sizeof(buf)), ENODATA);
	CASE_GIVES(removexattr(at("file"), "user.b"), ENODATA);
	T_EQ(removexattr(at("file"), "user.a"), 0);
	CASE_GIVES(getxattr(at("file"), "user.a", buf, sizeof(buf)), ENODATA);
	fd = CASE_OK(open(at("file"), O_RDWR | O_CLOEXEC));
	T_EQ(fsetxattr(fd, "user.a", "three", 5, 0), 0);
	T_EQ(fgetxattr(fd, "user.a", buf, sizeof(buf)), 5);
	T_EQ(unlink(at("file")), 0);
	T_EQ(fgetxattr(fd, "user.a", buf, sizeof(buf)), 5);
	T_EQ(fremovexattr(fd, "user.a"), 0);
	case_close(fd);
}

/* Return true if a list of names contains the name. */
static bool lists(const char *list, ssize_t len, const char *name)
{
	for (const char *p = list; p < list + len; p += strlen(p) + 1)
		if (strcmp(p, name) == 0)
			return true;
	return false;
}

static void xattr_lists(void)
{
	char list[8192], name[32], small[8];
	ssize_t len;

	need_xattrs();
	for (int i = 0; i < 50; i++) {
		(void)snprintf(name, sizeof(name), "user.number-%d", i);
		T_EQ(setxattr(at("file"), name, "x", 1, 0), 0);
	}
	len = CASE_OK(listxattr(at("file"), list, sizeof(list)));
	T_EQ(listxattr(at("file"), NULL, 0), len);
	T_EQ(listxattr(at("file"), list, (size_t)len), len);
	for (int i = 0; i < 50; i++) {
		(void)snprintf(name, sizeof(name), "user.number-%d", i);
		T_CHECK(lists(list, len, name));
	}
	CASE_GIVES(listxattr(at("file"), small, sizeof(small)), ERANGE);
	T_EQ(mkdir(at("dir"), 0755), 0);
	T_EQ(setxattr(at("dir"), "user.a", "x", 1, 0), 0);
	T_CHECK(lists(list, CASE_OK(listxattr(at("dir"), list, sizeof(list))), "user.a"));
}

/* Return the errno of a call, or 0. */
static int error_of(int r)
{
	return r < 0 ? errno : 0;
}

static void xattr_limits(void)
{
	static char value[XATTR_SIZE_MAX + 1], name[300] = "user.";
	int should;

	need_xattrs();
	CASE_GIVES(setxattr(at("file"), "user.a", value, XATTR_SIZE_MAX + 1, 0), E2BIG);
	/* ext4 has one block for all values; xfs accepts the largest value. */
	should = error_of(setxattr(at_source("file"), "user.a", value, XATTR_SIZE_MAX, 0));
	T_EQ(error_of(setxattr(at("file"), "user.b", value, XATTR_SIZE_MAX, 0)), should);
	T_EQ(setxattr(at("file"), "user.c", value, 2000, 0), 0);
	T_EQ(getxattr(at("file"), "user.c", value, sizeof(value)), 2000);
	memset(name + 5, 'n', 251);
	CASE_GIVES(setxattr(at("file"), name, "x", 1, 0), ERANGE);
	name[255] = '\0';
	T_EQ(setxattr(at("file"), name, "x", 1, 0), 0);
	T_EQ(getxattr(at("file"), name, value, sizeof(value)), 1);
	CASE_GIVES(setxattr(at("file"), "other.a", "x", 1, 0), EOPNOTSUPP);
	CASE_GIVES(setxattr(at("file"), "user.", "x", 1, 0), EINVAL);
	T_EQ(symlink("file", at("link")), 0);
	CASE_GIVES(lsetxattr(at("link"), "user.a", "x", 1, 0), EPERM);
	T_EQ(setxattr(at("link"), "user.c", "x", 1, 0), 0);
}

static void nobody_sets_trusted(void)
{
	char list[1000];

	become_nobody();
	CASE_GIVES(setxattr(at("file"), "trusted.a", "x", 1, 0), EPERM);
	CASE_GIVES(getxattr(at("file"), "trusted.a", list, sizeof(list)), ENODATA);
	CASE_GIVES(setxattr(at("file"), "user.a", "x", 1, 0), EACCES);
	T_CHECK(!lists(list, CASE_OK(listxattr(at("file"), list, sizeof(list))), "trusted.a"));
}

static void xattrs_of_root(void)
{
	char buf[8];

	need_root();
	need_xattrs();
	if (setxattr(at_source("file"), "trusted.probe", "x", 1, 0) < 0)
		T_SKIP("trusted attributes in the source");
	T_EQ(setxattr(at("file"), "trusted.a", "x", 1, 0), 0);
	T_EQ(getxattr(at("file"), "trusted.a", buf, sizeof(buf)), 1);
	child_run(nobody_sets_trusted);
}

/* -------------------------------------------------- access control lists */

/* The format of include/uapi/linux/posix_acl_xattr.h, in little-endian. */
enum { ACL_USER_OBJ = 1, ACL_USER = 2, ACL_GROUP_OBJ = 4, ACL_MASK = 16, ACL_OTHER = 32 };

struct acl {
	uint32_t version;
	struct {
		uint16_t tag, perm;
		uint32_t id;
	} e[5];
};

/* user::rw-, user:nobody:NAMED, group::r--, mask::MASK, other::--- */
static struct acl acl_of(unsigned named, unsigned mask)
{
	struct acl a = { .version = htole32(2) };
	const uint32_t none = UINT32_MAX;

	a.e[0].tag = htole16(ACL_USER_OBJ);
	a.e[0].perm = htole16(7);
	a.e[0].id = none;
	a.e[1].tag = htole16(ACL_USER);
	a.e[1].perm = htole16((uint16_t)named);
	a.e[1].id = htole32(CASE_NOBODY);
	a.e[2].tag = htole16(ACL_GROUP_OBJ);
	a.e[2].perm = htole16(4);
	a.e[2].id = none;
	a.e[3].tag = htole16(ACL_MASK);
	a.e[3].perm = htole16((uint16_t)mask);
	a.e[3].id = none;
	a.e[4].tag = htole16(ACL_OTHER);
	a.e[4].perm = htole16(0);
	a.e[4].id = none;
	return a;
}

#define ACCESS_ACL "system.posix_acl_access"
#define DEFAULT_ACL "system.posix_acl_default"

static void need_acls(void)
{
	struct acl a = acl_of(6, 6);

	case_make("probe", 0600, "");
	if (setxattr(at_source("probe"), ACCESS_ACL, &a, sizeof(a), 0) < 0)
		T_SKIP("access control lists in the source");
}

static void acls_are_kept(void)
{
	struct acl a = acl_of(6, 6), b;

	need_acls();
	case_make("file", 0700, "text");
	T_EQ(setxattr(at("file"), ACCESS_ACL, &a, sizeof(a), 0), 0);
	T_EQ(getxattr(at("file"), ACCESS_ACL, &b, sizeof(b)), sizeof(b));
	T_EQ(memcmp(&a, &b, sizeof(a)), 0);
	T_EQ(getxattr(at_source("file"), ACCESS_ACL, &b, sizeof(b)), sizeof(b));
	/* The group's bits of the mode are the mask, in both directions. */
	T_EQ(case_mode(at("file")), 0760);
	T_EQ(chmod(at("file"), 0740), 0);
	T_EQ(getxattr(at("file"), ACCESS_ACL, &b, sizeof(b)), sizeof(b));
	T_EQ(le16toh(b.e[3].perm), 4);
	T_EQ(removexattr(at("file"), ACCESS_ACL), 0);
	CASE_GIVES(getxattr(at("file"), ACCESS_ACL, &b, sizeof(b)), ENODATA);
	CASE_GIVES(setxattr(at("file"), ACCESS_ACL, "nonsense", 8, 0), EOPNOTSUPP);
	CASE_GIVES(setxattr(at("file"), DEFAULT_ACL, &a, sizeof(a), 0), EACCES);
}

static void acl_reads_and_writes(void)
{
	become_nobody();
	case_close(CASE_OK(open(at("writable"), O_RDWR | O_CLOEXEC)));
	case_close(CASE_OK(open(at("masked"), O_RDONLY | O_CLOEXEC)));
	CASE_GIVES(open(at("masked"), O_RDWR | O_CLOEXEC), EACCES);
	CASE_GIVES(open(at("refused"), O_RDONLY | O_CLOEXEC), EACCES);
	CASE_GIVES(access(at("refused"), R_OK), EACCES);
	T_EQ(access(at("writable"), R_OK | W_OK), 0);
}

static void acls_decide(void)
{
	struct acl writable = acl_of(6, 6), masked = acl_of(6, 4), refused = acl_of(0, 7);

	need_root();
	need_acls();
	case_make("writable", 0700, "text");
	T_EQ(setxattr(at("writable"), ACCESS_ACL, &writable, sizeof(writable), 0), 0);
	case_make("masked", 0700, "text");
	T_EQ(setxattr(at("masked"), ACCESS_ACL, &masked, sizeof(masked), 0), 0);
	case_make("refused", 0777, "text");
	T_EQ(setxattr(at("refused"), ACCESS_ACL, &refused, sizeof(refused), 0), 0);
	child_run(acl_reads_and_writes);
}

static void acls_are_inherited(void)
{
	struct acl a = acl_of(6, 6), b;

	need_acls();
	T_EQ(mkdir(at("dir"), 0755), 0);
	T_EQ(setxattr(at("dir"), DEFAULT_ACL, &a, sizeof(a), 0), 0);
	(void)umask(077);
	/* With a default ACL, the umask is not applied. */
	case_close(CASE_OK(open(at("dir/file"), O_WRONLY | O_CREAT | O_CLOEXEC, 0666)));
	T_EQ(case_mode(at("dir/file")), 0660);
	T_EQ(getxattr(at("dir/file"), ACCESS_ACL, &b, sizeof(b)), sizeof(b));
	T_EQ(le16toh(b.e[1].perm), 6);
	T_EQ(le32toh(b.e[1].id), CASE_NOBODY);
	T_EQ(le16toh(b.e[3].perm), 6);
	/* The requested mode limits the rights. */
	case_close(CASE_OK(open(at("dir/private"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)));
	T_EQ(case_mode(at("dir/private")), 0600);
	T_EQ(mkdir(at("dir/dir"), 0777), 0);
	T_EQ(case_mode(at("dir/dir")), 0760);
	T_EQ(getxattr(at("dir/dir"), DEFAULT_ACL, &b, sizeof(b)), sizeof(b));
	T_EQ(memcmp(&a, &b, sizeof(a)), 0);
	T_EQ(mkfifo(at("dir/fifo"), 0666), 0);
	T_EQ(case_mode(at("dir/fifo")), 0660);
	/* Without a default ACL, the umask is applied. */
	case_close(CASE_OK(open(at("file"), O_WRONLY | O_CREAT | O_CLOEXEC, 0666)));
	T_EQ(case_mode(at("file")), 0600);
}

int main(int argc, char **argv)
{
	case_init(argc, argv);
	CASE(umask_is_honoured);
	CASE(all_bits);
	CASE(made_without_rights);
	CASE(times);
	CASE(times_before_1970);
	CASE(times_of_links_and_directories);
	CASE(writing_sets_times);
	CASE(statx_says_the_same);
	CASE(xattr_values);
	CASE(xattr_lists);
	CASE(xattr_limits);
	CASE(xattrs_of_root);
	CASE(acls_are_kept);
	CASE(acls_decide);
	CASE(acls_are_inherited);
	return case_done();
}
