/* SPDX-License-Identifier: MIT */
#include "tools/common/safetensors.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <json-c/json.h>

#include "base/base.h"

/*
 * Bytes of memory per item, as measured with json-c 0.16. json-c's tree can take 100 times the
 * header's size, so the most memory needed is computed before parsing.  The items: the text, a copy
 * of it without NULs, and a temporary string of the same length; an object with its table of 16
 * entries; an array; a value, or a name while a table grows.  160,000 tensors fit.
 */
#define TEXT_COST 4u
#define OBJECT_COST 900u
#define ARRAY_COST 256u
#define VALUE_COST 160u
#define COST_MAX (512u << 20)
#define NUL_ESCAPE "\\u0000"
#define DEPTH_MAX 32 /* nested objects and arrays: header, tensor, array, and unknown members */

/* Buffer for a parser's sentence. */
struct sink {
	char *buf;
	size_t len;
};

__attribute__((format(printf, 3, 4))) static int refuse(struct sink why, int err, const char *fmt,
							...)
{
	va_list ap;

	va_start(ap, fmt);
	if (why.len)
		(void)vsnprintf(why.buf, why.len, fmt, ap);
	va_end(ap);
	return -err;
}

static const struct {
	const char *name;
	unsigned bits;
} dtypes[] = {
	{ "BOOL", 8 },    { "F4", 4 },          { "F6_E2M3", 6 },     { "F6_E3M2", 6 },
	{ "U8", 8 },      { "I8", 8 },          { "F8_E5M2", 8 },     { "F8_E4M3", 8 },
	{ "F8_E8M0", 8 }, { "F8_E4M3FNUZ", 8 }, { "F8_E5M2FNUZ", 8 }, { "I16", 16 },
	{ "U16", 16 },    { "F16", 16 },        { "BF16", 16 },       { "I32", 32 },
	{ "U32", 32 },    { "F32", 32 },        { "C64", 64 },        { "F64", 64 },
	{ "I64", 64 },    { "U64", 64 },
};

static void safetensors_json_putp(struct json_object **o)
{
	(void)json_object_put(*o);
}

static void tokener_freep(struct json_tokener **t)
{
	if (*t)
		json_tokener_free(*t);
}

/* Return the bytes of the UTF-8 character at p; 0 if there is none. */
static size_t utf8_len(const unsigned char *p, size_t len)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t n = p[0] < 0x80 ? 1 : p[0] >> 5 == 6 ? 2 : p[0] >> 4 == 14 ? 3 : 4;
	uint32_t c = n == 1 ? p[0] : p[0] & (0x7fu >> n);

	if (n > len || (n == 4 && p[0] >> 3 != 30))
		return 0;
	for (size_t i = 1; i < n; i++) {
		if (p[i] >> 6 != 2)
			return 0;
		c = c << 6 | (p[i] & 0x3f);
	}
	return c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? 0 : n;
}

/* Return the value of four hexadecimal digits; -1 if they are malformed. */
static int hex4(const char *p, size_t len)
{
	int v = 0;

	for (size_t i = 0; i < 4; i++) {
		if (i >= len || !isxdigit((unsigned char)p[i]))
			return -1;
		v = v << 4 | (p[i] <= '9' ? p[i] - '0' : (p[i] | 32) - 'a' + 10);
	}
	return v;
}

/* Return the bytes of the escape at p, which begins with a backslash; 0 if it is malformed. */
static size_t escape_len(const char *p, size_t len)
{
	int v;

	if (len < 2)
		return 0;
	if (p[1] != 'u')
		return p[1] && strchr("\"\\/bfnrt", p[1]) ? 2 : 0;
	v = hex4(p + 2, len - 2);
	if (v < 0 || (v >= 0xdc00 && v < 0xe000))
		return 0;
	if (v < 0xd800 || v >= 0xe000)
		return 6;
	/* A surrogate must be followed by its other half. */
	if (len < 12 || p[6] != '\\' || p[7] != 'u')
		return 0;
	v = hex4(p + 8, len - 8);
	return v >= 0xdc00 && v < 0xe000 ? 12 : 0;
}

