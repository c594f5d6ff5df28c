/* SPDX-License-Identifier: MIT */
/* Rings without requests use no CPU, even after the deadlines of earlier requests. */
#include <stddef.h>

#include "worker_rig.h"

#include "idle.h"

#define TIMEOUT_MS 50u

int __real_pst_queue_new(const struct pst_queue_opts *opts, struct pst_queue **ret);
int __wrap_pst_queue_new(const struct pst_queue_opts *opts, struct pst_queue **ret);

/* Shorten the library's default deadline of five minutes, which executors use. */
int __wrap_pst_queue_new(const struct pst_queue_opts *opts, struct pst_queue **ret)
{
	struct pst_queue_opts o = *opts;

	o.timeout_ms = TIMEOUT_MS;
	return __real_pst_queue_new(&o, ret);
}

static void rests(bool for_read, bool help)
{
	struct usrbio_args a;
	struct client c;
	uint64_t passed;

	env_help = help;
	env_begin(&one_thread);
	env_file(1, FILE_LEN, O_RDWR | O_DIRECT);
	env_ring(&c, 8, for_read, 0, 0);
	for (unsigned i = 0; i < 20; i++) {
		int64_t res;

		a = env_args(1, i * 65536, i * 65536, 65536);
		res = env_do(&c, &a);
		if (res != 65536 && res != -ETIMEDOUT)
			T_FAIL("%" PRId64, res);
	}
	for (passed = t_in_ms(2 * TIMEOUT_MS); t_now() < passed;)
		(void)usleep(1000);
	idle_rests("usrbio");
	idle_rests("pst-");
	client_free(&c);
	env_end();
	env_help = true;
}

static void ring_of_writes(void)
{
	rests(false, true);
}

static void ring_of_reads(void)
{
	rests(true, true);
}

static void ring_that_nobody_helps(void)
{
	rests(false, false);
}

int main(void)
{
	static const char *const devs[] = { "host", "soft:0" };

	rig_init();
	for (unsigned i = 0; i < RIG_NR(devs); i++) {
		env_dev = devs[i];
		RIG_RUN1(ring_of_writes);
		RIG_RUN1(ring_of_reads);
		RIG_RUN1(ring_that_nobody_helps);
	}
	return rig_done();
}
