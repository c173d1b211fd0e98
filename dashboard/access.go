package dashboard

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// right is what a route needs.
type right int

const (
	toRead right = iota
	toAct
	toEdit
)

// allows is the one place that decides whether a user may do something.
func (a Access) allows(needed right) bool {
	switch needed {
	case toRead:
		return a.Read
	case toAct:
		return a.Read && a.Act
	case toEdit:
		return a.Read && a.Act && a.Edit
	default:
		return false
	}
}

// loopbackActor is the name of a user of [LoopbackOnly].
const loopbackActor = "local user"

var errNotLocal = errors.New("no authoriser is configured, and so only requests from this machine are answered: " +
	"set Config.Authorise, or open the page on the machine itself")

// LoopbackOnly is the default of [Config.Authorise]. It allows everything to requests from a loopback address, and nothing to others.
//
// It also refuses two kinds of requests that come from elsewhere in truth. One has another host name than localhost or a loopback address:
// a foreign page can let its own name point to 127.0.0.1. The other has a header that a proxy adds, such as X-Forwarded-For: a
// proxy on the same machine would open the dashboard to everyone.
func LoopbackOnly(r *http.Request) (Access, error) {
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !remote.Addr().Unmap().IsLoopback() || !isLocalHost(r.Host) || isForwarded(r.Header) {
		return Access{}, errNotLocal
	}
	return Access{Actor: loopbackActor, Read: true, Act: true, Edit: true}, nil
}

func isLocalHost(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	if strings.EqualFold(name, "localhost") {
		return true
	}
	address, err := netip.ParseAddr(name)
	return err == nil && address.Unmap().IsLoopback()
}

func isForwarded(header http.Header) bool {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"} {
		if header.Get(name) != "" {
			return true
		}
	}
	return false
}
