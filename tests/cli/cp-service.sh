#!/bin/sh
# SPDX-License-Identifier: MIT
# penstock cp to files of a storage service.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

serve() { # OPTION...: of the directory ./srv, at $url
	mkdir -p srv/dir
	: >said # the child empties the file only after it was forked
	"$PENSTOCK" serve --root srv --listen "unix:$PWD/socket" "$@" 2>said &
	server=$!
	while ! grep -q listening said; do
		kill -0 $server || return 1
		sleep 0.05
	done
	url=pst+unix://$PWD/socket:
}

stop() {
	kill $server
	wait $server
}

copies() {
	serve --write
	head -c 3000001 /dev/urandom >source
	chmod 640 source
	gives 0 "$PENSTOCK" cp --verify source "$url/new"
	says "compared" out
	cmp source srv/new
	[ "$(stat -c %a srv/new)" = 640 ]
	gives 0 "$PENSTOCK" cp -q source "$url/dir"
	gives 0 "$PENSTOCK" cp -q --no-sync source "$url/dir/"
	cmp source srv/dir/source
	: >empty
	gives 0 "$PENSTOCK" cp -q --verify empty "$url/new"
	[ ! -s srv/new ]
	gives 0 "$PENSTOCK" cp -q --via soft:0 "$url/dir/source" "$url/copy"
	cmp source srv/copy
	gives 0 "$PENSTOCK" cp -q "$url/copy" "$PWD/back"
	cmp source back
	[ "$(find srv -name '*penstock*')" = "" ]
	stop
}

old_bytes_stay() {
	serve --write
	echo old >srv/old
	head -c 3000001 /dev/urandom >source
	# The read of the source fails in the middle.
	gives 1 env PST_FAULT=file.read:3:EIO "$PENSTOCK" cp --store threads --block 512k source "$url/old"
	[ "$(cat srv/old)" = old ]
	gives 1 "$PENSTOCK" cp source "$url/none/x"
	says "ENOENT" err
	[ "$(find srv -name '*penstock*')" = "" ]
	stop
	serve
	gives 1 "$PENSTOCK" cp source "$url/old"
	says "EROFS" err
	stop
	gives 1 "$PENSTOCK" cp source "$url/old"
	[ "$(cat srv/old)" = old ]
}

run_cases copies old_bytes_stay
