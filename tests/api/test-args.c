/* SPDX-License-Identifier: MIT */
/*
 * Every error that the header promises: its number, a text that names the wrong argument, and an
 * unchanged errno.
 */
#include "args.h"

/* ---------------------------------------------------------------- options */

/* A struct that may be longer or shorter than the library's. */
struct longer {
	union {
		size_t sz;
		struct pst_queue_opts queue;
		struct pst_mem_opts mem;
		struct pst_file_opts file;
		struct pst_limits limits;
		struct pst_mem_info mem_info;
		struct pst_file_info file_info;
		struct pst_stats stats;
		struct pst_path_info path_info;
		struct pst_device device;
		uint8_t bytes[1024];
	};
};

static int with_queue(struct longer *o)
{
	struct pst_queue *n = NULL;
	int r = pst_queue_new(&o->queue, &n);

	pst_queue_free(n);
	return r;
}

static int with_alloc(struct longer *o)
{
	struct pst_mem *n = NULL;
	int r = pst_mem_alloc("host", 100, &o->mem, &n);

	pst_mem_free(n);
	return r;
}

static int with_wrap(struct longer *o)
{
	static char buf[4096];
	struct pst_mem *n = NULL;
	int r = pst_mem_wrap((uintptr_t)buf, 100, &o->mem, &n);

	pst_mem_free(n);
	return r;
}

static int with_open(struct longer *o)
{
	struct pst_file *n = NULL;
	int r = pst_file_open(rig_path("file"), PST_FILE_READ, &o->file, &n);

	pst_file_close(n);
	return r;
}

static int with_limits(struct longer *o)
{
	return pst_limits_set(&o->limits);
}

static void sizes_of_options(void)
{
	static const struct {
		int (*fn)(struct longer *o);
		size_t sz;
	} calls[] = {
		{ with_queue, sizeof(struct pst_queue_opts) },
		{ with_alloc, sizeof(struct pst_mem_opts) },
		{ with_wrap, sizeof(struct pst_mem_opts) },
		{ with_open, sizeof(struct pst_file_opts) },
		{ with_limits, sizeof(struct pst_limits) },
	};

	make_valid();
	for (unsigned i = 0; i < RIG_NR(calls); i++) {
		struct longer o = { .sz = 0 };

		FAILS(calls[i].fn(&o), EINVAL, "sz");
		o.sz = sizeof(size_t) - 1;
		FAILS(calls[i].fn(&o), EINVAL, "sz");
		o.sz = SIZE_MAX;
		FAILS(calls[i].fn(&o), E2BIG, "sz");
		o.sz = sizeof(size_t); /* an old program knows only the size */
		WORKS(calls[i].fn(&o));
		o.sz = calls[i].sz;
		WORKS(calls[i].fn(&o));
		o.sz = sizeof(o); /* a newer program that uses no new member */
		WORKS(calls[i].fn(&o));
		o.bytes[calls[i].sz] = 1;
		FAILS(calls[i].fn(&o), E2BIG, "");
		o.bytes[calls[i].sz] = 0;
		o.bytes[sizeof(o) - 1] = 1;
		FAILS(calls[i].fn(&o), E2BIG, "");
	}
	free_valid();
}

static int info_mem(struct longer *o)
{
	return pst_mem_info(mem, &o->mem_info);
}

static int info_file(struct longer *o)
{
	return pst_file_info(rd, &o->file_info);
}

static int info_queue(struct longer *o)
{
	return pst_stats(q, &o->stats);
}

static int info_all(struct longer *o)
{
	return pst_stats(NULL, &o->stats);
}

static int info_path(struct longer *o)
{
	return pst_path_check(rd, mem, PST_OP_READ, PST_PATH_DIRECT, &o->path_info);
}

static int info_device(struct longer *o)
{
	return pst_device_find("host", &o->device);
}

static int info_limits(struct longer *o)
{
	return pst_limits_get(&o->limits);
}

