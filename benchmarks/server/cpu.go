package server

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// CPU returns the processor time that the server's processes have taken, those that have ended included, where /proc
// tells; elsewhere zero. On a machine with other work it disturbs less than a clock.
func (p *Postgres) CPU() time.Duration {
	pid, err := os.ReadFile(filepath.Join(p.data(), "postmaster.pid"))
	if err != nil {
		return 0
	}
	postmaster, _, _ := strings.Cut(string(pid), "\n")
	ticks := ticksOf(postmaster, "")
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		ticks += ticksOf(filepath.Base(process), postmaster)
	}
	const perSecond = 100 // Linux tells programs so, whatever it counts in itself
	return time.Duration(ticks) * time.Second / perSecond
}

// Fields of /proc/PID/stat after the name, which may contain blanks.
const (
	fieldParent = 1
	fieldUser   = 11 // then the system's share, and both of the children that have ended
	fieldsTimes = 4
)

// ticksOf returns the processor time of a process, or zero if it is not a child of that parent.
func ticksOf(pid, parent string) int64 {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%s/stat", pid))
	if err != nil {
		return 0 // it has ended, or there is no /proc
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < fieldUser+fieldsTimes || parent != "" && fields[fieldParent] != parent {
		return 0
	}
	var sum int64
	for _, field := range fields[fieldUser : fieldUser+fieldsTimes] {
		ticks, _ := strconv.ParseInt(field, 10, 64)
		sum += ticks
	}
	return sum
}
