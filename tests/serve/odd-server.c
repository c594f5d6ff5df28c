/* SPDX-License-Identifier: MIT */
/*
 * odd-server serve --root DIR --listen ADDRESS [--stall SECONDS] [--keys FILE]: serve as the
 * command does, with workers that are slow or fail as the environment says:
 *
 * READ_MS   milliseconds that each read of a worker takes
 * SEND_MS   milliseconds before each of its sends
 * SEND_FAIL number of the send that fails once, as on a machine without memory; 1 is the first
 */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <penstock.h>

#include "base/err.h"
#include "serve/serve.h"

ssize_t __real_pread64(int fd, void *buf, size_t len, off_t off);
ssize_t __real_send(int fd, const void *buf, size_t len, int flags);
ssize_t __real_sendmsg(int fd, const struct msghdr *m, int flags);
/* Visible, because a sanitizer's library refers to these functions, too. */
#pragma GCC visibility push(default)
ssize_t __wrap_pread64(int fd, void *buf, size_t len, off_t off);
ssize_t __wrap_send(int fd, const void *buf, size_t len, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags);
#pragma GCC visibility pop

static long read_ms, send_ms, send_fail;
static _Thread_local bool is_loop; /* true in the thread that runs the server */

static long number(const char *name)
{
	const char *text = getenv(name);

	return text ? strtol(text, NULL, 10) : 0;
}

static void wait_ms(long ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000 };

	if (ms)
		(void)nanosleep(&t, NULL);
}

/* Return false if this send of a worker fails. */
static bool send_begins(void)
{
	static atomic_long nr;

	if (is_loop)
		return true;
	wait_ms(send_ms);
	errno = ENOMEM;
	return atomic_fetch_add(&nr, 1) + 1 != send_fail;
}

ssize_t __wrap_pread64(int fd, void *buf, size_t len, off_t off)
{
	wait_ms(is_loop ? 0 : read_ms);
	return __real_pread64(fd, buf, len, off);
}

ssize_t __wrap_send(int fd, const void *buf, size_t len, int flags)
{
	return send_begins() ? __real_send(fd, buf, len, flags) : -1;
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags)
{
	return send_begins() ? __real_sendmsg(fd, m, flags) : -1;
}

static void say_line(const char *text)
{
	(void)fprintf(stderr, "%s\n", text);
}

static int fail(const char *what)
{
	(void)fprintf(stderr, "odd-server: %s: %s\n", what, err_text());
	return 1;
}

int main(int argc, char *argv[])
{
	struct serve_opts o = {
		.root = -1,
		.nr_listen = 1,
		.clients = 64,
		.files = 64,
		.requests = 64,
		.threads = 4,
		.memory = MIB(8),
		.stall_s = 30,
		.drain_s = 10,
		.say = say_line,
	};
	struct net_keys keys = { 0 };
	int r;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	is_loop = true;
	read_ms = number("READ_MS");
	send_ms = number("SEND_MS");
	send_fail = number("SEND_FAIL");
	for (int i = 2; i + 1 < argc; i += 2) {
		const char *option = argv[i], *value = argv[i + 1];

		if (!strcmp(option, "--root")) {
			o.root = open(value, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		} else if (!strcmp(option, "--listen")) {
			if (net_addr_find(value, true, &o.listen[0]) < 0)
				return fail(value);
		} else if (!strcmp(option, "--stall")) {
			o.stall_s = (unsigned)strtoul(value, NULL, 10);
		} else if (!strcmp(option, "--keys")) {
			if (net_keys_read(value, &keys) < 0 ||
			    net_tls_load((void *)&pst_error_text, &o.tls) < 0)
				return fail(value);
			o.keys = &keys;
		} else {
			return fail(option);
		}
	}
	r = serve_run(&o);
	net_keys_free(&keys);
	(void)close(o.root);
	return r < 0 ? fail("serve") : 0;
}
