/* SPDX-License-Identifier: MIT */
/* Memory regions of the stub of libibverbs, and copies between processes. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "stub/ibverbs_stub_int.h"

#define PAGE 4096u
#define LOCAL_WRITE ((uint32_t)VB_ACCESS_LOCAL_WRITE)
#define REMOTE_WRITE ((uint32_t)VB_ACCESS_REMOTE_WRITE)
#define REMOTE_READ ((uint32_t)VB_ACCESS_REMOTE_READ)
#define REMOTE_ATOMIC (1u << 3)
#define RELAXED ((uint32_t)VB_ACCESS_RELAXED_ORDERING)
#define OPTIONAL UINT32_C(0x3ff00000)

static struct {
	uint64_t va, len;
	char *at;
} peermem;

void stub_ibverbs_peermem(uint64_t va, uint64_t len, void *at)
{
	struct stub_fabric *f = stub_lock();

	peermem.va = va;
	peermem.len = at ? len : 0;
	peermem.at = at;
	stub_unlock(f);
}

/* Return true if the CPU can read every page, as the kernel's get_user_pages() requires. */
static bool mapped(uint64_t addr, uint64_t len)
{
	for (uint64_t at = align_down(addr, PAGE); at < addr + len; at += PAGE) {
		char byte;
		struct iovec to = { &byte, 1 }, from = { (void *)(uintptr_t)MAX(at, addr), 1 };

		if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) != 1 && errno == EFAULT)
			return false;
	}
	return true;
}

static int check_access(uint32_t access)
{
	uint32_t known = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | RELAXED;

	if (access & ~(known | OPTIONAL))
		return EINVAL;
	if (access & (REMOTE_WRITE | REMOTE_ATOMIC) && !(access & LOCAL_WRITE))
		return EINVAL;
	return 0;
}

static struct vb_mr *add(struct vb_pd *pd, const struct stub_fmr *what, struct stub_mr *m)
{
	struct stub_pd *p = container_of(pd, struct stub_pd, pd);
	struct stub_fabric *f = stub_lock();
	unsigned i = 0;

	while (i < STUB_MRS && f->mrs[i].pid && stub_alive(f->mrs[i].pid))
		i++;
	if (i == STUB_MRS) {
		stub_unlock(f);
		errno = ENOMEM;
		return NULL;
	}
	f->mrs[i] = *what;
	f->mrs[i].pid = getpid();
	f->mrs[i].pd = pd->handle;
	/* The low bits differ between consecutive registrations in the same slot. */
	f->mrs[i].key = (i + 1) << 16 | (f->next_key++ & 0xffff);
	m->mr.context = pd->context;
	m->mr.pd = pd;
	m->mr.length = what->len;
	m->mr.handle = i;
	m->mr.lkey = m->mr.rkey = f->mrs[i].key;
	p->users++;
	stub_process.st.mrs++;
	stub_process.st.registered++;
	stub_process.st.dmabufs += m->map != NULL;
	stub_unlock(f);
	/* Permit peers to access this process where Yama restricts it. */
	(void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	return &m->mr;
}

static struct vb_mr *reg(struct vb_pd *pd, void *addr, size_t len, uint64_t iova, uint32_t access)
{
	struct stub_fmr what = { .iova = iova, .len = len, .access = access };
	uint64_t va = (uintptr_t)addr;
	struct stub_mr *m = NULL;
	struct vb_mr *ret = NULL;
	int err = check_access(access);

