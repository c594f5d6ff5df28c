/* SPDX-License-Identifier: MIT */
/* Copies of the libcuda stub; each stream executes them in order. */
#include <string.h>

#include "cuda_stub_int.h"

/* Queue a copy between host memory and device memory, which may span chunks. */
static cu_result copy(cu_ptr dev, char *host, uint64_t len, bool to_device, cu_stream handle)
{
	struct registration *g;
	struct CUstream_st *st;
	cu_ptr at = dev;
	cu_result e;
	int pinned;

	(void)pthread_mutex_lock(&stub.lock);
	e = stub_use(handle, &st);
	if (e || !st) {
		(void)pthread_mutex_unlock(&stub.lock);
		return e;
	}
	pinned = stub_registered(host, len, &g);
	for (uint64_t left = len; left;) {
		struct range *r = stub_range_at(at);
		uint64_t n = r ? MIN(left, r->size - (at - r->va)) : 0;

		if (!n || !(r->prot & CU_PROT_READ) ||
		    (to_device && r->prot != CU_PROT_READ_WRITE) || pinned < 0 ||
		    (!to_device && pinned && g->flags & CU_REGISTER_READ_ONLY)) {
			(void)pthread_mutex_unlock(&stub.lock);
			return CU_INVALID_VALUE;
		}
		left -= n;
		at += n;
	}
	stub.count.copies++;
	while (len) {
		struct range *r = stub_range_at(dev);
		uint64_t n = MIN(len, r->size - (dev - r->va));
		struct op op = { .kind = OP_COPY, .len = n, .obj = r->obj };
		char *bytes = stub_bytes(r, dev);

		r->obj->refs++;
		if (to_device && !pinned) {
			op.snapshot = malloc(n);
			if (!op.snapshot)
				stub_abort("out of memory");
			memcpy(op.snapshot, host, n);
		}
		op.dst = to_device ? bytes : host;
		op.src = !to_device ? bytes : op.snapshot ? op.snapshot : host;
		if (n == len)
			op.len -= MIN(n, to_device ? stub.lose_to : stub.lose_from);
		stub_queue(st, op);
		dev += n;
		host += n;
		len -= n;
	}
	if (!to_device && !pinned)
		stub_wait_idle(st);
	(void)pthread_mutex_unlock(&stub.lock);
	return CU_OK;
}

cu_result cuMemcpyHtoDAsync_v2(cu_ptr dst, const void *src, size_t len, cu_stream st)
{
	ENTER(IN_CTX);
	return copy(dst, (char *)(uintptr_t)src, len, true, st);
}

cu_result cuMemcpyDtoHAsync_v2(void *dst, cu_ptr src, size_t len, cu_stream st)
{
	ENTER(IN_CTX);
	return copy(src, dst, len, false, st);
}

/* Return true if both contexts have access, as the driver requires for a direct copy.  Call it with
 * the lock held. */
static bool reach_each_other(int a, int b)
{
	return a == b || (stub.primary[a].reaches & 1u << b && stub.primary[b].reaches & 1u << a);
}

/* Queue a copy between device addresses; each range may span chunks. */
static cu_result copy_between(cu_ptr dst, cu_ptr src, uint64_t len, cu_stream handle)
{
	struct CUstream_st *st;
	cu_result e = stub_use(handle, &st);

	if (e || !st)
		return e;
	for (uint64_t n, at = 0; at < len; at += n) {
		struct range *to = stub_range_at(dst + at), *from = stub_range_at(src + at);

		if (!to || !from || !(from->prot & CU_PROT_READ) || to->prot != CU_PROT_READ_WRITE)
			return CU_INVALID_VALUE;
		n = MIN(len - at, to->size - (dst + at - to->va));
		n = MIN(n, from->size - (src + at - from->va));
	}
	stub.count.copies++;
	stub.count.between++;
	for (uint64_t n, at = 0; at < len; at += n) {
		struct range *to = stub_range_at(dst + at), *from = stub_range_at(src + at);
		struct op op = { .kind = OP_COPY, .obj = to->obj, .from = from->obj };

		n = MIN(len - at, to->size - (dst + at - to->va));
		n = MIN(n, from->size - (src + at - from->va));
		to->obj->refs++;
		from->obj->refs++;
		op.dst = stub_bytes(to, dst + at);
		op.src = stub_bytes(from, src + at);
		op.len = n;
		stub.count.between_by_host += !reach_each_other(to->obj->dev, from->obj->dev);
		stub_queue(st, op);
	}
	return CU_OK;
}

cu_result cuMemcpyAsync(cu_ptr dst, cu_ptr src, size_t len, cu_stream st)
{
	cu_result e;

	ENTER(IN_CTX);
	(void)pthread_mutex_lock(&stub.lock);
	e = copy_between(dst, src, len, st);
	(void)pthread_mutex_unlock(&stub.lock);
	return e;
}

static cu_result copy_batch(cu_ptr *dst, cu_ptr *src, size_t *len, size_t nr,
			    struct cu_batch_attr *attr, size_t *attr_from, size_t nr_attrs,
			    cu_stream st)
{
	if (!nr || nr_attrs != 1 || attr_from[0] || attr->src_order != CU_SRC_ORDER_STREAM)
		return CU_INVALID_VALUE;
	for (size_t i = 0; i < nr; i++) {
		bool to_device;
		cu_result e;

		(void)pthread_mutex_lock(&stub.lock);
		to_device = stub_range_at(dst[i]);
		stub.count.batched++;
		(void)pthread_mutex_unlock(&stub.lock);
		e = copy(to_device ? dst[i] : src[i],
			 (char *)(uintptr_t)(to_device ? src[i] : dst[i]), len[i], to_device, st);
		if (e)
			return e;
	}
	return CU_OK;
}

cu_result cuMemcpyBatchAsync_v2(cu_ptr *dst, cu_ptr *src, size_t *len, size_t nr,
				struct cu_batch_attr *attr, size_t *attr_from, size_t nr_attrs,
				cu_stream st)
{
	ENTER(IN_CTX);
	return copy_batch(dst, src, len, nr, attr, attr_from, nr_attrs, st);
}

cu_result cuMemcpyBatchAsync(cu_ptr *dst, cu_ptr *src, size_t *len, size_t nr,
			     struct cu_batch_attr *attr, size_t *attr_from, size_t nr_attrs,
			     size_t *ret_failed, cu_stream st)
{
	ENTER(IN_CTX);
	*ret_failed = SIZE_MAX;
	return copy_batch(dst, src, len, nr, attr, attr_from, nr_attrs, st);
}
