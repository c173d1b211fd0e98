package handle

import (
	"context"
	"database/sql/driver"
	"errors"
	"reflect"
	"time"
)

// maxPrepared is how many statements a connection keeps prepared for the engine.
const maxPrepared = 48

// prepared are the statements that one connection of the pool keeps prepared. Whoever has borrowed the connection uses
// them. A [database/sql.Stmt] cannot keep them: to it, each borrowed connection is a new one.
type prepared struct {
	used       time.Time
	statements map[string]*keptStatement
}

type keptStatement struct {
	driver.Stmt

	used time.Time
}

type keptKey struct{}

// Kept returns a context with which a statement stays prepared.
func Kept(ctx context.Context) context.Context { return context.WithValue(ctx, keptKey{}, true) }

// PrepareContext prepares a statement, or returns one that was kept.
func (b *borrowed) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if ctx.Value(keptKey{}) == nil || !reflect.ValueOf(b.Conn).Comparable() {
		made, err := b.prepareOnce(ctx, query)
		if err != nil {
			return nil, err
		}
		return &statement{Stmt: made, of: b}, nil
	}
	kept := b.of.preparedOf(b.Conn)
	if found := kept.statements[query]; found != nil {
		found.used = time.Now()
		return &statement{Stmt: found.Stmt, of: b, kept: true}, nil
	}
	made, err := b.prepareOnce(ctx, query)
	if err != nil {
		return nil, err
	}
	if len(kept.statements) >= maxPrepared {
		kept.dropOldest()
	}
	kept.statements[query] = &keptStatement{made, time.Now()}
	return &statement{Stmt: made, of: b, kept: true}, nil
}

func (b *borrowed) prepareOnce(ctx context.Context, query string) (driver.Stmt, error) {
	defer b.watch(ctx)()
	if preparer, is := b.Conn.(driver.ConnPrepareContext); is {
		made, err := preparer.PrepareContext(ctx, query)
		return made, b.saw(err)
	}
	made, err := b.Prepare(query)
	return made, b.saw(err)
}

// preparedOf returns the statements of a connection. When there are too many connections, it forgets some that the pool
// has closed.
func (c *connector) preparedOf(conn driver.Conn) *prepared {
	c.shared.mu.Lock()
	defer c.shared.mu.Unlock()
	found := c.shared.prepared[conn]
	if found == nil {
		if len(c.shared.prepared) > 2*c.pool.Stats().OpenConnections {
			c.shared.forgetOldest()
		}
		found = &prepared{statements: map[string]*keptStatement{}}
		c.shared.prepared[conn] = found
	}
	found.used = time.Now()
	return found
}

// forgetOldest forgets the connection that was not used for the longest time. Of more than twice as many connections as
// are open, it is a closed one, or it prepares its statements again.
func (s *shared) forgetOldest() {
	var oldest driver.Conn
	for conn, of := range s.prepared {
		if oldest == nil || of.used.Before(s.prepared[oldest].used) {
			oldest = conn
		}
	}
	delete(s.prepared, oldest)
}

// dropOldest closes the statement that was not used for the longest time.
func (p *prepared) dropOldest() {
	var oldest string
	for text, of := range p.statements {
		if oldest == "" || of.used.Before(p.statements[oldest].used) {
			oldest = text
		}
	}
	_ = p.statements[oldest].Close() // whoever drops it has borrowed the connection
	delete(p.statements, oldest)
}

// statement is a prepared statement of a borrowed connection.
type statement struct {
	driver.Stmt

	of   *borrowed
	kept bool
}

// Close closes the statement, unless it is kept.
func (s *statement) Close() error {
	if s.kept {
		return nil
	}
	return s.Stmt.Close()
}

// CheckNamedValue asks the statement of the driver, or its connection.
func (s *statement) CheckNamedValue(value *driver.NamedValue) error {
	if checker, is := s.Stmt.(driver.NamedValueChecker); is {
		return checker.CheckNamedValue(value)
	}
	return s.of.CheckNamedValue(value)
}

// ExecContext executes the statement.
func (s *statement) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	defer s.of.watch(ctx)()
	result, err := exec(ctx, s.Stmt, args)
	return result, s.of.saw(err)
}

// QueryContext executes the statement.
func (s *statement) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.of.query(ctx, func() (driver.Rows, error) {
		if queryer, is := s.Stmt.(driver.StmtQueryContext); is {
			return queryer.QueryContext(ctx, args)
		}
		values, err := positional(args)
		if err != nil {
			return nil, err
		}
		return s.Query(values) //nolint:staticcheck // the driver has nothing else
	})
}

func exec(ctx context.Context, in driver.Stmt, args []driver.NamedValue) (driver.Result, error) {
	if execer, is := in.(driver.StmtExecContext); is {
		return execer.ExecContext(ctx, args)
	}
	values, err := positional(args)
	if err != nil {
		return nil, err
	}
	return in.Exec(values) //nolint:staticcheck // the driver has nothing else
}

// positional returns arguments for drivers without names.
func positional(args []driver.NamedValue) ([]driver.Value, error) {
	values := make([]driver.Value, len(args))
	for i, arg := range args {
		if arg.Name != "" {
			return nil, errors.ErrUnsupported
		}
		values[i] = arg.Value
	}
	return values, nil
}
