#!/bin/sh
# SPDX-License-Identifier: MIT
# Completion in bash, zsh and fish: every option of the help and no other, with values where they
# fit.
. "$(dirname "$0")/lib.sh"

folder=$(cd "$(dirname "$0")/../.." && pwd)/cli/completion

need_tree() {
	[ -f "$folder/generate.py" ] || skip "the source of the completions"
}

# List a command's options, as its help names them.
helped() { # COMMAND
	{
		"$PENSTOCK" help "$1" | sed -n 's/^\(Usage:\|      \) penstock//p; s/^  -/ -/p' |
			sed 's/  .*//' | grep -o -E -e '[[ ]--?[a-z][a-z-]*' | tr -d '[ '
		echo --help
	} | sort -u
}

commands() {
	"$PENSTOCK" help | sed -n 's/^  \([a-z]*\) .*/\1/p'
}

files_are_as_the_help_says() {
	need_tree
	need python3
	gives 0 python3 "$folder/generate.py" "$PENSTOCK"
	# The check detects completions that differ from the help, and values that are in no list.
	cp -r "$folder" drifted
	sed -i 's/ --verify//' drifted/penstock.bash
	gives 1 python3 drifted/generate.py "$PENSTOCK"
	says "penstock.bash: not as the help says" err
	printf '#!/bin/sh\n"%s" "$@" | sed "s/--depth N/--depth KNOTS/"\n' "$PENSTOCK" >other
	chmod +x other
	gives 1 python3 drifted/generate.py ./other
	says "'KNOTS' in the help of cp" err
}

# complete WORD...: write bash's suggestions for the last word, sorted, to ./got.  Bash first splits
# the line at colons and equal signs.
suggest() {
	bash -c '
		. "$0/penstock.bash"
		COMP_WORDS=(penstock)
		COMP_CWORD=0
		for word; do
			COMP_WORDS[++COMP_CWORD]=$word
		done
		_penstock
		printf "%s\n" "${COMPREPLY[@]}"' "$folder" "$@" | sort -u >got
}

offers() { # TEXT: words, one blank between them
	[ "$(xargs <got)" = "$1" ] || {
		echo "not '$1' but:"
		cat got
		return 1
	}
}

bash_options() {
	need_tree
	need bash
	suggest ""
	offers "$({
		commands
		printf '%s\n' --help --version
	} | sort | xargs)"
	n=0
	for command in $(commands); do
		[ $command != help ] || continue
		suggest $command -
		offers "$(helped $command | xargs)"
		n=$((n + 1))
	done
	[ $n -ge 9 ]
	suggest cp --ver
	offers --verify
	suggest help dem
	offers demo
	suggest window val
	offers validate
	suggest "" && lacks "cuda" got
	# Options that the help omits are offered, too.
	gives 0 "$PENSTOCK" --help
	gives 0 "$PENSTOCK" --version
}

bash_values() {
	need_tree
	need bash
	mkdir folder
	: >file
	: >"two words"
	suggest cp f
	offers "file folder"
	suggest cp two
	offers "two words"
	suggest mount f
	offers folder
	suggest mount --source f
	offers folder
	suggest doctor --file "fi"
	offers file
	suggest cp --store ""
	offers "auto threads uring"
	suggest cp --store = u
	offers uring
	suggest cp --depth ""
	offers ""
	suggest run l
	grep -qx ls got
	suggest run -- l
	grep -qx ls got
	suggest run -- ls "fi"
	offers file
	suggest run ls --dir
	offers ""
}

bash_devices() {
	need_tree
	need bash
	suggest cp --via so
	offers soft:0
	suggest cp --via = so
	offers soft:0
	# Bash replaces only the text after the colon.
	suggest cp file soft :
	offers 0
	suggest cp file soft : 0
	offers 0
	suggest window --device ""
	for device in host soft:0; do
		grep -qx $device got
	done
	nr=$(find /dev -maxdepth 1 -name 'nvidia[0-9]*' | wc -l)
	[ "$(grep -c '^cuda:' got)" = "$nr" ]
}

# List the options of a command in the file for zsh or fish.
in_zsh() { # COMMAND
	awk -v c="$1" '$0 == "\t\t" c ")" { on = 1 } /^\t\t\t;;/ { on = 0 } on' "$folder/_penstock" |
		sed "s/'\\\\''//g; s/\[[^]]*\][^' ]*//g; s/:[a-zA-Z ]*:.*//" |
		grep -o -E -e "['{, ()]--?[a-z][a-z-]*" | tr -d "'{, ()" | sort -u
}

in_fish() { # COMMAND
	sed -n "s/^complete -c penstock -n '__penstock_is $1' //p" "$folder/penstock.fish" |
		sed "s/ -[xrFad] .*//; s/ -[xrFad]$//" | grep -o -E -e '-[sl] [a-z-]*' |
		sed 's/^-s /-/; s/^-l /--/' | sort -u
}

options_in_zsh_and_fish() {
	need_tree
	for command in $(commands); do
		[ $command != help ] || continue
		helped $command >want
		for shell in zsh fish; do
			in_$shell $command >have
			diff want have || {
				echo "$shell has other options for $command than the help"
				return 1
			}
		done
	done
}

zsh_reads_it() {
	need_tree
	need zsh
	zsh -n "$folder/_penstock"
}

fish_completes() {
	need_tree
	need fish
	HOME=$PWD
	export HOME
	for command in $(commands); do
		[ $command != help ] || continue
		fish -c "source $folder/penstock.fish; complete -C 'penstock $command -'" | cut -f 1 |
			sort -u >got
		offers "$(helped $command | xargs)"
	done
	fish -c "source $folder/penstock.fish; complete -C 'penstock cp --via so'" | cut -f 1 >got
	offers soft:0
	fish -c "source $folder/penstock.fish; complete -C 'penstock window --caching w'" | cut -f 1 >got
	offers wc
}

run_cases files_are_as_the_help_says bash_options bash_values bash_devices options_in_zsh_and_fish \
	zsh_reads_it fish_completes
