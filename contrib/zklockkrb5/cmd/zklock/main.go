// Command zklock is the command of the root's cmd/zklock, with Kerberos: --sasl kerberos.
package main

import (
	"github.com/zklock/zklock/contrib/zklockkrb5"
	"github.com/zklock/zklock/internal/command"
	"github.com/zklock/zklock/sasl"
)

func main() {
	command.Kerberos = mechanism
	command.Main()
}

func mechanism(l command.KerberosLogin) (sasl.Mechanism, error) {
	var opts []zklockkrb5.Option
	if l.Config != "" {
		opts = append(opts, zklockkrb5.WithConfig(l.Config))
	}
	if l.ServerPrincipal != "" {
		opts = append(opts, zklockkrb5.WithServerPrincipal(l.ServerPrincipal))
	}
	if l.HostAsGiven {
		opts = append(opts, zklockkrb5.WithHostAsGiven())
	}
	if l.Keytab == "" {
		return zklockkrb5.TicketCache("", opts...)
	}
	return zklockkrb5.Keytab(l.Principal, l.Keytab, opts...)
}
