/* SPDX-License-Identifier: MIT */
#include "tools/common/util.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include "tools/common/shown.h"

const char *cmd_name = "";
volatile sig_atomic_t stop_signal;

static _Thread_local char sentence[1024];

double cpu_seconds(void)
{
	struct rusage u;

	if (getrusage(RUSAGE_SELF, &u) < 0)
		return 0;
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

double gb_per_s(uint64_t bytes, uint64_t ns)
{
	return ns ? (double)bytes / (double)ns : 0;
}

/* ----------------------------------------------------------------- errors */

int fail(int err, const char *fmt, ...)
{
	char buf[sizeof(sentence)];
	va_list ap;

	/* An argument may be the old sentence. */
	va_start(ap, fmt);
	(void)vsnprintf(buf, sizeof(buf), fmt, ap);
	va_end(ap);
	shown(sentence, sizeof(sentence), buf);
	return err < 0 ? err : -err;
}

int fail_pst(int err, const char *what)
{
	const char *text = pst_error_text();

	if (!*text)
		text = strerror(err < 0 ? -err : err);
	if (!what || strstr(text, what))
		return fail(err, "%s", text);
	return fail(err, "%s: %s", what, text);
}

const char *fail_text(void)
{
	return sentence;
}

void say(const char *fmt, ...)
{
	char text[4096], safe[2 * sizeof(text)];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	shown(safe, sizeof(safe), text);
	(void)fprintf(stderr, "penstock: %s%s%s\n", cmd_name, *cmd_name ? ": " : "", safe);
}

int usage_error(const char *fmt, ...)
{
	char buf[512];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(buf, sizeof(buf), fmt, ap);
	va_end(ap);
	say("%s", buf);
	(void)fprintf(stderr, "Try 'penstock help%s%s'.\n", *cmd_name ? " " : "", cmd_name);
	return 2;
}

int option_error(char *const argv[], int c)
{
	const char *given = argv[optind - 1];

	if (c == ':')
		return usage_error("option %s needs a value", given);
	if (optopt > 0 && optopt < 256)
		return usage_error("unknown option -%c", optopt);
	return usage_error("unknown option %s, or a value that it does not take", given);
}

int exit_status(int r)
{
	if (stop_signal)
		return 128 + stop_signal;
	if (r < 0) {
		say("%s", *sentence ? sentence : strerror(-r));
		return 1;
	}
	return r;
}

/* ---------------------------------------------------------------- signals */

static void on_signal(int sig)
{
	static uint64_t first_ns;
	uint64_t now = now_ns();

	if (!stop_signal) {
		stop_signal = sig;
		first_ns = now;
	} else if (now - first_ns > NSEC_PER_SEC) {
		/* Asked again: the hard way.  timeout(1) sends each signal twice at once. */
		(void)signal(sig, SIG_DFL);
		(void)raise(sig);
	}
}

void signals_catch(void)
{
	static const int sigs[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction sa = { .sa_handler = on_signal }, old;

	(void)sigemptyset(&sa.sa_mask);
	for (size_t i = 0; i < ARRAY_SIZE(sigs); i++) {
		/* nohup(1) and background jobs of sh ignore some: leave that alone. */
		if (sigaction(sigs[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			(void)sigaction(sigs[i], &sa, NULL);
	}
}

/* ---------------------------------------------------------- text and numbers */

int parse_size(const char *text, uint64_t *ret)
{
	static const char units[] = "kmgt";
	const char *u;
	double v;
	char *end;
	unsigned shift = 0;

	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	v = strtod(text, &end);
	u = *end ? strchr(units, tolower((unsigned char)*end)) : NULL;
	if (u) {
		shift = 10 * (unsigned)(u - units + 1);
		end++;
		if (tolower((unsigned char)end[0]) == 'i' && tolower((unsigned char)end[1]) == 'b')
			end += 2;
		else if (tolower((unsigned char)end[0]) == 'b')
			end++;
	}
	v *= (double)(UINT64_C(1) << shift);
	if (*end || !(v >= 0) || v >= 9.2e18)
		return -EINVAL;
	*ret = (uint64_t)v;
	return 0;
}

int parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *ret)
{
	unsigned long long v;
	char *end;

	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	errno = 0;
	v = strtoull(text, &end, 10);
	if (errno || *end || v < min || v > max)
		return -EINVAL;
	*ret = v;
	return 0;
}

int parse_seconds(const char *text, double *ret)
{
	double v;
	char *end;

	if (!isdigit((unsigned char)*text) && *text != '.')
		return -EINVAL;
	v = strtod(text, &end);
	if (*end == 's')
		end++;
	if (*end || !(v > 0) || v > 86400)
		return -EINVAL;
	*ret = v;
	return 0;
}

int parse_policy(const char *text, uint64_t *ret)
{
	uint64_t policy = 0;
	unsigned nr = 0;

	if (!strcmp(text, "auto")) {
		*ret = PST_POLICY_AUTO;
		return 0;
	}
	for (const char *p = text;; p++) {
		size_t len = strcspn(p, ",+");
		uint32_t path;

		for (path = 1; path < PST_PATH_MAX; path++) {
			const char *name = pst_path_name(path);

			if (strlen(name) == len && !strncmp(name, p, len) &&
			    strcmp(name, "unknown") != 0)
				break;
		}
		if (path == PST_PATH_MAX)
			return fail(EINVAL,
				    "no path is called '%.*s'; known are auto, direct, cached, "
				    "buffered, staged and what penstock doctor lists",
				    (int)len, p);
		if (nr == 8)
			return fail(EINVAL, "a policy holds at most 8 paths");
		policy |= (uint64_t)path << (4 * nr++);
		p += len;
		if (!*p)
			break;
	}
	*ret = policy;
	return 0;
}

int parse_store(const char *text, uint32_t *ret)
{
	if (!strcmp(text, "auto"))
		*ret = PST_BACKEND_AUTO;
	else if (!strcmp(text, "uring"))
		*ret = PST_BACKEND_URING;
	else if (!strcmp(text, "threads"))
		*ret = PST_BACKEND_THREADS;
	else
		return -EINVAL;
	return 0;
}

struct text size_text(uint64_t bytes)
{
	static const char *const units[] = { "bytes", "KiB", "MiB", "GiB", "TiB" };
	double v = (double)bytes;
	struct text t;
	size_t u = 0;

	while (v >= 1024 && u + 1 < ARRAY_SIZE(units)) {
		v /= 1024;
		u++;
	}
	if (v == floor(v) || v >= 100)
		(void)snprintf(t.s, sizeof(t.s), "%.0f %s", v, units[u]);
	else
		(void)snprintf(t.s, sizeof(t.s), "%.1f %s", v, units[u]);
	return t;
}

struct text time_text(uint64_t ns)
{
	struct text t;

	if (ns < 1000000)
		(void)snprintf(t.s, sizeof(t.s), "%.*f us", ns < 100000, (double)ns / 1e3);
	else if (ns < NSEC_PER_SEC)
		(void)snprintf(t.s, sizeof(t.s), "%.*f ms", ns < 100000000, (double)ns / 1e6);
	else
		(void)snprintf(t.s, sizeof(t.s), "%.2f s", (double)ns / 1e9);
	return t;
}

struct text rate_text(uint64_t bytes, uint64_t ns)
{
	double v = gb_per_s(bytes, ns);
	struct text t;

	(void)snprintf(t.s, sizeof(t.s), "%.*f", v < 0.1 ? 4 : 2, v);
	return t;
}

struct text paths_text(uint32_t paths)
{
	struct text t = { "" };
	size_t n = 0;

	/* The hop into the device first, then how the file was reached. */
	for (unsigned pass = 0; pass < 2; pass++) {
		for (uint32_t p = 1; p < PST_PATH_MAX; p++) {
			bool file_hop = p <= PST_PATH_BUFFERED;

			if (!(paths & PST_PATH_BIT(p)) || file_hop != (pass == 1))
				continue;
			n += (size_t)snprintf(t.s + n, sizeof(t.s) - n, "%s%s", n ? "+" : "",
					      pst_path_name(p));
			if (n >= sizeof(t.s))
				return t;
		}
	}
	if (!n)
		(void)strcpy(t.s, "-");
	return t;
}

struct text why_text(uint32_t why, int32_t detail)
{
	struct text t;

	(void)pst_why_text(why, detail, t.s, sizeof(t.s));
	return t;
}

void whys_add(struct whys *w, uint32_t why, int32_t detail)
{
	if (why > PST_WHY_MAX)
		why = PST_WHY_MAX;
	w->nr[why]++;
	w->detail[why] = detail;
}

void whys_merge(struct whys *w, const struct whys *other)
{
	for (uint32_t i = 0; i <= PST_WHY_MAX; i++) {
		if (other->nr[i])
			w->detail[i] = other->detail[i];
		w->nr[i] += other->nr[i];
	}
}

bool whys_any(const struct whys *w)
{
	for (uint32_t i = PST_WHY_NONE + 1; i <= PST_WHY_MAX; i++)
		if (w->nr[i])
			return true;
	return false;
}

/* ----------------------------------------------------------------- machine */

int read_line(const char *path, char *buf, size_t len)
{
	_cleanup_(fclosep) FILE *f = fopen(path, "re");

	if (!f)
		return -errno;
	if (!fgets(buf, (int)len, f))
		return ferror(f) ? -EIO : -ENODATA;
	buf[strcspn(buf, "\n")] = '\0';
	return 0;
}

/* The value behind "KEY" and blanks or a colon in a file like /proc/meminfo. */
static int read_field(const char *path, const char *key, char *buf, size_t len)
{
	_cleanup_(fclosep) FILE *f = fopen(path, "re");
	char line[512];

	if (!f)
		return -errno;
	while (fgets(line, sizeof(line), f)) {
		char *v;

		if (strncmp(line, key, strlen(key)) != 0)
			continue;
		v = line + strlen(key);
		v += strspn(v, " \t:");
		v[strcspn(v, "\n")] = '\0';
		(void)snprintf(buf, len, "%s", v);
		return 0;
	}
	return -ENOENT;
}

uint64_t cgroup_memory_limit(void)
{
	_cleanup_(fclosep) FILE *f = fopen("/proc/self/cgroup", "re");
	uint64_t limit = UINT64_MAX, v;
	char line[1024], path[1200], value[64];

	/* Version 2 has one line, "0::/path"; inside a container the path is often "/". */
	while (f && fgets(line, sizeof(line), f)) {
		char *p = strstr(line, "::");

		if (!p)
			continue;
		p += 2;
		p[strcspn(p, "\n")] = '\0';
		for (;;) {
			char *slash;

			(void)snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.max", p);
			if (read_line(path, value, sizeof(value)) == 0 &&
			    parse_number(value, 0, UINT64_MAX - 1, &v) == 0)
				limit = MIN(limit, v);
			slash = strrchr(p, '/');
			if (!slash)
				break;
			*slash = '\0';
		}
	}
	if (read_line("/sys/fs/cgroup/memory/memory.limit_in_bytes", value, sizeof(value)) == 0 &&
	    parse_number(value, 0, UINT64_C(1) << 60, &v) == 0)
		limit = MIN(limit, v);
	return limit;
}

void machine_facts(struct machine *ret)
{
	struct utsname uts;
	cpu_set_t set;
	char buf[128];
	uint64_t limit;
	long n;

	*ret = (struct machine){ .cpus = 1, .online = 1 };
	if (read_field("/proc/cpuinfo", "model name", ret->cpu, sizeof(ret->cpu)) < 0)
		(void)snprintf(ret->cpu, sizeof(ret->cpu), "unknown processor");
	if (uname(&uts) == 0)
		(void)snprintf(ret->kernel, sizeof(ret->kernel), "%.20s %.80s %.40s", uts.sysname,
			       uts.release, uts.machine);
	n = sysconf(_SC_NPROCESSORS_ONLN);
	if (n > 0)
		ret->online = ret->cpus = (unsigned)n;
	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		ret->cpus = (unsigned)CPU_COUNT(&set);

	if (read_field("/proc/meminfo", "MemTotal", buf, sizeof(buf)) == 0)
		ret->memory = strtoull(buf, NULL, 10) << 10;
	if (read_field("/proc/meminfo", "MemAvailable", buf, sizeof(buf)) == 0)
		ret->available = strtoull(buf, NULL, 10) << 10;
	limit = cgroup_memory_limit();
	if (limit < UINT64_MAX) {
		/* What the group uses already is mostly cache that gives way. */
		ret->memory = ret->memory ? MIN(ret->memory, limit) : limit;
		ret->available = ret->available ? MIN(ret->available, limit) : limit;
	}
}

int device_pick(const char *name, struct pst_device *ret)
{
	struct pst_device devs[64];
	int n, r;

	*ret = (struct pst_device){ .sz = sizeof(*ret) };
	if (name) {
		r = pst_device_find(name, ret);
		return r < 0 ? fail_pst(r, name) : 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(devs); i++)
		devs[i] = (struct pst_device){ .sz = sizeof(devs[i]) };
	n = pst_device_list(devs, ARRAY_SIZE(devs));
	if (n < 0)
		return fail_pst(n, "listing the devices");
	n = MIN(n, (int)ARRAY_SIZE(devs));
	for (int i = 0; i < n; i++) {
		if (devs[i].kind == PST_KIND_CUDA) {
			*ret = devs[i];
			return 0;
		}
	}
	r = pst_device_find("soft", ret);
	return r < 0 ? fail_pst(r, "soft") : 0;
}

struct text device_text(const struct pst_device *dev)
{
	struct text t;

	(void)snprintf(t.s, sizeof(t.s), "%s (%s)", dev->name,
		       dev->model[0] ? dev->model : "no model name");
	return t;
}

/* ------------------------------------------------------------------- files */

int scratch_dir(const char *dir, char **ret_path)
{
	const char *places[] = { dir, getenv("TMPDIR"), "/var/tmp", "." };
	int r = -ENOENT;

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		_cleanup_(freep) char *path = NULL;

		if (!places[i] || !*places[i])
			continue;
		if (asprintf(&path, "%s/penstock-XXXXXX", places[i]) < 0)
			return fail(ENOMEM, "out of memory");
		if (mkdtemp(path)) {
			*ret_path = TAKE_PTR(path);
			return 0;
		}
		r = fail(errno, "cannot make a directory in %s: %s; name another with --dir",
			 places[i], strerror(errno));
		if (dir)
			break;
	}
	return r;
}

void scratch_remove(const char *path)
{
	DIR *d = opendir(path);
	struct dirent *e;

	if (!d)
		return;
	while ((e = readdir(d)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			(void)unlinkat(dirfd(d), e->d_name, 0);
	(void)closedir(d);
	(void)rmdir(path);
}

int write_all(int fd, const void *buf, size_t len, const char *name)
{
	const char *p = buf;

	while (len) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR && !stop_signal)
			continue;
		if (n < 0)
			return fail(errno, "writing %s: %s", name, strerror(errno));
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int pread_all(int fd, void *buf, size_t len, uint64_t off, const char *name)
{
	char *p = buf;

	while (len) {
		ssize_t n = pread(fd, p, len, (off_t)off);

		if (n < 0 && errno == EINTR && !stop_signal)
			continue;
		if (n < 0)
			return fail(errno, "reading %s: %s", name, strerror(errno));
		if (n == 0)
			return fail(EIO, "%s ended while it was read: something made it shorter",
				    name);
		p += n;
		off += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

int pwrite_all(int fd, const void *buf, size_t len, uint64_t off, const char *name)
{
	const char *p = buf;

	while (len) {
		ssize_t n = pwrite(fd, p, len, (off_t)off);

		if (n < 0 && errno == EINTR && !stop_signal)
			continue;
		if (n < 0)
			return fail(errno, "writing %s: %s", name, strerror(errno));
		p += n;
		off += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

void make_cold(int fd)
{
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

int make_warm(int fd, const char *name)
{
	_cleanup_(freep) char *buf = malloc(MIB(1));
	uint64_t off = 0;

	if (!buf)
		return fail(ENOMEM, "out of memory");
	for (;;) {
		ssize_t n = pread(fd, buf, MIB(1), (off_t)off);

		if (stop_signal)
			return fail(EINTR, "interrupted");
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail(errno, "reading %s: %s", name, strerror(errno));
		if (n == 0)
			return 0;
		off += (uint64_t)n;
	}
}

double resident_part(int fd)
{
	const uint64_t chunk = MIB(256);
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), pages = 0, there = 0;
	_cleanup_(freep) unsigned char *vec = malloc(chunk / page);
	struct stat st;

	if (!vec || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size == 0)
		return -1;
	/* For a file that the caller could not write the kernel calls every page resident. */
	if (st.st_uid != geteuid() && geteuid() != 0)
		return -1;
	for (uint64_t off = 0; off < (uint64_t)st.st_size; off += chunk) {
		uint64_t len = MIN(chunk, (uint64_t)st.st_size - off);
		void *p = mmap(NULL, len, PROT_NONE, MAP_SHARED, fd, (off_t)off);
		int r;

		if (p == MAP_FAILED)
			return -1;
		r = mincore(p, len, vec);
		(void)munmap(p, len);
		if (r < 0)
			return -1;
		for (uint64_t i = 0; i < (len + page - 1) / page; i++)
			there += vec[i] & 1;
		pages += (len + page - 1) / page;
	}
	return (double)there / (double)pages;
}

struct pst_check backend_check(uint32_t backend)
{
	const char *name = backend == PST_BACKEND_URING ? "io_uring" : "threads";
	struct pst_check of[4];
	int nr;

	for (size_t i = 0; i < ARRAY_SIZE(of); i++)
		of[i] = (struct pst_check){ .sz = sizeof(of[i]) };
	nr = pst_check("io", NULL, of, ARRAY_SIZE(of));
	for (int i = 0; i < nr && i < (int)ARRAY_SIZE(of); i++)
		if (!strcmp(of[i].name, name))
			return of[i];
	of[0] = (struct pst_check){ .sz = sizeof(of[0]), .err = nr < 0 ? -nr : EINVAL };
	(void)snprintf(of[0].text, sizeof(of[0].text), "%.400s", pst_error_text());
	return of[0];
}
