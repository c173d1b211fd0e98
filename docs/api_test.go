package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// The table of the API in docs/architecture.md names each function and each type that users can import, apart from
// configurations, which their constructors lead to. That it names nothing else is the rule of
// [TestDocs_name_files_targets_and_symbols_that_exist].
func TestAPI_table_names_all_functions_and_types(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/architecture.md")
	require.NoError(t, err)
	api := exportedOf(t, os.DirFS("."))
	require.Greater(t, len(api), 15, "packages")
	require.Empty(t, missingInTable(string(text), api))
}

func TestAPI_missing_names_are_found(t *testing.T) {
	t.Parallel()
	api := exportedOf(t, fstest.MapFS{
		"shop.go":              {Data: []byte("package shop\n\ntype Order struct{}\n\ntype TillConfig struct{}\n\nfunc (Order) Pay() {}\n\nfunc Open() {}\n\nfunc hidden() {}\n")},
		"shop_test.go":         {Data: []byte("package shop\n\nfunc TestOpen() {}\n")},
		"till/till.go":         {Data: []byte("package till\n\nfunc Count() {}\n")},
		"internal/safe/s.go":   {Data: []byte("package safe\n\nfunc Hide() {}\n")},
		"cmd/shop/main.go":     {Data: []byte("package main\n\nfunc Main() {}\n")},
		"examples/x/shared.go": {Data: []byte("package x\n\nfunc Shared() {}\n")},
	})
	require.Equal(t, map[string][]string{"shop": {"Open", "Order"}, "till": {"Count"}}, api)
	require.Empty(t, missingInTable("| `shop` | `Open`, `Order` |\n| `till` | `Count` (`Order`) |\n", api))
	require.Equal(t, []string{"shop.Order", "till.Count"}, missingInTable("| `shop` | `Open` |\nThe `till` has a `Count`.\n", api))
}

// notForUsers are the folders whose packages no user imports.
var notForUsers = regexp.MustCompile(`(^|/)(internal|testdata|proof|examples|benchmarks|scripts)/`)

// exportedOf returns the exported functions and types of each package that users can import.
func exportedOf(t *testing.T, files fs.FS) map[string][]string {
	t.Helper()
	api := map[string][]string{}
	require.NoError(t, fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || notForUsers.MatchString(name) {
			return err
		}
		source, err := fs.ReadFile(files, name)
		require.NoError(t, err)
		file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution)
		require.NoError(t, err)
		folder := path.Dir(name)
		if folder == "." {
			folder = file.Name.Name
		}
		if file.Name.Name != "main" {
			api[folder] = append(api[folder], exportedIn(file)...)
		}
		return nil
	}))
	for folder := range api {
		slices.Sort(api[folder])
	}
	return api
}

func exportedIn(file *ast.File) []string {
	var names []string
	for _, declaration := range file.Decls {
		switch declared := declaration.(type) {
		case *ast.FuncDecl:
			if declared.Recv == nil && declared.Name.IsExported() {
				names = append(names, declared.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range declared.Specs {
				found, ok := spec.(*ast.TypeSpec)
				if ok && found.Name.IsExported() && !strings.HasSuffix(found.Name.Name, "Config") {
					names = append(names, found.Name.Name)
				}
			}
		}
	}
	return names
}

// missingInTable returns the names that no row for their package has.
func missingInTable(text string, api map[string][]string) []string {
	named := map[string]bool{}
	for line := range strings.Lines(text) {
		row := firstCell.FindStringSubmatch(line)
		if row == nil {
			continue
		}
		for _, folder := range codeSpan.FindAllStringSubmatch(row[1], -1) {
			for _, span := range codeSpan.FindAllStringSubmatch(line, -1) {
				named[folder[1]+"."+span[1]] = true
			}
		}
	}
	var missing []string
	for folder, names := range api {
		for _, name := range names {
			if !named[folder+"."+name] {
				missing = append(missing, folder+"."+name)
			}
		}
	}
	slices.Sort(missing)
	return missing
}
