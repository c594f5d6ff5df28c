/* SPDX-License-Identifier: MIT */
#include "tools/common/svg.h"

#include <math.h>

#include "base/shown.h"
#include "tools/common/util.h"

enum { WIDTH = 760, HEIGHT = 440, LEFT = 70, RIGHT = 28, TOP = 96, BOTTOM = 62 };

static const char *const colors[SVG_SERIES_MAX] = {
	"#0b6bcb", "#8a8f98", "#d1631b", "#2e8b57", "#8e44ad", "#b03060", "#00838f", "#6d4c41",
};

static void put_text(FILE *f, const char *s)
{
	for (; *s; s++) {
		switch (*s) {
		case '&':
			(void)fputs("&amp;", f);
			break;
		case '<':
			(void)fputs("&lt;", f);
			break;
		case '>':
			(void)fputs("&gt;", f);
			break;
		default:
			if ((unsigned char)*s >= ' ')
				(void)fputc(*s, f);
		}
	}
}

void svg_label(FILE *f, double x, double y, const char *class, const char *text)
{
	char safe[512];

	shown(safe, sizeof(safe), text);
	(void)fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
	put_text(f, safe);
	(void)fputs("</text>\n", f);
}

/* Return the smallest step (1, 2, 2.5 or 5 times a power of ten) that reaches max in at most 6
 * steps. */
static double nice_step(double max)
{
	static const double m[] = { 1, 2, 2.5, 5, 10 };
	double p = pow(10, floor(log10(max / 6)));

	for (size_t i = 0; i < ARRAY_SIZE(m); i++)
		if (m[i] * p * 6 >= max)
			return m[i] * p;
	return 10 * p;
}

struct scale {
	double x0, x1; /* log2 of the first and of the last size */
	double y1;     /* top of the y axis */
};

static double pos_x(const struct scale *s, uint64_t x)
{
	double w = WIDTH - LEFT - RIGHT;

	/* Put a single size in the middle. */
	if (s->x1 <= s->x0)
		return LEFT + w / 2;
	/* Keep a distance between points and frame. */
	return LEFT + w * (0.03 + 0.94 * (log2((double)x) - s->x0) / (s->x1 - s->x0));
}

static double pos_y(const struct scale *s, double y)
{
	return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y / s->y1;
}

static void draw_axes(FILE *f, const struct svg_chart *c, const struct scale *s, double step)
{
	double last = -1000;

	for (double y = 0; y <= s->y1 + step / 2; y += step) {
		struct text t;

		(void)snprintf(t.s, sizeof(t.s), "%g", round(y * 1e6) / 1e6);
		(void)fprintf(
			f, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n",
			LEFT, WIDTH - RIGHT, pos_y(s, y), pos_y(s, y), y > 0 ? "grid" : "axis");
		svg_label(f, LEFT - 10, pos_y(s, y) + 4, "num", t.s);
	}
	for (unsigned i = 0; i < c->nr_x; i++) {
		double x = pos_x(s, c->x[i]);

		(void)fprintf(
			f, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\" class=\"axis\"/>\n",
			x, x, HEIGHT - BOTTOM, HEIGHT - BOTTOM + 5);
		/* Skip labels that are too close to the last one. */
		if (x - last < 56)
			continue;
		svg_label(f, x, HEIGHT - BOTTOM + 21, "mid", size_text(c->x[i]).s);
		last = x;
	}
	svg_label(f, LEFT + (WIDTH - LEFT - RIGHT) / 2.0, HEIGHT - 14, "mid", "bytes per piece");
	(void)fprintf(f, "<text transform=\"translate(20 %d) rotate(-90)\" class=\"mid\">",
		      TOP + (HEIGHT - TOP - BOTTOM) / 2);
	put_text(f, c->y_name);
	(void)fputs("</text>\n", f);
}

