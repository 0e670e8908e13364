// SPDX-License-Identifier: Apache-2.0

package main

import (
	"image"
	"image/color"
	"image/draw"
	"math"
	"testing"
)

func TestExpand(t *testing.T) {
	values := map[string]string{"PORT": "8080", "EMPTY": ""}
	for given, want := range map[string]string{
		"plain":           "plain",
		"$(PORT)":         "8080",
		"[$(EMPTY)]":      "[]",
		"$(UNKNOWN)":      "$(UNKNOWN)",
		"$$(PORT)":        "$(PORT)",
		"$$$(PORT)":       "$8080",
		"$PORT ${PORT} $": "$PORT ${PORT} $",
		"$$":              "$",
		"$(PORT":          "$(PORT",
		"$()":             "$()",
		"50 $ü":           "50 $ü",
	} {
		if got := expand(given, values); got != want {
			t.Errorf("expand(%q) = %q, want %q", given, got, want)
		}
	}
}

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
		if got := contrast(c.a, c.b); math.Abs(got-c.want) > 0.005 {
			t.Errorf("contrast(%v, %v) = %.3f, want %.2f", c.a, c.b, got, c.want)
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
