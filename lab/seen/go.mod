module github.com/zklock/zklock/lab/seen

go 1.26.0

replace (
	github.com/zklock/zklock => ../../
	github.com/zklock/zklock/contrib/zklockotel => ../../contrib/zklockotel
	github.com/zklock/zklock/contrib/zklockprom => ../../contrib/zklockprom
)

require (
	github.com/go-zookeeper/zk v1.0.4
	github.com/prometheus/client_golang v1.25.0
	github.com/zklock/zklock v0.0.0-00010101000000-000000000000
	github.com/zklock/zklock/contrib/zklockotel v0.0.0-00010101000000-000000000000
	github.com/zklock/zklock/contrib/zklockprom v0.0.0-00010101000000-000000000000
	go.opentelemetry.io/otel/exporters/stdout/stdouttrace v1.43.0
	go.opentelemetry.io/otel/sdk v1.43.0
)

require (
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/go-logr/logr v1.4.4 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/prometheus/client_model v0.6.3 // indirect
	github.com/prometheus/common v0.72.0 // indirect
	github.com/prometheus/procfs v0.22.0 // indirect
	go.opentelemetry.io/auto/sdk v1.2.1 // indirect
	go.opentelemetry.io/otel v1.43.0 // indirect
	go.opentelemetry.io/otel/metric v1.43.0 // indirect
	go.opentelemetry.io/otel/trace v1.43.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)
