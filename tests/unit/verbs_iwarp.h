/* SPDX-License-Identifier: MIT */
/*
 * Connect two queue pairs of this process by RDMA CM.  iWARP runs on TCP: the kernel's siw takes a
 * queue pair to RTS only with a connected socket, which only RDMA CM brings.
 *
 * librdmacm is loaded at run time, and its structs are declared here; test-verbs-abi.c compares
 * them with <rdma/rdma_cma.h>.  The queue pairs are made by libibverbs; RDMA CM gets their numbers.
 */
#ifndef PST_TESTS_VERBS_IWARP_H
#define PST_TESTS_VERBS_IWARP_H

#include <arpa/inet.h>
#include <poll.h>

#include "symbol.h"
#include "t.h"

struct cm_id;

struct cm_channel {
	int fd;
};

struct cm_param {
	const void *private_data;
	uint8_t private_data_len, responder_resources, initiator_depth, flow_control;
	uint8_t retry_count, rnr_retry_count, srq;
	uint32_t qp_num;
};

/* The members after status are not read. */
struct cm_event {
	struct cm_id *id, *listen_id;
	uint32_t event; /* CM_* */
	int status;
};

/* enum rdma_cm_event_type */
#define CM_ADDR_RESOLVED 0u
#define CM_ROUTE_RESOLVED 2u
#define CM_CONNECT_REQUEST 4u
#define CM_ESTABLISHED 9u

#define CM_PS_TCP 0x0106 /* enum rdma_port_space */
#define CM_TIMEOUT_MS 10000
#define CM_READS 8 /* READs in flight; a chain of requests has fewer */

static struct {
	void **(*rdma_get_devices)(int *ret_nr);
	void (*rdma_free_devices)(void **list);
	struct cm_channel *(*rdma_create_event_channel)(void);
	void (*rdma_destroy_event_channel)(struct cm_channel *ch);
	int (*rdma_create_id)(struct cm_channel *ch, struct cm_id **ret, void *ctx, int space);
	int (*rdma_destroy_id)(struct cm_id *id);
	int (*rdma_bind_addr)(struct cm_id *id, struct sockaddr *addr);
	int (*rdma_listen)(struct cm_id *id, int backlog);
	int (*rdma_resolve_addr)(struct cm_id *id, struct sockaddr *from, struct sockaddr *to,
				 int timeout_ms);
	int (*rdma_resolve_route)(struct cm_id *id, int timeout_ms);
	int (*rdma_connect)(struct cm_id *id, struct cm_param *param);
	int (*rdma_accept)(struct cm_id *id, struct cm_param *param);
	int (*rdma_get_cm_event)(struct cm_channel *ch, struct cm_event **ret);
	int (*rdma_ack_cm_event)(struct cm_event *event);
	uint16_t (*rdma_get_src_port)(struct cm_id *id);
} cm_api;

static struct {
	struct cm_channel *channel;
	struct cm_id *listener, *id[2]; /* id[0] connects, id[1] accepts */
	struct sockaddr_in to;
} cm;

/* Load librdmacm and let it open the devices; return false if there is no library or no device. */
static inline bool cm_load(void)
{
	void *lib = dlopen("librdmacm.so.1", RTLD_NOW), **devices;

	if (!lib)
		return false;
#define CM_SYMBOL(name) symbol(lib, &cm_api.name, #name)
	CM_SYMBOL(rdma_get_devices);
	CM_SYMBOL(rdma_free_devices);
	CM_SYMBOL(rdma_create_event_channel);
	CM_SYMBOL(rdma_destroy_event_channel);
	CM_SYMBOL(rdma_create_id);
	CM_SYMBOL(rdma_destroy_id);
	CM_SYMBOL(rdma_bind_addr);
	CM_SYMBOL(rdma_listen);
	CM_SYMBOL(rdma_resolve_addr);
	CM_SYMBOL(rdma_resolve_route);
	CM_SYMBOL(rdma_connect);
	CM_SYMBOL(rdma_accept);
	CM_SYMBOL(rdma_get_cm_event);
	CM_SYMBOL(rdma_ack_cm_event);
	CM_SYMBOL(rdma_get_src_port);
#undef CM_SYMBOL
	devices = cm_api.rdma_get_devices(NULL);
	if (devices)
		cm_api.rdma_free_devices(devices);
	return devices;
}