	if (!err && (!len || va + len < va))
		err = EINVAL;
	if (!err && peermem.len && va >= peermem.va && va + len <= peermem.va + peermem.len)
		what.at = (uintptr_t)peermem.at + (va - peermem.va);
	else if (!err && mapped(va, len))
		what.at = va;
	else if (!err)
		err = EFAULT;
	if (!err) {
		m = calloc(1, sizeof(*m));
		err = m ? 0 : ENOMEM;
	}
	if (!err) {
		m->mr.addr = addr;
		ret = add(pd, &what, m);
		err = ret ? 0 : errno;
	}
	if (!ret)
		free(m);
	errno = err;
	return ret;
}

struct vb_mr *ibv_reg_mr(struct vb_pd *pd, void *addr, size_t len, int access)
{
	errno = stub_fault("ibv_reg_mr");
	/* ibv_reg_mr() ignores unknown optional bits. */
	return errno ? NULL : reg(pd, addr, len, (uintptr_t)addr, (uint32_t)access & ~OPTIONAL);
}

struct vb_mr *ibv_reg_mr_iova2(struct vb_pd *pd, void *addr, size_t len, uint64_t iova,
			       unsigned access)
{
	errno = stub_fault("ibv_reg_mr_iova2");
	if (errno)
		return NULL;
	if ((iova ^ (uintptr_t)addr) % PAGE) {
		errno = EINVAL;
		return NULL;
	}
	return reg(pd, addr, len, iova, access);
}

/* Apply the rules of ib_uverbs in 6.12, with the errnos that drivers return. */
static int check_dmabuf(uint64_t off, size_t len, uint64_t iova, int fd, uint32_t access)
{
	const char *told = getenv("STUB_IBVERBS_DMABUF");
	struct stat st;

	if (told && *told)
		return atoi(told);
	if ((off ^ iova) % PAGE)
		return EINVAL;
	if (access & ~(LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | RELAXED) ||
	    check_access(access))
		return EINVAL;
	if (fcntl(fd, F_GETFD) < 0)
		return EBADF;
	if (fstat(fd, &st) < 0 || (fcntl(fd, F_GET_SEALS) < 0 && st.st_mode & S_IFMT))
		return EINVAL; /* not a dma-buf */
	if (!len || off + len < off || off + len > (uint64_t)lseek(fd, 0, SEEK_END))
		return EINVAL;
	return 0;
}

struct vb_mr *ibv_reg_dmabuf_mr(struct vb_pd *pd, uint64_t off, size_t len, uint64_t iova, int fd,
				int access)
{
	struct stub_fmr what = { .iova = iova, .len = len, .access = (uint32_t)access };
	uint64_t skip = off % PAGE;
	struct vb_mr *ret = NULL;
	struct stub_mr *m = NULL;
	int err = stub_fault("ibv_reg_dmabuf_mr");

	if (!err)
		err = check_dmabuf(off, len, iova, fd, (uint32_t)access);
	if (!err) {
		m = calloc(1, sizeof(*m));
		err = m ? 0 : ENOMEM;
	}
	if (!err) {
		m->map_len = align_up(skip + len, PAGE);
		m->map = mmap(NULL, m->map_len, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			      (off_t)(off - skip));
		err = m->map == MAP_FAILED ? errno : 0;
	}
	if (!err) {
		m->mr.addr = (void *)(uintptr_t)off;
		what.at = (uintptr_t)m->map + skip;
		ret = add(pd, &what, m);
		err = ret ? 0 : errno;
		if (!ret)
			(void)munmap(m->map, m->map_len);
	}
	if (!ret)
		free(m);
	errno = err;
	return ret;
}

/* Report a pending request of this process that uses the region. */
static void check_unused(const struct stub_fabric *f, const struct vb_mr *mr)
{
	for (const struct stub_fqp *q = f->qps; q < f->qps + STUB_QPS; q++) {
		if (q->pid != getpid() || q->state != VB_QPS_RTS || q->pd != mr->pd->handle)
			continue;
		for (uint64_t i = q->sq.head; i < q->sq.tail; i++) {
			const struct stub_wqe *e = &q->sq.of[i % STUB_WRS];

			for (uint32_t j = 0; j < e->nr_sges; j++)
				if (e->sges[j].lkey == mr->lkey && e->sges[j].length)
					stub_broken("ibv_dereg_mr of memory that a request uses");
		}
	}
}

int ibv_dereg_mr(struct vb_mr *mr)
{
	struct stub_mr *m = container_of(mr, struct stub_mr, mr);
	struct stub_pd *p = container_of(mr->pd, struct stub_pd, pd);
	int err = stub_fault("ibv_dereg_mr");
	struct stub_fabric *f;

	if (err)
		return err;
	stub_hold();
	f = stub_lock();
	check_unused(f, mr);
	f->mrs[mr->handle].pid = 0;
	p->users--;
	stub_process.st.mrs--;
	stub_process.st.deregistered++;
	stub_unlock(f);
	if (m->map)
		(void)munmap(m->map, m->map_len);
	free(m);
	return 0;
}

int stub_mr_find(struct stub_fabric *f, pid_t pid, uint32_t pd, uint32_t key, uint64_t addr,
		 uint64_t len, uint32_t access, uint64_t *ret_at)
{
	uint32_t i = (key >> 16) - 1;
	const struct stub_fmr *m = i < STUB_MRS ? &f->mrs[i] : NULL;

	if (!m || m->pid != pid || m->key != key || m->pd != pd || (m->access & access) != access ||
	    addr < m->iova || addr - m->iova > m->len || len > m->len - (addr - m->iova))
		return -1;
	*ret_at = m->at + (addr - m->iova);
	return 0;
}

/*
 * Copy between processes.  Bytes of unmapped memory vanish: hardware would move them to or from
 * the registered pages, which no process sees.
 */
int stub_copy(pid_t to, uint64_t to_at, pid_t from, uint64_t from_at, uint64_t len)
{
	struct iovec there, here;
	ssize_t n;

	if (to != getpid() && from != getpid())
		return -ESRCH;
	if (!len)
		return 0;
	if (to == from && mapped(to_at, len) && mapped(from_at, len)) {
		memmove((void *)(uintptr_t)to_at, (void *)(uintptr_t)from_at, len);
		return 0;
	}
	if (to == from) {
		stub_broken("memory of a request was unmapped before it completed");
		return 0;
	}
	if (!mapped(to == getpid() ? to_at : from_at, len))
		stub_broken("memory of a request was unmapped before it completed");
	for (uint64_t done = 0; done < len; done += (uint64_t)n) {
		here.iov_len = there.iov_len = len - done;
		if (from == getpid()) {
			here.iov_base = (void *)(uintptr_t)(from_at + done);
			there.iov_base = (void *)(uintptr_t)(to_at + done);
			n = process_vm_writev(to, &here, 1, &there, 1, 0);
		} else {
			here.iov_base = (void *)(uintptr_t)(to_at + done);
			there.iov_base = (void *)(uintptr_t)(from_at + done);
			n = process_vm_readv(from, &here, 1, &there, 1, 0);
		}
		if (n == 0 || (n < 0 && errno == EFAULT))
			return 0;
		if (n < 0 && errno != ESRCH)
			stub_broken("no copies between processes here: %s", strerror(errno));
		if (n < 0)
			return -ESRCH;
	}
	return 0;
}
