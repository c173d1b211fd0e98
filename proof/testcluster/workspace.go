package testcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

const (
	// startDeadline is how long a server may take until it answers, on a machine that has much else
	// to do, stopDeadline until it has ended.
	startDeadline, stopDeadline = 3 * time.Minute, 30 * time.Second
	// interval is how often a condition is checked.
	interval = 20 * time.Millisecond
)

// workspace is the folder of a cluster, and the system user that its servers run as.
type workspace struct {
	folder     string
	credential *syscall.Credential // nil: this process's own user
	watchdog   *exec.Cmd
	leash      io.Closer
}

// newWorkspace makes the folder. Most servers refuse to run as root, so for root it belongs to the
// user of that name, if any.
func newWorkspace(account string) (*workspace, error) {
	w := &workspace{}
	if os.Geteuid() == 0 && account != "" {
		found, err := user.Lookup(account)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		uid, _ := strconv.ParseUint(found.Uid, 10, 32) // both are numbers on every Unix
		gid, _ := strconv.ParseUint(found.Gid, 10, 32)
		w.credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	var err error
	if w.folder, err = os.MkdirTemp("", "postbox-cluster-"); err != nil {
		return nil, err
	}
	if err := w.own(w.folder); err != nil {
		return nil, errors.Join(err, os.RemoveAll(w.folder))
	}
	return w, w.watch()
}

// own gives a file or folder to the user of the servers.
func (w *workspace) own(path string) error {
	if w.credential == nil {
		return nil
	}
	return os.Chown(path, int(w.credential.Uid), int(w.credential.Gid))
}

// mkdir makes a folder for the user of the servers, unless it exists.
func (w *workspace) mkdir(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return w.own(path)
}

// watchScript waits until its standard input ends, which is when this process has ended. Then it
// stops the servers whose process ids stand in the folder, and removes the folder.
const watchScript = `cat >/dev/null
for file in "$0"/*.pid; do
	[ -e "$file" ] && kill -QUIT "$(cat "$file")" && sleep 1 && kill -KILL -- "-$(cat "$file")"
done 2>/dev/null
rm -rf "$0"`

func (w *workspace) watch() error {
	w.watchdog = exec.Command("sh", "-c", watchScript, w.folder) //nolint:gosec,noctx // it outlives everything else
	w.watchdog.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	leash, err := w.watchdog.StdinPipe()
	if err != nil {
		return err
	}
	w.leash = leash
	return w.watchdog.Start()
}

// close removes the folder. All servers have been stopped before.
func (w *workspace) close() error {
	_ = w.leash.Close()
	_ = w.watchdog.Wait() // it removes the folder
	return os.RemoveAll(w.folder)
}

func (w *workspace) path(name string) string { return filepath.Join(w.folder, name) }

// command prepares a program that runs as the user of the workspace, in a process group of its own,
// so that an interrupt at the terminal does not reach it.
func (w *workspace) command(name string, args ...string) *exec.Cmd {
	command := exec.Command(name, args...) //nolint:gosec,noctx // a program of the database
	command.Dir = w.folder
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: w.credential}
	return command
}

// run runs a program to its end.
func (w *workspace) run(name string, args ...string) error {
	output, err := w.command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", filepath.Base(name), err, output)
	}
	return nil
}

// server is one run of a server.
type server struct {
	name    string
	work    *workspace
	command *exec.Cmd
	ended   chan struct{}
}

// serve starts a server. Its output goes to a log in the folder.
func (w *workspace) serve(name, binary string, args ...string) (*server, error) {
	log, err := os.OpenFile(w.path(name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the server has it
	s := &server{name: name, work: w, command: w.command(binary, args...), ended: make(chan struct{})}
	s.command.Stdout, s.command.Stderr = log, log
	if err := s.command.Start(); err != nil {
		return nil, err
	}
	pid := strconv.Itoa(s.command.Process.Pid)
	err = os.WriteFile(w.path(name+".pid"), []byte(pid), 0o600)
	go func() {
		_ = s.command.Wait()
		_ = os.Remove(w.path(name + ".pid"))
		close(s.ended)
	}()
	if err != nil {
		return nil, errors.Join(err, s.stop(syscall.SIGQUIT))
	}
	return s, nil
}

// stop sends the signal and waits for the end. A server that does not end is killed, with an error.
func (s *server) stop(how syscall.Signal) error {
	select {
	case <-s.ended:
		return nil
	default:
	}
	_ = s.command.Process.Signal(how) // it may end by itself just now
	select {
	case <-s.ended:
		return nil
	case <-time.After(stopDeadline):
		_ = s.command.Process.Kill()
		<-s.ended
		return fmt.Errorf("%s did not stop within %s", s.name, stopDeadline)
	}
}

// kill ends a server like a crash, with all its processes, if it runs.
func kill(n *node) error {
	if n.server == nil {
		return nil
	}
	ended := n.server
	n.server = nil
	select {
	case <-ended.ended:
		return fmt.Errorf("%s had ended by itself", ended.name)
	default:
	}
	_ = syscall.Kill(-ended.command.Process.Pid, syscall.SIGKILL) // it may end just now
	return ended.stop(syscall.SIGKILL)
}

// ready waits until the server answers.
func (s *server) ready(ctx context.Context, answers func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startDeadline)
	defer cancel()
	var last error
	err := await(ctx, func() (bool, error) {
		select {
		case <-s.ended:
			return false, errors.New("it has ended")
		default:
		}
		last = answers(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%s does not answer: %w: %w\n%s", s.name, err, last, s.work.tail(s.name))
	}
	return nil
}

// tail returns the end of a server's log.
func (w *workspace) tail(name string) string {
	const size = 2000
	text, err := os.ReadFile(w.path(name + ".log"))
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-size):])
}

// await repeats a question until the answer is yes, an error, or ctx ends.
func await(ctx context.Context, question func() (bool, error)) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		yes, err := question()
		if yes || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// freePorts returns ports that nothing uses. They lie below those that the system gives to clients,
// which could take one while its server is stopped for a moment.
func freePorts(number int) ([]int, error) {
	const from, to, tries = 10_000, 19_000, 1_000
	var ports []int
	for range tries {
		port := from + rand.IntN(to-from)               //nolint:gosec // any will do
		listener, err := net.Listen("tcp", local(port)) //nolint:noctx // it is over at once
		if err != nil {
			continue
		}
		defer func() { _ = listener.Close() }() // at the end, so that no port comes twice
		if ports = append(ports, port); len(ports) == number {
			return ports, nil
		}
	}
	return nil, errors.New("no free ports")
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
