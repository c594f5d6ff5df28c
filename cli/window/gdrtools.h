/* SPDX-License-Identifier: MIT */
/*
 * gdrcopy's own tools, under their names: with their options and the lines that scripts
 * read.  A link of such a name to the penstock binary makes it that tool.  The texts are
 * those of gdrcopy 2.6 and of its first release; the tools measure windows.  An option whose
 * effect cannot be had is refused.
 */
#ifndef CLI_GDRTOOLS_H
#define CLI_GDRTOOLS_H

#include "cli/window/window.h"

#define GDR_PAGE KIB(64) /* sizes and addresses are multiples of it */

/* Is argv[0] one of them?  Then it ran, and *ret_status is its exit status. */
bool gdr_tool(int argc, char *argv[], int *ret_status);

/* Beside 0 and -errno: help was asked for and given. */
#define GDR_HELP 1

struct gdr_opts {
	char device[PST_DEVICE_NAME_MAX];
	uint64_t size, copy, off;
	uint64_t writes, reads; /* -w, which warms up in apiperf, and -r */
	uint64_t count;
	uint32_t caching; /* enum pst_caching, 0: any */
	bool every_size;
};

/*
 * known: as getopt(3) takes it, with a leading ':'.  The values of ret are the defaults.
 * 0, GDR_HELP or -errno with a sentence.
 */
int gdr_parse(int argc, char *argv[], const char *known, struct gdr_opts *ret);

/* "-d 1" and "-d soft:0" are both taken. */
int gdr_parse_device(const char *text, char ret[PST_DEVICE_NAME_MAX]);

/* The head lines: all devices of the chosen one's kind, and the choice. */
int gdr_print_devices(const char *device);

/* Memory of a multiple of GDR_PAGE bytes at a multiple of it, and a window on it. */
int gdr_open(const struct gdr_opts *o, uint64_t size, struct win *ret);

const char *gdr_alloc_name(const struct win *win);

/* From "info.va" to "page offset". */
void gdr_print_info(const struct win *win, bool with_types);

/* "unmapping buffer" to "closing gdrdrv", and what they say. */
void gdr_close(struct win *win);

/* MB/s of 2^20 bytes. */
double gdr_mb_per_s(uint64_t bytes, uint64_t ns);

/* Each returns 0, or -errno with a sentence. */
int gdr_copybw(int argc, char *argv[]);
int gdr_copylat(int argc, char *argv[]);
int gdr_apiperf(int argc, char *argv[]);
int gdr_sanity(int argc, char *argv[]);
int gdr_first_validate(int argc, char *argv[]);
int gdr_first_copybw(int argc, char *argv[]);

#endif
