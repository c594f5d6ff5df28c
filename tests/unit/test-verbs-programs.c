/* SPDX-License-Identifier: MIT */
/*
 * Random programs of verbs: reads, writes and messages between two queue pairs of one device,
 * with and without errors.  Their completions, in order and with status, were recorded on the
 * kernel's software RDMA (rdma_rxe). The stub of libibverbs must give the same.
 *
 * PST_VERBS_RECORDED names the record, tests/unit/verbs-programs.rxe; lab/guest-rdma compares it
 * with rdma_rxe itself.  PST_VERBS_RECORD=FILE makes a record of this machine's device.
 *
 * lab/guest-siw runs the programs on an iWARP device, too, and compares them with the stub by the
 * rules of verbs_iwarp_rules.h.  PST_VERBS_WORDS=FILE, for the stub, writes the completions of all
 * programs as text.  PST_VERBS_STUB names that file for the run on the iWARP device, whose IPv4
 * address is PST_VERBS_ADDRESS.
 */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>

#include "net/verbs/verbs.h"

#define T_ERROR_TEXT() err_text()
#include "base/err.h"
#include "t.h"
#include "verbs_iwarp.h"
#include "verbs_iwarp_rules.h"

#define PROGRAMS 10000u /* programs in the record */
#define IN_WORDS 60u    /* programs recorded as text; the others are recorded as a digest */
#define DIGEST_EVERY 100u
#define LEN 65536u
#define PIECE_MAX 9000u /* several packets at any MTU */
#define CHAIN 4u
#define RECVS 16u
#define QUEUE 64u
#define RNIC 4 /* node_type of iWARP devices */

/* What a memory region allows. */
enum key {
	KEY_LOCAL,   /* only local writes */
	KEY_CONST,   /* only local reads */
	KEY_BOTH,    /* remote reads and writes */
	KEY_READ,    /* remote reads */
	KEY_WRITE,   /* remote writes */
	KEY_FOREIGN, /* as KEY_BOTH, but in another protection domain */
	KEYS
};

static struct {
	struct vb_context *ctx;
	struct vb_pd *pd, *other;
	struct vb_cq *cq[2];
	struct vb_qp *qp[2];
	uint32_t qp_num[2];
	struct vb_mr *mr[KEYS];
	struct vb_gid_entry gid;
	struct vb_port_attr port;
	uint32_t dead;     /* a key whose region has ended */
	uint8_t *mem[2];   /* LEN bytes for each side */
	unsigned recvs;    /* receives posted at side 1 and not yet completed */
	uint64_t next_id;  /* id of the next work request */
	bool failed;       /* side 0 has seen a failure */
	bool local;        /* the request in flight has an error on side 0 itself */
	unsigned number;   /* number of the program */
	bool iwarp;        /* the device is an iWARP device */
	bool cut;          /* sending failed on side 0 */
	unsigned signaled; /* signaled requests in flight on side 0 */
	unsigned chain;    /* number of the chain of requests */
	struct iwarp_request req[IWARP_REQUESTS];
	char words[2][4096]; /* completions of the program as text, of both sides */
} s;

static uint64_t rng;

static uint32_t pick(uint32_t below)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (uint32_t)((rng >> 16) % below);
}

/* ------------------------------------------------------------------- set-up */

/* Open the first iWARP device with an active port. */
static bool find_iwarp(void)
{
	int nr = 0;
	struct vb_device **list = vb.ibv_get_device_list(&nr);

	for (int i = 0; i < nr && !s.iwarp; i++) {
		s.ctx = list[i]->node_type == RNIC ? vb.ibv_open_device(list[i]) : NULL;
		s.iwarp = s.ctx && !vb.ibv_query_port(s.ctx, 1, &s.port) &&
			  s.port.state == VB_PORT_ACTIVE;
		if (s.ctx && !s.iwarp)
			(void)vb.ibv_close_device(s.ctx);
	}
	if (list)
		vb.ibv_free_device_list(list);
	return s.iwarp;
}

