/* SPDX-License-Identifier: MIT */
/*
 * Grants and descriptors that lie, and peers that send unexpected messages: all of it is
 * refused.
 */
#include "grant.h"

/* ------------------------------------------------------------- hostile ones */

static void refused(const struct pst_grant *g)
{
	struct pst_mem *m = NULL;
	unsigned fds = t_count_fds();
	int r = pst_mem_import(g, &m);

	if (r >= 0 || m)
		T_FAIL("a bad grant was taken");
	T_CHECK(pst_error_text()[0]);
	T_CHECK(t_fds_left(fds) <= fds);
}

static void hostile(void)
{
	struct pst_mem *m = shared(), *ok = NULL;
	struct pst_grant good = grant_of(m, 0, LEN, PST_RIGHT_READ | PST_RIGHT_WRITE), g;
	int fd, p[2];

	refused(NULL);
	for (unsigned i = 0; i < 200; i++) {
		uint8_t *bytes = (uint8_t *)&g;
		unsigned at = (unsigned)(sizeof(g.sz) + rig_below(sizeof(g) - sizeof(g.sz)));

		g = good;
		bytes[at] ^= (uint8_t)(1 + rig_below(255));
		if (at >= offsetof(struct pst_grant, fd) && at < offsetof(struct pst_grant, ipc))
			continue; /* a random descriptor number may be a valid one */
		if (pst_mem_import(&g, &ok) == 0) {
			/* A changed grant is accepted only if its range is smaller or its rights
			 * are fewer. */
			struct pst_mem_info info = { .sz = sizeof(info) };

			T_CHECK(g.off + g.len <= good.size && g.size == good.size);
			T_CHECK(!(g.rights & ~good.rights));
			T_OK(pst_mem_info(ok, &info));
			T_EQ(info.len, g.len);
			ok = pst_mem_free(ok);
		}
	}
	g = good, g.sz = 8;
	refused(&g);
	g = good, g.sz = SIZE_MAX;
	refused(&g);
	g = good, g.kind = 0;
	refused(&g);
	g = good, g.kind = PST_KIND_CUDA;
	refused(&g);
	g = good, g.rights = 0;
	refused(&g);
	g = good, g.rights = 7;
	refused(&g);
	g = good, g.reserved = 1;
	refused(&g);
	g = good, g.ipc[0] = 1;
	refused(&g);
	g = good, g.len = 0;
	refused(&g);
	g = good, g.len = UINT64_MAX;
	refused(&g);
	g = good, g.off = UINT64_MAX;
	refused(&g);
	g = good, g.off = LEN, g.len = 1, g.size = LEN;
	refused(&g);
	g = good, g.size *= 2, g.len *= 2;
	refused(&g);
	g = good, g.size = 1, g.len = 1;
	refused(&g);
	g = good, g.fd = -1;
	refused(&g);
	g = good, g.fd = 1000000;
	refused(&g);
	T_EQ(pipe2(p, O_CLOEXEC), 0);
	g = good, g.fd = p[0];
	refused(&g);
	(void)close(p[0]);
	(void)close(p[1]);
	/* The end of an unsealed file may move, which would raise SIGBUS later. */
	fd = memfd_create("loose", MFD_CLOEXEC);
	T_EQ(ftruncate(fd, (off_t)good.size), 0);
	g = good, g.fd = fd;
	refused(&g);
	(void)close(fd);
	fd = memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	T_EQ(ftruncate(fd, (off_t)good.size), 0);
	g = good, g.fd = fd;
	refused(&g);
	T_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	T_EQ(ftruncate(fd, 0), -1);
	g = good, g.fd = fd, g.size += 4096, g.len = 1;
	refused(&g);
	(void)close(fd);
	rig_make(rig_path("file"), 1, LEN);
	fd = open(rig_path("file"), O_RDWR | O_CLOEXEC);
	g = good, g.fd = fd;
	refused(&g);
	(void)close(fd);
	fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
	g = good, g.fd = fd;
	refused(&g);
	(void)close(fd);
	T_OK(pst_mem_import(&good, &ok)); /* the unchanged grant is accepted */
	pst_mem_free(ok);
	pst_grant_done(&good);
	pst_mem_free(m);
}

