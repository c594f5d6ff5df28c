/* SPDX-License-Identifier: MIT */
/*
 * A program may unload a plug-in that the static library is part of: a second after a call that
 * waits, threads of the library still end what the call left behind.
 */
#include <dlfcn.h>

#include "rig.h"

#define LEN 65536
#define IDLE_US 1300000 /* what a queue stays idle, and some more */

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
	/* Wait until its threads have ended: they would run code that is no longer mapped. */
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
