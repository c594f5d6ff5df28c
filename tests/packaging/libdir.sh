#!/bin/sh
# SPDX-License-Identifier: MIT
# libdir.sh ROOT: packaging/libdir picks the folder that the loader searches, on machines like those
# of several distributions.  ldconfig and gcc are replaced by programs with the output of these
# distributions.
set -u
libdir=$1/packaging/libdir
base=$(mktemp -d "${TMPDIR:-/var/tmp}/libdir-XXXXXX") || exit 1
trap 'rm -rf "$base"' EXIT
cd "$base" || exit 1
base=$(pwd -P)
mkdir bin
PATH=$base/bin:$PATH

# machine [TRIPLET]: the compiler's name for the machine; standard input is ldconfig's output, with
# the machine's folders in $base.
machine() {
	rm -rf usr opt lib lib64
	mkdir -p usr/local opt
	printf '#!/bin/sh\necho %s\n' "${1:-}" >bin/gcc
	{
		echo '#!/bin/sh'
		echo "cat <<'END'"
		sed "s|/|$base/|"
		echo END
	} >bin/ldconfig
	chmod +x bin/gcc bin/ldconfig
}

n=0
failed=0
is() { # NAME PREFIX FOLDER
	n=$((n + 1))
	got=$("$libdir" "$base$2")
	if [ "$got" = "$3" ]; then
		echo "ok $n $1"
	else
		echo "not ok $n $1"
		echo "# for $2 it is '$got' and not '$3'"
		failed=1
	fi
}

machine x86_64-linux-gnu <<'END'
ldconfig: Can't stat /usr/local/lib/x86_64-linux-gnu: No such file or directory
ldconfig: Path `/usr/lib/x86_64-linux-gnu' given more than once
(from <builtin>:0 and <builtin>:0)
/usr/local/lib: (from ld.so.conf.d/libc.conf:2)
	libsomething.so.1 -> libsomething.so.1.0
/lib/x86_64-linux-gnu: (from ld.so.conf.d/x86_64-linux-gnu.conf:3)
/lib: (from <builtin>:0)
END
mkdir -p usr/lib/x86_64-linux-gnu usr/lib64
ln -s usr/lib usr/lib64 .
is debian /usr lib/x86_64-linux-gnu
is debian_local /usr/local lib/x86_64-linux-gnu
is debian_elsewhere /opt/penstock ''

machine x86_64-linux-gnu <<'END'
/usr/local/lib: (from ld.so.conf:1)
/lib: (from <builtin>:0)
END
is a_folder_without_the_triplet /usr/local lib

machine <<'END'
ldconfig: Path `/usr/lib64' given more than once
(from <builtin>:0 and <builtin>:0)
/lib: (from <builtin>:0)
/lib64: (from <builtin>:0)
END
mkdir usr/lib usr/lib64
ln -s usr/lib usr/lib64 .
is fedora /usr lib64
is fedora_local /usr/local ''

machine <<'END'
/usr/local/lib64: (from ld.so.conf:1)
/usr/local/lib: (from ld.so.conf:2)
/lib64: (from <builtin>:0)
/lib: (from <builtin>:0)
/usr/lib64: (from <builtin>:0)
/usr/lib: (from <builtin>:0)
END
is opensuse /usr lib64
is opensuse_local /usr/local lib64

machine <<'END'
/usr/lib: (from <builtin>:0)
/usr/lib64: (from <builtin>:0)
END
mkdir usr/lib
ln -s lib usr/lib64
is arch /usr lib

machine </dev/null
is a_loader_that_tells_nothing /usr/local ''
echo "1..$n"
exit $failed
