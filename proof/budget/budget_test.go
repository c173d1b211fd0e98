package budget

import (
	"cmp"
	_ "embed"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

//go:embed figures.txt
var figures string

const (
	root   = "../.."
	widest = 100
)

func TestBudget_holds(t *testing.T) {
	t.Parallel()
	counted := map[string]int{}
	for _, satellite := range []string{"admin", "dashboard", "postboxtest", "receipts", "sources"} {
		for _, source := range module(t, root+"/"+satellite) {
			counted["lines of the module "+satellite+", without tests"] += strings.Count(source, "\n")
		}
	}
	for name, source := range module(t, root) {
		counted["lines of the main module, without tests"] += strings.Count(source, "\n")
		if folder := filepath.ToSlash(filepath.Dir(name)); folder == "internal/drain" || folder == "internal/schedule" {
			const largest = "fields of the largest struct of internal/drain and internal/schedule"
			counted[largest] = max(counted[largest], largestStruct(t, name, source))
			counted["components of internal/drain that know one below them"] += arrowsDown(t, name, source)
		}
	}
	for name, source := range written(t) {
		wide := wideComments(source)
		counted["comments of all modules that are wider than 100 columns"] += len(wide)
		for _, comment := range wide {
			t.Logf("wider than 100 columns: %s: %s", name, comment)
		}
	}
	var statements []byte
	for _, file := range ofPostgres {
		texts, err := os.ReadFile(file) //nolint:gosec // one of ours
		require.NoError(t, err)
		statements = append(statements, texts...)
	}
	counted["times that these files mislead the planner by NULL::character"] = strings.Count(string(statements), "NULL::character")
	const most = "arguments of the largest statement of PostgreSQL"
	for _, argument := range regexp.MustCompile(`\$(\d+)`).FindAllStringSubmatch(string(statements), -1) {
		n, err := strconv.Atoi(argument[1])
		require.NoError(t, err)
		counted[most] = max(counted[most], n)
	}
	for _, statement := range strings.Split(string(statements), "\n-- name: ") {
		names := map[string]bool{}
		for line := range strings.Lines(statement) {
			for _, argument := range regexp.MustCompile(`[^:]:([a-z_]+)`).FindAllStringSubmatch(line, -1) {
				names[argument[1]] = !strings.HasPrefix(line, "--")
			}
		}
		counted[most] = max(counted[most], len(names))
	}

	known := 0
	for line := range strings.Lines(figures) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		what, most, found := strings.Cut(strings.TrimSpace(line), ": ")
		require.True(t, found, line)
		allowed, err := strconv.Atoi(most)
		require.NoError(t, err, line)
		require.Contains(t, counted, what)
		require.LessOrEqual(t, counted[what], allowed, "%s: see figures.txt", what)
		t.Logf("%s: %d of %d", what, counted[what], allowed)
		known++
	}
	require.Len(t, counted, known, "each figure has its line")
}

// ofPostgres are the files with the statements of PostgreSQL.
var ofPostgres = []string{root + "/internal/dialect/statements/postgresql.sql", root + "/admin/internal/operatorsql/statements/postgresql.sql"}

// module returns the sources of a module without tests, by their names.
func module(t *testing.T, root string) map[string]string {
	t.Helper()
	sources := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if path == root {
				return nil
			}
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil || strings.HasPrefix(entry.Name(), ".") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		source, err := os.ReadFile(path) //nolint:gosec // a file of the project
		sources[name] = string(source)
		return err
	}))
	require.NotEmpty(t, sources)
	return sources
}

// written returns all Go files that were written by hand, of all modules and with tests, by name.
func written(t *testing.T) map[string]string {
	t.Helper()
	sources := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), ".") {
			return cmp.Or(err, fs.SkipDir)
		}
		if entry.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		text, err := os.ReadFile(path) //nolint:gosec // of this repository
		if head, _, _ := strings.Cut(string(text), "\npackage "); !strings.Contains(head, "Code generated") {
			sources[path] = string(text)
		}
		return err
	}))
	require.Greater(t, len(sources), 1000)
	return sources
}

// wideComments returns lines that are comments alone, but for what an example prints. A tab is four
// columns wide.
func wideComments(source string) (wide []string) {
	printed := false
	for line := range strings.Lines(source) {
		line = strings.TrimRight(strings.ReplaceAll(line, "\t", "    "), "\r\n")
		text := strings.TrimLeft(line, " ")
		printed = strings.HasPrefix(text, "// Output:") || printed && strings.HasPrefix(text, "//")
		if !printed && strings.HasPrefix(text, "// ") && utf8.RuneCountInString(line) > widest {
			wide = append(wide, text)
		}
	}
	return wide
}

// components of the engine, in the order of the list in the documentation of its package.
var components = []string{"core", "settler", "crashGuard", "workers", "lease", "limiter", "tailing", "reader", "idler", "Drainer"}

// arrowsDown counts the fields of a file's structs by which a component knows one that stands
// below it, or what is no component knows one.
func arrowsDown(t *testing.T, name, source string) (arrows int) {
	t.Helper()
	if filepath.ToSlash(filepath.Dir(name)) != "internal/drain" {
		return 0
	}
	for named, fields := range structs(t, name, source) {
		own := slices.Index(components, named)
		for _, field := range fields.List {
			pointer, is := field.Type.(*ast.StarExpr)
			if !is {
				continue
			}
			if to, is := pointer.X.(*ast.Ident); is && slices.Index(components, to.Name) >= max(own, 0) {
				arrows++
			}
		}
	}
	return arrows
}

// structs returns the fields of the structs of a file.
func structs(t *testing.T, name, source string) map[string]*ast.FieldList {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution)
	require.NoError(t, err)
	found := map[string]*ast.FieldList{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, is := n.(*ast.TypeSpec); is {
			if s, is := spec.Type.(*ast.StructType); is {
				found[spec.Name.Name] = s.Fields
			}
		}
		return true
	})
	return found
}

// largestStruct returns the number of fields of the largest struct of a file.
func largestStruct(t *testing.T, name, source string) (largest int) {
	t.Helper()
	for _, fields := range structs(t, name, source) {
		largest = max(largest, fields.NumFields())
	}
	return largest
}
