/* SPDX-License-Identifier: MIT */
#include "soft_rig.h"

static const char *self;

static bool is_exiting(const char *task)
{
	char path[300], line[512] = "", *end;
	unsigned flags = 0;
	FILE *f;

	(void)snprintf(path, sizeof(path), "/proc/self/task/%s/stat", task);
	f = fopen(path, "re");
	if (!f)
		return true;
	/* The thread's name may contain any character.  After it come the state, 5 numbers and the
	 * flags. */
	if (fgets(line, sizeof(line), f) && (end = strrchr(line, ')')))
		(void)sscanf(end + 1, " %*c %*d %*d %*d %*d %*d %u", &flags);
	(void)fclose(f);
	return !line[0] || flags & 4;
}

static unsigned threads(void)
{
	DIR *d = opendir("/proc/self/task");
	struct dirent *e;
	unsigned n = 0;

	while (d && (e = readdir(d)))
		n += e->d_name[0] != '.' && !is_exiting(e->d_name);
	if (d)
		(void)closedir(d);
	return n;
}

/* Return the signal that kills a child which uses the device address as a pointer. */
static int death_by(uint64_t va, bool write)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		_Atomic char *p = (_Atomic char *)(uintptr_t)va;

		(void)signal(SIGSEGV, SIG_DFL);
		(void)setrlimit(RLIMIT_CORE, &(struct rlimit){ 0 });
		if (write)
			*p = 1;
		else
			_exit(*p & 1);
		_exit(0);
	}
	return waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void the_cpu_cannot_touch_it(void)
{
	struct mem_alloc *a = alloc(10000);

	T_CHECK(!a->host);
	T_EQ(death_by(a->base.va, false), SIGSEGV);
	T_EQ(death_by(a->base.va, true), SIGSEGV);
	T_EQ(death_by(a->base.va + 9999, false), SIGSEGV);
	mem_free(a);
}

static void addresses_are_owned_while_they_live(void)
{
	struct mem_alloc *a[40];
	uint64_t va, len;

	for (int i = 0; i < 40; i++)
		a[i] = alloc(1 + 5000 * (uint64_t)i);
	for (int k = 0; k < 40; k++) {
		int i = k * 7 % 40; /* not in address order */

		va = a[i]->base.va;
		len = a[i]->size;
		T_CHECK(mem_soft_ops.owns(va, 1));
		T_CHECK(mem_soft_ops.owns(va, len));
		T_CHECK(mem_soft_ops.owns(va + len - 1, 1));
		T_CHECK(mem_soft_ops.owns(va - 1, 2));
		T_CHECK(mem_soft_ops.owns(va - 100000, 200000));
		mem_free(a[i]);
		T_CHECK(!mem_soft_ops.owns(va, len));
	}
	T_CHECK(!mem_soft_ops.owns((uintptr_t)&va, 8));
	T_CHECK(!mem_soft_ops.owns(1, 1));
}

static void wraps_outlive_their_owner_harmlessly(void)
{
	struct mem_alloc *a = alloc(5000), *w;
	char buf[100] = "x";

	T_OK(mem_wrap(a->base.va + 1000, 100, PST_KIND_SOFT, 0, &w));
	T_EQ(w->base.va, a->base.va);
	T_EQ(w->size, 5000);
	mem_free(a);
	T_OK(mem_copy_sync(w, MEM_TO_DEVICE, 1000, buf, 100));
	mem_free(w);
}

static void owning_is_quick(void)
{
	struct mem_alloc *a[100];
	uint64_t start;

	for (int i = 0; i < 100; i++)
		a[i] = alloc(4096);
	start = t_cpu();
	for (int i = 0; i < 10000; i++)
		T_CHECK(mem_soft_ops.owns(a[i % 100]->base.va, 1));
	/* At most 10 us each: the contract is 1 us, and a busy machine may be ten times slower. */
	T_CHECK(t_cpu() - start < 10000 * UINT64_C(10000));
	for (int i = 0; i < 100; i++)
		mem_free(a[i]);
}

