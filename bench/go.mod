module github.com/zklock/zklock/bench

go 1.25.0

replace github.com/zklock/zklock => ../

require (
	github.com/go-zookeeper/zk v1.0.4
	github.com/zklock/zklock v0.0.0-00010101000000-000000000000
)

require github.com/google/uuid v1.6.0 // indirect
