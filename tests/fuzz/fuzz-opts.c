/* SPDX-License-Identifier: MIT */
/*
 * Arbitrary bytes as options and requests.  The input is a list of steps: one byte selects a
 * call, the following bytes are its structures.  Pointers are replaced by valid ones, and sizes
 * and counts that would take too long are bounded; all other fields come from the input.
 *
 * A refused call must return an errno and set a sentence, every accepted request must complete
 * once, and no completion may report more bytes than requested.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <penstock.h>

#include "t.h"

#define MEM_LEN (64u << 10)
#define FILE_LEN (48u << 10)
#define STEPS_MAX 48u
#define DEPTH 8u
#define SEGS 8u
#define COUNT_MAX 64u
/* lengths and counts from here on are always refused, so they are not bounded */
#define BIG (UINT64_C(1) << 50)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

struct input {
	const uint8_t *at;
	size_t left;
};

/* Objects that live as long as the process. */
static struct {
	struct pst_queue *q[2];
	struct pst_mem *mem[4];
	struct pst_file *file[3];
	struct pst_grant grant;
	int fd;
	uint64_t addr[2]; /* addresses of memory to wrap */
} my;

/* State of one input. */
static struct {
	struct pst_seg *segs[STEPS_MAX];
	unsigned nr_segs;
	unsigned prepared[2], inflight[2];
} run;

/* Abort unless @ok, also in release builds. */
static void must(bool ok)
{
	if (!ok)
		abort();
}

static void take(struct input *in, void *ret, size_t len)
{
	size_t n = len < in->left ? len : in->left;

	memset(ret, 0, len);
	if (n)
		memcpy(ret, in->at, n);
	in->at += n;
	in->left -= n;
}

static uint8_t take_byte(struct input *in)
{
	uint8_t b;

	take(in, &b, 1);
	return b;
}

/* Take a size-first structure.  Its sz may be wrong, but is never larger than the room. */
static void take_sized(struct input *in, void *ret, size_t len, size_t room)
{
	size_t *sz = ret;

	memset(ret, 0, room);
	take(in, ret, len);
	if (*sz > room)
		*sz = len;
	if (*sz > len)
		take(in, (char *)ret + len, *sz - len);
}

/* Check that a failed call has set a sentence, and return its result. */
static int checked(int r)
{
	must(r >= 0 || (r > -4096 && pst_error_text()[0]));
	return r;
}

/* -------------------------------------------------------------- structures */

static void step_queue(struct input *in)
{
	union {
		struct pst_queue_opts o;
		char room[64];
	} u;
	struct pst_queue *q = NULL;

	take_sized(in, &u, sizeof(u.o), sizeof(u));
	if (u.o.depth > 64 && u.o.depth <= 4096)
		u.o.depth = 1 + u.o.depth % 64;
	if (checked(pst_queue_new(&u.o, &q)) < 0)
		must(!q);
	pst_queue_free(q);
}

static void look_at(struct pst_mem *m)
{
	struct pst_mem_info info = { .sz = sizeof(info) };

	must(pst_mem_info(m, &info) == 0);
	must(info.len && info.size && info.addr >= info.base);
	must(info.addr - info.base + info.len <= info.size);
	must(pst_mem_drain(m, 0) == 0);
	must(!pst_mem_free(m));
}

static void step_alloc(struct input *in)
{
	static const char *const names[] = { "host", "soft", "soft:0", "soft:1", "cuda:9", NULL };
	union {
		struct pst_mem_opts o;
		char room[64];
	} u;
	uint8_t which = take_byte(in);
	struct pst_mem *m = NULL;
	char name[24] = "";
	uint64_t len;

	take(in, &len, sizeof(len));
	if (len > MEM_LEN && len < BIG)
		len %= MEM_LEN;
	if (which & 64)
		take(in, name, sizeof(name) - 1);
	take_sized(in, &u, sizeof(u.o), sizeof(u));
	if (checked(pst_mem_alloc(which & 64 ? name : names[which % 6], len,
				  which & 128 ? NULL : &u.o, &m)) < 0)
		must(!m);
	else
		look_at(m);
}

