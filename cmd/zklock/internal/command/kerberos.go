package command

import (
	"github.com/zklock/zklock/contrib/zklockkrb5"
	"github.com/zklock/zklock/sasl"
)

// kerberosLogin has the Kerberos flags: files and names, and no secret.
type kerberosLogin struct {
	Keytab          string // the file; "" for a ticket cache
	Principal       string // the principal whose key is in the keytab
	Config          string // krb5.conf; "" for the default
	ServerPrincipal string // "" for the default
	HostAsGiven     bool   // the principal has the host of --servers
}

// mechanism creates the mechanism of --sasl kerberos.
func (l kerberosLogin) mechanism() (sasl.Mechanism, error) {
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
