/* SPDX-License-Identifier: MIT */
/*
 * Ends of what moves bytes by RDMA: requests that are cancelled, memory that goes, clients, servers
 * and devices that die, and calls that fail.
 */
#include "rdma_rig.h"

/*
 * Send a request that the stopped server does not answer, and cancel it or let its deadline pass.
 * Return false if the request may have ended before it was sent, which only the stub can tell.
 */
static bool give_up(struct pst_file *f, struct pst_mem *m, bool write, bool cancel, unsigned ms)
{
	struct pst_io io = rig_io(write ? PST_OP_WRITE : PST_OP_READ, f, m, 0, 0, PIECE);

	io.user_data = 77;
	io.deadline_ns = cancel ? 0 : t_in_ms(ms);
	T_OK(pst_queue_prep(rig_q, &io));
	T_EQ(pst_queue_submit(rig_q), 1);
	if (cancel) {
		/* The request's registration is the second, after that of the messages. */
		while (stub.state && stub_now().mrs < 2)
			(void)usleep(1000);
		T_EQ(pst_queue_cancel(rig_q, 77), 1);
	}
	T_EQ(rig_reap1(rig_q).res, cancel ? -ECANCELED : -ETIMEDOUT);
	return cancel || stub_now().qps == 0;
}

/* After a request is given up, nothing may reach its memory, whatever the server does later. */
static void late_bytes_do_not_arrive(void)
{
	struct pst_mem *m = alloc_reached(PIECE);
	void *reached = rig_soft() ? reach_begin(m, PIECE) : NULL;
	struct pst_file *f;

	for (unsigned i = 0; i < 4; i++) {
		bool cancel = i % 2, write = i / 2;

		rig_make(rig_path("data"), SEED, PIECE);
		server_start("--rdma", NULL);
		f = rig_open(url("data"), RIG_RW);
		T_EQ(rig_read(f, m, 0, 0, PIECE).res, PIECE);
		T_CHECK(kill(server, SIGSTOP) == 0);
		rig_mem_fill(m, 0, PIECE, 1, 0);
		/* A request that ends before it was sent ends no queue pair: try again. */
		for (unsigned ms = 30; !give_up(f, m, write, cancel, ms); ms *= 2)
			;
		T_OK(pst_mem_drain(m, t_hang()));
		nothing_is_reached();
		/* Reuse the memory. */
		rig_mem_fill(m, 0, PIECE, 2, 0);
		T_CHECK(kill(server, SIGCONT) == 0);
		/* Wait for a new connection, whose hello is answered after all requests of the
		 * old one. */
		T_EQ(rig_read(f, m, 0, 0, 65536).res, 65536);
		T_EQ(rig_mem_differs(m, 65536, PIECE - 65536, 2, 65536), PIECE - 65536);
		if (write) { /* either old bytes or the write's bytes */
			char byte = 0;

			T_EQ(rig_slurp(rig_path("data"), 4096, &byte, 1), 1);
			T_CHECK(t_differs(&byte, SEED, 4096, 1) || t_differs(&byte, 1, 4096, 1));
		}
		(void)pst_file_close(f);
		server_end(SIGTERM);
	}
	if (reached)
		reach_end(reached, PIECE);
	(void)pst_mem_free(m);
}

