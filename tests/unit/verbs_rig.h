/* SPDX-License-Identifier: MIT */
/*
 * Shared by the tests of RDMA: a device, and the functions of the stub if the device is the
 * stub's.
 */
#ifndef PST_TESTS_VERBS_RIG_H
#define PST_TESTS_VERBS_RIG_H

#include <dlfcn.h>
#include <stdio.h>

#include <penstock.h>

#include "base/err.h"
#include "core/ways/region.h"
#include "core/ways/registration.h"
#include "net/verbs/endpoint.h"
#include "net/verbs/mr.h"
#include "stub/ibverbs_stub.h"

#define T_ERROR_TEXT() err_text()
#include "t.h"

static struct {
	bool is_stub;
	__typeof__(stub_ibverbs_state) *state;
	__typeof__(stub_ibverbs_fail) *fail;
	__typeof__(stub_ibverbs_peermem) *peermem;
	__typeof__(stub_ibverbs_port) *port;
	__typeof__(stub_ibverbs_late) *late;
	__typeof__(stub_ibverbs_die) *die;
	struct nic *nic;
	struct nic_domain *domain;
} rig;

static inline void *rig_sym(void *lib, const char *name)
{
	return lib ? dlsym(lib, name) : NULL;
}

static inline void rig_stub(void)
{
	const char *file = getenv("PST_LIBIBVERBS");
	void *lib = file ? dlopen(file, RTLD_NOW | RTLD_NOLOAD) : NULL;
	void *at[] = { rig_sym(lib, "stub_ibverbs_state"),   rig_sym(lib, "stub_ibverbs_fail"),
		       rig_sym(lib, "stub_ibverbs_peermem"), rig_sym(lib, "stub_ibverbs_port"),
		       rig_sym(lib, "stub_ibverbs_late"),    rig_sym(lib, "stub_ibverbs_die") };

	memcpy(&rig.state, &at[0], sizeof(void *));
	memcpy(&rig.fail, &at[1], sizeof(void *));
	memcpy(&rig.peermem, &at[2], sizeof(void *));
	memcpy(&rig.port, &at[3], sizeof(void *));
	memcpy(&rig.late, &at[4], sizeof(void *));
	memcpy(&rig.die, &at[5], sizeof(void *));
	rig.is_stub = rig.state;
	if (lib)
		(void)dlclose(lib);
}

/* Open a device and a protection domain, or skip the case. */
static inline void rig_open(void)
{
	int r = verbs_load();

	if (r < 0)
		T_SKIP("no libibverbs: %s", err_text());
	rig_stub();
	if (rig.is_stub) {
		rig.fail(NULL);
		rig.late(false);
		rig.die(false, false);
	}
	r = nic_open(NULL, NULL, &rig.nic);
	if (r < 0 && !rig.is_stub)
		T_SKIP("no RDMA device: %s", err_text());
	T_OK(r);
	T_OK(nic_domain_new(rig.nic, &rig.domain));
}

/* Skip the case unless the stub is used.  Call before rig_open(). */
static inline void rig_needs_stub(void)
{
	if (verbs_load() == 0)
		rig_stub();
	if (!rig.is_stub)
		T_SKIP("faults on demand, which the double of libibverbs has");
}

/* Close everything.  Check that no object is left, and that no rule of libibverbs was broken. */
static inline void rig_close(void)
{
	struct stub_ibverbs_state st;

	T_OK(registrations_forget(&rig.domain->reg));
	T_OK(nic_domain_free(rig.domain));
	nic_close(rig.nic);
	rig.domain = NULL;
	rig.nic = NULL;
	if (!rig.is_stub)
		return;
	rig.state(&st);
	T_EQ(st.contexts + st.pds + st.mrs + st.cqs + st.channels + st.qps, 0);
	if (*st.broken)
		T_FAIL("%s", st.broken);
}

/* Connect two endpoints of this process. */
static inline void rig_join(struct endpoint *a, struct endpoint *b)
{
	uint8_t blob[2][ENDPOINT_BLOB];

	endpoint_blob(a, blob[0]);
	endpoint_blob(b, blob[1]);
	T_OK(endpoint_connect(a, blob[1], ENDPOINT_BLOB));
	T_OK(endpoint_connect(b, blob[0], ENDPOINT_BLOB));
}

/* Wait for nr completions. */
static inline void rig_wait(struct endpoint *ep, struct endpoint_done *ret, unsigned nr)
{
	uint64_t until = t_hang();
	unsigned n = 0;

	while (n < nr) {
		int r = endpoint_poll(ep, ret + n, nr - n);

		T_CHECK(r >= 0 && t_now() < until);
		n += (unsigned)r;
	}
}

#endif
