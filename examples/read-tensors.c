/* SPDX-License-Identifier: MIT */
/*
 * Load many tensors by one call.
 *
 *	read-tensors [-d DEVICE] FILE COUNT
 *
 * FILE is divided into COUNT tensors with separate memory, as a framework allocates them.  One
 * pst_readv() with their addresses reads all of them concurrently; each is compared with a plain
 * read.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <penstock.h>

static int complain(const char *what)
{
	(void)fprintf(stderr, "read-tensors: %s: %s\n", what, pst_error_text());
	return -1;
}

/* Allocate memory for a tensor; only its address is used later. */
static int tensor_new(const char *device, uint64_t off, uint64_t len, struct pst_mem **ret,
		      struct pst_vec *ret_vec)
{
	struct pst_mem_info info = { .sz = sizeof(info) };

	if (pst_mem_alloc(device, len, NULL, ret) < 0 || pst_mem_info(*ret, &info) < 0)
		return complain("memory");
	*ret_vec = (struct pst_vec){ .mem_off = info.addr, .file_off = off, .len = len };
	return 0;
}

static int verify(int fd, struct pst_mem *mem, const struct pst_vec *v)
{
	char *got = malloc(v->len), *want = malloc(v->len);
	int r = -1;

	if (got && want && pst_mem_copy_out(mem, 0, got, v->len) == 0 &&
	    pread(fd, want, v->len, (off_t)v->file_off) == (ssize_t)v->len)
		r = memcmp(got, want, v->len) == 0 ? 0 : -1;
	free(got);
	free(want);
	return r;
}

static int run(const char *device, const char *path, uint64_t size, unsigned nr,
	       struct pst_file *file)
{
	struct pst_mem **mems = calloc(nr, sizeof(*mems));
	struct pst_vec *vecs = calloc(nr, sizeof(*vecs));
	int fd = open(path, O_RDONLY | O_CLOEXEC), r = mems && vecs ? 0 : -1;
	struct pst_done done;
	char text[512];

	for (uint64_t i = 0; r == 0 && i < nr; i++)
		r = tensor_new(device, size * i / nr, size * (i + 1) / nr - size * i / nr, &mems[i],
			       &vecs[i]);
	if (r == 0 && pst_readv(file, vecs, nr, NULL, &done) < 0)
		r = complain(path);
	if (r == 0)
		(void)printf("%u tensors: %s\n", nr, pst_done_text(&done, text, sizeof(text)));
	for (unsigned i = 0; r == 0 && i < nr; i++)
		if (verify(fd, mems[i], &vecs[i]) < 0) {
			(void)fprintf(stderr, "read-tensors: tensor %u is wrong\n", i);
			r = -1;
		}
	for (unsigned i = 0; mems && i < nr; i++)
		(void)pst_mem_free(mems[i]);
	free(mems);
	free(vecs);
	(void)close(fd);
	return r;
}

int main(int argc, char *argv[])
{
	struct pst_file_info info = { .sz = sizeof(info) };
	struct pst_file *file = NULL;
	const char *device = "soft";
	unsigned long nr;
	int opt, r = -1;

	while ((opt = getopt(argc, argv, "d:")) == 'd')
		device = optarg;
	nr = optind + 2 == argc ? strtoul(argv[optind + 1], NULL, 10) : 0;
	if (opt != -1 || !nr || nr > PST_VECS_MAX) {
		(void)fprintf(stderr, "usage: read-tensors [-d DEVICE] FILE COUNT\n");
		return 2;
	}
	if (pst_file_open(argv[optind], PST_FILE_READ, NULL, &file) < 0 ||
	    pst_file_info(file, &info) < 0)
		(void)complain(argv[optind]);
	else if (info.size < nr)
		(void)fprintf(stderr, "read-tensors: %s has fewer bytes than tensors\n",
			      argv[optind]);
	else
		r = run(device, argv[optind], info.size, (unsigned)nr, file);
	(void)pst_file_close(file);
	return r < 0;
}
