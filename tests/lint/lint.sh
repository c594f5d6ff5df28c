#!/bin/sh
# SPDX-License-Identifier: MIT
# lint.sh [--deep]: run every check of ./dev lint.  Each check prints its findings, and all checks
# run even if one fails.
set -u
# Most nodes that clang's analyzer explores per function.  Its default, 225000, takes thirty times
# as long: used by ./dev nightly.
nodes=4000
deep=
case ${1-} in
'') ;;
--deep)
	nodes=225000
	deep=yes
	;;
*)
	echo "lint takes --deep, not '$1'" >&2
	exit 1
	;;
esac
cd "$(dirname "$0")/../.." || exit 1
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
bad=

check() { # NAME FUNCTION
	if "$2" >"$out/log" 2>&1; then
		echo "ok      $1"
	else
		echo "FAILED  $1"
		head -n 80 "$out/log" | sed 's/^/        /'
		bad="$bad $1"
	fi
}

# List hand-written files.
sources() { # FIND_ARG...
	find . \( -path ./.git -o -path './build*' -o -name 'corpus-*' -o -name __pycache__ \) -prune \
		-o -type f \( "$@" \) -print | sed 's|^\./||' | sort
}

scripts() {
	sources -name '*.sh' -o -name dev -o -name run-tests -o -path './lab/*' \
		-o -path './packaging/*' -o -path './bench/*' | while read -r f; do
		head -n 1 "$f" | grep -q '^#!/bin/sh' && echo "$f"
	done
}

pythons() {
	sources -name '*.py'
	sources -path './bench/*' ! -name '*.*' | while read -r f; do
		head -n 1 "$f" | grep -q '^#!.*python3' && echo "$f"
	done
}

format() {
	sh tests/lint/format.sh
}

columns() {
	# The formatter does not wrap long comments.
	sources -name '*.[ch]' -o -name '*.cpp' | xargs awk '{
		line = $0
		col = 0
		for (i = 1; i <= length(line); i++)
			col += substr(line, i, 1) == "\t" ? 8 - col % 8 : 1
		if (col > 100) {
			printf "%s:%d: %d columns\n", FILENAME, FNR, col
			bad = 1
		}
	} END { exit bad }'
}

names() {
	python3 tools/names.py --max 30 >"$out/names" || {
		cat "$out/names"
		return 1
	}
}

werror() { # NAME COMPILER [MESON_OPTION...]
	dir=build/$1-werror
	CC=$2
	export CC
	shift 2
	[ -f "$dir/build.ninja" ] || meson setup "$dir" -Dwerror=true "$@" >"$out/setup" || {
		cat "$out/setup"
		return 1
	}
	ninja -C "$dir" --quiet
}

# werror_release() checks warnings that only the optimizer finds.
werror_gcc() {
	werror gcc gcc -Ddebug=false -Doptimization=0
}

# Tests are compiled with gcc's warnings only: clang would take as long again.
werror_clang() {
	werror clang clang -Ddebug=false -Doptimization=0 -Dtests=false
}

# The optimizer sees other paths through the code and finds other problems.
werror_release() {
	werror release gcc --buildtype=release -Dtests=false
}

tidy() {
	# clang-tidy only has flags for files in the compilation database.
	sed -n 's|.*"file": "\.\./\.\./\(.*\)".*|\1|p' build/clang-werror/compile_commands.json |
		grep -E '^(src|usrbio|serve|kv|cli|tools|compat)/' | sort -u >"$out/files"
	[ -s "$out/files" ] || return 1
	xargs -n 1 -P 2 clang-tidy --quiet -p build/clang-werror \
		--extra-arg=-Xclang --extra-arg=-analyzer-config \
		--extra-arg=-Xclang --extra-arg=max-nodes=$nodes <"$out/files" 2>/dev/null |
		grep -E '(warning|error): ' | sort -u >"$out/tidy"
	cat "$out/tidy"
	[ ! -s "$out/tidy" ]
}

include_direction() {
	sh tests/lint/include-direction.sh .
}

include_circles() {
	python3 tests/lint/include-circles.py .
}

header_alone() {
	status=0
	for file in include/penstock.h include/penstock_kv.h include/penstock/*.h include/compat/*.h; do
		header=${file#include/}
		header=${header#compat/}
		for option in -DNOTHING -DGDRAPI_V1; do
			for cc in gcc clang; do
				$cc -std=c99 -pedantic -Wall -Wextra -Werror $option -Iinclude \
					-fsyntax-only -x c "$file" || status=1
			done
			# Include the header as programs do, instead of compiling it as the main
			# file.
			echo "#include \"$header\"" >"$out/h.cc"
			clang -std=c++17 -pedantic -Wall -Wextra -Werror $option -Iinclude \
				-Iinclude/compat -fsyntax-only -x c++ "$out/h.cc" || status=1
		done
	done
	return $status
}

# All parts of the public header.
public="include/penstock.h include/penstock/*.h"

# List the functions that the public header declares, without comments.
header_functions() {
	cat $public | sed -e ':join' -e '/^PST_API[^;]*$/{N;bjoin' -e '}' |
		tr '\n' ' ' | grep -o 'PST_API [^;]*;' | sed -n 's/[^(]*[ *]\(pst_[a-z0-9_]*\)(.*/\1/p' | sort
}

