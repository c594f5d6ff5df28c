/* SPDX-License-Identifier: MIT */
/* Measure put, get, send and receive between two processes. */
#include "cli/perf/perf.h"

#include <endian.h>
#include <getopt.h>
#include <inttypes.h>

#include "tools/common/svg.h"
#include "cli/commands.h"
#include "tools/common/device.h"
#include "tools/common/hist.h"
#include "tools/common/json.h"
#include "tools/common/machine.h"
#include "tools/common/names.h"
#include "tools/common/numbers.h"
#include "tools/common/pattern.h"
#include "tools/common/table.h"

#define SIZES_MAX 32u
#define BYTES_DEFAULT GIB(1) /* bytes per row, unless --iters is given */

const char perf_usage[] =
	"Usage: penstock perf [OPTION...] ADDRESS\n"
	"       penstock perf --listen ADDRESS [OPTION...]\n"
	"\n"
	"Measures what moves between the memory of two processes: start it with --listen\n"
	"in one place, and without in the other.  ADDRESS is unix:PATH or HOST:PORT.  The\n"
	"bytes are checked.\n"
	"\n"
	"  --listen ADDRESS  serve clients until a signal comes\n"
	"  -m, --memory DEV  memory of this side: host, cuda:0, soft:0, ... (default\n"
	"                    host)\n"
	"  --op OP           put, get, send, recv or pingpong (default get)\n"
	"  --sizes LIST      bytes of a piece, a row for each; 4k..16m is each power of\n"
	"                    two (default 4k,64k,1m,16m)\n"
	"  --depth N         puts or gets in flight (default 16); 1 measures latency\n"
	"  --iters N         pieces of a row (default 10000, and at most 1 GiB)\n"
	"  --dmabuf B        yes, no or try (default): whether the memory has to, must\n"
	"                    not or may become a dma-buf, by which other devices reach it\n"
	"  --path PATH       puts and gets by peer, rdma or tcp, or not at all\n"
	"  --socket          over the connection: neither mapped nor by RDMA\n"
	"  --keys FILE       of the keys for TLS, lines NAME:HEX\n"
	"  --key TEXT        the name of the key to connect with\n"
	"  --plain-data      bytes in the clear to another machine\n"
	"  --plot FILE.svg   draw GB/s over size; of one piece at a time, p50 and p99\n"
	"  --json            one JSON object instead of the table\n";

struct perf_row {
	uint64_t size, p50, p99; /* size in bytes, latencies in ns */
	double gb_s;
};

struct perf {
	struct pst_peer *peer;
	const char *device;
	enum perf_op op;
	uint64_t depth, iters; /* iters 0: use the default */
	bool socket;           /* do not map the memory, so that the socket is used */
	uint64_t policy;       /* PST_POLICY*, for strict requests; 0: automatic */
	struct pst_mem *mem;
	struct hist hist;
	uint32_t paths;
	uint64_t ns, nr;
	const char *plot; /* SVG file to draw, or NULL */
	struct perf_row rows[SIZES_MAX];
	unsigned nr_rows;
	uint32_t all_paths; /* paths of all rows */
};

static const char *const op_names[] = {
	[PERF_PUT] = "put",   [PERF_GET] = "get",           [PERF_SEND] = "send",
	[PERF_RECV] = "recv", [PERF_PINGPONG] = "pingpong",
};

/* ------------------------------------------------------------------- asking */

static int perf_ask(struct perf *p, uint64_t op, uint64_t size, struct perf_answer *ret)
{
	struct perf_ask q = {
		.magic = htole64(PERF_MAGIC),
		.op = htole64(op),
		.size = htole64(size),
		.iters = htole64(p->nr),
		.depth = htole64(p->depth),
		.grant = htole64(!p->socket),
	};
	int64_t n;
	int r = pst_peer_send(p->peer, NULL, (uintptr_t)&q, sizeof(q), 0, perf_deadline());

	if (r < 0)
		return fail_pst(r, "server");
	n = pst_peer_recv(p->peer, NULL, (uintptr_t)ret, sizeof(*ret), perf_deadline());
	if (n < 0)
		return fail_pst((int)n, "server");
	if (n != sizeof(*ret) || le64toh(ret->magic) != PERF_MAGIC)
		return fail(EPROTO, "what listens there is no server of penstock perf of this "
				    "version");
	ret->text[sizeof(ret->text) - 1] = '\0';
	if (ret->err)
		return fail((int)(le64toh((uint64_t)ret->err) & 4095), "server: %s", ret->text);
	return 0;
}

