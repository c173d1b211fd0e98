# PgBouncer in transaction mode, before PostgreSQL. It has few connections to the server, so
# a client's next transaction is mostly on another one.

pgbouncer_lacks() {
    if [[ " ${components[*]} " != *" postgres "* ]]; then
        echo "no PostgreSQL to stand before"
    elif ! have pgbouncer; then
        echo "no pgbouncer"
    else
        lacks_user postgres
    fi
}

pgbouncer_packages() { echo pgbouncer; }

pgbouncer_version() { pgbouncer --version | awk '{ print $2; exit }'; }

# It refuses to run as root.
pgbouncer_serve() {
    local data="$temp/pgbouncer"
    if [[ ! -d $data ]]; then
        mkdir "$data"
        echo "\"postgres\" \"$secret\"" >"$data/users"
        cat >"$data/pgbouncer.ini" <<EOF
[databases]
* = host=127.0.0.1 port=${port[postgres]}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port[pgbouncer]}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = $data/users
pool_mode = transaction
default_pool_size = 6
max_client_conn = 500
EOF
        own postgres "$data"
    fi
    cd "$data"
    as_user postgres pgbouncer "$data/pgbouncer.ini"
}

pgbouncer_ready() { [[ ${state[postgres]:-} == real ]] && port_answers "${port[pgbouncer]}"; }

pgbouncer_address() { echo "TEST_PGBOUNCER_DSN=postgres://postgres:$secret@127.0.0.1:${port[pgbouncer]}/postgres?sslmode=disable"; }
