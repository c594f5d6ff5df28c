/* SPDX-License-Identifier: MIT */
/*
 * A short run of all main calls, for tests that make the n-th call of something fail.  Each run
 * must end with the right bytes, or with an error and its text.
 */
#ifndef PST_SCENARIO_H
#define PST_SCENARIO_H

#include "rig.h"

#define SCENARIO_LEN 300001u

static uint8_t scenario_bytes[SCENARIO_LEN], scenario_back[SCENARIO_LEN];
static char scenario_why[300];

static inline int scenario_said(const char *what, int r)
{
	if (r < 0)
		(void)snprintf(scenario_why, sizeof(scenario_why), "%s: %s", what,
			       pst_error_text());
	return r < 0 && !pst_error_text()[0] ? -ENOMSG : r;
}

/* Send one request.  Return 0 if all of its bytes moved, else its error. */
static inline int scenario_io(struct pst_queue *q, uint32_t op, struct pst_file *f,
			      struct pst_mem *m, uint64_t off, uint64_t len, uint32_t flags)
{
	struct pst_io io = rig_io(op, f, op == PST_OP_SYNC ? NULL : m, off, 0, len);
	struct pst_done d;
	char text[300];
	int r;

	io.flags = flags;
	r = scenario_said("prep", pst_queue_prep(q, &io));
	if (r < 0)
		return r;
	r = scenario_said("submit", pst_queue_submit(q));
	if (r < 0)
		return r;
	/* Wait longer than the request's own deadline, which must end the request. */
	if (pst_queue_reap(q, &d, 1, 1, t_in_ms(RIG_WAIT_MS)) != 1)
		return -ELIBBAD;
	(void)snprintf(scenario_why, sizeof(scenario_why), "%s",
		       pst_done_text(&d, text, sizeof(text)));
	if (d.res < 0)
		return d.prefix < len || op == PST_OP_SYNC ? (int)d.res : -ELIBBAD;
	return d.res == (int64_t)len ? 0 : -ELIBBAD;
}

static inline int scenario_steps(uint32_t backend, const char *dev, struct pst_queue **q,
				 struct pst_file **f, struct pst_mem **m)
{
	struct pst_queue_opts o = {
		.sz = sizeof(o), .backend = backend, .depth = 4, .timeout_ms = 5000
	};
	int r = scenario_said("queue", pst_queue_new(&o, q));

	if (r == 0)
		r = scenario_said("open", pst_file_open(rig_path("scenario"), RIG_NEW, NULL, f));
	if (r == 0)
		r = scenario_said("alloc", pst_mem_alloc(dev, SCENARIO_LEN, NULL, m));
	if (r == 0)
		r = pst_queue_fd(*q) < 0 ? scenario_said("fd", pst_queue_fd(*q)) : 0;
	if (r == 0)
		r = scenario_said("copy in", pst_mem_copy_in(*m, 0, scenario_bytes, SCENARIO_LEN));
	if (r == 0)
		r = scenario_io(*q, PST_OP_WRITE, *f, *m, 0, 65536, PST_IO_CRC32C);
	if (r == 0)
		r = scenario_io(*q, PST_OP_WRITE, *f, *m, 0, SCENARIO_LEN, 0);
	if (r == 0)
		r = scenario_io(*q, PST_OP_SYNC, *f, *m, 0, 0, 0);
	if (r == 0)
		r = scenario_said("copy in", pst_mem_copy_in(*m, 0, scenario_back, SCENARIO_LEN));
	if (r == 0)
		r = scenario_io(*q, PST_OP_READ, *f, *m, 0, SCENARIO_LEN, PST_IO_CRC32C);
	if (r == 0)
		r = scenario_said("copy out", pst_mem_copy_out(*m, 0, scenario_back, SCENARIO_LEN));
	if (r == 0)
		r = memcmp(scenario_back, scenario_bytes, SCENARIO_LEN) ? -EBADE : 0;
	return r;
}

/* Return 0, or the -errno of the step that failed. -ELIBBAD, -EBADE and -ENOMSG mean a bug. */
static inline int scenario(uint32_t backend, const char *dev)
{
	struct pst_queue *q = NULL;
	struct pst_file *f = NULL;
	struct pst_mem *m = NULL;
	int r;

	memset(scenario_back, 0, sizeof(scenario_back));
	scenario_why[0] = '\0';
	r = scenario_steps(backend, dev, &q, &f, &m);
	pst_mem_free(m);
	pst_file_close(f);
	pst_queue_free(q);
	return r;
}

#endif
