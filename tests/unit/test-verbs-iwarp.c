/* SPDX-License-Identifier: MIT */
/* The rules by which test-verbs-programs.c compares iWARP devices with the stub of libibverbs. */
#include "base/base.h"

#include "t.h"
#include "verbs_iwarp_rules.h"

static void check(const struct iwarp_request *req, const char *stub, const char *iwarp,
		  enum iwarp_rule rule)
{
	unsigned long uses[IWARP_RULES] = { 0 };
	const char *why = iwarp_compare(req, stub, iwarp, uses);

	if (rule == IWARP_WRONG && !why)
		T_FAIL("\"%s\" is allowed", iwarp);
	if (rule != IWARP_WRONG && why)
		T_FAIL("\"%s\" is refused: %s", iwarp, why);
	if (rule != IWARP_WRONG && !uses[rule])
		T_FAIL("\"%s\" has not used rule %d", iwarp, (int)rule);
}

/* A chain of a READ, a WRITE with a key that the peer refuses, a WRITE and a READ; then a WRITE
 * that is posted late. */
static void refused_write(void)
{
	static const struct iwarp_request req[IWARP_REQUESTS] = {
		{ .op = 'r', .signaled = true, .chain = 1 },
		{ .op = 'w', .signaled = true, .chain = 1, .error = IWARP_PEER_ERROR },
		{ .op = 'w', .signaled = true, .chain = 1 },
		{ .op = 'r', .signaled = true, .chain = 1 },
		{ .op = 'w', .signaled = true, .chain = 2, .late = true },
		{ .op = 'R' },
	};
	static const struct {
		const char *iwarp;
		enum iwarp_rule rule;
	} cases[] = {
		{ "0 | 0:r 1:w 2:w 3:5 | 5:5", IWARP_SENT },
		{ "0 | 0:r 1:w 2:w 3:5 | 5:5", IWARP_DEAD },
		{ "0 | 1:w 0:r 2:5 3:5 | 5:5", IWARP_ORDER },
		{ "0 | 1:w 2:w 0:5 3:5 | 5:5", IWARP_LOST },
		{ "0 | 0:r 1:2 3:5 2:5 | 5:5", IWARP_CUT },
		{ "0 | 0:r 1:2 3:5 3:5 2:5 | 5:5", IWARP_TWICE },
		{ "0 | 0:r 1:2 3:5 2:5 4:5 | 5:5", IWARP_CUT },
		/* A READ after the error succeeds. */
		{ "0 | 0:r 1:w 2:w 3:r | 5:5", IWARP_WRONG },
		/* A request has no completion. */
		{ "0 | 0:r 1:w 2:w | 5:5", IWARP_WRONG },
		/* A late request completes. */
		{ "0 | 0:r 1:w 2:w 3:5 4:5 | 5:5", IWARP_WRONG },
		/* WRITEs, and READs, complete in another order. */
		{ "0 | 0:r 2:w 1:w 3:5 | 5:5", IWARP_WRONG },
		{ "0 | 3:5 0:5 1:w 2:w | 5:5", IWARP_WRONG },
		/* iWARP has no such status for a WRITE. */
		{ "0 | 0:r 1:10 2:5 3:5 | 5:5", IWARP_WRONG },
		/* A WRITE succeeds twice or is flushed twice; a READ before the error, too. */
		{ "0 | 0:r 1:w 1:w 2:w 3:5 | 5:5", IWARP_WRONG },
		{ "0 | 0:r 1:5 1:5 2:5 3:5 | 5:5", IWARP_WRONG },
		{ "0 | 0:5 0:5 1:w 2:w 3:5 | 5:5", IWARP_WRONG },
		/* A message is received that nobody sent. */
		{ "0 | 0:r 1:w 2:w 3:5 | 5:R9", IWARP_WRONG },
		/* A receive has no completion. */
		{ "0 | 0:r 1:w 2:w 3:5 |", IWARP_WRONG },
		/* A request completes that was not posted. */
		{ "0 | 0:r 1:w 2:w 3:5 9:w | 5:5", IWARP_WRONG },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++)
		check(req, "0 | 0:r 1:10 2:5 3:5 4:5 | 5:5", cases[i].iwarp, cases[i].rule);
}

/* A chain of a READ with a key that the peer refuses, and a SEND of 7 bytes. */
static void refused_read(void)
{
	static const struct iwarp_request req[IWARP_REQUESTS] = {
		{ .op = 'R' },
		{ .op = 'R' },
		{ .op = 'r', .chain = 1, .error = IWARP_PEER_ERROR },
		{ .op = 's', .signaled = true, .chain = 1, .len = 7 },
	};
	static const char *const stub = "0 | 2:10 3:5 | 0:5 1:5";

	check(req, stub, "0 | 2:5 3:5 | 0:5 1:5", IWARP_LOST);
	check(req, stub, "0 | 3:s 2:5 | 0:R7 1:5", IWARP_PASSED);
	/* The message has another length, or is received twice. */
	check(req, stub, "0 | 3:s 2:5 | 0:R8 1:5", IWARP_WRONG);
	check(req, stub, "0 | 3:s 2:5 | 0:R7 1:R7", IWARP_WRONG);
	/* The READ succeeds, without and with a completion, or was not sent. */
	check(req, stub, "0 | 3:s | 0:5 1:5", IWARP_WRONG);
	check(req, stub, "0 | 2:r 3:s | 0:5 1:5", IWARP_WRONG);
	check(req, stub, "0 | 2:2 3:s | 0:5 1:5", IWARP_WRONG);
}

/* Errors in local memory, and in the buffer of a receive. */
static void local_errors(void)
{
	static const struct iwarp_request write[IWARP_REQUESTS] = {
		{ .op = 'w', .signaled = true, .chain = 1, .error = IWARP_LOCAL_ERROR },
	};
	static const struct iwarp_request read[IWARP_REQUESTS] = {
		{ .op = 'r', .signaled = true, .chain = 1, .error = IWARP_LOCAL_ERROR },
	};
	static const struct iwarp_request message[IWARP_REQUESTS] = {
		{ .op = 'R', .is_short = true, .error = IWARP_LOCAL_ERROR },
		{ .op = 's', .signaled = true, .chain = 1, .error = IWARP_PEER_ERROR },
	};

	check(write, "0 | 0:L |", "0 | 0:2 |", IWARP_LOCAL);
	check(read, "0 | 0:L |", "0 | 0:4 |", IWARP_LOCAL);
	check(write, "0 | 0:L |", "0 | 0:w |", IWARP_WRONG);
	check(read, "0 | 0:L |", "0 | 0:5 |", IWARP_WRONG);
	check(message, "0 | 1:11 | 0:2", "0 | 1:s | 0:1", IWARP_BUFFER);
	check(message, "0 | 1:11 | 0:2", "0 | 1:s | 0:21", IWARP_WRONG);
	check(message, "0 | 1:11 | 0:2", "0 | 1:s | 0:5", IWARP_WRONG);
}

int main(void)
{
	T_RUN(refused_write);
	T_RUN(refused_read);
	T_RUN(local_errors);
	return t_done();
}