static void draw_series(FILE *f, const struct svg_chart *c, const struct scale *s, unsigned idx)
{
	const struct svg_series *series = &c->series[idx];
	bool pen = false;

	(void)fprintf(f,
		      "<path fill=\"none\" stroke=\"%s\" stroke-width=\"2.5\" "
		      "stroke-linejoin=\"round\" d=\"",
		      colors[idx]);
	for (unsigned i = 0; i < c->nr_x; i++) {
		if (series->y[i] < 0) {
			pen = false;
			continue;
		}
		(void)fprintf(f, "%s%.1f %.1f", pen ? " L" : " M", pos_x(s, c->x[i]),
			      pos_y(s, series->y[i]));
		pen = true;
	}
	(void)fputs("\"/>\n", f);
	for (unsigned i = 0; i < c->nr_x; i++)
		if (series->y[i] >= 0)
			(void)fprintf(f,
				      "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\" "
				      "stroke=\"#fff\" stroke-width=\"1.5\"/>\n",
				      pos_x(s, c->x[i]), pos_y(s, series->y[i]), colors[idx]);
}

static void svg_draw(FILE *f, const struct svg_chart *c)
{
	struct scale s = { .x0 = log2((double)c->x[0]), .x1 = log2((double)c->x[c->nr_x - 1]) };
	double max = 0, step, x = LEFT;

	for (unsigned i = 0; i < c->nr_series; i++)
		for (unsigned k = 0; k < c->nr_x; k++)
			max = MAX(max, c->series[i].y[k]);
	if (!(max > 0))
		max = 1;
	step = nice_step(max * 1.05);
	s.y1 = step * ceil(max * 1.05 / step);

	(void)fprintf(f,
		      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
		      "width=\"%d\" height=\"%d\">\n",
		      WIDTH, HEIGHT, WIDTH, HEIGHT);
	(void)fputs(
		"<style>\n"
		"text { font-family: system-ui, 'DejaVu Sans', Arial, sans-serif; font-size: 12px; "
		"fill: #444 }\n"
		".title { font-size: 17px; font-weight: 600; fill: #111 }\n"
		".sub { font-size: 11.5px; fill: #666 }\n"
		".key { font-size: 12.5px; fill: #222 }\n"
		".num { text-anchor: end }\n"
		".mid { text-anchor: middle }\n"
		".grid { stroke: #e4e6ea; stroke-width: 1 }\n"
		".axis { stroke: #6b7078; stroke-width: 1 }\n"
		"</style>\n",
		f);
	(void)fprintf(f, "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", WIDTH, HEIGHT);
	svg_label(f, LEFT, 28, "title", c->title);
	for (unsigned i = 0; i < ARRAY_SIZE(c->subtitle); i++)
		if (c->subtitle[i])
			svg_label(f, LEFT, 46 + 15 * i, "sub", c->subtitle[i]);
	for (unsigned i = 0; i < c->nr_series; i++) {
		(void)fprintf(f,
			      "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"79\" y2=\"79\" stroke=\"%s\" "
			      "stroke-width=\"2.5\"/>\n",
			      x, x + 22, colors[i]);
		svg_label(f, x + 28, 83, "key", c->series[i].name);
		/* The width of a text is unknown before it is drawn; 7.2 per character suffices at
		 * this size. */
		x += 28 + 7.2 * (double)strlen(c->series[i].name) + 22;
	}
	draw_axes(f, c, &s, step);
	/* Draw the first series last, and so on top, because it is the most important. */
	for (unsigned i = c->nr_series; i-- > 0;)
		draw_series(f, c, &s, i);
	(void)fputs("</svg>\n", f);
}

int svg_write(const char *path, const struct svg_chart *chart)
{
	_cleanup_(fclosep) FILE *f = fopen(path, "we");

	if (!f)
		return fail(errno, "cannot write %s: %s", path, strerror(errno));
	svg_draw(f, chart);
	if (fflush(f) != 0 || ferror(f))
		return fail(EIO, "cannot write %s: %s", path, strerror(errno));
	return 0;
}
