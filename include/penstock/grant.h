/* SPDX-License-Identifier: MIT */
/* The right to use another process' memory; manual page: pst_grant(3). */
#ifndef PENSTOCK_GRANT_H
#define PENSTOCK_GRANT_H

#include <penstock/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PST_RIGHT_READ (1u << 0)
#define PST_RIGHT_WRITE (1u << 1)

/*
 * The right to use another process' memory.  fd and ipc open the whole allocation,
 * the neighbours of the range included: treat a grant as a secret.  The library
 * never logs one, never writes one to disk and never sends one to another uid.
 */
struct pst_grant {
	size_t sz;        /* sizeof(struct pst_grant) */
	uint32_t kind;    /* enum pst_kind */
	uint32_t rights;  /* PST_RIGHT_* */
	uint8_t uuid[16]; /* of the device */
	uint64_t size;    /* of the allocation */
	uint64_t off;     /* of the range in the allocation */
	uint64_t len;     /* of the range */
	int32_t fd;       /* owned by whoever holds the grant; -1 for none */
	uint32_t reserved;
	uint8_t ipc[64]; /* the vendor's handle; zero for host and soft */
};

/**
 * pst_mem_export() - make a grant for a range of memory
 * @mem:       host memory allocated with PST_MEM_SHARED, or device memory
 * @off:       first byte of the range in @mem
 * @len:       bytes
 * @rights:    PST_RIGHT_*
 * @ret_grant: the grant, to be ended with pst_grant_done()
 *
 * Return: 0; -ERANGE past the end of @mem; -EINVAL for no or unknown rights; -EACCES for
 * more rights than @mem has; -EOPNOTSUPP for memory that has no handle to export; -EMFILE.
 */
PST_API int pst_mem_export(struct pst_mem *mem, uint64_t off, uint64_t len, uint32_t rights,
			   struct pst_grant *ret_grant);

/**
 * pst_mem_import() - use the memory that a grant names
 * @grant:   stays the caller's; its fd is duplicated
 * @ret_mem: the memory, to be freed with pst_mem_free()
 *
 * Nothing in @grant is believed: the descriptor's type and size are checked first.
 *
 * Return: 0; -EINVAL for a grant that does not check; -E2BIG for one with a member set that
 * this version does not know; -ENODEV when its device is not here; -EACCES for rights that the
 * descriptor does not give; -ENOMEM, -EMFILE.
 */
PST_API int pst_mem_import(const struct pst_grant *grant, struct pst_mem **ret_mem);

/**
 * pst_grant_done() - close what a grant holds and wipe it
 * @grant: may be NULL; one that no call filled in holds nothing
 */
PST_API void pst_grant_done(struct pst_grant *grant);

/**
 * pst_grant_send() - hand a grant to the process at the other end of a socket
 * @sock:        a connected AF_UNIX SOCK_STREAM or SOCK_SEQPACKET socket
 * @grant:       stays the caller's
 * @deadline_ns: when to give up; 0 tries once
 *
 * Return: 0; -EACCES when the peer runs under another uid, or under one that stands for all
 * users without a number in this user namespace; -EPROTOTYPE when @sock is no such socket;
 * -EINVAL, -E2BIG as pst_mem_import(); -ETIMEDOUT; -EPIPE when the peer is gone.
 */
PST_API int pst_grant_send(int sock, const struct pst_grant *grant, uint64_t deadline_ns);

/**
 * pst_grant_recv() - receive a grant
 * @sock:        as in pst_grant_send()
 * @ret_grant:   the grant, to be ended with pst_grant_done()
 * @deadline_ns: when to give up; 0 tries once
 *
 * Return: 0; -EACCES as pst_grant_send(); -EBADMSG for bytes that are no grant; -ETIMEDOUT;
 * -EPIPE when the peer is gone.
 */
PST_API int pst_grant_recv(int sock, struct pst_grant *ret_grant, uint64_t deadline_ns);

#ifdef __cplusplus
}
#endif
#endif