static void step_wrap(struct input *in)
{
	union {
		struct pst_mem_opts o;
		char room[64];
	} u;
	uint8_t which = take_byte(in);
	struct pst_mem *m = NULL;
	uint64_t addr, len;

	take(in, &addr, sizeof(addr));
	take(in, &len, sizeof(len));
	if (which & 3)
		addr = my.addr[which & 1] + addr % (MEM_LEN + 4096);
	take_sized(in, &u, sizeof(u.o), sizeof(u));
	if (checked(pst_mem_wrap(addr, len, which & 128 ? NULL : &u.o, &m)) < 0)
		must(!m);
	else
		look_at(m);
}

static void step_grant(struct input *in)
{
	struct pst_grant g = my.grant, bits;
	struct pst_mem *m = NULL;

	take(in, &bits, sizeof(bits));
	for (size_t i = sizeof(g.sz); i < sizeof(g); i++)
		((uint8_t *)&g)[i] ^= ((uint8_t *)&bits)[i];
	g.fd = bits.sz & 1 ? -1 : my.grant.fd;
	if (bits.sz & 2)
		g.sz = bits.sz % (sizeof(g) + 1);
	if (checked(pst_mem_import(&g, &m)) < 0)
		must(!m);
	else
		look_at(m);
}

static void step_file(struct input *in)
{
	union {
		struct pst_file_opts o;
		char room[64];
	} u;
	struct pst_file_info info = { .sz = sizeof(info) };
	struct pst_file *f = NULL;
	uint8_t which = take_byte(in);
	char path[32];
	uint32_t flags;
	int r;

	take(in, &flags, sizeof(flags));
	take_sized(in, &u, sizeof(u.o), sizeof(u));
	u.o.mode |= 0600;
	flags &= ~PST_FILE_TRUNC;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", my.fd);
	r = which & 1 ? pst_file_open(path, flags, which & 2 ? NULL : &u.o, &f)
		      : pst_file_wrap(which & 2 ? my.fd : (int)which, flags, NULL, &f);
	if (checked(r) < 0) {
		must(!f);
		return;
	}
	must(pst_file_info(f, &info) == 0);
	must(!pst_file_close(f));
}

static void step_words(struct input *in)
{
	uint8_t which = take_byte(in);
	struct pst_done d;
	char text[200], name[40] = "";
	size_t len = 1 + which % sizeof(text);

	take(in, &d, sizeof(d));
	memset(text, 'x', sizeof(text));
	must(pst_done_text(&d, text, len) == text && strlen(text) < len);
	must(pst_why_text(d.why, d.detail, text, len) == text && strlen(text) < len);
	must(pst_path_name(d.paths)[0] && pst_why_name(d.why)[0]);
	take(in, name, sizeof(name) - 1);
	{
		struct pst_device dev = { .sz = sizeof(dev) };

		if (checked(pst_device_find(name, &dev)) == 0)
			must(dev.kind && dev.name[0]);
		memset(text, 'x', sizeof(text));
		if (checked(pst_device_text(name, text, len)) >= 0)
			must(strlen(text) < len);
	}
}

static void step_facts(struct input *in)
{
	union {
		struct pst_stats st;
		struct pst_path_info info;
		struct pst_mem_info mi;
		char room[1024];
	} u;
	uint8_t which = take_byte(in);
	uint32_t op, path;

	take(in, &op, sizeof(op));
	take(in, &path, sizeof(path));
	take_sized(in, &u, sizeof(size_t), sizeof(u));
	(void)checked(pst_stats(which & 1 ? NULL : my.q[which >> 1 & 1], &u.st));
	(void)checked(pst_mem_info(my.mem[which & 3], &u.mi));
	if (checked(pst_path_check(my.file[which % 3], my.mem[which >> 2 & 3],
				   which & 16 ? op : op % 4, which & 32 ? path : path % 16,
				   &u.info)) == 0 &&
	    u.info.sz == sizeof(u.info))
		must(u.info.state <= PST_STATE_PROVEN && u.info.why <= PST_WHY_MAX);
}

/* ---------------------------------------------------------------- requests */

/* Bound a segment: its count, so that it ends soon, and a write to the length of the file. */
static void bound_seg(struct pst_seg *s, bool write)
{
	if (s->count > COUNT_MAX && s->count < BIG)
		s->count %= COUNT_MAX;
	if (!write)
		return;
	s->file_off %= FILE_LEN;
	s->file_stride %= 4096;
}