static int perf_fill(struct perf *p, uint64_t seed, uint64_t len)
{
	_cleanup_(freep) char *buf = malloc(len);

	if (!buf)
		return fail(ENOMEM, "out of memory");
	pattern_fill(buf, seed, 0, len);
	return pst_mem_copy_in(p->mem, 0, buf, len);
}

static int perf_check(struct perf *p, uint64_t seed, uint64_t len)
{
	_cleanup_(freep) char *buf = malloc(len);
	int r = buf ? pst_mem_copy_out(p->mem, 0, buf, len) : fail(ENOMEM, "out of memory");

	if (r < 0)
		return r;
	return pattern_differs(buf, seed, 0, len) < len ? fail(EIO, "the bytes that came are wrong")
							: 0;
}

/* -------------------------------------------------------------- put and get */

static int perf_reap(struct perf *p, struct pst_queue *q, uint64_t size, uint64_t *since)
{
	struct pst_done d;
	int r = pst_queue_reap(q, &d, 1, 1, perf_deadline());

	if (r < 1)
		return r < 0 ? fail_pst(r, "queue") : fail(ETIMEDOUT, "a request does not end");
	if (d.res < 0) {
		char text[400];

		return fail((int)-d.res, "%s", pst_done_text(&d, text, sizeof(text)));
	}
	if (d.res != (int64_t)size)
		return fail(EIO, "%s moved only some of its bytes", op_names[p->op]);
	hist_add(&p->hist, now_ns() - since[d.user_data]);
	p->paths |= d.paths;
	return (int)d.user_data;
}

static int perf_move(struct perf *p, struct pst_file *f, uint64_t size)
{
	struct pst_queue_opts o = { .sz = sizeof(o), .depth = (uint32_t)p->depth };
	_cleanup_(pst_queuep) struct pst_queue *q = NULL;
	uint64_t since[PERF_DEPTH_MAX], begun = 0, over = 0, begin = now_ns();
	int slot, r = pst_queue_new(&o, &q);

	if (r < 0)
		return fail_pst(r, "queue");
	while (over < p->nr && !stop_signal) {
		slot = (int)begun;
		if (begun >= p->depth || begun >= p->nr) {
			slot = perf_reap(p, q, size, since);
			if (slot < 0)
				return slot;
			over++;
		}
		if (begun < p->nr) {
			struct pst_io io = {
				.op = p->op == PERF_PUT ? PST_OP_WRITE : PST_OP_READ,
				.file = f,
				.mem = p->mem,
				.file_off = (uint64_t)slot * size,
				.mem_off = (uint64_t)slot * size,
				.len = size,
				.policy = p->policy,
				.flags = p->policy ? PST_IO_STRICT : 0,
				.user_data = (uint64_t)slot,
			};

			since[slot] = now_ns();
			r = pst_queue_prep(q, &io);
			if (r == 0)
				r = pst_queue_submit(q);
			if (r < 0)
				return fail_pst(r, "queue");
			begun++;
		}
	}
	p->ns = now_ns() - begin;
	return stop_signal ? -EINTR : 0;
}

static int run_file(struct perf *p, uint64_t size)
{
	_cleanup_(pst_filep) struct pst_file *f = NULL;
	uint64_t used = size * MIN(p->depth, p->nr);
	struct perf_answer a;
	int r = perf_ask(p, p->op, size, &a);

	if (r < 0)
		return r;
	r = pst_peer_open(p->peer, a.key, MIN(le64toh(a.key_len), (uint64_t)sizeof(a.key)),
			  p->op == PERF_PUT ? PST_FILE_WRITE : PST_FILE_READ, perf_deadline(), &f);
	if (r < 0)
		return fail_pst(r, "the server's memory");
	/* Fill with other bytes than the server's, so that missing bytes are detected. */
	r = perf_fill(p, PERF_SEED + 1, size * p->depth);
	if (r == 0)
		r = perf_move(p, f, size);
	if (r < 0)
		return r;
	return p->op == PERF_PUT ? perf_ask(p, PERF_CHECK, used, &a)
				 : perf_check(p, PERF_SEED, used);
}

