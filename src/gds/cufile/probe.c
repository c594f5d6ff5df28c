/* SPDX-License-Identifier: MIT */
/*
 * Run penstock-gds-probe to find out how bytes would move between a file and a device.
 *
 * The program inherits the file as descriptor 3 and takes device, offset and library as arguments.
 * The program prints one line of results; other output, from the library, is skipped.  See
 * gds/probe.c.
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>

#include "base/err.h"
#include "base/fault.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/spawn.h"
#include "base/trust.h"
#include "gds/cufile/internal.h"

#define PROGRAM "penstock-gds-probe"
#define ANSWER "gds-probe 1 "
#define FAULT_NS NSEC_PER_SEC /* ns until the probe's deadline if a fault is injected */

/* ------------------------------------------------------------- the program */

/* Relative to the library's folder: when installed, and in a bundle or build folder. */
static const char *const places[] = { "../libexec/penstock/" PROGRAM, PROGRAM };

/* Build the program's path from the library's own.  Fail for a relative path: after a chdir() it
 * may name another place. */
static bool beside_us(char ret[PATH_MAX])
{
	void *us = (void *)&places;
	char path[PATH_MAX];
	const char *slash;
	Dl_info info;

	if (!dladdr(us, &info) || !info.dli_fname || info.dli_fname[0] != '/')
		return false;
	slash = strrchr(info.dli_fname, '/');
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		int n = snprintf(path, sizeof(path), "%.*s/%s", (int)(slash - info.dli_fname),
				 info.dli_fname, places[i]);

		if (n < 0 || (size_t)n >= sizeof(path) || access(path, X_OK) < 0)
			continue;
		if (trust_path(path, ret) == 0)
			return true;
		log_info("not starting %s: %s", path, err_text());
	}
	return false;
}

/* Prefer the program that came with this library to an installed one. */
static int find_program(char ret[PATH_MAX])
{
	const char *env = secure_getenv("PST_GDS_PROBE");
	bool named = env && *env;

	if (named && env[0] != '/')
		return err_set(EINVAL, "PST_GDS_PROBE is \"%s\", and no absolute path", env);
	if (!named && beside_us(ret))
		return 0;
	(void)snprintf(ret, PATH_MAX, "%s", named ? env : PST_LIBEXECDIR "/" PROGRAM);
	if (access(ret, X_OK) == 0)
		return 0;
	return err_set(ENOENT,
		       "%s is not there%s; install Penstock as a whole, or name it by "
		       "PST_GDS_PROBE",
		       named ? env : PST_LIBEXECDIR "/" PROGRAM,
		       named ? ""
			     : ", nor beside the library where only root and the caller may "
			       "write");
}

/* -------------------------------------------------------------- the answer */

/* Copy the value of one key, up to the next blank; "" if the key is missing. */
static void field(const char *line, const char *key, char *ret, size_t len)
{
	const char *at = strstr(line, key);
	size_t n = at ? strcspn(at + strlen(key), " \n") : 0;

	n = MIN(n, len - 1);
	memcpy(ret, at ? at + strlen(key) : "", n);
	ret[n] = '\0';
}

static enum cufile_mode mode_of(const char *name)
{
	for (int m = CUFILE_MODE_UNKNOWN; m <= CUFILE_MODE_C2C; m++)
		if (!strcmp(cufile_mode_name((enum cufile_mode)m), name))
			return (enum cufile_mode)m;
	return CUFILE_MODE_UNKNOWN;
}

/* Parse the result line.  Return 0, or -ENOMSG if there is no such line yet. */
static int probe_parse(const char *text, struct cufile_verdict *ret)
{
	const char *line = text, *what;
	char value[32];

	while (line && strncmp(line, ANSWER, sizeof(ANSWER) - 1) != 0) {
		line = strchr(line, '\n');
		line += line ? 1 : 0;
	}
	if (!line || !strchr(line, '\n'))
		return -ENOMSG;
	*ret = (struct cufile_verdict){ .err = 0 };
	field(line, " err=", value, sizeof(value));
	ret->err = -abs(atoi(value));
	field(line, " mode=", value, sizeof(value));
	ret->mode = mode_of(value);
	field(line, " version=", value, sizeof(value));
	ret->version = atoi(value);
	field(line, " bytes=", value, sizeof(value));
	ret->bytes = strtoull(value, NULL, 10);
	field(line, " nvfs=", value, sizeof(value));
	(void)sscanf(value, "%u.%u", &ret->nvfs_major, &ret->nvfs_minor);
	what = strstr(line, " text=");
	if (what)
		(void)snprintf(ret->text, sizeof(ret->text), "%.*s", (int)strcspn(what + 6, "\n"),
			       what + 6);
	return 0;
}

static bool is_answer(const char *text)
{
	struct cufile_verdict v;

	return probe_parse(text, &v) == 0;
}

/* Inject a fault: an errno instead of an answer, or a shorter deadline. */
static int fault(uint64_t *deadline_ns)
{
	int r = fault_hit(FAULT_GDS_PROBE);

	if (r == FAULT_SHORT)
		*deadline_ns = MIN(*deadline_ns, now_ns() + FAULT_NS);
	return r && r != FAULT_SHORT
		       ? err_set(r, PROGRAM ": an injected fault made it fail (PST_FAULT)")
		       : 0;
}

int cufile_probe(const struct local_file *f, uint64_t off, const uint8_t uuid[16],
		 uint64_t deadline_ns, struct cufile_verdict *ret)
{
	char program[PATH_MAX], device[33], offset[24], text[8192];
	char library[PATH_MAX];
	char *argv[] = { program, (char[]){ "/proc/self/fd/3" }, device, offset, NULL, NULL };
	struct spawn s = { .file = program, .argv = argv, .fd = f->fd, .enough = is_answer };
	int r = fork_guard();

	/* Never probe from a set-uid process: the child would trust the caller's environment. */
	if (r == 0 && getauxval(AT_SECURE))
		r = err_set(EPERM, "a program with more rights than its caller, as set-uid gives "
				   "them, tries no direct way");
	if (r == 0)
		r = fault(&deadline_ns);
	if (r == 0)
		r = find_program(program);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < 16; i++)
		(void)snprintf(device + 2 * i, 3, "%02x", uuid[i]);
	(void)snprintf(offset, sizeof(offset), "%" PRIu64, off);
	/* Pass the library's path: the other process would not find a library next to those of this
	 * process. */
	if (cufile_find(library) == 0)
		argv[4] = library;
	r = spawn_ask(&s, deadline_ns, text, sizeof(text));
	if (r == -ETIMEDOUT)
		return err_set(r, PROGRAM " did not answer in time: cuFile or its driver hangs");
	if (r == 0 && probe_parse(text, ret) < 0)
		r = err_set(EIO, PROGRAM " died without a word: cuFile or its driver crashed");
	return r;
}