/* Find the first device with an active port and an IPv4 GID. */
static bool find_device(void)
{
	int nr = 0;
	struct vb_device **list = vb.ibv_get_device_list(&nr);
	struct vb_gid_entry gids[64];
	ssize_t n;

	for (int i = 0; i < nr && !s.ctx; i++) {
		s.ctx = vb.ibv_open_device(list[i]);
		n = s.ctx ? vb._ibv_query_gid_table(s.ctx, gids, 64, 0, sizeof(gids[0])) : 0;
		for (ssize_t k = 0; k < n; k++)
			if (gids[k].gid.raw[10] == 0xff && gids[k].type == VB_GID_ROCE_V2)
				s.gid = gids[k];
		if (s.ctx &&
		    (!s.gid.port || vb.ibv_query_port(s.ctx, (uint8_t)s.gid.port, &s.port) ||
		     s.port.state != VB_PORT_ACTIVE)) {
			(void)vb.ibv_close_device(s.ctx);
			s.ctx = NULL;
		}
	}
	if (list)
		vb.ibv_free_device_list(list);
	return s.ctx;
}

static struct vb_mr *reg(struct vb_pd *pd, int access)
{
	bool remote = access & (VB_ACCESS_REMOTE_READ | VB_ACCESS_REMOTE_WRITE);
	struct vb_mr *mr = vb.ibv_reg_mr(pd, s.mem[remote], LEN, access);

	T_CHECK(mr);
	return mr;
}

static void set_up(void)
{
	int both = VB_ACCESS_LOCAL_WRITE | VB_ACCESS_REMOTE_READ | VB_ACCESS_REMOTE_WRITE;
	struct vb_mr *dead;

	for (int i = 0; i < 2; i++) {
		s.mem[i] = aligned_alloc(4096, LEN);
		T_CHECK(s.mem[i]);
		memset(s.mem[i], i, LEN);
		s.cq[i] = vb.ibv_create_cq(s.ctx, 2 * QUEUE, NULL, NULL, 0);
		T_CHECK(s.cq[i]);
	}
	s.pd = vb.ibv_alloc_pd(s.ctx);
	s.other = vb.ibv_alloc_pd(s.ctx);
	T_CHECK(s.pd && s.other);
	s.mr[KEY_LOCAL] = reg(s.pd, VB_ACCESS_LOCAL_WRITE);
	s.mr[KEY_CONST] = reg(s.pd, 0);
	s.mr[KEY_BOTH] = reg(s.pd, both);
	s.mr[KEY_READ] = reg(s.pd, VB_ACCESS_REMOTE_READ);
	s.mr[KEY_WRITE] = reg(s.pd, VB_ACCESS_LOCAL_WRITE | VB_ACCESS_REMOTE_WRITE);
	s.mr[KEY_FOREIGN] = reg(s.other, both);
	dead = reg(s.pd, both);
	s.dead = dead->rkey;
	T_EQ(vb.ibv_dereg_mr(dead), 0);
}

static void destroy_pair(void)
{
	for (int i = 0; i < 2; i++)
		if (s.qp[i]) {
			T_EQ(vb.ibv_destroy_qp(s.qp[i]), 0);
			s.qp[i] = NULL;
		}
}

static void tear_down(void)
{
	destroy_pair();
	for (unsigned i = 0; i < KEYS; i++)
		T_EQ(vb.ibv_dereg_mr(s.mr[i]), 0);
	T_EQ(vb.ibv_dealloc_pd(s.pd), 0);
	T_EQ(vb.ibv_dealloc_pd(s.other), 0);
	for (int i = 0; i < 2; i++) {
		T_EQ(vb.ibv_destroy_cq(s.cq[i]), 0);
		free(s.mem[i]);
	}
	T_EQ(vb.ibv_close_device(s.ctx), 0);
}

static void create_pair(void)
{
	struct vb_qp_init_attr a = {
		.cap = { QUEUE, QUEUE, 2, 2, 0 },
		.qp_type = VB_QPT_RC,
	};

	for (int i = 0; i < 2; i++) {
		a.send_cq = a.recv_cq = s.cq[i];
		s.qp[i] = vb.ibv_create_qp(s.pd, &a);
		T_CHECK(s.qp[i]);
		s.qp_num[i] = s.qp[i]->qp_num;
	}
}

static void to_state(int side, uint32_t state)
{
	struct vb_qp_attr a = { .qp_state = state };

	T_EQ(vb.ibv_modify_qp(s.qp[side], &a, VB_QP_STATE), 0);
}

