/* SPDX-License-Identifier: MIT */
/*
 * Registrations and keys when memory is freed, replaced or restricted: no device may reach
 * memory that its owner has back.
 */
#include <pthread.h>
#include <semaphore.h>
#include <sys/mman.h>

#include "verbs_rig.h"

#define PAGE 4096u
#define LEN 65536u

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

static uint8_t *map_pages(void *at)
{
	uint8_t *p = mmap(at, LEN, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);

	T_CHECK(p != MAP_FAILED);
	return p;
}

/* ------------------------------------------------------ wrapped host memory */

/* The program replaces the pages of wrapped memory between two requests: the second must not use
 * the registration of the old pages. */
static void replaced_pages_are_registered_again(void)
{
	struct registration_stats before;
	struct reg_user u = { 0 };
	struct pst_mem *m;
	uint64_t epoch;
	uint8_t *p;

	rig_open();
	before = stats();
	p = map_pages(NULL);
	T_OK(pst_mem_wrap((uintptr_t)p, LEN, NULL, &m));
	T_OK(get(m, 0, 100, MEM_REG_LOCAL_WRITE, &u));
	epoch = u.epoch;
	registration_put(&u);
	T_EQ(stats().live, before.live);
	T_EQ(munmap(p, LEN), 0);
	T_CHECK(map_pages(p) == p);
	T_OK(get(m, 0, 100, MEM_REG_LOCAL_WRITE, &u));
	T_CHECK(u.epoch != epoch);
	registration_put(&u);
	T_EQ(pst_mem_free(m), 0);
	T_EQ(munmap(p, LEN), 0);
	rig_close();
}

/*
 * If pages of memory may vanish, only the range is registered.  The rest need not exist, and a
 * request that sends does not need writable memory.
 */
static void loose_memory_is_registered_by_range(void)
{
	struct reg_user u = { 0 }, v = { 0 };
	struct pst_mem *m;
	uint8_t *p;

	rig_open();
	p = map_pages(NULL);
	T_OK(pst_mem_wrap((uintptr_t)p, LEN, NULL, &m));
	T_EQ(munmap(p + LEN / 2, LEN / 2), 0);
	T_OK(get(m, PAGE, PAGE, 0, &u));
	T_EQ(u.reg->off, PAGE);
	T_EQ(u.reg->len, PAGE);
	T_OK(get(m, 2 * PAGE, 8, MEM_REG_LOCAL_WRITE, &v));
	T_CHECK(v.reg != u.reg);
	registration_put(&u);
	registration_put(&v);
	T_EQ(get(m, LEN - 8, 8, 0, &u), -EFAULT);
	T_EQ(pst_mem_free(m), 0);
	T_EQ(munmap(p, LEN / 2), 0);
	rig_close();
}

/* A program that has promised stable pages gets one registration of all memory. */
static void pinned_memory_is_registered_once(void)
{
	struct pst_mem_opts o = { .sz = sizeof(o), .flags = PST_MEM_PINNED };
	struct registration_stats before;
	struct reg_user u = { 0 };
	struct pst_mem *m;
	uint8_t *p;

	rig_open();
	before = stats();
	p = map_pages(NULL);
	T_OK(pst_mem_wrap((uintptr_t)p, LEN, &o, &m));
	for (unsigned i = 0; i < 2; i++) {
		T_OK(get(m, i * PAGE, 10, i ? MEM_REG_LOCAL_WRITE : 0, &u));
		T_EQ(u.reg->len, LEN);
		registration_put(&u);
	}
	T_EQ(stats().made - before.made, 1);
	T_EQ(pst_mem_free(m), 0);
	T_EQ(munmap(p, LEN), 0);
	rig_close();
}

/* --------------------------------------------------------------------- keys */

/* Draining memory waits for keys of peers that cover it, but not for keys of other ranges. */
static void drain_counts_keys(void)
{
	struct reg_user u = { 0 };
	struct pst_mem *m;
	uint8_t *p;

	rig_open();
	p = map_pages(NULL);
	T_OK(pst_mem_wrap((uintptr_t)p, LEN, NULL, &m));
	T_OK(get(m, PAGE, PAGE, MEM_REG_REMOTE_READ, &u));
	T_EQ(pst_mem_drain(m, t_in_ms(5)), -EBUSY);
	T_CHECK(strstr(err_text(), "keys"));
	T_EQ(registration_keys(m->region, 0, PAGE), 0);
	T_EQ(registration_keys(m->region, 2 * PAGE - 1, 1), 1);
	registration_put(&u);
	T_OK(pst_mem_drain(m, 0));
	T_OK(get(m, 0, PAGE, 0, &u)); /* a key without remote rights does not count */
	T_OK(pst_mem_drain(m, 0));
	registration_put(&u);
	T_EQ(pst_mem_free(m), 0);
	T_EQ(munmap(p, LEN), 0);
	rig_close();
}

