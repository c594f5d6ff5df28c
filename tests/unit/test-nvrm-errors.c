/* SPDX-License-Identifier: MIT */
/*
 * The nvrm back end when it is turned off or refused, or its calls fail.  Runs on the stub of
 * the driver in tests/stub.
 */
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/log.h"
#include "nvrm_fake.h"

/* ---------------------------------------------------------------- refusals */

static void refusals(void)
{
	by_fd(1, KIB(64));
	stub_nvrm.ctl_errno = ENOENT;
	T_EQ(refused(0, 1, RW), -ENODEV);
	T_CHECK(says("/dev/nvidiactl") && says("container"));
	stub_nvrm.ctl_errno = EACCES;
	T_EQ(refused(0, 1, RW), -EACCES);
	stub_nvrm_reset();
	stub_nvrm.gpu_errno = EPERM;
	T_EQ(refused(0, 1, RW), -EACCES);
	T_CHECK(says("/dev/nvidia4"));
	stub_nvrm_reset();
	(void)snprintf(stub_nvrm.version, sizeof(stub_nvrm.version), "610.43.02");
	T_EQ(refused(0, 1, RW), -EOPNOTSUPP);
	T_CHECK(says("610.43.02") && says("PST_NVRM=force"));
	stub_nvrm_reset();
	stub_nvrm.reply = 0;
	T_EQ(refused(0, 1, RW), -EOPNOTSUPP);
	T_CHECK(says("version"));
	stub_nvrm_reset();
	stub_nvrm.other_uuid = true;
	T_EQ(refused(0, 1, RW), -EOPNOTSUPP);
	T_CHECK(says("MIG"));
	stub_nvrm_reset();
	stub_nvrm.partition = 1;
	T_EQ(refused(0, 1, RW), -EOPNOTSUPP);
	T_CHECK(says("MIG"));
	stub_nvrm_reset();
	stub_nvrm.type = 2;
	T_EQ(refused(0, 1, RW), -EOPNOTSUPP);
	T_CHECK(says("type 2"));
	stub_nvrm_reset();
	stub_nvrm.max_objects = 3;
	T_EQ(refused(0, 1, RW), 0);
	stub_nvrm.objects = 2;
	T_EQ(refused(0, 1, RW), -EOPNOTSUPP);
	T_CHECK(says("2 objects"));
	stub_nvrm.objects = 0;
	T_EQ(refused(0, 1, RW), -EOPNOTSUPP);
	stub_nvrm.max_objects = 500;
	T_EQ(refused(0, 1, RW), -EOPNOTSUPP);
	stub_nvrm_reset();
	forget();
}

/* Refuse each step with each status: each gives an errno and an error text, and leaks nothing. */
static void statuses(void)
{
	static const uint32_t steps[] = {
		NVRM_CLASS_CLIENT, NVRM_CLASS_DEVICE, NVRM_CLASS_SUBDEVICE, NVRM_ID_INFO,
		NVRM_GID_INFO,     NVRM_EXPORT_INFO,  NVRM_IMPORT,          NVRM_MAP,
	};
	static const struct {
		uint32_t status;
		int want;
		const char *say;
	} st[] = {
		{ NVRM_NOT_SUPPORTED, -EOPNOTSUPP, "confidential" },
		{ NVRM_NO_PERMISSION, -EACCES, "another user" },
		{ NVRM_NO_RESOURCES, -ENOMEM, "BAR" },
		{ NVRM_GPU_IS_LOST, -ENODEV, "bus" },
		{ 0xabc, -EIO, "0xabc" },
	};

	by_fd(1, KIB(64));
	for (unsigned i = 0; i < ARRAY_SIZE(steps); i++)
		for (unsigned k = 0; k < ARRAY_SIZE(st); k++) {
			stub_nvrm.refuse = steps[i];
			stub_nvrm.status = st[k].status;
			T_EQ(refused(0, 1, RW), st[k].want);
			T_CHECK(says(st[k].say));
		}
	by_ipc(KIB(64), 0);
	stub_nvrm.refuse = NVRM_DUP;
	stub_nvrm.status = NVRM_INVALID_CLIENT;
	T_EQ(refused(0, 1, RW), -EINVAL);
	T_CHECK(says("gone"));
	stub_nvrm_reset();
	forget();
}

