/* SPDX-License-Identifier: MIT */
/* Locks of fcntl(2) and flock(2), between processes and within one. */
#include <sys/file.h>

#include "mount_case.h"

static struct gate ask, answer;
static int fd;

static void begin(void)
{
	ask = gate_new();
	answer = gate_new();
	fd = CASE_OK(open(at("file"), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
	T_EQ(ftruncate(fd, 1000), 0);
}

static void end(void)
{
	case_close(fd);
	gate_done(ask);
	gate_done(answer);
}

static int open_again(void)
{
	return CASE_OK(open(at("file"), O_RDWR | O_CLOEXEC));
}

static int lock(int file, int cmd, short type, off_t from, off_t len)
{
	struct flock l = { .l_type = type, .l_whence = SEEK_SET, .l_start = from, .l_len = len };

	return fcntl(file, cmd, &l);
}

static int posix_lock(int file, short type, off_t from, off_t len)
{
	return lock(file, F_SETLK, type, from, len);
}

/* Check for EAGAIN, which Linux returns where POSIX allows two errors. */
static void is_refused(int r)
{
	CASE_GIVES(r, EAGAIN);
}

/* ------------------------------------------------------------------ ranges */

static void meets_a_range(void)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int mine = open_again();

	is_refused(posix_lock(mine, F_WRLCK, 0, 0));
	is_refused(posix_lock(mine, F_RDLCK, 199, 1));
	T_EQ(posix_lock(mine, F_WRLCK, 0, 100), 0);
	T_EQ(posix_lock(mine, F_WRLCK, 200, 0), 0);
	T_EQ(fcntl(mine, F_GETLK, &l), 0);
	T_EQ(l.l_type, F_WRLCK);
	T_EQ(l.l_start, 100);
	T_EQ(l.l_len, 100);
	T_EQ(l.l_pid, getppid());
	gate_open(answer);
	gate_pass(ask);
	T_EQ(posix_lock(mine, F_RDLCK, 0, 0), 0);
	gate_open(answer);
	gate_pass(ask);
	case_close(mine);
}

static void ranges_of_two_processes(void)
{
	struct child c;
	int other;

	begin();
	T_EQ(posix_lock(fd, F_WRLCK, 100, 100), 0);
	/* A process' own locks do not conflict. */
	other = open_again();
	T_EQ(posix_lock(other, F_WRLCK, 150, 10), 0);
	c = child_start(meets_a_range);
	gate_pass(answer);
	is_refused(posix_lock(fd, F_WRLCK, 0, 10));
	is_refused(posix_lock(fd, F_RDLCK, 200, 10));
	/* Closing any descriptor of the file frees all of the process' locks on it. */
	case_close(other);
	gate_open(ask);
	gate_pass(answer);
	is_refused(posix_lock(fd, F_WRLCK, 500, 1));
	T_EQ(posix_lock(fd, F_RDLCK, 500, 1), 0);
	gate_open(ask);
	case_wait(&c);
	T_EQ(posix_lock(fd, F_WRLCK, 0, 0), 0);
	end();
}

static void holds_and_dies(void)
{
	T_EQ(posix_lock(fd, F_WRLCK, 0, 0), 0);
	gate_open(answer);
	gate_pass(ask);
	_exit(0);
}

/* The end of a process, by SIGKILL or exit(), frees its locks. */
static void the_end_of_a_process_frees(void)
{
	struct child c;

	begin();
	for (int i = 0; i < 2; i++) {
		c = child_start(holds_and_dies);
		gate_pass(answer);
		is_refused(posix_lock(fd, F_WRLCK, 0, 1));
		if (i)
			T_EQ(kill(c.pid, SIGKILL), 0);
		else
			gate_open(ask);
		T_EQ(waitpid(c.pid, NULL, 0), c.pid);
		case_close(c.from);
		/* A daemon may learn of the end a moment later. */
		for (uint64_t until = t_in_ms(5000);
		     posix_lock(fd, F_WRLCK, 0, 1) < 0 && t_now() < until;)
			(void)usleep(1000);
		T_EQ(posix_lock(fd, F_WRLCK, 0, 1), 0);
		T_EQ(posix_lock(fd, F_UNLCK, 0, 0), 0);
	}
	end();
}

static void rights_to_lock(void)
{
	int ro, wo;

	begin();
	ro = CASE_OK(open(at("file"), O_RDONLY | O_CLOEXEC));
	wo = CASE_OK(open(at("file"), O_WRONLY | O_CLOEXEC));
	CASE_GIVES(posix_lock(ro, F_WRLCK, 0, 1), EBADF);
	CASE_GIVES(posix_lock(wo, F_RDLCK, 0, 1), EBADF);
	T_EQ(posix_lock(ro, F_RDLCK, 0, 1), 0);
	T_EQ(flock(ro, LOCK_EX), 0);
	case_close(ro);
	case_close(wo);
	end();
}

/* ----------------------------------------------------------------- waiting */

static void waits_for_a_range(void)
{
	int mine = open_again();

	gate_open(answer);
	T_EQ(lock(mine, F_SETLKW, F_WRLCK, 0, 10), 0);
	gate_open(answer);
	gate_pass(ask);
	case_close(mine);
}

/* Return true if the gate stays shut for that time. */
static bool stays_shut(struct gate g, int ms)
{
	struct pollfd p = { .fd = g.fd[0], .events = POLLIN };

	return poll(&p, 1, ms) == 0;
}

static void waited_for(void)
{
	struct child c;

	begin();
	T_EQ(posix_lock(fd, F_WRLCK, 5, 10), 0);
	c = child_start(waits_for_a_range);
	gate_pass(answer);
	T_CHECK(stays_shut(answer, 200));
	T_EQ(posix_lock(fd, F_UNLCK, 5, 10), 0);
	gate_pass(answer);
	is_refused(posix_lock(fd, F_WRLCK, 5, 10));
	gate_open(ask);
	case_wait(&c);
	end();
}

static void on_alarm(int sig)
{
	(void)sig;
}

/* Start or stop an alarm each 50 ms.  Repeat, because one could come before the wait. */
static void alarms(bool on)
{
	struct sigaction sa = { .sa_handler = on ? on_alarm : SIG_IGN };
	static timer_t timer;

	T_EQ(sigaction(SIGALRM, &sa, NULL), 0);
	if (on) {
		T_EQ(timer_create(CLOCK_MONOTONIC, NULL, &timer), 0);
		T_EQ(timer_settime(timer, 0,
				   &(struct itimerspec){ { 0, 50000000 }, { 0, 50000000 } }, NULL),
		     0);
	} else {
		T_EQ(timer_delete(timer), 0);
	}
}

static void holds(void)
{
	T_EQ(posix_lock(fd, F_WRLCK, 0, 0), 0);
	T_EQ(flock(open_again(), LOCK_EX), 0);
	gate_open(answer);
	gate_pass(ask);
}

static void interrupted(void)
{
	int error[3];
	struct child c;

	begin();
	c = child_start(holds);
	gate_pass(answer);
	alarms(true);
	error[0] = lock(fd, F_SETLKW, F_WRLCK, 0, 1) < 0 ? errno : 0;
	error[1] = lock(fd, F_OFD_SETLKW, F_WRLCK, 0, 1) < 0 ? errno : 0;
	error[2] = flock(fd, LOCK_EX) < 0 ? errno : 0;
	alarms(false);
	T_EQ(error[0], EINTR);
	T_EQ(error[1], EINTR);
	T_EQ(error[2], EINTR);
	gate_open(ask);
	case_wait(&c);
	/* Nothing of the interrupted requests is left. */
	T_EQ(posix_lock(fd, F_WRLCK, 0, 0), 0);
	T_EQ(flock(fd, LOCK_EX | LOCK_NB), 0);
	c = child_start(waits_for_a_range);
	gate_pass(answer);
	T_EQ(posix_lock(fd, F_UNLCK, 0, 0), 0);
	gate_pass(answer);
	gate_open(ask);
	case_wait(&c);
	end();
}

static void waits_and_dies(void)
{
	gate_open(answer);
	(void)lock(fd, F_SETLKW, F_WRLCK, 0, 1);
	T_FAIL("it came that far");
}

/* A process that waits for a lock can be killed; its request is then gone. */
static void killed_while_it_waits(void)
{
	struct child c;

	begin();
	T_EQ(posix_lock(fd, F_WRLCK, 0, 0), 0);
	c = child_start(waits_and_dies);
	gate_pass(answer);
	(void)usleep(100000);
	T_EQ(kill(c.pid, SIGKILL), 0);
	T_EQ(waitpid(c.pid, NULL, 0), c.pid);
	case_close(c.from);
	T_EQ(posix_lock(fd, F_UNLCK, 0, 0), 0);
	c = child_start(waits_for_a_range);
	gate_pass(answer);
	gate_pass(answer);
	gate_open(ask);
	case_wait(&c);
	end();
}

/* -------------------------------------------------- locks of open files */

static void locks_of_open_files(void)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int other, copied;

	begin();
	other = open_again();
	T_EQ(lock(fd, F_OFD_SETLK, F_WRLCK, 0, 100), 0);
	is_refused(lock(other, F_OFD_SETLK, F_WRLCK, 50, 10));
	is_refused(posix_lock(other, F_RDLCK, 50, 10));
	T_EQ(fcntl(other, F_OFD_GETLK, &l), 0);
	T_EQ(l.l_type, F_WRLCK);
	T_EQ(l.l_len, 100);
	T_EQ(l.l_pid, -1);
	/* A duplicate descriptor is the same open file, so closing it frees no lock. */
	copied = CASE_OK(fcntl(fd, F_DUPFD_CLOEXEC, 0));
	T_EQ(lock(copied, F_OFD_SETLK, F_WRLCK, 0, 200), 0);
	case_close(copied);
	is_refused(lock(other, F_OFD_SETLK, F_RDLCK, 150, 1));
	T_EQ(lock(fd, F_OFD_SETLK, F_UNLCK, 0, 0), 0);
	T_EQ(lock(other, F_OFD_SETLK, F_WRLCK, 0, 0), 0);
	case_close(other);
	T_EQ(lock(fd, F_OFD_SETLK, F_WRLCK, 0, 0), 0);
	end();
}

