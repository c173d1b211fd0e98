# Starting, watching and stopping processes. Only what was started here is ever
# ended: each server is the leader of a process group whose id is recorded.

declare -A server=() # label -> pid, which is also its process group
command_pid=

# launch LABEL FUNCTION: runs FUNCTION, which ends by exec-ing the server, in a
# process group of its own, so that Ctrl-C at the terminal does not reach it.
launch() {
    set -m
    ("$2") >"$temp/$1.log" 2>&1 </dev/null &
    server[$1]=$!
    echo $! >"$temp/$1.pid" # for the watchdog, which would not know of a later start
    set +m
}

# A process that ended on its own leaves the list of running jobs, so its pid,
# which another process may have by now, is never signalled. A job that ended just
# when a signal came may stay in the list, hence the second question.
alive() {
    local running
    kill -0 "$1" 2>/dev/null || return 1
    running=$(jobs -rp)
    [[ $'\n'$running$'\n' == *$'\n'$1$'\n'* ]]
}

# The data is thrown away, so nobody waits for an orderly shutdown. PostgreSQL
# still gets SIGQUIT: killed outright it would leave its shared memory behind.
stop_servers() {
    local label
    for label in "${!server[@]}"; do
        if alive "${server[$label]}"; then end_group "$label"; fi
    done
    for label in "${!server[@]}"; do
        wait_gone "${server[$label]}" 5 || kill -KILL -- "-${server[$label]}" || true
        wait "${server[$label]}" || true
    done
} 2>/dev/null

end_group() {
    local signal=KILL
    if [[ $1 == postgres* ]]; then signal=QUIT; fi
    kill -"$signal" -- "-${server[$1]}" || true
}

# PostgreSQL's children take the signal for something else.
end_in_order() {
    if [[ $1 == postgres* ]]; then
        kill -INT "${server[$1]}" || true
    else
        kill -TERM -- "-${server[$1]}" || true
    fi
}

# Runs beside the servers and does the cleaning up if this script is killed outright.
watch_over() {
    while kill -0 $$; do sleep 1; done
    local label file
    for file in "$temp"/*.pid; do
        label=$(basename "$file" .pid)
        if [[ $label == watchdog ]]; then continue; fi
        server[$label]=$(<"$file")
        end_group "$label"
    done
    compose_stop
    sleep 1
    remove_temp_folder
}

# wait_gone PID SECONDS
wait_gone() {
    local deadline=$((SECONDS + $2))
    while alive "$1"; do
        ((SECONDS < deadline)) || return 1
        sleep 0.1
    done
}

# The command runs in the background of this script, with the terminal's stdin and
# in its process group, so that a signal to this script alone is handled at once.
# Meanwhile this script obeys the command, which also says when it has ended: see control.sh.
run_command() {
    local status=0 request
    (
        "$@" {requests}>&- || status=$?
        echo ended >&"$requests"
        exit "$status"
    ) <&0 &
    command_pid=$!
    # No -t: its time goes on in the trap of a signal that ends the read, and then bash crashes.
    while read -r -u "$requests" request && [[ $request != ended ]]; do
        obey $request || true # nothing that goes wrong in it ends the run
    done >>"$temp/control.log" 2>&1 # bash would tell the command's terminal who was killed
    wait "$command_pid" 2>/dev/null || status=$?
    command_pid=
    return "$status"
}

# The children go first: a `go test` that dies leaves its test binaries running.
stop_command() {
    if [[ -z $command_pid ]] || ! alive "$command_pid"; then return 0; fi
    local pids
    mapfile -t pids < <(descendants "$command_pid")
    kill -TERM "${pids[@]}" "$command_pid" || true
    if wait_gone "$command_pid" 10; then return 0; fi
    mapfile -t pids < <(descendants "$command_pid")
    kill -KILL "${pids[@]}" "$command_pid" || true
} 2>/dev/null

descendants() {
    local child
    for child in $(ps -A -o pid= -o ppid= | awk -v parent="$1" '$2 == parent { print $1 }'); do
        descendants "$child"
        echo "$child"
    done
}

cleanup() {
    local status=$?
    trap '' INT TERM HUP
    trap - EXIT
    set +e
    stop_command
    stop_servers
    compose_stop
    restore_policy
    if [[ -n ${temp:-} ]]; then remove_temp_folder; fi
    exit "$status"
}

# A dying server may still write for a moment, hence the second attempt.
remove_temp_folder() {
    rm -rf "$temp" 2>/dev/null || { sleep 0.5; rm -rf "$temp"; }
}
