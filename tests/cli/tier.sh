#!/bin/sh
# SPDX-License-Identifier: MIT
# Sets of tiers: what each subcommand does and refuses.
. "$(dirname "$0")/lib.sh"

# Make three directories on one file system, and a set m of them.
need_set() {
	PST_TIER_DIR=$PWD/state
	export PST_TIER_DIR
	mkdir nvme ssd hdd
	gives 0 "$PENSTOCK" tier init m --nvme nvme --ssd ssd --hdd hdd --same-filesystem "$@"
	mkdir hdd/d
	random 100000 hdd/d/one
	random 5000 hdd/two
	cp -r hdd copy
	rm -r copy/.tier
}

# where NAME CLASS: the whole file must be in the tier CLASS, and in no other.
where() {
	for class in nvme ssd hdd; do
		if [ "$class" = "$2" ]; then
			cmp "$class/$1" "copy/$1"
		else
			[ ! -e "$class/$1" ]
		fi
	done
}

moves() {
	need_set
	gives 0 "$PENSTOCK" tier migrate m d/one two --to nvme
	says "d/one: to nvme" out
	where d/one nvme
	where two nvme
	gives 0 "$PENSTOCK" tier ls m --json
	json out 'sorted((f["name"], f["class"]) for f in d["files"]) == [("d/one", "nvme"), ("two", "nvme")]'
	json out 'all("crc32c" in f for f in d["files"])'
	gives 0 "$PENSTOCK" tier migrate m d/one --to hdd
	where d/one hdd
	gives 0 "$PENSTOCK" tier scrub m
	says "2 files match their checksum" out
	gives 0 "$PENSTOCK" tier status m --json
	json out 'd["files"] == 2 and d["names_twice"] == 0 and d["moves_waiting"] == 0'
	json out '[r["files"] for r in d["directories"]] == [1, 0, 1]'
	[ -z "$(find nvme/.tier/tmp ssd/.tier/tmp hdd/.tier/tmp -type f)" ]
}

pins() {
	need_set
	gives 0 "$PENSTOCK" tier pin m two
	fails "two is pinned" "$PENSTOCK" tier migrate m two --to nvme
	where two hdd
	gives 0 "$PENSTOCK" tier unpin m two
	gives 0 "$PENSTOCK" tier migrate m two --to nvme
	fails "there is no file none in the set m" "$PENSTOCK" tier pin m none
}

# Above the quota's high watermark files leave a tier, except pinned ones.
watermarks() {
	need_set --quota nvme:200k --water nvme:90-50
	for i in 1 2 3 4 5 6; do
		random 30000 nvme/f$i
	done
	cp nvme/f* copy/
	gives 0 "$PENSTOCK" tier pin m f1
	gives 0 "$PENSTOCK" tier df m --json
	json out 'd["classes"][0]["size"] == 200 << 10'
	gives 0 "$PENSTOCK" tier migrate m
	gives 0 "$PENSTOCK" tier df m --json
	json out 'd["classes"][0]["used"] <= 100 << 10'
	where f1 nvme
	gives 0 "$PENSTOCK" tier migrate m
	says "nothing is to be moved" out
	random 150000 hdd/big
	fails "big takes" "$PENSTOCK" tier migrate m big --to nvme
}

