/* SPDX-License-Identifier: MIT */
/* Mapped files. */
#include <sys/mman.h>

#include "mount_case.h"
#include "bytes.h"

#define PAGE 4096u
#define LEN (16 * PAGE)

static int pattern_file(const char *name)
{
	static uint8_t buf[LEN];
	int fd = CASE_OK(open(at(name), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));

	t_fill(buf, 1, 0, LEN);
	T_EQ(pwrite(fd, buf, LEN, 0), LEN);
	return fd;
}

static uint8_t *map(int fd, int prot, int flags)
{
	void *p = mmap(NULL, LEN, prot, flags, fd, 0);

	if (p == MAP_FAILED)
		T_FAIL("mmap gave %s", strerrorname_np(errno));
	return p;
}

static void unmap(uint8_t *p)
{
	T_EQ(munmap(p, LEN), 0);
}

static void mapping_and_calls(void)
{
	int fd = pattern_file("file");
	uint8_t *p = map(fd, PROT_READ | PROT_WRITE, MAP_SHARED), buf[100];

	T_EQ(t_differs(p, 1, 0, LEN), LEN);
	/* Mapping and descriptor see each other's writes at once. */
	t_fill(buf, 2, 0, sizeof(buf));
	T_EQ(pwrite(fd, buf, sizeof(buf), PAGE - 50), sizeof(buf));
	T_EQ(t_differs(p + PAGE - 50, 2, 0, sizeof(buf)), sizeof(buf));
	t_fill(p + 3 * PAGE - 50, 3, 0, sizeof(buf));
	T_EQ(pread(fd, buf, sizeof(buf), 3 * PAGE - 50), sizeof(buf));
	T_EQ(t_differs(buf, 3, 0, sizeof(buf)), sizeof(buf));
	unmap(p);
	case_close(fd);
}

static void mapping_and_source(void)
{
	int fd = pattern_file("file"), source;
	uint8_t *p = map(fd, PROT_READ | PROT_WRITE, MAP_SHARED), buf[100];

	t_fill(p + PAGE - 50, 2, 0, sizeof(buf));
	T_EQ(msync(p, LEN, MS_SYNC), 0);
	source = CASE_OK(open(at_source("file"), O_RDWR | O_CLOEXEC));
	T_EQ(pread(source, buf, sizeof(buf), PAGE - 50), sizeof(buf));
	T_EQ(t_differs(buf, 2, 0, sizeof(buf)), sizeof(buf));
	T_EQ(case_stat(at_source("file")).st_size, LEN);
	/* Without msync(), mapped bytes are written when the file is closed, at the latest. */
	t_fill(p + 5 * PAGE, 3, 0, sizeof(buf));
	unmap(p);
	case_close(fd);
	T_EQ(pread(source, buf, sizeof(buf), 5 * PAGE), sizeof(buf));
	T_EQ(t_differs(buf, 3, 0, sizeof(buf)), sizeof(buf));
	case_close(source);
}

/*
 * Mapped pages are written back through any descriptor that is open for writing, at their own
 * offsets even with O_APPEND.
 */
static void mapping_and_append(void)
{
	int fd = pattern_file("file");
	int other = CASE_OK(open(at("file"), O_RDWR | O_APPEND | O_CLOEXEC));
	uint8_t *p = map(fd, PROT_READ | PROT_WRITE, MAP_SHARED);
	uint8_t *q = map(other, PROT_READ | PROT_WRITE, MAP_SHARED), buf[PAGE];
	int source;

	case_close(fd);
	t_fill(p + PAGE, 2, 0, PAGE);
	T_EQ(msync(p, LEN, MS_SYNC), 0);
	t_fill(q + 3 * PAGE, 3, 0, PAGE);
	T_EQ(msync(q, LEN, MS_SYNC), 0);
	T_EQ(write(other, "end", 3), 3);
	source = CASE_OK(open(at_source("file"), O_RDONLY | O_CLOEXEC));
	T_EQ(case_fstat(source).st_size, LEN + 3);
	T_EQ(pread(source, buf, PAGE, PAGE), PAGE);
	T_EQ(t_differs(buf, 2, 0, PAGE), PAGE);
	T_EQ(pread(source, buf, PAGE, 3 * PAGE), PAGE);
	T_EQ(t_differs(buf, 3, 0, PAGE), PAGE);
	T_EQ(pread(source, buf, PAGE, LEN), 3);
	case_close(source);
	unmap(p);
	unmap(q);
	case_close(other);
}

static struct gate ask, answer;

static void other_maps(void)
{
	int fd = CASE_OK(open(at("file"), O_RDWR | O_CLOEXEC));
	uint8_t *p = map(fd, PROT_READ | PROT_WRITE, MAP_SHARED);

	gate_pass(ask);
	T_EQ(t_differs(p + PAGE, 2, 0, PAGE), PAGE);
	t_fill(p + 2 * PAGE, 3, 0, PAGE);
	gate_open(answer);
	gate_pass(ask);
	T_EQ(t_differs(p + 3 * PAGE, 4, 0, PAGE), PAGE);
	unmap(p);
	case_close(fd);
}

