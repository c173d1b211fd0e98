package prove

import (
	"os"
	"os/exec"
	"syscall"
)

// canFreeze: a process can be stopped and continued, and ends with its parent even while it is
// stopped.
const canFreeze = true

// endWithParent lets the system kill a process when the thread ends that has started it.
func endWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

func freeze(p *os.Process) { _ = p.Signal(syscall.SIGSTOP) }

func thaw(p *os.Process) { _ = p.Signal(syscall.SIGCONT) }
