#!/bin/sh
# SPDX-License-Identifier: MIT
# demo runs on every machine, reports what it did, and trusts no file.
. "$(dirname "$0")/lib.sh"

table_has_all_rows() {
	mkdir files
	gives 0 "$PENSTOCK" demo --size 8 --dir files
	for line in "machine " "device   soft:0" "files " "load tensors " "CRC-32C " \
		"KV blocks out" "KV pages back" "plain: "; do
		says "$line" out
	done
	[ "$(grep -c '^load tensors' out)" -ge 3 ]
	[ "$(grep -c '^KV pages back' out)" -ge 2 ]
	grep -q 'staged' out
	says "in place of a GPU: no NVIDIA driver here" out
	says "read back from soft:0 with what was written into the files" out
	[ -z "$(ls -A files)" ]
	[ ! -s err ]
}

json_output() {
	gives 0 "$PENSTOCK" demo --size 8 --dir . --json
	json out 'len(d["steps"]) == 6 and d["verified"] and d["device"] == "soft:0"'
	json out 'all(s["penstock"]["bytes"] == s["plain"]["bytes"] > 0 for s in d["steps"])'
	json out 'all(s["penstock"]["paths"] and s["penstock"]["gb_per_s"] > 0 for s in d["steps"])'
	[ ! -s err ]
}

gpu() {
	use_stub
	gives 0 "$PENSTOCK" demo --size 4 --dir .
	says "device   cuda:0 (Stub device 0)" out
	says "read back from cuda:0 with" out
	lacks "in place of" out
	lacks "soft" out
	# All moved bytes were compared, on both paths.
	gives 0 "$PENSTOCK" demo --size 4 --dir . --json
	json out 'd["device"] == "cuda:0" and d["no_gpu"] == ""'
	json out 'd["compared"]["device_bytes"] == sum(s["penstock"]["bytes"] + s["plain"]["bytes"]
		for s in d["steps"] if "out" not in s["step"])'
	json out 'd["compared"]["file_bytes"] == sum(s["penstock"]["bytes"] + s["plain"]["bytes"]
		for s in d["steps"] if "out" in s["step"])'
	json out 'd["compared"]["checksums"] == [s["penstock"]["requests"]
		for s in d["steps"] if "CRC" in s["step"]][0] > 0'
	json out 'd["compared"]["untouched_bytes"] > 0'
}

full_gpu() {
	use_stub
	mkdir files
	# The software device is not used instead, because the user asked for another one.
	STUB_CUDA_FAIL=cuMemAlloc_v2:0:2 fails "try another device with --device" \
		"$PENSTOCK" demo --size 4 --dir files
	says "cuda:0 has no" err
	[ -z "$(ls -A files)" ]
}

host_memory() {
	gives 0 "$PENSTOCK" demo --size 4 --dir . --device host
	says "device   host" out
}

nothing_is_cold_in_memory() {
	[ "$(stat -f -c %T /dev/shm)" = tmpfs ] || skip "/dev/shm is no tmpfs"
	gives 0 "$PENSTOCK" demo --size 4 --dir /dev/shm
	says "on tmpfs, which keeps files in memory: no read is cold" out
	! grep -q ' cold ' out
}

# Bytes that were never synced become cold as well.
dirty_files_become_cold() {
	case $(stat -f -c %T .) in
	tmpfs | ramfs) skip "a file system on a disk in $PWD" ;;
	esac
	tensor_file '{"a":{"dtype":"U8","shape":[16777216],"data_offsets":[0,16777216]}}' 16777216 >model
	gives 0 "$PENSTOCK" demo --size 2 --dir . --file model --json
	json out 'd["cold_possible"] and d["steps"][0]["state"] == "cold"'
}

# The software device is an emulator: the output says so and has no ratio.
no_ratio_of_an_emulator() {
	gives 0 "$PENSTOCK" demo --size 2 --dir .
	says "soft:0 is an emulator" out
	says "plain: pread" out
	! grep -Eq '[0-9]x$' out
	gives 0 "$PENSTOCK" demo --size 2 --dir . --json
	json out 'all(s["ratio"] is None for s in d["steps"])'
	gives 0 "$PENSTOCK" demo --size 2 --dir . --device host
	[ "$(grep -Ec '[0-9]x$' out)" = 6 ]
	gives 0 "$PENSTOCK" demo --size 2 --dir . --device host --json
	json out 'all(s["ratio"] > 0 for s in d["steps"])'
}

# header LENGTH JSON: 8 bytes with a length below 65536, then the text.
header() {
	printf "\\$(printf %o $(($1 % 256)))\\$(printf %o $(($1 / 256)))\\0\\0\\0\\0\\0\\0%s" "$2"
}

