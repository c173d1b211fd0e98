# Stopping and starting a service while the command runs. The command asks with
# `scripts/services stop NAME`, which leaves a request in the temporary folder and
# sends a signal; the script that runs the command obeys, since the servers are its
# children. The data stays.

control= # the folder of requests and answers
obeyed=  # a signal to obey has interrupted whatever waited

control_open() {
    control=$temp/control
    mkdir "$control"
    chmod 700 "$control"
    export POSTBOX_SERVICES_CONTROL="$$ $control"
    trap obey USR1
}

# control_request VERB NAME [HOW]: what the command calls, in a process of its own.
control_request() {
    local folder runner answer
    read -r runner folder <<<"${POSTBOX_SERVICES_CONTROL:-}"
    if [[ -z $runner || ! -d $folder ]]; then
        say "nothing to $1: this is for a command that scripts/services run has started"
        return 1
    fi
    printf '%s\n' "$*" >"$folder/new.$$"
    mv "$folder/new.$$" "$folder/request.$$"
    kill -USR1 "$runner"
    until [[ -e $folder/answer.$$ ]]; do
        kill -0 "$runner" 2>/dev/null || { say "the script that runs the services has ended"; return 1; }
        sleep 0.05
    done
    answer=$(<"$folder/answer.$$")
    rm -f "$folder/answer.$$"
    if [[ $answer != done ]]; then
        say "$*: $answer"
        return 1
    fi
}

# The handler of the signal. Requests that come meanwhile signal again.
obey() {
    local request id words answer
    obeyed=yes
    for request in "$control"/request.*; do
        [[ -e $request ]] || continue
        id=${request##*.}
        read -r -a words <"$request"
        rm -f "$request"
        answer=$(refuses "${words[@]}")
        if [[ -z $answer ]]; then
            answer=done
            "control_${words[0]}" "${words[@]:1}" || answer="did not succeed"
        fi
        echo "$answer" >"$control/new.$id"
        mv "$control/new.$id" "$control/answer.$id"
    done
}

# refuses VERB NAME [HOW]: why it cannot be done, nothing if it can.
refuses() {
    if [[ " ${components[*]} " != *" ${2:-} "* || -z ${origin[$2]:-} ]]; then
        echo "no service of this name runs here"
    elif [[ ${3:-fast} != fast && ${3:-} != immediate ]]; then
        echo "neither fast nor immediate"
    fi
}

# control_stop NAME [fast|immediate]: immediate is a crash, fast ends connections
# and shuts down in order.
control_stop() {
    local name=$1 how=${2:-fast}
    if [[ -n $compose_running ]]; then
        compose_halt "$name" "$how"
        return
    fi
    if ! alive "${server[$name]}"; then return 0; fi
    if [[ $how == immediate ]]; then end_group "$name"; else end_in_order "$name"; fi
    wait_gone "${server[$name]}" 30 || kill -KILL -- "-${server[$name]}" || true
    wait "${server[$name]}" || true
    rm -f "$temp/$name.pid"
} >>"$temp/control.log" 2>&1

# control_start NAME returns when the service answers.
control_start() {
    local name=$1
    if [[ -n $compose_running ]]; then
        compose_resume "$name"
        return
    fi
    if alive "${server[$name]}"; then return 0; fi
    : >"$temp/$name.log" # what the last one said would tell that this one is ready
    state[$name]=
    launch "$name" "${name}_serve"
    wait_ready "$name"
    [[ -n ${state[$name]} ]]
}
