// The franz-go driver (tests/interop/drivers/README.md).
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice.invalid/interop/report"
)

const module = "github.com/twmb/franz-go"

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func client(o report.Options, more ...kgo.Opt) *kgo.Client {
	if authority := report.TLS(); authority != nil {
		more = append(more, kgo.DialTLSConfig(authority))
	}
	created, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(o.Brokers()...),
		kgo.ClientID(o.ClientID),
		// Fetch session errors are told at level info.
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelInfo, nil)),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}, more...)...)
	if err != nil {
		log.Fatal(err)
	}
	return created
}

// semantics are acks and idempotence where they are not the client's defaults; it is idempotent with acks=all only.
func semantics(o report.Options) []kgo.Opt {
	switch o.Acks {
	case "0":
		return []kgo.Opt{kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite()}
	case "1":
		return []kgo.Opt{kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite()}
	}
	if o.Idempotence == "off" {
		return []kgo.Opt{kgo.DisableIdempotentWrite()}
	}
	return nil
}

func record(o report.Options, index, base int) *kgo.Record {
	return &kgo.Record{
		Topic: o.Topic, Partition: int32(index % o.Partitions), Value: report.Payload(base+index, o.Size),
	}
}

func produce(ctx context.Context, o report.Options) {
	for _, compression := range strings.Split(o.Compression, ",") {
		tally := report.NewTally(o)
		options := append(semantics(o), kgo.ProducerBatchCompression(codecs[compression]))
		producer := client(o, options...)
		room := make(chan struct{}, o.Outstanding)
		for index := 0; !tally.Over() && o.More(index); index++ {
			room <- struct{}{}
			sentMs := tally.NowMs()
			producer.Produce(ctx, record(o, index, 0), func(_ *kgo.Record, err error) {
				<-room
				if err != nil {
					tally.Failed(index, err)
				} else {
					tally.Acknowledged(index, o.Size, sentMs)
				}
			})
			o.Pause()
		}
		if err := producer.Flush(ctx); err != nil {
			tally.Error(err)
		}
		producer.Close()
		tally.ProducedLine(compression)
	}
}

func consumerOptions(o report.Options, tally *report.Tally) []kgo.Opt {
	options := []kgo.Opt{
		kgo.ConsumeTopics(o.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if o.Isolation == "read_committed" {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	if o.FetchBytes > 0 {
		limit := int32(o.FetchBytes)
		options = append(options, kgo.FetchMaxBytes(limit), kgo.FetchMaxPartitionBytes(limit))
	}
	if o.Group != "" {
		options = append(options, kgo.ConsumerGroup(o.Group), kgo.Balancers(kgo.RangeBalancer()),
			kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
				tally.Assigned(slices.Clone(parts[o.Topic]))
			}))
	}
	return options
}

func consume(_ context.Context, o report.Options) {
	tally := report.NewTally(o)
	consumer := client(o, consumerOptions(o, tally)...)
	limited, cancel := tally.Context()
	defer cancel()
	for enough := false; !enough && limited.Err() == nil; {
		fetches := consumer.PollFetches(limited)
		fetches.EachError(func(topic string, partition int32, err error) {
			if !errors.Is(err, context.Canceled) {
				tally.Error(fmt.Sprintf("%s-%d: %v", topic, partition, err))
			}
		})
		fetches.EachRecord(func(r *kgo.Record) {
			enough = o.Enough(tally.Consumed(r.Value)) || enough
		})
	}
	consumer.Close()
	tally.ConsumedLine()
}

func transact(ctx context.Context, o report.Options) {
	producer := client(o, kgo.TransactionalID(o.TransactionalID))
	for _, commit := range []bool{true, false} {
		if err := producer.BeginTransaction(); err != nil {
			log.Fatal(err)
		}
		base := 0
		if !commit {
			base = report.AbortedBase
		}
		for index := range o.Records {
			producer.Produce(ctx, record(o, index, base), nil)
		}
		if err := producer.Flush(ctx); err != nil {
			log.Fatal(err)
		}
		if err := producer.EndTransaction(ctx, kgo.TransactionEndTry(commit)); err != nil {
			log.Fatal(err)
		}
	}
	producer.Close()
	report.Emit("transacted", report.Fields{"committed": o.Records, "aborted": o.Records, "errors": 0})
}

func admin(ctx context.Context, o report.Options) {
	administrator := kadm.NewClient(client(o))
	defer administrator.Close()
	_, err := administrator.CreateTopic(ctx, int32(o.Partitions), int16(o.Replication), nil, o.Topic)
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		log.Fatal(err)
	}
	metadata, err := administrator.Metadata(ctx)
	if err != nil {
		log.Fatal(err)
	}
	var brokers []string
	for _, b := range metadata.Brokers {
		brokers = append(brokers, fmt.Sprintf("%d@%s:%d", b.NodeID, b.Host, b.Port))
	}
	slices.Sort(brokers)
	topics := metadata.Topics.Names()
	slices.Sort(topics)
	report.Emit("described", report.Fields{
		"topics": topics, "partitions": len(metadata.Topics[o.Topic].Partitions), "brokers": brokers,
	})
}

