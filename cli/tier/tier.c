/* SPDX-License-Identifier: MIT */
/* penstock tier: directories with classes as one set of files, and moves between them. */
#include "cli/tier/tier.h"

#include <getopt.h>

#include "base/err.h"
#include "cli/commands.h"
#include "tools/common/shown.h"
#include "tools/common/util.h"

const char tier_usage[] =
	"Usage: penstock tier SUBCOMMAND SET [NAME...] [OPTION...]\n"
	"\n"
	"A set is one name space over directories of the classes nvme, ssd and hdd.\n"
	"A file is below one of them, with the same path there as in the set.  Below\n"
	"hdd, a set may have the class object: a prefix of a bucket of S3 or Ceph.\n"
	"Subcommands:\n"
	"\n"
	"  init              make a set: --nvme, --ssd and --hdd name its directories\n"
	"                    (default: /nvme, /ssd and /hdd)\n"
	"  status            say what the set has and whether all is well\n"
	"  ls                list files, with class, size, accesses and checksum\n"
	"  df                show the room of each directory\n"
	"  pin               keep files where they are\n"
	"  unpin             let files move again\n"
	"  migrate           move what the policy says, or the files that are named\n"
	"                    to the class --to\n"
	"  scrub             read every file and compare it with its checksum\n"
	"  run               move what the policy says, again and again, and let other\n"
	"                    programs' I/O go first; until a signal ends it\n"
	"  watch             show moves while they run\n"
	"\n"
	"  --nvme DIR        init: a directory of this class, with a file system of its\n"
	"                    own; may be given several times\n"
	"  --ssd DIR         init: the same\n"
	"  --hdd DIR         init: the same\n"
	"  --object URL      init: s3://BUCKET/PREFIX as the class object; needs\n"
	"                    --quota object:BYTES; only the set may write there\n"
	"  --policy P        init: lru, arc, s3fifo or literal (default arc)\n"
	"  --quota LIST      init: bytes of a class, such as nvme:500g,ssd:2t\n"
	"  --rate LIST       init: bytes per second of moves, such as hdd:100m\n"
	"  --water LIST      init: per cent of a class from which files leave it, and\n"
	"                    at which they stop, such as nvme:90-80 (default for all)\n"
	"  --same-filesystem\n"
	"                    init: directories may be on one file system\n"
	"  --to CLASS        migrate: nvme, ssd, hdd or object\n"
	"  --rebuild         scrub: make a damaged catalogue again first\n"
	"  --every SECONDS   run: wait so long between two rounds (default 60)\n"
	"  --svg FILE        status: also draw what moves measured on each directory\n"
	"  --json            status, ls, df: one JSON object instead of a table;\n"
	"                    watch: one for each move that ends\n";

enum {
	NVME = 256,
	SSD,
	HDD,
	OBJECT,
	POLICY,
	QUOTA,
	RATE,
	WATER,
	SAME,
	TO,
	REBUILD,
	EVERY,
	SVG,
	JSON
};

static const struct option longs[] = {
	{ "nvme", required_argument, NULL, NVME },
	{ "ssd", required_argument, NULL, SSD },
	{ "hdd", required_argument, NULL, HDD },
	{ "object", required_argument, NULL, OBJECT },
	{ "policy", required_argument, NULL, POLICY },
	{ "quota", required_argument, NULL, QUOTA },
	{ "rate", required_argument, NULL, RATE },
	{ "water", required_argument, NULL, WATER },
	{ "same-filesystem", no_argument, NULL, SAME },
	{ "to", required_argument, NULL, TO },
	{ "rebuild", no_argument, NULL, REBUILD },
	{ "every", required_argument, NULL, EVERY },
	{ "svg", required_argument, NULL, SVG },
	{ "json", no_argument, NULL, JSON },
	{ 0 },
};

static const struct sub {
	const char *name;
	bool names, json, init;
} subs[] = {
	{ "init", false, false, true },    { "status", false, true, false },
	{ "ls", false, true, false },      { "df", false, true, false },
	{ "pin", true, false, false },     { "unpin", true, false, false },
	{ "migrate", true, false, false }, { "scrub", false, false, false },
	{ "run", false, false, false },    { "watch", false, true, false },
};

int fail_tier(int err)
{
	return fail(err, "%s", err_text());
}

