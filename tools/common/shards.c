/* SPDX-License-Identifier: MIT */
#include "tools/common/shards.h"

#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>

#include "tools/common/crc32c.h"
#include "tools/common/pattern.h"

#define CHUNK MIB(4)

/* A header under construction: JSON text, and the offset of the next tensor. */
struct plan {
	FILE *json;
	uint64_t end;
	unsigned nr;
};

/* Append a tensor; negative dimensions are absent. */
_printf_(6, 7) static void plan_add(struct plan *p, const char *dtype, unsigned size, int64_t d0,
				    int64_t d1, const char *name, ...)
{
	uint64_t len = size;
	va_list ap;

	(void)fputs(p->nr++ ? ",\"" : "\"", p->json);
	va_start(ap, name);
	(void)vfprintf(p->json, name, ap);
	va_end(ap);
	(void)fprintf(p->json, "\":{\"dtype\":\"%s\",\"shape\":[", dtype);
	if (d0 >= 0) {
		(void)fprintf(p->json, "%lld", (long long)d0);
		len *= (uint64_t)d0;
	}
	if (d1 >= 0) {
		(void)fprintf(p->json, ",%lld", (long long)d1);
		len *= (uint64_t)d1;
	}
	(void)fprintf(p->json, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)p->end,
		      (unsigned long long)(p->end + len));
	p->end += len;
}

/* Return the MLP's width for a hidden size: 2.75 times that, as in many models. */
static int64_t mlp_width(int64_t hidden)
{
	return hidden * 11 / 4;
}

static uint64_t layer_bytes(int64_t h)
{
	return 2 * (uint64_t)(h * h * 5 / 2 + 3 * h * mlp_width(h)) + 8 * (uint64_t)h + 2048;
}

static void plan_layer(struct plan *p, unsigned layer, int64_t h)
{
	int64_t w = mlp_width(h), kv = h / 4;

	plan_add(p, "F32", 4, h, -1, "model.layers.%u.input_layernorm.weight", layer);
	plan_add(p, "BF16", 2, h, h, "model.layers.%u.self_attn.q_proj.weight", layer);
	plan_add(p, "BF16", 2, kv, h, "model.layers.%u.self_attn.k_proj.weight", layer);
	plan_add(p, "BF16", 2, kv, h, "model.layers.%u.self_attn.v_proj.weight", layer);
	plan_add(p, "BF16", 2, h, h, "model.layers.%u.self_attn.o_proj.weight", layer);
	/* Add what real files also contain: a scalar, odd lengths and therefore odd offsets, an
	 * empty tensor. */
	plan_add(p, "F32", 4, -1, -1, "model.layers.%u.self_attn.k_scale", layer);
	plan_add(p, "U8", 1, 1021, -1, "model.layers.%u.self_attn.head_mask", layer);
	plan_add(p, "BF16", 2, 0, h, "model.layers.%u.adapter.weight", layer);
	plan_add(p, "F32", 4, h, -1, "model.layers.%u.post_attention_layernorm.weight", layer);
	plan_add(p, "BF16", 2, w, h, "model.layers.%u.mlp.gate_proj.weight", layer);
	plan_add(p, "BF16", 2, w, h, "model.layers.%u.mlp.up_proj.weight", layer);
	plan_add(p, "BF16", 2, h, w, "model.layers.%u.mlp.down_proj.weight", layer);
}

