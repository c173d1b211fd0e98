# MariaDB, without the machine's configuration files.

mariadb_lacks() {
    local binary
    for binary in mariadbd mariadb-install-db mariadb-admin; do
        have "$binary" || { echo "no $binary"; return; }
    done
    lacks_user mysql
}

mariadb_packages() { echo mariadb-server; }

mariadb_version() { mariadbd --no-defaults --version | grep -o '[0-9][0-9.]*-MariaDB' | head -n 1; }

mariadb_serve() {
    local data="$temp/mariadb"
    own mysql "$data"
    cd "$data"
    [[ -d $data/data ]] || (as_user mysql mariadb-install-db --no-defaults --datadir="$data/data" --skip-test-db \
        --auth-root-authentication-method=normal) >"$temp/mariadb-install.log" 2>&1 ||
        { cat "$temp/mariadb-install.log"; exit 1; }
    cat >"$data/init.sql" <<'EOF'
CREATE USER IF NOT EXISTS 'postbox'@'%' IDENTIFIED BY 'postbox';
GRANT ALL PRIVILEGES ON *.* TO 'postbox'@'%' WITH GRANT OPTION;
CREATE DATABASE IF NOT EXISTS postbox;
EOF
    chmod 644 "$data/init.sql"
    as_user mysql mariadbd --no-defaults --datadir="$data/data" --init-file="$data/init.sql" \
        --socket="$data/socket" --pid-file="$data/pid" --tmpdir="$data" \
        --skip-networking=0 --bind-address=127.0.0.1 --port="${port[mariadb]}" --skip-name-resolve \
        --max-connections=300 --max-allowed-packet=64M \
        --character-set-server=utf8mb4 --collation-server=utf8mb4_general_ci
}

mariadb_ready() {
    MYSQL_PWD=postbox mariadb-admin --no-defaults --protocol=tcp -h 127.0.0.1 -P "${port[mariadb]}" -u postbox ping
}

mariadb_address() { echo "TEST_MYSQL_DSN=postbox:postbox@tcp(127.0.0.1:${port[mariadb]})/postbox"; }
