/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <sys/syscall.h>

#include "file/index.h"
#include "file/local.h"
#include "file/own.h"

static void own_close(struct own_file *own)
{
	closep(&own->fd);
	*own = (struct own_file){ .fd = -1 };
}

/* Clear a file's entry.  The thread that frees the file calls this; it may be any thread. */
static void forget_file(struct ctx_tables *t, uint32_t idx)
{
	struct own_files *o = container_of(t, struct own_files, tables);

	(void)pthread_mutex_lock(&o->lock);
	for (unsigned i = 0; i < OWN_FILES; i++)
		if (o->files[i].gen && o->files[i].idx == idx)
			own_close(&o->files[i]);
	(void)pthread_mutex_unlock(&o->lock);
}

static void forget_buf(struct ctx_tables *t, uint32_t idx, unsigned nr)
{
	(void)t;
	(void)idx;
	(void)nr;
}

void own_files_init(struct own_files *o)
{
	*o = (struct own_files){ .tables = { .forget_file = forget_file, .forget_buf = forget_buf },
				 .lock = PTHREAD_MUTEX_INITIALIZER };
	for (unsigned i = 0; i < OWN_FILES; i++)
		o->files[i] = (struct own_file){ .fd = -1 };
	ctx_tables_add(&o->tables);
}

void own_files_done(struct own_files *o)
{
	ctx_tables_del(&o->tables);
	for (unsigned i = 0; i < OWN_FILES; i++)
		own_close(&o->files[i]);
	(void)pthread_mutex_destroy(&o->lock);
}

static struct own_file *own_find(struct own_files *o, uint32_t gen)
{
	for (unsigned i = 0; i < OWN_FILES; i++)
		if (o->files[i].gen == gen)
			return &o->files[i];
	return NULL;
}

int own_files_get(struct own_files *o, const struct file *file)
{
	const struct local_file *f = file_local(file);
	struct own_file *own, *room = NULL;
	int fd = -1;

	/* A file without an index gets no private descriptor: forget_file() would not be called
	 * when the file is freed. */
	if (!f || f->idx == IO_NO_IDX)
		return -1;
	(void)pthread_mutex_lock(&o->lock);
	own = own_find(o, f->gen);
	if (own)
		fd = own->fd;
	else
		room = own_find(o, 0);
	(void)pthread_mutex_unlock(&o->lock);
	if (!room)
		return fd;
	/* Open without the lock, because opening may block. Only this thread adds entries. */
	fd = local_file_reopen(f);
	(void)pthread_mutex_lock(&o->lock);
	*room = (struct own_file){ f->idx, f->gen, fd };
	(void)pthread_mutex_unlock(&o->lock);
	return fd;
}

int64_t own_file_read(int fd, void *buf, uint64_t off, uint64_t len)
{
	/* Use the raw system call: the C library's is a cancellation point. */
	long n = syscall(SYS_pread64, fd, buf, len, off);

	return n < 0 ? -errno : n;
}