int tier_open_locked(const char *name, struct tier_set **ret)
{
	_cleanup_(set_closep) struct tier_set *set = NULL;
	struct recover_counts recovered;
	struct scan_counts scanned;
	int r = set_open(name, &set);

	if (r == 0)
		r = set_lock(set);
	if (r == 0)
		r = recover_set(set, &recovered);
	if (r == 0)
		r = scan_set(set, &scanned);
	if (r < 0)
		return fail_tier(r);
	if (recovered.waiting)
		say("a move that was interrupted cannot be ended: %s", recovered.why);
	*ret = TAKE_PTR(set);
	return 0;
}

int tier_open_look(const char *name, struct tier_set **ret, struct tier_look *look)
{
	_cleanup_(set_closep) struct tier_set *set = NULL;
	int r = set_open(name, &set);

	*look = (struct tier_look){ 0 };
	if (r == 0)
		r = set_try_lock(set);
	look->busy = r == -EWOULDBLOCK;
	if (r == 0)
		r = recover_set(set, &look->recovered);
	if (r == 0)
		r = scan_set(set, &look->scan);
	if (r < 0 && !look->busy)
		return fail_tier(r);
	*ret = TAKE_PTR(set);
	return 0;
}

const char *tier_root_class(const struct tier_set *set, unsigned root)
{
	return root < set->nr_roots ? tier_class_name(set->roots[root].class) : "?";
}

/* --------------------------------------------------------------- options */

static int add_root(struct tier_set *set, enum tier_class class, const char *path)
{
	struct tier_root *root = &set->roots[set->nr_roots];

	if (set->nr_roots == TIER_ROOTS_MAX)
		return usage_error("a set has %u directories at most", TIER_ROOTS_MAX);
	if (strlen(path) >= sizeof(root->path))
		return usage_error("the path of a directory is too long");
	root->class = class;
	root->fd = -1;
	(void)snprintf(root->path, sizeof(root->path), "%s", path);
	set->nr_roots++;
	return 0;
}

/* Parse "CLASS:VALUE,...", passing each value to one(). */
static int each_class(const char *text, int (*one)(struct tier_limits *l, const char *value),
		      struct tier_set *set)
{
	_cleanup_(freep) char *copy = strdup(text);
	char *rest = copy, *part;

	if (!copy)
		return -ENOMEM;
	while ((part = strsep(&rest, ","))) {
		char *colon = strchr(part, ':');
		enum tier_class class;

		if (!colon)
			return -EINVAL;
		*colon = '\0';
		if (tier_class_find(part, &class) < 0 || one(&set->limits[class], colon + 1) < 0)
			return -EINVAL;
	}
	return 0;
}

static int set_quota(struct tier_limits *l, const char *value)
{
	return parse_size(value, &l->quota);
}

static int set_rate(struct tier_limits *l, const char *value)
{
	return parse_size(value, &l->rate);
}

static int set_water(struct tier_limits *l, const char *value)
{
	int end = 0;

	if (sscanf(value, "%u-%u%n", &l->high, &l->low, &end) != 2 || value[end] ||
	    l->low >= l->high || l->high > 100)
		return -EINVAL;
	return 0;
}

static int option_class(int c, struct tier_opts *o)
{
	switch (c) {
	case NVME:
		return add_root(o->init, TIER_NVME, optarg);
	case SSD:
		return add_root(o->init, TIER_SSD, optarg);
	case HDD:
		return add_root(o->init, TIER_HDD, optarg);
	case OBJECT:
		return add_root(o->init, TIER_OBJECT, optarg);
	case QUOTA:
		if (each_class(optarg, set_quota, o->init) < 0)
			return usage_error("--quota wants classes and bytes, such as nvme:500g");
		return 0;
	case RATE:
		if (each_class(optarg, set_rate, o->init) < 0)
			return usage_error("--rate wants classes and bytes, such as hdd:100m");
		return 0;
	default:
		if (each_class(optarg, set_water, o->init) < 0)
			return usage_error(
				"--water wants classes and per cent, such as nvme:90-80");
		return 0;
	}
}

static int tier_option(int c, struct tier_opts *o, char *argv[])
{
	uint64_t nr;

	switch (c) {
	case NVME:
	case SSD:
	case HDD:
	case OBJECT:
	case QUOTA:
	case RATE:
	case WATER:
		return option_class(c, o);
	case POLICY:
		o->policy = optarg;
		if (!tier_policy_find(optarg))
			return usage_error("no policy is called '%s': lru, arc, s3fifo or literal",
					   optarg);
		return 0;
	case TO:
		o->has_to = true;
		if (tier_class_find(optarg, &o->to) < 0)
			return usage_error("--to wants nvme, ssd, hdd or object");
		return 0;
	case SAME:
		o->same_fs = true;
		return 0;
	case REBUILD:
		o->rebuild = true;
		return 0;
	case EVERY:
		if (parse_number(optarg, 1, 86400, &nr) < 0)
			return usage_error("--every wants seconds, 1 to 86400");
		o->every_s = (unsigned)nr;
		return 0;
	case SVG:
		o->svg = optarg;
		return 0;
	case JSON:
		o->json = true;
		return 0;
	default:
		return option_error(argv, longs, c);
	}
}

