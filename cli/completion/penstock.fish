# SPDX-License-Identifier: MIT
# Made by cli/completion/generate.py of the command's help; tests/cli/completion.sh compares both.

function __penstock_devices
	printf '%s\n' host soft:0
	for node in /dev/nvidia*
		string match -rq '^/dev/nvidia(?<number>\d+)$' -- $node; and echo cuda:$number
	end
end

# Return true if this command is on the line.
function __penstock_is
	set -l line (commandline -opc)
	test "$line[2]" = "$argv[1]"
end

# Return true if no command is on the line yet.
function __penstock_wants_command
	test (count (commandline -opc)) -eq 1
end

complete -c penstock -f
complete -c penstock -n __penstock_wants_command -l help -d 'what there is'
complete -c penstock -n __penstock_wants_command -l version -d 'print the version'
complete -c penstock -n __penstock_wants_command -a demo -d 'load model shards and page KV blocks, checked and timed'
complete -c penstock -n __penstock_wants_command -a doctor -d 'say which paths this machine has, and what is missing'
complete -c penstock -n __penstock_wants_command -a cp -d 'copy a file to a file or into device memory'
complete -c penstock -n __penstock_wants_command -a ls -d 'list a directory, also of a service'
complete -c penstock -n __penstock_wants_command -a stat -d 'tell size and time of files, also of a service'
complete -c penstock -n __penstock_wants_command -a rm -d 'remove files, also of a service'
complete -c penstock -n __penstock_wants_command -a mv -d 'rename a file, also of a service'
complete -c penstock -n __penstock_wants_command -a truncate -d 'set the size of files, also of a service'
complete -c penstock -n __penstock_wants_command -a sum -d 'write checksums of safetensors files, or check them'
complete -c penstock -n __penstock_wants_command -a bench -d 'measure paths against plain pread and copy'
complete -c penstock -n __penstock_wants_command -a perf -d 'measure what moves between the memory of two processes'
complete -c penstock -n __penstock_wants_command -a window -d 'check and measure the CPU\'s mappings of device memory'
complete -c penstock -n __penstock_wants_command -a mount -d 'serve a directory to programs, also by rings of 3FS\'s usrbio'
complete -c penstock -n __penstock_wants_command -a umount -d 'undo a mount'
complete -c penstock -n __penstock_wants_command -a serve -d 'serve a directory to programs on other machines'
complete -c penstock -n __penstock_wants_command -a top -d 'show what a mount does, and for which users'
complete -c penstock -n __penstock_wants_command -a tier -d 'keep hot files on the fast disk, and move them safely'
complete -c penstock -n __penstock_wants_command -a kv -d 'look at a store of blocks of keys and values'
complete -c penstock -n __penstock_wants_command -a run -d 'run a program with our libraries in place of gdrcopy\'s or 3FS\'s'
complete -c penstock -n __penstock_wants_command -a help -d 'what a command does and its options'
complete -c penstock -n '__penstock_is help' -a 'demo doctor cp ls stat rm mv truncate sum bench perf window mount umount serve top tier kv run'

complete -c penstock -n '__penstock_is demo' -l dir -x -a '(__fish_complete_directories)' -d 'make a private directory in DIR'
complete -c penstock -n '__penstock_is demo' -l file -r -F -d 'load this safetensors file instead'
complete -c penstock -n '__penstock_is demo' -l size -x -d 'size of all shards together'
complete -c penstock -n '__penstock_is demo' -l device -x -a '(__penstock_devices)' -d 'cuda:0, soft:0, host, ...'
complete -c penstock -n '__penstock_is demo' -l json -d 'one JSON object instead of the table'
complete -c penstock -n '__penstock_is demo' -l help -d 'what it does and its options'

complete -c penstock -n '__penstock_is doctor' -l dir -x -a '(__fish_complete_directories)' -d 'try files of this directory'
complete -c penstock -n '__penstock_is doctor' -l json -d 'one JSON object'
complete -c penstock -n '__penstock_is doctor' -l accel -d 'which memory other devices reach, by dma-bufs and peer-to-peer ...'
complete -c penstock -n '__penstock_is doctor' -l gds -d 'what a direct way of files to NVIDIA GPUs'
complete -c penstock -n '__penstock_is doctor' -l file -r -F -d 'with --gds: look at this file, which is only read'
complete -c penstock -n '__penstock_is doctor' -l rdma -d 'what RDMA needs: devices and their ports, addresses, limits'
complete -c penstock -n '__penstock_is doctor' -l topo -d 'how near accelerators, NICs and disks are to each other'
complete -c penstock -n '__penstock_is doctor' -l svg -r -F -d 'with --topo: also draw the machine into this file'
complete -c penstock -n '__penstock_is doctor' -l sysfs -x -a '(__fish_complete_directories)' -d 'with --topo: read this copy of a sysfs'
complete -c penstock -n '__penstock_is doctor' -l help -d 'what it does and its options'

