package docs_test

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/instruments"
	"github.com/postbox-go/watermill-postbox/metrics"
)

// The documents name nothing that does not exist. These are the rules. They look at words in back
// quotes, and at the lines of pictures, which are indented by four spaces. They do not look at
// blocks of code.
//
//   - `make x`: the Makefile has the target x.
//   - A word with a slash at its end is a folder, and a word with an ending such as .go or .md is a
//     file. Both exist, seen from the root of the project or from the folder of the document. A *
//     or a <name> stands for any name.
//   - A file or folder without a slash before its name is in the root, in the folder of the
//     document, or in the folder that the same line named last. If the line named no folder before
//     it, the file may be anywhere.
//   - In a command with -C folder, later files and folders may be in that folder.
//   - Any other word with a slash is a file or folder too, or a part of an import path or module
//     that the sources name.
//   - `pkg.Name`, `pkg.Type.Member`, `Type.Member` and `Field.Member`: the sources declare or use
//     it. `pkg.Method` may leave out the type. A name of a package that is not ours is not looked
//     up.
//   - A single word in mixed case, such as `PollMin` or `migrateBegin`, is an identifier of the
//     sources, or a file.
//   - An instrument of package metrics, such as `postbox.messages.stored`, is in their list.
//   - In a row of a table whose first cell names nothing but packages of ours, each such word is
//     declared in one of these packages.
//
// A name that breaks a rule and is right all the same stands in this list, with the reason, and
// nowhere else.
var excusedNames = map[string]string{
	"./bin": "made by make tools",

	"brokers/kafkabroker/v0.1.0": "a tag",

	"postbox.message.wait": "an attribute of a span",
	"postbox.handler.name": "an attribute of a span",
	"postbox.source.topic": "an attribute of a span",

	"components/metrics":   "a package of Watermill, which no source here imports",
	"Producer.Partitioner": "a setting of sarama",
	"t.FailNow":            "the t of any test",
}

func TestDocs_name_files_targets_and_symbols_that_exist(t *testing.T) {
	t.Parallel()
	project := readProject(t, os.DirFS("."))
	used := map[string]bool{}
	for _, document := range documentsOf(t, project.files) {
		text, err := os.ReadFile(document) //nolint:gosec // found by this test
		require.NoError(t, err)
		for _, stale := range project.stale(document, string(text)) {
			if _, ok := excusedNames[stale.name]; ok {
				used[stale.name] = true
				continue
			}
			t.Errorf("%s:%d names `%s`: %s", document, stale.line, stale.name, stale.problem)
		}
	}
	require.Equal(t, slices.Sorted(maps.Keys(excusedNames)), slices.Sorted(maps.Keys(used)), "each excuse is needed")
}

