// A client written from the .proto files alone: lists the services, creates a topic, writes plain
// records, reads them back, and prints three refusals.
//
//   node produce_fetch.js [HOST:PORT]     default: localhost:9192
'use strict'
const assert = require('node:assert')
const path = require('node:path')
const grpc = require('@grpc/grpc-js')
const protoLoader = require('@grpc/proto-loader')

const PROTO = path.resolve(__dirname, '../../../proto')
const FILES = ['admin', 'errors', 'metadata', 'records'].map((name) => `tidelog/v1/${name}.proto`)
const OPTIONS = { keepCase: true, longs: Number, enums: String, defaults: true }
const CALL_TIMEOUT_MS = 10_000
const ATTEMPTS_MAX = 10
const RETRY_MS = 200

const definitions = protoLoader.loadSync(FILES, { ...OPTIONS, includeDirs: [PROTO] })
const { tidelog } = grpc.loadPackageDefinition(definitions)
const deadline = () => new Date(Date.now() + CALL_TIMEOUT_MS)
const connect = (Service, address) => new Service(address, grpc.credentials.createInsecure())

// A call that failed as a whole carries a serialised tidelog.v1.Error in its trailing metadata.
function documentedError(failure) {
  const [trailer] = failure.metadata?.get('tidelog-error-bin') ?? []
  return trailer ? definitions['tidelog.v1.Error'].deserialize(trailer) : null
}

function call(client, method, request) {
  return new Promise((resolve, reject) => {
    client[method](request, { deadline: deadline() }, (failure, answer) =>
      failure ? reject(failure) : resolve(answer))
  })
}

// Only for calls that may be sent twice: those that change nothing.
async function callUntilAnswered(client, method, request) {
  for (let attempt = 1; ; attempt++) {
    try {
      return await call(client, method, request)
    } catch (failure) {
      const unreachable = failure.code === grpc.status.UNAVAILABLE
      const retriable = documentedError(failure)?.retriable ?? unreachable
      if (!retriable || attempt === ATTEMPTS_MAX) throw failure
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS))
    }
  }
}

// A part of an answer may carry an error although the call succeeded.
const describe = (error) => `${error.code} | ${error.happened} | hint: ${error.hint}`
function check(part) {
  if (part.error) throw new Error(describe(part.error))
  return part
}

async function showRefusal(client, method, request) {
  const failure = await call(client, method, request).then(() => null, (error) => error)
  const error = failure && documentedError(failure)
  assert(error, `${method} was expected to fail with a documented error: ${failure}`)
  console.log(`refused: ${grpc.status[failure.code]} ${describe(error)}`)
}

async function listServices(address) {
  const file = path.join(__dirname, 'reflection.proto')
  const { grpc: loaded } = grpc.loadPackageDefinition(protoLoader.loadSync(file, OPTIONS))
  const client = connect(loaded.reflection.v1alpha.ServerReflection, address)
  const stream = client.ServerReflectionInfo({ deadline: deadline() })
  stream.end({ list_services: '' })
  for await (const answer of stream) return answer.list_services_response.service
}

async function main(bootstrap) {
  for (const { name } of await listServices(bootstrap)) console.log(`service: ${name}`)
  const admin = connect(tidelog.v1.AdminService, bootstrap)
  const topic = `node-${process.pid}-${Date.now()}`
  const topics = [{ name: topic, partition_count: 1 }]
  check((await call(admin, 'CreateTopics', { topics })).results[0])

  const metadata = connect(tidelog.v1.MetadataService, bootstrap)
  const cluster = await callUntilAnswered(metadata, 'GetMetadata', { topic_names: [topic] })
  const [{ partition, leader_id }] = check(cluster.topics[0]).partitions
  const leader = cluster.brokers.find((broker) => broker.broker_id === leader_id)
  const records = connect(tidelog.v1.RecordsService, leader.address)

  const sent = ['one', 'two', 'three'].map((text) => ({ value: Buffer.from(text) }))
  const written = await call(records, 'ProduceRecords', { topic, partition, records: sent })
  written.places.forEach((place) => console.log(`produced: offset ${check(place).offset}`))
  const from = { topic, partition, fetch_offset: written.places[0].offset, max_wait_ms: 1000 }
  const read = await callUntilAnswered(records, 'FetchRecords', from)
  read.records.forEach(({ offset, value }) => console.log(`fetched: offset ${offset} ${value}`))

  const refused = await call(admin, 'CreateTopics', { topics: [{ name: 'no/such name' }] })
  console.log(`refused: in the answer ${describe(refused.results[0].error)}`)
  await showRefusal(records, 'FetchRecords', { ...from, topic: `${topic}-missing` })
  await showRefusal(records, 'FetchRecords', { ...from, fetch_offset: 1_000_000 })
}

const fail = (error) => { console.error(error.message); process.exit(1) }
main(process.argv[2] ?? 'localhost:9192').then(() => process.exit(0), fail)