/* A write over the socket with unmapped memory ends the connection, but no request by RDMA. */
static void memory_that_is_gone(void)
{
	struct pst_mem *m = alloc_reached(LEN), *h = rig_alloc("host", LEN), *gone = NULL;
	struct pst_mem_opts o = { .sz = sizeof(o) };
	void *reached = reach_begin(m, LEN);
	struct pst_file *f;
	struct pst_io io[3];
	char *p;

	p = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	T_CHECK(p != MAP_FAILED);
	T_OK(pst_mem_wrap((uint64_t)(uintptr_t)p, PIECE, &o, &gone));
	rig_make(rig_path("data"), SEED, LEN);
	server_start("--rdma", NULL);
	f = rig_open(url("data"), RIG_RW);
	T_EQ(rig_read(f, m, 0, 0, LEN).paths, RDMA);
	T_EQ(mprotect(p, PIECE, PROT_NONE), 0);
	/* More than the socket's buffer, so that other requests wait. */
	T_CHECK(kill(server, SIGSTOP) == 0);
	io[0] = rig_io(PST_OP_WRITE, f, h, 0, 0, LEN);
	io[1] = rig_io(PST_OP_WRITE, f, m, LEN, 0, PIECE);
	io[2] = rig_io(PST_OP_WRITE, f, gone, LEN + PIECE, 0, PIECE);
	io[0].policy = io[2].policy = PST_PATH_TCP;
	for (unsigned i = 0; i < RIG_NR(io); i++) {
		io[i].user_data = i;
		T_OK(pst_queue_prep(rig_q, &io[i]));
	}
	T_EQ(pst_queue_submit(rig_q), RIG_NR(io));
	T_CHECK(kill(server, SIGCONT) == 0);
	for (unsigned i = 0; i < RIG_NR(io); i++) {
		struct pst_done d = rig_reap1(rig_q);

		T_EQ(d.res, d.user_data == 2 ? -EFAULT : (int64_t)io[d.user_data].len);
		if (d.user_data == 1) {
			T_EQ(d.paths, RDMA);
			T_EQ(d.why, PST_WHY_NONE);
		}
	}
	T_EQ(rig_read(f, m, 0, 0, LEN).paths, RDMA);
	(void)pst_file_close(f);
	reach_end(reached, LEN);
	(void)pst_mem_free(m);
	(void)pst_mem_free(h);
	(void)pst_mem_free(gone);
	T_EQ(munmap(p, PIECE), 0);
	server_end(SIGTERM);
}

/* A refusal for lack of room must not be remembered as a property of the memory. */
static void memory_outlives_a_refusal(void)
{
	/* Do first what may skip the case. */
	struct pst_mem *m = alloc_reached(LEN), *h = rig_alloc("host", LEN);
	struct pst_queue *q = rig_queue(rig_backend, 8), *other = rig_queue(rig_backend, 8);
	void *reached = reach_begin(m, LEN);
	uint64_t end = t_hang();
	struct pst_file *f;
	struct pst_done d;
	struct pst_io io;

	rig_make(rig_path("data"), SEED, LEN);
	server_start("--rdma", "--rdma-clients=1");
	f = rig_open(url("data"), RIG_R);
	io = rig_io(PST_OP_READ, f, h, 0, 0, LEN);
	T_EQ(rig_do(q, &io).paths, RDMA);
	d = rig_read(f, m, 0, 0, LEN);
	T_EQ(d.res, LEN);
	T_EQ(paths_of(&d), TCP);
	T_EQ(d.why, PST_WHY_NO_RDMA);
	T_EQ(d.detail, EBUSY);
	pst_queue_free(q);
	while (number(CONNECTIONS) && t_now() < end)
		(void)usleep(1000);
	io = rig_io(PST_OP_READ, f, m, 0, 0, LEN);
	d = rig_do(other, &io);
	T_EQ(d.res, LEN);
	T_EQ(d.paths, RDMA);
	T_EQ(d.why, PST_WHY_NONE);
	T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
	(void)pst_file_close(f);
	pst_queue_free(other);
	reach_end(reached, LEN);
	(void)pst_mem_free(m);
	(void)pst_mem_free(h);
	server_end(SIGTERM);
}

/* Kill the server repeatedly, at any point. */
static void *kill_it(void *arg)
{
	struct timespec ts = { .tv_nsec = (long)rig_below(4000000) };

	(void)arg;
	(void)nanosleep(&ts, NULL);
	(void)kill(server, SIGKILL);
	return NULL;
}

