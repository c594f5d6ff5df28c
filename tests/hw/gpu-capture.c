/* SPDX-License-Identifier: MIT */
/*
 * Requests during a CUDA graph capture of the program.
 *
 * During a capture in global mode no thread of the process may make certain driver calls; one
 * such call spoils the graph.  The library must make none of them, not even when a queue, its
 * threads and its memory are first made during the capture.
 *
 *	gpu-capture [-m DEVICE] [DIR]	cases, in TAP
 */
#include <pthread.h>

#include "hw.h"

#define LEN RIG_MIB(160)

static const char *device = "cuda:0";
static cu_stream stream;
static cu_ptr target; /* memory that the graph's memset writes */
static struct pst_mem *target_mem;

static bool capturing;

static void start_capture(void)
{
	void *left = NULL;

	if (capturing) /* an earlier case failed during its capture */
		(void)hw_cu.cuStreamEndCapture(stream, &left);
	capturing = true;
	HW_CU(cuStreamBeginCapture_v2(stream, CU_CAPTURE_GLOBAL));
	if (hw_cu.cuMemsetD8Async)
		HW_CU(cuMemsetD8Async(target, 0x5c, 4096, stream));
}

/* End the capture, run the graph and check that its memset took place. */
static void end_and_replay(void)
{
	void *graph = NULL, *exec = NULL;
	uint8_t buf[4096];

	if (hw_cu.cuMemsetD8Async)
		HW_CU(cuMemsetD8Async(target + 4096, 0x6d, 4096, stream));
	capturing = false;
	HW_CU(cuStreamEndCapture(stream, &graph));
	if (!hw_cu.cuGraphInstantiateWithFlags || !hw_cu.cuGraphLaunch)
		return;
	memset(buf, 0, sizeof(buf));
	T_OK(pst_mem_copy_in(target_mem, 0, buf, sizeof(buf)));
	HW_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (unsigned i = 0; i < 2; i++)
		HW_CU(cuGraphLaunch(exec, stream));
	HW_CU(cuStreamSynchronize(stream));
	T_OK(pst_mem_copy_out(target_mem, 0, buf, sizeof(buf)));
	for (unsigned i = 0; i < sizeof(buf); i++)
		T_EQ(buf[i], 0x5c);
	T_OK(pst_mem_copy_out(target_mem, 4096, buf, sizeof(buf)));
	for (unsigned i = 0; i < sizeof(buf); i++)
		T_EQ(buf[i], 0x6d);
	HW_CU(cuGraphExecDestroy(exec));
	HW_CU(cuGraphDestroy(graph));
}

static void read_all(struct pst_queue *q, struct pst_file *f, struct pst_mem *m)
{
	struct pst_io io = rig_io(PST_OP_READ, f, m, 0, 0, LEN);
	struct pst_done d = rig_do(q, &io);

	if (d.res != (int64_t)LEN)
		rig_show(&d);
	T_EQ(d.res, LEN);
}

static void queue_from_before(void)
{
	struct pst_mem *m = rig_alloc(device, LEN);
	struct pst_file *f = rig_open(rig_path("data"), RIG_R);
	struct pst_queue *q = rig_queue(PST_BACKEND_AUTO, 0);

	read_all(q, f, m);
	rig_mem_fill(m, 0, LEN, 9, 0);
	start_capture();
	read_all(q, f, m);
	end_and_replay();
	T_EQ(rig_mem_differs(m, 0, LEN, 31, 0), LEN);
	pst_queue_free(q);
	pst_file_close(f);
	pst_mem_free(m);
}

/* The capturing thread makes, uses and frees memory, file and queue during its capture. */
static void queue_made_meanwhile(void)
{
	struct pst_mem *keep = rig_alloc(device, LEN), *m;
	struct pst_mem_info info = { .sz = sizeof(info) };
	struct pst_file *f;
	struct pst_queue *q;

	T_OK(pst_mem_info(keep, &info));
	start_capture();
	m = hw_wrap(info.addr, LEN);
	f = rig_open(rig_path("data"), RIG_R);
	q = rig_queue(PST_BACKEND_AUTO, 0);
	read_all(q, f, m);
	pst_queue_free(q);
	pst_file_close(f);
	pst_mem_free(m);
	end_and_replay();
	T_EQ(rig_mem_differs(keep, 0, LEN, 31, 0), LEN);
	pst_mem_free(keep);
}

