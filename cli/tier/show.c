/* SPDX-License-Identifier: MIT */
/* The subcommands that show a set: status, ls and df. */
#include "cli/tier/tier.h"

#include "base/err.h"
#include "tier/object.h"
#include "tier/progress.h"
#include "tools/common/json.h"
#include "tools/common/shown.h"
#include "tools/common/table.h"
#include "tools/common/util.h"

static struct text rate_or_dash(uint64_t bytes, uint64_t ns)
{
	struct text t = rate_text(bytes, ns);

	if (!bytes)
		(void)snprintf(t.s, sizeof(t.s), "-");
	return t;
}

/* ---------------------------------------------------------------- status */

struct status {
	struct tier_set *set;
	struct tier_look look;
	uint64_t files[TIER_ROOTS_MAX], bytes[TIER_ROOTS_MAX];
	uint64_t with_crc, pinned, all;
	uint64_t garbage, garbage_bytes; /* objects that wait to be deleted */
	bool no_store;                   /* the store of the object root gave an error */
};

static bool status_usable(const struct status *s, unsigned root)
{
	return root_is_object(&s->set->roots[root]) ? !s->no_store : s->set->roots[root].fd >= 0;
}

/* Ask the store, and keep its error as the root's cause. */
static int look_at_store(struct status *s)
{
	int i = object_root(s->set);
	struct tier_root *root = i < 0 ? NULL : &s->set->roots[i];

	if (!root)
		return 0;
	s->no_store = object_marker(s->set, root) < 0;
	if (s->no_store)
		(void)snprintf(root->why, sizeof(root->why), "%s", err_text());
	return catalog_garbage_count(s->set->catalog, &s->garbage, &s->garbage_bytes);
}

static int count_file(const struct tier_file *f, void *arg)
{
	struct status *s = arg;

	s->all++;
	s->with_crc += f->has_crc;
	s->pinned += f->pinned;
	if (f->root < s->set->nr_roots) {
		s->files[f->root]++;
		s->bytes[f->root] += f->stamp.size;
	}
	return 0;
}

static int status_table(struct status *s)
{
	static const char *const heads[] = { "<class",    "<directory", "files", "size",
					     "read GB/s", "write GB/s", "<state" };
	_cleanup_(table_freep) struct table *t = table_new(heads, ARRAY_SIZE(heads));
	struct tier_measured m;

	if (!t)
		return fail(ENOMEM, "out of memory");
	for (unsigned i = 0; i < s->set->nr_roots; i++) {
		const struct tier_root *root = &s->set->roots[i];
		char path[2 * PATH_MAX];
		int r = catalog_measured(s->set->catalog, i, &m);

		if (r < 0)
			return fail_tier(r);
		shown(path, sizeof(path), root->path);
		table_add(t, "%s", tier_class_name(root->class));
		table_add(t, "%s", path);
		table_add(t, "%llu", (unsigned long long)s->files[i]);
		table_add(t, "%s", size_text(s->bytes[i]).s);
		table_add(t, "%s", rate_or_dash(m.read_bytes, m.read_ns).s);
		table_add(t, "%s", rate_or_dash(m.write_bytes, m.write_ns).s);
		table_add(t, "%s",
			  !status_usable(s, i) ? "not usable"
			  : root->read_only    ? "read-only"
					       : "ok");
	}
	table_print(t, stdout, shown_width(stdout));
	return 0;
}

/* Report that another process has the set locked. */
static void print_busy(const struct tier_set *set)
{
	struct progress_move m;

	progress_now(set->progress, &m);
	if (m.running)
		shown_printf(2, "moves now: %s, from %s to %s, %s of %s", m.name,
			     tier_root_class(set, m.src), tier_root_class(set, m.dst),
			     size_text(m.done).s, size_text(m.bytes).s);
	else
		shown_printf(2, "another command works on the set now");
}

