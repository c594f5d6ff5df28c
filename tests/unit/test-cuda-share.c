/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "cuda_rig.h"

static const char *self;
static const uint64_t grant_len = 100003;

/* Import a grant whose device is wrong while a stream waits.  Closing the handle may block, so it
 * is deferred, and the right device is refused until then.  Return true if all of this happened. */
static bool is_refused_while_a_stream_waits(const struct pst_grant *g)
{
	struct pst_grant right = *g;
	struct mem_alloc *a = NULL;
	uint64_t end = t_hang(), nr = cuda_barrier_begin(0);
	bool is;

	/* try twice: the second time, the handle is still open and must not be opened again */
	is = mem_import(g, &a) == -EINVAL && mem_import(g, &a) == -EINVAL;
	is = is && strstr(err_text(), "other memory");
	memcpy(right.uuid, cuda_device(0)->info.uuid, 16);
	is = is && mem_import(&right, &a) == -EBUSY && strstr(err_text(), "was refused");
	cuda_barrier_end(nr);
	while (is && mem_import(&right, &a) < 0 && t_now() < end)
		(void)usleep(1000);
	is = is && a;
	mem_free(a);
	while (x.state && state().contexts && t_now() < end)
		(void)usleep(1000);
	return is;
}

/* The other process: import twice, check, write, and report the result. */
static int child_import(int sock)
{
	struct pst_grant g = { .sz = sizeof(g) };
	struct mem_alloc *a = NULL, *b = NULL, *c = NULL;
	uint8_t *buf = malloc(grant_len);
	struct pst_grant again = { .sz = sizeof(again) };
	char result = 0;

	if (!buf || grant_recv(sock, &g, t_hang()) < 0) {
		(void)fprintf(stderr, "# child: %s\n", err_text());
		return 1;
	}
	if (mem_import(&g, &a) < 0 || mem_import(&g, &b) < 0 || a->buffer_id == b->buffer_id)
		result = 1;
	else if (mem_copy_sync(a, MEM_FROM_DEVICE, 0, buf, grant_len) < 0 ||
		 t_differs(buf, 11, 0, grant_len) != grant_len)
		result = 2;
	t_fill(buf, 12, 0, grant_len);
	if (!result && g.rights == PST_RIGHT_READ) {
		if (mem_copy_sync(b, MEM_TO_DEVICE, 0, buf, grant_len) != -EACCES)
			result = 3;
	} else if (!result && mem_copy_sync(b, MEM_TO_DEVICE, 0, buf, grant_len) < 0) {
		result = 4;
	}
	/* A received grant can be passed on. */
	if (!result && (mem_export(a, g.rights, &again) < 0 || mem_import(&again, &c) < 0))
		result = 5;
	if (!result && memcmp(again.ipc, g.ipc, sizeof(g.ipc)) != 0)
		result = 6;
	mem_free(c);
	if (again.fd > 2)
		(void)close(again.fd);
	/* A size beyond the allocation's. */
	g.size = UINT64_C(64) << 20;
	g.len = 1;
	if (!result && mem_import(&g, &c) != -EINVAL)
		result = 7;
	mem_free(b);
	/* The grant names another device than the one that has the handle's memory. */
	g.size = a ? a->size : 0;
	mem_free(a);
	if (!result && cuda_nr_devices() > 1) {
		memcpy(g.uuid, cuda_device(1)->info.uuid, 16);
		if (mem_import(&g, &c) != -EINVAL)
			result = 10;
		else if (g.fd < 0 && !is_refused_while_a_stream_waits(&g))
			result = 11;
	}
	if (result)
		(void)fprintf(stderr, "# child: step %d: %s\n", result, err_text());
	if (g.fd >= 0)
		(void)close(g.fd);
	free(buf);
	if (x.state) {
		struct stub_cuda_state s = state();

		if (s.contexts || s.ranges || s.handles || s.reservations || s.streams) {
			(void)fprintf(stderr, "# child: something was left\n");
			result = 8;
		}
	}
	return write(sock, &result, 1) == 1 ? result : 9;
}

static int with_child(const char *what, const struct pst_grant *g)
{
	char arg[16], result = 99;
	int sv[2], status;
	pid_t pid;

	T_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
	(void)snprintf(arg, sizeof(arg), "%d", sv[1]);
	pid = fork();
	if (!pid) {
		(void)execl(self, self, what, arg, (char *)NULL);
		_exit(127);
	}
	(void)close(sv[1]);
	T_OK(grant_send(sv[0], g, t_hang()));
	if (read(sv[0], &result, 1) != 1)
		result = 98;
	(void)close(sv[0]);
	T_CHECK(waitpid(pid, &status, 0) == pid);
	return result ? result : status;
}

static void share(struct mem_alloc *a, uint32_t rights)
{
	uint8_t *buf = malloc(grant_len);
	struct pst_grant g;

	T_CHECK(buf);
	t_fill(buf, 11, 0, grant_len);
	T_OK(mem_copy_sync(a, MEM_TO_DEVICE, 0, buf, grant_len));
	T_OK(mem_export(a, rights, &g));
	T_EQ(g.size, a->size);
	T_EQ(with_child("import", &g), 0);
	T_OK(mem_copy_sync(a, MEM_FROM_DEVICE, 0, buf, grant_len));
	T_EQ(t_differs(buf, rights == 3 ? 12 : 11, 0, grant_len), grant_len);
	if (g.fd >= 0)
		(void)close(g.fd);
	explicit_bzero(&g, sizeof(g));
	free(buf);
}

