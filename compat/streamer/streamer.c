/* SPDX-License-Identifier: MIT */
/*
 * libpenstock_streamer.so over libpenstock.
 *
 *	streamer.c	the calls of 0.17, and streamers' handles
 *	old.c		those of 0.15 and 0.16
 *	stream.c	a streamer: submitting, settling, responses, the end
 *	reader.c	threads that read
 *	submission.c	requests, copied and checked
 *	job.c		the ranges of one file: opening it, its memory, its pieces
 *	files.c		open files
 *	list.c		listings of folders
 *	block.c		alignment that O_DIRECT needs
 *	code.c		result codes
 *	streamer.map	the symbols; those of 0.17 have a version
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/handle.h"
#include "base/log.h"

#include "block.h"
#include "list.h"
#include "streamer_int.h"

/* ctypes passes the struct by value, in one register. */
_Static_assert(sizeof(struct runai_device) == 8 && offsetof(struct runai_device, id) == 4,
	       "a type and a number of 4 bytes each");
_Static_assert(sizeof(size_t) == 8 && sizeof(void *) == 8, "ctypes' arrays have 8 bytes each");
_Static_assert(RUNAI_DEVICE_DRIVER == 28 && RUNAI_TIMED_OUT == 16, "codes");

#define STREAMERS_MAX 4096u

static struct handle_table streamers = HANDLE_TABLE(STREAMERS_MAX);
/* Held while a caller enters, so that the end of a streamer counts all callers.  Unlocked in a
 * forked child. */
static pthread_mutex_t door = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
/* Number of fork()s between the first streamer and this process.  Cheaper than getpid(), whose cost
 * would dominate each response. */
static uint64_t forks;

static void close_door(void)
{
	(void)pthread_mutex_lock(&door);
}

static void open_door(void)
{
	(void)pthread_mutex_unlock(&door);
}

static void open_door_of_child(void)
{
	forks++;
	open_door();
}

static void watch_forks(void)
{
	(void)pthread_atfork(close_door, open_door, open_door_of_child);
}

int streamer_enter(void *streamer, struct streamer **ret)
{
	struct streamer *st;
	bool ours;

	(void)pthread_mutex_lock(&door);
	st = handle_get(&streamers, (uintptr_t)streamer);
	ours = st && st->forks == forks;
	if (ours)
		st->callers++;
	(void)pthread_mutex_unlock(&door);
	if (!st) {
		log_error("%p is no streamer, or one that ended", streamer);
		return RUNAI_INVALID;
	}
	if (!ours) {
		streamer_say("this streamer belongs to the process that forked this one");
		return RUNAI_UNKNOWN;
	}
	*ret = st;
	return RUNAI_SUCCESS;
}

void streamer_leave(struct streamer *st)
{
	(void)pthread_mutex_lock(&door);
	if (--st->callers == 0)
		(void)pthread_cond_broadcast(&st->left);
	(void)pthread_mutex_unlock(&door);
}

/* Print without the log, which is silent in a forked child of a process that used the library. */
void streamer_say(const char *what)
{
	const char *level = secure_getenv("PST_LOG");

	if (level && *level)
		(void)dprintf(STDERR_FILENO, "penstock: error: %s; exec() first\n", what);
}

int runai_file_streamer_start(void **ret_streamer)
{
	struct streamer *st;
	uintptr_t handle;
	int code, r;

	if (!ret_streamer) {
		log_error("start: the place for the streamer is NULL");
		return RUNAI_INVALID;
	}
	(void)pthread_once(&once, watch_forks);
	code = stream_new(&st);
	if (code)
		return code;
	(void)pthread_mutex_lock(&door);
	st->forks = forks;
	(void)pthread_mutex_unlock(&door);
	r = handle_new(&streamers, st, &handle);
	if (r < 0) {
		log_error("start: %s",
			  r == -EMFILE ? "4096 streamers have not ended" : "out of memory");
		stream_free(st);
		return r == -EMFILE ? RUNAI_FD_LIMIT : RUNAI_UNKNOWN;
	}
	*ret_streamer = (void *)handle;
	return RUNAI_SUCCESS;
}

void runai_file_streamer_end(void *streamer)
{
	struct streamer *st;

	(void)pthread_mutex_lock(&door);
	st = handle_take(&streamers, (uintptr_t)streamer);
	(void)pthread_mutex_unlock(&door);
	if (!st)
		return;
	/* In a forked child the streamer has no threads, and the parent still uses its
	 * resources. */
	if (st->forks != forks)
		return;
	stream_stop(st);
	(void)pthread_mutex_lock(&door);
	while (st->callers)
		(void)pthread_cond_wait(&st->left, &door);
	(void)pthread_mutex_unlock(&door);
	stream_free(st);
}

/* Join the strings as "key\0value\0" in memory that is never moved, so that it can be wiped; NULL
 * if out of memory. */
