package history_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/proof/torture/history"
)

func TestRead_gives_what_was_written(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for _, process := range []string{"producer-1/2", "producer-1/1"} {
		w, err := history.NewWriter(folder, process)
		require.NoError(t, err)
		w.Write(history.Record{Kind: history.Intended, Message: process, Key: "a\nb", Turn: 7, Plan: history.Slow})
		w.Write(history.Record{Kind: history.Unknown, Message: process, Outage: true, Detail: "lost"})
		require.NoError(t, w.Close())
	}
	_, err := history.NewWriter(folder, "producer-1/1")
	require.ErrorIs(t, err, os.ErrExist, "two incarnations never share a file")

	records, err := history.Read(folder)
	require.NoError(t, err)
	require.Len(t, records, 4)
	first := records[0]
	require.False(t, first.At.IsZero())
	first.At = records[1].At
	require.WithinDuration(t, first.At, first.System, time.Minute, "nothing has set the clock off here")
	first.System = time.Time{}
	require.Equal(t, history.Record{
		Process: "producer-1/1", Line: 1, At: records[1].At, Kind: history.Intended, Message: "producer-1/1",
		Key: "a\nb", Turn: 7, Plan: history.Slow,
	}, first)
	require.Equal(t, "producer-1/2", records[3].Process)
	require.True(t, records[3].Outage)
}

func TestWrite_from_many_goroutines_tears_no_line(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	w, err := history.NewWriter(folder, "consumer-1/1")
	require.NoError(t, err)
	var writers sync.WaitGroup
	for range 8 {
		writers.Go(func() {
			for range 200 {
				w.Write(history.Record{Kind: history.Saw, Message: "m"})
			}
		})
	}
	writers.Wait()
	records, err := history.Read(folder)
	require.NoError(t, err)
	require.Len(t, records, 8*200)
}

func TestRead_F5_leaves_out_only_a_torn_last_line(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file := filepath.Join(folder, "forwarder-1.1.jsonl")
	const whole = `{"process":"forwarder-1/1","line":1,"at":"2026-01-02T03:04:05Z","kind":"sent"}` + "\n"
	for _, torn := range []string{"", "{", `{"process":"forwarder-1/1","line":2,"at":"2026-01-02T03:04:05Z","kind":"sent"}`} {
		require.NoError(t, os.WriteFile(file, []byte(whole+torn), 0o600))
		records, err := history.Read(folder)
		require.NoError(t, err)
		require.Len(t, records, 1, torn)
	}
	for _, wrong := range []string{"{\n" + whole, whole + whole} {
		require.NoError(t, os.WriteFile(file, []byte(wrong), 0o600))
		_, err := history.Read(folder)
		require.Error(t, err, wrong)
	}
}
