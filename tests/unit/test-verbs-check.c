/* SPDX-License-Identifier: MIT */
/* What `doctor --rdma` finds in sysfs.  Runs on fake folders. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/base.h"
#include "net/verbs/check.h"

#include "scratch.h"
#include "t.h"

static char root[256];

/* Write a file below root, with its folders. */
_printf_(2, 3) static void put(const char *text, const char *fmt, ...)
{
	char path[512];
	size_t n = (size_t)snprintf(path, sizeof(path), "%s", root);
	va_list ap;
	FILE *f;

	va_start(ap, fmt);
	(void)vsnprintf(path + n, sizeof(path) - n, fmt, ap);
	va_end(ap);
	for (char *p = path + n + 1; (p = strchr(p, '/')); *p++ = '/') {
		*p = '\0';
		(void)mkdir(path, 0700);
	}
	f = fopen(path, "we");
	T_CHECK(f && fprintf(f, "%s\n", text) > 0);
	T_EQ(fclose(f), 0);
}

static void put_port(const char *dev, const char *state, const char *link)
{
	put(state, "/sys/class/infiniband/%s/ports/1/state", dev);
	put(link, "/sys/class/infiniband/%s/ports/1/link_layer", dev);
	put("400 Gb/sec (4X NDR)", "/sys/class/infiniband/%s/ports/1/rate", dev);
	put("eth7", "/sys/class/infiniband/%s/ports/1/gid_attrs/ndevs/0", dev);
}

static void put_gid(const char *dev, unsigned idx, const char *gid, const char *type)
{
	put(gid, "/sys/class/infiniband/%s/ports/1/gids/%u", dev, idx);
	put(type, "/sys/class/infiniband/%s/ports/1/gid_attrs/types/%u", dev, idx);
}

/* Return the check with this name whose text begins like this, or fail. */
static struct pst_check find(const char *name, const char *begins)
{
	struct pst_check v[64];
	int nr = verbs_check(root, v, 64);

	for (int i = 0; i < nr; i++)
		if (!strcmp(v[i].name, name) && !strncmp(v[i].text, begins, strlen(begins)))
			return v[i];
	T_FAIL("no check %s begins with %s", name, begins);
}

static void ports_and_their_addresses(void)
{
	struct pst_check c;

	T_EQ(scratch_new(NULL, root, sizeof(root)), 0);
	put_port("mlx5_0", "4: ACTIVE", "Ethernet");
	put_gid("mlx5_0", 0, "fe80:0000:0000:0000:0e42:a1ff:fe00:0001", "IB/RoCE v1");
	put_gid("mlx5_0", 1, "fe80:0000:0000:0000:0e42:a1ff:fe00:0001", "RoCE v2");
	put_gid("mlx5_0", 2, "0000:0000:0000:0000:0000:ffff:0a01:0203", "IB/RoCE v1");
	put_gid("mlx5_0", 3, "0000:0000:0000:0000:0000:ffff:0a01:0203", "RoCE v2");
	put_port("mlx5_1", "1: DOWN", "Ethernet");
	put_port("mlx5_2", "4: ACTIVE", "InfiniBand");
	put_gid("mlx5_2", 0, "fe80:0000:0000:0000:0e42:a1ff:fe00:0003", "IB/RoCE v1");
	put_port("mlx5_3", "4: ACTIVE", "Ethernet");
	put_gid("mlx5_3", 0, "fe80:0000:0000:0000:0e42:a1ff:fe00:0004", "RoCE v2");
	put_gid("mlx5_3", 1, "0000:0000:0000:0000:0000:0000:0000:0000", "RoCE v2");

	c = find("port", "mlx5_0 port 1 is active, Ethernet, 400 Gb/sec (4X NDR)");
	T_EQ(c.state, PST_CHECK_OK);
	T_CHECK(strstr(c.text, "GID 3 of 4: 10.1.2.3, RoCE v2, IPv4"));
	c = find("port", "mlx5_1 port 1 is not active (1: DOWN)");
	T_EQ(c.state, PST_CHECK_MISSING);
	T_EQ(c.err, ENETDOWN);
	T_CHECK(strstr(c.text, "ip link set up dev eth7"));
	c = find("port", "mlx5_2 port 1 is active, InfiniBand");
	T_EQ(c.state, PST_CHECK_OK);
	c = find("port", "mlx5_3 port 1 is active, but none of its 2 GIDs");
	T_EQ(c.state, PST_CHECK_MISSING);
	T_CHECK(strstr(c.text, "IPv4 address"));
	/* Without ib_uverbs, programs cannot use the devices. */
	c = find("kernel", "programs do not reach");
	T_CHECK(strstr(c.text, "ib_uverbs"));
	put("x", "/sys/class/infiniband_verbs/abi_version");
	c = find("kernel", "4 RDMA devices");
	T_EQ(c.state, PST_CHECK_OK);
	T_EQ(scratch_remove(root), 0);
}

static void modules_of_peer_memory(void)
{
	struct pst_check c;

	T_EQ(scratch_new(NULL, root, sizeof(root)), 0);
	put_port("mlx5_0", "4: ACTIVE", "InfiniBand");
	put_gid("mlx5_0", 0, "fe80:0000:0000:0000:0e42:a1ff:fe00:0003", "IB/RoCE v1");
	put("x", "/sys/kernel/mm/memory_peers/nv_mem/version");
	c = find("peer-memory", "the module ib_peer_mem");
	T_EQ(c.state, PST_CHECK_OK);
	put("x", "/sys/module/nvidia_peermem/version");
	c = find("peer-memory", "the module nvidia-peermem");
	T_EQ(c.state, PST_CHECK_OK);
	T_EQ(scratch_remove(root), 0);
}

int main(void)
{
	T_RUN(ports_and_their_addresses);
	T_RUN(modules_of_peer_memory);
	return t_done();
}
