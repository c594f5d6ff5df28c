/* SPDX-License-Identifier: MIT */
#include "net/keys.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/err.h"

#define FILE_MAX MIB(1)

static int check_file(const char *path, int fd, struct stat *st)
{
	if (fstat(fd, st) < 0)
		return err_set(errno, "%s: %s", path, err_name(errno));
	if (!S_ISREG(st->st_mode))
		return err_set(EINVAL, "%s is no regular file; give a file of lines NAME:HEX",
			       path);
	if (st->st_uid != 0 && st->st_uid != geteuid())
		return err_set(EPERM,
			       "the keys in %s belong to user %u; make the file root's or your own",
			       path, (unsigned)st->st_uid);
	/* Allow group read: the mode of a systemd credential shows its ACL as the group's bits. */
	if (st->st_mode & (S_IWGRP | S_IRWXO))
		return err_set(EPERM,
			       "the keys in %s can be %s by others (mode %04o); chmod 600 %s", path,
			       st->st_mode & (S_IWGRP | S_IWOTH) ? "changed" : "read",
			       (unsigned)(st->st_mode & 07777), path);
	if (st->st_size > (off_t)FILE_MAX)
		return err_set(EFBIG, "%s has more than 1 MiB; give a file of lines NAME:HEX",
			       path);
	return 0;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int take_hex(const char *at, size_t n, struct net_key *k)
{
	if (n % 2 || n / 2 < NET_KEY_MIN || n / 2 > NET_KEY_MAX)
		return -EINVAL;
	for (size_t i = 0; i < n; i += 2) {
		int high = hex_digit(at[i]), low = hex_digit(at[i + 1]);

		if (high < 0 || low < 0)
			return -EINVAL;
		k->key[i / 2] = (uint8_t)(high << 4 | low);
	}
	k->len = (unsigned)(n / 2);
	return 0;
}

static int take_line(const char *path, unsigned nr, char *line, struct net_keys *ret)
{
	size_t n = strlen(line), name;
	char *colon = strrchr(line, ':');
	struct net_key *k;

	while (n && (line[n - 1] == '\n' || line[n - 1] == '\r'))
		line[--n] = '\0';
	if (!n)
		return 0;
	name = colon ? (size_t)(colon - line) : 0;
	/* psktool writes names with other bytes as #HEX; those are refused. */
	if (!name || name > NET_KEY_NAME_MAX || line[0] == '#')
		return err_set(EINVAL,
			       "line %u of %s is no key; write NAME:HEX as psktool does, and no "
			       "comments",
			       nr, path);
	if (net_keys_find(ret, line, name))
		return err_set(EINVAL, "line %u of %s has a name that came before; remove one", nr,
			       path);
	if (ret->nr == NET_KEYS_MAX)
		return err_set(E2BIG, "%s has more than %u keys; remove some", path, NET_KEYS_MAX);
	k = &ret->keys[ret->nr];
	memcpy(k->name, line, name);
	k->name[name] = '\0';
	if (take_hex(colon + 1, n - name - 1, k) < 0)
		return err_set(EINVAL,
			       "the key in line %u of %s is not %u to %u bytes in hex; make one "
			       "with psktool, or with openssl rand -hex 32",
			       nr, path, NET_KEY_MIN, NET_KEY_MAX);
	ret->nr++;
	return 0;
}

static int take_lines(const char *path, FILE *f, struct net_keys *ret)
{
	size_t size = 0;
	char *line = NULL;
	unsigned nr = 0;
	int r = 0;

	while (r == 0 && getline(&line, &size, f) >= 0)
		r = take_line(path, ++nr, line, ret);
	if (r == 0 && ferror(f))
		r = err_set(EIO, "%s cannot be read", path);
	if (r == 0 && !ret->nr)
		r = err_set(EINVAL, "%s has no key; write a line NAME:HEX, as psktool does", path);
	if (line)
		explicit_bzero(line, size);
	free(line);
	return r;
}

int net_keys_read(const char *path, struct net_keys *ret)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), r;
	struct net_keys k = { 0 };
	struct stat st;
	FILE *f;

	if (fd < 0)
		return err_set(errno, "the keys in %s cannot be read: %s", path, err_name(errno));
	r = check_file(path, fd, &st);
	f = r == 0 ? fdopen(fd, "r") : NULL;
	if (!f) {
		(void)close(fd);
		return r < 0 ? r : err_set(ENOMEM, "out of memory");
	}
	k.keys = calloc(NET_KEYS_MAX, sizeof(*k.keys));
	r = k.keys ? take_lines(path, f, &k) : err_set(ENOMEM, "out of memory");
	(void)fclose(f);
	if (r < 0)
		net_keys_free(&k);
	else
		*ret = k;
	return r;
}

void net_keys_free(struct net_keys *k)
{
	if (k->keys)
		explicit_bzero(k->keys, NET_KEYS_MAX * sizeof(*k->keys));
	free(k->keys);
	*k = (struct net_keys){ 0 };
}
