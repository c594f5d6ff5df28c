/* SPDX-License-Identifier: MIT */
/*
 * Report what this machine can do, and its limits: each path between each device and a scratch file
 * is tried with real bytes.  If something is missing (/proc, a writable directory, a device), the
 * report has a line about it, and the command does not fail.
 */
#include "cli/doctor/doctor.h"

#include <dirent.h>
#include <fcntl.h>
#include <getopt.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include "cli/commands.h"
#include "cli/doctor/accel.h"
#include "cli/doctor/gds.h"
#include "cli/doctor/rdma.h"
#include "cli/doctor/topo.h"
#include "tools/common/pattern.h"

#define PROBE_BYTES MIB(2)
#define WINDOW_BYTES KIB(64) /* maximum bytes of a write that uses a window */
#define PROBE_TIMEOUT_MS 10000
#define PIECE KIB(4) /* bytes of each piece in a request of many small pieces */

const char doctor_usage[] =
	"Usage: penstock doctor [--dir DIR] [--json]\n"
	"       penstock doctor --accel [--json]\n"
	"       penstock doctor --gds [--dir DIR | --file FILE] [--json]\n"
	"       penstock doctor --rdma [--json]\n"
	"       penstock doctor --topo [--sysfs DIR] [--svg FILE] [--json]\n"
	"\n"
	"First comes the verdict: what works, what limits it, what to do next.  Then\n"
	"come the devices, each path with what it needs, and the limits of this process.\n"
	"\n"
	"  --dir DIR  try files of this directory (default: $TMPDIR, /var/tmp or .)\n"
	"  --json     one JSON object\n"
	"\n"
	"  --accel      which memory other devices reach, by dma-bufs and peer-to-peer\n"
	"               transfers, and what the machine offers for that\n"
	"  --gds        what a direct way of files to NVIDIA GPUs (GPUDirect Storage)\n"
	"               needs, what of it is missing here, and what to do about it\n"
	"  --file FILE  with --gds: look at this file, which is only read\n"
	"\n"
	"  --rdma       what RDMA needs: devices and their ports, addresses, limits\n"
	"\n"
	"  --topo       how near accelerators, NICs and disks are to each other\n"
	"  --svg FILE   with --topo: also draw the machine into this file\n"
	"  --sysfs DIR  with --topo: read this copy of a sysfs (default: /sys)\n";

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

static void find_backend(uint32_t backend, char *buf, size_t len)
{
	struct pst_check c = backend_check(backend);

	(void)snprintf(buf, len, "%s", c.err ? c.text : "");
}

static void find_devices(struct report *rep)
{
	struct pst_device devs[DOCTOR_DEVICES_MAX];
	int n;

	for (unsigned i = 0; i < DOCTOR_DEVICES_MAX; i++)
		devs[i] = (struct pst_device){ .sz = sizeof(devs[i]) };
	n = pst_device_list(devs, DOCTOR_DEVICES_MAX);
	for (int i = 0; i < n && i < DOCTOR_DEVICES_MAX; i++) {
		struct device_report *dr = &rep->devs[rep->nr_devs++];

		dr->dev = devs[i];
		if (pst_device_text(devs[i].name, dr->facts, sizeof(dr->facts)) < 0)
			dr->facts[0] = '\0';
	}
	devs[0].sz = sizeof(devs[0]);
	if (pst_device_find("cuda", &devs[0]) < 0)
		(void)snprintf(rep->no_cuda, sizeof(rep->no_cuda), "%s", pst_error_text());
}

static bool pci_fact(const char *device, const char *fact, char *buf, size_t len)
{
	char path[320];

	(void)snprintf(path, sizeof(path), "/sys/bus/pci/devices/%.255s/%s", device, fact);
	return read_line(path, buf, len) == 0;
}

/* Find NVIDIA's display controllers on the PCI bus. */
static void find_gpus(struct gpus *g)
{
	DIR *d = opendir("/sys/bus/pci/devices");
	char vendor[16], class[16];
	struct dirent *e;

	while (d && (e = readdir(d))) {
		if (e->d_name[0] == '.' || !pci_fact(e->d_name, "vendor", vendor, sizeof(vendor)) ||
		    !pci_fact(e->d_name, "class", class, sizeof(class)) ||
		    strcmp(vendor, "0x10de") != 0 || strncmp(class, "0x03", 4) != 0)
			continue;
		/* The directory is unsorted: keep the smallest address. */
		if (!g->nr++ || strcmp(e->d_name, g->first) < 0)
			(void)snprintf(g->first, sizeof(g->first), "%.31s", e->d_name);
	}
	if (d)
		(void)closedir(d);
}

