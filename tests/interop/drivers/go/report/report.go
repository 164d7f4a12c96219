// Package report is what the two Go drivers share: arguments, the payload, JSON lines, and the tallies
// (tests/interop/drivers/README.md). It knows no Kafka client.
package report

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const indexDigits = 10

// AbortedBase is added to the numbers of records that belong to an aborted transaction.
const AbortedBase = 1_000_000

// Fields are one JSON line's own fields.
type Fields map[string]any

// Options are the command line.
type Options struct {
	Command, Bootstrap, ClientID, Topic, Group, GroupProtocol, Acks, Compression, Isolation,
	TransactionalID, StopFile, Idempotence string
	Records, Size, Partitions, Replication, Outstanding, FetchBytes, WatchMs int
	Seconds                                                                  float64
}

// Parse reads the command line, or ends the program.
func Parse() Options {
	var o Options
	if len(os.Args) < 2 {
		log.Fatal("a command is missing")
	}
	o.Command = os.Args[1]
	flags := flag.NewFlagSet(o.Command, flag.ExitOnError)
	flags.StringVar(&o.Bootstrap, "bootstrap", "127.0.0.1:9092", "")
	flags.StringVar(&o.ClientID, "client-id", "interop", "")
	flags.StringVar(&o.Topic, "topic", "interop", "")
	flags.StringVar(&o.Group, "group", "", "")
	flags.StringVar(&o.GroupProtocol, "group-protocol", "classic", "")
	flags.StringVar(&o.Acks, "acks", "all", "")
	flags.StringVar(&o.Idempotence, "idempotence", "default", "")
	flags.StringVar(&o.Compression, "compression", "none", "")
	flags.StringVar(&o.Isolation, "isolation", "read_uncommitted", "")
	flags.StringVar(&o.TransactionalID, "transactional-id", "", "")
	flags.StringVar(&o.StopFile, "stop-file", "", "")
	flags.IntVar(&o.Records, "records", 0, "")
	flags.IntVar(&o.Size, "size", 1000, "")
	flags.IntVar(&o.Partitions, "partitions", 1, "")
	flags.IntVar(&o.Replication, "replication", 1, "")
	flags.IntVar(&o.Outstanding, "outstanding", 500, "")
	flags.IntVar(&o.FetchBytes, "fetch-bytes", 0, "")
	flags.IntVar(&o.WatchMs, "watch-ms", 0, "")
	flags.Float64Var(&o.Seconds, "seconds", 0, "")
	_ = flags.Parse(os.Args[2:])
	return o
}

// Brokers is the bootstrap list.
func (o Options) Brokers() []string { return strings.Split(o.Bootstrap, ",") }

// TLS is what the client speaks TLS with; nil where it speaks none.
func TLS() *tls.Config {
	path := os.Getenv("INTEROP_CA_FILE")
	if path == "" {
		return nil
	}
	pem, err := os.ReadFile(path)
	if err != nil {
		log.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		log.Fatal("no certificate in ", path)
	}
	return &tls.Config{RootCAs: pool}
}

// More tells whether record number index is still to be sent.
func (o Options) More(index int) bool { return o.Records == 0 || index < o.Records }

// Pause waits between two records that are watched.
func (o Options) Pause() { time.Sleep(time.Duration(o.WatchMs) * time.Millisecond) }

// Enough tells whether a consumer has what it came for.
func (o Options) Enough(records int) bool { return o.Records > 0 && records >= o.Records }

var output sync.Mutex

// Emit prints one JSON line, at once.
func Emit(event string, fields Fields) {
	fields["event"] = event
	line, err := json.Marshal(fields)
	if err != nil {
		log.Fatal(err)
	}
	output.Lock()
	defer output.Unlock()
	fmt.Println(string(line))
}

// Payload is record number index, filled up to size bytes.
func Payload(index, size int) []byte {
	value := fmt.Sprintf("%0*d", indexDigits, index)
	if len(value) < size {
		value += strings.Repeat("s", size-len(value))
	}
	return []byte(value)
}

