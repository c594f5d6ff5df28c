/* SPDX-License-Identifier: MIT */
/*
 * The results of libhl-thunk, call by call.  The stub in tests/stub must give the same as the
 * real library on the lab's kernel module (lab/guest-gaudi).
 */
#include <fcntl.h>
#include <sys/resource.h>

#include "base/err.h"
#include "mem/gaudi/gaudi.h"

#define T_ERROR_TEXT() err_text()
#include "gaudi_rig.h"

#define LEN (UINT64_C(1) << 20)
#define FLAGS ((uint32_t)(O_RDWR | O_CLOEXEC))

struct open_memory {
	int fd;
	uint64_t handle, va;
};

static struct open_memory open_and_map(void)
{
	struct open_memory m = { .fd = hl.hlthunk_open(HL_DONT_CARE, STUB_GAUDI_PCI_0) };

	T_CHECK(m.fd >= 0);
	m.handle = hl.hlthunk_device_memory_alloc(m.fd, LEN, 0, false, false);
	T_CHECK(m.handle);
	m.va = hl.hlthunk_device_memory_map(m.fd, m.handle, 0);
	T_CHECK(m.va);
	return m;
}

static void give_up(const struct open_memory *m)
{
	T_EQ(hl.hlthunk_memory_unmap(m->fd, m->va), 0);
	T_EQ(hl.hlthunk_device_memory_free(m->fd, m->handle), 0);
	T_EQ(hl.hlthunk_close(m->fd), 0);
	T_EQ(gaudi_state().contexts, 0);
	T_EQ(gaudi_state().handles, 0);
	T_EQ(gaudi_state().mappings, 0);
	T_EQ(gaudi_state().exports, 0);
}

static int export(const struct open_memory *m, uint64_t va, uint64_t size, uint64_t off)
{
	return hl.hlthunk_device_mapped_memory_export_dmabuf_fd(m->fd, va, size, off, FLAGS);
}

/* Return errno of a failed call, 0 if it succeeds.  Used for calls that return 0 on failure. */
#define ERRNO_OF(call) (errno = 0, (call) ? 0 : errno)

static void open_names_a_bus_address(void)
{
	/* the address lacks the domain */
	int fd = hl.hlthunk_open(HL_DONT_CARE, STUB_GAUDI_PCI_1 + 5);

	T_CHECK(fd >= 0);
	T_CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	T_EQ(hl.hlthunk_close(fd), 0);
	T_EQ(hl.hlthunk_open(HL_DONT_CARE, "0000:77:00.0"), -EINVAL);
	T_EQ(hl.hlthunk_open(HL_DONT_CARE, "nonsense"), -EINVAL);
}

static void a_device_has_one_context(void)
{
	struct open_memory m = open_and_map();
	int other = hl.hlthunk_open(HL_DONT_CARE, STUB_GAUDI_PCI_1), twin = fcntl(m.fd, F_DUPFD, 0);

	T_CHECK(other >= 0 && twin >= 0);
	T_EQ(hl.hlthunk_close(other), 0);
	T_EQ(hl.hlthunk_open(HL_DONT_CARE, STUB_GAUDI_PCI_0), -EBUSY);
	T_EQ(close(twin), 0);
	T_EQ(gaudi_state().contexts, 1);
	give_up(&m);
}

static void a_context_lives_as_long_as_a_duplicate(void)
{
	struct open_memory m = open_and_map();
	int twin = fcntl(m.fd, F_DUPFD_CLOEXEC, 0);

	T_EQ(hl.hlthunk_close(m.fd), 0);
	T_EQ(hl.hlthunk_open(HL_DONT_CARE, STUB_GAUDI_PCI_0), -EBUSY);
	m.fd = twin;
	give_up(&m);
}