static int begin_pair(void)
{
	struct vb_qp_attr a = {
		.qp_state = VB_QPS_INIT,
		.port_num = (uint8_t)s.gid.port,
		.qp_access_flags = VB_ACCESS_REMOTE_READ | VB_ACCESS_REMOTE_WRITE,
	};
	int mask = VB_QP_STATE | VB_QP_PKEY_INDEX | VB_QP_PORT | VB_QP_ACCESS_FLAGS;
	int err = vb.ibv_modify_qp(s.qp[0], &a, mask);

	return err ? err : vb.ibv_modify_qp(s.qp[1], &a, mask);
}

/* Connect the pair.  If not patient, a peer that does not answer is given up soon. */
static void connect_pair(bool patient)
{
	if (s.iwarp) {
		cm_connect(s.qp_num);
		return;
	}
	if (begin_pair()) {
		/* rdma_rxe's pending work can put a queue pair that was just reset back into the
		 * error state. */
		destroy_pair();
		create_pair();
		T_EQ(begin_pair(), 0);
	}
	for (int i = 0; i < 2; i++) {
		struct vb_qp_attr a = {
			.qp_state = VB_QPS_RTR,
			.path_mtu = 3,
			.dest_qp_num = s.qp[!i]->qp_num,
			.max_dest_rd_atomic = 8,
			.min_rnr_timer = 1,
			.ah_attr = { .grh = { .dgid = s.gid.gid,
					      .sgid_index = (uint8_t)s.gid.index,
					      .hop_limit = 64 },
				     .is_global = 1,
				     .port_num = (uint8_t)s.gid.port },
		};

		T_EQ(vb.ibv_modify_qp(s.qp[i], &a,
				      VB_QP_STATE | VB_QP_AV | VB_QP_PATH_MTU | VB_QP_DEST_QPN |
					      VB_QP_RQ_PSN | VB_QP_MAX_DEST_RD_ATOMIC |
					      VB_QP_MIN_RNR_TIMER),
		     0);
		a = (struct vb_qp_attr){
			.qp_state = VB_QPS_RTS,
			.timeout = patient ? 18 : 8,
			.retry_cnt = patient ? 6 : 1,
			.rnr_retry = 1,
			.max_rd_atomic = 8,
		};
		T_EQ(vb.ibv_modify_qp(s.qp[i], &a,
				      VB_QP_STATE | VB_QP_TIMEOUT | VB_QP_RETRY_CNT |
					      VB_QP_RNR_RETRY | VB_QP_SQ_PSN |
					      VB_QP_MAX_QP_RD_ATOMIC),
		     0);
	}
}

/* -------------------------------------------------------------- completions */

static void say(int side, const char *fmt, ...)
{
	size_t at = strlen(s.words[side]);
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(s.words[side] + at, sizeof(s.words[side]) - at, fmt, ap);
	va_end(ap);
}

/* Take a completion of a side.  Return false if there is none. */
static bool take(int side, struct vb_wc *wc)
{
	int n = s.cq[side]->context->ops.poll_cq(s.cq[side], 1, wc);

	T_CHECK(n >= 0);
	if (n == 0)
		return false;
	T_EQ(wc->qp_num, s.qp_num[side]);
	/* Write numbers of work requests relative to the program's start, so that their order is
	 * compared.  rdma_rxe flushes about every third request that has an error on its own
	 * side. */
	if (side == 0 && s.local && !s.failed && !s.iwarp &&
	    (wc->status == VB_WC_LOC_PROT_ERR || wc->status == VB_WC_WR_FLUSH_ERR))
		say(side, " %llu:L", (unsigned long long)wc->wr_id);
	else if (wc->status)
		say(side, " %llu:%u", (unsigned long long)wc->wr_id, wc->status);
	else if (wc->opcode == VB_WC_RECV)
		say(side, " %llu:R%u", (unsigned long long)wc->wr_id, wc->byte_len);
	else
		say(side, " %llu:%c", (unsigned long long)wc->wr_id,
		    wc->opcode == VB_WC_SEND         ? 's'
		    : wc->opcode == VB_WC_RDMA_WRITE ? 'w'
						     : 'r');
	if (side == 0 && wc->status)
		s.failed = true;
	if (side == 0 && wc->status == VB_WC_LOC_QP_OP_ERR)
		s.cut = true;
	if (side == 0 && !wc->status && wc->wr_id < IWARP_REQUESTS)
		s.signaled -= s.req[wc->wr_id].signaled;
	if (side == 1)
		s.recvs--;
	return true;
}