symbols() {
	header_functions >"$out/header"
	sed -n 's/^[[:space:]]*\(pst_[a-z0-9_]*\);.*/\1/p' src/api/penstock.map | sort >"$out/map"
	diff --label header --label map -u "$out/header" "$out/map" || return 1
	nm -D --defined-only build/gcc-werror/src/libpenstock.so |
		sed -n 's/.* T \([^@]*\)@.*/\1/p' | sort >"$out/so"
	diff --label header --label libpenstock.so -u "$out/header" "$out/so" || return 1
	nm -g --defined-only build/gcc-werror/src/libpenstock.a |
		sed -n 's/.* [A-Z] \(.*\)/\1/p' | sort >"$out/a"
	diff --label header --label libpenstock.a -u "$out/header" "$out/a"
}

needed() {
	# Needed libraries: libc and nothing else; even libgcc_s would be an error.
	[ -f build/gcc-werror/src/libpenstock.so ] || return 1
	readelf -d build/gcc-werror/src/libpenstock.so | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
		grep -v -E '^(libc\.so\.6|ld-linux-x86-64\.so\.2)$' >"$out/needed"
	cat "$out/needed"
	[ ! -s "$out/needed" ]
}

kernel_doc() {
	status=0
	for fn in $(header_functions); do
		grep -q -h "^ \* $fn() - " $public || {
			echo "$fn() has no comment that begins with its name"
			status=1
		}
	done
	# The first version of gdr_get_info() exists only for old programs.
	for fn in $(sed -n 's/^[[:space:]]*\(gdr_[a-z0-9_]*\);.*/\1/p' compat/gdrapi/gdrapi.map); do
		[ $fn = gdr_get_info ] || grep -q "^ \* $fn() - " include/compat/gdrapi.h || {
			echo "$fn() has no comment that begins with its name"
			status=1
		}
	done
	for fn in $(sed -n 's/^[[:space:]]*\(pst_kv_[a-z0-9_]*\);.*/\1/p' kv/kv.map); do
		grep -q "^ \* $fn() - " include/penstock_kv.h || {
			echo "$fn() has no comment that begins with its name"
			status=1
		}
	done
	for fn in $(sed -n 's/^[[:space:]]*\(runai_[a-z0-9_]*\);.*/\1/p' compat/streamer/streamer.map); do
		grep -q "^ \* $fn() - " include/compat/streamer.h || {
			echo "$fn() has no comment that begins with its name"
			status=1
		}
	done
	for fn in $(sed -n 's/^[[:space:]]*\(hf3fs_[a-z0-9_]*\);.*/\1/p' usrbio/library/hf3fs.map); do
		grep -q -E "^(/\*| )\* $fn\(\) - " include/compat/hf3fs_usrbio.h include/compat/hf3fs_usrbio_gdr.h || {
			echo "$fn() has no comment that begins with its name"
			status=1
		}
	done
	return $status
}

spelling() {
	sources -name '*.[ch]' -o -name '*.cpp' -o -name '*.md' -o -name '*.sh' -o -name '*.py' -o -name '*.[1-8]' \
		-o -name dev -o -name meson.build -o -path './lab/*' -o -path './packaging/*' |
		xargs codespell --ignore-words tests/lint/words
}

shell() {
	status=0
	for f in $(scripts); do
		dash -n "$f" || status=1
	done
	scripts | xargs -n 10 -P 2 shellcheck --severity=warning --shell=sh -e SC3043 || status=1
	return $status
}

# Check that the oldest supported Python can parse the code.
python() {
	status=0
	for f in $(pythons); do
		python3 -c 'import ast, sys
ast.parse(open(sys.argv[1]).read(), sys.argv[1], feature_version=(3, 8))' "$f" || status=1
		awk -v f="$f" 'length > 100 { print f ":" FNR ": " length " columns"; bad = 1 }
			END { exit bad }' "$f" || status=1
	done
	pythons | xargs pyflakes3 || status=1
	return $status
}

hints() {
	mypy --config-file tests/lint/mypy.ini python/penstock
}

