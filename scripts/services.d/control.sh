# Stopping and starting a service while the command runs. The command asks with
# `scripts/services stop NAME`, which leaves a request in the temporary folder and
# sends a signal; the script that runs the command obeys, since the servers are its
# children. It never waits for a server, so several can be asked for at a time: who
# asks waits, and asks whether it is done. The data stays.

control= # the folder of requests and answers

control_open() {
    control=$temp/control
    mkdir "$control"
    chmod 700 "$control"
    export POSTBOX_SERVICES_CONTROL="$$ $control"
    trap 'obey || true' USR1 # nothing that goes wrong in it ends the run
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
    printf '%s\n' "$*" >"$folder/new.$BASHPID"
    mv "$folder/new.$BASHPID" "$folder/request.$BASHPID"
    kill -USR1 "$runner"
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

# The handler of the signal. A signal that comes meanwhile begins it anew inside of
# itself, so a request belongs to whoever moves it away.
obey() {
    local request id words answer
    for request in "$control"/request.*; do
        id=${request##*.}
        mv "$request" "$control/taken.$id" || continue
        read -r -a words <"$control/taken.$id"
        rm -f "$control/taken.$id"
        answer=$(refuses "${words[@]}")
        if [[ -z $answer ]]; then
            answer=done
            "obey_${words[0]}" "${words[@]:1}" || answer="not yet"
        fi
        echo "$answer" >"$control/new.$id"
        mv "$control/new.$id" "$control/answer.$id"
    done
} >>"$temp/control.log" 2>&1 # bash would tell the command's terminal who was killed

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
