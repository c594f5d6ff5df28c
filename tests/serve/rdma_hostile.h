/* SPDX-License-Identifier: MIT */
/*
 * Shared by the tests of the storage service by RDMA against peers that break the rules: a device,
 * memory and connections of the test.  libibverbs is the stub of tests/stub.
 */
#ifndef PST_TEST_RDMA_HOSTILE_H
#define PST_TEST_RDMA_HOSTILE_H

#include <dlfcn.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "stub/ibverbs_stub.h"

#include "rig.h"
#include "service.h"

#include "net/verbs/blob.h"
#include "net/verbs/endpoint.h"
#include "net/wire.h"

#define SEED 7
#define LEN 65536u
#define DEVICE "stub0"
#define TCP PST_PATH_BIT(PST_PATH_TCP)
#define RDMA PST_PATH_BIT(PST_PATH_RDMA)

static __typeof__(stub_ibverbs_state) *stub_state;
static __typeof__(stub_ibverbs_port) *stub_port;

/* The test's device and memory. */
static struct {
	struct nic *nic;
	struct nic_domain *domain;
	uint8_t *mem; /* 3 * LEN bytes; the middle part has a key */
	struct mem_reg *reg, *read_only, *local;
} own;

static inline void own_begin(void)
{
	void *lib = dlopen(getenv("PST_LIBIBVERBS"), RTLD_NOW);
	void *at = lib ? dlsym(lib, "stub_ibverbs_state") : NULL;

	T_CHECK(at);
	memcpy(&stub_state, &at, sizeof(at));
	at = dlsym(lib, "stub_ibverbs_port");
	T_CHECK(at);
	memcpy(&stub_port, &at, sizeof(at));
	T_OK(nic_open(DEVICE, NULL, &own.nic));
	T_OK(nic_domain_host_new(own.nic, &own.domain));
	own.mem = aligned_alloc(4096, 3 * LEN);
	T_CHECK(own.mem);
	T_OK(mr_reg_host(own.domain, own.mem + LEN, LEN, MEM_REG_REMOTE, &own.reg));
	T_OK(mr_reg_host(own.domain, own.mem + LEN, LEN, MEM_REG_REMOTE_READ, &own.read_only));
	T_OK(mr_reg_host(own.domain, own.mem, 3 * LEN, 0, &own.local));
}

static inline void own_end(void)
{
	mr_dereg(own.domain, own.reg);
	mr_dereg(own.domain, own.read_only);
	mr_dereg(own.domain, own.local);
	T_OK(nic_domain_free(own.domain));
	nic_close(own.nic);
	free(own.mem);
}

/* Check that nothing is left; connections that other threads are closing need a moment. */
static inline void nothing_is_left(void)
{
	struct stub_ibverbs_state st;
	uint64_t end = t_hang();

	do
		stub_state(&st);
	while ((st.qps || st.cqs || st.mrs > 3 || st.pds > 1) && t_now() < end &&
	       usleep(1000) == 0);
	if (*st.broken)
		T_FAIL("a rule of verbs was broken: %s", st.broken);
	T_EQ(st.qps, 0);
	T_EQ(st.cqs, 0);
	T_EQ(st.mrs, 3);
	T_EQ(st.pds, 1);
}

static inline struct endpoint *end_new(unsigned recv_slots)
{
	struct endpoint_opts o = {
		.send_slots = 8, .recv_slots = recv_slots, .deadline_ms = 1000, .events = true
	};
	struct endpoint *ep;

	T_OK(endpoint_new(own.domain, &o, &ep));
	return ep;
}

/* Wait for the next completion. */
static inline struct endpoint_done end_wait(struct endpoint *ep)
{
	struct endpoint_done d = { 0 };
	uint64_t end = t_hang();

	while (endpoint_poll(ep, &d, 1) == 0 && t_now() < end)
		(void)usleep(100);
	return d;
}

static inline bool send_bytes(int fd, const void *buf, size_t len)
{
	return send(fd, buf, len, MSG_NOSIGNAL) == (ssize_t)len;
}

static inline bool recv_bytes(int fd, void *buf, size_t len)
{
	return !len || recv(fd, buf, len, MSG_WAITALL) == (ssize_t)len;
}

static inline int unix_socket(const char *name, struct sockaddr_un *ret)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	T_CHECK(fd >= 0);
	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	(void)snprintf(ret->sun_path, sizeof(ret->sun_path), "%.100s", rig_path(name));
	return fd;
}

/* Start what each of these tests needs. */
static inline void own_rig(void)
{
	rig_init();
	(void)signal(SIGPIPE, SIG_IGN);
	(void)setenv("STUB_IBVERBS_FABRIC", rig_path("fabric"), 1);
	(void)setenv("PST_RDMA", DEVICE, 1);
	own_begin();
	rig_make(rig_path("data"), SEED, LEN);
}

#endif
