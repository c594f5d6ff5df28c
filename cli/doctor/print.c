/* SPDX-License-Identifier: MIT */
#include "cli/doctor/doctor.h"

#include "cli/doctor/window.h"
#include "tools/common/json.h"
#include "tools/common/shown.h"

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

/* Requirements of each path for file and device. */
static const char *const needs[PST_PATH_MAX + 1] = {
	[PST_PATH_DIRECT] = "O_DIRECT on the file",
	[PST_PATH_CACHED] = "the bytes in the page cache",
	[PST_PATH_BUFFERED] = "nothing but the file",
	[PST_PATH_STAGED] = "a device that copies by itself",
	[PST_PATH_WINDOW] = "a CPU mapping of device memory",
	[PST_PATH_PAGECACHE] = "a stable file and a device that registers it read-only",
	[PST_PATH_GATHER] = "many small pieces and a kernel on the device",
	[PST_PATH_GDS] = "an NVIDIA GPU, and cuFile on nvidia-fs, P2PDMA or C2C",
	[PST_PATH_P2P] = "memory that a PCI device lends, p2pmem:N",
	[PST_PATH_TCP] = "a file of a storage service, pst://HOST:PORT/PATH",
	[PST_PATH_RDMA] = "memory of a peer, and RDMA devices on both sides, pst_peer_open()",
	[PST_PATH_PEER] = "memory of another process on this machine, pst_peer_open()",
};

static bool is_path(uint32_t path)
{
	return strcmp(pst_path_name(path), "unknown") != 0;
}

/* Return the text of a trial.  If the device or the file does not meet the path's need, return only
 * that need. */
static struct text trial_text(uint32_t path, const struct trial *t)
{
	struct text why = why_text(t->why, t->detail), ret;
	bool more = path == PST_PATH_GDS && t->why != PST_WHY_NO_DEVICE && !strstr(why.s, "--gds");

	if (t->state == PST_STATE_PROVEN)
		return (struct text){ "" };
	if (t->why == PST_WHY_DIRECTION && !*t->error)
		return (struct text){ "only reads can take this path" };
	if (*t->error)
		(void)snprintf(ret.s, sizeof(ret.s), "failed: %.240s", t->error);
	else if (t->why == PST_WHY_NO_PROVIDER && !t->detail)
		(void)snprintf(ret.s, sizeof(ret.s), "needs %s", needs[path]);
	else
		(void)snprintf(ret.s, sizeof(ret.s), "needs %s; %.150s%s", needs[path], why.s,
			       more ? "; see penstock doctor --gds" : "");
	return ret;
}

static void print_trial(uint32_t path, const char *op, const struct trial *t)
{
	const unsigned indent = 4 + 10 + 1 + 6 + 1 + 10 + 2;

	shown_printf(indent, "    %-10s %-6s %-10s  %s", pst_path_name(path), op,
		     state_name(t->state), trial_text(path, t).s);
}

/* Return an earlier device of the same kind with an equal part of the report, or NULL. */
static const struct device_report *like(const struct report *rep, const struct device_report *dr,
					bool (*same)(const struct device_report *a,
						     const struct device_report *b))
{
	for (const struct device_report *d = rep->devs; d < dr; d++)
		if (d->dev.kind == dr->dev.kind && same(d, dr))
			return d;
	return NULL;
}

static bool same_facts(const struct device_report *a, const struct device_report *b)
{
	return !strcmp(a->facts, b->facts);
}

/* Compare trials as print_trial() shows them, which omits the completion's other paths. */
static bool same_trial(const struct trial *a, const struct trial *b)
{
	return a->state == b->state && a->why == b->why && a->detail == b->detail &&
	       !strcmp(a->error, b->error);
}

static bool same_trials(const struct device_report *a, const struct device_report *b)
{
	bool same = !strcmp(a->error, b->error);

	for (uint32_t p = 1; p < PST_PATH_MAX; p++)
		same = same && same_trial(&a->t.read[p], &b->t.read[p]) &&
		       same_trial(&a->t.write[p], &b->t.write[p]);
	return same;
}

