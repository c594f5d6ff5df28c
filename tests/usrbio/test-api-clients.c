/* SPDX-License-Identifier: MIT */
/*
 * C1, C2, C5: use the library as large programs do, with their arguments, habits and mistakes:
 * NIXL's plug-in, fio's I/O engine, Mooncake's store.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "api_rig.h"
#include "usrbio/proto/id.h"

#define KIB 1024u
#define MIB (1024u * 1024u)

/* ---------------------------------------------------------------------- NIXL */

/*
 * NIXL finds the mount point itself, and makes a ring and memory for each transfer.  It prepares on
 * one thread and waits on another, with deadlines of CLOCK_MONOTONIC, which are long past by
 * CLOCK_REALTIME.
 */
#define NIXL_IOS 12u
#define NIXL_PIECE (128u * KIB)

static struct {
	char mount[256];
	struct hf3fs_ior ior;
	int fd;
	_Atomic unsigned done, bad;
	unsigned wanted;
} nixl;

struct nixl_io {
	struct hf3fs_iov iov;
	uint8_t *addr; /* memory of NIXL's user */
	size_t offset;
	_Atomic bool done;
};

static void *nixl_waiter(void *arg)
{
	static struct hf3fs_cqe cqes[1024];
	uint64_t end = t_in_ms(API_WAIT_MS);

	(void)arg;
	while (nixl.done < nixl.wanted && t_now() < end) {
		struct timespec ts;
		int n;

		(void)clock_gettime(CLOCK_MONOTONIC, &ts);
		ts.tv_nsec += 10000000;
		if (ts.tv_nsec >= 1000000000) {
			ts.tv_sec++;
			ts.tv_nsec -= 1000000000;
		}
		n = hf3fs_wait_for_ios(&nixl.ior, cqes, 1024, 1, &ts);
		if (n < 0) {
			nixl.bad++;
			return NULL;
		}
		for (int i = 0; i < n; i++) {
			struct nixl_io *io = (struct nixl_io *)(uintptr_t)cqes[i].userdata;

			if (cqes[i].result < 0 || io->done)
				nixl.bad++;
			io->done = true;
			nixl.done++;
		}
	}
	return NULL;
}

/* Prepare one transfer once, and post it several times. */
static void nixl_transfer(struct nixl_io *ios, bool read, unsigned posts)
{
	pthread_t waiter;

	nixl.done = nixl.bad = 0;
	T_EQ(hf3fs_iorcreate(&nixl.ior, nixl.mount, NIXL_IOS, read, 0, -1), 0);
	for (unsigned p = 1; p <= posts; p++) {
		nixl.wanted = p * NIXL_IOS;
		T_EQ(pthread_create(&waiter, NULL, nixl_waiter, NULL), 0);
		for (unsigned i = 0; i < NIXL_IOS; i++) {
			ios[i].done = false;
			T_CHECK(hf3fs_prep_io(&nixl.ior, &ios[i].iov, read, ios[i].iov.base,
					      nixl.fd, ios[i].offset, NIXL_PIECE, &ios[i]) >= 0);
		}
		T_EQ(hf3fs_submit_ios(&nixl.ior), 0);
		T_EQ(pthread_join(waiter, NULL), 0);
		T_EQ(nixl.bad, 0);
		T_EQ(nixl.done, nixl.wanted);
	}
	hf3fs_iordestroy(&nixl.ior);
}

static void nixl_begin(void)
{
	char slash[200];

	(void)snprintf(slash, sizeof(slash), "%s/", mnt);
	T_CHECK(hf3fs_extract_mount_point(nixl.mount, 256, slash) > 0);
	T_CHECK(!strcmp(nixl.mount, mnt));
	nixl.fd = open(api_path("nixl"), O_RDWR | O_CREAT | O_TRUNC, 0744);
	T_CHECK(nixl.fd >= 0 && hf3fs_reg_fd(nixl.fd, 0) <= 0);
}

static void nixl_end(void)
{
	hf3fs_dereg_fd(nixl.fd);
	(void)close(nixl.fd);
}

/* Unregistered memory is copied through shared memory, which is made for each transfer. */
static void C1_nixl_dram(void)
{
	static uint8_t user[NIXL_IOS * NIXL_PIECE];
	struct nixl_io ios[NIXL_IOS];

	nixl_begin();
	t_fill(user, 3, 0, sizeof(user));
	for (int read = 0; read < 2; read++) {
		for (unsigned i = 0; i < NIXL_IOS; i++) {
			struct nixl_io *io = &ios[i];

			memset(io, 0, sizeof(*io));
			io->offset = (size_t)i * NIXL_PIECE;
			io->addr = user + io->offset;
			T_EQ(hf3fs_iovcreate(&io->iov, nixl.mount, NIXL_PIECE, NIXL_PIECE, -1), 0);
			if (!read)
				memcpy(io->iov.base, io->addr, NIXL_PIECE);
		}
		nixl_transfer(ios, read, 3);
		for (unsigned i = 0; i < NIXL_IOS; i++) {
			if (read)
				memcpy(ios[i].addr, ios[i].iov.base, NIXL_PIECE);
			hf3fs_iovdestroy(&ios[i].iov);
		}
		if (!read)
			memset(user, 0, sizeof(user));
	}
	T_EQ(t_differs(user, 3, 0, sizeof(user)), sizeof(user));
	nixl_end();
}

