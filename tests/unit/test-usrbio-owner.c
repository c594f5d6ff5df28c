/* SPDX-License-Identifier: MIT */
/* The identity of a process, and whether it is alive.  Uses real processes. */
#include "usrbio_rig.h"

#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define ID_TEXT "00112233-4455-6677-8899-aabbccddeeff"

static const uint8_t id[USRBIO_ID_LEN] = { 0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77,
					   0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff };

/* ------------------------------------------------------------------- names */

static void P11_names_with_an_owner(void)
{
	static const struct usrbio_owner owners[] = {
		{ 1, 0, 0 },
		{ 123, 456, 789 },
		{ INT_MAX, UINT64_MAX, UINT64_MAX },
	};
	static const char *const names[] = {
		"hf3fs-iov-" ID_TEXT ".p1.s0.n0",
		"hf3fs-iov-" ID_TEXT ".p123.s456.n789",
		"hf3fs-iov-" ID_TEXT ".p2147483647.s18446744073709551615.n18446744073709551615",
	};

	for (int i = 0; i < 3; i++) {
		char name[USRBIO_SHM_NAME_MAX];
		struct usrbio_owner o;

		usrbio_owner_shm(&owners[i], id, name);
		T_CHECK(!strcmp(name, names[i]));
		T_OK(usrbio_owner_parse(name, &o));
		T_EQ(o.pid, owners[i].pid);
		T_CHECK(o.start == owners[i].start && o.place == owners[i].place);
	}
}

static void P11_names_without_an_owner(void)
{
	static const char *const bad[] = {
		"",
		"psm_1a2b3c4d",
		"hf3fs-iov-",
		"hf3fs-iov-" ID_TEXT,
		"hf3fs-iov-" ID_TEXT ".",
		"hf3fs-iov-" ID_TEXT ".p1",
		"hf3fs-iov-" ID_TEXT ".p1.s1",
		"hf3fs-iov-" ID_TEXT ".p1.s1.n",
		"hf3fs-iov-" ID_TEXT ".p1.s1.n1.",
		"hf3fs-iov-" ID_TEXT ".p1.s1.n1x",
		"hf3fs-iov-" ID_TEXT ".p1.s1.n1 ",
		"hf3fs-iov-" ID_TEXT ".p.s1.n1",
		"hf3fs-iov-" ID_TEXT ".p0.s1.n1",
		"hf3fs-iov-" ID_TEXT ".p-1.s1.n1",
		"hf3fs-iov-" ID_TEXT ".p2147483648.s1.n1",
		"hf3fs-iov-" ID_TEXT ".p1.s-1.n1",
		"hf3fs-iov-" ID_TEXT ".p1.s18446744073709551616.n1",
		"hf3fs-iov-" ID_TEXT ".p1.s1.n18446744073709551616",
		"hf3fs-iov-" ID_TEXT ".s1.p1.n1",
		"hf3fs-iov-" ID_TEXT ".p1.n1.s1",
		"hf3fs-iov-" ID_TEXT "p1.s1.n1",
		"hf3fs-iov-00112233-4455-6677-8899-AABBCCDDEEFF.p1.s1.n1",
		"hf3fs-iov-00112233-4455-6677-8899-aabbccddeef.p1.s1.n1",
		"xhf3fs-iov-" ID_TEXT ".p1.s1.n1",
		"nixl_hf3fs." ID_TEXT ".p1.s1.n1",
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct usrbio_owner o = { .pid = -5 };

		if (usrbio_owner_parse(bad[i], &o) != -EINVAL || o.pid != -5)
			T_FAIL("'%s' was taken", bad[i]);
	}
}

/* --------------------------------------------------------------- this one */

struct asked {
	int r;
	struct usrbio_owner o;
};

static void *ask_self(void *arg)
{
	struct asked *a = arg;

	a->r = usrbio_owner_self(&a->o);
	return NULL;
}

static void P11_every_thread_is_the_process(void)
{
	struct asked other = { .r = -1 };
	struct usrbio_owner self;
	pthread_t t;

	T_OK(usrbio_owner_self(&self));
	T_EQ(self.pid, getpid());
	T_CHECK(self.start > 0);
	T_EQ(usrbio_owner_alive(&self), 1);
	T_EQ(pthread_create(&t, NULL, ask_self, &other), 0);
	T_EQ(pthread_join(t, NULL), 0);
	T_OK(other.r);
	T_EQ(other.o.pid, self.pid);
	T_CHECK(other.o.start == self.start && other.o.place == self.place);
}

static int is_another(void *arg)
{
	struct usrbio_owner *parent = arg, self;

	RIG_MUST(usrbio_owner_self(&self) == 0);
	RIG_MUST(self.pid == getpid() && self.pid != parent->pid);
	RIG_MUST(self.place == parent->place);
	RIG_MUST(usrbio_owner_alive(parent) == 1);
	return 0;
}

static void P11_a_child_is_another(void)
{
	struct usrbio_owner self;

	T_OK(usrbio_owner_self(&self));
	T_EQ(rig_wait(rig_fork(is_another, &self)), 0);
}

