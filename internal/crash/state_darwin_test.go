package crash

import "testing"

func (s *service) awaitState(t *testing.T, state byte) {
	t.Helper()
	if state == 'Z' {
		t.Skip("macOS has no process whose first thread alone has ended")
	}
}
