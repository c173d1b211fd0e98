# PostgreSQL: fsync stays on, since the tests are about durability.

postgres_bin() {
    local newest
    newest=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
    if [[ -n $newest && -x $newest/initdb && -x $newest/postgres ]]; then
        echo "$newest"
    elif have initdb && have postgres; then
        dirname "$(command -v initdb)"
    fi
}

postgres_lacks() {
    if [[ -z $(postgres_bin) ]]; then
        echo "no initdb and postgres binaries"
    else
        lacks_user postgres
    fi
}

postgres_packages() { echo postgresql pgbouncer; }

postgres_version() { "$(postgres_bin)/postgres" --version | awk '{ print $3 }'; }

postgres_serve() {
    local bin data="$temp/postgres"
    bin=$(postgres_bin)
    own postgres "$data"
    cd "$data"
    [[ -d $data/data ]] || (as_user postgres "$bin/initdb" -D "$data/data" --username=postgres --auth=trust --encoding=UTF8 --locale=C)
    as_user postgres "$bin/postgres" -D "$data/data" -p "${port[postgres]}" \
        -c listen_addresses=127.0.0.1 -c unix_socket_directories="$data" -c max_connections=200
}

postgres_ready() { "$(postgres_bin)/pg_isready" -q -h 127.0.0.1 -p "${port[postgres]}" -U postgres; }

postgres_address() { echo "TEST_POSTGRES_DSN=postgres://postgres@127.0.0.1:${port[postgres]}/postgres?sslmode=disable"; }
