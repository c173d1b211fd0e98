# Kafka in KRaft mode: one process that is broker and controller, from the jars
# that scripts/kafka/pom.xml names. Where they cannot be had, a stand-in, kfake, which
# the report does not call real. POSTBOX_KAFKA=kfake asks for it.

kafka_version() { if [[ -n ${kafka_fake:-} ]]; then echo in-memory; else kafka_pinned; fi; }

kafka_pinned() { sed -n 's|.*<kafka.version>\(.*\)</kafka.version>.*|\1|p' "$here/kafka/pom.xml"; }

kafka_jars() { echo "${XDG_CACHE_HOME:-$HOME/.cache}/postbox/kafka-$(kafka_pinned)"; }

# The jars may come later, through kafka_fetch, as long as Maven is here.
kafka_lacks() {
    if [[ -n $kafka_fake ]]; then
        return
    elif ! have java; then
        echo "no java"
    elif [[ ! -d $(kafka_jars) ]] && ! have mvn; then
        echo "no mvn to get the jars with"
    elif [[ -n $kafka_fetch_error ]]; then
        echo "$kafka_fetch_error"
    fi
}

kafka_packages() {
    have java || echo default-jre-headless
    have mvn || echo maven
}

kafka_fetch_error=
kafka_fake= # the binary of the stand-in, when it is used

# The folder appears under its final name only when complete.
kafka_fetch() {
    local jars partial
    jars=$(kafka_jars)
    if [[ ${POSTBOX_KAFKA:-} == kfake ]]; then
        kafka_build_fake
        return
    fi
    if [[ -d $jars ]]; then return; fi
    if [[ -n $(kafka_lacks) ]]; then
        kafka_build_fake
        return
    fi
    say "getting Kafka $(kafka_pinned) from Maven Central"
    mkdir -p "$(dirname "$jars")"
    partial=$(mktemp -d "$jars.XXXXXX")
    if with_deadline 300 mvn -B -q -f "$here/kafka/pom.xml" dependency:copy-dependencies \
        -DoutputDirectory="$partial" -DincludeScope=runtime >"$temp/maven.log" 2>&1 </dev/null; then
        origin[kafka]=maven
        # Another run may have been faster.
        if [[ -d $jars ]]; then rm -rf "$partial"; else mv "$partial" "$jars"; fi
    else
        kafka_fetch_error="Maven could not get the jars"
        grep ERROR "$temp/maven.log" | head -n 2 >&2 || true
        rm -rf "$partial"
        kafka_build_fake
    fi
}

# Without the stand-in too, Kafka is missing, for the reason that kafka_lacks gives.
kafka_build_fake() {
    if have go && (cd "$here/kafka/kfake" && go build -o "$temp/kfake" .) >"$temp/kfake-build.log" 2>&1; then
        kafka_fake=$temp/kfake
        origin[kafka]=kfake
    fi
}

kafka_serve() {
    if [[ -n $kafka_fake ]]; then exec "$kafka_fake" -port "${port[kafka]}"; fi
    local data="$temp/kafka"
    mkdir -p "$data"
    cd "$data"
    sed -e "s|@DATA@|$data/data|" -e "s|@PORT@|${port[kafka]}|" \
        -e "s|@CONTROLLER_PORT@|${port[kafka_controller]}|" \
        "$here/kafka/server.properties" >"$data/server.properties"
    [[ -d $data/data ]] || (kafka_java kafka.tools.StorageTool format -t MkU3OEVBNTcwNTJENDM2Qg -c "$data/server.properties")
    kafka_java kafka.Kafka "$data/server.properties"
}

# The quick compiler alone, the simple collector and no checks of the bytecode: the
# broker shares two cores with the tests, and starts in half the time.
kafka_java() {
    exec java -Xmx512m -Xshare:auto -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData \
        -Djava.net.preferIPv4Stack=true \
        -Dorg.slf4j.simpleLogger.defaultLogLevel=warn \
        -Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info \
        -cp "$(kafka_jars)/*" "$@"
}

# The port is open before the broker serves; its log tells when it does.
kafka_ready() { grep -qE 'Kafka Server started|kfake serves' "$temp/kafka.log"; }

kafka_address() { echo "TEST_KAFKA_BROKERS=127.0.0.1:${port[kafka]}"; }
