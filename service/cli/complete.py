"""Completion with the Tab key. The scripts of all shells call `firn __complete`, which does the work."""

import os
from collections.abc import Sequence

from service.cli.catalogue import COMMANDS
from service.cli.command import Argument, Command
from service.cli.parser import SHARED, arguments_of, split_words

FILES = ":files"
"""Stands alone for the names of all files."""

# Each calls the command as it is typed, which need not be on the PATH.
SCRIPTS = {
    "bash": """\
_firn() {
    local found word glued= words=()
    # Bash splits words at : and =, as in an address.
    for word in "${COMP_WORDS[@]:1:COMP_CWORD}"; do
        if [ ${#words[@]} -gt 0 ] && [ -n "$word" ] && [ -z "${word//[:=]/}" ]; then
            words[${#words[@]}-1]+=$word
            glued=yes
        elif [ -n "$glued" ]; then
            words[${#words[@]}-1]+=$word
            glued=
        else
            words+=("$word")
        fi
    done
    found=$("${COMP_WORDS[0]/#\\~/$HOME}" __complete "${words[@]}" 2>/dev/null)
    if [ "$found" = ":files" ]; then
        compopt -o default 2>/dev/null
        COMPREPLY=()
    else
        COMPREPLY=($(compgen -W "$found" -- "${COMP_WORDS[COMP_CWORD]}"))
    fi
}
complete -F _firn firn
""",
    "zsh": """\
#compdef firn
_firn() {
    local -a found
    found=("${(@f)$(${~words[1]} __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ "$found" == ":files" ]]; then
        _files
    else
        compadd -- $found
    fi
}
# In a file of $fpath, this is the body of the function at its first call.
if [[ "$funcstack[1]" == "_firn" ]]; then
    _firn "$@"
else
    compdef _firn firn
fi
""",
    "fish": """\
function __firn_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l firn (string replace -r '^~' $HOME -- $words[1])
    set -l found ($firn __complete $words[2..-1] 2>/dev/null)
    if test "$found" = ":files"
        __fish_complete_path (commandline -ct)
    else
        string join \\n -- $found
    end
end
complete -c firn -f -a '(__firn_complete)'
""",
}


def complete(words: Sequence[str]) -> list[str]:
    """What can replace the last word, which may be incomplete or empty."""
    *before, last = words or [""]
    name, options, rest = split_words(before)
    command = next((each for each in COMMANDS if each.words == name), None)
    if command is not None:
        found = _argument_words(command, [*options, *rest], last)
    elif rest:
        found = _values_of(rest[-1], SHARED) or []
    else:
        found = _command_words(name, options, last)
    return found if found == [FILES] else sorted({word for word in found if word.startswith(last)})


def _command_words(name: list[str], options: Sequence[str], last: str) -> list[str]:
    depth = len(name)
    found = [each.words[depth] for each in COMMANDS if each.words[:depth] == name and len(each.words) > depth]
    shared = [each.name for each in SHARED if not {*each.names} & {*options}] if last.startswith("-") else []
    return [*found, *shared, "--help", *([] if name or options else ["--version"])]


def _argument_words(command: Command, before: Sequence[str], last: str) -> list[str]:
    known = arguments_of(command)
    values = _values_of(before[-1], known) if before else None
    if values is not None:
        return values
    positional = [each for each in known if each.positional]
    given = [
        word
        for previous, word in zip(["", *before], before, strict=False)
        if not word.startswith("-") and _values_of(previous, known) is None
    ]
    if len(given) < len(positional) and not last.startswith("-"):
        return _values(positional[len(given)])
    options = (each for each in known if not each.positional)
    return [*(o.name for o in options if not {*o.names} & {*before} or o.options.get("action") == "append"), "--help"]


def _values_of(option: str, known: Sequence[Argument]) -> list[str] | None:
    """The values that an option can have; None if it takes none."""
    argument = next((each for each in known if option in each.names and not each.positional), None)
    return _values(argument) if argument is not None and argument.takes_value else None


def _values(argument: Argument) -> list[str]:
    if "choices" in argument.options:
        return list(argument.options["choices"])
    metavar = argument.options.get("metavar") or ""
    if metavar == "PROFILE":
        from service.cli import profiles

        return sorted(profiles.read(os.environ))
    return [FILES] if "FILE" in metavar or metavar == "LOG" else []