/* Say in @why why a string must not have the byte at p. */
static int refuse_char(const char *p, size_t at, struct sink why)
{
	if ((unsigned char)*p < 0x20)
		return refuse(why, EINVAL,
			      "a name in the header contains the control character %#04x, at "
			      "byte %zu",
			      (unsigned)*p, at);
	return refuse(why, EINVAL, "the header is not valid %s at byte %zu",
		      *p == '\\' ? "JSON" : "UTF-8", at);
}

/* Return the bytes of the string character at p; 0 if a string must not have it. */
static size_t safetensors_char_len(const char *p, size_t len)
{
	if (*p == '\\')
		return escape_len(p, len);
	return (unsigned char)*p < 0x20 ? 0 : utf8_len((const unsigned char *)p, len);
}

/*
 * Refuse text that json-c accepts and the format forbids: single quotes, control characters in
 * strings, escapes of half a surrogate pair, and malformed UTF-8.  Also count members, because
 * json-c drops the first of two equal names, and NULs in strings.
 */
static int scan(const char *p, size_t len, size_t *ret_members, size_t *ret_nuls, struct sink why)
{
	size_t members = 0, nuls = 0, cost = TEXT_COST * len, n;
	bool in_string = false;

	for (size_t i = 0; i < len; i += n) {
		n = 1;
		if (p[i] == '\0')
			return refuse(why, EINVAL, "the header contains a NUL byte");
		if (p[i] == '"') {
			in_string = !in_string;
			continue;
		}
		if (in_string) {
			n = safetensors_char_len(p + i, len - i);
			if (!n)
				return refuse_char(p + i, i, why);
			nuls += n == 6 && !memcmp(p + i, NUL_ESCAPE, 6);
			continue;
		}
		if (!strchr(" \t\r\n{}[]:,+-.0123456789eEtrufalsn", p[i]))
			return refuse(why, EINVAL, "the header is not valid JSON at byte %zu", i);
		members += p[i] == ':';
		cost += p[i] == '{' ? OBJECT_COST : p[i] == '[' ? ARRAY_COST : 0;
		cost += p[i] == ':' || p[i] == ',' ? VALUE_COST : 0;
		if (cost > COST_MAX)
			return refuse(why, EINVAL,
				      "the header holds too many values: to read it would "
				      "take more than %u MiB",
				      COST_MAX >> 20);
	}
	*ret_members = members;
	*ret_nuls = nuls;
	return 0;
}

/*
 * Return a copy of the text with U+2400, the symbol for NUL, for each NUL in a string: names here
 * end at a NUL.  Skips escaped backslashes; scan() has checked the text.
 */
static char *show_nuls(const char *p, size_t len)
{
	static const char picture[] = { '2', '4', '0', '0' };
	char *copy = malloc(len);

	if (!copy)
		return NULL;
	memcpy(copy, p, len);
	for (size_t i = 0; i + 6 <= len; i++) {
		if (copy[i] != '\\')
			continue;
		if (!memcmp(copy + i, NUL_ESCAPE, 6))
			memcpy(copy + i + 2, picture, sizeof(picture));
		i++;
	}
	return copy;
}

/* Count the members of all objects within a value. */
static size_t count_members(struct json_object *o)
{
	size_t nr = 0;

	if (json_object_is_type(o, json_type_object)) {
		json_object_object_foreach(o, key, value)
		{
			(void)key;
			nr += 1 + count_members(value);
		}
	} else if (json_object_is_type(o, json_type_array)) {
		for (size_t i = 0; i < json_object_array_length(o); i++)
			nr += count_members(json_object_array_get_idx(o, i));
	}
	return nr;
}

/* Read a whole number from 0 to max. */
static bool get_u64(struct json_object *o, uint64_t max, uint64_t *ret)
{
	uint64_t v;

	if (!json_object_is_type(o, json_type_int))
		return false;
	/* json-c clips larger numbers to INT64_MAX, which exceeds every limit here. */
	if (json_object_get_int64(o) < 0)
		return false;
	v = json_object_get_uint64(o);
	if (v > max)
		return false;
	*ret = v;
	return true;
}

