#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Completion for bash, zsh and fish, made of what the command's help says.

    generate.py PENSTOCK            compare the files beside this one with PENSTOCK's help
    generate.py PENSTOCK --write    write them

The words of the help's "Usage:" lines and the word after an option tell what is completed there.  A
word that is in neither list below ends the run, so that nothing of the help is left out in silence.
"""
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))

# Placeholders of values in the help, and the kind of completion for each.
VALUES = {
    "DIR": "dir", "SOURCE": "dir", "FILE": "file", "FILE.svg": "file", "PATH": "file",
    "NEW": "file",
    "SRC": "file", "DST": "file", "DEVICE": "device", "DEV": "device", "COMMAND": "program",
    # The help lists the words: "read, write or both".
    "B": "words", "C": "words", "CLASS": "words", "P": "words", "NAME": "words", "OP": "words",
    "S": "words",
    # Numbers and lists, which are not completed.
    "L": "none", "LIST": "none", "MIB": "none", "ADDRESS": "none", "N": "none", "SEC": "none",
    "SECONDS": "none",
    "SIZE": "none", "URL": "none", "ARGUMENT": "none", "SET": "none", "TEXT": "none",
}
DEVICE_OPTIONS = {"--device", "--via"}
# Every command has this option, although its help does not list it.
HELP = ("--help", None, "what it does and its options")

HEAD = """SPDX-License-Identifier: MIT
Made by cli/completion/generate.py of the command's help; tests/cli/completion.sh compares both."""


def stop(what):
    sys.exit(f"generate.py: {what}")


def said(penstock, *words):
    return subprocess.run([penstock, *words], check=True, capture_output=True, text=True).stdout


class Value:
    """How a value is completed: a kind, and the words for "words"."""

    def __init__(self, kind, words=()):
        self.kind, self.words = kind, list(words)


def value_of(command, name, word, text):
    if word not in VALUES:
        stop(f"'{word}' in the help of {command} is not in the list of values")
    if name in DEVICE_OPTIONS:
        return Value("device")
    kind = VALUES[word]
    if kind != "words":
        return Value(kind)
    found = re.search(r"\b([a-z]\w*(?:, [a-z]\w*)* or [a-z]\w*)\b", text)
    # If the text lists no choices, the value is a number or the like.
    return Value("words", re.split(r", | or ", found.group(1))) if found else Value("none")


class Option:
    def __init__(self, command, names, word, text):
        self.short = next((n for n in names if not n.startswith("--")), None)
        self.long = next((n for n in names if n.startswith("--")), None)
        self.names = names
        self.word, self.text = word, text
        self.value = value_of(command, self.long, word, text) if word else None


class Command:
    def __init__(self, penstock, name, summary):
        text = said(penstock, "help", name)
        self.name, self.summary = name, summary
        self.options = self.find_options(text) + [Option(name, *HELP_OPTION)]
        self.places = self.find_places(text)

    def find_options(self, text):
        """Find lines "  -d, --device DEV  text", each with the continuation lines of its text."""
        found = []
        for match in re.finditer(
                r"^  ((?:-\w, )?--?[a-z][a-z-]*)(?: ([A-Z]\S*))?(?:  +(.*(?:\n {10,}.*)*))?$", text,
                re.M):
            names = match.group(1).split(", ")
            words = " ".join((match.group(3) or "").split())
            found.append(Option(self.name, names, match.group(2), words))
        # A choice that appears only in the usage takes no value.
        usage = text[text.index("Usage:"):].split("\n\n")[0]
        listed = {name for option in found for name in option.names}
        for name in re.findall(r"(?<![\w-])--[a-z][a-z-]*", usage):
            if name not in listed:
                found.append(Option(self.name, [name], None, ""))
                listed.add(name)
        for line in re.findall(r"^ +-.*$", text, re.M):
            if not listed.issuperset(re.findall(r"(?:^|, )(--?[a-z][a-z-]*)", line.strip())):
                stop(f"'{line}' in the help of {self.name} is no line of an option")
        return found

    def find_places(self, text):
        """Find the values of arguments without an option in all "Usage:" lines."""
        found = []
        usage = text[text.index("Usage:"):].split("\n\n")[0]
        usage = re.sub(r"\[OPTION\.\.\.\]|--?\w[\w-]* ?[A-Z]*", "", usage)
        for word in re.findall(r"[^\s\[\]|]+(?:\|[^\s\[\]|]+)*", usage.replace("Usage:", "")):
            word = word.removesuffix("...")
            if word in ("penstock", self.name, "--"):
                continue
            if "|" in word and word.islower():
                found.append(Value("words", word.split("|")))
            elif word == "SUBCOMMAND":
                listed = text[text.index("Subcommands:"):].split("\n\n")[1]
                found.append(Value("words", re.findall(r"^  (\w+)  ", listed, re.M)))
            elif word in VALUES:
                found.append(Value(VALUES[word]))
            else:
                stop(f"'{word}' in the usage of {self.name} is not in the list of values")
        return found

    def kinds(self):
        return {value.kind for value in self.places}

    def words(self):
        return [word for value in self.places for word in value.words]


