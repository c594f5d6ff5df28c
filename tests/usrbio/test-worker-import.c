/* SPDX-License-Identifier: MIT */
/*
 * Device memory of another process in a server's rings: first through a window, then imported.
 * CUDA is the stub of tests/stub with its driver stub, so that windows open by CUDA's handle
 * without libcuda.
 *
 * test-usrbio-worker-import owner FD DEVICE	the other process
 */
#include "worker_rig.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "stub/nvrm_stub.h"
#include "usrbio/server/import.h"
#include "usrbio/server/stage.h"

#define RIGHTS (PST_RIGHT_READ | PST_RIGHT_WRITE)
#define LARGE RIG_MIB(1)

static const char *self, *stub_name;

/* ---------------------------------------------------------------- the owner */

/* A request to the owner process; the answer is the number of correct bytes. */
struct ask {
	char what; /* f: fill, d: compare, e: end */
	uint64_t at, len, seed, from;
};

static struct {
	pid_t pid;
	int sock;
	struct pst_grant grant;
} own;

static int owner(int sock, const char *device)
{
	struct pst_grant g = { .sz = sizeof(g) };
	struct pst_mem_opts o = { .sz = sizeof(o), .flags = PST_MEM_SHARED };
	struct pst_mem *m;
	struct ask a;

	if (pst_mem_alloc(device, BUF_LEN, &o, &m) < 0 ||
	    pst_mem_export(m, 0, BUF_LEN, RIGHTS, &g) < 0 ||
	    pst_grant_send(sock, &g, t_in_ms(RIG_WAIT_MS)) < 0)
		return 1;
	pst_grant_done(&g);
	while (read(sock, &a, sizeof(a)) == sizeof(a) && a.what != 'e') {
		uint64_t n = a.len;

		if (a.what == 'f')
			rig_mem_fill(m, a.at, a.len, a.seed, a.from);
		else
			n = rig_mem_differs(m, a.at, a.len, a.seed, a.from);
		if (write(sock, &n, sizeof(n)) != sizeof(n))
			return 2;
	}
	(void)pst_mem_free(m);
	return 0;
}

static uint64_t ask(char what, uint64_t at, uint64_t len, uint64_t seed, uint64_t from)
{
	struct ask a = { .what = what, .at = at, .len = len, .seed = seed, .from = from };
	uint64_t n = 0;

	T_EQ(write(own.sock, &a, sizeof(a)), (ssize_t)sizeof(a));
	T_EQ(read(own.sock, &n, sizeof(n)), (ssize_t)sizeof(n));
	return n;
}

static void own_begin(const char *device)
{
	int sock[2];
	char fd[16];

	T_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sock), 0);
	T_CHECK(fcntl(sock[0], F_SETFD, FD_CLOEXEC) == 0);
	(void)snprintf(fd, sizeof(fd), "%d", sock[1]);
	(void)fflush(stdout);
	own.pid = fork();
	if (own.pid == 0) {
		(void)execl(self, self, "owner", fd, device, (char *)NULL);
		_exit(127);
	}
	(void)close(sock[1]);
	own.sock = sock[0];
	own.grant = (struct pst_grant){ .sz = sizeof(own.grant), .fd = -1 };
	T_OK(pst_grant_recv(own.sock, &own.grant, t_in_ms(RIG_WAIT_MS)));
}

static void own_end(void)
{
	const struct ask a = { .what = 'e' };
	int status = -1;

	T_EQ(write(own.sock, &a, sizeof(a)), (ssize_t)sizeof(a));
	T_CHECK(waitpid(own.pid, &status, 0) == own.pid && status == 0);
	(void)close(own.sock);
	pst_grant_done(&own.grant);
}

/* Add the owner's memory to a new server. */
static void begin_on(const char *device, const struct server_opts *o)
{
	memset(&my, 0, sizeof(my));
	own_begin(device);
	T_OK(server_new(o, &my.w));
	T_EQ(usrbio_id_new(my.id), 0);
	T_OK(server_buffer_add_grant(my.w, my.id, &own.grant, 0, &my.buffer));
}