static int parse_tensor(const char *name, struct json_object *o, uint64_t data_off,
			uint64_t data_len, struct safetensor *t, struct sink why)
{
	struct json_object *dtype = NULL, *shape = NULL, *offsets = NULL;
	uint64_t begin, end, length, elements = 1, bits = 0;

	if (!json_object_is_type(o, json_type_object))
		return refuse(why, EINVAL,
			      "tensor '%.80s' is described by something else than an "
			      "object",
			      name);
	(void)json_object_object_get_ex(o, "dtype", &dtype);
	(void)json_object_object_get_ex(o, "shape", &shape);
	(void)json_object_object_get_ex(o, "data_offsets", &offsets);
	if (!dtype || !shape || !offsets)
		return refuse(why, EINVAL,
			      "tensor '%.80s' does not have dtype, shape and data_offsets", name);

	for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
		if (json_object_is_type(dtype, json_type_string) &&
		    !strcmp(json_object_get_string(dtype), dtypes[i].name)) {
			t->dtype = dtypes[i].name;
			bits = dtypes[i].bits;
		}
	}
	if (!bits)
		return refuse(why, EINVAL, "tensor '%.80s' has the unknown dtype '%.40s'", name,
			      json_object_get_string(dtype));

	if (!json_object_is_type(shape, json_type_array))
		return refuse(why, EINVAL, "the shape of tensor '%.80s' is no array", name);
	for (size_t i = 0; i < json_object_array_length(shape); i++) {
		if (!get_u64(json_object_array_get_idx(shape, i), INT64_MAX, &length))
			return refuse(why, EINVAL, "dimension %zu of tensor '%.80s' is no size", i,
				      name);
		if (__builtin_mul_overflow(elements, length, &elements))
			return refuse(why, EINVAL, "the shape of tensor '%.80s' overflows", name);
	}
	if (__builtin_mul_overflow(elements, bits, &bits))
		return refuse(why, EINVAL, "the shape of tensor '%.80s' overflows", name);
	if (bits % 8)
		return refuse(why, EINVAL, "tensor '%.80s' does not end at a whole byte", name);

	if (!json_object_is_type(offsets, json_type_array) ||
	    json_object_array_length(offsets) != 2 ||
	    !get_u64(json_object_array_get_idx(offsets, 0), UINT64_MAX - 1, &begin) ||
	    !get_u64(json_object_array_get_idx(offsets, 1), UINT64_MAX - 1, &end) || begin > end)
		return refuse(why, EINVAL,
			      "the data_offsets of tensor '%.80s' are no begin and end", name);
	if (end > data_len)
		return refuse(why, EINVAL,
			      "tensor '%.80s' ends %llu bytes past the end of the file: "
			      "the file is truncated or its header is wrong",
			      name, (unsigned long long)(end - data_len));
	if (end - begin != bits / 8)
		return refuse(why, EINVAL,
			      "tensor '%.80s' has %llu bytes, but its shape and dtype "
			      "need %llu",
			      name, (unsigned long long)(end - begin),
			      (unsigned long long)(bits / 8));
	t->off = data_off + begin;
	t->len = end - begin;
	t->name = strdup(name);
	return t->name ? 0 : refuse(why, ENOMEM, "out of memory");
}

static int parse_metadata(struct json_object *o, struct sink why)
{
	if (!o)
		return 0;
	if (!json_object_is_type(o, json_type_object))
		return refuse(why, EINVAL, "__metadata__ is no object");
	json_object_object_foreach(o, key, value)
	{
		if (!json_object_is_type(value, json_type_string))
			return refuse(why, EINVAL, "__metadata__ has '%.80s', which is no text",
				      key);
	}
	return 0;
}

static int by_offset(const void *a, const void *b)
{
	const struct safetensor *x = a, *y = b;

	if (x->off != y->off)
		return x->off < y->off ? -1 : 1;
	/* Sort an empty tensor before the one that begins at the same offset. */
	return (x->len > y->len) - (x->len < y->len);
}

static int check_layout(const struct safetensors *st, struct sink why)
{
	uint64_t at = st->data_off;

	for (size_t i = 0; i < st->nr; i++) {
		const struct safetensor *t = &st->tensors[i];

		if (t->off < at)
			return refuse(why, EINVAL, "tensors '%.80s' and '%.80s' overlap",
				      i ? st->tensors[i - 1].name : "", t->name);
		if (t->off > at)
			return refuse(why, EINVAL,
				      "%llu bytes before tensor '%.80s' belong to no "
				      "tensor",
				      (unsigned long long)(t->off - at), t->name);
		at += t->len;
	}
	if (at != st->data_off + st->data_len)
		return refuse(why, EINVAL, "%llu bytes at the end of the file belong to no tensor",
			      (unsigned long long)(st->data_off + st->data_len - at));
	return 0;
}

