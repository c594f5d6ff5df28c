/* SPDX-License-Identifier: MIT */
/*
 * mover SET [SEED]: move random files of a set to random classes without pause, until SIGTERM; then
 * print how many moves were done and refused.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "tier/move.h"
#include "tier/set.h"

#define NAMES_MAX 4096u

static volatile sig_atomic_t ends;

struct names {
	unsigned nr;
	char name[NAMES_MAX][TIER_NAME_SIZE];
};

static void end(int signal)
{
	(void)signal;
	ends = 1;
}

static int add_name(const struct tier_file *f, void *arg)
{
	struct names *n = arg;

	if (n->nr < NAMES_MAX)
		memcpy(n->name[n->nr++], f->name, TIER_NAME_SIZE);
	return 0;
}

/* Return true if a move of a random file was done. */
static bool move_some(struct tier_set *set, struct names *n)
{
	struct move_done done = { 0 };
	int r, root;

	n->nr = 0;
	r = catalog_each(set->catalog, add_name, n);
	if (r < 0 || !n->nr)
		return false;
	root = move_target(set, (enum tier_class)(rand() % TIER_DISK_CLASSES), 0);
	if (root < 0)
		return false;
	r = move_file(set, n->name[(unsigned)rand() % n->nr], (unsigned)root, &done);
	/* A move must never fail because of the journal. */
	if (r == -EALREADY || r == -EUCLEAN || r == -EIO) {
		(void)fprintf(stderr, "mover: %s\n", err_text());
		exit(1);
	}
	return r == 0 && done.ns;
}

int main(int argc, char *argv[])
{
	struct sigaction act = { .sa_handler = end };
	struct names *names = malloc(sizeof(*names));
	unsigned long moved = 0, tried = 0;
	struct tier_set *set;
	int r;

	if (argc < 2 || !names) {
		(void)fprintf(stderr, "usage: mover SET [SEED]\n");
		return 2;
	}
	srand(argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 1);
	(void)sigaction(SIGTERM, &act, NULL);
	r = set_open(argv[1], &set);
	if (r == 0)
		r = set_lock(set);
	if (r < 0) {
		(void)fprintf(stderr, "mover: %s\n", err_text());
		return 1;
	}
	for (; !ends; tried++)
		moved += move_some(set, names);
	(void)set_close(set);
	free(names);
	(void)printf("%lu %lu\n", moved, tried - moved);
	return 0;
}
