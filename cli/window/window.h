/* SPDX-License-Identifier: MIT */
/* Shared by the parts of penstock window: options, a window on fresh memory, table heads. */
#ifndef CLI_WINDOW_H
#define CLI_WINDOW_H

#include "cli/window/buckets.h"
#include "tools/common/util.h"

#define WIN_SIZES_MAX 24u
#define WIN_THREADS_MAX 64u
#define WIN_KERNELS_MAX 16u
#define WIN_ALL_KERNELS "all"
#define WIN_MEMORY_MAX GIB(4) /* maximum bytes of device memory for one measurement */

/* The options of the command line; each subcommand accepts some of them. */
struct win_set {
	const char *device;  /* NULL: an accelerator, or the software device if there is none */
	const char *backend; /* NULL: the first backend that works */
	uint32_t caching;    /* enum pst_caching; 0: any */
	const char *kernel;  /* NULL: the fastest; WIN_ALL_KERNELS: each in turn */
	bool json, baseline;
	uint64_t size; /* bytes of validate's buffer */
	uint64_t random, seed;
	uint64_t sizes[WIN_SIZES_MAX]; /* sizes of copybw */
	unsigned nr_sizes;
	unsigned threads[WIN_SIZES_MAX]; /* thread counts of copybw, one row for each */
	unsigned nr_threads;
	uint64_t max; /* largest size of copylat and apiperf */
	uint64_t count;
	double seconds; /* seconds per row */
};

/* Device memory, and a window on all of it. */
struct win {
	struct pst_device dev;
	struct pst_mem *mem;
	struct pst_mem_info mem_info;
	struct pst_window *w;
	struct pst_window_info info;
	uint64_t off; /* bytes from the start of mem to the window */
	uint64_t len;
	char *ptr;
};

/* Allocate len bytes whose address is a multiple of align, and open a window on them.  Return 0, or
 * -errno with a sentence. */
int win_open(struct win *win, const struct win_set *set, uint64_t len, uint64_t align);
void win_close(struct win *win);

/* Close the window, and open it again with other options. */
int win_map(struct win *win, const struct win_set *set);

/* Open another window on part of the memory, with the same options. */
int win_again(const struct win *win, const struct win_set *set, uint64_t off, uint64_t len,
	      struct pst_window **ret);

/* Return the window options of the command line. */
struct pst_window_opts win_opts(const struct win_set *set);

const char *win_caching_name(uint32_t caching);

/* ------------------------------------------------------------------ copies */

/* A copy that is repeated. */
struct win_copy {
	struct win *win;
	struct pst_mem *mem; /* if not NULL, the device itself copies all of this memory, without
			      * the window */
	bool load;
	uint64_t off; /* bytes from the start of the window */
	char *host;
	uint64_t len;
};

/* Copy ops times; usable as a bucket_fn. */
int win_copies(void *copy, uint32_t ops);

/* Put test bytes into the source of a copy, and other bytes into its target; win_copy_check() then
 * checks the copy.  Return 0, or -errno with a sentence. */
int win_copy_begin(struct win_copy *c, uint64_t seed);
int win_copy_check(const struct win_copy *c, uint64_t seed);

/* ------------------------------------------------------------------- heads */

struct json_object;

#define WIN_BASELINE                                                                    \
	"pst_mem_copy_in() and pst_mem_copy_out(): the device's own copies, one after " \
	"the other, each with a stream of its own that is made for it"

void win_print_head(const struct win *win, const struct machine *m);
void win_json_head(struct json_object *to, const struct win *win, const struct machine *m);

/* Write a time in microseconds with its significant digits; "-" for NAN. */
struct text win_us_text(double ns);

/* Add an object with median_us, min_us, p99_us, buckets and ops. */
void win_json_sum(struct json_object *to, const char *key, const struct bucket_sum *s);

/* ------------------------------------------------------------- subcommands */

/* These functions print their results, and return 0, or -errno with a sentence. */
int win_validate(const struct win_set *set);
int win_copybw(const struct win_set *set);
int win_copylat(const struct win_set *set);
int win_apiperf(const struct win_set *set);
int win_pingpong(const struct win_set *set);

/* -------------------------------------------------------------------- checks */

#define WIN_CHECKS 9u /* number of checks; they are numbered from 1, as in gdrcopy */

/* Position of differing bytes. */
struct win_diff {
	uint64_t nr; /* number of wrong bytes */
	uint64_t at; /* byte offset of the first one */
	uint8_t is, should;
	char where[96]; /* description of the copy */
};

/* A buffer under test: device memory, and host memory with room on both sides. */
struct win_checker {
	struct win *win;
	uint64_t size; /* bytes of the window */
	char *src, *dst, *want, *seen;
	uint64_t bytes;  /* bytes compared so far */
	uint64_t copies; /* copies made so far */
};

int win_checker_init(struct win_checker *k, struct win *win);
void win_checker_done(struct win_checker *k);

/* win_check_text() returns the name of check nr.  win_check() runs it, and returns 0, or -errno if
 * a copy failed. */
const char *win_check_text(unsigned nr);
int win_check(struct win_checker *k, unsigned nr, struct win_diff *ret);

/* Make nr copies with random offsets, lengths and alignments. */
int win_check_random(struct win_checker *k, uint64_t nr, uint64_t seed, struct win_diff *ret);

/* Fill with gdrcopy's pattern of a walking bit. */
void win_walking_bit(void *buf, uint64_t len);

#endif