/* The results of the last 1024 copies are known, errors included; an older ticket is refused. */
static void old_tickets_are_known_for_long(void)
{
	struct mem_alloc *a = alloc(1);
	struct mem_stream *st = stream();
	char b = 0;
	struct mem_copy c = { .alloc = a, .host = &b, .len = 1 };
	uint64_t first = 0, t = 0;

	T_OK(fault_set("mem.copy:1:EIO"));
	for (int i = 0; i < 1024; i++) {
		T_OK(mem_copy(st, MEM_TO_DEVICE, &c, 1, &t));
		if (!i)
			first = t;
		(void)wait_done(st, t);
	}
	T_EQ(mem_poll(st, first), -EIO);
	T_OK(mem_copy(st, MEM_TO_DEVICE, &c, 1, &t));
	T_EQ(mem_poll(st, first), -EINVAL);
	T_OK(fault_set(NULL));
	mem_stream_free(st);
	mem_free(a);
}

/* Sleep as a caller must: read the descriptor, poll for the ticket, then wait. */
static void the_descriptor_wakes_sleepers(void)
{
	struct mem_alloc *a = alloc(100);
	struct mem_stream *st = stream();
	struct pollfd p = { .fd = mem_stream_fd(st), .events = POLLIN };
	char buf[100] = "";
	struct mem_copy c = { .alloc = a, .host = buf, .len = 100 };
	uint64_t count, t[3];

	T_CHECK(p.fd >= 0);
	T_EQ(poll(&p, 1, 0), 0);
	for (int i = 0; i < 2000; i++) {
		int nr = 1 + i % 3, done = 0;

		for (int k = 0; k < nr; k++)
			T_OK(mem_copy(st, MEM_TO_DEVICE, &c, 1, &t[k]));
		while (done < nr) {
			if (mem_poll(st, t[done]) == 1) {
				done++;
				continue;
			}
			T_EQ(poll(&p, 1, 10000), 1);
			T_EQ(read(p.fd, &count, sizeof(count)), sizeof(count));
		}
	}
	mem_stream_free(st);
	mem_free(a);
}

static void freeing_a_stream_waits_for_its_copies(void)
{
	struct mem_alloc *a = alloc(8);
	struct mem_stream *st = stream();
	char out[8] = "abcdefg", in[8] = "";
	struct mem_copy w = { .alloc = a, .host = out, .len = 8 };
	struct mem_copy r = { .alloc = a, .host = in, .len = 8 };
	uint64_t t;

	T_OK(fault_set("mem.copy:1:30ms"));
	T_OK(mem_copy(st, MEM_TO_DEVICE, &w, 1, &t));
	T_OK(mem_copy(st, MEM_FROM_DEVICE, &r, 1, &t));
	mem_stream_free(st);
	T_CHECK(!memcmp(in, out, 8));
	T_OK(fault_set(NULL));
	mem_free(a);
}

static _Atomic bool stop_coming;

/* Make streams in a loop, with one copy each. */
static void *come_and_go(void *arg)
{
	struct mem_alloc *a = arg;
	char b = 1;

	while (!stop_coming)
		if (mem_copy_sync(a, MEM_TO_DEVICE, 99, &b, 1) < 0)
			return arg;
	return NULL;
}

/* mem_sync() waits for earlier copies on every stream, even while other streams end. */
static void waiting_for_the_device(void)
{
	struct mem_alloc *a = alloc(100);
	struct mem_stream *st[2] = { stream(), stream() };
	char buf[3][10] = { "a", "b", "c" };
	uint64_t t[3];
	pthread_t other;
	void *ret;

	T_OK(mem_sync(a));
	stop_coming = false;
	T_EQ(pthread_create(&other, NULL, come_and_go, a), 0);
	for (int round = 0; round < 20; round++) {
		T_OK(fault_set("mem.copy:0:2ms"));
		for (unsigned i = 0; i < 3; i++) {
			struct mem_copy c = {
				.alloc = a, .off = 10 * i, .host = buf[i], .len = 10
			};

			T_OK(mem_copy(st[i / 2], MEM_TO_DEVICE, &c, 1, &t[i]));
		}
		T_OK(mem_sync(a));
		for (unsigned i = 0; i < 3; i++)
			T_EQ(mem_poll(st[i / 2], t[i]), 1);
	}
	stop_coming = true;
	T_EQ(pthread_join(other, &ret), 0);
	T_CHECK(!ret);
	T_OK(fault_set(NULL));
	mem_stream_free(st[0]);
	mem_stream_free(st[1]);
	mem_free(a);
}

