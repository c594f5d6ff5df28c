/* SPDX-License-Identifier: MIT */
#include "cuda_rig.h"

/* ------------------------------------------------------- files of the kernel */

static char path[] = "/tmp/pst-facts-XXXXXX";

static const char *file_with(const char *text)
{
	FILE *f = fopen(path, "we");

	T_CHECK(f);
	T_CHECK(fputs(text, f) >= 0);
	T_CHECK(fclose(f) == 0);
	return path;
}

static const char none[] = "/nonexistent/file";

static void the_module_is_open_or_not(void)
{
	static const struct {
		const char *line, *kind;
	} versions[] = {
		{ "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release "
		  "Build  (root@build)  Tue\nGCC version:  gcc version 12.2.0\n",
		  "open" },
		{ "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6 22:20:39 "
		  "UTC 2023\n",
		  "proprietary" },
		{ "something else\n", "unknown" },
		{ "", "unknown" },
	}, taints[] = {
		{ "OE\n", "open" }, { "POE\n", "proprietary" }, { "P\n", "proprietary" },
		{ "\n", "unknown" }, { "", "unknown" },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(versions); i++)
		T_CHECK(!strcmp(cuda_module_kind(file_with(versions[i].line), none),
				versions[i].kind));
	for (unsigned i = 0; i < ARRAY_SIZE(taints); i++)
		T_CHECK(!strcmp(cuda_module_kind(none, file_with(taints[i].line)), taints[i].kind));
	T_CHECK(!strcmp(cuda_module_kind(none, none), "unknown"));
}

static void the_driver_has_a_version(void)
{
	char v[32], small[4];

	cuda_driver_version(file_with("580.159.04\n"), none, v, sizeof(v));
	T_CHECK(!strcmp(v, "580.159.04"));
	cuda_driver_version(
		none, file_with("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue\n"),
		v, sizeof(v));
	T_CHECK(!strcmp(v, "535.54.03"));
	cuda_driver_version(none, file_with("NVRM version: none of the kind\n"), v, sizeof(v));
	T_CHECK(!strcmp(v, "unknown"));
	cuda_driver_version(none, none, v, sizeof(v));
	T_CHECK(!strcmp(v, "unknown"));
	cuda_driver_version(none, none, small, sizeof(small));
	T_CHECK(!strcmp(small, "unk"));
}

static void the_largest_bar_counts(void)
{
	/* The BARs of a Hopper GPU: registers, memory, a small BAR, then the ROM. */
	static const char hopper[] = "0x0000380042000000 0x0000380042ffffff 0x000000000014220c\n"
				     "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
				     "0x0000380000000000 0x000038003fffffff 0x000000000014220c\n"
				     "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
				     "0x0000380040000000 0x0000380041ffffff 0x000000000014220c\n"
				     "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
				     "0x0000000000000000 0x0000ffffffffffff 0x0000000000000000\n";

	T_EQ(cuda_bar_size(file_with(hopper)), GIB(1));
	T_EQ(cuda_bar_size(file_with("")), 0);
	T_EQ(cuda_bar_size(file_with("not numbers\n0x10\n0x20 0x10 0\n")), 0);
	T_EQ(cuda_bar_size(none), 0);
}

/* ------------------------------------------------------------------- the text */

static char text[PST_DEVICE_TEXT_MAX];

/* Return the value of a fact, which must occur once. */
static const char *value(const char *name)
{
	static char copy[sizeof(text)];
	const char *found = NULL;
	char *save = NULL;
	size_t len = strlen(name);

	(void)snprintf(copy, sizeof(copy), "%s", text);
	for (char *l = strtok_r(copy, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
		if (strncmp(l, name, len) != 0 || strncmp(l + len, ": ", 2) != 0)
			continue;
		if (found)
			T_FAIL("\"%s\" is there twice", name);
		found = l + len + 2;
	}
	if (!found)
		T_FAIL("there is no \"%s\"", name);
	return found;
}

#define VALUE(name, want)                                                      \
	do {                                                                   \
		const char *_v = value(name);                                  \
		if (strcmp(_v, want) != 0)                                     \
			T_FAIL("%s is \"%s\" and not \"%s\"", name, _v, want); \
	} while (0)

static void every_line_is_a_fact(void)
{
	struct stub_cuda_state before = state();
	int n = mem_device_text(ops(), 0, text, sizeof(text));
	char *save = NULL;

	T_CHECK(n > 0);
	T_EQ(strlen(text), n);
	T_EQ(text[n - 1], '\n');
	T_EQ(state().contexts_made, before.contexts_made);
	for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
		const char *colon = strstr(l, ": ");

		T_CHECK(colon && colon > l && colon[2]);
	}
	T_EQ(mem_device_text(ops(), 0, text, (size_t)n), -ENOSPC);
	T_CHECK(strstr(err_text(), "PST_DEVICE_TEXT_MAX"));
	T_EQ(mem_device_text(ops(), 0, text, 0), -ENOSPC);
	T_EQ(mem_device_text(ops(), 0, text, (size_t)n + 1), n);
	T_EQ(mem_device_text(ops(), 99, text, sizeof(text)), -ENODEV);
}

static void the_drivers_answers(void)
{
	NEED_STUB();
	T_CHECK(mem_device_text(ops(), 0, text, sizeof(text)) > 0);
	VALUE("cuda", "13.0");
	VALUE("compute capability", "9.0");
	VALUE("dma-buf", "yes");
	VALUE("gpudirect rdma", "yes");
	VALUE("gpudirect rdma writes ordered", "for the device itself");
	VALUE("gpudirect rdma writes flushed by", "host");
	VALUE("unified addressing", "yes");
	VALUE("virtual memory management", "yes");
	VALUE("async engines", "3");
	VALUE("files can be registered read-only", "yes");
	VALUE("integrated", "no");
	/* The stub's PCI address exists on no machine. */
	VALUE("bar1", "unknown");
}

static void what_is_not_known_is_unknown(void)
{
	static const char *const names[] = {
		"cuda",
		"compute capability",
		"dma-buf",
		"gpudirect rdma",
		"gpudirect rdma writes ordered",
		"gpudirect rdma writes flushed by",
		"unified addressing",
		"virtual memory management",
		"shareable by descriptor",
		"host memory can be registered",
		"files can be registered read-only",
		"async engines",
		"integrated",
	};
	__typeof__(cu.cuMemGetHandleForAddressRange) fn = cu.cuMemGetHandleForAddressRange;

	NEED_STUB();
	(void)x.fail("*:0:1");
	T_CHECK(mem_device_text(ops(), 0, text, sizeof(text)) > 0);
	T_CHECK(x.fail(NULL));
	for (unsigned i = 0; i < ARRAY_SIZE(names); i++)
		VALUE(names[i], "unknown");

	/* The fact is "no" if the library lacks the function, whatever the device says. */
	cu.cuMemGetHandleForAddressRange = NULL;
	T_CHECK(mem_device_text(ops(), 0, text, sizeof(text)) > 0);
	cu.cuMemGetHandleForAddressRange = fn;
	VALUE("dma-buf", "no");
}

int main(void)
{
	int fd = mkstemp(path);

	closep(&fd);
	T_RUN(the_module_is_open_or_not);
	T_RUN(the_driver_has_a_version);
	T_RUN(the_largest_bar_counts);
	(void)unlink(path);
	if (!cuda_begin())
		return t_done();
	T_RUN(every_line_is_a_fact);
	T_RUN(the_drivers_answers);
	T_RUN(what_is_not_known_is_unknown);
	T_RUN(nothing_is_left);
	return t_done();
}
