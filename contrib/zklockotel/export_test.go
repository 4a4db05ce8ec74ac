package zklockotel

// Remembered says how much is kept of acquires and holds under way.
func Remembered(t *Telemetry) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.mu.open) + len(t.mu.grants)
	for _, holds := range t.mu.elections {
		n += len(holds)
	}
	return n
}
