/* SPDX-License-Identifier: MIT */
/*
 * P2P: O_DIRECT between the disk and peer-to-peer memory of another PCI device.  The disk moves the
 * bytes over the bus; host memory is not involved.
 *
 * Only a transfer shows whether two devices reach each other.  The kernel refuses the pages if it
 * knows no route between the devices.  EREMOTEIO: the disk's driver or file system does not support
 * such pages, or the devices are under different host bridges.  EINVAL: newer kernels return it for
 * different host bridges.  A refusal is remembered for the file, the memory's device and the
 * direction, unless an earlier transfer between file and device succeeded.  The CPU then moves the
 * bytes through the page cache.
 *
 * A bridge may also drop or misplace transfers that the kernel allows.  So the path is proven for
 * each mount and memory device, in each direction, like O_DIRECT.
 */
#include <sys/utsname.h>

#include "mem/accel.h"
#include "mem/p2pmem.h"

#include "base/err.h"
#include "base/log.h"
#include "core/queue/req.h"
#include "core/ways/direct.h"
#include "core/ways/part.h"
#include "core/ways/path.h"
#include "core/ways/way.h"

/* The data of a file for each device that offers memory. */
struct p2p_file {
	struct p2p_pair {
		_Atomic(struct proof *) proof[PROOF_DIR_NR]; /* NULL until first needed */
		atomic_int refused[PROOF_DIR_NR];            /* the kernel's refusal, errno; or 0 */
		atomic_bool reached;                         /* bytes have moved by this path */
	} with[P2PMEM_DEVICES_MAX];
};

static bool is_peer(const struct pst_mem *m)
{
	return mem_ops_of(m)->caps & MEM_CAP_PEER;
}

/* Return the pair of file and device, created on first use; NULL without memory. */
static struct p2p_pair *pair_of(const struct pst_file *f, const struct pst_mem *m)
{
	_Atomic(void *) *kept = &((struct pst_file *)f)->by_path[PST_PATH_P2P];
	unsigned device = m->region->alloc->device;
	struct p2p_file *of = atomic_load_explicit(kept, memory_order_acquire);

	if (!of)
		of = path_keep(kept, calloc(1, sizeof(*of)));
	return of && device < P2PMEM_DEVICES_MAX ? &of->with[device] : NULL;
}

static enum proof_dir dir_of(uint32_t op)
{
	return op == PST_OP_WRITE ? PROOF_WRITE : PROOF_READ;
}

/* Return the proof of file and device in one direction; NULL without memory. */
static struct proof *p2p_proof_of(const struct pst_file *f, const struct pst_mem *m, uint32_t op)
{
	enum proof_dir dir = dir_of(op);
	struct p2p_pair *pair = pair_of(f, m);
	struct pst_device dev;
	struct proof *proof;

	if (!pair)
		return NULL;
	proof = atomic_load(&pair->proof[dir]);
	if (likely(proof))
		return proof;
	mem_device_info(mem_ops_of(m), m->region->alloc->device, &dev);
	proof = proof_p2p(f->file, dev.pci, dir); /* every thread gets the same entry */
	atomic_store(&pair->proof[dir], proof);
	return proof;
}

static enum pst_why p2p_why_not(const struct pst_file *f, const struct pst_mem *m, uint32_t op,
				struct proof **ret_proof, int *ret_detail)
{
	struct p2p_pair *pair = pair_of(f, m);
	int err;

	*ret_proof = p2p_proof_of(f, m, op);
	if (!*ret_proof) {
		*ret_detail = ENOMEM;
		return PST_WHY_NO_P2P;
	}
	err = atomic_load_explicit(&pair->refused[dir_of(op)], memory_order_relaxed);
	if (err) {
		*ret_detail = err;
		return PST_WHY_NO_P2P;
	}
	return direct_trust(f, *ret_proof);
}

