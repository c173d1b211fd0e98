package testcluster

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// copyTo takes a base backup of the primary. The binaries of chosen versions have no pg_basebackup.
func (p *Postgres) copyTo(folder string) error {
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if _, err := os.Stat(p.binary("pg_basebackup")); err != nil {
		return p.copyByHand(folder)
	}
	return p.work.run(p.binary("pg_basebackup"), "-h", "127.0.0.1", "-p", strconv.Itoa(p.primary.port), "-U", "postgres",
		"-D", folder, "-X", "stream", "-c", "fast", "--no-sync")
}

// copyByHand copies the files of the primary while it runs, as its manual says. It needs PostgreSQL
// 15.
func (p *Postgres) copyByHand(folder string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startDeadline)
	defer cancel()
	db, err := sql.Open("postgres", dsn(local(p.primary.port), "postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	conn, err := db.Conn(ctx) // the backup ends with its session
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.ExecContext(ctx, "SELECT pg_backup_start('copy', true)"); err != nil {
		return fmt.Errorf("begin a backup: %w", err)
	}
	if err := p.work.copyTree(p.data(p.primary), folder, leftOut); err != nil {
		return err
	}
	var label string
	if err := conn.QueryRowContext(ctx, "SELECT labelfile FROM pg_backup_stop(false)").Scan(&label); err != nil {
		return fmt.Errorf("end the backup: %w", err)
	}
	// What was written meanwhile is still there: see wal_keep_size.
	if err := p.work.copyTree(filepath.Join(p.data(p.primary), "pg_wal"), filepath.Join(folder, "pg_wal"), nil); err != nil {
		return err
	}
	return p.work.append(filepath.Join(folder, "backup_label"), label)
}

// leftOut are files of a server that a copy must not have. Of folders, the content is left out.
var leftOut = []string{
	"postmaster.pid", "postmaster.opts", "pg_wal", "pg_replslot", "pg_dynshmem", "pg_notify", "pg_serial", "pg_snapshots", "pg_stat_tmp", "pg_subtrans",
}

// copyTree copies a folder of a server, which may remove files meanwhile.
func (w *workspace) copyTree(from, to string, without []string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		top, below, inside := strings.Cut(name, string(filepath.Separator))
		if slices.Contains(without, top) && (inside && below != "" || !entry.IsDir()) {
			return nil
		}
		err = w.copyEntry(path, filepath.Join(to, name), entry.IsDir())
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
}

// copyEntry copies one file, or makes a folder, for the user of the servers.
func (w *workspace) copyEntry(from, to string, folder bool) error {
	if folder {
		return w.mkdir(to)
	}
	source, err := os.Open(from) //nolint:gosec // our folder
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600) //nolint:gosec // our folder
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close(), w.own(to))
}
