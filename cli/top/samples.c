/* SPDX-License-Identifier: MIT */
#include "cli/top/samples.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

const char *sample_label(const struct sample *s, const char *key)
{
	for (unsigned i = 0; i < s->nr_labels; i++)
		if (!strcmp(s->key[i], key))
			return s->label[i];
	return "";
}

/* Return the end of the name at s, or NULL if there is none. */
static char *name_end(char *s)
{
	if (!isalpha((unsigned char)*s) && *s != '_' && *s != ':')
		return NULL;
	while (isalnum((unsigned char)*s) || *s == '_' || *s == ':')
		s++;
	return s;
}

/* Remove the escapes between quotes, in place.  Return the byte after the closing quote, or
 * NULL. */
static char *unquote(char *s)
{
	char *to = s;

	for (; *s != '"'; s++) {
		if (*s == '\\') {
			s++;
			if (*s != '\\' && *s != '"' && *s != 'n')
				return NULL;
			*to++ = *s == 'n' ? '\n' : *s;
		} else if (*s == '\0') {
			return NULL;
		} else {
			*to++ = *s;
		}
	}
	*to = '\0';
	return s + 1;
}

/* Parse key="value",key="value"}.  Return the byte after the brace, or NULL. */
static char *read_labels(char *s, struct sample *ret)
{
	while (*s != '}') {
		char *key = s, *end = name_end(s);

		if (!end || end[0] != '=' || end[1] != '"' || ret->nr_labels == SAMPLE_LABELS)
			return NULL;
		*end = '\0';
		ret->key[ret->nr_labels] = key;
		ret->label[ret->nr_labels++] = end + 2;
		s = unquote(end + 2);
		if (!s || (*s != ',' && *s != '}'))
			return NULL;
		s += *s == ',';
	}
	return s + 1;
}

/* Parse a number that extends to the end of the line. */
static bool read_value(const char *s, double *ret)
{
	char *end;

	if (!isdigit((unsigned char)*s) && (!*s || !strchr("+-.IN", *s)))
		return false;
	*ret = strtod(s, &end);
	return end != s && !*end;
}

/* Parse a line such as: name 1, or name{key="value"} 1. */
static bool samples_read_line(char *line, struct sample *ret)
{
	char *end = name_end(line), *value = end;

	*ret = (struct sample){ .name = line };
	if (!end)
		return false;
	if (*end == '{')
		value = read_labels(end + 1, ret);
	if (!value || *value != ' ')
		return false;
	*end = '\0';
	return read_value(value + 1, &ret->value);
}

int samples_read(char *text, size_t len, int (*fn)(void *arg, const struct sample *s), void *arg,
		 unsigned *ret_line)
{
	char *end = text + len, *next;

	*ret_line = 0;
	for (char *line = text; line < end; line = next) {
		char *stop = memchr(line, '\n', (size_t)(end - line));
		struct sample s;
		int r;

		++*ret_line;
		if (!stop || memchr(line, '\0', (size_t)(stop - line)))
			return -EPROTO;
		*stop = '\0';
		next = stop + 1;
		if (!*line || *line == '#')
			continue;
		if (!samples_read_line(line, &s))
			return -EPROTO;
		r = fn(arg, &s);
		if (r)
			return r;
	}
	return 0;
}
