/* SPDX-License-Identifier: MIT */
/*
 * Load every tensor of safetensors files into device memory, with one request per tensor.
 *
 *	load-shards [-d DEVICE] [FILE...]
 *
 * Without a file, a small one is made.  Prints how many bytes of each file took which paths, and
 * checks each completion's CRC-32C against the bytes on the device.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <penstock.h>

#define DEPTH 32              /* requests in flight */
#define ALIGN 256             /* bytes; alignment of tensors in device memory */
#define HEADER_MAX 100000000u /* bytes, the format's limit */

struct tensor {
	uint64_t file_off;
	uint64_t mem_off;
	uint64_t len; /* bytes */
};

/* A file, its tensors, and the memory they go to. */
struct shard {
	const char *path;
	struct tensor *tensors;
	size_t nr_tensors;
	struct pst_file *file;
	struct pst_mem *mem;
};

/* Report a failed call of the library; its sentence names cause and cure. */
static int complain(const char *what, int r)
{
	(void)fprintf(stderr, "load-shards: %s: %s\n", what, pst_error_text());
	return r;
}

/* Report a failed system call. */
static int complain_errno(const char *what)
{
	int r = -errno;

	(void)fprintf(stderr, "load-shards: %s: %s\n", what, strerror(-r));
	return r;
}

/* Report a file that is not a valid safetensors file. */
static int complain_format(const char *path, const char *why)
{
	(void)fprintf(stderr, "load-shards: %s: %s\n", path, why);
	return -EINVAL;
}

/*
 * Read the JSON header of a safetensors file; the first 8 bytes are its length, little endian.
 * Return it NUL-terminated, to be freed; NULL after an error.
 */
static char *read_header(FILE *f, const char *path, uint64_t *ret_len)
{
	uint8_t head[8];
	uint64_t len = 0;
	char *text;

	if (fread(head, 1, sizeof(head), f) != sizeof(head)) {
		(void)complain_format(path,
				      "shorter than the 8 bytes that tell the header's length");
		return NULL;
	}
	for (int i = 7; i >= 0; i--)
		len = len << 8 | head[i];
	if (len > HEADER_MAX) {
		(void)complain_format(path, "no safetensors file: its header would be too long");
		return NULL;
	}
	text = calloc(len + 1, 1);
	if (!text) {
		(void)complain_errno(path);
	} else if (fread(text, 1, len, f) != len) {
		(void)complain_format(path, "ends within its header");
		free(text);
		text = NULL;
	}
	*ret_len = len;
	return text;
}

/* Skip blanks and the character c; return NULL if another character is there. */
static const char *after(const char *p, char c)
{
	p += strspn(p, " \t\r\n");
	return *p == c ? p + 1 : NULL;
}

/* Skip blanks and a number; return NULL if there is none. */
static const char *after_number(const char *p, uint64_t *ret)
{
	char *end;

	p += strspn(p, " \t\r\n");
	errno = 0;
	*ret = strtoull(p, &end, 10);
	return *p >= '0' && *p <= '9' && !errno ? end : NULL;
}

/*
 * Find the next tensor in a header by its "data_offsets":[BEGIN,END]; nothing else can match,
 * because quotes in names are escaped.  Programs that need names, types and shapes use a JSON
 * parser; this one only needs the offsets.
 */
static const char *next_tensor(const char *p, uint64_t *ret_begin, uint64_t *ret_end)
{
	static const char key[] = "\"data_offsets\"";
	const char *at;

	while ((p = strstr(p, key))) {
		p += sizeof(key) - 1;
		at = after(p, ':');
		at = at ? after(at, '[') : NULL;
		at = at ? after_number(at, ret_begin) : NULL;
		at = at ? after(at, ',') : NULL;
		at = at ? after_number(at, ret_end) : NULL;
		at = at ? after(at, ']') : NULL;
		if (at)
			return at;
	}
	return NULL;
}