manual() {
	[ -n "$(sources -path './man/*.[1-8]')" ] || return 0
	# Allow 100 columns as elsewhere, and links to pages that are not installed.  mandoc writes
	# to both outputs, whose lines may be mixed.
	sources -path './man/*.[1-8]' | xargs mandoc -T lint -W style >"$out/said" 2>"$out/errors"
	cat "$out/said" "$out/errors" |
		grep -v -e 'input text line longer than 80 bytes' -e 'referenced manual not found' \
			-e 'outdated mandoc.db lacks' >"$out/manual"
	cat "$out/manual"
	[ ! -s "$out/manual" ] || return 1
	# Each page is rendered completely.
	for f in $(sources -path './man/*.[1-8]'); do
		mandoc -T markdown "$f" >"$out/page" && grep -q "^# SEE ALSO" "$out/page" || {
			echo "$f is not rendered up to SEE ALSO"
			return 1
		}
	done
}

# The licence is on the first line, or after the interpreter's, in the form of the language's
# comments.
licence() {
	sources -type f ! -name '*.md' ! -name '*.abi' ! -name LICENSE ! -name words ! -name installed ! -path './.*' \
		! -path './packaging/debian/*' >"$out/sources"
	sources -path './packaging/debian/rules' -o -path './packaging/debian/tests/smoke' \
		-o -path './.ci/*' >>"$out/sources"
	[ "$(wc -l <"$out/sources")" -gt 100 ] || return 1
	xargs awk '
		FNR == 1 { want = 1 }
		FNR == 1 && /^#(!|compdef )/ { want = 2 }
		FNR == want {
			text = "SPDX-License-Identifier: MIT"
			good = "# " text
			if (FILENAME ~ /\.([ch]|cpp|map)$/)
				good = "/* " text " */"
			if (FILENAME ~ /\.[1-8]$/)
				good = ".\\\" " text
			if ($0 != good) {
				print FILENAME ": line " FNR " is not \"" good "\""
				bad = 1
			}
		}
		END { exit bad }' <"$out/sources"
}

# Find notes to oneself, machine paths and issue numbers.  The brackets keep this file from matching
# itself.
leftovers() {
	sources -type f | xargs grep -n -I -E \
		'\b(TO[D]O|FIX[M]E|XX[X])\b|/(wor[k]|roo[t])/|/hom[e]/[a-z]|issues?/[0-9]|[Ii]ssue #?[0-9]' &&
		return 1
	return 0
}

links() {
	status=0
	for f in $(sources -name '*.md'); do
		for to in $(grep -o '](\([^)#:]*\)[)#]' "$f" | sed 's/^](\(.*\)[)#]$/\1/'); do
			[ -e "$(dirname "$f")/$to" ] || {
				echo "$f: there is no $to"
				status=1
			}
		done
	done
	return $status
}

# A file that no list names is neither built nor run.
listed() {
	status=0
	for f in $(sources -path './src/*.c' -o -path './usrbio/*.c' -o -path './serve/*.c' -o -path './kv/*.c' \
		-o -path './cli/*.c' \
		-o -path './tools/*.c' -o -path './bench/*.c' -o -path './examples/*.c' \
		-o -path './compat/*/*.c' -o -path './tests/*/test-*.c' -o -path './tests/fuzz/fuzz-*.c' \
		-o -path './tests/cli/*.sh' -o -path './tests/usrbio/python/*.py' \
		-o -path './tests/packaging/*.sh'); do
		dir=${f%/*}
		name=${f##*/}
		! grep -q "'$name'" "$dir/meson.build" 2>/dev/null || continue
		# Another folder's list may have it with its path.
		! grep -q -r --include=meson.build "'[./]*/$f'" . || continue
		case $f in
		tests/cli/lib.sh | tests/usrbio/python/tap.py) continue ;;
		compat/fio/*) continue ;; # tools/fio-engine builds it
		tests/packaging/install.sh | tests/packaging/bundle.sh | tests/packaging/pip.sh) continue ;; # ./dev installed
		tests/*)
			name=${name#test-}
			name=${name#fuzz-}
			name=${name%.*}
			;;
		examples/*) name=${name%.c} ;;
		esac
		# The list of a parent folder may name it too.
		until grep -q "'$name\(\.c\)\{0,1\}'" "$dir/meson.build" 2>/dev/null; do
			case $dir in
			*/*) ;;
			*)
				echo "no meson.build names $f"
				status=1
				break
				;;
			esac
			name=${dir##*/}/$name
			dir=${dir%/*}
		done
	done
	return $status
}

check format format
check columns columns
check names names
check gcc werror_gcc
check clang werror_clang
[ -z "$deep" ] || check release werror_release
check include-direction include_direction
check include-circles include_circles
check listed listed
check header-alone header_alone
check symbols symbols
check needed needed
check kernel-doc kernel_doc
check licence licence
check leftovers leftovers
check spelling spelling
check shell shell
check python python
check hints hints
check manual manual
check links links
check tidy tidy

[ -z "$bad" ] || {
	echo "lint failed:$bad"
	exit 1
}
echo "lint found nothing"
