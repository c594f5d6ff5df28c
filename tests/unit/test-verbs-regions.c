/* SPDX-License-Identifier: MIT */
/*
 * Registrations that allocations keep for RDMA devices: made once, in the first way that works,
 * and ended before the memory is freed.  A reused address has none.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>

#include "verbs_rig.h"

#include "net/verbs/selftest.h"

#define PAGE 4096u
#define LEN 65536u
#define BOTH (MEM_REG_REMOTE_READ | MEM_REG_REMOTE_WRITE)

/* ------------------------------------------- a device whose memory is exported */

/* Next device address of the toy, unused by other memory and by the CPU. */
static uint64_t toy_va;
static struct {
	bool dead;    /* the owner has freed the memory */
	bool exports; /* can be exported as a dma-buf */
	unsigned frees;
	uint64_t live_at_free; /* registrations of the process when the memory was freed */
} toy;

struct toy_alloc {
	struct mem_alloc a;
	int fd;
	uint8_t *bytes;
};

static unsigned toy_devices(void)
{
	return 1;
}

static int toy_alive(const struct mem_alloc *a)
{
	(void)a;
	return toy.dead ? err_set(EFAULT, "the toy's memory was freed") : 0;
}

static int toy_export(const struct mem_alloc *a, uint64_t off, uint64_t len, struct mem_dmabuf *ret)
{
	const struct toy_alloc *t = container_of(a, struct toy_alloc, a);

	if (!toy.exports)
		return err_set(EOPNOTSUPP, "the toy exports nothing");
	(void)len;
	/* The allocation begins a bit more than a page after the start of the dma-buf. */
	*ret = (struct mem_dmabuf){ .fd = fcntl(t->fd, F_DUPFD_CLOEXEC, 0),
				    .off = PAGE + a->base.va % PAGE + off,
				    .size = LEN + 3 * PAGE };
	return ret->fd < 0 ? -errno : 0;
}

static int toy_alloc(unsigned device, uint64_t len, uint32_t flags, struct mem_alloc **ret);

static void toy_free(struct mem_alloc *a)
{
	struct toy_alloc *t = container_of(a, struct toy_alloc, a);
	struct registration_stats st;

	registration_stats(&st);
	toy.live_at_free = st.live;
	toy.frees++;
	(void)munmap(t->bytes, LEN + 3 * PAGE);
	(void)close(t->fd);
	free(t);
}

static const struct mem_ops toy_ops = {
	.name = "toy",
	.kind = 99,
	.alive = toy_alive,
	.devices = toy_devices,
	.alloc = toy_alloc,
	.export_dmabuf = toy_export,
	.free = toy_free,
};

/* Make LEN bytes at va, which need not be aligned to a page. */
static struct mem_alloc *toy_new(uint64_t va)
{
	struct toy_alloc *t = calloc(1, sizeof(*t));

	T_CHECK(t);
	t->fd = memfd_create("toy", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	T_EQ(ftruncate(t->fd, LEN + 3 * PAGE), 0);
	t->bytes = mmap(NULL, LEN + 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, t->fd, 0);
	T_CHECK(t->bytes != MAP_FAILED);
	t->a = (struct mem_alloc){
		.ops = &toy_ops,
		.base.va = va,
		.size = LEN,
		.buffer_id = mem_buffer_id(),
		.rights = PST_RIGHT_READ | PST_RIGHT_WRITE,
		.owned = true,
	};
	return &t->a;
}

static int toy_alloc(unsigned device, uint64_t len, uint32_t flags, struct mem_alloc **ret)
{
	T_CHECK(!device && len == LEN && !flags);
	*ret = toy_new(toy_va + 512);
	return 0;
}

static struct pst_mem *toy_mem(uint64_t va)
{
	struct region *r;
	struct pst_mem *m;