static void sizes_of_answers(void)
{
	static int (*const calls[])(struct longer * o) = { info_mem,   info_file, info_queue,
							   info_all,   info_path, info_device,
							   info_limits };
	struct pst_device two[2] = { { .sz = sizeof(two[0]) }, { .sz = sizeof(two[0]) - 1 } };

	make_valid();
	for (unsigned i = 0; i < RIG_NR(calls); i++) {
		struct longer o = { .sz = 0 };

		FAILS(calls[i](&o), EINVAL, "sz");
		o.sz = sizeof(size_t) - 1;
		FAILS(calls[i](&o), EINVAL, "sz");
		/*
		 * The call must not write past the given size, and must initialise each member
		 * within that size.
		 */
		memset(&o, 0x5a, sizeof(o));
		o.sz = 12;
		WORKS(calls[i](&o));
		T_EQ(o.sz, 12);
		T_EQ(o.bytes[12], 0x5a);
		memset(&o, 0x5a, sizeof(o));
		o.sz = sizeof(o);
		WORKS(calls[i](&o));
		T_EQ(o.sz, sizeof(o));
		T_EQ(o.bytes[sizeof(o) - 1], 0);
	}
	T_CHECK(pst_device_list(NULL, 0) >= 2);
	FAILS(pst_device_list(two, 2), EINVAL, "sz");
	two[1].sz = sizeof(two[1]);
	errno = MARK;
	T_CHECK(pst_device_list(two, 2) >= 2);
	T_EQ(errno, MARK);
	T_EQ(two[0].kind, PST_KIND_HOST);
	free_valid();
}

/* ---------------------------------------------------------------- devices */

static void device_names(void)
{
	static const char *const bad[] = { "",
					   ":",
					   "soft:",
					   "soft:x",
					   "soft:-1",
					   "soft: 1",
					   "soft:1 ",
					   "Host",
					   "soft0",
					   "0000:17:00",
					   "17:00.0",
					   "cuda:0x",
					   "gaudi3",
					   "soft:00000000000000000001",
					   "0123456789abcdef0123456789abcde",
					   "0123456789abcdef0123456789abcdefa",
					   "%s%n%s" };
	static const char *const none[] = { "soft:999",
					    "host:1",
					    "cuda",
					    "cuda:0",
					    "gaudi:3",
					    "0000:17:00.0",
					    "ffffffffffffffffffffffffffffffff",
					    "00000000-0000-0000-0000-000000000000" };
	struct pst_device dev = { .sz = sizeof(dev) }, again = { .sz = sizeof(again) };
	char uuid[40], long_name[5000];
	struct pst_mem *m = NULL;

	memset(long_name, 'x', sizeof(long_name) - 1);
	long_name[sizeof(long_name) - 1] = '\0';
	FAILS(pst_device_find(NULL, &dev), EINVAL, "device");
	FAILS(pst_device_find(long_name, &dev), EINVAL, "xxx");
	FAILS(pst_mem_alloc(NULL, 100, NULL, &m), EINVAL, "device");
	for (unsigned i = 0; i < RIG_NR(bad); i++) {
		FAILS(pst_device_find(bad[i], &dev), EINVAL, "");
		FAILS(pst_mem_alloc(bad[i], 100, NULL, &m), EINVAL, "");
	}
	for (unsigned i = 0; i < RIG_NR(none); i++) {
		FAILS(pst_device_find(none[i], &dev), ENODEV, "");
		FAILS(pst_mem_alloc(none[i], 100, NULL, &m), ENODEV, "");
	}
	WORKS(pst_device_find("soft", &dev));
	T_EQ(strcmp(dev.name, "soft:0"), 0);
	for (unsigned i = 0; i < 16; i++)
		(void)snprintf(uuid + 2 * i, 3, "%02X", dev.uuid[i]);
	WORKS(pst_device_find(uuid, &again));
	T_EQ(memcmp(&dev, &again, sizeof(dev)), 0);
	T_CHECK(!m);
}

/* ----------------------------------------------------------------- memory */