/* Return the first character after white space, which the format does not allow there. */
static size_t first_of(const char *json, size_t len)
{
	size_t i = 0;

	while (i < len - 1 && strchr(" \t\r\n", json[i]) && json[i])
		i++;
	return i;
}

static int parse_json(const char *json, size_t len, struct safetensors *st, struct sink why)
{
	_cleanup_(tokener_freep) struct json_tokener *tok = json_tokener_new_ex(DEPTH_MAX);
	_cleanup_(safetensors_json_putp) struct json_object *root = NULL;
	_cleanup_(freep) char *shown = NULL;
	size_t members = 0, nuls = 0;
	enum json_tokener_error e;
	int r;

	if (!tok)
		return refuse(why, ENOMEM, "out of memory");
	if (json[first_of(json, len)] != '{')
		return refuse(why, EINVAL,
			      "the header does not begin with '{': this is no safetensors "
			      "file");
	r = scan(json, len, &members, &nuls, why);
	if (r < 0)
		return r;
	if (nuls) {
		shown = show_nuls(json, len);
		if (!shown)
			return refuse(why, ENOMEM, "out of memory");
		json = shown;
	}
	json_tokener_set_flags(tok, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
	root = json_tokener_parse_ex(tok, json, (int)len);
	e = json_tokener_get_error(tok);
	if (e == json_tokener_continue)
		return refuse(why, EINVAL, "the header is JSON that does not end");
	if (e != json_tokener_success)
		return refuse(why, EINVAL, "the header is not valid JSON at byte %zu: %s",
			      json_tokener_get_parse_end(tok), json_tokener_error_desc(e));
	for (size_t i = json_tokener_get_parse_end(tok); i < len; i++)
		if (!strchr(" \t\r\n", json[i]))
			return refuse(why, EINVAL, "the header goes on after its JSON");
	if (!json_object_is_type(root, json_type_object))
		return refuse(why, EINVAL, "the header is no JSON object");

	st->tensors = calloc((size_t)json_object_object_length(root) + 1, sizeof(*st->tensors));
	if (!st->tensors)
		return refuse(why, ENOMEM, "out of memory");
	json_object_object_foreach(root, key, value)
	{
		if (!strcmp(key, "__metadata__"))
			r = parse_metadata(value, why);
		else
			r = parse_tensor(key, value, st->data_off, st->data_len,
					 &st->tensors[st->nr++], why);
		if (r < 0)
			return r;
	}
	if (count_members(root) != members)
		return refuse(why, EINVAL, "the header has a tensor or a field twice");

	qsort(st->tensors, st->nr, sizeof(*st->tensors), by_offset);
	return check_layout(st, why);
}

/*
 * Name the format of a file that is not a safetensors file, with a cure.  least: shortest signature
 * that counts; longer if the first 8 bytes may well be a length.
 */
static const char *other(const uint8_t *buf, size_t least, const char *otherwise)
{
	static const struct {
		const char *begin;
		size_t len;
		const char *is;
	} others[] = {
		{ "version ", 8,
		  "this is the pointer that Git LFS leaves in place of the file: run 'git lfs "
		  "pull' in the repository" },
		{ "PK\3\4", 4,
		  "this is a zip file, as torch.save() and numpy.savez() write it: save its "
		  "tensors as safetensors" },
		{ "GGUF", 4, "this is a GGUF file: take the model's safetensors files" },
		{ "\223NUMPY", 6, "this is a .npy file: save its array as safetensors" },
		{ "\211HDF", 4, "this is an HDF5 file: save its arrays as safetensors" },
		{ "\x1f\x8b\x08", 3, "this is compressed by gzip: unpack it by gunzip" },
		{ "\x28\xb5\x2f\xfd", 4, "this is compressed by zstd: unpack it by unzstd" },
		{ "\xfd\x37zXZ", 5, "this is compressed by xz: unpack it by unxz" },
		{ "<!", 2, "this is a web page: download the file itself" },
		{ "<html", 5, "this is a web page: download the file itself" },
		{ "{", 1, "this is JSON: name the safetensors file" },
		{ "\x80\2", 2, "this is a pickle, as old versions of torch.save() write it" },
		{ "\0\0\0\0\0\0\0", 8,
		  "it begins with zeros: its download or copy did not come to its end" },
	};

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (others[i].len >= least && !memcmp(buf, others[i].begin, others[i].len))
			return others[i].is;
	return otherwise;
}

/* Read the header's length from the first 8 bytes. */
static int header_len(const uint8_t *buf, size_t len, uint64_t file_size, uint64_t *ret,
		      struct sink why)
{
	uint64_t n = 0;

	if (!file_size)
		return refuse(why, EINVAL,
			      "the file is empty: its download or copy did not come to its end");
	if (file_size < 8 || len < 8)
		return refuse(why, EINVAL,
			      "the file has %llu bytes, less than the 8 that a safetensors "
			      "file begins with",
			      (unsigned long long)file_size);
	for (int i = 7; i >= 0; i--)
		n = n << 8 | buf[i];
	if (n > SAFETENSORS_HEADER_MAX)
		return refuse(why, EINVAL,
			      "the header would be %llu bytes long, the limit is %u: %s",
			      (unsigned long long)n, SAFETENSORS_HEADER_MAX,
			      other(buf, 1, "this is no safetensors file"));
	if (n > file_size - 8)
		return refuse(why, EINVAL,
			      "the header of %llu bytes is longer than the file of %llu: %s",
			      (unsigned long long)n, (unsigned long long)file_size,
			      other(buf, 3, "the file is truncated"));
	if (n < 2)
		return refuse(why, EINVAL, "the header is empty: %s",
			      other(buf, 1, "this is no safetensors file"));
	*ret = n;
	return 0;
}

int safetensors_parse(const void *buf, size_t len, uint64_t file_size, struct safetensors **ret,
		      char *why_buf, size_t why_len)
{
	_cleanup_(safetensors_freep) struct safetensors *st = NULL;
	struct sink why = { why_buf, why_len };
	uint64_t n;
	int r;

	r = header_len(buf, len, file_size, &n, why);
	if (r < 0)
		return r;
	if (len < 8 + n)
		return refuse(why, EMSGSIZE, "the header was not read whole");
	st = calloc(1, sizeof(*st));
	if (!st)
		return refuse(why, ENOMEM, "out of memory");
	st->data_off = 8 + n;
	st->data_len = file_size - st->data_off;
	r = parse_json((const char *)buf + 8, n, st, why);
	if (r < 0)
		return r;
	*ret = st;
	st = NULL;
	return 0;
}

static int safetensors_read_some(int fd, uint8_t *buf, size_t len, uint64_t off, struct sink why)
{
	while (len) {
		ssize_t n = pread(fd, buf, len, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return refuse(why, errno, "it cannot be read: %s", strerror(errno));
		if (n == 0)
			return refuse(why, EINVAL, "the file became shorter while it was read");
		buf += n;
		off += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

int safetensors_read(int fd, struct safetensors **ret, char *why_buf, size_t why_len)
{
	struct sink why = { why_buf, why_len };
	_cleanup_(freep) uint8_t *buf = NULL;
	uint64_t size, n;
	uint8_t head[8];
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return refuse(why, errno, "%s", strerror(errno));
	if (!S_ISREG(st.st_mode))
		return refuse(why, EINVAL, "it is no regular file");
	size = (uint64_t)st.st_size;
	if (size >= 8) {
		r = safetensors_read_some(fd, head, 8, 0, why);
		if (r < 0)
			return r;
	}
	r = header_len(head, size >= 8 ? 8 : 0, size, &n, why);
	if (r < 0)
		return r;
	buf = malloc(8 + n);
	if (!buf)
		return refuse(why, ENOMEM, "out of memory");
	r = safetensors_read_some(fd, buf, 8 + n, 0, why);
	if (r < 0)
		return r;
	return safetensors_parse(buf, 8 + n, size, ret, why_buf, why_len);
}

struct safetensors *safetensors_free(struct safetensors *st)
{
	if (!st)
		return NULL;
	for (size_t i = 0; i < st->nr; i++)
		free(st->tensors[i].name);
	free(st->tensors);
	free(st);
	return NULL;
}
