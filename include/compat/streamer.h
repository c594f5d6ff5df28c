/* SPDX-License-Identifier: MIT */
/*
 * libpenstock_streamer.so - the C calls of Run:ai's model streamer over libpenstock.
 *
 * Declared from the documented behaviour of runai-model-streamer 0.17, whose Python loads the
 * library that the variable STREAMER_LIBRARY names.  The calls of 0.15 and 0.16 are at the end.
 *
 * These rules hold for every call:
 *   - Results are enum runai_code.  With PST_LOG=error the log has a sentence for each error.
 *   - Any thread may make any call at any time.
 *   - A streamer is a number in a pointer, which is never dereferenced: NULL and streamers that
 *     have ended give RUNAI_INVALID.
 *   - In a forked child, streamers of its parent give RUNAI_UNKNOWN, and so does every request if
 *     the parent has made one.
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
	RUNAI_FINISHED = 1,       /* the streamer ended; old calls also: no range is left */
	RUNAI_FILE_ACCESS = 2,    /* a file cannot be opened or read */
	RUNAI_EOF = 3,            /* a range reaches past the end of its file */
	RUNAI_NO_S3 = 4,          /* the module for objects of S3 is missing */
	RUNAI_GLIBC = 5,          /* never returned here */
	RUNAI_FD_LIMIT = 6,       /* too many open descriptors */
	RUNAI_INVALID = 7,        /* an invalid argument, or memory that is not mapped */
	RUNAI_EMPTY = 8,          /* old calls: a request without ranges */
	RUNAI_BUSY = 9,           /* old calls: responses of the last request are outstanding */
	RUNAI_CA_FILE = 10,       /* never returned here */
	RUNAI_UNKNOWN = 11,       /* any other error; a range's memory may still be written to */
	RUNAI_PLUGIN = 12,        /* never returned here */
	RUNAI_NO_GCS = 13,        /* objects of Google Cloud Storage are not supported */
	RUNAI_NO_AZURE = 14,      /* objects of Azure are not supported */
	RUNAI_OBJECT_LENGTH = 15, /* never returned here */
	RUNAI_TIMED_OUT = 16,     /* no response within the timeout */
	RUNAI_MIXED = 17,         /* one request mixes kinds of storage */
	RUNAI_CREDENTIALS = 18,   /* other credentials were set before */
	RUNAI_RETRY = 19,         /* never returned here */
	RUNAI_STRATEGY_SET = 20,  /* never returned here */
	RUNAI_STRATEGY_NONE = 21, /* never returned here */
	RUNAI_READER = 22,        /* never returned here */
	RUNAI_DEVICE_TYPE = 23,   /* the type of the device is neither host nor CUDA */
	RUNAI_NO_DEVICES = 24,    /* this machine has no CUDA */
	RUNAI_NO_DEVICE = 25,     /* no device has that ordinal */
	RUNAI_DEVICE_MEMORY = 26, /* staging memory cannot be allocated */
	RUNAI_DEVICE_COPY = 27,   /* copying to the device failed */
	RUNAI_DEVICE_DRIVER = 28, /* never returned here */
};

#define RUNAI_DEVICE_CPU 0
#define RUNAI_DEVICE_CUDA 1

/* A device, passed by value in one register of 8 bytes. */
struct runai_device {
	int type; /* RUNAI_DEVICE_* */
	int id;   /* CUDA's ordinal; ignored for the host */
};

/* Called for each file of a listing, with its path, which begins with the given prefix, and its
 * size. */
typedef void (*runai_list_fn)(const char *path, size_t size, void *user_data);

/**
 * runai_file_streamer_start() - create a streamer
 * @ret_streamer: the streamer
 *
 * Starts no threads and opens no device: the first request does both.
 *
 * Return: 0; RUNAI_INVALID for NULL; RUNAI_FD_LIMIT, RUNAI_UNKNOWN without memory.
 */
RUNAI_API int runai_file_streamer_start(void **ret_streamer);

/**
 * runai_file_streamer_end() - end a streamer
 * @streamer: the streamer; an invalid one is ignored
 *
 * Drops ranges that have not begun, and waits for reads in flight, even while a file system hangs.
 * Memory may be freed afterwards.  Threads in runai_file_streamer_response() get RUNAI_FINISHED.
 */
RUNAI_API void runai_file_streamer_end(void *streamer);

/**
 * runai_file_streamer_set_credentials() - accept credentials for object storage
 * @streamer: the streamer
 * @keys:     names
 * @values:   their values
 * @nr:       number of credentials
 *
 * The library takes keys only from the environment.  After this call it refuses reads of s3://.
 * The credentials are stored to compare them with later ones, and are wiped when the streamer ends.
 *
 * Return: 0; RUNAI_CREDENTIALS if other ones were set before; RUNAI_INVALID; RUNAI_UNKNOWN.
 */
RUNAI_API int runai_file_streamer_set_credentials(void *streamer, const char *const *keys,
						  const char *const *values, unsigned nr);

/**
 * runai_file_streamer_set_fs_strategy() - ignore a choice of how to read files
 * @streamer: ignored
 *
 * libpenstock chooses for each read.  The call's further arguments are not documented and are
 * ignored; a line of the log says so.
 *
 * Return: 0.
 */
RUNAI_API int runai_file_streamer_set_fs_strategy(void *streamer);