static void memory(void)
{
	struct pst_mem_opts o = { .sz = sizeof(o) };
	struct pst_mem *m = NULL;
	static char buf[8192];
	uint64_t addr = (uintptr_t)buf;

	make_valid();
	FAILS(pst_mem_alloc("host", 0, NULL, &m), EINVAL, "zero");
	FAILS(pst_mem_alloc("host", UINT64_MAX, NULL, &m), ENOMEM, "");
	FAILS(pst_mem_alloc("host", INT64_MAX, NULL, &m), ENOMEM, "");
	FAILS(pst_mem_alloc("host", UINT64_C(1) << 47, NULL, &m), ENOMEM, "");
	FAILS(pst_mem_alloc("soft", UINT64_C(1) << 47, NULL, &m), ENOMEM, "");
	o.flags = 1u << 31;
	FAILS(pst_mem_alloc("host", 1, &o, &m), EINVAL, "flags");
	FAILS(pst_mem_wrap(addr, 1, &o, &m), EINVAL, "flags");
	o.flags = PST_MEM_PINNED;
	FAILS(pst_mem_alloc("host", 1, &o, &m), EINVAL, "flags");
	o.flags = PST_MEM_SHARED;
	FAILS(pst_mem_wrap(addr, 1, &o, &m), EINVAL, "flags");
	o.flags = PST_MEM_LATER;
	FAILS(pst_mem_alloc("host", 1, &o, &m), EINVAL, "flags");
	FAILS(pst_mem_wrap(addr, 1, &o, &m), EINVAL, "flags");
	o.kind = PST_KIND_SOFT;
	FAILS(pst_mem_wrap(addr, 1, &o, &m), EINVAL, "flags");
	o.kind = PST_KIND_HOST;
	o.flags |= PST_MEM_PINNED;
	FAILS(pst_mem_wrap(addr, 1, &o, &m), EINVAL, "flags");
	o.flags = o.kind = 0;
	FAILS(pst_mem_wrap(0, 1, NULL, &m), EINVAL, "address");
	FAILS(pst_mem_wrap(addr, 0, NULL, &m), EINVAL, "length");
	FAILS(pst_mem_wrap(UINT64_MAX, 2, NULL, &m), EINVAL, "");
	FAILS(pst_mem_wrap(addr, UINT64_MAX, NULL, &m), EINVAL, "");
	o.kind = PST_KIND_SOFT;
	FAILS(pst_mem_wrap(addr, 1, &o, &m), EFAULT, "");
	FAILS(pst_mem_alloc("host", 1, &o, &m), EINVAL, "kind");
	o.kind = PST_KIND_CUDA;
	FAILS(pst_mem_wrap(addr, 1, &o, &m), ENODEV, "cuda");
	o.kind = 77;
	FAILS(pst_mem_wrap(addr, 1, &o, &m), ENODEV, "77");
	T_CHECK(!m);

	FAILS(pst_mem_copy_in(mem, 0, buf, 10001), ERANGE, "10000");
	FAILS(pst_mem_copy_in(mem, 10001, buf, 0), ERANGE, "10000");
	FAILS(pst_mem_copy_out(mem, UINT64_MAX, buf, 2), ERANGE, "");
	FAILS(pst_mem_copy_out(mem, 2, buf, UINT64_MAX), ERANGE, "");
	WORKS(pst_mem_copy_in(mem, 10000, buf, 0));
	WORKS(pst_mem_copy_in(mem, 9999, buf, 1));
	free_valid();
}

static void soft_ranges(void)
{
	struct pst_mem *m = rig_alloc("soft:0", 10000), *w = NULL;
	struct pst_mem_info info = { .sz = sizeof(info) };

	WORKS(pst_mem_info(m, &info));
	FAILS(pst_mem_wrap(info.addr, 10001, NULL, &w), ERANGE, "10000");
	FAILS(pst_mem_wrap(info.addr + 9999, 2, NULL, &w), ERANGE, "10000");
	FAILS(pst_mem_wrap(info.addr - 1, 100, NULL, &w), ERANGE, "");
	WORKS(pst_mem_wrap(info.addr + 9999, 1, NULL, &w));
	pst_mem_free(w);
	pst_mem_free(m);
}

/* ------------------------------------------------------------------ files */

static int try_open(const char *path, uint32_t flags)
{
	struct pst_file *f = NULL;
	int r = pst_file_open(path, flags, NULL, &f);

	pst_file_close(f);
	return r;
}

static int try_wrap(int fd, uint32_t flags)
{
	struct pst_file *f = NULL;
	int r = pst_file_wrap(fd, flags, NULL, &f);

	pst_file_close(f);
	return r;
}

