/* SPDX-License-Identifier: MIT */
/*
 * usrbio-with-mount DAEMON CLIENT [ARG...]
 *
 * Mounts a directory by DAEMON, runs CLIENT MOUNTPOINT MOUNTPOINT/file ARG... and ends the daemon.
 * Both programs are in the directory of this one.  Output and status are the client's; the status
 * is 1 too if the daemon did not end well.
 */
#include "mount_rig.h"

int main(int argc, char **argv)
{
	char client[600], name[200];
	struct mount_rig m;
	int status = -1, daemon;
	pid_t pid;

	if (argc < 3) {
		(void)fprintf(stderr, "usage: usrbio-with-mount DAEMON CLIENT [ARG...]\n");
		return 2;
	}
	if (mount_rig_beside(argv[2], client, sizeof(client)) < 0) {
		(void)fprintf(stderr, "usrbio-with-mount: there is no %s\n", argv[2]);
		return 2;
	}
	if (mount_rig_start(&m, argv[1], NULL) < 0) {
		printf("1..0 # SKIP %s\n", m.why);
		return 0;
	}
	(void)snprintf(name, sizeof(name), "%s/file", m.mnt);
	pid = fork();
	if (pid == 0) {
		/*
		 * Replace this program's name and the daemon's; the other arguments are the
		 * client's own.
		 */
		argv[0] = client;
		argv[1] = m.mnt;
		argv[2] = name;
		(void)execv(client, argv);
		_exit(127);
	}
	if (pid > 0)
		(void)waitpid(pid, &status, 0);
	daemon = mount_rig_stop(&m);
	if (daemon)
		printf("# the daemon ended with status %#x\n", (unsigned)daemon);
	return !WIFEXITED(status) || daemon ? 1 : WEXITSTATUS(status);
}
