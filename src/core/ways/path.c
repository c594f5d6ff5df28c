/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "base/names.h"
#include "core/ways/path.h"

const struct path_ops *path_table[PST_PATH_MAX + 1] = {
	[PST_PATH_DIRECT] = &path_direct,
	[PST_PATH_CACHED] = &path_cached,
	[PST_PATH_BUFFERED] = &path_buffered,
	[PST_PATH_WINDOW] = &path_window,
	[PST_PATH_STAGED] = &path_staged,
	[PST_PATH_GATHER] = &path_gather,
	[PST_PATH_PAGECACHE] = &path_pagecache,
	[PST_PATH_GDS] = &path_gds,
	[PST_PATH_TCP] = &path_tcp,
	[PST_PATH_P2P] = &path_p2p,
	[PST_PATH_RDMA] = &path_rdma,
	[PST_PATH_PEER] = &path_peer,
};

const struct path_ops *path_list[PST_PATH_MAX + 1] = {
	&path_gds,    &path_cached, &path_direct, &path_p2p,  &path_buffered, &path_pagecache,
	&path_window, &path_staged, &path_gather, &path_rdma, &path_tcp,      &path_peer,
};

_Atomic uint32_t path_epoch = 1;

void path_changed(void)
{
	(void)atomic_fetch_add(&path_epoch, 1);
}

int path_add(const struct path_ops *ops)
{
	unsigned nr = 0;

	if (!ops->path || ops->path > PST_PATH_MAX || path_table[ops->path])
		return -EEXIST;
	while (path_list[nr])
		nr++;
	path_table[ops->path] = ops;
	names_path_add(ops->path, ops->name);
	path_list[nr] = ops; /* NULL at the end: the array has room for every path and a NULL */
	return 0;
}

uint32_t path_base(void)
{
	const struct path_ops **at = path_list;

	while (!(*at)->base)
		at++;
	return (*at)->path;
}

uint32_t path_hops(void)
{
	uint32_t set = 0;

	for (uint32_t path = 1; path <= PST_PATH_MAX; path++)
		if (path_is_hop(path))
			set |= PST_PATH_BIT(path);
	return set;
}

enum pst_why path_why(const struct pst_file *f, const struct pst_mem *m, uint32_t op, uint32_t path,
		      int *ret_detail)
{
	const struct path_ops *ops = path_get(path);

	*ret_detail = 0;
	return ops ? ops->why(f, m, op, ret_detail) : PST_WHY_NO_PROVIDER;
}

bool path_is_proven(const struct pst_file *f, const struct pst_mem *m, uint32_t op, uint32_t path)
{
	const struct path_ops *ops = path_get(path);

	return ops && (!ops->proven || ops->proven(f, m, op));
}

void *path_keep(_Atomic(void *) *by_path, void *made)
{
	void *there = NULL;

	if (!made || atomic_compare_exchange_strong(by_path, &there, made))
		return made;
	free(made);
	return there;
}

int path_file_begin(struct pst_file *f, bool *ret_reader)
{
	*ret_reader = false;
	for (const struct path_ops **at = path_list; *at; at++) {
		int r = (*at)->file_begin ? (*at)->file_begin(f, ret_reader) : 0;

		if (r < 0)
			return r;
	}
	return 0;
}

void path_file_end(struct pst_file *f)
{
	for (const struct path_ops **at = path_list; *at; at++)
		if ((*at)->file_end && f->by_path[(*at)->path])
			(*at)->file_end(f);
}

void path_region_end(struct region *r)
{
	for (const struct path_ops **at = path_list; *at; at++)
		if ((*at)->region_end && r->by_path[(*at)->path])
			(*at)->region_end(r);
}

void path_stats(struct pst_stats *ret)
{
	for (const struct path_ops **at = path_list; *at; at++)
		if ((*at)->stats)
			(*at)->stats(ret);
}
