/* SPDX-License-Identifier: MIT */
/*
 * Takes the place of NIXL's header of this name, which needs Abseil: NIXL's other headers use only
 * these two macros.
 */
#ifndef PENSTOCK_NIXL_LOG_H
#define PENSTOCK_NIXL_LOG_H

#include <sstream>

/* As in plug.h. */
extern "C" void plug_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* One line, which is logged at the end of the statement. */
class plug_line
{
      public:
	~plug_line()
	{
		plug_log("%s", text.str().c_str());
	}
	std::ostringstream text;
};

#define NIXL_ERROR plug_line().text
#define NIXL_ASSERT(condition) ((void)0)

#endif