static void begin(const char *device)
{
	begin_on(device, &one_thread);
}

static void end(void)
{
	server_buffer_remove(my.w, my.buffer);
	for (unsigned i = 0; i < my.nr_files; i++)
		server_file_remove(my.w, my.files[i]);
	my.w = server_free(my.w);
	own_end();
}

static bool is_loaded(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char *line = NULL;
	bool found = false;
	size_t size = 0;

	while (f && !found && getline(&line, &size, f) > 0)
		found = strstr(line, stub_name);
	if (f)
		(void)fclose(f);
	free(line);
	return found;
}

/* ------------------------------------------------------------------- cases */

static void small_pieces(void)
{
	static const uint64_t lens[] = { 1, 7, 4096, 65535, 65536 };
	struct client r, w;

	env_file(1, FILE_LEN, O_RDONLY);
	env_file(2, FILE_LEN, O_RDWR);
	env_ring(&r, 64, true, 0, 0);
	env_ring(&w, 64, false, 0, 0);
	for (unsigned i = 0; i < RIG_NR(lens); i++) {
		uint64_t n = lens[i], at = 1000 + i * 13;
		struct usrbio_args a = env_args(1, i * 7, at, n);

		T_EQ(ask('f', 0, LARGE, 9, 0), LARGE);
		T_EQ(env_do(&r, &a), (int64_t)n);
		T_EQ(ask('d', at, n, 1, i * 7), n);
		T_EQ(ask('d', 0, at, 9, 0), at);
		T_EQ(ask('d', at + n, 1000, 9, at + n), 1000);
		if (n > 4096)
			continue;
		a = env_args(2, 5, at, n);
		T_EQ(env_do(&w, &a), (int64_t)n);
		a = env_args(2, 5, 0, n);
		T_EQ(env_do(&r, &a), (int64_t)n);
		T_EQ(ask('d', 0, n, 1, i * 7), n);
	}
	client_free(&r);
	client_free(&w);
}

static void large_pieces(void)
{
	struct usrbio_args a = env_args(1, 99, 7, LARGE);
	struct client r, w;

	env_ring(&r, 64, true, 0, 0);
	env_ring(&w, 64, false, 0, 0);
	T_EQ(env_do(&r, &a), (int64_t)LARGE);
	T_EQ(ask('d', 7, LARGE, 1, 99), LARGE);
	a = env_args(2, 1, 7, LARGE);
	T_EQ(env_do(&w, &a), (int64_t)LARGE);
	a = env_args(2, 1, LARGE + 100, LARGE);
	T_EQ(env_do(&r, &a), (int64_t)LARGE);
	T_EQ(ask('d', LARGE + 100, LARGE, 1, 99), LARGE);
	a = env_args(1, 3, 0, 4096);
	T_EQ(env_do(&r, &a), 4096);
	T_EQ(ask('d', 0, 4096, 1, 3), 4096);
	client_free(&r);
	client_free(&w);
}

static void soft_device(void)
{
	begin("soft:0");
	small_pieces();
	large_pieces();
	end();
}

/* A CUDA handle alone suffices for small requests; it does not name the GPU. */
static void cuda_by_its_handle(void)
{
	bool first;

	if (!stub_name)
		T_SKIP("needs the library of tests/stub");
	first = !is_loaded();
	stub_nvrm_reset();
	stub_nvrm.cards = 1;
	own_begin("cuda:0");
	memset(own.grant.uuid, 0, sizeof(own.grant.uuid));
	memset(&my, 0, sizeof(my));
	T_OK(server_new(NULL, &my.w));
	T_EQ(usrbio_id_new(my.id), 0);
	T_OK(server_buffer_add_grant(my.w, my.id, &own.grant, 0, &my.buffer));
	T_CHECK(stub_nvrm.maps > 0);
	small_pieces();
	T_EQ(is_loaded(), !first);
	large_pieces();
	T_CHECK(is_loaded());
	end();
	T_EQ(stub_nvrm_left(), 0);
}

