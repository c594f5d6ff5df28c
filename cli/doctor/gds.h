/* SPDX-License-Identifier: MIT */
/* penstock doctor --gds: what a direct path between files and NVIDIA GPUs needs. */
#ifndef CLI_DOCTOR_GDS_H
#define CLI_DOCTOR_GDS_H

#include <sys/types.h>

#include "cli/doctor/mounts.h"

#define GDS_SIDES_MAX 64
#define GDS_CHECKS_MAX 24

struct gds_checks {
	struct pst_check of[GDS_CHECKS_MAX];
	int nr;          /* number of checks; 0 with an error */
	char error[640]; /* why there are no checks, or "" */
};

/* Result of a request made by this process. */
struct gds_request {
	uint32_t state; /* enum pst_state of the path gds */
	uint32_t why;
	int32_t detail;
	uint32_t paths;  /* paths of an ordinary read; 0: it failed */
	char error[256]; /* why the read failed, or "" */
};

/* The results for the file and one GPU. */
struct gds_side {
	struct pst_device dev;
	struct gds_checks checks;
	struct gds_request request;
};

struct gds_mount {
	struct mount at;
	struct gds_checks checks;
};

struct gds_report {
	bool ok; /* every GPU has a direct path, and requests use it */
	char verdict[3][800];
	char no_gpu[256];     /* why there is no GPU, or "" */
	char file[4096];      /* the user's file, or "" */
	char dir[4096];       /* directory of the scratch file, or "" */
	char what[4200];      /* the file or the scratch file, in words for a sentence */
	char file_error[640]; /* why there is no file, or "" */
	dev_t dev;            /* device number of the file's mount */
	struct gds_side sides[GDS_SIDES_MAX];
	unsigned nr_sides;
	struct gds_checks alone; /* checks of the file alone, if there is no GPU */
	struct gds_mount mounts[MOUNTS_MAX];
	int nr_mounts;
	unsigned more_mounts;
	char mounts_error[256];
};

/* Return the check of that name, or NULL. */
const struct pst_check *gds_checks_find(const struct gds_checks *c, const char *name);

/*
 * Call pst_path_check() for the path gds, waiting while it reports EAGAIN because another process
 * probes.  After a hang, do not wait again.
 */
int gds_path_check(struct pst_file *file, struct pst_mem *mem, uint32_t op,
		   struct pst_path_info *ret);

/* Report on file; NULL: on a scratch file in dir, or in the default directory.  Return an exit
 * status. */
int doctor_gds(const char *dir, const char *file, bool json);

/* Functions of gds_print.c: fill in the verdict, print both formats. */
void doctor_gds_judge(struct gds_report *rep);
void doctor_gds_print(const struct gds_report *rep);
void doctor_gds_print_json(const struct gds_report *rep);

#endif