/* Registered memory: it becomes shared memory at the same address, published under a UUID. */
static void nixl_zero_copy(struct nixl_io *io, uint8_t *user, char link[PATH_MAX])
{
	char shm[64], target[80], id[USRBIO_ID_TEXT];
	uint8_t bytes[16];
	int fd;

	T_EQ(usrbio_id_new(bytes), 0);
	usrbio_id_format(bytes, id);
	(void)snprintf(shm, sizeof(shm), "/nixl_hf3fs.%s", id);
	(void)snprintf(target, sizeof(target), "/dev/shm%s", shm);
	(void)snprintf(link, PATH_MAX, "%s/3fs-virt/iovs/%s", nixl.mount, id);
	fd = shm_open(shm, O_CREAT | O_RDWR, 0666);
	T_CHECK(fd >= 0);
	T_EQ(ftruncate(fd, NIXL_PIECE), 0);
	T_EQ(pwrite(fd, user, NIXL_PIECE, 0), NIXL_PIECE);
	T_CHECK(mmap(user, NIXL_PIECE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
		user);
	(void)close(fd);
	T_EQ(symlink(target, link), 0);
	T_EQ(shm_unlink(shm), 0);
	memset(io, 0, sizeof(*io));
	io->addr = user;
	T_EQ(hf3fs_iovwrap(&io->iov, user, bytes, nixl.mount, NIXL_PIECE, NIXL_PIECE, -1), 0);
}

static void C1_nixl_dram_zc(void)
{
	size_t size = (size_t)NIXL_IOS * NIXL_PIECE;
	static char links[NIXL_IOS][PATH_MAX];
	struct nixl_io ios[NIXL_IOS];
	uint8_t *user;

	nixl_begin();
	user = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	T_CHECK(user != MAP_FAILED);
	t_fill(user, 4, 0, size);
	for (unsigned i = 0; i < NIXL_IOS; i++) {
		nixl_zero_copy(&ios[i], user + (size_t)i * NIXL_PIECE, links[i]);
		ios[i].offset = (size_t)i * NIXL_PIECE;
	}
	T_EQ(t_differs(user, 4, 0, size), size);
	nixl_transfer(ios, false, 2);
	memset(user, 0, size);
	nixl_transfer(ios, true, 2);
	T_EQ(t_differs(user, 4, 0, size), size);
	for (unsigned i = 0; i < NIXL_IOS; i++) {
		hf3fs_iovdestroy(&ios[i].iov);
		T_EQ(unlink(links[i]), 0);
	}
	T_EQ(munmap(user, size), 0);
	nixl_end();
}

/* ----------------------------------------------------------------------- fio */

/*
 * fio has a ring per direction, batches with a timeout and one piece of memory.  It assumes page
 * alignment, registers each descriptor when it is opened, and waits in each commit for all requests
 * without a deadline.
 */
#define FIO_DEPTH 16
#define FIO_BS (64u * KIB)

static struct {
	struct hf3fs_ior read, write;
	struct hf3fs_iov mem;
	int fd;
} fio;

static void fio_commit(bool read, unsigned first, unsigned nr)
{
	const struct hf3fs_ior *ior = read ? &fio.read : &fio.write;
	struct hf3fs_cqe cqes[FIO_DEPTH];
	int n;

	for (unsigned i = 0; i < nr; i++)
		T_CHECK(hf3fs_prep_io(ior, &fio.mem, read, fio.mem.base + (size_t)i * FIO_BS,
				      fio.fd, (size_t)(first + i) * FIO_BS, FIO_BS, NULL) >= 0);
	T_EQ(hf3fs_submit_ios(ior), 0);
	n = hf3fs_wait_for_ios(ior, cqes, (int)nr, (int)nr, NULL);
	T_EQ(n, nr);
	for (int i = 0; i < n; i++)
		T_EQ(cqes[i].result, FIO_BS);
}

/* Run a job.  ior_depth: 0, or negative for batches. */
static void fio_job(int ior_depth)
{
	T_EQ(hf3fs_iorcreate3(&fio.read, mnt, FIO_DEPTH, true, ior_depth, 0, 1, -1), 0);
	T_EQ(hf3fs_iorcreate(&fio.write, mnt, FIO_DEPTH, false, ior_depth, -1), 0);
	T_EQ(hf3fs_iovcreate(&fio.mem, mnt, (size_t)FIO_DEPTH * FIO_BS, 0, -1), 0);
	T_EQ((uintptr_t)fio.mem.base % 4096, 0);
	fio.fd = open(api_path("fio"), O_RDWR | O_CREAT | O_TRUNC, 0644);
	T_CHECK(fio.fd >= 0);
	(void)hf3fs_reg_fd(fio.fd, 0);

	/* Write, then read and verify; the last commit is partial. */
	for (unsigned at = 0; at < 40; at += FIO_DEPTH) {
		unsigned nr = 40 - at < FIO_DEPTH ? 40 - at : FIO_DEPTH;

		t_fill(fio.mem.base, 6, (uint64_t)at * FIO_BS, (size_t)nr * FIO_BS);
		fio_commit(false, at, nr);
	}
	for (unsigned at = 0; at < 40; at += FIO_DEPTH) {
		unsigned nr = 40 - at < FIO_DEPTH ? 40 - at : FIO_DEPTH;

		memset(fio.mem.base, 0, (size_t)nr * FIO_BS);
		fio_commit(true, at, nr);
		T_EQ(t_differs(fio.mem.base, 6, (uint64_t)at * FIO_BS, (size_t)nr * FIO_BS),
		     nr * FIO_BS);
	}
	/* One request at a time, as in fio's synchronous workloads. */
	for (unsigned i = 0; i < 20; i++)
		fio_commit(i % 2, i, 1);
	hf3fs_dereg_fd(fio.fd);
	(void)close(fio.fd);
	hf3fs_iovdestroy(&fio.mem);
	/* fio itself never destroys its rings. */
	hf3fs_iordestroy(&fio.read);
	hf3fs_iordestroy(&fio.write);
}

static void C2_fio_any_depth(void)
{
	fio_job(0);
}

static void C2_fio_batches(void)
{
	fio_job(-FIO_DEPTH);
}

/* ------------------------------------------------------------------ Mooncake */

/* Mooncake's threads have their own memory and two rings each, one request at a time, and no
 * deadline. */
#define MOON_THREADS 3
#define MOON_MEM (32u * MIB)

static _Atomic unsigned moon_bad;

static int64_t moon_io(const struct hf3fs_ior *ior, const struct hf3fs_iov *mem, bool read, int fd,
		       size_t off, size_t len)
{
	struct hf3fs_cqe cqe = { .result = -1 };

	if (hf3fs_prep_io(ior, mem, read, mem->base, fd, off, len, NULL) < 0 ||
	    hf3fs_submit_ios(ior) != 0 || hf3fs_wait_for_ios(ior, &cqe, 1, 1, NULL) != 1)
		return -1;
	return cqe.result;
}

static bool moon_object(const struct hf3fs_ior *rd, const struct hf3fs_ior *wr,
			const struct hf3fs_iov *mem, int k, int round)
{
	size_t len = 300000 + (size_t)round * 77777;
	char name[64];
	bool good;
	int fd;

	(void)snprintf(name, sizeof(name), "%s/object-%d-%d", mnt, k, round);
	fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0664);
	if (fd < 0 || hf3fs_reg_fd(fd, 0) > 0)
		return false;
	t_fill(mem->base, (uint64_t)k, 0, len);
	good = moon_io(wr, mem, false, fd, 0, len) == (int64_t)len;
	memset(mem->base, 0, len);
	good = good && moon_io(rd, mem, true, fd, 0, MOON_MEM) == (int64_t)len;
	good = good && t_differs(mem->base, (uint64_t)k, 0, len) == len;
	hf3fs_dereg_fd(fd);
	(void)close(fd);
	return good;
}

