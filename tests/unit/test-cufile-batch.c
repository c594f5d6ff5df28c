/* SPDX-License-Identifier: MIT */
/* Batches of cuFile: all or nothing, one result each, and what becomes of broken ones. */
#include "cufile_rig.h"

static struct cufile_file *cf;
static struct cufile_mem *m;
static struct cufile_batch *b;

static void ready(const char *text)
{
	begin(text);
	T_OK(cufile_open());
	T_OK(cufile_file_get(file, &cf));
	m = mem_new();
	T_OK(cufile_batch_get(&b));
}

static void over(void)
{
	T_EQ(cufile_batch_put(b), 0);
	T_EQ(within(do_mem_free, m), 0);
	cufile_file_put(cf);
	end();
}

struct start {
	struct cufile_batch *b;
	const struct cufile_io *v;
	unsigned nr;
};

static int64_t do_start(void *arg)
{
	struct start *s = arg;

	return cufile_batch_start(s->b, s->v, s->nr);
}

static int64_t start(struct cufile_batch *batch, const struct cufile_io *v, unsigned nr)
{
	struct start s = { batch, v, nr };

	return within(do_start, &s);
}

struct poll {
	struct cufile_batch *b;
	unsigned timeout_ms, max;
	struct cufile_done *ret;
};

static int64_t do_poll(void *arg)
{
	struct poll *p = arg;

	return cufile_batch_poll(p->b, p->timeout_ms, p->ret, p->max);
}

static int poll_it(struct cufile_batch *batch, unsigned timeout_ms, struct cufile_done *ret,
		   unsigned max)
{
	struct poll p = { batch, timeout_ms, max, ret };

	return (int)within(do_poll, &p);
}

/* Reads of 64 KiB, side by side. */
static void fill(struct cufile_io *v, unsigned nr)
{
	for (unsigned i = 0; i < nr; i++)
		v[i] = (struct cufile_io){ .file = cf,
					   .mem = m,
					   .mem_off = i * 65536,
					   .file_off = (nr - 1 - i) * 65536,
					   .len = 65536,
					   .flags = CUFILE_IO_SHARE };
}

/* All results, by index; how many there were. */
static unsigned drain(struct cufile_batch *batch, int64_t *res)
{
	uint64_t until = t_hang();
	struct cufile_done d[8];
	unsigned nr = 0;
	int n;

	while ((n = poll_it(batch, 100, d, 8)) > 0) {
		for (int i = 0; i < n; i++)
			res[d[i].idx] = d[i].res;
		nr += (unsigned)n;
		T_CHECK(t_now() < until);
	}
	T_EQ(n, 0);
	return nr;
}

static void many_at_once(void)
{
	struct cufile_io v[CUFILE_BATCH_MAX];
	int64_t res[CUFILE_BATCH_MAX];

	ready("");
	for (unsigned round = 0; round < 3; round++) {
		fill(v, CUFILE_BATCH_MAX);
		T_EQ(start(b, v, CUFILE_BATCH_MAX), 0);
		memset(v, 0xee, sizeof(v)); /* they were copied */
		memset(res, 0xff, sizeof(res));
		T_EQ(drain(b, res), CUFILE_BATCH_MAX);
		for (unsigned i = 0; i < CUFILE_BATCH_MAX; i++) {
			T_EQ(res[i], 65536);
			T_CHECK(mem_is(i * 65536, (31 - i) * 65536, 65536));
		}
	}
	T_EQ(poll_it(b, 100, NULL, 0), 0);
	over();
}

static void one_by_one(void)
{
	struct cufile_io v[4];
	struct cufile_done d;
	unsigned seen = 0;

	ready("");
	fill(v, 4);
	v[1].flags |= CUFILE_IO_WRITE;
	v[2].file_off = FILE_LEN - 4096;
	v[3].file_off = FILE_LEN;
	T_EQ(start(b, v, 4), 0);
	for (unsigned i = 0; i < 4; i++) {
		T_EQ(poll_it(b, 1000, &d, 1), 1);
		T_EQ(d.res, d.idx < 2 ? 65536 : d.idx == 2 ? 4096 : 0);
		seen |= 1u << d.idx;
	}
	T_EQ(seen, 15);
	T_EQ(poll_it(b, 0, &d, 1), 0);
	over();
}

