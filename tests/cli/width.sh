#!/bin/sh
# SPDX-License-Identifier: MIT
# Every line that a command prints fits the terminal.
. "$(dirname "$0")/lib.sh"

# fits COLUMNS FILE: no line is longer, except for a long name such as a path.
fits() {
	awk -v most="$1" 'length > most' "$2" | grep -v '[^ ]\{40\}' >long || :
	[ ! -s long ] || {
		echo "longer than $1:"
		cat long
		return 1
	}
	[ -s "$2" ]
}

at() { # COLUMNS COMMAND...
	columns=$1
	shift
	COLUMNS=$columns gives 0 "$PENSTOCK" "$@"
	fits "$columns" out
	[ ! -s err ]
}

help() {
	at 80 help
	for command in demo doctor cp bench window mount umount run top; do
		at 80 help $command
	done
}

demonstration() {
	at 80 demo --size 2 --dir .
	at 120 demo --size 2 --dir .
	at 40 demo --size 2 --dir .
	use_stub
	at 80 demo --size 2 --dir .
}

# Rows of both paths, the ratio, and the reason if there is no ratio.
measurements() {
	at 80 bench --dir . --size 16m --warm --runtime 600 --bytes 1g --sizes 4k
	says "  ratio" out
	for mem in host soft:0; do
		for baseline in pread none; do
			at 80 bench --dir . --size 8m --runtime 0.1 -m $mem --baseline $baseline
		done
	done
	at 40 bench --dir . --size 8m --runtime 0.1
}

diagnosis() {
	at 80 doctor --dir .
	at 60 doctor --dir .
	at 80 doctor --gds --dir .
	PST_FAULT=file.uring:0:EPERM at 80 doctor --dir .
	use_stub
	at 80 doctor --dir .
}

diagnosis_of_gds() {
	use_cufile mode=p2pdma
	at 80 doctor --gds --dir .
	use_cufile mode=compat
	at 80 doctor --gds --dir .
}

copies() {
	random 3000001 src
	at 80 cp src dst
	at 80 cp --verify src dst
	at 80 cp --verify src soft:0
	at 80 cp --via soft:0 --block 64k src dst
	PST_FAULT=file.uring:0:EPERM at 80 cp --verify src dst
}

windows() {
	at 80 window validate --random 10
	at 80 window copybw --sizes 4k --runtime 0.01
	at 80 window copylat --max 64k --runtime 0.01
	at 80 window apiperf --max 64k -n 4
	at 80 window pingpong -n 100
	use_stub
	at 80 window copybw -d cuda:0 --sizes 4k --runtime 0.01
	at 80 window copylat -d cuda:0 --max 64k --runtime 0.01
}

prepared() {
	mkdir d
	at 80 mount --plain d
	at 80 umount d
}

# Without COLUMNS the terminal's width is used; without a terminal, 80.
no_columns() {
	unset COLUMNS
	gives 0 "$PENSTOCK" doctor --dir .
	fits 80 out
	need python3
	cat >terminal.py <<-'END'
		import fcntl, os, pty, struct, sys, termios
		pid, fd = pty.fork()
		if pid == 0:
		    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("4H", 40, int(sys.argv[1]), 0, 0))
		    os.execv(sys.argv[2], sys.argv[2:])
		text = b""
		try:
		    while part := os.read(fd, 65536):
		        text += part
		except OSError:
		    pass
		os.waitpid(pid, 0)
		sys.stdout.write(text.decode().replace("\r\n", "\n"))
	END
	for columns in 60 132; do
		python3 terminal.py $columns "$PENSTOCK" doctor --dir . >out
		fits $columns out
		[ "$(awk 'length > 80' out | wc -l)" = 0 ] || [ $columns = 132 ]
	done
	[ "$(awk 'length > 80' out | wc -l)" -gt 0 ]
	# A message is wrapped for a terminal, and one line in a log.
	python3 terminal.py 60 "$PENSTOCK" cp cuda0 src/none/cuda0 >out
	fits 60 out
	python3 terminal.py 60 "$PENSTOCK" cp terminal.py cuda0 >out
	fits 60 out
	says "did you mean cuda:0?" out
	gives 2 "$PENSTOCK" cp terminal.py cuda0
	[ "$(grep -c 'did you mean cuda:0.*given as' err)" = 1 ]
}

run_cases help demonstration measurements diagnosis diagnosis_of_gds copies windows prepared no_columns