/* ---------------------------------------------------------------- messages */

static int one_message(struct perf *p, uint64_t size)
{
	uint32_t flags = p->socket ? 0 : PST_SHARE_GRANT;
	int64_t n = (int64_t)size;
	int r = 0;

	if (p->op != PERF_RECV)
		r = pst_peer_send(p->peer, p->mem, 0, size, flags, perf_deadline());
	if (r == 0 && p->op != PERF_SEND)
		n = pst_peer_recv(p->peer, p->mem, 0, size, perf_deadline());
	if (r < 0 || n < 0)
		return fail_pst(r < 0 ? r : (int)n, op_names[p->op]);
	return (uint64_t)n == size ? 0 : fail(EIO, "a message has another length");
}

static int run_messages(struct perf *p, uint64_t size)
{
	uint64_t seed = PERF_SEED + (p->op != PERF_RECV), begin, before;
	struct perf_answer a;
	int r = perf_fill(p, PERF_SEED + 1, size);

	if (r == 0)
		r = perf_ask(p, p->op, size, &a);
	begin = now_ns();
	for (uint64_t i = 0; i < p->nr && r == 0; i++) {
		before = now_ns();
		r = one_message(p, size);
		/* A ping-pong is two trips; record the time of one. */
		hist_add(&p->hist, (now_ns() - before) / (p->op == PERF_PINGPONG ? 2 : 1));
		if (stop_signal)
			return -EINTR;
	}
	/* Wait for the server's answer, which shows that the last message has arrived. */
	if (r == 0 && p->op == PERF_SEND)
		r = perf_ask(p, PERF_CHECK, size, &a);
	p->ns = now_ns() - begin;
	return r < 0 || p->op == PERF_SEND ? r : perf_check(p, seed, size);
}

/* -------------------------------------------------------------------- rows */

static int perf_run_size(struct perf *p, uint64_t size)
{
	uint64_t depth = p->depth;
	int r;

	p->nr = p->iters ? p->iters : MAX(MIN(UINT64_C(10000), BYTES_DEFAULT / size), UINT64_C(8));
	memset(&p->hist, 0, sizeof(p->hist));
	p->paths = 0;
	if (p->op > PERF_GET)
		p->depth = 1;
	r = size > PERF_BYTES_MAX / p->depth
		    ? fail(EINVAL, "%s at depth %" PRIu64 " need more than %s of memory",
			   size_text(size).s, p->depth, size_text(PERF_BYTES_MAX).s)
		    : pst_mem_alloc(p->device, size * p->depth, NULL, &p->mem);
	if (r == 0)
		r = p->op <= PERF_GET ? run_file(p, size) : run_messages(p, size);
	p->mem = pst_mem_free(p->mem);
	p->depth = depth;
	return r;
}

static void perf_add_row(struct perf *p, uint64_t size, struct table *t, struct json_object *rows)
{
	uint64_t p50 = hist_quantile(&p->hist, 0.5), p99 = hist_quantile(&p->hist, 0.99);
	uint64_t bytes = size * p->nr * (p->op == PERF_PINGPONG ? 2 : 1);
	struct json_object *row;

	p->rows[p->nr_rows++] = (struct perf_row){ size, p50, p99, gb_per_s(bytes, p->ns) };
	p->all_paths |= p->paths;
	if (!rows) {
		table_add(t, "%s", size_text(size).s);
		table_add(t, "%" PRIu64, p->nr);
		table_add(t, "%s", time_text(p50).s);
		table_add(t, "%s", time_text(p99).s);
		table_add(t, "%s", rate_text(bytes, p->ns).s);
		table_add(t, "%s", paths_text(p->paths).s);
		return;
	}
	row = json_object_new_object();
	json_u64(row, "size", size);
	json_u64(row, "iters", p->nr);
	json_u64(row, "p50_ns", p50);
	json_u64(row, "p99_ns", p99);
	json_num(row, "gb_per_s", gb_per_s(bytes, p->ns));
	json_paths(row, "paths", p->paths);
	json_add(rows, NULL, row);
}

static int perf_by_size(const void *a, const void *b)
{
	const struct perf_row *x = a, *y = b;

	return (x->size > y->size) - (x->size < y->size);
}

