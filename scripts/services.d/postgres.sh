# PostgreSQL: fsync stays on, since the tests are about durability. wal_level=logical is for the tests of log tailing,
# each of which has a slot and a process of its own that sends the log.

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

postgres_version() { "$(postgres_bin)/postgres" --version | awk '{ print $3 }'; }

postgres_serve() {
    local bin data="$temp/postgres"
    bin=$(postgres_bin)
    own postgres "$data"
    cd "$data"
    [[ -d $data/data ]] || (as_user postgres "$bin/initdb" -D "$data/data" --username=postgres --auth=trust --encoding=UTF8 --locale=C)
    as_user postgres "$bin/postgres" -D "$data/data" -p "${port[postgres]}" \
        -c listen_addresses=127.0.0.1 -c unix_socket_directories="$data" -c max_connections=600 \
        -c wal_level=logical -c max_replication_slots=100 -c max_wal_senders=100
}

# As pg_ctl does it: the first line is the process, the eighth its state. Maven's binaries have no pg_isready.
postgres_ready() {
    local lines
    mapfile -t lines <"$temp/postgres/data/postmaster.pid" &&
        [[ ${lines[0]:-} == "${server[postgres]}" && ${lines[7]:-} == ready* ]]
}

postgres_address() { echo "TEST_POSTGRES_DSN=postgres://postgres@127.0.0.1:${port[postgres]}/postgres?sslmode=disable"; }
