
# What bash's own words do not say: hosts, and what is behind their logins. The names of the last
# directory are kept for a minute.
_gtp_listing=() _gtp_listing_of='' _gtp_listing_at=0

# Reads the last word of a line: what it stands for, which quote is open, and its text since bash
# last saw a word begin, which is what bash replaces.
_gtp_read_word() {
    local line=$1 at char
    _gtp_word='' _gtp_quote='' _gtp_raw=''
    for ((at = 0; at < ${#line}; at++)); do
        char=${line:at:1}
        _gtp_raw+=$char
        if [[ $_gtp_quote && $char == "$_gtp_quote" ]]; then
            _gtp_quote=''
        elif [[ $_gtp_quote == "'" ]]; then
            _gtp_word+=$char
        elif [[ $char == \\ && ( ! $_gtp_quote || ${line:at + 1:1} == [\\\"\$\`] ) ]]; then
            ((++at))
            _gtp_word+=${line:at:1} _gtp_raw+=${line:at:1}
        elif [[ $_gtp_quote ]]; then
            _gtp_word+=$char
        elif [[ $char == [\'\"] ]]; then
            _gtp_quote=$char _gtp_raw=''
        elif [[ $char == [[:space:]\;\|\&\<\>\(] ]]; then
            _gtp_word='' _gtp_raw=''
        else
            _gtp_word+=$char
            [[ $COMP_WORDBREAKS != *"$char"* ]] || _gtp_raw=''
        fi
    done
}

# The line up to the cursor, which bash counts in bytes.
_gtp_read_line() {
    local LC_ALL=C
    _gtp_line=${COMP_LINE:0:COMP_POINT}
}

# Asks for what the word may become, unless it was asked within the last minute.
_gtp_ask() {
    local dir=${_gtp_word%"${_gtp_word##*[:/]}"} line
    [[ $dir && $_gtp_listing_of == "$1 $dir" ]] && ((SECONDS - _gtp_listing_at < 60)) && return
    _gtp_listing=() _gtp_listing_of="$1 $dir" _gtp_listing_at=$SECONDS
    while IFS= read -r line; do
        _gtp_listing+=("$line")
    done < <(command gtp candidates -- "$1" "${dir:-$_gtp_word}" </dev/null 2>/dev/null)
}

# The rest of a name as it is to be typed within the quote that is open.
_gtp_quoted() {
    local text=$1
    case $_gtp_quote in
        "'") text=${text//\'/\'\\\'\'} ;;
        '"') text=${text//\\/\\\\} text=${text//\"/\\\"} text=${text//\$/\\\$} text=${text//\`/\\\`} ;;
        *) [[ -z $text ]] || printf -v text %q "$text" ;;
    esac
    _gtp_text=$text
}

_gtp_with_hosts() {
    _gtp "$@"
    local verb=${COMP_WORDS[1]-} one found=()
    case $verb in
        cp | sync | get | put | ls | stream | doctor | ssh) ;;
        *) return ;;
    esac
    case ${3-} in
        VALUED) return ;;
    esac
    ((COMP_CWORD > 1)) || return
    _gtp_read_line
    _gtp_read_word "$_gtp_line"
    [[ $_gtp_word != -* ]] || return
    _gtp_ask "$verb"
    for one in "${_gtp_listing[@]}"; do
        [[ $one != "$_gtp_word"* ]] || found+=("$one")
    done
    ((${#found[@]})) || return
    # Paths of this machine that begin alike.
    while IFS= read -r one; do
        [[ ! -d $one ]] || one+=/
        found+=("$one")
    done < <(compgen -f -- "$_gtp_word")
    COMPREPLY=()
    for one in "${found[@]}"; do
        [[ $one != *[:/] ]] || compopt -o nospace
        _gtp_quoted "${one:${#_gtp_word}}"
        # Within double quotes bash takes ! for a word of its history, whatever stands before it.
        [[ $_gtp_quote != '"' || $_gtp_text != *!* ]] || continue
        COMPREPLY+=("$_gtp_raw$_gtp_text")
    done
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _gtp_with_hosts -o nosort -o bashdefault -o default gtp
else
    complete -F _gtp_with_hosts -o bashdefault -o default gtp
fi
