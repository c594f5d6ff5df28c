/* SPDX-License-Identifier: MIT */
#ifndef STREAMER_CODE_H
#define STREAMER_CODE_H

#include <stdbool.h>

#include <streamer.h>

/* Return the text of any code. */
const char *code_text(int code);

/* Return the code for an errno r, positive or negative, of a range's file. */
int code_of(int r);

/* Return RUNAI_SUCCESS for local paths and s3://, or an error for other object storage, which is
 * not supported. */
int code_of_path(const char *path);

/* Return true for s3://BUCKET/KEY. */
bool path_is_object(const char *path);

#endif
