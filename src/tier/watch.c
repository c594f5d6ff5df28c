/* SPDX-License-Identifier: MIT */
#include "tier/watch.h"

#include <fcntl.h>
#include <sys/fanotify.h>

/* Preferred: events with file handles, which need no privilege.  Else events with descriptors,
 * which every file system supports. */
static const unsigned ways[] = { FAN_REPORT_FID, 0 };

int watch_begin(int fd)
{
	int watch = -EINVAL, err;

	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		watch = fanotify_init(FAN_CLASS_NOTIF | FAN_CLOEXEC | FAN_NONBLOCK | ways[i],
				      O_RDONLY | O_CLOEXEC);
		if (watch < 0)
			return -errno;
		if (fanotify_mark(watch, FAN_MARK_ADD, FAN_MODIFY, fd, NULL) == 0)
			return watch;
		err = -errno;
		(void)close(watch);
		watch = err;
	}
	return watch;
}

bool watch_written(int watch)
{
	char buf[4096] __attribute__((aligned(8)));
	ssize_t n = watch < 0 ? -1 : read(watch, buf, sizeof(buf));
	const struct fanotify_event_metadata *e = (const void *)buf;
	size_t left = n > 0 ? (size_t)n : 0;

	for (; FAN_EVENT_OK(e, (long)left); e = FAN_EVENT_NEXT(e, left))
		if (e->fd >= 0)
			(void)close(e->fd);
	/* An event whose file cannot be opened is lost, but still means a write. */
	return n > 0 || (watch >= 0 && n < 0 && errno != EAGAIN && errno != EINTR);
}
