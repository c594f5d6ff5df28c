/* SPDX-License-Identifier: MIT */
/* Every function of <streamer.h>, and the arguments that each refuses. */
#include "streamer_rig.h"

#define SAME(a, b) _Static_assert((long)(a) == (long)(b), #a)
SAME(sizeof(struct runai_device), 8);
SAME(offsetof(struct runai_device, type), 0);
SAME(offsetof(struct runai_device, id), 4);
SAME(RUNAI_FINISHED, 1);
SAME(RUNAI_FILE_ACCESS, 2);
SAME(RUNAI_EOF, 3);
SAME(RUNAI_INVALID, 7);
SAME(RUNAI_UNKNOWN, 11);
SAME(RUNAI_TIMED_OUT, 16);
SAME(RUNAI_DEVICE_TYPE, 23);

static char buf[4096];

static void reads_ranges_in_any_order(void)
{
	const size_t offs[] = { 900, 0, 5, 500 }, sizes[] = { 100, 5, 0, 40 };
	void *dsts[] = { buf, buf + 200, NULL, buf + 300 };
	const char *path = rig_file("ranges", 1000);
	void *s = rig_start();
	unsigned seen = 0;
	uint64_t id = 0;

	memset(buf, 1, sizeof(buf));
	T_EQ(rig_request(s, path, 4, offs, sizes, dsts, &id), 0);
	T_EQ(id, 1);
	for (int i = 0; i < 4; i++) {
		struct response r = rig_response(s);

		T_EQ(r.code, 0);
		T_EQ(r.id, 1);
		T_EQ(r.file, 0);
		T_CHECK(r.range < 4 && !(seen & 1u << r.range));
		T_EQ(r.done, i == 3);
		seen |= 1u << r.range;
	}
	rig_quiet(s);
	T_EQ(t_differs(buf, SEED, 900, 100), 100);
	T_EQ(t_differs(buf + 200, SEED, 0, 5), 5);
	T_EQ(t_differs(buf + 300, SEED, 500, 40), 40);
	/* No other bytes may be written. */
	for (int i = 0; i < 500; i++)
		T_CHECK(i < 100 || (i >= 200 && i < 205) || (i >= 300 && i < 340) || buf[i] == 1);
	runai_file_streamer_end(s);
}

/* One valid range between two bad addresses: only the bad ones must fail. */
static void one_bad_address(void *s, const char *path)
{
	const size_t offs[] = { 0, 10, 20 }, sizes[] = { 10, 10, 10 };
	void *dsts[] = { (void *)4096, buf, (void *)(UINTPTR_MAX - 4095) };
	uint64_t id;

	T_EQ(rig_request(s, path, 3, offs, sizes, dsts, &id), 0);
	for (int i = 0; i < 3; i++) {
		struct response r = rig_response(s);

		T_EQ(r.code, r.range == 1 ? 0 : RUNAI_INVALID);
	}
	T_EQ(t_differs(buf, SEED, 10, 10), 10);
}

static void what_a_range_gets(void)
{
	const char *path = rig_file("codes", 1000);
	void *s = rig_start();

	T_EQ(rig_only(s, path, 990, 11, buf), RUNAI_EOF);
	T_EQ(rig_only(s, path, 5000, 1, buf), RUNAI_EOF);
	T_EQ(rig_only(s, path, 0, SIZE_MAX >> 2, buf), RUNAI_EOF);
	T_EQ(rig_only(s, path, 5000, 0, buf), 0);
	T_EQ(rig_only(s, in_dir("missing"), 0, 1, buf), RUNAI_FILE_ACCESS);
	T_EQ(rig_only(s, in_dir("missing"), 0, 0, buf), RUNAI_FILE_ACCESS);
	T_EQ(rig_only(s, "", 0, 1, buf), RUNAI_FILE_ACCESS);
	T_EQ(rig_only(s, dir, 0, 1, buf), RUNAI_FILE_ACCESS);
	T_EQ(rig_only(s, "/dev/null", 0, 1, buf), RUNAI_FILE_ACCESS);
	T_EQ(rig_only(s, "http://a/b", 0, 1, buf), RUNAI_FILE_ACCESS);
	T_EQ(rig_only(s, "gs://a/b", 0, 1, buf), RUNAI_NO_GCS);
	T_EQ(rig_only(s, "az://a/b", 0, 1, buf), RUNAI_NO_AZURE);
	/* Unmapped memory. */
	T_EQ(rig_only(s, path, 0, 10, (void *)4096), RUNAI_INVALID);
	one_bad_address(s, path);
	/* The streamer must still work. */
	T_EQ(rig_only(s, path, 0, 1000, buf), 0);
	T_EQ(t_differs(buf, SEED, 0, 1000), 1000);
	runai_file_streamer_end(s);
}

