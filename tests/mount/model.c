/* SPDX-License-Identifier: MIT */
/*
 * A random checker of a file system: runs operations on a directory, and compares it with a model
 * in memory.
 *
 * mount-model [--seed N] [--ops N] [--trace] [--patient] [--tiers] DIR [SRC [PID]]
 *
 * SRC is the directory that the mount DIR shows.  With SRC, everything is also checked there, and
 * sometimes a burst of operations goes through SRC.  After a burst, bytes must be right when a file
 * is next opened through DIR; attributes and names may be STALE_MS old, so the checker waits.  With
 * --patient it also waits for bytes.  With --tiers DIR is a set of tiers, which has no links, and
 * whose files may move at any time.
 *
 * A seed gives the same operations each time: only the random numbers and the model choose them,
 * not the clock.  Without --seed there are two rounds, one with a fixed seed and one with a random
 * one.  PST_SOAK=1 makes them long.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdarg.h>
#include <sys/xattr.h>

#include "model.h"
#include "scratch.h"
#include "t.h"

#define OPS 2000u
#define OPS_SOAK 100000u
#define LOOK_EVERY 400u  /* operations between two checks of everything */
#define BURST_EVERY 500u /* operations between two bursts */
#define BURSTS 16u
#define BURST_LEN 25u
#define STALE_MS 1200u

struct model model;

static uint64_t seed, dice_state, nr_ops, op;
static bool trace, patient, tiers, had_rings;
static char deed[3 * TREE_PATH];
static char bases[2][PATH_MAX];
static const char *dir, *src;

static const struct deed {
	void (*fn)(void);
	unsigned weight;
	unsigned kind;
} deeds[] = {
	{ deed_open, 60, DEED_NAMES },      { deed_mkdir, 12, DEED_NAMES },
	{ deed_rmdir, 6, DEED_NAMES },      { deed_unlink, 30, DEED_NAMES },
	{ deed_rename, 40, DEED_NAMES },    { deed_link, 20, DEED_NAMES },
	{ deed_symlink, 8, DEED_NAMES },    { deed_reopen, 10, DEED_BYTES },
	{ deed_close, 10, DEED_BYTES },     { deed_pread, 60, DEED_BYTES },
	{ deed_pwrite, 80, DEED_BYTES },    { deed_append, 20, DEED_BYTES },
	{ deed_ftruncate, 20, DEED_BYTES }, { deed_truncate, 10, DEED_BYTES },
	{ deed_fallocate, 30, DEED_BYTES }, { deed_copy, 20, DEED_BYTES },
	{ deed_seek, 10, DEED_BYTES },      { deed_map, 20, DEED_BYTES },
	{ deed_map_write, 30, DEED_BYTES }, { deed_map_read, 20, DEED_BYTES },
	{ deed_ring_read, 60, DEED_BYTES }, { deed_ring_write, 60, DEED_BYTES },
	{ deed_direct, 3, DEED_LOOKS },     { deed_source_read, 10, DEED_LOOKS },
	{ deed_chmod, 10, DEED_ATTRS },     { deed_utimens, 15, DEED_ATTRS },
	{ deed_setxattr, 20, DEED_ATTRS },  { deed_removexattr, 8, DEED_ATTRS },
	{ deed_getxattr, 10, DEED_LOOKS },  { deed_stat, 40, DEED_LOOKS },
	{ deed_fstat, 20, DEED_LOOKS },     { deed_readlink, 8, DEED_LOOKS },
	{ deed_readdir, 15, DEED_LOOKS },
};

/* ------------------------------------------------------------------- dice */

