package browser_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

const (
	wide   = 1280
	narrow = 400
	height = 900
	light  = "light"
	dark   = "dark"
)

// footer is the last part of each page.
const footer = chromedp.CSS("footer")

// patience is how long a page may take; the machine may be busy.
const patience = 90 * time.Second

// browser is a tab of Chromium. It notes what goes wrong in a page.
type browser struct {
	*testing.T

	ctx  context.Context //nolint:containedctx // chromedp keeps the tab in it
	base string

	mu       sync.Mutex
	problems []string
}

// open starts Chromium. The test fails at its end if a page wrote an error to the console, opened a
// dialog or threw an exception.
func open(t *testing.T, base string) *browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program(t)), chromedp.UserDataDir(t.TempDir()), chromedp.ProxyServer("direct://"),
		chromedp.Flag("lang", "en-GB"), chromedp.WSURLReadTimeout(patience))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium's sandbox refuses root
	}
	allocator, closeAll := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(closeAll)
	b := &browser{T: t, base: base}
	ctx, closeTab := chromedp.NewContext(allocator, chromedp.WithListener(b.note))
	t.Cleanup(closeTab)
	ctx, cancel := context.WithTimeout(ctx, 4*patience)
	t.Cleanup(cancel)
	b.ctx = ctx
	command(b, log.Enable, cdp.Empty{})
	b.window(wide, light)
	t.Cleanup(func() { require.Empty(t, b.told(), "the browser reports problems") })
	return b
}

// note is called by the browser's goroutine.
func (b *browser) note(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			for _, arg := range e.Args {
				b.problems = append(b.problems, fmt.Sprintf("console: %s %s", arg.Value, arg.Description))
			}
		}
	case *runtime.EventExceptionThrown:
		b.problems = append(b.problems, "exception: "+e.ExceptionDetails.Text)
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			b.problems = append(b.problems, fmt.Sprintf("log: %s %s", e.Entry.Text, e.Entry.URL))
		}
	case *page.EventJavascriptDialogOpening:
		b.problems = append(b.problems, "dialog: "+e.Message)
	}
}

// told returns the problems so far, and forgets them.
func (b *browser) told() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	problems := b.problems
	b.problems = nil
	return problems
}

func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	require.NoError(b, chromedp.Do(b.ctx, actions...))
}

// run carries out an action that has a result.
func run[T any](b *browser, action chromedp.Action[T]) T {
	b.Helper()
	result, err := chromedp.Run(b.ctx, action)
	require.NoError(b, err)
	return result
}

// command sends a command of the protocol.
func command[P, R any](b *browser, command cdp.Command[P, R], params P) {
	b.Helper()
	_, err := chromedp.Call(b.ctx, command, params)
	require.NoError(b, err)
}

// window sets the size of the window and the colours that the user prefers.
func (b *browser) window(width int64, colours string) {
	b.Helper()
	b.do(chromedp.EmulateViewport(width, height))
	command(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: colours}},
	})
}

// visit opens a page.
func (b *browser) visit(address string) {
	b.Helper()
	b.do(chromedp.Navigate(b.base+address), chromedp.WaitReady(footer))
}

// click follows a link or presses a button with this text, and waits for the next page.
func (b *browser) click(text string) {
	b.Helper()
	path := fmt.Sprintf(`//main//*[(self::a or self::button) and normalize-space()=%q]`, text)
	_, err := chromedp.RunResponse(b.ctx, chromedp.Click(path))
	require.NoError(b, err, text)
	b.do(chromedp.WaitReady(footer))
}

// unfold opens a form.
func (b *browser) unfold(text string) {
	b.Helper()
	b.do(chromedp.Click(fmt.Sprintf(`//summary[normalize-space()=%q]`, text)))
}

// write fills in a field.
func (b *browser) write(name, text string) {
	b.Helper()
	b.do(chromedp.SetValue(chromedp.CSS(fmt.Sprintf(`main [name=%q]`, name)), text))
}

// text is what a person reads on the page; nothing while another page is being loaded.
func (b *browser) text() string {
	b.Helper()
	text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](`document.body ? document.body.innerText : ""`))
	if err != nil {
		return ""
	}
	return strings.Join(strings.Fields(text), " ")
}

// sees waits for a text.
func (b *browser) sees(text string) {
	b.Helper()
	require.Eventually(b, func() bool { return strings.Contains(b.text(), text) }, patience, 100*time.Millisecond, text)
}

func evaluate[T any](b *browser, script string) T {
	b.Helper()
	return run(b, chromedp.Evaluate[T](script))
}
