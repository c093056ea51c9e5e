"""The scripts that complete in each shell. They call `firn __complete`, which prints a word on each line."""

# Each calls the command as it is typed, which need not be on the PATH.
SCRIPTS = {
    "bash": """\
_firn() {
    local found word last glued= words=() files=
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
    COMPREPLY=()
    # What Bash replaces is only the part after the last : or =.
    last=${COMP_WORDS[COMP_CWORD]}
    case $last in [:=]) last= ;; esac
    glued=${words[${#words[@]}-1]%"$last"}
    while IFS= read -r word; do
        if [ "$word" = ":files" ]; then
            files=yes
        elif [ -n "$word" ]; then
            word=${word#"$glued"}
            # A name may contain anything.
            case $word in *[!A-Za-z0-9_.,:=/@%+-]*) printf -v word %q "$word" ;; esac
            COMPREPLY+=("$word")
        fi
    done <<< "$found"
    case $word in *[=.,]) compopt -o nospace 2>/dev/null ;; esac
    if [ -n "$files" ] && [ ${#COMPREPLY[@]} -eq 0 ]; then
        compopt -o default 2>/dev/null
    elif [ -n "$files" ]; then
        compopt -o filenames 2>/dev/null
        while IFS= read -r word; do
            COMPREPLY+=("$word")
        done < <(compgen -f -- "$last")
    fi
}
complete -F _firn firn
""",
    "zsh": """\
#compdef firn
_firn() {
    local -a found
    local none=1
    found=("${(@f)$(${~words[1]} __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if (( ${found[(I):files]} )); then
        found=("${(@)found:#:files}")
        _files && none=0
    fi
    # What a value or another name follows ends with no space.
    compadd -S '' -- ${(M)found:#*[=.,]} && none=0
    compadd -- ${found:#*[=.,]} && none=0
    return none
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
    if contains -- ":files" $found
        __fish_complete_path (commandline -ct)
    end
    string match -v -- ":files" $found
end
complete -c firn -f -a '(__firn_complete)'
""",
}