complete -c penstock -n '__penstock_is cp' -l via -x -a '(__penstock_devices)' -d 'let the bytes go through this device\'s memory'
complete -c penstock -n '__penstock_is cp' -l device -x -a '(__penstock_devices)' -d 'with DST the same as --via'
complete -c penstock -n '__penstock_is cp' -l verify -d 'read the target back from the disk'
complete -c penstock -n '__penstock_is cp' -l depth -x -d 'blocks in flight'
complete -c penstock -n '__penstock_is cp' -l block -x -d 'bytes of one block'
complete -c penstock -n '__penstock_is cp' -l path -x -d 'only these paths, such as direct or staged,direct'
complete -c penstock -n '__penstock_is cp' -l strict -d 'fail where the wanted path cannot be taken'
complete -c penstock -n '__penstock_is cp' -l store -x -a 'auto uring threads' -d 'auto, uring or threads'
complete -c penstock -n '__penstock_is cp' -l dmabuf -x -a 'yes no try' -d 'yes, no or try'
complete -c penstock -n '__penstock_is cp' -l no-sync -d 'do not wait until the bytes are on the disk'
complete -c penstock -n '__penstock_is cp' -s q -l quiet -d 'print nothing but errors'
complete -c penstock -n '__penstock_is cp' -l help -d 'what it does and its options'
complete -c penstock -n '__penstock_is cp' -F
complete -c penstock -n '__penstock_is cp' -a '(__penstock_devices)'

complete -c penstock -n '__penstock_is ls' -s r -l recursive -d 'the files of all directories beneath, in any order'
complete -c penstock -n '__penstock_is ls' -l json -d 'an object for each line: name, kind, size, mtime_ns'
complete -c penstock -n '__penstock_is ls' -l help -d 'what it does and its options'
complete -c penstock -n '__penstock_is ls' -a '(__fish_complete_directories)'

complete -c penstock -n '__penstock_is stat' -l json -d 'an object for each line: name, kind, size, mtime_ns'
complete -c penstock -n '__penstock_is stat' -l help -d 'what it does and its options'
complete -c penstock -n '__penstock_is stat' -F

complete -c penstock -n '__penstock_is rm' -l help -d 'what it does and its options'
complete -c penstock -n '__penstock_is rm' -F

complete -c penstock -n '__penstock_is mv' -l help -d 'what it does and its options'
complete -c penstock -n '__penstock_is mv' -F

complete -c penstock -n '__penstock_is truncate' -s s -l size -x -d 'bytes, or with a suffix: 64K, 1.5G'
complete -c penstock -n '__penstock_is truncate' -l help -d 'what it does and its options'
complete -c penstock -n '__penstock_is truncate' -F

complete -c penstock -n '__penstock_is sum' -l check -d 'read the files and compare them with their checksums'
complete -c penstock -n '__penstock_is sum' -l help -d 'what it does and its options'
complete -c penstock -n '__penstock_is sum' -F

