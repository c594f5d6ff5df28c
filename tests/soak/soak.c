/* SPDX-License-Identifier: MIT */
/*
 * Rounds of the random driver.
 *
 *	soak [--seed N] [--seconds S]
 *
 * Round k has the seed N + k and its own process, so --seed with a failed round's seed begins
 * with that round.  A seed repeats the decisions, but not their timing, which depends on threads
 * and the kernel.  Without --seconds there are two short rounds, one with a fixed seed and one
 * with a random seed.
 */
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "soak.h"

#define NR_GROUNDS 4u
#define NR_LENT 8u
#define LENT_LEN (3u << 20) /* at least the length of a bank */
#define ROUND_S 15u
#define SHORT_DEEDS 1500u
#define FAULTS_MAX 20u
#define SEC UINT64_C(1000000000)

#if RIG_TSAN || defined(__SANITIZE_ADDRESS__)
#define SLOWNESS 4u
#else
#define SLOWNESS 1u
#endif

bool soak_faults;

static uint64_t seed;
static struct actor *actors[8];
static unsigned nr_actors;
static struct ground grounds[NR_GROUNDS];

uint64_t soak_patience_ns(void)
{
	return 60 * SLOWNESS * SEC;
}

void soak_show_stacks(void)
{
	char command[160];

	(void)fflush(stdout);
	(void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	(void)snprintf(command, sizeof(command),
		       "gdb -p %d -batch -ex 'thread apply all bt 14' 2>/dev/null | sed 's/^/# /'",
		       getpid());
	if (system(command) != 0)
		printf("# no stacks: gdb is missing\n");
}

_Noreturn void soak_fail(const char *fmt, ...)
{
	static atomic_flag failing = ATOMIC_FLAG_INIT;
	va_list ap;

	while (atomic_flag_test_and_set(&failing))
		(void)pause();
	printf("# seed %" PRIu64 "%s%s: ", seed, soak_faults ? " PST_FAULT=" : "",
	       soak_faults ? getenv("PST_FAULT") : "");
	va_start(ap, fmt);
	(void)vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	for (unsigned i = 0; i < nr_actors; i++)
		actor_show(actors[i]);
	(void)fflush(stdout);
	abort();
}

/* ----------------------------------------------------------------- lender */

static int lender_sock = -1;

/* Grant memory to the round: 'h' requests host memory, 's' memory of the software device; capitals
 * request read-only grants. */
static int lender_main(int sock)
{
	struct pst_mem *lent[NR_LENT] = { NULL };
	char what;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (unsigned n = 0; read(sock, &what, 1) == 1; n++) {
		struct pst_mem_opts o = { .sz = sizeof(o), .flags = PST_MEM_SHARED };
		struct pst_grant g = { .sz = sizeof(g), .fd = -1 };
		struct pst_mem **m = &lent[n % NR_LENT];
		bool lower = what == 'h' || what == 's';
		int r;

		*m = pst_mem_free(*m);
		r = pst_mem_alloc(what == 'h' || what == 'H' ? "host" : "soft:0", LENT_LEN, &o, m);
		if (r == 0)
			r = pst_mem_export(*m, 0, LENT_LEN,
					   PST_RIGHT_READ | (lower ? PST_RIGHT_WRITE : 0), &g);
		if (r == 0)
			r = pst_grant_send(sock, &g, t_now() + soak_patience_ns());
		pst_grant_done(&g);
		if (r < 0)
			soak_fail("the lender got %d: %s", r, pst_error_text());
	}
	for (unsigned i = 0; i < NR_LENT; i++)
		pst_mem_free(lent[i]);
	return 0;
}

int soak_borrow(struct dice *d, struct pst_mem **ret, bool *ret_read_only)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct pst_grant g = { .sz = sizeof(g), .fd = -1 };
	char what = "hhsshhssHS"[below(d, 10)];
	int r;

	(void)pthread_mutex_lock(&lock);
	r = write(lender_sock, &what, 1) == 1 ? 0 : -errno;
	if (r == 0)
		r = pst_grant_recv(lender_sock, &g, t_now() + soak_patience_ns());
	(void)pthread_mutex_unlock(&lock);
	if (r == 0)
		r = pst_mem_import(&g, ret);
	pst_grant_done(&g);
	*ret_read_only = what == 'H' || what == 'S';
	return r;
}

