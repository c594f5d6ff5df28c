/* SPDX-License-Identifier: MIT */
/* tier://SET/NAME through the public API, while the command in another process moves files. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "rig.h"

#define LEN RIG_MIB(4)
#define BLOCK 65536
#define SEED 4
#define OTHER 5
#define MOVES 8

static char nvme[300], hdd[300];

/* Run penstock tier.  Return its exit status. */
static int tier(const char *words)
{
	char line[2000];
	int status;

	(void)snprintf(line, sizeof(line), "%s tier %s >%s 2>&1", getenv("PENSTOCK"), words,
		       rig_path("said"));
	status = system(line); /* NOLINT(cert-env33-c): words of this file */
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void tier_ok(const char *words)
{
	if (tier(words) != 0) {
		char text[2000];
		size_t n = rig_slurp(rig_path("said"), 0, text, sizeof(text) - 1);

		text[n] = '\0';
		T_FAIL("penstock tier %s: %s", words, text);
	}
}

static int open_name(const char *name, uint32_t flags, struct pst_file **ret)
{
	struct pst_file_opts o = { .sz = sizeof(o), .mode = 0644 };

	return pst_file_open(name, flags, flags & PST_FILE_CREATE ? &o : NULL, ret);
}

static struct pst_file *open_ok(const char *name, uint32_t flags)
{
	struct pst_file *f = NULL;

	T_OK(open_name(name, flags, &f));
	return f;
}

static const char *at(const char *root, const char *name)
{
	static char path[4][600];
	static unsigned turn;
	char *p = path[turn++ % 4];

	(void)snprintf(p, sizeof(path[0]), "%s/%s", root, name);
	return p;
}

static bool is_there(const char *path)
{
	return access(path, F_OK) == 0;
}

/* Make a file of LEN bytes in the fast root. */
static void make(const char *name)
{
	char path[500], words[500];

	(void)unlink(at(hdd, name));
	(void)snprintf(path, sizeof(path), "%s/%s", nvme, name);
	rig_make(path, SEED, LEN);
	(void)snprintf(words, sizeof(words), "migrate s");
	tier_ok(words); /* the command adds the file to the catalogue */
}

/* ----------------------------------------------------------------------- cases */

static void files_are_made_and_read(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, LEN), *back = rig_alloc(rig_dev, LEN);
	struct pst_file *f = NULL;
	struct pst_done d;

	(void)unlink(at(nvme, "made"));
	T_EQ(open_name("tier://s/none/made", RIG_NEW, &f), -ENOENT);
	f = open_ok("tier://s/made", RIG_NEW);
	rig_mem_fill(m, 0, LEN, SEED, 0);
	T_EQ(rig_write(f, m, 0, 0, LEN).res, LEN);
	T_EQ(rig_sync(f).res, 0);
	T_EQ(rig_file_info(f).size, LEN);
	d = rig_read(f, back, 0, 0, LEN);
	T_EQ(d.res, LEN);
	T_EQ(rig_mem_differs(back, 0, LEN, SEED, 0), LEN);
	T_EQ(open_name("tier://s/made", RIG_NEW | PST_FILE_EXCL, &f), -EEXIST);
	pst_file_close(f);
	T_CHECK(is_there(at(nvme, "made")));
	f = open_ok("tier://s/made", RIG_NEW); /* RIG_NEW includes TRUNC */
	T_EQ(rig_file_info(f).size, 0);
	pst_file_close(f);
	pst_mem_free(back);
	pst_mem_free(m);
}

struct mover {
	atomic_bool done;
	atomic_int failed;
};

static void *moves(void *arg)
{
	struct mover *v = arg;

	for (unsigned i = 0; i < MOVES; i++)
		if (tier(i % 2 ? "migrate s a --to nvme" : "migrate s a --to hdd") != 0)
			atomic_fetch_add(&v->failed, 1);
	atomic_store(&v->done, true);
	return NULL;
}

