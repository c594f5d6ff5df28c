/* SPDX-License-Identifier: MIT */
/* Tell systemd the state of a Type=notify service; see sd_notify(3). */
#ifndef PST_NET_NOTIFY_H
#define PST_NET_NOTIFY_H

/* Send state, such as "READY=1\nSTATUS=it serves".  Return 0, also without systemd; -errno if it
 * could not be sent. */
int notify_service(const char *state);

#endif
