package zklock_test

// The example of SASL; package sasl has those of its mechanisms.

import (
	"context"
	"fmt"
	"log"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/sasl"
	"github.com/zklock/zklock/zktest"
)

// saslServer starts a server that serves no client without SASL, for one user, as one with a JAAS file does.
func saslServer() (servers string, stop func()) {
	srv, err := zktest.NewServer(zktest.WithSASLUsers(map[string]string{"locker": "secret"}), zktest.WithSASLRequired())
	if err != nil {
		log.Fatal(err)
	}
	return srv.Addr(), srv.Close
}

// On such a cluster, zk.AuthACL makes a lock that only this user can take.
func ExampleWithSASL() {
	servers, stop := saslServer()
	defer stop()
	ctx := context.Background()

	s, err := zklock.Connect(ctx, servers, zklock.WithSASL(sasl.DigestMD5("locker", "secret")))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	m, err := zklock.NewMutex(s, "/nightly", zklock.WithACL(zk.AuthACL(zk.PermAll)))
	if err != nil {
		log.Fatal(err)
	}
	err = m.Do(ctx, func(context.Context, *zklock.Hold) error {
		acl, _, err := s.Conn().GetACL("/nightly")
		fmt.Println(acl[0].Scheme, acl[0].ID)
		return err
	})
	fmt.Println(err)
	// Output:
	// sasl locker
	// <nil>
}
