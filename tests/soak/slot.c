/* SPDX-License-Identifier: MIT */
/* One request: a random layout, and the checks of its completion. */
#include <stdarg.h>

#include "actor.h"

/* ----------------------------------------------------------------- pieces */

/* A piece of a slot's request; pos: bytes of the request before this piece. */
struct piece {
	unsigned seg;
	uint64_t rep, file_off, mem_off, len, pos;
};

static bool piece_at(const struct slot *sl, struct piece *p)
{
	const struct pst_seg *s = &sl->segs[p->seg];

	if (p->seg >= NR_SEGS || !s->len)
		return false;
	p->file_off = s->file_off + p->rep * s->file_stride;
	p->mem_off = s->mem_off + p->rep * s->mem_stride;
	p->len = s->len;
	return true;
}

static void piece_next(const struct slot *sl, struct piece *p)
{
	p->pos += p->len;
	if (++p->rep >= sl->segs[p->seg].count) {
		p->seg++;
		p->rep = 0;
	}
}

#define for_each_piece(sl, p) for (struct piece p = { 0 }; piece_at(sl, &(p)); piece_next(sl, &(p)))

/* Return the bytes of a piece in the slot's copy, a->buf. */
static uint8_t *piece_bytes(const struct actor *a, const struct slot *sl, const struct piece *p)
{
	return a->buf + (p->mem_off - slot_off(a, sl));
}

static uint64_t min_u64(uint64_t x, uint64_t y)
{
	return x < y ? x : y;
}

/* -------------------------------------------------------- what may go wrong */

static bool is_fault(int err)
{
	static const int errs[] = {
		EIO, ENOSPC, ENOMEM, EMFILE, EAGAIN, EINTR, EINVAL, EOPNOTSUPP
	};

	for (unsigned i = 0; i < RIG_NR(errs); i++)
		if (soak_faults && err == -errs[i])
			return true;
	return false;
}

static bool may_end_with(const struct slot *sl, int err)
{
	if (is_fault(err))
		return true;
	switch (-err) {
	case ECANCELED:
		return sl->cancelled;
	case ETIMEDOUT:
		return sl->io.deadline_ns != 0;
	case EOPNOTSUPP:
		return (sl->io.flags & PST_IO_STRICT) || sl->io.policy;
	case EFAULT:
		return sl->shrinks;
	case EIO:
		/* Buffered writes of the neighbour may conflict with O_DIRECT: see
		 * src/file/writers.c. */
		return sl->io.op == PST_OP_SYNC;
	default:
		return false;
	}
}

void must(const struct actor *a, int r, const char *what)
{
	if (r < 0 && !is_fault(r))
		soak_fail("actor %u: %s gave %d: %s", a->plan.nr, what, r, pst_error_text());
}

#define slot_fail(a, sl, d, ...) slot_fail_(a, sl, d, __LINE__, __VA_ARGS__)
static _Noreturn void __attribute__((format(printf, 5, 6)))
slot_fail_(const struct actor *a, const struct slot *sl, const struct pst_done *d, int line,
	   const char *fmt, ...)
{
	char why[200], text[400] = "not completed";
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	if (d)
		(void)pst_done_text(d, text, sizeof(text));
	printf("# request: op %u of %s, flags 0x%x, policy 0x%" PRIx64
	       ", bank kind %d of slot %u\n",
	       sl->io.op, sl->ground->path, sl->io.flags, sl->io.policy,
	       sl->bank ? (int)sl->bank->kind : -1, (unsigned)(sl - a->slots));
	for_each_piece(sl, p) printf("#   file %" PRIu64 " memory %" PRIu64 " length %" PRIu64 "\n",
				     p.file_off, p.mem_off, p.len);
	soak_fail("actor %u, line %d: %s; %s", a->plan.nr, line, why, text);
}

/* --------------------------------------------------------- memory of a slot */

/* Return true if the slot's memory may be read: the handle is the same, and its pages cannot
 * vanish. */
static bool slot_visible(const struct slot *sl)
{
	return sl->bank && sl->life == sl->bank->life && !sl->shrinks;
}

static bool slot_load(struct actor *a, const struct slot *sl)
{
	int r = pst_mem_copy_out(sl->bank->mem, slot_off(a, sl), a->buf, SLOT_LEN);

	must(a, r, "pst_mem_copy_out()");
	return r == 0;
}

static uint64_t buf_sum(const struct actor *a)
{
	uint64_t sum = SLOT_LEN, word;

	for (unsigned i = 0; i < SLOT_LEN; i += 8) {
		memcpy(&word, a->buf + i, 8);
		sum = (sum ^ word) * UINT64_C(0x9e3779b97f4a7c15);
		sum ^= sum >> 29;
	}
	return sum | 1;
}