/* ------------------------------------------------------------------ trials */

/* The scratch file of all trials. */
struct scratch {
	char *dir, *path;
	int fd;
	struct pst_file *file;
};

int doctor_request(const struct pst_io *io, struct pst_done *ret)
{
	struct pst_queue_opts qo = { .sz = sizeof(qo), .depth = 4, .timeout_ms = PROBE_TIMEOUT_MS };
	_cleanup_(pst_queuep) struct pst_queue *q = NULL;
	char buf[256];
	int r;

	r = pst_queue_new(&qo, &q);
	if (r == 0)
		r = pst_queue_prep(q, io);
	if (r == 0)
		r = pst_queue_submit(q);
	if (r >= 0)
		r = pst_queue_reap(q, ret, 1, 1, PST_NO_DEADLINE);
	if (r < 0)
		return fail_pst(r, NULL);
	if (r != 1)
		return fail(EIO, "a request was lost");
	if (ret->res < 0)
		return fail((int)-ret->res, "%s", pst_done_text(ret, buf, sizeof(buf)));
	if (ret->res != (int64_t)(io->segs ? PROBE_BYTES : io->len))
		return fail(EIO, "only %lld bytes were moved", (long long)ret->res);
	return 0;
}

/*
 * Many small pieces: the first half of the file goes to every second piece of memory, the other
 * half to the pieces in between, so that no two pieces can be merged.
 */
static const struct pst_seg scattered[2] = {
	{ .len = PIECE,
	  .file_stride = PIECE,
	  .mem_stride = 2 * PIECE,
	  .count = PROBE_BYTES / PIECE / 2 },
	{ .file_off = PROBE_BYTES / 2,
	  .mem_off = PIECE,
	  .len = PIECE,
	  .file_stride = PIECE,
	  .mem_stride = 2 * PIECE,
	  .count = PROBE_BYTES / PIECE / 2 },
};

/* Return the file offset of the bytes at this offset of the memory. */
static uint64_t file_off_of(uint64_t mem_off)
{
	uint64_t piece = mem_off / PIECE;

	return (piece / 2 + piece % 2 * (PROBE_BYTES / PIECE / 2)) * PIECE;
}

static void fill_trial(uint8_t *buf, uint64_t seed, bool in_pieces)
{
	uint64_t step = in_pieces ? PIECE : PROBE_BYTES;

	for (uint64_t off = 0; off < PROBE_BYTES; off += step)
		pattern_fill(buf + off, seed, in_pieces ? file_off_of(off) : off, step);
}

static bool is_right(const uint8_t *buf, uint64_t len, uint64_t seed, bool in_pieces)
{
	uint64_t step = in_pieces ? PIECE : len;

	for (uint64_t off = 0; off < len; off += step)
		if (pattern_differs(buf + off, seed, in_pieces ? file_off_of(off) : off, step) !=
		    step)
			return false;
	return true;
}

struct move {
	int fd;
	struct pst_file *file;
	struct pst_mem *mem;
	uint32_t op;
	uint64_t policy;
	uint64_t len; /* bytes of the request, at most PROBE_BYTES */
	bool cold, in_pieces;
};

static int before_move(const struct move *m, uint8_t *buf, uint64_t seed)
{
	int r;

	fill_trial(buf, seed, m->op == PST_OP_WRITE && m->in_pieces);
	if (m->op == PST_OP_WRITE) {
		r = pst_mem_copy_in(m->mem, 0, buf, PROBE_BYTES);
		return r < 0 ? fail_pst(r, NULL) : 0;
	}
	r = pwrite_all(m->fd, buf, PROBE_BYTES, 0, "the scratch file");
	if (r == 0 && m->cold && fsync(m->fd) == 0)
		make_cold(m->fd);
	return r;
}

static int after_move(const struct move *m, uint8_t *buf, uint64_t seed)
{
	int r;

	memset(buf, 0, PROBE_BYTES);
	if (m->op == PST_OP_WRITE) {
		r = pread_all(m->fd, buf, PROBE_BYTES, 0, "the scratch file");
	} else {
		r = pst_mem_copy_out(m->mem, 0, buf, PROBE_BYTES);
		if (r < 0)
			r = fail_pst(r, NULL);
	}
	if (r < 0)
		return r;
	if (!is_right(buf, m->len, seed, m->op == PST_OP_READ && m->in_pieces))
		return fail(EIO, "the path gave wrong data");
	return 0;
}

