#!/bin/sh
# SPDX-License-Identifier: MIT
# release.sh ROOT: ./dev release refuses a tree that is not ready, gives the reason, and changes
# nothing.
set -u
root=$1
base=$(mktemp -d) || exit 1
trap 'rm -rf "$base"' EXIT
cd "$base" || exit 1

command -v git >/dev/null || {
	echo "1..0 # SKIP git is not installed"
	exit 0
}
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org

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
		sed 's/^/# /' log
		failed=1
	fi
}

# The command must print the text, and make neither a commit nor a file.
refuses() { # TEXT ARGUMENT...
	text=$1
	shift
	head=$(git -C tree rev-parse HEAD)
	before=$(git -C tree status --porcelain)
	! sh tree/packaging/release "$@" >out 2>&1 || return 1
	cat out
	grep -qF "release: $text" out && [ "$(git -C tree rev-parse HEAD)" = "$head" ] &&
		[ "$(git -C tree status --porcelain)" = "$before" ]
}

mkdir -p tree/tests/lint tree/python/penstock
cp -r "$root/packaging" "$root/meson.build" tree/
cp -r "$root/include" tree/
cp "$root/python/generate.py" tree/python/
cp "$root/python/penstock/_abi.py" tree/python/penstock/
cp "$root/tests/lint/version.sh" tree/tests/lint/
printf '# News\n\n## 9.9.9\n\n## 9.9.8\n\n## 0.0.1\n' >tree/NEWS.md
# Replace ./dev by one whose ABI check fails.
printf '#!/bin/sh\necho broken\nexit 1\n' >tree/dev
chmod +x tree/dev
git -C tree init -q
git -C tree add .
git -C tree commit -qm first
git -C tree tag v9.9.8

check no_version refuses "a version is three numbers" ''
check no_number refuses "a version is three numbers" 1.2
check no_prefix refuses "a version is three numbers" v1.2.3
check two_versions refuses "one version" 9.9.9 9.9.8
check no_option refuses "there is no option" 9.9.9 --push
check no_news refuses "NEWS.md has no section '## 9.9.7'" 9.9.7
check tag_is_there refuses "there is a tag v9.9.8" 9.9.8
check older refuses "the tree is $(sed -n "s/^  version: '\(.*\)',$/\1/p" tree/meson.build) already" 0.0.1
check abi_is_broken refuses "programs would break" 9.9.9
: >tree/more
check not_committed refuses "the tree has changes that are not committed" 9.9.9
rm tree/more
rm -rf tree/.git
check no_checkout sh -c '! sh tree/packaging/release 9.9.9 >out 2>&1; cat out; grep -q "no git checkout" out'

echo "1..$n"
exit $failed