uint64_t dice(void)
{
	uint64_t x = dice_state += 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

unsigned below(size_t n)
{
	return (unsigned)(dice() % n);
}

bool one_in(unsigned n)
{
	return below(n) == 0;
}

/* --------------------------------------------------------------- verdicts */

/* Print a name with C's escapes; abbreviate a long run of one letter by its length. */
static void print_plain(const char *s)
{
	for (; *s; s++) {
		size_t row = strspn(s, (const char[]){ *s, '\0' });

		if (row > 20) {
			printf("%c*%zu", *s, row);
			s += row - 1;
		} else if (isprint((unsigned char)*s)) {
			(void)putchar(*s);
		} else {
			printf("\\%03o", (unsigned char)*s);
		}
	}
}

void deed_is(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(deed, sizeof(deed), fmt, ap);
	va_end(ap);
	if (!trace)
		return;
	printf("# %" PRIu64 "%s: ", op, model.view == VIEW_SOURCE ? " (source)" : "");
	print_plain(deed);
	printf("\n");
}

_Noreturn void differs(const char *fmt, ...)
{
	char why[2000];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	printf("# seed %" PRIu64 " operation %" PRIu64 "%s: ", seed, op,
	       model.view == VIEW_SOURCE ? " through the source" : "");
	print_plain(deed);
	printf("\n# ");
	print_plain(why);
	printf("\n");
	T_FAIL("--seed %" PRIu64 " --ops %" PRIu64, seed, nr_ops);
}

bool ended_either(long result, int should, int or_else)
{
	int is = result < 0 ? errno : 0;

	if (is != should && is != or_else)
		differs("it gave %s and should give %s", is ? strerrorname_np(is) : "success",
			should ? strerrorname_np(should) : "success");
	return is == 0;
}

bool ended(long result, int should)
{
	return ended_either(result, should, should);
}

/* ------------------------------------------------------------------ paths */

const char *full(enum view view, const char *path)
{
	static char paths[3][2 * PATH_MAX];
	static unsigned turn;
	char *p = paths[turn++ % 3];

	(void)snprintf(p, sizeof(paths[0]), "%s/%s", model.base[view], path);
	return p;
}

/* Make a path of several names, which may lead through files and links, or nowhere. */
static void any_path(char ret[TREE_PATH])
{
	unsigned parts = 1 + below(4), at = 0;

	for (unsigned i = 0; i < parts; i++) {
		const char *part = i + 1 < parts && one_in(4) ? (one_in(2) ? "." : "..")
							      : tree_name(below(TREE_NAMES));

		at += (unsigned)snprintf(ret + at, TREE_PATH - at, "%s%s", i ? "/" : "", part);
	}
}

static struct node *some_dir(void)
{
	unsigned n = below(tree_nr_dirs);

	for (unsigned i = 0;; i++)
		if (tree_all[i]->kind == NODE_DIR && n-- == 0)
			return tree_all[i];
}

void some_path(bool there, char ret[TREE_PATH])
{
	struct node *d = some_dir();
	unsigned slot = below(TREE_NAMES);

	if (one_in(10)) {
		any_path(ret);
		return;
	}
	if (there && !one_in(10) && !node_is_empty(d))
		while (!d->slot[slot])
			slot = (slot + 1) % TREE_NAMES;
	tree_path(d, slot, ret);
}

bool some_file(char ret[TREE_PATH])
{
	unsigned first = below(tree_nr), slot = below(TREE_NAMES);

	for (unsigned i = 0; i < tree_nr; i++) {
		struct node *d = tree_all[(first + i) % tree_nr];

		for (unsigned k = 0; d->kind == NODE_DIR && k < TREE_NAMES; k++) {
			unsigned s = (slot + k) % TREE_NAMES;

			if (d->slot[s] && d->slot[s]->kind == NODE_FILE) {
				tree_path(d, s, ret);
				return true;
			}
		}
	}
	return false;
}

/* ------------------------------------------------------------------ times */

/* Return the kernel's coarse clock, which file systems use. */
struct timespec time_before(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_REALTIME_COARSE, &ts);
	return ts;
}

void time_since(struct node *node, struct timespec before)
{
	node->time = TIME_SINCE;
	node->mtime = before;
}

/* ------------------------------------------------------------------ rounds */

static void do_deed(unsigned kinds)
{
	unsigned sum = 0, n;

	for (size_t i = 0; i < sizeof(deeds) / sizeof(*deeds); i++)
		sum += deeds[i].kind & kinds ? deeds[i].weight : 0;
	n = below(sum);
	for (size_t i = 0;; i++) {
		unsigned weight = deeds[i].kind & kinds ? deeds[i].weight : 0;

		if (n < weight) {
			deeds[i].fn();
			return;
		}
		n -= weight;
	}
}

/* Run operations through the source; then check what the mount must know at once and after a
 * wait. */
static void burst(void)
{
	unsigned kinds = one_in(2) ? DEED_BYTES : DEED_NAMES | DEED_ATTRS;

	if (kinds & DEED_BYTES)
		handles_close();
	model.view = VIEW_SOURCE;
	model.burst = kinds;
	for (unsigned i = 0; i < BURST_LEN && op < nr_ops; i++, op++)
		do_deed(kinds);
	if (kinds & DEED_BYTES)
		handles_close();
	model.burst = 0;
	model.view = VIEW_MOUNT;
	if (kinds & DEED_BYTES && !patient)
		check_files(VIEW_MOUNT);
	(void)usleep(STALE_MS * 1000);
	check_all(VIEW_MOUNT);
}

