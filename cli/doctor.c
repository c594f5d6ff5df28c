/* SPDX-License-Identifier: MIT */
/*
 * What this machine can do and what keeps it from more: every path of every device to a
 * scratch file is tried with real bytes.  Whatever is missing here (/proc, a writable
 * directory, a device) becomes a line of the report and not an error of the report.
 */
#include <fcntl.h>
#include <getopt.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "commands.h"
#include "json.h"
#include "pattern.h"
#include "util.h"

#define DEVICES_MAX 32
#define PROBE_BYTES MIB(2)
#define PROBE_TIMEOUT_MS 10000

const char doctor_usage[] =
	"Usage: penstock doctor [--dir DIR] [--json]\n"
	"\n"
	"The first three lines are the verdict: what works, what limits it, what to do next.\n"
	"\n"
	"  --dir DIR  try files of this directory (default: $TMPDIR, /var/tmp or .)\n"
	"  --json     one JSON object\n";

/* One way between a device and the scratch file, in one direction. */
struct trial {
	uint32_t state; /* enum pst_state */
	uint32_t why;
	int32_t detail;
	uint32_t paths;  /* of the completion that proved it */
	char error[256]; /* what went wrong when it was tried, or "" */
};

struct device_report {
	struct pst_device dev;
	char error[256]; /* why its memory could not be had, or "" */
	struct trial auto_read, auto_write;
	struct trial read[PST_PATH_MAX + 1], write[PST_PATH_MAX + 1];
};

struct limits {
	uint64_t memlock, nofile, as; /* UINT64_MAX: unlimited */
	int uring_disabled;           /* sysctl kernel.io_uring_disabled; -1: not there */
	uint64_t cgroup_memory;
	uint64_t shm_size; /* of /dev/shm; 0: not there */
	char container[64];
};

struct report {
	struct machine m;
	struct limits l;
	char uring[256], threads[256]; /* "" when to be had, else the sentence */
	struct device_report devs[DEVICES_MAX];
	unsigned nr_devs;
	char dir[4096];
	char dir_error[256];
	struct pst_file_info file;
	char verdict[3][800];
	bool ok;
};

/* ------------------------------------------------------------------- facts */

static uint64_t limit_of(int what)
{
	struct rlimit rl;

	if (getrlimit((__rlimit_resource_t)what, &rl) < 0 || rl.rlim_cur == RLIM_INFINITY)
		return UINT64_MAX;
	return rl.rlim_cur;
}

static void find_container(char *buf, size_t len)
{
	_cleanup_(fclosep) FILE *f = NULL;
	const char *env = getenv("container");
	char line[1024];

	buf[0] = '\0';
	if (access("/.dockerenv", F_OK) == 0) {
		(void)snprintf(buf, len, "docker");
	} else if (access("/run/.containerenv", F_OK) == 0) {
		(void)snprintf(buf, len, "podman");
	} else if (getenv("KUBERNETES_SERVICE_HOST")) {
		(void)snprintf(buf, len, "kubernetes");
	} else if (env && *env) {
		(void)snprintf(buf, len, "%.60s", env);
	} else if ((f = fopen("/proc/1/cgroup", "re"))) {
		while (fgets(line, sizeof(line), f))
			if (strstr(line, "docker") || strstr(line, "kubepods") ||
			    strstr(line, "lxc"))
				(void)snprintf(buf, len, "by the name of its control group");
	}
}

static void find_limits(struct limits *l)
{
	struct statvfs vfs;
	char line[64];

	*l = (struct limits){
		.memlock = limit_of(RLIMIT_MEMLOCK),
		.nofile = limit_of(RLIMIT_NOFILE),
		.as = limit_of(RLIMIT_AS),
		.uring_disabled = -1,
		.cgroup_memory = cgroup_memory_limit(),
	};
	if (read_line("/proc/sys/kernel/io_uring_disabled", line, sizeof(line)) == 0)
		l->uring_disabled = atoi(line);
	if (statvfs("/dev/shm", &vfs) == 0)
		l->shm_size = (uint64_t)vfs.f_blocks * vfs.f_frsize;
	find_container(l->container, sizeof(l->container));
}

static void find_store(uint32_t store, char *buf, size_t len)
{
	int r = pst_store_check(store);

	buf[0] = '\0';
	if (r < 0)
		(void)snprintf(buf, len, "%s", *pst_error_text() ? pst_error_text() : strerror(-r));
}

/* ------------------------------------------------------------------ trials */