func alter(ctx context.Context, administrator *kadm.Client, clientID string, ops ...kadm.AlterClientQuotaOp) error {
	entity := kadm.ClientQuotaEntity{{Type: "client-id", Name: &clientID}}
	altered, err := administrator.AlterClientQuotas(ctx, []kadm.AlterClientQuotaEntry{{Entity: entity, Ops: ops}})
	if err != nil {
		log.Fatal(err)
	}
	if altered[0].Err != nil {
		return errors.New(altered[0].ErrMessage)
	}
	return nil
}

func described(ctx context.Context, administrator *kadm.Client, clientID string) map[string]float64 {
	component := kadm.DescribeClientQuotaComponent{Type: "client-id", MatchName: &clientID, MatchType: 0}
	found, err := administrator.DescribeClientQuotas(ctx, true, []kadm.DescribeClientQuotaComponent{component})
	if err != nil {
		log.Fatal(err)
	}
	values := map[string]float64{}
	for _, quota := range found {
		for _, value := range quota.Values {
			values[value.Key] = value.Value
		}
	}
	return values
}

func quotas(ctx context.Context, o report.Options) {
	administrator := kadm.NewClient(client(o))
	defer administrator.Close()
	const rate, percentage = "producer_byte_rate", "request_percentage"
	err := alter(ctx, administrator, o.Topic, kadm.AlterClientQuotaOp{Key: rate, Value: 1_000_000},
		kadm.AlterClientQuotaOp{Key: percentage, Value: 12.5})
	if err != nil {
		log.Fatal(err)
	}
	set := described(ctx, administrator, o.Topic)
	refused := ""
	if err := alter(ctx, administrator, o.Topic, kadm.AlterClientQuotaOp{Key: rate, Value: -1}); err != nil {
		refused = err.Error()
	}
	err = alter(ctx, administrator, o.Topic, kadm.AlterClientQuotaOp{Key: rate, Remove: true},
		kadm.AlterClientQuotaOp{Key: percentage, Remove: true})
	if err != nil {
		log.Fatal(err)
	}
	report.Emit("quotas", report.Fields{
		"rate": int(set[rate]), "percentage": fmt.Sprint(set[percentage]),
		"left": len(described(ctx, administrator, o.Topic)), "refused": refused,
	})
}

func capabilities(context.Context, report.Options) {
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range info.Deps {
			if dependency.Path == module {
				version = dependency.Version
			}
		}
	}
	report.Emit("capabilities", report.Fields{
		"client": "franz-go " + version, "transactions": true,
		"compressions": []string{"none", "gzip", "snappy", "lz4", "zstd"},
	})
}

func main() {
	o := report.Parse()
	commands := map[string]func(context.Context, report.Options){
		"capabilities": capabilities, "produce": produce, "consume": consume, "transact": transact,
		"admin": admin, "quotas": quotas,
	}
	command, ok := commands[o.Command]
	if !ok {
		log.Fatalf("unknown command %q", o.Command)
	}
	command(context.Background(), o)
}
