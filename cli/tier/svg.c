/* SPDX-License-Identifier: MIT */
/* penstock tier status --svg: draw the rates measured by moves on each root, as bars. */
#include "cli/tier/tier.h"

#include "tools/common/svg.h"
#include "tools/common/util.h"

enum { WIDTH = 760, LEFT = 190, RIGHT = 90, TOP = 92, ROW = 58, BAR = 16, BOTTOM = 30 };

static const char style[] =
	"<style>\n"
	"text { font-family: system-ui, 'DejaVu Sans', Arial, sans-serif; font-size: 12px; "
	"fill: #444 }\n"
	".title { font-size: 17px; font-weight: 600; fill: #111 }\n"
	".sub { font-size: 11.5px; fill: #666 }\n"
	".class { font-size: 13px; font-weight: 600; fill: #222 }\n"
	".r { fill: #0b6bcb }\n"
	".w { fill: #d1631b }\n"
	"</style>\n";

static double svg_rate(uint64_t bytes, uint64_t ns)
{
	return bytes && ns ? gb_per_s(bytes, ns) : -1;
}

static void svg_put_bar(FILE *f, double y, const char *class, double gb, double most)
{
	double w = gb < 0 ? 0 : (WIDTH - LEFT - RIGHT) * gb / most;
	struct text t;

	if (gb < 0) {
		svg_label(f, LEFT, y + 12.5, "sub", "not measured yet");
		return;
	}
	(void)fprintf(f,
		      "<rect x=\"%d\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" rx=\"2\" "
		      "class=\"%s\"/>\n",
		      LEFT, y, MAX(w, 1.0), BAR, class);
	(void)snprintf(t.s, sizeof(t.s), "%s GB/s", gb_text(gb).s);
	svg_label(f, LEFT + w + 6, y + 12.5, "", t.s);
}

static void put_key(FILE *f, double x, const char *class, const char *text)
{
	(void)fprintf(f,
		      "<rect x=\"%.1f\" y=\"64\" width=\"12\" height=\"12\" rx=\"2\" "
		      "class=\"%s\"/>\n",
		      x, class);
	svg_label(f, x + 18, 74.5, "", text);
}

/* Shorten a long path to its last part, which tells more than the first. */
static const char *path_end(const char *path, char ret[32])
{
	size_t len = strlen(path);

	if (len <= 26)
		return path;
	(void)snprintf(ret, 32, "...%s", path + len - 23);
	return ret;
}

static void tier_svg_draw(FILE *f, const struct tier_set *set, const struct tier_measured m[])
{
	int height = TOP + ROW * (int)set->nr_roots + BOTTOM;
	char title[NAME_MAX + 64];
	double most = 0;

	for (unsigned i = 0; i < set->nr_roots; i++) {
		most = MAX(most, svg_rate(m[i].read_bytes, m[i].read_ns));
		most = MAX(most, svg_rate(m[i].write_bytes, m[i].write_ns));
	}
	(void)fprintf(f,
		      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
		      "width=\"%d\" height=\"%d\">\n%s"
		      "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
		      WIDTH, height, WIDTH, height, style, WIDTH, height);
	(void)snprintf(title, sizeof(title), "Set %s: what its moves measured", set->name);
	svg_label(f, 20, 28, "title", title);
	svg_label(f, 20, 47, "sub",
		  "Bytes by the time in their reads and writes, of all moves so far. "
		  "Reads that the page cache answered count.");
	put_key(f, 20, "r", "read");
	put_key(f, 90, "w", "written, with the sync");
	for (unsigned i = 0; i < set->nr_roots; i++) {
		double y = TOP + ROW * (double)i;
		char end[32];

		svg_label(f, 20, y + 13, "class", tier_class_name(set->roots[i].class));
		svg_label(f, 20, y + 31, "sub", path_end(set->roots[i].path, end));
		svg_put_bar(f, y, "r", svg_rate(m[i].read_bytes, m[i].read_ns), most);
		svg_put_bar(f, y + BAR + 4, "w", svg_rate(m[i].write_bytes, m[i].write_ns), most);
	}
	(void)fputs("</svg>\n", f);
}

int tier_svg(const struct tier_set *set, const char *path)
{
	_cleanup_(fclosep) FILE *f = NULL;
	struct tier_measured m[TIER_ROOTS_MAX];

	for (unsigned i = 0; i < set->nr_roots; i++) {
		int r = catalog_measured(set->catalog, i, &m[i]);

		if (r < 0)
			return fail_tier(r);
	}
	f = fopen(path, "we");
	if (!f)
		return fail(errno, "cannot write %s: %s", path, strerror(errno));
	tier_svg_draw(f, set, m);
	if (fflush(f) != 0 || ferror(f))
		return fail(EIO, "cannot write %s: %s", path, strerror(errno));
	return 0;
}
