/* SPDX-License-Identifier: MIT */
#ifndef PST_PROVIDERS_H
#define PST_PROVIDERS_H

/* Make the providers known that the library itself has.  Called before a name is looked up. */
void providers_begin(void);

#endif