static void memory_made_meanwhile(void)
{
	struct pst_mem *m;
	uint8_t out[100] = "not these", in[100];

	memset(in, 0x33, sizeof(in));
	start_capture();
	m = rig_alloc(device, RIG_MIB(3));
	T_OK(pst_mem_copy_in(m, 11, in, sizeof(in)));
	T_OK(pst_mem_copy_out(m, 11, out, sizeof(out)));
	pst_mem_free(m);
	end_and_replay();
	T_CHECK(!memcmp(in, out, sizeof(in)));
}

struct other {
	struct pst_mem *m;
	char text[300];
};

static void *other_main(void *arg)
{
	struct other *o = arg;
	struct pst_queue *q = NULL;
	struct pst_file *f = NULL;
	struct pst_done d = { .res = -1 };
	struct pst_io io;

	if (pst_queue_new(NULL, &q) < 0 || pst_file_open(rig_path("data"), RIG_R, NULL, &f) < 0) {
		(void)snprintf(o->text, sizeof(o->text), "%s", pst_error_text());
		return NULL;
	}
	io = rig_io(PST_OP_READ, f, o->m, 0, 0, LEN);
	if (pst_queue_prep(q, &io) < 0 || pst_queue_submit(q) != 1 ||
	    pst_queue_reap(q, &d, 1, 1, t_in_ms(RIG_WAIT_MS)) != 1)
		(void)snprintf(o->text, sizeof(o->text), "%s", pst_error_text());
	else if (d.res != (int64_t)LEN)
		(void)pst_done_text(&d, o->text, sizeof(o->text));
	pst_queue_free(q);
	pst_file_close(f);
	return NULL;
}

static void queue_of_another_thread(void)
{
	struct other o = { .m = rig_alloc(device, LEN) };
	pthread_t thread;

	start_capture();
	T_EQ(pthread_create(&thread, NULL, other_main, &o), 0);
	T_EQ(pthread_join(thread, NULL), 0);
	end_and_replay();
	if (o.text[0])
		T_FAIL("%s", o.text);
	T_EQ(rig_mem_differs(o.m, 0, LEN, 31, 0), LEN);
	pst_mem_free(o.m);
}

/* A file's pages are pinned during one capture, read during a second and unpinned during a
 * third. */
static void pages_pinned_meanwhile(void)
{
	struct pst_mem *m = rig_alloc(device, LEN);
	struct pst_file *f = rig_open(rig_path("data"), RIG_R | PST_FILE_STABLE);
	struct pst_queue *q = rig_queue(PST_BACKEND_AUTO, 0);
	struct pst_path_info info = { .sz = sizeof(info) };
	uint64_t pinned;

	T_OK(pst_path_check(f, m, PST_OP_READ, PST_PATH_PAGECACHE, &info));
	start_capture();
	pinned = hw_pin(q, f, m, LEN, LEN);
	end_and_replay();
	printf("# %" PRIu64 " MiB pinned\n", pinned >> 20);
	T_CHECK(pinned > 0 || info.state == PST_STATE_IMPOSSIBLE);
	rig_mem_fill(m, 0, LEN, 9, 0);
	start_capture();
	read_all(q, f, m);
	end_and_replay();
	T_EQ(rig_mem_differs(m, 0, LEN, 31, 0), LEN);
	start_capture();
	pst_file_close(f);
	end_and_replay();
	pst_queue_free(q);
	pst_mem_free(m);
}

static const char *why;

static void no_driver(void)
{
	T_SKIP("%s", why);
}

int main(int argc, char **argv)
{
	int opt;

	while ((opt = getopt(argc, argv, "m:")) != -1) {
		if (opt != 'm')
			return 2;
		device = optarg;
	}
	if (optind < argc)
		(void)setenv("PST_TEST_DIR", argv[optind], 1);
	rig_init();
	why = hw_cuda(hw_ordinal(device));
	if (!why && (!hw_cu.cuStreamBeginCapture_v2 || !hw_cu.cuStreamEndCapture))
		why = "libcuda.so.1 cannot capture";
	if (why) {
		T_RUN(no_driver);
		return hw_done();
	}
	if (setjmp(t_jump))
		HW_DIE("gpu-capture: %s", t_why);
	rig_make(rig_path("data"), 31, LEN);
	HW_CU(cuStreamCreate(&stream, CU_NON_BLOCKING));
	HW_CU(cuMemAlloc_v2(&target, 8192));
	target_mem = hw_wrap(target, 8192);

	T_RUN(queue_from_before);
	T_RUN(queue_made_meanwhile);
	T_RUN(memory_made_meanwhile);
	T_RUN(queue_of_another_thread);
	T_RUN(pages_pinned_meanwhile);
	pst_mem_free(target_mem);
	return hw_done();
}
