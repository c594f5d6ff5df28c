/* SPDX-License-Identifier: MIT */
/*
 * penstock doctor --topo --svg: draw the machine as nested boxes: NUMA nodes, host bridges,
 * switches and devices.  Bridges with a single child are left out.
 */
#include "cli/doctor/topo.h"

#include "tools/common/svg.h"
#include "tools/common/util.h"

enum { TILE_W = 132, TILE_H = 50, GAP = 10, HEAD = 22, MARGIN = 20, TOP = 92, NONE = -1 };

enum box_kind { BOX_MACHINE, BOX_NODE, BOX_HOST, BOX_BRIDGE, BOX_DEV };

struct box {
	enum box_kind kind;
	char name[48];
	const struct topo_dev *dev; /* the device, for a BOX_DEV */
	int first, last;            /* indices of the children, or NONE */
	int next;                   /* index of the next sibling, or NONE */
	int x, y, w, h; /* x and y are relative to the parent until the boxes are drawn */
};

struct boxes {
	struct box *at;
	unsigned nr, room;
};

static const char topo_style[] =
	"<style>\n"
	"text { font-family: system-ui, 'DejaVu Sans', Arial, sans-serif; font-size: 12px; "
	"fill: #444 }\n"
	".title { font-size: 17px; font-weight: 600; fill: #111 }\n"
	".sub { font-size: 11.5px; fill: #666 }\n"
	".head { font-size: 11.5px; fill: #555 }\n"
	".name { font-size: 12.5px; font-weight: 600; fill: #111 }\n"
	".small { font-size: 10px; fill: #555 }\n"
	".node { fill: #f4f5f7; stroke: #c4c8ce }\n"
	".host { fill: #fff; stroke: #9aa0a8 }\n"
	".bridge { fill: #eef4fb; stroke: #8fb2d9 }\n"
	".accelerator { fill: #2e8b57 }\n"
	".nic { fill: #0b6bcb }\n"
	".disk { fill: #d1631b }\n"
	".tile { fill: #fff; stroke: #b9bec6 }\n"
	"</style>\n";

/* -------------------------------------------------------------------- tree */

/* Find or add the child of that kind and name.  Return its index or -ENOMEM. */
static int box_child(struct boxes *b, int parent, enum box_kind kind, const char *name)
{
	struct box *grown;
	int n;

	if (parent != NONE)
		for (n = b->at[parent].first; n != NONE; n = b->at[n].next)
			if (b->at[n].kind == kind && !strcmp(b->at[n].name, name))
				return n;
	if (b->nr == b->room) {
		grown = realloc(b->at, (b->room + 256) * sizeof(*grown));
		if (!grown)
			return fail(ENOMEM, "out of memory");
		b->at = grown;
		b->room += 256;
	}
	n = (int)b->nr++;
	b->at[n] = (struct box){ .kind = kind, .first = NONE, .last = NONE, .next = NONE };
	(void)snprintf(b->at[n].name, sizeof(b->at[n].name), "%.40s", name);
	if (parent == NONE)
		return n;
	if (b->at[parent].first == NONE)
		b->at[parent].first = n;
	else
		b->at[b->at[parent].last].next = n;
	b->at[parent].last = n;
	return n;
}

static int boxes_fill(struct boxes *b, const struct topo *t)
{
	int at = box_child(b, NONE, BOX_MACHINE, "");
	char name[32];

	for (unsigned i = 0; i < t->nr && at >= 0; i++) {
		const struct topo_dev *d = &t->devs[i];

		if (d->node >= 0)
			(void)snprintf(name, sizeof(name), "NUMA node %d", d->node);
		else
			(void)snprintf(name, sizeof(name), "NUMA node not known");
		at = box_child(b, 0, BOX_NODE, t->nodes == 1 ? "one NUMA node" : name);
		if (at >= 0)
			at = box_child(b, at, BOX_HOST, d->host);
		for (unsigned k = 0; k < d->nr_bridges && at >= 0; k++)
			at = box_child(b, at, BOX_BRIDGE, d->bridges[k]);
		if (at >= 0)
			at = box_child(b, at, BOX_DEV, d->pci);
		if (at >= 0)
			b->at[at].dev = d;
	}
	return MIN(at, 0);
}

/* Replace each bridge that has a single child by that child. */
static void boxes_shorten(struct boxes *b, int parent)
{
	for (int n = b->at[parent].first; n != NONE; n = b->at[n].next) {
		struct box *box = &b->at[n];

		while (box->kind == BOX_BRIDGE && box->first == box->last) {
			int next = box->next;

			*box = b->at[box->first];
			box->next = next;
		}
		boxes_shorten(b, n);
	}
}

/* ------------------------------------------------------------------ layout */

/* Place the children in rows of at most that width, and set the box's size. */
static void box_rows(struct boxes *b, int parent, int limit)
{
	int x = 0, y = 0, row = 0, w = 0;

	for (int n = b->at[parent].first; n != NONE; n = b->at[n].next) {
		struct box *c = &b->at[n];

		if (x && x + c->w > limit) {
			x = 0;
			y += row + GAP;
			row = 0;
		}
		c->x = GAP + x;
		c->y = HEAD + y;
		x += c->w + GAP;
		row = MAX(row, c->h);
		w = MAX(w, x - GAP);
	}
	b->at[parent].w = w + 2 * GAP;
	b->at[parent].h = HEAD + y + row + GAP;
}

