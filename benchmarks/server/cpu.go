package server

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// CPU returns the processor time that the server's processes have taken, those that have ended
// included, where /proc tells; elsewhere zero. On a machine with other work it disturbs less than a
// clock. Of processes that run, it is exact; of those that have ended, to a hundredth of a second
// in all.
func (p *Postgres) CPU() time.Duration {
	pid, err := os.ReadFile(filepath.Join(p.data(), "postmaster.pid"))
	if err != nil {
		return 0
	}
	postmaster, _, _ := strings.Cut(string(pid), "\n")
	taken, _ := timeOf(postmaster, "")
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		rough, child := timeOf(filepath.Base(process), postmaster)
		if exact, known := scheduled(process); child && known {
			taken += exact
		} else {
			taken += rough
		}
	}
	return taken
}

// CPUOf returns the processor time of the process whose id is in this file, to a hundredth of a
// second, or zero if it is not on this machine.
func CPUOf(pidFile string) time.Duration {
	pid, err := os.ReadFile(pidFile)
	if err != nil {
		return 0
	}
	taken, _ := timeOf(strings.TrimSpace(string(pid)), "")
	return taken
}

// scheduled returns for how long a process without children has had a processor, if the kernel says
// so.
func scheduled(process string) (taken time.Duration, known bool) {
	text, err := os.ReadFile(filepath.Join(process, "schedstat"))
	if err != nil {
		return 0, false
	}
	running, _, _ := strings.Cut(string(text), " ")
	nanoseconds, err := strconv.ParseInt(running, 10, 64)
	return time.Duration(nanoseconds), err == nil && nanoseconds > 0
}

// Fields of /proc/PID/stat after the name, which may contain blanks.
const (
	fieldParent = 1
	fieldUser   = 11 // then the system's share, and both of the children that have ended
	fieldsTimes = 4
)

// timeOf returns the processor time of a process, and of its children that have ended, in
// hundredths of a second. It is false if the process is not a child of that parent.
func timeOf(pid, parent string) (taken time.Duration, child bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%s/stat", pid))
	if err != nil {
		return 0, false // it has ended, or there is no /proc
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < fieldUser+fieldsTimes || parent != "" && fields[fieldParent] != parent {
		return 0, false
	}
	var ticks int64
	for _, field := range fields[fieldUser : fieldUser+fieldsTimes] {
		n, _ := strconv.ParseInt(field, 10, 64)
		ticks += n
	}
	const perSecond = 100 // Linux tells programs so, whatever it counts in itself
	return time.Duration(ticks) * time.Second / perSecond, true
}