static void the_device_tells_its_pages(void)
{
	int fd = hl.hlthunk_open(HL_DONT_CARE, STUB_GAUDI_PCI_0);
	struct hl_hw_ip ip;

	memset(&ip, 0xee, sizeof(ip));
	T_EQ(hl.hlthunk_get_device_name_from_fd(fd), HL_GAUDI2);
	T_EQ(hl.hlthunk_get_hw_ip_info(fd, &ip), 0);
	T_CHECK(ip.dram_page_size == STUB_GAUDI_PAGE);
	T_CHECK(ip.alloc_page_size == STUB_GAUDI_PAGE);
	T_CHECK(ip.dram_size >= STUB_GAUDI_PAGE && ip.dram_size <= STUB_GAUDI_TOTAL);
	T_EQ(hl.hlthunk_get_hw_ip_info(fd, NULL), -EINVAL);
	/* Nothing is written past what the library of 2023 knows. */
	for (unsigned i = 336; i < sizeof(ip); i++)
		T_EQ(((unsigned char *)&ip)[i], 0xee);
	T_EQ(hl.hlthunk_close(fd), 0);
}

static void sizes_are_checked(void)
{
	int fd = hl.hlthunk_open(HL_DONT_CARE, STUB_GAUDI_PCI_0);

	T_EQ(ERRNO_OF(hl.hlthunk_device_memory_alloc(fd, 0, 0, false, false)), EINVAL);
	T_EQ(ERRNO_OF(hl.hlthunk_device_memory_alloc(fd, STUB_GAUDI_TOTAL * 2, 0, false, false)),
	     ENOMEM);
	T_EQ(ERRNO_OF(hl.hlthunk_device_memory_map(fd, 4711, 0)), EINVAL);
	T_EQ(hl.hlthunk_memory_unmap(fd, 0), -EINVAL);
	T_EQ(hl.hlthunk_device_memory_free(fd, 4711), -EINVAL);
	T_EQ(hl.hlthunk_close(fd), 0);
	T_EQ(gaudi_state().handles, 0);
}

static void the_order_of_the_end_is_enforced(void)
{
	struct open_memory m = open_and_map();

	T_EQ(hl.hlthunk_device_memory_free(m.fd, m.handle), -EINVAL); /* still mapped */
	T_EQ(hl.hlthunk_memory_unmap(m.fd, m.va + 4096), -EINVAL);
	T_EQ(hl.hlthunk_memory_unmap(m.fd, m.va), 0);
	T_EQ(hl.hlthunk_memory_unmap(m.fd, m.va), -EINVAL);
	T_EQ(hl.hlthunk_device_memory_free(m.fd, m.handle), 0);
	T_EQ(hl.hlthunk_device_memory_free(m.fd, m.handle), -EINVAL);
	T_EQ(hl.hlthunk_close(m.fd), 0);
}

static void exports_are_checked(void)
{
	struct open_memory m = open_and_map();
	uint64_t whole = STUB_GAUDI_PAGE;

	T_EQ(export(&m, m.va, 0, 0), -EINVAL);
	T_EQ(export(&m, m.va, 100, 0), -EINVAL);
	T_EQ(export(&m, m.va, 4096, 100), -EINVAL);
	T_EQ(export(&m, m.va + 4096, 4096, 0), -EINVAL); /* no mapping begins there */
	T_EQ(export(&m, m.va, whole + 4096, 0), -EINVAL);
	T_EQ(export(&m, m.va, whole, 4096), -EINVAL);
	T_EQ(export(&m, m.va, 4096, whole), -EINVAL);
	T_EQ(hl.hlthunk_device_mapped_memory_export_dmabuf_fd(m.fd, m.va, 4096, 0, 0), -EINVAL);
	T_EQ(hl.hlthunk_device_mapped_memory_export_dmabuf_fd(m.fd, m.va, 4096, 0, O_RDWR),
	     -EINVAL);
	T_EQ(hl.hlthunk_device_mapped_memory_export_dmabuf_fd(-1, m.va, 4096, 0, 0), -EINVAL);
	give_up(&m);
}

