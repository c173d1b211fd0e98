package browser_test

import (
	"bytes"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the screenshots of docs/dashboard")

// maxPicture is the largest size of a committed screenshot, in bytes.
const maxPicture = 60_000

// pictures writes screenshots: all of them to a folder of the test, and with -update a few to
// docs/dashboard.
type pictures struct {
	*testing.T

	folder string
}

func newPictures(t *testing.T) pictures {
	t.Helper()
	folder := os.Getenv("POSTBOX_SCREENSHOTS")
	if folder == "" {
		folder = t.TempDir()
	}
	t.Logf("the screenshots are in %s; set POSTBOX_SCREENSHOTS to a folder that stays", folder)
	return pictures{t, folder}
}

// committed says whether a picture is one of those in the documents.
func committed(name string, width int64, colours string) bool {
	switch {
	case name == "problem":
		return false
	case width == wide:
		return colours == light
	default:
		return colours == dark && (name == "overview" || name == "messages")
	}
}

func (p pictures) keep(name string, width int64, colours string, content []byte) {
	p.Helper()
	file := fmt.Sprintf("%s-%d-%s.png", name, width, colours)
	require.NoError(p, os.WriteFile(filepath.Join(p.folder, file), content, 0o600))
	if !*update || !committed(name, width, colours) {
		return
	}
	small := p.reduced(content)
	require.Less(p, len(small), maxPicture, file)
	folder := filepath.Join("..", "..", "docs", "dashboard")
	require.NoError(p, os.MkdirAll(folder, 0o750))
	require.NoError(p, os.WriteFile(filepath.Join(folder, file), small, 0o600))
}

// maxHeight is how much of a long page a committed picture has.
const maxHeight = 800

// reduced cuts a picture off and gives it 128 colours, which makes it a quarter as large and looks
// the same.
func (p pictures) reduced(content []byte) []byte {
	p.Helper()
	full, err := png.Decode(bytes.NewReader(content))
	require.NoError(p, err)
	bounds := full.Bounds()
	bounds.Max.Y = min(bounds.Max.Y, maxHeight)
	small := image.NewPaletted(bounds, paletteOf(full, bounds))
	nearest := map[color.RGBA]uint8{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			c := color.RGBAModel.Convert(full.At(x, y)).(color.RGBA)
			index, known := nearest[c]
			if !known {
				index = uint8(small.Palette.Index(c)) //nolint:gosec // at most 128
				nearest[c] = index
			}
			small.SetColorIndex(x, y, index)
		}
	}
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	require.NoError(p, encoder.Encode(&out, small))
	return out.Bytes()
}

// paletteOf returns the most frequent colours, of which no two are close to each other.
func paletteOf(full image.Image, bounds image.Rectangle) color.Palette {
	const most, bits = 128, 0xf8
	counts := map[color.RGBA]map[color.RGBA]int{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			c := color.RGBAModel.Convert(full.At(x, y)).(color.RGBA)
			box := color.RGBA{c.R & bits, c.G & bits, c.B & bits, c.A}
			if counts[box] == nil {
				counts[box] = map[color.RGBA]int{}
			}
			counts[box][c]++
		}
	}
	type entry struct {
		of    color.RGBA
		total int
	}
	var boxes []entry
	for _, members := range counts {
		e, highest := entry{}, 0
		for c, n := range members {
			e.total += n
			if n > highest {
				e.of, highest = c, n
			}
		}
		boxes = append(boxes, e)
	}
	slices.SortFunc(boxes, func(a, b entry) int { return b.total - a.total })
	palette := color.Palette{}
	for _, e := range boxes[:min(len(boxes), most)] {
		palette = append(palette, e.of)
	}
	return palette
}
