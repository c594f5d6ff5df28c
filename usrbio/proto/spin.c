/* SPDX-License-Identifier: MIT */
#include "usrbio/proto/spin.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>

#include "base/base.h"

#define CONTENTION_NS (20 * NSEC_PER_MSEC) /* interval between two checks of the machine's load */
#define LOOKS 16u                          /* polls between two readings of the clock */

bool spin_is_contended(void)
{
	_cleanup_(closep) int fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
	char text[64] = "";
	unsigned running;

	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0 ||
	    sscanf(text, "%*s %*s %*s %u/", &running) != 1)
		return false;
	return (long)running > sysconf(_SC_NPROCESSORS_ONLN);
}

/* Return true on a single CPU, where polling only delays the other side. */
static bool spin_is_alone(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) == 1;
}

static bool is_contended(struct spin *s, uint64_t now)
{
	if (now - s->looked_ns >= CONTENTION_NS) {
		s->looked_ns = now;
		s->contended = spin_is_alone() || spin_is_contended();
	}
	return s->contended;
}

static bool spin_look(uint64_t until, bool (*came)(const void *), const void *arg)
{
	do {
		for (unsigned i = 0; i < LOOKS; i++) {
			if (came(arg))
				return true;
			cpu_relax();
		}
	} while (now_ns() < until);
	return false;
}

static bool spin_worth_it(struct spin *s)
{
	s->in_vain /= 2;
	s->skip = MIN(s->skip, s->in_vain);
	return true;
}

bool spin_until(struct spin *s, uint64_t ns, bool (*came)(const void *), const void *arg)
{
	uint64_t now;

	if (came(arg))
		return spin_worth_it(s);
	if (s->skip) {
		s->skip--;
		return false;
	}
	now = now_ns();
	if (is_contended(s, now))
		return false;
	if (spin_look(now + ns, came, arg))
		return spin_worth_it(s);
	s->in_vain = MIN(s->in_vain * 2 + 1, SPIN_SKIP_MAX);
	s->skip = s->in_vain;
	return false;
}
