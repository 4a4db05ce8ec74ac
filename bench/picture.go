package main

import (
	"fmt"
	"strings"
)

// picture draws the speed of each rival in each workload, as a ratio to zk.Lock: a longer bar is
// better.
func picture(ws []workload, rivals []rival, results map[string]map[string][]result) string {
	const (
		left, width, row, gap = 190, 420, 13, 14
		most                  = 3.0 // where bars are cut off
	)
	var b strings.Builder
	y := 44
	for _, w := range ws {
		base := results[w.Name]["zk.Lock"]
		if len(base) == 0 || w.Waiters > 0 || w.Holding || w.TakeOver {
			continue
		}
		_, of, isTime := figure(w)
		ref, _, _ := spread(base, of)
		fmt.Fprintf(&b, `<text class="t" x="%d" y="%d" text-anchor="end">%s</text>`+"\n", left-12, y+row, w.Name)
		for _, r := range rivals {
			got := results[w.Name][r.name]
			if len(got) == 0 || r.name == "zk.Lock" {
				continue
			}
			median, _, _ := spread(got, of)
			ratio := median / ref
			if isTime {
				ratio = ref / median
			}
			class := "o"
			if r.name == "zklock" {
				class = "z"
			}
			length := min(ratio, most) / most * width
			fmt.Fprintf(&b, `<rect class="%s" x="%d" y="%d" width="%.0f" height="%d"/>`+"\n", class, left, y, length, row-2)
			fmt.Fprintf(&b, `<text class="s" x="%.0f" y="%d">%s %.2f</text>`+"\n", left+length+6, y+row-4, r.name, ratio)
			y += row
		}
		y += gap
	}
	one := left + width/most
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 %d" font-family="system-ui, sans-serif" font-size="12">
<title>Speed beside zk.Lock</title>
<style>.bg{fill:#ffffff}text{fill:#1f2328}.s{font-size:10px;fill:#59636e;paint-order:stroke;stroke:#ffffff;stroke-width:3px}.z{fill:#1f6feb}.o{fill:#9aa4ae}.l{stroke:#59636e;stroke-dasharray:3 3}
@media (prefers-color-scheme: dark){.bg{fill:#0d1117}text{fill:#e6edf3}.s{fill:#9198a1;stroke:#0d1117}.z{fill:#4493f8}.o{fill:#59636e}.l{stroke:#9198a1}}</style>
<rect class="bg" width="760" height="%d"/>
<text x="16" y="20">How fast, as a ratio to go-zookeeper's lock (the dashed line): longer is better</text>
<line class="l" x1="%.0f" y1="32" x2="%.0f" y2="%d"/>
%s</svg>
`, y+6, y+6, one, one, y, b.String())
}
