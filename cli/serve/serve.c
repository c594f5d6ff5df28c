/* SPDX-License-Identifier: MIT */
/* Serve a directory to programs on other machines, as a storage service. */
#include "serve/serve.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <sys/syscall.h>

#include "base/err.h"
#include "cli/commands.h"
#include "cli/serve/store.h"
#include "tools/common/shown.h"
#include "tools/common/util.h"

const char serve_usage[] =
	"Usage: penstock serve --root DIR --listen ADDRESS [OPTION...]\n"
	"       penstock serve --kv DIR --budget SIZE --listen ADDRESS [OPTION...]\n"
	"\n"
	"Serves the files below DIR to programs that open them by the names\n"
	"pst://HOST:PORT/PATH or pst+unix://SOCKET:/PATH; or a store of blocks to programs\n"
	"that open pst://HOST:PORT with libpenstock-kv.  See penstock-serve(1).\n"
	"\n"
	"  --root DIR         the directory\n"
	"  --listen ADDRESS   HOST:PORT, [IPV6]:PORT or unix:PATH; may be given again\n"
	"  --write            let clients change, create, rename and remove files\n"
	"  --keys FILE        TLS 1.3 at every TCP address, for clients that have a key of\n"
	"                     FILE: lines NAME:HEX, as psktool writes them\n"
	"  --plain-data       listen at addresses beyond this machine without --keys, although\n"
	"                     whoever reaches them can read, and nothing is encrypted\n"
	"  --rdma             move bytes by RDMA for clients that can; also --rdma=no, and\n"
	"                     --rdma=try, the default without --keys: RDMA encrypts nothing\n"
	"  --rdma-clients N   most connections by RDMA, 8 MiB of pinned memory each (64)\n"
	"  --clients N        most connections at a time (256)\n"
	"  --files N          most open files of a connection (256)\n"
	"  --requests N       most requests of a connection without a reply (128)\n"
	"  --threads N        threads that wait for disks (16)\n"
	"  --memory SIZE      memory for payloads, besides 1 MiB for each connection (64m)\n"
	"  --rate SIZE        most bytes a second of each client (no limit)\n"
	"  --metrics ADDRESS  numbers for Prometheus, at unix:PATH or a port of 127.0.0.1\n"
	"  --stall SECONDS    drop a client that takes no replies for so long (30)\n"
	"  --drain SECONDS    how long requests may take after SIGTERM (10)\n"
	"  --check            only say whether it could be served\n"
	"  --kv DIR           the store: its only directory, or one of several in their order\n"
	"  --budget SIZE      bytes of all files of the store\n"
	"  --max-blocks N     most blocks of the store (one for each 64 KiB of budget)\n"
	"  --reserve SIZE     bytes to leave free on its file systems\n"
	"  --policy NAME      of eviction: arc (the default), lru or s3fifo\n"
	"  --quota SIZE       most bytes of each space of the store (no limit)\n";

static void say_line(const char *text)
{
	say("%s", text);
}

static int check_beneath(int root)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_BENEATH };
	int fd = (int)syscall(SYS_openat2, root, ".", &how, sizeof(how));

	if (fd < 0)
		return fail(errno,
			    "openat2(2) does not work here: %s; it takes Linux 5.6, and a seccomp "
			    "filter that allows it",
			    strerror(errno));
	(void)close(fd);
	return 0;
}

static int add_listen(struct serve_opts *o, const char *text, bool plain)
{
	struct net_addr *a = &o->listen[o->nr_listen];
	int r;

	if (o->nr_listen == SERVE_LISTEN_MAX)
		return fail(E2BIG, "%u addresses are the most", SERVE_LISTEN_MAX);
	r = net_addr_find(text, true, a);
	if (r < 0)
		return fail(-r, "%s", err_text());
	if (!plain && !o->tls && !net_addr_is_local(a))
		return fail(EPERM,
			    "%s can be reached from other machines, and nothing is encrypted or "
			    "asked for a key; give --keys FILE, 127.0.0.1, a unix: socket, or "
			    "--plain-data if the network is trusted",
			    text);
	o->nr_listen++;
	return 0;
}

/* Read the keys and load the TLS module, which is in libpenstock's folder. */
static int use_keys(struct serve_opts *o, const char *path, struct net_keys *keys)
{
	int r = net_keys_read(path, keys);

	if (r == 0)
		r = net_tls_load(dlsym(RTLD_DEFAULT, "pst_error_text"), &o->tls);
	if (r < 0)
		return fail(-r, "%s", err_text());
	o->keys = keys;
	return 0;
}

static int open_root(struct serve_opts *o, const char *root)
{
	o->root = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (o->root < 0)
		return fail(errno, "cannot open the directory %s: %s", root, strerror(errno));
	if (o->write && faccessat(o->root, ".", W_OK, AT_EACCESS) < 0)
		return fail(errno, "%s cannot be written to: %s", root, strerror(errno));
	return check_beneath(o->root);
}

