/* SPDX-License-Identifier: MIT */
/* penstock top: show the load of mounts by user. */
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
#define ROWS_DEFAULT 1000u /* users shown without a terminal */
/* lines of the screen that are not rows of users; the list of paths may take three of them */
#define ROWS_OTHER 11u

const char top_usage[] =
	"Usage: penstock top [DIR] [OPTION...]\n"
	"\n"
	"Shows what a mount of 'penstock mount DIR --source SOURCE' does: operations of\n"
	"the kernel, and for each user of rings requests and bytes a second, times,\n"
	"errors and the path of the bytes.  Without DIR, it shows all mounts of this\n"
	"machine.  Only the user who runs a mount and root may look.\n"
	"\n"
	"  --interval SECONDS  time between two looks (1)\n"
	"  --once              print one table, after one interval, and end\n"
	"  --json              print an object for each interval and mount, a line each\n"
	"  --metrics PATH      the socket, or 127.0.0.1:PORT, of a mount that was\n"
	"                      started with this option\n";

struct opts {
	double interval;
	bool once, json, live;
};

/* A mount, with its earlier and current metrics. */
struct watched {
	struct place place;
	struct view before, now;
	bool ended; /* the server has stopped answering */
};

static double now_s(void)
{
	return (double)now_ns() / 1e9;
}

static int top_look(const struct place *p, struct view *ret)
{
	_cleanup_(freep) char *text = NULL;
	size_t len;
	int r = place_ask(p, &text, &len);

	return r < 0 ? r : view_read(text, len, now_s(), ret);
}

/* Return how many rows of users fit on the terminal for each of nr mounts. */
static unsigned rows_of_terminal(unsigned nr)
{
	struct winsize w;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) < 0 || !w.ws_row)
		return ROWS_DEFAULT;
	return w.ws_row / nr > ROWS_OTHER + ROWS_MIN ? w.ws_row / nr - ROWS_OTHER : ROWS_MIN;
}

/* Return the mounts that fit on the terminal. */
static unsigned mounts_of_terminal(void)
{
	struct winsize w;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) < 0 || !w.ws_row)
		return UINT_MAX;
	return MAX(w.ws_row / (ROWS_OTHER + ROWS_MIN), 1u);
}

static void top_print_json(const struct view *before, const struct view *now)
{
	_cleanup_(json_putp) struct json_object *j = view_json(before, now);

	(void)puts(json_object_to_json_string_ext(j, JSON_C_TO_STRING_PLAIN |
							     JSON_C_TO_STRING_NOSLASHESCAPE));
}

/* Print the mounts; nr of them still answer. */
static void top_print(const struct opts *o, const struct watched *all, unsigned nr_all, unsigned nr)
{
	unsigned most = o->live ? mounts_of_terminal() : UINT_MAX, n = 0;
	unsigned rows = o->live ? rows_of_terminal(MIN(nr, most)) : ROWS_DEFAULT;

	/* Move to the top left, print the frame, and clear the rest of the last frame. */
	if (o->live)
		(void)fputs("\033[H\033[J", stdout);
	for (const struct watched *w = all; w < all + nr_all; w++) {
		if (w->ended || n++ >= most)
			continue;
		if (o->json) {
			top_print_json(&w->before, &w->now);
			continue;
		}
		if (n > 1)
			(void)putchar('\n');
		view_print(&w->before, &w->now, rows, shown_width(stdout), stdout);
	}
	if (n > most)
		(void)printf("\nand %u more mounts; 'penstock top DIR' shows one\n", n - most);
	if (!o->json && !o->live && !o->once)
		(void)putchar('\n');
	(void)fflush(stdout);
}

/* Sleep until that time or a signal. */
static void rest(double until)
{
	double left;

	while (!stop_signal && (left = until - now_s()) > 0)
		(void)usleep((useconds_t)(MIN(left, 0.2) * 1e6) + 1);
}

/*
 * Get the metrics of each mount into w->before if @first is set, else into w->now.  If @say_why is
 * set, print at once why a mount does not answer.  Return the number of mounts that answered.  Set
 * *ret_err to the -errno of the last mount that did not answer; pst_error_text() has its sentence.
 */
static unsigned top_ask(struct watched *all, unsigned nr, bool first, bool say_why, int *ret_err)
{
	unsigned left = 0;

	for (struct watched *w = all; w < all + nr; w++) {
		int r = w->ended ? 0 : top_look(&w->place, first ? &w->before : &w->now);

		if (r == 0) {
			left += !w->ended;
			continue;
		}
		if (say_why)
			say("%s", fail_text());
		w->ended = true;
		if (!first)
			view_done(&w->before);
		*ret_err = r;
	}
	return left;
}

/* Return 0; 1 after messages were printed; -errno with a sentence. */
static int top_watch(const struct opts *o, struct watched *all, unsigned nr)
{
	/* Print messages only if they cannot spoil live output; if there is one mount, its error
	 * ends the command. */
	bool say_why = nr > 1 && !o->live;
	int err = 0;
	unsigned left = top_ask(all, nr, true, say_why, &err);
	double at = now_s();

	if (o->live && left) {
		/* Switch to the alternate screen. */
		(void)printf("\033[?1049h\033[HThe first rates come in %g s\n", o->interval);
		(void)fflush(stdout);
	}
	while (left && !ferror(stdout)) {
		at += o->interval;
		rest(at);
		if (stop_signal)
			break;
		left = top_ask(all, nr, false, say_why, &err);
		at = now_s();
		if (left)
			top_print(o, all, nr, left);
		for (struct watched *w = all; w < all + nr; w++)
			if (!w->ended) {
				view_done(&w->before);
				w->before = w->now;
			}
		if (o->once)
			break;
	}
	if (o->live)
		(void)fputs("\033[?1049l", stdout);
	(void)fflush(stdout);
	for (struct watched *w = all; w < all + nr; w++)
		if (!w->ended)
			view_done(&w->before);
	return say_why && err ? 1 : err;
}

/* Watch one socket's mount, or one directory's, or all mounts if neither is given. */
static int watch_places(const struct opts *o, const char *socket, const char *dir)
{
	_cleanup_(freep) struct watched *all = NULL;
	_cleanup_(freep) struct place *places = NULL;
	unsigned nr = 1;
	int r = 0;

	if (!socket && !dir)
		r = place_find_all(&places, &nr);
	if (r < 0)
		return r;
	all = calloc(nr, sizeof(*all));
	if (!all)
		return fail(ENOMEM, "%s", strerror(ENOMEM));
	for (unsigned i = 0; places && i < nr; i++)
		all[i].place = places[i];
	if (socket)
		(void)strcpy(all->place.path, socket);
	else if (dir)
		r = place_find(dir, &all->place);
	return r < 0 ? r : top_watch(o, all, nr);
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
	int opt;

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
	return exit_status(watch_places(&o, path, argv[optind]));
}
