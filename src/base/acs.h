/* SPDX-License-Identifier: MIT */
/* ACS (access control services) of PCI bridges, which may redirect transfers between devices to the
 * root complex. */
#ifndef PST_ACS_H
#define PST_ACS_H

#include <linux/pci_regs.h>

#include "base/base.h"

#define ACS_CONFIG_MAX 4096u /* bytes of a PCI device's configuration space */

static inline unsigned acs_word(const uint8_t *p)
{
	return p[0] | (unsigned)p[1] << 8;
}

/*
 * Return whether a bridge's configuration redirects transfers.  The bits are those that the kernel
 * checks when it looks for a path (drivers/pci/p2pdma.c).  ACS upstream forwarding redirects
 * nothing by itself; it forwards what a lower bridge redirected.
 *
 * Return: 1 or 0; -EACCES if the configuration is truncated, as it is for users other than root.
 */
static inline int acs_redirects(const uint8_t *config, size_t len)
{
	size_t at = 0x100; /* offset of the first extended capability */

	if (len <= 64)
		return -EACCES;
	/* Bound the loop: the list may be circular, and each capability takes at least 8 bytes. */
	for (unsigned i = 0; i < ACS_CONFIG_MAX / 8 && at >= 0x100 && at + 4 <= len; i++) {
		unsigned id = acs_word(config + at), rest = acs_word(config + at + 2);

		if (id == PCI_EXT_CAP_ID_ACS && at + PCI_ACS_CTRL + 2 <= len)
			return (acs_word(config + at + PCI_ACS_CTRL) &
				(PCI_ACS_RR | PCI_ACS_CR | PCI_ACS_EC)) != 0;
		at = rest >> 4 & ~3u;
	}
	return 0;
}

#endif