/* Fail if this time, from t_hang(), has come. */
static void check_hang(uint64_t until)
{
	char ops[IWARP_REQUESTS + 1];
	unsigned nr = (unsigned)s.next_id;

	if (t_now() < until)
		return;
	for (unsigned i = 0; i < nr; i++)
		ops[i] = s.req[i].op ? s.req[i].op : '?';
	T_FAIL("program %u, requests %.*s, hangs after \"%s |%s\"", s.number, (int)nr, ops,
	       s.words[0], s.words[1]);
}

static void wait_for(uint64_t id)
{
	uint64_t until = t_hang();
	struct vb_wc wc = { 0 };

	do {
		check_hang(until);
	} while (!take(0, &wc) || wc.wr_id != id);
}

static void wait_for_recvs(unsigned left)
{
	uint64_t until = t_hang();
	struct vb_wc wc;

	while (s.recvs > left) {
		check_hang(until);
		(void)take(1, &wc);
	}
}

/* -------------------------------------------------------------------- iWARP */

static void note_request(uint64_t id, char op, uint32_t len, bool signaled, enum iwarp_error error)
{
	T_CHECK(id < IWARP_REQUESTS);
	s.req[id] = (struct iwarp_request){
		.op = op,
		.signaled = signaled,
		.late = s.failed,
		.chain = s.chain,
		.len = len,
		.error = error,
	};
	s.signaled += signaled;
}

/* Wait until an iWARP connection has ended: an error, the peer's message Terminate, or the end of
 * TCP's connection puts the queue pair into the error state.  If sending failed, siw does not. */
static void wait_for_end(void)
{
	uint64_t until = t_hang();
	struct vb_qp_init_attr init;
	struct vb_qp_attr a = { 0 };
	struct vb_wc wc;

	do {
		check_hang(until);
		(void)take(0, &wc);
		T_EQ(vb.ibv_query_qp(s.qp[0], &a, VB_QP_STATE, &init), 0);
	} while (a.qp_state != VB_QPS_ERR && !s.cut);
}

/* Wait for a chain of requests on an iWARP device, whose last one is id.  A READ may complete after
 * later requests, and a request with an error may have no completion.
 * @wrong: a request of the chain has an error
 * @late: the chain was posted after a failure
 */
static void wait_for_iwarp(uint64_t id, bool wrong, bool late)
{
	uint64_t until = t_hang();
	struct vb_wc wc;

	if (!late && !wrong) {
		while (s.signaled) {
			check_hang(until);
			(void)take(0, &wc);
		}
		return;
	}
	if (!late && s.local)
		wait_for(id);
	if (!late)
		wait_for_end();
	/* Wait until siw has flushed: the call takes the lock of the queue pair. */
	to_state(0, VB_QPS_ERR);
	while (take(0, &wc))
		;
	s.failed = true;
}

/* ----------------------------------------------------------------- programs */

/* The error of a request, or none. */
enum wrong {
	RIGHT,
	DEAD_KEY,
	FORBIDDEN,   /* the region does not allow the operation */
	FOREIGN,     /* the region is in another protection domain */
	TOO_FAR,     /* the range ends after the region */
	BEFORE,      /* the range begins before the region */
	LOCAL_KEY,   /* invalid local key; from here on, errors on side 0 */
	LOCAL_FAR,   /* the local range ends after its region */
	LOCAL_CONST, /* a read into a region without local writes */
	WRONGS
};

static uint32_t remote_key(enum wrong wrong, bool write)
{
	switch (wrong) {
	case DEAD_KEY:
		return s.dead;
	case FORBIDDEN:
		/* siw lets a peer read every region: siw_qp_sq_proc_tx() checks no right. */
		if (s.iwarp && !write)
			return s.dead;
		return s.mr[write ? KEY_READ : KEY_WRITE]->rkey;
	case FOREIGN:
		return s.mr[KEY_FOREIGN]->rkey;
	default:
		return s.mr[KEY_BOTH]->rkey;
	}
}

static void make_sges(struct vb_send_wr *wr, struct vb_sge sges[2], uint32_t len, enum wrong wrong)
{
	uint32_t cut = len > 1 ? pick(len) : 0, at = pick(LEN - len + 1), key;
	bool read = wr->opcode == VB_WR_RDMA_READ;

	key = s.mr[wrong == LOCAL_CONST || (!read && pick(2)) ? KEY_CONST : KEY_LOCAL]->lkey;
	if (wrong == LOCAL_KEY)
		key = s.dead;
	if (wrong == LOCAL_FAR)
		at = LEN - len + 1;
	/* iWARP's READ has one local piece: its request names one region. */
	if (s.iwarp && read)
		cut = 0;
	sges[0] = (struct vb_sge){ (uintptr_t)s.mem[0] + at, cut ? cut : len, key };
	sges[1] = (struct vb_sge){ (uintptr_t)s.mem[0] + at + cut, len - cut, key };
	wr->sg_list = sges;
	wr->num_sge = cut ? 2 : 1;
}