	T_OK(region_get(toy_new(va), &r));
	T_OK(object_new_mem(r, 0, LEN, &m));
	return m;
}

/* Return the first byte of the memory, for the CPU. */
static uint8_t *toy_bytes(const struct pst_mem *m)
{
	const struct mem_alloc *a = m->region->alloc;

	return container_of(a, struct toy_alloc, a)->bytes + PAGE + a->base.va % PAGE;
}

static void free_mem(struct pst_mem *m)
{
	object_put(&m->obj);
}

/* ---------------------------------------------------------------- both ends */

static struct {
	struct endpoint *a, *b;
	uint8_t *buf;
	struct mem_reg *local;
	unsigned ended;
} s;

static void begin(bool exports)
{
	rig_open();
	toy.dead = false;
	toy.exports = exports;
	toy.frees = 0;
	s.ended = 0;
	if (!toy_va) {
		void *p = mmap(NULL, MIB(1), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		T_CHECK(p != MAP_FAILED);
		toy_va = (uintptr_t)p;
	}
	s.buf = aligned_alloc(PAGE, LEN);
	T_CHECK(s.buf);
	memset(s.buf, 0x5a, LEN);
	T_OK(mr_reg_host(rig.domain, s.buf, LEN, 0, &s.local));
}

static void end(void)
{
	mr_dereg(rig.domain, s.local);
	free(s.buf);
	rig_close();
}

/* Write by a key, over a new connection.  Return the result of the request. */
static int write_by(uint64_t addr, uint32_t rkey, uint32_t len)
{
	struct endpoint_opts o = { .send_slots = 4, .recv_slots = 4 };
	struct endpoint_io io = { .op = ENDPOINT_WRITE,
				  .len = len,
				  .local = s.local->addr,
				  .lkey = s.local->lkey,
				  .remote = addr,
				  .rkey = rkey };
	struct endpoint_done d;

	T_OK(endpoint_new(rig.domain, &o, &s.a));
	T_OK(endpoint_new(rig.domain, &o, &s.b));
	rig_join(s.a, s.b);
	T_EQ(endpoint_post(s.a, &io, 1), 1);
	rig_wait(s.a, &d, 1);
	endpoint_free(s.a);
	endpoint_free(s.b);
	return d.res;
}

static struct registration_stats stats(void)
{
	struct registration_stats st;

	registration_stats(&st);
	return st;
}

static int get(struct pst_mem *m, uint64_t off, uint64_t len, uint32_t rights, struct reg_user *u)
{
	return registration_get(m->region, &rig.domain->reg, m->off + off, len, rights, u);
}

static void on_end(struct reg_user *u)
{
	(void)u;
	s.ended++;
}

/* -------------------------------------------------------------------- cases */

static void made_once_and_kept(void)
{
	struct registration_stats before = stats();
	struct reg_user u[3] = { 0 };
	struct pst_mem *m;

	begin(true);
	T_OK(pst_mem_alloc("host", LEN, NULL, &m));
	for (unsigned i = 0; i < 3; i++)
		T_OK(get(m, i * 5000, 100, 0, &u[i]));
	T_CHECK(u[0].reg == u[1].reg && u[1].reg == u[2].reg);
	T_EQ(u[0].reg->off, 0);
	T_EQ(u[0].reg->len, LEN);
	T_EQ(u[0].reg->how, MEM_REG_HOST);
	for (unsigned i = 0; i < 3; i++)
		registration_put(&u[i]);
	T_OK(get(m, 0, 1, 0, &u[0]));
	registration_put(&u[0]);
	T_EQ(stats().made - before.made, 1);
	T_EQ(stats().found - before.found, 3);
	T_EQ(stats().live - before.live, 1);
	T_EQ(get(m, 0, LEN + 1, 0, &u[0]), -ERANGE);
	T_EQ(get(m, 0, 0, 0, &u[0]), -ERANGE);
	/* R5a: the registration ends before the memory. */
	T_EQ(pst_mem_free(m), 0);
	T_EQ(stats().live, before.live);
	T_EQ(stats().live_bytes, before.live_bytes);
	end();
}

/* A key covers exactly its range, and ends with its last user. */
static void a_key_covers_its_range_exactly(void)
{
	struct registration_stats before = stats();
	struct reg_user u = { 0 }, v = { 0 };
	struct pst_mem *m;
	uint32_t rkey;
	uint64_t addr;

	begin(true);
	T_OK(pst_mem_alloc("host", LEN, NULL, &m));
	T_OK(get(m, 5000, 100, MEM_REG_REMOTE_WRITE, &u));
	T_OK(get(m, 5000, 100, MEM_REG_REMOTE_WRITE, &v));
	T_CHECK(u.reg == v.reg);
	T_EQ(u.reg->off, 5000);
	T_EQ(u.reg->len, 100);
	addr = u.reg->addr;
	rkey = u.reg->rkey;
	T_EQ(write_by(addr, rkey, 100), 100);
	T_EQ(((uint8_t *)mem_host(m, 0))[4999], 0);
	T_EQ(((uint8_t *)mem_host(m, 0))[5000], 0x5a);
	T_EQ(((uint8_t *)mem_host(m, 0))[5100], 0);
	T_EQ(write_by(addr + 1, rkey, 100), -EACCES);
	T_EQ(write_by(addr - 1, rkey, 1), -EACCES);
	registration_put(&u);
	T_EQ(write_by(addr, rkey, 1), 1);
	registration_put(&v);
	T_EQ(write_by(addr, rkey, 1), -EACCES);
	T_EQ(stats().live, before.live);
	T_EQ(pst_mem_free(m), 0);
	end();
}

static void device_memory_goes_by_dmabuf(void)
{
	struct reg_user u = { 0 };
	struct pst_mem *m;

	rig_needs_stub();
	begin(true);
	/* The allocation is not aligned: offset and address must be the same within a page. */
	m = toy_mem(toy_va + 512);
	T_OK(get(m, 10000, 20000, BOTH, &u));
	T_EQ(u.reg->how, MEM_REG_DMABUF);
	T_EQ(write_by(u.reg->addr + (10000 - u.reg->off), u.reg->rkey, 20000), 20000);
	T_EQ(toy_bytes(m)[9999], 0);
	T_EQ(toy_bytes(m)[10000], 0x5a);
	T_EQ(toy_bytes(m)[29999], 0x5a);
	T_EQ(toy_bytes(m)[30000], 0);
	registration_put(&u);
	free_mem(m);
	T_EQ(toy.frees, 1);
	end();
}

/* R4b: without a dma-buf, peer memory is registered by address. */
static void device_memory_goes_by_peer_memory(void)
{
	struct reg_user u = { 0 };
	struct pst_mem *m;

	rig_needs_stub();
	begin(false);
	m = toy_mem(toy_va);
	rig.peermem(toy_va, LEN, toy_bytes(m));
	T_OK(get(m, 0, LEN, BOTH, &u));
	T_EQ(u.reg->how, MEM_REG_PEERMEM);
	T_EQ(write_by(u.reg->addr, u.reg->rkey, 300), 300);
	T_EQ(toy_bytes(m)[299], 0x5a);
	registration_put(&u);
	free_mem(m);
	rig.peermem(0, 0, NULL);
	end();
}

/* R4a, R4c: neither works, as on rdma_rxe.  The error names both reasons and a cure, nothing is
 * kept, and no byte goes through host memory. */
static void without_either_there_is_an_error(void)
{
	struct registration_stats before = stats();
	struct reg_user u = { 0 };
	struct pst_mem *m;

	begin(false);
	m = toy_mem(toy_va);
	T_EQ(get(m, 0, LEN, BOTH, &u), -EFAULT);
	T_CHECK(strstr(err_text(), "by dma-buf: ") && strstr(err_text(), "by peer memory: EFAULT"));
	T_CHECK(strstr(err_text(), "nvidia-peermem"));
	T_CHECK(!u.of);
	T_EQ(stats().failed - before.failed, 1);
	T_EQ(stats().live, before.live);
	free_mem(m);
	T_EQ(toy.frees, 1);
	end();
}

static void a_device_that_registers_no_dmabuf_says_so(void)
{
	struct reg_user u = { 0 };
	struct pst_mem *m;

	(void)setenv("STUB_IBVERBS_DMABUF", "95", 1);
	begin(true);
	(void)unsetenv("STUB_IBVERBS_DMABUF");
	T_CHECK(rig.nic->dmabuf_err == EOPNOTSUPP);
	m = toy_mem(toy_va);
	T_EQ(get(m, 0, LEN, BOTH, &u), -EFAULT);
	T_CHECK(strstr(err_text(), "registers no dma-buf: EOPNOTSUPP"));
	free_mem(m);
	end();
}

/* R5b: the address is reused for other pages.  The old key reaches nothing, the new key the new
 * pages. */
static void an_address_that_comes_back_has_no_registration(void)
{
	struct registration_stats before = stats();
	struct reg_user u = { 0 };
	struct pst_mem *m;
	uint64_t epoch, addr;
	uint32_t rkey;
	uint8_t *p;

	begin(true);
	p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	T_CHECK(p != MAP_FAILED);
	T_OK(pst_mem_wrap((uintptr_t)p, LEN, NULL, &m));
	T_OK(get(m, 0, LEN, BOTH, &u));
	epoch = u.epoch;
	addr = u.reg->addr;
	rkey = u.reg->rkey;
	T_EQ(write_by(addr, rkey, 100), 100);
	registration_put(&u);
	T_EQ(pst_mem_free(m), 0);
	T_EQ(munmap(p, LEN), 0);
	T_CHECK(mmap(p, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		     0) == p);
	T_EQ(write_by(addr, rkey, 100), -EACCES);
	T_OK(pst_mem_wrap((uintptr_t)p, LEN, NULL, &m));
	T_OK(get(m, 0, LEN, BOTH, &u));
	T_CHECK(u.epoch != epoch && u.reg->rkey != rkey);
	T_EQ(u.reg->addr, addr);
	T_EQ(p[99], 0);
	T_EQ(write_by(addr, u.reg->rkey, 100), 100);
	T_EQ(p[99], 0x5a);
	T_EQ(stats().made - before.made, 2);
	registration_put(&u);
	T_EQ(pst_mem_free(m), 0);
	T_EQ(munmap(p, LEN), 0);
	end();
}

/* A reused device address must not find the old registration. */
static void a_device_address_that_comes_back_has_none(void)
{
	struct registration_stats before = stats();
	struct reg_user u = { 0 };
	struct pst_mem *m;
	uint32_t rkey;

	rig_needs_stub();
	begin(true);
	m = toy_mem(toy_va);
	T_OK(get(m, 0, LEN, 0, &u));
	rkey = u.reg->rkey;
	registration_put(&u); /* the registration is kept for the next user */
	free_mem(m);
	m = toy_mem(toy_va);
	T_OK(get(m, 0, LEN, 0, &u));
	T_CHECK(u.reg->rkey != rkey);
	T_EQ(stats().made - before.made, 2);
	registration_put(&u);
	free_mem(m);
	end();
}

/* The owner frees wrapped memory without telling the library: the next use notices, and ends all
 * registrations of it. */
static void freed_memory_is_found_out(void)
{
	struct registration_stats before = stats();
	struct reg_user u = { 0 }, v = { .ended = on_end };
	struct pst_mem *m;

	rig_needs_stub();
	begin(true);
	m = toy_mem(toy_va);
	T_OK(get(m, 0, 100, 0, &u));
	registration_put(&u);
	T_OK(get(m, 0, 100, BOTH, &v));
	T_EQ(stats().live - before.live, 2);
	toy.dead = true;
	T_EQ(get(m, 0, 100, 0, &u), -EFAULT);
	T_EQ(s.ended, 1);
	/* only v's registration is left: its user was told to release it */
	T_EQ(stats().live - before.live, 1);
	T_EQ(get(m, 0, 100, 0, &u), -EFAULT);
	T_EQ(s.ended, 1);
	free_mem(m);
	T_EQ(toy.frees, 0);
	registration_put(&v);
	T_EQ(stats().live, before.live);
	T_EQ(toy.frees, 1);
	end();
}

/* R5c: the registration can no longer be found, users are told, it is deregistered, and then the
 * memory is freed. */
static void memory_in_use_ends_with_its_last_user(void)
{
	struct registration_stats before = stats();
	struct reg_user u[2] = { { .ended = on_end }, { .ended = on_end } };
	struct pst_mem *m;

	rig_needs_stub();
	begin(true);
	m = toy_mem(toy_va);
	T_OK(get(m, 0, LEN, BOTH, &u[0]));
	T_OK(get(m, 0, LEN, BOTH, &u[1]));
	free_mem(m);
	T_EQ(s.ended, 2);
	T_EQ(toy.frees, 0);
	T_EQ(registrations_forget(&rig.domain->reg), -EBUSY);
	T_EQ(nic_domain_free(rig.domain), -EBUSY);
	T_EQ(write_by(u[0].reg->addr, u[0].reg->rkey, 16), 16);
	registration_put(&u[0]);
	T_EQ(toy.frees, 0);
	registration_put(&u[1]);
	T_EQ(toy.frees, 1);
	T_EQ(toy.live_at_free, before.live);
	end();
}

/* R5e: two handles on one allocation: freeing one does not affect the other. */
static void two_handles_share_a_registration(void)
{
	struct registration_stats before = stats();
	struct reg_user u = { .ended = on_end };
	struct pst_mem *m, *n;

	rig_needs_stub();
	begin(true);
	m = toy_mem(toy_va);
	T_OK(object_new_mem(region_again(m->region), 0, LEN, &n));
	T_OK(get(m, 0, LEN, 0, &u));
	free_mem(m);
	T_EQ(s.ended, 0);
	registration_put(&u);
	T_OK(get(n, 0, LEN, 0, &u));
	T_EQ(stats().made - before.made, 1);
	registration_put(&u);
	free_mem(n);
	T_EQ(toy.frees, 1);
	end();
}

static void there_is_a_limit(void)
{
	struct registration_stats before = stats();
	struct reg_user u[3] = { 0 };
	struct pst_mem *m[3];

	begin(true);
	registration_limit((unsigned)before.live + 2);
	for (unsigned i = 0; i < 3; i++) {
		T_OK(pst_mem_alloc("host", LEN, NULL, &m[i]));
		if (i == 2) {
			T_EQ(get(m[i], 0, 1, 0, &u[i]), -ENOSPC);
			T_CHECK(strstr(err_text(), "in use"));
			registration_put(&u[0]);
		}
		T_OK(get(m[i], 0, 1, 0, &u[i]));
	}
	T_EQ(stats().evicted - before.evicted, 1);
	T_EQ(stats().live - before.live, 2);
	for (unsigned i = 0; i < 3; i++) {
		registration_put(&u[i]);
		T_EQ(pst_mem_free(m[i]), 0);
	}
	registration_limit(0);
	end();
}

/* Idle registrations end when the device cannot pin more. */
static void idle_ones_make_room(void)
{
	struct registration_stats before = stats();
	struct reg_user u = { 0 };
	struct pst_mem *m[2];

	rig_needs_stub();
	begin(true);
	for (unsigned i = 0; i < 2; i++)
		T_OK(pst_mem_alloc("host", LEN, NULL, &m[i]));
	rig.fail("ibv_reg_mr_iova2:1:12");
	T_EQ(get(m[0], 0, 1, 0, &u), -ENOMEM);
	T_CHECK(strstr(err_text(), "RLIMIT_MEMLOCK"));
	T_OK(get(m[0], 0, 1, 0, &u));
	registration_put(&u);
	rig.fail("ibv_reg_mr_iova2:1:12");
	T_OK(get(m[1], 0, 1, 0, &u));
	T_EQ(stats().evicted - before.evicted, 1);
	registration_put(&u);
	for (unsigned i = 0; i < 2; i++)
		T_EQ(pst_mem_free(m[i]), 0);
	end();
}

/*
 * A device that cannot pin more must not be taken for one that cannot register dma-bufs: the
 * caller gets the error, and the address is not tried.
 */
static void a_full_device_is_told_of(void)
{
	struct reg_user u = { 0 };
	struct pst_mem *m, *n;

	rig_needs_stub();
	begin(true);
	m = toy_mem(toy_va);
	rig.peermem(toy_va, LEN, toy_bytes(m));
	rig.fail("ibv_reg_dmabuf_mr:1:12");
	T_EQ(get(m, 0, LEN, BOTH, &u), -ENOMEM);
	T_CHECK(strstr(err_text(), "cannot pin"));
	/* The second try succeeds, because an idle registration is ended for it. */
	T_OK(pst_mem_alloc("host", LEN, NULL, &n));
	T_OK(get(n, 0, 1, 0, &u));
	registration_put(&u);
	rig.fail("ibv_reg_dmabuf_mr:1:12");
	T_OK(get(m, 0, LEN, BOTH, &u));
	T_EQ(u.reg->how, MEM_REG_DMABUF);
	registration_put(&u);
	rig.peermem(0, 0, NULL);
	T_EQ(pst_mem_free(n), 0);
	free_mem(m);
	end();
}

/* Test with real bytes, in both directions, what a device reaches. */
static void a_loop_back_finds_what_fails(void)
{
	struct selftest st;

	rig_needs_stub();
	begin(true);
	T_OK(selftest_run(rig.nic, &toy_ops, 0, &st));
	T_CHECK(st.how == MEM_REG_DMABUF && st.write == 0 && st.read == 0);
	rig.fail("completion:1:11");
	T_EQ(selftest_run(rig.nic, &toy_ops, 0, &st), -EREMOTEIO);
	T_CHECK(st.write == -EREMOTEIO && st.read == -ECANCELED);
	rig.fail("completion:2:10");
	T_EQ(selftest_run(rig.nic, &toy_ops, 0, &st), -EACCES);
	T_CHECK(st.write == 0 && st.read == -EACCES);
	T_CHECK(strstr(err_text(), "does not read"));
	toy.exports = false;
	T_EQ(selftest_run(rig.nic, &toy_ops, 0, &st), -EFAULT);
	T_EQ(st.write, -ECANCELED);
	T_EQ(toy.frees, 4);
	end();
}

static void host_memory_loops_back(void)
{
	struct selftest st;

	begin(true);
	T_OK(selftest_run(rig.nic, &mem_host_ops, 0, &st));
	T_CHECK(st.how == MEM_REG_HOST && st.write == 0 && st.read == 0);
	end();
}

static struct pst_mem *shared;

static void *use_it(void *arg)
{
	struct reg_user u = { 0 };

	for (unsigned i = 0; i < 200; i++) {
		if (get(shared, 0, 1, 0, &u) < 0)
			return shared;
		registration_put(&u);
	}
	return arg;
}

static void threads_share_one(void)
{
	struct registration_stats before = stats();
	pthread_t t[4];
	void *bad;

	begin(true);
	T_OK(pst_mem_alloc("host", LEN, NULL, &shared));
	for (unsigned i = 0; i < 4; i++)
		T_EQ(pthread_create(&t[i], NULL, use_it, NULL), 0);
	for (unsigned i = 0; i < 4; i++) {
		T_EQ(pthread_join(t[i], &bad), 0);
		T_CHECK(!bad);
	}
	T_EQ(stats().made - before.made, 1);
	T_EQ(stats().found - before.found, 799);
	T_EQ(pst_mem_free(shared), 0);
	end();
}

int main(void)
{
	T_RUN(made_once_and_kept);
	T_RUN(a_key_covers_its_range_exactly);
	T_RUN(device_memory_goes_by_dmabuf);
	T_RUN(device_memory_goes_by_peer_memory);
	T_RUN(without_either_there_is_an_error);
	T_RUN(a_device_that_registers_no_dmabuf_says_so);
	T_RUN(an_address_that_comes_back_has_no_registration);
	T_RUN(a_device_address_that_comes_back_has_none);
	T_RUN(freed_memory_is_found_out);
	T_RUN(memory_in_use_ends_with_its_last_user);
	T_RUN(two_handles_share_a_registration);
	T_RUN(there_is_a_limit);
	T_RUN(idle_ones_make_room);
	T_RUN(a_full_device_is_told_of);
	T_RUN(a_loop_back_finds_what_fails);
	T_RUN(host_memory_loops_back);
	T_RUN(threads_share_one);
	return t_done();
}
