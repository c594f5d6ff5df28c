/* SPDX-License-Identifier: MIT */
/*
 * Windows for small requests: their number is bounded, and a window in use stays open.
 *
 * The linker's --wrap redirects window_open() and window_close() here, and the timing of the
 * first window.
 */
#include "rig.h"

#include "core/queue/object.h"
#include "core/ways/window_cache.h"
#include "window/window.h"

#define VIEW RIG_MIB(64)
#define NR 6u
#define LEN (NR * VIEW)
#define SMALL 4096u
#define FEW_PAGES 16384u
#define SEED 5
#define WINDOW PST_PATH_BIT(PST_PATH_WINDOW)

/* The case's memory; proofs open windows on other memory. */
static const struct mem_alloc *alloc;
static struct window *opened[NR];
static unsigned nr_open, most_open, nr_opened;

int __real_window_open(const struct window_src *src, const struct pst_window_opts *o,
		       struct window **ret);
int __wrap_window_open(const struct window_src *src, const struct pst_window_opts *o,
		       struct window **ret);
void __real_window_close(struct window *w);
void __wrap_window_close(struct window *w);

int __wrap_window_open(const struct window_src *src, const struct pst_window_opts *o,
		       struct window **ret)
{
	int r = __real_window_open(src, o, ret);

	if (r == 0 && src->alloc == alloc) {
		opened[src->off / VIEW] = *ret;
		nr_opened++;
		nr_open++;
		most_open = nr_open > most_open ? nr_open : most_open;
	}
	return r;
}

void __wrap_window_close(struct window *w)
{
	for (unsigned i = 0; i < NR; i++)
		if (w && opened[i] == w) {
			opened[i] = NULL;
			nr_open--;
		}
	__real_window_close(w);
}

/* Time in us that each copy by the device takes during the timing, as on a busy machine. */
#define BUSY_US 5000u

void __real_window_cost(struct window *w, const struct window_src *src, struct mem_stream *st);
void __wrap_window_cost(struct window *w, const struct window_src *src, struct mem_stream *st);
int __real_mem_copy_wait(struct mem_stream *st, const struct mem_alloc *a, enum mem_dir dir,
			 uint64_t off, void *host, uint64_t len);
int __wrap_mem_copy_wait(struct mem_stream *st, const struct mem_alloc *a, enum mem_dir dir,
			 uint64_t off, void *host, uint64_t len);

static __thread bool timed; /* window_cost() runs in this thread */
static uint64_t store_max, load_max;

void __wrap_window_cost(struct window *w, const struct window_src *src, struct mem_stream *st)
{
	timed = true;
	__real_window_cost(w, src, st);
	timed = false;
	store_max = w->store_max;
	load_max = w->load_max;
}

int __wrap_mem_copy_wait(struct mem_stream *st, const struct mem_alloc *a, enum mem_dir dir,
			 uint64_t off, void *host, uint64_t len)
{
	if (timed)
		(void)usleep(BUSY_US);
	return __real_mem_copy_wait(st, a, dir, off, host, len);
}

static struct pst_file *file;
static struct pst_mem *mem;

static void open_data(void)
{
	rig_make(rig_path("data"), SEED, SMALL);
	rig_warm(rig_path("data"));
	file = rig_open(rig_path("data"), PST_FILE_READ);
	mem = rig_alloc("soft:0", LEN);
	alloc = mem->region->alloc;
	most_open = nr_opened = 0;
}

static void close_data(void)
{
	pst_mem_free(mem);
	pst_file_close(file);
	T_EQ(nr_open, 0);
	alloc = NULL;
}

static bool by_window(unsigned cached_window)
{
	struct pst_done d = rig_read(file, mem, 0, cached_window * VIEW, SMALL);

	T_EQ(d.res, SMALL);
	T_EQ(rig_mem_differs(mem, cached_window * VIEW, SMALL, SEED, 0), SMALL);
	return d.paths & WINDOW;
}

/* Read until this window is used: an idle one makes room.  The kernel may have dropped the
 * file's page, which reads by O_DIRECT do not bring back. */
static void becomes(unsigned cached_window)
{
	uint64_t until = t_in_ms(RIG_WAIT_MS);

	while (!by_window(cached_window)) {
		T_CHECK(t_now() < until);
		rig_warm(rig_path("data"));
	}
}

/* A user that is not one of the queue's requests. */
static const struct holder me = { .number = 100 };

/* The timing ended early on a busy machine: requests of a few pages use windows nevertheless. */
static void timed_beside_others(void)
{
	struct hold *hold = NULL;
	uint64_t at;
	int err;

	open_data();
	T_CHECK(window_cache_get(&me, mem->region, 0, &at, &hold, &err));
	hold_put(&me, &hold);
	T_CHECK(store_max >= FEW_PAGES);
	T_CHECK(load_max >= FEW_PAGES);
	becomes(0);
	close_data();
}

/* Two windows can be open: a third one takes the place of the oldest, and every read has its
 * bytes. */
static void the_oldest_makes_room(void)
{
	open_data();
	becomes(0);
	becomes(1);
	for (unsigned i = 2; i < NR; i++) {
		becomes(i);
		T_EQ(nr_open, 2);
		T_CHECK(opened[i] && opened[i - 1] && !opened[i - 2]);
	}
	T_EQ(most_open, 2);
	close_data();
}

/* A window in use stays open, however long it is used. */
static void what_is_used_stays(void)
{
	const struct window *w;
	struct hold *hold = NULL;
	uint64_t at;
	int err;

	open_data();
	becomes(0);
	w = window_cache_get(&me, mem->region, 5, &at, &hold, &err);
	T_CHECK(w && hold);
	T_CHECK(w == opened[0]);
	T_EQ(at, 5);
	for (unsigned i = 1; i < NR; i++) {
		becomes(i);
		T_CHECK(opened[0] == w);
		T_EQ(nr_open, 2);
	}
	hold_put(&me, &hold);
	becomes(1);
	T_CHECK(!opened[0]); /* the oldest window */
	close_data();
}

/* All windows are in use and none may be opened: requests are staged. */
static void without_room(void)
{
	struct hold *hold[2] = { NULL, NULL };
	uint64_t at;
	int err;

	open_data();
	for (unsigned i = 0; i < 2; i++)
		T_CHECK(window_cache_get(&me, mem->region, i * VIEW, &at, &hold[i], &err));
	for (unsigned i = 0; i < 100; i++)
		if (i % NR < 2)
			becomes(i % NR);
		else
			T_CHECK(!by_window(i % NR));
	T_EQ(nr_opened, 2);
	for (unsigned i = 0; i < 2; i++)
		hold_put(&me, &hold[i]);
	becomes(2);
	T_EQ(nr_open, 2);
	close_data();
}

int main(void)
{
	(void)setenv("PST_APERTURE", "128M", 1);
	rig_init();
	RIG_RUN_BACKENDS(timed_beside_others);
	RIG_RUN_BACKENDS(the_oldest_makes_room);
	RIG_RUN_BACKENDS(what_is_used_stays);
	RIG_RUN_BACKENDS(without_room);
	return rig_done();
}
