/* SPDX-License-Identifier: MIT */
/*
 * gdrcopy's tools, with their names, options and output, which scripts parse.  A link to the
 * penstock binary with the name of a tool runs that tool.  The texts are those of gdrcopy 2.6 and
 * of its first release; the tools measure windows.  Unsupported options are rejected.
 */
#ifndef GDRAPI_GDRTOOLS_H
#define GDRAPI_GDRTOOLS_H

#include "cli/window/window.h"

#define GDR_PAGE KIB(64) /* bytes; alignment of sizes and addresses */

/* Run the tool that argv[0] names, and set *ret_status to its exit status.  Return false if argv[0]
 * names no tool. */
bool gdr_tool(int argc, char *argv[], int *ret_status);

/* Third result besides 0 and -errno: help was requested and printed. */
#define GDR_HELP 1

struct gdr_opts {
	char device[PST_DEVICE_NAME_MAX];
	uint64_t size, copy, off;
	uint64_t writes, reads; /* arguments of the options -w (in apiperf the warm-up) and -r */
	uint64_t count;
	uint32_t caching; /* enum pst_caching; 0: any */
	bool every_size;
};

/*
 * Parse the options. known: for getopt(3), with a leading ':'. ret holds the defaults on entry.
 * Return 0, GDR_HELP, or -errno with a sentence.
 */
int gdr_parse(int argc, char *argv[], const char *known, struct gdr_opts *ret);

/* Parse the argument of -d: a number or a name such as soft:0. */
int gdr_parse_device(const char *text, char ret[PST_DEVICE_NAME_MAX]);

/* Print the first lines: all devices of the kind, and the chosen one. */
int gdr_print_devices(const char *device);

/* Allocate memory whose size and address are multiples of GDR_PAGE, and open a window on it. */
int gdr_open(const struct gdr_opts *o, uint64_t size, struct win *ret);

const char *gdr_alloc_name(const struct win *win);

/* Print the lines from "info.va" to "page offset". */
void gdr_print_info(const struct win *win, bool with_types);

/* Unmap and free everything, printing the lines from "unmapping buffer" to "closing gdrdrv". */
void gdr_close(struct win *win);

/* Return the rate in MB/s, with MB = 2^20 bytes. */
double gdr_mb_per_s(uint64_t bytes, uint64_t ns);

/* These functions return 0, or -errno with a sentence. */
int gdr_copybw(int argc, char *argv[]);
int gdr_copylat(int argc, char *argv[]);
int gdr_apiperf(int argc, char *argv[]);
int gdr_sanity(int argc, char *argv[]);
int gdr_first_validate(int argc, char *argv[]);
int gdr_first_copybw(int argc, char *argv[]);

#endif
