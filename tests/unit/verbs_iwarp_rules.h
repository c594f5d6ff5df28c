/* SPDX-License-Identifier: MIT */
/*
 * Compare the completions of a program on iWARP with those on the stub, which completes requests
 * as RoCE does.  They must be equal except where one of the rules below allows a difference.
 * docs/RDMA.md (Tests) names the source of each rule.
 */
#ifndef PST_TESTS_VERBS_IWARP_RULES_H
#define PST_TESTS_VERBS_IWARP_RULES_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IWARP_REQUESTS 128u

enum iwarp_rule {
	IWARP_SAME,   /* no difference */
	IWARP_ORDER,  /* programs in which a READ and another request changed their order */
	IWARP_SENT,   /* a WRITE or SEND that the peer refuses, or a later one, succeeded */
	IWARP_CUT,    /* the connection ended before all of the request was sent */
	IWARP_LOST,   /* a READ without its response, when the connection ended, was flushed */
	IWARP_LOCAL,  /* an error in local memory has the status of iWARP */
	IWARP_DEAD,   /* a request posted to a queue pair in the error state never completes */
	IWARP_BUFFER, /* a failed receive has the status of iWARP */
	IWARP_PASSED, /* a SEND after a READ that the peer refuses was received */
	IWARP_TWICE,  /* a READ after the error was flushed twice */
	IWARP_RULES,
	IWARP_WRONG = IWARP_RULES /* a difference that no rule allows */
};

enum iwarp_error { IWARP_NO_ERROR, IWARP_LOCAL_ERROR, IWARP_PEER_ERROR };

/* A work request of a program; its number is the index. */
struct iwarp_request {
	char op;       /* 'w' WRITE, 'r' READ, 's' SEND, 'R' receive; 0: none */
	bool signaled; /* has a completion when it succeeds */
	bool late;     /* posted after the queue pair's failure */
	bool is_short; /* receive: the buffer is too short; else the region does not allow it */
	unsigned chain, len;
	enum iwarp_error error;
};

/* The completions of one side: in order, and by number.  A text is "" without a completion. */
struct iwarp_side {
	unsigned nr, order[IWARP_REQUESTS];
	unsigned twice; /* request that was flushed twice, or IWARP_REQUESTS */
	char of[IWARP_REQUESTS][8];
};

/* Read " 0:w 1:r ..."; return false on other text, and if more than one request completes twice or
 * one that was not flushed. */
static inline bool iwarp_read(const char *text, const char *end, struct iwarp_side *ret)
{
	int len;
	unsigned id;
	char what[8];

	memset(ret, 0, sizeof(*ret));
	ret->twice = IWARP_REQUESTS;
	while (text < end && sscanf(text, " %u:%7[0-9A-Za-z]%n", &id, what, &len) == 2) {
		if (id >= IWARP_REQUESTS || text + len > end)
			return false;
		text += len;
		if (*ret->of[id]) {
			if (ret->twice < IWARP_REQUESTS || strcmp(what, "5") != 0 ||
			    strcmp(ret->of[id], "5") != 0)
				return false;
			ret->twice = id;
			continue;
		}
		strcpy(ret->of[id], what);
		ret->order[ret->nr++] = id;
	}
	return text == end || (*text == ' ' && text + 1 == end);
}

/* Is this the status of a failure? */
static inline bool iwarp_failed(const char *what)
{
	return *what == 'L' || (*what >= '0' && *what <= '9');
}

static inline bool iwarp_eq(const char *a, const char *b)
{
	return strcmp(a, b) == 0;
}

/*
 * Return the rule for a request of side 0.
 * @after: the request has the program's error, or is in the same chain after that request
 * @before: the request is in the same chain before that request
 * @last: no later READ of the program succeeded
 * @cut: sending failed in this program
 */
static inline enum iwarp_rule iwarp_rule(const struct iwarp_request *r, bool after, bool before,
					 bool last, bool cut, const char *stub, const char *got)
{
	const char done[2] = { r->signaled ? r->op : '\0' };
	bool read = r->op == 'r';

	if (r->late && iwarp_failed(stub) && !*got)
		return IWARP_DEAD;
	if (r->late)
		return cut && iwarp_eq(got, "5") ? IWARP_CUT : IWARP_WRONG;
	if (after && !iwarp_failed(stub))
		return IWARP_WRONG;
	if (after && r->error == IWARP_LOCAL_ERROR)
		return iwarp_eq(got, read ? "4" : "2") ? IWARP_LOCAL : IWARP_WRONG;
	if (after && read && iwarp_eq(got, "5"))
		return IWARP_LOST;
	if (after && !read && iwarp_eq(got, done))
		return IWARP_SENT;
	/* The request for a READ is one segment: a READ that causes the end was sent before it. */
	if (after && !(read && r->error) && (iwarp_eq(got, "2") || iwarp_eq(got, "5")))
		return IWARP_CUT;
	if (after)
		return IWARP_WRONG;
	if (iwarp_eq(got, stub))
		return IWARP_SAME;
	if (read && iwarp_eq(got, "5") && (before || (!r->signaled && last)))
		return IWARP_LOST;
	return IWARP_WRONG;
}

