/* SPDX-License-Identifier: MIT */
/* U7, U8, P3: who publishes and removes memory, and memory that processes share. */
#include "api_rig.h"
#include "usrbio/proto/id.h"
#include "usrbio/proto/link.h"
#include "usrbio/proto/name.h"

/* Return the path of an iov's link. */
static const char *link_of(const struct hf3fs_iov *iov)
{
	struct usrbio_name name = { .kind = USRBIO_BUFFER, .block_size = iov->block_size };
	static char path[PATH_MAX];
	char text[USRBIO_NAME_MAX];

	memcpy(name.id, iov->id, sizeof(name.id));
	usrbio_name_format(&name, text);
	(void)snprintf(path, sizeof(path), "%s/" USRBIO_IOVS "/%s", mnt, text);
	return path;
}

static bool is_published(const struct hf3fs_iov *iov)
{
	struct stat st;

	return lstat(link_of(iov), &st) == 0;
}

static const uint8_t *id_of(const struct hf3fs_iov *iov)
{
	return (const uint8_t *)iov->id;
}

/* Check that bytes written from one iov to a file arrive in the other. */
static void moves(const struct hf3fs_iov *from, const struct hf3fs_iov *to)
{
	struct hf3fs_ior reads = api_ior(4, true), writes = api_ior(4, false);
	int fd = api_open("moved", 0);

	t_fill(from->base, 99, 0, 4096);
	T_EQ(api_io(&writes, from, 0, fd, 0, 4096), 4096);
	memset(to->base, 0, 4096);
	T_EQ(api_io(&reads, to, 0, fd, 0, 4096), 4096);
	T_EQ(t_differs(to->base, 99, 0, 4096), 4096);
	api_close(fd);
	hf3fs_iordestroy(&reads);
	hf3fs_iordestroy(&writes);
}

/* ------------------------------------------------------------------ created */

static void U7_created_memory_is_published(void)
{
	struct hf3fs_iov a, b;
	char target[256];
	struct stat st;
	ssize_t n;

	T_EQ(hf3fs_iovcreate(&a, mnt, 100000, 0, -1), 0);
	T_EQ(hf3fs_iovcreate(&b, mnt, 100000, 4096, -1), 0);
	T_CHECK(is_published(&a) && is_published(&b));
	n = readlink(link_of(&b), target, sizeof(target) - 1);
	T_CHECK(n > 0);
	target[n] = '\0';
	T_CHECK(!strncmp(target, "/dev/shm/hf3fs-iov-", 19));
	T_EQ(stat(target, &st), 0);
	T_EQ(st.st_mode & 0777, 0600);
	T_EQ(st.st_size, 100000);
	/* All pages are allocated. */
	T_CHECK(st.st_blocks * 512 >= 100000);
	moves(&a, &b);
	hf3fs_iovdestroy(&b);
	T_CHECK(!is_published(&b));
	T_EQ(stat(target, &st), -1);
	hf3fs_iovdestroy(&a);
}

static void U7_numa(void)
{
	struct hf3fs_iov iov;

	/* Node 0 exists everywhere; a missing node is no error. */
	T_EQ(hf3fs_iovcreate(&iov, mnt, 4096, 0, 0), 0);
	T_EQ(iov.numa, 0);
	iov.base[0] = 1;
	hf3fs_iovdestroy(&iov);
	T_EQ(hf3fs_iovcreate(&iov, mnt, 4096, 0, 900), 0);
	iov.base[0] = 1;
	hf3fs_iovdestroy(&iov);
	T_EQ(hf3fs_iovcreate(&iov, mnt, 4096, 0, 100000), 0);
	hf3fs_iovdestroy(&iov);
}

static void U7_copies_and_second_destroys(void)
{
	struct hf3fs_iov a = api_iov(4096), copy = a, again = a, b;

	moves(&copy, &a);
	hf3fs_iovdestroy(&copy);
	T_CHECK(!copy.iovh && a.iovh);
	hf3fs_iovdestroy(&copy);
	/* The handle of a destroyed iov does not name a new iov. */
	b = api_iov(4096);
	hf3fs_iovdestroy(&a);
	hf3fs_iovunlink(&again);
	hf3fs_iovdestroy(&again);
	T_CHECK(is_published(&b));
	moves(&b, &b);
	hf3fs_iovdestroy(&b);
}

