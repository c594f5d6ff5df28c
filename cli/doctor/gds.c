/* SPDX-License-Identifier: MIT */
/*
 * Report the direct path between files and GPUs.  For one file: the library's checks, a trial with
 * real bytes per GPU, and the paths of requests.  For other mounts: the facts that can be found
 * without writing there.
 */
#include "cli/doctor/gds.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "cli/doctor/doctor.h"
#include "tools/common/pattern.h"

#define BYTES MIB(2)
#define PIECE KIB(4)  /* bytes; cuFile moves multiples of this */
#define LEAST KIB(64) /* bytes; shorter reads do not use cuFile */
/* Time limit for the library to find out whether it uses cuFile. */
#define ANSWER_NS (40 * NSEC_PER_SEC)
/* Time limit for a mount to answer; a dead server's never does. */
#define MOUNT_SECONDS 5

/* true: a trial has hung.  Skip further trials: usually the machine is the cause, and they would
 * hang too. */
static bool hangs;

const struct pst_check *gds_checks_find(const struct gds_checks *c, const char *name)
{
	for (int i = 0; i < c->nr; i++)
		if (!strcmp(c->of[i].name, name))
			return &c->of[i];
	return NULL;
}

static void run_checks(const char *device, const char *path, uint32_t flags, struct gds_checks *ret)
{
	const struct pst_check_opts o = {
		.sz = sizeof(o), .device = device, .path = path, .flags = flags
	};

	for (int i = 0; i < GDS_CHECKS_MAX; i++)
		ret->of[i].sz = sizeof(ret->of[i]);
	ret->nr = pst_check("gds", &o, ret->of, GDS_CHECKS_MAX);
	if (ret->nr < 0)
		(void)snprintf(ret->error, sizeof(ret->error), "%.600s", pst_error_text());
	ret->nr = ret->nr < 0 ? 0 : MIN(ret->nr, GDS_CHECKS_MAX);
}

/* ---------------------------------------------------------------- requests */

static void wait_a_moment(void)
{
	const struct timespec delay = { .tv_nsec = 20000000 };

	(void)nanosleep(&delay, NULL);
}

int gds_path_check(struct pst_file *file, struct pst_mem *mem, uint32_t op,
		   struct pst_path_info *ret)
{
	uint64_t until = now_ns() + ANSWER_NS;
	int r = 0;

	while (!hangs && !stop_signal) {
		r = pst_path_check(file, mem, op, PST_PATH_GDS, ret);
		if (r < 0 || ret->why != PST_WHY_NO_GDS || ret->detail != EAGAIN)
			break;
		hangs = now_ns() > until;
		wait_a_moment();
	}
	if (r == 0 && ret->why == PST_WHY_NO_GDS && ret->detail == ETIMEDOUT)
		hangs = true;
	if (hangs) {
		ret->state = PST_STATE_IMPOSSIBLE;
		ret->why = PST_WHY_NO_GDS;
		ret->detail = ETIMEDOUT;
	}
	return r;
}

/* Set the state to proven or impossible, by a read that may use only this path. */
static void gds_prove(const struct pst_io *plain, struct pst_path_info *info)
{
	struct pst_io io = *plain;
	struct pst_done d;

	if (info->state != PST_STATE_POSSIBLE || io.len < LEAST)
		return;
	io.len &= ~(PIECE - 1);
	io.policy = PST_POLICY1(PST_PATH_GDS);
	(void)doctor_request(&io, &d);
	(void)gds_path_check(io.file, io.mem, io.op, info);
}

/* Run a request.  cold: our scratch file, to be dropped from the page cache; else -1. */
static int try_requests(struct pst_io *io, int cold, struct gds_request *ret)
{
	struct pst_path_info info = { .sz = sizeof(info) };
	struct pst_done d;
	int r = gds_path_check(io->file, io->mem, io->op, &info);

	if (r < 0)
		return fail_pst(r, NULL);
	gds_prove(io, &info);
	ret->state = info.state;
	ret->why = info.why;
	ret->detail = info.detail;
	/* Drop the bytes that trials left in the page cache: the request would read them from
	 * there. */
	if (cold >= 0)
		make_cold(cold);
	/* After a hang, use staging, which does not ask cuFile again and gives the same result. */
	io->policy = hangs ? PST_POLICY1(PST_PATH_STAGED) : 0;
	r = doctor_request(io, &d);
	if (r == 0)
		ret->paths = d.paths;
	return r;
}