/* With two GPUs, CUDA must be loaded at once to find the memory's GPU. */
static void cuda_of_one_of_two(void)
{
	if (!stub_name)
		T_SKIP("needs the library of tests/stub");
	stub_nvrm_reset();
	for (unsigned n = 0; n < 2; n++) {
		own_begin(n ? "cuda:1" : "cuda:0");
		memset(own.grant.uuid, 0, sizeof(own.grant.uuid));
		memset(&my, 0, sizeof(my));
		T_OK(server_new(NULL, &my.w));
		T_EQ(usrbio_id_new(my.id), 0);
		/* The owner's device number may differ from ours. */
		T_OK(server_buffer_add_grant(my.w, my.id, &own.grant, 1, &my.buffer));
		T_CHECK(is_loaded());
		small_pieces();
		large_pieces();
		end();
	}
}

/* Make requests after one that waits for the import, and small requests of other rings. */
static void many_at_once(void)
{
	enum { N = 200 };
	struct usrbio_cqe q[N];
	struct client r, other;

	begin("soft:0");
	env_file(1, FILE_LEN, O_RDONLY);
	env_ring(&r, N, true, 0, 0);
	env_ring(&other, N, true, 0, 0);
	for (unsigned i = 0; i < N; i++) {
		uint64_t len = i == 100 ? LARGE : 4096;
		struct usrbio_args a = env_args(1, i * 4096, i == 100 ? 2 * LARGE : i * 4096, len);

		T_CHECK(client_prep(&r, &a) >= 0);
		a = env_args(1, i * 4096, LARGE + i * 4096, 4096);
		T_CHECK(client_prep(&other, &a) >= 0);
	}
	server_ring_kick(r.ring);
	server_ring_kick(other.ring);
	T_EQ(client_wait(&r, q, N, N, RIG_WAIT_MS), N);
	for (unsigned i = 0; i < N; i++)
		T_CHECK(q[i].result == 4096 || q[i].result == (int64_t)LARGE);
	T_EQ(client_wait(&other, q, N, N, RIG_WAIT_MS), N);
	T_EQ(ask('d', 0, 100 * 4096, 1, 0), 100 * 4096);
	T_EQ(ask('d', 101 * 4096, 99 * 4096, 1, 101 * 4096), 99 * 4096);
	T_EQ(ask('d', 2 * LARGE, LARGE, 1, 100 * 4096), LARGE);
	T_EQ(ask('d', LARGE, N * 4096, 1, 0), N * 4096);
	client_free(&r);
	client_free(&other);
	end();
}

/* Serve as env_do() does, on this thread if possible. */
static int64_t serve(struct client *c, const struct usrbio_args *a)
{
	struct usrbio_cqe q;

	T_CHECK(client_prep(c, a) >= 0);
	server_ring_serve(c->ring);
	T_EQ(client_wait(c, &q, 1, 1, RIG_WAIT_MS), 1);
	return q.result;
}

/* A request that waits for an import reaches the server's thread, whichever thread started it. */
static void imports_for_who_serves(void)
{
	struct usrbio_args a;
	struct client r;

	begin("soft:0");
	env_file(1, FILE_LEN, O_RDONLY);
	env_ring(&r, 8, true, 0, 0);
	for (unsigned i = 0; i < 8; i++) {
		a = env_args(1, i, 0, LARGE);
		T_EQ(serve(&r, &a), (int64_t)LARGE);
		T_EQ(ask('d', 0, LARGE, 1, i), LARGE);
		/* Make a new buffer, which is not imported yet. */
		server_buffer_remove(my.w, my.buffer);
		T_OK(server_buffer_add_grant(my.w, my.id, &own.grant, 0, &my.buffer));
	}
	client_free(&r);
	end();
}

static struct {
	atomic_uint nr, mine; /* nr: all calls; mine: first calls of a request, on the test's
			       * thread */
	struct server_range last;
	pthread_t thread;
} told;