static void a_killed_server(void)
{
	unsigned nr = getenv("PST_SOAK") ? 1000 : 10;
	struct pst_mem *m = rig_alloc(rig_dev, LEN);
	struct pst_file *f;
	struct pst_io io;
	pthread_t t;

	rig_make(rig_path("data"), SEED, LEN);
	server_start("--rdma", NULL);
	f = rig_open(url("data"), RIG_R);
	for (unsigned i = 0; i < nr; i++) {
		int status;

		io = rig_io(PST_OP_READ, f, m, 0, 0, LEN);
		rig_mem_fill(m, 0, LEN, 1, 0);
		T_EQ(pthread_create(&t, NULL, kill_it, NULL), 0);
		T_OK(pst_queue_prep(rig_q, &io));
		T_EQ(pst_queue_submit(rig_q), 1);
		T_EQ(pthread_join(t, NULL), 0);
		T_EQ(waitpid(server, &status, 0), server);
		server = 0;
		server_start("--rdma", NULL);
		T_EQ(rig_reap1(rig_q).res, LEN);
		T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
	}
	(void)pst_file_close(f);
	(void)pst_mem_free(m);
	server_end(SIGTERM);
}

/* Get the kernel's RDMA objects as rdma(8) shows them; "" with the stub, which has none there. */
static void kernel_objects(char *ret, size_t size)
{
	FILE *p = stub.state ? NULL : popen("rdma resource show", "r");
	size_t n = p ? fread(ret, 1, size - 1, p) : 0;

	ret[n] = '\0';
	if (p)
		T_EQ(pclose(p), 0);
}

/* A client process that reads by RDMA until it is killed; it prints a line after the first
 * bytes. */
static int client_main(const char *name)
{
	struct pst_mem *m;
	struct pst_file *f;
	struct pst_done d;

	rig_q = rig_queue(rig_best_backend(), 0);
	m = rig_alloc("host", LEN);
	f = rig_open(name, RIG_R);
	d = rig_read(f, m, 0, 0, LEN);
	if (d.res != (int64_t)LEN || d.paths != RDMA)
		return 1;
	(void)!write(STDOUT_FILENO, "r", 1);
	for (;;)
		(void)rig_read(f, m, 0, 0, LEN);
}

static void client_is_killed(char *name)
{
	char self[] = "/proc/self/exe", client[] = "--client", byte = 0;
	char *const args[] = { self, client, name, NULL };
	int out[2], status;
	pid_t pid;

	T_CHECK(pipe2(out, O_CLOEXEC) == 0);
	pid = fork();
	T_CHECK(pid >= 0);
	if (pid == 0) {
		(void)dup2(out[1], STDOUT_FILENO);
		(void)execv(self, args);
		_exit(127);
	}
	(void)close(out[1]);
	T_EQ(read(out[0], &byte, 1), 1);
	(void)close(out[0]);
	(void)usleep((useconds_t)rig_below(4000));
	T_EQ(kill(pid, SIGKILL), 0);
	T_EQ(waitpid(pid, &status, 0), pid);
}

/* Clients that are killed in the middle leave nothing in the server, and nothing in the kernel. */
static void killed_clients(void)
{
	const char *env = getenv("PST_TEST_KILLS");
	unsigned nr = env ? (unsigned)atoi(env) : 5;
	static char before[4096], after[4096];
	uint64_t end;
	char name[800];

	rig_make(rig_path("data"), SEED, LEN);
	kernel_objects(before, sizeof(before));
	server_start("--rdma", NULL);
	(void)snprintf(name, sizeof(name), "%s", url("data"));
	for (unsigned i = 0; i < nr; i++)
		client_is_killed(name);
	T_EQ(number(REQUESTS("rdma")), nr);
	end = t_hang();
	while (number(CONNECTIONS) && t_now() < end)
		(void)usleep(1000);
	T_EQ(number(CONNECTIONS), 0);
	/* The server still runs, and the kernel ends objects a moment later. */
	do
		kernel_objects(after, sizeof(after));
	while (strcmp(before, after) != 0 && t_now() < end && usleep(10000) == 0);
	T_CHECK(!strcmp(before, after));
	printf("# %u clients were killed; rdma resource show before and after: %s\n", nr,
	       *before ? before : "none");
	server_end(SIGTERM);
}