static void U7_unlink_keeps_the_memory(void)
{
	struct hf3fs_iov a = api_iov(8192), b, c;

	T_EQ(hf3fs_iovopen(&b, id_of(&a), mnt, 8192, 0, -1), 0);
	/* Only the creator can unlink, so this call does nothing. */
	hf3fs_iovunlink(&b);
	T_EQ(api_shm(), 1);
	hf3fs_iovunlink(&a);
	T_EQ(api_shm(), 0);
	T_CHECK(is_published(&a));
	hf3fs_iovunlink(&a);
	moves(&a, &b);
	T_EQ(hf3fs_iovopen(&c, id_of(&a), mnt, 8192, 0, -1), -ENOENT);
	hf3fs_iovdestroy(&b);
	moves(&a, &a);
	hf3fs_iovdestroy(&a);
}

/* ------------------------------------------------------------------- opened */

static void U7_open_checks_the_size(void)
{
	struct hf3fs_iov a, b;

	T_EQ(hf3fs_iovcreate(&a, mnt, 8192, 4096, -1), 0);
	T_EQ(hf3fs_iovopen(&b, id_of(&a), mnt, 8193, 4096, -1), -EINVAL);
	T_EQ(hf3fs_iovopen(&b, id_of(&a), mnt, (size_t)1 << 40, 4096, -1), -EINVAL);
	/* The link's name contains the block size. */
	T_EQ(hf3fs_iovopen(&b, id_of(&a), mnt, 8192, 0, -1), -ENOENT);
	T_EQ(hf3fs_iovopen(&b, id_of(&a), mnt, 8192, 2048, -1), -ENOENT);
	T_EQ(hf3fs_iovopen(&b, id_of(&a), mnt, 4096, 4096, 3), 0);
	T_CHECK(b.size == 4096 && b.numa == 3 && !memcmp(a.id, b.id, 16) && b.base != a.base);
	b.base[4095] = 77;
	T_EQ(a.base[4095], 77);
	hf3fs_iovdestroy(&b);
	hf3fs_iovdestroy(&a);
}

static void U7_destroying_what_was_opened_keeps_the_publication(void)
{
	struct hf3fs_iov a = api_iov(8192), b, c;

	T_EQ(hf3fs_iovopen(&b, id_of(&a), mnt, 8192, 0, -1), 0);
	moves(&a, &b);
	hf3fs_iovdestroy(&b);
	T_CHECK(is_published(&a));
	T_EQ(api_shm(), 1);
	T_EQ(hf3fs_iovopen(&c, id_of(&a), mnt, 8192, 0, -1), 0);
	moves(&a, &c);
	hf3fs_iovdestroy(&c);
	hf3fs_iovdestroy(&a);
}

/* The creating process may open a part of the memory; the rest stays usable. */
static void U7_opened_in_its_own_process(void)
{
	int fd = api_open("data", 4096);
	struct hf3fs_ior ior = api_ior(4, true);
	struct hf3fs_iov a = api_iov(8192), b, c;

	T_EQ(hf3fs_iovopen(&b, id_of(&a), mnt, 4096, 0, -1), 0);
	T_EQ(api_io(&ior, &a, 4096, fd, 0, 4096), 4096);
	T_EQ(api_io(&ior, &a, 100, fd, 0, 4096), 4096);
	T_EQ(api_io(&ior, &b, 0, fd, 0, 4096), 4096);
	T_EQ(hf3fs_iovopen(&c, id_of(&a), mnt, 8192, 0, -1), 0);
	/* The longest view is used, in whichever order they were opened. */
	if (!on_daemon) {
		hf3fs_iovdestroy(&a);
		T_EQ(api_io(&ior, &c, 4096, fd, 0, 4096), 4096);
		T_EQ(api_io(&ior, &b, 0, fd, 0, 4096), 4096);
		hf3fs_iovdestroy(&c);
		T_EQ(api_io(&ior, &b, 0, fd, 0, 4096), 4096);
		hf3fs_iovdestroy(&b);
	}
	hf3fs_iovdestroy(&b);
	hf3fs_iovdestroy(&c);
	hf3fs_iovdestroy(&a);
	hf3fs_iordestroy(&ior);
	api_close(fd);
}