func TestDocs_stale_names_are_found(t *testing.T) {
	t.Parallel()
	project := readProject(t, fstest.MapFS{
		"Makefile":              {Data: []byte("test: ## run\n\tgo test ./...\n")},
		"go.mod":                {Data: []byte("module example.org/shop\n\nrequire github.com/lib/pq v1.0.0\n")},
		"shop.go":               {Data: []byte("package shop\n\nimport \"database/sql\"\n\ntype Order struct{ Number int }\n\ntype Book struct{ Last *Order }\n\nfunc Open(*sql.DB) {}\n")},
		"internal/till/till.go": {Data: []byte("package till\n\ntype Till struct{}\n\nfunc (Till) Close() {}\n\nfunc count() {}\n")},
		"internal/till/coin.go": {Data: []byte("package till\n\nfunc Coin() {}\n")},
		"docs/till.md":          {Data: []byte("# Till\n")},
	})
	exist := strings.Join([]string{
		"`make test ARGS='-run Till'`, `internal/till/`, `internal/till/till.go` and `coin.go`, `till.go`, `docs/till.md`,",
		"`lib/pq`, `internal/*/coin.go`, `go test ./internal/till`, `github.com/else/where`, `till.Coin`, `till.Till.Close`, `Order.Number`,",
		"`sql.DB`, `*sql.Tx`, `spools.lanes`, `shop.Open(db)`, `till.Close`, `Last.Number`, `Coin`, `count`, `SELECT`, `*/5 * * *`,",
		"```go", "gone.Gone() // `make gone`", "```",
		"    ┌─ till.Coin ──► internal/till ─┐",
		"| `till` | `Coin`, `Till` (`Close`) |",
	}, "\n")
	require.Empty(t, project.stale("docs/till.md", exist))

	for _, c := range []struct{ what, text, want string }{
		{"a target", "`make gone`", "make gone"},
		{"a second target", "`make test gone`", "make gone"},
		{"a folder", "`cmd/`", "cmd/"},
		{"a folder within another", "`internal/gone`", "internal/gone"},
		{"a file with its folder", "`internal/till/gone.go`", "internal/till/gone.go"},
		{"a file beside its folder", "`internal/till/till.go`, `shop2.go`", "shop2.go"},
		{"a file that is in another folder than the line says", "`docs/till.md`, `coin.go`", "coin.go"},
		{"a file anywhere", "see `gone.go`", "gone.go"},
		{"a file in a command", "`bash scripts/gone.sh now`", "scripts/gone.sh"},
		{"a pattern", "`internal/*/gone.go`", "internal/*/gone.go"},
		{"a module", "`lib/gone`", "lib/gone"},
		{"a function of a package", "`till.Gone`", "till.Gone"},
		{"a function in an expression", "`err := shop.Gone(db)`", "shop.Gone"},
		{"a method with its package", "`till.Till.Gone`", "till.Till.Gone"},
		{"a method or field", "`Order.Gone`", "Order.Gone"},
		{"a package or type", "`gone.Open`", "gone.Open"},
		{"a name alone", "`GoneFunc`", "GoneFunc"},
		{"a name alone that is not exported", "`goneFunc`", "goneFunc"},
		{"a function in a picture", "    ─ till.Gone ─►", "till.Gone"},
		{"a folder in a picture", "    ─ internal/gone ─►", "internal/gone"},
		{"a name that another package has", "| `shop` | `Open`, `Coin` |", "Coin"},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			found := project.stale("docs/till.md", "A line before.\n"+c.text+"\n")
			require.Len(t, found, 1)
			require.Equal(t, c.want, found[0].name)
			require.Equal(t, 2, found[0].line)
		})
	}
}

// The linters ignore a folder that does not exist, so a rule for one would silently hold nothing.
func TestLinters_name_folders_that_exist(t *testing.T) {
	t.Parallel()
	config, err := os.ReadFile(".golangci.yml")
	require.NoError(t, err)
	folders := regexp.MustCompile(`\$\{base-path\}/([\w/.-]+?)/\*\*`).FindAllStringSubmatch(string(config), -1)
	require.Greater(t, len(folders), 5)
	for _, found := range folders {
		require.DirExists(t, found[1])
	}
}

