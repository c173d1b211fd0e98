package dashboard

import (
	"embed"
	"net/http"
)

//go:embed static
var static embed.FS

// staticFile is a file that every page loads.
type staticFile struct{ path, contentType string }

// staticFiles are by the last element of their address.
var staticFiles = map[string]staticFile{
	"dashboard.css": {"static/dashboard.css", "text/css; charset=utf-8"},
	"dashboard.js":  {"static/dashboard.js", "text/javascript; charset=utf-8"},
	"icon.svg":      {"static/icon.svg", "image/svg+xml"},
}

func (h *Handler) serveStatic(w http.ResponseWriter, r *http.Request, file staticFile) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", readMethods)
		http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
		return
	}
	content, err := static.ReadFile(file.path)
	if err != nil {
		http.Error(w, http.StatusText(http.StatusNotFound), http.StatusNotFound)
		return
	}
	// Not kept by browsers either: after an update of the program the page and its files must fit.
	w.Header().Set("Content-Type", file.contentType)
	_, _ = w.Write(content) // the browser has gone
}
