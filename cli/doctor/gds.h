/* SPDX-License-Identifier: MIT */
/* penstock doctor --gds: what a direct way between files and NVIDIA GPUs needs. */
#ifndef CLI_DOCTOR_GDS_H
#define CLI_DOCTOR_GDS_H

#include <sys/types.h>

#include "cli/doctor/mounts.h"

#define GDS_SIDES_MAX 64
#define GDS_CHECKS_MAX 24

struct gds_checks {
	struct pst_check of[GDS_CHECKS_MAX];
	int nr;          /* 0 with an error */
	char error[640]; /* why there are none, or "" */
};

/* The result of a request of this process. */
struct gds_request {
	uint32_t state; /* enum pst_state, of the path gds */
	uint32_t why;
	int32_t detail;
	uint32_t paths;  /* of a plain read; 0: it failed */
	char error[256]; /* then why, or "" */
};

/* The file with one GPU. */
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
	bool ok; /* every GPU is reached directly, and requests take that way */
	char verdict[3][800];
	char no_gpu[256];     /* why there is none, or "" */
	char file[4096];      /* that was looked at, or "" */
	char dir[4096];       /* where a scratch file was, or "" */
	char what[4200];      /* one of the two, in words */
	char file_error[640]; /* why there is none, or "" */
	dev_t dev;            /* that the file is on */
	struct gds_side sides[GDS_SIDES_MAX];
	unsigned nr_sides;
	struct gds_checks alone; /* without a GPU: the file's side */
	struct gds_mount mounts[MOUNTS_MAX];
	int nr_mounts;
	unsigned more_mounts;
	char mounts_error[256];
};

/* The named check, or NULL. */
const struct pst_check *gds_checks_find(const struct gds_checks *c, const char *name);

/*
 * As pst_path_check() for the path gds.  The library asks another process first, and says EAGAIN
 * until that has an answer: waits for it.  Once it has hung it is not asked again.
 */
int gds_path_check(struct pst_file *file, struct pst_mem *mem, uint32_t op,
		   struct pst_path_info *ret);

/* file, or with NULL one of our own in dir, or where scratch files belong.  An exit status. */
int doctor_gds(const char *dir, const char *file, bool json);

/* gds_print.c: fill in the verdict; and the two forms. */
void doctor_gds_judge(struct gds_report *rep);
void doctor_gds_print(const struct gds_report *rep);
void doctor_gds_print_json(const struct gds_report *rep);

#endif
