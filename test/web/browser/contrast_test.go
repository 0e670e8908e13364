// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"image"
	"image/color"
	"image/draw"
	"math"
	"testing"
)

func TestContrast(t *testing.T) {
	for _, c := range []struct {
		a, b color.Color
		want float64
	}{
		{color.White, color.Black, 21},
		{color.White, color.White, 1},
		{color.RGBA{0x76, 0x76, 0x76, 255}, color.White, 4.54},
		{color.RGBA{255, 0, 0, 255}, color.White, 4.0},
	} {
		if got := Contrast(c.a, c.b); math.Abs(got-c.want) > 0.005 {
			t.Errorf("Contrast(%v, %v) = %.3f, want %.2f", c.a, c.b, got, c.want)
		}
	}
}

func TestCommonest(t *testing.T) {
	picture := image.NewRGBA(image.Rect(0, 0, 10, 10))
	draw.Draw(picture, picture.Bounds(), image.NewUniform(color.RGBA{10, 20, 30, 255}), image.Point{}, draw.Src)
	draw.Draw(picture, image.Rect(0, 0, 10, 4), image.White, image.Point{}, draw.Src)
	if got := commonest(picture); got != (color.RGBA{10, 20, 30, 255}) {
		t.Errorf("commonest is %v", got)
	}
}
