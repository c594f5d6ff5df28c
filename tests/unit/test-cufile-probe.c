/* SPDX-License-Identifier: MIT */
/*
 * Another process tries the path between a file and a device: its answer when cuFile works,
 * lies, hangs or dies.
 */
#include <poll.h>
#include <stdatomic.h>
#include <sys/auxv.h>

#include "base/fault.h"
#include "cufile_rig.h"

#define WAIT_MS 60000

static bool privileged;

unsigned long __real_getauxval(unsigned long type);
unsigned long __wrap_getauxval(unsigned long type);

unsigned long __wrap_getauxval(unsigned long type)
{
	return type == AT_SECURE ? privileged : __real_getauxval(type);
}

static struct pst_device info = { .sz = sizeof(info) };

/* Configure the stub by text: the probe's process reads the same setting. */
static void ready(const char *text)
{
	use_library(text);
	mem->ops->device_info(mem->device, &info);
}

static int ask(uint64_t off, uint64_t ms, struct cufile_verdict *ret)
{
	memset(ret, 0x55, sizeof(*ret));
	return cufile_probe(local_of(file), off, info.uuid, t_in_ms(ms), ret);
}

static void good_is(const char *text, enum cufile_mode mode, int version, unsigned nvfs)
{
	struct cufile_verdict v;

	if (!getenv("PST_LIBCUFILE"))
		T_SKIP("needs the libraries of tests/stub");
	ready(text);
	T_OK(ask(0, WAIT_MS, &v));
	T_EQ(v.err, 0);
	T_EQ(v.mode, mode);
	T_EQ(v.version, version);
	T_EQ(v.nvfs_major, nvfs);
	T_EQ(v.bytes, MIB(1));
	T_CHECK(!v.text[0]);
	/* This process has not used cuFile. */
	T_EQ(state().opens, 0);
	T_EQ(state().calls, 0);
	nothing_is_left();
}

static void p2pdma(void)
{
	good_is("mode=p2pdma", CUFILE_MODE_P2PDMA, 1150, 0);
}

static void nvfs(void)
{
	good_is("mode=nvfs,version=1190", CUFILE_MODE_NVFS, 1190, 2);
}

static void c2c(void)
{
	good_is("mode=c2c", CUFILE_MODE_C2C, 1150, 0);
}

/* A future version has counters of unknown form: strictness alone is enough. */
static void a_version_to_come(void)
{
	good_is("mode=nvfs,version=2000", CUFILE_MODE_NVFS, 2000, 2);
}

static void it_may_print(void)
{
	good_is("mode=p2pdma,noise=1", CUFILE_MODE_P2PDMA, 1150, 0);
}

static void bad_is(const char *text, int err, const char *says)
{
	struct cufile_verdict v;

	if (!getenv("PST_LIBCUFILE"))
		T_SKIP("needs the libraries of tests/stub");
	ready(text);
	T_OK(ask(0, WAIT_MS, &v));
	T_EQ(v.err, err);
	T_EQ(v.mode, CUFILE_MODE_UNKNOWN);
	if (!strstr(v.text, says))
		T_FAIL("\"%s\" has no \"%s\"", v.text, says);
	nothing_is_left();
}

static void no_way(void)
{
	bad_is("mode=compat", -EOPNOTSUPP, "load the module nvidia-fs");
}

static void no_udev(void)
{
	bad_is("udev=0", -EOPNOTSUPP, "/run/udev");
}

static void no_pages(void)
{
	bad_is("mode=nvfs,pin=4096", -ENOMEM, "BAR1");
}

static void lies_about_success(void)
{
	bad_is("lie=nodata", -EILSEQ, "the first at 0");
}

static void lies_in_one_bit(void)
{
	bad_is("mode=nvfs,lie=wrong", -EILSEQ, "the first at 524288");
}

static void lies_about_the_end(void)
{
	bad_is("lie=short", -EIO, "524288 bytes where the file has 1048576");
}

static void lies_about_too_much(void)
{
	bad_is("lie=more", -EIO, "nothing of it holds");
}

static void lies_about_the_way(void)
{
	bad_is("mode=compat,lie=claims", 0, "which way");
}

static void fails_to_read(void)
{
	bad_is("fail=cuFileRead:1:5", -EIO, "EIO");
}

