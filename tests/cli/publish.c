/* SPDX-License-Identifier: MIT */
/*
 * publish DIR...: publishes a buffer in each plain directory as programs do, says "ready" and
 * sleeps until it is killed.
 */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "usrbio/proto/plain.h"

static int publish(const char *dir)
{
	char path[USRBIO_SHM_NAME_MAX + sizeof(USRBIO_SHM_DIR)], name[USRBIO_SHM_NAME_MAX];
	char uuid[USRBIO_ID_TEXT];
	uint8_t id[USRBIO_ID_LEN];
	struct usrbio_owner self;
	int iovs, fd;

	if (usrbio_owner_self(&self) < 0 || usrbio_id_new(id) < 0)
		return -1;
	usrbio_owner_shm(&self, id, name);
	usrbio_id_format(id, uuid);
	(void)snprintf(path, sizeof(path), USRBIO_SHM_DIR "%s", name);
	iovs = usrbio_plain_open(dir);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (iovs < 0 || fd < 0 || ftruncate(fd, 4096) < 0)
		return -1;
	return symlinkat(path, iovs, uuid);
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (publish(argv[i]) < 0) {
			perror(argv[i]);
			return 1;
		}
	}
	(void)puts("ready");
	(void)fflush(stdout);
	for (;;)
		(void)pause();
}
