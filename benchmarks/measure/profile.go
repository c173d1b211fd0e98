package measure

import (
	"os"
	"path/filepath"
	"runtime/pprof"
)

// profile writes profiles of one run. A nil profile does nothing.
type profile struct {
	cpuFolder, memoryFolder string // "" is no such profile
	name                    string
	cpu                     *os.File
}

func (p *profile) start() error {
	if p == nil {
		return nil
	}
	if err := p.allocs("before"); err != nil {
		return err
	}
	if p.cpuFolder == "" {
		return nil
	}
	var err error
	if p.cpu, err = os.Create(filepath.Join(p.cpuFolder, p.name+".cpu")); err != nil {
		return err
	}
	return pprof.StartCPUProfile(p.cpu)
}

func (p *profile) stop() error {
	if p == nil {
		return nil
	}
	if p.cpu != nil {
		pprof.StopCPUProfile()
		if err := p.cpu.Close(); err != nil {
			return err
		}
	}
	return p.allocs("after")
}

// allocs writes all allocations so far: go tool pprof -base BEFORE AFTER shows those of the run.
func (p *profile) allocs(when string) error {
	if p.memoryFolder == "" {
		return nil
	}
	file, err := os.Create(filepath.Join(p.memoryFolder, p.name+".allocs."+when))
	if err != nil {
		return err
	}
	if err := pprof.Lookup("allocs").WriteTo(file, 0); err != nil {
		return err
	}
	return file.Close()
}