/* Failures while freeing are ignored, and do not hide the first error. */
static void ends_that_fail(void)
{
	struct window *w;

	by_fd(3, KIB(64));
	stub_nvrm.refuse = NVRM_UNMAP;
	stub_nvrm.status = NVRM_INVALID_STATE;
	w = open_at(0, mem.a.size);
	window_nvrm_ops.close(w);
	T_EQ(stub_nvrm_left(), 0);
	stub_nvrm.refuse = NVRM_FREE;
	w = open_at(0, mem.a.size);
	window_nvrm_ops.close(w);
	T_EQ(stub_nvrm_left(), 0);
	stub_nvrm.type = 3;
	T_EQ(refused(0, 1, RW), -EOPNOTSUPP);
	T_CHECK(says("type 3"));
	stub_nvrm_reset();
	forget();
}

static void fail_each(unsigned max)
{
	static const int how[] = { 0, EMFILE, EINVAL, EFAULT };

	for (unsigned k = 0; k < ARRAY_SIZE(how); k++) {
		unsigned n = 1;

		for (;; n++) {
			struct window_src src = src_of(100, mem.a.size - 200, RW);
			struct window *w = NULL;
			int r;

			T_CHECK(n < max);
			stub_nvrm_reset();
			stub_nvrm.fail_at = n;
			stub_nvrm.fail_errno = how[k];
			r = window_nvrm_ops.open(&src, &w);
			if (r == 0) {
				check_window(w, 100);
				window_nvrm_ops.close(w);
			} else {
				T_CHECK(stub_nvrm.failed && err_text()[0]);
			}
			if (!stub_nvrm.failed)
				break;
			T_EQ(stub_nvrm_left(), 0);
		}
		T_CHECK(n > 15);
	}
	stub_nvrm_reset();
}

static void every_call_fails(void)
{
	log_set(NULL, NULL, PST_LOG_ERROR);
	by_fd(3, KIB(64));
	fail_each(80);
	by_ipc(KIB(200), 1024);
	fail_each(80);
	log_set(NULL, NULL, 0);
	forget();
}

static void no_descriptors(void)
{
	struct rlimit was, few;

	by_fd(4, KIB(64));
	T_CHECK(getrlimit(RLIMIT_NOFILE, &was) == 0);
	few = was;
	few.rlim_cur = t_count_fds();
	T_CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
	T_EQ(refused(0, mem.a.size, RW), -EMFILE);
	T_CHECK(setrlimit(RLIMIT_NOFILE, &was) == 0);
	forget();
}

/* ------------------------------------------------------------------- PST_NVRM */

/* What the program does when it is started as a child. */
static int as_child(const char *what)
{
	struct window_src src;
	struct window *w = NULL;
	int r;

	by_fd(1, KIB(64));
	(void)snprintf(stub_nvrm.version, sizeof(stub_nvrm.version), "999.1");
	src = src_of(0, 64, RW);
	r = window_nvrm_ops.open(&src, &w);
	if (!strcmp(what, "off"))
		return r == -EOPNOTSUPP && says("PST_NVRM=off") && !stub_nvrm.calls ? 0 : 1;
	if (r < 0)
		return 1;
	window_nvrm_ops.close(w);
	return stub_nvrm_left() ? 2 : 0;
}

static void the_variable(void)
{
	static const char *const values[] = { "off", "force" };

	for (unsigned i = 0; i < ARRAY_SIZE(values); i++) {
		int status = -1;
		pid_t pid = fork();

		if (pid == 0) {
			(void)setenv("PST_NVRM", values[i], 1);
			(void)execl("/proc/self/exe", "test", values[i], (char *)NULL);
			_exit(127);
		}
		T_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
		T_EQ(status, 0);
	}
}

int main(int argc, char **argv)
{
	forget();
	if (argc > 1)
		return as_child(argv[1]);
	T_RUN(the_variable);
	T_RUN(refusals);
	T_RUN(statuses);
	T_RUN(ends_that_fail);
	T_RUN(every_call_fails);
	T_RUN(no_descriptors);
	return t_done();
}