// Tally counts what was produced or consumed so far. Its methods may be called from any goroutine.
type Tally struct {
	lock                                          sync.Mutex
	started                                       time.Time
	seconds                                       float64
	stopFile                                      string
	watched                                       bool
	records, bytes, errors, indexSum, assignments int
	slowestMs, firstMs, lastMs, progressMs        int
}

// NewTally starts the clock.
func NewTally(o Options) *Tally {
	return &Tally{
		started: time.Now(), seconds: o.Seconds, stopFile: o.StopFile, watched: o.WatchMs > 0, firstMs: -1, lastMs: -1,
	}
}

// NowMs is milliseconds since the start.
func (t *Tally) NowMs() int { return int(time.Since(t.started).Milliseconds()) }

// Over tells whether the time is up, or the stop file is there.
func (t *Tally) Over() bool {
	if t.seconds > 0 && time.Since(t.started).Seconds() >= t.seconds {
		return true
	}
	if t.stopFile == "" {
		return false
	}
	_, err := os.Stat(t.stopFile)
	return err == nil
}

// Context is cancelled when it is over.
func (t *Tally) Context() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for !t.Over() && ctx.Err() == nil {
			time.Sleep(20 * time.Millisecond)
		}
		cancel()
	}()
	return ctx, cancel
}

// Error counts and prints what the client reported to its user.
func (t *Tally) Error(message any) {
	t.lock.Lock()
	t.errors++
	t.lock.Unlock()
	Emit("error", Fields{"at_ms": t.NowMs(), "message": fmt.Sprint(message)})
}

// Failed counts and prints a record that the client says it could not deliver.
func (t *Tally) Failed(index int, message any) {
	Emit("failed", Fields{"indexes": []int{index}})
	t.Error(message)
}

func (t *Tally) record(size, index int) {
	if t.watched {
		Emit("record", Fields{"index": index, "unix_ms": time.Now().UnixMilli()})
	}
	t.lastMs = t.NowMs()
	if t.firstMs < 0 {
		t.firstMs = t.lastMs
	}
	t.records++
	t.bytes += size
}

// Acknowledged counts a produced record.
func (t *Tally) Acknowledged(index, size, sentMs int) {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.record(size, index)
	t.slowestMs = max(t.slowestMs, t.lastMs-sentMs)
}

// Consumed counts a consumed record and returns how many there are.
func (t *Tally) Consumed(value []byte) int {
	t.lock.Lock()
	defer t.lock.Unlock()
	index, err := strconv.Atoi(string(value[:min(indexDigits, len(value))]))
	if err != nil {
		log.Fatalf("a record without a number: %v", err)
	}
	t.record(len(value), index)
	t.indexSum += index
	if t.lastMs-t.progressMs >= 1000 || t.records == 1 {
		t.progressMs = t.lastMs
		Emit("progress", Fields{"at_ms": t.lastMs, "records": t.records, "bytes": t.bytes})
	}
	return t.records
}

// Assigned counts and prints an assignment.
func (t *Tally) Assigned(partitions []int32) {
	t.lock.Lock()
	t.assignments++
	t.lock.Unlock()
	slices.Sort(partitions)
	if partitions == nil {
		partitions = []int32{}
	}
	Emit("assigned", Fields{"at_ms": t.NowMs(), "partitions": partitions})
}

// ProducedLine is the last line of produce, for one compression.
func (t *Tally) ProducedLine(compression string) {
	t.lock.Lock()
	defer t.lock.Unlock()
	Emit("produced", Fields{
		"compression": compression, "records": t.records, "bytes": t.bytes, "errors": t.errors,
		"slowest_ms": t.slowestMs, "first_ms": t.firstMs, "last_ms": t.lastMs,
	})
}

// ConsumedLine is the last line of consume.
func (t *Tally) ConsumedLine() {
	t.lock.Lock()
	defer t.lock.Unlock()
	Emit("consumed", Fields{
		"records": t.records, "bytes": t.bytes, "errors": t.errors, "rebalances": max(0, t.assignments-1),
		"index_sum": t.indexSum, "first_ms": t.firstMs, "last_ms": t.lastMs,
	})
}