/* Link targets that are not shared memory must be refused. */
static void U7_open_follows_only_shared_memory(void)
{
	static const char *const targets[] = {
		"/etc/passwd",
		"/dev/shm/../../etc/passwd",
		"/dev/shm/",
		"/dev/shm/.",
		"/dev/shmX",
		"/dev/shm/a/b",
		"gdr://v2/device/0/allocation/1/offset/0/size/1/ipc/00",
		"x",
	};
	struct hf3fs_iov iov, like = { .block_size = 0 };

	T_EQ(usrbio_id_new((uint8_t *)like.id), 0);
	for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++) {
		T_EQ(symlink(targets[i], link_of(&like)), 0);
		T_EQ(hf3fs_iovopen(&iov, id_of(&like), mnt, 1, 0, -1), -EINVAL);
		T_EQ(unlink(link_of(&like)), 0);
	}
	T_EQ(symlink("/dev/shm/pst-test-none", link_of(&like)), 0);
	T_EQ(hf3fs_iovopen(&iov, id_of(&like), mnt, 1, 0, -1), -ENOENT);
	T_EQ(unlink(link_of(&like)), 0);
	T_EQ(mkdir("/dev/shm/pst-test-dir", 0700), 0);
	T_EQ(symlink("/dev/shm/pst-test-dir", link_of(&like)), 0);
	T_CHECK(hf3fs_iovopen(&iov, id_of(&like), mnt, 1, 0, -1) < 0);
	T_EQ(unlink(link_of(&like)), 0);
	T_EQ(rmdir("/dev/shm/pst-test-dir"), 0);
}

/* Another process of the same user, which does not share this process' tables. */
static struct hf3fs_iov parents;
static const char *exe;

static void U7_another_process_opens_it(void)
{
	char id[USRBIO_ID_TEXT];
	int status = -1;
	pid_t pid;

	parents = api_iov(8192);
	memset(parents.base, 1, 8192);
	usrbio_id_format(id_of(&parents), id);
	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		(void)execl(exe, exe, "peer", mnt, id, (char *)NULL);
		_exit(127);
	}
	T_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	T_EQ(status, 0);
	T_EQ(parents.base[5000], 42);
	T_CHECK(is_published(&parents));
	hf3fs_iovdestroy(&parents);
}

/* Run the other process. */
static int peer(const char *where, const char *id)
{
	uint8_t bytes[USRBIO_ID_LEN];
	struct hf3fs_iov iov;

	if (usrbio_id_parse(id, bytes) < 0 || hf3fs_iovopen(&iov, bytes, where, 8192, 0, -1) != 0)
		return 1;
	if (iov.base[0] != 1)
		return 2;
	iov.base[5000] = 42;
	hf3fs_iovdestroy(&iov);
	return 0;
}

/* ------------------------------------------------------------------ wrapped */

/* Make and publish memory without the library. */
static void *publish(const char *shm, size_t size, struct hf3fs_iov *ret_like)
{
	char target[64];
	void *p;
	int fd = shm_open(shm, O_RDWR | O_CREAT | O_EXCL, 0600);

	T_CHECK(fd >= 0);
	T_EQ(ftruncate(fd, (off_t)size), 0);
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	T_CHECK(p != MAP_FAILED);
	(void)close(fd);
	*ret_like = (struct hf3fs_iov){ 0 };
	T_EQ(usrbio_id_new((uint8_t *)ret_like->id), 0);
	(void)snprintf(target, sizeof(target), "/dev/shm%s", shm);
	T_EQ(symlink(target, link_of(ret_like)), 0);
	return p;
}