static void sockets(void)
{
	struct pst_mem *m = shared();
	struct pst_grant g = grant_of(m, 0, LEN, PST_RIGHT_READ), in = { .sz = sizeof(in) };
	uint64_t t0 = t_now();
	char junk[200];
	int s[2], fd;

	T_EQ(pst_grant_send(-1, &g, 0), -EPROTOTYPE);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0) {
		T_EQ(pst_grant_send(fd, &g, 0), -EPROTOTYPE);
		T_EQ(pst_grant_recv(fd, &in, 0), -EPROTOTYPE);
		(void)close(fd);
	}
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	T_EQ(pst_grant_send(fd, &g, 0), -EPROTOTYPE);
	(void)close(fd);
	T_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s), 0);
	T_EQ(pst_grant_recv(s[1], &in, 0), -ETIMEDOUT);
	T_EQ(pst_grant_recv(s[1], &in, t_in_ms(60)), -ETIMEDOUT);
	T_CHECK(t_now() - t0 < T_HANG_NS);
	T_OK(pst_grant_send(s[0], &g, 0));
	T_OK(pst_grant_recv(s[1], &in, t_hang()));
	T_EQ(in.len, LEN);
	T_EQ(in.rights, PST_RIGHT_READ);
	pst_grant_done(&in);
	in.sz = sizeof(in);
	memset(junk, 'j', sizeof(junk));
	T_EQ(write(s[0], junk, sizeof(junk)), sizeof(junk));
	T_EQ(pst_grant_recv(s[1], &in, t_hang()), -EBADMSG);
	(void)close(s[0]);
	T_EQ(pst_grant_send(s[1], &g, 0), -EPIPE); /* without a SIGPIPE */
	(void)close(s[1]);
	pst_grant_done(&g);
	pst_mem_free(m);
}

/* -------------------------------------------------------------- descriptors */

/* Check that the grant is refused with this descriptor instead of its own.  Close the
 * descriptor. */
static void refused_fd(struct pst_grant g, int fd)
{
	T_CHECK(fd >= 0);
	g.fd = fd;
	refused(&g);
	(void)close(fd);
}

static int memfd_of(uint64_t len, int seals)
{
	int fd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	T_CHECK(fd >= 0);
	T_EQ(ftruncate(fd, (off_t)len), 0);
	T_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static int reopened(int fd, int flags)
{
	char path[40];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, flags | O_CLOEXEC);
}

static void hostile_descriptors(void)
{
	struct pst_mem *m = shared();
	struct pst_grant g = grant_of(m, 0, LEN, RW), ro = grant_of(m, 0, LEN, PST_RIGHT_READ);

	refused_fd(g, memfd_of(LEN, F_SEAL_GROW));
	refused_fd(g, memfd_of(LEN - 1, F_SEAL_SHRINK));
	refused_fd(g, memfd_of(LEN + 1, F_SEAL_SHRINK));
	refused_fd(g, memfd_of(0, F_SEAL_SHRINK));
	refused_fd(g, memfd_of(LEN, F_SEAL_SHRINK | F_SEAL_WRITE));
	refused_fd(g, open(rig_dir, O_RDONLY | O_CLOEXEC));
	refused_fd(g, socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	refused_fd(g, reopened(g.fd, O_RDONLY));
	refused_fd(g, reopened(g.fd, O_WRONLY));
	refused_fd(g, reopened(g.fd, O_PATH));
	ro.rights = RW;
	refused(&ro);
	pst_grant_done(&g);
	pst_grant_done(&ro);
	pst_mem_free(m);
}

/* A sealed file on reserved huge pages: a hole that is punched later may find no page. */
static void huge_pages(void)
{
	struct pst_mem *m;
	struct pst_grant g;
	int fd = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);

	if (fd < 0 || ftruncate(fd, LEN) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
		T_SKIP("a kernel with hugetlbfs and pages of 2 MiB");
	m = shared();
	g = grant_of(m, 0, LEN, RW);
	refused_fd(g, fd);
	T_CHECK(strstr(pst_error_text(), "huge"));
	pst_grant_done(&g);
	pst_mem_free(m);
}

int main(void)
{
	rig_init();
	RIG_RUN(hostile);
	RIG_RUN(sockets);
	RIG_RUN(hostile_descriptors);
	RIG_RUN(huge_pages);
	return rig_done();
}
