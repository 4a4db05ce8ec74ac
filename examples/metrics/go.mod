module github.com/zklock/zklock/examples/metrics

go 1.25.0

replace (
	github.com/zklock/zklock => ../../
	github.com/zklock/zklock/contrib/zklockprom => ../../contrib/zklockprom
)

require (
	github.com/prometheus/client_golang v1.23.2
	github.com/zklock/zklock v0.0.0-00010101000000-000000000000
	github.com/zklock/zklock/contrib/zklockprom v0.0.0-00010101000000-000000000000
)

require (
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/go-zookeeper/zk v1.0.4 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/prometheus/client_model v0.6.2 // indirect
	github.com/prometheus/common v0.66.1 // indirect
	github.com/prometheus/procfs v0.16.1 // indirect
	go.yaml.in/yaml/v2 v2.4.2 // indirect
	golang.org/x/sys v0.37.0 // indirect
	google.golang.org/protobuf v1.36.8 // indirect
)