static void print_paths(const struct report *rep, const struct device_report *dr)
{
	const struct device_report *other = like(rep, dr, same_trials);

	shown_printf(4, "  %s", device_text(&dr->dev).s);
	if (*dr->error) {
		shown_printf(6, "    no memory: %s", dr->error);
		return;
	}
	if (other) {
		(void)printf("    as %s\n", other->dev.name);
		return;
	}
	for (uint32_t p = 1; p < PST_PATH_MAX; p++) {
		const struct trial *r = &dr->t.read[p], *w = &dr->t.write[p];

		if (!is_path(p))
			continue;
		if (r->state == w->state && r->why == w->why && !*r->error && !*w->error) {
			print_trial(p, "both", r);
			continue;
		}
		print_trial(p, "read", r);
		print_trial(p, "write", w);
	}
}

/* Call fn for each "name: value" line of a device's facts. */
static void each_fact(const char *facts, void (*fn)(void *arg, const char *name, const char *value),
		      void *arg)
{
	char copy[PST_DEVICE_TEXT_MAX], *save = NULL;

	(void)snprintf(copy, sizeof(copy), "%s", facts);
	for (char *l = strtok_r(copy, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
		char *colon = strstr(l, ": ");

		if (!colon)
			continue;
		*colon = '\0';
		fn(arg, l, colon + 2);
	}
}

static void print_fact(void *arg, const char *name, const char *value)
{
	(void)arg;
	shown_printf(39, "    %-34s %s", name, value);
}

/* Write a UUID in the form of nvidia-smi and pst_device_find(). */
static struct text uuid_text(const uint8_t uuid[16])
{
	struct text t = { "" };
	size_t n = 0;

	for (unsigned i = 0; i < 16; i++)
		n += (size_t)snprintf(t.s + n, sizeof(t.s) - n, "%s%02x",
				      i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
	return t;
}

static void print_device(const struct report *rep, const struct device_report *dr)
{
	const struct device_report *other = like(rep, dr, same_facts);
	const struct pst_device *d = &dr->dev;
	bool real = d->kind != PST_KIND_HOST && d->kind != PST_KIND_SOFT;

	char where[64] = "", node[16] = "unknown";

	if (d->numa_node >= 0)
		(void)snprintf(node, sizeof(node), "%d", d->numa_node);
	if (real)
		(void)snprintf(where, sizeof(where), ", PCI %s, NUMA node %s",
			       d->pci[0] ? d->pci : "unknown", node);
	shown_printf(11, "  %-8s %s, %s%s", d->name, d->model,
		     d->total ? size_text(d->total).s : "memory unknown", where);
	if (real)
		print_fact(NULL, "UUID", uuid_text(d->uuid).s);
	if (*dr->facts && other)
		(void)printf("    otherwise as %s\n", other->dev.name);
	else
		each_fact(dr->facts, print_fact, NULL);
}

static void print_devices(const struct report *rep)
{
	const struct gpus *g = &rep->nvidia;

	(void)puts("\ndevices");
	for (unsigned i = 0; i < rep->nr_devs; i++)
		print_device(rep, &rep->devs[i]);
	if (!*rep->no_cuda)
		return;
	shown_printf(11, "  %-8s none: %s", "cuda", rep->no_cuda);
	if (g->nr)
		(void)printf("    %-34s %u, the first at %s\n", "NVIDIA GPUs on the PCI bus", g->nr,
			     g->first);
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

static void print_stores(const struct report *rep)
{
	(void)puts("\nstores: how file operations are done");
	shown_printf(11, "  %-8s %s", "uring", *rep->uring ? rep->uring : "available");
	shown_printf(11, "  %-8s %s", "threads", *rep->threads ? rep->threads : "available");
}

static void print_all_paths(const struct report *rep)
{
	char direct[96] = "";

	(void)putchar('\n');
	if (*rep->dir_error) {
		(void)puts("paths");
		shown_printf(2, "  not tried: %s", rep->dir_error);
		return;
	}
	if (rep->file.direct)
		(void)snprintf(direct, sizeof(direct),
			       ", O_DIRECT in multiples of %u bytes of the file and %u of memory",
			       rep->file.off_align, rep->file.mem_align);
	shown_printf(2, "paths to a scratch file in %s (%s%s)", rep->dir, rep->file.fs, direct);
	for (unsigned i = 0; i < rep->nr_devs; i++)
		print_paths(rep, &rep->devs[i]);
}

static void print_windows(const struct report *rep)
{
	(void)puts("\nwindows: device memory mapped for the CPU");
	for (unsigned i = 0; i < rep->nr_devs; i++)
		doctor_window_print(&rep->devs[i].dev);
}

static void print_limits(const struct limits *l)
{
	(void)puts("\nlimits");
	print_limit("locked memory", l->memlock, true);
	print_limit("open files", l->nofile, false);
	print_limit("address space", l->as, true);
	print_limit("control group's memory", l->cgroup_memory, true);
	if (l->uring_disabled >= 0)
		(void)printf("  %-22s %d (%s)\n", "io_uring_disabled", l->uring_disabled,
			     l->uring_disabled == 0   ? "io_uring is allowed"
			     : l->uring_disabled == 1 ? "io_uring is for root and one group"
						      : "io_uring is forbidden");
	else
		(void)printf("  %-22s this kernel has no such setting\n", "io_uring_disabled");
	if (l->shm_size)
		print_limit("/dev/shm", l->shm_size, true);
	else
		(void)printf("  %-22s not there\n", "/dev/shm");
	(void)printf("  %-22s %s\n", "container", *l->container ? l->container : "no sign of one");
}

static void print_machine(const struct machine *m)
{
	(void)puts("\nmachine");
	shown_printf(4, "  %s, %u of %u processors usable", m->cpu, m->cpus, m->online);
	if (m->memory)
		shown_printf(4, "  %s of memory, %s free to use", size_text(m->memory).s,
			     size_text(m->available).s);
	shown_printf(4, "  %s", m->kernel);
	shown_printf(4, "  penstock %s", pst_version());
}

void doctor_print(const struct report *rep)
{
	for (size_t i = 0; i < ARRAY_SIZE(rep->verdict); i++)
		shown_printf(2, "%s", rep->verdict[i]);
	print_devices(rep);
	print_stores(rep);
	print_all_paths(rep);
	print_windows(rep);
	print_limits(&rep->l);
	print_machine(&rep->m);
}

/* -------------------------------------------------------------------- json */

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

static void add_fact(void *to, const char *name, const char *value)
{
	json_text(to, name, value);
}

static struct json_object *device_json(const struct device_report *dr, bool tried)
{
	struct json_object *o = json_object_new_object(), *all = json_object_new_object();
	struct json_object *facts = json_object_new_object();
	bool has_uuid = dr->dev.kind != PST_KIND_HOST;

	json_text(o, "name", dr->dev.name);
	json_text(o, "model", dr->dev.model);
	json_text(o, "pci", dr->dev.pci);
	json_int(o, "numa_node", dr->dev.numa_node);
	json_u64(o, "memory_bytes", dr->dev.total);
	json_text(o, "uuid", has_uuid ? uuid_text(dr->dev.uuid).s : "");
	each_fact(dr->facts, add_fact, facts);
	json_add(o, "facts", facts);
	json_text(o, "error", dr->error);
	for (uint32_t p = 1; tried && !*dr->error && p < PST_PATH_MAX; p++) {
		struct json_object *path;

		if (!is_path(p))
			continue;
		path = json_object_new_object();
		json_text(path, "needs", needs[p]);
		add_trial(path, "read", &dr->t.read[p]);
		add_trial(path, "write", &dr->t.write[p]);
		json_add(all, pst_path_name(p), path);
	}
	if (tried && !*dr->error) {
		add_trial(o, "auto_read", &dr->t.auto_read);
		add_trial(o, "auto_write", &dr->t.auto_write);
	}
	json_add(o, "paths", all);
	json_add(o, "windows", doctor_window_json(&dr->dev));
	return o;
}

/* Add a limit; unlimited becomes null. */
static void add_limit(struct json_object *to, const char *key, uint64_t v)
{
	if (v == UINT64_MAX)
		json_add(to, key, NULL);
	else
		json_u64(to, key, v);
}

void doctor_print_json(const struct report *rep)
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
	json_text(o, "cuda", rep->no_cuda);
	json_u64(o, "nvidia_gpus_on_pci", rep->nvidia.nr);
	json_text(o, "first_nvidia_gpu", rep->nvidia.first);
	json_add(root, "missing", o);

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