complete -c penstock -n '__penstock_is bench' -s f -l file -r -F -d 'read this file'
complete -c penstock -n '__penstock_is bench' -l dir -x -a '(__fish_complete_directories)' -d 'make the scratch file in DIR'
complete -c penstock -n '__penstock_is bench' -l size -x -d 'of the scratch file'
complete -c penstock -n '__penstock_is bench' -s m -l memory -x -a '(__penstock_devices)' -d 'host, cuda:0, soft:0, ...'
complete -c penstock -n '__penstock_is bench' -l op -x -a 'read write randread randwrite' -d 'read, write, randread or randwrite'
complete -c penstock -n '__penstock_is bench' -l sizes -x -d 'bytes of a piece, a row for each'
complete -c penstock -n '__penstock_is bench' -l pieces -x -d 'pieces in one request'
complete -c penstock -n '__penstock_is bench' -l depth -x -d 'requests in flight in each queue'
complete -c penstock -n '__penstock_is bench' -l queues -x -d 'queues, a thread for each'
complete -c penstock -n '__penstock_is bench' -l batch -x -d 'completions to wait for at once'
complete -c penstock -n '__penstock_is bench' -l cold -d 'drop the file from memory first, read each byte once'
complete -c penstock -n '__penstock_is bench' -l warm -d 'have the file in memory'
complete -c penstock -n '__penstock_is bench' -l stable -d 'have it in memory, opened as one that nobody changes, and read ...'
complete -c penstock -n '__penstock_is bench' -l runtime -x -d 'longest time for each size and way'
complete -c penstock -n '__penstock_is bench' -l bytes -x -d 'most bytes for each size and way'
complete -c penstock -n '__penstock_is bench' -l turns -x -d 'turns into which they are split, the two ways in alternation'
complete -c penstock -n '__penstock_is bench' -l path -x -d 'only these paths, such as direct'
complete -c penstock -n '__penstock_is bench' -l strict -d 'fail where the wanted path cannot be taken'
complete -c penstock -n '__penstock_is bench' -l store -x -a 'auto uring threads' -d 'auto, uring or threads'
complete -c penstock -n '__penstock_is bench' -l baseline -x -a 'pread none' -d 'pread or none'
complete -c penstock -n '__penstock_is bench' -l overwrite -d 'let writes destroy what FILE holds'
complete -c penstock -n '__penstock_is bench' -l plot -r -F -d 'draw GB/s over size'
complete -c penstock -n '__penstock_is bench' -l json -d 'one JSON object instead of the table'
complete -c penstock -n '__penstock_is bench' -l help -d 'what it does and its options'

complete -c penstock -n '__penstock_is perf' -l listen -x -d 'serve clients until a signal comes'
complete -c penstock -n '__penstock_is perf' -s m -l memory -x -a '(__penstock_devices)' -d 'memory of this side: host, cuda:0, soft:0, ...'
complete -c penstock -n '__penstock_is perf' -l op -x -a 'put get send recv pingpong' -d 'put, get, send, recv or pingpong'
complete -c penstock -n '__penstock_is perf' -l sizes -x -d 'bytes of a piece, a row for each'
complete -c penstock -n '__penstock_is perf' -l depth -x -d 'puts or gets in flight'
complete -c penstock -n '__penstock_is perf' -l iters -x -d 'pieces of a row'
complete -c penstock -n '__penstock_is perf' -l dmabuf -x -a 'yes no try' -d 'yes, no or try'
complete -c penstock -n '__penstock_is perf' -l path -r -F -d 'puts and gets by peer, rdma or tcp, or not at all'
complete -c penstock -n '__penstock_is perf' -l socket -d 'over the connection: neither mapped nor by RDMA'
complete -c penstock -n '__penstock_is perf' -l keys -r -F -d 'of the keys for TLS, lines NAME:HEX'
complete -c penstock -n '__penstock_is perf' -l key -x -d 'the name of the key to connect with'
complete -c penstock -n '__penstock_is perf' -l plain-data -d 'bytes in the clear to another machine'
complete -c penstock -n '__penstock_is perf' -l plot -r -F -d 'draw GB/s over size'
complete -c penstock -n '__penstock_is perf' -l json -d 'one JSON object instead of the table'
complete -c penstock -n '__penstock_is perf' -l help -d 'what it does and its options'

complete -c penstock -n '__penstock_is window' -s d -l device -x -a '(__penstock_devices)' -d 'cuda:0, soft:0, ...'
complete -c penstock -n '__penstock_is window' -l backend -x -a 'gdrdrv dmabuf nvrm soft' -d 'gdrdrv, dmabuf, nvrm or soft'
complete -c penstock -n '__penstock_is window' -l caching -x -a 'wc cached device' -d 'only a window that is wc, cached or device'
complete -c penstock -n '__penstock_is window' -l kernel -x -d 'copy with avx512, avx2, ..., memcpy'
complete -c penstock -n '__penstock_is window' -l json -d 'one JSON object instead of the table'
complete -c penstock -n '__penstock_is window' -l size -x -d 'validate: bytes of the buffer'
complete -c penstock -n '__penstock_is window' -l random -x -d 'validate: random copies'
complete -c penstock -n '__penstock_is window' -l seed -x -d 'validate: which ones'
complete -c penstock -n '__penstock_is window' -l sizes -x -d 'copybw: bytes of a copy'
complete -c penstock -n '__penstock_is window' -s t -l threads -x -d 'copybw: threads, a slice for each, such as 1,2,4,8'
complete -c penstock -n '__penstock_is window' -l max -x -d 'copylat, apiperf: largest size'
complete -c penstock -n '__penstock_is window' -s n -l count -x -d 'apiperf: windows of each size'
complete -c penstock -n '__penstock_is window' -l runtime -x -d 'copybw, copylat: longest time for each number'
complete -c penstock -n '__penstock_is window' -l baseline -x -d 'copybw, copylat: copies'
complete -c penstock -n '__penstock_is window' -l help -d 'what it does and its options'
complete -c penstock -n '__penstock_is window' -a 'validate copybw copylat apiperf pingpong'

