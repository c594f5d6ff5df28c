/* SPDX-License-Identifier: MIT */
/*
 * Rings of a mount while programs also use its files in other ways.  The mount is PST_TEST_MOUNT's
 * penstock-mount.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mount.h>

#include "api_rig.h"
#include "mount_procs.h"

#define PAGE 4096u
#define LEN (64 * PAGE)

static struct mount_rig rig;
static struct hf3fs_iov iov;
static struct hf3fs_ior reads, writes;
static int fd;
static uint64_t dice_state;

static unsigned dice(unsigned below)
{
	dice_state ^= dice_state << 13;
	dice_state ^= dice_state >> 7;
	dice_state ^= dice_state << 17;
	return (unsigned)(dice_state % below);
}

static void begin(void)
{
	if (!getenv("PST_TEST_MOUNT"))
		T_SKIP("PST_TEST_MOUNT, which names penstock-mount");
	if (mount_rig_start(&rig, API_DAEMON, NULL) < 0)
		T_SKIP("%s", rig.why);
	mnt = rig.mnt;
	T_EQ(chmod(rig.back, 0777), 0);
	iov = api_iov(LEN);
	reads = api_ior(8, true);
	writes = api_ior(8, false);
	fd = api_open("data", LEN);
	dice_state = 88172645463325252u;
}

static void end(void)
{
	hf3fs_iordestroy(&reads);
	hf3fs_iordestroy(&writes);
	hf3fs_iovdestroy(&iov);
	hf3fs_dereg_fd(fd);
	(void)close(fd);
	T_EQ(api_shm(), 0);
	T_EQ(mount_rig_stop(&rig), 0);
}

static uint8_t *map(int of)
{
	void *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, of, 0);

	T_CHECK(p != MAP_FAILED);
	return p;
}

/* Pick a random range of the file. */
static size_t some_range(size_t *ret_len)
{
	size_t off = dice(LEN - 1);

	*ret_len = 1 + dice(dice(4) ? 3 * PAGE : 100);
	if (*ret_len > LEN - off)
		*ret_len = LEN - off;
	return off;
}

/* ------------------------------------------------------------------ bytes */

/*
 * When the completion arrives, a mapping, another program's descriptor and a new one see what the
 * ring wrote.
 */
static void mappings_see_ring_writes(void)
{
	static uint8_t buf[4 * PAGE];
	uint8_t *p;
	int other;

	begin();
	other = open(api_path("data"), O_RDONLY | O_CLOEXEC);
	T_CHECK(other >= 0);
	p = map(fd);
	T_EQ(t_differs(p, API_SEED, 0, LEN), LEN);
	for (unsigned i = 0; i < 400; i++) {
		size_t len, off = some_range(&len);

		/* Both pages are mapped in before each write. */
		T_CHECK(p[off] == p[off] && p[off + len - 1] == p[off + len - 1]);
		T_EQ(pread(other, buf, len, (off_t)off), len);
		t_fill(iov.base, i, off, len);
		T_EQ(api_io(&writes, &iov, 0, fd, off, len), len);
		T_EQ(t_differs(p + off, i, off, len), len);
		T_EQ(pread(other, buf, len, (off_t)off), len);
		T_EQ(t_differs(buf, i, off, len), len);
		if (i % 50 == 0) {
			int later = open(api_path("data"), O_RDONLY | O_CLOEXEC);

			T_EQ(pread(later, buf, len, (off_t)off), len);
			T_EQ(t_differs(buf, i, off, len), len);
			T_EQ(close(later), 0);
		}
	}
	T_EQ(munmap(p, LEN), 0);
	T_EQ(close(other), 0);
	end();
}

/* A ring reads bytes that pwrite() wrote, and bytes of a mapping after msync(). */
static void rings_see_writes(void)
{
	static uint8_t buf[4 * PAGE];
	uint8_t *p;

	begin();
	p = map(fd);
	for (unsigned i = 0; i < 200; i++) {
		size_t len, off = some_range(&len);

		t_fill(buf, i, off, len);
		if (i % 4) {
			T_EQ(pwrite(fd, buf, len, (off_t)off), len);
		} else {
			memcpy(p + off, buf, len);
			T_EQ(msync(p, LEN, MS_SYNC), 0);
		}
		T_EQ(api_io(&reads, &iov, PAGE, fd, off, len), len);
		T_EQ(t_differs(iov.base + PAGE, i, off, len), len);
	}
	T_EQ(munmap(p, LEN), 0);
	end();
}

