/* SPDX-License-Identifier: MIT */
/*
 * Names of files: scheme://rest, or a path.
 */
#ifndef PST_SCHEME_H
#define PST_SCHEME_H

#include <stddef.h>
#include <string.h>

/* Return the number of leading characters that a scheme may have: [a-z][a-z0-9+.-]*. */
static inline size_t scheme_chars(const char *text)
{
	if (*text < 'a' || *text > 'z')
		return 0;
	return strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789+.-");
}

/* Return the length of a name's scheme; 0 for a path. */
static inline size_t scheme_len(const char *name)
{
	size_t n = scheme_chars(name);

	return n && strncmp(name + n, "://", 3) == 0 ? n : 0;
}

/*
 * Return how many bytes of a name may be shown in messages.  The query of a URL may grant access to
 * the file, and the part before an @ may contain a password.
 */
static inline int scheme_shown_len(const char *name)
{
	size_t len = scheme_len(name), host;

	if (!len)
		return (int)strlen(name);
	len += 3;
	host = strcspn(name + len, "/?#");
	if (memchr(name + len, '@', host))
		return (int)len;
	return (int)(len + strcspn(name + len, "?#"));
}

#endif