static void file_flags(void)
{
	const char *path = rig_path("flags");
	struct pst_file_opts o = { .sz = sizeof(o), .flags = 1 };
	struct pst_file *f = NULL;

	rig_make(path, 1, 100);
	FAILS(try_open(NULL, PST_FILE_READ), EINVAL, "path");
	FAILS(try_open(path, 0), EINVAL, "PST_FILE_READ");
	FAILS(try_open(path, 1u << 7 | PST_FILE_READ), EINVAL, "flags");
	FAILS(try_open(path, PST_FILE_READ | PST_FILE_CREATE), EINVAL, "WRITE");
	FAILS(try_open(path, PST_FILE_READ | PST_FILE_TRUNC), EINVAL, "WRITE");
	FAILS(try_open(path, PST_FILE_WRITE | PST_FILE_EXCL), EINVAL, "CREATE");
	FAILS(pst_file_open(path, PST_FILE_READ, &o, &f), EINVAL, "flags");
	o.flags = 0;
	o.mode = 010000;
	FAILS(pst_file_open(path, PST_FILE_READ, &o, &f), EINVAL, "");
	FAILS(try_open(path, RIG_RW | PST_FILE_CREATE | PST_FILE_EXCL), EEXIST, "exists");
	FAILS(try_open("nix://host/x", PST_FILE_READ), EPROTONOSUPPORT, "./nix://host/x");
	FAILS(try_open("nix://host/x", RIG_NEW), EPROTONOSUPPORT, "knows");
	FAILS(try_open("pst://host/x", PST_FILE_READ), EINVAL, "HOST:PORT");
	FAILS(try_open("pst://host:1/", PST_FILE_READ), EINVAL, "pst://HOST:PORT/PATH");
	FAILS(try_open("pst+unix:///x", PST_FILE_READ), EINVAL, "pst+unix://SOCKET:/PATH");
	FAILS(try_open("pst://127.0.0.1:1/x", PST_FILE_READ), ECONNREFUSED, "127.0.0.1:1");
	FAILS(try_open("PST://host/x", PST_FILE_READ), ENOENT, "PST://host/x");
	FAILS(try_wrap(0, PST_FILE_READ), EINVAL, "flags");
	T_EQ(rig_slurp(path, 0, &(char[100]){ 0 }, 100), 100);
}

static void file_modes(void)
{
	struct pst_file_opts o = { .sz = sizeof(o), .mode = 0604 };
	mode_t mask = umask(022);
	struct pst_file *f = NULL;
	struct stat st;

	WORKS(pst_file_open(rig_path("m1"), RIG_NEW, &o, &f));
	pst_file_close(f);
	T_EQ(stat(rig_path("m1"), &st), 0);
	T_EQ(st.st_mode & 07777, 0604);
	WORKS(pst_file_open(rig_path("m2"), RIG_NEW, NULL, &f));
	pst_file_close(f);
	T_EQ(stat(rig_path("m2"), &st), 0);
	T_EQ(st.st_mode & 07777, 0644);
	(void)umask(mask);
}

static void things_that_are_no_files(void)
{
	char loop[300], long_path[5000], *slash;
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), p[2], fd;

	FAILS(try_open(rig_path("missing"), PST_FILE_READ), ENOENT, "missing");
	FAILS(try_open(rig_path("missing/x"), RIG_NEW), ENOENT, "missing");
	FAILS(try_open("", PST_FILE_READ), ENOENT, "");
	FAILS(try_open(rig_dir, PST_FILE_READ), EISDIR, rig_dir);
	FAILS(try_open(rig_dir, RIG_RW), EISDIR, rig_dir);
	FAILS(try_open("/dev/null", RIG_RW), ENXIO, "/dev/null");
	T_EQ(mkfifo(rig_path("fifo"), 0600), 0);
	FAILS(try_open(rig_path("fifo"), PST_FILE_READ), ENXIO, "fifo");
	FAILS(try_open(rig_path("fifo"), PST_FILE_WRITE), ENXIO, "fifo");
	(void)snprintf(un.sun_path, sizeof(un.sun_path), "%.90s/sock", rig_dir);
	T_EQ(bind(s, (struct sockaddr *)&un, sizeof(un)), 0);
	FAILS(try_open(un.sun_path, PST_FILE_READ), ENXIO, "sock");
	FAILS(try_wrap(s, 0), ENXIO, "socket");
	(void)close(s);
	rig_make(rig_path("plain"), 1, 10);
	(void)snprintf(loop, sizeof(loop), "%.200s/plain/below", rig_dir);
	FAILS(try_open(loop, PST_FILE_READ), ENOTDIR, "plain");
	T_EQ(symlink("loop", rig_path("loop")), 0);
	FAILS(try_open(rig_path("loop"), PST_FILE_READ), ELOOP, "loop");
	memset(long_path, 'x', sizeof(long_path) - 1);
	long_path[sizeof(long_path) - 1] = '\0';
	FAILS(try_open(long_path, PST_FILE_READ), ENAMETOOLONG, "xxx");
	(void)snprintf(loop, sizeof(loop), "%.200s/plain", rig_dir);
	slash = strrchr(loop, '/');
	memmove(slash + 2, slash + 1, strlen(slash));
	slash[1] = '\n'; /* a name with a newline must not break the error text */
	FAILS(try_open(loop, PST_FILE_READ), ENOENT, "");

	FAILS(try_wrap(-1, 0), EBADF, "-1");
	fd = open(rig_path("plain"), O_RDONLY | O_CLOEXEC);
	(void)close(fd);
	FAILS(try_wrap(fd, 0), EBADF, "");
	T_EQ(pipe2(p, O_CLOEXEC), 0);
	FAILS(try_wrap(p[0], 0), ENXIO, "");
	(void)close(p[0]);
	(void)close(p[1]);
	fd = open(rig_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	FAILS(try_wrap(fd, 0), EISDIR, "directory");
	(void)close(fd);
	fd = open(rig_path("plain"), O_RDWR | O_APPEND | O_CLOEXEC);
	FAILS(try_wrap(fd, 0), EINVAL, "O_APPEND");
	(void)close(fd);
	fd = open(rig_path("plain"), O_PATH | O_CLOEXEC);
	FAILS(try_wrap(fd, 0), EINVAL, "O_PATH");
	(void)close(fd);
}

