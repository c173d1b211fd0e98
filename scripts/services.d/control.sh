# Stopping and starting a service while the command runs. The command asks with
# `scripts/services stop NAME`, which writes a line to a named pipe; the script that
# runs the command reads it and obeys, since the servers are its children. It never
# waits for a server, so several can be asked for at a time: who asks waits, and asks
# whether it is done. The data stays.
#
# A pipe and no signal: bash runs a trap also while it parses a command substitution,
# and then takes the text of the trap for a part of that.

control=  # the folder of the pipe and of answers
requests= # the descriptor of the pipe

control_open() {
    control=$temp/control
    mkdir "$control"
    chmod 700 "$control"
    mkfifo "$control/requests"
    exec {requests}<>"$control/requests"
    export POSTBOX_SERVICES_CONTROL="$$ $control"
}

# control_stop NAME [HOW] and control_start NAME: what the command calls, in a process
# of its own.
control_stop() { ask stop "$1" "${2:-fast}" && ask_until 40 stopped "$1"; }

control_start() { ask start "$1" && ask_until "$start_deadline" started "$1"; }

# ask_until SECONDS QUESTION NAME
ask_until() {
    local deadline=$((SECONDS + $1)) answer
    shift
    until answer=$(ask "$@" 2>&1); do
        if ((SECONDS >= deadline)); then
            say "${answer#services: }"
            return 1
        fi
        sleep 0.1
    done
}

# ask WORD...: has the script that runs the command obey, and fails with its reason.
ask() {
    local runner folder answer
    read -r runner folder <<<"${POSTBOX_SERVICES_CONTROL:-}"
    if [[ -z $runner || ! -d $folder ]]; then
        say "nothing to $1: this is for a command that scripts/services run has started"
        return 1
    fi
    printf '%s %s\n' "$BASHPID" "$*" 1<>"$folder/requests" # it opens also when nobody reads any more
    until [[ -e $folder/answer.$BASHPID ]]; do
        kill -0 "$runner" 2>/dev/null || { say "the script that runs the services has ended"; return 1; }
        sleep 0.05
    done
    answer=$(<"$folder/answer.$BASHPID")
    rm -f "$folder/answer.$BASHPID"
    if [[ $answer != done ]]; then
        say "$*: $answer"
        return 1
    fi
}

# obey ID VERB NAME [HOW]
obey() {
    local id=$1 answer
    shift
    answer=$(refuses "$@")
    if [[ -z $answer ]]; then
        answer=done
        "obey_$1" "${@:2}" || answer="not yet"
    fi
    echo "$answer" >"$control/new.$id"
    mv "$control/new.$id" "$control/answer.$id"
}

# refuses VERB NAME [HOW]: why it cannot be done, nothing if it can.
refuses() {
    if [[ " ${components[*]} " != *" ${2:-} "* || -z ${origin[$2]:-} ]]; then
        echo "no service of this name runs here"
    elif [[ ${3:-fast} != fast && ${3:-} != immediate ]]; then
        echo "neither fast nor immediate"
    fi
}

# obey_stop NAME HOW: immediate is a crash, fast shuts down in order.
obey_stop() {
    if in_compose "$1"; then
        compose_halt "$@"
    elif alive "${server[$1]}"; then
        if [[ $2 == immediate ]]; then end_group "$1"; else end_in_order "$1"; fi
    fi
}

obey_stopped() {
    ! in_compose "$1" || return 0
    if alive "${server[$1]}"; then return 1; fi
    rm -f "$temp/$1.pid"
}

obey_start() {
    if in_compose "$1"; then
        compose_resume "$1"
    elif ! alive "${server[$1]}"; then
        : >"$temp/$1.log" # what the last one said would tell that this one is ready
        launch "$1" "${1}_serve"
    fi
}

obey_started() {
    ! in_compose "$1" || return 0
    alive "${server[$1]}" && "${1}_ready"
}