static void set_up_once(void)
{
	struct cufile_batch *c, *d;

	ready("");
	c = b;
	T_EQ(cufile_batch_put(b), 0);
	T_OK(cufile_batch_get(&b));
	T_CHECK(b == c);
	T_OK(cufile_batch_get(&d));
	T_CHECK(d != b);
	T_EQ(cufile_batch_put(d), 0);
	if (x.set)
		T_EQ(state().batches, 2);
	over();
}

static void destroyed_with_the_driver(void)
{
	(void)setenv("PST_GDS", "exclusive", 1);
	ready("mode=p2pdma");
	NEED_STUB();
	T_EQ(cufile_batch_put(b), 0);
	T_EQ(within(do_mem_free, m), 0);
	cufile_file_put(cf);
	T_EQ(state().batches, 1);
	T_OK(cufile_close());
	T_EQ(state().batches, 0);
	end();
}

/* One that cannot be keeps the others back, and nothing of them is held. */
static void all_or_nothing(void)
{
	struct cufile_io v[4];
	uint64_t calls;

	ready("");
	fill(v, 4);
	calls = state().calls;
	T_EQ(start(b, v, 0), -EINVAL);
	T_EQ(start(b, v, CUFILE_BATCH_MAX + 1), -EINVAL);
	v[3].len = 0;
	T_EQ(start(b, v, 4), -EINVAL);
	fill(v, 4);
	v[2].file_off = 5;
	T_EQ(start(b, v, 4), -EINVAL);
	fill(v, 4);
	v[1].mem_off = MEM_LEN;
	T_EQ(start(b, v, 4), -EINVAL);
	fill(v, 4);
	v[3].flags = 0; /* wants its slice to itself */
	T_EQ(start(b, v, 4), -EAGAIN);
	if (x.set) {
		T_EQ(state().moving, 0);
		T_EQ(state().calls, calls + 1); /* registered the slice */
		fill(v, 4);
		x.set("fail=cuFileBatchIOSubmit:1:5040");
		T_EQ(start(b, v, 4), -EIO);
		T_EQ(state().moving, 0);
	}
	fill(v, 4);
	T_EQ(start(b, v, 4), 0);
	T_EQ(start(b, v, 4), -EINVAL); /* not before it is done */
	T_EQ(drain(b, (int64_t[4]){ 0 }), 4);
	over();
}

static void each_has_its_own_error(void)
{
	struct cufile_io v[4];
	int64_t res[4] = { 0 };
	unsigned failed = 0;

	ready("mode=p2pdma");
	NEED_STUB();
	fill(v, 4);
	x.set("fail=entry:2:28");
	T_EQ(start(b, v, 4), 0);
	T_EQ(drain(b, res), 4);
	for (unsigned i = 0; i < 4; i++)
		failed += res[i] == -ENOSPC;
	T_EQ(failed, 1);
	x.set("fail=entry:1:5030");
	T_EQ(start(b, v, 1), 0);
	T_EQ(drain(b, res), 1);
	T_EQ(res[0], -EIO);
	x.set("fail=none:1:1,lie=more");
	T_EQ(start(b, v, 4), 0);
	T_EQ(drain(b, res), 4);
	for (unsigned i = 0; i < 4; i++)
		T_EQ(res[i], -EIO);
	over();
}

