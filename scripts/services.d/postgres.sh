# PostgreSQL: fsync stays on, since the tests are about durability. postgres_log is a second server, for the tests of
# log tailing. Each of their readers decodes the log of the whole server, and each begins when the transactions that were
# open in it have ended. So on the server of the other tests they would cost much, and wait for long.

postgres_bin() {
    local newest
    if [[ -n $(chosen postgres) ]]; then
        echo "$(chosen_home postgres)/bin"
        return
    fi
    newest=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
    if [[ -n $newest && -x $newest/initdb && -x $newest/postgres ]]; then
        echo "$newest"
    elif have initdb && have postgres; then
        dirname "$(command -v initdb)"
    fi
}

postgres_lacks() {
    local lacking
    if [[ -n $(chosen postgres) ]]; then
        lacking=$(chosen_lacks postgres)
    elif [[ -z $(postgres_bin) ]]; then
        lacking="no initdb and postgres binaries"
    fi
    if [[ -n ${lacking:-} ]]; then echo "$lacking"; else lacks_user postgres; fi
}

# Debian's package makes the user postgres.
postgres_packages() {
    if [[ -n $(chosen postgres) ]]; then chosen_packages; fi
    if [[ -z $(chosen postgres) || -n $(lacks_user postgres) ]]; then echo postgresql; fi
}

# The jar holds an archive that is compressed with xz.
postgres_arrange() { mkdir "$1/home" && tar -xJf "$1"/*.txz -C "$1/home"; }

# It is the same program.
postgres_log_lacks() { postgres_lacks; }

postgres_log_packages() { postgres_packages; }

postgres_log_arrange() { postgres_arrange "$@"; }

postgres_log_version() { postgres_version; }

postgres_version() { "$(postgres_bin)/postgres" --version | awk '{ print $3 }'; }

postgres_serve() { serve_postgres postgres; }

postgres_log_serve() { serve_postgres postgres_log -c wal_level=logical -c max_replication_slots=100 -c max_wal_senders=100 -c max_prepared_transactions=20; }

# serve_postgres COMPONENT [OPTION...]
serve_postgres() {
    local bin name=$1 data="$temp/$1" setting locale=(--locale=C)
    shift
    bin=$(postgres_bin)
    if [[ ! -d $data ]]; then
        if [[ $settings != usual && $settings != stock ]]; then locale=(--locale=C.UTF-8 --locale-provider=icu --icu-locale=en-US); fi
        mkdir "$data"
        echo "$secret" >"$data/password"
        own postgres "$data"
        (cd "$data" && as_user postgres "$bin/initdb" -D "$data/data" --username=postgres --pwfile="$data/password" \
            --auth-local=trust --auth-host=scram-sha-256 --encoding=UTF8 "${locale[@]}")
    fi
    cd "$data"
    while IFS= read -r setting; do set -- "$@" -c "$setting"; done < <(settings_of postgres)
    as_user postgres "$bin/postgres" -D "$data/data" -p "${port[$name]}" \
        -c listen_addresses=127.0.0.1 -c unix_socket_directories="$data" -c max_connections=600 "$@"
}

# As pg_ctl does it: the first line is the process, the eighth its state. Maven's binaries have no pg_isready.
postgres_ready() { is_ready_postgres postgres; }

postgres_log_ready() { is_ready_postgres postgres_log; }

is_ready_postgres() {
    local lines
    mapfile -t lines <"$temp/$1/data/postmaster.pid" &&
        [[ ${lines[0]:-} == "${server[$1]}" && ${lines[7]:-} == ready* ]]
}

postgres_log_address() { echo "TEST_POSTGRES_LOG_DSN=postgres://postgres:$secret@127.0.0.1:${port[postgres_log]}/postgres?sslmode=disable"; }

postgres_address() { echo "TEST_POSTGRES_DSN=postgres://postgres:$secret@127.0.0.1:${port[postgres]}/postgres?sslmode=disable"; }