/* Post requests with one doorbell, at most one of them with an error, and wait for the last. */
static void post_chain(unsigned nr, enum wrong wrong, bool messages)
{
	struct vb_send_wr wr[CHAIN] = { 0 }, *bad;
	struct vb_sge sges[CHAIN][2];
	unsigned at, sent = 0;
	bool moved = !s.failed;

	s.chain++;
	s.local = wrong >= LOCAL_KEY;
	if (s.local)
		nr = 1;
	at = pick(nr);

	for (unsigned i = 0; i < nr; i++) {
		enum wrong how = i == at ? wrong : RIGHT;
		bool local = how == LOCAL_KEY || how == LOCAL_FAR;
		uint32_t len = 1 + pick(PIECE_MAX), off = pick(LEN - len + 1);

		wr[i].wr_id = s.next_id++;
		wr[i].opcode = pick(2) && how != LOCAL_CONST ? VB_WR_RDMA_WRITE : VB_WR_RDMA_READ;
		if (messages && s.recvs > i && (how == RIGHT || local))
			wr[i].opcode = VB_WR_SEND;
		sent += wr[i].opcode == VB_WR_SEND && moved && (wrong == RIGHT || i < at);
		/* siw answers a READ of 0 bytes with the length of the READ before it, because
		 * siw_activate_tx() does not reset the length. */
		if (how == RIGHT && pick(16) == 0)
			len = s.iwarp && wr[i].opcode == VB_WR_RDMA_READ;
		wr[i].send_flags = pick(2) || i == nr - 1 ? VB_SEND_SIGNALED : 0;
		wr[i].next = i == nr - 1 ? NULL : &wr[i + 1];
		if (how == TOO_FAR)
			off = LEN - len + 1 + pick(1000);
		wr[i].wr.rdma.remote_addr = (uintptr_t)s.mem[1] + off -
					    (how == BEFORE ? off + 1 + pick(100) : 0);
		wr[i].wr.rdma.rkey = remote_key(how, wr[i].opcode == VB_WR_RDMA_WRITE);
		make_sges(&wr[i], sges[i], len, how);
		note_request(wr[i].wr_id, "w?s?r"[wr[i].opcode], len,
			     wr[i].send_flags & VB_SEND_SIGNALED,
			     how == RIGHT ? IWARP_NO_ERROR
			     : s.local    ? IWARP_LOCAL_ERROR
					  : IWARP_PEER_ERROR);
	}
	T_EQ(s.ctx->ops.post_send(s.qp[0], wr, &bad), 0);
	if (s.iwarp)
		wait_for_iwarp(wr[nr - 1].wr_id, wrong != RIGHT, !moved);
	else
		wait_for(wr[nr - 1].wr_id);
	wait_for_recvs(s.recvs - sent);
}

static void post_recv(uint32_t len, uint32_t key)
{
	struct vb_sge sge = { (uintptr_t)s.mem[0], len, key };
	struct vb_recv_wr wr = { .wr_id = s.next_id++, .sg_list = &sge, .num_sge = 1 }, *bad;

	note_request(wr.wr_id, 'R', len, false, IWARP_NO_ERROR);
	if (len < PIECE_MAX || key == s.mr[KEY_CONST]->lkey)
		s.req[wr.wr_id].error = IWARP_LOCAL_ERROR;
	s.req[wr.wr_id].is_short = len < PIECE_MAX;
	T_EQ(s.ctx->ops.post_recv(s.qp[1], &wr, &bad), 0);
	s.recvs++;
}

