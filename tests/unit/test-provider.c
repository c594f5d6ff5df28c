/* SPDX-License-Identifier: MIT */
/*
 * Providers of files: their table, the names that select them, and the members that they may
 * lack.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define T_ERROR_TEXT() err_text()

#include "base/err.h"
#include "base/fault.h"
#include "file/local.h"
#include "scratch.h"
#include "t.h"

static unsigned nr_open, nr_free;
static int open_err;
static uint32_t aligned[2]; /* alignments of files; 0: no FILE_DIRECT */
static char seen[PATH_MAX];

static int bare_open(const char *name, uint32_t flags, uint32_t mode, struct file **ret);

static void bare_free(struct file *f)
{
	nr_free++;
	free(f);
}

/* The members that every provider must have. */
static const struct file_ops bare = { .scheme = "bare", .open = bare_open, .free = bare_free };

static int bare_open(const char *name, uint32_t flags, uint32_t mode, struct file **ret)
{
	struct file *f;

	(void)mode;
	(void)snprintf(seen, sizeof(seen), "%s", name);
	if (open_err)
		return err_set(open_err, "the service is not there");
	f = calloc(1, sizeof(*f));
	T_CHECK(f);
	*f = (struct file){ .ops = &bare, .flags = flags, .name = "bare" };
	if (aligned[0]) {
		f->caps = FILE_DIRECT;
		f->mem_align = aligned[0];
		f->off_align = aligned[1];
	}
	nr_open++;
	*ret = f;
	return 0;
}

static int open_it(const char *name, struct file **ret)
{
	return file_open(name, PST_FILE_READ, 0, ret);
}

static void refuses(const char *name, int err, const char *words)
{
	struct file *f = NULL;

	T_EQ(open_it(name, &f), err);
	T_CHECK(!f);
	if (!strstr(err_text(), words))
		T_FAIL("'%s' lacks '%s'", err_text(), words);
}

/* Must run before any provider is added. */
static void an_unknown_scheme(void)
{
	refuses("pst://host/x", -EPROTONOSUPPORT, "pst://");
	refuses("pst://host/x", -EPROTONOSUPPORT, "only paths");
	refuses("pst://host/x", -EPROTONOSUPPORT, "./pst://host/x");
	refuses("a://", -EPROTONOSUPPORT, "a://");
}

static void a_table_that_is_none(void)
{
	static const struct io_backend no_backend = { .name = "none" };
	struct file_ops bad = bare;

	bad.scheme = NULL;
	T_EQ(file_provider_add(&bad), -EINVAL);
	bad.scheme = "";
	T_EQ(file_provider_add(&bad), -EINVAL);
	bad.scheme = "Upper";
	T_EQ(file_provider_add(&bad), -EINVAL);
	bad.scheme = "with space";
	T_EQ(file_provider_add(&bad), -EINVAL);
	bad.scheme = "9p";
	T_EQ(file_provider_add(&bad), -EINVAL);
	bad.scheme = "seventeen-letters";
	T_EQ(strlen(bad.scheme), FILE_SCHEME_MAX + 1);
	T_EQ(file_provider_add(&bad), -EINVAL);
	bad = bare;
	bad.open = NULL;
	T_EQ(file_provider_add(&bad), -EINVAL);
	bad = bare;
	bad.free = NULL;
	T_EQ(file_provider_add(&bad), -EINVAL);
	bad = bare;
	bad.backend = &no_backend;
	T_EQ(file_provider_add(&bad), -EINVAL);
	refuses("bare://x", -EPROTONOSUPPORT, "only paths");
}

static void names_lead_to_it(void)
{
	static const char *const lead[] = { "bare://x", "bare:///", "bare://://", "bare://\xff\n",
					    "bare://../../etc/passwd" };
	struct file *f = NULL;

	T_OK(file_provider_add(&bare));
	T_EQ(file_provider_add(&bare), -EEXIST);
	for (size_t i = 0; i < ARRAY_SIZE(lead); i++) {
		T_OK(open_it(lead[i], &f));
		T_EQ(strcmp(seen, lead[i]), 0);
		T_CHECK(f->ops == &bare && !file_local(f));
		file_free(f);
	}
	T_EQ(nr_open, ARRAY_SIZE(lead));
	T_EQ(nr_free, nr_open);
	refuses("pst://host/x", -EPROTONOSUPPORT, "knows bare://");
}

static void names_that_do_not(void)
{
	char name[PATH_MAX + 100];

	refuses("bare://", -EINVAL, "names no file");
	/* These are ordinary paths, of files that do not exist. */
	refuses("Bare://x", -ENOENT, "Bare://x");
	refuses("BARE://x", -ENOENT, "BARE://x");
	refuses("bare:/x", -ENOENT, "bare:/x");
	refuses("bare:x", -ENOENT, "bare:x");
	refuses("./bare://x", -ENOENT, "./bare://x");
	refuses("/bare://x", -ENOENT, "/bare://x");
	refuses("9p://x", -ENOENT, "9p://x");
	refuses("://x", -ENOENT, "://x");
	refuses(" bare://x", -ENOENT, " bare://x");
	refuses("b_re://x", -ENOENT, "b_re://x");
	refuses("", -ENOENT, "");
	/* A scheme must match as a whole. */
	refuses("bar://x", -EPROTONOSUPPORT, "bar://");
	refuses("bared://x", -EPROTONOSUPPORT, "bared://");
	(void)memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	(void)memcpy(name, "bare://", 7);
	refuses(name, -ENAMETOOLONG, "bare://xxx");
	name[PATH_MAX] = '\0';
	refuses(name, -ENAMETOOLONG, "too long");
	/* A name that consists of a long scheme. */
	(void)memset(name, 'x', PATH_MAX);
	(void)memcpy(name + PATH_MAX - 10, "://y", 5);
	refuses(name, -EPROTONOSUPPORT, "xxxxxxxxxxxxxxxx...");
	T_EQ(nr_free, nr_open);
}

