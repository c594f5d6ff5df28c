#!/bin/sh
# SPDX-License-Identifier: MIT
# pip.sh ROOT: pip installs the package from a source archive, without git and as an ordinary user;
# its wheel equals that of ./dev wheel.  Impossible requests get a clear error.
set -u
root=$1
base=$(mktemp -d) || exit 1
trap 'rm -rf "$base"' EXIT
cd "$base" || exit 1

n=0
failed=0
check() { # NAME COMMAND...
	n=$((n + 1))
	name=$1
	shift
	if "$@" >log 2>&1; then
		echo "ok $n $name"
	else
		echo "not ok $n $name"
		tail -n 40 log | sed 's/^/# /'
		failed=1
	fi
}

# Run a command as an ordinary user, even if the tests run as root.
user() {
	if [ "$(id -u)" = 0 ]; then
		setpriv --reuid 65534 --regid 65534 --clear-groups env HOME="$base/home" TMPDIR="$base" "$@"
	else
		"$@"
	fi
}

# Other users may lack access to the first Python.
chmod 755 "$base"
python=
for candidate in python3 /usr/bin/python3; do
	[ -n "$python" ] || ! user $candidate -c 'import ensurepip' 2>/dev/null || python=$candidate
done
[ -n "$python" ] || {
	echo "1..0 # SKIP python3-venv"
	exit 0
}

pip() { # COMMAND ARGUMENT...
	user "$base/v/bin/python" -m pip --disable-pip-version-check --no-input --no-cache-dir "$@"
}

sdist() {
	(cd "$root/python" && PYTHONDONTWRITEBYTECODE=1 python3 -c 'import build_backend as b, sys
print(b.build_sdist(sys.argv[1]))' "$base") || return 1
	tar -xzf penstock-*.tar.gz || return 1
	mkdir home wheels || return 1
	[ "$(id -u)" != 0 ] || chown -R 65534:65534 "$base" || return 1
	user $python -m venv v
}

same_wheel() {
	pip wheel --no-index --no-deps -w wheels ./penstock-*/ || return 1
	"$root/dev" wheel && cmp wheels/*.whl "$root"/build/wheel/*.whl
}

installs() {
	pip install --no-index ./penstock-*/ || return 1
	user v/bin/penstock info >out || return 1
	cat out
	grep -q "^libpenstock .*, $base/v/lib/.*/penstock/lib/libpenstock.so.0$" out
}

editable() {
	! pip install --no-index -e ./penstock-*/ >out 2>&1 || return 1
	cat out
	grep -q "an editable install is not served" out
}

# Use the system's programs, but not meson and ninja.
missing() {
	mkdir bin
	for program in /usr/bin/* /bin/*; do
		case ${program##*/} in
		meson | ninja | ninja-build) ;;
		*) [ -e "bin/${program##*/}" ] || ln -s "$program" bin/ ;;
		esac
	done
	! PATH=$base/bin pip wheel --no-index --no-deps -w none ./penstock-*/ >out 2>&1 || return 1
	cat out
	grep -q "missing.* meson ninja-build" out && grep -q "the wheel was not built" out
}

# Root, too, gets packages from pip, not from apt.
missing_for_root() {
	[ "$(id -u)" = 0 ] || return 0
	! PATH=$base/bin v/bin/python -m pip wheel --no-index --no-deps -w none ./penstock-*/ >out 2>&1 || return 1
	cat out
	grep -q "missing.* meson ninja-build" out && ! grep -q "dev: installing" out
}

not_writable() {
	[ "$(id -u)" = 0 ] || return 0
	chown -R 0:0 ./penstock-*/
	! pip wheel --no-index --no-deps -w none ./penstock-*/ >out 2>&1 || return 1
	cat out
	grep -q "cannot be written" out
}

check source_archive sdist
check wheel_is_that_of_dev_wheel same_wheel
check pip_installs_it installs
check editable_is_refused editable
check missing_packages_are_named missing
check missing_packages_are_not_installed missing_for_root
check a_source_that_is_not_writable not_writable
echo "1..$n"
exit $failed