/* Move real bytes with a policy, and compare them. */
static int move_bytes(const struct move *m, struct pst_done *ret)
{
	_cleanup_(freep) uint8_t *buf = malloc(PROBE_BYTES);
	struct pst_io io = { .op = m->op, .policy = m->policy, .file = m->file, .mem = m->mem };
	/* New seed each time, so that bytes of an earlier trial cannot pass. */
	uint64_t seed = now_ns();
	int r;

	if (!buf)
		return fail(ENOMEM, "out of memory");
	if (m->in_pieces) {
		io.segs = scattered;
		io.nr_segs = ARRAY_SIZE(scattered);
	} else {
		io.len = m->len;
	}
	r = before_move(m, buf, seed);
	if (r == 0)
		r = doctor_request(&io, ret);
	return r < 0 ? r : after_move(m, buf, seed);
}

static void try_path(const struct scratch *s, struct pst_mem *mem, uint32_t op, uint32_t path,
		     bool host, struct trial *t)
{
	_cleanup_(pst_filep) struct pst_file *file = NULL;
	struct pst_path_info info = { .sz = sizeof(info) };
	bool file_hop = path <= PST_PATH_BUFFERED || path == PST_PATH_TCP || path == PST_PATH_P2P ||
			path == PST_PATH_PEER || path == PST_PATH_RDMA;
	struct move m = { .fd = s->fd, .mem = mem, .op = op, .len = PROBE_BYTES };
	struct pst_done d;
	int r;

	*t = (struct trial){ .why = PST_WHY_NONE };
	/* Open the file for each trial, because an open file remembers failed paths.  STABLE,
	 * because some paths require it, and no other program changes the scratch file. */
	r = pst_file_open(s->path, PST_FILE_READ | PST_FILE_WRITE | PST_FILE_STABLE, NULL, &file);
	if (r == 0)
		r = path == PST_PATH_GDS ? gds_path_check(file, mem, op, &info)
					 : pst_path_check(file, mem, op, path, &info);
	if (r < 0) {
		(void)snprintf(t->error, sizeof(t->error), "%.250s", pst_error_text());
		return;
	}
	t->state = info.state;
	t->why = info.why;
	t->detail = info.detail;
	m.in_pieces = path == PST_PATH_GATHER && !host;
	if (path == PST_PATH_WINDOW)
		m.len = WINDOW_BYTES;
	/* Gathering can only be tested by a request of many small pieces, so try it in any case. */
	if (info.state == PST_STATE_IMPOSSIBLE && !m.in_pieces)
		return;

	m.file = file;
	/* For a device, each file hop is combined with staging, and gathering is a kind of
	 * staging. */
	if (m.in_pieces)
		m.policy = PST_POLICY1(PST_PATH_STAGED);
	else if (file_hop && !host)
		m.policy = PST_POLICY2(PST_PATH_STAGED, path);
	else
		m.policy = PST_POLICY1(path);
	/* Leave the file in the page cache: CACHED needs its bytes there, and other paths work with
	 * them too. */
	r = move_bytes(&m, &d);
	if (r < 0) {
		t->state = PST_STATE_POSSIBLE;
		(void)snprintf(t->error, sizeof(t->error), "%.250s", fail_text());
	} else if (d.paths & PST_PATH_BIT(path)) {
		t->state = PST_STATE_PROVEN;
		t->why = PST_WHY_NONE;
		t->paths = d.paths;
	} else if (info.state != PST_STATE_IMPOSSIBLE) {
		t->state = PST_STATE_POSSIBLE;
		t->why = d.why;
		t->detail = d.detail;
		t->paths = d.paths;
	}
}

/* Try an automatic request as an inference engine makes it: the bytes are on the disk, not in
 * memory. */
