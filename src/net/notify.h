/* SPDX-License-Identifier: MIT */
/* What systemd is told of a service of Type=notify; see sd_notify(3).  Elsewhere nothing. */
#ifndef PST_NET_NOTIFY_H
#define PST_NET_NOTIFY_H

/* state: like "READY=1\nSTATUS=it serves".  0; -errno when nobody took it. */
int notify_service(const char *state);

#endif