static char *streamer_join(const struct strings *keys, const struct strings *values,
			   size_t *ret_len)
{
	size_t len = 0;
	char *text, *at;

	for (uint64_t i = 0; i < keys->nr; i++)
		len += strlen(keys->at[i]) + strlen(values->at[i]) + 2;
	text = malloc(len);
	if (!text)
		return NULL;
	at = text;
	for (uint64_t i = 0; i < keys->nr; i++) {
		at = stpcpy(at, keys->at[i]) + 1;
		at = stpcpy(at, values->at[i]) + 1;
	}
	*ret_len = len;
	return text;
}

/* Set the credentials; only the first ones count, and later ones must be equal. */
static int set_credentials(struct streamer *st, char *text, size_t len)
{
	int code = RUNAI_SUCCESS;

	(void)pthread_mutex_lock(&st->lock);
	if (!st->credentials) {
		atomic_store(&st->files.keys_given, true);
		st->credentials = text;
		st->credentials_len = len;
		text = NULL;
	} else if (len != st->credentials_len || memcmp(text, st->credentials, len) != 0) {
		code = RUNAI_CREDENTIALS;
	}
	(void)pthread_mutex_unlock(&st->lock);
	if (text)
		explicit_bzero(text, len);
	free(text);
	return code;
}

int runai_file_streamer_set_credentials(void *streamer, const char *const *keys,
					const char *const *values, unsigned nr)
{
	_cleanup_(strings_done) struct strings k = { 0 };
	_cleanup_(strings_done) struct strings v = { 0 };
	struct streamer *st;
	size_t len = 0;
	char *text;
	int code = streamer_enter(streamer, &st);

	if (code)
		return code;
	code = copy_strings(keys, nr, &k);
	if (!code)
		code = copy_strings(values, nr, &v);
	if (nr && !code) {
		text = streamer_join(&k, &v, &len);
		code = text ? set_credentials(st, text, len) : RUNAI_UNKNOWN;
	}
	if (code)
		log_error("set_credentials: %s", code_text(code));
	streamer_leave(st);
	return code;
}

int runai_file_streamer_set_fs_strategy(void *streamer)
{
	(void)streamer;
	log_info("set_fs_strategy: ignored, libpenstock chooses for each read");
	return RUNAI_SUCCESS;
}

int runai_file_streamer_request(void *streamer, uint64_t *ret_submission, uint32_t nr_files,
				const char *const *paths, const uint32_t *nr_ranges,
				const size_t *offs, const size_t *sizes, void *const *dsts,
				struct runai_device device)
{
	const struct request req = {
		.nr_files = nr_files,
		.paths = paths,
		.nr_ranges = nr_ranges,
		.offs = offs,
		.sizes = sizes,
		.dsts = dsts,
		.device = device,
	};
	struct submission *sub;
	struct streamer *st;
	int code = streamer_enter(streamer, &st);

	if (code)
		return code;
	code = submission_new(&req, &sub);
	if (!code)
		code = stream_submit(st, sub, false, ret_submission);
	streamer_leave(st);
	return code;
}

int runai_file_streamer_response(void *streamer, uint64_t *ret_submission, uint32_t *ret_file,
				 uint32_t *ret_range, int *ret_done, unsigned timeout_ms)
{
	struct answer a = { 0 };
	struct streamer *st;
	int code = streamer_enter(streamer, &st);

	if (code)
		return code;
	if (ret_submission && ret_file && ret_range && ret_done) {
		code = stream_answer(st, timeout_ms, false, &a);
		*ret_submission = a.submission;
		*ret_file = a.file;
		*ret_range = a.range;
		*ret_done = a.done;
	} else {
		log_error("response: a place for a result is NULL");
		code = RUNAI_INVALID;
	}
	streamer_leave(st);
	return code;
}

const char *runai_file_streamer_response_str(int code)
{
	return code_text(code);
}

int runai_file_streamer_probe_direct_block_size(void *streamer, const char *const *paths,
						unsigned nr, size_t *ret_block)
{
	_cleanup_(strings_done) struct strings copies = { 0 };
	struct streamer *st;
	int code;

	if (!ret_block)
		return RUNAI_INVALID;
	*ret_block = (size_t)sysconf(_SC_PAGESIZE);
	code = streamer_enter(streamer, &st);
	if (code)
		return code;
	streamer_leave(st);
	code = copy_strings(paths, nr, &copies);
	return code ? code : block_size(&copies, ret_block);
}

int runai_file_streamer_list_files(void *streamer, const char *prefix, int recursive,
				   const char *const *allow, unsigned nr_allow,
				   const char *const *ignore, unsigned nr_ignore, runai_list_fn fn,
				   void *user_data)
{
	const struct listing l = {
		.allow = allow,
		.nr_allow = nr_allow,
		.ignore = ignore,
		.nr_ignore = nr_ignore,
		.recursive = recursive,
		.fn = fn,
		.user_data = user_data,
	};
	struct streamer *st;
	int code = streamer_enter(streamer, &st);

	if (code)
		return code;
	/* Leave the streamer first: fn may use the streamer, and even end it. */
	streamer_leave(st);
	return list_files(&l, prefix);
}