static void what_a_request_refuses(void)
{
	const char *path = rig_file("refused", 100), *none = NULL;
	const char *mixed[] = { path, "s3://a/b" };
	const uint32_t one[] = { 1, 1 }, many[] = { UINT32_MAX, UINT32_MAX };
	const size_t off = 0, size = 8, past = SIZE_MAX - 3;
	const size_t *bad = (const size_t *)4096;
	void *const dst = buf, *const null = NULL, *const end = (void *)UINTPTR_MAX;
	void *s = rig_start();
	uint64_t id = 5;

#define REQ(...) runai_file_streamer_request(s, &id, __VA_ARGS__)
	T_EQ(REQ(1, NULL, one, &off, &size, &dst, HOST), RUNAI_INVALID);
	T_EQ(REQ(1, &path, NULL, &off, &size, &dst, HOST), RUNAI_INVALID);
	T_EQ(REQ(1, &path, one, NULL, &size, &dst, HOST), RUNAI_INVALID);
	T_EQ(REQ(1, &path, one, &off, NULL, &dst, HOST), RUNAI_INVALID);
	T_EQ(REQ(1, &path, one, &off, &size, NULL, HOST), RUNAI_INVALID);
	T_EQ(REQ(1, &path, one, bad, &size, &dst, HOST), RUNAI_INVALID);
	T_EQ(REQ(1, &none, one, &off, &size, &dst, HOST), RUNAI_INVALID);
	T_EQ(REQ(UINT32_MAX, &path, one, &off, &size, &dst, HOST), RUNAI_INVALID);
	T_EQ(REQ(1, &path, many, &off, &size, &dst, HOST), RUNAI_INVALID);
	T_EQ(REQ(1, &path, one, &past, &size, &dst, HOST), RUNAI_INVALID);
	T_EQ(REQ(1, &path, one, &off, &past, &dst, HOST), RUNAI_INVALID);
	T_EQ(REQ(1, &path, one, &off, &size, &null, HOST), RUNAI_INVALID);
	T_EQ(REQ(1, &path, one, &off, &size, &end, HOST), RUNAI_INVALID);
	T_EQ(REQ(2, mixed, one, &off, &size, &dst, HOST), RUNAI_MIXED);
	T_EQ(REQ(1, &path, one, &off, &size, &dst, ((struct runai_device){ 2, 0 })),
	     RUNAI_DEVICE_TYPE);
	T_EQ(REQ(1, &path, one, &off, &size, &dst, ((struct runai_device){ 1, -1 })),
	     RUNAI_NO_DEVICE);
	T_EQ(id, 5);
	/* No files, or a file without ranges: the request is done without a response. */
	T_EQ(REQ(0, NULL, NULL, NULL, NULL, NULL, HOST), 0);
	T_EQ(id, 1);
	T_EQ(REQ(1, &path, (const uint32_t[]){ 0 }, NULL, NULL, NULL, HOST), 0);
	T_EQ(id, 2);
#undef REQ
	rig_quiet(s);
	T_EQ(runai_file_streamer_request(s, NULL, 1, &path, one, &off, &size, &dst, HOST), 0);
	T_EQ(rig_response(s).code, 0);
	runai_file_streamer_end(s);
}