static void request(const char *path, int cold, struct gds_side *s)
{
	struct pst_file_info info = { .sz = sizeof(info) };
	_cleanup_(pst_filep) struct pst_file *file = NULL;
	_cleanup_(pst_memp) struct pst_mem *mem = NULL;
	struct pst_io io = { .op = PST_OP_READ };
	int r = pst_file_open(path, PST_FILE_READ, NULL, &file);

	if (r == 0)
		r = pst_file_info(file, &info);
	if (r == 0)
		r = pst_mem_alloc(s->dev.name, BYTES, NULL, &mem);
	io.file = file;
	io.mem = mem;
	io.len = MIN(info.size, BYTES);
	r = r < 0 ? fail_pst(r, NULL) : try_requests(&io, cold, &s->request);
	if (r < 0)
		(void)snprintf(s->request.error, sizeof(s->request.error), "%.250s", fail_text());
}

/* ------------------------------------------------------------------- files */

static void find_sides(struct gds_report *rep)
{
	struct pst_device devs[DOCTOR_DEVICES_MAX];
	int n;

	for (unsigned i = 0; i < DOCTOR_DEVICES_MAX; i++)
		devs[i] = (struct pst_device){ .sz = sizeof(devs[i]) };
	n = pst_device_list(devs, DOCTOR_DEVICES_MAX);
	for (int i = 0; i < MIN(n, DOCTOR_DEVICES_MAX) && rep->nr_sides < GDS_SIDES_MAX; i++)
		if (devs[i].kind == PST_KIND_CUDA)
			rep->sides[rep->nr_sides++].dev = devs[i];
	devs[0].sz = sizeof(devs[0]);
	if (!rep->nr_sides && pst_device_find("cuda", &devs[0]) < 0)
		(void)snprintf(rep->no_gpu, sizeof(rep->no_gpu), "%.250s", pst_error_text());
}

/* Check each GPU with the file.  cold: as in try_requests(). */
static void look_at_file(struct gds_report *rep, const char *path, int cold)
{
	struct stat st;

	if (stat(path, &st) == 0)
		rep->dev = S_ISBLK(st.st_mode) ? st.st_rdev : st.st_dev;
	if (!rep->nr_sides)
		run_checks(NULL, path, 0, &rep->alone);
	for (unsigned i = 0; i < rep->nr_sides && !stop_signal; i++) {
		struct gds_side *s = &rep->sides[i];
		const struct pst_check *trial;

		run_checks(s->dev.name, path, hangs ? 0 : PST_CHECK_TRIAL, &s->checks);
		trial = gds_checks_find(&s->checks, "trial");
		hangs = hangs || (trial && trial->err == ETIMEDOUT);
		request(path, cold, s);
	}
}

static int fill_scratch(int fd)
{
	_cleanup_(freep) uint8_t *buf = malloc(BYTES);
	int r;

	if (!buf)
		return fail(ENOMEM, "out of memory");
	pattern_fill(buf, now_ns(), 0, BYTES);
	r = pwrite_all(fd, buf, BYTES, 0, "the scratch file");
	if (r == 0 && fsync(fd) < 0)
		r = fail(errno, "the scratch file cannot be synced: %s", strerror(errno));
	return r;
}

static void scratch_donep(char **dir)
{
	if (*dir)
		scratch_remove(*dir);
	free(*dir);
}

static int look_at_scratch(struct gds_report *rep, const char *in)
{
	_cleanup_(scratch_donep) char *dir = NULL;
	_cleanup_(closep) int fd = -1;
	_cleanup_(freep) char *path = NULL;
	int r = scratch_dir(in, &dir);

	if (r < 0)
		return r;
	(void)snprintf(rep->dir, sizeof(rep->dir), "%.*s", (int)(strrchr(dir, '/') - dir), dir);
	(void)snprintf(rep->what, sizeof(rep->what), "a scratch file in %s", rep->dir);
	if (asprintf(&path, "%s/scratch", dir) < 0) {
		path = NULL;
		return fail(ENOMEM, "out of memory");
	}
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return fail(errno, "cannot make a file in %s: %s", dir, strerror(errno));
	r = fill_scratch(fd);
	if (r == 0)
		look_at_file(rep, path, fd);
	return r;
}

/* Check a file that the user named, as far as it can be read. */
static int look_at_named(struct gds_report *rep, const char *path)
{
	struct pst_file_info info = { .sz = sizeof(info) };
	_cleanup_(pst_filep) struct pst_file *file = NULL;
	int r = pst_file_open(path, PST_FILE_READ, NULL, &file);

	if (r == 0)
		r = pst_file_info(file, &info);
	if (r < 0)
		return fail_pst(r, NULL);
	if (!info.size)
		return fail(EINVAL, "%s is empty: there is nothing to try with", path);
	(void)snprintf(rep->file, sizeof(rep->file), "%s", path);
	(void)snprintf(rep->what, sizeof(rep->what), "%s", path);
	look_at_file(rep, path, -1);
	return 0;
}

