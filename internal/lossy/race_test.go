//go:build race

package lossy

func init() { raced = true }