/* The n-th call of the library fails in the client: the bytes come by RDMA or by TCP. */
static void nth_call_fails(void)
{
	static const char *const calls[] = {
		"ibv_open_device",  "ibv_query_device", "ibv_alloc_pd",
		"ibv_reg_mr_iova2", "ibv_create_cq",    "ibv_create_comp_channel",
		"ibv_create_qp",    "ibv_modify_qp",    "ibv_poll_cq",
		"completion",       "ibv_post_recv",    "ibv_req_notify_cq",
	};
	struct pst_mem *m = alloc_by_stub();
	struct pst_file *f;
	struct pst_done d;

	rig_make(rig_path("data"), SEED, LEN);
	server_start("--rdma", NULL);
	for (unsigned c = 0; c < RIG_NR(calls); c++)
		for (unsigned n = 1; n <= 4; n++) {
			char spec[80];

			rig_q = pst_queue_free(rig_q);
			rig_q = rig_queue(rig_backend, 0);
			(void)snprintf(spec, sizeof(spec), "%s:%u:12", calls[c], n);
			server_rename();
			stub.fail(spec);
			f = rig_open(url("data"), RIG_RW);
			rig_mem_fill(m, 0, LEN, 1, 0);
			d = rig_read(f, m, 0, 0, LEN);
			T_EQ(d.res, LEN);
			T_CHECK(d.paths & (TCP | RDMA));
			T_CHECK(!(d.paths & RDMA) || !(d.paths & TCP) || d.why == PST_WHY_NO_RDMA);
			T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
			d = rig_write(f, m, 0, 0, LEN);
			T_EQ(d.res, LEN);
			stub.fail(NULL);
			(void)pst_file_close(f);
		}
	(void)pst_mem_free(m);
	server_end(SIGTERM);
}

/* The nth call fails in each of the server's processes. */
static void nth_call_fails_there(void)
{
	static const char *const calls[] = {
		"ibv_alloc_pd",  "ibv_reg_mr_iova2", "ibv_create_qp",     "ibv_modify_qp",
		"ibv_post_send", "completion",       "ibv_req_notify_cq", "ibv_create_cq",
	};
	struct pst_mem *m = alloc_by_stub();
	struct pst_file *f;
	struct pst_done d;

	rig_make(rig_path("data"), SEED, LEN);
	for (unsigned c = 0; c < RIG_NR(calls); c++)
		for (unsigned n = 1; n <= 3; n++) {
			char spec[80];

			(void)snprintf(spec, sizeof(spec), "%s:%u:12", calls[c], n);
			T_EQ(setenv("STUB_IBVERBS_FAIL", spec, 1), 0);
			server_start("--rdma", NULL);
			T_EQ(unsetenv("STUB_IBVERBS_FAIL"), 0);
			server_rename();
			f = rig_open(url("data"), RIG_RW);
			d = rig_read(f, m, 0, 0, LEN);
			T_EQ(d.res, LEN);
			T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
			T_EQ(rig_write(f, m, 0, 0, LEN).res, LEN);
			(void)pst_file_close(f);
			server_end(SIGTERM);
		}
	(void)pst_mem_free(m);
}

/* A device fails, with and without an event. */
static void a_device_dies(void)
{
	struct pst_mem *m = alloc_by_stub();
	struct pst_file *f;
	struct pst_done d;

	rig_make(rig_path("data"), SEED, LEN);
	server_start("--rdma", NULL);
	server_rename();
	f = rig_open(url("data"), RIG_R);
	T_EQ(rig_read(f, m, 0, 0, LEN).res, LEN);
	stub.die(true, true);
	d = rig_read(f, m, 0, 0, LEN);
	T_EQ(d.res, LEN);
	T_CHECK(d.paths & TCP);
	T_EQ(d.why, PST_WHY_NO_RDMA);
	T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
	stub.die(false, false);
	(void)pst_file_close(f);
	(void)pst_mem_free(m);
	server_end(SIGTERM);
}

