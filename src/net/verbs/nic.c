/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/eventfd.h>

#include "base/err.h"
#include "base/log.h"
#include "net/verbs/nic.h"

#define RD_ATOMIC_MAX 16 /* most READs in flight: enough for the latency of one switch */

/* -------------------------------------------------------------------- GIDs */

static bool nic_is_zero(const uint8_t *p, size_t len)
{
	while (len && !*p) {
		p++;
		len--;
	}
	return !len;
}

enum nic_gid_rank nic_gid_rank(const struct vb_gid_entry *e, bool ethernet)
{
	const uint8_t *raw = e->gid.raw;
	bool ipv4 = nic_is_zero(raw, 10) && raw[10] == 0xff && raw[11] == 0xff;
	bool link_local = raw[0] == 0xfe && (raw[1] & 0xc0) == 0x80;

	if (nic_is_zero(raw, sizeof(e->gid.raw)))
		return NIC_GID_NONE;
	/* InfiniBand usually has the link-local prefix as its subnet prefix. */
	if (!ethernet)
		return e->index == 0 ? NIC_GID_INFINIBAND : NIC_GID_NONE;
	if (link_local || (ipv4 && nic_is_zero(raw + 12, 4)))
		return NIC_GID_NONE;
	/* iWARP is also Ethernet, but has GIDs of InfiniBand's type. */
	if (e->type != VB_GID_ROCE_V2)
		return e->type == VB_GID_ROCE_V1 ? NIC_GID_V1 : NIC_GID_NONE;
	return ipv4 ? NIC_GID_V2_IPV4 : NIC_GID_V2_IPV6;
}

const char *nic_gid_rank_name(enum nic_gid_rank rank)
{
	static const char *const names[] = {
		[NIC_GID_NONE] = "none",
		[NIC_GID_V1] = "RoCE v1",
		[NIC_GID_V2_IPV6] = "RoCE v2, IPv6",
		[NIC_GID_V2_IPV4] = "RoCE v2, IPv4",
		[NIC_GID_INFINIBAND] = "InfiniBand",
	};

	return names[rank];
}

const struct vb_gid_entry *nic_gid_choose(const struct vb_gid_entry *v, size_t nr, uint8_t port,
					  bool ethernet)
{
	const struct vb_gid_entry *best = NULL;
	enum nic_gid_rank rank = NIC_GID_NONE;

	for (size_t i = 0; i < nr; i++)
		if (v[i].port == port && nic_gid_rank(&v[i], ethernet) > rank) {
			best = &v[i];
			rank = nic_gid_rank(best, ethernet);
		}
	return best;
}

/* ------------------------------------------------------------------ devices */

static void list_freep(struct vb_device ***list)
{
	if (*list)
		vb.ibv_free_device_list(*list);
}

static int get_list(struct vb_device ***ret, int *ret_nr)
{
	int r = verbs_load();

	if (r < 0)
		return r;
	errno = 0;
	*ret = vb.ibv_get_device_list(ret_nr);
	if (!*ret)
		return err_set(ENODEV,
			       "the RDMA devices cannot be listed: %s; load the kernel module "
			       "ib_uverbs",
			       err_name(errno ? errno : ENODEV));
	return 0;
}

int nic_list(char (*names)[NIC_NAME_MAX], unsigned max)
{
	_cleanup_(list_freep) struct vb_device **list = NULL;
	int nr = 0, r;

	r = get_list(&list, &nr);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < (unsigned)nr && i < max; i++)
		(void)snprintf(names[i], NIC_NAME_MAX, "%s", vb.ibv_get_device_name(list[i]));
	return nr;
}

static void nic_closep(struct nic **n)
{
	nic_close(*n);
}

void nic_close(struct nic *n)
{
	if (!n)
		return;
	if (n->ctx)
		(void)vb.ibv_close_device(n->ctx);
	closep(&n->dead_fd);
	free(n);
}

_Static_assert(sizeof(struct vb_gid_entry) == 32, "NIC_GIDS_MAX counts with that");

