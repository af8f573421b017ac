# What is behind logins and in the files of hosts. The names of the last directory are kept for a
# minute.
(( $+functions[_gtp_with_hosts] )) ||
_gtp_with_hosts() {
    # The words may lack the verb here; the context has it.
    local verb=${${curcontext##*gtp-command-}%%:*} word=${(Q)PREFIX} ret=1
    local dir=${(M)word##*[:/]}
    local -a found ending others
    if [[ -z $dir || $_gtp_listing_of != "$verb $dir" ]] || (( SECONDS - _gtp_listing_at >= 60 )); then
        typeset -ga _gtp_listing=(${(f)"$(command gtp candidates -- $verb "${dir:-$word}" </dev/null 2>/dev/null)"})
        typeset -g _gtp_listing_of="$verb $dir" _gtp_listing_at=$SECONDS
    fi
    found=(${(M)_gtp_listing:#$word*})
    if (( $#found )); then
        # The names alone are shown.
        found=(${found#$dir})
        [[ -z $dir ]] || compset -P '*[:/]'
        ending=(${(M)found:#*[:/]}) others=(${found:#*[:/]})
        if (( $#ending )); then compadd -S '' -a ending; fi
        if (( $#others )); then compadd -a others; fi
        ret=0
    fi
    # Without a directory, paths of this machine may be meant as well.
    if [[ -z $dir || $ret != 0 ]]; then
        _files && ret=0
    fi
    return ret
}