/* The file that is tried with. */
struct scratch {
	char *dir, *path;
	int fd;
	struct pst_file *file;
};

static int one_request(const struct pst_io *io, struct pst_done *ret)
{
	struct pst_queue_opts qo = { .sz = sizeof(qo), .depth = 4, .timeout_ms = PROBE_TIMEOUT_MS };
	_cleanup_(pst_queuep) struct pst_queue *q = NULL;
	char buf[256];
	int r;

	r = pst_queue_new(&qo, &q);
	if (r == 0)
		r = pst_prep(q, io);
	if (r == 0)
		r = pst_submit(q);
	if (r >= 0)
		r = pst_reap(q, ret, 1, 1, PST_NO_DEADLINE);
	if (r < 0)
		return fail_pst(r, NULL);
	if (r != 1)
		return fail(EIO, "a request was lost");
	if (ret->res < 0)
		return fail((int)-ret->res, "%s", pst_done_text(ret, buf, sizeof(buf)));
	if ((uint64_t)ret->res != io->len)
		return fail(EIO, "only %lld bytes were moved", (long long)ret->res);
	return 0;
}

/* Move real bytes along a policy and compare them. */
static int move_bytes(int fd, struct pst_file *file, struct pst_mem *mem, uint32_t op,
		      uint64_t policy, bool cold, struct pst_done *ret)
{
	_cleanup_(freep) uint8_t *buf = malloc(PROBE_BYTES);
	struct pst_io io = {
		.op = op, .policy = policy, .file = file, .mem = mem, .len = PROBE_BYTES
	};
	/* Another seed each time, so that what the last trial left is no success. */
	uint64_t seed = now_ns();
	int r;

	if (!buf)
		return fail(ENOMEM, "out of memory");
	pattern_fill(buf, seed, 0, PROBE_BYTES);
	if (op == PST_OP_WRITE) {
		r = pst_mem_store(mem, 0, buf, PROBE_BYTES);
		if (r < 0)
			return fail_pst(r, NULL);
	} else {
		r = pwrite_all(fd, buf, PROBE_BYTES, 0, "the scratch file");
		if (r < 0)
			return r;
		if (cold && fsync(fd) == 0)
			make_cold(fd);
	}
	r = one_request(&io, ret);
	if (r < 0)
		return r;
	memset(buf, 0, PROBE_BYTES);
	if (op == PST_OP_WRITE) {
		r = pread_all(fd, buf, PROBE_BYTES, 0, "the scratch file");
		if (r < 0)
			return r;
	} else {
		r = pst_mem_load(mem, 0, buf, PROBE_BYTES);
		if (r < 0)
			return fail_pst(r, NULL);
	}
	if (pattern_differs(buf, seed, 0, PROBE_BYTES) != PROBE_BYTES)
		return fail(EIO, "the path gave wrong data");
	return 0;
}

static void try_path(const struct scratch *s, struct pst_mem *mem, uint32_t op, uint32_t path,
		     bool host, struct trial *t)
{
	_cleanup_(pst_filep) struct pst_file *file = NULL;
	struct pst_path_info info = { .sz = sizeof(info) };
	bool file_hop = path <= PST_PATH_BUFFERED;
	struct pst_done d;
	uint64_t policy;
	int r;

	*t = (struct trial){ .why = PST_WHY_NONE };
	/* An open file remembers what it met: each trial gets its own.  Nobody else changes the
	 * scratch file, and some paths want that promise. */
	r = pst_file_open(s->path, PST_FILE_READ | PST_FILE_WRITE | PST_FILE_STABLE, NULL, &file);
	if (r == 0)
		r = pst_path_check(file, mem, op, path, &info);
	if (r < 0) {
		(void)snprintf(t->error, sizeof(t->error), "%.250s", pst_error_text());
		return;
	}
	t->state = info.state;
	t->why = info.why;
	t->detail = info.detail;
	if (info.state == PST_STATE_IMPOSSIBLE)
		return;

	/* To a device a way of reaching the file is always behind the staging. */
	policy = file_hop && !host ? PST_POLICY2(PST_PATH_STAGED, path) : PST_POLICY1(path);
	/* Not cold: CACHED needs the bytes in the page cache, the others do not mind. */
	r = move_bytes(s->fd, file, mem, op, policy, false, &d);
	if (r < 0) {
		t->state = PST_STATE_POSSIBLE;
		(void)snprintf(t->error, sizeof(t->error), "%.250s", fail_text());
	} else if (d.paths & PST_PATH_BIT(path)) {
		t->state = PST_STATE_PROVEN;
		t->why = PST_WHY_NONE;
		t->paths = d.paths;
	} else {
		t->state = PST_STATE_POSSIBLE;
		t->why = d.why;
		t->detail = d.detail;
		t->paths = d.paths;
	}
}

