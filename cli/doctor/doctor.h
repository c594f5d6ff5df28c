/* SPDX-License-Identifier: MIT */
/* The report of penstock doctor: findings, the verdict on them, the two forms. */
#ifndef CLI_DOCTOR_H
#define CLI_DOCTOR_H

#include "tools/common/util.h"

#define DOCTOR_DEVICES_MAX 80
#define DOCTOR_TEXT 256 /* of a sentence, bytes */

/* One way between a device and the scratch file, in one direction. */
struct trial {
	uint32_t state; /* enum pst_state */
	uint32_t why;
	int32_t detail;
	uint32_t paths;          /* of the completion that proved it */
	char error[DOCTOR_TEXT]; /* what went wrong when it was tried, or "" */
};

/* All zero where nothing was tried. */
struct trials {
	struct trial auto_read, auto_write;
	struct trial read[PST_PATH_MAX + 1], write[PST_PATH_MAX + 1];
};

struct device_report {
	struct pst_device dev;
	char facts[PST_DEVICE_TEXT_MAX]; /* of pst_device_text(), or "" */
	char error[DOCTOR_TEXT];         /* why its memory could not be had, or "" */
	struct trials t;
};

/* GPUs that the PCI bus shows, whether a driver serves them or not. */
struct gpus {
	unsigned nr;
	char first[32]; /* "0000:17:00.0" */
};

struct limits {
	uint64_t memlock, nofile, as; /* UINT64_MAX: unlimited */
	int uring_disabled;           /* sysctl kernel.io_uring_disabled; -1: not there */
	uint64_t cgroup_memory;
	uint64_t shm_size; /* of /dev/shm; 0: not there */
	char container[64];
};

struct report {
	struct machine m;
	struct limits l;
	char uring[DOCTOR_TEXT], threads[DOCTOR_TEXT]; /* "" when to be had, else the sentence */
	struct device_report devs[DOCTOR_DEVICES_MAX];
	unsigned nr_devs;
	char no_cuda[DOCTOR_TEXT]; /* why no NVIDIA GPU is served, or "" */
	struct gpus nvidia;
	char dir[4096];
	char dir_error[DOCTOR_TEXT];
	struct pst_file_info file;
	char verdict[3][800];
	bool ok;
};

/* Do one request on a queue of its own.  0, or -errno with a sentence; fewer bytes are an error. */
int doctor_request(const struct pst_io *io, struct pst_done *ret);

/* Fill in the verdict. */
void doctor_judge(struct report *rep);

void doctor_print(const struct report *rep);
void doctor_print_json(const struct report *rep);

#endif