static void P3_shm_unlink_straight_after_symlink(void)
{
	struct hf3fs_iov iov, like;
	void *p = publish("/pst-test-wrap", 65536, &like);

	T_EQ(shm_unlink("/pst-test-wrap"), 0);
	T_EQ(hf3fs_iovwrap(&iov, p, id_of(&like), mnt, 65536, 0, -1), 0);
	T_CHECK(iov.base == p && !memcmp(iov.id, like.id, 16));
	moves(&iov, &iov);
	hf3fs_iovunlink(&iov);
	hf3fs_iovdestroy(&iov);
	T_CHECK(!iov.iovh);
	/* The library does not remove a link that the program made. */
	T_CHECK(is_published(&like));
	T_EQ(unlink(link_of(&like)), 0);
	memset(p, 1, 65536);
	T_EQ(munmap(p, 65536), 0);
}

/* The block sizes of wrap and link may differ: the link's is used. */
static void P3_wrapping_is_bookkeeping(void)
{
	struct hf3fs_iov iov, like;
	void *p = publish("/pst-test-wrap", 65536, &like);

	T_EQ(hf3fs_iovwrap(&iov, p, id_of(&like), mnt, 65536, 65536, -1), 0);
	T_EQ(iov.block_size, 65536);
	moves(&iov, &iov);
	hf3fs_iovdestroy(&iov);
	T_EQ(unlink(link_of(&like)), 0);
	T_EQ(shm_unlink("/pst-test-wrap"), 0);
	/* Wrapping succeeds without a publication or a mapping. */
	T_EQ(munmap(p, 65536), 0);
	T_EQ(hf3fs_iovwrap(&iov, p, id_of(&like), mnt, 65536, 0, -1), 0);
	hf3fs_iovdestroy(&iov);
}

/* Wrapped memory may be mapped after the wrap: allocators reserve addresses first. */
static void P3_wrapped_memory_may_come_later(void)
{
	struct hf3fs_ior reads = api_ior(2, true);
	const size_t size = 1 << 20;
	int fd = api_open("data", size);
	struct hf3fs_iov iov;
	uint8_t id[16], *p;

	p = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	T_CHECK(p != MAP_FAILED);
	T_EQ(usrbio_id_new(id), 0);
	T_EQ(hf3fs_iovwrap(&iov, p, id, mnt, size, 0, -1), 0);
	T_EQ(api_io(&reads, &iov, 0, fd, 0, 65536), -EFAULT);
	T_EQ(mprotect(p, 65536, PROT_READ | PROT_WRITE), 0);
	T_EQ(api_io(&reads, &iov, 0, fd, 0, 65536), 65536);
	T_EQ(t_differs(p, API_SEED, 0, 65536), 65536);
	T_EQ(api_io(&reads, &iov, 65536, fd, 0, 65536), -EFAULT);
	hf3fs_iovdestroy(&iov);
	T_EQ(munmap(p, size), 0);
	api_close(fd);
	hf3fs_iordestroy(&reads);
}

/*
 * NIXL publishes a region once, wraps it for each descriptor with the descriptor's length as the
 * block size, and destroys no wrap.
 */
static void P3_wraps_of_one_region(void)
{
	static const size_t lengths[] = { 65536, 98304, 4096, 65536 };
	const size_t size = 1 << 20;
	struct hf3fs_ior reads = api_ior(4, true);
	struct hf3fs_iov iov, first, like, blocks;
	uint8_t *p = publish("/pst-test-wrap", size, &like);
	int fd = api_open("data", size);

	for (unsigned i = 0; i < 4000; i++) {
		size_t len = lengths[i % 4], off = 4096 * (1 + i % 7);

		T_EQ(hf3fs_iovwrap(&iov, p, id_of(&like), mnt, size, len, -1), 0);
		T_EQ(iov.block_size, len);
		if (!i)
			first = iov;
		T_CHECK(iov.iovh == first.iovh);
		if (i % 501) /* one of each length */
			continue;
		memset(p + off, 0, len);
		T_EQ(api_io(&reads, &iov, off, fd, 0, len), len);
		T_EQ(t_differs(p + off, API_SEED, 0, len), len);
	}
	/* Destroying some wraps leaves the others; after the last one the memory is unknown. */
	for (unsigned i = 0; i < 3999; i++) {
		iov = first;
		hf3fs_iovdestroy(&iov);
	}
	T_EQ(api_io(&reads, &first, 0, fd, 0, 4096), 4096);
	T_EQ(unlink(link_of(&like)), 0);
	/* The block size of the publication limits requests. */
	blocks = like;
	blocks.block_size = 65536;
	T_EQ(symlink("/dev/shm/pst-test-wrap", link_of(&blocks)), 0);
	T_EQ(hf3fs_iovwrap(&iov, p, id_of(&like), mnt, size, 65536, -1), 0);
	T_CHECK(iov.iovh != first.iovh);
	T_EQ(api_io(&reads, &iov, 65536 - 4096, fd, 0, 8192), -EINVAL);
	hf3fs_iovdestroy(&iov);
	T_EQ(unlink(link_of(&blocks)), 0);
	iov = first;
	hf3fs_iovdestroy(&iov);
	hf3fs_iovdestroy(&first);
	T_EQ(shm_unlink("/pst-test-wrap"), 0);
	T_EQ(munmap(p, size), 0);
	api_close(fd);
	hf3fs_iordestroy(&reads);
}