complete -c penstock -n '__penstock_is mount' -l source -x -a '(__fish_complete_directories)' -d 'the directory that is served'
complete -c penstock -n '__penstock_is mount' -s o -x -d 'options as fstab has them: ro, noatime, noexec, and those below ...'
complete -c penstock -n '__penstock_is mount' -l allow-other -d 'serve all users, as every mount of root\'s does'
complete -c penstock -n '__penstock_is mount' -l foreground -d 'do not go into the background'
complete -c penstock -n '__penstock_is mount' -l kernel-cache -d 'read and write files through the kernel\'s cache of the mount, also ...'
complete -c penstock -n '__penstock_is mount' -l timeout -x -d 'how long the kernel trusts names and attributes'
complete -c penstock -n '__penstock_is mount' -l links -x -d 'most buffers and rings that a user may publish'
complete -c penstock -n '__penstock_is mount' -l rings -x -d 'most rings that a user may publish'
complete -c penstock -n '__penstock_is mount' -l users -x -d 'most users, but for root, that use rings at once'
complete -c penstock -n '__penstock_is mount' -l memory -x -d 'most shared memory that a user may publish'
complete -c penstock -n '__penstock_is mount' -l uid -x -d 'the owner of the files of a storage service'
complete -c penstock -n '__penstock_is mount' -l gid -x -d 'their group'
complete -c penstock -n '__penstock_is mount' -l metrics -r -F -d 'the socket for numbers of the mount, which \'penstock top\' reads, ...'
complete -c penstock -n '__penstock_is mount' -l plain -d ''
complete -c penstock -n '__penstock_is mount' -l help -d 'what it does and its options'
complete -c penstock -n '__penstock_is mount' -a '(__fish_complete_directories)'

complete -c penstock -n '__penstock_is umount' -l help -d 'what it does and its options'
complete -c penstock -n '__penstock_is umount' -a '(__fish_complete_directories)'

complete -c penstock -n '__penstock_is serve' -l root -x -a '(__fish_complete_directories)' -d 'the directory'
complete -c penstock -n '__penstock_is serve' -l listen -x -d 'HOST:PORT, [IPV6]:PORT or unix:PATH'
complete -c penstock -n '__penstock_is serve' -l write -d 'let clients change, create, rename and remove files'
complete -c penstock -n '__penstock_is serve' -l keys -r -F -d 'TLS 1.3 at every TCP address, for clients that have a key of FILE: ...'
complete -c penstock -n '__penstock_is serve' -l plain-data -d 'listen at addresses beyond this machine without --keys, although ...'
complete -c penstock -n '__penstock_is serve' -l rdma -d 'move bytes by RDMA for clients that can'
complete -c penstock -n '__penstock_is serve' -l rdma-clients -x -d 'most connections by RDMA, 8 MiB of pinned memory each'
complete -c penstock -n '__penstock_is serve' -l clients -x -d 'most connections at a time'
complete -c penstock -n '__penstock_is serve' -l files -x -d 'most open files of a connection'
complete -c penstock -n '__penstock_is serve' -l requests -x -d 'most requests of a connection without a reply'
complete -c penstock -n '__penstock_is serve' -l threads -x -d 'threads that wait for disks'
complete -c penstock -n '__penstock_is serve' -l memory -x -d 'memory for payloads, besides 1 MiB for each connection'
complete -c penstock -n '__penstock_is serve' -l rate -x -d 'most bytes a second of each client'
complete -c penstock -n '__penstock_is serve' -l metrics -x -d 'numbers for Prometheus, at unix:PATH or a port of 127.0.0.1'
complete -c penstock -n '__penstock_is serve' -l stall -x -d 'drop a client that takes no replies for so long'
complete -c penstock -n '__penstock_is serve' -l drain -x -d 'how long requests may take after SIGTERM'
complete -c penstock -n '__penstock_is serve' -l check -d 'only say whether it could be served'
complete -c penstock -n '__penstock_is serve' -l kv -x -a '(__fish_complete_directories)' -d 'the store: its only directory, or one of several in their order'
complete -c penstock -n '__penstock_is serve' -l budget -x -d 'bytes of all files of the store'
complete -c penstock -n '__penstock_is serve' -l max-blocks -x -d 'most blocks of the store'
complete -c penstock -n '__penstock_is serve' -l reserve -x -d 'bytes to leave free on its file systems'
complete -c penstock -n '__penstock_is serve' -l policy -x -a 'lru s3fifo' -d 'of eviction: arc'
complete -c penstock -n '__penstock_is serve' -l quota -x -d 'most bytes of each space of the store'
complete -c penstock -n '__penstock_is serve' -l help -d 'what it does and its options'

