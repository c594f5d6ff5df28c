/* SPDX-License-Identifier: MIT */
/*
 * Page the KV cache of an inference engine out to a file and back, from an event loop.
 *
 *	kv-offload [-d DEVICE] [DIR]
 *
 * In device memory each layer has an array of pieces, one per block.  In the file a block is
 * contiguous.  One struct pst_seg describes that: the block's piece of layer i is at i * mem_stride
 * in memory and at i * file_stride in the file.
 *
 * The loop sleeps in epoll_wait(2) on the queue's descriptor, as an engine does that also serves
 * sockets.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include <penstock.h>

#define LAYERS 16
#define PIECE 16384u /* bytes of one block in one layer */
#define BLOCK (LAYERS * PIECE)
#define NR_BLOCKS 64 /* blocks in device memory */
#define DEPTH 32     /* requests in flight */

/* Report a failed call of the library; its sentence names cause and cure. */
static int complain(const char *what, int r)
{
	(void)fprintf(stderr, "kv-offload: %s: %s\n", what, pst_error_text());
	return r;
}

/* Report a failed system call. */
static int complain_errno(const char *what)
{
	int r = -errno;

	(void)fprintf(stderr, "kv-offload: %s: %s\n", what, strerror(-r));
	return r;
}

static uint64_t in_ms(uint64_t ms)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec + ms * 1000000u;
}

/* Describe one block, in the file and in memory.  A write puts it into its slot of the file; reads
 * bring blocks back in reverse order, because a cache uses any free slot. */
static struct pst_seg block_seg(uint64_t slot, uint64_t block)
{
	return (struct pst_seg){
		.file_off = slot * BLOCK,
		.mem_off = block * PIECE,
		.len = PIECE,
		.file_stride = PIECE,
		.mem_stride = (uint64_t)NR_BLOCKS * PIECE,
		.count = LAYERS,
	};
}

/* Reap until no completion is left.  Return their number, or -errno. */
static int reap_all(struct pst_queue *q, uint32_t *paths)
{
	struct pst_done done[DEPTH];
	int n, total = 0;

	/* A reap that returns fewer than requested arms the descriptor: only then may the loop
	 * sleep. */
	do {
		n = pst_queue_reap(q, done, 0, DEPTH, 0);
		if (n < 0)
			return complain("reap", n);
		for (int i = 0; i < n; i++) {
			char text[300];

			if (done[i].res < 0) {
				(void)fprintf(stderr, "kv-offload: block %" PRIu64 ": %s\n",
					      done[i].user_data,
					      pst_done_text(&done[i], text, sizeof(text)));
				return (int)done[i].res;
			}
			*paths |= done[i].paths;
		}
		total += n;
	} while (n == DEPTH);
	return total;
}

/* Move all blocks in one direction; op is PST_OP_WRITE or PST_OP_READ. */
static int move_blocks(struct pst_queue *q, int ep, struct pst_file *file, struct pst_mem *mem,
		       uint32_t op)
{
	/* Static, because the queue reads the segments until the requests complete. */
	static struct pst_seg segs[NR_BLOCKS];
	uint64_t started = 0, finished = 0;
	uint32_t paths = 0;
	int r;

	while (finished < NR_BLOCKS) {
		struct epoll_event ev;

		for (; started < NR_BLOCKS && started - finished < DEPTH; started++) {
			struct pst_io io = {
				.op = op,
				.file = file,
				.mem = mem,
				.segs = &segs[started],
				.nr_segs = 1,
				/* A hanging disk must not hang the engine. */
				.deadline_ns = in_ms(20000),
				.user_data = started,
			};

			segs[started] = block_seg(
				op == PST_OP_WRITE ? started : NR_BLOCKS - 1 - started, started);
			r = pst_queue_prep(q, &io);
			if (r < 0)
				return complain("prep", r);
		}
		r = pst_queue_submit(q);
		if (r < 0)
			return complain("submit", r);
		r = reap_all(q, &paths);
		if (r < 0)
			return r;
		finished += (uint64_t)r;
		/* Nothing was ready, so the descriptor is armed. */
		if (r == 0 && epoll_wait(ep, &ev, 1, -1) < 0 && errno != EINTR)
			return complain_errno("epoll_wait");
	}

	(void)printf("%s %d blocks of %d pieces, by", op == PST_OP_WRITE ? "out " : "back",
		     NR_BLOCKS, LAYERS);
	for (uint32_t p = 1; p <= PST_PATH_MAX; p++)
		if (paths & PST_PATH_BIT(p))
			(void)printf(" %s", pst_path_name(p));
	(void)putchar('\n');
	return 0;
}

