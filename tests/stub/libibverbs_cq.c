/* SPDX-License-Identifier: MIT */
/* Completion queues of the stub of libibverbs, and the channels that announce completions. */
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "stub/ibverbs_stub_int.h"

/* Make an abstract socket name that only processes of the same fabric share. */
static socklen_t channel_name(int number, struct sockaddr_un *ret)
{
	const char *path = stub_fabric_path();
	struct stat st = { .st_ino = (ino_t)getpid() };
	int len;

	if (path && *path)
		(void)stat(path, &st);
	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	len = snprintf(ret->sun_path + 1, sizeof(ret->sun_path) - 1, "stub-ibverbs-%llu-%llu-%d",
		       (unsigned long long)st.st_dev, (unsigned long long)st.st_ino, number);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
}

struct vb_comp_channel *ibv_create_comp_channel(struct vb_context *ctx)
{
	struct stub_channel *ch = calloc(1, sizeof(*ch));
	int err = stub_fault("ibv_create_comp_channel");
	struct sockaddr_un name;
	struct stub_fabric *f;
	socklen_t len;

	if (!ch || err) {
		free(ch);
		errno = err ? err : ENOMEM;
		return NULL;
	}
	f = stub_lock();
	ch->number = (int)f->next_channel++;
	stub_process.st.channels++;
	stub_unlock(f);
	ch->ch.context = ctx;
	ch->ch.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	len = channel_name(ch->number, &name);
	if (ch->ch.fd < 0 || bind(ch->ch.fd, (struct sockaddr *)&name, len) < 0)
		abort();
	return &ch->ch;
}

int ibv_destroy_comp_channel(struct vb_comp_channel *channel)
{
	struct stub_channel *ch = container_of(channel, struct stub_channel, ch);
	struct stub_fabric *f = stub_lock();

	if (ch->cqs) {
		stub_unlock(f);
		stub_broken("ibv_destroy_comp_channel before its completion queue");
		return EBUSY;
	}
	stub_process.st.channels--;
	stub_unlock(f);
	(void)close(channel->fd);
	free(ch);
	return 0;
}

static void announce(struct stub_fabric *f, uint32_t cq)
{
	struct sockaddr_un name;
	socklen_t len = channel_name(f->cqs[cq].channel, &name);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return;
	(void)sendto(fd, &cq, sizeof(cq), MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&name,
		     len);
	(void)close(fd);
}

int ibv_get_cq_event(struct vb_comp_channel *ch, struct vb_cq **ret, void **ret_arg)
{
	struct stub_fabric *f;
	uint32_t cq;

	if (recv(ch->fd, &cq, sizeof(cq), 0) != sizeof(cq))
		return -1;
	f = stub_lock();
	*ret = &stub_process.cqs[cq]->cq;
	*ret_arg = (*ret)->cq_context;
	stub_process.cqs[cq]->delivered++;
	stub_unlock(f);
	return 0;
}

void ibv_ack_cq_events(struct vb_cq *cq, unsigned nr)
{
	struct stub_fabric *f = stub_lock();

	container_of(cq, struct stub_cq, cq)->acked += nr;
	stub_unlock(f);
}

struct vb_cq *ibv_create_cq(struct vb_context *ctx, int nr, void *arg, struct vb_comp_channel *ch,
			    int vector)
{
	struct stub_context *c = container_of(ctx, struct stub_context, ctx);
	struct stub_cq *cq = calloc(1, sizeof(*cq));
	int err = stub_fault("ibv_create_cq");
	struct stub_fabric *f;
	uint32_t i = 0;

	if (!err && (nr < 1 || nr > (int)STUB_CQES || vector))
		err = EINVAL;
	if (!cq || err) {
		free(cq);
		errno = err ? err : ENOMEM;
		return NULL;
	}
	f = stub_lock();
	while (i < STUB_CQS && f->cqs[i].pid && stub_alive(f->cqs[i].pid))
		i++;
	if (i == STUB_CQS) {
		stub_unlock(f);
		free(cq);
		errno = ENOMEM;
		return NULL;
	}
	f->cqs[i].pid = getpid();
	f->cqs[i].depth = (uint32_t)nr;
	f->cqs[i].head = f->cqs[i].tail = 0;
	f->cqs[i].armed = f->cqs[i].overrun = false;
	f->cqs[i].channel = 0;
	if (ch) {
		struct stub_channel *own = container_of(ch, struct stub_channel, ch);

		f->cqs[i].channel = own->number;
		own->cqs++;
	}
	cq->cq.context = ctx;
	cq->cq.channel = ch;
	cq->cq.cq_context = arg;
	cq->cq.handle = i;
	cq->cq.cqe = nr;
	stub_process.cqs[i] = cq;
	stub_process.st.cqs++;
	c->users++;
	stub_unlock(f);
	return &cq->cq;
}

/* The real library would wait until every event was acknowledged; report that instead. */
int ibv_destroy_cq(struct vb_cq *cq)
{
	struct stub_context *c = container_of(cq->context, struct stub_context, ctx);
	struct stub_cq *own = container_of(cq, struct stub_cq, cq);
	struct stub_fabric *f = stub_lock();

	if (own->qps || own->delivered != own->acked) {
		stub_unlock(f);
		stub_broken("ibv_destroy_cq with queue pairs or events left");
		return EBUSY;
	}
	if (cq->channel)
		container_of(cq->channel, struct stub_channel, ch)->cqs--;
	f->cqs[cq->handle].pid = 0;
	stub_process.cqs[cq->handle] = NULL;
	stub_process.st.cqs--;
	c->users--;
	stub_unlock(f);
	free(own);
	return 0;
}

void stub_cq_put(struct stub_fabric *f, uint32_t cq, const struct stub_cqe *cqe, bool solicited)
{
	struct stub_fcq *c = &f->cqs[cq];

	if (c->tail - c->head == c->depth) {
		c->overrun = true;
		return;
	}
	c->of[c->tail++ % STUB_CQES] = *cqe;
	if (c->armed && (!c->solicited || solicited || cqe->wc.status)) {
		c->armed = false;
		announce(f, cq);
	}
}

int stub_req_notify_cq(struct vb_cq *cq, int solicited_only)
{
	int err = stub_fault("ibv_req_notify_cq");
	struct stub_fabric *f;

	if (err)
		return err;
	f = stub_lock();
	f->cqs[cq->handle].armed = true;
	f->cqs[cq->handle].solicited = solicited_only;
	stub_unlock(f);
	return 0;
}

int stub_poll_cq(struct vb_cq *cq, int nr, struct vb_wc *ret)
{
	struct stub_fcq *c;
	struct stub_fabric *f;
	int n = 0;

	if (stub_fault("ibv_poll_cq"))
		return -1;
	f = stub_lock();
	stub_progress(f, true);
	c = &f->cqs[cq->handle];
	if (stub_process.dead) {
		stub_unlock(f);
		return 0;
	}
	if (c->overrun) {
		stub_broken("a completion queue was too short");
		stub_unlock(f);
		return -1;
	}
	for (; n < nr && c->head < c->tail; n++) {
		const struct stub_cqe *e = &c->of[c->head++ % STUB_CQES];
		struct stub_fqp *q = &f->qps[e->wc.qp_num - STUB_QPN0];

		ret[n] = e->wc;
		if (e->send && q->pid == getpid() && q->generation == e->generation)
			q->freed = MAX(q->freed, e->seq + 1);
	}
	stub_process.st.completions += (uint64_t)n;
	stub_unlock(f);
	return n;
}
