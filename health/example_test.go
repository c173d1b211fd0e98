package health_test

import (
	"fmt"
	"net/http"

	"github.com/postbox-go/watermill-postbox/health"
)

func Example() {
	forwarder := reported{{Name: `outbox "outbox"`}} // what forwarder.New returns

	probes := http.NewServeMux()
	probes.Handle("GET /livez", health.Live(forwarder))
	probes.Handle("GET /readyz", health.Ready(0, forwarder))

	fmt.Println(health.Alive(forwarder))
	fmt.Println(health.IsReady(0, forwarder))
	// Output:
	// <nil>
	// outbox "outbox" has not been started
}
