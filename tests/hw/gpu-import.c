/* SPDX-License-Identifier: MIT */
/*
 * Receive granted memory: take a grant from the inherited socket, import it and read a part of a
 * file into it.  This program knows nothing of CUDA or the owner's framework.
 *
 *	gpu-import FD FILE OFFSET LENGTH
 *
 * Prints one JSON object.
 */
#include "hw.h"

static void run(int sock, const char *path, uint64_t off, uint64_t len)
{
	struct pst_grant g = { .sz = sizeof(g) };
	struct pst_queue *q;
	struct pst_mem *m = NULL;
	struct pst_mem_info info = { .sz = sizeof(info) };
	struct pst_file *f;
	struct pst_io io;
	struct pst_done d;
	uint64_t begun;
	char text[300];

	T_OK(pst_grant_recv(sock, &g, t_in_ms(RIG_WAIT_MS)));
	T_OK(pst_mem_import(&g, &m));
	T_CHECK(g.len >= len);
	pst_grant_done(&g);
	T_OK(pst_mem_info(m, &info));
	q = rig_queue(PST_BACKEND_AUTO, 0);
	f = rig_open(path, RIG_R);
	io = rig_io(PST_OP_READ, f, m, off, 0, len);
	begun = t_now();
	d = rig_do(q, &io);
	begun = t_now() - begun;
	if (d.res != (int64_t)len) {
		rig_show(&d);
		T_FAIL("the request gave %lld", (long long)d.res);
	}
	printf("{\"tool\": \"gpu-import\", \"bytes\": %" PRIu64
	       ", \"device\": \"%s\", \"ms\": %.3f, "
	       "\"paths\": \"%s\"}\n",
	       len, info.device, (double)begun / 1e6, hw_paths(d.paths, text, sizeof(text)));
	pst_queue_free(q);
	pst_file_close(f);
	pst_mem_free(m);
}

int main(int argc, char **argv)
{
	if (argc != 5)
		HW_DIE("usage: gpu-import FD FILE OFFSET LENGTH");
	if (setjmp(t_jump))
		HW_DIE("gpu-import: %s", t_why);
	run(atoi(argv[1]), argv[2], strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10));
	return 0;
}
