# The settings of the databases. Beside addresses, folders and room for many tests at a time they are the servers' own
# defaults, and one of these sets, which POSTBOX_SERVICES_SETTINGS names:
#
#   usual    as packages set them: MariaDB with utf8mb4, and room for the largest message
#   stock    nothing more: MariaDB has the character set and the largest packet that it was built with
#   strict   statements and sessions that end early, modes that refuse more
#   lax      an old character set, commits that are not yet on disk, modes that refuse less
#
# Two add a default isolation to one of them:
#
#   serializable   strict, and SERIALIZABLE
#   repeatable     lax, and what is another server's default: REPEATABLE READ on PostgreSQL, READ COMMITTED on MariaDB
#
# Postbox refuses some that nobody can publish with, such as READ UNCOMMITTED. With these it has to keep its promises;
# make test-settings runs its contract suites there.

settings=${POSTBOX_SERVICES_SETTINGS:-usual}

# The planner's settings make worse plans, so that no statement needs a good guess. What is turned off costs so much
# that each statement would be compiled, so jit is off. Index scans stay on: docs/databases.md asks for them. The order of
# letters, that of a language, is set by initdb: it belongs to a database.
postgres_strict_settings=(
    statement_timeout=20s lock_timeout=10s idle_in_transaction_session_timeout=10s idle_session_timeout=3s
    "DateStyle=SQL, DMY" IntervalStyle=sql_standard TimeZone=Asia/Kolkata
    bytea_output=escape extra_float_digits=-5
    plan_cache_mode=force_custom_plan enable_seqscan=off jit=off
)
postgres_lax_settings=(
    synchronous_commit=off
    standard_conforming_strings=off backslash_quote=on transform_null_equals=on
    "DateStyle=German" IntervalStyle=postgres_verbose TimeZone=America/St_Johns
    plan_cache_mode=force_generic_plan enable_bitmapscan=off default_statistics_target=1 jit=off
)
postgres_serializable_settings=(default_transaction_isolation=serializable default_transaction_deferrable=on)
postgres_repeatable_settings=("default_transaction_isolation=repeatable read")

mariadb_usual_settings=(--character-set-server=utf8mb4 --collation-server=utf8mb4_general_ci --max-allowed-packet=64M)

mariadb_strict_settings=(
    --innodb-snapshot-isolation=ON
    --sql-mode=ANSI,TRADITIONAL,ONLY_FULL_GROUP_BY,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH,NO_UNSIGNED_SUBTRACTION,SIMULTANEOUS_ASSIGNMENT
    --wait-timeout=5 --idle-transaction-timeout=10 --max-statement-time=20 --innodb-lock-wait-timeout=5 --innodb-rollback-on-timeout=ON
    --default-time-zone=+05:30
    --character-set-server=utf8mb4 --collation-server=utf8mb4_unicode_ci
)
mariadb_lax_settings=(
    --innodb-flush-log-at-trx-commit=2
    --sql-mode= --innodb-strict-mode=OFF --default-time-zone=-03:30
    --character-set-server=latin1 --collation-server=latin1_swedish_ci --lower-case-table-names=1
    --log-bin --binlog-format=MIXED
)

mariadb_serializable_settings=(--transaction-isolation=SERIALIZABLE)
mariadb_repeatable_settings=(--transaction-isolation=READ-COMMITTED)

# settings_of NAME prints the options of a server, one a line.
settings_of() {
    local name
    for name in $(sets_of "$settings"); do
        local -n options="${1}_${name}_settings"
        [[ -z ${options+set} ]] || printf '%s\n' "${options[@]}"
        unset -n options
    done
}

# sets_of SET prints the sets that it consists of.
sets_of() {
    case $1 in
    usual | stock | strict | lax) echo "$1" ;;
    serializable) echo strict serializable ;;
    repeatable) echo lax repeatable ;;
    esac
}

known_settings() {
    [[ -z $(sets_of "$settings") ]] || return 0
    say "POSTBOX_SERVICES_SETTINGS is $settings: choose among usual, stock, strict, lax, serializable and repeatable"
    return 1
}