tensor_file() { # JSON DATA_BYTES
	header ${#1} "$1"
	head -c "$2" /dev/zero
}

good='{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"e":{"dtype":"BF16","shape":[0,4],"data_offsets":[24,24]},"s":{"dtype":"U8","shape":[],"data_offsets":[24,25]}}'

own_file() {
	tensor_file "$good" 25 >model
	gives 0 "$PENSTOCK" demo --size 2 --dir . --file model --json
	json out 'd["shard_bytes"] == 25'
	gives 0 "$PENSTOCK" demo --size 2 --dir . --file model --file model
	gives 0 "$PENSTOCK" demo --size 2 --dir . --file model model
}

only_empty_tensors() {
	tensor_file '{"e":{"dtype":"BF16","shape":[0,4],"data_offsets":[0,0]}}' 0 >model
	gives 0 "$PENSTOCK" demo --size 2 --dir . --file model
	tensor_file '{}' 0 >model
	gives 0 "$PENSTOCK" demo --size 2 --dir . --file model
}

# Valid headers: the package safetensors reads them, and writes some of them.
legal_headers() {
	reads() { # JSON
		tensor_file "$1" 4 >model
		gives 0 "$PENSTOCK" demo --size 2 --dir . --file model
	}
	facts='"dtype":"U8","shape":[4],"data_offsets":[0,4]'
	reads '{"a\u0000b":{'"$facts"'}}'
	reads '{"__metadata__":{"a\u0000":"\\u0000\u0000"},"a\u0000":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{'"$facts"'}}'
	reads '{"__metadata__":null,"a":{'"$facts"'}}'
	reads '{"a":{'"$facts"',"scale":0.5,"more":{"a":[1,{"b":null}],"a2":{}}}}'
	reads ' {"a":{'"$facts"'}}'
	ones=$(printf '1,%.0s' $(seq 99))
	reads '{"a":{"dtype":"U8","shape":['"$ones"'4],"data_offsets":[0,4]}}'
	reads '{"a":{"dtype":"F8_E4M3FNUZ","shape":[4],"data_offsets":[0,4]}}'
	reads '{"a":{"dtype":"F8_E5M2FNUZ","shape":[4],"data_offsets":[0,4]}}'
}

# The error names the type of a file that is not safetensors.
other_files() {
	refuses() { # SENTENCE, of the file ./bad
		fails "$1" "$PENSTOCK" demo --size 2 --dir . --file bad
	}
	printf 'version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n' >bad
	refuses "the pointer that Git LFS leaves in place of the file: run 'git lfs pull'"
	printf 'PK\3\4\0\0\10\10\0\0archive/data.pkl' >bad
	refuses "a zip file, as torch.save() and numpy.savez() write it"
	printf 'GGUF\3\0\0\0\0\0\0\0' >bad
	refuses "a GGUF file"
	printf '\223NUMPY\1\0v\0' >bad
	refuses "a .npy file"
	printf '\037\213\10\0\0\0\0\0\0\0' >bad
	refuses "longer than the file of 10: this is compressed by gzip"
	printf '<!DOCTYPE html>' >bad
	refuses "a web page"
	printf '{"metadata": {}}' >bad
	refuses "this is JSON: name the safetensors file"
	head -c 4096 /dev/zero >bad
	refuses "it begins with zeros: its download or copy did not come to its end"
}

dead_links() {
	mkdir blobs
	ln -s blobs/abc link
	ln -s link chain
	fails "link: it is a symbolic link to blobs/abc, where no file is" \
		"$PENSTOCK" demo --size 2 --dir . --file link
	fails "chain: it is a symbolic link to link, where no file is" \
		"$PENSTOCK" demo --size 2 --dir . --file chain
	fails "link: it is a symbolic link to blobs/abc, where no file is" "$PENSTOCK" cp link copy
	fails "link: it is a symbolic link to blobs/abc, where no file is" \
		"$PENSTOCK" bench --file link
}

bad_files() {
	refuses() { # SENTENCE, of the file ./bad
		fails "bad: $1" "$PENSTOCK" demo --size 2 --dir . --file bad
	}
	: >bad
	refuses "the file is empty: its download or copy did not come to its end"
	printf 1234567 >bad
	refuses "the file has 7 bytes, less than the 8"
	head -c 100000 /dev/zero | tr '\0' '\377' >bad
	refuses "the header would be 18446744073709551615 bytes long, the limit is"
	header 5000 '{"a":' >bad
	refuses "the header of 5000 bytes is longer than the file of 13: the file is truncated"
	tensor_file "$good" 20 >bad
	refuses "tensor 'a' ends 4 bytes past the end of the file: the file is truncated"
	tensor_file "$good" 30 >bad
	refuses "5 bytes at the end of the file belong to no tensor"
	header 12 'hello, world' >bad
	refuses "the header does not begin with '{': this is no safetensors file"
	header 12 '{"a":{"dtyp}' >bad
	refuses "the header is JSON that does not end"
	header 12 '{"a":{dtype}' >bad
	refuses "the header is not valid JSON at byte"
	tensor_file '{"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}}' 4 >bad
	refuses "tensor 'a' has the unknown dtype 'F33'"
	tensor_file '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}' 4 >bad
	refuses "tensor 'a' has 4 bytes, but its shape and dtype need 8"
	tensor_file '{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}' 4 >bad
	refuses "the data_offsets of tensor 'a' are no begin and end"
	tensor_file '{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}' 4 >bad
	refuses "dimension 0 of tensor 'a' is no size"
	tensor_file '{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}}' 4 >bad
	refuses "the shape of tensor 'a' overflows"
	tensor_file '{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}' 6 >bad
	refuses "tensors 'a' and 'b' overlap"
	tensor_file '{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[6,10]}}' 10 >bad
	refuses "2 bytes before tensor 'b' belong to no tensor"
	tensor_file '{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}' 4 >bad
	refuses "the header has a tensor or a field twice"
	named() { # NAME, as it stands in the JSON
		tensor_file "{\"$1\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}" 4
	}
	tensor_file "{'a':{'dtype':'U8','shape':[4],'data_offsets':[0,4]}}" 4 >bad
	refuses "the header is not valid JSON at byte 1"
	named "$(printf 'x\ny')" >bad
	refuses "a name in the header contains the control character 0x0a, at byte 3"
	named "$(printf 'x\033y')" >bad
	refuses "a name in the header contains the control character 0x1b, at byte 3"
	for name in '\ud800' '\udc00' '\ud800\u0041' '\ud800x' '\x' '\u12' '\u12g4'; do
		named "$name" >bad
		refuses "the header is not valid JSON at byte 2"
	done
	# Invalid UTF-8: no lead byte, overlong, a surrogate, above U+10FFFF.
	for name in '\200' '\303' '\300\257' '\340\200\257' '\355\240\200' '\364\220\200\200' '\370\210\200\200\200'; do
		# shellcheck disable=SC2059
		named "$(printf "$name")" >bad
		refuses "the header is not valid UTF-8 at byte 2"
	done
	tensor_file '{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"\u0061":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}' 4 >bad
	refuses "the header has a tensor or a field twice"
	tensor_file '{"a":/**/{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}' 4 >bad
	refuses "the header is not valid JSON at byte 5"
	named '\ud83d\ude00\u00e4\"\\' >bad
	gives 0 "$PENSTOCK" demo --size 2 --dir . --file bad
	tensor_file '{"a":{"dtype":"U8","shape":[4],"more":[0,4]}}' 4 >bad
	refuses "tensor 'a' does not have dtype, shape and data_offsets"
	tensor_file '{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"more":{"b":1,"b":2}}}' 4 >bad
	refuses "the header has a tensor or a field twice"
	mkdir bad.d
	fails "bad.d" "$PENSTOCK" demo --size 2 --dir . --file bad.d
	fails "cannot open none: No such file" "$PENSTOCK" demo --size 2 --dir . --file none
	no_leftovers .
}

# The memory that a header may need is estimated before parsing it.
too_many_values() {
	need python3
	for value in '{}' '[]' 1; do
		python3 -c 'import struct, sys
h = b"{" + b",".join(b"\"%x\":%s" % (i, sys.argv[1].encode()) for i in range(2500000)) + b"}"
sys.stdout.buffer.write(struct.pack("<Q", len(h)) + h)' "$value" >bad
		fails "bad: the header holds too many values" "$PENSTOCK" demo --size 2 --dir . --file bad
	done
	# A long text counts in that memory.
	python3 -c 'import struct, sys
h = (b"{\"__metadata__\":{\"a\":\"\\u0000" + b"x" * 97000000 + b"\"},\"b\":[" +
     b",".join([b"[]"] * 700000) + b"]}")
sys.stdout.buffer.write(struct.pack("<Q", len(h)) + h)' >bad
	fails "bad: the header holds too many values" "$PENSTOCK" demo --size 2 --dir . --file bad
}

garbage() {
	for size in 9 100 5000 20000 1000000; do
		random $size bad
		fails "bad: " "$PENSTOCK" demo --size 2 --dir . --file bad
	done
}

no_place() {
	fails "cannot make a directory in nowhere" "$PENSTOCK" demo --dir nowhere
}

interrupted() {
	mkdir files
	for s in 0.1 0.3 0.7; do
		gives 130 timeout --preserve-status -s INT $s "$PENSTOCK" demo --size 1000 --dir files
		[ -z "$(ls -A files)" ]
	done
}

failing_device() {
	mkdir files
	# If several reads are copied together and that fails, each is copied alone: let all copies
	# fail.
	PST_FAULT=mem.copy:0:EIO fails "EIO" "$PENSTOCK" demo --size 4 --dir files
	PST_FAULT=file.read:9:EIO fails "EIO" "$PENSTOCK" demo --size 4 --dir files
	[ -z "$(ls -A files)" ]
}

run_cases table_has_all_rows json_output gpu full_gpu host_memory nothing_is_cold_in_memory \
	dirty_files_become_cold no_ratio_of_an_emulator own_file \
	only_empty_tensors legal_headers other_files dead_links bad_files too_many_values garbage \
	no_place interrupted failing_device