static void P3_wrapping_again_replaces(void)
{
	static char one[4096], two[4096];
	struct hf3fs_ior ior = api_ior(2, true);
	struct hf3fs_iov a, b;
	uint8_t id[16];
	int fd = api_open("data", 4096);

	T_EQ(usrbio_id_new(id), 0);
	T_EQ(hf3fs_iovwrap(&a, one, id, mnt, sizeof(one), 0, -1), 0);
	T_EQ(api_io(&ior, &a, 0, fd, 0, 4096), 4096);
	T_EQ(hf3fs_iovwrap(&b, two, id, mnt, sizeof(two), 0, -1), 0);
	T_EQ(api_io(&ior, &b, 0, fd, 0, 4096), 4096);
	T_EQ(t_differs(two, API_SEED, 0, 4096), 4096);
	/* After the second wrap is destroyed, the address belongs to the first one again. */
	hf3fs_iovdestroy(&b);
	memset(one, 0, sizeof(one));
	T_EQ(api_io(&ior, &a, 0, fd, 0, 4096), 4096);
	T_EQ(t_differs(one, API_SEED, 0, 4096), 4096);
	hf3fs_iovdestroy(&a);
	T_EQ(api_io(&ior, &(struct hf3fs_iov){ .base = (uint8_t *)one, .iovh = id, .size = 4096 },
		    0, fd, 0, 4096),
	     -EINVAL);
	api_close(fd);
	hf3fs_iordestroy(&ior);
}

/* ------------------------------------------------------------------- rings */

static unsigned links_now(void)
{
	char dir[PATH_MAX];

	(void)snprintf(dir, sizeof(dir), "%s/" USRBIO_IOVS, mnt);
	return api_count(dir, "", "");
}

static void U8_destroy_removes_rings_with_flags(void)
{
	static const uint64_t flags[] = { 0, 1, 2, 3 };
	struct hf3fs_ior ior[4];
	struct stat st;
	char path[PATH_MAX], id[USRBIO_ID_TEXT];

	for (int i = 0; i < 4; i++)
		T_EQ(hf3fs_iorcreate4(&ior[i], mnt, 8, true, 0, 0, -1, flags[i]), 0);
	usrbio_id_format(id_of(&ior[2].iov), id);
	(void)snprintf(path, sizeof(path), "%s/" USRBIO_IOVS "/%s.r0.t0.f10", mnt, id);
	T_EQ(lstat(path, &st), 0);
	/* The memory of a ring has no name. */
	T_EQ(api_shm(), 0);
	for (int i = 0; i < 4; i++)
		hf3fs_iordestroy(&ior[i]);
	T_EQ(lstat(path, &st), -1);
	T_EQ(links_now(), 0);
}

