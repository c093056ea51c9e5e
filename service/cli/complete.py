"""What the Tab key offers. The shells ask `firn __complete` for it, so that there is one answer for all of them."""

from collections.abc import Sequence

from service.cli.catalogue import COMMANDS
from service.cli.command import Argument, Command
from service.cli.parser import SHARED, arguments_of, in_order

FILES = ":files"
"""Offered alone: any file will do."""

# Each asks the very command that is being typed, which need not be on the PATH.
SCRIPTS = {
    "bash": """\
_firn() {
    local found word glued= words=()
    # Bash parts words at : and =, as in an address.
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
# As a file of $fpath this is the function itself, at its first call.
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
    """What may stand in the place of the last word, after the others."""
    *before, last = words or [""]
    said, options, rest = in_order(before, COMMANDS)
    command = next((c for c in COMMANDS if list(c.words) == said), None)
    if command is not None:
        found = _arguments(command, [*options, *rest], last)
    elif rest:
        found = _values_of(rest[-1], SHARED) or []
    else:
        found = _next_words(said, options, last)
    return found if found == [FILES] else sorted({word for word in found if word.startswith(last)})


def _next_words(said: Sequence[str], options: Sequence[str], last: str) -> list[str]:
    depth = len(said)
    found = {c.words[depth] for c in COMMANDS if len(c.words) > depth and list(c.words[:depth]) == list(said)}
    shared = [name for each in SHARED for name in each.flags if name not in options] if last.startswith("-") else []
    return [*found, *shared, "--help", *([] if said or options else ["--version"])]


def _arguments(command: Command, before: Sequence[str], last: str) -> list[str]:
    known = arguments_of(command)
    options = {name: each for each in known for name in each.flags if not each.positional}
    values = _values_of(before[-1], known) if before else None
    if values is not None:
        return values
    if last.startswith("-"):
        return [*(name for name, each in options.items() if name not in before or _repeats(each)), "--help"]
    positional = [each for each in known if each.positional]
    said = [
        word
        for i, word in enumerate(before)
        if not word.startswith("-") and not (i and _values_of(before[i - 1], known) is not None)
    ]
    if len(said) < len(positional):
        return _values(positional[len(said)])
    return [*(name for name in options if name not in before), "--help"]


def _values_of(option: str, known: Sequence[Argument]) -> list[str] | None:
    """What may stand after an option; None where nothing belongs there."""
    asked = next((each for each in known if option in each.flags and not each.positional), None)
    return _values(asked) if asked is not None and asked.takes_value else None


def _repeats(each: Argument) -> bool:
    return each.options.get("action") == "append"


def _values(each: Argument) -> list[str]:
    if "choices" in each.options:
        return list(each.options["choices"])
    return [FILES] if "FILE" in each.options.get("metavar", "") or each.options.get("metavar") == "LOG" else []
