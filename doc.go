// Package zklock holds ZooKeeper lock recipes for Go services.
package zklock