/* As an engine meets it: the disk has the bytes, memory has not. */
static void try_auto(const struct scratch *s, struct pst_mem *mem, uint32_t op, struct trial *t)
{
	struct pst_done d;

	*t = (struct trial){ .why = PST_WHY_NONE };
	if (move_bytes(s->fd, s->file, mem, op, PST_POLICY_AUTO, true, &d) < 0) {
		(void)snprintf(t->error, sizeof(t->error), "%.250s", fail_text());
		return;
	}
	t->state = PST_STATE_PROVEN;
	t->why = d.why;
	t->detail = d.detail;
	t->paths = d.paths;
}

static void try_device(const struct scratch *s, struct device_report *dr)
{
	_cleanup_(pst_memp) struct pst_mem *mem = NULL;
	bool host = dr->dev.kind == PST_KIND_HOST;
	int r;

	r = pst_mem_alloc(dr->dev.name, PROBE_BYTES, NULL, &mem);
	if (r < 0) {
		(void)snprintf(dr->error, sizeof(dr->error), "%.250s", pst_error_text());
		return;
	}
	try_auto(s, mem, PST_OP_READ, &dr->auto_read);
	try_auto(s, mem, PST_OP_WRITE, &dr->auto_write);
	for (uint32_t path = 1; path < PST_PATH_MAX; path++) {
		if (!strcmp(pst_path_name(path), "unknown"))
			continue;
		try_path(s, mem, PST_OP_READ, path, host, &dr->read[path]);
		try_path(s, mem, PST_OP_WRITE, path, host, &dr->write[path]);
	}
}

