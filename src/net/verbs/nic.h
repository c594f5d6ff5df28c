/* SPDX-License-Identifier: MIT */
/* RDMA devices (NICs): the port and GID that connections use, and the device's features. */
#ifndef PST_VERBS_NIC_H
#define PST_VERBS_NIC_H

#include "net/verbs/verbs.h"

#define NIC_NAME_MAX 64u
/* Most GIDs read.  The kernel refuses to fill an array that is too small, and a device with many
 * virtual functions or VLANs has thousands.  libibverbs has 16 bits for the array's size in bytes,
 * and returns EINVAL above that. */
#define NIC_GIDS_MAX (UINT16_MAX / 32u)

/* Suitability of a GID; greater is better. */
enum nic_gid_rank {
	NIC_GID_NONE,       /* unsuitable: empty, link-local, or of iWARP */
	NIC_GID_V1,         /* RoCE v1: within one Ethernet segment */
	NIC_GID_V2_IPV6,    /* RoCE v2 with a global IPv6 address */
	NIC_GID_V2_IPV4,    /* RoCE v2 with an IPv4 address */
	NIC_GID_INFINIBAND, /* entry 0 of an InfiniBand port */
};

/*
 * An open device with one port.  Constant after nic_open(), except for results of nic_events(); any
 * thread may use it.
 */
struct nic {
	struct vb_context *ctx;
	char name[NIC_NAME_MAX];
	uint8_t port;
	bool ethernet;           /* RoCE or iWARP; else InfiniBand */
	uint16_t lid;            /* InfiniBand only */
	uint32_t mtu;            /* active_mtu: 1 is 256 bytes, 5 is 4096 */
	struct vb_gid_entry gid; /* entry chosen from the port's nr_gids entries */
	unsigned nr_gids;
	uint8_t rd_atomic; /* most READs in flight on a connection, at either end */
	uint32_t max_wr;   /* maximum work requests of a queue */
	uint32_t max_cqe;
	uint64_t max_mr_len;
	uint32_t max_msg_len;
	int dmabuf_err;         /* 0: the device registers dma-bufs; else its errno */
	bool relaxed;           /* the device accepts optional access bits, such as relaxed
				 * ordering */
	_Atomic bool dead;      /* the device failed or was removed: it completes nothing */
	int dead_fd;            /* eventfd, readable once dead */
	_Atomic uint64_t asked; /* when nic_events() last asked the kernel, ns */
};

#define NIC_NODE_RNIC 4 /* enum ibv_node_type of iWARP devices */

/*
 * Read the device's events from the kernel, at most once per NIC_EVENTS_NS.  A device failure sets
 * n->dead; a queue pair failure calls nic_queue_failed().
 */
#define NIC_EVENTS_NS (2 * NSEC_PER_MSEC)
void nic_events(struct nic *n);
/* Record a failed queue pair; arg was given when the queue pair was created.  Defined in
 * endpoint.c. */
void nic_queue_failed(void *arg);

/* Rank an entry of a port's GID table. */
enum nic_gid_rank nic_gid_rank(const struct vb_gid_entry *e, bool ethernet);
/* Return the rank's name. */
const char *nic_gid_rank_name(enum nic_gid_rank rank);
/* Return the best GID of a port, the first of equals; NULL if none is suitable. */
const struct vb_gid_entry *nic_gid_choose(const struct vb_gid_entry *v, size_t nr, uint8_t port,
					  bool ethernet);

/*
 * Open a device by name ("mlx5_0", or "mlx5_0:2" with a port).  NULL means the nearest device with
 * an active port and a suitable GID: @far returns how far a device is, and less is nearer.  If @far
 * is NULL or devices are equally near, the first one is opened.
 *
 * Return: 0; -ENODEV without libibverbs or such a device; -ENETDOWN if the port is not active;
 * -EADDRNOTAVAIL if the port has no suitable GID; -EPROTONOSUPPORT for an iWARP device.
 */
int nic_open(const char *name, unsigned (*far)(const char *nic), struct nic **ret);
/* Close a device that nothing uses any more. */
void nic_close(struct nic *n);

/* How to choose the device of this process; either member may be NULL. */
struct nic_choice {
	int (*test)(struct nic *n);       /* tests a device before its first use */
	unsigned (*far)(const char *nic); /* as for nic_open() */
};

/*
 * Get the device that all connections of this process share (nics.c): the one that PST_RDMA names,
 * else that of nic_open(NULL).  @how may be NULL.
 *
 * Return: 0; -ENODEV if there is none; -ECANCELED with PST_RDMA=off; errors of the test.
 */
int nics_get(const struct nic_choice *how, struct nic **ret);
void nics_put(struct nic *n); /* NULL is ignored */

/* List device names, up to max, with "" after the last.  Return the number of devices or -errno. */
int nic_list(char (*names)[NIC_NAME_MAX], unsigned max);

#endif