/* Dirty pages of a mapping around a ring's write are kept. */
static void pages_around_stay(void)
{
	uint8_t *p;

	begin();
	p = map(fd);
	for (unsigned i = 0; i < 50; i++) {
		size_t off = dice(LEN / PAGE - 2) * PAGE;

		t_fill(p + off, 1000 + i, off, PAGE);
		t_fill(p + off + 2 * PAGE, 2000 + i, off, PAGE);
		t_fill(iov.base, i, off, PAGE);
		T_EQ(api_io(&writes, &iov, 0, fd, off + PAGE, PAGE), PAGE);
		T_EQ(t_differs(p + off, 1000 + i, off, PAGE), PAGE);
		T_EQ(t_differs(p + off + PAGE, i, off, PAGE), PAGE);
		T_EQ(t_differs(p + off + 2 * PAGE, 2000 + i, off, PAGE), PAGE);
	}
	T_EQ(munmap(p, LEN), 0);
	end();
}

/* Writes beyond the end: the new size is visible at once. */
static void files_grow(void)
{
	static uint8_t buf[PAGE];
	struct stat st;
	size_t size = LEN;
	int other;

	begin();
	other = open(api_path("data"), O_RDONLY | O_CLOEXEC);
	for (unsigned i = 0; i < 50; i++) {
		size_t len = 1 + dice(PAGE);

		t_fill(iov.base, i, size, len);
		T_EQ(api_io(&writes, &iov, 0, fd, size, len), len);
		T_EQ(fstat(other, &st), 0);
		T_EQ(st.st_size, size + len);
		T_EQ(pread(other, buf, len, (off_t)size), len);
		T_EQ(t_differs(buf, i, size, len), len);
		size += len;
	}
	T_EQ(close(other), 0);
	end();
}

/* -------------------------------------------------------------------- rest */

#define THREADS_MAX 64u

/* CPU time and number of wake-ups, per thread of a process. */
struct usage {
	unsigned nr;
	struct {
		int tid;
		unsigned long long ns, times;
	} of[THREADS_MAX];
};

static struct usage usage_of(pid_t pid)
{
	struct usage u = { 0 };
	char path[64];
	struct dirent *e;
	DIR *d;

	(void)snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	d = opendir(path);
	while (d && (e = readdir(d)) && u.nr < THREADS_MAX) {
		unsigned long long wait;
		char of[400];
		FILE *f;

		(void)snprintf(of, sizeof(of), "%s/%s/schedstat", path, e->d_name);
		f = e->d_name[0] == '.' ? NULL : fopen(of, "re");
		u.of[u.nr].tid = atoi(e->d_name);
		if (f && fscanf(f, "%llu %llu %llu", &u.of[u.nr].ns, &wait, &u.of[u.nr].times) == 3)
			u.nr++;
		if (f)
			(void)fclose(f);
	}
	if (d)
		(void)closedir(d);
	return u;
}

/* Add up increases; kernel threads of io_uring may start and end in between. */
static void add_used(const struct usage *a, const struct usage *b, unsigned long long *ret_ns,
		     unsigned long long *ret_times)
{
	*ret_ns = *ret_times = 0;
	for (unsigned i = 0; i < b->nr; i++)
		for (unsigned k = 0; k < a->nr; k++)
			if (a->of[k].tid == b->of[i].tid) {
				*ret_ns += b->of[i].ns - a->of[k].ns;
				*ret_times += b->of[i].times - a->of[k].times;
			}
}

/*
 * An idle mount does not poll: at most a hundredth of two seconds is used.  Polling each
 * millisecond would wake 2,000 times; the kernel of a busy machine sends some calls to every mount.
 */
static void idle_costs_nothing(void)
{
	struct usage before[2], after;
	pid_t pids[2];

	begin();
	for (unsigned i = 0; i < 2000; i++)
		T_EQ(api_io(&reads, &iov, 0, fd, i % 60 * PAGE, PAGE), PAGE);
	pids[0] = rig.pid;
	pids[1] = procs_worker(&rig);
	(void)usleep(100000);
	for (unsigned i = 0; i < 2; i++)
		before[i] = usage_of(pids[i]);
	T_CHECK(before[0].nr && before[1].nr);
	(void)usleep(2000000);
	for (unsigned i = 0; i < 2; i++) {
		unsigned long long ns, times;

		after = usage_of(pids[i]);
		add_used(&before[i], &after, &ns, &times);
		printf("# process %u: %llu ns, %llu times\n", i, ns, times);
		T_CHECK(ns < 20000000);
		T_CHECK(times < 200);
	}
	end();
}

/* -------------------------------------------------------------- namespaces */

/* Use private rings on the same mount. */
static int use_rings(void)
{
	struct hf3fs_iov mine = api_iov(65536);
	struct hf3fs_ior ring = api_ior(4, true);
	int file = api_open("other", 65536);

	T_EQ(api_io(&ring, &mine, 4096, file, 8192, 4096), 4096);
	T_EQ(t_differs(mine.base + 4096, API_SEED, 8192, 4096), 4096);
	hf3fs_iordestroy(&ring);
	hf3fs_iovdestroy(&mine);
	api_close(file);
	T_EQ(api_links(""), 3);
	return 0;
}

static int in_mount_namespace(void)
{
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return 77;
	return use_rings();
}

