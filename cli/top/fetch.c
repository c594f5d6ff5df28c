/* SPDX-License-Identifier: MIT */
#include "cli/top/fetch.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

#include "tools/common/shown.h"
#include "tools/common/util.h"
#include "usrbio/proto/ioctl.h"
#include "usrbio/proto/place.h"

#define ANSWER_S 10
#define TEXT_MAX MIB(128)

/* ------------------------------------------------------------------- mounts */

/* Decode mountinfo's escapes, such as \040 for a blank. */
static void fetch_decode(char *s)
{
	char *to = s;

	for (; *s; s++, to++) {
		unsigned c;

		if (s[0] == '\\' && sscanf(s + 1, "%3o", &c) == 1) {
			*to = (char)c;
			s += 3;
		} else {
			*to = *s;
		}
	}
	*to = '\0';
}

/* Parse a mountinfo line of our file system type: the mount point, and the owner of its server. */
static bool read_mount(const char *line, struct place *ret)
{
	const char *type = strstr(line, " - "), *user;

	*ret = (struct place){ 0 };
	if (!type || strncmp(type + 3, USRBIO_FSTYPE " ", sizeof(USRBIO_FSTYPE)) != 0 ||
	    sscanf(line, "%*d %*d %*s %*s %4095s", ret->dir) != 1)
		return false;
	fetch_decode(ret->dir);
	user = strstr(type, "user_id=");
	return user && sscanf(user, "user_id=%u", &ret->owner) == 1;
}

static int place_path(struct place *p)
{
	char name[USRBIO_PLACE_NAME], dir[PATH_MAX - USRBIO_PLACE_NAME];
	int r = usrbio_place_dir(p->owner, dir, sizeof(dir));

	if (r < 0)
		return fail(r, "the folder of the sockets has too long a name: %s", strerror(-r));
	usrbio_place_name(p->dir, name);
	(void)snprintf(p->path, sizeof(p->path), "%s/%s", dir, name);
	return 0;
}

/* Return true if the socket exists, or if we may not see it.  3FS's mounts have the same file
 * system type, but no socket. */
static bool has_socket(struct place *p)
{
	struct stat st;

	return place_path(p) == 0 && (lstat(p->path, &st) == 0 || errno == EACCES);
}

/* Take the last mount at that path, which covers earlier ones. */
int place_find(const char *given, struct place *ret)
{
	_cleanup_(fclosep) FILE *f = fopen("/proc/self/mountinfo", "re");
	_cleanup_(freep) char *line = NULL;
	char dir[PATH_MAX];
	bool found = false;
	struct place p;
	size_t size = 0;

	if (!realpath(given, dir)) {
		if (errno == ENOTCONN || errno == ECONNABORTED)
			return fail(errno,
				    "%s: its server has ended; 'penstock umount %s' tidies up",
				    given, given);
		return fail(errno, "%s: %s", given, strerror(errno));
	}
	while (f && getline(&line, &size, f) > 0)
		if (read_mount(line, &p) && !strcmp(p.dir, dir)) {
			*ret = p;
			found = true;
		}
	if (!found)
		return fail(ENOENT,
			    "%s is no mount of 'penstock mount --source': give the directory that "
			    "it was mounted at",
			    dir);
	return place_path(ret);
}

/* Mounts found so far. */
struct found {
	struct place *places;
	unsigned nr;
	unsigned nr_hidden;    /* mounts whose metrics this user may not read */
	char hidden[PATH_MAX]; /* mount point of the last hidden one */
};

static bool is_known(const struct found *f, const struct place *p)
{
	/* A later mount at the same path covers an earlier one. */
	for (unsigned i = 0; i < f->nr; i++)
		if (!strcmp(f->places[i].dir, p->dir))
			return true;
	return false;
}

static int fetch_add(struct found *f, const struct place *p)
{
	struct place *more;

	if (is_known(f, p))
		return 0;
	if (geteuid() != 0 && geteuid() != p->owner) {
		(void)strcpy(f->hidden, p->dir);
		f->nr_hidden++;
		return 0;
	}
	more = realloc(f->places, (f->nr + 1) * sizeof(*more));
	if (!more)
		return fail(ENOMEM, "%s", strerror(ENOMEM));
	f->places = more;
	f->places[f->nr++] = *p;
	return 0;
}

int place_find_all(struct place **ret, unsigned *ret_nr)
{
	_cleanup_(fclosep) FILE *file = fopen("/proc/self/mountinfo", "re");
	_cleanup_(freep) char *line = NULL;
	struct found f = { 0 };
	struct place p;
	size_t size = 0;
	int r = 0;

	while (r == 0 && file && getline(&line, &size, file) > 0)
		if (read_mount(line, &p) && has_socket(&p))
			r = fetch_add(&f, &p);
	if (r == 0 && f.nr) {
		*ret = f.places;
		*ret_nr = f.nr;
		return 0;
	}
	free(f.places);
	if (r < 0)
		return r;
	if (f.nr_hidden)
		return fail(EACCES,
			    "the numbers of %s%s are for who mounted it, and for root: run it "
			    "as one of them",
			    f.hidden, f.nr_hidden > 1 ? " and other mounts" : "");
	return fail(ENOENT, "there is no mount here that tells numbers: 'penstock mount DIR "
			    "--source SOURCE' makes one");
}