// The documents that speak of the project as it is. The changelog speaks of what it was, too.
func documentsOf(t *testing.T, files fs.FS) []string {
	t.Helper()
	var documents []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/dev/*.md", "examples/*/README.md", "brokers/*/README.md"} {
		found, err := fs.Glob(files, pattern)
		require.NoError(t, err)
		documents = append(documents, found...)
	}
	documents = slices.DeleteFunc(documents, func(document string) bool { return document == "CHANGELOG.md" })
	require.Greater(t, len(documents), 20)
	return documents
}

type staleName struct {
	line          int
	name, problem string
}

var (
	codeSpan     = regexp.MustCompile("`([^`]+)`")
	makeTarget   = regexp.MustCompile(`^[a-z][a-z-]*$`)
	fileEnding   = regexp.MustCompile(`\.(go|md|yml|yaml|sh|sql|mod|sum|svg|xml|properties|json|txt)$`)
	pathWord     = regexp.MustCompile(`^[\w.*<>-]+(/[\w.*<>-]+)*/?$`)
	placeholder  = regexp.MustCompile(`<\w+>`)
	dotted       = regexp.MustCompile(`[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+`)
	mixedCase    = regexp.MustCompile(`^(?:[A-Z][A-Z]*[a-z]\w*|[a-z]+[A-Z]\w*)$`)
	firstCell    = regexp.MustCompile("^\\| ((?:`[\\w/]+`(?:, )?)+) \\|")
	anyLetter    = regexp.MustCompile(`[A-Za-z]`)
	startsUpper  = regexp.MustCompile(`^[A-Z]`)
	shellLetters = "()[]{},;:\"'=&"
)

// stale returns the names in a document that break a rule.
func (p *project) stale(document, text string) []staleName {
	var found []staleName
	inBlock := false
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			inBlock = !inBlock
			continue
		}
		if inBlock {
			continue
		}
		in := lineOf{project: p, document: document, packages: p.packagesOfRow(line)}
		spans := codeSpan.FindAllStringSubmatch(line, -1)
		if strings.HasPrefix(line, "    ") && len(spans) == 0 {
			spans = [][]string{{"", line}}
		}
		for _, span := range spans {
			for name, problem := range in.check(span[1]) {
				found = append(found, staleName{line: i + 1, name: name, problem: problem})
			}
		}
	}
	return found
}

// lineOf is a line that is being read.
type lineOf struct {
	*project
	document string
	packages []string // whose names the row lists
	folder   string   // that the line named last
}

// check returns what is wrong with the words between two back quotes.
func (l *lineOf) check(span string) map[string]string {
	problems := map[string]string{}
	words := strings.Fields(span)
	if len(words) > 0 && words[0] == "make" {
		for _, word := range words[1:] {
			if !makeTarget.MatchString(word) {
				break
			}
			if !l.targets[word] {
				problems["make "+word] = "the Makefile has no such target"
			}
		}
		return problems
	}
	rest, from := span, ""
	for i, word := range words {
		word = strings.Trim(word, shellLetters)
		if i > 0 && words[i-1] == "-C" {
			from = word
		}
		if !l.isPath(word) {
			continue
		}
		rest = strings.ReplaceAll(rest, word, "")
		if !l.pathExists(word) && (from == "" || !l.pathExists(path.Join(from, word))) {
			problems[word] = "there is no such file, folder or module"
		}
	}
	for _, name := range dotted.FindAllString(rest, -1) {
		if !l.symbolExists(strings.Split(name, ".")) && !isInstrument(name) {
			problems[name] = "no source declares or uses it"
		}
	}
	if name := strings.TrimSuffix(strings.TrimPrefix(span, "*"), "()"); mixedCase.MatchString(name) {
		switch {
		case len(l.packages) > 0 && !l.declaredIn(l.packages, name):
			problems[name] = "not declared in " + strings.Join(l.packages, ", ")
		case !l.identifiers[name] && !l.fileNames[name]:
			problems[name] = "no source has this identifier"
		}
	}
	return problems
}

func isInstrument(name string) bool {
	return slices.ContainsFunc(instruments.All(), func(i *metrics.Instrument) bool { return i.Name == name })
}

func (l *lineOf) isPath(word string) bool {
	if !pathWord.MatchString(strings.TrimPrefix(word, "./")) || !anyLetter.MatchString(word) || strings.HasPrefix(word, "-") {
		return false
	}
	first, _, slash := strings.Cut(strings.TrimPrefix(word, "./"), "/")
	if slash && strings.Contains(strings.TrimLeft(first, "."), ".") {
		return false // an address, such as github.com/…
	}
	return slash || strings.HasPrefix(word, "./") || fileEnding.MatchString(word)
}

func (l *lineOf) pathExists(word string) bool {
	pattern := path.Clean(placeholder.ReplaceAllString(strings.TrimSuffix(word, "..."), "*"))
	bare := !strings.Contains(strings.TrimSuffix(word, "/"), "/")
	folders := []string{".", path.Dir(l.document)}
	if bare && l.folder != "" {
		folders = append(folders, l.folder)
	}
	for _, folder := range folders {
		found, err := fs.Glob(l.files, path.Join(folder, pattern))
		if err != nil || len(found) == 0 {
			continue
		}
		if folder = found[0]; !bare || strings.HasSuffix(word, "/") {
			if fileEnding.MatchString(folder) {
				folder = path.Dir(folder)
			}
			l.folder = folder
		}
		return true
	}
	return bare && l.folder == "" && l.fileNames[pattern] || l.imports(pattern)
}
