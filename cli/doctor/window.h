/* SPDX-License-Identifier: MIT */
/* The part of penstock doctor about windows: which backend opens them, and why other backends do
 * not. */
#ifndef CLI_DOCTOR_WINDOW_H
#define CLI_DOCTOR_WINDOW_H

#include "tools/common/util.h"

struct json_object;

/* Print the lines of one device; none for the host, whose memory needs no window. */
void doctor_window_print(const struct pst_device *dev);

/* Return the lines of doctor_window_print() as JSON: "error", which is "" if backends could be
 * tried, and "backends". */
struct json_object *doctor_window_json(const struct pst_device *dev);

#endif