static void look(void)
{
	check_all(VIEW_MOUNT);
	if (model.has_source)
		check_all(VIEW_SOURCE);
}

/* Find out which operations the file system lacks, to leave them out. */
static void probe(void)
{
	int fd = open(full(VIEW_SOURCE, "probe"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	T_CHECK(fd >= 0);
	model.has_xattrs = fsetxattr(fd, "user.a", "a", 1, 0) == 0;
	model.has_zero_range = fallocate(fd, FALLOC_FL_ZERO_RANGE, 0, 4096) == 0;
	model.has_punch = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0;
	(void)close(fd);
	T_EQ(unlink(full(VIEW_SOURCE, "probe")), 0);
}

static void begin(void)
{
	dice_state = seed;
	op = 0;
	model = (struct model){ .has_source = src != NULL, .tiers = tiers };
	for (unsigned i = 0; i < MODEL_HANDLES; i++)
		model.handles[i].fd = -1;
	(void)snprintf(bases[VIEW_MOUNT], PATH_MAX, "%s/model-XXXXXX", dir);
	if (!mkdtemp(bases[VIEW_MOUNT]) || chmod(bases[VIEW_MOUNT], 0755) < 0)
		T_FAIL("%.200s: %s", bases[VIEW_MOUNT], strerror(errno));
	(void)snprintf(bases[VIEW_SOURCE], PATH_MAX, "%s/%s", src ? src : dir,
		       strrchr(bases[VIEW_MOUNT], '/') + 1);
	model.base[VIEW_MOUNT] = bases[VIEW_MOUNT];
	model.base[VIEW_SOURCE] = bases[VIEW_SOURCE];
	probe();
	rings_end(); /* end the rings of a failed round */
	if (rings_begin(bases[VIEW_MOUNT]) && !had_rings) {
		had_rings = true;
		/* The library keeps 3fs-virt/iovs of the mount open. */
		t_fds_at_start++;
	}
	tree_done(); /* free the tree of a failed round */
	tree_init();
}

static void run(void)
{
	uint64_t every = nr_ops / BURSTS > BURST_EVERY ? nr_ops / BURSTS : BURST_EVERY;
	uint64_t next_burst = every / 2, next_look = LOOK_EVERY;

	begin();
	while (op < nr_ops) {
		if (src && op >= next_burst) {
			burst();
			next_burst += every;
		} else {
			do_deed(~0u);
			op++;
		}
		if (op >= next_look) {
			look();
			next_look += LOOK_EVERY;
		}
	}
	handles_close();
	look();
	rings_end();
	tree_done();
	T_EQ(scratch_remove(model.base[VIEW_MOUNT]), 0);
}

static void fixed_seed(void)
{
	seed = 1;
	run();
}

static void random_seed(void)
{
	seed = t_now() % 1000000000u;
	printf("# seed %" PRIu64 "\n", seed);
	run();
}

static void this_seed(void)
{
	run();
}

int main(int argc, char **argv)
{
	const char *soak = getenv("PST_SOAK");
	bool given = false;
	int i = 1;

	nr_ops = soak && *soak ? OPS_SOAK : OPS;
	for (; i < argc && argv[i][0] == '-'; i++) {
		if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
			seed = strtoull(argv[++i], NULL, 10);
			given = true;
		} else if (strcmp(argv[i], "--ops") == 0 && i + 1 < argc) {
			nr_ops = strtoull(argv[++i], NULL, 10);
		} else if (strcmp(argv[i], "--trace") == 0) {
			trace = true;
		} else if (strcmp(argv[i], "--patient") == 0) {
			patient = true;
		} else if (strcmp(argv[i], "--tiers") == 0) {
			tiers = true;
		} else {
			break;
		}
	}
	if (i >= argc || argv[i][0] == '-') {
		(void)fprintf(stderr,
			      "usage: mount-model [--seed N] [--ops N] [--trace] [--patient] "
			      "[--tiers] DIR [SRC]\n");
		return 2;
	}
	dir = argv[i];
	src = i + 1 < argc ? argv[i + 1] : NULL;
	(void)umask(022);
	if (given) {
		T_RUN(this_seed);
		return t_done();
	}
	T_RUN(fixed_seed);
	T_RUN(random_seed);
	return t_done();
}