/* Never more under way than what the library surely has room for: it would wait for ever. */
static void never_too_many(void)
{
	struct cufile_io v[CUFILE_BATCH_MAX];
	struct cufile_batch *c;
	int64_t res[CUFILE_BATCH_MAX];

	ready("mode=compat,slabs=32");
	T_OK(cufile_batch_get(&c));
	fill(v, CUFILE_BATCH_MAX);
	T_EQ(start(b, v, 20), 0);
	T_EQ(start(c, v, 13), -EAGAIN);
	T_CHECK(strstr(err_text(), "20 transfers"));
	T_EQ(start(c, v, 12), 0);
	T_EQ(drain(b, res), 20);
	T_EQ(drain(c, res), 12);
	T_EQ(cufile_batch_put(c), 0);
	over();
}

/* ------------------------------------------------------------------- broken */

/* What it holds is held for good. */
static void broken_ones_are_put_away(void)
{
	struct cufile_io v[4];
	struct cufile_done d[4];
	struct cufile_batch *c;

	ready("mode=p2pdma");
	NEED_STUB();
	fill(v, 4);
	x.set("fail=cuFileBatchIOGetStatus:1:5044");
	T_EQ(start(b, v, 4), 0);
	T_EQ(poll_it(b, 100, d, 4), -EIO);
	T_CHECK(strstr(err_text(), "broken"));
	T_EQ(poll_it(b, 100, d, 4), -EIO);
	T_EQ(start(b, v, 4), -EINVAL);
	T_EQ(cufile_batch_put(b), -EBUSY);
	T_CHECK(strstr(err_text(), "never seen done"));
	T_OK(cufile_batch_get(&c));
	T_CHECK(c != b);
	/* Its share of what may be under way is lost, too. */
	fill(v, 4);
	for (unsigned i = 0; i < 4; i++)
		v[i].mem_off += CUFILE_SLICE;
	T_EQ(start(c, v, 4), 0);
	T_EQ(drain(c, (int64_t[4]){ 0 }), 4);
	T_EQ(cufile_batch_put(c), 0);
	T_EQ(within(do_mem_free, m), -EBUSY);
	cufile_file_put(cf);
	T_EQ(state().files, 1);
	T_EQ(cufile_close(), -EBUSY);
	leave();
}

static void reported_twice(void)
{
	struct cufile_io v[4];
	struct cufile_done d[4];

	ready("mode=p2pdma");
	NEED_STUB();
	fill(v, 4);
	x.set("lie=twice");
	T_EQ(start(b, v, 4), 0);
	T_EQ(poll_it(b, 100, d, 4), 1); /* the first of them was good */
	T_EQ(poll_it(b, 100, d, 4), -EIO);
	T_EQ(cufile_batch_put(b), -EBUSY);
	leave();
}

static void given_back_too_early(void)
{
	struct cufile_io v[4];
	struct cufile_done d[4];

	ready("mode=p2pdma,stuck=1");
	NEED_STUB();
	fill(v, 4);
	T_EQ(start(b, v, 4), 0);
	T_EQ(poll_it(b, 0, d, 4), 0);
	T_EQ(cufile_batch_put(b), -EBUSY);
	T_EQ(within(do_mem_free, m), -EBUSY);
	leave();
}

static void a_start_that_is_not_sure(void)
{
	struct cufile_io v[4];

	ready("mode=p2pdma");
	NEED_STUB();
	fill(v, 4);
	x.set("fail=cuFileBatchIOSubmit:1:5035");
	T_EQ(start(b, v, 4), -EIO);
	T_CHECK(strstr(err_text(), "not known"));
	T_EQ(start(b, v, 4), -EINVAL);
	T_EQ(cufile_batch_put(b), -EBUSY);
	T_EQ(within(do_mem_free, m), -EBUSY);
	leave();
}

/* ------------------------------------------------------------------- hangs */

static void *start_thread(void *arg)
{
	struct cufile_io v[4];

	(void)arg;
	fill(v, 4);
	return (void *)(intptr_t)start(b, v, 4);
}

static void *poll_thread(void *arg)
{
	struct cufile_done d[4];

	(void)arg;
	return (void *)(intptr_t)poll_it(b, 1000, d, 4);
}