void slot_check_sum(struct actor *a, struct slot *sl)
{
	if (sl->sum && slot_visible(sl) && slot_load(a, sl) && buf_sum(a) != sl->sum)
		slot_fail(a, sl, NULL, "its memory changed after it was over and quiet");
	sl->sum = 0;
}

static void check_canaries(struct actor *a, const struct slot *sl, const struct pst_done *d)
{
	uint64_t at = 0;

	for_each_piece(sl, p) memset(piece_bytes(a, sl, &p), CANARY, p.len);
	if (a->buf[0] == CANARY && !memcmp(a->buf, a->buf + 1, SLOT_LEN - 1))
		return;
	while (a->buf[at] == CANARY)
		at++;
	slot_fail(a, sl, d, "byte %" PRIu64 " of its slot is in no piece, and was written", at);
}

/* Check the first d->prefix bytes of a read; a short read must have met the file's end. */
static void check_read(struct actor *a, const struct slot *sl, const struct pst_done *d)
{
	uint32_t crc = 0;

	for_each_piece(sl, p)
	{
		uint64_t got = d->prefix > p.pos ? min_u64(d->prefix - p.pos, p.len) : 0, bad;

		if (d->flags & PST_DONE_CRC32C)
			crc = rig_crc32c(crc, piece_bytes(a, sl, &p), got);
		if (d->res >= 0 && d->prefix >= p.pos && got < p.len) {
			if (!ground_may_end(sl->ground, p.file_off + got, sl->past->end, got > 0))
				slot_fail(a, sl, d, "the file did not end at %" PRIu64,
					  p.file_off + got);
		}
		bad = ground_differs(sl->ground, p.file_off, got, piece_bytes(a, sl, &p),
				     sl->past->oldest + p.pos);
		if (bad != got)
			slot_fail(a, sl, d, "a wrong byte, %02x, at %" PRIu64 " of the file",
				  piece_bytes(a, sl, &p)[bad], p.file_off + bad);
		if (got < p.len)
			break;
	}
	if ((d->flags & PST_DONE_CRC32C) && d->res >= 0 && d->crc32c != crc)
		slot_fail(a, sl, d, "the checksum is %08x, not %08x", d->crc32c, crc);
}

/* Check that a write did not change its memory. */
static void check_write(struct actor *a, const struct slot *sl, const struct pst_done *d)
{
	uint32_t crc = 0;

	if (buf_sum(a) != sl->filled)
		slot_fail(a, sl, d, "a write changed its memory");

	for_each_piece(sl, p) crc = rig_crc32c(crc, piece_bytes(a, sl, &p), p.len);
	if ((d->flags & PST_DONE_CRC32C) && d->res >= 0 && d->crc32c != crc)
		slot_fail(a, sl, d, "the checksum is %08x, not %08x", d->crc32c, crc);
}

/* ---------------------------------------------------------------- requests */

/* Lay out pieces in ascending order in file and memory, with random gaps in both. */
static void lay_out(struct actor *a, struct slot *sl, bool write)
{
	struct dice *d = &a->dice;
	uint64_t align = one_in(d, 2) ? 4096 : 1;
	uint64_t mem = slot_off(a, sl) + below(d, 8192) / align * align;
	uint64_t mem_end = slot_off(a, sl) + SLOT_LEN;
	uint64_t file = below(d, GROUND_LEN) / align * align;
	uint64_t file_end = write ? GROUND_LEN : GROUND_LEN + 8192;
	unsigned nr = one_in(d, 2) ? 1 : 1 + (unsigned)below(d, NR_SEGS);

	for (unsigned i = 0; i < nr; i++) {
		uint64_t count = one_in(d, 2) ? 1 : 1 + below(d, REPS_MAX);
		uint64_t len = any_size(d, PIECE_BITS - (count > 1 ? 3 : 0));
		uint64_t file_gap = one_in(d, 2) ? 0 : any_size(d, 14) / align * align;
		uint64_t mem_gap = one_in(d, 2) ? 0 : any_size(d, 13) / align * align;
		struct pst_seg *s = &sl->segs[i];

		len = (len + align - 1) / align * align;
		if (mem + count * (len + mem_gap) > mem_end ||
		    file + count * (len + file_gap) > file_end)
			break;
		*s = (struct pst_seg){ file, mem, len, len + file_gap, len + mem_gap, count };
		if (!write && one_in(d, 8))
			s->file_stride = below(d, len); /* overlapping pieces of the file */
		mem += count * (len + mem_gap);
		file += count * (len + file_gap);
		sl->total += count * len;
	}
	if (!sl->total) { /* no piece fitted */
		sl->segs[0] = (struct pst_seg){ 4096, slot_off(a, sl) + 512, 777, 0, 0, 1 };
		sl->total = 777;
	}
}

