package zklockkrb5_test

// The example on the package's page and in the README.

import (
	"context"
	"log"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/contrib/zklockkrb5"
)

func ExampleKeytab() {
	ctx, servers := context.Background(), "zk1.example.com:2181,zk2.example.com:2181,zk3.example.com:2181"

	locker, err := zklockkrb5.Keytab("locker@EXAMPLE.COM", "/etc/locker.keytab")
	if err != nil {
		log.Fatal(err)
	}
	s, err := zklock.Connect(ctx, servers, zklock.WithSASL(locker))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
}

// Another program runs kinit regularly.
func ExampleTicketCache() {
	ctx, servers := context.Background(), "zk1.example.com:2181"

	locker, err := zklockkrb5.TicketCache("/run/locker/krb5cc", zklockkrb5.WithServerPrincipal("zk/_HOST"))
	if err != nil {
		log.Fatal(err)
	}
	s, err := zklock.Connect(ctx, servers, zklock.WithSASL(locker))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
}