static bool unshare_pids(void)
{
	return unshare(CLONE_NEWPID | CLONE_NEWNS) == 0 &&
	       mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

static int with_proc(void)
{
	return mount("none", "/proc", "proc", 0, NULL) < 0 ? 77 : use_rings();
}

static int in_pid_namespace(void)
{
	return unshare_pids() ? api_child(with_proc) : 77;
}

/* Publish and end without removing anything. */
static int publish_and_go(void)
{
	if (mount("none", "/proc", "proc", 0, NULL) < 0)
		return 77;
	(void)api_iov(65536);
	_exit(0);
}

static int ends_in_pid_namespace(void)
{
	return unshare_pids() ? api_child(publish_and_go) : 77;
}

/* Use another PID namespace's /proc, which does not show the clients' processes. */
static int with_proc_of_others(void)
{
	struct hf3fs_iov mine = { 0 };

	T_EQ(hf3fs_iovcreate(&mine, mnt, 65536, 0, -1), -EXDEV);
	return 0;
}

static int in_pid_namespace_without_proc(void)
{
	return unshare_pids() ? api_child(with_proc_of_others) : 77;
}

static void until_links(unsigned nr)
{
	uint64_t until = t_hang();

	while (api_links("") != nr && t_now() < until)
		(void)usleep(1000);
	T_EQ(api_links(""), nr);
}

static void needs(int status)
{
	if (status == 77)
		T_SKIP("mounts of its own, or processes");
	T_EQ(status, 0);
}

/* Clients in other PID namespaces are served, and the server notices their end. */
static void other_namespaces(void)
{
	begin();
	needs(api_child(in_mount_namespace));
	needs(api_child(in_pid_namespace));
	needs(api_child(in_pid_namespace_without_proc));
	T_EQ(api_links(""), 3);
	needs(api_child(ends_in_pid_namespace));
	until_links(3);
	end();
	procs_remove_shm();
}

static int with_another_shm(void)
{
	struct hf3fs_iov mine = { 0 };

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("none", "/dev/shm", "tmpfs", 0, NULL) < 0)
		return 77;
	T_EQ(hf3fs_iovcreate(&mine, mnt, 65536, 0, -1), -EINVAL);
	return 0;
}

/* A program with another /dev/shm gets an error: the server would find no memory, or another
 * program's. */
static void another_shm(void)
{
	begin();
	needs(api_child(with_another_shm));
	T_EQ(api_links(""), 3);
	T_EQ(api_io(&reads, &iov, 0, fd, 0, PAGE), PAGE);
	end();
}

/* ------------------------------------------------------------------ clients */

static atomic_uint bad_reads;

static void *read_much(void *arg)
{
	size_t len = *(const size_t *)arg;
	struct hf3fs_iov mine = { 0 };
	struct hf3fs_ior ring = { 0 };

	if (hf3fs_iovcreate(&mine, mnt, LEN, 0, -1) ||
	    hf3fs_iorcreate4(&ring, mnt, 4, true, 0, 0, -1, 0)) {
		(void)atomic_fetch_add(&bad_reads, 1);
		return NULL;
	}
	for (unsigned i = 0; i < 500; i++) {
		size_t off = i * PAGE % (LEN - len + 1);
		struct hf3fs_cqe c = { 0 };

		if (hf3fs_prep_io(&ring, &mine, true, mine.base, fd, off, len, NULL) < 0 ||
		    hf3fs_submit_ios(&ring) < 0 || hf3fs_wait_for_ios(&ring, &c, 1, 1, NULL) != 1 ||
		    c.result != (int64_t)len ||
		    t_differs((const uint8_t *)mine.base, API_SEED, off, len) != len)
			(void)atomic_fetch_add(&bad_reads, 1);
	}
	hf3fs_iordestroy(&ring);
	hf3fs_iovdestroy(&mine);
	return NULL;
}

/* Small and large requests of several rings at once, so that watchers take turns. */
static void several_rings(void)
{
	static const size_t lens[] = { PAGE, LEN, 1, LEN / 2, PAGE, LEN };
	pthread_t threads[6];

	begin();
	atomic_store(&bad_reads, 0);
	for (unsigned i = 0; i < 6; i++)
		T_EQ(pthread_create(&threads[i], NULL, read_much, (void *)(uintptr_t)&lens[i]), 0);
	for (unsigned i = 0; i < 6; i++)
		T_EQ(pthread_join(threads[i], NULL), 0);
	T_EQ(bad_reads, 0);
	end();
}

int main(void)
{
	api_init();
	T_RUN(mappings_see_ring_writes);
	T_RUN(rings_see_writes);
	T_RUN(pages_around_stay);
	T_RUN(files_grow);
	T_RUN(idle_costs_nothing);
	T_RUN(other_namespaces);
	T_RUN(another_shm);
	T_RUN(several_rings);
	return api_done();
}
