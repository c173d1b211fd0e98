package dashboard

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
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

var errNotLocal = errors.New("only requests from this machine are answered, without a proxy between: " +
	"open the page on the machine itself, or set another Config.Authorise than LoopbackOnly")

// LoopbackOnly is for [Config.Authorise] of a demo, and of tests. It allows everything to requests
// from a loopback address, and nothing to others. Every user and every program of the machine can
// send such requests. So serve the dashboard under a secret path, as "postbox dashboard" does.
//
// It refuses what it can recognise as coming from elsewhere: another host name than localhost or a
// loopback address, since a foreign page can let its own name point to 127.0.0.1; any header that
// proxies add, such as X-Forwarded-For, whatever its value; and HTTP/1.0, which nginx speaks unless
// it is told otherwise. That does not recognise every proxy: nginx adds no header by default, and
// with "proxy_http_version 1.1" its requests look like yours. So never use LoopbackOnly where a
// proxy runs on the same machine.
func LoopbackOnly(r *http.Request) (Access, error) {
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !remote.Addr().Unmap().IsLoopback() || !isLocalHost(r.Host) || isForwarded(r) {
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

// proxyHeaders are the beginnings of the names of headers that proxies add.
var proxyHeaders = []string{
	"Forwarded", "Via", "X-Forwarded", "X-Real-Ip", "X-Original-", "X-Client-Ip", "X-Cluster-Client-Ip", "X-Envoy-", "X-Proxyuser-Ip",
	"True-Client-Ip", "Client-Ip", "Cf-", "Cdn-Loop", "Fastly-", "X-Azure-", "X-Amzn-", "X-Appengine-",
}

// isForwarded looks at the presence of headers only: a client may have sent an empty one before
// that of the proxy.
func isForwarded(r *http.Request) bool {
	for name := range r.Header {
		begins := func(start string) bool { return strings.HasPrefix(name, start) }
		if slices.ContainsFunc(proxyHeaders, begins) {
			return true
		}
	}
	return !r.ProtoAtLeast(1, 1)
}

var errOtherSite = errors.New("it comes from a page of another site, and is not a visit to the page")

// checkVisit refuses what a page of another site makes a browser load unseen: it could not read the
// answer, but keep the database busy. A link to the dashboard is fine. [http.CrossOriginProtection]
// looks at requests that change something.
func checkVisit(header http.Header) error {
	site := header.Get("Sec-Fetch-Site")
	if (site == "cross-site" || site == "same-site") && header.Get("Sec-Fetch-Dest") != "document" {
		return errOtherSite
	}
	return nil
}
