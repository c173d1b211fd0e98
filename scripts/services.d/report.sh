# What the command gets to know: addresses, and which services are real.

export_addresses() {
    local name
    unset TEST_POSTGRES_BIN TEST_POSTGRES_DSN TEST_POSTGRES_LOG_DSN TEST_PGBOUNCER_DSN TEST_MYSQL_DSN TEST_AMQP_URI TEST_KAFKA_BROKERS
    for name in "${components[@]}"; do
        if [[ -n ${state[$name]:-} ]]; then export "$("${name}_address")"; fi
    done
    # Tests that start clusters of their own use these settings and that version, too.
    TEST_POSTGRES_SETTINGS=$(settings_of postgres)
    export TEST_POSTGRES_SETTINGS
    if [[ -n $(chosen postgres) && -d $(chosen_home postgres)/bin ]]; then export TEST_POSTGRES_BIN="$(chosen_home postgres)/bin"; fi
}

report() {
    local name summary=() kind
    for name in "${components[@]}" "${tools[@]}"; do
        if [[ -n ${state[$name]:-} ]]; then
            kind=real
            if [[ ${origin[$name]} == kfake ]]; then kind=fake; fi
            summary+=("$name=$kind(${origin[$name]})")
            say "$(printf '%-12s %-8s %-10s %-18s %s' "$name" "$kind" "${origin[$name]}" "${version[$name]}" "${port[$name]:+port ${port[$name]}}")"
        else
            summary+=("$name=missing")
            say "$name: MISSING (${missing[$name]})"
        fi
    done
    say "ready after $SECONDS s"
    export POSTBOX_SERVICES="${summary[*]}"
    if [[ -n ${POSTBOX_SERVICES_REPORT:-} ]]; then
        printf '%s\n' "${summary[@]}" >"$POSTBOX_SERVICES_REPORT"
    fi
}