static pid_t lender_start(void)
{
	char fd[16];
	int sv[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sv) < 0)
		soak_fail("no socket: %s", strerror(errno));
	pid = fork();
	if (pid == 0) {
		(void)close(sv[0]);
		(void)unsetenv("PST_FAULT");
		(void)snprintf(fd, sizeof(fd), "%d", sv[1]);
		(void)execl("/proc/self/exe", "soak", "--lend", fd, (char *)NULL);
		_exit(127);
	}
	(void)close(sv[1]);
	(void)fcntl(sv[0], F_SETFD, FD_CLOEXEC);
	lender_sock = sv[0];
	return pid;
}

/* ------------------------------------------------------------------ counts */

/* Resources that the process holds. */
struct holdings {
	unsigned fds, tasks, maps;
	unsigned long locked_kb;
};

static struct holdings count_holdings(void)
{
	struct holdings h = { .fds = t_count_fds(), .tasks = rig_count_tasks() };
	FILE *f = fopen("/proc/self/status", "re");
	unsigned long kb;
	char line[512];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "VmLck: %lu", &kb) == 1 || sscanf(line, "VmPin: %lu", &kb) == 1)
			h.locked_kb += kb;
	if (f)
		(void)fclose(f);
	f = fopen("/proc/self/maps", "re");
	while (f && fgets(line, sizeof(line), f))
		h.maps += strstr(line, "/memfd:") || strstr(line, "io_uring");
	if (f)
		(void)fclose(f);
	return h;
}

static void check_holdings(const struct holdings *before)
{
	uint64_t end = t_now() + soak_patience_ns();
	struct pst_stats st = { .sz = sizeof(st) };
	struct holdings h;

	do {
		(void)usleep(10000);
		h = count_holdings();
		(void)pst_stats(NULL, &st);
		if (h.fds <= before->fds && h.tasks <= before->tasks && h.maps <= before->maps &&
		    h.locked_kb <= before->locked_kb && !st.inflight && !st.busy &&
		    !st.pool_bytes && !st.pages_bytes)
			return;
	} while (t_now() < end);
	soak_show_stacks();
	soak_fail(
		"left: descriptors %u of %u, mappings %u of %u, locked %lu of %lu KiB, threads%s, "
		"in flight %" PRIu64 ", busy %" PRIu64 ", pool %" PRIu64 ", pages %" PRIu64,
		h.fds, before->fds, h.maps, before->maps, h.locked_kb, before->locked_kb,
		rig_task_names, st.inflight, st.busy, st.pool_bytes, st.pages_bytes);
}

/* ------------------------------------------------------------------- round */

static void check_child(pid_t pid, const char *name, int flags)
{
	int status = 0;
	pid_t r = waitpid(pid, &status, flags);

	if (r < 0 || (r == pid && (flags || status)))
		soak_fail("the %s ended with 0x%x", name, (unsigned)status);
}

/* Wait until all actors have ended.  Fail if an actor makes no progress, or a helper process
 * ends. */
