package cleanup

import (
	"context"
	"database/sql"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// walkUniqueKeys returns the work for unique keys whose message is gone. Drainers write nothing
// about them, so the primary key is walked page by page, again and again. A key is deleted only if
// it still has the message that was seen to be gone: a producer may have stored another one
// meanwhile.
func walkUniqueKeys(batch int) work {
	return func(ctx context.Context, c *Cleaner, ch *task) (removed int, pause time.Duration, err error) {
		started := time.Now()
		page, gone, err := c.uniqueKeys(ctx, append([]byte{}, ch.cursor...), batch) // not nil: no key compares as greater than NULL
		if err == nil && len(gone) > 0 {
			removed, err = c.deleteUniqueKeys(ctx, gone)
		}
		if err != nil {
			return 0, 0, AsLeft(err, c.statements)
		}
		var last []byte
		if len(page) == batch {
			last = page[batch-1].Digest
		}
		if err := c.save(ctx, ch, last); err != nil {
			return removed, 0, err
		}
		if len(page) == 0 {
			return removed, ch.interval, nil
		}
		if last == nil { // the end of the table
			return removed, c.config.Interval, nil
		}
		return removed, min((paceShare-1)*time.Since(started), c.config.Interval), nil
	}
}

// uniqueKeys reads a page of keys, and returns those of them whose message is gone, too.
func (c *Cleaner) uniqueKeys(ctx context.Context, after []byte, limit int) (page, gone []dialect.UniqueKey, err error) {
	err = spool.Each(ctx, c.db, c.statements.UniqueKeysPage(after, limit), func(scan spool.Scan) error {
		var key dialect.UniqueKey
		var isGone bool
		err := scan(&key.Digest, &key.ID, &key.CreatedAt, &isGone)
		page = append(page, key)
		if isGone {
			gone = append(gone, key)
		}
		return err
	})
	return page, gone, err
}

// deleteUniqueKeys deletes keys in one transaction, in the order of their digests, as producers
// lock them.
func (c *Cleaner) deleteUniqueKeys(ctx context.Context, keys []dialect.UniqueKey) (removed int, err error) {
	err = spool.InTx(ctx, c.db, c.statements, func(tx *sql.Tx) error {
		removed = 0
		for _, key := range keys {
			n, err := spool.Affected(spool.Directly(ctx, tx, c.statements.RemoveUniqueKey(key)))
			if err != nil {
				return err
			}
			removed += int(n)
		}
		return nil
	})
	return removed, err
}