/* A peer's key has no right that the memory does not have. */
static void keys_have_the_rights_of_the_memory(void)
{
	struct reg_user u = { 0 };
	struct pst_mem *m;

	rig_open();
	T_OK(pst_mem_alloc("host", LEN, NULL, &m));
	m->region->alloc->rights = PST_RIGHT_WRITE;
	T_EQ(get(m, 0, PAGE, MEM_REG_REMOTE_READ, &u), -EACCES);
	T_OK(get(m, 0, PAGE, MEM_REG_REMOTE_WRITE, &u));
	registration_put(&u);
	m->region->alloc->rights = PST_RIGHT_READ;
	T_EQ(get(m, 0, PAGE, MEM_REG_REMOTE_WRITE, &u), -EACCES);
	T_OK(get(m, 0, PAGE, MEM_REG_REMOTE_READ, &u));
	registration_put(&u);
	T_EQ(pst_mem_free(m), 0);
	rig_close();
}

/* ------------------------------------------------------- other threads' work */

/* A registrar whose deregistration waits for go_on. */
static struct {
	struct mem_registrar reg;
	sem_t begun, go_on;
	atomic_int ended;
} slow;

static int slow_reg(struct mem_registrar *r, const struct mem_alloc *a, uint64_t off, uint64_t len,
		    uint32_t rights, struct mem_reg **ret)
{
	struct mem_reg *m = calloc(1, sizeof(*m));

	(void)r;
	(void)rights;
	T_CHECK(m);
	*m = (struct mem_reg){ .off = off, .len = len, .addr = a->base.va + off };
	*ret = m;
	return 0;
}

static void slow_dereg(struct mem_registrar *r, struct mem_reg *reg)
{
	(void)r;
	(void)sem_post(&slow.begun);
	(void)sem_wait(&slow.go_on);
	atomic_store(&slow.ended, 1);
	free(reg);
}

static const struct mem_registrar_ops slow_ops = { .reg = slow_reg, .dereg = slow_dereg };

static void slow_begin(void)
{
	slow.reg.ops = &slow_ops;
	T_EQ(sem_init(&slow.begun, 0, 0), 0);
	T_EQ(sem_init(&slow.go_on, 0, 0), 0);
	atomic_store(&slow.ended, 0);
}

static void *put_user(void *arg)
{
	registration_put(arg);
	return NULL;
}

static void *go_on_soon(void *arg)
{
	struct timespec ts = { .tv_nsec = 20000000 };

	(void)arg;
	(void)nanosleep(&ts, NULL);
	(void)sem_post(&slow.go_on);
	return NULL;
}

static int toy_freed_before; /* deregistrations that had ended when the memory was freed */

static void watched_free(struct mem_alloc *a)
{
	toy_freed_before = !atomic_load(&slow.ended);
	mem_host_ops.free(a);
}

/* One thread deregisters memory while another frees it: the memory must stay until the device is
 * done. */
static void memory_stays_while_it_is_deregistered(void)
{
	static struct mem_ops watched;
	struct reg_user u = { 0 };
	struct pst_mem *m;
	pthread_t t;

	slow_begin();
	watched = mem_host_ops;
	watched.free = watched_free;
	toy_freed_before = -1;
	T_OK(pst_mem_alloc("host", LEN, NULL, &m));
	m->region->alloc->ops = &watched;
	T_OK(registration_get(m->region, &slow.reg, 0, 8, MEM_REG_REMOTE_READ, &u));
	T_EQ(pthread_create(&t, NULL, put_user, &u), 0);
	T_EQ(sem_wait(&slow.begun), 0);
	T_EQ(pst_mem_free(m), 0);
	T_EQ(toy_freed_before, -1);
	(void)sem_post(&slow.go_on);
	T_EQ(pthread_join(t, NULL), 0);
	T_EQ(toy_freed_before, 0);
	T_OK(registrations_forget(&slow.reg));
}

/* Forgetting a registrar waits for a registration without users that is being ended, instead of
 * reporting that it is in use. */
static void forget_waits_for_what_is_being_ended(void)
{
	struct reg_user u = { 0 };
	struct pst_mem *m;
	pthread_t t, helper;

	slow_begin();
	T_OK(pst_mem_alloc("host", LEN, NULL, &m));
	T_OK(registration_get(m->region, &slow.reg, 0, 8, MEM_REG_REMOTE_READ, &u));
	T_EQ(registrations_forget(&slow.reg), -EBUSY);
	T_EQ(pthread_create(&t, NULL, put_user, &u), 0);
	T_EQ(sem_wait(&slow.begun), 0);
	T_EQ(pthread_create(&helper, NULL, go_on_soon, NULL), 0);
	T_OK(registrations_forget(&slow.reg));
	T_EQ(atomic_load(&slow.ended), 1);
	T_EQ(pthread_join(t, NULL), 0);
	T_EQ(pthread_join(helper, NULL), 0);
	T_EQ(pst_mem_free(m), 0);
}

int main(void)
{
	T_RUN(replaced_pages_are_registered_again);
	T_RUN(loose_memory_is_registered_by_range);
	T_RUN(pinned_memory_is_registered_once);
	T_RUN(drain_counts_keys);
	T_RUN(keys_have_the_rights_of_the_memory);
	T_RUN(memory_stays_while_it_is_deregistered);
	T_RUN(forget_waits_for_what_is_being_ended);
	return t_done();
}
