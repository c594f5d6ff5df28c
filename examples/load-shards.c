/* SPDX-License-Identifier: MIT */
/*
 * Load every tensor of safetensors files into device memory, one request for each.
 *
 *	load-shards [-d DEVICE] [FILE...]
 *
 * Without a file it makes a small one.  Prints for each file how much came by which paths,
 * and checks the CRC-32C that each completion carries against the bytes on the device.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <penstock.h>
#include "tools/common/safetensors.h"

#define DEPTH 32  /* requests in flight */
#define ALIGN 256 /* of a tensor in device memory */

/* A file, its tensors, and the memory they go to. */
struct shard {
	const char *path;
	struct safetensors *st;
	struct pst_file *file;
	struct pst_mem *mem;
	uint64_t *mem_offs; /* of each tensor */
};

/* A failed call of the library: its sentence names cause and cure. */
static int complain(const char *what, int r)
{
	(void)fprintf(stderr, "load-shards: %s: %s\n", what, pst_error_text());
	return r;
}

/* A failed call of the system. */
static int complain_errno(const char *what)
{
	int r = -errno;

	(void)fprintf(stderr, "load-shards: %s: %s\n", what, strerror(-r));
	return r;
}

static int shard_open(struct shard *s, const char *path, const char *device)
{
	uint64_t size = 0;
	char why[300];
	int fd, r;

	s->path = path;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return complain_errno(path);
	r = safetensors_read(fd, &s->st, why, sizeof(why));
	(void)close(fd);
	if (r < 0) {
		(void)fprintf(stderr, "load-shards: %s: %s\n", path, why);
		return r;
	}

	s->mem_offs = calloc(s->st->nr + 1, sizeof(*s->mem_offs));
	if (!s->mem_offs)
		return complain_errno(path);
	for (size_t i = 0; i < s->st->nr; i++) {
		s->mem_offs[i] = size;
		size += (s->st->tensors[i].len + ALIGN - 1) / ALIGN * ALIGN;
	}
	/* Nobody changes model files while they are loaded: some paths want to know that. */
	r = pst_file_open(path, PST_FILE_READ | PST_FILE_STABLE, NULL, &s->file);
	if (r < 0)
		return complain(path, r);
	r = pst_mem_alloc(device, size ? size : ALIGN, NULL, &s->mem);
	return r < 0 ? complain(device, r) : 0;
}

static void shard_close(struct shard *s)
{
	/* All of these take NULL. */
	(void)pst_file_close(s->file);
	(void)pst_mem_free(s->mem);
	(void)safetensors_free(s->st);
	free(s->mem_offs);
}

/* CRC-32C, bit by bit: slow, and independent of the library. */
static uint32_t crc32c(const uint8_t *p, size_t len)
{
	uint32_t crc = ~0u;

	while (len--) {
		crc ^= *p++;
		for (int k = 0; k < 8; k++)
			crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
	}
	return ~crc;
}

/* Check the completion of a tensor against the bytes on the device. */
static int check(struct shard *s, const struct pst_done *d)
{
	const struct safetensor *t = &s->st->tensors[d->user_data];
	char text[300];
	uint8_t *copy;
	int r;

	if (d->res < 0) {
		(void)fprintf(stderr, "load-shards: %s: %s\n", t->name,
			      pst_done_text(d, text, sizeof(text)));
		return (int)d->res;
	}
	if ((uint64_t)d->res != t->len || !(d->flags & PST_DONE_CRC32C)) {
		(void)fprintf(stderr, "load-shards: %s: the file ended early\n", t->name);
		return -EIO;
	}
	copy = malloc(t->len);
	if (!copy)
		return complain_errno(t->name);
	r = pst_mem_copy_out(s->mem, s->mem_offs[d->user_data], copy, t->len);
	if (r < 0)
		(void)complain(t->name, r);
	else if (crc32c(copy, t->len) != d->crc32c) {
		(void)fprintf(stderr, "load-shards: %s: wrong bytes on the device\n", t->name);
		r = -EIO;
	}
	free(copy);
	return r;
}