static int make_scratch(struct scratch *s, struct report *rep, const char *dir)
{
	int r;

	r = scratch_dir(dir, &s->dir);
	if (r < 0)
		return r;
	(void)snprintf(rep->dir, sizeof(rep->dir), "%.*s", (int)(strrchr(s->dir, '/') - s->dir),
		       s->dir);
	if (asprintf(&s->path, "%s/scratch", s->dir) < 0) {
		s->path = NULL;
		return fail(ENOMEM, "out of memory");
	}
	s->fd = open(s->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (s->fd < 0)
		return fail(errno, "cannot make a file in %s: %s", rep->dir, strerror(errno));
	r = pst_file_open(s->path, PST_FILE_READ | PST_FILE_WRITE, NULL, &s->file);
	return r < 0 ? fail_pst(r, NULL) : 0;
}

static void scratch_done(struct scratch *s)
{
	(void)pst_file_close(s->file);
	closep(&s->fd);
	if (s->dir)
		scratch_remove(s->dir);
	free(s->path);
	free(s->dir);
}

static void try_all(struct report *rep, const char *dir)
{
	_cleanup_(scratch_done) struct scratch s = { .fd = -1 };

	if (make_scratch(&s, rep, dir) < 0) {
		(void)snprintf(rep->dir_error, sizeof(rep->dir_error), "%.250s", fail_text());
		return;
	}
	(void)pst_file_info(s.file, &rep->file);
	for (unsigned i = 0; i < rep->nr_devs && !stop_signal; i++)
		try_device(&s, &rep->devs[i]);
}

static void find_devices(struct report *rep)
{
	struct pst_device devs[DEVICES_MAX];
	int n;

	for (unsigned i = 0; i < DEVICES_MAX; i++)
		devs[i] = (struct pst_device){ .sz = sizeof(devs[i]) };
	n = pst_device_list(devs, DEVICES_MAX);
	for (int i = 0; i < n && i < DEVICES_MAX; i++)
		rep->devs[rep->nr_devs++].dev = devs[i];
}

/* ----------------------------------------------------------------- verdict */

/* The device a user would think of first: an accelerator, else the software device. */
static const struct device_report *main_device(const struct report *rep)
{
	const struct device_report *best = NULL;

	for (unsigned i = 0; i < rep->nr_devs; i++) {
		uint32_t kind = rep->devs[i].dev.kind;

		if (kind == PST_KIND_CUDA || kind == PST_KIND_GAUDI)
			return &rep->devs[i];
		if (!best || kind == PST_KIND_SOFT)
			best = &rep->devs[i];
	}
	return best;
}

/* Add a clause to a line, with "; " between. */
_printf_(3, 4) static void clause(char *buf, size_t len, const char *fmt, ...)
{
	size_t n = strlen(buf);
	va_list ap;

	if (n && n + 3 < len) {
		(void)strcpy(buf + n, "; ");
		n += 2;
	}
	va_start(ap, fmt);
	(void)vsnprintf(buf + n, len - n, fmt, ap);
	va_end(ap);
}

static void judge(struct report *rep)
{
	const struct device_report *dr = main_device(rep);
	const struct trial *rd = dr ? &dr->auto_read : NULL, *wr = dr ? &dr->auto_write : NULL;
	char limits[400] = "", next[400] = "";

	if (!dr) {
		(void)snprintf(rep->verdict[0], sizeof(rep->verdict[0]),
			       "BAD: no memory is to be had, not even the host's");
	} else if (*rep->dir_error) {
		(void)snprintf(rep->verdict[0], sizeof(rep->verdict[0]),
			       "BAD: no file to try with: %s", rep->dir_error);
		clause(next, sizeof(next),
		       "name a directory that you may write to: penstock doctor "
		       "--dir DIR");
	} else if (*dr->error || rd->state != PST_STATE_PROVEN || wr->state != PST_STATE_PROVEN) {
		(void)snprintf(rep->verdict[0], sizeof(rep->verdict[0]),
			       "BAD: files do not reach %s: %s", dr->dev.name,
			       *dr->error   ? dr->error
			       : *rd->error ? rd->error
					    : wr->error);
		clause(next, sizeof(next), "PST_LOG=debug penstock doctor shows each step");
	} else {
		rep->ok = true;
		(void)snprintf(
			rep->verdict[0], sizeof(rep->verdict[0]),
			"OK: files reach %s by %s and leave it by %s%s", dr->dev.name,
			paths_text(rd->paths).s, paths_text(wr->paths).s,
			dr->dev.kind == PST_KIND_SOFT
				? " (soft is the software device: no accelerator is served here)"
				: "");
	}

	if (*rep->uring) {
		clause(limits, sizeof(limits), "%s%s", rep->uring,
		       *rep->threads ? "" : "; threads are used");
		if (rep->l.uring_disabled > 0)
			clause(next, sizeof(next),
			       "sysctl -w kernel.io_uring_disabled=0 allows io_uring");
		else if (*rep->l.container)
			clause(next, sizeof(next),
			       "start the container with a seccomp profile that allows "
			       "io_uring");
	}
	if (*rep->threads)
		clause(limits, sizeof(limits), "%s", rep->threads);
	if (rep->ok && rd->why)
		clause(limits, sizeof(limits), "%s", why_text(rd->why, rd->detail).s);
	if (rep->ok && wr->why && wr->why != rd->why)
		clause(limits, sizeof(limits), "writes: %s", why_text(wr->why, wr->detail).s);
	/* The superuser is not held to it. */
	if (rep->l.memlock < MIB(64) && geteuid() != 0) {
		clause(limits, sizeof(limits), "only %s of memory may be locked",
		       size_text(rep->l.memlock).s);
		clause(next, sizeof(next),
		       "raise the memlock limit (ulimit -l, or LimitMEMLOCK= of a "
		       "service)");
	}
	if (rep->l.as < GIB(16))
		clause(limits, sizeof(limits), "the address space is limited to %s",
		       size_text(rep->l.as).s);
	if (rep->l.nofile < 1024)
		clause(limits, sizeof(limits), "only %llu descriptors may be open",
		       (unsigned long long)rep->l.nofile);

	(void)snprintf(rep->verdict[1], sizeof(rep->verdict[1]), "LIMITS: %s",
		       *limits ? limits : "none found");
	if (!*next)
		clause(next, sizeof(next), "penstock demo");
	(void)snprintf(rep->verdict[2], sizeof(rep->verdict[2]), "NEXT: %s", next);
}

/* ------------------------------------------------------------------ output */

static const char *state_name(uint32_t state)
{
	switch (state) {
	case PST_STATE_PROVEN:
		return "proven";
	case PST_STATE_POSSIBLE:
		return "possible";
	default:
		return "impossible";
	}
}

static void print_trial(const char *path, const char *op, const struct trial *t)
{
	const char *state = state_name(t->state);

	if (*t->error)
		(void)printf("    %-10s %-6s %-10s  but: %s\n", path, op, state, t->error);
	else if (t->why)
		(void)printf("    %-10s %-6s %-10s  %s\n", path, op, state,
			     why_text(t->why, t->detail).s);
	else
		(void)printf("    %-10s %-6s %s\n", path, op, state);
}

static void print_paths(const struct device_report *dr)
{
	(void)printf("  %s\n", device_text(&dr->dev).s);
	if (*dr->error) {
		(void)printf("    no memory: %s\n", dr->error);
		return;
	}
	for (uint32_t p = 1; p < PST_PATH_MAX; p++) {
		const struct trial *r = &dr->read[p], *w = &dr->write[p];

		if (!strcmp(pst_path_name(p), "unknown"))
			continue;
		if (r->state == w->state && r->why == w->why && !*r->error && !*w->error) {
			print_trial(pst_path_name(p), "both", r);
			continue;
		}
		print_trial(pst_path_name(p), "read", r);
		print_trial(pst_path_name(p), "write", w);
	}
}

static void print_limit(const char *name, uint64_t v, bool bytes)
{
	(void)printf("  %-22s ", name);
	if (v == UINT64_MAX)
		(void)puts("unlimited");
	else if (bytes)
		(void)puts(size_text(v).s);
	else
		(void)printf("%llu\n", (unsigned long long)v);
}

static void print_report(const struct report *rep)
{
	const struct limits *l = &rep->l;

	for (size_t i = 0; i < ARRAY_SIZE(rep->verdict); i++)
		(void)puts(rep->verdict[i]);

	(void)puts("\ndevices");
	for (unsigned i = 0; i < rep->nr_devs; i++) {
		const struct pst_device *d = &rep->devs[i].dev;

		(void)printf("  %-8s %s", d->name, d->model);
		if (d->total)
			(void)printf(", %s", size_text(d->total).s);
		if (d->pci[0])
			(void)printf(", PCI %s", d->pci);
		if (d->numa_node >= 0)
			(void)printf(", NUMA node %d", d->numa_node);
		(void)putchar('\n');
	}

	(void)puts("\nstores");
	(void)printf("  %-8s %s\n", "uring", *rep->uring ? rep->uring : "to be had");
	(void)printf("  %-8s %s\n", "threads", *rep->threads ? rep->threads : "to be had");

	if (*rep->dir_error) {
		(void)printf("\npaths\n  not tried: %s\n", rep->dir_error);
	} else {
		(void)printf("\npaths to a scratch file in %s (%s", rep->dir, rep->file.fs);
		if (rep->file.direct)
			(void)printf(", O_DIRECT at %u bytes of the file and %u of memory",
				     rep->file.off_align, rep->file.mem_align);
		(void)puts(")");
		for (unsigned i = 0; i < rep->nr_devs; i++)
			print_paths(&rep->devs[i]);
	}

	(void)puts("\nlimits");
	print_limit("locked memory", l->memlock, true);
	print_limit("open files", l->nofile, false);
	print_limit("address space", l->as, true);
	print_limit("control group's memory", l->cgroup_memory, true);
	if (l->uring_disabled >= 0)
		(void)printf("  %-22s %d\n", "io_uring_disabled", l->uring_disabled);
	else
		(void)printf("  %-22s not there\n", "io_uring_disabled");
	if (l->shm_size)
		print_limit("/dev/shm", l->shm_size, true);
	else
		(void)printf("  %-22s not there\n", "/dev/shm");
	(void)printf("  %-22s %s\n", "container", *l->container ? l->container : "no sign of one");

	(void)printf("\nmachine\n  %s, %u of %u processors usable\n", rep->m.cpu, rep->m.cpus,
		     rep->m.online);
	if (rep->m.memory)
		(void)printf("  %s of memory, %s free to use\n", size_text(rep->m.memory).s,
			     size_text(rep->m.available).s);
	(void)printf("  %s\n  penstock %s\n", rep->m.kernel, pst_version());
}

static void add_trial(struct json_object *to, const char *key, const struct trial *t)
{
	struct json_object *o = json_object_new_object();

	json_text(o, "state", state_name(t->state));
	json_paths(o, "paths", t->paths);
	json_text(o, "why", pst_why_name(t->why));
	json_int(o, "detail", t->detail);
	json_text(o, "text", t->why ? why_text(t->why, t->detail).s : "");
	json_text(o, "error", t->error);
	json_add(to, key, o);
}

static struct json_object *device_json(const struct device_report *dr, bool tried)
{
	struct json_object *o = json_object_new_object(), *paths = json_object_new_object();

	json_text(o, "name", dr->dev.name);
	json_text(o, "model", dr->dev.model);
	json_text(o, "pci", dr->dev.pci);
	json_int(o, "numa_node", dr->dev.numa_node);
	json_u64(o, "memory_bytes", dr->dev.total);
	json_text(o, "error", dr->error);
	for (uint32_t p = 1; tried && !*dr->error && p < PST_PATH_MAX; p++) {
		struct json_object *path;

		if (!strcmp(pst_path_name(p), "unknown"))
			continue;
		path = json_object_new_object();
		add_trial(path, "read", &dr->read[p]);
		add_trial(path, "write", &dr->write[p]);
		json_add(paths, pst_path_name(p), path);
	}
	if (tried && !*dr->error) {
		add_trial(o, "auto_read", &dr->auto_read);
		add_trial(o, "auto_write", &dr->auto_write);
	}
	json_add(o, "paths", paths);
	return o;
}

/* Unlimited is null. */
static void add_limit(struct json_object *to, const char *key, uint64_t v)
{
	if (v == UINT64_MAX)
		json_add(to, key, NULL);
	else
		json_u64(to, key, v);
}

static void print_json(const struct report *rep)
{
	_cleanup_(json_putp) struct json_object *root = json_object_new_object();
	struct json_object *o;

	json_machine(root, &rep->m);
	json_flag(root, "ok", rep->ok);
	o = json_object_new_array();
	for (size_t i = 0; i < ARRAY_SIZE(rep->verdict); i++)
		json_text(o, NULL, rep->verdict[i]);
	json_add(root, "verdict", o);

	o = json_object_new_object();
	json_text(o, "dir", rep->dir);
	json_text(o, "error", rep->dir_error);
	json_text(o, "fs", rep->file.fs);
	json_flag(o, "direct", rep->file.direct);
	json_u64(o, "off_align", rep->file.off_align);
	json_u64(o, "mem_align", rep->file.mem_align);
	json_add(root, "files", o);

	o = json_object_new_array();
	for (unsigned i = 0; i < rep->nr_devs; i++)
		json_add(o, NULL, device_json(&rep->devs[i], !*rep->dir_error));
	json_add(root, "devices", o);

	o = json_object_new_object();
	json_text(o, "uring", rep->uring);
	json_text(o, "threads", rep->threads);
	json_add(root, "stores", o);

	o = json_object_new_object();
	add_limit(o, "memlock_bytes", rep->l.memlock);
	add_limit(o, "open_files", rep->l.nofile);
	add_limit(o, "address_space_bytes", rep->l.as);
	add_limit(o, "cgroup_memory_bytes", rep->l.cgroup_memory);
	json_int(o, "io_uring_disabled", rep->l.uring_disabled);
	json_u64(o, "dev_shm_bytes", rep->l.shm_size);
	json_text(o, "container", rep->l.container);
	json_add(root, "limits", o);
	json_print(root);
}

static void reportp(struct report **rep)
{
	free(*rep);
}

int cmd_doctor(int argc, char *argv[])
{
	enum { DIR_OPT = 256, JSON };
	static const struct option longs[] = {
		{ "dir", required_argument, NULL, DIR_OPT },
		{ "json", no_argument, NULL, JSON },
		{ 0 },
	};
	_cleanup_(reportp) struct report *rep = calloc(1, sizeof(*rep));
	const char *dir = NULL;
	bool json = false;
	int opt;

	if (!rep)
		return exit_status(fail(ENOMEM, "out of memory"));
	while ((opt = getopt_long(argc, argv, ":", longs, NULL)) != -1) {
		switch (opt) {
		case DIR_OPT:
			dir = optarg;
			break;
		case JSON:
			json = true;
			break;
		default:
			return option_error(argv, opt);
		}
	}
	if (optind != argc)
		return usage_error("unexpected argument %s", argv[optind]);

	signals_catch();
	rep->file.sz = sizeof(rep->file);
	machine_facts(&rep->m);
	find_limits(&rep->l);
	find_store(PST_STORE_URING, rep->uring, sizeof(rep->uring));
	find_store(PST_STORE_THREADS, rep->threads, sizeof(rep->threads));
	find_devices(rep);
	try_all(rep, dir);
	if (stop_signal)
		return exit_status(-EINTR);
	judge(rep);
	if (json)
		print_json(rep);
	else
		print_report(rep);
	return 0;
}