static void take_segs(struct input *in, struct pst_io *io, uint8_t which)
{
	uint64_t nr = 1 + which % SEGS;
	struct pst_seg *v = malloc(nr * sizeof(*v));

	must(v);
	for (uint64_t i = 0; i < nr; i++) {
		take(in, &v[i], sizeof(v[i]));
		if (!(which & 32)) { /* offsets in range, so that most requests are accepted */
			v[i].mem_off %= MEM_LEN / 2;
			v[i].len %= 4096;
			v[i].mem_stride %= 512;
			v[i].file_off %= 2 * FILE_LEN;
			v[i].file_stride %= 2 * FILE_LEN;
		}
		bound_seg(&v[i], io->op == PST_OP_WRITE);
	}
	run.segs[run.nr_segs++] = v;
	io->segs = v;
	/* The caller must not claim more segments than there are. */
	if (io->nr_segs <= PST_SEGS_MAX && (io->nr_segs > nr || (which & 64)))
		io->nr_segs = nr;
}

static void step_prep(struct input *in)
{
	uint8_t how = take_byte(in), which = take_byte(in), zero = take_byte(in);
	unsigned k = how & 1;
	struct pst_io io;
	int r;

	take(in, &io, sizeof(io));
	if (zero & 1)
		io.op = 1 + io.op % 3;
	if (zero & 2)
		io.flags &= PST_IO_STRICT | PST_IO_CRC32C | PST_IO_DATASYNC;
	if (zero & 4)
		io.reserved[0] = io.reserved[1] = 0;
	if (zero & 8)
		io.policy = 0;
	if (zero & 16) {
		io.mem_off %= MEM_LEN;
		io.len = 1 + io.len % (MEM_LEN - io.mem_off);
		io.file_off %= 2 * FILE_LEN;
	}
	if (zero & 32)
		io.deadline_ns = 0;
	else if (io.deadline_ns != PST_NO_DEADLINE)
		io.deadline_ns = t_now() + io.deadline_ns % 2000000;
	if (io.op == PST_OP_WRITE)
		io.file_off %= FILE_LEN;
	io.file = (how & 6) == 6 ? NULL : my.file[how >> 1 & 3];
	io.mem = how & 128 ? NULL : my.mem[how >> 3 & 3];
	io.stream = NULL;
	io.segs = NULL;
	if (which & 16)
		take_segs(in, &io, which);
	else if (zero & 64)
		io.nr_segs = 0;
	r = checked(pst_queue_prep(my.q[k], &io));
	run.prepared[k] += r == 0;
}

static void submit(unsigned k)
{
	int r = checked(pst_queue_submit(my.q[k]));

	must(r >= 0 && (unsigned)r == run.prepared[k]);
	run.prepared[k] -= (unsigned)r;
	run.inflight[k] += (unsigned)r;
}

static void reap(unsigned k, unsigned min, unsigned max, uint64_t deadline_ns)
{
	struct pst_done d[DEPTH];
	int r = checked(pst_queue_reap(my.q[k], d, min, max, deadline_ns));

	if (!max || min > max) {
		must(r == -EINVAL);
		return;
	}
	must(r >= 0 && (unsigned)r <= max && (unsigned)r <= run.inflight[k]);
	for (int i = 0; i < r; i++) {
		must(d[i].op >= PST_OP_READ && d[i].op <= PST_OP_SYNC);
		must(d[i].why <= PST_WHY_MAX && !(d[i].reserved[0] | d[i].reserved[1]));
		must(d[i].res < 0 || d[i].prefix == (uint64_t)d[i].res);
		must(!(d[i].flags &
		       ~(PST_DONE_BUSY | PST_DONE_CRC32C | PST_DONE_PINNED | PST_DONE_PROOF)));
		must(d[i].res < 0 || !(d[i].flags & PST_DONE_BUSY));
	}
	run.inflight[k] -= (unsigned)r;
}

static void step_cancel(struct input *in)
{
	unsigned k = take_byte(in) & 1;
	uint64_t user_data;
	int r, submitted;

	take(in, &user_data, sizeof(user_data));
	r = checked(pst_queue_cancel(my.q[k], user_data));
	must(r == -ENOENT || (r > 0 && (unsigned)r <= run.prepared[k] + run.inflight[k]));
	if (r < 0)
		return;
	/* Canceled requests that were only prepared complete without a submit. */
	submitted = checked(pst_queue_submit(my.q[k]));
	must(submitted >= 0 && (unsigned)submitted <= run.prepared[k] &&
	     run.prepared[k] - (unsigned)submitted <= (unsigned)r);
	run.inflight[k] += run.prepared[k];
	run.prepared[k] = 0;
}