/* After a queue pair by which no transfer succeeds, no queue and no file, not even a new one, asks
 * for another queue pair until the pause is over. */
static void failures_are_not_repeated(void)
{
	struct pst_mem *m = alloc_by_stub();
	unsigned nr_checked = 0;
	struct pst_file *f;
	struct pst_done d;

	rig_make(rig_path("data"), SEED, LEN);
	T_EQ(setenv("STUB_IBVERBS_FAIL", "completion:0:12", 1), 0);
	server_start("--rdma", NULL);
	T_EQ(unsetenv("STUB_IBVERBS_FAIL"), 0);
	while (!nr_checked) {
		uint64_t begin;
		int64_t asked;

		server_rename();
		begin = t_now();
		f = rig_open(url("data"), RIG_RW);
		d = rig_read(f, m, 0, 0, LEN);
		T_EQ(d.res, LEN);
		T_EQ(paths_of(&d), TCP);
		T_EQ(d.why, PST_WHY_NO_RDMA);
		asked = number(REQUESTS("rdma"));
		for (unsigned i = 0; i < 6; i++) {
			if (i % 3 == 1) {
				(void)pst_file_close(f);
				f = rig_open(url("data"), RIG_RW);
			}
			if (i % 3 == 2) {
				rig_q = pst_queue_free(rig_q);
				rig_q = rig_queue(rig_backend, 0);
			}
			d = i % 2 ? rig_write(f, m, 0, 0, LEN) : rig_read(f, m, 0, 0, LEN);
			T_EQ(d.res, LEN);
			/* The machine is so busy that the pause is over: try once more. */
			if (t_now() - begin > 4 * 1000000000ull)
				break;
			T_EQ(paths_of(&d), TCP);
			T_EQ(d.why, PST_WHY_NO_RDMA);
			T_EQ(number(REQUESTS("rdma")), asked);
			nr_checked++;
		}
		(void)pst_file_close(f);
	}
	(void)pst_mem_free(m);
	server_end(SIGTERM);
}

/* An idle client frees a device that has failed, with all of its objects. */
static void an_idle_client_gives_a_dead_device_back(void)
{
	struct pst_mem *m = alloc_by_stub();
	struct stub_ibverbs_state st;
	uint64_t end = t_hang();
	struct pst_file *f;
	struct pst_done d;

	rig_make(rig_path("data"), SEED, LEN);
	server_start("--rdma", NULL);
	server_rename();
	f = rig_open(url("data"), RIG_R);
	T_EQ(rig_read(f, m, 0, 0, LEN).res, LEN);
	T_EQ(stub_now().contexts, 1);
	T_EQ(stub_now().qps, 1);
	stub.die(true, true);
	do
		st = stub_now();
	while (st.contexts + st.qps + st.mrs + st.pds + st.cqs + st.channels && t_now() < end &&
	       usleep(1000) == 0);
	T_EQ(st.contexts + st.qps + st.mrs + st.pds + st.cqs + st.channels, 0);
	stub.die(false, false);
	/* RDMA pauses after the failure, so the bytes come over the socket, or by RDMA if the pause
	 * is over already. */
	d = rig_read(f, m, 0, 0, LEN);
	T_EQ(d.res, LEN);
	T_CHECK(paths_of(&d) == TCP ? d.why == PST_WHY_NO_RDMA : paths_of(&d) == RDMA);
	T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
	(void)pst_file_close(f);
	(void)pst_mem_free(m);
	server_end(SIGTERM);
}