/* Claim the file's range from the first to the last byte of a write. */
static bool slot_claim(struct slot *sl)
{
	uint64_t start = UINT64_MAX, end = 0;

	for_each_piece(sl, p)
	{
		start = min_u64(start, p.file_off);
		end = p.file_off + p.len > end ? p.file_off + p.len : end;
	}
	sl->claim = ground_claim(sl->ground, start, end - start);
	return sl->claim >= 0;
}

static bool slot_fill(struct actor *a, struct slot *sl, bool write)
{
	int r;

	memset(a->buf, CANARY, SLOT_LEN);
	for_each_piece(sl, p)
	{
		if (write)
			ground_begin(sl->ground, p.file_off, p.len, piece_bytes(a, sl, &p));
		else
			sl->past->end = ground_oldest(sl->ground, p.file_off, p.len,
						      sl->past->oldest + p.pos);
	}
	sl->filled = buf_sum(a);
	if (!slot_visible(sl))
		return true;
	r = pst_mem_copy_in(sl->bank->mem, slot_off(a, sl), a->buf, SLOT_LEN);
	must(a, r, "pst_mem_copy_in()");
	return r == 0;
}

static void choose_how(struct actor *a, struct slot *sl)
{
	static const uint64_t policies[] = {
		PST_POLICY1(PST_PATH_BUFFERED),
		PST_POLICY1(PST_PATH_DIRECT),
		PST_POLICY1(PST_PATH_CACHED),
		PST_POLICY2(PST_PATH_DIRECT, PST_PATH_BUFFERED),
		PST_POLICY3(PST_PATH_CACHED, PST_PATH_DIRECT, PST_PATH_BUFFERED),
		PST_POLICY2(PST_PATH_STAGED, PST_PATH_DIRECT),
		PST_POLICY2(PST_PATH_WINDOW, PST_PATH_STAGED),
		PST_POLICY1(PST_PATH_PAGECACHE),
		PST_POLICY2(PST_PATH_PAGECACHE, PST_PATH_STAGED),
	};
	struct dice *d = &a->dice;

	if (sl->io.op == PST_OP_SYNC) {
		sl->io.flags = one_in(d, 2) ? PST_IO_DATASYNC : 0;
	} else {
		sl->io.flags = (one_in(d, 3) ? PST_IO_CRC32C : 0) |
			       (one_in(d, 12) ? PST_IO_STRICT : 0);
		if (one_in(d, 3))
			sl->io.policy = policies[below(d, RIG_NR(policies))];
	}
	if (one_in(d, 8))
		sl->io.deadline_ns = one_in(d, 8) ? 1 : t_now() + any_size(d, 22);
}

/* Prepare a read into memory that was granted for reading only: it must be refused. */
static void refused(struct actor *a, struct slot *sl)
{
	int r;

	sl->io.op = PST_OP_READ;
	sl->io.segs = sl->segs;
	sl->io.nr_segs = 1;
	r = pst_queue_prep(a->q, &sl->io);
	if (r == 0)
		slot_fail(a, sl, NULL, "it was taken, into memory that is for reading");
	if (r != -EACCES)
		must(a, r, "pst_queue_prep()");
}

