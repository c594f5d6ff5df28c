/* SPDX-License-Identifier: MIT */
/* Shared by the parts of penstock window: options, a window on fresh memory, a table's head. */
#ifndef CLI_WINDOW_H
#define CLI_WINDOW_H

#include "cli/window/buckets.h"
#include "tools/common/util.h"

#define WIN_SIZES_MAX 24u
#define WIN_THREADS_MAX 64u
#define WIN_KERNELS_MAX 16u
#define WIN_ALL_KERNELS "all"
#define WIN_MEMORY_MAX GIB(4) /* of the device, for one measurement */

/* The options of the command line; each subcommand takes some of them. */
struct win_set {
	const char *device;  /* NULL: an accelerator, or the software device where there is none */
	const char *backend; /* NULL: the first that works */
	uint32_t caching;    /* enum pst_caching, 0: any */
	const char *kernel;  /* NULL: the fastest; WIN_ALL_KERNELS: one after the other */
	bool json, baseline;
	uint64_t size; /* of the buffer of validate */
	uint64_t random, seed;
	uint64_t sizes[WIN_SIZES_MAX]; /* of copybw */
	unsigned nr_sizes;
	unsigned threads[WIN_SIZES_MAX]; /* of copybw, one row for each */
	unsigned nr_threads;
	uint64_t max; /* largest size of copylat and apiperf */
	uint64_t count;
	double seconds; /* for each row */
};

/* Memory of a device and a window on all of it. */
struct win {
	struct pst_device dev;
	struct pst_mem *mem;
	struct pst_mem_info mem_info;
	struct pst_window *w;
	struct pst_window_info info;
	uint64_t off; /* of the window in mem */
	uint64_t len;
	char *ptr;
};

/* len bytes whose address is a multiple of align; 0 or -errno with a sentence. */
int win_open(struct win *win, const struct win_set *set, uint64_t len, uint64_t align);
void win_close(struct win *win);

/* Its window anew, with other options. */
int win_map(struct win *win, const struct win_set *set);

/* Another window on part of the memory, with the same options. */
int win_again(const struct win *win, const struct win_set *set, uint64_t off, uint64_t len,
	      struct pst_window **ret);

/* The options of the command line about windows. */
struct pst_window_opts win_opts(const struct win_set *set);

const char *win_caching_name(uint32_t caching);

/* ------------------------------------------------------------------ copies */

/* One copy that is done again and again. */
struct win_copy {
	struct win *win;
	struct pst_mem *mem; /* not NULL: by the device's own copies, all of this memory */
	bool load;
	uint64_t off; /* in the window */
	char *host;
	uint64_t len;
};

/* Do it so often: a bucket_fn. */
int win_copies(void *copy, uint32_t ops);

/* Put bytes that a copy must move to where it takes them from, and others to where it brings
 * them; then see that it did.  0 or -errno with a sentence. */
int win_copy_begin(struct win_copy *c, uint64_t seed);
int win_copy_check(const struct win_copy *c, uint64_t seed);

/* ------------------------------------------------------------------- heads */

struct json_object;

#define WIN_BASELINE                                                                    \
	"pst_mem_copy_in() and pst_mem_copy_out(): the device's own copies, one after " \
	"the other, each with a stream of its own that is made for it"

void win_print_head(const struct win *win, const struct machine *m);
void win_json_head(struct json_object *to, const struct win *win, const struct machine *m);

/* A time in microseconds of as many digits as are worth it; "-" for NAN. */
struct text win_us_text(double ns);

/* median_us, min_us, p99_us, buckets, ops: as an object. */
void win_json_sum(struct json_object *to, const char *key, const struct bucket_sum *s);

/* ------------------------------------------------------------- subcommands */

/* 0, or -errno with a sentence; each prints what it found. */
int win_validate(const struct win_set *set);
int win_copybw(const struct win_set *set);
int win_copylat(const struct win_set *set);
int win_apiperf(const struct win_set *set);
int win_pingpong(const struct win_set *set);

/* -------------------------------------------------------------------- checks */

#define WIN_CHECKS 9u /* numbered from 1, as gdrcopy numbers them */

/* Wrong bytes. */
struct win_diff {
	uint64_t nr; /* 0: all are right */
	uint64_t at; /* the first one */
	uint8_t is, should;
	char where[96]; /* in which copy */
};

/* A buffer that is checked: device memory, and host memory with room around. */
struct win_checker {
	struct win *win;
	uint64_t size; /* of the window */
	char *src, *dst, *want, *seen;
	uint64_t bytes;  /* compared so far */
	uint64_t copies; /* made so far */
};

int win_checker_init(struct win_checker *k, struct win *win);
void win_checker_done(struct win_checker *k);

/* The text of check nr; the check itself: 0, or -errno when a copy could not be made. */
const char *win_check_text(unsigned nr);
int win_check(struct win_checker *k, unsigned nr, struct win_diff *ret);

/* So many copies of random places, lengths and alignments. */
int win_check_random(struct win_checker *k, uint64_t nr, uint64_t seed, struct win_diff *ret);

/* Words of which each bit changes from one to the next: gdrcopy's pattern. */
void win_walking_bit(void *buf, uint64_t len);

#endif
