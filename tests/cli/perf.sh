#!/bin/sh
# SPDX-License-Identifier: MIT
# perf: bytes between two processes, by every operation; rows name the paths.
. "$(dirname "$0")/lib.sh"

# server ADDRESS OPTION...: start a server; return when it listens.
server() {
	addr=$1
	shift
	: >server # the child empties the file only after it was forked
	"$PENSTOCK" perf --listen "$addr" "$@" 2>server &
	server=$!
	until grep -q 'listening on ' server; do
		kill -0 $server || {
			cat server
			return 1
		}
		sleep 0.01
	done
	addr=$(sed -n 's/.*listening on //p' server)
}

# A signal ends the server cleanly.
end_server() {
	kill -TERM $server
	gives 0 wait $server
}

rows() { # PATHS
	json out "len(d['rows']) == 2 and all(r['gb_per_s'] > 0 and r['p99_ns'] >= r['p50_ns'] > 0 and
		r['paths'] == $1 for r in d['rows'])"
}

# every_op PATHS OPTION...: run each operation; it must take these paths.
every_op() {
	paths=$1
	shift
	for op in put get; do
		gives 0 "$PENSTOCK" perf --op $op --sizes 4k,300000 --iters 40 --json "$@" "$addr"
		rows "$paths"
	done
	for op in send recv pingpong; do
		gives 0 "$PENSTOCK" perf --op $op --sizes 4k,300000 --iters 5 --json "$@" "$addr"
		rows '[]'
	done
}

plot() {
	need python3
	server unix:sock
	gives 0 "$PENSTOCK" perf --sizes 64k,4k --iters 20 --plot rate.svg "$addr"
	gives 0 "$PENSTOCK" perf --op pingpong --sizes 4k --iters 5 --plot times.svg --json "$addr"
	python3 -c 'import xml.dom.minidom as m; m.parse("rate.svg"); m.parse("times.svg")'
	says "GB/s" rate.svg
	says "path peer" rate.svg
	says "p99" times.svg
	fails "cannot write" "$PENSTOCK" perf --sizes 4k --iters 5 --plot none/x.svg "$addr"
	end_server
}

mapped() {
	server unix:sock
	every_op "['peer']"
	end_server
	[ ! -e sock ]
}

by_rdma() {
	PST_LIBIBVERBS=$STUB_LIBIBVERBS STUB_IBVERBS_FABRIC=$PWD/fabric
	export PST_LIBIBVERBS STUB_IBVERBS_FABRIC
	server 127.0.0.1:0
	every_op "['rdma']" --path rdma
	every_op "['tcp']" --path tcp
	fails "not mapped here" "$PENSTOCK" perf --path peer --sizes 4k "$addr"
	fails "PST_RDMA=off" env PST_RDMA=off "$PENSTOCK" perf --path rdma --sizes 4k "$addr"
	end_server
	unset PST_LIBIBVERBS STUB_IBVERBS_FABRIC
}

over_a_socket() {
	server unix:sock -m soft:0
	every_op "['tcp']" --socket
	end_server
}

over_tcp() {
	server 127.0.0.1:0
	every_op "['tcp']"
	end_server
}

over_tls() {
	(umask 077 && echo test:0123456789abcdef0123456789abcdef >keys)
	server 127.0.0.1:0 --keys keys
	gives 0 "$PENSTOCK" perf --sizes 64k --iters 20 --keys keys --key test "$addr"
	says "the bytes are right" out
	(umask 077 && echo test:1123456789abcdef0123456789abcdef >other)
	gives 1 "$PENSTOCK" perf --keys other "$addr"
	end_server
}

ranges_of_sizes() {
	server unix:sock
	gives 0 "$PENSTOCK" perf --sizes 1..16,1m --iters 3 --depth 1 --json "$addr"
	json out "[r['size'] for r in d['rows']] == [1, 2, 4, 8, 16, 1048576]"
	end_server
}

mistakes() {
	gives 2 "$PENSTOCK" perf
	gives 2 "$PENSTOCK" perf --op push unix:sock
	gives 2 "$PENSTOCK" perf --sizes 8k..4k unix:sock
	gives 2 "$PENSTOCK" perf --depth 257 unix:sock
	gives 2 "$PENSTOCK" perf --path staged unix:sock
	fails "no connection" "$PENSTOCK" perf unix:nobody
	fails "beyond this machine" "$PENSTOCK" perf 192.0.2.1:7000
	fails "beyond this machine" "$PENSTOCK" perf --listen 192.0.2.1:7000
	server unix:sock
	fails "need more than" "$PENSTOCK" perf --sizes 4g "$addr"
	end_server
}

run_cases mapped plot by_rdma over_a_socket over_tcp over_tls ranges_of_sizes mistakes
