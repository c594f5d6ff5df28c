/* SPDX-License-Identifier: MIT */
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/resource.h>

#include "base/err.h"
#include "base/sysfs.h"
#include "net/verbs/check.h"
#include "net/verbs/nic.h"
#include "net/verbs/selftest.h"

#define DEVICES_MAX 32u
#define PORTS_MAX 4u
#define ENOUGH_LOCKED GIB(1) /* bytes; the buffers of one fast device take up less */

struct checks {
	const char *root;
	struct pst_check *of;
	unsigned nr, max;
	unsigned devices, usable; /* devices: ports found by kernel or library; usable: ports
				   * that can be used */
	bool dmabuf;              /* a usable device registers dma-bufs */
};

_printf_(5, 6) static void add(struct checks *c, const char *name, uint32_t state, int err,
			       const char *fmt, ...)
{
	struct pst_check *k = &c->of[c->nr];
	va_list ap;

	if (c->nr == c->max)
		return;
	*k = (struct pst_check){ .sz = sizeof(*k), .state = state, .err = err < 0 ? -err : err };
	(void)snprintf(k->name, sizeof(k->name), "%s", name);
	va_start(ap, fmt);
	(void)vsnprintf(k->text, sizeof(k->text), fmt, ap);
	va_end(ap);
	c->nr++;
}

_printf_(2, 3) static bool there_is(const struct checks *c, const char *fmt, ...)
{
	char path[512];
	size_t n = (size_t)snprintf(path, sizeof(path), "%s", c->root);
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(path + n, sizeof(path) - n, fmt, ap);
	va_end(ap);
	return access(path, F_OK) == 0;
}

/* Read the line of a port's sysfs file; "" if there is none. */
static void port_line(const struct checks *c, const char *dev, unsigned port, const char *file,
		      char *ret, size_t len)
{
	char path[512];

	*ret = '\0';
	(void)snprintf(path, sizeof(path), "%s/sys/class/infiniband/%s/ports/%u/%s", c->root, dev,
		       port, file);
	(void)sysfs_line(path, ret, len);
}

static void gid_text(const struct vb_gid_entry *e, char *ret, socklen_t len)
{
	const uint8_t *raw = e->gid.raw;
	bool ipv4 = raw[10] == 0xff && raw[11] == 0xff && !raw[0] && !raw[9];

	if (!inet_ntop(ipv4 ? AF_INET : AF_INET6, ipv4 ? raw + 12 : raw, ret, len))
		*ret = '\0';
}

/* ----------------------------------------------------------- by the kernel */

/* Parse a GID as sysfs writes it, such as "fe80:0000:...". */
static bool parse_gid(const char *line, union vb_gid *ret)
{
	return inet_pton(AF_INET6, line, ret->raw) == 1;
}

static size_t read_gids(const struct checks *c, const char *dev, unsigned port,
			struct vb_gid_entry *v, size_t max)
{
	char file[64], line[64];
	size_t nr = 0;

	for (unsigned i = 0; i < NIC_GIDS_MAX && nr < max; i++) {
		(void)snprintf(file, sizeof(file), "gids/%u", i);
		port_line(c, dev, port, file, line, sizeof(line));
		if (!*line)
			break;
		v[nr] = (struct vb_gid_entry){ .index = i, .port = port };
		if (!parse_gid(line, &v[nr].gid))
			continue;
		(void)snprintf(file, sizeof(file), "gid_attrs/types/%u", i);
		port_line(c, dev, port, file, line, sizeof(line));
		v[nr].type = !strcmp(line, "RoCE v2") ? VB_GID_ROCE_V2 : VB_GID_ROCE_V1;
		nr++;
	}
	return nr;
}

