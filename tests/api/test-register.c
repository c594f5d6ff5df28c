/* SPDX-License-Identifier: MIT */
/*
 * Host memory is registered with the kernel only when that pays: not for a single request, never
 * pages that nobody has touched, and never more than RLIMIT_MEMLOCK allows.
 */
#include <sys/mman.h>

#include "rig.h"

#include "child.h"
#include "registrations.h"

#define SEED 21
#define LEN RIG_MIB(2048)
#define FILE_LEN RIG_MIB(4)
#define SMALL UINT64_C(4096)
#define HUGE RIG_MIB(2) /* bytes; touching one byte may bring in a huge page */

/* Return a value of /proc/self/status, in bytes. */
static uint64_t status(const char *name)
{
	FILE *f = fopen("/proc/self/status", "re");
	unsigned long long kib = 0;
	char line[200];
	bool found = false;

	T_CHECK(f);
	while (!found && fgets(line, sizeof(line), f))
		found = !strncmp(line, name, strlen(name)) &&
			sscanf(line + strlen(name), ": %llu", &kib) == 1;
	(void)fclose(f);
	T_CHECK(found);
	return kib << 10;
}

static uint64_t bytes_there(struct pst_mem *m)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), nr = 0;
	unsigned char *there = malloc(LEN / page);

	T_CHECK(there);
	T_EQ(mincore(pst_mem_ptr(m), LEN, there), 0);
	for (uint64_t i = 0; i < LEN / page; i++)
		nr += there[i] & 1;
	free(there);
	return nr * page;
}

/* Make and open the file, after earlier rings have been freed, which happens in the background. */
static struct pst_file *data(void)
{
	uint64_t until = t_in_ms(RIG_WAIT_MS);

	while (status("VmPin") && t_now() < until)
		(void)usleep(1000);
	T_EQ(status("VmPin"), 0);
	rig_make(rig_path("data"), SEED, FILE_LEN);
	rig_cold(rig_path("data"));
	return rig_open(rig_path("data"), PST_FILE_READ);
}

static struct pst_done read_at(struct pst_file *f, struct pst_mem *m, uint64_t at)
{
	struct pst_io io = rig_io(PST_OP_READ, f, m, 0, at, SMALL);
	struct pst_done d;

	io.policy = rig_file_info(f).direct ? PST_POLICY1(PST_PATH_DIRECT)
					    : PST_POLICY1(PST_PATH_BUFFERED);
	d = rig_do(rig_q, &io);
	T_EQ(d.res, (int64_t)SMALL);
	return d;
}

/* Reads all over a large buffer bring in only the pages that they name, and register nothing. */
static void a_large_buffer_is_left_alone(void)
{
	struct pst_mem *m = rig_alloc("host", LEN);
	struct pst_file *f = data();
	uint64_t rss = status("VmRSS");
	unsigned nr = 0;

	for (uint64_t at = 0; at < LEN; at += LEN / 16, nr++)
		T_EQ(read_at(f, m, at).flags & PST_DONE_PINNED, 0);
	T_CHECK(bytes_there(m) <= nr * HUGE);
	T_CHECK(status("VmRSS") <= rss + nr * HUGE + RIG_MIB(4));
	T_EQ(status("VmPin"), 0);
	T_EQ(t_differs((char *)pst_mem_ptr(m) + LEN / 16, SEED, 0, SMALL), SMALL);
	pst_mem_free(m);
	pst_file_close(f);
}

/* Only pages that are used again and again are registered. */
static void what_is_used_is_registered(void)
{
	struct pst_mem *m = rig_alloc("host", LEN);
	uint64_t rss = status("VmRSS"), until = t_in_ms(RIG_WAIT_MS);
	struct pst_file *f = data();
	struct pst_done d;

	do
		d = read_at(f, m, LEN / 2);
	while (!(d.flags & PST_DONE_PINNED) && d.why == PST_WHY_NONE && t_now() < until &&
	       rig_backend == PST_BACKEND_URING);
	if (rig_backend == PST_BACKEND_URING && d.why == PST_WHY_NONE)
		T_CHECK(d.flags & PST_DONE_PINNED);
	/* The kernel counts whole huge pages. */
	T_CHECK(status("VmPin") <= HUGE);
	T_EQ(!!status("VmPin"), !!(d.flags & PST_DONE_PINNED));
	T_CHECK(bytes_there(m) <= HUGE);
	T_CHECK(status("VmRSS") <= rss + HUGE + RIG_MIB(4));
	pst_mem_free(m);
	pst_file_close(f);
	T_EQ(status("VmPin"), 0);
}