static int print_status(struct status *s)
{
	int r;

	shown_printf(2, "set %s, policy %s, %llu files, %llu with a checksum, %llu pinned",
		     s->set->name, s->set->policy->name, (unsigned long long)s->all,
		     (unsigned long long)s->with_crc, (unsigned long long)s->pinned);
	r = status_table(s);
	if (r < 0)
		return r;
	if (s->look.busy)
		print_busy(s->set);
	for (unsigned i = 0; i < s->set->nr_roots; i++)
		if (!status_usable(s, i))
			shown_printf(2, "%s", s->set->roots[i].why);
	if (s->garbage)
		shown_printf(2, "objects that wait to be deleted: %llu, %s",
			     (unsigned long long)s->garbage, size_text(s->garbage_bytes).s);
	if (s->look.recovered.undone || s->look.recovered.completed)
		shown_printf(2, "moves that were interrupted: %u undone, %u completed",
			     s->look.recovered.undone, s->look.recovered.completed);
	if (s->look.recovered.waiting)
		shown_printf(2, "moves that cannot be ended now: %u; the last: %s",
			     s->look.recovered.waiting, s->look.recovered.why);
	if (s->look.scan.twice)
		shown_printf(
			2,
			"names that two directories have: %llu, the first is %s; see which one "
			"is right and remove the other",
			(unsigned long long)s->look.scan.twice, s->look.scan.twice_name);
	if (s->look.scan.links)
		shown_printf(2, "files with several names, which never move: %llu",
			     (unsigned long long)s->look.scan.links);
	if (s->look.scan.special)
		shown_printf(2,
			     "symbolic links, devices and mounts, which are not in the set: %llu",
			     (unsigned long long)s->look.scan.special);
	return 0;
}

static int json_status(struct status *s)
{
	_cleanup_(json_putp) struct json_object *o = json_object_new_object();
	struct json_object *roots = json_object_new_array();
	struct tier_measured m;

	json_text(o, "set", s->set->name);
	json_text(o, "policy", s->set->policy->name);
	json_u64(o, "files", s->all);
	json_u64(o, "with_checksum", s->with_crc);
	json_u64(o, "pinned", s->pinned);
	json_u64(o, "moves_undone", s->look.recovered.undone);
	json_u64(o, "moves_completed", s->look.recovered.completed);
	json_u64(o, "moves_waiting", s->look.recovered.waiting);
	json_u64(o, "names_twice", s->look.scan.twice);
	json_u64(o, "hard_links", s->look.scan.links);
	/* If busy is true, the numbers of moves, names and links above are unknown. */
	json_flag(o, "busy", s->look.busy);
	for (unsigned i = 0; i < s->set->nr_roots; i++) {
		struct tier_root *root = &s->set->roots[i];
		struct json_object *j = json_object_new_object();

		json_add(roots, NULL, j);
		json_text(j, "class", tier_class_name(root->class));
		json_text(j, "directory", root->path);
		json_u64(j, "files", s->files[i]);
		json_u64(j, "bytes", s->bytes[i]);
		json_flag(j, "usable", status_usable(s, i));
		json_flag(j, "read_only", root->read_only);
		if (!status_usable(s, i))
			json_text(j, "why", root->why);
		if (catalog_measured(s->set->catalog, i, &m) < 0)
			continue;
		if (m.read_bytes)
			json_num(j, "read_gb_per_s", gb_per_s(m.read_bytes, m.read_ns));
		if (m.write_bytes)
			json_num(j, "write_gb_per_s", gb_per_s(m.write_bytes, m.write_ns));
	}
	json_add(o, "directories", roots);
	json_print(o);
	return 0;
}

int tier_status(const char *name, const struct tier_opts *o)
{
	_cleanup_(set_closep) struct tier_set *set = NULL;
	_cleanup_(freep) struct status *s = calloc(1, sizeof(*s));
	bool well;
	int r;

	if (!s)
		return fail(ENOMEM, "out of memory");
	r = tier_open_look(name, &set, &s->look);
	if (r < 0)
		return r;
	s->set = set;
	r = look_at_store(s);
	if (r == 0)
		r = catalog_each(set->catalog, count_file, s);
	if (r < 0)
		return fail_tier(r);
	r = o->svg ? tier_svg(set, o->svg) : 0;
	if (r == 0)
		r = o->json ? json_status(s) : print_status(s);
	if (r < 0)
		return r;
	well = !s->look.recovered.waiting && !s->look.scan.twice;
	for (unsigned i = 0; i < set->nr_roots; i++)
		well &= status_usable(s, i);
	return well ? 0 : 1;
}

/* -------------------------------------------------------------------- ls */

struct list {
	const struct tier_set *set;
	struct table *table;
	struct json_object *json;
};

