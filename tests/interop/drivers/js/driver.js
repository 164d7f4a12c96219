// The KafkaJS driver (tests/interop/drivers/README.md). Gzip is KafkaJS's own, snappy its plugin;
// lz4 and zstd would need native builds and are not here.
'use strict'

const fs = require('fs')

const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require('kafkajs')
const SnappyCodec = require('kafkajs-snappy')

CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec
process.env.KAFKAJS_NO_PARTITIONER_WARNING = '1'

const INDEX_DIGITS = 10
const ABORTED_BASE = 1000000
const COMPRESSIONS = {
  none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy,
}

function parseArguments(argv) {
  const options = {
    'bootstrap': '127.0.0.1:9092', 'client-id': 'interop', 'topic': 'interop', 'group': '',
    'group-protocol': 'classic', 'acks': 'all', 'compression': 'none', 'isolation': 'read_uncommitted',
    'transactional-id': '', 'records': 0, 'size': 1000, 'partitions': 1, 'replication': 1,
    'outstanding': 500, 'fetch-bytes': 0, 'seconds': 0, 'stop-file': '', 'idempotence': 'default', 'calls': 1,
    'watch-ms': 0,
  }
  for (let at = 1; at < argv.length; at += 2) {
    const name = argv[at].slice(2)
    if (!(name in options)) throw new Error(`unknown option ${argv[at]}`)
    options[name] = typeof options[name] === 'number' ? Number(argv[at + 1]) : argv[at + 1]
  }
  return [argv[0], options]
}

const emit = (event, fields) => process.stdout.write(JSON.stringify({ event, ...fields }) + '\n')
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))
const payload = (index, size) => String(index).padStart(INDEX_DIGITS, '0').padEnd(size, 's')

class Tally {
  constructor(options) {
    this.started = Date.now()
    this.seconds = options.seconds
    this.stopFile = options['stop-file']
    this.watched = options['watch-ms'] > 0
    this.records = this.bytes = this.errors = this.indexSum = this.assignments = 0
    this.slowest = this.progressAt = 0
    this.first = this.last = -1
  }

  now() { return Date.now() - this.started }

  over() {
    return (this.seconds > 0 && this.now() >= this.seconds * 1000)
      || (this.stopFile !== '' && fs.existsSync(this.stopFile))
  }

  error(message) {
    this.errors += 1
    emit('error', { at_ms: this.now(), message: String(message).slice(0, 500) })
  }

  failed(indexes, message) {
    emit('failed', { indexes })
    this.error(message)
  }

  record(size, index) {
    if (this.watched) emit('record', { index, unix_ms: Date.now() })
    this.last = this.now()
    if (this.first < 0) this.first = this.last
    this.records += 1
    this.bytes += size
  }

  consumed(value) {
    const index = Number(value.subarray(0, INDEX_DIGITS).toString())
    this.record(value.length, index)
    this.indexSum += index
    if (this.last - this.progressAt >= 1000 || this.records === 1) {
      this.progressAt = this.last
      emit('progress', { at_ms: this.last, records: this.records, bytes: this.bytes })
    }
  }
}

// KafkaJS logs what other clients report through a callback: its errors are counted here.
function client(options, tally) {
  return new Kafka({
    clientId: options['client-id'],
    brokers: options.bootstrap.split(','),
    ssl: process.env.INTEROP_CA_FILE ? { ca: [fs.readFileSync(process.env.INTEROP_CA_FILE)] } : false,
    logLevel: logLevel.WARN,
    logCreator: () => ({ namespace, level, log }) => {
      process.stderr.write(`${namespace} ${log.message} ${log.error || ''}\n`)
      if (level === logLevel.ERROR && tally && !/rebalancing/i.test(log.error || '')) {
        tally.error(`${namespace} ${log.message} ${log.error || ''}`)
      }
    },
  })
}