static void writes(const struct server_range *ranges, unsigned nr)
{
	told.last = ranges[nr - 1];
	/* The first of two calls comes before the bytes move. */
	if (atomic_fetch_add(&told.nr, nr) % 2 == 0 && pthread_equal(pthread_self(), told.thread))
		(void)atomic_fetch_add(&told.mine, 1);
}

static struct usrbio_tally tally;

/* A transfer through a window needs no other thread, and is reported and counted like others. */
static void told_and_counted(void)
{
	const struct server_opts o = { .threads = 1, .writes = writes, .tally = &tally };
	struct usrbio_sum sum = { 0 };
	struct usrbio_args a;
	struct client r, w;
	unsigned nr = 0;
	int fd;

	memset(&tally, 0, sizeof(tally));
	begin_on("soft:0", &o);
	told.thread = pthread_self();
	rig_make(rig_path("told"), 2, FILE_LEN);
	fd = open(rig_path("told"), O_RDWR | O_CLOEXEC);
	T_CHECK(fd >= 0);
	T_OK(server_file_add_told(my.w, 2, fd, &my.files[my.nr_files++]));
	env_ring(&r, 8, true, 0, 0);
	env_ring(&w, 8, false, 0, 0);
	a = env_args(2, 77, 0, 65536);
	T_EQ(serve(&r, &a), 65536);
	T_EQ(told.nr, 0);
	for (; nr < 50; nr++) {
		a = env_args(2, 4096, 7, 4096);
		T_EQ(serve(&w, &a), 4096);
		T_EQ(told.nr, 2 * (nr + 1));
		T_EQ(told.last.off, 4096);
		T_EQ(told.last.len, 4096);
	}
	/* Another thread that held the lock may have executed some of the requests. */
	T_CHECK(told.mine > 0);
	T_CHECK(usrbio_tally_read(&tally, &sum));
	T_EQ(sum.v[TALLY_REQUESTS], 1 + nr);
	T_EQ(sum.v[TALLY_ERRORS], 0);
	T_EQ(sum.v[TALLY_READ], 65536);
	T_EQ(sum.v[TALLY_WRITTEN], 4096 * nr);
	T_EQ(sum.v[TALLY_PATH + PST_PATH_WINDOW], 1 + nr);
	/* A request that waits for the import is reported at each attempt. */
	a = env_args(2, 8192, 0, LARGE);
	T_EQ(serve(&w, &a), (int64_t)LARGE);
	T_CHECK(told.nr >= 2 * (nr + 1) && told.last.len == LARGE);
	T_CHECK(usrbio_tally_read(&tally, &sum));
	T_EQ(sum.v[TALLY_REQUESTS], 2 + nr);
	T_EQ(sum.v[TALLY_WRITTEN], 4096 * nr + LARGE);
	T_EQ(sum.v[TALLY_PATH + PST_PATH_WINDOW], 1 + nr);
	T_EQ(usrbio_sum_timed(&sum), 2 + nr);
	client_free(&r);
	client_free(&w);
	(void)close(fd);
	end();
}

/*
 * The file of a small read hangs while its ring is removed; the kernel may write the bytes later.
 * Late bytes must reach neither the removed memory nor memory that replaced it.
 */
static void a_ring_goes_while_its_file_hangs(void)
{
	struct usrbio_args a;
	struct client c, d;

	need_fuse();
	begin("soft:0");
	T_EQ(ask('f', 0, LARGE, 9, 0), LARGE);
	env_file(1, FILE_LEN, O_RDONLY);
	fuse_file(2, "hang");
	env_ring(&c, 16, true, 0, 0);
	env_ring(&d, 64, true, 0, 0);
	for (unsigned i = 0; i < 8; i++) {
		a = env_args(2, i * 4096, i * 4096, 4096);
		T_CHECK(client_prep(&c, &a) >= 0);
	}
	server_ring_kick(c.ring);
	taken(&c);
	a = env_args(1, 5, LARGE, 4096);
	T_EQ(env_do(&d, &a), 4096);
	client_free(&c);
	for (unsigned i = 0; i < 200; i++) {
		a = env_args(1, i, LARGE + i * 4096, 4096);
		T_EQ(env_do(&d, &a), 4096);
		if (i == 20)
			fusefs_release(&fs);
	}
	for (unsigned i = 0; i < 200; i++)
		T_EQ(ask('d', LARGE + i * 4096, 4096, 1, i), 4096);
	T_EQ(ask('d', 0, 8 * 4096, 9, 0), 8 * 4096);
	client_free(&d);
	stop_fuse();
	end();
}

