/* SPDX-License-Identifier: MIT */
/* Operations on attributes, and operations that change nothing. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "bytes.h"
#include "model.h"

/* Pick a path and find where it leads, with or without following links.  Return false to leave
 * the operation out. */
static bool somewhere(char path[TREE_PATH], bool follow, struct place *at, int *ret_error)
{
	some_path(true, path);
	*ret_error = tree_walk(path, follow, at);
	if (!*ret_error && !at->node)
		*ret_error = ENOENT;
	return *ret_error != TREE_OUTSIDE;
}

/* -------------------------------------------------------- mode and times */

/* Pick a mode that lets the owner read and write, so that users other than root can run this. */
static mode_t some_mode(const struct node *node)
{
	return node->kind == NODE_DIR ? 0700 | (mode_t)below(0100) : 0600 | (mode_t)below(0200);
}

void deed_chmod(void)
{
	char path[TREE_PATH];
	struct place at;
	mode_t mode;
	int r;

	if (!somewhere(path, true, &at, &r))
		return;
	mode = r ? 0700 : some_mode(at.node);
	deed_is("chmod %s to 0%o", path, mode);
	if (ended(chmod(full(model.view, path), mode), r))
		at.node->mode = mode;
}

void deed_utimens(void)
{
	struct timespec t[2] = { { (time_t)below(2000000000), (long)below(1000000000) },
				 { (time_t)below(2000000000), (long)below(1000000000) } };
	bool omit = one_in(8);
	char path[TREE_PATH];
	struct place at;
	struct stat st;
	int r;

	if (!somewhere(path, true, &at, &r))
		return;
	deed_is("utimensat %s to %lld.%09ld%s", path, (long long)t[1].tv_sec, t[1].tv_nsec,
		omit ? ", but not its modification" : "");
	if (omit)
		t[1].tv_nsec = UTIME_OMIT;
	if (!ended(utimensat(AT_FDCWD, full(model.view, path), t, 0), r))
		return;
	if (!omit) {
		at.node->mtime = t[1];
		/* In a set of tiers, the move of a file changes its directory's time. */
		at.node->time = model.tiers && at.node->kind == NODE_DIR ? TIME_ANY : TIME_SET;
	}
	if (!ended(stat(full(model.view, path), &st), 0))
		return;
	if (st.st_atim.tv_sec != t[0].tv_sec || st.st_atim.tv_nsec != t[0].tv_nsec)
		differs("the time of access is %lld.%09ld and should be %lld.%09ld",
			(long long)st.st_atim.tv_sec, st.st_atim.tv_nsec, (long long)t[0].tv_sec,
			t[0].tv_nsec);
	check_stat(&st, at.node, model.view);
}

/* --------------------------------------------------- extended attributes */

const char *xattr_name(unsigned which)
{
	static const char *const names[TREE_XATTRS] = { "user.a", "user.b.c", "user.longer-name",
							"user.\303\244 " };

	return names[which];
}

void deed_setxattr(void)
{
	unsigned which = below(TREE_XATTRS);
	static const int modes[] = { 0, 0, XATTR_CREATE, XATTR_REPLACE };
	int flags = modes[below(4)], r;
	int len = (int)below(one_in(2) ? TREE_VALUE + 1 : 20);
	uint8_t value[TREE_VALUE];
	char path[TREE_PATH];
	struct place at;

	t_fill(value, dice(), 0, sizeof(value));
	if (!somewhere(path, true, &at, &r) || !model.has_xattrs)
		return;
	deed_is("setxattr %s of %s, %d bytes, flags %d", xattr_name(which), path, len, flags);
	if (!r && flags == XATTR_CREATE && at.node->value_len[which] >= 0)
		r = EEXIST;
	if (!r && flags == XATTR_REPLACE && at.node->value_len[which] < 0)
		r = ENODATA;
	if (!ended(setxattr(full(model.view, path), xattr_name(which), value, (size_t)len, flags),
		   r))
		return;
	at.node->value_len[which] = len;
	memcpy(at.node->value[which], value, (size_t)len);
}

void deed_removexattr(void)
{
	unsigned which = below(TREE_XATTRS);
	char path[TREE_PATH];
	struct place at;
	int r;

	if (!somewhere(path, true, &at, &r) || !model.has_xattrs)
		return;
	deed_is("removexattr %s of %s", xattr_name(which), path);
	if (!r && at.node->value_len[which] < 0)
		r = ENODATA;
	if (ended(removexattr(full(model.view, path), xattr_name(which)), r))
		at.node->value_len[which] = -1;
}

void deed_getxattr(void)
{
	unsigned which = below(TREE_XATTRS);
	char path[TREE_PATH], value[TREE_VALUE];
	size_t room = one_in(4) ? below(TREE_VALUE) : one_in(3) ? 0 : TREE_VALUE;
	struct place at;
	int r, len = 0;
	ssize_t n;

	if (!somewhere(path, true, &at, &r) || !model.has_xattrs)
		return;
	deed_is("getxattr %s of %s into %zu bytes", xattr_name(which), path, room);
	if (!r)
		len = at.node->value_len[which];
	if (!r && len < 0)
		r = ENODATA;
	if (!r && room && (size_t)len > room)
		r = ERANGE;
	n = getxattr(full(model.view, path), xattr_name(which), value, room);
	if (!ended(n, r))
		return;
	if (n != len || (room && memcmp(value, at.node->value[which], (size_t)len) != 0))
		differs("the value has %zd bytes, or is another, and should have %d", n, len);
}

/* ----------------------------------------------------------------- looks */

void deed_stat(void)
{
	bool follow = one_in(2);
	char path[TREE_PATH];
	struct place at;
	struct stat st;
	int r;

	if (!somewhere(path, follow, &at, &r))
		return;
	deed_is("%s %s", follow ? "stat" : "lstat", path);
	if (ended(fstatat(AT_FDCWD, full(model.view, path), &st, follow ? 0 : AT_SYMLINK_NOFOLLOW),
		  r))
		check_stat(&st, at.node, model.view);
}

void deed_fstat(void)
{
	struct handle *h = &model.handles[below(MODEL_HANDLES)];
	struct stat st;

	if (h->fd < 0)
		return;
	deed_is("fstat of an open file with %u names", h->node->names);
	if (ended(fstat(h->fd, &st), 0))
		check_stat(&st, h->node, model.view);
}

void deed_readlink(void)
{
	char path[TREE_PATH], target[TREE_TARGET];
	struct place at;
	ssize_t n;
	int r;

	if (!somewhere(path, false, &at, &r))
		return;
	deed_is("readlink %s", path);
	if (!r && at.node->kind != NODE_LINK)
		r = EINVAL;
	n = readlink(full(model.view, path), target, sizeof(target) - 1);
	if (!ended(n, r))
		return;
	target[n] = '\0';
	if (strcmp(target, at.node->target) != 0)
		differs("the link leads to %s and not %s", target, at.node->target);
}

void deed_readdir(void)
{
	char path[TREE_PATH];
	struct place at;
	int r;

	if (!somewhere(path, true, &at, &r) || r || at.node->kind != NODE_DIR)
		return;
	deed_is("list %s", path);
	check_names(at.node, path, model.view);
}