static void readers_go_on_while_it_moves(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	unsigned nr = LEN / BLOCK, rounds = 0;
	struct pst_done d[LEN / BLOCK];
	struct mover v = { 0 };
	struct pst_file *f;
	pthread_t thread;

	make("a");
	f = open_ok("tier://s/a", RIG_R);
	T_EQ(pthread_create(&thread, NULL, moves, &v), 0);
	while (!atomic_load(&v.done) || rounds < 4) {
		for (unsigned i = 0; i < nr; i++) {
			struct pst_io io = rig_io(PST_OP_READ, f, m, i * BLOCK, i * BLOCK, BLOCK);

			T_OK(pst_queue_prep(rig_q, &io));
		}
		T_EQ(pst_queue_submit(rig_q), nr);
		T_EQ(pst_queue_reap(rig_q, d, nr, nr, t_in_ms(RIG_WAIT_MS)), nr);
		for (unsigned i = 0; i < nr; i++)
			T_EQ(d[i].res, BLOCK);
		T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
		rig_mem_fill(m, 0, LEN, OTHER, 0);
		rounds++;
	}
	T_EQ(pthread_join(thread, NULL), 0);
	T_EQ(atomic_load(&v.failed), 0);
	pst_file_close(f);
	pst_mem_free(m);
}

/* A reader that opened the file before a move sees bytes written after the move. */
static void reader_of_before_sees_what_is_written_after(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	struct pst_file *reader, *writer;

	make("a");
	reader = open_ok("tier://s/a", RIG_R);
	T_EQ(rig_read(reader, m, 0, 0, BLOCK).res, BLOCK);
	for (unsigned i = 0; i < 4; i++) {
		uint64_t seed = 100 + i;

		tier_ok(i % 2 ? "migrate s a --to nvme" : "migrate s a --to hdd");
		T_CHECK(is_there(at(i % 2 ? nvme : hdd, "a")));
		T_CHECK(!is_there(at(i % 2 ? hdd : nvme, "a")));
		writer = open_ok("tier://s/a", RIG_RW);
		rig_mem_fill(m, 0, BLOCK, seed, 0);
		T_EQ(rig_write(writer, m, BLOCK, 0, BLOCK).res, BLOCK);
		pst_file_close(writer);
		T_EQ(rig_read(reader, m, BLOCK, BLOCK, BLOCK).res, BLOCK);
		T_EQ(rig_mem_differs(m, BLOCK, BLOCK, seed, 0), BLOCK);
	}
	pst_file_close(reader);
	pst_mem_free(m);
}

static void open_writer_keeps_it_where_it_is(void)
{
	struct pst_file *writer;

	make("a");
	writer = open_ok("tier://s/a", RIG_RW);
	T_CHECK(tier("migrate s a --to hdd") != 0);
	T_CHECK(is_there(at(nvme, "a")) && !is_there(at(hdd, "a")));
	pst_file_close(writer);
	/* The previous process may end a moment later. */
	for (uint64_t end = t_hang(); tier("migrate s a --to hdd") != 0;)
		T_CHECK(t_now() < end);
	T_CHECK(is_there(at(hdd, "a")) && !is_there(at(nvme, "a")));
}

static void deleted_file_keeps_its_bytes(void)
{
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	struct pst_file *f;

	make("a");
	f = open_ok("tier://s/a", RIG_R);
	T_EQ(unlink(at(nvme, "a")), 0);
	/* A different file with the same name appears. */
	T_EQ(rig_read(f, m, 0, 0, LEN).res, LEN);
	T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
	pst_file_close(f);
	pst_mem_free(m);
}

/* Return the accesses that the command counts for a file; -1 if it does not list the file. */
static int accesses_of(const char *name)
{
	char text[8192], key[100], *in;
	size_t n;

	tier_ok("ls s --json");
	n = rig_slurp(rig_path("said"), 0, text, sizeof(text) - 1);
	text[n] = '\0';
	(void)snprintf(key, sizeof(key), "\"%s\"", name);
	in = strstr(text, key);
	in = in ? strstr(in, "\"accesses\":") : NULL;
	return in ? atoi(in + strlen("\"accesses\":")) : -1;
}

