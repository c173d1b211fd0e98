# Small helpers: messages, the temporary folder, ports, system users.

# Messages go to stderr: stdout belongs to the command that is run.
say() { printf 'services: %s\n' "$*" >&2; }

have() { command -v "$1" >/dev/null 2>&1; }

# memory_folder prints a folder that is in memory, if the caller asks for one and there is enough of it. Tests make thousands of tables: most of
# the time for these went into files of the disk. What a server has written outlives its own end there, too.
memory_folder() {
    local least=$((6 << 20)) free # KiB
    [[ ${POSTBOX_SERVICES_IN:-} == memory && -d /dev/shm && -w /dev/shm ]] || return
    free=$(df -Pk /dev/shm | awk 'END { print $4 }')
    [[ $(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo) -ge $((2 * least)) && $free -ge $least ]] && echo /dev/shm
}

# Other users' servers must be able to pass through the folder to their own part. Some systems give root a folder for temporary files that is
# closed to them. COMMAND gets the same one, since its tests start servers, too.
make_temp_folder() {
    local within
    if is_root && have setpriv && ! setpriv --reuid=65534 --regid=65534 --clear-groups test -w "${TMPDIR:-/tmp}"; then export TMPDIR=/tmp; fi # 65534: nobody
    within=$(memory_folder) || within=${TMPDIR:-/tmp}
    temp=$(mktemp -d "$within/postbox-services.XXXXXX")
    chmod 711 "$temp"
}

# private_folder prints the folder of the locks that the runs of this user share. Another user who was there first could
# have put links into it.
private_folder() {
    local folder="${TMPDIR:-/tmp}/postbox-locks-$(id -u)"
    mkdir -m 700 "$folder" 2>/dev/null || true
    if [[ -L $folder || ! -d $folder || ! -O $folder ]]; then
        say "$folder is not a folder of this user: remove it, or set TMPDIR"
        return 1
    fi
    echo "$folder"
}

# Each run takes a block of ten ports below the range the kernel hands out to
# clients. A lock held until this script ends keeps two runs from the same block.
reserve_ports() {
    local folder attempt base
    folder=$(private_folder) || return
    for attempt in {1..200}; do
        base=$((20000 + RANDOM % 1200 * 10))
        if have flock; then
            exec {ports_lock}>>"$folder/port-$base"
            flock -n "$ports_lock" || { exec {ports_lock}>&-; continue; }
        fi
        if block_is_free "$base"; then
            port=([postgres]=$base [mariadb]=$((base + 1)) [rabbitmq]=$((base + 2)) [kafka]=$((base + 3))
                [rabbitmq_dist]=$((base + 4)) [epmd]=$((base + 5)) [kafka_controller]=$((base + 6)) [pgbouncer]=$((base + 7)) [postgres_log]=$((base + 8)) [mysql]=$((base + 9)))
            return
        fi
    done
    say "no free block of ports found"
    return 1
}

block_is_free() {
    local p
    for p in $(seq "$1" $(($1 + 9))); do
        if port_answers "$p"; then return 1; fi
    done
}

port_answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# The password of all servers of this run: their ports are open to each user of the machine.
make_secret() { secret=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n'); }

is_root() { [[ $(id -u) == 0 ]]; }

# as_user USER COMMAND...: as USER where we are root, else as ourselves.
as_user() {
    local user=$1
    shift
    if is_root; then
        exec setpriv --reuid="$user" --regid="$user" --init-groups "$@"
    fi
    exec "$@"
}

# own USER FOLDER makes a folder private to the user that will run the server. It is called when the folder is made, and
# never again: a change of owner at a restart would change times of the server's files, which on MariaDB is what another
# server looks like.
own() {
    chmod 700 "$2"
    if is_root; then chown -R "$1:$1" "$2"; fi
}

# lacks_user USER: why servers cannot run as USER, nothing if they can.
lacks_user() {
    if ! is_root; then return; fi
    if ! id "$1" >/dev/null 2>&1; then
        echo "no system user $1"
    elif ! have setpriv; then
        echo "no setpriv"
    fi
}

# with_deadline SECONDS COMMAND...: COMMAND, stopped after SECONDS where possible.
with_deadline() {
    local seconds=$1
    shift
    if have timeout; then timeout "$seconds" "$@"; else "$@"; fi
}
