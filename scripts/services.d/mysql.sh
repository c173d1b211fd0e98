# MySQL, whose binaries come from Maven Central or from a later Debian: this machine's has only MariaDB. It runs if
# POSTBOX_SERVICES_ONLY names it, in place of MariaDB.

mysql_lacks() {
    local lacking
    if [[ -z $(chosen mysql) ]]; then
        lacking="POSTBOX_MYSQL_VERSION names no version"
    else
        lacking=$(chosen_lacks mysql)
        if [[ -z $lacking && -n $(mysql_libraries) ]]; then lacking="no $(mysql_libraries)"; fi
    fi
    if [[ -n $lacking ]]; then echo "$lacking"; else lacks_user mysql; fi
}

# mysql_libraries prints the packages of libraries that the server needs and that are not here.
mysql_libraries() {
    local known
    if [[ -n $(chosen_suite mysql) ]]; then return; fi
    known=$(PATH=$PATH:/sbin ldconfig -p 2>/dev/null)
    [[ $known == *libaio.so.1* ]] || echo libaio1
    [[ $known == *libnuma.so.1* ]] || echo libnuma1
}

# Debian's package of MariaDB makes the user mysql.
mysql_packages() {
    chosen_packages mysql
    mysql_libraries
    if [[ -n $(lacks_user mysql) ]]; then echo mariadb-server; fi
}

# Files from a zip are not executable. The rest of the distribution is a gigabyte.
mysql_arrange() {
    if [[ -n $(chosen_suite mysql) ]]; then
        chosen_arrange_suite "$1" sbin/mysqld bin/mysql && ln -s ../sbin/mysqld "$1/home/bin"
        return
    fi
    mkdir -p "$1/home/bin" "$1/home/lib"
    mv "$1/bin/mysqld" "$1/bin/mysql" "$1/home/bin" && mv "$1/lib/private" "$1/home/lib" && mv "$1/share" "$1/home" && chmod -R u+x "$1/home/bin"
}

mysql_version() { "$(chosen_home mysql)/bin/mysqld" --no-defaults --version | grep -o 'Ver [0-9.]*' | cut -c 5-; }

# mysql_init prints what MariaDB and MySQL do when they start: make the user and the database of the tests.
mysql_init() {
    cat <<SQL
CREATE USER IF NOT EXISTS 'postbox'@'%' IDENTIFIED BY '$secret';
GRANT ALL PRIVILEGES ON *.* TO 'postbox'@'%' WITH GRANT OPTION;
CREATE DATABASE IF NOT EXISTS postbox;
SQL
}

mysql_serve() {
    local data="$temp/mysql" home
    home=$(chosen_home mysql)
    if [[ ! -d $data ]]; then
        mkdir "$data"
        mysql_init >"$data/init.sql"
        own mysql "$data"
        # Its root has no password, and comes only through the socket, which is in this folder.
        (cd "$data" && as_user mysql "$home/bin/mysqld" --no-defaults --basedir="$home" --datadir="$data/data" --tmpdir="$data" \
            --secure-file-priv=NULL --initialize-insecure) >"$temp/mysql-install.log" 2>&1 ||
            { cat "$temp/mysql-install.log"; exit 1; }
    fi
    cd "$data"
    as_user mysql "$home/bin/mysqld" --no-defaults --basedir="$home" --datadir="$data/data" --init-file="$data/init.sql" \
        --socket="$data/socket" --pid-file="$data/pid" --tmpdir="$data" --mysqlx=OFF --secure-file-priv=NULL \
        --bind-address=127.0.0.1 --port="${port[mysql]}" --skip-name-resolve --max-connections=600
}

mysql_ready() {
    MYSQL_PWD=$secret "$(chosen_home mysql)/bin/mysql" --no-defaults --protocol=tcp -h 127.0.0.1 -P "${port[mysql]}" -u postbox -e 'DO 1'
}

mysql_address() { echo "TEST_MYSQL_DSN=postbox:$secret@tcp(127.0.0.1:${port[mysql]})/postbox"; }
