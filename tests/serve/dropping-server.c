/* SPDX-License-Identifier: MIT */
/*
 * dropping-server ROOT PORT COPY [KEYS]: serve ROOT at a port of 127.0.0.1.  At each sync, write
 * the durable bytes of the synced file to the file COPY.  After killing the server, a test can
 * restore the file to what a power loss would have left.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include <penstock.h>

#include "base/err.h"
#include "serve/serve.h"

int __real_fsync(int fd);
int __real_fdatasync(int fd);
int __wrap_fsync(int fd);
int __wrap_fdatasync(int fd);

static const char *copy_path;

static void must(bool good, const char *what)
{
	if (good)
		return;
	(void)fprintf(stderr, "dropping-server: %s: %s\n", what, strerror(errno));
	_exit(1);
}

static void keep(int fd)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	char temp[4200], *bytes;
	struct stat st;
	int to;

	(void)pthread_mutex_lock(&lock);
	must(fstat(fd, &st) == 0, "fstat");
	bytes = malloc((size_t)st.st_size + 1);
	must(bytes && pread(fd, bytes, (size_t)st.st_size, 0) == st.st_size, "pread");
	(void)snprintf(temp, sizeof(temp), "%s.new", copy_path);
	to = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	must(to >= 0 && write(to, bytes, (size_t)st.st_size) == st.st_size, temp);
	(void)close(to);
	must(rename(temp, copy_path) == 0, copy_path);
	free(bytes);
	(void)pthread_mutex_unlock(&lock);
}

int __wrap_fsync(int fd)
{
	int r = __real_fsync(fd);

	if (r == 0)
		keep(fd);
	return r;
}

int __wrap_fdatasync(int fd)
{
	int r = __real_fdatasync(fd);

	if (r == 0)
		keep(fd);
	return r;
}

static void say_line(const char *text)
{
	(void)fprintf(stderr, "%s\n", text);
}

int main(int argc, char *argv[])
{
	struct serve_opts o = {
		.nr_listen = 1,
		.write = true,
		.clients = 64,
		.files = 64,
		.requests = 64,
		.threads = 4,
		.memory = MIB(8),
		.stall_s = 30,
		.drain_s = 10,
		.say = say_line,
	};
	struct net_keys keys;
	char at[64];

	if (argc < 4)
		return 2;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	copy_path = argv[3];
	o.root = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	must(o.root >= 0, argv[1]);
	(void)snprintf(at, sizeof(at), "127.0.0.1:%s", argv[2]);
	if (net_addr_find(at, true, &o.listen[0]) < 0 ||
	    (argv[4] && (net_keys_read(argv[4], &keys) < 0 ||
			 net_tls_load((void *)&pst_error_text, &o.tls) < 0)) ||
	    ((o.keys = &keys), serve_run(&o)) < 0) {
		(void)fprintf(stderr, "dropping-server: %s\n", err_text());
		return 1;
	}
	return 0;
}
