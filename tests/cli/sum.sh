#!/bin/sh
# SPDX-License-Identifier: MIT
# penstock sum: checksum files for safetensors files.
. "$(dirname "$0")/lib.sh"

# model FILE HEADER BYTES: make a file with that header, followed by bytes of x.
model() {
	len=$(printf %s "$2" | wc -c)
	{
		printf "\\$(printf %o $((len & 255)))\\$(printf %o $((len >> 8)))\\0\\0\\0\\0\\0\\0"
		printf %s "$2"
		head -c "$3" /dev/zero | tr '\0' x
	} >"$1"
}

good() { # FILE
	model "$1" '{"a":{"dtype":"U8","shape":[300],"data_offsets":[0,300]},"b":{"dtype":"U8","shape":[0],"data_offsets":[300,300]},"c":{"dtype":"F32","shape":[25],"data_offsets":[300,400]}}' 400
}

writes_and_checks() {
	good m
	gives 0 "$PENSTOCK" sum m
	says m.crc32c out
	# Entries: the header, a and c.  The CRC-32C are those of 300 and 100 bytes of x.
	[ "$(wc -l <m.crc32c)" = 4 ]
	says "penstock-crc32c 1 $(stat -c %s m)" m.crc32c
	says "cbfabf88 $(($(stat -c %s m) - 400)) 300" m.crc32c
	says "4edb03cf $(($(stat -c %s m) - 100)) 100" m.crc32c
	gives 0 "$PENSTOCK" sum --check m
	says "m: as its checksums say" out
	[ "$(ls | wc -l)" = 4 ] # and out, err
}

finds_a_wrong_byte() {
	good m
	gives 0 "$PENSTOCK" sum m
	size=$(stat -c %s m)
	for at in 10 $((size - 400)) $((size - 101)) $((size - 100)) $((size - 1)); do
		cp m n
		cp m.crc32c n.crc32c
		printf y | dd of=n bs=1 seek=$at conv=notrunc 2>/dev/null
		fails "is expected" "$PENSTOCK" sum --check n
	done
	says "n: bytes $((size - 100)) to $((size - 1)) have the checksum" err
	says "4edb03cf is expected" err
}

goes_on_after_a_bad_one() {
	good m
	good n
	model bad '{"a":1}' 0
	gives 1 "$PENSTOCK" sum m bad none n
	[ "$(wc -l <out)" = 2 ]
	[ "$(wc -l <err)" = 2 ]
	says "penstock: sum: bad: " err
	says "none" err
	[ ! -e bad.crc32c ]
	gives 1 "$PENSTOCK" sum --check m bad n
	says "bad.crc32c: there are no checksums; penstock sum bad writes them" err
	says "n: as its checksums say" out
}

keeps_links_and_permissions() {
	good m
	chmod 640 m
	mkdir d
	: >d/sums
	ln -s d/sums m.crc32c
	gives 0 "$PENSTOCK" sum m
	[ -L m.crc32c ]
	[ "$(stat -c %a d/sums)" = 640 ]
	[ "$(ls d)" = sums ]
	gives 0 "$PENSTOCK" sum --check m
}

refuses_bad_headers() {
	: >empty
	fails "empty: " "$PENSTOCK" sum empty
	printf '\377\377\377\377\377\377\377\177{}' >long
	fails "long: " "$PENSTOCK" sum long
	model gap '{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}' 2
	fails "gap: 1 bytes before tensor 'a' belong to no tensor" "$PENSTOCK" sum gap
	model past '{"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}}' 2
	fails "past: tensor 'a' ends 7 bytes past the end" "$PENSTOCK" sum past
	mkfifo pipe
	fails "pipe: it is no regular file" "$PENSTOCK" sum pipe
	fails ".: it is no regular file" "$PENSTOCK" sum .
	[ -z "$(ls ./*.crc32c 2>/dev/null)" ]
}

# Any error in a checksum file names that file, and its checksums are not used.
refuses_bad_checksums() {
	good m
	gives 0 "$PENSTOCK" sum m
	cp m.crc32c right
	size=$(stat -c %s m)
	for edit in 1d '$d' 2d 3d '2p' '$p' 's/^penstock/Penstock/' 's/ 1 / 2 /' '1s/$/0/' '1s/$/ /' \
		'2s/ 0 / 1 /' '2s/ 0 / 00000000000000000000 /' '$s/100$/99/' '$s/100$/101/' '$s/100$/0/' \
		'$s/100$/18446744073709551716/' '2s/^./g/' '2s/^./A/' '2s/^.//' '2s/ /  /' \
		's/$/\r/'; do
		case $edit in
		*p) sed -n "p;$edit" right >m.crc32c ;;
		*) sed "$edit" right >m.crc32c ;;
		esac
		fails "m.crc32c: " "$PENSTOCK" sum --check m
	done
	head -c -1 right >m.crc32c
	fails "m.crc32c: line 4 is no checksum" "$PENSTOCK" sum --check m
	: >m.crc32c
	fails "m.crc32c: these are no checksums" "$PENSTOCK" sum --check m
	printf 'penstock-crc32c 1 %s\n00000000 0 %s\n' $size $size >m.crc32c
	fails "m: bytes 0 to $((size - 1)) have the checksum" "$PENSTOCK" sum --check m
	truncate -s 65M m.crc32c
	fails "m.crc32c: these are no checksums" "$PENSTOCK" sum --check m
	rm m.crc32c
	mkfifo m.crc32c
	fails "m.crc32c: these are no checksums" "$PENSTOCK" sum --check m
	# Name a range larger than any memory.
	truncate -s 20M big
	printf 'penstock-crc32c 1 20971520\n00000000 0 20971520\n' >big.crc32c
	fails "big.crc32c: line 2 is no checksum" "$PENSTOCK" sum --check big
}

wants_files() {
	gives 2 "$PENSTOCK" sum
	gives 2 "$PENSTOCK" sum --chek m
	says "did you mean --check" err
	fails "pst://" "$PENSTOCK" sum pst://host/m
}

run_cases writes_and_checks finds_a_wrong_byte goes_on_after_a_bad_one keeps_links_and_permissions \
	refuses_bad_headers refuses_bad_checksums wants_files
