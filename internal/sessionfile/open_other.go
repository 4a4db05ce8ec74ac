//go:build !linux && !darwin

package sessionfile

import (
	"fmt"
	"runtime"
)

func open(string, []string) (*File, Found, error) {
	return nil, Found{}, fmt.Errorf("session files need Linux or macOS, and this is %s", runtime.GOOS)
}