static void strangers_are_no_streamers(void)
{
	void *s = rig_start(), *old = s, *next;
	uint32_t file, range;
	size_t block = 0;
	uint64_t id;
	int done;

	T_EQ(runai_file_streamer_start(NULL), RUNAI_INVALID);
	runai_file_streamer_end(NULL);
	runai_file_streamer_end(s);
	runai_file_streamer_end(s);
	next = rig_start();
	T_CHECK(next != old);
	for (int i = 0; i < 3; i++) {
		void *bad = i == 0 ? NULL : i == 1 ? old : (void *)buf;

		T_EQ(rig_read(bad, dir, 0, 1, buf), RUNAI_INVALID);
		T_EQ(runai_file_streamer_response(bad, &id, &file, &range, &done, 0),
		     RUNAI_INVALID);
		T_EQ(runai_file_streamer_set_credentials(bad, NULL, NULL, 0), RUNAI_INVALID);
		T_EQ(runai_file_streamer_list_files(bad, dir, 1, NULL, 0, NULL, 0, NULL, NULL),
		     RUNAI_INVALID);
		block = 0;
		T_EQ(runai_file_streamer_probe_direct_block_size(bad, NULL, 0, &block),
		     RUNAI_INVALID);
		T_CHECK(block);
		runai_file_streamer_end(bad);
	}
	T_EQ(runai_file_streamer_response(next, NULL, &file, &range, &done, 0), RUNAI_INVALID);
	T_EQ(runai_file_streamer_response(next, &id, NULL, &range, &done, 0), RUNAI_INVALID);
	T_EQ(runai_file_streamer_response(next, &id, &file, NULL, &done, 0), RUNAI_INVALID);
	T_EQ(runai_file_streamer_response(next, &id, &file, &range, NULL, 0), RUNAI_INVALID);
	runai_file_streamer_end(next);
}

static void credentials_are_set_once(void)
{
	const char *k[] = { "a", "b" }, *v[] = { "1", "2" }, *w[] = { "1", "3" }, *n[] = { NULL };
	void *s = rig_start();

	T_EQ(runai_file_streamer_set_credentials(s, NULL, NULL, 0), 0);
	T_EQ(runai_file_streamer_set_credentials(s, NULL, v, 1), RUNAI_INVALID);
	T_EQ(runai_file_streamer_set_credentials(s, n, v, 1), RUNAI_INVALID);
	T_EQ(runai_file_streamer_set_credentials(s, k, v, 2), 0);
	T_EQ(runai_file_streamer_set_credentials(s, k, v, 2), 0);
	T_EQ(runai_file_streamer_set_credentials(s, k, w, 2), RUNAI_CREDENTIALS);
	T_EQ(runai_file_streamer_set_credentials(s, k, v, 1), RUNAI_CREDENTIALS);
	T_EQ(runai_file_streamer_set_fs_strategy(s), 0);
	runai_file_streamer_end(s);
}

/* Return how often the bytes occur in the heap. */
static unsigned in_heap(const char *what, size_t len)
{
	static char maps[1 << 16];
	unsigned long from = 0, to = 0;
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	unsigned nr = 0;
	ssize_t n;

	for (size_t at = 0; (n = read(fd, maps + at, sizeof(maps) - 1 - at)) > 0;)
		at += (size_t)n;
	T_EQ(close(fd), 0);
	for (char *line = strtok(maps, "\n"); line; line = strtok(NULL, "\n"))
		if (strstr(line, "[heap]"))
			T_EQ(sscanf(line, "%lx-%lx", &from, &to), 2);
	for (const char *at = (const char *)from; at + len <= (const char *)to; at++)
		nr += memcmp(at, what, len) == 0;
	return nr;
}