/* Choose a width that makes the box a little wider than high. */
static void box_layout(struct boxes *b, int box)
{
	int limit = 0, best = 0, least = INT32_MAX;

	if (b->at[box].kind == BOX_DEV) {
		b->at[box].w = TILE_W;
		b->at[box].h = TILE_H;
		return;
	}
	for (int n = b->at[box].first; n != NONE; n = b->at[n].next)
		box_layout(b, n);
	for (int n = b->at[box].first; n != NONE; n = b->at[n].next) {
		int cost;

		limit += b->at[n].w + (limit ? GAP : 0);
		box_rows(b, box, limit);
		cost = MAX(b->at[box].w, b->at[box].h * 3 / 2);
		if (cost < least) {
			least = cost;
			best = limit;
		}
	}
	box_rows(b, box, best);
}

/* -------------------------------------------------------------------- draw */

static void box_draw_dev(FILE *f, const struct box *box, int x, int y)
{
	const struct topo_dev *d = box->dev;
	char link[64] = "";

	if (d->width)
		(void)snprintf(link, sizeof(link), "%s%sx%u%s", d->speed, *d->speed ? " " : "",
			       d->width, d->width < d->width_max ? ", narrow" : "");
	(void)fprintf(f,
		      "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"3\" "
		      "class=\"tile\"/>\n"
		      "<rect x=\"%d\" y=\"%d\" width=\"6\" height=\"%d\" rx=\"2\" "
		      "class=\"%s\"/>\n",
		      x, y, TILE_W, TILE_H, x, y, TILE_H, topo_kind_name(d->kind));
	svg_label(f, x + 13, y + 16, "name", topo_name(d));
	svg_label(f, x + 13, y + 30, "small", d->pci);
	svg_label(f, x + 13, y + 43, "small", link);
}

static void box_draw(FILE *f, const struct boxes *b, int n, int x, int y)
{
	static const char *const classes[] = { "", "node", "host", "bridge" };
	static const char *const heads[] = { "", "", "host bridge ", "bridge " };
	const struct box *box = &b->at[n];
	char head[64];

	if (box->kind == BOX_DEV) {
		box_draw_dev(f, box, x, y);
		return;
	}
	if (box->kind != BOX_MACHINE) {
		(void)fprintf(f,
			      "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"4\" "
			      "class=\"%s\"/>\n",
			      x, y, box->w, box->h, classes[box->kind]);
		(void)snprintf(head, sizeof(head), "%s%.40s", heads[box->kind], box->name);
		svg_label(f, x + GAP, y + 15, "head", head);
	}
	for (int c = box->first; c != NONE; c = b->at[c].next)
		box_draw(f, b, c, x + b->at[c].x, y + b->at[c].y);
}

static void topo_svg_draw(FILE *f, const struct topo *t, const struct boxes *b)
{
	static const char *const keys[] = { "accelerator", "NIC", "disk controller" };
	int w = MAX(b->at[0].w + 2 * MARGIN, 720), h = b->at[0].h + TOP - HEAD + MARGIN, x = MARGIN;

	(void)fprintf(f,
		      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
		      "width=\"%d\" height=\"%d\">\n%s"
		      "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
		      w, h, w, h, topo_style, w, h);
	svg_label(f, MARGIN, 30, "title", "Accelerators, NICs and disks on PCI Express");
	svg_label(f, MARGIN, 49, "sub",
		  "Devices are the nearer the more boxes they share: a bridge (PIX, PXB), "
		  "a host bridge (PHB), a NUMA node (NODE).");
	for (enum topo_kind k = 0; k < TOPO_KINDS; k++) {
		char text[48];

		(void)snprintf(text, sizeof(text), "%s (%u)", keys[k], t->of_kind[k]);
		(void)fprintf(f,
			      "<rect x=\"%d\" y=\"62\" width=\"12\" height=\"12\" rx=\"2\" "
			      "class=\"%s\"/>\n",
			      x, topo_kind_name(k));
		svg_label(f, x + 18, 73, "", text);
		x += 130;
	}
	box_draw(f, b, 0, MARGIN - GAP, TOP - HEAD);
	(void)fputs("</svg>\n", f);
}

static void boxesp(struct boxes *b)
{
	free(b->at);
}

int topo_svg(const struct topo *t, const char *path)
{
	_cleanup_(boxesp) struct boxes b = { .nr = 0 };
	_cleanup_(fclosep) FILE *f = NULL;
	int r = boxes_fill(&b, t);

	if (r < 0)
		return r;
	boxes_shorten(&b, 0);
	box_layout(&b, 0);
	f = fopen(path, "we");
	if (!f)
		return fail(errno, "cannot write %s: %s", path, strerror(errno));
	topo_svg_draw(f, t, &b);
	if (fflush(f) != 0 || ferror(f))
		return fail(EIO, "cannot write %s: %s", path, strerror(errno));
	return 0;
}
