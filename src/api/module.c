/* SPDX-License-Identifier: MIT */
/* The functions of the library that modules may call (struct file_module_host). */
#include "base/err.h"
#include "base/log.h"
#include "file/module.h"

const struct file_module_host file_module_host = {
	.err_set = err_set,
	.err_text = err_text,
	.log_line = log_line,
	.open = pst_file_open,
	.wrap = pst_file_wrap,
	.close = pst_file_close,
	.info = pst_file_info,
};
