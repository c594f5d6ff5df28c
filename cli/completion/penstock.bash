# SPDX-License-Identifier: MIT
# Made by cli/completion/generate.py of the command's help; tests/cli/completion.sh compares both.

# Devices of this machine, without asking a driver.
_penstock_devices()
{
	local node

	printf '%s\n' host soft:0
	for node in /dev/nvidia[0-9]*; do
		[[ -e $node ]] && printf '%s\n' "cuda:${node#/dev/nvidia}"
	done
}

# Usage: _penstock_complete KIND WORDS CUR
_penstock_complete()
{
	local IFS=$'\n'

	case $1 in
	dir) COMPREPLY+=($(compgen -d -- "$3")) ;;
	file) COMPREPLY+=($(compgen -f -- "$3")) ;;
	device) COMPREPLY+=($(compgen -W "$(_penstock_devices)" -- "$3")) ;;
	program) COMPREPLY+=($(compgen -c -- "$3")) ;;
	words) COMPREPLY+=($(compgen -W "${2// /$'\n'}" -- "$3")) ;;
	esac
	case $1 in
	dir | file) compopt -o filenames 2>/dev/null ;;
	esac
}

_penstock()
{
	local line=() word cur prev options kinds words value choice kind i

	# Bash splits the line at colons, as in cuda:0, and at equal signs: join device names again,
	# and take "--option=value" as two words.
	for ((i = 0; i <= COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		if [[ $word == = && $i -gt 0 && ${COMP_WORDS[i - 1]} == --* ]]; then
			((i == COMP_CWORD)) && line+=('')
		elif [[ $i -gt 0 && ($word == : || ${COMP_WORDS[i - 1]} == :) ]]; then
			line[${#line[@]} - 1]+=$word
		else
			line+=("$word")
		fi
	done
	cur=${line[-1]}
	prev=${line[-2]}
	COMPREPLY=()

	if ((${#line[@]} == 2)); then
		COMPREPLY=($(compgen -W "demo doctor cp ls stat rm mv truncate sum bench perf window mount umount serve top tier kv run help --help --version" -- "$cur"))
		return
	fi
	options= kinds= words= value= choice=
	case ${line[1]} in
	demo)
		options='--dir --file --size --device --json --help'
		case $prev in
		--dir) value=dir ;;
		--file) value=file ;;
		--size) value=none ;;
		--device) value=device ;;
		esac
		;;
	doctor)
		options='--dir --json --accel --gds --file --rdma --topo --svg --sysfs --help'
		case $prev in
		--dir | --sysfs) value=dir ;;
		--file | --svg) value=file ;;
		esac
		;;
	cp)
		options='--via --device --verify --depth --block --path --strict --store --dmabuf --no-sync -q --quiet --help'
		kinds='file device' words=''
		case $prev in
		--via | --device) value=device ;;
		--depth | --block | --path) value=none ;;
		--store) value=words choice='auto uring threads' ;;
		--dmabuf) value=words choice='yes no try' ;;
		esac
		;;
	ls)
		options='-r --recursive --json --help'
		kinds='dir' words=''
		;;
	stat)
		options='--json --help'
		kinds='file' words=''
		;;
	rm)
		options='--help'
		kinds='file' words=''
		;;
	mv)
		options='--help'
		kinds='file' words=''
		;;
	truncate)
		options='-s --size --help'
		kinds='file' words=''
		case $prev in
		-s | --size) value=none ;;
		esac
		;;
	sum)
		options='--check --help'
		kinds='file' words=''
		;;
	bench)
		options='-f --file --dir --size -m --memory --op --sizes --pieces --depth --queues --batch --cold --warm --stable --runtime --bytes --turns --path --strict --store --baseline --overwrite --plot --json --help'
		case $prev in
		-f | --file | --plot) value=file ;;
		--dir) value=dir ;;
		--size | --sizes | --pieces | --depth | --queues | --batch | --runtime | --bytes | --turns | --path) value=none ;;
		-m | --memory) value=device ;;
		--op) value=words choice='read write randread randwrite' ;;
		--store) value=words choice='auto uring threads' ;;
		--baseline) value=words choice='pread none' ;;
		esac
		;;
	perf)
		options='--listen -m --memory --op --sizes --depth --iters --dmabuf --path --socket --keys --key --plain-data --plot --json --help'
		case $prev in
		--listen | --sizes | --depth | --iters | --key) value=none ;;
		-m | --memory) value=device ;;
		--op) value=words choice='put get send recv pingpong' ;;
		--dmabuf) value=words choice='yes no try' ;;
		--path | --keys | --plot) value=file ;;
		esac
		;;
	window)
		options='-d --device --backend --caching --kernel --json --size --random --seed --sizes -t --threads --max -n --count --runtime --baseline --help'
		kinds='words' words='validate copybw copylat apiperf pingpong'
		case $prev in
		-d | --device) value=device ;;
		--backend) value=words choice='gdrdrv dmabuf nvrm soft' ;;
		--caching) value=words choice='wc cached device' ;;
		--kernel | --size | --random | --seed | --sizes | -t | --threads | --max | -n | --count | --runtime | --baseline) value=none ;;
		esac
		;;
	mount)
		options='--source -o --allow-other --foreground --kernel-cache --timeout --links --rings --users --memory --uid --gid --metrics --plain --help'
		kinds='dir' words=''
		case $prev in
		--source) value=dir ;;
		-o | --timeout | --links | --rings | --users | --memory | --uid | --gid) value=none ;;
		--metrics) value=file ;;
		esac
		;;
	umount)
		options='--help'
		kinds='dir' words=''
		;;
	serve)
		options='--root --listen --write --keys --plain-data --rdma --rdma-clients --clients --files --requests --threads --memory --rate --metrics --stall --drain --check --kv --budget --max-blocks --reserve --policy --quota --help'
		case $prev in
		--root | --kv) value=dir ;;
		--listen | --rdma-clients | --clients | --files | --requests | --threads | --memory | --rate | --metrics | --stall | --drain | --budget | --max-blocks | --reserve | --quota) value=none ;;
		--keys) value=file ;;
		--policy) value=words choice='lru s3fifo' ;;
		esac
		;;
	top)
		options='--interval --once --json --metrics --help'
		kinds='dir' words=''
		case $prev in
		--interval) value=none ;;
		--metrics) value=file ;;
		esac
		;;
	tier)
		options='--nvme --ssd --hdd --object --policy --quota --rate --water --same-filesystem --to --rebuild --every --svg --json --help'
		kinds='words' words='init status ls df pin unpin migrate scrub run watch'
		case $prev in
		--nvme | --ssd | --hdd) value=dir ;;
		--object | --quota | --rate | --water | --every) value=none ;;
		--policy) value=words choice='lru arc s3fifo literal' ;;
		--to) value=words choice='nvme ssd hdd object' ;;
		--svg) value=file ;;
		esac
		;;
	kv)
		options='--prometheus --identity --tenant --help'
		kinds='words dir' words='stat ls verify drop'
		case $prev in
		--identity | --tenant) value=none ;;
		esac
		;;
	run)
		options='--help'
		kinds='program' words=''
		;;
	help)
		kinds=words words='demo doctor cp ls stat rm mv truncate sum bench perf window mount umount serve top tier kv run'
		;;
	esac
	# Complete the arguments of the program that "penstock run" starts as files.
	if [[ $kinds == program && ${line[*]:2:${#line[@]} - 3} == *[!-\ ]* ]]; then
		_penstock_complete file '' "$cur"
	elif [[ -n $value ]]; then
		_penstock_complete "$value" "$choice" "$cur"
	elif [[ $cur == -* ]]; then
		COMPREPLY=($(compgen -W "$options" -- "$cur"))
	else
		for kind in $kinds; do
			_penstock_complete "$kind" "$words" "$cur"
		done
	fi
	# Bash treats the text before the last colon as a separate word, so remove it from the
	# replies.
	if [[ $cur == *:* && $COMP_WORDBREAKS == *:* ]]; then
		word=${cur%"${cur##*:}"}
		for i in "${!COMPREPLY[@]}"; do
			COMPREPLY[i]=${COMPREPLY[i]#"$word"}
		done
	fi
}
complete -F _penstock penstock