static void an_export_is_its_range(void)
{
	struct open_memory m = open_and_map();
	int fd = export(&m, m.va, 8192, 4096), last;
	char buf[6] = "";

	T_CHECK(fd >= 0);
	T_CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	T_EQ(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDWR);
	T_EQ(lseek(fd, 0, SEEK_END), 8192);
	T_CHECK(gs.poke(m.va + 4096 + 12, "hello", 5));
	gaudi_dmabuf_io(fd, 12, buf, 5, false);
	T_CHECK(!strcmp(buf, "hello"));
	gaudi_dmabuf_io(fd, 8192 - 5, (char[]){ "there" }, 5, true);
	T_CHECK(gs.peek(m.va + 3 * 4096 - 5, buf, 5));
	T_CHECK(!strcmp(buf, "there"));
	/* Export the last page. */
	last = export(&m, m.va, 4096, STUB_GAUDI_PAGE - 4096);
	T_CHECK(last >= 0);
	T_EQ(close(last), 0);
	T_EQ(close(fd), 0);
	give_up(&m);
}

static void an_open_export_holds_the_mapping(void)
{
	struct open_memory m = open_and_map();
	int fd = export(&m, m.va, 4096, 0), twin = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	T_CHECK(fd >= 0 && twin >= 0);
	T_EQ(hl.hlthunk_memory_unmap(m.fd, m.va), -EINVAL);
	T_EQ(close(fd), 0);
	T_EQ(hl.hlthunk_memory_unmap(m.fd, m.va), -EINVAL);
	T_EQ(hl.hlthunk_device_memory_free(m.fd, m.handle), -EINVAL);
	T_EQ(close(twin), 0);
	give_up(&m);
}

static void an_open_export_holds_the_device(void)
{
	struct open_memory m = open_and_map();
	int fd = export(&m, m.va, 4096, 0), again;

	T_EQ(hl.hlthunk_close(m.fd), 0);
	T_EQ(gaudi_state().contexts, 1);
	T_EQ(hl.hlthunk_open(HL_DONT_CARE, STUB_GAUDI_PCI_0), -EBUSY);
	T_EQ(close(fd), 0);
	again = hl.hlthunk_open(HL_DONT_CARE, STUB_GAUDI_PCI_0);
	T_CHECK(again >= 0);
	/* Memory that the end of a context left is freed. */
	T_EQ(hl.hlthunk_memory_unmap(again, m.va), -EINVAL);
	T_EQ(hl.hlthunk_device_memory_free(again, m.handle), -EINVAL);
	T_EQ(hl.hlthunk_close(again), 0);
	T_EQ(gaudi_state().handles, 0);
}

static void other_files_are_no_device(void)
{
	int fds[2];
	struct hl_hw_ip ip;

	T_EQ(pipe2(fds, O_CLOEXEC), 0);
	T_EQ(hl.hlthunk_get_hw_ip_info(fds[0], &ip), -ENOTTY);
	T_EQ(hl.hlthunk_get_device_name_from_fd(fds[0]), HL_INVALID);
	T_EQ(ERRNO_OF(hl.hlthunk_device_memory_alloc(fds[0], LEN, 0, false, false)), ENOTTY);
	T_EQ(ERRNO_OF(hl.hlthunk_device_memory_map(fds[0], 1, 0)), ENOTTY);
	T_EQ(hl.hlthunk_memory_unmap(fds[0], 4096), -ENOTTY);
	T_EQ(hl.hlthunk_device_mapped_memory_export_dmabuf_fd(fds[0], 4096, 4096, 0, FLAGS),
	     -ENOTTY);
	T_EQ(close(fds[0]), 0);
	T_EQ(close(fds[1]), 0);
	T_EQ(hl.hlthunk_get_hw_ip_info(fds[0], &ip), -EBADF);
	T_EQ(ERRNO_OF(hl.hlthunk_device_memory_alloc(fds[0], LEN, 0, false, false)), EBADF);
	T_EQ(hl.hlthunk_memory_unmap(-1, 4096), -EBADF);
	T_EQ(hl.hlthunk_device_mapped_memory_export_dmabuf_fd(fds[0], 4096, 4096, 0, FLAGS),
	     -EBADF);
	errno = 0;
	T_EQ(hl.hlthunk_close(fds[0]), -1);
	T_EQ(errno, EBADF);
}

