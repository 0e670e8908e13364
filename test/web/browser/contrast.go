// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// Contrast that WCAG 2 asks of text at level AA: of usual text, and of large one.
const (
	Minimum      = 4.5
	MinimumLarge = 3.0
)

// luminance is the relative luminance of WCAG 2, 0 to 1.
func luminance(c color.Color) float64 {
	r, g, b, _ := c.RGBA()
	part := func(v uint32) float64 {
		s := float64(v) / 0xffff
		if s <= 0.04045 {
			return s / 12.92
		}
		return math.Pow((s+0.055)/1.055, 2.4)
	}
	return 0.2126*part(r) + 0.7152*part(g) + 0.0722*part(b)
}

// Contrast is the ratio of WCAG 2, 1 to 21.
func Contrast(a, b color.Color) float64 {
	la, lb := luminance(a), luminance(b)
	return (max(la, lb) + 0.05) / (min(la, lb) + 0.05)
}

// commonest is the colour that most of a picture's pixels have: what text stands on.
func commonest(picture image.Image) color.Color {
	counts := map[color.RGBA]int{}
	var best color.RGBA
	bounds := picture.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			r, g, b, _ := picture.At(x, y).RGBA()
			c := color.RGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), 255}
			counts[c]++
			if counts[c] > counts[best] {
				best = c
			}
		}
	}
	return best
}

// text is a piece of text on the page.
type text struct {
	Text                string
	X, Y, Width, Height float64
	R, G, B             uint8
}

// texts are all that a reader sees, with their computed colours.
const texts = `(() => {
	const found = [];
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walk.nextNode()) {
		const node = walk.currentNode, parent = node.parentElement;
		if (!node.textContent.trim() || parent.closest('script, style, noscript, title')) continue;
		const range = document.createRange();
		range.selectNodeContents(node);
		const [r, g, b] = getComputedStyle(parent).color.match(/[\d.]+/g).map(Number);
		for (const box of range.getClientRects()) {
			if (box.width < 2 || box.height < 2) continue;
			found.push({Text: node.textContent.trim().slice(0, 30), X: box.x + scrollX, Y: box.y + scrollY, Width: box.width, Height: box.height, R: r, G: g, B: b});
		}
	}
	return found;
})()`

// Measure returns the least contrast of any text on the page: its computed colour against what the
// screen shows behind it.
func (t *Tab) Measure() (float64, string, error) {
	found, err := Evaluate[[]text](t, texts)
	if err != nil {
		return 0, "", err
	}
	if len(found) == 0 {
		return 0, "", fmt.Errorf("the page has no text")
	}
	least, where := math.Inf(1), ""
	beyond := true
	for _, piece := range found {
		shot, err := chromedp.Call(t.Ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{
			CaptureBeyondViewport: &beyond,
			Clip:                  &page.Viewport{X: piece.X, Y: piece.Y, Width: piece.Width, Height: piece.Height, Scale: 1},
		})
		if err != nil {
			return 0, "", fmt.Errorf("take a picture of %q: %w", piece.Text, err)
		}
		picture, err := png.Decode(bytes.NewReader(shot.Data))
		if err != nil {
			return 0, "", fmt.Errorf("read the picture of %q: %w", piece.Text, err)
		}
		if c := Contrast(color.RGBA{piece.R, piece.G, piece.B, 255}, commonest(picture)); c < least {
			least, where = c, piece.Text
		}
	}
	return least, where, nil
}

// Brightness is the mean luminance of what the screen shows, 0 to 1.
func (t *Tab) Brightness() (float64, error) {
	shot, err := chromedp.Run(t.Ctx, chromedp.CaptureScreenshot())
	if err != nil {
		return 0, fmt.Errorf("take a picture: %w", err)
	}
	picture, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		return 0, fmt.Errorf("read the picture: %w", err)
	}
	bounds, sum := picture.Bounds(), 0.0
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			sum += luminance(picture.At(x, y))
		}
	}
	return sum / float64(bounds.Dx()*bounds.Dy()), nil
}
