/* SPDX-License-Identifier: MIT */
/*
 * U16, C5: load the library by name, use it and unload it: 200 times, with PST_SOAK a thousand
 * times.  usrbio-foreign-dlopen does this, and counts threads, descriptors and mappings.
 */
#include <dlfcn.h>

#include "api_rig.h"

#define PROGRAM "usrbio-foreign-dlopen"

/* Return the path that this test's own library was loaded from. */
static const char *library(void)
{
	int (*fn)(int, uint64_t) = hf3fs_reg_fd;
	Dl_info info;
	void *at;

	memcpy(&at, &fn, sizeof(at));
	T_CHECK(dladdr(at, &info));
	return info.dli_fname;
}

static void rounds(const char *nr)
{
	const char *lib = library(), *file = api_path("file");
	char path[600];
	int status = -1;
	pid_t pid;

	T_EQ(mount_rig_beside(PROGRAM, path, sizeof(path)), 0);
	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		(void)dup2(STDERR_FILENO, STDOUT_FILENO);
		(void)execl(path, path, mnt, file, lib, nr, (char *)NULL);
		_exit(127);
	}
	T_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	T_EQ(status, 0);
}

static void U16_loaded_and_unloaded(void)
{
	rounds(API_TSAN ? "50" : getenv("PST_SOAK") ? "1000" : "200");
}

int main(void)
{
	/* Use memory if possible: thousands of links are slow on a disk. */
	if (access("/dev/shm", W_OK) == 0)
		(void)setenv("PST_TEST_DIR", "/dev/shm", 1);
	api_init();
	API_RUN(U16_loaded_and_unloaded);
	return api_done();
}