static int show_list_file(const struct tier_file *f, void *arg)
{
	struct list *l = arg;
	char name[2 * TIER_NAME_SIZE], crc[16] = "-";

	if (f->has_crc)
		(void)snprintf(crc, sizeof(crc), "%08x", f->crc);
	/* Replace bytes that are not UTF-8, which JSON does not allow. */
	shown(name, sizeof(name), f->name);
	if (l->json) {
		struct json_object *j = json_object_new_object();

		json_add(l->json, NULL, j);
		json_text(j, "name", name);
		json_text(j, "class", tier_root_class(l->set, f->root));
		json_u64(j, "size", f->stamp.size);
		json_u64(j, "accesses", f->accesses);
		json_u64(j, "generation", f->gen);
		json_flag(j, "pinned", f->pinned);
		if (f->has_crc)
			json_text(j, "crc32c", crc);
		return 0;
	}
	table_add(l->table, "%s", tier_root_class(l->set, f->root));
	table_add(l->table, "%llu", (unsigned long long)f->stamp.size);
	table_add(l->table, "%llu", (unsigned long long)f->accesses);
	table_add(l->table, "%s", crc);
	table_add(l->table, "%s", f->pinned ? "pinned" : "");
	table_add(l->table, "%s", name);
	return 0;
}

int tier_ls(const char *name, const struct tier_opts *o)
{
	static const char *const heads[] = { "<class",  "size",    "accesses",
					     "<crc32c", "<pinned", "<name" };
	_cleanup_(table_freep) struct table *t = table_new(heads, ARRAY_SIZE(heads));
	_cleanup_(json_putp) struct json_object *root = json_object_new_object();
	_cleanup_(set_closep) struct tier_set *set = NULL;
	struct json_object *files = json_object_new_array();
	struct list l = { .table = t, .json = o->json ? files : NULL };
	struct tier_look look;
	int r;

	json_add(root, "files", files);
	if (!t)
		return fail(ENOMEM, "out of memory");
	r = tier_open_look(name, &set, &look);
	if (r < 0)
		return r;
	l.set = set;
	r = catalog_each(set->catalog, show_list_file, &l);
	if (r < 0)
		return fail_tier(r);
	if (o->json)
		json_print(root);
	else
		table_print(t, stdout, shown_width(stdout));
	return 0;
}

/* -------------------------------------------------------------------- df */

static void df_row(struct table *t, const char *class, const char *path, const struct tier_space *s,
		   uint64_t quota)
{
	table_add(t, "%s", class);
	table_add(t, "%s", path);
	table_add(t, "%s", size_text(s->size).s);
	table_add(t, "%s", size_text(s->used).s);
	table_add(t, "%s", size_text(s->avail).s);
	table_add(t, "%s", quota ? size_text(quota).s : "-");
}

static void df_json(struct json_object *to, const char *class, const char *path,
		    const struct tier_space *s)
{
	struct json_object *j = json_object_new_object();

	json_add(to, NULL, j);
	json_text(j, "class", class);
	if (path)
		json_text(j, "directory", path);
	json_u64(j, "size", s->size);
	json_u64(j, "used", s->used);
	json_u64(j, "available", s->avail);
}

int tier_df(const char *name, const struct tier_opts *o)
{
	static const char *const heads[] = { "<class", "<directory", "size",
					     "used",   "available",  "quota" };
	_cleanup_(table_freep) struct table *t = table_new(heads, ARRAY_SIZE(heads));
	_cleanup_(json_putp) struct json_object *root = json_object_new_object();
	_cleanup_(set_closep) struct tier_set *set = NULL;
	struct json_object *classes = json_object_new_array();
	struct json_object *dirs = json_object_new_array();
	struct tier_look look;
	struct tier_space s;
	int r;

	json_add(root, "classes", classes);
	json_add(root, "directories", dirs);
	if (!t)
		return fail(ENOMEM, "out of memory");
	r = tier_open_look(name, &set, &look);
	for (unsigned i = 0; r == 0 && i < set->nr_roots; i++) {
		char path[2 * PATH_MAX];

		if (!root_usable(&set->roots[i])) {
			say("%s", set->roots[i].why);
			continue;
		}
		r = root_space(set, &set->roots[i], &s);
		if (r == 0 && !root_is_object(&set->roots[i]))
			r = catalog_root_bytes(set->catalog, i, &s.used);
		if (r < 0)
			return fail_tier(r);
		shown(path, sizeof(path), set->roots[i].path);
		df_row(t, tier_class_name(set->roots[i].class), path, &s, 0);
		df_json(dirs, tier_class_name(set->roots[i].class), path, &s);
	}
	for (unsigned i = 0; r == 0 && i < TIER_CLASSES; i++) {
		if (i == TIER_OBJECT && object_root(set) < 0)
			continue;
		r = class_space(set, (enum tier_class)i, &s);
		if (r < 0)
			return fail_tier(r);
		df_row(t, tier_class_name((enum tier_class)i), "all", &s, set->limits[i].quota);
		df_json(classes, tier_class_name((enum tier_class)i), NULL, &s);
	}
	if (r < 0)
		return r;
	if (o->json)
		json_print(root);
	else
		table_print(t, stdout, shown_width(stdout));
	return 0;
}
