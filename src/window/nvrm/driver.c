/* SPDX-License-Identifier: MIT */
/*
 * The versions of the NVIDIA driver that the nvrm backend uses.
 *
 * The interface is undocumented.  A branch is used if a version of it was examined.  A version that
 * cannot be parsed belongs to no branch.
 */
#include <pthread.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "window/nvrm/nvrm.h"

/* Examined versions: 550.54.14, 570.124.06, 580.142, 580.159.04, 595.45.04. */
static const unsigned branches[] = { 550, 570, 580, 595 };

enum nvrm_mode nvrm_mode_of(const char *value)
{
	if (!value || !*value || !strcmp(value, "auto"))
		return NVRM_MODE_AUTO;
	if (!strcmp(value, "off"))
		return NVRM_MODE_OFF;
	if (!strcmp(value, "force"))
		return NVRM_MODE_FORCE;
	log_warn("PST_NVRM is none of off, auto, force: taking auto");
	return NVRM_MODE_AUTO;
}

static enum nvrm_mode mode;

static void read_mode(void)
{
	mode = nvrm_mode_of(secure_getenv("PST_NVRM"));
}

enum nvrm_mode nvrm_mode(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	(void)pthread_once(&once, read_mode);
	return mode;
}

/* Return the branch, the first number of a version.  A version is two or three numbers with dots
 * between them, and the first one has three digits.  Return 0 for other text. */
static unsigned branch_of(const char *version)
{
	unsigned parts = 0;
	const char *p = version;

	do {
		size_t digits = strspn(p, "0123456789");

		if (!digits || digits > 3 || (!parts && digits != 3))
			return 0;
		parts++;
		p += digits;
	} while (*p == '.' && p++);
	return !*p && (parts == 2 || parts == 3) ? (unsigned)strtoul(version, NULL, 10) : 0;
}

int nvrm_driver_known(const char *version, enum nvrm_mode m)
{
	unsigned branch = branch_of(version);

	if (m == NVRM_MODE_FORCE)
		return 0;
	for (unsigned i = 0; i < ARRAY_SIZE(branches); i++)
		if (branch == branches[i])
			return 0;
	if (!branch)
		return err_set(EOPNOTSUPP,
			       "the NVIDIA driver tells no version that is understood; PST_NVRM="
			       "force uses it nevertheless");
	return err_set(EOPNOTSUPP,
		       "the interface of NVIDIA driver %s was not looked at (those of 550, 570, "
		       "580 and 595 were); PST_NVRM=force uses it nevertheless",
		       version);
}