/* ----------------------------------------------- each registration is counted */

#define PART (UINT64_C(64) << 10)
#define LIMIT (UINT64_C(256) << 10) /* newer kernels count the ring, too */
#define FIRST (UINT64_C(128) << 10)
#define SECOND (UINT64_C(192) << 10)

/* Memory in small pages, each present because it was touched. */
struct small {
	uint8_t *at;
	uint64_t len;
	struct pst_mem *mem;
};

static struct small small_new(uint64_t len)
{
	struct pst_mem_opts o = { .sz = sizeof(o), .flags = PST_MEM_PINNED };
	struct small s = { .len = len };

	s.at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	T_CHECK(s.at != MAP_FAILED);
	(void)madvise(s.at, len, MADV_NOHUGEPAGE);
	T_OK(pst_mem_wrap((uintptr_t)s.at, len, &o, &s.mem));
	return s;
}

static void small_free(struct small *s)
{
	s->mem = pst_mem_free(s->mem);
	(void)munmap(s->at, s->len);
}

static struct pst_done read_small(struct pst_file *f, const struct small *s, uint64_t off,
				  uint64_t at, uint64_t len)
{
	struct pst_io io = rig_io(PST_OP_READ, f, s->mem, off, at, len);
	struct pst_done d;

	io.policy = rig_file_info(f).direct ? PST_POLICY1(PST_PATH_DIRECT)
					    : PST_POLICY1(PST_PATH_BUFFERED);
	d = rig_do(rig_q, &io);
	T_EQ(d.res, (int64_t)len);
	T_EQ(t_differs(s->at + at, SEED, off, len), len);
	return d;
}

/* Read again and again until the memory is registered. */
static void until_pinned(struct pst_file *f, const struct small *s, uint64_t at, uint64_t len)
{
	uint64_t until = t_hang();
	struct pst_done d;

	do
		d = read_small(f, s, 4096, at, len);
	while (!(d.flags & PST_DONE_PINNED) && t_now() < until);
	T_CHECK(d.flags & PST_DONE_PINNED);
}

/* Count the library's registrations, in a process of its own that has not used the library
 * before. */
static struct pst_file *begin_counting(void)
{
	struct pst_file *f;

	rig_backend = PST_BACKEND_URING;
	if (rig_backend_check(rig_backend) < 0)
		T_SKIP("io_uring: %s", pst_error_text());
	if (sysconf(_SC_PAGESIZE) != 4096)
		T_SKIP("pages of 4096 bytes");
	f = data();
	registrations_count();
	return f;
}

static void end_counting(struct pst_file *f)
{
	rig_q = pst_queue_free(rig_q);
	pst_file_close(f);
}

/* Each byte moves once: registering would cost more than it saves. */
static void nothing_read_once_here(void)
{
	struct pst_file *f = begin_counting();
	struct small s = small_new(FILE_LEN);

	rig_needs_memlock();
	rig_q = rig_queue(rig_backend, 8);
	memset(s.at, 1, s.len);
	for (uint64_t at = 0; at < FILE_LEN; at += PART)
		T_EQ(read_small(f, &s, at, at, PART).flags & PST_DONE_PINNED, 0);
	T_EQ(registrations, 0);
	T_EQ(status("VmPin"), 0);
	small_free(&s);
	end_counting(f);
}

static void nothing_that_is_read_once(void)
{
	child_run(nothing_read_once_here);
}

/* A registration grows to the pages that requests name, and includes none that was never
 * touched. */