static void try_auto(const struct scratch *s, struct pst_mem *mem, uint32_t op, struct trial *t)
{
	struct move m = {
		.fd = s->fd, .file = s->file, .mem = mem, .op = op, .len = PROBE_BYTES, .cold = true
	};
	struct pst_done d;

	*t = (struct trial){ .why = PST_WHY_NONE };
	if (move_bytes(&m, &d) < 0) {
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
	struct pst_path_info gds = { .sz = sizeof(gds) };
	bool host = dr->dev.kind == PST_KIND_HOST;
	int r;

	r = pst_mem_alloc(dr->dev.name, PROBE_BYTES, NULL, &mem);
	if (r < 0) {
		(void)snprintf(dr->error, sizeof(dr->error), "%.250s", pst_error_text());
		return;
	}
	/* First wait until the library knows whether the file has a direct path, so that the report
	 * shows requests as they will run later. */
	if (dr->dev.kind == PST_KIND_CUDA)
		(void)gds_path_check(s->file, mem, PST_OP_READ, &gds);
	try_auto(s, mem, PST_OP_READ, &dr->t.auto_read);
	try_auto(s, mem, PST_OP_WRITE, &dr->t.auto_write);
	for (uint32_t path = 1; path < PST_PATH_MAX; path++) {
		if (!strcmp(pst_path_name(path), "unknown"))
			continue;
		try_path(s, mem, PST_OP_READ, path, host, &dr->t.read[path]);
		try_path(s, mem, PST_OP_WRITE, path, host, &dr->t.write[path]);
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

static void reportp(struct report **rep)
{
	free(*rep);
}

int cmd_doctor(int argc, char *argv[])
{
	enum { DIR_OPT = 256, FILE_OPT, ACCEL, GDS, JSON, RDMA, SVG, SYSFS, TOPO };
	static const struct option longs[] = {
		{ "dir", required_argument, NULL, DIR_OPT },
		{ "file", required_argument, NULL, FILE_OPT },
		{ "accel", no_argument, NULL, ACCEL },
		{ "gds", no_argument, NULL, GDS },
		{ "json", no_argument, NULL, JSON },
		{ "rdma", no_argument, NULL, RDMA },
		{ "svg", required_argument, NULL, SVG },
		{ "sysfs", required_argument, NULL, SYSFS },
		{ "topo", no_argument, NULL, TOPO },
		{ 0 },
	};
	_cleanup_(reportp) struct report *rep = calloc(1, sizeof(*rep));
	const char *dir = NULL, *file = NULL, *svg = NULL, *sysfs = NULL;
	bool json = false, accel = false, gds = false, rdma = false, topo = false;
	int opt;

	if (!rep)
		return exit_status(fail(ENOMEM, "out of memory"));
	while ((opt = getopt_long(argc, argv, ":", longs, NULL)) != -1) {
		switch (opt) {
		case DIR_OPT:
			dir = optarg;
			break;
		case FILE_OPT:
			file = optarg;
			break;
		case ACCEL:
			accel = true;
			break;
		case GDS:
			gds = true;
			break;
		case JSON:
			json = true;
			break;
		case RDMA:
			rdma = true;
			break;
		case SVG:
			svg = optarg;
			break;
		case SYSFS:
			sysfs = optarg;
			break;
		case TOPO:
			topo = true;
			break;
		default:
			return option_error(argv, longs, opt);
		}
	}
	if (optind != argc)
		return usage_error("unexpected argument %s", argv[optind]);
	if (file && (!gds || dir))
		return usage_error("--file goes with --gds, and not with --dir");
	if ((svg || sysfs) && !topo)
		return usage_error("--svg and --sysfs go with --topo");
	if (topo && (gds || dir || accel || rdma))
		return usage_error("--topo goes with --json, --svg and --sysfs only");
	if (rdma && (gds || dir || accel))
		return usage_error("--rdma goes with --json only");
	if (accel && (gds || dir))
		return usage_error("--accel goes with --json alone");

	signals_catch();
	if (topo)
		return doctor_topo(sysfs ? sysfs : "/sys", svg, json);
	if (rdma)
		return doctor_rdma(json);
	if (accel)
		return doctor_accel(json);
	if (gds)
		return doctor_gds(dir, file, json);
	rep->file.sz = sizeof(rep->file);
	machine_facts(&rep->m);
	find_limits(&rep->l);
	find_backend(PST_BACKEND_URING, rep->uring, sizeof(rep->uring));
	find_backend(PST_BACKEND_THREADS, rep->threads, sizeof(rep->threads));
	find_devices(rep);
	find_gpus(&rep->nvidia);
	try_all(rep, dir);
	if (stop_signal)
		return exit_status(-EINTR);
	doctor_judge(rep);
	if (json)
		doctor_print_json(rep);
	else
		doctor_print(rep);
	return 0;
}