/* ------------------------------------------------------------------- socket */

static struct text owner_text(const struct place *p)
{
	const struct passwd *pw = getpwuid(p->owner);
	struct text t;

	if (pw)
		shown(t.s, sizeof(t.s), pw->pw_name);
	else
		(void)snprintf(t.s, sizeof(t.s), "%u", p->owner);
	return t;
}

static int fail_socket(const struct place *p, int err)
{
	const char *what = *p->dir ? p->dir : p->path;

	if (!*p->dir && (err == ENOENT || err == ENOTDIR))
		return fail(err, "%s: %s", p->path, strerror(err));
	switch (err) {
	case ENOENT:
	case ENOTDIR:
		return fail(
			err,
			"%s tells no numbers at %s: it was started with --metrics none, or with "
			"another path, which 'penstock top --metrics PATH' takes",
			what, p->path);
	case EACCES:
	case EPERM:
		if (!*p->dir)
			return fail(err, "%s: %s; it is for its owner and root", what,
				    strerror(err));
		return fail(err, "the numbers of %s are for %s%s: run it as %s", what,
			    owner_text(p).s, p->owner ? " and root" : "",
			    p->owner ? "one of them" : "root");
	case ECONNREFUSED:
		return fail(err, "the server of %s has ended%s%s", what,
			    *p->dir ? "; 'penstock umount' tidies up: " : "", p->dir);
	case EAGAIN:
		return fail(err, "the server of %s does not answer", what);
	default:
		return fail(err, "%s: %s", p->path, strerror(err));
	}
}

static int dial_address(const struct sockaddr *a, int len)
{
	const struct timeval timeout = { .tv_sec = ANSWER_S };
	_cleanup_(closep) int fd = socket(a->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout)) < 0 ||
	    connect(fd, a, (socklen_t)len) < 0)
		return -errno;
	return TAKE_FD(fd);
}

/* Connect relative to the folder's descriptor, because paths may be longer than socket
 * addresses. */
static int dial(const struct place *p)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	_cleanup_(closep) int dir = -1;
	struct sockaddr_storage port;
	int len = usrbio_place_tcp(p->path, &port);
	char folder[PATH_MAX], *name;

	if (len)
		return len < 0 ? len : dial_address((const struct sockaddr *)&port, len);
	(void)snprintf(folder, sizeof(folder), "%s", p->path);
	name = strrchr(folder, '/');
	if (!name)
		return -EINVAL;
	*name++ = '\0';
	dir = open(*folder ? folder : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return -errno;
	if ((size_t)snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/%s", dir, name) >=
	    sizeof(a.sun_path))
		return -ENAMETOOLONG;
	return dial_address((const struct sockaddr *)&a, sizeof(a));
}

/* Read everything, and append a NUL. */
static int fetch_take_all(int fd, char **ret, size_t *ret_len)
{
	_cleanup_(freep) char *buf = NULL;
	size_t have = 0, size = 0;
	ssize_t n;

	for (;;) {
		if (size - have < 2) {
			char *more;

			size = size ? 2 * size : KIB(64);
			if (size > TEXT_MAX)
				return -EFBIG;
			more = realloc(buf, size);
			if (!more)
				return -ENOMEM;
			buf = more;
		}
		n = recv(fd, buf + have, size - have - 1, 0);
		if (n <= 0)
			break;
		have += (size_t)n;
	}
	if (n < 0)
		return -errno;
	buf[have] = '\0';
	*ret = TAKE_PTR(buf);
	*ret_len = have;
	return 0;
}

int place_ask(const struct place *p, char **ret, size_t *ret_len)
{
	static const char ask[] = "GET /metrics HTTP/1.1\r\nHost: penstock\r\n\r\n";
	_cleanup_(freep) char *text = NULL;
	_cleanup_(closep) int fd = dial(p);
	unsigned status;
	size_t len = 0, at;
	char *body;
	int r = fd;

	if (r >= 0 && send(fd, ask, sizeof(ask) - 1, MSG_NOSIGNAL) != sizeof(ask) - 1)
		r = errno ? -errno : -EIO;
	if (r >= 0)
		r = fetch_take_all(fd, &text, &len);
	if (r < 0)
		return fail_socket(p, -r);
	body = strstr(text, "\r\n\r\n");
	if (sscanf(text, "HTTP/1.1 %3u", &status) != 1 || !body)
		return fail(EPROTO, "%s does not answer as the server of a mount", p->path);
	if (status != 200)
		return fail(EIO, "%s answers with status %u", p->path, status);
	at = (size_t)(body - text) + 4;
	memmove(text, text + at, len - at + 1);
	*ret = TAKE_PTR(text);
	*ret_len = len - at;
	return 0;
}
