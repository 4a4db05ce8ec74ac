package zklock_test

// The example of SASL. Package sasl has the examples of its mechanisms.

import (
	"context"
	"fmt"
	"log"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/sasl"
	"github.com/zklock/zklock/zktest"
)

// saslServer starts a server that requires SASL, with one user, as a server with a JAAS file does.
func saslServer() (servers string, stop func()) {
	srv, err := zktest.NewServer(zktest.WithSASLUsers(map[string]string{"locker": "secret"}), zktest.WithConfig("sessionRequireClientSASLAuth=true"))
	if err != nil {
		log.Fatal(err)
	}
	return srv.Addr(), srv.Close
}

// On such a cluster, zk.AuthACL creates a lock that only this user can take, if the Session has no
// client certificate.
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
