package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// project has the names that the documents may use: those of folders, files, make targets, and
// symbols of all modules.
type project struct {
	files       fs.FS
	fileNames   map[string]bool // without their folders
	targets     map[string]bool // of the Makefile
	importPaths map[string]bool // and modules
	foreign     map[string]bool // names of packages that are not ours
	packages    map[string]map[string]bool
	folders     map[string]string          // the package of a folder
	members     map[string]map[string]bool // fields and methods, by Type and by package.Type
	fieldTypes  map[string]map[string]bool // the types of the fields with a name
	selectors   map[string]bool            // a.b, as the sources write it
	identifiers map[string]bool
}

var (
	versionOf   = regexp.MustCompile(`^v\d+$`)
	moduleOf    = regexp.MustCompile(`(?m)^(?:require |module |\t)([\w.-]+(?:/[\w.-]+)+)`)
	targetOf    = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
	packageTree = map[string]bool{".git": true, "bin": true, "testdata": true, "node_modules": true}
)

func readProject(t *testing.T, files fs.FS) *project {
	t.Helper()
	p := &project{
		files: files, fileNames: map[string]bool{}, targets: map[string]bool{}, importPaths: map[string]bool{}, foreign: map[string]bool{},
		packages: map[string]map[string]bool{}, folders: map[string]string{}, members: map[string]map[string]bool{},
		fieldTypes: map[string]map[string]bool{}, selectors: map[string]bool{}, identifiers: map[string]bool{},
	}
	ours := ""
	require.NoError(t, fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if packageTree[entry.Name()] {
				return fs.SkipDir
			}
			return nil
		}
		p.fileNames[entry.Name()] = true
		switch {
		case strings.HasSuffix(name, ".go"):
			p.readSource(t, name)
		case name == "Makefile":
			for _, found := range targetOf.FindAllSubmatch(p.read(t, name), -1) {
				p.targets[string(found[1])] = true
			}
		case entry.Name() == "go.mod":
			modules := moduleOf.FindAllSubmatch(p.read(t, name), -1)
			for _, found := range modules {
				p.importPaths[string(found[1])] = true
			}
			if name == "go.mod" {
				ours = string(modules[0][1])
			}
		}
		return nil
	}))
	for imported := range p.importPaths {
		if imported == ours || strings.HasPrefix(imported, ours+"/") {
			continue
		}
		parts := strings.Split(imported, "/")
		if last := len(parts) - 1; last > 0 && versionOf.MatchString(parts[last]) {
			parts = parts[:last]
		}
		p.foreign[parts[len(parts)-1]] = true
	}
	return p
}

func (p *project) read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := fs.ReadFile(p.files, name)
	require.NoError(t, err)
	return text
}

func (p *project) readSource(t *testing.T, name string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, p.read(t, name), parser.SkipObjectResolution)
	require.NoError(t, err)
	for _, imported := range file.Imports {
		full, err := strconv.Unquote(imported.Path.Value)
		require.NoError(t, err)
		p.importPaths[full] = true
	}
	of := strings.TrimSuffix(file.Name.Name, "_test")
	p.folders[path.Dir(name)] = of
	for _, declaration := range file.Decls {
		p.declare(of, declaration)
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.Ident:
			p.identifiers[node.Name] = true
		case *ast.SelectorExpr:
			if of, ok := node.X.(*ast.Ident); ok {
				p.selectors[of.Name+"."+node.Sel.Name] = true
			}
		}
		return true
	})
}

func (p *project) declare(of string, declaration ast.Decl) {
	switch declaration := declaration.(type) {
	case *ast.FuncDecl:
		if declaration.Recv == nil {
			add(p.packages, of, declaration.Name.Name)
			return
		}
		p.addMember(of, nameOfType(declaration.Recv.List[0].Type), declaration.Name.Name)
	case *ast.GenDecl:
		for _, spec := range declaration.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					add(p.packages, of, name.Name)
				}
			case *ast.TypeSpec:
				add(p.packages, of, spec.Name.Name)
				p.addMembers(of, spec.Name.Name, spec.Type)
			}
		}
	}
}

func (p *project) addMembers(of, name string, definition ast.Expr) {
	var fields *ast.FieldList
	switch definition := definition.(type) {
	case *ast.StructType:
		fields = definition.Fields
	case *ast.InterfaceType:
		fields = definition.Methods
	default:
		return
	}
	for _, field := range fields.List {
		if len(field.Names) == 0 {
			p.addMember(of, name, nameOfType(field.Type))
		}
		for _, member := range field.Names {
			p.addMember(of, name, member.Name)
			add(p.fieldTypes, member.Name, nameOfType(field.Type))
		}
	}
}

func (p *project) addMember(of, name, member string) {
	add(p.members, name, member)
	add(p.members, of+"."+name, member)
}

func add(sets map[string]map[string]bool, name, member string) {
	if sets[name] == nil {
		sets[name] = map[string]bool{}
	}
	sets[name][member] = true
}

// nameOfType returns T for T, *T, T[X] and pkg.T.
func nameOfType(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr:
		return nameOfType(of.X)
	case *ast.IndexExpr:
		return nameOfType(of.X)
	case *ast.IndexListExpr:
		return nameOfType(of.X)
	case *ast.SelectorExpr:
		return of.Sel.Name
	case *ast.Ident:
		return of.Name
	}
	return ""
}

// symbolExists tells whether the sources have pkg.Name, pkg.Type.Member or Type.Member. A name in
// small letters that belongs to no package of ours, such as the column of a table, counts as no
// symbol.
func (p *project) symbolExists(parts []string) bool {
	names, isPackage := p.packages[parts[0]]
	members, isType := p.members[parts[0]]
	switch {
	case !isPackage && !startsUpper.MatchString(parts[1]):
		return !isType || !startsUpper.MatchString(parts[0]) || members[parts[1]]
	case isPackage && names[parts[1]]:
		return len(parts) == 2 || p.members[parts[0]+"."+parts[1]][parts[2]]
	case isPackage && len(parts) == 2 && p.declaredIn(parts[:1], parts[1]), isType && members[parts[1]]:
		return true
	}
	for name := range p.fieldTypes[parts[0]] {
		if p.members[name][parts[1]] {
			return true
		}
	}
	return p.selectors[parts[0]+"."+parts[1]] || p.foreign[parts[0]] && !isPackage
}

// packagesOfRow returns the packages that the first cell of a row names, if it names nothing else.
func (p *project) packagesOfRow(line string) []string {
	cell := firstCell.FindStringSubmatch(line)
	if cell == nil {
		return nil
	}
	var packages []string
	for _, span := range codeSpan.FindAllStringSubmatch(cell[1], -1) {
		name := path.Base(span[1])
		if of, ok := p.folders[span[1]]; ok {
			name = of
		}
		if p.packages[name] == nil {
			return nil
		}
		packages = append(packages, name)
	}
	return packages
}

// declaredIn tells whether one of the packages, or a type of one, declares the name.
func (p *project) declaredIn(packages []string, name string) bool {
	return slices.ContainsFunc(packages, func(of string) bool {
		if p.packages[of][name] {
			return true
		}
		for member := range p.packages[of] {
			if p.members[of+"."+member][name] {
				return true
			}
		}
		return false
	})
}

// imports tells whether a path is a part of one that a source imports or a go.mod requires.
func (p *project) imports(part string) bool {
	for imported := range p.importPaths {
		if strings.Contains("/"+imported+"/", "/"+part+"/") {
			return true
		}
	}
	return false
}