/* Serve root, or the store if root is NULL. */
static int serve_until_stopped(struct serve_opts *o, const char *root, struct served_store *store,
			       const char *const *listen, unsigned nr, bool plain, bool check)
{
	int r = root ? open_root(o, root) : check ? store_check(store) : store_begin(store);

	if (!root)
		o->store = &store->ops;
	for (unsigned i = 0; r == 0 && i < nr; i++)
		r = add_listen(o, listen[i], plain);
	if (r < 0)
		return r;
	if (check) {
		(void)printf("%s can be served, %s\n", root ? root : store->dirs[0],
			     o->write ? "for reading and writing" : "for reading");
		(void)printf("memory for payloads: at most %s\n",
			     size_text(o->memory + o->clients * (uint64_t)MIB(1)).s);
		return 0;
	}
	r = serve_run(o);
	return r < 0 ? fail(-r, "%s", err_text()) : 0;
}

enum {
	ROOT = 256,
	LISTEN,
	WRITE,
	PLAIN_DATA,
	KEYS,
	CHECK,
	MEMORY,
	RATE,
	METRICS,
	RDMA,
	RDMA_CLIENTS,
	CLIENTS,
	FILES,
	REQUESTS,
	THREADS,
	STALL,
	DRAIN,
	KV,
	BUDGET,
	MAX_BLOCKS,
	RESERVE,
	POLICY,
	QUOTA
};

static const struct {
	int opt;
	const char *name;
	uint64_t min, max;
	size_t to; /* offset of an unsigned in struct serve_opts */
} numbers[] = {
	{ CLIENTS, "clients", 1, 100000, offsetof(struct serve_opts, clients) },
	{ RDMA_CLIENTS, "rdma-clients", 1, 4096, offsetof(struct serve_opts, rdma_clients) },
	{ FILES, "files", 1, 65536, offsetof(struct serve_opts, files) },
	{ REQUESTS, "requests", 1, 65536, offsetof(struct serve_opts, requests) },
	{ THREADS, "threads", 1, 1024, offsetof(struct serve_opts, threads) },
	{ STALL, "stall", 1, 86400, offsetof(struct serve_opts, stall_s) },
	{ DRAIN, "drain", 0, 86400, offsetof(struct serve_opts, drain_s) },
};

/* Return 0 or an exit status. */
static int serve_take_number(int opt, struct serve_opts *o)
{
	uint64_t v;

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
		if (numbers[i].opt != opt)
			continue;
		if (parse_number(optarg, numbers[i].min, numbers[i].max, &v) < 0)
			return usage_error("--%s takes a number from %" PRIu64 " to %" PRIu64,
					   numbers[i].name, numbers[i].min, numbers[i].max);
		*(unsigned *)(void *)((char *)o + numbers[i].to) = (unsigned)v;
	}
	return 0;
}

/* Handle the options of a store.  Return 0 or an exit status. */
static int serve_take_store(int opt, struct served_store *s)
{
	switch (opt) {
	case KV:
		if (s->nr == PST_KV_DIRS_MAX)
			return usage_error("--kv can be given %u times at most", PST_KV_DIRS_MAX);
		s->dirs[s->nr++] = optarg;
		return 0;
	case BUDGET:
		if (parse_size(optarg, &s->opts.budget) < 0)
			return usage_error("--budget takes a size, like 500g");
		return 0;
	case MAX_BLOCKS:
		if (parse_number(optarg, PST_KV_BLOCKS_MIN, PST_KV_BLOCKS_MAX,
				 &s->opts.max_blocks) < 0)
			return usage_error("--max-blocks takes a number from %u to %llu",
					   PST_KV_BLOCKS_MIN, PST_KV_BLOCKS_MAX);
		return 0;
	case RESERVE:
		if (parse_size(optarg, &s->opts.reserve) < 0)
			return usage_error("--reserve takes a size, like 50g");
		return 0;
	case QUOTA:
		if (parse_size(optarg, &s->quota) < 0 || s->quota < MIB(1))
			return usage_error("--quota takes a size of 1m or more");
		return 0;
	default:
		s->opts.policy = optarg;
		return 0;
	}
}

/* Parse --rdma; without a value it means yes. */
static bool serve_take_rdma(const char *how, enum serve_rdma *ret)
{
	static const char *const names[] = {
		[SERVE_RDMA_NO] = "no", [SERVE_RDMA_TRY] = "try", [SERVE_RDMA_YES] = "yes"
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcmp(how ? how : "yes", names[i])) {
			*ret = (enum serve_rdma)i;
			return true;
		}
	return false;
}

