package queue

// throughAll goes through all worlds that can come of one. It returns what was broken in one of them, or where nothing goes on, and "" if
// nothing was, with how many there are.
func throughAll[W comparable](w W, steps func(W) []W, brokenIn, atTheEnd func(W) string) (broken string, worlds int) {
	seen := map[W]bool{w: true}
	todo := []W{w}
	for len(todo) > 0 {
		w, todo = todo[len(todo)-1], todo[:len(todo)-1]
		next := steps(w)
		if len(next) == 0 {
			if broken := atTheEnd(w); broken != "" {
				return broken, len(seen)
			}
		}
		for _, n := range next {
			if broken := brokenIn(n); broken != "" {
				return broken, len(seen)
			}
			if !seen[n] {
				seen[n] = true
				todo = append(todo, n)
			}
		}
	}
	return "", len(seen)
}
