package browser_test

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/dashboard"
)

// Each page, in a wide and a narrow window, in light and dark colours. A screenshot of each is in a
// folder that the test names.
func TestPages_fit_into_the_window_and_report_no_error(t *testing.T) {
	t.Parallel()
	s := newShop(t, dashboard.Config{Title: "Shop, production"})
	s.fill()
	b := open(t, s.url)
	pictures := newPictures(t)
	for name, address := range pages() {
		b.visit(address)
		for _, window := range []struct {
			width   int64
			colours string
		}{{wide, light}, {wide, dark}, {narrow, light}, {narrow, dark}} {
			b.window(window.width, window.colours)
			overflow := evaluate[float64](b, `document.documentElement.scrollWidth - document.documentElement.clientWidth`)
			require.LessOrEqual(t, overflow, 0.0, "%s scrolls sideways at %d pixels", name, window.width)
			pictures.keep(name, window.width, window.colours, run(b, chromedp.FullScreenshot(100)))
		}
		if name == "problem" {
			require.Len(t, b.told(), 1, "the browser logs that the page has the status 404")
		}
	}
}

// What a screen reader needs, on each page: one main heading, a name for each field, button, link
// and table, and a contrast that can be read.
func TestPages_have_names_headings_and_contrast(t *testing.T) {
	t.Parallel()
	s := newShop(t, dashboard.Config{})
	s.fill()
	b := open(t, s.url)
	for name, address := range pages() {
		b.visit(address)
		for _, colours := range []string{light, dark} {
			b.window(wide, colours)
			problems := evaluate[[]string](b, accessibility)
			require.Empty(t, problems, "%s in %s colours", name, colours)
		}
	}
	b.told() // the page of the problem has the status 404
}

// accessibility returns what is wrong with a page. The contrast is that of WCAG 2, level AA: 4.5,
// or 3 for large text.
const accessibility = `(() => {
	const problems = [];
	const say = (element, text) => problems.push(text + ": " + element.outerHTML.slice(0, 120));
	if (document.querySelectorAll("h1").length !== 1) problems.push("there is not one h1");
	for (const landmark of ["header", "nav", "main", "footer"])
		if (!document.querySelector(landmark)) problems.push("there is no " + landmark);
	let level = 1;
	for (const h of document.querySelectorAll("h1, h2, h3")) {
		const n = Number(h.tagName[1]);
		if (n > level + 1) say(h, "a level of headings is left out");
		level = n;
	}
	for (const field of document.querySelectorAll("input:not([type=hidden]), select, textarea"))
		if (field.labels.length === 0) say(field, "a field has no label");
	for (const named of document.querySelectorAll("a, button, summary"))
		if (!named.textContent.trim() && !named.getAttribute("aria-label")) say(named, "it has no name");
	for (const cell of document.querySelectorAll("thead th"))
		if (!cell.scope) say(cell, "a heading of a column has no scope");
	for (const box of document.querySelectorAll(".scroll, pre"))
		if (box.tabIndex !== 0) say(box, "the keyboard cannot scroll it");
	const ids = [...document.querySelectorAll("[id]")].map(e => e.id);
	if (new Set(ids).size !== ids.length) problems.push("an id is there twice");
	for (const labelled of document.querySelectorAll("[aria-labelledby]"))
		if (!document.getElementById(labelled.getAttribute("aria-labelledby"))) say(labelled, "its label is missing");
	const parts = text => text.match(/[\d.]+/g).map(Number);
	const light = rgb => {
		const [r, g, b] = rgb.map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const behind = element => {
		for (let e = element; e; e = e.parentElement) {
			const colour = parts(getComputedStyle(e).backgroundColor);
			if (colour.length === 3 || colour[3] === 1) return colour.slice(0, 3);
		}
		return [255, 255, 255];
	};
	for (const e of document.querySelectorAll("body *")) {
		const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
		if (!own || !e.checkVisibility() || e.matches(".skip, option")) continue;
		const style = getComputedStyle(e);
		const [a, b] = [light(parts(style.color).slice(0, 3)), light(behind(e))];
		const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		const size = parseFloat(style.fontSize);
		if (contrast < (size >= 24 ? 3 : 4.5)) say(e, "the contrast is " + contrast.toFixed(1));
	}
	return problems;
})()`
