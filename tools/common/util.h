/* SPDX-License-Identifier: MIT */
/*
 * What every command needs: cleanup attributes, sentences for errors, sizes, names of
 * paths, the machine's facts, and signals that end a command in good order.
 */
#ifndef CLI_UTIL_H
#define CLI_UTIL_H

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <penstock.h>

#define _cleanup_(f) __attribute__((cleanup(f)))
#define _printf_(a, b) __attribute__((format(printf, a, b)))

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)                       \
	({                              \
		__typeof__(a) _a = (a); \
		__typeof__(b) _b = (b); \
		_a < _b ? _a : _b;      \
	})
#define MAX(a, b)                       \
	({                              \
		__typeof__(a) _a = (a); \
		__typeof__(b) _b = (b); \
		_a > _b ? _a : _b;      \
	})
#define TAKE_PTR(p)                     \
	({                              \
		__typeof__(p) _p = (p); \
		(p) = NULL;             \
		_p;                     \
	})
#define TAKE_FD(fd)             \
	({                      \
		int _fd = (fd); \
		(fd) = -1;      \
		_fd;            \
	})

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
#define GIB(n) ((uint64_t)(n) << 30)
#define NSEC_PER_MSEC UINT64_C(1000000)
#define NSEC_PER_SEC UINT64_C(1000000000)

static inline void freep(void *p)
{
	free(*(void **)p);
}

static inline void closep(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
}

static inline void fclosep(FILE **f)
{
	if (*f)
		(void)fclose(*f);
}

static inline void pst_memp(struct pst_mem **mem)
{
	(void)pst_mem_free(*mem);
}

static inline void pst_filep(struct pst_file **file)
{
	(void)pst_file_close(*file);
}

static inline void pst_queuep(struct pst_queue **queue)
{
	(void)pst_queue_free(*queue);
}

/* a is a power of two. */
static inline uint64_t align_up(uint64_t x, uint64_t a)
{
	return (x + a - 1) & ~(a - 1);
}

/* CLOCK_MONOTONIC in nanoseconds. */
static inline uint64_t now_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

/* xorshift64*; *state must not be 0. */
static inline uint64_t random_next(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * UINT64_C(0x2545f4914f6cdd1d);
}

/* User and system seconds of the whole process, its library threads included. */
double cpu_seconds(void);

/* GB/s (10^9); 0 when no time passed. */
double gb_per_s(uint64_t bytes, uint64_t ns);

/* ----------------------------------------------------------------- errors */

/*
 * Keep the sentence for a failure in the calling thread.
 * Return: -|err|, so that a failure is one line: return fail(ENOENT, "...").
 */
int fail(int err, const char *fmt, ...) _printf_(2, 3);

/* The same with the library's sentence, behind what was being done or to what. */
int fail_pst(int err, const char *what);

const char *fail_text(void);

/* The command that runs: messages begin with "penstock: NAME: ". */
extern const char *cmd_name;

/* A line on standard error in that form. */
void say(const char *fmt, ...) _printf_(1, 2);

/* A mistake on the command line: the line, a hint, and exit status 2 as the result. */
int usage_error(const char *fmt, ...) _printf_(1, 2);

/* The same for what getopt_long() with a leading ':' could not take. */
int option_error(char *const argv[], int c);

/* Say the sentence of a failure, unless a signal ended the command; the exit status. */
int exit_status(int r);

/* ---------------------------------------------------------------- signals */

/* The signal that asked the command to end, or 0. */
extern volatile sig_atomic_t stop_signal;

/* From now on SIGINT, SIGTERM and SIGHUP set stop_signal. */
void signals_catch(void);

/* ---------------------------------------------------------- text and numbers */

/* "4k", "1.5m", "2g", "4096", "1GiB"; 0 or -EINVAL.  Units are powers of two. */
int parse_size(const char *text, uint64_t *ret);

/* A whole number from min to max; 0 or -EINVAL. */
int parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *ret);

/* Seconds with a fraction, more than 0; 0 or -EINVAL. */
int parse_seconds(const char *text, double *ret);

/* "direct", "staged,direct" or "auto" as a policy; 0 or -EINVAL with a sentence. */
int parse_policy(const char *text, uint64_t *ret);

/* Can file operations be done by PST_BACKEND_URING or _THREADS?  err is 0 where they can. */
struct pst_check backend_check(uint32_t backend);

/* "auto", "uring" or "threads" as PST_BACKEND_*; 0 or -EINVAL. */
int parse_store(const char *text, uint32_t *ret);

struct text {
	char s[256];
};

/* These return a structure, so that several fit into one printf(). */
struct text size_text(uint64_t bytes);  /* "4 KiB", "1.5 GiB" */
struct text time_text(uint64_t ns);     /* "12.3 us" */
struct text rate_text(uint64_t bytes, uint64_t ns); /* GB/s without the unit: "1.43", "0.0036" */
struct text paths_text(uint32_t paths); /* "staged+direct"; "-" for none */
struct text why_text(uint32_t why, int32_t detail);

/* Reasons met by a number of requests. */
struct whys {
	uint64_t nr[PST_WHY_MAX + 1];
	int32_t detail[PST_WHY_MAX + 1]; /* of the latest */
};

void whys_add(struct whys *w, uint32_t why, int32_t detail);
void whys_merge(struct whys *w, const struct whys *other);
bool whys_any(const struct whys *w);

/* ----------------------------------------------------------------- machine */

struct machine {
	char cpu[128];    /* model, or "unknown processor" */
	char kernel[160]; /* "Linux 6.1.0 x86_64" */
	unsigned cpus;    /* that this process may use */
	unsigned online;
	uint64_t memory;    /* bytes; 0 when unknown */
	uint64_t available; /* bytes free to use, the control group's limit counted in */
};

void machine_facts(struct machine *ret);

/* The first line of a small file without its newline; 0 or -errno. */
int read_line(const char *path, char *buf, size_t len);

/* The limit of the control group's memory; UINT64_MAX for none or unknown. */
uint64_t cgroup_memory_limit(void);

/*
 * The device a command should use: name, or NULL for the first accelerator and the
 * software device where there is none.  0 or -errno with a sentence.
 */
int device_pick(const char *name, struct pst_device *ret);

/* "soft:0 (software device, ...)": name and model. */
struct text device_text(const struct pst_device *dev);

/* ------------------------------------------------------------------- files */

/* Make a private directory under dir, or where scratch files belong when it is NULL. */
int scratch_dir(const char *dir, char **ret_path);

/* Remove what scratch_dir() made and the plain files in it. */
void scratch_remove(const char *path);

/* All of it or -errno with a sentence; name is for the sentence. */
int write_all(int fd, const void *buf, size_t len, const char *name);
int pread_all(int fd, void *buf, size_t len, uint64_t off, const char *name);
int pwrite_all(int fd, const void *buf, size_t len, uint64_t off, const char *name);

/* Take a clean file out of the page cache, as far as the kernel obeys. */
void make_cold(int fd);

/* Read all of a file once, so that the page cache holds it; 0 or -errno. */
int make_warm(int fd, const char *name);

/*
 * The part of a file that is in the page cache, 0.0 to 1.0; negative where the kernel
 * does not say (a file that is neither owned nor writable).
 */
double resident_part(int fd);

#endif