static void step(struct input *in)
{
	uint8_t b = take_byte(in);

	switch (b % 12) {
	case 0:
		step_queue(in);
		break;
	case 1:
		step_alloc(in);
		break;
	case 2:
		step_wrap(in);
		break;
	case 3:
		step_grant(in);
		break;
	case 4:
		step_file(in);
		break;
	case 5:
		step_words(in);
		break;
	case 6:
		step_facts(in);
		break;
	case 7:
		submit(b >> 7);
		break;
	case 8:
		reap(b >> 7, b >> 4 & 7, take_byte(in) % (DEPTH + 1), t_now() + 200000);
		break;
	case 9:
		step_cancel(in);
		break;
	default:
		step_prep(in);
		break;
	}
}

static void finish(unsigned k)
{
	struct pst_stats st = { .sz = sizeof(st) };
	uint64_t end = t_in_ms(20000);

	submit(k);
	while (run.inflight[k] && t_now() < end)
		reap(k, 1, DEPTH, end);
	must(!run.inflight[k]);
	must(pst_stats(my.q[k], &st) == 0 && !st.inflight);
}

/* ------------------------------------------------------------------ set up */

static void set_up(void)
{
	static const uint32_t backends[] = { PST_BACKEND_AUTO, PST_BACKEND_THREADS };
	const char *dir = getenv("PST_TEST_DIR");
	struct pst_mem_opts shared = { .sz = sizeof(shared), .flags = PST_MEM_SHARED };
	struct pst_mem_info info = { .sz = sizeof(info) };
	struct pst_grant ro = { .sz = sizeof(ro) };
	static char data[FILE_LEN];
	char path[300];

	for (unsigned i = 0; i < 2; i++) {
		struct pst_queue_opts o = { .sz = sizeof(o), .depth = DEPTH };

		o.backend = backends[i];
		must(pst_queue_new(&o, &my.q[i]) == 0);
	}
	must(pst_mem_alloc("host", MEM_LEN, &shared, &my.mem[0]) == 0);
	must(pst_mem_alloc("soft:0", MEM_LEN, NULL, &my.mem[1]) == 0);
	must(pst_mem_wrap((uintptr_t)malloc(MEM_LEN), MEM_LEN, NULL, &my.mem[2]) == 0);
	my.grant.sz = sizeof(my.grant);
	must(pst_mem_export(my.mem[1], 0, MEM_LEN, PST_RIGHT_READ | PST_RIGHT_WRITE, &my.grant) ==
	     0);
	must(pst_mem_export(my.mem[0], 0, MEM_LEN, PST_RIGHT_READ, &ro) == 0);
	must(pst_mem_import(&ro, &my.mem[3]) == 0);
	pst_grant_done(&ro);
	for (unsigned i = 0; i < 2; i++) {
		must(pst_mem_info(my.mem[i + 1], &info) == 0);
		my.addr[i] = info.addr;
	}

	/* One file on a disk, for O_DIRECT, and one in memory. */
	t_fill(data, 1, 0, sizeof(data));
	(void)snprintf(path, sizeof(path), "%s/pst-fuzz-XXXXXX", dir ? dir : "/tmp");
	my.fd = mkostemp(path, O_CLOEXEC);
	must(my.fd >= 0 && unlink(path) == 0);
	must(pwrite(my.fd, data, sizeof(data), 0) == sizeof(data));
	must(pst_file_wrap(my.fd, 0, NULL, &my.file[0]) == 0);
	must(pst_file_wrap(my.fd, PST_FILE_PLAIN, NULL, &my.file[1]) == 0);
	{
		int fd = memfd_create("pst-fuzz", MFD_CLOEXEC);

		must(fd >= 0 && pwrite(fd, data, sizeof(data), 0) == sizeof(data));
		must(pst_file_wrap(fd, PST_FILE_STABLE, NULL, &my.file[2]) == 0);
		(void)close(fd);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct input in = { data, len };

	if (!my.q[0])
		set_up();
	memset(&run, 0, sizeof(run));
	for (unsigned i = 0; i < STEPS_MAX && in.left; i++)
		step(&in);
	finish(0);
	finish(1);
	while (run.nr_segs)
		free(run.segs[--run.nr_segs]);
	return 0;
}