/* Credentials must be wiped from the heap.  They are long, so that a growing buffer would leave
 * copies behind. */
static void credentials_are_wiped(void)
{
	static char token[6000];
	const char *k[] = { "first", "second", "third" }, *v[] = { token, token, token };
	void *s = rig_start();

	/* Avoid bytes that malloc() may fill memory with: MALLOC_PERTURB_, mallopt(3). */
	for (size_t i = 0; i < sizeof(token) - 1; i++)
		token[i] = (char)('a' + i % 26);
	T_EQ(runai_file_streamer_set_credentials(s, k, v, 3), 0);
	runai_file_streamer_end(s);
	T_EQ(in_heap(token, 256), 0);
}

static void codes_have_words(void)
{
	for (int i = 0; i <= 28; i++)
		T_CHECK(strcmp(runai_file_streamer_response_str(i), "unknown code") != 0);
	T_EQ(strcmp(runai_file_streamer_response_str(-1), "unknown code"), 0);
	T_EQ(strcmp(runai_file_streamer_response_str(29), "unknown code"), 0);
	T_EQ(strcmp(runai_response_str(INT_MIN), "unknown code"), 0);
}

static void the_block_is_never_0(void)
{
	const char *paths[] = { rig_file("block", 10000), in_dir("missing"), "s3://a/b", "" };
	void *s = rig_start();
	size_t block = 0;
	int code = runai_file_streamer_probe_direct_block_size(s, paths, 1, &block);

	T_CHECK(code == 0 || code == RUNAI_UNKNOWN);
	T_CHECK(block >= 512 && !(block & (block - 1)));
	for (unsigned nr = 2; nr <= 4; nr++) {
		block = 0;
		T_EQ(runai_file_streamer_probe_direct_block_size(s, paths, nr, &block),
		     RUNAI_UNKNOWN);
		T_CHECK(block >= 4096 && !(block & (block - 1)));
	}
	paths[0] = NULL;
	block = 0;
	T_EQ(runai_file_streamer_probe_direct_block_size(s, paths, 1, &block), RUNAI_INVALID);
	T_CHECK(block);
	T_EQ(runai_file_streamer_probe_direct_block_size(s, NULL, 1, &block), RUNAI_INVALID);
	T_EQ(runai_file_streamer_probe_direct_block_size(s, paths, 1, NULL), RUNAI_INVALID);
	runai_file_streamer_end(s);
}

/* ----------------------------------------------------------------- listing */

static unsigned listed; /* bit set of listed names */
static void *listing;

static void note(const char *path, size_t size, void *user_data)
{
	static const char *const names[] = { "a.txt", "b.bin", "sub/c.txt", ".dot", "link" };

	T_CHECK(user_data == &listed && size == 3);
	T_CHECK(!strncmp(path, dir, strlen(dir)));
	for (unsigned i = 0; i < 5; i++)
		if (!strcmp(path + strlen(dir) + strlen("/list/"), names[i])) {
			T_CHECK(!(listed & 1u << i));
			listed |= 1u << i;
			return;
		}
	T_FAIL("there should be no %s", path);
}

static int list(int recursive, const char *allow, const char *ignore)
{
	listed = 0;
	return runai_file_streamer_list_files(listing, in_dir("list"), recursive, &allow,
					      allow ? 1 : 0, &ignore, ignore ? 1 : 0, note,
					      &listed);
}

static void list_end(const char *path, size_t size, void *user_data)
{
	(void)path;
	(void)size;
	runai_file_streamer_end(listing);
	++*(unsigned *)user_data;
}

