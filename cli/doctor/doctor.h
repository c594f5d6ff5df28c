/* SPDX-License-Identifier: MIT */
/* The report of penstock doctor: findings, the verdict, the two output formats. */
#ifndef CLI_DOCTOR_H
#define CLI_DOCTOR_H

#include "tools/common/util.h"

#define DOCTOR_DEVICES_MAX 80
#define DOCTOR_TEXT 256 /* bytes of a sentence */

/* A trial of one path between a device and the scratch file, in one direction. */
struct trial {
	uint32_t state; /* enum pst_state */
	uint32_t why;
	int32_t detail;
	uint32_t paths;          /* PST_PATH_BIT() of the paths in the trial's completion */
	char error[DOCTOR_TEXT]; /* why the trial failed, or "" */
};

/* Trials per path; all zero if nothing was tried. */
struct trials {
	struct trial auto_read, auto_write;
	struct trial read[PST_PATH_MAX + 1], write[PST_PATH_MAX + 1];
};

struct device_report {
	struct pst_device dev;
	char facts[PST_DEVICE_TEXT_MAX]; /* lines of pst_device_text(), or "" */
	char error[DOCTOR_TEXT];         /* why its memory could not be allocated, or "" */
	struct trials t;
};

/* GPUs on the PCI bus, with or without a working driver. */
struct gpus {
	unsigned nr;
	char first[32]; /* lowest address, such as "0000:17:00.0" */
};

struct limits {
	uint64_t memlock, nofile, as; /* limits in bytes or files; UINT64_MAX: unlimited */
	int uring_disabled;           /* sysctl kernel.io_uring_disabled; -1: missing */
	uint64_t cgroup_memory;
	uint64_t shm_size; /* bytes of /dev/shm; 0: missing */
	char container[64];
};

struct report {
	struct machine m;
	struct limits l;
	/* "" if the back end works, else a sentence. */
	char uring[DOCTOR_TEXT], threads[DOCTOR_TEXT];
	struct device_report devs[DOCTOR_DEVICES_MAX];
	unsigned nr_devs;
	char no_cuda[DOCTOR_TEXT]; /* why no NVIDIA GPU can be used, or "" */
	struct gpus nvidia;
	char dir[4096];
	char dir_error[DOCTOR_TEXT];
	struct pst_file_info file;
	char verdict[3][800];
	bool ok;
};

/* Run one request on a queue of its own.  Return 0, or -errno with a sentence; a short count is an
 * error. */
int doctor_request(const struct pst_io *io, struct pst_done *ret);

/* Fill in the verdict. */
void doctor_judge(struct report *rep);

void doctor_print(const struct report *rep);
void doctor_print_json(const struct report *rep);

#endif
