/* SPDX-License-Identifier: MIT */
/*
 * libpenstock_streamer.so - the C calls of Run:ai's model streamer over libpenstock.
 *
 * Declared from the documented behaviour of runai-model-streamer 0.17, whose Python loads the
 * library that the variable STREAMER_LIBRARY names.  The calls of 0.15 and 0.16 are at the end.
 *
 * Rules that hold for every call, so that they are not repeated:
 *   - Results are enum runai_code.  What went wrong is also said in a sentence, a line of the
 *     log: PST_LOG=error.
 *   - Any thread may make any call at any time.
 *   - A streamer is a number in the form of a pointer and never followed: one that is old,
 *     invented or NULL gives RUNAI_INVALID.
 *   - In a forked child the streamers of its parent give RUNAI_UNKNOWN, and so does a request if
 *     its parent made one before.
 */
#ifndef PENSTOCK_STREAMER_H
#define PENSTOCK_STREAMER_H

#include <stddef.h>
#include <stdint.h>

#ifndef RUNAI_API
#define RUNAI_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum runai_code {
	RUNAI_SUCCESS = 0,
	RUNAI_FINISHED = 1,    /* the streamer ended; old calls: nothing is outstanding */
	RUNAI_FILE_ACCESS = 2, /* a file cannot be opened or read */
	RUNAI_EOF = 3,         /* a range reaches past the end of its file */
	RUNAI_NO_S3 = 4,
	RUNAI_GLIBC = 5, /* not given here */
	RUNAI_FD_LIMIT = 6,
	RUNAI_INVALID = 7,  /* an argument, or memory that is not there */
	RUNAI_EMPTY = 8,    /* old calls: a request without ranges */
	RUNAI_BUSY = 9,     /* old calls: responses of the last request are outstanding */
	RUNAI_CA_FILE = 10, /* not given here */
	RUNAI_UNKNOWN = 11, /* no way on; the memory of a range may still be written to */
	RUNAI_PLUGIN = 12,  /* not given here */
	RUNAI_NO_GCS = 13,
	RUNAI_NO_AZURE = 14,
	RUNAI_OBJECT_LENGTH = 15, /* not given here */
	RUNAI_TIMED_OUT = 16,     /* no response within the time */
	RUNAI_MIXED = 17,         /* kinds of storage mixed in one request */
	RUNAI_CREDENTIALS = 18,   /* others were set before */
	RUNAI_RETRY = 19,         /* 19 to 22: not given here */
	RUNAI_STRATEGY_SET = 20,
	RUNAI_STRATEGY_NONE = 21,
	RUNAI_READER = 22,
	RUNAI_DEVICE_TYPE = 23,   /* neither host nor CUDA */
	RUNAI_NO_DEVICES = 24,    /* no CUDA here */
	RUNAI_NO_DEVICE = 25,     /* no device of that ordinal */
	RUNAI_DEVICE_MEMORY = 26, /* staging memory was refused */
	RUNAI_DEVICE_COPY = 27,
	RUNAI_DEVICE_DRIVER = 28, /* not given here */
};

#define RUNAI_DEVICE_CPU 0
#define RUNAI_DEVICE_CUDA 1

/* By value in two words of a register: an enum and a number, 8 bytes. */
struct runai_device {
	int type; /* RUNAI_DEVICE_* */
	int id;   /* CUDA's ordinal; ignored for the host */
};

/* One file of a listing: its path, which begins with the prefix as it was given, and its size. */
typedef void (*runai_list_fn)(const char *path, size_t size, void *user_data);

/**
 * runai_file_streamer_start() - begin a streamer
 * @ret_streamer: the streamer
 *
 * Starts no thread and opens no device: the first request does.
 *
 * Return: 0; RUNAI_INVALID for NULL; RUNAI_FD_LIMIT, RUNAI_UNKNOWN without memory.
 */
RUNAI_API int runai_file_streamer_start(void **ret_streamer);

/**
 * runai_file_streamer_end() - end a streamer
 * @streamer: the streamer; one that is not valid is ignored
 *
 * Ranges not begun are dropped.  Waits until no read is under way, so that memory may be freed
 * after it, and for as long as a file system hangs.  Threads in runai_file_streamer_response()
 * get RUNAI_FINISHED.
 */