static void lists_files(void)
{
	const char *null = NULL;

	T_EQ(mkdir(in_dir("list"), 0777), 0);
	T_EQ(mkdir(in_dir("list/sub"), 0777), 0);
	rig_file("list/a.txt", 3);
	rig_file("list/b.bin", 3);
	rig_file("list/sub/c.txt", 3);
	rig_file("list/.dot", 3);
	T_EQ(symlink("a.txt", in_dir("list/link")), 0);
	T_EQ(symlink("nowhere", in_dir("list/broken")), 0);
	T_EQ(symlink("..", in_dir("list/sub/loop")), 0);
	T_EQ(mkfifo(in_dir("list/pipe"), 0666), 0);
	listing = rig_start();
	T_EQ(list(1, NULL, NULL), 0);
	T_EQ(listed, 31);
	T_EQ(list(0, NULL, NULL), 0);
	T_EQ(listed, 27);
	T_EQ(list(1, "*.txt", NULL), 0);
	T_EQ(listed, 5);
	/* Patterns match whole paths. */
	T_EQ(list(1, "a.txt", NULL), 0);
	T_EQ(listed, 0);
	T_EQ(list(1, "*", "*/sub/*"), 0);
	T_EQ(listed, 27);
	T_EQ(list(1, "[", NULL), 0);
	T_EQ(listed, 0);
#define LIST(prefix, allow, fn) \
	runai_file_streamer_list_files(listing, prefix, 1, allow, 1, NULL, 0, fn, &listed)
	T_EQ(LIST(NULL, &null, note), RUNAI_INVALID);
	T_EQ(LIST(dir, NULL, note), RUNAI_INVALID);
	T_EQ(LIST(dir, &null, note), RUNAI_INVALID);
	null = "*";
	T_EQ(LIST(dir, &null, NULL), RUNAI_INVALID);
	T_EQ(LIST(in_dir("nowhere"), &null, note), RUNAI_FILE_ACCESS);
	T_EQ(LIST("", &null, note), RUNAI_FILE_ACCESS);
	T_EQ(LIST(in_dir("list/a.txt"), &null, note), RUNAI_UNKNOWN);
	T_EQ(LIST("gs://a/", &null, note), RUNAI_NO_GCS);
	T_EQ(LIST("gs://a/", &null, note), RUNAI_NO_GCS);
	T_EQ(LIST("az://a/", &null, note), RUNAI_NO_AZURE);
	/* The callback may end the streamer. */
	listed = 0;
	T_EQ(LIST(in_dir("list"), &null, list_end), 0);
	T_EQ(listed, 5);
#undef LIST
	T_EQ(list(1, NULL, NULL), RUNAI_INVALID);
}

/* --------------------------------------------------------- 0.15 and 0.16 */

static int old_request(void *s, const char *path, size_t off, size_t size, const size_t *parts,
		       uint32_t nr)
{
	void *dst = buf;

	return runai_request(s, 1, &path, &off, &size, &dst, &nr, &parts, NULL, NULL, NULL, NULL,
			     NULL);
}