/* Draw the rows: the rates, or the latencies if one piece is in flight. */
static int perf_plot(struct perf *p, const char *addr)
{
	bool times = p->op > PERF_GET || p->depth == 1;
	double y[2][SIZES_MAX];
	uint64_t x[SIZES_MAX];
	char title[128], line[2][256];
	struct machine m;
	struct svg_chart chart = {
		.title = title,
		.subtitle = { line[0], line[1] },
		.y_name = times ? "us" : "GB/s",
		.x = x,
		.nr_x = p->nr_rows,
		.series = { { times ? "half of the pieces (p50)" : op_names[p->op], y[0] },
			    { "99 of 100 pieces (p99)", y[1] } },
		.nr_series = times ? 2 : 1,
	};

	qsort(p->rows, p->nr_rows, sizeof(p->rows[0]), perf_by_size);
	for (unsigned i = 0; i < p->nr_rows; i++) {
		const struct perf_row *row = &p->rows[i];

		x[i] = row->size;
		y[0][i] = times ? (double)row->p50 / 1e3 : row->gb_s;
		y[1][i] = (double)row->p99 / 1e3;
	}
	machine_facts(&m);
	(void)snprintf(title, sizeof(title), "%s between two processes, %.60s memory here",
		       op_names[p->op], p->device);
	(void)snprintf(line[0], sizeof(line[0]), "%.90s, %u processors, %.60s", m.cpu, m.cpus,
		       m.kernel);
	(void)snprintf(line[1], sizeof(line[1]), "%.100s, depth %" PRIu64 ", path %.60s", addr,
		       p->op <= PERF_GET ? p->depth : 1,
		       p->all_paths ? paths_text(p->all_paths).s : "of messages");
	return svg_write(p->plot, &chart);
}

static int perf_run(struct perf *p, const char *addr, const struct pst_peer_opts *o,
		    const uint64_t *sizes, unsigned nr, bool json)
{
	static const char *const heads[] = { "size", "pieces", "p50", "p99", "GB/s", "<path" };
	_cleanup_(pst_peerp) struct pst_peer *peer = NULL;
	_cleanup_(table_freep) struct table *t = table_new(heads, ARRAY_SIZE(heads));
	_cleanup_(json_putp) struct json_object *out = NULL;
	struct json_object *rows = NULL;
	int r = pst_peer_connect(addr, o, perf_deadline(), &peer);

	if (r < 0)
		return fail_pst(r, "connect");
	p->peer = peer;
	if (json) {
		out = json_object_new_object();
		rows = json_object_new_array();
		json_text(out, "op", op_names[p->op]);
		json_text(out, "memory", p->device);
		json_text(out, "address", addr);
		json_u64(out, "depth", p->op <= PERF_GET ? p->depth : 1);
		json_add(out, "rows", rows);
	}
	for (unsigned i = 0; i < nr && r == 0; i++) {
		r = perf_run_size(p, sizes[i]);
		if (r == 0)
			perf_add_row(p, sizes[i], t, rows);
	}
	if (r == 0 && p->plot)
		r = perf_plot(p, addr);
	if (r == 0 && json)
		json_print(out);
	if (r == 0 && !json) {
		printf("%s, memory %s here, depth %" PRIu64 "; the bytes are right\n\n",
		       op_names[p->op], p->device, p->op <= PERF_GET ? p->depth : 1);
		table_print(t, stdout, 80);
	}
	return r;
}

/* ------------------------------------------------------------------- options */

/* Parse sizes such as "4k,64k" or "4k..16m". */
static int perf_parse_sizes(const char *text, uint64_t *ret, unsigned *ret_nr)
{
	_cleanup_(freep) char *copy = strdup(text);
	char *at = copy, *word, *to;
	unsigned nr = 0;

	while (copy && (word = strsep(&at, ","))) {
		uint64_t size, last;

		to = strstr(word, "..");
		if (to)
			*to = '\0';
		if (parse_size(word, &size) < 0 || !size)
			return -EINVAL;
		last = size;
		if (to && (parse_size(to + 2, &last) < 0 || last < size))
			return -EINVAL;
		for (; size <= last; size *= 2) {
			if (nr == SIZES_MAX || size > PERF_BYTES_MAX)
				return -EINVAL;
			ret[nr++] = size;
		}
	}
	*ret_nr = nr;
	return nr ? 0 : -EINVAL;
}