void slot_prepare(struct actor *a, struct slot *sl)
{
	struct dice *d = &a->dice;
	unsigned i = (unsigned)below(d, a->plan.nr_grounds);
	bool sync = one_in(d, 16), write;
	int r;

	slot_check_sum(a, sl);
	*sl = (struct slot){
		.serial = ++a->serial, .claim = -1, .past = sl->past, .since = t_now()
	};
	sl->ground = &a->plan.grounds[i];
	if (!sync)
		sl->bank = &a->banks[below(d, NR_BANKS)];
	/* A write needs known bytes: those of a bank that shrinks may vanish. */
	write = !sync && sl->ground->kind == GROUND_LIVE && sl->bank->kind != BANK_SHRINKS &&
		one_in(d, 2);
	sl->io.op = sync ? PST_OP_SYNC : write ? PST_OP_WRITE : PST_OP_READ;
	sl->io.file = a->files[i];
	sl->io.user_data = (uint64_t)(sl - a->slots) | sl->serial << 8;
	choose_how(a, sl);
	if (!sync) {
		sl->life = sl->bank->life;
		sl->shrinks = sl->bank->kind == BANK_SHRINKS;
		sl->io.mem = sl->bank->mem;
		lay_out(a, sl, write);
		if (sl->bank->read_only) {
			refused(a, sl);
			return;
		}
		if (write && !slot_claim(sl))
			return;
		if (!slot_fill(a, sl, write))
			goto undo;
		sl->io.segs = sl->segs;
		for (sl->io.nr_segs = 1; sl->io.nr_segs < NR_SEGS; sl->io.nr_segs++)
			if (!sl->segs[sl->io.nr_segs].len)
				break;
	}
	r = pst_queue_prep(a->q, &sl->io);
	if (r == 0) {
		sl->state = SLOT_FLYING;
		a->flying++;
		return;
	}
	if (r != -EAGAIN && r != -EBUSY)
		must(a, r, "pst_queue_prep()");
undo:
	if (sl->claim >= 0)
		ground_release(sl->ground, sl->claim);
}

/* Free a slot whose request is completed and quiet, and check its memory. */
static void slot_quiet(struct actor *a, struct slot *sl, const struct pst_done *d)
{
	sl->state = SLOT_FREE;
	if (sl->claim >= 0)
		ground_release(sl->ground, sl->claim);
	if (!slot_visible(sl) || !slot_load(a, sl))
		return;
	if (d && sl->io.op == PST_OP_READ)
		check_read(a, sl, d);
	else if (d)
		check_write(a, sl, d);
	sl->sum = buf_sum(a);
	check_canaries(a, sl, d);
}

void slot_done(struct actor *a, const struct pst_done *d)
{
	struct slot *sl = &a->slots[d->user_data & 0xff];
	char text[400];

	if ((d->user_data & 0xff) >= NR_SLOTS || sl->state != SLOT_FLYING ||
	    sl->serial != d->user_data >> 8)
		soak_fail("actor %u: a completion that nobody waits for: %s", a->plan.nr,
			  pst_done_text(d, text, sizeof(text)));
	a->flying--;
	atomic_fetch_add(&a->requests, 1);
	if (d->op != sl->io.op || d->prefix > sl->total ||
	    (d->res >= 0 && (d->flags & PST_DONE_BUSY)))
		slot_fail(a, sl, d, "not what was asked for");
	if (d->res < 0 && !may_end_with(sl, (int)d->res))
		slot_fail(a, sl, d, "a failure without a cause");
	if (d->res >= 0 && d->prefix != (uint64_t)d->res)
		slot_fail(a, sl, d, "result and prefix differ");
	if (d->res >= 0 && sl->io.op != PST_OP_READ && (uint64_t)d->res != sl->total)
		slot_fail(a, sl, d, "a short write or sync");
	if (sl->io.op == PST_OP_WRITE)
		for_each_piece(sl, p) if (d->prefix >= p.pos)
			ground_end(sl->ground, p.file_off, min_u64(d->prefix - p.pos, p.len));
	if (d->flags & PST_DONE_BUSY)
		sl->state = SLOT_BUSY;
	else
		slot_quiet(a, sl, d);
}

static struct pst_stats stats(struct pst_queue *q)
{
	struct pst_stats st = { .sz = sizeof(st) };

	if (pst_stats(q, &st) < 0)
		soak_fail("pst_stats() failed: %s", pst_error_text());
	return st;
}

void slots_look(struct actor *a)
{
	bool quiet = stats(a->q).busy == 0, all_quiet = stats(NULL).busy == 0;

	for (unsigned i = 0; i < NR_SLOTS; i++) {
		struct slot *sl = &a->slots[i];

		if (sl->state == SLOT_BUSY && (sl->orphan ? all_quiet : quiet))
			slot_quiet(a, sl, NULL);
		if (sl->state == SLOT_FREE || t_now() - sl->since < soak_patience_ns())
			continue;
		soak_show_stacks();
		slot_fail(a, sl, NULL, "it never %s",
			  sl->state == SLOT_BUSY ? "becomes quiet" : "completes");
	}
}

void slots_init(struct actor *a)
{
	(void)rig_crc32c(0, "", 0); /* builds the table in the first call, before threads do */
	for (unsigned i = 0; i < NR_SLOTS; i++)
		a->slots[i].past = malloc(sizeof(struct ground_past) + SLOT_LEN * sizeof(uint16_t));
}

void slots_done(struct actor *a)
{
	for (unsigned i = 0; i < NR_SLOTS; i++)
		free(a->slots[i].past);
}