/**
 * runai_file_streamer_request() - read ranges of files into memory
 * @streamer:       the streamer
 * @ret_submission: a number for this request, from 1 on; may be NULL
 * @nr_files:       number of files
 * @paths:          paths of the files
 * @nr_ranges:      number of ranges of each file; may be 0
 * @offs:           offset of each range in its file, those of the first file first
 * @sizes:          bytes of each range; may be 0
 * @dsts:           address of the memory of each range, in host or device memory
 * @device:         the device of all of the memory
 *
 * Copies its arguments, opens nothing and waits for no I/O.  Each range gets one response, and its
 * memory must stay allocated until then; after RUNAI_UNKNOWN until the streamer has ended.
 *
 * Return: 0; RUNAI_INVALID for NULL, arguments that cannot be read, an end beyond int64_t, an
 * address that wraps, or more than 16 Mi ranges in flight; RUNAI_MIXED; RUNAI_DEVICE_TYPE;
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
 * @ret_file:       index of the file in the request
 * @ret_range:      index of the range in the file
 * @ret_done:       1 with the last response of a request, else 0
 * @timeout_ms:     how long to wait; 0: without limit
 *
 * Returns ranges of all requests, in any order.  The @ret arguments are 0 without a range.
 *
 * Return: the result of the range: 0, RUNAI_FILE_ACCESS, RUNAI_EOF, RUNAI_INVALID, RUNAI_UNKNOWN,
 * RUNAI_NO_S3, RUNAI_NO_GCS, RUNAI_NO_AZURE, RUNAI_FD_LIMIT, RUNAI_NO_DEVICES, RUNAI_NO_DEVICE,
 * RUNAI_DEVICE_MEMORY, RUNAI_DEVICE_COPY.  Without a range: RUNAI_TIMED_OUT; RUNAI_FINISHED;
 * RUNAI_INVALID for NULL or an invalid streamer.
 */
RUNAI_API int runai_file_streamer_response(void *streamer, uint64_t *ret_submission,
					   uint32_t *ret_file, uint32_t *ret_range, int *ret_done,
					   unsigned timeout_ms);

/**
 * runai_file_streamer_response_str() - describe a code in words
 * @code: enum runai_code
 *
 * Return: a constant string.
 */
RUNAI_API const char *runai_file_streamer_response_str(int code);

/**
 * runai_file_streamer_probe_direct_block_size() - return the alignment that O_DIRECT needs
 * @streamer:  the streamer
 * @paths:     files that will be read
 * @nr:        number of paths
 * @ret_block: a power of two, at least 512: the largest alignment of these files, or a page if
 *             it is not known; written even after an error
 *
 * Return: 0; RUNAI_UNKNOWN if the alignment of a path is not known; RUNAI_INVALID.
 */
RUNAI_API int runai_file_streamer_probe_direct_block_size(void *streamer, const char *const *paths,
							  unsigned nr, size_t *ret_block);

/**
 * runai_file_streamer_list_files() - list the files below a folder
 * @streamer:  the streamer
 * @prefix:    the folder
 * @recursive: not 0: also list folders in it, but follow no symbolic link to a folder
 * @allow:     patterns of fnmatch(3) for whole paths, of which one must match; may be NULL
 * @nr_allow:  number of these patterns; 0 allows all paths
 * @ignore:    patterns of which none may match
 * @nr_ignore: number of these patterns
 * @fn:        called for each regular file and each symbolic link to one, in any order
 * @user_data: passed to @fn
 *
 * Return: 0; RUNAI_FILE_ACCESS if a folder cannot be read; RUNAI_UNKNOWN if @prefix is not a
 * folder; RUNAI_NO_S3, RUNAI_NO_GCS, RUNAI_NO_AZURE; RUNAI_INVALID.
 */
RUNAI_API int runai_file_streamer_list_files(void *streamer, const char *prefix, int recursive,
					     const char *const *allow, unsigned nr_allow,
					     const char *const *ignore, unsigned nr_ignore,
					     runai_list_fn fn, void *user_data);

/* ------------------------------------------------------ 0.15 and 0.16 */

/**
 * runai_start() - create a streamer
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
 * runai_request() - read one contiguous range of each file into one buffer
 * @streamer: the streamer
 * @nr_files: number of files
 * @paths:    paths of the files
 * @offs:     offset of the range in each file
 * @sizes:    bytes of each range
 * @dsts:     the first address is the buffer; others are ignored
 * @nr_parts: number of consecutive parts of the range of each file
 * @parts:    sizes of the parts, for each file
 * @key:      a credential, not used
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
 * @ret_file: index of the file
 * @ret_part: index of the part in the file
 *
 * Return: as runai_file_streamer_response(); RUNAI_FINISHED if nothing is outstanding.
 */
RUNAI_API int runai_response(void *streamer, uint32_t *ret_file, uint32_t *ret_part);

/**
 * runai_response_str() - describe a code in words
 * @code: enum runai_code
 *
 * Return: as runai_file_streamer_response_str().
 */
RUNAI_API const char *runai_response_str(int code);

/**
 * runai_list_files() - list the files below a folder, since 0.16
 * @prefix:    as in runai_file_streamer_list_files()
 * @recursive: as in runai_file_streamer_list_files()
 * @allow:     as in runai_file_streamer_list_files()
 * @nr_allow:  as in runai_file_streamer_list_files()
 * @ignore:    as in runai_file_streamer_list_files()
 * @nr_ignore: as in runai_file_streamer_list_files()
 * @fn:        as in runai_file_streamer_list_files()
 * @user_data: as in runai_file_streamer_list_files()
 * @keys:      names of credentials, not used
 * @values:    credentials, not used
 * @nr:        number of credentials
 *
 * Return: as runai_file_streamer_list_files().
 */
RUNAI_API int runai_list_files(const char *prefix, int recursive, const char *const *allow,
			       unsigned nr_allow, const char *const *ignore, unsigned nr_ignore,
			       runai_list_fn fn, void *user_data, const char *const *keys,
			       const char *const *values, unsigned nr);

#ifdef __cplusplus
}
#endif
#endif