static void *get_thread(void *arg)
{
	return (void *)(intptr_t)cufile_batch_get(arg);
}

/* Others go on meanwhile. */
static void others_go_on(void)
{
	struct cufile_batch *c;
	struct cufile_io v[4];

	T_OK(cufile_batch_get(&c));
	fill(v, 4);
	for (unsigned i = 0; i < 4; i++)
		v[i].mem_off += CUFILE_SLICE;
	T_EQ(start(c, v, 4), 0);
	T_EQ(drain(c, (int64_t[4]){ 0 }), 4);
	T_EQ(cufile_batch_put(c), 0);
	T_EQ(io(cf, m, CUFILE_SLICE, 0, 65536, 0), 65536);
	T_EQ(cufile_close(), -EBUSY);
}

static void a_start_hangs(void)
{
	struct hung h;

	ready("mode=nvfs");
	NEED_STUB();
	x.set("mode=p2pdma,hang=cuFileBatchIOSubmit:1");
	h = hang(start_thread, NULL);
	others_go_on();
	T_EQ(within(do_mem_free, m), -EBUSY);
	T_EQ((intptr_t)unhang(h), 0);
	T_EQ(drain(b, (int64_t[4]){ 0 }), 4);
	over();
}

/* Given up before any entry was ready: the next who wants a batch gets another. */
static void a_start_is_given_up(void)
{
	struct cufile_batch *c;
	struct hung h;

	ready("mode=p2pdma,hang=cuFileBufRegister:1");
	NEED_STUB();
	h = hang(start_thread, NULL);
	T_EQ(cufile_batch_put(b), -EBUSY);
	T_OK(cufile_batch_get(&c));
	T_CHECK(c != b);
	others_go_on();
	T_EQ((intptr_t)unhang(h), 0);
	T_EQ(cufile_batch_put(c), 0);
	T_EQ(within(do_mem_free, m), -EBUSY);
	leave();
}

static void a_poll_hangs(void)
{
	struct cufile_io v[4];
	struct hung h;

	ready("mode=p2pdma");
	NEED_STUB();
	fill(v, 4);
	T_EQ(start(b, v, 4), 0);
	x.set("hang=cuFileBatchIOGetStatus:1");
	h = hang(poll_thread, NULL);
	others_go_on();
	T_EQ(within(do_mem_free, m), -EBUSY);
	T_EQ((intptr_t)unhang(h), 4);
	over();
}

static void a_set_up_hangs(void)
{
	struct cufile_batch *c = NULL;
	struct hung h;

	ready("mode=p2pdma");
	NEED_STUB();
	x.set("hang=cuFileBatchIOSetUp:1");
	h = hang(get_thread, &c);
	others_go_on();
	T_EQ((intptr_t)unhang(h), 0);
	T_EQ(cufile_batch_put(c), 0);
	over();
}

static void none_in_old_ones(void)
{
	const char *old = getenv("STUB_CUFILE_OLD");

	if (!old)
		T_SKIP("needs the libraries of tests/stub");
	(void)setenv("PST_LIBCUFILE", old, 1);
	begin("version=1110");
	T_OK(cufile_open());
	T_EQ(cufile_batch_get(&b), -EOPNOTSUPP);
	T_CHECK(strstr(err_text(), "no batches"));
	end();
}

int main(void)
{
	APART(many_at_once);
	APART(one_by_one);
	APART(set_up_once);
	APART(destroyed_with_the_driver);
	APART(all_or_nothing);
	APART(each_has_its_own_error);
	APART(never_too_many);
	APART(broken_ones_are_put_away);
	APART(reported_twice);
	APART(given_back_too_early);
	APART(a_start_that_is_not_sure);
	APART(a_start_hangs);
	APART(a_start_is_given_up);
	APART(a_poll_hangs);
	APART(a_set_up_hangs);
	APART(none_in_old_ones);
	return t_done();
}
