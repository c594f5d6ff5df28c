/* SPDX-License-Identifier: MIT */
#include <pthread.h>

#include "base/err.h"

#include "t.h"

static void empty_before_the_first(void)
{
	T_CHECK(!strcmp(err_text(), ""));
}

static void takes_either_sign(void)
{
	T_EQ(err_set(ENODEV, "a"), -ENODEV);
	T_EQ(err_set(-ENODEV, "b %d", 7), -ENODEV);
	T_CHECK(!strcmp(err_text(), "b 7"));
}

static void keeps_errno_and_knows_m(void)
{
	errno = ENOSPC;
	T_EQ(err_set(EIO, "disk: %m"), -EIO);
	T_EQ(errno, ENOSPC);
	T_CHECK(!strcmp(err_text(), "disk: No space left on device"));
	(void)err_name(EIO);
	T_EQ(errno, ENOSPC);
}

static void long_sentences_are_cut(void)
{
	char big[2000];

	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	T_EQ(err_set(EIO, "%s", big), -EIO);
	T_EQ(strlen(err_text()), 511);
}

/* Control characters and bytes that are not UTF-8 are escaped. */
static void names_are_shown_and_not_obeyed(void)
{
	static const char safe[] = "open a\\012\\033[31mb\\233\\302\\205\\377\xc3\xa4\\177: x";

	(void)err_set(EIO, "open %s: x", "a\n\033[31mb\x9b\xc2\x85\xff\xc3\xa4\x7f");
	T_CHECK(!strcmp(err_text(), safe));
	(void)err_set(EIO, "%s", err_text());
	T_CHECK(!strcmp(err_text(), safe));
}

static void wraps_its_own_text(void)
{
	(void)err_set(EIO, "inner");
	(void)err_set(EIO, "outer: %s, tried twice", err_text());
	T_CHECK(!strcmp(err_text(), "outer: inner, tried twice"));
}

static void is_put_back(void)
{
	struct err_kept kept;

	(void)err_set(EIO, "of the caller");
	err_keep(&kept);
	(void)err_set(EAGAIN, "passed over");
	err_put_back(&kept);
	T_CHECK(!strcmp(err_text(), "of the caller"));
}

static void *other_thread(void *arg)
{
	*(bool *)arg = !strcmp(err_text(), "");
	(void)err_set(EIO, "theirs");
	return NULL;
}

static void each_thread_has_its_own(void)
{
	bool was_empty = false;
	pthread_t t;

	(void)err_set(EIO, "mine");
	T_EQ(pthread_create(&t, NULL, other_thread, &was_empty), 0);
	T_EQ(pthread_join(t, NULL), 0);
	T_CHECK(was_empty);
	T_CHECK(!strcmp(err_text(), "mine"));
}

static void names(void)
{
	T_CHECK(!strcmp(err_name(ENOENT), "ENOENT (No such file or directory)"));
	T_CHECK(!strcmp(err_name(-ENOENT), "ENOENT (No such file or directory)"));
	T_CHECK(!strcmp(err_name(4000), "error 4000"));
}

int main(void)
{
	T_RUN(empty_before_the_first);
	T_RUN(takes_either_sign);
	T_RUN(keeps_errno_and_knows_m);
	T_RUN(long_sentences_are_cut);
	T_RUN(names_are_shown_and_not_obeyed);
	T_RUN(wraps_its_own_text);
	T_RUN(is_put_back);
	T_RUN(each_thread_has_its_own);
	T_RUN(names);
	return t_done();
}