/* -------------------------------------------------------------- ends badly */

static void it_hangs(void)
{
	static const char *const at[] = { "cuFileDriverOpen", "cuFileHandleRegister",
					  "cuFileBufRegister", "read" };
	struct cufile_verdict v;
	char text[64];
	uint64_t t;

	if (!getenv("PST_LIBCUFILE"))
		T_SKIP("needs the libraries of tests/stub");
	ready("");
	for (unsigned i = 0; i < ARRAY_SIZE(at); i++) {
		(void)snprintf(text, sizeof(text), "hang=%s:1", at[i]);
		(void)setenv("STUB_CUFILE", text, 1);
		t = t_now();
		T_EQ(ask(0, 400, &v), -ETIMEDOUT);
		T_CHECK(strstr(err_text(), "hangs"));
		T_CHECK(t_now() - t > 399000000u);
	}
	(void)unsetenv("STUB_CUFILE");
	nothing_is_left();
}

static atomic_bool written;

static void *write_on(void *arg)
{
	uint64_t *bytes = malloc(MIB(1));

	(void)arg;
	/* Always write new bytes: repeated ones would look like no write. */
	for (uint64_t i = 0; bytes && !atomic_load(&written); i++) {
		for (unsigned at = 0; at < MIB(1) / sizeof(*bytes); at++)
			bytes[at] = i;
		if (pwrite(local_of(file)->fd, bytes, MIB(1), 0) != MIB(1))
			break;
	}
	free(bytes);
	return NULL;
}

/* Another program writes the file during the probe: cuFile is not blamed. */
static void the_file_changes(void)
{
	struct cufile_verdict v;
	pthread_t writer;

	if (!getenv("PST_LIBCUFILE"))
		T_SKIP("needs the libraries of tests/stub");
	ready("mode=p2pdma");
	T_CHECK(!pthread_create(&writer, NULL, write_on, NULL));
	T_OK(ask(0, WAIT_MS, &v));
	atomic_store(&written, true);
	(void)pthread_join(writer, NULL);
	if (v.err) {
		T_EQ(v.err, -EAGAIN);
		T_CHECK(strstr(v.text, "changes"));
	}
	T_OK(ask(0, WAIT_MS, &v));
	T_EQ(v.err, 0);
	nothing_is_left();
}

static void *append(void *arg)
{
	static const uint8_t bytes[777];
	off_t at = *(const off_t *)arg;

	for (; !atomic_load(&written) && at < 1 << 20; at += sizeof(bytes)) {
		if (pwrite(local_of(file)->fd, bytes, sizeof(bytes), at) != sizeof(bytes))
			break;
		(void)usleep(300);
	}
	return NULL;
}

/* Another program appends to the file during the probe: cuFile is not blamed. */
static void the_file_grows(void)
{
	struct cufile_verdict v;
	off_t size = 200001;
	pthread_t writer;

	if (!getenv("PST_LIBCUFILE"))
		T_SKIP("needs the libraries of tests/stub");
	ready("mode=p2pdma");
	T_EQ(ftruncate(local_of(file)->fd, size), 0);
	T_CHECK(!pthread_create(&writer, NULL, append, &size));
	T_OK(ask(0, WAIT_MS, &v));
	atomic_store(&written, true);
	(void)pthread_join(writer, NULL);
	if (v.err) {
		T_EQ(v.err, -EAGAIN);
		T_CHECK(strstr(v.text, "changes"));
	}
	T_OK(ask(0, WAIT_MS, &v));
	T_EQ(v.err, 0);
	nothing_is_left();
}

/* PST_FAULT makes the probe fail, or shortens its time. */
static void it_is_made_to_fail(void)
{
	struct cufile_verdict v;
	uint64_t t;

	if (!getenv("PST_LIBCUFILE"))
		T_SKIP("needs the libraries of tests/stub");
	ready("");
	T_OK(fault_set("gds.probe:1:EMFILE,gds.probe:2:short"));
	T_EQ(ask(0, WAIT_MS, &v), -EMFILE);
	T_CHECK(strstr(err_text(), "PST_FAULT"));
	(void)setenv("STUB_CUFILE", "hang=cuFileDriverOpen:1", 1);
	t = t_now();
	T_EQ(ask(0, WAIT_MS, &v), -ETIMEDOUT);
	T_CHECK(t_now() - t < T_HANG_NS);
	(void)unsetenv("STUB_CUFILE");
	T_OK(fault_set(NULL));
	nothing_is_left();
}

