/* SPDX-License-Identifier: MIT */
/*
 * Shared by the tests of wrong arguments.
 */
#ifndef PST_TEST_ARGS_H
#define PST_TEST_ARGS_H
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "rig.h"

#define MARK 4711 /* a value that errno never has */

static struct pst_file *rd, *wr, *rw;
static struct pst_mem *mem;
static struct pst_queue *q;

/* Check that the call returns -err and leaves errno alone, and that the error text contains
 * word. */
#define FAILS(call, err, word)                                                        \
	do {                                                                          \
		const char *_text;                                                    \
		int _r;                                                               \
                                                                                      \
		errno = MARK;                                                         \
		_r = (call);                                                          \
		_text = pst_error_text();                                             \
		if (_r != -(err))                                                     \
			T_FAIL("%s gave %d, not %d (%s)", #call, _r, -(err), _text);  \
		if (errno != MARK)                                                    \
			T_FAIL("%s left errno %d", #call, errno);                     \
		if (!_text[0] || !strstr(_text, word))                                \
			T_FAIL("%s: \"%s\" does not say \"%s\"", #call, _text, word); \
	} while (0)

#define WORKS(call)                                               \
	do {                                                      \
		errno = MARK;                                     \
		T_OK(call);                                       \
		if (errno != MARK)                                \
			T_FAIL("%s left errno %d", #call, errno); \
	} while (0)

static inline void make_valid(void)
{
	rig_make(rig_path("file"), 1, 100000);
	rd = rig_open(rig_path("file"), PST_FILE_READ);
	wr = rig_open(rig_path("file"), PST_FILE_WRITE);
	rw = rig_open(rig_path("file"), RIG_RW);
	mem = rig_alloc("host", 10000);
	q = rig_queue(PST_BACKEND_AUTO, 4);
}

static inline void free_valid(void)
{
	q = pst_queue_free(q);
	mem = pst_mem_free(mem);
	rd = pst_file_close(rd);
	wr = pst_file_close(wr);
	rw = pst_file_close(rw);
}

#endif