static int load(struct pst_queue *q, struct shard *s)
{
	size_t next = 0, flying = 0;
	uint64_t bytes = 0;
	uint32_t paths = 0;
	int r;

	while (next < s->st->nr || flying) {
		struct pst_done done[DEPTH];
		int n;

		/* Keep the queue full.  A tensor without bytes needs no request. */
		for (; next < s->st->nr && flying < DEPTH; next++) {
			const struct safetensor *t = &s->st->tensors[next];
			struct pst_io io = {
				.op = PST_OP_READ,
				.flags = PST_IO_CRC32C,
				.file = s->file,
				.mem = s->mem,
				.file_off = t->off,
				.mem_off = s->mem_offs[next],
				.len = t->len,
				.user_data = next,
			};

			if (!t->len)
				continue;
			r = pst_queue_prep(q, &io);
			if (r < 0)
				return complain(t->name, r);
			flying++;
		}
		r = pst_queue_submit(q);
		if (r < 0)
			return complain(s->path, r);
		n = pst_queue_reap(q, done, flying ? 1 : 0, DEPTH, PST_NO_DEADLINE);
		if (n < 0)
			return complain(s->path, n);
		flying -= (size_t)n;
		for (int i = 0; i < n; i++) {
			r = check(s, &done[i]);
			if (r < 0)
				return r;
			bytes += (uint64_t)done[i].res;
			paths |= done[i].paths;
		}
	}

	(void)printf("%s: %zu tensors, %llu bytes, by", s->path, s->st->nr,
		     (unsigned long long)bytes);
	for (uint32_t p = 1; p <= PST_PATH_MAX; p++)
		if (paths & PST_PATH_BIT(p))
			(void)printf(" %s", pst_path_name(p));
	(void)putchar('\n');
	return 0;
}

/* A file with two tensors, one of them of odd length. */
static int make_file(const char *path)
{
	static const char header[] =
		"{\"model.norm.weight\":"
		"{\"dtype\":\"F32\",\"shape\":[1021],\"data_offsets\":[0,4084]},"
		"\"lm_head.weight\":"
		"{\"dtype\":\"U8\",\"shape\":[333,3001],\"data_offsets\":[4084,1003417]}}";
	uint8_t head[8] = { (sizeof(header) - 1) & 255, (sizeof(header) - 1) >> 8 };
	FILE *f = fopen(path, "wx");

	if (!f)
		return complain_errno(path);
	(void)fwrite(head, 1, sizeof(head), f);
	(void)fwrite(header, 1, sizeof(header) - 1, f);
	for (unsigned i = 0; i < 1003417; i++)
		(void)fputc((int)(i * 2654435761u >> 24), f);
	return fclose(f) == 0 ? 0 : complain_errno(path);
}

static int load_all(char *const paths[], int nr, const char *device)
{
	struct pst_queue_opts opts = { .sz = sizeof(opts), .depth = DEPTH };
	struct pst_queue *q = NULL;
	int r;

	r = pst_queue_new(&opts, &q);
	if (r < 0)
		return complain("queue", r);
	for (int i = 0; i < nr && r >= 0; i++) {
		struct shard s = { 0 };

		r = shard_open(&s, paths[i], device);
		if (r == 0)
			r = load(q, &s);
		/* After an error requests may be in flight: the queue goes first. */
		if (r < 0)
			q = pst_queue_free(q);
		shard_close(&s);
	}
	(void)pst_queue_free(q);
	return r;
}

int main(int argc, char *argv[])
{
	const char *device = "soft", *tmp = getenv("TMPDIR");
	char dir[4000], own[4096];
	char *own_list[] = { own };
	int opt, r;

	while ((opt = getopt(argc, argv, "d:")) != -1) {
		if (opt != 'd') {
			(void)fprintf(stderr, "usage: load-shards [-d DEVICE] [FILE...]\n");
			return 2;
		}
		device = optarg;
	}
	if (optind < argc)
		return load_all(argv + optind, argc - optind, device) < 0;

	(void)snprintf(dir, sizeof(dir), "%s/load-shards-XXXXXX", tmp ? tmp : "/var/tmp");
	if (!mkdtemp(dir))
		return complain_errno(dir) < 0;
	(void)snprintf(own, sizeof(own), "%s/model.safetensors", dir);
	r = make_file(own);
	if (r == 0)
		r = load_all(own_list, 1, device);
	(void)unlink(own);
	(void)rmdir(dir);
	return r < 0;
}