static void say_gid(struct checks *c, const char *dev, unsigned port, bool ethernet,
		    const struct vb_gid_entry *e, size_t nr, const char *rest)
{
	char text[INET6_ADDRSTRLEN] = "";

	if (!e) {
		add(c, "port", PST_CHECK_MISSING, EADDRNOTAVAIL,
		    "%s port %u is active, but none of its %zu GIDs is fit for connections; give "
		    "its network interface an IPv4 address",
		    dev, port, nr);
		return;
	}
	gid_text(e, text, sizeof(text));
	c->usable++;
	add(c, "port", PST_CHECK_OK, 0, "%s port %u is active, %s%s; GID %u of %zu: %s, %s", dev,
	    port, ethernet ? "Ethernet" : "InfiniBand", rest, e->index, nr, text,
	    nic_gid_rank_name(nic_gid_rank(e, ethernet)));
}

/* Return true if sysfs reports the node type "4: RNIC". */
static bool is_iwarp(const struct checks *c, const char *dev)
{
	char path[512], line[64] = "";

	(void)snprintf(path, sizeof(path), "%s/sys/class/infiniband/%s/node_type", c->root, dev);
	(void)sysfs_line(path, line, sizeof(line));
	return atoi(line) == NIC_NODE_RNIC;
}

static void sysfs_port(struct checks *c, const char *dev, unsigned port)
{
	_cleanup_(freep) struct vb_gid_entry *v = calloc(NIC_GIDS_MAX, sizeof(*v));
	char state[64], link[64], ndev[64], rate[64], rest[80] = "";
	bool ethernet;
	size_t nr;

	if (!v)
		return;
	if (is_iwarp(c, dev)) {
		add(c, "port", PST_CHECK_MISSING, EPROTONOSUPPORT,
		    "%s is an iWARP device, whose connections Penstock does not make; use "
		    "InfiniBand or RoCE",
		    dev);
		return;
	}
	port_line(c, dev, port, "state", state, sizeof(state));
	port_line(c, dev, port, "link_layer", link, sizeof(link));
	port_line(c, dev, port, "gid_attrs/ndevs/0", ndev, sizeof(ndev));
	port_line(c, dev, port, "rate", rate, sizeof(rate));
	if (!strstr(state, "ACTIVE")) {
		add(c, "port", PST_CHECK_MISSING, ENETDOWN,
		    "%s port %u is not active (%s); see its cable and switch%s%s", dev, port,
		    *state ? state : "no state", *ndev ? ", and ip link set up dev " : "", ndev);
		return;
	}
	if (*rate)
		(void)snprintf(rest, sizeof(rest), ", %s", rate);
	ethernet = !strcmp(link, "Ethernet");
	nr = read_gids(c, dev, port, v, NIC_GIDS_MAX);
	say_gid(c, dev, port, ethernet, nic_gid_choose(v, nr, (uint8_t)port, ethernet), nr, rest);
}

static int check_by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* List the kernel's RDMA devices in order; return their number. */
static unsigned sysfs_devices(const struct checks *c, char (*names)[NIC_NAME_MAX])
{
	char path[512];
	struct dirent *e;
	unsigned nr = 0;
	DIR *d;

	(void)snprintf(path, sizeof(path), "%s/sys/class/infiniband", c->root);
	d = opendir(path);
	while (d && nr < DEVICES_MAX && (e = readdir(d)))
		if (e->d_name[0] != '.')
			(void)snprintf(names[nr++], NIC_NAME_MAX, "%.63s", e->d_name);
	if (d)
		(void)closedir(d);
	qsort(names, nr, NIC_NAME_MAX, check_by_name);
	return nr;
}

/* ---------------------------------------------------------- by the library */

static void say_dmabuf(struct checks *c, const struct nic *n)
{
	if (!n->dmabuf_err) {
		c->dmabuf = true;
		add(c, "dma-buf", PST_CHECK_OK, 0, "%s registers dma-bufs", n->name);
	} else if (n->dmabuf_err == EPROTONOSUPPORT) {
		add(c, "dma-buf", PST_CHECK_MISSING, n->dmabuf_err,
		    "the kernel lets %s register no dma-bufs; use Linux 5.12 or newer, and in a "
		    "container its own /dev/infiniband",
		    n->name);
	} else {
		add(c, "dma-buf", PST_CHECK_MISSING, n->dmabuf_err,
		    "the driver of %s, or its library, registers no dma-bufs: %s; use a newer "
		    "rdma-core and kernel, or a device that has it, as mlx5 and irdma do",
		    n->name, err_name(n->dmabuf_err));
	}
}