/* Wait for an event of this kind, and return its id. */
static inline struct cm_id *cm_expect(uint32_t kind)
{
	struct pollfd p = { .fd = cm.channel->fd, .events = POLLIN };
	struct cm_event *event;
	struct cm_id *id;
	uint32_t got;
	int status;

	if (poll(&p, 1, CM_TIMEOUT_MS) != 1)
		T_FAIL("RDMA CM has no event %u within %d ms", kind, CM_TIMEOUT_MS);
	T_EQ(cm_api.rdma_get_cm_event(cm.channel, &event), 0);
	id = event->id;
	got = event->event;
	status = event->status;
	T_EQ(cm_api.rdma_ack_cm_event(event), 0);
	if (got != kind || status)
		T_FAIL("RDMA CM has event %u, status %d, instead of event %u", got, status, kind);
	return id;
}

/* Listen on a free port of this IPv4 address, which belongs to the iWARP device. */
static inline void cm_open(const char *address)
{
	struct sockaddr_in at = { .sin_family = AF_INET };

	T_EQ(inet_pton(AF_INET, address, &at.sin_addr), 1);
	cm.channel = cm_api.rdma_create_event_channel();
	if (!cm.channel)
		T_FAIL("RDMA CM: %s; is the module rdma_ucm loaded?", strerror(errno));
	T_EQ(cm_api.rdma_create_id(cm.channel, &cm.listener, NULL, CM_PS_TCP), 0);
	T_EQ(cm_api.rdma_bind_addr(cm.listener, (struct sockaddr *)&at), 0);
	T_EQ(cm_api.rdma_listen(cm.listener, 4), 0);
	at.sin_port = cm_api.rdma_get_src_port(cm.listener);
	cm.to = at;
}

static inline void cm_close(void)
{
	T_EQ(cm_api.rdma_destroy_id(cm.listener), 0);
	cm_api.rdma_destroy_event_channel(cm.channel);
}

/* Connect the queue pairs with these numbers.  MPA lets only the side that connects send first. */
static inline void cm_connect(const uint32_t qp_num[2])
{
	struct cm_param param = { .responder_resources = CM_READS, .initiator_depth = CM_READS };

	T_EQ(cm_api.rdma_create_id(cm.channel, &cm.id[0], NULL, CM_PS_TCP), 0);
	T_EQ(cm_api.rdma_resolve_addr(cm.id[0], NULL, (struct sockaddr *)&cm.to, CM_TIMEOUT_MS), 0);
	(void)cm_expect(CM_ADDR_RESOLVED);
	T_EQ(cm_api.rdma_resolve_route(cm.id[0], CM_TIMEOUT_MS), 0);
	(void)cm_expect(CM_ROUTE_RESOLVED);
	param.qp_num = qp_num[0];
	T_EQ(cm_api.rdma_connect(cm.id[0], &param), 0);
	cm.id[1] = cm_expect(CM_CONNECT_REQUEST);
	param.qp_num = qp_num[1];
	T_EQ(cm_api.rdma_accept(cm.id[1], &param), 0);
	(void)cm_expect(CM_ESTABLISHED);
	(void)cm_expect(CM_ESTABLISHED);
}

/* End the connection, after its queue pairs were destroyed. */
static inline void cm_disconnect(void)
{
	for (int i = 0; i < 2; i++) {
		if (cm.id[i])
			T_EQ(cm_api.rdma_destroy_id(cm.id[i]), 0);
		cm.id[i] = NULL;
	}
}

#endif