static void watch(const pthread_t *threads, pid_t neighbour, pid_t lender)
{
	uint64_t last[RIG_NR(actors)] = { 0 }, since[RIG_NR(actors)];

	for (unsigned i = 0; i < nr_actors; i++)
		since[i] = t_now();
	for (unsigned i = 0; i < nr_actors;) {
		struct timespec ts;

		(void)clock_gettime(CLOCK_REALTIME, &ts);
		ts.tv_sec++;
		if (pthread_timedjoin_np(threads[i], NULL, &ts) == 0) {
			i++;
			continue;
		}
		for (unsigned k = i; k < nr_actors; k++) {
			uint64_t deeds = actor_deeds(actors[k]);

			if (deeds != last[k])
				since[k] = t_now();
			last[k] = deeds;
			/* Check only the next one to join; later ones may have ended. */
			if (k == i && t_now() - since[k] > soak_patience_ns()) {
				soak_show_stacks();
				soak_fail("actor %u hangs", k);
			}
		}
		check_child(neighbour, "neighbour", WNOHANG);
		check_child(lender, "lender", WNOHANG);
	}
}

static int round_main(uint64_t seconds, const char *dir)
{
	static const char *const devices[] = { "host", "soft:0", "cuda:0" };
	struct actor_plan plan = { .seed = seed, .grounds = grounds, .nr_grounds = NR_GROUNDS };
	struct pst_device cuda = { .sz = sizeof(cuda) };
	struct dice d = dice_new(seed, 1000);
	pthread_t threads[RIG_NR(actors)];
	struct holdings before;
	atomic_bool *stop;
	uint64_t requests = 0;
	pid_t neighbour, lender;

	soak_faults = getenv("PST_FAULT") != NULL;
	ground_init(&grounds[0], GROUND_LIVE, dir, seed);
	ground_init(&grounds[1], GROUND_LIVE, NULL, seed);
	ground_init(&grounds[2], GROUND_STILL, dir, seed);
	ground_init(&grounds[3], GROUND_SHRINKS, one_in(&d, 2) ? dir : NULL, seed);
	stop = mmap(NULL, sizeof(*stop), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	/* fork before the library is used in this process */
	neighbour = fork();
	if (neighbour == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		ground_neighbour(grounds, NR_GROUNDS, dice_new(seed, 1001), stop);
		_exit(0);
	}
	lender = lender_start();

	before = count_holdings();
	plan.devices = devices;
	plan.nr_devices = pst_device_find("cuda:0", &cuda) == 0 ? 3 : 2;
	plan.deeds = seconds ? 0 : SHORT_DEEDS;
	plan.end_ns = t_now() + seconds * SEC;
	nr_actors = 2 + (unsigned)below(&d, 3);
	for (plan.nr = 0; plan.nr < nr_actors; plan.nr++)
		actors[plan.nr] = actor_new(&plan);
	for (unsigned i = 0; i < nr_actors; i++)
		if (pthread_create(&threads[i], NULL, actor_main, actors[i]) != 0)
			soak_fail("no thread");
	watch(threads, neighbour, lender);
	check_holdings(&before);

	atomic_store(stop, true);
	check_child(neighbour, "neighbour", 0);
	(void)close(lender_sock);
	check_child(lender, "lender", 0);
	for (unsigned i = 0; i < nr_actors; i++) {
		requests += actor_requests(actors[i]);
		actor_free(actors[i]);
	}
	for (unsigned i = 0; i < NR_GROUNDS; i++)
		ground_done(&grounds[i]);
	(void)munmap(stop, sizeof(*stop));
	printf("# %u actors, %" PRIu64 " requests\n", nr_actors, requests);
	return 0;
}

/* ----------------------------------------------------------------- driver */

/* Choose a PST_FAULT from the seed; "": a round without failures. */
static const char *choose_faults(struct dice *d)
{
	static const struct {
		const char *site, *what[4];
	} sites[] = {
		{ "file.read", { "short", "EIO", "EAGAIN", "20ms" } },
		{ "file.write", { "short", "EIO", "ENOSPC", "20ms" } },
		{ "file.sync", { "EIO", "30ms", "ENOSPC", "5ms" } },
		{ "file.open", { "EMFILE", "EMFILE", "ENOMEM", "5ms" } },
		{ "file.direct", { "EINVAL", "EINVAL", "EMFILE", "1ms" } },
		{ "file.context", { "ENOMEM", "EMFILE", "EAGAIN", "1ms" } },
		{ "file.pin", { "ENOMEM", "ENOMEM", "EINVAL", "5ms" } },
		{ "mem.alloc", { "ENOMEM", "ENOMEM", "EMFILE", "1ms" } },
		{ "mem.copy", { "EIO", "EIO", "30ms", "5ms" } },
		{ "mem.stream", { "ENOMEM", "EMFILE", "ENOMEM", "5ms" } },
		{ "mem.pin", { "ENOMEM", "ENOMEM", "EIO", "5ms" } },
	};
	static char text[FAULTS_MAX * 40];
	unsigned nr = one_in(d, 2) ? 0 : 1 + (unsigned)below(d, FAULTS_MAX);
	size_t len = 0;

	text[0] = '\0';
	for (unsigned i = 0; i < nr; i++) {
		unsigned k = (unsigned)below(d, RIG_NR(sites));

		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s:%" PRIu64 ":%s",
					i ? "," : "", sites[k].site, any_size(d, 11),
					sites[k].what[below(d, 4)]);
	}
	return text;
}

