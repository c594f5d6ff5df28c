/* SPDX-License-Identifier: MIT */
/* penstock kv: list and verify the blocks of a store, and drop those of a tenant. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>

#include <penstock_kv.h>

#include "cli/commands.h"
#include "tools/common/util.h"

const char kv_usage[] =
	"Usage: penstock kv SUBCOMMAND DIR... [OPTION...]\n"
	"\n"
	"DIR are the directories of a store of blocks, all of them and in the order in\n"
	"which its owner opens them.  See penstock-kv(1).  Subcommands:\n"
	"\n"
	"  stat              count blocks and bytes of each identity and tenant, and\n"
	"                    show the bounds of the process that owned the store last\n"
	"  ls                list blocks: bytes, last use, tenant, identity, key\n"
	"  verify            read each block and check it; name those that are wrong\n"
	"  drop              remove all blocks of --identity, of --tenant or of both\n"
	"\n"
	"  --prometheus      stat: print metrics in the text format of Prometheus\n"
	"  --identity TEXT   drop: the identity\n"
	"  --tenant TEXT     drop: the tenant\n";

enum { IDENTITY = 256, TENANT, PROMETHEUS };

#define SPACES_MAX PST_KV_SPACES_MAX

struct sum {
	char *identity, *tenant;
	uint64_t blocks, bytes;
};

struct seen {
	struct sum sums[SPACES_MAX];
	unsigned nr;
	uint64_t blocks, bytes, wrong;
};

static bool kv_same(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

static const char *words(const char *text)
{
	return text ? text : "?";
}

static char *kv_keep(const char *text)
{
	return text ? strdup(text) : NULL;
}

static int kv_count(void *arg, const struct pst_kv_block *b)
{
	struct seen *s = arg;
	struct sum *sum = s->sums;

	s->blocks++;
	s->bytes += b->len;
	s->wrong += b->err != 0;
	while (sum < s->sums + s->nr &&
	       (!kv_same(sum->identity, b->identity) || !kv_same(sum->tenant, b->tenant)))
		sum++;
	if (sum == s->sums + SPACES_MAX)
		return 0;
	if (sum == s->sums + s->nr) {
		s->nr++;
		sum->identity = kv_keep(b->identity);
		sum->tenant = kv_keep(b->tenant);
	}
	sum->blocks++;
	sum->bytes += b->len;
	return 0;
}

/* Print a key as text, or in hexadecimal digits if it is not printable. */
static void print_key(const struct pst_kv_block *b)
{
	const unsigned char *key = b->key;
	bool text = b->key_len;

	for (uint64_t i = 0; i < b->key_len; i++)
		text = text && key[i] > ' ' && key[i] < 0x7f;
	if (!text && b->key_len)
		(void)fputs("0x", stdout);
	for (uint64_t i = 0; i < b->key_len; i++)
		(void)printf(text ? "%c" : "%02x", key[i]);
	(void)putchar('\n');
}

static int kv_list(void *arg, const struct pst_kv_block *b)
{
	(void)arg;
	if (b->err) {
		(void)printf("%12s  %10" PRIu64 "  %s  %s: %s\n", "-", b->used_s, words(b->tenant),
			     b->path, strerror(-b->err));
		return 0;
	}
	(void)printf("%12" PRIu64 "  %10" PRIu64 "  '%s'  '%s'  ", b->len, b->used_s,
		     words(b->tenant), words(b->identity));
	print_key(b);
	return stop_signal ? -EINTR : 0;
}

static int kv_verify(void *arg, const struct pst_kv_block *b)
{
	struct seen *s = arg;

	s->blocks++;
	s->bytes += b->len;
	if (b->err) {
		s->wrong++;
		(void)printf("%s: %s\n", b->path, strerror(-b->err));
	}
	return stop_signal ? -EINTR : 0;
}