static enum pst_why p2p_why(const struct pst_file *f, const struct pst_mem *m, uint32_t op,
			    int *ret_detail)
{
	enum pst_why why;
	struct proof *proof;

	if (!is_peer(m))
		return PST_WHY_NO_PROVIDER;
	why = direct_of_file(f, ret_detail);
	return why ? why : p2p_why_not(f, m, op, &proof, ret_detail);
}

static bool p2p_proven(const struct pst_file *f, const struct pst_mem *m, uint32_t op)
{
	const struct proof *proof = is_peer(m) ? p2p_proof_of(f, m, op) : NULL;

	return proof && proof_state(proof) == PST_STATE_PROVEN;
}

static bool p2p_wanted(const struct req *r)
{
	return is_peer(req_mem(r)) && !(req_file(r)->caps & FILE_RESIDENT);
}

/* Ask again for each part: the verdict may have changed since the plan was made. */
static enum pst_why p2p_fit(struct part *p, int *ret_detail)
{
	struct proof *proof;
	enum pst_why why = p2p_why_not(p->req->io.file, req_mem(p->req), p->req->io.op, &proof,
				       ret_detail);

	return why ? why : direct_cut(p, proof, ret_detail);
}

static void p2p_hit(const struct part *p)
{
	struct p2p_pair *pair = pair_of(p->req->io.file, req_mem(p->req));

	if (unlikely(!atomic_load_explicit(&pair->reached, memory_order_relaxed)))
		atomic_store(&pair->reached, true);
}

static enum pst_why p2p_miss(const struct part *p, int err, int *ret_detail)
{
	struct p2p_pair *pair = pair_of(p->req->io.file, req_mem(p->req)); /* not NULL, because
									    * fit() has created the
									    * pair */

	if (err != EREMOTEIO && err != EINVAL && err != EOPNOTSUPP && err != EFAULT)
		return PST_WHY_NONE;
	*ret_detail = err;
	/* The error concerns only this operation, because bytes have moved before: EREMOTEIO may
	 * also come from an NVMe target, and EINVAL may mean a misaligned operation.  The next hop
	 * repeats the operation. */
	if (atomic_load_explicit(&pair->reached, memory_order_relaxed))
		return PST_WHY_NO_P2P;
	atomic_store(&pair->refused[dir_of(p->req->io.op)], err);
	path_changed();
	log_info("the kernel lets the disk of %s not reach peer-to-peer memory: %s, going on "
		 "without",
		 req_file(p->req)->name, err_name(err));
	return PST_WHY_NO_P2P;
}

/* Request a reader, because writes are proven by reading back. */
static int p2p_file_begin(struct pst_file *f, bool *ret_reader)
{
	if (!(f->file->flags & PST_FILE_READ) && (f->file->caps & FILE_DIRECT) &&
	    mem_has(PST_KIND_P2PMEM))
		*ret_reader = true;
	return 0;
}

static void p2p_file_end(struct pst_file *f)
{
	free(f->by_path[PST_PATH_P2P]);
}

/* -------------------------------------------------------------------- topic */

static int check_accel(const struct pst_check_opts *o, struct pst_check *ret)
{
	struct utsname u;

	_Static_assert(ACCEL_CHECKS <= TOPIC_CHECKS_MAX, "there is room");
	if (o->path)
		return err_set(EINVAL, "the topic accel is about no file; leave path out");
	if (o->device)
		return accel_device(o->device, ret);
	if (uname(&u) < 0)
		return err_set(errno, "uname(2) failed: %s", err_name(errno));
	return accel_machine("", u.release, ret);
}

static const struct topic accel = { "accel", check_accel, 0 };

const struct path_ops path_p2p = {
	.path = PST_PATH_P2P,
	.topic = &accel,
	.aligned = true,
	.wanted = p2p_wanted,
	.why = p2p_why,
	.proven = p2p_proven,
	.file_begin = p2p_file_begin,
	.file_end = p2p_file_end,
	.fit = p2p_fit,
	.hit = p2p_hit,
	.miss = p2p_miss,
};