complete -c penstock -n '__penstock_is top' -l interval -x -d 'time between two looks'
complete -c penstock -n '__penstock_is top' -l once -d 'print one table, after one interval, and end'
complete -c penstock -n '__penstock_is top' -l json -d 'print an object for each interval and mount, a line each'
complete -c penstock -n '__penstock_is top' -l metrics -r -F -d 'the socket, or 127.0.0.1:PORT, of a mount that was started with ...'
complete -c penstock -n '__penstock_is top' -l help -d 'what it does and its options'
complete -c penstock -n '__penstock_is top' -a '(__fish_complete_directories)'

complete -c penstock -n '__penstock_is tier' -l nvme -x -a '(__fish_complete_directories)' -d 'init: a directory of this class, with a file system of its own'
complete -c penstock -n '__penstock_is tier' -l ssd -x -a '(__fish_complete_directories)' -d 'init: the same'
complete -c penstock -n '__penstock_is tier' -l hdd -x -a '(__fish_complete_directories)' -d 'init: the same'
complete -c penstock -n '__penstock_is tier' -l object -x -d 'init: s3://BUCKET/PREFIX as the class object'
complete -c penstock -n '__penstock_is tier' -l policy -x -a 'lru arc s3fifo literal' -d 'init: lru, arc, s3fifo or literal'
complete -c penstock -n '__penstock_is tier' -l quota -x -d 'init: bytes of a class, such as nvme:500g,ssd:2t'
complete -c penstock -n '__penstock_is tier' -l rate -x -d 'init: bytes per second of moves, such as hdd:100m'
complete -c penstock -n '__penstock_is tier' -l water -x -d 'init: per cent of a class from which files leave it, and at which ...'
complete -c penstock -n '__penstock_is tier' -l same-filesystem -d ''
complete -c penstock -n '__penstock_is tier' -l to -x -a 'nvme ssd hdd object' -d 'migrate: nvme, ssd, hdd or object'
complete -c penstock -n '__penstock_is tier' -l rebuild -d 'scrub: make a damaged catalogue again first'
complete -c penstock -n '__penstock_is tier' -l every -x -d 'run: wait so long between two rounds'
complete -c penstock -n '__penstock_is tier' -l svg -r -F -d 'status: also draw what moves measured on each directory'
complete -c penstock -n '__penstock_is tier' -l json -d 'status, ls, df: one JSON object instead of a table'
complete -c penstock -n '__penstock_is tier' -l help -d 'what it does and its options'
complete -c penstock -n '__penstock_is tier' -a 'init status ls df pin unpin migrate scrub run watch'

complete -c penstock -n '__penstock_is kv' -l prometheus -d 'stat: print metrics in the text format of Prometheus'
complete -c penstock -n '__penstock_is kv' -l identity -x -d 'drop: the identity'
complete -c penstock -n '__penstock_is kv' -l tenant -x -d 'drop: the tenant'
complete -c penstock -n '__penstock_is kv' -l help -d 'what it does and its options'
complete -c penstock -n '__penstock_is kv' -a 'stat ls verify drop'
complete -c penstock -n '__penstock_is kv' -a '(__fish_complete_directories)'

complete -c penstock -n '__penstock_is run' -l help -d 'what it does and its options'
complete -c penstock -n '__penstock_is run' -a '(__fish_complete_subcommand)'
