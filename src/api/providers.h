/* SPDX-License-Identifier: MIT */
#ifndef PST_PROVIDERS_H
#define PST_PROVIDERS_H

/* Register the providers of files that are part of the library.  Called before a name is looked
 * up. */
void providers_begin(void);

#endif