static void the_thread_is_there_while_it_is_needed(void)
{
	struct mem_alloc *a = alloc(100);
	unsigned before = threads();
	struct mem_stream *st[3];
	char line[256];
	char b;
	struct mem_copy c = { .alloc = a, .host = &b, .len = 1 };
	uint64_t t;
	struct dirent *e;
	bool named = false, blocked = false;
	DIR *d;

	for (int i = 0; i < 3; i++)
		st[i] = stream();
	T_EQ(threads(), before + 1);

	/* Wait until a copy has run: then the thread has set its name. */
	T_OK(mem_copy(st[0], MEM_FROM_DEVICE, &c, 1, &t));
	T_EQ(wait_done(st[0], t), 1);
	d = opendir("/proc/self/task");
	while ((e = readdir(d))) {
		char path[300];
		FILE *f;

		(void)snprintf(path, sizeof(path), "/proc/self/task/%s/status", e->d_name);
		f = e->d_name[0] == '.' ? NULL : fopen(path, "re");
		while (f && fgets(line, sizeof(line), f)) {
			if (!strncmp(line, "Name:\tpst-soft-0\n", 17))
				named = true;
			/* all but SIGKILL, SIGSTOP and the two of the C library */
			if (named && !strncmp(line, "SigBlk:\tfffffff", 15))
				blocked = true;
		}
		if (f)
			(void)fclose(f);
		if (named)
			break;
	}
	(void)closedir(d);
	T_CHECK(named);
	T_CHECK(blocked);

	for (int i = 0; i < 3; i++)
		mem_stream_free(st[i]);
	T_EQ(threads(), before);
	mem_free(a);
}

static uint64_t cpu_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void idling_costs_nothing(void)
{
	struct mem_stream *st = stream();
	uint64_t start;

	(void)usleep(20000); /* wait until the threads have begun */
	start = cpu_ns();
	(void)usleep(200000); /* measure the threads' CPU time while nothing is copied */
	T_CHECK(cpu_ns() - start < 20000000u);
	mem_stream_free(st);
}

/* Streams come and go while other threads copy.  Every byte is checked. */
static void *busy_user(void *arg)
{
	enum { LEN = 20000 };
	uint64_t seed = (uintptr_t)arg;
	struct mem_alloc *a = NULL;
	uint8_t *buf = malloc(LEN);
	uintptr_t bad = 0;

	if (!buf || mem_alloc(&mem_soft_ops, 0, LEN, 0, &a) < 0)
		bad = 1;
	for (int round = 0; !bad && round < 30; round++) {
		struct mem_stream *st = NULL;

		if (mem_stream_new(&mem_soft_ops, 0, &st) < 0) {
			bad = 2;
			break;
		}
		for (int i = 0; i < 10; i++) {
			struct mem_copy c = { .alloc = a, .host = buf, .len = LEN };
			uint64_t t;

			t_fill(buf, seed + (uint64_t)i, 0, LEN);
			if (mem_copy(st, MEM_TO_DEVICE, &c, 1, &t) < 0 || wait_done(st, t) != 1)
				bad = 3;
			memset(buf, 0, LEN);
			if (mem_copy(st, MEM_FROM_DEVICE, &c, 1, &t) < 0 || wait_done(st, t) != 1)
				bad = 4;
			if (t_differs(buf, seed + (uint64_t)i, 0, LEN) != LEN)
				bad = 5;
		}
		mem_stream_free(st);
	}
	mem_free(a);
	free(buf);
	return (void *)bad;
}

static void many_users_at_once(void)
{
	unsigned before = threads();
	pthread_t t[4];
	void *bad;

	for (uintptr_t i = 0; i < 4; i++)
		T_EQ(pthread_create(&t[i], NULL, busy_user, (void *)(i * 1000)), 0);
	for (int i = 0; i < 4; i++) {
		T_EQ(pthread_join(t[i], &bad), 0);
		T_EQ((uintptr_t)bad, 0);
	}
	T_EQ(threads(), before);
}

static void large_copies(void)
{
	uint64_t len = MIB(40) + 12345;
	struct mem_alloc *a = alloc(len);
	uint8_t *out = malloc(len), *in = malloc(len);

	T_CHECK(out && in);
	for (uint64_t i = 0; i < len; i += 8)
		memcpy(out + i, &(uint64_t){ i * 0x9e3779b97f4a7c15u }, MIN(len - i, UINT64_C(8)));
	T_OK(mem_copy_sync(a, MEM_TO_DEVICE, 0, out, len));
	T_OK(mem_copy_sync(a, MEM_FROM_DEVICE, 0, in, len));
	T_CHECK(!memcmp(in, out, len));
	free(out);
	free(in);
	mem_free(a);
}

