# Tools are programs that tests start themselves, always those of this machine. Nothing is served here, so a
# tool NAME provides only NAME_lacks, NAME_packages and NAME_version. A choice of services leaves them out.

tools=()
if [[ -z ${POSTBOX_SERVICES_ONLY:-} ]]; then tools=(prometheus chromium); fi

look_for_tools() {
    local name
    for name in "${tools[@]}"; do
        missing[$name]=$("${name}_lacks")
        if [[ -n ${missing[$name]} ]]; then continue; fi
        state[$name]=real
        origin[$name]=${origin[$name]:-binaries}
        version[$name]=$("${name}_version")
    done
}

# Prometheus, with promtool, for the alert rules and the example that fires them.
prometheus_lacks() { have prometheus && have promtool || echo "no prometheus and promtool"; }

prometheus_packages() { echo prometheus; }

prometheus_version() { prometheus --version 2>&1 | awk '{ print $3; exit }'; }

# Chromium, for the tests of the dashboard.
chromium_lacks() { have chromium || echo "no chromium"; }

# Without a font of its own a page would have no letters.
chromium_packages() { echo chromium fonts-dejavu-core; }

chromium_version() { chromium --version 2>/dev/null | awk '{ print $2; exit }'; }
