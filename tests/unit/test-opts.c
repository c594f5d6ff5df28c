/* SPDX-License-Identifier: MIT */
#include "base/opts.h"

#include "t.h"

/* Three versions of the same struct. */
struct old {
	size_t sz;
	uint32_t a;
	uint32_t b;
};

struct now {
	size_t sz;
	uint32_t a;
	uint32_t b;
	uint64_t c;
};

struct later {
	size_t sz;
	uint32_t a;
	uint32_t b;
	uint64_t c;
	uint64_t d;
};

static void null_is_all_defaults(void)
{
	struct now o = { .a = 9 };

	T_EQ(opts_copy(&o, sizeof(o), NULL), 0);
	T_EQ(o.sz, sizeof(o));
	T_EQ(o.a | o.b | o.c, 0);
}

static void an_older_caller(void)
{
	struct old src = { .sz = sizeof(src), .a = 1, .b = 2 };
	struct now o = { .c = 9 };

	T_EQ(opts_copy(&o, sizeof(o), &src), 0);
	T_EQ(o.sz, sizeof(o));
	T_EQ(o.a, 1);
	T_EQ(o.b, 2);
	T_EQ(o.c, 0);
}

static void a_newer_caller(void)
{
	struct later src = { .sz = sizeof(src), .a = 1, .c = 3 };
	struct now o;

	T_EQ(opts_copy(&o, sizeof(o), &src), 0);
	T_EQ(o.c, 3);
	src.d = UINT64_C(1) << 63;
	T_EQ(opts_copy(&o, sizeof(o), &src), -E2BIG);
}

static void sizes_that_make_no_sense(void)
{
	struct now src = { .sz = 0 }, o;

	T_EQ(opts_copy(&o, sizeof(o), &src), -EINVAL);
	T_EQ(opts_return(&src, &o, sizeof(o)), -EINVAL);
	src.sz = sizeof(size_t) - 1;
	T_EQ(opts_copy(&o, sizeof(o), &src), -EINVAL);
	T_EQ(opts_return(&src, &o, sizeof(o)), -EINVAL);
	/* a size so large that reading or writing the struct would leave the stack */
	src.sz = SIZE_MAX;
	T_EQ(opts_copy(&o, sizeof(o), &src), -E2BIG);
	T_EQ(opts_return(&src, &o, sizeof(o)), -EINVAL);
}

static void the_way_back(void)
{
	struct now src = { .sz = 77, .a = 1, .b = 2, .c = 3 };
	struct old old = { .sz = sizeof(old) };
	struct now now = { .sz = sizeof(now) };
	struct later later = { .sz = sizeof(later), .d = 9 };
	struct {
		struct old o;
		uint64_t canary;
	} tight = { .o.sz = sizeof(struct old), .canary = 0x55 };

	T_EQ(opts_return(&old, &src, sizeof(src)), 0);
	T_EQ(old.sz, sizeof(old));
	T_EQ(old.b, 2);
	T_EQ(opts_return(&now, &src, sizeof(src)), 0);
	T_EQ(now.sz, sizeof(now));
	T_EQ(now.c, 3);
	T_EQ(opts_return(&later, &src, sizeof(src)), 0);
	T_EQ(later.sz, sizeof(later));
	T_EQ(later.c, 3);
	T_EQ(later.d, 0);
	T_EQ(opts_return(&tight.o, &src, sizeof(src)), 0);
	T_EQ(tight.canary, 0x55);
}

int main(void)
{
	T_RUN(null_is_all_defaults);
	T_RUN(an_older_caller);
	T_RUN(a_newer_caller);
	T_RUN(sizes_that_make_no_sense);
	T_RUN(the_way_back);
	return t_done();
}
