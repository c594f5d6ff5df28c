/* SPDX-License-Identifier: MIT */
/* What a mount does, and who makes it do so. */
#include <getopt.h>
#include <inttypes.h>
#include <sys/ioctl.h>

#include "cli/commands.h"
#include "cli/top/fetch.h"
#include "cli/top/view.h"
#include "tools/common/shown.h"
#include "tools/common/util.h"
#include "usrbio/proto/place.h"

#define ROWS_MIN 4u
#define ROWS_DEFAULT 1000u /* where there is no terminal */
#define ROWS_OTHER 11u     /* lines besides users; the one of the paths may take three */

const char top_usage[] =
	"Usage: penstock top [DIR] [OPTION...]\n"
	"\n"
	"Shows what a mount of 'penstock mount DIR --source SOURCE' does: operations of\n"
	"the kernel, and for each user of rings requests and bytes a second, times,\n"
	"errors and the path of the bytes.  Without DIR, the only mount that there is.\n"
	"Only the user who runs the mount and root may look.\n"
	"\n"
	"  --interval SECONDS  time between two looks (1)\n"
	"  --once              print one table, after one interval, and end\n"
	"  --json              print an object for each interval, a line each\n"
	"  --metrics PATH      the socket, or 127.0.0.1:PORT, of a mount that was\n"
	"                      started with this option\n";

struct opts {
	struct place place;
	double interval;
	bool once, json, live;
};

static double now_s(void)
{
	return (double)now_ns() / 1e9;
}

static int look(const struct opts *o, struct view *ret)
{
	_cleanup_(freep) char *text = NULL;
	size_t len;
	int r = place_ask(&o->place, &text, &len);

	return r < 0 ? r : view_read(text, len, now_s(), ret);
}

static unsigned rows_of_terminal(void)
{
	struct winsize w;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) < 0 || !w.ws_row)
		return ROWS_DEFAULT;
	return w.ws_row > ROWS_OTHER + ROWS_MIN ? w.ws_row - ROWS_OTHER : ROWS_MIN;
}

static void print_json(const struct view *before, const struct view *now)
{
	_cleanup_(json_putp) struct json_object *j = view_json(before, now);

	(void)puts(json_object_to_json_string_ext(j, JSON_C_TO_STRING_PLAIN |
							     JSON_C_TO_STRING_NOSLASHESCAPE));
}

static void print(const struct opts *o, const struct view *before, const struct view *now)
{
	if (o->json) {
		print_json(before, now);
	} else if (o->live) {
		/* Home, the frame, and what is left of the one before is wiped out. */
		(void)fputs("\033[H\033[J", stdout);
		view_print(before, now, rows_of_terminal(), shown_width(stdout), stdout);
	} else {
		view_print(before, now, ROWS_DEFAULT, shown_width(stdout), stdout);
		if (!o->once)
			(void)putchar('\n');
	}
	(void)fflush(stdout);
}

/* Until then, or a signal. */
static void rest(double until)
{
	double left;

	while (!stop_signal && (left = until - now_s()) > 0)
		(void)usleep((useconds_t)(MIN(left, 0.2) * 1e6) + 1);
}

static int watch(const struct opts *o)
{
	struct view before, now;
	int r = look(o, &before);

	if (r < 0)
		return r;
	if (o->live) {
		/* A screen of its own. */
		(void)printf("\033[?1049h\033[H%s: the first rates come in %g s\n", before.dir,
			     o->interval);
		(void)fflush(stdout);
	}
	do {
		rest(before.at + o->interval);
		if (stop_signal)
			break;
		r = look(o, &now);
		if (r < 0)
			break;
		print(o, &before, &now);
		view_done(&before);
		before = now;
	} while (!o->once && !ferror(stdout));
	if (o->live)
		(void)fputs("\033[?1049l", stdout);
	(void)fflush(stdout);
	view_done(&before);
	return r;
}

enum { INTERVAL = 256, ONCE, JSON, METRICS };

int cmd_top(int argc, char *argv[])
{
	static const struct option longs[] = {
		{ "interval", required_argument, NULL, INTERVAL },
		{ "once", no_argument, NULL, ONCE },
		{ "json", no_argument, NULL, JSON },
		{ "metrics", required_argument, NULL, METRICS },
		{ 0 },
	};
	struct opts o = { .interval = 1 };
	struct sockaddr_storage port;
	const char *path = NULL;
	int opt, r;

	while ((opt = getopt_long(argc, argv, ":", longs, NULL)) != -1) {
		switch (opt) {
		case INTERVAL:
			if (parse_seconds(optarg, &o.interval) < 0 || o.interval > 86400)
				return usage_error("--interval takes seconds, up to 86400");
			break;
		case ONCE:
			o.once = true;
			break;
		case JSON:
			o.json = true;
			break;
		case METRICS:
			path = optarg;
			break;
		default:
			return option_error(argv, longs, opt);
		}
	}
	if (argc - optind > 1 || (path && argc > optind))
		return usage_error("give one directory, or --metrics PATH");
	if (path && (strlen(path) >= PATH_MAX ||
		     (!strchr(path, '/') && usrbio_place_tcp(path, &port) <= 0)))
		return usage_error("--metrics takes a path with a folder, like ./socket, or "
				   "127.0.0.1:PORT");
	o.live = !o.once && !o.json && isatty(STDOUT_FILENO);
	signals_catch();
	if (path)
		(void)strcpy(o.place.path, path);
	r = path ? 0 : place_find(argv[optind], &o.place);
	return exit_status(r < 0 ? r : watch(&o));
}