/* ---------------------------------------------------------------- do they live */

/* Return the identity of a child, as the child itself would determine it. */
static struct usrbio_owner owner_of(pid_t pid)
{
	char path[64], buf[512];
	struct usrbio_owner o;
	unsigned field = 2;
	char *p;
	FILE *f;

	T_OK(usrbio_owner_self(&o));
	o.pid = pid;
	(void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "re");
	T_CHECK(f && fgets(buf, sizeof(buf), f));
	(void)fclose(f);
	p = strrchr(buf, ')');
	T_CHECK(p);
	for (p++; field < 22; p++)
		field += *p == ' ';
	o.start = strtoull(p, NULL, 10);
	return o;
}

static void P11_a_killed_process_is_gone(void)
{
	pid_t pid = rig_child(NULL, NULL);
	struct usrbio_owner o = owner_of(pid);

	T_EQ(usrbio_owner_alive(&o), 1);
	T_EQ(kill(pid, SIGSTOP), 0);
	rig_until(pid, 'T');
	T_EQ(usrbio_owner_alive(&o), 1);
	T_EQ(kill(pid, SIGKILL), 0);
	rig_until(pid, 'Z');
	/* A zombie's parent may never wait for it, but its memory is gone. */
	T_EQ(usrbio_owner_alive(&o), 0);
	T_EQ(rig_wait(pid), 128 + SIGKILL);
	T_EQ(usrbio_owner_alive(&o), 0);
}

static int odd_name(void *arg)
{
	(void)arg;
	return prctl(PR_SET_NAME, ") Z 1 (") < 0;
}

static void P11_names_of_processes_do_not_matter(void)
{
	pid_t pid = rig_child(odd_name, NULL);
	struct usrbio_owner o = owner_of(pid);

	T_EQ(usrbio_owner_alive(&o), 1);
	rig_kill(pid);
	T_EQ(usrbio_owner_alive(&o), 0);
}

static void *sleep_on(void *arg)
{
	(void)arg;
	for (;;)
		(void)pause();
	return NULL;
}

static int leader_ends(void *arg)
{
	pthread_t t;

	(void)arg;
	RIG_MUST(pthread_create(&t, NULL, sleep_on, NULL) == 0);
	pthread_exit(NULL);
}

static void P11_a_process_lives_on_without_its_first_thread(void)
{
	pid_t pid = rig_fork(leader_ends, NULL);
	struct usrbio_owner o = owner_of(pid);

	rig_until(pid, 'Z');
	T_EQ(usrbio_owner_alive(&o), 1);
	T_EQ(kill(pid, SIGKILL), 0);
	T_EQ(rig_wait(pid), 128 + SIGKILL);
	T_EQ(usrbio_owner_alive(&o), 0);
}

static void P11_another_start_is_another_process(void)
{
	struct usrbio_owner o;

	T_OK(usrbio_owner_self(&o));
	o.start--;
	T_EQ(usrbio_owner_alive(&o), 0);
	o.start += 2;
	T_EQ(usrbio_owner_alive(&o), 0);
}

/* Let the kernel reuse a process number. */
static void P11_a_number_that_is_used_again(void)
{
	pid_t pid = rig_child(NULL, NULL), again;
	struct usrbio_owner o = owner_of(pid);
	struct clone_args args = { .exit_signal = SIGCHLD,
				   .set_tid = (uintptr_t)&pid,
				   .set_tid_size = 1 };
	int err, alive;

	rig_kill(pid);
	(void)usleep(20000); /* more than a tick of 10 ms */
	again = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
	err = errno;
	if (again == 0)
		for (;;)
			(void)pause();
	if (again < 0 && (err == EPERM || err == ENOSYS))
		T_SKIP("the right to choose a process' number (CAP_CHECKPOINT_RESTORE)");
	if (again < 0 && err == EEXIST)
		T_SKIP("the number was taken by another program meanwhile");
	T_EQ(again, pid);
	alive = usrbio_owner_alive(&o);
	rig_kill(again);
	T_EQ(alive, 0);
}

/* ----------------------------------------------------------------- namespaces */

static void P11_another_place_cannot_be_seen(void)
{
	struct usrbio_owner o;

	T_OK(usrbio_owner_self(&o));
	o.place ^= 1;
	T_EQ(usrbio_owner_alive(&o), -EXDEV);
	o.pid = INT_MAX; /* in this namespace, this pid would count as dead */
	T_EQ(usrbio_owner_alive(&o), -EXDEV);
	o.place ^= 1;
	T_EQ(usrbio_owner_alive(&o), 0);
}

/* In a chroot "/" is no mount point: then only tests/guard.c can do this. */
static int private_mounts(void)
{
	return unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0;
}

static void need_unshare(int what, const char *text)
{
	pid_t pid;

	(void)fflush(stdout);
	pid = fork();
	T_CHECK(pid >= 0);
	if (pid == 0)
		_exit(unshare(what & ~CLONE_NEWNS) < 0 || (what & CLONE_NEWNS && private_mounts()));
	if (rig_wait(pid) != 0)
		T_SKIP("the right to make %s", text);
}