static void wrapped_descriptors(void)
{
	static const int modes[] = {
		O_RDONLY,          O_WRONLY,           O_RDWR, O_RDONLY | O_DIRECT,
		O_RDWR | O_DIRECT, O_RDWR | O_NONBLOCK
	};
	struct pst_mem *m = rig_alloc("host", 4096);

	q = rig_queue(PST_BACKEND_AUTO, 4);
	rig_make(rig_path("wrapped"), 3, 8192);
	for (unsigned i = 0; i < RIG_NR(modes); i++) {
		int fd = open(rig_path("wrapped"), modes[i] | O_CLOEXEC),
		    acc = modes[i] & O_ACCMODE;
		struct pst_file *f = NULL;
		struct pst_io io;

		if (fd < 0)
			continue; /* this file system has no O_DIRECT */
		WORKS(pst_file_wrap(fd, 0, NULL, &f));
		T_EQ(rig_file_info(f).flags & RIG_RW, acc == O_RDONLY   ? PST_FILE_READ
						      : acc == O_WRONLY ? PST_FILE_WRITE
									: RIG_RW);
		T_EQ(fcntl(fd, F_GETFL) & (O_ACCMODE | O_DIRECT | O_NONBLOCK), modes[i]);
		(void)close(fd); /* the library keeps a duplicate */
		io = rig_io(PST_OP_READ, f, m, 10, 0, 1000);
		if (acc == O_WRONLY) {
			FAILS(pst_queue_prep(q, &io), EBADF, "reading");
		} else {
			T_EQ(rig_do(q, &io).res, 1000);
			T_EQ(rig_mem_differs(m, 0, 1000, 3, 10), 1000);
		}
		io.op = PST_OP_WRITE;
		if (acc == O_RDONLY)
			FAILS(pst_queue_prep(q, &io), EBADF, "writing");
		else
			T_EQ(rig_do(q, &io).res, 1000);
		rig_make(rig_path("wrapped"), 3, 8192);
		pst_file_close(f);
	}
	pst_mem_free(m);
	q = pst_queue_free(q);
}

/* Open a file that the user may not read. */
static void unreadable(void)
{
	int status;
	pid_t pid;

	rig_make(rig_path("secret"), 1, 100);
	T_EQ(chmod(rig_path("secret"), 0), 0);
	T_EQ(chmod(rig_dir, 0755), 0);
	pid = fork();
	if (pid == 0) {
		if (getuid() == 0 && setuid(65534) < 0)
			_exit(2);
		/* Safe in the child: the parent never used the library. */
		_exit(try_open(rig_path("secret"), PST_FILE_READ) == -EACCES &&
				      strstr(pst_error_text(), "secret")
			      ? 0
			      : 1);
	}
	T_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	T_EQ(status, 0);
}

int main(void)
{
	rig_init();
	/* run first: the case forks, which is allowed only before the library is used */
	RIG_RUN1(unreadable);
	RIG_RUN1(sizes_of_options);
	RIG_RUN1(sizes_of_answers);
	RIG_RUN1(device_names);
	RIG_RUN1(memory);
	RIG_RUN1(soft_ranges);
	RIG_RUN1(file_flags);
	RIG_RUN1(file_modes);
	RIG_RUN1(things_that_are_no_files);
	RIG_RUN1(wrapped_descriptors);
	return rig_done();
}