/* Report a port of a device that only libibverbs knows, such as the stub of tests. */
static void library_port(struct checks *c, const struct nic *n)
{
	char rest[80];

	(void)snprintf(rest, sizeof(rest), ", MTU %u", 128u << n->mtu);
	say_gid(c, n->name, n->port, n->ethernet, &n->gid, n->nr_gids, rest);
}

/* Run a loopback test of the NIC on one kind of memory, comparing bytes; report it. */
static void say_loop(struct checks *c, struct nic *n, const char *memory)
{
	static const char *const ways[] = {
		[MEM_REG_HOST] = "its address",
		[MEM_REG_DMABUF] = "a dma-buf",
		[MEM_REG_PEERMEM] = "peer memory",
	};
	const struct mem_ops *ops;
	struct selftest st;
	unsigned device;
	int r = mem_find(memory, &ops, &device);

	if (r == 0)
		r = selftest_run(n, ops, device, &st);
	if (r < 0)
		add(c, "loop-back", PST_CHECK_MISSING, r, "%s with %s: %s", n->name, memory,
		    err_text());
	else
		add(c, "loop-back", PST_CHECK_OK, 0,
		    "%s wrote and read 64 KiB of %s, reached by %s, and they were right", n->name,
		    memory, ways[st.how]);
}

/* Test host memory and every accelerator's.  Skip the software device: its memory is host
 * memory. */
static void say_loops(struct checks *c, struct nic *n)
{
	struct pst_device v[DEVICES_MAX];
	int nr;

	for (unsigned i = 0; i < DEVICES_MAX; i++)
		v[i] = (struct pst_device){ .sz = sizeof(v[i]) };
	nr = mem_list(v, DEVICES_MAX);
	for (int i = 0; i < nr && i < (int)DEVICES_MAX; i++)
		if (v[i].kind != PST_KIND_SOFT)
			say_loop(c, n, v[i].name);
}

static void library_device(struct checks *c, const char *name, bool in_sysfs)
{
	struct nic *n;
	int r = nic_open(name, NULL, &n);

	if (r < 0) {
		/* If the port is unusable, the checks from sysfs have reported that. */
		if (!in_sysfs || (r != -ENETDOWN && r != -EADDRNOTAVAIL && r != -EPROTONOSUPPORT))
			add(c, "device", PST_CHECK_MISSING, r, "%s", err_text());
		return;
	}
	if (!in_sysfs)
		library_port(c, n);
	say_dmabuf(c, n);
	say_loops(c, n);
	nic_close(n);
}

/* ------------------------------------------------------------------ machine */

static void say_library(struct checks *c, int r)
{
	if (r < 0)
		add(c, "library", PST_CHECK_MISSING, r, "%s", err_text());
	else
		add(c, "library", PST_CHECK_OK, 0, "libibverbs is here%s",
		    vb.ibv_reg_dmabuf_mr ? "" : ", an old one that knows no dma-bufs");
}

static void say_kernel(struct checks *c, unsigned nr)
{
	if (!nr && !c->devices)
		add(c, "kernel", PST_CHECK_MISSING, ENODEV,
		    "the kernel has no RDMA device; load the driver of the network adapter "
		    "(mlx5_ib, irdma), or rdma_rxe for one in software");
	else if (nr && !there_is(c, "/sys/class/infiniband_verbs"))
		add(c, "kernel", PST_CHECK_MISSING, ENOENT,
		    "programs do not reach the kernel's RDMA devices; load the module ib_uverbs");
	else
		add(c, "kernel", PST_CHECK_OK, 0, "%u RDMA device%s", MAX(nr, c->devices),
		    MAX(nr, c->devices) == 1 ? "" : "s");
}

