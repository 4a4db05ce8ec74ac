package command

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  none,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(c.OutOrStdout(), "zklock", version())
			return err
		},
	}
}

// version returns what the Go command recorded in the binary: the module's version, or the commit
// it was built from.
func version() string {
	v, info := "(unknown)", runtime.Version()+" "+runtime.GOOS+"/"+runtime.GOARCH
	bi, ok := debug.ReadBuildInfo()
	if !ok {
		return v + " " + info
	}
	if bi.Main.Version != "" {
		v = bi.Main.Version
	}
	for _, s := range bi.Settings {
		if s.Key == "vcs.revision" && v == "(devel)" {
			v = s.Value
		}
	}
	return v + " " + info
}
