package driver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// wires lead from each process to each service, one each, so that any of them can be broken alone.
type wires struct {
	server *toxiproxy.ApiServer

	mu      sync.Mutex
	proxies map[string]*wire
}

// wire is a proxy that one fault at a time happens to.
type wire struct {
	*toxiproxy.Proxy

	broken sync.Mutex
}

func newWires() *wires {
	return &wires{
		server:  toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()),
		proxies: map[string]*wire{},
	}
}

// lay makes a wire to an address, and returns its own.
func (w *wires) lay(process, service, address string) (string, error) {
	name := process + " " + service
	proxy := toxiproxy.NewProxy(w.server, name, "127.0.0.1:0", address)
	if err := proxy.Start(); err != nil {
		return "", fmt.Errorf("lay a wire from %s: %w", name, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.proxies[name] = &wire{Proxy: proxy}
	return proxy.Listen, nil
}

func (w *wires) between(process, service string) *wire {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.proxies[process+" "+service]
}

// rip ends all connections, and refuses new ones until mend.
func (w *wire) rip() { w.Stop() }

func (w *wire) mend() error { return w.Start() }

// toxic is what toxiproxy reads.
type toxic struct {
	Name       string           `json:"name"`
	Type       string           `json:"type"`
	Stream     string           `json:"stream"`
	Attributes map[string]int64 `json:"attributes"`
}

var streams = []string{"upstream", "downstream"}

// lengthen makes the way so long that an answer takes this time, for good.
func (w *wire) lengthen(by time.Duration) error {
	return w.poison("distance", "latency", map[string]int64{"latency": by.Milliseconds() / 2})
}

// fault is the name of what a fault does to a wire.
const fault = "fault"

// slow delays both directions, each by half.
func (w *wire) slow(by time.Duration) error {
	return w.poison(fault, "latency", map[string]int64{"latency": by.Milliseconds() / 2, "jitter": by.Milliseconds() / 4})
}

// swallow lets everything disappear on its way, and closes nothing.
func (w *wire) swallow() error { return w.poison(fault, "timeout", map[string]int64{"timeout": 0}) }

// cure ends slow or swallow.
func (w *wire) cure() {
	for _, stream := range streams {
		_ = w.Toxics.RemoveToxic(context.Background(), fault+" "+stream) // there is none where a fault could not begin
	}
}

func (w *wire) poison(name, kind string, attributes map[string]int64) error {
	var problems []error
	for _, stream := range streams {
		text, err := json.Marshal(toxic{name + " " + stream, kind, stream, attributes})
		if err == nil {
			_, err = w.Toxics.AddToxicJson(bytes.NewReader(text))
		}
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}