static int perf_parse_op(const char *text, enum perf_op *ret)
{
	for (unsigned i = PERF_PUT; i <= PERF_PINGPONG; i++) {
		if (strcmp(text, op_names[i]) != 0)
			continue;
		*ret = i;
		return 0;
	}
	return -EINVAL;
}

static int perf_parse_path(struct perf *p, const char *text)
{
	static const uint32_t paths[] = { PST_PATH_PEER, PST_PATH_RDMA, PST_PATH_TCP };

	for (unsigned i = 0; i < ARRAY_SIZE(paths); i++) {
		if (strcmp(text, pst_path_name(paths[i])) != 0)
			continue;
		p->policy = PST_POLICY1(paths[i]);
		p->socket = paths[i] != PST_PATH_PEER;
		return 0;
	}
	return -EINVAL;
}

int cmd_perf(int argc, char *argv[])
{
	enum {
		LISTEN = 256,
		OP,
		SIZES,
		DEPTH,
		ITERS,
		PATH,
		SOCKET,
		KEYS,
		KEY,
		PLAIN,
		PLOT,
		JSON,
		DMABUF
	};
	static const struct option longs[] = {
		{ "listen", required_argument, NULL, LISTEN },
		{ "memory", required_argument, NULL, 'm' },
		{ "op", required_argument, NULL, OP },
		{ "sizes", required_argument, NULL, SIZES },
		{ "depth", required_argument, NULL, DEPTH },
		{ "iters", required_argument, NULL, ITERS },
		{ "path", required_argument, NULL, PATH },
		{ "socket", no_argument, NULL, SOCKET },
		{ "keys", required_argument, NULL, KEYS },
		{ "key", required_argument, NULL, KEY },
		{ "plain-data", no_argument, NULL, PLAIN },
		{ "plot", required_argument, NULL, PLOT },
		{ "json", no_argument, NULL, JSON },
		{ "dmabuf", required_argument, NULL, DMABUF },
		{ 0 },
	};
	struct perf p = { .device = "host", .op = PERF_GET, .depth = 16 };
	struct pst_peer_opts o = { .sz = sizeof(o) };
	uint64_t sizes[SIZES_MAX];
	const char *listen = NULL;
	unsigned nr = 0;
	bool json = false;
	int opt, r = 0;

	(void)perf_parse_sizes("4k,64k,1m,16m", sizes, &nr);
	while ((opt = getopt_long(argc, argv, ":m:", longs, NULL)) != -1) {
		switch (opt) {
		case LISTEN:
			listen = optarg;
			break;
		case 'm':
			p.device = optarg;
			break;
		case OP:
			r = perf_parse_op(optarg, &p.op);
			break;
		case SIZES:
			r = perf_parse_sizes(optarg, sizes, &nr);
			break;
		case DEPTH:
			r = parse_number(optarg, 1, PERF_DEPTH_MAX, &p.depth);
			break;
		case ITERS:
			r = parse_number(optarg, 1, PERF_ITERS_MAX, &p.iters);
			break;
		case PATH:
			r = perf_parse_path(&p, optarg);
			break;
		case SOCKET:
			r = perf_parse_path(&p, "tcp");
			break;
		case KEYS:
			o.keys = optarg;
			break;
		case KEY:
			o.key = optarg;
			break;
		case PLAIN:
			o.flags = PST_PEER_PLAIN;
			break;
		case PLOT:
			p.plot = optarg;
			break;
		case JSON:
			json = true;
			break;
		case DMABUF:
			r = device_parse_dmabuf(optarg);
			break;
		default:
			return option_error(argv, longs, opt);
		}
		if (r < 0)
			return usage_error("%s is no value of that option", optarg);
	}
	if (argc - optind != (listen ? 0 : 1))
		return usage_error("give the address of a server, or --listen ADDRESS");
	if (listen) {
		r = perf_serve(listen, &o, p.device);
		/* A server normally ends by a signal. */
		return r == 0 ? 0 : exit_status(r);
	}
	signals_catch();
	return exit_status(perf_run(&p, argv[optind], &o, sizes, nr, json));
}
