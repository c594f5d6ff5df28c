/* SPDX-License-Identifier: MIT */
/*
 * The functions of tests/stub/gaudi_stub.h for the real libhl-thunk, in a guest whose kernel has
 * the module labhl.
 */
#ifndef PST_GAUDI_LAB_H
#define PST_GAUDI_LAB_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "../lab/hl/labhl.h"
#include "stub/gaudi_stub.h"
#include "t.h"

static int lab_fd = -1;

/* Open the module's device if PST_GAUDI_LAB is set. */
static inline void gaudi_lab_open(void)
{
	if (!getenv("PST_GAUDI_LAB"))
		return;
	lab_fd = open("/dev/labhl", O_RDWR | O_CLOEXEC);
	T_CHECK(lab_fd >= 0);
}

static inline void gaudi_lab_close(void)
{
	if (lab_fd >= 0)
		(void)close(lab_fd);
	lab_fd = -1;
}

static inline void lab_state(struct stub_gaudi_state *ret)
{
	struct labhl_state s = { 0 };

	T_EQ(ioctl(lab_fd, LABHL_STATE, &s), 0);
	*ret = (struct stub_gaudi_state){
		.contexts = s.contexts,
		.handles = s.handles,
		.mappings = s.mappings,
		.exports = s.exports,
		.calls = s.calls,
		.exported = s.exported,
		.held = s.held,
		.leaked = s.leaked,
	};
}

/* Like stub_gaudi_fail(): translate a function's name to the request that it makes. */
static inline bool lab_fail(const char *spec)
{
	static const struct {
		const char *name;
		unsigned call, skip; /* skip: earlier requests of this kind by the function */
	} calls[] = {
		{ "*", LABHL_ANY, 0 },
		{ "hlthunk_open", LABHL_OPEN, 0 },
		{ "hlthunk_get_device_name_from_fd", LABHL_INFO, 0 },
		{ "hlthunk_get_hw_ip_info", LABHL_INFO, 1 },
		{ "hlthunk_device_memory_alloc", LABHL_ALLOC, 0 },
		{ "hlthunk_device_memory_free", LABHL_FREE, 0 },
		{ "hlthunk_device_memory_map", LABHL_MAP, 0 },
		{ "hlthunk_memory_unmap", LABHL_UNMAP, 0 },
		{ "hlthunk_device_mapped_memory_export_dmabuf_fd", LABHL_EXPORT, 0 },
	};
	struct labhl_fail f = { 0 };
	char name[64] = "";

	if (spec)
		T_EQ(sscanf(spec, "%63[^:]:%u:%u", name, &f.nth, &f.err), 3);
	for (unsigned i = 0; spec && i < sizeof(calls) / sizeof(calls[0]); i++)
		if (!strcmp(name, calls[i].name)) {
			f.call = calls[i].call;
			f.nth += f.nth ? calls[i].skip : 0;
		}
	T_CHECK(!spec || f.call);
	T_EQ(ioctl(lab_fd, LABHL_SET_FAIL, &f), 0);
	return f.met;
}

static inline void lab_reset(int dev, bool begins)
{
	struct labhl_reset r = { .device = (unsigned)dev, .begins = begins };

	T_EQ(ioctl(lab_fd, LABHL_SET_RESET, &r), 0);
}

static inline bool lab_copy(int fd, uint64_t at, const void *buf, size_t len, bool store)
{
	struct labhl_copy c = {
		.at = at, .user = (uint64_t)(uintptr_t)buf, .len = len, .fd = fd, .store = store
	};

	return ioctl(lab_fd, LABHL_COPY, &c) == 0;
}

static inline bool lab_peek(uint64_t va, void *buf, size_t len)
{
	return lab_copy(-1, va, buf, len, false);
}

static inline bool lab_poke(uint64_t va, const void *buf, size_t len)
{
	return lab_copy(-1, va, buf, len, true);
}

/* Set the device id: Gaudi 2 by default, "2" for a Gaudi, else an unknown one. */
static inline void lab_name(const char *name)
{
	uint32_t id = !name ? 0x1020u : !strcmp(name, "2") ? 0x1000u : 0x1fffu;

	T_EQ(ioctl(lab_fd, LABHL_SET_ID, &id), 0);
}

#endif
