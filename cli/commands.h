/* SPDX-License-Identifier: MIT */
/* The commands: argv[0] is the command's name; each returns an exit status. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include <stdbool.h>

int cmd_demo(int argc, char *argv[]);
int cmd_doctor(int argc, char *argv[]);
int cmd_cp(int argc, char *argv[]);
int cmd_ls(int argc, char *argv[]);
int cmd_stat(int argc, char *argv[]);
int cmd_rm(int argc, char *argv[]);
int cmd_mv(int argc, char *argv[]);
int cmd_truncate(int argc, char *argv[]);
int cmd_sum(int argc, char *argv[]);
int cmd_bench(int argc, char *argv[]);
int cmd_perf(int argc, char *argv[]);
int cmd_window(int argc, char *argv[]);
int cmd_mount(int argc, char *argv[]);
int cmd_umount(int argc, char *argv[]);
int cmd_serve(int argc, char *argv[]);
int cmd_run(int argc, char *argv[]);
int cmd_top(int argc, char *argv[]);
int cmd_tier(int argc, char *argv[]);
int cmd_kv(int argc, char *argv[]);

/* If the program was started as the helper of mount(8), act as such and return true. */
bool mount_helper(int argc, char *argv[], int *ret_status);

extern const char demo_usage[], doctor_usage[], cp_usage[], bench_usage[], window_usage[],
	mount_usage[], umount_usage[], run_usage[], serve_usage[], top_usage[], tier_usage[],
	ls_usage[], stat_usage[], rm_usage[], mv_usage[], truncate_usage[], kv_usage[],
	perf_usage[], sum_usage[];

#endif
