/* SPDX-License-Identifier: MIT */
#include "core/queue/req.h"
#include "core/sched/disks.h"
#include "core/sched/job_size.h"
#include "core/sched/share.h"
#include "core/ways/path.h"
#include "core/ways/way.h"

/* Return the disk that the request will probably read.  Return DISK_NONE for a write, or if the
 * page cache held the bytes of the file's latest reads. */
static unsigned disk_read_by(const struct req *r)
{
	const struct path_ops *ops = path_ops_of(req_plan(r)->hop[0]);
	const struct file *f = req_file(r);

	if (likely(f->disk == DISK_NONE) || r->io.op == PST_OP_WRITE)
		return DISK_NONE;
	return ops->now && ops->now(f) ? DISK_NONE : f->disk;
}

bool disk_is_busy(const struct req *r)
{
	const struct share *s = req_engine(r)->share;
	const struct engine *e = s->engine;
	unsigned disk = disk_read_by(r);

	return unlikely(disk != DISK_NONE) && e->disks[disk].bytes >= DISK_BYTES &&
	       s->disk_bytes[disk] * e->pool.nr_busy >= DISK_BYTES && !req_is_ready(r);
}

void disk_begin(struct job *j)
{
	struct engine *e = j->engine;

	j->disk = (uint8_t)disk_read_by(j->req);
	if (likely(j->disk == DISK_NONE))
		return;
	j->disk_len = j->len;
	j->disk_since = about_now_ns();
	e->disks[j->disk].bytes += j->disk_len;
	req_engine(j->req)->share->disk_bytes[j->disk] += j->disk_len;
	list_add_tail(&e->disks[j->disk].jobs, &j->of_disk);
}

void disk_end(struct job *j)
{
	if (likely(j->disk == DISK_NONE))
		return;
	j->engine->disks[j->disk].bytes -= j->disk_len;
	req_engine(j->req)->share->disk_bytes[j->disk] -= j->disk_len;
	list_del(&j->of_disk);
	j->disk = DISK_NONE;
}

void disks_look_soon(struct engine *e)
{
	e->look = MIN(e->look, about_now_ns() + DISK_OLD_NS / 4);
}

void disk_park(struct req *r)
{
	struct share *s = req_engine(r)->share;

	list_move_tail(&s->parked[req_file(r)->disk], &req_engine(r)->active);
	if (list_empty(&s->parking))
		list_add_tail(&s->engine->parking, &s->parking);
	disks_look_soon(s->engine);
}

/* Stop counting bytes of jobs that hang, so that other jobs need not wait for them. */
static void disk_forget_old(struct engine *e, unsigned disk)
{
	struct list *jobs = &e->disks[disk].jobs;
	uint64_t now = about_now_ns();

	while (!list_empty(jobs)) {
		struct job *j = list_first(jobs, struct job, of_disk);

		if (now - j->disk_since < DISK_OLD_NS)
			break;
		disk_end(j);
	}
}

/* Return the queue's first parked request whose disk may read more, or NULL. */
static struct req *first_parked(const struct share *s, bool *ret_any)
{
	*ret_any = false;
	for (unsigned i = 0; i < DISKS; i++) {
		struct req *r = req_by_link(s->parked[i].next, active);

		if (list_empty(&s->parked[i]))
			continue;
		*ret_any = true;
		if (!disk_is_busy(r))
			return r;
	}
	return NULL;
}

bool disks_unpark(struct engine *e)
{
	struct list *el, *n;

	for (unsigned i = 0; i < DISKS; i++)
		if (e->disks[i].bytes >= DISK_BYTES)
			disk_forget_old(e, i);
	list_for_each_safe (el, n, &e->parking) {
		struct share *s = list_entry(el, struct share, parking);
		bool any;
		struct req *r = first_parked(s, &any);

		if (r) {
			list_move_tail(&e->active, &req_engine(r)->active);
			list_move_tail(&e->parking, &s->parking);
			return true;
		}
		if (!any)
			list_del(&s->parking);
	}
	return false;
}
