/* SPDX-License-Identifier: MIT */
/* Grants: the right to use another process' memory; manual page: pst_grant(3). */
#ifndef PENSTOCK_GRANT_H
#define PENSTOCK_GRANT_H

#include <penstock/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Read the memory. */
#define PST_RIGHT_READ (1u << 0)
/* Write the memory. */
#define PST_RIGHT_WRITE (1u << 1)

/*
 * The right to use a range of another process' memory.  Treat a grant as a secret: fd and ipc
 * open the whole allocation and not only the range.  The library never logs a grant, never
 * writes one to disk and never sends one to another uid.
 */
struct pst_grant {
	size_t sz;         /* sizeof(struct pst_grant) */
	uint32_t kind;     /* enum pst_kind */
	uint32_t rights;   /* PST_RIGHT_* */
	uint8_t uuid[16];  /* UUID of the device */
	uint64_t size;     /* bytes of the allocation */
	uint64_t off;      /* first byte of the range in the allocation */
	uint64_t len;      /* bytes of the range */
	int32_t fd;        /* descriptor, closed by pst_grant_done(); -1: none */
	uint32_t reserved; /* 0 */
	uint8_t ipc[64];   /* the vendor's handle; zero for host and software device */
};

/**
 * pst_mem_export() - create a grant for a range of memory
 * @mem:       host memory allocated with PST_MEM_SHARED, or device memory
 * @off:       first byte of the range in @mem
 * @len:       bytes
 * @rights:    PST_RIGHT_*
 * @ret_grant: the grant, to be released with pst_grant_done()
 *
 * Return: 0; -ERANGE beyond the end of @mem; -EINVAL for no rights or unknown ones; -EACCES for
 * more rights than @mem has; -EOPNOTSUPP for memory that cannot be exported; -EMFILE.
 */
PST_API int pst_mem_export(struct pst_mem *mem, uint64_t off, uint64_t len, uint32_t rights,
			   struct pst_grant *ret_grant);

/**
 * pst_mem_import() - use the memory of a grant
 * @grant:   the grant, which the caller still releases; its fd is duplicated
 * @ret_mem: the memory, to be freed with pst_mem_free()
 *
 * Trusts nothing in @grant: checks the descriptor's type and size first.
 *
 * Return: 0; -EINVAL for an invalid grant; -E2BIG if a member is set that this version does not
 * know; -ENODEV if this machine lacks the memory's device; -EACCES for rights that the descriptor
 * does not give; -ENOMEM, -EMFILE.
 */
PST_API int pst_mem_import(const struct pst_grant *grant, struct pst_mem **ret_mem);

/**
 * pst_grant_done() - close the descriptor of a grant, and wipe the grant
 * @grant: the grant; may be NULL or zeroed
 */
PST_API void pst_grant_done(struct pst_grant *grant);

/**
 * pst_grant_send() - send a grant to the process at the other end of a socket
 * @sock:        a connected AF_UNIX SOCK_STREAM or SOCK_SEQPACKET socket
 * @grant:       the grant, which the caller still releases
 * @deadline_ns: when to give up; 0 tries once
 *
 * Return: 0; -EACCES if the peer runs under another uid, or under the overflow uid of this user
 * namespace; -EPROTOTYPE if @sock is another kind of socket; -EINVAL, -E2BIG as pst_mem_import();
 * -ETIMEDOUT; -EPIPE if the peer has closed the socket.
 */
PST_API int pst_grant_send(int sock, const struct pst_grant *grant, uint64_t deadline_ns);

/**
 * pst_grant_recv() - receive a grant
 * @sock:        as in pst_grant_send()
 * @ret_grant:   the grant, to be released with pst_grant_done()
 * @deadline_ns: when to give up; 0 tries once
 *
 * Return: 0; -EACCES as pst_grant_send(); -EBADMSG for bytes that are not a grant; -ETIMEDOUT;
 * -EPIPE if the peer has closed the socket.
 */
PST_API int pst_grant_recv(int sock, struct pst_grant *ret_grant, uint64_t deadline_ns);

#ifdef __cplusplus
}
#endif
#endif
