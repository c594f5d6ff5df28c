/* SPDX-License-Identifier: MIT */
/*
 * The other process in tests of peers: this program started again, which listens and executes
 * commands sent as messages.  It answers each command with a message that begins with the result.
 */
#ifndef PST_TESTS_AGENT_H
#define PST_TESTS_AGENT_H

#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "rig.h"

enum agent_do {
	AGENT_SHARE,   /* share off..len of its memory with rights and flags; the answer has the
		        * key */
	AGENT_CLOSE,   /* close the share with number at, after off microseconds */
	AGENT_DUMP,    /* answer, then send off..len of its memory as a message */
	AGENT_RECEIVE, /* receive a message into its memory at off, then answer */
	AGENT_SUM,     /* the answer has agent_sum() of off..len of its memory */
	AGENT_QUIT,
};

struct agent_ask {
	uint32_t what, rights, flags, at;
	uint64_t off, len;
};

struct agent_answer {
	int64_t res;
	uint32_t key_len;
	uint8_t key[PST_KEY_MAX];
};

#define AGENT_LEN (RIG_MIB(4) + 12345)
#define AGENT_SHARES 8

static struct {
	pid_t pid;
	int stdout_fd;
	struct pst_peer *peer;
} agent;

/* Return PST_TEST_AGENT: the address of an agent on another machine, which restarts after each
 * connection.  The agent itself also has the variable. */
static inline const char *agent_elsewhere(void)
{
	return getenv("PST_TEST_AGENT");
}

/* ---------------------------------------------------------------- the agent */

static int (*agent_check)(void); /* returns the agent's exit status */
static struct pst_share *agent_shares[AGENT_SHARES];

static int64_t agent_share(struct pst_peer *p, struct pst_mem *m, const struct agent_ask *q,
			   struct agent_answer *a)
{
	int r = pst_peer_share(p, m, q->off, q->len, q->rights, q->flags, &agent_shares[q->at]);

	if (r == 0)
		r = pst_share_pack(agent_shares[q->at], a->key, sizeof(a->key));
	if (r < 0)
		return r;
	a->key_len = (uint32_t)r;
	return 0;
}

static int64_t agent_close(uint32_t at)
{
	int r = pst_share_close(agent_shares[at], t_hang());

	if (r == 0)
		agent_shares[at] = NULL;
	return r;
}

/* Sum the bytes without using the tested path. */
static int64_t agent_sum(struct pst_mem *m, uint64_t off, uint64_t len)
{
	uint8_t *buf = malloc(len);
	uint64_t sum = 1469598103934665603u;

	if (!buf || pst_mem_copy_out(m, off, buf, len) < 0)
		abort();
	for (uint64_t i = 0; i < len; i++)
		sum = (sum ^ buf[i]) * 1099511628211u;
	free(buf);
	return (int64_t)(sum >> 1);
}

static int64_t agent_act(struct pst_peer *p, struct pst_mem *m, const struct agent_ask *q,
			 struct agent_answer *a)
{
	switch (q->what) {
	case AGENT_SHARE:
		return agent_share(p, m, q, a);
	case AGENT_CLOSE:
		(void)usleep((useconds_t)q->off);
		return agent_close(q->at);
	case AGENT_RECEIVE:
		return pst_peer_recv(p, m, q->off, q->len, t_hang());
	case AGENT_SUM:
		return agent_sum(m, q->off, q->len);
	default:
		return 0;
	}
}

/* Execute commands.  Return 0 when asked to end, or when the connection has ended. */
static void agent_serve(struct pst_peer *p, struct pst_mem *m)
{
	struct agent_ask q;

	while (pst_peer_recv(p, NULL, (uintptr_t)&q, sizeof(q), PST_NO_DEADLINE) == sizeof(q)) {
		struct agent_answer a = { 0 };

		a.res = agent_act(p, m, &q, &a);
		(void)pst_peer_send(p, NULL, (uintptr_t)&a, sizeof(a), 0, t_hang());
		if (q.what == AGENT_DUMP)
			(void)pst_peer_send(p, m, q.off, q.len, q.flags, t_hang());
		if (q.what == AGENT_QUIT)
			return;
	}
}