def read_commands(penstock):
    lines = re.findall(r"^  ([a-z]+) +(.*)$", said(penstock, "help"), re.M)
    if not lines or lines[-1][0] != "help":
        stop("'penstock help' has no list of commands that ends with help")
    return [Command(penstock, name, text) for name, text in lines[:-1]]


def comment(text):
    return "".join(f"# {line}\n" for line in text.splitlines())


# -------------------------------------------------------------------- bash

BASH = r"""
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
		COMPREPLY=($(compgen -W "@COMMANDS@ help --help --version" -- "$cur"))
		return
	fi
	options= kinds= words= value= choice=
	case ${line[1]} in
@CASES@
	help)
		kinds=words words='@COMMANDS@'
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
"""


def bash_case(command):
    names = [n for o in command.options for n in o.names]
    lines = [f"\t{command.name})", f"\t\toptions='{' '.join(names)}'"]
    kinds = " ".join(dict.fromkeys(v.kind for v in command.places if v.kind != "none"))
    if kinds:
        lines.append(f"\t\tkinds='{kinds}' words='{' '.join(command.words())}'")
    values = {}
    for option in command.options:
        if option.value:
            words = f" choice='{' '.join(option.value.words)}'" if option.value.words else ""
            values.setdefault(option.value.kind + words, []).extend(option.names)
    if values:
        lines.append("\t\tcase $prev in")
        lines += [f"\t\t{' | '.join(names)}) value={value} ;;" for value, names in values.items()]
        lines.append("\t\tesac")
    return "\n".join([*lines, "\t\t;;"])


def bash(commands):
    text = BASH.replace("@CASES@", "\n".join(map(bash_case, commands)))
    return comment(HEAD) + text.replace("@COMMANDS@", " ".join(c.name for c in commands))


# --------------------------------------------------------------------- zsh

ZSH = r"""
_penstock_devices()
{
	local -a devices
	local node

	devices=(host soft:0)
	for node in /dev/nvidia[0-9]*(N); do
		devices+=(cuda:${node#/dev/nvidia})
	done
	compadd -a devices
}

_penstock()
{
	local curcontext=$curcontext state line
	local -a commands

	commands=(
@COMMANDS@
		'help:what a command does and its options'
	)
	_arguments -C '(- *)--help[what there is]' '(- *)--version[print the version]' \
		'1:command:->command' '*::argument:->argument' && return
	case $state in
	command)
		_describe command commands
		;;
	argument)
		case $words[1] in
@CASES@
		help)
			_describe command commands
			;;
		esac
		;;
	esac
}

_penstock "$@"
"""

ZSH_ACTIONS = {"dir": "_files -/", "file": "_files", "device": "_penstock_devices", "none": " "}


def zsh_text(text):
    return text.replace("'", "'\\''").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")


def zsh_action(value):
    return f"({' '.join(value.words)})" if value.words else ZSH_ACTIONS[value.kind]


def zsh_option(option):
    value = f":{option.word}:{zsh_action(option.value)}" if option.value else ""
    text = f"[{zsh_text(short_text(option.text))}]{value}"
    names = [n + ("=" if option.value and n.startswith("--") else "") for n in option.names]
    if len(names) == 1:
        return f"'{names[0]}{text}'"
    return f"'({' '.join(option.names)})'{{{','.join(names)}}}'{text}'"