static void grants_by_handle(void)
{
	struct stub_cuda_state before = state();
	struct mem_alloc *a, *b = NULL;
	struct pst_grant g;

	for (uint32_t rights = 1; rights <= 3; rights += 2) {
		T_OK(mem_alloc(ops(), 0, grant_len, PST_MEM_SHARED, &a));
		share(a, rights);
		mem_free(a);
	}
	/* Refuse imports in the exporting process, of no device, and of no bytes. */
	T_OK(mem_alloc(ops(), 0, grant_len, PST_MEM_SHARED, &a));
	T_OK(mem_export(a, 3, &g));
	T_EQ(mem_import(&g, &b), -EINVAL);
	T_CHECK(strstr(err_text(), "own"));
	g.uuid[3] ^= 1;
	T_EQ(mem_import(&g, &b), -ENODEV);
	g.uuid[3] ^= 1;
	memset(g.ipc, 0, sizeof(g.ipc));
	T_EQ(mem_import(&g, &b), -EINVAL);
	if (x.state) {
		g.ipc[0] = 1;
		T_EQ(mem_import(&g, &b), -EINVAL);
	}
	mem_free(a);
	SAME_THREAD(before);
	SAME_OBJECTS(before);
}

static void *import_in_thread(void *arg)
{
	struct mem_alloc *a = NULL;

	return mem_import(arg, &a) == -EINVAL ? NULL : arg;
}

/* The driver takes long to open a handle: an import of another handle does not wait, one of the
 * same handle does. */
static void a_handle_that_is_opened_keeps_no_others(void)
{
	struct stub_cuda_state before = state();
	uint64_t until = t_hang();
	struct mem_alloc *a, *b = NULL;
	pthread_t first, same;
	struct pst_grant g, other;
	void *failed;

	NEED_STUB();
	T_OK(mem_alloc(ops(), 0, grant_len, PST_MEM_SHARED, &a));
	T_OK(mem_export(a, 3, &g));
	other = g;
	other.ipc[0] ^= 1;
	x.stall("cuIpcOpenMemHandle_v2#1");
	T_EQ(pthread_create(&first, NULL, import_in_thread, &g), 0);
	while (!state().stalled)
		T_CHECK(t_now() < until);
	T_EQ(pthread_create(&same, NULL, import_in_thread, &g), 0);
	(void)alarm(60); /* ends a deadlock */
	T_EQ(mem_import(&other, &b), -EINVAL);
	(void)alarm(0);
	T_EQ(state().stalled, 1);
	x.stall(NULL);
	T_EQ(pthread_join(first, &failed), 0);
	T_CHECK(!failed);
	T_EQ(pthread_join(same, &failed), 0);
	T_CHECK(!failed);
	mem_free(a);
	SAME_THREAD(before);
	SAME_OBJECTS(before);
}

static void grants_by_descriptor(void)
{
	struct stub_cuda_state before = state();
	struct mapped m = mapped_new(2, 2, CU_HANDLE_POSIX_FD, CU_PROT_READ_WRITE);
	struct mem_alloc *w, *b = NULL;
	struct pst_grant g;
	uint8_t in[100];

	T_OK(mem_wrap(m.va + CHUNK, CHUNK, 0, 0, &w));
	share(w, 1);
	share(w, 3);
	/* The driver opens descriptors even in the exporting process. */
	T_OK(mem_export(w, 1, &g));
	T_OK(mem_import(&g, &b));
	T_EQ(b->rights, PST_RIGHT_READ);
	T_CHECK(b->base.va != w->base.va);
	T_OK(mem_copy_sync(b, MEM_FROM_DEVICE, 0, in, 100));
	T_EQ(t_differs(in, 12, 0, 100), 100);
	mem_free(b);
	b = NULL;
	if (cuda_nr_devices() > 1) {
		memcpy(g.uuid, cuda_device(1)->info.uuid, 16);
		T_EQ(mem_import(&g, &b), -EINVAL);
	}
	(void)close(g.fd);
	memcpy(g.uuid, cuda_device(0)->info.uuid, 16);
	g.fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	T_EQ(mem_import(&g, &b), -EINVAL);
	(void)close(g.fd);
	mem_free(w);
	mapped_free(&m);
	SAME_THREAD(before);
	SAME_OBJECTS(before);
}

static void dmabufs_cover_whole_pages(void)
{
	struct stub_cuda_state before = state();
	struct mem_alloc *a = alloc(3 << 20);
	struct mem_dmabuf d;

	T_OK(mem_export_dmabuf(a, 5000, 4096, &d));
	T_EQ(d.size, 8192);
	T_EQ(d.off, 5000 - 4096);
	T_CHECK(fcntl(d.fd, F_GETFD) & FD_CLOEXEC);
	(void)close(d.fd);
	T_EQ(mem_export_dmabuf(a, 3 << 20, 1, &d), -ERANGE);
	T_EQ(mem_export_dmabuf(a, 0, 0, &d), -ERANGE);
	mem_free(a);
	SAME_OBJECTS(before);
}

int main(int argc, char **argv)
{
	self = argv[0];
	if (!cuda_begin())
		return t_done();
	if (argc == 3 && !strcmp(argv[1], "import"))
		return child_import(atoi(argv[2]));

	T_RUN(grants_by_handle);
	T_RUN(a_handle_that_is_opened_keeps_no_others);
	T_RUN(grants_by_descriptor);
	T_RUN(dmabufs_cover_whole_pages);
	T_RUN(nothing_is_left);
	return t_done();
}
