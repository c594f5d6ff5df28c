/* SPDX-License-Identifier: MIT */
#include "../../hf3fs_usrbio.h"
