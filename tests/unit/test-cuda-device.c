/* SPDX-License-Identifier: MIT */
#include <sys/wait.h>

#include "cuda_rig.h"

static const char *self;

static void devices_are_named(void)
{
	struct pst_device d = { .sz = sizeof(d) };
	const struct mem_ops *o = NULL;
	char name[40] = "";
	unsigned idx = 77;

	for (unsigned i = 0; i < cuda_nr_devices(); i++) {
		ops()->device_info(i, &d);
		T_EQ(d.kind, PST_KIND_CUDA);
		T_EQ(d.index, i);
		T_CHECK(d.total > 0 && d.model[0]);
		T_OK(mem_find(d.name, &o, &idx));
		T_CHECK(o == ops() && idx == i);
		T_OK(mem_find(d.pci, &o, &idx));
		T_EQ(idx, i);
		name[0] = '\0';
		for (int k = 0; k < 16; k++)
			(void)snprintf(name + 2 * k, 3, "%02x", d.uuid[k]);
		T_OK(mem_find(name, &o, &idx));
		T_EQ(idx, i);
	}
	T_EQ(mem_find("cuda:63", &o, &idx), -ENODEV);
}

static void owning_makes_no_context(void)
{
	struct stub_cuda_state before = state(), now;
	static char here[100];
	uint64_t start;

	start = t_cpu();
	for (int i = 0; i < 10000; i++) {
		T_CHECK(!ops()->owns((uintptr_t)here, 100));
		T_CHECK(!ops()->owns(0x10000, 1));
	}
	/* At most 10 us each: the contract is 1 us, and a busy machine may be ten times slower. */
	T_CHECK(t_cpu() - start < 20000 * UINT64_C(10000));
	now = state();
	T_EQ(now.contexts_made, before.contexts_made);
	SAME_THREAD(before);
}

static void sentences_say_what_is_missing(void)
{
	static const struct {
		const char *lib, *devices, *fail, *want;
	} cases[] = {
		{ "/nonexistent/libcuda.so.1", "1", "", "no NVIDIA driver here: /nonexistent/" },
		{ "libc.so.6", "1", "", "lacks cuInit" },
		{ NULL, "0", "", "CUDA_ERROR_NO_DEVICE" },
		{ NULL, "1", "cuInit:1:999", "cuInit failed: error 999" },
		{ NULL, "1", "cuDeviceGetCount:1:2", "it shows no device" },
		{ NULL, "1", "cuDeviceGetUuid_v2:1:46", "a device does not answer" },
		{ NULL, "1", "cuDeviceGet:1:46", "a device does not answer" },
	};

	NEED_STUB();
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		char text[256] = "";
		int fds[2], status;
		ssize_t n;
		pid_t pid;

		T_EQ(pipe(fds), 0);
		pid = fork();
		if (!pid) {
			char arg[16];

			(void)snprintf(arg, sizeof(arg), "%d", fds[1]);
			if (cases[i].lib)
				(void)setenv("PST_LIBCUDA", cases[i].lib, 1);
			(void)setenv("STUB_CUDA_DEVICES", cases[i].devices, 1);
			(void)setenv("STUB_CUDA_FAIL", cases[i].fail, 1);
			(void)execl(self, self, "why", arg, (char *)NULL);
			_exit(127);
		}
		(void)close(fds[1]);
		n = read(fds[0], text, sizeof(text) - 1);
		(void)close(fds[0]);
		T_CHECK(waitpid(pid, &status, 0) == pid);
		if (n <= 0 || !strstr(text, cases[i].want))
			T_FAIL("\"%s\" does not say \"%s\"", text, cases[i].want);
	}
}

static int child_why(int fd)
{
	const struct mem_ops *o = mem_provider(PST_KIND_CUDA);
	const char *text = o ? "it works" : err_text();
	unsigned idx;

	/* Host memory must still work. */
	if (mem_find("host", &o, &idx) < 0)
		text = "no host memory";
	return write(fd, text, strlen(text)) < 0;
}

int main(int argc, char **argv)
{
	self = argv[0];
	if (argc == 3 && !strcmp(argv[1], "why"))
		return child_why(atoi(argv[2]));
	if (!cuda_begin())
		return t_done();
	T_RUN(devices_are_named);
	T_RUN(owning_makes_no_context);
	T_RUN(sentences_say_what_is_missing);
	T_RUN(nothing_is_left);
	return t_done();
}
