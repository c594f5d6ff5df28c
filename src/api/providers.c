/* SPDX-License-Identifier: MIT */
#include <pthread.h>

#include "api/providers.h"
#include "file/file.h"
#include "remote/remote.h"

static void add_all(void)
{
	(void)file_provider_add(&remote_file_ops);
	(void)file_provider_add(&remote_unix_file_ops);
	(void)file_provider_add(&remote_tls_file_ops);
}

void providers_begin(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	(void)pthread_once(&once, add_all);
}
