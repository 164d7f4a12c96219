// The sarama driver (tests/interop/drivers/README.md).
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
	"sync"

	"github.com/IBM/sarama"

	"sluice.invalid/interop/report"
)

const module = "github.com/IBM/sarama"

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

var ackLevels = map[string]sarama.RequiredAcks{
	"all": sarama.WaitForAll, "1": sarama.WaitForLocal, "0": sarama.NoResponse,
}

func settings(o report.Options) *sarama.Config {
	config := sarama.NewConfig()
	config.ClientID = o.ClientID
	config.Version = sarama.MaxVersion
	config.Producer.Return.Successes = true
	config.Producer.Return.Errors = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Consumer.Return.Errors = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Net.TLS.Config = report.TLS()
	config.Net.TLS.Enable = config.Net.TLS.Config != nil
	return config
}

// mark is what a message is told apart by when it comes back.
type mark struct{ index, sentMs int }

func message(o report.Options, index, base, sentMs int) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{
		Topic: o.Topic, Partition: int32(index % o.Partitions), Metadata: mark{index, sentMs},
		Value: sarama.ByteEncoder(report.Payload(base+index, o.Size)),
	}
}

func produce(o report.Options) {
	for _, compression := range strings.Split(o.Compression, ",") {
		config := settings(o)
		if level, ok := ackLevels[o.Acks]; ok { // else its default, 1
			config.Producer.RequiredAcks = level
		}
		if o.Idempotence == "on" { // both are what sarama asks for
			config.Producer.Idempotent = true
			config.Net.MaxOpenRequests = 1
		}
		config.Producer.Compression = codecs[compression]
		tally := report.NewTally(o)
		producer, err := sarama.NewAsyncProducer(o.Brokers(), config)
		if err != nil {
			log.Fatal(err)
		}
		room := make(chan struct{}, o.Outstanding)
		var readers sync.WaitGroup
		readers.Go(func() {
			for sent := range producer.Successes() {
				<-room
				told := sent.Metadata.(mark)
				tally.Acknowledged(told.index, o.Size, told.sentMs)
			}
		})
		readers.Go(func() {
			for failed := range producer.Errors() {
				<-room
				tally.Failed(failed.Msg.Metadata.(mark).index, failed.Err)
			}
		})
		for index := 0; !tally.Over() && o.More(index); index++ {
			room <- struct{}{}
			producer.Input() <- message(o, index, 0, tally.NowMs())
			o.Pause()
		}
		// A batch that sarama sends a second time while it closes is failed by it: first wait for every answer.
		for range o.Outstanding {
			room <- struct{}{}
		}
		producer.AsyncClose()
		readers.Wait()
		tally.ProducedLine(compression)
	}
}

func consumerSettings(o report.Options) *sarama.Config {
	config := settings(o)
	if o.Isolation == "read_committed" {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	if o.FetchBytes > 0 {
		config.Consumer.Fetch.Default = int32(o.FetchBytes)
		config.Consumer.Fetch.Max = int32(o.FetchBytes)
		config.Consumer.Fetch.MaxBytes = int32(o.FetchBytes)
	}
	return config
}

// member is one group member; sarama calls Setup for each generation and ConsumeClaim for each partition.
type member struct {
	options report.Options
	tally   *report.Tally
	stop    context.CancelFunc
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.tally.Assigned(slices.Clone(session.Claims()[m.options.Topic]))
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for received := range claim.Messages() {
		session.MarkMessage(received, "")
		if m.options.Enough(m.tally.Consumed(received.Value)) {
			m.stop()
		}
	}
	return nil
}

func consumeGroup(o report.Options, tally *report.Tally) {
	limited, cancel := tally.Context()
	defer cancel()
	group, err := sarama.NewConsumerGroup(o.Brokers(), o.Group, consumerSettings(o))
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		for err := range group.Errors() {
			tally.Error(err)
		}
	}()
	handler := &member{options: o, tally: tally, stop: cancel}
	for limited.Err() == nil {
		if err := group.Consume(limited, []string{o.Topic}, handler); err != nil && limited.Err() == nil {
			tally.Error(err)
		}
	}
	_ = group.Close()
}

func consumeAlone(o report.Options, tally *report.Tally) {
	limited, cancel := tally.Context()
	defer cancel()
	consumer, err := sarama.NewConsumer(o.Brokers(), consumerSettings(o))
	if err != nil {
		log.Fatal(err)
	}
	var readers sync.WaitGroup
	var parts []sarama.PartitionConsumer
	for partition := range o.Partitions {
		part, err := consumer.ConsumePartition(o.Topic, int32(partition), sarama.OffsetOldest)
		if err != nil {
			log.Fatal(err)
		}
		parts = append(parts, part)
		readers.Go(func() {
			for received := range part.Messages() {
				if o.Enough(tally.Consumed(received.Value)) {
					cancel()
				}
			}
		})
		readers.Go(func() {
			for err := range part.Errors() {
				tally.Error(err)
			}
		})
	}
	<-limited.Done()
	for _, part := range parts {
		part.AsyncClose()
	}
	readers.Wait()
	_ = consumer.Close()
}

