/* SPDX-License-Identifier: MIT */
/*
 * Declarations that the files of the libibverbs stub share.
 *
 *	libibverbs.c		the fabric, devices, protection domains, faults
 *	libibverbs_mr.c		memory regions and copies between processes
 *	libibverbs_cq.c		completion queues and their channels
 *	libibverbs_qp.c		queue pairs: states, posting
 *	libibverbs_move.c	execution of work requests
 *
 * The fabric is shared memory with the queues of all its processes.  Bytes stay in the memory of
 * the processes: the poster copies them by process_vm_writev() or process_vm_readv(), or by
 * memmove() if it has both ends.
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
#define STUB_WRS 512u /* entries of a queue; more than max_qp_wr of a device */
#define STUB_CQES 1024u
#define STUB_SGES 4u
#define STUB_QPN0 17u /* number of the first queue pair, at slot 0 */

struct stub_wqe {
	uint64_t wr_id;
	uint32_t opcode, flags, nr_sges;
	struct vb_sge sges[STUB_SGES];
	uint64_t raddr;
	uint32_t rkey;
	uint64_t seq;   /* number in the send queue, to free its slot */
	uint64_t since; /* time of the first try, ns; 0: not tried yet */
};

struct stub_ring {
	uint64_t head, tail; /* numbers of entries taken and put */
	struct stub_wqe of[STUB_WRS];
};

struct stub_cqe {
	struct vb_wc wc;
	bool send;
	uint32_t generation; /* the queue pair's generation */
	uint64_t seq;        /* polling it frees the send slots up to seq */
};

struct stub_fcq {
	pid_t pid; /* process that owns it; 0: free slot */
	int channel;
	bool armed, solicited, overrun;
	uint64_t head, tail;
	uint32_t depth;
	struct stub_cqe of[STUB_CQES];
};

struct stub_fqp {
	pid_t pid; /* process that owns it; 0: free slot */
	uint32_t generation;
	uint32_t state; /* state, VB_QPS_* */
	unsigned device;
	uint32_t pd, send_cq, recv_cq;
	bool sig_all;
	struct vb_qp_cap cap;
	struct vb_qp_attr attr;
	uint64_t posted, freed; /* numbers of send slots used and freed */
	struct stub_ring sq, rq;
};

struct stub_fmr {
	pid_t pid; /* process that owns it; 0: free slot */
	uint32_t pd, key, access;
	uint64_t iova, len;
	uint64_t at; /* process address of the first byte */
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
	void *map; /* mapping of a dma-buf; else NULL */
	size_t map_len;
};

struct stub_cq {
	struct vb_cq cq;
	unsigned delivered, acked; /* numbers of events */
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
	struct stub_context *next; /* next context of this process */
	unsigned device;
	unsigned users;
};

/* Objects of this process by their fabric numbers; guarded by the fabric's lock. */
struct stub_process {
	struct stub_ibverbs_state st;
	struct stub_cq *cqs[STUB_CQS];
	struct stub_context *contexts;
	bool late, late_read; /* requests wait for a poll; STUB_IBVERBS_LATE was read */
	bool dead;
};

extern struct stub_process stub_process;

/* The file that joins processes, or NULL. */
const char *stub_fabric_path(void);
/* The fabric with its lock taken. */
struct stub_fabric *stub_lock(void);
void stub_unlock(struct stub_fabric *f);

/* Return the errno that this call of NAME has to fail with, or 0. */
int stub_fault(const char *name);
/* Wait while the file that STUB_IBVERBS_HOLD names exists. */
void stub_hold(void);
void stub_broken(const char *fmt, ...) _printf_(1, 2);

bool stub_alive(pid_t pid);
/* Get a GID of the device; return false if the index has none. */
bool stub_gid(unsigned device, unsigned idx, struct vb_gid_entry *ret);
bool stub_gid_is(unsigned device, const union vb_gid *gid);
bool stub_is_ib(void);

/* Find the bytes that a key gives access to: return 0 and *ret_at, or -1 if the key is unknown
 * or does not permit this range or access. */
int stub_mr_find(struct stub_fabric *f, pid_t pid, uint32_t pd, uint32_t key, uint64_t addr,
		 uint64_t len, uint32_t access, uint64_t *ret_at);
/* Return 0, or -ESRCH if a process has exited. */
int stub_copy(pid_t to, uint64_t to_at, pid_t from, uint64_t from_at, uint64_t len);

void stub_cq_put(struct stub_fabric *f, uint32_t cq, const struct stub_cqe *cqe, bool solicited);

/* Execute all requests that can run; @polls: called from a poll of completions. */
void stub_progress(struct stub_fabric *f, bool polls);
void stub_qp_error(struct stub_fabric *f, struct stub_fqp *q);
uint32_t stub_qpn(const struct stub_fabric *f, const struct stub_fqp *q);

int stub_poll_cq(struct vb_cq *cq, int nr, struct vb_wc *ret);
int stub_req_notify_cq(struct vb_cq *cq, int solicited_only);
int stub_post_send(struct vb_qp *qp, struct vb_send_wr *wr, struct vb_send_wr **bad);
int stub_post_recv(struct vb_qp *qp, struct vb_recv_wr *wr, struct vb_recv_wr **bad);

/* The library's functions, which our headers declare only as pointers. */
#define SYM(result, name, args) result name args;
#define OPT SYM
#include "net/verbs/verbs_syms.h"

#endif