RUNAI_API void runai_file_streamer_end(void *streamer);

/**
 * runai_file_streamer_set_credentials() - credentials for object storage
 * @streamer: the streamer
 * @keys:     names
 * @values:   their values
 * @nr:       how many
 *
 * Nothing here uses them.  They are kept to tell others, and wiped at the end.
 *
 * Return: 0; RUNAI_CREDENTIALS when others were set before; RUNAI_INVALID; RUNAI_UNKNOWN.
 */
RUNAI_API int runai_file_streamer_set_credentials(void *streamer, const char *const *keys,
						  const char *const *values, unsigned nr);

/**
 * runai_file_streamer_set_fs_strategy() - how files are read
 * @streamer: ignored
 *
 * libpenstock chooses for each read.  Its further arguments are not documented, and not looked at;
 * a line of the log says so.
 *
 * Return: 0.
 */
RUNAI_API int runai_file_streamer_set_fs_strategy(void *streamer);

/**
 * runai_file_streamer_request() - read ranges of files into memory
 * @streamer:       the streamer
 * @ret_submission: a number for this request, from 1 on; may be NULL
 * @nr_files:       how many files
 * @paths:          their paths
 * @nr_ranges:      how many ranges each has; may be 0
 * @offs:           where they begin in the file: first those of the first file
 * @sizes:          bytes of each; may be 0
 * @dsts:           where they go: addresses of the host or, for CUDA, of the device
 * @device:         whose memory that is, all of it
 *
 * Copies its arguments, opens nothing and waits for no I/O.  Each range has one response.
 * Memory must stay until then; that of ranges that failed with RUNAI_UNKNOWN until the streamer
 * ended.
 *
 * Return: 0; RUNAI_INVALID for NULL, arguments that cannot be read, an end beyond int64_t, an
 * address that wraps or more than 16 Mi ranges under way; RUNAI_MIXED; RUNAI_DEVICE_TYPE;
 * RUNAI_NO_DEVICE for an ordinal below 0; RUNAI_FD_LIMIT; RUNAI_UNKNOWN without memory or
 * threads, and in a forked child.
 */
RUNAI_API int runai_file_streamer_request(void *streamer, uint64_t *ret_submission,
					  uint32_t nr_files, const char *const *paths,
					  const uint32_t *nr_ranges, const size_t *offs,
					  const size_t *sizes, void *const *dsts,
					  struct runai_device device);

/**
 * runai_file_streamer_response() - take the result of a range
 * @streamer:       the streamer
 * @ret_submission: the number of its request
 * @ret_file:       which file of the request
 * @ret_range:      which range of the file
 * @ret_done:       1 with the last response of a request, else 0
 * @timeout_ms:     how long to wait; 0: for ever
 *
 * In any order, of all requests.  The @ret arguments are 0 when there is no range.
 *
 * Return: what became of the range: 0, RUNAI_FILE_ACCESS, RUNAI_EOF, RUNAI_INVALID, RUNAI_UNKNOWN,
 * RUNAI_NO_S3, RUNAI_NO_GCS, RUNAI_NO_AZURE, RUNAI_FD_LIMIT, RUNAI_NO_DEVICES, RUNAI_NO_DEVICE,
 * RUNAI_DEVICE_MEMORY, RUNAI_DEVICE_COPY.  Without a range: RUNAI_TIMED_OUT; RUNAI_FINISHED;
 * RUNAI_INVALID for NULL or a streamer that is none.
 */
RUNAI_API int runai_file_streamer_response(void *streamer, uint64_t *ret_submission,
					   uint32_t *ret_file, uint32_t *ret_range, int *ret_done,
					   unsigned timeout_ms);

/**
 * runai_file_streamer_response_str() - a code in words
 * @code: enum runai_code
 *
 * Return: a text that is not to be freed.
 */
RUNAI_API const char *runai_file_streamer_response_str(int code);

/**
 * runai_file_streamer_probe_direct_block_size() - how O_DIRECT wants memory and files to agree
 * @streamer:  the streamer
 * @paths:     files that will be read
 * @nr:        how many
 * @ret_block: a power of two, 512 at least: the largest that one of them asks for, or a page
 *             where that is not known; written in any case
 *
 * Return: 0; RUNAI_UNKNOWN when a path does not tell; RUNAI_INVALID.
 */
