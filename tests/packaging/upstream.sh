#!/bin/sh
# SPDX-License-Identifier: MIT
# upstream.sh ROOT: tests/upstream/environment.sh prints what it will fetch and the room for it, and
# fetches nothing if the disk has less.  df and python3 are replaced, so this test never fetches
# anything.
set -u
base=$(mktemp -d "${TMPDIR:-/var/tmp}/upstream-XXXXXX") || exit 1
trap 'rm -rf "$base"' EXIT
cd "$base" || exit 1
mkdir -p tests/upstream bin
cp "$1/tests/upstream/environment.sh" tests/upstream/
PATH=$base/bin:$PATH
unset PYTHON

disk() { # KIB
	printf '#!/bin/sh\necho Available\necho "x x x %s x"\n' "$1" >bin/df
}

# Make a folder like venv, with a pip that records its arguments.
cat >bin/python3 <<'END'
#!/bin/sh
echo "python3 $*" >>"$BASE/called"
mkdir -p "$3/bin"
printf '#!/bin/sh\necho "pip $*" >>"$BASE/called"\n: >"$TMPDIR/part"\nexit %s\n' "$PIP_ENDS" >"$3/bin/pip"
chmod +x "$3/bin/pip"
END
BASE=$base
export BASE PIP_ENDS
disk 0
chmod +x bin/*

n=0
failed=0
check() { # NAME COMMAND...
	n=$((n + 1))
	name=$1
	shift
	rm -rf build called out
	: >err
	# Do not run this in a condition, where set -e has no effect.
	(
		set -e
		"$@"
	) >log 2>&1
	status=$?
	if [ $status = 0 ]; then
		echo "ok $n $name"
	else
		echo "not ok $n $name"
		sed 's/^/# /' log err
		failed=1
	fi
}

ends() { # STATUS
	got=0
	sh tests/upstream/environment.sh >out 2>err || got=$?
	[ "$got" = "$1" ]
}

little_room() {
	disk 8000000
	PIP_ENDS=0
	ends 1
	[ ! -s out ]
	[ ! -e called ]
	grep -q 'from PyPI, about [0-9]* MB' err
	grep -q '8192 MB are free' err
	grep -q 'too little' err
}

room() {
	disk 9000000
	PIP_ENDS=0
	ends 0
	[ "$(cat out)" = "$base/build/upstream/python/bin/python" ]
	[ "$(grep -c '^pip install ' called)" = 1 ]
	[ ! -e build/upstream/python/tmp ]
	# The environment exists now: nothing is installed again.
	ends 0
	[ "$(grep -c '^pip install ' called)" = 1 ]
	[ ! -s err ]
}

pip_fails() {
	disk 9000000
	PIP_ENDS=1
	ends 1
	[ ! -s out ]
	[ ! -e build/upstream/python ]
}

check nothing_is_fetched_where_there_is_too_little_room little_room
check it_is_made_once room
check nothing_is_left_when_pip_fails pip_fails
echo "1..$n"
exit $failed