/* Reject options that the subcommand does not use, instead of ignoring them silently. */
static int check_options(const struct sub *sub, const struct tier_opts *o)
{
	const struct tier_set *set = o->init;
	bool limits = false;

	for (unsigned i = 0; i < TIER_CLASSES; i++)
		limits |= set->limits[i].quota || set->limits[i].rate ||
			  set->limits[i].high != 90 || set->limits[i].low != 80;
	if (!sub->init && (set->nr_roots || limits || o->policy || o->same_fs))
		return usage_error("directories, --policy, --quota, --rate, --water and "
				   "--same-filesystem are for init");
	if (o->json && !sub->json)
		return usage_error("--json is for status, ls, df and watch");
	if (o->svg && strcmp(sub->name, "status") != 0)
		return usage_error("--svg is for status");
	if (o->every_s && strcmp(sub->name, "run") != 0)
		return usage_error("--every is for run");
	if (o->rebuild && strcmp(sub->name, "scrub") != 0)
		return usage_error("--rebuild is for scrub");
	if (o->has_to && strcmp(sub->name, "migrate") != 0)
		return usage_error("--to is for migrate");
	return 0;
}

/* -------------------------------------------------------------- commands */

static int tier_run_command(const struct sub *sub, const char *name, const struct tier_opts *o,
			    char *files[], int nr)
{
	if (nr && !sub->names)
		return usage_error("%s takes the name of a set and no more", sub->name);
	switch (sub - subs) {
	case 0:
		return tier_init(name, o);
	case 1:
		return tier_status(name, o);
	case 2:
		return tier_ls(name, o);
	case 3:
		return tier_df(name, o);
	case 4:
	case 5:
		if (!nr)
			return usage_error("name the files to %s", sub->name);
		return tier_pin(name, sub == &subs[4], files, nr);
	case 6:
		if (!nr != !o->has_to)
			return usage_error("migrate takes names and --to CLASS, or neither");
		return tier_migrate(name, o, files, nr);
	case 7:
		return tier_scrub(name, o);
	case 8:
		return tier_run(name, o);
	default:
		return tier_watch(name, o);
	}
}

static int tier_parse(const struct sub *sub, int argc, char *argv[], struct tier_opts *o)
{
	int c, r = 0;

	opterr = 0;
	while (r == 0 && (c = getopt_long(argc, argv, ":", longs, NULL)) != -1)
		r = tier_option(c, o, argv);
	return r ? r : check_options(sub, o);
}

int cmd_tier(int argc, char *argv[])
{
	_cleanup_(freep) struct tier_set *init = calloc(1, sizeof(*init));
	struct tier_opts o = { .init = init };
	const struct sub *sub = NULL;
	int r;

	if (!init)
		return exit_status(fail(ENOMEM, "out of memory"));
	for (unsigned i = 0; i < TIER_CLASSES; i++)
		init->limits[i] = (struct tier_limits){ .low = 80, .high = 90 };
	if (argc > 1)
		for (size_t i = 0; i < ARRAY_SIZE(subs); i++)
			if (!strcmp(argv[1], subs[i].name))
				sub = &subs[i];
	if (!sub && argc > 1 && argv[1][0] != '-') {
		const char *meant = nearest(argv[1], strlen(argv[1]), &subs[0].name,
					    sizeof(subs[0]), ARRAY_SIZE(subs));

		return meant ? usage_error("there is no subcommand '%s'; did you mean %s?", argv[1],
					   meant)
			     : usage_error("there is no subcommand '%s'", argv[1]);
	}
	/* If the subcommand is missing, first report a wrong option. */
	r = tier_parse(sub ? sub : &subs[0], argc, argv, &o);
	if (r)
		return r;
	if (!sub)
		return usage_error("give a subcommand, such as status");
	if (argc - optind < 2)
		return usage_error("give the name of a set");
	signals_catch();
	return exit_status(
		tier_run_command(sub, argv[optind + 1], &o, argv + optind + 2, argc - optind - 2));
}
