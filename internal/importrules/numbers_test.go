package importrules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// exponentVerb prints some numbers with an exponent: 100 becomes 1e+02.
var exponentVerb = regexp.MustCompile(`%[-+# 0]*[0-9]*(\.[0-9]+)?[egG]\b`)

// TestNoExponents looks for verbs that print numbers in a way that people do not
// write them: schemas.Decimal and schemas.Rounded do.
func TestNoExponents(t *testing.T) {
	files := 0
	err := filepath.WalkDir("../..", func(path string, de fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if de.IsDir() && (de.Name() == "testdata" || de.Name() == ".git") {
			return filepath.SkipDir
		}
		if de.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		files++
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && exponentVerb.MatchString(lit.Value) {
				t.Errorf("%s: %s may print an exponent: use schemas.Decimal or schemas.Rounded", set.Position(lit.Pos()), lit.Value)
			}
			return true
		})
		return nil
	})
	if err != nil || files < 100 {
		t.Errorf("%d files looked at, %v", files, err)
	}
}