static void a_reset_answers_in_two_steps(void)
{
	struct open_memory m = open_and_map();
	struct hl_hw_ip ip;
	int other;

	gs.reset(0, true);
	T_EQ(hl.hlthunk_open(HL_DONT_CARE, STUB_GAUDI_PCI_0), -EAGAIN);
	T_EQ(hl.hlthunk_get_hw_ip_info(m.fd, &ip), 0); /* works even during a reset */
	T_EQ(hl.hlthunk_get_device_name_from_fd(m.fd), HL_GAUDI2);
	T_EQ(ERRNO_OF(hl.hlthunk_device_memory_alloc(m.fd, LEN, 0, false, false)), EBUSY);
	T_EQ(export(&m, m.va, 4096, 0), -EBUSY);
	T_EQ(hl.hlthunk_memory_unmap(m.fd, m.va), -EBUSY);
	T_EQ(hl.hlthunk_device_memory_free(m.fd, m.handle), -EBUSY);
	other = hl.hlthunk_open(HL_DONT_CARE, STUB_GAUDI_PCI_1); /* not affected by the reset */
	T_CHECK(other >= 0);
	T_EQ(hl.hlthunk_close(other), 0);
	gs.reset(0, false);
	T_EQ(hl.hlthunk_get_hw_ip_info(m.fd, &ip), -ENODEV);
	T_EQ(ERRNO_OF(hl.hlthunk_device_memory_alloc(m.fd, LEN, 0, false, false)), ENODEV);
	T_EQ(export(&m, m.va, 4096, 0), -ENODEV);
	T_EQ(hl.hlthunk_memory_unmap(m.fd, m.va), -ENODEV);
	T_EQ(hl.hlthunk_open(HL_DONT_CARE, STUB_GAUDI_PCI_0), -EBUSY); /* busy until closed */
	T_EQ(hl.hlthunk_close(m.fd), 0);
	m = open_and_map();
	give_up(&m);
}

static void an_export_wants_a_descriptor(void)
{
	struct open_memory m = open_and_map();
	struct rlimit was, none;

	T_EQ(getrlimit(RLIMIT_NOFILE, &was), 0);
	none = was;
	none.rlim_cur = 0;
	T_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
	T_EQ(export(&m, m.va, 4096, 0), -EMFILE);
	T_EQ(export(&m, m.va, 100, 0), -EINVAL);
	T_EQ(setrlimit(RLIMIT_NOFILE, &was), 0);
	T_EQ(hl.hlthunk_memory_unmap(m.fd, m.va), 0); /* no export keeps the mapping any more */
	T_EQ(hl.hlthunk_device_memory_free(m.fd, m.handle), 0);
	T_EQ(hl.hlthunk_close(m.fd), 0);
}

int main(void)
{
	gaudi_lab_open();
	gaudi_stub_find();
	gaudi_forgive();
	T_OK(hl_load());
	T_RUN(open_names_a_bus_address);
	T_RUN(a_device_has_one_context);
	T_RUN(a_context_lives_as_long_as_a_duplicate);
	T_RUN(the_device_tells_its_pages);
	T_RUN(sizes_are_checked);
	T_RUN(the_order_of_the_end_is_enforced);
	T_RUN(exports_are_checked);
	T_RUN(an_export_is_its_range);
	T_RUN(an_open_export_holds_the_mapping);
	T_RUN(an_open_export_holds_the_device);
	T_RUN(other_files_are_no_device);
	T_RUN(a_reset_answers_in_two_steps);
	T_RUN(an_export_wants_a_descriptor);
	gaudi_lab_close();
	return t_done();
}
