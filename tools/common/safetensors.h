/* SPDX-License-Identifier: MIT */
/*
 * The table of contents of a safetensors file: 8 bytes with the length of a JSON header,
 * little endian, the header, and the tensors' bytes, without a gap from the first to the
 * end of the file.  All of it is checked: an accepted tensor lies inside the file and has as many
 * bytes as its shape and type say.  Reading the largest header took 510 MiB at most (json-c 0.16,
 * x86-64: 98 MB of 2.1 million members, refused afterwards); a header that would take more is
 * refused before it is read.  A copy of the header is made where a name has a NUL.
 */
#ifndef CLI_SAFETENSORS_H
#define CLI_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#define SAFETENSORS_HEADER_MAX 100000000u /* bytes, the format's own limit */

struct safetensor {
	char *name;        /* U+2400 stands for NUL, which a name may have */
	const char *dtype; /* "BF16", ... */
	uint64_t off;      /* in the file */
	uint64_t len;      /* bytes; 0 for a tensor with a dimension of 0 */
};

struct safetensors {
	uint64_t data_off;
	uint64_t data_len;
	size_t nr;
	struct safetensor *tensors; /* in the order of their offsets */
};

/*
 * Read the table out of the first bytes of a file.
 * @buf:       the file from its first byte on
 * @len:       of @buf; must hold the whole header unless the header is wrong anyway
 * @file_size: bytes of the file
 * @ret:       to be freed with safetensors_free()
 * @why:       on failure, a sentence without a full stop
 *
 * Return: 0; -EINVAL for what the format forbids; -EMSGSIZE when @buf ends before the
 * header does; -ENOMEM.
 */
int safetensors_parse(const void *buf, size_t len, uint64_t file_size, struct safetensors **ret,
		      char *why, size_t why_len);

/* The same for an open file.  Also what read(2) says. */
int safetensors_read(int fd, struct safetensors **ret, char *why, size_t why_len);

struct safetensors *safetensors_free(struct safetensors *st);

static inline void safetensors_freep(struct safetensors **st)
{
	(void)safetensors_free(*st);
}

#endif
