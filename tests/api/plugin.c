/* SPDX-License-Identifier: MIT */
/* A plug-in that is linked with the static library; test-plugin.c loads and unloads it. */
#include <penstock.h>

int plugin_read(const char *path, void *buf, unsigned len);

__attribute__((visibility("default"))) int plugin_read(const char *path, void *buf, unsigned len)
{
	struct pst_file *file;
	int r = pst_file_open(path, PST_FILE_READ, NULL, &file);

	if (r < 0)
		return r;
	r = (int)pst_read(file, 0, NULL, (uint64_t)(uintptr_t)buf, len, NULL);
	(void)pst_file_close(file);
	return r;
}