static void calls_of_0_16(void)
{
	const char *path = rig_file("old", 1000), *paths[] = { path, path };
	const size_t a[] = { 10, 0, 20 }, b[] = { 50 }, *parts[] = { a, b };
	const size_t offs[] = { 100, 700 }, sizes[] = { 40, 50 };
	const uint32_t nrs[] = { 3, 1 };
	void *s = NULL, *dst = buf;
	uint32_t file = 9, part = 9;

	T_EQ(runai_start(&s), 0);
	T_EQ(runai_response(s, &file, &part), RUNAI_FINISHED);
	T_EQ(runai_request(s, 2, paths, offs, sizes, &dst, nrs, parts, "k", "s", "t", "r", "e"), 0);
	for (int i = 0; i < 4; i++) {
		/* The next request must be refused until all responses are taken. */
		T_EQ(old_request(s, path, 0, 10, a, 1), RUNAI_BUSY);
		T_EQ(runai_response(s, &file, &part), 0);
		T_CHECK(file < 2 && part < nrs[file]);
	}
	T_EQ(runai_response(s, &file, &part), RUNAI_FINISHED);
	T_EQ(t_differs(buf, SEED, 100, 30), 30);
	/* The second file's bytes follow the first file's size, which is longer than its parts. */
	T_EQ(t_differs(buf + 40, SEED, 700, 50), 50);
	T_EQ(old_request(s, path, 0, 29, a, 3), RUNAI_INVALID);
	T_EQ(old_request(s, path, 0, 10, a, 0), RUNAI_EMPTY);
	T_EQ(old_request(s, path, SIZE_MAX, 10, a, 1), RUNAI_INVALID);
	T_EQ(old_request(s, path, 0, 10, NULL, 1), RUNAI_INVALID);
	T_EQ(old_request(s, path, 0, 10, (const size_t *)4096, 1), RUNAI_INVALID);
	T_EQ(old_request(s, path, 0, SIZE_MAX, a, UINT32_MAX), RUNAI_INVALID);
	T_EQ(runai_request(s, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
	     RUNAI_EMPTY);
	T_EQ(runai_request(s, 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
	     RUNAI_INVALID);
	T_EQ(old_request(s, path, 995, 30, a, 3), 0);
	for (int i = 0; i < 3; i++) {
		int code = runai_response(s, &file, &part);

		T_EQ(code, part == 1 ? 0 : RUNAI_EOF);
	}
	T_EQ(runai_response(s, NULL, &part), RUNAI_INVALID);
	listed = 0;
	T_EQ(runai_list_files(in_dir("list"), 0, NULL, 0, NULL, 0, note, &listed, NULL, NULL, 0),
	     0);
	T_EQ(listed, 27);
	runai_end(s);
	runai_end(s);
	T_EQ(runai_response(s, &file, &part), RUNAI_INVALID);
}

/* Place bytes directly before an inaccessible page. */
static void *at_the_edge(char *page, const void *from, size_t len)
{
	return memcpy(page + 4096 - len, from, len);
}

static void arrays_of_0_16_that_end_early(void)
{
	const char *path = rig_file("early", 1000), *paths[] = { path, path };
	const size_t a[] = { 10 }, *parts[] = { a, a }, offs[] = { 0, 0 }, sizes[] = { 10, 10 };
	const uint32_t nrs[] = { 1, 1 };
	void *s = NULL, *dst = buf;
	char *page;

	page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	T_CHECK(page != MAP_FAILED);
	T_EQ(mprotect(page + 4096, 4096, PROT_NONE), 0);
	T_EQ(runai_start(&s), 0);
#define ASK(p, o, z, d, n, w) \
	T_EQ(runai_request(s, 2, p, o, z, d, n, w, NULL, NULL, NULL, NULL, NULL), RUNAI_INVALID)
	ASK(at_the_edge(page, paths, 8), offs, sizes, &dst, nrs, parts);
	ASK(paths, at_the_edge(page, offs, 8), sizes, &dst, nrs, parts);
	ASK(paths, offs, at_the_edge(page, sizes, 8), &dst, nrs, parts);
	ASK(paths, offs, sizes, (void **)(page + 4096), nrs, parts);
	ASK(paths, offs, sizes, &dst, at_the_edge(page, nrs, 4), parts);
	ASK(paths, offs, sizes, &dst, nrs, at_the_edge(page, parts, 8));
#undef ASK
	runai_end(s);
	T_EQ(munmap(page, 8192), 0);
}

static void never(const char *path, size_t size, void *user_data)
{
	(void)size;
	(void)user_data;
	T_FAIL("%s is listed", path);
}

/* Pass an array of three strings, of which the last is unusable, to every function that takes
 * strings: each must refuse it. */
static void bad_strings(void *s, const char *const *three)
{
	const char *const good[] = { "a", "b", "c" };
	const uint32_t nrs[] = { 1, 1, 1 };
	const size_t offs[] = { 0, 0, 0 }, sizes[] = { 10, 10, 10 };
	void *const dsts[] = { buf, buf, buf };
	const size_t a[] = { 10 }, *const parts[] = { a, a, a };
	size_t block = 0;
	uint64_t id;

	T_EQ(runai_file_streamer_request(s, &id, 3, three, nrs, offs, sizes, dsts, HOST),
	     RUNAI_INVALID);
	T_EQ(runai_request(s, 3, three, offs, sizes, dsts, nrs, parts, NULL, NULL, NULL, NULL,
			   NULL),
	     RUNAI_INVALID);
	T_EQ(runai_file_streamer_probe_direct_block_size(s, three, 3, &block), RUNAI_INVALID);
	T_CHECK(block);
	T_EQ(runai_file_streamer_list_files(s, dir, 0, three, 3, NULL, 0, never, NULL),
	     RUNAI_INVALID);
	T_EQ(runai_file_streamer_list_files(s, dir, 0, NULL, 0, three, 3, never, NULL),
	     RUNAI_INVALID);
	T_EQ(runai_list_files(dir, 0, three, 3, NULL, 0, never, NULL, NULL, NULL, 0),
	     RUNAI_INVALID);
	T_EQ(runai_file_streamer_set_credentials(s, three, good, 3), RUNAI_INVALID);
	T_EQ(runai_file_streamer_set_credentials(s, good, three, 3), RUNAI_INVALID);
}

static void strings_and_arrays_that_are_not_there(void)
{
	static char endless[(64 << 10) + 1];
	const char *good = rig_file("good", 1000), *three[] = { good, good, NULL };
	void *s = rig_start();
	char *page;

	page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	T_CHECK(page != MAP_FAILED);
	T_EQ(mprotect(page + 4096, 4096, PROT_NONE), 0);
	bad_strings(s, three);
	bad_strings(s, at_the_edge(page, three, 16)); /* two of the three are accessible */
	three[2] = (const char *)8;
	bad_strings(s, three);
	three[2] = page + 4096;
	bad_strings(s, three);
	/* A string without an end before the inaccessible page. */
	memset(page, 'a', 4096);
	three[2] = page + 4090;
	bad_strings(s, three);
	memset(endless, 'a', sizeof(endless));
	three[2] = endless;
	bad_strings(s, three);
	T_EQ(runai_file_streamer_list_files(s, page + 4090, 0, NULL, 0, NULL, 0, never, NULL),
	     RUNAI_INVALID);
	T_EQ(runai_list_files((const char *)8, 0, NULL, 0, NULL, 0, never, NULL, NULL, NULL, 0),
	     RUNAI_INVALID);

	/* A string may end with its page, or cross pages. */
	page[4095] = '\0';
	T_EQ(rig_only(s, page + 4090, 0, 1, buf), RUNAI_FILE_ACCESS);
	endless[5000] = '\0';
	T_EQ(rig_only(s, endless, 0, 1, buf), RUNAI_FILE_ACCESS);
	T_EQ(rig_only(s, good, 0, 10, buf), 0);
	T_EQ(t_differs(buf, SEED, 0, 10), 10);
	runai_file_streamer_end(s);
	T_EQ(munmap(page, 8192), 0);
}

int main(void)
{
	if (scratch_new(NULL, dir, sizeof(dir)) < 0)
		return 1;
	T_RUN(reads_ranges_in_any_order);
	T_RUN(what_a_range_gets);
	T_RUN(what_a_request_refuses);
	T_RUN(strangers_are_no_streamers);
	T_RUN(credentials_are_set_once);
	T_RUN(credentials_are_wiped);
	T_RUN(codes_have_words);
	T_RUN(the_block_is_never_0);
	T_RUN(lists_files);
	T_RUN(calls_of_0_16);
	T_RUN(arrays_of_0_16_that_end_early);
	T_RUN(strings_and_arrays_that_are_not_there);
	(void)scratch_remove(dir);
	return t_done();
}