RUNAI_API int runai_file_streamer_probe_direct_block_size(void *streamer, const char *const *paths,
							  unsigned nr, size_t *ret_block);

/**
 * runai_file_streamer_list_files() - the files below a folder
 * @streamer:  the streamer
 * @prefix:    the folder
 * @recursive: not 0: those of folders in it too, but behind no symbolic link
 * @allow:     patterns of fnmatch(3) for whole paths, of which one must match; may be NULL
 * @nr_allow:  how many; 0: all paths
 * @ignore:    patterns of which none may match
 * @nr_ignore: how many
 * @fn:        is called for each regular file, also behind a symbolic link, in no order
 * @user_data: for @fn
 *
 * Return: 0; RUNAI_FILE_ACCESS when a folder cannot be read; RUNAI_UNKNOWN when @prefix is no
 * folder; RUNAI_NO_S3, RUNAI_NO_GCS, RUNAI_NO_AZURE; RUNAI_INVALID.
 */
RUNAI_API int runai_file_streamer_list_files(void *streamer, const char *prefix, int recursive,
					     const char *const *allow, unsigned nr_allow,
					     const char *const *ignore, unsigned nr_ignore,
					     runai_list_fn fn, void *user_data);

/* ------------------------------------------------------ 0.15 and 0.16 */

/**
 * runai_start() - begin a streamer
 * @ret_streamer: the streamer
 *
 * Return: as runai_file_streamer_start().
 */
RUNAI_API int runai_start(void **ret_streamer);

/**
 * runai_end() - end a streamer
 * @streamer: the streamer
 */
RUNAI_API void runai_end(void *streamer);

/**
 * runai_request() - read runs of files, one behind the other, into one buffer
 * @streamer: the streamer
 * @nr_files: how many files
 * @paths:    their paths
 * @offs:     where the run of each begins
 * @sizes:    bytes of each run
 * @dsts:     the first is the buffer; others are not looked at
 * @nr_parts: how many parts, one behind the other, the run of each file has
 * @parts:    their sizes, for each file
 * @key:      not used, as all behind it: credentials
 * @secret:   not used
 * @token:    not used
 * @region:   not used
 * @endpoint: not used
 *
 * Return: as runai_file_streamer_request(), and RUNAI_BUSY, RUNAI_EMPTY.
 */
RUNAI_API int runai_request(void *streamer, uint32_t nr_files, const char *const *paths,
			    const size_t *offs, const size_t *sizes, void *const *dsts,
			    const uint32_t *nr_parts, const size_t *const *parts, const char *key,
			    const char *secret, const char *token, const char *region,
			    const char *endpoint);

/**
 * runai_response() - take the result of a part
 * @streamer: the streamer
 * @ret_file: which file
 * @ret_part: which part of it
 *
 * Return: as runai_file_streamer_response(); RUNAI_FINISHED when nothing is outstanding.
 */
RUNAI_API int runai_response(void *streamer, uint32_t *ret_file, uint32_t *ret_part);

/**
 * runai_response_str() - a code in words
 * @code: enum runai_code
 *
 * Return: as runai_file_streamer_response_str().
 */
RUNAI_API const char *runai_response_str(int code);

/**
 * runai_list_files() - the files below a folder, since 0.16
 * @prefix:    as in runai_file_streamer_list_files(), and so to @user_data
 * @recursive: as there
 * @allow:     as there
 * @nr_allow:  as there
 * @ignore:    as there
 * @nr_ignore: as there
 * @fn:        as there
 * @user_data: as there
 * @keys:      not used: credentials
 * @values:    not used
 * @nr:        not used
 *
 * Return: as there.
 */
RUNAI_API int runai_list_files(const char *prefix, int recursive, const char *const *allow,
			       unsigned nr_allow, const char *const *ignore, unsigned nr_ignore,
			       runai_list_fn fn, void *user_data, const char *const *keys,
			       const char *const *values, unsigned nr);

#ifdef __cplusplus
}
#endif
#endif