/* Compare the order: READs in order, other requests in order. */
static inline enum iwarp_rule iwarp_order(const struct iwarp_request *req,
					  const struct iwarp_side *got)
{
	enum iwarp_rule rule = IWARP_SAME;
	unsigned after[2] = { 0 };

	for (unsigned i = 0; i < got->nr; i++) {
		unsigned id = got->order[i];
		bool read = req[id].op == 'r';

		if (id < after[read])
			return IWARP_WRONG;
		if (id < after[!read])
			rule = IWARP_ORDER;
		after[read] = id + 1;
	}
	return rule;
}

/*
 * Return the rule for a receive of side 1.
 * @send: where to search the next SEND after a refused READ; IWARP_REQUESTS: no READ was refused
 */
static inline enum iwarp_rule iwarp_receive(const struct iwarp_request *req, unsigned id,
					    unsigned *send, const char *stub, const char *got)
{
	unsigned i = *send, chain = i < IWARP_REQUESTS ? req[i].chain : 0;
	char want[8];

	if (iwarp_eq(stub, got))
		return IWARP_SAME;
	if (req[id].error && iwarp_eq(stub, "2"))
		return iwarp_eq(got, req[id].is_short ? "1" : "21") ? IWARP_BUFFER : IWARP_WRONG;
	while (i < IWARP_REQUESTS && req[i].chain == chain && req[i].op != 's')
		i++;
	if (i == IWARP_REQUESTS || req[i].chain != chain)
		return IWARP_WRONG;
	*send = i + 1;
	(void)snprintf(want, sizeof(want), "R%u", req[i].len);
	return iwarp_eq(stub, "5") && iwarp_eq(got, want) ? IWARP_PASSED : IWARP_WRONG;
}

/*
 * Compare the lines of a program, "NUMBER | side 0 | side 1", and add the rules' uses to @uses.
 * Return NULL, or what differs.
 */
static inline const char *iwarp_compare(const struct iwarp_request *req, const char *stub,
					const char *iwarp, unsigned long uses[IWARP_RULES])
{
	static char why[80];
	const char *lines[2] = { stub, iwarp };
	struct iwarp_side side[2][2]; /* [stub, iWARP][side] */
	unsigned wrong = IWARP_REQUESTS, done = 0, send, twice;
	enum iwarp_rule rule;
	bool cut = false;

	for (unsigned i = 0; i < 2; i++) {
		const char *a = strchr(lines[i], '|'), *b = a ? strchr(a + 1, '|') : NULL;

		if (!b || !iwarp_read(a + 1, b, &side[i][0]) ||
		    !iwarp_read(b + 1, b + strlen(b), &side[i][1]))
			return "a line without two sides, or with a request that completes twice";
	}
	for (unsigned id = IWARP_REQUESTS; id-- > 0;) {
		if (req[id].error && req[id].op != 'R')
			wrong = id;
		cut |= iwarp_eq(side[1][0].of[id], "2");
		if (!done && iwarp_eq(side[1][0].of[id], "r"))
			done = id + 1;
	}
	send = wrong < IWARP_REQUESTS && req[wrong].op == 'r' &&
			       req[wrong].error == IWARP_PEER_ERROR
		       ? wrong
		       : IWARP_REQUESTS;
	for (unsigned id = 0; id < IWARP_REQUESTS; id++) {
		bool chain = wrong < IWARP_REQUESTS && req[id].chain == req[wrong].chain;
		const char *want = side[0][req[id].op == 'R'].of[id];
		const char *got = side[1][req[id].op == 'R'].of[id];

		rule = req[id].op == 'R'
			       ? iwarp_receive(req, id, &send, want, got)
			       : iwarp_rule(&req[id], chain && id >= wrong, chain && id < wrong,
					    id >= done, cut, want, got);
		if (rule == IWARP_WRONG || *side[1][req[id].op != 'R'].of[id] ||
		    (!req[id].op && (*want || *got))) {
			(void)snprintf(why, sizeof(why), "request %u", id);
			return why;
		}
		uses[rule] += req[id].op != '\0';
	}
	twice = side[1][0].twice;
	if (twice < IWARP_REQUESTS) {
		if (wrong == IWARP_REQUESTS || twice <= wrong || req[twice].op != 'r' ||
		    req[twice].chain != req[wrong].chain)
			return "a request that completes twice";
		uses[IWARP_TWICE]++;
	}
	if (side[0][0].twice < IWARP_REQUESTS || side[0][1].twice < IWARP_REQUESTS ||
	    side[1][1].twice < IWARP_REQUESTS)
		return "a request that completes twice";
	rule = iwarp_order(req, &side[1][0]);
	if (rule == IWARP_WRONG)
		return "the order of side 0";
	uses[IWARP_ORDER] += rule == IWARP_ORDER;
	for (unsigned i = 0; i < side[1][1].nr; i++)
		if (side[1][1].order[i] != side[0][1].order[i])
			return "the order of side 1";
	return NULL;
}

#endif
