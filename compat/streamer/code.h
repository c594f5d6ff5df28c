/* SPDX-License-Identifier: MIT */
#ifndef STREAMER_CODE_H
#define STREAMER_CODE_H

#include <stdbool.h>

#include <streamer.h>

/* In words, for any number. */
const char *code_text(int code);

/* The code of a range whose file gave this errno, r, which is positive or negative. */
int code_of(int r);

/* RUNAI_SUCCESS for a path of this machine and for s3://; what other object storage gets, which
 * nothing here reads. */
int code_of_path(const char *path);

/* Is it s3://BUCKET/KEY? */
bool path_is_object(const char *path);

#endif
