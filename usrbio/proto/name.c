/* SPDX-License-Identifier: MIT */
#include "usrbio/proto/name.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "usrbio/proto/number.h"

/* Bits for the attributes that were found in a name. */
enum {
	BLOCK = 1,
	DIRECTION = 2,
	PRIORITY = 4,
	TIMEOUT = 8,
	FLAGS = 16,
	GDR = 32,
};

static int parse_block(const char **p, struct usrbio_name *n)
{
	int r = usrbio_number(p, 10, UINT64_MAX, &n->block_size);

	return r == 0 && !n->block_size ? -EINVAL : r;
}

static int parse_depth(const char **p, struct usrbio_name *n)
{
	bool negative = **p == '-';
	uint64_t depth;
	int r;

	*p += negative;
	/* Refuse INT32_MIN, because callers negate the number. */
	r = usrbio_number(p, 10, INT32_MAX, &depth);
	if (r == 0)
		n->io_depth = negative ? -(int32_t)depth : (int32_t)depth;
	return r;
}

static int parse_priority(const char **p, struct usrbio_name *n)
{
	switch (**p) {
	case 'h':
		n->priority = USRBIO_HIGH;
		break;
	case 'l':
		n->priority = USRBIO_LOW;
		break;
	case 'n':
		n->priority = USRBIO_NORMAL;
		break;
	default: /* normal priority; the caller refuses any other letter */
		n->priority = USRBIO_NORMAL;
		return 0;
	}
	++*p;
	return 0;
}

/* Parse a number of 0 to INT32_MAX. */
static int parse_int(const char **p, int32_t *ret)
{
	uint64_t v;
	int r = usrbio_number(p, 10, INT32_MAX, &v);

	if (r == 0)
		*ret = (int32_t)v;
	return r;
}

static int parse_device(const char **p, struct usrbio_name *n)
{
	if (strncmp(*p, "dr.d", 4) != 0)
		return -EINVAL;
	*p += 4;
	return parse_int(p, &n->device);
}

/* Parse the attribute at *p, after its dot.  Return its bit, or -EINVAL. */
static int parse_attr(const char **p, struct usrbio_name *n)
{
	char letter = *(*p)++;

	switch (letter) {
	case 'b':
		return parse_block(p, n) == 0 ? BLOCK : -EINVAL;
	case 'r':
	case 'w':
		n->for_read = letter == 'r';
		return parse_depth(p, n) == 0 ? DIRECTION : -EINVAL;
	case 'p':
		return parse_priority(p, n) == 0 ? PRIORITY : -EINVAL;
	case 't':
		return parse_int(p, &n->timeout_ms) == 0 ? TIMEOUT : -EINVAL;
	case 'f':
		return usrbio_number(p, 2, UINT64_MAX, &n->flags) == 0 ? FLAGS : -EINVAL;
	case 'g':
		return parse_device(p, n) == 0 ? GDR : -EINVAL;
	/* Reject any other byte.  A NUL is rejected too, so nothing after the text is read. */
	default:
		return -EINVAL;
	}
}

/* Return the kind of a name with these attributes; 0 for a combination that no kind has. */
static enum usrbio_kind name_kind_of(int has)
{
	if (has & GDR)
		return has == GDR ? USRBIO_DEVICE : 0;
	if (has & DIRECTION)
		return has & BLOCK ? 0 : USRBIO_RING;
	return has & ~BLOCK ? 0 : USRBIO_BUFFER;
}

int usrbio_name_parse(const char *text, struct usrbio_name *ret)
{
	struct usrbio_name n = { .priority = USRBIO_NORMAL };
	const char *p = text;
	int has = 0, attr;

	if (strnlen(text, USRBIO_NAME_MAX) == USRBIO_NAME_MAX || usrbio_id_parse(p, n.id) < 0)
		return -EINVAL;
	for (p += USRBIO_ID_TEXT - 1; *p; has |= attr) {
		if (*p++ != '.')
			return -EINVAL;
		attr = parse_attr(&p, &n);
		if (attr < 0 || has & attr)
			return -EINVAL;
	}
	n.kind = name_kind_of(has);
	if (!n.kind)
		return -EINVAL;
	*ret = n;
	return 0;
}

__attribute__((format(printf, 2, 3))) static void append(char text[USRBIO_NAME_MAX],
							 const char *fmt, ...)
{
	size_t len = strlen(text);
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text + len, USRBIO_NAME_MAX - len, fmt, ap);
	va_end(ap);
}

static void append_flags(char text[USRBIO_NAME_MAX], uint64_t flags)
{
	char bits[65], *p = bits + 64;

	*p = '\0';
	for (; flags; flags >>= 1)
		*--p = flags & 1 ? '1' : '0';
	append(text, ".f%s", p);
}

static void append_ring(char text[USRBIO_NAME_MAX], const struct usrbio_name *name)
{
	append(text, ".%c%" PRId32, name->for_read ? 'r' : 'w', name->io_depth);
	if (name->priority != USRBIO_NORMAL)
		append(text, ".p%c", name->priority == USRBIO_HIGH ? 'h' : 'l');
	append(text, ".t%" PRId32, name->timeout_ms);
	if (name->flags)
		append_flags(text, name->flags);
}

void usrbio_name_format(const struct usrbio_name *name, char ret_text[USRBIO_NAME_MAX])
{
	usrbio_id_format(name->id, ret_text);
	if (name->kind == USRBIO_RING)
		append_ring(ret_text, name);
	else if (name->kind == USRBIO_DEVICE)
		append(ret_text, ".gdr.d%" PRId32, name->device);
	else if (name->block_size)
		append(ret_text, ".b%" PRIu64, name->block_size);
}