static void P3_names_of_rings(void)
{
	static const struct {
		bool for_read;
		int io_depth, priority, timeout;
		const char *tail;
	} rings[] = {
		{ true, 0, 0, 0, ".r0.t0" },     { false, 0, 0, 0, ".w0.t0" },
		{ true, -16, 0, 1, ".r-16.t1" }, { true, 8, -3, 250, ".r8.ph.t250" },
		{ false, 0, 7, 0, ".w0.pl.t0" },
	};
	char path[PATH_MAX], id[USRBIO_ID_TEXT];
	struct hf3fs_ior ior;
	struct stat st;

	for (size_t i = 0; i < sizeof(rings) / sizeof(rings[0]); i++) {
		T_EQ(hf3fs_iorcreate3(&ior, mnt, 16, rings[i].for_read, rings[i].io_depth,
				      rings[i].priority, rings[i].timeout, -1),
		     0);
		usrbio_id_format(id_of(&ior.iov), id);
		(void)snprintf(path, sizeof(path), "%s/" USRBIO_IOVS "/%s%s", mnt, id,
			       rings[i].tail);
		T_EQ(lstat(path, &st), 0);
		hf3fs_iordestroy(&ior);
		T_EQ(lstat(path, &st), -1);
	}
}

/* Links and memory of a killed process are removed when the directory is used next. */
static int leave_something(void)
{
	struct hf3fs_iov iov;

	if (hf3fs_iovcreate(&iov, mnt, 4096, 0, -1) != 0)
		return 1;
	return 0;
}

static void leave_in_another_process(void)
{
	int status = -1;
	pid_t pid;

	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		(void)execl(exe, exe, "leave", mnt, (char *)NULL);
		_exit(127);
	}
	T_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	T_EQ(status, 0);
}

static void P11_plain_directories_are_swept(void)
{
	struct hf3fs_iov iov = api_iov(4096);
	int fd;

	leave_in_another_process();
	T_EQ(api_links(""), 2);
	/* This use removes what that process left, and nothing of a living process. */
	leave_in_another_process();
	T_EQ(api_links(""), 2);
	T_CHECK(is_published(&iov));
	moves(&iov, &iov);
	hf3fs_iovdestroy(&iov);
	fd = usrbio_plain_open(mnt);
	T_CHECK(fd >= 0);
	T_EQ(usrbio_plain_sweep(fd), 1);
	(void)close(fd);
}

/* A plain directory that is removed and made again is a different directory with the same name. */
static void a_plain_directory_that_is_made_again(void)
{
	struct hf3fs_iov a = api_iov(4096), b;

	moves(&a, &a);
	hf3fs_iovdestroy(&a);
	T_EQ(usrbio_plain_remove(mnt), 0);
	T_EQ(hf3fs_iovcreate(&b, mnt, 4096, 0, -1), -ENOENT);
	T_EQ(usrbio_plain_make(mnt), 0);
	b = api_iov(4096);
	T_CHECK(is_published(&b));
	moves(&b, &b);
	hf3fs_iovdestroy(&b);
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "peer"))
		return peer(argv[2], argv[3]);
	if (argc == 3 && !strcmp(argv[1], "leave")) {
		mnt = argv[2];
		return leave_something();
	}
	exe = "/proc/self/exe";
	api_init();
	API_RUN(U7_created_memory_is_published);
	API_RUN(U7_numa);
	API_RUN(U7_copies_and_second_destroys);
	API_RUN(U7_unlink_keeps_the_memory);
	API_RUN(U7_open_checks_the_size);
	API_RUN(U7_destroying_what_was_opened_keeps_the_publication);
	API_RUN(U7_opened_in_its_own_process);
	API_PLAIN(U7_open_follows_only_shared_memory);
	API_RUN(U7_another_process_opens_it);
	API_RUN(P3_shm_unlink_straight_after_symlink);
	API_RUN(P3_wrapping_is_bookkeeping);
	API_PLAIN(P3_wrapped_memory_may_come_later);
	API_PLAIN(P3_wraps_of_one_region);
	API_PLAIN(P3_wrapping_again_replaces);
	API_RUN(U8_destroy_removes_rings_with_flags);
	API_RUN(P3_names_of_rings);
	API_PLAIN(P11_plain_directories_are_swept);
	API_PLAIN(a_plain_directory_that_is_made_again);
	return api_done();
}
