/* SPDX-License-Identifier: MIT */
/*
 * Memory that was freed while its dma-buf was open, in this process or another one.  The driver
 * unmaps the memory only after the dma-buf is closed, and does not report when that happens.  So
 * while there is such memory, a thread tries repeatedly to free it.  Until then, no other process
 * can open the device.
 */
#include <time.h>

#include "base/err.h"
#include "base/log.h"
#include "base/work.h"
#include "mem/gaudi/gaudi.h"

/* Pause between two attempts, ns: doubles from the first value to the second. */
#define PAUSE_FIRST_NS (20 * NSEC_PER_MSEC)
#define PAUSE_MOST_NS NSEC_PER_SEC

/* Taken before a device's lock.  Covers the variables below. */
static pthread_mutex_t watch_lock = PTHREAD_MUTEX_INITIALIZER;
static struct work watcher;
static bool watching;

/* Free what can be freed now. Return how many buffers of all devices remain on the lists @held. */
static unsigned held_free_all(void)
{
	unsigned left = 0;

	for (unsigned i = 0; i < gaudi_nr_devices(); i++) {
		struct gaudi_dev *d = gaudi_device(i);

		(void)pthread_mutex_lock(&d->lock);
		left += gaudi_held_free(d);
		(void)pthread_mutex_unlock(&d->lock);
	}
	return left;
}

static void watch(struct work *w)
{
	uint64_t pause = PAUSE_FIRST_NS;
	bool on = true;

	(void)w;
	while (on) {
		const struct timespec ts = { (time_t)(pause / NSEC_PER_SEC),
					     (long)(pause % NSEC_PER_SEC) };

		(void)nanosleep(&ts, NULL);
		pause = MIN(pause * 2, PAUSE_MOST_NS);
		/* Decide under this lock whether to end, so that a thread which adds a buffer later
		 * starts another watcher. */
		(void)pthread_mutex_lock(&watch_lock);
		on = watching = held_free_all() > 0;
		(void)pthread_mutex_unlock(&watch_lock);
	}
}

void gaudi_held_watch(void)
{
	(void)pthread_mutex_lock(&watch_lock);
	if (!watching) {
		work_init(&watcher, watch);
		watching = work_spawn(&watcher, "pst-gaudi", false) == 0;
		if (!watching)
			log_info("%s; memory that dma-bufs hold is freed at a later call",
				 err_text());
	}
	(void)pthread_mutex_unlock(&watch_lock);
}