/* Sync: after it has returned 0, all written bytes are on the disk. */
static int make_durable(struct pst_queue *q, struct pst_file *file)
{
	struct pst_io io = { .op = PST_OP_SYNC, .flags = PST_IO_DATASYNC, .file = file };
	struct pst_done done;
	int r;

	r = pst_queue_prep(q, &io);
	if (r == 0)
		r = pst_queue_submit(q);
	if (r >= 0)
		r = pst_queue_reap(q, &done, 1, 1, PST_NO_DEADLINE);
	if (r < 0)
		return complain("sync", r);
	return done.res < 0 ? (int)done.res : 0;
}

/* Return word w of a piece, which identifies block, layer and position. */
static uint32_t word(uint64_t block, unsigned layer, unsigned w)
{
	return (uint32_t)(block * 1000003u + layer * 8191u + w) * 2654435761u;
}

static int fill(struct pst_mem *mem)
{
	static uint32_t piece[PIECE / 4];

	for (unsigned layer = 0; layer < LAYERS; layer++) {
		for (uint64_t b = 0; b < NR_BLOCKS; b++) {
			int r;

			for (unsigned w = 0; w < PIECE / 4; w++)
				piece[w] = word(b, layer, w);
			/* Device memory cannot be dereferenced, so copy. */
			r = pst_mem_copy_in(mem, (layer * (uint64_t)NR_BLOCKS + b) * PIECE, piece,
					    PIECE);
			if (r < 0)
				return complain("store", r);
		}
	}
	return 0;
}

/* Check that block b now holds the former bytes of block NR_BLOCKS - 1 - b. */
static int check(struct pst_mem *mem)
{
	static uint32_t piece[PIECE / 4];

	for (unsigned layer = 0; layer < LAYERS; layer++) {
		for (uint64_t b = 0; b < NR_BLOCKS; b++) {
			int r = pst_mem_copy_out(mem, (layer * (uint64_t)NR_BLOCKS + b) * PIECE,
						 piece, PIECE);

			if (r < 0)
				return complain("load", r);
			for (unsigned w = 0; w < PIECE / 4; w++) {
				if (piece[w] == word(NR_BLOCKS - 1 - b, layer, w))
					continue;
				(void)fprintf(stderr,
					      "kv-offload: block %" PRIu64
					      " of layer %u is wrong\n",
					      b, layer);
				return -EIO;
			}
		}
	}
	(void)puts("every byte is where it belongs");
	return 0;
}

static int run(const char *path, const char *device)
{
	struct pst_queue_opts opts = { .sz = sizeof(opts), .depth = DEPTH };
	struct epoll_event ev = { .events = EPOLLIN };
	struct pst_queue *q = NULL;
	struct pst_file *file = NULL;
	struct pst_mem *mem = NULL;
	int ep, fd, r;

	ep = epoll_create1(EPOLL_CLOEXEC);
	if (ep < 0)
		return complain_errno("epoll_create1");
	r = pst_queue_new(&opts, &q);
	if (r == 0)
		r = pst_mem_alloc(device, (uint64_t)NR_BLOCKS * BLOCK, NULL, &mem);
	if (r == 0)
		r = pst_file_open(path,
				  PST_FILE_READ | PST_FILE_WRITE | PST_FILE_CREATE | PST_FILE_TRUNC,
				  NULL, &file);
	if (r < 0) {
		(void)complain("set-up", r);
	} else {
		fd = pst_queue_fd(q);
		if (fd < 0)
			r = complain("descriptor", fd);
		else if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) < 0)
			r = complain_errno("epoll_ctl");
	}
	if (r == 0)
		r = fill(mem);
	if (r == 0)
		r = move_blocks(q, ep, file, mem, PST_OP_WRITE);
	if (r == 0)
		r = make_durable(q, file);
	if (r == 0)
		r = move_blocks(q, ep, file, mem, PST_OP_READ);
	if (r == 0)
		r = check(mem);

	/* Free the queue first: requests in flight may still use the other objects. */
	(void)pst_queue_free(q);
	(void)pst_file_close(file);
	(void)pst_mem_free(mem);
	(void)close(ep);
	return r;
}

int main(int argc, char *argv[])
{
	const char *device = "soft", *dir = getenv("TMPDIR");
	char path[4096];
	int fd, opt, r;

	while ((opt = getopt(argc, argv, "d:")) != -1) {
		if (opt != 'd') {
			(void)fprintf(stderr, "usage: kv-offload [-d DEVICE] [DIR]\n");
			return 2;
		}
		device = optarg;
	}
	if (optind < argc)
		dir = argv[optind];
	(void)snprintf(path, sizeof(path), "%s/kv-offload-XXXXXX", dir ? dir : "/var/tmp");
	fd = mkstemp(path);
	if (fd < 0)
		return complain_errno(path) < 0;
	(void)close(fd);
	r = run(path, device);
	(void)unlink(path);
	return r < 0;
}
