module github.com/postbox-go/watermill-postbox/examples

go 1.25.0

replace (
	github.com/postbox-go/watermill-postbox => ..
	github.com/postbox-go/watermill-postbox/brokers/amqpbroker => ../brokers/amqpbroker
	github.com/postbox-go/watermill-postbox/brokers/kafkabroker => ../brokers/kafkabroker
	github.com/postbox-go/watermill-postbox/metrics/minutes => ../metrics/minutes
	github.com/postbox-go/watermill-postbox/metrics/prommetrics => ../metrics/prommetrics
	github.com/postbox-go/watermill-postbox/tail/pgtail => ../tail/pgtail
	github.com/postbox-go/watermill-postbox/tracing/oteltracing => ../tracing/oteltracing
)

require (
	github.com/ThreeDotsLabs/watermill v1.5.1
	github.com/ThreeDotsLabs/watermill-amqp/v2 v2.1.3
	github.com/ThreeDotsLabs/watermill-kafka/v3 v3.0.6
	github.com/ThreeDotsLabs/watermill-sql/v3 v3.1.0
	github.com/lib/pq v1.12.3
	github.com/postbox-go/watermill-postbox v0.0.0
	github.com/postbox-go/watermill-postbox/brokers/amqpbroker v0.0.0
	github.com/postbox-go/watermill-postbox/brokers/kafkabroker v0.0.0
	github.com/postbox-go/watermill-postbox/metrics/minutes v0.0.0
	github.com/postbox-go/watermill-postbox/metrics/prommetrics v0.0.0
	github.com/postbox-go/watermill-postbox/tail/pgtail v0.0.0
	github.com/postbox-go/watermill-postbox/tracing/oteltracing v0.0.0
	github.com/prometheus/client_golang v1.23.0
	github.com/robfig/cron/v3 v3.0.1
	github.com/stretchr/testify v1.12.1
	go.opentelemetry.io/otel v1.46.0
	go.opentelemetry.io/otel/sdk v1.46.0
	go.opentelemetry.io/otel/trace v1.46.0
	golang.org/x/sync v0.22.0
	modernc.org/sqlite v1.59.0
)

require github.com/rabbitmq/amqp091-go v1.16.0 // indirect

require (
	filippo.io/edwards25519 v1.2.0 // indirect
	github.com/IBM/sarama v1.43.3 // indirect
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cenkalti/backoff/v3 v3.2.2 // indirect
	github.com/cenkalti/backoff/v5 v5.0.3 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/coocood/freecache v1.2.7 // indirect
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/dnwe/otelsarama v0.0.0-20240308230250-9388d9d40bc0 // indirect
	github.com/dustin/go-humanize v1.0.1 // indirect
	github.com/eapache/go-resiliency v1.7.0 // indirect
	github.com/eapache/go-xerial-snappy v0.0.0-20230731223053-c322873962e3 // indirect
	github.com/eapache/queue v1.1.0 // indirect
	github.com/go-logr/logr v1.4.4 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/go-sql-driver/mysql v1.10.1 // indirect
	github.com/gogo/protobuf v1.3.2 // indirect
	github.com/golang/snappy v0.0.4 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/hashicorp/errwrap v1.1.0 // indirect
	github.com/hashicorp/go-multierror v1.1.1 // indirect
	github.com/hashicorp/go-uuid v1.0.3 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/pgx/v5 v5.12.0 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/jcmturner/aescts/v2 v2.0.0 // indirect
	github.com/jcmturner/dnsutils/v2 v2.0.0 // indirect
	github.com/jcmturner/gofork v1.7.6 // indirect
	github.com/jcmturner/gokrb5/v8 v8.4.4 // indirect
	github.com/jcmturner/rpc/v2 v2.0.3 // indirect
	github.com/klauspost/compress v1.18.7 // indirect
	github.com/lithammer/shortuuid/v3 v3.0.7 // indirect
	github.com/mattn/go-isatty v0.0.24 // indirect
	github.com/mfridman/interpolate v0.0.2 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/ncruces/go-strftime v1.0.0 // indirect
	github.com/oklog/ulid v1.3.1 // indirect
	github.com/pierrec/lz4/v4 v4.1.25 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/postbox-go/watermill-postbox/admin v0.0.0
	github.com/postbox-go/watermill-postbox/dashboard v0.0.0
	github.com/postbox-go/watermill-postbox/postboxtest v0.0.0
	github.com/postbox-go/watermill-postbox/sources v0.0.0
	github.com/pressly/goose/v3 v3.27.0 // indirect
	github.com/prometheus/client_model v0.6.2 // indirect
	github.com/prometheus/common v0.65.0 // indirect
	github.com/prometheus/procfs v0.19.2 // indirect
	github.com/rcrowley/go-metrics v0.0.0-20201227073835-cf1acfcdf475 // indirect
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	github.com/sethvargo/go-retry v0.3.0 // indirect
	github.com/sony/gobreaker v1.0.0 // indirect
	go.opentelemetry.io/auto/sdk v1.2.1 // indirect
	go.opentelemetry.io/otel/metric v1.46.0 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/crypto v0.55.0 // indirect
	golang.org/x/net v0.57.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.41.0 // indirect
	google.golang.org/protobuf v1.36.11
	modernc.org/libc v1.75.7 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.12.1 // indirect
)

replace github.com/postbox-go/watermill-postbox/dashboard => ../dashboard

replace github.com/postbox-go/watermill-postbox/sources => ../sources

replace github.com/postbox-go/watermill-postbox/postboxtest => ../postboxtest

replace github.com/postbox-go/watermill-postbox/admin => ../admin
