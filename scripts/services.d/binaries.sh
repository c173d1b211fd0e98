# Services from binaries on this machine, installed first where that is possible.
#
# A component NAME provides the functions, of which a tool has the first three:
#   NAME_lacks      prints what is missing to run it here, nothing if all is there
#   NAME_packages   prints the Debian packages that would provide it
#   NAME_version    prints its version
#   NAME_serve      prepares the data folder and execs the server
#   NAME_ready      succeeds once the server answers
#   NAME_address    prints VARIABLE=VALUE for the tests

start_deadline=90

can_install() { is_root && have apt-get; }

# binaries_start NAME...
binaries_start() {
    local name waiting=()
    for name; do
        missing[$name]=$("${name}_lacks")
        if [[ -n ${missing[$name]} ]]; then continue; fi
        origin[$name]=${origin[$name]:-binaries}
        version[$name]=$("${name}_version")
        if [[ $name == rabbitmq ]]; then launch epmd rabbitmq_serve_epmd; fi
        launch "$name" "${name}_serve"
        waiting+=("$name")
    done
    [[ -n ${server[watchdog]:-} ]] || launch watchdog watch_over
    wait_ready "${waiting[@]}"
}

# install_missing NAME...: one run at a time installs; the next one finds everything there.
install_missing() {
    local name folder
    if can_install && [[ -n $(all_lacking "$@") ]]; then
        folder=$(private_folder)
        exec {install_lock}>>"$folder/install"
        if have flock; then flock "$install_lock"; fi
        install_packages $(all_lacking "$@")
        exec {install_lock}>&-
    fi
    for name; do
        if [[ $name == kafka ]]; then kafka_fetch; else chosen_fetch "$name"; fi
    done
}

# all_lacking NAME...
all_lacking() {
    local name
    for name; do
        if [[ -n $("${name}_lacks") ]]; then echo "$name"; fi
    done
}

# install_packages NAME...: a failure only leaves the components missing.
install_packages() {
    local name packages=() policy=/usr/sbin/policy-rc.d
    for name; do packages+=($("${name}_packages")); done
    ((${#packages[@]} > 0)) || return 0
    say "installing ${packages[*]}"
    keep_daemons_from_starting
    # Lists that cannot be updated may still do.
    if (
        export DEBIAN_FRONTEND=noninteractive
        apt-get -q update
        apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "${packages[@]}"
    ) >"$temp/apt.log" 2>&1 </dev/null; then
        for name; do origin[$name]=apt; done
    else
        say "installing failed:"
        tail -n 15 "$temp/apt.log" >&2
    fi
    restore_policy
}

# Debian starts a daemon right after installing it unless this file says 101. One
# that exists is kept: whoever put it there already decided.
keep_daemons_from_starting() {
    policy_written=
    if [[ ! -e $policy ]]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
        policy_written=$policy
    fi
}

restore_policy() {
    if [[ -n ${policy_written:-} ]]; then rm -f "$policy_written"; fi
    policy_written=
}

wait_ready() {
    local deadline=$((SECONDS + start_deadline)) waiting=("$@") still name
    while ((${#waiting[@]} > 0)); do
        still=()
        for name in "${waiting[@]}"; do
            if ! alive "${server[$name]}"; then
                give_up "$name" "ended while starting"
            elif "${name}_ready" >/dev/null 2>&1; then
                state[$name]=real
            elif ((SECONDS >= deadline)); then
                give_up "$name" "not ready after ${start_deadline} s"
            else
                still+=("$name")
            fi
        done
        waiting=("${still[@]}")
        if ((${#waiting[@]} > 0)); then sleep 0.2; fi
    done
}

give_up() {
    missing[$1]=$2
    say "$1 $2; the end of its log:"
    tail -n 20 "$temp/$1.log" >&2
}