/* ------------------------------------------------------------------ mounts */

/* Arguments of a thread that visits a mount.  If it hangs in the kernel, it keeps this memory. */
struct visit {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool done;
	struct gds_mount m;
};

/* Return true if the mount is covered by another one, so its path leads elsewhere. */
static bool is_hidden(const struct mount *m)
{
	struct stat st;

	/* btrfs and network file systems report other device numbers. */
	return m->major && strcmp(m->type, "btrfs") != 0 && stat(m->path, &st) == 0 &&
	       (major(st.st_dev) != m->major || minor(st.st_dev) != m->minor);
}

static void *visit_run(void *arg)
{
	struct visit *v = arg;

	if (is_hidden(&v->m.at))
		(void)snprintf(v->m.checks.error, sizeof(v->m.checks.error),
			       "another mount lies over it");
	else
		run_checks(NULL, v->m.at.path, 0, &v->m.checks);
	(void)pthread_mutex_lock(&v->lock);
	v->done = true;
	(void)pthread_cond_signal(&v->changed);
	(void)pthread_mutex_unlock(&v->lock);
	return NULL;
}

static bool wait_for_visit(struct visit *v)
{
	struct timespec until;
	int r = 0;
	bool done;

	(void)clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += MOUNT_SECONDS;
	(void)pthread_mutex_lock(&v->lock);
	while (!v->done && r == 0)
		r = pthread_cond_timedwait(&v->changed, &v->lock, &until);
	done = v->done;
	(void)pthread_mutex_unlock(&v->lock);
	return done;
}

static void visit(struct gds_mount *m)
{
	struct visit *v = calloc(1, sizeof(*v));
	pthread_t thread;

	if (v) {
		*v = (struct visit){ .lock = PTHREAD_MUTEX_INITIALIZER,
				     .changed = PTHREAD_COND_INITIALIZER,
				     .m.at = m->at };
	}
	if (!v || pthread_create(&thread, NULL, visit_run, v) != 0) {
		(void)snprintf(m->checks.error, sizeof(m->checks.error),
			       "no memory or no thread to look");
		free(v);
		return;
	}
	if (!wait_for_visit(v)) {
		(void)pthread_detach(thread);
		(void)snprintf(m->checks.error, sizeof(m->checks.error),
			       "it does not answer within %d s", MOUNT_SECONDS);
		return;
	}
	(void)pthread_join(thread, NULL);
	m->checks = v->m.checks;
	free(v);
}

/* Drop the library's check, which does not concern mounts. */
static void drop_library(struct gds_checks *c)
{
	int to = 0;

	for (int i = 0; i < c->nr; i++)
		if (strcmp(c->of[i].name, "library") != 0)
			c->of[to++] = c->of[i];
	c->nr = to;
}

/* Check all mounts except the file's own. */
static void look_at_mounts(struct gds_report *rep)
{
	_cleanup_(freep) struct mount *all = calloc(MOUNTS_MAX, sizeof(*all));
	int n = all ? mounts_find(all, &rep->more_mounts) : fail(ENOMEM, "out of memory");

	if (n < 0)
		(void)snprintf(rep->mounts_error, sizeof(rep->mounts_error), "%.250s", fail_text());
	for (int i = 0; i < n && !stop_signal; i++) {
		struct gds_mount *m = &rep->mounts[rep->nr_mounts];

		if (all[i].major == major(rep->dev) && all[i].minor == minor(rep->dev))
			continue;
		m->at = all[i];
		visit(m);
		drop_library(&m->checks);
		rep->nr_mounts++;
	}
}

static void gds_reportp(struct gds_report **rep)
{
	free(*rep);
}

int doctor_gds(const char *dir, const char *file, bool json)
{
	_cleanup_(gds_reportp) struct gds_report *rep = calloc(1, sizeof(*rep));
	int r;

	if (!rep)
		return exit_status(fail(ENOMEM, "out of memory"));
	find_sides(rep);
	r = file ? look_at_named(rep, file) : look_at_scratch(rep, dir);
	if (r < 0 && file)
		return exit_status(r);
	if (r < 0)
		(void)snprintf(rep->file_error, sizeof(rep->file_error), "%.600s", fail_text());
	if (!file)
		look_at_mounts(rep);
	if (stop_signal)
		return exit_status(-EINTR);
	doctor_gds_judge(rep);
	if (json)
		doctor_gds_print_json(rep);
	else
		doctor_gds_print(rep);
	return 0;
}
