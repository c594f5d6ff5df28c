/* SPDX-License-Identifier: MIT */
/*
 * Static probes for tracers (USDT).  A probe is a nop in the code, and a note in the ELF file with
 * its address and its arguments.  docs/PROBES.md lists all probes; tests/lint/probes.sh compares
 * the list with the files.  Arguments are values that the code needs anyway: no value is computed
 * for a probe.
 */
#ifndef PST_PROBE_H
#define PST_PROBE_H

#include <sys/sdt.h>

#define PROBE2(name, a, b) DTRACE_PROBE2(penstock, name, a, b)
#define PROBE3(name, a, b, c) DTRACE_PROBE3(penstock, name, a, b, c)
#define PROBE4(name, a, b, c, d) DTRACE_PROBE4(penstock, name, a, b, c, d)
#define PROBE5(name, a, b, c, d, e) DTRACE_PROBE5(penstock, name, a, b, c, d, e)
#define PROBE6(name, a, b, c, d, e, f) DTRACE_PROBE6(penstock, name, a, b, c, d, e, f)

#endif
