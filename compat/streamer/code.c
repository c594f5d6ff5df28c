/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <string.h>

#include "base/base.h"

#include "code.h"

static const char *const texts[] = {
	[RUNAI_SUCCESS] = "success",
	[RUNAI_FINISHED] = "the streamer ended, or nothing is outstanding",
	[RUNAI_FILE_ACCESS] = "a file cannot be opened or read (PST_LOG=error says why)",
	[RUNAI_EOF] = "a range reaches past the end of its file",
	[RUNAI_NO_S3] = "S3 cannot be read here (PST_LOG=error says why)",
	[RUNAI_GLIBC] = "the C library is too old",
	[RUNAI_FD_LIMIT] = "too many open files: raise RLIMIT_NOFILE (ulimit -n)",
	[RUNAI_INVALID] = "invalid argument (PST_LOG=error says which)",
	[RUNAI_EMPTY] = "the request has no ranges",
	[RUNAI_BUSY] = "responses of the last request are outstanding",
	[RUNAI_CA_FILE] = "the file of certificates is missing",
	[RUNAI_UNKNOWN] = "cannot go on (PST_LOG=error says why)",
	[RUNAI_PLUGIN] = "the plug-in for object storage cannot be loaded",
	[RUNAI_NO_GCS] = "Penstock does not read GCS: unset STREAMER_LIBRARY for object storage",
	[RUNAI_NO_AZURE] =
		"Penstock does not read Azure Blob: unset STREAMER_LIBRARY for object storage",
	[RUNAI_OBJECT_LENGTH] = "object storage gave another number of bytes",
	[RUNAI_TIMED_OUT] = "no response within the time",
	[RUNAI_MIXED] = "files and object storage cannot be in one request",
	[RUNAI_CREDENTIALS] = "other credentials were set before: start another streamer",
	[RUNAI_RETRY] = "object storage failed, and may work when it is asked again",
	[RUNAI_STRATEGY_SET] = "another strategy was set before",
	[RUNAI_STRATEGY_NONE] = "no strategy of the list works here",
	[RUNAI_READER] = "the reader of this mount failed",
	[RUNAI_DEVICE_TYPE] =
		"memory of this type of device is not served, only the host's and CUDA's",
	[RUNAI_NO_DEVICES] = "no CUDA device: the driver cannot be loaded, or has none",
	[RUNAI_NO_DEVICE] = "there is no CUDA device of this ordinal",
	[RUNAI_DEVICE_MEMORY] = "pinned memory for copies to the device was refused",
	[RUNAI_DEVICE_COPY] = "a copy to the device failed",
	[RUNAI_DEVICE_DRIVER] = "the device's driver failed",
};

const char *code_text(int code)
{
	if (code < 0 || (size_t)code >= ARRAY_SIZE(texts))
		return "unknown code";
	return texts[code];
}

int code_of(int r)
{
	switch (r < 0 ? -r : r) {
	case 0:
		return RUNAI_SUCCESS;
	case EMFILE:
	case ENFILE:
		return RUNAI_FD_LIMIT;
	case EFAULT:
	case ERANGE:
	case EINVAL:
	case EOVERFLOW:
		return RUNAI_INVALID;
	case ENOMEM:
	case EOWNERDEAD:
	case ECANCELED:
		return RUNAI_UNKNOWN;
	case EPROTONOSUPPORT:
	case ELIBACC:
	case ELIBBAD:
		return RUNAI_NO_S3;
	default:
		return RUNAI_FILE_ACCESS;
	}
}

bool path_is_object(const char *path)
{
	return !strncmp(path, "s3://", 5);
}

int code_of_path(const char *path)
{
	static const struct {
		const char *scheme;
		int code;
	} stores[] = {
		{ "gs://", RUNAI_NO_GCS },
		{ "az://", RUNAI_NO_AZURE },
	};

	for (size_t i = 0; i < ARRAY_SIZE(stores); i++)
		if (!strncmp(path, stores[i].scheme, strlen(stores[i].scheme)))
			return stores[i].code;
	return RUNAI_SUCCESS;
}