/* A slot that the kernel may still write to is not reused, nor are the other slots of its stage. */
static void slots_that_are_busy(void)
{
	struct stage *stage = NULL, *first;
	struct slot slot[64], more;
	char *old[64];

	for (unsigned i = 0; i < 64; i++) {
		T_OK(stage_take(&stage, &slot[i]));
		old[i] = slot_ptr(&slot[i]);
		memset(old[i], (int)i, IMPORT_PIECE);
	}
	first = stage;
	T_EQ(stage_take(&stage, &more), -EAGAIN);
	stage_put(&stage, &slot[7], false);
	T_CHECK(stage == first);
	T_OK(stage_take(&stage, &slot[7]));
	T_CHECK(slot_ptr(&slot[7]) == old[7]);
	stage_put(&stage, &slot[9], true);
	T_CHECK(!stage);
	T_OK(stage_take(&stage, &more));
	for (unsigned i = 0; i < 64; i++)
		T_CHECK(slot_ptr(&more) != old[i]);
	/* The other slots of the old stage stay valid until they are freed. */
	for (unsigned i = 0; i < 64; i++) {
		if (i == 9)
			continue;
		T_EQ(*(slot_ptr(&slot[i]) + IMPORT_PIECE - 1), (char)i);
		stage_put(&stage, &slot[i], i % 2);
	}
	T_CHECK(stage && slot_ptr(&more));
	stage_put(&stage, &more, false);
	T_CHECK(!stage_free(stage) && !stage_free(NULL));
}

/* An invalid descriptor, invalid sizes, and a device that does not exist here. */
static void grants_that_are_wrong(void)
{
	struct pst_grant g;

	begin("soft:0");
	g = own.grant;
	g.fd = -1;
	T_CHECK(server_buffer_add_grant(my.w, my.id, &g, 0, &my.buffer) < 0);
	g = own.grant;
	g.size *= 2;
	T_EQ(server_buffer_add_grant(my.w, my.id, &g, 0, &my.buffer), -EINVAL);
	g = own.grant;
	g.len = g.size + 1;
	T_EQ(server_buffer_add_grant(my.w, my.id, &g, 0, &my.buffer), -EINVAL);
	g = own.grant;
	g.len = 0;
	T_EQ(server_buffer_add_grant(my.w, my.id, &g, 0, &my.buffer), -EINVAL);
	g = own.grant;
	g.uuid[0] ^= 1;
	T_EQ(server_buffer_add_grant(my.w, my.id, &g, 0, &my.buffer), -ENODEV);
	small_pieces();
	end();
}

int main(int argc, char **argv)
{
	const char *lib = getenv("PST_LIBCUDA");

	self = argv[0];
	if (argc == 4)
		return owner(atoi(argv[2]), argv[3]);
	stub_name = lib && strrchr(lib, '/') ? strrchr(lib, '/') + 1 : NULL;
	rig_init();
	T_RUN(slots_that_are_busy);
	BOTH(soft_device);
	BOTH(cuda_by_its_handle);
	BOTH(cuda_of_one_of_two);
	BOTH(many_at_once);
	BOTH(imports_for_who_serves);
	RIG_RUN1(told_and_counted);
	BOTH(a_ring_goes_while_its_file_hangs);
	BOTH(grants_that_are_wrong);
	return rig_done();
}