static void grows_here(void)
{
	const uint64_t far = RIG_MIB(7);
	struct pst_file *f = begin_counting();
	struct small s = small_new(RIG_MIB(16));

	rig_needs_memlock();
	rig_q = rig_queue(rig_backend, 8);
	for (unsigned i = 0; i < 4096; i++)
		T_EQ(read_small(f, &s, 4096, i & 1 ? far : 0, 4096).flags & PST_DONE_PINNED, 0);
	T_EQ(registrations, 0);
	T_EQ(status("VmPin"), 0);

	/* Once the pages in between exist, the range is registered. */
	memset(s.at + 4096, 1, far - 4096);
	until_pinned(f, &s, 0, 4096);
	T_EQ(registrations, 1);
	T_EQ(status("VmPin"), far + 4096);
	T_CHECK(read_small(f, &s, 4096, far, 4096).flags & PST_DONE_PINNED);
	T_EQ(registrations, 1);

	until_pinned(f, &s, far + 4096, 4096);
	T_EQ(registrations, 2);
	T_EQ(status("VmPin"), far + 8192);
	small_free(&s);
	T_EQ(status("VmPin"), 0);
	end_counting(f);
}

static void grows_with_what_is_named(void)
{
	child_run(grows_here);
}

/* Run as a user who has to respect RLIMIT_MEMLOCK: above the limit the kernel is not called. */
static void little_memlock_here(void)
{
	struct rlimit rl = { LIMIT, LIMIT };
	struct pst_file *f = begin_counting();
	struct small s[2] = { small_new(RIG_MIB(1)), small_new(RIG_MIB(1)) };
	struct pst_done d;

	for (unsigned i = 0; i < RIG_NR(s); i++)
		memset(s[i].at, 1, s[i].len);
	if (setrlimit(RLIMIT_MEMLOCK, &rl) < 0 || (getuid() == 0 && setuid(t_stranger()) < 0))
		T_SKIP("another user: %s", strerror(errno));
	rig_q = rig_queue(rig_backend, 8);
	do
		d = read_small(f, &s[0], 4096, 0, FIRST);
	while (!(d.flags & PST_DONE_PINNED) && d.why != PST_WHY_MEMLOCK);
	if (!(d.flags & PST_DONE_PINNED))
		T_SKIP("this user has locked memory in other processes");
	T_EQ(registrations, 1);
	T_EQ(status("VmPin"), FIRST);
	for (unsigned i = 0; i < 200; i++) {
		d = read_small(f, &s[1], 4096, 0, SECOND);
		T_EQ(d.flags & PST_DONE_PINNED, 0);
	}
	T_EQ(d.why, PST_WHY_MEMLOCK);
	T_EQ(d.detail, ENOMEM);
	T_EQ(registrations, 1);
	T_EQ(status("VmPin"), FIRST);

	/* With room under the limit the memory is registered. */
	small_free(&s[0]);
	until_pinned(f, &s[1], 0, SECOND);
	T_EQ(registrations, 2);
	T_EQ(status("VmPin"), SECOND);

	/* Freeing the queue frees the room. */
	rig_q = pst_queue_free(rig_q);
	for (uint64_t until = t_hang(); status("VmPin") && t_now() < until;)
		(void)usleep(1000);
	T_EQ(status("VmPin"), 0);
	rig_q = rig_queue(rig_backend, 8);
	until_pinned(f, &s[1], 0, FIRST);
	T_EQ(registrations, 3);
	small_free(&s[1]);
	end_counting(f);
}

static void little_memlock(void)
{
	child_run(little_memlock_here);
}

/* The kernel refuses a registration: the library tries once, and all bytes arrive. */
static void refused_here(void)
{
	struct pst_file *f = begin_counting();
	struct small s = small_new(RIG_MIB(1));
	struct pst_done d;

	rig_q = rig_queue(rig_backend, 8);
	memset(s.at, 1, s.len);
	registrations_err = ENOMEM;
	for (unsigned i = 0; i < 200; i++) {
		d = read_small(f, &s, 4096, (i & 3) * PART, PART);
		T_EQ(d.flags & PST_DONE_PINNED, 0);
	}
	T_EQ(d.why, PST_WHY_MEMLOCK);
	T_EQ(d.detail, ENOMEM);
	T_EQ(registrations, 1);
	T_EQ(status("VmPin"), 0);
	small_free(&s);
	end_counting(f);
}

static void registration_that_is_refused(void)
{
	child_run(refused_here);
}

int main(void)
{
	rig_init();
	T_RUN(nothing_that_is_read_once);
	T_RUN(grows_with_what_is_named);
	T_RUN(little_memlock);
	T_RUN(registration_that_is_refused);
	RIG_RUN_BACKENDS(a_large_buffer_is_left_alone);
	RIG_RUN_BACKENDS(what_is_used_is_registered);
	return rig_done();
}
