/* SPDX-License-Identifier: MIT */
/*
 * libibverbs, loaded at run time.
 *
 *	verbs_types.h	the binary interface: structs and constants
 *	verbs_syms.h	its functions
 *	verbs.c		the loader; errors in words
 *	nic.h		RDMA devices: port, GID, abilities
 *	mr.h		protection domains, and memory registered with one
 *	blob.h		what two endpoints tell each other before they connect
 *	endpoint.h	a connection: one-sided reads and writes, messages
 *	selftest.h	a device that is joined to itself, to try its way to memory
 *
 * The files know memory by mem/mem.h, and neither files nor requests.
 */
#ifndef PST_VERBS_H
#define PST_VERBS_H

#include "net/verbs/verbs_types.h"

struct verbs_api {
#define SYM(result, name, args) result(*name) args;
#define OPT SYM
#include "net/verbs/verbs_syms.h"
};

/* Filled by verbs_load(), constant afterwards. */
extern struct verbs_api vb;

/*
 * Load libibverbs, once in the process; PST_LIBIBVERBS names another file.
 *
 * Return: 0; -ENODEV with a sentence where it is missing, each time.
 */
int verbs_load(void);

/* "remote access error", as the library's own words are; never NULL. */
const char *verbs_status_name(uint32_t status);

/*
 * The errno of a failed completion: -EACCES for a key or a range that the peer does not allow,
 * -EFAULT for memory of ours, -ETIMEDOUT where the peer did not answer, -EAGAIN where it had
 * posted no buffer for a message, -EMSGSIZE for a message longer than the peer's buffer,
 * -ECANCELED for what was queued behind a failure, -EREMOTEIO, -EIO.
 */
int verbs_status_errno(uint32_t status);

#endif