static void run_round(uint64_t round_seed, uint64_t seconds)
{
	struct dice d = dice_new(round_seed, 1002);
	const char *faults = choose_faults(&d);
	char seed_text[24], seconds_text[24];
	int status = -1;
	pid_t pid;

	printf("# seed %" PRIu64 "%s%s\n", round_seed, faults[0] ? " PST_FAULT=" : "", faults);
	(void)fflush(stdout);
	(void)snprintf(seed_text, sizeof(seed_text), "%" PRIu64, round_seed);
	(void)snprintf(seconds_text, sizeof(seconds_text), "%" PRIu64, seconds);
	pid = fork();
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (faults[0])
			(void)setenv("PST_FAULT", faults, 1);
		(void)execl("/proc/self/exe", "soak", "--round", seed_text, seconds_text, rig_dir,
			    (char *)NULL);
		_exit(127);
	}
	if (pid > 0)
		(void)waitpid(pid, &status, 0);
	printf("%s %d seed %" PRIu64 "\n", status ? "not ok" : "ok", ++t_cases, round_seed);
	if (status)
		printf("# status 0x%x; soak --seed %" PRIu64 " begins with it\n", (unsigned)status,
		       round_seed);
	t_failed += status != 0;
	(void)fflush(stdout);
}

static uint64_t number(const char *text)
{
	char *end;
	uint64_t n = text ? strtoull(text, &end, 10) : 0;

	if (!text || *end || end == text) {
		(void)fprintf(stderr, "soak [--seed N] [--seconds S]\n");
		exit(2);
	}
	return n;
}

int main(int argc, char **argv)
{
	const char *env = getenv("PST_SEED");
	uint64_t seconds = 0, end;
	bool given = env != NULL;

	if (argc == 3 && !strcmp(argv[1], "--lend"))
		return lender_main(atoi(argv[2]));
	if (argc == 5 && !strcmp(argv[1], "--round")) {
		seed = number(argv[2]);
		return round_main(number(argv[3]), argv[4]);
	}
	seed = env ? number(env) : t_now() / 1000;
	for (int i = 1; i < argc; i += 2) {
		given |= !strcmp(argv[i], "--seed");
		if (!strcmp(argv[i], "--seed"))
			seed = number(argv[i + 1]);
		else if (!strcmp(argv[i], "--seconds"))
			seconds = number(argv[i + 1]);
		else
			(void)number(NULL);
	}
	rig_init();
	if (!seconds && !given)
		run_round(1, 0);
	if (!seconds)
		run_round(seed, 0);
	for (end = t_now() + seconds * SEC; t_now() < end && !t_failed; seed++) {
		uint64_t left = (end - t_now()) / SEC + 1;

		run_round(seed, left < ROUND_S ? left : ROUND_S);
	}
	return rig_done();
}