# The mover in the background moves what exceeds the watermark, and watch shows the moves.
runs_in_background() {
	need_set --quota nvme:100k --water nvme:90-50
	"$PENSTOCK" tier watch m --json >seen &
	watch=$!
	"$PENSTOCK" tier run m --every 1 >log 2>&1 &
	run=$!
	# Wait until watch has begun.
	i=0
	until grep -q '"moved":true' seen; do
		i=$((i + 1))
		[ $i -lt 300 ]
		random 30000 copy/f$i
		cp copy/f$i nvme/.new
		mv nvme/.new nvme/f$i
		sleep 0.2
	done
	kill "$run" "$watch"
	wait "$run" || [ $? = 143 ]
	wait "$watch" || [ $? = 143 ]
	grep '"moved":true' seen | head -n 1 >first
	json first 'd["from"] == "nvme" and d["to"] == "ssd" and d["bytes"] == 30000'
	gives 0 "$PENSTOCK" tier status m
	for f in copy/f*; do
		f=${f#copy/}
		[ -e "nvme/$f" ] && where "$f" nvme || where "$f" ssd
	done
}

# While another command holds the set's lock, commands that change nothing do not wait for it.
looks_while_busy() {
	need_set
	gives 0 "$PENSTOCK" tier status m
	need flock
	exec 9>>state/m/lock
	flock -x 9
	gives 0 "$PENSTOCK" tier status m --json
	json out 'd["busy"] and d["files"] == 2'
	gives 0 "$PENSTOCK" tier status m
	says "another command works on the set now" out
	gives 0 "$PENSTOCK" tier ls m --json
	json out 'len(d["files"]) == 2'
	gives 0 "$PENSTOCK" tier df m
	exec 9>&-
	gives 0 "$PENSTOCK" tier status m --json
	json out 'not d["busy"]'
}

# The picture shows measured tiers only.
draws() {
	need_set
	gives 0 "$PENSTOCK" tier status m --svg none.svg
	[ "$(grep -c 'not measured yet' none.svg)" = 6 ]
	gives 0 "$PENSTOCK" tier migrate m d/one --to nvme
	gives 0 "$PENSTOCK" tier status m --svg some.svg
	[ "$(grep -c 'not measured yet' some.svg)" = 4 ]
	python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' some.svg
	fails "cannot write none/x.svg" "$PENSTOCK" tier status m --svg none/x.svg
}

# penstock cp from and to tier://SET/NAME.
copies() {
	need_set --quota nvme:1m
	random 500000 a
	random 5000000 b
	chmod 600 a
	gives 0 "$PENSTOCK" cp a tier://m/x
	cmp a nvme/x
	[ "$(stat -c %a nvme/x)" = 600 ]
	# Copy while nvme has no room.
	gives 0 "$PENSTOCK" cp b tier://m/d/ --verify
	cmp b ssd/d/b
	[ ! -e nvme/d/b ] && [ ! -e hdd/d/b ]
	# A copy over an existing file writes to the disk that has the file.
	gives 0 "$PENSTOCK" cp a tier://m/d/b
	cmp a ssd/d/b
	[ ! -e nvme/d/b ] && [ ! -e hdd/d/b ]
	gives 0 "$PENSTOCK" cp tier://m/x c
	cmp a c
	[ "$(stat -c %a c)" = 600 ]
	gives 0 "$PENSTOCK" cp tier://m/x tier://m/y
	cmp a ssd/y
	gives 0 "$PENSTOCK" tier ls m --json
	json out '[f["name"] for f in d["files"]] == ["d/b", "d/one", "two", "x", "y"]'
	fails "are the same file" "$PENSTOCK" cp tier://m/x tier://m/x
	fails "no root of the set m has the directory" "$PENSTOCK" cp a tier://m/e/x
	fails "is not a name in a set" "$PENSTOCK" cp a tier://m/../x
	fails "there is no set n" "$PENSTOCK" cp a tier://n/x
	fails "is not tier://SET/NAME" "$PENSTOCK" cp a tier://m
	fails "there is no file none" "$PENSTOCK" cp tier://m/none c
	gives 0 "$PENSTOCK" tier scrub m
}

names_stay_inside() {
	need_set
	for name in ../x "$PWD/outside" d/../two .tier/id "" d//one; do
		fails "penstock: tier: " "$PENSTOCK" tier migrate m "$name" --to nvme
	done
	echo outside >outside
	ln -s "$PWD/outside" hdd/link
	fails "there is no file link" "$PENSTOCK" tier migrate m link --to nvme
	odd=$(odd_name)
	random 100 "hdd/$odd"
	gives 0 "$PENSTOCK" tier migrate m "$odd" --to nvme
	plain_text out
	[ -f "nvme/$odd" ]
	gives 0 "$PENSTOCK" tier ls m
	plain_text out
}

# While a disk is not mounted, no file is forgotten and none is written there.
unmounted() {
	need_set
	mv hdd elsewhere
	mkdir hdd
	fails "is its disk mounted there?" "$PENSTOCK" tier migrate m two --to nvme
	gives 1 "$PENSTOCK" tier status m
	says "is its disk mounted there?" out
	[ -z "$(ls -A hdd)" ]
	rmdir hdd
	gives 1 "$PENSTOCK" tier status m
	says "cannot be opened" out
	mv elsewhere hdd
	gives 0 "$PENSTOCK" tier status m --json
	json out 'd["files"] == 2'
}

init_refuses() {
	PST_TIER_DIR=$PWD/state
	export PST_TIER_DIR
	mkdir a b
	fails "are on one file system" "$PENSTOCK" tier init m --nvme a --hdd b
	fails "overlap" "$PENSTOCK" tier init m --nvme a --hdd a --same-filesystem
	fails "cannot be opened" "$PENSTOCK" tier init m --nvme a --hdd none --same-filesystem
	fails "is no name of a set" "$PENSTOCK" tier init ../m --nvme a --hdd b --same-filesystem
	fails "there is no set m" "$PENSTOCK" tier status m
	gives 0 "$PENSTOCK" tier init m --nvme a --hdd b --same-filesystem
	fails "there is a set m already" "$PENSTOCK" tier init m --nvme a --hdd b --same-filesystem
	fails "is a root of a set already" "$PENSTOCK" tier init n --nvme a --hdd b --same-filesystem
	echo "roots nvme" >>state/m/set.conf
	fails "line 10 is wrong" "$PENSTOCK" tier status m
}

damaged_catalogue() {
	need_set
	gives 0 "$PENSTOCK" tier migrate m two --to ssd
	head -c 3000 /dev/urandom | dd of=state/m/catalog.db conv=notrunc status=none
	rm -f state/m/catalog.db-wal state/m/catalog.db-shm
	fails "is damaged" "$PENSTOCK" tier status m
	# A move whose journal is lost leaves a file like this.
	cp -p ssd/two hdd/two
	gives 0 "$PENSTOCK" tier scrub m --rebuild
	where two ssd
	where d/one hdd
	gives 0 "$PENSTOCK" tier status m
	ls state/m/catalog.db.damaged-1 >/dev/null
}

two_that_differ() {
	need_set
	gives 0 "$PENSTOCK" tier status m
	echo other >nvme/two
	gives 1 "$PENSTOCK" tier status m
	says "the first is two" out
	fails "has a file two already" "$PENSTOCK" tier migrate m two --to nvme
	cmp hdd/two copy/two
	[ "$(cat nvme/two)" = other ]
}

wrong_lines() {
	gives 2 "$PENSTOCK" tier
	says "give a subcommand" err
	gives 2 "$PENSTOCK" tier status
	says "give the name of a set" err
	gives 2 "$PENSTOCK" tier statsu m
	says "did you mean status?" err
	gives 2 "$PENSTOCK" tier migrate m x
	says "names and --to CLASS, or neither" err
	gives 2 "$PENSTOCK" tier migrate m x --to tape
	gives 2 "$PENSTOCK" tier init m --policy best
	gives 2 "$PENSTOCK" tier init m --quota nvme
	gives 2 "$PENSTOCK" tier init m --water nvme:50-90
	gives 2 "$PENSTOCK" tier status m --nvme x
	gives 2 "$PENSTOCK" tier scrub m --json
	gives 2 "$PENSTOCK" tier run m --every 0
	gives 2 "$PENSTOCK" tier scrub m --every 5
	gives 2 "$PENSTOCK" tier ls m --svg x
}

run_cases moves pins watermarks runs_in_background looks_while_busy draws copies names_stay_inside unmounted init_refuses damaged_catalogue two_that_differ wrong_lines
