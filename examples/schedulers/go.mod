module github.com/zklock/zklock/examples/schedulers

go 1.25.0

replace github.com/zklock/zklock => ../../

require (
	github.com/robfig/cron/v3 v3.0.1
	github.com/zklock/zklock v0.0.0-00010101000000-000000000000
	go.uber.org/fx v1.24.0
	golang.org/x/sync v0.20.0
)

require (
	github.com/go-zookeeper/zk v1.0.4 // indirect
	github.com/google/uuid v1.6.0 // indirect
	go.uber.org/dig v1.19.0 // indirect
	go.uber.org/multierr v1.10.0 // indirect
	go.uber.org/zap v1.26.0 // indirect
	golang.org/x/sys v0.37.0 // indirect
)