static void *moon_thread(void *arg)
{
	int k = (int)(intptr_t)arg;
	struct hf3fs_ior rd, wr;
	struct hf3fs_iov mem;

	if (hf3fs_iovcreate(&mem, mnt, MOON_MEM, 0, -1) != 0 ||
	    hf3fs_iorcreate4(&rd, mnt, 16, true, 0, 0, -1, 0) != 0 ||
	    hf3fs_iorcreate4(&wr, mnt, 16, false, 0, 0, -1, 0) != 0) {
		moon_bad++;
		return NULL;
	}
	for (int round = 0; round < 4; round++)
		if (!moon_object(&rd, &wr, &mem, k, round))
			moon_bad++;
	hf3fs_iordestroy(&rd);
	hf3fs_iordestroy(&wr);
	hf3fs_iovdestroy(&mem);
	return NULL;
}

static void C5_mooncake_threads(void)
{
	pthread_t t[MOON_THREADS];

	moon_bad = 0;
	for (intptr_t i = 0; i < MOON_THREADS; i++)
		T_EQ(pthread_create(&t[i], NULL, moon_thread, (void *)i), 0);
	for (int i = 0; i < MOON_THREADS; i++)
		T_EQ(pthread_join(t[i], NULL), 0);
	T_EQ(moon_bad, 0);
}

int main(void)
{
	api_init();
	API_RUN(C1_nixl_dram);
	API_RUN(C1_nixl_dram_zc);
	API_RUN(C2_fio_any_depth);
	API_RUN(C2_fio_batches);
	API_RUN(C5_mooncake_threads);
	return api_done();
}