/* Choose the port's GID, or fail if the port has none that can be used. */
static int choose_gid(struct nic *n)
{
	_cleanup_(freep) struct vb_gid_entry *v = calloc(NIC_GIDS_MAX, sizeof(*v));
	const struct vb_gid_entry *best;
	ssize_t nr;

	if (!v)
		return err_set(ENOMEM, "out of memory");
	nr = vb._ibv_query_gid_table(n->ctx, v, NIC_GIDS_MAX, 0, sizeof(*v));
	if (nr < 0)
		return err_set((int)-nr, "the GIDs of %s cannot be read: %s", n->name,
			       err_name((int)-nr));
	best = nic_gid_choose(v, (size_t)nr, n->port, n->ethernet);
	if (!best)
		return err_set(EADDRNOTAVAIL,
			       "port %u of %s has no GID for connections, of %zd entries; give its "
			       "network interface an IPv4 address",
			       n->port, n->name, nr);
	n->gid = *best;
	n->nr_gids = (unsigned)nr;
	return 0;
}

static int nic_open_port(struct nic *n, uint8_t port)
{
	struct vb_port_attr a = { 0 };
	int err = vb.ibv_query_port(n->ctx, port, &a);

	if (err)
		return err_set(err, "port %u of %s cannot be asked: %s", port, n->name,
			       err_name(err));
	if (a.state != VB_PORT_ACTIVE)
		return err_set(ENETDOWN,
			       "port %u of %s is not active; see its cable, its network interface "
			       "and penstock doctor --rdma",
			       port, n->name);
	n->port = port;
	n->ethernet = a.link_layer == VB_LINK_ETHERNET;
	n->lid = a.lid;
	n->mtu = a.active_mtu;
	n->max_msg_len = a.max_msg_sz;
	return choose_gid(n);
}

static int find_port(struct nic *n, uint8_t port, uint8_t nr_ports)
{
	unsigned first = port ? port : 1, last = port ? port : nr_ports;
	int r = err_set(ENODEV, "%s has no port %u", n->name, first);

	for (unsigned p = first; p <= last && p <= nr_ports; p++) {
		r = nic_open_port(n, (uint8_t)p);
		if (r == 0)
			break;
	}
	return r;
}

