package dialect_test

import (
	"reflect"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

var mark = regexp.MustCompile(`\?|\$\d+`)

// marks returns how many arguments a statement has. PostgreSQL may use one at several places.
func marks(text string) int {
	found := mark.FindAllString(text, -1)
	if len(found) > 0 && found[0] != "?" {
		slices.Sort(found)
		found = slices.Compact(found)
	}
	return len(found)
}

func eachKind(t *testing.T, test func(t *testing.T, s *dialect.Statements)) {
	t.Helper()
	for _, kind := range []dialect.Kind{dialect.PostgreSQL, dialect.MySQL, dialect.SQLite} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s, err := dialect.For(kind, "", "", "")
			require.NoError(t, err)
			test(t, s)
		})
	}
}

// A caller who gives arguments to a text can swap two of them, and the compiler does not notice.
func TestStatements_with_several_arguments_are_methods(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, s *dialect.Statements) {
		value := reflect.ValueOf(s).Elem()
		for i := range value.NumField() {
			field := value.Type().Field(i)
			if field.IsExported() && field.Type.Kind() == reflect.String {
				require.LessOrEqual(t, marks(value.Field(i).String()), 1, "%s needs a method", field.Name)
			}
		}
	})
}

// A builder that leaves out an argument is found here, on every database. That it has them in the
// right order is what the tests on real databases show.
func TestStatements_methods_give_an_argument_for_each_mark(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, s *dialect.Statements) {
		value, built := reflect.ValueOf(s), 0
		for i := range value.NumMethod() {
			method, name := value.Method(i), value.Type().Method(i).Name
			if method.Type().IsVariadic() || method.Type().NumOut() != 1 || method.Type().Out(0) != reflect.TypeFor[dialect.Query]() {
				continue
			}
			params := make([]reflect.Value, method.Type().NumIn())
			for n := range params {
				params[n] = reflect.Zero(method.Type().In(n))
			}
			query, ok := method.Call(params)[0].Interface().(dialect.Query)
			require.True(t, ok)
			if query.Text != "" { // which a database has not that does without the statement
				require.Len(t, query.Args, marks(query.Text), name)
				built++
			}
		}
		require.Greater(t, built, 50)
	})
}
