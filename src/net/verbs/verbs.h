/* SPDX-License-Identifier: MIT */
/*
 * libibverbs, loaded at run time.
 *
 *	verbs_types.h	the ABI: structs and constants
 *	verbs_syms.h	its functions
 *	verbs.c		the loader; names of errors
 *	nic.h		RDMA devices: port, GID, features
 *	mr.h		protection domains, and memory registered with one
 *	blob.h		what two endpoints exchange before they connect
 *	endpoint.h	a connection: one-sided reads and writes, messages
 *	selftest.h	a device connected to itself, to test its access to memory
 *
 * These files use mem/mem.h for memory, and know neither files nor requests.
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
 * Load libibverbs, once per process; PST_LIBIBVERBS names another file.
 *
 * Return: 0; -ENODEV with a sentence if it is missing, at each call.
 */
int verbs_load(void);

/* Return the library's text for a status, such as "remote access error"; never NULL. */
const char *verbs_status_name(uint32_t status);

/*
 * Return the errno of a failed completion: -EACCES for a key or range that the peer does not allow,
 * -EFAULT for bad local memory, -ETIMEDOUT if the peer did not answer, -EAGAIN if the peer had no
 * receive buffer, -EMSGSIZE for a message longer than that buffer, -ECANCELED for requests queued
 * behind a failure, -EREMOTEIO, -EIO.
 */
int verbs_status_errno(uint32_t status);

#endif