static void make_file(const char *name)
{
	int fd = open(rig_path(name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	T_CHECK(fd >= 0);
	(void)close(fd);
}

/* While the end of a client's queue pair takes long, all other clients are served. */
static void a_slow_end_stops_nobody(void)
{
	struct pst_mem *m = alloc_by_stub();
	struct pst_queue *q = rig_queue(rig_backend, 8), *other = rig_queue(rig_backend, 8);
	uint64_t end = t_hang();
	struct pst_file *f;
	struct pst_done d;
	struct pst_io io;

	rig_make(rig_path("data"), SEED, LEN);
	T_EQ(setenv("STUB_IBVERBS_HOLD", rig_path("hold"), 1), 0);
	server_start("--rdma", NULL);
	T_EQ(unsetenv("STUB_IBVERBS_HOLD"), 0);
	server_rename();
	f = rig_open(url("data"), RIG_RW);
	io = rig_io(PST_OP_READ, f, m, 0, 0, LEN);
	T_EQ(rig_do(q, &io).paths, RDMA);
	make_file("hold");
	pst_queue_free(q);
	while (access(rig_path("hold.held"), F_OK) && t_now() < end)
		(void)usleep(1000);
	T_EQ(access(rig_path("hold.held"), F_OK), 0);
	for (unsigned i = 0; i < 4; i++) {
		d = i % 2 ? rig_write(f, m, 0, 0, LEN) : rig_read(f, m, 0, 0, LEN);
		T_EQ(d.res, LEN);
		T_EQ(d.paths, RDMA);
		T_EQ(number(CONNECTIONS), 2);
	}
	/* A client that comes during this is served, also over the socket. */
	d = rig_do(other, &io);
	T_EQ(d.res, LEN);
	T_EQ(d.paths, RDMA);
	io.policy = PST_PATH_TCP;
	T_EQ(rig_do(other, &io).paths, TCP);
	T_EQ(number(CONNECTIONS), 3);
	T_EQ(unlink(rig_path("hold")), 0);
	while (number(CONNECTIONS) != 2 && t_now() < end)
		(void)usleep(1000);
	T_EQ(number(CONNECTIONS), 2);
	(void)pst_file_close(f);
	pst_queue_free(other);
	(void)pst_mem_free(m);
	server_end(SIGTERM);
}

/* The server's device fails while all clients are idle. */
static void an_idle_server_gives_a_dead_device_back(void)
{
	struct pst_mem *m = alloc_by_stub();
	uint64_t end = t_hang();
	struct pst_file *f;

	rig_make(rig_path("data"), SEED, LEN);
	T_EQ(setenv("STUB_IBVERBS_DEATH", rig_path("death"), 1), 0);
	server_start("--rdma", NULL);
	T_EQ(unsetenv("STUB_IBVERBS_DEATH"), 0);
	server_rename();
	f = rig_open(url("data"), RIG_R);
	T_EQ(rig_read(f, m, 0, 0, LEN).paths, RDMA);
	T_EQ(number(CONNECTIONS), 1);
	make_file("death");
	while (number(CONNECTIONS) && t_now() < end)
		(void)usleep(1000);
	T_EQ(number(CONNECTIONS), 0);
	T_EQ(number("penstock_serve_rdma_failed_total"), 1);
	T_EQ(rig_read(f, m, 0, 0, LEN).res, LEN);
	T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
	(void)pst_file_close(f);
	(void)pst_mem_free(m);
	server_end(SIGTERM);
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "--client"))
		return client_main(argv[2]);
	rdma_begin();
	RUN(late_bytes_do_not_arrive, "host");
	RUN(late_bytes_do_not_arrive, "soft:0");
	RUN(memory_outlives_a_refusal, "soft:0");
	RUN(memory_that_is_gone, "soft:0");
	RUN(a_killed_server, "host");
	RUN(killed_clients, "host");
	RUN(nth_call_fails, "host");
	RUN(nth_call_fails_there, "host");
	RUN(a_device_dies, "host");
	RUN(failures_are_not_repeated, "host");
	RUN(an_idle_client_gives_a_dead_device_back, "host");
	RUN(an_idle_server_gives_a_dead_device_back, "host");
	RUN(a_slow_end_stops_nobody, "host");
	return rig_done();
}