static void say_peer_memory(struct checks *c)
{
	bool nvidia = there_is(c, "/sys/module/nvidia_peermem"),
	     old = there_is(c, "/sys/module/ib_peer_mem") ||
		   there_is(c, "/sys/kernel/mm/memory_peers");

	if (nvidia || old)
		add(c, "peer-memory", PST_CHECK_OK, 0, "the module %s lets devices reach GPUs",
		    nvidia ? "nvidia-peermem" : "ib_peer_mem");
	else if (c->dmabuf || !c->usable)
		add(c, "peer-memory", PST_CHECK_UNNEEDED, 0,
		    c->dmabuf ? "no peer-memory module; dma-bufs stand in for it"
			      : "no peer-memory module, and no device that would use it");
	else
		add(c, "peer-memory", PST_CHECK_MISSING, ENOENT,
		    "no peer-memory module, and no device that registers dma-bufs: memory of "
		    "accelerators is not reached; modprobe nvidia-peermem, with the NVIDIA "
		    "network drivers (DOCA, MLNX_OFED)");
}

/* Return true if the process has CAP_IPC_LOCK, which exempts it from RLIMIT_MEMLOCK. */
static bool locks_anything(void)
{
	_cleanup_(closep) int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
	unsigned long long caps = 0;
	char text[4096];
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	const char *at;

	text[MAX(n, 0)] = '\0';
	at = strstr(text, "\nCapEff:");
	return at && sscanf(at, " CapEff: %llx", &caps) == 1 && caps >> CAP_IPC_LOCK & 1;
}

static void say_memlock(struct checks *c)
{
	struct rlimit rl = { 0 };

	(void)getrlimit(RLIMIT_MEMLOCK, &rl);
	if (rl.rlim_cur == RLIM_INFINITY || locks_anything())
		add(c, "memlock", PST_CHECK_OK, 0, "the process may lock any amount of memory");
	else if (rl.rlim_cur >= ENOUGH_LOCKED)
		add(c, "memlock", PST_CHECK_OK, 0, "the process may lock %" PRIu64 " MiB of memory",
		    (uint64_t)rl.rlim_cur / MIB(1));
	else if (!c->usable)
		add(c, "memlock", PST_CHECK_UNNEEDED, 0,
		    "the process may lock %" PRIu64 " KiB of memory, and no device would use it",
		    (uint64_t)rl.rlim_cur / KIB(1));
	else
		add(c, "memlock", PST_CHECK_MISSING, ENOMEM,
		    "the process may lock only %" PRIu64 " KiB of memory, which registrations "
		    "need; raise RLIMIT_MEMLOCK (ulimit -l unlimited, LimitMEMLOCK=infinity)",
		    (uint64_t)rl.rlim_cur / KIB(1));
}

static bool is_among(const char *name, char (*names)[NIC_NAME_MAX], unsigned nr)
{
	for (unsigned i = 0; i < nr; i++)
		if (!strcmp(names[i], name))
			return true;
	return false;
}

int verbs_check(const char *root, struct pst_check *ret, unsigned max)
{
	char kernel[DEVICES_MAX][NIC_NAME_MAX], library[DEVICES_MAX][NIC_NAME_MAX];
	struct checks c = { .root = root, .of = ret, .max = max };
	unsigned nr = sysfs_devices(&c, kernel);
	int r = verbs_load(), n;

	say_library(&c, r);
	n = r < 0 ? 0 : nic_list(library, DEVICES_MAX);
	c.devices = n > 0 ? (unsigned)n : 0;
	say_kernel(&c, nr);
	for (unsigned i = 0; i < nr; i++) {
		for (unsigned p = 1; p <= PORTS_MAX; p++)
			if (there_is(&c, "/sys/class/infiniband/%s/ports/%u", kernel[i], p))
				sysfs_port(&c, kernel[i], p);
		if (n >= 0 && r == 0 && !is_among(kernel[i], library, MIN(c.devices, DEVICES_MAX)))
			add(&c, "device", PST_CHECK_MISSING, ENODEV,
			    "libibverbs does not know the device %s; install the package "
			    "ibverbs-providers, and see the rights of /dev/infiniband",
			    kernel[i]);
	}
	for (unsigned i = 0; i < MIN(c.devices, DEVICES_MAX); i++)
		library_device(&c, library[i], is_among(library[i], kernel, nr));
	say_peer_memory(&c);
	say_memlock(&c);
	return (int)c.nr;
}