func consume(o report.Options) {
	tally := report.NewTally(o)
	if o.Group != "" {
		consumeGroup(o, tally)
	} else {
		consumeAlone(o, tally)
	}
	tally.ConsumedLine()
}

func transact(o report.Options) {
	config := settings(o)
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Transaction.ID = o.TransactionalID
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer(o.Brokers(), config)
	if err != nil {
		log.Fatal(err)
	}
	for _, commit := range []bool{true, false} {
		if err := producer.BeginTxn(); err != nil {
			log.Fatal(err)
		}
		base := 0
		if !commit {
			base = report.AbortedBase
		}
		var batch []*sarama.ProducerMessage
		for index := range o.Records {
			batch = append(batch, message(o, index, base, 0))
		}
		if err := producer.SendMessages(batch); err != nil {
			log.Fatal(err)
		}
		end := producer.CommitTxn
		if !commit {
			end = producer.AbortTxn
		}
		if err := end(); err != nil {
			log.Fatal(err)
		}
	}
	_ = producer.Close()
	report.Emit("transacted", report.Fields{"committed": o.Records, "aborted": o.Records, "errors": 0})
}

func admin(o report.Options) {
	administrator, err := sarama.NewClusterAdmin(o.Brokers(), settings(o))
	if err != nil {
		log.Fatal(err)
	}
	defer administrator.Close()
	err = administrator.CreateTopic(o.Topic, &sarama.TopicDetail{
		NumPartitions: int32(o.Partitions), ReplicationFactor: int16(o.Replication),
	}, false)
	if err != nil && !errors.Is(err, sarama.ErrTopicAlreadyExists) {
		log.Fatal(err)
	}
	listed, err := administrator.ListTopics()
	if err != nil {
		log.Fatal(err)
	}
	var topics, brokers []string
	for name := range listed {
		topics = append(topics, name)
	}
	slices.Sort(topics)
	described, err := administrator.DescribeTopics([]string{o.Topic})
	if err != nil {
		log.Fatal(err)
	}
	nodes, _, err := administrator.DescribeCluster()
	if err != nil {
		log.Fatal(err)
	}
	for _, node := range nodes {
		brokers = append(brokers, fmt.Sprintf("%d@%s", node.ID(), node.Addr()))
	}
	slices.Sort(brokers)
	report.Emit("described", report.Fields{
		"topics": topics, "partitions": len(described[0].Partitions), "brokers": brokers,
	})
}

func described(administrator sarama.ClusterAdmin, clientID string) map[string]float64 {
	component := sarama.QuotaFilterComponent{
		EntityType: sarama.QuotaEntityClientID, MatchType: sarama.QuotaMatchExact, Match: clientID,
	}
	found, err := administrator.DescribeClientQuotas([]sarama.QuotaFilterComponent{component}, true)
	if err != nil {
		log.Fatal(err)
	}
	values := map[string]float64{}
	for _, quota := range found {
		for key, value := range quota.Values {
			values[key] = value
		}
	}
	return values
}

func quotas(o report.Options) {
	administrator, err := sarama.NewClusterAdmin(o.Brokers(), settings(o))
	if err != nil {
		log.Fatal(err)
	}
	defer administrator.Close()
	const rate, percentage = "producer_byte_rate", "request_percentage"
	// This client sends one change a request.
	alter := func(op sarama.ClientQuotasOp) error {
		return administrator.AlterClientQuotas([]sarama.QuotaEntityComponent{{
			EntityType: sarama.QuotaEntityClientID, MatchType: sarama.QuotaMatchExact, Name: o.Topic,
		}}, op, false)
	}
	for _, op := range []sarama.ClientQuotasOp{{Key: rate, Value: 1_000_000}, {Key: percentage, Value: 12.5}} {
		if err := alter(op); err != nil {
			log.Fatal(err)
		}
	}
	set := described(administrator, o.Topic)
	refused := ""
	if err := alter(sarama.ClientQuotasOp{Key: rate, Value: -1}); err != nil {
		refused = err.Error()
	}
	for _, key := range []string{rate, percentage} {
		if err := alter(sarama.ClientQuotasOp{Key: key, Remove: true}); err != nil {
			log.Fatal(err)
		}
	}
	report.Emit("quotas", report.Fields{
		"rate": int(set[rate]), "percentage": fmt.Sprint(set[percentage]),
		"left": len(described(administrator, o.Topic)), "refused": refused,
	})
}

func capabilities(report.Options) {
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range info.Deps {
			if dependency.Path == module {
				version = dependency.Version
			}
		}
	}
	report.Emit("capabilities", report.Fields{
		"client": "sarama " + version, "transactions": true,
		"compressions": []string{"none", "gzip", "snappy", "lz4", "zstd"},
	})
}

func main() {
	o := report.Parse()
	sarama.Logger = log.New(os.Stderr, "sarama ", log.LstdFlags|log.Lmicroseconds)
	commands := map[string]func(report.Options){
		"capabilities": capabilities, "produce": produce, "consume": consume, "transact": transact,
		"admin": admin, "quotas": quotas,
	}
	command, ok := commands[o.Command]
	if !ok {
		log.Fatalf("unknown command %q", o.Command)
	}
	command(o)
}