static void post_message(uint32_t len)
{
	struct vb_sge sge = { (uintptr_t)s.mem[0], len, s.mr[KEY_LOCAL]->lkey };
	struct vb_send_wr wr = {
		.wr_id = s.next_id++,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = VB_WR_SEND,
		.send_flags = VB_SEND_SIGNALED,
	};
	struct vb_send_wr *bad;

	s.chain++;
	s.local = false;
	note_request(wr.wr_id, 's', len, true, IWARP_PEER_ERROR);
	T_EQ(s.ctx->ops.post_send(s.qp[0], &wr, &bad), 0);
	if (s.iwarp)
		wait_for_iwarp(wr.wr_id, true, false);
	else
		wait_for(wr.wr_id);
}

/* Make an error after which the pair does not work. */
static void go_wrong(void)
{
	switch (pick(5)) {
	case 0: /* send a message for which the peer has posted no buffer */
		if (s.recvs == 0)
			post_message(pick(PIECE_MAX));
		else
			post_chain(1 + pick(CHAIN), DEAD_KEY, false);
		break;
	/* send a message for which the peer's buffer is too short, or must not be written */
	case 1:
		if (s.recvs == 0) {
			bool shorter = pick(2);

			post_recv(shorter ? 100 : PIECE_MAX,
				  shorter ? s.mr[KEY_LOCAL]->lkey : s.mr[KEY_CONST]->lkey);
			post_message(200 + pick(5000));
		} else {
			post_chain(1 + pick(CHAIN), TOO_FAR, false);
		}
		break;
	case 2: /* put our own queue pair into the error state */
		to_state(0, VB_QPS_ERR);
		s.failed = true;
		post_chain(1 + pick(CHAIN), RIGHT, false);
		break;
	default:
		post_chain(1 + pick(CHAIN), 1 + pick(WRONGS - 1), true);
	}
}

static void run_program(void)
{
	unsigned steps = 1 + pick(6);

	if (pick(100) == 0) { /* the peer's queue pair has ended */
		connect_pair(false);
		to_state(1, VB_QPS_ERR);
		if (s.iwarp) {
			wait_for_end();
			s.failed = true;
		}
		post_chain(1 + pick(CHAIN), RIGHT, false);
		return;
	}
	connect_pair(true);
	for (unsigned i = 0; i < steps; i++) {
		unsigned nr = pick(3);

		if (pick(2) && s.recvs + nr <= RECVS)
			for (unsigned k = 0; k < nr; k++)
				post_recv(PIECE_MAX, s.mr[KEY_LOCAL]->lkey);
		post_chain(1 + pick(CHAIN), RIGHT, pick(2));
	}
	if (pick(2))
		go_wrong();
	if (s.failed && pick(2))
		post_chain(1 + pick(CHAIN), RIGHT, false);
}

/* Stop both ends: posted requests come back, and the next program gets new queue pairs. */
static void end_program(unsigned nr)
{
	struct vb_wc wc;

	to_state(0, VB_QPS_ERR);
	to_state(1, VB_QPS_ERR);
	wait_for_recvs(0);
	if (s.iwarp) {
		/* siw cannot reset a queue pair, and may flush until it is destroyed. */
		destroy_pair();
		cm_disconnect();
		while (take(0, &wc))
			;
		T_CHECK(!take(1, &wc));
		create_pair();
		return;
	}
	T_CHECK(!take(0, &wc) && !take(1, &wc));
	if (nr % 16 == 15) {
		destroy_pair();
		create_pair();
		return;
	}
	to_state(0, VB_QPS_RESET);
	to_state(1, VB_QPS_RESET);
}

