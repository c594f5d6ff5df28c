/* SPDX-License-Identifier: MIT */
/*
 * Shared by tests of Gaudi memory.  They use the libraries of tests/stub/, which PST_LIBHLTHUNK,
 * PST_LIBSYNAPSE and PST_LIBSCAL name, and a folder that imitates the kernel's sysfs.
 *
 * If PST_LIBHLTHUNK is the real library, they use the lab's kernel module and the real sysfs
 * instead: lab/guest-gaudi.
 */
#ifndef PST_GAUDI_RIG_H
#define PST_GAUDI_RIG_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gaudi_lab.h"
#include "scratch.h"
#include "stub/gaudi_stub.h"
#include "symbol.h"
#include "t.h"

static struct {
	void (*state)(struct stub_gaudi_state *);
	bool (*fail)(const char *);
	void (*reset)(int, bool);
	bool (*peek)(uint64_t, void *, size_t);
	bool (*poke)(uint64_t, const void *, size_t);
	void (*syn_state)(struct stub_syn_state *);
	void (*hold)(bool);
	void (*forgive)(void);
} gs;

static char gaudi_sys[200];

static inline void gaudi_put(const char *dir, const char *name, const char *text)
{
	char path[700];
	FILE *f;

	if (lab_fd >= 0)
		(void)snprintf(path, sizeof(path), "/sys/%s/%s", dir, name);
	else
		(void)snprintf(path, sizeof(path), "%s/sys/%s/%s", gaudi_sys, dir, name);
	for (char *at = path + strlen(gaudi_sys) + 1; lab_fd < 0 && (at = strchr(at, '/')); at++) {
		*at = '\0';
		T_CHECK(mkdir(path, 0700) == 0 || errno == EEXIST);
		*at = '/';
	}
	f = fopen(path, "we");
	T_CHECK(f);
	(void)fputs(text, f);
	(void)fclose(f);
}

/* Add a device to the sysfs folder.  Its device number is that of /dev/null or /dev/zero, which
 * tests open in its place. */
static inline void gaudi_add(int dev, const char *type)
{
	static const char *const pci[] = { STUB_GAUDI_PCI_0, STUB_GAUDI_PCI_1 };
	char dir[100];

	(void)snprintf(dir, sizeof(dir), "class/accel/accel%d", dev);
	gaudi_put(dir, "pci_addr", pci[dev]);
	gaudi_put(dir, "device_type", type);
	gaudi_put(dir, "status", "Operational\n"); /* the driver capitalizes the status */
	gaudi_put(dir, "device/vendor", "0x1da3\n");
	(void)snprintf(dir, sizeof(dir), "dev/char/1:%d", dev ? 5 : 3);
	gaudi_put(dir, "pci_addr", pci[dev]);
}

/* Make the sysfs folder with two Gaudis and an Intel NPU, and set PST_GAUDI_ROOT to it. */
static inline void gaudi_sys_new(const char *type)
{
	T_EQ(scratch_new(NULL, gaudi_sys, sizeof(gaudi_sys)), 0);
	if (lab_fd >= 0)
		return;
	gaudi_put("class/accel/accel7", "device/vendor", "0x8086\n");
	gaudi_put("class/accel/accel7", "pci_addr", "0000:00:0b.0\n");
	gaudi_put("class/accel/accel_controlD0", "device/vendor", "0x1da3\n");
	gaudi_add(0, type);
	gaudi_add(1, type);
	(void)setenv("PST_GAUDI_ROOT", gaudi_sys, 1);
}

static inline void gaudi_sys_done(void)
{
	(void)scratch_remove(gaudi_sys);
	gaudi_lab_close();
}

/* Set the device name that the library reports, a number of enum hlthunk_device_name; NULL:
 * Gaudi 2. */
static inline void gaudi_name(const char *name)
{
	if (lab_fd >= 0)
		lab_name(name);
	else if (name)
		(void)setenv("STUB_GAUDI_NAME", name, 1);
	else
		(void)unsetenv("STUB_GAUDI_NAME");
}

static inline void gaudi_stub_find(void)
{
	const char *thunk = getenv("PST_LIBHLTHUNK");
	void *lib = thunk ? dlopen(thunk, RTLD_NOW) : NULL;

	if (!lib) {
		printf("Bail out! PST_LIBHLTHUNK names no double of libhl-thunk\n");
		exit(1);
	}
	symbol(lib, &gs.state, "stub_gaudi_state");
	if (!gs.state) {
		T_CHECK(lab_fd >= 0);
		gs.state = lab_state;
		gs.fail = lab_fail;
		gs.reset = lab_reset;
		gs.peek = lab_peek;
		gs.poke = lab_poke;
		return;
	}
	symbol(lib, &gs.fail, "stub_gaudi_fail");
	symbol(lib, &gs.reset, "stub_gaudi_reset");
	symbol(lib, &gs.peek, "stub_gaudi_peek");
	symbol(lib, &gs.poke, "stub_gaudi_poke");
	symbol(lib, &gs.forgive, "stub_gaudi_forgive");
}

/* Let wrong calls return the driver's errno instead of ending the process. */
static inline void gaudi_forgive(void)
{
	if (gs.forgive)
		gs.forgive();
}

/* Load SynapseAI into the process. */
static inline void *gaudi_synapse_find(void)
{
	const char *synapse = getenv("PST_LIBSYNAPSE");
	void *lib = synapse ? dlopen(synapse, RTLD_NOW) : NULL;

	T_CHECK(lib);
	symbol(lib, &gs.syn_state, "stub_syn_state");
	symbol(lib, &gs.hold, "stub_syn_hold");
	return lib;
}

/* Copy bytes of a dma-buf through a mapping: one from /dev/udmabuf has no read(2). */
static inline void gaudi_dmabuf_io(int fd, uint64_t off, void *buf, size_t len, bool store)
{
	size_t size = (size_t)lseek(fd, 0, SEEK_END);
	char *p;

	if (lab_fd >= 0) {
		T_CHECK(lab_copy(fd, off, buf, len, store));
		return;
	}
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	T_CHECK(p != MAP_FAILED && off + len <= size);
	if (store)
		memcpy(p + off, buf, len);
	else
		memcpy(buf, p + off, len);
	T_EQ(munmap(p, size), 0);
}

static inline struct stub_gaudi_state gaudi_state(void)
{
	struct stub_gaudi_state s;

	gs.state(&s);
	return s;
}

static inline struct stub_syn_state gaudi_syn_state(void)
{
	struct stub_syn_state s;

	gs.syn_state(&s);
	return s;
}

#endif