/* Make ibv_get_async_event() non-blocking. */
static int nic_dont_wait(const struct nic *n)
{
	int flags = fcntl(n->ctx->async_fd, F_GETFL);

	if (flags < 0 || fcntl(n->ctx->async_fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return err_set(errno, "%s has no events: %s", n->name, err_name(errno));
	return 0;
}

static void nic_event(struct nic *n, const struct vb_async_event *e)
{
	switch (e->type) {
	case VB_EVENT_DEVICE_FATAL:
		log_warn("the RDMA device %s failed; its connections end", n->name);
		atomic_store(&n->dead, true);
		(void)eventfd_write(n->dead_fd, 1);
		break;
	case VB_EVENT_QP_FATAL:
	case VB_EVENT_QP_REQ_ERR:
	case VB_EVENT_QP_ACCESS_ERR:
		nic_queue_failed(((const struct vb_qp *)e->element.object)->qp_context);
		break;
	default:
		log_debug("RDMA device %s: event %u", n->name, e->type);
	}
}

void nic_events(struct nic *n)
{
	uint64_t now = now_ns(), last = atomic_load_explicit(&n->asked, memory_order_relaxed);
	struct vb_async_event e;

	if (now - last < NIC_EVENTS_NS || !atomic_compare_exchange_strong(&n->asked, &last, now))
		return;
	while (vb.ibv_get_async_event(n->ctx, &e) == 0) {
		nic_event(n, &e);
		/* The object of an event cannot be destroyed until the event is acknowledged. */
		vb.ibv_ack_async_event(&e);
	}
}

/* Find out what the device can do.  A driver without dma-buf support never looks at the descriptor,
 * so EBADF for descriptor -1 means support. */
static void probe(struct nic *n)
{
	struct vb_pd *pd = vb.ibv_alloc_pd(n->ctx);

	n->relaxed = vb.ibv_reg_mr_iova2;
	n->dmabuf_err = EOPNOTSUPP;
	if (pd && vb.ibv_reg_dmabuf_mr) {
		errno = 0;
		(void)vb.ibv_reg_dmabuf_mr(pd, 0, 4096, 0, -1, VB_ACCESS_LOCAL_WRITE);
		n->dmabuf_err = errno == EBADF ? 0 : errno ? errno : EOPNOTSUPP;
	}
	if (pd)
		(void)vb.ibv_dealloc_pd(pd);
}

static int open_device(struct vb_device *dev, uint8_t port, struct nic **ret)
{
	_cleanup_(nic_closep) struct nic *n = calloc(1, sizeof(*n));
	struct vb_device_attr a;
	int r;

	if (!n)
		return err_set(ENOMEM, "out of memory");
	n->dead_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (n->dead_fd < 0)
		return err_set(errno, "no descriptor for an RDMA device: %s", err_name(errno));
	(void)snprintf(n->name, sizeof(n->name), "%s", vb.ibv_get_device_name(dev));
	if (dev->node_type == NIC_NODE_RNIC)
		return err_set(
			EPROTONOSUPPORT,
			"%s is an iWARP device, whose connections Penstock does not make; use "
			"InfiniBand or RoCE",
			n->name);
	errno = 0;
	n->ctx = vb.ibv_open_device(dev);
	if (!n->ctx)
		return err_set(errno ? errno : EIO,
			       "the RDMA device %s cannot be opened: %s; see the rights of "
			       "/dev/infiniband and the package ibverbs-providers",
			       n->name, err_name(errno ? errno : EIO));
	r = vb.ibv_query_device(n->ctx, &a);
	if (r)
		return err_set(r, "the RDMA device %s cannot be asked: %s", n->name, err_name(r));
	n->rd_atomic = (uint8_t)MIN(a.max_qp_rd_atom, RD_ATOMIC_MAX);
	n->rd_atomic = (uint8_t)MIN(a.max_qp_init_rd_atom, n->rd_atomic);
	n->max_wr = (uint32_t)a.max_qp_wr;
	n->max_cqe = (uint32_t)a.max_cqe;
	n->max_mr_len = a.max_mr_size;
	r = find_port(n, port, a.phys_port_cnt);
	if (r == 0)
		r = nic_dont_wait(n);
	if (r < 0)
		return r;
	probe(n);
	log_debug("RDMA device %s port %u: %s, dma-bufs %s", n->name, n->port,
		  nic_gid_rank_name(nic_gid_rank(&n->gid, n->ethernet)),
		  n->dmabuf_err ? err_name(n->dmabuf_err) : "yes");
	*ret = TAKE_PTR(n);
	return 0;
}

/* Sort devices, the nearest first.  Equally near ones keep their order. */
static void nic_sort(struct vb_device **list, int nr, unsigned (*far)(const char *nic))
{
	_cleanup_(freep) unsigned *of = malloc((size_t)nr * sizeof(*of));

	for (int i = 0; of && i < nr; i++) {
		struct vb_device *dev = list[i];
		unsigned d = far(vb.ibv_get_device_name(dev));
		int at = i;

		for (; at && of[at - 1] > d; at--) {
			of[at] = of[at - 1];
			list[at] = list[at - 1];
		}
		of[at] = d;
		list[at] = dev;
	}
}

int nic_open(const char *name, unsigned (*far)(const char *nic), struct nic **ret)
{
	_cleanup_(list_freep) struct vb_device **list = NULL;
	size_t len = name ? strcspn(name, ":") : 0;
	unsigned port = 0;
	char end;
	int nr = 0, r;

	if (name && name[len] &&
	    (sscanf(name + len, ":%3u%c", &port, &end) != 1 || port < 1 || port > 255))
		return err_set(EINVAL, "an RDMA device is named as mlx5_0 or mlx5_0:1, not %s",
			       name);
	r = get_list(&list, &nr);
	if (r < 0)
		return r;
	if (!name && far)
		nic_sort(list, nr, far);
	r = name ? err_set(ENODEV,
			   "there is no RDMA device %s among %d; see penstock doctor --rdma", name,
			   nr)
		 : err_set(ENODEV, "there is no RDMA device here; see penstock doctor --rdma");
	for (int i = 0; i < nr; i++) {
		const char *dev = vb.ibv_get_device_name(list[i]);

		if (name && (strlen(dev) != len || strncmp(dev, name, len) != 0))
			continue;
		r = open_device(list[i], (uint8_t)port, ret);
		if (r == 0)
			break;
	}
	return r;
}