static void write_script(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0700);

	T_CHECK(fd >= 0);
	T_EQ(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	(void)close(fd);
}

static int ask_script(const char *text, struct cufile_verdict *v)
{
	char path[PATH_MAX + 16];
	int r;

	(void)snprintf(path, sizeof(path), "%s/probe", dir);
	write_script(path, text);
	(void)setenv("PST_GDS_PROBE", path, 1);
	r = ask(65536, 2000, v);
	(void)unlink(path);
	return r;
}

/* Run in a process whose library name is relative, as by a relative LD_LIBRARY_PATH. */
static int as_relative(void)
{
	struct cufile_verdict v;

	(void)unsetenv("PST_GDS_PROBE");
	if (setjmp(t_jump) == 0) {
		ready("mode=p2pdma");
		(void)ask(65536, 2000, &v);
		nothing_is_left();
	}
	return 0;
}

/* After a chdir() a relative name means another folder: no program in it may be started. */
static void a_relative_folder(void)
{
	char path[PATH_MAX + 32], text[PATH_MAX + 64];
	int status;
	pid_t pid;

	ready("mode=p2pdma");
	(void)snprintf(path, sizeof(path), "%s/evil", dir);
	T_EQ(mkdir(path, 0700), 0);
	(void)snprintf(text, sizeof(text), "#!/bin/sh\ntouch %s/evil/started\n", dir);
	(void)snprintf(path, sizeof(path), "%s/evil/penstock-gds-probe", dir);
	write_script(path, text);
	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		if (chdir(dir) == 0)
			(void)execl("/proc/self/exe", "evil/test", "relative", (char *)NULL);
		_exit(3);
	}
	T_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	(void)unlink(path);
	(void)snprintf(path, sizeof(path), "%s/evil/started", dir);
	T_CHECK(unlink(path) < 0 && errno == ENOENT);
	(void)snprintf(path, sizeof(path), "%s/evil", dir);
	T_EQ(rmdir(path), 0);
	T_EQ(status, 0);
	nothing_is_left();
}

/* A set-uid program starts no probe, because the child would trust the caller's environment. */
static void more_rights_than_the_caller(void)
{
	struct cufile_verdict v;

	ready("mode=p2pdma");
	privileged = true;
	T_EQ(ask_script("#!/bin/sh\necho 'gds-probe 1 err=0 mode=nvfs'\n", &v), -EPERM);
	T_CHECK(strstr(err_text(), "set-uid"));
	privileged = false;
	T_OK(ask_script("#!/bin/sh\necho 'gds-probe 1 err=0 mode=nvfs'\n", &v));
	nothing_is_left();
}

static void it_dies(void)
{
	struct cufile_verdict v;

	ready("");
	T_EQ(ask_script("#!/bin/sh\nkill -11 $$\n", &v), -EIO);
	T_CHECK(strstr(err_text(), "died without a word"));
	T_EQ(ask_script("#!/bin/sh\necho gds-probe 1 err=0 mode=nvfs\\\\c\n", &v), -EIO);
	T_EQ(ask_script("#!/bin/sh\necho gds-probe 2 err=0\n", &v), -EIO);
	T_EQ(ask_script("#!/nowhere/sh\n", &v), -ENOENT);
	T_EQ(ask_script("neither program nor script", &v), -ENOEXEC);
	(void)setenv("PST_GDS_PROBE", "/nowhere/probe", 1);
	T_EQ(ask(0, 1000, &v), -ENOENT);
	T_CHECK(strstr(err_text(), "/nowhere/probe"));
	/* After a chdir() a relative name would be another program. */
	(void)setenv("PST_GDS_PROBE", "bin/probe", 1);
	T_EQ(ask(0, 1000, &v), -EINVAL);
	T_CHECK(strstr(err_text(), "no absolute path"));
	nothing_is_left();
}

