/* SPDX-License-Identifier: MIT */
/*
 * Declarations that the files of the double of libibverbs share.
 *
 *	libibverbs.c		the fabric, devices, protection domains, faults
 *	libibverbs_mr.c	memory regions and copies between processes
 *	libibverbs_cq.c	completion queues and their channels
 *	libibverbs_qp.c	queue pairs: states, posting
 *	libibverbs_move.c	what work requests do
 *
 * The fabric is shared memory with the queues of all its processes in it.  Bytes stay in the memory
 * of the processes: the one that posts copies them with process_vm_writev(), or with memcpy() where
 * both ends are its own.
 */
#ifndef PST_IBVERBS_STUB_INT_H
#define PST_IBVERBS_STUB_INT_H

#include <sys/types.h>

#include "base/base.h"
#include "net/verbs/verbs_types.h"

#include "stub/ibverbs_stub.h"

#define STUB_QPS 128u
#define STUB_CQS 128u
#define STUB_MRS 512u
#define STUB_WRS 512u /* of a queue; more than max_qp_wr of a device */
#define STUB_CQES 1024u
#define STUB_SGES 4u
#define STUB_QPN0 17u /* number of the first queue pair */

struct stub_wqe {
	uint64_t wr_id;
	uint32_t opcode, flags, nr_sges;
	struct vb_sge sges[STUB_SGES];
	uint64_t raddr;
	uint32_t rkey;
	uint64_t seq;   /* of the send queue, for slots */
	uint64_t since; /* when it was first tried and not answered, ns; 0: not tried */
};

struct stub_ring {
	uint64_t head, tail; /* taken, put */
	struct stub_wqe of[STUB_WRS];
};

struct stub_cqe {
	struct vb_wc wc;
	bool send;
	uint32_t generation; /* of its queue pair */
	uint64_t seq;        /* slots up to this one are free when it is polled */
};

struct stub_fcq {
	pid_t pid; /* 0: free */
	int channel;
	bool armed, solicited, overrun;
	uint64_t head, tail;
	uint32_t depth;
	struct stub_cqe of[STUB_CQES];
};

struct stub_fqp {
	pid_t pid; /* 0: free */
	uint32_t generation;
	uint32_t state; /* VB_QPS_* */
	unsigned device;
	uint32_t pd, send_cq, recv_cq;
	bool sig_all;
	struct vb_qp_cap cap;
	struct vb_qp_attr attr;
	uint64_t posted, freed; /* slots of the send queue */
	struct stub_ring sq, rq;
};

struct stub_fmr {
	pid_t pid; /* 0: free */
	uint32_t pd, key, access;
	uint64_t iova, len;
	uint64_t at; /* where the first byte is in the process */
};

struct stub_fabric {
	uint32_t ready;
	uint32_t port_down;
	uint32_t next_key, next_pd, next_channel;
	pthread_mutex_t lock;
	struct stub_fqp qps[STUB_QPS];
	struct stub_fcq cqs[STUB_CQS];
	struct stub_fmr mrs[STUB_MRS];
};

struct stub_mr {
	struct vb_mr mr;
	void *map; /* of a dma-buf, else NULL */
	size_t map_len;
};

struct stub_cq {
	struct vb_cq cq;
	unsigned delivered, acked; /* events */
	unsigned qps;
};

struct stub_channel {
	struct vb_comp_channel ch;
	int number;
	unsigned cqs;
};

struct stub_pd {
	struct vb_pd pd;
	unsigned users;
};

struct stub_context {
	struct vb_context ctx;
	struct stub_context *next; /* of the process */
	unsigned device;
	unsigned users;
};

/* Objects of this process, by number; under the lock of the fabric. */
struct stub_process {
	struct stub_ibverbs_state st;
	struct stub_cq *cqs[STUB_CQS];
	struct stub_context *contexts;
	bool late, late_read; /* requests wait for a poll; the environment was asked */
	bool dead;
};

extern struct stub_process stub_process;

/* The file that joins processes, or NULL. */
const char *stub_fabric_path(void);
/* The fabric with its lock taken. */
struct stub_fabric *stub_lock(void);
void stub_unlock(struct stub_fabric *f);

/* The errno that this call of NAME is to fail with, or 0. */
int stub_fault(const char *name);
/* Wait while the environment has objects held. */
void stub_hold(void);
void stub_broken(const char *fmt, ...) _printf_(1, 2);

bool stub_alive(pid_t pid);
/* A GID of the device; false for an index without one. */
bool stub_gid(unsigned device, unsigned idx, struct vb_gid_entry *ret);
bool stub_gid_is(unsigned device, const union vb_gid *gid);
bool stub_is_ib(void);

/* Where a key lets bytes be: 0 and *ret_at; -1: no such key, or not these bytes, or not so. */
int stub_mr_find(struct stub_fabric *f, pid_t pid, uint32_t pd, uint32_t key, uint64_t addr,
		 uint64_t len, uint32_t access, uint64_t *ret_at);
/* 0; -ESRCH: a process is gone. */
int stub_copy(pid_t to, uint64_t to_at, pid_t from, uint64_t from_at, uint64_t len);

void stub_cq_put(struct stub_fabric *f, uint32_t cq, const struct stub_cqe *cqe, bool solicited);

/* Execute what can be executed; polls: completions are polled. */
void stub_progress(struct stub_fabric *f, bool polls);
void stub_qp_error(struct stub_fabric *f, struct stub_fqp *q);
uint32_t stub_qpn(const struct stub_fabric *f, const struct stub_fqp *q);

int stub_poll_cq(struct vb_cq *cq, int nr, struct vb_wc *ret);
int stub_req_notify_cq(struct vb_cq *cq, int solicited_only);
int stub_post_send(struct vb_qp *qp, struct vb_send_wr *wr, struct vb_send_wr **bad);
int stub_post_recv(struct vb_qp *qp, struct vb_recv_wr *wr, struct vb_recv_wr **bad);

/* The vendor's functions, which no header of ours declares as such. */
#define SYM(result, name, args) result name args;
#define OPT SYM
#include "net/verbs/verbs_syms.h"

#endif
