package dashboard

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/admin"
)

// Defaults and bounds of [Config].
const (
	defaultTitle   = "Postbox"
	defaultRefresh = 5 * time.Second
	minRefresh     = time.Second
	defaultTimeout = 5 * time.Second
)

// Access says who sends a request, and what this user may do. The zero value may do nothing.
type Access struct {
	// Actor is the name of the user, which is recorded with each action. It is shown on each page.
	Actor string
	// Read allows to see all pages, with the payloads and metadata of messages.
	Read bool
	// Act allows to pause, resume and change settings, to requeue, resolve and delete dead letters,
	// and to run, reschedule, bury and replay messages.
	Act bool
	// Edit allows to change the payload and metadata of a dead letter.
	Edit bool
}

// PayloadParams are what [Config.FormatPayload] gets.
type PayloadParams struct {
	// Target is the outbox or queue of the message. It is the zero value for a dead letter of an
	// inbox.
	Target admin.Target
	// Consumer is the inbox's consumer of a dead letter of an inbox.
	Consumer string
	Topic    string
	Metadata message.Metadata
	// Payload must not be changed.
	Payload []byte
	// Access is that of the user who looks at the message.
	Access Access
}

// Config is the configuration of a [Handler]. Authorise is required.
type Config struct {
	// Authorise returns who sends a request and what this user may do. It is required, and there is
	// no default that is safe everywhere: see [LoopbackOnly] for a demo. It is called once for each
	// request, also concurrently. If it returns an error, the request is refused with status 403,
	// and the error is logged, at most 20 times in a minute.
	Authorise func(r *http.Request) (Access, error)
	// ReadOnly takes the right to act and to edit from every user.
	ReadOnly bool

	// FormatPayload returns a payload as text, for example of a Protocol Buffers message, or a text
	// without the parts that an operator must not see. The text is cut off at 64 KiB. If ok is
	// false, the payload is shown by default: as indented JSON, as text or as hexadecimal digits.
	// If the function panics, nothing of the payload is shown. The link to the whole payload is
	// shown only if FormatPayload is nil, or returns false.
	FormatPayload func(PayloadParams) (text string, ok bool)

	// Title is at the top of each page, for example the name of the deployment. Defaults to
	// "Postbox".
	Title string
	// Refresh is the pause between two updates of an open page: at least a second. Defaults to 5 s.
	Refresh time.Duration
	// Timeout is how long a page waits for the database. Actions on one message have the same time,
	// bulk actions have as much as they need. Defaults to 5 s.
	Timeout time.Duration
}

func (c *Config) setDefaults() {
	if c.Title == "" {
		c.Title = defaultTitle
	}
	if c.Refresh == 0 {
		c.Refresh = defaultRefresh
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
}

// validate returns all mistakes in the configuration.
func (c Config) validate() error {
	var problems []error
	if c.Authorise == nil {
		problems = append(problems, errors.New("Authorise: it is missing, and everyone could use the dashboard: "+
			"set a function that says who sends a request and what this user may do"))
	}
	if c.Refresh != 0 && c.Refresh < minRefresh {
		problems = append(problems, fmt.Errorf("Refresh: %s is less than %s: give it a unit, such as 5 * time.Second", c.Refresh, minRefresh))
	}
	if c.Timeout < 0 {
		problems = append(problems, fmt.Errorf("Timeout: %s is negative: use 0 for %s", c.Timeout, defaultTimeout))
	}
	return errors.Join(problems...)
}