/* Any output of the probe is parsed carefully, and nothing after the answer is read. */
static void answers_are_read_with_care(void)
{
	struct cufile_verdict v;

	ready("");
	T_EQ(ask_script("#!/bin/sh\necho gds-probe 1\n", &v), -EIO);
	T_EQ(ask_script("#!/bin/sh\necho 'gds-probe 1 x'\n", &v), 0);
	T_CHECK(!v.err && v.mode == CUFILE_MODE_UNKNOWN && !v.version && !v.bytes && !v.text[0]);
	T_EQ(ask_script("#!/bin/sh\necho chatter\necho 'gds-probe 1 err=5 mode=nvfs version=1150 "
			"nvfs=2.28 bytes=7 text=a b = c'\necho more\n",
			&v),
	     0);
	T_CHECK(v.err == -5 && v.mode == CUFILE_MODE_NVFS && v.version == 1150 && v.bytes == 7 &&
		v.nvfs_major == 2 && v.nvfs_minor == 28 && !strcmp(v.text, "a b = c"));
	T_EQ(ask_script("#!/bin/sh\nhead -c 100000 /dev/zero | tr '\\0' y\n", &v), -EIO);
	/* The probe inherits only descriptors 0 to 3, of which 3 is the file, and gets its
	 * arguments. */
	T_EQ(ask_script("#!/bin/sh\necho \"gds-probe 1 err=0 mode=nvfs text=$(echo "
			"/proc/$$/fd/*) $*\"\n",
			&v),
	     0);
	T_CHECK(strstr(v.text, " /proc/self/fd/3 ") && strstr(v.text, " 65536"));
	nothing_is_left();
}

/* ------------------------------------------------------------ no side effect */

static volatile int nr_signals;

static void on_child(int sig)
{
	(void)sig;
	nr_signals++;
}

static void the_program_hears_nothing(void)
{
	struct cufile_verdict v;
	sigset_t before, after;
	int status;

	ready("mode=p2pdma");
	(void)signal(SIGCHLD, on_child);
	(void)pthread_sigmask(SIG_SETMASK, NULL, &before);
	for (unsigned i = 0; i < 2; i++)
		T_EQ(ask_script(i ? "#!/bin/sh\necho 'gds-probe 1 err=0 mode=nvfs'\nexec sleep 60\n"
				  : "#!/bin/sh\necho 'gds-probe 1 err=0 mode=nvfs'\n",
				&v),
		     0);
	T_EQ(nr_signals, 0);
	T_EQ(waitpid(-1, &status, WNOHANG), -1);
	T_EQ(errno, ECHILD);
	(void)pthread_sigmask(SIG_SETMASK, NULL, &after);
	for (int sig = 1; sig < 32; sig++)
		T_EQ(sigismember(&before, sig), sigismember(&after, sig));
	nothing_is_left();
}

/* A program may have closed descriptors 0 to 2. */
static void odd_descriptors(void)
{
	struct cufile_verdict v;
	int keep[3], pipe_end[2], left = 0;
	char byte, path[PATH_MAX + 16];
	FILE *f;

	ready("mode=p2pdma");
	T_EQ(pipe(pipe_end), 0); /* the probe must not inherit the write end */
	for (int i = 0; i < 3; i++) {
		keep[i] = fcntl(i, F_DUPFD_CLOEXEC, 20);
		(void)close(i);
	}
	/* The script may be killed as soon as it has answered. */
	(void)ask_script("#!/bin/sh\nsleep 60 &\necho $! >\"$0.pid\"\n"
			 "echo 'gds-probe 1 err=0 mode=nvfs'\n",
			 &v);
	for (int i = 0; i < 3; i++) {
		(void)dup2(keep[i], i);
		(void)close(keep[i]);
	}
	T_EQ(v.mode, CUFILE_MODE_NVFS);
	(void)close(pipe_end[1]);
	T_EQ(read(pipe_end[0], &byte, 1), 0);
	(void)snprintf(path, sizeof(path), "%s/probe.pid", dir);
	f = fopen(path, "re");
	T_CHECK(f);
	T_EQ(fscanf(f, "%d\n", &left), 1);
	(void)fclose(f);
	T_CHECK(left > 0 && kill(left, SIGKILL) == 0);
	(void)unlink(path);
	(void)close(pipe_end[0]);
	nothing_is_left();
}

