package inboxstore

import (
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func claimOf(id string) []byte { return Key{Consumer: "billing", MessageID: id}.bytes() }

func TestRemembered_distinguishes_claims_of_any_length(t *testing.T) {
	t.Parallel()
	r := remember(defaultCacheSize)
	for _, id := range []string{uuid.NewString(), "01ARZ3NDEKTSV4RRFFQ69G5FAV", "1", strings.Repeat("i", maxTextID), strings.Repeat("i", maxTextID+1)} {
		require.False(t, r.has(claimOf(id)))
		r.add(claimOf(id))
		require.True(t, r.has(claimOf(id)))
		require.False(t, r.has(lockOf(claimOf(id))), "a key that differs in one byte")
	}
	for _, none := range []*remembered{{}, remember(-1)} {
		none.add(claimOf("1"))
		require.False(t, none.has(claimOf("1")))
		none.forget(claimOf("1"))
	}
}

func TestRemembered_takes_memory_with_the_first_claim(t *testing.T) {
	t.Parallel()
	r := remember(defaultCacheSize)
	require.False(t, r.has(claimOf("1")))
	r.forget(claimOf("1"))
	require.Nil(t, r.cache.Load(), "a store without handled messages needs none")
	var adding sync.WaitGroup
	for i := range 8 {
		adding.Go(func() { r.add(claimOf(strconv.Itoa(i))) })
	}
	adding.Wait()
	for i := range 8 {
		require.True(t, r.has(claimOf(strconv.Itoa(i))), "none is in another cache than the one that stays")
	}
}

func TestRemembered_forgets_the_oldest(t *testing.T) {
	t.Parallel()
	r := remember(defaultCacheSize)
	claims := make([][]byte, 3*defaultCacheSize)
	for i := range claims { // the same ones each time: which part of the cache they come into is their luck
		claims[i] = claimOf(uuid.NewSHA1(uuid.Nil, []byte(strconv.Itoa(i))).String())
		r.add(claims[i])
	}
	count := func(claims [][]byte) (found int) {
		for _, claim := range claims {
			if r.has(claim) {
				found++
			}
		}
		return found
	}
	latest := claims[len(claims)-defaultCacheSize:]
	require.Greater(t, count(latest), defaultCacheSize*9/10, "about as many as were asked for")
	require.Less(t, count(claims), defaultCacheSize*5/4, "and not many more")
	require.Zero(t, count(claims[:defaultCacheSize]))
}

// BenchmarkRemembered remembers new claims, and reports what all of them take in memory.
func BenchmarkRemembered(b *testing.B) {
	for _, size := range []int{defaultCacheSize, 10 * defaultCacheSize} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			claims := make([][]byte, 3*size)
			for i := range claims {
				claims[i] = claimOf(uuid.NewString())
			}
			before := heap()
			r := remember(size)
			for _, claim := range claims {
				r.add(claim)
			}
			megabytes := float64(heap()-before) / 1e6
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				claim := claims[i%len(claims)]
				if !r.has(claim) {
					r.add(claim)
				}
			}
			b.ReportMetric(megabytes, "MB")
		})
	}
}

func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