/* Run the agent: --agent ADDR DEVICE [KEYS]. */
static inline int agent_main(int argc, char **argv)
{
	struct pst_peer_opts o = { .sz = sizeof(o),
				   .flags = agent_elsewhere() ? PST_PEER_PLAIN : 0,
				   .keys = argc > 4 ? argv[4] : NULL };
	struct pst_listener *l;
	struct pst_peer *p;
	struct pst_mem *m;
	struct pst_mem_opts mo = { .sz = sizeof(mo), .flags = PST_MEM_SHARED };
	char text[256];

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (pst_listener_open(argv[2], &o, &l) < 0 ||
	    pst_mem_alloc(argv[3], AGENT_LEN, &mo, &m) < 0) {
		printf("! %s\n", pst_error_text());
		(void)fflush(stdout);
		return 1;
	}
	printf("%s\n", pst_listener_address(l, text, sizeof(text)));
	(void)fflush(stdout);
	if (pst_listener_accept(l, t_hang(), &p) < 0)
		return 2;
	agent_serve(p, m);
	for (unsigned i = 0; i < AGENT_SHARES; i++)
		if (agent_shares[i])
			(void)pst_share_close(agent_shares[i], t_hang());
	(void)pst_peer_close(p);
	(void)pst_listener_close(l);
	(void)pst_mem_free(m);
	return agent_check ? agent_check() : 0;
}

/* ----------------------------------------------------------------- the test */

static inline void agent_end(int status)
{
	int is = -1;

	agent.peer = pst_peer_close(agent.peer);
	if (agent.pid <= 0)
		return;
	T_EQ(waitpid(agent.pid, &is, 0), agent.pid);
	agent.pid = 0;
	(void)close(agent.stdout_fd);
	T_EQ(is, status);
}

/* Start the agent and connect to it. */
static inline void agent_start(const char *addr, const char *device, const char *keys)
{
	struct pst_peer_opts o = { .sz = sizeof(o), .keys = keys };
	uint64_t until = t_hang();
	int r = -EAGAIN;
	char text[256] = "", *args[] = { (char *)"test-peer", (char *)"--agent", (char *)addr,
					 (char *)device,      (char *)keys,      NULL };
	size_t got = 0;
	int out[2];

	if (agent_elsewhere()) {
		o.flags = PST_PEER_PLAIN;
		/* Close the connection of a failed case: the agent serves one at a time. */
		agent.peer = pst_peer_close(agent.peer);
		while (r < 0 && t_now() < until) {
			r = pst_peer_connect(agent_elsewhere(), &o, until, &agent.peer);
			if (r < 0)
				(void)usleep(100000);
		}
		T_OK(r);
		return;
	}
	/* Kill the agent of a failed case. */
	if (agent.pid > 0) {
		(void)kill(agent.pid, SIGKILL);
		(void)waitpid(agent.pid, NULL, 0);
		agent.pid = 0;
	}
	T_EQ(pipe2(out, O_CLOEXEC), 0);
	agent.pid = fork();
	T_CHECK(agent.pid >= 0);
	if (agent.pid == 0) {
		(void)dup2(out[1], 1);
		(void)execv("/proc/self/exe", args);
		_exit(127);
	}
	(void)close(out[1]);
	agent.stdout_fd = out[0];
	while (!strchr(text, '\n')) {
		ssize_t n = read(out[0], text + got, sizeof(text) - 1 - got);

		T_CHECK(n > 0);
		got += (size_t)n;
	}
	*strchr(text, '\n') = '\0';
	T_CHECK(text[0] != '!');
	T_OK(pst_peer_connect(text, &o, t_hang(), &agent.peer));
}

static inline void agent_tell(const struct agent_ask *q)
{
	T_OK(pst_peer_send(agent.peer, NULL, (uintptr_t)q, sizeof(*q), 0, t_hang()));
}

static inline struct agent_answer agent_hear(void)
{
	struct agent_answer a;

	T_EQ(pst_peer_recv(agent.peer, NULL, (uintptr_t)&a, sizeof(a), t_hang()), sizeof(a));
	return a;
}

static inline struct agent_answer agent_ask(struct agent_ask q)
{
	agent_tell(&q);
	return agent_hear();
}

/* Let the agent share memory as share number at. */
static inline struct agent_answer agent_shares_it(uint32_t at, uint64_t off, uint64_t len,
						  uint32_t rights, uint32_t flags)
{
	struct agent_answer a = agent_ask((struct agent_ask){ .what = AGENT_SHARE,
							      .at = at,
							      .off = off,
							      .len = len,
							      .rights = rights,
							      .flags = flags });

	T_EQ(a.res, 0);
	return a;
}

static inline struct pst_file *agent_open(const struct agent_answer *a, uint32_t flags)
{
	struct pst_file *f;

	T_OK(pst_peer_open(agent.peer, a->key, a->key_len, flags, t_hang(), &f));
	return f;
}

#endif