static void without_descriptors(void)
{
	struct rlimit old, low;
	struct mem_alloc *a = NULL;
	struct mem_stream *st = NULL;
	int r[2];

	T_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
	low = old;
	low.rlim_cur = 3;
	T_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
	r[0] = mem_alloc(mem_provider(PST_KIND_SOFT), 0, 1, 0, &a);
	r[1] = mem_stream_new(mem_provider(PST_KIND_SOFT), 0, &st);
	T_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
	T_EQ(r[0], -EMFILE);
	T_EQ(r[1], -EMFILE);
}

/* Run this program again with PST_SOFT_DEVICES set.  The new process runs child(). */
static int devices_with(const char *value)
{
	struct pst_device d[2];
	char uuid[40] = "";
	int status;
	pid_t pid;

	T_EQ(mem_list(d, 2), 2);
	for (int i = 0; i < 16; i++)
		(void)sprintf(uuid + 2 * i, "%02x", d[1].uuid[i]);
	pid = fork();
	if (!pid) {
		(void)setenv("PST_SOFT_DEVICES", value, 1);
		(void)execl(self, self, uuid, (char *)NULL);
		_exit(99);
	}
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void as_many_devices_as_asked_for(void)
{
	T_EQ(devices_with("1"), 1);
	T_EQ(devices_with("3"), 3);
	T_EQ(devices_with("8"), 8);
	T_EQ(devices_with(""), 1);
	T_EQ(devices_with("0"), 1);
	T_EQ(devices_with("9"), 1);
	T_EQ(devices_with("12"), 1);
	T_EQ(devices_with("x"), 1);
}

/* Exit with the number of devices, if each can be told apart and used. */
static int child(const char *uuid)
{
	const struct mem_ops *ops;
	struct pst_device d[16];
	int n = mem_list(d, 16);
	unsigned idx;

	if (mem_find(uuid, &ops, &idx) < 0 || idx != 0) /* find the device by the parent's UUID */
		return 100;
	for (int i = 1; i < n; i++) {
		struct mem_stream *st[2];
		struct mem_alloc *a;
		char in = 0, out = 5;
		struct mem_copy c = { .host = &in, .len = 1 };
		uint64_t t;

		for (int k = 1; k < i; k++)
			if (!memcmp(d[i].uuid, d[k].uuid, 16))
				return 101;
		if (mem_find(d[i].name, &ops, &idx) < 0 || (int)idx != i - 1)
			return 102;
		if (mem_alloc(ops, idx, 1, 0, &a) < 0 ||
		    mem_copy_sync(a, MEM_TO_DEVICE, 0, &out, 1) < 0 ||
		    mem_copy_sync(a, MEM_FROM_DEVICE, 0, &in, 1) < 0 || in != 5)
			return 103;
		c.alloc = a;
		for (unsigned k = 0; k < 2; k++) {
			unsigned dev = k ? (idx + 1) % (unsigned)(n - 1) : idx;

			if (mem_stream_new(ops, dev, &st[k]) < 0)
				return 104;
			if (mem_copy(st[k], MEM_FROM_DEVICE, &c, 1, &t) !=
			    (dev == idx ? 0 : -EINVAL))
				return 105;
		}
		mem_stream_free(st[0]);
		mem_stream_free(st[1]);
		mem_free(a);
	}
	return n - 1;
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return child(argv[1]);
	self = argv[0];
	(void)unsetenv("PST_SOFT_DEVICES");
	T_RUN(the_cpu_cannot_touch_it);
	T_RUN(addresses_are_owned_while_they_live);
	T_RUN(wraps_outlive_their_owner_harmlessly);
	T_RUN(owning_is_quick);
	T_RUN(old_tickets_are_known_for_long);
	T_RUN(the_descriptor_wakes_sleepers);
	T_RUN(freeing_a_stream_waits_for_its_copies);
	T_RUN(waiting_for_the_device);
	T_RUN(the_thread_is_there_while_it_is_needed);
	T_RUN(idling_costs_nothing);
	T_RUN(many_users_at_once);
	T_RUN(large_copies);
	T_RUN(without_descriptors);
	T_RUN(as_many_devices_as_asked_for);
	return t_done();
}