static void an_open_that_fails(void)
{
	open_err = EHOSTUNREACH;
	refuses("bare://x", -EHOSTUNREACH, "the service is not there");
	open_err = 0;
	T_OK(fault_set("file.open:1:EMFILE"));
	refuses("bare://x", -EMFILE, "injected");
	T_OK(fault_set(NULL));
}

static void alignments_that_nothing_serves(void)
{
	static const uint32_t bad[][2] = {
		{ 512, 0 }, { 512, 3 }, { 768, 512 }, { 8192, 4096 }, { 512, 128 << 10 }
	};
	struct file *f;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		memcpy(aligned, bad[i], sizeof(aligned));
		refuses("bare://x", -EINVAL, "FILE_DIRECT with blocks of");
	}
	aligned[0] = 4096;
	aligned[1] = 64 << 10;
	T_OK(open_it("bare://x", &f));
	T_EQ(f->off_align, 64 << 10);
	file_free(f);
	aligned[0] = 0;
	T_EQ(nr_free, nr_open);
}

static void what_it_leaves_out(void)
{
	struct file_stamp stamp = { 0 };
	char place[FILE_PLACE_MAX], buf[16];
	struct file *f = NULL, *again = NULL;
	uint64_t size = 7;

	T_OK(open_it("bare://x", &f));
	T_EQ(file_size(f, &size), -EOPNOTSUPP);
	T_CHECK(strstr(err_text(), "size"));
	T_EQ(size, 7);
	T_EQ(file_again(f, &again), -EOPNOTSUPP);
	T_CHECK(!again);
	T_EQ(file_peek(f, buf, 0, sizeof(buf)), -EOPNOTSUPP);
	T_EQ(file_resident(f, 0, 4096), -1);
	T_CHECK(!file_ends_at(f, 0));
	T_EQ(file_stamp(f, &stamp), -EOPNOTSUPP);
	T_CHECK(!file_still(f, &stamp));
	T_CHECK(!file_place(f, place, sizeof(place)));
	T_EQ(strcmp(place, "bare"), 0);
	f->caps |= FILE_RESIDENT;
	T_EQ(file_resident(f, 0, 4096), 1);
	file_free(f);
	file_free(NULL);
}

static void local_files_have_it_all(void)
{
	struct file_stamp stamp, other;
	char dir[100], path[128], place[FILE_PLACE_MAX];
	struct file *f = NULL, *again = NULL;
	uint64_t size = 0;

	T_OK(scratch_new(NULL, dir, sizeof(dir)));
	(void)snprintf(path, sizeof(path), "%s/x", dir);
	T_OK(file_open(path, PST_FILE_WRITE | PST_FILE_CREATE, 0600, &f));
	T_CHECK(file_local(f) == local_of(f));
	T_OK(file_stamp(f, &stamp));
	T_CHECK(file_still(f, &stamp));
	T_EQ(pwrite(local_of(f)->fd, "abc", 3, 0), 3);
	T_OK(file_size(f, &size));
	T_EQ(size, 3);
	T_CHECK(!file_still(f, &stamp));
	T_OK(file_stamp(f, &other));
	T_EQ(other.size, 3);
	T_OK(file_again(f, &again));
	T_CHECK(again->flags & PST_FILE_READ && again->writers == f->writers);
	T_EQ(file_peek(again, path, 0, sizeof(path)), 3);
	(void)file_place(f, place, sizeof(place));
	T_CHECK(strstr(place, f->name));
	file_free(again);
	file_free(f);
	T_EQ(scratch_remove(dir), 0);
}

static void no_more_than_there_is_room_for(void)
{
	static struct file_ops more[FILE_PROVIDERS_MAX];
	static char names[FILE_PROVIDERS_MAX][FILE_SCHEME_MAX + 1];
	struct file *f = NULL;

	for (unsigned i = 0; i < FILE_PROVIDERS_MAX; i++) {
		(void)snprintf(names[i], sizeof(names[i]), "sixteen-letter-%c", 'a' + (char)i);
		more[i] = bare;
		more[i].scheme = names[i];
		T_EQ(file_provider_add(&more[i]), i + 1 < FILE_PROVIDERS_MAX ? 0 : -ENOSPC);
	}
	refuses("pst://x", -EPROTONOSUPPORT, names[FILE_PROVIDERS_MAX - 2]);
	refuses("pst://x", -EPROTONOSUPPORT, "./pst://x");
	T_OK(open_it("sixteen-letter-b://x", &f));
	file_free(f);
}

int main(void)
{
	T_RUN(an_unknown_scheme);
	T_RUN(a_table_that_is_none);
	T_RUN(names_lead_to_it);
	T_RUN(names_that_do_not);
	T_RUN(an_open_that_fails);
	T_RUN(alignments_that_nothing_serves);
	T_RUN(what_it_leaves_out);
	T_RUN(local_files_have_it_all);
	T_RUN(no_more_than_there_is_room_for);
	return t_done();
}