static void mapped_by_two_processes(void)
{
	int fd = pattern_file("file");
	uint8_t *p = map(fd, PROT_READ | PROT_WRITE, MAP_SHARED), buf[PAGE];
	struct child c;

	ask = gate_new();
	answer = gate_new();
	c = child_start(other_maps);
	t_fill(p + PAGE, 2, 0, PAGE);
	gate_open(ask);
	gate_pass(answer);
	T_EQ(t_differs(p + 2 * PAGE, 3, 0, PAGE), PAGE);
	t_fill(buf, 4, 0, PAGE);
	T_EQ(pwrite(fd, buf, PAGE, 3 * PAGE), PAGE);
	gate_open(ask);
	case_wait(&c);
	T_EQ(t_differs(p + 2 * PAGE, 3, 0, PAGE), PAGE);
	unmap(p);
	case_close(fd);
	gate_done(ask);
	gate_done(answer);
}

/* A mapping works after the descriptor is closed, and after the name is removed. */
static void mapped_and_closed(void)
{
	int fd = pattern_file("file"), source;
	uint8_t *p = map(fd, PROT_READ | PROT_WRITE, MAP_SHARED), buf[PAGE];

	case_close(fd);
	t_fill(p, 2, 0, PAGE);
	T_EQ(msync(p, LEN, MS_SYNC), 0);
	source = CASE_OK(open(at_source("file"), O_RDONLY | O_CLOEXEC));
	T_EQ(pread(source, buf, PAGE, 0), PAGE);
	T_EQ(t_differs(buf, 2, 0, PAGE), PAGE);
	case_close(source);
	T_EQ(unlink(at("file")), 0);
	T_EQ(t_differs(p + PAGE, 1, PAGE, LEN - PAGE), LEN - PAGE);
	t_fill(p + PAGE, 3, 0, PAGE);
	T_EQ(msync(p, LEN, MS_SYNC), 0);
	T_EQ(t_differs(p + PAGE, 3, 0, PAGE), PAGE);
	unmap(p);
}

static void private_mappings(void)
{
	int fd = pattern_file("file"), ro;
	uint8_t *p = map(fd, PROT_READ | PROT_WRITE, MAP_PRIVATE), buf[PAGE];

	t_fill(p, 2, 0, PAGE);
	T_EQ(pread(fd, buf, PAGE, 0), PAGE);
	T_EQ(t_differs(buf, 1, 0, PAGE), PAGE);
	unmap(p);
	ro = CASE_OK(open(at("file"), O_RDONLY | O_CLOEXEC));
	p = map(ro, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	p[0]++;
	unmap(p);
	T_CHECK(mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, ro, 0) == MAP_FAILED);
	T_EQ(errno, EACCES);
	case_close(ro);
	case_close(fd);
}

/* ------------------------------------------------------------ what is cut off */

static sigjmp_buf bus;
static uint8_t seen; /* keeps the compiler from removing the read */

static void on_bus(int sig)
{
	(void)sig;
	siglongjmp(bus, 1);
}

/* Return true if reading the byte raises no SIGBUS. */
static bool touches(const uint8_t *p)
{
	struct sigaction sa = { .sa_handler = on_bus }, before;
	volatile bool there = false;

	T_EQ(sigaction(SIGBUS, &sa, &before), 0);
	if (sigsetjmp(bus, 1) == 0) {
		seen = *(const volatile uint8_t *)p;
		there = true;
	}
	T_EQ(sigaction(SIGBUS, &before, NULL), 0);
	return there;
}

static void cut_off_while_mapped(void)
{
	int fd = pattern_file("file");
	uint8_t *p = map(fd, PROT_READ | PROT_WRITE, MAP_SHARED);

	T_CHECK(touches(p + LEN - 1));
	T_EQ(ftruncate(fd, 2 * PAGE + 100), 0);
	T_CHECK(!touches(p + 3 * PAGE));
	T_CHECK(!touches(p + LEN - 1));
	/* The rest of the last page holds zeros. */
	T_CHECK(touches(p + 3 * PAGE - 1));
	T_EQ(t_differs(p, 1, 0, 2 * PAGE + 100), 2 * PAGE + 100);
	for (size_t i = 2 * PAGE + 100; i < 3 * PAGE; i++)
		T_EQ(p[i], 0);
	/* Growth also shows zeros. */
	T_EQ(ftruncate(fd, LEN), 0);
	T_CHECK(touches(p + LEN - 1));
	for (size_t i = 2 * PAGE + 100; i < LEN; i++)
		if (p[i])
			T_FAIL("byte %zu is 0x%02x and should be 0", i, p[i]);
	unmap(p);
	case_close(fd);
}

static void empty_files_have_no_pages(void)
{
	int fd = CASE_OK(open(at("file"), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
	uint8_t *p = map(fd, PROT_READ, MAP_SHARED);

	T_CHECK(!touches(p));
	T_EQ(pwrite(fd, "x", 1, 0), 1);
	T_CHECK(touches(p));
	T_EQ(p[0], 'x');
	T_EQ(p[1], 0);
	unmap(p);
	case_close(fd);
}

int main(int argc, char **argv)
{
	case_init(argc, argv);
	CASE(mapping_and_calls);
	CASE(mapping_and_source);
	CASE(mapping_and_append);
	CASE(mapped_by_two_processes);
	CASE(mapped_and_closed);
	CASE(private_mappings);
	CASE(cut_off_while_mapped);
	CASE(empty_files_have_no_pages);
	return case_done();
}
