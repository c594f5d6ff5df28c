/* SPDX-License-Identifier: MIT */
/*
 * Registrations that an allocation keeps for RDMA devices (registration.c).
 *
 * A registration belongs to an allocation and a registrar, which is one protection domain of one
 * device.  A registration is made on first use, stays for the next user, and ends with the
 * allocation, with the registrar, or when there are too many.  An address that is reused after a
 * free belongs to another allocation, which has no registration yet.
 */
#ifndef PST_REGISTRATION_H
#define PST_REGISTRATION_H

#include "core/queue/object.h"
#include "mem/registrar.h"

struct registration;

/*
 * One use of a registration, from registration_get() until registration_put().  The caller owns the
 * struct.
 */
struct reg_user {
	/*
	 * Called once, under a lock, when the memory was freed or unwrapped, or its owner ended the
	 * grant.  May be NULL.  The function may set a flag or write to an eventfd, and must not
	 * call functions of this folder.  The user then stops the work that uses the memory and
	 * calls registration_put(); the memory stays until then.
	 */
	void (*ended)(struct reg_user *u);

	/* Members that registration_get() sets. */
	const struct mem_reg *reg;
	uint64_t epoch; /* unique number of the registration in this process, for keys of peers */
	struct registration *of;
	struct list link;
};

/*
 * Register bytes of a region with a registrar, or find them registered.
 *
 * With rights for a peer (MEM_REG_REMOTE_*), exactly the range is registered, because a peer with
 * the key reaches all of it.  The registration ends with its last user.
 *
 * Without such rights, the library's own memory, and memory whose owner promised that its pages
 * stay (PST_MEM_PINNED), is registered once, as a whole.  Other wrapped memory may be unmapped and
 * mapped again between two requests, so only the range is registered, until its last user.
 * MEM_REG_LOCAL_WRITE says that the device stores into the range.
 *
 * The caller holds a reference of the region (a pst_mem) during the call, but not afterwards.
 *
 * Return: 0; -ERANGE; -EFAULT for wrapped memory that was freed; -ENOSPC if too many registrations
 * are in use; or an error of the registrar.
 */
int registration_get(struct region *r, struct mem_registrar *by, uint64_t off, uint64_t len,
		     uint32_t rights, struct reg_user *u);
void registration_put(struct reg_user *u);

/* Return how many users hold a key for peers to bytes of this range of a region. */
unsigned registration_keys(struct region *r, uint64_t off, uint64_t len);

/* End all registrations of a registrar, and wait for those that other threads are ending.  Return
 * 0, or -EBUSY while some are in use. */
int registrations_forget(struct mem_registrar *by);

struct registration_stats {
	uint64_t made, found, ended, evicted, failed; /* numbers since the start of the process */
	uint64_t live, live_bytes;                    /* number of registrations now, and their
						       * bytes */
};

void registration_stats(struct registration_stats *ret);

/* Maximum registrations of the process, unless a test sets another limit. */
#define REGISTRATIONS_MAX 4096u

/* Set the most registrations of the process, for tests; 0: REGISTRATIONS_MAX. */
void registration_limit(unsigned nr);

#endif
