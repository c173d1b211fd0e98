# Services from Docker Compose, on loopback ports chosen here.

compose_reason=
compose_running=

compose() { docker compose -p "postbox-$$" -f "$here/compose.yml" "$@"; }

compose_usable() {
    if [[ ${POSTBOX_SERVICES_FROM:-} == binaries ]]; then
        compose_reason="POSTBOX_SERVICES_FROM=binaries"
    elif [[ -n $(chosen postgres)$(chosen mariadb)$(chosen mysql) ]]; then
        compose_reason="a version is chosen, which comes from Maven Central"
    elif [[ $settings != usual ]]; then
        compose_reason="POSTBOX_SERVICES_SETTINGS=$settings, which are options of binaries"
    elif ! have docker; then
        compose_reason="no docker command"
    elif ! with_deadline 10 docker info >/dev/null 2>&1; then
        compose_reason="no daemon answers"
    elif ! docker compose version >/dev/null 2>&1; then
        compose_reason="no compose plugin"
    else
        return 0
    fi
    return 1
}

# PgBouncer is no container: from the machine it reaches PostgreSQL as the tests do.
compose_start() {
    local name containers=()
    for name in "${components[@]}"; do
        if [[ $name != pgbouncer ]]; then containers+=("$name"); fi
    done
    export POSTBOX_SERVICES_PASSWORD=$secret
    export POSTBOX_POSTGRES_PORT=${port[postgres]} POSTBOX_POSTGRES_LOG_PORT=${port[postgres_log]} POSTBOX_MARIADB_PORT=${port[mariadb]}
    export POSTBOX_RABBITMQ_PORT=${port[rabbitmq]} POSTBOX_KAFKA_PORT=${port[kafka]}
    compose_running=yes
    launch watchdog watch_over
    if ! compose up --detach --wait --wait-timeout 300 "${containers[@]}" \
        >"$temp/compose.log" 2>&1 </dev/null; then
        say "Docker Compose could not start the services; the end of its log:"
        tail -n 15 "$temp/compose.log" >&2
        compose_stop
        return 1
    fi
    for name in "${containers[@]}"; do
        state[$name]=real
        origin[$name]=compose
        version[$name]=$(compose images --format '{{.Tag}}' "$name" 2>/dev/null | head -n 1 || true)
    done
    if ((${#containers[@]} < ${#components[@]})); then binaries_start pgbouncer; fi
}

in_compose() { [[ -n $compose_running && ${origin[$1]:-} == compose ]]; }

compose_halt() {
    local signal=KILL
    if [[ $1 == postgres* ]]; then signal=QUIT; fi
    if [[ $2 == immediate ]]; then compose kill --signal "$signal" "$1"; else compose stop --timeout 30 "$1"; fi
} >/dev/null 2>&1

# What was stopped goes on in its container, with its data.
compose_resume() { compose up --detach --wait --wait-timeout 90 "$1" >/dev/null 2>&1 </dev/null; }

compose_stop() {
    if [[ -z $compose_running ]]; then return 0; fi
    compose_running=
    compose down --volumes --timeout 1 >/dev/null 2>&1 || say "docker compose down did not succeed"
}