def zsh_case(command):
    lines = [f"\t\t{command.name})"]
    if "program" in command.kinds():
        lines += ["\t\t\tif [[ $words[2] == -- ]]; then", "\t\t\t\tshift words",
                  "\t\t\t\t(( CURRENT-- ))", "\t\t\tfi",
                  f"\t\t\t_arguments '(- *)--help[{zsh_text(HELP[2])}]' \\",
                  "\t\t\t\t'(-)1:program:_command_names -e' '*::argument:_normal'", "\t\t\t;;"]
        return "\n".join(lines)
    entries = [zsh_option(option) for option in command.options]
    kinds = command.kinds() - {"none"}
    if kinds == {"words"}:
        entries.append(f"'1:{command.name}:({' '.join(command.words())})'")
    elif "device" in kinds:
        entries.append("'*:file or device:{ _files; _penstock_devices }'")
    elif kinds:
        # A subcommand and its arguments.
        if "words" in kinds:
            kinds -= {"words"}
            entries.append(f"'1:{command.name}:({' '.join(command.words())})'")
        name = "directory" if kinds == {"dir"} else "file"
        entries.append(f"'*:{name}:{ZSH_ACTIONS[kinds.pop()]}'")
    lines.append("\t\t\t_arguments " + " \\\n\t\t\t\t".join(entries))
    lines.append("\t\t\t;;")
    return "\n".join(lines)


def zsh(commands):
    names = "\n".join(f"\t\t'{c.name}:{zsh_text(c.summary)}'" for c in commands)
    text = ZSH.replace("@COMMANDS@", names).replace("@CASES@", "\n".join(map(zsh_case, commands)))
    return "#compdef penstock\n" + comment(HEAD) + text


# -------------------------------------------------------------------- fish

FISH = r"""
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
"""

FISH_ACTIONS = {"dir": "-a '(__fish_complete_directories)'", "file": "-F",
                "device": "-a '(__penstock_devices)'", "none": "",
                "program": "-a '(__fish_complete_subcommand)'"}


def fish_text(text):
    return text.replace("\\", "\\\\").replace("'", "\\'")


def fish_action(value):
    return f"-a '{' '.join(value.words)}'" if value.words else FISH_ACTIONS[value.kind]


def fish_lines(command):
    start = f"complete -c penstock -n '__penstock_is {command.name}'"
    for option in command.options:
        names = " ".join(f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}"
                         for n in option.names)
        takes = ""
        if option.value:
            takes = f" {'-r' if option.value.kind == 'file' else '-x'} {fish_action(option.value)}"
        yield f"{start} {names}{takes.rstrip()} -d '{fish_text(short_text(option.text))}'"
    for kind in dict.fromkeys(v.kind for v in command.places if v.kind != "none"):
        if kind == "words":
            yield f"{start} -a '{' '.join(command.words())}'"
        else:
            yield f"{start} {FISH_ACTIONS[kind]}"


def fish(commands):
    lines = []
    for command in commands:
        lines.append("complete -c penstock -n __penstock_wants_command "
                     f"-a {command.name} -d '{fish_text(command.summary)}'")
    names = " ".join(c.name for c in commands)
    lines.append("complete -c penstock -n __penstock_wants_command -a help "
                 "-d 'what a command does and its options'")
    lines.append(f"complete -c penstock -n '__penstock_is help' -a '{names}'")
    for command in commands:
        lines += ["", *fish_lines(command)]
    return comment(HEAD) + FISH + "\n".join(lines) + "\n"


# -------------------------------------------------------------------- main

def short_text(text):
    """Cut the text at "(default", and to the length of a menu line."""
    text = re.split(r" \(|;", text)[0]
    return text if len(text) < 70 else text[:text.rindex(" ", 0, 67)] + " ..."


HELP_OPTION = ([HELP[0]], None, HELP[2])
SHELLS = {"penstock.bash": bash, "_penstock": zsh, "penstock.fish": fish}


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--write"]):
        stop("PENSTOCK [--write] is wanted")
    commands = read_commands(sys.argv[1])
    old = []
    for name, make in SHELLS.items():
        path, text = f"{HERE}/{name}", make(commands)
        if sys.argv[2:]:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            continue
        try:
            with open(path, encoding="utf-8") as file:
                same = file.read() == text
        except FileNotFoundError:
            same = False
        if not same:
            old.append(name)
    if old:
        stop(f"{' and '.join(old)}: not as the help says; cli/completion/generate.py "
             "build/default/cli/penstock --write writes them")


main()
