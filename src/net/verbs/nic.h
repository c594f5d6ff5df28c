/* SPDX-License-Identifier: MIT */
/*
 * RDMA devices (NICs): the port and the GID that connections use, and what the device can do.
 */
#ifndef PST_VERBS_NIC_H
#define PST_VERBS_NIC_H

#include "net/verbs/verbs.h"

#define NIC_NAME_MAX 64u
/* Entries of a GID table that are looked at.  The kernel refuses a table that has more than there
 * is room for, and a device with many virtual functions or VLANs has thousands.  libibverbs has 16
 * bits for the bytes of the table, and says EINVAL to one entry more. */
#define NIC_GIDS_MAX (UINT16_MAX / 32u)

/* Which GID a RoCE connection uses; nic_gid_rank() has the order. */
enum nic_gid_rank {
	NIC_GID_NONE,       /* empty, link-local, or of iWARP: not for these connections */
	NIC_GID_V1,         /* RoCE v1: one Ethernet segment */
	NIC_GID_V2_IPV6,    /* RoCE v2 with a global IPv6 address */
	NIC_GID_V2_IPV4,    /* RoCE v2 with an IPv4 address */
	NIC_GID_INFINIBAND, /* of an InfiniBand port: entry 0 */
};

/*
 * An open device with one port.  Constant after nic_open(), but for what nic_events() finds; any
 * thread may use it.
 */
struct nic {
	struct vb_context *ctx;
	char name[NIC_NAME_MAX];
	uint8_t port;
	bool ethernet;           /* RoCE or iWARP; else InfiniBand */
	uint16_t lid;            /* InfiniBand */
	uint32_t mtu;            /* active_mtu: 1 is 256 bytes, 5 is 4096 */
	struct vb_gid_entry gid; /* of nr_gids: */
	unsigned nr_gids;
	uint8_t rd_atomic; /* READs in flight on a connection, at either end */
	uint32_t max_wr;   /* work requests of a queue */
	uint32_t max_cqe;
	uint64_t max_mr_len;
	uint32_t max_msg_len;
	int dmabuf_err;         /* 0: registers dma-bufs; else the errno with which it does not */
	bool relaxed;           /* knows optional access bits: relaxed ordering */
	_Atomic bool dead;      /* the device failed, or was taken away: it completes nothing */
	int dead_fd;            /* eventfd, readable once dead */
	_Atomic uint64_t asked; /* when nic_events() last asked the kernel, ns */
};

#define NIC_NODE_RNIC 4 /* enum ibv_node_type: iWARP */

/*
 * Read what the kernel tells of the device, at most once each NIC_EVENTS_NS.  The end of the device
 * sets n->dead, and that of a queue pair calls nic_queue_failed().
 */
#define NIC_EVENTS_NS (2 * NSEC_PER_MSEC)
void nic_events(struct nic *n);
/* endpoint.c: the argument with which a queue pair was made. */
void nic_queue_failed(void *arg);

/* How fit an entry of a port's table is; greater is better. */
enum nic_gid_rank nic_gid_rank(const struct vb_gid_entry *e, bool ethernet);
/* Words for it. */
const char *nic_gid_rank_name(enum nic_gid_rank rank);
/* The fittest entry of a port; the first one of several.  NULL: none is fit. */
const struct vb_gid_entry *nic_gid_choose(const struct vb_gid_entry *v, size_t nr, uint8_t port,
					  bool ethernet);

/*
 * Open a device by its name ("mlx5_0", or "mlx5_0:2" with a port), or with NULL the first one
 * whose port is active and has a fit GID.
 *
 * Return: 0; -ENODEV without libibverbs or such a device; -ENETDOWN where its port is not active;
 * -EADDRNOTAVAIL where the port has no GID that is fit; -EPROTONOSUPPORT for an iWARP device.
 */
int nic_open(const char *name, struct nic **ret);
/* Nothing of it is in use any more. */
void nic_close(struct nic *n);

/*
 * The device that the connections of this process share (nics.c): the one that PST_RDMA names, else
 * the first one whose port is active.  test is NULL, or tries the device before its first use.
 *
 * Return: 0; -ENODEV where there is none; -ECANCELED with PST_RDMA=off; errors of the test.
 */
int nics_get(int (*test)(struct nic *n), struct nic **ret);
void nics_put(struct nic *n); /* NULL is allowed */

/* The names of devices, "" behind the last: fills up to max, returns how many there are, or
 * -errno. */
int nic_list(char (*names)[NIC_NAME_MAX], unsigned max);

#endif