async function produceWith(options, compression) {
  const tally = new Tally(options)
  const producer = client(options, tally).producer(
    options.idempotence === 'default' ? {} : { idempotent: options.idempotence === 'on' },
  )
  await producer.connect()
  const acks = { all: { acks: -1 }, default: {} }[options.acks] || { acks: Number(options.acks) }
  let index = 0
  const pending = new Set()
  // KafkaJS sends a batch a call: a call of `outstanding` records is what it may have unanswered.
  while (!tally.over() && (options.records === 0 || index < options.records)) {
    const messages = []
    const first = index
    while (messages.length < options.outstanding && (options.records === 0 || index < options.records)) {
      messages.push({ value: payload(index, options.size), partition: index % options.partitions })
      index += 1
    }
    const sent = tally.now()
    const call = producer.send({
      topic: options.topic, ...acks, compression: COMPRESSIONS[compression], messages,
    }).then(() => {
      messages.forEach((message, at) => tally.record(message.value.length, first + at))
      tally.slowest = Math.max(tally.slowest, tally.now() - sent)
    }, (error) => tally.failed(messages.map((_, at) => first + at), error)).then(() => pending.delete(call))
    pending.add(call)
    if (pending.size >= options.calls) await Promise.race(pending)
    // Without responses no call waits for the network, and a closed connection would not be seen.
    if (options.acks === '0') await new Promise(setImmediate)
    if (options['watch-ms']) await sleep(options['watch-ms'])
  }
  await Promise.all(pending)
  await producer.disconnect()
  emit('produced', {
    compression, records: tally.records, bytes: tally.bytes, errors: tally.errors,
    slowest_ms: tally.slowest, first_ms: tally.first, last_ms: tally.last,
  })
}

async function consume(options) {
  const tally = new Tally(options)
  const settings = {
    groupId: options.group || `alone-${options['client-id']}-${process.pid}`,
    readUncommitted: options.isolation === 'read_uncommitted',
  }
  if (options['fetch-bytes']) {
    settings.maxBytes = options['fetch-bytes']
    settings.maxBytesPerPartition = options['fetch-bytes']
  }
  const consumer = client(options, tally).consumer(settings)
  consumer.on(consumer.events.GROUP_JOIN, ({ payload: joined }) => {
    tally.assignments += 1
    emit('assigned', {
      at_ms: tally.now(), partitions: (joined.memberAssignment[options.topic] || []).slice().sort(),
    })
  })
  await consumer.connect()
  await consumer.subscribe({ topics: [options.topic], fromBeginning: true })
  await consumer.run({ eachMessage: async ({ message }) => tally.consumed(message.value) })
  while (!tally.over() && (options.records === 0 || tally.records < options.records)) await sleep(20)
  await consumer.disconnect()
  emit('consumed', {
    records: tally.records, bytes: tally.bytes, errors: tally.errors,
    rebalances: Math.max(0, tally.assignments - 1), index_sum: tally.indexSum,
    first_ms: tally.first, last_ms: tally.last,
  })
}

async function transact(options) {
  // KafkaJS logs a broker's CONCURRENT_TRANSACTIONS, which it retries, as an error: nothing is counted here.
  const producer = client(options, null).producer({
    transactionalId: options['transactional-id'], idempotent: true, maxInFlightRequests: 1,
  })
  await producer.connect()
  for (const [first, commit] of [[0, true], [ABORTED_BASE, false]]) {
    const transaction = await producer.transaction()
    const messages = []
    for (let index = 0; index < options.records; index += 1) {
      messages.push({ value: payload(first + index, options.size), partition: index % options.partitions })
    }
    await transaction.send({ topic: options.topic, messages })
    await (commit ? transaction.commit() : transaction.abort())
  }
  await producer.disconnect()
  emit('transacted', { committed: options.records, aborted: options.records, errors: 0 })
}

async function admin(options) {
  const administrator = client(options, null).admin()
  await administrator.connect()
  await administrator.createTopics({
    topics: [{
      topic: options.topic, numPartitions: options.partitions, replicationFactor: options.replication,
    }],
  })
  const cluster = await administrator.describeCluster()
  const metadata = await administrator.fetchTopicMetadata({ topics: [options.topic] })
  emit('described', {
    topics: (await administrator.listTopics()).sort(),
    partitions: metadata.topics[0].partitions.length,
    brokers: cluster.brokers.map((broker) => `${broker.nodeId}@${broker.host}:${broker.port}`).sort(),
  })
  await administrator.disconnect()
}

const COMMANDS = {
  capabilities: async () => emit('capabilities', {
    client: `KafkaJS ${require('kafkajs/package.json').version}`,
    compressions: Object.keys(COMPRESSIONS), transactions: true,
  }),
  produce: async (options) => {
    for (const compression of options.compression.split(',')) await produceWith(options, compression)
  },
  consume, transact, admin,
}

const [command, options] = parseArguments(process.argv.slice(2))
COMMANDS[command](options).then(
  () => process.exit(0),
  (error) => { console.error(error); process.exit(1) },
)