/* Run first with the outer /proc, then with the namespace's own. */
static int in_pid_namespace(void *arg)
{
	struct usrbio_owner *outside = arg, self;

	RIG_MUST(getpid() == 1);
	RIG_MUST(usrbio_owner_self(&self) == -EXDEV);
	RIG_MUST(usrbio_owner_alive(outside) == -EXDEV);
	RIG_MUST(mount("proc", "/proc", "proc", 0, NULL) == 0);
	RIG_MUST(usrbio_owner_self(&self) == 0);
	RIG_MUST(self.pid == 1 && self.place != outside->place);
	RIG_MUST(usrbio_owner_alive(&self) == 1);
	RIG_MUST(usrbio_owner_alive(outside) == -EXDEV);
	return 0;
}

static int fork_into_pid_namespace(void *arg)
{
	pid_t pid;
	int status;

	RIG_MUST(!private_mounts() && unshare(CLONE_NEWPID) == 0);
	pid = fork();
	RIG_MUST(pid >= 0);
	if (pid == 0)
		_exit(in_pid_namespace(arg));
	RIG_MUST(waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}

static void P11_pid_namespaces_are_other_places(void)
{
	struct usrbio_owner self;

	need_unshare(CLONE_NEWPID | CLONE_NEWNS, "a PID namespace");
	T_OK(usrbio_owner_self(&self));
	T_EQ(rig_wait(rig_fork(fork_into_pid_namespace, &self)), 0);
}

/* Start times are relative to the time namespace of the process that asks. */
static int fork_into_time_namespace(void *arg)
{
	struct usrbio_owner *outside = arg, self;
	pid_t pid;
	int status;

	RIG_MUST(unshare(CLONE_NEWTIME) == 0);
	pid = fork();
	RIG_MUST(pid >= 0);
	if (pid == 0) {
		RIG_MUST(usrbio_owner_self(&self) == 0);
		RIG_MUST(self.place != outside->place);
		RIG_MUST(usrbio_owner_alive(outside) == -EXDEV);
		_exit(0);
	}
	RIG_MUST(waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}

static void P11_time_namespaces_are_other_places(void)
{
	struct usrbio_owner self;

	need_unshare(CLONE_NEWTIME, "a time namespace");
	T_OK(usrbio_owner_self(&self));
	T_EQ(rig_wait(rig_fork(fork_into_time_namespace, &self)), 0);
}

/* ------------------------------------------------------------------ a poor /proc */

static int hidden_from_nobody(void *arg)
{
	struct usrbio_owner *owners = arg;

	RIG_MUST(!private_mounts());
	RIG_MUST(mount("proc", "/proc", "proc", 0, "hidepid=2") == 0);
	RIG_MUST(rig_become_nobody() == 0);
	RIG_MUST(usrbio_owner_alive(&owners[0]) == -EACCES);
	RIG_MUST(usrbio_owner_alive(&owners[1]) == 0);
	return 0;
}

static void P11_what_proc_hides_is_not_gone(void)
{
	struct usrbio_owner owners[2];

	if (geteuid() != 0)
		T_SKIP("root, to become another user");
	need_unshare(CLONE_NEWNS, "a mount namespace");
	T_OK(usrbio_owner_self(&owners[0]));
	owners[1] = owners[0];
	owners[1].pid = INT_MAX;
	T_EQ(rig_wait(rig_fork(hidden_from_nobody, owners)), 0);
}

static int without_proc(void *arg)
{
	struct usrbio_owner *outside = arg, self;

	RIG_MUST(!private_mounts());
	RIG_MUST(mount("none", "/proc", "tmpfs", 0, NULL) == 0);
	RIG_MUST(usrbio_owner_self(&self) == -ENOENT);
	RIG_MUST(usrbio_owner_alive(outside) == -ENOENT);
	return 0;
}

static void P11_without_proc_nobody_is_gone(void)
{
	struct usrbio_owner self;

	need_unshare(CLONE_NEWNS, "a mount namespace");
	T_OK(usrbio_owner_self(&self));
	T_EQ(rig_wait(rig_fork(without_proc, &self)), 0);
}

int main(void)
{
	T_RUN(P11_names_with_an_owner);
	T_RUN(P11_names_without_an_owner);
	T_RUN(P11_every_thread_is_the_process);
	T_RUN(P11_a_child_is_another);
	T_RUN(P11_a_killed_process_is_gone);
	T_RUN(P11_names_of_processes_do_not_matter);
	T_RUN(P11_a_process_lives_on_without_its_first_thread);
	T_RUN(P11_another_start_is_another_process);
	T_RUN(P11_a_number_that_is_used_again);
	T_RUN(P11_another_place_cannot_be_seen);
	T_RUN(P11_pid_namespaces_are_other_places);
	T_RUN(P11_time_namespaces_are_other_places);
	T_RUN(P11_what_proc_hides_is_not_gone);
	T_RUN(P11_without_proc_nobody_is_gone);
	return t_done();
}