/* Signals from the program's terminal must not reach the probe. */
static void its_own_session(void)
{
	struct cufile_verdict v;
	int session, pid;

	ready("mode=p2pdma");
	T_OK(ask_script("#!/bin/sh\nread -r pid name state up group session rest </proc/$$/stat\n"
			"echo \"gds-probe 1 err=0 text=$session $$\"\n",
			&v));
	T_EQ(sscanf(v.text, "%d %d", &session, &pid), 2);
	T_EQ(session, pid);
	T_CHECK(session != getsid(0));
	nothing_is_left();
}

static atomic_bool answered;

static void *ask_slowly(void *arg)
{
	struct cufile_verdict v;

	(void)arg;
	(void)ask_script("#!/bin/sh\n: >\"$0.on\"\nwhile [ -e \"$0.on\" ]; do sleep 0.01; done\n"
			 "echo 'gds-probe 1 err=0 mode=nvfs'\n",
			 &v);
	atomic_store(&answered, true);
	return NULL;
}

/* The probe must not keep a file open that the program closes. */
static void nothing_is_kept_open(void)
{
	struct pollfd p = { .events = POLLIN };
	char path[PATH_MAX + 16];
	pthread_t stream_watcher;
	int ends[2];

	ready("mode=p2pdma");
	T_EQ(pipe2(ends, O_CLOEXEC), 0);
	T_CHECK(!pthread_create(&stream_watcher, NULL, ask_slowly, NULL));
	(void)snprintf(path, sizeof(path), "%s/probe.on", dir);
	while (access(path, F_OK) < 0 && !atomic_load(&answered))
		(void)usleep(1000);
	(void)close(ends[1]);
	p.fd = ends[0];
	T_EQ(poll(&p, 1, WAIT_MS), 1);
	T_CHECK(p.revents & POLLHUP);
	T_CHECK(!atomic_load(&answered));
	T_EQ(unlink(path), 0);
	(void)pthread_join(stream_watcher, NULL);
	(void)close(ends[0]);
	nothing_is_left();
}

static void not_in_a_child(void)
{
	struct cufile_verdict v;
	int status = 0;
	pid_t pid;

	ready("mode=p2pdma");
	T_OK(cufile_check());
	pid = fork();
	if (!pid)
		_exit(ask(0, 1000, &v) != -EOWNERDEAD);
	T_EQ(waitpid(pid, &status, 0), pid);
	T_EQ(status, 0);
	nothing_is_left();
}

static void offsets(void)
{
	struct cufile_verdict v;

	if (!getenv("PST_LIBCUFILE"))
		T_SKIP("needs the libraries of tests/stub");
	ready("mode=p2pdma");
	T_EQ(ftruncate(local_of(file)->fd, MIB(1) + 100), 0);
	T_OK(ask(MIB(1), WAIT_MS, &v));
	T_EQ(v.err, 0);
	T_EQ(v.bytes, 100);
	T_OK(ask(5000, WAIT_MS, &v));
	T_EQ(v.bytes, MIB(1) + 100 - 4096);
	T_OK(ask(MIB(2), WAIT_MS, &v));
	T_EQ(v.err, -EINVAL);
	T_CHECK(strstr(v.text, "no bytes"));
	info.uuid[3] ^= 1;
	T_OK(ask(0, WAIT_MS, &v));
	T_EQ(v.err, -ENODEV);
	nothing_is_left();
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "relative") == 0)
		return as_relative();
	APART(p2pdma);
	APART(nvfs);
	APART(c2c);
	APART(a_version_to_come);
	APART(it_may_print);
	APART(no_way);
	APART(no_udev);
	APART(no_pages);
	APART(lies_about_success);
	APART(lies_in_one_bit);
	APART(lies_about_the_end);
	APART(lies_about_too_much);
	APART(lies_about_the_way);
	APART(fails_to_read);
	APART(the_file_changes);
	APART(the_file_grows);
	APART(a_relative_folder);
	APART(more_rights_than_the_caller);
	APART(it_hangs);
	APART(it_is_made_to_fail);
	APART(it_dies);
	APART(answers_are_read_with_care);
	APART(the_program_hears_nothing);
	APART(odd_descriptors);
	APART(its_own_session);
	APART(nothing_is_kept_open);
	APART(not_in_a_child);
	APART(offsets);
	return t_done();
}
