#!/bin/sh
# SPDX-License-Identifier: MIT
# stat-calls.sh [ROOT]: submitting, reaping and workers never wait for a file server.  A stat call
# waits, unless it is statx(2) with AT_STATX_DONT_SYNC, as in file_stamp(); so does opening a file
# again.  The table below has each function of src that makes a call which may wait, with its
# thread.  The last case plants calls to prove that this test can fail.
set -eu
root=${1:-$(dirname "$0")/../..}
root=$(cd "$root" && pwd)

# FILE FUNCTION: why the call may wait there
allowed() {
	cat <<'END'
src/api/penstock.c file_open_reader: pst_file_open(), pst_file_wrap()
src/api/penstock.c pst_file_info: a call of the program, which is told that it may wait
src/api/penstock.c pst_file_open: a call of the program
src/api/penstock.c pst_file_wrap: a call of the program
src/base/beside.c beside_path: a module is loaded, when a file is opened
src/base/dio.c dio_align: a file is opened
src/base/trust.c check_mount: a library is loaded
src/base/trust.c enter_root: a library is loaded
src/base/trust.c step: a library is loaded
src/core/ways/proof.c cache_add: the thread pst-proofs
src/core/ways/proof.c cache_open: the thread pst-proofs
src/core/ways/proof.c dir_open: the thread pst-proofs
src/file/local.c alignment: a file is opened
src/file/local.c check_wrap: a file is opened
src/file/local.c local_fill: a file is opened
src/file/local.c local_file_size: file_size(), whose callers stand here
src/file/local.c open_plain: a file is opened
src/file/local.c open_twin: a file is opened; a worker does it only without FILE_MAY_HANG
src/file/local_names.c local_stat: a call of the program
src/file/local_names.c local_names_look_at: a call of the program
src/file/own.c own_files_get: a worker, only without FILE_MAY_HANG
src/gds/cufile/find.c find_add: a library is loaded
src/gds/cufile/find.c slurp: a library is loaded
src/gds/cufile/probe.c beside_us: a process of the probe is started, by a thread pst-gds
src/gds/facts/list.c list_look_at: pst_check()
src/gds/facts/mount.c gds_direct_io: pst_check()
src/gds/facts/read.c open_regular: pst_check()
src/gds/path/check.c open_path: pst_check()
src/gds/path/check.c try_it: pst_check()
src/gds/path/gds.c gds_probe: a thread pst-gds
src/gds/path/move.c move_is_end: a thread pst-gds of one transfer
src/gds/path/move.c job_move: a thread pst-gds of one transfer
src/gds/probe.c look_there: the process of the probe
src/gds/probe.c probe_open_file: the process of the probe
src/mem/dmabuf.c buffer_get: memory is imported
src/mem/dmabuf.c dmabuf_check_fd: memory is imported
src/mem/gaudi/find.c gaudi_by_fd: memory is imported
src/mem/gaudi/hlthunk.c gaudi_open: memory is allocated
src/mem/gaudi/hlthunk.c gaudi_own_stale: memory is allocated or freed
src/mem/memfd.c memfd_check: memory is imported
src/net/keys.c check_file: a file of keys is read, when a file is opened
src/peer/connect.c listener_bind: a call of the program
src/peer/connect.c peer_listener_free: a call of the program
src/peer/connect.c unix_is_dead: a call of the program
src/tier/provider_names.c file_facts: a call of the program
src/tier/provider.c open_now: a file is opened, or a thread pst-tier opens it again
END
}

# Print "FILE FUNCTION" for each call that may wait.  A function begins in the first column.
calls() { # ROOT
	cd "$1"
	# The mover of tiers is not part of the library and may wait; the provider is.
	find src -path 'src/tier/[!p]*' -prune -o -name '*.[ch]' -print | sort | xargs awk '
	FNR == 1 { fn = "-"; inside = 0 }
	{
		code = $0
		if (inside && !sub(/^.*\*\//, "", code))
			next
		inside = 0
		gsub(/\/\*([^*]|\*[^\/])*\*\//, "", code)
		if (sub(/\/\*.*$/, "", code))
			inside = 1
		gsub(/"([^"\\]|\\.)*"/, "\"\"", code)
	}
	code ~ /^[a-z_].*[ *][a-z_0-9]+\(/ {
		fn = code
		sub(/\(.*/, "", fn)
		sub(/.*[ *]/, "", fn)
		next
	}
	# System calls, and functions of src that make them.
	code ~ /(^|[^.>a-z_0-9])(l?stat|fstat(at)?|f?statfs|f?statvfs|file_size|statx|file_open|file_again|local_file_(wrap|reopen)|dio_align|trust_path)\(/ &&
		code !~ /AT_STATX_DONT_SYNC/ { print FILENAME, fn }' | sort -u
}

echo "1..3"
list=$(mktemp "${TMPDIR:-/tmp}/stat-calls.XXXXXX")
copy=$(mktemp -d "${TMPDIR:-/tmp}/stat-calls.XXXXXX")
trap 'rm -rf "$list" "$copy"' EXIT

result() { # NUMBER NAME TEXT
	if [ -z "$3" ]; then
		echo "ok $1 $2"
	else
		echo "not ok $1 $2"
		printf '%s\n' "$3" | sed 's/^/# /'
	fi
}

allowed | sed 's/:.*//' | sort >"$list"
result 1 only_these_may_wait "$(calls "$root" | comm -23 - "$list")"
result 2 all_of_these_are_there "$(calls "$root" | comm -13 - "$list")"

mkdir -p "$copy/src/core"
cat >"$copy/src/core/a.c" <<'END'
static bool unchanged(const struct mapping *m)
{
	return fstat(m->fd, &st) == 0;
}

static int now(int fd)
{
	return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &st);
}

/* fstat() would wait. */
static int later(int fd)
{
	log_debug("fstat(%d)", fd);
	return statx(fd, "", AT_EMPTY_PATH, 0, &st);
}

static uint64_t size_of(const struct file *f)
{
	return f->ops->stat(f) + file_size(f, &size); /* as it is now */
}
END
planted=$(calls "$copy" | tr '\n' ' ')
want='src/core/a.c later src/core/a.c size_of src/core/a.c unchanged '
result 3 calls_are_found "$([ "$planted" = "$want" ] || echo "found: $planted")"