static uint64_t digest(uint64_t h, const char *text)
{
	for (; *text; text++)
		h = (h ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
	return h;
}

/* Run a program, and return its completions as text. */
static void program(unsigned nr, char *ret, size_t room)
{
	rng = (nr + 1) * UINT64_C(0x9e3779b97f4a7c15);
	s.number = nr;
	s.next_id = 0;
	s.recvs = 0;
	s.failed = s.local = s.cut = false;
	s.signaled = s.chain = 0;
	memset(s.req, 0, sizeof(s.req));
	s.words[0][0] = s.words[1][0] = '\0';
	run_program();
	end_program(nr);
	(void)snprintf(ret, room, "%u |%s |%s", nr, s.words[0], s.words[1]);
}

/* Return the line of the record after this program, or an empty one. */
static void line_of(unsigned nr, const char *words, uint64_t *sum, char *ret, size_t room)
{
	*sum = digest(*sum, words);
	*ret = '\0';
	if (nr < IN_WORDS)
		(void)snprintf(ret, room, "%s", words);
	else if (nr % DIGEST_EVERY == DIGEST_EVERY - 1)
		(void)snprintf(ret, room, "%u %016llx", nr, (unsigned long long)*sum);
}

static unsigned programs(void)
{
	return getenv("PST_SOAK") || getenv("PST_VERBS_RECORD") || getenv("PST_VERBS_WORDS")
		       ? PROGRAMS
		       : PROGRAMS / 5;
}

static void run_programs(FILE *record, FILE *write, FILE *words_to)
{
	static char words[8300], line[8300], want[8300];
	uint64_t sum = UINT64_C(0xcbf29ce484222325);

	for (unsigned nr = 0; nr < programs(); nr++) {
		program(nr, words, sizeof(words));
		if (words_to)
			(void)fprintf(words_to, "%s\n", words);
		line_of(nr, words, &sum, line, sizeof(line));
		if (!*line)
			continue;
		if (write)
			(void)fprintf(write, "%s\n", line);
		do {
			if (!record)
				break;
			T_CHECK(fgets(want, sizeof(want), record));
		} while (want[0] == '#');
		want[strcspn(want, "\n")] = '\0';
		if (record && strcmp(line, want) != 0)
			T_FAIL("program %u gave \"%.200s\", recorded is \"%.200s\"", nr, line,
			       want);
	}
}

static FILE *open_named_by(const char *variable, const char *mode)
{
	const char *name = getenv(variable);
	FILE *f = name ? fopen(name, mode) : NULL;

	if (name && !f)
		T_FAIL("%s=%s: %s", variable, name, strerror(errno));
	return f;
}

static void statuses_are_those_of_rxe(void)
{
	FILE *write = open_named_by("PST_VERBS_RECORD", "we");
	FILE *record = open_named_by("PST_VERBS_RECORDED", "re");
	FILE *words = open_named_by("PST_VERBS_WORDS", "we");

	if (verbs_load() < 0)
		T_SKIP("no libibverbs: %s", err_text());
	if (!find_device())
		T_SKIP("no RDMA device with an active port and an IPv4 GID");
	T_CHECK(write || record || words);
	set_up();
	create_pair();
	run_programs(record, write, words);
	tear_down();
	if (write)
		T_EQ(fclose(write), 0);
	if (record)
		T_EQ(fclose(record), 0);
	if (words)
		T_EQ(fclose(words), 0);
}

static bool has_cm;

static void statuses_of_iwarp_are_those_of_the_stub(void)
{
	static const char *const rules[] = { "same",  "order", "sent",   "cut",    "lost",
					     "local", "dead",  "buffer", "passed", "twice" };
	static char words[8300], stub[8300];
	unsigned long uses[IWARP_RULES] = { 0 };
	const char *address = getenv("PST_VERBS_ADDRESS"), *why;
	FILE *record = open_named_by("PST_VERBS_STUB", "re");
	unsigned nr = 0;

	if (verbs_load() < 0)
		T_SKIP("no libibverbs: %s", err_text());
	if (!find_iwarp())
		T_SKIP("no iWARP device with an active port");
	if (!has_cm)
		T_SKIP("no librdmacm.so.1, or it finds no device");
	T_CHECK(address);
	/* siw sends without MSG_NOSIGNAL, in the calls that post requests. */
	(void)signal(SIGPIPE, SIG_IGN);
	cm_open(address);
	set_up();
	create_pair();
	for (; fgets(stub, sizeof(stub), record); nr++) {
		stub[strcspn(stub, "\n")] = '\0';
		program(nr, words, sizeof(words));
		why = iwarp_compare(s.req, stub, words, uses);
		if (why)
			T_FAIL("%s of program \"%.200s\", on the stub \"%.200s\"", why, words,
			       stub);
	}
	(void)printf("# %u programs; requests by rule:", nr);
	for (unsigned i = 0; i < IWARP_RULES; i++)
		(void)printf(" %s %lu", rules[i], uses[i]);
	(void)printf("\n");
	T_EQ(nr, PROGRAMS);
	tear_down();
	cm_close();
	T_EQ(fclose(record), 0);
}

int main(void)
{
	if (getenv("PST_VERBS_STUB")) {
		/* librdmacm never closes a device that it has opened. */
		has_cm = cm_load();
		t_fds_at_start = t_count_fds();
		T_RUN(statuses_of_iwarp_are_those_of_the_stub);
		return t_done();
	}
	T_RUN(statuses_are_those_of_rxe);
	return t_done();
}