/* List the tensors of a header; data_off: offset of their bytes in the file. */
static int list_tensors(struct shard *s, const char *header, uint64_t data_off, uint64_t file_size)
{
	uint64_t begin, end, mem_off = 0;
	size_t nr = 0;

	for (const char *p = header; (p = next_tensor(p, &begin, &end));)
		nr++;
	s->tensors = calloc(nr + 1, sizeof(*s->tensors));
	if (!s->tensors)
		return complain_errno(s->path);
	for (const char *p = header; (p = next_tensor(p, &begin, &end));) {
		if (begin > end || end > file_size - data_off)
			return complain_format(s->path, "a tensor lies beyond the end of the file");
		s->tensors[s->nr_tensors++] = (struct tensor){
			.file_off = data_off + begin,
			.mem_off = mem_off,
			.len = end - begin,
		};
		mem_off += (end - begin + ALIGN - 1) / ALIGN * ALIGN;
	}
	return 0;
}

static int read_tensors(struct shard *s)
{
	FILE *f = fopen(s->path, "rb");
	uint64_t len = 0;
	struct stat st;
	char *header;
	int r;

	if (!f)
		return complain_errno(s->path);
	if (fstat(fileno(f), &st) < 0) {
		r = complain_errno(s->path);
		(void)fclose(f);
		return r;
	}
	header = read_header(f, s->path, &len);
	(void)fclose(f);
	if (!header)
		return -EINVAL;
	r = list_tensors(s, header, 8 + len, (uint64_t)st.st_size);
	free(header);
	return r;
}

static int shard_open(struct shard *s, const char *path, const char *device)
{
	const struct tensor *last;
	int r;

	s->path = path;
	r = read_tensors(s);
	if (r < 0)
		return r;
	/* STABLE: nobody changes model files while they are loaded, and some paths require that
	 * promise. */
	r = pst_file_open(path, PST_FILE_READ | PST_FILE_STABLE, NULL, &s->file);
	if (r < 0)
		return complain(path, r);
	last = s->nr_tensors ? &s->tensors[s->nr_tensors - 1] : NULL;
	r = pst_mem_alloc(device, last ? last->mem_off + last->len + ALIGN : ALIGN, NULL, &s->mem);
	return r < 0 ? complain(device, r) : 0;
}

static void shard_close(struct shard *s)
{
	/* These functions accept NULL. */
	(void)pst_file_close(s->file);
	(void)pst_mem_free(s->mem);
	free(s->tensors);
}

/* Compute a CRC-32C bit by bit: slow, but independent of the library. */
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
	const struct tensor *t = &s->tensors[d->user_data];
	int nr = (int)d->user_data, r;
	char text[300];
	uint8_t *copy;

	if (d->res < 0) {
		(void)fprintf(stderr, "load-shards: %s: tensor %d: %s\n", s->path, nr,
			      pst_done_text(d, text, sizeof(text)));
		return (int)d->res;
	}
	if ((uint64_t)d->res != t->len || !(d->flags & PST_DONE_CRC32C)) {
		(void)fprintf(stderr, "load-shards: %s: the file ended early\n", s->path);
		return -EIO;
	}
	copy = malloc(t->len);
	if (!copy)
		return complain_errno(s->path);
	r = pst_mem_copy_out(s->mem, t->mem_off, copy, t->len);
	if (r < 0) {
		(void)complain(s->path, r);
	} else if (crc32c(copy, t->len) != d->crc32c) {
		(void)fprintf(stderr, "load-shards: %s: wrong bytes of tensor %d on the device\n",
			      s->path, nr);
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

	while (next < s->nr_tensors || flying) {
		struct pst_done done[DEPTH];
		int n;

		/* Keep the queue full.  Skip empty tensors. */
		for (; next < s->nr_tensors && flying < DEPTH; next++) {
			const struct tensor *t = &s->tensors[next];
			struct pst_io io = {
				.op = PST_OP_READ,
				.flags = PST_IO_CRC32C,
				.file = s->file,
				.mem = s->mem,
				.file_off = t->file_off,
				.mem_off = t->mem_off,
				.len = t->len,
				.user_data = next,
			};

			if (!t->len)
				continue;
			r = pst_queue_prep(q, &io);
			if (r < 0)
				return complain(s->path, r);
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

	(void)printf("%s: %zu tensors, %llu bytes, by", s->path, s->nr_tensors,
		     (unsigned long long)bytes);
	for (uint32_t p = 1; p <= PST_PATH_MAX; p++)
		if (paths & PST_PATH_BIT(p))
			(void)printf(" %s", pst_path_name(p));
	(void)putchar('\n');
	return 0;
}

/* Make a file with two tensors, one of odd length. */
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
		/* Free the queue first: after an error, requests may still be in flight. */
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