/* Make a shard's header, preceded by its length.  *ret_data_len: bytes of data that must follow. */
static int plan_shard(uint64_t len, unsigned idx, unsigned nr, char **ret_head,
		      size_t *ret_head_len, uint64_t *ret_data_len)
{
	_cleanup_(freep) char *json = NULL;
	struct plan p = { 0 };
	size_t json_len = 0;
	int64_t h = 4096, rows;
	char *head;

	/* Choose the size so that each shard has at least two layers. */
	while (h > 64 && 2 * layer_bytes(h) > len)
		h -= 64;
	p.json = open_memstream(&json, &json_len);
	if (!p.json)
		return fail(ENOMEM, "out of memory");
	(void)fprintf(p.json, "{\"__metadata__\":{\"format\":\"pt\",\"shard\":\"%u of %u\"},",
		      idx + 1, nr);
	for (unsigned layer = 0; p.end + layer_bytes(h) <= len || layer < 1; layer++)
		plan_layer(&p, idx * 100 + layer, h);
	rows = len > p.end ? (int64_t)(len - p.end) / (2 * h) : 0;
	plan_add(&p, "BF16", 2, rows, h, idx ? "lm_head.%u.weight" : "model.embed_tokens.%u.weight",
		 idx);
	(void)fputc('}', p.json);
	/* Do not pad to 8 as some writers do: data may begin at any offset. */
	if (fclose(p.json) != 0)
		return fail(ENOMEM, "out of memory");

	head = malloc(8 + json_len);
	if (!head)
		return fail(ENOMEM, "out of memory");
	for (unsigned i = 0; i < 8; i++)
		head[i] = (char)(json_len >> (8 * i) & 255);
	memcpy(head + 8, json, json_len);
	*ret_head = head;
	*ret_head_len = 8 + json_len;
	*ret_data_len = p.end;
	return 0;
}

static int shards_parse(struct shard *s)
{
	char why[400];
	int r = safetensors_read(s->fd, &s->st, why, sizeof(why));

	if (r < 0)
		return fail(r, "%s: %s", s->path, why);
	s->crcs = calloc(s->st->nr + 1, sizeof(*s->crcs));
	if (!s->crcs)
		return fail(ENOMEM, "out of memory");
	return 0;
}

/* Add bytes off..off+len of the file to the tensors' CRCs; called in order of the file. */
static void add_to_crcs(struct shard *s, size_t *tensor, uint64_t off, const uint8_t *buf,
			size_t len)
{
	while (*tensor < s->st->nr) {
		const struct safetensor *t = &s->st->tensors[*tensor];
		uint64_t from = MAX(off, t->off), to = MIN(off + len, t->off + t->len);

		if (from < to)
			s->crcs[*tensor] = crc32c_add(s->crcs[*tensor], buf + (from - off),
						      to - from);
		if (t->off + t->len > off + len)
			return;
		++*tensor;
	}
}

static int write_data(struct shard *s)
{
	_cleanup_(freep) uint8_t *buf = malloc(CHUNK);
	uint64_t off = s->st->data_off, end = off + s->st->data_len;
	size_t tensor = 0;
	int r;

	if (!buf)
		return fail(ENOMEM, "out of memory");
	while (off < end) {
		size_t n = MIN(CHUNK, end - off);

		pattern_fill(buf, s->seed, off, n);
		add_to_crcs(s, &tensor, off, buf, n);
		r = pwrite_all(s->fd, buf, n, off, s->path);
		if (r < 0)
			return r;
		off += n;
		if (stop_signal)
			return fail(EINTR, "interrupted");
	}
	if (fsync(s->fd) < 0)
		return fail(errno, "syncing %s: %s", s->path, strerror(errno));
	return 0;
}

static int open_for_requests(struct shard *s)
{
	/* Nobody changes a shard while it is loaded; for objects, the library checks that
	 * cheaply. */
	uint32_t flags = PST_FILE_READ | (s->object ? 0 : PST_FILE_STABLE);
	int r = pst_file_open(s->path, flags, NULL, &s->file);

	return r < 0 ? fail_pst(r, s->path) : 0;
}