/* Print a label's value in quotes, with the escapes of Prometheus' format. */
static void print_label(const char *name, const char *text)
{
	(void)printf("%s=\"", name);
	for (const char *c = words(text); *c; c++) {
		if (*c == '\n')
			(void)fputs("\\n", stdout);
		else
			(void)printf(*c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
	}
	(void)putchar('"');
}

/* Print the HELP and TYPE lines that precede a metric's values. */
static void kv_print_help(const char *name, const char *help)
{
	(void)printf("# HELP penstock_kv_%s %s\n# TYPE penstock_kv_%s gauge\n", name, help, name);
}

static void print_metric(const char *name, const char *help, uint64_t value)
{
	kv_print_help(name, help);
	(void)printf("penstock_kv_%s %" PRIu64 "\n", name, value);
}

static void print_family(const struct seen *s, const char *name, const char *help, size_t member)
{
	kv_print_help(name, help);
	for (unsigned i = 0; i < s->nr; i++) {
		const struct sum *sum = &s->sums[i];

		(void)printf("penstock_kv_%s{", name);
		print_label("tenant", sum->tenant);
		(void)putchar(',');
		print_label("identity", sum->identity);
		(void)printf("} %" PRIu64 "\n", *(const uint64_t *)((const char *)sum + member));
	}
}

static void print_metrics(const struct seen *s)
{
	print_family(s, "blocks", "Blocks on disk.", offsetof(struct sum, blocks));
	print_family(s, "bytes", "Bytes of the blocks on disk.", offsetof(struct sum, bytes));
	print_metric("wrong_blocks", "Blocks whose foot is wrong.", s->wrong);
}

static void print_sums(const struct seen *s)
{
	for (unsigned i = 0; i < s->nr; i++) {
		const struct sum *sum = &s->sums[i];

		(void)printf("%8" PRIu64 " blocks  %10s  tenant '%s'  identity '%s'\n", sum->blocks,
			     size_text(sum->bytes).s, words(sum->tenant), words(sum->identity));
	}
}

static int fail_kv(int r)
{
	return fail(-r, "%s", pst_kv_error_text());
}

/* Read the bounds that the store's last owner had.  A bound of 0 is unknown. */
static int kv_bounds(const char *const *dirs, unsigned nr, struct pst_kv_stat *ret)
{
	struct pst_kv_opts o = { .sz = sizeof(o), .flags = PST_KV_READER, .threads = 1 };
	struct pst_kv *kv;
	int r = pst_kv_open(dirs, nr, &o, &kv);

	*ret = (struct pst_kv_stat){ .sz = sizeof(*ret) };
	if (r == 0) {
		r = pst_kv_stat(kv, ret);
		pst_kv_close(kv);
	}
	return r;
}

static int kv_show(const char *const *dirs, unsigned nr, const char *sub, bool metrics)
{
	struct seen *s = calloc(1, sizeof(*s));
	bool check = !strcmp(sub, "verify"), stat = !strcmp(sub, "stat");
	struct pst_kv_stat st = { .sz = sizeof(st) };
	int r;

	if (!s)
		return fail(ENOMEM, "out of memory");
	r = pst_kv_walk(dirs, nr, check,
			check                ? kv_verify
			: !strcmp(sub, "ls") ? kv_list
					     : kv_count,
			s);
	if (r == -EINTR)
		r = 0;
	if (r == 0 && stat)
		r = kv_bounds(dirs, nr, &st);
	if (r < 0)
		r = fail_kv(r);
	if (!metrics)
		print_sums(s);
	else if (r == 0)
		print_metrics(s);
	if (r == 0 && metrics && st.max_blocks) {
		print_metric("budget", "Bytes of budget, by the last owner.", st.budget);
		print_metric("max_blocks", "Bound of the number of blocks, by the last owner.",
			     st.max_blocks);
	}
	for (unsigned i = 0; i < s->nr; i++) {
		free(s->sums[i].identity);
		free(s->sums[i].tenant);
	}
	if (r == 0 && !metrics && strcmp(sub, "ls") != 0)
		(void)printf("%" PRIu64 " blocks, %s, %" PRIu64 " wrong\n", s->blocks,
			     size_text(s->bytes).s, s->wrong);
	if (r == 0 && !metrics && st.max_blocks)
		(void)printf("bounds of the last owner: %s, %" PRIu64
			     " blocks, for which the index takes %s of memory at most\n",
			     size_text(st.budget).s, st.max_blocks,
			     size_text(st.max_blocks * PST_KV_INDEX_BYTES).s);
	if (r == 0 && check && s->wrong)
		r = fail(EBADMSG, "%" PRIu64 " blocks are wrong; each is a miss to its engine",
			 s->wrong);
	free(s);
	return r;
}

static int kv_drop(const char *const *dirs, unsigned nr, const char *identity, const char *tenant)
{
	/* Use the largest budget, so that nothing is evicted. */
	struct pst_kv_opts o = { .sz = sizeof(o), .budget = INT64_MAX };
	struct pst_kv *kv;
	int r = pst_kv_open(dirs, nr, &o, &kv);

	if (r < 0)
		return fail_kv(r);
	r = pst_kv_drop(kv, identity, tenant);
	if (r < 0)
		r = fail_kv(r);
	else
		(void)printf("%d spaces were emptied\n", r);
	pst_kv_close(kv);
	return r < 0 ? r : 0;
}

int cmd_kv(int argc, char *argv[])
{
	static const struct option longs[] = {
		{ "identity", required_argument, NULL, IDENTITY },
		{ "tenant", required_argument, NULL, TENANT },
		{ "prometheus", no_argument, NULL, PROMETHEUS },
		{ 0 },
	};
	const char *identity = NULL, *tenant = NULL, *sub;
	const char *const *dirs;
	unsigned nr;
	bool drops, metrics = false;
	int opt;

	while ((opt = getopt_long(argc, argv, ":", longs, NULL)) != -1) {
		if (opt == IDENTITY)
			identity = optarg;
		else if (opt == TENANT)
			tenant = optarg;
		else if (opt == PROMETHEUS)
			metrics = true;
		else
			return option_error(argv, longs, opt);
	}
	if (argc - optind < 2)
		return usage_error("give a subcommand and the directories of a store");
	sub = argv[optind];
	dirs = (const char *const *)&argv[optind + 1];
	nr = (unsigned)(argc - optind - 1);
	drops = !strcmp(sub, "drop");
	if (!drops && strcmp(sub, "stat") != 0 && strcmp(sub, "ls") != 0 &&
	    strcmp(sub, "verify") != 0)
		return usage_error(
			"there is no subcommand '%s'; there are stat, ls, verify and drop", sub);
	if (drops != (identity || tenant))
		return usage_error(drops ? "name what to drop by --identity or --tenant"
					 : "--identity and --tenant are for drop");
	if (metrics && strcmp(sub, "stat") != 0)
		return usage_error("--prometheus is for stat");
	signals_catch();
	return exit_status(drops ? kv_drop(dirs, nr, identity, tenant)
				 : kv_show(dirs, nr, sub, metrics));
}
