// A client written from the .proto files alone: it writes numbers, reads them as a member of a group,
// and goes on when a broker dies. The first number creates the topic.
//
//   npm ci && node numbers.js HOST:PORT[,HOST:PORT...] TOPIC COUNT
'use strict'
const path = require('node:path')
const grpc = require('@grpc/grpc-js')
const protoLoader = require('@grpc/proto-loader')

const PROTO = path.resolve(__dirname, '../../../proto')
const FILES = ['records', 'subscribe'].map((name) => `tidelog/v1/${name}.proto`)
const OPTIONS = { keepCase: true, longs: Number, enums: String, includeDirs: [PROTO] }
const CALL_TIMEOUT_MS = 5_000
const RETRY_MS = 100
const GIVE_UP_MS = 60_000

const { tidelog } = grpc.loadPackageDefinition(protoLoader.loadSync(FILES, OPTIONS))
const pause = () => new Promise((resolve) => setTimeout(resolve, RETRY_MS))
const connect = (Service, addresses) =>
  addresses.map((address) => new Service(address, grpc.credentials.createInsecure()))

// The error of the call, or of the record; null: it is stored.
function produceOne(broker, topic, number) {
  const text = Buffer.from(String(number))
  const request = { topic, records: [{ key: text, value: text }] }
  const deadline = new Date(Date.now() + CALL_TIMEOUT_MS)
  return new Promise((resolve) => {
    broker.ProduceRecords(request, { deadline }, (failure, answer) =>
      resolve(failure ?? answer.places[0].error ?? null))
  })
}

// A number whose answer was lost is sent again, and may be stored twice: readers must not mind.
async function produce(brokers, topic, count) {
  const begun = Date.now()
  for (let number = 0, turn = 0; number < count;) {
    const error = await produceOne(brokers[turn % brokers.length], topic, number)
    if (!error) {
      number++
      continue
    }
    if (Date.now() - begun > GIVE_UP_MS) throw new Error(error.happened ?? error.message)
    turn++ // This broker is gone, or does not lead the partition: the next one is asked.
    await pause()
  }
}

// Reads until all numbers were seen or the stream breaks; acknowledges, and grants as many again.
function read(broker, topic, seen, count) {
  const stream = broker.Subscribe({ deadline: new Date(Date.now() + GIVE_UP_MS) })
  const begin = { group: `${topic}-readers`, topics: [topic], start_at: 'START_AT_EARLIEST' }
  stream.write({ begin: { ...begin, credit_records: 100 } })
  return new Promise((resolve, reject) => {
    stream.on('error', reject)
    stream.on('end', () => reject(new Error('the broker ended the stream')))
    stream.on('data', ({ records: got }) => {
      if (!got) return
      for (const { value, offset } of got.records) {
        seen.add(String(value))
        console.log(`read ${value} from ${got.partition ?? 0}@${offset ?? 0}`)
      }
      const next_offset = (got.records.at(-1).offset ?? 0) + 1
      stream.write({ acknowledge: { positions: [{ topic, partition: got.partition, next_offset }] } })
      stream.write({ credit: { records: got.records.length } })
      if (seen.size < count) return
      stream.end()
      resolve()
    })
  })
}

async function main(bootstrap, topic, count) {
  const addresses = bootstrap.split(',')
  const writing = produce(connect(tidelog.v1.RecordsService, addresses), topic, count)
  const brokers = connect(tidelog.v1.SubscribeService, addresses)
  const seen = new Set()
  for (let turn = 0; seen.size < count; turn++) {
    try {
      await read(brokers[turn % brokers.length], topic, seen, count)
    } catch (error) {
      console.log(`the stream broke, on to the next broker: ${error.message}`)
      await pause()
    }
  }
  await writing
  console.log(`done: ${seen.size} numbers`)
}

const fail = (error) => { console.error(error.message); process.exit(1) }
main(process.argv[2], process.argv[3], Number(process.argv[4])).then(() => process.exit(0), fail)
