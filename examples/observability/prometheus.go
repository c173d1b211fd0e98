package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/postbox-go/watermill-postbox/metrics/prommetrics/monitoring"
)

// configuration of Prometheus: it scrapes the shop each second. Production has 15 s or so.
const configuration = `
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [rules.yml]
scrape_configs:
  - job_name: shop
    static_configs: [{targets: ["%s"]}]
`

// look is the pause from one question to the next.
const look = 200 * time.Millisecond

// mostFaster keeps a range of five minutes above some scrapes.
const mostFaster = 30

// monitor is a running Prometheus.
type monitor struct {
	folder  string
	address string
	process *exec.Cmd
	output  *strings.Builder
	ended   chan struct{} // is closed when the process has ended
}

// check says what is missing to run the example.
func (s settings) check() error {
	if s.faster < 1 || s.faster > mostFaster {
		return fmt.Errorf("-faster %d: use a number from 1 to %d", s.faster, mostFaster)
	}
	if _, err := exec.LookPath(s.prometheus); err != nil {
		return fmt.Errorf("%w: install Prometheus, on Debian and Ubuntu with \"apt-get install prometheus\" and elsewhere from https://prometheus.io/download/, "+
			"or name the program with -prometheus", err)
	}
	return nil
}

// startPrometheus starts it on a free port of the loopback interface, with its data in a temporary
// folder, and returns when it answers.
func startPrometheus(ctx context.Context, s settings, target string) (p *monitor, err error) {
	p = &monitor{output: &strings.Builder{}, ended: make(chan struct{})}
	if p.folder, err = os.MkdirTemp("", "postbox-prometheus-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.stop())
		}
	}()
	if p.address, err = freeAddress(ctx); err != nil {
		return nil, err
	}
	file := filepath.Join(p.folder, "prometheus.yml")
	if err := os.WriteFile(file, fmt.Appendf(nil, configuration, target), 0o600); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(p.folder, "rules.yml"), []byte(faster(monitoring.Alerts(), s.faster)), 0o600); err != nil {
		return nil, err
	}
	process := exec.CommandContext(ctx, s.prometheus, //nolint:gosec // the program that the user chose
		"--config.file="+file, "--storage.tsdb.path="+filepath.Join(p.folder, "data"), "--web.listen-address="+p.address)
	process.Stdout, process.Stderr = p.output, p.output
	process.Cancel = func() error { return process.Process.Signal(os.Interrupt) }
	process.WaitDelay = 5 * time.Second
	if err := process.Start(); err != nil {
		return nil, fmt.Errorf("start Prometheus: %w", err)
	}
	p.process = process
	go func() {
		_ = process.Wait() // stop interrupts it, which is an error
		close(p.ended)
	}()
	return p, p.poll(ctx, "Prometheus to answer", func() (bool, error) {
		_, err := p.get(ctx, "/-/ready")
		return err == nil, nil
	})
}

// freeAddress returns one that was free a moment ago.
func freeAddress(ctx context.Context) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

// stop ends the process and removes its data.
func (p *monitor) stop() error {
	if p.process != nil {
		_ = p.process.Process.Signal(os.Interrupt) // it may have ended
		select {
		case <-p.ended:
		case <-time.After(10 * time.Second):
			_ = p.process.Process.Kill()
			<-p.ended
		}
	}
	return os.RemoveAll(p.folder)
}

// poll asks again and again.
func (p *monitor) poll(ctx context.Context, what string, ask func() (bool, error)) error {
	for {
		done, err := ask()
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited for %s: %w", what, ctx.Err())
		case <-p.ended:
			return fmt.Errorf("Prometheus has ended:\n%s", p.output)
		case <-time.After(look):
		}
	}
}

// get returns the answer to a request.
func (p *monitor) get(ctx context.Context, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("Prometheus answers %s: %s", answer.Status, body)
	}
	return body, err
}

// waitForMetrics waits until Prometheus has scraped what the database counts of the outbox and the
// queue.
func (p *monitor) waitForMetrics(ctx context.Context) error {
	const query = `/api/v1/query?query=`
	return p.poll(ctx, "the first scrapes", func() (bool, error) {
		body, err := p.get(ctx, query+url.QueryEscape(`postbox_processes > 0`))
		return strings.Contains(string(body), `"outbox"`) && strings.Contains(string(body), `"`+letters+`"`), err
	})
}

// alert is one that is pending or firing.
type alert struct {
	State       string            `json:"state"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// firing asks for the alerts that fire, sorted by name.
func (p *monitor) firing(ctx context.Context) ([]alert, error) {
	body, err := p.get(ctx, "/api/v1/alerts")
	if err != nil {
		return nil, err
	}
	var answer struct {
		Data struct {
			Alerts []alert `json:"alerts"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("the alerts of Prometheus: %w", err)
	}
	firing := slices.DeleteFunc(answer.Data.Alerts, func(a alert) bool { return a.State != "firing" })
	slices.SortFunc(firing, func(a, b alert) int { return strings.Compare(a.Labels["alertname"], b.Labels["alertname"]) })
	return firing, nil
}

// waitFor waits until alerts with these names fire and no others. It returns an error if another
// one begins to fire.
func (p *monitor) waitFor(ctx context.Context, names []string) (firing []alert, err error) {
	earlier, err := p.firing(ctx)
	if err != nil {
		return nil, err
	}
	allowed := slices.Clone(names)
	for _, a := range earlier {
		allowed = append(allowed, a.Labels["alertname"])
	}
	err = p.poll(ctx, fmt.Sprintf("the alerts %q", names), func() (bool, error) {
		if firing, err = p.firing(ctx); err != nil {
			return false, err
		}
		missing := slices.Clone(names)
		others := 0
		for _, a := range firing {
			name := a.Labels["alertname"]
			if !slices.Contains(allowed, name) {
				return false, fmt.Errorf("the alert %s should not fire: %s", name, a.Annotations["summary"])
			}
			if !slices.Contains(names, name) {
				others++
			}
			missing = slices.DeleteFunc(missing, func(wanted string) bool { return wanted == name })
		}
		return len(missing) == 0 && others == 0, nil
	})
	return firing, err
}