int shard_make(struct shard *s, const char *path, uint64_t len, unsigned idx, unsigned nr)
{
	_cleanup_(freep) char *head = NULL;
	size_t head_len = 0;
	uint64_t data_len = 0;
	int r;

	*s = (struct shard){ .fd = -1, .made = true, .seed = UINT64_C(0x5ead) + idx };
	s->path = strdup(path);
	if (!s->path)
		return fail(ENOMEM, "out of memory");
	r = plan_shard(len, idx, nr, &head, &head_len, &data_len);
	if (r < 0)
		return r;
	s->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (s->fd < 0)
		return fail(errno, "cannot create %s: %s", path, strerror(errno));
	r = pwrite_all(s->fd, head, head_len, 0, path);
	if (r < 0)
		return r;
	/* Set the size first: the parser checks that the tensors fit into the file. */
	if (ftruncate(s->fd, (off_t)(head_len + data_len)) < 0)
		return fail(errno, "writing %s: %s", path, strerror(errno));
	r = shards_parse(s);
	if (r == 0)
		r = write_data(s);
	return r < 0 ? r : open_for_requests(s);
}

/* Read an object from front to back, one request at a time, into a file without a name. */
static int copy_object(struct shard *s, const char *dir)
{
	struct pst_file_info info = { .sz = sizeof(info) };
	_cleanup_(freep) uint8_t *buf = malloc(CHUNK);
	int r = buf ? open_for_requests(s) : fail(ENOMEM, "out of memory");

	if (r < 0)
		return r;
	r = pst_file_info(s->file, &info);
	if (r < 0)
		return fail_pst(r, s->path);
	s->fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (s->fd < 0)
		return fail(errno, "cannot make a copy of %s in %s: %s", s->path, dir,
			    strerror(errno));
	for (uint64_t off = 0; off < info.size;) {
		uint64_t n = MIN(CHUNK, info.size - off);
		int64_t got = pst_read(s->file, off, NULL, (uintptr_t)buf, n, NULL);

		if (got != (int64_t)n)
			return got < 0 ? fail_pst((int)got, s->path)
				       : fail(EIO, "%s is shorter than it was", s->path);
		r = pwrite_all(s->fd, buf, n, off, dir);
		if (r < 0)
			return r;
		off += n;
		if (stop_signal)
			return fail(EINTR, "interrupted");
	}
	return 0;
}

int shard_open(struct shard *s, const char *path, const char *dir)
{
	_cleanup_(freep) uint8_t *buf = malloc(CHUNK);
	uint64_t off, end;
	size_t tensor = 0;
	int r;

	*s = (struct shard){ .fd = -1 };
	s->path = strdup(path);
	if (!s->path || !buf)
		return fail(ENOMEM, "out of memory");
	s->object = strstr(path, "://");
	if (s->object) {
		r = copy_object(s, dir);
		if (r < 0)
			return r;
	} else {
		s->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		if (s->fd < 0)
			return fail_open(path);
	}
	r = shards_parse(s);
	if (r < 0)
		return r;
	off = s->st->data_off;
	end = off + s->st->data_len;
	while (off < end) {
		size_t n = MIN(CHUNK, end - off);

		r = pread_all(s->fd, buf, n, off, path);
		if (r < 0)
			return r;
		add_to_crcs(s, &tensor, off, buf, n);
		off += n;
		if (stop_signal)
			return fail(EINTR, "interrupted");
	}
	return s->object ? 0 : open_for_requests(s);
}

int shard_compare(const struct shard *s, uint64_t off, const void *buf, size_t len,
		  const char *what)
{
	_cleanup_(freep) uint8_t *want = NULL;
	size_t at;
	int r;

	if (s->made) {
		at = pattern_differs(buf, s->seed, off, len);
	} else {
		want = malloc(len);
		if (!want)
			return fail(ENOMEM, "out of memory");
		r = pread_all(s->fd, want, len, off, s->path);
		if (r < 0)
			return r;
		at = len;
		if (memcmp(buf, want, len) != 0)
			for (at = 0; ((const uint8_t *)buf)[at] == want[at];)
				at++;
	}
	if (at == len)
		return 0;
	return fail(EIO, "%s came wrong: it differs from %s at offset %llu of the file", what,
		    s->path, (unsigned long long)(off + at));
}

void shard_done(struct shard *s)
{
	(void)pst_file_close(s->file);
	(void)safetensors_free(s->st);
	closep(&s->fd);
	free(s->crcs);
	free(s->path);
	*s = (struct shard){ .fd = -1 };
}
