/* SPDX-License-Identifier: MIT */
/*
 * Parse the table of contents of a safetensors file.  The file has 8 bytes with the length of a
 * JSON header (little endian), the header, and the tensors' bytes, without gaps up to the end of
 * the file.  Everything is checked: an accepted tensor is inside the file and has as many bytes as
 * its shape and type require.  Parsing took at most 510 MiB (json-c 0.16, x86-64: 98 MB with 2.1
 * million members, refused afterwards); a header that would take more is refused before parsing.  A
 * header with a NUL in a name is copied, so that the NUL can be replaced.
 */
#ifndef CLI_SAFETENSORS_H
#define CLI_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#define SAFETENSORS_HEADER_MAX 100000000u /* bytes; the format's own limit */

struct safetensor {
	char *name;        /* name of the tensor, with U+2400 for each NUL */
	const char *dtype; /* type, such as "BF16" */
	uint64_t off;      /* bytes from the start of the file */
	uint64_t len;      /* bytes; 0 if a dimension is 0 */
};

struct safetensors {
	uint64_t data_off;
	uint64_t data_len;
	size_t nr;
	struct safetensor *tensors; /* sorted by offset */
};

/*
 * Parse the table from the first bytes of a file.
 * @buf: the first bytes of the file
 * @len: bytes of @buf, which must contain the whole header
 * @file_size: bytes of the file
 * @ret: to be freed with safetensors_free()
 * @why: on failure, a sentence without a full stop
 *
 * Return: 0; -EINVAL for what the format forbids; -EMSGSIZE if @buf ends before the header does;
 * -ENOMEM.
 */
int safetensors_parse(const void *buf, size_t len, uint64_t file_size, struct safetensors **ret,
		      char *why, size_t why_len);

/* Parse the table of an open file.  Return the same as safetensors_parse(), or
 * another -errno. */
int safetensors_read(int fd, struct safetensors **ret, char *why, size_t why_len);

struct safetensors *safetensors_free(struct safetensors *st);

static inline void safetensors_freep(struct safetensors **st)
{
	(void)safetensors_free(*st);
}

#endif
