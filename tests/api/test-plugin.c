/* SPDX-License-Identifier: MIT */
/*
 * Unload a plug-in that contains the static library.  Its code must stay mapped: for a second
 * after a blocking call, threads of the library still clean up.
 */
#include <dlfcn.h>

#include "rig.h"

#define LEN 65536
#define IDLE_US 1300000 /* longer than an idle queue is kept */

static char path[500];

static void unloaded(void)
{
	static char buf[LEN];
	int (*plugin_read)(const char *, void *, unsigned);
	void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (!plugin)
		T_FAIL("%s", dlerror());
	*(void **)&plugin_read = dlsym(plugin, "plugin_read");
	T_CHECK(plugin_read);
	rig_make(rig_path("data"), 5, LEN);
	T_EQ(plugin_read(rig_path("data"), buf, LEN), LEN);
	T_EQ(t_differs(buf, 5, 0, LEN), LEN);
	T_EQ(dlclose(plugin), 0);
	/* Wait until the library's threads have ended. */
	(void)usleep(IDLE_US);
	plugin = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
	T_CHECK(plugin);
	T_EQ(plugin_read(rig_path("data"), buf, LEN), LEN);
	(void)dlclose(plugin);
}

int main(int argc, char **argv)
{
	const char *slash = strrchr(argv[0], '/');

	(void)argc;
	(void)snprintf(path, sizeof(path), "%.*s/plugin.so", slash ? (int)(slash - argv[0]) : 1,
		       slash ? argv[0] : ".");
	rig_init();
	RIG_RUN1(unloaded);
	return rig_done();
}