static void opens_are_counted(void)
{
	struct pst_file *f[3];

	make("counted");
	for (unsigned i = 0; i < 3; i++)
		f[i] = open_ok("tier://s/counted", RIG_R);
	for (unsigned i = 0; i < 3; i++)
		pst_file_close(f[i]);
	/* Closing runs on another thread, because it may hang. */
	for (uint64_t end = t_hang(); accesses_of("counted") != 3;) {
		T_CHECK(t_now() < end);
		(void)usleep(10000);
	}
}

static void bad_names_are_refused(void)
{
	struct pst_file *f = NULL;

	make("a");
	T_EQ(open_name("tier://s", RIG_R, &f), -EINVAL);
	T_EQ(open_name("tier://s/", RIG_R, &f), -EINVAL);
	T_EQ(open_name("tier:///a", RIG_R, &f), -EINVAL);
	T_EQ(open_name("tier://none/a", RIG_R, &f), -ENOENT);
	T_EQ(open_name("tier://../a", RIG_R, &f), -EINVAL);
	T_EQ(open_name("tier://s/../a", RIG_R, &f), -EINVAL);
	T_EQ(open_name("tier://s//etc/passwd", RIG_R, &f), -EINVAL);
	T_EQ(open_name("tier://s/.tier/id", RIG_R, &f), -EINVAL);
	T_EQ(open_name("tier://s/nothing", RIG_R, &f), -ENOENT);
	(void)unlink(at(nvme, "link"));
	T_EQ(symlink("/nonexistent/file", at(nvme, "link")), 0);
	T_EQ(open_name("tier://s/link", RIG_R, &f), -ELOOP);
	T_EQ(open_name("tier://s/link", RIG_NEW, &f), -ELOOP);
	(void)unlink(at(nvme, "pipe"));
	T_EQ(mkfifo(at(nvme, "pipe"), 0600), 0);
	T_EQ(open_name("tier://s/pipe", RIG_R, &f), -EINVAL);
	(void)mkdir(at(nvme, "folder"), 0700);
	T_EQ(open_name("tier://s/folder", RIG_R, &f), -EINVAL);
	(void)unlink(at(nvme, "link"));
	(void)unlink(at(nvme, "pipe"));
}

static void missing_disk_is_named(void)
{
	struct pst_file *f = NULL;

	make("a");
	tier_ok("migrate s a --to hdd");
	T_EQ(rename(at(hdd, ".tier"), at(hdd, "aside")), 0);
	T_EQ(open_name("tier://s/a", RIG_R, &f), -ENODEV);
	T_CHECK(strstr(pst_error_text(), hdd));
	T_EQ(rename(at(hdd, "aside"), at(hdd, ".tier")), 0);
	f = open_ok("tier://s/a", RIG_R);
	pst_file_close(f);
}

int main(void)
{
	char words[1000];

	rig_init();
	if (!getenv("PENSTOCK")) {
		puts("1..0 # SKIP the command penstock");
		return 0;
	}
	(void)setenv("PST_TIER_DIR", rig_path("state"), 1);
	(void)snprintf(nvme, sizeof(nvme), "%s", rig_path("nvme"));
	(void)snprintf(hdd, sizeof(hdd), "%s", rig_path("hdd"));
	T_EQ(mkdir(nvme, 0700), 0);
	T_EQ(mkdir(hdd, 0700), 0);
	(void)snprintf(words, sizeof(words), "init s --nvme %s --hdd %s --same-filesystem", nvme,
		       hdd);
	tier_ok(words);
	RIG_RUN(files_are_made_and_read);
	RIG_RUN(readers_go_on_while_it_moves);
	RIG_RUN(reader_of_before_sees_what_is_written_after);
	RIG_RUN1(open_writer_keeps_it_where_it_is);
	RIG_RUN(deleted_file_keeps_its_bytes);
	RIG_RUN1(opens_are_counted);
	RIG_RUN1(bad_names_are_refused);
	RIG_RUN1(missing_disk_is_named);
	return rig_done();
}