int cmd_serve(int argc, char *argv[])
{
	static const struct option longs[] = {
		{ "root", required_argument, NULL, ROOT },
		{ "listen", required_argument, NULL, LISTEN },
		{ "write", no_argument, NULL, WRITE },
		{ "plain-data", no_argument, NULL, PLAIN_DATA },
		{ "keys", required_argument, NULL, KEYS },
		{ "rdma", optional_argument, NULL, RDMA },
		{ "rdma-clients", required_argument, NULL, RDMA_CLIENTS },
		{ "clients", required_argument, NULL, CLIENTS },
		{ "files", required_argument, NULL, FILES },
		{ "requests", required_argument, NULL, REQUESTS },
		{ "threads", required_argument, NULL, THREADS },
		{ "memory", required_argument, NULL, MEMORY },
		{ "rate", required_argument, NULL, RATE },
		{ "metrics", required_argument, NULL, METRICS },
		{ "stall", required_argument, NULL, STALL },
		{ "drain", required_argument, NULL, DRAIN },
		{ "check", no_argument, NULL, CHECK },
		{ "kv", required_argument, NULL, KV },
		{ "budget", required_argument, NULL, BUDGET },
		{ "max-blocks", required_argument, NULL, MAX_BLOCKS },
		{ "reserve", required_argument, NULL, RESERVE },
		{ "policy", required_argument, NULL, POLICY },
		{ "quota", required_argument, NULL, QUOTA },
		{ 0 },
	};
	struct serve_opts o = {
		.root = -1,
		.rdma_clients = 64,
		.clients = 256,
		.files = 256,
		.requests = 128,
		.threads = 16,
		.memory = MIB(64),
		.stall_s = 30,
		.drain_s = 10,
		.say = say_line,
	};
	const char *root = NULL, *keys_path = NULL, *listen[SERVE_LISTEN_MAX];
	struct served_store store = { 0 };
	struct net_keys keys = { 0 };
	bool plain = false, check = false, rdma = false;
	unsigned nr = 0;
	int opt, status, r;

	while ((opt = getopt_long(argc, argv, ":", longs, NULL)) != -1) {
		switch (opt) {
		case ROOT:
			root = optarg;
			break;
		case LISTEN:
			if (nr == SERVE_LISTEN_MAX)
				return usage_error("--listen can be given %u times at most",
						   SERVE_LISTEN_MAX);
			listen[nr++] = optarg;
			break;
		case WRITE:
			o.write = true;
			break;
		case PLAIN_DATA:
			plain = true;
			break;
		case KEYS:
			keys_path = optarg;
			break;
		case CHECK:
			check = true;
			break;
		case MEMORY:
			if (parse_size(optarg, &o.memory) < 0)
				return usage_error("--memory takes a size, like 64m");
			break;
		case RATE:
			if (parse_size(optarg, &o.rate) < 0 || !o.rate)
				return usage_error("--rate takes a size, like 100m");
			break;
		case METRICS:
			if (net_addr_find(optarg, true, &o.metrics) < 0)
				return exit_status(fail(EINVAL, "%s", err_text()));
			if (!net_addr_is_local(&o.metrics))
				return usage_error("--metrics takes unix:PATH or a port of "
						   "127.0.0.1: nobody is asked who he is");
			break;
		case RDMA:
			rdma = true;
			if (!serve_take_rdma(optarg, &o.rdma))
				return usage_error("--rdma takes yes, no or try");
			break;
		case RDMA_CLIENTS:
		case CLIENTS:
		case FILES:
		case REQUESTS:
		case THREADS:
		case STALL:
		case DRAIN:
			status = serve_take_number(opt, &o);
			if (status)
				return status;
			break;
		case KV:
		case BUDGET:
		case MAX_BLOCKS:
		case RESERVE:
		case POLICY:
		case QUOTA:
			status = serve_take_store(opt, &store);
			if (status)
				return status;
			break;
		default:
			return option_error(argv, longs, opt);
		}
	}
	if (!root == !store.nr || !nr)
		return usage_error("give --root DIR or --kv DIR, and --listen ADDRESS");
	if (root && (store.opts.budget || store.opts.max_blocks || store.opts.reserve ||
		     store.opts.policy || store.quota))
		return usage_error("--budget, --max-blocks, --reserve, --policy and --quota belong "
				   "to --kv");
	if (argc != optind)
		return usage_error("there is an argument too many: %s", argv[optind]);
	if (store.nr && o.rdma == SERVE_RDMA_YES)
		return usage_error("--rdma belongs to --root: blocks do not move by RDMA");
	if (plain && keys_path)
		return usage_error("give --keys or --plain-data");
	if (!rdma)
		o.rdma = keys_path ? SERVE_RDMA_NO : SERVE_RDMA_TRY;
	r = keys_path ? use_keys(&o, keys_path, &keys) : 0;
	if (r == 0)
		r = serve_until_stopped(&o, root, &store, listen, nr, plain, check);
	/* After a timeout a thread still uses the store, so leave it open.  The next open will scan
	 * the directories. */
	if (r != -ETIMEDOUT)
		store_end(&store);
	net_keys_free(&keys);
	return exit_status(r);
}
