#!/usr/bin/env bash
# PostgreSQL and its clients under `gtp run`: postgresql.sh DIRECTORY PORT GTP. As root it makes itself
# another user, since the server does not run as root, with a pump and a copy of the programs of its own.
set -euo pipefail
dir=$1 port=$2 gtp=$3

if [ "$(id -u)" = 0 ]; then
    user=$(id -un postgres)
    home=$(mktemp -d /tmp/gtp-postgresql-XXXXXX)
    trap 'rm -rf "$home"' EXIT
    cp "$gtp" "$GTP_PRELOAD" "$0" "$home"
    chown -R "$user" "$home"
    export HOME=$home GTP_CONFIG_DIR=$home/config GTP_PUMP=$home/pump.sock
    export GTP_PRELOAD=$home/libgtp_preload.so
    cd "$home"
    setpriv --reuid "$user" --regid "$user" --clear-groups \
        bash "$home/postgresql.sh" "$home/db" "$port" "$home/gtp"
    exit
fi

bin=$(pg_config --bindir 2>/dev/null || ls -d /usr/lib/postgresql/*/bin | tail -n 1)
under() { "$gtp" run --require -- "$bin/$1" "${@:2}"; }
at=(-h 127.0.0.1 -p "$port" -U owner)

"$bin/initdb" -D "$dir" -A trust -U owner >/dev/null
printf "listen_addresses='127.0.0.1'\nport=%s\nunix_socket_directories=''\nfsync=off\n" "$port" \
    >>"$dir/postgresql.conf"
under postgres -D "$dir" 2>"$dir.log" &
trap '"$bin/pg_ctl" -D "$dir" -m fast stop >/dev/null' EXIT
tries=0
until under psql "${at[@]}" -c 'select 1' postgres >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ "$tries" -lt 300 ] || { cat "$dir.log" >&2; exit 1; }
done

under psql "${at[@]}" -qAt postgres \
    -c 'create table words as select n, md5(n::text) word from generate_series(1, 20000) n' \
    -c 'select count(*), sum(length(word)) from words'
under pgbench "${at[@]}" -i -q postgres >/dev/null 2>&1
under pgbench "${at[@]}" -c 8 -j 2 -t 50 postgres 2>/dev/null |
    sed -n 's/.*failed transactions: \([0-9]*\).*/failed \1/p'
echo "dumped $(under pg_dump "${at[@]}" -a -t words postgres | grep -cP '^\d+\t')"
# A cancelled question is a second connection to the server, to where the first one leads.
if said=$(PGOPTIONS= timeout -s INT 5 "$gtp" run --require -- "$bin/psql" "${at[@]}" \
    -c 'select pg_sleep(60)' postgres 2>&1); then
    exit 1
fi
case "$said" in *"due to user request"*) echo cancelled ;; *) echo "$said" ;; esac