static void locks_whole(void)
{
	int mine = open_again();

	CASE_GIVES(flock(mine, LOCK_SH | LOCK_NB), EAGAIN);
	gate_open(answer);
	T_EQ(flock(mine, LOCK_SH), 0);
	gate_open(answer);
	gate_pass(ask);
	case_close(mine);
}

static void whole_files(void)
{
	struct child c;
	int other;

	begin();
	T_EQ(flock(fd, LOCK_EX), 0);
	/* Unlike fcntl(2)'s, these locks belong to open files. */
	other = open_again();
	CASE_GIVES(flock(other, LOCK_EX | LOCK_NB), EAGAIN);
	c = child_start(locks_whole);
	gate_pass(answer);
	T_CHECK(stays_shut(answer, 200));
	T_EQ(flock(fd, LOCK_SH), 0);
	gate_pass(answer);
	T_EQ(flock(other, LOCK_SH | LOCK_NB), 0);
	CASE_GIVES(flock(other, LOCK_EX | LOCK_NB), EAGAIN);
	gate_open(ask);
	case_wait(&c);
	T_EQ(flock(fd, LOCK_UN), 0);
	T_EQ(flock(other, LOCK_EX | LOCK_NB), 0);
	case_close(other);
	T_EQ(flock(fd, LOCK_EX | LOCK_NB), 0);
	end();
}

/* After fork(), the lock belongs to both processes, until both have closed the file. */
static void has_inherited(void)
{
	gate_pass(ask);
}

static void whole_files_after_fork(void)
{
	struct child c;
	int other;

	begin();
	T_EQ(flock(fd, LOCK_EX), 0);
	c = child_start(has_inherited);
	case_close(fd);
	other = open_again();
	CASE_GIVES(flock(other, LOCK_SH | LOCK_NB), EAGAIN);
	gate_open(ask);
	case_wait(&c);
	/* A daemon may learn of the last close a moment later. */
	for (uint64_t until = t_in_ms(5000);
	     flock(other, LOCK_SH | LOCK_NB) < 0 && t_now() < until;)
		(void)usleep(1000);
	T_EQ(flock(other, LOCK_SH | LOCK_NB), 0);
	fd = other;
	end();
}

int main(int argc, char **argv)
{
	case_init(argc, argv);
	CASE(ranges_of_two_processes);
	CASE(the_end_of_a_process_frees);
	CASE(rights_to_lock);
	CASE(waited_for);
	CASE(interrupted);
	CASE(killed_while_it_waits);
	CASE(locks_of_open_files);
	CASE(whole_files);
	CASE(whole_files_after_fork);
	return case_done();
}
