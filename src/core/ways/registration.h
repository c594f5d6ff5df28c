/* SPDX-License-Identifier: MIT */
/*
 * Registrations that an allocation keeps for RDMA devices (registration.c).
 *
 * A registration belongs to an allocation and a registrar, which is one protection domain of one
 * device.  It is made when it is first asked for, and stays for the next user.  It ends with the
 * allocation, with the registrar, or when there are too many.  An address that comes back after a
 * free belongs to another allocation, and has no registration.
 */
#ifndef PST_REGISTRATION_H
#define PST_REGISTRATION_H

#include "core/queue/object.h"
#include "mem/registrar.h"

struct registration;

/*
 * One use of a registration.  The caller's, from registration_get() until registration_put().
 */
struct reg_user {
	/*
	 * NULL, or: the memory was freed or unwrapped, or its owner ended it.  Called once, under a
	 * lock: set a flag or write to an eventfd, and call nothing of this room.  The user stops
	 * the work that uses the memory and calls registration_put(); the memory stays until then.
	 */
	void (*ended)(struct reg_user *u);

	/* Set by registration_get(): */
	const struct mem_reg *reg;
	uint64_t epoch; /* another number for each registration of the process: for keys of peers */
	struct registration *of;
	struct list link;
};

/*
 * Register bytes of a region with a registrar, or find them registered.
 *
 * With rights for a peer (MEM_REG_REMOTE_*) exactly the range is registered, since a peer with the
 * key reaches all that is.  It ends with its last user.
 *
 * Without them, memory of the library's own, and memory whose owner promised that its pages stay
 * (PST_MEM_PINNED), is registered as a whole, once.  Other wrapped memory may be unmapped and
 * mapped again between two requests, and only its range is registered; it ends with its last user.
 * MEM_REG_LOCAL_WRITE says that the device stores into the range.
 *
 * The caller holds a reference of the region (a pst_mem) during the call, and needs none later.
 *
 * Return: 0; -ERANGE; -EFAULT for wrapped memory that was freed; -ENOSPC where too many
 * registrations are in use; what the registrar says.
 */
int registration_get(struct region *r, struct mem_registrar *by, uint64_t off, uint64_t len,
		     uint32_t rights, struct reg_user *u);
void registration_put(struct reg_user *u);

/* Return how many users have a key for peers to bytes of this range of a region. */
unsigned registration_keys(struct region *r, uint64_t off, uint64_t len);

/* End what is kept for a registrar, and wait for what other threads are ending.  0, or -EBUSY while
 * users have registrations of it. */
int registrations_forget(struct mem_registrar *by);

struct registration_stats {
	uint64_t made, found, ended, evicted, failed; /* ever */
	uint64_t live, live_bytes;                    /* now */
};

void registration_stats(struct registration_stats *ret);

#define REGISTRATIONS_MAX 4096u /* of the process, unless a test says otherwise */

/* For tests; 0: REGISTRATIONS_MAX. */
void registration_limit(unsigned nr);

#endif
