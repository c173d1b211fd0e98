# RabbitMQ with an epmd (Erlang's port mapper) of its own: the shared one would
# outlive the tests, and two runs would meet in it.

# Debian's wrapper in the PATH writes to /var/log, so the script behind it goes first.
rabbitmq_server() {
    if [[ -x /usr/lib/rabbitmq/bin/rabbitmq-server ]]; then
        echo /usr/lib/rabbitmq/bin/rabbitmq-server
    else
        command -v rabbitmq-server || true
    fi
}

rabbitmq_lacks() {
    if [[ -z $(rabbitmq_server) ]]; then
        echo "no rabbitmq-server"
    elif ! have epmd || ! have erl; then
        echo "no Erlang"
    else
        lacks_user rabbitmq
    fi
}

rabbitmq_packages() { echo rabbitmq-server; }

# `rabbitmqctl version` starts a virtual machine for two seconds; the path says it too.
rabbitmq_version() {
    local home
    home=$(ls -d /usr/lib/rabbitmq/lib/rabbitmq_server-* 2>/dev/null | tail -n 1)
    echo "${home##*rabbitmq_server-}"
}

rabbitmq_serve_epmd() {
    cd /
    as_user rabbitmq epmd -port "${port[epmd]}" -address 127.0.0.1
}

rabbitmq_serve() {
    local data="$temp/rabbitmq"
    if [[ ! -d $data ]]; then
        mkdir -p "$data/log"
        echo "[]." >"$data/enabled_plugins"
        cat >"$data/rabbitmq.conf" <<EOF
listeners.tcp.1 = 127.0.0.1:${port[rabbitmq]}
default_pass = $secret
EOF
        own rabbitmq "$data"
    fi
    cd "$data"
    export HOME=$data LANG=C.UTF-8
    export ERL_EPMD_PORT=${port[epmd]} ERL_EPMD_ADDRESS=127.0.0.1
    export RABBITMQ_NODENAME="postbox${port[rabbitmq]}@localhost"
    export RABBITMQ_DIST_PORT=${port[rabbitmq_dist]}
    export RABBITMQ_MNESIA_BASE=$data/mnesia RABBITMQ_LOG_BASE=$data/log
    export RABBITMQ_CONFIG_FILE=$data/rabbitmq RABBITMQ_ADVANCED_CONFIG_FILE=$data/none.config
    export RABBITMQ_CONF_ENV_FILE=$data/none-env.conf RABBITMQ_ENABLED_PLUGINS_FILE=$data/enabled_plugins
    export RABBITMQ_PID_FILE=$data/pid
    export RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="-kernel inet_dist_use_interface {127,0,0,1}"
    wait_for_epmd
    as_user rabbitmq "$(rabbitmq_server)"
}

# Without it RabbitMQ would start an epmd itself, outside of our hands.
wait_for_epmd() {
    local deadline=$((SECONDS + 10))
    until port_answers "${port[epmd]}"; do
        ((SECONDS < deadline)) || { echo "epmd does not answer"; exit 1; }
        sleep 0.05
    done
}

# The listener opens last when RabbitMQ boots; one that greets back is ready. The
# reply to the protocol header, Connection.Start, begins with a byte 1.
rabbitmq_ready() {
    (
        exec 3<>"/dev/tcp/127.0.0.1/${port[rabbitmq]}"
        printf 'AMQP\0\0\011\001' >&3
        IFS= read -r -t 2 -n 1 -u 3 first
        [[ $first == $'\001' ]]
    )
}

rabbitmq_address() { echo "TEST_AMQP_URI=amqp://guest:$secret@127.0.0.1:${port[rabbitmq]}/"; }
